"""Hyper-parameters by environment."""

from __future__ import annotations

from rlcpu.train.config import PPOConfig

#: Settings tuned on this library. Steps until solved (the environment's threshold), as medians over
#: ten seeds: CartPole 110,000, Acrobot 110,000, MountainCar 400,000, MountainCarContinuous 150,000.
#: Pendulum, which has no threshold, reaches -150 in 300,000.
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
    "Acrobot-v1": PPOConfig(
        num_envs=64,
        num_steps=64,
        num_epochs=4,
        minibatch_size=512,
        learning_rate=1.5e-3,
        lambda_=0.94,
        normalize_observations=True,
    ),
    "Pendulum-v1": PPOConfig(
        num_envs=16,
        num_steps=128,
        minibatch_size=512,
        learning_rate=1e-3,
        learning_rate_schedule="linear",
        gamma=0.97,
        reward_scale=0.1,
    ),
    "MountainCar-v0": PPOConfig(
        num_envs=32,
        num_steps=128,
        num_epochs=8,
        minibatch_size=1024,
        learning_rate=2e-3,
        lambda_=0.98,
        normalize_observations=True,
    ),
    # Wide noise at first, and hardly any discounting: the reward comes only at the end.
    "MountainCarContinuous-v0": PPOConfig(
        num_envs=64,
        num_steps=128,
        num_epochs=4,
        minibatch_size=1024,
        learning_rate=1e-3,
        gamma=0.9999,
        lambda_=0.99,
        log_std_init=1.0,
        reward_scale=0.1,
        normalize_observations=True,
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
