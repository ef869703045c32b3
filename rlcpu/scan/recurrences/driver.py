"""The driver of all recurrences: a rule's functions over arrays in memory, in vectors.

Arrays are (outer, num_steps, inner): the axes before and after time. What lies side by side in
memory is a *run*: the lanes of one step where there are several, the steps of one lane where there
is one.

Columns, several lanes: a core takes a block of lanes through time, a step after the other, in
vectors of lanes, in registers.

Rows, one lane: a core takes a group of rows through time, a piece of some steps after the other,
in three passes over scratch memory that stays in its first cache. `fill` computes a and b, in
vectors along the rows; `connect` makes y of them in vectors across the rows, which are transposed
in registers; `finish` computes the results, along the rows again.

Windows of n steps: three passes as well, along runs of either kind. `slide` takes the n steps of
every window. To compute all n steps of a window anew, as lanes of their own, takes 2 to 3 times as
long.

The integers that a kernel takes are made by `rlcpu.scan.recurrences.run`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, compact, define, inline_exact, kernel, njit
from rlcpu.kernels.memory import (
    address,
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
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import VECTOR_BYTES, smallest_normal, where
from rlcpu.kernels.vectors import fill as filled
from rlcpu.scan.layout import REPEATED
from rlcpu.scan.recurrences.rules import FLAGS, Rule, Step, link, link_always

GRAIN = 2**16  # steps of all lanes, 40 us, from which a second core is worth waking
REGISTERS = 2  # of rows in a group: two hide the latency of one step after the other

#: Positions in a plan, what a kernel takes: sizes of the arrays; lanes of a block; steps of a
#: piece; lanes (steps of rows) before the first aligned vector of the outputs; 1 if the last step
#: is computed first, else -1; how many outputs are written past the caches; steps of a window.
OUTER, STEPS, INNER, WIDTH, LENGTH, HEAD, DIRECTION, STREAMED, WINDOW = range(9)
#: Numbers of the arrays that follow the fields of `Step`: values after the last step, what is
#: carried into the step that is computed first, and the outputs.
LAST, INITIAL, FIRST, SECOND, ARRAYS = range(9, 14)
#: Where a plan has addresses and strides of all arrays.
ADDRESS, OUTERS, TIMES, LANES = (9 + i * ARRAYS for i in range(4))
#: Addresses of a vector of zeros; of the product of a in every row, which is wanted in place of the
#: results if it is not 0; and of the last y of every row, if it is not 0.
NOTHING, PRODUCTS, FINALS = (9 + 4 * ARRAYS + i for i in range(3))

#: Decorator of a function that is called: compiled once for the serial and the parallel kernel.
called: Any = njit(nogil=True, error_model="numpy", fastmath=EXACT)


def lanes_of(dtype: Any) -> int:
    """How many numbers a register holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


# ---------------------------------------------------------------- all arrays of steps at once


class Runs(NamedTuple):
    """The arrays of steps in a piece of time, each field a `Step`.

    Attributes:
        pointers: to the first number of the first run.
        across: strides from one run to the next.
    """

    pointers: Any
    across: Any


def of_steps(names: str, expressions: dict[str, str], **namespace: Any) -> Any:
    """Function of so named arguments: a `Step`, by an expression for each field, `zero` elsewhere.

    "@" in an expression stands for the field, as in "x.@".
    """
    parts = [expressions.get(f, "zero").replace("@", f) for f in Step._fields]
    source = f"def of_steps({names}):\n    return Step({', '.join(parts)})"
    return inline_exact(define(source, Step=Step, **namespace))


_moved = of_steps(
    "x, y, by", dict.fromkeys(Step._fields, "shifted(x.@, by * y.@)"), shifted=shifted
)
#: (plan, k): strides of the arrays of steps, of those that begin at plan[k].
strides_of = of_steps("plan, k", {f: f"plan[k + {i}]" for i, f in enumerate(Step._fields)})


@inline_exact
def moved(runs, strides, by):
    """The arrays from a place that is so many strides further."""
    return Runs(_moved(runs.pointers, strides, by), runs.across)


def make_readers(dtype: Any, reads: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """Functions (runs, position, count): vectors of the steps and of the steps after; `ask`.

    Vectors hold `count` numbers and then zeros. `ask` prefetches the lines.
    """
    full, zero = lanes_of(dtype), dtype(0.0)
    names = {"zero": zero, "filled": filled, "load": load, "load_mask": load_mask}

    def make_reader(fields: tuple[str, ...]) -> Any:
        def gather(number: str, flag: str) -> Any:
            expressions = {f: flag if f in FLAGS else number for f in fields}
            return of_steps("x, by, count", expressions, **names)

        whole = gather("load(x.@, by, 1)", "load_mask(x.@, by, filled(zero, 1))")
        first = gather(
            "load(x.@, by, 1, count, zero)", "load_mask(x.@, by, filled(zero, 1), count)"
        )

        @inline_exact
        def read(runs, by, count):
            if count < full:
                return first(runs.pointers, by, count)
            return whole(runs.pointers, by, count)

        return read

    lines = "\n".join(f"    prefetch(runs.pointers.{f}, by)" for f in reads)
    ask = inline_exact(define(f"def ask(runs, by):\n{lines}", prefetch=prefetch))
    seen = ("value", "lambda_", "ratio", "action_value")
    return make_reader(reads), make_reader(tuple(name for name in reads if name in seen)), ask


# ---------------------------------------------------------------- from a plan to pointers


@inline_exact
def place(plan, array, outer, lane, like):
    """Pointer to the first step of a lane, of one array."""
    by = outer * plan[OUTERS + array] + lane * plan[LANES + array]
    return shifted(pointer_to(plan[ADDRESS + array], like), by)


def make_arrays(dtype: Any) -> Any:
    """Function: the arrays of a block from its first step on, and what comes after its last."""
    zero, flag, first = dtype(0.0), np.uint8(0), np.int64(0)
    places = {
        f: f"place(plan, k + {i}, outer, lane, {'flag' if f in FLAGS else 'zero'})"
        for i, f in enumerate(Step._fields)
    }
    all_places = of_steps("plan, k, outer, lane", places, place=place, zero=zero, flag=flag)
    nothing = dict.fromkeys(Step._fields, "none") | dict.fromkeys(FLAGS, "no_flag")
    only_value = of_steps("value, none, no_flag", nothing | {"value": "value"})
    only_stride = of_steps("value", {"value": "value"}, zero=0)

    @inline_exact
    def arrays_of(plan, outer, lane):
        across = OUTERS if plan[INNER] == 1 else TIMES
        k = first  # no constant: `place` would be compiled for each of them
        none, no_flag = pointer_to(plan[NOTHING], zero), pointer_to(plan[NOTHING], flag)
        end = Runs(
            only_value(place(plan, k + LAST, outer, lane, zero), none, no_flag),
            only_stride(plan[across + LAST]),
        )
        pointers = all_places(plan, k, outer, lane)
        return Runs(pointers, strides_of(plan, across)), end

    return arrays_of


@inline_exact
def piece_of(plan, arrays, end, first, count):
    """The arrays of a piece of time, and those of the steps after its steps.

    What comes after the last step is in arrays of its own. That step is a piece by itself, but for
    rules that run forward in time, which do not look at the step after.
    """
    over_time = strides_of(plan, TIMES)
    here = moved(arrays, over_time, first)
    after = moved(here, over_time, 1)
    if first + count == plan[STEPS]:
        after = end
    return here, after


# ---------------------------------------------------------------- results


class Targets(NamedTuple):
    """Pointers to both outputs from a step on, and their strides from one run to the next."""

    first: Any
    second: Any
    first_across: Any
    second_across: Any


@inline_exact
def targets_of(plan, outer, lane, step, like):
    """Where the results from a step on are written."""
    array = np.int64(FIRST)  # no constant: `place` would be compiled for each of them
    first, second = place(plan, array, outer, lane, like), place(plan, array + 1, outer, lane, like)
    across = OUTERS if plan[INNER] == 1 else TIMES
    return Targets(
        shifted(first, step * plan[TIMES + FIRST]),
        shifted(second, step * plan[TIMES + SECOND]),
        plan[across + FIRST],
        plan[across + SECOND],
    )


def make_write(dtype: Any, outputs: int) -> Any:
    """Function: write the first `count` numbers of the results of a run."""
    full, two = lanes_of(dtype), outputs == 2

    @inline_exact
    def put(vector, pointer, by, count, streamed):
        if count < full:
            store(vector, pointer, by, count)
        elif streamed:
            stream(vector, pointer, by)
        else:
            store(vector, pointer, by)

    @inline_exact
    def write(results, targets, run, by, count, streamed):
        put(results[0], targets.first, run * targets.first_across + by, count, streamed > 0)
        if two:
            put(results[1], targets.second, run * targets.second_across + by, count, streamed > 1)

    return write


# ---------------------------------------------------------------- columns


def make_columns(rule: Rule, dtype: Any) -> Any:
    """Function: all steps of a block of lanes."""
    full, zero = lanes_of(dtype), dtype(0.0)
    coefficients, results = rule.coefficients, rule.results
    connect = link if rule.cuts else link_always
    gather, gather_after, ask = make_readers(dtype, rule.reads)
    arrays_of, write = make_arrays(dtype), make_write(dtype, rule.outputs)

    @inline_exact
    def vector(here, after, targets, by, count, carried, streamed, options):
        """One step of the lanes of a vector, or of the first ones."""
        one, following = gather(here, by, count), gather_after(after, by, count)
        a, b = coefficients(one, following, options)
        before = load(carried, by, 1)
        y = connect(a, b, before)
        # All lanes: a load of what has just been written to some of them waits for the store.
        store(y, carried, by)
        write(results(y, before, one, following, options), targets, 0, by, count, streamed)

    @inline_exact
    def advance(here, after, ahead, targets, width, carried, streamed, options):
        """One step of all lanes; asks for the lines of the next."""
        compact()
        # Whole vectors apart: a mask in the loop takes 1.5x as long where few arrays are read.
        for i in range(width // full):
            ask(ahead, i * full)
            vector(here, after, targets, i * full, full, carried, streamed, options)
        whole = width // full * full
        if whole < width:
            ask(ahead, whole)
            vector(here, after, targets, whole, width - whole, carried, streamed, options)

    @inline_exact
    def columns(plan, options, outer, lane, width):
        compact()
        steps, direction = plan[STEPS], plan[DIRECTION]
        arrays, end = arrays_of(plan, outer, lane)
        numbers = np.zeros(width + 2 * full, dtype)
        carried = shifted(address(numbers), to_line(address(numbers), 0))
        initial = place(plan, np.int64(INITIAL), outer, lane, zero)
        for i in range(width):
            carried[i] = initial[i * plan[LANES + INITIAL]]
        for k in range(steps):
            step = steps - 1 - k if direction > 0 else k
            here, after = piece_of(plan, arrays, end, step, 1)
            ahead = moved(here, strides_of(plan, TIMES), -direction)
            targets = targets_of(plan, outer, lane, step, zero)
            advance(here, after, ahead, targets, width, carried, plan[STREAMED], options)
        return numbers.size  # alive up to here

    return columns


# ---------------------------------------------------------------- scratch memory


class Area(NamedTuple):
    """Scratch memory of a piece: pointers, and strides in numbers.

    Attributes:
        a: run by run, as the arrays of steps.
        b: y takes its place.
        y: b; in windows the values after the steps.
        stride: from one run to the next.
        before: from a step to the next one in time.
        carried: y of the step computed before the piece, of every row.
        product: of all a so far, of every row, if it is wanted, else 0.
        tiles: squares of rows and steps, two of a and two of b.
        starts: where each row begins in `a`, `b` and `y`.
    """

    a: Any
    b: Any
    y: Any
    stride: Any
    before: Any
    carried: Any
    product: Any
    tiles: Any
    starts: Any


def make_area(dtype: Any) -> Any:
    """Function: an `Area`, and the arrays that have to stay alive as long as it is used."""
    full, group = lanes_of(dtype), REGISTERS * lanes_of(dtype)

    @inline_exact
    def allocate(runs, length, is_rows, planes):
        compact()
        stride = (length + group - 1) // group * group + (full if is_rows else 0)
        size = runs * stride + group
        numbers = np.zeros(planes * size + 2 * full * group + 2 * group + stride + 2 * full, dtype)
        starts = np.empty(group, np.int64)
        for row in range(group):
            starts[row] = row * stride
        a = shifted(address(numbers), to_line(address(numbers), 0))
        b, y = shifted(a, size), shifted(a, (planes - 1) * size)
        tiles = shifted(y, size)
        product = shifted(tiles, 2 * full * group)
        carried, before = shifted(product, 2 * group), 1 if is_rows else stride
        area = Area(a, b, y, stride, before, carried, product, tiles, address(starts))
        return area, numbers, starts

    return allocate


# ---------------------------------------------------------------- along runs, in scratch memory


def make_passes(rule: Rule, dtype: Any, windows: bool) -> tuple[Any, Any]:
    """Functions: `fill` and `finish`."""
    full, zero = lanes_of(dtype), dtype(0.0)
    coefficients, results = rule.coefficients, rule.results
    gather, gather_after, ask = make_readers(dtype, rule.reads)
    write = make_write(dtype, rule.outputs)

    @inline_exact
    def fill(here, after, ahead, runs, length, area, begin, options):
        """The coefficients of so many runs, from `begin` on; asks for the lines of the next."""
        compact()
        for run in range(runs):
            one, other = moved(here, here.across, run), moved(after, after.across, run)
            lines, at = moved(ahead, here.across, run), begin + run * area.stride
            for by in range(0, length, full):
                if not windows:
                    ask(lines, by)
                count = min(full, length - by)
                following = gather_after(other, by, count)
                a, b = coefficients(gather(one, by, count), following, options)
                store(a, area.a, at + by)
                store(b, area.b, at + by)
                if windows:
                    store(following.value, area.y, at + by)

    @inline_exact
    def finish(plan, outer, lane, step, here, after, runs, length, area, options):
        """The results of so many runs."""
        compact()
        targets = targets_of(plan, outer, lane, step, zero)
        for run in range(runs):
            one, other = moved(here, here.across, run), moved(after, after.across, run)
            at = run * area.stride
            for by in range(0, length, full):
                count = min(full, length - by)
                y, carried = load(area.y, at + by, 1), load(area.y, at + by + area.before, 1)
                seen = gather(one, by, count), gather_after(other, by, count)
                found = results(y, carried, seen[0], seen[1], options)
                write(found, targets, run, by, count, plan[STREAMED])

    return fill, finish


# ---------------------------------------------------------------- what goes from step to step


def make_connect(rule: Rule, dtype: Any) -> Any:
    """Function: y of all steps of a piece of rows; `carried` goes in and out."""
    full, group = lanes_of(dtype), REGISTERS * lanes_of(dtype)
    link_one, cuts = link if rule.cuts else link_always, rule.cuts
    square, zero = full**2, dtype(0.0)

    @inline_exact
    def tile(area, count, direction):
        """One square of each of two registers of rows."""
        a, b = area.tiles, shifted(area.tiles, 2 * square)
        y, z = load(area.carried, 0, 1), load(area.carried, full, 1)
        p, q = load(area.product, 0, 1), load(area.product, full, 1)
        first = count - 1 if direction > 0 else 0
        for k in range(count):
            at = (first - k * direction) * full
            f, g = load(a, at, 1), load(a, at + square, 1)
            y = link_one(f, load(b, at, 1), y)
            z = link_one(g, load(b, at + square, 1), z)
            store(y, b, at)
            store(z, b, at + square)
            if not cuts:
                p, q = p * f, q * g
        store(y, area.carried, 0)
        store(z, area.carried, full)
        if not cuts:
            # Products of many factors end among the subnormal numbers, at 150 cycles each.
            least = smallest_normal(p)
            store(where(abs(p) < least, zero, p), area.product, 0)
            store(where(abs(q) < least, zero, q), area.product, full)

    @inline_exact
    def connect(area, width, count, direction):
        compact()
        before = shifted(area.product, group)
        for row in range(width):
            before[row] = area.carried[row]
        number, squares = (count + full - 1) // full, (width + full - 1) // full
        first = number - 1 if direction > 0 else 0
        for v in range(number):
            begin = (first - v * direction) * full
            for i in range(squares):
                starts, one = shifted(area.starts, i * full), shifted(area.tiles, i * square)
                load_tile(area.a, starts, begin, one, 1)
                load_tile(area.b, starts, begin, shifted(one, 2 * square), 1)
            tile(area, min(full, count - begin), direction)
            for i in range(squares):
                starts, one = shifted(area.starts, i * full), shifted(area.tiles, i * square)
                store_tile(shifted(one, 2 * square), area.y, starts, begin, 1)
        for row in range(width):
            area.y[row * area.stride + count] = before[row]

    return connect


def make_slide(dtype: Any) -> Any:
    """Function: write y of windows of n steps, each of which ends in a value."""
    full, write = lanes_of(dtype), make_write(dtype, 1)

    @inline_exact
    def slide(area, targets, runs, length, n):
        compact()
        for run in range(runs):
            for by in range(0, length, full):
                at = run * area.stride + by
                y = load(area.y, at + (n - 1) * area.before, 1)
                for k in range(n):
                    step = at + (n - 1 - k) * area.before
                    y = link(load(area.a, step, 1), load(area.b, step, 1), y)
                write((y,), targets, run, by, min(full, length - by), 0)

    return slide


# ---------------------------------------------------------------- rows and windows


@inline_exact
def next_piece(plan, edge, offset):
    """First step and number of steps of the piece that comes next to `edge`.

    Pieces begin at multiples of their length from `offset` on.
    """
    length = plan[LENGTH]
    if plan[DIRECTION] < 0:
        return edge, min(((edge - offset) // length + 1) * length + offset, plan[STEPS]) - edge
    if edge == plan[STEPS]:
        return edge - 1, 1
    begin = max((edge - 1 - offset) // length * length + offset, 0)
    return begin, edge - begin


def make_rows(rule: Rule, dtype: Any) -> Any:
    """Function: all steps of a group of rows."""
    group, zero, one, cuts = REGISTERS * lanes_of(dtype), dtype(0.0), dtype(1.0), rule.cuts
    fill, finish = make_passes(rule, dtype, False)
    connect = make_connect(rule, dtype)
    arrays_of, allocate = make_arrays(dtype), make_area(dtype)

    @inline_exact
    def rows(plan, options, outer, width):
        compact()
        lane, direction, steps = np.int64(0), plan[DIRECTION], plan[STEPS]
        arrays, end = arrays_of(plan, outer, lane)
        area, numbers, starts = allocate(group, plan[LENGTH], True, 2)
        initial = place(plan, np.int64(INITIAL), outer, lane, zero)
        for i in range(width):
            area.carried[i] = initial[i * plan[OUTERS + INITIAL]]
        if plan[PRODUCTS] != 0:
            store(filled(one, REGISTERS), area.product, 0)
        edge, stop = (steps, 0) if direction > 0 else (0, steps)
        while edge != stop:
            first, count = next_piece(plan, edge, plan[HEAD])
            here, after = piece_of(plan, arrays, end, first, count)
            ahead = moved(here, strides_of(plan, TIMES), -direction * count)
            fill(here, after, ahead, width, count, area, 0, options)
            connect(area, width, count, direction)
            if cuts or plan[PRODUCTS] == 0:
                finish(plan, outer, lane, first, here, after, width, count, area, options)
            edge = first if direction > 0 else first + count
        if not cuts and plan[FINALS] != 0:
            for i in range(width):
                if plan[PRODUCTS] != 0:
                    pointer_to(plan[PRODUCTS], zero)[outer + i] = area.product[i]
                pointer_to(plan[FINALS], zero)[outer + i] = area.carried[i]
        return numbers.size + starts.size  # alive up to here

    return rows


def make_windows(rule: Rule, dtype: Any) -> Any:
    """Function: the windows that begin in a piece of time, of a block of lanes or of one row.

    Their only result is y.
    """
    fill, _ = make_passes(rule, dtype, True)
    slide, arrays_of, allocate = make_slide(dtype), make_arrays(dtype), make_area(dtype)
    zero, one, most = dtype(0.0), dtype(1.0), REPEATED // np.dtype(dtype).itemsize

    @inline_exact
    def windows(plan, options, outer, lane, width, begin):
        compact()
        is_row, n, last = plan[INNER] == 1, plan[WINDOW], plan[STEPS] - 1
        arrays, end = arrays_of(plan, outer, lane)
        count = min(plan[LENGTH], plan[STEPS] - begin)
        wanted, known = count + n - 1, min(count + n - 1, plan[STEPS] - begin)
        runs, length = (1, wanted) if is_row else (wanted, width)
        area, numbers, starts = allocate(runs, length, is_row, 3)
        done = 0
        while done < known:
            part = 1 if begin + done == last else min(known - done, last - begin - done, most)
            here, after = piece_of(plan, arrays, end, begin + done, part)
            runs, length = (1, part) if is_row else (part, width)
            fill(here, after, here, runs, length, area, done * area.before, options)
            done += part
        value = place(plan, np.int64(LAST), outer, lane, zero)
        for step in range(known, wanted):  # beyond the last one, where nothing changes
            for i in range(width):
                at = step * area.before + i
                area.a[at], area.b[at] = one, zero
                area.y[at] = value[i * plan[LANES + LAST]]
        runs, length = (1, count) if is_row else (count, width)
        slide(area, targets_of(plan, outer, lane, begin, zero), runs, length, n)
        return numbers.size + starts.size  # alive up to here

    return windows


# ---------------------------------------------------------------- kernels


@inline_exact
def slices_of(inner, width, head):
    """Number of blocks; lanes before the first aligned vector are a block of their own."""
    return (inner - head + width - 1) // width + (1 if head > 0 else 0)


@functools.cache
def kernels(rule: Rule, dtype: Any, form: str) -> Kernels:
    """Drivers: (plan, options, units of work); `form` is "columns", "rows" or "windows"."""
    group = REGISTERS * lanes_of(dtype)
    body = {"columns": make_columns, "rows": make_rows, "windows": make_windows}[form](rule, dtype)

    @called
    def unit(integers, numbers, number):
        compact()
        plan, options = address(integers), (numbers[0], numbers[1], numbers[2])
        inner, width, head = plan[INNER], plan[WIDTH], plan[HEAD]
        if form == "rows":
            first = number * group
            body(plan, options, first, min(group, plan[OUTER] - first))
        elif form == "columns":
            slices = slices_of(inner, width, head)
            outer, lane = number // slices, number % slices * width
            if head > 0:
                lane = max(lane - width + head, 0)
            stop = head if lane < head else min(lane + width, inner)
            body(plan, options, outer, lane, stop - lane)
        else:
            slices, pieces = (inner + width - 1) // width, (plan[STEPS] - 1) // plan[LENGTH] + 1
            lane, rest = number % slices * width, number // slices
            begin = rest % pieces * plan[LENGTH]
            body(plan, options, rest // pieces, lane, min(width, inner - lane), begin)
        fence()

    def make(parallel: bool) -> Any:
        @kernel(parallel=parallel, fastmath=EXACT)
        def scan(plan, options, units):
            for number in prange(units):
                unit(plan, options, np.int64(number))

        return scan

    return Kernels(make(False), make(True), GRAIN)
