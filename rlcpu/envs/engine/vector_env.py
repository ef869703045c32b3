"""The Gymnasium vector environment over any `Dynamics`."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rlcpu import backends
from rlcpu.envs.contract.arguments import (
    check_dtype,
    check_mode,
    check_varied,
    convert_state,
    params_of_reset,
    reset_mask,
)
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.engine import engine_of, engines
from rlcpu.envs.engine.base import Engine, TimeStep
from rlcpu.envs.engine.carried import check_carried
from rlcpu.envs.engine.episode import PENDING
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.layout.values import States, with_fields
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.machine.threads import check_num_threads

Array = npt.NDArray[Any]


class Parameters:
    """Base of environments that have their parameters and constants as read-only attributes.

    Gymnasium's environments have them as attributes: `env.unwrapped.gravity`, `x_threshold`.
    Parameters that vary are read from the engine each time.
    """

    dynamics: Dynamics
    _read_only: Collection[str] = ()

    def _set_parameter_attributes(self) -> None:
        """Set the attributes, at the end of `__init__`; afterwards they are read-only.

        Constants and parameters get none where the class has an attribute of that name.
        """
        self._varying = frozenset((*self.dynamics.varied, *self.dynamics.randomized))
        values = {**self.dynamics.constants(), **self.dynamics.params._asdict()}
        read_only = (values.keys() | self._varying) - set(dir(self))
        for name in read_only - self._varying:  # `__getattr__` reads the others
            setattr(self, name, values[name])
        self._read_only = read_only

    @property
    def params(self) -> Any:
        """Return the present parameters, by the names that they have as attributes."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # type checkers shall find misspelt names

        def __setattr__(self, name, value):
            if name in self._read_only:
                raise AttributeError(
                    f"{name} cannot be set: make another environment with {name}={value!r}"
                )
            super().__setattr__(name, value)

        def __getattr__(self, name):
            if name in vars(self).get("_varying", ()):
                return getattr(self.params, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _describe(self, **settings: Any) -> str:
        """Return a repr: the environment's id, settings, and parameters that are no defaults."""
        params = self.dynamics.params
        defaults = params._field_defaults
        changed = {k: v for k, v in params._asdict().items() if defaults.get(k) != v}
        changed |= dict.fromkeys(self.dynamics.varied, "varied")
        changed |= dict.fromkeys(self.dynamics.randomized, "randomized")
        items = [f"{name}={value}" for name, value in {**settings, **changed}.items()]
        return f"{type(self).__name__}({', '.join([self.dynamics.id, *items])})"


class VectorEnv(Parameters, GymnasiumVectorEnv[Array, Array, Array]):
    """N copies of one environment, stepped together by one kernel.

    It behaves as `gymnasium.vector.SyncVectorEnv` of the original environment does: the three
    autoreset modes, `reset(seed=..., options=...)`, spaces, metadata and infos are the same.
    Parameters of the environment are attributes, such as `env.gravity`, that can only be read.
    `copy.deepcopy` and `pickle` keep everything, and the copy goes on independently.
    Observations are float32, (num_envs, observation_size), stored environment by environment along
    the last axis of memory (Fortran order), as Gymnasium's own CartPoleVectorEnv returns them;
    every returned array is new. Observations of a `Dict` are a dict of arrays, (num_envs, ...) each
    of its own dtype, which share one memory. Where the dynamics have an `action_mask`, the infos of
    `reset` and `step` hold "action_mask", (num_envs, num_actions) int8: 1 for each action that is
    allowed in the state that the observation shows; of a `MultiDiscrete` for each choice of its
    first number, then of the next ones (numpy.split takes them apart).

    With `device="cuda"` arrays are CuPy's, on an NVIDIA GPU, and

    * `step` takes actions on the device, of any library that has DLPack, or on the host, and waits
      for the device to have checked them;
    * in same-step mode `final_obs` is one array (num_envs, observation_size) of all environments,
      of which those of `_final_obs` have ended;
    * the environments cannot be copied or pickled.

    With the same seed, both draw the same random numbers. float64 repeats the CPU's arithmetic but
    for libdevice's sine, cosine and power, which are within 2 ulp of libm's; one float32 step errs
    as on the CPU.

    Args:
        dynamics: the environment.
        num_envs: number of copies, N.
        dtype: "float32" is fast; "float64" repeats Gymnasium's arithmetic bit for bit.
        planes: how observations of boards are delivered: "uint8" or "float32", (num_envs, planes,
            rows, columns) of zeros and ones (`numpy.moveaxis(observations, 1, -1)` is the view with
            the channels last), or "bits", (num_envs, planes, 4) uint32, in which bit `cell % 32` of
            word `cell // 32` is a cell.
        autoreset_mode: when a finished episode starts anew, see `gymnasium.vector.AutoresetMode`.
        max_episode_steps: steps after which an episode is truncated; None takes the dynamics' own.
        num_threads: threads to use for large batches; None takes all of numba's.
        render_mode: "rgb_array" or None.
        device: "cpu" or "cuda", where the environments run and their arrays are.

    Attributes:
        dynamics: the environment, with the parameters that were given.
        dtype: NumPy dtype of state and rewards.
        autoreset_mode, num_threads, device: see above.
        view: how observations are delivered.
        engine: what runs the environments, see `rlcpu.envs.engine.base.Engine`.

    Raises:
        TypeError, ValueError: for a bad argument, with its name and value.
        rlcpu.cuda.CudaUnavailableError: there is no such device, with what to install.
        rlcpu.cuda.CudaMemoryError: its memory is too small.
    """

    engine: Engine

    def __init__(
        self,
        dynamics: Dynamics,
        num_envs: int = 1,
        *,
        dtype: str | type = "float32",
        planes: str = "uint8",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        num_threads: int | None = None,
        render_mode: str | None = None,
        device: str = "cpu",
    ) -> None:
        if not isinstance(dynamics, Dynamics):
            raise TypeError(f"dynamics={dynamics!r}: expected a Dynamics")
        engine, self.device, self.dynamics = find_engine(device, dynamics), device, dynamics
        # Engines count environments and steps in 32 bits, of which `PENDING` is no count.
        self.num_envs = check_count("num_envs", num_envs, limit=PENDING)
        check_varied(dynamics, self.num_envs)
        self.dtype = np.dtype(check_dtype(dtype))
        self.autoreset_mode = check_mode(autoreset_mode)
        limit = max_episode_steps if max_episode_steps is not None else dynamics.max_episode_steps
        if limit is not None:
            limit = check_count("max_episode_steps", limit, limit=PENDING)
        self.max_episode_steps = limit
        self.num_threads = check_num_threads(num_threads)
        # Copies: seeding the spaces of one environment must not change another's samples.
        view = ObservationView.of(dynamics, planes, self.dtype)
        self.view = view._replace(num_threads=self.num_threads)
        self.single_observation_space = self.view.space(dynamics.observed_as(self.dtype))
        self.single_action_space = copy.deepcopy(dynamics.action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(dynamics.action_space, self.num_envs)
        self._renderer = engine.renderer(dynamics, render_mode)
        self.render_mode = render_mode
        self.metadata = {**self._renderer.metadata, "autoreset_mode": self.autoreset_mode}
        self.engine = engine(
            dynamics,
            self.num_envs,
            dtype=self.dtype,
            view=self.view,
            autoreset_mode=self.autoreset_mode,
            max_episode_steps=limit,
            num_threads=self.num_threads,
        )
        # Whether rows of the engine are observations as they are, but for the order of axes.
        self._is_plain = (
            self.view.kind == "floats" and len(self.view.size) == 1 and not self.view.num_masked
        )
        self._has_infos = engine.has_infos or self.engine.same_step or self.view.num_masked > 0
        self._set_parameter_attributes()

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes; the engine leaves kernels out.

        Raises:
            TypeError: the environments live on a device.
        """
        if self.device != "cpu":
            raise TypeError(f"{self!r} cannot be copied or pickled: its memory is the device's")
        return dict(vars(self))

    # ------------------------------------------------------------ reset

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: an int seeds environment i with seed + i; a list gives one seed (or None, which
                keeps the stream) per environment; None goes on with the streams as they are.
            options: "reset_mask", a bool array (num_envs,) of the environments to reset, and the
                bounds that Gymnasium's environment of the same name takes, such as "low", "high".

        Returns:
            Observations (num_envs, observation_size) float32, and the infos: action masks, if the
            environment has them.

        Raises:
            TypeError, ValueError: for a bad seed or option; nothing has changed then. Or an action
                mask allows nothing.
            gymnasium.error.ResetNeeded: the first reset leaves environments out.
        """
        mask = reset_mask(options, self.num_envs)
        self.engine.reset(mask, seed, params_of_reset(self.dynamics, options))
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        rows = self.engine.observe()
        return self.view.show(rows), self._mask_infos(rows)

    # ------------------------------------------------------------ step

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Take one step in every environment.

        Args:
            actions: (num_envs,) integers of a `Discrete`, (num_envs, action_size) integers of a
                `MultiDiscrete` or numbers of a `Box`.

        Returns:
            Observations (num_envs, observation_size) float32, rewards (num_envs,) of the
            environment's dtype, terminated and truncated (num_envs,) bool, and the infos, which
            hold "final_obs" and "final_info" in same-step mode, and action masks.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`, or, with autoreset disabled, if
                an environment has finished.
            TypeError, ValueError: actions of another dtype, shape or range, or NaN; nothing has
                been stepped then. In next-step mode, an environment that has ended takes any
                number: its next step is its reset. After a step, ValueError tells of an action mask
                that allows nothing.
        """
        engine = self.engine
        if not engine.ready:
            raise ResetNeeded("call reset() before step(): no environment has a state yet")
        step = engine.step(actions)
        if self.render_mode:
            self._renderer.remember(engine.to_host(actions))
        observations = step.observations.T if self._is_plain else self.view.show(step.observations)
        infos = self._infos(step) if self._has_infos else {}
        return observations, step.rewards, step.terminated, step.truncated, infos

    def _infos(self, step: TimeStep) -> dict[str, Any]:
        """Return Gymnasium's infos of a step."""
        infos, ended = self.engine.infos(), step.terminated | step.truncated
        if self.engine.same_step:
            infos |= self._final_infos(step, ended)
            return infos | self._mask_infos(step.observations)
        return infos | self._mask_infos(step.observations, ended)

    def _final_infos(self, step: TimeStep, ended: Any) -> dict[str, Any]:
        """Return the infos of same-step autoreset: last observations and masks of ended episodes.

        `ended` is (N,) bool. As in Gymnasium, an entry "_x" says where "x" holds something.
        """
        final_obs = self.engine.final_observations(step, ended)
        if final_obs is None:
            return {}
        info: dict[str, Any] = {}
        if self.view.num_masked:
            masks = self.view.masks(step.finals.T) & ended[:, None]
            info = {"action_mask": masks.view(np.int8), "_action_mask": ended.copy()}
        infos = {"final_obs": final_obs, "_final_obs": ended}
        return {**infos, "final_info": info, "_final_info": ended.copy()}

    def _mask_infos(self, rows: Any, ended: Any = None) -> dict[str, Any]:
        """Return the infos of the action masks in rows of observations, {} without any.

        `ended`, (N,) bool, are environments in which nobody acts, so that a mask may allow nothing.
        """
        masks = self.engine.masks(rows, ended)
        if masks is None:
            return {}
        return {"action_mask": masks, "_action_mask": np.ones(self.num_envs, np.bool_)}

    def action_masks(self) -> Array | None:
        """Return action masks of the present states, as the infos of `step` hold them, or None.

        Raises ValueError if one allows nothing.
        """
        return self.engine.masks(self.engine.observe()) if self.view.num_masked else None

    def compute_reward(self, achieved_goal: Array, desired_goal: Array) -> Any:
        """Return the rewards of goals that may be other than were pursued, for hindsight replay.

        Args:
            achieved_goal: (n, *shape), as buffers store the part "achieved_goal" of observations,
                see `rlcpu.envs.rollout.transitions.example_of`.
            desired_goal: the same of the part "desired_goal".

        Returns:
            (n,) float32; or these and (n,) bool, whether such a step ends an episode, if the
            environment's `compute_reward` tells.

        Raises:
            TypeError: the environment has no goals, or its `compute_reward` reads params that
                differ between environments or episodes.
        """
        from rlcpu.envs.engine.goals import reward_of_goals  # with compilers, of hindsight alone

        return reward_of_goals(self.dynamics)(achieved_goal, desired_goal)

    # ------------------------------------------------------------ state

    def observe(self) -> Array:
        """Return the observations of the present states, as `step` returns them."""
        return self.view.show(self.engine.observe())

    @property
    def state(self) -> Any:
        """Return a copy of the states, (num_envs, state_size); assign an array to set them.

        Where the state is a NamedTuple, its fields are attributes: see `States`. Setting the state
        of a finished environment starts a new episode there.

        Raises:
            gymnasium.error.ResetNeeded: read before the first reset.
            TypeError, ValueError: set to something of another shape, or not finite.
        """
        if not self.engine.ready:
            raise ResetNeeded("state is unset: call reset() or assign a state first")
        if self.dynamics.state.is_plain:
            return self.engine.get_state()
        return States(self.dynamics.state, self._get_state, self.engine.set_state)

    @state.setter
    def state(self, state: Any) -> None:
        engine, layout = self.engine, self.dynamics.state
        if not (layout.is_plain or hasattr(state, "_asdict")):
            raise TypeError(
                f"state={state!r}: expected a {layout.value_class.__name__} of arrays, or another "
                "env.state"
            )
        if layout.is_plain:
            shape = self.num_envs, self.dynamics.state_size
            values = convert_state(engine.to_host(state), shape, engine.state_dtype)
        if not engine.ready:  # after the checks: bad states change nothing
            self.reset()
        if not layout.is_plain:
            values = with_fields(layout, self._get_state(), state._asdict())
        engine.set_state(values)

    @property
    def params(self) -> Any:
        """Return a copy of the present parameters, a NamedTuple.

        Those that vary are arrays (num_envs,) of the environment's dtype: numbers that differ from
        environment to environment, and those that `randomize` drew at the last reset. All others
        are one number, True or False. Each is an attribute as well: `env.gravity`.

        Of a MuJoCo task, the fields of its model that vary come last, such as `body_mass`,
        (num_envs, nbody) float64.
        """
        dynamics = self.dynamics
        return dynamics.shown_params(self.engine.get_params()) if self._varying else dynamics.params

    def _get_state(self) -> Array:
        """Return a copy of the states on the host, (num_envs, rows of a state)."""
        return np.array(self.engine.to_host(self.engine.get_state()))

    def snapshot(self) -> dict[str, Array]:
        """Return states, episodes and random streams: all that the next steps depend on.

        `restore` takes it back, here or in another environment of as many copies, in this process
        or in one to come.

        Returns:
            Arrays by name, copies, which `np.savez` writes.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            TypeError: the environments live on a device.
        """
        if not self.engine.ready:
            raise ResetNeeded("there is nothing to keep: call reset() or assign a state first")
        return {name: array.copy() for name, array in self._arrays("snapshot").items()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Go on from where `snapshot` was taken: its arrays are copied into those of the engine.

        Raises:
            TypeError, ValueError: arrays of other names, dtypes or shapes, as those of another kind
                or number of environments; nothing has changed then.
        """
        arrays = {k: x for k, x in self._arrays("restore").items() if k != "carried"}
        saved = dict(snapshot) if isinstance(snapshot, Mapping) else {}
        # Recurrent states, which are there if a policy with memory acted, and of any size.
        carried = {"carried": saved.pop("carried")} if "carried" in saved else {}
        if carried:
            check_carried(carried["carried"], self.num_envs)
        if saved.keys() != arrays.keys():
            names = list(saved) if isinstance(snapshot, Mapping) else type(snapshot).__name__
            raise TypeError(f"snapshot: expected arrays named {', '.join(arrays)}, got {names}")
        for name, array in arrays.items():
            part = saved[name]
            if not isinstance(part, np.ndarray) or part.dtype != array.dtype:
                kind = getattr(part, "dtype", type(part).__name__)
                raise TypeError(f"snapshot[{name!r}] is of {kind}: expected {array.dtype}")
            if part.shape != array.shape:
                raise ValueError(
                    f"snapshot[{name!r}] has shape {part.shape}: expected {array.shape}"
                )
        for name, array in arrays.items():
            array[...] = saved[name]
        self.engine.put_carried(carried)
        self.engine.mark_ready()

    def _arrays(self, name: str) -> dict[str, Array]:
        """Return the engine's arrays by name; `name` is that of the method, for errors."""
        if self.device != "cpu":
            raise TypeError(f"{name}: the memory of {self!r} is the device's")
        return self.engine.state()

    # ------------------------------------------------------------ the rest of Gymnasium's contract

    def render(self) -> tuple[Array, ...] | None:
        """Draw one RGB picture (height, width, 3) uint8 per environment; None without a mode."""
        states = self._get_state()
        return self._renderer.render(states, self.engine.params_of_each())

    def close_extras(self, **kwargs: Any) -> None:
        """Close the renderer."""
        if hasattr(self, "_renderer"):  # Gymnasium 1.1's __del__ closes what was never made
            self._renderer.close()

    def __repr__(self) -> str:
        settings = {"num_envs": self.num_envs, "dtype": self.dtype.name}
        if self.device != "cpu":
            settings["device"] = self.device
        return self._describe(**settings, autoreset_mode=self.autoreset_mode.value)


def find_engine(device: str, dynamics: Dynamics) -> type[Engine]:
    """Return the class of the engine that runs an environment on a device.

    Raises ValueError for other engines than our kernels on a device, and what `rlcpu.backends.find`
    raises.
    """
    if isinstance(device, str) and device == "cpu":  # not an array of names
        engine: type[Engine] = engine_of(dynamics)
        return engine
    if not dynamics.runs_in_kernels:
        raise ValueError(f'device={device!r}: {dynamics.id} runs on the "cpu" alone')
    cuda: type[Engine] = backends.find(device, "engine").CudaEngine
    return cuda


def _find_own_engine(dynamics: Dynamics) -> Any:
    """Return the class of the engine of our own kernels for an environment, by its states."""
    if dynamics.has_arrays:
        from rlcpu.envs.engine.array_engine import ArrayEngine  # not with `import rlcpu`

        return ArrayEngine
    from rlcpu.envs.engine.lanes import LaneEngine  # not with `import rlcpu`

    return LaneEngine


engines[Dynamics] = _find_own_engine
