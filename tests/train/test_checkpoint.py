"""Saved agents: what is loaded goes on bit for bit, and nothing else is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.train import PPO

SMALL = {"num_envs": 8, "num_steps": 16, "minibatch_size": 64, "num_epochs": 2, "hidden": (16, 5)}


def make_agent(env: Any = "CartPole-v1", **options: Any) -> PPO:
    agent = PPO(env, seed=3, **{**SMALL, **options})
    agent.learn(500)
    return agent


def assert_same_future(first: PPO, second: PPO) -> None:
    histories = [agent.learn(1000) for agent in (first, second)]
    np.testing.assert_array_equal(histories[0].curve, histories[1].curve)
    assert histories[0].losses == histories[1].losses
    for name in ("parameters", "value_parameters", "log_std", "observation_scale"):
        np.testing.assert_array_equal(getattr(first.policy, name), getattr(second.policy, name))
    np.testing.assert_array_equal(first.env.state, second.env.state)
    observations = np.random.default_rng(0).normal(size=(20, first.policy.sizes[0]))
    drawn = [agent.predict(observations, deterministic=False) for agent in (first, second)]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {"normalize_observations": True, "log_std_init": -1.0}),
        ("CartPole-v1", {"value": "shared", "activation": "relu", "dtype": "float64"}),
        ("MountainCar-v0", {"learning_rate_schedule": "linear", "target_kl": 0.1}),
    ],
)
def test_loaded_agent_goes_on_as_the_saved_one(
    tmp_path: Path, env_id: str, options: dict[str, Any]
) -> None:
    agent = make_agent(env_id, **options)
    agent.save(tmp_path / "agent.npz")
    loaded = PPO.load(tmp_path / "agent.npz")
    assert loaded.config == agent.config
    assert (loaded.steps, loaded.seed) == (agent.steps, agent.seed)
    assert_same_future(agent, loaded)


def test_parameters_of_the_environment_are_kept(tmp_path: Path) -> None:
    env = rlcpu.make_vec("CartPole-v1", num_envs=8, max_episode_steps=33, length=0.8)
    agent = make_agent(env)
    agent.save(tmp_path / "agent")
    loaded = PPO.load(tmp_path / "agent")
    assert loaded.env.dynamics.params == env.dynamics.params
    assert loaded.env.max_episode_steps == 33
    assert_same_future(agent, loaded)


def test_environments_can_be_given(tmp_path: Path) -> None:
    agent = make_agent()
    agent.save(tmp_path / "agent")
    env = rlcpu.make_vec("CartPole-v1", num_envs=8)
    loaded = PPO.load(tmp_path / "agent", env=env)
    assert loaded.env is env
    assert_same_future(agent, loaded)
    with pytest.raises(ValueError, match="Acrobot-v1"):
        PPO.load(tmp_path / "agent", env=rlcpu.make_vec("Acrobot-v1", num_envs=8))
    with pytest.raises(ValueError, match=r"num_envs|env_real"):
        PPO.load(tmp_path / "agent", env=rlcpu.make_vec("CartPole-v1", num_envs=800))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    make_agent().save(path)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"agent\.npz"):
            PPO.load(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path.write_bytes(flipped)
    with pytest.raises(ValueError, match=r"agent\.npz"):
        PPO.load(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, a=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz"):
        PPO.load(path)
    np.savez(path, format=np.array([{"pickled": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"other\.npz"):
        PPO.load(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"one\.npy"):
        PPO.load(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        PPO.load(tmp_path / "missing.npz")


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, agent = tmp_path / "agent.npz", make_agent()
    agent.save(path)
    whole = path.read_bytes()

    def fail(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        agent.save(path)
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]
