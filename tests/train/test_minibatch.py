"""What an agent shows of its updates: the minibatch of the next one, for tests of a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.train import DQN, SAC

SMALL = {"num_envs": 4, "num_steps": 16, "num_updates": 4, "learning_starts": 64, "hidden": (16,)}
CASES = {
    "sums of steps, scaled": (DQN, "CartPole-v1", {"n_step": 3, "reward_scale": 0.1}),
    "normalised": (
        SAC,
        "Pendulum-v1",
        {"normalize_observations": True, "normalize_rewards": True, "replay": "prioritized"},
    ),
    "planes": (DQN, "MinAtar/Breakout-v1", {"network": "conv"}),
    "memory": (DQN, "CartPoleNoVel-v1", {"network": "gru", "sequence_length": 8}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_the_next_update_learns_from(name: str, tmp_path: Path) -> None:
    kind, env, settings = CASES[name]
    agent = kind(env, seed=0, batch_size=32, **SMALL | settings)
    agent.learn(512)
    agent.save(tmp_path / "agent.npz")
    means, numbers = agent.learner.losses(**agent.minibatch())
    gradients = agent.learner.gradients(**agent.minibatch())
    assert all(np.isfinite(x).all() for each in gradients.values() for x in each.values())
    assert np.isfinite(numbers["error"]).all()
    learnt: Any = kind.load(tmp_path / "agent.npz").learn_offline(1)
    assert learnt.q_value == pytest.approx(means["q_value"], rel=1e-5)
    first = next(iter(gradients))  # the name of the first update's function
    assert (learnt.critic if kind is SAC else learnt.loss) == pytest.approx(means[first], rel=1e-5)


def test_its_size() -> None:
    agent = DQN("CartPole-v1", seed=0, **SMALL)
    with pytest.raises(ValueError, match=r"buffer=.*: expected one that 128 can be drawn from"):
        agent.minibatch()
    agent.learn(256)
    batch = agent.minibatch(100)["batch"]
    assert {len(column) for column in batch.values()} == {100}
    assert batch.keys() == agent.learner.columns.keys()
    with pytest.raises(ValueError, match="size=0"):
        agent.minibatch(0)
