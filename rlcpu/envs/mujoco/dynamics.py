"""The contract of a MuJoCo task: a model, and scalar functions of one simulation's fields.

A task's functions get `data`, a NamedTuple of the arrays of mjData and mjModel that the task names.
`view_in_python` makes it of MuJoCo's objects, for trials; `view_in_kernels` of their addresses.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import mujoco
import numpy as np
from gymnasium.spaces import Box

from rlcpu.envs.contract import dynamics as base
from rlcpu.envs.contract.fields import (
    check_arguments,
    check_description,
    check_plain,
    convert_params,
)
from rlcpu.envs.layout.values import floats
from rlcpu.envs.mujoco.library import INTEGRATION, Views, make_views
from rlcpu.envs.mujoco.models import find_model, load_model, resolve_name
from rlcpu.envs.mujoco.varied import (
    VariedFields,
    check_values,
    describe_fault,
    drawn_fields,
    field_numbers,
    find_varied,
    write_field,
)
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.source import EndlessError, call_bounded, check_source
from rlcpu.kernels.machine.random import Rng

_ARGUMENTS = {
    "reset": ("data", "uniforms", "params"),
    "measure": ("data", "params"),
    "reward": ("data", "action", "before", "after", "params"),
    "terminated": ("data", "params"),
    "truncated": ("data", "params"),
    "observe": ("data", "observation", "params"),
    "randomize": ("rng", "model", "params"),
}
#: How a reset gets random numbers.
_RANDOM = "random numbers come from `uniforms`, of which reset gets `reset_draws`"
#: Most simulation steps of one step: more take seconds.
_MOST_STEPS = 2**17
#: Functions that write into arrays.
_WRITERS = ("reset", "observe", "randomize")


def measure_nothing(data: Any, params: Any) -> tuple[float, ...]:
    """Return no numbers: the reward compares nothing between steps."""
    return ()


def never(data: Any, params: Any) -> bool:
    """Return False: the task does not end by itself."""
    return False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MuJoCoDynamics(base.Dynamics):
    """A task of MuJoCo as a model, the fields that it reads, and scalar functions.

    The functions describe ONE simulation in plain Python. `data` has the arrays of mjData, or of
    mjModel, that `fields` names, whole numbers for `names`, and the seconds of a step, `dt`, and of
    a simulation step, `timestep`. Floats are float64, as MuJoCo computes. The functions are
    compiled into one that MuJoCo's own threads run, with the policy: actions, physics, rewards and
    resets of K steps, without Python. What `Dynamics` says of functions holds, but that arrays are
    sliced as in NumPy, and that `reset` and `observe` write into the arrays that they are
    given.

    Fields that MuJoCo derives from positions and velocities, such as `xpos`, are those before the
    last of a step's `frame_skip` simulation steps, as in Gymnasium; `current=True` computes them
    anew after the step, as dm_control does. A difference between two steps is therefore taken
    between what `measure` returned after each.

    Args:
        id: name and version, such as "HalfCheetah-v5".
        xml: path of a model, its XML itself, or a `mujoco.MjModel`.
        frame_skip: simulation steps of one step.
        fields: names of the arrays of mjData, or of mjModel, that the functions read, such as
            ("qpos", "qvel", "xpos", "body_mass"); all of float64.
        names: for each whole number that `data` shall have what it stands for: "body:torso",
            "site:...", "geom:...", "actuator:..." and "tendon:..." are ids, "sensor:..." where the
            sensor's numbers begin in `sensordata`, "joint:..." and "dof:..." where the joint's
            begin in `qpos` and `qvel`.
        reset: (data, uniforms, params), changes `qpos`, `qvel` and the like, which MuJoCo has just
            set to the model's defaults; `uniforms` are `reset_draws` numbers in [0, 1).
        observe: (data, observation, params), writes all of `observation`, float64.
        reward: (data, action, before, after, params) -> float; the action is a float32 array, of
            which `float(action[k])` gives numbers that NumPy and kernels round alike; before and
            after are what `measure` returned at the step's beginning and end.
        terminated: (data, params) -> bool; by default never.
        truncated: (data, params) -> bool; by default never.
        measure: (data, params) -> tuple of floats; by default empty.
        randomize: optional (rng, model, params), writes into the fields of mjModel that
            `randomized` names, such as `model.body_mass`, which hold what was given when the
            environments were made. It is called at every reset, before `reset`; what MuJoCo derives
            (`mj_setConst`) follows.
        randomized: names of fields of mjModel or mjOption, such as ("body_mass", "gravity"), all of
            float64; one number has shape (1,).
        varied: fields by name, with the shape that they have in the model, or with an axis
            (num_envs,) before it, of one for each environment.
        params: NamedTuple of defaults, each of which a user can override by name: numbers, and
            tuples of numbers, are read at run time; bools are constants of the machine code.
        observation_size: numbers in an observation, or (model, params) -> int.
        reset_draws: random numbers that a reset takes, or (model, params) -> int.
        settle_steps: simulation steps without control between `reset` and the episode's first
            observation.
        current: see above.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        reward_threshold: episode return from which the task counts as solved.

    Attributes:
        model: the compiled model, a copy; each `VectorEnv` has one more.
        observation_space: unbounded, (observation_size,) float64: what an environment of
            `dtype="float64"` returns, as Gymnasium's; of others it is float32.
        action_space: (nu,) float32, the ranges of the model's actuators.

    Raises:
        TypeError, ValueError: at construction, naming the argument, its value and what was
            expected; for a model that does not load with MuJoCo's message. The functions are tried
            on a few states and actions first.
    """

    runs_in_kernels: ClassVar[bool] = False

    xml: Any
    frame_skip: int
    fields: tuple[str, ...]
    observe: Callable[..., None] = field()
    reward: Callable[..., float]
    observation_size: Any = 0  # refused: it stands in the place of a property of `Dynamics`
    reset_draws: Any = 0
    terminated: Callable[..., bool] = never
    truncated: Callable[..., bool] = never
    measure: Callable[..., tuple[float, ...]] = measure_nothing
    names: Mapping[str, str] = field(default_factory=dict)
    randomized: tuple[str, ...] = ()
    settle_steps: int = 0
    current: bool = False
    # Derived from the arguments.
    model: mujoco.MjModel = field(init=False)
    varied_fields: VariedFields = field(init=False)
    view_in_kernels: Any = field(init=False)
    view_in_python: Any = field(init=False)
    measure_size: int = field(init=False)
    _arguments: Mapping[str, Any] = field(init=False)  # those of the constructor
    _changed: Mapping[str, Any] = field(init=False)  # by `with_params`, but for `params`
    observation_space: Any = field(init=False)
    action_space: Any = field(init=False)
    # Arguments of `Dynamics` that tasks do not take.
    step: Any = field(init=False, default=None)
    step_draws: int = field(init=False, default=0)
    action_mask: Any = field(init=False, default=None)
    picture: Any = field(init=False, default=None)
    original: str | None = field(init=False, default=None)
    reset_options: Mapping[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        names = [each.name for each in dataclasses.fields(self) if each.init]
        arguments = {name: getattr(self, name) for name in names}
        # `reset_draws` may be a function, called by `_derive_from_model`; checks take numbers.
        self._set(_arguments=arguments, _changed={}, reset_draws=0)
        check_description(self)
        for name in self._functions():
            self._check_function(name)
        self._set(
            frame_skip=check_count(f"{self.id}: frame_skip", self.frame_skip, 1, _MOST_STEPS),
            settle_steps=check_count(f"{self.id}: settle_steps", self.settle_steps, 0, _MOST_STEPS),
            params=convert_params(self.id, self.params, tuples=True),
        )
        try:
            self._derive_from_model()
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.id}: {error}") from None
        try:
            self._try_functions()
        except mujoco.FatalError as error:
            raise ValueError(f"{self.id}: MuJoCo failed: {error}") from None

    def _set(self, **values: Any) -> None:
        """Set attributes, which a frozen dataclass refuses otherwise."""
        vars(self).update(values)

    def __repr__(self) -> str:
        return f"MuJoCoDynamics({self.id})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        """Pickle the task as a call that makes it again: its functions and classes by their names.

        Raises:
            pickle.PicklingError: one of them cannot be imported by its name, as a lambda cannot.
        """
        for name in self._functions():
            base.check_importable(self, name, getattr(self, name))
        base.check_importable(self, "params", type(self.params))
        for name in ("observation_size", "reset_draws"):
            if callable(self._arguments[name]):
                base.check_importable(self, name, self._arguments[name])
        arguments = {**self._arguments, "params": self.params}
        return functools.partial(_remake, arguments, self._changed), ()

    def observed_as(self, dtype: Any) -> Box:
        """Return the observation space of environments of a dtype."""
        return Box(-np.inf, np.inf, (self.observation_size,), np.dtype(dtype).type)

    @property
    def dt(self) -> float:
        """Return the seconds of one step."""
        return float(self.model.opt.timestep * self.frame_skip)

    def with_params(self, **params: Any) -> MuJoCoDynamics:
        """Return the task with other parameters, `frame_skip`, `xml_file` or fields of the model.

        Args:
            **params: new values by name; `xml_file` is a path, relative to Gymnasium's models
                unless it begins with ".", "/" or "~", as there. A field of mjModel or mjOption,
                such as `body_mass` or `gravity`, has its shape there, or that of one for each
                environment; MuJoCo's `mj_setConst` follows.

        Raises:
            TypeError: for an unknown name, or a value of the wrong kind.
            ValueError: for a NaN, a model that does not fit, or values with which a trial fails.
        """
        arguments, changed = dict(self._arguments), dict(self._changed)
        if "xml_file" in params:
            arguments["xml"] = changed["xml_file"] = find_model(params.pop("xml_file"))
        if "frame_skip" in params:
            arguments["frame_skip"] = changed["frame_skip"] = params.pop("frame_skip")
        fields = {name: params.pop(name) for name in [*params] if self._is_field(name)}
        arguments["varied"] = {**arguments["varied"], **fields}
        changed |= {name: np.asarray(values).tolist() for name, values in fields.items()}
        self._check_params(params)
        arguments["params"] = self.params._replace(**params)
        return _remake(arguments, changed)

    def _check_params(self, params: Mapping[str, Any]) -> None:
        """Raise TypeError for an unknown parameter, or a value of another kind than its default."""
        defaults = self.params._asdict()
        for name, value in params.items():
            if name not in defaults:
                valid = ", ".join((*defaults, "frame_skip", "xml_file"))
                raise TypeError(
                    f"{self.id} has no parameter {name}; it has: {valid}, and fields of mjModel"
                )
            kind = _value_kind(defaults[name])
            if _value_kind(value) != kind:
                raise TypeError(f"{self.id}: {name}={value!r} has to be {kind}")

    def shown_params(self, values: Mapping[str, Any]) -> Any:
        """Return the params as users see them: the task's own, then fields of the model by name."""
        params_class: Any = collections.namedtuple(  # type: ignore[misc]
            type(self.params).__name__, (*self.params._fields, *values)
        )
        return params_class(*self.params, *values.values())

    def _is_field(self, name: str) -> bool:
        """Tell whether a name is a field of mjModel or mjOption, and not a parameter."""
        if name in self.params._fields:
            return False
        return any(hasattr(owner, name) for owner in (self.model, self.model.opt))

    def _functions(self) -> tuple[str, ...]:
        """Return the names of the functions that the task has."""
        return tuple(name for name in _ARGUMENTS if getattr(self, name) is not None)

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `with_params` that make this task of the registered one."""
        return {**self.params._asdict(), **self._changed}

    def constants(self) -> dict[str, float]:
        """Return {}: no numbers of a task's module are attributes of environments."""
        return {}

    def sample_observation(self) -> tuple[float, ...]:
        """Return the observation of one reset."""
        data = mujoco.MjData(self.model)
        self._reset(data, 0.5)
        return tuple(self._observe(data))

    # ------------------------------------------------------------ attributes of the model

    def _derive_from_model(self) -> None:
        """Load the model, and set the attributes that depend on it: views, sizes and spaces.

        Raises TypeError or ValueError if the model lacks something, or an argument is bad.
        """
        self._set(model=load_model(self.xml))
        self._apply_varied()
        model, size = self.model, self._count("observation_size", least=1)
        if model.nu == 0:
            raise ValueError("xml: the model has no actuators: expected at least one")
        is_limited = model.actuator_ctrllimited.astype(bool)[:, None]
        bounds = np.where(is_limited, model.actuator_ctrlrange, (-np.inf, np.inf))
        low, high = bounds.astype(np.float32).T
        self._set(
            **self._make_views()._asdict(),
            observation_size=size,
            reset_draws=self._count("reset_draws", least=0),
            observation_space=Box(-np.inf, np.inf, (size,), np.float64),
            action_space=Box(low, high, dtype=np.float32),
            state=floats(mujoco.mj_stateSize(model, INTEGRATION)),
        )

    def _count(self, name: str, least: int) -> int:
        """Return the argument of a name, a whole number or a function (model, params) of one."""
        value = self._arguments[name]
        return check_count(
            name, value(self.model, self.params) if callable(value) else value, least
        )

    def _make_views(self) -> Views:
        """Return the functions that make `data`; raise ValueError for bad `fields` or `names`."""
        model, aliases = self.model, (*self.fields, *self.names, "dt", "timestep")
        for name in aliases:
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(f"fields, names: {name!r} is no name")
        constants = {name: resolve_name(model, name, self.names[name]) for name in self.names}
        if len(set(aliases)) < len(aliases):
            raise ValueError(f"fields, names: {aliases} have to be different")
        # `ctrl` takes the actions; the other two every task has.
        fields = dict.fromkeys((*self.fields, "qpos", "qvel", "ctrl"))
        seconds = {"dt": self.dt, "timestep": float(model.opt.timestep)}
        return make_views(model, tuple(fields), {**constants, **seconds})

    def _apply_varied(self) -> None:
        """Set fields of the model that users gave for all environments; keep those that vary.

        Raises TypeError or ValueError if `varied` or `randomized` is bad.
        """
        drawn, of_each = tuple(self.randomized), {}
        if bool(drawn) != (self.randomize is not None):
            raise ValueError(f"randomized={drawn}: expected the fields that randomize writes")
        for name, from_user in self.varied.items():
            values = check_values(self.model, name, from_user)
            if values.ndim == field_numbers(self.model, name).ndim:  # the same for all
                write_field(self.model, name, values)
            else:
                of_each[name] = values
        if len(of_each) < len(self.varied):  # some were written into the model
            mujoco.mj_setConst(self.model, mujoco.MjData(self.model))
        self._set(varied=of_each, varied_fields=find_varied(self.model, of_each, drawn))

    def _check_function(self, name: str) -> None:
        """Raise TypeError or ValueError unless a function is plain and takes its arguments."""
        function, subject = getattr(self, name), f"{self.id}: {name}"
        check_plain(subject, function)
        check_arguments(subject, function, _ARGUMENTS[name])
        try:
            writes = ("items",) if name in _WRITERS else ()
            check_source(function, writes=writes, random=_RANDOM)
        except TypeError as error:
            raise TypeError(f"{self.id}: {error}") from None

    # ------------------------------------------------------------ trials in plain Python

    def _try_functions(self) -> None:
        """Reset, measure, observe and take three steps, from a few random numbers and actions.

        It sets `measure_size`, and raises an error for a function that fails or returns a wrong
        type.
        """
        space = self.action_space
        for trial, uniform in enumerate((0.0, 0.5, 1.0 - 2.0**-53)):
            data = mujoco.MjData(self._trial_model(trial))
            for bound in (space.low, space.high):  # which may be infinite
                self._reset(data, uniform)
                before = self._measure(data)
                vars(self).setdefault("measure_size", len(before))  # the first trial decides
                for _ in range(3):
                    self._observe(data)
                    before = self._try_step(data, np.clip(bound, -1e3, 1e3), before)

    def _try_step(
        self, data: mujoco.MjData, action: Any, before: tuple[float, ...]
    ) -> tuple[float, ...]:
        """Take a step with an action (action_size,), check its results, return those of `measure`.

        `before` is what `measure` returned before the step.
        """
        action = action.astype(np.float32)
        self.advance(data, action)
        after, fields = self._measure(data), self.view_in_python(data.model, data)
        if len(after) != self.measure_size:
            raise ValueError(
                f"{self.id}: measure has to return as many numbers each time; returned {before}, "
                f"then {after}"
            )
        reward = self._call("reward", fields, action, before, after)
        if not isinstance(reward, float | np.floating) or not math.isfinite(reward):
            raise TypeError(f"{self.id}: reward has to return a finite float; returned {reward!r}")
        for name in ("terminated", "truncated"):
            ended = self._call(name, fields)
            if not isinstance(ended, bool | np.bool_):
                raise TypeError(f"{self.id}: {name} has to return a bool; returned {ended!r}")
        return after

    def _trial_model(self, trial: int) -> mujoco.MjModel:
        """Return a copy of the model with numbers as an environment may have them.

        The number of the trial chooses an environment's values, and seeds `randomize`.
        """
        model = copy.copy(self.model)
        for name, values in self.varied.items():
            # Trial 0 takes the first environment's, the others those of the last ones.
            write_field(model, name, values[-trial % len(values)])
        if self.randomize is not None:
            fields = drawn_fields(model, self.varied_fields)
            self._call("randomize", Rng.of_seed(trial), fields)
            for name, values in zip(self.varied_fields.drawn, fields, strict=True):
                if fault := describe_fault(name, values):
                    raise ValueError(f"{self.id}: randomize wrote {name} that holds {fault}")
                write_field(model, name, values)
        if self.varied_fields.derived:
            mujoco.mj_setConst(model, mujoco.MjData(model))
        return model

    def advance(self, data: mujoco.MjData, action: Any) -> None:
        """Take one step of a simulation in Python, as kernels do."""
        data.ctrl[:] = action
        mujoco.mj_step(data.model, data, self.frame_skip)
        if self.current:
            mujoco.mj_step1(data.model, data)
        mujoco.mj_rnePostConstraint(data.model, data)  # forces that `mj_step` leaves out

    def _reset(self, data: mujoco.MjData, uniform: float) -> None:
        """Reset a simulation in Python, as kernels do; all random numbers are `uniform`."""
        mujoco.mj_resetData(data.model, data)
        self._call(
            "reset", self.view_in_python(data.model, data), np.full(self.reset_draws, uniform)
        )
        if not (np.isfinite(data.qpos).all() and np.isfinite(data.qvel).all()):
            raise ValueError(f"{self.id}: reset wrote qpos={data.qpos}, qvel={data.qvel}")
        if self.settle_steps:
            mujoco.mj_step(data.model, data, self.settle_steps)
        mujoco.mj_forward(data.model, data)

    def _measure(self, data: mujoco.MjData) -> tuple[float, ...]:
        """Return the numbers of `measure`; raise TypeError unless they are a tuple of floats."""
        measured = self._call("measure", self.view_in_python(data.model, data))
        is_tuple = isinstance(measured, tuple)
        if not is_tuple or not all(isinstance(number, float | np.floating) for number in measured):
            raise TypeError(
                f"{self.id}: measure has to return a tuple of floats; returned {measured!r}"
            )
        return tuple(map(float, measured))

    def _observe(self, data: mujoco.MjData) -> Any:
        """Return a simulation's observation; raise ValueError unless `observe` wrote all of it."""
        row = np.full(self.observation_size, np.nan)
        self._call("observe", self.view_in_python(data.model, data), row)
        if not np.isfinite(row).all():
            raise ValueError(
                f"{self.id}: observe has to write {row.size} finite numbers; observation"
                f"[{np.flatnonzero(~np.isfinite(row))[0]}] is not finite, or was not written"
            )
        return row

    def _call(self, name: str, *inputs: Any) -> Any:
        """Call a task's function; raise ValueError that names it if it fails or does not end."""
        try:
            return call_bounded(getattr(self, name), *inputs, self.params)
        except EndlessError as error:
            raise ValueError(
                f"{self.id}: {name} does not end: {error} is run again and again"
            ) from None
        except Exception as error:
            raise ValueError(f"{self.id}: {name} raised {error!r}") from error


def _remake(arguments: Mapping[str, Any], changed: Mapping[str, Any]) -> MuJoCoDynamics:
    """Return a task of arguments of `MuJoCoDynamics`.

    `changed` are the arguments of `with_params` that make it of the registered task.
    """
    task = MuJoCoDynamics(**arguments)
    task._set(_changed=changed)
    return task


def _value_kind(value: Any) -> str:
    """Return what a parameter is, in the words of errors: a bool, a number, or so many numbers."""
    if isinstance(value, bool | np.bool_):
        return "True or False"
    return f"{len(value)} numbers" if isinstance(value, tuple | list) else "a number"
