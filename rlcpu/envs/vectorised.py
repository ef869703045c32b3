"""Whether an environment's step became vector instructions, and what probably kept it from that."""

from __future__ import annotations

import ast
import inspect
import platform
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcpu.envs.batch import step_kernels
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.lane import structure
from rlcpu.envs.watched import is_users
from rlcpu.kernels.functions import references
from rlcpu.kernels.hooks import assembly_of

_ARITHMETIC = r"v?(?:add|sub|mul|div|sqrt|min|max|fn?m(?:add|sub)\d+)"
#: Arithmetic in float32 of many lanes and of one, by processor; NEON has `fmul v0.4s, ...`. The
#: integers are those of the random numbers, for environments that compute with nothing else.
_PATTERNS = {
    "x86_64": (rf"^\t(?:{_ARITHMETIC}ps|vpmulld)\s.*%[yz]mm", rf"^\t{_ARITHMETIC}ss\s"),
    "aarch64": (r"^\tf(?:add|sub|mul|div|mla|mls)\s+v\d+\.4s|^\tmul\s+v\d+\.4s",
                r"^\tf(?:add|sub|mul|div|madd|msub)\s+s\d+"),
}  # fmt: skip
_PATTERNS["AMD64"], _PATTERNS["arm64"] = _PATTERNS["x86_64"], _PATTERNS["aarch64"]
_LIBM = "a?(?:sin|cos|tan)h?|atan2|exp2?|expm1|log(?:2|10|1p)?|pow|fmod|hypot|erfc?|l?gamma|cbrt"
_CALLS = re.compile(rf"\b((?:{_LIBM})f?)\b(?:@PLT)?\s*(?:,|$)", re.MULTILINE)


def describe_vectors(dynamics: Dynamics) -> tuple[str, str]:
    """Level and message of a finding about the float32 kernel of `step`, compiled before."""
    patterns = _PATTERNS.get(platform.machine())
    if patterns is None:
        return "note", f"the machine code of {platform.machine()} is not looked at"
    code = assembly_of(step_kernels(structure(dynamics), np.float32, False).serial)
    vectors, singles = (len(re.findall(each, code, re.MULTILINE)) for each in patterns)
    calls = sorted(set(_CALLS.findall(code)))
    counted = f"{vectors} vector and {singles} single instructions of arithmetic"
    if vectors > singles and not calls:
        return "note", f"step computes in vectors ({counted})"
    reasons = [f"calls of {name} in the C library" for name in calls]
    reasons += list(dict.fromkeys(_reasons(dynamics.step)))
    told = "; ".join(reasons) or "none of the usual ones was found"
    return "warning", f"step does not compute in vectors ({counted}); probable reasons: {told}"


def _reasons(step: Any) -> Iterator[str]:
    """What in the source of a function, and of those that it calls, defeats LLVM's vectors."""
    pending, seen = [step], set()
    for function in pending:  # grows on the way
        if function in seen:
            continue
        seen.add(function)
        yield from _reasons_of_one(function)
        pending += [
            value
            for value in references(function)
            if isinstance(value, types.FunctionType) and is_users(value.__module__)
        ]


def _reasons_of_one(function: Any) -> Iterator[str]:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return
    path = function.__code__.co_filename
    branches = {node for node in ast.walk(tree) if isinstance(node, ast.If)}
    chained = {branch.orelse[0] for branch in branches if len(branch.orelse) == 1}
    node: Any
    for node in ast.walk(tree):
        what = ""
        if isinstance(node, ast.For | ast.While):
            what = "a loop"
        elif isinstance(node, ast.If) and node not in chained and node.orelse:
            nested = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
            what = "an `elif` chain, instead of ternaries" if nested else "an `if` with an `else`"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            what = "a power" if not isinstance(node.right, ast.Constant) else ""
        elif isinstance(node, ast.Subscript) and _is_gather(node, function):
            what = "a table, read at an index that is computed"
        if what:
            yield f"{what} ({path}:{first + node.lineno - 1})"


def _is_gather(node: ast.Subscript, function: Any) -> bool:
    """Whether a table outside of the function is read at an index known only at run time."""
    table = node.value
    while isinstance(table, ast.Subscript):
        table = table.value
    constant = all(
        isinstance(part, ast.Constant | ast.Tuple | ast.UnaryOp | ast.USub | ast.Load)
        for part in ast.walk(node.slice)
    )
    return isinstance(table, ast.Name) and table.id in function.__globals__ and not constant
