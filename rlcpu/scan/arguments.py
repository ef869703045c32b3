"""Arguments of all functions of scan: what is wrong is named before anything is written.

Arrays that go together are of one dtype, float32 or float64. Whole numbers, single numbers and
swapped bytes are converted to it; without another array they become float64.

A check returns what it has found, and raises TypeError for another kind or dtype, ValueError for
another shape or a number out of range.

Functions that compute on a device, too, pass `backend`: None for the host's cores, or the module of
`rlcpu.cuda` that computes. Its arrays are where it computes: arrays of the host are copied there,
single numbers stay NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.backends import cpu_only, device_of, find

Array = npt.NDArray[Any]

_TOO_LARGE = 2.0**128 - 2.0**103  # what float32 rounds to infinity
_REAL = (np.dtype(np.float32), np.dtype(np.float64))


def backend_of(chapter: str, *arrays: Any) -> Any:
    """Return the module of `rlcpu.cuda` for an array on a device; None for the host."""
    device = device_of(*arrays)
    return None if device == "cpu" else find(device, chapter)


def check_on_host(function: str, **arguments: Any) -> None:
    """Raise NotImplementedError for an argument on a device, where `function` is not computed."""
    if device_of(*arguments.values()) == "cpu":
        return
    for name, value in arguments.items():
        if device_of(value) != "cpu":
            raise cpu_only(f"{function} with {name} of {type(value).__name__}")


# ---------------------------------------------------------------- dtypes


def as_array(name: str, value: npt.ArrayLike, backend: Any = None) -> Array:
    """Return the argument as an array."""
    if backend is None and type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not taken; fill it in first (`filled`)")
    if backend is not None and device_of(value) != "cpu":
        return backend.asarray(value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name}: expected an array of numbers; NumPy says: {error}") from None
    if backend is None or array.ndim == 0 or array.dtype.kind not in "biuf":
        return array
    return backend.asarray(array, array.dtype.newbyteorder("="))


def check_real(
    name: str, value: npt.ArrayLike, dtype: Any = None, like: str = "", backend: Any = None
) -> Array:
    """Return the argument as an array of float32 or float64.

    Args:
        name: of the argument.
        value: the argument.
        dtype: of the arrays that it goes together with; None if there are none.
        like: name of the argument that has this dtype, for the message.
        backend: what computes; None for the host's cores.
    """
    array = as_array(name, value, backend)
    if array.dtype == dtype or (dtype is None and array.dtype in _REAL):
        return array
    if array.dtype.kind in "iu" or (dtype is not None and array.ndim == 0 and _is_float(array)):
        dtype = np.float64 if dtype is None else dtype
        largest = _TOO_LARGE if dtype == np.float32 else math.inf
        if array.ndim == 0 and abs(float(array)) >= largest and not np.isinf(array):
            raise ValueError(f"{name}={array}: too large for {np.dtype(dtype)}")
        return array.astype(dtype)
    native = array.dtype.newbyteorder("=")
    if native in (_REAL if dtype is None else (dtype,)):
        return array.astype(native)
    expected = "float32 or float64" if dtype is None else str(np.dtype(dtype))
    got = type(value).__name__ if array.dtype == object else array.dtype
    rest = f" ({like} is {expected})" if like and like != name else ""
    raise TypeError(f"{name}: expected {expected}, got {got}{rest}")


def check_alike(arguments: Mapping[str, npt.ArrayLike], backend: Any = None) -> list[Array]:
    """Return arguments as arrays of one dtype, that of the first one that is an array of floats."""
    arrays = {name: as_array(name, value, backend) for name, value in arguments.items()}
    first = next((name for name, a in arrays.items() if a.ndim and _is_float(a)), "")
    dtype = np.dtype(np.float64)
    if first:
        dtype = check_real(first, arrays[first], backend=backend).dtype.newbyteorder("=")
    return [check_real(name, array, dtype, first, backend) for name, array in arrays.items()]


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f"


# ---------------------------------------------------------------- shapes


def check_shape(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Return the array itself, if it has the shape."""
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    return array


def check_broadcast(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Return the array itself, if it can be repeated to fill the shape."""
    if array.ndim == 0:
        return array
    pairs = zip(reversed(array.shape), reversed(shape), strict=False)
    if array.ndim > len(shape) or any(size not in (1, length) for size, length in pairs):
        raise ValueError(f"{name}: expected a shape that broadcasts to {shape}, got {array.shape}")
    return array


def common_shape(names: Iterable[str], arrays: list[Array]) -> tuple[int, ...]:
    """Return the shape that arrays broadcast to."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(names, arrays, strict=True))
        raise ValueError(f"expected shapes that broadcast, got {shapes}") from None


def check_axis(axis: int, shape: tuple[int, ...], name: str) -> int:
    """Return the axis, counted from the first, of the array of that name and shape."""
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise TypeError(f"axis={axis!r}: expected an int")
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis={axis}: {name} has {len(shape)} axes, shape {shape}")
    return int(axis) % len(shape)


def repeated(array: Array, shape: tuple[int, ...], backend: Any = None) -> Array:
    """Return the array, or a view that broadcasts it to the shape."""
    if array.shape == shape:
        return array
    if backend is None:
        return np.broadcast_to(array, shape)
    return backend.xp.broadcast_to(backend.asarray(array), shape)


def axis_last(array: Array, axis: int) -> Array:
    """Return a view with an axis, counted from the first, moved to the end."""
    if axis == array.ndim - 1:
        return array
    return array.transpose(*(i for i in range(array.ndim) if i != axis), axis)


def sum_to_shape(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the sums over the axes along which an array of the shape was repeated."""
    if array.shape == shape:
        return array
    first = array.ndim - len(shape)
    padded = (1,) * first + shape
    axes = (i for i, n in enumerate(array.shape) if i < first or padded[i] != n)
    return array.sum(axis=tuple(axes), keepdims=True).reshape(shape)


def multiply_gradients(gradients: Array, numbers: Array, out: Array, xp: Any = np) -> None:
    """Overwrite `out` with gradients * numbers: 0 where a gradient is 0, whatever the number is.

    `out` may be the numbers, and `xp` is NumPy or CuPy, which has the arrays.
    """
    with np.errstate(invalid="ignore"):  # 0 * inf
        xp.multiply(gradients, numbers, out=out)
    xp.copyto(out, 0.0, where=gradients == 0.0)


# ---------------------------------------------------------------- kinds of arguments


def check_flags(
    name: str, array: npt.ArrayLike, shape: tuple[int, ...], backend: Any = None
) -> Array:
    """Return the argument as an array of bool."""
    flags = as_array(name, array, backend)
    if flags.dtype != np.bool_:
        raise TypeError(f"{name}: expected bool, got {flags.dtype}")
    return check_shape(name, flags, shape)


def check_factor(
    name: str, value: npt.ArrayLike, shape: tuple[int, ...], dtype: Any, backend: Any = None
) -> Array:
    """Return a number in [0, 1], or an array of one number for every step, which may be any."""
    factor = check_real(name, value, dtype, backend=backend)
    if factor.ndim == 0 and not 0.0 <= factor <= 1.0:
        raise ValueError(f"{name}={factor}: expected a number in [0, 1]")
    return check_broadcast(name, factor, shape)


def check_lengths(lengths: npt.ArrayLike, batch: tuple[int, ...], n: int) -> Array:
    """Return lengths as int64 of the shape of the batch."""
    array = as_array("lengths", lengths)
    if array.dtype.kind not in "iu":
        raise TypeError(f"lengths: expected whole numbers, got {array.dtype}")
    try:
        array = np.broadcast_to(array, batch)
    except ValueError:
        raise ValueError(f"lengths: expected shape {batch}, got {array.shape}") from None
    wrong = (array < 0) | (array > n)
    if wrong.any():
        raise ValueError(f"lengths: expected 0 to {n}, got {array[wrong][0]}")
    return array.astype(np.int64)


def check_unknowns(arrays: Mapping[str, Any], axis: int) -> None:
    """Raise ValueError for an array of tridiagonal systems that lacks their axis of unknowns.

    NumPy aligns the last axes of arrays: for unknowns along another one it would take a matrix of
    one axis for a number of each system. The same for off-diagonals that are shorter by one.

    Args:
        arrays: by name; single numbers are repeated.
        axis: of the unknowns, in the shape that the arrays broadcast to; not checked yet.
    """
    num_axes = max(array.ndim for array in arrays.values())
    if not isinstance(axis, int | np.integer) or not -num_axes <= axis < num_axes:
        return  # `check_axis` says so
    after = num_axes - 1 - int(axis) % num_axes  # axes behind that of the unknowns
    for name, array in arrays.items():
        if 0 < array.ndim <= after and math.prod(array.shape) > 1:
            place = ", ".join([":" if array.ndim == 1 else "..."] + ["None"] * after)
            raise ValueError(
                f"{name}: shape {tuple(array.shape)} lacks the axis of the unknowns, axis={axis}; "
                f"write {name}[{place}] for numbers of equations that all systems share, "
                f"{name}[None] for one number of each system"
            )
    lengths = {n: array.shape[-1 - after] for n, array in arrays.items() if array.ndim > after}
    shorter = {name: lengths.pop(name, 0) for name in ("lower", "upper")}
    n = lengths.get("diagonal", 1)
    n = n if n > 1 else max(lengths.values(), default=0)  # one number is repeated
    for name, length in shorter.items():
        if length == n - 1 > 1:
            raise ValueError(
                f"{name}: expected {n} numbers along axis={axis}, got {length}; off-diagonals are "
                f"padded to the length of the diagonal: lower[0] and upper[{n - 1}] are ignored"
            )


class Systems(NamedTuple):
    """Checked arguments of a solve."""

    arrays: tuple[Array, ...]  # lower, diagonal, upper, rhs and `result` as views (batch..., n)
    result: Array  # what the caller gets, of the shape that the arguments broadcast to
    axis: int  # of the unknowns in `result`, from the first


def check_systems(
    arguments: tuple[npt.ArrayLike, ...], axis: int, out: Any, backend: Any = None
) -> Systems:
    """Check coefficients and right-hand sides of tridiagonal systems.

    `arguments` are lower, diagonal, upper and rhs, `axis` is that of the unknowns in the shape that
    they broadcast to. `out`, of that shape and their dtype, may be rhs; None for a new array.
    """
    named = dict(zip(("lower", "diagonal", "upper", "rhs"), arguments, strict=True))
    inputs = check_alike(named, backend)
    check_unknowns(dict(zip(named, inputs, strict=True)), axis)
    shape, rhs = common_shape(named, inputs), inputs[3]
    if not shape:
        raise ValueError("rhs: expected at least one axis, got a number")
    axis = check_axis(axis, shape, "rhs, broadcast with the coefficients,")
    if out is None:
        result = np.empty(shape, rhs.dtype) if backend is None else backend.empty(shape, rhs.dtype)
    else:
        result = check_out("out", out, np.broadcast_to(rhs, shape), inputs, rhs, backend)
    arrays = (axis_last(repeated(array, shape, backend), axis) for array in inputs)
    return Systems((*arrays, axis_last(result, axis)), result, axis)


# ---------------------------------------------------------------- memory


def check_out(
    name: str,
    out: Any,
    like: Array,
    inputs: Iterable[Array],
    may_be: Array | None = None,
    backend: Any = None,
) -> Array:
    """Return `out` if the result can be written to it; on a device an array over the same memory.

    It has the shape and dtype of `like`, and overlaps none of `inputs`, but may be one, `may_be`.

    Raises:
        TypeError: it is no array, a masked one or a matrix, or of another dtype.
        ValueError: it has another shape, is read-only, or overlaps an input or itself.
    """
    kind = type(out).__name__
    if backend is not None:
        if device_of(out) == "cpu":
            raise TypeError(f"{name}: expected an array on the CUDA device, got {kind} elsewhere")
        out = backend.asarray(out)
        inputs = (array for array in inputs if type(array) is not np.ndarray)
    elif not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray | np.matrix):
        raise TypeError(f"{name}: expected an array of {like.dtype}, got {kind}")
    if out.dtype != like.dtype:
        raise TypeError(f"{name}: expected an array of {like.dtype}, got {out.dtype}")
    check_shape(name, out, like.shape)
    if not getattr(out.flags, "writeable", True):  # CuPy's arrays all are
        raise ValueError(f"{name}: read-only, expected an array that can be written")
    if _overlaps_itself(out):
        raise ValueError(f"{name}: expected an array whose elements do not share memory")
    for array in inputs:
        if not (array is may_be and is_same(out, array)) and _overlap(out, array, backend):
            raise ValueError(f"{name}: overlaps another array")
    return out


def is_same(first: Array, second: Array) -> bool:
    """Tell whether two arrays are the same numbers in memory, in the same order."""
    places = [_address(array) for array in (first, second)]
    layouts = [(array.dtype, array.shape, array.strides) for array in (first, second)]
    return bool(places[0] == places[1] and layouts[0] == layouts[1])


def _address(array: Array) -> int:
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.__cuda_array_interface__["data"][0])


def _overlap(first: Array, second: Array, backend: Any) -> bool:
    """Tell whether two arrays share a byte, or so it seems after a short search."""
    if backend is not None:
        return bool(backend.xp.may_share_memory(first, second))
    if not np.may_share_memory(first, second):
        return False
    try:
        work: Any = 10**4  # typed as one of two constants
        return bool(np.shares_memory(first, second, max_work=work))
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: Array) -> bool:
    """Tell whether elements may share memory: a stride is shorter than finer axes reach."""
    if array.flags.forc or array.size <= 1:
        return False
    reach = array.itemsize
    for stride, length in sorted(
        (abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)
    ):
        if length > 1:
            if stride < reach:
                return True
            reach += stride * (length - 1)
    return False
