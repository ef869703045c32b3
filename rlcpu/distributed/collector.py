"""Collectors: environments and a copy of the learner's policy, which make transitions."""

from __future__ import annotations

import contextlib
import copy
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

import rlcpu
from rlcpu.distributed.remote import LostError, Remote
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.registration import make_vec
from rlcpu.envs.rollout.collect import Rollout, collect
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.machine.processors import numa_nodes, share_of_cpus

Array = npt.NDArray[Any]
Columns = dict[str, Array]


class Made(NamedTuple):
    """Report of a collector on the transitions that it made."""

    size: int  # transitions in the block; fewer than steps while n-step sums wait for their end
    returns: Array  # (num_episodes,) float64, undiscounted, of the episodes that ended
    seconds: float  # that it took
    life: int  # names this run of the process; another one after each restart


class CollectorBase:
    """Base of collectors: a copy of the learner's policy, and CPUs of their own."""

    def __init__(self, policy: Any) -> None:
        self.policy = copy.deepcopy(policy)  # arrays that Ray sends are read-only
        self._nodes = numa_nodes()

    def handshake(self) -> tuple[str, None]:
        """Return the version of rlcpu here."""
        return rlcpu.__version__, None

    def machine(self) -> str:
        """Return the name of this machine."""
        return platform.node()

    def pin(self, index: int, count: int) -> None:
        """Keep to CPUs that no other of this machine's collectors has, if it has NUMA nodes."""
        if len(self._nodes) > 1:
            os.sched_setaffinity(0, share_of_cpus(index, count, self._nodes))

    def set_parameters(self, parameters: Mapping[str, Array]) -> None:
        """Act by the arrays of another policy's `state()` from now on."""
        for name, array in self.policy.state().items():
            array[...] = parameters[name]


def start_collectors(starts: Iterable[Callable[[], Any]]) -> list[Any]:
    """Start collectors side by side, each by a call, wait for all, and return them."""
    collectors = [start() for start in starts]
    for each in collectors:
        each.revive()  # waits until it runs; raises for another version of rlcpu
    pin_all(collectors)
    return collectors


def pin_all(collectors: Sequence[Remote]) -> None:
    """Let the collectors of each machine divide its CPUs."""
    with contextlib.suppress(LostError):  # all are pinned again when one comes back from its death
        machines = [each.result(each.call("machine")) for each in collectors]
        for i, (each, machine) in enumerate(zip(collectors, machines, strict=True)):
            # Its number among those of the machine, and how many these are.
            each.call("pin", machines[:i].count(machine), machines.count(machine))


class Collector(CollectorBase):
    """Environments of its own, and a copy of the learner's policy, whose numbers are sent to it.

    Args:
        env: id of a registered environment, or a `Dynamics`.
        policy: one for `rlcpu.collect` with a method `state()`, such as an agent's.
        num_envs: N, environments.
        seed: of them; a collector that comes back after its death takes a new one.
        dtype: of the simulation.
        n_step: steps whose rewards are added up, see `n_step_transitions`.
        gamma: discount factor per step.
        num_threads: threads at most.
        prioritized: whether to compute priorities, if the policy has `td_errors`: the shard gives
            new transitions the largest priority otherwise. Source: Horgan et al. 2018,
            "Distributed prioritized experience replay", section 3.
        reward_scale: of rewards in priorities.
        agent: class and settings of the agent whose `prepare` and `columns` see the rollouts; None
            for none. There it has `config`, `env` and `policy` alone.

    Raises:
        TypeError, ValueError: an argument is bad.
    """

    #: What is large comes first: if that has no room in the object store, nothing arrives.
    num_results: ClassVar = {"collect": 3, "again": 3}

    def __init__(
        self,
        env: str | Dynamics,
        policy: Any,
        *,
        num_envs: int,
        seed: int,
        dtype: str = "float32",
        n_step: int = 1,
        gamma: float = 0.99,
        num_threads: int = 1,
        prioritized: bool = False,
        reward_scale: float = 1.0,
        agent: tuple[Any, Any] | None = None,
    ) -> None:
        self.env = make_vec(env, num_envs, dtype=dtype, num_threads=num_threads)
        self._life = time.time_ns()  # see `Made.life`
        streams = np.random.SeedSequence([seed, self._life])
        self.env.reset(seed=streams.generate_state(num_envs, np.uint64).tolist())
        super().__init__(policy)
        self.gamma, self.prioritized = gamma, prioritized and hasattr(policy, "td_errors")
        self.reward_scale = reward_scale
        self.n_step = check_count("n_step", n_step)
        self._names = tuple(example_of(self.env))
        self._agent: Any = None
        if agent is not None:
            kind, config = agent
            self._agent = kind.__new__(kind)
            vars(self._agent).update(config=config, env=self.env, policy=self.policy)
        # The last steps of every environment, (steps, num_envs, ...), whose n-step sums are not
        # complete; the next call puts them in front of its own.
        self._incomplete: Columns | None = None
        # Arrays of the last call, of so many steps, which a call of as many overwrites.
        self._rollout: Rollout | None = None
        self._num_steps = 0
        self._answer: tuple[Columns | None, Array | None, Made | None] = None, None, None

    def collect(
        self, parameters: Mapping[str, Array], num_steps: int
    ) -> tuple[Columns, Array | None, Made]:
        """Act for some steps of every environment.

        Args:
            parameters: of the policy's `state()`.
            num_steps: T, of each environment.

        Returns:
            The transitions as columns (size, ...): those of
            `rlcpu.envs.rollout.transitions.example_of`, and `discount`; their priorities (size,),
            if it computes them; and a report. Arrays may be views of memory that the next call
            overwrites.

        Raises:
            FloatingPointError: see `rlcpu.collect`.
        """
        start = time.perf_counter()
        self.set_parameters(parameters)
        out = self._rollout if num_steps == self._num_steps else None
        self._rollout = rollout = collect(self.env, self.policy, num_steps, out=out)
        self._num_steps = num_steps
        block = self._complete(rollout)
        size, priorities = len(block["reward"]), None
        if self.prioritized and size:
            priorities = self.policy.td_errors(block, self.env.view, self.reward_scale)
        seconds = time.perf_counter() - start
        report = Made(size, rollout.episode_returns.copy(), seconds, self._life)
        self._answer = block, priorities, report
        return block, priorities, report

    def _complete(self, rollout: Rollout) -> Columns:
        """Return the transitions whose n-step sums a rollout completes, columns (size, ...)."""
        further = {} if self._agent is None else self._agent.prepare_columns(rollout)
        columns = rollout.transitions(self._names, packed=True) | further
        columns["reward"] = columns["reward"].astype(np.float32, copy=False)
        shape = rollout.rewards.shape
        steps = {name: each.reshape(*shape, *each.shape[1:]) for name, each in columns.items()}
        if self._incomplete is not None:
            steps = {name: np.concatenate([self._incomplete[name], steps[name]]) for name in steps}
        summed, count = n_step_transitions(steps, self.n_step, self.gamma)
        self._incomplete = {name: column[count:].copy() for name, column in steps.items()}
        return {name: column.reshape(-1, *column.shape[2:]) for name, column in summed.items()}

    def again(self) -> tuple[Columns | None, Array | None, Made | None]:
        """Return the last answer of `collect` once more, as it may get lost; three None if none."""
        return self._answer


def n_step_transitions(rows: Columns, n: int, gamma: float) -> tuple[Columns, int]:
    """Return n-step transitions of all steps that n - 1 further steps follow.

    With m steps from s_t to the end of the episode, or n if it goes on for longer:

        reward = sum over k < m of gamma**k r_(t+k), discount = gamma**m

    and `next_...`, `terminated` and `truncated` are those of the last of the m steps
    (Sutton and Barto, Reinforcement learning, 2nd edition, equation 7.1).

    `rows` are columns (T, N, ...) of consecutive steps. Returns columns (T - n + 1, N, ...),
    `discount` among them, and the number T - n + 1, at least 0, of their rows.
    """
    steps, num_envs = rows["reward"].shape
    count = max(steps - n + 1, 0)
    ended = rows["terminated"] | rows["truncated"]
    last = np.repeat(np.arange(count)[:, None], num_envs, axis=1)  # the row t + m - 1 of each t
    reward = np.zeros((count, num_envs), np.float32)
    discount = np.ones((count, num_envs), np.float32)
    continues = np.ones((count, num_envs), bool)
    for k in range(n):  # add step t + k to the sums of all steps t at once
        counts = continues & (discount != 0.0)  # else no reward is a term, NaN neither
        added = rows["reward"][k : k + count]
        reward += np.multiply(discount, added, where=counts, out=np.zeros_like(reward))
        discount *= np.where(continues, np.float32(gamma), np.float32(1.0))
        last += continues if k > 0 else 0
        continues &= ~ended[k : k + count]
    envs = np.arange(num_envs)
    columns = {}
    for name, column in rows.items():
        is_of_last = n > 1 and (name.startswith("next_") or name in ("terminated", "truncated"))
        columns[name] = column[last, envs] if is_of_last else column[:count]
    return {**columns, "reward": reward, "discount": discount}, count
