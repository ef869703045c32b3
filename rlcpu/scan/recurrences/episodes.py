"""What all estimators of returns are given: rewards of steps, and where episodes end.

After a step that terminated the episode nothing follows; after one that truncated it the value of
its last observation does, which is not the next row's, because that begins the next episode. Both
cut the recurrence: nothing of an episode reaches back into the one before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.arguments import (
    check_axis,
    check_factor,
    check_flags,
    check_out,
    check_real,
    check_shape,
)
from rlcpu.scan.layout import Layout, layout_of
from rlcpu.scan.recurrences.rules import Step
from rlcpu.scan.recurrences.run import UNUSED

Array = npt.NDArray[Any]


class Ends(NamedTuple):
    """The arguments that say where episodes end, and with which values.

    Attributes:
        terminated: whether the episode ended with the step.
        truncated: whether a limit cut the episode short after the step.
        last_values: values of the observations after the last steps.
        final_values: values of the last observations of truncated episodes, or None.
    """

    terminated: Any
    truncated: Any
    last_values: Any
    final_values: Any


class Episodes(NamedTuple):
    """Checked arguments.

    Attributes:
        layout: of the arrays.
        steps: the arrays that every estimator reads, None for the others.
        last: values after the last steps.
    """

    layout: Layout
    steps: Step
    last: Array

    def array(self, name: str, value: npt.ArrayLike) -> Array:
        """One more array like the rewards."""
        found = check_real(name, value, self.steps.reward.dtype)
        return check_shape(name, found, self.steps.reward.shape)

    def factor(self, name: str, value: npt.ArrayLike) -> Array:
        """A number in [0, 1], or one for every step."""
        rewards = self.steps.reward
        return check_factor(name, value, rewards.shape, rewards.dtype)

    def outputs(self, names: tuple[str, ...], outs: Any, steps: Step) -> tuple[Array, ...]:
        """Arrays for the results: those given, once they are checked, or new ones."""
        dtype = steps.reward.dtype
        outs = (None,) * len(names) if outs is None else outs
        if not isinstance(outs, tuple | list | np.ndarray) or len(outs) != len(names):
            raise TypeError(f"out: expected {len(names)} arrays, got {type(outs).__name__}")
        inputs = [array for array in (*steps, self.last) if array is not None]
        found: list[Array] = []
        for name, out in zip(names, outs, strict=True):
            if out is not None:
                check_out(name, out, steps.reward, [*inputs, *found])
                found.append(out)
        return tuple(self.layout.empty(dtype) if out is None else out for out in outs)


def check_episodes(rewards: npt.ArrayLike, ends: Ends, gamma: npt.ArrayLike, axis: int) -> Episodes:
    """The arguments that all estimators share.

    Raises:
        TypeError: an array is of another dtype.
        ValueError: an array is of another shape, the factor or the axis is out of range, or an
            episode was truncated without final_values.
    """
    rewards = check_real("rewards", rewards)
    axis = check_axis(axis, rewards.shape, "rewards")
    shape, dtype = rewards.shape, rewards.dtype
    terminated = check_flags("terminated", ends.terminated, shape)
    truncated = check_flags("truncated", ends.truncated, shape)
    last = check_real("last_values", ends.last_values, dtype)
    if last.ndim:
        check_shape("last_values", last, shape[:axis] + shape[axis + 1 :])
    final = ends.final_values
    if final is not None:
        final = check_shape("final_values", check_real("final_values", final, dtype), shape)
    elif truncated.any() and np.greater(truncated, terminated).any():
        raise ValueError("final_values: needed where an episode was truncated and not terminated")
    steps = UNUSED._replace(
        reward=rewards,
        terminated=terminated.view(np.uint8),
        truncated=truncated.view(np.uint8),
        # Without truncated episodes nothing uses the values: the rewards have been read already.
        final_value=rewards if final is None else final,
        gamma=check_factor("gamma", gamma, shape, dtype),
    )
    return Episodes(layout_of(rewards, axis), steps, last)
