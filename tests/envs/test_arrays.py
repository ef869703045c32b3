"""States with arrays: kernels beside the same functions in plain Python."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary
from hypothesis import given, settings
from hypothesis import strategies as st

import rlcpu
from rlcpu.envs import Array, Rng, State
from rlcpu.envs.checks.player import Player
from rlcpu.envs.engine.episode import PENDING
from rlcpu.kernels.machine.random import RESET_GROUP, STEP_GROUP, keys, mix, stream_seeds
from tests.envs import array_envs, snake

NUM_ENVS, STEPS = 70, 120


class PlainEnvs:
    """N environments in plain Python, with the random numbers of kernels.

    A reset is turn 0 of a stream, each step is the next turn.
    """

    def __init__(self, dynamics: rlcpu.Dynamics, num_envs: int, seed: int) -> None:
        self.dynamics, self.turn = dynamics, 0
        self.keys = keys(stream_seeds(seed, num_envs))
        self.states: list[Any] = [dynamics.state.value_class() for _ in range(num_envs)]
        self.elapsed = [0] * num_envs
        for i in range(num_envs):
            self.start(i)

    def rng(self, i: int, group: int) -> Rng:
        with np.errstate(over="ignore"):
            a, b = mix.py_func(self.keys[0][i], self.keys[1][i], np.uint32(self.turn))
        return Rng(int(a), int(b), group, np.float32)

    def start(self, i: int) -> None:
        self.states[i] = self.dynamics.state.value_class()
        self.dynamics.reset(self.states[i], self.rng(i, RESET_GROUP), self.dynamics.params)
        self.elapsed[i] = 0

    def step(self, actions: Any, mode: str) -> list[tuple[float, bool, bool]]:
        self.turn += 1
        results = []
        for i, action in enumerate(actions.tolist()):
            if mode == "NextStep" and self.elapsed[i] == PENDING:
                self.start(i)
                results.append((0.0, False, False))
                continue
            rng = self.rng(i, STEP_GROUP)
            reward, terminated = self.dynamics.step(
                self.states[i], action, self.dynamics.params, rng
            )
            self.elapsed[i] += 1
            truncated = self.elapsed[i] >= (self.dynamics.max_episode_steps or 2**32)
            results.append((reward, terminated, truncated))
            if terminated or truncated:
                if mode == "SameStep":
                    self.start(i)
                else:
                    self.elapsed[i] = PENDING
        return results

    def observations(self) -> Any:
        shape = self.dynamics.observation_space.shape
        seen = np.zeros((len(self.states), *shape), np.float32)
        for state, out in zip(self.states, seen, strict=True):
            self.dynamics.observe(copy.copy(state), self.dynamics.params, out)
        return seen


def assert_equal_states(env: rlcpu.envs.VectorEnv, plain: PlainEnvs) -> None:
    for field in plain.dynamics.state.fields:
        expected = np.array([np.asarray(getattr(state, field.name)) for state in plain.states])
        np.testing.assert_array_equal(getattr(env.state, field.name), expected)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_steps_are_those_of_plain_python(mode: str) -> None:
    env = rlcpu.make_vec(snake.snake, NUM_ENVS, autoreset_mode=mode)
    plain = PlainEnvs(snake.snake, NUM_ENVS, seed=5)
    seen, _ = env.reset(seed=5)
    np.testing.assert_array_equal(seen, plain.observations())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(STEPS):
        actions = rng.integers(0, 4, NUM_ENVS)
        seen, rewards, terminated, truncated, _ = env.step(actions)
        expected = plain.step(actions, mode)
        assert list(zip(rewards.tolist(), terminated, truncated, strict=True)) == expected
        np.testing.assert_array_equal(seen, plain.observations())
        assert_equal_states(env, plain)
        ends += int((terminated | truncated).sum())
    assert ends > NUM_ENVS


def test_simulate_and_collect_take_the_same_steps() -> None:
    policy = rlcpu.policies.Uniform()
    env, other = (rlcpu.make_vec(snake.snake, NUM_ENVS) for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=1)
    rollout = rlcpu.collect(env, policy, STEPS)
    statistics = rlcpu.simulate(other, policy, STEPS)
    assert statistics.num_episodes == len(rollout.episode_returns) > NUM_ENVS
    assert statistics.mean_return == pytest.approx(rollout.episode_returns.mean())
    np.testing.assert_array_equal(env.state.grid, other.state.grid)
    plain = PlainEnvs(snake.snake, NUM_ENVS, seed=1)
    for step in range(STEPS):
        np.testing.assert_array_equal(rollout.observations[step], plain.observations())
        expected = plain.step(rollout.actions[step], "SameStep")
        flags = rollout.terminated[step], rollout.truncated[step]
        assert list(zip(rollout.rewards[step].tolist(), *flags, strict=True)) == expected


@pytest.mark.parametrize("dynamics", [array_envs.inventory, array_envs.rod], ids=lambda d: d.id)
def test_check_finds_kernels_and_plain_python_alike(dynamics: rlcpu.Dynamics) -> None:
    """Floats, bools and slices; masks, draws of params, a step that truncates; both dtypes."""
    report = rlcpu.envs.check(dynamics, steps=300)
    assert report.ok, report
    assert report.steps > 200


def test_snapshots_copies_and_pickles_go_on_alike() -> None:
    env = rlcpu.make_vec(array_envs.inventory, NUM_ENVS, holding=np.linspace(0.0, 1.0, NUM_ENVS))
    env.reset(seed=2)
    rlcpu.simulate(env, rlcpu.policies.Uniform(), 7)
    snapshot, others = env.snapshot(), [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    part = env.engine.take(slice(3, 68, 5))
    other = rlcpu.make_vec(array_envs.inventory, 13, holding=np.zeros(13))
    other.reset(seed=9)
    other.engine.put(slice(0, 13), part)
    actions = np.zeros(NUM_ENVS, np.int64)
    expected = env.step(actions)
    for each in others:
        np.testing.assert_array_equal(each.step(actions)[0], expected[0])
    np.testing.assert_array_equal(other.step(actions[:13])[0], expected[0][3:68:5])
    env.restore(snapshot)
    for got, wanted in zip(env.step(actions)[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_fields_of_states_are_read_and_set() -> None:
    env, other = (rlcpu.make_vec(snake.snake, 3) for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=1)
    assert env.state.grid.shape == (3, 10, 10)
    assert env.state.grid.dtype == np.uint8
    env.state.length = [7, 8, 9]
    other.state = env.state
    assert other.state.length.tolist() == [7, 8, 9]
    np.testing.assert_array_equal(other.state.grid, env.state.grid)
    for name, value, error, message in (
        ("grid", np.zeros((3, 9, 10), np.uint8), ValueError, "shape"),
        ("grid", np.zeros((3, 10, 10)), TypeError, "whole numbers"),
        ("grid", np.full((3, 10, 10), 300), ValueError, "300 to 300: expected uint8"),
        ("tail", np.zeros(3), AttributeError, "no field 'tail'; it has: body, grid"),
    ):
        with pytest.raises(error, match=message):
            setattr(env.state, name, value)
    np.testing.assert_array_equal(other.state.grid, env.state.grid)


def test_one_environment_is_that_of_a_batch() -> None:
    rlcpu.register(snake.snake)
    env, batch = gymnasium.make("rlcpu/Snake-v0"), rlcpu.make_vec(snake.snake, 1)
    seen, _ = env.reset(seed=3)
    np.testing.assert_array_equal(seen, batch.reset(seed=3)[0][0])
    for action in (0, 3):
        seen, reward, terminated, *_ = env.step(action)
        expected = batch.step(np.array([action]))
        np.testing.assert_array_equal(seen, expected[0][0])
        assert (reward, terminated) == (expected[1][0], expected[2][0])
    one: Any = env.unwrapped
    state = one.state
    assert isinstance(state, snake.Snake)
    state.length, state.grid[2, 3] = 5, 1
    one.state = state
    assert one.state == state
    with pytest.raises(TypeError, match="a Snake; got 3"):
        one.state = 3


def test_networks_see_what_is_recorded() -> None:
    env = rlcpu.make_vec(snake.snake, NUM_ENVS)
    env.reset(seed=4)
    policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space, hidden=(9,))
    rng = np.random.default_rng(0)
    policy.parameters += 0.3 * rng.standard_normal(policy.parameters.size, np.float32)
    policy.observation_mean += 0.1
    policy.observation_limit = 0.5
    rollout = rlcpu.collect(env, policy, 20)
    assert rollout.inputs.shape == (20, NUM_ENVS, 100)
    values = policy.evaluate(rollout.inputs.reshape(-1, 100)).reshape(20, NUM_ENVS)
    np.testing.assert_allclose(rollout.values, values, rtol=2e-5, atol=2e-5)
    agent = rlcpu.train.PPO(snake.snake, seed=0, num_envs=16, num_steps=32)
    agent.learn(1024)
    assert np.isfinite(agent.policy.parameters).all()


@pytest.mark.parallel
def test_threads_change_nothing() -> None:
    envs = [rlcpu.make_vec(snake.snake, 1000, num_threads=n) for n in (1, 2)]
    for env in envs:
        env.reset(seed=0)
        rlcpu.simulate(env, rlcpu.policies.Uniform(), 50)
        env.step(np.ones(1000, np.int64))
    np.testing.assert_array_equal(*(env.state.grid for env in envs))
    np.testing.assert_array_equal(*(env.observe() for env in envs))


# ---------------------------------------------------------------- indices


class Cells(State):
    """Where to write, and into what."""

    table: Array[np.int16, 3, 5]
    before: Array[np.int8, 4]
    row: int
    column: int
    found: int


def write(state, action, params):
    state.table[state.row, state.column] = 7
    state.found = state.table[state.row][state.column] + state.before[state.row]
    row = state.table[state.column]
    row[state.row] -= 10
    return 0.0, False


def nothing(state, rng, params):
    state.before[:] = 1


def see(state, params):
    return float(state.found), 0.0


class NoParams(NamedTuple):
    """Nothing."""


cells = rlcpu.Dynamics(
    id="Cells-v0",
    state=Cells,
    step=write,
    reset=nothing,
    observe=see,
    params=NoParams(),
    observation_space=Box(-np.inf, np.inf, (2,)),
    action_space=Discrete(2),
)


def inside(index: int, size: int) -> int:
    """The first or last item for an index that is outside, and Python's for a negative one."""
    return min(max(index + size if index < 0 else index, 0), size - 1)


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.integers(-(2**40), 2**40) | st.integers(-7, 7), min_size=2, max_size=2))
def test_an_index_outside_reads_and_writes_inside(rows: list[int]) -> None:
    env = rlcpu.make_vec(cells, 3)
    env.reset(seed=0)
    row, column = rows
    env.state.row, env.state.column = [1, row, 2], [1, column, 2]
    env.step(np.zeros(3, np.int64))
    state = cells.state.value_class()
    state.before[:] = 1
    state.row, state.column = row, column
    state.table[inside(row, 3), inside(column, 5)] = 7
    state.found = state.table[inside(row, 3), inside(column, 5)] + state.before[inside(row, 4)]
    state.table[inside(column, 3), inside(row, 5)] -= 10
    for field in ("table", "before", "row", "column", "found"):
        np.testing.assert_array_equal(getattr(env.state, field)[1], getattr(state, field))
    assert env.state.table[0].sum() == env.state.table[2].sum() == -3


def test_a_shape_that_changes_writes_nothing() -> None:
    """Nor does it keep other environments from their step."""

    def step(state, action, params):
        state.row += 1
        state.before[0 : state.row] = state.before[1:3]
        return 0.0, False

    env = rlcpu.make_vec(dataclasses.replace(cells, step=hidden_in_row(step)), 3)
    env.reset(seed=0)
    env.state.before = [[1, 2, 3, 4]] * 3
    env.state.row = [1, 2, 1]
    env.step(np.zeros(3, np.int64))
    assert env.state.before.tolist() == [[2, 3, 3, 4], [1, 2, 3, 4], [2, 3, 3, 4]]
    assert env.state.row.tolist() == [2, 3, 2]


def hidden_in_row(bad: Callable[..., Any]) -> Callable[..., Any]:
    def step(state, action, params):
        return bad(state, action, params) if state.row > 0 else (0.0, False)

    return step


def test_check_names_indices_outside() -> None:
    def step(state, action, params, rng):
        state.body[state.head + 60] = 1
        state.head += 1
        state.grid[-(state.head % 3), 0] = 1
        return 0.0, False

    player = Player(dataclasses.replace(snake.snake, step=step))
    player.play(60, np.random.default_rng(0))
    messages = [finding.message for finding in player.findings.sorted()]
    assert any("raised IndexError (index 100 is out of bounds" in message for message in messages)
    assert any("writes state.grid[-1, 0], which counts from the end" in m for m in messages)
    assert any("test_arrays.py" in message for message in messages)


# ---------------------------------------------------------------- whole arrays


class Rows(State):
    """Arrays of every dtype of whole numbers below 64 bits, and of floats."""

    u8: Array[np.uint8, 2, 3]
    i8: Array[np.int8, 5]
    i16: Array[np.int16, 5]
    heat: Array[float, 5]
    flow: Array[float, 5]
    many: int
    most: int
    place: int
    is_any: bool


def write_rows(state, action, params):
    state.u8[1] += 1
    row = state.u8[0]
    row += action
    state.u8[:, 2] *= 3
    state.i8[:] -= 2
    state.i16[1:4] //= 2
    state.i16[:] = state.i16 + state.i8[0:5] + 1
    state.i8[0:4] = state.i8[1:5]  # a queue, and one that goes back
    state.i16[1:5] = state.i16[0:4]
    state.flow[:] = state.flow[::-1]
    state.heat[:] = state.flow[0:5] + 0.5
    state.heat[0:4] = state.heat[1:5] * 2.0
    state.many = state.u8.sum() - 100
    state.most = state.u8[1].max() - 1 - state.u8.max()
    state.place = state.heat.argmax() - state.flow.argmin()
    state.is_any = state.i8.any() and not state.i8.all()
    return state.heat.sum(), state.u8.min() > 200


@settings(max_examples=50, deadline=None)
@given(data=st.data(), action=st.integers(0, 1))
def test_whole_arrays_are_as_in_plain_python(data: st.DataObject, action: int) -> None:
    """Also where what is written overlaps with what is read."""
    rows = dataclasses.replace(
        cells, id="Rows-v0", state=Rows, step=write_rows, reset=quiet, observe=one
    )
    env, state = rlcpu.make_vec(rows, 1), Rows()
    env.reset(seed=0)
    for field in rows.state.fields:
        if field.shape:
            numbers = st.lists(st.integers(0, 40), min_size=field.size, max_size=field.size)
            values = np.reshape(data.draw(numbers), field.shape)
            getattr(state, field.name)[...] = values
            setattr(env.state, field.name, values[None])
    reward, terminated = write_rows(state, action, None)
    _, rewards, ends, *_ = env.step(np.array([action]))
    assert (rewards[0], ends[0]) == (reward, terminated)
    for field in rows.state.fields:
        np.testing.assert_array_equal(
            getattr(env.state, field.name)[0], np.asarray(getattr(state, field.name))
        )


# ---------------------------------------------------------------- what is refused


def hint(name: str, kind: Any) -> type:
    return type("Bad", (State,), {"__annotations__": {name: kind}})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (3, "state=3 has to be a subclass of rlcpu.envs.State"),
        (State, "has to be a subclass"),
        (type("Empty", (State,), {}), "Empty has no field"),
        (hint("x", np.uint8), "the field x of Bad has the type hint uint8"),
        (hint("x", Array[np.uint64, 3]), "the type hint Array.uint64, 3."),
        (hint("x", Array[np.float32, 3]), "the field x of Bad is of float32: write float"),
        (hint("x", Array[np.uint8]), "a shape of positive whole numbers"),
        (hint("x", Array[np.uint8, 3, -1]), "a shape of positive whole numbers"),
        (hint("_x", int), "has the name of something else"),
    ],
    ids=str,
)
def test_bad_states(state: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        dataclasses.replace(snake.snake, state=state)


KEPT: list[Any] = []


def assigns_array(state, action, params, rng):
    state.grid = state.grid
    return 0.0, False


def float_into_field(state, action, params, rng):
    state.length = 1.5
    return 0.0, False


def float_into_array(state, action, params, rng):
    state.body[0] = 1.5
    return 0.0, False


def other_field(state, action, params, rng):
    state.tail = 1
    return 0.0, False


def returns_state(state, action, params, rng):
    return state, 0.0, False


def returns_nothing(state, action, params, rng):
    state.length = 1


def returns_empty_tuple(state, action, params, rng):
    return ()


def makes_array(state, action, params, rng):
    state.body[:] = np.zeros(100)
    return 0.0, False


def other_shape(state, action, params, rng):
    state.body[0:3] = state.grid[0]
    return 0.0, False


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (assigns_array, r"Snake.grid is an array, which stays: write into it, grid\[:\] = "),
        (float_into_field, "Snake.length is of int64 and gets float64: expected whole numbers"),
        (float_into_array, "the array is of int16 and gets float64: expected whole numbers"),
        (other_field, "Snake has no field 'tail'; it has: body, grid, head, length, food"),
        (returns_state, r"step has to return \(reward, terminated\); returned \(Snake"),
        (returns_nothing, r"step has to return \(reward, terminated\); returned None"),
        (returns_empty_tuple, r"step has to return \(reward, terminated\); returned \(\)"),
        (makes_array, "test_arrays.py, line .*makes an array"),
        (other_shape, "could not broadcast"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_bad_steps(step: Callable[..., Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        dataclasses.replace(snake.snake, step=step)


def hidden(bad: Callable[..., Any]) -> Callable[..., Any]:
    """A step that does what is bad where no trial comes."""

    def step(state, action, params, rng):
        if state.length > 3:
            return bad(state, action, params, rng)
        return 0.0, False

    return step


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (assigns_array, "puts another array into a field: write into it, grid"),
        (float_into_field, "writes a float into the field length of int64"),
        (float_into_array, "writes a float into an array of int16"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_bad_steps_that_no_trial_meets(step: Callable[..., Any], message: str) -> None:
    env = rlcpu.make_vec(dataclasses.replace(snake.snake, step=hidden(step)), 2)
    with pytest.raises(TypeError, match=rf"test_arrays.py, line .*{message}"):
        env.reset(seed=0)


def test_bad_observations() -> None:
    def returns(state, params, out):
        return out

    def infinite(state, params, out):
        out[3, 4] = np.inf

    for observe, message in (
        (returns, "observe has to write into out and to return nothing"),
        (infinite, r"observe has to write finite numbers; out\[3, 4\] is inf"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            dataclasses.replace(snake.snake, observe=observe)
    with pytest.raises(TypeError, match="a Box or a Dict where observe writes into `out`"):
        dataclasses.replace(snake.snake, observation_space=MultiBinary((1, 10, 10)))


def test_states_that_are_too_many() -> None:
    class Large(State):
        map: Array[np.uint8, 4096, 4096]

    def step(state, action, params):
        return 0.0, False

    large = dataclasses.replace(
        cells, id="Large-v0", state=Large, step=step, reset=quiet, observe=one
    )
    with pytest.raises(MemoryError, match="1000000 states of 16777216 bytes take"):
        rlcpu.make_vec(large, 1_000_000)


def quiet(state, rng, params):
    pass


def one(state, params):
    return 1.0, 0.0
