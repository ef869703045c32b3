"""Instructions of a tape as kernels run them, forward and backward, for some samples.

Between networks all numbers lie in `rows` (height, samples), a row for each number of a sample, and
the derivatives of the loss by them in `slopes` of the same shape. Networks keep samples as rows of
their own: their inputs are gathered, and their outputs are transposed. See `rlcpu.nn.tape` for the
fields of instructions; Griewank & Walther 2008, "Evaluating derivatives", for the backward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.calls import function_of
from rlcpu.kernels.compile import apart, inline, merge, outline, specialise
from rlcpu.kernels.memory import array_at
from rlcpu.kernels.random import mix, uniforms
from rlcpu.nn import tape
from rlcpu.nn.functions import make_call_each
from rlcpu.nn.heads import FORBIDDEN, exponential, logarithm, standard_normal
from rlcpu.nn.layers.embedding import add_slopes, make_sum_ones
from rlcpu.nn.layers.rows import fill
from rlcpu.nn.network import CLIP
from rlcpu.nn.packed import input_place, network_of, output_place
from rlcpu.nn.passes import ADDED, BY_INPUTS, OVERWRITTEN, make_passes

u32 = np.uint32
#: A column of a batch: address of its numbers, or of the starts of ones, then of the ones'
#: positions (0 if it is numbers); how many numbers a sample has; addresses of what is subtracted
#: from them and what they are multiplied by where networks see them (0 for neither).
COLUMN_RECORD = np.dtype(
    [(name, np.int64) for name in ("values", "ones", "width", "mean", "scale")]
)


class Chunk(NamedTuple):
    """Samples that pass a tape together.

    Attributes:
        worker: who computes, and so which scratch memory is used.
        update: number of the update whose instructions run.
        number: of the gradient step, from 1 on, over all calls.
        samples: (count,) int64, positions in the batch.
        minibatch: number of the minibatch, whose moments standardise columns.
        share: 1 / samples of the minibatch.
        is_first: whether gradients are overwritten, and not added to.
        rows, slopes: (height, count).
        units: scratch memory of networks.
        gradients: (P,).
        sums: (num_sums,) float64, to which losses and statistics are added.
        frame: everything else, see `rlcpu.nn.update.Frame`.
    """

    worker: int
    update: int
    number: int
    samples: Any
    minibatch: int
    share: Any
    is_first: bool
    rows: Any
    slopes: Any
    units: Any
    gradients: Any
    sums: Any
    frame: Any


# ---------------------------------------------------------------- rows
#
# They are called, not inlined, and take matrices and numbers of rows: an instruction costs some
# nanoseconds more, and the kernel compiles in half of the time.


@outline
def set_row(rows, k, value):
    """Set a row to one number."""
    apart()
    fill(rows[k], value)


@outline
def copy(rows, out, source, k):
    """Copy a row."""
    apart()
    target, row = rows[out], source[k]
    for i in range(target.size):
        target[i] = row[i]


@outline
def add(rows, out, source, k):
    """Add a row."""
    apart()
    target, row = rows[out], source[k]
    for i in range(target.size):
        target[i] += row[i]


@outline
def subtract(rows, out, source, k):
    """Subtract a row."""
    apart()
    target, row = rows[out], source[k]
    for i in range(target.size):
        target[i] -= row[i]


@outline
def add_product(rows, out, source, k, others, j):
    """Add the product of two rows."""
    apart()
    target, row, other = rows[out], source[k], others[j]
    for i in range(target.size):
        target[i] += row[i] * other[i]


@inline
def clamped(index, width):
    """Clamp a computed index to a whole number from 0 to width - 1."""
    return min(max(np.int64(index), 0), width - 1)


@outline
def total(rows, k):
    """Return the sum of a row, in double precision."""
    apart()
    row, result = rows[k], 0.0
    for i in range(row.size):
        result += row[i]
    return result


# ---------------------------------------------------------------- columns and networks' inputs


@outline
def gather(rows, out, values, samples, width, k, moments):
    """Write number k of each sample to a row, less a mean, times an inverse deviation."""
    apart()
    row, mean, inverse = rows[out], moments[0], moments[1]
    for i in range(row.size):
        row[i] = (values[samples[i] * width + k] - mean) * inverse


@outline
def write_normalised(units, place, width, values, samples, size, mean, scale):
    """Write numbers of a column to units, normalised and clipped."""
    apart()
    for i in range(samples.size):
        begin, out = samples[i] * size, i * width + place
        for k in range(size):
            x = (values[begin + k] - mean[k]) * scale[k]
            x = -CLIP if x < -CLIP else x
            units[out + k] = CLIP if x > CLIP else x


@outline
def write_plain(units, place, width, values, samples, size):
    """Write numbers of a column to units as they are."""
    apart()
    for i in range(samples.size):
        begin, out = samples[i] * size, i * width + place
        for k in range(size):
            units[out + k] = values[begin + k]


@outline
def to_units(units, width, place, rows, k):
    """Copy a row to a column of units."""
    apart()
    row = rows[k]
    for i in range(row.size):
        units[i * width + place] = row[i]


@outline
def from_units(rows, k, units, width, place):
    """Copy a column of units to a row."""
    apart()
    row = rows[k]
    for i in range(row.size):
        row[i] = units[i * width + place]


@outline
def add_from_units(rows, k, units, width, place):
    """Add a column of units to a row."""
    apart()
    row = rows[k]
    for i in range(row.size):
        row[i] += units[i * width + place]


@functools.cache
def make_network(dtype: type) -> tuple[Callable[..., None], Callable[..., None]]:
    """Make `forward` and `backward`, each (chunk, instruction): run an application of a network.

    A network whose input is a column of `Ones` gets the first layer's product, `is_summed`, in the
    place of the input. Forward gathers inputs from columns and rows, and writes the outputs to
    rows; backward takes derivatives by these from slopes, and adds those by inputs to slopes.
    """
    run_forward, run_backward = make_passes(dtype)
    sum_ones, zero, like = make_sum_ones(dtype), dtype(0), np.float32(0)
    start, place = np.int64(0), np.int32(0)

    @inline
    def reads_ones(batch, operand):
        return operand.kind == tape.FROM_COLUMN and batch.columns[operand.source].ones != 0

    @inline
    def ones_of(column, count):
        starts = array_at(column.values, (count + 1,), start)
        return starts, array_at(column.ones, (starts[count],), place)

    @inline
    def sum_all_ones(units, network, chunk, column):
        starts, columns = ones_of(column, chunk.frame.batch.size)
        count = chunk.samples.size
        for i in range(count):
            sample = chunk.samples[i]
            sum_ones(units, network, count, i, (starts[sample], starts[sample + 1]), columns)

    @inline
    def add_all_slopes(gradients, units, network, chunk, column):
        starts, columns = ones_of(column, chunk.frame.batch.size)
        count = chunk.samples.size
        for i in range(count):
            sample = chunk.samples[i]
            add_slopes(
                gradients, units, network, count, i, (starts[sample], starts[sample + 1]), columns
            )

    @merge
    def write_column(units, begin, width, column, chunk):
        samples, count = chunk.samples, chunk.frame.batch.size
        values = array_at(column.values, (count * column.width,), like)
        if column.mean != 0:
            mean = array_at(column.mean, (column.width,), like)
            scale = array_at(column.scale, (column.width,), like)
            write_normalised(units, begin, width, values, samples, column.width, mean, scale)
        else:
            write_plain(units, begin, width, values, samples, column.width)

    @inline
    def units_of(chunk, application):
        place = application.units if application.units >= 0 else chunk.frame.program.cells
        return chunk.units[place * chunk.frame.settings.chunk :]

    @merge
    def forward(chunk, instruction):
        frame, rows, count = chunk.frame, chunk.rows, chunk.samples.size
        program, batch = frame.program, frame.batch
        application = program.applications[instruction.index]
        network = network_of(frame.learnt, frame.layout, application.network)
        units, first = units_of(chunk, application), program.inputs[application.first]
        is_summed = reads_ones(batch, first)
        if is_summed:
            sum_all_ones(units, network, chunk, batch.columns[first.source])
        else:
            for k in range(application.inputs):
                operand = program.inputs[application.first + k]
                cells, width, _ = input_place(network, operand.input)
                inputs, begin = units[cells * count : (cells + width) * count], operand.begin
                if begin == 0:
                    fill(inputs, zero)
                if operand.kind == tape.FROM_COLUMN:
                    write_column(inputs, begin, width, batch.columns[operand.source], chunk)
                else:
                    for j in range(operand.width):
                        to_units(inputs, width, begin + j, rows, operand.source + j)
        run_forward(network, units, count, is_summed)
        out = instruction.out
        for k in range(network.outputs.shape[0]):
            cells, width, size = output_place(network, k)
            for j in range(size):
                from_units(rows, out + j, units[cells * count :], width, j)
            out += size

    @merge
    def backward(chunk, instruction):
        frame, slopes, count = chunk.frame, chunk.slopes, chunk.samples.size
        program, batch = frame.program, frame.batch
        application = program.applications[instruction.index]
        network = network_of(frame.learnt, frame.layout, application.network)
        units, first = units_of(chunk, application), program.inputs[application.first]
        out = instruction.out
        for k in range(network.outputs.shape[0]):
            cells, width, size = output_place(network, k)
            outputs = units[cells * count : (cells + width) * count]
            fill(outputs, zero)
            for j in range(size):
                to_units(outputs, width, j, slopes, out + j)
            out += size
        layout, number = frame.layout, application.network
        begin, end = layout.begins[number] + layout.free[number], layout.begins[number + 1]
        gradients, is_summed, mode = chunk.gradients[begin:end], reads_ones(batch, first), 0
        if application.by_parameters != 0:
            mode = OVERWRITTEN if application.is_first != 0 and chunk.is_first else ADDED
        if application.by_inputs != 0:
            mode |= BY_INPUTS
        scratch = frame.space.products[chunk.worker]
        run_backward(network, units, scratch, gradients, count, is_summed, mode)
        if is_summed and application.by_parameters != 0:
            add_all_slopes(gradients, units, network, chunk, batch.columns[first.source])
        if application.by_inputs != 0:
            for k in range(application.inputs):
                operand = program.inputs[application.first + k]
                cells, width, _ = input_place(network, operand.input)
                inputs = units[cells * count :]
                if operand.kind == tape.FROM_ROWS:
                    for j in range(operand.width):
                        to = operand.source + j
                        add_from_units(slopes, to, inputs, width, operand.begin + j)

    return forward, backward


# ---------------------------------------------------------------- distributions


@functools.cache
def make_softmax(dtype: type) -> tuple[Callable[..., None], ...]:
    """Make `softmax`, `softmax_back`, `entropy` and `entropy_back`, each (chunk, instruction)."""
    exp, log = specialise(exponential, dtype), specialise(logarithm, dtype)
    zero, one, lowest, forbidden = dtype(0), dtype(1), dtype(-np.inf), dtype(FORBIDDEN)

    @outline
    def forbid(rows, out, a, allowed):
        apart()
        target, row, mask = rows[out], rows[a], rows[allowed]
        for i in range(target.size):
            target[i] = row[i] if mask[i] != zero else forbidden

    @outline
    def raise_to(rows, out, k):
        apart()
        top, row = rows[out], rows[k]
        for i in range(top.size):
            top[i] = row[i] if row[i] > top[i] else top[i]

    @outline
    def add_exponential(totals, out, rows, k, top):
        apart()
        total, row, largest = totals[out], rows[k], rows[top]
        for i in range(total.size):
            total[i] += exp(row[i] - largest[i])

    @outline
    def add_logarithm(rows, out, totals, k):
        apart()
        target, row = rows[out], totals[k]
        for i in range(target.size):
            target[i] += log(row[i])

    @merge
    def softmax(chunk, instruction):
        rows, slopes = chunk.rows, chunk.slopes
        out, width, a = instruction.out, instruction.width, instruction.a
        top = out + width
        set_row(rows, top, lowest)
        set_row(slopes, top, zero)
        for k in range(width):
            if instruction.c >= 0:
                forbid(rows, out + k, a + k, instruction.c + k)
            else:
                copy(rows, out + k, rows, a + k)
            raise_to(rows, top, out + k)
        for k in range(width):
            add_exponential(slopes, top, rows, out + k, top)
        add_logarithm(rows, top, slopes, top)
        for k in range(width):
            subtract(rows, out + k, rows, top)

    @outline
    def subtract_share(slopes, out, by, rows, top):
        apart()
        slope, derivative, log_prob, totals = slopes[out], slopes[by], rows[by], slopes[top]
        for i in range(slope.size):
            slope[i] += derivative[i] - exp(log_prob[i]) * totals[i]

    @merge
    def softmax_back(chunk, instruction):
        slopes, out, width = chunk.slopes, instruction.out, instruction.width
        top = out + width
        set_row(slopes, top, zero)
        for k in range(width):
            add(slopes, top, slopes, out + k)
        for k in range(width):
            subtract_share(slopes, instruction.a + k, out + k, chunk.rows, top)

    @outline
    def subtract_weighted(rows, out, k):
        apart()
        target, log_prob = rows[out], rows[k]
        for i in range(target.size):
            target[i] -= exp(log_prob[i]) * log_prob[i]

    @merge
    def entropy(chunk, instruction):
        set_row(chunk.rows, instruction.out, zero)
        for k in range(instruction.a_step):
            subtract_weighted(chunk.rows, instruction.out, instruction.a + k)

    @outline
    def subtract_slope(slopes, out, by, rows):
        apart()
        slope, derivative, log_prob = slopes[out], slopes[by], rows[out]
        for i in range(slope.size):
            slope[i] -= derivative[i] * exp(log_prob[i]) * (log_prob[i] + one)

    @merge
    def entropy_back(chunk, instruction):
        for k in range(instruction.a_step):
            subtract_slope(chunk.slopes, instruction.a + k, instruction.out, chunk.rows)

    return softmax, softmax_back, entropy, entropy_back


# ---------------------------------------------------------------- the tape


@functools.cache
def make_forward(dtype: type) -> Callable[..., None]:
    """Make `forward(chunk)`, which runs the instructions of an update in their order."""
    apply, _ = make_network(dtype)
    softmax, _, entropy, _ = make_softmax(dtype)
    call_each, normal = make_call_each(dtype), specialise(standard_normal, dtype)
    draw, like = uniforms(2, 0, np.float32), np.float32(0)
    zero, lowest = dtype(0), dtype(-np.inf)

    @merge
    def read_column(chunk, instruction):
        frame = chunk.frame
        column, width = frame.batch.columns[instruction.index], instruction.width
        values = array_at(column.values, (frame.batch.size * width,), like)
        moments = frame.space.moments[chunk.minibatch, instruction.c]
        for k in range(width):
            gather(chunk.rows, instruction.out + k, values, chunk.samples, width, k, moments)

    @merge
    def combine(chunk, instruction):
        rows = chunk.rows
        for k in range(instruction.width):
            out = instruction.out + k
            a, b = instruction.a + k * instruction.a_step, instruction.b + k * instruction.b_step
            if instruction.code == tape.MULTIPLY:
                set_row(rows, out, zero)
                add_product(rows, out, rows, a, rows, b)
            else:
                copy(rows, out, rows, a)
                if instruction.code == tape.ADD:
                    add(rows, out, rows, b)
                else:
                    subtract(rows, out, rows, b)

    @outline
    def pick(rows, out, a, width, b):
        apart()
        target, index = rows[out], rows[b]
        for i in range(target.size):
            target[i] = rows[a + clamped(index[i], width), i]

    @outline
    def raise_best(rows, out, a, allowed, k):
        apart()
        best, top, row, mask = rows[out], rows[out + 1], rows[a], rows[allowed]
        for i in range(best.size):
            better = row[i] > top[i] and (a == allowed or mask[i] != zero)
            best[i] = k if better else best[i]
            top[i] = row[i] if better else top[i]

    @merge
    def choose_best(chunk, instruction):
        rows, out = chunk.rows, instruction.out
        set_row(rows, out, zero)
        set_row(rows, out + 1, lowest)
        for k in range(instruction.a_step):
            a = instruction.a + k
            raise_best(rows, out, a, instruction.c + k if instruction.c >= 0 else a, dtype(k))

    @outline
    def draw_row(rows, out, samples, key, place, is_normal):
        apart()
        target = rows[out]
        for i in range(target.size):
            pair = mix(key[0], key[1], u32(samples[i] * place[0] + place[1]))
            first, second = draw(pair[0], pair[1])
            target[i] = normal(first, second) if is_normal else first

    @merge
    def draw_noise(chunk, instruction):
        settings, width = chunk.frame.settings, instruction.width
        key = mix(settings.key_low, settings.key_high, u32(chunk.number))
        stream = chunk.update + settings.every.size * instruction.index
        if stream > 1:  # two streams take turns under one key
            key, stream = mix(key[0], key[1], u32(stream)), stream % 2
        for k in range(width):
            place = 2 * width, 2 * k + stream
            is_normal = instruction.code == tape.NORMAL
            draw_row(chunk.rows, instruction.out + k, chunk.samples, key, place, is_normal)

    @outline
    def scatter(values, index, rows, k, samples):
        apart()
        target, row = values[index], rows[k]
        for i in range(row.size):
            target[samples[i]] = row[i]

    def forward(chunk):
        program, rows = chunk.frame.program, chunk.rows
        for number in range(program.bounds[chunk.update], program.bounds[chunk.update + 1]):
            instruction = program.instructions[number]
            code, out = instruction.code, instruction.out
            if code == tape.COLUMN:
                read_column(chunk, instruction)
            elif code == tape.NUMBER:
                set_row(rows, out, program.numbers[instruction.index])
            elif code == tape.PARAMETER:
                for k in range(instruction.width):
                    set_row(rows, out + k, chunk.frame.learnt.parameters[instruction.index + k])
            elif code == tape.NETWORK:
                apply(chunk, instruction)
            elif code == tape.EACH:
                call_each(chunk, instruction)
            elif code <= tape.MULTIPLY:
                combine(chunk, instruction)
            elif code == tape.TAKE:
                pick(rows, out, instruction.a, instruction.a_step, instruction.b)
            elif code == tape.ARGMAX:
                choose_best(chunk, instruction)
            elif code == tape.SOFTMAX:
                softmax(chunk, instruction)
            elif code == tape.ENTROPY:
                entropy(chunk, instruction)
            elif code == tape.SUM:
                set_row(rows, out, zero)
                for k in range(instruction.a_step):
                    add(rows, out, rows, instruction.a + k)
            elif code <= tape.UNIFORM:
                draw_noise(chunk, instruction)
            elif code <= tape.STATISTIC:
                chunk.sums[instruction.index] += total(rows, instruction.a)
            else:
                per_sample = chunk.frame.batch.per_sample
                scatter(per_sample, instruction.index, rows, instruction.a, chunk.samples)

    return forward


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """Make `backward(chunk)`: it adds derivatives of the loss, from the last instruction on."""
    _, apply = make_network(dtype)
    _, softmax, _, entropy = make_softmax(dtype)
    zero = dtype(0)

    @merge
    def combine(chunk, instruction):
        rows, slopes = chunk.rows, chunk.slopes
        for k in range(instruction.width):
            out = instruction.out + k
            a, b = instruction.a + k * instruction.a_step, instruction.b + k * instruction.b_step
            if instruction.code == tape.MULTIPLY:
                if instruction.a_gradient != 0:
                    add_product(slopes, a, slopes, out, rows, b)
                if instruction.b_gradient != 0:
                    add_product(slopes, b, slopes, out, rows, a)
                continue
            if instruction.a_gradient != 0:
                add(slopes, a, slopes, out)
            if instruction.b_gradient != 0:
                if instruction.code == tape.ADD:
                    add(slopes, b, slopes, out)
                else:
                    subtract(slopes, b, slopes, out)

    @merge
    def each(chunk, instruction):
        operands, slopes, rows = chunk.frame.program.operands, chunk.slopes, chunk.rows
        begin, count = instruction.a, instruction.b
        place = begin + 3 * count
        for _ in range(instruction.c):
            out = operands[place]
            place += 1
            for k in range(begin, begin + 3 * count, 3):
                if operands[k + 2] != 0:
                    for w in range(instruction.width):
                        argument = operands[k] + w * operands[k + 1]
                        by = operands[place] + w
                        add_product(slopes, argument, slopes, out + w, rows, by)
                    place += 1

    @outline
    def scatter(slopes, a, width, rows, b, out):
        apart()
        index, by = rows[b], slopes[out]
        for i in range(by.size):
            slopes[a + clamped(index[i], width), i] += by[i]

    def backward(chunk):
        program, rows, slopes = chunk.frame.program, chunk.rows, chunk.slopes
        first, last = program.bounds[chunk.update], program.bounds[chunk.update + 1]
        for row in range(program.heights[chunk.update]):
            set_row(slopes, row, zero)
        for number in range(last - 1, first - 1, -1):
            instruction = program.instructions[number]
            code, out = instruction.code, instruction.out
            if code == tape.LOSS:
                set_row(slopes, instruction.a, chunk.share)
            elif instruction.a_gradient == 0 and instruction.b_gradient == 0:
                continue
            elif code == tape.PARAMETER:
                for k in range(instruction.width):
                    chunk.gradients[instruction.index + k] += dtype(total(slopes, out + k))
            elif code == tape.NETWORK:
                apply(chunk, instruction)
            elif code == tape.EACH:
                each(chunk, instruction)
            elif code <= tape.MULTIPLY:
                combine(chunk, instruction)
            elif code == tape.TAKE:
                scatter(slopes, instruction.a, instruction.a_step, rows, instruction.b, out)
            elif code == tape.SOFTMAX:
                softmax(chunk, instruction)
            elif code == tape.ENTROPY:
                entropy(chunk, instruction)
            elif code == tape.SUM:
                for k in range(instruction.a_step):
                    add(slopes, instruction.a + k, slopes, out)

    return backward


@functools.cache
def forward_at(dtype: type, kind: Any) -> int:
    """Return the address of `forward(chunk)`, for numba's type of a `Chunk`."""
    return function_of(make_forward(dtype), kind)


@functools.cache
def backward_at(dtype: type, kind: Any) -> int:
    """Return the address of `backward(chunk)`, for numba's type of a `Chunk`."""
    return function_of(make_backward(dtype), kind)
