"""Activations: functions of one number, plain Python.

`through_tanh(y, slope)` and the like are the chain rule: from `slope`, the derivative of the loss
with respect to y = tanh(x), they compute that with respect to x. Functions that work in place have
y alone, their inputs being overwritten; silu, which is not monotonic, keeps its inputs. All map 0
to 0, so that the padding of rows stays 0.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over some samples (`rlcpu.nn.network.passes.Work`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

from rlcpu.kernels.compiler.functions import OfNumbers
from rlcpu.nn.duals.numbers import slopes_of, variables
from rlcpu.nn.layers.kind import Kind, Layer, inputs_of, output_slopes, outputs_of


def hyperbolic_tangent(x: float) -> float:
    """Return tanh(x)."""
    return math.tanh(x)


def through_tanh(y: float, slope: float) -> float:
    """Return the slope of x from that of y = tanh(x)."""
    return slope * (1.0 - y * y)


def relu(x: float) -> float:
    """Return max(x, 0); NaN stays NaN."""
    return 0.0 if x < 0.0 else x


def through_relu(y: float, slope: float) -> float:
    """Return the slope of x from that of y = relu(x)."""
    return slope if y > 0.0 else 0.0


def elu(x: float) -> float:
    """Return x, below 0 exp(x) - 1 (Clevert et al. 2016)."""
    return math.exp(min(x, 0.0)) - 1.0 if x < 0.0 else x


def through_elu(y: float, slope: float) -> float:
    """Return the slope of x from that of y = elu(x)."""
    return slope * (y + 1.0) if y < 0.0 else slope


def silu(x: float) -> float:
    """Return x / (1 + exp(-x)) (Elfwing et al. 2018), also known as swish."""
    return x / (1.0 + math.exp(-x))


def through_silu(x: float, slope: float) -> float:
    """Return the slope of x from that of silu(x)."""
    sigmoid = 1.0 / (1.0 + math.exp(-x))
    return slope * sigmoid * (1.0 + x * (1.0 - sigmoid))


@functools.cache
def activation(
    function: Callable[[float], float],
    through: Callable[[float, float], float] | None = None,
    in_place: bool = False,
    name: str = "",
) -> Kind:
    """Return a kind that applies a function to every number.

    Args:
        function: plain Python of a number, 0 for 0.
        through: (x, slope) -> the slope of x, from that of y = function(x); None to let duals
            compute it. With `in_place` it takes (y, slope).
        in_place: whether outputs take the place of inputs.
        name: of the kind; that of the function if empty.
    """
    apply = OfNumbers(function)
    slope_of = OfNumbers(through or _through_dual(function))

    def forward_in_place(step: Any, work: Any) -> None:
        """Overwrite all units with the function of them."""
        units = outputs_of(step, work)
        if step.fuses_relu == 0:  # else this is a relu that the layer in front has computed
            for i in range(units.size):
                units[i] = apply(units[i])

    def forward(step: Any, work: Any) -> None:
        """Write the function of all inputs to the outputs."""
        outputs, inputs = outputs_of(step, work), inputs_of(step, work)
        for i in range(outputs.size):
            outputs[i] = apply(inputs[i])

    def backward(step: Any, work: Any) -> None:
        """Overwrite all inputs (in place: outputs) with their slopes, as `Kind` asks for."""
        units, slopes = inputs_of(step, work), output_slopes(step, work)
        for i in range(units.size):
            units[i] = slope_of(units[i], slopes[i])

    return Kind(
        name or function.__name__,
        forward_in_place if in_place else forward,
        backward,
        in_place=in_place,
        overwrites_inputs=True,
        reads_outputs=in_place,
    )


def _through_dual(function: Callable[[float], float]) -> Callable[..., Any]:
    """Return `through(x, slope)` of a function for kernels, whose derivative a dual computes.

    A dual is a number that carries its derivative.
    """
    # Teaches numba duals, of which our own activations need none.
    from rlcpu.nn.duals import compiled as compiled

    def through(x: float, slope: float) -> float:
        (dual,) = variables((x,))
        (derivative,) = slopes_of(function(dual), (0.0,))
        return float(derivative * slope)

    return through


TANH = activation(hyperbolic_tangent, through_tanh, in_place=True, name="tanh")
RELU = activation(relu, through_relu, in_place=True)
ELU = activation(elu, through_elu, in_place=True)
SILU = activation(silu, through_silu)


@dataclasses.dataclass(frozen=True, eq=False)
class Tanh(Layer):
    """tanh(x)."""

    kind = TANH
    keeps_image = True


@dataclasses.dataclass(frozen=True, eq=False)
class Relu(Layer):
    """max(x, 0)."""

    kind = RELU
    keeps_image = True


@dataclasses.dataclass(frozen=True, eq=False)
class Elu(Layer):
    """Return x, below 0 exp(x) - 1 (Clevert et al. 2016)."""

    kind = ELU
    keeps_image = True


@dataclasses.dataclass(frozen=True, eq=False)
class Silu(Layer):
    """x / (1 + exp(-x)) (Elfwing et al. 2018)."""

    kind = SILU
    keeps_image = True


class Activation(Layer):
    """A function of your own of each number; its derivatives are computed.

    Args:
        function: plain Python of a number, which makes 0 of 0: rows are padded with zeros, which
            have to stay so.

    Raises:
        TypeError: it is no plain function.
        ValueError: it makes another number of 0.

    Example:
        >>> import math
        >>> from rlcpu import nn
        >>> def softplus(x):
        ...     return math.log1p(math.exp(x)) - math.log(2.0)
        >>> nn.Dense(64) >> nn.Activation(softplus) >> nn.Dense(2)
        Dense(64) >> Activation(softplus) >> Dense(2)
    """

    keeps_image = True

    def __init__(self, function: Callable[[float], float]) -> None:
        if not isinstance(function, FunctionType):
            raise TypeError(f"function={function!r}: expected plain Python, as `def` makes it")
        if function(0.0) != 0.0:
            raise ValueError(
                f"function={function.__name__} makes {function(0.0):g} of 0: expected 0, such as "
                f"of {function.__name__}(x) - {function.__name__}(0.0)"
            )
        self.function = function
        self.kind = activation(function)  # type: ignore[misc]

    def __reduce__(self) -> Any:
        return Activation, (self.function,)

    def __repr__(self) -> str:
        return f"Activation({self.function.__name__})"
