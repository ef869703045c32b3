"""Returns and advantages of arrays on the device."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import operand, real_dtype, result
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.run import UNUSED, Problem, run
from rlcpu.kernels.checks import check_count
from rlcpu.scan.arguments import check_axis
from rlcpu.scan.recurrences.episodes import Ends
from rlcpu.scan.recurrences.off_policy import CLIPS, RETRACE, VTRACE, Clips, VTrace
from rlcpu.scan.recurrences.returns import ADVANTAGES, LAMBDA_RETURNS, RETURNS, Advantages
from rlcpu.scan.recurrences.rules import Step


class Episodes(NamedTuple):
    """Checked arguments.

    Attributes:
        layout: of the arrays.
        steps: the arrays that every estimator reads, None for the others.
        last: values after the last steps.
    """

    layout: Layout
    steps: Step
    last: DeviceArray

    def array(self, name: str, value: Any) -> DeviceArray:
        """One more array like the rewards."""
        return operand(name, value, self.steps.reward.dtype, self.layout.shape)

    def factor(self, name: str, value: Any) -> DeviceArray:
        """A number in [0, 1], or one for every step."""
        return check_factor(name, value, self.steps.reward.dtype)

    def outputs(self, names: tuple[str, ...], outs: Any, steps: Step) -> tuple[DeviceArray, ...]:
        """Arrays for the results: those given, once they are checked, or new ones."""
        taken = [array for array in (*steps, self.last) if array is not None]
        found: list[DeviceArray] = []
        for name, out in zip(names, outs or (None,) * len(names), strict=True):
            array = result(name, out, self.layout.shape, steps.reward.dtype, taken + found)
            found.append(array)
        return tuple(found)


def check_factor(name: str, value: Any, dtype: Any) -> DeviceArray:
    """A number in [0, 1], or an array of numbers.

    Raises:
        TypeError: it is of another dtype.
        ValueError: a number is out of range.
    """
    plain = not arrays.is_device_array(value) and np.ndim(value) == 0
    found = operand(name, value, dtype)
    if plain and not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value}: expected a number in [0, 1]")
    return found


def check_episodes(rewards: Any, ends: Ends, gamma: Any, axis: int) -> Episodes:
    """The arguments that all estimators share.

    Raises:
        TypeError, ValueError: see `rlcpu.scan.discounted_returns`.
    """
    reward = arrays.take("rewards", rewards, real_dtype("rewards", rewards))
    axis = check_axis(axis, reward.shape, "rewards")
    layout = Layout(reward.shape, axis)
    flags = [
        arrays.take(name, getattr(ends, name), np.bool_, layout.shape)
        for name in ("terminated", "truncated")
    ]
    last = operand("last_values", ends.last_values, reward.dtype)
    if last.ndim and last.shape != layout.ends:
        raise ValueError(f"last_values: expected shape {layout.ends}, got {last.shape}")
    steps = UNUSED._replace(
        reward=reward,
        terminated=flags[0],
        truncated=flags[1],
        final_value=_final_values(ends.final_values, reward, flags),
        gamma=check_factor("gamma", gamma, reward.dtype),
    )
    return Episodes(layout, steps, last)


def _final_values(value: Any, reward: DeviceArray, flags: list[DeviceArray]) -> DeviceArray:
    """The values of truncated episodes; any numbers where there are none.

    Raises:
        ValueError: they are missing where an episode was truncated and not terminated.
    """
    if value is not None:
        return operand("final_values", value, reward.dtype, _shape_of(value, reward))
    found = arrays.zeros(1, np.int32)
    launch(_cut_kernel(), reward.size, *flags, found)
    if found.copy_to_host()[0]:
        raise ValueError("final_values: needed where an episode was truncated and not terminated")
    return reward  # nothing uses them, and the rewards are read already


def _shape_of(value: Any, reward: DeviceArray) -> tuple[int, ...] | None:
    """A single number stands for all."""
    alone = not arrays.is_device_array(value) and np.ndim(value) == 0
    return None if alone else reward.shape


@functools.cache
def _cut_kernel() -> Any:
    """(terminated, truncated, found): a 1 to `found` if any step was truncated only."""

    @kernel
    def find(terminated, truncated, found):
        k = cuda.grid(1)
        if k < truncated.size and truncated[k] and not terminated[k]:
            found[0] = 1

    return find


# ---------------------------------------------------------------- public functions


def discounted_returns(
    rewards: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    *,
    gamma: Any,
    final_values: Any = None,
    axis: int = 0,
    out: Any = None,
) -> Any:
    """`rlcpu.scan.discounted_returns` of C-contiguous arrays on the device.

    Numbers and arrays on the host are copied there. With `final_values`, one number for all will
    do, nothing is read back: the call returns before the result is there.
    """
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    outs = episodes.outputs(("out",), None if out is None else (out,), episodes.steps)
    run(RETURNS, episodes.layout, Problem(episodes.steps, initial=episodes.last), outs)
    return outs[0] if out is None else out


def gae(
    rewards: Any,
    values: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    *,
    gamma: Any,
    lambda_: Any,
    final_values: Any = None,
    axis: int = 0,
    out: Advantages | None = None,
) -> Advantages:
    """`rlcpu.scan.gae` of arrays on the device; see `discounted_returns`."""
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    lambda_ = check_factor("lambda_", lambda_, episodes.steps.reward.dtype)
    steps = episodes.steps._replace(value=episodes.array("values", values), lambda_=lambda_)
    outs = episodes.outputs(("out.advantages", "out.returns"), out, steps)
    run(ADVANTAGES, episodes.layout, Problem(steps, last=episodes.last), outs)
    return Advantages(*(outs if out is None else out))


def lambda_returns(
    rewards: Any,
    values: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    *,
    gamma: Any,
    lambda_: Any,
    final_values: Any = None,
    axis: int = 0,
    out: Any = None,
) -> Any:
    """`rlcpu.scan.lambda_returns` of arrays on the device; see `discounted_returns`."""
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    lambda_ = check_factor("lambda_", lambda_, episodes.steps.reward.dtype)
    steps = episodes.steps._replace(value=episodes.array("values", values), lambda_=lambda_)
    outs = episodes.outputs(("out",), None if out is None else (out,), steps)
    problem = Problem(steps, last=episodes.last, initial=episodes.last)
    run(LAMBDA_RETURNS, episodes.layout, problem, outs)
    return outs[0] if out is None else out


def nstep_returns(
    rewards: Any,
    values: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    *,
    n: int,
    gamma: Any,
    lambda_: Any = 1.0,
    final_values: Any = None,
    axis: int = 0,
    out: Any = None,
) -> Any:
    """`rlcpu.scan.nstep_returns` of arrays on the device; see `discounted_returns`."""
    n = check_count("n", n, limit=2**63)
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    lambda_ = check_factor("lambda_", lambda_, episodes.steps.reward.dtype)
    steps = episodes.steps._replace(value=episodes.array("values", values), lambda_=lambda_)
    outs = episodes.outputs(("out",), None if out is None else (out,), steps)
    window = 0 if n >= episodes.layout.num_steps else n
    problem = Problem(steps, last=episodes.last, initial=episodes.last, window=window)
    run(LAMBDA_RETURNS, episodes.layout, problem, outs)
    return outs[0] if out is None else out


def vtrace(
    rewards: Any,
    values: Any,
    ratios: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    *,
    gamma: Any,
    lambda_: Any = 1.0,
    clips: Clips = CLIPS,
    final_values: Any = None,
    axis: int = 0,
    out: VTrace | None = None,
) -> VTrace:
    """`rlcpu.scan.vtrace` of arrays on the device; see `discounted_returns`."""
    for name, clip in zip(Clips._fields, clips, strict=True):
        if not clip >= 0.0:
            raise ValueError(f"clips.{name}={clip}: expected a number that is not negative")
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    steps = episodes.steps._replace(
        value=episodes.array("values", values),
        ratio=episodes.array("ratios", ratios),
        lambda_=check_factor("lambda_", lambda_, episodes.steps.reward.dtype),
    )
    outs = episodes.outputs(("out.targets", "out.advantages"), out, steps)
    run(VTRACE, episodes.layout, Problem(steps, last=episodes.last, options=clips), outs)
    return VTrace(*(outs if out is None else out))


def retrace(
    rewards: Any,
    values: Any,
    action_values: Any,
    ratios: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    *,
    gamma: Any,
    lambda_: Any = 1.0,
    final_values: Any = None,
    axis: int = 0,
    out: Any = None,
) -> Any:
    """`rlcpu.scan.retrace` of arrays on the device; see `discounted_returns`."""
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    steps = episodes.steps._replace(
        value=episodes.array("values", values),
        ratio=episodes.array("ratios", ratios),
        action_value=episodes.array("action_values", action_values),
        lambda_=check_factor("lambda_", lambda_, episodes.steps.reward.dtype),
    )
    outs = episodes.outputs(("out",), None if out is None else (out,), steps)
    run(RETRACE, episodes.layout, Problem(steps, last=episodes.last), outs)
    return outs[0] if out is None else out
