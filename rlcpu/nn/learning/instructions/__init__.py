"""Instructions of a tape as kernels run them, forward and backward, for some samples.

Between networks all numbers lie in `rows` (height, samples), a row for each number of a sample, and
the *slopes*, derivatives of the loss with respect to them, in `slopes` of the same shape. Networks
have a row for each sample instead: their inputs are gathered, and their outputs are transposed. See
`rlcpu.nn.tape.program` for the fields of instructions, and for the backward pass Griewank & Walther
2008, "Evaluating derivatives".

Each is plain Python, `compute(chunk, instruction)`. It is compiled for the first tape that needs
it, and called by the address that `link` writes to the program. A new one is a function here, one
for the way back if derivatives go through it, and an entry in `INSTRUCTIONS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from numba import from_dtype

from rlcpu.kernels.compiler.compile import c_function
from rlcpu.nn.learning.instructions import distributions, functions, networks, numbers
from rlcpu.nn.learning.instructions.chunk import Chunk
from rlcpu.nn.tape.program import INSTRUCTION, Function

Compute = Callable[[Any, Any], None]


class Instruction(NamedTuple):
    """A kind of instruction: two functions of (chunk, instruction)."""

    forward: Compute  #: writes the rows of its result
    #: Adds to the slopes of the rows that it reads what those of its result contribute; None if it
    #: has no derivatives.
    backward: Compute | None = None


#: Kinds that are compiled for every scalar function: what returns the address of the forward pass.
OF_FUNCTIONS: dict[str, tuple[Callable[..., int], Compute | None]] = {
    "each": (functions.each_at, functions.through_each),
    "pairs": (functions.pairs_at, functions.through_pairs),
}
#: All other kinds.
INSTRUCTIONS = {
    "column": Instruction(numbers.read_column),
    "number": Instruction(numbers.read_number),
    "parameter": Instruction(numbers.read_parameter, numbers.through_parameter),
    "network": Instruction(networks.apply, networks.through_network),
    "network_of_ones": Instruction(networks.apply_to_ones, networks.through_network_of_ones),
    "add": Instruction(numbers.add, numbers.through_add),
    "multiply": Instruction(numbers.multiply, numbers.through_multiply),
    "take": Instruction(numbers.take, numbers.through_take),
    "argmax": Instruction(numbers.argmax),
    "log_softmax": Instruction(distributions.log_softmax, distributions.through_log_softmax),
    "entropy": Instruction(distributions.entropy, distributions.through_entropy),
    "sort": Instruction(numbers.sort),
    "ahead": Instruction(numbers.look_ahead),
    "sum": Instruction(numbers.sum_numbers, numbers.through_sum),
    "normal": Instruction(distributions.draw_normal),
    "uniform": Instruction(distributions.draw_uniform),
    "loss": Instruction(numbers.add_to_statistic, numbers.through_loss),
    "statistic": Instruction(numbers.add_to_statistic),
    "per_sample": Instruction(numbers.write_per_sample),
}


def link(rows: Iterable[tuple[Any, str]], scalars: Sequence[Function], dtype: type) -> None:
    """Write the addresses of functions, compiled if need be, to a program's instructions.

    Args:
        rows: pairs of an instruction, a record of dtype `rlcpu.nn.tape.program.INSTRUCTION`, whose
            fields `forward` and `backward` are overwritten, and its kind.
        scalars: scalar functions; instructions "each" and "pairs" have the number of one as
            their index.
        dtype: in which they compute.
    """
    for row, kind in rows:
        if kind in OF_FUNCTIONS:
            address_of, backward = OF_FUNCTIONS[kind]
            row["forward"] = address_of(dtype, scalars[row["index"]])
        else:
            forward, backward = INSTRUCTIONS[kind]
            row["forward"] = _address(forward, dtype)
        is_needed = kind == "loss" or row["a_gradient"] or row["b_gradient"]
        is_absent = backward is None or not is_needed
        row["backward"] = 0 if is_absent else _address(backward, dtype)


@functools.cache
def _address(compute: Any, dtype: type) -> int:
    """Return the address of the function of an instruction, compiled in a dtype."""
    return c_function(compute, (Chunk.of(real=dtype).view, from_dtype(INSTRUCTION)), dtype)
