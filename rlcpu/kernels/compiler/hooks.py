"""What we use of numba and llvmlite that is not made for users.

The extension interface (`numba.extending`, numba's types, `cgutils`, llvmlite's builder) is
documented, and used wherever code is generated. What stands here is not, and any release may change
it; so it is with `rlcpu.kernels.compiler.linking`, a compiler of our own, and
`rlcpu.kernels.compiler.statements`, and with no other file. Each function says why it is needed and
what was tried in its place; `tests/kernels/test_hooks.py` has a test for each, which names the one
that an upgrade broke.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from llvmlite import ir as llvm
from numba import types
from numba.core import caching, cgutils, codegen, errors, imputils, serialize
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    builtin_registry,
    signature,
)
from numba.extending import lower_cast, overload_method

# ---------------------------------------------------------------- settings and the machine


def setting(name: str) -> Any:
    """Return a setting of numba, as the environment variable NUMBA_... or a default has it.

    The variables are documented and `numba.config` is not, but for NUMBA_NUM_THREADS. To read the
    environment leaves out numba's files of settings, its defaults, and what each of them implies.
    """
    return getattr(numba.config, name)


def host_features() -> str:
    """Return the features of this machine's processor, as in "+avx2,-avx512f".

    llvmlite has them publicly, but numba changes them, for NUMBA_ENABLE_AVX and on some systems.
    """
    return str(codegen.get_host_cpu_features())


# ---------------------------------------------------------------- dispatchers


def set_cache(dispatcher: Any, cache: Any) -> None:
    """Let a compiled function keep its machine code in another cache.

    `njit(cache=True)` is public. It cannot tell what a function closes over: see
    `rlcpu.kernels.compiler.cache`.
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

    def implementation(kinds: Any, keywords: Any) -> Any:
        """Return the function that is compiled for types, where numba has the dispatcher's."""
        return choose(kinds) or dispatcher.py_func

    dispatcher._compiler._get_implementation = implementation


def forget_code(dispatcher: Any) -> None:
    """Forget all machine code of a compiled function. `recompile`, public, compiles it at once."""
    dispatcher._reset_overloads()


def llvm_of(compiled: Any) -> str:
    """Return LLVM's code, optimised, of what a compiler returned, or of one of `overloads`.

    `inspect_llvm`, public, has none where the code comes out of a cache.
    """
    return str(compiled.library._get_module_for_linking())


def address_of(dispatcher: Any) -> int:
    """Return the address at which C finds a function compiled for one set of types; it never moves.

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

    # `dispatcher.stats.cache_path`, public, needs a function with numba's own cache; `pickle` alone
    # fails for compiled code.
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


# ---------------------------------------------------------------- code generation


def generator_of(typing_context: Any, operation: Any, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the type of an operation's result, and numba's own generator of it.

    An intrinsic that calls another function has no public way to name an operator. `kinds` are the
    types of its arguments, and `generate(context, builder, values)` emits the code.
    """
    kind = typing_context.resolve_value_type(operation)  # of the operator, which is a function
    signature = kind.get_call_type(typing_context, kinds, {})

    def generate(context: Any, builder: Any, values: Any) -> Any:
        """Emit the operation on LLVM's values of the types `kinds`."""
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

    Args:
        make: (context, builder, tuple type, type of the result, old value, new values by field,
            with their types) -> the result.
    """

    class Replace(AbstractTemplate):
        key = "_replace"

        def generic(self, args: Any, kws: Any) -> Any:
            """Return the signature of `_replace` for types of arguments."""
            if args:
                raise errors.TypingError("it gives _replace a value without the name of its field")
            return _signature_of_replace(self.this, kws, self.context)

    def resolve(kind: Any, name: str) -> Any:
        """Return the type of an attribute of a named tuple, if it is the method."""
        return types.BoundFunction(Replace, kind) if name == "_replace" else None

    resolve_attributes(types.BaseNamedTuple, resolve)

    @numba.extending.lower_builtin("_replace", types.BaseNamedTuple, types.VarArg(types.Any))
    def lower(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        """Emit the tuple with new values for the fields that were given."""
        kind, *new_kinds = sig.args
        old, *new = values
        replaced = {
            name: (value, new_kind)
            for name, value, new_kind in zip(kind.fields, new, new_kinds, strict=True)
            if not isinstance(new_kind, types.Omitted)
        }
        return make(context, builder, kind, sig.return_type, old, replaced)


def _signature_of_replace(kind: Any, new: dict[str, Any], context: Any) -> Any:
    """Return the signature of `_replace` of a type of named tuples, given new types of fields.

    A name for each field lets numba sort keywords into one argument a field, `Omitted` where none
    was given. A field keeps its type, unless a real number replaces a whole one.
    """
    for name in new:
        if name not in kind.fields:
            text = f"it replaces {name}, which {kind.instance_class.__name__} has not"
            raise errors.TypingError(text)
    field_types, arguments, names = [], [], []
    for name, old in zip(kind.fields, kind.types, strict=True):
        argument = new.get(name, types.Omitted(None))
        joined = None if name not in new else context.unify_pairs(old, types.unliteral(argument))
        stays_real = isinstance(old, types.Float) and isinstance(argument, types.Integer)
        # Where there is no common type, it fails when the value is converted to the field's.
        field_types.append(old if joined is None or stays_real else joined)
        arguments.append(argument)
        by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names.append(inspect.Parameter(name, by_name, default=None))
    result = types.BaseTuple.from_types(field_types, kind.instance_class)
    typed = signature(result, *arguments, recvr=kind)
    return typed.replace(pysig=inspect.Signature(names))


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


@lower_cast(types.BaseNamedTuple, types.BaseNamedTuple)
def _convert_items(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    """Convert the items of a NamedTuple, which numba has for other tuples alone."""
    parts = zip(cgutils.unpack_tuple(builder, value, len(kind)), kind, wanted, strict=True)
    items = [context.cast(builder, *part) for part in parts]
    return context.make_tuple(builder, wanted, items)
