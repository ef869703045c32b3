"""The engine of MuJoCo's tasks.

MuJoCo has the simulations' states and steps them on threads of its own, by `Simulations`; all else
that stays between two calls is in arrays of `MuJoCoEngine`. Compiled functions get these as an
`TaskMemory`, and what a call is about as a job (`rlcpu.envs.mujoco.job`).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.policies import Policy, mark_of, version_of
from rlcpu.envs.contract.unfit import describe_fault, refuse_policy
from rlcpu.envs.engine.base import Engine, Runner, TimeStep
from rlcpu.envs.engine.episode import FIELDS, PENDING, TOTAL, begin_of
from rlcpu.envs.engine.faults import check_rollout
from rlcpu.envs.engine.form import FAULTS, NUM_SUMS, Records
from rlcpu.envs.engine.frames import pack_policy
from rlcpu.envs.layout.values import check_layout
from rlcpu.envs.mujoco.batch import make_batch_function
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.job import FORWARD, RESTART, STEP, RolloutJob, StepJob, TaskMemory
from rlcpu.envs.mujoco.physics import TaskCode, make_physics, pack, structure
from rlcpu.envs.mujoco.render import MuJoCoRenderer
from rlcpu.envs.mujoco.simulations import Simulations
from rlcpu.envs.mujoco.varied import find_bad_draw, make_rows, split_rows
from rlcpu.kernels.machine.random import splitmix64
from rlcpu.kernels.machine.threads import default_num_threads

Array = npt.NDArray[Any]
#: Names in checkpoints of the numbers of an `Episode`.
_COUNTED = ["returns" if name == "total" else name for name in FIELDS]


class MuJoCoEngine(Engine):
    """N simulations of a task; see `Engine`.

    Attributes:
        code: the facts of the task that decide machine code.
        param_numbers: (num_params,) float64, the run-time numbers of its parameters.
        observation, measured: of the present states; these arrays and those below are described in
            `rlcpu.envs.mujoco.job.TaskMemory`.
        elapsed_steps, episodes, streams: of the running episodes.
        unstable, unstable_before: (N,) uint32, how often each simulation was unstable up to now,
            and up to the last step.
        model_rows, nominal_rows: the model's varied fields, as they are and as users set them.
        uniforms, applied_actions, step_rewards, step_ended: which compiled functions give each
            other.
    """

    has_infos = True
    renderer = MuJoCoRenderer
    dynamics: MuJoCoDynamics
    code: TaskCode

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._derive_from_dynamics()
        n, code, task = self.num_envs, self.code, self.dynamics
        self.observation = np.zeros((n, code.observation_size))
        self.measured = np.zeros((n, code.measure_size))
        self.elapsed_steps = np.full(n, PENDING, np.uint32)
        self.episodes = np.tile(begin_of(np.float64), (n, 1))  # see `TaskMemory`
        self.unstable = np.zeros(n, np.uint32)
        self.unstable_before = self.unstable.copy()
        self.streams = np.zeros((n, 4), np.uint64)  # see `rlcpu.envs.mujoco.physics.POLICY_KEY`
        self.uniforms = np.zeros((n, code.reset_draws))
        self.nominal_rows = make_rows(task.model, task.varied_fields, task.varied, n)
        self.model_rows = self.nominal_rows.copy()
        self.applied_actions = np.zeros((n, code.action_size), np.float32)
        self.step_rewards, self.step_ended = np.zeros(n), np.zeros((n, 2), np.uint8)

    def _derive_from_dynamics(self) -> None:
        """Set the attributes that follow from `dynamics` and are not pickled."""
        self._batch: Simulations | None = None
        self.code = structure(self.dynamics)
        self.param_numbers = pack(self.dynamics.params)
        self._run_steps = make_batch_function(None, self.scalar_type)
        self._task = make_physics(self.code)

    @property
    def batch(self) -> Simulations:
        """Return MuJoCo's memory and threads: made at first use, and anew in a forked child."""
        batch = self._batch
        if batch is None or batch.process != os.getpid():
            threads = min(self.num_threads or default_num_threads(), self.num_envs)
            expanded = self.dynamics.varied_fields.expanded
            self._batch = Simulations(self.dynamics.model, self.num_envs, threads, expanded)
            if batch is not None:
                self._batch.state[:] = batch.state
        return self._batch  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but kernels and threads: episodes and streams go on in a copy."""
        attributes = {**vars(self), "last_runner": None}
        for name in ("code", "param_numbers", "_run_steps", "_task", "_batch", "memory", "_job"):
            attributes.pop(name, None)  # a copy makes them anew
        states = {"mujoco_states": self.batch.state.copy(), "layout": self.dynamics.state}
        return {**attributes, **states}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set all attributes; raise ValueError if the task's states have another layout now."""
        mujoco_states, layout = state.pop("mujoco_states"), state.pop("layout")
        vars(self).update(state)
        check_layout(self.dynamics, layout)
        self._derive_from_dynamics()
        self.batch.state[:] = mujoco_states

    # ------------------------------------------------------------ calls

    @functools.cached_property
    def memory(self) -> TaskMemory:
        """Return the engine's arrays as compiled functions take them."""
        names = ("observation_size", "action_size", "measure_size", "reset_draws")
        arrays = (
            *("param_numbers", "observation", "measured", "episodes", "streams", "unstable"),
            *("uniforms", "model_rows", "nominal_rows", "applied_actions"),
            *("step_rewards", "step_ended"),
        )
        return TaskMemory(
            **{name: getattr(self.code, name) for name in names},
            **{name: getattr(self, name) for name in arrays},
            task=self._task,
            limit=self.limit,
            num_envs=self.num_envs,
            num_params=self.param_numbers.size,
            row_size=self.model_rows.shape[1],
            elapsed=self.elapsed_steps,
        )

    def job(self, **fields: Any) -> StepJob:
        """Return a job whose other fields than these are 0."""
        common: dict[str, Any] = {"memory": self.memory, "same_step": self.same_step}
        unused = dict.fromkeys(StepJob.fields, 0)
        job: StepJob = StepJob.of(real=self.scalar_type)(**{**unused, **common, **fields})
        return job

    @functools.cached_property
    def _job(self) -> StepJob:
        """Return the job of `step` and `restart`, which write the arrays of each call to it."""
        return self.job()

    def call(self, job: StepJob | RolloutJob, run: int | None = None, *, save: bool = True) -> None:
        """Run a job on MuJoCo's threads.

        Args:
            job: what to do.
            run: address of the compiled function; None for that of a `StepJob`.
            save: whether the simulations keep the states that it leaves.

        Raises:
            ValueError: `randomize` wrote numbers that no model can hold; all episodes end.
            RuntimeError: MuJoCo found an error in a simulation, whose episode ends.
        """
        has_failed = self.batch.apply(
            self._run_steps if run is None else run, job.address, save=save
        )
        if self.dynamics.randomize is not None:
            bad_draw = find_bad_draw(self.code.varied, self.model_rows)
            if bad_draw is not None:
                self.model_rows[:] = self.nominal_rows
                self.finish(np.ones(self.num_envs, np.bool_))
                i, fault = bad_draw
                raise ValueError(
                    f"{self.dynamics.id}: randomize wrote {fault}, in environment {i} of "
                    f"{self.num_envs}"
                )
        if has_failed:
            self._raise_errors()

    def _raise_errors(self) -> NoReturn:
        """End the episodes in which MuJoCo failed in the last call, and raise RuntimeError."""
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
        """Take one step; see `Engine.step`, and `call` for exceptions."""
        actions = self.convert(actions)
        if self.disabled:  # autoreset is: a finished episode raises ResetNeeded
            self.check_running()
        if not np.isfinite(actions).all():  # MuJoCo clips actions, but rewards see them unclipped
            actions = self.zero_waiting(actions)  # ValueError but for those that wait for a reset
        n, shape = self.num_envs, self.observation.shape
        observations, rewards = np.empty(shape, self.dtype), np.empty(n, self.dtype)
        flags, finals = np.empty((2, n), np.bool_), np.empty((0, 0), self.dtype)
        job: Any = self._job
        job.mode, job.actions, job.rewards, job.flags = STEP, actions, rewards, flags.view(np.uint8)
        job.last = observations
        if self.same_step:
            job.finals = finals = np.empty(shape, self.dtype)
        np.copyto(self.unstable_before, self.unstable)
        self.call(job)
        terminated, truncated = flags
        return TimeStep(observations.T, rewards, terminated, truncated, finals.T)

    def single_step(self) -> SingleTaskStep:
        """Return a step for an engine of one simulation, which uses the same arrays every time."""
        return SingleTaskStep(self)

    def infos(self) -> dict[str, Any]:
        """Return {"unstable": which simulations MuJoCo reset in the last step}, or {} for none."""
        unstable = self.unstable != self.unstable_before
        if not unstable.any():
            return {}
        return {"unstable": unstable, "_unstable": unstable.copy()}

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        job: Any = self._job
        job.mode, job.mask = RESTART, mask.view(np.uint8)
        job.last = np.empty(self.observation.shape, self.dtype)
        if params is not self.dynamics.params:
            job = job.replace(memory=self.memory.replace(param_numbers=pack(params)))
        self.call(job)

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
        """Overwrite MuJoCo's states, (N, nstate); finished episodes become running ones."""
        self.batch.state[:] = state
        self.resume()
        self.call(self.job(mode=FORWARD), save=False)  # observations and measures of the states

    def resume(self) -> None:
        """Make finished episodes running ones, which go on in their last states."""
        finished = self.finished()
        self.episodes[finished] = begin_of(np.float64)
        self.elapsed_steps[finished] = 0

    def state(self) -> dict[str, Array]:
        """Return the engine's arrays by name, which checkpoints keep; no copies."""
        varied = {"physics_of_models": self.model_rows} if self.model_rows.size else {}
        return {
            **varied,
            "physics": self.batch.state,
            "observation": self.observation,
            "measured": self.measured,
            "elapsed": self.elapsed_steps,
            **{name: self.episodes[:, k] for k, name in enumerate(_COUNTED)},
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
        """Return a copy of the returns so far of the running episodes, (N,)."""
        return self.episodes[:, TOTAL].copy()

    def get_params(self) -> dict[str, Array]:
        """Return copies of the model's fields that vary, (N, *shape) or (N,), by name."""
        fields = split_rows(self.dynamics.varied_fields, self.model_rows)
        return {name: rows.copy() for name, rows in fields.items()}

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        self.elapsed_steps[mask] = PENDING

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """Return the steps of the running episodes, (N,); `PENDING` where one has finished."""
        return self.elapsed_steps.copy()

    def start_streams(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start random streams anew: a key for policies, one for resets, and counters of 0."""
        policy_keys = splitmix64(seeds)
        with np.errstate(over="ignore"):
            reset_keys = splitmix64(policy_keys + np.uint64(1))
        zeros = np.zeros_like(policy_keys)
        streams = np.stack((policy_keys, reset_keys, zeros, zeros), axis=1)
        self.streams[mask] = streams[mask]


class SingleTaskStep:
    """A step of an engine of one simulation, which takes and returns the same arrays every time.

    Attributes:
        actions: (1, action_size) float32, which users overwrite before a step.
        rows: (rows, 1), the observation after the step.
        reward: (1,) of the step; terminated, truncated: (1,) bool.
        arguments: of `run`: none.
    """

    def __init__(self, engine: MuJoCoEngine) -> None:
        self.actions = np.zeros(engine.action_shape, np.float32)
        observation = np.zeros((1, engine.rows), engine.dtype)
        self.reward, flags = np.zeros(1, engine.dtype), np.zeros((2, 1), np.bool_)
        self.rows, (self.terminated, self.truncated) = observation.T, flags
        self._engine, self.arguments = engine, ()
        self._job = engine.job(
            mode=STEP,
            actions=self.actions,
            rewards=self.reward,
            flags=flags.view(np.uint8),
            last=observation,
        )
        self._unstable_before = 0

    def run(self) -> bool:
        """Take the step; return True, and take none, if the action is not finite."""
        # The sum is quick, but may overflow where all are finite.
        if not math.isfinite(self.actions.sum()) and not np.isfinite(self.actions).all():
            return True
        self._unstable_before = self._engine.unstable.item()
        self._engine.call(self._job)
        return False

    def infos(self) -> dict[str, Any]:
        """Return Gymnasium's infos of the step: whether MuJoCo had to reset the simulation."""
        return {"unstable": True} if self._engine.unstable.item() != self._unstable_before else {}


class MuJoCoRunner(Runner):
    """Lets a policy act in simulations; see `Runner`.

    Raises:
        TypeError, ValueError: the policy does not fit the task.
    """

    engine: MuJoCoEngine

    def __init__(self, engine: MuJoCoEngine, policy: Policy) -> None:
        super().__init__(engine, policy)
        self.version, code = version_of(policy), policy.code(engine.dynamics)
        action_size, observation_size = engine.code.action_size, engine.rows
        # One function serves all networks, which it finds by their addresses: facts of the policy
        # and sizes that it does not depend on are set to the same, so that the cache finds it.
        # `act` is None of a network, `head` of one whose outputs are the means of a Gaussian.
        if code.act is None:
            observation_size = 0
            if code.head is None:
                code, action_size = code._replace(value="none", draws=0), 0
        self._run = make_batch_function(code, engine.scalar_type, action_size, observation_size)
        arrays = policy.arrays(engine.dynamics)
        self.networks, self.state_size = arrays.networks(), arrays.state_size
        self._sums = np.zeros((engine.num_envs, NUM_SUMS))
        space: Any = engine.dynamics.action_space
        self._job: Any = RolloutJob.of(real=engine.scalar_type)(
            **dict.fromkeys(("num_steps", "records", *Records._fields), 0),  # written by each call
            memory=engine.memory,
            policy=pack_policy(arrays),
            action_size=engine.code.action_size,
            bounds=np.stack((space.low, space.high)).astype(np.float32),
            sums=self._sums,
        )

    def collect(self, rollout: Any) -> bool:
        """Take the steps of a rollout; see `Runner.collect`."""
        for name, array in rollout.records._asdict().items():
            # An address, so that the job keeps no rollout's memory alive.
            setattr(self._job, name, array.__array_interface__["data"][0])
        return self._take_steps(rollout.num_steps, records=True)

    def simulate(self, num_steps: int) -> Sequence[float]:
        """Take K steps and return sums; see `Runner.simulate`."""
        if self._take_steps(num_steps, records=False):
            self._raise_fault()
        sums: list[float] = self._sums.sum(axis=0).tolist()
        return sums

    def _take_steps(self, num_steps: int, records: bool) -> bool:
        """Take K steps, after missing resets, and return whether a number was not finite.

        `records` tells whether they are recorded to the arrays of the job.
        """
        engine, job = self.engine, self._job
        engine.start_episodes()
        self._sums.fill(0.0)
        # The policy's recurrent states: as its last call left them, or zeros.
        job.policy.states = engine.carry(mark_of(self.policy), self.state_size)
        job.num_steps, job.records = num_steps, records
        engine.call(job, self._run)
        return bool(self._sums[:, FAULTS].sum() != 0.0)

    def check(self, records: Records, num_steps: int) -> None:
        """Raise for the first number of a rollout that is not finite; see `Runner.check`."""
        check_rollout(self.engine, self.policy, records, num_steps)

    def _raise_fault(self) -> NoReturn:
        """Raise FloatingPointError for the first environment with a number that is not finite.

        Episodes of all environments that had such numbers end.
        """
        broken, engine = np.isnan(self._sums[:, FAULTS]), self.engine
        engine.finish(broken)
        if describe_fault(self.policy):
            refuse_policy(self.policy, "actions that are not finite")
        raise FloatingPointError(
            f"{engine.dynamics.id}: environment {np.argmax(broken)} had an observation, an action "
            f"or a reward that was not finite ({broken.sum()} of {engine.num_envs} environments): "
            "rlcpu.collect names the step"
        )
