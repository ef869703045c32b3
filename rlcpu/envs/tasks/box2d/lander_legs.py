"""The lander of LunarLander: a hull and two legs that turn about one pin, and touch the ground.

Source: Catto (2009), "Modeling and solving constraints", Game Developers Conference; the shapes and
numbers are those of Gymnasium's LunarLander, what is said of Box2D is about its version 2.3.

Velocities obey both hinges exactly. Each leg touches the ground with its lowest corner. `sweep`
finds the impulses on one leg exactly, then on the other: three sweeps are enough, since they start
from those of the step before, where Box2D takes 180 iterations over hinges and corners one by one.
What those leave undone is kept, because agents feel it: a motor reaches its speed only slowly
(`motor`), a leg that hits the ground moves on as if it hung on nothing (`kick`), and what sank in
is lifted out over several steps (`LIFT`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from rlcpu.envs.tasks.box2d.rigid_bodies import DT, REST, SKIN, SLOP, UNIT, coulomb

HULL_MASS, HULL_INERTIA = 289.0 / 60.0, 0.783881  # kg, kg m^2 about the centre of mass
HULL_CENTRE = 0.101307  # m, from the pin up to the centre of mass
LEG_MASS, LEG_INERTIA = 16.0 / 225.0, 0.00179095
LEG_X, LEG_Y = 20.0 * UNIT, 18.0 * UNIT  # m, from the pin to the centre of a leg, aside and down
HALF_WIDTH, HALF_LENGTH = 2.0 * UNIT, 8.0 * UNIT  # m, of a leg
MASS = HULL_MASS + 2.0 * LEG_MASS
HULL_MOMENT = HULL_INERTIA + HULL_MASS * HULL_CENTRE**2  # kg m^2, about the pin
LEG_MOMENT = LEG_INERTIA + LEG_MASS * (LEG_X**2 + LEG_Y**2)

CLOSED, OPENING = 0.35, 0.5  # rad, angle of a leg at its inner stop, and how far it opens
MOTOR_SPEED, MOTOR_IMPULSE = -0.3, 40.0 * DT  # rad/s, N m s in one step
#: Box2D's iterations in one step, times the moment of inertia (kg m^2) that each has a motor turn.
MOTOR_REACH = 180.0 / (1.0 / HULL_INERTIA + 1.0 / LEG_INERTIA)
FRICTION = math.sqrt(0.1 * 0.2)
LIFT = 0.3  # of the depth of a corner is corrected in one step
FAR = 1.0e9

WIDTH = 10.0  # m, half of the view, and of the terrain
SPACING = 2.0  # m, between the nodes of the terrain
PAD = -1.0 * UNIT  # m, height of the three nodes in the middle


#: Heights of the terrain's nodes from left to right, but of the three in the middle.
Nodes = tuple[float, float, float, float, float, float, float, float]


class Ground(NamedTuple):
    """The node of the terrain next to the pin, and the slopes on both sides of it."""

    x: float
    y: float
    before: float
    after: float


def node_height(nodes: Nodes, k: float) -> float:
    """Height of node k, of those from 0 to 10 the nearest."""
    y = nodes[1] if k > 0.5 else nodes[0]
    y = nodes[2] if k > 1.5 else y
    y = nodes[3] if k > 2.5 else y
    y = PAD if k > 3.5 else y
    y = nodes[4] if k > 6.5 else y
    y = nodes[5] if k > 7.5 else y
    y = nodes[6] if k > 8.5 else y
    return nodes[7] if k > 9.5 else y


def find_ground(nodes: Nodes, x: float) -> Ground:
    """The ground below a pin at x."""
    k = min(max(math.floor(x / SPACING + 5.5), 0.0), 10.0)
    y, left, right = node_height(nodes, k), node_height(nodes, k - 1.0), node_height(nodes, k + 1.0)
    return Ground((k - 5.0) * SPACING, y, (y - left) / SPACING, (right - y) / SPACING)


def slope_at(ground: Ground, x: float) -> float:
    """Slope of the ground at x."""
    return ground.before if x < ground.x else ground.after


def gap_at(ground: Ground, x: float, y: float) -> float:
    """Distance of a point from the ground."""
    slope = slope_at(ground, x)
    return (y - ground.y - slope * (x - ground.x)) / math.sqrt(1.0 + slope * slope)


def hull_pair(
    x: float, y: float, ground: Ground, hull: tuple[float, float], u: float, v: float
) -> float:
    """Distance from the ground of the points of the hull at -u and u pixels aside and v up."""
    sine, cosine = UNIT * hull[0], UNIT * hull[1]
    x, y, ax, ay = x - v * sine, y + v * cosine, u * cosine, u * sine
    return min(gap_at(ground, x - ax, y - ay), gap_at(ground, x + ax, y + ay))


def hull_gap(x: float, y: float, angle: float, ground: Ground) -> float:
    """Distance of the hull from the ground, and from a peak below it."""
    sine, cosine = math.sin(angle), math.cos(angle)
    foot = hull_pair(x, y, ground, (sine, cosine), 17.0, -10.0)
    side = hull_pair(x, y, ground, (sine, cosine), 17.0, 0.0)
    top = hull_pair(x, y, ground, (sine, cosine), 14.0, 17.0)
    dx, dy = ground.x - x, ground.y - y
    u, v = abs(dx * cosine + dy * sine), dy * cosine - dx * sine
    peak = max(u - 17.0 * UNIT, max(-10.0 * UNIT - v, v - 17.0 * UNIT))
    return min(min(foot, side), min(top, peak))


class Body(NamedTuple):
    """Its centre of mass about the pin, sine and cosine of its angle, mass / moment."""

    x: float
    y: float
    sine: float
    cosine: float
    ratio: float


def hull_body(angle: float) -> Body:
    """The hull at an angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    return Body(-HULL_CENTRE * sine, HULL_CENTRE * cosine, sine, cosine, HULL_MASS / HULL_MOMENT)


def leg_body(angle: float, side: float) -> Body:
    """The right leg (`side` is 1), or the left one (-1), at an angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    x, y = side * LEG_X * cosine + LEG_Y * sine, side * LEG_X * sine - LEG_Y * cosine
    return Body(x, y, sine, cosine, LEG_MASS / LEG_MOMENT)


def swing(body: Body, vx: float, vy: float) -> float:
    """Spin of a body whose pin gains a velocity."""
    return body.ratio * (body.y * vx - body.x * vy)


class Mass(NamedTuple):
    """Inverse mass of the pin, with all that hangs on it (1/kg)."""

    xx: float
    xy: float
    yy: float


def pin_mass(hull: Body, right: Body, left: Body) -> Mass:
    """What the pin weighs to a push in each direction."""
    own, leg = HULL_MASS * hull.ratio, LEG_MASS * right.ratio
    xx = MASS - own * hull.y * hull.y - leg * (right.y * right.y + left.y * left.y)
    xy = own * hull.x * hull.y + leg * (right.x * right.y + left.x * left.y)
    yy = MASS - own * hull.x * hull.x - leg * (right.x * right.x + left.x * left.x)
    area = xx * yy - xy * xy
    return Mass(yy / area, -xy / area, xx / area)


class Motion(NamedTuple):
    """Velocity of the pin, and spins; or what is added to them."""

    vx: float
    vy: float
    hull: float
    right: float
    left: float


class Row(NamedTuple):
    """An impulse of 1 N s at a corner, or of 1 N m s at a hinge.

    Attributes:
        gx, gy: what of it the pin feels; and the velocity there that a moving pin causes.
        vx, vy: velocity that it gives the pin.
        turn: angular impulse that it gives its leg.
    """

    gx: float
    gy: float
    vx: float
    vy: float
    turn: float


def make_row(mass: Mass, gx: float, gy: float, turn: float) -> Row:
    """The row of an impulse of which the pin feels (gx, gy)."""
    return Row(gx, gy, mass.xx * gx + mass.xy * gy, mass.xy * gx + mass.yy * gy, turn)


def corner_row(mass: Mass, leg: Body, dx: float, dy: float, x: float, y: float) -> Row:
    """The row of an impulse (dx, dy) on a leg, at (x, y) from the pin."""
    turn = x * dy - y * dx
    return make_row(mass, dx + leg.ratio * leg.y * turn, dy - leg.ratio * leg.x * turn, turn)


def answer(a: Row, b: Row) -> float:
    """Velocity in row `a` by a unit impulse in row `b` of the same leg."""
    return a.gx * b.vx + a.gy * b.vy + a.turn * b.turn / LEG_MOMENT


class Push(NamedTuple):
    """Impulses on one leg, of the ground, along it, and of the hinge; or velocities there."""

    normal: float
    rub: float
    hinge: float


class Answers(NamedTuple):
    """Velocity in one row of a leg by a unit impulse in another: normal, rub, hinge."""

    nn: float
    nr: float
    rr: float
    nh: float
    rh: float
    hh: float


class Corner(NamedTuple):
    """A leg's lowest corner.

    Attributes:
        x: where it is (m).
        gap: its distance from the ground (m).
        arm_n, arm_r: of a push of the ground, and along it, about the leg's own centre (m).
        flush: sine of the angle between the leg's foot and the ground.
    """

    x: float
    gap: float
    arm_n: float
    arm_r: float
    flush: float


class Leg(NamedTuple):
    """How a leg moves without impulses (`speed`), and what impulses do."""

    normal: Row
    rub: Row
    hinge: Row
    answers: Answers
    speed: Push
    corner: Corner


def make_leg(
    x: float,
    y: float,
    ground: Ground,
    mass: Mass,
    motion: Motion,
    hull: Body,
    leg: Body,
    side: float,
) -> Leg:
    """A leg on its side (1 right, -1 left) of a pin at (x, y); `motion` is without impulses."""
    slope = slope_at(ground, x + leg.x)
    u = -HALF_WIDTH if leg.sine > slope * leg.cosine else HALF_WIDTH
    v = -HALF_LENGTH if leg.cosine + slope * leg.sine > 0.0 else HALF_LENGTH
    ax, ay = u * leg.cosine - v * leg.sine, u * leg.sine + v * leg.cosine
    cx, cy = leg.x + ax, leg.y + ay
    slope = slope_at(ground, x + cx)
    ny = 1.0 / math.sqrt(1.0 + slope * slope)
    nx = -slope * ny
    normal, rub = corner_row(mass, leg, nx, ny, cx, cy), corner_row(mass, leg, ny, -nx, cx, cy)
    hx, hy = leg.ratio * leg.x - hull.ratio * hull.x, leg.ratio * leg.y - hull.ratio * hull.y
    hinge = make_row(mass, side * hy, -side * hx, side)
    nn, nr, rr = answer(normal, normal), answer(normal, rub), answer(rub, rub)
    nh, rh = answer(normal, hinge), answer(rub, hinge)
    answers = Answers(nn, nr, rr, nh, rh, answer(hinge, hinge) + 1.0 / HULL_MOMENT)
    spin = motion.right if side > 0.0 else motion.left
    speed = Push(
        nx * motion.vx + ny * motion.vy + normal.turn * spin,
        ny * motion.vx - nx * motion.vy + rub.turn * spin,
        side * (spin - motion.hull),
    )
    gap = gap_at(ground, x + cx, y + cy) if abs(x + cx) < WIDTH else 1.0
    flush = abs(leg.cosine * nx + leg.sine * ny)
    corner = Corner(x + cx, gap, ax * ny - ay * nx, -ax * nx - ay * ny, flush)
    return Leg(normal, rub, hinge, answers, speed, corner)


# ---------------------------------------------------------------- impulses


class Hinge(NamedTuple):
    """What a hinge aims at: a speed, by an impulse in [low, high].

    It starts from `start` and goes `gain` of the way to what is needed, but not above `creep`;
    where `high` is FAR a stop gives what is needed.
    """

    target: float
    start: float
    gain: float
    low: float
    high: float
    creep: float


def motor(answers: Answers, on: bool, opening: float, impulse: float) -> Hinge:
    """The motor that closes a leg, its last impulse, and the stops at both ends of its way.

    Box2D's iterations come the nearer to a motor's speed the lighter the leg turns: a leg in the
    air reaches it, one that carries the lander (`on` the ground) goes a third of the way.
    """
    inner, outer = opening <= 0.0, opening >= OPENING
    stiffness = answers.hh - (answers.nh * answers.nh / answers.nn if on else 0.0)
    gain = 1.0 if outer else 1.0 - math.exp(-MOTOR_REACH * stiffness)
    low = -FAR if outer else -MOTOR_IMPULSE
    high = FAR if inner else (-MOTOR_IMPULSE if outer else MOTOR_IMPULSE)
    creep = impulse + MOTOR_REACH * MOTOR_SPEED if inner else FAR
    return Hinge(0.0 if inner | outer else MOTOR_SPEED, impulse, gain, low, high, creep)


def motor_after(turn: float, opening: float, impulse: float, hits: bool, opens: float) -> float:
    """Impulse of a motor, less what its stop holds; 0 where a leg hits the ground and opens."""
    creep = min(turn, impulse + MOTOR_REACH * MOTOR_SPEED)
    kept = max(creep if opening <= 0.0 else turn, -MOTOR_IMPULSE)
    return 0.0 if hits & (opens > 0.0) else kept


def push(a: Answers, on: bool, speed: Push, hinge: Hinge, friction: float) -> Push:
    """The impulses on one leg, which moves at `speed` without them.

    First those of a hinge that reaches its target, then those by the impulse that it has.
    """
    hold, an, ar = (hinge.target - speed.hinge) / a.hh, a.nh / a.hh, a.rh / a.hh
    vn, vr = speed.normal + a.nh * hold, speed.rub + a.rh * hold
    nn, nr, rr = a.nn - an * a.nh, a.nr - an * a.rh, a.rr - ar * a.rh
    normal, rub = coulomb(nn, nr, rr, vn, vr, friction)
    needed = hold - (an * normal + ar * rub if on else 0.0)
    turn = min(hinge.start + hinge.gain * (needed - hinge.start), hinge.creep)
    turn = max(turn, hinge.low)
    turn = max(needed, turn) if hinge.high == FAR else min(turn, hinge.high)
    vn, vr = speed.normal + a.nh * turn, speed.rub + a.rh * turn
    normal, rub = coulomb(a.nn, a.nr, a.rr, vn, vr, friction)
    return Push(normal if on else 0.0, rub if on else 0.0, turn)


def pin_speed(leg: Leg, p: Push) -> tuple[float, float]:
    """Velocity that impulses on a leg give the pin."""
    return (
        leg.normal.vx * p.normal + leg.rub.vx * p.rub + leg.hinge.vx * p.hinge,
        leg.normal.vy * p.normal + leg.rub.vy * p.rub + leg.hinge.vy * p.hinge,
    )


def felt(leg: Leg, speed: Push, other: Leg, p: Push) -> Push:
    """How a leg moves in its rows, at `speed` by itself, when the other one is pushed."""
    vx, vy = pin_speed(other, p)
    return Push(
        speed.normal + leg.normal.gx * vx + leg.normal.gy * vy,
        speed.rub + leg.rub.gx * vx + leg.rub.gy * vy,
        speed.hinge + leg.hinge.gx * vx + leg.hinge.gy * vy - p.hinge / HULL_MOMENT,
    )


class Aims(NamedTuple):
    """Whether each leg touches the ground, what its hinge aims at, and the ground's friction."""

    on_right: bool
    on_left: bool
    right: Hinge
    left: Hinge
    friction: float


def sweep(
    right: Leg, left: Leg, speed_r: Push, speed_l: Push, aims: Aims, b: Push
) -> tuple[Push, Push]:
    """Impulses on the right leg, which feels `b` on the left one, and then on the left leg."""
    seen = felt(right, speed_r, left, b)
    a = push(right.answers, aims.on_right, seen, aims.right, aims.friction)
    seen = felt(left, speed_l, right, a)
    return a, push(left.answers, aims.on_left, seen, aims.left, aims.friction)


def own_spin(leg: Leg, p: Push) -> float:
    """Spin that impulses on a leg give it while the pin rests."""
    turn = leg.normal.turn * p.normal + leg.rub.turn * p.rub + leg.hinge.turn * p.hinge
    return turn / LEG_MOMENT


# ---------------------------------------------------------------- where that leads


class End(NamedTuple):
    """Where a step leads a leg: its gap, its opening, and whether it hits the ground."""

    gap: float
    opening: float
    hits: bool


def kick(corner: Corner, gap: float, rub: float, turn: float) -> float:
    """Angle by which a corner turns its leg when it hits the ground within a step.

    At most it lifts the corner, which a turn of the leg moves `turn` m/rad, back to the ground.
    """
    n, r = corner.arm_n, corner.arm_r
    nn, rr = 1.0 / LEG_MASS + n * n / LEG_INERTIA, 1.0 / LEG_MASS + r * r / LEG_INERTIA
    a, b = coulomb(nn, n * r / LEG_INERTIA, rr, (gap - corner.gap) / DT, rub, FRICTION)
    time = DT * (REST - gap) / max(corner.gap - gap, 0.001)
    angle = (n * a + r * b) / LEG_INERTIA * time
    angle = min(max(angle, -corner.flush), corner.flush)
    return (REST - gap) / turn if angle * turn > REST - gap else angle


def follow(leg: Leg, speed: Push, p: Push, opening: float, spin: float) -> End:
    """The end of a step of a leg that moves at `speed`, is pushed and turns against the hull."""
    a = leg.answers
    normal = speed.normal + a.nn * p.normal + a.nr * p.rub + a.nh * p.hinge
    rub = speed.rub + a.nr * p.normal + a.rr * p.rub + a.rh * p.hinge
    gap = leg.corner.gap + DT * normal
    hits = (leg.corner.gap >= SKIN) & (gap < REST)
    angle = DT * spin + (kick(leg.corner, gap, rub, leg.normal.turn) if hits else 0.0)
    return End(gap, opening + leg.hinge.turn * angle, hits)


def stop(end: End) -> Hinge:
    """The stop that is nearer, to which a leg returns that went beyond it, unless it just hit."""
    inner = end.opening < 0.5 * OPENING
    target = -SLOP if inner else OPENING + SLOP
    low = 0.0 if inner | end.hits else -FAR
    high = 0.5 * FAR if inner & (not end.hits) else 0.0
    return Hinge(target, 0.0, 1.0, low, high, FAR)


def changed(hull: Body, right: Body, left: Body, legs: tuple[Leg, Leg], a: Push, b: Push) -> Motion:
    """What the impulses `a` on the right leg and `b` on the left one add to the motion."""
    (ax, ay), (bx, by) = pin_speed(legs[0], a), pin_speed(legs[1], b)
    vx, vy = ax + bx, ay + by
    return Motion(
        vx,
        vy,
        (b.hinge - a.hinge) / HULL_MOMENT + swing(hull, vx, vy),
        own_spin(legs[0], a) + swing(right, vx, vy),
        own_spin(legs[1], b) + swing(left, vx, vy),
    )
