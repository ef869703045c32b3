"""What an algorithm brings to an agent: networks, losses, and what it makes of them.

The methods without a leading underscore are those that a user's subclass overrides, see the page
"Your own algorithm". Of what they return the agent makes one `rlcpu.nn.Learner`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlcpu.envs.rollout.collect import Rollout
from rlcpu.kernels.checks import check_count
from rlcpu.nn.learning.learner import Learner, Update
from rlcpu.nn.tape.program import STARTS
from rlcpu.train.keeping.history import losses_type
from rlcpu.train.keeping.saved import SavedAgent
from rlcpu.train.running.sequences import SampleSequences

Array = npt.NDArray[Any]
#: Names of further columns that batches or buffers use for something else.
_FIELDS = STARTS, "truncated", "begins", "state"


class Algorithm(SavedAgent):
    """Base of `rlcpu.train.acting.ActingAgent`: the algorithm that an agent learns by."""

    #: Statistics of its algorithm that `history.losses` holds.
    reported: ClassVar[tuple[str, ...]]
    #: Facts in `settings` that are no fields of the config, by name, and their meaning.
    facts: ClassVar[Mapping[str, str]] = {
        "kind": 'of actions: "discrete", "choices" of a `MultiDiscrete`, or "continuous"',
        "num_actions": "actions of a `Discrete`; 0 of others",
        "choices": "of each number of a `MultiDiscrete`, a tuple; () of others",
        "action_size": "numbers of an action of a `MultiDiscrete` or `Box`; 0 of a `Discrete`",
        "is_masked": "whether the batch has action masks",
        "observation_size": "numbers of an observation, as networks get it",
        "remembers": "whether the policy has memory, and the batch is of sequences",
    }
    #: Kernels that an agent of usual settings needs.
    num_kernels: ClassVar[int]
    #: Statistics of each sample that the learner writes, see `rlcpu.nn.Learner`.
    _per_sample: ClassVar[tuple[str, ...]] = ()
    _learnt_config: Any  # at the last update

    def _make_policy(self, dynamics: Any, seed: int) -> Any:
        """Return a new policy; TypeError or ValueError where an environment does not fit."""
        raise NotImplementedError

    def networks(self, seed: int) -> dict[str, Any]:
        """Return networks and arrays that are learnt, by name; by the first one the policy acts."""
        raise NotImplementedError

    def _act_by(self, networks: dict[str, Any]) -> dict[str, Any]:
        """Act by what `networks` returned, and return all that is learnt."""
        raise NotImplementedError

    def targets(self) -> dict[str, str]:
        """Return names of copies that follow networks slowly, and of these networks."""
        return {}

    def updates(self) -> list[Update]:
        """Return the losses that an update minimises, in order; a subclass may bring others."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return settings of the losses: fields of the config, and `facts`."""
        dynamics = self.env.dynamics
        kind = "discrete" if dynamics.is_discrete else "continuous"
        return {
            **{name: getattr(self.config, name) for name in self.config.names()},
            "kind": "choices" if dynamics.choices else kind,
            "num_actions": dynamics.num_actions,
            "choices": dynamics.choices,
            "action_size": dynamics.action_size,
            "is_masked": dynamics.num_masked > 0,
            "observation_size": dynamics.observation_size,
            "remembers": self.state_size > 0,
        }

    def _column_sizes(self) -> dict[str, int]:
        """Return columns of a batch, and how many numbers of a sample each has."""
        raise NotImplementedError

    def column_sizes(self) -> dict[str, int]:
        """Return further columns of a batch, and how many numbers of a sample each has.

        `columns` returns them of a rollout. Agents with replay store them beside each transition,
        and draw them with it; with n-step returns, names that begin with `next_` are those of the
        last step, as `next_observation` is, and others those of the first.
        """
        return {}

    def _further_sizes(self) -> dict[str, int]:
        """Return `column_sizes`; ValueError or TypeError for a name or a size that cannot be."""
        sizes, kind, usual = self.column_sizes(), type(self).__name__, self._column_sizes()
        for name, size in sizes.items():
            if name in usual or name in _FIELDS:
                raise ValueError(f"{kind}.column_sizes has {name!r}: the batch has it already")
            check_count(f"{kind}.column_sizes: {name}", size)
        return sizes

    def _make_learner(
        self, networks: Mapping[str, Any], seed: int, num_threads: int | None
    ) -> Learner:
        """Return the learner of networks; ValueError if no statistic has a name in `reported`."""
        learner = Learner(
            networks,
            self.updates(),
            columns=self._column_sizes() | self._further_sizes(),
            targets=self.targets(),
            settings=self.settings(),
            per_sample=self._per_sample,
            seed=seed,
            num_threads=num_threads,
        )
        self._learnt_config = self.config
        statistics = [name for names in learner.tape.statistics for name in names]
        for name in self.reported:
            if name not in statistics:
                raise ValueError(
                    f"{type(self).__name__}.reported has {name!r}: its updates have the statistics "
                    f"{', '.join(statistics)}"
                )
        return learner

    @classmethod
    def learner_of(cls, config: Any, kind: str) -> Learner:
        """Return a learner that has the same kernels as every agent of a config, to compile them.

        It is that of an agent without environments and buffer, which are not made.

        Args:
            config: whose `network` is "mlp".
            kind: of actions, see `_kind`.
        """
        dynamics, agent = cls._example_of(kind), cls.__new__(cls)
        env: Any = SimpleNamespace(dynamics=dynamics)
        agent.config, agent.env = config, env
        agent.policy = agent._make_policy(dynamics, 0)
        return agent._make_learner(agent._act_by(agent.networks(0)), 0, None)

    @property
    def _kind(self) -> str:
        """Return the kind of its actions, on which the machine code of an update depends."""
        raise NotImplementedError

    @classmethod
    def _example_of(cls, kind: str) -> Any:
        """Return an environment's description with actions of a kind."""
        raise NotImplementedError

    def _changed_settings(self) -> dict[str, Any] | None:
        """Return settings for the learner, if the config is another one than at the last update."""
        if self._learnt_config is self.config:
            return None
        self._learnt_config = self.config
        return self.settings()

    def _learn_in_epochs(
        self, columns: dict[str, Any], sequences: SampleSequences | None, **options: Any
    ) -> dict[str, float]:
        """Learn from the samples of a rollout in epochs of minibatches; return the report.

        `sequences` says how they are sequences, for networks with memory; `options` are further
        ones of `Learner.update`.
        """
        config = self.config
        options["minibatch_size"] = config.minibatch_size
        if sequences is not None:
            columns = {**columns, STARTS: sequences.starts}
            options |= sequences.options(config.minibatch_size)
        report: dict[str, float] = self.learner.update(
            columns,
            normalise={"observation": self.policy.scaling},
            shuffle=True,
            epochs=config.num_epochs,
            max_gradient_norm=config.max_gradient_norm,
            epsilon=config.adam_epsilon,
            **options,
        )
        return report

    @functools.cached_property
    def _no_losses(self) -> Any:
        """Return the losses of an agent that has learnt nothing yet."""
        return losses_type((*self.reported, "gradient_norm", "num_gradients"))()

    def _losses_of(self, report: Mapping[str, float]) -> Any:
        """Return the losses for `history` of an update whose learner returned `report`."""
        return self._no_losses._make(report[name] for name in self._no_losses._fields)

    @property
    def state_size(self) -> int:
        """Return how many numbers it remembers of an environment to act; 0 without memory."""
        sizes: dict[str, int] = getattr(self.policy, "state_sizes", {})
        return sizes.get("policy", 0)

    # ------------------------------------------------------------ what it tells of its samples

    def _choose(self, outputs: Array, rng: Any, masks: Array | None) -> Array:
        """Return actions for outputs of the policy's network, greedy ones without `rng`.

        `masks` (n, num_actions) are bools, which actions are allowed; None where all are.
        """
        raise NotImplementedError

    def _values_of(self, rollout: Rollout) -> Array | None:
        """Return values (T, N) of what was done in a rollout; None where the agent tells none."""
        return None

    def _replayed_inputs(self, count: int) -> Array | None:
        """Return about `count` observations (n, observation_size) of its replay, before scaling.

        None where there is no replay, or nothing that is learnt from yet.
        """
        return None

    def _rewards_of(self, rollout: Rollout) -> Array:
        """Return the rewards (T, N) of a rollout as they are learnt, float32."""
        if self.config.normalize_rewards:
            self.rewards.add(rollout, self.config.gamma)
        return self._learnt_rewards(rollout.rewards)

    def _learnt_rewards(self, rewards: Array, n_step: int = 1) -> Array:
        """Return rewards, or sums of `n_step`, normalised and scaled by the settings, float32."""
        config, rewards = self.config, np.ascontiguousarray(rewards, np.float32)
        factor = getattr(config, "reward_scale", 1.0)
        if not config.normalize_rewards and factor == 1.0:
            return rewards
        scale, learnt = self.rewards.scaling(rewards, config.normalize_rewards, n_step, factor)
        scale()
        return learnt
