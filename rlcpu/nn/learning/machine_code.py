"""Machine code of an update, and the addresses that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from rlcpu.kernels.compiler import hooks
from rlcpu.kernels.compiler.compile import kernel_in
from rlcpu.nn.learning import instructions
from rlcpu.nn.learning.frame import Share
from rlcpu.nn.learning.update import update
from rlcpu.nn.network import passes
from rlcpu.nn.network.plan import NetworkPlan
from rlcpu.nn.tape.program import Program
from rlcpu.nn.tape.tracing import Tape


def is_uncompiled(dtype: type) -> bool:
    """Tell whether the function of the workers is neither in memory nor in the cache."""
    kernel = kernel_in(dtype, update, by_address=True)
    return not kernel.overloads and hooks.cache_of(kernel).lacks(_signature(dtype))


def link(
    program: Program,
    tables: Sequence[npt.NDArray[Any]],
    tape: Tape,
    kinds: Sequence[str],
    plans: Sequence[NetworkPlan],
    dtype: type,
    has_helper: bool,
) -> int:
    """Compile or load all that an update calls, and return the address of the workers' function.

    Args:
        program: gets the addresses of instructions.
        tables: of the networks, get those of layers.
        tape: from which the program was made.
        kinds: of the program's instructions, see `rlcpu.nn.learning.instructions.INSTRUCTIONS`.
        plans: of the networks.
        dtype: in which gradients and moments are computed.
        has_helper: whether a second process compiles the same update.
    """
    rows = list(zip(program.instructions, kinds, strict=True))
    # The second process begins with the update, the longest piece, and this one with the last
    # instruction. Each finds in the cache what the other has made, until they meet; what is
    # compiled once costs nothing below.
    if has_helper:
        instructions.link(rows[::-1], tape.functions, dtype)
    else:  # alone, in any order
        _compile_update(dtype)
    for table, plan in zip(tables, plans, strict=True):
        table[...] = passes.link(plan, dtype)
    instructions.link(rows, tape.functions, dtype)
    return _compile_update(dtype)


def _compile_update(dtype: type) -> int:
    """Return the address of the function that all workers run, compiled if need be."""
    kernel = kernel_in(dtype, update, by_address=True)
    kernel.compile(_signature(dtype))
    return hooks.address_of(kernel)


def _signature(dtype: type) -> tuple[Any, ...]:
    """Return the types of the arguments of the function that all workers run."""
    return (Share.of(real=dtype).view,)
