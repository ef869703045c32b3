"""What kernels see of a record: a state with arrays, or a group of observations that is written."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from rlcpu.envs.engine.arrays import ArrayLayout
from rlcpu.kernels.memory import pointer_at


@functools.cache
def make_state_at(layout: ArrayLayout, dtype: type) -> tuple[Any, Any]:
    """Intrinsics (rows, i) -> the record of lane i, and (record), which fills it with zeros."""
    kind = _record_type(layout.record(dtype))
    size = layout.record(dtype).itemsize

    @intrinsic
    def state_at(typing, rows, i):
        def generate(context, builder, signature, args):
            first = pointer_at(context, builder, rows, args[0], _I64(0), to=ir.IntType(8))
            place = builder.gep(first, [builder.mul(args[1], _I64(size))])
            return builder.bitcast(place, context.get_value_type(kind))

        return kind(rows, types.intp), generate

    @intrinsic
    def clear(typing, record):
        def generate(context, builder, signature, args):
            place = builder.bitcast(args[0], ir.IntType(8).as_pointer())
            cgutils.memset(builder, place, _I64(size), 0)
            return context.get_dummy_value()

        return types.void(record), generate

    return state_at, clear


_I64 = ir.IntType(64)


class _Bools(types.NestedArray):
    """Type of an array of bools in a record, which numba lacks: one byte each, as in NumPy."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        types.Array.__init__(self, types.boolean, len(shape), "C", name=f"bools({shape})")

    @property
    def size(self) -> int:
        """Bytes of an item."""
        return 1


register_model(_Bools)(models.NestedArrayModel)


def _record_type(record: np.dtype[Any]) -> Any:
    """Numba's type of a structured dtype."""
    fields = []
    for name in record.names or ():
        kind, offset = record.fields[name][:2]  # type: ignore[index]
        is_bools = kind.base == np.bool_ and kind.shape
        field_type = _Bools(kind.shape) if is_bools else from_dtype(kind)
        fields.append((name, {"type": field_type, "offset": offset, "title": None}))
    return types.Record(fields, record.itemsize, aligned=True)
