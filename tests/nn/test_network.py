"""Forward and backward pass over samples, in the packed layout, against NumPy."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlcpu import nn
from rlcpu.kernels.compiler.compile import kernel
from rlcpu.nn import Network
from rlcpu.nn.network import packed
from rlcpu.nn.network.packed import packed_at
from rlcpu.nn.network.passes import ADDED, BY_INPUTS, OVERWRITTEN, Time, backward, forward
from tests.train import naive

ARCHITECTURES = [(4, 64, 64, 2), (4, 2), (20, 3), (6, 33, 17, 5), (1, 1), (30, 100, 40, 20, 18)]
DTYPES = [np.float32, np.float64]


@kernel
def run_forward(net: Any, units: Any, samples: int) -> int:
    net = packed_at(net, units)
    for i in range(net.table.shape[0]):
        packed.copy_rows(net.table[i], net, 0, net.table[i].rows)
    return forward(net, units, samples, False, Time(1, units[:0]))


@kernel
def run_backward(
    net: Any, units: Any, slopes: Any, gradients: Any, samples: int, found: int
) -> None:
    net = packed_at(net, units)
    backward(net, units, slopes, gradients, samples, False, Time(1, units[:0]), found)


def make_network(sizes: Any, activation: str, dtype: Any, layer_norm: bool = False) -> Network:
    """A network of random weights."""
    net = Network(sizes, activation, layer_norm=layer_norm)
    flat = np.random.default_rng(0).normal(0.0, 0.4, net.parameters.size)
    net.parameters = flat.astype(dtype)
    return net


def flat_layers(net: Network, flat: np.ndarray) -> list[list[np.ndarray]]:
    """The arrays of each dense layer and of the normalisation behind it."""
    layers: list[list[np.ndarray]] = []
    for array, view in zip(net.plan.arrays, net.plan.flat_views(flat), strict=True):
        if array.name.endswith("weights"):
            layers.append([])
        layers[-1].append(view)
    return layers


def naive_gradient(
    net: Network, flat: np.ndarray, inputs: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """Flat gradient of sum(slopes * outputs), by the chain rule, layer by layer."""
    layers, is_tanh = flat_layers(net, flat), net.activation == "tanh"
    units = [inputs]
    for k, (weights, biases) in enumerate(layers):
        rows = units[-1] @ weights + biases
        last = k == len(layers) - 1
        units.append(rows if last else np.tanh(rows) if is_tanh else np.maximum(rows, 0))
    parts = []
    for (weights, _), below, above in reversed(list(zip(layers, units, units[1:], strict=False))):
        if parts:
            slopes = slopes * ((1.0 - above**2) if is_tanh else above > 0.0)
        parts.append(np.concatenate([(below.T @ slopes).ravel(), slopes.sum(axis=0)]))
        slopes = slopes @ weights.T
    return np.concatenate(parts[::-1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("samples", [1, 61, 64])
def test_passes_equal_numpy(
    dtype: Any, activation: str, architecture: tuple[int, ...], samples: int
) -> None:
    network = make_network(architecture, activation, dtype)
    net, plan, sizes = network.packed(), network.plan, network.sizes
    flat = network.parameters.astype(np.float64)
    (first_input, width_in, _), (first_output, width_out, _) = plan.inputs[0], plan.outputs[0]
    rng = np.random.default_rng(1)
    units = np.full(samples * plan.units, np.nan, dtype)
    inputs = units[first_input * samples :][: samples * width_in].reshape(samples, width_in)
    inputs[:] = 0.0
    inputs[:, : sizes[0]] = rng.normal(size=(samples, sizes[0]))
    seen = inputs[:, : sizes[0]].astype(np.float64)
    assert run_forward(net.address, units, samples) == first_output * samples
    outputs = units[first_output * samples :][: samples * width_out].reshape(samples, width_out)
    expected = naive.run_network(sizes, flat, activation, seen)
    tolerance = 1e-4 if dtype is np.float32 else 1e-11
    close = functools.partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    close(outputs[:, : sizes[-1]], expected)
    assert (outputs[:, sizes[-1] :] == 0.0).all()

    slopes = rng.normal(size=expected.shape)
    outputs[:, : sizes[-1]] = slopes
    gradients = np.zeros_like(net.parameters)
    scratch = np.full((samples + 1) * plan.slopes, np.nan, dtype)
    run_backward(net.address, units, scratch, gradients, samples, ADDED)
    actual = plan.unpack(gradients, dtype)
    wanted = naive_gradient(network, flat, seen, slopes)
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance * samples)
    assert np.count_nonzero(gradients) <= np.count_nonzero(actual)  # none in the padding


def test_what_a_backward_pass_writes() -> None:
    """Derivatives by parameters added or overwritten, by the inputs, or both."""
    trunk = nn.Input("a") >> nn.Dense(18) >> nn.LayerNorm() >> nn.Relu()
    joined = nn.Concatenate(trunk, nn.Input("b"), nn.Input("c") >> nn.Embedding(3, choices=2))
    graphs = {"x": joined >> nn.Dense(9) >> nn.Tanh() >> nn.Dense(2), "y": trunk >> nn.Dense(1)}
    network = Network({"a": 3, "b": 2, "c": 1}, graphs, seed=4)
    network.parameters = network.parameters.astype(np.float64)
    rng, samples = np.random.default_rng(1), 7
    inputs = {"a": rng.normal(size=(7, 3)), "b": rng.normal(size=(7, 2)), "c": np.ones((7, 1))}
    slopes = {"x": rng.normal(size=(7, 2)), "y": rng.normal(size=(7, 1))}
    by_parameters, by_inputs = network.gradients(inputs, slopes)
    net, plan = network.packed(), network.plan

    def blocks(units: Any, places: Any) -> list[Any]:
        return [
            units[samples * cells :][: samples * width].reshape(samples, width)[:, :size]
            for cells, width, size in places
        ]

    for found in (ADDED, OVERWRITTEN, BY_INPUTS, ADDED | BY_INPUTS, OVERWRITTEN | BY_INPUTS):
        units = np.zeros(samples * plan.units)
        for block, values in zip(blocks(units, plan.inputs), inputs.values(), strict=True):
            block[:] = values
        run_forward(net.address, units, samples)
        for block, values in zip(blocks(units, plan.inputs), inputs.values(), strict=True):
            np.testing.assert_array_equal(block, values)
        for block, values in zip(blocks(units, plan.outputs), slopes.values(), strict=True):
            block[:] = values
        gradients = np.ones(plan.parameters)
        run_backward(
            net.address, units, np.ones((samples + 1) * plan.slopes), gradients, samples, found
        )
        wanted = by_parameters * bool(found & (ADDED | OVERWRITTEN)) + 1.0 * (
            found & OVERWRITTEN == 0
        )
        np.testing.assert_allclose(plan.unpack(gradients, np.float64), wanted, rtol=1e-12)
        if found & BY_INPUTS:
            for block, values in zip(blocks(units, plan.inputs), by_inputs.values(), strict=True):
                np.testing.assert_allclose(block, values, rtol=1e-12)


def test_packed_parameters_hold_every_flat_parameter_once() -> None:
    for architecture in ARCHITECTURES:
        network = make_network(architecture, "tanh", np.float64)
        net = network.packed()
        back = network.plan.unpack(net.parameters, np.float64)
        np.testing.assert_array_equal(back, network.parameters)
        assert np.count_nonzero(net.parameters) == back.size


COUNTED = """
import numpy as np
import numpy.typing as npt
from numba.core import event
from rlcpu import nn

from rlcpu.kernels.compiler import announce

dense = nn.Dense(4) >> nn.Tanh() >> nn.Dense(2)
nn.Network(3, dense).outputs(np.ones((2, 3)))
print(announce.ready())
nn.Network(3, dense).gradients(np.ones((2, 3)), np.ones((2, 2)))
print(announce.ready())
x = nn.Embedding(4, choices=3) >> nn.Elu() >> nn.LayerNorm() >> nn.Silu()
x = nn.Concatenate(x, x) >> nn.Dense(4) >> nn.Residual(nn.Dense(4))
nn.Network(3, x).gradients(np.ones((2, 3)), np.ones((2, 4)))


class Counter(event.Listener):
    count = 0

    def on_start(self, _):
        self.count += 1

    def on_end(self, _):
        pass


counter = Counter()
event.register("numba:compile", counter)
x = nn.Input("a") >> nn.Embedding(20, choices=3) >> nn.Elu()
x = nn.Concatenate(x, nn.Input("b")) >> nn.Dense(9) >> nn.LayerNorm() >> nn.Silu()
net = nn.Network({"a": 2, "b": 3}, {"c": x >> nn.Residual(nn.Dense(9)), "d": x >> nn.Dense(1)})
inputs = {"a": np.ones((5, 2)), "b": np.ones((5, 3))}
net.gradients(inputs, net.outputs(inputs))
print(counter.count)
"""


def test_a_new_network_compiles_nothing() -> None:
    """What networks need is compiled for the first one: forward passes of dense layers and tanh,
    and the kernel that Python calls, are three kernels; backward passes are as many."""
    command = [sys.executable, "-W", "error", "-c", COUNTED]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["3", "6", "0"]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_by_parameters_and_inputs(activation: str, architecture: tuple[int, ...]) -> None:
    net, rng = Network(architecture, activation, seed=1), np.random.default_rng(0)
    inputs = rng.normal(size=(7, architecture[0]))
    slopes = rng.normal(size=(7, architecture[-1]))
    by_parameters, by_inputs = net.gradients(inputs, slopes)
    flat = net.parameters.astype(np.float64)
    wanted = naive_gradient(net, flat, inputs, slopes)
    np.testing.assert_allclose(by_parameters, wanted, rtol=1e-4, atol=1e-4)
    for k in range(architecture[0]):
        step = 1e-6 * np.eye(architecture[0])[k]
        above, below = (
            naive.run_network(net.sizes, flat, activation, inputs + sign * step)
            for sign in (1.0, -1.0)
        )
        slope = ((above - below) * slopes).sum(axis=1) / 2e-6
        np.testing.assert_allclose(by_inputs[:, k], slope, rtol=1e-4, atol=1e-4)


def test_outputs_follow_the_parameters_and_copies_stand_alone() -> None:
    """A network keeps memory for kernels: its parameters are read anew by each call, changed in
    place or replaced by another array, and a copy has memory of its own."""
    net, inputs = Network((3, 8, 2), seed=1), np.ones((2, 3), np.float32)
    shallow, deep, pickled = copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    first = net.outputs(inputs)

    def wanted() -> npt.NDArray[Any]:
        return naive.run_network(net.sizes, net.parameters.astype(np.float64), "tanh", inputs)

    np.testing.assert_allclose(first, wanted(), rtol=1e-5, atol=1e-6)
    net.parameters[...] *= 0.5
    np.testing.assert_allclose(net.outputs(inputs), wanted(), rtol=1e-5, atol=1e-6)
    net.parameters = np.float64(3.0) * net.parameters
    np.testing.assert_allclose(net.outputs(inputs), wanted(), rtol=1e-12)
    assert net.outputs(inputs).dtype == np.float64
    for other in (deep, pickled):
        np.testing.assert_array_equal(other.outputs(inputs), first)
    # A shallow copy has the array that was changed in place.
    assert shallow.outputs(inputs).dtype == np.float32
    halved = naive.run_network(net.sizes, net.parameters / 3.0, "tanh", inputs)
    np.testing.assert_allclose(shallow.outputs(inputs), halved, rtol=1e-5, atol=1e-6)


def test_bad_inputs_and_slopes() -> None:
    net = Network((3, 8, 2))
    with pytest.raises(ValueError, match=r"inputs have shape \(4, 2\): expected \(n, 3\)"):
        net.outputs(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"slopes have shape \(4, 3\): expected \(n, 2\)"):
        net.gradients(np.zeros((4, 3)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="slopes have 5 rows: expected 4"):
        net.gradients(np.zeros((4, 3)), np.zeros((5, 2)))
