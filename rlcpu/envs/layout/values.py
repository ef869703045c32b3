"""The fields of states and observations, and how memory holds them: as rows of floats.

A value (a state or an observation) is a tuple of floats, or a NamedTuple of floats, whole numbers,
bools and boards; an observation may also be one whole number or a tuple of boards. A "plain" value
is the Python object. Memory holds all of them as floats of the environment's dtype, float32 or
float64, some number of "rows" for each value: row r of n values is a vector (n,), and `rows` below
is mostly a matrix (n, number of rows). A whole number or bool takes one row, which has its bits; a
board, 128 bits, takes four rows of float32 or two of float64. So one memory, one loop and one file
format serve every kind of field.

"Encode" means from a value to its rows, "decode" the way back. Kernels do it by intrinsics
(`make_encode`, `make_decode`), NumPy for many environments at once (`encode_field`,
`decode_field`).
"""

from __future__ import annotations

import functools
import itertools
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

from rlcpu.envs.layout.arrays import ArrayLayout
from rlcpu.kernels.machine.boards import BOARD, Board

Array = npt.NDArray[Any]
#: Kinds of a value, and the type hints that name them.
_KINDS: dict[Any, str] = {float: "float", int: "int", bool: "bool", Board: "board"}
_DTYPES = {"int": np.int64, "bool": np.bool_, "board": np.uint64}
#: Whole numbers of the size of a row: 32 bits of a float32, 64 of a float64.
_INT_TYPES: dict[Any, Any] = {np.float32: np.int32, np.float64: np.int64}


class Field(NamedTuple):
    """One field of a state or an observation."""

    #: As the NamedTuple has it; "" where the value is no NamedTuple.
    name: str
    #: "float", "int", "bool" or "board"; "array" where `observe` writes an array.
    kind: str
    #: How many values a field that is a tuple has; 0 for a field that is one value.
    size: int

    def rows(self, dtype: type) -> int:
        """Return the number of rows of `dtype` that hold the field."""
        rows_of_one = 16 // np.dtype(dtype).itemsize if self.kind == "board" else 1
        return rows_of_one * max(self.size, 1)


class Layout(NamedTuple):
    """The fields of a state or an observation, and conversions between plain values and rows.

    In its methods `rows` is the memory of n values, (n, rows), and `dtype` the type of a row.
    """

    #: The NamedTuple that plain values are; None for a tuple or a lone number.
    value_class: Any
    #: In the order of the NamedTuple; a value that is none has one field.
    fields: tuple[Field, ...]

    @property
    def is_record(self) -> bool:
        """Return False: only the memory of `ArrayLayout`, a state with arrays, is a record."""
        return False

    def rows(self, dtype: type) -> int:
        """Return the number of rows of `dtype` that hold a value."""
        return sum(field.rows(dtype) for field in self.fields)

    @property
    def is_plain(self) -> bool:
        """Tell whether a value is a tuple of floats, so that its rows are its numbers."""
        return (
            self.value_class is None and self.fields[0].kind == "float" and self.fields[0].size > 0
        )

    def fields_with_rows(self, dtype: type) -> list[tuple[Field, int]]:
        """Return each field and its first row."""
        firsts = np.cumsum([0, *(field.rows(dtype) for field in self.fields)]).tolist()
        # The last number is the end of all rows, which `zip` leaves out.
        return list(zip(self.fields, firsts, strict=False))

    def float_spans(self, dtype: type) -> list[tuple[int, int]]:
        """Return (first row, number of rows) of each unbroken run of rows that hold floats."""
        spans: list[tuple[int, int]] = []
        for field, row in self.fields_with_rows(dtype):
            if field.kind == "float":
                # A span ends at the sum of its first row and its count.
                continues_last_span = bool(spans) and sum(spans[-1]) == row
                first, count = spans.pop() if continues_last_span else (row, 0)
                spans.append((first, count + max(field.size, 1)))
        return spans

    def to_states(self, rows: Array) -> list[Any]:
        """Return n plain values, copies, of memory (n, rows)."""
        columns = []
        for field, field_rows in self._slices(rows.dtype.type):
            values = decode_field(field, rows[:, field_rows]).tolist()
            if field.kind == "board":  # a list [low, high] of words for each board
                to_board: Any = _tuple_of_boards if field.size else _board
                values = [to_board(words) for words in values]
            columns.append([tuple(value) for value in values] if field.size else values)
        if self.value_class is None:
            return columns[0]
        return [self.value_class(*items) for items in zip(*columns, strict=True)]

    def to_rows(self, states: Sequence[Any], dtype: type) -> Array:
        """Return the memory (n, rows) of n plain values."""
        by_value = [(x,) for x in states] if self.value_class is None else states
        rows = []
        for field, values in zip(self.fields, zip(*by_value, strict=True), strict=True):
            array: Any = values
            if field.kind == "board":  # two words for each board
                boards = itertools.chain(*values) if field.size else values
                words = [(int(board) & (2**64 - 1), int(board) >> 64) for board in boards]
                shape = (len(states), field.size, 2) if field.size else (len(states), 2)
                array = np.array(words, np.uint64).reshape(shape)
            rows.append(encode_field(field, np.array(array), len(states), dtype))
        return np.concatenate(rows, axis=1)

    def rows_as_numbers(self, rows: Array) -> Array:
        """Return all numbers of n values, (n, count) float64: a board as four words of 32 bits."""
        columns = []
        for field, field_rows in self._slices(rows.dtype.type):
            values = decode_field(field, rows[:, field_rows])
            if field.kind == "board":
                values = values.reshape(len(values), -1).view(np.uint32)
            columns.append(values.reshape(len(values), -1).astype(np.float64))
        return np.concatenate(columns, axis=1)

    def as_numbers(self, value: Any) -> list[float]:
        """Return all numbers of a plain value as floats, as `rows_as_numbers` does for many."""
        field_values = (value,) if self.value_class is None else value
        numbers: list[float] = []
        for field, field_value in zip(self.fields, field_values, strict=True):
            if field.kind == "array":
                numbers += map(float, field_value.ravel())
                continue
            for item in field_value if field.size else (field_value,):
                is_board = field.kind == "board"  # 128 bits, four words
                words = [int(item) >> 32 * k & 0xFFFFFFFF for k in range(4)] if is_board else [item]
                numbers += map(float, words)
        return numbers

    def get_field(self, name: str, rows: Array) -> Array:
        """Return a copy of one field of n states; `decode_field` names its shape and dtype.

        Raises:
            AttributeError: the state has no field of this name.
        """
        field, field_rows = self._find(name, rows.dtype.type)
        return decode_field(field, rows[:, field_rows])

    def set_field(self, name: str, values: Any, rows: Array) -> None:
        """Write one field of n states into their memory `rows`, from values as `get_field` gives.

        Raises:
            AttributeError: the state has no field of this name.
            TypeError, ValueError: see `encode_field`; nothing is written then.
        """
        field, field_rows = self._find(name, rows.dtype.type)
        rows[:, field_rows] = encode_field(field, values, len(rows), rows.dtype.type)

    def _slices(self, dtype: type) -> list[tuple[Field, slice]]:
        """Return each field with the slice of its rows."""
        return [
            (field, slice(first, first + field.rows(dtype)))
            for field, first in self.fields_with_rows(dtype)
        ]

    def _find(self, name: str, dtype: type) -> tuple[Field, slice]:
        """Return the field of a name, and the slice of its rows."""
        for field, field_rows in self._slices(dtype):
            if field.name == name:
                return field, field_rows
        known = ", ".join(field.name for field in self.fields)
        raise AttributeError(f"state has no field {name!r}; it has: {known}", name=name)

    def fault_of(self, value: Any) -> str:
        """Return the fault of a plain value, as "a float; returned 'x'"; "" for a good one."""
        value_class: Any = self.value_class
        if value_class is None:
            return _fault_of_field(self.fields[0], value)
        if type(value) is not value_class:
            return f"a {value_class.__name__}; returned {value!r}"
        for field, item in zip(self.fields, value, strict=True):
            fault = _fault_of_field(field, item)
            if fault:
                return f"{value_class.__name__}.{field.name} as {fault}"
        return ""

    def __str__(self) -> str:
        if self.fields[0].name == "":
            return f"{self.fields[0].size} floats"
        items = (f"{f.name}: {f.kind}{f' x {f.size}' if f.size else ''}" for f in self.fields)
        return ", ".join(items)


def floats(count: int) -> Layout:
    """Return the layout of a tuple of `count` floats."""
    return Layout(None, (Field("", "float", count),))


def layout_of(value: Any, subject: str) -> Layout:
    """Return the layout of a state that was returned by `reset`.

    Args:
        value: a tuple of floats, or a NamedTuple with type hints.
        subject: the beginning of errors, such as the environment's id.

    Raises:
        TypeError: a NamedTuple has a field of another type than float, int, bool, Board or a tuple
            of a fixed number of one of these.
    """
    value_class = type(value)
    if not isinstance(value, tuple) or not hasattr(value_class, "_fields"):
        return floats(max(len(value), 1) if isinstance(value, tuple) else 1)
    try:
        hints = typing.get_type_hints(value_class)
    except NameError as error:
        raise TypeError(
            f"{subject}: the type hints of {value_class.__name__} cannot be read: {error}"
        ) from None
    fields = (
        _field_of_hint(
            name, hints.get(name), f"{subject}: the field {name} of {value_class.__name__}"
        )
        for name in value_class._fields
    )
    return Layout(value_class, tuple(fields))


def _field_of_hint(name: str, hint: Any, subject: str) -> Field:
    """Return the field that a NamedTuple declares as `name: hint`; `subject` begins the error.

    Raises:
        TypeError: the hint is none that a field may have.
    """
    is_tuple = typing.get_origin(hint) is tuple
    items = typing.get_args(hint) if is_tuple else (hint,)
    if len(set(items)) != 1 or items[0] not in _KINDS:
        shown = hint if is_tuple and items else getattr(hint, "__name__", hint)
        raise TypeError(
            f"{subject} has the type hint {shown}: expected "
            "float, int, bool, Board, or a tuple of a fixed number of these, as tuple[int, int]"
        )
    return Field(name, _KINDS[items[0]], len(items) if is_tuple else 0)


def holds_ints(layout: Layout | ArrayLayout, value: Any) -> bool:
    """Tell whether a tuple that should be of floats holds a whole number or a bool."""
    return layout.is_plain and not all(isinstance(item, float | np.floating) for item in value)


# ---------------------------------------------------------------- checks of plain values


def is_real(value: Any) -> bool:
    """Tell whether a plain value can be stored as a float: whole numbers and bools can, too."""
    known = isinstance(value, float | int | np.floating | np.integer | np.bool_)
    return known and not isinstance(value, Board)


_HINT_NAMES = {"float": "float", "int": "int", "bool": "bool", "board": "Board"}


def _fault_of_field(field: Field, value: Any) -> str:
    """Return the fault of a field's plain value, as "a float; returned 'x'"; "" for a good one."""
    name = _HINT_NAMES[field.kind]
    if field.size == 0:
        wanted = f"an {name}" if name == "int" else f"a {name}"
        remark = _missing_property(field.kind, value)
        return "" if remark is None else f"{wanted}{remark}; returned {value!r}"
    wanted = f"a tuple of {field.size} {name}s"
    if not isinstance(value, tuple) or len(value) != field.size:
        size = f" {len(value)}:" if isinstance(value, tuple) else ""
        return f"{wanted}; returned{size} {value!r}"
    for item in value:
        remark = _missing_property(field.kind, item)
        if remark is not None:
            return f"{wanted}{remark}; returned {value!r}"
    return ""


def _missing_property(kind: str, item: Any) -> str | None:
    """Return None if `item` may be in a field of this kind, else the property that it lacks.

    The property is written behind the kind's name in errors, as ", finite"; it is "" for an item of
    another type.
    """
    is_bool = isinstance(item, bool | np.bool_)
    if kind == "float":
        if not is_real(item):
            return ""
        return None if math.isfinite(item) else ", finite"
    if kind == "bool":
        return None if is_bool else " (True, not 1)"
    if kind == "board":
        return None if isinstance(item, Board) else ""
    if is_bool or not isinstance(item, int | np.integer) or isinstance(item, Board):
        return ""
    return None if -(2**31) <= item < 2**31 else " of 32 bits"


# ---------------------------------------------------------------- what kernels inline

# The functions `generate` below write LLVM's instructions. Their arguments are numba's: the target
# context, LLVM's builder, the signature, and the arguments as LLVM's values.


@functools.cache
def make_decode(layout: Layout, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function: tuple of a value's rows (floats of `dtype`) -> the value.

    It is an intrinsic, as are `make_encode`'s and `make_select`'s: as Python, of which numba types
    every row, these functions took a third of the time to compile a step of Seaquest, whose state
    has a hundred rows.
    """
    bits = 8 * np.dtype(dtype).itemsize

    @intrinsic
    def decode(typing, rows):
        value_type = _numba_type(layout, from_dtype(np.dtype(dtype)))
        is_record = layout.value_class is not None

        def decode_item(context, builder, kind, next_rows):
            """Return the next item of a field of this kind, from an iterator over the rows."""
            if kind == "float":
                return next(next_rows)
            if kind != "board":
                word = builder.bitcast(next(next_rows), ir.IntType(bits))
                number = builder.sext(word, _I64) if bits < 64 else word
                return number if kind == "int" else builder.icmp_signed("!=", number, _I64(0))
            board = cgutils.create_struct_proxy(BOARD)(context, builder)
            for name in ("low", "high"):
                half = builder.bitcast(next(next_rows), ir.IntType(bits))
                if bits == 32:
                    upper = builder.bitcast(next(next_rows), ir.IntType(32))
                    low, high = (builder.zext(part, _I64) for part in (half, upper))
                    half = builder.or_(low, builder.shl(high, _I64(32)))
                setattr(board, name, half)
            return board._getvalue()

        def generate(context, builder, signature, args):
            next_rows, values = iter(cgutils.unpack_tuple(builder, args[0])), []
            field_types = value_type.types if is_record else [value_type]
            for field, field_type in zip(layout.fields, field_types, strict=True):
                items = [
                    decode_item(context, builder, field.kind, next_rows)
                    for _ in range(max(field.size, 1))
                ]
                is_tuple = field.size > 0
                values.append(
                    context.make_tuple(builder, field_type, items) if is_tuple else items[0]
                )
            return context.make_tuple(builder, value_type, values) if is_record else values[0]

        return value_type(rows), generate

    return decode


@functools.cache
def make_encode(layout: Layout, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function: a value -> the tuple of its rows, floats of `dtype`."""
    count = layout.rows(dtype)

    @intrinsic
    def encode(typing, value):
        row_type = from_dtype(np.dtype(dtype))
        value_type, bits = _numba_type(layout, row_type), row_type.bitwidth
        rows_type = types.UniTuple(row_type, count)

        def encode_item(context, builder, item_type, item):
            """Return the rows of an item, which may be a tuple of items, as a list."""
            llvm_row_type = context.get_value_type(row_type)
            if isinstance(item_type, types.BaseTuple):
                parts = zip(item_type.types, cgutils.unpack_tuple(builder, item), strict=True)
                return [row for part in parts for row in encode_item(context, builder, *part)]
            if item_type == row_type:
                return [item]
            if item_type != BOARD:
                word = context.cast(builder, item, item_type, types.Integer.from_bitwidth(bits))
                return [builder.bitcast(word, llvm_row_type)]
            board = cgutils.create_struct_proxy(BOARD)(context, builder, item)
            words = [board.low, board.high]
            if bits == 32:
                halves = [half for x in words for half in (x, builder.lshr(x, _I64(32)))]
                words = [builder.trunc(half, ir.IntType(32)) for half in halves]
            return [builder.bitcast(word, llvm_row_type) for word in words]

        def generate(context, builder, signature, args):
            converted = _cast_parts(context, builder, args[0], value, value_type)
            rows = encode_item(context, builder, value_type, converted)
            return context.make_tuple(builder, rows_type, rows)

        return rows_type(value), generate

    return encode


@functools.cache
def make_select(layout: Layout, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (condition, x, y) -> x if the condition holds, else y, no branch.

    `x` and `y` are values of the layout: each number of the result is selected by itself.
    """

    @intrinsic
    def select(typing, condition, x, y):
        value_type = _numba_type(layout, from_dtype(np.dtype(dtype)))

        def select_parts(builder, condition, x, y):
            """Select number by number, in the tuples within the tuple."""
            if not isinstance(x.type, ir.Aggregate):
                return builder.select(condition, x, y)
            for k in range(len(x.type)):
                parts = builder.extract_value(x, k), builder.extract_value(y, k)
                x = builder.insert_value(x, select_parts(builder, condition, *parts), k)
            return x

        def generate(context, builder, signature, args):
            converted = [
                _cast_parts(context, builder, value, source_type, value_type)
                for source_type, value in zip((x, y), args[1:], strict=True)
            ]
            return select_parts(builder, args[0], *converted)

        return value_type(types.boolean, x, y), generate

    return select


_I64 = ir.IntType(64)


def _numba_type(layout: Layout, float_type: Any) -> Any:
    """Return numba's type of values of a layout, whose floats are of numba's type `float_type`."""
    of_kind = {"float": float_type, "int": types.int64, "bool": types.boolean, "board": BOARD}
    field_types = [
        types.UniTuple(of_kind[field.kind], field.size) if field.size else of_kind[field.kind]
        for field in layout.fields
    ]
    if layout.value_class is None:
        return field_types[0]
    return types.BaseTuple.from_types(field_types, layout.value_class)


def _cast_parts(context: Any, builder: Any, value: Any, source: Any, target: Any) -> Any:
    """Cast LLVM's value from numba's type `source` to `target`, tuples number by number."""
    if source == target:
        return value
    if not isinstance(target, types.BaseTuple):
        return context.cast(builder, value, source, target)
    parts = zip(cgutils.unpack_tuple(builder, value), source.types, target.types, strict=True)
    return context.make_tuple(
        builder, target, [_cast_parts(context, builder, *part) for part in parts]
    )


# ---------------------------------------------------------------- arrays of many values


def decode_field(field: Field, rows: Array) -> Array:
    """Return the values of one field of n states or observations.

    Args:
        field: the field.
        rows: (n, rows of the field), float32 or float64.

    Returns:
        A copy, (n,) or, of a tuple, (n, field.size): of the dtype of `rows`, int64 or bool. Boards
        are uint64 with one more axis of length 2: the low and the high word of 64 cells.
    """
    n, values = len(rows), np.array(rows, order="C")
    if field.kind == "board":
        words = values.view(np.uint64)
        return words.reshape(n, field.size, 2) if field.size else words.reshape(n, 2)
    if field.kind not in ("float", "array"):
        values = values.view(_INT_TYPES[rows.dtype.type]).astype(_DTYPES[field.kind])
    return values if field.size else values[:, 0]


#: By kind of field: letters of NumPy's kinds of dtypes that it takes, and their name.
_ACCEPTED = {
    "float": ("fiu", "real"),
    "int": ("iu", "integer"),
    "bool": ("b", "bool"),
    "board": ("u", "uint64"),
}


def encode_field(field: Field, values: Any, n: int, dtype: type) -> Array:
    """Return rows (n, rows of the field) of `dtype` that hold n values of one field.

    Args:
        field: the field.
        values: in the shape and the kind of dtype that `decode_field` returns.
        n: how many.
        dtype: of rows, float32 or float64.

    Raises:
        TypeError, ValueError: `values` have another kind of dtype or another shape, are not finite,
            or are whole numbers of more bits than a row.
    """
    array, name = np.asarray(values), f"state.{field.name}"
    dtype_kinds, wanted = _ACCEPTED[field.kind]
    if array.dtype.kind not in dtype_kinds:
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
        limits = np.iinfo(_INT_TYPES[dtype])  # a row holds as many bits as its float has
        if array.size and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
            raise ValueError(
                f"{name} holds {array.min()} to {array.max()}: expected {limits.bits} bits"
            )
        array = array.astype(_INT_TYPES[dtype]).view(dtype)
    return array.reshape(n, -1)


def _board(words: list[int]) -> Board:
    """Return the board of its two words, the low one first."""
    return Board(words[0] | words[1] << 64)


def _tuple_of_boards(words: list[list[int]]) -> tuple[Board, ...]:
    return tuple(map(_board, words))


def check_layout(dynamics: Any, pickled: Layout) -> None:
    """Raise ValueError if states were pickled in another layout than the environment has now."""
    if pickled.fields != dynamics.state.fields:
        raise ValueError(
            f"{dynamics.id} had a state of {pickled} when it was pickled and has "
            f"{dynamics.state} now"
        )


def with_fields(layout: Layout | ArrayLayout, rows: Array, values: dict[str, Any]) -> Array:
    """Overwrite some fields of n states, by name, in their memory `rows` (n, rows); return `rows`.

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
