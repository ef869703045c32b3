"""Numba's statements of a function: what `linking.linked_compiler` reads and replaces.

Numba turns the bytecode of a function into assignments of one operation each, `ir.Assign`, and
writes to items and attributes. Nothing of it is documented: see `rlcpu.kernels.hooks`. A `state` is
that of the compiler, a `scope` numba's, for names of new variables.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import errors, ir
from numba.core.ir_utils import find_const, guard
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
