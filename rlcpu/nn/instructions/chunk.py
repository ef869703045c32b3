"""Samples that pass a tape together, as instructions see them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import inline
from rlcpu.kernels.memory import array_at

#: A column of a batch. `values` is the address of its numbers; of a column of `Ones` that of their
#: starts, and `ones` that of their places, else 0. `width` counts numbers of a sample. Networks
#: read (number - mean) * scale, whose addresses are `mean` and `scale`, 0 for plain numbers.
COLUMN_RECORD = np.dtype(
    [(name, np.int64) for name in ("values", "ones", "width", "mean", "scale")]
)


class Chunk(NamedTuple):
    """Samples that pass a tape together.

    Attributes:
        worker: number of the thread that computes, whose scratch memory is used.
        update: number of the update whose instructions run.
        number: of the gradient step, from 1 on, over all calls.
        samples: (count,) int64, positions in the batch.
        minibatch: number of the minibatch, whose moments standardise columns.
        share: 1 / samples of the minibatch.
        is_first: whether networks overwrite their gradients, and do not add to them.
        rows: (height, count), a row for each number that the program computes of a sample.
        slopes: (height, count), derivatives of the loss with respect to these numbers.
        units: scratch memory of networks.
        gradients: (P,), derivatives with respect to everything that is learnt.
        sums: (num_sums,) float64, to which losses and statistics are added.
        frame: everything else, see `rlcpu.nn.update.Frame`.
    """

    worker: int
    update: int
    number: int
    samples: Any
    minibatch: int
    share: Any
    is_first: bool
    rows: Any
    slopes: Any
    units: Any
    gradients: Any
    sums: Any
    frame: Any


@inline
def floats_at(address, count):
    """Return the float32 array of so many numbers at an address."""
    return array_at(address, (count,), np.float32(0))


@inline
def total(row):
    """Return the sum of a row, in double precision."""
    result = 0.0
    for i in range(row.size):
        result += row[i]
    return result
