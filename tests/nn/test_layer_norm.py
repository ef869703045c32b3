"""Networks with normalised hidden layers: kernels, NumPy, finite differences and torch agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.nn import Learner, Network
from rlcpu.train.pqn import pqn
from tests.nn.test_network import flat_layers, make_network
from tests.train import naive

ARCHITECTURES = [(4, 120, 84, 2), (6, 33, 17, 5), (3, 1, 4, 1), (4, 2)]


def numeric_gradient(sizes: Any, flat: Any, name: str, inputs: Any, slopes: Any) -> Any:
    """Derivatives of sum(slopes * outputs) by each parameter, by central differences."""
    result = np.zeros_like(flat)
    for k in range(flat.size):
        sums = []
        for step in (1e-6, -1e-6):
            moved = flat.copy()
            moved[k] += step
            sums.append((naive.run_network(sizes, moved, name, inputs, True) * slopes).sum())
        result[k] = (sums[0] - sums[1]) / 2e-6
    return result


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("architecture", ARCHITECTURES[1:])
@pytest.mark.parametrize("samples", [1, 37])
def test_passes_of_the_learner(
    dtype: Any, activation: str, architecture: tuple[int, ...], samples: int
) -> None:
    net, rng = make_network(architecture, activation, dtype, True), np.random.default_rng(1)
    inputs = rng.normal(size=(samples, architecture[0])).astype(dtype)
    exact = net.parameters.astype(np.float64)
    expected = naive.run_network(net.sizes, exact, activation, inputs.astype(np.float64), True)
    tolerance = 2e-4 if dtype is np.float32 else 1e-6
    np.testing.assert_allclose(net.outputs(inputs), expected, rtol=tolerance, atol=tolerance)

    slopes = rng.normal(size=expected.shape)
    actual, _ = net.gradients(inputs, slopes)
    wanted = numeric_gradient(net.sizes, exact, activation, inputs.astype(np.float64), slopes)
    tolerance = 2e-3 if dtype is np.float32 else 1e-5
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance * samples)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_outputs_and_gradients_of_a_network(activation: str, architecture: tuple[int, ...]) -> None:
    net, rng = Network(architecture, activation, seed=1, layer_norm=True), np.random.default_rng(0)
    net.parameters += rng.normal(0.0, 0.1, net.parameters.size).astype(np.float32)
    inputs = rng.normal(size=(7, architecture[0]))
    slopes = rng.normal(size=(7, architecture[-1]))
    flat = net.parameters.astype(np.float64)
    expected = naive.run_network(net.sizes, flat, activation, inputs, True)
    np.testing.assert_allclose(net.outputs(inputs), expected, rtol=1e-4, atol=1e-4)
    by_parameters, by_inputs = net.gradients(inputs, slopes)
    if flat.size < 2000:
        wanted = numeric_gradient(net.sizes, flat, activation, inputs, slopes)
        np.testing.assert_allclose(by_parameters, wanted, rtol=1e-3, atol=1e-3)
    for k in range(architecture[0]):
        step = 1e-6 * np.eye(architecture[0])[k]
        above, below = (
            naive.run_network(net.sizes, flat, activation, inputs + sign * step, True)
            for sign in (1.0, -1.0)
        )
        slope = ((above - below) * slopes).sum(axis=1) / 2e-6
        np.testing.assert_allclose(by_inputs[:, k], slope, rtol=1e-3, atol=1e-3)


def test_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    net, rng = Network((4, 120, 84, 2), "relu", layer_norm=True), np.random.default_rng(0)
    net.parameters += rng.normal(0.0, 0.1, net.parameters.size).astype(np.float32)
    layers: list[Any] = []
    for weights, biases, *scaling in flat_layers(net, net.parameters):
        layers.append(torch.nn.Linear(*weights.shape))
        layers[-1].weight.data, layers[-1].bias.data = map(torch.tensor, (weights.T, biases))
        if scaling:
            layers += [torch.nn.LayerNorm(len(biases)), torch.nn.ReLU()]
            layers[-2].weight.data, layers[-2].bias.data = map(torch.tensor, scaling)
    module = torch.nn.Sequential(*layers)
    inputs, slopes = (rng.normal(size=(50, n)).astype(np.float32) for n in (4, 2))
    outputs = module(torch.tensor(inputs))
    np.testing.assert_allclose(net.outputs(inputs), outputs.detach().numpy(), rtol=1e-4, atol=1e-4)
    (outputs * torch.tensor(slopes)).sum().backward()
    own = net.gradients(inputs, slopes)[0]
    for ours, theirs in zip(
        flat_layers(net, own),
        (layer for layer in module if hasattr(layer, "in_features")),
        strict=True,
    ):
        np.testing.assert_allclose(ours[0], theirs.weight.grad.numpy().T, rtol=1e-3, atol=1e-3)
    gains = [layer.weight.grad.numpy() for layer in module if hasattr(layer, "normalized_shape")]
    for ours, theirs in zip(flat_layers(net, own), gains, strict=False):
        np.testing.assert_allclose(ours[2], theirs, rtol=1e-3, atol=1e-3)


def test_a_learner_descends_its_gradient() -> None:
    rng = np.random.default_rng(2)
    net = Network((4, 32, 16, 2), "relu", layer_norm=True)
    before = net.parameters.copy()
    learner = Learner({"online": net}, pqn, columns={"observation": 4, "action": 1, "target": 1})
    inputs = rng.normal(size=(100, 4)).astype(np.float32)
    actions, target = rng.integers(2, size=100), rng.normal(size=100).astype(np.float32)
    slopes = np.zeros((100, 2))
    slopes[np.arange(100), actions] = net.outputs(inputs)[np.arange(100), actions] - target
    gradient = net.gradients(inputs, 2 * slopes / 100)[0]
    batch = {"observation": inputs, "action": actions, "target": target}
    arguments: Any = {"learning_rate": 1e-3, "minibatch_size": 100}
    report = learner.update(batch, **arguments)
    assert report["gradient_norm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
    # Adam's first step is the sign of the gradient.
    large = abs(gradient) > 1e-5
    change = (net.parameters - before)[large]
    np.testing.assert_allclose(change, -1e-3 * np.sign(gradient[large]), rtol=0.01, atol=1e-6)
    report = learner.update(batch, epochs=300, **arguments)
    last = learner.update(batch, **arguments)
    assert last["loss"] < 0.2 * np.mean(target**2)
