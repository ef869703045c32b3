"""Where many tridiagonal systems lie in memory, as one list of whole numbers for a kernel."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.tridiagonal.steps import inlined

Array = npt.NDArray[Any]

# Positions in a plan: sizes of the outer axis, the inner axis and a system; then five numbers each,
# for lower, diagonal, upper, rhs and out: addresses, and distances in numbers between systems of
# the outer axis, systems of the inner axis, and unknowns.
OUTER, INNER, LENGTH = 0, 1, 2
PLACES, OUTERS, INNERS, STEPS = 3, 8, 13, 18
#: Address of the length of each system, int64, and of where its backward error goes; 0 for none.
LENGTHS, ERRORS = 23, 24
#: Whether to write results past the caches.
STREAM = 25

#: Backward error, in multiples of the dtype's epsilon, from which solutions are refined: 3 of 1,000
#: random systems of 100 unknowns are beyond. Without, the worst of 768,000 random equations in
#: chunks of 32 is 1e-12 in float64.
REFINED = 2**7

#: Bytes of an array of results from which it is written past the caches.
_STREAM_BYTES = 2**22


class Arrays(NamedTuple):
    """Arrays (batch..., n) of one dtype; strides are multiples of its size."""

    lower: Any
    diagonal: Any
    upper: Any
    rhs: Any
    out: Any


class Extras(NamedTuple):
    """Arrays (batch..., ) in C order of the axes of `batch_order`, or None.

    Attributes:
        lengths: int64, length of each system.
        errors: of the systems' dtype, overwritten with backward errors.
    """

    lengths: Any = None
    errors: Any = None


@inlined
def split(plan, system):  # type: ignore[no-untyped-def]
    """Outer and inner index of a system."""
    # A division takes as long as a step of eight systems: most plans need none.
    if plan[OUTER] == 1:
        return 0, system
    return system // plan[INNER], system % plan[INNER]


@inlined
def place(plan, array, index):  # type: ignore[no-untyped-def]
    """Position of a system in one of the five arrays."""
    return plan[OUTERS + array] * index[0] + plan[INNERS + array] * index[1]


@functools.lru_cache(maxsize=256)
def batch_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Batch axes of an array (batch..., n) from the widest stride to the narrowest."""
    return tuple(sorted(range(len(shape) - 1), key=lambda i: -abs(strides[i])))


def make_plans(arrays: Arrays, extras: Extras = Extras()) -> Iterator[Array]:  # noqa: B008
    """Plans that cover all systems, one unless the batch axes do not merge into two.

    Args:
        arrays: what is read and written; the caller keeps them.
        extras: what goes with each system.
    """
    strides = tuple(array.strides for array in arrays)
    template, leading = _layout(arrays.out.shape, strides, arrays.out.itemsize)
    places = [_address(array) for array in arrays]
    marks = [0 if array is None else _address(array) for array in extras]
    sizes = [0 if array is None else array.itemsize for array in extras]
    systems = int(template[OUTER] * template[INNER])
    for number, index in enumerate(itertools.product(*(range(size) for size, _ in leading))):
        plan = template.copy()
        moves = [sum(i * s[a] for i, (_, s) in zip(index, leading, strict=True)) for a in range(5)]
        plan[PLACES:OUTERS] = [p + m for p, m in zip(places, moves, strict=True)]
        plan[LENGTHS:STREAM] = [
            mark and mark + number * systems * size for mark, size in zip(marks, sizes, strict=True)
        ]
        yield plan


@functools.lru_cache(maxsize=256)
def _layout(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...], itemsize: int
) -> tuple[Array, list[Any]]:
    """A plan without addresses, and sizes and strides (bytes, of each array) of leading axes."""
    order = batch_order(shape, strides[-1])
    axes = [(shape[i], [s[i] for s in strides]) for i in order if shape[i] != 1]
    merged: list[Any] = []
    for size, steps in axes:
        if merged and merged[-1][1] == [size * step for step in steps]:
            merged[-1] = (merged[-1][0] * size, steps)
        else:
            merged.append((size, steps))
    alone = (1, [0] * len(strides))
    outer, inner = [alone, alone, *merged][-2:]
    numbers = [*outer[1], *inner[1], *(s[-1] for s in strides)]
    stream = itemsize * math.prod(shape) >= _STREAM_BYTES
    sizes = [outer[0], inner[0], shape[-1]]
    plan = [*sizes, *[0] * 5, *(number // itemsize for number in numbers), 0, 0, stream]
    return np.array(plan, np.int64), merged[:-2]


def transposed(plan: Array, itemsize: int) -> Array:
    """The plan of the transposed systems, for kernels that do not read what is ignored.

    Their lower coefficients are the upper ones one unknown before, and the other way round.
    """
    plan = plan.copy()
    for first in (PLACES, OUTERS, INNERS, STEPS):
        plan[first], plan[first + 2] = plan[first + 2], plan[first]
    plan[PLACES] -= plan[STEPS] * itemsize
    plan[PLACES + 2] += plan[STEPS + 2] * itemsize
    return plan


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
