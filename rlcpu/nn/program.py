"""A tape as kernels read it: arrays of instructions, and of all that these have numbers of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

#: One instruction: addresses of its functions, 0 without derivatives (see `rlcpu.nn.instructions`).
#: `out` and `width` are the rows it writes, `a`, `b` and `c` first rows that it reads, -1 for none.
#: `a_step` and `b_step` are 1 where each row of the result reads the next row, and 0 where all read
#: the first; of "take", "argmax", "entropy" and "sum" `a_step` counts the rows they read.
#: `a_gradient` and `b_gradient` say whether derivatives by a and b are wanted. `index` is the
#: number of a column, constant, application, function, sum or stream of random numbers, or place
#: of a parameter. "each" reads its operands: `a` is the first, `b` counts arguments, `c` results.
INSTRUCTION = np.dtype(
    [
        (name, np.int64)
        for name in (
            "forward", "backward", "out", "width", "a", "a_step", "a_gradient", "b", "b_step",
            "b_gradient", "c", "index",
        )
    ]
)  # fmt: skip
#: One use of a network: its number, where its units begin in scratch memory (for one sample, -1 for
#: memory that is shared), its first `OPERAND` and how many there are, whether derivatives by its
#: parameters and by its operands are wanted, whether it overwrites gradients, and of a network with
#: memory the row that says where episodes begin (-1 without).
APPLICATION = np.dtype(
    [
        (name, np.int64)
        for name in (
            "network",
            "units",
            "first",
            "inputs",
            "by_parameters",
            "by_inputs",
            "is_first",
            "starts",
        )
    ]
)
#: Numbers that go into a network: their source (a column of the batch, rows, or rows without
#: derivatives), that column or first row, their number, the network's input, and the place in it.
OPERAND = np.dtype([(name, np.int64) for name in ("kind", "source", "width", "input", "begin")])
FROM_COLUMN, FROM_ROWS, FROM_HELD = range(3)
#: The column that says where episodes begin, which networks with memory read.
STARTS = "starts"


class Program(NamedTuple):
    """Instructions of all updates, as the kernel reads them.

    Attributes:
        instructions: of `INSTRUCTION`, those of one update after those of the other.
        bounds: (num_updates + 1,) int64, bounds of the instructions of each update.
        heights: (num_updates,) int64, rows of each update.
        cells: units of a sample that stay for the backward pass; others lie behind them.
        applications: of `APPLICATION`.
        inputs: of `OPERAND`, those of each application after those of the one before.
        operands: (any,) int64: arguments of scalar functions, three each: first row, step, whether
            derivatives are wanted; then the first rows of the results and of their derivatives.
        numbers: (any,) constants, then settings.
    """

    instructions: Any
    bounds: Any
    heights: Any
    cells: int
    applications: Any
    inputs: Any
    operands: Any
    numbers: Any


class NetworkSizes(NamedTuple):
    """Sizes of a network.

    Attributes:
        inputs, outputs: numbers of a sample that go in and come out, by name.
        are_named: whether it gives its outputs by their names.
        cells: units of a sample, of all its layers.
        state: numbers that it remembers of a sequence.
    """

    inputs: dict[str, int]
    outputs: dict[str, int]
    are_named: bool
    cells: int
    state: int = 0


class Function(NamedTuple):
    """A scalar function as the tape uses it.

    Attributes:
        function: plain Python.
        gradients: for each argument whether it carries slopes.
        results: how many numbers it returns; 0 for one that is no tuple.
    """

    function: Callable[..., Any]
    gradients: tuple[bool, ...]
    results: int
