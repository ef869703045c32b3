"""Impacts of BipedalWalker: lower legs that meet the ground between two steps.

Such a leg does so on its own, and is off its knee until the next step, as in Box2D 2.3. Walkers
fall more often without that, there too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from rlcpu.envs.tasks.box2d.lander_legs import DT, REST
from rlcpu.envs.tasks.box2d.walker_joints import LOWER_INERTIA, LOWER_MASS
from rlcpu.envs.tasks.box2d.walker_legs import FRICTION, Leg, Place, Spins, Triple, contact

TOLERANCE = 0.00125  # m, of the time at which a leg hits the ground
LANDED = 0.0135  # m, gap to which it is lifted there


class Part(NamedTuple):
    """A lower leg: its centre of mass (m), angle, and their velocities in this step."""

    x: float
    y: float
    angle: float
    vx: float
    vy: float
    spin: float


def lower_part(knee_x: float, knee_y: float, angle: float, leg: Leg, m: Triple, s: Spins) -> Part:
    """The lower part of a leg with its knee at (knee_x, knee_y), whose root moves like `m`."""
    return Part(
        knee_x + leg.bx,
        knee_y + leg.by,
        angle,
        m.x - 2.0 * s.upper * leg.ay - s.lower * leg.by,
        m.y + 2.0 * s.upper * leg.ax + s.lower * leg.bx,
        s.lower,
    )


def gap_after(place: Place, rx: float, ry: float, dx: float, dy: float, angle: float) -> float:
    """Gap of a point, (rx, ry) from its leg's centre, after that has moved and turned."""
    sine, cosine = math.sin(angle), math.cos(angle)
    dx += rx * cosine - ry * sine - rx
    dy += rx * sine + ry * cosine - ry
    return place.gap + place.nx * dx + place.ny * dy


def impact(begin: Part, end: Part, leg: Leg, a: Place, b: Place) -> tuple[Part, bool, float]:
    """Where a lower leg is that hits the ground in a step from `begin` to `end`.

    It goes to where it hits, its point stops or slides there, and it goes on with what time is left
    as if it hung on nothing: joints pull it back in the next step, as in Box2D. Also returned are
    whether it hits, and where (x).
    """
    dx, dy, way = end.x - begin.x, end.y - begin.y, end.angle - begin.angle
    gap_a = gap_after(a, a.x - leg.bx, a.y - leg.by, dx, dy, way)
    gap_b = gap_after(b, b.x - leg.bx, b.y - leg.by, dx, dy, way)
    p, gap = (b if gap_b < gap_a else a), min(gap_a, gap_b)
    hits = (gap < REST - TOLERANCE) | (min(a.gap, b.gap) < REST + TOLERANCE)
    part = min(max((p.gap - REST) / max(p.gap - gap, 1.0e-6), 0.0), 1.0)
    sine, cosine = math.sin(part * way), math.cos(part * way)
    rx, ry = p.x - leg.bx, p.y - leg.by
    rx, ry = rx * cosine - ry * sine, rx * sine + ry * cosine
    n, r = rx * p.ny - ry * p.nx, -rx * p.nx - ry * p.ny  # moments of pushes: normal, and along
    nn, nr = 1.0 / LOWER_MASS + n * n / LOWER_INERTIA, n * r / LOWER_INERTIA
    rr = 1.0 / LOWER_MASS + r * r / LOWER_INERTIA
    vn = begin.vx * p.nx + begin.vy * p.ny + begin.spin * n
    vr = begin.vx * p.ny - begin.vy * p.nx + begin.spin * r
    normal, rub = contact(nn, nr, rr, vn, vr, FRICTION)
    lift = max(LANDED - (p.gap + part * (gap - p.gap)), 0.0) / nn
    vx = begin.vx + (p.nx * normal + p.ny * rub) / LOWER_MASS
    vy = begin.vy + (p.ny * normal - p.nx * rub) / LOWER_MASS
    spin = begin.spin + (n * normal + r * rub) / LOWER_INERTIA
    rest = (1.0 - part) * DT
    x = begin.x + part * dx + p.nx * lift / LOWER_MASS + rest * vx
    y = begin.y + part * dy + p.ny * lift / LOWER_MASS + rest * vy
    angle = begin.angle + part * way + n * lift / LOWER_INERTIA + rest * spin
    return (
        Part(
            x if hits else end.x,
            y if hits else end.y,
            angle if hits else end.angle,
            vx if hits else begin.vx,
            vy if hits else begin.vy,
            spin if hits else begin.spin,
        ),
        hits,
        begin.x + part * dx + rx,
    )
