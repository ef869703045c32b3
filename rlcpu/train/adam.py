"""Adam (Kingma & Ba 2015, "Adam: a method for stochastic optimization", algorithm 1)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

from rlcpu.kernels.compile import inline, specialise


class Rates(NamedTuple):
    """Constants of one step, see `rates`."""

    step: float
    root: float
    first_decay: float
    second_decay: float
    epsilon: float


def rates(learning_rate: float, step: int, epsilon: float) -> Rates:
    """Step size and bias corrections of step number `step`, counted from 1; decays 0.9, 0.999."""
    return Rates(
        step=learning_rate / (1.0 - 0.9**step),
        root=1.0 / math.sqrt(1.0 - 0.999**step),
        first_decay=0.9,
        second_decay=0.999,
        epsilon=epsilon,
    )


def adam(
    parameter: float, gradient: float, first: float, second: float, rates: Rates
) -> tuple[float, float, float]:
    """New value of one parameter and of its first and second moment.

    The order of operations is that of torch.optim.Adam: epsilon is added to the bias-corrected root.
    """
    first = first + (gradient - first) * (1.0 - rates.first_decay)
    second = second * rates.second_decay + gradient * gradient * (1.0 - rates.second_decay)
    change = rates.step * first / (math.sqrt(second) * rates.root + rates.epsilon)
    return parameter - change, first, second
