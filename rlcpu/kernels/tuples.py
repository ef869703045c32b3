"""Operations on tuples in kernels: items whose place is known at run time only, by selects."""

from __future__ import annotations

import operator
from typing import Any, TypeVar

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from rlcpu.kernels import hooks, maths
from rlcpu.kernels.compile import INLINE
from rlcpu.kernels.guard import clamp

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
def _replace(items, i, value):
    if isinstance(items, types.UniTuple | types.NamedUniTuple) and isinstance(i, types.Integer):
        return lambda items, i, value: _put(items, i, value)
    return None


@intrinsic
def _put(typing, items, i, value):
    """Return a tuple with item i replaced; an index outside means its first or last item."""
    if typing.unify_pairs(items.dtype, value) is None:
        return None

    def generate(context, builder, signature, values):
        parts = cgutils.unpack_tuple(builder, values[0])
        at = context.cast(builder, values[1], i, types.intp)
        at = clamp(builder, at, at.type(len(parts)))
        new = context.cast(builder, values[2], value, items.dtype)
        replaced = [_select(builder, at, k, new, part) for k, part in enumerate(parts)]
        return _tuple(context, builder, items, replaced)

    return items(items, i, value), generate


@intrinsic
def swapped(typing, items, i, j):
    """Return a tuple of items of one type with items i and j exchanged."""

    def generate(context, builder, signature, values):
        parts = cgutils.unpack_tuple(builder, values[0])
        first, second = (
            context.cast(builder, value, kind, types.intp)
            for value, kind in zip(values[1:], (i, j), strict=True)
        )
        item_i = item_j = parts[0]
        for k, part in enumerate(parts):
            item_i = _select(builder, first, k, part, item_i)
            item_j = _select(builder, second, k, part, item_j)
        exchanged = [
            _select(builder, first, k, item_j, _select(builder, second, k, item_i, part))
            for k, part in enumerate(parts)
        ]
        return _tuple(context, builder, items, exchanged)

    return items(items, i, j), generate


@overload(any, jit_options=INLINE)
def _any(items):
    if isinstance(items, types.BaseTuple):
        return lambda items: _count(items) > 0
    return None


@overload(all, jit_options=INLINE)
def _all(items):
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
    if isinstance(items, types.BaseTuple) and isinstance(times, types.IntegerLiteral):
        return lambda items, times: _repeated(items, times)
    return None


@intrinsic(prefer_literal=True)
def _repeated(typing, items, times):
    if not isinstance(times, types.IntegerLiteral):
        return None
    count = max(times.literal_value, 0)
    kind = types.BaseTuple.from_types(tuple(items.types) * count)

    def generate(context, builder, signature, values):
        return _tuple(context, builder, kind, cgutils.unpack_tuple(builder, values[0]) * count)

    return kind(items, times), generate


def _replaced(context, builder, old_kind, kind, value, new):
    """Return a named tuple of another kind with new values of some fields: `_replace`.

    `new` has these values and their types, by field; see `teach_replace`.
    """
    parts = cgutils.unpack_tuple(builder, value)
    for k, name in enumerate(kind.fields):
        part, part_kind = new.get(name, (parts[k], old_kind.types[k]))
        parts[k] = context.cast(builder, part, part_kind, kind.types[k])
    return _tuple(context, builder, kind, parts)


hooks.teach_replace(_replaced)


def _select(builder: Any, at: Any, k: int, value: Any, other: Any) -> Any:
    """Return `value` where `at` is k, else `other`."""
    return builder.select(builder.icmp_signed("==", at, at.type(k)), value, other)


def _tuple(context: Any, builder: Any, kind: Any, parts: list[Any]) -> Any:
    return hooks.borrowed(context, builder, kind, context.make_tuple(builder, kind, parts))
