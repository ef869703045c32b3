"""What a rollout writes: its arrays, and the facts that decide their shapes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu import backends
from rlcpu.envs.engine.observations import ObservationView

Array = npt.NDArray[Any]


class Records(NamedTuple):
    """Arrays that `collect` writes, T steps of N environments; flat, in time-major order.

    Attributes:
        observations: (T * N * shown rows,) float32, before each step, with action masks.
        actions: (T * N * max(action_size, 1),), float32 of a `Box`, before clipping to its bounds,
            int64 of others.
        log_probs, values: (T * N,) float32.
        rewards: (T * N,).
        flags: (2 * T * N,) bool, terminated, then truncated.
        finals: (T * N * shown rows,) float32; written only where an episode ended.
        totals: (T * N,), return of the episode; written only where it ended.
        lengths: (T * N,) uint32, steps of the episode; written only where it ended.
        last: (N * shown rows,) float32, after the last step. In the rows of a block: (LANES,)
            0, or NaN where a number of the lane was not finite.
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
        rows: numbers that hold an observation and its action mask.
        view: how observations are delivered.
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
        """Return the memory of a rollout.

        Raises:
            rlcpu.cuda.CudaMemoryError: the device has too little.
        """
        empty = backends.arrays_of(self.device).empty
        count, size = num_steps * self.num_envs, self.rows
        real, width, row_dtype = self.dtype, math.prod(self.action_shape), self.view.row_dtype
        records = Records(
            observations=empty(count * size, row_dtype),
            actions=empty(count * width, self.action_dtype),
            log_probs=empty(count, np.float32),
            values=empty(count, np.float32),
            rewards=empty(count, real),
            flags=empty(2 * count, np.bool_),
            finals=empty(count * size, row_dtype),
            totals=empty(count, real),
            lengths=empty(count, np.uint32),
            last=empty(self.num_envs * size, row_dtype),
        )
        if self.device == "cpu":
            return records
        values = empty(count, np.float32), empty(self.num_envs, np.float32)
        on_device: Records = backends.find(self.device, "rollouts").DeviceRecords(*records, *values)
        return on_device

    def by_env(self, records: Records, num_steps: int) -> list[Array]:
        """Return each array of the memory as (rows of an environment, num_envs, numbers)."""
        leads = {"flags": 2 * num_steps, "last": 1}
        return [
            array.reshape(leads.get(name, num_steps), self.num_envs, -1)
            for name, array in records._asdict().items()
        ]

    def shaped(self, records: Records, num_steps: int) -> dict[str, Array]:
        """Return a rollout's arrays of its memory by name, without those to be decoded."""
        shape = (num_steps, self.num_envs)
        terminated, truncated = records.flags.reshape(2, *shape)
        shown = {
            "actions": records.actions.reshape(*shape, *self.action_shape),
            "log_probs": records.log_probs.reshape(shape),
            "values": records.values.reshape(shape),
            "rewards": records.rewards.reshape(shape),
            "terminated": terminated,
            "truncated": truncated,
        }
        if self.view.kind == "floats":
            rows = records.observations.reshape(*shape, -1), records.last.reshape(self.num_envs, -1)
            shown["observations"], shown["last_observations"] = map(self.view.decode, rows)
        if self.device != "cpu":  # a device's kernel has the values at hand
            device: Any = records
            shown["final_values"] = device.final_values.reshape(shape)
            shown["last_values"] = device.last_values
        return shown
