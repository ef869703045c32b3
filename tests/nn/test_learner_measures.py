"""Gradients and losses of a learner without a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu import nn
from tests.nn import test_learner, test_tape
from tests.nn.test_tape import SAMPLES, in_words, make_batch
from tests.nn.twins import TOLERANCES, assert_close, gradients_of


def two_updates(**options: Any) -> nn.Learner:
    """A learner of two updates, the second of which follows every third minibatch only."""
    updates = [
        nn.Update(in_words(nn, test_tape.composed), ("r",)),
        nn.Update(in_words(nn, test_tape.arithmetic), ("q", "bias"), every=3),
    ]
    learner: nn.Learner = test_tape.make_learner(updates, **options)
    return learner


def copy_of(learner: nn.Learner) -> dict[str, Any]:
    state = {name: array.copy() for name, array in learner.state().items()}
    networks = zip(learner.names, learner.networks, strict=True)
    return state | {f"network {name}": network.parameters.copy() for name, network in networks}


@pytest.mark.parametrize("dtype", test_tape.DTYPES)
def test_gradients_equal_torch(dtype: Any) -> None:
    batch, learner = make_batch(), two_updates(dtype=dtype)
    gradients = learner.gradients(batch)
    assert {name: [*each] for name, each in gradients.items()} == {
        "composed": ["r"],
        "arithmetic": ["q", "bias"],
    }
    for function in (test_tape.composed, test_tape.arithmetic):
        twins, loss, _ = test_tape.in_torch(function, learner, batch)
        for name, actual in gradients[function.__name__].items():
            expected = twins.gradients(loss, (name,))[name]
            assert actual.dtype == dtype
            assert actual.shape == (learner.arrays | _networks(learner))[name].shape
            assert_close([actual], expected, TOLERANCES[dtype])


def _networks(learner: nn.Learner) -> dict[str, Any]:
    networks = zip(learner.names, learner.networks, strict=True)
    return {name: network.parameters for name, network in networks}


def test_gradients_are_those_of_the_next_step() -> None:
    """A tenth of them is the first moment; workers make no difference."""
    batch = make_batch()
    learner = test_tape.make_learner(in_words(nn, test_tape.composed), ("q", "r"), np.float32)
    gradients = learner.gradients(batch)["composed"]
    threads = test_tape.make_learner(
        in_words(nn, test_tape.composed), ("q", "r"), np.float32, num_threads=4
    )
    np.testing.assert_array_equal(threads.gradients(batch)["composed"]["q"], gradients["q"])
    learner.update(batch, learning_rate=0.1, minibatch_size=SAMPLES)
    for name in ("q", "r"):
        assert_close([gradients[name]], gradients_of(learner, name), 1e-6)


def test_gradients_equal_differences_of_losses() -> None:
    batch = make_batch()
    learner = test_tape.make_learner(in_words(nn, test_tape.lines), ("r", "line"))
    gradient, network = learner.gradients(batch)["lines"]["r"], learner.networks[1]
    for k in (0, 17, 60, network.parameters.size - 1):
        losses, values = [], []
        start = network.parameters[k]
        for step in (1e-3, -1e-3):
            network.parameters[k] = start + step  # as float32 has it
            values.append(float(network.parameters[k]))
            learner.read_networks(["r"])
            losses.append(learner.losses(batch)[0]["lines"])
        network.parameters[k] = start
        slope = (losses[0] - losses[1]) / (values[0] - values[1])
        assert slope == pytest.approx(gradient[k], rel=1e-4, abs=1e-8)


def test_losses_are_the_means_of_an_update_that_does_not_move() -> None:
    batch = test_learner.make_batch()
    learner = test_learner.make_learner(per_sample=("distance",))
    learner.update(batch, learning_rate=0.01, epochs=3)
    means, per_sample = learner.losses(batch)
    report = learner.update(batch, learning_rate=0.0, minibatch_size=512)
    assert means == {name: report[name] for name in ("fit", "distance")}
    np.testing.assert_array_equal(per_sample["distance"], learner.per_sample["distance"])
    narrow, _ = learner.losses(batch, settings={"width": 0.1})
    expected = test_learner.mean_loss(learner.networks[0], batch, 0.1)
    assert narrow["fit"] == pytest.approx(expected, rel=1e-5)


def test_noise_is_that_of_the_next_step() -> None:
    learner = test_tape.make_noise("ab", "cd")
    batch = {k: np.zeros((64, n)) for k, n in test_tape.COLUMNS.items()}
    for _ in range(2):
        _, drawn = learner.losses(batch)
        learner.update(batch, learning_rate=0.0, minibatch_size=64)
        assert drawn.keys() == learner.per_sample.keys()
        for name, values in learner.per_sample.items():
            np.testing.assert_array_equal(drawn[name], values)
    assert np.std(drawn["a0"]) > 0.5


def test_nothing_changes() -> None:
    """Other settings, sizes of batches, and errors between updates change no bit of these."""

    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        loss, statistics = test_learner.fit(batch, nets, settings)
        noise = nets.f(batch.x) * nn.normal(batch.weight)
        return (loss + nn.mean(noise) if settings.is_noisy else loss), statistics

    settings = {"width": 0.5, "is_noisy": True}
    options: Any = {"settings": settings, "per_sample": ("distance",)}
    plain, measured = (test_learner.make_learner(algorithm, **options) for _ in range(2))
    batch, other = test_learner.make_batch(), test_learner.make_batch(77, seed=1)
    steps: Any = {"learning_rate": 0.01, "minibatch_size": 100, "shuffle": True, "epochs": 2}
    last_call = None
    for _ in range(3):
        expected, actual = plain.update(batch, **steps), measured.update(batch, **steps)
        assert actual == expected
        last_call, distance = measured.last_call, measured.per_sample["distance"]
        before = copy_of(measured)
        quiet, _ = measured.losses(other, settings={"is_noisy": False, "width": 0.1})
        wide, _ = measured.losses(other, settings={"width": 2.0})
        assert quiet != wide
        measured.gradients(other)
        measured.gradients(other | {"x": nn.Ones.of(other["x"] > 0)})
        with pytest.raises(ValueError, match="sequence_length=50: the batch has 77 samples"):
            measured.gradients(other, sequence_length=50)
        assert measured.settings == settings
        assert measured.last_call is last_call
        assert measured.per_sample["distance"] is distance
        for name, array in copy_of(measured).items():
            np.testing.assert_array_equal(array, before[name])
        np.testing.assert_array_equal(copy_of(plain)["parameters"], before["parameters"])


def test_sequences_have_the_gradients_of_an_update() -> None:
    def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
        y = nets.f(batch.x)
        return nn.mean(y * y), {}

    network = nn.Network(2, nn.Dense(4) >> nn.Gru(5) >> nn.Dense(1), seed=1)
    learner = nn.Learner({"f": network}, algorithm, columns={"x": 2}, dtype=np.float64)
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(60, 2)), "starts": np.zeros(60)}
    options: Any = {
        "states": {"f": rng.normal(size=(6, network.state_size))},
        "sequence_length": 10,
    }
    gradient = learner.gradients(batch, **options)["algorithm"]["f"]
    assert gradient.shape == network.parameters.shape
    learner.update(batch, learning_rate=0.1, minibatch_size=60, **options)
    moments = learner.networks[0].plan.unpack(learner.learnt.first, np.float64)
    np.testing.assert_allclose(gradient, 10.0 * moments, rtol=1e-9, atol=1e-12)


def test_losses_that_are_not_finite_are_returned() -> None:
    """As they are, with all gradients, to look at."""
    batch, learner = test_learner.make_batch(), test_learner.make_learner(per_sample=("distance",))
    batch["target"][7] = np.nan
    means, per_sample = learner.losses(batch)
    assert np.isnan(means["fit"])
    assert np.flatnonzero(np.isnan(per_sample["distance"])).tolist() == [7]
    assert np.isnan(learner.gradients(batch)["fit"]["f"]).any()


def test_ones_after_a_call_that_was_refused() -> None:
    """It was refused after it had read columns of ones, which need other instructions."""
    rng = np.random.default_rng(0)
    rest = {"target": rng.normal(size=60), "weight": np.ones(60)}
    inputs = rng.random((60, 3)) < 0.3
    learner = test_learner.make_learner()
    learner.update({"x": inputs, **rest}, learning_rate=0.0)
    ones = {"x": nn.Ones.of(inputs), **rest}
    with pytest.raises(ValueError, match="stop_above="):
        learner.update(ones, learning_rate=0.0, stop_above=("none", 1.0))
    expected = learner.losses({"x": inputs, **rest})[0]["fit"]
    with pytest.raises(ValueError, match="stop_above="):
        learner.update(ones, learning_rate=0.0, stop_above=("none", 1.0))
    assert learner.losses(ones)[0]["fit"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"settings": {"height": 1.0}}, ValueError, "'height' is none of width"),
        ({"batch": {"x": np.ones((4, 3))}}, KeyError, "no column 'target'"),
        ({"sequence_length": 0}, ValueError, "sequence_length=0"),
        ({"abreast": 7}, ValueError, "abreast=7"),
        ({"states": {"g": np.ones(1)}}, ValueError, "states has 'g'"),
        ({"normalise": {"z": (0.0, 1.0)}}, ValueError, "normalise has 'z'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: Any, match: str) -> None:
    learner, options = test_learner.make_learner(), {"batch": test_learner.make_batch(), **options}
    for method in (learner.gradients, learner.losses):
        with pytest.raises(error, match=match):
            method(**options)
