"""Stand-ins that an algorithm is called with while it is traced; see `rlcpu.nn.tape.tracing`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcpu.nn.tape.refusals import StandIn, at_user

if TYPE_CHECKING:
    from rlcpu.nn.tape.tracing import Tape


class Tensor(StandIn):
    """Stands for a number, or `width` numbers, of each sample while an algorithm is traced.

    Attributes:
        tape: the tape that it is on.
        place: its first row.
        width: numbers of a sample.
        has_gradient: whether derivatives go through it.
        is_common: whether its numbers are the same for all samples, as settings are.
    """

    def __init__(
        self, tape: Tape, place: int, width: int, has_gradient: bool, is_common: bool = False
    ) -> None:
        self.tape, self.place, self.width = tape, place, width
        self.has_gradient, self.is_common = has_gradient, is_common

    def __getitem__(self, index: int | slice) -> Tensor:
        """Return some of the numbers, such as the first two outputs of a network."""
        if isinstance(index, StandIn):
            raise TypeError(at_user("reads x[tensor]: expected nn.take(x, tensor)"))
        if not isinstance(index, int | np.integer | slice):
            self.refuse(f"reads [{index!r}] of", "shape")
        if not isinstance(index, slice):
            index = slice(index, index + 1 or None)  # of the last, -1, up to the end
        rows = range(self.width)[index]
        if rows.step != 1 or len(rows) == 0:
            raise IndexError(at_user(f"reads [{index}] of a tensor of width {self.width}"))
        start = self.place + rows.start
        return Tensor(self.tape, start, len(rows), self.has_gradient, self.is_common)

    def __add__(self, other: Any) -> Any:
        return _either("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _either("add", self, other, sign=-1)

    def __rsub__(self, other: Any) -> Tensor:
        return self.tape.combine("add", other, self, sign=-1)

    def __mul__(self, other: Any) -> Any:
        return _either("multiply", self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Tensor:
        return self * -1.0

    def __truediv__(self, other: Any) -> Tensor:
        if isinstance(other, int | float):
            return self * (1.0 / other)
        return self.tape.apply_function(_quotient, (self, other), results=0)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self.tape.apply_function(_quotient, (other, self), results=0)

    def __pow__(self, exponent: Any) -> Tensor:
        return self.tape.apply_function(_power, (self, exponent), results=0)

    def __rpow__(self, base: Any) -> Tensor:
        return self.tape.apply_function(_power, (base, self), results=0)

    def __abs__(self) -> Tensor:
        return self.tape.apply_function(abs, (self,), results=0)

    def __repr__(self) -> str:
        return f"Tensor(width={self.width})"


def _either(kind: str, left: Tensor, right: Any, sign: int = 1) -> Any:
    """Return the sum or product of two operands, or NotImplemented for Python to ask `Mean`.

    For `kind` and `sign` see `rlcpu.nn.tape.tracing.Tape.combine`.
    """
    return NotImplemented if isinstance(right, Mean) else left.tape.combine(kind, left, right, sign)


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor


def _power(base: float, exponent: float) -> float:
    return base**exponent


class Outputs(Tensor):
    """Outputs of a network by their names, as attributes; and all of them, one after the other.

    A name that a tensor has already, such as "width", gives what it gives of a tensor.
    """

    def __init__(self, whole: Tensor, parts: Mapping[str, Tensor]) -> None:
        super().__init__(whole.tape, whole.place, whole.width, whole.has_gradient)
        self._parts = parts

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_") or name not in self._parts:
            names = ", ".join(vars(self).get("_parts", ()))
            raise AttributeError(at_user(f"reads output {name!r}: there are {names}"))
        return self._parts[name]


class Mean(StandIn):
    """Stands for the mean of a number over a minibatch; sums and multiples of means are means."""

    _noun = "a mean over the samples"

    def _expected(self, word: str) -> str:
        return "sums and multiples of means, or a function of each sample before nn.mean"

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __add__(self, other: Any) -> Mean:
        return Mean(self.tensor + self._common(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Mean:
        return self + -1.0 * other

    def __mul__(self, other: Any) -> Mean:
        if isinstance(other, Mean):
            raise TypeError(at_user("multiplies means, which is no mean over the samples"))
        return Mean(self.tensor * self._common(other))

    def _common(self, other: Any) -> Any:
        """Return the tensor or number of an operand, which is a mean or common to all samples."""
        if isinstance(other, Mean):
            return other.tensor
        if isinstance(other, Tensor) and not other.is_common:
            raise TypeError(at_user("joins a mean and a number of each sample: nn.mean first"))
        return other

    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Mean:
        return -1.0 * self + other

    def __neg__(self) -> Mean:
        return self * -1.0

    def __truediv__(self, other: Any) -> Mean:
        return Mean(self.tensor / self._common(other))


class Column(Tensor):
    """Stands for a column of the batch; it becomes rows where it is no input of a network."""

    def __init__(self, tape: Tape, name: str, number: int, width: int) -> None:
        self.tape, self.name, self.number = tape, name, number
        self.width, self.has_gradient, self.is_common = width, False, False

    @property
    def place(self) -> int:  # type: ignore[override]
        """Return the first of the rows, which the first access reads from the batch."""
        return self.tape.read_column(self).place


class Names:
    """Stands for a batch, networks or settings: attributes are made when they are read.

    Args:
        kind: of its attributes, for errors.
        names: of its attributes.
        make: name -> the attribute's value.
    """

    def __init__(self, kind: str, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._kind, self._names, self._make = kind, list(names), make

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            names = ", ".join(self._names)
            raise AttributeError(at_user(f"reads {self._kind} {name!r}: there are {names}"))
        value = self._make(name)
        self.__dict__[name] = value
        return value

    def __getitem__(self, name: Any) -> Any:
        raise TypeError(at_user(f"reads a {self._kind} by [{name!r}]: write .{name}, or getattr"))


class Applier(StandIn):
    """Stands for a network: called with a tensor for each input, it gives its outputs.

    Inputs are given in the order in which the network has them, or by their names.
    """

    _noun = "a network"

    def _expected(self, word: str) -> str:
        return "its outputs, nets.f(x)"

    def __init__(self, tape: Tape, name: str) -> None:
        self._tape, self._name = tape, name

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the outputs for the first inputs in order, and the others by name."""
        names = list(self._tape.networks[self._name].inputs)[len(inputs) :]
        if named and set(named) != set(names):
            actual, expected = (", ".join(each) or "none" for each in (named, names))
            raise TypeError(
                at_user(
                    f"gives network {self._name!r} inputs {actual} by name: expected {expected}"
                )
            )
        # Where inputs are missing and none has a name, `apply_network` says so.
        values = *inputs, *(named[name] for name in names if named)
        return self._tape.apply_network(self._name, values)
