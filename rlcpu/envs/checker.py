"""`rlcpu.envs.check`: what is wrong with an environment, found by running it.

A `Dynamics` is plain Python that is also compiled. Here it is played at random in plain Python, its
tables replaced by ones that watch their indices; then the kernels take the same single steps from
the same states, in float64 and in float32. Trajectories are never compared: they part after some
steps, however small the error of one.
"""

from __future__ import annotations

import dataclasses
import math
import traceback
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete

from rlcpu.envs import watched
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.registration import find
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.envs.vectorised import describe_vectors
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.random import keys, mix, stream_seeds, uniforms

Array = npt.NDArray[Any]
LEVELS = ("error", "warning", "note")
#: Error of a single step that rounding may explain, relative to the largest number that goes into
#: it or comes out: some hundred operations, each rounded once.
TOLERANCES = {np.float64: 1e-13, np.float32: 5e-5}
#: A step that differs by more is run again from states and actions this close, relatively: at a
#: threshold or a jump their results differ as much.
NEARBY = {np.float64: 2.0**-46, np.float32: 2.0**-18}
TRIES = 64
#: Environments and steps of the test that a batch may be split.
SPLIT_ENVS, SPLIT_STEPS = 70, 5


class Finding(NamedTuple):
    """One thing that `check` saw.

    Attributes:
        level: "error" for what makes results wrong, "warning" for what probably does, or costs
            speed, "note" for what is worth knowing.
        message: what was seen, the inputs that lead to it, and the line.
    """

    level: str
    message: str


@dataclasses.dataclass(repr=False)
class Report:
    """What `check` saw of an environment.

    Attributes:
        environment: its id.
        steps: single steps that plain Python and the kernels have both taken.
        findings: the errors first.
    """

    environment: str
    steps: int
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return all(finding.level != "error" for finding in self.findings)

    def __repr__(self) -> str:
        counts = [sum(f.level == level for f in self.findings) for level in LEVELS]
        told = ", ".join(
            f"{n} {level}{'s' * (n != 1)}" for n, level in zip(counts, LEVELS, strict=True)
        )
        lines = [f"{self.environment}: {told} in {self.steps} steps"]
        return "\n".join([*lines, *(f"{level:<8} {message}" for level, message in self.findings)])


def check(dynamics: str | Dynamics, steps: int = 1000, seed: int = 0) -> Report:
    """Try an environment: its plain functions, its kernels, and one beside the other.

    It finds exceptions, NaN and infinity, observations outside their space, results of a wrong
    type or that depend on more than their inputs, indices outside a table (a negative one, which
    counts from the end, is a warning), kernels whose results differ from plain Python's or do not
    compile, and kernels that do not compute in vectors, with probable reasons.

    Args:
        dynamics: the environment, or the id of a registered one.
        steps: single steps, from states that random actions lead to.
        seed: of these states and actions.

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
    steps, seed = check_count("steps", steps), check_count("seed", seed, 0, 2**63)
    trial = Trial(dynamics)
    cases = trial.play(steps, np.random.default_rng(seed))
    compiled = [trial.compare(cases, dtype, seed) for dtype in TOLERANCES]
    if all(compiled):
        trial.split(seed)
        trial.note(*describe_vectors(dynamics))
    return Report(dynamics.id, len(cases), trial.findings())


class Case(NamedTuple):
    """The inputs of one step, besides params."""

    state: tuple[float, ...]
    action: Any
    uniforms: tuple[float, ...]


class Trial:
    """One environment under test, and what was found so far."""

    def __init__(self, dynamics: Dynamics) -> None:
        self.dynamics = dynamics
        self._found: dict[tuple[str, Any], list[str]] = {}
        self._watched = watched.watch(dynamics, lambda message: self.note("warning", message))

    def note(self, level: str, message: str, kind: Any = None) -> None:
        """Keep a finding; of those of one kind, the first and how many there were."""
        self._found.setdefault((level, kind or message), []).append(message)

    def findings(self) -> list[Finding]:
        """The findings, errors first."""
        found = [
            Finding(level, all_[0] + (f" ({len(all_)} times)" if len(all_) > 1 else ""))
            for (level, _), all_ in self._found.items()
        ]
        return sorted(found, key=lambda finding: LEVELS.index(finding.level))

    # ------------------------------------------------------------ plain Python

    def play(self, steps: int, rng: np.random.Generator) -> list[Case]:
        """Random episodes; returns the steps that had results."""
        dynamics, cases, ends = self.dynamics, [], 0
        limit, state, age = dynamics.max_episode_steps or steps, None, 0
        for _ in range(steps):
            if state is None:
                state, age = self._call("reset", _draw(rng, dynamics.reset_draws)), 0
            if state is None or self._call("observe", state) is None:
                state = None
                continue
            case = Case(state, _sample(dynamics, rng), _draw(rng, dynamics.step_draws))
            result = self._call("step", *case)
            if result is None:
                state = None
                continue
            cases.append(case)
            state, age, ends = result[0], age + 1, ends + bool(result[2])
            if result[2] or age >= limit:
                self._call("observe", state)
                state = None
        if cases and ends in (0, len(cases)):
            self.note("note", f"terminated was {'always' if ends else 'never'} True at random play")
        return cases

    def _call(self, name: str, *inputs: Any) -> Any:
        """Result of a plain function, or None where it is not what it has to be."""
        told = f"{name}({', '.join(str(_plain(value)) for value in inputs if value != ())})"
        try:
            result, again = (self.plain(self._watched, name, *inputs) for _ in range(2))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            frame = [frame for frame in frames if frame.filename != watched.__file__][-1]
            where = f"{frame.filename}:{frame.lineno}: `{frame.line}`"
            what = f"{where} raised {type(error).__name__} ({error})"
            self.note("error", f"{what} in {told}", (where, type(error)))
            return None
        if repr(result) != repr(again):
            message = f"{told} returned {result} and then {again}: it depends on something else"
            self.note("error", message, (name, "twice"))
        faults = list(self._faults(name, result))
        for kind, fault in faults:
            self.note("error", f"{told} returned {fault}", kind)
        return None if faults and faults[0][0] != "outside" else result

    def plain(self, functions: dict[str, Any], name: str, *inputs: Any) -> Any:
        """Call a function of the environment with its params at their place."""
        params, draws = self.dynamics.params, self.dynamics.step_draws
        if name == "step":
            state, action, noise = inputs
            return functions[name](state, action, params, *((noise,) if draws else ()))
        return functions[name](inputs[0], params)

    def _faults(self, name: str, result: Any) -> Iterable[tuple[Any, str]]:
        """Kind and description of what is wrong with a result; of two, the worse first."""
        space = self.dynamics.observation_space
        if name == "step":
            if not isinstance(result, tuple) or len(result) != 3:
                yield "results", f"{result!r}: expected (new_state, reward, terminated)"
                return
            yield from _number_faults("new_state", result[0], self.dynamics.state_size)
            yield from _number_faults("reward", (result[1],), 1)
            if not isinstance(result[2], bool | np.bool_):
                yield "terminated", f"terminated={result[2]!r}: expected a bool"
            return
        size = self.dynamics.state_size if name == "reset" else self.dynamics.observation_size
        wrong = list(_number_faults("state" if name == "reset" else "observation", result, size))
        yield from wrong
        if name == "observe" and not wrong:
            # One rounding to float32 is allowed.
            low, high = space.low - 1e-6 * abs(space.low), space.high + 1e-6 * abs(space.high)
            for k in np.flatnonzero((np.array(result) < low) | (np.array(result) > high)):
                bounds = f"{space.low[k]} to {space.high[k]} of observation_space"
                yield "outside", f"observation[{k}]={result[k]}: expected {bounds}"

    # ------------------------------------------------------------ plain Python and kernels

    def compare(self, cases: list[Case], dtype: Any, seed: int) -> bool:
        """Compare single steps and resets with kernels of a dtype; whether there are kernels."""
        name, most = np.dtype(dtype).name, np.finfo(dtype).max
        cases = [case for case in cases if max(map(abs, case.state)) < most]
        if not cases:
            return False
        dynamics, n = self.dynamics, len(cases)
        try:
            env = VectorEnv(dynamics, n, dtype=name, num_threads=1)
            env.reset(seed=seed)
            fresh = env.state
            env.state = np.array([case.state for case in cases])
            states = env.state
            actions = np.array([case.action for case in cases], env.action_space.dtype)
            observations, rewards, terminated, _, _ = env.step(actions)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self.note("error", f"kernels of {name}: {type(error).__name__}: {' '.join(lines[:4])}")
            return False
        # The keys are those of the seeds; a reset is turn 0 of the streams, the step is turn 1.
        first = dynamics.reset_draws
        draws = _kernel_draws(seed, n, 0, first, 0, dtype)
        noise = _kernel_draws(seed, n, 1, dynamics.step_draws, first, dtype)
        functions = {key: getattr(dynamics, key) for key in ("step", "reset", "observe")}

        def reset(uniforms: Any) -> Array:
            return np.array(self.plain(functions, "reset", uniforms), np.float64)

        def step(state: Any, action: Any, uniforms: Any) -> Array:
            reached, reward, ended = self.plain(functions, "step", state, action, uniforms)
            seen = self.plain(functions, "observe", reached)
            return np.array([*reached, reward, ended, *np.array(seen, np.float32)], np.float64)

        size = dynamics.state_size
        names = [f"new_state[{k}]" for k in range(size)] + ["reward", "terminated"]
        names += [f"observation[{k}]" for k in range(dynamics.observation_size)]
        results = np.column_stack([env.state, rewards, terminated, observations])
        taken = [
            Case(tuple(s), a if dynamics.is_discrete else tuple(a), u)
            for s, a, u in zip(states.tolist(), actions.tolist(), noise, strict=True)
        ]
        last_bits = [
            self._differ("reset", reset, [(each,) for each in draws], fresh, names, dtype),
            self._differ("step", step, taken, results, names, dtype),
        ]
        if dtype is np.float64 and any(last_bits):
            self.note(
                "note",
                f"the last bits of {sum(last_bits)} of {2 * n} resets and steps in float64 are "
                "not those of plain Python",
            )
        return True

    def _differ(
        self, name: str, plain: Any, inputs: Any, results: Array, names: list[str], dtype: Any
    ) -> int:
        """Compare results of a kernel with those of plain Python; how many differ in any bit."""
        rng, different, kernel = np.random.default_rng(0), 0, np.dtype(dtype).name
        for given, got in zip(inputs, results.astype(np.float64), strict=True):
            try:
                expected = plain(*given)
            except Exception:  # told by `play`, or by states that float32 has rounded
                continue
            if np.array_equal(got, expected, equal_nan=True):
                continue
            different += 1
            numbers = np.concatenate([np.ravel(part) for part in given] + [expected])
            slack = TOLERANCES[dtype] * np.abs(numbers).max(initial=0.0)
            if (abs(got - expected) <= slack).all():
                continue
            near = np.stack([expected, *_nearby(plain, given, NEARBY[dtype], rng)])
            low, high = near.min(axis=0), near.max(axis=0)
            spread = slack + (high - low)
            bad = ~((got >= low - spread) & (got <= high + spread))
            for k in np.flatnonzero(bad)[:1]:
                told = ", ".join(str(_plain(part)) for part in given if part != ())
                self.note(
                    "error",
                    f"{name}({told}) gives {names[k]}={got[k]} in a kernel of {kernel} and "
                    f"{expected[k]} in plain Python",
                    (name, names[k], dtype),
                )
        return different

    def split(self, seed: int) -> None:
        """Check that results are a function of the seed, whatever the size of the batch."""
        n, first = SPLIT_ENVS, SPLIT_ENVS // 2 + 1
        rng = np.random.default_rng(seed)
        actions = np.array(
            [[_sample(self.dynamics, rng) for _ in range(n)] for _ in range(SPLIT_STEPS)],
            np.int64 if self.dynamics.is_discrete else np.float32,
        )
        runs = []
        for begin, end in ((0, n), (0, n), (0, first), (first, n)):
            env = VectorEnv(self.dynamics, end - begin, num_threads=1)
            results = [env.reset(seed=seed + begin)[0]]
            for chosen in actions[:, begin:end]:
                observations, rewards, terminated, *_ = env.step(chosen)
                results.append(np.column_stack([observations, rewards, terminated]))
            runs.append(np.column_stack([*results, env.state]))
        whole, again, *parts = runs
        for kind, other in (("again", again), ("in two batches", np.concatenate(parts))):
            if not np.array_equal(whole, other, equal_nan=True):
                i = int(np.argmax((whole != other).any(axis=1)))
                self.note("error", f"environment {i} of {n} differs when the seed is run {kind}")


def _number_faults(what: str, values: Any, size: int) -> Iterable[tuple[Any, str]]:
    """What is wrong with numbers that have to be a tuple of `size` finite floats."""
    if not isinstance(values, tuple) or len(values) != size:
        yield (what, "size"), f"{what}={values!r}: expected a tuple of {size} floats"
        return
    for k, value in enumerate(values):
        label = what if what == "reward" else f"{what}[{k}]"
        if not isinstance(value, float | np.floating):
            yield (label, "type"), f"{label}={value!r}: expected a float (1.0, not 1)"
        elif not math.isfinite(value):
            yield (label, "finite"), f"{label}={value}: expected a finite number"


def _plain(value: Any) -> Any:
    """A tuple of Python's numbers, which can be read and copied."""
    return tuple(map(float, value)) if isinstance(value, tuple) else value


def _draw(rng: np.random.Generator, count: int) -> tuple[float, ...]:
    """Random numbers on the grid of those that float32 kernels draw."""
    return tuple((rng.integers(0, 2**24, count) / 2.0**24).tolist())


def _sample(dynamics: Dynamics, rng: np.random.Generator) -> Any:
    """A random action; one number in eleven of a `Box` is one of its bounds."""
    space = dynamics.action_space
    if isinstance(space, Discrete):
        return int(rng.integers(space.n))
    low, high = np.clip(space.low, -1e3, 1e3), np.clip(space.high, -1e3, 1e3)
    share = rng.uniform(-0.05, 1.05, low.shape).clip(0.0, 1.0)
    return tuple((low + share * (high - low)).astype(np.float32).tolist())


def _kernel_draws(seed: int, n: int, turn: int, count: int, first: int, dtype: Any) -> list[Any]:
    """What the kernels draw for N environments: N tuples of `count` numbers."""
    if count == 0:
        return [()] * n
    draw: Any = uniforms(count, first, dtype)
    draw = draw.py_func
    # Compiled functions that are inlined cannot be called: `mix` itself as plain Python.
    draw = types.FunctionType(draw.__code__, {**draw.__globals__, "mix": mix.py_func})
    with np.errstate(over="ignore"):
        words = mix.py_func(*keys(stream_seeds(seed, n)), np.uint32(turn))
        return list(zip(*(column.tolist() for column in draw(*words)), strict=True))


def _nearby(plain: Any, given: Any, distance: float, rng: np.random.Generator) -> Iterable[Array]:
    """Results of a plain function at inputs close to the given ones."""
    for _ in range(TRIES):
        moved = []
        for part in given:
            values = np.atleast_1d(np.array(part, np.float64))
            scale = np.abs(values).max(initial=0.0)
            values = values + distance * scale * rng.uniform(-1.0, 1.0, values.shape)
            moved.append(part if isinstance(part, int) else tuple(values.tolist()))
        try:
            yield plain(*moved)
        except Exception:
            continue
