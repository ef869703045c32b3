"""Rollouts in environments that are not ours: a loop over their steps, with the policy in kernels.

The networks run by the pass of fused rollouts, and their heads by the same scalar functions, with
the same counter-based random numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.base import Runner
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.rollout import EPISODES, LENGTHS, RETURNS, SQUARES
from rlcpu.envs.policies import Policy, PolicyCode, carrier_of
from rlcpu.envs.running import refuse_policy
from rlcpu.kernels.compile import define, inline, kernel, specialise, tuple_of
from rlcpu.kernels.functions import reads_argument
from rlcpu.kernels.random import mix, uniforms
from rlcpu.nn.heads import act_categorical, act_gaussian
from rlcpu.nn.network import CLIP

if TYPE_CHECKING:
    from rlcpu.envs.gymnasium.engine import GymnasiumEngine

Array = npt.NDArray[Any]
single, u32 = np.float32, np.uint32
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)
NO_MASKS = np.zeros((1, 0), np.bool_)
#: Steps of a rollout that `simulate` collects and forgets.
CHUNK = 64


class GymnasiumRunner(Runner):
    """Lets a policy act in a `GymnasiumEngine`; see `Runner`. What is not finite raises at once.

    Raises:
        TypeError, ValueError: they do not fit.
    """

    engine: GymnasiumEngine

    def __init__(self, engine: GymnasiumEngine, policy: Policy) -> None:
        super().__init__(engine, policy)
        self._act = Act(engine, policy)
        self.state_size = self._act.state_size

    def collect(self, num_steps: int, records: Any) -> bool:
        """Take K steps and overwrite `records`; see `Runner.collect`."""
        take_steps(self.engine, self._act, self._tables(records, num_steps), 0)
        return False

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        sums = np.zeros(5)
        for begin in range(0, num_steps, CHUNK):
            count = min(CHUNK, num_steps - begin)
            tables = self._tables(self.engine.form.allocate(count), count)
            take_steps(self.engine, self._act, tables, begin)
            ends = tables["terminated"] | tables["truncated"]
            totals = tables["totals"][ends]
            sums[[EPISODES, RETURNS, SQUARES, LENGTHS]] += (
                *(ends.sum(), totals.sum(), (totals**2).sum()),
                tables["lengths"][ends].sum(),
            )
        result: list[float] = sums.tolist()
        return result

    def _tables(self, outputs: Any, num_steps: int) -> dict[str, Array]:
        """Return a rollout's memory by name, time-major."""
        n = self.engine.num_envs
        records, shape = Records(*outputs), (num_steps, n)
        terminated, truncated = records.flags.reshape(2, *shape)
        tables = {
            name: getattr(records, name).reshape(*shape, -1)
            for name in ("observations", "actions", "finals")
        }
        for name in ("log_probs", "values", "rewards", "totals", "lengths"):
            tables[name] = getattr(records, name).reshape(shape)
        last = records.last.reshape(n, -1)
        return {**tables, "terminated": terminated, "truncated": truncated, "last": last}


def take_steps(engine: GymnasiumEngine, act: Act, tables: dict[str, Array], begin: int) -> None:
    """Fill the tables of a rollout.

    An environment that is reset in a step takes none in it. The others go on meanwhile: their
    further steps are kept, and are the first of the next rollout.

    Args:
        engine: the environments.
        act: chooses the actions.
        tables: (T, N, ...) by name, and "last", (N, observation rows).
        begin: number of the first step, for messages.
    """
    last = tables.pop("last")
    engine.start_episodes()
    filled = _take_kept(engine.ahead, tables)
    engine.ready = False  # until all is well
    engine.number = begin
    while filled.min() < len(tables["rewards"]):
        states = act.remembered()
        chosen = act(engine.observed, engine.keys, engine.clock, engine.number)
        engine.clock += np.uint64(1)
        acted, before, taken = chosen.actions, engine.observed.copy(), ~engine.waiting
        step = engine.step(acted if engine.dynamics.action_size else acted[:, 0])
        engine.totals[taken] += step.rewards[taken]
        engine.lengths[taken] += u32(1)
        _keep(
            {
                "observations": before,
                **chosen._asdict(),
                "rewards": step.rewards,
                "terminated": step.terminated,
                "truncated": step.truncated,
                "finals": step.finals.T,
                "totals": engine.totals,
                "lengths": engine.lengths,
                "states": states,
            },
            taken, tables, filled, engine.ahead,
        )  # fmt: skip
        ended = taken & (step.terminated | step.truncated)
        engine.totals[ended] = engine.lengths[ended] = 0
    last[:] = engine.observed
    for i, steps_ahead in enumerate(engine.ahead):
        if steps_ahead:
            last[i] = steps_ahead[0]["observations"]
    engine.ready = True


def _keep(
    row: dict[str, Array], taken: Array, tables: dict[str, Array], filled: Array, ahead: Any
) -> None:
    """Put a step of each environment into the tables, or aside where its column is full."""
    num_steps, first = len(tables["rewards"]), int(filled[0])
    if taken.all() and (filled == first).all() and first < num_steps:  # without arrays of indices
        for name, table in tables.items():
            table[first] = row[name]
        filled += 1
        return
    fits = taken & (filled < num_steps)
    lanes = np.flatnonzero(fits)
    for name, table in tables.items():
        table[filled[lanes], lanes] = row[name][lanes]
    for i in np.flatnonzero(taken & ~fits):
        ahead[i].append({name: values[i].copy() for name, values in row.items()})
    filled += fits


def _take_kept(ahead: Any, tables: dict[str, Array]) -> Array:
    """Put what the last rollout had no room for into the tables; how much that is, (N,)."""
    num_steps = len(tables["rewards"])
    filled = np.zeros(len(ahead), np.int64)
    for i, steps_ahead in enumerate(ahead):
        while steps_ahead and filled[i] < num_steps:
            step = steps_ahead.popleft()
            for name, table in tables.items():
                table[filled[i], i] = step[name]
            filled[i] += 1
    return filled


# ---------------------------------------------------------------- the policy


class Chosen(NamedTuple):
    """Actions that a policy chose for N observations, with their probabilities and values.

    Attributes:
        actions: (N, 1) int64 of a `Discrete`, (N, action_size) int64 of a `MultiDiscrete` or
            float32 of a `Box`, unbounded.
        log_probs, values: (N,) float32.
    """

    actions: Array
    log_probs: Array
    values: Array


class Act:
    """A policy's choice for observations of all environments.

    Raises:
        TypeError, ValueError: they do not fit.
    """

    def __init__(self, engine: GymnasiumEngine, policy: Policy) -> None:
        dynamics, view = engine.dynamics, engine.view
        self._policy, self._view, self._dynamics = policy, view, dynamics
        self._engine = engine
        self._code, self._arrays = policy.code(dynamics), policy.arrays(dynamics)
        self._outputs = self._code.outputs or dynamics.action_size or dynamics.num_actions
        reads = self._code.act is not None and reads_argument(self._code.act, 0)
        rows = view.num_inputs if view.kind != "choice" and reads else 0
        sizes = dynamics.num_actions, dynamics.action_size, rows
        self._kernel = act_kernel(self._code, *sizes)
        self._mark, self.state_size = carrier_of(policy), self._arrays.state_size

    def remembered(self) -> Array:
        """Return what the policy remembers before the next step, (N, state_size), a copy."""
        carried = self._engine.carry(self._mark, self.state_size)
        return np.where(self._engine.lengths[:, None] == 0, single(0), carried)

    def __call__(self, rows: Array, keys: Array, clock: Array, number: int) -> Chosen:
        """Return the actions of one step.

        Args:
            rows: (N, rows) float32, observations and their action masks.
            keys: (N,) uint64, of the random streams.
            clock: (1,) uint64, of the step.
            number: of the step, for messages.

        Raises:
            FloatingPointError: the policy returns a number that is not finite.
        """
        n, dynamics, greedy = len(rows), self._dynamics, self._arrays.settings[1] != 0
        whole, masked = dynamics.is_discrete, self._view.num_masked > 0
        masks = NO_MASKS
        if masked:  # one that allows nothing is of an environment that waits for its reset
            masks = np.ascontiguousarray(self._view.masks(rows))
            masks[~masks.any(axis=1)] = True
        actions = np.empty((n, max(dynamics.action_size, 1)), np.int64 if whole else np.float32)
        log_probs, values = np.empty(n, np.float32), np.zeros(n, np.float32)
        if self._code.act is None:
            inputs, params = self._run(rows, values), self._arrays.log_std
        else:
            inputs, params = self._read(rows), self._arrays.weights
        self._kernel(inputs, keys, clock, params, greedy, masks, actions, log_probs, values)
        numbers = (inputs if self._code.act is None else actions), log_probs, values, actions
        if not all(np.isfinite(array).all() for array in numbers):
            refuse_policy(self._policy, f"numbers that are not finite in step {number}")
        return Chosen(actions, log_probs, values)

    def _read(self, rows: Array) -> Array:
        """Return what a function is given of each observation; of most all numbers, one by one."""
        if self._view.kind == "choice":
            return rows.view(np.int32)
        if self._view.kind == "floats":
            return rows
        inputs: Array = self._view.inputs(rows)
        return inputs

    def _run(self, rows: Array, values: Array) -> Array:
        """Return the numbers that the head reads, (N, outputs), and write the values."""
        arrays = self._arrays
        scaled = (self._view.inputs(rows) - arrays.mean) * arrays.scale
        scaled = np.clip(scaled, single(-CLIP), single(CLIP))
        engine = self._engine
        carried, begins = engine.carry(self._mark, self.state_size), engine.lengths == 0
        size = arrays.network.plan.state_size
        outputs: Array = _run_carrying(arrays.network, scaled, carried[:, :size], begins)
        if self._code.value == "shared":
            values[:] = outputs[:, self._outputs]
        elif self._code.value == "separate":
            made = _run_carrying(arrays.value_network, scaled, carried[:, size:], begins)
            values[:] = made[:, 0]
        return outputs


def _run_carrying(network: Any, inputs: Array, carried: Array, begins: Array) -> Array:
    """Return outputs of a network; what it carries is overwritten."""
    states = np.ascontiguousarray(carried)
    outputs: Array = network.outputs(inputs, states, begins)
    carried[...] = states
    return outputs


@inline
def bits_of(keys, clock, i):
    """Return the 64 random bits of environment i in this step."""
    return mix(u32(keys[i] & _LOW), u32(keys[i] >> _HIGH), u32(clock[0] & _LOW))


@functools.cache
def _make_put(action_size: int) -> Callable[..., Any]:
    """Make an inlinable function (row, action), which writes one action."""
    lines = "; ".join(f"row[{k}] = action[{k}]" for k in range(action_size)) or "row[0] = action"
    return inline(define(f"def put(row, action): {lines}"))


@functools.cache
def act_kernel(policy: PolicyCode, num_actions: int, action_size: int, rows: int) -> Any:
    """Return the kernel that acts by a row of numbers for each environment; see `Act`.

    These are the outputs of a network, or an observation of `rows` floats, or of a choice (0 rows).
    """
    masked, allowed, put = policy.masked, tuple_of(None, num_actions), _make_put(action_size)
    draw, by_function = uniforms(policy.draws, 0, np.float32), policy.act is not None
    if policy.act is not None:
        act = specialise(policy.act, np.float32)
        load = tuple_of(None, rows) if rows else inline(lambda row: row[0])
        unpack = tuple_of(policy.params_type, policy.num_params)
    else:
        outputs = policy.outputs or action_size or num_actions
        head: Any = policy.head or (act_categorical if num_actions else act_gaussian)
        act = specialise(head(outputs, True) if masked else head(outputs), np.float32)
        load = tuple_of(None, outputs)
        unpack = tuple_of(None, policy.num_params if policy.head else action_size)

    @kernel(subject="policies")
    def choose(inputs, keys, clock, params, greedy, masks, actions, log_probs, values):
        """Draw actions of all environments from inputs of the head, (N, inputs)."""
        constants = unpack(params)
        for i in range(keys.size):
            observation, numbers = load(inputs[i]), draw(*bits_of(keys, clock, i))
            if by_function:
                if masked:
                    chosen = act(observation, constants, numbers, allowed(masks[i]))
                else:
                    chosen = act(observation, constants, numbers)
                action, log_probs[i], values[i] = chosen
            elif masked:
                action, log_probs[i] = act(
                    observation, numbers, constants, greedy, allowed(masks[i])
                )
            else:
                action, log_probs[i] = act(observation, numbers, constants, greedy)
            put(actions[i], action)

    return choose
