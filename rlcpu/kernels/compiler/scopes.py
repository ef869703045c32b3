"""Alias scopes: promises to the compiler that accesses under different names never overlap.

`rlcpu.kernels.machine.rows` reads and writes rows under them, and `rlcpu.kernels.compiler.guard`
reads tables of constants, which nothing writes, under "table".
"""

from __future__ import annotations

import weakref
from typing import Any

from llvmlite import ir

#: The promise: arrays accessed under different names never overlap, nor do the first `MAX_ROWS`
#: rows of observations or finals, whose distance is known only at run time. What is written under a
#: name has to be read under the same one, under `ANY`, or by plain Python.
MAX_ROWS = 40
SCOPES = (
    *("state", "words", "actions", "rewards", "terminated", "truncated", "faults"),
    *("source", "target", "outputs", "log_probs", "values", "totals", "lengths", "table"),
    *(f"{name}{row}" for name in ("observations", "finals") for row in range(MAX_ROWS)),
)
#: Name of accesses that promise only not to touch "target".
ANY = "any"


def scopes_of(name: str, row: int) -> tuple[str, ...]:
    """Return the alias scopes of accesses to a row: one of `SCOPES`, or all that `ANY` means.

    Rows that are `MAX_ROWS` apart share a scope: nothing is promised of these two.
    """
    has_rows = f"{name}0" in SCOPES
    scope = f"{name}{row % MAX_ROWS}" if has_rows else name
    if scope == ANY:
        return tuple(each for each in SCOPES if each != "target")
    if scope not in SCOPES:
        raise ValueError(f"name={name!r}: expected one of {', '.join(SCOPES)}, {ANY}")
    return (scope,)


def attach_scopes(builder: Any, names: tuple[str, ...], first: int) -> None:
    """Attach scopes to the loads and stores of the block from its instruction number `first` on.

    LLVM takes two accesses for disjoint where all scopes of one are foreign to the other.
    """
    scopes, foreign = _lists_of(builder.module, names)
    for instruction in builder.block.instructions[first:]:
        if isinstance(instruction, ir.LoadInstr | ir.StoreInstr):
            instruction.set_metadata("alias.scope", scopes)
            instruction.set_metadata("noalias", foreign)


def _lists_of(module: Any, names: tuple[str, ...]) -> tuple[Any, Any]:
    """Return metadata of a module: a list of the scopes in `names`, and one of all others.

    They are made once: a state of a hundred rows is loaded and stored by four hundred accesses.
    LLVM compares scopes of one domain alone.
    """
    lists = _lists.setdefault(module, {})
    if names not in lists:
        domain = module.add_metadata([ir.MetaDataString(module, "rlcpu")])
        nodes = {
            name: module.add_metadata([ir.MetaDataString(module, name), domain]) for name in SCOPES
        }
        scopes = module.add_metadata([nodes[name] for name in names])
        foreign = module.add_metadata([node for name, node in nodes.items() if name not in names])
        lists[names] = scopes, foreign
    return lists[names]


#: By LLVM's module and names of scopes.
_lists: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
