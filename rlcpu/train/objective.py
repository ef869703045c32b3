"""PPO's objective: two scalar losses, and the learner that minimises them.

    loss = mean(surrogate) - entropy_coefficient * mean(entropy) + value_coefficient * mean(error)

with the squared error of the value, without a factor 1/2: the conventions of stable-baselines3, so
that its published hyper-parameters mean the same here. Source: Schulman et al. 2017, "Proximal
policy optimization algorithms", equations 7 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.networks import MLP
from rlcpu.nn.heads import categorical, categoricals, gaussian, masked_categorical, outputs
from rlcpu.nn.learner import Learner
from rlcpu.nn.losses import Loss
from rlcpu.nn.network import Network
from rlcpu.nn.ones import Ones
from rlcpu.train.config import PPOConfig

Array = npt.NDArray[Any]
#: What the losses read of a sample, beside its action.
COLUMNS = ("old_log_prob", "advantage", "target")


class Weights(NamedTuple):
    """Coefficients of the losses; see `PPOConfig`."""

    clip: float
    entropy: float


def surrogate(numbers: Any, sample: Any, weights: Any) -> tuple[float, Any]:
    """Clipped surrogate loss of one sample, less the bonus for entropy.

    Args:
        numbers: log-probability of the action, entropy.
        sample: `advantage`, how much better than expected the action was, and `old_log_prob`, its
            log-probability when it was taken.
        weights: half-width of the range of ratios that are worth a gradient, and the bonus.

    Returns:
        Loss, and the statistics `policy`, `entropy`, `kl` and `clip_fraction`. The
        divergence is estimated from one sample, and is never negative: J. Schulman 2020,
        "Approximating KL divergence", the estimator k3.
    """
    log_prob, entropy = numbers
    log_ratio = log_prob - sample.old_log_prob
    ratio = math.exp(log_ratio)
    bounded = min(max(ratio, 1.0 - weights.clip), 1.0 + weights.clip)
    gain, bounded_gain = ratio * sample.advantage, bounded * sample.advantage
    policy = -min(gain, bounded_gain)
    clipped = 1.0 if abs(ratio - 1.0) > weights.clip else 0.0
    statistics = policy, entropy, ratio - 1.0 - log_ratio, clipped
    return policy - weights.entropy * entropy, statistics


def value(numbers: Any, sample: Any, weights: Any) -> tuple[float, Any]:
    """Squared error of the value, which is to be the sample's `target`."""
    error = numbers[0] - sample.target
    return error * error, ()


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


class Batch(NamedTuple):
    """S samples of a rollout.

    Attributes:
        observations: (S, observation_size) float32, or the ones among zeros.
        actions: (S,) int64 of `Discrete` or (S, action_size) float32 of `Box`; with action masks
            (S, 1 + num_actions) int64, see `rlcpu.nn.heads.Head`; of `MultiDiscrete` (S, choices)
            int64.
        log_probs, advantages, targets: (S,) float32; targets are returns to learn the value from.
    """

    observations: Array | Ones
    actions: Array
    log_probs: Array
    advantages: Array
    targets: Array


class Updater(Learner):
    """Improves a policy and its value from batches of samples.

    Args:
        policy: an `MLP` with a value; its arrays are written after each update.
        config: hyper-parameters.
        seed, num_threads: see `Learner`.
        masked: whether samples have action masks.
        choices: of each number of a `MultiDiscrete`; () for other actions.

    Attributes:
        kind: of actions, "discrete", "masked", "continuous" or the choices, as "3 2": what the
            machine code depends on.
    """

    def __init__(
        self,
        policy: MLP,
        config: PPOConfig,
        seed: int = 0,
        num_threads: int | None = None,
        masked: bool = False,
        choices: tuple[int, ...] = (),
    ) -> None:
        self.policy, self.config = policy, config
        discrete, separate = policy.log_std.size == 0, policy.value == "separate"
        self.kind = ("masked" if masked else "discrete") if discrete else "continuous"
        self.kind = " ".join(map(str, choices)) or self.kind
        statistics = ("policy", "entropy", "kl", "clip_fraction")
        actions = int(policy.sizes[-1]) - (not separate)
        heads = {"discrete": categorical, "masked": masked_categorical, "continuous": gaussian}
        head = categoricals(choices) if choices else heads[self.kind]
        super().__init__(
            _networks(policy),
            [
                Loss(surrogate, head, statistics, size=actions),
                Loss(value, outputs(), network=int(separate), first=-1),
            ],
            columns=COLUMNS,
            actions=np.int64 if discrete else np.float32,
            weights=Weights(0.0, 0.0),
            seed=seed,
            num_threads=num_threads,
        )

    def read_networks(self, numbers: Sequence[int] | None = None) -> None:
        """Take the policy's present parameters over, be they in other arrays than before."""
        self.networks = _networks(self.policy)
        super().read_networks(numbers)

    def improve(self, batch: Batch, learning_rate: float, clip: float) -> Losses:
        """Learn from a batch, and write the policy.

        Args:
            batch: S samples.
            learning_rate: of this update.
            clip: half-width of the clip range in this update.

        Raises:
            FloatingPointError: see `Learner.update`.
        """
        config = self.config
        report: dict[str, Any] = self.update(
            batch.observations,
            dict(zip(COLUMNS, batch[2:], strict=True)),
            batch.actions,
            learning_rate=learning_rate,
            weights=Weights(clip, config.entropy_coefficient),
            scales=(1.0, config.value_coefficient),
            epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            max_gradient_norm=config.max_gradient_norm,
            epsilon=config.adam_epsilon,
            normalize="advantage" if config.normalize_advantages else None,
            stop_above=None if config.target_kl is None else ("kl", 1.5 * config.target_kl),
            mean=self.policy.observation_mean,
            scale=self.policy.observation_scale,
        )
        return Losses._make(report[name] for name in Losses._fields)


def _networks(policy: MLP) -> list[Network]:
    """A policy as what is learnt: one network, or two."""
    activation = policy.activation
    networks = [
        Network(policy.sizes, activation, parameters=policy.parameters, free=policy.log_std)
    ]
    if policy.value == "separate":
        values = policy.value_parameters
        networks.append(Network(policy.value_sizes, activation, parameters=values))
    return networks
