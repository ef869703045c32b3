"""The register tile against NumPy: both dtypes, clamped rows, and its machine code."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.matmul import (
    Matrix,
    add_to_rows,
    make_tile_product,
    product_of_few,
    transpose,
)
from rlcpu.kernels.machine.memory import address
from rlcpu.kernels.machine.vectors import VECTOR_BYTES, width
from tests.machine_code import assembly

DTYPES = [np.float32, np.float64]
ROWS, VECTORS = 4, 2


def lanes(dtype: Any) -> int:
    """Numbers in one register."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@functools.cache
def make_multiply() -> Any:
    tile_product = make_tile_product(ROWS, VECTORS)

    @kernel
    def multiply(left, right, start, out, depth, strides, last_row, floor):
        wide = VECTORS * width(out, 1)
        factors = Matrix(address(left), 0, strides[0], strides[1])
        begin = Matrix(address(start), 2, wide + 3, 1)
        row, result = Matrix(address(right), 0, wide, 1), Matrix(address(out), 0, wide, 1)
        tile_product(factors, row, begin, result, (0, 0), depth, last_row, floor)

    return multiply


@kernel
def transpose_square(source, stride, out, out_stride):
    transpose(Matrix(address(source), 0, stride, 1), Matrix(address(out), 0, out_stride, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("transposed", "depth", "last_row"),
    [(False, 1, 3), (True, 7, 1), (True, 33, 2), (False, 33, 3)],
)
def test_a_tile_is_a_matrix_product(
    dtype: Any, transposed: bool, depth: int, last_row: int
) -> None:
    """Of the rows up to the last one."""
    wide = VECTORS * lanes(dtype)
    left, right = numbers((ROWS, depth), dtype, 1), numbers((depth, wide), dtype, 2)
    start, out = numbers((ROWS, wide + 3), dtype, 3), np.full((ROWS, wide), 9, dtype)
    stored = np.ascontiguousarray(left.T if transposed else left)
    strides = (1, ROWS) if transposed else (depth, 1)
    multiply = make_multiply()
    arrays = (each.ravel() for each in (stored, right, start, out))
    multiply(*arrays, depth, strides, last_row, -np.inf)
    expected = start[:, 2 : 2 + wide] + left @ right
    expected[last_row + 1 :] = 9
    rtol = 1e-4 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(out, expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_floors_keep_nan_and_infinity(dtype: Any) -> None:
    wide = VECTORS * lanes(dtype)
    start, out = np.zeros((ROWS, wide + 3), dtype), np.zeros((ROWS, wide), dtype)
    start[:] = np.resize(np.array([-2.0, -0.0, 3.0, np.nan, np.inf, -np.inf], dtype), start.shape)
    none = np.zeros(ROWS * wide, dtype)
    arrays = none, none, start.ravel(), out.ravel()
    make_multiply()(*arrays, 1, (1, 1), ROWS, dtype(0.5))
    values = start[:, 2 : 2 + wide]
    np.testing.assert_array_equal(out, np.where(values < dtype(0.5), dtype(0.5), values))


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose(dtype: Any) -> None:
    n = lanes(dtype)
    source, out = numbers((n, n + 5), dtype), np.zeros((n, n + 2), dtype)
    transpose_square(source.ravel(), n + 5, out.ravel(), n + 2)
    np.testing.assert_array_equal(out[:, :n], source[:, :n].T)
    assert (out[:, n:] == 0.0).all()


def test_the_product_stays_in_registers() -> None:
    """One fused multiply-add per register and step, and no reload of the sums in the loop."""
    out = np.zeros(ROWS * VECTORS * lanes(np.float32), np.float32)
    start = np.zeros(out.size + 3 * ROWS, np.float32)
    code = assembly(make_multiply(), out, out, start, out, 1, (1, 1), 3, np.float32(0.0))
    fused = [line for line in code.splitlines() if "fmadd" in line and "ps" in line]
    if VECTOR_BYTES >= 32:
        assert len(fused) == ROWS * VECTORS
        register = "zmm" if VECTOR_BYTES == 64 else "ymm"
        assert all(register in line for line in fused)


@kernel
def add_rows_of(columns, first, last, left, row, out, size):
    """Once as the row is, and once times numbers on the left."""
    row, target, bounds = (
        Matrix(address(row), 0, size, 1),
        Matrix(address(out), 0, size, 1),
        (first, last),
    )
    add_to_rows(address(columns), bounds, None, row, target, size)
    add_to_rows(address(columns), bounds, address(left), row, target, size)


@pytest.mark.parametrize("vectors", [1, 3, 4, 5, 9])
def test_a_row_is_added_to_some_rows(vectors: int) -> None:
    """Also twice to the same one; four vectors are added at a time, and what is left one by one."""
    size = vectors * lanes(np.float32)
    row, out = numbers((size,), np.float32, 1), numbers((6, size), np.float32, 2)
    columns, expected = np.array([0, 4, 1, 4, 5], np.int32), out.copy()
    left = np.array([0, 3, 5, 5, -2, 5], np.float32)
    np.add.at(expected, columns[1:4], row)
    np.add.at(expected, columns[1:4], left[columns[1:4], None] * row)
    add_rows_of(columns, 1, 4, left, row, out.ravel(), size)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@kernel
def multiply_few(left, right, start, out, rows, columns, floor):
    depth = left.size // rows
    product_of_few(
        Matrix(address(left), 0, depth, 1),
        Matrix(address(right), 0, depth, 1),
        Matrix(address(start), 0, 0, 1),
        Matrix(address(out), 0, 16, 1),
        (rows, depth, columns),
        floor,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 3), (16, 4), (37, 2)])
def test_few_columns_are_a_matrix_product(dtype: Any, rows: int, columns: int) -> None:
    """With rows below the last full register, a floor, and nothing written elsewhere."""
    left, right = numbers((rows, 48), dtype, 1), numbers((columns, 48), dtype, 2)
    start, out = numbers((columns,), dtype, 3), np.full((rows + 1, 16), 7, dtype)
    multiply_few(left.ravel(), right.ravel(), start, out.ravel(), rows, columns, dtype(-0.5))
    expected = np.maximum(start + left @ right.T, -0.5)
    np.testing.assert_allclose(out[:rows, :columns], expected, rtol=1e-4, atol=1e-5)
    assert (out[:rows, columns:] == 7).all()
    assert (out[rows] == 7).all()
