"""The lander of LunarLander: a hull and two legs that turn about one pin, and touch the ground.

Source: Catto (2009), "Modeling and solving constraints", Game Developers Conference; the shapes and
numbers are those of Gymnasium's LunarLander, what is said of Box2D is about its version 2.3.

Velocities obey both hinges exactly. Each leg touches the ground with its lowest corner. `sweep`
finds the impulses on one leg exactly, then on the other: three sweeps are enough, since they start
from those of the step before, where Box2D takes 180 iterations over hinges and corners one by one.
Agents learn by what Box2D's iterations leave undone, so that it is imitated: a motor reaches its
speed only slowly (`motor_hinge`), a leg that hits the ground moves on as if it hung on nothing
(`impact_turn`), and a corner that sank in is lifted out over several steps (`LIFT`).

Terms and letters:

- **pin**: the point at which hull and legs are hinged together. A body's position is that of its
  centre of mass from the pin, and its moment of inertia is about the pin.
- **spin**: an angular velocity (rad/s), to the left if positive. **opening**: the angle of a leg
  from its inner stop (rad). **side**: 1 for the right leg, -1 for the left one.
- **gap**: the distance of a point from the ground (m), negative within it.
- **row**: one scalar constraint, as in a row of the constraint matrix: the directions in which an
  impulse acts. A leg has three: along the ground's *normal* and *tangent* at its lowest corner, and
  about its *hinge*. Variables n, t and h stand for them: `nt` is the speed along the tangent by a
  unit impulse along the normal, and by symmetry the other way round.
- A name that ends in _r belongs to the right leg, one in _l to the left one.
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
    """Return the height (m) of terrain node k, a whole number from 0 to 10 from left to right.

    Nodes 4, 5 and 6 are the pad; beyond the ends the first and the last height go on.
    """
    y = nodes[1] if k > 0.5 else nodes[0]
    y = nodes[2] if k > 1.5 else y
    y = nodes[3] if k > 2.5 else y
    y = PAD if k > 3.5 else y
    y = nodes[4] if k > 6.5 else y
    y = nodes[5] if k > 7.5 else y
    y = nodes[6] if k > 8.5 else y
    return nodes[7] if k > 9.5 else y


def find_ground(nodes: Nodes, x: float) -> TerrainNode:
    """Return the terrain node nearest to a pin at x (m), and the slopes on both of its sides."""
    k = min(max(math.floor(x / SPACING + 5.5), 0.0), 10.0)
    y, left, right = node_height(nodes, k), node_height(nodes, k - 1.0), node_height(nodes, k + 1.0)
    return TerrainNode((k - 5.0) * SPACING, y, (y - left) / SPACING, (right - y) / SPACING)


def slope_at(ground: TerrainNode, x: float) -> float:
    """Return the slope of the ground at x, before or after its node."""
    return ground.before if x < ground.x else ground.after


def gap_at(ground: TerrainNode, x: float, y: float) -> float:
    """Return the distance of a point from the ground (m), negative if it is below."""
    slope = slope_at(ground, x)
    return (y - ground.y - slope * (x - ground.x)) / math.sqrt(1.0 + slope * slope)


def hull_pair(
    x: float, y: float, ground: TerrainNode, hull: tuple[float, float], aside: float, up: float
) -> float:
    """Return the gap of the lower one of two mirrored corners of the hull (m), its pin at (x, y).

    The hull is given by sine and cosine of its angle. Both corners are `aside` from its axis, and
    `up` from the pin along the axis, in `UNIT`.
    """
    sine, cosine = UNIT * hull[0], UNIT * hull[1]
    x, y, ax, ay = x - up * sine, y + up * cosine, aside * cosine, aside * sine
    return min(gap_at(ground, x - ax, y - ay), gap_at(ground, x + ax, y + ay))


def hull_gap(x: float, y: float, angle: float, ground: TerrainNode) -> float:
    """Return the distance of the hull from the ground (m), its pin at (x, y).

    The smallest of the gaps of its six corners, and of the distance from the terrain node, which
    may be a peak between two corners, to the hull's bounding box.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    # Corners of Gymnasium's hull, in `UNIT`: (17, -10), (17, 0), (14, 17), and mirrored.
    foot = hull_pair(x, y, ground, (sine, cosine), 17.0, -10.0)
    side = hull_pair(x, y, ground, (sine, cosine), 17.0, 0.0)
    top = hull_pair(x, y, ground, (sine, cosine), 14.0, 17.0)
    dx, dy = ground.x - x, ground.y - y
    node_aside, node_up = abs(dx * cosine + dy * sine), dy * cosine - dx * sine
    node = max(node_aside - 17.0 * UNIT, max(-10.0 * UNIT - node_up, node_up - 17.0 * UNIT))
    return min(min(foot, side), min(top, node))


class PinnedBody(NamedTuple):
    """The hull or a leg, hinged at the pin, at one angle."""

    x: float  # m, from the pin to the centre of mass
    y: float
    sine: float  # of its angle
    cosine: float
    ratio: float  # 1/m^2, mass / moment of inertia about the pin


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
    """Return the spin that a body gains (rad/s) when its pin gains a velocity (m/s).

    The pin pulls the centre of mass along, which lags behind by its inertia.
    """
    return body.ratio * (body.y * vx - body.x * vy)


class Mass(NamedTuple):
    """The symmetric matrix by which an impulse on the pin gives it a velocity (1/kg)."""

    xx: float
    xy: float
    yy: float


def pin_mass(hull: PinnedBody, right: PinnedBody, left: PinnedBody) -> Mass:
    """Return the inverse mass that an impulse on the pin meets (1/kg).

    It is a symmetric matrix, since bodies that turn give way more easily across their arms. The
    inverse of total mass less what each body saves by turning.
    """
    hull_share, leg_share = HULL_MASS * hull.ratio, LEG_MASS * right.ratio
    xx = MASS - hull_share * hull.y * hull.y - leg_share * (right.y * right.y + left.y * left.y)
    xy = hull_share * hull.x * hull.y + leg_share * (right.x * right.y + left.x * left.y)
    yy = MASS - hull_share * hull.x * hull.x - leg_share * (right.x * right.x + left.x * left.x)
    determinant = xx * yy - xy * xy
    return Mass(yy / determinant, -xy / determinant, xx / determinant)


class Motion(NamedTuple):
    """Velocity of the pin, and spins of the bodies; or changes of these."""

    vx: float
    vy: float
    hull: float
    right: float
    left: float


class Row(NamedTuple):
    """Effects of a unit impulse along a row: 1 N s at a corner, or 1 N m s at a hinge.

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
    """Return the row of an impulse whose part (gx, gy) acts on the pin (N s), `turn` on the leg."""
    return Row(gx, gy, mass.xx * gx + mass.xy * gy, mass.xy * gx + mass.yy * gy, turn)


def corner_row(mass: Mass, leg: PinnedBody, dx: float, dy: float, x: float, y: float) -> Row:
    """Return the row of a unit impulse in direction (dx, dy) on a leg, at (x, y) from the pin."""
    turn = x * dy - y * dx
    return make_row(mass, dx + leg.ratio * leg.y * turn, dy - leg.ratio * leg.x * turn, turn)


def response(row: Row, impulse: Row) -> float:
    """Return the speed along a row by a unit impulse along another row of the same leg."""
    return row.gx * impulse.vx + row.gy * impulse.vy + row.turn * impulse.turn / LEG_MOMENT


class LegVector(NamedTuple):
    """Three numbers of a leg: impulses along its normal, tangent and hinge rows, or speeds."""

    normal: float
    tangent: float
    hinge: float


class Responses(NamedTuple):
    """Speeds along rows of a leg by unit impulses: `nt` along the tangent by one on the normal.

    A symmetric matrix; n, t and h stand for normal, tangent and hinge.
    """

    nn: float
    nt: float
    tt: float
    nh: float
    th: float
    hh: float


class Corner(NamedTuple):
    """A leg's lowest corner.

    Attributes:
        x: where it is (m).
        gap: its distance from the ground (m).
        arm_n, arm_t: lever arms of normal and tangent about the leg's centre of mass (m).
        flush: sine of the angle between the leg's foot and the ground.
    """

    x: float
    gap: float
    arm_n: float
    arm_t: float
    flush: float


class LegRows(NamedTuple):
    """Rows of a leg, speeds along them without impulses, its lowest corner, and if that touches."""

    normal: Row
    tangent: Row
    hinge: Row
    responses: Responses
    speed: LegVector
    corner: Corner
    touches: bool


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
    """Return the rows of the right leg (`side` is 1) or the left one (-1), and speeds along them.

    The pin is at (x, y), near the ground's node; `motion` is as it would be without impulses of the
    ground and of hinges.
    """
    # The lowest corner: (ax, ay) from the leg's centre, (cx, cy) from the pin.
    slope = slope_at(ground, x + leg.x)
    across = -HALF_WIDTH if leg.sine > slope * leg.cosine else HALF_WIDTH
    along = -HALF_LENGTH if leg.cosine + slope * leg.sine > 0.0 else HALF_LENGTH
    ax, ay = across * leg.cosine - along * leg.sine, across * leg.sine + along * leg.cosine
    cx, cy = leg.x + ax, leg.y + ay
    # The normal (nx, ny) of the ground there, and the tangent (ny, -nx).
    slope = slope_at(ground, x + cx)
    ny = 1.0 / math.sqrt(1.0 + slope * slope)
    nx = -slope * ny
    normal, tangent = corner_row(mass, leg, nx, ny, cx, cy), corner_row(mass, leg, ny, -nx, cx, cy)
    # The hinge turns the leg outwards and the hull the other way.
    hx, hy = leg.ratio * leg.x - hull.ratio * hull.x, leg.ratio * leg.y - hull.ratio * hull.y
    hinge = make_row(mass, side * hy, -side * hx, side)
    nn, nt, tt = response(normal, normal), response(normal, tangent), response(tangent, tangent)
    nh, th = response(normal, hinge), response(tangent, hinge)
    responses = Responses(nn, nt, tt, nh, th, response(hinge, hinge) + 1.0 / HULL_MOMENT)
    spin = motion.right if side > 0.0 else motion.left
    speed = LegVector(
        nx * motion.vx + ny * motion.vy + normal.turn * spin,
        ny * motion.vx - nx * motion.vy + tangent.turn * spin,
        side * (spin - motion.hull),
    )
    gap = gap_at(ground, x + cx, y + cy) if abs(x + cx) < WIDTH else 1.0
    flush = abs(leg.cosine * nx + leg.sine * ny)
    arm_n, arm_t = ax * ny - ay * nx, -ax * nx - ay * ny  # (ax, ay) cross normal, and cross tangent
    corner = Corner(x + cx, gap, arm_n, arm_t, flush)
    return LegRows(normal, tangent, hinge, responses, speed, corner, gap < SKIN)


# ---------------------------------------------------------------- impulses


class HingeLimit(NamedTuple):
    """Impulse of a leg's motor, or of the stop at either end of its way, in one step.

    `leg_impulses` computes its impulse from this. Positive ones open the leg.
    """

    target: float  # rad/s, speed of opening that it wants
    start: float  # N m s, impulse from which it starts
    gain: float  # share of the way from `start` to the impulse that gives `target`
    low: float  # N m s, bounds of the impulse; FAR: none, it gives what `target` needs
    high: float
    creep: float  # N m s, another upper bound, where the motor pushes against the inner stop


def motor_hinge(leg: LegRows, opening: float, impulse: float) -> HingeLimit:
    """Return what a leg's hinge does: its motor, or the stop that it has reached.

    Box2D's iterations come the nearer to a motor's speed the lighter the leg turns: a leg in the
    air reaches it, one that carries the lander goes a third of the way. `opening` is the leg's
    angle (rad), with stops at 0 and `OPENING`; `impulse` that of the motor from which it starts (N
    m s).
    """
    inner, outer = opening <= 0.0, opening >= OPENING
    responses = leg.responses
    stiffness = responses.hh - (responses.nh * responses.nh / responses.nn if leg.touches else 0.0)
    gain = 1.0 if outer else 1.0 - math.exp(-MOTOR_REACH * stiffness)
    low = -FAR if outer else -MOTOR_IMPULSE
    high = FAR if inner else (-MOTOR_IMPULSE if outer else MOTOR_IMPULSE)
    creep = impulse + MOTOR_REACH * MOTOR_SPEED if inner else FAR
    return HingeLimit(0.0 if inner | outer else MOTOR_SPEED, impulse, gain, low, high, creep)


def next_motor_impulse(
    turn: float, opening: float, impulse: float, hits: bool, opens: float
) -> float:
    """Return the impulse from which a motor starts in the next step (N m s).

    Args:
        turn: impulse of the hinge in this step, that of a stop included, which is taken off.
        opening: angle of the leg before this step (rad).
        impulse: of the motor before this step.
        hits: whether the leg hit the ground in this step.
        opens: angle of the leg after this step; if it hits and is open, the motor starts from 0.
    """
    creep = min(turn, impulse + MOTOR_REACH * MOTOR_SPEED)
    bounded = max(creep if opening <= 0.0 else turn, -MOTOR_IMPULSE)
    return 0.0 if hits & (opens > 0.0) else bounded


def coulomb(
    nn: float, nt: float, tt: float, vn: float, vt: float, friction: float
) -> tuple[float, float]:
    """Return the impulses (normal, tangent) that stop a point, or let it slide: Coulomb's friction.

    Without them the point has the speeds `vn` and `vt`. Unit impulses change these by the symmetric
    matrix (nn, nt; nt, tt), which Cramer's rule inverts. The point slides where the tangent impulse
    that stops it is greater than friction allows. A leg may be jammed, so that friction alone
    presses it down: what the normal impulse has to bear by it is bounded (0.2), or sweeps diverge.
    """
    determinant = nn * tt - nt * nt
    normal, tangent = (nt * vt - tt * vn) / determinant, (nt * vn - nn * vt) / determinant
    drag = friction if tangent > 0.0 else -friction
    sliding = max(-vn / max(nn + drag * nt, 0.2 * nn), 0.0)
    slides = abs(tangent) > friction * normal
    return sliding if slides else normal, drag * sliding if slides else tangent


def leg_impulses(leg: LegRows, speed: LegVector, hinge: HingeLimit, friction: float) -> LegVector:
    """Return the impulses on one leg, whose speeds are `speed` without them.

    The contact is solved twice: with a hinge that reaches its target, which says what impulse the
    hinge needs, and with the impulse that the hinge can give. In the air only the hinge has an
    impulse.
    """
    # With the hinge at its target: `stop` is its impulse without contact, and the contact sees
    # responses nn, nt and tt that are less by what the hinge then takes up (Schur complement).
    responses, on = leg.responses, leg.touches
    n_share, t_share = responses.nh / responses.hh, responses.th / responses.hh
    stop = (hinge.target - speed.hinge) / responses.hh
    vn, vt = speed.normal + responses.nh * stop, speed.tangent + responses.th * stop
    nn, nt = responses.nn - n_share * responses.nh, responses.nt - n_share * responses.th
    tt = responses.tt - t_share * responses.th
    normal, tangent = coulomb(nn, nt, tt, vn, vt, friction)
    needed = stop - (n_share * normal + t_share * tangent if on else 0.0)
    # With the impulse that the hinge can give.
    turn = min(hinge.start + hinge.gain * (needed - hinge.start), hinge.creep)
    turn = max(turn, hinge.low)
    turn = max(needed, turn) if hinge.high == FAR else min(turn, hinge.high)
    vn, vt = speed.normal + responses.nh * turn, speed.tangent + responses.th * turn
    normal, tangent = coulomb(responses.nn, responses.nt, responses.tt, vn, vt, friction)
    return LegVector(normal if on else 0.0, tangent if on else 0.0, turn)


def pin_speed(leg: LegRows, impulses: LegVector) -> tuple[float, float]:
    """Return the velocity that impulses on a leg give the pin (m/s)."""
    n, t, h = impulses
    return (
        leg.normal.vx * n + leg.tangent.vx * t + leg.hinge.vx * h,
        leg.normal.vy * n + leg.tangent.vy * t + leg.hinge.vy * h,
    )


def coupled_speed(leg: LegRows, speed: LegVector, other: LegRows, impulses: LegVector) -> LegVector:
    """Return the speeds along the rows of a leg after impulses on the other leg; `speed` is before.

    They move the pin, by (vx, vy), which moves along the leg's rows by their (gx, gy); and that of
    the hinge turns the hull against the leg.
    """
    vx, vy = pin_speed(other, impulses)
    return LegVector(
        speed.normal + leg.normal.gx * vx + leg.normal.gy * vy,
        speed.tangent + leg.tangent.gx * vx + leg.tangent.gy * vy,
        speed.hinge + leg.hinge.gx * vx + leg.hinge.gy * vy - impulses.hinge / HULL_MOMENT,
    )


def sweep(
    right: LegRows,
    left: LegRows,
    speeds: tuple[LegVector, LegVector],
    hinges: tuple[HingeLimit, HingeLimit],
    friction: float,
    impulses_l: LegVector,
) -> tuple[LegVector, LegVector]:
    """Return the impulses on the right leg and those on the left one, after one sweep.

    Speeds, along the legs' rows without impulses, and hinges are the right and the left leg's.
    `impulses_l` are those on the left leg before the sweep, by which the right leg's are found.
    """
    speed = coupled_speed(right, speeds[0], left, impulses_l)
    impulses_r = leg_impulses(right, speed, hinges[0], friction)
    speed = coupled_speed(left, speeds[1], right, impulses_r)
    return impulses_r, leg_impulses(left, speed, hinges[1], friction)


def leg_spin(leg: LegRows, impulses: LegVector) -> float:
    """Return the spin that impulses on a leg give it while the pin rests (rad/s)."""
    n, t, h = impulses
    return (leg.normal.turn * n + leg.tangent.turn * t + leg.hinge.turn * h) / LEG_MOMENT


# ---------------------------------------------------------------- the end of a step


class LegEnd(NamedTuple):
    """A leg after a step: gap, opening, and whether it hit the ground within the step."""

    gap: float
    opening: float
    hits: bool


def impact_turn(corner: Corner, gap: float, tangent: float, turn: float) -> float:
    """Return the angle by which a leg turns when its corner hits the ground within a step (rad).

    The leg alone, as if it hung on nothing, takes the impulses that stop its corner, and turns by
    them for what is left of the step: until its foot is flush with the ground at most. `corner` is
    that before the step, `gap` where it would be after it without impact (m), `tangent` its speed
    along the ground (m/s), and `turn` by how much it rises when the leg turns (m/rad): to the
    ground at most.
    """
    arm_n, arm_t = corner.arm_n, corner.arm_t
    nn = 1.0 / LEG_MASS + arm_n * arm_n / LEG_INERTIA
    tt = 1.0 / LEG_MASS + arm_t * arm_t / LEG_INERTIA
    fall = (gap - corner.gap) / DT
    impulse_n, impulse_t = coulomb(nn, arm_n * arm_t / LEG_INERTIA, tt, fall, tangent, FRICTION)
    time = DT * (REST - gap) / max(corner.gap - gap, 0.001)
    angle = (arm_n * impulse_n + arm_t * impulse_t) / LEG_INERTIA * time
    angle = min(max(angle, -corner.flush), corner.flush)
    return (REST - gap) / turn if angle * turn > REST - gap else angle


def end_leg(
    leg: LegRows, speed: LegVector, impulses: LegVector, opening: float, spin: float
) -> LegEnd:
    """Return a leg after a step, before corners are lifted out of the ground.

    `speed` is along its rows without its own impulses, `opening` its angle before the step (rad),
    `spin` against the hull's (rad/s).
    """
    responses, (n, t, h) = leg.responses, impulses
    normal = speed.normal + responses.nn * n + responses.nt * t + responses.nh * h
    tangent = speed.tangent + responses.nt * n + responses.tt * t + responses.th * h
    gap = leg.corner.gap + DT * normal
    hits = (leg.corner.gap >= SKIN) & (gap < REST)
    angle = DT * spin + (impact_turn(leg.corner, gap, tangent, leg.normal.turn) if hits else 0.0)
    return LegEnd(gap, opening + leg.hinge.turn * angle, hits)


def stop_hinge(end: LegEnd) -> HingeLimit:
    """Return the hinge that moves a leg which went beyond a stop back to it.

    It is solved for positions: in place of a speed and an impulse stand angles (rad), and what
    moves them. A leg that just hit the ground is left alone.
    """
    inner = end.opening < 0.5 * OPENING
    target = -SLOP if inner else OPENING + SLOP
    low = 0.0 if inner | end.hits else -FAR
    high = 0.5 * FAR if inner & (not end.hits) else 0.0
    return HingeLimit(target, 0.0, 1.0, low, high, FAR)


def velocity_change(
    hull: PinnedBody,
    right: PinnedBody,
    left: PinnedBody,
    rows: tuple[LegRows, LegRows],
    impulses_r: LegVector,
    impulses_l: LegVector,
) -> Motion:
    """Return the change of motion by the impulses on both legs, whose rows are (right, left)."""
    vx_r, vy_r = pin_speed(rows[0], impulses_r)
    vx_l, vy_l = pin_speed(rows[1], impulses_l)
    vx, vy = vx_r + vx_l, vy_r + vy_l
    return Motion(
        vx,
        vy,
        (impulses_l.hinge - impulses_r.hinge) / HULL_MOMENT + spin_from_pin(hull, vx, vy),
        leg_spin(rows[0], impulses_r) + spin_from_pin(right, vx, vy),
        leg_spin(rows[1], impulses_l) + spin_from_pin(left, vx, vy),
    )
