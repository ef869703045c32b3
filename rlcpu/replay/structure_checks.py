"""What a field can be, and what it can take: dtypes that can be stored, casts that lose nothing."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# NumPy allows 64 axes; a batch has at most two in front of an item's own.
_MAX_ITEM_AXES = 62
_MAX_BYTES = int(np.iinfo(np.intp).max)
_NUMBERS = "biufc"


class Field(NamedTuple):
    """One array of a transition.

    Attributes:
        name: dotted path such as "observation.camera", positions as numbers ("0.1"); "" where the
            transition is one array.
        dtype: in native byte order.
        shape: of one item.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one item."""
        return self.dtype.itemsize * math.prod(self.shape)


def label(path: str, whole: str = "batch") -> str:
    """How messages call what stands at a path."""
    return f"field {path!r}" if path else whole


# ---------------------------------------------------------------- what can be stored


def make_field(path: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Field:
    """The field of one item's dtype and shape.

    Raises:
        TypeError: a dtype that holds references, or another library's.
        ValueError: an item of no bytes (nothing to store, and a file of nothing cannot be mapped),
            of too many axes or of more bytes than there are addresses.
    """
    field = Field(path, native_dtype(dtype, path), shape)
    whole = label(path, "example")
    if len(shape) > _MAX_ITEM_AXES:
        raise ValueError(f"{whole} has {len(shape)} axes: expected at most {_MAX_ITEM_AXES}")
    if not 0 < field.row_bytes <= _MAX_BYTES:
        raise ValueError(
            f"{whole} has dtype {dtype} and shape {shape}, {field.row_bytes} bytes: expected 1 to "
            f"{_MAX_BYTES} bytes; leave out what is empty"
        )
    return field


def native_dtype(dtype: np.dtype[Any], path: str) -> np.dtype[Any]:
    """The dtype in native byte order, without metadata.

    Raises:
        TypeError: it holds references, or is none of NumPy's own.
    """
    if not dtype.hasobject:
        native = _native(dtype)
        if native == dtype.newbyteorder("="):
            return native
    raise TypeError(
        f"{label(path, 'example')} has dtype {dtype}: expected numbers, bool, dates, "
        "strings of a fixed size or a structured dtype of these"
    )


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A copy from NumPy's own dtypes: `newbyteorder` keeps the metadata, of which files warn."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_native(base), shape))
    if dtype.names is None or dtype.fields is None:
        return np.dtype(dtype.newbyteorder("=").str)
    entries = [dtype.fields[name] for name in dtype.names]
    return np.dtype(
        {
            "names": list(dtype.names),
            "formats": [_native(entry[0]) for entry in entries],
            "offsets": [entry[1] for entry in entries],
            "itemsize": dtype.itemsize,
        }
    )


# ---------------------------------------------------------------- what a field can take


def to_array(leaf: Any, path: str, whole: str = "batch") -> Array:
    """An array of what NumPy can read as one; `whole` is the name of a transition of one array.

    Raises:
        TypeError: masked, or Python objects.
        ValueError: lists of different lengths.
    """
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            f"{label(path, whole)} is a masked array: expected an array without a mask, "
            "as that of .filled()"
        )
    try:
        array: Array = np.asarray(leaf)
    except Exception as error:  # of the caller's __array__ too, such as a tensor's on a GPU
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(
            f"{label(path, whole)} is a {type(leaf).__name__} that NumPy cannot read: "
            f"expected an array ({error})"
        ) from error
    if array.dtype.hasobject:
        found = f"a {type(leaf).__name__} of Python objects"
        raise TypeError(f"{label(path, whole)} is {found}: expected an array")
    return array


def check_dtype(array: Array, field: Field) -> None:
    """TypeError unless the array's dtype may be cast to the field's."""
    source, target = array.dtype, field.dtype
    if source == target:
        return
    kinds = source.kind + target.kind
    if source.kind in _NUMBERS and target.kind in _NUMBERS:
        # Integers of any size: convert() looks at the values.
        if kinds in ("ii", "iu", "ui", "uu") or np.can_cast(source, target, "same_kind"):
            return
    elif kinds in ("SS", "UU"):
        if np.can_cast(source, target, "safe"):
            return
    elif source.newbyteorder("=") == target:
        return
    raise TypeError(f"{label(field.name)} has dtype {source}: expected {target}")


def convert(array: Array, field: Field) -> Array:
    """The array itself if it has the field's dtype, else a copy that does.

    Raises:
        ValueError: an integer outside of the range of the field's dtype, or a finite number that
            it would turn into infinity.
    """
    source, dtype = array.dtype, field.dtype
    if source == dtype:
        return array
    if source.kind in "iu" and dtype.kind in "iu":
        cast: Array = array.astype(dtype)
        bad = cast != array  # exact for every pair of integers, int64 with uint64 too
        if np.count_nonzero(bad):  # a third of what .any() costs
            limits = np.iinfo(dtype)
            _refuse(array, bad, field, f"{limits.min} to {limits.max} ({dtype})")
        return cast
    if np.can_cast(source, dtype, "safe"):
        return array.astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    finite = np.isfinite(cast)
    if np.count_nonzero(finite) < cast.size:
        bad = np.isfinite(array) & ~finite
        if np.count_nonzero(bad):
            _refuse(array, bad, field, f"a number within the range of {dtype}")
    return cast


def _refuse(array: Array, bad: npt.NDArray[np.bool_], field: Field, expected: str) -> None:
    """ValueError that names the first offender."""
    position = tuple(int(index[0]) for index in np.nonzero(np.atleast_1d(bad)))
    place = f" at {list(position)}" if array.ndim else ""
    value = np.atleast_1d(array)[position]
    count = int(np.count_nonzero(bad))
    raise ValueError(
        f"{label(field.name)} holds {value}{place} ({count} such): expected {expected}"
    )
