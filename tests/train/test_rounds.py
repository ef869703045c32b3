"""Rounds that a kernel makes without Python between them are those that Python makes."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete

import rlcpu
from rlcpu import nn
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.nn.layers import embedding
from rlcpu.replay import PrioritizedReplayBuffer
from rlcpu.train import DDPG, DQN, QRDQN, SAC, TD3, TQC
from rlcpu.train.rounds import LEAST_CALLS
from tests.envs.masked import COUNTER
from tests.train.states import state_of
from tests.train.test_off_policy import SMALL

ONE: dict[str, Any] = {
    **SMALL,
    "num_envs": 1,
    "num_steps": 1,
    "num_updates": 1,
    "learning_starts": 60,
    "learning_rate_schedule": "constant",
}
ROUNDS = 300


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Load the kernel, which then serves few rounds too."""
    DQN("CartPole-v1", **ONE).learn(LEAST_CALLS + 100)


def everything(agent: Any) -> dict[str, bytes]:
    """Return what decides the future; lanes that stand for no environment hold anything."""
    arrays = {name: x for name, x in state_of(agent).items() if not name.startswith("env_")}
    engine = agent.env.engine
    arrays |= {"state": engine.get_state(), "elapsed": engine.elapsed()}
    return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}


def by_python(remaining: float) -> float:
    """Return 1: Python asks a function in front of each round, and so makes all of them."""
    return 1.0


def make(kind: Any, env: Any, in_python: bool, **settings: Any) -> Any:
    schedule = {"learning_rate_schedule": by_python} if in_python else {}
    agent = kind(env, seed=3, **{**ONE, **schedule, **settings})
    agent.buffer.draws = 0
    sample = agent.buffer.sample

    def count(*args: Any, **options: Any) -> Any:
        agent.buffer.draws += 1
        return sample(*args, **options)

    agent.buffer.sample = count  # not in kernels
    return agent


def assert_same(one: Any, other: Any) -> None:
    assert everything(one) == everything(other)
    assert (one.steps, one.num_updates, one.returns) == (
        other.steps,
        other.num_updates,
        other.returns,
    )
    assert len(one.buffer) == len(other.buffer)
    assert one.buffer.describe() == other.buffer.describe()
    assert one.buffer.total_weight() == other.buffer.total_weight()
    for field, values in one.buffer.sample(300).data.items():
        np.testing.assert_array_equal(values, other.buffer.sample(300)[field])
        break  # the streams have moved on alike
    told, expected = (
        [
            (each.steps, each.episodes, each.episode_return, each.losses)
            for each in x.history.updates
        ]
        for x in (one, other)
    )
    np.testing.assert_equal(told, expected)


def learn_both(kind: Any, env: Any, rounds: int = ROUNDS, **settings: Any) -> list[Any]:
    """Agents that a kernel and Python have taught, each in two calls."""
    both = [make(kind, env, in_python, **settings) for in_python in (False, True)]
    for agent in both:
        config = agent.config
        steps = config.num_envs * config.num_steps
        agent.learn(rounds * steps + config.learning_starts)
        agent.learn(30 * steps)
    calls = both[1].buffer.draws
    assert calls >= rounds
    assert both[0].buffer.draws < calls
    return both


ACTORS: list[tuple[Any, str]] = [
    (DQN, "CartPole-v1"),
    (SAC, "Pendulum-v1"),
    (TD3, "Pendulum-v1"),
    (DDPG, "Pendulum-v1"),
    (QRDQN, "CartPole-v1"),
    (TQC, "Pendulum-v1"),
]


@pytest.mark.parametrize(("kind", "env"), ACTORS)
@pytest.mark.parametrize("kept", ["uniform", "prioritized"])
def test_a_kernel_makes_the_rounds_that_python_makes(kind: Any, env: str, kept: str) -> None:
    assert_same(*learn_both(kind, env, replay=kept))


def test_python_makes_all_rounds_of_a_buffer_without_an_epsilon() -> None:
    """Of which no item may have a priority above zero."""
    own = PrioritizedReplayBuffer(500, example_of(rlcpu.make_vec("CartPole-v1", 1)), epsilon=0.0)
    agent = make(DQN, "CartPole-v1", False, buffer=own)
    agent.learn(ROUNDS)
    assert agent.buffer.draws == agent.num_updates == ROUNDS - 60 + 1


@pytest.mark.parametrize("name", ["explore", "collect_rollout", "count", "improve"])
def test_python_makes_all_rounds_of_an_agent_that_changes_them(name: str) -> None:
    calls = 0

    def method(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return getattr(DQN, name)(self, *args, **options)

    own = type("Own", (DQN,), {name: method})
    agent = make(own, "CartPole-v1", False)
    agent.learn(ROUNDS)
    assert agent.buffer.draws == agent.num_updates == ROUNDS - 60 + 1
    assert calls >= agent.num_updates - 1  # the first round after random ones does not explore


SEVERAL: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "num_updates": 16}


@pytest.mark.parametrize(
    "settings",
    [
        {**SEVERAL, "n_step": 3, "replay": "prioritized", "reward_scale": 0.1, "dtype": "float64"},
        {"exploration_steps": 900, "exploration_schedule": "cosine", "target_period": 3},
        {"num_envs": 3, "num_steps": 2, "n_step": 5, "dueling": True, "double": False},
    ],
)
def test_steps_environments_and_schedules(settings: dict[str, Any]) -> None:
    assert_same(*learn_both(DQN, "CartPole-v1", **settings))


@pytest.mark.parallel
@pytest.mark.parametrize(("kind", "env"), [*ACTORS[:2], (DQN, "MinAtar/Breakout-v1")])
def test_threads_share_the_updates_of_a_round(kind: Any, env: str) -> None:
    large = {"hidden": (64, 64), "batch_size": 128, "capacity": 2000, "learning_starts": 200}
    both = learn_both(kind, env, 600, num_threads=2, network="mlp", **large)
    assert both[0].learner.last_call.workers == 2
    assert_same(*both)


def test_learning_rates_of_a_schedule() -> None:
    schedules: tuple[Any, ...] = ("linear", lambda remaining: remaining)
    both = [make(DQN, "CartPole-v1", False, learning_rate_schedule=each) for each in schedules]
    for agent in both:
        agent.learn(ROUNDS)
    assert both[0].buffer.draws < both[1].buffer.draws
    assert_same(*both)


@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize(
    ("kind", "env", "settings"),
    [
        (SAC, "Pendulum-v1", {}),
        (DQN, "CartPole-v1", {**SEVERAL, "n_step": 3, "reward_scale": 0.5, "dtype": "float64"}),
    ],
)
def test_running_normalisation(
    kind: Any, env: str, settings: dict[str, Any], rewards: bool
) -> None:
    options = {"normalize_observations": True, "normalize_rewards": rewards}
    both = learn_both(kind, env, **options, **settings)
    assert_same(*both)
    assert both[0].normalizer.count[0] == both[0].steps
    assert both[0].rewards.statistics.count[0] == both[0].steps * rewards
    for part in ("normalizer", "rewards"):
        states = [getattr(each, part).state() for each in both]
        for name, array in states[0].items():
            np.testing.assert_array_equal(array, states[1][name])


@pytest.mark.parametrize("is_normalised", [False, True])
def test_masks(is_normalised: bool) -> None:
    """They lie behind observations, and are none of the numbers that are normalised."""
    both = learn_both(DQN, COUNTER, num_envs=2, n_step=2, normalize_observations=is_normalised)
    assert_same(*both)
    allowed = both[0].buffer.sample(300)["next_action_mask"]
    assert 0 < allowed.mean() < 1


def test_observations_that_are_choices() -> None:
    env, space = rlcpu.envs.find("FrozenLake-v1"), Discrete(16, start=3)
    env = dataclasses.replace(
        env, observe=lambda state, params: state[0] + 3, observation_space=space
    )
    assert_same(*learn_both(DQN, env))


MORE_CALLS: dict[str, Any] = {**SEVERAL, "replay": "prioritized", "n_step": 2}


@pytest.mark.parametrize(
    ("most", "settings", "told"),
    [(0.2, {}, {True}), (0.0816, {}, {True, False}), (0.0811, MORE_CALLS, {True, False})],
)
def test_boards(
    most: float, settings: dict[str, Any], told: set[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a batch has too many ones, Python ends the round, and networks take all cells."""
    monkeypatch.setattr(embedding, "MANY_ONES", most)
    are_few, answers = nn.Ones.are_few, set()

    def ask(ones: nn.Ones) -> bool:
        answer = are_few(ones)
        answers.add(answer)
        return answer

    monkeypatch.setattr(nn.Ones, "are_few", ask)
    both = learn_both(DQN, "MinAtar/Breakout-v1", network="mlp", **settings)
    assert_same(*both)
    assert answers == told


def test_a_callback_may_change_everything() -> None:
    """It sees whole rounds, and what it changes counts from the next one on."""
    both = [make(SAC, "Pendulum-v1", in_python) for in_python in (False, True)]
    seen: list[Any] = []
    for agent in both:
        told: list[Any] = []

        def change(progress: Any, agent: Any = agent, told: Any = told) -> bool:
            told.append((progress.steps, agent.steps, agent.num_updates, len(agent.buffer)))
            agent.policy.network.parameters *= np.float32(0.99)
            rate = 0.5 * agent.config.learning_rate
            agent.config = agent.config.replace({"learning_rate": rate, "tau": 0.5})
            return agent.steps < 1700

        history = agent.learn(10**6, callback=change)
        assert history.stopped == "callback"
        assert [steps for steps, *_ in told] == [500, 1000, 1500, 2000]
        seen.append(told)
    assert seen[0] == seen[1]
    assert_same(*both)


def test_a_loaded_agent_goes_on_bit_for_bit(tmp_path: Path) -> None:
    agent = make(SAC, "Pendulum-v1", False, replay="prioritized")
    agent.learn(ROUNDS)
    agent.save(tmp_path / "agent.npz")
    loaded = SAC.load(tmp_path / "agent.npz")
    agent.learn(300), loaded.learn(300)
    assert everything(loaded) == everything(agent)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers of this kind")
def test_an_interrupted_agent_goes_on_bit_for_bit() -> None:
    expected, agent = (make(DQN, "CartPole-v1", False) for _ in range(2))
    rng, stopped = np.random.default_rng(0), 0
    start = time.perf_counter()
    expected.learn(20 * ROUNDS)
    duration = time.perf_counter() - start
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        while agent.steps < expected.steps:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-3, 0.3 * duration))
            try:
                agent.learn(expected.steps - agent.steps)
            except KeyboardInterrupt:
                stopped += 1
                assert agent.history.stopped == "interrupted"
                assert agent.history.steps <= agent.steps == agent.buffer.num_added
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert stopped > 1
    ours, theirs = everything(agent), everything(expected)
    assert {name for name in ours if ours[name] != theirs[name]} <= {"learner_copies"}


#: Pays more than float32 holds in step 64.
DOUBLING = rlcpu.envs.Dynamics(
    id="Doubling-v0",
    step=lambda state, action, params: ((2.0 * state[0],), state[0] * state[0], False),
    reset=lambda uniforms, params: (1.0 + 0.1 * uniforms[0],),
    reset_draws=1,
    observation_space=COUNTER.observation_space,
    action_space=COUNTER.action_space,
    params=COUNTER.params,
    max_episode_steps=100,
)


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        (DOUBLING, {"learning_starts": 20, "batch_size": 16, "learning_rate": 1e-30}, "reward=inf"),
        ("CartPole-v1", {"learning_rate": 1e9}, "gradient step .* became NaN or infinite"),
    ],
)
def test_numbers_that_are_not_finite_end_the_same_round(
    env: Any, settings: dict[str, Any], message: str
) -> None:
    told, both = [], [make(DQN, env, in_python, **settings) for in_python in (False, True)]
    for agent in both:
        with pytest.raises(FloatingPointError, match=message) as caught:
            agent.learn(ROUNDS)
        told.append(str(caught.value))
        assert agent.history.stopped == "error"
    assert told[0] == told[1]
    assert both[0].buffer.draws < both[1].buffer.draws
    assert_same(*both)


def test_other_threads_draw_meanwhile() -> None:
    agent = make(DQN, "CartPole-v1", False)
    agent.learn(ROUNDS)
    end, sizes = threading.Event(), []

    def watch() -> None:
        while not end.is_set():
            sizes.append(len(agent.buffer.sample(8)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    agent.learn(2000)
    end.set()
    watcher.join()
    assert set(sizes) == {8}
    assert agent.buffer.num_added == agent.steps
