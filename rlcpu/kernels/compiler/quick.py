"""Numba's compiler, without what it does for nobody.

A kernel is made of dozens of small functions, and eight tenths of the time in which one compiles
pass in numba's Python, before LLVM sees it. In a block of `quickly` some of that is left out, or
done once: first kernels compile in four fifths of the time, to the same machine code. What is
replaced belongs to numba, and is back in its place at the end of the block. In a release of numba
that nobody has read for it nothing is replaced. `tests/kernels/test_quick.py` has a test for each.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numba
from llvmlite.binding import ffi
from numba import types
from numba.core import (
    base,
    codegen,
    compiler_machinery,
    errors,
    event,
    ir,
    lowering,
    postproc,
    targetconfig,
    transforms,
    typeinfer,
    utils,
)
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typing import context as typing_context
from numba.core.typing import npydecl

from rlcpu.kernels.compiler.linking import makes_no_code

#: The release whose compiler is replaced in parts.
RELEASE = "0.68."

_depth = 0


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Leave out, in a block, what numba does for nobody; other threads compile before or after.

    A block within a block, of a kernel that a kernel compiles on its way, changes nothing.
    """
    global _depth
    with global_compiler_lock, contextlib.ExitStack() as undone:
        if not _depth and numba.__version__.startswith(RELEASE):
            undone.enter_context(_unwatched())
            for owner, name, replacement in replacements():
                before = vars(owner)[name]  # `getattr` would unwrap what is a property or static
                undone.callback(setattr, owner, name, before)
                setattr(owner, name, replacement)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """Tell nobody of calls of LLVM: a first training has 80,000, with two events each."""
    lock: Any = ffi.lib._lock
    with lock._lock:
        watchers, lock._cblist = lock._cblist, []
    try:
        yield
    finally:
        with lock._lock:
            lock._cblist = watchers


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield a class or module of numba, a name in it, and what takes its place in a block."""
    yield targetconfig.TargetConfig, "values", _values
    yield targetconfig.TargetConfig, "__eq__", _is_equal
    yield targetconfig.TargetConfig, "__hash__", _hash
    yield utils, "order_by_target_specificity", _ordered_once(utils.order_by_target_specificity)
    rule = npydecl.NumpyRulesArrayOperator
    yield rule, "generic", _if_given_arrays(rule.generic)
    for contexts in (base.BaseContext, typing_context.BaseContext):
        yield contexts, "refresh", _if_registries_grew(contexts.refresh)
    yield ir.Inst, "_rec_list_vars", _list_variables
    yield postproc.PostProcessor, "run", _without_generators(postproc.PostProcessor.run)
    manager = compiler_machinery.PassManager
    yield manager, "_runPass", _without_clocks(manager._runPass)
    for module in (errors, lowering, typeinfer):
        yield module, "new_error_context", ErrorContext
    if hasattr(errors, "HighlightColorScheme"):  # there is colorama
        yield errors.HighlightColorScheme, "_markup", lambda scheme, text, *style: text
    yield codegen.CPUCodeLibrary, "_optimize_functions", _optimize_functions
    lower = lowering.BaseLower
    yield lower, "create_cfunc_wrapper", _for_machine_code(lower.create_cfunc_wrapper)


# ---------------------------------------------------------------- settings of functions


@functools.cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of a class of settings."""
    return {name: option.default for name, option in kind.options.items()}


def _values(config: Any) -> dict[str, Any]:
    """Return all settings of a function, which numba reads one property after the other."""
    kind: Any = type(config)
    return {**_defaults(kind), **config._values}


def _is_equal(config: Any, other: Any) -> bool:
    """Compare all settings of two functions, unless those that were set are equal already."""
    if not isinstance(other, targetconfig.TargetConfig):
        return NotImplemented
    return config is other or config._values == other._values or _values(config) == _values(other)


@functools.cache
def _hash_of(kind: Any) -> int:
    return hash(tuple(sorted(kind.options)))


def _hash(config: Any) -> int:
    """Return the hash of the names of settings, as numba's does, which reads their values too."""
    kind: Any = type(config)
    return _hash_of(kind)


# ---------------------------------------------------------------- types


def _ordered_once(order: Callable[..., Any]) -> Callable[..., Any]:
    """Sort the implementations of a function once in a block, where numba does for each call."""
    known: dict[Any, Any] = {}

    def ordered(target: Any, templates: Any, fnkey: Any = "") -> Any:
        key = target, tuple(templates)
        if key not in known:
            known[key] = order(target, templates, fnkey)
        return known[key]

    return ordered


def _if_given_arrays(generic: Callable[..., Any]) -> Callable[..., Any]:
    """Look for a loop over arrays only where an operator is given one.

    Numba looks first, and then finds that there was no array.
    """

    def signature_for(rule: Any, args: Any, kws: Any) -> Any:
        kinds = (kind.type if isinstance(kind, types.Optional) else kind for kind in args)
        has_arrays = any(isinstance(kind, types.ArrayCompatible) for kind in kinds)
        return generic(rule, args, kws) if has_arrays else None

    return signature_for


def _if_registries_grew(refresh: Callable[..., Any]) -> Callable[..., Any]:
    """Let a context read what was registered only if there is more, not three times a function."""
    sizes: dict[int, int] = {}  # by the context's id, how much it has read

    def size_of(context: Any) -> int:
        return sum(
            len(getattr(registry, name))
            for registry, loader in context._registries.items()
            for name in loader.registry_items
        )

    def refresh_if_grown(context: Any) -> None:
        if sizes.get(id(context)) != size_of(context):
            refresh(context)
            sizes[id(context)] = size_of(context)  # to refresh may have registered more

    return refresh_if_grown


# ---------------------------------------------------------------- passes

#: Types that hold no variable.
_PLAIN = {ir.Loc, str, int, bool, type(None)}


def _list_variables(statement: Any, value: Any) -> list[Any]:
    """Return the variables in a part of a statement, or in the parts of a list of parts.

    Numba asks what each is an instance of; its classes are abstract, which makes that slow.
    """
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        value = (value,)
    variables: list[Any] = []
    for part in value:
        kind = type(part)
        if kind is ir.Var:
            variables.append(part)
        elif kind not in _PLAIN:
            if isinstance(part, dict | list | tuple):
                variables += _list_variables(statement, part)
            elif isinstance(part, ir.Inst):
                variables += part.list_vars()
    return variables


def _without_generators(run: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out the variables that live at each block's entry, which generators alone need."""

    def postprocess(
        processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False
    ) -> None:
        function = processor.func_ir
        if function.is_generator:
            run(processor, emit_dels, extend_lifetimes)
            return
        function.blocks = transforms.canonicalize_cfg(function.blocks)
        function.variable_lifetime = postproc.VariableLifetime(function.blocks)
        function.generator_info = None
        if emit_dels:
            processor._insert_var_dels(extend_lifetimes=extend_lifetimes)

    return postprocess


def _without_clocks(run: Callable[..., Any]) -> Callable[..., Any]:
    """Run a pass without clocks, checks of numba's own work, and events that nobody listens to.

    Where somebody does, or wants the statements printed, it runs as numba has it.
    """

    def run_pass(manager: Any, index: int, each: Any, state: Any) -> None:
        is_printed = manager._print_after or manager._print_before or manager._print_wrap
        if is_printed or event._registered["numba:run_pass"]:
            run(manager, index, each, state)
            return
        each.analysis = manager._analysis
        with ErrorContext("Pass {name}", name=each.name()):
            is_changed = each.run_initialization(state)
            is_changed |= each.run_pass(state)
            is_changed |= each.run_finalizer(state)
        # A pass that changes which block follows which leaves the rest of the statements stale.
        if manager._ENFORCING and compiler_machinery._pass_registry.get(type(each)).mutates_CFG:
            if is_changed:
                postproc.PostProcessor(state.func_ir).run()
            else:
                state.func_ir.blocks = transforms.canonicalize_cfg(state.func_ir.blocks)

    return run_pass


class ErrorContext:
    """Adds to numba's errors where they came about; numba's own is a generator."""

    __slots__ = ("_format", "_items", "_names")

    def __init__(self, fmt_: str, *items: Any, **names: Any) -> None:
        self._format, self._items, self._names = fmt_, items, names
        loc = names.get("loc")
        if loc is not None and not loc.filename.startswith(errors._numba_path):
            errors.loc_info.update(names)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, errors.NumbaError):
            error.add_context(errors._format_msg(self._format, self._items, self._names))


# ---------------------------------------------------------------- code


def _optimize_functions(library: Any, module: Any) -> None:
    """Optimise the functions of a module by one pass manager, where numba makes one for each."""
    module.data_layout = library._codegen._data_layout
    passes, builder = library._codegen._function_pass_manager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


def _for_machine_code(create: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function for C where there will be machine code for it to call."""

    def create_wrapper(lower: Any) -> None:
        if not makes_no_code(lower.library):
            create(lower)

    return create_wrapper
