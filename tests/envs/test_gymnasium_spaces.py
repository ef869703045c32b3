"""Spaces of Gymnasium's environments of all kinds: what policies see of them, and what they do."""

from __future__ import annotations

import copy
import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
    flatten,
)
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import rlcpu
from rlcpu.envs import GymnasiumEnv
from rlcpu.policies import MLP, Uniform
from rlcpu.train import DQN, PPO, SAC
from tests.envs.gymnasium_cases import MODES, Plain

#: Whole numbers that no float32 is.
LARGE = 2**24 + 1


class Recorder(gymnasium.Env[Any, Any]):
    """Shows samples of its space, and keeps them and the actions; episodes of four steps."""

    def __init__(self, observed: Space[Any], acting: Space[Any], number: int = 0) -> None:
        self.observation_space, self.action_space = copy.deepcopy((observed, acting))
        self.observation_space.seed(number)
        self.seen: list[list[Any]] = []  # by episode
        self.actions: list[Any] = []

    def look(self) -> Any:
        self.seen[-1].append(self.observation_space.sample())
        return self.seen[-1][-1]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seen.append([])
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        return self.look(), 1.0, len(self.seen[-1]) > 4, False, {}


class Echo(Recorder):
    """Pays for actions that are like the observation, whose space is theirs."""

    def __init__(self, space: Space[Any]) -> None:
        super().__init__(space, space)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        wanted, taken = (
            np.concatenate([np.ravel(x) for x in leaves_of(self.action_space, value)])
            for value in (self.seen[-1][-1], action)
        )
        reward = float(np.mean(1.0 - np.minimum(abs(wanted.astype(float) - taken), 1.0)))
        observation, _, *others = super().step(action)
        return observation, reward, *others


def leaves_of(space: Any, value: Any) -> list[Any]:
    """The values at the leaves of a tree, in the order of its space."""
    if isinstance(space, Dict):
        return [x for name in space.spaces for x in leaves_of(space[name], value[name])]
    if isinstance(space, Tuple):
        return [x for part, v in zip(space.spaces, value, strict=True) for x in leaves_of(part, v)]
    return [value]


def naive_action(space: Any, numbers: Iterator[Any]) -> Any:
    """The action of a space that a policy's numbers mean, one after the other."""
    if isinstance(space, Dict):
        return {name: naive_action(part, numbers) for name, part in space.items()}
    if isinstance(space, Tuple):
        return tuple(naive_action(part, numbers) for part in space.spaces)
    if isinstance(space, Discrete):
        return int(space.start) + int(next(numbers))
    action = np.zeros(space.shape, space.dtype)
    for place in np.ndindex(space.shape):
        number = next(numbers)
        if isinstance(space, MultiDiscrete):
            action[place] = space.start[place] + number
        elif isinstance(space, MultiBinary):
            action[place] = number
        elif space.dtype.kind == "f":
            least, most = space.low[place], space.high[place]
            action[place] = min(max(space.dtype.type(number), least), most)
        else:
            action[place] = int(space.low[place]) + int(number)
    return action


def assert_equal(ours: Any, theirs: Any) -> None:
    """Trees of the same kinds of nodes, with arrays of the same dtypes and numbers."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_equal(ours[name], theirs[name])
    elif isinstance(theirs, tuple):
        assert isinstance(ours, tuple)
        for a, b in zip(ours, theirs, strict=True):
            assert_equal(a, b)
    else:
        np.testing.assert_array_equal(ours, theirs, strict=isinstance(theirs, np.ndarray))


SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@st.composite
def float_boxes(draw: Any) -> Box:
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    low = draw(st.sampled_from([-np.inf, -2.7, 0.1]))
    return Box(low, draw(st.sampled_from([0.3, 5.0, np.inf])), draw(SHAPES), dtype)


@st.composite
def int_boxes(draw: Any) -> Box:
    kinds = [np.bool_, np.uint8, np.int8, np.int32, np.uint32, np.int64, np.uint64]
    dtype: Any = draw(st.sampled_from(kinds))
    least, most = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    least, most = max(least, -(2**60)), min(most, 2**60)  # of which Gymnasium draws samples
    low = draw(st.integers(least, most - 1))
    high, shape = draw(st.integers(low + 1, most)), draw(SHAPES)
    return Box(np.full(shape, low, dtype), np.full(shape, high, dtype), dtype=dtype)


@st.composite
def multi_discretes(draw: Any) -> MultiDiscrete:
    shape = draw(SHAPES.filter(bool))
    numbers = st.integers(1, 4)
    nvec = np.array(draw(st.lists(numbers, min_size=27, max_size=27)))[: np.prod(shape)]
    return MultiDiscrete(nvec.reshape(shape), start=nvec[::-1].reshape(shape) - 2)


DISCRETES = st.builds(
    lambda n, start, dtype: Discrete(n, start=start, dtype=dtype),
    st.integers(1, 5),
    st.integers(-3, 3),
    st.sampled_from([np.int64, np.int32]),
)
BINARIES = SHAPES.filter(bool).map(MultiBinary)
CHOICES = DISCRETES | multi_discretes() | BINARIES


def trees(leaves: Any) -> Any:
    """Trees of spaces, at most four deep, and lone leaves."""
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.lists(parts, min_size=1, max_size=3).map(Tuple),
            st.dictionaries(st.sampled_from("abcd"), parts, min_size=1, max_size=3).map(Dict),
        ),
        max_leaves=6,
    )


# ---------------------------------------------------------------- observations


@settings(max_examples=60, deadline=None)
@given(space=trees(CHOICES | float_boxes() | int_boxes()), mode=st.sampled_from(MODES))
def test_networks_get_what_gymnasium_flattens(space: Any, mode: str) -> None:
    """Each step has one observation before and one after it, those that the environment showed."""
    records = [Recorder(space, Discrete(3), i) for i in range(2)]
    kind = AutoresetMode.NEXT_STEP if mode == "plain" else AutoresetMode(mode)
    vector: Any = SyncVectorEnv([lambda each=each: each for each in records], autoreset_mode=kind)
    env = GymnasiumEnv(Plain(vector) if mode == "plain" else vector)
    assert env.single_observation_space == space
    rollout = rlcpu.collect(env, Uniform(), 7)
    columns = rollout.transitions()
    for k in range(7):
        for i, record in enumerate(records):
            shown = record.seen[k // 4][k % 4], record.seen[k // 4][k % 4 + 1]
            with np.errstate(over="ignore"):
                flat = np.asarray(flatten(space, shown[0])).astype(np.float32)
            np.testing.assert_array_equal(rollout.inputs[k, i], flat)
            for name, value in zip(("observation", "next_observation"), shown, strict=True):
                stored = columns[name] if isinstance(columns[name], dict) else {"": columns[name]}
                values = leaves_of(space, value)
                for ours, theirs in zip(stored.values(), values, strict=True):
                    assert_stored(ours[2 * k + i], theirs)
    parts = rollout.observations if isinstance(rollout.observations, dict) else {}
    assert list(parts) == names_of(space)


def assert_stored(ours: Any, theirs: Any) -> None:
    """All but the shape, and floats that are float32, is what it was."""
    wanted = np.asarray(theirs)
    with np.errstate(over="ignore"):
        wanted = wanted.astype(np.float32) if wanted.dtype.kind == "f" else wanted
    np.testing.assert_array_equal(np.ravel(ours), np.ravel(wanted))
    assert np.can_cast(wanted.dtype, ours.dtype) or wanted.dtype.kind in "ib"


def names_of(space: Any, name: str = "") -> list[str]:
    """The paths to the leaves of a tree; none of a lone leaf."""
    if isinstance(space, Dict | Tuple):
        parts = space.items() if isinstance(space, Dict) else enumerate(space.spaces)
        begin = f"{name}/" if name else ""
        return [x for key, part in parts for x in names_of(part, f"{begin}{key}")]
    return [name] if name else []


NESTED = Tuple(
    (
        Discrete(3, start=5),
        Dict({"a": Dict({"b": Box(-1.0, 1.0, (2, 1)), "c": MultiBinary(2)}), "d": Box(0, 1, ())}),
    )
)


def test_environments_in_other_processes_have_trees() -> None:
    makers = [lambda i=i: Recorder(NESTED, NESTED[0], i) for i in range(2)]
    env = GymnasiumEnv(AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
    other = GymnasiumEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
    found, wanted = (rlcpu.collect(each, Uniform(), 6).inputs for each in (env, other))
    np.testing.assert_array_equal(found, wanted)
    assert found.shape == (6, 2, 3 + 2 + 2 + 1)
    env.env.close()


def test_agents_take_observations_as_environments_show_them() -> None:
    agent = PPO(Recorder(NESTED, Discrete(2)), hidden=(8,), num_steps=16, minibatch_size=16)
    agent.learn(16)
    seen = [NESTED.sample() for _ in range(3)]
    batch = (
        np.array([each[0] for each in seen]),
        {
            "a": {name: np.stack([each[1]["a"][name] for each in seen]) for name in ("c", "b")},
            "d": np.array([each[1]["d"] for each in seen]),
        },
    )
    flat = np.array([flatten(NESTED, each) for each in seen], np.float32)
    wanted = agent.policy.outputs(flat).argmax(axis=1)
    for observations in (batch, flat, agent.env.dynamics.policy_observations(batch)):
        np.testing.assert_array_equal(agent.predict(observations), wanted)
    assert [agent.predict(each) for each in seen] == wanted.tolist()
    bad = seen[0][0], {**seen[0][1], "a": {"b": 0.0}}
    with pytest.raises(
        ValueError, match=r"observations of the part 1/a have the parts b: exp.* b, c"
    ):
        agent.predict(bad)
    with pytest.raises(ValueError, match="observations have 1 parts: expected the parts 0, 1"):
        agent.predict(seen[0][:1])
    with pytest.raises(ValueError, match=r"observations\['1/a/c'\] has shape \(3,\): expected"):
        agent.predict((5, {**seen[0][1], "a": {"b": [[0.0], [0.0]], "c": np.zeros(3)}}))


def test_parts_have_one_order() -> None:
    """Gymnasium keeps that of an OrderedDict, and sorts a dict's: agents of both are alike."""
    pair = Discrete(2), Box(-1.0, 1.0, (1,))
    parts = {"b": pair[0], "a": pair[1]}
    spaces = Dict(OrderedDict(parts)), Dict(parts)
    assert list(spaces[0]) == ["b", "a"]
    rollouts = [rlcpu.collect(GymnasiumEnv(Recorder(x, x["b"])), Uniform(), 3) for x in spaces]
    for rollout in rollouts:
        assert list(rollout.observations) == ["a", "b"]
        np.testing.assert_array_equal(rollout.inputs[..., 0], rollout.observations["a"][..., 0])
    many = Tuple([Discrete(2)] * 11)
    record = Recorder(many, many)
    rollout = rlcpu.collect(GymnasiumEnv(record), Uniform(), 3)
    assert list(rollout.observations) == [str(k) for k in range(11)]
    np.testing.assert_array_equal(rollout.inputs[0, 0], flatten(many, record.seen[0][0]))
    assert_equal(record.actions[0], tuple(rollout.actions[0, 0].tolist()))


def test_whole_numbers_are_stored_as_they_are() -> None:
    space = Box(0, 2**32 - 1, (3, 4), np.uint32)
    record = Recorder(space, Discrete(2))
    agent = DQN(record, hidden=(8,), num_steps=8, learning_starts=16, batch_size=8, capacity=64)
    agent.learn(32)
    stored = {x.tobytes() for x in agent.buffer.sample(60)["observation"].astype(np.uint32)}
    shown = {x.tobytes() for episode in record.seen for x in episode}
    assert len(stored) > 10
    assert stored <= shown
    assert agent.predict(np.full((3, 4), LARGE, np.uint32)) in (0, 1)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Text(4), r"=Text\(.*: expected a Box, Discrete.*wrappers\.FlattenObservation makes a Box"),
        (OneOf((Discrete(2), Discrete(3))), r"=OneOf\(.*FlattenObservation makes a Box of it"),
        (Sequence(Discrete(2)), r"=Sequence\(.*TransformObservation makes one of others"),
        (Dict({"a": Tuple((Text(3),))}), r"\['a/0'\]=Text\(.*: expected a Box"),
        (Box(0, 1, (3, 0)), r"=Box\(\(3, 0\), float32\): expected .* of at least one number"),
        (Dict({}), "has no part: expected one at least"),
        (Dict({"a": Dict({"b": Discrete(2)}), "a/b": Discrete(2)}), "two parts 'a/b': rename one"),
    ],
)
def test_observations_that_are_refused(space: Any, text: str) -> None:
    with pytest.raises(TypeError, match=f"Recorder: observation_space.*{text}"):
        GymnasiumEnv(Recorder(space, Discrete(2)))


def test_what_is_said_to_write_works() -> None:
    for space in (Text(4), OneOf((Discrete(2), Box(0, 1, (2,))))):
        flat = gymnasium.wrappers.FlattenObservation(Recorder(space, Discrete(2)))
        assert rlcpu.collect(GymnasiumEnv(flat), Uniform(), 3).inputs.shape[:2] == (3, 1)
    mixed = Recorder(Discrete(2), Tuple((Discrete(2), Box(-1.0, 1.0, (1,)))))
    with pytest.raises(TypeError, match="TransformAction"):
        GymnasiumEnv(mixed)
    changed = gymnasium.wrappers.TransformAction(
        mixed, lambda x: (int(x[0] > 0), x[1:]), Box(-1.0, 1.0, (2,))
    )
    rlcpu.collect(GymnasiumEnv(changed), Uniform(), 3)
    assert all(mixed.action_space.contains(action) for action in mixed.actions)


# ---------------------------------------------------------------- actions


@settings(max_examples=100, deadline=None)
@given(data=st.data(), space=trees(CHOICES) | trees(float_boxes()))
def test_actions_mean_what_they_say(data: Any, space: Any) -> None:
    """Every action of the environment is one of policies, which have no others."""
    dynamics: Any = GymnasiumEnv(Recorder(Discrete(2), space)).dynamics
    for n in (0, 1, 3):  # one action, or several
        dynamics.action_space.seed(n)
        numbers = [dynamics.action_space.sample() for _ in range(max(n, 1))]
        taken = dynamics.own_actions(np.array(numbers) if n else np.asarray(numbers[0]))
        wanted = [naive_action(space, iter(np.ravel(each))) for each in numbers]
        for i, each in enumerate(wanted):
            assert space.contains(each)
            assert_equal(at(taken, i) if n else taken, each)
        if dynamics.is_discrete:
            back = dynamics.acted.of_own(taken)
            np.testing.assert_array_equal(back, np.array(numbers) if n else numbers[0])


def at(tree: Any, i: int) -> Any:
    """The values of environment i in a tree of arrays."""
    if isinstance(tree, dict):
        return {name: at(part, i) for name, part in tree.items()}
    return tuple(at(part, i) for part in tree) if isinstance(tree, tuple) else tree[i]


WHOLE = Box(np.array([[-3, 2]]), np.array([[0, 4]]), dtype=np.int8)
ACTIONS = [
    MultiBinary(3),
    MultiBinary((2, 2)),
    Discrete(3, start=5),
    MultiDiscrete([[2, 3], [1, 4]], start=[[0, 5], [-1, 2]]),
    Tuple((Discrete(3, start=-1), MultiBinary(2))),
    Dict({"a": Discrete(2), "b": Dict({"c": Tuple((Discrete(2, start=1),)), "d": WHOLE})}),
    Dict({"only": Discrete(4, start=1)}),
    WHOLE,
    Box(0, 1, (2,), np.bool_),
    Box(0.1, 0.3, (2, 2), np.float64),
    Box(-1.0, 1.0, ()),
    Tuple((Box(-np.inf, 0.1, (1, 2), np.float64), Dict({"x": Box(-1.0, 2.0, (1,))}))),
]


@pytest.mark.parametrize("space", ACTIONS, ids=str)
@pytest.mark.parametrize("mode", ["SameStep", "plain"])
def test_environments_get_the_actions_that_rollouts_record(space: Any, mode: str) -> None:
    records = [Recorder(Box(-1.0, 1.0, (2,)), space, i) for i in range(2)]
    kind = AutoresetMode.NEXT_STEP if mode == "plain" else AutoresetMode(mode)
    vector: Any = SyncVectorEnv([lambda each=each: each for each in records], autoreset_mode=kind)
    env = GymnasiumEnv(Plain(vector) if mode == "plain" else vector)
    assert env.single_action_space == space
    policy = MLP(env.dynamics.observation_space, env.dynamics.action_space, (8,), seed=1)
    rollout = rlcpu.collect(env, policy, 9)
    for i, record in enumerate(records):
        assert len(record.actions) >= 9
        for numbers, action in zip(rollout.actions[:, i], record.actions, strict=False):
            wanted = naive_action(space, iter(np.ravel(numbers)))
            assert_equal(action, wanted)
    env.reset()
    actions = env.action_space.sample()
    env.step(actions)
    for i, record in enumerate(records):
        assert_equal(record.actions[-1], at(actions, i))


def test_steps_take_the_environment_s_own_actions() -> None:
    record = Recorder(Discrete(2), Box(0.1, 0.3, (1, 2), np.float64))
    env = GymnasiumEnv(record)
    env.reset()
    env.step(np.array([[[0.1 + 1e-12, 7.0]]]))
    np.testing.assert_array_equal(record.actions[0], [[0.1 + 1e-12, 0.3]])
    with pytest.raises(ValueError, match=r"actions have shape \(2,\): expected \.\.\., 1, 2"):
        env.step(np.zeros(2))
    pair = GymnasiumEnv(Recorder(Discrete(2), Tuple((Discrete(2), MultiBinary(2)))))
    pair.reset()
    with pytest.raises(ValueError, match="3 parts: expected the parts 0, 1"):
        pair.step(([0], [1], [1]))
    with pytest.raises(ValueError, match=r"actions\['1'\] have shape \(1, 3\): expected"):
        pair.step((np.zeros(1), np.zeros((1, 3))))


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Tuple((Discrete(2), Box(-1, 1, (2,)))), r"\): 1 are floats, and all others choices: exp"),
        (Box(0, 2000, (2,), np.int64), r"a whole number of 2,001 choices, expected at most 1,024"),
        (Box(-np.inf, np.inf, (1,), np.int64), "a whole number of 18,446,744,073,709,551,616"),
        (Dict({"a": Text(3)}), r"\['a'\]=Text\(.*: expected a Box, Discrete"),
        (Tuple(()), "has no part: expected one at least"),
        (MultiDiscrete([]), "of at least one number"),
    ],
)
def test_actions_that_are_refused(space: Any, text: str) -> None:
    with pytest.raises(TypeError, match=f"Recorder: action_space.*{text}"):
        GymnasiumEnv(Recorder(Discrete(2), space))


def test_errors_name_the_action_that_the_environment_got() -> None:
    class Broken(Recorder):
        def step(self, action: Any) -> Any:
            observation, _, *others = super().step(action)
            return observation, np.nan, *others

    env = GymnasiumEnv(Broken(Discrete(2), Dict({"a": Discrete(1, start=7)})))
    with pytest.raises(FloatingPointError, match=r"in step 0 after the action \{'a': .*7\)?\} \("):
        rlcpu.collect(env, Uniform(), 3)


class Barred(Recorder):
    """Allows two of three actions."""

    def allowed(self) -> Any:
        return (np.arange(3) + len(self.seen[-1])) % 3 != 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset()[0], {"action_mask": self.allowed().astype(np.int8)}

    def step(self, action: Any) -> Any:
        number = action["only"] if isinstance(action, dict) else action
        assert self.allowed()[number - 5]
        return *super().step(action)[:4], {"action_mask": self.allowed().astype(np.int8)}


@pytest.mark.parametrize("wrapped", [False, True])
def test_masks_are_of_choices_from_the_first_on(wrapped: bool) -> None:
    space: Any = Discrete(3, start=5)
    env = Barred(Box(-1.0, 1.0, (2,)), Dict({"only": space}) if wrapped else space)
    agent = DQN(env, hidden=(8,), num_steps=8, learning_starts=16, batch_size=8, capacity=64)
    agent.learn(48)  # the environment looks at every action
    for k in range(3):
        action = agent.predict(np.zeros(2), action_masks=np.arange(3) == k)
        assert action == ({"only": 5 + k} if wrapped else 5 + k)


# ---------------------------------------------------------------- agents


def settings_of(kind: Any) -> dict[str, Any]:
    if kind is PPO:
        plain = {"normalize_rewards": False, "entropy_coefficient": 0.0, "activation": "tanh"}
        sizes = {"num_steps": 128, "minibatch_size": 32, "hidden": (32,)}
        return {**plain, **sizes, "learning_rate": 3e-3}
    sizes = {"num_steps": 8, "learning_starts": 64, "batch_size": 64, "hidden": (32, 32)}
    return {**sizes, "num_updates": 8, "capacity": 4000, "learning_rate": 3e-3}


LEARNERS = [
    (PPO, Discrete(3, start=5), 0.95),
    (DQN, Discrete(3, start=5), 0.95),
    (PPO, MultiBinary((1, 3)), 0.95),
    (PPO, Tuple((Discrete(3, start=-1), Dict({"b": MultiDiscrete([[2], [3]])}))), 0.95),
    (PPO, Box(0, 1, (2,), np.bool_), 0.95),
    (PPO, Box(np.array([0, 3]), np.array([2, 4]), dtype=np.uint32), 0.95),
    (SAC, Box(-1.0, 1.0, (1, 2), np.float64), 0.85),
    (SAC, Tuple((Box(-1.0, 1.0, (1,)), Dict({"x": Box(-0.5, 0.5, (1, 1))}))), 0.85),
]


@pytest.mark.parametrize(("kind", "space", "least"), LEARNERS, ids=str)
def test_agents_learn(kind: Any, space: Any, least: float, tmp_path: Path) -> None:
    """And files act as they did."""
    agent = kind(Echo(space), seed=0, gamma=0.0, **settings_of(kind))
    agent.learn(6000)  # eight seeds of each reach `least` in them
    assert agent.evaluate(20).mean() / 4 > least
    agent.save(tmp_path / "agent.npz")
    again = kind.load(tmp_path / "agent.npz", env=Echo(space))
    for _ in range(5):
        seen = space.sample()
        action = agent.predict(seen)
        assert space.contains(action)
        assert_equal(again.predict(seen), action)
    again.learn(32)


def test_files_know_the_spaces(tmp_path: Path) -> None:
    def env(start: int, name: str = "a", observed: int = 2) -> Recorder:
        return Recorder(
            Tuple((Discrete(3, start=observed), MultiBinary(2))),
            Dict({name: Discrete(3, start=start), "z": MultiBinary((1, 2))}),
        )

    agent = PPO(env(4), hidden=(8,), num_steps=16, minibatch_size=16)
    agent.save(tmp_path / "agent.npz")
    PPO.load(tmp_path / "agent.npz", env=env(4))
    for other in (env(5), env(4, "b"), env(4, observed=0)):
        with pytest.raises(ValueError, match=r"_space of Recorder has the parts \[\[.*, expected"):
            PPO.load(tmp_path / "agent.npz", env=other)
    for ending in (".c", ".json", ".onnx"):
        agent.export(tmp_path / f"policy{ending}")
    notes = json.loads((tmp_path / "policy.json").read_text())["notes"]
    assert notes == (
        "The numbers of an observation are 0 (3: one 1 among zeros, for 2 to 4), 1 (2). The "
        "numbers of an action are a (1 number, plus 4); z (2 numbers of shape (1, 2))."
    )
    assert notes.encode() in (tmp_path / "policy.onnx").read_bytes()
    assert notes in re.sub(r"\n   ", " ", (tmp_path / "policy.c").read_text())
    plain = PPO(Recorder(Box(-1.0, 1.0, (2,)), Discrete(2)), hidden=(8,))
    plain.export(tmp_path / "plain.json")
    assert json.loads((tmp_path / "plain.json").read_text())["notes"] == ""


def test_agents_that_do_not_fit_name_the_environment_s_space() -> None:
    for kind, space, text in (
        (DQN, MultiBinary(2), r"=MultiBinary\(2\), which is MultiDiscrete\(\[2 2\]\) here: expect"),
        (SAC, Discrete(3, start=5), r"=Discrete\(3, start=5\), which is Discrete\(3\) here: exp"),
        (SAC, Discrete(3), r"=Discrete\(3\): expected a Box"),
    ):
        with pytest.raises(TypeError, match=f"Recorder has action_space{text}"):
            kind(Recorder(Discrete(2), space))


def test_policies_are_made_of_their_own_spaces() -> None:
    spaces = NESTED, MultiBinary(2)
    for observed, acting in (spaces, (spaces[0], Discrete(2)), (Box(0, 1, (2,), np.bool_),) * 2):
        with pytest.raises(TypeError, match=r"environments of Gymnasium.*env\.dynamics\.obs"):
            MLP(observed, acting)
    with pytest.raises(TypeError, match=r"environments of Gymnasium, env\.dynamics\.action_space"):
        MLP(Discrete(2), MultiBinary(2))
    env = GymnasiumEnv(Recorder(*spaces))
    assert MLP(env.dynamics.observation_space, env.dynamics.action_space).num_outputs == 4
