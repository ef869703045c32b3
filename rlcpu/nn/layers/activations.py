"""Activations: functions of one number, plain Python.

Each has a derivative, by which a slope is multiplied. Of those that work in place it is one of the
output, which is all that is left; silu, which is not monotonic, keeps its input. All make 0 of 0,
so that the padding of rows stays 0.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

from rlcpu.kernels.compile import outline, specialise
from rlcpu.kernels.mlp import hyperbolic_tangent
from rlcpu.nn.layers.kind import Kind, Layer, inputs_of, output_slopes, outputs_of


def through_tanh(y: float, slope: float) -> float:
    """Return the derivative by x from that by y = tanh(x)."""
    return slope * (1.0 - y * y)


def relu(x: float) -> float:
    """Return max(x, 0); NaN stays NaN."""
    return 0.0 if x < 0.0 else x


def through_relu(y: float, slope: float) -> float:
    """Return the derivative by x from that by y = relu(x)."""
    return slope if y > 0.0 else 0.0


def elu(x: float) -> float:
    """Return x, below 0 exp(x) - 1 (Clevert et al. 2016)."""
    return math.exp(min(x, 0.0)) - 1.0 if x < 0.0 else x


def through_elu(y: float, slope: float) -> float:
    """Return the derivative by x from that by y = elu(x)."""
    return slope * (y + 1.0) if y < 0.0 else slope


def silu(x: float) -> float:
    """X / (1 + exp(-x)) (Elfwing et al. 2018), also known as swish."""
    return x / (1.0 + math.exp(-x))


def through_silu(x: float, slope: float) -> float:
    """Return the derivative by x from that by silu(x)."""
    sigmoid = 1.0 / (1.0 + math.exp(-x))
    return slope * sigmoid * (1.0 + x * (1.0 - sigmoid))


def _activation(
    name: str,
    function: Callable[[float], float],
    through: Callable[[float, float], float],
    in_place: bool = True,
) -> Kind:
    """Return a kind that applies a function to every number."""

    @functools.cache
    def make_forward(dtype: type) -> Callable[..., None]:
        apply = specialise(function, dtype)

        @outline
        def forward_in_place(step, work):
            units = outputs_of(step, work)
            if step.floor == 0:
                for i in range(units.size):
                    units[i] = apply(units[i])

        @outline
        def forward(step, work):
            outputs, inputs = outputs_of(step, work), inputs_of(step, work)
            for i in range(outputs.size):
                outputs[i] = apply(inputs[i])

        return forward_in_place if in_place else forward

    @functools.cache
    def make_backward(dtype: type) -> Callable[..., None]:
        multiply = specialise(through, dtype)

        @outline
        def backward(step, work):
            units, slopes = inputs_of(step, work), output_slopes(step, work)
            for i in range(units.size):
                units[i] = multiply(units[i], slopes[i])

        return backward

    return Kind(name, make_forward, make_backward, in_place, True, in_place)


TANH = _activation("tanh", hyperbolic_tangent, through_tanh)
RELU = _activation("relu", relu, through_relu)
ELU = _activation("elu", elu, through_elu)
SILU = _activation("silu", silu, through_silu, in_place=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Tanh(Layer):
    """tanh(x)."""

    kind = TANH


@dataclasses.dataclass(frozen=True, eq=False)
class Relu(Layer):
    """max(x, 0)."""

    kind = RELU


@dataclasses.dataclass(frozen=True, eq=False)
class Elu(Layer):
    """Return x, below 0 exp(x) - 1 (Clevert et al. 2016)."""

    kind = ELU


@dataclasses.dataclass(frozen=True, eq=False)
class Silu(Layer):
    """x / (1 + exp(-x)) (Elfwing et al. 2018)."""

    kind = SILU
