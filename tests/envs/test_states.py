"""States with named fields of every kind, observations of planes and of one choice."""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary

import rlcpu
from rlcpu.envs import Board, Dynamics, Rng, check
from rlcpu.envs.engine import observations
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.engine.steps import step_kernels
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.policies import MLP, Scalar, Uniform
from rlcpu.train import DQN, PPO
from tests import naive


class Params(NamedTuple):
    decay: float = 0.5


class State(NamedTuple):
    """One field of every kind."""

    height: float
    cell: int
    seen: bool
    marks: Board
    pair: tuple[int, int]
    boards: tuple[Board, Board]
    speeds: tuple[float, float]


def reset(rng: Rng, params: Params) -> State:
    cell = rng.integers(0, 90)
    none = Board()
    return State(
        rng.uniform(1), cell, False, none.set(cell), (0, -1), (none, ~none), (0.0, rng.uniform(9))
    )


def step(state: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool, bool]:
    cell = (state.cell + action + rng.integers(0, 3)) % 90
    height = params.decay * state.height + rng.uniform(1)
    marks = state.marks.set(cell)
    seen = marks.count() > 5
    boards = (state.boards[1] & marks, (marks >> 1) | (marks << 70))
    after = State(
        height,
        cell,
        seen,
        marks,
        (state.pair[1], -cell),
        boards,
        (state.speeds[1], state.speeds[0] + height),
    )
    return after, height if seen else 0.0, cell == 17, cell > 85


def observe(state: State, params: Params) -> tuple[Board, ...]:
    inside = ~(~Board() << 90)
    return state.marks & inside, state.boards[0] & inside, Board().set(state.cell)


TOY = Dynamics(
    id="Tests/Toy-v0",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=MultiBinary((3, 9, 10)),
    action_space=Discrete(3),
    params=Params(),
    max_episode_steps=25,
)


class Walker(NamedTuple):
    place: int


def walker_reset(rng: Rng, params: Params) -> Walker:
    return Walker(rng.integers(0, 3))


def walker_step(state: Walker, action: int, params: Params) -> tuple[Walker, float, bool]:
    place = min(max(state.place + 2 * action - 1, 0), 6)
    return Walker(place), params.decay, place == 6


WALK = Dynamics(
    id="Walk-v0",
    step=walker_step,
    reset=walker_reset,
    observe=lambda state, params: state.place,
    observation_space=Discrete(7),
    action_space=Discrete(2),
    params=Params(),
    max_episode_steps=9,
)


def lean(observation: Any, params: Any, uniforms: Any) -> tuple[int, float, float]:
    """A policy that reads boards."""
    return (1 if observation[0].test(40) or uniforms[0] < 0.5 else 2), 0.25, 0.0


def follow(observation: Any, params: Any, uniforms: Any) -> tuple[int, float, float]:
    """A policy that reads a choice."""
    return (1 if observation < 3 or uniforms[0] < 0.5 else 0), 0.25, 0.0


POLICIES = {
    "Uniform": lambda dynamics: Uniform(),
    "Scalar": lambda dynamics: Scalar(lean if dynamics is TOY else follow, draws=1),
    "MLP": lambda dynamics: MLP(dynamics.observation_space, dynamics.action_space, (16,)),
}


@pytest.mark.parametrize(
    ("policy", "dynamics"),
    [("Uniform", TOY), *((name, each) for name in ("Scalar", "MLP") for each in (TOY, WALK))],
    ids=lambda each: each if isinstance(each, str) else each.id,
)
def test_rollouts_are_those_of_plain_python(policy: str, dynamics: Dynamics) -> None:
    acting = POLICIES[policy](dynamics)
    env = rlcpu.make_vec(dynamics, 70, dtype="float64" if policy == "Scalar" else "float32")
    env.reset(seed=5)
    rollout = rlcpu.collect(env, acting, 40)
    expected = naive.collect(env, acting, 40, range(5, 75))
    tolerance = 1e-6 if env.dtype == np.float32 else 0.0
    for name in ("observations", "actions", "terminated", "truncated", "last_observations"):
        found = getattr(rollout, name)
        assert found.dtype == env.single_observation_space.dtype or "observations" not in name
        np.testing.assert_array_equal(found, expected[name], name)
    np.testing.assert_array_equal(rollout.final_observations, expected["final_observations"])
    np.testing.assert_allclose(rollout.rewards, expected["rewards"], rtol=tolerance)
    for name in ("log_probs", "values", "last_values", "final_values"):
        found = getattr(rollout, name)
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-5)
    assert rollout.terminated.any()
    assert rollout.truncated.any()


@pytest.mark.parametrize("dynamics", [TOY, WALK], ids=["planes", "choice"])
@pytest.mark.parametrize("hidden", [(19, 7), (64,), ()])
@pytest.mark.parametrize("are_many", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_networks_read_ones_as_the_numbers_that_they_are(
    dynamics: Dynamics, hidden: tuple[int, ...], are_many: bool, scale: float
) -> None:
    policy = MLP(dynamics.observation_space, dynamics.action_space, hidden, "relu")
    policy.parameters[:] = np.random.default_rng(0).normal(size=policy.parameters.size)
    policy.observation_scale[:], policy.deterministic = scale, True
    env = rlcpu.make_vec(dynamics, 70)
    env.reset(seed=2)
    if are_many and dynamics is TOY:
        env.state.marks = np.full((70, 2), 2**64 - 1, np.uint64)
    alone = rlcpu.make_vec(dynamics, 1)
    alone.reset(seed=2)
    single = rlcpu.collect(alone, policy, 12)
    rollout = rlcpu.collect(env, policy, 12)
    if not are_many:
        np.testing.assert_array_equal(single.actions[:, 0], rollout.actions[:, 0])
    seen = rollout.inputs.reshape(70 * 12, -1)
    assert (seen[:70].mean() > 0.2) == (are_many and dynamics is TOY)
    outputs = policy.outputs(seen)
    np.testing.assert_array_equal(rollout.actions.ravel(), outputs.argmax(axis=1))
    np.testing.assert_allclose(rollout.values.ravel(), policy.evaluate(seen), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("planes", ["uint8", "float32", "bits"])
def test_steps_are_those_of_plain_python(mode: str, planes: str) -> None:
    env = rlcpu.make_vec(TOY, 70, autoreset_mode=mode, planes=planes)
    seen, _ = env.reset(seed=list(range(70)))
    lanes = [naive.Lane(env, seed) for seed in range(70)]
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert env.observation_space.contains(seen)
        decoded = unpack(seen) if planes == "bits" else seen
        np.testing.assert_array_equal(decoded, [lane.observe() for lane in lanes])
        actions = rng.integers(0, 3, 70)
        seen, rewards, terminated, truncated, infos = env.step(actions)
        if mode == "NextStep":
            break  # a lane of `naive` starts its next episode at once
        results = [lane.step(action) for lane, action in zip(lanes, actions, strict=True)]
        np.testing.assert_allclose(rewards, [result["rewards"] for result in results], rtol=1e-6)
        np.testing.assert_array_equal(terminated, [result["terminated"] for result in results])
        np.testing.assert_array_equal(truncated, [result["truncated"] for result in results])
        for i in np.flatnonzero(terminated | truncated):
            final = infos["final_obs"][i]
            decoded = unpack(final[None])[0] if planes == "bits" else final
            np.testing.assert_array_equal(decoded, results[i]["final"][0])


def unpack(bits: np.ndarray) -> np.ndarray:
    """Planes (n, 3, 9, 10) of words (n, 3, 4)."""
    cells = [(bits[..., cell // 32] >> np.uint32(cell % 32)) & 1 for cell in range(90)]
    return np.stack(cells, axis=-1).reshape(-1, 3, 9, 10)


def test_fields_are_read_and_set_by_name() -> None:
    env = rlcpu.make_vec(TOY, 5)
    env.reset(seed=0)
    rng = np.random.default_rng(1)
    values = {
        "height": rng.random(5, np.float32),
        "cell": np.array([-(2**31), -1, 0, 89, 2**31 - 1]),
        "seen": np.array([True, False, True, True, False]),
        "marks": rng.integers(0, 2**64, (5, 2), np.uint64, endpoint=False),
        "pair": rng.integers(-9, 9, (5, 2)),
        "boards": rng.integers(0, 2**64, (5, 2, 2), np.uint64, endpoint=False),
        "speeds": rng.random((5, 2), np.float32),
    }
    for name, value in values.items():
        setattr(env.state, name, value)
    for name, value in values.items():
        found = getattr(env.state, name)
        np.testing.assert_array_equal(found, value, name)
        assert found.dtype == value.dtype
    other = rlcpu.make_vec(TOY, 5, dtype="float64")
    other.state = env.state
    assert all((getattr(other.state, name) == values[name]).all() for name in values)
    other.state = State(**values)._replace(cell=np.arange(5))
    assert other.state.cell.tolist() == [0, 1, 2, 3, 4]
    assert dir(env.state) == sorted(State._fields)
    assert "height=array(" in repr(env.state)


BAD_FIELDS = [
    ("cell", [1.0] * 5, TypeError, "state.cell has dtype float64: expected integer numbers"),
    ("cell", [2**31] * 5, ValueError, "state.cell holds 2147483648 to 2147483648: expected 32"),
    ("cell", [1] * 4, ValueError, r"state.cell has shape \(4,\): expected \(5,\)"),
    ("seen", [1] * 5, TypeError, "state.seen has dtype int64: expected bool"),
    ("height", [np.nan] * 5, ValueError, "state.height holds NaN or infinity"),
    ("marks", np.zeros((5, 3), np.uint64), ValueError, r"state.marks has shape \(5, 3\)"),
    ("pair", np.zeros(5, int), ValueError, r"expected \(5, 2\)"),
    ("speed", [0.0] * 5, AttributeError, "state has no field 'speed'; it has: height, cell"),
]


@pytest.mark.parametrize(("name", "value", "error", "message"), BAD_FIELDS)
def test_bad_fields(name: str, value: Any, error: type[Exception], message: str) -> None:
    env = rlcpu.make_vec(TOY, 5)
    env.reset(seed=0)
    before = env.snapshot()
    with pytest.raises(error, match=message):
        setattr(env.state, name, np.array(value))
    with pytest.raises(TypeError, match="expected a State of arrays"):
        env.state = np.zeros((5, 9))
    after = env.snapshot()
    assert all(array.tobytes() == before[name].tobytes() for name, array in after.items())


@pytest.mark.parametrize("environment", [TOY, "CartPole-v1"])
def test_a_snapshot_goes_on_in_another_environment(environment: Any) -> None:
    env, other = (rlcpu.make_vec(environment, 70, planes="bits") for _ in range(2))
    env.reset(seed=3)
    rlcpu.simulate(env, Uniform(), 13)
    file = io.BytesIO()
    np.savez(file, **env.snapshot())
    file.seek(0)
    first = rlcpu.collect(env, Uniform(), 20)
    other.restore(dict(np.load(file)))
    second = rlcpu.collect(other, Uniform(), 20)
    for name in ("observations", "actions", "rewards", "terminated", "episode_returns"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_bad_snapshots() -> None:
    env = rlcpu.make_vec(WALK, 3)
    with pytest.raises(Exception, match=r"call reset\(\) or assign a state first"):
        env.snapshot()
    env.reset(seed=0)
    whole = env.snapshot()
    bad: list[tuple[Any, type[Exception], str]] = [
        ({"real": whole["real"]}, TypeError, "expected arrays named real, words, clock"),
        (None, TypeError, "got NoneType"),
        ({**whole, "words": whole["words"].astype(int)}, TypeError, "is of int64: expected uint32"),
        ({**whole, "real": whole["real"][:, :1]}, ValueError, r"'real'\] has shape \(1, 1\)"),
    ]
    for snapshot, error, message in bad:
        with pytest.raises(error, match=message):
            env.restore(snapshot)
    assert (env.snapshot()["words"] == whole["words"]).all()


def test_check_compares_kernels_with_plain_python() -> None:
    report = check(TOY, steps=300)
    assert report.ok, report
    assert report.steps == 300


# ---------------------------------------------------------------- what a user may get wrong


class Odd(NamedTuple):
    word: str


ODD = Odd("a")


def changed(**changes: Any) -> dict[str, Any]:
    fields = ("id", "step", "reset", "observe", "observation_space", "action_space", "params")
    return {**{name: getattr(TOY, name) for name in fields}, **changes}


def with_field(**fields: Any) -> Any:
    state = reset(Rng.of_seed(0), TOY.params)._replace(**fields)
    return lambda rng, params: state


BAD = [
    (changed(reset=with_field(cell=1.0)), TypeError, "State.cell as an int; returned 1.0"),
    (changed(reset=with_field(cell=True)), TypeError, "State.cell as an int; returned True"),
    (changed(reset=with_field(cell=2**31)), TypeError, "State.cell as an int of 32 bits"),
    (changed(reset=with_field(seen=1)), TypeError, r"State.seen as a bool \(True, not 1\)"),
    (changed(reset=with_field(marks=3)), TypeError, "State.marks as a Board; returned 3"),
    (changed(reset=with_field(height="1")), TypeError, "State.height as a float; returned '1'"),
    (
        changed(reset=with_field(pair=(1,))),
        TypeError,
        "State.pair as a tuple of 2 ints",
    ),
    (changed(reset=with_field(height=float("nan"))), TypeError, "as a float, finite; returned nan"),
    (
        changed(reset=lambda rng, params: ODD),
        TypeError,
        "field word of Odd has the type hint str: expected float",
    ),
    (changed(reset=lambda rng, params: WALK), TypeError, "state as a tuple of 1 floats"),
    (changed(reset_draws=2), ValueError, "reset takes `rng`, which gives as many numbers"),
    (
        changed(observe=lambda state, params: (state.marks,)),
        TypeError,
        "observation as a tuple of 3 Boards; returned 1",
    ),
    (
        changed(observe=lambda state, params: (state.marks, state.marks, Board().set(90))),
        ValueError,
        "cell 90 of plane 2: expected 0 to 89",
    ),
    (
        changed(observation_space=Discrete(4), observe=lambda state, params: 4),
        ValueError,
        "observe returned observation=4: expected 0 to 3",
    ),
    (changed(observation_space=MultiBinary(90)), ValueError, r"of \(planes, rows, columns\)"),
    (changed(observation_space=MultiBinary((1, 12, 12))), ValueError, "at most 128 cells"),
    (
        changed(observation_space=Discrete(4, start=1), observe=lambda state, params: 0),
        ValueError,
        "observe returned observation=0: expected 1 to 4",
    ),
    (
        changed(observation_space=Box(0, 1, (2, 2))),
        TypeError,
        "float32 Box of one dimension, Discrete or MultiBinary",
    ),
    (
        changed(step=lambda state, action, params, rng: (state, 0.0, False, 0)),
        TypeError,
        "truncated as a bool; returned 0",
    ),
    (
        changed(
            step=lambda state, action, params, rng: (
                (state, 0.0, False) if action else (state, 0.0, False, False)
            )
        ),
        TypeError,
        "as many values each time; returned 3 after 4",
    ),
]


@pytest.mark.parametrize(("description", "error", "message"), BAD)
def test_bad_dynamics(description: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        Dynamics(**description)
    assert re.match(r"Tests/Toy-v0: ", str(caught.value))


def test_bad_views() -> None:
    with pytest.raises(ValueError, match='planes=\'int8\': expected "uint8", "float32" or "bits"'):
        rlcpu.make_vec(TOY, planes="int8")
    env = rlcpu.make_vec(TOY, planes="bits")
    with pytest.raises(TypeError, match=r"are delivered as bits, env\.dynamics\.obs"):
        MLP(env.single_observation_space, env.single_action_space)
    policy = MLP(WALK.observation_space, WALK.action_space)
    assert policy.outputs([0, 6]).shape == (2, 2)
    with pytest.raises(ValueError, match="expected ints 0 to 6"):
        policy.outputs([7])


def test_an_id_with_a_namespace_is_known_to_gymnasium() -> None:
    rlcpu.register(TOY)
    try:
        env = gymnasium.make_vec("rlcpu/Tests-Toy-v0", num_envs=3)
        assert env.reset(seed=0)[0].shape == (3, 3, 9, 10)
        single = gymnasium.make("rlcpu/Tests-Toy-v0")
        assert single.observation_space.contains(single.reset(seed=0)[0])
        assert single.observation_space.contains(single.step(1)[0])
        alone: Any = single.unwrapped
        alone.state = alone.state._replace(cell=40, pair=(3, 4))
        assert alone.state.cell == 40
        assert alone.state.pair == (3, 4)
        assert type(alone.state.boards[0]) is Board
        with pytest.raises(TypeError, match=r"state has to be State\.cell as an int; got 0\.5"):
            alone.state = alone.state._replace(cell=0.5)
        assert pickle.loads(pickle.dumps(TOY.with_params(decay=0.25))).params.decay == 0.25
        assert rlcpu.make_vec("Tests/Toy-v0").dynamics is TOY
    finally:
        rlcpu.envs.contract.registry.made.pop(TOY.id)
        gymnasium.registry.pop("rlcpu/Tests-Toy-v0")


@pytest.mark.parametrize(
    ("cells", "form"), [(1, "uint8"), (64, "float32"), (65, "uint8"), (128, "uint8")]
)
def test_planes_are_expanded_cell_by_cell(cells: int, form: str) -> None:
    words = np.random.default_rng(cells).integers(0, 2**32, (7, 8), np.uint32)
    view = ObservationView("planes", (2, 1, cells), form)
    rows = words.view(np.float32)
    expected = np.array(
        [
            [[[int(row[4 * p + c // 32]) >> c % 32 & 1 for c in range(cells)]] for p in range(2)]
            for row in words
        ]
    )
    for memory in (rows, np.asfortranarray(rows), rows[:1]):
        found = view.decode(memory)
        assert found.dtype == form
        np.testing.assert_array_equal(found, expected[: len(memory)])
    np.testing.assert_array_equal(view.show(rows.T), expected)
    np.testing.assert_array_equal(view.inputs(rows), expected.reshape(7, -1))


def test_planes_are_written_by_as_many_threads_as_the_environment_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def launch(kernels: Any, work: int, num_threads: int | None, *args: Any) -> Any:
        asked.append(num_threads)
        return kernels.serial(*args)

    monkeypatch.setattr(observations, "launch", launch)
    for num_threads in (1, None):
        env = rlcpu.make_vec(TOY, 70, num_threads=num_threads)
        env.reset(seed=0)
        env.step(np.zeros(70, np.int64))
        env.observe()
        assert rlcpu.collect(env, Uniform(), 2).observations.shape[:2] == (2, 70)
        assert asked == [num_threads] * 4
        asked.clear()


@pytest.mark.parametrize("dynamics", [TOY, WALK], ids=["planes", "choice"])
def test_transitions_as_networks_see_them(dynamics: Dynamics) -> None:
    env = rlcpu.make_vec(dynamics, 70)
    env.reset(seed=5)
    rollout = rlcpu.collect(env, POLICIES["MLP"](dynamics), 40)
    plain, seen = rollout.transitions(), rollout.transitions(as_inputs=True)
    kept, example = rollout.transitions(packed=True), example_of(dynamics)
    for name in ("observation", "next_observation"):
        shown = plain[name]
        if dynamics is WALK:
            shown = np.eye(7)[shown]
        assert seen[name].dtype == np.float32
        np.testing.assert_array_equal(seen[name], shown.reshape(70 * 40, -1))
        # Agents keep the bits, and look at them as networks do.
        assert kept[name].dtype == example[name].dtype
        assert kept[name].shape[1:] == example[name].shape
        assert kept[name].nbytes == 70 * 40 * (4 if dynamics is WALK else 3 * 16)
        np.testing.assert_array_equal(env.view.inputs_of_stored(kept[name]), seen[name])
    ends = np.flatnonzero((rollout.terminated | rollout.truncated).ravel())
    np.testing.assert_array_equal(plain["next_observation"][ends], rollout.final_observations)


@pytest.mark.parametrize("kind", ["DQN", "PPO"])
def test_agents_learn_from_choices(kind: str) -> None:
    agent: Any = {"DQN": DQN, "PPO": PPO}[kind](WALK, seed=0, num_envs=16)
    agent.learn(4096)
    # A step is worth 0.5 until the walk ends at place 6: the best is to wait for the limit of 9.
    assert agent.evaluate(20).mean() == 4.5
    actions = agent.predict(np.arange(7))
    assert actions.shape == (7,)
    assert actions[5] == 0
    assert agent.predict(3) == actions[3]


def test_dqn_learns_from_ones_what_it_learns_from_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt = []
    for ones_of in (ObservationView.ones_of_stored, lambda view, kept: None):
        monkeypatch.setattr(ObservationView, "ones_of_stored", ones_of)
        agent = DQN(WALK, seed=0, num_envs=16, hidden=(16,), learning_starts=256)
        learnt.append((agent.learn(512).losses, agent.policy.network.parameters))
    (ones, by_ones), (numbers, by_numbers) = learnt
    assert ones == pytest.approx(numbers, rel=1e-4)
    np.testing.assert_allclose(by_ones, by_numbers, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cells", [1, 64, 65, 128])
@pytest.mark.parametrize("order", ["C", "F"])
def test_ones_of_planes_are_where_the_numbers_are_one(cells: int, order: Any) -> None:
    """Bits beyond the cells, and the rows of a mask behind them, are of no plane."""
    rng, view = np.random.default_rng(cells), ObservationView("planes", (2, 1, cells), "uint8", 3)
    words = rng.integers(0, 2**32, (37, 9), dtype=np.uint32) & rng.integers(
        0, 2**32, (37, 9), dtype=np.uint32
    )
    rows = np.array(words, order=order).view(np.float32)
    ones = view.ones(rows)
    assert ones is not None
    ones.check(2 * cells)
    np.testing.assert_array_equal(ones.expand(), view.inputs(rows))


@pytest.mark.parallel
def test_large_states_are_stepped_by_all_cores_with_the_same_bits() -> None:
    """Three blocks of 19 rows are a chunk; 3,700 environments are 58 blocks, the last of 52."""
    found: list[Any] = []
    for num_threads in (1, 2):
        env = rlcpu.make_vec(TOY, 3700, num_threads=num_threads, autoreset_mode="SameStep")
        kernels = step_kernels(env.engine.code, np.float32).drivers
        assert kernels.grain < 3700
        env.reset(seed=0)
        env.action_space.seed(0)
        steps = [env.step(env.action_space.sample())[:4] for _ in range(20)]
        found.append([*(each for step in steps for each in step), *env.snapshot().values()])
    assert kernels.parallel.overloads  # type: ignore[attr-defined]
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_numbers_of_a_state_may_be_infinite() -> None:
    """The checks read them of what an author's step returns; a board is four words of 32 bits."""
    numbers = rlcpu.envs.find("CartPole-v1").state.as_numbers((np.inf, -np.inf, np.nan, 1.0))
    np.testing.assert_array_equal(numbers, [np.inf, -np.inf, np.nan, 1.0])
