"""Truncated quantile critics: SAC whose critics learn distributions, without their largest parts.

Each of M critics has N quantiles theta_i(s, a) of the return. The target is made of those of all
critics together, in ascending order, without the largest `dropped` times M of them: what a critic
overestimates is among these. With K = (N - dropped) M

    y_j = r + discount * (theta'_(j)(s', a') - alpha * log pi(a'|s')),   j = 1 ... K,  a' ~ pi(.|s')
    loss = mean(weight * sum over critics, 1/(N K) sum_i sum_j
                         |tau_i - 1{y_j < theta_i(s, a)}| huber(theta_i(s, a), y_j))

where primes are targets, theta'_(j) is the j-th smallest of all, and tau_i = (2 i - 1) / (2 N). The
actor learns from the mean of all quantiles, of which none is dropped,

    loss = mean(alpha * log pi(a|s) - 1/(N M) sum theta(s, a)),   a ~ pi(.|s)

All critics are one network with their quantiles one after the other. Policy, temperature, networks
with memory and all else are SAC's, see `rlcpu.train.sac`.

Source: Kuznetsov et al. 2020, "Controlling overestimation bias with truncated mixture of continuous
distributional quantile critics" (equations 8 to 14, algorithm 1, kappa = 1).
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar

from rlcpu import nn
from rlcpu.envs.rollout.results import Rollout
from rlcpu.nn.network.heads import exponential
from rlcpu.train import sac
from rlcpu.train.critics import (
    critic_values,
    make_critic,
    next_of,
    size_of,
    soft_bootstrap,
    to_next,
    total,
)
from rlcpu.train.qrdqn import MIDPOINTS, midpoints, quantile_huber
from rlcpu.train.sac import SAC, SACConfig, policy_loss, sample
from rlcpu.train.settings.arguments import Env, RoundsArguments, typed_by
from rlcpu.train.settings.base import setting

# ---------------------------------------------------------------- the paper's equations


def critic(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of all critics, and statistics; equations 9 to 13."""
    count, num_critics = settings.num_quantiles, settings.num_critics
    next_observation = next_of(batch, settings)
    action, log_prob = sample(nets.actor(next_observation), settings)
    pooled = nn.sort(nets.target(next_observation, action))
    smallest = pooled[: (count - settings.dropped) * num_critics]
    # Networks with memory ran over whole sequences: take each sample's next step.
    smallest, log_prob = (to_next(each, batch, settings) for each in (smallest, log_prob))
    alpha = nn.each(exponential, nets.log_temperature)
    targets = nn.hold(
        nn.each(
            soft_bootstrap,
            batch.reward,
            batch.discount,
            batch.terminated,
            smallest,
            log_prob,
            alpha,
        )
    )
    quantiles = nets.critics(batch.observation, batch.action)
    losses = [
        nn.pairs(quantile_huber, quantiles[first : first + count], targets, settings.midpoints)
        for first in range(0, num_critics * count, count)
    ]
    value = nn.sum(quantiles) / (count * num_critics)
    error = value - nn.sum(targets) / ((count - settings.dropped) * num_critics)
    loss = nn.mean(batch.weight * total(losses))
    return loss, {"q_value": value, "error": nn.each(size_of, nn.hold(error))}


def actor_and_temperature(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of actor and log(alpha), and statistics; equation 14."""
    action, log_prob = sample(nets.actor(batch.observation), settings)
    quantiles = nets.critics(batch.observation, action)
    value = nn.sum(quantiles) / (settings.num_quantiles * settings.num_critics)
    return policy_loss(value, log_prob, batch, nets, settings)


# ---------------------------------------------------------------- settings


@dataclasses.dataclass(frozen=True)
class TQCConfig(SACConfig):
    """Hyper-parameters of TQC: those of `SACConfig`, and these.

    Attributes:
        num_critics: M.
        num_quantiles: N, of each critic.
        dropped: quantiles for each critic that no target has, the largest of all: more of them are
            against overestimation, and fewer against the opposite. 0 drops none.
    """

    num_critics: int = setting(2, range(1, 65), made_with=True)
    num_quantiles: int = setting(25, range(1, 2**12), made_with=True)
    dropped: int = setting(2, range(2**12), made_with=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropped >= self.num_quantiles:
            raise ValueError(
                f"dropped={self.dropped}: expected fewer than num_quantiles={self.num_quantiles}"
            )


def with_quantiles(config: SACConfig, **changes: Any) -> TQCConfig:
    """Return settings of SAC as those of TQC, with changes."""
    return TQCConfig(**(vars(config) | changes))


#: rl-baselines3-zoo's settings of Pendulum-v1, for comparisons; learn 20,000 steps.
ZOO_PENDULUM = with_quantiles(sac.ZOO_PENDULUM)
#: For environments that nobody has tuned.
GENERAL = with_quantiles(sac.GENERAL)
GENERAL_SYMBOLS = with_quantiles(sac.GENERAL_SYMBOLS)
DEFAULTS: dict[str, TQCConfig] = {
    **{id: with_quantiles(config) for id, config in sac.DEFAULTS.items()},
    # rl-baselines3-zoo's.
    "Hopper-v5": with_quantiles(sac.DEFAULTS["Hopper-v5"], dropped=5),
    # A leg touches the ground in one step of a hundred: its flag is far beyond the limit of others.
    "LunarLanderContinuous-v3": GENERAL.replace(
        {"clip_observations": math.inf, "learning_rate_schedule": "linear"}
    ),
}


# ---------------------------------------------------------------- the agent


@dataclasses.dataclass(frozen=True)
class _TQCArguments(TQCConfig, RoundsArguments):
    """Keyword arguments of `TQC`, for type checkers."""


class TQC(SAC):
    """SAC with critics of quantiles, of which the largest are dropped, for bounded `Box` actions.

    Arguments are those of `OffPolicy`; see `TQCConfig` for the settings.

    Example:
        >>> from rlcpu.train import TQC
        >>> agent = TQC("Pendulum-v1", seed=0, hidden=(32, 32))
        >>> agent.learn(1024).steps
        1024
    """

    algorithm = "TQC"
    Config = TQCConfig
    defaults: ClassVar[dict[str, Any]] = DEFAULTS
    general: ClassVar[dict[str, Any]] = {"numbers": GENERAL, "symbols": GENERAL_SYMBOLS}
    facts: ClassVar[dict[str, str]] = {**SAC.facts, **MIDPOINTS}
    config: TQCConfig

    if TYPE_CHECKING:

        @typed_by(_TQCArguments)
        def __init__(self, env: Env, **settings: Any) -> None: ...

    def _make_critics(self, seed: int) -> dict[str, Any]:
        """Return the one network of all critics."""
        config = self.config
        outputs = (config.num_quantiles,) * config.num_critics
        return {"critics": make_critic(self.env.dynamics, config, outputs, seed)}

    def targets(self) -> dict[str, str]:
        """Return the target; see `OffPolicy.targets`."""
        return {"target": "critics"}

    def updates(self) -> list[nn.Update]:
        """Return the losses; see `OffPolicy.updates`."""
        return [
            nn.Update(critic, ("critics",)),
            nn.Update(actor_and_temperature, self._learnt_by_actor),
        ]

    def settings(self) -> dict[str, Any]:
        """Return the settings; see `OffPolicy.settings`."""
        return {**super().settings(), "midpoints": midpoints(self.config.num_quantiles)}

    def _values_of(self, rollout: Rollout) -> Any:
        return critic_values(self, rollout, "critics")
