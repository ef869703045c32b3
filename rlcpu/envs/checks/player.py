"""Episodes of an environment in plain Python, with random actions, whose faults are noted."""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu.envs.checks import watched
from rlcpu.envs.checks.coverage import Coverage
from rlcpu.envs.checks.findings import Findings, describe_call, plain_value
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.fields import params_of, with_numbers
from rlcpu.envs.contract.scales import (
    LEAST_ROWS,
    find_misfits,
    find_unfit_bounds,
    names_of_numbers,
    scaling_by_bounds,
)
from rlcpu.envs.contract.trial import (
    allowed_choices,
    call_function,
    check_result,
    draw_numbers,
    outside,
)
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.layout import arrays
from rlcpu.envs.layout.arrays import State, fields_of
from rlcpu.kernels.machine.random import Rng
from rlcpu.nn.network.scaling import Scaling

#: Files of ours that may be below an author's lines in a traceback.
_OWN_FILES = (watched.__file__, arrays.__file__)
#: Largest rewards and observations that need no scaling: default networks and learning rates are
#: for numbers around 1, and the largest reward of Gymnasium's is 100 (landers).
LARGE = 100.0
#: Most places that never ran which the report names.
MOST_PLACES = 6


class Case(NamedTuple):
    """The inputs of one step, plain values in the order of its arguments."""

    state: Any
    action: Any
    params: Any
    draws: Any  # random numbers, an `Rng` or a tuple; () if a step takes none


class ChosenAction(NamedTuple):
    """An action, and what it was chosen by."""

    observation: Any
    mask: Any  # a bool for each action; None if all are allowed
    action: Any


@dataclasses.dataclass
class Played:
    """Steps that did not fail, and what learning will meet in them."""

    episodes: int = 0
    ends: int = 0  # steps that terminated an episode
    cases: list[Case] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    observations: list[Any] = dataclasses.field(default_factory=list)
    #: Share of the actions that the mask of each step forbids.
    masked_shares: list[float] = dataclasses.field(default_factory=list)


class Player:
    """Plays an environment in plain Python, and notes what is wrong or worth knowing.

    Arguments are those of `check`; `findings` has the faults found so far, and `note` adds to it.

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
        self._watched = watched.watch(dynamics, self._warn)

    def play(self, steps: int, rng: np.random.Generator) -> list[Case]:
        """Play episodes, and note their faults.

        Args:
            steps: how many to take; one that fails counts, and ends the episode.
            rng: draws actions, unless a policy chooses them, and the environment's numbers.

        Returns:
            The inputs of the steps that did not fail.
        """
        played, tried = Played(), 0
        while tried < steps:
            tried += self._play_episode(played, steps - tried, rng)
        whose = "drawn uniformly at random" if self._policy is None else "of the policy"
        self.note(
            "note",
            f"{len(played.cases)} steps of {played.episodes} episodes were played, with actions "
            f"{whose}: what they do not reach is not checked",
        )
        self._note_never_run()
        self._note_ends(len(played.cases), played.ends)
        self._note_scales(played)
        return played.cases

    def _play_episode(self, played: Played, most: int, rng: np.random.Generator) -> int:
        """Play an episode of at most `most` steps; return how many were tried, at least 1."""
        dynamics, tried = self.dynamics, 0
        params = self._draw_params(rng)
        state = self._call("reset", draw_numbers(dynamics, "reset", rng), params)
        if self._states:
            state = self._states[played.episodes % len(self._states)]
        played.episodes += 1
        for tried in range(1, min(most, dynamics.max_episode_steps or most) + 1):
            choice = None if state is None else self._choose_action(state, params, rng)
            if choice is None:
                return tried
            case = Case(state, choice.action, params, draw_numbers(dynamics, "step", rng))
            result = self._call("step", *case)
            if result is None:
                return tried
            state, reward, *flags = result
            mask = choice.mask
            played.cases.append(case)
            played.rewards.append(float(reward))
            played.observations.append(choice.observation)
            played.masked_shares.append(0.0 if mask is None else 1.0 - sum(mask) / len(mask))
            played.ends += bool(flags[0])
            if any(flags):
                break
        self._call("observe", state, params)
        if dynamics.action_mask:
            self._call("action_mask", state, params)
        return tried

    def _choose_action(
        self, state: Any, params: Any, rng: np.random.Generator
    ) -> ChosenAction | None:
        """Return the action of a state; None if a function fails, or no action is allowed."""
        observation, mask = self._call("observe", state, params), None
        if observation is None:
            return None
        if self.dynamics.action_mask:
            mask = self._call("action_mask", state, params)
            if mask is None:
                return None
            if not all(allowed_choices(self.dynamics, mask)):
                message = f"action_mask({plain_value(state)}) allows nothing: expected one action"
                self.note("error", f"{message}, or the end of the episode", "empty mask")
                return None
        if self._policy is None:
            return ChosenAction(observation, mask, sample_action(self.dynamics, rng, mask))
        return ChosenAction(
            observation, mask, _chosen(self.dynamics, self._policy, observation, mask)
        )

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

    def _note_scales(self, played: Played) -> None:
        """Note large rewards and observations of all steps, and how many actions are masked."""
        largest = max(map(abs, played.rewards), default=0.0)
        if largest > LARGE:
            scale = 10.0 ** -math.floor(math.log10(largest))
            self.note(
                "note",
                f"rewards are up to {largest:.4g}, of which default agents learn nothing: train "
                f"with reward_scale={scale:g}, or PPO with normalize_rewards=True",
            )
        self._note_scales_of_observations(played.observations)
        self._note_bounds_of_actions()
        if any(played.masked_shares):
            self.note("note", f"{np.mean(played.masked_shares):.0%} of actions were masked")

    def _note_bounds_of_actions(self) -> None:
        """Note bounds of actions that PPO's first actions, Normal(0, 1), hardly explore."""
        space: Any = self.dynamics.action_space
        if (k := find_unfit_bounds(space)) is not None:
            low, high = space.low[k], space.high[k]
            self.note(
                "warning",
                f"action[{k}] goes from {low:g} to {high:g}, where PPO's first actions are "
                "those of Normal(0, 1): bring the bounds near [-1, 1], or train PPO with "
                "scale_actions=True",
            )

    def _note_scales_of_observations(self, observations: list[Any]) -> None:
        """Note numbers of plain observations whose scale does not fit networks."""
        space = self.dynamics.observation_space
        names = names_of_numbers(space)
        if not names or not observations:
            return
        inputs = _inputs_of(self.dynamics, observations)[:, list(names)]
        mean, scale, limit = scaling_by_bounds(space)
        scaling = Scaling(mean[list(names)], scale[list(names)], limit)
        misfits = []
        if len(inputs) >= LEAST_ROWS:
            misfits = find_misfits(inputs, scaling, list(names.values()))
        for misfit in misfits:
            self.note(
                "warning",
                f"scaled by the bounds of observation_space, {misfit.message}: all algorithms "
                "but PPO learn little of it; give bounds near its values, or train with "
                "normalize_observations=True",
            )
        sizes = np.abs(inputs).max(axis=0)
        if sizes.max() > LARGE and all(misfit.kind != "large" for misfit in misfits):
            k = int(sizes.argmax())
            self.note(
                "note",
                f"{list(names.values())[k]} is up to {sizes[k]:.4g}: divide it in observe, or "
                "train with normalize_observations=True",
            )

    def _call(self, name: str, *inputs: Any) -> Any:
        """Return the result of a plain function; note its faults, and return None if it is bad.

        It is called twice: the watched twin, then the function itself, whose lines are recorded.
        The results have to be equal. `inputs` are as `call_function` takes them.
        """
        dynamics, call = self.dynamics, describe_call(name, inputs, self.dynamics.params)
        twin, function = self._watched[name], getattr(self.dynamics, name)
        watched_inputs = map(self._watch_draws, inputs)
        try:
            result = call_function(dynamics, name, twin, *watched_inputs, watch=self._watch_state)
            with self._coverage.watch():
                again = call_function(dynamics, name, function, *inputs)
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
            check_result(dynamics, name, result)
        except (TypeError, ValueError) as error:
            fault = str(error).removeprefix(f"{dynamics.id}: ")
            self.note("error", f"{call}: {fault}", fault.partition("; returned")[0])
            return None
        # One rounding to float32 is allowed.
        if name == "observe" and (fault := outside(dynamics, result, slack=1e-6)):
            self.note("error", f"{call} returned {fault} of observation_space", "outside")
        return result

    def _warn(self, message: str, kind: Any) -> None:
        self.note("warning", message, kind)

    def _watch_state(self, state: Any) -> None:
        watched.watch_state(state, self._warn)

    def _watch_draws(self, value: Any) -> Any:
        """Return an `Rng` that reports numbers asked for twice; other inputs as they are."""
        return watched.WatchedRng.of(value, self.note) if isinstance(value, Rng) else value

    def _draw_params(self, rng: np.random.Generator) -> Any:
        """Return the params of a new episode of any environment."""
        dynamics = self.dynamics
        if not dynamics.varied and dynamics.randomize is None:
            return dynamics.params
        num_envs = min((len(values) for values in dynamics.varied.values()), default=1)
        params = params_of(dynamics, int(rng.integers(num_envs)))
        if dynamics.randomize is None:
            return params
        drawn = self._call("randomize", Rng.of_seed(int(rng.integers(2**63))), params)
        names = dynamics.randomized if drawn is not None else ()
        return with_numbers(params, {name: getattr(drawn, name) for name in names})


def _inputs_of(dynamics: Dynamics, observations: list[Any]) -> Any:
    """Return plain observations as inputs of networks, (n, num_inputs) float32."""
    view = ObservationView.of(dynamics, "float32", np.dtype(np.float32))._replace(num_masked=0)
    if isinstance(observations[0], np.ndarray):
        return view.flatten(np.stack(observations))
    return view.inputs(dynamics.observation.to_rows(observations, np.float32))


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
    if not isinstance(space, Box):
        mask = (True,) * dynamics.num_choices if mask is None else mask
        chosen = tuple(
            numbers[rng.integers(len(numbers))] for numbers in allowed_choices(dynamics, mask)
        )
        return chosen if dynamics.choices else chosen[0]
    low, high = np.clip(space.low, -1e3, 1e3), np.clip(space.high, -1e3, 1e3)
    share = rng.uniform(-0.05, 1.05, low.shape).clip(0.0, 1.0)
    return tuple((low + share * (high - low)).astype(np.float32).tolist())


def _chosen(dynamics: Dynamics, policy: Callable[[Any], Any], observation: Any, mask: Any) -> Any:
    """Return the action that a user's policy chooses of a plain observation.

    `mask` has a bool for each action, None if all are allowed. Raises ValueError for what is no
    action, or one that the mask forbids.
    """
    space, action = dynamics.action_space, policy(observation)
    array, kinds = np.asarray(action), "iuf" if isinstance(dynamics.action_space, Box) else "iu"
    is_action = array.dtype.kind in kinds and space.contains(array.astype(space.dtype))
    begins = np.cumsum((0, *dynamics.choices[:-1]))  # of the choices of each number in the mask
    if not is_action or (mask is not None and not np.array(mask)[begins + array].all()):
        allowed = "" if mask is None else f" that action_mask allows, {mask}"
        raise ValueError(
            f"policy({observation!r}) returned {action!r}: expected an action of {space}{allowed}"
        )
    if isinstance(space, Discrete):
        return int(array)
    return tuple(array.tolist() if isinstance(space, MultiDiscrete) else map(float, array))
