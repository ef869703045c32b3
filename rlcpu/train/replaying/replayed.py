"""Replay of sequences, for agents whose networks have memory.

The buffer has time steps, each with the networks' states before it when it was collected. A
sequence that is drawn has T time steps in three parts (Kapturowski et al. 2019, "Recurrent
experience replay in distributed reinforcement learning"):

    burn_in          steps that only compute the state by the networks as they are now
    sequence_length  steps that are learnt from
    n_step           steps that only have the next values of n-step returns

Nothing is learnt from the last step of an episode that was truncated: its next observation is not
among the steps. `begins` is True where a step is the first of its episode, and the state is zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu import replay
from rlcpu.envs.acting.running import RunsNetworks
from rlcpu.envs.engine.observations import each_part
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.rollout.results import Rollout
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.nn.learning.learner import Learner
from rlcpu.nn.network.scaling import Scaling
from rlcpu.nn.tape.program import STARTS
from rlcpu.train.replaying.buffers import check_fields

Array = npt.NDArray[Any]


def length_of(config: Any) -> int:
    """Return the time steps of a sequence that is drawn."""
    length: int = config.burn_in + config.sequence_length + config.n_step
    return length


def example_with_memory(env: VectorEnv, state_size: int) -> dict[str, Any]:
    """Return one time step of an environment, as the example of a buffer of sequences."""
    example = example_of(env)
    if env.dynamics.num_masked:
        example["action_mask"] = example["next_action_mask"]
    names = "action_mask", "observation", "action", "reward", "terminated"
    fields = {name: example[name] for name in names if name in example}
    return {**fields, "begins": False, "state": np.zeros(state_size, np.float32)}


def make_buffer(example: Mapping[str, Any], config: Any, seed: int) -> Any:
    """Make the buffer of sequences of an `OffPolicyConfig`; neighbours overlap by half.

    `example` is one time step.
    """
    if config.replay in ("return", "hindsight"):
        reason = 'has no sequences: expected "uniform" or "prioritized"'
        raise ValueError(f'replay="{config.replay}" {reason}')
    is_prioritized, length = config.replay == "prioritized", length_of(config)
    kind = replay.PrioritizedTrajectoryBuffer if is_prioritized else replay.TrajectoryBuffer
    period = max(config.sequence_length // 2, 1)
    room = config.capacity // config.num_envs // period * period
    if room < length:
        raise ValueError(
            f"capacity={config.capacity}: expected room for burn_in + sequence_length + n_step = "
            f"{length} steps of {config.num_envs} environments"
        )
    return kind(config.num_envs, room, example, length, period=period, seed=seed)


def check_buffer(buffer: Any, env: VectorEnv, config: Any, example: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError unless a buffer holds sequences of steps like an example."""
    if not isinstance(buffer, replay.TrajectoryBuffer) or buffer.device != "cpu":
        raise TypeError(
            f"buffer={buffer!r}: expected a TrajectoryBuffer or PrioritizedTrajectoryBuffer on the "
            "CPU, for a network with memory"
        )
    if buffer.sequence_length != length_of(config):
        raise ValueError(
            f"buffer has sequence_length={buffer.sequence_length}: expected burn_in + "
            f"sequence_length + n_step = {length_of(config)}"
        )
    check_fields(buffer, example)
    if buffer.num_envs != env.num_envs:
        raise ValueError(f"buffer has num_envs={buffer.num_envs}: env has {env.num_envs}")


class Memories:
    """States of a learner's networks before each step of rollouts, for its buffer.

    The environments carry the state of the first network, by which the policy acts, from one
    rollout to the next; those of critics are carried here.
    """

    def __init__(self, learner: Learner, num_envs: int) -> None:
        self._learner = learner
        networks = dict(zip(learner.names, learner.networks, strict=True))
        for name in learner.targets:  # run from the states of the networks that they follow
            del networks[name]
        self._networks = {name: each for name, each in networks.items() if each.state_size}
        #: By name of a network with memory, how many numbers it remembers of an environment.
        self.sizes = {name: each.state_size for name, each in self._networks.items()}
        others = [*self.sizes.items()][1:]  # the policy acts by the first
        #: States of these (N, size) before the next step.
        self.carried = {name: np.zeros((num_envs, size), np.float32) for name, size in others}

    def state(self) -> Mapping[str, Array]:
        """Return its arrays, by name, for checkpoints."""
        return self.carried

    def split(self, states: Array) -> dict[str, Array]:
        """Return states (n, sum of sizes) of the buffer by the names of networks."""
        ends = np.cumsum([*self.sizes.values()])
        return dict(zip(self.sizes, np.split(states, ends[:-1], axis=1), strict=True))

    def along(self, first: Array, observations: Array, actions: Array, begins: Array) -> Array:
        """Return the states (T, N, sum of sizes) of all networks before each step of a rollout.

        `first` (N, size) is the first network's state before it. Observations (T, N, any) and
        actions (T, N, any) are as networks see them; `begins` (T, N) are first steps of episodes.
        Carried states are overwritten with those after the rollout.
        """
        states = []
        self._learner.write_networks(self.carried)  # critics as learnt; the policy's is up to date
        for name, network in self._networks.items():
            state = self.carried.get(name, first)
            if name not in self.carried and len(begins) == 1:
                states.append(first[None])  # before the only step
                continue
            along = network.states_along(_inputs_of(network, observations, actions), state, begins)
            states.append(along[:-1])
            if name in self.carried:
                state[:] = along[-1]
        return np.concatenate(states, axis=2)


def _inputs_of(network: Any, observations: Array, actions: Array) -> Any:
    """Return a network's inputs (T, N, any), by name if there are several.

    A network whose inputs have more numbers than observations takes actions too, behind these.
    """
    sizes, inputs = network.input_sizes, observations
    if sum(sizes.values()) > observations.shape[2]:
        inputs = np.concatenate([observations, actions], axis=2)
    if len(sizes) == 1:
        return inputs
    ends = np.cumsum([*sizes.values()])
    return dict(zip(sizes, np.split(inputs, ends[:-1], axis=2), strict=True))


def steps_of(
    rollout: Rollout, policy: RunsNetworks, memories: Memories, scaling: Scaling | None
) -> dict[str, Array]:
    """Return a policy's rollout as fields of a buffer of sequences, arrays (T, N, ...).

    `scaling` is that by which networks see actions; None for choices.
    """
    shape = rollout.rewards.shape
    assert rollout.states is not None
    begins = rollout.starts  # a new array, (T, N) bools
    # In the first row it tells where nothing is remembered: also after a reset by the user, and
    # after steps of another policy.
    begins[0] = ~rollout.states.any(axis=1)
    observations = policy.scaling.apply(rollout.inputs)
    actions = rollout.actions.reshape(*shape, -1)
    if scaling is not None:
        actions = scaling.apply(actions)
    states = memories.along(rollout.states, observations, actions, begins)
    columns = rollout.transitions(("observation", "action", "reward"), packed=True)
    columns["reward"] = columns["reward"].astype(np.float32, copy=False)
    shaped = {
        name: each_part(lambda array: array.reshape(*shape, *array.shape[1:]), column)
        for name, column in columns.items()
    }
    if rollout.action_masks is not None:
        shaped["action_mask"] = rollout.action_masks
    return {**shaped, "terminated": rollout.terminated, "begins": begins, "state": states}


class SequenceTargets(NamedTuple):
    """Parts of the n-step returns of sequences, arrays (T, B) float32."""

    reward: Array  # sum of discounted rewards in front of the next value
    discount: Array  # of the next value
    terminated: Array  # 1 where there is no next value
    ahead: Array  # steps until the next value
    is_learnt: Array  # 1 where the step is learnt from


def targets_of(rewards: Array, terminated: Array, begins: Array, config: Any) -> SequenceTargets:
    """Return the n-step returns of sequences (T, B), and how far ahead their values are.

        R = sum of gamma^k r_{t+k} for k below m, followed by gamma^m V(s_{t+m})

    m is n, or less where the episode ends before: then the return ends with the last step of an
    episode that terminated, and in front of the last step of one that was truncated.

    Args:
        rewards: (T, B) float32.
        terminated: (T, B) bools.
        begins: (T, B) bools, first steps of episodes.
        config: `burn_in`, `sequence_length`, `n_step` and `gamma`.
    """
    first, length, n = config.burn_in, config.sequence_length, config.n_step
    targets = SequenceTargets(
        *(np.zeros(rewards.shape, np.float32) for _ in SequenceTargets._fields)
    )
    learnt = SequenceTargets(*(each[first : first + length] for each in targets))  # views
    learnt.discount[:], learnt.is_learnt[:] = 1.0, 1.0
    continues = np.ones(learnt.reward.shape, np.bool_)
    for k in range(n):  # add step t + k to the returns of all steps t at once
        step, next_step = (slice(first + j, first + j + length) for j in (k, k + 1))
        is_truncated = continues & begins[next_step] & ~terminated[step]
        if k == 0:
            learnt.is_learnt[is_truncated] = 0.0
        continues &= ~is_truncated
        counts = continues & (learnt.discount != 0.0)  # else no reward is a term, NaN neither
        terms = np.zeros_like(learnt.reward)
        learnt.reward[...] += np.multiply(learnt.discount, rewards[step], where=counts, out=terms)
        learnt.discount[continues] *= np.float32(config.gamma)
        learnt.ahead[continues] += 1.0
        learnt.terminated[continues & terminated[step]] = 1.0
        continues &= ~terminated[step]
    return targets


def starts_of(begins: Array, burn_in: int) -> Array:
    """Return the column `starts` (T, B) of sequences, see `Learner.update`.

    It is 1 where an episode begins, and -1 behind the burn-in, into which no derivative goes back.
    """
    starts = begins.astype(np.float32)
    if burn_in:
        starts[burn_in] = np.where(begins[burn_in], 1.0, -1.0)
    return starts


def columns_of(
    batch: Any, config: Any, further: Iterable[str] = ()
) -> tuple[dict[str, Array], SequenceTargets]:
    """Return columns (T * B, ...) of a batch of sequences, all but observations; and its targets.

    `further` names columns that the batch has beside the usual ones.

    Weights are those of the batch, and 0 for steps that are not learnt from, scaled so that the
    mean of a weighted loss over all steps is its mean over `sequence_length` steps of each.
    """
    targets = targets_of(batch["reward"], batch["terminated"], batch["begins"], config)
    weights = targets.is_learnt * np.float32(len(targets.reward) / config.sequence_length)
    if batch.weights is not None:
        weights *= batch.weights
    columns = {
        **{name: getattr(targets, name) for name in ("reward", "discount", "terminated", "ahead")},
        "action": batch["action"],
        "weight": weights,
        STARTS: starts_of(batch["begins"], config.burn_in),
        **{name: batch[name] for name in further},
    }
    if "action_mask" in batch.data:
        columns["action_mask"] = batch["action_mask"]
    flat = {name: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for name, x in columns.items()}
    return flat, targets


def priorities_of(errors: Array, is_learnt: Array, eta: float) -> Array:
    """Return priorities (B,) of sequences from the temporal differences (T, B) of their steps.

        p = eta * max |error| + (1 - eta) * mean |error|

    over the steps that are learnt from (`is_learnt`, (T, B), is 1).

    Source: Kapturowski et al. 2019, section 2.3.
    """
    sizes = np.abs(errors) * is_learnt
    counts = np.maximum(is_learnt.sum(axis=0), 1.0)
    priorities: Array = eta * sizes.max(axis=0) + (1.0 - eta) * sizes.sum(axis=0) / counts
    return priorities
