"""Agents that learn from a replay buffer: their settings, and the loop.

A round of `learn` collects `num_steps` steps of every environment in one call, stores them, and
makes `num_updates` updates from minibatches of the buffer. An agent of its own brings a policy, a
`Learner` with the equations of its paper, and how it explores; see `rlcpu.train.dqn`.
"""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

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
from rlcpu.train import buffers, replayed
from rlcpu.train.actors import Actor, Squashed, reusable
from rlcpu.train.agent import WINDOW, Agent, Call
from rlcpu.train.config import (
    Schedule,
    Settings,
    for_space,
    remaining_of,
    scheduled,
)
from rlcpu.train.evaluate import EndlessEpisodeError
from rlcpu.train.history import History
from rlcpu.train.presets import Layers
from rlcpu.train.rounds import (
    AT_ONCE,
    BAD_PRIORITY,
    BAD_ROLLOUT,
    HAS_MANY_ONES,
    LEAST_CALLS,
    LONGEST,
    calls_of,
    can_repeat,
    is_loaded,
    make_rounds,
)
from rlcpu.train.sequences import SampleSequences, sequences_in
from rlcpu.train.tuned import entry_of

Array = npt.NDArray[Any]
#: Episodes of a greedy evaluation that are played first.
FEW = 10
#: Environment steps between two entries of the history, and between two looks at the target.
REPORT_STEPS, LOOK_STEPS = 500, 2000
#: An environment with actions of each kind.
_EXAMPLES = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}


@dataclasses.dataclass(frozen=True)
class OffPolicyConfig(Settings):
    """Hyper-parameters of agents that learn from a replay buffer.

    Attributes:
        num_envs: N, environments that are stepped together.
        num_steps: T, steps of each environment in a round.
        num_updates: updates in a round.
        learning_starts: environment steps before the first update, with random actions.
        capacity: transitions that the buffer keeps.
        replay: how they are drawn: "uniform", "prioritized", or in proportion to the "return" of
            their episode (until it ends: the mean of the last episodes' returns).
        batch_size: transitions of an update.
        learning_rate: of Adam.
        learning_rate_schedule: "constant"; "linear" or "cosine" down to 0 at the end of `learn`; or
            a function of what remains of it, 1 to 0, whose value multiplies. No file holds a
            function: a loaded agent says so, and goes on with "constant".
        gamma: discount per step, in [0, 1].
        n_step: steps whose rewards are added up before the value of what follows.
        tau: part of the way that targets go towards the networks, 0 to 1.
        target_period: updates between two such steps.
        normalize_observations: by the mean and deviation of all observations so far, as they were
            when the round began; the policy keeps them, the buffer has observations as they were.
        normalize_rewards: rewards that are drawn are divided by the deviation of all discounted
            returns so far and clipped to +-10; sums of n steps, to n times as much.
        max_gradient_norm: norm above which gradients are scaled down to it.
        adam_epsilon: added to the root of Adam's second moment.
        network: "mlp"; "conv" or "impala", with convolutions of images and boards in front of the
            hidden layers; "mingru", "gru" or "lstm", which remember; or a function, see
            `PPOConfig`. Critics of actions take these behind the convolutions, what remembers, or
            the function's layers, and in front of the hidden ones.
        hidden: units of the hidden layers, of all networks.
        activation: "relu" or "tanh".
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
class Arguments:
    """Keyword arguments of `OffPolicy` beside its settings, for type checkers."""

    seed: int = 0
    num_threads: int | None = None
    dtype: str = "float32"
    buffer: Any = None
    config: Settings | None = None


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
            of `rlcpu.envs.transitions.example_of(env)`; None makes one as the settings say.
        config: all settings at once; None takes the environment's default ones.
        **settings: fields of the config that are to be different; None changes nothing.

    Attributes:
        env, policy, buffer, config, seed: see above; `policy` is one for `rlcpu.collect`.
        steps, num_updates: environment steps and updates so far, over all calls of `learn`.
        history: of the last call of `learn`, or of the present one.
        ledger: `rlcpu.distributed.Ledger` of the last call with `num_collectors`; else None.

    Raises:
        TypeError, ValueError: a bad argument, with its name and value.
    """

    num_kernels: ClassVar[int] = 29
    Config: ClassVar[type[OffPolicyConfig]]
    #: Settings by the environment's id, or its family, such as "MinAtar/*".
    defaults: ClassVar[dict[str, Any]] = {}
    config: Any
    policy: Any
    buffer: Any

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
        weights, shuffles, _, draws = self._begin(
            env, seed, num_threads, dtype, config, settings, 4
        )
        self.policy = self._make_policy(self.env.dynamics, weights)
        self.learner = self._make_learner(shuffles, num_threads or self.env.num_threads)
        self._check_reported(self.learner)
        self._memories = replayed.Memories(self.learner, self.env.num_envs)
        self.buffer = self._choose_buffer(buffer, draws)
        self._batches: dict[Any, Any] = {}  # memory of batches by their size, to be used again
        self._is_learnt = np.zeros((0, 0), np.float32)  # of the sequences that were drawn last
        self._evaluated = 0  # steps at the last evaluation against the target
        self._remaining = 1.0  # share of schedules
        self._learnt_config = self.config  # at the last update
        self.history = History()

    def _default_config(self, dynamics: Dynamics) -> Any:
        general = for_space(self.Config(), dynamics.observation_space)
        return entry_of(dynamics.id, self.defaults) or general

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

        Args:
            config: whose `network` is "mlp".
            kind: of actions, "discrete" or "continuous".
        """
        agent, dynamics = cls.__new__(cls), find(_EXAMPLES[kind])
        env: Any = SimpleNamespace(dynamics=dynamics)  # nothing is stepped
        agent.config, agent.env = config, env
        agent.policy = agent._make_policy(dynamics, 0)
        return agent._make_learner(0, None)

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

    def _make_progress(self, history: History, call: Call) -> None:
        """Run rounds for `REPORT_STEPS`, and find out whether the target is reached."""
        last = min(call.total_steps, history.steps + REPORT_STEPS)
        advance = getattr(call.session, "advance", self._advance)
        is_checked = not call.is_watched  # what a callback has changed, a round in Python checks
        while history.steps < last:
            before = history.steps
            if is_checked and call.session is None:
                steps_left = call.total_steps - before
                call.rounds.run(self._repeat, history, last, steps_left, call.schedule)
            if history.steps == before:
                self._remaining = remaining_of(call.schedule, self.steps)
                call.rounds.run(advance, history)
            is_checked = True
        history.solved = self._is_solved(call.target, history.steps >= call.total_steps)
        self._add_entry(history, call)

    def _give_up(self, history: History) -> None:
        self.learner.discard()
        self.learner.write_networks((0,))  # of the updates that were made
        self._batches.clear()
        history.steps = self.steps - history.steps_before

    def _open_session(
        self,
        total_steps: int,
        num_collectors: int,
        num_shards: int | None,
        address: str | None,
        replay_folder: Any,
    ) -> Any:
        """Return a context of collectors, and shards as buffers, in other processes."""
        from rlcpu.distributed.learning import Session

        if self.state_size:
            raise ValueError(
                f"num_collectors={num_collectors}: sequences of networks with memory are replayed "
                "in one process, expected None"
            )
        return Session(
            self,
            total_steps,
            num_collectors=num_collectors,
            num_shards=1 if num_shards is None else num_shards,
            address=address,
            folder=replay_folder,
        )

    def _read_policy(self) -> None:
        self.learner.read_networks((0,))
        self._batches.clear()  # another buffer's, if the last call had collectors, or this one has
        self._remaining = 1.0

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

    def _repeat(
        self, history: History, last: int, steps_left: int, bounds: tuple[int, int]
    ) -> None:
        """Make rounds like the last one in a kernel, if it can make them, for about 50 ms.

        Args:
            history: of this call of `learn`.
            last: steps of the history at which rounds end.
            steps_left: further steps of `learn`.
            bounds: of schedules, see `remaining_of`.
        """
        config, rollout = self.config, self._rollout
        if not hasattr(config, "num_updates") or rollout is None or self.state_size:
            return
        batch = self._batches.get(min(config.num_updates, AT_ONCE) * config.batch_size)
        size = rollout.rewards.size
        # Loading the kernel pays if many calls of the learner are left.
        is_worth_loading = steps_left // size * calls_of(config) >= LEAST_CALLS
        if batch is None or not (is_worth_loading or is_loaded()):
            return
        if not can_repeat(self, OffPolicy, rollout, batch):
            return
        seconds_per_round = (history.time_collect + history.time_update) * size / history.steps
        rounds_to_last = -(-(last - history.steps) // size)
        # As many as twice `LONGEST`, nanoseconds, may hold: the kernel stops by its clock.
        max_rounds = min(rounds_to_last, int(2e-9 * LONGEST / seconds_per_round) + 1)
        result = make_rounds(self, rollout, batch, *self._schedule_rounds(max_rounds, size, bounds))
        # A round that stopped after its rollout has made its steps, too.
        num_rollouts = result.num_whole + (result.stopped > BAD_ROLLOUT)
        self.count(num_rollouts * size, result.returns, history)
        history.time_collect += result.times[0]
        history.time_update += result.times[1]
        history.losses = self._losses_of(self.learner.finish(self.learner.names[:1]))
        if result.stopped == BAD_ROLLOUT:
            runner: Any = self.env.engine.last_runner
            runner.check(rollout.records, len(rollout.rewards))
        elif result.stopped == BAD_PRIORITY:
            self._update_priorities(batch)  # raises
        elif result.stopped == HAS_MANY_ONES:
            start = clock()
            self._remaining = remaining_of(bounds, self.steps - size)
            updates_left = config.num_updates - result.calls * AT_ONCE
            history.losses = self._improve(updates_left, batch)
            history.time_update += clock() - start

    def _schedule_rounds(
        self, num_rounds: int, size: int, bounds: tuple[int, int]
    ) -> tuple[Array, Array]:
        """Return the policy's params and the learning rates in each of the next rounds.

        The policy's own params are overwritten with those of the last round.

        Args:
            num_rounds: how many.
            size: steps of a round.
            bounds: steps of the agent at which schedules begin and end.

        Returns:
            (num_rounds, params) float32, and (num_rounds, updates) of the learner's dtype.
        """
        params, before = self.policy.params, self.steps
        round_params = np.empty((num_rounds, params.size), np.float32)
        round_rates = np.empty((num_rounds, len(self.learner.updates)), self.learner.dtype)
        try:
            for number in range(num_rounds):
                self.steps = before + number * size
                self._remaining = remaining_of(bounds, self.steps)
                self.explore()
                round_params[number] = params
                round_rates[number] = self._options()["learning_rate"]
        finally:
            self.steps = before
        return round_params, round_rates

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

    def _improve(self, updates_left: int, drawn: Any = None) -> Any:
        """Make so many updates, the first from `drawn`, and return the losses of the last ones."""
        config, report = self.config, {}
        # Several minibatches are drawn at once, unless what is drawn in one depends on the others.
        most = 1 if isinstance(self.buffer, replay.ReturnWeightedBuffer) else AT_ONCE
        while updates_left > 0:
            count = min(updates_left, most)
            updates_left -= count
            size = count * self._draw_size
            batch, drawn = drawn, None
            if batch is None:
                batch = self.buffer.sample(size, out=self._batches.get(size))
                self._batches[size] = batch
            columns, options = (
                self._columns_of_sequences(batch)
                if self.state_size
                else (self._columns(batch), {"minibatch_size": config.batch_size})
            )
            report = self.learner.update(
                columns,
                **options,
                normalise=self._normalisation,
                settings=self._changed_settings(),
                write=self.learner.names[:1],
                **{
                    "target_period": config.target_period,
                    "tau": config.tau,
                    "max_gradient_norm": config.max_gradient_norm,
                    "epsilon": config.adam_epsilon,
                    **self._options(),
                },
            )
            if buffers.has_priorities(self.buffer):
                self._update_priorities(batch)
        return self._losses_of(report)

    def _update_priorities(self, batch: Any) -> None:
        """Set the priorities of a batch that was learnt from to its absolute errors."""
        errors = self.learner.per_sample["error"]
        if self.state_size:
            errors, eta = errors.reshape(-1, len(batch)), self.config.priority_eta
            errors = replayed.priorities_of(errors, self._is_learnt, eta)
        self.buffer.update_priorities(batch.indices, np.abs(errors))

    def _changed_settings(self) -> dict[str, Any] | None:
        """Return settings for the learner, if the config is another one than at the last update."""
        if self._learnt_config is self.config:
            return None
        self._learnt_config = self.config
        return self.settings()

    def _columns(self, batch: Any) -> dict[str, Any]:
        """Return the columns of a drawn batch for the learner, arrays with a row for each sample.

        Rewards of the batch are sums of `n_step` steps.
        """
        ones, discounts = self._constants(len(batch))
        n_step = getattr(self.buffer, "n_step", 1)
        columns = {
            "observation": self._inputs(batch["observation"]),
            "next_observation": self._inputs(batch["next_observation"]),
            "action": batch["action"],
            "reward": self._learnt_rewards(batch["reward"], n_step),
            "discount": discounts if batch.discounts is None else batch.discounts,
            "terminated": batch["terminated"],
            "weight": ones if batch.weights is None else batch.weights,
        }
        if self.env.dynamics.num_masked > 0:
            columns["next_action_mask"] = batch["next_action_mask"]
        return columns

    def _columns_of_sequences(self, batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the columns of drawn sequences, and options of `Learner.update` on sequences."""
        columns, targets = replayed.columns_of(batch, self.config)
        self._is_learnt = targets.is_learnt
        columns["reward"] = self._learnt_rewards(columns["reward"], self.config.n_step)
        length, size = len(targets.reward), targets.reward.size
        observations = each_part(lambda x: x.reshape(size, *x.shape[2:]), batch["observation"])
        columns["observation"] = self._inputs(observations)
        states = self._memories.split(batch["state"][0])
        sequences = SampleSequences(states, columns[STARTS], length, len(batch))
        return columns, sequences.options(self._draw_size * length)

    def _inputs(self, observations: Array) -> Any:
        """Return stored observations as networks take them, or the ones of boards."""
        view = self.env.view
        ones = view.ones_of_stored(observations) if self.learner.takes_ones("observation") else None
        if ones is not None:
            return ones
        inputs = view.inputs_of_stored(observations)
        return inputs if inputs.ndim == 2 else inputs.reshape(len(inputs), -1)

    @property
    def _normalisation(self) -> dict[str, tuple[Array, Array]]:
        """Return mean and scale of columns, by which networks see them normalised."""
        pair = self.policy.observation_mean, self.policy.observation_scale
        names = "observation", "next_observation"
        columns = {name: pair for name in names if name in self.learner.columns}
        if isinstance(self.policy, Squashed):
            columns["action"] = self._action_scaling
        return columns

    @functools.cached_property
    def _action_scaling(self) -> tuple[Array, Array]:
        """Return center and inverse half width of actions; 0 for a number that cannot change."""
        center, half = self.policy.center, self.policy.half
        return center, np.divide(1.0, half, out=np.zeros_like(half), where=half > 0)

    def _constants(self, size: int) -> tuple[Array, Array]:
        """Return weights and discounts for a batch that has none."""
        key = size, self.config.gamma
        if key not in self._batches:
            ones = np.ones(size, np.float32)
            self._batches[key] = ones, ones * np.float32(self.config.gamma)
        constants: tuple[Array, Array] = self._batches[key]
        return constants

    def _is_solved(self, target: float | None, at_end: bool) -> bool:
        """Tell whether 100 greedy episodes, and 100 others, reach the target on average.

        Every `LOOK_STEPS`, and at the end. Ten episodes are played before these: most evaluations
        end with them, and whole ones would take nearly as long as learning where steps are dear.
        """
        if target is None or not (at_end or self.steps >= self._evaluated + LOOK_STEPS):
            return False
        self._evaluated = self.steps
        seed, other_seed = 2 * self.steps, 2 * self.steps + 1
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

    def _numbers(self) -> dict[str, Any]:
        kind = None if self.buffer is None else type(self.buffer).__name__
        return {"looked": self._evaluated, "buffer": kind}

    def _restore_numbers(self, numbers: dict[str, Any]) -> None:
        self._evaluated = check_count("looked", numbers["looked"], 0)

    def _saved_arguments(self) -> dict[str, Array]:
        return {} if self.buffer is None else buffers.files_of(self.buffer)

    @classmethod
    def _arguments_of(
        cls, description: dict[str, Any], arrays: dict[str, Array], num_threads: int | None
    ) -> dict[str, Any]:
        name = description["buffer"]
        return {"buffer": name and buffers.buffer_of(name, arrays, num_threads)}
