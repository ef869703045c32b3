"""Critics of SAC, TD3 and DDPG, and the values that they learn.

Critics learn the value of the transitions that were stored,

    y = r + discount * (min_k Q'_k(s', a') - alpha * log pi(a'|s')),     a' ~ pi(.|s')
    loss = mean(weight * sum_k (Q_k(s, a) - y)**2 / 2)

where primes are targets; alpha is 0 for TD3 and DDPG. All networks see actions as numbers in
[-1, 1]; a number of an action that cannot change is 0. With memory (`settings.remembers`) samples
are sequences, see `rlcpu.train.replaying.replayed`: there are no next observations, next values are
those of later time steps, and weights are 0 for time steps that are not learnt from, also in
actors' losses.

In losses `nn.each` applies a scalar function to each sample, `nn.mean` is over the samples,
`nn.hold` lets no derivative through, and `nn.ahead` takes values of so many time steps later.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from rlcpu import nn
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.rollout.results import Rollout
from rlcpu.nn.network.graph import perceptron
from rlcpu.train.off_policy import OffPolicyConfig
from rlcpu.train.settings.presets import network_of_critic


def soft_bootstrap(
    reward: float, discount: float, terminated: bool, value: float, log_prob: float, alpha: float
) -> float:
    """Return y, the target of a value; Haarnoja et al. 2018, equations 3 and 8."""
    return reward if terminated else reward + discount * (value - alpha * log_prob)


def least(value: float, other: float) -> float:
    """Return the smaller of two values."""
    return min(value, other)


def size_of(error: float) -> float:
    """Return the size of a temporal difference."""
    return abs(error)


def next_of(batch: Any, settings: Any) -> Any:
    """Return the observations of which next values are computed; of sequences all there are."""
    return batch.observation if settings.remembers else batch.next_observation


def to_next(value: Any, batch: Any, settings: Any) -> Any:
    """Return for each sample the value of its next observation, from values of `next_of`."""
    return nn.ahead(value, batch.ahead) if settings.remembers else value


def actor_mean(value: Any, batch: Any, settings: Any) -> Any:
    """Return the mean of an actor's loss over the samples that are learnt from."""
    return nn.mean(batch.weight * value if settings.remembers else value)


def least_value(critics: Any, observation: Any, action: Any) -> Any:
    """Return min_k Q_k(s, a)."""
    values = [critic(observation, action) for critic in critics]
    return values[0] if len(values) == 1 else nn.each(least, *values)


def critics_loss(batch: Any, critics: Any, target: Any) -> Any:
    """Return the critics' loss, see above, and statistics: means of values and sizes of errors."""
    values = [critic(batch.observation, batch.action) for critic in critics]
    errors = [value - nn.hold(target) for value in values]
    sizes = [nn.each(size_of, nn.hold(error)) for error in errors]
    loss = nn.mean(0.5 * batch.weight * total([error * error for error in errors]))
    count = len(critics)
    return loss, {"q_value": total(values) / count, "error": total(sizes) / count}


def total(numbers: list[Any]) -> Any:
    """Return the sum of numbers of a tape, without the 0 that `sum` begins with."""
    return functools.reduce(operator.add, numbers)


def make_critics(
    dynamics: Dynamics, config: OffPolicyConfig, count: int, seed: int
) -> dict[str, nn.Network]:
    """Return critics of observation and action by name, each from another seed."""
    return {
        f"critic{k}": make_critic(dynamics, config, (1,), seed + k - 1) for k in range(1, count + 1)
    }


def make_critic(
    dynamics: Dynamics, config: OffPolicyConfig, outputs: tuple[int, ...], seed: int
) -> nn.Network:
    """Return a network of observation and action that is several critics, of so many outputs.

    They share nothing but their inputs; outputs of all are one after the other.
    """
    if config.network != "mlp":
        return network_of_critic(config, dynamics, outputs, seed)
    inputs = dynamics.observation_size + dynamics.action_size
    critics = [perceptron((inputs, *config.hidden, size), config.activation) for size in outputs]
    if len(critics) == 1:
        return nn.Network((inputs, *config.hidden, *outputs), config.activation, seed=seed)
    return nn.Network(inputs, nn.Concatenate(*critics), seed=seed)


def critic_values(agent: Any, rollout: Rollout, name: str = "critic1") -> Any:
    """Return values of what was done in a rollout, (T, N) float32; None of one with memory.

    They are means of the outputs of the network `name`.
    """
    learner, policy, size = agent.learner, agent.policy, rollout.rewards.size
    network = dict(zip(learner.names, learner.networks, strict=True)).get(name)
    if network is None or network.state_size:
        return None
    learner.write_networks([name])  # which nobody needs while it learns
    observations = policy.scaling.apply(rollout.inputs.reshape(size, -1))
    half = np.where(policy.half > 0, policy.half, 1.0)
    actions = ((rollout.actions - policy.center) / half).reshape(size, -1)
    inputs: Any = {"observation": observations, "action": actions}
    if len(network.input_sizes) == 1:
        inputs = np.concatenate([observations, actions], axis=1)
    return network.outputs(inputs).mean(axis=1).reshape(rollout.rewards.shape)


#: Facts of agents with bounded actions, see `rlcpu.train.algorithm.Algorithm.facts`.
FACTS = {
    "movable": "1.0 for each number of an action whose bounds differ, 0.0 for the others",
    "center": "middle of the bounds of each number of an action",
    "inverse_half": "one over half of the width of its bounds, 0.0 where they are the same",
}


def facts_of(center: Any, half: Any) -> dict[str, Any]:
    """Return the facts on bounded actions, `FACTS`, of the middle and half widths of bounds."""
    movable = np.asarray(half) > 0
    inverse = np.divide(1.0, half, out=np.zeros(len(half)), where=movable)
    return {"movable": movable.astype(float), "center": center, "inverse_half": inverse}


def scaled_action(batch: Any, settings: Any) -> Any:
    """Return the actions of a batch as numbers in [-1, 1], as networks get them."""
    return (batch.action - settings.center) * settings.inverse_half
