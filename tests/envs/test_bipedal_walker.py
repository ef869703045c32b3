"""BipedalWalker against what Gymnasium's environment did with Box2D: steps, lidar, returns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.envs.tasks.box2d import bipedal_walker, walker_ground, walker_picture
from rlcpu.envs.tasks.box2d.bipedal_walker import Params, State, Walker
from rlcpu.envs.tasks.box2d.rigid_bodies import DT, Body
from rlcpu.envs.tasks.box2d.walker_ground import GRASS, LEVEL, NONE, PIT, STAIRS, STEP, STUMP, Maker
from rlcpu.kernels.random import Rng
from tests.envs.record_bipedal_walker import SHARES, run_episodes, trained
from tests.envs.test_games import states

NUM_ENVS = 1024
NAMES = ("BipedalWalker-v3", "BipedalWalkerHardcore-v3")
#: How far quantiles of returns and lengths may be from Box2D's, as parts of the spread of these.
#: Who takes no action falls some steps sooner, nearly all in the same; who acts at random and lies
#: on both legs creeps on; the trained network stumbles more often, and its spread is small.
BIAS = {
    "nothing": (1.0, 0.5),
    "random": (0.12, 0.02),
    "trained": (1.0, 0.0),
    "random, hardcore": (0.12, 0.02),
    "heuristic, hardcore": (0.0, 0.02),
}
TERRAIN = (0.1354, 0.02991)  # m, deviations of Gymnasium's last height, and of its rises
BOX2D = json.loads(Path(__file__).with_suffix("").with_name("bipedal_walker.json").read_text())


def fields_of(walker: Walker) -> dict[str, Body]:
    """The fields of a state that hold bodies."""
    (upper1, lower1), (upper2, lower2) = walker.one, walker.two
    legs = {"upper1": upper1, "lower1": lower1, "upper2": upper2, "lower2": lower2}
    return {"hull": walker.hull, **legs}


def state_of(recorded: dict[str, Any]) -> State:
    """The state of a recorded step: bodies at their joints, with velocities of one step before."""
    r, start = recorded, bipedal_walker.reset(Rng.of_seed(0), Params())
    hull, velocity, w = (r["x"], r["y"]), (r["vx"], r["vy"]), np.array(r["speeds"])
    angle, joints = r["angle"] - DT * r["spin"], np.array(r["joints"]) - DT * w
    now = bipedal_walker.pose(*hull, r["angle"], velocity, r["spin"], r["joints"], w)
    before = fields_of(bipedal_walker.pose(*hull, angle, velocity, r["spin"], joints, w))
    bodies = {
        name: body._replace(vx=before[name].vx, vy=before[name].vy)
        for name, body in fields_of(now).items()
    }
    for name, k in (("lower1", 0), ("lower2", 2)):
        body, (x, y), (vx, vy) = bodies[name], r["offsets"][k : k + 2], r["lowers"][k : k + 2]
        bodies[name] = body._replace(x=body.x + x, y=body.y + y, vx=vx, vy=vy)
    bodies["hull"] = now.hull
    rest = {"impulses": tuple(r["impulses"]), "base": r["base"], "nodes": tuple(r["nodes"])}
    return start._replace(**bodies, **rest)


def numbers_of(state: State) -> list[float]:
    """Those that were recorded after a step."""
    walker = bipedal_walker.walker_of(state)
    hull, one, two = walker
    arm = bipedal_walker.hull_arm(hull)
    pin = hull.x - arm.x, hull.y - arm.y
    off1 = bipedal_walker.leg_offsets(one, bipedal_walker.leg_arms(one), *pin)
    off2 = bipedal_walker.leg_offsets(two, bipedal_walker.leg_arms(two), *pin)
    x, y = bipedal_walker.origin(hull)
    numbers = {  # in the order of AFTER
        "position": (x, y, hull.angle),
        "velocity": hull[3:],
        "joints": bipedal_walker.joint_angles(walker),
        "speeds": bipedal_walker.joint_speeds(walker),
        "lowers": (one[1].vx, one[1].vy, two[1].vx, two[1].vy),
        "offsets": (*off1[1], *off2[1]),
    }
    return np.concatenate([np.ravel(values) for values in numbers.values()]).tolist()


def test_a_step_is_near_box2ds() -> None:
    found, expected, changes = [], [], []
    for recorded in BOX2D["steps"]:
        start, action = state_of(recorded), tuple(recorded["action"])
        end, _, _ = bipedal_walker.step(start, action, Params(), Rng.of_seed(0))
        found.append(numbers_of(end))
        expected.append(recorded["after"])
        changes.append(np.array(recorded["after"]) - numbers_of(start))
    error, change = np.abs(np.array(found) - expected), np.abs(changes)
    # The first half are walks; motions of random torques are jerky.
    walks, size = np.arange(len(error)) < len(error) // 2, np.mean(change, axis=0)
    assert (np.median(error[walks], axis=0) < 0.04 * np.mean(change[walks], axis=0) + 1e-3).all()
    assert (np.mean(error[walks], axis=0) < 0.06 * np.mean(change[walks], axis=0) + 1e-3).all()
    assert (np.median(error, axis=0) < 0.06 * size + 1e-3).all()
    assert (np.mean(error[:, :6] < (*[0.005] * 3, *[0.1] * 3), axis=0) > 0.93).all()


def test_lidar_is_gymnasiums() -> None:
    for recorded in BOX2D["steps"]:
        seen = bipedal_walker.observe(state_of(recorded), Params())[14:]
        np.testing.assert_allclose(seen, recorded["lidar"], atol=1e-4)


class Heuristic:
    """Gymnasium's `BipedalWalkerHeuristics`, for many walkers."""

    def __init__(self, count: int) -> None:
        self.phase, self.moving = np.ones(count, int), np.zeros(count, int)
        self.knee = np.full(count, 0.1)
        self.each = np.arange(count)

    def __call__(self, seen: np.ndarray) -> np.ndarray:
        s, n, moving = seen.astype(np.float64), self.each, self.moving.copy()
        resting = 1 - moving
        hips, knees = np.zeros((len(s), 2)), np.zeros((len(s), 2))
        on = self.phase == 1
        hips[n[on], moving[on]], knees[n[on], moving[on]] = 1.1, -0.6
        faster = np.minimum(self.knee + np.where(s[:, 2] > 0.29, 0.06, 0.03), 0.1)
        self.knee = np.where(on, faster, self.knee)
        knees[n[on], resting[on]] = self.knee[on]
        self.phase = np.where(on & (s[n, 4 + 5 * resting] < 0.1), 2, self.phase)
        on = self.phase == 2
        hips[n[on], moving[on]], knees[n[on], moving[on]] = 0.1, 0.1
        knees[n[on], resting[on]] = self.knee[on]
        down = on & (s[n, 8 + 5 * moving] > 0.0)
        self.phase = np.where(down, 3, self.phase)
        self.knee = np.where(down, np.minimum(s[n, 6 + 5 * moving], 0.1), self.knee)
        on = self.phase == 3
        knees[n[on], moving[on]], knees[n[on], resting[on]] = self.knee[on], 1.0
        off = on & ((s[n, 6 + 5 * resting] > 0.88) | (s[:, 2] > 1.2 * 0.29))
        self.phase = np.where(off, 1, self.phase)
        self.moving = np.where(off, 1 - self.moving, self.moving)
        hip, knee = s[:, [4, 9]], s[:, [6, 11]]
        turn = np.where(hips != 0.0, 0.9 * (hips - hip) - 0.25 * s[:, [5, 10]], 0.0)
        bend = np.where(knees != 0.0, 4.0 * (knees - knee) - 0.25 * s[:, [7, 12]], 0.0)
        turn += (0.9 * s[:, 0] + 1.5 * s[:, 1])[:, None]
        bend -= 15.0 * s[:, 3, None]
        actions = np.stack([turn[:, 0], bend[:, 0], turn[:, 1], bend[:, 1]], axis=1)
        return np.clip(0.5 * actions, -1.0, 1.0).astype(np.float32)


def episodes(policy: str, hardcore: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns, lengths, and whether the walker fell."""
    env, rng = rlcpu.make_vec(NAMES[hardcore], NUM_ENVS), np.random.default_rng(0)
    seen, _ = env.reset(seed=1)
    act: Any = {
        "nothing": lambda seen: np.zeros((NUM_ENVS, 4)),
        "random": lambda seen: rng.uniform(-1.0, 1.0, (NUM_ENVS, 4)),
        "heuristic": Heuristic(NUM_ENVS),
        "trained": trained().outputs,
    }[policy]
    returns, lengths = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS)
    fallen, runs = np.zeros(NUM_ENVS, bool), np.ones(NUM_ENVS, bool)
    while runs.any():
        actions = np.clip(act(seen), -1.0, 1.0).astype(np.float32)
        seen, rewards, terminated, truncated, _ = env.step(actions)
        returns += runs * rewards
        lengths += runs
        fallen |= runs & terminated & (rewards == -100.0)
        runs &= ~(terminated | truncated)
    return returns, lengths, fallen


def assert_shares(found: np.ndarray, quantiles: list[float], count: int, bias: float) -> None:
    """As large a share of numbers is below quantiles of `count` others as chance allows.

    That is four standard errors, with bounds moved by `bias`, a part of the others' spread.
    """
    shares, bounds = np.array(SHARES) / 100.0, np.array(quantiles)
    slack = bias * (bounds[-1] - bounds[0]) + 0.05  # they are rounded
    error = 4.0 * np.sqrt(shares * (1.0 - shares) * (1.0 / count + 1.0 / len(found)))
    below = np.mean(found[:, None] <= bounds + slack, axis=0)
    above = np.mean(found[:, None] >= bounds - slack, axis=0)
    assert (below > shares - error).all(), (below, shares, error)
    assert (above > 1.0 - shares - error).all(), (above, shares, error)


def assert_close(found: np.ndarray, mean: float, deviation: float, count: int) -> None:
    """The mean is that of `count` others, within four standard errors and what was rounded."""
    error = np.sqrt(deviation**2 / count + np.var(found) / len(found))
    assert np.mean(found) == pytest.approx(mean, abs=4.0 * error + 0.1)


@pytest.mark.parametrize("name", BOX2D["returns"])
def test_returns_are_distributed_as_with_box2d(name: str) -> None:
    policy, _, hardcore = name.partition(", ")
    returns, lengths, fallen = episodes(policy, bool(hardcore))
    expected = BOX2D["returns"][name]
    count, falls = expected["episodes"], expected["fallen"]
    assert_close(returns, expected["mean"], expected["deviation"], count)
    assert_close(fallen, falls, np.sqrt(falls * (1.0 - falls)), count)
    bias = BIAS.get(name, (0.0, 0.0))
    assert_shares(returns, expected["returns"], count, bias[0])
    assert_shares(lengths, expected["lengths"], count, bias[1])


def test_the_heuristic_walks_as_with_box2d() -> None:
    pytest.importorskip("Box2D")
    theirs, _, _, _ = run_episodes("heuristic", 40, False)
    ours, _, _ = episodes("heuristic", False)
    assert_close(ours, np.mean(theirs), np.std(theirs), len(theirs))


def test_who_learnt_here_walks_with_box2d() -> None:
    pytest.importorskip("Box2D")
    theirs, _, _, _ = run_episodes("trained", 10, False)
    ours, _, _ = episodes("trained", False)
    assert np.mean(theirs) > 0.9 * np.mean(ours)
    assert np.median(theirs) > 280.0


@pytest.mark.parametrize("name", NAMES)
def test_kernels_step_as_plain_python_does(name: str) -> None:
    """Nearly: float32 rounds, and where a foot touches just so, another branch is taken."""
    env, rng, errors = rlcpu.make_vec(name, NUM_ENVS), np.random.default_rng(0), []
    env.reset(seed=2)
    for k in range(40):
        before, goes = states(env), ~env.engine.finished()
        actions = rng.uniform(-1.0, 1.0, (NUM_ENVS, 4)).astype(np.float32)
        env.step(actions)
        after = states(env)
        for i in np.flatnonzero(goes)[k :: NUM_ENVS // 8]:
            params, action = env.dynamics.params, tuple(actions[i].tolist())
            expected, _, _ = bipedal_walker.step(before[i], action, params, Rng.of_seed(0))
            found = np.array(numbers_of(after[i]))
            errors.append(np.abs(found - numbers_of(expected)))
            assert after[i].nodes[:20] == pytest.approx(expected.nodes[:20])
    assert (np.median(errors, axis=0) < 2e-5).all()
    assert np.mean(np.array(errors) < 2e-3) > 0.97


@pytest.mark.parallel
def test_results_are_the_same_on_two_threads() -> None:
    """Each driver was compiled with a step of its own, which LLVM rounded in its own way."""
    results = []
    for num_threads in (1, 2):
        env = rlcpu.make_vec(NAMES[0], NUM_ENVS, num_threads=num_threads)
        rng, _ = np.random.default_rng(0), env.reset(seed=3)
        for _ in range(20):
            seen, *_ = env.step(rng.uniform(-1.0, 1.0, (NUM_ENVS, 4)).astype(np.float32))
        results.append(seen)
    np.testing.assert_array_equal(*results)


# ---------------------------------------------------------------- the ground


def make_ground(seed: int, hardcore: bool) -> Iterator[tuple[float, float, float, float]]:
    """Kind, height and top of each node from the twentieth to the last, and the kind's begin."""
    kind = 1.0 + seed % 3 if hardcore else GRASS
    maker, y = Maker(0.0, kind, 7.0, 1.0, LEVEL, 0.0), LEVEL
    for index in range(20, 200):
        kind, begins = maker.kind, maker.begins
        fields, y, top = walker_ground.make_node(
            maker, y, float(index), hardcore, Rng.of_seed(seed, index), 0
        )
        maker = Maker(*fields)
        yield kind, y, top, begins


def test_grass_rolls_as_gymnasiums() -> None:
    heights = np.array([[node[1] for node in make_ground(seed, False)] for seed in range(300)])
    rises = np.diff(heights, axis=1)
    assert (heights[:, 0] == LEVEL).all()
    assert np.mean(rises == 0.0) == pytest.approx(1 / 7, abs=0.01)  # once in 5 to 9 nodes
    # Of Gymnasium's `_generate_terrain`, 2,000 episodes.
    assert np.std(heights[:, -1] - LEVEL) == pytest.approx(TERRAIN[0], rel=0.15)
    assert np.std(rises) == pytest.approx(TERRAIN[1], rel=0.05)


def test_obstacles_are_gymnasiums() -> None:
    kinds = []
    for seed in range(60):
        nodes = list(make_ground(seed, True))
        starts = [k for k, node in enumerate(nodes) if node[3] and node[0] != GRASS]
        for k in starts:
            kind, y = nodes[k][:2]
            run = nodes[k : k + 20]
            until = next((j for j, node in enumerate(run) if node[0] == GRASS), None)
            if until is None:
                continue
            tops = np.array([node[2] for node in run[:until]])
            heights = np.array([node[1] for node in run[:until]])
            kinds.append(kind)
            if kind == STUMP:
                assert until in (1, 2)
                np.testing.assert_allclose(tops, y + until * STEP)
            elif kind == PIT:
                assert until in (5, 6)
                np.testing.assert_allclose(heights[1:-1], y - 4.0 * STEP)
                np.testing.assert_allclose(tops[[0, -2]], y)
                assert (np.delete(tops, [0, until - 2]) == NONE).all()
            else:
                assert until in (12, 16)
                up = np.sign(tops[-1] - tops[0])
                np.testing.assert_allclose(tops, y + up * STEP * (np.arange(until) // 4), atol=1e-9)
                ramp = y + 0.25 * STEP * (up * np.arange(until) - 1.0)
                np.testing.assert_allclose(heights[1:], ramp[1:], atol=1e-9)
    shares = [np.mean(np.array(kinds) == kind) for kind in (STUMP, STAIRS, PIT)]
    np.testing.assert_allclose(shares, 1 / 3, atol=0.06)


def test_window_of_heights() -> None:
    heights = tuple(float(k) for k in range(21))
    for k in range(21):
        moved = walker_ground.from_node(heights, float(k))
        assert moved == (*heights[k:], *[20.0] * k)


def test_lidar_and_legs_meet_blocks() -> None:
    start = bipedal_walker.reset(Rng.of_seed(0), Params())
    nodes, tops = (LEVEL,) * 21, [NONE] * 21
    tops[10] = LEVEL + STEP  # from 2 nodes ahead of the walker's cell on
    state = start._replace(nodes=nodes, tops=tuple(tops))
    plain = bipedal_walker.observe(state, Params())[14:]
    seen = bipedal_walker.observe(state, Params(hardcore=True))[14:]
    x, y = bipedal_walker.origin(Body(*state.hull))
    wall = 12.0 * STEP - x
    for k, (before, now) in enumerate(zip(plain, seen, strict=True)):
        sine, cosine = np.sin(0.15 * k), np.cos(0.15 * k)
        reach = wall / sine if k else np.inf  # where the ray meets the wall, or its top
        depth, top = y - LEVEL, y - LEVEL - STEP
        if reach * cosine > depth:
            assert now == pytest.approx(before)
        elif reach * cosine > top:
            assert now == pytest.approx(min(reach / walker_ground.RANGE, 1.0))
        else:
            assert now <= before
    ground = walker_ground.find_ground(nodes, tuple(tops), 2.0, 12.0 * STEP, True)
    gap = walker_ground.gap_at(ground, 12.0 * STEP - 0.05, LEVEL + 0.2, True)
    assert (gap.gap, gap.nx, gap.ny) == pytest.approx((0.05, -1.0, 0.0))
    gap = walker_ground.gap_at(ground, 12.0 * STEP + 0.05, LEVEL + STEP + 0.2, True)
    assert (gap.gap, gap.nx, gap.ny) == pytest.approx((0.2, 0.0, 1.0))


# ---------------------------------------------------------------- ends and pictures


def posed(x: float = 4.65, y: float = 5.73, angle: float = 0.0, vx: float = 0.0) -> State:
    """A walker somewhere, its joints as at the start."""
    joints, still = (0.435, -0.886, 0.338, -0.884), (0.0,) * 4
    walker = bipedal_walker.pose(x, y, angle, (vx, 0.0), 0.0, joints, still)
    return bipedal_walker.reset(Rng.of_seed(0), Params())._replace(**fields_of(walker))


def test_who_lies_on_the_ground_has_fallen() -> None:
    down = posed(y=LEVEL + 0.29, angle=np.pi)
    assert bipedal_walker.step(down, (0.0,) * 4, Params(), Rng.of_seed(0))[1:] == (-100.0, True)
    back = posed(x=0.01, vx=-3.0)
    assert bipedal_walker.step(back, (0.0,) * 4, Params(), Rng.of_seed(0))[1:] == (-100.0, True)
    there = posed(x=bipedal_walker.GOAL, vx=3.0)._replace(base=182.0)
    _, reward, terminated = bipedal_walker.step(there, (0.0,) * 4, Params(), Rng.of_seed(0))
    assert terminated
    assert reward > 0.0


def test_torque_costs() -> None:
    start = posed(y=LEVEL + 5.0)
    end, reward, _ = bipedal_walker.step(start, (1.0, -0.5, 0.0, 2.0), Params(), Rng.of_seed(0))
    ends = [bipedal_walker.origin(Body(*state.hull))[0] for state in (start, end)]
    gained = 130.0 / 30.0 * (ends[1] - ends[0]) - 5.0 * (abs(end.hull[2]) - abs(start.hull[2]))
    assert reward == pytest.approx(gained - 0.028 * 2.5)


def test_picture_shows_walker_and_ground() -> None:
    start = bipedal_walker.reset(Rng.of_seed(0), Params())
    picture = walker_picture.draw(start, Params())
    assert (picture.shape, picture.dtype) == ((400, 600, 3), np.uint8)
    hull = np.argwhere((picture == walker_picture.HULL).all(axis=-1))
    np.testing.assert_allclose(np.median(hull, axis=0), (400 - 30 * start.hull[1], 120.0), atol=6.0)
    assert (picture[320:] == walker_picture.GRASS).all()
    assert (picture[:150] == walker_picture.SKY).all()
