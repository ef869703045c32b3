"""Sequences of time steps of a rollout, from which networks with memory learn.

Sequences are samples, time step after time step; the networks' states before the first one; and
where episodes begin. Those of replay are in `rlcpu.train.replaying.replayed`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt

from rlcpu.envs.acting.running import RunsNetworks, states_of
from rlcpu.envs.rollout.results import Rollout

Array = npt.NDArray[Any]


class SampleSequences(NamedTuple):
    """Arguments of `Learner.update` that say how samples are sequences."""

    #: By name of a network with memory, its states before the first time step, (sequences, size).
    states: dict[str, Array]
    starts: Array  # (samples,), see `Learner.update`
    length: int  # time steps of a sequence
    # Sequences that lie side by side, see `rlcpu.nn.learning.settings.LearnerSettings`.
    abreast: int

    def options(self, minibatch_size: int) -> dict[str, Any]:
        """Return arguments of `Learner.update`, of minibatches rounded to whole sequences."""
        return {
            "minibatch_size": sequences_in(minibatch_size, self.length) * self.length,
            "sequence_length": self.length,
            "abreast": self.abreast,
            "states": self.states,
        }


def sequences_in(samples: int, length: int) -> int:
    """Return the number of sequences of a length that comes nearest to `samples`, one at least."""
    return max(round(samples / length), 1)


def sequences_of(
    rollout: Rollout, policy: RunsNetworks, length: int | None
) -> SampleSequences | None:
    """Return how the samples of a rollout are sequences of `length` steps, None for all its steps.

    The states of the policy that collected it are computed again before each sequence. None is
    returned for one without memory.
    """
    if rollout.states is None:
        return None
    num_steps, num_envs = rollout.rewards.shape
    length, states = length or num_steps, {}
    for name, network in policy.networks().items():
        if network.state_size:
            first_states = states_of(policy, name, rollout.states)
            if length < num_steps:
                inputs = policy.scaling.apply(rollout.inputs)
                # (T + 1, N, state_size), of which those before each sequence are taken.
                along = network.states_along(inputs, first_states, rollout.starts)
                first_states = along[:-1:length].reshape(-1, network.state_size)
            states[name] = first_states
    return SampleSequences(states, rollout.starts.ravel(), length, num_envs)


def check_length(config: Any, state_size: int) -> None:
    """Raise ValueError where `sequence_length` is set, and the network has no memory."""
    if config.sequence_length is not None and not state_size:
        length = config.sequence_length
        raise ValueError(f"sequence_length={length}: the network has no memory, expected None")
