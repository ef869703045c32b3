"""The register tile against NumPy: both dtypes, clamped rows, and its machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.kernels.compile import kernel
from rlcpu.kernels.matmul import Matrix, add_product, load_rows, spread_rows, store_rows, transpose
from rlcpu.kernels.memory import address
from rlcpu.kernels.vectors import VECTOR_BYTES, width
from tests.machine_code import assembly

DTYPES = [np.float32, np.float64]
ROWS, VECTORS = 4, 2


def lanes(dtype: Any) -> int:
    """Numbers in one register."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@kernel
def copy_tile(source, begin, stride, last_row, out):
    tile = load_rows(ROWS, VECTORS, Matrix(address(source), begin, stride, 1), last_row)
    wide = VECTORS * width(out, 1)
    store_rows(tile, -np.inf, Matrix(address(out), 0, wide, 1), ROWS)


@kernel
def spread_tile(source, begin, stride, last_row, out):
    tile = spread_rows(ROWS, VECTORS, Matrix(address(source), begin, stride, 1), last_row)
    wide = VECTORS * width(out, 1)
    store_rows(tile, -np.inf, Matrix(address(out), 0, wide, 1), ROWS)


@kernel
def multiply_tile(left, right, out, depth, strides, last_row):
    wide = VECTORS * width(out, 1)
    result = Matrix(address(out), 0, wide, 1)
    tile = load_rows(ROWS, VECTORS, result, last_row)
    factors = Matrix(address(left), 0, strides[0], strides[1])
    tile = add_product(tile, factors, Matrix(address(right), 0, wide, 1), depth, last_row)
    store_rows(tile, -np.inf, result, last_row)


@kernel
def raise_tile(values, floor):
    matrix = Matrix(address(values), 0, VECTORS * width(values, 1), 1)
    store_rows(load_rows(ROWS, VECTORS, matrix, ROWS), floor, matrix, ROWS)


@kernel
def transpose_square(source, stride, out, out_stride):
    transpose(Matrix(address(source), 0, stride, 1), Matrix(address(out), 0, out_stride, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("last_row", [0, 2, 3])
def test_load_clamps_rows_to_the_last(dtype: Any, last_row: int) -> None:
    wide = VECTORS * lanes(dtype)
    source = numbers((ROWS, wide + 3), dtype)
    out = np.zeros((ROWS, wide), dtype)
    copy_tile(source.ravel(), 2, wide + 3, last_row, out.ravel())
    rows = np.minimum(np.arange(ROWS), last_row)
    np.testing.assert_array_equal(out, source[rows, 2 : 2 + wide])


@pytest.mark.parametrize("dtype", DTYPES)
def test_spread_repeats_one_number_along_each_row(dtype: Any) -> None:
    wide = VECTORS * lanes(dtype)
    source = numbers((20,), dtype)
    out = np.zeros((ROWS, wide), dtype)
    spread_tile(source, 3, 5, 2, out.ravel())
    np.testing.assert_array_equal(out, np.repeat(source[[3, 8, 13, 13], None], wide, axis=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("depth", "last_row"), [(1, 3), (7, 1), (33, 3)])
def test_add_product_is_a_matrix_product(
    dtype: Any, transposed: bool, depth: int, last_row: int
) -> None:
    wide = VECTORS * lanes(dtype)
    left, right = numbers((ROWS, depth), dtype, 1), numbers((depth, wide), dtype, 2)
    out = numbers((ROWS, wide), dtype, 3)
    expected = out.copy()
    expected[: last_row + 1] += left[: last_row + 1] @ right
    stored = np.ascontiguousarray(left.T if transposed else left)
    strides = (1, ROWS) if transposed else (depth, 1)
    multiply_tile(stored.ravel(), right.ravel(), out.ravel(), depth, strides, last_row)
    np.testing.assert_allclose(
        out, expected, rtol=1e-4 if dtype is np.float32 else 1e-12, atol=1e-5
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_floors_keep_nan_and_infinity(dtype: Any) -> None:
    values = np.resize(
        np.array([-2.0, -0.0, 3.0, np.nan, np.inf, -np.inf], dtype), ROWS * VECTORS * lanes(dtype)
    )
    expected = np.where(values < dtype(0.5), dtype(0.5), values)
    raise_tile(values, dtype(0.5))
    np.testing.assert_array_equal(values, expected)


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
    code = assembly(multiply_tile, out, out, out, 1, (1, 1), 3)
    fused = [line for line in code.splitlines() if "fmadd" in line and "ps" in line]
    if VECTOR_BYTES >= 32:
        assert len(fused) == ROWS * VECTORS
        register = "zmm" if VECTOR_BYTES == 64 else "ymm"
        assert all(register in line for line in fused)
