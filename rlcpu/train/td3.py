"""TD3 and DDPG: a deterministic actor, and critics of its actions.

The losses stand in `rlcpu.train.actor_critic`, with alpha = 0 and a target of the actor, whose next
actions get clipped noise (target policy smoothing):

    a' = clip(tanh(mean'(s')) + clip(noise * z, -noise_clip, noise_clip), -1, 1),   z ~ Normal(0, 1)

The actor learns from the first critic, and targets move, every `policy_delay` updates of the
critics. DDPG is the same with one critic, without noise and without delay.

Sources: Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods"
(algorithm 1; equation 14 for the smoothing); Lillicrap et al. 2016, "Continuous control with deep
reinforcement learning". Details that these leave open are stable-baselines3's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rlcpu.envs.dynamics import Dynamics
from rlcpu.nn.stages import Stage, StagedLearner
from rlcpu.train.actor_critic import (
    Coefficients,
    Rules,
    make_actor,
    make_critic_networks,
    make_critics,
)
from rlcpu.train.actors import Noisy
from rlcpu.train.off_policy import OffPolicy, OffPolicyConfig

# ---------------------------------------------------------------- the paper's equations


def draw(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """The action, without noise; its log-probability counts nothing."""
    return math.tanh(mean), 0.0


def draw_next(mean: float, log_std: float, noise: float, weights: Any) -> tuple[float, float]:
    """A smoothed action of the next state; Fujimoto et al. 2018, equation 14."""
    shift = min(max(weights.noise * noise, -weights.noise_clip), weights.noise_clip)
    return min(max(math.tanh(mean) + shift, -1.0), 1.0), 0.0


RULES = Rules(draw, draw_next, 1)


# ---------------------------------------------------------------- stages


def critics_gradient(dtype: type) -> Callable[..., None]:
    """See `make_critics`."""
    return make_critics(dtype, RULES)


def actor_gradient(dtype: type) -> Callable[..., None]:
    """See `make_actor`."""
    return make_actor(dtype, RULES)


def make_stages(critics: int) -> tuple[Stage, ...]:
    """An update with so many critics; the machine code is the same for all of them."""
    return (
        Stage(critics_gradient, tuple(range(1, critics + 1)), ("critic", "q_value")),
        Stage(actor_gradient, (0,), ("actor",)),
    )


# ---------------------------------------------------------------- the agents


@dataclasses.dataclass(frozen=True)
class TD3Config(OffPolicyConfig):
    """Hyper-parameters of TD3: those of `OffPolicyConfig`, and these. Actions are in [-1, 1] here.

    Attributes:
        policy_delay: updates of the critics for one of the actor and of the targets.
        exploration_noise: deviation of the noise of actions that are taken.
        target_noise: deviation of the noise of next actions.
        target_noise_clip: its bound.
    """

    policy_delay: int = 2
    exploration_noise: float = 0.1
    target_noise: float = 0.2
    target_noise_clip: float = 0.5


@dataclasses.dataclass(frozen=True)
class DDPGConfig(TD3Config):
    """Hyper-parameters of DDPG, which are those of `TD3Config` without delay and smoothing."""

    policy_delay: int = 1
    target_noise: float = 0.0
    target_noise_clip: float = 0.0


#: Settings of rl-baselines3-zoo's kind for Pendulum-v1, for comparisons, with SAC's networks and
#: batches; learn 20,000 steps.
ZOO_PENDULUM = TD3Config(
    num_envs=1, num_steps=1, num_updates=1, learning_starts=100, capacity=1_000_000,
    learning_rate=1e-3,
)  # fmt: skip

#: Settings tuned on this library.
PENDULUM = {
    "num_envs": 4,
    "num_updates": 4,
    "learning_starts": 500,
    "capacity": 50_000,
    "batch_size": 128,
    "learning_rate": 2e-3,
    "gamma": 0.95,
    "tau": 0.01,
    "hidden": (64, 64),
}


class TD3(OffPolicy):
    """An agent of continuous actions with a deterministic policy, for bounded `Box` actions.

    Arguments are those of `OffPolicy`; see `TD3Config` for the settings.

    Example:
        >>> from rlcpu.train import TD3
        >>> agent = TD3("Pendulum-v1", seed=0, hidden=(32, 32))
        >>> agent.learn(1024).steps
        1024
    """

    algorithm = "TD3"
    Config: ClassVar[type[TD3Config]] = TD3Config
    defaults: ClassVar[dict[str, Any]] = {"Pendulum-v1": TD3Config().replace(PENDULUM)}
    config: TD3Config
    policy: Noisy
    _critics = 2

    def _make_policy(self, dynamics: Dynamics, seed: int) -> Noisy:
        return Noisy(dynamics, self.config.hidden, self.config.activation, seed)

    def _make_learner(self, seed: int, num_threads: int | None) -> StagedLearner:
        count, dynamics = self._critics, self.env.dynamics
        critics = make_critic_networks(dynamics, self.config, count, seed)
        return StagedLearner(
            [self.policy.network, *critics],
            range(count + 1),
            make_stages(count),
            extra=np.array([-np.inf]),
            rows=2 + 2 * dynamics.action_size,
            at_once=2,
            seed=seed,
            num_threads=num_threads,
        )

    def explore(self) -> None:
        """See `OffPolicy.explore`."""
        self.policy.params[:2] = 0.0, self.config.exploration_noise

    def _coefficients(self) -> Coefficients:
        config = self.config
        return Coefficients(self._critics, 0.0, config.target_noise, config.target_noise_clip)

    def _options(self) -> dict[str, Any]:
        config = self.config
        return {
            "learning_rates": (config.learning_rate,) * 2,
            "delay": config.policy_delay,
            "period": config.target_period * config.policy_delay,
        }


class DDPG(TD3):
    """An agent like `TD3` with one critic; see `DDPGConfig` for the settings."""

    algorithm = "DDPG"
    Config = DDPGConfig
    defaults: ClassVar[dict[str, Any]] = {"Pendulum-v1": DDPGConfig().replace(PENDULUM)}
    _critics = 1
