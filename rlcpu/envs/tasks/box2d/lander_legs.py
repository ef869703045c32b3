"""The lander of LunarLander: a hull and two legs that turn about one pin, and touch the ground.

Source: Catto (2009), "Modeling and solving constraints", Game Developers Conference; the shapes and
numbers are those of Gymnasium's LunarLander, what is said of Box2D is about its version 2.3.

Velocities obey both hinges exactly. Each leg touches the ground with its lowest corner. `sweep`
finds the impulses on one leg exactly, then on the other: three sweeps are enough, since they start
from those of the step before, where Box2D takes 180 iterations over hinges and corners one by one.
Agents learn by what Box2D's iterations leave undone, so that it is imitated: a motor reaches its
speed only slowly (`motor_hinge`), a leg that hits the ground moves on as if it hung on nothing
(`impact_turn`), and a corner that sank in is lifted out over several steps (`LIFT`).
"""

import math
from typing import NamedTuple

DT = 0.02  # s, one step
UNIT = 1.0 / 30.0  # m, one pixel of Gymnasium's pictures
SKIN = 0.02  # m, gap at which bodies touch: Box2D's polygons have a radius of 0.01 m
REST = 0.005  # m, gap of a body that an impact has stopped
SLOP = math.pi / 90.0  # rad, by which a joint may go beyond its stops
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


class TerrainNode(NamedTuple):
    """The node of the terrain next to the pin, and the slopes on both sides of it."""

    x: float
    y: float
    before: float
    after: float


def node_height(nodes: Nodes, k: float) -> float:
    """Return the height of the node k, or of the first or last one beyond these."""
    y = nodes[1] if k > 0.5 else nodes[0]
    y = nodes[2] if k > 1.5 else y
    y = nodes[3] if k > 2.5 else y
    y = PAD if k > 3.5 else y
    y = nodes[4] if k > 6.5 else y
    y = nodes[5] if k > 7.5 else y
    y = nodes[6] if k > 8.5 else y
    return nodes[7] if k > 9.5 else y


def find_ground(nodes: Nodes, x: float) -> TerrainNode:
    """Return the node of the ground next to a pin at x, and its slopes."""
    k = min(max(math.floor(x / SPACING + 5.5), 0.0), 10.0)
    y, left, right = node_height(nodes, k), node_height(nodes, k - 1.0), node_height(nodes, k + 1.0)
    return TerrainNode((k - 5.0) * SPACING, y, (y - left) / SPACING, (right - y) / SPACING)


def slope_at(ground: TerrainNode, x: float) -> float:
    """Return the slope of the ground at x."""
    return ground.before if x < ground.x else ground.after


def gap_at(ground: TerrainNode, x: float, y: float) -> float:
    """Return the distance of a point from the ground (m)."""
    slope = slope_at(ground, x)
    return (y - ground.y - slope * (x - ground.x)) / math.sqrt(1.0 + slope * slope)


def hull_pair(
    x: float, y: float, ground: TerrainNode, hull: tuple[float, float], u: float, v: float
) -> float:
    """Return the gap of the lower of two points of the hull, -u and u pixels aside and v up."""
    sine, cosine = UNIT * hull[0], UNIT * hull[1]
    x, y, ax, ay = x - v * sine, y + v * cosine, u * cosine, u * sine
    return min(gap_at(ground, x - ax, y - ay), gap_at(ground, x + ax, y + ay))


def hull_gap(x: float, y: float, angle: float, ground: TerrainNode) -> float:
    """Return the distance of the hull from the ground, or from a peak below it (m)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    foot = hull_pair(x, y, ground, (sine, cosine), 17.0, -10.0)
    side = hull_pair(x, y, ground, (sine, cosine), 17.0, 0.0)
    top = hull_pair(x, y, ground, (sine, cosine), 14.0, 17.0)
    dx, dy = ground.x - x, ground.y - y
    u, v = abs(dx * cosine + dy * sine), dy * cosine - dx * sine
    peak = max(u - 17.0 * UNIT, max(-10.0 * UNIT - v, v - 17.0 * UNIT))
    return min(min(foot, side), min(top, peak))


class PinnedBody(NamedTuple):
    """A body: centre of mass from the pin, sine and cosine of the angle, mass / inertia there."""

    x: float
    y: float
    sine: float
    cosine: float
    ratio: float


def hull_body(angle: float) -> PinnedBody:
    """Return the hull at an angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    return PinnedBody(
        -HULL_CENTRE * sine, HULL_CENTRE * cosine, sine, cosine, HULL_MASS / HULL_MOMENT
    )


def leg_body(angle: float, side: float) -> PinnedBody:
    """Return the right leg (`side` is 1), or the left one (-1), at an angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    x, y = side * LEG_X * cosine + LEG_Y * sine, side * LEG_X * sine - LEG_Y * cosine
    return PinnedBody(x, y, sine, cosine, LEG_MASS / LEG_MOMENT)


def spin_from_pin(body: PinnedBody, vx: float, vy: float) -> float:
    """Return the spin that a body gains when its pin gains a velocity."""
    return body.ratio * (body.y * vx - body.x * vy)


class Mass(NamedTuple):
    """Inverse mass of the pin, with all that hangs on it (1/kg)."""

    xx: float
    xy: float
    yy: float


def pin_mass(hull: PinnedBody, right: PinnedBody, left: PinnedBody) -> Mass:
    """Return the inverse mass of the pin, to which all three bodies are free to turn."""
    hull_share, leg_share = HULL_MASS * hull.ratio, LEG_MASS * right.ratio
    xx = MASS - hull_share * hull.y * hull.y - leg_share * (right.y * right.y + left.y * left.y)
    xy = hull_share * hull.x * hull.y + leg_share * (right.x * right.y + left.x * left.y)
    yy = MASS - hull_share * hull.x * hull.x - leg_share * (right.x * right.x + left.x * left.x)
    area = xx * yy - xy * xy
    return Mass(yy / area, -xy / area, xx / area)


class Motion(NamedTuple):
    """Velocity of the pin, and spins of the bodies; or changes of these."""

    vx: float
    vy: float
    hull: float
    right: float
    left: float


class Row(NamedTuple):
    """An impulse of 1 N s at a corner, or of 1 N m s at a hinge.

    Attributes:
        gx, gy: part of the impulse that acts on the pin; by symmetry also the velocity along the
            row for each unit of the pin's velocity.
        vx, vy: velocity that the impulse gives the pin.
        turn: angular impulse on the leg, about the pin.
    """

    gx: float
    gy: float
    vx: float
    vy: float
    turn: float


def make_row(mass: Mass, gx: float, gy: float, turn: float) -> Row:
    """Return the row of an impulse of which (gx, gy) acts on the pin."""
    return Row(gx, gy, mass.xx * gx + mass.xy * gy, mass.xy * gx + mass.yy * gy, turn)


def corner_row(mass: Mass, leg: PinnedBody, dx: float, dy: float, x: float, y: float) -> Row:
    """Return the row of an impulse (dx, dy) on a leg, at (x, y) from the pin."""
    turn = x * dy - y * dx
    return make_row(mass, dx + leg.ratio * leg.y * turn, dy - leg.ratio * leg.x * turn, turn)


def response(a: Row, b: Row) -> float:
    """Return the speed along row `a` by a unit impulse along row `b` of the same leg."""
    return a.gx * b.vx + a.gy * b.vy + a.turn * b.turn / LEG_MOMENT


class LegVector(NamedTuple):
    """Three numbers of a leg: impulses along its normal, tangent and hinge rows, or speeds."""

    normal: float
    tangent: float
    hinge: float


class Responses(NamedTuple):
    """Speed along one row of a leg by a unit impulse along another: normal, tangent, hinge."""

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
        arm_n, arm_r: lever arms of normal and tangent about the leg's centre of mass (m).
        flush: sine of the angle between the leg's foot and the ground.
    """

    x: float
    gap: float
    arm_n: float
    arm_r: float
    flush: float


class LegRows(NamedTuple):
    """Rows of a leg, the speeds along them without impulses, and its lowest corner."""

    normal: Row
    tangent: Row
    hinge: Row
    responses: Responses
    speed: LegVector
    corner: Corner


def make_leg(
    x: float,
    y: float,
    ground: TerrainNode,
    mass: Mass,
    motion: Motion,
    hull: PinnedBody,
    leg: PinnedBody,
    side: float,
) -> LegRows:
    """Return the leg on a side (1 right, -1 left) of a pin at (x, y); `motion` lacks impulses."""
    slope = slope_at(ground, x + leg.x)
    u = -HALF_WIDTH if leg.sine > slope * leg.cosine else HALF_WIDTH
    v = -HALF_LENGTH if leg.cosine + slope * leg.sine > 0.0 else HALF_LENGTH
    ax, ay = u * leg.cosine - v * leg.sine, u * leg.sine + v * leg.cosine
    cx, cy = leg.x + ax, leg.y + ay
    slope = slope_at(ground, x + cx)
    ny = 1.0 / math.sqrt(1.0 + slope * slope)
    nx = -slope * ny
    normal, tangent = corner_row(mass, leg, nx, ny, cx, cy), corner_row(mass, leg, ny, -nx, cx, cy)
    hx, hy = leg.ratio * leg.x - hull.ratio * hull.x, leg.ratio * leg.y - hull.ratio * hull.y
    hinge = make_row(mass, side * hy, -side * hx, side)
    nn, nr, rr = response(normal, normal), response(normal, tangent), response(tangent, tangent)
    nh, rh = response(normal, hinge), response(tangent, hinge)
    responses = Responses(nn, nr, rr, nh, rh, response(hinge, hinge) + 1.0 / HULL_MOMENT)
    spin = motion.right if side > 0.0 else motion.left
    speed = LegVector(
        nx * motion.vx + ny * motion.vy + normal.turn * spin,
        ny * motion.vx - nx * motion.vy + tangent.turn * spin,
        side * (spin - motion.hull),
    )
    gap = gap_at(ground, x + cx, y + cy) if abs(x + cx) < WIDTH else 1.0
    flush = abs(leg.cosine * nx + leg.sine * ny)
    corner = Corner(x + cx, gap, ax * ny - ay * nx, -ax * nx - ay * ny, flush)
    return LegRows(normal, tangent, hinge, responses, speed, corner)


# ---------------------------------------------------------------- impulses


class HingeLimit(NamedTuple):
    """A motor or stop in one step: it wants the speed `target`, by an impulse in [low, high].

    It starts from `start` and goes `gain` of the way to what is needed, but not above `creep`;
    where `high` is FAR a stop gives what is needed.
    """

    target: float
    start: float
    gain: float
    low: float
    high: float
    creep: float


def motor_hinge(responses: Responses, on: bool, opening: float, impulse: float) -> HingeLimit:
    """Return the hinge of a leg: its motor, or a stop at either end of its way.

    Box2D's iterations come the nearer to a motor's speed the lighter the leg turns: a leg in the
    air reaches it, one that carries the lander (`on` the ground) goes a third of the way.
    """
    inner, outer = opening <= 0.0, opening >= OPENING
    stiffness = responses.hh - (responses.nh * responses.nh / responses.nn if on else 0.0)
    gain = 1.0 if outer else 1.0 - math.exp(-MOTOR_REACH * stiffness)
    low = -FAR if outer else -MOTOR_IMPULSE
    high = FAR if inner else (-MOTOR_IMPULSE if outer else MOTOR_IMPULSE)
    creep = impulse + MOTOR_REACH * MOTOR_SPEED if inner else FAR
    return HingeLimit(0.0 if inner | outer else MOTOR_SPEED, impulse, gain, low, high, creep)


def next_motor_impulse(
    turn: float, opening: float, impulse: float, hits: bool, opens: float
) -> float:
    """Return the impulse from which a motor starts in the next step.

    It lacks what the stop holds, and is 0 where a leg hits the ground and opens.
    """
    creep = min(turn, impulse + MOTOR_REACH * MOTOR_SPEED)
    bounded = max(creep if opening <= 0.0 else turn, -MOTOR_IMPULSE)
    return 0.0 if hits & (opens > 0.0) else bounded


def coulomb(
    nn: float, nt: float, tt: float, vn: float, vt: float, friction: float
) -> tuple[float, float]:
    """Return the impulses that stop a point, or let it slide where friction does not hold it.

    A leg may be jammed, so that friction alone presses it down: what the normal impulse has to
    bear by it is bounded, or sweeps diverge.

    Args:
        nn: speed along the normal by a unit impulse along it.
        nt: speed along the tangent by a unit impulse along the normal, or the other way round.
        tt: speed along the tangent by a unit impulse along it.
        vn: speed along the normal without the impulses.
        vt: speed along the tangent without them.
        friction: coefficient.
    """
    area = nn * tt - nt * nt
    normal, tangent = (nt * vt - tt * vn) / area, (nt * vn - nn * vt) / area
    drag = friction if tangent > 0.0 else -friction
    sliding = max(-vn / max(nn + drag * nt, 0.2 * nn), 0.0)
    slides = abs(tangent) > friction * normal
    return sliding if slides else normal, drag * sliding if slides else tangent


def leg_impulses(
    a: Responses, on: bool, speed: LegVector, hinge: HingeLimit, friction: float
) -> LegVector:
    """Return the impulses on one leg, which moves at `speed` without them.

    The contact is solved twice: with a hinge that reaches its target, which says what impulse the
    hinge needs, and with the impulse that the hinge can give.
    """
    hold, an, ar = (hinge.target - speed.hinge) / a.hh, a.nh / a.hh, a.rh / a.hh
    vn, vr = speed.normal + a.nh * hold, speed.tangent + a.rh * hold
    nn, nr, rr = a.nn - an * a.nh, a.nr - an * a.rh, a.rr - ar * a.rh
    normal, tangent = coulomb(nn, nr, rr, vn, vr, friction)
    needed = hold - (an * normal + ar * tangent if on else 0.0)
    turn = min(hinge.start + hinge.gain * (needed - hinge.start), hinge.creep)
    turn = max(turn, hinge.low)
    turn = max(needed, turn) if hinge.high == FAR else min(turn, hinge.high)
    vn, vr = speed.normal + a.nh * turn, speed.tangent + a.rh * turn
    normal, tangent = coulomb(a.nn, a.nr, a.rr, vn, vr, friction)
    return LegVector(normal if on else 0.0, tangent if on else 0.0, turn)


def pin_speed(leg: LegRows, p: LegVector) -> tuple[float, float]:
    """Return the velocity that impulses on a leg give the pin."""
    return (
        leg.normal.vx * p.normal + leg.tangent.vx * p.tangent + leg.hinge.vx * p.hinge,
        leg.normal.vy * p.normal + leg.tangent.vy * p.tangent + leg.hinge.vy * p.hinge,
    )


def coupled_speed(leg: LegRows, speed: LegVector, other: LegRows, p: LegVector) -> LegVector:
    """Return the speeds along the rows of a leg, at `speed` before impulses on the other leg."""
    vx, vy = pin_speed(other, p)
    return LegVector(
        speed.normal + leg.normal.gx * vx + leg.normal.gy * vy,
        speed.tangent + leg.tangent.gx * vx + leg.tangent.gy * vy,
        speed.hinge + leg.hinge.gx * vx + leg.hinge.gy * vy - p.hinge / HULL_MOMENT,
    )


class Constraints(NamedTuple):
    """Contacts of both legs, their hinges, and the ground's friction."""

    on_right: bool
    on_left: bool
    right: HingeLimit
    left: HingeLimit
    friction: float


def sweep(
    right: LegRows,
    left: LegRows,
    speed_r: LegVector,
    speed_l: LegVector,
    constraints: Constraints,
    b: LegVector,
) -> tuple[LegVector, LegVector]:
    """Return impulses on the right leg, by those `b` on the left one, and then on the left leg."""
    speed = coupled_speed(right, speed_r, left, b)
    a = leg_impulses(
        right.responses, constraints.on_right, speed, constraints.right, constraints.friction
    )
    speed = coupled_speed(left, speed_l, right, a)
    return a, leg_impulses(
        left.responses, constraints.on_left, speed, constraints.left, constraints.friction
    )


def leg_spin(leg: LegRows, p: LegVector) -> float:
    """Return the spin that impulses on a leg give it while the pin rests."""
    turn = leg.normal.turn * p.normal + leg.tangent.turn * p.tangent + leg.hinge.turn * p.hinge
    return turn / LEG_MOMENT


# ---------------------------------------------------------------- the end of a step


class LegEnd(NamedTuple):
    """A leg after a step: gap, opening, and whether it hit the ground within the step."""

    gap: float
    opening: float
    hits: bool


def impact_turn(corner: Corner, gap: float, tangent: float, turn: float) -> float:
    """Return the angle by which a leg turns when its corner hits the ground within a step.

    At most it lifts the corner, which a turn of the leg moves `turn` m/rad, back to the ground.
    """
    n, r = corner.arm_n, corner.arm_r
    nn, rr = 1.0 / LEG_MASS + n * n / LEG_INERTIA, 1.0 / LEG_MASS + r * r / LEG_INERTIA
    a, b = coulomb(nn, n * r / LEG_INERTIA, rr, (gap - corner.gap) / DT, tangent, FRICTION)
    time = DT * (REST - gap) / max(corner.gap - gap, 0.001)
    angle = (n * a + r * b) / LEG_INERTIA * time
    angle = min(max(angle, -corner.flush), corner.flush)
    return (REST - gap) / turn if angle * turn > REST - gap else angle


def end_leg(leg: LegRows, speed: LegVector, p: LegVector, opening: float, spin: float) -> LegEnd:
    """Return a leg after a step: `speed` lacks impulses `p`, and it spins against the hull."""
    a = leg.responses
    normal = speed.normal + a.nn * p.normal + a.nr * p.tangent + a.nh * p.hinge
    tangent = speed.tangent + a.nr * p.normal + a.rr * p.tangent + a.rh * p.hinge
    gap = leg.corner.gap + DT * normal
    hits = (leg.corner.gap >= SKIN) & (gap < REST)
    angle = DT * spin + (impact_turn(leg.corner, gap, tangent, leg.normal.turn) if hits else 0.0)
    return LegEnd(gap, opening + leg.hinge.turn * angle, hits)


def stop_hinge(end: LegEnd) -> HingeLimit:
    """Return the hinge that brings a leg back to the nearer stop, unless it just hit."""
    inner = end.opening < 0.5 * OPENING
    target = -SLOP if inner else OPENING + SLOP
    low = 0.0 if inner | end.hits else -FAR
    high = 0.5 * FAR if inner & (not end.hits) else 0.0
    return HingeLimit(target, 0.0, 1.0, low, high, FAR)


def velocity_change(
    hull: PinnedBody,
    right: PinnedBody,
    left: PinnedBody,
    legs: tuple[LegRows, LegRows],
    a: LegVector,
    b: LegVector,
) -> Motion:
    """Return the change of motion by impulses `a` on the right leg and `b` on the left one."""
    (ax, ay), (bx, by) = pin_speed(legs[0], a), pin_speed(legs[1], b)
    vx, vy = ax + bx, ay + by
    return Motion(
        vx,
        vy,
        (b.hinge - a.hinge) / HULL_MOMENT + spin_from_pin(hull, vx, vy),
        leg_spin(legs[0], a) + spin_from_pin(right, vx, vy),
        leg_spin(legs[1], b) + spin_from_pin(left, vx, vy),
    )
