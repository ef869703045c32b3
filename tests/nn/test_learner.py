"""A learner of a user's own algorithm, through public names."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu import nn
from rlcpu.kernels.compiler.compile import kernel_in
from rlcpu.nn.learning.settings import parts_of
from rlcpu.nn.learning.update import update

COLUMNS = {"x": 3, "target": 1, "weight": 1}


def huber(value: float, target: float, width: float) -> tuple[float, float]:
    """Squared near the target, linear beyond `width`; and the distance."""
    error = value - target
    bounded = min(max(error, -width), width)
    return bounded * (error - 0.5 * bounded), abs(error)


def fit(batch: Any, nets: Any, settings: Any) -> Any:
    loss, distance = nn.each(huber, nets.f(batch.x), batch.target, settings.width, results=2)
    return nn.mean(batch.weight * loss), {"distance": distance}


def fit_shifted(batch: Any, nets: Any, settings: Any) -> Any:
    value = nets.f(batch.x) + nets.shift
    loss, distance = nn.each(huber, value, batch.target, settings.width, results=2)
    return nn.mean(loss), {"shifted": distance}


def make_batch(samples: int = 512, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (samples, 3)).astype(np.float32)
    target = (np.sin(3.0 * x[:, 0]) * x[:, 1] + x[:, 2]).astype(np.float32)
    weight = rng.uniform(0.5, 1.5, samples).astype(np.float32)
    return {"x": x, "target": target, "weight": weight}


def make_learner(algorithm: Any = fit, **options: Any) -> nn.Learner:
    networks = {"f": nn.Network((3, 32, 32, 1), seed=1), **options.pop("arrays", {})}
    options = {"columns": COLUMNS, "settings": {"width": 0.5}, "num_threads": 1} | options
    return nn.Learner(networks, algorithm, **options)


def distances(network: nn.Network, batch: dict[str, Any]) -> Any:
    return abs(network.outputs(batch["x"])[:, 0].astype(np.float64) - batch["target"])


def mean_loss(network: nn.Network, batch: dict[str, Any], width: float = 0.5) -> float:
    error = distances(network, batch)
    loss = np.where(error < width, 0.5 * error**2, width * (error - 0.5 * width))
    return float((batch["weight"] * loss).mean())


def test_an_algorithm_of_two_lines_trains() -> None:
    batch, learner = make_batch(), make_learner()
    first = learner.update(batch, learning_rate=0.0)
    for _ in range(5):
        last = learner.update(batch, learning_rate=3e-3, epochs=20, minibatch_size=64, shuffle=True)
    assert first["fit"] > 0.1
    assert last["fit"] < 1e-3
    assert mean_loss(learner.networks[0], make_batch(seed=1)) < 0.01


def test_means_and_numbers_of_each_sample_are_those_of_the_losses() -> None:
    batch, learner = make_batch(), make_learner(per_sample=("distance",))
    report = learner.update(batch, learning_rate=0.0, minibatch_size=512)
    expected = distances(learner.networks[0], batch)
    assert report["fit"] == pytest.approx(mean_loss(learner.networks[0], batch), rel=1e-5)
    assert report["distance"] == pytest.approx(expected.mean(), rel=1e-5)
    assert report["num_gradients"] == 1
    np.testing.assert_allclose(learner.per_sample["distance"], expected, rtol=1e-4, atol=1e-5)
    learner.update(batch, learning_rate=0.0, minibatch_size=100, shuffle=True)
    np.testing.assert_allclose(learner.per_sample["distance"], expected, rtol=1e-4, atol=1e-5)


def test_settings_are_read_anew_by_each_update() -> None:
    batch, learner = make_batch(), make_learner()
    for width in (0.5, 0.1, 2.0):
        options: Any = {"settings": {"width": width}, "minibatch_size": 512}
        report = learner.update(batch, learning_rate=0.0, **options)
        expected = mean_loss(learner.networks[0], batch, width)
        assert report["fit"] == pytest.approx(expected, rel=1e-5)


def squared(value: float, target: float) -> float:
    return (value - target) ** 2


def novelty(batch: Any, nets: Any, settings: Any) -> Any:
    """Random network distillation: the target is fixed, and so are the moments of its input."""
    x = (batch.x - nn.hold(nets.mean)) / nn.hold(nets.deviation)
    error = nn.sum(nn.each(squared, nets.predictor(x), nn.hold(nets.fixed(x))))
    return nn.mean(error), {"novelty": error}


@pytest.mark.parametrize("learns", [None, ("predictor",)])
def test_what_no_update_learns_is_read_and_stays(learns: Any) -> None:
    def make() -> Any:
        networks = {
            "predictor": nn.Network((3, 16, 2), "relu", seed=1),
            "fixed": nn.Network((3, 16, 2), "relu", seed=2),
            "mean": np.zeros(3, np.float32),
            "deviation": np.ones(3, np.float32),
        }
        updates = novelty if learns is None else [nn.Update(novelty, learns)]
        return networks, nn.Learner(networks, updates, columns={"x": 3}, per_sample=("novelty",))

    (networks, learner), (_, other) = make(), make()
    assert learner.updates[0].learns == ("predictor",)
    fixed, predictor = (networks[name].parameters.copy() for name in ("fixed", "predictor"))
    x = make_batch()["x"]
    steps: Any = {"learning_rate": 1e-2, "epochs": 20, "weight_decay": 0.1}
    for _ in range(2):
        report = learner.update({"x": x}, **steps)
    assert (networks["predictor"].parameters != predictor).all()
    np.testing.assert_array_equal(networks["fixed"].parameters, fixed)
    learner.value_of("mean")[...] = [0.5, -0.5, 0.0]  # as an agent writes running moments
    learner.value_of("deviation")[...] = 2.0
    _, numbers = learner.losses({"x": x})
    shifted = (x - np.array([0.5, -0.5, 0.0], np.float32)) / 2.0
    difference = networks["predictor"].outputs(shifted) - networks["fixed"].outputs(shifted)
    np.testing.assert_allclose(
        numbers["novelty"], (difference**2).sum(axis=1), rtol=1e-4, atol=1e-6
    )
    for name, array in learner.state().items():  # what a file holds
        other.state()[name][...] = array
    expected = learner.update({"x": x}, **steps)
    assert other.update({"x": x}, **steps) == expected
    assert expected["novelty"] != report["novelty"]
    np.testing.assert_array_equal(networks["mean"], [0.5, -0.5, 0.0])
    np.testing.assert_array_equal(learner.learnt.parameters, other.learnt.parameters)


def test_settings_may_not_change_what_is_learnt() -> None:
    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        value = nets.f(batch.x) + (nets.shift if settings.is_shifted else 0.0)
        return nn.mean(nn.each(squared, value, batch.target)), {}

    shift = {"shift": np.zeros(1, np.float32)}
    learner = make_learner(algorithm, arrays=shift, settings={"is_shifted": False})
    assert learner.updates[0].learns == ("f",)
    with pytest.raises(ValueError, match=r"learns f, shift with these: .* depends on f, as"):
        learner.update(make_batch(), learning_rate=0.0, settings={"is_shifted": True})


def test_an_array_that_is_a_setting_is_read_anew() -> None:
    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        return nn.mean(nets.f(batch.x * settings.scale)), {"x": nn.sum(batch.x * settings.scale)}

    scale, batch = np.array([1.0, 2.0, 3.0]), make_batch()
    learner = make_learner(algorithm, settings={"scale": scale})
    for _ in range(2):
        report = learner.update(batch, learning_rate=0.0, settings={"scale": scale})
        assert report["x"] == pytest.approx((batch["x"] @ scale).mean(), rel=1e-4)
        scale *= -2.0


def test_a_setting_may_make_the_algorithm_longer() -> None:
    """Memory is that of the algorithm as it is traced now: more numbers of a sample, statistics."""

    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        loss, statistics = fit(batch, nets, settings)
        for k in range(settings.copies):
            value = nets.f(batch.x * (1.0 + k)) * batch.x
            loss, statistics = loss + nn.mean(nn.sum(value)), {**statistics, f"x{k}": value[0]}
        return loss, statistics

    batch, settings = make_batch(), {"width": 0.5, "copies": 0}
    learner = make_learner(algorithm, settings=settings)
    learner.update(batch, learning_rate=0.0)
    longer = make_learner(algorithm, settings=settings | {"copies": 40})
    expected = longer.update(batch, learning_rate=0.0)
    assert learner.update(batch, learning_rate=0.0, settings={"copies": 40}) == expected
    assert len(expected) == 44


@pytest.mark.parametrize("kind", ["unknown", "without distances"])
def test_settings_that_cannot_be_traced_are_not_taken(kind: str) -> None:
    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        if settings.kind == "unknown":
            raise ValueError("kind is unknown")
        loss, statistics = fit(batch, nets, settings)
        return loss, {} if settings.kind == "without distances" else statistics

    settings = {"width": 0.5, "kind": "whole"}
    learner = make_learner(algorithm, settings=settings, per_sample=("distance",))
    batch = make_batch()
    before = learner.update(batch, learning_rate=0.0)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"kind is unknown|per_sample='distance'"):
            learner.update(batch, learning_rate=0.0, settings={"width": 0.1, "kind": kind})
    assert learner.settings == settings
    assert learner.update(batch, learning_rate=0.0) == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_result_does_not_depend_on_the_number_of_threads(dtype: Any) -> None:
    batch = make_batch(12_000)
    results = []
    for threads in (1, 2, 3):
        learner = make_learner(num_threads=threads, dtype=dtype, seed=3)
        # 2 x 4,000 samples and some 2,000 parameters: enough for helpers
        report = learner.update(
            batch, learning_rate=1e-3, epochs=2, minibatch_size=4000, shuffle=True
        )
        results.append((report, learner.networks[0].parameters.tobytes()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("minibatch", "parameters", "part"),
    [
        (64, 135_200, 32),
        (100, 22_816, 64),
        (256, 22_816, 128),
        (256, 336_736, 64),
        (512, 336_736, 128),
        (8192, 336_736, 256),
    ],
)
def test_parts_are_two_at_least_four_of_large_networks_and_few_in_all(
    minibatch: int, parameters: int, part: int
) -> None:
    assert parts_of(minibatch, parameters)[0] == part


def test_a_batch_without_samples_is_refused() -> None:
    """Also where a column has indices, of which there is no smallest one."""

    def chosen(batch: Any, nets: Any, settings: Any) -> Any:
        return nn.mean(nn.take(nets.f(batch.x), batch.index)), {}

    network = nn.Network((3, 2))
    learner = nn.Learner({"f": network}, chosen, columns={"x": 3, "index": 1})
    empty = {"x": np.zeros((0, 3), np.float32), "index": np.zeros(0, np.int64)}
    with pytest.raises(ValueError, match=r"\[0\] samples: expected one number"):
        learner.update(empty, learning_rate=1e-2)


def test_arrays_that_are_used_again_are_read_anew() -> None:
    reused, fresh = make_learner(), make_learner()
    memory = {name: array.astype(np.float64) for name, array in make_batch(64).items()}
    memory["x"] = memory["x"].astype(np.float32)  # read where it is, the others as copies
    pair = np.zeros(3, np.float32), np.ones(3, np.float32)
    for seed in range(4):
        batch = make_batch(64, seed)
        for name, array in batch.items():
            memory[name][...] = array
        pair[0][:] = 0.1 * seed
        with pytest.raises(ValueError, match="expected \\(S, 1\\)"):
            reused.update({**batch, "target": batch["x"]}, learning_rate=1e-2)
        normalise = {"x": pair}
        report = reused.update(memory, learning_rate=1e-2, normalise=normalise)
        copies = {"x": (pair[0].copy(), pair[1].copy())}
        assert report == fresh.update(batch, learning_rate=1e-2, normalise=copies)
        networks = reused.networks[0], fresh.networks[0]
        np.testing.assert_array_equal(*(network.parameters for network in networks))


def test_arrays_that_cannot_be_written_to_compile_nothing() -> None:
    batch, moments = make_batch(), (np.zeros(3, np.float32), np.ones(3, np.float32))
    results: list[Any] = []
    for is_read_only in (False, True):
        for array in (*batch.values(), *moments):
            array.setflags(write=not is_read_only)
        learner = make_learner()
        report = learner.update(batch, learning_rate=1e-3, normalise={"x": moments})
        kernel: Any = kernel_in(learner.dtype, update, by_address=True)
        results.append((report, len(kernel.overloads)))
    assert results[0] == results[1]


def test_networks_see_normalised_and_clipped_columns() -> None:
    batch = make_batch(64)
    mean, scale = np.float32([0.1, -0.2, 0.0]), np.float32([2.0, 30.0, 1.0])
    scaled = (batch["x"] - mean) * scale
    for limit in (10.0, 3.0, np.inf):
        assert (abs(scaled) > limit).any() == (limit < np.inf)
        plain = batch | {"x": np.clip(scaled, -limit, limit)}
        scalings: list[Any] = [(mean, scale, np.float32(limit))]
        scalings += [(mean, scale)] if limit == np.inf else []  # which is the same
        given = [(plain, {}), *((batch, {"normalise": {"x": each}}) for each in scalings)]
        first, *others = (
            make_learner(dtype=np.float64).update(columns, learning_rate=0.1, **options)
            for columns, options in given
        )
        assert all(each == pytest.approx(first, rel=1e-5) for each in others)


def test_a_scaling_that_is_none_is_refused() -> None:
    learner, batch = make_learner(), make_batch(64)
    pair = np.zeros(3, np.float32), np.ones(3, np.float32)
    for scaling, message in (
        (pair[:1], r"normalise\['x'\]: expected mean, scale and perhaps a limit"),
        ((*pair, np.ones(3)), r"normalise\['x'\]: limit has shape \(3,\): expected \(\)"),
        ((pair[0], np.ones(2)), r"normalise\['x'\]: scale has shape \(2,\): expected \(3,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            learner.update(batch, learning_rate=0.1, normalise={"x": scaling})


def test_arrays_are_learnt_beside_networks() -> None:
    batch, shift = make_batch(), np.float32([2.0])
    learner = make_learner(fit_shifted, arrays={"shift": shift})
    before = abs(learner.networks[0].outputs(batch["x"])[:, 0] + 2.0 - batch["target"]).mean()
    report = learner.update(batch, learning_rate=0.0, minibatch_size=512)
    assert report["shifted"] == pytest.approx(before, rel=1e-5)
    learner.update(batch, learning_rate=3e-3, epochs=30, minibatch_size=64)
    assert shift[0] == learner.value_of("shift")[0] != 2.0
    value = learner.networks[0].outputs(batch["x"])[:, 0] + shift
    assert abs(value - batch["target"]).mean() < 0.2 * before


def test_updates_follow_every_so_many_minibatches() -> None:
    updates = [nn.Update(fit, ("f",)), nn.Update(fit_shifted, ("shift",), every=2)]
    shift = np.float32([2.0])
    learner = make_learner(updates, arrays={"shift": shift})
    batch, values = make_batch(64), [2.0]
    for _ in range(4):
        learner.update(batch, learning_rate=[0.0, 0.1])
        values.append(float(shift[0]))
    changes = np.diff(values)
    assert changes[0] == changes[2] == 0.0
    np.testing.assert_allclose(changes[[1, 3]], -0.1, rtol=1e-3)


def test_targets_follow_by_tau_in_their_period() -> None:
    def follow(batch: Any, nets: Any, settings: Any) -> Any:
        loss, _ = nn.each(huber, nets.f(batch.x), nets.slow(batch.x), 1.0, results=2)
        return nn.mean(loss + batch.target * nets.f(batch.x)), {}

    learner = make_learner(follow, targets={"slow": "f"}, dtype=np.float64)
    size, batch = learner.layout.begins[1], make_batch(64)
    slow = learner.learnt.parameters[size : 2 * size]
    for number in range(1, 5):
        before = slow.copy()
        learner.update(batch, learning_rate=0.01, target_period=2, tau=0.25)
        fast = learner.learnt.parameters[:size]
        expected = before if number % 2 else before + 0.25 * (fast - before)
        np.testing.assert_allclose(slow, expected, rtol=1e-12, atol=1e-15)
        assert number % 2 or (slow != before).any()


def test_update_ends_above_a_limit() -> None:
    options: Any = {"learning_rate": 1e-3, "minibatch_size": 64}
    learner = make_learner()
    report = learner.update(make_batch(), stop_above=("distance", 1e-6), **options)
    assert report["num_gradients"] == 0
    assert not learner.learnt.first.any()
    report = learner.update(make_batch(), stop_above=("distance", 1e6), **options)
    assert report["num_gradients"] == 8


def test_state_holds_all_that_an_update_changes() -> None:
    batch, options = make_batch(), {"learning_rate": 1e-3, "minibatch_size": 64, "shuffle": True}
    learner, other = make_learner(seed=5), make_learner(seed=6)
    learner.update(batch, **options)
    for name, array in other.state().items():
        array[...] = learner.state()[name]
    other.write_networks()
    other.write_copies()
    assert learner.update(batch, **options) == other.update(batch, **options)
    np.testing.assert_array_equal(learner.networks[0].parameters, other.networks[0].parameters)


def test_slopes_pass_a_network_as_it_is_now() -> None:
    """Also one that no update learns: workers keep its transposed weights between updates."""

    def fit_through(batch: Any, nets: Any, settings: Any) -> Any:
        value = nets.fixed(nets.f(batch.x))
        loss = nn.each(huber, value, batch.target, settings.width, results=2)[0]
        return nn.mean(loss), {}

    batch, ends = make_batch(64), []
    for was_other in (False, True):
        fixed = nn.Network((1, 32, 32, 1), seed=2 + was_other)
        algorithm = [nn.Update(fit_through, ("f",))]
        learner = make_learner(algorithm, arrays={"fixed": fixed})
        if was_other:
            learner.update(batch, learning_rate=0.0)
            fixed.parameters[:] = nn.Network((1, 32, 32, 1), seed=2).parameters
            learner.read_networks()
            learner.counters[:] = 0
            learner.learnt.first[:] = learner.learnt.second[:] = 0.0
        learner.update(batch, learning_rate=1e-2)
        ends.append(learner.networks[0].parameters.copy())
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("make", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_learn_alike_and_apart(make: Any) -> None:
    batch, learner = make_batch(), make_learner()
    learner.update(batch, learning_rate=1e-3)
    other = make(learner)
    assert other.update(batch, learning_rate=1e-3) == learner.update(batch, learning_rate=1e-3)
    np.testing.assert_array_equal(other.networks[0].parameters, learner.networks[0].parameters)
    assert other.networks[0].parameters is not learner.networks[0].parameters
    before = learner.networks[0].parameters.copy()
    other.update(batch, learning_rate=1e-3)
    np.testing.assert_array_equal(learner.networks[0].parameters, before)


def test_a_learner_goes_on_after_discard() -> None:
    batch, learner, other = make_batch(), make_learner(), make_learner()
    for each in (learner, other):
        each.update(batch, learning_rate=1e-3)
    learner.discard()
    assert learner.update(batch, learning_rate=1e-3) == other.update(batch, learning_rate=1e-3)


def test_what_becomes_nan_is_named_and_steps_before_are_kept() -> None:
    batch, learner, other = make_batch(), make_learner(), make_learner()
    batch["target"][200] = np.nan
    with pytest.raises(FloatingPointError, match="gradient step 4: fit, distance of fit became"):
        learner.update(batch, learning_rate=1e-3, minibatch_size=64)
    assert learner.counters[0] == 3
    first = {name: array[:192] for name, array in batch.items()}
    other.update(first, learning_rate=1e-3, minibatch_size=64)
    np.testing.assert_array_equal(learner.networks[0].parameters, other.networks[0].parameters)


# ---------------------------------------------------------------- ones among zeros


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_ones_are_learnt_from_as_the_numbers_that_they_are(
    layer_norm: bool, activation: str
) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.random((300, 37)) < 0.1
    inputs[5] = False
    rest = {"target": inputs @ rng.standard_normal(37), "weight": np.ones(300)}

    def learn(*batches: Any) -> Any:
        network = nn.Network((37, 20, 1), activation, seed=3, layer_norm=layer_norm)
        options: Any = {"columns": COLUMNS | {"x": 37}, "settings": {"width": 0.5}}
        learner = nn.Learner({"f": network}, fit, num_threads=1, dtype=np.float64, **options)
        steps: Any = {"learning_rate": 1e-2, "epochs": 3, "minibatch_size": 150, "shuffle": True}
        for x in batches:
            report = learner.update({"x": x, **rest}, **steps)
        return learner.learnt.parameters, report

    numbers, ones = inputs.astype(np.float32), nn.Ones.of(inputs)
    parameters, report = learn(numbers, numbers, numbers)
    for batches in ([ones, ones, ones], [ones, numbers, ones]):
        by_ones, report_of_ones = learn(*batches)
        np.testing.assert_allclose(by_ones, parameters, rtol=1e-7, atol=1e-10)
        assert report_of_ones == pytest.approx(report, rel=1e-7)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32))
def test_ones_stand_for_their_array(count: int, size: int, seed: int) -> None:
    inputs = np.random.default_rng(seed).random((count, size)) < 0.3
    ones = nn.Ones.of(inputs)
    ones.check(size)
    np.testing.assert_array_equal(ones.expand(), inputs)


@pytest.mark.parametrize("inputs", [np.eye(3, dtype=np.float32), np.zeros(3, np.uint8)])
def test_ones_are_of_bytes_in_rows(inputs: Any) -> None:
    with pytest.raises(TypeError, match=r"expected \(S, size\) of uint8 or bool"):
        nn.Ones.of(inputs)


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
    ones = nn.Ones(np.array(starts), columns, 3)
    count = max(1, len(starts) - 1)
    with pytest.raises(ValueError, match=words):
        make_learner().update(
            {"x": ones, "target": np.zeros(count), "weight": np.ones(count)}, learning_rate=0.0
        )


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        (lambda b, n: n.f(b.x) if n.f(b.x) > 0 else 0, TypeError, "in <lambda>: branches on data"),
        (lambda b, n: nn.mean(n.f(b.x)), TypeError, r"test_learner.py, line \d+\) returned <"),
        (lambda b, n: (n.f(b.x), {}), TypeError, r"returned the loss Tensor.*expected nn.mean"),
        (lambda b, n: (nn.mean(b.weight), {}), ValueError, "no network that is learnt"),
        (lambda b, n: (nn.mean(n.f(b.x, b.x)), {}), ValueError, "gives 6 numbers to network 'f'"),
        (lambda b, n: (nn.mean(b.x * b.x[:2]), {}), ValueError, r"joins tensors of widths \[2, 3"),
        (lambda b, n: (nn.mean(b.x), {}), ValueError, "takes the mean of 3 numbers"),
        (lambda b, n: (nn.mean(n.f(b.x)), {"x": b.x}), ValueError, "statistic 'x' has 3 numbers"),
        (lambda b, n: (nn.mean(n.f(b.x) + "x"), {}), TypeError, "computes with 'x'"),
        (lambda b, n: (nn.mean(nn.each(huber, 1.0, 2.0)), {}), TypeError, "expected tensors"),
    ],
)
def test_bad_algorithms(body: Any, error: Any, match: str) -> None:
    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        return body(batch, nets)

    with pytest.raises(error, match=match) as info:
        make_learner(algorithm)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"algorithm": [nn.Update(fit, ("g",))]}, "learns='g': expected one of f"),
        ({"targets": {"slow": "g"}}, "targets={'slow': 'g'}"),
        ({"targets": {"f": "f"}}, "targets={'f': 'f'}: expected a new name"),
        ({"per_sample": ("kl",)}, "per_sample='kl'"),
        ({"algorithm": [nn.Update(fit, every=2), nn.Update(fit)]}, "every=2 of the first update"),
    ],
)
def test_bad_names(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_learner(**options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"minibatch_size": 0}, "minibatch_size=0"),
        ({"max_gradient_norm": 0.0}, "max_gradient_norm=0.0"),
        ({"epsilon": -1e-8}, "epsilon=-1e-08"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1"),
        ({"stop_above": ("kl", 1.0)}, r"stop_above=.*: expected one of fit, distance"),
        ({"write": ("nobody",)}, "write='nobody': expected one of"),
        ({"settings": {"widht": 1.0}}, "settings: 'widht' is none of width"),
        ({"normalise": {"x": (np.zeros(2), np.ones(3))}}, r"mean has shape \(2,\)"),
    ],
)
def test_bad_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_learner().update(make_batch(8), learning_rate=1e-3, **options)
    with pytest.raises(TypeError, match="epoch'"):
        make_learner().update(make_batch(8), learning_rate=1e-3, epoch=1)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": np.zeros((8, 2))}, r"batch\['x'\] has shape \(8, 2\): expected \(S, 3\)"),
        ({"x": np.zeros((0, 3))}, "expected one number"),
        ({"target": np.zeros(7)}, r"columns of \[7, 8\] samples"),
    ],
)
def test_bad_batches(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_learner().update(make_batch(8) | change, learning_rate=1e-3)
    batch = make_batch(8)
    del batch["weight"]
    with pytest.raises(KeyError, match="weight"):
        make_learner().update(batch, learning_rate=1e-3)


@pytest.mark.parametrize("wrong", [4, -1, np.nan])
def test_indices_that_are_no_outputs(wrong: float) -> None:
    def choose(batch: Any, nets: Any, settings: Any) -> Any:
        return nn.mean(nn.take(nets.q(batch.x), batch.action)), {}

    network, columns = nn.Network((3, 4)), {"x": 3, "action": 1}
    learner = nn.Learner({"q": network}, choose, columns=columns, num_threads=1)
    before = network.parameters.copy()
    with pytest.raises(ValueError, match=r"batch\['action'\]: expected 0 to 3, got"):
        learner.update({"x": np.zeros((2, 3)), "action": np.array([0.0, wrong])}, learning_rate=1.0)
    np.testing.assert_array_equal(network.parameters, before)
