"""Agents that learn from a replay buffer: their settings, and what they store and draw.

A round, see `rlcpu.train.in_rounds`, stores what was collected, and makes `num_updates` updates
from minibatches of the buffer. An agent of its own brings a policy, the equations of its paper, and
how it explores; see `rlcpu.train.dqn`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu import replay
from rlcpu.envs.collect import Rollout
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.observations import each_part
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.announce import clock
from rlcpu.nn.program import STARTS
from rlcpu.nn.scaling import Scaling
from rlcpu.replay.buffer import Buffer
from rlcpu.train import buffers, replayed
from rlcpu.train.actors import Squashed
from rlcpu.train.agent import Call, Processes
from rlcpu.train.history import History
from rlcpu.train.in_rounds import InRounds
from rlcpu.train.presets import Layers
from rlcpu.train.rounds import AT_ONCE, can_repeat, make_rounds
from rlcpu.train.rounds_kernel import (
    BAD_PRIORITY,
    BAD_ROLLOUT,
    COLLECTING,
    HAS_MANY_ONES,
    LONGEST,
    UPDATING,
)
from rlcpu.train.sequences import SampleSequences, sequences_in
from rlcpu.train.settings import Schedule, Settings, remaining_of
from rlcpu.train.tuned import entry_of
from rlcpu.translation import answered

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class OffPolicyConfig(Settings):
    """Hyper-parameters of agents that learn from a buffer: those of all `Settings`, and these.

    Attributes:
        num_steps: T, steps of each environment in a round.
        num_updates: updates in a round.
        learning_starts: environment steps before the first update, with random actions.
        capacity: transitions that the buffer keeps.
        replay: how they are drawn: "uniform", "prioritized", or in proportion to the "return" of
            their episode (until it ends: the mean of the last episodes' returns).
        batch_size: transitions of an update.
        n_step: steps whose rewards are added up before the value of what follows.
        tau: part of the way that targets go towards the networks, 0 to 1.
        target_period: updates between two such steps.
        normalize_rewards: rewards that are drawn are divided by the deviation of all discounted
            returns so far and clipped to +-10; sums of n steps, to n times as much.
        network: as of all agents. Critics of actions take the convolutions, what remembers, or the
            layers of a function in front of the hidden ones, and actions behind these.
        hidden: units of the hidden layers, of all networks.
        sequence_length: steps of the sequences that networks with memory learn from; `batch_size`
            is rounded to them.
        burn_in: steps in front of these that bring what was remembered up to date.
        priority_eta: weight of the largest error of a prioritised sequence against the mean.

    Raises:
        TypeError, ValueError: a value of another type or outside of its range, with its name.
    """

    num_envs: int = 8
    num_steps: int = 1
    num_updates: int = 8
    learning_starts: int = 1000
    capacity: int = 100_000
    replay: Literal["uniform", "prioritized", "return"] = "uniform"
    batch_size: int = 256
    learning_rate: float = 3e-4
    learning_rate_schedule: Schedule = "constant"
    gamma: float = 0.99
    n_step: int = 1
    tau: float = 0.005
    target_period: int = 1
    normalize_observations: bool = False
    clip_observations: float | None = None
    normalize_rewards: bool = False
    max_gradient_norm: float = float("inf")
    adam_epsilon: float = 1e-8
    network: str | Layers = "mlp"
    hidden: tuple[int, ...] = (256, 256)
    activation: Literal["relu", "tanh"] = "relu"
    sequence_length: int = 20
    burn_in: int = 10
    priority_eta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ValueError("hidden=(): expected one hidden layer at least")
        if self.capacity < max(self.batch_size, self.num_envs * (self.n_step + 1)):
            raise ValueError(
                f"capacity={self.capacity}: expected room for batch_size={self.batch_size} and for "
                f"n_step + 1 steps of {self.num_envs} environments"
            )
        if self.replay == "return" and self.n_step > 1:
            raise ValueError(f'n_step={self.n_step}: replay="return" has n_step=1 only')


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyArguments:
    """Keyword arguments of `OffPolicy` beside its settings, for type checkers."""

    seed: int = 0
    num_threads: int | None = None
    dtype: str = "float32"
    buffer: Any = None
    config: Settings | None = None


class _Samples(NamedTuple):
    """A drawn batch as `Learner.update` takes it."""

    columns: dict[str, Any]
    options: dict[str, Any]  # which samples are a minibatch, and how they are sequences
    is_learnt: Array | None = None  # of sequences (T, B), 1 for steps that are learnt from


@functools.lru_cache(maxsize=16)  # the learner reads the same arrays faster again
def _constant_columns(size: int, gamma: float) -> tuple[Array, Array]:
    """Return weights and discounts of a batch that has none."""
    weights = np.ones(size, np.float32)
    return weights, weights * np.float32(gamma)


class OffPolicy(InRounds):
    """An agent that learns from a replay buffer; base of `DQN`, `SAC`, `TD3` and `DDPG`.

    Every field of its config, such as `learning_rate`, is a keyword argument too.

    Args:
        env: id of a registered environment, a `Dynamics`, or a `VectorEnv` (which the agent
            resets).
        seed: the whole run is a function of it, whatever the number of threads.
        num_threads: threads at most; None takes all of numba's.
        dtype: of the simulation; the networks compute in float32.
        buffer: what `rlcpu.replay` makes, uniform, prioritised or return-weighted, with the fields
            of `rlcpu.envs.transitions.example_of(env)`; None makes one as the settings say. Its
            class, capacity, `num_envs`, `n_step`, and `gamma` if `n_step` is above 1, become the
            settings `replay`, `capacity` and so on.
        config: all settings at once; None takes the environment's default ones.
        **settings: fields of the config that are to be different; None changes nothing.

    Attributes:
        env, policy, buffer, config, seed: see above; `policy` is one for `rlcpu.collect`.
        steps, num_updates: environment steps and updates so far, over all calls of `learn`.
        history: of the last call of `learn`, or of the present one.
        ledger: `rlcpu.distributed.Ledger` of the last call with `num_collectors`; else None.

    Raises:
        TypeError, ValueError: a bad argument, with its name and value; a setting that is another
            than the buffer has.

    Warns:
        UserWarning: `n_step` or `gamma` are tuned for the environment, and the buffer has others.
    """

    num_kernels: ClassVar[int] = 29
    Config: ClassVar[type[OffPolicyConfig]]
    config: Any
    policy: Any
    buffer: Any
    _memories: replayed.Memories
    _batches: dict[int, Any]  # memory of batches by their size, to be used again
    _last_batch: Any

    @answered
    def __init__(
        self,
        env: str | Dynamics | VectorEnv,
        *,
        seed: int = 0,
        num_threads: int | None = None,
        dtype: str = "float32",
        buffer: Any = None,
        config: Settings | None = None,
        **settings: Any,
    ) -> None:
        decided = self._settings_of_buffer(buffer, env, config, settings)
        all_settings = {**settings, **decided}
        seeds = self._begin_rounds(
            env, config, all_settings, seed=seed, num_threads=num_threads, dtype=dtype
        )
        self._memories = replayed.Memories(self.learner, self.env.num_envs)
        self.buffer = self._choose_buffer(buffer, seeds.draws)
        wanted = {name: value for name, value in settings.items() if value is not None}
        if config is None:
            buffers.check_settings(decided, wanted, entry_of(self.env.dynamics.id, self.defaults))
        else:
            buffers.check_settings(decided, {**vars(config), **wanted}, tuned=None)
        self._batches, self._last_batch = {}, None
        self.history = History(losses=self._no_losses)

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

    # ------------------------------------------------------------ the buffer

    @classmethod
    def _settings_of_buffer(
        cls, buffer: Any, env: Any, config: Any, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the settings that a user's buffer decides, as far as the agent has such ones.

        Environments that are given have their own number.
        """
        capacity = settings.get("capacity") or getattr(config, "capacity", None)
        decided = buffers.settings_of(buffer, capacity)
        if not isinstance(env, str | Dynamics):
            decided.pop("num_envs", None)
        return {name: value for name, value in decided.items() if name in cls.Config.names()}

    def _choose_buffer(self, buffer: Any, seed: int) -> Any:
        """Return the user's buffer, after checks, or a new one."""
        if self.state_size:
            size = sum(self._memories.sizes.values())
            if buffer is None:
                return replayed.make_buffer(self.env, self.config, size, seed)
            replayed.check_buffer(buffer, self.env, self.config, size)
        elif buffer is None:
            return buffers.make_buffer(self.env, self.config, seed)
        else:
            buffers.check_buffer(buffer, self.env)
        return buffer

    def _store(self, rollout: Rollout) -> None:
        """Store a rollout's transitions, and add its rewards to what normalises them."""
        if self.config.normalize_rewards:
            self.rewards.add(rollout, self.config.gamma)
        if self.state_size:
            scaling = self._action_scaling if isinstance(self.policy, Squashed) else None
            self.buffer.add(replayed.steps_of(rollout, self.policy, self._memories, scaling))
        else:
            buffers.add(self.buffer, rollout, self.returns)

    # ------------------------------------------------------------ learning

    def _open_session(self, total_steps: int, processes: Processes) -> Any:
        """Return a context of collectors, and shards as buffers, in other processes."""
        from rlcpu.distributed.learning import Session

        if self.state_size:
            raise ValueError(
                f"num_collectors={processes.num_collectors}: sequences of networks with memory are "
                "replayed in one process, expected None"
            )
        return Session(
            self,
            total_steps,
            num_collectors=processes.num_collectors,
            num_shards=1 if processes.num_shards is None else processes.num_shards,
            address=processes.address,
            folder=processes.replay_folder,
        )

    def _read_policy(self) -> None:
        self.learner.read_networks(self.learner.names[:1])
        self._batches.clear()  # another buffer's, if collectors come or have gone
        self._last_batch = None
        self._remaining = 1.0

    def _repeat(self, history: History, last: int, call: Call) -> None:
        """Let a kernel make rounds like the last one, for about 50 ms, if it can make such rounds.

        Args:
            history: of this call of `learn`.
            last: steps of the history at which rounds end.
            call: the call of `learn`.
        """
        rollout, batch = self._rollout, self._last_batch
        steps_left = call.total_steps - history.steps
        if rollout is None or batch is None or not can_repeat(self, rollout, batch, steps_left):
            return
        size = rollout.rewards.size
        seconds_per_round = (history.time_collect + history.time_update) * size / history.steps
        rounds_to_last = -(-(last - history.steps) // size)
        # As many as twice `LONGEST`, nanoseconds, may hold: the kernel stops by its clock.
        max_rounds = min(rounds_to_last, int(2e-9 * LONGEST / seconds_per_round) + 1)
        result = make_rounds(self, rollout, batch, max_rounds, call.schedule)
        # A round that stopped after its rollout has made its steps, too.
        num_rollouts = result.num_whole + (result.stopped > BAD_ROLLOUT)
        self.count(num_rollouts * size, result.returns, history)
        if num_rollouts:  # as at the beginning of the last one
            self._remaining = remaining_of(call.schedule, self.steps - size)
        history.time_collect += result.times[COLLECTING]
        history.time_update += result.times[UPDATING]
        history.losses = self._losses_of(self.learner.finish(self.learner.names[:1]))
        if result.stopped == BAD_ROLLOUT:
            runner: Any = self.env.engine.last_runner
            runner.check(rollout.records, len(rollout.rewards))  # raises
        elif result.stopped == BAD_PRIORITY:
            self._update_priorities(batch)  # raises
        elif result.stopped == HAS_MANY_ONES:  # learn from the batch that was drawn, and the rest
            start = clock()
            updates_left = self.config.num_updates - result.calls * AT_ONCE
            history.losses = self._improve(updates_left, batch)
            history.time_update += clock() - start

    def _replayed_inputs(self, count: int) -> Array | None:
        """Return observations of transitions, or sequences, in the buffer; see `Agent`."""
        if (batch := self._peek(count)) is None:
            return None
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

    def improve(self) -> Any:
        """Make the updates of a round, and return the losses of the last ones."""
        return self._improve(self.config.num_updates)

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

    def _draw(self, size: int) -> Any:
        """Return a batch of so many transitions, or sequences, in the memory of the last such."""
        self._last_batch = batch = self.buffer.sample(size, out=self._batches.get(size))
        self._batches[size] = batch
        return batch

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

    def _samples_of(self, batch: Any) -> _Samples:
        """Return a drawn batch as the learner takes it."""
        config = self.config
        if not self.state_size:
            return _Samples(self._columns(batch), {"minibatch_size": config.batch_size})
        columns, targets = replayed.columns_of(batch, config)
        columns["reward"] = self._learnt_rewards(columns["reward"], config.n_step)
        length, size = len(targets.reward), targets.reward.size
        observations = each_part(lambda x: x.reshape(size, *x.shape[2:]), batch["observation"])
        columns["observation"] = self._inputs(observations)
        states = self._memories.split(batch["state"][0])  # before the first step
        sequences = SampleSequences(states, columns[STARTS], length, abreast=len(batch))
        options = sequences.options(self._draw_size * length)
        return _Samples(columns, options, targets.is_learnt)

    def _columns(self, batch: Any) -> dict[str, Any]:
        """Return the columns of a drawn batch for the learner, arrays with a row for each sample.

        Rewards of the batch are sums of `n_step` steps.
        """
        weights, discounts = _constant_columns(len(batch), self.config.gamma)
        columns = {
            "observation": self._inputs(batch["observation"]),
            "next_observation": self._inputs(batch["next_observation"]),
            "action": batch["action"],
            "reward": self._learnt_rewards(batch["reward"], self.config.n_step),
            "discount": discounts if batch.discounts is None else batch.discounts,
            "terminated": batch["terminated"],
            "weight": weights if batch.weights is None else batch.weights,
        }
        if self.env.dynamics.num_masked > 0:
            columns["next_action_mask"] = batch["next_action_mask"]
        return columns

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

    # ------------------------------------------------------------ files, see `Agent`

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | ({"memories": self._memories} if self._memories.carried else {})

    @property
    def _saved_buffer(self) -> Any:
        """Return the buffer that files hold: shards in its place have files of their own."""
        return getattr(self.buffer, "in_place_of", self.buffer)

    def _numbers(self) -> dict[str, Any]:
        return {**super()._numbers(), "buffer": type(self._saved_buffer).__name__}

    def _saved_arguments(self) -> dict[str, Array]:
        return buffers.files_of(self._saved_buffer)

    @classmethod
    def _arguments_of(
        cls, description: dict[str, Any], arrays: dict[str, Array], num_threads: int | None
    ) -> dict[str, Any]:
        name, saved = description["buffer"], description["config"]
        buffer = buffers.buffer_of(name, arrays, num_threads)
        # Older versions saved settings that a user's buffer had others of, which counted.
        description["config"] = {
            **saved,
            **cls._settings_of_buffer(buffer, description["env"], None, saved),
        }
        return {"buffer": buffer}
