"""One array of a transition: what can be stored, which arrays can be cast to it, and its repr."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from reprlib import repr as shorten
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# NumPy allows 64 axes; a batch has at most two in front of an item's own.
_MAX_ITEM_AXES = 62
_MAX_BYTES = int(np.iinfo(np.intp).max)
_NUMBERS = "biufc"


class TransitionField(NamedTuple):
    """One array of a transition."""

    name: str  # such as "observation.camera", or "0.1" of tuples; "" of a transition of one array
    dtype: np.dtype[Any]  # in native byte order
    shape: tuple[int, ...]  # of one item

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one item."""
        return self.dtype.itemsize * math.prod(self.shape)


def label(path: str, whole: str = "batch") -> str:
    """Return the name of the value at a path for messages.

    `whole` is that of the outermost value.
    """
    return f"field {path!r}" if path else whole


def make_field(path: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> TransitionField:
    """Return the field of one item's dtype and shape.

    Raises:
        TypeError: a dtype that holds references, or another library's.
        ValueError: an item of no bytes (nothing to store, and a file of nothing cannot be mapped),
            of too many axes or of more bytes than there are addresses.
    """
    whole = label(path, "example")
    try:
        native = np.lib.format.drop_metadata(dtype.newbyteorder("="))
        describe_dtype(native)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{whole} has dtype {dtype}, which no file can name: expected numbers, bool, dates, "
            "strings of a fixed size or a structured dtype of these"
        ) from error
    field = TransitionField(path, native, shape)
    if len(shape) > _MAX_ITEM_AXES:
        raise ValueError(f"{whole} has {len(shape)} axes: expected at most {_MAX_ITEM_AXES}")
    if not 0 < field.row_bytes <= _MAX_BYTES:
        raise ValueError(
            f"{whole} has dtype {dtype} and shape {shape}, {field.row_bytes} bytes: expected 1 to "
            f"{_MAX_BYTES} bytes; leave out what is empty"
        )
    return field


def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return NumPy's description of a dtype, as in a file of NumPy's.

    Raises:
        TypeError, ValueError: no description gives this dtype back, as of fields that overlap, and
            of dtypes that other libraries register (NumPy calls bfloat16 "V2").
    """
    description = np.lib.format.dtype_to_descr(dtype)
    if dtype.hasobject or np.lib.format.descr_to_dtype(description) != dtype:
        raise TypeError(f"dtype {dtype} has no description")
    return str(description)


def parse_dtype(description: Any, whole: str) -> np.dtype[Any]:
    """Return the dtype of a `describe_dtype` on this machine; ValueError for something else."""
    try:
        descr = ast.literal_eval(description) if description[0] == "[" else description
        dtype = np.lib.format.descr_to_dtype(descr).newbyteorder("=")
        if describe_dtype(dtype) != description:
            raise ValueError(f"this machine describes {dtype} differently")
    except Exception as error:  # whatever NumPy and Python raise for what they do not understand
        saved = f"{whole} was saved with {shorten(description)}"
        raise ValueError(f"{saved}, which is no dtype") from error
    return dtype


# ---------------------------------------------------------------- what a field can take


def to_array(leaf: Any, name: str) -> Array:
    """Return a value as an array; `name` is the value's in errors.

    Raises:
        TypeError: it is a masked array, or of Python objects, or NumPy cannot read it.
        ValueError: it has lists of different lengths.
    """
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        return leaf
    if isinstance(leaf, np.ma.MaskedArray):
        expected = "an array without a mask, as that of .filled()"
        raise TypeError(f"{name} is a masked array: expected {expected}")
    try:
        array: Array = np.asarray(leaf)
    except Exception as error:  # of the caller's __array__ too, such as a tensor's on a GPU
        description = f"{name} is a {type(leaf).__name__} that NumPy cannot read"
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{description}: expected an array ({error})") from error
    if array.dtype.hasobject:
        description = f"{name} is a {type(leaf).__name__} of Python objects"
        raise TypeError(f"{description}: expected an array")
    return array


def take(leaf: Any, field: TransitionField, lead: tuple[int, ...], max_axes: int) -> Array:
    """Convert a leaf of a batch to the array (*lead, *field.shape) of its field.

    `max_axes` is the most axes in front of the field's that a batch may have, for the message.

    Raises:
        TypeError: its dtype cannot be cast without loss.
        ValueError: it has another shape.
    """
    array = to_array(leaf, label(field.name))
    same = array.dtype == field.dtype
    if not (same or _may_cast(array.dtype, field.dtype)):
        raise TypeError(f"{label(field.name)} has dtype {array.dtype}: expected {field.dtype}")
    if array.shape != lead + field.shape:
        raise wrong_shape(array.shape, field, lead, max_axes)
    return array if same else _cast(array, field)


def wrong_shape(
    shape: tuple[int, ...], field: TransitionField, lead: tuple[int, ...], max_axes: int
) -> ValueError:
    """Return the exception for an array of a wrong shape, where the leading axes are `lead`."""
    axes = len(shape) - len(field.shape)
    if 0 <= axes <= max_axes and shape[axes:] == field.shape:
        expected = f"{lead + field.shape}, with the leading axes of the first field"
    else:
        most = f" after at most {max_axes} leading axes" if max_axes else ""
        expected = f"{field.shape}{most}"
    return ValueError(f"{label(field.name)} has shape {shape}: expected {expected}")


def _may_cast(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Tell whether arrays of one dtype can be cast to another, if each value fits."""
    if source.kind in _NUMBERS and target.kind in _NUMBERS:
        # Integers of any size: _cast() looks at the values.
        both_integers = source.kind in "iu" and target.kind in "iu"
        return both_integers or np.can_cast(source, target, "same_kind")
    if source.kind == target.kind and source.kind in "SU":
        return np.can_cast(source, target, "safe")
    return source.newbyteorder("=") == target


def _cast(array: Array, field: TransitionField) -> Array:
    """Return a copy of the field's dtype, or ValueError for a number that is out of its range."""
    source, dtype = array.dtype, field.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        cast: Array = array.astype(dtype)
    if np.can_cast(source, dtype, "safe"):
        return cast
    if source.kind in "iu" and dtype.kind in "iu":
        wrong = cast != array  # exact for every pair of integers, int64 with uint64 too
        limits = np.iinfo(dtype)
        expected = f"{limits.min} to {limits.max} ({dtype})"
    else:
        wrong = np.isfinite(array) & ~np.isfinite(cast)
        expected = f"a number within the range of {dtype}"
    count = np.count_nonzero(wrong)  # takes a third of the time of .any()
    if count:
        position = tuple(int(index[0]) for index in np.nonzero(np.atleast_1d(wrong)))
        place = f" at {list(position)}" if array.ndim else ""
        value = np.atleast_1d(array)[position]
        raise ValueError(
            f"{label(field.name)} holds {value}{place} ({count} such): expected {expected}"
        )
    return cast


# ---------------------------------------------------------------- how fields are shown


class Shown:
    """Base of buffers and batches: how they are shown."""

    __slots__ = ()

    def _facts(self) -> list[str]:
        """Return the facts of a repr: how much is held, and the settings."""
        raise NotImplementedError

    def _fields(self) -> Iterable[TransitionField]:
        """Return the fields that a repr lists."""
        raise NotImplementedError

    def __repr__(self) -> str:
        fields = [" ".join(filter(None, row)) for row in self._rows()]
        return f"{type(self).__name__}({', '.join(self._facts())}: {', '.join(fields)})"

    def _repr_html_(self) -> str:
        """Return a table of the fields, for notebooks."""
        import html  # 1.6 ms

        facts = html.escape(f"{type(self).__name__}: {', '.join(self._facts())}")
        rows = [("field", "dtype", "shape"), *self._rows()]
        cells = ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in rows]
        lines = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><caption>{facts}</caption>{lines}</table>"

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(name, str(dtype), str(shape)) for name, dtype, shape in self._fields()]


def show_bytes(count: float) -> str:
    """Return a number of bytes in a unit that leaves at most three digits before the point."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
