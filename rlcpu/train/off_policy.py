"""Agents that learn from a replay buffer: their settings, how they get their buffer, and sessions.

A round, see `rlcpu.train.in_rounds`, stores what was collected, and makes `num_updates` updates
from minibatches of the buffer, see `rlcpu.train.from_buffer`. In a call of `learn` a kernel makes
most rounds, and collectors and shards in other processes may take part. An agent of its own brings
a policy, the equations of its paper, and how it explores; see `rlcpu.train.dqn`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy.typing as npt

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.alone import SpacesTask
from rlcpu.kernels.compiler.announce import clock
from rlcpu.kernels.machine.stages import LastMade
from rlcpu.train.agent import Call, Processes
from rlcpu.train.from_buffer import FromBuffer
from rlcpu.train.keeping.history import History
from rlcpu.train.replaying import buffers, replayed
from rlcpu.train.rounds import AT_ONCE, can_repeat, make_rounds
from rlcpu.train.rounds_kernel import (
    BAD_PRIORITY,
    BAD_ROLLOUT,
    COLLECTING,
    HAS_MANY_ONES,
    LONGEST,
    UPDATING,
)
from rlcpu.train.settings.base import Schedule, Settings, remaining_of
from rlcpu.train.settings.presets import Layers
from rlcpu.train.settings.tuned import entry_of
from rlcpu.translation import answered

Array = npt.NDArray[Any]
#: What goes with a way to replay, where the user says nothing. Until goals are met all rewards are
#: the same number: their returns deviate by how long an episode has gone on, and divided by that a
#: step counts less than what networks begin with, from which nothing is learnt. A goal that is the
#: same in every episode has no deviation: normalised by it, those in hindsight are all clipped.
IMPLIED: dict[str, dict[str, Any]] = {
    "return": {"n_step": 1},
    "hindsight": {"n_step": 1, "normalize_rewards": False, "normalize_observations": False},
}


@dataclasses.dataclass(frozen=True)
class OffPolicyConfig(Settings):
    """Hyper-parameters of agents that learn from a buffer: those of all `Settings`, and these.

    Attributes:
        num_steps: T, steps of each environment in a round.
        num_updates: updates in a round.
        learning_starts: environment steps before the first update, with random actions.
        capacity: transitions that the buffer keeps.
        replay: how they are drawn: "uniform", "prioritized", in proportion to the "return" of their
            episode (until it ends: the mean of the last episodes' returns), or "hindsight":
            uniformly, most of them with a goal that their episode achieved later, for environments
            with goals. With "return" and "hindsight" `n_step` is 1, and with the latter nothing is
            normalised, unless you say otherwise.
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
        hindsight_ratio: part of the transitions that "hindsight" gives another goal, 0 to 1.
        hindsight_goal: what these achieved goals are of: a "future" step of the episode, its
            "final" one, or any of the "episode".

    Raises:
        TypeError, ValueError: a value of another type or outside of its range, with its name.
    """

    num_envs: int = 8
    num_steps: int = 1
    num_updates: int = 8
    learning_starts: int = 1000
    capacity: int = 100_000
    replay: Literal["uniform", "prioritized", "return", "hindsight"] = "uniform"
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
    hindsight_ratio: float = 0.8
    hindsight_goal: Literal["future", "final", "episode"] = "future"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ValueError("hidden=(): expected one hidden layer at least")
        if self.capacity < max(self.batch_size, self.num_envs * (self.n_step + 1)):
            raise ValueError(
                f"capacity={self.capacity}: expected room for batch_size={self.batch_size} and for "
                f"n_step + 1 steps of {self.num_envs} environments"
            )
        if self.replay in ("return", "hindsight") and self.n_step > 1:
            raise ValueError(f'n_step={self.n_step}: replay="{self.replay}" has n_step=1 only')

    def implied_by(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return what goes with a way to replay that is not that of these settings."""
        replay = changes.get("replay", self.replay)
        return {} if replay == self.replay else IMPLIED.get(str(replay), {})


class OffPolicy(FromBuffer):
    """An agent that learns from a replay buffer; base of `DQN`, `SAC`, `TD3` and `DDPG`.

    Every field of its config, such as `learning_rate`, is a keyword argument too.

    Args:
        env: id of a registered environment, a `Dynamics`, or a `VectorEnv` (which the agent
            resets); or spaces alone, of `rlcpu.envs.spaces_of`, to learn offline.
        seed: the whole run is a function of it, whatever the number of threads.
        num_threads: threads at most; None takes all of numba's.
        dtype: of the simulation; the networks compute in float32.
        buffer: what `rlcpu.replay` makes, uniform, prioritised or return-weighted, with the fields
            of `example()` of such an agent, where planes are packed, as by
            `rollout.transitions(names, packed=True)`; None makes one as the settings say. Its
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

    num_kernels: ClassVar[int] = 30
    Config: ClassVar[type[OffPolicyConfig]]

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
        self._batches, self._drawn, self._last_batch = {}, LastMade(), None
        self._begin_history()

    def _check_fit(self, dynamics: Dynamics) -> None:
        super()._check_fit(dynamics)
        if isinstance(dynamics, SpacesTask) and self.config.normalize_rewards:
            raise ValueError(
                f"normalize_rewards=True: {dynamics.id} are spaces alone, of which no returns are "
                "known; scale the rewards of the buffer"
            )

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
            if buffer is None:
                return replayed.make_buffer(self.example(), self.config, seed)
            replayed.check_buffer(buffer, self.env, self.config, self.example())
            return buffer
        if self.config.replay == "hindsight" and getattr(buffer, "compute_reward", None) is None:
            buffers.check_goals(self.env)
        if buffer is None:
            return buffers.make_buffer(self.example(), self.config, seed)
        buffers.check_buffer(buffer, self.env, self.example())
        return buffer

    # ------------------------------------------------------------ a call of `learn`

    def _open_session(self, total_steps: int, processes: Processes) -> Any:
        """Return a context of collectors, and shards as buffers, in other processes."""
        from rlcpu.distributed.learning import Session

        if self.state_size:
            raise ValueError(
                f"num_collectors={processes.num_collectors}: sequences of networks with memory are "
                "replayed in one process, expected None"
            )
        if self.config.replay == "hindsight":
            raise ValueError(
                f"num_collectors={processes.num_collectors}: goals of whole episodes are replayed "
                "in one process, expected None"
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

    def _give_up(self, history: History) -> None:
        super()._give_up(history)
        self._forget_batches()

    def _repeat(self, history: History, last: int, call: Call) -> None:
        """Let a kernel make rounds like the last one, for about 50 ms, if it can make such rounds.

        Args:
            history: of this call of `learn`.
            last: steps of the history at which rounds end.
            call: the call of `learn`.
        """
        rollout, batch = self._rollout, self._last_batch
        drawn = None if batch is None else self._drawn.get(len(batch))
        steps_left = call.total_steps - history.steps
        if rollout is None or drawn is None or drawn.batch is not batch:
            return
        if not can_repeat(self, rollout, drawn, steps_left):
            return
        size = rollout.rewards.size
        seconds_per_round = (history.time_collect + history.time_update) * size / history.steps
        rounds_to_last = -(-(last - history.steps) // size)
        # As many as twice `LONGEST`, nanoseconds, may hold: the kernel stops by its clock.
        max_rounds = min(rounds_to_last, int(2e-9 * LONGEST / seconds_per_round) + 1)
        result = make_rounds(self, rollout, drawn, max_rounds, call.schedule)
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

    # ------------------------------------------------------------ files, see `Agent`

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
