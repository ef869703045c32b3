"""`rlcpu.envs.compare`: one of our environments beside another implementation of it.

Both get the same actions. From equal states single steps have to agree, and the first that does not
is reported with its step and its field. Whole episodes are compared by their distributions. "Ours"
is the `Dynamics`, run in plain Python; "theirs" is an environment of Gymnasium.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import inspect
import math
import re
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, flatdim

from rlcpu.envs.checks.findings import Findings, Report, plain_value
from rlcpu.envs.checks.observed import (
    Part,
    count_of,
    differ_in_bounds,
    our_numbers,
    parts_of,
    their_numbers,
    values_of,
)
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.contract.trial import allowed_choices, call_function, draw_numbers
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.layout.groups import INT_ARRAY
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.kernels.machine.random import Rng

Array = npt.NDArray[Any]
#: Difference of two numbers that rounding explains, relative to the largest of their kind.
TOLERANCE = 1e-6
#: Steps of our episodes whose numbers say how large those of a kind are.
SCALE_STEPS = 100
#: Chance that any test of distributions calls two environments different that are the same.
SIGNIFICANCE = 0.001
#: Steps after which distributions are not compared, since an episode does not end.
MOST_STEPS = 10_000


def compare(
    environment: str | Dynamics,
    against: str | Callable[[], Any] | gymnasium.Env[Any, Any],
    set_state: Callable[..., Any] | None = None,
    *,
    steps: int = 1000,
    episodes: int = 200,
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> Report:
    """Compare an environment with another implementation of it, under the same random actions.

    Single steps are compared from equal states: of a state that is a tuple of floats, if the other
    environment has an attribute `state` as Gymnasium's have, and of any other by `set_state`. They
    are those of plain Python in float64, which `check` compares with the kernels. A real number of
    an observation may differ by `tolerance` of the largest in its part of the observation, or of
    the largest that random episodes had in its place; a reward by that of the largest reward. Whole
    numbers and flags are equal. Parts of a `Dict` are compared by their names; there a part of a
    part has the names of both, as "view_image".

    Whole episodes of random actions are compared by the distributions of their returns, their
    lengths and their first observations: Kolmogorov and Smirnov's test of two samples, whose
    alarms are false with a chance of 0.001 in all.

    Args:
        environment: ours, or the id of a registered one.
        against: an environment with Gymnasium's interface, what makes one (such as its class), or
            its id, "gymnasium:CartPole-v1", or a name in a module, "package.module:Class".
        set_state: (env, state), which brings the other environment, `env.unwrapped`, into one of
            our states at the beginning of an episode, and may return what it then observes. Or
            (env, state, rng), which is called before each step and can give it the random numbers
            of our step.
        steps: single steps to compare.
        episodes: of each environment, whose distributions are compared.
        seed: of states, actions and both environments.
        tolerance: of real numbers, see above. An environment that computes in float32 may need
            more, if it adds up the errors of many operations.

    Returns:
        The differences, to print, or to ask whether there is none (`ok`).

    Raises:
        TypeError, ValueError: a bad argument, with its name and value.
        ImportError: there is no such module.

    Example:
        >>> print(compare("CartPole-v1", "gymnasium:CartPole-v1", steps=100, episodes=50))
        CartPole-v1 against CartPole-v1: 0 errors, 0 warnings, 2 notes in 100 steps
        note     100 steps from equal states agree, 100 of them in all bits
        note     returns, lengths and first observations of 50 episodes are alike
    """
    dynamics = find(environment)
    if not dynamics.runs_in_kernels:
        raise TypeError(f"environment={dynamics.id}: it is stepped by another engine already")
    if set_state is not None and not callable(set_state):
        raise TypeError(f"set_state={set_state!r}: expected a function (env, state)")
    steps, episodes = check_count("steps", steps), check_count("episodes", episodes, least=2)
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real):
        raise TypeError(f"tolerance={tolerance!r}: expected a number")
    if not 0.0 <= tolerance < math.inf:
        raise ValueError(f"tolerance={tolerance}: expected a number of at least 0")
    seed, other = check_seed(seed), make_other(against)
    name = other.spec.id if other.spec else type(other.unwrapped).__name__
    comparison = Comparison(dynamics, other, Findings(), tolerance)
    if comparison.compare_spaces():
        ours = comparison.play_ours(episodes, seed)  # whose numbers tell how large others are
        if setter := comparison.find_setter(set_state):
            comparison.compare_steps(setter, steps, seed)
        comparison.compare_episodes(ours, comparison.play_theirs(episodes, seed))
    findings = comparison.findings.sorted()
    return Report(f"{dynamics.id} against {name}", comparison.steps_taken, findings)


def make_other(against: Any) -> gymnasium.Env[Any, Any]:
    """Return the environment that the argument `against` of `compare` names, makes or is.

    Raises TypeError, ImportError or ValueError if it is none, or there is none of this name.
    """
    environment = against
    if isinstance(against, str):
        if re.search(r"-v\d+$", against) or ":" not in against:
            return gymnasium.make(against, disable_env_checker=True)
        environment = find_object("against", against)
    if callable(environment):
        environment = environment()
    if not isinstance(environment, gymnasium.Env):
        raise TypeError(
            f"against={against!r}: expected an environment of Gymnasium, got {environment!r}"
        )
    return environment


def find_object(argument: str, text: str) -> Any:
    """Return the object that "package.module:name" names; `argument` is its name in errors.

    Raises ImportError if there is no such module, ValueError if it has no such name.
    """
    module, _, name = text.rpartition(":")
    found_object = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found_object, part):
            raise ValueError(f"{argument}={text!r}: {found_object.__name__} has no {part}")
        found_object = getattr(found_object, part)
    return found_object


class Result(NamedTuple):
    """Results of a step, of either environment."""

    observation: Array  # (count,) float64, all numbers in the order of our space
    reward: float
    terminated: bool
    truncated: bool


@dataclasses.dataclass
class Comparison:
    """Two environments, and the differences between them so far."""

    dynamics: Dynamics
    other: gymnasium.Env[Any, Any]
    findings: Findings
    tolerance: float = TOLERANCE
    steps_taken: int = 0
    steps_equal: int = 0  # in all bits
    #: Of random episodes: the largest reward, and the largest of each number of an observation.
    reward_scale: float = 0.0
    scales: Any = None  # (count,)

    @functools.cached_property
    def parts(self) -> list[Part]:
        """Return the parts of an observation."""
        theirs = parts_of(self.other.observation_space)
        ours = parts_of(self.dynamics.observation_space)
        return [Part(name, space, theirs[name]) for name, space in ours.items()]

    @functools.cached_property
    def labels(self) -> list[str]:
        """Return what messages call the numbers of an observation, in their order."""
        names = [(f"[{part.name!r}]" if part.name else "", part) for part in self.parts]
        return [f"observation{x}[{k}]" for x, part in names for k in range(count_of(part.ours))]

    def compare_spaces(self) -> bool:
        """Compare the spaces; return whether they have the same actions and as many numbers."""
        for name in ("action_space", "observation_space"):
            ours, theirs = getattr(self.dynamics, name), getattr(self.other, name)
            message, is_action = f"{name} is {ours} here and {theirs} there", name == "action_space"
            if is_action:
                parts = [Part("", ours, theirs)]
                same_kind = isinstance(ours, Discrete) == isinstance(theirs, Discrete)
                is_alike = same_kind and flatdim(ours) == flatdim(theirs)
            else:
                parts = self.parts if parts_of(ours).keys() == parts_of(theirs).keys() else []
                is_alike = all(count_of(part.ours) == part.count_theirs() for part in parts)
                is_alike &= bool(parts)
            if not is_alike:
                self.findings.note("error", message)
                return False
            if any(differ_in_bounds(part.ours, part.theirs) for part in parts):
                self.findings.note("error" if is_action else "warning", message)
        return True

    def find_setter(self, set_state: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Return the function that sets the state of the other environment; None if there is none.

        It is `set_state`, the argument of `compare`; without it the attribute `state` is set, if
        the other environment has one and our state is a tuple of floats.
        """
        is_random = self.dynamics.takes_rng("step") or self.dynamics.step_draws > 0
        if set_state is not None:
            if not is_random or _takes_rng(set_state):
                return set_state
            self.findings.note(
                "note",
                "step draws random numbers: single steps are compared by a set_state(env, state, "
                "rng), which gives them to the other environment",
            )
            return None
        # Before the first reset a property may have no value: its class has it.
        other = self.other.unwrapped
        has_state = hasattr(other, "state") or hasattr(type(other), "state")
        if has_state and self.dynamics.state.is_plain and not is_random:
            return _set_attribute
        why = "step draws random numbers" if is_random else "no state was set"
        self.findings.note("note", f"single steps were not compared: {why}; give set_state")
        return None

    # ------------------------------------------------------------ single steps

    def compare_steps(self, setter: Callable[..., Any], steps: int, seed: int) -> None:
        """Compare steps from equal states, and note the first difference of each episode.

        A setter, see `find_setter`, that takes random numbers sets the state before each step,
        others at the beginning of an episode alone.
        """
        rng, episode = np.random.default_rng(seed), 0
        self.other.action_space.seed(seed)
        while self.steps_taken < steps:
            self._compare_episode(setter, f"episode {episode}", steps - self.steps_taken, rng)
            episode += 1
        if all(finding.level == "note" for finding in self.findings.sorted()):
            taken, equal = self.steps_taken, self.steps_equal
            message = f"{taken} steps from equal states agree, {equal} of them in all bits"
            self.findings.note("note", message)

    def _compare_episode(
        self, setter: Callable[..., Any], name: str, most: int, rng: np.random.Generator
    ) -> None:
        """Compare the steps of an episode, at most so many, until the first difference."""
        dynamics, other, sets_every_step = self.dynamics, self.other.unwrapped, _takes_rng(setter)
        params = dynamics.draw_params(Rng.of_seed(int(rng.integers(2**63))))
        state = self._call("reset", draw_numbers(dynamics, "reset", rng), params)
        self.other.reset(seed=int(rng.integers(2**31)))
        # A copy: what the other environment keeps of an array it may write to.
        observation = None if sets_every_step else setter(other, copy.copy(state))
        if observation is not None:
            numbers = self._observe(state, params), self._their_numbers(observation)
            where = f"{name}, at the reset, for state={plain_value(state)}"
            self._note_first(where, self._differences_of_observations(*numbers))
        for step in range(min(most, dynamics.max_episode_steps or most)):
            before, draws = state, draw_numbers(dynamics, "step", rng)
            if sets_every_step:
                setter(other, copy.copy(state), draws)
            action = self._action(state, params, rng)
            state, ours = self._our_step(state, action, params, draws)
            theirs = self._their_step(action)
            # At its limit ours is truncated by `VectorEnv`, theirs if an id made it, with a spec.
            if step + 1 == dynamics.max_episode_steps:
                ours = ours._replace(truncated=theirs.truncated or self.other.spec is not None)
            self.steps_taken += 1
            same_bits = np.array_equal(ours.observation, theirs.observation)
            self.steps_equal += same_bits and ours[1:] == theirs[1:]
            where = f"{name}, step {step}, action {action}, from state={plain_value(before)}"
            differences = self._differences(ours, theirs)
            if differences and not sets_every_step and step > 0:  # again, from an equal state
                setter(other, copy.copy(before))
                if not self._differences(ours, self._their_step(action)):
                    message = (
                        f"{where}: {differences[0]}; the step agrees if it begins in the same "
                        "state: small differences have added up, or the state set is not all of it"
                    )
                    self.findings.note("warning", message, "drift")
                    return
            self._note_first(where, differences)
            if differences or any(ours[2:]) or any(theirs[2:]):
                return

    def _note_first(self, where: str, differences: list[str]) -> None:
        """Note the first of some differences, as an error at a place; nothing without any."""
        for difference in differences[:1]:
            self.findings.note("error", f"{where}: {difference}", difference.partition("=")[0])

    def _differences(self, ours: Result, theirs: Result) -> list[str]:
        """Return descriptions of the fields that differ by more than rounding explains."""
        texts = self._differences_of_observations(ours.observation, theirs.observation)
        slack = self.tolerance * max(abs(ours.reward), abs(theirs.reward), self.reward_scale)
        if ours.reward != theirs.reward and not abs(ours.reward - theirs.reward) <= slack:
            texts.append(f"reward={ours.reward} here and {theirs.reward} there")
        for name in ("terminated", "truncated"):
            here, there = getattr(ours, name), getattr(theirs, name)
            texts += [f"{name}={here} here and {there} there"] if here != there else []
        return texts

    def _differences_of_observations(self, ours: Array, theirs: Array) -> list[str]:
        """Return the first difference of two that rounding does not explain, as a text."""
        if ours.shape != theirs.shape:
            return [f"observation={len(ours)} numbers here and {len(theirs)} there"]
        slack, first = np.zeros(len(ours)), 0
        for part in self.parts:
            numbers = slice(first, first + count_of(part.ours))
            if part.is_real:
                largest = np.abs([ours[numbers], theirs[numbers]]).max()
                slack[numbers] = self.tolerance * np.maximum(largest, self.scales[numbers])
            first = numbers.stop
        with np.errstate(invalid="ignore"):
            is_wrong = (ours != theirs) & ~(np.abs(ours - theirs) <= slack)
        return [
            f"{self.labels[k]}={ours[k]:.9g} here and {theirs[k]:.9g} there"
            for k in np.flatnonzero(is_wrong)[:1]
        ]

    def _call(self, name: str, *inputs: Any) -> Any:
        """Return the result of one of our plain functions."""
        return call_function(self.dynamics, name, getattr(self.dynamics, name), *inputs)

    def _observe(self, state: Any, params: Any) -> Array:
        """Return our observation of a state as numbers, (count,) float64."""
        observation = self._call("observe", state, params)
        # What `observe` wrote into `out` is a record, of one field where there are no parts.
        values = (getattr(observation, part.name or INT_ARRAY, observation) for part in self.parts)
        return np.concatenate(list(map(our_numbers, self.parts, values)))

    def _their_numbers(self, observation: Any) -> Array:
        """Return an observation of the other environment as numbers, in the order of ours."""
        values = values_of(self.other.observation_space, observation)
        return np.concatenate([their_numbers(part, values[part.name]) for part in self.parts])

    def _action(self, state: Any, params: Any, rng: np.random.Generator) -> Any:
        """Draw an action that our mask allows."""
        if self.dynamics.action_mask is None:
            return self.other.action_space.sample()
        allowed = allowed_choices(self.dynamics, self._call("action_mask", state, params))
        drawn, start = [int(rng.choice(numbers)) for numbers in allowed], self.other.action_space
        return (
            np.array(drawn) + _start(start) if self.dynamics.choices else drawn[0] + _start(start)
        )

    def _our_step(self, state: Any, action: Any, params: Any, draws: Any) -> tuple[Any, Result]:
        """Take our step; return the new state and the result."""
        numbers = (np.asarray(action) - _start(self.other.action_space)).tolist()
        plain_action = tuple(numbers) if isinstance(numbers, list) else int(numbers)
        state, reward, *flags = self._call("step", state, plain_action, params, draws)
        terminated, truncated = (*map(bool, flags), False)[:2]
        return state, Result(self._observe(state, params), float(reward), terminated, truncated)

    def _their_step(self, action: Any) -> Result:
        """Step the other environment."""
        observation, reward, *flags, _ = self.other.step(action)
        return Result(self._their_numbers(observation), float(reward), *map(bool, flags))

    # ------------------------------------------------------------ whole episodes

    def compare_episodes(self, ours: Array | None, theirs: Array | None) -> None:
        """Compare the distributions of returns, lengths and first observations of episodes.

        They are what `play_ours` and `play_theirs` return.
        """
        if ours is None or theirs is None:
            who = "here" if ours is None else "there"
            self.findings.note(
                "warning", f"episodes were not compared: one took {MOST_STEPS} steps {who}"
            )
            return
        episodes = len(ours)
        names = ["returns", "lengths"]
        names += [f"first {label}" for label in self.labels]
        differ = False
        for k, name in enumerate(names):
            chance = ks_chance(ours[:, k], theirs[:, k])
            if chance < SIGNIFICANCE / len(names):
                differ = True
                means = f"mean {ours[:, k].mean():.4g} here and {theirs[:, k].mean():.4g} there"
                self.findings.note(
                    "error",
                    f"{name} of {episodes} random episodes differ: {means}; environments that are "
                    f"the same differ as much with a chance of {chance:.1g}",
                    name.partition("[")[0],
                )
        if not differ:
            self.findings.note(
                "note", f"returns, lengths and first observations of {episodes} episodes are alike"
            )

    def play_ours(self, episodes: int, seed: int) -> Array | None:
        """Play episodes of ours with random actions, as a batch, and set the scales.

        Returns:
            (episodes, 2 + count): return, length and first observation of each; None if one does
            not end.
        """
        env = VectorEnv(self.dynamics.resized(episodes), episodes, num_threads=1)
        first, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        totals, lengths = np.zeros(episodes), np.zeros(episodes)
        running, numbers = np.ones(episodes, np.bool_), self._batch_numbers(first)
        starts, self.scales = numbers, np.abs(numbers).max(axis=0)
        for step in range(MOST_STEPS):
            masks, choices = env.action_masks(), self.dynamics.choices
            allowed = None if masks is None else tuple(split_mask(mask, choices) for mask in masks)
            actions = env.action_space.sample(allowed)
            observations, rewards, terminated, truncated, _ = env.step(actions)
            if step < SCALE_STEPS:
                largest = np.abs(self._batch_numbers(observations)).max(axis=0)
                self.scales = np.maximum(self.scales, largest)
                self.reward_scale = max(self.reward_scale, float(np.abs(rewards).max()))
            totals += rewards * running
            lengths += running
            running &= ~(terminated | truncated)
            if not running.any():
                break
        if running.any():
            return None
        return np.column_stack([totals, lengths, starts])

    def _batch_numbers(self, observations: Any) -> Array:
        """Return observations of N environments of ours as numbers, (N, count) float64."""
        arrays = [observations[part.name] if part.name else observations for part in self.parts]
        rows = [np.asarray(array, np.float64).reshape(len(array), -1) for array in arrays]
        return np.concatenate(rows, axis=1)

    def play_theirs(self, episodes: int, seed: int) -> Array | None:
        """Play episodes of the other environment; return as `play_ours` does."""
        env, rows = self.other, []
        env.action_space.seed(seed + 1)
        limit = self.dynamics.max_episode_steps if env.spec is None else None
        for episode in range(episodes):
            observation, infos = env.reset(seed=seed + episode)
            row, over = [0.0, 0.0, *self._their_numbers(observation)], False
            while not over:
                mask = infos.get("action_mask")
                action = env.action_space.sample(split_mask(mask, self.dynamics.choices))
                _, reward, terminated, truncated, infos = env.step(action)
                row[0] += float(reward)
                row[1] += 1
                over = terminated or truncated or row[1] == limit
                if row[1] >= MOST_STEPS and not over:
                    return None
            rows.append(row)
        return np.array(rows)


def split_mask(mask: Any, choices: tuple[int, ...]) -> Any:
    """Return a mask as `sample` of a space of Gymnasium's takes it, int8.

    That is an array of a `Discrete`, and of a `MultiDiscrete` with these choices a tuple of arrays.
    None, and such a tuple, are returned as they are.
    """
    if mask is None or isinstance(mask, tuple):
        return mask
    array = np.asarray(mask).astype(np.int8)
    return tuple(np.split(array, np.cumsum(choices)[:-1])) if choices else array


def _start(space: Any) -> Any:
    """Return the smallest action of a space of whole numbers, where ours is 0; 0 of others."""
    return getattr(space, "start", 0)


# ---------------------------------------------------------------- distributions


def ks_chance(a: Array, b: Array) -> float:
    """Return the chance that samples of one distribution, (n,) and (m,), differ as these or more.

    Kolmogorov and Smirnov's test in the approximation of Stephens (1970); if some numbers are
    equal, the chance is less than the one returned.
    """
    values = np.sort(np.concatenate([a, b]))
    cumulative = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (a, b)]
    distance = float(np.abs(cumulative[0] - cumulative[1]).max())
    effective_root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (effective_root + 0.12 + 0.11 / effective_root) * distance
    if scaled < 0.3:  # the series has not converged yet, and the chance is 1 to eight digits
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2.0 * (k * scaled) ** 2) for k in range(1, 101))
    return min(max(2.0 * sum(terms), 0.0), 1.0)


def _takes_rng(function: Callable[..., Any]) -> bool:
    """Tell whether a function takes the random numbers of a step as a third argument."""
    try:
        inspect.signature(function).bind("env", "state")
    except TypeError:
        return True
    return False


def _set_attribute(env: Any, state: Any) -> None:
    """Set the state of a Gymnasium environment that has it as an attribute."""
    env.state = np.array(state, np.float64)
