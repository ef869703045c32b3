"""Losses of a user's own: what the learner makes of them, through public names."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu import nn
from rlcpu.nn.network import flat_layers, packed_layers
from rlcpu.nn.update import make_update


class Huber(NamedTuple):
    """Weights of a loss."""

    width: float


def huber(numbers: Any, sample: Any, weights: Any) -> Any:
    """Squared near the target, linear beyond `width`."""
    error = numbers[0] - sample.target
    inside = abs(error) < weights.width
    bounded = error if inside else math.copysign(weights.width, error)
    loss = bounded * (error - 0.5 * bounded)
    return sample.weight * loss, (abs(error),)


def action_value(numbers: Any, sample: Any, weights: Any) -> Any:
    error = numbers[0] - sample.target
    return 0.5 * error * error, ()


def two_outputs(numbers: Any, sample: Any, weights: Any) -> Any:
    a, b = numbers[0] - sample.a, numbers[1] - sample.b
    return a * a + b**4, ()


def make_problem(samples: int = 512, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1.0, 1.0, (samples, 3)).astype(np.float32)
    target = np.sin(3.0 * inputs[:, 0]) * inputs[:, 1] + inputs[:, 2]
    weight = rng.uniform(0.5, 1.5, samples).astype(np.float32)
    return inputs, {"target": target, "weight": weight}


def make_learner(threads: int = 1, **options: Any) -> nn.Learner:
    loss = nn.Loss(huber, nn.outputs(), ("distance",))
    return nn.Learner(
        [nn.Network((3, 32, 32, 1), seed=1)],
        [loss],
        columns=["target", "weight"],
        weights=Huber(0.5),
        num_threads=threads,
        **options,
    )


def mean_loss(network: nn.Network, inputs: np.ndarray, columns: dict[str, np.ndarray]) -> float:
    outputs = network.outputs(inputs)[:, 0].astype(np.float64)
    error = abs(outputs - columns["target"])
    loss = np.where(error < 0.5, 0.5 * error**2, 0.5 * (error - 0.25))
    return float((columns["weight"] * loss).mean())


def test_a_loss_of_ten_lines_trains() -> None:
    inputs, columns = make_problem()
    learner = make_learner()
    first = learner.update(inputs, columns, learning_rate=0.0)
    for _ in range(5):
        last = learner.update(inputs, columns, learning_rate=3e-3, epochs=20, minibatch_size=64)
    assert first["huber"] > 0.1
    assert last["huber"] < 1e-3
    assert last["distance"] < 0.05
    fresh = make_problem(seed=1)
    assert mean_loss(learner.networks[0], *fresh) < 0.01


def test_means_are_those_of_the_losses() -> None:
    inputs, columns = make_problem()
    learner = make_learner()
    report = learner.update(inputs, columns, learning_rate=0.0, minibatch_size=512)
    expected = mean_loss(learner.networks[0], inputs, columns)
    assert report["huber"] == pytest.approx(expected, rel=1e-5)
    distance = abs(learner.networks[0].outputs(inputs)[:, 0] - columns["target"]).mean()
    assert report["distance"] == pytest.approx(distance, rel=1e-5)
    assert report["num_gradients"] == 1


def test_arrays_that_cannot_be_written_to_compile_nothing() -> None:
    """They have a type of their own in numba."""
    inputs, columns = make_problem()
    mean = np.zeros(3, np.float32)
    found: list[Any] = []
    for is_read_only in (False, True):
        for array in (inputs, mean, *columns.values()):
            array.setflags(write=not is_read_only)
        learner = make_learner()
        report = learner.update(inputs, columns, learning_rate=1e-3, mean=mean)
        found.append((report, len(make_update(np.float32).overloads)))  # type: ignore[attr-defined]
    assert found[0] == found[1]


def test_result_does_not_depend_on_the_number_of_threads() -> None:
    inputs, columns = make_problem(1000)
    found = []
    for threads in (1, 2, 3):
        learner = make_learner(threads)
        learner.update(inputs, columns, learning_rate=1e-3, epochs=3, minibatch_size=300)
        found.append(learner.networks[0].parameters)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def gradient_of(learner: nn.Learner, *arguments: Any, **options: Any) -> np.ndarray:
    """Adam's first moments after one step are a tenth of the gradient."""
    learner.update(*arguments, learning_rate=0.0, minibatch_size=10**6, **options)
    return 10.0 * learner.learnt.first


def test_action_values_learn_from_the_action_taken_alone() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 2)).astype(np.float32)
    actions, target = rng.integers(0, 4, 200), rng.normal(size=200).astype(np.float32)
    network = nn.Network((2, 4), seed=3)
    learner = nn.Learner(
        [network],
        [nn.Loss(action_value, nn.of_action)],
        columns=["target"],
        actions=np.int64,
    )
    gradient = gradient_of(learner, inputs, {"target": target}, actions)
    error = network.outputs(inputs)[np.arange(200), actions] - target
    slopes = np.zeros((200, 4))
    slopes[np.arange(200), actions] = error / 200
    weights, biases = inputs.T @ slopes, slopes.sum(axis=0)
    found = gradient[np.abs(gradient) > 0.0]
    expected = np.concatenate([weights.T.ravel(), biases])
    np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("actions", "match"),
    [
        ([0, 1, 4], "actions: expected 0 to 3, got 4"),
        ([0, -1, 2], "actions: expected 0 to 3, got -1"),
        ([0, 1], r"actions have shape \(2,\): expected \(3,\)"),
        ([0.0, 1.0, 2.0], "actions are float64: expected int64"),
    ],
)
def test_actions_that_are_no_outputs(actions: list[Any], match: str) -> None:
    loss, network = nn.Loss(action_value, nn.of_action), nn.Network((2, 4))
    learner = nn.Learner([network], [loss], columns=["target"], actions=np.int64)
    with pytest.raises(ValueError, match=match):
        learner.update(
            np.zeros((3, 2)), {"target": np.zeros(3)}, np.array(actions), learning_rate=1
        )
    with pytest.raises(ValueError, match=r"actions=None: the losses read \['index'\]"):
        nn.Learner([network], [loss], columns=["target"])


def test_losses_of_several_outputs_and_networks() -> None:
    """Two networks: one loss of two outputs, one of one; each gradient is its own."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, 3)).astype(np.float32)
    columns = {name: rng.normal(size=300).astype(np.float32) for name in ("a", "b", "target")}

    networks = [nn.Network((3, 8, 2), seed=1), nn.Network((3, 20, 9, 1), "relu", seed=2)]
    losses = [nn.Loss(two_outputs, nn.outputs(2)), nn.Loss(action_value, nn.outputs(), network=1)]
    outputs = [network.outputs(inputs) for network in networks]
    a, b = (outputs[0][:, k] - columns[name] for k, name in enumerate("ab"))
    slopes = [np.column_stack((2 * a, 4 * b**3)), outputs[1] - columns["target"][:, None]]
    expected = [net.gradients(inputs, x / 300)[0] for net, x in zip(networks, slopes, strict=True)]
    for scales in ([1.0, 1.0], [1.0, 2.0]):
        learner = nn.Learner(networks, losses, columns=["a", "b", "target"], dtype=np.float64)
        gradient = gradient_of(learner, inputs, columns, scales=scales)
        begins = learner.layout.begins
        for k, network in enumerate(networks):
            found = np.zeros_like(expected[k])
            packed = packed_layers(network.sizes, gradient[begins[k] : begins[k + 1]])
            for pair in zip(packed, flat_layers(network.sizes, found), strict=True):
                for source, target in zip(*pair, strict=True):
                    target[...] = source
            np.testing.assert_allclose(found, scales[k] * expected[k], rtol=1e-4, atol=1e-5)


def test_update_ends_above_a_limit() -> None:
    inputs, columns = make_problem()
    limited = make_learner().update(
        inputs, columns, learning_rate=1e-3, minibatch_size=64, stop_above=("distance", 1e-6)
    )
    assert limited["num_gradients"] == 0


def test_state_holds_all_that_an_update_changes() -> None:
    inputs, columns = make_problem()
    options: dict[str, Any] = {"learning_rate": 1e-3, "minibatch_size": 64}
    learner, other = make_learner(seed=5), make_learner(seed=6)
    learner.update(inputs, columns, **options)
    for name, array in other.state().items():
        array[...] = learner.state()[name]
    other.write_networks()
    assert learner.update(inputs, columns, **options) == other.update(inputs, columns, **options)
    np.testing.assert_array_equal(learner.networks[0].parameters, other.networks[0].parameters)


def test_what_becomes_nan_is_named() -> None:
    inputs, columns = make_problem()
    learner = make_learner()
    before = learner.networks[0].parameters.copy()
    columns["target"][3] = np.nan
    with pytest.raises(FloatingPointError, match="update 2 made huber, distance NaN"):
        learner.update(inputs, columns, learning_rate=1e-3)
    np.testing.assert_array_equal(learner.networks[0].parameters, before)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"inputs": np.zeros((5, 2))}, r"inputs have shape \(5, 2\): expected \(S, 3\)"),
        ({"inputs": np.zeros((0, 3))}, r"inputs have shape \(0, 3\)"),
        ({"columns": {"target": np.zeros(4), "weight": np.ones(5)}}, r"columns\['target'\] has"),
        ({"actions": np.zeros(5, np.int64)}, "the learner has actions=None"),
    ],
)
def test_bad_batches(change: dict[str, Any], match: str) -> None:
    arguments = {
        "inputs": np.zeros((5, 3)),
        "columns": {"target": np.zeros(5), "weight": np.ones(5)},
        **change,
    }
    with pytest.raises(ValueError, match=match):
        make_learner().update(**arguments, learning_rate=1e-3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"minibatch_size": 0}, "minibatch_size=0"),
        ({"normalize": "wieght"}, "normalize='wieght': expected one of target, weight"),
        ({"stop_above": ("kl", 1.0)}, "stop_above='kl': expected one of huber, distance"),
        ({"scales": [1.0, 2.0]}, "scales=.*: expected 1 numbers"),
    ],
)
def test_bad_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_learner().update(*make_problem(), learning_rate=1e-3, **options)
    with pytest.raises(TypeError, match="epoch'"):
        make_learner().update(*make_problem(), learning_rate=1e-3, epoch=1)


@pytest.mark.parametrize(
    ("losses", "match"),
    [
        ([nn.Loss(two_outputs, nn.outputs(2), size=5)], "reads 5 outputs from 0 on, 2 numbers"),
        ([nn.Loss(huber, nn.outputs())], "reads 2 outputs from 0 on, 1 numbers"),
        ([nn.Loss(huber, nn.gaussian)], "network 0 has 0 free parameters: expected 2"),
        ([nn.Loss(huber, nn.outputs(), size=1)], "output 1 of network 0 is read by 0 losses"),
        ([nn.Loss(two_outputs, nn.outputs(2))] * 2, "output 0 of network 0 is read by 2 losses"),
        ([nn.Loss(two_outputs, nn.outputs(2), network=1)], "network=1 of a loss: there are 1"),
    ],
)
def test_bad_losses(losses: list[nn.Loss], match: str) -> None:
    actions = np.float32 if losses[0].head is nn.gaussian else None
    columns = ["target", "a", "b"]
    with pytest.raises(ValueError, match=match):
        nn.Learner([nn.Network((3, 2))], losses, columns=columns, actions=actions)


def test_bad_networks_and_columns() -> None:
    with pytest.raises(ValueError, match="activation='gelu'"):
        nn.Network((3, 2), "gelu")
    with pytest.raises(ValueError, match=r"sizes=\[3\]: expected an input and an output"):
        nn.Network((3,))
    with pytest.raises(ValueError, match=r"parameters have shape \(3,\): expected \(8,\)"):
        nn.Network((3, 2), parameters=np.zeros(3, np.float32))
    loss = nn.Loss(huber, nn.outputs())
    for columns in (["target", "target"], ["not a name"], "target", ["class"]):
        with pytest.raises(ValueError, match="columns="):
            nn.Learner([nn.Network((3, 1))], [loss], columns=columns)
    networks = [nn.Network((3, 1)), nn.Network((4, 1))]
    with pytest.raises(ValueError, match=r"inputs of sizes \[3, 4\]"):
        nn.Learner(networks, [loss, loss._replace(network=1)], columns=["target", "weight"])


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_ones_are_learnt_from_as_the_numbers_that_they_are(
    layer_norm: bool, activation: str
) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.random((300, 37)) < 0.1
    inputs[5] = False
    columns = {"target": inputs @ rng.standard_normal(37), "weight": np.ones(300)}

    def learn(given: Any) -> Any:
        sizes = (37, 20, 1)  # neither inputs nor units fill their vectors
        network = nn.Network(sizes, activation, seed=3, layer_norm=layer_norm)
        loss = nn.Loss(huber, nn.outputs(), ("distance",))
        options: Any = {"columns": ["target", "weight"], "weights": Huber(0.5), "num_threads": 1}
        learner = nn.Learner([network], [loss], dtype=np.float64, **options)
        report = learner.update(given, columns, learning_rate=1e-2, epochs=3, minibatch_size=150)
        return learner.learnt.parameters, report

    parameters, report = learn(inputs.astype(np.float32))
    by_ones, report_of_ones = learn(nn.Ones.of(inputs))
    np.testing.assert_allclose(by_ones, parameters, rtol=1e-9, atol=1e-12)
    assert report_of_ones == pytest.approx(report, rel=1e-9)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32))
def test_ones_stand_for_their_array(count: int, size: int, seed: int) -> None:
    inputs = np.random.default_rng(seed).random((count, size)) < 0.3
    ones = nn.Ones.of(inputs)
    ones.check(size)
    np.testing.assert_array_equal(ones.expand(), inputs)


def test_many_ones_scaled_ones_and_networks_without_hidden_layers_are_numbers() -> None:
    inputs, columns = make_problem(64)
    many, few = nn.Ones.of(inputs > 0.0), nn.Ones.of(inputs > 0.95)
    flat = nn.Learner(
        [nn.Network((3, 1), seed=1)],
        [nn.Loss(huber, nn.outputs(), ("distance",))],
        columns=["target", "weight"],
        weights=Huber(0.5),
        num_threads=1,
    )
    for ones, learner, scale in (
        (many, make_learner(), None),
        (few, make_learner(), np.array([1.0, 2.0, 1.0])),
        (few, flat, None),
    ):
        other = copy.deepcopy(learner)
        report = learner.update(ones, columns, learning_rate=0.1, scale=scale)
        assert other.update(ones.expand(), columns, learning_rate=0.1, scale=scale) == report


@pytest.mark.parametrize("inputs", [np.eye(3, dtype=np.float32), np.zeros(3, np.uint8)])
def test_ones_are_of_bytes_in_rows(inputs: Any) -> None:
    with pytest.raises(TypeError, match=r"expected \(S, size\) of uint8 or bool"):
        nn.Ones.of(inputs)


def test_ones_may_have_gaps_in_memory() -> None:
    inputs, columns = make_problem(64)
    ones = nn.Ones.of(inputs > 0.95)
    twice = nn.Ones(ones.starts.repeat(2)[::2], ones.columns.repeat(2)[::2], 3)
    reports = [make_learner().update(x, columns, learning_rate=0.1) for x in (ones, twice)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize(
    ("starts", "columns", "words"),
    [
        ([0, 1], np.array([0]), r"starts \(2,\) int64, columns \(1,\) int64, size 3"),
        ([0], np.zeros(0, np.int32), "starts"),
        ([0, 2], np.zeros(1, np.int32), "starts of inputs: expected to grow from 0 to 1"),
        ([0, 2, 1, 3], np.zeros(3, np.int32), "starts of inputs"),
        ([0, 1], np.array([3], np.int32), "columns of inputs: expected 0 to 2"),
        ([0, 1], np.array([-1], np.int32), "columns of inputs: expected 0 to 2"),
    ],
)
def test_bad_ones(starts: list[int], columns: Any, words: str) -> None:
    given = nn.Ones(np.array(starts), columns, 3)
    count = max(1, len(starts) - 1)
    numbers = {"target": np.zeros(count), "weight": np.ones(count)}
    with pytest.raises(ValueError, match=words):
        make_learner().update(given, numbers, learning_rate=0.0)


class NearFirst(NamedTuple):
    near: float
    far: float


class FarFirst(NamedTuple):
    far: float
    near: float


def near(numbers: Any, sample: Any, weights: Any) -> tuple[float, Any]:
    return weights.near, ()


@pytest.mark.parametrize("weights", [NearFirst(2.0, 3.0), FarFirst(3.0, 2.0)])
def test_losses_read_weights_by_name(weights: Any) -> None:
    """Equal tuples of different kinds are different weights."""
    losses, zeros = [nn.Loss(near, nn.outputs())], type(weights)(0.0, 0.0)
    learner = nn.Learner([nn.Network((1, 1))], losses, weights=zeros)
    report = learner.update(np.ones((4, 1)), {}, learning_rate=0.1, weights=weights)
    assert report["near"] == 2.0


def flat(numbers: Any, sample: Any, weights: Any) -> Any:
    return 0.5 * (numbers[0] - sample.target) ** 2, ()


def bounded_slope(numbers: Any, sample: Any, weights: Any) -> tuple[float, ...]:
    return (min(max(numbers[0] - sample.target, -0.5), 0.5),)


def test_slopes_may_be_written_by_hand() -> None:
    """They are learnt from in the place of the loss's derivatives, and the loss is reported."""
    x = np.linspace(-2.0, 2.0, 64)[:, None]
    networks = [nn.Network((1, 1), seed=3), nn.Network((1, 1), seed=3)]
    losses = [nn.Loss(huber, nn.outputs(), ("distance",)), nn.Loss(flat, nn.outputs())]
    losses[1] = losses[1]._replace(slopes=bounded_slope)
    reports = []
    for network, loss in zip(networks, losses, strict=True):
        columns = {"target": 3.0 * x[:, 0], "weight": np.ones(64)}
        options: Any = {"columns": list(columns), "weights": Huber(0.5), "dtype": np.float64}
        learner = nn.Learner([network], [loss], num_threads=1, **options)
        reports.append(learner.update(x, columns, learning_rate=0.1, epochs=3))
    np.testing.assert_allclose(networks[0].parameters, networks[1].parameters, rtol=1e-6)
    assert reports[1]["flat"] > reports[0]["huber"]


def with_slopes(numbers: Any, sample: Any, weights: Any) -> Any:
    return numbers[0] * numbers[0], (2.0 * numbers[0],), ()


def nothing(numbers: Any, sample: Any, weights: Any) -> Any:
    return None


def one_number(numbers: Any, sample: Any, weights: Any) -> Any:
    return numbers[0] * numbers[0]


def many_statistics(numbers: Any, sample: Any, weights: Any) -> Any:
    return numbers[0], (numbers[0], (1.0, 2.0))


@pytest.mark.parametrize("function", [with_slopes, nothing, one_number, many_statistics])
def test_losses_that_return_something_else_are_refused(function: Any) -> None:
    learner = nn.Learner([nn.Network((1, 1))], [nn.Loss(function, nn.outputs(), ("first",))])
    place = rf"test_learner\.py, line \d+, in {function.__name__}: `def {function.__name__}"
    match = rf"{place}.*` returns .*: expected \(loss, statistics\), a number and a tuple of 1 n"
    with pytest.raises(TypeError, match=match):
        learner.update(np.ones((4, 1)), {}, learning_rate=0.1)


class Curve:
    def __init__(self, power: float) -> None:
        self.power = power


CURVE = Curve(2.0)


def of_object(numbers: Any, sample: Any, weights: Any) -> Any:
    return numbers[0] ** CURVE.power, ()


def of_no_column(numbers: Any, sample: Any, weights: Any) -> Any:
    return (numbers[0] - sample.goal) ** 2, ()


@pytest.mark.parametrize("function", [of_object, of_no_column])
def test_losses_that_cannot_be_compiled_are_refused_with_their_line(function: Any) -> None:
    options: Any = {"columns": ["target"], "num_threads": 1}
    learner = nn.Learner([nn.Network((1, 1))], [nn.Loss(function, nn.outputs())], **options)
    with pytest.raises(TypeError, match=rf"test_learner\.py, line \d+, in {function.__name__}: `"):
        learner.update(np.ones((4, 1)), {"target": np.ones(4)}, learning_rate=0.1)
