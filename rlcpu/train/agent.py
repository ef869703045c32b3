"""Base of all agents: how they are made, learn and act."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.gymnasium.alone import SpacesTask
from rlcpu.envs.registration import make_vec
from rlcpu.envs.rollout.collect import Rollout, collect
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.kernels.compiler import announce
from rlcpu.kernels.compiler.announce import clock
from rlcpu.nn.network.scaling import USUAL_LIMIT
from rlcpu.train.acting import ActingAgent
from rlcpu.train.keeping.history import History, LearningBar, Progress
from rlcpu.train.keeping.normalise import Normalizer, RewardNormalizer
from rlcpu.train.keeping.saved import attributes_of
from rlcpu.train.running import precompile
from rlcpu.train.running.advice import InputWatch
from rlcpu.train.running.evaluations import Evaluations
from rlcpu.train.running.interrupts import WholeRounds
from rlcpu.train.running.upkeep import Upkeep, UpkeepOptions
from rlcpu.train.settings.arguments import (
    callbacks_of,
    check_config,
    check_env,
    check_learning,
    check_schedule,
    choose_config,
    signature_of,
)
from rlcpu.train.settings.tuned import settings_for
from rlcpu.translation import ANSWERS, answered, describe_unknown

Array = npt.NDArray[Any]
Method = TypeVar("Method", bound=Callable[..., Any])
#: Training episodes that a mean return is taken over, and episodes of a greedy evaluation.
WINDOW = 100


#: Methods of agents that a kernel stands for, by their names; see `repeatable`.
_REPEATABLE: dict[str, list[Any]] = {}


def repeatable(method: Method) -> Method:
    """Decorator: a method of agents, a part of a round, in whose place a kernel does the same.

    Where an agent has another method in its place, Python makes all rounds.
    """
    _REPEATABLE.setdefault(method.__name__, []).append(method)
    return method


def is_repeatable(agent: Agent) -> bool:
    """Tell whether an agent's rounds consist of `repeatable` methods."""
    parts = {name: getattr(agent, name) for name in _REPEATABLE}
    return all(getattr(x, "__func__", None) in _REPEATABLE[name] for name, x in parts.items())


class Processes(NamedTuple):
    """Other processes that collect for an agent; see `Agent.learn`."""

    num_collectors: Any  # int; None acts in this process
    num_shards: int | None
    address: str | None
    replay_folder: str | os.PathLike[str] | None


class Call(NamedTuple):
    """One call of `learn`."""

    total_steps: int  # environment steps at most
    target: float | None  # mean return that ends it
    schedule: tuple[int, int]  # total steps of the agent between which schedules run
    session: Any  # processes that collect, or None
    rounds: WholeRounds  # runs functions that Ctrl-C does not interrupt
    is_watched: bool  # whether something looks at the agent, as a callback, which may change it
    start: float  # the clock when it began, seconds
    compiled: float  # seconds of compiling until then


class Seeds(NamedTuple):
    """Seeds of an agent's parts."""

    weights: int
    order: int  # of minibatches
    actions: int  # of `Agent.rng`
    draws: int = 0  # from the buffer


class Agent(ActingAgent):
    """Base of all agents: how they are made, learn and act.

    A subclass makes the policy and the learner, and says how a call of `learn` makes progress.
    """

    #: Settings tuned for environments, by the id or the family, such as "MinAtar/*".
    defaults: ClassVar[Mapping[str, Any]] = {}
    #: Settings for all others, see `rlcpu.train.settings.tuned.settings_for`.
    general: ClassVar[Mapping[str, Any]] = {}
    history: History
    ledger: Any = None
    _rollout: Rollout | None
    _input_watch: InputWatch
    _compiled_before: float  # seconds in which the process had compiled before it was made

    def __init_subclass__(cls) -> None:
        """Show the fields of the config where the class is shown, as by `help`."""
        super().__init_subclass__()
        if hasattr(cls, "Config"):
            cls._check_saved_numbers()
            agent_class: Any = cls
            agent_class.__signature__ = signature_of(cls)

    # ------------------------------------------------------------ a new agent

    def _begin(
        self,
        env: Any,
        config: Any,
        settings: Mapping[str, Any],
        *,
        seed: int,
        num_threads: int | None,
        dtype: str,
        num_seeds: int,
    ) -> Seeds:
        """Set environments, settings, statistics and the random generator of a new agent.

        All but `num_seeds`, how many of `Seeds` the class needs, are arguments of the class.
        """
        self.seed, env = check_seed(seed), check_env(env)
        dynamics = env if isinstance(env, Dynamics) else env.dynamics
        if isinstance(dynamics, SpacesTask) and not hasattr(type(self), "learn_offline"):
            reason = f"{self.algorithm} learns from steps of its own, expected an environment"
            raise TypeError(f"env={dynamics!r}: {reason}")
        defaults = self.default_config(dynamics)
        self.config = choose_config(type(self), env, config, defaults, settings)
        self._check_fit(dynamics)
        self._compiled_before = announce.seconds()
        announce.expect(dynamics.id, self.num_kernels)
        if isinstance(env, Dynamics):
            env = make_vec(env, self.config.num_envs, dtype=dtype, num_threads=num_threads)
        self.env, self.steps = env, 0
        stream = np.random.SeedSequence(self.seed)
        # Seeds of the agent's parts, then one for each environment.
        numbers = stream.generate_state(num_seeds + env.num_envs, np.uint64).tolist()
        seeds = Seeds(*numbers[:num_seeds])
        env.reset(seed=numbers[num_seeds:])
        self.rng = np.random.default_rng(seeds.actions)
        self.normalizer = Normalizer(dynamics.observation_size)
        self.rewards = RewardNormalizer(env.num_envs)
        self.returns = deque(maxlen=WINDOW)
        self._input_watch = InputWatch(dynamics.observation_space)
        self._rollout = None
        return seeds

    def _begin_history(self) -> None:
        """Set an empty history, the last thing in making an agent; the first `learn` adds to it."""
        seconds = announce.seconds() - self._compiled_before
        self.history = History(losses=self._no_losses, time_compile=seconds)

    @classmethod
    def default_config(cls, dynamics: Dynamics) -> Any:
        """Return the settings that an agent takes in an environment unless it is told otherwise.

        Args:
            dynamics: such as `rlcpu.envs.find("CartPole-v1")`.
        """
        chosen = settings_for(dynamics, cls.defaults, cls.general, cls.Config)
        if isinstance(dynamics, SpacesTask):  # no returns are collected to take a deviation of
            chosen = chosen.replace({"normalize_rewards": False})
        return cls._as_own_config(chosen)

    @classmethod
    def _as_own_config(cls, config: Any) -> Any:
        """Return settings of an environment as those of this class.

        A subclass with a config of its own may lack fields of its base's, and has defaults of its
        own for some, which stay.
        """
        if type(config) is cls.Config:
            return config
        defaults, base_defaults = cls.Config(), type(config)()
        common = [name for name in vars(config) if name in defaults.names()]
        changes = {
            name: getattr(config, name)
            for name in common
            if getattr(defaults, name) == getattr(base_defaults, name)
        }
        return defaults.replace(changes)

    def _check_fit(self, dynamics: Dynamics) -> None:
        """Raise TypeError or ValueError where an environment does not fit the agent."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; of a complete agent only one that it has and that has an effect.

        Settings are fields of `config`, which may be replaced, but for those that only have an
        effect when an agent is made, such as `hidden`.
        """
        is_complete = "history" in self.__dict__  # the last that a constructor sets
        if is_complete and not name.startswith("_"):
            self._check_attribute(name, value)
        super().__setattr__(name, value)
        if is_complete and name == "config":
            self._limit_observations()

    def _limit_observations(self) -> None:
        """Let the policy clip what its networks get as `clip_observations` of the settings says."""
        limit = getattr(self.config, "clip_observations", None)  # a user's config may lack it
        if limit is None and self.config.normalize_observations:
            limit = USUAL_LIMIT
        if limit is not None:
            self.policy.observation_limit[...] = limit

    def _check_attribute(self, name: str, value: Any) -> None:
        """Raise AttributeError for an attribute that an agent lacks or that nobody may set."""
        agent_class: Any = type(self)
        kind, settings = agent_class.__name__, self.Config.names()
        if name in settings:
            check_config(self.config, self.config.replace({name: value}))
            change = f"agent.config = agent.config.replace({{{name!r}: {value!r}}})"
            raise AttributeError(f"{name} is a field of {kind}'s config: {change}")
        if name in ("policy", "seed"):
            raise AttributeError(f"{name}: {kind} is made with it, make another one")
        if name == "config":
            check_config(self.config, value)
        is_ours = agent_class.__module__.startswith("rlcpu.")  # others may have more attributes
        if is_ours and name not in attributes_of(agent_class):
            reason = describe_unknown(name, settings, kind)
            raise AttributeError(f"{reason}; settings are fields of its config")

    if not TYPE_CHECKING:  # type checkers shall find names that there are not

        def __getattr__(self, name):
            hint = "" if name.startswith("_") else ANSWERS.get(name, "")
            if name in self.Config.names():
                hint = "it is a field of agent.config"
            reason = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{reason}; {hint}" if hint else reason, name=name, obj=self)

    # ------------------------------------------------------------ learning

    @answered
    def learn(
        self,
        total_steps: int | float,
        *,
        callback: Callable[[Progress], Any] | Sequence[Callable[[Progress], Any]] | None = None,
        target_return: float | None = None,
        progress: bool = False,
        evaluations: int | Evaluations | None = None,
        keep_best: str | os.PathLike[str] | None = None,
        patience: int | None = None,
        save_to: str | os.PathLike[str] | None = None,
        save_every: int | float | None = None,
        num_collectors: int | None = None,
        num_shards: int | None = None,
        address: str | None = None,
        replay_folder: str | os.PathLike[str] | None = None,
        schedule: tuple[int, int] | None = None,
    ) -> History:
        """Collect and update until the steps are used up, the target is reached, or told to stop.

        Args:
            total_steps: environment steps, rounded up to whole rollouts; schedules run over them.
            callback: called after every rollout of `PPO` and its update, and after every 500 steps
                of other agents; learning stops when it returns False. Of a list all are called.
            target_return: stop once greedy episodes reach it on average. `PPO` plays 100 where the
                last 100 training episodes have reached it, and their mean has to be above it by
                three standard errors; others play 100, and 100 more, every 2,000 steps.
            progress: show a bar on standard error, or a line now and then where it is a file.
            evaluations: how many evaluations are made on the way, of 20 greedy episodes each, the
                last one at the end; `Evaluations` chooses episodes and environments. They are in
                the history, and change nothing that is learnt.
            keep_best: file to save the agent to whenever an evaluation is the best so far, the
                earliest of equal ones; see `best_evaluation`.
            patience: stop after so many evaluations in a row of which none was better than the best
                before them.
            save_to: file to save the agent to, every `save_every` steps and at the end. "{steps}"
                in it stands for the agent's steps, and makes a file of each.
            save_every: total environment steps, such as 100_000; an agent is saved at the first
                call of callbacks at or after them.
            num_collectors: processes that act, on Ray; None acts here. Those of `PPO` and `PQN`
                share the environments, and the result is the same; those of agents with replay
                have `num_envs` environments each.
            num_shards: processes that hold the transitions then, in the place of `buffer`; None
                for one.
            address: of a Ray cluster; None for this machine.
            replay_folder: where shards save what they hold, every 30 seconds, and what they go on
                from; seen by all machines. None for nowhere.
            schedule: total steps of the agent, over all calls, between which schedules run and
                evaluations are spread; None for those of this call.

        Returns:
            What was reached; `agent.history` is the same, also while learning goes on.

        Raises:
            TypeError, ValueError: a bad argument.
            OSError: a file cannot be written, as is found out before anything is learnt.
            FloatingPointError: a reward, observation, loss or gradient became NaN or infinite; the
                message says which. It was not learnt from.

        Warns:
            UserWarning: `save` will refuse a subclass's numbers, see `saved_numbers`.

        After these, and after Ctrl-C and an exception in the callback, `history` holds the curve so
        far, the agent can be evaluated and saved, and the next `learn` goes on with it. `PPO` is
        what it was after its last whole update, environments included: where one of them showed NaN
        it would do so again, and `agent.env.reset()` starts other episodes. All other agents keep
        what was learnt, and Ctrl-C waits for the end of their round, a second one does not wait.
        What goes on is bit for bit the run that was not interrupted.
        """
        if isinstance(self.env.dynamics, SpacesTask):
            raise ValueError(f"total_steps={total_steps!r}: {self.env.dynamics.advice}")
        total_steps = check_count("total_steps", total_steps)
        processes = Processes(num_collectors, num_shards, address, replay_folder)
        callbacks = callbacks_of(callback)
        check_learning(target_return, processes._asdict())
        bounds = check_schedule(schedule, self.steps, total_steps)
        options = UpkeepOptions(evaluations, keep_best, patience, save_to, save_every)
        upkeep = Upkeep(self, bounds, options)
        # What `save` will refuse is told now, and not after hours.
        self._read_numbers()
        if unsaved := self._unsaved_numbers():
            if upkeep.writes_files:
                raise TypeError(unsaved)
            warnings.warn(unsaved, stacklevel=3)  # behind `answered`
        # A second process compiles the update from now on, while the policy is compiled here.
        with precompile.precompiled(self.learner, precompile.describe(self, self._kind)):
            self._undo_interrupted_update()
            self._read_policy()
            opened: Any = contextlib.nullcontext()
            if num_collectors is not None:
                opened = self._open_session(total_steps, processes)
            self._past = tuple(self.calls)
            # The history of an agent that has not learnt yet has what compiled while it was made.
            making = 0.0 if self.history.stopped else self.history.time_compile
            history = self.history = History(losses=self._no_losses, steps_before=self.steps)
            start, compiled = clock(), announce.seconds() - making
            bar, size = None, self.config.num_steps * self.env.num_envs
            if progress:  # over whole rollouts
                whole_steps = -(-total_steps // size) * size
                bar = LearningBar(self.env.dynamics.id, whole_steps, target_return)
            shown: Any = bar or contextlib.nullcontext()
            try:
                with opened as session, shown, WholeRounds() as rounds:
                    call = Call(
                        total_steps=total_steps,
                        target=target_return,
                        schedule=bounds,
                        session=session,
                        rounds=rounds,
                        is_watched=bool(callbacks) or upkeep.is_needed,
                        start=start,
                        compiled=compiled,
                    )
                    while not history.stopped:
                        self._make_progress(history, call)
                        self._input_watch.look(self, self._replayed_inputs)
                        upkeep.evaluate(history)
                        if bar is not None:
                            bar.tell(history, history.time_total)
                        answers = [each(history) for each in callbacks]
                        if any(answer is False for answer in answers):
                            history.stopped = history.stopped or "callback"
                            upkeep.evaluate(history)
                        upkeep.save(history)
            except BaseException as error:
                self._give_up(history)
                is_interrupt = isinstance(error, KeyboardInterrupt)
                history.stopped = "interrupted" if is_interrupt else "error"
                raise
        return history

    @property
    def report_steps(self) -> int:
        """Return the environment steps between two calls of callbacks, those of a rollout."""
        return int(self.config.num_steps * self.env.num_envs)

    def _open_session(self, total_steps: int, processes: Processes) -> Any:
        """Return a context of collectors in other processes, which make the agent's rollouts."""
        from rlcpu.distributed.rollouts import RolloutSession

        count, num_shards, address, folder = processes
        if num_shards is not None or folder is not None:
            options = f"num_shards={num_shards}, replay_folder={folder!r}"
            reason = f"{self.algorithm} has no replay, expected num_collectors alone"
            raise ValueError(f"{options}: {reason}")
        return RolloutSession(self, num_collectors=count, address=address)

    def _read_policy(self) -> None:
        """Read the policy's present parameters, to which the user may have written."""
        raise NotImplementedError

    def _make_progress(self, history: History, call: Call) -> None:
        """Collect and learn until there is an entry for the history, and call `_add_entry`."""
        raise NotImplementedError

    def _add_entry(self, history: History, call: Call) -> None:
        """Add the present progress to the history, and set `stopped` if learning has ended."""
        history.time_total = clock() - call.start - history.time_upkeep
        history.time_compile = announce.seconds() - call.compiled
        history.evaluation = None  # of the report before
        history.add()
        if history.solved:
            history.stopped = "solved"
        elif history.steps >= call.total_steps:
            history.stopped = "steps"

    def _give_up(self, history: History) -> None:
        """Leave an agent that can go on, after an exception in `learn`."""
        self._undo_interrupted_update()

    @repeatable
    def collect_rollout(self, *args: Any, out: Rollout | None) -> Rollout:
        """Call `rlcpu.collect`; collectors in other processes take its place."""
        return collect(*args, out=out)

    @repeatable
    def prepare(self, rollout: Rollout) -> None:
        """Change a rollout in place before anything is learnt from it or stored; here nothing.

        A subclass may replace `rollout.rewards` (T, N), by ones that it learns or computes. All
        that an agent does with rewards comes afterwards: `columns`, normalisation, advantages, the
        buffer. Returns of episodes are those of the environment. In `num_collectors` processes of
        an agent with replay there are `config`, `env` and `policy`, and no other attributes.
        """

    @repeatable
    def columns(self, rollout: Rollout) -> dict[str, Array]:
        """Return the columns of `column_sizes` of a rollout, after `prepare`.

        Returns:
            Arrays (T * N,) or (T * N, size) by name, step after step; (T, N, ...) will do.
        """
        return {}

    def prepare_columns(self, rollout: Rollout) -> dict[str, Array]:
        """Call `prepare`, and return `columns` after checks, (T * N,) or (T * N, size) float32.

        Raises:
            ValueError: there are others than those of `column_sizes`, or one has another size.
            FloatingPointError: a reward that `prepare` left, or a column, is not finite.
        """
        self.prepare(rollout)
        sizes, columns, kind = self.column_sizes(), self.columns(rollout), type(self).__name__
        if not np.isfinite(rollout.rewards).all():
            raise FloatingPointError(f"{kind}.prepare left a reward that is not finite")
        if columns.keys() != sizes.keys():
            returned, expected = (", ".join(each) or "none" for each in (columns, sizes))
            raise ValueError(f"{kind}.columns returned {returned}: column_sizes has {expected}")
        read, count = dict[str, Array](), rollout.rewards.size
        for name, size in sizes.items():
            array = np.asarray(columns[name], np.float32)
            shape = (count, size) if size > 1 else (count,)
            is_by_sample = array.shape[:1] == (count,) or array.shape[:2] == rollout.rewards.shape
            if not is_by_sample or array.size != math.prod(shape):
                reason = f"of shape {array.shape}: expected {shape}"
                raise ValueError(f"{kind}.columns returned {name} {reason}")
            if not np.isfinite(array).all():
                raise FloatingPointError(f"{kind}.columns returned {name} that is not finite")
            read[name] = array.reshape(shape)
        return read

    @repeatable
    def count(self, steps: int, returns: Array, history: History) -> None:
        """Count steps that were made, and the returns (num_episodes,) of episodes that ended."""
        self.returns.extend(returns.tolist())
        self.steps += steps
        history.steps += steps
        history.episodes += len(returns)
        if len(returns) or not history.episodes:
            history.episode_return = float(np.mean(self.returns)) if self.returns else math.nan
