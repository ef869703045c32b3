"""A task as kernels see it: one compiled function that resets a simulation or takes one step.

It is called with addresses, integers: `m` of a mjModel, `d` of a mjData; the number i of a
simulation; and `memory`, the engine's (`rlcpu.envs.mujoco.job.TaskMemory`). `data` is the
NamedTuple of fields that the task's functions read.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rlcpu.envs.contract.fields import is_bool
from rlcpu.envs.contract.trial import example_of
from rlcpu.envs.layout.values import is_real
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.job import TaskMemory
from rlcpu.envs.mujoco.library import (
    AFTER_CONSTRAINTS,
    WarningCounts,
    find_warnings,
    mj_forward,
    mj_reset_data,
    mj_rne_post_constraint,
    mj_set_const,
    mj_step,
    mj_step1,
)
from rlcpu.envs.mujoco.varied import VariedFields, make_drawn_view, make_is_bad, make_row_copiers
from rlcpu.kernels.compiler.compile import EXACT, c_function, define, inline, specialise, tuple_of
from rlcpu.kernels.compiler.functions import freeze
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.compiler.user_compiler import check_results
from rlcpu.kernels.machine.memory import array_at
from rlcpu.kernels.machine.random import STEP_GROUP, mix_key, uniform53
from rlcpu.kernels.machine.random_methods import make_rng
from rlcpu.kernels.machine.rows import store_rows

#: Operations of the function: draw a state of a new episode; only observe and measure; take a step.
TASK_RESET, TASK_FORWARD, TASK_STEP = range(3)
#: Numbers of a simulation's row of `streams`: the keys of the policy's random numbers and of those
#: of resets, and the two counters of these: steps, and numbers that resets have drawn.
POLICY_KEY, RESET_KEY, STEPS, DRAWN = range(4)
#: mjWARN_BADQPOS, mjWARN_BADQVEL, mjWARN_BADQACC, after which MuJoCo has reset the simulation.
_UNSTABLE = (3, 4, 5)


class TaskCode(NamedTuple):
    """Facts of a `MuJoCoDynamics` on which its function depends: tasks with equal ones share it."""

    #: (m, d) -> data, see `rlcpu.envs.mujoco.library.make_views`.
    view_in_kernels: Callable[..., Any]
    #: The task's own functions.
    reset: Callable[..., Any]
    measure: Callable[..., Any]
    reward: Callable[..., Any]
    terminated: Callable[..., Any]
    truncated: Callable[..., Any]
    observe: Callable[..., Any]
    randomize: Callable[..., Any] | None
    #: Class of the params NamedTuple, and what each of its fields is, see `_option_of`.
    params_type: type
    options: tuple[bool | int | None, ...]
    #: Counts of numbers.
    observation_size: int
    action_size: int
    measure_size: int
    state_size: int
    reset_draws: int
    #: As in `MuJoCoDynamics`.
    frame_skip: int
    settle_steps: int
    current: bool
    #: Whether fields are read that `mj_rnePostConstraint` computes.
    after_constraints: bool
    #: Where mjData counts its warnings.
    warnings: WarningCounts
    #: The fields of the model that vary.
    varied: VariedFields

    @property
    def observation_rows(self) -> int:
        """Return how many rows hold an observation."""
        return self.observation_size


#: The id of the task of each structure: messages name it as what is compiled.
ids: dict[TaskCode, str] = {}


def structure(dynamics: MuJoCoDynamics) -> TaskCode:
    """Return the facts of a task, with frozen copies of its functions as they are now."""
    facts: dict[str, Any] = {
        "params_type": type(dynamics.params),
        "options": tuple(map(_option_of, dynamics.params)),
        "after_constraints": any(name in AFTER_CONSTRAINTS for name in dynamics.fields),
        "warnings": find_warnings(dynamics.model),
        "varied": dynamics.varied_fields,
    }
    # All others are attributes of the task, by the same names.
    facts |= {n: getattr(dynamics, n) for n in TaskCode._fields if n not in facts}
    frozen: TaskCode = freeze(TaskCode(**facts))
    ids[frozen] = dynamics.id
    return frozen


def _option_of(param: Any) -> bool | int | None:
    """Return a bool itself, a constant of machine code; the length of a tuple of numbers; or None.

    None stands for one number. Numbers are read at run time.
    """
    if isinstance(param, bool):
        return param
    return len(param) if isinstance(param, tuple) else None


def _make_unpack(task: TaskCode) -> Callable[..., Any]:
    """Make an inlinable function (numbers,) -> the params NamedTuple.

    Its source is `Params(numbers[0], True, (numbers[1], numbers[2], ), ...)`.
    """
    places, fields = itertools.count(), []
    for option in task.options:
        if isinstance(option, bool):
            fields.append(repr(option))
        elif option is None:
            fields.append(f"numbers[{next(places)}]")
        else:
            fields.append(f"({''.join(f'numbers[{next(places)}], ' for _ in range(option))})")
    source = f"def unpack(numbers): return Params({', '.join(fields)})"
    return inline(define(source, Params=task.params_type), exact=True)


def pack(params: Any) -> Any:
    """Return the run-time numbers of params, float64, in the order in which `unpack` reads them."""
    items = [v if isinstance(v, tuple) else (v,) for v in params if not isinstance(v, bool)]
    return np.array([*itertools.chain.from_iterable(items)], np.float64)


def _make_simulate(task: TaskCode) -> Callable[..., Any]:
    """Make `simulate(m, d, ctrl, action)`, which takes MuJoCo's steps of one step of the task.

    `ctrl` is the array of mjData that takes the action. It returns False if MuJoCo found the
    simulation unstable and reset it.
    """
    frame_skip, size = task.frame_skip, task.action_size
    current, after_constraints = task.current, task.after_constraints
    zero, sentinel = np.int32(0), np.int32(1000)  # which no count reaches in a step
    offsets = [task.warnings.first + kind * task.warnings.stride for kind in _UNSTABLE]
    qpos_offset, qvel_offset, qacc_offset = offsets

    @inline(exact=True)
    def simulate(m, d, ctrl, action):
        """Step a simulation, and tell whether MuJoCo counted no warning."""
        # MuJoCo's counts of warnings of bad positions, velocities and accelerations. They may be
        # those of another simulation that used this mjData; MuJoCo sets them to 0 as it resets one.
        # So any change shows beside the sentinel. They are 0 afterwards: of a count of 0 MuJoCo
        # still logs its first warning.
        bad_qpos = array_at(d + qpos_offset, (1,), zero)
        bad_qvel = array_at(d + qvel_offset, (1,), zero)
        bad_qacc = array_at(d + qacc_offset, (1,), zero)
        bad_qpos[0] = bad_qvel[0] = bad_qacc[0] = sentinel
        for k in range(size):
            ctrl[k] = action[k]
        for _ in range(frame_skip):
            mj_step(m, d)
        is_stable = bad_qpos[0] == sentinel and bad_qvel[0] == sentinel and bad_qacc[0] == sentinel
        bad_qpos[0] = bad_qvel[0] = bad_qacc[0] = zero
        if is_stable:
            if current:
                mj_step1(m, d)
            if after_constraints:
                mj_rne_post_constraint(m, d)
        return is_stable

    return simulate


def _make_reset(task: TaskCode) -> Callable[..., Any]:
    """Make `reset(m, d, i, memory, data, params)`.

    It lets `randomize` draw fields of the model, starting from the nominal ones, and writes them
    to the model and, with the fields derived from them, to the simulation's row; then it draws the
    simulation's state. A row with bad numbers is not drawn again, so that the engine finds it when
    the call is over, and refuses it.
    """
    user_reset = specialise(task.reset, np.float64, exact=True, arrays=True)
    draws, settle_steps = task.reset_draws, task.settle_steps
    randomizes, derives = task.randomize is not None, bool(task.varied.derived)
    (load_row, store_row), is_bad = make_row_copiers(task.varied), make_is_bad(task.varied)
    randomize: Any = None
    if task.randomize is not None:
        randomize = specialise(task.randomize, np.float64, exact=True, arrays=True)
    # `rng(a, b)` makes the `Rng` of two random words, with the numbers that a step's has.
    drawn_view, rng = make_drawn_view(task.varied), make_rng(STEP_GROUP, np.float64)

    @inline(exact=True)
    def reset(m, d, i, memory, data, params):
        stream, uniforms, row = memory.streams[i], memory.uniforms[i], memory.model_rows[i]
        if randomizes and not is_bad(row):
            load_row(m, memory.nominal_rows[i])
            a, b = mix_key(stream[RESET_KEY], stream[DRAWN])
            randomize(rng(a, b), drawn_view(m), params)
            store_row(m, row)
            if derives and not is_bad(row):
                mj_set_const(m, d)
                store_row(m, row)
        mj_reset_data(m, d)
        for k in range(draws):
            uniforms[k] = uniform53(stream[RESET_KEY], stream[DRAWN] + np.uint64(k))
        stream[DRAWN] += np.uint64(draws + randomizes)
        user_reset(data, uniforms, params)
        for _ in range(settle_steps):
            mj_step(m, d)

    return reset


#: Of the results of a task's functions: their names, for errors, and what tells whether a value,
#: an example for a branch, is one.
_RETURNED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "measure": ("a tuple of floats", lambda x: isinstance(x, tuple) and all(map(is_real, x))),
    "reward": ("a finite float", is_real),
    "terminated": ("a bool", is_bool),
    "truncated": ("a bool", is_bool),
}


def check_task_branches(subject: str, name: str, function: Any) -> None:
    """Raise TypeError for a branch of a task's compiled function that returns something else.

    `subject` is the task's id, for the message.
    """
    wanted, is_right = _RETURNED[name]

    def check(value: Any) -> None:
        result = example_of(value)
        if not is_right(result):
            raise TypeError(f"{subject}: {name} has to return {wanted}; returned {result!r}")

    check_results(function, check)


@functools.cache
def make_physics(task: TaskCode) -> int:
    """Return the address of the task's compiled function (m, d, i, memory, operation).

    Every operation overwrites `observation` and `measured` of simulation i; a step also
    `step_rewards` and `step_ended`. A step in which MuJoCo reset the simulation gives no reward and
    truncates the episode; the observation stays what it was.

    MuJoCo may jump out of the function, from `mj_step`, when it finds an error: no code after the
    call may be needed but for freeing memory.
    """
    measure, reward, terminated, truncated, observe = functions = tuple(
        specialise(function, np.float64, exact=True, arrays=True)
        for function in (task.measure, task.reward, task.terminated, task.truncated, task.observe)
    )

    def check():
        """Raise TypeError if a function returns in some branch what the task cannot take."""
        for name, function in zip(_RETURNED, functions, strict=False):  # `observe` returns nothing
            check_task_branches(ids[task], name, function)

    view, unpack = task.view_in_kernels, _make_unpack(task)
    varies, (load_row, _) = bool(task.varied.fields), make_row_copiers(task.varied)
    simulate, reset = _make_simulate(task), _make_reset(task)
    # They read and write a tuple of numbers, one after the other in an array.
    load_measured = tuple_of(None, task.measure_size)
    store_measured = store_rows(task.measure_size, ANY)
    one, yes, no = np.uint32(1), np.uint8(1), np.uint8(0)

    def run(m, d, i, memory, operation):
        """Step simulation i, reset it, or do neither; then observe and measure it."""
        params, data = unpack(memory.param_numbers), view(m, d)
        action, measured = memory.applied_actions[i], memory.measured[i]
        if varies:  # each thread has a model, which gets the fields of this simulation
            load_row(m, memory.model_rows[i])
        if operation == TASK_STEP:
            if not simulate(m, d, data.ctrl, action):
                memory.unstable[i] += one
                memory.step_rewards[i] = 0.0
                memory.step_ended[i, 0], memory.step_ended[i, 1] = no, yes
                return
        else:
            if operation == TASK_RESET:
                reset(m, d, i, memory, data, params)
            mj_forward(m, d)
        before, after = load_measured(measured), measure(data, params)
        observe(data, memory.observation[i], params)
        store_measured(measured, 1, 0, after)
        if operation == TASK_STEP:
            memory.step_rewards[i] = reward(data, action, before, after, params)
            memory.step_ended[i, 0] = yes if terminated(data, params) else no
            memory.step_ended[i, 1] = yes if truncated(data, params) else no

    kinds = (types.intp, types.intp, types.int32, TaskMemory.view, types.intp)
    return c_function(run, kinds, fastmath=EXACT, check=check, subject=ids[task])
