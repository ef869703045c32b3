"""Sums over the axes along which an array on the device was repeated."""

from __future__ import annotations

import math

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch
from rlcpu.cuda.scan.gradient_kernels import fold_kernel

#: Numbers that a thread adds up: rounding grows with it, and launches with its inverse.
FAN = 64


def summed_to(array: DeviceArray, shape: tuple[int, ...], out: DeviceArray) -> None:
    """Overwrite `out`, of a shape that broadcasts to the array's, with sums in a fixed order."""
    sizes = list(array.shape)
    wanted = (1,) * (len(sizes) - len(shape)) + tuple(shape)
    while True:
        axes = [i for i, (size, want) in enumerate(zip(sizes, wanted, strict=True)) if size != want]
        if not axes:
            break
        last = first = axes[-1]
        while first - 1 in axes:
            first -= 1
        outer, inner = math.prod(sizes[:first]), math.prod(sizes[last + 1 :])
        array = _fold(array, outer, math.prod(sizes[first : last + 1]), inner)
        sizes[first : last + 1] = [1] * (last + 1 - first)
    out.memory.copy_to_device(array.memory)


def _fold(array: DeviceArray, outer: int, count: int, inner: int) -> DeviceArray:
    """Sums (outer, inner) of (outer, count, inner)."""
    while count > 1:
        parts = -(-count // FAN)
        sums = arrays.empty(outer * parts * inner, array.dtype)
        kernel = fold_kernel(array.dtype.type)
        launch(kernel, sums.size, array, count * inner, parts * inner, sums)
        array, count = sums, parts
    return array
