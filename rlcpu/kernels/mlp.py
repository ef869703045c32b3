"""Multi-layer perceptrons on a block of lanes: one compiled kernel serves every architecture.

Parameters are one flat array, layer after layer: the weights (inputs, outputs), row-major, then the
biases (outputs,). A block of lanes (environments) passes all layers while its activations stay in
cache: 64 lanes of 4-64-64-3 are 35 KB beside 19 KB of parameters.

The product works on register tiles of `TILE_ROWS` rows x 2 vectors. Per step of the contraction
a tile loads 2 vectors and `TILE_ROWS` numbers for 2 * `TILE_ROWS` multiply-adds, which hides both
the loads and the latency of the sums: 90 % of the FMA peak on 4-64-64-3 with relu, 66 % with tanh
(128 values of tanh per lane cost as much as a third of the product), measured on Zen 5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from rlcpu.kernels import simd
from rlcpu.kernels.compile import FAST, INLINE, inline, specialise
from rlcpu.kernels.simd import Matrix

#: Codes of the hidden layers' activation.
TANH, RELU = 0, 1
#: 16 of AVX-512's and NEON's 32 registers hold a tile, 8 of AVX2's 16.
TILE_ROWS = 4 if simd.VECTOR_BYTES == 32 else 8
#: Height below the last full tile, such as the few outputs of the last layer.
FEW_ROWS = 4

# As `inline`, but called: training uses the product from three places.
_outline = njit(fastmath=FAST, **{**INLINE, "forceinline": False})


@inline
def _at(matrix: Matrix, row: int, column: int) -> Matrix:
    """The part of a matrix from (row, column) on."""
    begin = matrix.begin + row * matrix.row_stride + column * matrix.column_stride
    return Matrix(matrix.values, begin, matrix.row_stride, matrix.column_stride)


def _make_tile_product(start_tile: Any, rows: int, vectors: int) -> Callable[..., None]:
    @inline
    def tile_product(left, right, start, out, corner, depth, last_row, floor):  # type: ignore[no-untyped-def]
        row, column = corner
        tile = start_tile(rows, vectors, _at(start, row, column), last_row)
        tile = simd.add_product(tile, _at(left, row, 0), _at(right, 0, column), depth, last_row)
        simd.store(simd.maximum(tile, floor), _at(out, row, column), last_row)

    return tile_product


def _make_product(start_tile: Any, decorate: Any) -> Callable[..., None]:
    """Whole product out of tiles: full ones, a last row of low ones, a last column of slim ones."""
    full = _make_tile_product(start_tile, TILE_ROWS, 2)
    low = _make_tile_product(start_tile, FEW_ROWS, 2)
    slim = _make_tile_product(start_tile, TILE_ROWS, 1)

    @decorate
    def product(left, right, start, out, shape, floor):  # type: ignore[no-untyped-def]
        rows, depth, columns = shape
        width = simd.lanes(out.values)
        paired = columns - columns % (2 * width)
        whole = rows - rows % TILE_ROWS
        for row in range(0, whole, TILE_ROWS):
            for column in range(0, paired, 2 * width):
                full(left, right, start, out, (row, column), depth, TILE_ROWS - 1, floor)
        for row in range(whole, rows, FEW_ROWS):
            for column in range(0, paired, 2 * width):
                low(left, right, start, out, (row, column), depth, rows - row - 1, floor)
        for row in range(0, rows, TILE_ROWS):
            for column in range(paired, columns, width):
                slim(left, right, start, out, (row, column), depth, rows - row - 1, floor)

    return product


#: out = max(start + left @ right, floor); `start` gives one number per row (its first column).
product_from_column = _make_product(simd.spread, inline)
#: out = max(start + left @ right, floor); `start` is a matrix, or one row with a row stride of 0.
product = _make_product(simd.load, _outline)


@functools.cache
def make_forward(dtype: type) -> Callable[..., int]:
    """The forward pass in one dtype, as a plain function that kernels inline.

    Returns:
        `forward(parameters, sizes, activation, activations, lanes) -> index`: runs all layers on
        one block. `parameters` (P,) flat; `sizes` (L + 1,) int64; `activation` TANH or RELU, of the
        hidden layers; `activations` (sum(sizes) * lanes,) flat, layer after layer with one row of
        `lanes` numbers per unit: the first `sizes[0]` rows are the input, all others are
        overwritten; `lanes` a multiple of 16 (best of 32; 64 fit in the first-level cache). The
        last layer has no activation: its rows begin at the returned index.
    """
    tanh = specialise(_tanh, dtype)
    zero, none = dtype(0), dtype(-np.inf)

    @inline
    def tanh_in_place(values):  # type: ignore[no-untyped-def]
        for i in range(values.size):
            values[i] = tanh(values[i])

    @inline
    def forward(parameters, sizes, activation, activations, lanes):  # type: ignore[no-untyped-def]
        pointer, cells = simd.address(parameters), simd.address(activations)
        weights = inputs = outputs = 0
        layers = sizes.size - 1
        for layer in range(layers):
            fan_in, fan_out = sizes[layer], sizes[layer + 1]
            biases, outputs = weights + fan_in * fan_out, inputs + fan_in * lanes
            hidden = layer < layers - 1
            product_from_column(
                Matrix(pointer, weights, 1, fan_out),
                Matrix(cells, inputs, lanes, 1),
                Matrix(pointer, biases, 1, 0),
                Matrix(cells, outputs, lanes, 1),
                (fan_out, fan_in, lanes),
                zero if hidden and activation == RELU else none,
            )
            if hidden and activation == TANH:
                tanh_in_place(activations[outputs : outputs + fan_out * lanes])
            weights, inputs = biases + fan_out, outputs
        return outputs

    return forward


def _tanh(x: float) -> float:
    return math.tanh(x)


#: The forward pass of float32 networks.
forward = make_forward(np.float32)
