"""Networks of agents by name: for boards, for images, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary

from rlcpu import nn
from rlcpu.train import DQN, PPO, PQN
from rlcpu.train.settings.presets import layers_of

GAME = "MinAtar/Breakout-v1"


@pytest.mark.parametrize(
    ("agent_class", "settings", "steps"),
    [
        (PQN, {"num_envs": 64, "exploration_steps": 20_000, "layer_norm": True}, 60_000),
        (PPO, {"num_envs": 64, "num_steps": 32, "minibatch_size": 256}, 40_000),
        (DQN, {"exploration_steps": 1_000, "dueling": True}, 3_000),
    ],
)
def test_a_convolution_learns_a_game(
    agent_class: Any, settings: Any, steps: int, tmp_path: Path
) -> None:
    settings = {"learning_rate": 1e-3, **settings} if agent_class is not DQN else settings
    agent = agent_class(GAME, seed=0, network="conv", hidden=(64,), **settings)
    network = agent.policy.networks()["policy"]
    assert network.arrays()["convolution0.weights"].shape == (36, 16)
    seen = np.random.default_rng(0).integers(0, 2, (5, 4, 10, 10)).astype(np.float32)
    before = agent.policy.outputs(seen)
    at_first = agent.evaluate(30).mean()
    agent.learn(steps)
    assert (agent.policy.outputs(seen) != before).all()
    if agent_class is not DQN:
        assert agent.evaluate(30).mean() > at_first + 1.0
    agent.save(tmp_path / "agent")
    loaded = agent_class.load(tmp_path / "agent")
    np.testing.assert_array_equal(loaded.policy.outputs(seen), agent.policy.outputs(seen))
    np.testing.assert_array_equal(loaded.evaluate(5), agent.evaluate(5))


class Sizes:
    """Settings that presets read."""

    hidden = (32,)
    activation = "relu"
    layer_norm = True

    def __init__(self, network: str) -> None:
        self.network = network


@pytest.mark.parametrize(
    ("name", "space", "shapes"),
    [
        ("conv", Box(0, 255, (84, 84, 3), np.uint8), [(192, 32), (512, 64), (576, 64)]),
        ("conv", Box(0, 255, (3, 84, 84), np.uint8), [(192, 32), (512, 64), (576, 64)]),
        ("conv", MultiBinary((10, 10, 10)), [(90, 16)]),
        ("conv", Box(0, 1, (6, 10, 10), np.uint8), [(54, 16)]),
        ("impala", Box(0, 255, (16, 16, 3), np.uint8), [(27, 16), *[(144, 16)] * 4, (144, 32)]),
    ],
)
def test_convolutions_follow_from_the_space(name: str, space: Any, shapes: Any) -> None:
    layers = layers_of(Sizes(name))(space)
    network = nn.Network(int(np.prod(space.shape)), layers >> nn.Dense(2))
    arrays = network.arrays()
    made = [arrays[key].shape for key in arrays if key.startswith("convolution")][::2]
    assert made[: len(shapes)] == shapes
    assert len(made) == (15 if name == "impala" else len(shapes))
    assert arrays["layer_norm0.gains"].shape == ((32,) if name == "impala" else shapes[0][1:])


class Spot(gymnasium.Env[Any, Any]):
    """Asks in which half of an image a bright pixel is."""

    observation_space = Box(0, 255, (10, 12, 3), np.uint8)
    action_space = Discrete(2)

    def _see(self) -> Any:
        image = self.np_random.integers(0, 60, (10, 12, 3)).astype(np.uint8)
        self.place = self.np_random.integers(12)
        image[self.np_random.integers(10), self.place, 1] = 255
        return image

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        reward, self.steps = float(action == (self.place >= 6)), self.steps + 1
        return self._see(), reward, False, self.steps >= 10, {}


@pytest.mark.parametrize(
    ("agent_class", "settings", "steps"),
    [
        (PPO, {"num_steps": 64, "minibatch_size": 64, "learning_rate": 1e-3}, 16_000),
        (DQN, {"exploration_steps": 2_000}, 5_000),
    ],
)
def test_images_of_gymnasium_are_learnt(agent_class: Any, settings: Any, steps: int) -> None:
    env = gymnasium.vector.SyncVectorEnv([Spot] * 8)
    agent = agent_class(env, seed=0, network="conv", hidden=(32,), num_envs=8, **settings)
    agent.learn(steps)
    assert agent.evaluate(30).mean() > 8.0  # of 10; chance is 5
    seen, _ = agent.env.reset(seed=0)
    assert seen.dtype == np.uint8
    assert agent.predict(seen[0]) == agent.predict(seen)[0]


@pytest.mark.parametrize("agent_class", [PPO, PQN, DQN])
def test_numbers_are_no_image(agent_class: Any) -> None:
    with pytest.raises(ValueError, match=r"network='conv': observations are of Box.*of three axes"):
        agent_class("CartPole-v1", network="conv")
    with pytest.raises(ValueError, match='network=\'cnn\': expected "mlp", "conv", "impala"'):
        agent_class("CartPole-v1", network="cnn")
