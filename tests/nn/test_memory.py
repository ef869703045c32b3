"""Layers with memory against PyTorch's cells, over sequences with beginnings of episodes inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu import nn

torch = pytest.importorskip("torch")

#: Time steps, sequences, inputs.
STEPS, COUNT, INPUTS = 6, 5, 3


class Cells:
    """The same networks by PyTorch, one time step after the other.

    Its state is a list of tensors (count, size), for each layer h and, of an LSTM, c.
    """

    def __init__(self, network: nn.Network) -> None:
        self.parameters = {
            name: torch.tensor(np.asarray(array, np.float64), requires_grad=True)
            for name, array in network.arrays().items()
        }

    def dense(self, k: int, x: Any) -> Any:
        return x @ self.parameters[f"dense{k}.weights"] + self.parameters[f"dense{k}.biases"]

    def _cell(self, kind: Any, name: str, k: int, size: int, x: Any, state: Any) -> Any:
        """A cell of PyTorch's with our parameters; the product of the inputs is dense layer k."""
        weights = self.parameters[f"{name}0.weights"]
        biases = self.parameters.get(f"{name}0.biases", torch.zeros(weights.shape[1]).double())
        given = {
            "weight_ih": self.parameters[f"dense{k}.weights"].T,
            "bias_ih": self.parameters[f"dense{k}.biases"],
            "weight_hh": weights.T,
            "bias_hh": biases,
        }
        return torch.func.functional_call(kind(x.shape[1], size).double(), given, (x, state))

    def mingru(self, k: int, size: int, x: Any, h: Any) -> Any:
        z, candidate = torch.split(self.dense(k, x), size, 1)
        return (1 - torch.sigmoid(z)) * h + torch.sigmoid(z) * candidate

    def gru(self, k: int, size: int, x: Any, h: Any) -> Any:
        return self._cell(torch.nn.GRUCell, "gru", k, size, x, h)

    def lstm(self, k: int, size: int, x: Any, state: Any) -> Any:
        return self._cell(torch.nn.LSTMCell, "lstm", k, size, x, state)


def run_min_gru(cells: Cells, x: Any, state: Any) -> tuple[Any, Any]:
    h = cells.mingru(0, 20, x, state[0])
    return cells.dense(1, torch.tanh(h)), [h]


def run_gru(cells: Cells, x: Any, state: Any) -> tuple[Any, Any]:
    h = cells.gru(1, 16, torch.relu(cells.dense(0, x)), state[0])
    return cells.dense(2, h), [h]


def run_lstm(cells: Cells, x: Any, state: Any) -> tuple[Any, Any]:
    h, c = cells.lstm(0, 33, x, tuple(state))
    return cells.dense(1, h), [h, c]


def run_two(cells: Cells, x: Any, state: Any) -> tuple[Any, Any]:
    """Of which the second reads and is added to what the first makes."""
    first = cells.gru(0, 18, x, state[0])
    second = cells.mingru(1, 18, first, state[1])
    return cells.dense(2, first + second), [first, second]


CASES: dict[str, tuple[nn.Graph, Any, list[int]]] = {
    "mingru": (nn.MinGru(20) >> nn.Tanh() >> nn.Dense(2), run_min_gru, [20]),
    "gru": (nn.Dense(17) >> nn.Relu() >> nn.Gru(16) >> nn.Dense(2), run_gru, [16]),
    "lstm": (nn.Lstm(33) >> nn.Dense(2), run_lstm, [33, 33]),
    "two": (nn.Gru(18) >> nn.Residual(nn.MinGru(18)) >> nn.Dense(2), run_two, [18, 18]),
}


def make_network(name: str) -> nn.Network:
    """A network of a case in float64, all of whose parameters count."""
    network = nn.Network(INPUTS, CASES[name][0], seed=1)
    noise = np.random.default_rng(2).normal(0.0, 0.2, network.parameters.size)
    network.parameters = network.parameters.astype(np.float64) + noise
    return network


def split(state: Any, sizes: list[int]) -> list[Any]:
    """The numbers of a state that count, by layer: each begins at a multiple of 16."""
    begins = np.cumsum([0, *(-(-size // 16) * 16 for size in sizes)])
    return [state[:, b : b + size] for b, size in zip(begins[:-1], sizes, strict=True)]


def run_all(name: str, cells: Cells, x: Any, state: Any, starts: Any) -> tuple[Any, Any]:
    """Outputs (T, n, 2) and the state afterwards, by PyTorch."""
    parts, made = [torch.tensor(part) for part in split(state, CASES[name][2])], []
    for row, begins in zip(x, np.asarray(starts, float), strict=True):
        keep, is_held = torch.tensor(begins <= 0.0)[:, None], torch.tensor(begins < 0.0)[:, None]
        parts = [torch.where(is_held, part.detach(), part) * keep for part in parts]
        outputs, parts = CASES[name][1](cells, row, parts)
        made.append(outputs)
    return torch.stack(made), parts


def draw(network: nn.Network, sizes: list[int], steps: int, count: int) -> tuple[Any, Any, Any]:
    """Inputs, states and beginnings of episodes, also in the first and the last time step.

    At some time steps derivatives end.
    """
    rng = np.random.default_rng(3)
    state = np.zeros((count, network.state_size))
    for part in split(state, sizes):
        part[:] = rng.normal(size=part.shape)
    starts = rng.choice([1.0, -1.0, 0.0], (steps, count), p=[0.25, 0.15, 0.6])
    return rng.normal(size=(steps, count, INPUTS)), state, starts


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("steps", "count"), [(STEPS, COUNT), (1, 3), (9, 1)])
def test_sequences_equal_pytorch(name: str, steps: int, count: int) -> None:
    """Outputs, states, and derivatives through time by parameters and inputs."""
    network, sizes = make_network(name), CASES[name][2]
    x, state, starts = draw(network, sizes, steps, count)
    cells, inputs = Cells(network), torch.tensor(x, requires_grad=True)
    theirs, parts = run_all(name, cells, inputs, state, starts)
    outputs, after = network.outputs(x, state, starts)
    np.testing.assert_allclose(outputs, theirs.detach().numpy(), rtol=0, atol=1e-12)
    for ours, part in zip(split(after, sizes), parts, strict=True):
        np.testing.assert_allclose(ours, part.detach().numpy(), rtol=0, atol=1e-12)
    slopes = np.random.default_rng(4).normal(size=outputs.shape)
    (theirs * torch.tensor(slopes)).sum().backward()
    by_parameters, by_inputs = network.gradients(x, slopes, state, starts)
    np.testing.assert_allclose(by_inputs, inputs.grad.numpy(), rtol=0, atol=1e-10)
    for key, view in zip(network.arrays(), network.plan.flat_views(by_parameters), strict=True):
        expected = cells.parameters[key].grad.numpy()
        np.testing.assert_allclose(view, expected, rtol=0, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_a_sequence_is_its_parts(name: str) -> None:
    """Passes over some steps, each from the state of the one before, make the same numbers."""
    network = make_network(name)
    x, state, starts = draw(network, CASES[name][2], STEPS, 1100)
    whole, after = network.outputs(x, state, starts)
    parts = []
    for rows in (slice(0, 1), slice(1, 4), slice(4, STEPS)):
        outputs, state = network.outputs(x[rows], state, starts[rows])
        parts.append(outputs)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(state, after)


def error(y: float, target: float) -> float:
    return (y - target) ** 2


def regression(batch: Any, nets: Any, settings: Any) -> Any:
    y = nets.model(batch.x)[0]
    return nn.mean(nn.each(error, y, batch.target)), {}


def make_learner(name: str, **options: Any) -> nn.Learner:
    columns = {"x": INPUTS, "target": 1}
    return nn.Learner({"model": make_network(name)}, regression, columns=columns, **options)


@pytest.mark.parametrize("name", CASES)
def test_updates_equal_pytorch(name: str) -> None:
    """Gradient steps on minibatches of two whole sequences."""
    learner = make_learner(name, dtype=np.float64)
    network, sizes = learner.networks[0], CASES[name][2]
    x, state, starts = draw(network, sizes, STEPS, 7)
    x, state = x.astype(np.float32).astype(float), state.astype(np.float32).astype(float)
    target = np.random.default_rng(5).normal(size=(STEPS, 7)).astype(np.float32)
    cells = Cells(network)
    adam = torch.optim.Adam(cells.parameters.values(), lr=0.01, eps=1e-8)
    for _ in range(2):
        for begin in range(0, 7, 2):
            part = slice(begin, begin + 2)
            rows = torch.tensor(x[:, part])
            outputs, _ = run_all(name, cells, rows, state[part], starts[:, part])
            loss = ((outputs[..., 0] - torch.tensor(target[:, part])) ** 2).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
    learner.update(
        {"x": x.reshape(-1, INPUTS), "target": target.ravel(), "starts": starts.ravel()},
        states={"model": state},
        sequence_length=STEPS,
        minibatch_size=2 * STEPS,
        epochs=2,
        learning_rate=0.01,
    )
    for key, view in network.arrays().items():
        expected = cells.parameters[key].detach().numpy()
        np.testing.assert_allclose(view, expected, rtol=0, atol=1e-9, err_msg=key)


def test_sequences_cut_out_of_longer_ones_equal_pytorch() -> None:
    """Two halves of seven sequences, two of these fourteen in a minibatch."""
    name, half = "two", STEPS // 2
    learner = make_learner(name, dtype=np.float64)
    network, sizes = learner.networks[0], CASES[name][2]
    x, state, starts = draw(network, sizes, STEPS, 7)
    x = x.astype(np.float32).astype(float)
    states = np.stack([state, state[::-1] / 2]).astype(np.float32).astype(float)
    target = x[..., 0]
    cells = Cells(network)
    adam = torch.optim.Adam(cells.parameters.values(), lr=0.01, eps=1e-8)
    places = [(k, b) for k in range(2) for b in range(7)]
    for first in range(0, 14, 2):
        total: Any = 0.0
        for k, b in places[first : first + 2]:
            part = slice(k * half, (k + 1) * half), slice(b, b + 1)
            before = states[k, b : b + 1]
            outputs, _ = run_all(name, cells, torch.tensor(x[part]), before, starts[part])
            total = total + ((outputs[..., 0] - torch.tensor(target[part])) ** 2).mean() / 2
        adam.zero_grad()
        total.backward()
        adam.step()
    learner.update(
        {"x": x.reshape(-1, INPUTS), "target": target.ravel(), "starts": starts.ravel()},
        states={"model": states.reshape(14, -1)},
        sequence_length=half,
        abreast=7,
        minibatch_size=2 * half,
        learning_rate=0.01,
    )
    for key, view in network.arrays().items():
        expected = cells.parameters[key].detach().numpy()
        np.testing.assert_allclose(view, expected, rtol=0, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_states_along_a_sequence(name: str) -> None:
    """They are those that passes over single steps begin with and leave."""
    network = make_network(name)
    x, state, starts = draw(network, CASES[name][2], STEPS, 700)
    along = network.states_along(x, state, starts)
    for t in range(STEPS):
        expected = np.where(starts[t][:, None] > 0.0, 0.0, state)
        np.testing.assert_array_equal(along[t], expected)
        _, state = network.outputs(x[t : t + 1], state, starts[t : t + 1])
    np.testing.assert_array_equal(along[-1], state)


def test_numbers_of_later_time_steps() -> None:
    """In every order of minibatches; behind the end those of the last time step."""
    steps, count = 4, 40
    rng = np.random.default_rng(6)
    x, lags = rng.normal(size=(steps, count)), rng.integers(0, steps, (steps, count))

    def looking(batch: Any, nets: Any, settings: Any) -> Any:
        y = nets.model(batch.x)
        statistics = {"later": nn.ahead(batch.x, batch.lag), "next": nn.ahead(batch.x, 1)}
        return nn.mean(y * y), statistics

    learner = nn.Learner(
        {"model": nn.Network(1, nn.Dense(1))},
        looking,
        columns={"x": 1, "lag": 1},
        per_sample=("later", "next"),
        dtype=np.float64,
    )
    learner.update(
        {"x": x.ravel(), "lag": lags.ravel()},
        sequence_length=steps,
        minibatch_size=12 * steps,
        shuffle=True,
        learning_rate=0.01,
    )
    rows, columns = np.indices((steps, count))
    for name, by in (("later", lags), ("next", 1)):
        expected = x.astype(np.float32)[np.minimum(rows + by, steps - 1), columns]
        np.testing.assert_allclose(learner.per_sample[name], expected.ravel(), rtol=1e-6)


@pytest.mark.parallel
@pytest.mark.parametrize("name", ["mingru", "two"])
def test_updates_do_not_depend_on_threads(name: str) -> None:
    """Shuffled minibatches of more sequences than pass the networks together."""
    learnt = []
    for threads in (1, 2):
        learner = make_learner(name, num_threads=threads)
        x, state, starts = draw(learner.networks[0], CASES[name][2], 4, 900)
        batch = {"x": x.reshape(-1, INPUTS), "target": x[..., 0].ravel(), "starts": starts.ravel()}
        learner.update(
            batch,
            states={"model": state},
            sequence_length=4,
            minibatch_size=4 * 700,
            shuffle=True,
            epochs=2,
            learning_rate=0.01,
        )
        learnt.append(learner.learnt.parameters.copy())
    np.testing.assert_array_equal(*learnt)


def test_bad_sequences_are_refused() -> None:
    network = make_network("gru")
    x, state, starts = draw(network, [16], STEPS, COUNT)
    with pytest.raises(ValueError, match=r"state: the network has memory, expected an array \(5,"):
        network.outputs(x)
    with pytest.raises(ValueError, match=r"state has shape \(4, 16\): expected \(5, 16\)"):
        network.outputs(x, state[:4])
    with pytest.raises(ValueError, match=r"starts have shape \(5, 5\): expected \(6, 5\)"):
        network.outputs(x, state, starts[1:])
    with pytest.raises(ValueError, match=r"inputs have shape \(5, 3\): expected \(T, n, 3\)"):
        network.outputs(x[0], state)
    learner = make_learner("gru")
    rows = {"x": x.reshape(-1, 3), "target": np.zeros(30), "starts": starts.ravel()}
    options: dict[str, Any] = {"learning_rate": 0.1, "sequence_length": 6, "minibatch_size": 12}
    with pytest.raises(KeyError, match="states has no 'model', a network with memory"):
        learner.update(rows, **options)
    with pytest.raises(ValueError, match=r"states\['model'\] has shape \(4, 16\): expected \(5, 1"):
        learner.update(rows, states={"model": state[:4]}, **options)
    with pytest.raises(ValueError, match="minibatch_size=16: expected a multiple of sequence_len"):
        learner.update(rows, states={"model": state}, **{**options, "minibatch_size": 16})
    with pytest.raises(ValueError, match="sequence_length=4: the batch has 30 samples"):
        learner.update(rows, states={"model": state}, **{**options, "sequence_length": 4})
    with pytest.raises(ValueError, match="abreast=2: the batch has 5 sequences of 6"):
        learner.update(rows, states={"model": state}, abreast=2, **options)
    del rows["starts"]
    with pytest.raises(KeyError, match="no column 'starts'"):
        learner.update(rows, states={"model": state}, **options)
