"""TD3 and DDPG: a deterministic actor, and critics of its actions.

The values that critics learn stand in `rlcpu.train.critics`, with alpha = 0 and a target of
the actor, whose next actions get clipped noise (target policy smoothing):

    a' = clip(tanh(mean'(s')) + clip(noise * z, -noise_clip, noise_clip), -1, 1),   z ~ Normal(0, 1)

The actor learns from the first critic, and targets move, every `policy_delay` updates of the
critics. DDPG is the same with one critic, without noise and without delay. `settings.movable` is 0
for numbers of an action whose bounds are equal, which stay 0, and 1 for the others.

Sources: Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods"
(algorithm 1; equation 14 for the smoothing); Lillicrap et al. 2016, "Continuous control with deep
reinforcement learning". Details that these leave open are stable-baselines3's.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlcpu import nn
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.rollout.results import Rollout
from rlcpu.nn.network.heads import define_act, loop_numbers, return_vector, standard_normal
from rlcpu.train.agent import repeatable
from rlcpu.train.critics import (
    FACTS,
    actor_mean,
    critic_values,
    critics_loss,
    facts_of,
    least_value,
    make_critics,
    next_of,
    to_next,
)
from rlcpu.train.dqn import bootstrap
from rlcpu.train.off_policy import OffPolicy, OffPolicyConfig
from rlcpu.train.running.actors import Array, Squashed
from rlcpu.train.settings.arguments import Env, RoundsArguments, typed_by

# ---------------------------------------------------------------- the paper's equations


def squashed(mean: float) -> float:
    """Return the action of a network's output."""
    return math.tanh(mean)


def smoothed(mean: float, noise: float, deviation: float, bound: float) -> float:
    """Return a noisy action in the next state; Fujimoto et al. 2018, equation 14."""
    shift = min(max(deviation * noise, -bound), bound)
    return min(max(math.tanh(mean) + shift, -1.0), 1.0)


def critic(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of the critics, and statistics; algorithm 1."""
    next_observation = next_of(batch, settings)
    mean = nets.target_actor(next_observation)
    deviation, bound = settings.target_noise, settings.target_noise_clip
    action = nn.each(smoothed, mean, nn.normal(mean), deviation, bound) * settings.movable
    critics, targets = (
        [getattr(nets, f"{kind}{k + 1}") for k in range(settings.num_critics)]
        for kind in ("critic", "target")
    )
    value = to_next(least_value(targets, next_observation, action), batch, settings)
    target = nn.each(bootstrap, batch.reward, batch.discount, batch.terminated, value)
    return critics_loss(batch, critics, target)


def actor(batch: Any, nets: Any, settings: Any) -> Any:
    """Return minus the value of the actor's actions, by the first critic."""
    action = nn.each(squashed, nets.actor(batch.observation)) * settings.movable
    return actor_mean(-nets.critic1(batch.observation, action), batch, settings), {}


# ---------------------------------------------------------------- the policy


@functools.cache
def act_noisy(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Make `act`: take tanh of `size` outputs plus noise, scaled to the bounds of actions.

    `params` are the probability of an action drawn uniformly from the bounds instead, the deviation
    of the Gaussian noise, then centres and half widths of the bounds. Lines, and arguments, are as
    those of `rlcpu.train.sac.act_squashed`.
    """
    if loops:
        return loop_numbers(
            act_noisy(1),
            "k",
            uniforms=f"2 * k, 2 * k + 1, {2 * size}",
            params=f"0, 1, 2 + k, {2 + size} + k",
        )
    lines = [f"explores = (uniforms[{2 * size}] < params[0]) and not greedy"]
    for k in range(size):
        center, half = f"params[{2 + k}]", f"params[{2 + size + k}]"
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            f"a = tanh(outputs[{k}]) + (0.0 if greedy else params[1] * drawn)",
            f"a = 2.0 * uniforms[{2 * k}] - 1.0 if explores else min(max(a, -1.0), 1.0)",
            f"l{k} = 0.0",
            f"a{k} = {center} + {half} * a",
        ]
    return define_act([*lines, return_vector(size)], normal=standard_normal, tanh=math.tanh)


class Noisy(Squashed):
    """tanh of the network's outputs, and Gaussian noise of one deviation to explore."""

    act = staticmethod(act_noisy)
    num_exploring = 2

    def choose(self, outputs: Array, rng: np.random.Generator | None, *masks: Array) -> Array:
        """Return actions; see `Actor.choose`."""
        actions = np.tanh(outputs)
        if rng is not None:
            noise = self.params[1] * rng.standard_normal(actions.shape)
            actions = np.clip(actions + noise, -1.0, 1.0)
        return (self.center + self.half * actions).astype(np.float32)


# ---------------------------------------------------------------- settings


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

# fmt: off
#: Settings tuned on this library.
PENDULUM = {
    "num_envs": 4, "num_updates": 4, "learning_starts": 500, "capacity": 50_000, "batch_size": 128,
    "learning_rate": 2e-3, "gamma": 0.95, "tau": 0.01, "hidden": (64, 64),
}
#: For environments that nobody has tuned. Where only the far end of a state pays, policies that
#: learnt from fewer random steps never went there again.
GENERAL = {
    "num_updates": 4, "learning_starts": 2500, "batch_size": 128, "learning_rate": 1e-3,
    "hidden": (64, 64), "normalize_observations": True, "normalize_rewards": True,
}
GENERAL_SYMBOLS = GENERAL | {"normalize_observations": False}
# fmt: on


# ---------------------------------------------------------------- the agents


@dataclasses.dataclass(frozen=True)
class _TD3Arguments(TD3Config, RoundsArguments):
    """Keyword arguments of `TD3`, for type checkers."""


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
    num_kernels = 33
    reported: ClassVar[tuple[str, ...]] = ("critic", "q_value", "actor")
    Config: ClassVar[type[TD3Config]] = TD3Config
    defaults: ClassVar[dict[str, Any]] = {"Pendulum-v1": TD3Config().replace(PENDULUM)}
    general: ClassVar[dict[str, Any]] = {
        "numbers": TD3Config().replace(GENERAL),
        "symbols": TD3Config().replace(GENERAL_SYMBOLS),
    }
    facts: ClassVar[dict[str, str]] = {**OffPolicy.facts, **FACTS, "num_critics": "1 or 2"}
    config: TD3Config
    policy: Noisy
    _critics = 2

    if TYPE_CHECKING:

        @typed_by(_TD3Arguments)
        def __init__(self, env: Env, **settings: Any) -> None: ...

    def _make_policy(self, dynamics: Dynamics, seed: int) -> Noisy:
        policy = Noisy(dynamics, self.config.hidden, self.config.activation, seed)
        policy.use_layers(self.config, dynamics, seed)
        return policy

    def networks(self, seed: int) -> dict[str, Any]:
        """Return the networks; see `OffPolicy.networks`."""
        critics = make_critics(self.env.dynamics, self.config, self._critics, seed)
        return {"actor": self.policy.network, **critics}

    def targets(self) -> dict[str, str]:
        """Return the targets; see `OffPolicy.targets`."""
        critics = range(1, self._critics + 1)
        return {"target_actor": "actor", **{f"target{k}": f"critic{k}" for k in critics}}

    def updates(self) -> list[nn.Update]:
        """Return the losses; see `OffPolicy.updates`."""
        critics = tuple(f"critic{k}" for k in range(1, self._critics + 1))
        delay = self.config.policy_delay
        return [nn.Update(critic, critics), nn.Update(actor, ("actor",), every=delay)]

    def settings(self) -> dict[str, Any]:
        """Return the settings; see `OffPolicy.settings`."""
        bounds = facts_of(self.policy.center, self.policy.half)
        return {**super().settings(), **bounds, "num_critics": self._critics}

    def _values_of(self, rollout: Rollout) -> Any:
        return critic_values(self, rollout)

    @repeatable
    def explore(self) -> None:
        """Set the exploration; see `InRounds.explore`."""
        self.policy.params[:2] = 0.0, self.config.exploration_noise

    def _options(self) -> dict[str, Any]:
        config = self.config
        period = config.target_period * config.policy_delay
        return {**super()._options(), "target_period": period}


@dataclasses.dataclass(frozen=True)
class _DDPGArguments(DDPGConfig, RoundsArguments):
    """Keyword arguments of `DDPG`, for type checkers."""


class DDPG(TD3):
    """An agent like `TD3` with one critic; see `DDPGConfig` for the settings."""

    algorithm = "DDPG"
    num_kernels = 30
    Config = DDPGConfig
    defaults: ClassVar[dict[str, Any]] = {"Pendulum-v1": DDPGConfig().replace(PENDULUM)}
    general: ClassVar[dict[str, Any]] = {
        "numbers": DDPGConfig().replace(GENERAL),
        "symbols": DDPGConfig().replace(GENERAL_SYMBOLS),
    }
    _critics = 1

    if TYPE_CHECKING:

        @typed_by(_DDPGArguments)
        def __init__(self, env: Env, **settings: Any) -> None: ...
