"""PPO's objective: scalar losses, and the learner that minimises them.

    loss = mean(surrogate) - entropy_coefficient * mean(entropy) + value_coefficient * mean(error)

with the squared error of the value, without a factor 1/2: the conventions of stable-baselines3, so
that its published hyper-parameters mean the same here. Source: Schulman et al. 2017, "Proximal
policy optimization algorithms", equations 7 and 9.

In losses `nn.each` applies a scalar function to each sample; `nn.mean` is over the samples of a
minibatch, and `nn.standardise` brings a column to mean 0 and deviation 1 there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlcpu import nn
from rlcpu.envs.networks import MLP, NetworkPolicy
from rlcpu.nn.network import hidden_layers
from rlcpu.nn.program import STARTS
from rlcpu.train.config import PPOConfig
from rlcpu.train.sequences import SampleSequences

# ---------------------------------------------------------------- the paper's equations


def surrogate(
    log_prob: float, old_log_prob: float, advantage: float, clip: float
) -> tuple[float, float, float]:
    """Return the clipped surrogate loss of one sample.

    Args:
        log_prob: of the action.
        old_log_prob: the same when it was taken.
        advantage: how much better than expected the action was.
        clip: half-width of the range of ratios that are worth a gradient.

    Returns:
        Loss, divergence from the policy that collected, and 1 where the ratio has left its range.
        The divergence is estimated from one sample, and is never negative: J. Schulman 2020,
        "Approximating KL divergence", the estimator k3.
    """
    log_ratio = log_prob - old_log_prob
    ratio = math.exp(log_ratio)
    bounded = min(max(ratio, 1.0 - clip), 1.0 + clip)
    loss = -min(ratio * advantage, bounded * advantage)
    return loss, ratio - 1.0 - log_ratio, 1.0 if abs(ratio - 1.0) > clip else 0.0


def squared_error(value: float, target: float) -> float:
    """Return the squared distance of a value from its target."""
    return (value - target) ** 2


def distribution(outputs: Any, batch: Any, nets: Any, settings: Any) -> tuple[Any, Any]:
    """Return the log-probability of the actions that were taken, and the policy's entropy."""
    if settings.kind == "continuous":
        return nn.gaussian(outputs, nets.log_std, batch.action)
    if settings.kind == "choices":
        return nn.categoricals(outputs, batch.action, settings.choices)
    allowed = batch.action_mask if settings.kind == "masked" else None
    return nn.categorical(outputs, batch.action, allowed)


def ppo(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of PPO, and statistics; see above."""
    return loss_of(nets.policy(batch.observation), batch, nets, settings)


def loss_of(outputs: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of PPO for outputs of the policy's network, and statistics.

    Raises:
        ValueError: there are more or fewer outputs than the policy has.
    """
    if outputs.width != settings.num_outputs:
        raise ValueError(
            f"loss_of: outputs has {outputs.width} numbers of a sample, expected "
            f"{settings.num_outputs}; of a network with several outputs take one by its name"
        )
    if settings.is_shared:
        outputs, value = outputs[:-1], outputs[-1]
    else:
        value = nets.value(batch.observation)
    log_prob, entropy = distribution(outputs, batch, nets, settings)
    advantage = batch.advantage
    if settings.normalize_advantages:
        advantage = nn.standardise(advantage)
    policy, kl, clipped = nn.each(
        surrogate, log_prob, batch.old_log_prob, advantage, settings.clip, results=3
    )
    error = nn.each(squared_error, value, batch.target)
    bonus, weight = settings.entropy_coefficient, settings.value_coefficient
    loss = nn.mean(policy - bonus * entropy + weight * error)
    statistics = {"policy": policy, "value": error, "entropy": entropy, "kl": kl}
    return loss, {**statistics, "clip_fraction": clipped}


# ---------------------------------------------------------------- the learner


class Losses(NamedTuple):
    """Means over the minibatches of an update.

    Attributes:
        policy: clipped surrogate loss.
        value: mean squared error of the values, without coefficient.
        entropy: of the policy, in nats.
        kl: estimated divergence from the policy that collected, in nats.
        clip_fraction: share of the samples whose ratio had left the clip range.
        gradient_norm: before it is clipped.
        num_gradients: gradient steps taken.
    """

    policy: float = np.nan
    value: float = np.nan
    entropy: float = np.nan
    kl: float = np.nan
    clip_fraction: float = np.nan
    gradient_norm: float = np.nan
    num_gradients: int = 0


class Updater(nn.Learner):
    """Improves a policy and its value from batches of samples.

    Args:
        policy: an `MLP` or `NetworkPolicy` with a value; its arrays are written after each update.
        config: hyper-parameters, which are settings of the algorithm.
        seed, num_threads: see `Learner`.
        masked: whether samples have action masks.
        choices: of each number of a `MultiDiscrete`; () for other actions.
        networks, algorithm: in the place of PPO's, see `Learner`.
        columns: further ones of the batch, and how many numbers of a sample each has.
        losses: NamedTuple of the statistics that `improve` returns.

    Attributes:
        kind: of actions, "discrete", "masked", "continuous" or the choices, as "3 2": what the
            machine code of the algorithm's scalar functions depends on.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        config: PPOConfig,
        seed: int = 0,
        num_threads: int | None = None,
        masked: bool = False,
        choices: tuple[int, ...] = (),
        networks: Mapping[str, Any] | None = None,
        algorithm: Any = ppo,
        columns: Mapping[str, int] | None = None,
        losses: Any = Losses,
    ) -> None:
        self.policy, self.config, self._losses = policy, config, losses
        self._learnt_config = config  # at the last update
        self.kind = kind_of_actions(policy, masked, choices)
        is_discrete, is_shared = policy.log_std.size == 0, policy.value == "shared"
        num_outputs = policy.num_outputs - is_shared
        sizes = dict.fromkeys(("old_log_prob", "advantage", "target"), 1)
        sizes["observation"] = policy.num_inputs
        sizes["action"] = len(choices) or (1 if is_discrete else num_outputs)
        if masked:
            sizes["action_mask"] = num_outputs
        settings = {
            **vars(config),
            "kind": "choices" if choices else self.kind,
            "choices": choices,
            "is_shared": is_shared,
            "clip": 0.2,  # each update has its own
            "num_outputs": policy.num_outputs,
        }
        super().__init__(
            networks or networks_of(policy),
            algorithm,
            columns={**sizes, **(columns or {})},
            settings=settings,
            seed=seed,
            num_threads=num_threads,
        )

    def read_policy(self) -> None:
        """Read the policy's present parameters, which may be in other arrays than before."""
        present = networks_of(self.policy)
        for name, network in present.items():
            if name in self.arrays:
                self.arrays[name] = network
            else:
                self.networks[self.names.index(name)].parameters = network.parameters
        self.read_networks(present)

    def improve(
        self,
        columns: Mapping[str, Any],
        learning_rate: float,
        clip: float,
        sequences: SampleSequences | None = None,
    ) -> Any:
        """Learn from S samples of a rollout, and write the policy.

        Args:
            columns: "observation" (S, observation_size), or the ones among zeros; "action" (S,) of
                a `Discrete`, (S, choices) of a `MultiDiscrete` or (S, action_size) of a `Box`, as
                rollouts have it;
                "old_log_prob", "advantage" and "target", the return to learn the value from, (S,);
                with masks "action_mask" (S, num_actions); and further ones.
            learning_rate: of this update.
            clip: half-width of the clip range in this update.
            sequences: how the samples are sequences, for networks with memory.

        Raises:
            KeyError, ValueError, FloatingPointError: see `Learner.update`.
        """
        config = self.config
        options: dict[str, Any] = {"minibatch_size": config.minibatch_size}
        if sequences is not None:
            columns = {**columns, STARTS: sequences.starts}
            options = sequences.options(config.minibatch_size)
        changed = {} if config is self._learnt_config else vars(config)
        self._learnt_config = config
        if self.policy.scale_actions:  # learnt are the numbers that were drawn
            head = self.policy.head
            columns = {**columns, "action": (columns["action"] - head.center) / head.half}
        report: dict[str, Any] = self.update(
            columns,
            learning_rate=learning_rate,
            settings={**changed, "clip": clip},
            normalise={"observation": self.policy.scaling},
            shuffle=True,
            epochs=config.num_epochs,
            **options,
            max_gradient_norm=config.max_gradient_norm,
            epsilon=config.adam_epsilon,
            stop_above=None if config.target_kl is None else ("kl", 1.5 * config.target_kl),
        )
        return self._losses._make(report[name] for name in self._losses._fields)


def kind_of_actions(policy: NetworkPolicy, masked: bool, choices: tuple[int, ...]) -> str:
    """Return the kind of a policy's actions, see `Updater.kind`."""
    if policy.log_std.size:
        return "continuous"
    if choices:
        return " ".join(map(str, choices))
    return "masked" if masked else "discrete"


def networks_of(policy: Any, hidden: bool = False) -> dict[str, Any]:
    """Return a policy's networks and arrays, as `Learner` takes them.

    Args:
        policy: a `NetworkPolicy`; with `hidden` an `MLP`.
        hidden: whether `nets.policy(x)` gives, beside `outputs`, units of the last `hidden` layer.

    Raises:
        ValueError: `hidden` for another policy, or for an `MLP` without hidden layers.
    """
    networks: dict[str, Any] = dict(policy.networks())
    if hidden:
        if not isinstance(policy, MLP) or len(policy.sizes) < 3:
            raise ValueError(
                f"hidden=True, and policy is {policy!r}: expected an MLP with hidden layers; a "
                "policy of other layers has outputs of any name, see `NetworkPolicy`"
            )
        size, *sizes = policy.sizes.tolist()
        units = hidden_layers(sizes[:-1], policy.activation)
        graphs = {"outputs": units >> nn.Dense(sizes[-1]), "hidden": units}
        networks["policy"] = nn.Network(size, graphs, parameters=policy.parameters)
    return {**networks, "log_std": policy.log_std} if policy.log_std.size else networks
