"""Behaviour cloning: a policy that acts as the actions of a buffer say, by supervised learning.

    loss = -mean(log p(a | s)), p = softmax(f(s))       of a `Discrete`: cross-entropy
    loss = mean(|tanh(f(s)) - a|**2)                    of a `Box`, actions in [-1, 1]

The second is, up to a factor, the same likelihood of a Gaussian with one fixed deviation. No
reward is read, and nothing is collected: the policy is no better than what it is shown, and where
it leaves the states that were shown, errors add up (Ross et al. 2011, "A reduction of imitation
learning and structured prediction to no-regret online learning").

Source: Pomerleau 1991, "Efficient training of artificial neural networks for autonomous
navigation".
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from gymnasium.spaces import Discrete

from rlcpu import nn
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.train.critics import FACTS, facts_of, scaled_action
from rlcpu.train.off_policy import OffPolicy, OffPolicyConfig
from rlcpu.train.running.actors import Actor, EpsilonGreedy
from rlcpu.train.settings.arguments import Env, RoundsArguments, typed_by
from rlcpu.train.td3 import Noisy

# ---------------------------------------------------------------- the equations


def distance(output: float, action: float) -> float:
    """Return the squared distance of a number of the policy's action from that of the buffer."""
    return (math.tanh(output) - action) ** 2


def cloning(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of the policy, and that of each sample; see above."""
    outputs = nets.policy(batch.observation)
    if settings.kind == "discrete":
        error = -nn.take(nn.log_softmax(outputs), batch.action)
    else:
        error = nn.sum(nn.each(distance, outputs, scaled_action(batch, settings)))
    loss = nn.mean(batch.weight * error)
    return loss, {"loss": loss, "error": error}


# ---------------------------------------------------------------- settings


@dataclasses.dataclass(frozen=True)
class BCConfig(OffPolicyConfig):
    """Hyper-parameters of BC: those of `OffPolicyConfig`, of which collecting ones mean nothing."""

    batch_size: int = 128
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (64, 64)
    normalize_observations: bool = True


# ---------------------------------------------------------------- the agent


@dataclasses.dataclass(frozen=True)
class _BCArguments(BCConfig, RoundsArguments):
    """Keyword arguments of `BC`, for type checkers."""


class BC(OffPolicy):
    """An agent that imitates the actions of a buffer, for `Discrete` and bounded `Box` actions.

    Arguments are those of `OffPolicy`; `rlcpu.train.buffer_of_episodes` makes a buffer of recorded
    arrays, and that of another agent will do. It learns by `learn_offline` alone, and acts without
    drawing.

    Example:
        >>> from rlcpu.train import BC, buffer_of_episodes
        >>> states = np.tile(np.eye(4), (50, 1))
        >>> shown = {"observations": states, "actions": np.ones(200, int)}
        >>> agent = BC("CartPole-v1", buffer=buffer_of_episodes("CartPole-v1", [shown]))
        >>> agent.learn_offline(500).loss < 0.1
        True
        >>> agent.predict(np.zeros(4)).item()
        1
    """

    algorithm = "BC"
    reported: ClassVar[tuple[str, ...]] = ("loss",)
    Config = BCConfig
    general: ClassVar[dict[str, BCConfig]] = {
        "numbers": BCConfig(),
        "symbols": BCConfig(normalize_observations=False),
    }
    facts: ClassVar[dict[str, str]] = {**OffPolicy.facts, **FACTS}
    config: BCConfig
    policy: Actor

    if TYPE_CHECKING:

        @typed_by(_BCArguments)
        def __init__(self, env: Env, **settings: Any) -> None: ...

    def _make_policy(self, dynamics: Dynamics, seed: int) -> Actor:
        config = self.config
        kind: Any = EpsilonGreedy if isinstance(dynamics.action_space, Discrete) else Noisy
        policy: Actor = kind(dynamics, config.hidden, config.activation, seed=seed)
        policy.use_layers(config, dynamics, seed)
        return policy

    def networks(self, seed: int) -> dict[str, Any]:
        """Return the network."""
        return {"policy": self.policy.network}

    def updates(self) -> list[nn.Update]:
        """Return the loss."""
        return [nn.Update(cloning, ("policy",))]

    def settings(self) -> dict[str, Any]:
        """Return the settings; see `Algorithm.settings`."""
        center = half = np.zeros(0)
        if isinstance(self.policy, Noisy):
            center, half = self.policy.center, self.policy.half
        return {**super().settings(), **facts_of(center, half)}

    def explore(self) -> None:
        """Let the policy act without drawing."""
        self.policy.params[: getattr(self.policy, "num_exploring", 1)] = 0.0

    def learn(self, total_steps: int | float, **options: Any) -> NoReturn:
        """Refuse: BC takes no steps, `learn_offline` learns from the buffer."""
        raise ValueError(
            f"total_steps={total_steps!r}: BC takes no steps in environments, `learn_offline` "
            "learns from its buffer"
        )
