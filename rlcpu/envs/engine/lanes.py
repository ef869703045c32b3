"""The engine of environments whose states are numbers: blocks of lanes, stepped by our kernels.

`rlcpu.envs.engine.lane` says what a block of `LANES` environments is: environment n is lane
n % LANES of block n // LANES. The last block is padded with environments that nobody sees, so that
every loop has whole blocks; they run like the others. In this module "rows" of an array are its
(rows, blocks, LANES) view; a row (blocks, LANES) has one number of every environment.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.policies import Policy
from rlcpu.envs.engine import base
from rlcpu.envs.engine.base import Engine, Runner, TimeStep
from rlcpu.envs.engine.episode import PENDING, SIZE, TOTAL, begin_of
from rlcpu.envs.engine.form import NUM_SUMS
from rlcpu.envs.engine.frames import OBSERVE, RESTART, RolloutFrame
from rlcpu.envs.engine.lane import (
    ELAPSED,
    KEY_HIGH,
    KEY_LOW,
    LANES,
    NUM_WORDS,
    block_rows,
    pack,
)
from rlcpu.envs.engine.steps import Steps, step_kernels
from rlcpu.envs.engine.structure import Structure, structure
from rlcpu.envs.layout.values import check_layout
from rlcpu.kernels.machine.memory import aligned_zeros
from rlcpu.kernels.machine.random import GOLDEN, keys
from rlcpu.kernels.machine.threads import launch, launcher

Array = npt.NDArray[Any]
#: An array is made in two thirds of the time if it is given a dtype, not a type.
_FLOAT, _BOOL = np.dtype(np.float32), np.dtype(np.bool_)


class LaneEngine(Engine):
    """Environments along the lanes of registers; see `Engine`.

    Attributes:
        real: (blocks, rows * LANES), floats: rows of the state, the running `Episode`, and the
            parameters that vary.
        words: (blocks, NUM_WORDS * LANES) uint32: keys of random streams, and steps of episodes.
        clock: (2,) uint32: the counter of random numbers, and the limit of an episode's steps.
            Every step advances the counter for all streams alike; a stream that is seeded later
            has it subtracted from its key, so that it begins as if the counter were 0.
        state_size: rows that hold a state; the next ones have the episodes.
        code: the facts of the environment that decide machine code.
        numbers: (num_numbers,), the run-time numbers of its parameters.
        step_kernels: maker of kernels of (structure, dtype), which subclasses replace.
        make_step: makes a `TimeStep` of the arrays that kernels have written.
    """

    code: Structure
    numbers: Array
    make_step: Any = TimeStep
    step_kernels = staticmethod(step_kernels)

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Allocate the memory of the environments, none of which has begun; see `Engine`."""
        super().__init__(*args, **settings)
        self._derive_from_dynamics()
        blocks = -(-self.num_envs // LANES)
        self.real = aligned_zeros((blocks, self._row_count * LANES), self.scalar_type)
        self.words = aligned_zeros((blocks, NUM_WORDS * LANES), np.uint32)
        self.clock = np.array([0, self.limit], np.uint32)
        _rows(self.words)[ELAPSED] = PENDING  # nobody is in an episode yet
        nominal = {name: getattr(self.dynamics.params, name) for name in self.code.varied}
        self.set_params({**nominal, **self.dynamics.varied})
        self._shape = self.rows, self.num_envs
        self._padded_shape = self.rows, blocks * LANES
        self._finals = np.empty(self._shape if self.same_step else (0, 0), np.float32)

    def _derive_from_dynamics(self) -> None:
        """Set the attributes that follow from `dynamics` and are not pickled."""
        self.code = structure(self.dynamics)
        self.numbers = pack(self.dynamics.params, self.scalar_type)
        self.state_size = self.code.state.rows(self.scalar_type)
        self._row_count = block_rows(self.code, self.scalar_type)

    @functools.cached_property
    def steps(self) -> Steps:
        """Return the kernels of a step, compiled when first asked for."""
        return self.step_kernels(self.code, self.scalar_type)

    @functools.cached_property
    def _run_steps(self) -> Any:
        """Return the driver of a step: serial or parallel, by how many environments there are."""
        return launcher(self.steps.drivers, self.num_envs, self.num_threads)

    @functools.cached_property
    def frame(self) -> RolloutFrame:
        """Return what compiled rollouts are handed of the environments, packed once."""
        code, space, blocks = self.code, self.dynamics.action_space, len(self.real)
        bounds: Any = np.zeros(0, np.float32)
        if not self.dynamics.is_discrete:
            bounds = np.concatenate((space.low, space.high)).astype(np.float32)  # type: ignore[union-attr]
        state_spans = code.state.float_spans(self.scalar_type)
        return RolloutFrame.of(real=self.scalar_type)(
            num_envs=self.num_envs,
            function=self.steps.facts.function,
            first_draw=code.num_draws,
            block_size=self.real.shape[1],
            episodes_at=self.state_size * LANES,
            mask_row=code.observation_rows,
            num_rows=code.shown_rows,
            state=self.real,
            words=self.words,
            numbers=self.numbers,
            bounds=bounds,
            clock=self.clock,
            observed_spans=np.array(code.float_spans, np.int64).reshape(-1, 2),
            state_spans=np.array(state_spans, np.int64).reshape(-1, 2),
            sums=np.zeros((blocks + 1, NUM_SUMS)),
            faults=np.zeros(blocks, np.int64),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but kernels: episodes and random streams go on in a copy.

        "layout" and "varied" are what `__setstate__` compares with the environment there.
        """
        derived_anew = ("code", "numbers", "steps", "_run_steps", "frame", "last_runner")
        attributes = {name: value for name, value in vars(self).items() if name not in derived_anew}
        layout = self.code.state._replace(value_class=None)
        return {**attributes, "last_runner": None, "layout": layout, "varied": self.code.varied}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set all attributes; raise ValueError if the environment has another state than it had."""
        layout, varied, id = state.pop("layout"), state.pop("varied"), state["dynamics"].id
        vars(self).update(state)
        for name in ("real", "words"):  # a copied array may begin at any address
            copied = state[name]
            setattr(self, name, aligned_zeros(copied.shape, copied.dtype))
            getattr(self, name)[...] = copied
        self._derive_from_dynamics()
        check_layout(self.dynamics, layout)
        if varied != self.code.varied:
            was, now = (", ".join(names) or "nothing" for names in (varied, self.code.varied))
            raise ValueError(f"{id} varied {was} when it was pickled and varies {now} now")

    # ------------------------------------------------------------ kernels

    def step(self, actions: Any) -> TimeStep:
        """Take one step; see `Engine.step`."""
        if not self.takes(actions):
            actions = self.convert(actions)
        n, steps = self.num_envs, self.steps
        if self.disabled:
            self.check_running()
        observations, rewards = np.empty(self._shape, _FLOAT), np.empty(n, self.dtype)
        terminated, truncated = np.empty(n, _BOOL), np.empty(n, _BOOL)
        # The driver returns how many actions are bad; it has taken no step if there are any.
        if self._run_steps(
            *steps.facts, steps.limits,
            self.real, self.words, actions, self.numbers, self.clock,
            observations, rewards, terminated, truncated, self._finals,
        ):  # fmt: skip
            return self.step(self.zero_waiting(actions))  # raises, or all actions are good now
        return self.make_step(observations, rewards, terminated, truncated, self._finals)

    def single_step(self) -> SingleStep:
        """Return a step for an engine of one environment, which reuses its arrays."""
        return SingleStep(self)

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        numbers = pack(params, self.scalar_type)
        # Kernels that fill blocks read the mask of all lanes.
        padded = self._pad(mask) if self.steps.facts.fills_blocks else mask
        self._run_others(RESTART, numbers, padded, np.empty(self._padded_shape, np.float32))

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N) float32."""
        padded = self._observe(np.empty(self._padded_shape, np.float32))
        return np.ascontiguousarray(padded[:, : self.num_envs])

    def _observe(self, observations: Array) -> Array:
        """Overwrite and return an array of observations, in the order of kernels."""
        count = observations.size // self.rows
        self._run_others(OBSERVE, self.numbers, np.empty(count, np.bool_), observations)
        return observations

    def _run_others(self, mode: int, numbers: Array, mask: Array, observations: Array) -> None:
        """Reset environments, or observe them; see `rlcpu.envs.engine.drivers.make_driver`."""
        launch(
            self.steps.others, self.num_envs, self.num_threads, *self.steps.facts,
            mode, self.real, self.words, numbers, self.clock,
            mask.view(np.uint8), observations.reshape(-1),
        )  # fmt: skip

    def make_runner(self, policy: Policy) -> Runner:
        """Return the runner of a policy; see `Engine.runner`."""
        return base.make_lane_runner(self, policy)

    # ------------------------------------------------------------ states

    def get_state(self) -> Array:
        """Return a copy of the states, (N, rows of a state)."""
        return np.stack([self._lanes(row) for row in self.state_rows()], axis=1)

    def state_rows(self) -> Array:
        """Return a view of the states, (rows of a state, blocks, LANES)."""
        states = self.real[:, : self.state_size * LANES]
        return states.reshape(-1, self.state_size, LANES).swapaxes(0, 1)

    def set_state(self, state: Array) -> None:
        """Overwrite the states, (N, rows of a state); finished episodes become running ones."""
        for row, values in zip(self.state_rows(), self._pad(state).T, strict=True):
            row[...] = values.reshape(-1, LANES)
        self.resume()

    def resume(self) -> None:
        """Make finished episodes running ones, which go on in their last states."""
        elapsed = _rows(self.words)[ELAPSED]
        finished, episodes = elapsed == PENDING, _rows(self.real)[self.state_size :]
        for row, number in zip(episodes, begin_of(self.scalar_type), strict=False):
            row[finished] = number
        elapsed[finished] = 0

    def state(self) -> dict[str, Array]:
        """Return the engine's arrays by name, which checkpoints keep; no copies."""
        arrays = {"real": self.real, "words": self.words, "clock": self.clock}
        return arrays | self.carried_arrays()

    def take(self, part: slice) -> dict[str, Array]:
        """Return a copy of some environments; see `Engine.take`."""
        index, other_rows = self._index_of(part), _rows(self.real)[self.state_size :]
        real = np.concatenate([self.state_rows()[index], other_rows[index]])
        words = _rows(self.words)[index]
        # A stream depends on key + counter * GOLDEN: these are the keys for a counter of 0.
        words[KEY_LOW] += self.clock[:1] * GOLDEN
        return {"real": real, "words": words, **self.carried_arrays(part)}

    def put(self, part: slice, taken: Mapping[str, Array]) -> None:
        """Overwrite some environments; see `Engine.put`."""
        index, words = self._index_of(part), _rows(self.words)
        self.state_rows()[index] = taken["real"][: self.state_size]
        _rows(self.real)[self.state_size :][index] = taken["real"][self.state_size :]
        words[index] = taken["words"]
        words[KEY_LOW][index[1:]] -= self.clock[:1] * GOLDEN  # keys for this engine's counter
        self.put_carried(taken, part)

    def _index_of(self, part: slice) -> tuple[Any, ...]:
        """Return the index of some environments in an array (rows, blocks, LANES)."""
        envs = np.arange(self.num_envs)[part]
        return slice(None), envs // LANES, envs % LANES

    def get_returns(self) -> Array:
        """Return a copy of the returns so far of the running episodes, (N,)."""
        return self._lanes(_rows(self.real)[self.state_size + TOTAL])

    def get_params(self) -> dict[str, Array]:
        """Return copies of the parameters that differ between environments, (N,) each."""
        rows = _rows(self.real)[self.state_size + SIZE :]
        params = {name: self._lanes(row) for name, row in zip(self.code.varied, rows, strict=True)}
        return {
            name: values.astype(np.int64) if name in self.code.int_params else values
            for name, values in params.items()
        }

    def set_params(self, params: Mapping[str, npt.ArrayLike]) -> None:
        """Overwrite some of the parameters that vary, by an array (N,) or a number each."""
        rows = _rows(self.real)[self.state_size + SIZE :]
        for name, values in params.items():
            padded = self._pad(np.broadcast_to(np.asarray(values), self.num_envs))
            rows[self.code.varied.index(name)] = padded.reshape(-1, LANES)

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        _rows(self.words)[ELAPSED][self._pad(mask).reshape(-1, LANES)] = PENDING

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return the steps of the running episodes, (N,); `PENDING` where one has finished."""
        return self._lanes(_rows(self.words)[ELAPSED])

    def start_streams(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start random streams anew; see `Engine.start_streams`."""
        rows = _rows(self.words)
        low, high = keys(self._pad(seeds))
        chosen = self._pad(mask).reshape(-1, LANES)
        low -= self.clock[:1] * GOLDEN  # as if the counter were 0
        for index, values in ((KEY_LOW, low), (KEY_HIGH, high)):
            np.copyto(rows[index], values.reshape(-1, LANES), where=chosen)

    def _lanes(self, row: Array) -> Array:
        """Return a copy (N,) of a row (blocks, LANES), without the padding."""
        return row.reshape(-1)[: self.num_envs].copy()

    def _pad(self, values: Array) -> Array:
        """Return values (N, ...) padded to (blocks * LANES, ...) by copies of the last one."""
        padded = np.empty((self.words.shape[0] * LANES, *values.shape[1:]), values.dtype)
        padded[: self.num_envs], padded[self.num_envs :] = values, values[-1]
        return padded


def _rows(array: Array) -> Array:
    """Return a view (rows, blocks, LANES) of an array (blocks, rows * LANES)."""
    return array.reshape(array.shape[0], -1, LANES).swapaxes(0, 1)


class SingleStep:
    """A step of an engine of one environment, which takes and returns the same arrays every time.

    To make arrays takes longer than a step.

    Attributes:
        actions: (1,) or (1, action_size), which users overwrite before a step.
        rows: (rows, 1) float32, the observation after the step.
        reward: (1,) of the step; terminated, truncated: (1,) bool.
        run: takes the step if it is called with `arguments`; returns 0, or 1 for a bad action.
        arguments: of `run`.
    """

    def __init__(self, engine: LaneEngine) -> None:
        self.actions = np.zeros(engine.action_shape, engine.action_dtype)
        self.rows, self.reward = np.zeros((engine.rows, 1), np.float32), np.zeros(1, engine.dtype)
        self.terminated, self.truncated = np.zeros((2, 1), np.bool_)
        steps = engine.steps
        self._engine, self.run = engine, steps.drivers.serial
        self.arguments = (
            *steps.facts, steps.limits,
            engine.real, engine.words, self.actions, engine.numbers, engine.clock,
            self.rows, self.reward, self.terminated, self.truncated, np.zeros((0, 0), np.float32),
        )  # fmt: skip

    def infos(self) -> dict[str, Any]:
        """Return Gymnasium's infos of the step: the action mask, of environments that have one."""
        masks = self._engine.masks(self.rows, self.terminated | self.truncated)
        return {} if masks is None else {"action_mask": masks[0]}
