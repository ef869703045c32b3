"""What we use of numba and llvmlite that is not made for users: all of it, and nowhere else.

The extension interface (`numba.extending`, numba's types, `cgutils`, llvmlite's builder) is
documented, and used wherever code is generated. What stands here is not, and any release may change
it. Each function says why it is needed and what was tried in its place;
`tests/kernels/test_hooks.py` has a test for each, which names the one that an upgrade broke.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import inspect
import operator
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir as llvm
from llvmlite.binding.newpassmanagers import create_new_function_pass_manager
from numba import types
from numba.core import (
    caching,
    cgutils,
    codegen,
    compiler,
    errors,
    imputils,
    ir,
    ir_utils,
    serialize,
)
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions, find_const, guard
from numba.core.runtime.context import NRTContext
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import NopythonTypeInference, type_inference_stage
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    builtin_registry,
    signature,
)
from numba.core.untyped_passes import GenericRewrites
from numba.extending import lower_cast, overload_method

# ---------------------------------------------------------------- settings and the machine


def setting(name: str) -> Any:
    """Return a setting of numba, as the environment variable NUMBA_... or a default has it.

    The variables are documented and `numba.config` is not, but for NUMBA_NUM_THREADS. To read the
    environment leaves out numba's files of settings, its defaults, and what each of them implies.
    """
    return getattr(numba.config, name)


def host_features() -> str:
    """Features of this machine's processor, as in "+avx2,-avx512f".

    llvmlite has them publicly, but numba changes them, for NUMBA_ENABLE_AVX and on some systems.
    """
    return str(codegen.get_host_cpu_features())


# ---------------------------------------------------------------- dispatchers


def set_cache(dispatcher: Any, cache: Any) -> None:
    """Let a compiled function keep its machine code in another cache.

    `njit(cache=True)` is public. It cannot tell what a function closes over: see
    `rlcpu.kernels.cache`.
    """
    dispatcher._cache = cache


def cache_of(dispatcher: Any) -> Any:
    """Return the cache that `set_cache` set."""
    return dispatcher._cache


def wrap_compiler(dispatcher: Any, wrap: Callable[[Any], Any]) -> None:
    """Replace the function that compiles a dispatcher's code for new types.

    Listeners to numba's events, which are public, hear of all functions and change no exception.
    """
    dispatcher._compiler.compile = wrap(dispatcher._compiler.compile)


def choose_function(dispatcher: Any, choose: Callable[[Any], Any]) -> None:
    """Let `choose(types of arguments)` say which function is compiled; None for the dispatcher's.

    `numba.extending.overload`, public, adds types to a function that numba knows, and to no
    compiled one: its code for numbers would be that of one more function, in every kernel.
    """
    compiler = dispatcher._compiler
    compiler._get_implementation = lambda kinds, _: choose(kinds) or dispatcher.py_func


def forget_code(dispatcher: Any) -> None:
    """Forget all machine code of a compiled function. `recompile`, public, compiles it at once."""
    dispatcher._reset_overloads()


class Assigned(NamedTuple):
    """An assignment in a function.

    Attributes:
        line: in the file.
        name: of the variable; "" if it has none.
        kind: type of the value.
        operands: types of the variables that it is computed from, a called function among them;
            the kind itself of a conversion that a `return` needs.
    """

    line: int
    name: str
    kind: Any
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
    for block in blocks.values():
        for statement in block.find_insts(ir.Assign):
            name, _, _ = statement.target.name.partition(".")
            kind = typemap.get(statement.target.name)
            list_read: Any = getattr(statement.value, "list_vars", list)  # an argument reads none
            operands = tuple(typemap.get(variable.name) for variable in list_read())
            if getattr(statement.value, "op", "") == "cast":
                operands = (kind,)
            yield Assigned(statement.loc.line, "" if name.startswith("$") else name, kind, operands)


def llvm_of(compiled: Any) -> str:
    """LLVM's code, optimised, of what a compiler returned, or of one of a function's `overloads`.

    `inspect_llvm`, public, has none where the code comes out of a cache.
    """
    return str(compiled.library._get_module_for_linking())


def address_of(dispatcher: Any) -> int:
    """Address at which C finds a function compiled for one set of types; it never moves.

    `numba.cfunc` has one in public, but for a function that it compiles itself, without our cache.
    """
    # Numba's is an ordered dictionary, whose own `values` hashes the types: if Ctrl-C comes then,
    # it says KeyError in place of KeyboardInterrupt.
    (overload,) = dict.values(dispatcher.overloads)
    name = overload.fndesc.llvm_cfunc_wrapper_name
    return int(overload.library.get_pointer_to_function(name))


def definition(value: Any) -> FunctionType | None:
    """Return the function that `numba.extending.intrinsic` decorated; None for another value.

    Nothing public tells an intrinsic from another object, or how it is made.
    """
    is_intrinsic = isinstance(value, numba.extending._Intrinsic)
    return value._defn if is_intrinsic else None


# ---------------------------------------------------------------- machine code on disk


class Cache(caching.NullCache):
    """Base of what `set_cache` takes: numba calls `load_overload` and `save_overload`.

    There is no public way to keep machine code elsewhere than `njit(cache=True)` does.
    """


class CodeFiles:
    """Numba's part of keeping machine code: where it lies, and how it becomes bytes.

    Args:
        function: whose source decides where numba would keep machine code: NUMBA_CACHE_DIR, the
            __pycache__ beside the source, or the user's cache, the first that can be written.

    Raises:
        RuntimeError: none can be written.
    """

    # `dispatcher.stats.cache_path`, public, needs a function with numba's own cache, and to pickle
    # compiled code without numba's help fails.
    def __init__(self, function: Callable[..., Any]) -> None:
        self._cache = caching.CompileResultCacheImpl(function)

    def folder(self) -> Path:
        """Return the folder, which need not exist."""
        return Path(self._cache.locator.get_cache_path())

    def pack(self, compiled: Any) -> bytes | None:
        """Return the arguments of `save_overload` as bytes.

        None, after a warning, if they cannot be kept.
        """
        is_fit = self._cache.check_cachable(compiled)
        return serialize.dumps(self._cache.reduce(compiled)) if is_fit else None

    def unpack(self, target: Any, content: bytes) -> Any:
        """Return the compiled code that was packed; `target` is what `load_overload` was given."""
        return self._cache.rebuild(target, pickle.loads(content))


def refresh_target(target: Any) -> None:
    """Make a target know what was registered since, before code is loaded for it."""
    target.refresh()


def processor(dispatcher: Any) -> tuple[str, ...]:
    """Return the facts of the processor, and numba's settings, that decide machine code."""
    return tuple(dispatcher.targetctx.codegen().magic_tuple())


# ---------------------------------------------------------------- a pass of our own


#: Iterations of the longest loop that is unrolled in any case.
MOST_UNROLLED = 16


def hint_loop(module: Any, branch: Any, hint: str) -> None:
    """Give LLVM a hint on the loop that a branch closes, such as "llvm.loop.unroll.disable"."""
    hint_node = module.add_metadata([hint])
    function = branch.parent.parent.name
    loop = module.add_metadata([hint_node, f"{function} {branch.parent.name}"])  # one of its own
    loop.operands = (loop, hint_node)  # LLVM wants the list of a loop's hints to begin with itself
    branch.set_metadata("llvm.loop", loop)


def _back_edges(function: Any, headers: frozenset[str]) -> Iterator[Any]:
    """Yield the back edges of some loops: the branches that lead back to their headers.

    They come from blocks that the header dominates: every path to such a block goes through it.
    `headers` are names of the blocks of an llvmlite function that begin loops.
    """
    blocks = {block.name: block for block in function.blocks}
    targets = {
        name: [
            operand.name
            for operand in block.terminator.operands
            if getattr(operand, "name", "") in blocks
        ]
        for name, block in blocks.items()
    }
    for header in sorted(headers & blocks.keys()):
        # Blocks that can be reached without going through the header.
        reached, pending = {header}, [function.entry_basic_block.name]
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += targets[name]
        dominated = blocks.keys() - reached | {header}
        for name in sorted(dominated):
            if header in targets[name]:
                yield blocks[name].terminator


def _constant_loops(func_ir: Any) -> frozenset[str]:
    """Return the blocks that begin loops over a range of constants; block 12 is "B12" to LLVM."""
    loops = compute_cfg_from_blocks(func_ir.blocks).loops().values()
    counts = {f"B{loop.header}": guard(_num_iterations, func_ir, loop) for loop in loops}
    return frozenset(name for name, count in counts.items() if count and count <= MOST_UNROLLED)


def _num_iterations(func_ir: Any, loop: Any) -> int | None:
    """Return the iterations of a loop over constants, or None; GuardException for other ranges.

    `loop` is one of numba's control-flow graph of `func_ir`.
    """
    for label in loop.entries:
        for statement in func_ir.blocks[label].find_exprs("getiter"):
            call = ir_utils.get_definition(func_ir, statement.value)
            is_call = isinstance(call, ir.Expr) and call.op == "call"
            callee = ir_utils.get_definition(func_ir, call.func) if is_call else None
            if getattr(callee, "value", None) is range:
                return len(range(*(find_const(func_ir, argument) for argument in call.args)))
    return None


class _Linked(codegen.JITCodeLibrary):
    """A function as LLVM's code alone: others link it into theirs, and nothing else calls it."""

    #: Headers of the loops that are to be unrolled.
    loops: frozenset[str] = frozenset()

    @property
    def codegen(self) -> Any:
        """Numba asks this for `set_env`, which tells machine code where its constants are."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """There is no machine code here."""

    def add_ir_module(self, module: Any) -> None:
        """Add code as numba generates it, once `loops` are unrolled.

        Their back edges get a hint, by which LLVM unrolls them.
        """
        edges = [edge for each in module.functions for edge in _back_edges(each, self.loops)]
        for edge in edges:
            hint_loop(module, edge, "llvm.loop.unroll.full")
        if not edges:
            super().add_ir_module(module)
            return
        unrolled = self._unroll(cgutils.normalize_ir_text(str(module)))
        unrolled.name = module.name
        unrolled.verify()
        self.add_llvm_module(unrolled)

    def _unroll(self, text: str) -> Any:
        """Parse LLVM's code, and unroll the loops with a hint, as far as LLVM does that at all.

        It is done before functions are linked: what simplifies them there may give a loop a second
        back edge, and drops the hint. SROA (scalar replacement of aggregates) runs twice: only the
        second time does it bring the counter of numba's ranges from memory into a register.
        """
        code = llvmlite.binding.parse_assembly(text)
        code.data_layout = self._codegen._data_layout
        passes, builder = create_new_function_pass_manager(), self._codegen._pass_builder()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_loop_rotate_pass()
        passes.add_loop_unroll_pass()
        for function in code.functions:
            if not function.is_declaration:
                passes.run(function, builder)
        if "llvm.loop.unroll.full" in str(code):  # hints that are left: LLVM would warn of each
            text = re.sub(r", !llvm\.loop !\d+", "", str(code))
            code = llvmlite.binding.parse_assembly(text)
        return code

    def get_pointer_to_function(self, name: str) -> int:
        """Address of what Python would call: a function that raises TypeError, whatever it gets."""
        self._ensure_finalized()
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0

    def _optimize_final_module(self) -> None:
        """Simplify the code a little: whoever links it optimises all of it again.

        To do so here too took a tenth of all compiling. The passes over each function, which come
        before, stay: without them `collect` is a fifth slower.
        """
        passes, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


def makes_no_code(library: Any) -> bool:
    """Tell whether a function is LLVM's code alone, which others link into theirs."""
    return isinstance(library, _Linked)


class _Branching(codegen.JITCodeLibrary):
    """A kernel that branches on data.

    Its callees become its own, so that LLVM inlines what is called from one place alone, however
    long it is; and numbers are computed in the one branch that needs them (LLVM's sinking pass). Of
    Craftax-Classic's step that is a third of the time.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
        super()._optimize_final_module()
        passes, builder = create_new_function_pass_manager(), self._codegen._pass_builder()
        passes.add_sinking_pass()
        for function in self._final_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)


@contextlib.contextmanager
def linked_callees(dispatcher: Any, branching: bool = False) -> Iterator[None]:
    """Compile the callees of a function to LLVM's code alone (`_Linked`), in a block of `with`.

    Numba's own functions, such as `np.zeros`, are optimised as a part of the function that calls
    them, like functions of `linked_compiler`, and not alone before that. Numba has no option for
    it.

    Args:
        dispatcher: the function that is compiled in the block.
        branching: whether it branches on data, and is optimised for that, see `_Branching`; else
            it loops over lanes.
    """
    codegen_of_cpu, compiled = dispatcher.targetctx.codegen(), dispatcher.py_func.__qualname__
    create_library = codegen_of_cpu.create_library

    def create(name: str, **options: Any) -> Any:
        """Return the library that a function is compiled to: `_Linked` for a callee."""
        flags = ConfigStack.top_or_none()
        # Numba makes no wrapper for Python of functions that it compiles for others to call.
        is_callee = flags and flags.no_cpython_wrapper and name != compiled
        if is_callee:
            return _Linked(codegen_of_cpu, name)
        if branching and name == compiled:
            return _Branching(codegen_of_cpu, name)
        return create_library(name, **options)

    codegen_of_cpu.create_library = create
    try:
        yield
    finally:
        codegen_of_cpu.create_library = create_library


class _Counts(NRTContext):
    """Counts who uses arrays, and writes nothing for tuples that hold none.

    Numba takes every tuple apart wherever a variable of it begins or ends: of a mask of 2,000 bools
    that was a third of the time.
    """

    def get_meminfos(self, builder: Any, kind: Any, value: Any) -> Any:
        """Return what is counted of a value."""
        has_arrays = self._context.data_model_manager[kind].contains_nrt_meminfo()
        return super().get_meminfos(builder, kind, value) if has_arrays else []


#: (statement, scope, state) -> the statements that take its place.
Rewrite = Callable[[Any, Any, Any], Iterable[Any]]


def _rewrite_all(rewrite: Rewrite, state: Any) -> None:
    """Replace each statement of the function in a compiler's state by what `rewrite` returns."""
    for block in state.func_ir.blocks.values():
        new = [rewrite(statement, block.scope, state) for statement in block.body]
        block.body = [statement for statements in new for statement in statements]


class TypeRules(NamedTuple):
    """Rules of types, which come before numba's own.

    Attributes:
        arguments: (function or operator, types of arguments) -> those that it is called with.
        unify: (type, type, context) -> the type of a variable that is given both; None for numba's.
    """

    arguments: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
    unify: Callable[[Any, Any, Any], Any]


@functools.cache
def context_class(base: Any, rules: TypeRules) -> type:
    """Return a subclass of a class of numba's typing contexts, whose rules come before its own."""

    class Context(base):
        def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
            key = getattr(func, "typing_key", None) or getattr(func, "dispatcher", None)
            args = args if key is None or kws else rules.arguments(key, tuple(args))
            return super().resolve_function_type(func, args, kws)

        def unify_pairs(self, first: Any, second: Any) -> Any:
            unified = None if first == second else rules.unify(first, second, self)
            return super().unify_pairs(first, second) if unified is None else unified

    return Context


def with_rules(context: Any, rules: TypeRules) -> Any:
    """Return a copy of a typing context that has other rules of types, and shares all else.

    Numba has one context in a process, and so one set of rules.
    """
    twin = copy.copy(context)
    base: Any = type(context)
    twin.__class__ = context_class(base, rules)
    return twin


@lower_cast(types.BaseNamedTuple, types.BaseNamedTuple)
def _convert_items(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    """Convert the items of a NamedTuple, which numba has for other tuples alone."""
    parts = zip(cgutils.unpack_tuple(builder, value, len(kind)), kind, wanted, strict=True)
    items = [context.cast(builder, *part) for part in parts]
    return context.make_tuple(builder, wanted, items)


class _Pass(FunctionPass):
    def __init__(self) -> None:  # abstract in numba
        super().__init__()


def linked_compiler(
    rewrite: Rewrite | None = None,
    prepare: Rewrite | None = None,
    unroll: bool = False,
    rules: TypeRules | None = None,
) -> type:
    """Return numba's compiler for functions without wrappers, which only compiled functions call.

    Numba makes machine code of every function, and throws away that of one which is inlined
    everywhere: with the wrappers, a fifth of all compiling. And its callers get the function as
    LLVM has optimised it alone, with an overflow intrinsic in the place of `t == 0` beside `t - 1`,
    or of `n < 64` beside `n - 64`: loops that hold one are not vectorised. Functions of this
    compiler are handed to their callers as they were written, and optimised there. `njit` has no
    option for it; it takes this class as `pipeline_class`, which numba's guide for developers
    describes, but not what statements consist of. Python that calls such a function gets a
    TypeError.

    Args:
        rewrite: what takes the place of each statement, once all types are known.
        prepare: the same, before any type is known.
        unroll: whether loops over at most `MOST_UNROLLED` constants are unrolled, however long
            their body is: one that stays keeps the loop around it from vectors.
        rules: of the types in the function; None for numba's.
    """

    @register_pass(mutates_CFG=False, analysis_only=False)
    class Prepare(_Pass):
        _name = "rlcpu_prepare"

        def run_pass(self, state: Any) -> bool:
            assert prepare is not None
            _rewrite_all(prepare, state)
            state.func_ir._definitions = build_definitions(state.func_ir.blocks)
            return True

    @register_pass(mutates_CFG=False, analysis_only=rewrite is None)
    class Link(_Pass):
        _name = "rlcpu_link"

        def run_pass(self, state: Any) -> bool:
            if rewrite:
                _rewrite_all(rewrite, state)
            state.library = _Linked(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
            if unroll:
                state.library.loops = _constant_loops(state.func_ir)
            state.targetctx.nrt = _Counts(state.targetctx, state.targetctx.enable_nrt)
            return rewrite is not None

    class Compiler(compiler.Compiler):
        def __init__(self, typing_context: Any, *others: Any) -> None:
            context = with_rules(typing_context, rules) if rules else typing_context
            super().__init__(context, *others)

        def define_pipelines(self) -> Any:
            (passes,) = super().define_pipelines()
            passes.add_pass_after(Link, NopythonTypeInference)
            if prepare:
                passes.add_pass_after(Prepare, GenericRewrites)
            passes.finalize()
            return [passes]

    return Compiler


def assigned(statement: Any, state: Any) -> Any:
    """Return the type of what a statement assigns; None if it assigns nothing but an argument."""
    is_new = isinstance(statement, ir.Assign) and not isinstance(statement.value, ir.Arg)
    return state.typemap[statement.target.name] if is_new else None


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


def call_statements(
    function: Any, variables: Any, statement: Any, scope: Any, result: Any = None
) -> list[Any]:
    """Return the statements that call a function at the place of one, before types are known.

    Args:
        function: what is called.
        variables: its arguments.
        statement: in whose place, or in front of which, the call stands.
        scope: numba's, for names of new variables.
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

    `scope` is numba's, for names of new variables.
    """
    expression: Any = getattr(statement, "value", None)
    is_in_place = isinstance(expression, ir.Expr) and expression.op == "inplace_binop"
    if not is_in_place or expression.fn not in _IN_PLACE:
        return None
    loc, (x, y) = statement.loc, (expression.lhs, expression.rhs)
    fitted = scope.redefine("$fitted", loc)
    operation = ir.Expr.inplace_binop(expression.fn, expression.immutable_fn, x, fitted, loc)
    call = call_statements(function, (x, y), statement, scope, fitted)
    return [*call, ir.Assign(operation, statement.target, loc)]


def constant_power(statement: Any, state: Any) -> tuple[Any, int] | None:
    """Return the variable x and the whole constant n of `y = x ** n`; None of other statements."""
    expression: Any = getattr(statement, "value", None)
    is_binary = isinstance(expression, ir.Expr) and expression.op in ("binop", "inplace_binop")
    if not is_binary or expression.fn not in (operator.pow, operator.ipow):
        return None
    exponent = guard(find_const, state.func_ir, expression.rhs)
    return (expression.lhs, exponent) if type(exponent) is int else None


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


def written_field(statement: Any, state: Any) -> tuple[str, Any, Any] | None:
    """Return name, type and value's type of `record.name = value`; None of other statements."""
    if not isinstance(statement, ir.SetAttr):
        return None
    record = state.typemap[statement.target.name]
    if not isinstance(record, numba.types.Record) or statement.attr not in record.fields:
        return None
    value = state.typemap[statement.value.name]
    return statement.attr, record.typeof(statement.attr), value


# ---------------------------------------------------------------- code generation


def generator_of(typing_context: Any, operation: Any, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the type of an operation's result, and numba's own generator of it.

    An intrinsic that calls another function has no public way to name an operator. `kinds` are the
    types of its arguments, and `generate(context, builder, values)` emits the code.
    """
    kind = typing_context.resolve_value_type(operation)
    signature = kind.get_call_type(typing_context, kinds, {})

    def generate(context: Any, builder: Any, values: Any) -> Any:
        cast = [
            context.cast(builder, value, argument_type, wanted)
            for value, argument_type, wanted in zip(values, kinds, signature.args, strict=True)
        ]
        return context.get_function(kind, signature)(builder, cast)

    return signature.return_type, generate


def borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return a value that an intrinsic takes from its arguments: an array is counted once more."""
    return imputils.impl_ret_borrowed(context, builder, kind, value)


def resolve_attributes(kind: type, resolve: Callable[[Any, str], Any]) -> None:
    """Let `resolve(type, name)` say of what type an attribute is, for a class of types.

    It returns None where there is no such one. `numba.extending.overload_attribute`, public, wants
    to be told each name.
    """

    class Attributes(AttributeTemplate):
        key = kind

        def generic_resolve(self, value_type: Any, name: str) -> Any:
            return resolve(value_type, name)

    numba.extending.infer_getattr(Attributes)


def overload_method_of(
    named_tuple: type, name: str, function: Callable[..., Any], jit_options: dict[str, Any]
) -> None:
    """Teach numba a method of one class of named tuples.

    `overload_method` is public, but named tuples are one type to it: a field of the same name would
    become the method in all others.
    """
    overload_method(types.NamedTuple, name, jit_options=jit_options)(function)
    template: Any = builtin_registry.attributes[-1]  # what the line above has registered
    resolve = template._resolve

    def resolve_of_class(self: Any, kind: Any, attribute: str) -> Any:
        return resolve(self, kind, attribute) if kind.instance_class is named_tuple else None

    template._resolve = resolve_of_class


def teach_replace(make: Callable[..., Any]) -> None:
    """Teach numba `_replace` of named tuples, whose fields are given by keywords.

    `overload_method` takes functions with a list of arguments, which differs from class to class.
    A signature with a name for each field lets numba sort the keywords into one argument a field,
    `Omitted` where none was given, behind the tuple itself: so they arrive in `lower`.

    Args:
        make: (context, builder, tuple type, type of the result, old value, new values by field,
            with their types) -> the result.
    """

    class Replace(AbstractTemplate):
        key = "_replace"

        def generic(self, args: Any, kws: Any) -> Any:
            """Return the signature of `_replace` for types of arguments."""
            kind: Any = self.this
            for name in kws:
                if name not in kind.fields:
                    text = f"it replaces {name}, which {kind.instance_class.__name__} has not"
                    raise errors.TypingError(text)
            if args:
                raise errors.TypingError("it gives _replace a value without the name of its field")
            pairs = zip(kind.fields, kind.types, strict=True)
            field_types = [self._joined(old, kws.get(name)) for name, old in pairs]
            result = types.BaseTuple.from_types(field_types, kind.instance_class)
            arguments = [kws.get(name, types.Omitted(None)) for name in kind.fields]
            by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
            names = [inspect.Parameter(name, by_name, default=None) for name in kind.fields]
            typed = signature(result, *arguments, recvr=kind)
            return typed.replace(pysig=inspect.Signature(names))

        def _joined(self, old: Any, new: Any) -> Any:
            """Return the type of a field: as it was, unless a real number replaces a whole one.

            A value of a type that has no common one with the field's is refused by `make`.
            """
            if new is None:
                return old
            both = self.context.unify_pairs(old, types.unliteral(new))
            is_same = isinstance(old, types.Float) and isinstance(new, types.Integer)
            return old if is_same or both is None else both

    class Attributes(AttributeTemplate):
        key = types.BaseNamedTuple

        def generic_resolve(self, kind: Any, name: str) -> Any:
            return types.BoundFunction(Replace, kind) if name == "_replace" else None

    numba.extending.infer_getattr(Attributes)

    @numba.extending.lower_builtin("_replace", types.BaseNamedTuple, types.VarArg(types.Any))
    def lower(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        """Emit the tuple with new values for the fields that were given."""
        kinds = dict(zip(sig.args[0].fields, sig.args[1:], strict=True))
        new = dict(zip(kinds, values[1:], strict=True))
        replaced = {
            name: (value, kinds[name])
            for name, value in new.items()
            if not isinstance(kinds[name], types.Omitted)
        }
        return make(context, builder, sig.args[0], sig.return_type, values[0], replaced)


def lower_constant(kind: type) -> Any:
    """Decorator: a function (context, builder, type, value) that emits a constant of a type.

    `numba.extending` has the like for functions, attributes and casts.
    """
    return imputils.lower_constant(kind)


def freeze(builder: Any, value: Any) -> Any:
    """Return the value, or any other where it is poison to LLVM.

    Llvmlite lacks this instruction.
    """
    frozen = llvm.Instruction(builder.block, value.type, "freeze", (value,))
    builder._insert(frozen)
    return frozen


def add_attribute(function: Any, attribute: str) -> None:
    """Give a function of LLVM's an attribute, such as `'"name"="value"'`.

    llvmlite's `attributes.add` refuses those with values.
    """
    set.add(function.attributes, attribute)
