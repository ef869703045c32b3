"""Spaces that a search draws from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.experiments.spaces import SPACES, make_space
from rlcpu.train.settings.algorithms import NAMES, algorithm

optuna = pytest.importorskip("optuna")
PPO = algorithm("ppo")


def space_of(changes: Any, fixed: Any = ()) -> Any:
    return make_space(PPO, PPO.Config.names(), fixed, changes)


def drawn(dimension: Any, seed: int) -> Any:
    """A value that Optuna draws, as the setting that it is."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    trial = study.ask({dimension.label: dimension.distribution()})
    return dimension.value(trial.params[dimension.label])


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_has_a_space_that_its_config_takes(name: str) -> None:
    kind = algorithm(name)
    space = make_space(kind, kind.Config.names(), (), None)
    base = {"qrdqn": "dqn", "tqc": "sac"}.get(name, name)  # whose space they have
    assert space.keys() == SPACES[base].keys()
    for each, dimension in space.items():
        for value in dimension.ends():
            assert getattr(kind.Config().replace({each: value}), each) == value


def test_users_change_the_space_of_an_algorithm() -> None:
    changes = {"gamma": None, "clip_range": [0.1, 0.2], "num_envs": (4, 16, "log")}
    space = space_of(changes, fixed=["lambda_"])
    assert space.keys() == (SPACES["ppo"].keys() | {"num_envs"}) - {"gamma", "lambda_"}
    assert {name: space[name].describe() for name in ("clip_range", "num_envs", "num_epochs")} == {
        "clip_range": [0.1, 0.2],
        "num_envs": [4, 16, "log"],
        "num_epochs": [2, 16, "log"],
    }


@pytest.mark.parametrize("replay", ["uniform", "prioritized", "return", "hindsight"])
def test_steps_of_returns_are_searched_where_there_may_be_several(replay: str) -> None:
    kind = algorithm("dqn")
    names, has_one = kind.Config.names(), replay in ("return", "hindsight")
    assert make_space(kind, names, (), None, replay).keys() == (
        SPACES["dqn"].keys() - ({"n_step"} if has_one else set())
    )
    # Whoever names it is told by the agent.
    assert "n_step" in make_space(kind, names, (), {"n_step": (1, 3)}, replay)


def test_an_algorithm_of_a_user_is_searched_as_the_one_it_is_made_of() -> None:
    own = type("Own", (PPO,), {})
    assert make_space(own, own.Config.names(), (), None) == space_of(None)
    other = type("Other", (), {})
    with pytest.raises(ValueError, match="nothing is left to search"):
        make_space(other, ["speed"], (), None)
    assert make_space(other, ["speed"], (), {"speed": (1, 2)})["speed"].ends() == (1, 2)


@given(
    low=st.floats(1e-6, 0.5),
    width=st.floats(1e-3, 0.4),
    scale=st.sampled_from(["linear", "log", "log1m"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_is_drawn_is_within_the_bounds(
    low: float, width: float, scale: str, seed: int
) -> None:
    dimension = space_of({"gamma": (low, low + width, scale)})["gamma"]
    assert low <= drawn(dimension, seed) <= low + width


def test_scales_are_even_where_they_say() -> None:
    for value, middle in (
        ((1e-4, 1e-2, "log"), 1e-3),
        ((0.9, 0.999, "log1m"), 0.99),
        ((0.0, 1.0), 0.5),
        ((10, 1000, "log"), 100),
    ):
        dimension = space_of({"gamma": value})["gamma"]
        share = sum(drawn(dimension, seed) < middle for seed in range(400)) / 400
        assert 0.42 < share < 0.58  # three deviations
    assert isinstance(drawn(dimension, 0), int)


def test_choices_are_the_values_themselves() -> None:
    choices = [None, 3, 0.5, "tanh", (8, 8)]
    dimension = space_of({"activation": choices})["activation"]
    assert {drawn(dimension, seed) for seed in range(60)} == set(choices)
    assert dimension.describe() == [None, 3, 0.5, "tanh", [8, 8]]
