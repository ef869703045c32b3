"""Each operation of a tape, forward and backward, against PyTorch's autograd."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy import stats

from rlcpu import nn
from rlcpu.kernels.compiler.compile import kernel_in
from rlcpu.nn.learning.update import update
from tests.nn.twins import TOLERANCES, Twins, assert_close, batch_of, gradients_of

DTYPES = (np.float64, np.float32)
SAMPLES = 150  # two parts, of which the last is not full
SETTINGS = {"factor": 0.7, "count": 3, "choice": "square"}
COLUMNS = {"x": 3, "y": 2, "index": 1, "weight": 1, "mask": 4, "pair": 2}

# ---------------------------------------------------------------- scalar functions
#
# A few serve all tests, for each is compiled. PyTorch differentiates its form of them.


def cubic(x: float, y: float) -> float:
    return x * x * y - 3.0 * y


def both(x: float, y: float) -> tuple[float, float]:
    return math.exp(-x * x) * y, min(x, y)


def both_in_torch(x: Any, y: Any) -> Any:
    x, y = torch.broadcast_tensors(x, y)
    return torch.exp(-x * x) * y, torch.minimum(x, y)


def bent(x: float, y: float) -> float:
    return x * y if x > 0.0 else 0.1 * x


def leaning(x: float, y: float, level: float, factor: float) -> float:
    """The quantile Huber loss of one pair, times a factor."""
    error = y - x
    size = abs(error)
    huber = 0.5 * error * error if size <= 1.0 else size - 0.5
    return abs(level - (1.0 if error < 0.0 else 0.0)) * huber * factor


def leaning_in_torch(x: Any, y: Any, level: Any, factor: Any) -> Any:
    error = y - x
    huber = torch.nn.functional.huber_loss(*torch.broadcast_tensors(x, y), reduction="none")
    return (level - (error < 0.0).double()).abs() * huber * factor


TWINS = {
    leaning: leaning_in_torch,
    cubic: cubic,
    both: both_in_torch,
    bent: lambda x, y: torch.where(x > 0.0, x * y, 0.1 * x),
}

# ---------------------------------------------------------------- the same words in PyTorch


def rows(x: Any) -> Any:
    """A tensor as (S, width), or a number, or (width,)."""
    if isinstance(x, np.ndarray):
        return torch.tensor(x)
    return x[:, None] if isinstance(x, torch.Tensor) and x.ndim == 1 and len(x) == SAMPLES else x


class Row:
    """(S, width) numbers with the operators of a tape's tensor, whose slices are of the width."""

    def __init__(self, values: Any) -> None:
        self.values = rows(values)

    def __getitem__(self, index: Any) -> Row:
        return Row(self.values[..., index if isinstance(index, slice) else [index]])

    def __add__(self, other: Any) -> Row:
        return Row(self.values + of(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Row:
        return Row(self.values - of(other))

    def __rsub__(self, other: Any) -> Row:
        return Row(of(other) - self.values)

    def __mul__(self, other: Any) -> Row:
        return Row(self.values * of(other))

    __rmul__ = __mul__

    def __neg__(self) -> Row:
        return Row(-self.values)

    def __truediv__(self, other: Any) -> Row:
        return Row(self.values / other)


def of(value: Any) -> Any:
    return value.values if isinstance(value, Row) else rows(value)


def log_softmax(x: Row, allowed: Any = None) -> Row:
    logits = x.values if allowed is None else x.values.masked_fill(of(allowed) == 0, -math.inf)
    return Row(torch.log_softmax(logits, dim=1).clamp(min=-1e30))


def argmax(x: Row, allowed: Any = None) -> Row:
    values = x.values if allowed is None else x.values.masked_fill(of(allowed) == 0, -math.inf)
    return Row(values.argmax(dim=1, keepdim=True))


def take(x: Row, index: Any) -> Row:
    return Row(x.values.gather(1, of(index).long()))


def each(function: Any, *arguments: Any, results: int = 0) -> Any:
    found = TWINS[function](*map(of, arguments))
    return tuple(map(Row, found)) if results else Row(found)


def pairs(function: Any, x: Any, y: Any, *arguments: Any) -> Row:
    """The mean over pairs, from a table of all of them."""
    numbers = [torch.as_tensor(of(each), dtype=torch.float64) for each in (x, y, *arguments)]
    tables = [each if each.ndim == 0 else each.expand(SAMPLES, -1)[:, :, None] for each in numbers]
    tables[1] = tables[1].transpose(1, 2)
    return Row(TWINS[function](*tables).mean(dim=(1, 2))[:, None])


def standardise(x: Row) -> Row:
    deviation = x.values.std(dim=0, keepdim=True) + 1e-8
    return Row((x.values - x.values.mean(dim=0, keepdim=True)) / deviation)


TORCH = SimpleNamespace(
    each=each,
    take=take,
    argmax=argmax,
    max=lambda x, allowed=None: take(x, argmax(x, allowed)),
    hold=lambda x: Row(x.values.detach()),
    log_softmax=log_softmax,
    entropy=lambda x: Row(-(x.values.exp() * x.values).sum(dim=1, keepdim=True)),
    sum=lambda x: Row(x.values.sum(dim=1, keepdim=True)),
    mean=lambda x: Row(of(x).expand(SAMPLES, 1).mean(dim=0, keepdim=True)),
    pairs=pairs,
    sort=lambda x: Row(of(x).sort(dim=1).values.detach()),
    standardise=standardise,
)


class Applied:
    """A network in PyTorch that takes and gives rows."""

    def __init__(self, twin: Any) -> None:
        self.twin = twin

    def __call__(self, *inputs: Any) -> Row:
        return Row(self.twin(*(of(x).expand(SAMPLES, -1) for x in inputs)))


# ---------------------------------------------------------------- algorithms
#
# Each takes the words, ours or PyTorch's, then what an algorithm takes.


def scalar_functions(w: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """One and several results, of one and several numbers, columns, settings and constants."""
    q = nets.q(batch.x)
    first, second = w.each(both, q, batch.weight, results=2)
    third, _ = w.each(both, batch.weight, q[1], results=2)
    loss = w.sum(w.each(cubic, first, settings.factor)) + w.sum(w.each(bent, second, q))
    loss = loss + w.each(cubic, third, 2.5) + w.each(cubic, batch.weight, q[0])
    return w.mean(loss), {"first": w.sum(first), "third": third}


def choices(w: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """take, argmax and max, with masks and without; indices that are computed."""
    q, r = nets.q(batch.x), nets.r(batch.x, batch.y)
    best, allowed = w.argmax(r), w.argmax(r, allowed=batch.mask)
    loss = w.take(q, batch.index) + 2.0 * w.take(q, best) * batch.weight + w.take(q, allowed)
    loss = loss + w.max(r) * w.max(r, allowed=batch.mask) + w.take(q * q, best)
    return w.mean(loss), {"best": best, "allowed": allowed, "top": w.max(r)}


def distributions(w: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """log_softmax with and without masks, entropy."""
    plain, masked = (
        w.log_softmax(nets.q(batch.x)),
        w.log_softmax(nets.r(batch.x, batch.y), allowed=batch.mask),
    )
    entropy = w.entropy(masked) * batch.weight - w.entropy(plain) / 2
    loss = w.take(plain, batch.index) * entropy - w.max(masked) + w.sum(plain * nets.q(batch.x))
    return w.mean(loss), {"entropy": entropy}


def arithmetic(w: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """Sums, differences, products, negation, division, slices, constants; one row for many."""
    q = nets.q(batch.x)
    shift = np.array([0.5, -1.0, 0.25, 0.5])
    z = 2.0 - (q * shift - q[-1]) * q[1] + batch.weight
    z = -z / 3 + q * (1.0 - q) - settings.factor * q + nets.bias - 3 * batch.mask
    loss = w.sum(z[1:]) + z[0] * w.sum(z[:2] * batch.y) + z[-2] * settings.count
    return w.mean(loss) - 0.5 * w.mean(q[2] * nets.bias[3]), {"z": z[3]}


def composed(w: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """Networks of networks' outputs, one used three times, hold between them."""
    q = nets.q(batch.x)
    inner = w.each(bent, nets.q(q[1:]), batch.weight)
    outer = nets.r(inner[:3], w.hold(q[:2]))
    again = nets.q(outer[:2], batch.weight)
    value = w.take(outer, batch.index) + w.hold(w.sum(again)) * w.max(again)
    target = w.hold(nets.slow(batch.x)[1])
    loss = (value - target) * (value - target) - batch.weight * w.sum(w.log_softmax(inner))
    return w.mean(loss * w.standardise(batch.weight)), {"value": value, "target": target}


def all_pairs(w: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """Pairs of outputs with themselves, columns and one number; sorted numbers."""
    q, r = nets.q(batch.x), nets.r(batch.x, batch.y)
    levels = np.array([0.125, 0.375, 0.625, 0.875])
    loss = w.pairs(leaning, q, r[:3], levels, batch.weight) * batch.weight
    loss = loss + w.pairs(leaning, q, w.sort(r)[1:], nets.bias, 2.0)
    loss = loss + w.pairs(leaning, batch.weight, q, settings.factor, r[1])
    loss = loss + w.pairs(leaning, q[2:], q, q[:2], q[3]) + w.pairs(leaning, w.hold(q), r, q, 1.0)
    ordered = w.sort(batch.x)
    plain = w.pairs(leaning, batch.x, ordered, batch.weight, 1.0)
    return w.mean(loss), {"low": w.sort(r)[0], "high": ordered[-1], "plain": plain}


def lines(w: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """A network without hidden layers, between others."""
    z = nets.r(batch.x, nets.line(nets.q(batch.x)))
    return w.mean(w.sum(z * z)), {}


ALGORITHMS = [
    (scalar_functions, ("q",)),
    (choices, ("q", "r")),
    (distributions, ("q", "r")),
    (arithmetic, ("q", "bias")),
    (composed, ("q", "r")),
    (composed, ("q",)),
    (all_pairs, ("q", "r", "bias")),
    (lines, ("q", "r", "line")),
    (lines, ("q",)),
]


def make_batch() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    batch = {k: rng.normal(size=(SAMPLES, n)) for k, n in COLUMNS.items()}
    batch["index"] = rng.integers(0, 4, SAMPLES)
    batch["mask"] = rng.random((SAMPLES, 4)) < 0.6
    batch["mask"][np.arange(SAMPLES), rng.integers(0, 4, SAMPLES)] = True
    return batch


def make_learner(
    algorithm: Any, learns: Any = None, dtype: Any = np.float64, **options: Any
) -> Any:
    networks = {
        "q": nn.Network((3, 20, 4), "relu", seed=1),
        "r": nn.Network((5, 16, 7, 4), "tanh", seed=2),
        "line": nn.Network((4, 2), seed=3),
        "bias": np.linspace(-1.0, 1.0, 4).astype(np.float32),
    }
    updates = algorithm if isinstance(algorithm, list) else [nn.Update(algorithm, learns)]
    options = {"targets": {"slow": "q"}, "settings": SETTINGS, "num_threads": 1} | options
    return nn.Learner(networks, updates, columns=COLUMNS, dtype=dtype, **options)


def in_words(words: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        return function(words, batch, nets, settings)

    algorithm.__name__ = function.__name__
    return algorithm


def in_torch(function: Any, learner: Any, batch: Any) -> tuple[Twins, torch.Tensor, dict[str, Row]]:
    twins = Twins(learner)
    nets = {name: Applied(twin) for name, twin in twins.networks.items()}
    nets |= {name: Row(array) for name, array in twins.arrays.items()}  # type: ignore[misc]
    columns = SimpleNamespace(**{k: Row(x) for k, x in vars(batch_of(batch)).items()})
    loss, statistics = function(
        TORCH, columns, SimpleNamespace(**nets), SimpleNamespace(**SETTINGS)
    )
    return twins, loss.values[0, 0], statistics


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "learns"), ALGORITHMS)
def test_equals_torch(function: Any, learns: tuple[str, ...], dtype: Any) -> None:
    batch, tolerance = make_batch(), TOLERANCES[dtype]
    learner = make_learner(in_words(nn, function), learns, dtype)
    twins, loss, statistics = in_torch(function, learner, batch)
    report = learner.update(batch, learning_rate=0.0, minibatch_size=SAMPLES)
    assert report[function.__name__] == pytest.approx(float(loss.detach()), rel=10 * tolerance)
    for name, values in statistics.items():
        expected = float(values.values.detach().double().mean())
        assert report[name] == pytest.approx(expected, rel=10 * tolerance, abs=tolerance)
    gradients = twins.gradients(loss, learns)
    for name in learns:
        assert_close(gradients_of(learner, name), gradients[name], tolerance)
    norm = math.sqrt(sum(float((x**2).sum()) for each in gradients.values() for x in each))
    assert report["gradient_norm"] == pytest.approx(norm, rel=10 * tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_updates_have_gradients_of_their_own(dtype: Any) -> None:
    batch = make_batch()
    updates = [nn.Update(in_words(nn, function), learns) for function, learns in
               [(composed, ("r",)), (arithmetic, ("q",)), (choices, ("r",))][:2]]  # fmt: skip
    learner = make_learner(updates, dtype=dtype)
    before = learner.networks[0].parameters.copy()
    report = learner.update(batch, learning_rate=0.0, minibatch_size=SAMPLES)
    for function, name in ((composed, "r"), (arithmetic, "q")):
        twins, loss, _ = in_torch(function, learner, batch)
        expected = twins.gradients(loss, (name,))[name]
        assert_close(gradients_of(learner, name), expected, TOLERANCES[dtype])
        assert report[function.__name__] == pytest.approx(
            float(loss.detach()), rel=10 * TOLERANCES[dtype]
        )
    np.testing.assert_array_equal(learner.networks[0].parameters, before)
    assert not learner.learnt.first[learner.layout.parameters :].any()  # nobody learns the bias


def test_what_reaches_an_argmax_alone_is_not_learnt() -> None:
    """A network's outputs that decide, and are in no sum, have no derivative."""

    def chosen(batch: Any, nets: Any, settings: Any) -> Any:
        best = nn.argmax(nets.r(batch.x, nets.q(batch.x)[:2]))
        return nn.mean(nn.take(nets.q(batch.x), best)), {"best": best}

    batch = make_batch()
    learner = make_learner(chosen, ("q",))
    learner.update(batch, learning_rate=0.0, minibatch_size=SAMPLES)
    twins = Twins(learner)
    q, columns = twins.nets.q, batch_of(batch)
    values = q(columns.x)
    best = twins.nets.r(columns.x, values[:, :2]).argmax(dim=1, keepdim=True)
    expected = twins.gradients(values.gather(1, best).mean(), ("q",))["q"]
    assert_close(gradients_of(learner, "q"), expected, 1e-10)
    with pytest.raises(ValueError, match=r"is to learn r: its loss does not depend on it"):
        make_learner(chosen, ("q", "r"))


def test_inputs_by_their_names_and_powers() -> None:
    """`nets.f(x=..., y=...)` takes inputs in any order, and x ** 3 is x * x * x."""

    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        value, again = nets.f(b=batch.y, a=batch.x), nets.f(batch.x, b=batch.y)
        cube = value**3.0
        return nn.mean(cube), {"cube": cube, "product": again * again * again}

    graph = nn.Concatenate(nn.Input("a"), nn.Input("b")) >> nn.Dense(1)
    network = nn.Network({"a": 3, "b": 2}, graph, seed=0)
    learner = nn.Learner({"f": network}, algorithm, columns={"x": 3, "y": 2})
    batch = make_batch()
    report = learner.update({k: batch[k] for k in ("x", "y")}, learning_rate=0.0)
    assert report["cube"] == pytest.approx(report["product"], rel=1e-5)


def test_numbers_arrays_and_python_functions_beside_tensors() -> None:
    """Constants as lists, tuples and arrays, on both sides; abs, min and max."""

    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        x = nets.q(batch.x)
        values = {
            "list": nn.sum(nn.each(cubic, x, [0.1, 0.2, -0.3, 4])),
            "tuple": nn.sum((1, 2.5, 3, -1) - x),
            "array": nn.sum(np.array([1.0, 2.0, 3.0, 4.0]) * x + np.float32(0.5) * x),
            "size": nn.sum(abs(x)),
            "bounded": nn.sum(nn.each(max, nn.each(min, x, 0.5), [-0.1, -0.2, -0.3, -0.4])),
            "power": nn.sum(2.0**x),
            "first": nn.take(x, 0),
        }
        total: Any = 0.0
        for value in values.values():
            total = total + value
        return nn.mean(total), values

    batch = make_batch()
    learner = make_learner(algorithm, ("q",))
    report = learner.update(batch, learning_rate=0.0, minibatch_size=SAMPLES)
    twins = Twins(learner)
    x = twins.nets.q(batch_of(batch).x)
    low, steps = torch.tensor([-0.1, -0.2, -0.3, -0.4]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = {
        "list": cubic(x, torch.tensor([0.1, 0.2, -0.3, 4.0], dtype=torch.float64)),  # type: ignore[arg-type]
        "tuple": torch.tensor([1.0, 2.5, 3.0, -1.0]) - x,
        "array": steps * x + 0.5 * x,
        "size": x.abs(),
        "bounded": torch.maximum(x.clamp(max=0.5), low.double()),
        "power": 2.0**x,
        "first": x[:, :1],
    }
    means = {name: values.sum(dim=1).mean() for name, values in expected.items()}
    for name, value in means.items():
        assert report[name] == pytest.approx(float(value.detach()), rel=1e-6)
    gradients = twins.gradients(torch.stack(list(means.values())).sum(), ("q",))["q"]
    assert_close(gradients_of(learner, "q"), gradients, 1e-6)  # constants of float32 in PyTorch


def test_a_network_has_one_name() -> None:
    network = nn.Network((3, 1))
    with pytest.raises(ValueError, match=r"networks\['b'\] is networks\['a'\]: expected another"):
        nn.Learner(
            {"a": network, "b": network},
            lambda batch, nets, settings: (nn.mean(nets.a(batch.x)), {}),
            columns={"x": 3},
        )


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(width=st.integers(1, 20), seed=st.integers(0, 1000), with_nan=st.booleans())
def test_sort_orders_any_width(width: int, seed: int, with_nan: bool) -> None:
    """Numbers that occur twice, infinities; of those with a NaN none is lost."""

    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        ordered = nn.sort(batch.x)
        return nn.mean(nets.f(batch.x)), {str(k): ordered[k] for k in range(width)}

    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (40, width)).astype(np.float32)
    x[0] = np.where(rng.random(width) < 0.5, np.inf, -np.inf)
    learner = nn.Learner(
        {"f": nn.Network((width, 1))}, algorithm, columns={"x": width},
        per_sample=[str(k) for k in range(width)],
    )  # fmt: skip
    if with_nan:
        x[1, rng.integers(width)] = np.nan
    with contextlib.suppress(FloatingPointError):  # the loss is not finite, and no step is taken
        learner.update({"x": x}, learning_rate=0.0)
    actual, expected = np.stack(list(learner.per_sample.values()), axis=1), np.sort(x, axis=1)
    if with_nan:
        np.testing.assert_array_equal(np.sort(actual[1]), expected[1])
        actual, expected = np.delete(actual, 1, axis=0), np.delete(expected, 1, axis=0)
    np.testing.assert_array_equal(actual, expected)


# ---------------------------------------------------------------- noise


def noise_of(learner: Any, size: int, **options: Any) -> dict[str, Any]:
    batch = {k: np.zeros((size, n)) for k, n in COLUMNS.items()}
    learner.update(batch, learning_rate=0.0, minibatch_size=size, **options)
    return learner.per_sample


def noisy(names: str) -> Callable[..., Any]:
    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        drawn = {name: nn.normal(batch.y) for name in names}
        numbers = {f"{name}{k}": drawn[name][k] for name in names for k in range(2)}
        return nn.mean(nn.sum(nets.q(batch.x))), numbers

    return algorithm


def make_noise(*names: str, seed: int = 0) -> Any:
    updates = [nn.Update(noisy(each), ("q",)) for each in names]
    wanted = [f"{name}{k}" for each in names for name in each for k in range(2)]
    return make_learner(updates, per_sample=wanted, seed=seed)


def test_noise_is_standard_normal() -> None:
    drawn = noise_of(make_noise("ab"), 20_000)
    for values in drawn.values():
        assert stats.kstest(values, "norm").pvalue > 1e-4
    table = np.corrcoef(list(drawn.values()))
    assert abs(table - np.eye(4)).max() < 0.03
    for values in drawn.values():
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.03


def test_noise_differs_between_seeds_steps_updates_and_streams() -> None:
    learner = make_noise("ab", "cd", "ef")
    first = dict(noise_of(learner, 64))
    second = dict(noise_of(learner, 64))
    other = noise_of(make_noise("ab", "cd", "ef", seed=1), 64)
    again = noise_of(make_noise("ab", "cd", "ef"), 64)
    everything = [*first.values(), *second.values(), *other.values()]
    numbers = np.concatenate(everything)
    assert len(np.unique(numbers)) > 0.999 * len(numbers)
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])


def test_noise_does_not_depend_on_minibatches_that_come_later() -> None:
    """The noise of the first minibatch is that of a call with this one alone."""
    some = noise_of(make_noise("a"), 64)["a0"]
    learner = make_noise("a")
    batch = {k: np.zeros((200, n)) for k, n in COLUMNS.items()}
    learner.update(batch, learning_rate=0.0, minibatch_size=64)
    np.testing.assert_array_equal(learner.per_sample["a0"][:64], some)


# ---------------------------------------------------------------- one kernel


def test_another_algorithm_and_other_networks_compile_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def first(batch: Any, nets: Any, settings: Any) -> Any:
        z = nn.log_softmax(nets.b(batch.y))
        noise = z[0] * nn.normal(batch.x) + nn.take(z, nn.argmax(z))
        value = nn.each(cubic, nets.a(batch.x), batch.x)
        return nn.mean(value + noise), {"value": value}

    def second(batch: Any, nets: Any, settings: Any) -> Any:
        z = nets.b(nets.a(batch.x), batch.y)
        value = nn.take(nn.log_softmax(z), nn.argmax(z)) + nn.each(cubic, z[1], batch.x)
        return nn.mean(value + nn.normal(batch.x) * z[0]), {"value": value}

    def new(x: float, y: float) -> float:
        return x * y

    def third(batch: Any, nets: Any, settings: Any) -> Any:
        return nn.mean(nn.each(new, nets.a(batch.x), batch.x)), {}

    batch = {"x": np.ones(9), "y": np.ones((9, 2))}
    columns, a = {"x": 1, "y": 2}, nn.Network((1, 1))
    b = nn.Network((2, 3, 2), "relu", layer_norm=True)
    learner = nn.Learner({"a": a, "b": b}, first, columns=columns, dtype=np.float64)
    learner.update(batch, learning_rate=0.1)
    kernel: Any = kernel_in(learner.dtype, update, by_address=True)
    caplog.set_level(logging.INFO, logger="rlcpu")
    b = nn.Network((3, 40, 6, 5), "relu", layer_norm=True)
    learner = nn.Learner({"a": a, "b": b}, second, columns=columns, dtype=np.float64)
    learner.update(batch, learning_rate=0.1, shuffle=True, epochs=2, max_gradient_norm=1.0)
    assert not caplog.records
    assert len(kernel.overloads) == 1
    assert kernel_in(learner.dtype, update, by_address=True) is kernel
    learner = nn.Learner({"a": a}, third, columns=columns, dtype=np.float64)
    learner.update(batch, learning_rate=0.1)
    assert len(kernel.overloads) == 1
