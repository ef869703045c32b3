"""Rewards of other goals than were pursued, for hindsight replay: `compute_reward`, compiled.

Goals are arrays of n goals in the form in which buffers store them, see
`rlcpu.envs.engine.observations.ObservationView.stored_example`: (n, size) float32 of floats, (n,)
or (n, count) int32 of choices, (n, planes, 4) uint32 of boards, and the own dtype of other numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.fields import GOALS, fault_of_goals
from rlcpu.envs.contract.trial import check_branches, goals_of
from rlcpu.envs.engine.lane import make_unpack_params, pack
from rlcpu.envs.engine.structure import Structure, ids, structure
from rlcpu.envs.layout.arrays import ArrayLayout
from rlcpu.envs.layout.values import Layout, make_decode
from rlcpu.kernels.compiler.compile import FAST, inline, kernel, specialise
from rlcpu.kernels.compiler.functions import freeze
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.rows import load_rows

Array = npt.NDArray[Any]


@functools.lru_cache(maxsize=16)
def reward_of_goals(dynamics: Dynamics) -> Callable[[Array, Array], Any]:
    """Return (achieved goals, desired goals) -> rewards (n,) float32, or (rewards, terminated).

    Raises:
        TypeError: the environment has no `compute_reward`, or one that reads params which differ
            from environment to environment, or from episode to episode.
    """
    if dynamics.compute_reward is None:
        fault = fault_of_goals(dynamics) or "compute_reward=None has to be a function of goals"
        raise TypeError(f"{dynamics.id} has no goals: {fault}")
    is_pair = isinstance(_try_params(dynamics), tuple)
    layout, place = dynamics.observation, GOALS[0]
    goal = None
    if not isinstance(layout, ArrayLayout):
        (field,) = (each for each in layout.fields if each.name == place)
        goal = Layout(None, (field._replace(name=""),))
    compute = _reward_kernel(structure(dynamics), freeze(dynamics.compute_reward), goal, is_pair)
    space: Any = dynamics.observation_space
    numbers, shape = pack(dynamics.params, np.float32), space[place].shape

    def call(achieved: Array, desired: Array) -> Any:
        """Return rewards, and whether episodes end, of arrays of goals."""
        count = len(achieved)
        goals: Any = [np.ascontiguousarray(x) for x in (achieved, desired)]
        if goal is None:
            goals = [x.reshape(count, *shape) for x in goals]
        else:
            goals = [x.reshape(-1).view(np.float32) for x in goals]
        rewards, terminated = np.empty(count, np.float32), np.empty(count, np.bool_)
        compute(*goals, numbers, rewards, terminated)
        return (rewards, terminated) if is_pair else rewards

    return call


def _try_params(dynamics: Dynamics) -> Any:
    """Return a result of `compute_reward`, given the params alone that all steps have in common."""
    _, params = dynamics.sample_start()
    others = {*dynamics.varied, *dynamics.randomized}
    common = {name: x for name, x in params._asdict().items() if name not in others}
    function: Any = dynamics.compute_reward
    goals = goals_of(dynamics.sample_observation())
    try:
        return function(*goals, SimpleNamespace(**common) if others else params)
    except AttributeError as error:
        if getattr(error, "name", None) not in others:
            raise
        raise TypeError(
            f"{dynamics.id}: compute_reward reads params.{error.name}, which differs between "
            "environments or episodes and is stored with no step: expected it in the goals"
        ) from None


@functools.cache
def _reward_kernel(
    env: Structure, reward: Callable[..., Any], goal: Layout | None, is_pair: bool
) -> Callable[..., None]:
    """Compile the kernel (achieved, desired, numbers, rewards, terminated), the last two written.

    Args:
        env: the environment.
        reward: its `compute_reward`, frozen.
        goal: the layout of a goal, whose rows follow each other; None of arrays (n, *shape).
        is_pair: whether `reward` returns `terminated` too.
    """
    score = specialise(reward, np.float32, arrays=goal is None)
    unpack, goal_at = make_unpack_params(env), _make_goal_at(goal)
    facts = SimpleNamespace(id=ids.get(env), has_arrays=env.state.is_record)

    def check() -> None:
        check_branches(facts, "compute_reward", score)

    @kernel(fastmath=FAST, scalars=(score,), check=check, subject=ids.get(env))
    def compute(achieved, desired, numbers, rewards, terminated):
        """Write the rewards of all goals, one after the other."""
        params = unpack(numbers)
        for i in range(rewards.size):
            result = score(goal_at(achieved, i), goal_at(desired, i), params)
            if is_pair:
                rewards[i], terminated[i] = result
            else:
                rewards[i] = result

    return compute


def _make_goal_at(goal: Layout | None) -> Callable[..., Any]:
    """Make an inlinable function (goals, i) -> goal i as `compute_reward` takes it."""
    if goal is None:
        return inline(lambda goals, i: goals[i])
    size = goal.rows(np.float32)
    load, decode = load_rows(size, ANY), make_decode(goal, np.float32)
    if goal.is_plain:
        return inline(lambda goals, i: load(goals, 1, i * size))
    return inline(lambda goals, i: decode(load(goals, 1, i * size)))
