"""How arrays with a time axis anywhere are seen by kernels: (outer, num_steps, inner), by strides.

Nothing is copied if three strides describe an array and its *runs* have no gaps: the numbers that a
kernel reads in vectors, that is the lanes of a step or, where there is one lane, its steps. Systems
of equations have their unknowns in the place of steps.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.machine.memory import LINE, array_address

Array = npt.NDArray[Any]

#: Bytes of an array that repeats a number in place of a longer one: a page, which is what kernels
#: read of a run at most, and the lanes that they take through time. Blocks of 1 KB take 1.3x as
#: long.
REPEATED = 4096


class Place(NamedTuple):
    """Address and strides of an array (outer, num_steps, inner) in memory.

    In runs the stride is 1, or 0 where `REPEATED` bytes of the same number stand for all.
    """

    array: Array  # whose memory it is, to be kept alive
    address: int  # of the first number
    outer: int  # stride over the axes before time, in numbers
    time: int  # stride over steps
    lane: int  # stride over the axes after time


class AxesOrder(NamedTuple):
    """The order in which kernels go through the axes of several arrays of one shape.

    Its methods take arrays whose axes are in the order of the caller.
    """

    order: tuple[int, ...]  # axes of the arrays from the longest stride to the shortest
    shape: tuple[int, ...]  # of the arrays, in that order
    axis: int  # of time, in that order
    outer: int  # number of indices before time
    num_steps: int  # length of the time axis
    inner: int  # number of lanes, after time
    is_plain: bool  # whether the order is the caller's

    @property
    def _run_axis(self) -> int:
        """Return the axis along which runs lie in (outer, num_steps, inner)."""
        return 1 if self.inner == 1 else 2

    def _has_runs(self, whole: Array) -> bool:
        """Tell whether runs of an array (outer, num_steps, inner) have no gaps."""
        size, strides = whole.itemsize, whole.strides
        is_run = whole.shape[self._run_axis] == 1 or strides[self._run_axis] == size
        return is_run and whole.flags.aligned and not any(stride % size for stride in strides)

    def place(self, array: Array) -> Place:
        """Return where an array of numbers or flags is that broadcasts to the shape.

        It is copied if three strides cannot describe it, or if its runs have gaps.
        """
        if array.ndim == 0:
            return repeated(array.tobytes(), array.dtype)
        return self.target(array) or place_of(self.arranged(array, REPEATED // array.itemsize))

    def arranged(self, array: Array, repeats: int) -> Array:
        """Return the array as (outer, num_steps, inner), copied if its runs have gaps.

        Along an axis where numbers are repeated the copy has them once, with a stride of 0. Along a
        run of a repeated number it has that `repeats` times, or as often as the run is long: as
        many numbers as kernels read at once.
        """
        whole, run = self.flat(array), self._run_axis
        if self._has_runs(whole):
            return whole
        copy = whole[tuple(slice(None if stride else 1) for stride in whole.strides)]
        if copy.shape[run] < whole.shape[run]:
            copy = np.repeat(copy, min(whole.shape[run], repeats), run)
        copy = np.ascontiguousarray(copy)
        axes = zip(copy.strides, copy.shape, whole.shape, strict=True)
        strides = [stride if length == full else 0 for stride, length, full in axes]
        return np.lib.stride_tricks.as_strided(copy, whole.shape, strides, writeable=False)

    def place_ends(self, array: Array) -> Place:
        """Return where an array is that lacks the time axis, and broadcasts to all others."""
        if array.ndim == 0:
            return repeated(array.tobytes(), array.dtype)
        if not self.is_plain or array.size != self.outer * self.inner:
            array = self.flat(np.expand_dims(array, self.order[self.axis]))[:, 0]
        numbers = np.ascontiguousarray(array).reshape(self.outer, 1, self.inner)
        return place_of(numbers)._replace(time=0)

    def target(self, array: Array) -> Place | None:
        """Return where an array is; None if `place` would have to copy it."""
        flags = array.flags
        if self.is_plain and array.shape == self.shape and flags.c_contiguous and flags.aligned:
            return Place(array, array_address(array), self.num_steps * self.inner, self.inner, 1)
        whole = self.flat(array)
        is_view = self._has_runs(whole) and np.may_share_memory(whole, array)
        return place_of(whole) if is_view else None

    def empty(self, dtype: Any) -> Array:
        """Return a new array of the caller's shape, whose memory is in the order of kernels.

        It begins at a cache line, so that kernels can write past the caches.
        """
        count = math.prod(self.shape)
        numbers = np.empty(count + LINE // np.dtype(dtype).itemsize, dtype)
        begin = -array_address(numbers) % LINE // numbers.itemsize
        return numbers[begin : begin + count].reshape(self.shape).transpose(np.argsort(self.order))

    def flat(self, array: Array) -> Array:
        """Return the array as (outer, num_steps, inner), a view of it where NumPy can make one."""
        if not self.is_plain or array.shape != self.shape:
            shape = tuple(self.shape[i] for i in np.argsort(self.order))
            array = array if array.shape == shape else np.broadcast_to(array, shape)
            array = array.transpose(self.order)
        return array.reshape(self.outer, self.num_steps, self.inner)

    def without_steps(self, numbers: Array) -> Array:
        """Return numbers of lanes (outer, inner) with the caller's axes but the last, of time."""
        axes = [i for i in self.order if i != len(self.order) - 1]
        sizes = [size for i, size in enumerate(self.shape) if i != self.axis]
        return numbers.reshape(sizes).transpose(np.argsort(axes))


def layout_of(array: Array, axis: int, backend: Any = None) -> Any:
    """Return the order in which an array lies in memory: an `AxesOrder`, or a backend's layout.

    `axis` is that of time, counted from the first.
    """
    if backend is not None:
        return backend.layout_of(array, axis)
    order = tuple(range(array.ndim))
    if not array.flags.c_contiguous:
        order = tuple(sorted(order, key=lambda i: -abs(array.strides[i])))
    shape, time = tuple(array.shape[i] for i in order), order.index(axis)
    outer, inner = math.prod(shape[:time]), math.prod(shape[time + 1 :])
    return AxesOrder(
        order, shape, time, outer, shape[time], inner, order == tuple(range(array.ndim))
    )


def place_of(array: Array) -> Place:
    """Return the `Place` of an array (outer, num_steps, inner)."""
    outer, time, lane = (stride // array.itemsize for stride in array.strides)
    return Place(array, array_address(array), outer, time, lane)


@functools.lru_cache(maxsize=64)
def repeated(number: bytes, dtype: Any) -> Place:
    """Return the place of a number of a dtype, given as bytes, that is repeated everywhere."""
    array = np.full(REPEATED // len(number), np.frombuffer(number, dtype)[0])
    return Place(array, array_address(array), 0, 0, 0)
