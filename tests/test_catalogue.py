"""The catalogue: every environment is described, with the settings that agents really take."""

from __future__ import annotations

import re
import types
from typing import NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu import catalogue
from rlcpu.cli import main
from rlcpu.envs.contract.names import find
from rlcpu.envs.registration import registered
from rlcpu.envs.transforms import add_previous_action
from rlcpu.train.settings.tuned import default_steps
from tests.envs.gymnasium_cases import Reach


class Params(NamedTuple):
    pull: float = 0.5  # m/s^2, towards
    # the middle
    strict: bool = False  # leaving ends the episode


def step(state: tuple[float], action: int, params: Params) -> tuple[tuple[float], float, bool]:
    """One move.

    Args:
        state: where it is (m).
        action: 0 to the left,
            1 to the right.
        params: see `Params`.
    """
    place = state[0] + (0.1 if action == 1 else -0.1) - 0.1 * params.pull * state[0]
    return (place,), 1.0, abs(place) > 1.0 if params.strict else False


def reset(rng: rlcpu.envs.Rng, params: Params) -> tuple[float]:
    return (rng.uniform(0),)


def make() -> rlcpu.Dynamics:
    return rlcpu.Dynamics(
        id="Slide-v0",
        step=step,
        reset=reset,
        params=Params(),
        observation_space=Box(-1, 1, (1,), np.float32),
        action_space=Discrete(2),
        max_episode_steps=50,
    )


def test_every_environment_and_parameter_is_described() -> None:
    found = catalogue.entries()
    assert sorted(each.id for each in found) == sorted(registered())
    ours = [each for each in found if each.family != "Registered by you"]  # by other tests, say
    assert len(ours) > 30
    for each in ours:
        assert each.title.endswith("."), each.id
        assert each.port_of, each.id
        assert [parameter.name for parameter in each.parameters if not parameter.text] == []
        assert sum(way.is_default for way in each.learning) == 1


def test_environment_of_a_users_own_is_described_by_its_source() -> None:
    entry = catalogue.entry(make())
    pull, strict = entry.parameters
    assert pull == ("pull", 0.5, "m/s^2, towards the middle")
    assert strict == ("strict", False, "leaving ends the episode")
    assert entry.observation == "1 float in [-1, 1]"
    assert (entry.observed, entry.acts) == ("where it is (m).", "0 to the left, 1 to the right.")
    assert [way.algorithm for way in entry.learning] == ["ppo", "pqn", "dqn", "qrdqn"]


@pytest.mark.parametrize(
    ("algorithm", "env_id"),
    [
        ("ppo", "CartPole-v1"),
        ("dqn", "Acrobot-v1"),
        ("sac", "Pendulum-v1"),
        ("pqn", "Taxi-v4"),
        ("pqn", "MinAtar/Breakout-v1"),
        ("ppo", "POPGym/RepeatFirstEasy-v0"),
        ("dqn", "MiniGrid-Empty-8x8-v0"),  # general settings, with a network for planes
    ],
)
def test_settings_are_those_that_agents_take(algorithm: str, env_id: str) -> None:
    agent = catalogue.AGENTS[algorithm](env_id, seed=0)
    (way,) = (w for w in catalogue.entry(env_id).learning if w.algorithm == algorithm)
    assert way.config == agent.config
    assert way.steps == default_steps(agent)
    assert type(way.config)().replace(way.changes()) == way.config


@pytest.mark.parametrize(
    ("env_id", "algorithm", "network"),
    [
        ("MinAtar/Seaquest-v1", "pqn", "conv"),
        ("POPGym/BattleshipHard-v0", "ppo", "gru"),
        ("POPGym/BattleshipHardPreviousAction-v0", "ppo", "gru"),
        ("MiniGrid-FourRooms-v0", "ppo", "mlp"),
        ("Craftax-Classic-Symbolic-v1", "ppo", "mlp"),
        ("TMaze-v0", "ppo", "mingru"),
    ],
)
def test_families_have_settings(env_id: str, algorithm: str, network: str) -> None:
    name = env_id.replace("PreviousAction", "")
    dynamics = find(name) if name == env_id else add_previous_action(name)
    assert dynamics.id == env_id
    (way,) = (way for way in catalogue.entry(dynamics).learning if way.is_default)
    assert (way.algorithm, way.config.network, way.is_own) == (algorithm, network, True)
    page = catalogue.page(catalogue.entry(dynamics))
    assert f"{algorithm.upper()} (rlcpu train takes it): {way.steps:,} steps, own settings" in page
    assert f"network = '{network}'" in page or network == "mlp"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_list_names_all_environments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert [each for each in registered() if f"  {each} " not in printed] == []
    assert max(map(len, printed.splitlines())) <= columns
    assert ("10 planes of 10x10" in printed) == (columns > 60)


def test_descriptions_are_no_imperatives_and_name_once() -> None:
    """An observation is described by a noun, and a title does not repeat the name."""
    told = catalogue.entries()
    begins = re.compile(r"Return |Write |Take a step:")
    assert [e.id for e in told if begins.match(e.observed) or begins.match(e.acts)] == []
    assert [e.id for e in told if e.title.startswith(e.id.partition("/")[0] + "/")] == []
    (hidden,) = (e for e in told if e.id == "CartPoleNoVel-v1")
    assert "same bits" not in hidden.port_of
    assert hidden.port_of.startswith("rl-baselines3-zoo's")


def test_list_describes_one_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "CartPole-v1"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) < 80
    for part in ("Gymnasium's CartPole-v1", "masspole", "solved from  475", "num_envs = 64"):
        assert part in printed


def test_list_describes_an_environment_of_gymnasium(capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium.register("Reach-v0", Reach, max_episode_steps=20)
    try:
        assert main(["list", "Reach-v0"]) == 0
    finally:
        del gymnasium.registry["Reach-v0"]
    printed = capsys.readouterr().out
    for part in ("Reach-v0", "general settings", "normalize_observations = True"):
        assert part in printed


def test_a_class_without_source_has_no_comments() -> None:
    assert catalogue.comments_of(types.SimpleNamespace) == {}
