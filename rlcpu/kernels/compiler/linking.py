"""Functions that are handed to their callers as LLVM's code, and optimised as a part of these.

Numba makes machine code of every function, and throws away that of one which is inlined everywhere:
with the wrappers, a fifth of all compiling. And its callers get the function as LLVM has optimised
it alone, with an overflow intrinsic in the place of `t == 0` beside `t - 1`, or of `n < 64` beside
`n - 64`: loops that hold one are not vectorised. So functions of `linked_compiler`, and numba's own
in a block of `linked_callees`, are left as they were written.

Like `rlcpu.kernels.compiler.hooks`, this file stands on what numba and llvmlite do not document. A
library is numba's word for the LLVM code of one function, `func_ir` for the statements of its
Python.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import llvmlite.binding
from llvmlite.binding.newpassmanagers import create_new_function_pass_manager
from numba.core import cgutils, codegen, compiler, ir, ir_utils
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions, find_const, guard
from numba.core.runtime.context import NRTContext
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import GenericRewrites

#: Numba's, held while a kernel is compiled or loaded.
compiler_lock: Any = global_compiler_lock
#: Iterations of the longest loop that is unrolled in any case.
MOST_UNROLLED = 16
_UNROLL = "llvm.loop.unroll.full"

# ---------------------------------------------------------------- loops that are unrolled


def hint_loop(module: Any, branch: Any, hint: str) -> None:
    """Give LLVM a hint on the loop that a branch closes, such as "llvm.loop.unroll.disable"."""
    hint_node = module.add_metadata([hint])
    # Equal lists of metadata are one to llvmlite: a name makes this loop's list its own.
    loop = module.add_metadata([hint_node, f"{branch.parent.parent.name} {branch.parent.name}"])
    loop.operands = (loop, hint_node)  # LLVM wants the list of a loop's hints to begin with itself
    branch.set_metadata("llvm.loop", loop)


def _back_edges(function: Any, headers: frozenset[str]) -> Iterator[Any]:
    """Yield the branches of an llvmlite function that lead back to the headers of some loops.

    A header is the block that a loop begins with, `headers` are names of some. A branch to it leads
    back if its own block can be reached through the header alone.
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
        reached, pending = {header}, [function.entry_basic_block.name]
        while pending:  # go everywhere, but not beyond the header
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += targets[name]
        for name in sorted(blocks.keys() - reached | {header}):
            if header in targets[name]:
                yield blocks[name].terminator


def _constant_loops(func_ir: Any) -> frozenset[str]:
    """Return the headers of short loops over a range of constants; block 12 is "B12" to LLVM."""
    loops = compute_cfg_from_blocks(func_ir.blocks).loops().values()
    # `guard` is numba's: it returns None where a constant is looked for and none is found.
    counts = {f"B{loop.header}": guard(_num_iterations, func_ir, loop) for loop in loops}
    return frozenset(name for name, count in counts.items() if count and count <= MOST_UNROLLED)


def _num_iterations(func_ir: Any, loop: Any) -> int | None:
    """Return the iterations of a loop over constants; None if it goes over something else.

    `loop` is one of numba's control-flow graph. In the blocks from which it is entered stands the
    statement `iter(range(...))`.

    Raises:
        GuardException: an argument of the range is no constant.
    """
    for label in loop.entries:
        for statement in func_ir.blocks[label].find_exprs("getiter"):
            call = ir_utils.get_definition(func_ir, statement.value)
            is_call = isinstance(call, ir.Expr) and call.op == "call"
            callee = ir_utils.get_definition(func_ir, call.func) if is_call else None
            if getattr(callee, "value", None) is range:
                return len(range(*(find_const(func_ir, argument) for argument in call.args)))
    return None


# ---------------------------------------------------------------- libraries


class _Linked(codegen.JITCodeLibrary):
    """A function as LLVM's code alone: others link it into theirs, and nothing else calls it."""

    #: Headers of the loops that are to be unrolled.
    loops: frozenset[str] = frozenset()

    @property
    def codegen(self) -> Any:
        """Return this library, which numba asks for `set_env`."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing: numba tells machine code where its constants are, and there is none here."""

    def add_ir_module(self, module: Any) -> None:
        """Add code as numba generates it, once `loops` are unrolled."""
        edges = [edge for each in module.functions for edge in _back_edges(each, self.loops)]
        for edge in edges:
            hint_loop(module, edge, _UNROLL)
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
        passes = create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_loop_rotate_pass()
        passes.add_loop_unroll_pass()
        _run_passes(self, passes, code)
        if _UNROLL in str(code):  # hints that are left: LLVM would warn of each
            text = re.sub(r", !llvm\.loop !\d+", "", str(code))
            code = llvmlite.binding.parse_assembly(text)
        return code

    def get_pointer_to_function(self, name: str) -> int:
        """Return what Python calls: the address of a function that raises TypeError."""
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
        """Do what numba does here, but for machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


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
        passes = create_new_function_pass_manager()
        passes.add_sinking_pass()
        _run_passes(self, passes, self._final_module)


def _run_passes(library: Any, passes: Any, module: Any) -> None:
    """Run LLVM's passes over every function that a module defines."""
    builder = library._codegen._pass_builder()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


@contextlib.contextmanager
def linked_callees(dispatcher: Any, branching: bool = False) -> Iterator[None]:
    """Leave numba's own functions, such as `np.zeros`, to their callers in a block of `with`.

    Numba has no option for it. Other threads compile before or after the block.

    Args:
        dispatcher: the function that is compiled in the block.
        branching: whether it branches on data, and is optimised for that, see `_Branching`; else
            it loops over lanes.
    """
    codegen_of_cpu, compiled = dispatcher.targetctx.codegen(), dispatcher.py_func.__qualname__
    with compiler_lock:
        create_library = codegen_of_cpu.create_library

        def create(name: str, **options: Any) -> Any:
            """Return the library that a function is compiled to: `_Linked` for a callee."""
            is_kernel, flags = name == compiled, ConfigStack.top_or_none()
            # Numba makes no wrapper for Python of functions that it compiles for others to call.
            if flags and flags.no_cpython_wrapper and not is_kernel:
                return _Linked(codegen_of_cpu, name)
            if branching and is_kernel:
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
        """Return what is counted of a value: the owners of the memory of its arrays."""
        has_arrays = self._context.data_model_manager[kind].contains_nrt_meminfo()
        return super().get_meminfos(builder, kind, value) if has_arrays else []


# ---------------------------------------------------------------- rules of types


class TypeRules(NamedTuple):
    """Rules of types, which come before numba's own."""

    #: (function or operator, types of arguments) -> the types that it is called with.
    arguments: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
    #: (type, type, context) -> the type of a variable that is given both; None for numba's, and
    #: NotImplemented for none.
    unify: Callable[[Any, Any, Any], Any]


@functools.cache
def context_class(base: Any, rules: TypeRules) -> type:
    """Return a subclass of a class of numba's typing contexts, whose rules come before its own."""

    class Context(base):
        def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
            """Return the signature of a call; `func` is the type of a function or operator."""
            function = getattr(func, "typing_key", None) or getattr(func, "dispatcher", None)
            if function is not None and not kws:
                args = rules.arguments(function, tuple(args))
            return super().resolve_function_type(func, args, kws)

        def unify_pairs(self, first: Any, second: Any) -> Any:
            """Return the type of a variable that is given values of two types."""
            unified = None if first == second else rules.unify(first, second, self)
            if unified is NotImplemented:
                return None
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


# ---------------------------------------------------------------- the compiler


#: (statement, scope, state of the compiler) -> the statements that take its place. See
#: `rlcpu.kernels.compiler.statements`.
Rewrite = Callable[[Any, Any, Any], Iterable[Any]]


def _rewrite_all(rewrite: Rewrite, state: Any) -> None:
    """Replace each statement of the function in a compiler's state by what `rewrite` returns."""
    for block in state.func_ir.blocks.values():
        new = [rewrite(statement, block.scope, state) for statement in block.body]
        block.body = [statement for statements in new for statement in statements]


class _Pass(FunctionPass):
    def __init__(self) -> None:  # abstract in numba
        super().__init__()


@functools.cache
def compiler_with(rules: TypeRules | None) -> type:
    """Return numba's compiler with rules of types that come before its own; None for its own."""

    class Compiler(compiler.Compiler):
        def __init__(self, typing_context: Any, *others: Any) -> None:
            context = with_rules(typing_context, rules) if rules else typing_context
            super().__init__(context, *others)

    return Compiler


def linked_compiler(
    rewrite: Rewrite | None = None,
    prepare: Rewrite | None = None,
    unroll: bool = False,
    rules: TypeRules | None = None,
) -> type:
    """Return numba's compiler for functions without wrappers, which only compiled functions call.

    `njit` has no option for it; it takes this class as `pipeline_class`, which numba's guide for
    developers describes, but not what statements consist of. Python that calls such a function gets
    a TypeError.

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

    class Compiler(compiler_with(rules)):  # type: ignore[misc]
        def define_pipelines(self) -> Any:
            """Return numba's list of passes, with the two above."""
            (passes,) = super().define_pipelines()
            passes.add_pass_after(Link, NopythonTypeInference)
            if prepare:
                passes.add_pass_after(Prepare, GenericRewrites)
            passes.finalize()
            return [passes]

    return Compiler
