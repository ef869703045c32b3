"""Plans: how systems are cut into lanes, and calls of lane functions.

A plan, `SolvePlan`, depends on the shapes and strides of arrays alone, and is kept for later calls.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.machine.memory import array_address
from rlcpu.kernels.machine.threads import launch
from rlcpu.scan.layout import Array
from rlcpu.scan.tridiagonal.blocks import (
    INPUTS,
    NO_EXTRAS,
    PLACE,
    ROW_BYTES,
    LaneFunction,
    LaneInput,
    SolvePlan,
)
from rlcpu.scan.tridiagonal.panels import (
    DRIVERS,
    LISTS,
    block_address,
    count_chunks,
    panels_address,
)

PANEL = 2**19  # bytes of the inputs of a panel, of which the next one is prefetched as a whole
#: Bytes of one array from which the next panel is prefetched, and from which results are written
#: past the caches. A prefetch from the caches themselves only takes time.
LARGE, STREAMED = 2**19, 2**22


#: Unknowns from which systems are cut. Of 10,000 side by side, whole ones take 0.6 of the time of
#: chunks, though their pivots leave the second cache.
LONG = 2**15
#: The same of so few systems that they do not fill a row of a block.
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
    fills_row = count >= ROW_BYTES // dtype.itemsize
    if n < LONG and (fills_row or n < SHORT):
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
    plan, extras = plan_of(lanes, inputs, out, arguments), NO_EXTRAS[out.dtype.type]
    places = [array_address(i.array) + i.shift * i.array.strides[1] for i in inputs]
    addresses = np.array([*places, array_address(out)])
    lengths, shared = arguments.lengths, arguments.shared
    extra_inputs, extra_outputs = arguments.extra_inputs, arguments.extra_outputs
    if not (lengths is shared is extra_inputs is extra_outputs is None):
        extras = type(extras)(
            has_lengths=lengths is not None,
            lengths=0 if lengths is None else lengths,
            shared=0 if shared is None else shared,
            inputs=0 if extra_inputs is None else extra_inputs,
            outputs=0 if extra_outputs is None else extra_outputs,
        )
    num_threads = arguments.num_threads
    return bool(launch(DRIVERS, out.size, num_threads, plan.address, extras.address, addresses))


def plan_of(
    lanes: LaneFunction, inputs: Sequence[LaneInput], out: Array, arguments: LaneArguments
) -> SolvePlan:
    """Return the plan of a call of `run`, which is kept for the next one."""
    layouts = tuple((i.array.strides, i.neighbour, i.fill_value) for i in (*inputs, LaneInput(out)))
    facts = PlanFacts(
        shape=out.shape,
        cut=arguments.cut,
        periodic=arguments.periodic,
        pivoting=arguments.pivoting,
        head_bytes=-array_address(out) % ROW_BYTES,
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
) -> SolvePlan:
    """Return what `plan_of` does, from numbers alone.

    `layouts` has strides, in bytes, neighbour and fill value of each input and of the output.
    """
    (outer, n, inner), cut = facts.shape, facts.cut
    vector_lanes, itemsize = ROW_BYTES // dtype.itemsize, dtype.itemsize
    num_inputs = len(layouts) - 1
    places = np.zeros(INPUTS + 1, PLACE)
    for i, (strides, *rest) in enumerate(layouts):
        places[i] = (*(stride // itemsize for stride in strides), *rest)
    chunks, chunk_rows = cut or Cut(1, even(n))
    rows, total_bytes = even(chunk_rows), outer * n * inner * itemsize
    # An odd number of lines, so that the planes' first rows are in different sets of a cache.
    plane_size = (-(-rows // vector_lanes) * vector_lanes + 1) * vector_lanes
    is_large = total_bytes >= STREAMED
    if inner == 1:
        # Whether the output's rows are whole and follow each other, as `stream_rows` wants them.
        is_dense = chunks == 1 and facts.has_one_length and places[num_inputs]["outer"] == n
        panels = Panels(
            num_panels=-(-outer * chunks // vector_lanes),
            panels_across=1,
            panel_lanes=vector_lanes,
            head_lanes=0,
            lines_across=-(-rows // vector_lanes),
            streams=is_large and is_dense,
        )
    else:
        input_bytes, groups = num_inputs * plane_size * itemsize, outer * chunks
        panels = _cut_columns(groups, inner, input_bytes, itemsize, facts.head_bytes, is_large)
    planes_size = lanes.planes * plane_size
    extras = max(lanes.num_extra_inputs, lanes.num_extra_outputs)
    # Scratch of `run_panels`, in its order. Numbers: planes; a row of failures, one of lengths and
    # one of each extra; `linear`, a plane, with 4 rows more, as it begins at a line. Then int64:
    # the lists of two panels, `begins`, a number for each lane, and sources and their steps, two
    # for each input.
    lists_offset = itemsize * (planes_size + plane_size + (6 + extras) * vector_lanes)
    num_whole = 2 * (num_inputs + 1 + LISTS) * vector_lanes + vector_lanes + 2 * INPUTS
    return SolvePlan(
        run_panels=panels_address(dtype.name),
        lane_function=block_address(lanes.function, dtype.name),
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
        places=places,
        **panels._asdict(),
    )


def _cut_columns(
    groups: int, inner: int, input_bytes: int, itemsize: int, head_bytes: int, is_large: bool
) -> Panels:
    """Return the panels of `groups` of `inner` columns: as many blocks side by side as fit a cache.

    A group is a chunk of all systems of one outer index; a block is a vector, or line, wide.
    `input_bytes` are those of the inputs of one block, `head_bytes` those from the output's first
    number to a whole line; `is_large` outputs may be written past the caches.
    """
    vector_lanes = ROW_BYTES // itemsize
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
