"""Networks and arrays in flat vectors, which kernels change in the place of the arrays themselves.

Adam, gradients and checkpoints want one long vector; policies want the arrays of each network. A
network's part of the vector has its free parameters, padded, then its packed parameters (see
`rlcpu.nn.plan`). The workers of an update step *slices* of it: some rows of a layer's weights, or
an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.nn.layers.kind import LayerStep, padded
from rlcpu.nn.network import Network
from rlcpu.nn.packed import network_of

Array = npt.NDArray[Any]
#: Rows of a layer's weights that one worker steps.
SLICE = 64
#: A slice of what is learnt: number of its network (-1 for an array); `step`, a row of that
#: network's table, whose matrix's rows [first, last) it has; bounds in the flat vector. The last
#: slice of a step has its other parameters too.
SLICE_RECORD = np.dtype(
    [(name, np.int64) for name in ("network", "step", "first", "last", "begin", "end")]
)


class Learnt(NamedTuple):
    """Arrays that an update changes and a checkpoint saves.

    Attributes:
        parameters: (P,), the flat vector.
        first, second: (P,), its moments in Adam.
        copies: (C,), transposed weights of all networks, of which those of transposed ones alone
            are written: forward passes read no others.
    """

    parameters: Any
    first: Any
    second: Any
    copies: Any


class LearntLayout(NamedTuple):
    """Places of all that is learnt: networks, targets, then arrays that belong to no network.

    Attributes:
        tables, inputs, outputs, states: those of each network's plan, with zeros behind them up to
            the longest; see `rlcpu.nn.plan.NetworkPlan`.
        steps: (num_networks,) int64, rows of each table.
        begins: (num_networks + 2,) int64, bounds of each network in the flat vector, then of all
            arrays together.
        copies_begins: (num_networks + 1,) int64, bounds of each network in `Learnt.copies`.
        free: (num_networks,) int64, how many free parameters each has, padded.
        targets: (num_networks,) int64, the number of each network's target, or -1.
        parameters: where arrays begin in the flat vector.
        slices: (num_slices,) of dtype `SLICE_RECORD`, those of one update after those of another.
        updates: (num_updates + 1,) int64, bounds of the slices of each update.
    """

    tables: Any
    inputs: Any
    outputs: Any
    states: Any
    steps: Any
    begins: Any
    copies_begins: Any
    free: Any
    targets: Any
    parameters: int
    slices: Any
    updates: Any


def lay_out(
    networks: Mapping[str, Network],
    arrays: Mapping[str, Array],
    targets: Mapping[str, str],
    learns: Sequence[Sequence[str]],
) -> tuple[LearntLayout, dict[str, tuple[int, int]]]:
    """Lay out networks, then arrays, and cut what updates learn into slices.

    Args:
        networks: by name, targets among them.
        arrays: vectors, by name.
        targets: names of targets, and of the networks that they follow.
        learns: of each update the names of networks and arrays that it learns.

    Returns:
        The layout, and by name of each array its place in the flat vector and its size.
    """
    plans, names = [each.plan for each in networks.values()], list(networks)
    free = np.array([padded(each.free.size) for each in networks.values()])
    begins = np.cumsum([0, *(free + [plan.parameters for plan in plans])])
    end, places = int(begins[-1]), {}
    for name, array in arrays.items():
        places[name] = end, array.size
        end += padded(array.size)
    target_numbers = np.full(len(names), -1)
    for name, source in targets.items():
        target_numbers[names.index(source)] = names.index(name)
    layout = LearntLayout(
        tables=_stack([plan.table for plan in plans]),
        inputs=_stack([plan.inputs for plan in plans]),
        outputs=_stack([plan.outputs for plan in plans]),
        states=_stack([plan.states for plan in plans]),
        steps=np.array([len(plan.table) for plan in plans]),
        begins=np.append(begins, end),
        copies_begins=np.cumsum([0, *(plan.copies for plan in plans)]),
        free=free,
        targets=target_numbers,
        parameters=int(begins[-1]),
        slices=None,
        updates=None,
    )
    slices: list[tuple[int, ...]] = []
    bounds = [0]
    for learnt_names in learns:
        for name in learnt_names:
            if name in places:
                place, size = places[name]
                slices.append((-1, 0, 0, 0, place, place + size))
            else:
                slices += _slices_of(layout, names.index(name))
        bounds.append(len(slices))
    table = np.array(slices, SLICE_RECORD)
    return layout._replace(slices=table, updates=np.array(bounds)), places


def _stack(tables: Sequence[Array]) -> Array:
    """Stack tables in one array, the shorter ones with zeros behind them."""
    most, first = max(map(len, tables)), tables[0]
    stacked = np.zeros((len(tables), most, *first.shape[1:]), first.dtype)
    for rows, table in zip(stacked, tables, strict=True):
        rows[: len(table)] = table
    return stacked


def _slices_of(layout: LearntLayout, k: int) -> list[tuple[int, ...]]:
    """Return the slices of network number k, records of `SLICE` rows of weights each."""
    slices: list[tuple[int, ...]] = []
    packed = int(layout.begins[k] + layout.free[k])  # where its packed parameters begin
    for number, row in enumerate(layout.tables[k, : layout.steps[k]].tolist()):
        step = LayerStep(*row)
        if step.end == step.parameters:
            continue
        for first in range(0, max(step.rows, 1), SLICE):
            last = min(first + SLICE, step.rows)
            begin = step.parameters + first * step.columns
            end = step.end if last == step.rows else step.parameters + last * step.columns
            slices.append((k, number, first, last, packed + begin, packed + end))
    return slices


def pair_views(
    networks: Sequence[Network], learnt: Learnt, layout: LearntLayout
) -> list[list[tuple[Array, Array]]]:
    """Return for each network pairs of views: a part of the flat vector, and the network's array.

    Copying one side of each pair to the other writes or reads the networks.
    """
    views = []
    for k, network in enumerate(networks):
        begin, end = layout.begins[k : k + 2]
        part = learnt.parameters[begin:end]
        pairs = [(part[: network.free.size], network.free)] if network.free.size else []
        packed = network.plan.packed_views(part[layout.free[k] :])
        pairs += zip(packed, network.plan.flat_views(network.parameters), strict=True)
        views.append(pairs)
    return views


def write_copies(networks: Sequence[Network], learnt: Learnt, layout: LearntLayout) -> None:
    """Make the transposed weights that forward passes read anew."""
    for k, each in enumerate(networks):
        network = network_of.py_func(learnt.parameters, learnt.copies, layout, k)
        for copy, weights in each.plan.copied_views(network.parameters, network.copies, False):
            copy[...] = weights
