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

from rlcpu.kernels.calls import View
from rlcpu.kernels.compile import EXACT, c_function, compact, inline, outline
from rlcpu.kernels.memory import (
    address,
    call_at,
    fence,
    load,
    load_tile,
    pointer_to,
    shifted,
    store,
    store_tile,
    to_line,
)
from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, smallest_normal, where
from rlcpu.scan.device import for_cores
from rlcpu.scan.layout import REPEATED, AxesOrder, Place, address_of
from rlcpu.scan.recurrences.rules import Rule, Step, link, link_always
from rlcpu.scan.recurrences.steps import (
    PLAN,
    CarriedValues,
    lanes_of,
    make_begin,
    make_loads,
    make_read_after,
    make_readers,
    place,
    rows_of,
    used,
    write,
)

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


# ---------------------------------------------------------------- columns


def make_advance(rule: Rule, dtype: Any, read: Any, prefetch_arrays: Any) -> Any:
    """Return a function that computes and writes one step of a block of lanes."""
    full, two = lanes_of(dtype), rule.outputs == 2
    coefficients, results = rule.coefficients, rule.results
    connect = link if rule.cuts else link_always
    read_after, sees, row = make_read_after(rule), used(rule.sees), rows_of(rule.sees)

    @inline(exact=True)
    def store_after(step, state, by):
        after, room = shifted(state.memory, state.room), state.room
        if sees.value:
            store(step.value, after, by + row.value * room)
        if sees.lambda_:
            store(step.lambda_, after, by + row.lambda_ * room)
        if sees.ratio:
            store(step.ratio, after, by + row.ratio * room)
        if sees.action_value:
            store(step.action_value, after, by + row.action_value * room)

    @inline(exact=True)
    def vector(here, targets, state, by, count, options):
        """Compute the lanes of a vector, or the first ones of them."""
        step, carried = read(here, by, count), load(state.memory, by, 1)
        after = read_after(shifted(state.memory, state.room), by, state.room)
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

    @inline(exact=True)
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
    begin = make_begin(rule, dtype, is_rows=False)
    advance = make_advance(rule, dtype, read, prefetch_arrays)

    @inline(exact=True)
    def columns(plan, options, outer, lane, width):
        """Compute all steps of `width` lanes from `lane` on."""
        compact()
        steps, direction, streamed = plan.num_steps, plan.direction, plan.streamed
        room = (width + full - 1) // full * full
        memory = np.zeros(rows * room + full, dtype)
        state = CarriedValues(shifted(address(memory), to_line(address(memory), 0)), room)
        begin(plan, outer, lane, width, state)
        for i in range(steps):
            step = steps - 1 - i if direction > 0 else i
            here = arrays_at(plan, outer, step, lane)
            ahead = arrays_at(plan, outer, step - direction, lane)
            first = place(plan.first, outer, step, lane, zero)
            second = place(plan.second, outer, step, lane, zero)
            advance(here, ahead, (first, second, streamed), state, width, options)
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
    read_after, sees, number_of = make_read_after(rule), used(rule.sees), rows_of(rule.sees)
    zero = dtype(0.0)

    @inline(exact=True)
    def copy(source, target, count, ends, row):
        for by in range(0, count, full):
            store(numbers(source, by, min(full, count - by)), target, by)
        target[count], ends[row] = ends[row], target[0]

    @inline(exact=True)
    def store_field(x, number, next_values, by, count, state, row):
        ends = shifted(state.memory, (1 + number) * state.room)
        copy(x, shifted(next_values, by + number * plane), count, ends, row)

    @inline(exact=True)
    def store_after(x, *to):
        if sees.value:
            store_field(x.value, number_of.value, *to)
        if sees.lambda_:
            store_field(x.lambda_, number_of.lambda_, *to)
        if sees.ratio:
            store_field(x.ratio, number_of.ratio, *to)
        if sees.action_value:
            store_field(x.action_value, number_of.action_value, *to)

    @inline(exact=True)
    def prepare(plan, piece, area, state, options):
        """Compute the coefficients, and prefetch the lines of the piece that comes next."""
        compact()
        outer, width, step, count = piece
        for row in range(width):
            here, at = arrays_at(plan, outer + row, step, 0), row * pitch
            store_after(here, area.next_values, at, count, state, row)
            for by in range(0, count, full):
                prefetch_arrays(here, by - plan.direction * PIECE)
                step_now = read(here, by, min(full, count - by))
                after = read_after(area.next_values, at + by + 1, plane)
                a, b = coefficients(step_now, after, options)
                store(a, area.a, at + by)
                store(b, area.b, at + by)

    @inline(exact=True)
    def finish(plan, piece, area, options):
        """Compute the results of a piece from its y, and write them."""
        compact()
        streamed, (outer, width, step, count) = plan.streamed, piece
        for row in range(width):
            here, at = arrays_at(plan, outer + row, step, 0), row * pitch
            first = place(plan.first, outer + row, step, 0, zero)
            second = place(plan.second, outer + row, step, 0, zero)
            for by in range(0, count, full):
                some = min(full, count - by)
                y, carried = load(area.b, at + by, 1), load(area.b, at + by + 1, 1)
                after = read_after(area.next_values, at + by + 1, plane)
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

    @outline(exact=True)
    def connect(area, count, direction, carried, products):
        """Compute y of a piece step by step, in tiles of steps and rows that are transposed."""
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
    begin, connect = make_begin(rule, dtype, is_rows=True), make_connect(rule.cuts, dtype)
    prepare, finish = make_passes(rule, dtype, pitch)

    @inline(exact=True)
    def rows(plan, options, outer, width):
        """Compute all steps of `width` rows from `outer` on, a piece after the other."""
        compact()
        steps, direction = plan.num_steps, plan.direction
        size = (2 + sees) * plane + 2 * square + (3 + sees) * group + 2 * full
        memory, starts = np.zeros(size, dtype), np.empty(group, np.int64)
        for row in range(group):
            starts[row] = row * pitch
        tiles = shifted(address(memory), to_line(address(memory), 0))
        before = shifted(tiles, 2 * square)
        products = shifted(before, group)
        store(fill(one, REGISTERS), products, 0)
        state = CarriedValues(shifted(products, group), group)
        a = shifted(state.memory, (1 + sees) * group)
        area = Area(a, shifted(a, plane), shifted(a, 2 * plane), tiles, address(starts))
        begin(plan, outer, 0, width, state)
        number = (steps + plan.offset + PIECE - 1) // PIECE
        for i in range(number):
            line = (number - 1 - i if direction > 0 else i) * PIECE - plan.offset
            first = max(line, 0)
            piece = outer, width, first, min(line + PIECE, steps) - first
            prepare(plan, piece, area, state, options)
            store(load(state.memory, 0, REGISTERS), before, 0)
            connect(area, piece[3], direction, state.memory, products)
            for row in range(width):
                area.b[row * pitch + piece[3]] = before[row]
            if plan.ends == 0:
                finish(plan, piece, area, options)
        if not cuts and plan.ends != 0:
            ends = pointer_to(plan.ends, zero)
            for row in range(width):
                ends[outer + row] = state.memory[row]
                ends[plan.outer + outer + row] = products[row]
        return memory.size + starts.size  # alive up to here

    return rows


# ---------------------------------------------------------------- windows


def make_windows(rule: Rule, dtype: Any, is_rows: bool) -> Any:
    """Return a function: some windows of a block, of a rule that sees the next value alone.

    a, b and the value after each step, in scratch memory; then each window from its last step on.
    """
    full, zero, one = lanes_of(dtype), dtype(0.0), dtype(1.0)
    (arrays_at, read, _), (numbers, _) = make_readers(rule, dtype), make_loads(dtype)
    coefficients = rule.coefficients

    @inline(exact=True)
    def windows(plan, options, outer, lane, width, begin):
        """Compute the windows that begin with the steps from `begin` on."""
        compact()
        n, last, room = plan.window, plan.num_steps - 1, 1 if is_rows else WIDE * full
        stop = min(begin + plan.span, last + 1)
        end, final = stop - 1 + n, place(plan.last, outer, 0, lane, zero)
        size, step = (end - begin) * room + full, begin
        memory = np.empty(3 * size, dtype)
        a = address(memory)
        b, values = shifted(a, size), shifted(a, 2 * size)
        while step < min(end, last + 1):  # as many steps or lanes at once as lie side by side
            here, following, run = arrays_at(plan, outer, step, lane), final, width
            if step < last:
                following = place(plan.steps.value, outer, step + 1, lane, zero)
                run = min(PIECE, min(end, last) - step) if is_rows else width
            for by in range(0, run, full):
                count, at = min(full, run - by), (step - begin) * room + by
                after = numbers(following, by, count)
                following_step = Step(0, after, 0, 0, 0, 0, 0, 0, 0)
                factor, part = coefficients(read(here, by, count), following_step, options)
                store(factor, a, at)
                store(part, b, at)
                store(after, values, at)
            step += run if is_rows else 1
        for at in range((step - begin) * room, (end - begin) * room):  # changes nothing
            a[at], b[at] = one, zero
            values[at] = final[min(at % room, width - 1) * plan.last.lane]
        run = stop - begin if is_rows else width
        for step in range(begin, stop, run if is_rows else 1):
            target = place(plan.first, outer, step, lane, zero)
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
        """Compute the blocks of one thread."""
        compact()
        options = dtype(numbers[0]), dtype(numbers[1]), dtype(numbers[2])
        if has_windows:
            width, inner = plan.width, plan.inner
            pieces, slices = (plan.num_steps - 1) // plan.span + 1, (inner - 1) // width + 1
            begin, lane = number // slices % pieces * plan.span, number % slices * width
            outer = number // (slices * pieces)
            body(plan, options, outer, lane, min(width, inner - lane), begin)
        elif is_rows:
            outer = number * group
            body(plan, options, outer, min(group, plan.outer - outer))
        else:
            width, inner, offset = plan.width, plan.inner, plan.offset
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
    kinds = View(PLAN), types.CPointer(types.float64), types.int64
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


class RecurrenceProblem(NamedTuple):
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
    layout: AxesOrder,
    problem: RecurrenceProblem,
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
    arrays += [layout.place_ends(np.asarray(a, dtype)) for a in (problem.last, problem.initial)]
    outputs = [targets[i] or layout.place(written[i]) for i in (0, -1)]
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
        head, streamed = _streams(layout, outputs, dtype.itemsize)
        offset = -head % width
        if inner > 1:
            blocks = outer * -(-(inner + offset) // width)
    ends = 0 if problem.ends is None else address_of(problem.ends)
    plan = [outer, steps, inner, width, offset, streamed, problem.direction, ends, window, span]
    for each in (*arrays, *outputs):
        plan += each[1:]
    options = np.array([*problem.options, 0.0, 0.0, 0.0][:3])
    kind: Any = dtype.type
    block, table = address_of_block(rule, kind, inner == 1, window > 0), np.array(plan, np.int64)
    launch(_DRIVERS, work, num_threads, block, table, options, blocks)
    for out, array in zip(outs, written, strict=True):
        if array is not out:
            np.copyto(out, array)


def _width(layout: AxesOrder, dtype: Any) -> int:
    """Return how many lanes make a block: as many as fit, but something to do for every core."""
    size, full = layout.inner * dtype.itemsize, lanes_of(dtype)
    wanted = -(-numba.config.NUMBA_NUM_THREADS // layout.outer)
    slices = max(-(-size // REPEATED), min(wanted, size // 512), 1)
    return -(-layout.inner // (slices * full)) * full


def _streams(layout: AxesOrder, outs: list[Place], size: int) -> tuple[int, int]:
    """Return the lanes, or steps of rows, before a vector suits `stream`; how many outputs do."""
    if layout.outer * layout.num_steps * layout.inner * size < LARGE:
        return 0, 0
    strides = [stride for out in outs for stride in (out.outer, out.time)]
    strides = strides[::2] if layout.inner == 1 else strides
    begins = [-out.address % VECTOR_BYTES for out in outs]
    if any(stride * size % VECTOR_BYTES for stride in strides) or begins[0] % size:
        return 0, 0
    return begins[0] // size, 1 + (begins[0] == begins[1])
