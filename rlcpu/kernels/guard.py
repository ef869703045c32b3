"""Users' functions in the compiler: reads that stay inside of tables, errors of one sentence.

Plain Python raises IndexError outside of a table, and wraps negative indices around. A kernel
checks nothing and would read other memory, and an exception would leave the lanes beside it without
a step. In a user's function an index outside of an array or a tuple therefore means its first or
last item, which costs two instructions and vectorises.
"""

from __future__ import annotations

import linecache
import operator
import re
import types as python_types
from collections.abc import Iterable, Iterator
from typing import Any

from llvmlite import ir as llvm
from numba import types
from numba.core import cgutils, compiler, errors, imputils
from numba.core import ir as numba_ir
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.typed_passes import NopythonTypeInference
from numba.extending import intrinsic

# Any: some releases of numba have types, for a part of what is used here.
_Compiler: Any = compiler.Compiler
_FunctionPass: Any = FunctionPass
_register_pass: Any = register_pass
_NumbaError: Any = errors.NumbaError
_TypingError: Any = errors.TypingError
_Tuple: Any = types.BaseTuple
_unpack: Any = cgutils.unpack_tuple
_struct: Any = cgutils.create_struct_proxy
_borrowed: Any = imputils.impl_ret_borrowed
_WHOLE: Any = (types.Integer, types.IntEnumMember)
ir: Any = numba_ir
_UniTuple: Any = types.UniTuple
_MADE: Any = (types.List, types.Set, types.DictType, types.Generator)


# ---------------------------------------------------------------- reads


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def read(typing_context: Any, table: Any, index: Any) -> Any:
    """`table[index]` of an array or a tuple of equal types, with the index kept inside of it."""
    if isinstance(table, _Tuple):
        return table.dtype(table, index), _pick
    several = isinstance(index, _Tuple)
    kinds = index.types if several else (index,)
    whole = _UniTuple(types.intp, len(kinds)) if several else types.intp
    plain = typing_context.resolve_function_type(operator.getitem, (table, whole), {})

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array, position = values
        sizes = _unpack(builder, _struct(table)(context, builder, array).shape)
        numbers = _unpack(builder, position) if several else [position]
        given = signature.args[1].types if several else [signature.args[1]]
        inside = [
            _clamp(builder, context.cast(builder, number, kind, types.intp), size)
            for number, kind, size in zip(numbers, given, sizes, strict=False)
        ]
        position = context.make_tuple(builder, whole, inside) if several else inside[0]
        return context.get_function(operator.getitem, plain)(builder, (array, position))

    return plain.return_type(table, index), generate


def _pick(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """One of a tuple's items, by comparisons: numba's own way is a branch for each, and raises."""
    items = _unpack(builder, values[0])
    position = context.cast(builder, values[1], signature.args[1], types.intp)
    position = _clamp(builder, position, position.type(len(items)))
    found = items[0]
    for k, item in enumerate(items[1:], 1):
        found = builder.select(builder.icmp_signed("==", position, position.type(k)), item, found)
    return _borrowed(context, builder, signature.return_type, found)


def _clamp(builder: Any, index: Any, size: Any) -> Any:
    """An index from 0 to size - 1; negative ones count from the end, as in Python."""
    # int() of NaN is poison to LLVM, which could leave the comparisons out: any number will do.
    frozen = llvm.Instruction(builder.block, index.type, "freeze", (index,))
    builder._insert(frozen)
    zero, last = index.type(0), builder.sub(size, index.type(1))
    negative = builder.icmp_signed("<", frozen, zero)
    index = builder.select(negative, builder.add(frozen, size), frozen)
    index = builder.select(builder.icmp_signed("<", index, zero), zero, index)
    return builder.select(builder.icmp_signed(">", index, last), last, index)


@_register_pass(mutates_CFG=False, analysis_only=False)
class _GuardReads(_FunctionPass):
    """Puts `read` in the place of `table[index]`, once all types are known."""

    _name = "rlcpu_guard_reads"

    def __init__(self) -> None:
        _FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            block.body = [new for old in block.body for new in _guarded(old, block.scope, state)]
        return True


def _guarded(statement: Any, scope: Any, state: Any) -> Iterator[Any]:
    """The statement, or several that do the same with `read`."""
    expression: Any = getattr(statement, "value", None)
    if isinstance(statement, ir.Assign) and not isinstance(expression, ir.Arg):
        made = state.typemap[statement.target.name]
        if isinstance(made, _MADE) or (isinstance(made, types.Array) and made.mutable):
            raise _TypingError(
                f"it makes {_named(made)}, and kernels allocate nothing", statement.loc
            )
    is_read = isinstance(expression, ir.Expr) and expression.op in ("getitem", "static_getitem")
    table = state.typemap[expression.value.name] if is_read else None
    if not is_read or (isinstance(table, _Tuple) and expression.op == "static_getitem"):
        yield statement
        return
    variable = expression.index_var if expression.op == "static_getitem" else expression.index
    index = state.typemap[variable.name]
    kinds = index.types if isinstance(index, _Tuple) else (index,)
    if not isinstance(table, types.Array | _Tuple) or not all(isinstance(k, _WHOLE) for k in kinds):
        raise _TypingError(
            f"{_named(table)} is read by {_named(index)}: tables take whole numbers", statement.loc
        )
    function = state.typingctx.resolve_value_type(read)
    target = scope.redefine("$read", statement.loc)
    state.typemap[target.name] = function
    call = ir.Expr.call(target, [expression.value, variable], (), statement.loc)
    signature = function.get_call_type(state.typingctx, (table, index), {})
    state.calltypes[call] = signature
    yield ir.Assign(ir.Global("read", read, statement.loc), target, statement.loc)
    yield ir.Assign(call, statement.target, statement.loc)


def _named(kind: Any) -> str:
    """A type as a user would call it."""
    names = {types.List: "a list", types.Set: "a set", types.DictType: "a dict"}
    names |= {types.Generator: "a generator", types.Array: "an array"}
    return next((name for base, name in names.items() if isinstance(kind, base)), str(kind))


# ---------------------------------------------------------------- errors

#: What numba said of users' functions that it could not compile.
_failures: dict[python_types.FunctionType, str] = {}


class UserCompiler(_Compiler):
    """Numba's compiler for a user's scalar function: its `pipeline_class`."""

    def define_pipelines(self) -> Any:
        """Numba's passes, and one more."""
        (passes,) = super().define_pipelines()
        passes.add_pass_after(_GuardReads, NopythonTypeInference)
        passes.finalize()
        return [passes]

    def compile_extra(self, function: Any) -> Any:
        """Compile, and remember in one sentence what is wrong."""
        try:
            compiled = super().compile_extra(function)
        except _NumbaError as error:
            _failures[function] = _sentence(function, error)
            raise
        _failures.pop(function, None)
        return compiled


def explain(error: Exception, callees: Iterable[Any]) -> None:
    """Raise one sentence for numba's error if one of the functions, callees first, is its cause.

    Raises:
        TypeError: with file, line and text of a user's function.
    """
    for callee in callees:
        if callee.py_func in _failures:
            raise TypeError(_failures[callee.py_func]) from None


def _sentence(function: python_types.FunctionType, error: Any) -> str:
    code = function.__code__
    path, line = code.co_filename, getattr(error.loc, "line", code.co_firstlineno)
    reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error.msg)).strip()
    call = re.search(r"found for signature:\s*>+ (.*)", reason)
    reason = f"numba has no {call[1]}" if call else reason.partition("\n")[0]
    return f"{place(path, line, function.__name__)} cannot be compiled: {reason}"


def place(path: str, line: int, name: str) -> str:
    """Where something stands, and its text."""
    text = linecache.getline(path, line).strip()
    return f"{path}, line {line}, in {name}: `{text}`"
