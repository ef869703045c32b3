"""Observations of several parts: kernels beside plain Python, rollouts, buffers and bad input."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import rlcpu
from rlcpu.envs import check
from tests.envs import grouped
from tests.envs.grouped import Seen, camera, cart

NUM_ENVS = 5


def plain_parts(dynamics: rlcpu.Dynamics, state: Any) -> dict[str, Any]:
    """One observation by the plain function, each part as an array of its space."""
    if dynamics is camera:
        fields = {
            "age": np.int32(),
            "depth": np.zeros(6),
            "flags": np.zeros(3),
            "near": np.zeros(2),
        }
        out: Any = type("Out", (), {**fields, "picture": np.zeros((2, 6, 5))})()
        grouped.observe_camera(copy.copy(state), dynamics.params, out)
        return {name: getattr(out, name) for name in dynamics.observation_space}  # type: ignore[union-attr]
    seen = grouped.observe(state, dynamics.params)
    boards = [[[board.test(3 * y + x) for x in range(3)] for y in range(3)] for board in seen.walls]
    return {"goal": seen.goal, "pair": seen.pair, "place": seen.place, "walls": np.array(boards)}


def expected(env: Any) -> dict[str, Any]:
    """Observations of the present states, by plain Python."""
    dynamics = env.dynamics
    states = dynamics.state.to_states(env.engine.get_state())
    parts = [plain_parts(dynamics, state) for state in states]
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def assert_equal(observations: Any, others: Any) -> None:
    assert observations.keys() == others.keys()
    for name, part in observations.items():
        np.testing.assert_allclose(part, others[name], rtol=1e-6, err_msg=name)


DTYPES = {
    "GroupedCart-v0": {"goal": "int64", "pair": "int64", "place": "float32", "walls": "uint8"},
    "GroupedCamera-v0": {
        "age": "int64",
        "depth": "float32",
        "flags": "int8",
        "near": "int64",
        "picture": "uint8",
    },
}


@pytest.mark.parametrize("dynamics", [cart, camera], ids=["returned", "written"])
def test_steps_show_what_plain_python_observes(dynamics: rlcpu.Dynamics) -> None:
    env = rlcpu.envs.VectorEnv(dynamics, NUM_ENVS)
    observations, _ = env.reset(seed=0)
    assert {k: x.dtype.name for k, x in observations.items()} == DTYPES[dynamics.id]
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert env.observation_space.contains(observations)
        assert_equal(observations, expected(env))
        assert_equal(observations, env.observe())
        observations, *_ = env.step(rng.integers(0, 3, NUM_ENVS))


@pytest.mark.parametrize("dynamics", [cart, camera], ids=["returned", "written"])
def test_rollouts_have_what_steps_return(dynamics: rlcpu.Dynamics) -> None:
    collecting = rlcpu.envs.VectorEnv(dynamics, NUM_ENVS, autoreset_mode="SameStep")
    stepping = rlcpu.envs.VectorEnv(dynamics, NUM_ENVS, autoreset_mode="SameStep")
    now, _ = stepping.reset(seed=1)
    collecting.reset(seed=1)
    rollout = rlcpu.collect(collecting, rlcpu.policies.Uniform(), 25)
    transitions, ends = rollout.transitions(), 0
    for t in range(25):
        stored = {name: part[t] for name, part in rollout.observations.items()}
        assert_equal(stored, now)
        now, rewards, terminated, truncated, infos = stepping.step(rollout.actions[t])
        np.testing.assert_array_equal(rewards, rollout.rewards[t])
        np.testing.assert_array_equal(
            terminated | truncated, rollout.terminated[t] | rollout.truncated[t]
        )
        for i in range(NUM_ENVS):
            led = {name: part[i] for name, part in now.items()}
            if terminated[i] or truncated[i]:
                led = infos["final_obs"][i]
                final = {name: part[ends] for name, part in rollout.final_observations.items()}
                assert_equal(final, led)
                ends += 1
            row = {k: x[t * NUM_ENVS + i] for k, x in transitions["next_observation"].items()}
            assert_equal(row, led)
    assert ends > NUM_ENVS
    assert_equal(rollout.last_observations, now)
    kinds = {name: part.dtype.name for name, part in transitions["observation"].items()}
    assert kinds == DTYPES[dynamics.id]
    assert "observations: " in rollout._repr_html_()


def test_images_of_rollouts_lie_in_bytes_and_boards_in_bits() -> None:
    env = rlcpu.envs.VectorEnv(camera, 4)
    rollout = rlcpu.collect(env, rlcpu.policies.Uniform(), 3)
    memory, part = rollout.records.observations, rollout.observations["picture"]
    assert np.shares_memory(memory, part)
    # 60 bytes of pixels, 24 of floats, 4 of an age, 8 of near cells and 3 of flags, in fours.
    assert memory.nbytes == 3 * 4 * 100
    boards = rlcpu.collect(rlcpu.envs.VectorEnv(cart, 4), rlcpu.policies.Uniform(), 3)
    assert boards.records.observations.nbytes == 3 * 4 * 4 * (2 + 1 + 2 + 2 * 4 + 1)


@pytest.mark.parametrize("dynamics", [cart, camera], ids=["returned", "written"])
def test_buffers_keep_each_part_in_its_own_dtype(dynamics: rlcpu.Dynamics) -> None:
    env = rlcpu.envs.VectorEnv(dynamics, 4)
    columns = rlcpu.collect(env, rlcpu.policies.Uniform(), 8).transitions(("observation", "reward"))
    example = {"observation": env.single_observation_space, "reward": np.float32(0)}
    buffer = rlcpu.replay.ReplayBuffer(64, example, seed=0)
    buffer.add(columns)
    batch = buffer.sample(50)
    stored = columns["observation"]
    assert {k: x.dtype for k, x in batch["observation"].items()} == {
        k: x.dtype for k, x in stored.items()
    }
    for k, index in enumerate(batch.indices):
        row = {name: part[index] for name, part in stored.items()}
        assert_equal({name: part[k] for name, part in batch["observation"].items()}, row)


@pytest.mark.parametrize("dynamics", [cart, camera], ids=["returned", "written"])
def test_kernels_check_copies_and_snapshots(dynamics: rlcpu.Dynamics) -> None:
    report = check(dynamics, steps=200)
    assert report.ok, report
    env = rlcpu.envs.VectorEnv(dynamics, NUM_ENVS)
    env.reset(seed=3)
    snapshot, other = env.snapshot(), pickle.loads(pickle.dumps(env))
    actions = np.ones(NUM_ENVS, np.int64)
    stepped = env.step(actions)[0]
    assert_equal(stepped, other.step(actions)[0])
    env.restore(snapshot)
    assert_equal(stepped, env.step(actions)[0])


def test_one_environment_shows_a_dict() -> None:
    rlcpu.register(cart)
    env = gymnasium.make("rlcpu/GroupedCart-v0")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    observation, *_ = env.step(1)
    assert env.observation_space.contains(observation)
    assert observation["goal"].shape == ()


def test_functions_are_given_the_parts() -> None:
    def act(seen, params, uniforms, mask):  # type: ignore[no-untyped-def]
        return (2 if seen.place[0] < seen.goal else 1), 0.0, seen.place[1]

    def look(seen, params, uniforms):  # type: ignore[no-untyped-def]
        return seen.near[0] % 3, 0.0, seen.depth[2]

    for dynamics, function in ((cart, act), (camera, look)):
        env = rlcpu.envs.VectorEnv(dynamics, 3)
        rollout = rlcpu.collect(env, rlcpu.policies.Scalar(function, (), draws=1), 6)
        seen = rollout.observations
        if dynamics is cart:
            chosen = np.where(seen["place"][..., 0] < seen["goal"], 2, 1)
            values = seen["place"][..., 1]
        else:
            chosen, values = seen["near"][..., 0] % 3, seen["depth"][..., 2]
        np.testing.assert_array_equal(rollout.actions, chosen)
        np.testing.assert_array_equal(rollout.values, values)


# ---------------------------------------------------------------- bad input


class Other(NamedTuple):
    """Lacks a part."""

    place: tuple[float, float]
    goal: int


def observe_other(state, params):  # type: ignore[no-untyped-def]
    return Other((0.0, 0.0), 1)


def observe_tuple(state, params):  # type: ignore[no-untyped-def]
    return 0.0, 1


def observe_far(state, params):  # type: ignore[no-untyped-def]
    seen = grouped.observe(state, params)
    return Seen(seen.walls, seen.place, 7, seen.pair)


def observe_longer(state, params):  # type: ignore[no-untyped-def]
    seen = grouped.observe(state, params)
    return Seen(seen.walls, (*seen.place, 0.0), seen.goal, seen.pair)


def write_beyond(state, params, out):  # type: ignore[no-untyped-def]
    out.age = 1
    out.near[1] = 5


def write_other(state, params, out):  # type: ignore[no-untyped-def]
    out.distance = 5.0


def space_of(**parts: Any) -> Dict:
    return Dict({**cart.observation_space.spaces, **parts})  # type: ignore[union-attr]


def changed(dynamics: rlcpu.Dynamics = cart, **fields: Any) -> Any:
    return lambda: dataclasses.replace(dynamics, **fields)


BAD = [
    (changed(observe=observe_other), TypeError, "NamedTuple of goal, pair, place, walls, the parts "
     "of observation_space; returned one of place, goal"),
    (changed(observe=observe_tuple), TypeError, r"NamedTuple of goal.* returned \(0.0, 1\)"),
    (changed(observe=observe_far), ValueError,
     r"observe returned goal=7: expected 1 to 3, for state=.*test_groups.py, line \d+"),
    (changed(observe=observe_longer), TypeError, "Seen.place as a tuple of 2 floats; returned 3:"),
    (changed(camera, observe=write_beyond), ValueError, r"near\[1\]=5: expected 0 to 4"),
    (changed(camera, observe=write_other), ValueError, "no field 'distance'; it has: age, depth"),
    (changed(observation_space=Dict({})), TypeError, "has no part: expected one at least"),
    (changed(observation_space=Dict({"arm": Dict({"angle": Discrete(3)})})), TypeError,
     r"has the part arm, Dict\(.*: parts have no parts; give them names here, as arm_angle"),
    (changed(observation_space=space_of(_x=Discrete(2))), TypeError, "a part '_x': expected names"),
    (changed(observation_space=space_of(place=Box(0, 255, (2, 3, 3), np.uint8))), TypeError,
     r"the part place, Box\(\(2, 3, 3\), uint8\): .*observe\(state, params, out\)"),
    (changed(camera, observation_space=Dict({"x": Box(0.0, 1.0, (2,), np.float64)})), TypeError,
     "the part x, .*expected a Box of float32, uint8"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), BAD)
def test_bad_groups_are_one_sentence(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_numbers_that_are_not_finite_are_named_by_their_part() -> None:
    env = rlcpu.envs.VectorEnv(camera, 2)
    env.reset(seed=0)
    env.engine.numbers[:] = np.nan  # type: ignore[attr-defined]
    with pytest.raises(FloatingPointError, match=r"observation depth\[\d\]=nan in step 1 after"):
        rlcpu.collect(env, rlcpu.policies.Uniform(), 4)


def observe_goal(state, params):  # type: ignore[no-untyped-def]
    return state.goal + 1


def test_networks_see_choices_that_begin_at_one() -> None:
    goals = dataclasses.replace(cart, observe=observe_goal, observation_space=Discrete(3, start=1))
    env = rlcpu.envs.VectorEnv(goals, 20, num_threads=1)
    policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space, seed=2)
    rollout = rlcpu.collect(env, policy, 6)
    seen = rollout.observations.ravel()
    assert set(seen) == {1, 2, 3}
    ones = np.eye(3, dtype=np.float32)[seen - 1]
    np.testing.assert_array_equal(rollout.inputs.reshape(120, 3), ones)
    np.testing.assert_array_equal(rollout.ones.expand(), ones)  # type: ignore[union-attr]
    np.testing.assert_allclose(rollout.values.ravel(), policy.evaluate(ones), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(policy.evaluate(seen), policy.evaluate(ones))
