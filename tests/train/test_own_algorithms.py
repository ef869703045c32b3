"""Algorithms of the documentation, run for a while: what a user's own would go through."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rlcpu.train import SAC

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"num_envs": 4, "batch_size": 32, "hidden": (16, 16), "learning_starts": 64}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # a dataclass looks its module up by name
        patch.setitem(__import__("sys").modules, name, module)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["munchausen_dqn", "conservative_sac"])
def test_programs_have_at_most_sixty_lines(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) <= 60


def test_munchausen_dqn_learns_to_balance() -> None:
    module = load("munchausen_dqn")
    agent = module.MunchausenDQN(
        "CartPole-v1", seed=0, num_envs=16, num_steps=8, num_updates=64, batch_size=128,
        hidden=(64, 64), learning_rate=1e-3, exploration_steps=5_000, reward_scale=0.1,
    )  # fmt: skip
    history = agent.learn(20_000)
    assert np.isfinite(history.losses).all()
    assert agent.evaluate(20, seed=1).mean() > 80.0  # a random policy has 22


def test_munchausen_settings_count_from_the_next_update() -> None:
    """A temperature so high that every policy is uniform makes values larger."""
    module = load("munchausen_dqn")
    values = []
    for temperature in (0.03, 3.0):
        agent = module.MunchausenDQN("CartPole-v1", seed=0, num_updates=64, **SMALL)
        agent.learn(80)
        agent.config = agent.config.replace({"entropy_temperature": temperature})
        values.append(agent.learn(400).losses.q_value)
    assert values[1] > values[0] + 0.1


def test_a_conservative_critic_values_other_actions_less() -> None:
    """From one buffer and seed, with and without the penalty."""
    module = load("conservative_sac")
    teacher = SAC("Pendulum-v1", seed=0, **SMALL)
    teacher.learn(2_000)
    gaps = []
    for penalty in (0.0, 5.0):
        agent = module.ConservativeSAC(
            "Pendulum-v1", buffer=teacher.buffer, penalty=penalty, num_updates=300, **SMALL
        )
        gaps.append(agent.improve().gap)
    assert gaps[1] < gaps[0] - 0.1
