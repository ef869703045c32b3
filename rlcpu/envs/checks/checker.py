"""`rlcpu.envs.check`: faults of an environment, found by running it.

A `Dynamics` is plain Python that is also compiled. Here it is played at random in plain Python, by
twins of its functions that watch indices and lines (`watched.py`, `coverage.py`); then the kernels
take the same single steps from the same states, in float64 and in float32. Trajectories are never
compared: they part after some steps, however small the error of one.
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
from rlcpu.envs.checks.coverage import Coverage
from rlcpu.envs.checks.fields import params_of, with_numbers
from rlcpu.envs.checks.findings import Findings, Report, plain_value
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
#: Difference of a single step that rounding explains, relative to the largest number that goes into
#: it or comes out: some hundred operations, each rounded once.
TOLERANCES = {np.float64: 1e-13, np.float32: 5e-5}
#: Relative distance of inputs that are as good as equal: a step that differs by more than rounding
#: explains is run from `TRIES` of them, whose results differ as much at a threshold or a jump.
NEARBY = {np.float64: 2.0**-46, np.float32: 2.0**-18}
TRIES = 64
#: Files of ours that may be below an author's lines in a traceback.
_OWN_FILES = (watched.__file__, arrays.__file__)
#: Largest rewards and observations that need no scaling: default networks and learning rates are
#: for numbers around 1, and the largest reward of Gymnasium's is 100 (landers).
LARGE = 100.0
#: Most places that never ran which the report names.
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
        The findings, to print, or to ask whether the environment is `ok`.

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
        for finding in vectorisation_findings(dynamics, ("step", "collect")):
            trial.note(*finding)
    return Report(dynamics.id, len(cases), trial.findings.sorted())


def vectorisation_findings(
    dynamics: Dynamics, names: Sequence[str] = ("step", "simulate", "collect")
) -> Iterable[tuple[str, str]]:
    """Yield (level, message) of findings that say whether kernels run in vector instructions.

    Args:
        dynamics: the environment.
        names: of kernels: "step", "simulate" and "collect", which are compiled for float32, and the
            latter two for actions that are drawn at random.
    """
    if dynamics.has_arrays:
        yield "note", f"step runs {ONE_AT_A_TIME}"
        return
    code, policy = structure(dynamics), Uniform().code(dynamics)
    drivers: dict[str, Any] = {}
    for name in names:
        if name == "step":
            kernels: Any = step_kernels(code, np.float32, False)
        else:
            make_kernels = collect_kernels if name == "collect" else simulate_kernels
            kernels = make_kernels(code, np.float32, policy)
        known_reasons = () if name == "step" else reasons_of_policies(code)
        drivers[name] = find_driver(kernels.function, dynamics.step, known_reasons)
    yield from describe_drivers(drivers)


class Case(NamedTuple):
    """The inputs of one step.

    Attributes:
        state, action: plain values.
        draws: random numbers, an `Rng` or a tuple; () if a step takes none.
        params: of the environment, if they differ between environments; () for those that all have.
    """

    state: tuple[Any, ...]
    action: Any
    draws: Any
    params: Any = ()


class Trial:
    """One environment under test, with its findings so far.

    Args:
        dynamics: the environment.
        policy: see `check`.
        states: see `check`.

    Raises:
        TypeError: `policy` is no function, or `states` has a bad state.
    """

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
        self.findings, self._coverage = Findings(), Coverage(dynamics)
        self._params_vary = bool(dynamics.varied) or dynamics.randomize is not None
        self._warn: watched.Report = lambda message: self.note("warning", message)
        self._watched = watched.watch(dynamics, self._warn)

    def note(self, level: str, message: str, kind: Any = None) -> None:
        """Add a finding; see `Findings.note`."""
        self.findings.note(level, message, kind)

    # ------------------------------------------------------------ plain Python

    def play(self, steps: int, rng: np.random.Generator) -> list[Case]:
        """Play episodes in plain Python, and note what is wrong or worth knowing.

        Args:
            steps: how many to take; one that fails counts, and ends the episode.
            rng: draws actions, unless a policy chooses them, and the environment's numbers.

        Returns:
            The inputs of the steps that did not fail.
        """
        dynamics, cases, ends, episodes = self.dynamics, [], 0, 0
        limit, state, age, params = dynamics.max_episode_steps or steps, None, 0, ()
        rewards, observations, masked_shares = [0.0], [], []
        for _ in range(steps):
            if state is None:
                params = self._draw_params(rng)
                state, age = self._call("reset", self._draws("reset", rng), params), 0
                if self._states:
                    state = self._states[episodes % len(self._states)]
                episodes += 1
            choice = None if state is None else self._choose_action(state, params, rng)
            if choice is None:
                state = None
                continue
            observation, mask, action = choice
            case = Case(state, action, self._draws("step", rng), params)
            result = self._call("step", *case)
            if result is None:
                state = None
                continue
            cases.append(case)
            rewards.append(float(result[1]))
            observations.append(observation)
            masked_shares.append(0.0 if mask is None else 1.0 - sum(mask) / len(mask))
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
        self._note_never_run()
        self._note_ends(len(cases), ends)
        self._note_scales(rewards, observations, masked_shares)
        return cases

    def _choose_action(
        self, state: Any, params: Any, rng: np.random.Generator
    ) -> tuple[Any, Any, Any] | None:
        """Return observation, action mask (or None) and action of a state; None if one fails."""
        dynamics, mask = self.dynamics, None
        observation = self._call("observe", state, params)
        if observation is None:
            return None
        if dynamics.action_mask:
            mask = self._call("action_mask", state, params)
            if mask is not None and not any(mask):
                message = f"action_mask({plain_value(state)}) allows nothing: expected one action"
                self.note("error", f"{message}, or the end of the episode", "empty mask")
            if not any(mask or ()):
                return None
        action = _sample(dynamics, rng, mask)
        if self._policy is not None:
            action = _chosen(dynamics, self._policy, observation, mask)
        return observation, mask, action

    def _note_ends(self, steps: int, ends: int) -> None:
        """Note if none or all of the steps terminated an episode; `ends` of `steps` did."""
        dynamics = self.dynamics
        if not steps or ends not in (0, steps):
            return
        self.note("note", f"terminated was {'always' if ends else 'never'} True")
        if not ends and dynamics.max_episode_steps is None and not dynamics.truncates:
            self.note(
                "warning",
                f"no episode ended in {steps} steps, and max_episode_steps=None: give a "
                "number, without which returns and evaluations may never come",
            )

    def _note_never_run(self) -> None:
        """Note lines of the author's functions that never ran, the first few of them."""
        places = list(self._coverage.describe())
        for place in places[:MOST_PLACES]:
            self.note("note", f"never ran: {place}")
        if len(places) > MOST_PLACES:
            self.note("note", f"never ran: {len(places) - MOST_PLACES} more places")

    def _note_scales(
        self, rewards: list[float], observations: list[Any], masked_shares: list[float]
    ) -> None:
        """Note large rewards and observations, and how many actions are masked.

        Args:
            rewards: of all steps.
            observations: of all steps.
            masked_shares: share of the actions that the mask of a step forbids, of all steps.
        """
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
        if any(masked_shares):
            self.note("note", f"{np.mean(masked_shares):.0%} of actions were masked")

    def _call(self, name: str, *inputs: Any) -> Any:
        """Return the result of a plain function; note its faults, and return None if it is bad.

        It is called twice: the watched twin, then the function itself, whose lines are recorded.
        The results have to be equal.

        Args:
            name: of the function.
            *inputs: as `plain` takes them.
        """
        call = f"{name}({', '.join(str(plain_value(value)) for value in inputs if value != ())})"
        try:
            watched_inputs = [self._watch_draws(value) for value in inputs]
            result = self.plain(self._watched, name, *watched_inputs, report=self._warn)
            function = {name: getattr(self.dynamics, name)}
            with self._coverage.watch():
                again = self.plain(function, name, *inputs)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            frame = [frame for frame in frames if frame.filename not in _OWN_FILES][-1]
            where = f"{frame.filename}:{frame.lineno}: `{frame.line}`"
            message = f"{where} raised {type(error).__name__} ({error}) in {call}"
            self.note("error", message, (where, type(error)))
            return None
        if _comparable(result) != _comparable(again):
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
        """Return an `Rng` that reports numbers asked for twice; other inputs as they are."""
        if not isinstance(value, Rng):
            return value
        rng = watched.WatchedRng(*value)
        rng.report = self.note
        return rng

    def plain(
        self,
        functions: dict[str, Any],
        name: str,
        *inputs: Any,
        report: watched.Report | None = None,
    ) -> Any:
        """Call a plain function of the environment, and return its result by `call_function`.

        Args:
            functions: the environment's functions, or twins of them, by name.
            name: of the function.
            *inputs: of "step" the fields of a `Case`; of others their first argument and params.
                Params are () for those of the environment.
            report: is given messages on negative indices into arrays of the state; None for none.
        """
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
            if report is not None:
                watched.watch_state(state, report)

        return call_function(self.dynamics, name, functions[name], *arguments, watch=watch)

    def _draw_params(self, rng: np.random.Generator) -> Any:
        """Return the params of a new episode of any environment; () if all have the same."""
        if not self._params_vary:
            return ()
        sizes = [len(values) for values in self.dynamics.varied.values()]
        params = params_of(self.dynamics, int(rng.integers(sizes[0] if sizes else 1)))
        if self.dynamics.randomize is None:
            return params
        drawn = self._call("randomize", Rng.of_seed(int(rng.integers(2**63))), params)
        names = self.dynamics.randomized if drawn is not None else ()
        return with_numbers(params, {name: getattr(drawn, name) for name in names})

    def _draws(self, name: str, rng: np.random.Generator) -> Any:
        """Return random numbers for a function: an `Rng`, or numbers on a grid of 24 bits."""
        if self.dynamics.takes_rng(name):
            return Rng.of_seed(int(rng.integers(2**63)))
        count = getattr(self.dynamics, f"{name}_draws")
        return tuple((rng.integers(0, 2**24, count) / 2.0**24).tolist())

    def _kernel_draws(self, name: str, seed: int, n: int, dtype: Any) -> list[Any]:
        """Return the random numbers of kernels for the first reset, or step, of N environments.

        Args:
            name: "reset", "step" or "randomize", which is part of a reset.
            seed: of the environments.
            n: N.
            dtype: of the environments.
        """
        groups = {"reset": RESET_GROUP, "step": STEP_GROUP, "randomize": RANDOMIZE_GROUP}
        # The counter of random numbers is 0 at the reset and 1 at the first step.
        counter, dynamics = np.uint32(name == "step"), self.dynamics
        with np.errstate(over="ignore"):
            words = mix.py_func(*keys(stream_seeds(seed, n)), counter)
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
        """Yield where an observation lies outside its space, for errors."""
        space: Any = self.dynamics.observation_space
        if not isinstance(space, Box):
            if fault := outside(self.dynamics, observation, slack=1e-6):
                yield f"{fault} of observation_space"
            return
        # One rounding to float32 is allowed.
        low, high = space.low - 1e-6 * abs(space.low), space.high + 1e-6 * abs(space.high)
        numbers = np.array(getattr(observation, INT_ARRAY, observation))
        for index in map(tuple, np.argwhere((numbers < low) | (numbers > high)).tolist()):
            bounds = f"{space.low[index]} to {space.high[index]} of observation_space"
            yield f"observation{list(index)}={numbers[index]}: expected {bounds}"

    # ------------------------------------------------------------ plain Python and kernels

    def compare(self, cases: list[Case], dtype: Any, seed: int) -> bool:
        """Compare the kernels of a dtype with plain Python, in single steps and resets.

        Environment i of a batch is reset with the seed, then set to the state of case i, and takes
        its step. Plain Python repeats that with the random numbers of the kernels, and states and
        actions that are rounded as theirs.

        Returns:
            Whether kernels could be compiled and run.
        """
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
            reset_results = layout.rows_as_numbers(engine.get_state())
            reset_params = engine.params_of_each() or [()] * n
            varied = {key: [getattr(c.params, key) for c in cases] for key in engine.code.varied}
            engine.set_params(varied)
            engine.set_state(layout.to_rows([case.state for case in cases], dtype))
            actions = np.array([case.action for case in cases], env.action_space.dtype)
            step = engine.step(actions)
            engine.masks(step.observations, step.terminated | step.truncated)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self.note("error", f"kernels of {name}: {type(error).__name__}: {' '.join(lines[:4])}")
            return False
        plain = self._plain_functions()
        reset_inputs = list(
            zip(self._kernel_draws("reset", seed, n, dtype), reset_params, strict=True)
        )
        step_draws = self._kernel_draws("step", seed, n, dtype)
        step_params = engine.params_of_each() or [()] * n
        step_inputs = [
            Case(_rounded(layout, case.state, dtype), tuple(a) if dynamics.action_size else a, u, p)
            for case, a, u, p in zip(cases, actions.tolist(), step_draws, step_params, strict=True)
        ]
        step_results, names = self._kernel_results(env, step)
        last_bits = [
            self._differ("reset", plain["reset"], reset_inputs, reset_results, names, dtype),
            self._differ("step", plain["step"], step_inputs, step_results, names, dtype),
        ]
        if dynamics.randomize is not None:
            rngs = self._kernel_draws("randomize", seed, n, dtype)
            inputs = [(rng, params_of(env.dynamics, i)) for i, rng in enumerate(rngs)]
            labels = list(dynamics.randomized)
            results = np.array([[getattr(p, key) for key in labels] for p in reset_params])
            last_bits.append(
                self._differ("randomize", plain["randomize"], inputs, results, labels, dtype)
            )
        if dtype is np.float64 and any(last_bits):
            self.note(
                "note",
                f"the last bits of {sum(last_bits)} of {2 * n} resets and steps in float64 are "
                "not those of plain Python",
            )
        return True

    def _kernel_results(self, env: VectorEnv, step: Any) -> tuple[Array, list[str]]:
        """Return all numbers of the results of a step, (n, count), and their names.

        They are in the order of `step` of `_plain_functions`: new state, reward, flags,
        observation, action mask.

        Args:
            env: the environments, which have taken the step.
            step: the `TimeStep`; its observations are (rows, n), numbers and then the mask.
        """
        dynamics, layout, rows = self.dynamics, self.dynamics.observation, step.observations
        masks = env.view.masks(rows.T) if dynamics.action_mask else np.zeros((env.num_envs, 0))
        flags = [step.terminated, step.truncated][: 1 + dynamics.truncates]
        results = np.column_stack(
            [
                dynamics.state.rows_as_numbers(env.engine.get_state()),
                step.rewards,
                *flags,
                layout.rows_as_numbers(rows[: layout.rows(np.float32)].T),
                masks,
            ]
        )
        names = [
            *_names("new_state", dynamics.state),
            "reward",
            *("terminated", "truncated")[: len(flags)],
            *_names("observation", layout),
            *(f"action_mask[{k}]" for k in range(dynamics.num_masked)),
        ]
        return results, names

    def _plain_functions(self) -> dict[str, Callable[..., Array]]:
        """Return reset, step and randomize in plain Python, which return all numbers in an array.

        They take the arguments of `plain`.
        """
        dynamics, layout, observation_layout = (
            self.dynamics,
            self.dynamics.state,
            self.dynamics.observation,
        )
        functions = {key: getattr(dynamics, key) for key in dynamics.functions}
        is_group = isinstance(dynamics.observation_space, Dict)

        def randomize(rng: Any, params: Any) -> Array:
            drawn = self.plain(functions, "randomize", rng, params)
            return np.array([getattr(drawn, key) for key in dynamics.randomized], np.float64)

        def reset(uniforms: Any, params: Any) -> Array:
            return np.array(layout.as_numbers(self.plain(functions, "reset", uniforms, params)))

        def step(state: Any, action: Any, uniforms: Any, params: Any) -> Array:
            case = Case(state, action, uniforms, params)
            new_state, reward, *flags = self.plain(functions, "step", *case)
            observation = self.plain(functions, "observe", new_state, params)
            # Kernels store parts of a `Dict`, arrays (records) and tuples of floats in float32.
            if is_group or observation_layout.is_record:
                observation = _rounded(observation_layout, observation, np.float32)
            numbers: Any = observation_layout.as_numbers(observation)
            numbers = np.float32(numbers) if observation_layout.is_plain else numbers
            if dynamics.action_mask:
                numbers = *numbers, *self.plain(functions, "action_mask", new_state, params)
            return np.array([*layout.as_numbers(new_state), reward, *flags, *numbers], np.float64)

        return {"randomize": randomize, "reset": reset, "step": step}

    def _differ(
        self, name: str, plain: Any, inputs: Any, results: Array, names: list[str], dtype: Any
    ) -> int:
        """Compare results of a kernel with those of plain Python, and note the first that differs.

        A difference is no error if rounding explains it, or if plain Python's results differ as
        much for inputs nearby.

        Args:
            name: of the function.
            plain: the function in plain Python, see `_plain_functions`.
            inputs: n tuples of its arguments.
            results: (n, count), of the kernel.
            names: of the numbers of a result.
            dtype: of the kernel.

        Returns:
            How many results differ in any bit.
        """
        rng, different, kernel = np.random.default_rng(0), 0, np.dtype(dtype).name
        for arguments, got in zip(inputs, results.astype(np.float64), strict=True):
            try:
                expected = plain(*arguments)
            except Exception:  # noted by `play`, or due to a state that float32 has rounded
                continue
            if np.array_equal(got, expected, equal_nan=True):
                continue
            different += 1
            numbers = np.concatenate([*map(_floats_of, arguments), expected])
            slack = TOLERANCES[dtype] * np.abs(numbers).max(initial=0.0)
            if (abs(got - expected) <= slack).all():
                continue
            near = np.stack([expected, *_nearby(plain, arguments, NEARBY[dtype], rng)])
            low, high = near.min(axis=0), near.max(axis=0)
            spread = slack + (high - low)
            is_bad = ~((got >= low - spread) & (got <= high + spread))
            for k in np.flatnonzero(is_bad)[:1]:
                call = ", ".join(str(plain_value(part)) for part in arguments if part != ())
                self.note(
                    "error",
                    f"{name}({call}) gives {names[k]}={got[k]} in a kernel of {kernel} and "
                    f"{expected[k]} in plain Python",
                    (name, names[k], dtype),
                )
        return different

    def split(self, seed: int) -> None:
        """Note an error unless results are a function of the seed, whatever the size of the batch.

        The same environments run twice in one batch, and once in two.
        """
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
    """Start the first episodes of an engine, and return the rows of its observations.

    It takes a step: the first one of an environment is its reset, so that no kernel but that of
    steps is compiled.
    """
    engine.seed(seed, np.ones(engine.num_envs, np.bool_))
    rows: Array = engine.step(np.zeros(engine.action_shape, engine.action_dtype)).observations
    engine.mark_ready()
    return rows


def _flat(observations: Any) -> Array:
    """Return observations, an array (n, ...) or a dict of such, as (n, count)."""
    parts = observations.values() if isinstance(observations, dict) else [observations]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _names(what: str, layout: Layout | ArrayLayout) -> list[str]:
    """Return the names of the numbers of a value of a layout, such as "observation[1]".

    They are in the order of `rows_as_numbers` of the layout; `what` is the name of the value.
    """
    if isinstance(layout, ArrayLayout):
        return [
            f"{what}.{field.name}{list(index) or ''}"
            for field in layout.fields
            for index in np.ndindex(field.shape)
        ]
    names = []
    for field in layout.fields:
        label = f"{what}.{field.name}" if layout.value_class is not None else what
        items = [f"{label}[{k}]" for k in range(field.size)] or [label]
        words = [f" cells {32 * k} to {32 * k + 31}" for k in range(4)]
        suffixes = words if field.kind == "board" else [""]
        names += [item + suffix for item in items for suffix in suffixes]
    return names


def _rounded(layout: Layout | ArrayLayout, state: Any, dtype: Any) -> Any:
    """Return a plain state whose floats are rounded to a dtype."""
    if isinstance(layout, ArrayLayout):
        return layout.to_states(layout.to_rows([state], dtype))[0]
    if layout.is_plain:
        return tuple(float(dtype(number)) for number in state)
    values: list[Any] = []
    for field, value in zip(layout.fields, state, strict=True):
        if field.kind != "float":
            values.append(value)
        elif field.size:
            values.append(tuple(float(dtype(number)) for number in value))
        else:
            values.append(float(dtype(value)))
    return layout.value_class(*values)


def _comparable(value: Any) -> Any:
    """Return a form of a result in which equal results compare equal, NaN too."""
    if isinstance(value, State):
        return [array.tobytes() for array in fields_of(value)]
    if isinstance(value, tuple):
        return [_comparable(item) for item in value]
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


def _floats_of(value: Any) -> Array:
    """Return all floats in an input of a function, (count,): a state, a tuple or a number."""
    if isinstance(value, State):
        arrays_of_floats = (array.ravel() for array in fields_of(value, "float"))
        return np.concatenate([np.zeros(0), *arrays_of_floats])
    if isinstance(value, float):
        return np.array([value])
    items = value if isinstance(value, tuple) and not isinstance(value, Rng) else ()
    return np.concatenate([np.zeros(0), *map(_floats_of, items)])


def _allow(actions: Array, masks: Any) -> Array:
    """Return actions (n,) of which those that masks (n, num_actions) forbid are replaced.

    Each is replaced by the next one that is allowed, cyclically; where nothing is allowed, as after
    the end of an episode, it stays.
    """
    count = masks.shape[1]
    candidates = (actions[:, None] + np.arange(count)) % count
    first_allowed = np.argmax(np.take_along_axis(masks, candidates, axis=1), axis=1)
    allowed: Array = np.take_along_axis(candidates, first_allowed[:, None], axis=1)[:, 0]
    return allowed


def _sample(dynamics: Dynamics, rng: np.random.Generator, mask: Any = None) -> Any:
    """Draw an action that the mask allows; one number in eleven of a `Box` is one of its bounds."""
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
    """Return the action that a user's policy chooses; raise ValueError if it is none, or is masked.

    Args:
        dynamics: the environment.
        policy: (observation,) -> action.
        observation: a plain one.
        mask: one bool for each action; None if all are allowed.
    """
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
    """Yield the results of a plain function for `TRIES` random inputs near to the given ones.

    Args:
        plain: the function.
        arguments: of it.
        distance: by which floats change, relative to the largest in an argument.
        rng: draws the changes.
    """

    def move(value: Any, scale: float) -> Any:
        """Return a copy of an argument with all floats changed by up to `distance * scale`."""
        if isinstance(value, float):
            return value + distance * scale * rng.uniform(-1.0, 1.0)
        if isinstance(value, State):
            moved = copy.copy(value)
            for array in fields_of(moved, "float"):
                array += distance * scale * rng.uniform(-1.0, 1.0, array.shape)
            return moved
        if not isinstance(value, tuple) or isinstance(value, Rng):
            return value
        items = [move(item, scale) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)

    scales = [np.abs(_floats_of(argument)).max(initial=0.0) for argument in arguments]
    for _ in range(TRIES):
        try:
            yield plain(*(move(a, scale) for a, scale in zip(arguments, scales, strict=True)))
        except Exception:
            continue
