"""Networks in flat vectors: what a kernel of updates changes, and the threads that it runs on.

Adam, gradients and checkpoints want one long vector; who acts wants each network's own arrays.
`FlatLearner` keeps both, and is what `rlcpu.nn.Learner` is built on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.memory import aligned_zeros
from rlcpu.kernels.random import keys
from rlcpu.kernels.threads import default_num_threads
from rlcpu.nn import network
from rlcpu.nn.network import Network, copies_size, layer_table, packed_size, padded
from rlcpu.nn.workers import Helpers

Array = npt.NDArray[Any]
#: Updates that one thread makes alone after another process has kept it waiting for its helpers.
ALONE = 8


class Learnt(NamedTuple):
    """What an update changes and a checkpoint keeps.

    One flat vector holds, for each network, its free parameters (padded) and its packed ones; see
    `rlcpu.nn.network`.

    Attributes:
        parameters, first, second: (P,), the vector and its moments in Adam.
        copies: (C,), transposed weights of all networks.
    """

    parameters: Any
    first: Any
    second: Any
    copies: Any


class Layout(NamedTuple):
    """Where the networks are in the flat vectors.

    Attributes:
        tables: (num_networks, most layers, 9) int64; see `layer_table`.
        layers: (num_networks,) int64.
        activations: (num_networks,) int64, see `rlcpu.nn.network.Packed`.
        begins, copies_begins: (num_networks + 1,) int64, bounds in parameters and in copies.
        free: (num_networks,) int64, free parameters at the beginning of each, padded.
    """

    tables: Any
    layers: Any
    activations: Any
    begins: Any
    copies_begins: Any
    free: Any

    @classmethod
    def of(cls, networks: Sequence[Network]) -> Layout:
        """One network after the other."""
        tables = [layer_table(each.sizes, each.layer_norm) for each in networks]
        most = max(map(len, tables))
        begins, copies, free = [0], [0], []
        for each, table in zip(networks, tables, strict=True):
            free.append(padded(each.free.size))
            begins.append(begins[-1] + free[-1] + packed_size(table))
            copies.append(copies[-1] + copies_size(table))
        return Layout(
            tables=np.array([np.pad(table, ((0, most - len(table)), (0, 0))) for table in tables]),
            layers=np.array([len(table) for table in tables]),
            activations=np.array([each.code for each in networks]),
            begins=np.array(begins),
            copies_begins=np.array(copies),
            free=np.array(free),
        )


class FlatLearner:
    """Networks, the flat vectors that kernels change in their place, and the kernels' threads.

    Args:
        networks: all that are in the vectors.
        layout: has the fields of `Layout`, at least.
        counters: how many numbers count what was done.
        seed: of the random stream.
        num_threads: threads at most; None for one on each CPU that the process may use.
        dtype: of the vectors.

    Attributes:
        networks, layout: see above.
        learnt: the vectors; fields of `Learnt`, at least.
        counters: (counters,) int64.
        key: (2,) uint32 of the random stream.
        num_workers: threads at most.
        space: scratch memory of the last update, or None.
    """

    space: Any = None
    _made_for: tuple[int, ...] = ()

    def __init__(
        self,
        networks: Sequence[Network],
        layout: Any,
        *,
        counters: int,
        seed: int,
        num_threads: int | None,
        dtype: type,
    ) -> None:
        self.networks, self.layout, self.dtype = list(networks), layout, dtype
        size, copies = int(layout.begins[-1]), int(layout.copies_begins[-1])
        self.learnt: Any = Learnt(*(aligned_zeros((n,), dtype) for n in (size, size, size, copies)))
        self.counters = np.zeros(counters, np.int64)
        self.key = keys(np.array([seed], np.uint64))[:, 0]
        self.num_workers = num_threads or default_num_threads()
        self._helpers, self._alone = Helpers(), 0
        self.read_networks()

    # ------------------------------------------------------------ parameters

    def read_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Take over what networks of these numbers have, be it in new arrays; None for all."""
        self._views = self._pair_views()
        for k in range(len(self.networks)) if numbers is None else numbers:
            for learnt, own in self._views[k]:
                learnt[...] = own
        self.write_copies()

    def write_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Write what was learnt to the arrays of networks of these numbers; None for all."""
        for k in range(len(self.networks)) if numbers is None else numbers:
            for learnt, own in self._views[k]:
                own[...] = learnt

    def write_copies(self) -> None:
        """Make the transposed weights anew, as `network.refresh_copies` does for one network."""
        for k in range(len(self.networks)):
            network.write_copies(network.network_of.py_func(self.learnt, self.layout, k))

    def _pair_views(self) -> list[list[tuple[Array, Array]]]:
        """Of each network each array of parameters, as the vectors have it and as it has."""
        views = []
        for k, each in enumerate(self.networks):
            begin, end = self.layout.begins[k : k + 2]
            flat = self.learnt.parameters[begin:end]
            pairs = [(flat[: each.free.size], each.free)] if each.free.size else []
            packed = network.packed_layers(each.sizes, flat[self.layout.free[k] :], each.layer_norm)
            own = network.flat_layers(each.sizes, each.parameters, each.layer_norm)
            for ours, theirs in zip(packed, own, strict=True):
                pairs += zip(ours, theirs, strict=True)
            views.append(pairs)
        return views

    def state(self) -> dict[str, Array]:
        """Every array that an update changes, by name: what a checkpoint keeps."""
        return {**self.learnt._asdict(), "counters": self.counters, "key": self.key}

    def discard(self) -> None:
        """Give up what an interrupted update works on: its threads may go on in it for a moment."""
        self.learnt = self.learnt._make(array.copy() for array in self.learnt)
        self.counters = self.counters.copy()
        self._views = self._pair_views()
        self.space = None

    def __getstate__(self) -> dict[str, Any]:
        """Without scratch memory and views of arrays that a copy has of its own."""
        return {**self.__dict__, "space": None, "_views": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._views = self._pair_views()

    # ------------------------------------------------------------ running a kernel

    def _space_for(self, make: Callable[..., Any], *sizes: int) -> Any:
        """`make(*sizes)`, kept from call to call and cleared where an update counts in it."""
        if self.space is None or self._made_for != sizes:
            self.space, self._made_for = make(*sizes), sizes
        for counted in (self.space.claims, self.space.done, self.space.report):
            counted[...] = 0
        return self.space

    def _patience(self, samples: int) -> int:
        """Looks at a worker of so many samples before one gives it up; see `workers.wait`.

        A look takes 1.3 ns: about four times as long as the longest item, and a millisecond. A
        virtual machine often takes a core away for less: without it, half of PPO's updates were
        made by one thread.
        """
        return int(800_000 + samples * self.learnt.parameters.size // 16)

    def _run(self, kernel: Callable[..., None], workers: int, space: Any, *args: Any) -> None:
        """`kernel(worker, workers, learnt, layout, *args)` on this thread, and on others."""
        workers = 1 if self._alone else workers
        learnt, layout = self.learnt, self.layout
        self._helpers.run(workers, lambda worker: kernel(worker, workers, learnt, layout, *args))
        self._alone = ALONE if space.done[2] else max(0, self._alone - 1)
