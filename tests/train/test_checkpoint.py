"""Saved agents: what is loaded goes on bit for bit, and nothing else is loaded."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
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
        ("Pendulum-v1", {"normalize_observations": True, "log_std_init": -1.0, "dtype": "float64"}),
        ("CartPole-v1", {"value": "shared", "activation": "relu"}),
        ("CartPole-v1", {"learning_rate_schedule": "linear", "target_kl": 0.1}),
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


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))])
def test_a_copy_goes_on_as_the_original(copied: Callable[[PPO], PPO]) -> None:
    agent = make_agent()
    other = copied(agent)
    other.learn(128)
    before = agent.policy.parameters.copy()
    assert (other.policy.parameters != before).any()
    other = copied(agent)
    assert_same_future(agent, other)


def test_parameters_of_the_environment_are_kept(tmp_path: Path) -> None:
    env = rlcpu.make_vec("CartPole-v1", num_envs=8, max_episode_steps=33, length=0.8)
    agent = make_agent(env)
    agent.save(tmp_path / "agent")
    loaded = PPO.load(tmp_path / "agent")
    assert loaded.env.dynamics.params == env.dynamics.params
    assert loaded.env.max_episode_steps == 33
    assert_same_future(agent, loaded)


def test_what_came_of_calls_of_learn_is_kept(tmp_path: Path) -> None:
    agent = make_agent()
    before = len(agent.calls)
    agent.learn(128)
    agent.learn(1000, callback=lambda progress: False)
    agent.save(tmp_path / "agent")
    loaded = PPO.load(tmp_path / "agent")
    assert loaded.calls == agent.calls
    assert [call.stopped for call in loaded.calls[before:]] == ["steps", "callback"]
    assert sum(call.steps for call in loaded.calls) == loaded.steps
    loaded.learn(128)
    assert loaded.calls[:-1] == agent.calls
    assert loaded.calls[-1].episode_return == loaded.history.episode_return
    assert describe(tmp_path / "agent")["versions"]["numpy"] == np.__version__


def test_environments_can_be_given(tmp_path: Path) -> None:
    agent = make_agent()
    agent.save(tmp_path / "agent")
    env = rlcpu.make_vec("CartPole-v1", num_envs=8)
    loaded = PPO.load(tmp_path / "agent", env=env)
    assert loaded.env is env
    assert_same_future(agent, loaded)
    with pytest.raises(ValueError, match="Acrobot-v1"):
        PPO.load(tmp_path / "agent", env=rlcpu.make_vec("Acrobot-v1", num_envs=8))
    with pytest.raises(ValueError, match="env has num_envs=800, expected 8, as it was saved"):
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


def change(path: Path, **changes: Any) -> None:
    """Write the file anew with other parts; a part that becomes None is left out."""
    with np.load(path) as file:
        parts = {**file, **changes}
    np.savez(path, **{name: part for name, part in parts.items() if part is not None})


def describe(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return json.loads(str(file["description"]))


NASTY = [
    None, True, -1, 0, 2**31, 2**70, 0.5, -0.0, 1e30, float("inf"), float("nan"), "", "x",
    "../x", "cuda", [], [[]], [1] * 9, {}, {"a": 1}, [6000, 6000], {"device": "cuda"},
]  # fmt: skip


def edit(value: Any, rng: np.random.Generator) -> Any:
    """The same JSON value with another one somewhere in it."""
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        key: Any = rng.choice(list(value)) if isinstance(value, dict) else rng.integers(len(value))
        copy = value.copy()
        if rng.random() < 0.2:
            del copy[key]
        else:
            copy[key] = edit(value[key], rng)
        return copy
    return NASTY[rng.integers(len(NASTY))]


def test_damage_of_any_kind_is_one_error_or_none(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    make_agent().save(path)
    whole, description = path.read_bytes(), describe(path)
    rng = np.random.default_rng(0)
    messages = []
    for number in range(600):
        kind = number % 3
        if kind == 0:
            damaged = bytearray(whole)
            for place in rng.integers(len(whole), size=rng.integers(1, 9)):
                damaged[place] ^= 1 << rng.integers(8)
            path.write_bytes(damaged)
        elif kind == 1:
            begin, end = np.sort(rng.integers(len(whole), size=2))
            path.write_bytes(whole[:begin] + whole[end:])
        else:
            path.write_bytes(whole)
            change(path, description=json.dumps(edit(description, rng)))
        try:
            PPO.load(path)
        except ValueError as error:
            messages.append(str(error))
    kinds = (f"{path}: no agent of rlcpu, or damaged: ", f"{path}: does not fit: ")
    assert all(text.startswith(kinds) for text in messages)
    assert 400 < len(messages) < 600


def test_files_of_others_take_no_more_memory_than_they_are_long(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    make_agent().save(path)
    whole, description = path.read_bytes(), describe(path)
    config = description["config"]

    def fails(match: str) -> None:
        tracemalloc.start()
        with pytest.raises(ValueError, match=match):
            PPO.load(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 * path.stat().st_size + 2**20
        path.write_bytes(whole)

    for changed, match in (
        ({"num_envs": 2**24}, "env_words has"),
        ({"hidden": [6000, 6000]}, "parameters has"),
        ({"hidden": [1] * 10**5}, "parameters has"),
        ({"hidden": 5}, "hidden=5"),
    ):
        described = {**description, "config": {**config, **changed}}
        change(path, description=json.dumps(described))
        fails(match)
    for field, value, match in (
        ("params", {"device": "cuda"}, "device"),
        ("returns", [1, "x"], "could not convert"),
        ("returns", None, "not iterable"),
        ("rng", {"bit_generator": "PCG64"}, "KeyError|state"),
        ("steps", -1, "steps=-1"),
        ("env", "Nobody-v0", "Nobody-v0"),
    ):
        change(path, description=json.dumps({**description, field: value}))
        fails(match)
    change(path, **{"state learner_key": np.array([{}], object)})
    fails("object")
    change(path, **{"state learner_key": None})
    fails("other parts")
    change(path, more=np.zeros(3))
    fails("other parts")
    # A megabyte of zeros that says it is a gigabyte.
    change(path, **{"state learner_key": None})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("state learner_key.npy", b"\0" * 2**24)
    fails("compressed")
    change(path, **{"state learner_key": None})
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (2**40,)}
    np.lib.format.write_array_header_1_0(header, fields)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("state learner_key.npy", header.getvalue())
    fails("0 bytes for float32")
    PPO.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes in folders")
def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="it is no file"):
            PPO.load(path)


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, agent = tmp_path / "agent.npz", make_agent()
    agent.save(path)
    whole = path.read_bytes()

    def fail(file: Any, array: Any, **options: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        agent.save(path)
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]
