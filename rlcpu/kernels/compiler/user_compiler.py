"""Compilers of scalar functions: whole numbers beside real ones, guarded items, plain errors.

A user's function is compiled as `rlcpu.kernels.compiler.linking` says, with intrinsics of
`rlcpu.kernels.compiler.guard` in the place of its reads and writes of items, and rules of types of
its own. What numba cannot compile is told in one sentence.
"""

from __future__ import annotations

import functools
import linecache
import operator
import re
import types as python_types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import errors

from rlcpu.kernels.compiler import maths, statements
from rlcpu.kernels.compiler.functions import with_callees
from rlcpu.kernels.compiler.guard import (
    POWERS,
    check_written,
    fit,
    read_item,
    read_table,
    write_item,
)
from rlcpu.kernels.compiler.linking import TypeRules, linked_compiler

# ---------------------------------------------------------------- statements


def _prepared(statement: Any, scope: Any, state: Any, has_arrays: bool) -> Iterator[Any]:
    """Yield the statement, or those that do the same with functions of `guard`.

    It is one of numba's statements of a function, before types are known. Reads and writes of items
    become calls that keep the index inside. If states of environments have arrays (`has_arrays`),
    what `+=` adds is converted, see `fit`, and NumPy's constants are read by a name; else powers
    `x ** 2` to `x ** 8` become products.
    """
    if variables := statements.item_access(statement):
        is_read = len(variables) == 2
        read = read_item if has_arrays else read_table
        function = read if is_read else write_item
        yield from statements.call_statements(function, variables, statement, scope)
    elif has_arrays:
        fitted = statements.fit_operand(fit, statement, scope)
        yield from fitted or (statements.named_constant(statement),)
    else:
        base, exponent = statements.constant_power(statement, state) or (None, 0)
        power = POWERS.get(exponent)
        call = power and statements.call_statements(power, (base,), statement, scope)
        yield from call or (statement,)


#: Types that allocate memory, and what a user calls them.
_ALLOCATED = {
    types.List: "a list",
    types.Set: "a set",
    types.DictType: "a dict",
    types.Generator: "a generator",
    types.Array: "an array",
}


def _checked(statement: Any, scope: Any, state: Any, has_arrays: bool) -> Iterator[Any]:
    """Yield the statement; raise TypingError if it allocates, or writes what a field cannot hold.

    It is one of numba's statements, whose types are known. With `has_arrays` the function has
    arrays that are not constants.
    """
    kind, loc = statements.assigned(statement, state), statement.loc
    names = [name for base, name in _ALLOCATED.items() if isinstance(kind, base)]
    is_old_array = isinstance(kind, types.Array) and (has_arrays or not kind.mutable)
    if names and not is_old_array:
        raise errors.TypingError(f"it makes {names[0]}, and kernels allocate nothing", loc)
    if field := statements.written_field(statement, state):
        if isinstance(field.kind, types.Array):
            reason = f"it puts another array into a field: write into it, {field.name}[:] = ..."
            raise errors.TypingError(reason, loc)
        check_written(f"the field {field.name}", field.kind, field.value, loc)
    yield statement


# ---------------------------------------------------------------- whole numbers beside real ones

_WHOLE = (types.Integer, types.Boolean)
_DIVISIONS = {operator.truediv, operator.itruediv}
_POWER = {operator.pow, operator.ipow, pow}
_COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
#: What computes in float64 in numba as soon as a whole number meets a float32.
_MIXED = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, max, min}
_MIXED |= {operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod}
_MIXED |= {*_DIVISIONS, *_POWER, *_COMPARISONS}


def _real_arguments(function: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types of arguments with which a float32 function calls a function or operator.

    Whole numbers become float32 if they meet a float32, are divided, or go into a function of
    mathematics: numba would compute in float64. Other types stay.
    """
    is_real = [types.unliteral(kind) == types.float32 for kind in kinds]
    are_numbers = all(is_real[k] or isinstance(kind, _WHOLE) for k, kind in enumerate(kinds))
    if not kinds or not are_numbers:
        return kinds
    plain = getattr(function, "py_func", function)
    is_ufunc = isinstance(function, np.ufunc)
    is_mathematics = is_ufunc or getattr(plain, "__module__", "") in ("math", maths.__name__)
    is_mathematics = is_mathematics and plain not in maths.OVERLOADED  # some of which take bits
    if any(is_real):
        is_whole_power = function in _POWER and not is_real[-1]  # numba multiplies, in float32
        becomes_real = is_mathematics or (function in _MIXED and not is_whole_power)
    else:
        # Such as np.abs, which has a loop over int64 (letter l), and `clip`.
        has_whole_form = is_ufunc and any("l" in loop for loop in function.types)
        has_whole_form = has_whole_form or getattr(plain, "__name__", "") == "clip"
        becomes_real = function in _DIVISIONS or (is_mathematics and not has_whole_form)
    return (types.float32,) * len(kinds) if becomes_real else kinds


def _unify(first: Any, second: Any, context: Any, real: Any) -> Any:
    """Return the type of a variable to which values of two types are assigned.

    None where numba's rules are right, and NotImplemented where there is no such type. They give
    float64 for a float32 and an int64, where `real`, the type of the function's floats, is wanted,
    lack NamedTuples, and take them for plain tuples, which fails later. `context` is numba's.
    """
    kinds = types.unliteral(first), types.unliteral(second)
    if real in kinds and any(isinstance(kind, _WHOLE) for kind in kinds):
        return real
    classes = [getattr(kind, "instance_class", None) for kind in kinds]
    are_tuples = all(isinstance(kind, types.BaseTuple) for kind in kinds)
    if are_tuples and classes[0] is not classes[1]:
        return NotImplemented
    if not are_tuples or len(kinds[0]) != len(kinds[1]):
        return None
    items = [context.unify_pairs(*pair) for pair in zip(*kinds, strict=True)]
    return None if None in items else types.BaseTuple.from_types(items, classes[0])


@functools.cache
def type_rules(real: Any) -> TypeRules:
    """Return the rules of types in a function whose floats are of the type `real`."""

    def arguments(function: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return with which types a function is called; TypingError for arrays of mathematics."""
        plain = getattr(function, "py_func", function)
        is_ours = getattr(plain, "__module__", "") == maths.__name__
        if is_ours and any(isinstance(kind, types.Array) for kind in kinds):
            name = plain.__name__
            raise errors.TypingError(f"it gives an array to {name}: call it number by number")
        return _real_arguments(function, kinds) if real == types.float32 else kinds

    return TypeRules(arguments, functools.partial(_unify, real=real))


# ---------------------------------------------------------------- compilers


@functools.cache
def compiler_of(real: Any) -> type:
    """Return numba's compiler for a scalar function of this library."""
    return linked_compiler(rules=type_rules(real))


#: A sentence for each user's function that numba could not compile.
_failures: dict[python_types.FunctionType, str] = {}


@functools.cache
def user_compiler(has_arrays: bool, real: Any) -> type:
    """Return numba's compiler for a user's scalar function, which may be given arrays.

    It keeps a sentence on what is wrong with a function for `explain`. `real` is the type of the
    function's floats.
    """
    check = functools.partial(_checked, has_arrays=has_arrays)
    prepare = functools.partial(_prepared, has_arrays=has_arrays)
    base = linked_compiler(check, prepare, unroll=not has_arrays, rules=type_rules(real))

    class GuardedCompiler(base):  # type: ignore[misc,valid-type]
        def compile_extra(self, function: Any) -> Any:
            """Compile a function, as numba asks for it."""
            try:
                compiled = super().compile_extra(function)
            except errors.NumbaError as error:
                _failures[function] = _sentence(function, error, self.state, real)
                raise
            _failures.pop(function, None)
            return compiled

    return GuardedCompiler


# ---------------------------------------------------------------- what users are told


def explain(error: Exception, callees: Iterable[Any]) -> None:
    """Raise one sentence for numba's error if one of the functions, callees first, is its cause.

    Raises:
        TypeError: with file, line and text of a user's function.
    """
    for callee in callees:
        if callee.py_func in _failures:
            raise TypeError(_failures[callee.py_func]) from None


def check_results(function: Any, check: Callable[[Any], None]) -> None:
    """Raise TypeError, with the line, where a function returns in a branch what `check` refuses.

    It is looked at once for each set of types, and where there is more than one branch: what the
    only one returns was seen when the function was tried. Environments may have a function in
    common, of other states.

    Args:
        function: specialised, and compiled.
        check: raises TypeError or ValueError for a value as `Returned` has it.
    """
    code, checked = function.py_func.__code__, vars(function).setdefault("checked", set())
    for kinds, overload in list(function.overloads.items()):
        branches = [] if kinds in checked else list(statements.returned_values(overload))
        for returned in branches if len(branches) > 1 else ():
            try:
                check(returned.value)
            except (TypeError, ValueError) as error:
                where = place(code.co_filename, returned.line, function.py_func.__name__)
                raise TypeError(f"{error} in {where}") from None
        checked.add(kinds)


def check_precision(scalars: tuple[Any, ...]) -> None:
    """Raise TypeError that names all lines of float32 functions on which a float64 comes about.

    `scalars` are specialised functions; those that they call are looked at, too, and first.
    """
    # Our mathematics computes in what its callers give it.
    functions = [f for f in with_callees(scalars) if f.py_func.__module__ != maths.__name__]
    called = {types.Dispatcher(f) for f in functions}
    # Lines on which a float64 is made of other types, and those that are given one.
    makers: dict[_Line, None] = {}
    takers: dict[_Line, None] = {}
    for scalar in functions:
        for compiled in scalar.overloads.values():
            for each in statements.assigned_types(compiled):
                if _holds_double(each.kind):
                    inputs = (*each.operands, *compiled.signature.args)
                    is_given = any(map(_holds_double, inputs)) or called & {*each.operands}
                    lines = takers if is_given else makers
                    lines[_Line(scalar.py_func, each.line, each.name)] = None
    if makers or takers:
        raise TypeError(_describe_doubles(makers or takers))


def _holds_double(kind: Any) -> bool:
    """Tell whether a type is a float64, or a tuple that holds one."""
    if isinstance(kind, types.BaseTuple):
        return any(map(_holds_double, kind))
    return getattr(kind, "real", kind) == types.float64  # `real`: of numbers with slopes


class _Line(NamedTuple):
    """A line of a float32 function on which a float64 comes about."""

    function: python_types.FunctionType
    number: int  # in the file
    variable: str  # that is assigned; "" for none


def _describe_doubles(doubles: Iterable[_Line]) -> str:
    """Return the message for lines of float32 functions that compute in float64."""
    texts: dict[Any, str] = {}
    for function, number, variable in doubles:
        text = place(function.__code__.co_filename, number, function.__name__)
        what = f"{variable} in float64" if variable else "in float64"
        texts[function, number] = f"{text} computes {what}"
    return (
        f"{'; '.join(texts.values())}: a float32 kernel, whose speed that halves, wants math's or "
        "one's own functions of floats in the place of NumPy's"
    )


def _sentence(function: python_types.FunctionType, error: Any, state: Any, real: Any) -> str:
    """Return what is wrong with a function, and where, from the error and the compiler's state.

    `real` is the type of the function's floats.
    """
    code, message = function.__code__, re.sub(r"\x1b\[[0-9;]*m", "", str(error.msg)).strip()
    if "unify" in message and real == types.float32:
        for each in statements.types_before_failure(state):
            if _holds_double(each.kind) and not any(map(_holds_double, each.operands)):
                return _describe_doubles([_Line(function, each.line, each.name)])
    # Errors of `guard` begin with these words; numba's own have the call in their second line.
    ours = re.search(r"TypingError: ((?:it|an array) .*)", message)
    call = re.search(r"found for signature:\s*>+ (.*)", message)
    reason = f"numba has no {call[1]}" if call else message.partition("\n")[0]
    reason = _describe_branches(message) or (ours[1] if ours else reason)
    line = getattr(error.loc, "line", code.co_firstlineno)
    return f"{place(code.co_filename, line, function.__name__)} cannot be compiled: {reason}"


def _describe_branches(message: str) -> str:
    """Return what numba's error says of results or a variable without one type; "" of others."""
    for pattern, text in _TYPE_NAMES:
        message = re.sub(pattern, text, message)
    if returned := re.match(r"Can't unify return type from the following types: (.*)", message):
        return f"its branches return {returned[1]}"
    match = re.match(r"Cannot unify (.*) and (.*) for '([^']*)', defined", message)
    if match is None:
        return ""
    first, second, variable = match.groups()
    name = "a value" if variable.startswith("$") else variable.partition(".")[0]
    return f"{name} is {first} in one branch and {second} in another"


#: What numba calls types, and what a user does; the items of tuples come before the tuples.
_TYPE_NAMES: tuple[tuple[str, Any], ...] = (
    (r"Literal\[str\]\((.*?)\)", r"'\1'"),
    (r"Literal\[\w+\]\((.*?)\)", r"\1"),
    (r"(float|int)(32|64)", r"\1"),
    (r"UniTuple\(([^()]*) x 1\)", r"(\1,)"),
    (r"UniTuple\(([^()]*) x (\d+)\)", lambda match: f"({', '.join([match[1]] * int(match[2]))})"),
    (r"\bTuple\(", "("),
)


def place(path: str, line: int, name: str) -> str:
    """Return file and line of a piece of source, and its text."""
    text = linecache.getline(path, line).strip()
    return f"{path}, line {line}, in {name}: `{text}`"
