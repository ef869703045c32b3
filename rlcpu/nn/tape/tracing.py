"""Algorithms as functions: what an update minimises, traced once into a tape of instructions.

An algorithm is written in the way of a paper, for all samples of a minibatch at once:

    def dqn(batch, nets, settings):
        best = nn.argmax(nets.online(batch.next_observation), allowed=batch.next_action_mask)
        next_value = nn.take(nets.target(batch.next_observation), best)
        target = nn.each(bootstrap, batch.reward, batch.discount, batch.terminated, next_value)
        value = nn.take(nets.online(batch.observation), batch.action)
        return nn.mean(nn.each(huber, value, nn.hold(target)) * batch.weight), {"q_value": value}

`trace` calls it once, with stand-ins for the arrays, and writes down each step as an instruction of
a `Program`, which one kernel runs forward and backward for every algorithm (see
`rlcpu.nn.learning.instructions`). Branches on settings that are flags or texts are taken while
tracing; numbers among the settings are read anew at each update.

Numbers outside of networks lie in a matrix (height, samples), one row for each number of a sample:
a tensor has `width` rows from `Tensor.place` on. Columns of the batch that networks read are no
rows. Scalar functions go through `each`, which compiles them and computes their derivatives.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from rlcpu.kernels.compiler.compile import define
from rlcpu.nn.tape.program import (
    FROM_COLUMN,
    FROM_HELD,
    FROM_ROWS,
    INSTRUCTION,
    STARTS,
    Application,
    Function,
    Operand,
)
from rlcpu.nn.tape.refusals import at_user, hint_of
from rlcpu.nn.tape.tensors import Applier, Column, Mean, Names, Outputs, Tensor


class Tape:
    """Writes down what an algorithm does with tensors.

    Args:
        columns: names of the batch's columns, and how many numbers of a sample each has.
        networks: names of the networks, and their `NetworkSizes`.
        parameters: names of arrays that are learnt and belong to no network: first place, size.

    """

    def __init__(
        self,
        columns: Mapping[str, int],
        networks: Mapping[str, Any],
        parameters: Mapping[str, tuple[int, int]],
    ) -> None:
        self.columns, self.networks, self.parameters = dict(columns), dict(networks), parameters
        #: Of all updates: by name fields of `rlcpu.nn.tape.program.INSTRUCTION`, and "kind".
        self.instructions: list[dict[str, Any]] = []
        #: For each instruction the rows of its results, and those to whose slopes it adds.
        self.rows: list[tuple[list[int], list[int]]] = []
        self.bounds = [0]  #: numbers of the first instruction of each update, and of all
        self.applications: list[Application] = []
        self.inputs: list[Operand] = []  #: of all applications, one after the other
        self.operands: list[int] = []  #: of instructions "each" and "pairs", see `_add_operands`
        self.functions: list[Function] = []  #: scalar functions of instructions "each" and "pairs"
        self.constants: list[float] = []  #: numbers that instructions read
        self.settings: list[str] = []  #: names of the settings that instructions read
        self.statistics: list[list[str]] = []  #: names of each update's loss and statistics
        self.per_sample: list[str] = []  #: names of the statistics written for each sample
        self.standardised: list[int] = []  #: numbers of columns that minibatches standardise
        self.heights: list[int] = []  #: rows of each update
        self.height = 0  #: rows of the update that is traced
        #: Numbers of a sample between the layers of networks: of those with a backward pass, and
        #: memory that all others share.
        self.saved_units = self.shared_units = 0
        self.streams = 0  #: how often the update that is traced draws noise
        self.limits: dict[str, int] = {}  #: columns that hold indices: of how many numbers
        self.learns: set[str] = set()  #: what the update that is traced changes
        self._constant_places: dict[tuple[float, ...], int] = {}
        self._cache: dict[Any, Tensor] = {}  #: what the update that is traced has read already

    # ------------------------------------------------------------ one update

    def trace(
        self,
        function: Callable[..., Any],
        learns: Sequence[str],
        settings: Mapping[str, Any],
        per_sample: Sequence[str] = (),
        needs_all: bool = True,
    ) -> tuple[str, ...]:
        """Append the instructions of one update.

        Args:
            function: (batch, nets, settings) -> (mean, statistics), called once.
            learns: names of the networks and arrays that it changes.
            settings: values by name.
            per_sample: names of statistics that are to be written for each sample, if it has them.
            needs_all: whether the loss has to depend on all that it learns.

        Returns:
            The names among `learns` on which the loss depends.

        Raises:
            TypeError, ValueError: what the function does cannot be learnt; names its line.
        """
        self.learns, self._cache, self.height, self.streams = set(learns), {}, 0, 0
        first = len(self.instructions)  # of this update
        result = function(*self._stand_ins(settings))
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
            raise TypeError(
                f"{_name_of(function)} returned {result!r}: expected a mean, such as nn.mean(...), "
                "and a dict of statistics"
            )
        loss, statistics = result
        if not isinstance(loss, Mean):
            raise TypeError(
                f"{_name_of(function)} returned the loss {loss!r}: expected nn.mean(...)"
            )
        if not loss.tensor.has_gradient:
            raise ValueError(f"{_name_of(function)}: no network that is learnt is in its loss")
        self._write_results(function, loss, statistics, per_sample)
        self._drop_unneeded_slopes(first)
        self._place_units(first)
        learnt = self._learnt_names(first)
        if needs_all and self.learns - learnt:
            unused = self.learns - learnt
            raise ValueError(
                f"{_name_of(function)} is to learn {', '.join(sorted(unused))}: its loss does not "
                "depend on it"
            )
        return tuple(name for name in learns if name in learnt)

    def _stand_ins(self, settings: Mapping[str, Any]) -> tuple[Names, Names, Names]:
        """Return what an algorithm is called with: stand-ins for batch, networks and settings."""
        numbers = {name: k for k, name in enumerate(self.columns)}

        def column(name: str) -> Column:
            return Column(self, name, numbers[name], self.columns[name])

        def network(name: str) -> Any:
            return self.read_parameter(name) if name in self.parameters else Applier(self, name)

        def setting(name: str) -> Any:
            value = settings[name]
            return self.read_setting(name) if type(value) is float else value

        return (
            Names("column", self.columns, column),
            Names("network", [*self.networks, *self.parameters], network),
            Names("setting", settings, setting),
        )

    def _drop_unneeded_slopes(self, first: int) -> None:
        """Clear the flags for derivatives where the loss does not depend on the result.

        The update's instructions are those from number `first` on.
        """
        needed: set[int] = set()  # rows with respect to which the loss has derivatives
        for number in range(len(self.instructions) - 1, first - 1, -1):
            instruction, (results, arguments) = self.instructions[number], self.rows[number]
            if instruction["kind"] == "loss" or not needed.isdisjoint(results):
                needed.update(arguments)
            else:
                instruction["a_gradient"] = instruction["b_gradient"] = 0

    def _place_units(self, first: int) -> None:
        """Give the networks of an update, from instruction `first` on, places for their units.

        Those with a backward pass get memory of their own; all others share some behind it. In the
        backward pass, which begins with the last instruction, the first use of a network overwrites
        its gradients, and others add to them.
        """
        names, num_units, with_gradients = list(self.networks), 0, set()
        for instruction in reversed(self.instructions[first:]):
            if instruction["kind"] != "network":
                continue
            application = self.applications[instruction["index"]]
            name = names[application.network]
            units = self.networks[name].units
            if not instruction["a_gradient"]:
                application.by_parameters = application.by_inputs = False
                self.shared_units = max(self.shared_units, units)
                continue
            application.units, num_units = num_units, num_units + units
            if application.by_parameters:
                application.is_first = name not in with_gradients
                with_gradients.add(name)
        self.saved_units = max(self.saved_units, num_units)

    def _learnt_names(self, first: int) -> set[str]:
        """Return the networks and arrays that get gradients from instructions from `first` on."""
        names = list(self.networks)
        arrays = {place: name for name, (place, _) in self.parameters.items()}
        learnt = set()
        for instruction in self.instructions[first:]:
            index = instruction["index"]
            if instruction["kind"] == "parameter" and instruction["a_gradient"]:
                learnt.add(arrays[index])
            if instruction["kind"] == "network" and self.applications[index].by_parameters:
                learnt.add(names[self.applications[index].network])
        return learnt

    def _write_results(
        self,
        function: Callable[..., Any],
        loss: Mean,
        statistics: Mapping[str, Any],
        per_sample: Sequence[str],
    ) -> None:
        """Write the instructions of loss, statistics and numbers of each sample; see `trace`."""
        tensor = self.tensor(loss.tensor)
        self.write("loss", arguments=[tensor], a=tensor.place, index=0)
        names = [function.__name__]  # of the sums: the loss is the first
        for name, value in statistics.items():
            tensor = self.tensor(value.tensor if isinstance(value, Mean) else value)
            if tensor.width != 1:
                raise ValueError(
                    f"statistic {name!r} has {tensor.width} numbers of a sample: expected 1"
                )
            self.write("statistic", a=tensor.place, index=len(names))
            names.append(name)
            if name in per_sample:
                self.write("per_sample", a=tensor.place, index=len(self.per_sample))
                self.per_sample.append(name)
        self.statistics.append(names)
        self.bounds.append(len(self.instructions))
        self.heights.append(self.height)

    # ------------------------------------------------------------ instructions

    def new(
        self, width: int, has_gradient: bool, scratch: int = 0, is_common: bool = False
    ) -> Tensor:
        """Reserve rows for a result of an instruction, and `scratch` rows behind it.

        `has_gradient` tells whether derivatives go through it, `is_common` whether all samples have
        the same numbers.
        """
        place = self.height
        self.height += width + scratch
        return Tensor(self, place, width, has_gradient, is_common)

    def write(
        self, kind: str, *results: Tensor, arguments: Sequence[Tensor] = (), **fields: int
    ) -> None:
        """Append an instruction.

        Args:
            kind: of `rlcpu.nn.learning.instructions.INSTRUCTIONS`, or "each".
            *results: tensors whose rows it writes; "out" and "width" are those of the first.
            arguments: tensors to whose slopes it adds, where derivatives go through them.
            **fields: other fields of `INSTRUCTION`.
        """
        values: dict[str, Any] = dict.fromkeys(INSTRUCTION.names or (), -1)
        values |= {"kind": kind, "a_step": 0, "b_step": 0, "a_gradient": 0, "b_gradient": 0}
        if results:
            values |= {"out": results[0].place, "width": results[0].width}
        values |= {name: int(value) for name, value in fields.items()}
        self.instructions.append(values)
        sources = [tensor for tensor in arguments if tensor.has_gradient]
        self.rows.append((_rows_of(results), _rows_of(sources)))

    def tensor(self, value: Any) -> Tensor:
        """Return the tensor of a tensor, column, number or sequence of numbers.

        Raises:
            TypeError: it is none of these, or of another tape.
        """
        if _is_number(value):
            return self._read_constants((float(value),))
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if isinstance(value, list | tuple) and value and all(map(_is_number, value)):
            return self._read_constants(tuple(map(float, value)))
        if isinstance(value, Mean):
            raise TypeError(at_user("computes with a mean where each sample's number is wanted"))
        if not isinstance(value, Tensor) or value.tape is not self:
            raise TypeError(at_user(f"computes with {value!r}: expected tensors and numbers"))
        return value

    def _read(
        self, kind: str, width: int, *, is_common: bool, has_gradient: bool = False, **fields: int
    ) -> Tensor:
        """Return the result of an instruction without arguments, written the first time alone."""
        key = kind, *fields.items()
        if key not in self._cache:
            out = self._cache[key] = self.new(width, has_gradient, is_common=is_common)
            self.write(kind, out, arguments=(), **fields)
        return self._cache[key]

    def read_column(self, column: Column, standardise: bool = False) -> Tensor:
        """Read a column to rows; standardised, those of a minibatch have mean 0 and deviation 1."""
        moments = -1
        if standardise:
            if column.number not in self.standardised:
                self.standardised.append(column.number)
            moments = self.standardised.index(column.number)
        number = column.number
        return self._read("column", column.width, is_common=False, index=number, c=moments)

    def _read_constants(self, values: tuple[float, ...]) -> Tensor:
        """Read constants to rows, one each."""
        if values not in self._constant_places:
            self._constant_places[values] = len(self.constants)
            self.constants += values
        place = self._constant_places[values]
        return self._read("number", len(values), is_common=True, index=place)

    def read_setting(self, name: str) -> Tensor:
        """Read a setting to a row; its index, number k among settings, is -1 - k.

        `rlcpu.nn.tape.program.program_of` makes places of these, once all settings are known.
        """
        if name not in self.settings:
            self.settings.append(name)
        return self._read("number", 1, is_common=True, index=-1 - self.settings.index(name))

    def read_parameter(self, name: str) -> Tensor:
        """Read an array of parameters to rows, the same for all samples."""
        place, size = self.parameters[name]
        return self._read(
            "parameter",
            size,
            is_common=True,
            has_gradient=name in self.learns,
            index=place,
            a_gradient=name in self.learns,
        )

    def limit_index(self, column: Column, width: int) -> None:
        """Note that a column holds indices of `width` numbers."""
        self.limits[column.name] = min(width, self.limits.get(column.name, width))

    def apply_network(self, name: str, values: Sequence[Any]) -> Any:
        """Write the instruction that applies a network to inputs.

        Args:
            name: of the network.
            values: columns, tensors or numbers, one for each of its inputs; if it has one input,
                any number of them, which are joined.

        Returns:
            A tensor; or, of a network whose outputs have names, `Outputs`.

        Raises:
            ValueError: an input has another size.
        """
        network = self.networks[name]
        operands, tensors = self._operands_of(name, values)
        starts = self._read_starts() if network.state else -1
        by_parameters = name in self.learns
        by_inputs = any(tensor.has_gradient for tensor in tensors)
        out = self.new(sum(network.outputs.values()), by_parameters or by_inputs)
        self.write(
            "network", out, arguments=tensors, index=len(self.applications),
            a_gradient=out.has_gradient,
        )  # fmt: skip
        number, first = list(self.networks).index(name), len(self.inputs)
        application = Application(
            number, first, inputs=len(operands), by_parameters=by_parameters, by_inputs=by_inputs,
            starts=starts,
        )  # fmt: skip
        self.applications.append(application)
        self.inputs += operands
        if not network.are_named:
            return out
        parts, begin = {}, 0
        for key, size in network.outputs.items():
            parts[key] = out[begin : begin + size]
            begin += size
        return Outputs(out, parts)

    def _operands_of(self, name: str, values: Sequence[Any]) -> tuple[list[Operand], list[Tensor]]:
        """Return a network's operands, and the tensors among the values; see `apply_network`."""
        operands, tensors = [], []
        for value in values:
            if isinstance(value, Column):
                operands.append(Operand(FROM_COLUMN, value.number, value.width))
            else:
                tensor = self.tensor(value)
                kind = FROM_ROWS if tensor.has_gradient else FROM_HELD
                operands.append(Operand(kind, tensor.place, tensor.width))
                tensors.append(tensor)
        widths = [operand.width for operand in operands]
        sizes = list(self.networks[name].inputs.values())
        if len(sizes) == 1:  # one input, of all values joined
            begins = itertools.accumulate(widths, initial=0)
            operands = [x._replace(begin=b) for x, b in zip(operands, begins, strict=False)]
            widths = [sum(widths)]
        else:
            operands = [operand._replace(input=k) for k, operand in enumerate(operands)]
        if widths != sizes:
            actual, expected = (" and ".join(map(str, each)) or "no" for each in (widths, sizes))
            raise ValueError(
                at_user(f"gives {actual} numbers to network {name!r}, which takes {expected}")
            )
        return operands, tensors

    def _read_starts(self) -> int:
        """Return the row that says where episodes begin."""
        number = list(self.columns).index(STARTS)
        return self.read_column(Column(self, STARTS, number, 1)).place

    def combine(self, kind: str, left: Any, right: Any, sign: int = 1) -> Tensor:
        """Return the sum ("add"), difference or product ("multiply") of two tensors or numbers.

        Where the width of one is 1, it serves all numbers of the other: its step is 0. `sign` -1
        makes a difference of a sum.
        """
        a, b = self.tensor(left), self.tensor(right)
        width = self._common_width(a, b)
        common = a.is_common and b.is_common
        out = self.new(width, a.has_gradient or b.has_gradient, is_common=common)
        self.write(
            kind, out, arguments=(a, b), a=a.place, a_step=a.width > 1, a_gradient=a.has_gradient,
            b=b.place, b_step=b.width > 1, b_gradient=b.has_gradient, c=sign,
        )  # fmt: skip
        return out

    def _common_width(self, *tensors: Tensor) -> int:
        """Return the width of a result; arguments of width 1 serve all of its numbers."""
        widths = {tensor.width for tensor in tensors} - {1}
        if len(widths) > 1:
            raise ValueError(at_user(f"joins tensors of widths {sorted(widths)}"))
        return widths.pop() if widths else 1

    def apply_function(
        self, function: Callable[..., Any], arguments: Sequence[Any], results: int
    ) -> Any:
        """Write the instruction that applies a scalar function to each sample and number.

        Args:
            function: plain Python of numbers, or one of `math`.
            arguments: tensors, columns or numbers.
            results: numbers of the tuple that it returns; 0 for a function that returns a number.

        Returns:
            A tensor, or a tuple of them.

        Raises:
            TypeError, ValueError: it is none, such as a function of NumPy, or widths do not fit.
        """
        tensors = [self.tensor(value) for value in arguments]
        width = self._common_width(*tensors)
        gradients = tuple(tensor.has_gradient for tensor in tensors)
        index = self._number_of(function, gradients, results)
        common = all(tensor.is_common for tensor in tensors)
        outs = [self.new(width, any(gradients), is_common=common) for _ in range(max(results, 1))]
        num_slopes = sum(gradients)  # arguments that carry slopes
        derivatives = [
            [self.new(width, has_gradient=False) for _ in range(num_slopes)] for _ in outs
        ]
        places = [x.place for out, by in zip(outs, derivatives, strict=True) for x in (out, *by)]
        self.write(
            "each", *outs, arguments=tensors, a=self._add_operands(tensors, places),
            b=len(tensors), c=len(outs), a_gradient=any(gradients), index=index,
        )  # fmt: skip
        return tuple(outs) if results else outs[0]

    def apply_to_pairs(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Tensor:
        """Write the instruction that takes the mean of a scalar function over pairs of numbers.

        Args:
            function: plain Python of numbers; it returns a number.
            arguments: tensors, columns or numbers: the first two make the pairs, and each other one
                belongs to the first.

        Returns:
            A tensor of width 1.

        Raises:
            TypeError, ValueError: arguments do not fit.
        """
        tensors = [self.tensor(value) for value in arguments]
        first, second, *others = tensors
        for tensor in others:
            if tensor.width not in (1, first.width):
                numbers = f"{tensor.width} numbers beside pairs of {first.width} and {second.width}"
                raise ValueError(at_user(f"gives {numbers}: expected {first.width} or 1"))
        gradients = tuple(tensor.has_gradient for tensor in tensors)
        index = self._number_of(function, gradients, results=0)
        # Behind the result lie a sum over the second argument, and derivatives.
        widths = [tensor.width for tensor in tensors if tensor.has_gradient]
        out = self.new(1, any(gradients), scratch=1 + sum(widths))
        places = [out.place, *itertools.accumulate(widths[:-1], initial=out.place + 2)]
        self.write(
            "pairs", out, arguments=tensors, a=self._add_operands(tensors, places), b=len(tensors),
            c=2 + sum(widths), a_step=first.width, b_step=second.width, a_gradient=any(gradients),
            index=index,
        )  # fmt: skip
        return out

    def _number_of(
        self, function: Callable[..., Any], gradients: tuple[bool, ...], results: int
    ) -> int:
        """Return the number of a scalar function among `functions`; for fields see `Function`.

        Raises:
            TypeError: it is none, such as a function of NumPy.
        """
        if getattr(function, "__module__", "") == "math":
            function = _plain(f"math.{function.__name__}", len(gradients))
        elif any(function is each for each in (abs, min, max)):
            function = _plain(function.__name__, len(gradients))
        if not isinstance(function, FunctionType):
            expected = "expected a function of numbers, as `def` makes it, or one of math"
            hint = hint_of(getattr(function, "__name__", ""))
            expected += f", such as {hint}" if hint else ""
            raise TypeError(at_user(f"applies {function!r} to each sample: {expected}"))
        scalar = Function(function, gradients, results)
        if scalar not in self.functions:
            self.functions.append(scalar)
        return self.functions.index(scalar)

    def _add_operands(self, tensors: Sequence[Tensor], places: Sequence[int]) -> int:
        """Append operands of a scalar function, and return the number of the first.

        They are its arguments, then first rows of results and derivatives; see
        `rlcpu.nn.tape.program.Program.operands`.
        """
        first = len(self.operands)
        for tensor in tensors:
            self.operands += tensor.place, int(tensor.width > 1), int(tensor.has_gradient)
        self.operands += places
        return first


@functools.cache
def _plain(name: str, count: int) -> Callable[..., Any]:
    """Return a function by its name, such as "math.exp", as plain Python of `count` numbers."""
    names = ", ".join(f"x{k}" for k in range(count))
    short = name.rpartition(".")[2]
    return define(f"def {short}({names}):\n    return {name}({names})", math=math)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.floating | np.integer)


def _rows_of(tensors: Iterable[Tensor]) -> list[int]:
    return [row for each in tensors for row in range(each.place, each.place + each.width)]


def _name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, file and line, for errors."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({code.co_filename}, line {code.co_firstlineno})" if code else name
