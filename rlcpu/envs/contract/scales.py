"""Scales of observations and actions: by the bounds of their space, and whether networks can learn.

Inputs are those of `rlcpu.envs.engine.observations.ObservationView`: float32, one after the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict

from rlcpu.envs.layout.groups import num_inputs
from rlcpu.nn.network.heads import is_bounded
from rlcpu.nn.network.scaling import Scaling

Array = npt.NDArray[Any]
#: Bounds beyond this are none: Gymnasium gives speeds those of float32.
_UNBOUNDED = 1e6
#: Deviations from which networks learn well: initial weights are for numbers around 1.
LEAST, MOST = 0.02, 10.0
#: Numbers that are nearly always the same, such as flags, have small deviations too: they are no
#: fault where some differ by more than uniform ones of that deviation do.
VISIBLE = 12**0.5 * LEAST
#: Observations that a judgement takes: of 256 of CartPole-v1 one set in six would have places of
#: the cart too near to each other, of 1,000 none of 200.
LEAST_ROWS = 1000
#: Share of a number's values that may be clipped.
CLIPPED = 0.01
#: Bounds of actions beyond which Normal(0, 1) draws next to nothing, and the least width of bounds
#: of which it does not draw the two ends alone. Gymnasium's are from 0.4 to 3.
FAR, NARROW = 5.0, 0.4


def scaling_by_bounds(space: Any) -> Scaling:
    """Return the scaling of a space's inputs that maps those with bounds to [-1, 1].

    Bounds of a million and more count as none. There is no limit.
    """
    parts = [_scaling_of(each) for _, each in _parts_of(space)]
    mean, scale = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Scaling(mean, scale)


def _parts_of(space: Any) -> list[tuple[str, Any]]:
    """Return names and spaces of the parts of a space, which is its own only part if it has none.

    The names are those of messages.
    """
    if isinstance(space, Dict):
        return [(f"observation {name}", part) for name, part in space.items()]
    return [("observation", space)]


def _scaling_of(space: Any) -> tuple[Array, Array]:
    """Return mean and scale, (inputs,) float32, that map the bounds of a space to [-1, 1]."""
    if not isinstance(space, Box):
        size = num_inputs(space)
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    low, high = (x.astype(np.float64).ravel() for x in (space.low, space.high))
    is_bounded = (np.abs(low) < _UNBOUNDED) & (np.abs(high) < _UNBOUNDED) & (high > low)
    low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    mean, scale = (low + high) / 2, 2.0 / (high - low)
    return mean.astype(np.float32), scale.astype(np.float32)


def names_of_numbers(space: Any) -> dict[int, str]:
    """Return the names of the inputs of a space that are numbers, by their places, for messages.

    Choices and boards are zeros and ones, and pixels are many alike: they are left out.
    """
    names, begin = {}, 0
    for name, part in _parts_of(space):
        if isinstance(part, Box) and len(part.shape) < 3:
            for k, index in enumerate(np.ndindex(part.shape)):
                names[begin + k] = f"{name}{list(index) or ''}"
        begin += num_inputs(part)
    return names


class Misfit(NamedTuple):
    """Numbers of an observation whose scale does not fit networks."""

    kind: str  #: "clipped", "large" or "small"
    message: str  #: which number has the worst statistic, and how many others are like it
    measured: float  #: that statistic: a share of clipped values, or a deviation


def find_misfits(inputs: Array, scaling: Scaling, names: list[str]) -> list[Misfit]:
    """Return the kinds of misfits among numbers as networks get them; none of constant ones.

    Args:
        inputs: (n, size) float32, of n observations.
        scaling: of these.
        names: of the numbers.
    """
    free = scaling._replace(limit=np.array(np.inf, np.float32)).apply(inputs)
    clipped = np.clip(free, -scaling.limit, scaling.limit).astype(np.float64)
    shares = (np.abs(free) > scaling.limit).mean(axis=0)
    deviations, spreads = clipped.std(axis=0), np.ptp(clipped, axis=0)
    is_small = (deviations < LEAST) & (spreads < VISIBLE) & (np.ptp(free, axis=0) > 0)
    statistics = {
        "clipped": (shares > CLIPPED, np.argmax(shares)),
        "large": (deviations > MOST, np.argmax(deviations)),
        "small": (is_small, np.argmin(np.where(is_small, deviations, np.inf))),
    }
    misfits = []
    for kind, (are_bad, worst) in statistics.items():
        if not are_bad.any():
            continue
        name, number = names[worst], f"a deviation of {deviations[worst]:.2g}"
        message = {
            "clipped": f"{shares[worst]:.0%} of {name} is clipped to +-{scaling.limit:g}",
            "large": f"{name} has {number}, above {MOST:g}",
            "small": f"{name} has {number}, below {LEAST:g}",
        }[kind]
        others = int(np.count_nonzero(are_bad)) - 1
        more = f" ({others} other{'s' * (others > 1)} too)" if others else ""
        measured = (shares if kind == "clipped" else deviations)[worst]
        misfits.append(Misfit(kind, message + more, float(measured)))
    return misfits


# ---------------------------------------------------------------- actions


def find_unfit_bounds(space: Any) -> int | None:
    """Return the number of an action whose bounds Normal(0, 1) hardly explores; None without one.

    Of choices and of actions without finite bounds there is none, and of several the first.
    """
    if not isinstance(space, Box) or not is_bounded(space.low, space.high):
        return None
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    is_far = (np.maximum(np.abs(low), np.abs(high)) > FAR) | (high - low < NARROW)
    is_far &= high > low  # a number that cannot change is nobody's to choose
    return int(np.argmax(is_far)) if is_far.any() else None
