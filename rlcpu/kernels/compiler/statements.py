"""Numba's statements of a function: what `linking.linked_compiler` reads and replaces.

Numba turns the bytecode of a function into assignments of one operation each, `ir.Assign`, and
writes to items and attributes. Nothing of it is documented: see `rlcpu.kernels.compiler.hooks`. A
`state` is that of the compiler, a `scope` numba's, for names of new variables.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import errors, ir
from numba.core.ir_utils import build_definitions, find_const, guard
from numba.core.typed_passes import type_inference_stage

# ---------------------------------------------------------------- types of what is assigned


class Assigned(NamedTuple):
    """An assignment in a function."""

    line: int  # in the file
    name: str  # of the variable; "" if it has none
    kind: Any  # type of the value
    #: Types of the variables that it is computed from, a called function among them; the kind
    #: itself of a conversion that a `return` needs.
    operands: tuple[Any, ...]


def assigned_types(overload: Any) -> Iterator[Assigned]:
    """Yield the assignments of a compiled function, one of a dispatcher's `overloads`.

    `inspect_types`, public, prints them for people to read.
    """
    annotation = overload.type_annotation
    yield from _assigned_types(annotation.blocks, annotation.typemap)


def types_before_failure(state: Any) -> list[Assigned]:
    """Return `assigned_types` of a function whose types do not fit together, as far as they do.

    Numba drops all types where some cannot be unified; they are inferred again here. `state` is
    that of the compiler that failed.
    """
    try:
        inferred = type_inference_stage(
            state.typingctx, state.targetctx, state.func_ir, state.args, None, raise_errors=False
        )
    except (errors.NumbaError, AttributeError):
        return []
    return list(_assigned_types(state.func_ir.blocks, inferred.typemap))


def _assigned_types(blocks: Any, typemap: Any) -> Iterator[Assigned]:
    """Yield the assignments in blocks of statements; `typemap` has types by names of variables."""
    for block in blocks.values():
        for statement in block.find_insts(ir.Assign):
            name, _, _ = statement.target.name.partition(".")  # numba counts assignments behind it
            kind = typemap.get(statement.target.name)
            list_read: Any = getattr(statement.value, "list_vars", list)  # an argument reads none
            operands = tuple(typemap.get(variable.name) for variable in list_read())
            if getattr(statement.value, "op", "") == "cast":
                operands = (kind,)
            yield Assigned(statement.loc.line, "" if name.startswith("$") else name, kind, operands)


def assigned(statement: Any, state: Any) -> Any:
    """Return the type of what a statement assigns; None if it assigns nothing but an argument."""
    is_new = isinstance(statement, ir.Assign) and not isinstance(statement.value, ir.Arg)
    return state.typemap[statement.target.name] if is_new else None


class WrittenField(NamedTuple):
    """A statement `record.name = value`."""

    name: str
    kind: Any  # type of the field
    value: Any  # type of the value


def written_field(statement: Any, state: Any) -> WrittenField | None:
    """Return what `record.name = value` writes; None of other statements."""
    if not isinstance(statement, ir.SetAttr):
        return None
    record = state.typemap[statement.target.name]
    if not isinstance(record, types.Record) or statement.attr not in record.fields:
        return None
    kind, value = record.typeof(statement.attr), state.typemap[statement.value.name]
    return WrittenField(statement.attr, kind, value)


# ---------------------------------------------------------------- what is returned


class Returned(NamedTuple):
    """A result of a function in one of its branches."""

    line: int  # in the file, of the part by which it differs from that of another branch
    #: Constants, and numba's types of all else; or a tuple, or NamedTuple, of these.
    value: Any


def returned_values(overload: Any) -> Iterator[Returned]:
    """Yield what each branch of a compiled function returns, one of a dispatcher's `overloads`.

    Numba gives a result one type, float64 for a bool in one branch and a float in another. Here a
    constant is told from what becomes of it. Of branches of a part of a result the others have
    their first value.
    """
    branches = _Branches(overload.type_annotation)
    for block in overload.type_annotation.blocks.values():
        if isinstance(block.terminator, ir.Return):
            yield from branches.of(block.terminator.value.name)


class _Branches:
    """The values of a function's variables, by branches; an `annotation` is numba's."""

    def __init__(self, annotation: Any) -> None:
        self._assigned, self._typemap = build_definitions(annotation.blocks), annotation.typemap
        self._known: dict[str, list[Returned]] = {}

    def of(self, name: str) -> list[Returned]:
        """Return the values of a variable, each once."""
        if name not in self._known:
            self._known[name] = []  # where it depends on itself, in a loop
            definitions = self._assigned.get(name, ())
            values = [each for value in definitions for each in self._of_value(name, value)]
            self._known[name] = list({repr(each): each for each in values}.values())
        return self._known[name]

    def _of_value(self, name: str, value: Any) -> Iterator[Returned]:
        """Yield the values of what a statement assigns to a variable."""
        operation, line = getattr(value, "op", ""), value.loc.line
        constant = getattr(value, "value", value) if _is_constant(value) else value
        if isinstance(value, ir.Var):
            yield from self.of(value.name)
        elif operation == "phi":
            known = (each for each in value.incoming_values if isinstance(each, ir.Var))
            yield from (each for variable in known for each in self.of(variable.name))
        elif operation == "cast":
            yield from self.of(value.value.name)
        elif isinstance(constant, np.number | np.bool_):
            yield Returned(line, constant.item())
        elif constant is None or isinstance(constant, bool | int | float | str):
            yield Returned(line, constant)
        elif operation == "build_tuple":
            yield from self._of_parts(lambda *items: items, value.items, line)
        elif operation == "call" and (fields := self._fields_of(value)):
            yield from self._of_parts(fields.make, fields.variables, line)
        else:
            yield Returned(line, self._typemap[name])

    def _fields_of(self, call: Any) -> _Fields | None:
        """Return the fields of a NamedTuple that a call makes; None of other calls."""
        kind, named = self._typemap[call.func.name], dict(call.kws)
        if not isinstance(kind, types.NamedTupleClass) or call.vararg is not None:
            return None
        later = kind.instance_class._fields[len(call.args) :]
        if set(later) != set(named):  # some have defaults
            return None
        return _Fields(kind.instance_class, [*call.args, *(named[field] for field in later)])

    def _of_parts(self, make: Any, variables: Any, line: int) -> Iterator[Returned]:
        """Yield the tuples of the values of variables, of which one at a time is not its first."""
        parts = [
            self.of(each.name) or [Returned(line, self._typemap[each.name])] for each in variables
        ]
        firsts = [values[0].value for values in parts]
        yield Returned(line, make(*firsts))
        for k, values in enumerate(parts):
            for other in values[1:]:
                yield Returned(other.line, make(*firsts[:k], other.value, *firsts[k + 1 :]))


class _Fields(NamedTuple):
    """The fields of a NamedTuple that is made."""

    make: Any  # the class
    variables: list[Any]  # in the order of its fields


def _is_constant(value: Any) -> bool:
    return isinstance(value, ir.Const | ir.Global | ir.FreeVar)


# ---------------------------------------------------------------- what statements consist of


def item_access(statement: Any) -> tuple[Any, ...] | None:
    """Return the variables of `x = table[index]`, two, or of `table[index] = value`, three.

    None of other statements, of slices that are constants, and of a tuple's items that have no
    index in the source, as in `a, b = pair`: these are numba's own.
    """
    if isinstance(statement, ir.SetItem):
        return statement.target, statement.index, statement.value
    if isinstance(statement, ir.StaticSetItem):
        return statement.target, statement.index_var, statement.value
    expression = getattr(statement, "value", None)
    if not isinstance(expression, ir.Expr) or expression.op not in ("getitem", "static_getitem"):
        return None
    if isinstance(getattr(expression, "index", None), slice | str):
        return None
    index = expression.index_var if expression.op == "static_getitem" else expression.index
    return None if index is None else (expression.value, index)


def constant_power(statement: Any, state: Any) -> tuple[Any, int] | None:
    """Return the variable x and the whole constant n of `y = x ** n`; None of other statements."""
    expression: Any = getattr(statement, "value", None)
    is_binary = isinstance(expression, ir.Expr) and expression.op in ("binop", "inplace_binop")
    if not is_binary or expression.fn not in (operator.pow, operator.ipow):
        return None
    exponent = guard(find_const, state.func_ir, expression.rhs)  # None if it is no constant
    return (expression.lhs, exponent) if type(exponent) is int else None


# ---------------------------------------------------------------- new statements


def call_statements(
    function: Any, variables: Any, statement: Any, scope: Any, result: Any = None
) -> list[Any]:
    """Return the statements that call a function at the place of one, before types are known.

    Args:
        function: what is called.
        variables: its arguments.
        statement: in whose place, or in front of which, the call stands.
        scope: for names of new variables.
        result: variable of the result; None for the one that the statement assigns, if any.
    """
    loc = statement.loc
    callee = scope.redefine("$callee", loc)
    if result is None:
        is_read = isinstance(statement, ir.Assign)
        result = statement.target if is_read else scope.redefine("$nothing", loc)
    call = ir.Assign(ir.Expr.call(callee, variables, (), loc), result, loc)
    return [ir.Assign(ir.Global("callee", function, loc), callee, loc), call]


#: Operators that are written `x += y`, but for those whose results are floats.
_IN_PLACE = {
    *(operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod),
    *(operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift),
}


def fit_operand(function: Any, statement: Any, scope: Any) -> list[Any] | None:
    """Return statements `z = function(x, y)` and `x += z` in the place of `x += y`; None of others.

    The same goes for the other operators of whole numbers.
    """
    expression: Any = getattr(statement, "value", None)
    is_in_place = isinstance(expression, ir.Expr) and expression.op == "inplace_binop"
    if not is_in_place or expression.fn not in _IN_PLACE:
        return None
    loc, (x, y) = statement.loc, (expression.lhs, expression.rhs)
    fitted = scope.redefine("$fitted", loc)
    operation = ir.Expr.inplace_binop(expression.fn, expression.immutable_fn, x, fitted, loc)
    call = call_statements(function, (x, y), statement, scope, result=fitted)
    return [*call, ir.Assign(operation, statement.target, loc)]


def named_constant(statement: Any) -> Any:
    """Return the statement; what assigns a constant of a NumPy type reads it as a global instead.

    Numba makes a Python source of an expression of arrays. A constant stands there as a literal,
    and NumPy's numbers have none; a global stands there by its name.
    """
    value = getattr(statement, "value", None)
    if not isinstance(value, ir.Const) or not isinstance(value.value, np.generic):
        return statement
    named = ir.Global("constant", value.value, statement.loc)
    return ir.Assign(named, statement.target, statement.loc)
