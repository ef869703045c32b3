"""The engine of environments whose states are numbers: blocks of lanes, stepped by our kernels.

The last block is padded with environments that nobody sees, so that every loop has whole blocks;
they run like the others.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.base import Engine, Runner, TimeStep
from rlcpu.envs.engine.faults import check_rollout, check_simulation
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.lane import (
    ELAPSED,
    KEY_HIGH,
    KEY_LOW,
    LANES,
    NUM_WORDS,
    PENDING,
    Structure,
    pack,
    structure,
)
from rlcpu.envs.engine.layout import check_layout
from rlcpu.envs.engine.rollout import (
    FAULT,
    EnvArrays,
    Rollouts,
    collect_kernels,
    simulate_kernels,
)
from rlcpu.envs.engine.steps import Steps, observe_kernel, reset_kernel, step_kernels
from rlcpu.envs.policies import MEMORY, Policy, carrier_of, version_of
from rlcpu.kernels.memory import aligned_zeros
from rlcpu.kernels.random import GOLDEN, keys
from rlcpu.kernels.threads import launch, launcher

Array = npt.NDArray[Any]
#: To make an array of a type, and not of its dtype, takes half as long again.
_FLOAT, _BOOL = np.dtype(np.float32), np.dtype(np.bool_)


class LaneEngine(Engine):
    """Environments along the lanes of registers; see `Engine`.

    Attributes:
        real: (blocks, rows * LANES), float: state rows, the return so far, and the parameters that
            vary.
        words: (blocks, NUM_WORDS * LANES) uint32: keys, counters and clocks.
        clock: (2,) uint32: the counter of random numbers, which every step advances for all
            streams alike (a seed takes it off its key), and the limit of an episode's steps.
        state_size: rows of memory that hold a state; the next one has the returns.
        code: what of the environment decides machine code.
        numbers: (num_numbers,), the run-time parameters.
    """

    code: Structure
    numbers: Array
    #: Makes a step of the arrays that kernels write.
    make_step: Any = TimeStep
    #: Makers of kernels of (structure, dtype, ...), which a driver of other states has of its own.
    step_kernels = staticmethod(step_kernels)
    reset_kernel = staticmethod(reset_kernel)
    observe_kernel = staticmethod(observe_kernel)
    collect_kernels = staticmethod(collect_kernels)
    simulate_kernels = staticmethod(simulate_kernels)

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Allocate the memory of the environments, none of which has begun; see `Engine`."""
        super().__init__(*args, **settings)
        self._find_code()
        blocks = -(-self.num_envs // LANES)
        self.real = aligned_zeros((blocks, self._row_count * LANES), self.scalar_type)
        self.words = aligned_zeros((blocks, NUM_WORDS * LANES), np.uint32)
        self.clock = np.array([0, self.limit], np.uint32)
        _rows(self.words)[ELAPSED] = PENDING  # nobody is in an episode yet
        nominal = {name: getattr(self.dynamics.params, name) for name in self.code.varied}
        self.set_params({**nominal, **self.dynamics.varied})
        self._shape = self.rows, self.num_envs
        self._finals = np.empty(self._shape if self.same_step else (0, 0), np.float32)

    def _find_code(self) -> None:
        """Set the attributes that a copy of the engine makes anew."""
        self.code = structure(self.dynamics)
        self.numbers = pack(self.dynamics.params, self.scalar_type)
        self.state_size = self.code.state.rows(self.scalar_type)
        self._row_count = self.state_size + 1 + len(self.code.varied)

    @functools.cached_property
    def steps(self) -> Steps:
        """Return the kernels of a step, compiled when first asked for."""
        return self.step_kernels(self.code, self.scalar_type, self.same_step)

    @functools.cached_property
    def _run_steps(self) -> Any:
        """Return the driver of a step, for the present number of environments and threads."""
        return launcher(self.steps.drivers, self.num_envs, self.num_threads)

    def __getstate__(self) -> dict[str, Any]:
        """Return all of it, with episodes and random streams, but no kernels."""
        compiled_anew = ("code", "numbers", "steps", "_run_steps", "last_runner")
        attributes = {
            name: value for name, value in vars(self).items() if name not in compiled_anew
        }
        return {
            **attributes,
            "last_runner": None,
            "had": (self.code.state._replace(made=None), self.code.varied),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        (layout, varied), id = state.pop("had"), state["dynamics"].id
        vars(self).update(state)
        for name in ("real", "words"):  # a copied array begins anywhere
            copied = state[name]
            setattr(self, name, aligned_zeros(copied.shape, copied.dtype))
            getattr(self, name)[...] = copied
        self._find_code()
        check_layout(self.dynamics, layout)
        if varied != self.code.varied:
            was, now = (", ".join(names) or "nothing" for names in (varied, self.code.varied))
            raise ValueError(f"{id} varied {was} when it was pickled and varies {now} now")

    # ------------------------------------------------------------ kernels

    def step(self, actions: Any) -> TimeStep:
        """Take one step; see `Engine.step`."""
        actions, n, steps = self.convert(actions), self.num_envs, self.steps
        if self.disabled:
            self.check_running()
        observations, rewards = np.empty(self._shape, _FLOAT), np.empty(n, self.dtype)
        terminated, truncated = np.empty(n, _BOOL), np.empty(n, _BOOL)
        if self._run_steps(
            *steps.leads, self.real, self.words, actions, self.numbers, self.clock,
            observations, rewards, terminated, truncated, self._finals,
        ):  # fmt: skip
            return self.step(self.without_waiting(actions))
        return self.make_step(observations, rewards, terminated, truncated, self._finals)

    def single_step(self) -> SingleStep:
        """Return a step of one environment whose arrays are made once: they take longest."""
        return SingleStep(self)

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        run, numbers = (
            self.reset_kernel(self.code, self.scalar_type),
            pack(params, self.scalar_type),
        )
        run(self.real, self.words, self._pad(mask), numbers, self.clock)

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N) float32."""
        observations = np.empty((self.rows, self.num_envs), np.float32)
        run = self.observe_kernel(self.code, self.scalar_type)
        run(self.real, self.numbers, observations.ravel())
        return observations

    def make_runner(self, policy: Policy) -> LaneRunner:
        """Return the runner of a policy; see `Engine.runner`."""
        return LaneRunner(self, policy)

    # ------------------------------------------------------------ states

    def get_state(self) -> Array:
        """Return a copy of the states, (N, state rows)."""
        return np.stack([self._lanes(row) for row in self.state_rows()], axis=1)

    def state_rows(self) -> Array:
        """Return the states as (state rows, blocks, LANES), without a copy."""
        held = self.real[:, : self.state_size * LANES]
        return held.reshape(-1, self.state_size, LANES).swapaxes(0, 1)

    def set_state(self, state: Array) -> None:
        """Copy (N, state rows) in; finished episodes become running ones."""
        for row, values in zip(self.state_rows(), self._pad(state).T, strict=True):
            row[...] = values.reshape(-1, LANES)
        self.resume()

    def resume(self) -> None:
        """Make finished episodes running ones, which go on in their last states."""
        elapsed, returns = _rows(self.words)[ELAPSED], _rows(self.real)[self.state_size]
        returns[elapsed == PENDING] = 0.0
        elapsed[elapsed == PENDING] = 0

    def state(self) -> dict[str, Array]:
        """Return its arrays by name, which a checkpoint keeps."""
        arrays = {"real": self.real, "words": self.words, "clock": self.clock}
        return arrays | self.carried_arrays()

    def take(self, part: slice) -> dict[str, Array]:
        """Return a copy of some environments; see `Engine.take`."""
        places, others = self._places(part), _rows(self.real)[self.state_size :]
        real = np.concatenate([self.state_rows()[places], others[places]])
        words = _rows(self.words)[places]
        words[KEY_LOW] += self.clock[:1] * GOLDEN  # another engine has another counter
        return {"real": real, "words": words, **self.carried_arrays(part)}

    def put(self, part: slice, taken: Mapping[str, Array]) -> None:
        """Overwrite some environments; see `Engine.put`."""
        places, words = self._places(part), _rows(self.words)
        self.state_rows()[places] = taken["real"][: self.state_size]
        _rows(self.real)[self.state_size :][places] = taken["real"][self.state_size :]
        words[places] = taken["words"]
        words[KEY_LOW][places[1:]] -= self.clock[:1] * GOLDEN
        self.put_carried(taken, part)

    def _places(self, part: slice) -> tuple[Any, ...]:
        """Return the index of some environments in what `_rows` gives."""
        lanes = np.arange(self.num_envs)[part]
        return slice(None), lanes // LANES, lanes % LANES

    def get_returns(self) -> Array:
        """Return a copy of (N,) returns of the running episodes so far."""
        return self._lanes(_rows(self.real)[self.state_size])

    def get_params(self) -> dict[str, Array]:
        """Return copies of the parameters that vary, (N,) each."""
        rows = _rows(self.real)[self.state_size + 1 :]
        params = {name: self._lanes(row) for name, row in zip(self.code.varied, rows, strict=True)}
        return {k: v.astype(np.int64) if k in self.code.whole else v for k, v in params.items()}

    def set_params(self, params: Mapping[str, npt.ArrayLike]) -> None:
        """Copy some of these in, (N,) each or a number."""
        rows = _rows(self.real)[self.state_size + 1 :]
        for name, values in params.items():
            padded = self._pad(np.broadcast_to(np.asarray(values), self.num_envs))
            rows[self.code.varied.index(name)] = padded.reshape(-1, LANES)

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        _rows(self.words)[ELAPSED][self._pad(mask).reshape(-1, LANES)] = PENDING

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return (N,) steps of the running episodes; `PENDING` where one has finished."""
        return self._lanes(_rows(self.words)[ELAPSED])

    def start_streams(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the random streams of the masked environments anew, from one seed each."""
        rows = _rows(self.words)
        low, high = keys(self._pad(seeds))
        chosen = self._pad(mask).reshape(-1, LANES)
        low -= self.clock[:1] * GOLDEN
        for index, values in ((KEY_LOW, low), (KEY_HIGH, high)):
            np.copyto(rows[index], values.reshape(-1, LANES), where=chosen)

    def _lanes(self, row: Array) -> Array:
        """Return a (blocks, LANES) row as a new (N,) array."""
        return row.reshape(-1)[: self.num_envs].copy()

    def _pad(self, values: Array) -> Array:
        """Return (N, ...) grown to (blocks * LANES, ...) by repeating the last entry."""
        padded = np.empty((self.words.shape[0] * LANES, *values.shape[1:]), values.dtype)
        padded[: self.num_envs], padded[self.num_envs :] = values, values[-1]
        return padded


def _rows(array: Array) -> Array:
    """Return a (blocks, rows * LANES) array as (rows, blocks, LANES), without a copy."""
    return array.reshape(array.shape[0], -1, LANES).swapaxes(0, 1)


class SingleStep:
    """One step of one environment, again and again with the same arrays.

    Attributes:
        actions: (1,) or (1, action_size), what the next step takes.
        rows: (rows, 1) float32, what the last step led to.
        reward: (1,); terminated, truncated: (1,) bool.
        run: takes the step, given `arguments`; returns 0, unless the action is bad.
    """

    def __init__(self, engine: LaneEngine) -> None:
        self.actions = np.zeros(engine.action_shape, engine.action_dtype)
        self.rows, self.reward = np.zeros((engine.rows, 1), np.float32), np.zeros(1, engine.dtype)
        self.terminated, self.truncated = np.zeros((2, 1), np.bool_)
        steps = engine.steps
        self._engine, self.run = engine, steps.drivers.serial
        self.arguments = (
            *steps.leads,
            engine.real, engine.words, self.actions, engine.numbers, engine.clock,
            self.rows, self.reward, self.terminated, self.truncated, np.zeros((0, 0), np.float32),
        )  # fmt: skip

    def infos(self) -> dict[str, Any]:
        """Return Gymnasium's infos of the step: the action mask, where there are any."""
        masks = self._engine.masks(self.rows, self.terminated | self.truncated)
        return {} if masks is None else {"action_mask": masks[0]}


class LaneRunner(Runner):
    """Lets a policy act in a `LaneEngine`: arrays and kernels for many calls.

    Checking everything anew and making the kernels' arguments took 19 of the 45 us of a step of one
    environment; to see that nothing has changed takes less than 1.

    Attributes:
        sums: (blocks + 1, 5) float64, which `simulate` overwrites.
        env_arrays, policy_arrays: the fields of `EnvArrays` and `KernelPolicy`.
        shared_envs: environments whose steps several cores can share: one block is one core's.

    Raises:
        TypeError, ValueError: they do not fit.
    """

    engine: LaneEngine

    def __init__(self, engine: LaneEngine, policy: Policy) -> None:
        super().__init__(engine, policy)
        dynamics, space = engine.dynamics, engine.dynamics.action_space
        self._version = version_of(policy)
        self._code, arrays = policy.code(dynamics), policy.arrays(dynamics)
        self._networks, self.policy_arrays = arrays.networks(), tuple(arrays.for_kernels())
        self.state_size, self._mark = arrays.state_size, carrier_of(policy)
        engine.carry(self._mark, self.state_size)
        bounds: Any = np.zeros(0, np.float32)
        if not dynamics.is_discrete:
            bounds = np.concatenate((space.low, space.high)).astype(np.float32)  # type: ignore[union-attr]
        self.env_arrays = tuple(
            EnvArrays(engine.real, engine.words, engine.numbers, bounds, engine.clock)
        )
        blocks = len(engine.real)
        self.sums = np.zeros((blocks + 1, 5))
        self.shared_envs = engine.num_envs if blocks > 1 else 0

    def is_current(self, policy: Policy) -> bool:
        """Tell whether the policy is what it was, and read its present numbers."""
        if policy is not self.policy or self._version is None:
            return False
        if policy.version != self._version:  # type: ignore[attr-defined]
            return False
        for network in self._networks:
            network.refresh()
        return True

    def collect(self, num_steps: int, records: Any) -> bool:
        """Take K steps and overwrite `records`, a plain tuple; see `Runner.collect`."""
        return self._run(self.collecting, num_steps, records)

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        if self._run(self.simulating, num_steps, self.sums):
            check_simulation(self.engine, self.policy, self.sums)
        sums: list[float] = self.sums[-1].tolist()
        return sums

    def _run(self, kernels: Rollouts, num_steps: int, outputs: Any) -> bool:
        """Take K steps, after the resets that are missing; whether a number was not finite."""
        engine = self.engine
        if self.state_size:
            carried = engine.carry(self._mark, self.state_size)
            self.policy_arrays[-1][MEMORY] = carried.ctypes.data
        while code := launch(
            kernels.drivers, num_steps * self.shared_envs, engine.num_threads, kernels.address,
            self.env_arrays, self.policy_arrays, num_steps, engine.num_envs, outputs,
        ):  # fmt: skip
            if code == FAULT:
                return True
            engine.start_episodes()
        return False

    def check(self, records: Records, num_steps: int) -> None:
        """Raise for the first number of a rollout that is not finite; see `Runner.check`."""
        check_rollout(self.engine, self.policy, records, num_steps)

    @functools.cached_property
    def collecting(self) -> Rollouts:
        """Return the kernels that record every step, compiled when first asked for."""
        return self.engine.collect_kernels(self.engine.code, self.engine.scalar_type, self._code)

    @functools.cached_property
    def simulating(self) -> Rollouts:
        """Return the kernels that record sums alone."""
        return self.engine.simulate_kernels(self.engine.code, self.engine.scalar_type, self._code)
