"""`rlcpu.envs.compare`: one of our environments beside another implementation of it.

Both are given the same actions. From equal states single steps have to agree, and the first that
does not is told with its step and its field. Whole episodes are compared by their distributions.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, flatten

from rlcpu.envs.checks.findings import Findings, Report, plain_value
from rlcpu.envs.checks.trial import call_function
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.registration import find
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.kernels.random import Rng

Array = npt.NDArray[Any]
#: Difference of two numbers that rounding explains, relative to the largest of an observation.
TOLERANCE = 1e-6
#: Chance that all tests of a comparison of two environments that are the same call them different.
SIGNIFICANCE = 0.001
#: Steps after which an episode of a comparison of distributions is given up.
MOST_STEPS = 10_000


def compare(
    environment: str | Dynamics,
    against: str | Callable[[], Any] | gymnasium.Env[Any, Any],
    set_state: Callable[..., Any] | None = None,
    *,
    steps: int = 1000,
    episodes: int = 200,
    seed: int = 0,
) -> Report:
    """Compare an environment with another implementation of it, under the same random actions.

    Single steps are compared from equal states: of a state that is a tuple of floats, if the other
    environment has an attribute `state` as Gymnasium's have, and of any other by `set_state`. They
    are those of plain Python in float64, which `check` compares with the kernels. A number may
    differ by 1e-6 of the largest in its observation.

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

    Returns:
        What differs, to print, or to ask whether it is `ok`.

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
    steps, episodes = check_count("steps", steps), check_count("episodes", episodes, 2)
    seed, other = check_seed(seed), make_other(against)
    name = other.spec.id if other.spec else type(other.unwrapped).__name__
    comparison = Comparison(dynamics, other, name, Findings())
    taken = 0
    if comparison.spaces():
        if setter := comparison.setter(set_state):
            taken = comparison.single_steps(setter, steps, seed)
        comparison.whole_episodes(episodes, seed)
    return Report(f"{dynamics.id} against {name}", taken, comparison.found.sorted())


def make_other(against: Any) -> gymnasium.Env[Any, Any]:
    """Return the environment that `compare` is given; see there."""
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
    """Return what "package.module:name" names.

    Raises:
        ImportError: there is no such module.
        ValueError: it has no such name.
    """
    module, _, name = text.rpartition(":")
    named = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(named, part):
            raise ValueError(f"{argument}={text!r}: {named.__name__} has no {part}")
        named = getattr(named, part)
    return named


class Comparison(NamedTuple):
    """Two environments, and what was found.

    Attributes:
        dynamics: ours.
        other: the other one.
        name: what it is called.
        found: what differs.
    """

    dynamics: Dynamics
    other: gymnasium.Env[Any, Any]
    name: str
    found: Findings

    def spaces(self) -> bool:
        """Compare the spaces; whether both take the same actions."""
        for kind in ("action_space", "observation_space"):
            ours, theirs = getattr(self.dynamics, kind), getattr(self.other, kind)
            same_numbers = gymnasium.spaces.flatdim(ours) == gymnasium.spaces.flatdim(theirs)
            same_kind = isinstance(ours, Discrete) == isinstance(theirs, Discrete)
            same_parts = _parts_of(ours).keys() == _parts_of(theirs).keys()
            if not (same_numbers and same_parts) or (kind == "action_space" and not same_kind):
                self.found.note("error", f"{kind} is {ours} here and {theirs} there")
                return False
            if isinstance(ours, Box) and isinstance(theirs, Box):
                ends = [np.concatenate([x.low.ravel(), x.high.ravel()]) for x in (ours, theirs)]
                if not np.allclose(ends[0], ends[1], rtol=1e-6):
                    level = "error" if kind == "action_space" else "warning"
                    self.found.note(level, f"{kind} is {ours} here and {theirs} there")
        return True

    def setter(self, given: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Return what brings the other environment into our state; None if nothing does."""
        draws = self.dynamics.takes_rng("step") or self.dynamics.step_draws > 0
        if given is not None:
            if draws and not _takes_rng(given):
                self.found.note(
                    "note",
                    "step draws random numbers: single steps are compared by a set_state(env, "
                    "state, rng), which gives them to the other environment",
                )
                return None
            return given
        other = self.other.unwrapped  # before its first reset a property may have no value
        has_state = any(hasattr(each, "state") for each in (other, type(other)))
        if draws or not (has_state and self.dynamics.state.is_plain):
            why = "step draws random numbers" if draws else "no state was set"
            self.found.note("note", f"single steps were not compared: {why}; give set_state")
            return None
        return _set_attribute

    # ------------------------------------------------------------ single steps

    def single_steps(self, setter: Callable[..., Any], steps: int, seed: int) -> int:
        """Compare steps from equal states; how many there were."""
        dynamics, rng, taken, episode, equal = self.dynamics, np.random.default_rng(seed), 0, 0, 0
        every_step = _takes_rng(setter)
        self.other.action_space.seed(seed)
        while taken < steps:
            params = dynamics.draw_params(Rng.of_seed(int(rng.integers(2**63))))
            state = self._call("reset", _draws(dynamics, "reset", rng), params)
            self.other.reset(seed=int(rng.integers(2**31)))
            shown = None if every_step else setter(self.other.unwrapped, state)
            if shown is not None:
                where = f"episode {episode}, at the reset, for state={plain_value(state)}"
                self._differ(where, self._observe(state, params), self._numbers(shown))
            for step in range(dynamics.max_episode_steps or steps):
                draws = _draws(dynamics, "step", rng)
                if every_step:
                    draws_again = draws.again() if isinstance(draws, Rng) else draws
                    setter(self.other.unwrapped, state, draws_again)
                action = self._action(state, params, rng)
                before = state
                state, *ours = self._step(state, action, params, draws)
                their_observation, *theirs = self._other_step(action)
                if step + 1 == dynamics.max_episode_steps:  # a class may leave that to its users
                    ours[2] = theirs[2] if self.other.spec is None else True
                taken += 1
                results = (
                    [self._observe(state, params), *ours],
                    [self._numbers(their_observation), *theirs],
                )
                where = f"episode {episode}, step {step}, action {action}"
                where += f", from state={plain_value(before)}"
                fields = self._different(*results)
                equal += all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
                if fields and not every_step and step > 0:
                    setter(self.other.unwrapped, before)
                    again, *theirs = self._other_step(action)
                    if not self._different(results[0], [self._numbers(again), *theirs]):
                        self.found.note(
                            "warning",
                            f"{where}: {fields[0]}; the step agrees if it begins in the same "
                            "state: small differences have added up, or the state set is not all "
                            "of it",
                            "drift",
                        )
                        break
                for field in fields[:1]:
                    self.found.note("error", f"{where}: {field}", field.partition("=")[0])
                if fields or any(ours[1:]) or any(theirs[1:]) or taken >= steps:
                    break
            episode += 1
        if not any(level in ("error", "warning") for level, _ in self.found.sorted()):
            self.found.note(
                "note", f"{taken} steps from equal states agree, {equal} of them in all bits"
            )
        return taken

    def _call(self, name: str, *inputs: Any) -> Any:
        return call_function(self.dynamics, name, getattr(self.dynamics, name), *inputs)

    def _observe(self, state: Any, params: Any) -> Array:
        """Return our observation as numbers in one axis."""
        observation = self._call("observe", state, params)
        parts = _parts_of(self.dynamics.observation_space)
        each = (
            (part, getattr(observation, name) if name else observation)
            for name, part in parts.items()
        )
        return np.concatenate([self._flat(part, value) for part, value in each])

    def _flat(self, space: Any, observation: Any) -> Array:
        """Return our observation, or a part of it, as numbers in one axis."""
        if isinstance(space, MultiBinary) and isinstance(observation, tuple):
            cells = math.prod(space.shape[1:])
            return np.array(
                [board >> k & 1 for board in observation for k in range(cells)], np.float32
            )
        return np.array(observation, np.float32).ravel()

    def _numbers(self, observation: Any) -> Array:
        """Return an observation of the other environment as ours has its numbers."""
        theirs = _parts_of(self.other.observation_space)
        parts = _parts_of(self.dynamics.observation_space).items()
        return np.concatenate(
            [
                self._as_ours(part, theirs[k], observation[k] if k else observation)
                for k, part in parts
            ]
        )

    def _as_ours(self, ours: Any, space: Any, observation: Any) -> Array:
        """Return an observation of the other environment, or a part of it, as ours has it."""
        if isinstance(ours, MultiDiscrete):
            return np.asarray(observation, np.float32).ravel()
        if isinstance(ours, Discrete):
            return np.array([np.asarray(observation).item()], np.float32)
        array = (
            flatten(space, observation) if not isinstance(space, Box) else np.asarray(observation)
        )
        if isinstance(ours, MultiBinary) and np.shape(observation) == (
            *ours.shape[1:],
            ours.shape[0],
        ):
            array = np.moveaxis(np.asarray(observation), -1, 0)
        return np.asarray(array, np.float32).ravel()

    def _action(self, state: Any, params: Any, rng: np.random.Generator) -> Any:
        """Draw an action that ours allows."""
        if self.dynamics.action_mask is None:
            return self.other.action_space.sample()
        allowed = np.flatnonzero(self._call("action_mask", state, params))
        return int(rng.choice(allowed))

    def _step(self, state: Any, action: Any, params: Any, draws: Any) -> tuple[Any, ...]:
        """Return new state, reward, terminated and truncated of ours."""
        plain_action: Any = (
            int(action) if np.ndim(action) == 0 else tuple(np.asarray(action).tolist())
        )
        inputs = (
            (state, plain_action, params) if draws == () else (state, plain_action, params, draws)
        )
        reached, reward, *flags = self._call("step", *inputs)
        return reached, float(reward), bool(flags[0]), bool(flags[1:] and flags[1])

    def _other_step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, terminated, truncated, _ = self.other.step(action)
        return observation, float(reward), bool(terminated), bool(truncated)

    def _differ(self, where: str, ours: Array, theirs: Array) -> None:
        for field in self._different([ours], [theirs])[:1]:
            self.found.note("error", f"{where}: {field}", field.partition("=")[0])

    def _different(self, ours: list[Any], theirs: list[Any]) -> list[str]:
        """Describe the fields that differ, of an observation, reward and flags."""
        names = ("observation", "reward", "terminated", "truncated")
        differences = []
        for name, our_value, other in zip(names, ours, theirs, strict=False):
            numbers = np.atleast_1d(our_value), np.atleast_1d(other)
            if numbers[0].shape != numbers[1].shape:
                differences.append(
                    f"{name}={len(numbers[0])} numbers here and {len(numbers[1])} there"
                )
                continue
            values = [np.asarray(each, np.float64) for each in numbers]
            slack = TOLERANCE * max(np.abs(each).max(initial=0.0) for each in values)
            for k in np.flatnonzero(~(np.abs(values[0] - values[1]) <= slack))[:1]:
                place = f"{name}[{k}]" if name == "observation" else name
                differences.append(f"{place}={numbers[0][k]} here and {numbers[1][k]} there")
        return differences

    # ------------------------------------------------------------ whole episodes

    def whole_episodes(self, episodes: int, seed: int) -> None:
        """Compare distributions of returns, lengths and first observations."""
        ours, theirs = self._our_episodes(episodes, seed), self._their_episodes(episodes, seed)
        if ours is None or theirs is None:
            who = "here" if ours is None else "there"
            self.found.note(
                "warning", f"episodes were not compared: one took {MOST_STEPS} steps {who}"
            )
            return
        names = ["returns", "lengths"]
        names += [f"first observation[{k}]" for k in range(ours.shape[1] - 2)]
        alarm = False
        for k, name in enumerate(names):
            chance = ks_chance(ours[:, k], theirs[:, k])
            if chance < SIGNIFICANCE / len(names):
                alarm = True
                means = f"mean {ours[:, k].mean():.4g} here and {theirs[:, k].mean():.4g} there"
                self.found.note(
                    "error",
                    f"{name} of {episodes} random episodes differ: {means}; environments that are "
                    f"the same differ as much with a chance of {chance:.1g}",
                    name.partition("[")[0],
                )
        if not alarm:
            self.found.note(
                "note", f"returns, lengths and first observations of {episodes} episodes are alike"
            )

    def _our_episodes(self, episodes: int, seed: int) -> Array | None:
        """Return of each episode its return, its length and its first observation."""
        env = VectorEnv(self.dynamics.resized(episodes), episodes, num_threads=1)
        first, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        rng = np.random.default_rng(seed)
        totals, lengths = np.zeros(episodes), np.zeros(episodes)
        running = np.ones(episodes, np.bool_)
        for _ in range(MOST_STEPS):
            actions = env.action_space.sample()
            if (masks := env.action_masks()) is not None:
                masks = masks | ~masks.any(axis=1, keepdims=True)
                actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
            _, rewards, terminated, truncated, _ = env.step(actions)
            totals += rewards * running
            lengths += running
            running &= ~(terminated | truncated)
            if not running.any():
                break
        if running.any():
            return None
        return np.column_stack([totals, lengths, first.reshape(episodes, -1)])

    def _their_episodes(self, episodes: int, seed: int) -> Array | None:
        """Return the same of the other environment."""
        env, rows = self.other, []
        env.action_space.seed(seed + 1)
        limit = self.dynamics.max_episode_steps if env.spec is None else None
        for episode in range(episodes):
            observation, infos = env.reset(seed=seed + episode)
            row, over = [0.0, 0.0, *self._numbers(observation)], False
            while not over:
                action = env.action_space.sample(infos.get("action_mask"))
                _, reward, terminated, truncated, infos = env.step(action)
                row[0] += float(reward)
                row[1] += 1
                over = terminated or truncated or row[1] == limit
                if row[1] >= MOST_STEPS and not over:
                    return None
            rows.append(row)
        return np.array(rows)


def ks_chance(a: Array, b: Array) -> float:
    """Return the chance that two samples of one distribution differ as much as these, or more.

    Kolmogorov and Smirnov's test in the approximation of Stephens (1970); of numbers of which some
    are equal the chance is less than that.

    Args:
        a: (n,), one sample.
        b: (m,), the other.
    """
    values = np.sort(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (a, b)]
    distance = float(np.abs(shares[0] - shares[1]).max())
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (root + 0.12 + 0.11 / root) * distance
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
    """Set the state of one of Gymnasium's classic environments."""
    env.state = np.array(state, np.float64)


def _draws(dynamics: Dynamics, name: str, rng: np.random.Generator) -> Any:
    """Return the random numbers of a reset or a step; () for none."""
    if dynamics.takes_rng(name):
        return Rng.of_seed(int(rng.integers(2**63)))
    return tuple(rng.random(getattr(dynamics, f"{name}_draws")).tolist())


def _parts_of(space: Any) -> dict[str, Any]:
    """Return the parts of a `Dict` by name; another space as one part without a name."""
    return dict(space.items()) if isinstance(space, Dict) else {"": space}
