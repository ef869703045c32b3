"""How a policy acts in blocks of lanes: the runner that `collect` and `simulate` call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rlcpu.envs.contract.policies import Policy, mark_of, version_of
from rlcpu.envs.engine.base import Runner
from rlcpu.envs.engine.faults import check_rollout, check_simulation
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.frames import pack_policy
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.rollout.compiled import FAULT, Rollouts, collect_kernels, simulate_kernels
from rlcpu.kernels.machine.threads import launch


class LaneRunner(Runner):
    """Lets a policy act in a `LaneEngine`, with kernels and arguments that later calls use again.

    To check everything and make the arguments takes longer than a step of one environment; to see
    that nothing has changed takes less than 1 us.

    Attributes:
        packed_policy: the policy's numbers, as compiled functions are handed them.
        shared_envs: environments that several cores can share: 0 of a single block, which is one
            core's.

    Raises:
        TypeError, ValueError: the policy does not fit the environments.
    """

    engine: LaneEngine

    def __init__(self, engine: LaneEngine, policy: Policy) -> None:
        super().__init__(engine, policy)
        self.version = version_of(policy)
        self._code, arrays = policy.code(engine.dynamics), policy.arrays(engine.dynamics)
        self.networks, self.state_size = arrays.networks(), arrays.state_size
        self._mark = mark_of(policy)
        engine.carry(self._mark, self.state_size)
        self.shared_envs = engine.num_envs if len(engine.real) > 1 else 0
        self.packed_policy = pack_policy(arrays)

    def collect(self, rollout: Any) -> bool:
        """Take the steps of a rollout; see `Runner.collect`."""
        return self._run(self.collecting, rollout.num_steps, rollout.outputs)

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        if self._run(self.simulating, num_steps, ()):
            check_simulation(self.engine, self.policy, self.engine.frame.sums)
        sums: list[float] = self.engine.frame.sums[-1].tolist()
        return sums

    def _run(self, kernels: Rollouts, num_steps: int, records: tuple[Any, ...]) -> bool:
        """Take K steps, after missing resets, and return whether a number was not finite.

        `records` are those of a rollout, or () for sums alone.
        """
        engine = self.engine
        if self.state_size:
            self.packed_policy.states = engine.carry(self._mark, self.state_size)
        while True:
            code = launch(
                kernels.drivers, num_steps * self.shared_envs, engine.num_threads,
                kernels.address, engine.frame.address, self.packed_policy.address, num_steps,
                records,
            )  # fmt: skip
            if code <= 0:
                return bool(code == FAULT)
            engine.start_episodes()  # `code` environments wait for their reset; none has stepped

    def check(self, records: Records, num_steps: int) -> None:
        """Raise for the first number of a rollout that is not finite; see `Runner.check`."""
        check_rollout(self.engine, self.policy, records, num_steps)

    @functools.cached_property
    def collecting(self) -> Rollouts:
        """Return the kernels that record every step, compiled when first asked for."""
        return collect_kernels(self.engine.code, self.engine.scalar_type, self._code)

    @functools.cached_property
    def simulating(self) -> Rollouts:
        """Return the kernels that record sums alone."""
        return simulate_kernels(self.engine.code, self.engine.scalar_type, self._code)
