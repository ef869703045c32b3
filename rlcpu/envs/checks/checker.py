"""`rlcpu.envs.check`: what is wrong with an environment, found by running it.

A `Dynamics` is plain Python that is also compiled. Here it is played at random in plain Python, its
tables replaced by ones that watch their indices; then the kernels take the same single steps from
the same states, in float64 and in float32. Trajectories are never compared: they part after some
steps, however small the error of one.
"""

from __future__ import annotations

import copy
import math
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from rlcpu.envs.checks import watched
from rlcpu.envs.checks.fields import params_of, with_numbers
from rlcpu.envs.checks.findings import Findings, Report, plain_value
from rlcpu.envs.checks.reached import Reached
from rlcpu.envs.checks.trial import call_function, check_result, outside
from rlcpu.envs.checks.vectorised import ONE_AT_A_TIME, describe_drivers, find_driver
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine import arrays
from rlcpu.envs.engine.arrays import ArrayLayout, State, fields_of
from rlcpu.envs.engine.groups import INT_ARRAY
from rlcpu.envs.engine.lane import reasons_of_policies, structure
from rlcpu.envs.engine.layout import Layout
from rlcpu.envs.engine.rollout import collect_kernels, simulate_kernels
from rlcpu.envs.engine.steps import step_kernels
from rlcpu.envs.policies import Uniform
from rlcpu.envs.registration import find
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.kernels.random import (
    RANDOMIZE_GROUP,
    RESET_GROUP,
    STEP_GROUP,
    Rng,
    keys,
    mix,
    stream_seeds,
    uniforms,
)

Array = npt.NDArray[Any]
#: Error of a single step that rounding may explain, relative to the largest number that goes into
#: it or comes out: some hundred operations, each rounded once.
TOLERANCES = {np.float64: 1e-13, np.float32: 5e-5}
#: A step that differs by more is run again from states and actions this close, relatively: at a
#: threshold or a jump their results differ as much.
NEARBY = {np.float64: 2.0**-46, np.float32: 2.0**-18}
TRIES = 64
#: Code of ours between an author's lines and the checks.
_OWN_FILES = (watched.__file__, arrays.__file__)
#: Rewards and observations above which learning wants them divided: default networks and steps of
#: learning are for numbers around 1, and the largest reward of Gymnasium's is 100 (landers).
LARGE = 100.0
#: Places that never ran, of which the report names so many.
MOST_PLACES = 6
#: Environments and steps of the test that a batch may be split.
SPLIT_ENVS, SPLIT_STEPS = 70, 5


def check(
    dynamics: str | Dynamics,
    steps: int = 1000,
    seed: int = 0,
    *,
    policy: Callable[[Any], Any] | None = None,
    states: Sequence[Any] = (),
) -> Report:
    """Try an environment: its plain functions, its kernels, and one beside the other.

    It finds exceptions, NaN and infinity, observations outside their space, results of a wrong
    type or that depend on more than their inputs, indices outside a table (a negative one, which
    counts from the end, is a warning), kernels whose results differ from plain Python's or do not
    compile, kernels that do not compute in vectors, with probable reasons, and what learning will
    meet: large rewards and observations, episodes that do not end, actions that are masked.

    It checks the states that its steps come to, and names the lines of which none ran: those that
    random actions seldom reach take a policy, or states to begin from.

    Args:
        dynamics: the environment, or the id of a registered one.
        steps: single steps, from states that the actions lead to.
        seed: of these states and actions.
        policy: plain function of what `observe` returns, of an action; None draws them uniformly.
        states: episodes begin in these in turn, each as `reset` makes one; () takes `reset`.

    Returns:
        What was seen, to print, or to ask whether it is `ok`.

    Raises:
        TypeError, ValueError: a bad argument, with its name and value.

    Example:
        >>> from rlcpu.envs import check
        >>> check("CartPole-v1", steps=100).ok
        True
    """
    dynamics = find(dynamics)
    if not dynamics.runs_in_kernels:
        raise TypeError(
            f"dynamics={dynamics!r}: a task of another engine is tried when it is made, and has no "
            "plain step to compare kernels with"
        )
    steps, seed = check_count("steps", steps), check_seed(seed)
    trial = Trial(dynamics, policy, states)
    cases = trial.play(steps, np.random.default_rng(seed))
    compiled = [trial.compare(cases, dtype, seed) for dtype in TOLERANCES]
    if all(compiled):
        trial.split(seed)
        for finding in how_it_runs(dynamics, ("step", "collect")):
            trial.note(*finding)
    return Report(dynamics.id, len(cases), trial.found.sorted())


def how_it_runs(
    dynamics: Dynamics, names: Sequence[str] = ("step", "simulate", "collect")
) -> Iterable[tuple[str, str]]:
    """Yield level and message of how an environment runs in these, from their machine code.

    They are compiled for float32 and actions drawn at random, if they are not yet.
    """
    if dynamics.has_arrays:
        yield "note", f"step runs {ONE_AT_A_TIME}"
        return
    code, policy = structure(dynamics), Uniform().code(dynamics)
    drivers: dict[str, Any] = {}
    for name in names:
        if name == "step":
            made: Any = step_kernels(code, np.float32, False)
        else:
            compiled = collect_kernels if name == "collect" else simulate_kernels
            made = compiled(code, np.float32, policy)
        known = () if name == "step" else reasons_of_policies(code)
        drivers[name] = find_driver(made.function, dynamics.step, known)
    yield from describe_drivers(drivers)


class Case(NamedTuple):
    """The inputs of one step; params only where they vary, () where they are the environment's."""

    state: tuple[Any, ...]
    action: Any
    draws: Any
    params: Any = ()


class Trial:
    """One environment under test, and what was found so far."""

    def __init__(
        self,
        dynamics: Dynamics,
        policy: Callable[[Any], Any] | None = None,
        states: Sequence[Any] = (),
    ) -> None:
        if policy is not None and not callable(policy):
            raise TypeError(f"policy={policy!r}: expected a function of an observation, or None")
        for i, state in enumerate(states):
            try:
                check_result(dynamics, "reset", state)
            except (TypeError, ValueError) as error:
                raise TypeError(f"states[{i}]={state!r}: {error}") from None
        self.dynamics, self._policy, self._states = dynamics, policy, states
        self.found, self._reached = Findings(), Reached(dynamics)
        self._varies = bool(dynamics.varied) or dynamics.randomize is not None
        self._tell: watched.Tell = lambda message: self.note("warning", message)
        self._watched = watched.watch(dynamics, self._tell)

    def note(self, level: str, message: str, kind: Any = None) -> None:
        """Keep a finding; see `Findings`."""
        self.found.note(level, message, kind)

    # ------------------------------------------------------------ plain Python

    def play(self, steps: int, rng: np.random.Generator) -> list[Case]:
        """Play episodes, with random actions or a policy's; return the steps that had results."""
        dynamics, cases, ends, episodes = self.dynamics, [], 0, 0
        limit, state, age, params = dynamics.max_episode_steps or steps, None, 0, ()
        rewards, observations, shares = [0.0], [], []
        for _ in range(steps):
            if state is None:
                params = self._draw_params(rng)
                state, age = self._call("reset", self._draws("reset", rng), params), 0
                if self._states:
                    state = self._states[episodes % len(self._states)]
                episodes += 1
            observation = None if state is None else self._call("observe", state, params)
            if observation is None:
                state = None
                continue
            mask = self._call("action_mask", state, params) if dynamics.action_mask else None
            if mask is not None and not any(mask):
                message = f"action_mask({plain_value(state)}) allows nothing: expected one action"
                self.note("error", f"{message}, or the end of the episode", "empty mask")
            if dynamics.action_mask and not any(mask or ()):
                state = None
                continue
            action = _sample(dynamics, rng, mask)
            if self._policy is not None:
                action = _chosen(dynamics, self._policy, observation, mask)
            case = Case(state, action, self._draws("step", rng), params)
            result = self._call("step", *case)
            if result is None:
                state = None
                continue
            cases.append(case)
            rewards.append(float(result[1]))
            observations.append(observation)
            shares.append(0.0 if mask is None else 1.0 - sum(mask) / len(mask))
            state, age, ends = result[0], age + 1, ends + bool(result[2])
            if any(result[2:]) or age >= limit:
                self._call("observe", state, params)
                if dynamics.action_mask:
                    self._call("action_mask", state, params)
                state = None
        whose = "drawn uniformly at random" if self._policy is None else "of the policy"
        self.note(
            "note",
            f"{len(cases)} steps of {episodes} episodes were played, with actions {whose}: what "
            "they do not reach is not checked",
        )
        self._tell_unreached()
        if cases and ends in (0, len(cases)):
            self.note("note", f"terminated was {'always' if ends else 'never'} True")
            if not ends and dynamics.max_episode_steps is None and not dynamics.truncates:
                self.note(
                    "warning",
                    f"no episode ended in {len(cases)} steps, and max_episode_steps=None: give a "
                    "number, without which returns and evaluations may never come",
                )
        self._foresee(rewards, observations, shares)
        return cases

    def _tell_unreached(self) -> None:
        """Name lines that never ran, the first few of them."""
        places = list(self._reached.describe())
        for place in places[:MOST_PLACES]:
            self.note("note", f"never ran: {place}")
        if len(places) > MOST_PLACES:
            self.note("note", f"never ran: {len(places) - MOST_PLACES} more places")

    def _foresee(self, rewards: list[float], observations: list[Any], shares: list[float]) -> None:
        """Tell what learning will meet: large rewards and observations, actions that are masked."""
        largest = max(map(abs, rewards))
        if largest > LARGE:
            scale = 10.0 ** -math.floor(math.log10(largest))
            self.note(
                "note",
                f"rewards are up to {largest:.4g}, of which default agents learn nothing: train "
                f"with reward_scale={scale:g}, or PPO with normalize_rewards=True",
            )
        if observations and self.dynamics.observation.is_plain:
            rows = np.array(observations, np.float64).reshape(len(observations), -1)
            sizes = np.abs(rows).max(axis=0)
            if sizes.max() > LARGE:
                k = int(sizes.argmax())
                self.note(
                    "note",
                    f"observation[{k}] is up to {sizes[k]:.4g}: divide it in observe, or train PPO "
                    "with normalize_observations=True",
                )
        if any(shares):
            self.note("note", f"{np.mean(shares):.0%} of actions were masked")

    def _call(self, name: str, *inputs: Any) -> Any:
        """Result of a plain function, or None where it is not what it has to be."""
        call = f"{name}({', '.join(str(plain_value(value)) for value in inputs if value != ())})"
        try:
            watched_inputs = [self._watch_draws(value) for value in inputs]
            result = self.plain(self._watched, name, *watched_inputs, tell=self._tell)
            plain = {name: getattr(self.dynamics, name)}
            with self._reached.watch():
                again = self.plain(plain, name, *inputs)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            frame = [frame for frame in frames if frame.filename not in _OWN_FILES][-1]
            where = f"{frame.filename}:{frame.lineno}: `{frame.line}`"
            what = f"{where} raised {type(error).__name__} ({error})"
            self.note("error", f"{what} in {call}", (where, type(error)))
            return None
        if _identity(result) != _identity(again):
            message = f"{call} returned {result} and then {again}: it depends on something else"
            self.note("error", message, (name, "twice"))
        try:
            check_result(self.dynamics, name, result)
        except (TypeError, ValueError) as error:
            fault = str(error).removeprefix(f"{self.dynamics.id}: ")
            self.note("error", f"{call}: {fault}", fault.partition("; returned")[0])
            return None
        for fault in self._outside(result) if name == "observe" else ():
            self.note("error", f"{call} returned {fault}", "outside")
        return result

    def _watch_draws(self, value: Any) -> Any:
        """Return an `Rng` that tells of numbers asked for twice; other inputs as they are."""
        if not isinstance(value, Rng):
            return value
        watching = watched.WatchedRng(*value)
        watching.tell = self.note
        return watching

    def plain(
        self, functions: dict[str, Any], name: str, *inputs: Any, tell: watched.Tell | None = None
    ) -> Any:
        """Call a function of the environment with its params, the last of the inputs."""
        for value in inputs:
            if isinstance(value, Rng):
                value.calls[0] = 0  # the same numbers at every call
        params = inputs[-1] or self.dynamics.params
        if name == "step":
            state, action, draws, _ = inputs
            arguments = state, action, params, *(() if draws == () else (draws,))
        else:
            arguments = inputs[0], params

        def watch(state: Any) -> None:
            if tell is not None:
                watched.watch_state(state, tell)

        return call_function(self.dynamics, name, functions[name], *arguments, watch=watch)

    def _draw_params(self, rng: np.random.Generator) -> Any:
        """Return the params of a new episode of any environment; () where they do not vary."""
        if not self._varies:
            return ()
        sizes = [len(values) for values in self.dynamics.varied.values()]
        params = params_of(self.dynamics, int(rng.integers(sizes[0] if sizes else 1)))
        if self.dynamics.randomize is None:
            return params
        drawn = self._call("randomize", Rng.of_seed(int(rng.integers(2**63))), params)
        names = self.dynamics.randomized if drawn is not None else ()
        return with_numbers(params, {name: getattr(drawn, name) for name in names})

    def _draws(self, name: str, rng: np.random.Generator) -> Any:
        """Random numbers for a function: an `Rng`, or numbers on the grid of float32 kernels."""
        if self.dynamics.takes_rng(name):
            return Rng.of_seed(int(rng.integers(2**63)))
        count = getattr(self.dynamics, f"{name}_draws")
        return tuple((rng.integers(0, 2**24, count) / 2.0**24).tolist())

    def _kernel_draws(self, name: str, seed: int, n: int, dtype: Any) -> list[Any]:
        """Return the kernels' random numbers for the first reset, or step, of N environments."""
        groups = {"reset": RESET_GROUP, "step": STEP_GROUP, "randomize": RANDOMIZE_GROUP}
        turn, dynamics = np.uint32(name == "step"), self.dynamics
        with np.errstate(over="ignore"):
            words = mix.py_func(*keys(stream_seeds(seed, n)), turn)
        if dynamics.takes_rng(name):
            return [Rng(int(a), int(b), groups[name], dtype) for a, b in zip(*words, strict=True)]
        first = dynamics.reset_draws if name == "step" else 0
        count = getattr(dynamics, f"{name}_draws")
        if count == 0:
            return [()] * n
        draw: Any = uniforms(count, first, dtype)
        draw = draw.py_func
        # Compiled functions that are inlined cannot be called: `mix` itself as plain Python.
        draw = types.FunctionType(draw.__code__, {**draw.__globals__, "mix": mix.py_func})
        with np.errstate(over="ignore"):
            return list(zip(*(column.tolist() for column in draw(*words)), strict=True))

    def _outside(self, observation: Any) -> Iterable[str]:
        """Describe the part of an observation that lies outside its space."""
        space: Any = self.dynamics.observation_space
        if not isinstance(space, Box):
            if fault := outside(self.dynamics, observation, slack=1e-6):
                yield f"{fault} of observation_space"
            return
        # One rounding to float32 is allowed.
        low, high = space.low - 1e-6 * abs(space.low), space.high + 1e-6 * abs(space.high)
        numbers = np.array(getattr(observation, INT_ARRAY, observation))
        for place in map(tuple, np.argwhere((numbers < low) | (numbers > high)).tolist()):
            bounds = f"{space.low[place]} to {space.high[place]} of observation_space"
            yield f"observation{list(place)}={numbers[place]}: expected {bounds}"

    # ------------------------------------------------------------ plain Python and kernels

    def compare(self, cases: list[Case], dtype: Any, seed: int) -> bool:
        """Compare single steps and resets with kernels of a dtype; whether there are kernels."""
        name, most = np.dtype(dtype).name, np.finfo(dtype).max
        dynamics, layout = self.dynamics, self.dynamics.state
        cases = [case for case in cases if max(map(abs, layout.as_numbers(case.state))) < most]
        if not cases:
            return False
        n = len(cases)
        try:
            env = VectorEnv(dynamics.resized(n), n, dtype=name, num_threads=1)
            engine: Any = env.engine
            _start(engine, seed)
            fresh = layout.rows_as_numbers(engine.get_state())
            drawn = engine.params_of_each() or [()] * n
            varying = {key: [getattr(c.params, key) for c in cases] for key in engine.code.varied}
            engine.set_params(varying)
            engine.set_state(layout.to_rows([case.state for case in cases], dtype))
            actions = np.array([case.action for case in cases], env.action_space.dtype)
            stepped = engine.step(actions)
            engine.masks(stepped.observations, stepped.terminated | stepped.truncated)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self.note("error", f"kernels of {name}: {type(error).__name__}: {' '.join(lines[:4])}")
            return False
        # The keys are those of the seeds; a reset is turn 0 of the streams, the step is turn 1.
        draws = self._kernel_draws("reset", seed, n, dtype)
        noise = self._kernel_draws("step", seed, n, dtype)
        plain = self._plain_functions()
        shown, reached, rows = dynamics.observation, engine.get_state(), stepped.observations
        masks = env.view.masks(rows.T) if dynamics.action_mask else np.zeros((n, 0))
        shown_numbers = np.column_stack(
            [shown.rows_as_numbers(rows[: shown.rows(np.float32)].T), masks]
        )
        flags = [stepped.terminated, stepped.truncated][: 1 + dynamics.truncates]
        names = [*_names("new_state", layout), "reward", "terminated", "truncated"]
        names = names[: len(names) - 2 + len(flags)] + _names("observation", shown)
        names += [f"action_mask[{k}]" for k in range(dynamics.num_masked)]
        results = np.column_stack(
            [layout.rows_as_numbers(reached), stepped.rewards, *flags, shown_numbers]
        )
        params_of_lanes = engine.params_of_each() or [()] * n
        taken = [
            Case(_rounded(layout, case.state, dtype), tuple(a) if dynamics.action_size else a, u, p)
            for case, a, u, p in zip(cases, actions.tolist(), noise, params_of_lanes, strict=True)
        ]
        starts = list(zip(draws, drawn, strict=True))
        last_bits = [
            self._differ("reset", plain["reset"], starts, fresh, names, dtype),
            self._differ("step", plain["step"], taken, results, names, dtype),
        ]
        if dynamics.randomize is not None:
            rngs = self._kernel_draws("randomize", seed, n, dtype)
            draws_of = [(rng, params_of(env.dynamics, i)) for i, rng in enumerate(rngs)]
            labels = list(dynamics.randomized)
            drawn_numbers = np.array([[getattr(p, key) for key in labels] for p in drawn])
            last_bits.append(
                self._differ(
                    "randomize", plain["randomize"], draws_of, drawn_numbers, labels, dtype
                )
            )
        if dtype is np.float64 and any(last_bits):
            self.note(
                "note",
                f"the last bits of {sum(last_bits)} of {2 * n} resets and steps in float64 are "
                "not those of plain Python",
            )
        return True

    def _plain_functions(self) -> dict[str, Callable[..., Array]]:
        """Reset, step and randomize in plain Python, whose results are numbers in one array."""
        dynamics, layout, shown = self.dynamics, self.dynamics.state, self.dynamics.observation
        functions = {key: getattr(dynamics, key) for key in dynamics.functions}
        is_group = isinstance(dynamics.observation_space, Dict)

        def randomize(rng: Any, params: Any) -> Array:
            drawn = self.plain(functions, "randomize", rng, params)
            return np.array([getattr(drawn, key) for key in dynamics.randomized], np.float64)

        def reset(uniforms: Any, params: Any) -> Array:
            return np.array(layout.as_numbers(self.plain(functions, "reset", uniforms, params)))

        def step(state: Any, action: Any, uniforms: Any, params: Any) -> Array:
            reached, reward, *flags = self.plain(functions, "step", state, action, uniforms, params)
            observation = self.plain(functions, "observe", reached, params)
            if is_group or shown.is_record:
                observation = _rounded(shown, observation, np.float32)
            numbers: Any = shown.as_numbers(observation)
            numbers = np.float32(numbers) if shown.is_plain else numbers
            if dynamics.action_mask:
                numbers = *numbers, *self.plain(functions, "action_mask", reached, params)
            return np.array([*layout.as_numbers(reached), reward, *flags, *numbers], np.float64)

        return {"randomize": randomize, "reset": reset, "step": step}

    def _differ(
        self, name: str, plain: Any, inputs: Any, results: Array, names: list[str], dtype: Any
    ) -> int:
        """Compare results of a kernel with those of plain Python; how many differ in any bit."""
        rng, different, kernel = np.random.default_rng(0), 0, np.dtype(dtype).name
        for arguments, got in zip(inputs, results.astype(np.float64), strict=True):
            try:
                expected = plain(*arguments)
            except Exception:  # told by `play`, or by states that float32 has rounded
                continue
            if np.array_equal(got, expected, equal_nan=True):
                continue
            different += 1
            numbers = np.concatenate([*map(_reals, arguments), expected])
            slack = TOLERANCES[dtype] * np.abs(numbers).max(initial=0.0)
            if (abs(got - expected) <= slack).all():
                continue
            near = np.stack([expected, *_nearby(plain, arguments, NEARBY[dtype], rng)])
            low, high = near.min(axis=0), near.max(axis=0)
            spread = slack + (high - low)
            bad = ~((got >= low - spread) & (got <= high + spread))
            for k in np.flatnonzero(bad)[:1]:
                call = ", ".join(str(plain_value(part)) for part in arguments if part != ())
                self.note(
                    "error",
                    f"{name}({call}) gives {names[k]}={got[k]} in a kernel of {kernel} and "
                    f"{expected[k]} in plain Python",
                    (name, names[k], dtype),
                )
        return different

    def split(self, seed: int) -> None:
        """Check that results are a function of the seed, whatever the size of the batch."""
        n, first = SPLIT_ENVS, SPLIT_ENVS // 2 + 1
        rng, resized = np.random.default_rng(seed), self.dynamics.resized(n)
        actions = np.array(
            [[_sample(self.dynamics, rng) for _ in range(n)] for _ in range(SPLIT_STEPS)],
            np.int64 if self.dynamics.is_discrete else np.float32,
        )
        runs, seeds = [], stream_seeds(seed, n).tolist()
        for begin, end in ((0, n), (0, n), (0, first), (first, n)):
            varied = {name: values[begin:end] for name, values in resized.varied.items()}
            dynamics = resized.with_params(**varied) if varied else resized
            env = VectorEnv(dynamics, end - begin, num_threads=1)
            results = [_start(env.engine, seeds[begin:end]).T]
            for chosen in actions[:, begin:end]:
                if self.dynamics.action_mask:
                    chosen = _allow(chosen, env.action_masks())
                observations, rewards, terminated, *_ = env.step(chosen)
                results.append(np.column_stack([_flat(observations), rewards, terminated]))
            results.append(self.dynamics.state.rows_as_numbers(env.engine.get_state()))
            runs.append(np.column_stack(results))
        whole, again, *parts = runs
        for kind, other in (("again", again), ("in two batches", np.concatenate(parts))):
            if not np.array_equal(whole, other, equal_nan=True):
                i = int(np.argmax((whole != other).any(axis=1)))
                self.note("error", f"environment {i} of {n} differs when the seed is run {kind}")


def _start(engine: Any, seed: Any) -> Array:
    """Start the first episodes, and return the rows of observations.

    The first step of an environment is its reset: no kernels more than those of steps are compiled.
    """
    engine.seed(seed, np.ones(engine.num_envs, np.bool_))
    rows: Array = engine.step(np.zeros(engine.action_shape, engine.action_dtype)).observations
    engine.mark_ready()
    return rows


def _flat(observations: Any) -> Array:
    """Return observations (n, ...), or the parts of groups, as rows of numbers."""
    parts = observations.values() if isinstance(observations, dict) else [observations]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _names(what: str, layout: Layout | ArrayLayout) -> list[str]:
    """Return the names of a value's numbers."""
    if isinstance(layout, ArrayLayout):
        return [
            f"{what}.{field.name}{list(place) or ''}"
            for field in layout.fields
            for place in np.ndindex(field.shape)
        ]
    names = []
    for field in layout.fields:
        label = f"{what}.{field.name}" if layout.value_class is not None else what
        each = [f"{label}[{k}]" for k in range(field.size)] or [label]
        words = [f" cells {32 * k} to {32 * k + 31}" for k in range(4)]
        names += [e + word for e in each for word in (words if field.kind == "board" else [""])]
    return names


def _rounded(layout: Layout | ArrayLayout, state: Any, dtype: Any) -> Any:
    """Return a state whose floats are those of a dtype."""
    if isinstance(layout, ArrayLayout):
        return layout.to_states(layout.to_rows([state], dtype))[0]
    if layout.is_plain:
        return tuple(float(dtype(number)) for number in state)
    made: list[Any] = []
    for field, value in zip(layout.fields, state, strict=True):
        if field.kind != "float":
            made.append(value)
        elif field.size:
            made.append(tuple(float(dtype(number)) for number in value))
        else:
            made.append(float(dtype(value)))
    return layout.value_class(*made)


def _identity(value: Any) -> Any:
    """Return what two equal results have in common, NaN and all."""
    if isinstance(value, State):
        return [array.tobytes() for array in fields_of(value)]
    if isinstance(value, tuple):
        return [_identity(item) for item in value]
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


def _reals(part: Any) -> Array:
    """Return the floats of an input."""
    if isinstance(part, State):
        return np.concatenate([np.zeros(0), *(array.ravel() for array in fields_of(part, "float"))])
    if isinstance(part, float):
        return np.array([part])
    items = part if isinstance(part, tuple) and not isinstance(part, Rng) else ()
    return np.concatenate([np.zeros(0), *map(_reals, items)])


def _allow(actions: Array, masks: Any) -> Array:
    """Actions (n,) brought into masks (n, num_actions): the next ones that are allowed, in turn.

    Where nothing is allowed, as after the end of an episode, they stay.
    """
    count = masks.shape[1]
    turned = (actions[:, None] + np.arange(count)) % count
    steps = np.argmax(np.take_along_axis(masks, turned, axis=1), axis=1)
    allowed: Array = np.take_along_axis(turned, steps[:, None], axis=1)[:, 0]
    return allowed


def _sample(dynamics: Dynamics, rng: np.random.Generator, mask: Any = None) -> Any:
    """Draw an allowed action; one number in eleven of a `Box` is one of its bounds."""
    space = dynamics.action_space
    if isinstance(space, Discrete):
        chosen = np.arange(space.n) if mask is None else np.flatnonzero(mask)
        return int(chosen[rng.integers(len(chosen))])
    if isinstance(space, MultiDiscrete):
        return tuple(rng.integers(space.nvec).tolist())
    low, high = np.clip(space.low, -1e3, 1e3), np.clip(space.high, -1e3, 1e3)
    share = rng.uniform(-0.05, 1.05, low.shape).clip(0.0, 1.0)
    return tuple((low + share * (high - low)).astype(np.float32).tolist())


def _chosen(dynamics: Dynamics, policy: Callable[[Any], Any], observation: Any, mask: Any) -> Any:
    """Return the action that a user's policy chooses."""
    space, action = dynamics.action_space, policy(observation)
    array = np.asarray(action)
    fits = array.dtype.kind in ("iu" if space.dtype.kind in "iu" else "iuf")
    fits = fits and space.contains(array.astype(space.dtype))
    if not fits or (mask is not None and not mask[int(array)]):
        allowed = "" if mask is None else f" that action_mask allows, {mask}"
        raise ValueError(
            f"policy({observation!r}) returned {action!r}: expected an action of {space}{allowed}"
        )
    if isinstance(space, Discrete):
        return int(array)
    return tuple(array.tolist() if isinstance(space, MultiDiscrete) else map(float, array))


def _nearby(
    plain: Any, arguments: Any, distance: float, rng: np.random.Generator
) -> Iterable[Array]:
    """Results of a plain function at inputs close to the given ones."""

    def move(part: Any, scale: float) -> Any:
        if isinstance(part, float):
            return part + distance * scale * rng.uniform(-1.0, 1.0)
        if isinstance(part, State):
            moved = copy.copy(part)
            for array in fields_of(moved, "float"):
                array += distance * scale * rng.uniform(-1.0, 1.0, array.shape)
            return moved
        if not isinstance(part, tuple) or isinstance(part, Rng):
            return part
        items = [move(item, scale) for item in part]
        return type(part)(*items) if hasattr(part, "_fields") else tuple(items)

    for _ in range(TRIES):
        try:
            yield plain(*(move(part, np.abs(_reals(part)).max(initial=0.0)) for part in arguments))
        except Exception:
            continue
