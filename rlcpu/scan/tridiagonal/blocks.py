"""What kernels are told of systems, and what a lane function sees of them.

A lane is a system, or a chunk of a long one. A block has as many lanes as a row has numbers, which
is a vector: equation k of each lane. A lane function, plain Python, computes the rows of one block;
`panels` fills blocks and calls it. Arrays are (outer, n, inner): equations along the axis of n,
systems along the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.machine.memory import LINE
from rlcpu.kernels.machine.structs import Array, Flag, Reference, Struct, Whole, Wholes
from rlcpu.kernels.machine.vectors import VECTOR_BYTES

INPUTS = 5  # inputs of a lane function at most
#: Registers of a row, and its bytes. Each equation waits for the one before: of two registers one
#: is computed meanwhile, and with AVX2 a row of one takes 1.3 times as long. A row is no longer
#: than a cache line, which a register of AVX-512 fills.
ROW = 2 if 2 * VECTOR_BYTES <= LINE else 1
ROW_BYTES = ROW * VECTOR_BYTES


class LaneInput(NamedTuple):
    """An array that a lane function reads."""

    array: Any  # (outer, n, inner)
    fill_value: int = 0  # 0 or 1, in the place of numbers that a lane does not have
    #: -1 if the array holds coefficients of the unknown before, so that the first one of a system
    #: means nothing and is never read; 1 if of the unknown after, and the last one is never read;
    #: else 0.
    neighbour: int = 0
    #: Equation k has number k + shift of the array; -1 and 1 want a neighbour of the same sign.
    shift: int = 0


class LaneFunction(NamedTuple):
    """A function that computes a block of lanes, and the memory that it wants."""

    #: (block, pivoting) -> a vector of zeros, NaN in the lanes that fail. `block` is a `LaneBlock`,
    #: whose planes it overwrites; `pivoting` is 1 or 0. Rows beyond a lane's end hold fill values.
    function: Callable[..., Any]
    planes: int  # number of planes that it uses; the inputs are the first ones
    output: int = -1  # plane of the output; -1 if nothing is written
    num_extra_inputs: int = 0  # numbers that go into each lane besides, see `extra_input`
    num_extra_outputs: int = 0  # numbers that come out besides, see `set_extra_output`


#: Where an input or the output, (outer, n, inner), has its numbers; strides are in numbers. `lane`
#: is 1, or 0 where a vector repeats one number; the last two are those of `LaneInput`.
PLACE = np.dtype(
    [(name, np.int64) for name in ("outer", "step", "lane", "neighbour", "fill_value")]
)


class SolvePlan(Struct):
    """All that kernels are told of calls of one kind. Sizes are in numbers unless bytes are named.

    A unit of work is a panel: one block of rows, or several blocks of columns side by side.
    """

    run_panels = Whole()  #: address of the function of this name
    lane_function = Whole()  #: address of the compiled `LaneFunction.function`
    num_inputs = Whole()
    output_plane = Whole()  #: plane of the output; -1 if nothing is written
    num_extra_inputs = Whole()  #: see `LaneFunction`
    num_extra_outputs = Whole()
    outer = Whole()  #: sizes of the arrays
    length = Whole()
    inner = Whole()
    num_chunks = Whole()  #: of a system
    chunk_rows = Whole()  #: rows of a chunk at most, rounded up to pairs
    periodic = Flag()  #: whether the last equation is next to the first
    pivoting = Flag()  #: for the lane function
    plane_size = Whole()
    planes_size = Whole()  #: of all planes
    lists_offset = Whole()  #: bytes of scratch memory before lists of whole numbers
    scratch_bytes = Whole()
    num_panels = Whole()
    panels_across = Whole()  #: panels of columns side by side
    panel_lanes = Whole()
    head_lanes = Whole()  #: lanes before the first whole line of the output, a panel of their own
    lines_across = Whole()  #: lines of a panel's lane or row, prefetched in turn; 0: rows ahead
    prefetches = Flag()  #: whether to prefetch
    streams = Flag()  #: whether to write past the caches
    places = Array(PLACE, INPUTS + 1)  #: of the inputs, and then of the output


class Extras(Struct):
    """Arrays of a call besides its inputs and its output; 0 where there is none."""

    has_lengths = Flag()
    lengths = Array(np.int64)  #: (outer,), equations of each system
    shared = Array("real")  #: array that all lanes read
    inputs = Array(np.float64)  #: (systems, chunks, numbers), see `LaneFunction`
    outputs = Array(np.float64)  #: likewise, overwritten


#: What calls have besides inputs and output, by dtype: nothing.
NO_EXTRAS: dict[Any, Any] = {
    kind: Extras.of(real=kind)(has_lengths=False, lengths=0, shared=0, inputs=0, outputs=0)
    for kind in (np.float32, np.float64)
}


class LaneBlock(Struct):
    """Lanes, as many as a vector has numbers, as a lane function sees them.

    Numbers are in planes of scratch memory, whose row k is a vector: equation k of all lanes. Full
    blocks of columns are read and written where they lie in the arrays, but for their ends.
    """

    memory = Array("real")  #: the planes, the inputs' first
    plane_size = Whole()
    extras = Array("real")  #: rows: number of rows of each lane, then extra inputs or outputs
    failures = Array("real")  #: a row: NaN in lanes that failed
    shared = Array("real")  #: see `Extras`
    sources = Wholes(INPUTS)  #: address of row 0 of each input, for rows from `begin` to `end`
    source_steps = Wholes(INPUTS)  #: numbers between an input's rows
    target = Array("real")  #: row 0 of the output
    target_step = Whole()
    rows = Whole()  #: rows that the lane function computes
    common_rows = Whole()  #: rows that all lanes have
    begin = Whole()  #: first row of inputs where `sources` says; other rows are in planes
    end = Whole()  #: last one, exclusive
    output_rows = Whole()  #: rows of the output that are written
    streams = Flag()  #: whether to write past the caches
    plan = Reference(SolvePlan)
    addresses = Array(np.int64)  #: of the inputs; this and the rest are for prefetches
    starts = Array(np.int64)  #: `LaneLists.starts` of the panel to prefetch
    first_line = Whole()  #: line of that panel that is prefetched with row 0
    first_lane = Whole()  #: lanes of the panel before this block
