"""Agents with a replay buffer that learn from collectors and shards in other processes.

A collector answers a request with a block of transitions, in the object store of the cluster; the
learner passes a reference to it on to a shard, and draws from the shards. The ledger counts where
all transitions are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from rlcpu.distributed.actors import Cluster, RayActor
from rlcpu.distributed.collector import Collector, Made, pin_all, start_collectors
from rlcpu.distributed.ledger import Ledger
from rlcpu.distributed.limiter import SamplesPerInsert
from rlcpu.distributed.remote import LostError, StoreFullError, wait_for_room
from rlcpu.distributed.replay import EmptyError, ShardedReplay
from rlcpu.distributed.shard import ReplayShard
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.announce import clock
from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.replay.structure import TransitionStructure

if TYPE_CHECKING:
    from rlcpu.train.keeping.history import History
    from rlcpu.train.off_policy import OffPolicy

#: Kinds of buffers that can be sharded; the first that fits counts.
KINDS = (PrioritizedReplayBuffer, ReplayBuffer)
#: Bytes of a block from which a call's own cost is small beside them.
BLOCK_BYTES = 2**20
#: Blocks of which a run has at least so many, however small they are then.
BLOCKS = 500
#: Part of the object store that blocks on the way may fill.
STORE_SHARE = 0.25
#: Seconds to wait for a block where nothing else can be done.
PAUSE = 0.1


@dataclasses.dataclass
class _State:
    """State of a collector as far as it is known here."""

    #: Steps that the collector made and no block has delivered yet, as they wait for the end of
    #: their n steps; see `Ledger`.
    carried: int = 0
    life: int | None = None  # see `Made.life`; None before its first answer
    steps_per_second: float = math.nan  # of its last answer


class Request(NamedTuple):
    """Steps that a collector was asked for."""

    collector: int  # its number
    size: int  # steps of all its environments
    block: Any  # references to its answer, see `Collector.collect`
    priorities: Any
    report: Any


def _kind_of(agent: OffPolicy, num_collectors: int) -> type[ReplayBuffer]:
    """Return the class of an agent's shards; TypeError or ValueError if it can have none."""
    kind = next((kind for kind in KINDS if isinstance(agent.buffer, kind)), None)
    if kind is None:
        raise ValueError(
            f"num_collectors={num_collectors}: {agent.algorithm} with buffer={agent.buffer!r} "
            "learns here alone, expected a ReplayBuffer or PrioritizedReplayBuffer"
        )
    names = [n for n in ("normalize_observations", "normalize_rewards") if getattr(agent.config, n)]
    if names:
        with_these = " and ".join(f"{name}=True" for name in names)
        without = ", ".join(f"{name}=False" for name in names)
        raise ValueError(
            f"num_collectors={num_collectors}: {agent.algorithm} with {with_these} learns here "
            "alone, its statistics are of all steps in their order; write "
            f"{agent.algorithm}(..., {without})"
        )
    if not isinstance(agent.env, VectorEnv):
        raise TypeError(
            f"num_collectors={num_collectors}: collectors make environments of rlcpu, "
            f"not {agent.env!r}"
        )
    return kind


class Session:
    """Collectors and shards of a learner; a context manager, which gives its own buffer back to it.

    Collectors work ahead of the learner and behind it as far as `SamplesPerInsert` lets them: the
    ratio is that of the agent's settings, in which a round of so many steps has so many updates.

    Args:
        agent: that learns.
        total_steps: environment steps that it is to make.
        num_collectors: processes that act, each with the agent's `num_envs`.
        num_shards: processes that share the capacity of the agent's buffer, and are of its kind.
        address: of a Ray cluster; None for this machine.
        folder: where shards save what they hold, a folder each; None for nowhere.
        save_period: seconds between saves.

    Attributes:
        ledger: what became of all transitions.
        limiter: see above.

    Raises:
        TypeError, ValueError: an argument is bad, or the agent has a buffer that cannot be sharded.
        ImportError, ClusterError: see `Cluster`.
    """

    def __init__(
        self,
        agent: OffPolicy,
        total_steps: int,
        *,
        num_collectors: int = 1,
        num_shards: int = 1,
        address: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        save_period: float = 30.0,
    ) -> None:
        num_collectors = check_count("num_collectors", num_collectors)
        num_shards = check_count("num_shards", num_shards)
        kind = _kind_of(agent, num_collectors)
        example = {**agent.example(), "discount": np.float32(0)}
        structure = TransitionStructure(example)
        size = sum(field.dtype.itemsize * math.prod(field.shape) for field in structure.fields)
        self.agent, self._own_buffer = agent, agent.buffer
        self._choose_sizes(BLOCK_BYTES // size, total_steps, num_collectors)
        self.ledger = agent.ledger = Ledger()
        streams = np.random.SeedSequence(agent.seed).generate_state(num_collectors + 1)
        self.cluster = Cluster(num_collectors + num_shards, address)
        with self.cluster.closed_on_error():
            self.replay = ShardedReplay(
                self._start_shards(kind, num_shards, example, folder, save_period),
                structure,
                beta=getattr(self._own_buffer, "beta", 0.4),  # unused without priorities
                prioritized=kind is PrioritizedReplayBuffer,
                seed=int(streams[-1]),
                ledger=self.ledger,
            )
            self.limiter.insert(self.ledger.stored)
            self._collectors = self._start_collectors(kind, streams[:-1].tolist())
            most = int(STORE_SHARE * self.cluster.store_bytes()) // size
        self._most_on_the_way = max(most, 2 * self._block)  # transitions in the object store
        self._parameters: Any = None  # reference to the policy's arrays that were published last
        self._published = -1  # updates before that
        self._lost_before = 0  # `Ledger.lost_on_the_way` as the limiter knows it
        self._states = [_State() for _ in range(num_collectors)]
        self._requests: dict[Any, Request] = {}  # by the reference to the report
        self._idle = list(range(num_collectors))
        self.replay.in_place_of = agent.buffer
        buffer: Any = self.replay  # has what a learner calls of a buffer
        agent.buffer = buffer

    def _choose_sizes(self, largest_block: int, total_steps: int, num_collectors: int) -> None:
        """Choose the size of blocks, and make the limiter.

        Blocks are no larger than the first ones of all collectors need to be for learning to begin,
        and than `largest_block` transitions, unless single steps of all environments are more. A
        run of `total_steps` has `BLOCKS` blocks at least.
        """
        config = self.agent.config
        least = max(config.learning_starts, config.batch_size)  # transitions before it learns
        block = min(largest_block, -(-total_steps // BLOCKS), -(-least // num_collectors))
        self._num_steps = max(config.num_steps, -(-block // config.num_envs))
        self._block = self._num_steps * config.num_envs
        draws = config.num_updates * config.batch_size
        ratio = draws / (config.num_envs * config.num_steps)
        # A block under way from each collector, one more, and a round of draws.
        slack = ratio * self._block * (num_collectors + 1) + draws
        self.limiter = SamplesPerInsert(ratio, least, slack)

    def _start_shards(
        self, kind: Any, count: int, example: Any, folder: Any, save_period: float
    ) -> list[RayActor]:
        """Start shards like the agent's own buffer, which share its capacity."""
        buffer = self._own_buffer
        options = {"capacity": -(-buffer.capacity // count), "example": example}
        if kind is PrioritizedReplayBuffer:
            options |= {"alpha": buffer.alpha, "epsilon": buffer.epsilon}
        if folder is not None:
            Path(folder).mkdir(exist_ok=True)
        return [
            self.cluster.start(
                ReplayShard,
                kind,
                options,
                folder=None if folder is None else Path(folder, f"shard-{number}").absolute(),
                save_period=save_period,
            )
            for number in range(count)
        ]

    def _start_collectors(self, kind: Any, seeds: list[int]) -> list[RayActor]:
        """Start a collector for each seed that acts as the agent does; `kind` is of the shards."""
        agent, config = self.agent, self.agent.config
        options = {
            "num_envs": config.num_envs,
            "dtype": agent.env.dtype.name,
            "n_step": config.n_step,
            "gamma": config.gamma,
            "prioritized": kind is PrioritizedReplayBuffer,
            "reward_scale": getattr(config, "reward_scale", 1.0),
            "agent": (type(agent), config),
        }
        start = functools.partial(
            self.cluster.start, Collector, agent.env.dynamics, agent.policy, **options
        )
        return start_collectors([functools.partial(start, seed=seed) for seed in seeds])

    # ------------------------------------------------------------ learning

    def advance(self, history: History) -> None:
        """Ask collectors for transitions, pass on finished ones, and make a round of updates."""
        agent, start = self.agent, clock()
        config = agent.config
        self._dispatch()
        draws = config.num_updates * config.batch_size
        can_learn = self.limiter.can_sample(draws) and self.replay.can_sample()
        self._gather(history, 0.0 if can_learn else PAUSE)
        now = clock()
        history.time_collect += now - start
        if can_learn:
            # A shard that has just died may have held everything.
            with contextlib.suppress(EmptyError):
                history.losses = agent.improve()
                self.limiter.sample(draws)
            history.time_update += clock() - now

    def _dispatch(self) -> None:
        """Ask idle collectors for a block each, as far as the limits allow."""
        ledger = self.ledger
        while self._idle and self._wants_more():
            if ledger.on_the_way > self._most_on_the_way:
                ledger.waits += 1
                self.replay.take_answers()
                return
            self._publish()
            collector = self._idle.pop(0)
            calls = self._collectors[collector].call("collect", self._parameters, self._num_steps)
            request = Request(collector, self._block, *calls)
            self._requests[request.report] = request
            self.limiter.insert(self._block)
            ledger.requested += self._block
            ledger.being_made += self._block

    def _wants_more(self) -> bool:
        """Tell whether one more block is to be made.

        The limiter counts what was stored, also what a shard has lost since: if nothing is left to
        be drawn, more is made in any case.
        """
        ledger = self.ledger
        is_empty = not (len(self.replay) or ledger.on_the_way or ledger.being_made)
        return is_empty or self.limiter.can_insert(self._block)

    def _publish(self) -> None:
        """Put the policy's arrays into the object store, for collectors, if they have changed."""
        agent = self.agent
        # Without updates it may have changed too: from random steps to others.
        if self._published != agent.num_updates or agent.num_updates == 0:
            if agent.steps >= agent.config.learning_starts:
                agent.explore()
            put, parameters = self.cluster.put, agent.policy.state()
            self._parameters = wait_for_room(
                lambda: put(parameters), self.ledger, self.replay.take_answers
            )
            self._published = agent.num_updates

    def _gather(self, history: History, timeout: float) -> None:
        """Pass finished blocks on to shards, and count; wait `timeout` seconds for the first."""
        if not self._requests:  # too much is on the way to shards
            time.sleep(timeout)
        for call in self.cluster.wait(list(self._requests), timeout) if self._requests else []:
            self._pass_on(self._requests.pop(call), history)
        self.replay.take_answers()
        lost = self.ledger.lost_on_the_way
        self.limiter.insert(self._lost_before - lost)  # less than nothing: they are not stored
        self._lost_before = lost
        speeds = {
            f"collector_{i}_steps_per_second": state.steps_per_second
            for i, state in enumerate(self._states)
        }
        sizes = {f"shard_{i}_size": size for i, size in enumerate(self.replay.sizes())}
        history.actors = {**speeds, **sizes}

    def _pass_on(self, request: Request, history: History) -> None:
        """Send the block of a finished request to a shard, and count; revive a dead collector."""
        collector, size = request.collector, request.size
        ledger, state = self.ledger, self._states[collector]
        self._idle.append(collector)
        try:
            request, report = self._read(request)
        except LostError:
            self._count_death(state, being_made=size)
            self._collectors[collector].revive()
            pin_all(self._collectors)
            return
        if state.life not in (report.life, None):  # it died between two requests
            self._count_death(state, being_made=0)
            pin_all(self._collectors)
        state.life, state.steps_per_second = report.life, size / report.seconds
        num_carried = size - report.size  # fewer than before if it is below 0
        state.carried += num_carried
        ledger.carried += num_carried
        ledger.being_made -= size
        if report.size > 0:
            self.replay.add(request.block, report.size, request.priorities)
        self.agent.count(size, report.returns, history)

    def _read(self, request: Request) -> tuple[Request, Made]:
        """Return a finished request, and the collector's report; LostError if it died.

        A block that had no room in the object store is sent again: then the request is another one.
        """
        collector = self._collectors[request.collector]
        try:
            return request, collector.result(request.report)
        except StoreFullError:
            self.ledger.waits += 1

        def read_again() -> tuple[Request, Made]:
            repeated = Request(request.collector, request.size, *collector.call("again"))
            report = collector.result(repeated.report)
            if report is None:
                raise LostError("it died between two requests")
            return repeated, report

        answer: tuple[Request, Made] = wait_for_room(
            read_again, self.ledger, self.replay.take_answers
        )
        return answer

    def _count_death(self, state: _State, being_made: int) -> None:
        """Count a collector's death; what it was making and what it carried is lost."""
        lost = being_made + state.carried
        self.ledger.being_made -= being_made
        self.ledger.carried -= state.carried
        self.ledger.lost_with_collectors += lost
        self.ledger.collector_restarts += 1
        self.limiter.insert(-lost)
        state.carried, state.life = 0, None

    def close(self) -> None:
        """End the processes."""
        self.agent.buffer = self._own_buffer
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.replay.take_answers(wait=True)
        finally:
            self.close()
