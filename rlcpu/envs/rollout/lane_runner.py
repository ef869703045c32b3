"""How a policy acts in blocks of lanes: the runner that `collect` and `simulate` call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcpu.envs.contract.policies import Policy, mark_of, version_of
from rlcpu.envs.engine.base import Runner
from rlcpu.envs.engine.faults import check_rollout, check_simulation
from rlcpu.envs.engine.form import NUM_SUMS, Records
from rlcpu.envs.engine.frames import RolloutFrame, pack_policy
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.rollout.compiled import FAULT, Rollouts, collect_kernels, simulate_kernels
from rlcpu.kernels.machine.threads import launch


class LaneRunner(Runner):
    """Lets a policy act in a `LaneEngine`, with kernels and arguments that later calls use again.

    To check everything and make the arguments took 19 of the 45 us of a step of one environment; to
    see that nothing has changed takes less than 1.

    Attributes:
        sums: (blocks + 1, 5) float64, which `simulate` overwrites.
        frame: what compiled functions are handed.
        shared_envs: environments that several cores can share: 0 of a single block, which is one
            core's.

    Raises:
        TypeError, ValueError: the policy does not fit the environments.
    """

    engine: LaneEngine

    def __init__(self, engine: LaneEngine, policy: Policy) -> None:
        super().__init__(engine, policy)
        dynamics, space = engine.dynamics, engine.dynamics.action_space
        self.version = version_of(policy)
        self._code, arrays = policy.code(dynamics), policy.arrays(dynamics)
        self.networks, self.state_size = arrays.networks(), arrays.state_size
        self._mark = mark_of(policy)
        engine.carry(self._mark, self.state_size)
        bounds: Any = np.zeros(0, np.float32)
        if not dynamics.is_discrete:
            bounds = np.concatenate((space.low, space.high)).astype(np.float32)  # type: ignore[union-attr]
        blocks, code = len(engine.real), engine.code
        self.sums = np.zeros((blocks + 1, NUM_SUMS))
        self.shared_envs = engine.num_envs if blocks > 1 else 0
        state_spans = code.state.float_spans(engine.scalar_type)
        self.frame = RolloutFrame.of(real=engine.scalar_type)(
            num_envs=engine.num_envs,
            num_blocks=blocks,
            function=engine.steps.facts.function,
            first_draw=code.num_draws,
            block_size=engine.real.shape[1],
            episodes_at=engine.state_size * LANES,
            mask_row=code.observation_rows,
            num_rows=code.shown_rows,
            state=engine.real,
            words=engine.words,
            numbers=engine.numbers,
            bounds=bounds,
            clock=engine.clock,
            observed_spans=np.array(code.float_spans, np.int64).reshape(-1, 2),
            state_spans=np.array(state_spans, np.int64).reshape(-1, 2),
            policy=pack_policy(arrays),
            sums=self.sums,
            faults=np.zeros(blocks, np.int64),
        )

    def collect(self, rollout: Any) -> bool:
        """Take the steps of a rollout; see `Runner.collect`."""
        return self._run(self.collecting, rollout.num_steps, rollout.outputs)

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        if self._run(self.simulating, num_steps, ()):
            check_simulation(self.engine, self.policy, self.sums)
        sums: list[float] = self.sums[-1].tolist()
        return sums

    def _run(self, kernels: Rollouts, num_steps: int, records: tuple[Any, ...]) -> bool:
        """Take K steps, after missing resets, and return whether a number was not finite.

        `records` are those of a rollout, or () for sums alone.
        """
        engine = self.engine
        if self.state_size:
            self.frame.policy.states = engine.carry(self._mark, self.state_size)
        while True:
            code = launch(
                kernels.drivers, num_steps * self.shared_envs, engine.num_threads,
                kernels.address, self.frame.address, num_steps, records,
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
