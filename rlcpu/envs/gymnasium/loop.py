"""Rollouts in environments that are not ours: a loop over their steps, with the policy in kernels.

The networks run by the same pass as in rollouts of our own environments, and their heads by the
same scalar functions, with the same counter-based random numbers. The kernel around these is one of
this file: each step it is handed NumPy's arrays of all environments, since the steps between are
Python's, and it has the forms with loops, so that environments of all sizes share one.

Environments that are reset in a step take none in it, while the others go on: so the columns of a
rollout, one for each environment, fill at different speeds. `filled`, (N,) int64, is how many steps
each column has; further steps of a full column wait in the queues `ahead`. A rollout's arrays by
name, (T, N, ...), are `tables` here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.policies import Actions, Policy, PolicyCode, check_act, mark_of
from rlcpu.envs.contract.unfit import refuse_policy
from rlcpu.envs.engine.base import Runner
from rlcpu.envs.engine.episode import PENDING, SIZE, TOTAL, Episode, make_step_episode
from rlcpu.envs.engine.form import EPISODES, LENGTHS, NUM_SUMS, RETURNS, SQUARES, Records
from rlcpu.kernels.compiler.compile import define, inline, kernel, specialise, tuple_of
from rlcpu.kernels.compiler.functions import reads_argument
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.random import make_draw_many, mix_key, uniforms
from rlcpu.kernels.machine.rows import store_rows
from rlcpu.nn.network.heads import act_categorical, act_gaussian
from rlcpu.nn.network.scaling import Scaling

if TYPE_CHECKING:
    from rlcpu.envs.gymnasium.engine import GymnasiumEngine

Array = npt.NDArray[Any]
single, no_limit = np.float32, np.uint32(PENDING)
step_episode = make_step_episode(np.float64, same_step=True)
load_episode, store_episode = tuple_of(Episode, SIZE), store_rows(SIZE, ANY)
NO_MASKS = np.zeros((1, 0), np.bool_)
#: Steps that `simulate` collects at a time, and forgets.
CHUNK = 64


class Choice(NamedTuple):
    """Actions that a policy chose for N observations, with their log-probabilities and values."""

    #: (N, 1) int64 of a `Discrete`, (N, action_size) int64 of a `MultiDiscrete` or float32 of a
    #: `Box`, unbounded.
    actions: Array
    log_probs: Array  # (N,) float32
    values: Array  # (N,) float32


class GymnasiumRunner(Runner):
    """Lets a policy act in a `GymnasiumEngine`; see `Runner`.

    Numbers that are not finite raise an exception in the step that had them.

    Raises:
        TypeError, ValueError: the policy does not fit the environments.
    """

    engine: GymnasiumEngine

    def __init__(self, engine: GymnasiumEngine, policy: Policy) -> None:
        super().__init__(engine, policy)
        dynamics = engine.dynamics
        self._code, self._arrays = policy.code(dynamics), policy.arrays(dynamics)
        # Outputs that the head reads; a shared value is the one behind them.
        self._num_outputs = self._code.outputs or dynamics.action_size or dynamics.num_actions
        act, num_inputs = self._code.act, 0  # 0: one whole number, or nothing that is read
        if act is not None and reads_argument(act, 0) and engine.view.kind != "choice":
            num_inputs = engine.view.num_inputs
        self._kernel = make_choose_kernel(
            self._code,
            dynamics.num_actions,
            dynamics.action_size,
            dynamics.num_masked,
            num_inputs,
        )
        self._drawn = np.empty(self._code.draws, np.float32)  # for the kernel
        self._mark, self.state_size = mark_of(policy), self._arrays.state_size

    def collect(self, rollout: Any) -> bool:
        """Take the steps of a rollout; see `Runner.collect`."""
        self._take_steps(self._tables(rollout.records, rollout.num_steps), first_number=0)
        return False

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        sums = np.zeros(NUM_SUMS)
        for begin in range(0, num_steps, CHUNK):
            count = min(CHUNK, num_steps - begin)
            tables = self._tables(self.engine.form.allocate(count), count)
            self._take_steps(tables, first_number=begin)
            ended = tables["terminated"] | tables["truncated"]
            totals = tables["totals"][ended, TOTAL]
            sums[EPISODES] += ended.sum()
            sums[RETURNS] += totals.sum()
            sums[SQUARES] += (totals**2).sum()
            sums[LENGTHS] += tables["lengths"][ended].sum()
        result: list[float] = sums.tolist()
        return result

    def _tables(self, records: Records, num_steps: int) -> dict[str, Array]:
        """Return views of the arrays of a rollout by name, in the shapes of `_take_steps`."""
        views = self.engine.form.by_env(records, num_steps)  # (T, N, numbers)
        tables = dict(zip(Records._fields, views, strict=True))
        flags, (last,) = tables.pop("flags"), tables.pop("last")
        tables |= {"terminated": flags[:num_steps], "truncated": flags[num_steps:]}
        # Of each number of an `Episode` those of all steps: here one after the other for each step.
        totals = tables.pop("totals").reshape(SIZE, num_steps, -1)
        for name in tables.keys() - {"observations", "actions", "finals"}:
            tables[name] = tables[name][..., 0]
        tables["totals"] = totals.transpose(1, 2, 0)
        return {**tables, "last": last}

    def _take_steps(self, tables: dict[str, Array], first_number: int) -> None:
        """Step the environments until all columns of a rollout's tables are full.

        `tables` are (T, N, ...) by name, and "last", (N, rows), for the observations after the last
        step; all are overwritten. `first_number` is that of the first step, for messages.
        """
        engine, last = self.engine, tables.pop("last")
        engine.start_episodes()
        filled = _store_steps_ahead(engine.ahead, tables)
        engine.ready = False  # until all is well
        engine.number = first_number
        while filled.min() < len(tables["rewards"]):
            carried = engine.carry(self._mark, self.state_size)
            states = np.where(engine.lengths[:, None] == 0, single(0), carried)
            choice = self._choose()
            engine.clock += np.uint64(1)
            actions, before, taken = choice.actions, engine.observed.copy(), ~engine.waiting
            step = engine.step(actions if engine.dynamics.action_size else actions[:, 0])
            totals, lengths = np.empty_like(engine.episodes), np.empty_like(engine.lengths)
            count_steps(
                step.rewards, step.terminated, step.truncated, taken, engine.episodes,
                engine.lengths, totals, lengths,
            )  # fmt: skip
            row = {
                "observations": before,
                **choice._asdict(),
                "rewards": step.rewards,
                "terminated": step.terminated,
                "truncated": step.truncated,
                "finals": step.finals.T,
                "totals": totals,
                "lengths": lengths,
                # The policy's recurrent states before the step, for `GymnasiumEngine.remembered`,
                # if the step is queued.
                "states": states,
            }
            _store_step(row, taken, tables, filled, engine.ahead)
        last[:] = engine.observed
        for i, steps_ahead in enumerate(engine.ahead):
            if steps_ahead:
                last[i] = steps_ahead[0]["observations"]
        engine.ready = True

    def _choose(self) -> Choice:
        """Return the actions of the next step, by the present observations.

        Raises FloatingPointError if the policy returns a number that is not finite.
        """
        engine, dynamics, rows = self.engine, self.engine.dynamics, self.engine.observed
        n, masks = len(rows), NO_MASKS
        if engine.view.num_masked > 0:  # a mask allows nothing where the next step is a reset
            masks = np.ascontiguousarray(engine.view.masks(rows))
            masks[~masks.any(axis=1)] = True
        action_type = np.int64 if dynamics.is_discrete else np.float32
        actions = np.empty((n, max(dynamics.action_size, 1)), action_type)
        log_probs, values = np.empty(n, np.float32), np.zeros(n, np.float32)
        # What `act`, or the head of a network, chooses by, and its params.
        if self._code.act is None:
            inputs, params = self._run_networks(rows, values), self._arrays.log_std
            checked = [inputs, log_probs, values, actions]
        else:
            kind, params = engine.view.kind, self._arrays.weights
            inputs = rows.view(np.int32) if kind == "choice" else rows
            inputs = inputs if kind in ("choice", "floats") else engine.view.inputs(rows)
            checked = [log_probs, values, actions]
        self._kernel(
            inputs, engine.keys, engine.clock, params, self._arrays.greedy, masks, self._drawn,
            actions, log_probs, values,
        )  # fmt: skip
        if not all(np.isfinite(array).all() for array in checked):
            refuse_policy(self.policy, f"numbers that are not finite in step {engine.number}")
        return Choice(actions, log_probs, values)

    def _run_networks(self, rows: Array, values: Array) -> Array:
        """Return the outputs that the head reads, (N, outputs); overwrite `values`, (N,)."""
        arrays, engine = self._arrays, self.engine
        scaling = Scaling(arrays.mean, arrays.scale, arrays.limit)
        inputs = scaling.apply(engine.view.inputs(rows))
        carried, begins = engine.carry(self._mark, self.state_size), engine.lengths == 0
        # Views of states of the policy's network, then of the value's, which are overwritten.
        states, value_states = np.split(carried, [arrays.network.plan.state_size], axis=1)
        outputs: Array = _run_network(arrays.network, inputs, states, begins)
        if self._code.value == "shared":
            values[:] = outputs[:, self._num_outputs]
        elif self._code.value == "separate":
            value_outputs = _run_network(arrays.value_network, inputs, value_states, begins)
            values[:] = value_outputs[:, 0]
        return np.ascontiguousarray(outputs[:, : self._num_outputs])


def _run_network(network: Any, inputs: Array, states: Array, begins: Array) -> Array:
    """Return a network's outputs for inputs (N, inputs); overwrite its states (N, size), float32.

    Where an episode begins, by `begins` (N,) bool, a state counts as 0.
    """
    contiguous = np.ascontiguousarray(states)
    outputs: Array = network.outputs(inputs, contiguous, begins)
    states[...] = contiguous
    return outputs


def _store_step(
    row: dict[str, Array], taken: Array, tables: dict[str, Array], filled: Array, ahead: Any
) -> None:
    """Write one step of all environments into their columns; queue it where a column is full.

    `row` is the step, (N, ...) by name, and `taken` (N,) bool which environments took it; `filled`,
    the steps in each column, is increased.
    """
    num_steps, first = len(tables["rewards"]), int(filled[0])
    if taken.all() and (filled == first).all() and first < num_steps:  # without arrays of indices
        for name, table in tables.items():
            table[first] = row[name]
        filled += 1
        return
    fits = taken & (filled < num_steps)
    envs = np.flatnonzero(fits)
    for name, table in tables.items():
        table[filled[envs], envs] = row[name][envs]
    for i in np.flatnonzero(taken & ~fits):
        ahead[i].append({name: values[i].copy() for name, values in row.items()})
    filled += fits


def _store_steps_ahead(ahead: Any, tables: dict[str, Array]) -> Array:
    """Write the steps in the queues into the tables; return how many each column has, (N,)."""
    num_steps = len(tables["rewards"])
    filled = np.zeros(len(ahead), np.int64)
    for i, steps_ahead in enumerate(ahead):
        while steps_ahead and filled[i] < num_steps:
            step = steps_ahead.popleft()
            for name, table in tables.items():
                table[filled[i], i] = step[name]
            filled[i] += 1
    return filled


# ---------------------------------------------------------------- kernels


@kernel
def count_steps(rewards, terminated, truncated, taken, episodes, elapsed, totals, lengths):
    """Count a step in the episodes of all environments that have taken one, by `taken` (N,).

    The episodes so far, `episodes` (N, SIZE) and `elapsed` (N,), are overwritten: they begin anew
    where one ends. So are `totals` and `lengths`, with the same counts before that.
    """
    for i in range(taken.size):
        if taken[i]:
            episode, ends, cuts = load_episode(episodes[i]), terminated[i], truncated[i]
            end = step_episode(episode, elapsed[i], rewards[i], ends, cuts, no_limit)
            store_episode(totals[i], 1, 0, end.episode)
            store_episode(episodes[i], 1, 0, end.next_episode)
            lengths[i], elapsed[i] = end.elapsed, end.next_elapsed


@functools.cache
def make_choose_kernel(
    policy: PolicyCode, num_actions: int, action_size: int, num_masked: int, num_inputs: int
) -> Any:
    """Make the kernel that draws the actions of all environments.

    It is (inputs, keys, clock, params, greedy, masks, drawn, actions, log_probs, values), where
    `inputs` has a row for each environment: the outputs of a network, or the observation for a
    scalar policy, `num_inputs` numbers or, if that is 0, one whole number; `drawn` has room for the
    random numbers of one action; the last three are overwritten. A network's head writes no values.

    What has a form with loops takes rows of arrays, however many actions there are: so environments
    of all sizes share a kernel. Functions of users take tuples.
    """
    if policy.act is None:
        head: Any = policy.head or (act_categorical if num_actions else act_gaussian)
        act = head(policy.outputs, policy.masked, loops=True)
        return _make_choose_by_head(act, policy.masked, action_size > 0)
    if policy.loop_act is not None:
        return _make_choose_by_loops(policy.loop_act, policy.masked, action_size > 0)
    return _make_choose_by_tuples(policy, num_actions, action_size, num_masked, num_inputs)


@functools.cache
def _make_choose_by_head(act: Callable[..., Any], masked: bool, is_list: bool) -> Any:
    """Make `make_choose_kernel`'s kernel of a network's head, in its form with loops.

    `is_list` says whether an action has several numbers.
    """
    act, draw = specialise(act, np.float32), make_draw_many(np.float32)

    @kernel(subject="policies")
    def choose(inputs, keys, clock, params, greedy, masks, drawn, actions, log_probs, values):
        for i in range(keys.size):
            draw(*mix_key(keys[i], clock[0]), 0, drawn)
            # Only the call that the policy's kind takes is compiled: both flags are constants.
            if is_list and masked:
                log_probs[i] = act(inputs[i], drawn, params, greedy, masks[i], actions[i])
            elif is_list:
                log_probs[i] = act(inputs[i], drawn, params, greedy, actions[i])
            elif masked:
                choice = act(inputs[i], drawn, params, greedy, masks[i])
                actions[i, 0], log_probs[i] = choice
            else:
                actions[i, 0], log_probs[i] = act(inputs[i], drawn, params, greedy)

    return choose


@functools.cache
def _make_choose_by_loops(act: Callable[..., Any], masked: bool, is_list: bool) -> Any:
    """Make `make_choose_kernel`'s kernel of a scalar policy's form with loops; see above."""
    act, draw = specialise(act, np.float32), make_draw_many(np.float32)

    @kernel(subject="policies")
    def choose(inputs, keys, clock, params, greedy, masks, drawn, actions, log_probs, values):
        for i in range(keys.size):
            draw(*mix_key(keys[i], clock[0]), 0, drawn)
            if masked and is_list:
                taken = act(inputs[i], params, drawn, masks[i], actions[i])
                log_probs[i], values[i] = taken
            elif masked:
                actions[i, 0], log_probs[i], values[i] = act(inputs[i], params, drawn, masks[i])
            else:
                log_probs[i], values[i] = act(inputs[i], params, drawn, actions[i])

    return choose


def _make_choose_by_tuples(
    policy: PolicyCode, num_actions: int, action_size: int, num_masked: int, num_inputs: int
) -> Any:
    """Make `make_choose_kernel`'s kernel of a scalar policy, whose function takes tuples."""
    assert policy.act is not None
    act: Any = specialise(policy.act, np.float32)
    masked, mask_of = policy.masked, tuple_of(None, num_masked)
    draw_uniforms = uniforms(policy.draws, 0, np.float32)
    load = tuple_of(None, num_inputs) if num_inputs else inline(lambda row: row[0])
    unpack = tuple_of(policy.params_type, policy.num_params)
    lines = "; ".join(f"row[{k}] = action[{k}]" for k in range(action_size)) or "row[0] = action"
    write_action = inline(define(f"def write_action(row, action): {lines}"))

    # Of a `MultiDiscrete` no number says how many choices it has.
    space = Actions(action_size, num_actions > 0, (num_actions,) if num_actions else ())

    @kernel(subject="policies", check=lambda: check_act(act, space))
    def choose(inputs, keys, clock, params, greedy, masks, drawn, actions, log_probs, values):
        constants = unpack(params)
        for i in range(keys.size):
            numbers = draw_uniforms(*mix_key(keys[i], clock[0]))
            if masked:
                choice = act(load(inputs[i]), constants, numbers, mask_of(masks[i]))
                action, log_probs[i], values[i] = choice
            else:
                action, log_probs[i], values[i] = act(load(inputs[i]), constants, numbers)
            write_action(actions[i], action)

    return choose
