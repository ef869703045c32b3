"""What a policy with memory remembers of each environment, beside the environments' own memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NOBODY = 0


class Carrying:
    """Base of the memories of environments, which carries what a policy remembers of them.

    Where an episode begins nothing is remembered: kernels see so by its steps, and read zeros in
    the place of the row.

    Attributes:
        num_envs: N.
        carried: (N, size) float32, what the policy that acted last remembers after its last step;
            None without memory.
        carrier: the mark of that policy; `NOBODY` where the next one goes on from it.
    """

    num_envs: int
    carried: npt.NDArray[np.float32] | None = None
    carrier: int = NOBODY

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return (N,) steps of the running episodes."""
        raise NotImplementedError

    def carry(self, mark: int, size: int) -> npt.NDArray[np.float32]:
        """Return `carried` for a policy of this mark that remembers `size` numbers.

        Another policy than the one that acted last remembers nothing of the running episodes.
        """
        if size == 0:
            self.carried, self.carrier = None, NOBODY
            return np.zeros((self.num_envs, 0), np.float32)
        carried, is_heir = self.carried, self.carrier in (mark, NOBODY)
        if carried is None or carried.shape[1] != size or not is_heir:
            carried = np.zeros((self.num_envs, size), np.float32)
        self.carried, self.carrier = carried, mark
        return carried

    def remembered(self) -> npt.NDArray[np.float32]:
        """Return a copy of `carried` with zeros where an episode begins."""
        assert self.carried is not None
        return np.where(self.elapsed()[:, None] == 0, np.float32(0), self.carried)

    def carried_arrays(self, part: slice = slice(None)) -> dict[str, Array]:
        """Return states of networks in some environments by name, a view; {} without memory."""
        return {} if self.carried is None else {"carried": self.carried[part]}

    def put_carried(self, arrays: Mapping[str, Array], part: slice = slice(None)) -> None:
        """Overwrite what `carried_arrays` shows, for whichever policy acts next."""
        rows = arrays.get("carried")
        if rows is None:
            self.carried = None
            return
        if self.carried is None or self.carried.shape[1] != rows.shape[1]:
            self.carried = np.zeros((self.num_envs, rows.shape[1]), np.float32)
        self.carried[part], self.carrier = rows, NOBODY


def check_carried(rows: Any, num_envs: int) -> None:
    """Raise TypeError or ValueError unless rows of a snapshot are what a policy remembers."""
    if not isinstance(rows, np.ndarray) or rows.dtype != np.float32:
        kind = getattr(rows, "dtype", type(rows).__name__)
        raise TypeError(f"snapshot['carried'] is of {kind}: expected float32")
    if rows.ndim != 2 or len(rows) != num_envs:
        raise ValueError(f"snapshot['carried'] has shape {rows.shape}: expected ({num_envs}, any)")
