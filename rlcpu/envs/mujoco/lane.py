"""One simulation of a batch, K steps at a time: the function that MuJoCo's threads call."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rlcpu.envs.lane import PENDING
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.library import (
    AFTER_CONSTRAINTS,
    array_at,
    f64,
    i64,
    mj_forward,
    mj_reset_data,
    mj_rne_post_constraint,
    mj_step,
    mj_step1,
    warnings_offset,
)
from rlcpu.envs.mujoco.policy import make_choose
from rlcpu.envs.policies import PolicyArrays, PolicyCode
from rlcpu.kernels.compile import EXACT, c_function, define, freeze, inline_exact, specialise
from rlcpu.kernels.random import uniform53

f32, u8, u32, u64 = np.float32(0), np.uint8(0), np.uint32(0), np.uint64(0)

#: What a call does with each simulation: start an episode where the mask says so; take one step
#: with given actions; let a policy take K steps; compute what derives from its present state.
RESTART, STEP, ROLLOUT, FORWARD = range(4)
#: Numbers of a simulation's row of `streams`.
POLICY_KEY, RESET_KEY, STEPS, DRAWN = range(4)
#: Numbers of a simulation's row of `sums`, as in `rlcpu.envs.rollout`.
EPISODES, RETURNS, SQUARES, FAULTS, LENGTHS = range(5)
#: mjWARN_BADQPOS, mjWARN_BADQVEL, mjWARN_BADQACC: MuJoCo has reset the simulation.
_UNSTABLE = (3, 4, 5)


class Structure(NamedTuple):
    """What of a `MuJoCoDynamics` decides machine code: tasks that share it share kernels.

    Attributes:
        view: see `make_view`.
        options: for each field of params a bool, or None for a number read at run time, or how many
            of them a tuple has.
        after_constraints: whether fields are read that `mj_rnePostConstraint` computes.
        warnings: see `warnings_offset`.
    """

    view: Callable[..., Any]
    reset: Callable[..., Any]
    measure: Callable[..., Any]
    reward: Callable[..., Any]
    terminated: Callable[..., Any]
    truncated: Callable[..., Any]
    observe: Callable[..., Any]
    params_type: type
    options: tuple[bool | int | None, ...]
    observation_size: int
    action_size: int
    measure_size: int
    state_size: int
    reset_draws: int
    frame_skip: int
    current: bool
    after_constraints: bool
    warnings: tuple[int, int]
    num_actions: int = 0


#: The task of each structure: what users are told is compiled.
ids: dict[Structure, str] = {}


def structure(dynamics: MuJoCoDynamics) -> Structure:
    """The structure of a task, with its functions as they are now."""
    derived: dict[str, Any] = {
        "params_type": type(dynamics.params),
        "options": tuple(
            v if isinstance(v, bool) else len(v) if isinstance(v, tuple) else None
            for v in dynamics.params
        ),
        "after_constraints": any(name in AFTER_CONSTRAINTS for name in dynamics.fields),
        "warnings": warnings_offset(dynamics._make_data()),
    }
    names = [name for name in Structure._fields if name not in derived]
    made: Structure = freeze(Structure(**derived, **{n: getattr(dynamics, n) for n in names}))
    ids[made] = dynamics.id
    return made


class Arrays(NamedTuple):
    """What a call reads and writes: N simulations, K steps.

    What has the dtype of the environments is marked as real; S are the numbers of an observation.
    An array that is not wanted is a null pointer in the job, and nothing is written there.

    Attributes:
        observation: (N, S) float64, of the present states.
        measured: (N, measure_size) float64, after the last step or reset.
        elapsed: (N,) uint32, steps of the running episodes, or `PENDING`.
        returns: (N,) float64, of the running episodes so far.
        streams: (N, 4) uint64, see `POLICY_KEY`.
        unstable: (N,) uint32, how often MuJoCo has found the simulation unstable.
        uniforms, applied: (N, reset_draws) float64 and (N, nu) float32, scratch.
        numbers: (P,) float64, run-time params.
        mask: (N,) uint8, what `RESTART` restarts.
        bounds: (2, nu) float32, lowest and highest numbers of an action.
        sums: (N, 5) float64, see `EPISODES`.
        actions: (K, N, nu) float32; `STEP` reads it, `ROLLOUT` writes it.
        observations: (K, N, S) real, before each step.
        log_probs, values: (K, N) float32.
        rewards, totals: (K, N) real, totals where an episode ended: its return.
        flags: (2, K, N) uint8, terminated, then truncated.
        finals: (K, N, S) real, where an episode ended: what its last step led to.
        lengths: (K, N) uint32, where an episode ended: its steps.
        last: (N, S) real, after the last step.
    """

    observation: Any
    measured: Any
    elapsed: Any
    returns: Any
    streams: Any
    unstable: Any
    uniforms: Any
    applied: Any
    numbers: Any
    mask: Any
    bounds: Any
    sums: Any
    actions: Any
    observations: Any
    log_probs: Any
    values: Any
    rewards: Any
    totals: Any
    flags: Any
    finals: Any
    lengths: Any
    last: Any


#: The first numbers of a job; then come the addresses of `Arrays`, then those of `PolicyArrays`
#: and their sizes.
MODE, NUM_STEPS, NUM_ENVS, LIMIT, SAME_STEP, RECORD, GIVEN = range(7)
JOB_SIZE = 7 + len(Arrays._fields) + 2 * len(PolicyArrays._fields)


def _shapes(env: Structure, dtype: type) -> dict[str, tuple[str, Any]]:
    """Shape, in K, N and numbers, and kind of each of `Arrays`."""
    s, real = env.observation_size, dtype(0)
    return {
        "observation": (f"(N, {s})", f64),
        "measured": (f"(N, {env.measure_size})", f64),
        "elapsed": ("(N,)", u32),
        "returns": ("(N,)", f64),
        "streams": ("(N, 4)", u64),
        "unstable": ("(N,)", u32),
        "uniforms": (f"(N, {env.reset_draws})", f64),
        "applied": (f"(N, {env.action_size})", f32),
        "numbers": ("(64,)", f64),  # as many as there are; kernels know how many
        "mask": ("(N,)", u8),
        "bounds": (f"(2, {env.action_size})", f32),
        "sums": ("(N, 5)", f64),
        "actions": (f"(K, N, {env.action_size})", f32),
        "observations": (f"(K, N, {s})", real),
        "log_probs": ("(K, N)", f32),
        "values": ("(K, N)", f32),
        "rewards": ("(K, N)", real),
        "totals": ("(K, N)", real),
        "flags": ("(2, K, N)", u8),
        "finals": (f"(K, N, {s})", real),
        "lengths": ("(K, N)", u32),
        "last": (f"(N, {s})", real),
    }


def _make_open(env: Structure, dtype: type) -> Callable[..., Any]:
    """Inlinable function: job -> Arrays."""
    space: dict[str, Any] = {"array_at": array_at, "Arrays": Arrays}
    items, shapes = [], _shapes(env, dtype)
    for k, name in enumerate(Arrays._fields):
        shape, space[f"like{k}"] = shapes[name]
        items.append(f"array_at(job[{7 + k}], {shape}, like{k})")
    source = f"def open(job):\n    K, N = job[1], job[2]\n    return Arrays({', '.join(items)})"
    return inline_exact(define(source, **space))


def _make_open_policy() -> Callable[..., Any]:
    """Inlinable function: job -> PolicyArrays."""
    kinds: dict[str, Any] = dict.fromkeys(PolicyArrays._fields, f32)
    kinds |= dict.fromkeys(("sizes", "value_sizes", "settings"), i64)
    space: dict[str, Any] = {"array_at": array_at, "PolicyArrays": PolicyArrays}
    items, first = [], 7 + len(Arrays._fields)
    for k, name in enumerate(PolicyArrays._fields):
        space[f"like{k}"] = kinds[name]
        items.append(f"array_at(job[{first + 2 * k}], (job[{first + 2 * k + 1}],), like{k})")
    source = f"def open_policy(job): return PolicyArrays({', '.join(items)})"
    return inline_exact(define(source, **space))


def _make_unpack(env: Structure) -> Callable[..., Any]:
    """Inlinable function: numbers -> params."""
    places, fields = itertools.count(), []
    for option in env.options:
        if isinstance(option, bool):
            fields.append(repr(option))
        elif option is None:
            fields.append(f"numbers[{next(places)}]")
        else:
            fields.append(f"({''.join(f'numbers[{next(places)}], ' for _ in range(option))})")
    source = f"def unpack(numbers): return Params({', '.join(fields)})"
    return inline_exact(define(source, Params=env.params_type))


def pack(params: Any, dtype: Any) -> Any:
    """The run-time numbers of params: (64,) float64, of which the first ones are used."""
    items = [v if isinstance(v, tuple) else (v,) for v in params if not isinstance(v, bool)]
    numbers = np.zeros(64)
    flat = list(itertools.chain.from_iterable(items))
    numbers[: len(flat)] = flat
    return numbers


# ---------------------------------------------------------------- one step


class Physics(NamedTuple):
    """Inlinable functions of one simulation.

    Attributes:
        begin: (m, d, i, data, arrays, params) starts an episode.
        look: (i, data, arrays, params) keeps what is observed and measured now.
        advance: (m, d, i, data, arrays, params) -> (reward, terminated, truncated) of a step with
            the action in `applied`; keeps what is observed and measured after it.
    """

    begin: Callable[..., None]
    look: Callable[..., None]
    advance: Callable[..., Any]


def _make_physics(env: Structure) -> Physics:
    reset, measure, reward, terminated, truncated, observe = (
        specialise(function, np.float64, exact=True, arrays=True)
        for function in (
            *(env.reset, env.measure, env.reward, env.terminated, env.truncated, env.observe),
        )
    )
    count, draws, size = env.measure_size, env.reset_draws, env.action_size
    items = "".join(f"row[{k}], " for k in range(count))
    load = inline_exact(define(f"def load(row): return ({items})"))
    lines = "".join(f"\n    row[{k}] = values[{k}]" for k in range(count)) or "\n    pass"
    store = inline_exact(define(f"def store(row, values):{lines}"))
    frame_skip, current, after_constraints = env.frame_skip, env.current, env.after_constraints
    first, distance = env.warnings
    one, zero, i32, mark = np.uint32(1), np.uint32(0), np.int32(0), np.int32(1000)
    bad_qpos, bad_qvel, bad_qacc = (first + distance * k for k in _UNSTABLE)

    @inline_exact
    def look(i, data, arrays, params):
        observe(data, arrays.observation[i], params)
        store(arrays.measured[i], measure(data, params))

    @inline_exact
    def begin(m, d, i, data, arrays, params):
        mj_reset_data(m, d)
        stream, uniforms = arrays.streams[i], arrays.uniforms[i]
        for k in range(draws):
            uniforms[k] = uniform53(stream[RESET_KEY], stream[DRAWN] + np.uint64(k))
        stream[DRAWN] += np.uint64(draws)
        reset(data, uniforms, params)
        mj_forward(m, d)
        look(i, data, arrays, params)
        arrays.elapsed[i] = zero
        arrays.returns[i] = 0.0

    @inline_exact
    def advance(m, d, i, data, arrays, params):
        action = arrays.applied[i]
        # A mjData serves many simulations: its counters may be those of another one. MuJoCo sets
        # them to 0 as it resets a simulation, and prints what it counts as the first one.
        positions, velocities, accelerations = (
            array_at(d + bad_qpos, (1,), i32),
            array_at(d + bad_qvel, (1,), i32),
            array_at(d + bad_qacc, (1,), i32),
        )
        positions[0] = velocities[0] = accelerations[0] = mark
        for k in range(size):
            data.ctrl[k] = action[k]
        for _ in range(frame_skip):
            mj_step(m, d)
        kept = positions[0] == mark and velocities[0] == mark and accelerations[0] == mark
        positions[0] = velocities[0] = accelerations[0] = i32
        if not kept:
            arrays.unstable[i] += one
            return 0.0, False, True
        if current:
            mj_step1(m, d)
        if after_constraints:
            mj_rne_post_constraint(m, d)
        before, after = load(arrays.measured[i]), measure(data, params)
        gained = reward(data, action, before, after, params)
        observe(data, arrays.observation[i], params)
        store(arrays.measured[i], after)
        return gained, terminated(data, params), truncated(data, params)

    return Physics(begin, look, advance)


# ---------------------------------------------------------------- K steps


@functools.cache
def make_run(env: Structure, dtype: type, policy: PolicyCode | None) -> int:
    """Address of the function (mjModel, mjData, simulation, job) that `mjb_apply` calls.

    MuJoCo may jump out of it, from `mj_step`, when it finds an error: only memory may be lost.
    """
    begin, look, advance = _make_physics(env)
    open_arrays, open_policy, unpack = (
        _make_open(env, dtype),
        _make_open_policy(),
        _make_unpack(env),
    )
    scratch, choose = make_choose(env, policy)
    view, real, size = env.view, dtype, env.observation_size
    pending, one = np.uint32(PENDING), np.uint32(1)
    width = env.action_size

    @inline_exact
    def take(i, step, arrays, given):
        """Let the actions of an array act."""
        for k in range(width):
            arrays.applied[i, k] = arrays.actions[step, i, k]

    @inline_exact
    def copy(target, source):
        fault = 0.0
        for k in range(size):
            number = real(source[k])
            target[k] = number
            fault += number * 0.0
        return fault

    @inline_exact
    def run(m, d, i, address):
        job = array_at(address, (JOB_SIZE,), i64)
        arrays = open_arrays(job)
        params, data = unpack(arrays.numbers), view(m, d)
        mode, num_steps, record = job[MODE], job[NUM_STEPS], job[RECORD] != 0
        if mode == RESTART:
            if arrays.mask[i] != 0:
                begin(m, d, i, data, arrays, params)
            copy(arrays.last[i], arrays.observation[i])
            return
        if mode == FORWARD:
            mj_forward(m, d)
            look(i, data, arrays, params)
            return
        if mode == STEP and job[SAME_STEP] == 0 and arrays.elapsed[i] == pending:
            begin(m, d, i, data, arrays, params)
            arrays.rewards[0, i] = real(0.0)
            arrays.flags[0, 0, i] = arrays.flags[1, 0, i] = np.uint8(0)
            copy(arrays.last[i], arrays.observation[i])
            return
        limit, same_step = np.uint32(job[LIMIT]), mode == ROLLOUT or job[SAME_STEP] != 0
        constants = open_policy(job)
        space, fault = scratch(constants), 0.0
        for step in range(num_steps):
            if mode == STEP:
                take(i, step, arrays, constants)
            else:
                if record:
                    fault += copy(arrays.observations[step, i], arrays.observation[i])
                fault += choose(i, step, record, arrays, constants, space)
            arrays.streams[i, STEPS] += np.uint64(1)
            gained, terminated, truncated = advance(m, d, i, data, arrays, params)
            gained = np.float64(real(gained))
            fault += gained * 0.0
            elapsed, total = arrays.elapsed[i] + one, arrays.returns[i] + gained
            truncated = truncated or elapsed >= limit
            arrays.elapsed[i], arrays.returns[i] = elapsed, total
            if record:
                arrays.rewards[step, i] = real(gained)
                arrays.flags[0, step, i] = np.uint8(terminated)
                arrays.flags[1, step, i] = np.uint8(truncated)
            if terminated or truncated:
                if mode == ROLLOUT:
                    sums = arrays.sums[i]
                    sums[EPISODES] += 1.0
                    sums[RETURNS] += total
                    sums[SQUARES] += total * total
                    sums[LENGTHS] += np.float64(elapsed)
                    if record:
                        arrays.totals[step, i] = real(total)
                        arrays.lengths[step, i] = elapsed
                if same_step:
                    if record:
                        fault += copy(arrays.finals[step, i], arrays.observation[i])
                    begin(m, d, i, data, arrays, params)
                else:
                    arrays.elapsed[i] = pending
        for k in range(size):
            fault += arrays.observation[i, k] * 0.0
        if record:
            fault += copy(arrays.last[i], arrays.observation[i])
        if mode == ROLLOUT:
            arrays.sums[i, FAULTS] += fault

    kinds = (types.intp, types.intp, types.int32, types.intp)
    return c_function(run.py_func, kinds, fastmath=EXACT, subject=ids[env])
