"""From plain Python scalar functions to cached machine code.

Two things are built here:

* `specialise` turns a scalar function (plain Python, `math.sin`, float literals) into a function of
  one working dtype that every kernel can inline;
* `kernel` turns a driver loop into a compiled function whose machine code is kept on disk.

Numba's own cache cannot key a kernel by the functions that it closes over: a callee edited in
another file silently runs stale code, and closing over a compiled function misses in every process.
Kernels made here are keyed by a `fingerprint` of everything that they reach instead.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import from_dtype
from numba import types as nbtypes
from numba.core import cgutils
from numba.extending import (
    intrinsic,
    lower_builtin,
    overload,
    register_jitable,
    type_callable,
)

from rlcpu.forks import waited_for
from rlcpu.kernels.compiler import announce, hooks, linking, maths, user_compiler
from rlcpu.kernels.compiler.cache import KernelCache
from rlcpu.kernels.compiler.functions import (
    REGISTERED,
    OfNumbers,
    convert_items,
    forget_frozen,
    freeze,
    has_overload,
    package_of,
    rebuild,
    with_callees,
)

njit = numba.njit

#: Reordering and fused multiply-add are allowed; NaN and infinity keep their meaning, because a
#: diverging simulation has to be seen.
FAST = {"contract", "arcp", "nsz", "reassoc", "afn"}
#: IEEE arithmetic in the order in which it is written.
EXACT = False

#: Options of numba for functions that kernels alone call: those of `inline`.
INLINE: dict[str, Any] = {
    "forceinline": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": linking.linked_compiler(),
}


def inline(
    function: Callable[..., Any] | None = None, *, exact: bool = False, plain: bool = False
) -> Any:
    """Decorator: a function that is inlined where a kernel calls it, compiled once for all kernels.

    Args:
        function: plain Python that numba compiles.
        exact: IEEE arithmetic in the order in which it is written; else the flags of `FAST`.
        plain: the function itself is returned, for Python to call; else Python calls `py_func` of
            what is returned.
    """
    if function is None:
        return functools.partial(inline, exact=exact, plain=plain)
    return _part_of_kernels(function, exact, plain, forceinline=True)


def outline(
    function: Callable[..., Any] | None = None, *, exact: bool = False, plain: bool = False
) -> Any:
    """Decorator: as `inline`, but called: what a kernel uses from several places is optimised once.

    A call passes arrays and tuples number by number; what is much is a struct, see
    `rlcpu.kernels.machine.structs`.
    """
    if function is None:
        return functools.partial(outline, exact=exact, plain=plain)
    return _part_of_kernels(function, exact, plain, forceinline=False)


def _part_of_kernels(
    function: Callable[..., Any], exact: bool, plain: bool, forceinline: bool
) -> Any:
    """Return what kernels call for a function: a compiled one, or itself, registered with numba."""
    options = {**INLINE, "fastmath": EXACT if exact else FAST, "forceinline": forceinline}
    if not plain:
        return njit(**options)(function)
    # A part of the fingerprint of whatever calls it: numba keeps the options elsewhere.
    setattr(function, REGISTERED, (exact, forceinline))
    return register_jitable(**options)(function)


#: Decorator: a function that is written into its callers before they are compiled. One of `inline`
#: is optimised on its own and again in each caller: where large ones stood five deep, that was a
#: third of the time in which PPO's update compiled.
inline_source = njit(inline="always")


def prefer_small_code() -> None:
    """Ask LLVM for small code of the function that calls this.

    Loops that are unrolled and split take twice as long to compile, and gain nothing where memory
    is the limit or where they are short.
    """


def never_inline() -> None:
    """Ask LLVM not to inline the function of `outline` that calls this.

    What is called seldom and from many places is otherwise optimised in each of them.
    """


def prefer_wide_vectors() -> None:
    """Ask LLVM for the widest vectors of the processor in the function that calls this.

    For Intel's it prefers those of 256 bits, because early ones ran slower with 512. Long loops
    over lanes gain where arithmetic is the limit. What Python calls every few microseconds loses:
    Python itself runs slower between wide vectors.
    """


def _define_attribute(function: Callable[[], None], attribute: str) -> None:
    """Let a call of `function` give an attribute of LLVM's to the function that calls it."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        hooks.add_attribute(builder.function, attribute)
        return context.get_dummy_value()

    lower_builtin(function)(lower)
    type_callable(function)(lambda context: lambda: nbtypes.void)
    maths.OVERLOADED.add(function)  # no twin of it has a meaning to numba


_define_attribute(prefer_small_code, "optsize")
_define_attribute(never_inline, "noinline")
_define_attribute(prefer_wide_vectors, '"prefer-vector-width"="512"')


def define(source: str, **namespace: Any) -> Callable[..., Any]:
    """Return the function that `source` defines, which reads the values of `namespace`.

    For code that is unrolled over a size known at run time only.
    """
    scope: dict[str, Any] = {}
    namespace["__name__"] = __name__  # numba finds the globals of cached code by their module
    exec(source, namespace, scope)
    return next(iter(scope.values()))


def tuple_of(kind: type | None, count: int) -> Callable[..., Any]:
    """Make `read(numbers)` for kernels: the tuple, or the NamedTuple of a kind, of `count` numbers.

    They are the first ones of an array.
    """
    items = [f"numbers[{i}]" for i in range(count)]
    is_named = hasattr(kind, "_fields")
    expression = f"Kind({', '.join(items)})" if is_named else source_of_tuple(items)
    return inline_source(define(f"def read(numbers): return {expression}", Kind=kind))


def source_of_tuple(items: Iterable[str]) -> str:
    """Return the source of a tuple of expressions, in parts of 16.

    A longer literal, of 31 items and more, becomes a list first, which numba does not compile.
    Neighbours are joined in pairs, and those in pairs again: each sum copies all of its items, and
    adding one part after the other takes time with the square of their number.
    """
    expressions = list(items)
    parts = [f"({', '.join(expressions[i : i + 16])},)" for i in range(0, len(expressions), 16)]
    while len(parts) > 2:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [f"({' + '.join(pair)})" if len(pair) == 2 else pair[0] for pair in pairs]
    return " + ".join(parts) or "()"


# ---------------------------------------------------------------- specialisation


def plain_tuple(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the items of a NamedTuple as a plain tuple: `tuple` of users' functions in kernels."""
    return tuple(items)


@intrinsic
def _items_of(typing, items):
    """Return the items of a named tuple as a plain one; numba's `tuple` leaves it as it is."""
    kind = nbtypes.BaseTuple.from_types(items.types)

    def generate(context, builder, signature, values):
        parts = cgutils.unpack_tuple(builder, values[0])
        plain = context.make_tuple(builder, kind, parts)
        return hooks.borrowed(context, builder, kind, plain)  # its arrays have one owner more

    return kind(items), generate


@overload(plain_tuple, jit_options=INLINE)
def _plain_tuple(items):
    if isinstance(items, nbtypes.BaseNamedTuple):
        return lambda items: _items_of(items)
    return lambda items: tuple(items)


maths.OVERLOADED.add(plain_tuple)
_lock = waited_for(threading.RLock())
waited_for(linking.compiler_lock)  # after ours, so that forks take it before them
#: Functions that are being specialised: one of them that is asked for again calls itself.
_in_progress: set[Callable[..., Any]] = set()
#: Beginning of the names of modules of networks: their functions index nothing that a user sets.
_NETWORKS = "rlcpu.nn."


def specialise(
    function: Callable[..., Any], dtype: Any, exact: bool = False, arrays: bool = False
) -> Any:
    """Return a twin of a scalar function, for kernels, that computes in one dtype.

    Float constants, float globals (arrays and tuples of floats too) and float defaults become
    `dtype`, plain functions that it calls are specialised in turn, also where they and the
    constants are members of a module, and in float32 `math` means `rlcpu.kernels.compiler.maths`.
    In float64 `math` is libm. Globals are constants of the twin: they are read once, here.

    Args:
        function: plain Python function of numbers and tuples.
        dtype: `np.float32` or `np.float64`, the type of every real number in it.
        exact: keep IEEE semantics and the written order of operations (no contraction).
        arrays: the function is given arrays in memory, which it may slice and write to.

    Indices of a user's function, and of our tasks with arrays, stay inside of what they index; see
    `rlcpu.kernels.compiler.guard`.

    Returns:
        A lazily compiled function, inlined wherever a kernel calls it; the same one for equal code.
        Python calls its `py_func`.

    Raises:
        TypeError: the function is no plain Python function, or calls itself.
    """
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"function={function!r} has to be a plain Python function, as `def` makes it; "
            f"got {type(function).__name__}"
        )
    with _lock:
        target = _Target(np.dtype(dtype).type, bool(exact), bool(arrays))
        return _specialise(freeze(function), target)


class _Target(NamedTuple):
    """Settings for which a function is specialised; see `specialise`."""

    dtype: type
    exact: bool
    arrays: bool


@functools.cache
def _specialise(function: types.FunctionType, target: _Target) -> Any:
    """Return the twin of a frozen function, compiled when it is first called."""
    if function in _in_progress:
        raise TypeError(f"{function.__qualname__} calls itself: kernels cannot inline that")

    def convert(name: str, value: Any) -> Any:
        """Return what the twin reads in the place of a value."""
        return _convert(value, function, target)

    def stays(module: types.ModuleType) -> bool:
        """Tell whether a module is left as it is: NumPy in our mathematics means NumPy itself."""
        return function.__module__ == maths.__name__ or _is_known(module)

    _in_progress.add(function)
    try:
        code = _convert_code(function.__code__, target.dtype)
        twin = rebuild(function, convert, stays, code=code)
    finally:
        _in_progress.discard(function)
    # Python's own would give a float64, and numba's a NamedTuple of one.
    for name, replacement in (("float", target.dtype), ("tuple", plain_tuple)):
        if name not in function.__globals__:
            twin.__globals__[name] = replacement
    if package_of(function) != "rlcpu":
        # Cached code imports its functions' modules. A user's may not be importable under that
        # name in another process, or is a script that would run again: the symbol has the name.
        twin.__qualname__ = f"{function.__module__}.{function.__qualname__}"
        twin.__module__ = twin.__globals__["__name__"] = __name__
    return _compile_lazily(function, twin, target)


def _compile_lazily(function: types.FunctionType, twin: Any, target: _Target) -> Any:
    """Return the compiled function that kernels call for `function`; its code is that of `twin`.

    Of three kinds of functions, those of `maths` compute in the types that they are given; others
    of this library have the type rules of `user_compiler`; where indices may be outside, in users'
    functions and in tasks with arrays, reads and writes of items are guarded too.
    """
    in_maths, arrays = function.__module__ == maths.__name__, target.arrays
    flags: Any = maths.FASTMATH if in_maths else FAST
    # With arrays a step of an environment is long, and is run for one lane after the other, not for
    # all lanes of a register at once: LLVM decides whether to inline it.
    options = {**INLINE, "fastmath": EXACT if target.exact else flags, "forceinline": not arrays}
    real = from_dtype(np.dtype(target.dtype))
    # Users set states to what they like, of our tasks too, and indices may come from a state.
    indexes_arrays = arrays and not function.__module__.startswith(_NETWORKS)
    if package_of(function) != "rlcpu" or indexes_arrays:
        options["pipeline_class"] = user_compiler.user_compiler(arrays, real)
    elif not in_maths:
        options["pipeline_class"] = user_compiler.compiler_of(real)
    specialised = njit(**options)(twin)
    # Read by the compiler for GPUs, in the place of `pipeline_class`. Functions of `maths` have no
    # rules: those of their callers have converted the arguments.
    specialised.rules = None if in_maths else user_compiler.type_rules(real)
    if in_maths:
        # Arguments may be dual numbers, values with their derivatives, which `_other_form` computes
        # by calling the code for plain numbers. It needs a compiled function of its own for that:
        # `specialised` is what is being compiled then.
        of_numbers = njit(**options)(twin)
        form = functools.partial(_other_form, function.__name__, of_numbers)
        hooks.choose_function(specialised, form)
    return specialised


def _other_form(name: str, of_numbers: Any, kinds: Any) -> Any:
    """Return the function that is compiled for a function of `maths` and types of arguments.

    None for the function itself. `of_numbers`, compiled for numbers, is for forms to call: see
    `maths.FORMS`.
    """
    forms = (form(name, of_numbers, kinds) for form in maths.FORMS)
    return next(filter(None, forms), None)


def _convert_code(code: types.CodeType, dtype: type) -> types.CodeType:
    """Return code whose float constants, in tuples and nested functions too, are of a dtype."""

    def constant(value: Any) -> Any:
        """Return what stands in the place of a constant."""
        if isinstance(value, types.CodeType):
            return _convert_code(value, dtype)
        if isinstance(value, tuple):
            return tuple(map(constant, value))
        return dtype(value) if type(value) is float else value

    return code.replace(co_consts=tuple(map(constant, code.co_consts)))


def _convert(value: Any, function: types.FunctionType, target: _Target) -> Any:
    """Return what the twin of `function` reads in the place of a global or closed-over value."""
    dtype = target.dtype
    if type(value) in (float, np.float32, np.float64):
        return dtype(value)
    if isinstance(value, np.ndarray):
        if value.size == 0:  # an index is kept inside of the array: here is none that could be
            shape = f"of {value.shape}, expected items"
            raise TypeError(f"{function.__qualname__} reads an empty array, {shape}")
        table = value.astype(dtype) if value.dtype.kind == "f" else value.view()
        # Numba knows of globals that nothing writes them, and not of members of modules.
        table.flags.writeable = False
        return table
    if isinstance(value, OfNumbers):
        return specialise(value.function, dtype, target.exact)
    if isinstance(value, tuple):
        return convert_items(value, lambda item: _convert(item, function, target))
    # NumPy's ufuncs have had a __module__ since 2.2 only.
    if callable(value) and getattr(value, "__module__", "numpy") in ("math", "numpy"):
        replacements = maths.FLOAT32 if dtype is np.float32 else maths.FLOAT64
        value = replacements.get(getattr(value, "__name__", ""), value)
    if isinstance(value, types.FunctionType) and not has_overload(value):
        return specialise(value, *target)
    return value


def _is_known(module: types.ModuleType) -> bool:
    """Tell whether numba knows what a module holds, and float32 kernels have nothing better."""
    package = package_of(module)
    return package == "numba" or (package == "numpy" and module is not np)


# ---------------------------------------------------------------- kernels


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    parallel: bool = False,
    by_address: bool = False,
    branching: bool = False,
    fastmath: set[str] | bool = FAST,
    scalars: tuple[Any, ...] = (),
    check: Callable[[], None] | None = None,
    subject: str | None = None,
    rules: linking.TypeRules | None = None,
) -> Any:
    """Decorator: a compiled driver whose machine code is kept on disk under its fingerprint.

    Args:
        function: the driver, a loop over arrays that returns None or a scalar.
        parallel: compile `numba.prange` loops for all cores.
        by_address: it is called by `hooks.address_of` alone, and never by Python: what would
            convert objects is left out.
        branching: it takes branches as they come, and has no loop over lanes: what is called from
            one place alone is inlined.
        fastmath: `FAST`, `EXACT` or another named set of flags.
        scalars: specialised functions that have to compute in the dtype they were made for.
        check: called once users' functions are compiled, whether the kernel was or not: raises
            where they return what the kernel cannot take.
        subject: what the kernel is compiled for, as users are told; None takes its package.
        rules: of types in the driver itself; None for numba's.

    Raises:
        TypeError: at the first call, if a function of `scalars` computes in float64 although it
            was specialised to float32; the message names the line.
    """
    if function is None:
        options: dict[str, Any] = {"parallel": parallel, "fastmath": fastmath, "scalars": scalars}
        options |= {"by_address": by_address, "branching": branching}
        options |= {"check": check, "subject": subject, "rules": rules}
        return functools.partial(kernel, **options)
    wrapper = "no_cpython_wrapper" if by_address else "no_cfunc_wrapper"
    options = {"parallel": parallel, "fastmath": fastmath, wrapper: True}
    if rules is not None:
        options["pipeline_class"] = linking.compiler_with(rules)
    dispatcher = njit(nogil=True, error_model="numpy", **options)(function)
    check, name = check or (lambda: None), function.__name__
    cache = KernelCache(dispatcher, functools.partial(_check_or_forget, dispatcher, scalars, check))
    hooks.set_cache(dispatcher, cache)
    subject = subject or ".".join(function.__module__.split(".")[:2])  # such as rlcpu.envs

    def wrap(compile_for: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that compiles as `compile_for` does, and announces it."""

        def compiled(*kinds: Any) -> Any:
            # Not for parallel loops, of which numba makes functions in a way of its own.
            linked = linking.linked_callees(dispatcher, branching) if not parallel else None
            with (
                announce.announced(subject, name),
                _explained(dispatcher, cache, check),
                linked or contextlib.nullcontext(),
            ):
                return compile_for(*kinds)

        return compiled

    hooks.wrap_compiler(dispatcher, wrap)
    return dispatcher


def kernel_in(dtype: Any, function: Callable[..., Any], **options: Any) -> Any:
    """Return the `kernel` of a function whose real numbers are of a dtype, as `specialise` has it.

    It is given arrays in memory, and is the same one for equal code.
    """
    return _kernel_of(specialise(function, dtype, arrays=True), **options)


@functools.cache
def _kernel_of(specialised: Any, **options: Any) -> Any:
    return kernel(specialised.py_func, rules=specialised.rules, **options)


def c_function(
    function: Callable[..., Any], kinds: tuple[Any, ...], dtype: Any = None, **options: Any
) -> int:
    """Return the address of a function compiled for types of numbers and pointers, for `call_at`.

    Kernels that call one another as C does are each compiled once, and only if they are needed.
    What a kernel calls as numba does is optimised, and written to its file, with it again. The
    function returns None, and is compiled and kept on disk as a `kernel`, whose options these are.
    With a dtype it is a `kernel_in` that.
    """
    if dtype is None:
        compiled = kernel(function, by_address=True, **options)
    else:
        compiled = kernel_in(dtype, function, by_address=True, **options)
    compiled.compile(kinds)
    _c_functions.append(compiled)
    return hooks.address_of(compiled)


_c_functions: list[Any] = []  # kept alive: addresses do not


@contextlib.contextmanager
def _explained(kernel: Any, cache: KernelCache, check: Callable[[], None]) -> Iterator[None]:
    """Raise TypeError with one sentence in the place of numba's error in a user's function.

    Whatever is raised, processes that wait for the kernel may compile it. `check` is that of
    `kernel`: what it says of a user's function explains other errors, too.
    """
    try:
        yield
    except BaseException as error:
        cache.end_turn()
        if isinstance(error, numba.errors.NumbaError):
            forget_frozen()
            user_compiler.explain(error, with_callees((kernel,)))
        if isinstance(error, Exception):
            check()
        raise


def _check_or_forget(kernel: Any, scalars: tuple[Any, ...], check: Callable[[], None]) -> None:
    """Run both checks of a kernel on its fresh code; forget the code if one raises.

    All that the kernel reaches is forgotten: a function between the kernel and a scalar holds the
    scalar's code too, and the next attempt would find nothing to check.
    """
    try:
        check()
        user_compiler.check_precision(scalars)
    except TypeError:
        forget_frozen()
        for dispatcher in with_callees((kernel,)):
            hooks.forget_code(dispatcher)
        raise
