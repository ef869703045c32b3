"""Where the parts of BipedalWalker are, and where a motion leads them in a step.

The hull's centre of mass goes straight on, and the hull turns about it. Then one displacement
brings legs to their knees, joints to their stops, and feet out of the ground (`correct`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlcpu.envs.tasks.box2d.lander_legs import DT, REST, UNIT
from rlcpu.envs.tasks.box2d.walker_joints import (
    HIP,
    HULL_X,
    HULL_Y,
    KNEE,
    LOWER_MASS,
    OPEN,
    UPPER_MASS,
    Four,
    Motors,
    turn_back,
)
from rlcpu.envs.tasks.box2d.walker_legs import (
    UNTOUCHED,
    Body,
    Hinges,
    Leg,
    Motion,
    Place,
    Places,
    Spins,
    Triple,
    joint_speeds,
    make_leg,
    move,
)

SETTLED, LIFT = 0.015, 0.2  # m, gap of bodies at rest; part of the way there in one step


class Pose(NamedTuple):
    """Where the hull, the pin below it and the legs are."""

    x: float  # m, of the hull
    y: float
    angle: float  # rad
    joints: Four
    pin_x: float
    pin_y: float
    lower1: float  # rad, of the lower parts of legs
    lower2: float
    body: Body


def pose_of(x: float, y: float, angle: float, joints: Four) -> Pose:
    """The pose of a hull at (x, y)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    upper1, upper2 = angle + joints[0] - OPEN, angle + joints[2] + OPEN
    lower1, lower2 = upper1 + joints[1], upper2 + joints[3]
    body = Body(
        cosine * HULL_X - sine * HULL_Y,
        sine * HULL_X + cosine * HULL_Y,
        make_leg(upper1, lower1),
        make_leg(upper2, lower2),
    )
    px, py = x + 8.0 * UNIT * sine, y - 8.0 * UNIT * cosine
    return Pose(x, y, angle, joints, px, py, lower1, lower2, body)


def advance(pose: Pose, offsets: Four, motors: Motors, m: Motion, places: Places) -> Pose:
    """Where a motion leads in one step; `offsets` are of lower legs from their knees before it."""
    body, j, w = pose.body, pose.joints, joint_speeds(m)
    joints = (j[0] + DT * w[0], j[1] + DT * w[1], j[2] + DT * w[2], j[3] + DT * w[3])
    d = correct(body, offsets, motors, joints, m, places)
    e, k, v = d.root, joint_speeds(d), m.root
    angle = pose.angle + DT * v.h + e.h
    sine, cosine = math.sin(angle), math.cos(angle)
    mx, my = HULL_X, HULL_Y - 8.0 * UNIT
    # From the hull's place to its centre of mass, before and after.
    before_x, before_y = pose.pin_x + body.hx, pose.pin_y + body.hy
    after_x, after_y = cosine * mx - sine * my, sine * mx + cosine * my
    return pose_of(
        before_x + DT * (v.x - v.h * body.hy) + e.x - e.h * body.hy - after_x,
        before_y + DT * (v.y + v.h * body.hx) + e.y + e.h * body.hx - after_y,
        angle,
        (joints[0] + k[0], joints[1] + k[1], joints[2] + k[2], joints[3] + k[3]),
    )


def displacement(body: Body, offsets: Four, m: Motion) -> Motion:
    """Masses times the ways of parts of legs from where bodies that go straight on would be.

    These are `offsets` of lower legs from the last step, and what a turn bends the ways of all.
    """
    bend = 0.5 * DT * DT
    back = bend * m.root.h * m.root.h
    hx, hy = back * body.hx, back * body.hy
    (x1, y1), s1 = leg_displacement(body.one, m.one, offsets[0] - hx, offsets[1] - hy, hx, hy)
    (x2, y2), s2 = leg_displacement(body.two, m.two, offsets[2] - hx, offsets[3] - hy, hx, hy)
    return Motion(Triple(x1 + x2, y1 + y2, 0.0), s1, s2)


def leg_displacement(leg: Leg, s: Spins, ox: float, oy: float, hx: float, hy: float) -> Any:
    """Of one leg, whose lower part is (ox, oy) off, and whose pin was bent by (hx, hy)."""
    out, low = 0.5 * DT * DT * s.upper * s.upper, 0.5 * DT * DT * s.lower * s.lower
    ux, uy = UPPER_MASS * (out * leg.ax - hx), UPPER_MASS * (out * leg.ay - hy)
    lx = LOWER_MASS * (ox + 2.0 * out * leg.ax + low * leg.bx)
    ly = LOWER_MASS * (oy + 2.0 * out * leg.ay + low * leg.by)
    upper = leg.ax * (uy + 2.0 * ly) - leg.ay * (ux + 2.0 * lx)
    return (ux + lx, uy + ly), Spins(upper, leg.bx * ly - leg.by * lx)


def rise(place: Place, leg: Leg, m: Triple, spins: Spins, body: Body) -> float:
    """How far a point has to be lifted after a step of this motion."""
    back, out = 0.5 * DT * m.h * m.h, DT * spins.upper * spins.upper
    low = 0.5 * DT * spins.lower * spins.lower
    vx = m.x - 2.0 * spins.upper * leg.ay - spins.lower * place.y
    vy = m.y + 2.0 * spins.upper * leg.ax + spins.lower * place.x
    vx += back * body.hx - out * leg.ax - low * place.x
    vy += back * body.hy - out * leg.ay - low * place.y
    gap = place.gap + DT * (place.nx * vx + place.ny * vy)
    near = (gap > REST) & (gap < SETTLED)
    return LIFT * (SETTLED - gap) if near else REST - gap


def correct(
    body: Body, offsets: Four, motors: Motors, joints: Four, m: Motion, places: Places
) -> Motion:
    """Displacements that bring legs to their knees, joints to their stops, feet off the ground.

    `joints` is where the motion `m` leads these.
    """
    hinges = Hinges(
        turn_back(motors[0], joints[0], HIP),
        turn_back(motors[1], joints[1], KNEE),
        turn_back(motors[2], joints[2], HIP),
        turn_back(motors[3], joints[3], KNEE),
    )
    targets = (
        rise(places[0], body.one, m.root, m.one, body),
        rise(places[1], body.one, m.root, m.one, body),
        rise(places[2], body.two, m.root, m.two, body),
        rise(places[3], body.two, m.root, m.two, body),
    )
    ways, _ = move(body, hinges, displacement(body, offsets, m), places, targets, 0.0, UNTOUCHED)
    return ways
