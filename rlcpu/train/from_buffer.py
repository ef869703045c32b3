"""What agents do with a replay buffer: store rollouts, draw batches, learn from them.

A batch that is drawn becomes columns for the learner, one row a sample: of transitions by
`_columns`, of sequences, for networks with memory, by `rlcpu.train.replaying.replayed`. Its errors
become the priorities of what was drawn. Which buffer there is, `rlcpu.train.off_policy` says.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu import replay
from rlcpu.envs.engine.observations import each_part
from rlcpu.envs.rollout.collect import Rollout
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.machine.stages import LastMade
from rlcpu.nn.network.scaling import Scaling
from rlcpu.nn.tape.program import STARTS
from rlcpu.replay.buffer import Buffer
from rlcpu.train.agent import repeatable
from rlcpu.train.drawn import DrawnColumns
from rlcpu.train.in_rounds import InRounds
from rlcpu.train.replaying import buffers, replayed
from rlcpu.train.rounds import AT_ONCE
from rlcpu.train.running.actors import Squashed
from rlcpu.train.running.sequences import SampleSequences, sequences_in
from rlcpu.translation import answered

Array = npt.NDArray[Any]
#: Observations of a buffer at most of which an agent that has seen none takes statistics.
MOST_NORMALISED = 100_000


class _Samples(NamedTuple):
    """A drawn batch as `Learner.update` takes it."""

    columns: dict[str, Any]
    options: dict[str, Any]  # which samples are a minibatch, and how they are sequences
    is_learnt: Array | None = None  # of sequences (T, B), 1 for steps that are learnt from


class FromBuffer(InRounds):
    """An agent that learns from a buffer; base of `rlcpu.train.off_policy.OffPolicy`."""

    buffer: Any
    _memories: replayed.Memories
    _batches: dict[int, Any]  # memory of batches by their size, to be used again
    _drawn: LastMade  # their `DrawnColumns`, by their size
    _last_batch: Any

    @repeatable
    def _store(self, rollout: Rollout) -> None:
        """Store a rollout's transitions, and add its rewards to what normalises them."""
        further = self.prepare_columns(rollout)
        if self.config.normalize_rewards:
            self.rewards.add(rollout, self.config.gamma)
        if self.state_size:
            scaling = self._action_scaling if isinstance(self.policy, Squashed) else None
            steps = replayed.steps_of(rollout, self.policy, self._memories, scaling)
            shape = rollout.rewards.shape
            further = {name: x.reshape(*shape, *x.shape[1:]) for name, x in further.items()}
            self.buffer.add({**steps, **further})
        else:
            buffers.add(self.buffer, rollout, self.returns, further)

    def example(self) -> dict[str, Any]:
        """Return one item of its buffer, zeros: a transition, or a time step of a sequence.

        A buffer of a user's has the same fields, in any order.
        """
        further = {
            name: np.zeros((size,) if size > 1 else (), np.float32)
            for name, size in self.column_sizes().items()
        }
        if self.state_size:
            usual = replayed.example_with_memory(self.env, sum(self._memories.sizes.values()))
        else:
            usual = example_of(self.env)
        return usual | further

    # ------------------------------------------------------------ updates of a round

    @repeatable
    def _can_improve(self) -> bool:
        """Tell whether there is enough to learn from."""
        config = self.config
        started = self.steps >= config.learning_starts
        return bool(started and self.buffer.can_sample(self._draw_size))

    @property
    def _draw_size(self) -> int:
        """Return how many transitions, or sequences, an update draws."""
        config = self.config
        if not self.state_size:
            size: int = config.batch_size
            return size
        return sequences_in(config.batch_size, config.sequence_length)

    @repeatable
    def improve(self) -> Any:
        """Make the updates of a round, and return the losses of the last ones."""
        return self._improve(self.config.num_updates)

    @answered
    def learn_offline(self, num_updates: int) -> Any:
        """Make updates from what the buffer holds, without any step of the environments.

        An agent that was made of `rlcpu.envs.spaces_of` learns so alone. With
        `normalize_observations` an agent that has seen none normalises by those of the buffer.

        Args:
            num_updates: how many; learning rates stay those of the beginning.

        Returns:
            The losses of the last ones, as `history.losses` has them.

        Raises:
            TypeError, ValueError: `num_updates` is no count, or the buffer cannot be drawn from.
            FloatingPointError: a loss or gradient became NaN or infinite; it was not learnt from.
        """
        num_updates, size = check_count("num_updates", num_updates), self._draw_size
        self._check_draw(size)
        self._read_policy()
        self.explore()  # no longer at random alone
        if self.config.normalize_observations and not self.normalizer.count[0]:
            length = replayed.length_of(self.config) if self.state_size else 1
            inputs = self._inputs_of(self.buffer.peek(-(-MOST_NORMALISED // length)))
            self.normalizer.normalise(self.policy, inputs)
        try:
            return self._improve(num_updates)
        except BaseException:
            self.learner.discard()
            self.learner.write_networks(self.learner.names[:1])  # of the updates that were made
            raise

    @answered
    def minibatch(self, size: int | None = None) -> dict[str, Any]:
        """Draw what an update would learn from, as arguments of the learner, and learn nothing.

        `agent.learner.losses(**agent.minibatch())` are the losses of such a minibatch, and
        `agent.learner.gradients(**agent.minibatch())` its gradients. The next update draws others
        than it would have drawn.

        Args:
            size: transitions, or sequences of networks with memory; None for those of an update.

        Returns:
            Arguments by name: `batch`, columns by their names, each with a row a sample, whose
            rewards are summed, scaled and normalised as losses see them; `normalise`, the scalings
            by which networks get columns; `settings`; with memory how samples are sequences.

        Raises:
            TypeError, ValueError: `size` is no count, or the buffer cannot be drawn from.
        """
        size = self._draw_size if size is None else check_count("size", size)
        self._check_draw(size)
        options = buffers.options_of_draws(self.buffer, self.env)
        samples = self._samples_of(self.buffer.sample(size, **options))
        sequences = {name: x for name, x in samples.options.items() if name != "minibatch_size"}
        learnt_by = {"normalise": self._normalisation, "settings": self.settings()}
        return {"batch": samples.columns, **learnt_by, **sequences}

    def _improve(self, updates_left: int, batch: Any = None) -> Any:
        """Make so many updates, the first from `batch`, and return the losses of the last ones."""
        report: dict[str, Any] = {}
        # Several minibatches are drawn at once, unless what is drawn in one depends on the others.
        most = 1 if isinstance(self.buffer, replay.ReturnWeightedBuffer) else AT_ONCE
        while updates_left > 0:
            count = min(updates_left, most)
            updates_left -= count
            size = count * self._draw_size
            # Errors of 0 may be the last priorities above 0, if the buffer has no epsilon.
            if report and buffers.has_priorities(self.buffer) and not self.buffer.can_sample(size):
                break
            report = self._learn_from(self._draw(size) if batch is None else batch)
            batch = None
        return self._losses_of(report)

    def _check_draw(self, size: int) -> None:
        """Raise ValueError unless so many transitions, or sequences, can be drawn."""
        if not self.buffer.can_sample(size):
            raise ValueError(f"buffer={self.buffer!r}: expected one that {size} can be drawn from")

    @repeatable
    def _draw(self, size: int) -> Any:
        """Return a batch of so many transitions, or sequences, in the memory of the last such."""
        options = buffers.options_of_draws(self.buffer, self.env)
        self._last_batch = batch = self.buffer.sample(size, out=self._batches.get(size), **options)
        self._batches[size] = batch
        return batch

    def _forget_batches(self) -> None:
        """Draw into new memory from now on."""
        self._batches.clear()
        self._drawn.clear()
        self._last_batch = None

    @repeatable
    def _learn_from(self, batch: Any) -> dict[str, Any]:
        """Learn from a drawn batch, and set its priorities; return the learner's report."""
        config, samples = self.config, self._samples_of(batch)
        options = {
            "target_period": config.target_period,
            "tau": config.tau,
            "max_gradient_norm": config.max_gradient_norm,
            "epsilon": config.adam_epsilon,
            **self._options(),
        }
        report: dict[str, Any] = self.learner.update(
            samples.columns,
            **samples.options,
            normalise=self._normalisation,
            settings=self._changed_settings(),
            write=self.learner.names[:1],  # the policy acts by the first
            **options,
        )
        if buffers.has_priorities(self.buffer):
            self._update_priorities(batch, samples.is_learnt)
        return report

    def _update_priorities(self, batch: Any, is_learnt: Array | None = None) -> None:
        """Set the priorities of a batch that was learnt from to its absolute errors, (B,).

        Those of sequences mix the largest and the mean of the steps (T, B) for which `is_learnt` is
        1, see `priorities_of`.
        """
        errors = self.learner.per_sample["error"]
        if is_learnt is None:
            priorities = np.abs(errors)
        else:
            errors, eta = errors.reshape(is_learnt.shape), self.config.priority_eta
            priorities = replayed.priorities_of(errors, is_learnt, eta)
        self.buffer.update_priorities(batch.indices, priorities)

    # ------------------------------------------------------------ samples for the learner

    def _column_sizes(self) -> dict[str, int]:
        """Return columns of a batch, and how many numbers of a sample each has."""
        dynamics = self.env.dynamics
        size, masks = dynamics.observation_size, dynamics.num_masked
        columns = dict.fromkeys(("reward", "discount", "terminated", "weight"), 1)
        columns |= {"observation": size}
        columns["action"] = 1 if dynamics.is_discrete else dynamics.action_size
        if self.state_size:
            columns |= {"ahead": 1, "action_mask": masks}
        else:
            columns |= {"next_observation": size, "next_action_mask": masks}
        return {name: width for name, width in columns.items() if width}

    def _samples_of(self, batch: Any) -> _Samples:
        """Return a drawn batch as the learner takes it."""
        config = self.config
        if not self.state_size:
            return _Samples(self._columns(batch), {"minibatch_size": config.batch_size})
        columns, targets = replayed.columns_of(batch, config, self.column_sizes())
        columns["reward"] = self._learnt_rewards(columns["reward"], config.n_step)
        length, size = len(targets.reward), targets.reward.size
        observations = each_part(lambda x: x.reshape(size, *x.shape[2:]), batch["observation"])
        columns["observation"] = self._inputs(observations)
        states = self._memories.split(batch["state"][0])  # before the first step
        sequences = SampleSequences(states, columns[STARTS], length, abreast=len(batch))
        options = sequences.options(self._draw_size * length)
        return _Samples(columns, options, targets.is_learnt)

    @repeatable
    def _columns(self, batch: Any) -> dict[str, Any]:
        """Return the columns of a drawn batch for the learner, arrays with a row for each sample.

        Rewards of the batch are sums of `n_step` steps.
        """
        key = id(batch), id(self.config)
        drawn = self._drawn.of(len(batch), key, DrawnColumns, self, batch)
        return drawn.read() | {name: self._inputs(batch[name]) for name in drawn.others}

    def _inputs(self, observations: Array) -> Any:
        """Return stored observations as networks take them, or the ones of boards."""
        view = self.env.view
        ones = view.ones_of_stored(observations) if self.learner.takes_ones("observation") else None
        if ones is not None:
            return ones
        inputs = view.inputs_of_stored(observations)
        return inputs if inputs.ndim == 2 else inputs.reshape(len(inputs), -1)

    @property
    def _normalisation(self) -> dict[str, Scaling]:
        """Return by which numbers networks get columns scaled, by their names."""
        scaling, names = self.policy.scaling, ("observation", "next_observation")
        columns = {name: scaling for name in names if name in self.learner.columns}
        if isinstance(self.policy, Squashed):
            columns["action"] = self._action_scaling
        return columns

    @functools.cached_property
    def _action_scaling(self) -> Scaling:
        """Return center and inverse half width of actions; 0 for a number that cannot change."""
        center, half = self.policy.center, self.policy.half
        return Scaling(center, np.divide(1.0, half, out=np.zeros_like(half), where=half > 0))

    # ------------------------------------------------------------ a look at what is stored

    def _replayed_inputs(self, count: int) -> Array | None:
        """Return observations of transitions, or sequences, in the buffer; see `Agent`."""
        if (batch := self._peek(count)) is None:
            return None
        return self._inputs_of(batch)

    def _inputs_of(self, batch: Any) -> Array:
        """Return the observations of transitions, or of sequences, (n, observation_size)."""
        observations = batch["observation"]
        if self.state_size:  # (T, B, ...)
            observations = each_part(lambda x: x.reshape(-1, *x.shape[2:]), observations)
        inputs: Array = self.env.view.inputs_of_stored(observations)
        return inputs.reshape(len(inputs), -1)

    def _peek(self, count: int) -> Any:
        """Return transitions, or sequences of about so many steps, that are replayed.

        They are drawn uniformly; of shards in other processes it is the batch that was drawn last.
        None where nothing is learnt from yet.
        """
        if not self._can_improve():
            return None
        if not isinstance(self.buffer, Buffer):
            return self._last_batch
        length = replayed.length_of(self.config) if self.state_size else 1
        return self.buffer.peek(-(-count // length))

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | ({"memories": self._memories} if self._memories.carried else {})
