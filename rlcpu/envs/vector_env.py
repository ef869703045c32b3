"""The Gymnasium vector environment over any `Dynamics`."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rlcpu import backends
from rlcpu.envs.arguments import (
    check_actions,
    check_dtype,
    check_mode,
    check_varied,
    convert_actions,
    convert_state,
    describe_bad_actions,
    find_bad_actions,
    reset_bounds,
    reset_mask,
)
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine import batch, records
from rlcpu.envs.engine.lane import PENDING, structure
from rlcpu.envs.engine.layout import States, describe
from rlcpu.envs.engine.masks import mask_rows, write_masks
from rlcpu.envs.engine.observations import View
from rlcpu.envs.render import Renderer
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.random import stream_seeds
from rlcpu.kernels.threads import check_num_threads

Array = npt.NDArray[Any]


class Parameters:
    """Parameters of `dynamics`, and constants of its module, as attributes that can only be read.

    Gymnasium's environments have them as attributes: `env.unwrapped.gravity`, `x_threshold`.
    """

    dynamics: Dynamics
    _read_only: Collection[str] = ()

    def _show_parameters(self) -> None:
        """Return the last line of `__init__`."""
        is_ours = self.dynamics.engine is None
        constants = self.dynamics.step.__globals__.items() if is_ours else ()
        numbers = {k.lower(): v for k, v in constants if k.isupper() and type(v) in (int, float)}
        self._varying = frozenset((*self.dynamics.varied, *self.dynamics.randomized))
        known = {**dict.fromkeys(self._varying), **numbers, **self.dynamics.params._asdict()}
        read_only = known.keys() - set(dir(self))
        for name in read_only - self._varying:
            setattr(self, name, known[name])
        self._read_only = read_only

    @property
    def params(self) -> Any:
        """The present parameters, under the names that they have as attributes of their own."""
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
        """Return the class, the environment, settings, and parameters that are not the defaults."""
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
    every returned array is new. Where the dynamics have an `action_mask`, the infos of `reset` and
    `step` hold "action_mask", (num_envs, num_actions) int8: 1 for each action that is allowed in
    the state that the observation shows.

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
        memory, code, numbers: what kernels take: its memory, structure and run-time parameters.
        autoreset_mode, num_threads, device: see above.
        prepared: what the last `collect` or `simulate` made, see `rlcpu.envs.collect.Prepared`.

    Raises:
        TypeError, ValueError: for a bad argument, with its name and value.
        rlcpu.cuda.CudaUnavailableError: there is no such device, with what to install.
        rlcpu.cuda.CudaMemoryError: its memory is too small.
    """

    memory: Any
    numbers: Any
    prepared: Any = None

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
        self.device, self._drivers = device, find_drivers(device, dynamics)
        self.dynamics = dynamics
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
        view = View.of(dynamics, planes, self.dtype)
        self.view = view._replace(num_threads=self.num_threads)
        self.single_observation_space = self.view.space(dynamics.observed_as(self.dtype))
        self.single_action_space = copy.deepcopy(dynamics.action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(dynamics.action_space, self.num_envs)
        kind = Renderer if dynamics.engine is None else self._drivers.Renderer
        self._renderer = kind(dynamics, render_mode)
        self.render_mode = render_mode
        self.metadata = {**self._renderer.metadata, "autoreset_mode": self.autoreset_mode}
        self._prepare()
        self._show_parameters()

    def _prepare(self) -> None:
        """Memory, kernels and the constants of `step`."""
        self.code = structure(self.dynamics)
        self._is_plain = (
            self.view.kind == "floats" and len(self.view.size) == 1 and not self.view.num_masked
        )
        self._has_infos = self.dynamics.engine is not None
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._disabled = self.autoreset_mode is AutoresetMode.DISABLED
        self._all = np.ones(self.num_envs, np.bool_)
        self.rows = self.code.observation_rows + mask_rows(self.view.num_masked)
        self._observation_shape = (self.rows, self.num_envs)
        self._action_dtype = np.dtype(np.int64 if self.dynamics.is_discrete else np.float32)
        self._action_shape = self.action_space.shape
        self._seeded = self._ready = False
        self._drivers.allocate(self, self.max_episode_steps or PENDING)

    def __getstate__(self) -> dict[str, Any]:
        """Return all of it, with episodes and random streams, but no kernels.

        Raises:
            TypeError: it lives on a device.
        """
        if self.device != "cpu":
            raise TypeError(f"{self!r} cannot be copied or pickled: its memory is the device's")
        found_anew = ("code", "numbers", "_kernels", "_steps", "_drivers", "prepared")
        return {name: value for name, value in vars(self).items() if name not in found_anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.code = structure(self.dynamics)
        had, has = self.memory.layout, self.dynamics.state
        if had.fields != has.fields:
            raise ValueError(
                f"{self.dynamics.id} had a state of {describe(had)} when it was pickled and has "
                f"{describe(has)} now"
            )
        if self.dynamics.engine is None and self.memory.varied != self.code.varied:
            was, now = (", ".join(x.varied) or "nothing" for x in (self.memory, self.code))
            raise ValueError(
                f"{self.dynamics.id} varied {was} when it was pickled and varies {now} now"
            )
        self._drivers = find_drivers(self.device, self.dynamics)
        self._drivers.find_kernels(self)

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
        if not (self._ready or mask.all()):
            raise ResetNeeded('options["reset_mask"]: the first reset has to be of all of them')
        params = reset_bounds(self.dynamics, options)
        self._seed(seed, mask)
        self._drivers.restart(self, mask, self._drivers.pack(params, self.scalar_type))
        self._ready = True
        rows = self._drivers.observe(self)
        return self.view.show(rows), self._mask_infos(rows, self._waiting())

    def _seed(self, seed: int | Sequence[int | None] | None, mask: npt.NDArray[np.bool_]) -> None:
        if seed is None and self._seeded:
            return
        is_seeded = np.full(self.num_envs, seed is not None)
        chosen: Any = 0 if seed is None else seed
        if isinstance(seed, list | tuple):
            is_seeded = np.array([item is not None for item in seed])
            chosen = [0 if item is None else item for item in seed]
        seeds = stream_seeds(chosen, self.num_envs)
        if not self._seeded:
            fresh = np.random.SeedSequence(secrets.randbits(128))
            entropy: Any = fresh.generate_state(self.num_envs, np.uint64)
            self.memory.seed(entropy, np.ones(self.num_envs, np.bool_))
            self._seeded = True
        self.memory.seed(seeds, is_seeded & mask)
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))

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
        if not self._ready:
            raise ResetNeeded("call reset() before step(): no environment has a state yet")
        actions = self._take_actions(actions)
        while (reached := self._drivers.step(self, actions)) is None:
            actions = self._excuse(actions)
        rows, rewards, terminated, truncated, finals = reached
        observations = rows.T if self._is_plain else self.view.show(rows)
        if self.render_mode:
            self._renderer.remember(self._drivers.to_host(actions))
        infos = self._final_infos(finals, terminated | truncated) if self._same_step else {}
        if self.view.num_masked:
            infos |= self._mask_infos(rows, *(() if self._same_step else (terminated, truncated)))
        if self._has_infos:
            infos |= self._drivers.infos(self)
        return observations, rewards, terminated, truncated, infos

    def _take_actions(self, actions: Any) -> Any:
        """Return the actions, of the right shape, on the host or on the environments' device."""
        if (
            type(actions) is np.ndarray
            and actions.dtype == self._action_dtype
            and actions.shape == self._action_shape
            and actions.flags.c_contiguous
        ):
            return actions
        if self.device == "cpu" or backends.device_of(actions) == "cpu":
            return convert_actions(actions, self.dynamics, self._action_shape)
        actions = self._drivers.asarray(actions)
        check_actions(actions, self.dynamics, self._action_shape)
        return actions

    def _excuse(self, actions: Array) -> Array:
        """The actions, 0 for environments whose next step is their reset, as it ignores them.

        Raises:
            ValueError: another environment has a bad action.
            gymnasium.error.ResetNeeded: an environment has finished and autoreset is disabled.
        """
        if self._disabled:
            self.check_running()
        excused = np.array(self._drivers.to_host(actions))
        excused[self.memory.elapsed() == PENDING] = 0
        bad = find_bad_actions(excused, self.dynamics)
        if len(bad):
            raise ValueError(describe_bad_actions(excused, bad, self.dynamics))
        return excused

    def check_running(self) -> None:
        """Raise ResetNeeded if an environment has finished."""
        finished = np.flatnonzero(self.memory.elapsed() == PENDING)
        if len(finished):
            raise ResetNeeded(
                f"{len(finished)} environments have finished (first: {finished[0]}) and autoreset "
                'is disabled: call reset(options={"reset_mask": terminated | truncated}) first'
            )

    def _final_infos(self, finals: Any, done: Any) -> dict[str, Any]:
        """Gymnasium's infos of same-step autoreset: the last observation of finished episodes."""
        final_obs = self._drivers.final_observations(finals, done, self.view)
        if final_obs is None:
            return {}
        info = {}
        if self.view.num_masked:
            masks = self.view.masks(finals.T) & done[:, None]
            info = {"action_mask": masks.view(np.int8), "_action_mask": done.copy()}
        return {
            "final_obs": final_obs,
            "_final_obs": done,
            "final_info": info,
            "_final_info": done.copy(),
        }

    def _mask_infos(self, rows: Array, *ended: Any) -> dict[str, Any]:
        """Gymnasium's infos of action masks, {} without any.

        Args:
            rows: (shown rows, num_envs) float32.
            *ended: (num_envs,) bool each, environments whose episode has ended: nobody acts there.

        Raises:
            ValueError: another one's mask allows nothing.
        """
        if not self.view.num_masked:
            return {}
        masks = np.empty((self.num_envs, self.view.num_masked), np.int8)
        if write_masks(rows, masks):
            batch.check_masks(self, rows, np.logical_or.reduce(ended) if ended else None)
        return {"action_mask": masks, "_action_mask": self._all.copy()}

    def action_masks(self) -> Array | None:
        """Action masks of the present states, as the infos of `step` hold them; None without any.

        Raises:
            ValueError: one allows nothing.
        """
        infos = self._mask_infos(self._drivers.observe(self), self._waiting())
        return infos.get("action_mask")

    def _waiting(self) -> Any:
        """Environments whose episode has ended; None if nobody asks."""
        return self.memory.finished() if self.view.num_masked else None

    # ------------------------------------------------------------ state

    def observe(self) -> Array:
        """Observations of the present states, as `step` returns them."""
        return self.view.show(self._drivers.observe(self))

    def start_episodes(self) -> None:
        """Reset what has never been reset, and what has finished and waits for its reset.

        Raises:
            gymnasium.error.ResetNeeded: an environment has finished and autoreset is disabled.
        """
        if not self._ready:
            self.reset()
        finished = self.memory.finished()
        if self._disabled and finished.any():
            self.check_running()
        if finished.any():
            self._drivers.restart(self, finished, self.numbers)

    @property
    def scalar_type(self) -> Any:
        """NumPy type of states and rewards; kernels are chosen by it."""
        return self.dtype.type

    @property
    def state(self) -> Any:
        """(num_envs, state_size), a copy; assign an array to set it.

        Where the state is a NamedTuple, its fields are attributes: see `States`. Setting the state
        of a finished environment starts a new episode there.

        Raises:
            gymnasium.error.ResetNeeded: read before the first reset.
            TypeError, ValueError: set to something of another shape, or not finite.
        """
        if not self._ready:
            raise ResetNeeded("state is unset: call reset() or assign a state first")
        if self.dynamics.state.is_plain:
            return self.memory.get_state()
        return self._states()

    @state.setter
    def state(self, state: Any) -> None:
        is_ours = self.dynamics.engine is None
        if self.dynamics.state.is_plain:
            numbers = self._drivers.to_host(state)
            dtype = self.dtype if is_ours else np.dtype(np.float64)
            values = convert_state(numbers, (self.num_envs, self.dynamics.state_size), dtype)
        elif not hasattr(state, "_asdict"):
            made = self.dynamics.state.made.__name__
            raise TypeError(f"state={state!r}: expected a {made} of arrays, or another env.state")
        if not self._ready:
            self.reset()
        if self.dynamics.state.is_plain:
            self.memory.set_state(values)
        else:
            self._states()._set(state._asdict())
        if not is_ours:
            self._drivers.refresh(self)

    @property
    def params(self) -> Any:
        """The present parameters, a NamedTuple: a copy.

        Those that vary are arrays (num_envs,) of the environment's dtype: numbers that differ from
        environment to environment, and those that `randomize` drew at the last reset. All others
        are one number, True or False. Each is an attribute as well: `env.gravity`.

        Of a MuJoCo task, the fields of its model that vary come last, such as `body_mass`,
        (num_envs, nbody) float64.
        """
        dynamics = self.dynamics
        return dynamics.shown_params(self.memory.get_params()) if self._varying else dynamics.params

    def _params_of_each(self) -> list[Any]:
        """Return the parameters of each environment, if some vary."""
        params = self.memory.get_params() if self._varying else {}
        rows = (values.tolist() if values.ndim == 1 else [*values] for values in params.values())
        each = zip(*rows, strict=True)
        return [self.dynamics.shown_params(dict(zip(params, v, strict=True))) for v in each]

    def _states(self) -> States:
        return States(
            self.dynamics.state,
            lambda: np.array(self._drivers.to_host(self.memory.get_state())),
            self.memory.set_state,
        )

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
        if not self._ready:
            raise ResetNeeded("there is nothing to keep: call reset() or assign a state first")
        return {name: array.copy() for name, array in self._arrays("snapshot").items()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Go on from where `snapshot` was taken.

        Raises:
            TypeError, ValueError: arrays of other names, dtypes or shapes, as those of another kind
                or number of environments; nothing has changed then.
        """
        arrays = self._arrays("restore")
        if not isinstance(snapshot, Mapping) or snapshot.keys() != arrays.keys():
            names = list(snapshot) if isinstance(snapshot, Mapping) else type(snapshot).__name__
            raise TypeError(f"snapshot: expected arrays named {', '.join(arrays)}, got {names}")
        for name, array in arrays.items():
            part = snapshot[name]
            if not isinstance(part, np.ndarray) or part.dtype != array.dtype:
                kind = getattr(part, "dtype", type(part).__name__)
                raise TypeError(f"snapshot[{name!r}] is of {kind}: expected {array.dtype}")
            if part.shape != array.shape:
                raise ValueError(
                    f"snapshot[{name!r}] has shape {part.shape}: expected {array.shape}"
                )
        for name, array in arrays.items():
            array[...] = snapshot[name]
        self._ready = self._seeded = True

    def _arrays(self, name: str) -> dict[str, Array]:
        if self.device != "cpu":
            raise TypeError(f"{name}: the memory of {self!r} is the device's")
        arrays: dict[str, Array] = self.memory.state()
        return arrays

    # ------------------------------------------------------------ the rest of Gymnasium's contract

    def render(self) -> tuple[Array, ...] | None:
        """Draw one RGB picture (height, width, 3) uint8 per environment; None without a mode."""
        states = self._drivers.to_host(self.memory.get_state())
        return self._renderer.render(states, *filter(None, [self._params_of_each()]))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the renderer."""
        if hasattr(self, "_renderer"):  # Gymnasium 1.1's __del__ closes what was never made
            self._renderer.close()

    def __repr__(self) -> str:
        settings = {"num_envs": self.num_envs, "dtype": self.dtype.name}
        if self.device != "cpu":
            settings["device"] = self.device
        return self._describe(**settings, autoreset_mode=self.autoreset_mode.value)


def find_drivers(device: str, dynamics: Dynamics | None = None) -> Any:
    """Return the module that runs environments on a device.

    Raises:
        ValueError, rlcpu.cuda.CudaUnavailableError: see `rlcpu.backends.find`; a task of another
            engine runs on the CPU alone.
    """
    is_cpu = isinstance(device, str) and device == "cpu"  # not an array of names
    if dynamics is not None and dynamics.engine is not None:
        if not is_cpu:
            raise ValueError(f'device={device!r}: {dynamics.id} runs on the "cpu" alone')
        return dynamics.engine
    if is_cpu and dynamics is not None and dynamics.has_arrays:
        return records
    return batch if is_cpu else backends.find(device, "envs")
