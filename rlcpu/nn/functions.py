"""Scalar functions of an algorithm: loops over samples, with exact derivatives.

A function is plain Python of a few numbers. The arguments through which derivatives go carry their
slopes (see `rlcpu.nn.duals`); one loop writes the results and their derivatives by each of these
arguments, and is called by address: the kernel of updates is the same whatever functions there are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.calls import function_of, kind_of, make_call
from rlcpu.kernels.compile import define, inline, merge, specialise
from rlcpu.nn import dual_types as dual_types  # teaches numba duals
from rlcpu.nn.duals import slopes_of, value_of, variables
from rlcpu.nn.tape import Function


class Work(NamedTuple):
    """Arguments of a loop.

    Attributes:
        rows: (height, samples), of which results and derivatives are overwritten.
        operands: int64, those of an instruction EACH; see `rlcpu.nn.tape.Program`.
        width: numbers of a result.
    """

    rows: Any
    operands: Any
    width: int


@functools.cache
def _kind(dtype: type) -> Any:
    rows: Any = np.zeros((0, 0), dtype)
    return kind_of(Work(rows, np.zeros(0, np.int64), 0))


@functools.cache
def make_call_each(dtype: type) -> Callable[..., None]:
    """Make `call_each(chunk, instruction)`, which runs the loop of an instruction EACH."""
    call = make_call(_kind(dtype))

    @merge
    def call_each(chunk, instruction):
        program = chunk.frame.program
        operands = program.operands[instruction.a :]
        call(program.functions[instruction.index], Work(chunk.rows, operands, instruction.width))

    return call_each


@functools.cache
def function_at(dtype: type, function: Function) -> int:
    """Return the address of the loop over a scalar function, compiled.

    The loop, `each(work)`, finds its rows by the operands: those of the arguments, three numbers
    each, then of each result and of its derivatives.
    """
    loop, count = _make_loop(dtype, function), len(function.gradients)
    slopes, results = sum(function.gradients), max(function.results, 1)
    arguments = [f"rows[operands[{3 * k}] + w * operands[{3 * k + 1}]]" for k in range(count)]
    written = range(3 * count, 3 * count + results * (1 + slopes))
    arguments += [f"rows[operands[{k}] + w]" for k in written]
    source = (
        "def each(work):\n"
        "    rows, operands = work.rows, work.operands\n"
        "    for w in range(work.width):\n"
        f"        loop({', '.join(arguments)})"
    )
    return function_of(define(source, loop=loop), _kind(dtype))


def _make_loop(dtype: type, function: Function) -> Callable[..., None]:
    """Make `loop(a0, ..., r0, s0_0, ...)` of rows: arguments, then each result and its derivatives.

    The loop overwrites results and derivatives; the argument a1 is the dual x1 where it carries
    slopes, and s0_1 holds the derivatives of r0 by the second of the duals.
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
        carrying, plain = "".join(f"x{k}, " for k in dual), "".join(f"a{k}[i], " for k in dual)
        lines += [f"        {carrying}= variables(({plain}))"]
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
