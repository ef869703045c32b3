"""BipedalWalker-v3 and BipedalWalkerHardcore-v3: walk on two jointed legs, without Box2D.

Source: Klimov's environment in Gymnasium, whose body, motors, ground, lidar and rewards these are;
how the body moves stands in `walker_legs.py`, the ground in `walker_ground.py`. It does not agree
in bits, but in the distribution of returns; see tests/envs/bipedal_walker.json.

Gymnasium's walker begins with legs that are not at their joints yet, and are pulled there in its
first step; this one begins after that step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from rlcpu.envs import walker_ground as ground
from rlcpu.envs import walker_legs as legs
from rlcpu.envs import walker_picture
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.lander_legs import DT, REST, SKIN, UNIT
from rlcpu.envs.walker_ground import LEVEL, NONE, STEP, Cells, Ground, Heights, Maker
from rlcpu.envs.walker_legs import Body, Four, Leg, Place, Push, Pushes, Spins, Triple
from rlcpu.kernels.random import Rng

HIP_SPEED, KNEE_SPEED = 4.0, 6.0  # rad/s, of motors
GOAL = 190.0 * STEP  # m
LIFT = 0.2  # of the depth of a leg in the ground is lifted out in one step


class Params(NamedTuple):
    """Options."""

    hardcore: bool = False


class State(NamedTuple):
    """The hull, hips and knees of both legs (hip, knee, hip, knee), contacts, and the ground."""

    x: float  # m
    y: float
    angle: float  # rad
    vx: float  # m/s, of the hull's centre of mass
    vy: float
    spin: float  # rad/s
    joints: Four  # rad
    speeds: Four  # rad/s
    impulses: Four  # N m s, of the joints in the last step
    touches: tuple[float, float]  # 1 where a leg is seen to touch
    cells: Four  # the first and last cell that each leg touches
    base: float  # index of the first node
    nodes: Heights
    tops: Heights
    maker: ground.Plain


def feet(s: State, leg: Leg, angle: float, px: float, py: float, hardcore: bool) -> Any:
    """The two points of a lower leg that are nearest to the ground, and their cells."""
    sine, cosine, base = math.sin(angle), math.cos(angle), s.base
    u, kx, ky = legs.HALF_WIDTH, px + 2.0 * leg.ax, py + 2.0 * leg.ay
    wx, wy = u * cosine, u * sine
    foot = ground.find_ground(s.nodes, s.tops, base, kx + 2.0 * leg.bx, hardcore)
    knee = ground.find_ground(s.nodes, s.tops, base, kx, hardcore)
    a = corner(foot, kx, ky, 2.0 * leg.bx - wx, 2.0 * leg.by - wy, hardcore)
    b = corner(foot, kx, ky, 2.0 * leg.bx + wx, 2.0 * leg.by + wy, hardcore)
    c = corner(knee, kx, ky, -wx, -wy, hardcore)
    d = corner(knee, kx, ky, wx, wy, hardcore)
    c = c if c.gap < d.gap else d
    if hardcore:
        d = edge(foot, leg, kx, ky, cosine, sine)
        c = c if c.gap < d.gap else d
        d = edge(knee, leg, kx, ky, cosine, sine)
        c = c if c.gap < d.gap else d
    near, far = (b if b.gap < a.gap else a), (a if b.gap < a.gap else b)
    return near, (c if c.gap < far.gap else far)


def corner(g: Ground, kx: float, ky: float, x: float, y: float, hardcore: bool) -> Place:
    """A point at (x, y) from the knee."""
    gap = ground.gap_at(g, kx + x, ky + y, hardcore)
    return Place(x, y, gap.nx, gap.ny, gap.gap)


def edge(g: Ground, leg: Leg, kx: float, ky: float, cosine: float, sine: float) -> Place:
    """The side of a lower leg at the upper edge of a block, if there is one at the node of `g`."""
    dx, dy = g.x - kx, max(g.left, g.right) - ky
    across, along = dx * cosine + dy * sine, dx * sine - dy * cosine
    side = -1.0 if across > 0.0 else 1.0
    beside = (abs(g.left - g.right) > 0.01) & (along > 0.0) & (along < legs.LENGTH)
    gap = abs(across) - legs.HALF_WIDTH if beside else 1.0
    return Place(dx, dy, side * cosine, side * sine, gap)


def hull_gap(s: State, hardcore: bool) -> float:
    """Distance of the hull from the ground, and from the nodes below it."""
    sine, cosine = math.sin(s.angle), math.cos(s.angle)
    back = hull_corner(s, -30.0, -8.0, sine, cosine, hardcore)
    front = hull_corner(s, 34.0, -8.0, sine, cosine, hardcore)
    nose = hull_corner(s, 34.0, 1.0, sine, cosine, hardcore)
    neck = hull_corner(s, 6.0, 9.0, sine, cosine, hardcore)
    tail = hull_corner(s, -30.0, 9.0, sine, cosine, hardcore)
    gap = min(min(min(back, front), min(nose, neck)), tail)
    h = ground.from_node(s.nodes, cell_index(s) - 2.0)
    t = ground.from_node(s.tops, cell_index(s) - 2.0)
    x = (s.base + cell_index(s) - 2.0) * STEP - s.x
    gap = min(gap, peak(x, h[0], NONE, t[0], s.y, sine, cosine, hardcore))
    gap = min(gap, peak(x + STEP, h[1], t[0], t[1], s.y, sine, cosine, hardcore))
    gap = min(gap, peak(x + 2.0 * STEP, h[2], t[1], t[2], s.y, sine, cosine, hardcore))
    gap = min(gap, peak(x + 3.0 * STEP, h[3], t[2], t[3], s.y, sine, cosine, hardcore))
    gap = min(gap, peak(x + 4.0 * STEP, h[4], t[3], t[4], s.y, sine, cosine, hardcore))
    return min(gap, peak(x + 5.0 * STEP, h[5], t[4], t[5], s.y, sine, cosine, hardcore))


def hull_corner(s: State, u: float, v: float, sine: float, cosine: float, hardcore: bool) -> float:
    """Distance from the ground of the corner of the hull at (u, v) pixels."""
    x = s.x + UNIT * (u * cosine - v * sine)
    y = s.y + UNIT * (u * sine + v * cosine)
    g = ground.find_ground(s.nodes, s.tops, s.base, x, hardcore)
    return ground.gap_at(g, x, y, hardcore).gap


def peak(
    x: float, h: float, t: float, u: float, y: float, sine: float, cosine: float, hardcore: bool
) -> float:
    """Distance from the hull of a node at x from it, with blocks on both sides."""
    dy = (max(h, max(t, u)) if hardcore else h) - y
    a, b = (x * cosine + dy * sine) / UNIT, (dy * cosine - x * sine) / UNIT
    away = max(max(-30.0 - a, a - 34.0), max(-8.0 - b, b - 9.0))
    return UNIT * max(away, (8.0 * (a - 6.0) + 28.0 * (b - 9.0)) / 29.12)


def cell_index(s: State) -> float:
    """Index in `s.nodes` of the node at or before the hull."""
    return min(max(ground.cell_of(s.x) - s.base, 0.0), 8.0)


def step(s: State, action: Four, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """One step.

    Args:
        s: see `State`.
        action: torques of the motors of both hips and knees: hip, knee, hip, knee.
        params: see `Params`.
        rng: makes the ground ahead.
    """
    hard = params.hardcore
    sine, cosine = math.sin(s.angle), math.cos(s.angle)
    px, py = s.x + 8.0 * UNIT * sine, s.y - 8.0 * UNIT * cosine
    upper1, upper2 = s.angle + s.joints[0] - legs.OPEN, s.angle + s.joints[2] + legs.OPEN
    lower1, lower2 = upper1 + s.joints[1], upper2 + s.joints[3]
    body = Body(
        cosine * legs.HULL_X - sine * legs.HULL_Y,
        sine * legs.HULL_X + cosine * legs.HULL_Y,
        legs.make_leg(upper1, lower1),
        legs.make_leg(upper2, lower2),
    )
    w = s.speeds
    one = Spins(s.spin + w[0], s.spin + w[0] + w[1])
    two = Spins(s.spin + w[2], s.spin + w[2] + w[3])
    momenta = legs.momenta(body, Triple(s.vx, s.vy, s.spin), one, two)
    places1 = feet(s, body.one, lower1, px, py, hard)
    places2 = feet(s, body.two, lower2, px, py, hard)
    places = (places1[0], places1[1], places2[0], places2[1])
    motors = (
        legs.make_motor(s.impulses[0], s.joints[0], action[0], legs.HIP),
        legs.make_motor(s.impulses[1], s.joints[1], action[1], legs.KNEE),
        legs.make_motor(s.impulses[2], s.joints[2], action[2], legs.HIP),
        legs.make_motor(s.impulses[3], s.joints[3], action[3], legs.KNEE),
    )
    impulses = (
        motors[0].side * motors[0].start,
        motors[1].side * motors[1].start,
        motors[2].side * motors[2].start,
        motors[3].side * motors[3].start,
    )
    none = Push(0.0, 0.0)
    pushes = Pushes(none, none, none, none)
    _, w, impulses, pushes = legs.turn(body, momenta, motors, w, impulses, places, pushes)
    _, w, impulses, pushes = legs.turn(body, momenta, motors, w, impulses, places, pushes)
    v, w, impulses, pushes = legs.turn(body, momenta, motors, w, impulses, places, pushes)
    impulses = (
        legs.motor_impulse(motors[0], w[0]),
        legs.motor_impulse(motors[1], w[1]),
        legs.motor_impulse(motors[2], w[2]),
        legs.motor_impulse(motors[3], w[3]),
    )
    # Where that leads: the hull's centre of mass goes straight on, the hull turns about it.
    vx, vy, spin = v.x - v.h * body.hy, v.y + v.h * body.hx, v.h
    angle = s.angle + DT * spin
    mx, my = legs.HULL_X, legs.HULL_Y - 8.0 * UNIT
    x = s.x + DT * vx + (cosine - math.cos(angle)) * mx - (sine - math.sin(angle)) * my
    y = s.y + DT * vy + (sine - math.sin(angle)) * mx + (cosine - math.cos(angle)) * my
    deepest = min(min(places[0].gap, places[1].gap), min(places[2].gap, places[3].gap))
    y += LIFT * max(REST - deepest, 0.0)
    j = s.joints
    joints = (j[0] + DT * w[0], j[1] + DT * w[1], j[2] + DT * w[2], j[3] + DT * w[3])
    touch1, first1, last1 = touching(
        s.touches[0],
        s.cells[0],
        s.cells[1],
        px + 2.0 * body.one.ax,
        places[0],
        places[1],
        pushes.a,
        pushes.b,
    )
    touch2, first2, last2 = touching(
        s.touches[1],
        s.cells[2],
        s.cells[3],
        px + 2.0 * body.two.ax,
        places[2],
        places[3],
        pushes.c,
        pushes.d,
    )
    base, nodes, tops, maker = s.base, s.nodes, s.tops, s.maker
    if ground.cell_of(x) > base + ground.BEHIND:
        maker, y_node, y_top = ground.make_node(Maker(*maker), nodes[20], base + 21.0, hard, rng, 0)
        node, top = (y_node,), (y_top,)
        base, nodes, tops = base + 1.0, nodes[1:] + node, tops[1:] + top
    new = State(
        x,
        y,
        angle,
        vx,
        vy,
        spin,
        joints,
        w,
        impulses,
        (touch1, touch2),
        (first1, last1, first2, last2),
        base,
        nodes,
        tops,
        maker,
    )
    effort = (
        min(abs(action[0]), 1.0)
        + min(abs(action[1]), 1.0)
        + min(abs(action[2]), 1.0)
        + min(abs(action[3]), 1.0)
    )
    reward = 130.0 * UNIT * (x - s.x) - 5.0 * (abs(angle) - abs(s.angle)) - 0.028 * effort
    fallen = (hull_gap(new, hard) < REST) | (x < 0.0)
    return new, -100.0 if fallen else reward, fallen | (x > GOAL)


def touching(
    before: float, first: float, last: float, kx: float, a: Place, b: Place, p: Push, q: Push
) -> tuple[float, float, float]:
    """Whether a leg is seen to touch, and the first and last cell that it touches.

    As in Gymnasium, one that leaves a cell is taken for one in the air until it touches another.
    """
    on_a, on_b = (a.gap < SKIN) | (p.normal > 0.0), (b.gap < SKIN) | (q.normal > 0.0)
    at_a, at_b = ground.cell_of(kx + a.x), ground.cell_of(kx + b.x)
    low = min(at_a if on_a else 1000.0, at_b if on_b else 1000.0)
    high = max(at_a if on_a else -1.0, at_b if on_b else -1.0)
    leaves, begins = (first < low) | (last > high), (low < first) | (high > last)
    seen = 0.0 if leaves else (1.0 if begins else before)
    return seen if on_a | on_b else 0.0, low, high


def observe(s: State, params: Params) -> tuple[float, ...]:
    """Of the hull, of the joints of both legs, whether these touch the ground, and of the lidar."""
    hard, j, w = params.hardcore, s.joints, s.speeds
    k = cell_index(s)
    nodes, tops = ground.from_node(s.nodes, k), ground.from_node(s.tops, k)
    cells = Cells((s.base + k) * STEP - s.x, nodes, tops, s.y)
    return (
        s.angle,
        2.0 * DT * s.spin,
        6.0 * DT * s.vx,
        4.0 * DT * s.vy,
        j[0],
        w[0] / HIP_SPEED,
        j[1] + 1.0,
        w[1] / KNEE_SPEED,
        s.touches[0],
        j[2],
        w[2] / HIP_SPEED,
        j[3] + 1.0,
        w[3] / KNEE_SPEED,
        s.touches[1],
        ground.look(cells, 0.0, hard),
        ground.look(cells, 1.0, hard),
        ground.look(cells, 2.0, hard),
        ground.look(cells, 3.0, hard),
        ground.look(cells, 4.0, hard),
        ground.look(cells, 5.0, hard),
        ground.look(cells, 6.0, hard),
        ground.look(cells, 7.0, hard),
        ground.look(cells, 8.0, hard),
        ground.look(cells, 9.0, hard),
    )


def reset(rng: Rng, params: Params) -> State:
    """A walker on flat ground, after a step in which a random force pushed it.

    Its numbers are Box2D's, of the second step: see above.
    """
    hard, push = params.hardcore, 0.018442 * (2.0 * rng.uniform(0) - 1.0)
    kind = 1.0 + math.floor(3.0 * rng.uniform(1)) if hard else ground.GRASS
    left = 5.0 + math.floor(5.0 * rng.uniform(2))
    maker = (0.0, kind, left, 1.0, LEVEL, 0.0)
    maker, a, s = ground.make_node(Maker(*maker), LEVEL, 20.0, hard, rng, 3)
    maker, b, t = ground.make_node(Maker(*maker), a, 21.0, hard, rng, 8)
    maker, c, u = ground.make_node(Maker(*maker), b, 22.0, hard, rng, 13)
    flat, bare = (LEVEL, LEVEL, LEVEL, LEVEL, LEVEL, LEVEL), (NONE, NONE, NONE, NONE, NONE, NONE)
    return State(
        4.64806 + 0.042 * push,
        5.73248,
        -0.00523,
        -0.009 + 1.005 * push,
        -0.0233,
        0.0,
        (
            0.43557 - 0.021 * push,
            -0.88445 - 0.032 * push,
            0.3383 - 0.017 * push,
            -0.88282 - 0.04 * push,
        ),
        (0.18, -0.27, 0.197, -0.299),
        (0.0, 0.0, 0.0, 0.0),
        (1.0, 1.0),
        (10.0, 10.0, 10.0, 10.0),
        2.0,
        flat + flat + flat + (a, b, c),
        bare + bare + bare + (s, t, u),
        maker,
    )


_LOW = [math.pi, 5.0, 5.0, 5.0, math.pi, 5.0, math.pi, 5.0, 0.0, math.pi, 5.0, math.pi, 5.0, 0.0]
_HIGH = [math.pi, 5.0, 5.0, 5.0, math.pi, 5.0, math.pi, 5.0, 5.0, math.pi, 5.0, math.pi, 5.0, 5.0]
_RAYS = [1.0] * 10

DYNAMICS = Dynamics(
    id="BipedalWalker-v3",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=Box(-np.array(_LOW + _RAYS, np.float32), np.array(_HIGH + _RAYS, np.float32)),
    action_space=Box(-1.0, 1.0, shape=(4,), dtype=np.float32),
    params=Params(),
    max_episode_steps=1600,
    reward_threshold=300.0,
    picture=walker_picture.draw,
)
HARDCORE = Dynamics(
    id="BipedalWalkerHardcore-v3",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=DYNAMICS.observation_space,
    action_space=DYNAMICS.action_space,
    params=Params(hardcore=True),
    max_episode_steps=2000,
    reward_threshold=300.0,
    picture=walker_picture.draw,
)
