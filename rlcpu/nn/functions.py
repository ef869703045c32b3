"""Scalar functions of an algorithm: loops over samples, with exact derivatives.

A function is plain Python of a few numbers. The arguments through which derivatives go carry their
slopes (see `rlcpu.nn.duals`); one loop writes the results and their derivatives by each of these
arguments, and is called by address as all instructions are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rlcpu.kernels.calls import numbered_function_of
from rlcpu.kernels.compile import define, inline, specialise
from rlcpu.nn import dual_types as dual_types  # teaches numba duals
from rlcpu.nn.duals import slopes_of, value_of, variables
from rlcpu.nn.program import Function


@functools.cache
def function_at(dtype: type, function: Function, chunk: Any) -> int:
    """Return the address of the forward pass of "each", compiled for a scalar function.

    The instruction's operands say where its rows are: of each argument its first row, its step (1,
    or 0 for one row for all w) and whether it carries slopes; then the first rows of each result
    and of its derivatives. For two arguments of which the first carries slopes it is

        def each(chunk, number):
            ...
            for w in range(instruction.width):
                loop(rows[operands[0] + w * operands[1]], rows[operands[3] + w * operands[4]],
                     rows[operands[6] + w], rows[operands[7] + w])

    Args:
        dtype: in which it computes.
        function: the scalar function.
        chunk: numba's type of a `rlcpu.nn.instructions.chunk.Chunk`.
    """
    loop, count = _make_loop(dtype, function), len(function.gradients)
    slopes, results = sum(function.gradients), max(function.results, 1)
    arguments = [f"rows[operands[{3 * k}] + w * operands[{3 * k + 1}]]" for k in range(count)]
    written = range(3 * count, 3 * count + results * (1 + slopes))
    arguments += [f"rows[operands[{k}] + w]" for k in written]
    source = (
        "def each(chunk, number):\n"
        "    program, rows = chunk.frame.program, chunk.rows\n"
        "    instruction = program.instructions[number]\n"
        "    operands = program.operands[instruction.a :]\n"
        "    for w in range(instruction.width):\n"
        f"        loop({', '.join(arguments)})"
    )
    return numbered_function_of(define(source, loop=loop), chunk)


def _make_loop(dtype: type, function: Function) -> Callable[..., None]:
    """Make the loop over samples of a scalar function and its derivatives.

    Of two arguments of which the first carries slopes, and with one result, it is

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
        lines += [f"        r{j}[i] = value_of({item})"]
        if dual:
            lines += [f"        by = slopes_of({item}, zeros)"]
            lines += [f"        s{j}_{k}[i] = by[{k}]" for k in range(slopes)]
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
