"""Forward and backward pass over samples, in the packed layout, against NumPy."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from rlcpu.kernels.compile import kernel
from rlcpu.kernels.mlp import NORMALIZED, RELU, TANH
from rlcpu.nn import network
from rlcpu.nn.network import Packed
from rlcpu.nn.passes import ADDED, make_passes, passes_of
from tests.train import naive

ARCHITECTURES = [(4, 64, 64, 2), (4, 2), (20, 3), (6, 33, 17, 5), (1, 1), (30, 100, 40, 20, 18)]
DTYPES = [np.float32, np.float64]


@functools.cache
def passes(dtype: Any) -> tuple[Any, Any]:
    forward, backward = make_passes(dtype)

    @kernel
    def run_forward(addresses, net, activations, samples):
        network.refresh_copies(net)
        return forward(addresses, net, activations, samples, False)

    @kernel
    def run_backward(addresses, net, activations, slopes, gradients, samples):
        backward(addresses, net, activations, slopes, gradients, samples, False, ADDED, False)

    return (
        functools.partial(run_forward, passes_of(dtype)),
        functools.partial(run_backward, passes_of(dtype)),
    )


def make_network(sizes: np.ndarray, activation: int, dtype: Any) -> tuple[Packed, np.ndarray]:
    """A network of random weights, and the same weights flat."""
    count = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))
    norm = activation >= NORMALIZED
    count += 2 * int(sizes[1:-1].sum()) * norm
    flat = np.random.default_rng(0).normal(0.0, 0.4, count).astype(dtype)
    table = network.layer_table(sizes, norm)
    packed = np.zeros(network.packed_size(table), dtype)
    copy_layers(network.flat_layers(sizes, flat, norm), network.packed_layers(sizes, packed, norm))
    copies = np.zeros(network.copies_size(table), dtype)
    return Packed(table, activation, packed, copies), flat


def copy_layers(source: Any, target: Any) -> None:
    for arrays, others in zip(source, target, strict=True):
        for array, other in zip(arrays, others, strict=True):
            other[:] = array


def naive_gradient(
    sizes: np.ndarray, flat: np.ndarray, activation: int, inputs: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Flat gradient of sum(slopes * outputs), by the chain rule, layer by layer."""
    layers = network.flat_layers(sizes, flat)
    units = [inputs]
    for k, (weights, biases) in enumerate(layers):
        rows = units[-1] @ weights + biases
        last = k == len(layers) - 1
        units.append(rows if last else np.tanh(rows) if activation == TANH else np.maximum(rows, 0))
    parts = []
    for (weights, _), below, above in reversed(list(zip(layers, units, units[1:], strict=False))):
        if parts:
            slopes = slopes * ((1.0 - above**2) if activation == TANH else above > 0.0)
        parts.append(np.concatenate([(below.T @ slopes).ravel(), slopes.sum(axis=0)]))
        slopes = slopes @ weights.T
    return np.concatenate(parts[::-1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [TANH, RELU])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("samples", [1, 61, 64])
def test_passes_equal_numpy(
    dtype: Any, activation: int, architecture: tuple[int, ...], samples: int
) -> None:
    sizes = np.array(architecture)
    net, flat = make_network(sizes, activation, dtype)
    width_in, width_out = network.padded(sizes[0]), network.padded(sizes[-1])
    rng = np.random.default_rng(1)
    activations = np.zeros(samples * network.cells_per_sample(net.table), dtype)
    inputs = activations[: samples * width_in].reshape(samples, width_in)[:, : sizes[0]]
    inputs[:] = rng.normal(size=inputs.shape)
    seen = inputs.astype(np.float64)
    run_forward, run_backward = passes(dtype)
    outputs = activations[run_forward(net, activations, samples) :].reshape(samples, width_out)
    name = "tanh" if activation == TANH else "relu"
    expected = naive.run_network(sizes, flat.astype(np.float64), name, seen)
    tolerance = 1e-4 if dtype is np.float32 else 1e-11
    close = functools.partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    close(outputs[:, : sizes[-1]], expected)
    assert (outputs[:, sizes[-1] :] == 0.0).all()

    slopes = rng.normal(size=expected.shape)
    outputs[:, : sizes[-1]] = slopes
    gradients = np.zeros_like(net.parameters)
    scratch = np.zeros((samples + 1) * net.table[:, network.WIDTH_IN :].max(), dtype)
    run_backward(net, activations, scratch, gradients, samples)
    actual = np.zeros_like(flat)
    copy_layers(network.packed_layers(sizes, gradients), network.flat_layers(sizes, actual))
    wanted = naive_gradient(sizes, flat.astype(np.float64), activation, seen, slopes)
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance * samples)
    assert np.count_nonzero(gradients) <= np.count_nonzero(actual)  # none in the padding


def test_packed_parameters_hold_every_flat_parameter_once() -> None:
    for architecture in ARCHITECTURES:
        sizes = np.array(architecture)
        net, flat = make_network(sizes, TANH, np.float64)
        back = np.zeros_like(flat)
        copy_layers(network.packed_layers(sizes, net.parameters), network.flat_layers(sizes, back))
        np.testing.assert_array_equal(back, flat)
        assert np.count_nonzero(net.parameters) == flat.size


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_by_parameters_and_inputs(activation: str, architecture: tuple[int, ...]) -> None:
    net, rng = network.Network(architecture, activation, seed=1), np.random.default_rng(0)
    inputs = rng.normal(size=(7, architecture[0]))
    slopes = rng.normal(size=(7, architecture[-1]))
    by_parameters, by_inputs = net.gradients(inputs, slopes)
    flat, code = net.parameters.astype(np.float64), network.ACTIVATIONS[activation]
    wanted = naive_gradient(net.sizes, flat, code, inputs, slopes)
    np.testing.assert_allclose(by_parameters, wanted, rtol=1e-4, atol=1e-4)
    for k in range(architecture[0]):
        step = 1e-6 * np.eye(architecture[0])[k]
        above, below = (
            naive.run_network(net.sizes, flat, activation, inputs + sign * step)
            for sign in (1.0, -1.0)
        )
        slope = ((above - below) * slopes).sum(axis=1) / 2e-6
        np.testing.assert_allclose(by_inputs[:, k], slope, rtol=1e-4, atol=1e-4)


def test_bad_inputs_and_slopes() -> None:
    net = network.Network((3, 8, 2))
    with pytest.raises(ValueError, match=r"inputs have shape \(4, 2\): expected \(n, 3\)"):
        net.outputs(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"slopes have shape \(4, 3\): expected \(n, 2\)"):
        net.gradients(np.zeros((4, 3)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="slopes have 5 rows: expected 4"):
        net.gradients(np.zeros((4, 3)), np.zeros((5, 2)))
