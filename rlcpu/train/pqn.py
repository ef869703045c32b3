"""Parallelised Q-network: Q-learning from fresh rollouts, without replay and target network.

    G_t  = r_t + gamma * ((1 - lambda) * max_a Q(s_{t+1}, a) + lambda * G_{t+1})        Q(lambda)
    loss = mean((Q(s, a) - G)**2)

with gamma = 0 where the episode terminated, and G_{t+1} = max_a Q(s_{t+1}, a) where it was cut off
and at the end of the rollout; max is over the actions that are allowed. What replay and target do
for DQN, many environments and LayerNorm do here: normalised layers bound how much a value changes.
Networks with memory learn from sequences of a rollout, with what was remembered before these.

Source: Gallici et al. 2024, "Simplifying deep temporal difference learning", algorithm 1 and
equation 10. Defaults, and what the paper leaves open (orthogonal weights, the loss without the
factor 1/2), are CleanRL's `pqn.py`; RAdam is that of both. Its authors' runs with memory
(purejaxql's `pqn_rnn_gymnax.py`) differ in that targets follow each minibatch, not each rollout.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Literal

import numpy as np

from rlcpu import nn
from rlcpu.envs.acting.running import run_sequences
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.rollout.collect import Rollout
from rlcpu.scan.recurrences.returns import lambda_returns
from rlcpu.train.in_rounds import Array, InRounds
from rlcpu.train.running.actors import EpsilonGreedy, check_discrete, forbid
from rlcpu.train.running.sequences import check_length, sequences_of
from rlcpu.train.settings.arguments import Env, RoundsArguments, typed_by
from rlcpu.train.settings.base import Schedule, Settings, check_divides
from rlcpu.train.settings.presets import Layers
from rlcpu.translation import answered

# ---------------------------------------------------------------- the paper's equations


def squared_error(value: float, target: float) -> float:
    """Return the squared distance of a value from its target."""
    return (value - target) ** 2


def pqn(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the mean squared error of the values of actions that were taken, and statistics."""
    value = nn.take(nets.online(batch.observation), batch.action)
    loss = nn.mean(nn.each(squared_error, value, batch.target))
    return loss, {"loss": loss, "q_value": value, "error": value - batch.target}


# ---------------------------------------------------------------- settings


@dataclasses.dataclass(frozen=True)
class PQNConfig(Settings):
    """Hyper-parameters of PQN: those of all `Settings`, and these. The optimiser is RAdam.

    Attributes:
        num_steps: T, steps of each environment in a rollout.
        num_epochs: how often an update sees each sample.
        minibatch_size: samples of a gradient step.
        lambda_: weight of the return against the value after one step, in [0, 1].
        layer_norm: whether hidden layers are normalised in front of their activation.

    Raises:
        TypeError, ValueError: a value of another type or outside of its range, with its name.
    """

    num_envs: int = 4
    num_steps: int = 128
    num_epochs: int = 4
    minibatch_size: int = 128
    learning_rate: float = 2.5e-4
    learning_rate_schedule: Schedule = "linear"
    gamma: float = 0.99
    lambda_: float = 0.65
    normalize_observations: bool = False
    clip_observations: float | None = None
    normalize_rewards: bool = False
    max_gradient_norm: float = 10.0
    adam_epsilon: float = 1e-8
    exploration_initial: float = 1.0
    exploration_final: float = 0.05
    exploration_schedule: Schedule = "linear"
    exploration_steps: int = 250_000
    network: str | Layers = "mlp"
    hidden: tuple[int, ...] = (120, 84)
    activation: Literal["relu", "tanh"] = "relu"
    layer_norm: bool = True
    sequence_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divides(self.sequence_length, self.num_steps)
        if not self.hidden:
            raise ValueError("hidden=(): expected one hidden layer at least")


# fmt: off
#: CleanRL's settings of CartPole-v1, for comparisons; learn 500,000 steps.
CLEANRL_CARTPOLE = PQNConfig()

#: For environments that nobody has tuned.
GENERAL = PQNConfig(
    num_envs=8, num_steps=16, minibatch_size=32, learning_rate=1e-3, exploration_steps=25_000,
    normalize_observations=True, normalize_rewards=True,
)
GENERAL_SYMBOLS = GENERAL.replace({"normalize_observations": False})
DEFAULTS: dict[str, PQNConfig] = {
    # A policy that never fails sees one state for a long time, and forgets what the others are
    # worth: the paper's authors go on exploring as much as this (`pqn_cartpole.yaml`).
    "CartPole-v1": CLEANRL_CARTPOLE.replace({"exploration_final": 0.2}),
    # Of the paper's authors (purejaxql's `pqn_minatar.yaml`), who learn for 10 million steps and
    # explore less and less for a tenth of them.
    "MinAtar/*": PQNConfig(
        num_envs=128, num_steps=32, num_epochs=2, learning_rate=5e-4, exploration_steps=1_000_000,
        network="conv", hidden=(128,),
    ),
}
# fmt: on


# ---------------------------------------------------------------- the agent


@dataclasses.dataclass(frozen=True)
class _PQNArguments(PQNConfig, RoundsArguments):
    """Keyword arguments of `PQN`, for type checkers."""


class PQN(InRounds):
    """An agent that learns the values of its actions from rollouts, for `Discrete` environments.

    Arguments and methods are those of `DQN`, but that there is no buffer: a round of `learn` is a
    rollout, and `num_epochs` epochs of minibatches of it. See `PQNConfig` for the settings.

    Example:
        >>> from rlcpu.train import PQN
        >>> agent = PQN("CartPole-v1", seed=0)
        >>> agent.learn(1024).steps
        1024
    """

    algorithm = "PQN"
    num_kernels = 26
    reported: ClassVar[tuple[str, ...]] = ("loss", "q_value")
    Config: ClassVar[Any] = PQNConfig
    defaults = DEFAULTS
    general: ClassVar[dict[str, PQNConfig]] = {"numbers": GENERAL, "symbols": GENERAL_SYMBOLS}
    config: PQNConfig
    policy: EpsilonGreedy
    _rollout: Rollout

    @typed_by(_PQNArguments)
    @answered
    def __init__(
        self,
        env: Env,
        *,
        seed: int = 0,
        num_threads: int | None = None,
        dtype: str = "float32",
        buffer: Any = None,
        config: Settings | None = None,
        **settings: Any,
    ) -> None:
        if buffer is not None:
            raise TypeError(f"buffer={buffer!r}: PQN learns from its rollouts, without a buffer")
        self._begin_rounds(env, config, settings, seed=seed, num_threads=num_threads, dtype=dtype)
        self._begin_history()

    def _make_policy(self, dynamics: Dynamics, seed: int) -> EpsilonGreedy:
        """Return the policy, with the network of the config."""
        check_discrete(dynamics)
        config = self.config
        policy = EpsilonGreedy(
            dynamics, config.hidden, config.activation, seed=seed, layer_norm=config.layer_norm
        )
        policy.use_layers(config, dynamics, seed)
        check_length(config, policy.network.state_size)
        return policy

    def networks(self, seed: int) -> dict[str, Any]:
        """Return the network."""
        return {"online": self.policy.network}

    def updates(self) -> list[nn.Update]:
        """Return the loss."""
        return [nn.Update(pqn, ("online",))]

    def _column_sizes(self) -> dict[str, int]:
        return {"observation": self.env.dynamics.observation_size, "action": 1, "target": 1}

    def _read_policy(self) -> None:
        self.learner.read_networks()

    def _values_of(self, rollout: Rollout) -> Array | None:
        return self.policy.values_of(rollout)

    def _store(self, rollout: Rollout) -> None:
        self._input_watch.add(rollout)

    def _can_improve(self) -> bool:
        return True

    def improve(self) -> Any:
        """Learn from a rollout; an exception leaves the learner as it was before."""
        rollout, config = self._rollout, self.config
        size, ones = rollout.rewards.size, rollout.ones
        columns = {
            **self.prepare_columns(rollout),
            "observation": rollout.inputs.reshape(size, -1) if ones is None else ones,
            "action": rollout.actions.ravel(),
            "target": self._targets(rollout).ravel(),
        }
        sequences = sequences_of(rollout, self.policy, config.sequence_length)
        if sequences is not None:  # states by the learner's names
            sequences = sequences._replace(states={"online": sequences.states["policy"]})
        saved = {name: array.copy() for name, array in self.learner.state().items()}
        try:
            report = self._learn_in_epochs(
                columns,
                sequences,
                **self._options(),
                settings=self._changed_settings(),
                rectified=True,  # RAdam
            )
        except BaseException:
            self.learner.discard()
            for name, array in self.learner.state().items():
                array[...] = saved[name]
            raise
        return self._losses_of(report)

    def _targets(self, rollout: Rollout) -> Array:
        """Return the targets of values, lambda-returns (T, N) float32."""
        values = self._values_after(rollout)
        targets: Array = lambda_returns(
            self._rewards_of(rollout),
            # Values of the observations before each step: the same, one step later. No return
            # reads the first.
            np.concatenate([values[:1], values[:-1]]),
            rollout.terminated,
            rollout.truncated,
            values[-1],
            gamma=self.config.gamma,
            lambda_=self.config.lambda_,
            final_values=values,
        )
        return targets

    def _values_after(self, rollout: Rollout) -> Array:
        """Return max_a Q(s_{t+1}, a) of the observations after each step, final ones too, (T, N).

        `a` is any action that the observation allows.
        """
        is_masked = self.env.dynamics.num_masked > 0
        names = ("next_observation", "next_action_mask") if is_masked else ("next_observation",)
        columns = rollout.transitions(names, as_inputs=True)
        if rollout.states is None:
            values = self.policy.outputs(columns["next_observation"])
        else:
            values = rollout.outputs_after(functools.partial(run_sequences, self.policy, "policy"))
            values = values.reshape(rollout.rewards.size, -1)
        if is_masked:
            masks = columns["next_action_mask"]
            # Where an episode terminated a mask may allow nothing, and no value counts.
            values = forbid(values, masks | ~masks.any(axis=1, keepdims=True))
        largest: Array = values.max(axis=1).reshape(rollout.rewards.shape)
        return largest
