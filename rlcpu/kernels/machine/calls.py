"""Functions that are compiled once, and called by address with a NamedTuple.

What a kernel calls as numba does is optimised, and written to its file, with it again. A C function
is not (`compile.c_function`), but takes numbers and pointers alone. So a kernel writes the tuple to
its stack, and the function is given a view of it, whose fields are read where they are used:

    kind = kind_of(example)                   # numba's type of what is passed
    address = function_of(body, kind)         # Python: compiles `body(view)`
    call = make_call(kind)                    # kernels: call(address, values)

Who calls functions from a table, one after the other on the same tuple, makes one view for all:

    address = numbered_function_of(body, kind)  # Python: compiles `body(view, number)`
    call = make_numbered_call(lambda view: kind)  # kernels: call(address, view(values), number)

A kernel that passes anything else is not compiled. Addresses are arguments of kernels: they differ
between processes, and machine code is kept.

`view` alone serves large tuples. Numba counts who uses each array of a tuple wherever a variable of
it begins or ends: of tuples of forty arrays that is nearly all code of a kernel. The arrays of a
view belong to nobody: who makes it keeps them alive.

An exception in such a function is printed, and its caller goes on: it must neither raise nor
allocate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, errors, types
from numba.extending import intrinsic, lower_getattr_generic, models, register_model

from rlcpu.kernels.compiler import hooks
from rlcpu.kernels.compiler.compile import c_function, inline_source
from rlcpu.kernels.machine.memory import call_at

# ---------------------------------------------------------------- functions


def kind_of(example: Any) -> Any:
    """Return numba's type of a value; fields of NamedTuples may be types already."""
    if isinstance(example, types.Type):
        return example
    if hasattr(example, "_fields"):
        return types.BaseTuple.from_types(tuple(map(kind_of, example)), type(example))
    typeof: Any = numba.typeof
    return typeof(example)


def function_of(body: Callable[..., Any], kind: Any, **options: Any) -> int:
    """Return the address of `body(view)`, which returns None, for a type of NamedTuples.

    Options are those of `kernel`.
    """
    return c_function(body, (View(kind),), **options)


def numbered_function_of(body: Callable[..., Any], kind: Any) -> int:
    """Return the address of `body(view, number)`, which returns None, for a type of NamedTuples."""
    return c_function(body, (View(kind), types.int64))


def make_call(kind: Any) -> Callable[..., None]:
    """Make `call(address, values)` for kernels: it calls a `function_of` with a NamedTuple.

    `kind` is its type.
    """
    check = _make_check(lambda values: kind)

    @inline_source
    def call(address, values):
        check(values)
        call_at(address, (view(values),))

    return call


def make_numbered_call(kind_of_values: Callable[[Any], Any]) -> Callable[..., None]:
    """Make `call(address, view, number)` for kernels, which calls a `numbered_function_of`.

    `kind_of_values` returns the type of NamedTuples that the function takes, given the type of the
    view that a kernel passes: these may differ in the types of fields.
    """
    check = _make_check(lambda values: View(kind_of_values(values)))

    @inline_source
    def call(address, values, number):
        check(values)
        call_at(address, (values, np.int64(number)))

    return call


def _make_check(expected_of: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Make `check(values)`: a kernel that calls it compiles only with values of the right type.

    `expected_of` returns it, given the type of the values. A function called by address reads
    whatever it is given.
    """

    @intrinsic
    def check(typing, values):
        expected = expected_of(values)
        if values != expected:
            raise errors.TypingError(f"a function is called with {values}: expected {expected}")
        return types.void(values), lambda context, *_: context.get_dummy_value()

    return check


# ---------------------------------------------------------------- views


class View(types.Type):
    """Type of a pointer to a NamedTuple: its fields are read like those of the tuple.

    Fields that are NamedTuples are views themselves.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(f"View({kind})")

    def field(self, name: str) -> tuple[int, Any]:
        """Return the position and type of a field."""
        index = self.kind.fields.index(name)
        return index, self.kind.types[index]


@register_model(View)
class _ViewModel(models.PrimitiveModel):
    """Memory of a view: LLVM's pointer to the tuple."""

    def __init__(self, manager: Any, view: Any) -> None:
        super().__init__(manager, view, manager.lookup(view.kind).get_data_type().as_pointer())


def _field_type(view: View, name: str) -> Any:
    """Return the type of a field as the view has it; None if there is no such field."""
    if name not in view.kind.fields:
        return None
    _, kind = view.field(name)
    return View(kind) if isinstance(kind, types.BaseNamedTuple) else kind


hooks.resolve_attributes(View, _field_type)


@lower_getattr_generic(View)
def _read_field(context, builder, view, place, name):
    """Emit the read of a field; of a NamedTuple its view."""
    index, kind = view.field(name)
    pointer = cgutils.gep_inbounds(builder, place, 0, index)
    if isinstance(kind, types.BaseNamedTuple):
        return pointer
    return context.unpack_value(builder, kind, pointer)


@intrinsic
def view(typing, values):
    """Return the view of a copy of a NamedTuple on the caller's stack."""

    def generate(context, builder, signature, args):
        place = cgutils.alloca_once(builder, context.get_data_type(values))
        unowned = _without_owner(context, builder, values, *args)
        context.pack_value(builder, values, unowned, place)
        return place

    return View(values)(values), generate


@intrinsic
def contents(typing, here):
    """Return the NamedTuple behind a view, all fields of which are read now."""

    def generate(context, builder, signature, args):
        return context.unpack_value(builder, here.kind, args[0])

    return here.kind(here), generate


def make_view(kind: Any) -> Callable[[int], Any]:
    """Make `view_at(address)` for kernels: the view of a NamedTuple that lies in memory."""

    @intrinsic
    def view_at(typing, address):
        def generate(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(View(kind)))

        return View(kind)(types.int64), generate

    return view_at


@intrinsic
def place_of_view(typing, here):
    """Return the address of a view as a whole number, which `prange` passes on to threads."""

    def generate(context, builder, signature, args):
        return builder.ptrtoint(args[0], context.get_value_type(types.int64))

    return types.int64(here), generate


def _without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Emit a value whose arrays belong to nobody: nothing is counted, and nothing freed.

    `kind` is numba's type of the value.
    """
    if isinstance(kind, types.Array):
        array = cgutils.create_struct_proxy(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        items = cgutils.unpack_tuple(builder, value)
        pairs = zip(kind.types, items, strict=True)
        parts = [_without_owner(context, builder, *pair) for pair in pairs]
        return context.make_tuple(builder, kind, parts)
    return value
