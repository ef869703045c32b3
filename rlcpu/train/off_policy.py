"""Agents that learn from a replay buffer: their settings, and the loop.

A round of `learn` collects `num_steps` steps of every environment in one call, stores them, and
makes `num_updates` updates from minibatches of the buffer. An agent of its own brings a policy, a
`Learner` with the equations of its paper, and how it explores; see `rlcpu.train.dqn`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu import replay
from rlcpu.envs.collect import Rollout
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.observations import each_part
from rlcpu.envs.registration import find
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.announce import clock
from rlcpu.kernels.checks import check_count
from rlcpu.nn.learner import Learner, Update
from rlcpu.nn.program import STARTS
from rlcpu.nn.scaling import Scaling
from rlcpu.replay.buffer import Buffer
from rlcpu.train import buffers, replayed
from rlcpu.train.actors import Actor, Squashed, reusable
from rlcpu.train.agent import WINDOW, Agent, Call, Processes
from rlcpu.train.config import OffPolicyConfig
from rlcpu.train.evaluate import EndlessEpisodeError
from rlcpu.train.history import History
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
from rlcpu.train.settings import Settings, remaining_of, scheduled
from rlcpu.train.tuned import entry_of
from rlcpu.translation import answered

Array = npt.NDArray[Any]
#: Episodes of a greedy evaluation that are played first.
FEW = 10
#: Environment steps between two entries of the history, and between two looks at the target.
REPORT_STEPS, LOOK_STEPS = 500, 2000
#: An environment with actions of each kind.
_EXAMPLES = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}


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


class OffPolicy(Agent):
    """An agent that learns from a replay buffer; base of `DQN`, `SAC`, `TD3` and `DDPG`.

    `PQN` shares its methods, and learns from each rollout at once.

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
    _evaluated: int  # steps at the last evaluation against the target
    _remaining: float  # share of schedules that remains, 1 to 0
    _learnt_config: Any  # at the last update

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
        seeds = self._begin(
            env, config, all_settings, seed=seed, num_threads=num_threads, dtype=dtype, num_seeds=4
        )
        self.policy = self._make_policy(self.env.dynamics, seeds.weights)
        self._limit_observations()
        self.learner = self._make_learner(seeds.order, num_threads or self.env.num_threads)
        self._check_reported(self.learner)
        self._memories = replayed.Memories(self.learner, self.env.num_envs)
        self.buffer = self._choose_buffer(buffer, seeds.draws)
        wanted = {name: value for name, value in settings.items() if value is not None}
        if config is None:
            buffers.check_settings(decided, wanted, entry_of(self.env.dynamics.id, self.defaults))
        else:
            buffers.check_settings(decided, {**vars(config), **wanted}, tuned=None)
        self._batches, self._last_batch = {}, None
        self._evaluated, self._remaining = 0, 1.0
        self._learnt_config = self.config
        self.history = History()

    def _check_fit(self, dynamics: Dynamics) -> None:
        self.policy = self._make_policy(dynamics, 0)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.env.dynamics.id}, seed={self.seed}, "
            f"num_envs={self.env.num_envs}, {self.policy!r}, {self.steps:,} steps learnt)"
        )

    # ------------------------------------------------------------ what an algorithm brings

    def _make_policy(self, dynamics: Dynamics, seed: int) -> Actor:
        """Make a new policy; raises TypeError or ValueError where an environment does not fit."""
        raise NotImplementedError

    def networks(self, seed: int) -> dict[str, Any]:
        """Return networks and arrays that are learnt, by name; by the first one the policy acts."""
        raise NotImplementedError

    def targets(self) -> dict[str, str]:
        """Return names of copies that follow networks slowly, and of these networks."""
        return {}

    def updates(self) -> list[Update]:
        """Return the losses that an update minimises, in order; a subclass may bring others."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return settings of the losses: fields of the config, and facts on the environment."""
        return {
            **{name: getattr(self.config, name) for name in self.config.names()},
            "num_actions": self.env.dynamics.num_actions,
            "remembers": self.state_size > 0,
        }

    def _make_learner(self, seed: int, num_threads: int | None) -> Learner:
        """Return the learner, and let the policy act by the first of its networks."""
        networks = self.networks(seed)
        first_name, first = next(iter(networks.items()))
        if first is not self.policy.network:
            self.policy.use_network(first, self.env.dynamics)
        with_memory = [name for name, each in networks.items() if getattr(each, "state_size", 0)]
        if with_memory and not self.state_size:
            raise ValueError(
                f"networks: {with_memory[0]} has memory and {first_name}, by which the agent acts, "
                "has none; expected both or none"
            )
        return Learner(
            networks,
            self.updates(),
            columns=self._column_sizes(),
            targets=self.targets(),
            settings=self.settings(),
            per_sample=("error",),
            seed=seed,
            num_threads=num_threads,
        )

    @classmethod
    def learner_of(cls, config: Any, kind: str) -> Learner:
        """Return a learner that has the same kernels as every agent of a config, to compile them.

        It is that of an agent without environments and buffer, which are not made.

        Args:
            config: whose `network` is "mlp".
            kind: of actions, "discrete" or "continuous".
        """
        dynamics, agent = find(_EXAMPLES[kind]), cls.__new__(cls)
        env: Any = SimpleNamespace(dynamics=dynamics)
        agent.config, agent.env = config, env
        agent.policy = agent._make_policy(dynamics, seed=0)
        return agent._make_learner(seed=0, num_threads=None)

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

    def explore(self) -> None:
        """Set how much the policy explores at the present steps; not called in the random ones."""
        raise NotImplementedError

    def _exploration(self) -> float:
        """Return the probability of a random action, by the settings `exploration_...`."""
        config = self.config
        first, last = config.exploration_initial, config.exploration_final
        share = min(1.0, self.steps / config.exploration_steps)
        return float(last + scheduled(first - last, config.exploration_schedule, 1.0 - share))

    def _options(self) -> dict[str, Any]:
        """Return options of `Learner.update`, the learning rate at least."""
        config = self.config
        rate = scheduled(config.learning_rate, config.learning_rate_schedule, self._remaining)
        return {"learning_rate": rate}

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

    @property
    def _kind(self) -> str:  # type: ignore[override]
        return "discrete" if self.env.dynamics.is_discrete else "continuous"

    @property
    def report_steps(self) -> int:
        """Return the environment steps between two calls of callbacks: rounds of 500 steps."""
        size = super().report_steps
        return -(-REPORT_STEPS // size) * size

    def _make_progress(self, history: History, call: Call) -> None:
        """Run rounds for `REPORT_STEPS`, and find out whether the target is reached.

        `_repeat` makes many rounds in the kernel, `_advance` one in Python. A session, which has
        collectors in other processes, makes rounds of its own. `call.rounds.run` lets
        signals wait until the round has ended.
        """
        last = min(call.total_steps, history.steps + REPORT_STEPS)
        # Only processes that hold the replay, too, bring a round of their own.
        advance = getattr(call.session, "advance", self._advance)
        # What a callback may have changed is checked by a round in Python first.
        may_repeat = call.session is None and not call.is_watched
        while history.steps < last:
            before = history.steps
            if may_repeat:
                call.rounds.run(self._repeat, history, last, call)
            if history.steps == before:  # the kernel cannot make these rounds
                self._remaining = remaining_of(call.schedule, self.steps)
                call.rounds.run(advance, history)
            may_repeat = call.session is None
        history.solved = self._is_solved(call.target, history.steps >= call.total_steps)
        self._add_entry(history, call)

    def _give_up(self, history: History) -> None:
        self.learner.discard()
        self.learner.write_networks(self.learner.names[:1])  # of the updates that were made
        self._forget_batches()
        history.steps = self.steps - history.steps_before

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
        self._forget_batches()  # another buffer's, if collectors come or have gone
        self._remaining = 1.0

    def _forget_batches(self) -> None:
        """Draw into new memory from now on."""
        self._batches.clear()
        self._last_batch = None

    def _advance(self, history: History) -> None:
        """Run one round: collect, store, update."""
        start, config = clock(), self.config
        if self.steps >= getattr(config, "learning_starts", 0):
            self.explore()
        out = reusable(self._rollout, config.num_steps)
        rollout = self._rollout = self.collect_rollout(
            self.env, self.policy, config.num_steps, out=out
        )
        # First, as the values of stored transitions depend on the returns of ended episodes.
        self.count(rollout.rewards.size, rollout.episode_returns, history)
        self._store(rollout)
        now = clock()
        history.time_collect += now - start
        if self._can_improve():
            history.losses = self.improve()
        if config.normalize_observations:  # the next round acts and learns by them
            self.normalizer.normalise(self.policy, rollout.inputs)
        history.time_update += clock() - now

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

    def _changed_settings(self) -> dict[str, Any] | None:
        """Return settings for the learner, if the config is another one than at the last update."""
        if self._learnt_config is self.config:
            return None
        self._learnt_config = self.config
        return self.settings()

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

    def _is_solved(self, target: float | None, at_end: bool) -> bool:
        """Tell whether 100 greedy episodes, and 100 others, reach the target on average.

        Every `LOOK_STEPS`, and at the end. Ten episodes are played before these: most evaluations
        end with them, and whole ones would take nearly as long as learning where steps are dear.
        """
        if target is None or not (at_end or self.steps >= self._evaluated + LOOK_STEPS):
            return False
        self._evaluated = self.steps
        seed, other_seed = 2 * self.steps, 2 * self.steps + 1  # which no other evaluation has
        evaluations = (FEW, seed), (WINDOW, seed), (WINDOW, other_seed)
        try:
            return all(self.evaluate(count, seed).mean() >= target for count, seed in evaluations)
        except EndlessEpisodeError:  # of a policy that goes in circles, as early ones may
            return False

    @property
    def num_updates(self) -> int:
        """Return the number of updates so far."""
        return int(self.learner.counters[0])

    # ------------------------------------------------------------ acting

    def _choose(self, outputs: Array, rng: Any, masks: Array | None) -> Array:
        return self.policy.choose(outputs, rng, *(() if masks is None else (masks,)))

    # ------------------------------------------------------------ files, see `Agent`

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | ({"memories": self._memories} if self._memories.carried else {})

    @property
    def _saved_buffer(self) -> Any:
        """Return the buffer that files hold: shards in its place have files of their own."""
        return getattr(self.buffer, "in_place_of", self.buffer)

    def _numbers(self) -> dict[str, Any]:
        kind = None if self.buffer is None else type(self._saved_buffer).__name__
        return {"looked": self._evaluated, "buffer": kind}

    def _restore_numbers(self, numbers: dict[str, Any]) -> None:
        self._evaluated = check_count("looked", numbers["looked"], 0)

    def _saved_arguments(self) -> dict[str, Array]:
        return {} if self.buffer is None else buffers.files_of(self._saved_buffer)

    @classmethod
    def _arguments_of(
        cls, description: dict[str, Any], arrays: dict[str, Array], num_threads: int | None
    ) -> dict[str, Any]:
        name, saved = description["buffer"], description["config"]
        buffer = name and buffers.buffer_of(name, arrays, num_threads)
        # Older versions saved settings that a user's buffer had others of, which counted.
        description["config"] = {
            **saved,
            **cls._settings_of_buffer(buffer, description["env"], None, saved),
        }
        return {"buffer": buffer}
