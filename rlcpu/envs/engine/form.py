"""The arrays that a rollout writes, and the facts of an environment that decide their shapes.

An observation is here a row of `rows` floats, as the engine keeps it: its numbers, with the bits of
the action mask in the last ones. `ObservationView` decodes such rows for users.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu import backends
from rlcpu.envs.engine.observations import ObservationView

Array = npt.NDArray[Any]


class Records(NamedTuple):
    """Arrays that `collect` writes for T steps of N environments; flat, in time-major order.

    A kernel also has one in which it gathers a single step of one block of environments, before it
    copies that to its place: there T is 1, N is the `LANES` of a block, and arrays with several
    numbers for each environment are in rows of LANES.

    Attributes:
        observations: (T * N * rows,) float32, before each step.
        actions: (T * N * max(action_size, 1),), float32 of a `Box`, before clipping to its bounds,
            int64 of other spaces.
        log_probs, values: (T * N,) float32, of the policy.
        rewards: (T * N,).
        flags: (2 * T * N,) bool, `terminated` of all steps, then `truncated` of all.
        finals: (T * N * rows,) float32, observations in which an episode ended; written nowhere
            else.
        totals: (T * N,), return of the episode; written only where it ended.
        lengths: (T * N,) uint32, steps of the episode; written only where it ended.
        last: (N * rows,) float32, observations after the last step. In the arrays of a block,
            (LANES,): 0, or NaN where a number of the lane was not finite.
    """

    observations: Any
    actions: Any
    log_probs: Any
    values: Any
    rewards: Any
    flags: Any
    finals: Any
    totals: Any
    lengths: Any
    last: Any


class Form(NamedTuple):
    """Facts of an environment on which the arrays of a rollout depend.

    Attributes:
        num_envs: N.
        rows: floats that hold an observation and its action mask.
        view: how rows are decoded to observations.
        action_shape: () of a `Discrete`, (action_size,) of others.
        action_dtype: float32 of a `Box`, int64 of others.
        dtype: of rewards and returns.
        device: where the arrays are.
    """

    num_envs: int
    rows: int
    view: ObservationView
    action_shape: tuple[int, ...]
    action_dtype: type
    dtype: np.dtype[Any]
    device: str

    def allocate(self, num_steps: int) -> Records:
        """Return uninitialised arrays for a rollout of T = `num_steps`, on the device.

        Raises:
            rlcpu.cuda.CudaMemoryError: the device has too little.
        """
        empty = backends.arrays_of(self.device).empty
        transitions, action_size = num_steps * self.num_envs, math.prod(self.action_shape)
        row_dtype = self.view.row_dtype
        records = Records(
            observations=empty(transitions * self.rows, row_dtype),
            actions=empty(transitions * action_size, self.action_dtype),
            log_probs=empty(transitions, np.float32),
            values=empty(transitions, np.float32),
            rewards=empty(transitions, self.dtype),
            flags=empty(2 * transitions, np.bool_),
            finals=empty(transitions * self.rows, row_dtype),
            totals=empty(transitions, self.dtype),
            lengths=empty(transitions, np.uint32),
            last=empty(self.num_envs * self.rows, row_dtype),
        )
        if self.device == "cpu":
            return records
        final_values = empty(transitions, np.float32)
        last_values = empty(self.num_envs, np.float32)
        make = backends.find(self.device, "rollouts").DeviceRecords
        device_records: Records = make(*records, final_values, last_values)
        return device_records

    def by_env(self, records: Records, num_steps: int) -> list[Array]:
        """Return views of all arrays with an axis for environments: (times, num_envs, numbers).

        There are `num_steps` times; 2 * num_steps of flags, and 1 of `last`.
        """
        times = {"flags": 2 * num_steps, "last": 1}
        return [
            array.reshape(times.get(name, num_steps), self.num_envs, -1)
            for name, array in records._asdict().items()
        ]

    def shaped(self, records: Records, num_steps: int) -> dict[str, Array]:
        """Return views of a rollout's arrays by the names and in the shapes that users see.

        Observations are among them only if they are floats, which need no decoding.
        """
        shape = (num_steps, self.num_envs)
        terminated, truncated = records.flags.reshape(2, *shape)
        arrays = {
            "actions": records.actions.reshape(*shape, *self.action_shape),
            "log_probs": records.log_probs.reshape(shape),
            "values": records.values.reshape(shape),
            "rewards": records.rewards.reshape(shape),
            "terminated": terminated,
            "truncated": truncated,
        }
        if self.view.kind == "floats":
            rows = records.observations.reshape(*shape, -1), records.last.reshape(self.num_envs, -1)
            arrays["observations"], arrays["last_observations"] = map(self.view.decode, rows)
        if self.device != "cpu":  # a device's kernel computes these values, too
            device_records: Any = records
            arrays["final_values"] = device_records.final_values.reshape(shape)
            arrays["last_values"] = device_records.last_values
        return arrays
