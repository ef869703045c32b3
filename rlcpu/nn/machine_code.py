"""Machine code of an update: the types that it is compiled for, and the addresses that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba

from rlcpu.kernels import hooks
from rlcpu.kernels.calls import View
from rlcpu.nn import instructions, passes
from rlcpu.nn.frame import Frame, chunk_kind, share_kind
from rlcpu.nn.plan import NetworkPlan
from rlcpu.nn.tape import Tape
from rlcpu.nn.update import make_kernel, make_update


class MachineCode(NamedTuple):
    """Compiled functions that Python calls for an update."""

    kernel: Any  #: of `rlcpu.nn.update.make_kernel`
    update: int  #: address of the function that all workers run, see `make_update`


def update_of(frame: Frame) -> Any:
    """Return the function that all workers run, as numba's dispatcher; it may not be compiled."""
    return make_update(frame.learnt.parameters.dtype.type, chunk_kind(frame))


def is_uncompiled(frame: Frame) -> bool:
    """Tell whether the function of the workers is neither in memory nor in the cache."""
    update = update_of(frame)
    return not update.overloads and hooks.cache_of(update).lacks(_signature(frame))


def link(
    frame: Frame, tape: Tape, kinds: Sequence[str], plans: Sequence[NetworkPlan], has_helper: bool
) -> MachineCode:
    """Compile or load all that an update calls, and write the addresses to the tables of a frame.

    Args:
        frame: its program and layout get the addresses; of all else only the types matter.
        tape: from which the program was made.
        kinds: of the program's instructions, see `rlcpu.nn.instructions.INSTRUCTIONS`.
        plans: of the networks, in the order of the layout.
        has_helper: whether a second process compiles the same update.
    """
    chunk, dtype = chunk_kind(frame), frame.learnt.parameters.dtype.type
    kernel: Any = make_kernel(share_kind(chunk))
    rows = list(zip(frame.program.instructions, kinds, strict=True))
    # The second process begins with the update, the longest piece, and this one with its kernel and
    # the last instruction. Each finds in the cache what the other has made, until they meet; what
    # is compiled once costs nothing below.
    if has_helper:
        compile_kernel(kernel, frame)
        instructions.link(rows[::-1], tape.functions, dtype, chunk)
    else:  # alone, in any order
        _compile_update(frame)
    for table, plan in zip(frame.layout.tables, plans, strict=True):
        table[: len(plan.table)] = passes.link(plan, dtype)
    instructions.link(rows, tape.functions, dtype, chunk)
    return MachineCode(kernel, _compile_update(frame))


def compile_kernel(kernel: Any, frame: Frame) -> None:
    """Compile or load the kernel of `make_kernel` for the types of a frame."""
    address, worker, workers = 0, 0, 1  # of which the types matter alone
    kernel.compile(tuple(numba.typeof(each) for each in (address, worker, workers, *frame)))


def _compile_update(frame: Frame) -> int:
    """Return the address of the function that all workers run, compiled if need be."""
    update = update_of(frame)
    update.compile(_signature(frame))
    return hooks.address_of(update)


def _signature(frame: Frame) -> tuple[Any, ...]:
    """Return the types of the arguments of the function that all workers run."""
    return (View(share_kind(chunk_kind(frame))),)
