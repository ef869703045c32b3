"""How arrays with a time axis anywhere are seen by kernels: (outer, num_steps, inner), by strides.

Nothing is copied if it can be described by three strides that do not go backward: contiguous
arrays in any order of the axes, repeated numbers, whole steps or whole rows of a larger array.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Numbers in an array that stands for one of them: at least what a kernel reads of it in a row.
REPEATS = 2048
LINE = 64  # bytes of a cache line


class Flat(NamedTuple):
    """An array as kernels take it.

    Attributes:
        numbers: one-dimensional, contiguous and writable for numba, all that the strides reach.
        outer: stride over the axes before time, in numbers.
        time: stride over steps.
        lane: stride over the axes after time: 1, or 0 for an array of repeated numbers.
    """

    numbers: Array
    outer: int
    time: int
    lane: int


class Layout(NamedTuple):
    """The common order of the axes of several arrays.

    Attributes:
        order: axes of the arrays from the longest stride to the shortest.
        shape: of the arrays, in that order.
        axis: of time, in that order.
        outer: number of indices before time.
        num_steps: length of the time axis.
        inner: number of lanes, after time.
        is_plain: whether the order is the callers'.
    """

    order: tuple[int, ...]
    shape: tuple[int, ...]
    axis: int
    outer: int
    num_steps: int
    inner: int
    is_plain: bool

    def flat(self, array: Array) -> Flat:
        """An array of numbers or flags that broadcasts to the shape."""
        if array.ndim == 0:
            return constant(array.tobytes(), array.dtype)
        if self.is_plain and array.flags.c_contiguous and array.shape == self.shape:
            return Flat(_plain(array.reshape(-1)), self.num_steps * self.inner, self.inner, 1)
        return flatten(np.broadcast_to(array, self._shape).transpose(self.order), self.axis)

    def flat_ends(self, array: Array) -> Flat:
        """An array that lacks the time axis."""
        if array.ndim == 0:
            return constant(array.tobytes(), array.dtype)
        if self.is_plain and array.flags.c_contiguous:
            return Flat(_plain(array.reshape(-1)), self.inner, 0, 1)
        whole = np.expand_dims(array, self.order[self.axis]).transpose(self.order)
        return flatten(whole, self.axis)._replace(time=0)

    def target(self, out: Array) -> Flat | None:
        """An array that is to be written, None if three strides cannot describe it."""
        found = self.flat(out)
        return found if np.may_share_memory(found.numbers, out) else None

    def empty(self, dtype: Any) -> Array:
        """A new array of the shape as the caller has it, in memory in the common order.

        It begins at a cache line, so that kernels can write past the caches.
        """
        count = math.prod(self.shape)
        numbers = np.empty(count + LINE // np.dtype(dtype).itemsize, dtype)
        begin = -numbers.ctypes.data % LINE // numbers.itemsize
        array = numbers[begin : begin + count].reshape(self.shape)
        return array if self.is_plain else array.transpose(np.argsort(self.order))

    @property
    def _shape(self) -> tuple[int, ...]:
        """As the caller has it."""
        return tuple(self.shape[i] for i in np.argsort(self.order))


def layout_of(array: Array, axis: int) -> Layout:
    """The order in which an array lies in memory, for it and all that goes with it."""
    order = tuple(range(array.ndim))
    if not array.flags.c_contiguous:
        order = tuple(sorted(order, key=lambda i: -abs(array.strides[i])))
    shape, time = tuple(array.shape[i] for i in order), order.index(axis)
    outer, inner = math.prod(shape[:time]), math.prod(shape[time + 1 :])
    return Layout(order, shape, time, outer, shape[time], inner, order == tuple(range(array.ndim)))


def flatten(array: Array, axis: int) -> Flat:
    """An array with all axes; copied if three strides cannot describe it."""
    if not any(array.strides):
        return constant(array.flat[0].tobytes(), array.dtype)
    strides = _strides(array, axis)
    if strides is None:
        array = np.ascontiguousarray(array)
        inner = math.prod(array.shape[axis + 1 :])
        return Flat(array.reshape(-1), array.shape[axis] * inner, inner, 1)
    return Flat(_reached(array), *strides)


def _strides(array: Array, axis: int) -> tuple[int, int, int] | None:
    """Three strides in numbers that describe the array, None if there are none."""
    size, shape = array.itemsize, array.shape
    if any(stride < 0 or stride % size for stride in array.strides):
        return None
    numbers = [stride // size for stride in array.strides]
    outer, time = _merged(shape[:axis], numbers[:axis]), numbers[axis]
    lane = _merged(shape[axis + 1 :], numbers[axis + 1 :])
    if outer is None or lane is None:
        return None
    if math.prod(shape[axis + 1 :]) == 1:
        return (outer, 1, 1) if time == 1 or shape[axis] == 1 else None
    return (outer, time, 1) if lane == 1 else None


def _merged(shape: tuple[int, ...], strides: list[int]) -> int | None:
    """The stride of all axes as one, None if they are not evenly spaced."""
    pairs = [pair for pair in zip(shape, strides, strict=True) if pair[0] != 1]
    for (_, slow), (length, fast) in itertools.pairwise(pairs):
        if slow != length * fast:
            return None
    return pairs[-1][1] if pairs else 0


# ---------------------------------------------------------------- memory as numba wants it


@functools.lru_cache(maxsize=64)
def constant(number: bytes, dtype: Any) -> Flat:
    """One number in place of an array."""
    return Flat(np.full(REPEATS, np.frombuffer(number, dtype)[0]), 0, 0, 0)


class _Memory:
    """Numbers in memory, described to NumPy as writable: for others numba compiles anew."""

    def __init__(self, array: Array, count: int) -> None:
        self.owner = array
        self.__array_interface__ = {
            "version": 3,
            "data": (array.__array_interface__["data"][0], False),
            "typestr": array.dtype.str,
            "shape": (count,),
        }


def _plain(array: Array) -> Array:
    return array if array.flags.writeable else np.asarray(_Memory(array, array.size))


def _reached(array: Array) -> Array:
    """All numbers from the first to the last of an array whose strides do not go backward."""
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return np.asarray(_Memory(array, reach // array.itemsize + 1))
