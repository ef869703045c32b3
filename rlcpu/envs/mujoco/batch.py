"""A batch of MuJoCo simulations: its memory, and what `VectorEnv` and `collect` ask for.

MuJoCo keeps the simulations' states and runs them on threads of its own; everything else that they
keep between two calls is in arrays of this module.
"""

from __future__ import annotations

import copy
import ctypes
import os
import weakref
from collections.abc import Mapping
from typing import Any, NoReturn

import mujoco
import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.batch import asarray, empty, final_observations, to_host
from rlcpu.envs.engine.faults import check_rollout
from rlcpu.envs.engine.lane import PENDING
from rlcpu.envs.engine.rollout import FAULTS, Records
from rlcpu.envs.mujoco import job as jobs
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.lane import make_run
from rlcpu.envs.mujoco.library import INTEGRATION, library
from rlcpu.envs.mujoco.physics import Structure, make_physics, pack, structure
from rlcpu.envs.mujoco.render import Renderer
from rlcpu.envs.mujoco.varied import find_bad_draw, rows_of, split
from rlcpu.envs.networks import describe_fault, refuse_policy
from rlcpu.envs.policies import Policy
from rlcpu.envs.results import Form
from rlcpu.kernels.random import splitmix64
from rlcpu.kernels.threads import default_num_threads

__all__ = [
    "Renderer", "allocate", "asarray", "empty", "final_observations", "pack", "structure", "to_host"
]  # fmt: skip

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


class Batch:
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
        """MuJoCo's messages of the last call, by simulation."""
        failed = np.flatnonzero(np.ctypeslib.as_array(self._status))
        return {int(i): library().mjb_error(self.address, int(i)).decode() for i in failed}


def _delete(address: int, process: int) -> None:
    """Free a batch, unless it is a parent's: its threads are not here, and would be waited for."""
    if os.getpid() == process:
        library().mjb_deleteBatch(address)


class Memory:
    """State, random streams and episode clocks of N simulations; see `rlcpu.envs.mujoco.job`."""

    def __init__(
        self, dynamics: MuJoCoDynamics, code: Structure, num_envs: int, num_threads: int
    ) -> None:
        n = self.num_envs = num_envs
        self._model, self._num_threads = dynamics.model, num_threads
        self._varied = dynamics.varied_fields
        self.layout = dynamics.state
        self.observation = np.zeros((n, code.observation_size))
        self.measured = np.zeros((n, code.measure_size))
        self.elapsed_steps = np.full(n, PENDING, np.uint32)
        self.returns, self.unstable = np.zeros(n), np.zeros(n, np.uint32)
        self.counted = self.unstable.copy()
        self.streams = np.zeros((n, 4), np.uint64)
        self.uniforms = np.zeros((n, code.reset_draws))
        self.nominal = rows_of(dynamics.model, dynamics.varied_fields, dynamics.varied, n)
        self.physics = self.nominal.copy()
        self.applied = np.zeros((n, code.action_size), np.float32)
        self.gained, self.ended = np.zeros(n), np.zeros((n, 2), np.uint8)
        self._batch: Batch | None = None
        self.job: Array | None = None  # what `_kept_job` made

    @property
    def batch(self) -> Batch:
        """MuJoCo's part, made anew in a forked child, which lacks the threads of its parent's."""
        held = self._batch
        if held is None or held.process != os.getpid():
            self._batch = Batch(
                self._model, self.num_envs, self._num_threads, self._varied.expanded
            )
            if held is not None:
                self._batch.state[:] = held.state
        return self._batch  # type: ignore[return-value]

    def get_params(self) -> dict[str, Array]:
        """Copy the model's numbers that vary, (N, *shape of the field) or (N,) of one number."""
        return {name: rows.copy() for name, rows in split(self._varied, self.physics).items()}

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
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_batch": self.batch.state.copy(), "job": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _batch=None)
        self.batch.state[:] = state["_batch"]

    def get_state(self) -> Array:
        """(N, nstate), a copy."""
        return self.batch.state.copy()

    def set_state(self, state: Array) -> None:
        """Copy (N, nstate) in; finished episodes become running ones."""
        self.batch.state[:] = state
        finished = self.finished()
        self.returns[finished] = 0.0
        self.elapsed_steps[finished] = 0

    def take(self, part: slice) -> dict[str, Array]:
        """Copy states, streams and clocks of some environments, for `put`."""
        return {name: array[part].copy() for name, array in self.state().items()}

    def put(self, part: slice, taken: Mapping[str, Array]) -> None:
        """Go on in some environments as the memory would have that this was taken from."""
        for name, array in self.state().items():
            array[part] = taken[name]

    def get_returns(self) -> Array:
        """(N,) returns of the running episodes so far, a copy."""
        return self.returns.copy()

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        self.elapsed_steps[mask] = PENDING

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """(N,) steps of the running episodes; `PENDING` where one has finished."""
        return self.elapsed_steps.copy()

    def finished(self) -> npt.NDArray[np.bool_]:
        """(N,) which episodes wait for their reset."""
        return self.elapsed_steps == PENDING

    def seed(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the streams of the masked environments anew, from one seed each."""
        policy = splitmix64(seeds)
        with np.errstate(over="ignore"):
            reset = splitmix64(policy + np.uint64(1))
        none = np.zeros_like(policy)
        fresh = np.stack((policy, reset, none, none), axis=1)
        self.streams[mask] = fresh[mask]


# ---------------------------------------------------------------- calls


def _job(env: Any, mode: int, **arrays: Any) -> Array:
    """Return the arguments of a call; see `rlcpu.envs.mujoco.job`."""
    memory = env.memory
    if memory.job is None:
        memory.job = _kept_job(env)
    job: Array = memory.job.copy()
    job[jobs.MODE] = mode
    for name, array in arrays.items():
        job[jobs.place_of(name)] = array.__array_interface__["data"][0]
    if "numbers" in arrays:
        job[jobs.NUMBERS] = arrays["numbers"].size
    return job


def _kept_job(env: Any) -> Array:
    """Return the arguments that are the same in every call: sizes, and the memory's arrays."""
    job, memory, code = np.zeros(jobs.JOB_SIZE, np.int64), env.memory, env.code
    kept = {
        "observation": memory.observation, "measured": memory.measured,
        "elapsed": memory.elapsed_steps, "returns": memory.returns, "streams": memory.streams,
        "unstable": memory.unstable, "uniforms": memory.uniforms, "physics": memory.physics,
        "nominal": memory.nominal, "applied": memory.applied,
        "gained": memory.gained, "ended": memory.ended, "numbers": env.numbers,
    }  # fmt: skip
    job[: jobs.HEADER] = (
        *(0, 1, env.num_envs, env.max_episode_steps or PENDING, env._same_step, 0),
        *(code.observation_size, code.action_size, code.measure_size, code.reset_draws),
        *(env.numbers.size, env._kernels[1], memory.physics.shape[1]),
    )
    for name, array in kept.items():
        job[jobs.place_of(name)] = array.ctypes.data
    return job


def _call(env: Any, run: int, job: Array, *, save: bool = True) -> None:
    """Run a job.

    Raises:
        ValueError: `randomize` wrote numbers that no model can hold; all episodes end.
        RuntimeError: MuJoCo found an error in a simulation, whose episode ends.
    """
    failed, memory = env.memory.batch.apply(run, job, save=save), env.memory
    if env.dynamics.randomize is not None and (
        bad := find_bad_draw(env.code.varied, memory.physics)
    ):
        memory.physics[:] = memory.nominal
        memory.finish(np.ones(env.num_envs, np.bool_))
        place = f"environment {bad[0]} of {env.num_envs}"
        raise ValueError(f"{env.dynamics.id}: randomize wrote {bad[1]}, in {place}")
    if failed:
        _refuse(env)


def _refuse(env: Any) -> NoReturn:
    """Raise RuntimeError for what MuJoCo said of the last call."""
    errors = env.memory.batch.errors()
    failed = np.zeros(env.num_envs, np.bool_)
    failed[list(errors)] = True
    env.memory.finish(failed)
    first, message = next(iter(errors.items()))
    raise RuntimeError(
        f"{env.dynamics.id}: MuJoCo failed in environment {first} ({len(errors)} of "
        f"{env.num_envs} environments): {message}"
    )


def allocate(env: Any, limit: int) -> None:
    """Give the environments their memory, and find their kernels."""
    threads = min(env.num_threads or default_num_threads(), env.num_envs)
    env.memory = Memory(env.dynamics, env.code, env.num_envs, threads)
    find_kernels(env)


def find_kernels(env: Any) -> None:
    """Give the environments their kernel and numbers, which copies of them find anew."""
    env.numbers = pack(env.dynamics.params, env.scalar_type)
    env.memory.job = None
    env._kernels = make_run(None, env.scalar_type), make_physics(env.code)


def step(env: Any, actions: Array) -> tuple[Any, ...] | None:
    """Observations, rewards, terminated, truncated and, in same-step mode, what was reached.

    Returns:
        None if nothing was stepped: an action is bad.

    Raises:
        gymnasium.error.ResetNeeded: an environment has finished while autoreset is disabled.
        RuntimeError: see `_call`.
    """
    if env._disabled:
        env.check_running()
    if not np.isfinite(actions).all():  # MuJoCo clips them, but rewards are of what was given
        return None
    n, shape = env.num_envs, env.memory.observation.shape
    observations, rewards = np.empty(shape, env.dtype), np.empty(n, env.dtype)
    flags, finals = np.empty((2, n), np.bool_), _NO_FINALS
    wanted = {"actions": actions, "rewards": rewards, "flags": flags, "last": observations}
    if env._same_step:
        wanted["finals"] = finals = np.empty(shape, env.dtype)
    np.copyto(env.memory.counted, env.memory.unstable)
    _call(env, env._kernels[0], _job(env, jobs.STEP, **wanted))
    return observations.T, rewards, flags[0], flags[1], finals.T


def infos(env: Any) -> dict[str, Any]:
    """Infos of the last step: "unstable", of the simulations that MuJoCo had to reset, if any."""
    unstable = env.memory.unstable != env.memory.counted
    if not unstable.any():
        return {}
    return {"unstable": unstable, "_unstable": unstable.copy()}


def restart(env: Any, mask: npt.NDArray[np.bool_], numbers: Array) -> None:
    """Give the masked environments new states, drawn with the run-time params `numbers`."""
    last = np.empty(env.memory.observation.shape, env.dtype)
    _call(env, env._kernels[0], _job(env, jobs.RESTART, mask=mask, numbers=numbers, last=last))


def observe(env: Any) -> Array:
    """Observations of the present states, (observation_size, num_envs)."""
    observations: Array = env.memory.observation.astype(env.dtype).T
    return observations


def refresh(env: Any) -> None:
    """Compute what derives from states that were set."""
    _call(env, env._kernels[0], _job(env, jobs.FORWARD), save=False)


# ---------------------------------------------------------------- collect and simulate


class Prepared:
    """An environment and a policy that fit each other; see `rlcpu.envs.collect.Prepared`.

    Raises:
        TypeError, ValueError: they do not fit.
    """

    collect_kernels, simulate_kernels = True, False

    def __init__(self, env: Any, policy: Policy) -> None:
        code, sizes = policy.code(env.dynamics), (env.code.action_size, env.code.observation_size)
        if code.act is None:  # a network takes observations of any size, with any value network
            code, sizes = code._replace(value="none"), (sizes[0], 0)
        if code.act is None and code.head is None:  # and gives actions of any size
            code, sizes = code._replace(draws=0), (0, 0)
        self._run = make_run(code, env.scalar_type, *sizes)
        self._arrays = policy.arrays(env.dynamics)
        self._policy = self._arrays.for_kernels()
        space = env.single_action_space
        self._bounds = np.stack((space.low, space.high)).astype(np.float32)
        self.form = Form.of(env)
        self.sums = np.zeros((env.num_envs + 1, 5))

    def serves(self, env: Any, policy: Policy) -> bool:
        """Tell whether another call may use it: a policy's numbers are looked up in each."""
        return False

    def run(self, env: Any, record: bool, num_steps: int, outputs: Any) -> bool:
        """Take K steps, after the resets that are missing; whether a number was not finite."""
        env.start_episodes()
        self.sums.fill(0.0)
        arrays = {"sums": self.sums, "bounds": self._bounds}
        if record:
            recorded = Records(*outputs)._asdict()
            arrays |= {name: array for name, array in recorded.items() if array.size}
        job = _job(env, jobs.ROLLOUT, **arrays)
        job[jobs.NUM_STEPS], job[jobs.RECORD] = num_steps, record
        jobs.write_policy(job, self._policy)
        _call(env, self._run, job)
        np.sum(self.sums[:-1], axis=0, out=self.sums[-1])
        return bool(self.sums[-1, FAULTS] != 0.0)

    def check(self, env: Any, policy: Policy, rollout: Any) -> None:
        """Raise FloatingPointError for the first number of a rollout that is not finite."""
        check_rollout(env, policy, rollout)

    def check_sums(self, env: Any, policy: Policy) -> None:
        """Raise FloatingPointError for the first environment with a number that is not finite."""
        broken = np.isnan(self.sums[:-1, FAULTS])
        env.memory.finish(broken)
        if describe_fault(policy):
            refuse_policy(policy, "actions that are not finite")
        raise FloatingPointError(
            f"{env.dynamics.id}: environment {np.argmax(broken)} had an observation, an action or "
            f"a reward that was not finite ({broken.sum()} of {env.num_envs} environments): "
            "rlcpu.collect names the step"
        )
