"""The body of BipedalWalker: a hull and two jointed legs on one pin, its motors, and the ground.

Source: Catto (2009), "Modeling and solving constraints", Game Developers Conference; the shapes and
numbers are those of Gymnasium's BipedalWalker, what is said of Box2D is about its version 2.3.

A step has three parts, as in Box2D. First the velocities: bodies move as one, that is the pin and
five spins. A motor that reaches its speed, and a joint at its stop, are stiff dampers in the matrix
of masses (`Hinge.stiffness`), one that is too weak is a given moment; which of the two each of them
is comes from the last step, and is corrected in four rounds (semi-smooth Newton). In a round the
impulses of the ground on two points of each leg are found by a sweep that starts from the round
before. Then the places, with the same equations (`walker_places.py`). Last the impacts
(`walker_impacts.py`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlcpu.envs.tasks.box2d.lander_legs import DT, SKIN
from rlcpu.envs.tasks.box2d.walker_joints import (
    HULL_INERTIA,
    HULL_MASS,
    LENGTH,
    LOWER_INERTIA,
    LOWER_MASS,
    UPPER_INERTIA,
    UPPER_MASS,
    Four,
    Hinge,
    bend,
)

MASS = HULL_MASS + 2.0 * (UPPER_MASS + LOWER_MASS)
GRAVITY = -10.0
FRICTION = math.sqrt(2.5 * 0.2)


def contact(nn: float, nr: float, rr: float, vn: float, vr: float, friction: float) -> Any:
    """Impulses that stop a point, and let it slide where friction does not hold it.

    A leg may be jammed, so that rubbing alone presses it down: that is bounded, or sweeps diverge.
    """
    area = nn * rr - nr * nr
    normal, rub = (nr * vr - rr * vn) / area, (nr * vn - nn * vr) / area
    drag = friction if rub > 0.0 else -friction
    sliding = max(-vn / max(nn + drag * nr, 0.2 * nn), 0.0)
    slides = abs(rub) > friction * normal
    return (sliding, drag * sliding) if slides else (normal, rub)


class Leg(NamedTuple):
    """Centres of mass: of the upper part from the pin, and of the lower one from the knee (m)."""

    ax: float
    ay: float
    bx: float
    by: float


def make_leg(upper: float, lower: float) -> Leg:
    """A leg whose parts are at these angles."""
    half = 0.5 * LENGTH
    return Leg(
        half * math.sin(upper),
        -half * math.cos(upper),
        half * math.sin(lower),
        -half * math.cos(lower),
    )


class Chain(NamedTuple):
    """Inverse masses of the spins of a leg, and what couples these to the pin and the hull."""

    uu: float
    ul: float
    ll: float
    ux: float
    uy: float
    uh: float
    lx: float
    ly: float


def make_chain(leg: Leg, hip: Hinge, knee: Hinge) -> Chain:
    """A leg with these joints."""
    square = 0.25 * LENGTH * LENGTH
    uu = UPPER_INERTIA + (UPPER_MASS + 4.0 * LOWER_MASS) * square + hip.stiffness + knee.stiffness
    ul = 2.0 * LOWER_MASS * (leg.ax * leg.bx + leg.ay * leg.by) - knee.stiffness
    ll = LOWER_INERTIA + LOWER_MASS * square + knee.stiffness
    area = uu * ll - ul * ul
    m = UPPER_MASS + 2.0 * LOWER_MASS
    return Chain(
        ll / area,
        -ul / area,
        uu / area,
        -m * leg.ay,
        m * leg.ax,
        -hip.stiffness,
        -LOWER_MASS * leg.by,
        LOWER_MASS * leg.bx,
    )


class Root(NamedTuple):
    """Inverse mass of pin and hull (symmetric, 3 x 3), with all that hangs on them."""

    xx: float
    xy: float
    xh: float
    yy: float
    yh: float
    hh: float


def make_root(hx: float, hy: float, a: Chain, b: Chain) -> Root:
    """Of a hull whose centre of mass is (hx, hy) from the pin."""
    h = HULL_INERTIA + HULL_MASS * (hx * hx + hy * hy) - a.uh - b.uh
    xx, xy, xh, yy, yh, hh = MASS, 0.0, -HULL_MASS * hy, MASS, HULL_MASS * hx, h
    for c in (a, b):
        px, py, ph = c.uu * c.ux + c.ul * c.lx, c.uu * c.uy + c.ul * c.ly, c.uu * c.uh
        qx, qy, qh = c.ul * c.ux + c.ll * c.lx, c.ul * c.uy + c.ll * c.ly, c.ul * c.uh
        xx, xy, xh = (
            xx - c.ux * px - c.lx * qx,
            xy - c.ux * py - c.lx * qy,
            xh - c.ux * ph - c.lx * qh,
        )
        yy, yh, hh = yy - c.uy * py - c.ly * qy, yh - c.uy * ph - c.ly * qh, hh - c.uh * ph
    ax, ay, ah = yy * hh - yh * yh, xh * yh - xy * hh, xy * yh - xh * yy
    scale = 1.0 / (xx * ax + xy * ay + xh * ah)
    return Root(
        ax * scale,
        ay * scale,
        ah * scale,
        (xx * hh - xh * xh) * scale,
        (xy * xh - xx * yh) * scale,
        (xx * yy - xy * xy) * scale,
    )


class Triple(NamedTuple):
    """Of the pin, and of the hull's turn: impulses, or velocities."""

    x: float
    y: float
    h: float


def respond(root: Root, g: Triple) -> Triple:
    """Velocities by impulses."""
    return Triple(
        root.xx * g.x + root.xy * g.y + root.xh * g.h,
        root.xy * g.x + root.yy * g.y + root.yh * g.h,
        root.xh * g.x + root.yh * g.y + root.hh * g.h,
    )


def dot(a: Triple, b: Triple) -> float:
    """Their product."""
    return a.x * b.x + a.y * b.y + a.h * b.h


class Row(NamedTuple):
    """An impulse of 1 N s at a point of a leg.

    Attributes:
        felt: what of it the root feels; and the velocity there that a moving root causes.
        gives: velocities that it gives the root.
        upper, lower: its moments on the parts of the leg.
        spin_upper, spin_lower: spins that these give while the root rests.
        free: velocity there without impulses.
    """

    felt: Triple
    gives: Triple
    upper: float
    lower: float
    spin_upper: float
    spin_lower: float
    free: float


class Push(NamedTuple):
    """Impulses at a point: of the ground, and along it."""

    normal: float
    rub: float


class Point(NamedTuple):
    """A point of a leg: what impulses do there, whether it touches the ground, and `target`.

    That is its least velocity from the ground, or how far it has to move.
    """

    normal: Row
    rub: Row
    nn: float
    nr: float
    rr: float
    touches: bool
    target: float


class Place(NamedTuple):
    """Where a point is from the knee, the normal of the ground there, and its gap."""

    x: float
    y: float
    nx: float
    ny: float
    gap: float


Places = tuple[Place, Place, Place, Place]


class Spins(NamedTuple):
    """Of the parts of a leg; or moments on them."""

    upper: float
    lower: float


def make_row(
    leg: Leg,
    chain: Chain,
    root: Root,
    move: Triple,
    spins: Spins,
    place: Place,
    nx: float,
    ny: float,
) -> Row:
    """The row of a direction (nx, ny) at a place of a leg that moves like this without impulses."""
    upper = 2.0 * (leg.ax * ny - leg.ay * nx)
    lower = place.x * ny - place.y * nx
    spin_u, spin_l = chain.uu * upper + chain.ul * lower, chain.ul * upper + chain.ll * lower
    felt = Triple(
        nx - chain.ux * spin_u - chain.lx * spin_l,
        ny - chain.uy * spin_u - chain.ly * spin_l,
        -chain.uh * spin_u,
    )
    free = nx * move.x + ny * move.y + upper * spins.upper + lower * spins.lower
    return Row(felt, respond(root, felt), upper, lower, spin_u, spin_l, free)


def answer(a: Row, b: Row) -> float:
    """Velocity in row `a` by a unit impulse in row `b` of the same leg."""
    return dot(a.felt, b.gives) + a.upper * b.spin_upper + a.lower * b.spin_lower


def make_point(
    leg: Leg, chain: Chain, root: Root, move: Triple, spins: Spins, place: Place, target: float
) -> Point:
    """A point of a leg that moves like this without impulses."""
    n = make_row(leg, chain, root, move, spins, place, place.nx, place.ny)
    r = make_row(leg, chain, root, move, spins, place, place.ny, -place.nx)
    return Point(n, r, answer(n, n), answer(n, r), answer(r, r), place.gap < SKIN, target)


def add(p: Point, dn: float, dr: float, root: Triple, leg: Spins) -> tuple[Triple, Spins]:
    """Velocities of the root and moments on a leg with impulses at one more point."""
    n, r = p.normal, p.rub
    root = Triple(
        root.x + n.gives.x * dn + r.gives.x * dr,
        root.y + n.gives.y * dn + r.gives.y * dr,
        root.h + n.gives.h * dn + r.gives.h * dr,
    )
    return root, Spins(
        leg.upper + n.upper * dn + r.upper * dr, leg.lower + n.lower * dn + r.lower * dr
    )


def push(
    p: Point, old: Push, root: Triple, leg: Spins, friction: float
) -> tuple[Push, Triple, Spins]:
    """New impulses at a point; velocities that all give the root, and moments on the leg."""
    n, r = p.normal, p.rub
    vn = n.free + dot(n.felt, root) + n.spin_upper * leg.upper + n.spin_lower * leg.lower
    vr = r.free + dot(r.felt, root) + r.spin_upper * leg.upper + r.spin_lower * leg.lower
    vn, vr = vn - p.nn * old.normal - p.nr * old.rub, vr - p.nr * old.normal - p.rr * old.rub
    a, b = contact(p.nn, p.nr, p.rr, vn - p.target, vr, friction)
    a, b = a if p.touches else 0.0, b if p.touches else 0.0
    root, leg = add(p, a - old.normal, b - old.rub, root, leg)
    return Push(a, b), root, leg


Pushes = tuple[Push, Push, Push, Push]


class Body(NamedTuple):
    """Hull's centre of mass from the pin, and the legs."""

    hx: float
    hy: float
    one: Leg
    two: Leg


class Hinges(NamedTuple):
    """Hip and knee of both legs."""

    hip1: Hinge
    knee1: Hinge
    hip2: Hinge
    knee2: Hinge


class Motion(NamedTuple):
    """Velocity of the pin with the hull's spin, and spins of the legs; or momenta."""

    root: Triple
    one: Spins
    two: Spins


def load(p: Motion, h: Hinges) -> Motion:
    """Momenta with the impulses of the joints, as far as these do not depend on speeds."""
    root = Triple(p.root.x, p.root.y, p.root.h - h.hip1.drive - h.hip2.drive)
    one = Spins(p.one.upper + h.hip1.drive - h.knee1.drive, p.one.lower + h.knee1.drive)
    two = Spins(p.two.upper + h.hip2.drive - h.knee2.drive, p.two.lower + h.knee2.drive)
    return Motion(root, one, two)


def reduce(g: Triple, c: Chain, p: Spins) -> Triple:
    """What the root feels of moments on a leg."""
    upper, lower = c.uu * p.upper + c.ul * p.lower, c.ul * p.upper + c.ll * p.lower
    return Triple(
        g.x - c.ux * upper - c.lx * lower, g.y - c.uy * upper - c.ly * lower, g.h - c.uh * upper
    )


def spins_of(c: Chain, p: Spins, v: Triple) -> Spins:
    """Spins of a leg under moments, when the root moves at v."""
    upper = p.upper - c.ux * v.x - c.uy * v.y - c.uh * v.h
    lower = p.lower - c.lx * v.x - c.ly * v.y
    return Spins(c.uu * upper + c.ul * lower, c.ul * upper + c.ll * lower)


def sweep(points: Any, old: Pushes, felt: Motion, friction: float) -> tuple[Pushes, Motion]:
    """New impulses at all points, one after the other, and what their sum does (see `push`)."""
    a, root, one = push(points[0], old[0], felt.root, felt.one, friction)
    b, root, one = push(points[1], old[1], root, one, friction)
    c, root, two = push(points[2], old[2], root, felt.two, friction)
    d, root, two = push(points[3], old[3], root, two, friction)
    return (a, b, c, d), Motion(root, one, two)


def settle(points: Any, old: Pushes) -> Motion:
    """What impulses do that are there from before."""
    root, none = Triple(0.0, 0.0, 0.0), Spins(0.0, 0.0)
    root, one = add(points[0], old[0].normal, old[0].rub, root, none)
    root, one = add(points[1], old[1].normal, old[1].rub, root, one)
    root, two = add(points[2], old[2].normal, old[2].rub, root, none)
    root, two = add(points[3], old[3].normal, old[3].rub, root, two)
    return Motion(root, one, two)


def move(
    body: Body,
    h: Hinges,
    momenta: Motion,
    places: Any,
    targets: Four,
    friction: float,
    start: Pushes,
) -> tuple[Motion, Pushes]:
    """How a body moves under momenta, laws of joints and the ground, and impulses of the ground.

    The same for velocities and for small displacements, whose momenta are masses times ways.
    """
    c1, c2 = make_chain(body.one, h.hip1, h.knee1), make_chain(body.two, h.hip2, h.knee2)
    root = make_root(body.hx, body.hy, c1, c2)
    p = load(momenta, h)
    v = respond(root, reduce(reduce(p.root, c1, p.one), c2, p.two))
    s1, s2 = spins_of(c1, p.one, v), spins_of(c2, p.two, v)
    pa = make_point(body.one, c1, root, v, s1, places[0], targets[0])
    pb = make_point(body.one, c1, root, v, s1, places[1], targets[1])
    pc = make_point(body.two, c2, root, v, s2, places[2], targets[2])
    pd = make_point(body.two, c2, root, v, s2, places[3], targets[3])
    points = (pa, pb, pc, pd)
    felt = settle(points, start)
    start, felt = sweep(points, start, felt, friction)
    d, one, two = felt.root, felt.one, felt.two
    v = Triple(v.x + d.x, v.y + d.y, v.h + d.h)
    s1 = spins_of(c1, Spins(p.one.upper + one.upper, p.one.lower + one.lower), v)
    s2 = spins_of(c2, Spins(p.two.upper + two.upper, p.two.lower + two.lower), v)
    return Motion(v, s1, s2), start


NONE = Push(0.0, 0.0)
UNTOUCHED = (NONE, NONE, NONE, NONE)
STILL = (0.0, 0.0, 0.0, 0.0)


def joint_speeds(m: Motion) -> Four:
    """Of hip, knee, hip, knee."""
    return (
        m.one.upper - m.root.h,
        m.one.lower - m.one.upper,
        m.two.upper - m.root.h,
        m.two.lower - m.two.upper,
    )


def turn(
    body: Body, momenta: Motion, motors: Any, w: Four, impulses: Four, places: Any, start: Pushes
) -> Any:
    """One round: motion, speeds and impulses of joints, impulses of the ground."""
    h = Hinges(
        bend(motors[0], impulses[0], w[0]),
        bend(motors[1], impulses[1], w[1]),
        bend(motors[2], impulses[2], w[2]),
        bend(motors[3], impulses[3], w[3]),
    )
    motion, start = move(body, h, momenta, places, STILL, FRICTION, start)
    w = joint_speeds(motion)
    impulses = (
        h.hip1.drive - h.hip1.stiffness * w[0],
        h.knee1.drive - h.knee1.stiffness * w[1],
        h.hip2.drive - h.hip2.stiffness * w[2],
        h.knee2.drive - h.knee2.stiffness * w[3],
    )
    return motion, w, impulses, start


def momenta(body: Body, v: Triple, one: Spins, two: Spins, lowers: Four) -> Motion:
    """Momenta of bodies that went on straight since the last step, and fell.

    `v` is the velocity of the hull's centre of mass, and its spin; its pin's is that of where it
    was then. `lowers` are the velocities of the lower legs.
    """
    hx, hy = body.hx, body.hy
    back = DT * v.h * v.h
    px, py = v.x + v.h * hy - back * hx, v.y - v.h * hx - back * hy
    fall = DT * GRAVITY
    gx, gy = HULL_MASS * v.x, HULL_MASS * (v.y + fall)
    gh = HULL_INERTIA * v.h + hx * gy - hy * gx
    (x1, y1), s1 = leg_momenta(body.one, one, px, py + fall, lowers[0], lowers[1] + fall)
    (x2, y2), s2 = leg_momenta(body.two, two, px, py + fall, lowers[2], lowers[3] + fall)
    return Motion(Triple(gx + x1 + x2, gy + y1 + y2, gh), s1, s2)


def leg_momenta(leg: Leg, s: Spins, px: float, py: float, lx: float, ly: float) -> Any:
    """Linear momentum of a leg whose lower part moves at (lx, ly), and moments of its parts."""
    out = DT * s.upper * s.upper
    ux = UPPER_MASS * (px - s.upper * leg.ay + out * leg.ax)
    uy = UPPER_MASS * (py + s.upper * leg.ax + out * leg.ay)
    lx, ly = LOWER_MASS * lx, LOWER_MASS * ly
    upper = UPPER_INERTIA * s.upper + leg.ax * (uy + 2.0 * ly) - leg.ay * (ux + 2.0 * lx)
    lower = LOWER_INERTIA * s.lower + leg.bx * ly - leg.by * lx
    return (ux + lx, uy + ly), Spins(upper, lower)
