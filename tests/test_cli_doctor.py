"""`rlcpu doctor`: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu import cli
from rlcpu.train import PPO

SMALL: dict[str, Any] = {
    "num_envs": 16,
    "num_steps": 64,
    "minibatch_size": 256,
    "num_epochs": 2,
    "hidden": (8,),
}


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = cli.main(["doctor", *argv])
    return code, capsys.readouterr().out.splitlines()


def test_what_hampers_is_printed_with_what_to_set(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "agent.npz"
    agent = PPO("CartPole-v1", seed=0, num_threads=1, learning_rate=1e-3, **SMALL)
    agent.learn(1024)
    agent.policy.parameters[:] = 0.0
    agent.policy.parameters[-2:] = 0.0, 20.0  # biases of the logits: always the same action
    agent.save(path)
    code, lines = run(capsys, str(path))
    assert code == 1
    assert lines[0].startswith("PPO on CartPole-v1, 1,024 steps: ")
    assert lines[0].endswith(" hindrances")
    text = " ".join(" ".join(lines).split())
    message = "entropy the entropy is 0.0% of its maximum, and 100% of the steps take the same"
    assert message in text
    assert "try --set entropy_coefficient=0.01 --set normalize_advantages=false" in text
    assert "units 100% of the units of hidden layer 1 are the same, whatever is observed" in text
    assert "try --set learning_rate=0.0001" in text
    assert max(map(len, lines)) <= 80


def test_a_healthy_agent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    agent = PPO("CartPole-v1", seed=0, num_threads=1)
    agent.learn(40_960)
    agent.save(path)
    before = path.read_bytes()
    assert run(capsys, str(path), "--seed", "3", "--threads", "1") == (
        0,
        ["PPO on CartPole-v1, 40,960 steps: nothing found"],
    )
    assert path.read_bytes() == before


def test_what_cannot_be_diagnosed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    new, other = tmp_path / "new.npz", tmp_path / "other.npz"
    PPO("CartPole-v1", seed=0, num_threads=1, **SMALL).save(new)
    np.savez(other, numbers=np.zeros(3))
    for argv, message in (
        ((str(new),), "new.npz: steps=0: expected an agent that has learnt 1,000 at least"),
        ((str(new), "Pendulum-v1"), "new.npz: an agent of CartPole-v1, not Pendulum-v1"),
        ((str(other),), "other.npz"),
        (("nowhere.npz",), "there is no file 'nowhere.npz'"),
    ):
        with pytest.raises(SystemExit) as caught:
            cli.main(["doctor", *argv])
        assert caught.value.code == cli.commands.EXIT_BAD_ARGUMENTS
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert err.count("\n") == 1
