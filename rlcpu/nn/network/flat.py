"""Networks and arrays in flat vectors, which kernels change in the place of the arrays themselves.

Adam, gradients and checkpoints want one long vector; policies want the arrays of each network. A
network's part of the vector has its free parameters, padded, then its packed parameters (see
`rlcpu.nn.network.plan`). The workers of an update step *slices* of it: some rows of a layer's
weights, or an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.machine import structs
from rlcpu.kernels.machine.memory import aligned_zeros
from rlcpu.nn.layers.kind import padded
from rlcpu.nn.network.graph import Network
from rlcpu.nn.network.packed import Packed
from rlcpu.nn.network.plan import NetworkPlan

Array = npt.NDArray[Any]
#: Rows of a layer's weights that one worker steps.
SLICE = 64


class Slice(NamedTuple):
    """A slice of what is learnt, the parameters that one worker steps at a time.

    Of a step of a network it has some rows of the matrix; the last slice of a step has the step's
    other parameters too.
    """

    network: int  #: number of its network; -1 for an array, which has neither steps nor rows
    step: int  #: a row of that network's table
    first_row: int  #: of the matrix of that step
    end_row: int  #: the row behind its last one
    begin: int  #: first place in the flat vector
    end: int  #: the place behind the last one


SLICE_RECORD = np.dtype([(name, np.int64) for name in Slice._fields])


class Learnt(structs.Struct):
    """Arrays that an update changes and a checkpoint saves."""

    parameters = structs.Array("real")  #: (P,), the flat vector
    first = structs.Array("real")  #: (P,), its first moment in Adam
    second = structs.Array("real")  #: (P,), its second moment
    #: (C,), transposed weights of all networks, of which those of transposed ones alone are
    #: written: forward passes read no others.
    copies = structs.Array("real")


class LearntLayout(structs.Struct):
    """Places of all that is learnt: networks, targets, then arrays that belong to no network."""

    #: (num_networks + 2,), bounds of each network in the flat vector, then of all arrays together.
    begins = structs.Array(np.int64)
    copies_begins = structs.Array(
        np.int64
    )  #: (num_networks + 1,), bounds of each in `Learnt.copies`
    free = structs.Array(np.int64)  #: (num_networks,), how many free parameters each has, padded
    targets = structs.Array(
        np.int64
    )  #: (num_networks,), the number of each network's target, or -1
    parameters = structs.Whole()  #: where arrays begin in the flat vector
    size = structs.Whole()  #: numbers of the flat vector
    num_slices = structs.Whole()
    slices = structs.Array(
        SLICE_RECORD, "num_slices"
    )  #: those of one update after those of another
    updates = structs.Array(np.int64)  #: (num_updates + 1,), bounds of the slices of each update


def check_names(
    networks: Mapping[str, Network],
    arrays: Mapping[str, Any],
    targets: Mapping[str, str],
    learns: Sequence[Sequence[str]],
) -> None:
    """Raise an exception for arrays, and names of networks, targets and what updates learn.

    For arguments see `lay_out`; here `networks` has no targets.

    Raises:
        TypeError: an array is not float32, or has several axes.
        ValueError: names do not fit.
    """
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1:
            expected = "expected a Network or a float32 vector"
            raise TypeError(f"networks[{name!r}]={array!r}: {expected}")
    names: dict[int, str] = {}
    for name, network in networks.items():
        first = names.setdefault(id(network), name)
        if first != name:
            raise ValueError(
                f"networks[{name!r}] is networks[{first!r}]: expected another network, or "
                f"targets={{{name!r}: {first!r}}} for a copy"
            )
    for name, source in targets.items():
        if source not in networks or name in networks:
            raise ValueError(f"targets={{{name!r}: {source!r}}}: expected a new name of a network")
    known = [*networks, *arrays]
    for name in (name for names_of_update in learns for name in names_of_update):
        if name not in known:
            raise ValueError(f"learns={name!r}: expected one of {', '.join(known)}")


def make_learnt(layout: LearntLayout, dtype: type) -> Learnt:
    """Return zeros for all that is learnt."""
    names = "parameters", "first", "second"
    arrays = {name: aligned_zeros((layout.size,), dtype) for name in names}
    copies = aligned_zeros((int(layout.copies_begins[-1]),), dtype)
    return Learnt.of(real=dtype)(**arrays, copies=copies)


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
    plans, names = [network.plan for network in networks.values()], list(networks)
    free = np.array([padded(network.free.size) for network in networks.values()])
    sizes = free + [plan.parameters for plan in plans]  # an array: sums of both
    begins = np.cumsum([0, *sizes])
    end, places = int(begins[-1]), {}
    for name, array in arrays.items():
        places[name] = end, array.size
        end += padded(array.size)
    target_numbers = np.full(len(names), -1)
    for name, source in targets.items():
        target_numbers[names.index(source)] = names.index(name)
    slices: list[Slice] = []
    bounds = [0]
    for learnt_names in learns:
        for name in learnt_names:
            if name in places:
                begin, size = places[name]
                slices.append(
                    Slice(network=-1, step=0, first_row=0, end_row=0, begin=begin, end=begin + size)
                )
            else:
                k = names.index(name)
                slices += _slices_of(k, plans[k], packed=int(begins[k] + free[k]))
        bounds.append(len(slices))
    layout = LearntLayout(
        begins=np.append(begins, end),
        copies_begins=np.cumsum([0, *(plan.copies for plan in plans)]),
        free=free,
        targets=target_numbers,
        parameters=int(begins[-1]),
        size=end,
        slices=np.array(slices, SLICE_RECORD),
        updates=np.array(bounds),
    )
    return layout, places


def _slices_of(network: int, plan: NetworkPlan, packed: int) -> list[Slice]:
    """Return the slices of a network, of `SLICE` rows of weights each.

    Args:
        network: its number.
        plan: of the network.
        packed: where its packed parameters begin in the flat vector.
    """
    slices = []
    for number, step in enumerate(plan.steps):
        if step.end == step.parameters:  # nothing is learnt
            continue
        for first_row in range(0, max(step.rows, 1), SLICE):  # one slice without a matrix
            end_row = min(first_row + SLICE, step.rows)
            begin = step.parameters + first_row * step.columns
            end = step.end if end_row == step.rows else step.parameters + end_row * step.columns
            slices.append(
                Slice(network, number, first_row, end_row, begin=packed + begin, end=packed + end)
            )
    return slices


def pair_views(
    networks: Sequence[Network], learnt: Learnt, layout: LearntLayout
) -> list[list[tuple[Array, Array]]]:
    """Return for each network pairs of views: a part of the flat vector, and the network's array.

    Copying one side of each pair to the other writes or reads the networks.
    """
    views = []
    for k, network in enumerate(networks):
        part = learnt.parameters[layout.begins[k] : layout.begins[k + 1]]
        free, packed = part[: network.free.size], part[layout.free[k] :]
        plan = network.plan
        arrays = plan.flat_views(network.parameters)
        pairs = [(free, network.free), *zip(plan.packed_views(packed), arrays, strict=True)]
        views.append(pairs)
    return views


def networks_of(
    plans: Sequence[NetworkPlan],
    tables: Sequence[Array],
    learnt: Learnt,
    layout: LearntLayout,
    copies: Array,
) -> list[Packed]:
    """Return all networks as kernels have them, their parameters in the flat vector.

    Args:
        plans: of the networks.
        tables: their linked tables, see `rlcpu.nn.network.passes.link`.
        learnt: the flat vector.
        layout: where each network is in it.
        copies: (C,), transposed weights, those of `learnt` or a worker's own.
    """
    return [
        Packed.of(real=copies.dtype)(
            table=table,
            inputs=plan.inputs,
            outputs=plan.outputs,
            states=plan.states,
            # Behind free parameters, which no input changes, such as logarithms of deviations.
            parameters=learnt.parameters[layout.begins[k] + layout.free[k] :],
            copies=copies[layout.copies_begins[k] :],
        )
        for k, (plan, table) in enumerate(zip(plans, tables, strict=True))
    ]


def write_copies(networks: Sequence[Network], learnt: Learnt, layout: LearntLayout) -> None:
    """Make the transposed weights that forward passes read anew."""
    for k, network in enumerate(networks):
        packed = learnt.parameters[layout.begins[k] + layout.free[k] :]
        copies = learnt.copies[layout.copies_begins[k] :]
        for copy, weights in network.plan.copied_views(packed, copies, is_learnt=False):
            copy[...] = weights
