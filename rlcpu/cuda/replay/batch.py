"""What `sample` returns on the device."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.cuda.arrays import DeviceArray


class Batch(NamedTuple):
    """Transitions, or sequences of them, drawn from a buffer on the device.

    Attributes:
        data: structured like the buffer's example, each leaf a (batch_size, *shape) array on the
            device, or a (sequence_length, batch_size, *shape) one.
        indices: (batch_size,) int64, for `update_priorities`.
        probabilities: (batch_size,) float64, with which each was drawn; None if all were alike.
        weights: (batch_size,) float32, importance weights, at most 1; None if all are alike.
        discounts: (batch_size,) float32, of the value of what follows an n-step return; None if
            there is none.
    """

    data: Any
    indices: DeviceArray
    probabilities: DeviceArray | None = None
    weights: DeviceArray | None = None
    discounts: DeviceArray | None = None

    def __getitem__(self, key: Any) -> Any:
        """Part of the data: `batch["reward"]` is `batch.data["reward"]`."""
        return self.data[key]

    def __len__(self) -> int:
        return self.indices.size
