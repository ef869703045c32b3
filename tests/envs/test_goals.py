"""Environments with goals: their rewards of other goals, in kernels and in plain Python."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

import rlcpu
from rlcpu.envs import Array, Board, State
from rlcpu.envs.gymnasium.task import EnvironmentFailure
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.envs.tasks.goals.bit_flip import bit_flip
from rlcpu.envs.tasks.goals.point_maze import MEDIUM, point_maze
from rlcpu.envs.transforms import repeat_action, transform_reward


class Params(NamedTuple):
    """What is near, and a parameter that no reward reads."""

    radius: float = 0.5
    speed: float = 0.25


class Walker(NamedTuple):
    """A number, and what it should be."""

    x: float
    goal: float


class Seen(NamedTuple):
    """Goals of two numbers, in another order than the space has them."""

    desired_goal: Any
    achieved_goal: Any


def compute_reward(achieved_goal, desired_goal, params):
    distance = abs(achieved_goal[0] - desired_goal[0])
    return (1.0 if distance <= params.radius else -distance), distance <= params.radius


def step(state, action, params):
    x = state.x + params.speed * float(action - 1)
    reward, is_reached = compute_reward((x, 0.0), (state.goal, 0.0), params)
    return Walker(x, state.goal), reward, is_reached


def reset(rng, params):
    return Walker(rng.uniform(0), 4.0 * rng.uniform(1))


def observe(state, params):
    return Seen((state.goal, 0.0), (state.x, 0.0))


GOAL = Box(-np.inf, np.inf, (2,))
walker = rlcpu.Dynamics(
    id="Walker-v0",
    step=step,
    reset=reset,
    observe=observe,
    compute_reward=compute_reward,
    params=Params(),
    observation_space=Dict(achieved_goal=GOAL, desired_goal=GOAL),
    action_space=Discrete(3),
)


def changed(**changes):
    return dataclasses.replace(walker, **changes)


# ---------------------------------------------------------------- rewards in kernels


def compare(dynamics, plain, count=50):
    """Compare the kernel with plain Python, of random goals in the form of buffers.

    `plain` makes what `compute_reward` takes of one stored goal.
    """
    rng = np.random.default_rng(0)
    example = np.asarray(example_of(dynamics)["observation"]["achieved_goal"])
    goals = rng.integers(1, 4, (2, count, *example.shape)).astype(example.dtype)
    if example.dtype == np.uint32:
        goals[..., 2:] = 0  # words of cells that are not there
    results = rlcpu.make_vec(dynamics).compute_reward(*goals)
    pairs = results if isinstance(results, tuple) else (results,)
    assert [each.dtype for each in pairs] == [np.float32, np.bool_][: len(pairs)]
    for i in range(count):
        args = (*(plain(each[i]) for each in goals), dynamics.params)
        expected = dynamics.compute_reward(*args)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for one, other in zip(pairs, expected, strict=True):
            assert one[i] == np.float32(other)
    assert len(set(pairs[0].tolist())) > 1


def test_rewards_of_floats():
    compare(walker, lambda goal: tuple(map(float, goal)))
    compare(walker.with_params(radius=1.0), lambda goal: tuple(map(float, goal)))


def test_rewards_of_boards():
    def board_of(words):
        return (Board(int(words[0, 0]) | int(words[0, 1]) << 32),)

    compare(bit_flip(40, id="Flip-v0"), board_of)


class Chooser(NamedTuple):
    """A choice, and another one."""

    at: int
    goal: int


def choosing(space, of):
    """An environment whose goals are choices, `of` a number."""

    def reward(achieved_goal, desired_goal, params):
        return 1 if achieved_goal == desired_goal else 0

    return rlcpu.Dynamics(
        id="Chooser-v0",
        step=lambda s, action, params: (
            Chooser(action, s.goal),
            reward(of(action), of(s.goal), params),
            False,
        ),
        reset=lambda rng, params: Chooser(0, rng.integers(0, 3)),
        observe=lambda s, params: Seen(of(s.goal), of(s.at)),
        compute_reward=reward,
        observation_space=Dict(achieved_goal=space, desired_goal=space),
        action_space=Discrete(3),
    )


def test_rewards_of_choices():
    compare(choosing(Discrete(3, start=1), lambda at: at + 1), int)
    two = MultiDiscrete([4, 5])
    compare(choosing(two, lambda at: (at, 4 - at)), lambda goal: tuple(map(int, goal)))


class Plane(State):
    """Arrays."""

    at: Array[np.uint8, 2, 3]
    goal: Array[np.uint8, 2, 3]


def count_equal(achieved_goal, desired_goal, params):
    count = 0
    for row in range(2):
        for column in range(3):
            count += achieved_goal[row, column] == desired_goal[row, column]
    return float(count), count == 6


def paint(s, action, params):
    s.at[action // 3, action % 3] += 1
    return count_equal(s.at, s.goal, params)


def begin(s, rng, params):
    s.goal[0, 1] = rng.integers(0, 3)


def show(s, params, out):
    for row in range(2):
        for column in range(3):
            out.achieved_goal[row, column] = s.at[row, column]
            out.desired_goal[row, column] = s.goal[row, column]


def test_rewards_of_arrays():
    space = Box(0, 255, (2, 3), np.uint8)
    painter = rlcpu.Dynamics(
        id="Painter-v0",
        state=Plane,
        step=paint,
        reset=begin,
        observe=show,
        compute_reward=count_equal,
        observation_space=Dict(achieved_goal=space, desired_goal=space),
        action_space=Discrete(6),
    )
    compare(painter, lambda goal: goal)


# ---------------------------------------------------------------- the tasks


@pytest.mark.parametrize("id", ["BitFlip-v0", "PointMaze-v0"])
def test_rewards_are_those_of_steps(id):
    env = rlcpu.make_vec(id, num_envs=16)
    env.reset(seed=0)
    columns = rlcpu.collect(env, rlcpu.policies.Uniform(), 250).transitions(packed=True)
    goals = columns["next_observation"]
    results = env.compute_reward(goals["achieved_goal"], goals["desired_goal"])
    rewards = results[0] if isinstance(results, tuple) else results
    np.testing.assert_array_equal(rewards, columns["reward"])
    if isinstance(results, tuple):
        np.testing.assert_array_equal(results[1], columns["terminated"])


@pytest.mark.parametrize("id", ["BitFlip-v0", "PointMaze-v0"])
def test_kernels_step_as_plain_python_does(id):
    """Which is what the checks compare."""
    report = rlcpu.envs.check(id, steps=300)
    assert report.ok, report
    assert report.steps == 300


def test_bits_are_flipped_to_the_goal():
    env = rlcpu.make_vec(bit_flip(20, id="Twenty-v0"), num_envs=16)
    observations, _ = env.reset(seed=3)
    assert observations["observation"].shape == (16, 1, 1, 20)
    assert 0.3 < observations["observation"].mean() < 0.7
    assert 0.3 < observations["desired_goal"].mean() < 0.7
    wrong = (observations["observation"] != observations["desired_goal"]).reshape(16, 20)
    going = np.ones(16, bool)
    for _ in range(wrong.sum(axis=1).max()):
        action = wrong.argmax(axis=1)  # the first wrong bit
        wrong[np.arange(16), action] = False
        observations, rewards, terminated, _, _ = env.step(action)
        is_reached = ~wrong.any(axis=1)
        np.testing.assert_array_equal(terminated[going], is_reached[going])
        np.testing.assert_array_equal(rewards[going], is_reached[going] - 1.0)
        going &= ~is_reached
    assert not going.any()


def test_bits_have_a_number():
    assert bit_flip(128, id="All-v0").max_episode_steps == 128
    for bad in (0, 129):
        with pytest.raises(ValueError, match="num_bits="):
            bit_flip(bad, id="Bad-v0")


def test_no_point_is_in_a_wall():
    rows = MEDIUM.split("/")
    env = rlcpu.make_vec("PointMaze-v0", num_envs=64, power=0.5)
    env.reset(seed=1)
    observations = rlcpu.collect(env, rlcpu.policies.Uniform(), 400).observations
    cells = set()
    for x, y in observations["achieved_goal"].reshape(-1, 2):
        assert rows[int(y)][int(x)] == "."
        cells.add((int(x), int(y)))
    assert len(cells) == MEDIUM.count(".")  # all of them are starts
    goals = observations["desired_goal"].reshape(-1, 2)
    assert {rows[int(y)][int(x)] for x, y in goals} == {"."}


def test_walls_stop_one_direction():
    """Of a plain step: what runs into a wall to the right goes on down."""
    maze = point_maze(("####", "#..#", "#..#", "####"), id="Small-v0")
    state = maze.sample_start()[0]._replace(x=2.9, y=1.5, dx=0.4, dy=0.4)
    new, reward, terminated = maze.step(state, (1.0, 0.0), maze.params)
    assert (new.x, new.dx, new.y, new.dy) == (2.9, 0.0, pytest.approx(1.82), pytest.approx(0.32))
    assert (reward, terminated) == (-1.0, False)


def test_mazes_have_walls_around():
    for bad in (("###", "#.."), ("###", "#.#", "##"), ("#",) * 200, ("###", "#x#", "###")):
        with pytest.raises(ValueError, match="rows="):
            point_maze(bad, id="Bad-v0")


# ---------------------------------------------------------------- what is refused


def of_state(state, params):
    return 0.0


def of_nothing(achieved_goal, desired_goal, params):
    return None


def of_nan(achieved_goal, desired_goal, params):
    return float("nan")


def of_three(achieved_goal, desired_goal, params):
    return 0.0, False, False


def of_others(achieved_goal, desired_goal, params):
    return -abs(achieved_goal[1] - desired_goal[1])


def of_one(achieved_goal, desired_goal, params):
    reward, _ = compute_reward(achieved_goal, desired_goal, params)
    return reward, False


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"compute_reward": 3}, TypeError, "compute_reward=3 has to be a plain Python function"),
        ({"compute_reward": of_state}, TypeError, r"\(achieved_goal, desired_goal, params\)"),
        ({"compute_reward": of_nothing}, TypeError, "compute_reward has to return reward as a nu"),
        ({"compute_reward": of_nan}, ValueError, "compute_reward has to return a finite reward"),
        ({"compute_reward": of_three}, TypeError, r"a reward, or \(reward, terminated\)"),
        (
            {"compute_reward": of_others},
            ValueError,
            "compute_reward returned -0.0 for achieved_goal",
        ),
        (
            {"observation_space": Box(-1.0, 1.0, (2,)), "observe": lambda s, params: (s.x, s.goal)},
            TypeError,
            "compute_reward has no goals to compare: .* achieved_goal and desired_goal",
        ),
        (
            {
                "observation_space": Dict(achieved_goal=GOAL, desired_goal=Box(-9.0, 9.0, (1,))),
                "observe": lambda s, params: Seen((s.goal,), (s.x, 0.0)),
            },
            TypeError,
            "desired_goal, .* has to be",
        ),
    ],
)
def test_bad_rewards(changes, error, message):
    with pytest.raises(error, match=message):
        changed(**changes)


def test_termination_has_to_be_that_of_the_step():
    near = Params(radius=10.0)
    with pytest.raises(
        ValueError, match=r"compute_reward returned \(1.0, False\) .* \(1.0, True\)"
    ):
        changed(compute_reward=of_one, params=near)


def test_params_that_are_stored_with_no_step():
    varied = walker.with_params(radius=np.array([0.1, 0.2]))
    with pytest.raises(TypeError, match=r"compute_reward reads params.radius, which differs"):
        rlcpu.make_vec(varied, 2).compute_reward(np.zeros((1, 2)), np.zeros((1, 2)))
    others = rlcpu.make_vec(walker.with_params(speed=np.array([0.1, 0.2])), 2)
    zeros = np.zeros((3, 2), np.float32)
    assert others.compute_reward(zeros, zeros)[0].tolist() == [1.0] * 3


def test_environments_without_goals():
    zeros = np.zeros((1, 2), np.float32)
    with pytest.raises(TypeError, match="CartPole-v1 has no goals: observation_space="):
        rlcpu.make_vec("CartPole-v1").compute_reward(zeros, zeros)
    with pytest.raises(TypeError, match="Walker-v0 has no goals: compute_reward=None"):
        rlcpu.make_vec(changed(compute_reward=None)).compute_reward(zeros, zeros)


def test_transforms_of_rewards_have_no_goals():
    assert transform_reward(walker, lambda reward: 2.0 * reward).compute_reward is None
    assert repeat_action(walker, 2).compute_reward is None


def test_copies():
    assert pickle.loads(pickle.dumps(walker)).compute_reward is compute_reward
    assert copy.copy(walker) is walker


# ---------------------------------------------------------------- environments of Gymnasium


class Reach(gymnasium.Env[Any, Any]):
    """Goals as Gymnasium-Robotics has them, of float64 and two axes."""

    goal = Box(-np.inf, np.inf, (2, 1), np.float64)
    observation_space = Dict(
        observation=Box(-1.0, 1.0, (3,)), achieved_goal=goal, desired_goal=goal
    )
    action_space = Box(-1.0, 1.0, (2,))

    def compute_reward(self, achieved_goal, desired_goal, info):
        assert achieved_goal.dtype == np.float64
        assert info == {}
        return -(np.abs(achieved_goal - desired_goal).sum(axis=(-1, -2)) > 1.0).astype(np.float32)


class Ending(Reach):
    """Of which an episode ends at the goal."""

    def compute_terminated(self, achieved_goal, desired_goal, info):
        assert achieved_goal.shape == (2, 1)
        return bool(self.compute_reward(achieved_goal, desired_goal, info) == 0.0)


def goals_of_gymnasium():
    achieved = np.arange(10, dtype=np.float32).reshape(5, 2)
    desired = achieved.copy()
    desired[::2] += 1
    return achieved.reshape(5, 2, 1), desired.reshape(5, 2, 1)


def test_rewards_of_gymnasium():
    expected = [-1.0, 0.0, -1.0, 0.0, -1.0]
    achieved, desired = goals_of_gymnasium()
    env = rlcpu.envs.GymnasiumEnv(gymnasium.wrappers.TimeLimit(Reach(), 10))
    assert env.compute_reward(achieved, desired).tolist() == expected
    rewards, terminated = rlcpu.envs.GymnasiumEnv(Ending()).compute_reward(achieved, desired)
    assert (rewards.tolist(), terminated.tolist()) == (expected, [x == 0.0 for x in expected])


class Failing(Reach):
    """Whose rewards fail."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        raise KeyError("is_success")


class Silent(Reach):
    """Without rewards of other goals."""

    compute_reward = None


def test_gymnasium_without_rewards():
    goals = goals_of_gymnasium()
    with pytest.raises(EnvironmentFailure, match=r"Failing: .* KeyError\('is_success'"):
        rlcpu.envs.GymnasiumEnv(Failing()).compute_reward(*goals)
    with pytest.raises(TypeError, match="Silent has no goals: expected a method compute_reward"):
        rlcpu.envs.GymnasiumEnv(Silent()).compute_reward(*goals)
    with pytest.raises(TypeError, match="Pendulum-v1 has no goals: observation_space="):
        rlcpu.envs.GymnasiumEnv(gymnasium.make("Pendulum-v1")).compute_reward(*goals)


def test_a_robot_of_gymnasium():
    """Rewards of Gymnasium-Robotics' FetchReach, of which no episode ends at its goal."""
    robots = pytest.importorskip("gymnasium_robotics")
    gymnasium.register_envs(robots)
    env = rlcpu.make_vec("FetchReach-v4", num_envs=2)
    env.reset(seed=0)
    columns = rlcpu.collect(env, rlcpu.policies.Uniform(), 20).transitions(packed=True)
    goals = columns["next_observation"]
    rewards, terminated = env.compute_reward(goals["achieved_goal"], goals["desired_goal"])
    np.testing.assert_array_equal(rewards, columns["reward"])
    assert not terminated.any()
    rewards, _ = env.compute_reward(goals["achieved_goal"], goals["achieved_goal"])
    assert rewards.tolist() == [0.0] * 40
