"""Whether the loop over environments of a step became vectors, and what kept it from that.

The loop over the lanes of a block (`rlcpu.envs.engine.lane`: a lane is one environment) either
becomes vectors, 8 or 16 environments in a register of 256 or 512 bits, or runs one lane at a time.
LLVM decides that, so that the code which it made, as text, is searched here. The reasons are sought
in the source of the functions: they are probable, not proven.
"""

from __future__ import annotations

import ast
import inspect
import logging
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compiler import hooks, linking
from rlcpu.kernels.compiler.functions import is_users, package_of, references

logger = logging.getLogger("rlcpu")
_LIBM = "a?(?:sin|cos|tan)h?|atan2|exp2?|expm1|log(?:2|10|1p)?|pow|fmod|hypot|erfc?|l?gamma|cbrt"
#: A call of the C library in LLVM's code: by name, or by an intrinsic that becomes one.
_CALLS = re.compile(rf"\bcall\b[^@\n]*@(?:llvm\.)?((?:{_LIBM})f?)(?:\.v?\d*f\d+)?\(")
#: Advice on calls of the C library.
_REMEDIES = {
    "hypot": ": write math.sqrt(x * x + y * y)",
    "exp2": ": write float(1 << k) for 2.0 ** k of a whole k, or math.exp(0.6931472 * x)",
}
#: The reason that a power of two whole numbers is; of real ones the C library's `pow` is called.
_POWER = "`**` with a whole exponent that is known at run time only,"
#: A store in LLVM's code: numbers of a vector, if it is one, and the list of its alias scopes.
_STORES = re.compile(r"^\s*store (?:<(\d+) x )?.*!alias\.scope (!\d+)", re.MULTILINE)
#: How a step runs of states with arrays.
ONE_AT_A_TIME = "one environment at a time: its state holds arrays, and loops over them vectorise"
#: Scopes in a list of one store: several where code was inlined twice. Longer lists are of loads.
_FEW_SCOPES = 8


class Driver(NamedTuple):
    """Way in which a kernel runs the step of an environment: in vectors or one at a time."""

    lanes: int  # environments in one vector; 1 for one at a time
    #: Probable reasons for one at a time, and functions that are called for each lane, with their
    #: places.
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        if not self.reasons and self.lanes > 1:
            return f"in vectors of {self.lanes} lanes"
        how = f"in vectors of {self.lanes} lanes, but" if self.lanes > 1 else "one lane at a time:"
        return f"{how} {'; '.join(self.reasons) or 'none of the usual reasons was found'}"


def find_driver(compiled: Any, step: Any, known: tuple[str, ...] = ()) -> Driver | None:
    """Return how a kernel runs a step; None if it steps nothing.

    Args:
        compiled: the float32 kernel of a step, or of a rollout, as numba compiled it: one of the
            `overloads` of its function.
        step: the function that its author wrote.
        known: reasons for one lane at a time that are not its author's.
    """
    code = hooks.llvm_of(compiled)
    lanes = lanes_of(code)
    if lanes is None:
        return None
    calls = sorted(set(_CALLS.findall(code)))
    reasons = [
        f"{name} of the C library, called for each lane{_REMEDIES.get(name.removesuffix('f'), '')}"
        for name in calls
    ]
    if lanes == 1 and known:
        reasons += known
    elif lanes == 1:
        calls_pow = any(name.startswith(("pow", "exp2")) for name in calls)
        loops = _search_sources(step, _loops)
        reasons += [loop for loop in loops if not (calls_pow and loop.startswith(_POWER))]
        reasons += [] if reasons else _search_sources(step, _guarded_reads)
        # LLVM makes selections of most `return`s: they are a reason only where there is no other.
        reasons += [] if reasons else _search_sources(step, _early_returns)
    return Driver(lanes, tuple(dict.fromkeys(reasons)))


def lanes_of(code: str) -> int | None:
    """Return how many lanes a vector of the step's loop has: 1 for none; None without a loop.

    The loop is found by its stores to the steps of episodes, which nothing but a step writes. Where
    LLVM cannot prove that no two arrays overlap, there is a loop over single lanes beside that in
    vectors, for arrays that do: ours never do.
    """
    return max(_stored_lanes(code), default=None)


def _stored_lanes(code: str) -> list[int]:
    """Return how many numbers each store to "words", the rows of episodes' steps, writes.

    `rlcpu.kernels.machine.rows` puts each store under an alias scope with the name of its array. In
    LLVM's text a scope is a numbered node, `!7 = !{!"words", ...}`, and a store names a numbered
    list of scopes, `!9 = !{!7, !8}`.
    """
    scope = re.search(r'^(!\d+) = !\{!"words", ', code, re.MULTILINE)
    if scope is None:
        return []
    lists_with_scope = set()
    for name, items in re.findall(r"^(!\d+) = !\{([!\d, ]+)\}$", code, re.MULTILINE):
        scopes = items.split(", ")
        if scope[1] in scopes and len(scopes) <= _FEW_SCOPES:
            lists_with_scope.add(name)
    return [int(lanes or 1) for lanes, name in _STORES.findall(code) if name in lists_with_scope]


#: What one compiled function runs: the engine calls it for a step, and rollouts do.
SHARED = ("step", "collect")


def describe_drivers(drivers: dict[str, Driver]) -> Iterator[tuple[str, str]]:
    """Yield level and message of findings about kernels, of the drivers by the kernels' names.

    Those that run alike share a finding.
    """
    alike: dict[Driver, list[str]] = {}
    for name, driver in drivers.items():
        alike.setdefault(driver, []).append(name)
    for driver, names in alike.items():
        *others, last = names
        kernels = f"{', '.join(others)} and {last}" if others else last
        is_good = driver.lanes > 1 and not driver.reasons
        yield "note" if is_good else "warning", f"{kernels} run{'' if others else 's'} {driver}"


#: Steps of which a warning was logged.
_warned: set[Any] = set()


def tell_users(
    compile: Callable[..., Any],
    step: Any,
    id: str,
    names: tuple[str, ...],
    known: tuple[str, ...] = (),
) -> Callable[..., Any]:
    """Return a compiler of a kernel that logs a warning, once, if a step got no vectors.

    Args:
        compile: the compiler that it calls.
        step: the function that its author wrote.
        id: of the environment.
        names: of what the kernel runs, see `describe_drivers`.
        known: as in `find_driver`.
    """

    def compile_and_warn(*args: Any) -> Any:
        compiled = compile(*args)
        if step not in _warned:
            driver = find_driver(compiled, step, known)
            if driver is not None and driver.lanes == 1:
                _warned.add(step)
                for _, message in describe_drivers(dict.fromkeys(names, driver)):
                    logger.warning("%s: %s", id, message)
        return compiled

    return compile_and_warn


def is_written_by_users(step: Any) -> bool:
    """Tell whether a step, or a function that it calls, comes from outside this package."""
    return any(package_of(function) != "rlcpu" for function in called_functions(step))


def called_functions(step: Any) -> Iterator[Any]:
    """Yield a function and, each once, all functions of users that it calls, directly or not."""
    queue, visited = [step], set()
    for function in queue:  # which grows meanwhile
        if function in visited:
            continue
        visited.add(function)
        yield function
        called = (value for value in references(function) if isinstance(value, types.FunctionType))
        queue += [value for value in called if is_users(value.__module__)]


class _Source(NamedTuple):
    """A function of a user's, and its syntax tree, whose lines are those of the file."""

    function: Any
    tree: Any


def _sources(step: Any) -> Iterator[_Source]:
    """Yield the sources, as far as they are known, of a function and all that it calls."""
    for function in called_functions(step):
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, SyntaxError):
            continue
        ast.increment_lineno(tree, first - 1)
        yield _Source(function, tree)


def _search_sources(step: Any, search: Callable[[Any, Any, str], Iterator[str]]) -> Iterator[str]:
    """Yield the results of `search` for a function and all functions of users that it calls.

    `search` takes a function, its syntax tree and the file.
    """
    for function, tree in _sources(step):
        yield from search(function, tree, function.__code__.co_filename)


def _loops(function: Any, tree: Any, path: str) -> Iterator[str]:
    """Yield advice on the loops of a function that keep the loop over lanes from vectors.

    `in` is a loop, too: numba compares with the items of a tuple one after the other. The test
    `tests/envs/test_vectorised.py` follows each piece of advice.
    """
    node: Any
    for node in ast.walk(tree):
        advice = ""
        if isinstance(node, ast.While):
            advice = "a `while`: write a `for` of constant turns, with a ternary for those too many"
        elif isinstance(node, ast.For) and getattr(node.iter, "func", None) is None:
            advice = "a loop over a tuple: loop over a constant range(), and read its items"
        elif isinstance(node, ast.For):
            # LLVM writes out the turns of a loop of at most `MOST_UNROLLED`.
            num_turns, most = _turns_of(node, function), linking.MOST_UNROLLED
            if num_turns is None:
                advice = (
                    "a loop whose number of turns is known at run time only: give it a constant "
                    "one, with a ternary for those too many"
                )
            elif num_turns > most:
                advice = (
                    f"a loop of {num_turns} turns: write two of at most {most}, one in the other"
                )
        elif isinstance(node, ast.Compare) and any(isinstance(op, ast.In) for op in node.ops):
            advice = "`in`: compare with each item, and join the comparisons by `and` or `or`"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            exponent = function.__globals__.get(getattr(node.right, "id", ""), node.right)
            if not isinstance(exponent, int | float | ast.Constant | ast.UnaryOp):
                advice = f"{_POWER} a loop: write float(1 << k) for 2.0 ** k"
        elif isinstance(node, ast.Break):
            advice = "a `break`: choose by a ternary in each turn"
        if advice:
            yield f"{advice} ({path}:{node.lineno})"


def _early_returns(function: Any, tree: Any, path: str) -> Iterator[str]:
    """Yield advice on `return`s before the end of a function, of which LLVM may make selections."""
    last = [node.body[-1] for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and last and node not in last:
            advice = "a `return` before the end: compute all, and choose by ternaries"
            yield f"{advice} ({path}:{node.lineno})"


def _guarded_reads(function: Any, tree: Any, path: str) -> Iterator[str]:
    """Yield advice on reads of tables in one branch of a choice, or in functions called there.

    Processors without AVX-512 have no reads for some lanes alone, and LLVM makes none of several;
    with AVX-512 there are none of whole numbers below 32 bits.
    """
    choices = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp)]
    branches = [part for node in choices for part in (node.body, node.orelse)]
    lines: set[int] = set()
    node: Any
    for branch in branches:
        for statement in branch if isinstance(branch, list) else [branch]:
            for node in ast.walk(statement):
                called = _global_of(function, node.func) if isinstance(node, ast.Call) else None
                is_theirs = isinstance(called, types.FunctionType) and is_users(called.__module__)
                for source in _sources(called) if is_theirs else ():
                    if any(_reads_of_tables(source.function, source.tree)):
                        lines.add(node.lineno)
            lines |= {node.lineno for node in _reads_of_tables(function, statement)}
    for line in sorted(lines):
        advice = "an item of a table in one branch: read it before, and choose by a ternary"
        yield f"{advice} ({path}:{line})"


def _reads_of_tables(function: Any, tree: Any) -> Iterator[Any]:
    """Yield the nodes that read items of arrays which are globals of the function."""
    node: Any
    for node in ast.walk(tree):
        is_read = isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant)
        if is_read and isinstance(_global_of(function, node.value), np.ndarray):
            yield node


def _global_of(function: Any, node: Any) -> Any:
    """Return the global of a function that a node names; None for other nodes."""
    return function.__globals__.get(getattr(node, "id", ""))


def _turns_of(node: ast.For, function: Any) -> int | None:
    """Return how often a loop over a `range` of constants or globals turns; None of other loops."""
    call = node.iter
    if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "range"):
        return None
    values: list[Any] = [
        each.value
        if isinstance(each, ast.Constant)
        else function.__globals__.get(getattr(each, "id", ""))
        for each in call.args
    ]
    return len(range(*values)) if all(isinstance(value, int) for value in values) else None
