"""Hyper-parameters by environment."""

from __future__ import annotations

from rlcpu.train.config import PPOConfig

#: Settings that were tuned on this library.
DEFAULTS: dict[str, PPOConfig] = {
    "CartPole-v1": PPOConfig(
        num_envs=64,
        num_steps=32,
        num_epochs=4,
        minibatch_size=256,
        learning_rate=1.5e-3,
        gamma=0.98,
        lambda_=0.8,
    ),
}

#: rl-baselines3-zoo's settings of CartPole-v1, for comparisons; learn 100,000 steps.
ZOO_CARTPOLE = PPOConfig(
    num_envs=8,
    num_steps=32,
    num_epochs=20,
    minibatch_size=256,
    learning_rate=1e-3,
    learning_rate_schedule="linear",
    clip_range=0.2,
    clip_schedule="linear",
    gamma=0.98,
    lambda_=0.8,
)


def default_config(env_id: str) -> PPOConfig:
    """The settings of an environment, or general ones."""
    return DEFAULTS.get(env_id, GENERAL)


#: For environments that nobody has tuned.
GENERAL = PPOConfig(num_envs=64, num_steps=128, minibatch_size=512, normalize_observations=True)
