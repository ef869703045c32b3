"""Episodes of an environment in plain Python, with random actions, whose faults are noted."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu.envs.checks import watched
from rlcpu.envs.checks.coverage import Coverage
from rlcpu.envs.checks.fields import params_of, with_numbers
from rlcpu.envs.checks.findings import Findings, plain_value
from rlcpu.envs.checks.trial import call_function, check_result, draw_numbers, outside
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine import arrays
from rlcpu.envs.engine.arrays import State, fields_of
from rlcpu.envs.engine.groups import INT_ARRAY
from rlcpu.kernels.random import Rng

#: Files of ours that may be below an author's lines in a traceback.
_OWN_FILES = (watched.__file__, arrays.__file__)
#: Largest rewards and observations that need no scaling: default networks and learning rates are
#: for numbers around 1, and the largest reward of Gymnasium's is 100 (landers).
LARGE = 100.0
#: Most places that never ran which the report names.
MOST_PLACES = 6


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


class Player:
    """Plays an environment in plain Python, and notes what is wrong or worth knowing.

    Arguments are those of `check`.

    Attributes:
        findings: what was found so far; `note` adds to it.

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
        self.note = self.findings.note
        self._params_vary = bool(dynamics.varied) or dynamics.randomize is not None
        self._warn: watched.Report = lambda message: self.note("warning", message)
        self._watched = watched.watch(dynamics, self._warn)

    def play(self, steps: int, rng: np.random.Generator) -> list[Case]:
        """Play episodes, and note their faults.

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
                state, age = self._call("reset", draw_numbers(dynamics, "reset", rng), params), 0
                if self._states:
                    state = self._states[episodes % len(self._states)]
                episodes += 1
            choice = None if state is None else self._choose_action(state, params, rng)
            if choice is None:
                state = None
                continue
            observation, mask, action = choice
            case = Case(state, action, draw_numbers(dynamics, "step", rng), params)
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
        action = sample_action(dynamics, rng, mask)
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
        """Note large rewards and observations of all steps, and how many actions are masked.

        `masked_shares` has the share of the actions that the mask of each step forbids.
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
        The results have to be equal. `inputs` are as `plain` takes them.
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


def _comparable(value: Any) -> Any:
    """Return a form of a result in which equal results compare equal, NaN too."""
    if isinstance(value, State):
        return [array.tobytes() for array in fields_of(value)]
    if isinstance(value, tuple):
        return [_comparable(item) for item in value]
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


def sample_action(dynamics: Dynamics, rng: np.random.Generator, mask: Any = None) -> Any:
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
    """Return the action that a user's policy chooses of a plain observation.

    `mask` has a bool for each action, None if all are allowed. Raises ValueError if it forbids the
    action, or that is none.
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
