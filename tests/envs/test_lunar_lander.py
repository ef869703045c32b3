"""LunarLander against what Gymnasium's environment did with Box2D: flights, returns, landings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import rlcpu
from rlcpu.envs import find
from rlcpu.envs.tasks.box2d import lander_legs, lander_picture, lunar_lander
from rlcpu.envs.tasks.box2d.lunar_lander import HEIGHT, Params, State
from tests.envs.trials import assert_step_vectorises, try_kernels

NUM_ENVS = 2048
CALM = (0.5, 0.5)  # exhausts that are not spread
#: Observations of Gymnasium's after its reset, and after 20, 40 and 60 random steps.
FLIGHTS = {
    (3, False): [
        (-0.00111, 1.41242, -0.11218, 0.06669, 0.00129, 0.02541),
        (-0.02036, 1.39690, -0.09753, -0.00308, 0.00877, -0.09495),
        (-0.03751, 1.31401, -0.08519, -0.37601, -0.10496, -0.07233),
        (-0.05396, 1.07745, -0.05013, -0.64174, -0.13826, -0.08793),
    ],
    (4, True): [
        (-0.00111, 1.41731, -0.11267, 0.28410, 0.00106, 0.02089),
        (-0.02888, 1.51424, -0.14761, 0.21101, -0.04513, -0.16531),
        (-0.07709, 1.54916, -0.33680, -0.08696, -0.34299, -0.34872),
        (-0.15660, 1.44469, -0.33246, -0.35140, -0.76459, -0.58332),
    ],
}


class Returns(NamedTuple):
    """Of episodes of Gymnasium's: mean, 25, 50 and 75 % of returns, of lengths, how many landed."""

    mean: float
    returns: tuple[float, float, float]
    lengths: tuple[float, float, float]
    landed: float


GYMNASIUMS = {
    "random": Returns(-186.0, (-255.0, -151.7, -104.0), (75, 90, 105), 0.0),
    "nothing": Returns(-132.8, (-151.7, -133.3, -115.8), (59, 69, 80), 0.0),
    "upwards": Returns(-876.5, (-923.1, -650.8, -540.6), (85, 102, 141), 0.0),
    "heuristic": Returns(239.0, (246.7, 264.3, 283.0), (190, 211, 249), 0.921),
    "throttled": Returns(282.8, (271.2, 286.4, 296.9), (180, 195, 215), 0.998),
}


def numbers_of_gymnasium(rng: np.random.Generator, wind: bool) -> tuple[float, ...]:
    """What Gymnasium's reset draws, as numbers in [0, 1) in the order of ours."""
    heights, forces = rng.uniform(0.0, HEIGHT, 12), rng.uniform(-1000.0, 1000.0, 2)
    index = [rng.integers(-9999, 9999) for _ in range(2)] if wind else [0, 0]
    rng.uniform(-1.0, 1.0, 2)  # the exhausts of its first step
    scaled = heights[[0, 1, 2, 8, 9, 10, 11]] / HEIGHT, (forces + 1000.0) / 2000.0
    return tuple(np.concatenate([*scaled, (np.array(index) + 9999.5) / 19998.0]).tolist())


@pytest.mark.parametrize(("seed", "wind"), FLIGHTS)
def test_flight_is_gymnasiums(seed: int, wind: bool) -> None:
    rng, params = np.random.default_rng(seed), Params(enable_wind=wind)
    state = lunar_lander.reset(numbers_of_gymnasium(rng, wind), params)
    seen = [lunar_lander.observe(state, params)]
    for action in np.random.default_rng(0).integers(4, size=60).tolist():
        noise = (rng.uniform(), rng.uniform())
        state, _, terminated = lunar_lander.step(state, action, params, noise)
        assert not terminated
        seen.append(lunar_lander.observe(state, params))
    for found, expected in zip(seen[::20], FLIGHTS[seed, wind], strict=True):
        np.testing.assert_allclose(found[:6], expected, atol=1e-3)
        assert found[6:] == (0.0, 0.0)


def heuristic(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How Gymnasium's heuristic wants to turn and to hover."""
    x, y, vx, vy, angle, spin, right, left = seen.T.astype(np.float64)
    turn = 0.5 * (np.clip(0.5 * x + vx, -0.4, 0.4) - angle) - spin
    hover = 0.5 * (0.55 * abs(x) - y) - 0.5 * vy
    lands = (right + left) > 0.0
    return np.where(lands, 0.0, turn), np.where(lands, -0.5 * vy, hover)


def choose(policy: str, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    turn, hover = heuristic(seen)
    if policy == "throttled":
        return np.clip(np.stack([20.0 * hover - 1.0, -20.0 * turn], 1), -1.0, 1.0).astype("f4")
    aside = np.where(turn < -0.05, 3, np.where(turn > 0.05, 1, 0))
    chosen = {
        "random": rng.integers(4, size=len(seen)),
        "nothing": np.zeros(len(seen), np.int64),
        "upwards": np.full(len(seen), 2),
        "heuristic": np.where((hover > abs(turn)) & (hover > 0.05), 2, aside),
    }
    return chosen[policy]


@pytest.mark.parametrize("policy", GYMNASIUMS)
def test_returns_are_distributed_as_gymnasiums(policy: str) -> None:
    continuous = policy == "throttled"
    name = "LunarLanderContinuous-v3" if continuous else "LunarLander-v3"
    env, rng = rlcpu.make_vec(name, NUM_ENVS), np.random.default_rng(0)
    seen, _ = env.reset(seed=1)
    returns, lengths = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS)
    landed, runs = np.zeros(NUM_ENVS, bool), np.ones(NUM_ENVS, bool)
    while runs.any():
        seen, rewards, terminated, truncated, _ = env.step(choose(policy, seen, rng))
        returns += runs * rewards
        lengths += runs
        landed |= runs & terminated & (rewards == 100.0)
        runs &= ~(terminated | truncated)
    expected, quarters = GYMNASIUMS[policy], (25, 50, 75)
    spread = expected.returns[2] - expected.returns[0]
    np.testing.assert_allclose(np.mean(returns), expected.mean, atol=max(15.0, 0.1 * spread))
    np.testing.assert_allclose(
        np.percentile(returns, quarters), expected.returns, atol=0.15 * spread
    )
    np.testing.assert_allclose(np.percentile(lengths, quarters), expected.lengths, rtol=0.06)
    assert landed.mean() == pytest.approx(expected.landed, abs=0.04)


# ---------------------------------------------------------------- single situations


def above_the_pad(height: float, **changes: float) -> State:
    """A lander that stands in the air on flat ground, its legs closed."""
    rest = lunar_lander.reset((0.5,) * 11, Params())
    calm = dict.fromkeys(("x", "vx", "vy", "angle", "spin", "right", "left"), 0.0)
    clearance = -lander_legs.PAD - lander_legs.leg_body(lander_legs.CLOSED, 1.0).y + 0.23
    state = rest._replace(**calm, nodes=(lander_legs.PAD,) * 8, right_spin=0.0, left_spin=0.0)
    return state._replace(y=height + clearance - 2.0 * -lander_legs.PAD, **changes)


def fall(state: State) -> tuple[list[State], float]:
    """States until the end of the episode without engines, and its last reward."""
    states = [state]
    for _ in range(400):
        state, reward, terminated = lunar_lander.step(state, 0, Params(), CALM)
        states.append(state)
        if terminated:
            return states, reward
    raise AssertionError("the episode does not end")


@pytest.mark.parametrize("angle", [0.0, 0.1, -0.1])
def test_soft_landing_comes_to_rest(angle: float) -> None:
    states, reward = fall(above_the_pad(0.05, angle=angle))
    assert reward == 100.0
    assert states[-1].rest == 25.0
    assert states[-1].right_touches == states[-1].left_touches == 1.0
    assert lunar_lander.observe(states[-1], Params())[6:] == (1.0, 1.0)
    end = states[-1]
    np.testing.assert_allclose(states[-20][:6], end[:6], atol=2e-3)
    assert abs(end[2]) < 0.02
    ground = lander_legs.find_ground(end.nodes, 0.0)
    assert lander_legs.hull_gap(end[0], end[1], end[2], ground) > 0.2


def test_legs_give_way_and_close_again() -> None:
    states, reward = fall(above_the_pad(0.1, vy=-0.8))
    opening = np.array([(state.right, state.left) for state in states])
    assert reward == 100.0
    assert 0.05 < opening.max() < lander_legs.OPENING
    np.testing.assert_allclose(opening[-1], 0.0, atol=0.03)


def test_hard_landing_is_a_crash() -> None:
    states, reward = fall(above_the_pad(0.1, vy=-6.0))
    assert reward == -100.0
    assert len(states) < 20


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_out_of_view_is_a_crash(side: float) -> None:
    states, reward = fall(above_the_pad(8.0, x=9.5 * side, vx=8.0 * side))
    assert reward == -100.0
    assert len(states) <= 5


def test_engines_push_where_they_should() -> None:
    start = above_the_pad(5.0)
    ends = [lunar_lander.step(start, action, Params(), CALM)[0] for action in range(4)]
    assert ends[0].vy == pytest.approx(-0.2)
    assert ends[2].vy > 0.1
    assert ends[1].spin > 0.05 > -0.05 > ends[3].spin
    full = lunar_lander.step_continuous(start, (1.0, 1.0), Params(), CALM)[0]
    half = lunar_lander.step_continuous(start, (1e-9, -0.5), Params(), CALM)[0]
    assert full.vy == pytest.approx(ends[2].vy, abs=1e-3)
    assert full.spin == pytest.approx(ends[3].spin, abs=1e-3)
    assert half.vy - ends[0].vy == pytest.approx(0.5 * (ends[2].vy - ends[0].vy))
    assert half.spin == pytest.approx(ends[0].spin, abs=1e-6)


def test_fuel_costs() -> None:
    start = above_the_pad(5.0)
    rewards = []
    for action in range(4):
        end, reward, _ = lunar_lander.step(start, action, Params(), CALM)
        before, after = (lunar_lander.shaping(lunar_lander.view(s)) for s in (start, end))
        rewards.append(reward - (after - before))
    np.testing.assert_allclose(rewards, [0.0, -0.03, -0.3, -0.03], atol=1e-12)


def test_lander_on_a_slope_slides_down_where_friction_does_not_hold_it() -> None:
    def slope(tangent: float) -> State:
        heights = [tangent * 2.0 * (4 - k) + lander_legs.PAD for k in range(4)]
        state = above_the_pad(0.0, x=-6.0, angle=-np.arctan(tangent))
        return state._replace(
            y=state.y + 2.0 * 2.0 * tangent + 0.05, nodes=(*heights, *state.nodes[4:])
        )

    stays, reward = fall(slope(0.08))
    assert reward == 100.0
    assert abs(stays[-1].x - stays[0].x) < 0.2
    slides = fall(slope(0.3))[0]
    assert slides[-1].x - slides[0].x > 1.0


def test_params_are_gymnasiums() -> None:
    expected = {"gravity", "enable_wind", "wind_power", "turbulence_power"}
    for name in ("LunarLander-v3", "LunarLanderContinuous-v3"):
        dynamics = find(name)
        assert set(dynamics.params._fields) == expected
        assert (dynamics.max_episode_steps, dynamics.reward_threshold) == (1000, 200.0)
    light = lunar_lander.step(above_the_pad(5.0), 0, Params(gravity=-2.0), CALM)[0]
    assert light.vy == pytest.approx(-0.04)


def test_kernels_take_the_steps_of_plain_python_in_vectors() -> None:
    try_kernels(find("LunarLander-v3"))
    assert_step_vectorises(find("LunarLander-v3"))


def test_picture_shows_lander_ground_and_flags() -> None:
    picture = lander_picture.draw(above_the_pad(4.0), Params())
    assert (picture.shape, picture.dtype) == ((400, 600, 3), np.uint8)
    body = np.argwhere((picture == lander_picture.BODY).all(axis=-1))
    np.testing.assert_allclose(np.median(body, axis=0), (160.0, 300.0), atol=12.0)
    assert (picture[350:] == lander_picture.MOON).all()
    assert (picture[:50] == lander_picture.SKY).all()
    assert (picture == lander_picture.FLAG).all(axis=-1).sum() > 200
    env = rlcpu.make_vec("LunarLanderContinuous-v3", 2, render_mode="rgb_array")
    env.reset(seed=0)
    first, second = env.render()
    assert first.shape == picture.shape
    assert (first != second).any()
