"""Soft actor-critic: a squashed Gaussian, twin critics and a temperature that is learnt.

The losses of critics and actor stand in `rlcpu.train.actor_critic`; the temperature alpha learns to
keep the policy's entropy at a target,

    loss = -log(alpha) * mean(log pi(a|s) + target entropy)

Sources: Haarnoja et al. 2018, "Soft actor-critic algorithms and applications" (algorithm 1; the
temperature is equation 18); Haarnoja et al. 2018, "Soft actor-critic: off-policy maximum entropy
deep reinforcement learning" (appendix C for the squashed Gaussian). Details that these leave open,
such as log(alpha) for alpha in the temperature's loss, are stable-baselines3's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.registration import MUJOCO_TASKS
from rlcpu.kernels.compile import inline, tuple_of
from rlcpu.nn.adam import adam, make_rates
from rlcpu.nn.stages import Stage, StagedLearner
from rlcpu.train.actor_critic import (
    Coefficients,
    Rules,
    make_actor,
    make_critic_networks,
    make_critics,
)
from rlcpu.train.actors import (
    SquashedGaussian,
    bounded_log_std,
    squashed_gaussian,
)
from rlcpu.train.off_policy import OffPolicy, OffPolicyConfig

# ---------------------------------------------------------------- the paper's equations


def draw(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """An action in (-1, 1) and its log-density; see `squashed_gaussian`."""
    return squashed_gaussian(mean, bounded_log_std(log_std), noise)


def draw_next(mean: float, log_std: float, noise: float, weights: Any) -> tuple[float, float]:
    """The same of the next state."""
    return squashed_gaussian(mean, bounded_log_std(log_std), noise)


def temperature_slope(mean_log_prob: float, target_entropy: float) -> float:
    """Derivative of the temperature's loss by log(alpha)."""
    return -(mean_log_prob + target_entropy)


RULES = Rules(draw, draw_next, 2)


# ---------------------------------------------------------------- stages


def critics_gradient(dtype: type) -> Callable[..., None]:
    """See `make_critics`."""
    return make_critics(dtype, RULES)


def actor_gradient(dtype: type) -> Callable[..., None]:
    """See `make_actor`."""
    return make_actor(dtype, RULES)


def make_temperature(dtype: type) -> Callable[..., None]:
    """`learn(part)`: a step of Adam on log(alpha).

    `learnt.extra` holds log(alpha), its two moments, and the steps so far.
    """
    rates_of, slope_of = make_rates(np.float64), inline(temperature_slope)
    step, coefficients_of = inline(adam), tuple_of(Coefficients, len(Coefficients._fields))

    def temperature(part):
        extra, settings = part.frame.learnt.extra, part.frame.settings
        numbers = coefficients_of(settings.coefficients)
        slope = slope_of(part.sums[1] / settings.size, numbers.target_entropy)
        extra[3] += 1.0
        if numbers.rate > 0.0:
            rates = rates_of(extra[3], np.float64(numbers.rate), np.float64(settings.epsilon))
            extra[0], extra[1], extra[2] = step(extra[0], slope, extra[1], extra[2], rates)

    return temperature


#: An update of SAC.
STAGES = (
    Stage(critics_gradient, (1, 2), ("critic", "q_value")),
    Stage(actor_gradient, (0,), ("actor", "log_prob"), make_temperature),
)


# ---------------------------------------------------------------- the agent


@dataclasses.dataclass(frozen=True)
class SACConfig(OffPolicyConfig):
    """Hyper-parameters of SAC: those of `OffPolicyConfig`, and these.

    Attributes:
        temperature: alpha at the beginning.
        learn_temperature: whether alpha is learnt.
        target_entropy: of the policy, in nats, of actions in [-1, 1]; None for minus how many of
            their numbers can change.
    """

    temperature: float = 1.0
    learn_temperature: bool = True
    target_entropy: float | None = None


#: rl-baselines3-zoo's settings of Pendulum-v1, for comparisons; learn 20,000 steps.
ZOO_PENDULUM = SACConfig(
    num_envs=1, num_steps=1, num_updates=1, learning_starts=100, capacity=1_000_000,
    learning_rate=1e-3,
)  # fmt: skip

#: rl-baselines3-zoo's settings of MuJoCo's tasks: an update a step, for a million steps.
ZOO_MUJOCO = SACConfig(
    num_envs=1, num_steps=1, num_updates=1, learning_starts=10_000, capacity=1_000_000
)  # fmt: skip

#: Settings tuned on this library.
DEFAULTS: dict[str, SACConfig] = {
    "Pendulum-v1": SACConfig(
        num_envs=4,
        num_updates=4,
        learning_starts=500,
        capacity=50_000,
        batch_size=128,
        learning_rate=2e-3,
        gamma=0.95,
        tau=0.01,
        hidden=(64, 64),
    ),
    **dict.fromkeys(MUJOCO_TASKS, ZOO_MUJOCO),
    "Swimmer-v5": ZOO_MUJOCO.replace({"gamma": 0.9999}),
}


class SAC(OffPolicy):
    """An agent of continuous actions that are as random as they can be, for bounded `Box` actions.

    Arguments are those of `OffPolicy`; see `SACConfig` for the settings.

    Attributes:
        temperature: alpha, the weight of the entropy.

    Example:
        >>> from rlcpu.train import SAC
        >>> agent = SAC("Pendulum-v1", seed=0, hidden=(32, 32))
        >>> agent.learn(1024).steps
        1024
    """

    algorithm = "SAC"
    num_kernels = 13
    Config = SACConfig
    defaults = DEFAULTS
    config: SACConfig
    policy: SquashedGaussian

    def _make_policy(self, dynamics: Dynamics, seed: int) -> SquashedGaussian:
        return SquashedGaussian(dynamics, self.config.hidden, self.config.activation, seed)

    def _make_learner(self, seed: int, num_threads: int | None) -> StagedLearner:
        config, size = self.config, self.env.dynamics.action_size
        extra = np.array([math.log(config.temperature), 0.0, 0.0, 0.0])
        return StagedLearner(
            [self.policy.network, *make_critic_networks(self.env.dynamics, config, 2, seed)],
            [1, 2],
            STAGES,
            extra=extra,
            rows=2 + 2 * size,
            at_once=3,
            seed=seed,
            num_threads=num_threads,
        )

    @property
    def temperature(self) -> float:
        """Alpha, the weight of the entropy."""
        return math.exp(self.learner.learnt.extra[0])

    def explore(self) -> None:
        """See `OffPolicy.explore`."""
        self.policy.params[0] = 0.0

    def _coefficients(self) -> Coefficients:
        config, size = self.config, np.count_nonzero(self.policy.half)
        target = -float(size) if config.target_entropy is None else config.target_entropy
        rate = config.learning_rate if config.learn_temperature else 0.0
        return Coefficients(target_entropy=target, rate=rate)

    def _options(self) -> dict[str, Any]:
        return {"learning_rates": (self.config.learning_rate,) * 2}
