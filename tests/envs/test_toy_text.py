"""Toy text, as plain Python and as kernels, against Gymnasium's transition tables and games."""

from __future__ import annotations

import collections
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text import blackjack as original
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

import rlcpu
from rlcpu.envs.tasks.toy_text import blackjack, cliff_walking, frozen_lake, taxi
from rlcpu.kernels.machine.random import RESET_GROUP, STEP_GROUP, Rng
from tests import naive

Table = dict[tuple[int, float, bool], float]


class Every:
    """Random numbers of one step: uniforms that are the middles of intervals, or one integer."""

    def __init__(self, value: float) -> None:
        self.value = value

    def uniform(self, k: int) -> float:
        return self.value

    def integers(self, k: int, n: int) -> int:
        return int(self.value * n)


def our_table(dynamics: Any, state: Any, action: int, grid: int = 30) -> Table:
    """Probability of each (observation, reward, terminated)."""
    table: Table = collections.defaultdict(float)
    for i in range(grid):
        rng: Any = Every((i + 0.5) / grid)
        after, reward, terminated = dynamics.step(state, action, dynamics.params, rng)
        assert isinstance(reward, float)
        table[dynamics.observe(after, dynamics.params), reward, bool(terminated)] += 1 / grid
    return dict(table)


def table(outcomes: Any) -> Table:
    """The same of Gymnasium's outcomes."""
    result: Table = collections.defaultdict(float)
    for probability, state, reward, terminated in outcomes:
        result[int(state), float(reward), bool(terminated)] += probability
    return {key: p for key, p in result.items() if p > 0}


def compare(dynamics: Any, state_of: Any, name: str, **options: Any) -> None:
    """Every state and action of a table."""
    p = gymnasium.make(name, **options).unwrapped.P
    assert dynamics.observation_space.n == len(p)
    for number, actions in p.items():
        state = state_of(number)
        assert dynamics.observe(state, dynamics.params) == number
        for action, outcomes in actions.items():
            ours, theirs = our_table(dynamics, state, action), table(outcomes)
            assert ours.keys() == theirs.keys(), (number, action)
            assert all(abs(ours[key] - theirs[key]) < 1e-9 for key in ours), (number, action)


def with_params(dynamics: Any, **params: Any) -> Any:
    return dynamics.with_params(**params)


@pytest.mark.parametrize("slippery", [True, False])
def test_frozen_lake_is_gymnasiums(slippery: bool) -> None:
    for name in ("FrozenLake-v1", "FrozenLake8x8-v1"):
        dynamics = {d.id: d for d in (frozen_lake.DYNAMICS, frozen_lake.DYNAMICS_8X8)}[name]
        chosen = with_params(dynamics, is_slippery=slippery)
        compare(chosen, frozen_lake.State, name, is_slippery=slippery)


def test_frozen_lake_of_other_maps_rates_and_rewards() -> None:
    for seed in range(5):
        rows = generate_random_map(5 + seed, seed=seed)
        dynamics = frozen_lake.frozen_lake(rows, id="Own-v0")
        chosen = with_params(
            dynamics, success_rate=0.8, goal_reward=2.0, hole_reward=-1.0, frozen_reward=-0.1
        )
        options = {"desc": rows, "success_rate": 0.8, "reward_schedule": (2, -1, -0.1)}
        compare(chosen, frozen_lake.State, "FrozenLake-v1", **options)
    starts = frozen_lake.frozen_lake(("SFS", "FHG"), id="Own-v0")
    drawn = [starts.reset(Rng.of_seed(i), starts.params).cell for i in range(100)]
    assert set(drawn) == {0, 2}


@pytest.mark.parametrize("rows", [("SF", "G"), ("SX",), ("FG",), ("S" + "F" * 128,)])
def test_bad_maps_are_refused(rows: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^rows="):
        frozen_lake.frozen_lake(rows, id="Own-v0")


@pytest.mark.parametrize("slippery", [True, False])
def test_cliff_walking_is_gymnasiums(slippery: bool) -> None:
    chosen = with_params(cliff_walking.DYNAMICS, is_slippery=slippery)
    compare(chosen, cliff_walking.State, "CliffWalking-v1", is_slippery=slippery)


def taxi_state(number: int) -> taxi.State:
    rest, destination = divmod(number, 4)
    rest, passenger = divmod(rest, 5)
    return taxi.State(*divmod(rest, 5), passenger, destination)


@pytest.mark.parametrize("rainy", [True, False])
def test_taxi_is_gymnasiums(rainy: bool) -> None:
    chosen = with_params(taxi.DYNAMICS, is_rainy=rainy)
    compare(chosen, taxi_state, "Taxi-v4", is_rainy=rainy)


@pytest.mark.parametrize(
    ("name", "state_of"),
    [
        ("FrozenLake-v1", frozen_lake.State),
        ("FrozenLake8x8-v1", frozen_lake.State),
        ("CliffWalking-v1", cliff_walking.State),
        ("Taxi-v4", taxi_state),
    ],
)
def test_kernels_have_gymnasiums_tables(name: str, state_of: Any) -> None:
    """Every state and action: outcomes, and of a hundred tries how often each comes."""
    p = gymnasium.make(name).unwrapped.P
    times = 100 if name.startswith("FrozenLake") else 2  # other tables leave nothing to chance
    pairs = [(number, action) for number in p for action in p[number]]
    ours = rlcpu.make_vec(name, len(pairs) * times, autoreset_mode="SameStep")
    ours.reset(seed=0)
    states = [state_of(number) for number, _ in pairs for _ in range(times)]
    ours.state = type(states[0])(*map(np.array, zip(*states, strict=True)))
    actions = np.array([action for _, action in pairs for _ in range(times)])
    observations, rewards, terminated, truncated, infos = ours.step(actions)
    assert not truncated.any()
    observations = observations.copy()
    for i in np.flatnonzero(terminated):
        observations[i] = infos["final_obs"][i]
    outcomes = list(zip(observations.tolist(), rewards.tolist(), terminated.tolist(), strict=True))
    for k, (number, action) in enumerate(pairs):
        counts = collections.Counter(outcomes[k * times : (k + 1) * times])
        wanted = table(p[number][action])
        assert counts.keys() <= wanted.keys(), (number, action)
        for key, probability in wanted.items():
            spread = 6 * np.sqrt(times * probability * (1 - probability))
            assert abs(counts[key] - times * probability) <= spread, (number, action)


def test_taxi_starts_and_masks_are_gymnasiums() -> None:
    env: Any = gymnasium.make("Taxi-v4").unwrapped
    for number in range(500):
        mask = taxi.action_mask(taxi_state(number), taxi.Params())
        assert all(type(choice) is bool for choice in mask)
        np.testing.assert_array_equal(mask, env.action_mask(number))
    drawn = {taxi.observe(taxi.reset(Rng.of_seed(i), taxi.Params()), None) for i in range(4000)}
    assert drawn == set(np.flatnonzero(env.initial_state_distrib))


class Cards:
    """Draws the cards that ours draws: numbers 0, 1, ... of one step or reset."""

    def __init__(self, rng: Rng) -> None:
        self.rng, self.k = rng, -1

    def choice(self, deck: list[Any]) -> Any:
        if deck != original.deck:
            return deck[0]
        self.k += 1
        return deck[self.rng.integers(self.k, 13)]


@pytest.mark.parametrize("rules", [(False, True), (True, False), (False, False), (True, True)])
def test_blackjack_is_gymnasiums_given_the_cards(rules: tuple[bool, bool]) -> None:
    params = blackjack.Params(*rules)
    env: Any = gymnasium.make("Blackjack-v1", natural=rules[0], sab=rules[1]).unwrapped
    rng, rewards = np.random.default_rng(0), set()
    for seed in range(2500):
        start = Rng.of_seed(seed)
        state, terminated, t = blackjack.reset(start, params), False, 0
        env._np_random = Cards(start)
        observation, _ = env.reset()
        while not terminated:
            seen = blackjack.observe(state, params)
            assert (seen // 22, seen // 2 % 11, seen % 2) == observation
            action, t = int(rng.random() < 0.4), t + 1
            env._np_random = Cards(Rng.of_seed(seed, t))
            state, reward, terminated = blackjack.step(state, action, params, Rng.of_seed(seed, t))
            observation, expected, ended, _, _ = env.step(action)
            assert (reward, terminated) == (expected, ended)
        rewards.add(reward)
    assert rewards == {-1.0, 0.0, 1.0, 1.5} if rules == (True, False) else {-1.0, 0.0, 1.0}


def test_the_kernel_of_blackjack_is_gymnasiums_given_the_cards() -> None:
    copies = 40
    ours = rlcpu.make_vec("Blackjack-v1", copies, autoreset_mode="SameStep")
    params = ours.dynamics.params
    options = {"natural": bool(params.natural), "sab": bool(params.sab)}
    theirs: list[Any] = [gymnasium.make("Blackjack-v1", **options).unwrapped for _ in range(copies)]
    lanes = [naive.Draws(5 + i, np.float32) for i in range(copies)]
    observations, _ = ours.reset(seed=5)
    rng, rewarded = np.random.default_rng(0), set()

    def deal(i: int) -> int:
        theirs[i]._np_random = Cards(lanes[i].rng(RESET_GROUP))
        return number(theirs[i].reset()[0])

    expected = [deal(i) for i in range(copies)]
    for _ in range(100):
        assert observations.tolist() == expected
        actions = (rng.random(copies) < 0.4).astype(int)
        observations, rewards, terminated, _, infos = ours.step(actions)
        for i, lane in enumerate(lanes):
            lane.advance()
            theirs[i]._np_random = Cards(lane.rng(STEP_GROUP))
            seen, reward, ended, _, _ = theirs[i].step(int(actions[i]))
            assert (rewards[i], terminated[i]) == (reward, ended)
            expected[i] = number(seen)
            if ended:
                assert infos["final_obs"][i] == expected[i]
                expected[i] = deal(i)
        rewarded |= set(rewards.tolist())
    assert {-1.0, 0.0, 1.0} <= rewarded


def number(observation: Any) -> int:
    """Gymnasium's observation as ours."""
    total, dealer, usable = map(int, observation)
    return 22 * total + 2 * dealer + usable
