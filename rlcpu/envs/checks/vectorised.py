"""How many environments one instruction of a step works on, and what keeps it from several.

The loop over the lanes of a block either becomes vectors (8 or 16 environments in a register of 256
or 512 bits) or runs one lane at a time. LLVM decides that, so its code is asked.
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

from rlcpu.envs.checks.watched import is_users
from rlcpu.kernels import hooks
from rlcpu.kernels.functions import package_of, references

logger = logging.getLogger("rlcpu")
_LIBM = "a?(?:sin|cos|tan)h?|atan2|exp2?|expm1|log(?:2|10|1p)?|pow|fmod|hypot|erfc?|l?gamma|cbrt"
#: Calls of the C library: by name, or by an intrinsic that becomes one.
_CALLS = re.compile(rf"\bcall\b[^@\n]*@(?:llvm\.)?((?:{_LIBM})f?)(?:\.v?\d*f\d+)?\(")
#: What to write in their places.
_REMEDIES = {
    "hypot": ": write math.sqrt(x * x + y * y)",
    "exp2": ": write float(1 << k) for 2.0 ** k of a whole k, or math.exp(0.6931472 * x)",
}
#: Of real exponents the C library's function is called.
_POWER = "`**` with a whole exponent that is known at run time only,"
_STORES = re.compile(r"^\s*store (?:<(\d+) x )?.*!alias\.scope (!\d+)", re.MULTILINE)
#: How a step runs whose state holds arrays.
ONE_AT_A_TIME = "one environment at a time: its state holds arrays, and loops over them vectorise"
#: Where several scopes meet, as in code that was inlined twice, a list has a few more.
_FEW_SCOPES = 8


class Driver(NamedTuple):
    """Facts of the kernel that runs the step of an environment.

    Attributes:
        lanes: environments in one vector; 1 for one at a time.
        reasons: what probably keeps it from vectors, or is called for each lane; with the places.
    """

    lanes: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        if not self.reasons and self.lanes > 1:
            return f"in vectors of {self.lanes} lanes"
        how = f"in vectors of {self.lanes} lanes, but" if self.lanes > 1 else "one lane at a time:"
        return f"{how} {'; '.join(self.reasons) or 'none of the usual reasons was found'}"


def find_driver(kernel: Any, step: Any, known: tuple[str, ...] = ()) -> Driver | None:
    """Return how a kernel that was compiled for one set of types runs a step.

    Args:
        kernel: the float32 driver of a step, or of a rollout.
        step: the function that its author wrote.
        known: reasons for one lane at a time that are not its author's.

    Returns:
        None if the kernel steps nothing.
    """
    (compiled,) = kernel.overloads.values()
    return driver_of(hooks.llvm_of(compiled), step, known)


def driver_of(code: str, step: Any, known: tuple[str, ...] = ()) -> Driver | None:
    """Return how LLVM's code runs a step."""
    lanes = lanes_of(code)
    if lanes is None:
        return None
    reasons = [
        f"{name} of the C library, called for each lane{_REMEDIES.get(name.removesuffix('f'), '')}"
        for name in _found(_CALLS, code)
    ]
    if lanes == 1 and known:
        reasons += known
    elif lanes == 1:
        loops = list(_users_functions(step, _loops))
        is_real = any(name.startswith(("pow", "exp2")) for name in _found(_CALLS, code))
        reasons += [each for each in loops if not (is_real and each.startswith(_POWER))]
        # LLVM makes choices of most `return`s: they are a reason only where there is no other.
        reasons += [] if reasons else _users_functions(step, _early_returns)
    return Driver(lanes, tuple(dict.fromkeys(reasons)))


def lanes_of(code: str) -> int | None:
    """Lanes of the loop that writes the clocks of environments, which their steps alone do.

    Where LLVM cannot prove that no two arrays overlap, there is a loop over single lanes beside
    that in vectors, for arrays that do: ours never do.
    """
    return max(_stores(code, code), default=None)


def _stores(body: str, code: str) -> list[int]:
    """Return how many clocks each store of a function writes.

    `rlcpu.kernels.rows` marks what is written under the name "words".
    """
    node = re.search(r'^(!\d+) = !\{!"words", ', code, re.MULTILINE)
    lists = re.findall(r"^(!\d+) = !\{([!\d, ]+)\}$", code, re.MULTILINE) if node else []
    scopes = set()
    for name, items in lists:
        each = items.split(", ")
        if node is not None and node[1] in each and len(each) <= _FEW_SCOPES:
            scopes.add(name)
    return [int(lanes or 1) for lanes, scope in _STORES.findall(body) if scope in scopes]


def _found(pattern: re.Pattern[str], code: str) -> list[str]:
    return sorted(set(pattern.findall(code)))


def describe_drivers(drivers: dict[str, Driver]) -> Iterator[tuple[str, str]]:
    """Yield level and message of findings about the float32 kernels of an environment.

    Args:
        drivers: of `step`, `simulate` and `collect`; those that run alike are told of together.
    """
    alike: dict[Driver, list[str]] = {}
    for name, driver in drivers.items():
        alike.setdefault(driver, []).append(name)
    for driver, names in alike.items():
        *others, last = names
        who = f"{', '.join(others)} and {last}" if others else last
        is_good = driver.lanes > 1 and not driver.reasons
        yield "note" if is_good else "warning", f"{who} run{'' if others else 's'} {driver}"


_told: set[Any] = set()


def tell_users(step: Any, id: str, reasons: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """For `hooks.wrap_compiler`: a compiler that warns once of a user's step in single lanes.

    `reasons` are those that are known beside those of the step.
    """

    def wrap(compile: Callable[..., Any]) -> Callable[..., Any]:
        def compile_and_tell(*args: Any) -> Any:
            compiled = compile(*args)
            if step not in _told:
                driver = driver_of(hooks.llvm_of(compiled), step, reasons)
                if driver is not None and driver.lanes == 1:
                    _told.add(step)
                    logger.warning("%s: step runs %s", id, driver)
            return compiled

        return compile_and_tell

    return wrap


def is_written_by_users(step: Any) -> bool:
    """Tell whether a step, or a function that it reaches, is none of this package's."""
    return any(package_of(function) != "rlcpu" for function in reached_functions(step))


def reached_functions(step: Any) -> Iterator[Any]:
    """Yield a function, and those it calls; each once."""
    pending, visited = [step], set()
    for function in pending:  # grows on the way
        if function in visited:
            continue
        visited.add(function)
        yield function
        pending += [
            value
            for value in references(function)
            if isinstance(value, types.FunctionType) and is_users(value.__module__)
        ]


def _users_functions(step: Any, look: Callable[[Any, Any, str], Iterator[str]]) -> Iterator[str]:
    """Yield what `look` says of a function, and of those it calls.

    `look` takes the function, its source as a tree whose lines are those of the file, and the file.
    """
    for function in reached_functions(step):
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, SyntaxError):
            continue
        ast.increment_lineno(tree, first - 1)
        yield from look(function, tree, function.__code__.co_filename)


def _loops(function: Any, tree: Any, path: str) -> Iterator[str]:
    """Yield the loops of a function that keep loops over lanes from vectors, and what to write.

    `in` is one: numba looks at the items of a tuple one after the other.

    `tests/envs/test_vectorised.py` follows each piece of advice.
    """
    node: Any
    for node in ast.walk(tree):
        what = ""
        if isinstance(node, ast.While):
            what = "a `while`: write a `for` of constant turns, with a ternary for those too many"
        elif isinstance(node, ast.For) and getattr(node.iter, "func", None) is None:
            what = "a loop over a tuple: loop over a constant range(), and read its items"
        elif isinstance(node, ast.For):
            turns, most = _turns_of(node, function), hooks.MOST_TURNS
            if turns is None:
                what = (
                    "a loop whose number of turns is known at run time only: give it a constant "
                    "one, with a ternary for those too many"
                )
            elif turns > most:
                what = f"a loop of {turns} turns: write two of at most {most}, one in the other"
        elif isinstance(node, ast.Compare) and any(isinstance(op, ast.In) for op in node.ops):
            what = "`in`: compare with each item, and join the comparisons by `and` or `or`"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            exponent = function.__globals__.get(getattr(node.right, "id", ""), node.right)
            if not isinstance(exponent, int | float | ast.Constant | ast.UnaryOp):
                what = f"{_POWER} a loop: write float(1 << k) for 2.0 ** k"
        elif isinstance(node, ast.Break):
            what = "a `break`: choose by a ternary in each turn"
        if what:
            yield f"{what} ({path}:{node.lineno})"


def _early_returns(function: Any, tree: Any, path: str) -> Iterator[str]:
    """Yield the lines where a function returns before its end, which LLVM may make choices of."""
    definition = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Return)
            and definition is not None
            and node is not definition.body[-1]
        ):
            what = "a `return` before the end: compute all, and choose by ternaries"
            yield f"{what} ({path}:{node.lineno})"


def _turns_of(node: ast.For, function: Any) -> int | None:
    """Return the turns of a loop over a range of constants, global ones too; None for another."""
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
