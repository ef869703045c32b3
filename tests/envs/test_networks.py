"""Networks: their layout, their initial weights, and what they compute."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from rlcpu.policies import MLP, Linear
from tests import naive

SEEN, CHOICES = Box(-np.inf, np.inf, (3,), np.float32), Discrete(4)
NUMBERS = Box(-1.0, 1.0, (2,), np.float32)


def layers(parameters: np.ndarray, sizes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights (inputs, outputs) and biases (outputs,) of each layer, as views."""
    pairs, begin = [], 0
    for inputs, outputs in itertools.pairwise(sizes.tolist()):
        end = begin + inputs * outputs
        pairs.append((parameters[begin:end].reshape(inputs, outputs), parameters[end:][:outputs]))
        begin = end + outputs
    assert begin == parameters.size
    return pairs


@pytest.mark.parametrize(
    ("options", "sizes", "value_sizes"),
    [
        ({}, [3, 64, 64, 4], [3, 64, 64, 1]),
        ({"hidden": [5]}, [3, 5, 4], [3, 5, 1]),
        ({"hidden": (), "value": None}, [3, 4], [0]),
        ({"hidden": np.array([6, 7]), "value": "shared"}, [3, 6, 7, 5], [0]),
    ],
)
def test_sizes(options: dict[str, Any], sizes: list[int], value_sizes: list[int]) -> None:
    policy = MLP(SEEN, CHOICES, **options)
    assert policy.sizes.tolist() == sizes
    assert policy.value_sizes.tolist() == value_sizes
    assert policy.sizes.dtype == np.int64
    layers(policy.parameters, policy.sizes)
    layers(policy.value_parameters, policy.value_sizes)
    assert policy.parameters.dtype == policy.value_parameters.dtype == np.float32
    assert policy.log_std.shape == (0,)


def test_gaussian_and_linear() -> None:
    policy = Linear(SEEN, NUMBERS)
    assert isinstance(policy, MLP)
    assert policy.sizes.tolist() == [3, 2]
    assert policy.log_std.tolist() == [0.0, 0.0]
    assert policy.hidden == ()
    assert policy.value is None


def test_initial_weights_are_orthogonal() -> None:
    policy = MLP(SEEN, CHOICES, hidden=(32, 16), value="shared")
    gains = [np.sqrt(2.0), np.sqrt(2.0)]
    *hidden, (last, _) = layers(policy.parameters, policy.sizes)
    for (weights, biases), gain in zip(hidden, gains, strict=True):
        small = weights if weights.shape[0] < weights.shape[1] else weights.T
        np.testing.assert_allclose(small @ small.T, gain**2 * np.eye(len(small)), atol=1e-5)
        assert not biases.any()
    np.testing.assert_allclose(np.linalg.norm(last, axis=0), [0.01] * 4 + [1.0], rtol=1e-5)


def test_seed_decides_the_weights() -> None:
    first, same, other = (MLP(SEEN, CHOICES, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.parameters, same.parameters)
    np.testing.assert_array_equal(first.value_parameters, same.value_parameters)
    assert (first.parameters != other.parameters).any()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("value", ["separate", "shared", None])
@pytest.mark.parametrize("hidden", [(), (1,), (17,), (64, 64), (9, 33, 5)])
def test_outputs_and_values(hidden: tuple[int, ...], value: str | None, activation: str) -> None:
    """Also of observations beyond the limit, and of more than one batch of them."""
    policy = MLP(SEEN, NUMBERS, hidden, activation, value, seed=4)
    rng = np.random.default_rng(0)
    policy.parameters += rng.normal(0.0, 0.1, policy.parameters.size)
    policy.observation_mean[:], policy.observation_scale[:] = [0.0, 1.0, -1.0], [1.0, 2.0, 30.0]
    policy.observation_limit = 10.0
    observations = rng.standard_normal((1100, 3), np.float32)
    outputs = policy.outputs(observations)
    assert (outputs.dtype, outputs.shape) == (np.float32, (1100, 2))
    for i in (0, 1, 15, 16, 1023, 1024, 1099):
        seen = naive.normalized(policy, observations[i])
        expected = naive.network(policy.parameters, policy.sizes, activation, seen)
        np.testing.assert_allclose(outputs[i], expected[:2], rtol=1e-4, atol=2e-6)
        if value:
            number = naive.value_of(policy, observations[i])
            assert policy.evaluate(observations[i])[0] == pytest.approx(number, rel=1e-4, abs=2e-6)
    if value:
        values = policy.evaluate(observations)
        assert (values.dtype, values.shape) == (np.float32, (1100,))
        assert values.flags.c_contiguous
    assert policy.outputs(np.empty((0, 3))).shape == (0, 2)


@pytest.mark.parametrize("shape", [(2,), (5, 4), (2, 5, 3), ()])
def test_observations_of_another_shape(shape: tuple[int, ...]) -> None:
    policy = MLP(SEEN, CHOICES)
    for function in (policy.evaluate, policy.outputs):
        with pytest.raises(ValueError, match=r"observations have shape .*: expected \(n, 3\)"):
            function(np.zeros(shape))


def test_policy_without_values_has_none() -> None:
    with pytest.raises(ValueError, match="policy has no value head"):
        Linear(SEEN, CHOICES).evaluate(np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"observation_space": Dict()}, TypeError, "observation_space=.*: expected a Box"),
        ({"observation_space": Tuple((Discrete(2),))}, TypeError, "observation_space=.*: expected"),
        ({"action_space": MultiBinary(2)}, TypeError, "action_space=.*: expected a Discrete"),
        ({"action_space": Box(0, 1, (2, 2))}, TypeError, "action_space=.*: expected a Discrete"),
        ({"hidden": 64}, TypeError, "hidden=64: expected a sequence of ints"),
        ({"hidden": "64"}, TypeError, "hidden='64': expected a sequence of ints"),
        ({"hidden": (6.4,)}, TypeError, r"hidden\[0\]=6.4: expected an int of at least 1"),
        ({"hidden": (64, 0)}, ValueError, r"hidden\[1\]=0: expected at least 1"),
        ({"activation": "gelu"}, ValueError, 'activation=\'gelu\': expected "tanh" or "relu"'),
        ({"value": "both"}, ValueError, 'value=\'both\': expected "separate", "shared" or None'),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MLP(**{"observation_space": SEEN, "action_space": CHOICES, **arguments})


# ---------------------------------------------------------------- torch


class Tensor:
    """The four methods of a tensor that are called."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.array


class Linear_:
    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        rng = np.random.default_rng(inputs)
        self.in_features, self.out_features = inputs, outputs
        self.weight = Tensor(rng.standard_normal((outputs, inputs), np.float32))
        self.bias = Tensor(rng.standard_normal(outputs, np.float32)) if bias else None


Linear_.__name__ = "Linear"


class Sequential(list):
    def forward(self, x: Any) -> Any:
        raise NotImplementedError


class Doubled(Sequential):
    def forward(self, x: Any) -> Any:
        return 2.0 * super().forward(x)


Tanh, ReLU, GELU = (type(name, (), {}) for name in ("Tanh", "ReLU", "GELU"))


@pytest.mark.parametrize(("between", "name"), [(Tanh, "tanh"), (ReLU, "relu")])
@pytest.mark.parametrize(("outputs", "value"), [(4, None), (5, "shared")])
def test_weights_from_torch(between: Any, name: str, outputs: int, value: str | None) -> None:
    module = Sequential([Linear_(3, 8), between(), Linear_(8, 6), between(), Linear_(6, outputs)])
    policy = MLP.from_torch(module, SEEN, CHOICES)
    assert (policy.activation, policy.value, policy.hidden) == (name, value, (8, 6))
    x = seen = np.float32([0.1, -0.2, 0.3])
    for layer in module[::2]:
        x = layer.weight.array @ x + layer.bias.array
        if layer is not module[-1]:
            x = np.tanh(x) if name == "tanh" else np.maximum(x, 0.0)
    np.testing.assert_allclose(policy.outputs(seen)[0], x[:4], rtol=1e-4, atol=1e-5)
    if value:
        assert policy.evaluate(seen)[0] == pytest.approx(x[4], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ([], "of Linear layers with biases"),
        ([Tanh(), Linear_(3, 4)], "of Linear layers with biases"),
        ([Linear_(3, 8), Linear_(8, 4)], "of Linear layers with biases"),
        ([Linear_(3, 8), Tanh()], "of Linear layers with biases"),
        ([Linear_(3, 8), GELU(), Linear_(8, 4)], "of Linear layers with biases"),
        (
            [Linear_(3, 8), Tanh(), Linear_(8, 8), ReLU(), Linear_(8, 4)],
            "of Linear layers with biases",
        ),
        ([Linear_(3, 4, bias=False)], "of Linear layers with biases"),
        ([Linear_(2, 4)], r"module has layers of sizes \[\(2, 4\)\]: expected \[\(3, 4\)\]"),
        ([Linear_(3, 6)], r"sizes \[\(3, 6\)\]: expected \[\(3, 4\)\]"),
        (
            [Linear_(3, 8), Tanh(), Linear_(7, 4)],
            r"\(3, 8\), \(7, 4\)\]: expected \[\(3, 8\), \(8, 4\)",
        ),
    ],
)
def test_modules_that_do_not_fit(module: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MLP.from_torch(Sequential(module), SEEN, CHOICES)


@pytest.mark.parametrize("module", [Doubled([Linear_(3, 4)]), Linear_(3, 4), [Linear_(3, 4)]])
def test_modules_that_compute_something_else_are_refused(module: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a torch\.nn\.Sequential of Linear layers"):
        MLP.from_torch(module, SEEN, CHOICES)
