"""Samples that pass a tape together, as instructions see them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import inline
from rlcpu.kernels.memory import array_at


class ColumnRecord(NamedTuple):
    """A column of a batch: addresses of its numbers, 0 for none, and their count.

    Networks read scaled numbers, see `rlcpu.nn.scaling`, or plain ones where there is no mean.
    """

    values: int  #: address of its numbers; of a column of `Ones` that of their starts
    width: int  #: numbers of a sample
    ones: int = 0  #: address of the places of `Ones`
    mean: int = 0  #: address of `width` numbers
    scale: int = 0  #: address of `width` numbers
    limit: int = 0  #: address of one number


COLUMN_RECORD = np.dtype([(name, np.int64) for name in ColumnRecord._fields])


class Chunk(NamedTuple):
    """Samples that pass a tape together."""

    worker: int  #: number of the thread that computes, whose scratch memory is used
    update: int  #: number of the update whose instructions run
    number: int  #: of the gradient step, from 1 on, over all calls
    samples: Any  #: (count,) int64, positions in the batch
    minibatch: int  #: number of the minibatch, whose moments standardise columns
    share: Any  #: 1 / samples of the minibatch
    is_first: bool  #: whether networks overwrite their gradients, and do not add to them
    rows: Any  #: (height, count), a row for each number that the program computes of a sample
    slopes: Any  #: (height, count), derivatives of the loss with respect to these numbers
    units: Any  #: scratch memory of networks
    gradients: Any  #: (P,), derivatives with respect to everything that is learnt
    sums: Any  #: (num_sums,) float64, to which losses and statistics are added
    frame: Any  #: everything else, see `rlcpu.nn.frame.Frame`


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
