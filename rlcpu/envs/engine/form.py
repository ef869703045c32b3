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
from rlcpu.envs.engine.episode import SIZE
from rlcpu.envs.engine.observations import ObservationView

Array = npt.NDArray[Any]
#: Sums that `simulate` writes in the place of records: finished episodes, their returns, the
#: squares of these, 0 (or NaN if a number was not finite), and the steps of these episodes.
EPISODES, RETURNS, SQUARES, FAULTS, LENGTHS = range(5)
NUM_SUMS = 5


class Records(NamedTuple):
    """Arrays that `collect` writes for T steps of N environments; flat, in time-major order.

    What belongs to the end of an episode is written only where one ended.
    """

    #: (T * N * rows,) float32, before each step.
    observations: Any
    #: (T * N * max(action_size, 1),), float32 of a `Box`, before clipping to its bounds, or int64.
    actions: Any
    #: (T * N,) float32, of the policy.
    log_probs: Any
    values: Any
    #: (T * N,).
    rewards: Any
    #: (2 * T * N,) bool, `terminated` of all steps, then `truncated` of all.
    flags: Any
    #: (T * N * rows,) float32, observations in which an episode ended.
    finals: Any
    #: (SIZE * T * N,), numbers of episodes that ended: T * N for each field of an `Episode`.
    totals: Any
    #: (T * N,) uint32, their steps.
    lengths: Any
    #: (N * rows,) float32, observations after the last step.
    last: Any


class Form(NamedTuple):
    """Facts of an environment on which the arrays of a rollout depend."""

    #: N.
    num_envs: int
    #: Floats that hold an observation and its action mask.
    rows: int
    #: How rows are decoded to observations.
    view: ObservationView
    #: () of a `Discrete`, (action_size,) of others.
    action_shape: tuple[int, ...]
    #: float32 of a `Box`, int64 of others.
    action_dtype: type
    #: Of rewards and returns.
    dtype: np.dtype[Any]
    #: Where the arrays are.
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
            totals=empty(SIZE * transitions, self.dtype),
            lengths=empty(transitions, np.uint32),
            last=empty(self.num_envs * self.rows, row_dtype),
        )
        if self.device == "cpu":
            return records
        device_records: Records = backends.find(self.device, "rollouts").DeviceRecords(
            **records._asdict(),
            final_values=empty(transitions, np.float32),
            last_values=empty(self.num_envs, np.float32),
        )
        return device_records

    def by_env(self, records: Records, num_steps: int) -> list[Array]:
        """Return views of all arrays with an axis for environments: (times, num_envs, numbers).

        There are `num_steps` times, so often of flags and totals as there are kinds of these, and 1
        of `last`.
        """
        times = {"flags": 2 * num_steps, "totals": SIZE * num_steps, "last": 1}
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
