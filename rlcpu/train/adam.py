"""Adam (Kingma & Ba 2015, "Adam: a method for stochastic optimization", algorithm 1)."""

from __future__ import annotations

import math
from typing import NamedTuple


class Rates(NamedTuple):
    """What one step has in common for all parameters.

    Attributes:
        step: learning rate / (1 - 0.9**number), number counting steps from 1.
        root: 1 / sqrt(1 - 0.999**number), which corrects the root of the second moment.
        epsilon: added to the root.
    """

    step: float
    root: float
    epsilon: float


def adam(
    parameter: float, gradient: float, first: float, second: float, rates: Rates
) -> tuple[float, float, float]:
    """New value of one parameter and of its first and second moment, which decay by 0.9 and 0.999.

    The order of operations is torch.optim.Adam's: epsilon is added to the corrected root.
    """
    first = first + (gradient - first) * 0.1
    second = second * 0.999 + gradient * gradient * 0.001
    change = rates.step * first / (math.sqrt(second) * rates.root + rates.epsilon)
    return parameter - change, first, second
