"""Soft actor-critic: a squashed Gaussian, twin critics and a temperature that is learnt.

The values that critics learn stand in `rlcpu.train.critics`; the temperature alpha learns to
keep the policy's entropy at a target,

    loss = -log(alpha) * mean(log pi(a|s) + target entropy)

Sources: Haarnoja et al. 2018, "Soft actor-critic algorithms and applications" (algorithm 1; the
temperature is equation 18); Haarnoja et al. 2018, "Soft actor-critic: off-policy maximum entropy
deep reinforcement learning" (appendix C for the squashed Gaussian). Details that these leave open,
such as log(alpha) for alpha in the temperature's loss, are stable-baselines3's.
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
from rlcpu.envs.tasks.mujoco import IDS as MUJOCO_TASKS
from rlcpu.nn.network.heads import (
    define_act,
    exponential,
    log_density,
    loop_numbers,
    return_vector,
    standard_normal,
)
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
    soft_bootstrap,
    to_next,
)
from rlcpu.train.off_policy import OffPolicy, OffPolicyConfig
from rlcpu.train.running.actors import Array, Squashed
from rlcpu.train.settings.arguments import Env, RoundsArguments, typed_by

# ---------------------------------------------------------------- the paper's equations

#: Range of the logarithm of a squashed Gaussian's deviation; stable-baselines3's.
LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0
LOG_2 = math.log(2.0)


def squash(u: float) -> tuple[float, float]:
    """Return tanh(u), and the logarithm of its derivative 1 - tanh(u)**2.

    The latter as 2 (log 2 - u - softplus(-2u)), which stays finite where tanh rounds to 1
    (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", appendix C).
    """
    # abs(u) - u is max(-2u, 0), with the right slope at 0 beside that of the rest.
    softplus = abs(u) - u + math.log(1.0 + math.exp(-2.0 * abs(u)))
    return math.tanh(u), 2.0 * (LOG_2 - u - softplus)


def squashed_gaussian(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """Return one number of an action in (-1, 1), and its log-density.

    With u = mean + exp(log_std) * noise the action is tanh(u), and

        log pi = log Normal(u; mean, exp(log_std)) - log(1 - tanh(u)**2)

    Source: Haarnoja et al. 2018, "Soft actor-critic", equation 21 (appendix C).
    """
    action, log_slope = squash(mean + math.exp(log_std) * noise)
    return action, log_density(noise, log_std) - log_slope


def bounded_log_std(x: float) -> float:
    """Return the output of a network, clipped to the range of a squashed Gaussian's `log_std`."""
    return min(max(x, LOWEST_LOG_STD), HIGHEST_LOG_STD)


def draw(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """Return an action in (-1, 1) and its log-density; see `squashed_gaussian`."""
    return squashed_gaussian(mean, bounded_log_std(log_std), noise)


def sample(outputs: Any, settings: Any) -> tuple[Any, Any]:
    """Draw actions by outputs of the actor, reparametrised; return them and log-probabilities.

    Outputs are means, then logarithms of deviations; `nn.normal(mean)` is noise for each mean.
    `settings.movable` is 0 for a number of an action whose bounds are equal, else 1.
    """
    size = settings.action_size
    mean, log_std = outputs[:size], outputs[size:]
    action, log_prob = nn.each(draw, mean, log_std, nn.normal(mean), results=2)
    return action * settings.movable, nn.sum(log_prob * settings.movable)


def critic(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of the critics, and statistics; algorithm 1, line 12."""
    next_observation = next_of(batch, settings)
    action, log_prob = sample(nets.actor(next_observation), settings)
    value = least_value((nets.target1, nets.target2), next_observation, action)
    # Networks with memory ran over whole sequences: take each sample's next step.
    value, log_prob = (to_next(each, batch, settings) for each in (value, log_prob))
    alpha = nn.each(exponential, nets.log_temperature)
    target = nn.each(
        soft_bootstrap, batch.reward, batch.discount, batch.terminated, value, log_prob, alpha
    )
    return critics_loss(batch, (nets.critic1, nets.critic2), target)


def actor_and_temperature(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of actor and log(alpha), and statistics; algorithm 1, lines 13 and 14."""
    action, log_prob = sample(nets.actor(batch.observation), settings)
    value = least_value((nets.critic1, nets.critic2), batch.observation, action)
    return policy_loss(value, log_prob, batch, nets, settings)


def policy_loss(value: Any, log_prob: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of actions that were drawn, of values and log-probabilities, and of alpha."""
    alpha = nn.each(exponential, nn.hold(nets.log_temperature))
    loss = actor_mean(alpha * log_prob - value, batch, settings)
    statistics = {"actor": loss, "log_prob": log_prob}
    if settings.learn_temperature:
        missing_entropy = nn.hold(log_prob) + settings.target_entropy
        loss = loss - actor_mean(nets.log_temperature * missing_entropy, batch, settings)
    return loss, statistics


# ---------------------------------------------------------------- the policy


@functools.cache
def act_squashed(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Make `act`: draw from a squashed Gaussian, scaled to the bounds of actions.

    Of `size` outputs the first half are means, the others logarithms of deviations. `params` are
    the probability of an action drawn uniformly from the bounds instead, then centres and half
    widths of the bounds. An action of one number has the lines

        explores = (uniforms[2] < params[0]) and not greedy
        drawn = normal(uniforms[0], uniforms[1])
        z = 0.0 if greedy else drawn
        a, l0 = squashed(outputs[0], bounded(outputs[1]), z)
        a = 2.0 * uniforms[0] - 1.0 if explores else a
        a0 = params[1] + params[2] * a
        return (a0,), l0

    Args:
        size: number of outputs.
        masked: False: real numbers have no mask.
        loops: see `rlcpu.nn.network.heads`.
    """
    count = size // 2
    if loops:
        return loop_numbers(
            act_squashed(2),
            f"k, {count} + k",
            uniforms=f"2 * k, 2 * k + 1, {2 * count}",
            params=f"0, 1 + k, {1 + count} + k",
        )
    lines = [f"explores = (uniforms[{2 * count}] < params[0]) and not greedy"]
    for k in range(count):
        mean, log_std = f"outputs[{k}]", f"outputs[{count + k}]"
        center, half = f"params[{1 + k}]", f"params[{1 + count + k}]"
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            "z = 0.0 if greedy else drawn",
            f"a, l{k} = squashed({mean}, bounded({log_std}), z)",
            f"a = 2.0 * uniforms[{2 * k}] - 1.0 if explores else a",
            f"a{k} = {center} + {half} * a",
        ]
    names: dict[str, Any] = {"squashed": squashed_gaussian, "bounded": bounded_log_std}
    return define_act([*lines, return_vector(count)], normal=standard_normal, **names)


class SquashedGaussian(Squashed):
    """Draws actions from a Gaussian that tanh squashes; its deviation depends on the observation.

    The first outputs of the network are means, the others logarithms of deviations, clipped to
    [-20, 2]. See `squashed_gaussian`.
    """

    act = staticmethod(act_squashed)
    outputs_per_number = 2

    def choose(self, outputs: Array, rng: np.random.Generator | None, *masks: Array) -> Array:
        """Return actions; see `Actor.choose`."""
        means, log_stds = np.split(outputs, 2, axis=1)
        if rng is not None:
            stds = np.exp(np.clip(log_stds, LOWEST_LOG_STD, HIGHEST_LOG_STD))
            means = means + stds * rng.standard_normal(means.shape)
        return self.head.actions(means)


# ---------------------------------------------------------------- settings


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

# fmt: off
#: For environments that nobody has tuned. Where only the far end of a state pays, policies that
#: learnt from fewer random steps never went there again.
GENERAL = SACConfig(
    num_updates=4, learning_starts=2500, batch_size=128, learning_rate=1e-3, hidden=(64, 64),
    normalize_observations=True, normalize_rewards=True,
)
GENERAL_SYMBOLS = GENERAL.replace({"normalize_observations": False})
#: Settings tuned on this library.
DEFAULTS: dict[str, SACConfig] = {
    "Pendulum-v1": SACConfig(
        num_envs=4, num_updates=4, learning_starts=500, capacity=50_000, batch_size=128,
        learning_rate=2e-3, gamma=0.95, tau=0.01, hidden=(64, 64),
    ),
    # Few updates, of sixteen sequences each: six of them learnt less from twice as many.
    "PendulumNoVel-v1": SACConfig(
        num_envs=4, num_updates=2, learning_starts=500, capacity=50_000, batch_size=320,
        learning_rate=1e-3, gamma=0.95, tau=0.01, network="gru", hidden=(64, 64),
    ),
    # It is learnt without hindsight, too, and later.
    "PointMaze-v0": SACConfig(
        num_envs=8, num_updates=8, batch_size=256, learning_rate=1e-3, gamma=0.98,
        hidden=(64, 64), replay="hindsight",
    ),
    # HalfCheetah-v5 was measured with this limit. Without observations that are normalised, as in
    # the zoo, forces of Humanoid-v5 are in the thousands.
    **dict.fromkeys(MUJOCO_TASKS, ZOO_MUJOCO.replace({"clip_observations": 10.0})),
    "Swimmer-v5": ZOO_MUJOCO.replace({"clip_observations": 10.0, "gamma": 0.9999}),
}
# fmt: on


# ---------------------------------------------------------------- the agent


@dataclasses.dataclass(frozen=True)
class _SACArguments(SACConfig, RoundsArguments):
    """Keyword arguments of `SAC`, for type checkers."""


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
    num_kernels = 39
    reported: ClassVar[tuple[str, ...]] = ("critic", "q_value", "actor", "log_prob")
    Config = SACConfig
    defaults = DEFAULTS
    general: ClassVar[dict[str, SACConfig]] = {"numbers": GENERAL, "symbols": GENERAL_SYMBOLS}
    facts: ClassVar[dict[str, str]] = {**OffPolicy.facts, **FACTS}
    config: SACConfig
    policy: SquashedGaussian

    if TYPE_CHECKING:

        @typed_by(_SACArguments)
        def __init__(self, env: Env, **settings: Any) -> None: ...

    def _make_policy(self, dynamics: Dynamics, seed: int) -> SquashedGaussian:
        policy = SquashedGaussian(dynamics, self.config.hidden, self.config.activation, seed)
        policy.use_layers(self.config, dynamics, seed)
        return policy

    def networks(self, seed: int) -> dict[str, Any]:
        """Return the networks, and log(alpha); see `OffPolicy.networks`."""
        config = self.config
        return {
            "actor": self.policy.network,
            **self._make_critics(seed),
            "log_temperature": np.array([math.log(config.temperature)], np.float32),
        }

    def _make_critics(self, seed: int) -> dict[str, Any]:
        """Return the critics by their names."""
        return make_critics(self.env.dynamics, self.config, 2, seed)

    def targets(self) -> dict[str, str]:
        """Return the targets; see `OffPolicy.targets`."""
        return {"target1": "critic1", "target2": "critic2"}

    def updates(self) -> list[nn.Update]:
        """Return the losses; see `OffPolicy.updates`."""
        return [
            nn.Update(critic, ("critic1", "critic2")),
            nn.Update(actor_and_temperature, self._learnt_by_actor),
        ]

    @property
    def _learnt_by_actor(self) -> tuple[str, ...]:
        """Return what the actor's update learns."""
        return ("actor", "log_temperature") if self.config.learn_temperature else ("actor",)

    def settings(self) -> dict[str, Any]:
        """Return the settings; see `OffPolicy.settings`."""
        # Half widths of the bounds: 0 of a number that cannot change.
        half, entropy = self.policy.half, self.config.target_entropy
        return {
            **super().settings(),
            **facts_of(self.policy.center, half),
            "target_entropy": -float(np.count_nonzero(half)) if entropy is None else entropy,
        }

    @property
    def temperature(self) -> float:
        """Return alpha, the weight of the entropy."""
        return math.exp(self.learner.value_of("log_temperature")[0])

    def _values_of(self, rollout: Rollout) -> Any:
        return critic_values(self, rollout)

    @repeatable
    def explore(self) -> None:
        """Set the exploration; see `InRounds.explore`."""
        self.policy.params[0] = 0.0
