"""Plans: one call of a lane function on arrays, as whole numbers for kernels."""

from __future__ import annotations

import functools
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
    LaneInput,
    Lanes,
    SolvePlan,
    StridedPointer,
)
from rlcpu.scan.tridiagonal.panels import DRIVERS, INPUTS, LISTS, PLACES, run_panels

PANEL = 2**19  # bytes of the inputs of a panel, of which the next one is prefetched as a whole
#: Bytes of one array from which the next panel is prefetched, and from which results are written
#: past the caches. A prefetch from the caches themselves only takes time.
LARGE, STREAMED = 2**19, 2**22


def even(n: int) -> int:
    """Return n rounded up to pairs of rows, one at least: elimination goes from both ends."""
    return max(n + n % 2, 2)


class Cut(NamedTuple):
    """Division of systems into `chunks` of at most `rows` rows, see `parts_of`."""

    chunks: int
    rows: int


class LaneArguments(NamedTuple):
    """Arguments of a lane function besides arrays, see `run`."""

    cut: Cut | None = None
    periodic: bool = False
    pivoting: bool = False
    lengths: Array | None = None
    shared: Array | None = None
    extra_inputs: Array | None = None
    extra_outputs: Array | None = None
    num_threads: int | None = None


def run(lanes: Lanes, inputs: Sequence[LaneInput], out: Array, call: LaneArguments) -> bool:
    """Run a lane function over systems; whether no lane failed.

    Args:
        lanes: the function.
        inputs: arrays of the output's shape and dtype, in one of the two layouts.
        out: (outer, n, inner), overwritten; may be an input. One of the two layouts.
        call: `cut`: how to cut systems, None for whole ones. `periodic`: whether the last equation
            is next to the first. `pivoting`: for the function. `lengths`: int64 (outer,) equations
            of each system, in rows alone; None for n. `shared`: contiguous, for all lanes.
            `extra_inputs` and `extra_outputs`: float64 (systems, chunks, numbers), see `Lanes`; the
            latter are overwritten. `num_threads`: at most so many; None for all.
    """
    plan, arrays = plan_of(lanes, inputs, out, call).copy(), [*(i.array for i in inputs), out]
    for name in ("lengths", "shared", "extra_inputs", "extra_outputs"):
        array = getattr(call, name)
        if array is not None:
            plan[SolvePlan._fields.index(name)] = address_of(array)
    return run_plan(plan, arrays, call.num_threads)


def run_plan(plan: Array, arrays: Sequence[Array], num_threads: int | None) -> bool:
    """Run a plan, which is overwritten, on inputs and the output; whether no lane failed."""
    if len(arrays) == 5 and all(a.ndim == 2 and a.flags.carray for a in arrays):
        place_matrices(plan, *arrays)
    else:
        for i, array in enumerate(arrays):
            plan[PLACES + i * FIELDS] += address_of(array)
    return bool(launch(DRIVERS, arrays[-1].size, num_threads, plan))


@kernel
def place_matrices(plan, lower, diagonal, upper, rhs, out):
    """Add the addresses of matrices to a plan: in Python that takes 8 us, most of a small call."""
    plan[PLACES] += lower.ctypes.data
    plan[PLACES + FIELDS] += diagonal.ctypes.data
    plan[PLACES + 2 * FIELDS] += upper.ctypes.data
    plan[PLACES + 3 * FIELDS] += rhs.ctypes.data
    plan[PLACES + 4 * FIELDS] += out.ctypes.data


def plan_of(lanes: Lanes, inputs: Sequence[LaneInput], out: Array, call: LaneArguments) -> Array:
    """Return a plan without addresses, not to be overwritten; see `run`."""
    layouts = tuple((i.array.strides, i.other, i.reach, i.shift) for i in (*inputs, LaneInput(out)))
    numbers = out.shape, call.cut, call.periodic, call.pivoting, call.lengths is None
    return _template(lanes, out.dtype, layouts, numbers, -address_of(out) % VECTOR_BYTES)


@functools.lru_cache(maxsize=256)
def _template(
    lanes: Lanes, dtype: Any, layouts: tuple[Any, ...], numbers: tuple[Any, ...], head: int
) -> Array:
    """Return a plan and the places of arrays, without addresses; `head` in bytes."""
    (outer, n, inner), cut, periodic, pivoting, no_lengths = numbers
    full, size, inputs = VECTOR_BYTES // dtype.itemsize, dtype.itemsize, len(layouts) - 1
    places = np.array(
        [
            StridedPointer._make([shift * strides[1], *(s // size for s in strides), reach, other])
            for strides, other, reach, shift in layouts
        ],
        np.int64,
    )
    chunks, rows = cut or Cut(1, even(n))
    rows, total = even(rows), outer * n * inner * size
    # An odd number of lines, so that the planes' first rows are in different sets of a cache.
    plane = ((rows + full - 1) // full * full + 1) * full
    slices, room, line, first = 1, full, (rows + full - 1) // full, 0
    streamed = total >= STREAMED
    if inner == 1:
        panels = -(-outer * chunks // full)
        streamed &= chunks == 1 and no_lengths and places[-1, 1] == n
    else:
        blocks = -(-inner // full)
        if outer * chunks < 4:  # something for every core, and no core waits long for another
            blocks = inner // full // 16
        room *= max(min(PANEL // (inputs * plane * size), blocks), 1)
        line = room // full if inputs * plane * size <= PANEL else 0
        # Else lines begin at other lanes in other rows.
        streamed &= inner % full == 0 and head % size == 0
        first = head // size if streamed else 0
        slices = -(-(inner - first) // room) + (first > 0)
        panels = slices * outer * chunks
    planes = lanes.planes * plane
    extras = max(lanes.num_extra_inputs, lanes.num_extra_outputs)
    scratch = size * (planes + plane + (6 + extras) * full)
    plan = SolvePlan(
        run=_panels_address(dtype.name),
        function=_block_address(lanes.function, dtype.name),
        inputs=inputs,
        output=lanes.output,
        num_extra_inputs=lanes.num_extra_inputs,
        num_extra_outputs=lanes.num_extra_outputs,
        outer=outer,
        length=n,
        inner=inner,
        chunks=chunks,
        rows=rows if cut is None else cut.rows,
        periodic=periodic,
        pivoting=pivoting,
        plane=plane,
        planes=planes,
        scratch=scratch,
        memory=scratch + 8 * (2 * (inputs + 1 + LISTS) * full + full + 2 * INPUTS),
        panels=panels,
        slices=slices,
        room=room,
        head=first,
        line=line,
        ahead=total >= LARGE,
        stream=streamed,
        lengths=0,
        shared=0,
        extra_inputs=0,
        extra_outputs=0,
    )
    return np.concatenate([np.array(plan, np.int64), places.reshape(-1)])


# ---------------------------------------------------------------- compiled for a dtype


@functools.cache
def _block_kind(dtype: str) -> Any:
    """Return numba's type of a `LaneBlock`."""
    number, whole = types.CPointer(getattr(types, dtype)), types.int64
    pointers = {"memory", "extras", "trace", "target"}
    fields = {name: number if name in pointers else whole for name in LaneBlock._fields}
    fields |= {"sources": types.UniTuple(whole, INPUTS), "steps": types.UniTuple(whole, INPUTS)}
    fields |= {"places": types.CPointer(whole), "starts": types.CPointer(whole)}
    fields["plan"] = View(PLAN)
    return kind_of(LaneBlock(**fields))


@functools.cache
def _block_address(function: Callable[..., Any], dtype: str) -> int:
    """Return the address of a lane function on one block, which adds to the trace of its lanes."""
    number = np.dtype(dtype).type

    def run_block(block_view):
        block = contents(block_view)
        trace = function(block, number(block.plan.pivoting))
        store(load(block.trace, 0, ONE) + trace, block.trace, 0)

    run_block.__name__ = function.__name__
    return c_function(run_block, (View(_block_kind(dtype)),), fastmath=EXACT)


@functools.cache
def _panels_address(dtype: str) -> int:
    """Return the address of `run_panels`, compiled for a dtype: all lane functions share it."""
    whole, numbers = types.int64, types.CPointer(getattr(types, dtype))
    wholes = types.CPointer(whole)
    kinds = (View(PLAN), wholes, numbers, wholes, whole, whole, wholes)
    return c_function(run_panels, kinds, fastmath=EXACT)
