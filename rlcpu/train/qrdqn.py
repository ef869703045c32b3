"""Quantile regression DQN: it learns the distribution of returns, not only their mean.

A network has N quantiles theta_i(s, a) of the return of each action, at the midpoints

    tau_i = (2 i - 1) / (2 N),   i = 1 ... N,

and the value of an action is their mean, Q(s, a) = mean_i theta_i(s, a), by which the agent acts:
the network's first output, a layer behind the quantiles. With the next action of DQN

    a* = argmax_a Q(s', a)       (double; else the argmax of Q' itself)
    y_j = r + discount * theta'_j(s', a*)
    loss = mean(weight * sum_i mean_j |tau_i - 1{y_j < theta_i(s, a)}| huber(theta_i(s, a), y_j))

where primes are of the target network, `discount` is gamma**n after n steps and 0 where the episode
terminated, and `weight` the importance weight of a prioritised sample, whose priority is the
temporal difference of values, as DQN's.

Source: Dabney et al. 2018, "Distributional reinforcement learning with quantile regression"
(equations 8 to 10, algorithm 1, kappa = 1). What it leaves open is stable-baselines3's, and what it
has in common with DQN is in `rlcpu.train.dqn`: double, dueling (whose values and advantages are
quantiles), n-step returns, priorities, action masks, and networks with memory.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlcpu import nn
from rlcpu.train import dqn
from rlcpu.train.dqn import DQN, DQNConfig, bootstrap, huber
from rlcpu.train.settings.arguments import Env, RoundsArguments, typed_by
from rlcpu.train.settings.base import setting
from rlcpu.train.settings.presets import Outputs

# ---------------------------------------------------------------- the paper's equations


#: A fact among the settings, see `rlcpu.train.algorithm.Algorithm.facts`.
MIDPOINTS = {"midpoints": "probabilities tau of the quantiles, (num_quantiles,)"}


def midpoints(num_quantiles: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the probabilities tau_i of quantiles (num_quantiles,); Dabney et al. 2018, lemma 2."""
    return (np.arange(num_quantiles) + 0.5) / num_quantiles


def quantile_huber(quantile: float, target: float, tau: float) -> float:
    """Return the loss of a quantile of probability tau for one target; equation 10, kappa = 1."""
    weight = abs(tau - (1.0 if target < quantile else 0.0))
    return weight * huber(quantile, target)


def qrdqn(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the weighted quantile Huber loss, and statistics; see above."""
    after, count = nets.target(batch.next_observation), settings.num_quantiles
    choosing = nets.online(batch.next_observation) if settings.double else after
    allowed = batch.next_action_mask if settings.is_masked else None
    best = nn.argmax(choosing.values, allowed=allowed)
    next_quantiles = nn.take(after.quantiles, best, count)
    return loss_of(nets.online(batch.observation), next_quantiles, batch, settings)


def qrdqn_of_sequences(batch: Any, nets: Any, settings: Any) -> Any:
    """Return what `qrdqn` returns, of sequences; see `rlcpu.train.dqn.dqn_of_sequences`."""
    now, after = nets.online(batch.observation), nets.target(batch.observation)
    choosing = now if settings.double else after
    allowed = batch.action_mask if settings.is_masked else None
    best = nn.argmax(choosing.values, allowed=allowed)
    next_quantiles = nn.ahead(nn.take(after.quantiles, best, settings.num_quantiles), batch.ahead)
    return loss_of(now, next_quantiles, batch, settings)


def loss_of(now: Any, next_quantiles: Any, batch: Any, settings: Any) -> Any:
    """Return the loss of the actions taken, and statistics.

    `now` are outputs for the observations, and `next_quantiles` theta'_j(s', a*).
    """
    count = settings.num_quantiles
    quantiles = nn.take(now.quantiles, batch.action, count)
    targets = nn.each(bootstrap, batch.reward, batch.discount, batch.terminated, next_quantiles)
    mean = nn.pairs(quantile_huber, quantiles, nn.hold(targets), settings.midpoints)
    loss = nn.mean(batch.weight * (count * mean))
    value = nn.take(now.values, batch.action)
    return loss, {"loss": loss, "q_value": value, "error": value - nn.sum(targets) / count}


# ---------------------------------------------------------------- settings


@dataclasses.dataclass(frozen=True)
class QRDQNConfig(DQNConfig):
    """Hyper-parameters of QR-DQN: those of `DQNConfig`, and these.

    Attributes:
        num_quantiles: N, of the return of each action.
    """

    num_quantiles: int = setting(50, range(1, 2**12), made_with=True)


def with_quantiles(config: DQNConfig, num_quantiles: int, **changes: Any) -> QRDQNConfig:
    """Return settings of DQN as those of QR-DQN, with changes."""
    return QRDQNConfig(**(vars(config) | changes), num_quantiles=num_quantiles)


#: rl-baselines3-zoo's settings of CartPole-v1, for comparisons; learn 50,000 steps. All but the
#: quantiles are those of its DQN.
ZOO_CARTPOLE = with_quantiles(dqn.ZOO_CARTPOLE, 10)
#: For environments that nobody has tuned.
GENERAL = with_quantiles(dqn.GENERAL, 25)
GENERAL_SYMBOLS = with_quantiles(dqn.GENERAL_SYMBOLS, 25)
DEFAULTS: dict[str, QRDQNConfig] = {
    **{id: with_quantiles(config, 25) for id, config in dqn.DEFAULTS.items()},
    # The width of rl-baselines3-zoo's network: half of it takes more steps.
    "Acrobot-v1": with_quantiles(dqn.DEFAULTS["Acrobot-v1"], 25, hidden=(256, 256)),
    # With DQN's settings more carts drift off the track. Falling steps, a smaller n_step and a
    # wider network mend most of it; larger rewards and sb3-contrib's adam_epsilon did not.
    "CartPole-v1": with_quantiles(
        dqn.DEFAULTS["CartPole-v1"],
        25,
        hidden=(128, 128),
        n_step=3,
        gamma=0.995,
        learning_rate_schedule="linear",
    ),
}


# ---------------------------------------------------------------- the agent


@dataclasses.dataclass(frozen=True)
class _QRDQNArguments(QRDQNConfig, RoundsArguments):
    """Keyword arguments of `QRDQN`, for type checkers."""


class QRDQN(DQN):
    """An agent that learns quantiles of the returns of its actions, for `Discrete` environments.

    Arguments are those of `OffPolicy`; see `QRDQNConfig` for the settings.

    Example:
        >>> from rlcpu.train import QRDQN
        >>> agent = QRDQN("CartPole-v1", seed=0)
        >>> agent.learn(1024).steps
        1024
        >>> sorted(agent.policy.network.outputs(np.zeros((1, 4))))
        ['quantiles', 'values']
    """

    algorithm = "QRDQN"
    Config = QRDQNConfig
    defaults: ClassVar[dict[str, Any]] = DEFAULTS
    general: ClassVar[dict[str, Any]] = {"numbers": GENERAL, "symbols": GENERAL_SYMBOLS}
    facts: ClassVar[dict[str, str]] = {**DQN.facts, **MIDPOINTS}
    config: QRDQNConfig

    if TYPE_CHECKING:

        @typed_by(_QRDQNArguments)
        def __init__(self, env: Env, **settings: Any) -> None: ...

    def output_layers(self, num_actions: int) -> Outputs:
        """Return the layers of the values, which come first, and of the quantiles."""
        count, is_dueling = self.config.num_quantiles, self.config.dueling

        def outputs(hidden: nn.Graph) -> dict[str, nn.Graph]:
            quantiles = hidden >> nn.Dense((num_actions + is_dueling) * count, 1.0)
            if is_dueling:
                quantiles = quantiles >> nn.Dueling(num_actions)
            return {"values": quantiles >> nn.Means(num_actions), "quantiles": quantiles}

        return outputs

    def updates(self) -> list[nn.Update]:
        """Return the loss; see `OffPolicy.updates`."""
        return [nn.Update(qrdqn_of_sequences if self.state_size else qrdqn, ("online",))]

    def settings(self) -> dict[str, Any]:
        """Return the settings; see `OffPolicy.settings`."""
        return {**super().settings(), "midpoints": midpoints(self.config.num_quantiles)}
