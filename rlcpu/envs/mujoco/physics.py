"""What a task is to kernels: one compiled function that begins an episode or takes one step."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rlcpu.envs.checks.trial import results_with_none
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.job import JOB_SIZE, make_open
from rlcpu.envs.mujoco.library import (
    AFTER_CONSTRAINTS,
    i64,
    mj_forward,
    mj_reset_data,
    mj_rne_post_constraint,
    mj_set_const,
    mj_step,
    mj_step1,
    warnings_offset,
)
from rlcpu.envs.mujoco.varied import Varied, make_copies, make_is_bad, make_look
from rlcpu.kernels.compile import (
    EXACT,
    c_function,
    define,
    freeze,
    inline,
    specialise,
    tuple_of,
)
from rlcpu.kernels.memory import array_at
from rlcpu.kernels.random import STEP_GROUP, make_rng, mix, uniform53

#: What the function does: start an episode; compute what derives from a state; take one step.
BEGIN, LOOK, ADVANCE = range(3)
#: Numbers of a simulation's row of `streams`.
POLICY_KEY, RESET_KEY, STEPS, DRAWN = range(4)
#: mjWARN_BADQPOS, mjWARN_BADQVEL, mjWARN_BADQACC: MuJoCo has reset the simulation.
_UNSTABLE = (3, 4, 5)
#: The arrays that it reads and writes.
_USED = (
    *("observation", "measured", "streams", "unstable", "uniforms", "applied", "numbers"),
    *("gained", "ended", "physics", "nominal"),
)


class TaskCode(NamedTuple):
    """Facts of a `MuJoCoDynamics` on which its function depends: tasks with equal ones share it.

    Attributes:
        view: see `make_view`.
        options: for each field of params a bool, or None for a number read at run time, or how many
            of them a tuple has.
        after_constraints: whether fields are read that `mj_rnePostConstraint` computes.
        warnings: see `warnings_offset`.
        varied: which numbers of the model vary.
        randomize: draws them, if a task does.
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
    settle_steps: int
    current: bool
    after_constraints: bool
    warnings: tuple[int, int]
    varied: Varied
    randomize: Callable[..., Any] | None

    @property
    def observation_rows(self) -> int:
        """Return how many rows hold an observation."""
        return self.observation_size


#: The task of each structure: what users are told is compiled.
ids: dict[TaskCode, str] = {}


def structure(dynamics: MuJoCoDynamics) -> TaskCode:
    """Return the structure of a task, with its functions as they are now."""
    derived: dict[str, Any] = {
        "params_type": type(dynamics.params),
        "options": tuple(
            v if isinstance(v, bool) else len(v) if isinstance(v, tuple) else None
            for v in dynamics.params
        ),
        "after_constraints": any(name in AFTER_CONSTRAINTS for name in dynamics.fields),
        "warnings": warnings_offset(dynamics.make_data()),
        "varied": dynamics.varied_fields,
    }
    names = [name for name in TaskCode._fields if name not in derived]
    made: TaskCode = freeze(TaskCode(**derived, **{n: getattr(dynamics, n) for n in names}))
    ids[made] = dynamics.id
    return made


def _make_unpack(env: TaskCode) -> Callable[..., Any]:
    """Make a function (numbers) -> params."""
    places, fields = itertools.count(), []
    for option in env.options:
        if isinstance(option, bool):
            fields.append(repr(option))
        elif option is None:
            fields.append(f"numbers[{next(places)}]")
        else:
            fields.append(f"({''.join(f'numbers[{next(places)}], ' for _ in range(option))})")
    source = f"def unpack(numbers): return Params({', '.join(fields)})"
    return inline(define(source, Params=env.params_type), exact=True)


def pack(params: Any, dtype: Any) -> Any:
    """Return the run-time numbers of params, float64 whatever the dtype of the environments."""
    items = [v if isinstance(v, tuple) else (v,) for v in params if not isinstance(v, bool)]
    return np.array([*itertools.chain.from_iterable(items)], np.float64)


def _make_simulate(env: TaskCode) -> Callable[..., Any]:
    """Make `simulate(m, d, ctrl, action)`: it takes one step of the task.

    It returns False if MuJoCo found the simulation unstable and reset it.
    """
    frame_skip, size = env.frame_skip, env.action_size
    current, after_constraints = env.current, env.after_constraints
    zero, sentinel = np.int32(0), np.int32(1000)
    first, distance = env.warnings
    bad_qpos, bad_qvel, bad_qacc = (first + distance * k for k in _UNSTABLE)

    @inline(exact=True)
    def counters(d):
        """Return MuJoCo's counts of warnings of bad positions, velocities and accelerations."""
        return (
            array_at(d + bad_qpos, (1,), zero),
            array_at(d + bad_qvel, (1,), zero),
            array_at(d + bad_qacc, (1,), zero),
        )

    @inline(exact=True)
    def simulate(m, d, ctrl, action):
        """Step a simulation, and tell whether MuJoCo counted no warning."""
        # A mjData serves many simulations: its counters may be those of another one. MuJoCo sets
        # them to 0 as it resets a simulation, and warns of what it counts as the first one.
        a, b, c = counters(d)
        a[0] = b[0] = c[0] = sentinel
        for k in range(size):
            ctrl[k] = action[k]
        for _ in range(frame_skip):
            mj_step(m, d)
        is_unchanged = a[0] == sentinel and b[0] == sentinel and c[0] == sentinel
        a[0] = b[0] = c[0] = zero
        if is_unchanged:
            if current:
                mj_step1(m, d)
            if after_constraints:
                mj_rne_post_constraint(m, d)
        return is_unchanged

    return simulate


def _make_redraw(env: TaskCode, store: Callable[..., Any]) -> Callable[..., Any]:
    """Make `redraw(m, d, row, key, count, params)`: the task draws a model's numbers anew.

    They are written to the model and to `row`, with all that depends on them; for other tasks the
    function does nothing.
    """
    if env.randomize is None:
        return inline(lambda m, d, row, key, count, params: None, exact=True)
    user = specialise(env.randomize, np.float64, exact=True, arrays=True)
    look, rng = make_look(env.varied), make_rng(STEP_GROUP, np.float64)
    is_bad = make_is_bad(env.varied)
    derives, mask, half = bool(env.varied.derived), np.uint64(0xFFFFFFFF), np.uint64(32)
    u32 = np.uint32

    @inline(exact=True)
    def redraw(m, d, row, key, count, params):
        a, b = mix(u32(key & mask), u32(key >> half), u32(count))
        user(rng(a, b), look(m), params)
        store(m, row)
        if derives and not is_bad(row):
            mj_set_const(m, d)
            store(m, row)

    return redraw


def _make_begin(env: TaskCode) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make `set_model(m, i, arrays)` and `begin(m, d, i, arrays, data, params)`.

    `set_model` gives a thread's model the numbers of simulation i. `begin` resets it, and draws the
    model's numbers first, from the nominal ones, then the state. Bad numbers stay until they are
    refused, which is after the last step of a call.
    """
    load, store = make_copies(env.varied)
    redraw, draws, varies = _make_redraw(env, store), env.reset_draws, bool(env.varied.fields)
    reset = specialise(env.reset, np.float64, exact=True, arrays=True)
    is_bad = make_is_bad(env.varied)
    randomizes, settle_steps = env.randomize is not None, env.settle_steps

    @inline(exact=True)
    def set_model(m, i, arrays):
        if varies:
            load(m, arrays.physics[i])

    @inline(exact=True)
    def begin(m, d, i, arrays, data, params):
        """Start a new episode of simulation i: draw parameters and a state."""
        stream, uniforms = arrays.streams[i], arrays.uniforms[i]
        if randomizes and not is_bad(arrays.physics[i]):
            load(m, arrays.nominal[i])
            redraw(m, d, arrays.physics[i], stream[RESET_KEY], stream[DRAWN], params)
        mj_reset_data(m, d)
        for k in range(draws):
            uniforms[k] = uniform53(stream[RESET_KEY], stream[DRAWN] + np.uint64(k))
        stream[DRAWN] += np.uint64(draws + randomizes)
        reset(data, uniforms, params)
        for _ in range(settle_steps):
            mj_step(m, d)

    return set_model, begin


def _make_measured(count: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make functions that load the numbers that `measure` returns from a row, and store them."""
    lines = "".join(f"\n    row[{k}] = values[{k}]" for k in range(count)) or "\n    pass"
    return tuple_of(None, count), inline(define(f"def store(row, values):{lines}"), exact=True)


#: What functions of a task return.
_RETURNED = {
    "measure": "a tuple of floats",
    "reward": "a finite float",
    "terminated": "a bool",
    "truncated": "a bool",
}


@functools.cache
def make_physics(env: TaskCode) -> int:
    """Return the address of a function (mjModel, mjData, simulation, job, what) of a task.

    MuJoCo may jump out of it, from `mj_step`, when it finds an error: only memory may be lost.

    After a step the reward and whether the episode ends are in `gained` and `ended`, after anything
    else only what is observed and measured is kept. A step in which MuJoCo reset the simulation
    gives no reward and truncates the episode; the observation stays what it was.
    """
    measure, reward, terminated, truncated, observe = functions = tuple(
        specialise(function, np.float64, exact=True, arrays=True)
        for function in (env.measure, env.reward, env.terminated, env.truncated, env.observe)
    )

    def check():
        for name, function in zip(_RETURNED, functions, strict=False):
            for result in results_with_none(function):
                returned = f"{_RETURNED[name]}; returned {result!r} in a branch"
                raise TypeError(f"{ids[env]}: {name} has to return {returned}")

    view, unpack, open_arrays = env.view, _make_unpack(env), make_open(_USED, np.float64)
    simulate, (set_model, begin) = _make_simulate(env), _make_begin(env)
    load, store = _make_measured(env.measure_size)
    one, yes, no = np.uint32(1), np.uint8(1), np.uint8(0)

    def run(m, d, i, address, what):
        """Step simulation i (`ADVANCE`), reset it (`BEGIN`), or only observe and measure it."""
        job = array_at(address, (JOB_SIZE,), i64)
        arrays = open_arrays(job)
        params, data = unpack(arrays.numbers), view(m, d)
        action, measured = arrays.applied[i], arrays.measured[i]
        set_model(m, i, arrays)
        if what == ADVANCE:
            if not simulate(m, d, data.ctrl, action):
                arrays.unstable[i] += one
                arrays.gained[i] = 0.0
                arrays.ended[i, 0], arrays.ended[i, 1] = no, yes
                return
        else:
            if what == BEGIN:
                begin(m, d, i, arrays, data, params)
            mj_forward(m, d)
        before, after = load(measured), measure(data, params)
        observe(data, arrays.observation[i], params)
        store(measured, after)
        if what == ADVANCE:
            arrays.gained[i] = reward(data, action, before, after, params)
            arrays.ended[i, 0] = yes if terminated(data, params) else no
            arrays.ended[i, 1] = yes if truncated(data, params) else no

    kinds = (types.intp, types.intp, types.int32, types.intp, types.intp)
    return c_function(run, kinds, fastmath=EXACT, check=check, subject=ids[env])
