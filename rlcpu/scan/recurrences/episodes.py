"""What all estimators of returns are given: rewards of steps, and where episodes end.

After a step that terminated the episode nothing follows; after one that truncated it the value of
its last observation does, which is not the next row's, because that begins the next episode. Both
cut the recurrence: nothing of an episode reaches back into the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from rlcpu.scan.device import backend_of
from rlcpu.scan.layout import layout_of
from rlcpu.scan.recurrences.rules import Rule, Step
from rlcpu.scan.recurrences.run import UNUSED, Problem, run

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
        backend: what computes, see `rlcpu.scan.device.backend_of`.
        layout: of the arrays.
        steps: the arrays that every estimator reads, None for the others.
        last: values after the last steps.
    """

    backend: Any
    layout: Any
    steps: Step
    last: Array

    def array(self, name: str, value: npt.ArrayLike) -> Array:
        """One more array like the rewards."""
        found = check_real(name, value, self.steps.reward.dtype, "", self.backend)
        return check_shape(name, found, self.steps.reward.shape)

    def factor(self, name: str, value: npt.ArrayLike) -> Array:
        """A number in [0, 1], or one for every step."""
        rewards = self.steps.reward
        return check_factor(name, value, rewards.shape, rewards.dtype, self.backend)

    def run(
        self, rule: Rule, problem: Problem, out: Any, names: Sequence[str], num_threads: int | None
    ) -> tuple[Any, ...]:
        """The results of a recurrence, written to the arrays of `out` where there are any.

        Args:
            rule: of the recurrence.
            problem: what it computes with.
            out: the arrays, not yet checked, or None.
            names: of these, as users know them.
            num_threads: at most so many threads.
        """
        if out is None:
            outs = tuple([self.layout.empty(self.steps.reward.dtype) for _ in names])
        else:
            outs = self._outputs(out, names, problem.steps)
        compute = run if self.backend is None else self.backend.run
        compute(rule, self.layout, problem, outs, num_threads)
        if out is None:
            return outs
        return tuple(new if own is None else own for own, new in zip(out, outs, strict=True))

    def _outputs(self, out: Any, names: Sequence[str], steps: Step) -> tuple[Array, ...]:
        """The arrays that were given, once they are checked, new ones where they are None."""
        if not isinstance(out, tuple | list | np.ndarray) or len(out) != len(names):
            raise TypeError(f"out: expected {len(names)} arrays, got {type(out).__name__}")
        inputs = [array for array in (*steps, self.last) if array is not None]
        outs: list[Any] = []
        for name, array in zip(names, out, strict=True):
            if array is not None:
                array = check_out(name, array, steps.reward, inputs, None, self.backend)
                inputs.append(array)
            outs.append(array)
        empty, dtype = self.layout.empty, steps.reward.dtype
        return tuple(empty(dtype) if array is None else array for array in outs)

    def run_one(self, rule: Rule, problem: Problem, out: Any, num_threads: int | None) -> Any:
        """The same of a single result."""
        return self.run(rule, problem, None if out is None else (out,), ("out",), num_threads)[0]


def check_episodes(rewards: npt.ArrayLike, ends: Ends, gamma: npt.ArrayLike, axis: int) -> Episodes:
    """The arguments that all estimators share.

    Raises:
        TypeError: an array is of another dtype.
        ValueError: an array is of another shape, the factor or the axis is out of range, or an
            episode was truncated without final_values.
    """
    backend = backend_of("recurrences", rewards)
    rewards = check_real("rewards", rewards, None, "", backend)
    axis = check_axis(axis, rewards.shape, "rewards")
    shape, dtype = rewards.shape, rewards.dtype
    terminated = check_flags("terminated", ends.terminated, shape, backend)
    truncated = check_flags("truncated", ends.truncated, shape, backend)
    last = check_real("last_values", ends.last_values, dtype, "", backend)
    if last.ndim:
        check_shape("last_values", last, shape[:axis] + shape[axis + 1 :])
    final = ends.final_values
    if final is not None:
        final = check_real("final_values", final, dtype, "", backend)
        check_shape("final_values", final, shape)
    elif truncated.any() and (truncated > terminated).any():
        raise ValueError("final_values: needed where an episode was truncated and not terminated")
    steps = UNUSED._replace(
        reward=rewards,
        terminated=terminated.view(np.uint8),
        truncated=truncated.view(np.uint8),
        # Without truncated episodes nothing uses the values: the rewards have been read already.
        final_value=rewards if final is None else final,
        gamma=check_factor("gamma", gamma, shape, dtype, backend),
    )
    layout = layout_of(rewards, axis) if backend is None else backend.layout_of(rewards, axis)
    return Episodes(backend, layout, steps, last)
