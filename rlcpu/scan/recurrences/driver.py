"""The driver of all recurrences: a rule's functions over arrays in memory, in vectors.

Arrays are (outer, num_steps, inner), see `rlcpu.scan.layout`. A core takes a block of lanes through
time, one step after the other; a vector has a number of each of its lanes.

Columns: the lanes are side by side in memory, where they are read and written.

Rows, where `inner` is 1: the lanes are rows, and vectors are made of the steps of one of them but
for what goes from step to step. A piece of some steps after the other is computed in three passes
over scratch memory: a and b along the rows; y across them, by transposing squares in registers; the
results along the rows again.

Windows of n steps: a, b and values of a piece of time are written to scratch memory, and then taken
n at a time. Nothing goes from one window to another.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import prange, types

from rlcpu.kernels.compile import EXACT, c_function, compact, define, inline_exact, njit
from rlcpu.kernels.memory import (
    address,
    call_at,
    fence,
    load,
    load_mask,
    load_tile,
    pointer_to,
    prefetch,
    shifted,
    store,
    store_tile,
    stream,
    to_line,
)
from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, smallest_normal, where
from rlcpu.kernels.vectors import width as width_of
from rlcpu.scan.device import for_cores
from rlcpu.scan.layout import REPEATED, Layout, Place, address_of
from rlcpu.scan.recurrences.rules import FLAGS, Rule, Step, link, link_always

Array = npt.NDArray[Any]

GRAIN = 2**16  # steps of all lanes, 40 us, from which a second core is worth waking
REGISTERS = 2  # of rows in a block: two hide the latency of one step after the other
PIECE = 128  # steps of a piece of rows
#: Bytes of an output from which it is written past the caches: half of it takes longer that way,
#: twice as much half the time.
LARGE = 2**23
PIECES = 4  # pieces of a row from which one more costs less than to write through the caches
#: Windows of a row, at least, and steps and registers of columns, that are computed together.
WINDOWS, TALL, WIDE = 512, 32, 4

#: Positions in a plan, what a kernel takes: sizes of the arrays; lanes of a block, or steps of a
#: piece of rows, and by how many the first one is shorter; how many outputs are written past the
#: caches; 1 if the last step is computed first, else -1; address of `Problem.ends` or 0; steps of a
#: window, and windows of a lane that a block has.
OUTER, STEPS, INNER, WIDTH, OFFSET, STREAMED, DIRECTION, ENDS, WINDOW, SPAN, HEADER = range(11)
#: Numbers of the arrays that follow the fields of `Step`: values after the last step, what is
#: carried into the step that is computed first, and the outputs.
LAST, INITIAL, FIRST, SECOND, ARRAYS = range(9, 14)
#: Where a plan has addresses and strides of all arrays.
ADDRESS, OUTERS, TIMES, LANES = (HEADER + i * ARRAYS for i in range(4))

#: Decorator of a function that is called: compiled once for all that call it.
called: Any = njit(nogil=True, error_model="numpy", fastmath=EXACT)


def lanes_of(dtype: Any) -> int:
    """Return how many numbers a register holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


# ---------------------------------------------------------------- from a plan to vectors


@inline_exact
def place(plan, array, outer, step, lane, like):
    """Return a pointer to a number of an array of the plan."""
    by = outer * plan[OUTERS + array] + step * plan[TIMES + array] + lane * plan[LANES + array]
    return shifted(pointer_to(plan[ADDRESS + array], like), by)


def make_loads(dtype: Any) -> tuple[Any, Any]:
    """Return functions (pointer, by, count) of the first `count` numbers or flags, then 0."""
    full, zero = lanes_of(dtype), dtype(0.0)

    @inline_exact
    def numbers(pointer, by, count):
        if count < full:
            return load(pointer, by, 1, count, zero)
        return load(pointer, by, 1)

    @inline_exact
    def flags(pointer, by, count):
        if count < full:
            return load_mask(pointer, by, fill(zero, 1), count)
        return load_mask(pointer, by, fill(zero, 1))

    return numbers, flags


@inline_exact
def write(vector, pointer, by, count, streamed):
    """Write the first `count` numbers of a vector; `streamed`, past the caches."""
    if count < width_of(pointer, 1):
        store(vector, pointer, by, count)
    elif streamed:
        stream(vector, pointer, by)
    else:
        store(vector, pointer, by)


def of_steps(names: str, expressions: dict[str, str], **namespace: Any) -> Any:
    """Return a function of so named arguments: a `Step` of expressions by field, 0 elsewhere."""
    parts = [expressions.get(field, "0") for field in Step._fields]
    source = f"def of_steps({names}):\n    return Step({', '.join(parts)})"
    return inline_exact(define(source, Step=Step, **namespace))


def for_each(names: str, lines: list[str], **namespace: Any) -> Any:
    """Return a function of so named arguments that runs all lines, one for each of some arrays."""
    source = "\n    ".join([f"def for_each({names}):", *lines, "return"])
    return inline_exact(define(source, **namespace))


def make_readers(rule: Rule, dtype: Any) -> tuple[Any, Any, Any]:
    """Return functions: pointers to the arrays of steps; their vectors; `prefetch_arrays`.

    Their arguments are (plan, k, outer, step, lane), where k is 0, (pointers, by, count) and
    (pointers, by). `prefetch_arrays` prefetches lines.
    """
    numbers, flags = make_loads(dtype)
    kinds = [(i, f, "flag" if f in FLAGS else "number") for i, f in enumerate(Step._fields)]
    kinds = [each for each in kinds if each[1] in rule.reads]
    # Were the first array a constant, `place` would be compiled for each of them.
    places = {f: f"place(plan, k + {i}, outer, step, lane, {kind})" for i, f, kind in kinds}
    names = "plan, k, outer, step, lane"
    arrays_at = of_steps(names, places, place=place, number=dtype(0.0), flag=np.uint8(0))
    vectors = {f: f"{kind}s(x.{f}, by, count)" for _, f, kind in kinds}
    read = of_steps("x, by, count", vectors, numbers=numbers, flags=flags)
    lines = [f"prefetch(x.{f}, by)" for f in rule.reads]
    return arrays_at, read, for_each("x, by", lines, prefetch=prefetch)


class State(NamedTuple):
    """Hold what lanes carry from step to step: rows of `room` numbers, y and values rules see."""

    memory: Any  # pointer
    room: Any


def make_begin(rule: Rule, dtype: Any) -> Any:
    """Return a function: the state of lanes before the step that is computed first."""
    sees, zero = len(rule.sees) > 0, dtype(0.0)

    @inline_exact
    def begin(plan, outer, lane, width, across, state):
        initial = place(plan, np.int64(INITIAL), outer, 0, lane, zero)
        last = place(plan, np.int64(LAST), outer, 0, lane, zero)
        for i in range(width):
            state.memory[i] = initial[i * plan[across + INITIAL]]
            if sees:
                state.memory[state.room + i] = last[i * plan[across + LAST]]

    return begin


# ---------------------------------------------------------------- columns


def make_advance(rule: Rule, dtype: Any, read: Any, prefetch_arrays: Any) -> Any:
    """Return a function that computes and writes one step of a block of lanes."""
    full, two = lanes_of(dtype), rule.outputs == 2
    coefficients, results = rule.coefficients, rule.results
    connect = link if rule.cuts else link_always
    rows = {f: f"state.memory, by + {i} * state.room" for i, f in enumerate(rule.sees, 1)}
    read_after = of_steps("state, by", {f: f"load({row}, 1)" for f, row in rows.items()}, load=load)
    lines = [f"store(step.{f}, {row})" for f, row in rows.items()]
    store_after = for_each("step, state, by", lines, store=store)

    @inline_exact
    def vector(here, targets, state, by, count, options):
        """Compute the lanes of a vector, or the first ones of them."""
        step, after, carried = (
            read(here, by, count),
            read_after(state, by),
            load(state.memory, by, 1),
        )
        a, b = coefficients(step, after, options)
        y = connect(a, b, carried)
        # All lanes: a load of what has just been written to some of them waits for the store.
        store(y, state.memory, by)
        store_after(step, state, by)
        outputs = results(y, carried, step, after, options)
        first, second, streamed = targets
        write(outputs[0], first, by, count, streamed > 0)
        if two:
            write(outputs[1], second, by, count, streamed > 1)

    @inline_exact
    def advance(here, ahead, targets, state, width, options):
        """Compute all lanes, and prefetch the lines of the step that comes next."""
        compact()
        # Whole vectors apart: a mask in the loop takes 1.5x as long where few arrays are read.
        for i in range(width // full):
            prefetch_arrays(ahead, i * full)
            vector(here, targets, state, i * full, full, options)
        whole = width // full * full
        if whole < width:
            prefetch_arrays(ahead, whole)
            vector(here, targets, state, whole, width - whole, options)

    return advance


def make_columns(rule: Rule, dtype: Any) -> Any:
    """Return a function that computes all steps of lanes that are side by side."""
    full, rows, zero = lanes_of(dtype), 1 + len(rule.sees), dtype(0.0)
    arrays_at, read, prefetch_arrays = make_readers(rule, dtype)
    begin, advance = make_begin(rule, dtype), make_advance(rule, dtype, read, prefetch_arrays)

    @inline_exact
    def columns(plan, options, outer, lane, width):
        compact()
        k, steps, direction = np.int64(0), plan[STEPS], plan[DIRECTION]
        room = (width + full - 1) // full * full
        memory = np.zeros(rows * room + full, dtype)
        state = State(shifted(address(memory), to_line(address(memory), 0)), room)
        begin(plan, outer, lane, width, LANES, state)
        for i in range(steps):
            step = steps - 1 - i if direction > 0 else i
            here = arrays_at(plan, k, outer, step, lane)
            ahead = arrays_at(plan, k, outer, step - direction, lane)
            first = place(plan, k + FIRST, outer, step, lane, zero)
            second = place(plan, k + SECOND, outer, step, lane, zero)
            advance(here, ahead, (first, second, plan[STREAMED]), state, width, options)
        return memory.size  # alive up to here

    return columns


# ---------------------------------------------------------------- rows


class Area(NamedTuple):
    """Scratch memory of a piece of rows: planes, in which a row has `pitch` numbers.

    What belongs to the step after the last one of the piece follows the row's numbers.
    """

    a: Any
    b: Any  # y takes its place
    next_values: Any  # a plane for each field that rules see of the step after
    tiles: Any  # squares of steps and rows, one of a and one of b
    starts: Any  # where rows begin


def make_passes(rule: Rule, dtype: Any, pitch: int) -> tuple[Any, Any]:
    """Return functions along rows: a and b of a piece; its results."""
    full, plane, two = lanes_of(dtype), REGISTERS * lanes_of(dtype) * pitch, rule.outputs == 2
    coefficients, results = rule.coefficients, rule.results
    (arrays_at, read, prefetch_arrays), (numbers, _) = make_readers(rule, dtype), make_loads(dtype)
    at = {f: f"next_values, by + {i * plane}" for i, f in enumerate(rule.sees)}
    read_after = of_steps(
        "next_values, by", {f: f"load({each}, 1)" for f, each in at.items()}, load=load
    )
    zero = dtype(0.0)

    @inline_exact
    def copy(source, target, count, ends, row):
        for by in range(0, count, full):
            store(numbers(source, by, min(full, count - by)), target, by)
        target[count], ends[row] = ends[row], target[0]

    lines = [
        f"copy(x.{f}, shifted({each}), count, shifted(state.memory, {i} * state.room), row)"
        for i, (f, each) in enumerate(at.items(), 1)
    ]
    store_after = for_each(
        "x, next_values, by, count, state, row", lines, copy=copy, shifted=shifted
    )

    @inline_exact
    def prepare(plan, piece, area, state, options):
        """Compute the coefficients, and prefetch the lines of the piece that comes next."""
        compact()
        outer, width, step, count = piece
        for row in range(width):
            here, at = arrays_at(plan, np.int64(0), outer + row, step, 0), row * pitch
            store_after(here, area.next_values, at, count, state, row)
            for by in range(0, count, full):
                prefetch_arrays(here, by - plan[DIRECTION] * PIECE)
                step_now = read(here, by, min(full, count - by))
                a, b = coefficients(step_now, read_after(area.next_values, at + by + 1), options)
                store(a, area.a, at + by)
                store(b, area.b, at + by)

    @inline_exact
    def finish(plan, piece, area, options):
        compact()
        outer, width, step, count = piece
        array, streamed = np.int64(FIRST), plan[STREAMED]
        for row in range(width):
            here, at = arrays_at(plan, np.int64(0), outer + row, step, 0), row * pitch
            first = place(plan, array, outer + row, step, 0, zero)
            second = place(plan, array + 1, outer + row, step, 0, zero)
            for by in range(0, count, full):
                some = min(full, count - by)
                y, carried = load(area.b, at + by, 1), load(area.b, at + by + 1, 1)
                after = read_after(area.next_values, at + by + 1)
                outputs = results(y, carried, read(here, by, some), after, options)
                write(outputs[0], first, by, some, streamed > 0)
                if two:
                    write(outputs[1], second, by, some, streamed > 1)

    return prepare, finish


@functools.cache
def make_connect(cuts: bool, dtype: Any) -> Any:
    """Return a function: y of a piece, across rows, and unless it `cuts` products of all a."""
    full, group, zero = lanes_of(dtype), REGISTERS * lanes_of(dtype), dtype(0.0)
    connect_one, square = link if cuts else link_always, full * group

    @called
    def connect(area, count, direction, carried, products):
        y, product = load(carried, 0, REGISTERS), load(products, 0, REGISTERS)
        number = (count + full - 1) // full
        a, b = area.tiles, shifted(area.tiles, square)
        for i in range(number):
            begin = (number - 1 - i if direction > 0 else i) * full
            load_tile(area.a, area.starts, begin, a, REGISTERS)
            load_tile(area.b, area.starts, begin, b, REGISTERS)
            some = min(full, count - begin)
            for j in range(some):
                at = (some - 1 - j if direction > 0 else j) * group
                factor = load(a, at, REGISTERS)
                y = connect_one(factor, load(b, at, REGISTERS), y)
                store(y, b, at)
                if not cuts:
                    product = product * factor
            store_tile(b, area.b, area.starts, begin, REGISTERS)
        store(y, carried, 0)
        if not cuts:
            # Products of many factors end among the subnormal numbers, at 150 cycles each.
            vanished = abs(product) < smallest_normal(product)
            store(where(vanished, zero, product), products, 0)

    return connect


def make_rows(rule: Rule, dtype: Any) -> Any:
    """Return a function that computes all steps of a block of rows."""
    full, group, pitch = lanes_of(dtype), REGISTERS * lanes_of(dtype), PIECE + lanes_of(dtype)
    sees, plane, square, cuts = len(rule.sees), group * pitch, full * group, rule.cuts
    zero, one = dtype(0.0), dtype(1.0)
    begin, connect = make_begin(rule, dtype), make_connect(rule.cuts, dtype)
    prepare, finish = make_passes(rule, dtype, pitch)

    @inline_exact
    def rows(plan, options, outer, width):
        compact()
        steps, direction = plan[STEPS], plan[DIRECTION]
        size = (2 + sees) * plane + 2 * square + (3 + sees) * group + 2 * full
        memory, starts = np.zeros(size, dtype), np.empty(group, np.int64)
        for row in range(group):
            starts[row] = row * pitch
        tiles = shifted(address(memory), to_line(address(memory), 0))
        before = shifted(tiles, 2 * square)
        products = shifted(before, group)
        store(fill(one, REGISTERS), products, 0)
        state = State(shifted(products, group), group)
        a = shifted(state.memory, (1 + sees) * group)
        area = Area(a, shifted(a, plane), shifted(a, 2 * plane), tiles, address(starts))
        begin(plan, outer, 0, width, OUTERS, state)
        number = (steps + plan[OFFSET] + PIECE - 1) // PIECE
        for i in range(number):
            line = (number - 1 - i if direction > 0 else i) * PIECE - plan[OFFSET]
            first = max(line, 0)
            piece = outer, width, first, min(line + PIECE, steps) - first
            prepare(plan, piece, area, state, options)
            store(load(state.memory, 0, REGISTERS), before, 0)
            connect(area, piece[3], direction, state.memory, products)
            for row in range(width):
                area.b[row * pitch + piece[3]] = before[row]
            if plan[ENDS] == 0:
                finish(plan, piece, area, options)
        if not cuts and plan[ENDS] != 0:
            ends = pointer_to(plan[ENDS], zero)
            for row in range(width):
                ends[outer + row] = state.memory[row]
                ends[plan[OUTER] + outer + row] = products[row]
        return memory.size + starts.size  # alive up to here

    return rows


# ---------------------------------------------------------------- windows


def make_windows(rule: Rule, dtype: Any, is_rows: bool) -> Any:
    """Return a function: some windows of a block, of a rule that sees the next value alone.

    a, b and the value after each step, in scratch memory; then each window from its last step on.
    """
    full, zero, one, value = lanes_of(dtype), dtype(0.0), dtype(1.0), Step._fields.index("value")
    (arrays_at, read, _), (numbers, _) = make_readers(rule, dtype), make_loads(dtype)
    coefficients, read_after = rule.coefficients, of_steps("x", {"value": "x"})

    @inline_exact
    def windows(plan, options, outer, lane, width, begin):
        compact()
        k, n, last, room = np.int64(0), plan[WINDOW], plan[STEPS] - 1, 1 if is_rows else WIDE * full
        stop = min(begin + plan[SPAN], last + 1)
        end, final = stop - 1 + n, place(plan, k + LAST, outer, 0, lane, zero)
        size, step = (end - begin) * room + full, begin
        memory = np.empty(3 * size, dtype)
        a = address(memory)
        b, values = shifted(a, size), shifted(a, 2 * size)
        while step < min(end, last + 1):  # as many steps or lanes at once as lie side by side
            here, following, run = arrays_at(plan, k, outer, step, lane), final, width
            if step < last:
                following = place(plan, k + value, outer, step + 1, lane, zero)
                run = min(PIECE, min(end, last) - step) if is_rows else width
            for by in range(0, run, full):
                count, at = min(full, run - by), (step - begin) * room + by
                after = numbers(following, by, count)
                factor, part = coefficients(read(here, by, count), read_after(after), options)
                store(factor, a, at)
                store(part, b, at)
                store(after, values, at)
            step += run if is_rows else 1
        for at in range((step - begin) * room, (end - begin) * room):  # changes nothing
            a[at], b[at] = one, zero
            values[at] = final[min(at % room, width - 1) * plan[LANES + LAST]]
        run = stop - begin if is_rows else width
        for step in range(begin, stop, run if is_rows else 1):
            target = place(plan, k + FIRST, outer, step, lane, zero)
            for by in range(0, run, full):
                at = (step - begin + n - 1) * room + by
                y = load(values, at, 1)
                for _ in range(n):
                    y = link(load(a, at, 1), load(b, at, 1), y)
                    at -= room
                write(y, target, by, min(full, run - by), False)
        return memory.size  # alive up to here

    return windows


# ---------------------------------------------------------------- kernels


def make_block(rule: Rule, dtype: Any, is_rows: bool, has_windows: bool = False) -> Any:
    """Return the function (plan, options, number) that computes all steps of one block."""
    group = REGISTERS * lanes_of(dtype)
    if has_windows:
        body = make_windows(rule, dtype, is_rows)
    else:
        body = make_rows(rule, dtype) if is_rows else make_columns(rule, dtype)

    def scan(plan, numbers, number):
        compact()
        options = dtype(numbers[0]), dtype(numbers[1]), dtype(numbers[2])
        if has_windows:
            width, inner = plan[WIDTH], plan[INNER]
            pieces, slices = (plan[STEPS] - 1) // plan[SPAN] + 1, (inner - 1) // width + 1
            begin, lane = number // slices % pieces * plan[SPAN], number % slices * width
            outer = number // (slices * pieces)
            body(plan, options, outer, lane, min(width, inner - lane), begin)
        elif is_rows:
            outer = number * group
            body(plan, options, outer, min(group, plan[OUTER] - outer))
        else:
            width, inner, offset = plan[WIDTH], plan[INNER], plan[OFFSET]
            slices = (inner + offset + width - 1) // width
            outer, lane = number // slices, number % slices * width - offset
            stop = min(lane + width, inner)
            lane = max(lane, 0)
            body(plan, options, outer, lane, stop - lane)
        fence()

    return scan


@functools.cache
def address_of_block(rule: Rule, dtype: Any, is_rows: bool, has_windows: bool = False) -> int:
    """Return the address of the compiled function of a block."""
    kinds = types.CPointer(types.int64), types.CPointer(types.float64), types.int64
    return c_function(make_block(rule, dtype, is_rows, has_windows), kinds, fastmath=EXACT)


def run_blocks(function, plan, options, blocks):
    """Call the function at an address for each block; `options` are float64 for every dtype."""
    for number in prange(blocks):
        call_at(function, (plan.ctypes.data, options.ctypes.data, np.int64(number)))


#: One loop serves all rules, and links none of their code.
_DRIVERS = for_cores(run_blocks, GRAIN)


# ---------------------------------------------------------------- from checked arrays to a plan

UNUSED = Step(*(None,) * len(Step._fields))
_ZEROS = np.zeros(REPEATED, np.uint8)
_ZERO = Place(_ZEROS, address_of(_ZEROS), 0, 0, 0)


class Problem(NamedTuple):
    """One call of a recurrence.

    Attributes:
        steps: arrays that broadcast to the layout's shape, flags as uint8; None where unused.
        last: values after the last steps, without the time axis.
        initial: what is carried into the step computed first, without the time axis.
        options: up to three numbers.
        direction: 1 if the last step is computed first, -1 if the first is.
        window: number of steps after which the recurrence ends in the next value; 0 for all.
        ends: (2, rows), overwritten in place of the outputs with the last y of every row and the
            product of its a; or None. For rules that do not cut, where there is one lane.
    """

    steps: Step
    last: Array = np.zeros(())
    initial: Array = np.zeros(())
    options: tuple[float, ...] = ()
    direction: int = 1
    window: int = 0
    ends: Array | None = None


def run(
    rule: Rule,
    layout: Layout,
    problem: Problem,
    outs: tuple[Array, ...],
    num_threads: int | None = None,
) -> None:
    """Overwrite the outputs, which have the layout's shape in the caller's order, and one dtype."""
    num_threads, dtype = check_num_threads(num_threads), outs[0].dtype
    if outs[0].size == 0:
        return
    targets = [layout.target(out) for out in outs]
    written = [out if t else layout.empty(dtype) for out, t in zip(outs, targets, strict=True)]
    arrays = [_ZERO if array is None else layout.place(array) for array in problem.steps]
    for array in (problem.last, problem.initial):
        arrays.append(layout.place_ends(np.asarray(array, dtype)))
    for i in (0, -1):
        arrays.append(targets[i] or layout.place(written[i]))
    outer, steps, inner = layout.outer, layout.num_steps, layout.inner
    window, work = problem.window, outer * steps * inner
    width, offset, streamed, span = 1, 0, 0, max(WINDOWS if inner == 1 else TALL, 2 * window)
    blocks = -(-outer // (REGISTERS * lanes_of(dtype)))
    if window:
        width = 1 if inner == 1 else WIDE * lanes_of(dtype)
        blocks = outer * -(-steps // span) * -(-inner // width)
        work *= window
    elif inner > 1 or (steps >= PIECES * PIECE and problem.ends is None):
        width = PIECE if inner == 1 else _width(layout, dtype)
        head, streamed = _streams(layout, arrays[FIRST:], dtype.itemsize)
        offset = -head % width
        if inner > 1:
            blocks = outer * -(-(inner + offset) // width)
    ends = 0 if problem.ends is None else address_of(problem.ends)
    plan = [outer, steps, inner, width, offset, streamed, problem.direction, ends, window, span]
    for numbers in zip(*(array[1:] for array in arrays), strict=True):  # addresses, then strides
        plan += numbers
    options = np.array([*problem.options, 0.0, 0.0, 0.0][:3])
    kind: Any = dtype.type
    block, table = address_of_block(rule, kind, inner == 1, window > 0), np.array(plan, np.int64)
    launch(_DRIVERS, work, num_threads, block, table, options, blocks)
    for out, array in zip(outs, written, strict=True):
        if array is not out:
            np.copyto(out, array)


def _width(layout: Layout, dtype: Any) -> int:
    """Return how many lanes make a block: as many as fit, but something to do for every core."""
    size, full = layout.inner * dtype.itemsize, lanes_of(dtype)
    wanted = -(-numba.config.NUMBA_NUM_THREADS // layout.outer)
    slices = max(-(-size // REPEATED), min(wanted, size // 512), 1)
    return -(-layout.inner // (slices * full)) * full


def _streams(layout: Layout, outs: list[Place], size: int) -> tuple[int, int]:
    """Return the lanes, or steps of rows, before a vector suits `stream`; how many outputs do."""
    if layout.outer * layout.num_steps * layout.inner * size < LARGE:
        return 0, 0
    strides = [stride for out in outs for stride in (out.outer, out.time)]
    strides = strides[::2] if layout.inner == 1 else strides
    begins = [-out.address % VECTOR_BYTES for out in outs]
    if any(stride * size % VECTOR_BYTES for stride in strides) or begins[0] % size:
        return 0, 0
    return begins[0] // size, 1 + (begins[0] == begins[1])
