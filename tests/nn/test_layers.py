"""Layers, alone and put together, against PyTorch's autograd."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu import nn

torch = pytest.importorskip("torch")
functional = torch.nn.functional

Tensors = dict[str, Any]
#: Samples: more than pass a network at a time.
COUNT = 1100


class Weights:
    """The arrays of a network as tensors, taken one layer after the other."""

    def __init__(self, network: nn.Network) -> None:
        self.parameters = {
            name: torch.tensor(array, requires_grad=True)
            for name, array in network.arrays().items()
        }
        self._left = list(self.parameters.values())

    def dense(self, x: Any) -> Any:
        weights, biases = self._left.pop(0), self._left.pop(0)
        return x @ weights + biases

    def norm(self, x: Any) -> Any:
        return functional.layer_norm(x, x.shape[1:], self._left.pop(0), self._left.pop(0))

    def norm_pixels(self, x: Any) -> Any:
        """Of x (n, height, width, channels)."""
        return functional.layer_norm(x, x.shape[3:], self._left.pop(0), self._left.pop(0))

    def convolution(self, x: Any, window: int, stride: int = 1, padding: int = 0) -> Any:
        """Of x (n, channels, height, width)."""
        weights, biases = self._left.pop(0), self._left.pop(0)
        rows = weights.reshape(window, window, -1, weights.shape[1])
        kernel = rows.permute(3, 2, 0, 1).contiguous()  # torch refuses some others for one sample
        return functional.conv2d(x.contiguous(), kernel, biases, stride, padding)

    def embedding(self, x: Any, choices: int) -> Any:
        rows = x.detach().long() + torch.arange(x.shape[1]) * choices
        return functional.embedding_bag(rows, self._left.pop(0), mode="sum")


def relative(ours: Any, theirs: Any) -> float:
    theirs = theirs.detach().numpy()
    return float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-30))


def compare(
    network: nn.Network, expected: Callable[..., Any], inputs: dict[str, Any], tolerance: float
) -> None:
    """Outputs, and derivatives by parameters and inputs, of a network and of torch."""
    weights, rng = Weights(network), np.random.default_rng(5)
    dtype = network.parameters.dtype
    tensors = {k: torch.tensor(x.astype(dtype), requires_grad=True) for k, x in inputs.items()}
    theirs = expected(weights, **tensors)
    by_name = theirs if isinstance(theirs, dict) else {"output": theirs}
    assert not weights._left
    slopes = {k: rng.normal(size=x.shape).astype(dtype) for k, x in by_name.items()}
    sum((x * torch.tensor(slopes[k])).sum() for k, x in by_name.items()).backward()  # type: ignore[union-attr]

    given: Any = inputs if list(inputs) != ["input"] else inputs["input"]
    wanted: Any = slopes if isinstance(theirs, dict) else slopes["output"]
    outputs = network.outputs(given)
    by_parameters, by_inputs = network.gradients(given, wanted)
    outputs = outputs if isinstance(theirs, dict) else {"output": outputs}
    by_inputs = by_inputs if list(inputs) != ["input"] else {"input": by_inputs}
    for name, output in by_name.items():
        assert outputs[name].dtype == dtype
        assert relative(outputs[name], output) < tolerance
    for name, view in zip(network.arrays(), network.plan.flat_views(by_parameters), strict=True):
        gradient = weights.parameters[name].grad
        assert relative(view, gradient) < tolerance, name
    for name, tensor in tensors.items():
        if tensor.grad is None:
            assert not by_inputs[name].any()
        else:
            assert relative(by_inputs[name], tensor.grad) < tolerance, name


def normal(*shape: int) -> Any:
    return np.random.default_rng(3).normal(size=shape)


def choices(*shape: int) -> Any:
    return np.random.default_rng(3).integers(5, size=shape).astype(np.float64)


def residual() -> nn.Graph:
    inner = nn.Dense(20) >> nn.Relu() >> nn.Dense(33)
    return nn.Dense(33) >> nn.Residual(inner) >> nn.Tanh() >> nn.Dense(3)


def through_residual(w: Weights, input: Any) -> Any:
    x = w.dense(input)
    return w.dense(torch.tanh(w.dense(torch.relu(w.dense(x))) + x))


def activated_residuals() -> nn.Graph:
    """Sums of what others read, and of what the way back needs as it was."""
    first = nn.Dense(18) >> nn.Elu()
    inner = nn.Dense(18) >> nn.Tanh()
    return first >> nn.Residual(inner) >> nn.Residual(nn.Silu()) >> nn.LayerNorm() >> nn.Dense(2)


def through_activated_residuals(w: Weights, input: Any) -> Any:
    x = functional.elu(w.dense(input))
    x = torch.tanh(w.dense(x)) + x
    return w.dense(w.norm(functional.silu(x) + x))


def two_inputs() -> nn.Graph:
    seen = nn.Input("observation") >> nn.Dense(24) >> nn.Relu()
    joined = nn.Concatenate(seen, nn.Input("action"), nn.Input("observation"))
    return joined >> nn.Dense(32) >> nn.Relu() >> nn.Dense(1)


def through_two_inputs(w: Weights, observation: Any, action: Any) -> Any:
    seen = torch.relu(w.dense(observation))
    return w.dense(torch.relu(w.dense(torch.cat([seen, action, observation], 1))))


def two_outputs() -> dict[str, nn.Graph]:
    trunk = nn.Dense(40) >> nn.LayerNorm() >> nn.Silu() >> nn.Dense(17) >> nn.Tanh()
    return {
        "policy": trunk >> nn.Dense(2),
        "value": trunk >> nn.Dense(9) >> nn.Elu() >> nn.Dense(1),
        "features": trunk,
        "squashed": trunk >> nn.Dense(4) >> nn.Tanh(),
    }


def through_two_outputs(w: Weights, input: Any) -> Any:
    trunk = torch.tanh(w.dense(functional.silu(w.norm(w.dense(input)))))
    policy = w.dense(trunk)
    value = w.dense(functional.elu(w.dense(trunk)))
    return {
        "policy": policy,
        "value": value,
        "features": trunk,
        "squashed": torch.tanh(w.dense(trunk)),
    }


def dueling(streams: int) -> dict[str, nn.Graph]:
    """Values of three actions, the first output, and what they are made of."""
    both = nn.Dense(20) >> nn.Tanh() >> nn.Dense(3 * streams + streams)
    each = both >> nn.Dueling(3)
    return {"values": each >> nn.Means(3), "each": each, "both": both}


def through_dueling(w: Weights, input: Any) -> Any:
    """Wang et al. 2016, equation 9, of each stream."""
    both = w.dense(torch.tanh(w.dense(input)))
    numbers = both.reshape(len(both), 4, -1)
    advantages, value = numbers[:, :3], numbers[:, 3:]
    each = value + advantages - advantages.mean(dim=1, keepdim=True)
    return {"values": each.mean(dim=2), "each": each.flatten(1), "both": both}


def board() -> nn.Graph:
    cells = nn.Input("cells") >> nn.Embedding(20, choices=5)
    return nn.Sum(cells, nn.Input("numbers") >> nn.Dense(20)) >> nn.Relu() >> nn.Dense(3)


def through_board(w: Weights, cells: Any, numbers: Any) -> Any:
    embedded = w.embedding(cells, 5)
    return w.dense(torch.relu(embedded + w.dense(numbers)))


def mostly_zeros(*shape: int) -> Any:
    """Numbers, of which at most a tenth is not 0, and those of the last input all."""
    rng = np.random.default_rng(4)
    numbers = normal(*shape) * (rng.random(shape) < 0.1) * (rng.random(shape) < 0.9)
    numbers[:, -1] = 1.5
    return numbers


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "dense": (nn.Dense(3), lambda w, input: w.dense(input), {"input": normal(COUNT, 5)}),
    "wide": (
        nn.Dense(70) >> nn.Dense(18),
        lambda w, input: w.dense(w.dense(input)),
        {"input": normal(COUNT, 33)},
    ),
    "relu": (
        nn.Dense(20) >> nn.Relu() >> nn.Dense(1),
        lambda w, input: w.dense(torch.relu(w.dense(input))),
        {"input": normal(COUNT, 1)},
    ),
    "mostly zeros": (
        nn.Dense(83) >> nn.Relu() >> nn.Dense(2),
        lambda w, input: w.dense(torch.relu(w.dense(input))),
        {"input": mostly_zeros(COUNT, 141)},
    ),
    "tanh": (
        nn.Dense(20) >> nn.Tanh() >> nn.Dense(2),
        lambda w, input: w.dense(torch.tanh(w.dense(input))),
        {"input": normal(COUNT, 4)},
    ),
    "elu": (
        nn.Dense(20) >> nn.Elu() >> nn.Dense(2),
        lambda w, input: w.dense(functional.elu(w.dense(input))),
        {"input": normal(COUNT, 4)},
    ),
    "silu": (
        nn.Dense(20) >> nn.Silu() >> nn.Dense(2),
        lambda w, input: w.dense(functional.silu(w.dense(input))),
        {"input": normal(COUNT, 4)},
    ),
    "norm": (
        nn.Dense(21) >> nn.LayerNorm() >> nn.Relu() >> nn.Dense(2),
        lambda w, input: w.dense(torch.relu(w.norm(w.dense(input)))),
        {"input": normal(COUNT, 4)},
    ),
    "norm first": (
        nn.LayerNorm() >> nn.Tanh() >> nn.Dense(3),
        lambda w, input: w.dense(torch.tanh(w.norm(input))),
        {"input": normal(COUNT, 6)},
    ),
    "dueling": (dueling(1), through_dueling, {"input": normal(COUNT, 5)}),
    "dueling of many": (dueling(25), through_dueling, {"input": normal(COUNT, 5)}),
    "embedding": (
        nn.Embedding(12, choices=5) >> nn.Tanh() >> nn.Dense(2),
        lambda w, input: w.dense(torch.tanh(w.embedding(input, 5))),
        {"input": choices(COUNT, 3)},
    ),
    "residual": (residual(), through_residual, {"input": normal(COUNT, 4)}),
    "activated residuals": (
        activated_residuals(),
        through_activated_residuals,
        {"input": normal(COUNT, 4)},
    ),
    "two inputs": (
        two_inputs(),
        through_two_inputs,
        {"observation": normal(COUNT, 5), "action": normal(COUNT, 2)},
    ),
    "two outputs": (two_outputs(), through_two_outputs, {"input": normal(COUNT, 4)}),
    "board": (
        board(),
        through_board,
        {"cells": choices(COUNT, 9), "numbers": normal(COUNT, 3)},
    ),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", CASES)
def test_equals_torch(case: str, dtype: Any) -> None:
    graph, expected, inputs = CASES[case]
    sizes: Any = {name: values.shape[1] for name, values in inputs.items()}
    sizes = sizes if list(inputs) != ["input"] else sizes["input"]
    network = nn.Network(sizes, graph, seed=2)
    rng = np.random.default_rng(1)
    moved = network.parameters + rng.normal(0.0, 0.3, network.parameters.size)
    network.parameters = moved.astype(dtype)
    has_norm = any(name.startswith("layer_norm") for name in network.arrays())
    tolerance = 1e-10 if dtype is np.float64 else 1e-4 if has_norm else 1e-5
    compare(network, expected, inputs, tolerance)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_few_numbers_among_zeros_change_no_bit(data: st.DataObject) -> None:
    """A row without zeros behind others makes all of them pass the product of all inputs."""
    width, outputs = data.draw(st.integers(60, 150)), data.draw(st.integers(1, 90))
    counts = data.draw(st.lists(st.integers(0, width // 3), min_size=1, max_size=20))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    few = np.zeros((len(counts), width), np.float32)
    for row, count in zip(few, counts, strict=True):
        row[rng.permutation(width)[:count]] = rng.normal(size=count)
    if data.draw(st.booleans()):
        few[-1, rng.integers(width)] = np.nan
    slopes = rng.normal(size=(len(few), 3)).astype(np.float32)
    network = nn.Network(width, nn.Dense(outputs) >> nn.Relu() >> nn.Dense(3), seed=3)
    with_all = np.concatenate([few, np.ones((1, width), np.float32)])
    expected = network.outputs(with_all)[:-1]
    np.testing.assert_array_equal(network.outputs(few), expected)
    assert np.isnan(expected).any() == np.isnan(few).any()
    few, with_all = np.nan_to_num(few), np.nan_to_num(with_all)
    by_parameters, by_inputs = network.gradients(few, slopes)
    all_slopes = np.concatenate([slopes, np.zeros((1, 3), np.float32)])
    expected_by_parameters, expected_by_inputs = network.gradients(with_all, all_slopes)
    np.testing.assert_array_equal(by_parameters, expected_by_parameters)
    np.testing.assert_array_equal(by_inputs, expected_by_inputs[:-1])


def softplus(x: float) -> float:
    return math.log1p(math.exp(x)) - 0.6931471805599453


def test_a_function_of_a_user_is_a_layer() -> None:
    """It equals PyTorch, with derivatives that are computed; networks made before stay right."""
    before = nn.Network(4, nn.Dense(20) >> nn.Silu() >> nn.Dense(2), seed=3)
    rows = np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)
    expected = before.outputs(rows)
    graph = nn.Dense(20) >> nn.Activation(softplus) >> nn.Dense(2)
    network = nn.Network(4, graph, seed=1)

    def through_softplus(w: Weights, input: Any) -> Any:
        return w.dense(functional.softplus(w.dense(input)) - math.log(2.0))

    compare(network, through_softplus, {"input": normal(COUNT, 4)}, 1e-5)
    np.testing.assert_array_equal(before.outputs(rows), expected)
    packed = pickle.dumps(network)
    np.testing.assert_array_equal(pickle.loads(packed).outputs(rows), network.outputs(rows))


class Bilinear(nn.CustomLayer):
    """y_j = b_j + (w_j x) (v_j x), of `size` outputs."""

    def __init__(self, size: int) -> None:
        self.size = size

    def output_size(self, inputs: int) -> int:
        return self.size

    def arrays(self, inputs: int, rng: np.random.Generator) -> dict[str, Any]:
        first, second = rng.normal(0.0, 0.3, (2, self.size, inputs))
        return {"first": first, "second": second, "biases": np.zeros(self.size)}

    def forward(x: Any, parameters: Any, y: Any) -> None:  # type: ignore[misc]
        for j in range(y.size):
            left, right = products(x, parameters, j, y.size)
            y[j] = left * right + parameters[2 * x.size * y.size + j]

    def by_inputs(x: Any, parameters: Any, slopes: Any, out: Any) -> None:  # type: ignore[misc]
        for j in range(slopes.size):
            left, right = products(x, parameters, j, slopes.size)
            for k in range(x.size):
                w = parameters[j * x.size + k]
                v = parameters[(slopes.size + j) * x.size + k]
                out[k] += slopes[j] * (w * right + v * left)

    def by_parameters(x: Any, parameters: Any, slopes: Any, out: Any) -> None:  # type: ignore[misc]
        for j in range(slopes.size):
            left, right = products(x, parameters, j, slopes.size)
            for k in range(x.size):
                out[j * x.size + k] += slopes[j] * right * x[k]
                out[(slopes.size + j) * x.size + k] += slopes[j] * left * x[k]
            out[2 * x.size * slopes.size + j] += slopes[j]


def products(x: Any, parameters: Any, j: int, size: int) -> tuple[float, float]:
    left, right = 0.0, 0.0
    for k in range(x.size):
        left += parameters[j * x.size + k] * x[k]
        right += parameters[(size + j) * x.size + k] * x[k]
    return left, right


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_layer_of_a_user_has_parameters(dtype: Any) -> None:
    """Where it reads the input, beside others, and as an output; copies and learning too."""
    graph = Bilinear(20) >> nn.Tanh() >> nn.Residual(Bilinear(20)) >> nn.Dense(5) >> Bilinear(3)
    network = nn.Network(4, graph, seed=3)
    network.parameters = network.parameters.astype(dtype)

    def through(w: Weights, input: Any) -> Any:
        def bilinear(x: Any) -> Any:
            first, second, biases = (w._left.pop(0) for _ in range(3))
            return (x @ first.T) * (x @ second.T) + biases

        x = torch.tanh(bilinear(input))
        return bilinear(w.dense(bilinear(x) + x))

    compare(network, through, {"input": normal(COUNT, 4)}, 1e-10 if dtype is np.float64 else 1e-4)
    if dtype is np.float32:
        rows = np.float32(normal(64, 4))
        copy = pickle.loads(pickle.dumps(network))
        np.testing.assert_array_equal(copy.outputs(rows), network.outputs(rows))
        learner = nn.Learner({"f": copy}, regression, columns={"x": 4, "target": 1})
        batch = {"x": rows, "target": rows[:, 0] * rows[:, 1]}
        losses = [learner.update(batch, learning_rate=1e-2)["regression"] for _ in range(200)]
        assert losses[-1] < 0.05 * losses[0]


class Doubled(nn.CustomLayer):
    """A layer without parameters has no derivatives by them."""

    def forward(x: Any, parameters: Any, y: Any) -> None:  # type: ignore[misc]
        for i in range(x.size):
            y[i] = 2.0 * x[i]

    def by_inputs(x: Any, parameters: Any, slopes: Any, out: Any) -> None:  # type: ignore[misc]
        for i in range(x.size):
            out[i] += 2.0 * slopes[i]


def test_a_layer_of_a_user_may_have_no_parameters() -> None:
    network = nn.Network(4, nn.Dense(3) >> Doubled() >> nn.Dense(2), seed=3)
    network.parameters = network.parameters.astype(np.float64)
    rows = {"input": normal(COUNT, 4)}
    compare(network, lambda w, input: w.dense(2.0 * w.dense(input)), rows, 1e-10)
    scaled: Any = type("Scaled", (Doubled,), {"arrays": lambda *_: {"factors": np.ones(4)}})
    with pytest.raises(TypeError, match="Scaled has the arrays factors: expected by_parameters"):
        nn.Network(4, scaled())


class Softmax(Doubled):
    def forward(x: Any, parameters: Any, y: Any) -> None:  # type: ignore[misc]
        y[:] = np.exp(x)


def test_mathematics_of_an_array_is_named_with_its_line() -> None:
    line = Softmax.forward.__code__.co_firstlineno + 1
    expected = rf"test_layers.py, line {line}, .*it gives an array to exp: call it number by number"
    with pytest.raises(TypeError, match=expected):
        nn.Network(4, Softmax()).outputs(np.zeros((1, 4), np.float32))


def squared(y: float, target: float) -> float:
    return (y - target) ** 2


def regression(batch: Any, nets: Any, settings: Any) -> Any:
    return nn.mean(nn.each(squared, nets.f(batch.x)[0], batch.target)), {}


def test_a_layer_without_its_functions_is_refused() -> None:
    expected = r"Empty.forward=None: expected plain Python, as `def` makes it"
    with pytest.raises(TypeError, match=expected):
        type("Empty", (nn.CustomLayer,), {})


def test_functions_of_other_arguments_are_refused() -> None:
    expected = r"Own\.forward\(self, x, y\): expected \(x, parameters, y\), without self"

    def forward_of_self(self: Any, x: Any, y: Any) -> None: ...

    functions = {"by_inputs": lambda x, p, s, out: None, "by_parameters": lambda x, p, s, out: None}
    with pytest.raises(TypeError, match=expected):
        type("Own", (nn.CustomLayer,), {**functions, "forward": forward_of_self})


def test_a_function_that_fits_no_padding_is_refused() -> None:
    with pytest.raises(ValueError, match=r"makes 0.69.* of 0: expected 0, such as of log_one_plus"):
        nn.Activation(log_one_plus)
    with pytest.raises(TypeError, match=r"function=.*exp.*: expected plain Python"):
        nn.Activation(math.exp)


def log_one_plus(x: float) -> float:
    return math.log1p(math.exp(x))


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (lambda: nn.Dense(8) >> nn.Dueling(2), "8 inputs: expected a multiple of 3"),
        (lambda: nn.Dense(7) >> nn.Means(2), "7 inputs: expected a multiple of 2"),
        (lambda: nn.Means(0), "count=0"),
        (lambda: nn.Dueling(0), "num_actions=0"),
    ],
)
def test_groups_that_do_not_fit_are_refused(layer: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        nn.Network(3, layer())
