"""rl-baselines3-zoo's settings of PPO for MuJoCo's tasks, for comparisons.

They are those of -v3 and -v2, the last that were tuned there, for a million steps in one
environment (Raffin 2020, "RL Baselines3 Zoo"). There, rewards are divided by a running deviation of
returns, for which `reward_scale` stands here. Pusher was never tuned, Ant and Swimmer hardly.
"""

from __future__ import annotations

from typing import NamedTuple

from rlcpu.train.ppo import MUJOCO_HORIZONS, PPOConfig


class ZooSettings(NamedTuple):
    """Settings that differ between tasks; all but the last are fields of `PPOConfig`.

    Attributes:
        minibatch_size: at most the steps of a rollout.
        has_wide_networks: two hidden layers of 256 with relu, and standard deviations of exp(-2)
            at first; `PPOConfig`'s networks otherwise.
    """

    minibatch_size: int
    num_steps: int
    num_epochs: int
    learning_rate: float
    clip_range: float
    entropy_coefficient: float
    value_coefficient: float
    max_gradient_norm: float
    has_wide_networks: bool


_TUNED = {
    "HalfCheetah-v5": ZooSettings(64, 512, 20, 2.0633e-5, 0.1, 4.01762e-4, 0.58096, 0.8, True),
    "Hopper-v5": ZooSettings(32, 512, 5, 9.80828e-5, 0.2, 2.29519e-3, 0.835671, 0.7, True),
    "Humanoid-v5": ZooSettings(256, 512, 5, 3.56987e-5, 0.3, 2.38306e-3, 0.431892, 2.0, True),
    "HumanoidStandup-v5": ZooSettings(
        32, 512, 20, 2.55673e-5, 0.3, 3.62109e-6, 0.430793, 0.7, True
    ),
    "InvertedDoublePendulum-v5": ZooSettings(
        512, 128, 10, 1.55454e-4, 0.4, 1.05057e-6, 0.695929, 0.5, False
    ),
    "InvertedPendulum-v5": ZooSettings(64, 32, 5, 2.22425e-4, 0.4, 1.37976e-7, 0.19816, 0.3, False),
    "Reacher-v5": ZooSettings(32, 512, 5, 1.04019e-4, 0.3, 7.52585e-8, 0.950368, 0.9, False),
    "Walker2d-v5": ZooSettings(32, 512, 20, 5.05041e-5, 0.1, 5.85045e-4, 0.871923, 1.0, True),
}
_UNTUNED = ZooSettings(64, 2048, 10, 3e-4, 0.2, 0.0, 0.5, 0.5, False)


def ppo_config(env_id: str) -> PPOConfig:
    """Return the settings of one of MuJoCo's tasks.

    Raises:
        KeyError: it is none of them.
    """
    gamma, lambda_ = MUJOCO_HORIZONS[env_id]
    settings = _TUNED.get(env_id, _UNTUNED)
    config = PPOConfig(
        num_envs=1,
        num_steps=settings.num_steps,
        num_epochs=settings.num_epochs,
        minibatch_size=min(settings.minibatch_size, settings.num_steps),
        learning_rate=settings.learning_rate,
        clip_range=settings.clip_range,
        gamma=gamma,
        lambda_=lambda_,
        entropy_coefficient=settings.entropy_coefficient,
        value_coefficient=settings.value_coefficient,
        max_gradient_norm=settings.max_gradient_norm,
        normalize_observations=True,
        reward_scale=0.1,
    )
    if not settings.has_wide_networks:
        return config
    return config.replace({"hidden": (256, 256), "activation": "relu", "log_std_init": -2.0})
