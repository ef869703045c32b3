"""The forward pass against NumPy: all sizes through one compiled kernel."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest

from rlcpu.kernels.compile import kernel
from rlcpu.kernels.matmul import Matrix, product
from rlcpu.kernels.memory import address
from rlcpu.kernels.mlp import RELU, TANH, first_layer, forward, make_forward
from rlcpu.kernels.vectors import VECTOR_BYTES
from tests.machine_code import assembly

ARCHITECTURES = [(4, 64, 64, 3), (1, 1), (2, 3), (6, 33, 17, 5), (3, 8, 16, 24, 9), (20, 4, 1)]
DTYPES = [np.float32, np.float64]


@functools.cache
def forward_kernel(dtype: Any) -> Any:
    forward = make_forward(dtype)

    @kernel
    def run(parameters, sizes, activation, activations, lanes):
        return forward(parameters, sizes, activation, activations, lanes)

    return run


@kernel
def run_product(left, strides, right, start, start_stride, out, shape, floor):
    product(
        Matrix(address(left), 0, strides[0], strides[1]),
        Matrix(address(right), 0, shape[2], 1),
        Matrix(address(start), 0, start_stride, 1),
        Matrix(address(out), 0, shape[2], 1),
        shape,
        floor,
    )


def random_parameters(sizes: np.ndarray, dtype: Any, seed: int = 0) -> np.ndarray:
    count = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))
    return np.random.default_rng(seed).normal(0.0, 0.5, count).astype(dtype)


def naive_forward(
    parameters: np.ndarray, sizes: np.ndarray, activation: int, inputs: np.ndarray
) -> list[np.ndarray]:
    """Rows (units, lanes) of every layer, the input's first."""
    layers, begin = [inputs], 0
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        end = begin + fan_in * fan_out
        weights = parameters[begin:end].reshape(fan_in, fan_out)
        rows = weights.T @ layers[-1] + parameters[end : end + fan_out, None]
        if layer < len(sizes) - 2:
            rows = np.tanh(rows) if activation == TANH else np.maximum(rows, 0.0)
        layers.append(rows)
        begin = end + fan_out
    return layers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [TANH, RELU])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("lanes", [1, 16, 48, 64])
def test_forward_equals_numpy(
    dtype: Any, activation: int, architecture: tuple[int, ...], lanes: int
) -> None:
    sizes = np.array(architecture)
    parameters = random_parameters(sizes, dtype)
    activations = np.full(sizes.sum() * lanes, np.nan, dtype)
    inputs = np.random.default_rng(1).normal(size=(sizes[0], lanes)).astype(dtype)
    activations[: inputs.size] = inputs.ravel()
    first = forward_kernel(dtype)(parameters, sizes, activation, activations, lanes)
    assert first == (sizes.sum() - sizes[-1]) * lanes
    layers = naive_forward(parameters, sizes, activation, inputs)
    tolerance = 2e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(
        activations, np.concatenate(layers).ravel(), rtol=tolerance, atol=tolerance
    )


def test_nan_in_one_lane_stays_in_that_lane() -> None:
    """A diverging simulation has to be seen, and must not touch its neighbours."""
    sizes, lanes = np.array([4, 32, 2]), 32
    for activation in (TANH, RELU):
        activations = np.zeros(sizes.sum() * lanes, np.float32)
        activations[5] = np.nan
        parameters = random_parameters(sizes, np.float32)
        first = forward_kernel(np.float32)(parameters, sizes, activation, activations, lanes)
        seen = np.isnan(activations[first:].reshape(2, lanes))
        assert seen[:, 5].all()
        assert seen.sum() == 2


def test_one_kernel_serves_every_architecture() -> None:
    run = forward_kernel(np.float32)
    for architecture, activation in itertools.product(ARCHITECTURES, (TANH, RELU)):
        sizes = np.array(architecture)
        activations = np.zeros(sizes.sum() * 16, np.float32)
        run(random_parameters(sizes, np.float32), sizes, activation, activations, 16)
    assert len(run.signatures) == 1


def test_float32_kernel_has_full_vectors_and_no_double_arithmetic() -> None:
    sizes = np.array([4, 8, 2])
    activations = np.zeros(sizes.sum() * 16, np.float32)
    run = forward_kernel(np.float32)
    parameters = random_parameters(sizes, np.float32)
    code = assembly(run, parameters, sizes, TANH, activations, 16)
    assert not re.findall(r"\tv?(?:add|sub|mul|div|fn?m\w+)[ps]d\b|\tv?cvt[sp]s2[sp]d\b", code)
    if VECTOR_BYTES == 64:
        assert len(re.findall(r"vfmadd\w+ps\t.*zmm", code)) >= 16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 16), (8, 5, 32), (13, 64, 48), (4, 3, 64), (21, 2, 16)])
def test_product_equals_numpy(dtype: Any, transposed: bool, shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(rows, depth)), rng.normal(size=(depth, columns))
    start = rng.normal(size=(rows, columns))
    stored = np.ascontiguousarray(left.T if transposed else left).astype(dtype)
    strides = (1, rows) if transposed else (depth, 1)
    args = stored.ravel(), strides, right.astype(dtype).ravel(), start.astype(dtype).ravel()
    out = np.zeros((rows, columns), dtype)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    run_product(*args, columns, out.ravel(), shape, dtype(-np.inf))
    np.testing.assert_allclose(out, start + left @ right, rtol=tolerance, atol=tolerance)
    run_product(*args, 0, out.ravel(), shape, dtype(0.25))
    expected = np.maximum(start[0] + left @ right, 0.25)
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)


@kernel
def run_ones(parameters, sizes, activation, activations, lanes, starts, columns, tile):
    first_layer(parameters, sizes, activation, activations, lanes, starts, columns, tile)
    return forward(parameters, sizes, activation, activations, lanes, True)


@pytest.mark.parametrize("activation", [TANH, RELU])
@pytest.mark.parametrize("units", [1, 5, 16, 63, 64, 67, 200])
def test_ones_are_summed_as_numpy_multiplies_them(activation: int, units: int) -> None:
    sizes, lanes = np.array([40, units, 3]), 48
    parameters, rng = random_parameters(sizes, np.float32), np.random.default_rng(units)
    shares = np.linspace(0.0, 1.0, lanes)  # none in the first lane, all in the last one
    inputs = rng.random((40, lanes)) < shares
    activations = np.full(sizes.sum() * lanes, np.nan, np.float32)
    starts = np.concatenate([[0], np.cumsum(inputs.sum(axis=0))]).astype(np.int32)
    columns = np.nonzero(inputs.T)[1].astype(np.int32)
    tile = np.full(16 * (units + 15), np.nan, np.float32)
    first = run_ones(parameters, sizes, activation, activations, lanes, starts, columns, tile)
    layers = naive_forward(parameters, sizes, activation, inputs)
    expected = np.concatenate(layers[1:]).ravel()
    np.testing.assert_allclose(activations[40 * lanes :], expected, rtol=2e-5, atol=2e-5)
    assert first == (40 + units) * lanes
