"""What states and observations are made of, and how memory holds it: as rows of real numbers.

A state is a tuple of floats, or a NamedTuple of floats, whole numbers, bools and boards; an
observation is a tuple of floats, one whole number, or a tuple of boards. Kernels keep each as rows
of numbers of the environment's dtype: a whole number by its bits, a board as four words in float32
and as two in float64. So one memory, one loop and one file format serve all of them.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from rlcpu.envs.engine.arrays import ArrayLayout
from rlcpu.kernels.boards import BOARD, Board
from rlcpu.kernels.compile import define, inline, source_of_tuple

Array = npt.NDArray[Any]
#: Kinds of a value, and the type hints that name them.
_KINDS: dict[Any, str] = {float: "float", int: "int", bool: "bool", Board: "board"}
_DTYPES = {"int": np.int64, "bool": np.bool_, "board": np.uint64}
#: Whole numbers that a state keeps: 32 bits in float32, 64 in float64.
_INT_TYPES: dict[Any, Any] = {np.float32: np.int32, np.float64: np.int64}


class Field(NamedTuple):
    """One field of a state or an observation.

    Attributes:
        name: as the NamedTuple has it; "" in a plain tuple.
        kind: "float", "int", "bool" or "board"; "array" of an observation that is written.
        size: values of a tuple; 0 for a single one.
    """

    name: str
    kind: str
    size: int

    def rows(self, dtype: type) -> int:
        """Return the number of rows of memory that hold it."""
        each = 16 // np.dtype(dtype).itemsize if self.kind == "board" else 1
        return each * max(self.size, 1)


class Layout(NamedTuple):
    """The fields of a state or an observation.

    Attributes:
        made: the class that holds them; None for a plain tuple.
        fields: in their order. A plain tuple is one field.
    """

    made: Any
    fields: tuple[Field, ...]

    @property
    def is_record(self) -> bool:
        """Tell whether a state is one record of memory, as one with arrays is."""
        return False

    def rows(self, dtype: type) -> int:
        """Return the number of rows of memory that hold it."""
        return sum(field.rows(dtype) for field in self.fields)

    @property
    def is_plain(self) -> bool:
        """Tell whether a state is a tuple of floats, whose rows are what users see."""
        return self.made is None and self.fields[0].kind == "float" and self.fields[0].size > 0

    def places(self, dtype: type) -> list[tuple[Field, int]]:
        """Return each field and its first row."""
        firsts = np.cumsum([0, *(field.rows(dtype) for field in self.fields)]).tolist()
        return list(zip(self.fields, firsts, strict=False))

    def real_spans(self, dtype: type) -> list[tuple[int, int]]:
        """Return first row and count of each run of rows that hold floats."""
        spans: list[tuple[int, int]] = []
        for field, row in self.places(dtype):
            if field.kind == "float":
                joins = bool(spans) and sum(spans[-1]) == row
                first, count = spans.pop() if joins else (row, 0)
                spans.append((first, count + max(field.size, 1)))
        return spans

    def states(self, rows: Array) -> list[Any]:
        """Return n plain values, copies, from (n, rows) of memory."""
        columns = []
        for field, place in self._slices(rows.dtype.type):
            values = decode_field(field, rows[:, place]).tolist()
            if field.kind == "board":
                boards = [_boards(value if field.size else [value]) for value in values]
                values = boards if field.size else [board for (board,) in boards]
            columns.append([tuple(v) for v in values] if field.size else values)
        if self.made is None:
            return columns[0]
        return [self.made(*items) for items in zip(*columns, strict=True)]

    def memory(self, states: Sequence[Any], dtype: type) -> Array:
        """Return (n, rows) of the memory of plain values."""
        held = zip(*([(x,) for x in states] if self.made is None else states), strict=True)
        rows = []
        for field, column in zip(self.fields, held, strict=True):
            array: Any = column
            if field.kind == "board":
                items = [tuple(item) if field.size else (item,) for item in column]
                words = [[(int(b) & (2**64 - 1), int(b) >> 64) for b in item] for item in items]
                array = np.array(words, np.uint64)
                array = array if field.size else array[:, 0]
            rows.append(encode_field(field, np.array(array), len(states), dtype))
        return np.concatenate(rows, axis=1)

    def columns(self, rows: Array) -> Array:
        """Return n values as (n, numbers) float64, from (n, rows) of memory."""
        columns = []
        for field, place in self._slices(rows.dtype.type):
            values = decode_field(field, rows[:, place])
            if field.kind == "board":
                values = values.reshape(len(values), -1).view(np.uint32)
            columns.append(values.reshape(len(values), -1).astype(np.float64))
        return np.concatenate(columns, axis=1)

    def numbers(self, value: Any) -> list[float]:
        """Return a plain value as floats: a board as its four words of 32 cells."""
        numbers: list[float] = []
        for field, held in zip(self.fields, (value,) if self.made is None else value, strict=True):
            if field.kind == "array":
                numbers += held.ravel().tolist()
                continue
            for item in held if field.size else (held,):
                words = [int(item) >> 32 * k & 0xFFFFFFFF for k in range(4)]
                numbers += map(float, words if field.kind == "board" else [item])
        return numbers

    def get_field(self, name: str, rows: Array) -> Array:
        """Return a copy of a field of n states, from (n, rows) of memory; see `decode_field`.

        Raises:
            AttributeError: there is no such field.
        """
        field, place = self._find(name, rows.dtype.type)
        return decode_field(field, rows[:, place])

    def set_field(self, name: str, values: Any, rows: Array) -> None:
        """Write a field of n states into (n, rows) of their memory.

        Raises:
            AttributeError, TypeError, ValueError: see `States`.
        """
        field, place = self._find(name, rows.dtype.type)
        rows[:, place] = encode_field(field, values, len(rows), rows.dtype.type)

    def _slices(self, dtype: type) -> list[tuple[Field, slice]]:
        """Return each field and its rows of memory."""
        return [(field, slice(k, k + field.rows(dtype))) for field, k in self.places(dtype)]

    def _find(self, name: str, dtype: type) -> tuple[Field, slice]:
        """Return a field by its name, and its rows of memory."""
        for field, place in self._slices(dtype):
            if field.name == name:
                return field, place
        known = ", ".join(field.name for field in self.fields)
        raise AttributeError(f"state has no field {name!r}; it has: {known}", name=name)

    def fault_of(self, value: Any) -> str:
        """Describe the fault of a plain value; "" for none."""
        made: Any = self.made
        if made is None:
            return _fault_of_field(self.fields[0], value)
        if type(value) is not made:
            return f"a {made.__name__}; returned {value!r}"
        for field, item in zip(self.fields, value, strict=True):
            fault = _fault_of_field(field, item)
            if fault:
                return f"{made.__name__}.{field.name} as {fault}"
        return ""

    def __str__(self) -> str:
        if self.fields[0].name == "":
            return f"{self.fields[0].size} floats"
        items = (f"{f.name}: {f.kind}{f' x {f.size}' if f.size else ''}" for f in self.fields)
        return ", ".join(items)


def floats(count: int) -> Layout:
    """Return the layout of a plain tuple of floats."""
    return Layout(None, (Field("", "float", count),))


def layout_of(value: Any, what: str) -> Layout:
    """Return the layout of a state that was returned by `reset`.

    Args:
        value: a tuple of floats, or a NamedTuple with type hints.
        what: whose it is, for errors.

    Raises:
        TypeError: a NamedTuple has a field of another type than float, int, bool, Board or a tuple
            of a fixed number of one of these.
    """
    kind = type(value)
    if not isinstance(value, tuple) or not hasattr(kind, "_fields"):
        return floats(max(len(value), 1) if isinstance(value, tuple) else 1)
    try:
        hints = typing.get_type_hints(kind)
    except NameError as error:
        raise TypeError(
            f"{what}: the type hints of {kind.__name__} cannot be read: {error}"
        ) from None
    return Layout(kind, tuple(_field(name, hints.get(name), kind, what) for name in kind._fields))


def _field(name: str, hint: Any, made: type, what: str) -> Field:
    items = typing.get_args(hint) if typing.get_origin(hint) is tuple else (hint,)
    count = len(items) if typing.get_origin(hint) is tuple else 0
    if len(set(items)) != 1 or items[0] not in _KINDS:
        shown = getattr(hint, "__name__", hint) if count == 0 else hint
        raise TypeError(
            f"{what}: the field {name} of {made.__name__} has the type hint {shown}: expected "
            "float, int, bool, Board, or a tuple of a fixed number of these, as tuple[int, int]"
        )
    return Field(name, _KINDS[items[0]], count)


def holds_whole(layout: Layout | ArrayLayout, value: Any) -> bool:
    """Tell whether a plain tuple of floats holds a whole number or a bool in their place."""
    return layout.is_plain and not all(isinstance(item, float | np.floating) for item in value)


# ---------------------------------------------------------------- checks of plain values


def is_real(value: Any) -> bool:
    """Tell whether a plain value is a number that a float can be: whole numbers and bools, too."""
    known = isinstance(value, float | int | np.floating | np.integer | np.bool_)
    return known and not isinstance(value, Board)


_WANTED = {"float": "float", "int": "int", "bool": "bool", "board": "Board"}


def _fault_of_field(field: Field, value: Any) -> str:
    name = _WANTED[field.kind]
    if field.size == 0:
        return _fault_of_one(field.kind, value, f"{'an' if name == 'int' else 'a'} {name}")
    wanted = f"a tuple of {field.size} {name}s"
    if not isinstance(value, tuple) or len(value) != field.size:
        size = f" {len(value)}:" if isinstance(value, tuple) else ""
        return f"{wanted}; returned{size} {value!r}"
    faults = (_fault_of_one(field.kind, item, wanted, value) for item in value)
    return next(filter(None, faults), "")


def _fault_of_one(kind: str, value: Any, wanted: str, shown: Any = None) -> str:
    shown = value if shown is None else shown
    is_bool = isinstance(value, bool | np.bool_)
    if kind == "float":
        if not is_real(value):
            return f"{wanted}; returned {shown!r}"
        if not math.isfinite(value):
            return f"{wanted}, finite; returned {shown!r}"
    elif kind == "bool":
        if not is_bool:
            return f"{wanted} (True, not 1); returned {shown!r}"
    elif kind == "board":
        if not isinstance(value, Board):
            return f"{wanted}; returned {shown!r}"
    elif is_bool or not isinstance(value, int | np.integer) or isinstance(value, Board):
        return f"{wanted}; returned {shown!r}"
    elif not -(2**31) <= value < 2**31:
        return f"{wanted} of 32 bits; returned {shown!r}"
    return ""


# ---------------------------------------------------------------- what kernels inline


@functools.cache
def make_decode(layout: Layout, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function: a tuple of rows -> what they hold.

    It is an intrinsic, as are the next two: of Python that numba reads row after row, Seaquest's
    state of a hundred rows made a third of the time in which its step compiled.
    """
    if layout.is_plain:
        return _identity
    word = types.uint32 if dtype is np.float32 else types.uint64

    @intrinsic
    def decode(typing, rows):
        made = _type_of(layout, from_dtype(np.dtype(dtype)))

        def one(context, builder, kind, row):
            if kind == "float":
                return next(row)
            if kind != "board":
                whole = builder.bitcast(next(row), ir.IntType(word.bitwidth))
                number = builder.sext(whole, _I64) if word.bitwidth < 64 else whole
                return number if kind == "int" else builder.icmp_signed("!=", number, _I64(0))
            board = cgutils.create_struct_proxy(BOARD)(context, builder)
            for name in ("low", "high"):
                parts = [builder.bitcast(next(row), ir.IntType(word.bitwidth))]
                if word.bitwidth == 32:
                    parts.append(builder.bitcast(next(row), ir.IntType(32)))
                    low, high = (builder.zext(part, _I64) for part in parts)
                    parts = [builder.or_(low, builder.shl(high, _I64(32)))]
                setattr(board, name, parts[0])
            return board._getvalue()

        def generate(context, builder, signature, args):
            row, values = iter(cgutils.unpack_tuple(builder, args[0])), []
            kinds = made.types if layout.made is not None else [made]
            for field, kind in zip(layout.fields, kinds, strict=True):
                items = [one(context, builder, field.kind, row) for _ in range(max(field.size, 1))]
                values.append(context.make_tuple(builder, kind, items) if field.size else items[0])
            whole = layout.made is not None
            return context.make_tuple(builder, made, values) if whole else values[0]

        return made(rows), generate

    return decode


@functools.cache
def make_encode(layout: Layout, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function: a value -> the tuple of rows that hold it."""
    if layout.is_plain:
        return _identity
    count = layout.rows(dtype)

    @intrinsic
    def encode(typing, value):
        real = from_dtype(np.dtype(dtype))
        rows, made, bits = types.UniTuple(real, count), _type_of(layout, real), real.bitwidth

        def rows_of(context, builder, kind, held):
            number = context.get_value_type(real)
            if isinstance(kind, types.BaseTuple):
                parts = zip(kind.types, cgutils.unpack_tuple(builder, held), strict=True)
                return [row for part in parts for row in rows_of(context, builder, *part)]
            if kind == real:
                return [held]
            if kind != BOARD:
                whole = context.cast(builder, held, kind, types.Integer.from_bitwidth(bits))
                return [builder.bitcast(whole, number)]
            board = cgutils.create_struct_proxy(BOARD)(context, builder, held)
            words = [board.low, board.high]
            if bits == 32:
                halves = [half for x in words for half in (x, builder.lshr(x, _I64(32)))]
                words = [builder.trunc(half, ir.IntType(32)) for half in halves]
            return [builder.bitcast(word, number) for word in words]

        def generate(context, builder, signature, args):
            held = _converted(context, builder, made, value, args[0])
            return context.make_tuple(builder, rows, rows_of(context, builder, made, held))

        return rows(value), generate

    return encode


@functools.cache
def make_select(layout: Layout, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (condition, x, y) -> x where the condition holds, else y."""
    if layout.is_plain:
        items = source_of_tuple(
            f"x[{k}] if condition else y[{k}]" for k in range(layout.fields[0].size)
        )
        return inline(define(f"def select(condition, x, y): return {items}"))

    @intrinsic
    def select(typing, condition, x, y):
        made = _type_of(layout, from_dtype(np.dtype(dtype)))

        def choose(builder, condition, x, y):
            if not isinstance(x.type, ir.Aggregate):
                return builder.select(condition, x, y)
            for k in range(len(x.type)):
                items = builder.extract_value(x, k), builder.extract_value(y, k)
                x = builder.insert_value(x, choose(builder, condition, *items), k)
            return x

        def generate(context, builder, signature, args):
            held = [
                _converted(context, builder, made, kind, value)
                for kind, value in zip((x, y), args[1:], strict=True)
            ]
            return choose(builder, args[0], *held)

        return made(types.boolean, x, y), generate

    return select


@inline
def _identity(rows):
    return rows


_I64 = ir.IntType(64)


def _type_of(layout: Layout, real: Any) -> Any:
    """Return numba's type of the values that are kept."""
    each = {"float": real, "int": types.int64, "bool": types.boolean, "board": BOARD}
    kinds = [
        types.UniTuple(each[field.kind], field.size) if field.size else each[field.kind]
        for field in layout.fields
    ]
    return kinds[0] if layout.made is None else types.BaseTuple.from_types(kinds, layout.made)


def _converted(context: Any, builder: Any, made: Any, kind: Any, value: Any) -> Any:
    """Convert a value of numba's type `kind` to another, whose numbers may be of other types."""
    if kind == made or not isinstance(made, types.BaseTuple):
        return value if kind == made else context.cast(builder, value, kind, made)
    parts = zip(made.types, kind.types, cgutils.unpack_tuple(builder, value), strict=True)
    return context.make_tuple(builder, made, [_converted(context, builder, *p) for p in parts])


# ---------------------------------------------------------------- arrays of many values


def decode_field(field: Field, rows: Array) -> Array:
    """Return the values of a field in all environments.

    Args:
        field: the field.
        rows: (n, field's rows), of the environment's dtype.

    Returns:
        (n,) or (n, count), of the dtype, int64, bool or, for boards, uint64 with one more axis of
        length 2: the low and the high word. A copy.
    """
    n, values = len(rows), np.array(rows, order="C")
    if field.kind == "board":
        words = values.view(np.uint64)
        return words.reshape(n, field.size, 2) if field.size else words.reshape(n, 2)
    if field.kind not in ("float", "array"):
        values = values.view(_INT_TYPES[rows.dtype.type]).astype(_DTYPES[field.kind])
    return values if field.size else values[:, 0]


def encode_field(field: Field, values: Any, n: int, dtype: type) -> Array:
    """Return the rows (n, field's rows) of the values of a field in n environments.

    Raises:
        TypeError, ValueError: another kind of dtype or shape, numbers that are not finite, or whole
            numbers that the rows cannot hold.
    """
    array, name = np.asarray(values), f"state.{field.name}"
    kinds = {"float": "fiu", "int": "iu", "bool": "b", "board": "u"}[field.kind]
    if array.dtype.kind not in kinds:
        wanted = {"float": "real", "int": "integer", "bool": "bool", "board": "uint64"}[field.kind]
        raise TypeError(f"{name} has dtype {array.dtype}: expected {wanted} numbers")
    shape = (n, *((field.size,) if field.size else ()), *((2,) if field.kind == "board" else ()))
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}: expected {shape}")
    if field.kind == "float":
        with np.errstate(over="ignore"):
            array = array.astype(dtype)
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity: expected finite numbers")
    elif field.kind == "board":
        array = np.ascontiguousarray(array, np.uint64).view(dtype)
    else:
        limits = np.iinfo(_INT_TYPES[dtype])
        if array.size and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
            raise ValueError(
                f"{name} holds {array.min()} to {array.max()}: expected {limits.bits} bits"
            )
        array = array.astype(_INT_TYPES[dtype]).view(dtype)
    return array.reshape(n, -1)


def _boards(words: list[list[int]]) -> list[Board]:
    return [Board(low | high << 64) for low, high in words]


def check_layout(dynamics: Any, held: Layout) -> None:
    """Raise ValueError if states were pickled in another layout than the environment has now."""
    if held.fields != dynamics.state.fields:
        raise ValueError(
            f"{dynamics.id} had a state of {held} when it was pickled and has {dynamics.state} now"
        )


def with_fields(layout: Layout | ArrayLayout, rows: Array, values: dict[str, Any]) -> Array:
    """Overwrite some fields in states (n, rows of memory), and return these.

    Raises:
        AttributeError, TypeError, ValueError: see `States`.
    """
    for name, value in values.items():
        layout.set_field(name, value, rows)
    return rows


class States:
    """The states of N environments, a field at a time: `env.state.speed`.

    Reading a field gives a copy, assigning an array to it sets it in all environments: float (N,)
    of the environment's dtype, int (N,) int64, bool (N,), and `Board` (N, 2) uint64, the words of
    cells 0 to 63 and of 64 to 127; a tuple of k of these has one more axis, (N, k), and an `Array`
    those of its shape, (N, *shape) of its dtype. `env.state =
    other` sets all fields, from the `state` of another environment, or from the NamedTuple of the
    state with arrays in its fields.

    Raises:
        AttributeError: there is no such field.
        TypeError, ValueError: an array of another kind of dtype, shape or range; nothing is set
            then.
    """

    _layout: Layout | ArrayLayout
    _get: Callable[[], Array]
    _put: Callable[[Array], None]

    def __init__(
        self,
        layout: Layout | ArrayLayout,
        get: Callable[[], Array],
        put: Callable[[Array], None],
    ) -> None:
        vars(self).update(_layout=layout, _get=get, _put=put)

    def __getattr__(self, name: str) -> Array:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._layout.get_field(name, self._get())

    def __setattr__(self, name: str, value: Any) -> None:
        self._put(with_fields(self._layout, self._get(), {name: value}))

    def _asdict(self) -> dict[str, Array]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in self._layout.fields}

    def __dir__(self) -> list[str]:
        return [field.name for field in self._layout.fields]

    def __repr__(self) -> str:
        items = (f"{name}={values!r}" for name, values in self._asdict().items())
        return f"States({', '.join(items)})"
