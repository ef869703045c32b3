"""Instructions that run a scalar function of an algorithm: "each" of its numbers, or all "pairs".

A function is plain Python of a few numbers. The arguments through which derivatives go carry their
slopes (see `rlcpu.nn.duals.numbers`); one loop over the samples of a `chunk` writes the results and
their derivatives by each of these arguments, and the way back is the chain rule. The instruction's
operands say where all rows are, see `rlcpu.nn.tape.program.Program.operands`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import from_dtype

from rlcpu.kernels.compiler.compile import c_function, define, inline, specialise
from rlcpu.kernels.machine.memory import shifted
from rlcpu.nn.duals import compiled as compiled  # teaches numba duals
from rlcpu.nn.duals.numbers import slopes_of, value_of, variables
from rlcpu.nn.layers.rows import add_to, fill
from rlcpu.nn.learning.instructions.chunk import Chunk
from rlcpu.nn.learning.instructions.numbers import add_product
from rlcpu.nn.tape.program import INSTRUCTION, Function


@functools.cache
def each_at(dtype: type, function: Function) -> int:
    """Return the address of the forward pass of "each", compiled for a scalar function and `Chunk`.

    For two arguments of which the first carries slopes it is

        def each(chunk, instruction):
            ...
            for w in range(instruction.width):
                loop(rows[operands[0] + w * operands[1]], rows[operands[3] + w * operands[4]],
                     rows[operands[6] + w], rows[operands[7] + w])
    """
    loop, count = _make_loop(dtype, function, "="), len(function.gradients)
    slopes, results = sum(function.gradients), max(function.results, 1)
    arguments = [f"rows[operands[{3 * k}] + w * operands[{3 * k + 1}]]" for k in range(count)]
    written = range(3 * count, 3 * count + results * (1 + slopes))
    arguments += [f"rows[operands[{k}] + w]" for k in written]
    source = (
        "def each(chunk, instruction):\n"
        "    operands = shifted(chunk.frame.program.operands, instruction.a)\n"
        "    rows = chunk.rows\n"
        "    for w in range(instruction.width):\n"
        f"        loop({', '.join(arguments)})"
    )
    each = define(source, loop=loop, shifted=shifted)
    return c_function(each, (Chunk.of(real=dtype).view, from_dtype(INSTRUCTION)))


def _make_loop(dtype: type, function: Function, assign: str) -> Callable[..., None]:
    """Make the loop over samples of a scalar function and its derivatives.

    What it makes overwrites rows where `assign` is "=", and is added to them where it is "+=". Of
    two arguments of which the first carries slopes, and with one result, it is

        def loop(a0, a1, r0, s0_0):  # rows: arguments, the result, its derivative
            for i in range(r0.size):
                x0, = variables((a0[i],))
                result = function(x0, a1[i])
                r0[i] = value_of(result)
                by = slopes_of(result, zeros)
                s0_0[i] = by[0]
    """
    gradients, results = function.gradients, max(function.results, 1)
    slopes = sum(gradients)
    rows = [f"a{k}" for k in range(len(gradients))]
    for j in range(results):
        rows += [f"r{j}", *(f"s{j}_{k}" for k in range(slopes))]
    dual = [k for k, has_gradient in enumerate(gradients) if has_gradient]
    numbers = [f"x{k}" if has_gradient else f"a{k}[i]" for k, has_gradient in enumerate(gradients)]
    lines = [f"def loop({', '.join(rows)}):", "    for i in range(r0.size):"]
    if dual:
        duals, plain = "".join(f"x{k}, " for k in dual), "".join(f"a{k}[i], " for k in dual)
        lines += [f"        {duals}= variables(({plain}))"]
    lines += [f"        result = function({', '.join(numbers)})"]
    for j in range(results):
        item = f"result[{j}]" if function.results else "result"
        lines += [f"        r{j}[i] {assign} value_of({item})"]
        if dual:
            lines += [f"        by = slopes_of({item}, zeros)"]
            lines += [f"        s{j}_{k}[i] {assign} by[{k}]" for k in range(slopes)]
    return inline(
        define(
            "\n".join(lines),
            function=specialise(function.function, dtype),
            variables=variables,
            value_of=value_of,
            slopes_of=slopes_of,
            zeros=(dtype(0),) * slopes,
        )
    )


def through_each(chunk: Any, instruction: Any) -> None:
    """Add to the slopes of a scalar function's arguments, by the chain rule.

    The forward pass, see `each_at`, has written derivatives of each result with respect to
    each argument that carries slopes to rows. The instruction's operands, from number `a` on, say
    where all rows are: three numbers of each of `b` arguments, then of each of `c` results its row
    and those of its derivatives, see `rlcpu.nn.tape.program.Program.operands`.
    """
    operands, count = chunk.frame.program.operands, instruction.b
    arguments, place = instruction.a, instruction.a + 3 * count
    for _ in range(instruction.c):
        out = operands[place]
        place += 1
        for k in range(arguments, arguments + 3 * count, 3):
            first_row, step, has_slopes = operands[k], operands[k + 1], operands[k + 2]
            if has_slopes == 0:
                continue
            derivatives = operands[place]
            place += 1
            for w in range(instruction.width):
                slopes = chunk.slopes[first_row + w * step]
                add_product(slopes, chunk.slopes[out + w], chunk.rows[derivatives + w])


@functools.cache
def pairs_at(dtype: type, function: Function) -> int:
    """Return the address of the forward pass of "pairs", compiled for a scalar function.

    The instruction takes the mean over the `a_step` numbers of its first argument and the `b_step`
    of its second one. For these two, of which the first carries slopes, it is

        def pairs(chunk, instruction):
            ...
            total, inner = rows[instruction.out], rows[instruction.out + 1]
            for k in range(instruction.c):
                fill(rows[instruction.out + k], zero)
            for i in range(instruction.a_step):
                fill(inner, zero)
                for j in range(instruction.b_step):
                    loop(rows[operands[0] + i * operands[1]], rows[operands[3] + j * operands[4]],
                         inner, rows[operands[7] + i * operands[1]])
                add_to(total, inner)
            for k in range(instruction.c):
                multiply(rows[instruction.out + k], share)

    A sum for each i keeps the error of float32 small where pairs are many.
    """
    count = len(function.gradients)
    steps = [f"{'j' if k == 1 else 'i'} * operands[{3 * k + 1}]" for k in range(count)]
    arguments = [f"rows[operands[{3 * k}] + {step}]" for k, step in enumerate(steps)]
    dual = [k for k, has_gradient in enumerate(function.gradients) if has_gradient]
    first = 3 * count + 1  # operand of the first derivative
    slopes = [f"rows[operands[{first + place}] + {steps[k]}]" for place, k in enumerate(dual)]
    source = (
        "def pairs(chunk, instruction):\n"
        "    operands = shifted(chunk.frame.program.operands, instruction.a)\n"
        "    rows = chunk.rows\n"
        "    out, count, others = instruction.out, instruction.a_step, instruction.b_step\n"
        "    total, inner = rows[out], rows[out + 1]\n"
        "    for k in range(instruction.c):\n"
        "        fill(rows[out + k], real(0))\n"
        "    for i in range(count):\n"
        "        fill(inner, real(0))\n"
        "        for j in range(others):\n"
        f"            loop({', '.join([*arguments, 'inner', *slopes])})\n"
        "        add_to(total, inner)\n"
        "    for k in range(instruction.c):\n"
        "        multiply(rows[out + k], real(1) / real(count * others))"
    )
    loop = _make_loop(dtype, function, "+=")
    pairs = define(
        source, loop=loop, shifted=shifted, fill=fill, add_to=add_to, multiply=multiply, real=dtype
    )
    return c_function(pairs, (Chunk.of(real=dtype).view, from_dtype(INSTRUCTION)))


@inline
def multiply(row: Any, factor: Any) -> None:
    """Multiply a row by a number."""
    for i in range(row.size):
        row[i] *= factor


def through_pairs(chunk: Any, instruction: Any) -> None:
    """Add to the slopes of a function's arguments those of its mean over all pairs.

    The forward pass, see `pairs_at`, has written the mean's derivatives by each number of each
    argument that carries slopes. Operands are those of "each"; `b` counts arguments.
    """
    operands, slopes = chunk.frame.program.operands, chunk.slopes
    place = instruction.a + 3 * instruction.b + 1  # behind that of the result
    for k in range(instruction.b):
        first_row = operands[instruction.a + 3 * k]
        step, has_slopes = operands[instruction.a + 3 * k + 1], operands[instruction.a + 3 * k + 2]
        if has_slopes == 0:
            continue
        count = instruction.b_step if k == 1 else instruction.a_step
        count = count if step == 1 else 1
        derivatives = operands[place]
        place += 1
        for w in range(count):
            row = chunk.rows[derivatives + w]
            add_product(slopes[first_row + w], slopes[instruction.out], row)
