"""The engine of MuJoCo's tasks.

MuJoCo keeps the simulations' states and runs them on threads of its own; everything else that they
keep between two calls is in arrays of this module.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import mujoco
import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.base import Engine, Runner, TimeStep
from rlcpu.envs.engine.faults import check_rollout
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.lane import PENDING
from rlcpu.envs.engine.layout import check_layout
from rlcpu.envs.engine.rollout import FAULTS
from rlcpu.envs.mujoco import job as jobs
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.lane import make_run
from rlcpu.envs.mujoco.library import INTEGRATION, library
from rlcpu.envs.mujoco.physics import TaskCode, make_physics, pack, structure
from rlcpu.envs.mujoco.render import MuJoCoRenderer
from rlcpu.envs.mujoco.varied import find_bad_draw, rows_of, split
from rlcpu.envs.policies import MEMORY, Policy, carrier_of
from rlcpu.envs.running import describe_fault, refuse_policy
from rlcpu.kernels.random import splitmix64
from rlcpu.kernels.threads import default_num_threads

Array = npt.NDArray[Any]
_NO_FINALS = np.empty((0, 0))


def without_islands(model: mujoco.MjModel) -> mujoco.MjModel:
    """Copy a model whose bodies that move are one tree; its solver looks for no islands.

    One tree is one island: results are the same bits. A step of Hopper, Walker2d or Ant takes 7 to
    10 per cent less time, one of HalfCheetah 5. Bodies that sleep do so island by island.
    """
    made, flags = copy.copy(model), mujoco.mjtEnableBit.mjENBL_SLEEP
    if made.ntree == 1 and not made.opt.enableflags & flags:
        made.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
    return made


class Simulations:
    """MuJoCo's own memory and threads for N simulations of a model.

    Attributes:
        state: (N, nstate) float64, MuJoCo's states; writable.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, num_threads: int, expanded: str | None
    ) -> None:
        model = without_islands(model)
        error = ctypes.create_string_buffer(1000)
        config = np.array([num_threads, 0], np.int32)  # mjBatchConfig: nthread, persistent
        made = library().mjb_makeBatch(
            model._address, num_envs, config.ctypes.data, error, len(error)
        )
        if not made:
            raise RuntimeError(f"MuJoCo made no batch of {num_envs}: {error.value.decode()}")
        self.address, self.process = ctypes.c_void_p(made), os.getpid()
        if expanded is not None:  # each thread has a model of its own then
            library().mjb_expand(made, expanded.encode(), None, None)
        size = mujoco.mj_stateSize(model, INTEGRATION)
        memory = (ctypes.c_double * (num_envs * size)).from_address(library().mjb_state(made))
        self.state: Array = np.ctypeslib.as_array(memory).reshape(num_envs, size)
        self._status = (ctypes.c_int * num_envs).from_address(library().mjb_status(made))
        self._model, self._apply = model, library().mjb_apply  # the model is kept alive
        self._finalizer = weakref.finalize(self, _delete, made, self.process)

    def apply(self, function: int, job: Array, *, save: bool = True) -> bool:
        """Call a function for each simulation; whether MuJoCo raised an error in one."""
        # Half of the time of `job.ctypes.data`.
        address = job.__array_interface__["data"][0]
        return bool(self._apply(self.address, None, 0, function, address, save))

    def errors(self) -> dict[int, str]:
        """Return MuJoCo's messages of the last call, by simulation."""
        failed = np.flatnonzero(np.ctypeslib.as_array(self._status))
        return {int(i): library().mjb_error(self.address, int(i)).decode() for i in failed}


def _delete(address: int, process: int) -> None:
    """Free a batch, unless it is a parent's: its threads are not here, and would be waited for."""
    if os.getpid() == process:
        library().mjb_deleteBatch(address)


class MuJoCoEngine(Engine):
    """N simulations of a task; see `Engine`.

    Attributes:
        code: what of the task decides machine code.
        numbers: (num_numbers,) float64, the run-time parameters.
        observation, measured: of the present states, see `rlcpu.envs.mujoco.job`, as is all below.
        elapsed_steps, returns, streams: of the running episodes.
        unstable, counted: how often each simulation was unstable, now and before the last step.
        physics, nominal: the model's numbers that vary, as they are and as they were given.
    """

    has_infos = True
    renderer = MuJoCoRenderer
    dynamics: MuJoCoDynamics
    code: TaskCode

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._find_code()
        n, code, task = self.num_envs, self.code, self.dynamics
        self.observation = np.zeros((n, code.observation_size))
        self.measured = np.zeros((n, code.measure_size))
        self.elapsed_steps = np.full(n, PENDING, np.uint32)
        self.returns, self.unstable = np.zeros(n), np.zeros(n, np.uint32)
        self.counted = self.unstable.copy()
        self.streams = np.zeros((n, 4), np.uint64)
        self.uniforms = np.zeros((n, code.reset_draws))
        self.nominal = rows_of(task.model, task.varied_fields, task.varied, n)
        self.physics = self.nominal.copy()
        self.applied = np.zeros((n, code.action_size), np.float32)
        self.gained, self.ended = np.zeros(n), np.zeros((n, 2), np.uint8)

    def _find_code(self) -> None:
        """Set the attributes that a copy of the engine makes anew."""
        self._batch: Simulations | None = None
        self.code = structure(self.dynamics)
        self.numbers = pack(self.dynamics.params, self.scalar_type)
        self._run, self._task = make_run(None, self.scalar_type), make_physics(self.code)

    @property
    def batch(self) -> Simulations:
        """Return MuJoCo's memory and threads, made anew in a forked child, which lacks them."""
        batch = self._batch
        if batch is None or batch.process != os.getpid():
            threads = min(self.num_threads or default_num_threads(), self.num_envs)
            expanded = self.dynamics.varied_fields.expanded
            self._batch = Simulations(self.dynamics.model, self.num_envs, threads, expanded)
            if batch is not None:
                self._batch.state[:] = batch.state
        return self._batch  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, Any]:
        """Return all of it, with episodes and random streams, but no kernels."""
        made = ("code", "numbers", "_run", "_task", "_batch", "_job", "last_runner")
        attributes = {name: value for name, value in vars(self).items() if name not in made}
        had = self.batch.state.copy(), self.dynamics.state
        return {**attributes, "last_runner": None, "had": had}

    def __setstate__(self, state: dict[str, Any]) -> None:
        physics, layout = state.pop("had")
        vars(self).update(state)
        check_layout(self.dynamics, layout)
        self._find_code()
        self.batch.state[:] = physics

    # ------------------------------------------------------------ calls

    def job(self, mode: int, **arrays: Array) -> Array:
        """Return the arguments of a call; see `rlcpu.envs.mujoco.job`."""
        job = self._job.copy()
        job[jobs.MODE] = mode
        for name, array in arrays.items():
            job[jobs.place_of(name)] = array.__array_interface__["data"][0]
        if "numbers" in arrays:
            job[jobs.NUMBERS] = arrays["numbers"].size
        return job

    @functools.cached_property
    def _job(self) -> Array:
        """Return the arguments that are the same in every call: sizes, and the engine's arrays."""
        job, code = np.zeros(jobs.JOB_SIZE, np.int64), self.code
        arrays = {
            "observation": self.observation, "measured": self.measured,
            "elapsed": self.elapsed_steps, "returns": self.returns, "streams": self.streams,
            "unstable": self.unstable, "uniforms": self.uniforms, "physics": self.physics,
            "nominal": self.nominal, "applied": self.applied,
            "gained": self.gained, "ended": self.ended, "numbers": self.numbers,
        }  # fmt: skip
        job[: jobs.HEADER] = (
            *(0, 1, self.num_envs, self.limit, self.same_step, 0),
            *(code.observation_size, code.action_size, code.measure_size, code.reset_draws),
            *(self.numbers.size, self._task, self.physics.shape[1]),
        )
        for name, array in arrays.items():
            job[jobs.place_of(name)] = array.ctypes.data
        return job

    def call(self, job: Array, run: int | None = None, *, save: bool = True) -> None:
        """Run a job, with the compiled function of a policy if one acts.

        Raises:
            ValueError: `randomize` wrote numbers that no model can hold; all episodes end.
            RuntimeError: MuJoCo found an error in a simulation, whose episode ends.
        """
        failed = self.batch.apply(self._run if run is None else run, job, save=save)
        if self.dynamics.randomize is not None and (
            bad := find_bad_draw(self.code.varied, self.physics)
        ):
            self.physics[:] = self.nominal
            self.finish(np.ones(self.num_envs, np.bool_))
            place = f"environment {bad[0]} of {self.num_envs}"
            raise ValueError(f"{self.dynamics.id}: randomize wrote {bad[1]}, in {place}")
        if failed:
            self._refuse()

    def _refuse(self) -> NoReturn:
        """Raise RuntimeError for what MuJoCo said of the last call."""
        errors = self.batch.errors()
        failed = np.zeros(self.num_envs, np.bool_)
        failed[list(errors)] = True
        self.finish(failed)
        first, message = next(iter(errors.items()))
        raise RuntimeError(
            f"{self.dynamics.id}: MuJoCo failed in environment {first} ({len(errors)} of "
            f"{self.num_envs} environments): {message}"
        )

    def step(self, actions: Any) -> TimeStep:
        """Take one step; see `Engine.step`.

        Raises:
            RuntimeError: see `call`.
        """
        actions = self.convert(actions)
        if self.disabled:
            self.check_running()
        if not np.isfinite(actions).all():  # MuJoCo clips them, but rewards are of what was given
            actions = self.zero_waiting(actions)
        n, shape = self.num_envs, self.observation.shape
        observations, rewards = np.empty(shape, self.dtype), np.empty(n, self.dtype)
        flags, finals = np.empty((2, n), np.bool_), _NO_FINALS
        wanted = {"actions": actions, "rewards": rewards, "flags": flags, "last": observations}
        if self.same_step:
            wanted["finals"] = finals = np.empty(shape, self.dtype)
        np.copyto(self.counted, self.unstable)
        self.call(self.job(jobs.STEP, **wanted))
        return TimeStep(observations.T, rewards, flags[0], flags[1], finals.T)

    def single_step(self) -> SingleTaskStep:
        """Return a step of one simulation whose arrays are made once: they take longest."""
        return SingleTaskStep(self)

    def infos(self) -> dict[str, Any]:
        """Return "unstable": which simulations MuJoCo had to reset in the last step, if any."""
        unstable = self.unstable != self.counted
        if not unstable.any():
            return {}
        return {"unstable": unstable, "_unstable": unstable.copy()}

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        last = np.empty(self.observation.shape, self.dtype)
        numbers = pack(params, self.scalar_type)
        self.call(self.job(jobs.RESTART, mask=mask, numbers=numbers, last=last))

    def observe(self) -> Array:
        """Return the observations of the present states, (observation_size, N)."""
        observations: Array = self.observation.astype(self.dtype).T
        return observations

    def make_runner(self, policy: Policy) -> MuJoCoRunner:
        """Return the runner of a policy; see `Engine.runner`."""
        return MuJoCoRunner(self, policy)

    # ------------------------------------------------------------ states

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """Return float64, in which MuJoCo keeps states."""
        return np.dtype(np.float64)

    def get_state(self) -> Array:
        """Return a copy of MuJoCo's states, (N, nstate)."""
        return self.batch.state.copy()

    def set_state(self, state: Array) -> None:
        """Copy (N, nstate) in; finished episodes become running ones."""
        self.batch.state[:] = state
        self.resume()
        self.call(self.job(jobs.FORWARD), save=False)  # computes what derives from the states

    def resume(self) -> None:
        """Make finished episodes running ones, which go on in their last states."""
        finished = self.finished()
        self.returns[finished] = 0.0
        self.elapsed_steps[finished] = 0

    def state(self) -> dict[str, Array]:
        """Return its arrays by name, which a checkpoint keeps."""
        varied = {"physics_of_models": self.physics} if self.physics.size else {}
        return {
            **varied,
            "physics": self.batch.state,
            "observation": self.observation,
            "measured": self.measured,
            "elapsed": self.elapsed_steps,
            "returns": self.returns,
            "words": self.streams,
            "unstable": self.unstable,
            **self.carried_arrays(),
        }

    def take(self, part: slice) -> dict[str, Array]:
        """Return a copy of some simulations; see `Engine.take`."""
        return {name: array[part].copy() for name, array in self.state().items()}

    def put(self, part: slice, taken: Mapping[str, Array]) -> None:
        """Overwrite some simulations; see `Engine.put`."""
        self.put_carried(taken, part)
        for name, array in self.state().items():
            array[part] = taken[name]

    def get_returns(self) -> Array:
        """Return a copy of (N,) returns of the running episodes so far."""
        return self.returns.copy()

    def get_params(self) -> dict[str, Array]:
        """Return copies of the model's numbers that vary, (N, *shape of the field) or (N,)."""
        fields = split(self.dynamics.varied_fields, self.physics)
        return {name: rows.copy() for name, rows in fields.items()}

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        self.elapsed_steps[mask] = PENDING

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return (N,) steps of the running episodes; `PENDING` where one has finished."""
        return self.elapsed_steps.copy()

    def start_streams(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the random streams of the masked environments anew, from one seed each."""
        policy = splitmix64(seeds)
        with np.errstate(over="ignore"):
            reset = splitmix64(policy + np.uint64(1))
        none = np.zeros_like(policy)
        fresh = np.stack((policy, reset, none, none), axis=1)
        self.streams[mask] = fresh[mask]


class SingleTaskStep:
    """One step of one simulation, again and again with the same arrays.

    Attributes: see `rlcpu.envs.engine.lanes.SingleStep`.
    """

    def __init__(self, engine: MuJoCoEngine) -> None:
        self.actions = np.zeros(engine.action_shape, np.float32)
        observation, self.reward = (
            np.zeros((1, engine.rows), engine.dtype),
            np.zeros(1, engine.dtype),
        )
        flags = np.zeros((2, 1), np.bool_)
        self.rows, (self.terminated, self.truncated) = observation.T, flags
        arrays = {"actions": self.actions, "rewards": self.reward, "flags": flags}
        self._engine, self.arguments = engine, ()
        self._job = engine.job(jobs.STEP, **arrays, last=observation)
        self._before = 0

    def run(self) -> bool:
        """Take the step; returns whether it was not taken, for the action is bad."""
        if not math.isfinite(self.actions.sum()) and not np.isfinite(self.actions).all():
            return True
        self._before = self._engine.unstable.item()
        self._engine.call(self._job)
        return False

    def infos(self) -> dict[str, Any]:
        """Return Gymnasium's infos of the step: whether MuJoCo had to reset the simulation."""
        return {"unstable": True} if self._engine.unstable.item() != self._before else {}


class MuJoCoRunner(Runner):
    """Lets a policy act in simulations; see `Runner`.

    Raises:
        TypeError, ValueError: they do not fit.
    """

    engine: MuJoCoEngine

    def __init__(self, engine: MuJoCoEngine, policy: Policy) -> None:
        super().__init__(engine, policy)
        code, sizes = policy.code(engine.dynamics), (engine.code.action_size, engine.rows)
        if code.act is None:  # a network takes observations of any size, with any value network
            code, sizes = code._replace(value="none"), (sizes[0], 0)
        if code.act is None and code.head is None:  # and gives actions of any size
            code, sizes = code._replace(draws=0), (0, 0)
        self._run = make_run(code, engine.scalar_type, *sizes)
        self._arrays = policy.arrays(engine.dynamics)
        self._policy, self.state_size = self._arrays.for_kernels(), self._arrays.state_size
        space: Any = engine.dynamics.action_space
        self._bounds = np.stack((space.low, space.high)).astype(np.float32)
        self._sums = np.zeros((engine.num_envs, 5))

    def collect(self, num_steps: int, records: Any) -> bool:
        """Take K steps and overwrite `records`; see `Runner.collect`."""
        recorded = Records(*records)._asdict()
        return self._take_steps(
            num_steps, {k: array for k, array in recorded.items() if array.size}
        )

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        if self._take_steps(num_steps, {}):
            self._refuse()
        sums: list[float] = self._sums.sum(axis=0).tolist()
        return sums

    def _take_steps(self, num_steps: int, records: Mapping[str, Array]) -> bool:
        """Take K steps, after the resets that are missing; whether a number was not finite."""
        engine = self.engine
        engine.start_episodes()
        self._sums.fill(0.0)
        carried = engine.carry(carrier_of(self.policy), self.state_size)
        self._policy.settings[MEMORY] = carried.ctypes.data
        job = engine.job(jobs.ROLLOUT, sums=self._sums, bounds=self._bounds, **records)
        job[jobs.NUM_STEPS], job[jobs.RECORD] = num_steps, bool(records)
        jobs.write_policy(job, self._policy)
        engine.call(job, self._run)
        return bool(self._sums[:, FAULTS].sum() != 0.0)

    def check(self, records: Records, num_steps: int) -> None:
        """Raise for the first number of a rollout that is not finite; see `Runner.check`."""
        check_rollout(self.engine, self.policy, records, num_steps)

    def _refuse(self) -> NoReturn:
        """Raise FloatingPointError for the first environment with a number that is not finite."""
        broken, engine = np.isnan(self._sums[:, FAULTS]), self.engine
        engine.finish(broken)
        if describe_fault(self.policy):
            refuse_policy(self.policy, "actions that are not finite")
        raise FloatingPointError(
            f"{engine.dynamics.id}: environment {np.argmax(broken)} had an observation, an action "
            f"or a reward that was not finite ({broken.sum()} of {engine.num_envs} environments): "
            "rlcpu.collect names the step"
        )
