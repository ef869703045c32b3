"""Plans: how systems are cut into lanes, and a call of a lane function as numbers for kernels.

A plan is int64: the numbers of a `SolvePlan`, then, from `PLACES` on, a `StridedPointer` of each
array, `FIELDS` numbers, the address first. `kind_of` turns a NamedTuple of numba's types into the
type of such a tuple in memory, and `View` is the type of a pointer to it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rlcpu.kernels.calls import View, contents, kind_of
from rlcpu.kernels.compile import EXACT, c_function, kernel
from rlcpu.kernels.memory import load, store
from rlcpu.kernels.threads import launch
from rlcpu.kernels.vectors import VECTOR_BYTES
from rlcpu.scan.layout import Array, address_of
from rlcpu.scan.tridiagonal.blocks import (
    FIELDS,
    ONE,
    PLAN,
    LaneBlock,
    LaneFunction,
    LaneInput,
    SolvePlan,
    StridedPointer,
    count_chunks,
)
from rlcpu.scan.tridiagonal.panels import DRIVERS, INPUTS, LISTS, PLACES, run_panels

PANEL = 2**19  # bytes of the inputs of a panel, of which the next one is prefetched as a whole
#: Bytes of one array from which the next panel is prefetched, and from which results are written
#: past the caches. A prefetch from the caches themselves only takes time.
LARGE, STREAMED = 2**19, 2**22


#: Unknowns from which systems are cut. Of 10,000 side by side, whole ones take 0.6 of the time of
#: chunks, though their pivots leave the second cache.
LONG = 2**15
#: The same of so few systems that they do not fill a register.
SHORT = 2**11
#: Equations of a chunk at least and at most, and chunks that there should be, for full registers on
#: several cores.
LEAST, MOST, CHUNKS = 32, 250, 64
#: Groups of columns below which each is cut into so many panels at least: something for every core,
#: and no core waits long for another.
FEW_GROUPS, PANELS_ACROSS = 4, 16


# ---------------------------------------------------------------- what is computed


def even(n: int) -> int:
    """Return n rounded up to pairs of rows, one at least: elimination goes from both ends."""
    return max(n + n % 2, 2)


class Cut(NamedTuple):
    """Division of systems into `chunks` of at most `rows` rows, see `count_chunks`."""

    chunks: int
    rows: int


def cut_systems(count: int, n: int, dtype: Any) -> Cut | None:
    """Return how to cut so many systems of n unknowns; None for whole ones."""
    fills_register = count >= VECTOR_BYTES // dtype.itemsize
    if n < LONG and (fills_register or n < SHORT):
        return None
    rows = min(max(count * n // CHUNKS, LEAST), MOST)
    return Cut(count_chunks(n, rows), rows)


class LaneArguments(NamedTuple):
    """Arguments of a lane function besides arrays."""

    cut: Cut | None = None  # how systems are cut; None for whole ones
    periodic: bool = False  # whether the last equation is next to the first
    pivoting: bool = False  # whether to exchange equations
    lengths: Array | None = None  # int64 (outer,), equations of systems that are rows; None for n
    shared: Array | None = None  # contiguous array that all lanes read
    extra_inputs: Array | None = None  # float64 (systems, chunks, numbers), see `LaneFunction`
    extra_outputs: Array | None = None  # likewise, overwritten
    num_threads: int | None = None  # at most so many; None for all


# ---------------------------------------------------------------- calls


def run(
    lanes: LaneFunction, inputs: Sequence[LaneInput], out: Array, arguments: LaneArguments
) -> bool:
    """Run a lane function over systems, and return whether no lane failed.

    Inputs are (outer, n, inner), of one dtype, in one of the layouts of `panels`, as is `out`,
    which is overwritten and may be an input.
    """
    plan, arrays = plan_of(lanes, inputs, out, arguments).copy(), [*(i.array for i in inputs), out]
    for name in ("lengths", "shared", "extra_inputs", "extra_outputs"):
        array = getattr(arguments, name)
        if array is not None:
            plan[SolvePlan._fields.index(name)] = address_of(array)
    return run_plan(plan, arrays, arguments.num_threads)


def run_plan(plan: Array, arrays: Sequence[Array], num_threads: int | None) -> bool:
    """Run a plan on inputs and the output, and return whether no lane failed.

    The arrays' addresses are added to the plan, which has the bytes of a shift in their place.
    """
    if len(arrays) == 5 and all(a.ndim == 2 and a.flags.carray for a in arrays):
        add_addresses(plan, *arrays)
    else:
        for i, array in enumerate(arrays):
            plan[PLACES + i * FIELDS] += address_of(array)
    return bool(launch(DRIVERS, arrays[-1].size, num_threads, plan))


@kernel
def add_addresses(plan, lower, diagonal, upper, rhs, out):
    """Add the addresses of five matrices to a plan: Python takes 8 us, most of a small call."""
    plan[PLACES] += lower.ctypes.data
    plan[PLACES + FIELDS] += diagonal.ctypes.data
    plan[PLACES + 2 * FIELDS] += upper.ctypes.data
    plan[PLACES + 3 * FIELDS] += rhs.ctypes.data
    plan[PLACES + 4 * FIELDS] += out.ctypes.data


def plan_of(
    lanes: LaneFunction, inputs: Sequence[LaneInput], out: Array, arguments: LaneArguments
) -> Array:
    """Return the numbers of a `SolvePlan` without addresses, and of the arrays' `StridedPointer`s.

    They are kept for the next call: not to be overwritten. The arguments are those of `run`.
    """
    layouts = tuple(
        (i.array.strides, i.fill_value, i.neighbour, i.shift) for i in (*inputs, LaneInput(out))
    )
    facts = PlanFacts(
        shape=out.shape,
        cut=arguments.cut,
        periodic=arguments.periodic,
        pivoting=arguments.pivoting,
        head_bytes=-address_of(out) % VECTOR_BYTES,
        has_one_length=arguments.lengths is None,
    )
    return _make_plan(lanes, out.dtype, layouts, facts)


class PlanFacts(NamedTuple):
    """Facts on which a plan depends, besides the lane function and the layout of the arrays."""

    shape: tuple[int, ...]  # of the output, (outer, n, inner)
    cut: Cut | None  # see `LaneArguments`; so the next two
    periodic: bool
    pivoting: bool
    head_bytes: int  # from the output's first number to a whole line
    has_one_length: bool  # whether all systems have n equations


class Panels(NamedTuple):
    """Cut of lanes into panels; its fields become those of `SolvePlan` with these names."""

    num_panels: int
    panels_across: int  # panels of columns side by side
    panel_lanes: int  # lanes of a panel
    head_lanes: int  # lanes before the output's first whole line, a panel of their own; 0 for none
    lines_across: int  # lines of a lane, or of a row of columns, that are prefetched one by one; or
    # 0: the next panel does not fit the cache, and later rows of the same one are prefetched
    streams: bool  # whether the output is written past the caches


@functools.lru_cache(maxsize=256)
def _make_plan(
    lanes: LaneFunction, dtype: Any, layouts: tuple[Any, ...], facts: PlanFacts
) -> Array:
    """Return what `plan_of` does, from numbers alone.

    `layouts` has strides, in bytes, fill value, neighbour and shift of each input and the output.
    """
    (outer, n, inner), cut = facts.shape, facts.cut
    vector_lanes, itemsize = VECTOR_BYTES // dtype.itemsize, dtype.itemsize
    num_inputs = len(layouts) - 1
    pointers = [
        StridedPointer(
            address=shift * strides[1],  # to which `run_plan` adds the array's
            outer=strides[0] // itemsize,
            step=strides[1] // itemsize,
            lane=strides[2] // itemsize,
            neighbour=neighbour,
            fill_value=fill_value,
        )
        for strides, fill_value, neighbour, shift in layouts
    ]
    chunks, chunk_rows = cut or Cut(1, even(n))
    rows, total_bytes = even(chunk_rows), outer * n * inner * itemsize
    # An odd number of lines, so that the planes' first rows are in different sets of a cache.
    plane_size = (-(-rows // vector_lanes) * vector_lanes + 1) * vector_lanes
    is_large = total_bytes >= STREAMED
    if inner == 1:
        # Whether the output's rows are whole and follow each other, as `stream_rows` wants them.
        is_dense = chunks == 1 and facts.has_one_length and pointers[-1].outer == n
        panels = _cut_rows(outer * chunks, rows, vector_lanes, is_large and is_dense)
    else:
        input_bytes, groups = num_inputs * plane_size * itemsize, outer * chunks
        panels = _cut_columns(groups, inner, input_bytes, itemsize, facts.head_bytes, is_large)
    planes_size = lanes.planes * plane_size
    extras = max(lanes.num_extra_inputs, lanes.num_extra_outputs)
    # Planes; rows of failures, of lanes' lengths and of each extra; `linear`, a plane and 4 rows to
    # spare. Then int64: lists of two panels, `begins`, sources and their steps; see `scratch_at`.
    lists_offset = itemsize * (planes_size + plane_size + (6 + extras) * vector_lanes)
    num_whole = 2 * (num_inputs + 1 + LISTS) * vector_lanes + vector_lanes + 2 * INPUTS
    plan = SolvePlan(
        run_panels=_panels_address(dtype.name),
        lane_function=_block_address(lanes.function, dtype.name),
        num_inputs=num_inputs,
        output_plane=lanes.output,
        num_extra_inputs=lanes.num_extra_inputs,
        num_extra_outputs=lanes.num_extra_outputs,
        outer=outer,
        length=n,
        inner=inner,
        num_chunks=chunks,
        chunk_rows=rows if cut is None else chunk_rows,
        periodic=facts.periodic,
        pivoting=facts.pivoting,
        plane_size=plane_size,
        planes_size=planes_size,
        lists_offset=lists_offset,
        scratch_bytes=lists_offset + 8 * num_whole,
        prefetches=total_bytes >= LARGE,
        lengths=0,
        shared=0,
        extra_inputs=0,
        extra_outputs=0,
        **panels._asdict(),
    )
    return np.array([*plan, *itertools.chain(*pointers)], np.int64)


def _cut_rows(lanes: int, rows: int, vector_lanes: int, streams: bool) -> Panels:
    """Return the panels of so many lanes of `rows` rows: a block each; see `Panels`."""
    return Panels(
        num_panels=-(-lanes // vector_lanes),
        panels_across=1,
        panel_lanes=vector_lanes,
        head_lanes=0,
        lines_across=-(-rows // vector_lanes),
        streams=streams,
    )


def _cut_columns(
    groups: int, inner: int, input_bytes: int, itemsize: int, head_bytes: int, is_large: bool
) -> Panels:
    """Return the panels of `groups` of `inner` columns: as many blocks side by side as fit a cache.

    A group is a chunk of all systems of one outer index; a block is a vector, or line, wide.
    `input_bytes` are those of the inputs of one block, `head_bytes` those from the output's first
    number to a whole line; `is_large` outputs may be written past the caches.
    """
    vector_lanes = VECTOR_BYTES // itemsize
    most_blocks = -(-inner // vector_lanes)  # of a panel: all of a group
    if groups < FEW_GROUPS:
        most_blocks = inner // vector_lanes // PANELS_ACROSS
    panel_lanes = vector_lanes * max(min(PANEL // input_bytes, most_blocks), 1)
    # Lines of a panel's row; 0 if not even one block fits the cache, see `Panels`.
    lines_across = panel_lanes // vector_lanes if input_bytes <= PANEL else 0
    # Lines have to begin at the same lanes in all rows.
    streams = is_large and inner % vector_lanes == 0 and head_bytes % itemsize == 0
    head_lanes = head_bytes // itemsize if streams else 0
    across = -(-(inner - head_lanes) // panel_lanes) + (head_lanes > 0)
    return Panels(across * groups, across, panel_lanes, head_lanes, lines_across, streams)


# ---------------------------------------------------------------- compiled for a dtype


@functools.cache
def _block_kind(dtype: str) -> Any:
    """Return numba's type of a `LaneBlock`.

    Its `sources` are addresses as whole numbers, since they are computed from the arrays' places;
    fields that functions index are pointers.
    """
    number, whole = types.CPointer(getattr(types, dtype)), types.int64
    pointers = {"memory", "extras", "failures", "target"}
    fields = {name: number if name in pointers else whole for name in LaneBlock._fields}
    fields |= {
        "sources": types.UniTuple(whole, INPUTS),
        "source_steps": types.UniTuple(whole, INPUTS),
    }
    fields |= {"places": types.CPointer(whole), "starts": types.CPointer(whole)}
    fields["plan"] = View(PLAN)
    return kind_of(LaneBlock(**fields))


@functools.cache
def _block_address(function: Callable[..., Any], dtype: str) -> int:
    """Return the address of a compiled lane function, which adds to the failures of its block."""
    number = np.dtype(dtype).type

    def run_block(block_view):
        block = contents(block_view)
        failures = function(block, number(block.plan.pivoting))
        store(load(block.failures, 0, ONE) + failures, block.failures, 0)

    run_block.__name__ = function.__name__
    return c_function(run_block, (View(_block_kind(dtype)),), fastmath=EXACT)


@functools.cache
def _panels_address(dtype: str) -> int:
    """Return the address of `run_panels`, compiled for a dtype: all lane functions share it."""
    whole, numbers = types.int64, types.CPointer(getattr(types, dtype))
    wholes = types.CPointer(whole)
    kinds = (View(PLAN), wholes, numbers, wholes, whole, whole, wholes)
    return c_function(run_panels, kinds, fastmath=EXACT)
