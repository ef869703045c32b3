"""BipedalWalker-v3 and BipedalWalkerHardcore-v3: walk on two jointed legs, without Box2D.

Source: Klimov's environment in Gymnasium, whose body, motors, ground, lidar and rewards these are;
how the body moves stands in `walker_legs.py`, the ground in `walker_ground.py`. Single steps are
close to Box2D's, and returns of fixed policies are distributed as there, from one start: see
tests/envs/bipedal_walker.json.

Gymnasium's walker begins with legs that are 0.2 m away from their joints, and are pulled there in
its first step. This one begins after that step, taken without torques. With torques, the number of
Box2D's iterations decides where the legs are after it, and so how well the heuristic walks.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.tasks.box2d import walker_ground as ground
from rlcpu.envs.tasks.box2d import walker_impacts as impacts
from rlcpu.envs.tasks.box2d import walker_joints as parts
from rlcpu.envs.tasks.box2d import walker_legs as legs
from rlcpu.envs.tasks.box2d import walker_picture
from rlcpu.envs.tasks.box2d.lander_legs import DT, REST, SKIN, UNIT
from rlcpu.envs.tasks.box2d.walker_ground import LEVEL, NONE, STEP, Ground, Heights, Maker
from rlcpu.envs.tasks.box2d.walker_joints import Four, Motors
from rlcpu.envs.tasks.box2d.walker_legs import (
    Body,
    Leg,
    Motion,
    Place,
    Places,
    Spins,
    Triple,
)
from rlcpu.envs.tasks.box2d.walker_places import advance, pose_of
from rlcpu.kernels.maths import cut
from rlcpu.kernels.random import Rng

HIP_SPEED, KNEE_SPEED = 4.0, 6.0  # rad/s, of motors
GOAL = 190.0 * STEP  # m


class Params(NamedTuple):
    """Options."""

    hardcore: bool = False  # stumps, stairs and pits on the way


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
    lowers: Four  # m/s, velocities of the lower legs' centres of mass
    offsets: Four  # m, from knees to where the lower legs have them
    touches: tuple[float, float]  # 1 where a leg is seen to touch
    cells: Four  # the first and last cell that each leg touches
    base: float  # index of the first node
    nodes: Heights
    tops: Heights
    maker: ground.Plain


def feet(s: State, leg: Leg, angle: float, px: float, py: float, hardcore: bool) -> Any:
    """The two points of a lower leg that are nearest to the ground, and their cells."""
    sine, cosine, base = math.sin(angle), math.cos(angle), s.base
    u, kx, ky = parts.HALF_WIDTH, px + 2.0 * leg.ax, py + 2.0 * leg.ay
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
    beside = (abs(g.left - g.right) > 0.01) & (along > 0.0) & (along < parts.LENGTH)
    gap = abs(across) - parts.HALF_WIDTH if beside else 1.0
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


def solve(s: State, body: Body, motors: Motors, places: Places) -> tuple[Motion, Four]:
    """Motion after the impulses of motors, joints and the ground, and impulses of the motors."""
    w = s.speeds
    one = Spins(s.spin + w[0], s.spin + w[0] + w[1])
    two = Spins(s.spin + w[2], s.spin + w[2] + w[3])
    momenta = legs.momenta(body, Triple(s.vx, s.vy, s.spin), one, two, s.lowers)
    impulses = (motors[0].start, motors[1].start, motors[2].start, motors[3].start)
    pushes = legs.UNTOUCHED
    _, w, impulses, pushes = cut(legs.turn(body, momenta, motors, w, impulses, places, pushes))
    _, w, impulses, pushes = cut(legs.turn(body, momenta, motors, w, impulses, places, pushes))
    _, w, impulses, pushes = cut(legs.turn(body, momenta, motors, w, impulses, places, pushes))
    motion, w, _, _ = legs.turn(body, momenta, motors, w, impulses, places, pushes)
    return motion, parts.motor_impulses(motors, w)


class Struck(NamedTuple):
    """A lower leg after a step: how far from its knee (m), whether it has hit the ground, where."""

    part: impacts.Part
    x: float
    y: float
    hits: bool
    at: float


def strike(
    leg: Leg, new: Leg, pins: Four, angles: tuple[float, float], m: Triple, spins: Spins,
    offset: tuple[float, float], near: tuple[Place, Place],
) -> Struck:  # fmt: skip
    """The lower part of a leg after a step, if the ground lets it go there.

    Args:
        leg: before the step.
        new: the same after it.
        pins: of the hips before and after.
        angles: of the lower part before and after.
        m: motion of the root in this step.
        spins: of the leg.
        offset: of the lower part from its knee before.
        near: its points next to the ground.
    """
    x, y = pins[0] + 2.0 * leg.ax + offset[0], pins[1] + 2.0 * leg.ay + offset[1]
    begin = impacts.lower_part(x, y, angles[0], leg, m, spins)
    x, y = pins[2] + 2.0 * new.ax, pins[3] + 2.0 * new.ay
    end = impacts.lower_part(x, y, angles[1], new, m, spins)
    part, hits, at = impacts.impact(begin, end, leg, near[0], near[1])
    half = 0.5 * parts.LENGTH
    x = part.x - end.x - half * (math.sin(part.angle) - math.sin(end.angle))
    y = part.y - end.y + half * (math.cos(part.angle) - math.cos(end.angle))
    return Struck(part, x if hits else 0.0, y if hits else 0.0, hits, at)


def step(s: State, action: Four, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """One step.

    Args:
        s: see `State`.
        action: torques of the motors of both hips and knees: hip, knee, hip, knee.
        params: see `Params`.
        rng: makes the ground ahead.
    """
    hard, o = params.hardcore, s.offsets
    pose = pose_of(s.x, s.y, s.angle, s.joints)
    body = pose.body
    a, b = feet(s, body.one, pose.lower1, pose.pin_x + o[0], pose.pin_y + o[1], hard)
    c, d = feet(s, body.two, pose.lower2, pose.pin_x + o[2], pose.pin_y + o[3], hard)
    places, motors = cut((a, b, c, d)), parts.make_motors(s.impulses, s.joints, action)
    m, impulses = cut(solve(s, body, motors, places))
    after = cut(advance(pose, s.offsets, motors, m, places))
    pins, new = (pose.pin_x, pose.pin_y, after.pin_x, after.pin_y), after.body
    angles1, angles2 = (pose.lower1, after.lower1), (pose.lower2, after.lower2)
    one = strike(body.one, new.one, pins, angles1, m.root, m.one, (o[0], o[1]), (a, b))
    two = strike(body.two, new.two, pins, angles2, m.root, m.two, (o[2], o[3]), (c, d))
    one, two = cut((one, two))
    j, w, v = after.joints, legs.joint_speeds(m), m.root
    knee1, knee2 = pose.pin_x + 2.0 * body.one.ax + o[0], pose.pin_x + 2.0 * body.two.ax + o[2]
    touch1, cells1 = touching(s.touches[0], s.cells[0], s.cells[1], knee1, a, b, one)
    touch2, cells2 = touching(s.touches[1], s.cells[2], s.cells[3], knee2, c, d, two)
    new = State(
        after.x,
        after.y,
        after.angle,
        v.x - v.h * body.hy,
        v.y + v.h * body.hx,
        v.h,
        (j[0], j[1] + one.part.angle - after.lower1, j[2], j[3] + two.part.angle - after.lower2),
        (w[0], w[1] + one.part.spin - m.one.lower, w[2], w[3] + two.part.spin - m.two.lower),
        impulses,
        (one.part.vx, one.part.vy, two.part.vx, two.part.vy),
        (one.x, one.y, two.x, two.y),
        (touch1, touch2),
        (cells1[0], cells1[1], cells2[0], cells2[1]),
        *ground.go_on(s.base, s.nodes, s.tops, s.maker, after.x, hard, rng),
    )
    fallen = (hull_gap(new, hard) < REST) | (new.x < 0.0)
    return new, -100.0 if fallen else gain(s, new, action), fallen | (new.x > GOAL)


def gain(s: State, new: State, action: Four) -> float:
    """The reward of a step: for the way, less for a hull that turns, and for torques."""
    effort = min(abs(action[0]), 1.0) + min(abs(action[1]), 1.0)
    effort += min(abs(action[2]), 1.0) + min(abs(action[3]), 1.0)
    return 130.0 * UNIT * (new.x - s.x) - 5.0 * (abs(new.angle) - abs(s.angle)) - 0.028 * effort


def touching(
    before: float, first: float, last: float, kx: float, a: Place, b: Place, end: Struck
) -> tuple[float, tuple[float, float]]:
    """Whether a leg is seen to touch, and the first and last cell that it touches.

    As in Gymnasium, one that leaves a cell is taken for one in the air until it touches another.
    """
    on_a, on_b = (a.gap < SKIN) | end.hits, b.gap < SKIN
    at_a, at_b = ground.cell_of(end.at if end.hits else kx + a.x), ground.cell_of(kx + b.x)
    low = min(at_a if on_a else 1000.0, at_b if on_b else 1000.0)
    high = max(at_a if on_a else -1.0, at_b if on_b else -1.0)
    leaves, begins = (first < low) | (last > high), (low < first) | (high > last)
    seen = 0.0 if leaves else (1.0 if begins else before)
    return seen if on_a | on_b else 0.0, (low, high)


def observe(s: State, params: Params) -> tuple[float, ...]:
    """Of the hull, of the joints of both legs, whether these touch the ground, and of the lidar."""
    j, w = s.joints, s.speeds
    body = (s.angle, 2.0 * DT * s.spin, 6.0 * DT * s.vx, 4.0 * DT * s.vy)
    one = (j[0], w[0] / HIP_SPEED, j[1] + 1.0, w[1] / KNEE_SPEED, s.touches[0])
    two = (j[2], w[2] / HIP_SPEED, j[3] + 1.0, w[3] / KNEE_SPEED, s.touches[1])
    seen = cut(ground.ahead(s.nodes, s.tops, s.base, s.x, s.y))
    return body + one + two + ground.look(seen, params.hardcore)


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
        4.64895 + 0.042 * push,
        5.73246 - 0.006 * push,
        -0.00523,
        -0.009 + 1.005 * push,
        -0.01417 + 0.112 * push,
        -0.00037 - 0.02 * push,
        (0.43531, -0.8858 - 0.11 * push, 0.33812 + 0.004 * push, -0.88435 - 0.121 * push),
        (
            0.23734 - 2.042 * push,
            -0.46285 + 3.195 * push,
            0.26809 - 0.749 * push,
            -0.52527 + 0.54 * push,
        ),
        (0.0, 0.0, 0.0, 0.0),
        (
            0.13146 - 0.687 * push,
            0.01183 - 0.06 * push,
            0.14832 + 0.057 * push,
            0.0185 + 0.015 * push,
        ),
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
HARDCORE = dataclasses.replace(
    DYNAMICS,
    id="BipedalWalkerHardcore-v3",
    params=Params(hardcore=True),
    max_episode_steps=2000,
)
