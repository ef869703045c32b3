"""Networks in flat vectors: what a kernel of updates changes, and the threads that it runs on.

Adam, gradients and checkpoints want one long vector; policies want the arrays of each network.
`FlatLearner` keeps both, and is what `rlcpu.nn.Learner` is built on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.memory import aligned_zeros
from rlcpu.kernels.random import keys, stream_seeds
from rlcpu.kernels.threads import default_num_threads
from rlcpu.nn.layers.kind import padded
from rlcpu.nn.network import Network
from rlcpu.nn.packed import network_of
from rlcpu.nn.workers import Helpers

Array = npt.NDArray[Any]
#: Updates that one thread makes alone after another process has kept it waiting for its helpers.
ALONE = 8


class Learnt(NamedTuple):
    """Arrays that an update changes and a checkpoint saves.

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


class FlatLayout(NamedTuple):
    """Places of networks in the flat vectors.

    Attributes:
        tables, inputs, outputs, states: those of each network's plan, with zeros behind them up to
            the longest; see `rlcpu.nn.plan.NetworkPlan`.
        steps: (num_networks,) int64, rows of each table.
        begins, copies_begins: (num_networks + 1,) int64, bounds in parameters and in copies.
        free: (num_networks,) int64, free parameters at the beginning of each, padded.
    """

    tables: Any
    inputs: Any
    outputs: Any
    states: Any
    steps: Any
    begins: Any
    copies_begins: Any
    free: Any

    @classmethod
    def of(cls, networks: Sequence[Network]) -> FlatLayout:
        """Lay out one network after the other."""
        plans = [each.plan for each in networks]
        free = [padded(each.free.size) for each in networks]
        sizes = [plan.parameters + size for plan, size in zip(plans, free, strict=True)]
        return FlatLayout(
            tables=_stack([plan.table for plan in plans]),
            inputs=_stack([plan.inputs for plan in plans]),
            outputs=_stack([plan.outputs for plan in plans]),
            states=_stack([plan.states for plan in plans]),
            steps=np.array([len(plan.table) for plan in plans]),
            begins=np.cumsum([0, *sizes]),
            copies_begins=np.cumsum([0, *(plan.copies for plan in plans)]),
            free=np.array(free),
        )


def _stack(tables: Sequence[Array]) -> Array:
    """Stack tables in one array, the shorter ones with zeros behind them."""
    most, first = max(map(len, tables)), tables[0]
    stacked = np.zeros((len(tables), most, *first.shape[1:]), first.dtype)
    for rows, table in zip(stacked, tables, strict=True):
        rows[: len(table)] = table
    return stacked


class FlatLearner:
    """Networks, the flat vectors that kernels change in their place, and the kernels' threads.

    Args:
        networks: all that are in the vectors.
        layout: has the fields of `FlatLayout`, at least.
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
        self.key = keys(stream_seeds(seed, 1))[:, 0]
        self.num_workers = num_threads or default_num_threads()
        self._helpers, self._alone = Helpers(), 0
        self.read_networks()

    # ------------------------------------------------------------ parameters

    def read_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Read the parameters of networks of these numbers, be they new arrays; None for all."""
        self._views = self._pair_views()
        for k in range(len(self.networks)) if numbers is None else numbers:
            for part, array in self._views[k]:
                part[...] = array
        self.write_copies()

    def write_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Write learnt parameters to the networks of these numbers; None for all."""
        for k in range(len(self.networks)) if numbers is None else numbers:
            for part, array in self._views[k]:
                array[...] = part

    def write_copies(self) -> None:
        """Make the transposed weights of all networks anew."""
        for k, each in enumerate(self.networks):
            network = network_of.py_func(self.learnt, self.layout, k)
            for copy, weights in each.plan.copied_views(network.parameters, network.copies):
                copy[...] = weights

    def _pair_views(self) -> list[list[tuple[Array, Array]]]:
        """Pair parts of the flat vector with the arrays of each network that they stand for."""
        views = []
        for k, each in enumerate(self.networks):
            begin, end = self.layout.begins[k : k + 2]
            flat = self.learnt.parameters[begin:end]
            pairs = [(flat[: each.free.size], each.free)] if each.free.size else []
            packed = each.plan.packed_views(flat[self.layout.free[k] :])
            pairs += zip(packed, each.plan.flat_views(each.parameters), strict=True)
            views.append(pairs)
        return views

    def state(self) -> dict[str, Array]:
        """Return every array that an update changes, by name, for checkpoints."""
        return {**self.learnt._asdict(), "counters": self.counters, "key": self.key}

    def discard(self) -> None:
        """Make new arrays after an interrupted update: its threads may still write to the old."""
        self.learnt = self.learnt._make(array.copy() for array in self.learnt)
        self.counters = self.counters.copy()
        self._views = self._pair_views()
        self.space = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out scratch memory and views, which a copy makes anew."""
        return {**self.__dict__, "space": None, "_views": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._views = self._pair_views()

    # ------------------------------------------------------------ running a kernel

    def _space_for(self, make: Callable[..., Any], *sizes: int) -> Any:
        """Return `make(*sizes)`, the same from call to call, with its counters at zero."""
        if self.space is None or self._made_for != sizes:
            self.space, self._made_for = make(*sizes), sizes
        for counted in (self.space.claims, self.space.done, self.space.report):
            counted[...] = 0
        return self.space

    def _patience(self, samples: int) -> int:
        """Return how often to look at a worker of so many samples before giving it up.

        See `workers.wait`.

            A look takes 1.3 ns: about four times as long as the longest item, and a millisecond. A
            virtual machine often takes a core away for less: without it, half of PPO's updates were
            made by one thread.
        """
        return int(800_000 + samples * self.learnt.parameters.size // 16)

    def _run(self, kernel: Callable[..., None], workers: int, space: Any, *args: Any) -> None:
        """Run `kernel(worker, workers, learnt, layout, *args)` on this thread, and on others."""
        workers = 1 if self._alone else workers
        learnt, layout = self.learnt, self.layout
        self._helpers.run(workers, lambda worker: kernel(worker, workers, learnt, layout, *args))
        self._alone = ALONE if space.done[2] else max(0, self._alone - 1)
