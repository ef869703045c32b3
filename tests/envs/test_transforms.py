"""Transforms of environments, against the wrappers of Gymnasium and POPGym that do the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import wrappers
from gymnasium.spaces import Box, flatten

import rlcpu
from rlcpu.envs import Dynamics, Rng, find
from rlcpu.envs.contract.trial import call_function
from rlcpu.envs.transforms import (
    add_first_step,
    add_previous_action,
    add_previous_reward,
    add_time_left,
    repeat_action,
    shape_reward,
    stack_observations,
    transform_reward,
)
from tests.envs import grouped
from tests.envs.array_envs import inventory, rod
from tests.envs.trials import assert_step_vectorises, try_kernels

Array = npt.NDArray[Any]


class Plain(gymnasium.Env[Any, Any]):
    """An environment in plain Python, whose random numbers depend on seed and step alone."""

    def __init__(self, dynamics: Dynamics) -> None:
        self.dynamics, self.seed, self.elapsed = dynamics, 0, 0
        self.observation_space, self.action_space = (
            dynamics.observation_space,
            dynamics.action_space,
        )
        self.params: Any = None
        self.state: Any = None

    def call(self, name: str, *inputs: Any) -> Any:
        return call_function(self.dynamics, name, getattr(self.dynamics, name), *inputs)

    def draws(self, name: str) -> Any:
        rng = Rng.of_seed(self.seed, self.elapsed)
        if self.dynamics.takes_rng(name):
            return rng
        return tuple(rng.uniform(k) for k in range(getattr(self.dynamics, f"{name}_draws")))

    def observation(self) -> Any:
        seen = self.call("observe", self.state, self.params)
        return seen if np.ndim(seen) == 0 else np.array(seen, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seed, self.elapsed = seed or 0, 0
        self.params = self.dynamics.draw_params(Rng.of_seed(self.seed, 10**6))
        self.state = self.call("reset", self.draws("reset"), self.params)
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        noisy = self.dynamics.takes_rng("step") or self.dynamics.step_draws
        draws = (self.draws("step"),) if noisy else ()
        result = self.call("step", self.state, action, self.params, *draws)
        self.state, reward, *flags = result
        return self.observation(), reward, flags[0], len(flags) > 1 and flags[1], {}


class Repeated(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes each action three times."""

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(3):
            seen, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            if terminated or truncated:
                break
        return seen, total, terminated, truncated, info


def place(state: Any, params: Any) -> float:
    return state[0]


def stock(state: Any, params: Any) -> float:
    return state.stock


def place_of_noisy(state: Any, params: Any) -> float:
    return place(state.cartpole, params)


def potential_of(dynamics: Dynamics) -> Any:
    if dynamics.has_arrays:
        return stock
    return place_of_noisy if dynamics.id == NOISY.id else place


def halved(reward: float) -> float:
    return min(0.5 * reward, 0.75)


class Shaped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds 0.9 times a potential after a step to the reward, and takes away that before it."""

    def step(self, action: Any) -> Any:
        env: Any = self.unwrapped
        potential = potential_of(env.dynamics)
        before = potential(env.state, env.params)
        seen, reward, terminated, truncated, info = self.env.step(action)
        after = 0.0 if terminated else potential(env.state, env.params)
        return seen, reward + 0.9 * after - before, terminated, truncated, info


def actions_of(space: Any, rng: np.random.Generator) -> Any:
    if isinstance(space, Box):
        return tuple(rng.uniform(space.low, space.high).astype(np.float32).tolist())
    return int(rng.integers(space.n))


def assert_same_run(ours: gymnasium.Env[Any, Any], theirs: gymnasium.Env[Any, Any]) -> None:
    """The same episodes under the same actions, for three seeds."""
    rng, ends = np.random.default_rng(0), 0
    for seed in range(3):
        results: list[Any] = [(env.reset(seed=seed)[0],) for env in (ours, theirs)]
        for _ in range(60):
            (seen, *others), (expected, *their_others) = results
            np.testing.assert_allclose(np.ravel(seen), np.ravel(expected), rtol=1e-6, atol=1e-7)
            assert seen in ours.observation_space
            assert others[1:] == their_others[1:]
            assert others[:1] == pytest.approx(their_others[:1], abs=1e-12)
            if any(others[1:3]):
                ends += 1
                break
            action = actions_of(ours.action_space, rng)
            results = [env.step(action)[:4] for env in (ours, theirs)]
    assert ends or ours.unwrapped.dynamics.id.startswith(("Pendulum", "Rod"))  # type: ignore[attr-defined]


class Limited(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What Gymnasium's wrapper wants to know."""

    def __init__(self, env: Plain) -> None:
        super().__init__(env)
        limits = {"max_episode_steps": env.dynamics.max_episode_steps}
        self._cached_spec = gymnasium.envs.registration.EnvSpec("Limited-v0", **limits)  # type: ignore[arg-type]


#: What is done to an environment, and to a Gymnasium environment of it.
PAIRS: dict[str, tuple[Callable[[Any], Dynamics], Callable[[Any], Any]]] = {
    "stacked": (
        lambda env: stack_observations(env, 3),
        lambda env: wrappers.FrameStackObservation(env, 3),
    ),
    "stacked on zeros": (
        lambda env: stack_observations(env, 3, "zero"),
        lambda env: wrappers.FrameStackObservation(env, 3, padding_type="zero"),
    ),
    "time left": (
        add_time_left,
        lambda env: wrappers.TransformObservation(
            wrappers.TimeAwareObservation(Limited(env), normalize_time=True),
            lambda seen: np.array([*seen[:-1], 1.0 - seen[-1]], np.float32),
            None,
        ),
    ),
    "halved": (
        lambda env: transform_reward(env, halved),
        lambda env: wrappers.TransformReward(env, halved),
    ),
    "repeated": (lambda env: repeat_action(env, 3), Repeated),
    "shaped": (lambda env: shape_reward(env, potential_of(env), 0.9), Shaped),
}
limited_inventory = dataclasses.replace(inventory, max_episode_steps=30)
BASES = ["CartPole-v1", "Pendulum-v1", limited_inventory, rod]
NOISY = find("POPGym/NoisyPositionOnlyCartPoleEasy-v0")


@pytest.mark.parametrize("base", BASES, ids=lambda base: getattr(base, "id", base))
@pytest.mark.parametrize("name", PAIRS)
def test_transforms_are_gymnasiums_wrappers(name: str, base: Any) -> None:
    base, (transform, wrap) = find(base), PAIRS[name]
    if name == "repeated" and base.takes_rng("step"):
        pytest.skip("its draws are those of several steps")
    if name == "shaped" and base is rod:
        pytest.skip("a field of the other environment is the potential")
    assert_same_run(Plain(transform(base)), wrap(Plain(base)))


@pytest.mark.parametrize("base", ["FrozenLake-v1", *BASES], ids=lambda b: getattr(b, "id", b))
def test_previous_actions_and_first_steps_are_those_of_popgym(base: Any) -> None:
    popgym = pytest.importorskip("popgym.wrappers", reason="the package popgym is not installed")
    from popgym.core.env import POPGymEnv

    base, own = find(base), type("Own", (Plain, POPGymEnv), {"get_state": lambda self: None})
    ours = Plain(add_first_step(add_previous_action(base)))
    theirs = popgym.Antialias(popgym.PreviousAction(own(base)))
    rng = np.random.default_rng(1)
    results: list[Any] = [env.reset(seed=5)[0] for env in (ours, theirs)]
    for step in range(10):
        seen, expected = results
        parts = flatten(theirs.observation_space, expected)
        flag = [parts[-1]]  # of Discrete(2), as two numbers
        if step == 0 and not isinstance(base.action_space, Box):
            parts[base.observation_size : -2] = 0.0  # no action, and not number 0
        np.testing.assert_array_equal(seen, np.float32([*parts[:-2], *flag]))
        action = actions_of(base.action_space, rng)
        results = []
        for env in (ours, theirs):
            seen, _, terminated, *_ = env.step(action)
            results.append(seen)
        if terminated:
            break
    assert step > 1


@pytest.mark.parametrize("base", [NOISY, inventory], ids=lambda base: base.id)
def test_the_previous_reward_is_that_of_the_step_before(base: Dynamics) -> None:
    env, rng = Plain(add_previous_reward(base)), np.random.default_rng(2)
    seen, _ = env.reset(seed=1)
    assert seen[-1] == 0.0
    for _ in range(5):
        seen, reward, *_ = env.step(actions_of(env.action_space, rng))
        assert seen[-1] == np.float32(reward)


class Coin(NamedTuple):
    heads: int
    tosses: int


class Fair(NamedTuple):
    chance: float = 0.5


def toss(state: Coin, action: int, params: Fair, rng: Rng) -> Any:
    is_head = rng.uniform(0) < params.chance
    reached = Coin(state.heads + (1 if is_head else 0), state.tosses + 1)
    return reached, rng.uniform(), reached.heads > 5, reached.tosses > 9


coin = Dynamics(
    id="Coin-v0",
    step=toss,
    reset=lambda rng, params: Coin(0, 0),
    observe=lambda state, params: (float(state.heads), float(state.tosses)),
    observation_space=Box(0.0, 99.0, (2,)),
    action_space=gymnasium.spaces.Discrete(2),
    params=Fair(),
)


def test_repetitions_draw_numbers_of_their_own() -> None:
    heads, env = [], Plain(repeat_action(coin, 4))
    for seed in range(400):
        env.reset(seed=seed)
        heads.append(env.step(0)[0][0])
    shares = np.bincount(np.int64(heads), minlength=5) / 400
    expected = np.array([1, 4, 6, 4, 1]) / 16  # binomial: one number for all four has 0 or 4 alone
    assert (abs(shares - expected) < 4.0 * np.sqrt(expected * (1 - expected) / 400)).all()


def chain(base: Any) -> Dynamics:
    """All transforms."""
    repeated = repeat_action(base, 2)
    shaped = transform_reward(shape_reward(repeated, potential_of(base), 0.9), halved)
    stacked = add_previous_action(stack_observations(shaped, 2))
    return add_time_left(add_first_step(add_previous_reward(stacked)))


@pytest.mark.parametrize("base", [NOISY, limited_inventory], ids=lambda base: base.id)
def test_kernels_take_the_steps_of_plain_python(base: Dynamics) -> None:
    try_kernels(chain(base))
    if not base.has_arrays:
        assert_step_vectorises(chain(base))


BOARDS = stack_observations("MinAtar/Breakout-v1", 2)
LAKE = add_previous_action(stack_observations("FrozenLake-v1", 2, "zero"))


def test_kernels_stack_boards_and_choices() -> None:
    """Random numbers are those of the environment itself."""
    for dynamics in (BOARDS, LAKE):
        base = dynamics.origin
        plain, stacked = (rlcpu.make_vec(each, 3) for each in (base, dynamics))
        before, _ = plain.reset(seed=4)
        stacked.reset(seed=4)
        plain.action_space.seed(0)
        begins = np.zeros(3, np.bool_)
        for _ in range(40):
            actions = plain.action_space.sample()
            seen, rewards, terminated, truncated, _ = plain.step(actions)
            shown, *results, _ = stacked.step(actions)
            np.testing.assert_array_equal(results, [rewards, terminated, truncated])
            if dynamics is BOARDS:
                np.testing.assert_array_equal(shown[:, 4:], seen)
                expected = np.where(begins[:, None, None, None], seen, before)
                np.testing.assert_array_equal(shown[:, :4], expected)
            else:
                eye = np.eye(20, dtype=np.float32)
                np.testing.assert_array_equal(shown[:, 16:32], eye[seen, :16])
                expected = np.where(begins[:, None], 0.0, eye[actions + 16, 16:])
                np.testing.assert_array_equal(shown[:, 32:], expected)
            before, begins = seen, terminated | truncated


def test_boards_are_stacked_as_planes() -> None:
    base, env = find("MinAtar/Breakout-v1"), Plain(BOARDS)
    single = Plain(base)
    assert BOARDS.observation_space.shape == (8, 10, 10)
    env.reset(seed=3), single.reset(seed=3)
    before = base.observe(single.state, base.params)
    for action in (1, 1, 0, 3):
        env.step(action), single.step(action)
        shown = base.observe(single.state, base.params)
        assert BOARDS.observe(env.state, BOARDS.params) == (*before, *shown)
        before = shown


def test_gymnasium_registers_pickles_and_goes_on() -> None:
    dynamics = dataclasses.replace(chain(limited_inventory), id="Chained-v0")
    rlcpu.register(dynamics)
    env: Any = gymnasium.make_vec("rlcpu/Chained-v0", num_envs=5)
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    for each in (env, twin):
        each.action_space.seed(0)
        for _ in range(4):
            result = each.step(each.action_space.sample())
    assert result[4]["action_mask"].shape == (5, 6)
    np.testing.assert_array_equal(env.observe(), twin.observe())
    np.testing.assert_array_equal(env.state.steps_taken, 4)
    env.restore(twin.snapshot())


def test_pickles_make_the_transforms_again() -> None:
    cheap = add_time_left(add_previous_action(stack_observations("CartPole-v1", 2)))
    for dynamics in (cheap.with_params(gravity=1.5), add_first_step(inventory)):
        named = dataclasses.replace(dynamics, id="Named-v0")
        again = pickle.loads(pickle.dumps(named))
        assert (again.id, again.params) == (named.id, named.params)
        env, twin = Plain(named), Plain(again)
        np.testing.assert_array_equal(env.reset(seed=1)[0], twin.reset(seed=1)[0])
    assert cheap.constants()["x_threshold"] == 2.4
    lost = transform_reward("CartPole-v1", lambda reward: 2.0 * reward)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(lost)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(dataclasses.replace(cheap, observe=lambda state, params: (0.0,) * 11))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: stack_observations("CartPole-v1", 0), ValueError, "n=0: expected at least 1"),
        (lambda: stack_observations("CartPole-v1", 2, "last"), ValueError, "padding='last'"),
        (lambda: stack_observations(stack_observations(rod, 2), 2), ValueError, "field frames"),
        (lambda: add_first_step(add_first_step("CartPole-v1")), ValueError, "field has_begun"),
        (lambda: add_time_left(coin), ValueError, "max_episode_steps=None"),
        (lambda: add_previous_action("MinAtar/Breakout-v1"), TypeError, "is boards"),
        (lambda: stack_observations(grouped.cart, 2), TypeError, "Cart-v0: .* has several parts"),
        (lambda: add_previous_action(grouped.camera), TypeError, "Camera-v0: .* has several parts"),
        (lambda: repeat_action("CartPole-v1", 99), ValueError, "n=99"),
        (lambda: transform_reward("CartPole-v1", abs), TypeError, "function=<built-in"),
        (lambda: transform_reward("CartPole-v1", lambda r: print(r)), TypeError, "uses print"),
        (lambda: transform_reward("CartPole-v1", lambda r: None), TypeError, "reward as a number"),
        (lambda: shape_reward("CartPole-v1", place, 2.0), ValueError, "discount=2.0"),
        (lambda: shape_reward("CartPole-v1", place, "1"), TypeError, "discount='1'"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def positions(state: Any, params: Any) -> Any:
    return state[0], state[2]


def test_stacked_positions_are_learnt_without_memory() -> None:
    """Two positions tell a velocity; one does not, and the same run reaches less than 50."""
    blind = dataclasses.replace(
        find("CartPole-v1"),
        id="Blind-v0",
        observe=positions,
        observation_space=Box(-5.0, 5.0, (2,)),
    )
    agent = rlcpu.train.PPO(stack_observations(blind, 2), seed=0)
    agent.learn(80_000)
    assert agent.evaluate(20, seed=1).mean() > 300.0
