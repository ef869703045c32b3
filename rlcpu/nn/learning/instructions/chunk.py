"""Samples that pass a tape together, as instructions see them."""

from __future__ import annotations

import numpy as np

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.memory import array_at
from rlcpu.kernels.machine.structs import Array, Flag, Real, Reference, Struct, Whole
from rlcpu.nn.learning.frame import Frame


class Chunk(Struct):
    """Samples that pass a tape together."""

    worker = Whole()  #: number of the thread that computes, whose scratch memory is used
    update = Whole()  #: number of the update whose instructions run
    number = Whole()  #: of the gradient step, from 1 on, over all calls
    count = Whole()  #: samples
    samples = Array(np.int64, "count")  #: positions in the batch
    minibatch = Whole()  #: number of the minibatch, whose moments standardise columns
    share = Real()  #: 1 / samples of the minibatch
    is_first = Flag()  #: whether networks overwrite their gradients, and do not add to them
    height = Whole()
    rows = Array("real", "height", "count")  #: each number that the program computes of a sample
    slopes = Array("real", "height", "count")  #: derivatives of the loss by these numbers
    units = Array("real")  #: scratch memory of networks
    gradients = Array("real")  #: (P,), derivatives with respect to everything that is learnt
    sums = Array(np.float64)  #: to which losses and statistics are added
    frame = Reference(Frame)  #: everything else


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
