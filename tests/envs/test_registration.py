"""Environments by name, for `rlcpu.make_vec` and through Gymnasium's registry."""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcpu
from rlcpu.envs import find
from rlcpu.envs.engine.scalar_env import ScalarEnv
from rlcpu.envs.tasks.classic_control import cartpole
from tests.envs.rollouts import CLASSIC

every_environment = pytest.mark.parametrize("name", CLASSIC)


def test_all_that_can_be_made_is_registered() -> None:
    """Before any of them is made, as in a new process."""
    classic = {"CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"}
    games = {"MinAtar/Breakout-v1", "FrozenLake-v1", "MiniGrid-Empty-8x8-v0", "LunarLander-v3"}
    code = "import sys, rlcpu; print(*rlcpu.registered()); print('mujoco' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, is_imported = done.stdout.splitlines()
    assert {*classic, "Acrobot-v1", *games} <= set(names.split())
    assert is_imported == "False"
    assert ("HalfCheetah-v5" in names.split()) == bool(importlib.util.find_spec("mujoco"))
    assert all(find(name).id == name for name in names.split())
    assert set(names.split()) <= set(rlcpu.registered())  # other tests have registered theirs


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])  # one of each kind of action
def test_gymnasium_makes_the_same_vector_environment(name: str) -> None:
    theirs = gymnasium.make_vec(f"rlcpu/{name}", num_envs=3, dtype="float64")
    ours = rlcpu.make_vec(name, 3, dtype="float64")
    assert type(theirs) is type(ours) is rlcpu.VectorEnv
    assert theirs.max_episode_steps == ours.max_episode_steps == find(name).max_episode_steps
    for env in (ours, theirs):
        env.action_space.seed(0)
    np.testing.assert_array_equal(theirs.reset(seed=0)[0], ours.reset(seed=0)[0])
    actions = ours.action_space.sample()
    for mine, other in zip(ours.step(actions), theirs.step(actions), strict=True):
        np.testing.assert_array_equal(mine, other)


@every_environment
def test_gymnasium_makes_a_vector_of_scalar_environments(name: str) -> None:
    env = gymnasium.make_vec(f"rlcpu/{name}", num_envs=2, vectorization_mode="sync")
    assert isinstance(env, SyncVectorEnv)
    assert isinstance(env.envs[0].unwrapped, ScalarEnv)
    env.reset(seed=0)
    observations, rewards, *_ = env.step(env.action_space.sample())
    assert env.observation_space.contains(observations)
    assert rewards.shape == (2,)


@every_environment
def test_spec_is_gymnasiums(name: str) -> None:
    ours, theirs = gymnasium.spec(f"rlcpu/{name}"), gymnasium.spec(find(name).original)
    assert ours.max_episode_steps == theirs.max_episode_steps
    assert ours.reward_threshold == theirs.reward_threshold


OPTIONS = {"gravity": 3.0, "dtype": np.float64, "autoreset_mode": AutoresetMode.SAME_STEP}


@pytest.mark.parametrize("make", [rlcpu.make_vec, gymnasium.make_vec])
def test_spec_of_an_environment_makes_it_again(make: Any) -> None:
    plain = {**OPTIONS, "dtype": "float64", "autoreset_mode": "SameStep"}
    env = make("rlcpu/CartPole-v1", num_envs=5, max_episode_steps=9, **plain)
    copied = pickle.loads(pickle.dumps(env.spec))
    assert copied == env.spec
    read = EnvSpec.from_json(env.spec.to_json())
    for spec in (env.spec, copied, read):
        again = gymnasium.make_vec(spec)
        assert again.dynamics.params == env.dynamics.params
        assert (again.num_envs, again.dtype, again.max_episode_steps) == (5, np.float64, 9)
        assert again.metadata == env.metadata


def test_spec_is_plain_data() -> None:
    env = rlcpu.make_vec("CartPole-v1", np.int64(5), **OPTIONS)
    assert env.spec.kwargs["autoreset_mode"] == "SameStep"
    assert gymnasium.make_vec(EnvSpec.from_json(env.spec.to_json())).dtype == np.float64


def test_environment_that_is_not_the_registered_one_has_no_spec() -> None:
    """Its spec would make another environment."""
    moon = cartpole.DYNAMICS.with_params(gravity=1.6)
    env = rlcpu.make_vec(moon, 2)
    assert env.spec is None
    assert env.dynamics is moon
    assert rlcpu.make_vec(cartpole.DYNAMICS, 2).spec is not None


def test_name_makes_gymnasium_import_the_library() -> None:
    code = (
        "import gymnasium; "
        "env = gymnasium.make('rlcpu:rlcpu/CartPole-v1'); "
        "vector = gymnasium.make_vec('rlcpu:rlcpu/CartPole-v1', num_envs=2); "
        "print(env.unwrapped, vector)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "VectorEnv(CartPole-v1, num_envs=2, dtype=float32, autoreset" in result.stdout


# ---------------------------------------------------------------- unknown names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPole", "environment='CartPole' is unknown: did you mean 'CartPole-v1'?"),
        ("cartpole-v1", "did you mean 'CartPole-v1'?"),
        ("rlcpu/Pendulum-v0", "environment='rlcpu/Pendulum-v0' .* did you mean 'Pendulum-v1'?"),
        ("Breakout-v5", "environment='Breakout-v5' .* did you mean 'MinAtar/Breakout-v1'"),
        ("Doom", "environment='Doom' is unknown: known are CartPole-v1, "),
        ("", "environment='' is unknown: known are CartPole-v1, "),
    ],
)
def test_unknown_environment(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rlcpu.make_vec(name)


@pytest.mark.parametrize("environment", [None, 3, cartpole, cartpole.Params()])
def test_environment_of_a_wrong_type(environment: Any) -> None:
    with pytest.raises(TypeError, match=r"environment=.*: expected an id or a Dynamics"):
        rlcpu.make_vec(environment)


# ---------------------------------------------------------------- registering


@pytest.fixture
def toy(request: pytest.FixtureRequest) -> rlcpu.Dynamics:
    """A copy of CartPole under a name of its own, forgotten afterwards."""
    yield dataclasses.replace(cartpole.DYNAMICS, id="Toy-v0", original=None)
    if "Toy-v0" in rlcpu.registered():
        rlcpu.envs.contract.registry.made.pop("Toy-v0")
        gymnasium.registry.pop("rlcpu/Toy-v0")


def test_register_and_replace(toy: rlcpu.Dynamics) -> None:
    rlcpu.register(toy)
    assert "Toy-v0" in rlcpu.registered()
    assert find("Toy-v0") is find("rlcpu/Toy-v0") is toy
    assert gymnasium.make("rlcpu/Toy-v0").unwrapped.observation_space == toy.observation_space
    edited = dataclasses.replace(toy, max_episode_steps=7, reward_threshold=None)
    rlcpu.register(edited)
    assert rlcpu.registered().count("Toy-v0") == 1
    assert find("Toy-v0") is edited
    assert gymnasium.spec("rlcpu/Toy-v0").max_episode_steps == 7
    assert gymnasium.make_vec("rlcpu/Toy-v0").max_episode_steps == 7


def test_environment_without_a_limit(toy: rlcpu.Dynamics) -> None:
    rlcpu.register(dataclasses.replace(toy, max_episode_steps=None))
    env = gymnasium.make_vec("rlcpu/Toy-v0", num_envs=3)
    assert env.max_episode_steps is None
    env.reset(seed=0)
    assert not env.step(np.zeros(3, np.int64))[3].any()


def test_built_in_environments_stay_ours(toy: rlcpu.Dynamics) -> None:
    with pytest.raises(ValueError, match="id='CartPole-v1' is an environment of rlcpu"):
        rlcpu.register(dataclasses.replace(toy, id="CartPole-v1"))
    rlcpu.register(cartpole.DYNAMICS)
    assert find("CartPole-v1") is cartpole.DYNAMICS


def test_only_dynamics_are_registered() -> None:
    with pytest.raises(TypeError, match=r"dynamics=.*: expected a Dynamics"):
        rlcpu.register(cartpole)  # type: ignore[arg-type]
