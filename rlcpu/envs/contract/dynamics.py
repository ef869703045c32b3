"""The contract of an environment: what its author writes and what every driver relies on."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from rlcpu.envs.contract import registry
from rlcpu.envs.contract.fields import (
    FUNCTIONS,
    OPTIONAL,
    check_description,
    check_function,
    check_reset_options,
    check_sources,
    check_spaces,
    convert_params,
    convert_varied,
    is_array,
    is_bool,
    layout_of_state,
    with_numbers,
)
from rlcpu.envs.contract.trial import (
    TrialRng,
    call_function,
    find_randomized,
    mask_of,
    trial_draws,
    try_functions,
)
from rlcpu.envs.layout.arrays import ArrayLayout
from rlcpu.envs.layout.groups import (
    INT_ARRAY,
    is_int_array,
    num_inputs,
    returned_layout,
    written_layout,
)
from rlcpu.envs.layout.values import Field, Layout, floats
from rlcpu.translation import hint_at


class NoParams(NamedTuple):
    """The parameters of an environment without any."""


def identity(state: tuple[float, ...], params: Any) -> tuple[float, ...]:
    """Return the observation of an environment that shows its whole state."""
    return state


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Dynamics:
    """An environment as three scalar functions, its spaces and its parameters.

    `step`, `reset` and `observe` describe ONE environment in plain Python: numbers and tuples in,
    tuples out. Kernels compile the functions to float32 or float64, and run them for many
    environments at once.

    A state is a tuple of floats, or a NamedTuple whose type hints say what its fields are: float,
    int (of 32 bits between steps), bool, `Board` (a set of up to 128 cells), and tuples of a fixed
    number of one of these. An observation is a tuple of floats for a `Box`, an int for a
    `Discrete`, and for `MultiBinary((planes, rows, columns))` a tuple of one `Board` per plane, in
    which cell `row * columns + column` is one of at most 128. An action is an int of a `Discrete`,
    or a tuple of floats of a `Box`.

    A state with arrays is a subclass of `State`, which `state` names. `step` writes into it and
    returns (reward, terminated[, truncated]), `reset` is (state, rng, params) and writes into
    zeros, and `observe` may be (state, params, out) and write an observation of a `Box` into zeros,
    or each part of a `Dict`: `out.image[0, row, column] = 255`, `out.gear = 2`. There a part may
    have any shape, and whole numbers of at most 32 bits.

    - `math` is for mathematics, and NumPy's functions of numbers work, `np.clip` too.
    - Whole numbers may meet real ones (`2 * x`), and become floats there. Choices are ternaries,
      `min` and `max`, which vectorise; loops run over `range()`.
    - Other functions, globals, NumPy arrays and Enums are read when an environment is made: one
      that is made after a change runs the new code, an older one keeps what it has.
    - Tables are global arrays or tuples, read by whole numbers (`table[row, column]`). Negative
      indices count from the end. Outside of a table plain Python raises, and a kernel takes the
      first or last item; `rlcpu.envs.check` tells where that happens.
    - What is random comes from an argument named `rng`, an `Rng` that is asked for as many numbers
      as are needed, `rng.uniform(k)` and `rng.integers(k, n)`; or from one named otherwise, which
      is a tuple of `reset_draws` or `step_draws` numbers in [0, 1). `random`, `numpy.random` and
      clocks are refused, since a result depends on the seed alone.
    - Refused as well, by file and line: `raise` and `assert` (the other environments would miss a
      step), `try`, `with`, generators, lists, dicts and new arrays, printing, changes of globals,
      and names that are defined nowhere.

    A step has to end: one trial call is stopped after ten million instructions of Python, a kernel
    is not.

    Attributes:
        id: name and version, such as "CartPole-v1".
        step: (state, action, params) -> (new_state, reward, terminated), and as a fourth value
            truncated, if the environment cuts episodes itself; with random numbers,
            (state, action, params, rng) or, with `step_draws`, (state, action, params, uniforms).
        reset: (rng, params) or (uniforms, params) -> state.
        observe: (state, params) -> observation; by default the state itself.
        action_mask: (state, params) -> a tuple of one bool for each action of a `Discrete`, or for
            each choice of each number of a `MultiDiscrete`, one number after the other, which says
            whether a policy may choose it in this state; None if it may always choose any. Of many
            actions it is (state, params, out) and writes into an array of bools, all False:
            `out[k] = state.heights[k] < 6`. It has to allow one action at least, or one choice of
            each number, unless the episode has ended. `VectorEnv.step` itself takes all actions.
        compute_reward: (achieved_goal, desired_goal, params) -> reward, or (reward, terminated), of
            an environment with goals, whose observations are a `Dict` with these two parts, of one
            space. It returns what `step` does of the goals of its new state, and of other goals
            for hindsight replay (`replay="hindsight"`). Where it returns a reward alone, reaching a
            goal does not end an episode.
        observation_space: one environment's: a float32 `Box`, (observation_size,), `Discrete(n)`,
            `MultiBinary((planes, rows, columns))`, or a `Dict` of parts.
        action_space: one environment's: `Discrete(n)`, `MultiDiscrete`, of which an action is a
            tuple of ints, or a float32 `Box`, (action_size,).
        params: NamedTuple of defaults, each of which a user can override by name; none if it is
            left out. Its numbers are floats, or whole where the type hint is `int`, and are read
            at run time: changing one compiles nothing. Its bools are constants of the machine code:
            an option that is off costs nothing.
        randomize: optional (rng, params) -> a NamedTuple of those numbers of params that a new
            episode of one environment draws anew, under their names in params; `params` has what
            was given when the environments were made. It is called at every reset, before `reset`,
            and its `rng` draws other numbers than that of `reset`.
        varied: numbers of params that differ from environment to environment, by name: arrays
            (num_envs,), which `with_params(gravity=array)` sets. `params` has those of the first.
        reset_draws: random numbers in [0, 1) that one reset takes as `uniforms`.
        step_draws: random numbers in [0, 1) that one step takes as `uniforms`.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        reward_threshold: episode return from which the task counts as solved.
        reset_options: for each option of `reset(options=...)`, the fields of `params` that it
            overrides for that reset.
        original: id of the same environment in Gymnasium, which lends its renderer.
        picture: (state, params) -> (height, width, 3) uint8, what `render` shows in place of that;
            plain Python, which is never compiled.
        transform: call that makes it again of another environment, for one that a function of
            `rlcpu.envs.transforms` returned.
        state: the class of states with arrays, or None. Then what a state is made of (found by a
            trial reset, where it is no such class).
        truncates: whether `step` returns `truncated` (found by a trial step).
        has_whole: whether whole numbers are returned in the place of floats (found by trials).
        randomized: names of what `randomize` draws (found by a trial).

    Raises:
        TypeError, ValueError: at construction, naming the argument, its value and what was
            expected. The functions are tried on a few states and actions first, so that a wrong
            number or type of results is reported before anything is compiled.

    Example:
        >>> from rlcpu.envs.tasks.classic_control.cartpole import DYNAMICS
        >>> DYNAMICS.with_params(gravity=1.6).params.gravity
        1.6
    """

    #: Whether our kernels run its plain functions, and not another engine.
    runs_in_kernels: ClassVar[bool] = True

    id: str
    step: Callable[..., Any]
    reset: Callable[..., Any]
    observe: Callable[..., Any] = identity
    action_mask: Callable[..., Any] | None = None
    compute_reward: Callable[..., Any] | None = None
    observation_space: Box | Discrete | MultiBinary | Dict
    action_space: Box | Discrete | MultiDiscrete
    params: Any = NoParams()  # noqa: RUF009 - a tuple
    reset_draws: int = 0
    step_draws: int = 0
    randomize: Callable[..., Any] | None = None
    varied: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    reset_options: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    original: str | None = None
    picture: Callable[[Any, Any], Any] | None = None
    transform: functools.partial[Dynamics] | None = None
    state: Any = None
    truncates: bool = dataclasses.field(init=False)
    has_whole: bool = dataclasses.field(init=False, repr=False)
    randomized: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Check what the author wrote, compute `state`, `truncates` and `randomized` by trials.

        `object.__setattr__` is how a frozen dataclass sets fields in its construction.
        """
        check_description(self)
        object.__setattr__(self, "state", layout_of_state(self))
        check_spaces(self)
        for name in self.functions:
            check_function(self, name)
        check_sources(self)
        params = convert_params(self.id, self.params)
        varied = convert_varied(self, params)
        object.__setattr__(self, "varied", types.MappingProxyType(varied))
        params = with_numbers(params, {name: values[0] for name, values in varied.items()})
        object.__setattr__(self, "params", params)
        object.__setattr__(self, "randomized", find_randomized(self))
        check_reset_options(self)
        state, truncates, has_whole = try_functions(self)
        object.__setattr__(self, "state", state)
        object.__setattr__(self, "truncates", truncates)
        object.__setattr__(self, "has_whole", has_whole)

    def __copy__(self) -> Dynamics:
        return self  # nothing in it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Dynamics:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        """Return the call by which `pickle` makes these dynamics in another process.

        Registered dynamics, perhaps with other parameters, are looked up by id there
        (`_find_registered`). Others are constructed from their fields, in which a function travels
        as the name of its module and its own name. What a transform of `rlcpu.envs.transforms`
        returned is transformed anew there (`_transform_again`), since the functions that it defined
        have no importable name. `state` travels as a layout, which `Dynamics` takes as well as a
        class.

        Raises:
            pickle.PicklingError: it is not registered, and a function, or the class of the params,
                has no name that another process could import it by.
        """
        if self.is_registered:
            return functools.partial(_find_registered, self.id, self.settings()), ()
        names = [field.name for field in dataclasses.fields(self) if field.init]
        fields = {name: getattr(self, name) for name in names} | {"varied": dict(self.varied)}
        if self.transform is not None:
            del fields["state"], fields["transform"]  # the transform makes these again
            package = self.transform.func.__module__.rpartition(".")[0]
            for name in (*self.functions, "picture"):  # and the functions that it has defined
                if getattr(fields[name], "__module__", "").startswith(package):
                    del fields[name]
            for value in self.transform.args:
                if isinstance(value, types.FunctionType):
                    check_importable(self, "a function of its transform", value)
        for name in (*self.functions, "picture"):
            if fields.get(name) is not None:
                check_importable(self, name, fields[name])
        check_importable(self, "params", type(self.params))
        make = functools.partial(_transform_again, self.transform) if self.transform else Dynamics
        return functools.partial(make, **fields), ()

    @property
    def is_registered(self) -> bool:
        """Tell whether it is the registered environment of its id, but for its parameters.

        `with_params(**settings())` of that one is equal to it.
        """
        known: Dynamics | None = registry.lookup(self.id)
        names = {field.name for field in dataclasses.fields(self) if field.init}
        compared = names - {"params", "varied"}
        return known is not None and all(getattr(known, n) == getattr(self, n) for n in compared)

    @property
    def origin(self) -> Dynamics:
        """Return the environment before all transforms."""
        return self.transform.args[0].origin if self.transform else self

    def constants(self) -> dict[str, float]:
        """Return the constants of the module of `step`, by name in lower case: {"gravity": 9.8}.

        An environment has them as attributes beside its parameters, as Gymnasium's have.
        """
        names = self.origin.step.__globals__.items()
        return {k.lower(): v for k, v in names if k.isupper() and type(v) in (int, float)}

    @property
    def has_arrays(self) -> bool:
        """Tell whether a state holds arrays, into which `step` and `reset` write."""
        return isinstance(self.state, ArrayLayout)

    @property
    def writes_observation(self) -> bool:
        """Tell whether `observe` writes into an array, `out`."""
        return self.has_arrays and "out" in inspect.signature(self.observe).parameters

    @property
    def written_shape(self) -> tuple[int, ...]:
        """Return the shape of `out`; () where `observe` returns an observation."""
        is_floats = self.writes_observation and not is_int_array(self.observation_space)
        return self.observation_space.shape or () if is_floats else ()

    @property
    def writes_mask(self) -> bool:
        """Tell whether `action_mask` writes into an array, `out`."""
        mask = self.action_mask
        return mask is not None and "out" in inspect.signature(mask).parameters

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the names of the scalar functions."""
        return tuple(
            name for name in FUNCTIONS if name not in OPTIONAL or getattr(self, name) is not None
        )

    def observed_as(self, dtype: Any) -> Box | Discrete | MultiBinary | Dict:
        """Return the observation space for states of a dtype: here the same for any.

        An engine of other environments, such as that of MuJoCo, overrides it.
        """
        return self.observation_space

    def policy_observations(self, observations: Any) -> Any:
        """Return observations of the environment as policies take them: here they are the same.

        An environment of Gymnasium may have another form.
        """
        return observations

    def own_actions(self, actions: Any) -> Any:
        """Return actions of policies in the form of the environment's space; see above."""
        return actions

    def describe_actions(self) -> str:
        """Return the text of the environment's action space, for messages."""
        return str(self.action_space)

    def describe_numbers(self) -> str:
        """Return what numbers of policies are in the environment, "" where they are the same."""
        return ""

    def shown_params(self, values: Mapping[str, Any]) -> Any:
        """Return the params to draw one environment with, of its varied and randomized numbers."""
        return self.params._replace(**values)

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `with_params` that turn the registered environment into it."""
        varied = {name: values.tolist() for name, values in self.varied.items()}
        return {**self.params._asdict(), **varied}

    def resized(self, num_envs: int, first: int = 0) -> Dynamics:
        """Return the dynamics for `num_envs` environments.

        Only `varied` depends on their number: environment i gets the values of environment `first +
        i` of this one, which start again after the last.
        """
        if not self.varied:
            return self
        rows = np.arange(first, first + num_envs)
        varied = {name: values[rows % len(values)] for name, values in self.varied.items()}
        return self.with_params(**varied)

    def draw_params(self, rng: Any, params: Any = None) -> Any:
        """Return the params of a new episode: those that `randomize` draws replaced.

        Args:
            rng: an `Rng`, in plain Python.
            params: params before the draw; by default `self.params`.
        """
        params = self.params if params is None else params
        if self.randomize is None:
            return params
        drawn = self.randomize(rng, params)
        return with_numbers(params, {name: getattr(drawn, name) for name in self.randomized})

    def sample_start(self) -> tuple[Any, Any]:
        """Return (state, params) after one reset in plain Python, all random numbers 0.5."""
        params = self.draw_params(TrialRng(0.5))
        draws = trial_draws(self, "reset", 0.5)
        return call_function(self, "reset", self.reset, draws, params), params

    def sample_observation(self) -> Any:
        """Return the observation after `sample_start`."""
        result = call_function(self, "observe", self.observe, *self.sample_start())
        return getattr(result, INT_ARRAY) if is_int_array(self.observation_space) else result

    def sample_mask(self) -> Any:
        """Return the action mask after `sample_start`, a tuple or the array that it has written."""
        mask = mask_of(self, *self.sample_start())
        return np.array(mask) if self.writes_mask else mask

    @property
    def observation_size(self) -> int:
        """Return how many numbers a network gets for an observation.

        A choice of n is n zeros and ones (one-hot), a plane one zero or one for each of its cells.
        """
        return num_inputs(self.observation_space)

    @functools.cached_property
    def observation(self) -> Layout | ArrayLayout:
        """Return the layout of an observation.

        Raises:
            TypeError: `observe` returns no NamedTuple of the parts of a `Dict`.
        """
        space = self.observation_space
        if is_int_array(space) or (isinstance(space, Dict) and self.writes_observation):
            return written_layout(space)
        if isinstance(space, Dict):
            return returned_layout(self.id, space, self.sample_observation())
        if isinstance(space, Discrete):
            field = Field(name="", kind="int", size=0)  # a number, and no tuple of them
        elif isinstance(space, MultiBinary):
            field = Field(name="", kind="board", size=space.shape[0])
        elif self.writes_observation:
            field = Field(name="", kind="array", size=self.observation_size)
        else:
            return floats(self.observation_size)
        return Layout(value_class=None, fields=(field,))

    @property
    def state_size(self) -> int:
        """Return how many numbers a state has; a board counts as one."""
        return sum(max(field.size, 1) for field in self.state.fields)

    def takes_rng(self, name: str) -> bool:
        """Tell whether one of the functions takes an `Rng`, not a tuple of `uniforms`."""
        return "rng" in inspect.signature(getattr(self, name)).parameters

    @property
    def is_discrete(self) -> bool:
        """Tell whether actions are whole numbers, one or several."""
        return not isinstance(self.action_space, Box)

    @property
    def action_size(self) -> int:
        """Return the numbers in the action of a `Box` or `MultiDiscrete`; 0 for a `Discrete`."""
        return 0 if isinstance(self.action_space, Discrete) else int(self.action_space.shape[0])

    @property
    def choices(self) -> tuple[int, ...]:
        """Return the choices of each number of a `MultiDiscrete`; () for other actions."""
        space = self.action_space
        return tuple(space.nvec.tolist()) if isinstance(space, MultiDiscrete) else ()

    @property
    def num_actions(self) -> int:
        """Return the choices of a `Discrete`; 0 for others."""
        return int(self.action_space.n) if isinstance(self.action_space, Discrete) else 0

    @property
    def num_choices(self) -> int:
        """Return the choices of a `Discrete`, or of all numbers of a `MultiDiscrete`; or 0."""
        return sum(self.choices) or self.num_actions

    @property
    def num_masked(self) -> int:
        """Return of how many choices a mask tells: of all, or 0 without `action_mask`."""
        return self.num_choices if self.action_mask else 0

    def with_params(self, **params: Any) -> Dynamics:
        """Return the environment with other parameters.

        Args:
            **params: new values by name: numbers for run-time parameters, or arrays (num_envs,) of
                one number for each environment, and bools for options.

        Raises:
            TypeError: for an unknown name, or a value of the wrong kind.
            ValueError: for a NaN, or values with which a trial step fails or is not finite.
        """
        unknown = sorted(params.keys() - set(self.params._fields))
        if unknown:
            hint = hint_at(unknown[0], (*self.params._fields, "num_envs"))
            valid = ", ".join(self.params._fields) or "none"
            reason = f"{self.id} has no parameter {', '.join(unknown)}; it has: {valid}"
            raise TypeError(f"{reason}; {hint}" if hint else reason)
        numbers, varied = {}, dict(self.varied)
        for name, value in params.items():
            if is_array(value):
                varied[name] = value
                continue
            if is_bool(value) != is_bool(getattr(self.params, name)):
                kind = "a number" if is_bool(value) else "True or False"
                raise TypeError(f"{self.id}: {name}={value!r} has to be {kind}")
            numbers[name] = value
            varied.pop(name, None)  # from now on the same for all environments
        try:
            return dataclasses.replace(self, params=self.params._replace(**numbers), varied=varied)
        except ValueError as error:
            shown = ", ".join(f"{name}={value!r}" for name, value in numbers.items())
            raise ValueError(f"{error} (with {shown})" if shown else str(error)) from error


def _find_registered(id: str, params: dict[str, Any]) -> Dynamics:
    """Return the registered environment with other parameters; `pickle` calls it."""
    dynamics: Dynamics | None = registry.lookup(id)
    if dynamics is None:
        raise ValueError(f"{id} is not registered in this process, as it was where it was pickled")
    return dynamics.with_params(**params) if params else dynamics


def _transform_again(transform: Callable[[], Dynamics], **fields: Any) -> Dynamics:
    """Return what a call of a function of `rlcpu.envs.transforms` returns, with other fields.

    `pickle` calls it.
    """
    return dataclasses.replace(transform(), **fields)


def check_importable(dynamics: Dynamics, name: str, value: Any) -> None:
    """Raise unless `pickle` can refer to a function or class by its module and name."""
    module: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        module = getattr(module, part, None)
    if module is not value:
        raise pickle.PicklingError(
            f"{dynamics.id}: {name} is {value.__module__}.{value.__qualname__}, which pickle "
            "cannot find by that name: define it at the top level of a module, by `def` or `class`"
        )
