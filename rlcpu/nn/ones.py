"""Inputs that are zeros but for a few ones, such as boards and choices.

A first layer adds up the rows of its weights that belong to the ones, in the place of multiplying
all of them; the way back adds to the gradients of these rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import inline
from rlcpu.kernels.matmul import MANY_ONES, Matrix, add_to_rows, sum_of_rows
from rlcpu.kernels.memory import address
from rlcpu.kernels.mlp import RELU
from rlcpu.nn.network import BIASES, WEIGHTS, WIDTH_IN, WIDTH_OUT


class Ones(NamedTuple):
    """Inputs of S samples that are zeros but for a few ones, such as boards and choices.

    Attributes:
        starts: (S + 1,) int64: those of sample i are `columns[starts[i]:starts[i + 1]]`.
        columns: (any,) int32, which inputs are one.
        size: how many inputs a sample has.
    """

    starts: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]
    size: int

    @classmethod
    def of(cls, inputs: npt.NDArray[Any]) -> Ones:
        """Of an array (S, size) of zeros and ones, of uint8 or bool.

        Raises:
            TypeError: it is of another dtype, or has other axes.
        """
        if inputs.dtype not in (np.uint8, np.bool_) or inputs.ndim != 2:
            shape = f"shape {inputs.shape} and dtype {inputs.dtype}"
            raise TypeError(f"inputs have {shape}: expected (S, size) of uint8 or bool")
        count, size = inputs.shape
        places = np.flatnonzero(inputs.reshape(-1).view(np.bool_))
        starts = np.searchsorted(places, np.arange(count + 1) * size)
        return cls(starts, (places % size).astype(np.int32), size)

    def check(self, size: int) -> None:
        """Raise ValueError unless they are inputs of networks of so many."""
        starts, columns = np.asarray(self.starts), np.asarray(self.columns)
        kinds = f"{starts.dtype} {starts.ndim} {columns.dtype} {columns.ndim}"
        if kinds != "int64 1 int32 1" or self.size != size or len(starts) < 2:
            raise ValueError(
                f"inputs have starts {starts.shape} {starts.dtype}, columns {columns.shape} "
                f"{columns.dtype}, size {self.size}: expected (S + 1,) int64, (any,) int32, {size}"
            )
        if starts[0] != 0 or starts[-1] != len(columns) or (np.diff(starts) < 0).any():
            raise ValueError(f"starts of inputs: expected to grow from 0 to {len(columns)}")
        if len(columns) and not 0 <= columns.min() <= columns.max() < size:
            raise ValueError(f"columns of inputs: expected 0 to {size - 1}")

    def expand(self) -> npt.NDArray[np.float32]:
        """All inputs, (S, size) float32."""
        inputs = np.zeros((len(self.starts) - 1, self.size), np.float32)
        inputs[np.repeat(np.arange(len(inputs)), np.diff(self.starts)), self.columns] = 1.0
        return inputs

    def are_few(self) -> bool:
        """Whether to add up rows of weights is faster than a product."""
        return len(self.columns) <= MANY_ONES * (len(self.starts) - 1) * self.size


#: What kernels are given where inputs are any numbers.
NO_ONES = Ones(np.zeros(0, np.int64), np.zeros(0, np.int32), 0)


@functools.cache
def make_sum_ones(dtype: type) -> Callable[..., None]:
    """`sum_ones(cells, network, samples, i, bounds, columns)`: the first layer of one sample.

    It writes the units of sample i of `samples`, whose ones are columns[bounds[0]:bounds[1]], in
    front of a normalisation or of tanh, to where `make_forward` expects what it is given.
    """
    zero, none = dtype(0), dtype(-np.inf)

    @inline
    def sum_ones(cells, network, samples, i, bounds, columns):
        weights, size = address(network.parameters), network.table[0, WIDTH_OUT]
        place = samples * network.table[0, WIDTH_IN] + i * size
        sum_of_rows(
            address(columns),
            bounds,
            Matrix(weights, network.table[0, WEIGHTS], size, 1),
            Matrix(weights, network.table[0, BIASES], 0, 1),
            Matrix(address(cells), place, size, 1),
            size,
            zero if network.activation == RELU else none,
        )

    return sum_ones


@inline
def add_slopes(gradients, cells, network, samples, i, bounds, columns):
    """Add to the gradient of the first layer's weights what sample i does; see `make_backward`."""
    size = network.table[0, WIDTH_OUT]
    place = samples * network.table[0, WIDTH_IN] + i * size
    add_to_rows(
        address(columns),
        bounds,
        Matrix(address(cells), place, size, 1),
        Matrix(address(gradients), network.table[0, WEIGHTS], size, 1),
        size,
    )
