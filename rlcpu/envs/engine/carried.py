"""The recurrent states of a policy, one for each environment: memory that an engine carries.

A policy with memory (an LSTM or a GRU, say) has a vector of `size` numbers for each environment,
which it reads and overwrites in every step. The vectors of policy A mean nothing to policy B: an
engine therefore keeps the mark of the policy that wrote them, a number that identifies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: The mark of no policy: any policy may go on from the states.
NOBODY = 0


class Carrying:
    """Base of engines, with the recurrent states of the policy that acted last.

    They are not zeroed where an episode begins: kernels read zeros in their place in the first step
    of an episode.

    Attributes:
        num_envs: N.
        carried: (N, size) float32, the states after the last step; None of a policy without memory.
        writer: the mark of the policy that wrote them; `NOBODY` if any policy may go on from them.
    """

    num_envs: int
    carried: npt.NDArray[np.float32] | None = None
    writer: int = NOBODY

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return the steps so far of each environment's running episode, (N,)."""
        raise NotImplementedError

    def carry(self, mark: int, size: int) -> npt.NDArray[np.float32]:
        """Return the states (N, size) with which a policy goes on, and make it their writer.

        They are `carried` itself, or new zeros if a policy of another mark or size wrote them.
        """
        if size == 0:
            self.carried, self.writer = None, NOBODY
            return np.zeros((self.num_envs, 0), np.float32)
        states, is_readable = self.carried, self.writer in (mark, NOBODY)
        if states is None or states.shape[1] != size or not is_readable:
            states = np.zeros((self.num_envs, size), np.float32)
        self.carried, self.writer = states, mark
        return states

    def remembered(self) -> npt.NDArray[np.float32]:
        """Return a copy of the states, (N, size), with zeros where an episode begins."""
        assert self.carried is not None
        return np.where(self.elapsed()[:, None] == 0, np.float32(0), self.carried)

    def carried_arrays(self, part: slice = slice(None)) -> dict[str, Array]:
        """Return {"carried": a view of the states of some environments}; {} without memory."""
        return {} if self.carried is None else {"carried": self.carried[part]}

    def put_carried(self, arrays: Mapping[str, Array], part: slice = slice(None)) -> None:
        """Overwrite the states of some environments by what `carried_arrays` returned.

        The policy that acts next goes on from them, whichever it is.
        """
        states = arrays.get("carried")
        if states is None:
            self.carried = None
            return
        if self.carried is None or self.carried.shape[1] != states.shape[1]:
            self.carried = np.zeros((self.num_envs, states.shape[1]), np.float32)
        self.carried[part], self.writer = states, NOBODY


def check_carried(states: Any, num_envs: int) -> None:
    """Raise TypeError or ValueError unless a snapshot's "carried" is (num_envs, any) float32."""
    if not isinstance(states, np.ndarray) or states.dtype != np.float32:
        kind = getattr(states, "dtype", type(states).__name__)
        raise TypeError(f"snapshot['carried'] is of {kind}: expected float32")
    if states.ndim != 2 or len(states) != num_envs:
        raise ValueError(
            f"snapshot['carried'] has shape {states.shape}: expected ({num_envs}, any)"
        )
