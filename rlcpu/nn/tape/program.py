"""A tape as kernels read it: arrays of instructions, and the arrays that these have indices of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcpu.kernels.machine.structs import Array, Struct, Whole

if TYPE_CHECKING:
    from rlcpu.nn.network.plan import NetworkPlan
    from rlcpu.nn.tape.tracing import Tape

#: One instruction: addresses of its functions, 0 without derivatives (see
#: `rlcpu.nn.learning.instructions`). `out` and `width` are the rows it writes, `a`, `b` and `c`
#: first rows that it reads, -1 for none. `a_step` and `b_step` are 1 where each row of the result
#: reads the next row, and 0 where all read the first; of "take", "argmax", "entropy" and "sum"
#: `a_step` counts the rows they read. `a_gradient` and `b_gradient` say whether derivatives by a
#: and b are wanted. `index` is the number of a column, constant, application, function, sum or
#: stream of random numbers, or place of a parameter. "each" reads its operands: `a` is the first,
#: `b` counts arguments, `c` results; "pairs" too, but `c` counts the rows that it writes, and
#: `a_step` and `b_step` the numbers of its first and second argument. Of "add" `c` is 1, or -1 for
#: a difference; of "column" it is the number of its moments.
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
    """One use of a network; kernels read its fields as whole numbers."""

    network: int  #: its number
    first: int  #: number of its first `Operand`; the others follow
    inputs: int  #: number of its operands
    by_parameters: bool  #: whether derivatives by its parameters are wanted
    by_inputs: bool  #: whether derivatives by its operands are wanted
    starts: int  #: of a network with memory, the row that says where episodes begin; -1 without
    #: Place of its units, the numbers between the network's layers, in scratch memory, for one
    #: sample; -1 in memory that applications without a backward pass share.
    units: int = -1
    is_first: bool = False  #: whether it overwrites the network's gradients, and does not add


class Operand(NamedTuple):
    """Some numbers of a sample that go into a network."""

    kind: int  #: their source: `FROM_COLUMN`, `FROM_ROWS` or `FROM_HELD`
    source: int  #: the column, or the first row
    width: int  #: how many numbers
    input: int = 0  #: number of the network's input
    begin: int = 0  #: position in that input


APPLICATION = np.dtype([(field.name, np.int64) for field in dataclasses.fields(Application)])
OPERAND = np.dtype([(name, np.int64) for name in Operand._fields])


class Program(Struct):
    """Instructions of all updates, as kernels read them."""

    num_instructions = Whole()
    #: Those of one update after those of the other.
    instructions = Array(INSTRUCTION, "num_instructions")
    bounds = Array(np.int64)  #: (num_updates + 1,), bounds of the instructions of each update
    heights = Array(np.int64)  #: (num_updates,), rows of each update
    saved_units = Whole()  #: units of a sample that stay for the backward pass; others lie behind
    num_applications = Whole()
    applications = Array(APPLICATION, "num_applications")
    num_inputs = Whole()
    inputs = Array(OPERAND, "num_inputs")  #: those of each application after those of the other
    #: Of each instruction "each" and "pairs": for each argument three numbers, its first row, its
    #: step (1, or 0 for one row for all numbers) and whether it carries slopes; then for each
    #: result its first row, and the first rows of its derivatives by these arguments.
    operands = Array(np.int64)
    numbers = Array("real")  #: settings, then constants


class NetworkSizes(NamedTuple):
    """Sizes of a network."""

    inputs: dict[str, int]  #: numbers of a sample that go in, by name
    outputs: dict[str, int]  #: numbers of a sample that come out, by name
    are_named: bool  #: whether its outputs have names
    units: int  #: numbers of a sample between all its layers
    state: int = 0  #: numbers that it remembers of a sequence


class Function(NamedTuple):
    """A scalar function as the tape uses it."""

    function: Callable[..., Any]  #: plain Python
    gradients: tuple[bool, ...]  #: for each argument whether it carries slopes
    results: int  #: how many numbers it returns; 0 for one that is no tuple


def program_of(tape: Tape, dtype: type) -> Program:
    """Return all updates of a tape as kernels read them; settings have no values yet."""
    names, num_settings = INSTRUCTION.names or (), len(tape.settings)
    table = np.array([tuple(map(each.get, names)) for each in tape.instructions], INSTRUCTION)
    # `Program.numbers` are settings, then constants: until now the index of setting k was -1 - k.
    for row, each in zip(table, tape.instructions, strict=True):
        if each["kind"] == "number":
            index = each["index"]
            row["index"] = -1 - index if index < 0 else index + num_settings
    return Program.of(real=dtype)(
        instructions=table,
        bounds=np.array(tape.bounds),
        heights=np.array(tape.heights),
        saved_units=tape.saved_units,
        applications=np.array(list(map(dataclasses.astuple, tape.applications)), APPLICATION),
        # In the place of no operands one that nobody reads.
        inputs=np.array(tape.inputs or [Operand(FROM_ROWS, source=0, width=0)], OPERAND),
        operands=np.array(tape.operands or [0], np.int64),
        numbers=np.array([0.0] * num_settings + tape.constants, dtype),
    )


def columns_of_ones(tape: Tape, plans: Sequence[NetworkPlan]) -> frozenset[str]:
    """Return the columns that may be `Ones`, whose networks then add up rows of weights.

    Such a column is the only input of each network that reads it, and nothing else reads it.
    `plans` are those of the tape's networks.
    """
    others = {each["index"] for each in tape.instructions if each["kind"] == "column"}
    for each in tape.applications:
        operands = tape.inputs[each.first : each.first + each.inputs]
        if len(operands) > 1 or not plans[each.network].takes_ones:
            others |= {operand.source for operand in operands if operand.kind == FROM_COLUMN}
    return frozenset(name for number, name in enumerate(tape.columns) if number not in others)


def kinds_of(tape: Tape, ones: Collection[str]) -> list[str]:
    """Return the kinds of a tape's instructions, see `rlcpu.nn.learning.instructions.INSTRUCTIONS`.

    A network that reads one of the columns `ones` has a kind of its own.
    """
    names, kinds = list(tape.columns), []
    for each in tape.instructions:
        kinds.append(each["kind"])
        if each["kind"] == "network":
            first = tape.inputs[tape.applications[each["index"]].first]
            if first.kind == FROM_COLUMN and names[first.source] in ones:
                kinds[-1] = "network_of_ones"
    return kinds
