"""Operations on tuples in kernels: items whose place is known at run time only, by selects.

A tuple in a kernel is a value of its own for each item, which has no address. So an item whose
place is known at run time only is one of a chain of selects. What intrinsics and their generators
are is said in `rlcpu.kernels.machine.vectors`.
"""

from __future__ import annotations

import operator
from typing import Any, TypeVar

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from rlcpu.kernels.compiler import hooks, maths
from rlcpu.kernels.compiler.compile import INLINE
from rlcpu.kernels.compiler.guard import clamp

Item = TypeVar("Item")


def replace(items: tuple[Item, ...], i: int, value: Item) -> tuple[Item, ...]:
    """Return the tuple with another item i; a negative i counts from the end.

    For states, which are made anew and not changed: `cells = replace(cells, i, 1)`. In a kernel an
    i outside of the tuple means its first or last item, as for a table, and all items are of one
    type.

    Raises:
        TypeError: items is no tuple.
        IndexError: i is outside of it; in plain Python.

    Example:
        >>> replace((0, 0, 0), 1, 5)
        (0, 5, 0)
    """
    if not isinstance(items, tuple):
        raise TypeError(f"items={items!r}: expected a tuple, got {type(items).__name__}")
    if not -len(items) <= i < len(items):
        raise IndexError(f"i={i} is outside of a tuple of {len(items)} items")
    i %= len(items)
    to_kind: Any = getattr(items, "_make", tuple)  # of a NamedTuple one of its class
    replaced: tuple[Item, ...] = to_kind((*items[:i], value, *items[i + 1 :]))
    return replaced


maths.OVERLOADED.add(replace)


@overload(replace, jit_options=INLINE)
def _replace_item(items, i, value):
    """Teach numba `replace`, of tuples whose items are of one type."""
    if isinstance(items, types.UniTuple | types.NamedUniTuple) and isinstance(i, types.Integer):
        return lambda items, i, value: _replaced_item(items, i, value)
    return None


@intrinsic
def _replaced_item(typing, items, i, value):
    """Return a tuple with item i replaced; an index outside means its first or last item."""
    if typing.unify_pairs(items.dtype, value) is None:
        return None

    def generate(context, builder, signature, args):
        old, index, new = args
        parts = cgutils.unpack_tuple(builder, old)
        index = context.cast(builder, index, i, types.intp)
        index = clamp(builder, index, index.type(len(parts)))
        new = context.cast(builder, new, value, items.dtype)
        replaced = [_select(builder, index, k, new, part) for k, part in enumerate(parts)]
        return _tuple(context, builder, items, replaced)

    return items(items, i, value), generate


@intrinsic
def swapped(typing, items, i, j):
    """Return a tuple of items of one type with items i and j exchanged."""

    def generate(context, builder, signature, args):
        old, *indices = args
        parts = cgutils.unpack_tuple(builder, old)
        first, second = (
            context.cast(builder, index, kind, types.intp)
            for index, kind in zip(indices, (i, j), strict=True)
        )
        item_i = item_j = parts[0]
        for k, part in enumerate(parts):
            item_i = _select(builder, first, k, part, item_i)
            item_j = _select(builder, second, k, part, item_j)
        exchanged = []
        for k, part in enumerate(parts):
            without_j = _select(builder, second, k, item_i, part)
            exchanged.append(_select(builder, first, k, item_j, without_j))
        return _tuple(context, builder, items, exchanged)

    return items(items, i, j), generate


@overload(any, jit_options=INLINE)
def _any(items):
    """Teach numba `any` of a tuple."""
    if isinstance(items, types.BaseTuple):
        return lambda items: _count(items) > 0
    return None


@overload(all, jit_options=INLINE)
def _all(items):
    """Teach numba `all` of a tuple."""
    if isinstance(items, types.BaseTuple):
        return lambda items: _count(items) == len(items)
    return None


@intrinsic
def _count(typing, items):
    """Return how many items of a tuple are not 0."""

    def generate(context, builder, signature, values):
        total = context.get_constant(types.intp, 0)
        parts = zip(items.types, cgutils.unpack_tuple(builder, values[0]), strict=True)
        for kind, part in parts:
            is_set = context.is_true(builder, kind, part)
            total = builder.add(total, builder.zext(is_set, total.type))
        return total

    return types.intp(items), generate


@overload(operator.mul, jit_options=INLINE, prefer_literal=True)
def _repeat(items, times):
    """Teach numba `items * times` of a tuple and a constant."""
    if isinstance(items, types.BaseTuple) and isinstance(times, types.IntegerLiteral):
        return lambda items, times: _repeated(items, times)
    return None


@intrinsic(prefer_literal=True)
def _repeated(typing, items, times):
    """Return a tuple so many times: a constant, because the type of the result depends on it."""
    if not isinstance(times, types.IntegerLiteral):
        return None
    count = max(times.literal_value, 0)
    kind = types.BaseTuple.from_types(tuple(items.types) * count)

    def generate(context, builder, signature, values):
        return _tuple(context, builder, kind, cgutils.unpack_tuple(builder, values[0]) * count)

    return kind(items, times), generate


def _with_new_fields(context, builder, old_kind, kind, value, new):
    """Emit a named tuple of the type `kind` with new values of some fields: method `_replace`.

    `value`, of the type `old_kind`, has the others; `new` has, by field, pairs of a value and its
    type.
    """
    parts = cgutils.unpack_tuple(builder, value)
    for k, name in enumerate(kind.fields):
        part, part_kind = new.get(name, (parts[k], old_kind.types[k]))
        parts[k] = context.cast(builder, part, part_kind, kind.types[k])
    return _tuple(context, builder, kind, parts)


hooks.teach_replace(_with_new_fields)


def _select(builder: Any, index: Any, k: int, value: Any, other: Any) -> Any:
    """Emit `value` where `index` is k, else `other`."""
    return builder.select(builder.icmp_signed("==", index, index.type(k)), value, other)


def _tuple(context: Any, builder: Any, kind: Any, parts: list[Any]) -> Any:
    """Emit a tuple of items, which counts the arrays among them once more."""
    return hooks.borrowed(context, builder, kind, context.make_tuple(builder, kind, parts))
