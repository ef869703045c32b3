"""`rlcpu show`: what the file of an agent says, without making the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu import cli
from rlcpu.train import DQN, PPO
from rlcpu.train.keeping import checkpoint

SETTINGS: dict[str, Any] = {
    "num_steps": 16,
    "hidden": (16,),
    "minibatch_size": 64,
    "num_epochs": 2,
    "learning_rate": 5e-4,
}


def make_agent(env: Any = "CartPole-v1") -> PPO:
    return PPO(env, seed=3, num_threads=1, **SETTINGS)


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    capsys.readouterr()
    assert cli.main(["show", *argv]) == 0
    return capsys.readouterr().out.splitlines()


def fails(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["show", str(path)])
    assert caught.value.code == cli.commands.EXIT_BAD_ARGUMENTS
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_what_a_file_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    env = rlcpu.make_vec("CartPole-v1", num_envs=8, gravity=5.0, max_episode_steps=99)
    agent = PPO(env, seed=3, num_threads=1, **SETTINGS)
    agent.learn(256)
    agent.save(path)
    agent = PPO.load(path, num_threads=1)
    agent.learn(1, callback=lambda progress: False)
    agent.save(path)
    lines = shown(capsys, str(path))
    first, second = agent.calls
    assert (first.steps, second.steps) == (256, 128)
    mean = np.mean(agent.returns)
    assert lines[:7] == [
        "agent       PPO on CartPole-v1, 384 steps, seed 3",
        "environment gravity=5.0",
        "            episodes of 99 steps at most",
        "settings    num_envs=8 num_steps=16 num_epochs=2 minibatch_size=64",
        "            learning_rate=0.0005 hidden=16,",
        f"            the other {len(PPO.Config.names()) - 6} are those that agents take for "
        "CartPole-v1",
        f"training    mean return {mean:.2f} over the last {len(agent.returns)} episodes",
    ]
    text = " ".join(" ".join(lines[7:]).split())
    assert text.startswith(f"versions rlcpu {rlcpu.__version__}, numba ")
    assert f"numpy {np.__version__}" in text
    assert f"history 256 steps, {first.episodes} episodes in " in text
    assert text.endswith(("a callback ended it", "its steps were used up"))
    assert max(map(len, lines)) <= 80


def test_defaults_are_said_as_such(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "new.npz"
    DQN("CartPole-v1", seed=0, num_threads=1, dtype="float64").save(path)
    assert shown(capsys, str(path))[:4] == [
        "agent       DQN on CartPole-v1, 0 steps, seed 0",
        "environment dtype=float64",
        "            episodes of 500 steps at most",
        "settings    all are those that agents take for CartPole-v1",
    ]


def test_of_an_environment_that_is_not_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its parameters are all said, and settings beside the general ones."""
    path = tmp_path / "agent.npz"
    make_agent().save(path)
    change(path, env="Mine-v0")
    lines = shown(capsys, str(path))
    assert lines[0] == "agent       PPO on Mine-v0, 0 steps, seed 3"
    assert lines[1].startswith("environment gravity=9.8 ")
    assert "learning_rate=0.0005" in "".join(lines)
    assert "the defaults of PPO: Mine-v0 is not registered here" in " ".join("".join(lines).split())


def test_files_of_older_versions_have_less_to_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "agent.npz"
    make_agent().save(path)
    change(path, versions=None, calls=None)
    assert shown(capsys, str(path))[-1] == "versions    the file has none"
    assert PPO.load(path, num_threads=1).calls == []


def test_nothing_is_unpickled_and_no_array_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.npz"
    make_agent().save(path)
    read: list[str] = []
    read_part = checkpoint._read_part

    def note(archive: Any, part: Any) -> Any:
        read.append(part.filename)
        return read_part(archive, part)

    monkeypatch.setattr(checkpoint, "_read_part", note)
    shown(capsys, str(path))
    assert read == ["format.npy", "description.npy"]
    np.savez(tmp_path / "pickled.npz", format=np.array([{}], object))
    assert "no agent of rlcpu, or damaged" in fails(capsys, tmp_path / "pickled.npz")


def test_other_files_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    agent = make_agent()
    agent.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "no agent of rlcpu, or damaged" in fails(capsys, path)
    agent.export(tmp_path / "policy.npz")
    assert "no agent of rlcpu, or damaged" in fails(capsys, tmp_path / "policy.npz")
    assert "there is no file" in fails(capsys, tmp_path / "none.npz")
    assert "it is no file" in fails(capsys, tmp_path)
    for damage in ({"env": None}, {"steps": "x"}, {"config": 5}, {"calls": [{"steps": 1}]}):
        path.write_bytes(whole)
        change(path, **damage)
        assert "no agent of rlcpu, or damaged" in fails(capsys, path)


def change(path: Path, **changes: Any) -> None:
    """Write the file anew with another description; a part that becomes None is left out."""
    with np.load(path) as file:
        parts = dict(file)
    description = {**json.loads(str(parts["description"])), **changes}
    known = {name: value for name, value in description.items() if value is not None}
    np.savez(path, **{**parts, "description": np.array(json.dumps(known))})
