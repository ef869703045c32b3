"""A tape as kernels read it: arrays of instructions, and the arrays that these have indices of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

#: One instruction: addresses of its functions, 0 without derivatives (see `rlcpu.nn.instructions`).
#: `out` and `width` are the rows it writes, `a`, `b` and `c` first rows that it reads, -1 for none.
#: `a_step` and `b_step` are 1 where each row of the result reads the next row, and 0 where all read
#: the first; of "take", "argmax", "entropy" and "sum" `a_step` counts the rows they read.
#: `a_gradient` and `b_gradient` say whether derivatives by a and b are wanted. `index` is the
#: number of a column, constant, application, function, sum or stream of random numbers, or place
#: of a parameter. "each" reads its operands: `a` is the first, `b` counts arguments, `c` results;
#: of "add" `c` is 1, or -1 for a difference.
INSTRUCTION = np.dtype(
    [
        (name, np.int64)
        for name in (
            "forward", "backward", "out", "width", "a", "a_step", "a_gradient", "b", "b_step",
            "b_gradient", "c", "index",
        )
    ]
)  # fmt: skip
#: Sources of an `Operand`: a column of the batch, rows, or rows by which nothing has derivatives.
FROM_COLUMN, FROM_ROWS, FROM_HELD = range(3)
#: The column that says where episodes begin, which networks with memory read.
STARTS = "starts"


@dataclasses.dataclass
class Application:
    """One use of a network; kernels read its fields as whole numbers.

    Attributes:
        network: its number.
        first: number of its first `Operand`; the others follow.
        inputs: number of its operands.
        by_parameters: whether derivatives by its parameters are wanted.
        by_inputs: whether derivatives by its operands are wanted.
        starts: of a network with memory, the row that says where episodes begin; -1 without.
        units: place of its units, the numbers between the network's layers, in scratch memory, for
            one sample; -1 in memory that applications without a backward pass share.
        is_first: whether it overwrites the network's gradients, and does not add to them.
    """

    network: int
    first: int
    inputs: int
    by_parameters: bool
    by_inputs: bool
    starts: int
    units: int = -1
    is_first: bool = False


class Operand(NamedTuple):
    """Some numbers of a sample that go into a network.

    Attributes:
        kind: their source: `FROM_COLUMN`, `FROM_ROWS` or `FROM_HELD`.
        source: the column, or the first row.
        width: how many numbers.
        input: number of the network's input.
        begin: position in that input.
    """

    kind: int
    source: int
    width: int
    input: int = 0
    begin: int = 0


APPLICATION = np.dtype([(field.name, np.int64) for field in dataclasses.fields(Application)])
OPERAND = np.dtype([(name, np.int64) for name in Operand._fields])


class Program(NamedTuple):
    """Instructions of all updates, as the kernel reads them.

    Attributes:
        instructions: of `INSTRUCTION`, those of one update after those of the other.
        bounds: (num_updates + 1,) int64, bounds of the instructions of each update.
        heights: (num_updates,) int64, rows of each update.
        saved_units: units of a sample that stay for the backward pass; others lie behind them.
        applications: of `APPLICATION`.
        inputs: of `OPERAND`, those of each application after those of the one before.
        operands: (any,) int64: arguments of scalar functions, three each: first row, step, whether
            derivatives are wanted; then the first rows of the results and of their derivatives.
        numbers: (any,) constants, then settings.
    """

    instructions: Any
    bounds: Any
    heights: Any
    saved_units: int
    applications: Any
    inputs: Any
    operands: Any
    numbers: Any


class NetworkSizes(NamedTuple):
    """Sizes of a network.

    Attributes:
        inputs, outputs: numbers of a sample that go in and come out, by name.
        are_named: whether its outputs have names.
        units: numbers of a sample between all its layers.
        state: numbers that it remembers of a sequence.
    """

    inputs: dict[str, int]
    outputs: dict[str, int]
    are_named: bool
    units: int
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
