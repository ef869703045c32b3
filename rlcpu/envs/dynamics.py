"""The contract of an environment: what its author writes and what every driver relies on."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
import pickle
import re
import sys
import types
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from rlcpu.envs.layout import Field, Layout, fault_of, floats, layout_of
from rlcpu.kernels.boards import CELLS
from rlcpu.kernels.checks import as_numbers, check_count
from rlcpu.kernels.source import EndlessError, call_bounded, check_source

#: Trial resets draw these uniforms: both ends of [0, 1) on a 24-bit grid, and its middle.
_TRIAL_UNIFORMS = (0.0, 0.5, 1.0 - 2.0**-24)
_ARGUMENTS = {
    "step": ("state", "action", "params", "{draws}"),
    "reset": ("{draws}", "params"),
    "observe": ("state", "params"),
    "randomize": ("rng", "params"),
    "action_mask": ("state", "params"),
}
_OPTIONAL = ("randomize", "action_mask")


def identity(state: tuple[float, ...], params: Any) -> tuple[float, ...]:
    """The observation of an environment that shows its whole state."""
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

    - `math` is for mathematics, and NumPy's functions of numbers work, `np.clip` too.
    - Real numbers are written as floats (`2.0 * x`): an integer that meets a float32 would make a
      float64. Choices are ternaries, `min` and `max`, which vectorise; loops run over `range()`.
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

    A step has to end: one trial call is stopped after two million instructions of Python, a kernel
    is not.

    Attributes:
        id: name and version, such as "CartPole-v1".
        step: (state, action, params) -> (new_state, reward, terminated), and as a fourth value
            truncated, if the environment cuts episodes itself; with random numbers,
            (state, action, params, rng) or, with `step_draws`, (state, action, params, uniforms).
        reset: (rng, params) or (uniforms, params) -> state.
        observe: (state, params) -> observation; by default the state itself.
        action_mask: (state, params) -> a tuple of one bool for each action of a `Discrete`, which
            says whether a policy may choose it in this state; None if it may always choose any. It
            has to allow one action at least, unless the episode has ended. `VectorEnv.step` itself
            takes all actions.
        observation_space: one environment's: a float32 `Box`, (observation_size,), `Discrete(n)` or
            `MultiBinary((planes, rows, columns))`.
        action_space: one environment's: `Discrete(n)`, `MultiDiscrete`, of which an action is a
            tuple of ints, or a float32 `Box`, (action_size,).
        params: NamedTuple of defaults, each of which a user can override by name. Its numbers
            become floats and are read at run time: changing one compiles nothing. Its bools are
            constants of the machine code: an option that is off costs nothing.
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
        state: what a state is made of (found by a trial reset).
        truncates: whether `step` returns `truncated` (found by a trial step).
        randomized: names of what `randomize` draws (found by a trial).

    Raises:
        TypeError, ValueError: at construction, naming the argument, its value and what was
            expected. The functions are tried on a few states and actions first, so that a wrong
            number or type of results is reported before anything is compiled.

    Example:
        >>> from rlcpu.envs.cartpole import DYNAMICS
        >>> DYNAMICS.with_params(gravity=1.6).params.gravity
        1.6
    """

    id: str
    step: Callable[..., Any]
    reset: Callable[..., Any]
    observe: Callable[..., Any] = identity
    action_mask: Callable[..., Any] | None = None
    observation_space: Box | Discrete | MultiBinary
    action_space: Box | Discrete | MultiDiscrete
    params: Any
    reset_draws: int = 0
    step_draws: int = 0
    randomize: Callable[..., Any] | None = None
    varied: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    reset_options: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    original: str | None = None
    picture: Callable[[Any, Any], Any] | None = None
    state: Layout = dataclasses.field(init=False)
    truncates: bool = dataclasses.field(init=False)
    randomized: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        _check_description(self)
        _check_spaces(self)
        for name in self.functions:
            _check_signature(self, name)
            _check_source(self, name)
        params = _convert_params(self.id, self.params)
        varied = _convert_varied(self, params)
        object.__setattr__(self, "varied", types.MappingProxyType(varied))
        params = params._replace(**{name: float(values[0]) for name, values in varied.items()})
        object.__setattr__(self, "params", params)
        object.__setattr__(self, "randomized", _find_randomized(self))
        _check_reset_options(self)
        state, truncates = _try_functions(self)
        object.__setattr__(self, "state", state)
        object.__setattr__(self, "truncates", truncates)

    def __copy__(self) -> Dynamics:
        return self  # nothing in it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Dynamics:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        """What makes it again, from its id or from its functions by name, and tries them again.

        Raises:
            pickle.PicklingError: it is not registered, and a function, or the class of the params,
                has no name that another process could import it by.
        """
        own = known.get(self.id)
        if own is not None and all(getattr(own, n) is getattr(self, n) for n in _ARGUMENTS):
            return functools.partial(_find, self.id, self.settings()), ()
        for name in (*self.functions, "params"):
            value = getattr(self, name)
            _check_importable(self, name, type(value) if name == "params" else value)
        names = (field.name for field in dataclasses.fields(self) if field.init)
        fields = {name: getattr(self, name) for name in names} | {"varied": dict(self.varied)}
        return functools.partial(Dynamics, **fields), ()

    #: What runs it in the place of `rlcpu.envs.batch`, if another engine does.
    engine: ClassVar[Any] = None

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of its scalar functions."""
        return tuple(
            name for name in _ARGUMENTS if name not in _OPTIONAL or getattr(self, name) is not None
        )

    def observed_as(self, dtype: Any) -> Box | Discrete | MultiBinary:
        """The observation space of environments of a dtype."""
        return self.observation_space

    def settings(self) -> dict[str, Any]:
        """What `with_params` of the registered environment takes to give this one."""
        varied = {name: values.tolist() for name, values in self.varied.items()}
        return {**self.params._asdict(), **varied}

    def resized(self, num_envs: int) -> Dynamics:
        """The same for another number of environments, among which `varied` goes round."""
        if not self.varied:
            return self
        varied = {name: np.resize(values, num_envs) for name, values in self.varied.items()}
        return dataclasses.replace(self, varied=varied)

    def draw_params(self, rng: Any, params: Any = None) -> Any:
        """The params of a new episode, in plain Python: what `randomize` changes of `params`."""
        params = self.params if params is None else params
        if self.randomize is None:
            return params
        drawn = self.randomize(rng, params)
        return params._replace(**{name: getattr(drawn, name) for name in self.randomized})

    def sample_start(self) -> tuple[Any, Any]:
        """State and params after one reset."""
        params = self.draw_params(_TrialRng(0.5))
        return self.reset(trial_draws(self, "reset", 0.5), params), params

    def sample_observation(self) -> Any:
        """The observation of one reset."""
        return self.observe(*self.sample_start())

    @property
    def observation_size(self) -> int:
        """Numbers that a network sees of an observation; choices and planes are zeros and ones."""
        if isinstance(self.observation_space, Discrete):
            return int(self.observation_space.n)
        return math.prod(self.observation_space.shape)

    @property
    def observation(self) -> Layout:
        """What an observation is made of."""
        if isinstance(self.observation_space, Discrete):
            return Layout(None, (Field("", "int", 0),))
        if isinstance(self.observation_space, MultiBinary):
            return Layout(None, (Field("", "board", self.observation_space.shape[0]),))
        return floats(self.observation_size)

    @property
    def state_size(self) -> int:
        """Numbers in a state; a board counts as one."""
        return sum(max(field.size, 1) for field in self.state.fields)

    def takes_rng(self, name: str) -> bool:
        """Whether one of the functions takes an `Rng`, not a tuple of `uniforms`."""
        return "rng" in inspect.signature(getattr(self, name)).parameters

    @property
    def is_discrete(self) -> bool:
        """Whether actions are whole numbers, one or several."""
        return not isinstance(self.action_space, Box)

    @property
    def action_size(self) -> int:
        """Numbers in the action of a `Box` or a `MultiDiscrete`; 0 for a `Discrete`."""
        return 0 if isinstance(self.action_space, Discrete) else int(self.action_space.shape[0])

    @property
    def choices(self) -> tuple[int, ...]:
        """Choices of each number of a `MultiDiscrete`; () for other actions."""
        space = self.action_space
        return tuple(space.nvec.tolist()) if isinstance(space, MultiDiscrete) else ()

    @property
    def num_actions(self) -> int:
        """Choices of a `Discrete`; 0 for others."""
        return int(self.action_space.n) if isinstance(self.action_space, Discrete) else 0

    @property
    def num_masked(self) -> int:
        """Actions that a mask tells of: all of them, or 0 without `action_mask`."""
        return self.num_actions if self.action_mask else 0

    def with_params(self, **params: Any) -> Dynamics:
        """The same environment with other parameters.

        Args:
            **params: new values by name: numbers for run-time parameters, or arrays (num_envs,) of
                one number for each environment, and bools for options.

        Raises:
            TypeError: for an unknown name, or a value of the wrong kind.
            ValueError: for a NaN, or values with which a trial step fails or is not finite.
        """
        varied = {name: value for name, value in params.items() if _is_array(value)}
        unknown = sorted(params.keys() - set(self.params._fields))
        if unknown:
            valid = ", ".join(self.params._fields) or "none"
            raise TypeError(f"{self.id} has no parameter {', '.join(unknown)}; it has: {valid}")
        numbers = {name: value for name, value in params.items() if name not in varied}
        for name, value in numbers.items():
            if _is_bool(value) != _is_bool(getattr(self.params, name)):
                kind = "a number" if _is_bool(value) else "True or False"
                raise TypeError(f"{self.id}: {name}={value!r} has to be {kind}")
        kept = {name: values for name, values in self.varied.items() if name not in numbers}
        changes = {"params": self.params._replace(**numbers), "varied": {**kept, **varied}}
        try:
            return dataclasses.replace(self, **changes)
        except ValueError as error:
            given = ", ".join(f"{name}={value!r}" for name, value in numbers.items())
            raise ValueError(f"{error} (with {given})" if given else str(error)) from error


#: The registered environments by their ids; see `rlcpu.envs.register`.
known: dict[str, Dynamics] = {}


def _find(id: str, params: dict[str, Any]) -> Dynamics:
    """A registered environment with other parameters, for pickle."""
    from rlcpu.envs.games import GAMES, games  # they are made when one of them is asked for

    if id not in known and id in GAMES:
        known.update(games())
    if id not in known:
        raise ValueError(f"{id} is not registered in this process, as it was where it was pickled")
    return known[id].with_params(**params) if params else known[id]


def _check_importable(dynamics: Dynamics, name: str, value: Any) -> None:
    """Raise unless `pickle` can refer to a function or class by its module and name."""
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise pickle.PicklingError(
            f"{dynamics.id}: {name} is {value.__module__}.{value.__qualname__}, which pickle "
            "cannot find by that name: define it at the top level of a module, by `def` or `class`"
        )


def _check_description(dynamics: Dynamics) -> None:
    """Check the fields that are plain names and counts; a count such as 1e3 becomes an int."""
    name = dynamics.id
    if not isinstance(name, str) or not re.fullmatch(r"([\w.:-]+/)?[\w.:-]+-v\d+", name):
        raise ValueError(f'id={name!r} has to be a name and a version, such as "CartPole-v1"')
    counts = {"reset_draws": 0, "step_draws": 0, "max_episode_steps": 1}
    for field, least in counts.items():
        value = getattr(dynamics, field)
        if value is None and field == "max_episode_steps":
            continue
        object.__setattr__(dynamics, field, check_count(f"{name}: {field}", value, least))
    threshold, original = dynamics.reward_threshold, dynamics.original
    if threshold is not None and (_is_bool(threshold) or not isinstance(threshold, Real)):
        raise TypeError(f"{name}: reward_threshold={threshold!r} has to be a number or None")
    if dynamics.picture is not None and not callable(dynamics.picture):
        raise TypeError(f"{name}: picture={dynamics.picture!r} has to be a function or None")
    if original is not None and not isinstance(original, str):
        raise TypeError(f"{name}: original={original!r} has to be an id of Gymnasium or None")


def _check_spaces(dynamics: Dynamics) -> None:
    for field in ("observation_space", "action_space"):
        space, start = getattr(dynamics, field), f"{dynamics.id}: {field}"
        if isinstance(space, Discrete):
            if space.start != 0:
                raise ValueError(f"{start}={space} has to start at 0")
        elif field == "action_space" and isinstance(space, MultiDiscrete):
            if space.nvec.ndim != 1 or space.nvec.size == 0 or space.start.any():
                raise ValueError(f"{start}={space} has to be of one axis and to start at 0")
        elif field == "observation_space" and isinstance(space, MultiBinary):
            if len(space.shape) != 3 or math.prod(space.shape[1:]) > CELLS:
                shape = f"(planes, rows, columns), at most {CELLS} cells a plane"
                raise ValueError(f"{start}={space} has to be of {shape}")
        elif not (
            isinstance(space, Box)
            and len(space.shape) == 1
            and space.shape[0] > 0
            and space.dtype == np.float32
        ):
            others = "MultiBinary" if field == "observation_space" else "MultiDiscrete"
            kinds = f"a float32 Box of one dimension, Discrete or {others}"
            raise TypeError(f"{start}={space!r} has to be {kinds}")
    if dynamics.action_mask is not None and not isinstance(dynamics.action_space, Discrete):
        raise TypeError(
            f"{dynamics.id}: action_mask={dynamics.action_mask!r} has to be None with "
            f"action_space={dynamics.action_space!r}: masks are for Discrete"
        )


def _check_signature(dynamics: Dynamics, name: str) -> None:
    """Check that a function is plain Python and takes the arguments that drivers give it."""
    function = getattr(dynamics, name)
    if not isinstance(function, types.FunctionType):
        hint = "; give its py_func" if hasattr(function, "py_func") else ""
        raise TypeError(
            f"{dynamics.id}: {name}={function!r} has to be a plain Python function, "
            f"got {type(function).__name__}{hint}"
        )
    signature = inspect.signature(function)
    if name == "randomize" and "rng" not in signature.parameters:
        raise TypeError(f"{dynamics.id}: randomize has to take (rng, params); it takes {signature}")
    try:
        signature.bind(*_arguments(dynamics, name))
    except TypeError:
        expected = ", ".join(_arguments(dynamics, name))
        raise TypeError(
            f"{dynamics.id}: {name} has to take ({expected}) with "
            f"step_draws={dynamics.step_draws}; it takes {signature}"
        ) from None
    if name in ("step", "reset") and dynamics.takes_rng(name):
        draws = getattr(dynamics, f"{name}_draws")
        if draws:
            raise ValueError(
                f"{dynamics.id}: {name}_draws={draws}: {name} takes `rng`, which gives as many "
                "numbers as it is asked for; leave it out"
            )


def _check_source(dynamics: Dynamics, name: str) -> None:
    try:
        check_source(getattr(dynamics, name))
    except TypeError as error:
        raise TypeError(f"{dynamics.id}: {error}") from None


def _arguments(dynamics: Dynamics, name: str) -> tuple[str, ...]:
    """Names of the arguments that drivers give to a function."""
    if name in ("observe", "randomize", "action_mask"):
        return _ARGUMENTS[name]
    rng = dynamics.takes_rng(name)
    names = tuple(each.format(draws="rng" if rng else "uniforms") for each in _ARGUMENTS[name])
    return names[:-1] if name == "step" and not (rng or dynamics.step_draws) else names


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_array(value: Any) -> bool:
    """Whether a parameter is one number for each environment."""
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0


def _convert_params(name: str, params: Any) -> Any:
    """The params with every bool a bool and every number a float."""
    if not isinstance(params, tuple) or not hasattr(params, "_fields"):
        raise TypeError(
            f"{name}: params={params!r} has to be an instance of a NamedTuple class, "
            f"got {params.__name__ if isinstance(params, type) else type(params).__name__}"
        )
    for field, value in zip(params._fields, params, strict=True):
        if not _is_bool(value) and not isinstance(value, Real):
            raise TypeError(f"{name}: {field}={value!r} has to be a number, True or False")
        try:
            wrong = "not NaN" if math.isnan(value) else ""
        except OverflowError:
            wrong = "at most 1.8e308"
        if wrong:
            raise ValueError(f"{name}: {field}={value!r} has to be a number, {wrong}")
    kind: Any = type(params)
    return kind(*(bool(v) if _is_bool(v) else float(v) for v in params))


def _convert_varied(dynamics: Dynamics, params: Any) -> dict[str, npt.NDArray[np.float64]]:
    """What varies, as arrays that cannot be written."""
    given = dynamics.varied
    if not isinstance(given, Mapping):
        what = "a dict from names of params to arrays (num_envs,)"
        raise TypeError(f"{dynamics.id}: varied={given!r} has to be {what}")
    return {name: _varied_of(dynamics.id, params, name, each) for name, each in given.items()}


def _varied_of(id: str, params: Any, name: str, values: Any) -> npt.NDArray[np.float64]:
    """The values of one parameter in all environments."""
    if name not in params._fields:
        raise TypeError(f"{id} has no parameter {name}; it has: {', '.join(params._fields)}")
    if _is_bool(getattr(params, name)):
        raise TypeError(
            f"{id}: {name} has to be True or False, the same in all environments: it is an option "
            "of the machine code"
        )
    given = as_numbers(f"{id}: {name}", values)
    if given.ndim != 1 or given.size == 0:
        raise ValueError(f"{id}: {name} has shape {given.shape}: expected (num_envs,)")
    bad = np.flatnonzero(np.isnan(given))
    if len(bad):
        raise ValueError(f"{id}: {name}[{bad[0]}]={given[bad[0]]} has to be a number, not NaN")
    kept = given.astype(np.float64)
    kept.setflags(write=False)
    return kept


def _find_randomized(dynamics: Dynamics) -> tuple[str, ...]:
    """What `randomize` draws, from trials of it."""
    names: tuple[str, ...] = ()
    if dynamics.randomize is None:
        return names
    for uniform in _TRIAL_UNIFORMS:
        drawn = _call(dynamics, "randomize", _TrialRng(uniform), dynamics.params)
        found = drawn_names(dynamics, drawn)
        if names and found != names:
            raise TypeError(
                f"{dynamics.id}: randomize has to return the same names each time; returned "
                f"{', '.join(found)} after {', '.join(names)}"
            )
        names = found
    return names


def drawn_names(dynamics: Dynamics, drawn: Any) -> tuple[str, ...]:
    """Names of what `randomize` returned."""
    defaults = dynamics.params._asdict()
    valid = [name for name, value in defaults.items() if not _is_bool(value)]
    start = f"{dynamics.id}: randomize has to return a NamedTuple of numbers of params"
    if not isinstance(drawn, tuple) or not getattr(drawn, "_fields", ()):
        raise TypeError(f"{start}; returned {drawn!r}")
    values: dict[str, Any] = drawn._asdict()  # type: ignore[attr-defined]
    if type(drawn) is type(dynamics.params):
        values = {name: values[name] for name in valid if name not in dynamics.varied}
    for name, value in values.items():
        if name not in valid:
            raise TypeError(f"{start} ({', '.join(valid)}); returned {name}={value!r}")
        if name in dynamics.varied:
            raise TypeError(f"{dynamics.id}: randomize draws {name}, which is given as an array")
        if _is_bool(value) or not isinstance(value, Real) or math.isnan(value):
            raise TypeError(f"{start}, not NaN; returned {name}={value!r}")
    return tuple(values)


def _check_reset_options(dynamics: Dynamics) -> None:
    if not isinstance(dynamics.reset_options, Mapping):
        raise TypeError(
            f"{dynamics.id}: reset_options={dynamics.reset_options!r} has to be a dict from "
            "option names to tuples of fields of params"
        )
    for option, fields in dynamics.reset_options.items():
        valid = [f for f in dynamics.params._fields if not _is_bool(getattr(dynamics.params, f))]
        if not isinstance(fields, tuple) or not set(fields) <= set(valid):
            raise ValueError(
                f"{dynamics.id}: reset_options[{option!r}]={fields!r} has to be a tuple of "
                f"run-time parameters ({', '.join(valid)})"
            )


class _TrialRng:
    """An `Rng` that always draws the same number."""

    def __init__(self, number: float) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"Rng(uniform={self._number})"

    def uniform(self, k: int) -> float:
        """See `Rng`."""
        return self._number

    def integers(self, k: int, n: int) -> int:
        """See `Rng`."""
        return int(self._number * n)


def trial_draws(dynamics: Dynamics, name: str, number: float) -> Any:
    """What a function takes as its random numbers."""
    if dynamics.takes_rng(name):
        return _TrialRng(number)
    return (number,) * getattr(dynamics, f"{name}_draws")


def _try_functions(dynamics: Dynamics) -> tuple[Layout, bool]:
    """Reset, observe and take up to three steps from a few starts, with actions that are allowed.

    Returns:
        What a state is made of, and whether `step` truncates.
    """
    layout, results = floats(0), 0
    for uniform, given in itertools.product(_TRIAL_UNIFORMS, _trial_params(dynamics)):
        draws = trial_draws(dynamics, "reset", uniform)
        params = dynamics.draw_params(_TrialRng(uniform), given)
        start = _call(dynamics, "reset", draws, params)
        if layout == floats(0):
            layout = layout_of(start, dynamics.id)
        _check_value(dynamics, "reset", "state", start, layout)
        for last in (False, True):
            state, terminated, steps = start, False, 0
            while not terminated and steps < 3:
                _try_observe(dynamics, state, params)
                action = _trial_action(dynamics, last, _try_mask(dynamics, state, params, steps))
                inputs = (state, action, params, trial_draws(dynamics, "step", uniform))
                result = _call(dynamics, "step", *inputs[: len(_arguments(dynamics, "step"))])
                results = results or (len(result) if isinstance(result, tuple) else 3)
                _check_step(dynamics, result, layout, results)
                state, terminated, steps = result[0], any(result[2:]), steps + 1
            _try_observe(dynamics, state, params)
            if dynamics.action_mask:
                mask_of(dynamics, state, params)
    return layout, results == 4


def _trial_params(dynamics: Dynamics) -> list[Any]:
    """The params of those environments in which one that varies is lowest or highest."""
    ends = {int(end) for v in dynamics.varied.values() for end in (v.argmin(), v.argmax())}
    return [params_of(dynamics, i) for i in sorted(ends)] or [dynamics.params]


def params_of(dynamics: Dynamics, i: int) -> Any:
    """The params that environment i was given."""
    numbers = {name: float(values[i]) for name, values in dynamics.varied.items()}
    return dynamics.params._replace(**numbers)


def _try_observe(dynamics: Dynamics, state: Any, params: Any) -> None:
    observation = _call(dynamics, "observe", state, params)
    _check_value(dynamics, "observe", "observation", observation, dynamics.observation)
    fault = outside(dynamics, observation)
    if fault:
        raise ValueError(f"{dynamics.id}: observe returned {fault}, for state={state!r}")


def outside(dynamics: Dynamics, observation: Any) -> str:
    """What of an observation of whole numbers or boards lies outside its space; "" if nothing."""
    space = dynamics.observation_space
    if isinstance(space, Discrete) and not 0 <= observation < space.n:
        return f"{observation}: expected 0 to {space.n - 1}"
    if isinstance(space, MultiBinary):
        cells = math.prod(space.shape[1:])
        for plane, board in enumerate(observation):
            if board >> cells:
                return f"cell {board.bit_length() - 1} of plane {plane}: expected 0 to {cells - 1}"
    return ""


def _try_mask(dynamics: Dynamics, state: Any, params: Any, steps: int) -> list[int]:
    """The actions that are allowed."""
    if dynamics.action_mask is None:
        return list(range(dynamics.num_actions))
    mask = mask_of(dynamics, state, params)
    allowed = [action for action, is_allowed in enumerate(mask) if is_allowed]
    if not allowed:
        raise ValueError(
            f"{dynamics.id}: action_mask allows nothing in step {steps} of an episode, for "
            f"state={state!r}: expected one action at least"
        )
    return allowed


def mask_of(dynamics: Dynamics, state: Any, params: Any) -> tuple[bool, ...]:
    """The action mask of a state.

    Raises:
        TypeError, ValueError: it is no tuple of one bool for each action.
    """
    mask: tuple[bool, ...] = _call(dynamics, "action_mask", state, params)
    count = dynamics.num_actions
    wanted = f"{dynamics.id}: action_mask has to return a tuple of {count} bools (True, not 1)"
    if not isinstance(mask, tuple) or not all(map(_is_bool, mask)):
        raise TypeError(f"{wanted}; returned {mask!r}")
    if len(mask) != count:
        raise ValueError(f"{wanted}; returned {len(mask)}: {mask!r}")
    return mask


def _trial_action(dynamics: Dynamics, last: bool, allowed: list[int]) -> Any:
    """First or last allowed action of a `Discrete`, lowest or highest of others."""
    space = dynamics.action_space
    if isinstance(space, Discrete):
        return allowed[-1 if last else 0]
    if isinstance(space, MultiDiscrete):
        return tuple(count - 1 if last else 0 for count in dynamics.choices)
    return tuple(map(float, np.clip(space.high if last else space.low, -1e3, 1e3)))


def _call(dynamics: Dynamics, name: str, *inputs: Any) -> Any:
    try:
        return call_bounded(getattr(dynamics, name), *inputs)
    except EndlessError as error:
        raise ValueError(
            f"{dynamics.id}: {name} does not end: {error} is run again and again"
        ) from None
    except Exception as error:
        given = ", ".join(
            f"{k}={v!r}" for k, v in zip(_arguments(dynamics, name), inputs, strict=False)
        )
        raise ValueError(f"{dynamics.id}: {name} raised {error!r} for {given}") from error


def _check_step(dynamics: Dynamics, result: Any, layout: Layout, results: int) -> None:
    start = f"{dynamics.id}: step has to return"
    if not isinstance(result, tuple) or len(result) not in (3, 4):
        raise TypeError(f"{start} (new_state, reward, terminated); returned {result!r}")
    if len(result) != results:
        raise TypeError(
            f"{start} as many values each time; returned {len(result)} after {results}: {result!r}"
        )
    new_state, reward, *flags = result
    _check_value(dynamics, "step", "new_state", new_state, layout)
    if not isinstance(reward, float | np.floating):
        raise TypeError(f"{start} reward as a float (1.0, not 1); returned {reward!r}")
    if not math.isfinite(reward):
        raise ValueError(f"{start} a finite reward; returned {reward!r}")
    for name, flag in zip(("terminated", "truncated"), flags, strict=False):
        if not _is_bool(flag):
            raise TypeError(f"{start} {name} as a bool; returned {flag!r}")


def _check_value(dynamics: Dynamics, name: str, what: str, value: Any, layout: Layout) -> None:
    """Raise unless a value is what its layout says."""
    if layout.is_plain:
        _check_numbers(dynamics, name, what, value, layout.fields[0].size)
        return
    fault = fault_of(layout, value)
    if fault:
        raise TypeError(f"{dynamics.id}: {name} has to return {what} as {fault}")


def _check_numbers(dynamics: Dynamics, name: str, what: str, values: Any, size: int) -> None:
    """Raise unless `values` is a tuple of `size` finite floats."""
    start = f"{dynamics.id}: {name} has to return {what} as a tuple of {size} floats"
    if not isinstance(values, tuple):
        raise TypeError(f"{start}; returned {values!r}")
    if len(values) != size:
        raise ValueError(f"{start}; returned {len(values)}: {values!r}")
    if not all(isinstance(value, float | np.floating) for value in values):
        raise TypeError(f"{start} (1.0, not 1); returned {values!r}")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"{start} that are finite; returned {values!r}")
