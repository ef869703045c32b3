"""Settings of MuJoCo's tasks: each has some, and they are the agent's."""

from __future__ import annotations

import pytest

from asv_benches.peers.mujoco_zoo import ppo_config
from rlcpu.envs import find
from rlcpu.envs.tasks.mujoco import IDS
from rlcpu.train import PPO
from rlcpu.train.ppo import MUJOCO_HORIZONS
from rlcpu.train.sac import DEFAULTS


@pytest.mark.parametrize("name", IDS)
def test_every_task_has_settings(name: str) -> None:
    ours, zoo = PPO.default_config(find(name)), ppo_config(name)
    assert (ours.gamma, ours.lambda_) == (zoo.gamma, zoo.lambda_) == MUJOCO_HORIZONS[name]
    assert zoo.num_envs == 1
    assert ours.num_envs > 1
    assert DEFAULTS[name].gamma == (0.9999 if name == "Swimmer-v5" else 0.99)


def test_a_task_that_the_zoo_tuned_has_its_settings() -> None:
    config = ppo_config("Walker2d-v5")
    assert (config.learning_rate, config.minibatch_size) == (5.05041e-5, 32)
    assert (config.hidden, config.activation) == ((256, 256), "relu")
