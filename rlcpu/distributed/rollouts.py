"""Collectors in other processes for agents that learn from each rollout at once, such as PPO.

The environments stay the agent's: a collector gets the state of its part of them with each call,
and sends it back after its steps. So nothing is lost with a collector, a call can be made again
after its death, and a rollout is bit for bit the one that the agent would have made alone.

`engine.take(envs)` and `engine.put(envs, state)` copy the state of some environments, a slice.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rlcpu.distributed.actors import Cluster
from rlcpu.distributed.collector import CollectorBase, pin_all, start_collectors
from rlcpu.distributed.ledger import Ledger
from rlcpu.distributed.remote import LostError, StoreFullError, wait_for_room
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.engine.base import Engine
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.rollout.collect import Rollout, take_rollout
from rlcpu.kernels.checks import check_count

Array = npt.NDArray[Any]
_ALL = slice(None)


class RolloutPart(NamedTuple):
    """A rollout of a part of the agent's environments."""

    records: Records  # its arrays
    state: dict[str, Array]  # of the environments after it
    faulty: bool  # whether it has a number that is not finite
    seconds: float  # that it took


class _Work(NamedTuple):
    """Steps that all collectors are asked for."""

    parameters: Any  # reference to the policy's arrays
    states: list[dict[str, Array]]  # of each part's environments
    num_steps: int  # of each environment


class RolloutCollector(CollectorBase):
    """Makes rollouts of environments whose state comes with each call; keeps nothing but memory.

    Args:
        dynamics: the environment.
        policy: one for `rlcpu.collect` with a method `state()`.
        num_envs: environments.
        options: of `VectorEnv`.
    """

    def __init__(
        self, dynamics: Dynamics, policy: Any, num_envs: int, options: Mapping[str, Any]
    ) -> None:
        self.env = VectorEnv(dynamics, num_envs, num_threads=1, **options)
        self.env.reset(seed=0)
        super().__init__(policy)
        self._rollout: Rollout | None = None

    def collect(
        self, parameters: Mapping[str, Array], state: Mapping[str, Array], num_steps: int
    ) -> RolloutPart:
        """Act for some steps of every environment: a function of the arguments alone.

        Args:
            parameters: of the policy's `state()`.
            state: of the environments, as their engine's `take` returned it.
            num_steps: T, of each environment.
        """
        start, engine = time.perf_counter(), self.env.engine
        self.set_parameters(parameters)
        engine.put(_ALL, state)
        self._rollout = rollout = take_rollout(engine, num_steps, self._rollout)
        faulty = engine.runner(self.policy).collect(rollout)
        seconds = time.perf_counter() - start
        return RolloutPart(rollout.records, engine.take(_ALL), faulty, seconds)


class RolloutSession:
    """Collectors of an agent without replay, each with a part of its environments; a context.

    While it is open, the agent's `collect_rollout` asks them in the place of `rlcpu.collect`.

    Args:
        agent: PPO or PQN.
        num_collectors: processes that act.
        address: of a Ray cluster; None for this machine.

    Attributes:
        ledger: what became of all steps; it is the agent's too.

    Raises:
        TypeError, ValueError: an argument is bad, or the environments cannot be divided.
        ImportError, ClusterError: see `Cluster`.
    """

    def __init__(self, agent: Any, *, num_collectors: int, address: str | None) -> None:
        env = agent.env
        count = check_count("num_collectors", num_collectors)
        if not isinstance(env, VectorEnv) or env.device != "cpu":
            raise TypeError(
                f"num_collectors={count}: collectors make environments of rlcpu on the CPU, "
                f"not {env!r}"
            )
        if count > env.num_envs:
            raise ValueError(f"num_collectors={count}: expected at most num_envs={env.num_envs}")
        env.engine.start_episodes()
        self.agent, self.ledger = agent, Ledger()
        agent.ledger = self.ledger
        bounds = np.linspace(0, env.num_envs, count + 1).astype(int).tolist()
        self._parts = list(itertools.starmap(slice, itertools.pairwise(bounds)))
        options = {"dtype": env.dtype.name, "max_episode_steps": env.max_episode_steps}
        self.cluster = Cluster(count, address)
        with self.cluster.closed_on_error():
            starts = [
                partial(
                    self.cluster.start,
                    RolloutCollector,
                    env.dynamics.resized(part.stop - part.start, first=part.start),
                    agent.policy,
                    part.stop - part.start,
                    options,
                )
                for part in self._parts
            ]
            self._collectors = start_collectors(starts)
        agent.collect_rollout = self.collect

    def collect(
        self, env: VectorEnv, policy: Any, num_steps: int, *, out: Rollout | None = None
    ) -> Rollout:
        """Collect a rollout as `rlcpu.collect` does, in other processes."""
        engine = env.engine
        runner = engine.runner(policy)
        rollout = take_rollout(engine, num_steps, out)
        first_states = runner.states()  # of the policy's memory; those after follow from the parts
        parts = self._ask_all(engine, policy, num_steps)
        # Views of the records, (any, num_envs, any), of which each part fills the columns `envs`.
        targets = rollout.form.by_env(rollout.records, num_steps)
        for envs, part in zip(self._parts, parts, strict=True):
            for target, source in zip(targets, part.records, strict=True):
                target[:, envs] = source.reshape(len(target), envs.stop - envs.start, -1)
            engine.put(envs, part.state)
        if any(part.faulty for part in parts):
            runner.check(rollout.records, num_steps)  # raises
        rollout.renew(policy, runner, first_states, runner.states())
        self.agent.history.actors = {
            f"collector_{i}_steps_per_second": self._size(i, num_steps) / part.seconds
            for i, part in enumerate(parts)
        }
        return rollout

    def _ask_all(self, engine: Engine, policy: Any, num_steps: int) -> list[RolloutPart]:
        """Return the parts of a rollout, one of each collector; dead ones are asked again."""
        work = _Work(
            wait_for_room(lambda: self.cluster.put(policy.state()), self.ledger),
            [engine.take(envs) for envs in self._parts],
            num_steps,
        )
        parts = dict[int, RolloutPart]()
        calls = {self._ask(i, work): i for i in range(len(self._parts))}
        while calls:
            for call in self.cluster.wait(list(calls), timeout=1.0):
                i = calls.pop(call)
                size = self._size(i, num_steps)
                self.ledger.being_made -= size
                try:
                    parts[i] = self._result(i, call, work)
                    self.ledger.received += size
                except LostError:
                    self.ledger.lost_with_collectors += size
                    self.ledger.collector_restarts += 1
                    self._collectors[i].revive()
                    pin_all(self._collectors)
                    calls[self._ask(i, work)] = i
        return [parts[i] for i in range(len(self._parts))]

    def _ask(self, i: int, work: _Work) -> Any:
        """Ask collector number i for its part once the arguments have room; returns the call."""
        call = wait_for_room(partial(self._call, i, work), self.ledger)
        size = self._size(i, work.num_steps)
        self.ledger.requested += size
        self.ledger.being_made += size
        return call

    def _call(self, i: int, work: _Work) -> Any:
        arguments = work.parameters, work.states[i], work.num_steps
        return self._collectors[i].call("collect", *arguments)

    def _result(self, i: int, call: Any, work: _Work) -> RolloutPart:
        """Wait for the part of collector number i, or make it again where it had no room."""
        collector = self._collectors[i]
        try:
            part: RolloutPart = collector.result(call)
        except StoreFullError:
            self.ledger.waits += 1
            part = wait_for_room(lambda: collector.result(self._call(i, work)), self.ledger)
        return part

    def _size(self, i: int, num_steps: int) -> int:
        """Return how many steps collector number i makes: of its part of the environments."""
        return num_steps * (self._parts[i].stop - self._parts[i].start)

    def close(self) -> None:
        """End the processes; the agent acts itself again."""
        del self.agent.collect_rollout
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
