"""The lander of LunarLander: a hull and two legs that turn about one pin, and touch the ground.

Source: Catto (2009), "Modeling and solving constraints", Game Developers Conference; shapes and
numbers are those of Gymnasium's LunarLander; Box2D is its version 2.3.

**Terms.** The *pin* is the point at which hull and legs are hinged together. A body's position is
that of its centre of mass from the pin, and its moment of inertia is about the pin. A *spin* is an
angular velocity (rad/s), to the left if positive, an *opening* the angle of a leg from its inner
stop (rad), a *gap* the distance of a point from the ground (m), negative within it. A *side* is 1
for the right leg and -1 for the left one. Names that end in _r are of the right leg, in _l of the
left one.

**Impulses.** A body has mass m, moment of inertia I and its centre of mass at (x, y). An impulse
(jx, jy) on it and an angular impulse T about the pin change the pin's velocity by (vx, vy) and the
body's spin by w. Angular momentum about the pin, and momentum of all bodies, say that

    w = T / I + m / I (y vx - x vy)
    jx = sum of m (vx - y w),  jy = sum of m (vy + x w)

The first line in the second leaves two equations for the pin's velocity, of a symmetric matrix A:

    A (vx, vy) = (gx, gy),  gx = jx + m / I y T,  gy = jy - m / I x T

**Rows.** A *row* is one scalar constraint: a direction in which an impulse acts. A leg has three:
along the ground's *normal* and *tangent* at its lowest corner, with which alone it touches, and
about its *hinge*, which has a motor and stops. Letters n, t and h stand for them: `nt` is the speed
along the tangent by a unit impulse along the normal, and by symmetry the other way round.

**Solution.** `sweep` finds the impulses on one leg exactly, then those on the other: three sweeps
are enough, since they start from those of the step before, where Box2D takes 180 iterations over
hinges and corners one by one. Agents learn by what these iterations leave undone, so that it is
imitated: a motor reaches its speed only slowly (`motor_hinge`), a leg that hits the ground moves on
as if it hung on nothing (`impact_turn`), and a corner that sank in is lifted over several steps
(`LIFT`).
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
MOTOR_SPEED, MOTOR_IMPULSE = -0.3, 40.0 * DT  # rad/s, and N m s at most in one step
#: Each of Box2D's iterations gives a motor that part of its impulse which would bring hull and leg,
#: free of each other, to its speed: 180 such parts (kg m^2, by the speed that is missing).
MOTOR_REACH = 180.0 / (1.0 / HULL_INERTIA + 1.0 / LEG_INERTIA)
FRICTION = math.sqrt(0.1 * 0.2)
LIFT = 0.3  # of the depth of a corner is corrected in one step
UNBOUNDED = 1.0e9  # bound of an impulse that has none

WIDTH = 10.0  # m, half of the view, and of the terrain
SPACING = 2.0  # m, between the nodes of the terrain
PAD = -1.0 * UNIT  # m, height of the three nodes in the middle


# ---------------------------------------------------------------- the ground

#: Heights (m) of the terrain's nodes from left to right, but of the three in the middle.
Nodes = tuple[float, float, float, float, float, float, float, float]


class Ground(NamedTuple):
    """The ground around the pin: its nearest terrain node, and the slopes on both sides of that."""

    x: float  # m
    y: float
    slope_before: float
    slope_after: float


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


def find_ground(nodes: Nodes, x: float) -> Ground:
    """Return the ground around a pin at x (m)."""
    k = min(max(math.floor(x / SPACING + 5.5), 0.0), 10.0)  # the nearest node; 5 is at x = 0
    y, left, right = node_height(nodes, k), node_height(nodes, k - 1.0), node_height(nodes, k + 1.0)
    return Ground((k - 5.0) * SPACING, y, (y - left) / SPACING, (right - y) / SPACING)


def slope_at(ground: Ground, x: float) -> float:
    """Return the slope of the ground at x (m)."""
    return ground.slope_before if x < ground.x else ground.slope_after


def gap_at(ground: Ground, x: float, y: float) -> float:
    """Return the distance of a point from the ground (m), negative if it is below."""
    slope = slope_at(ground, x)
    return (y - ground.y - slope * (x - ground.x)) / math.sqrt(1.0 + slope * slope)


# ---------------------------------------------------------------- bodies


class Body(NamedTuple):
    """The hull or a leg, hinged at the pin, at one angle."""

    x: float  # m, from the pin to the centre of mass
    y: float
    sine: float  # of its angle
    cosine: float
    ratio: float  # 1/m^2, mass / moment of inertia about the pin


def hull_body(angle: float) -> Body:
    """Return the hull at an angle (rad)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    return Body(-HULL_CENTRE * sine, HULL_CENTRE * cosine, sine, cosine, HULL_MASS / HULL_MOMENT)


def leg_body(angle: float, side: float) -> Body:
    """Return a leg at an angle (rad)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    x, y = side * LEG_X * cosine + LEG_Y * sine, side * LEG_X * sine - LEG_Y * cosine
    return Body(x, y, sine, cosine, LEG_MASS / LEG_MOMENT)


def lower_gap(x: float, y: float, ground: Ground, hull: Body, aside: float, up: float) -> float:
    """Return the smaller gap of two mirrored corners of the hull (m), whose pin is at (x, y).

    The corners are `up` from the pin along the hull's axis, and `aside` from that, in `UNIT`.
    """
    sine, cosine = UNIT * hull.sine, UNIT * hull.cosine
    axis_x, axis_y, aside_x, aside_y = x - up * sine, y + up * cosine, aside * cosine, aside * sine
    left = gap_at(ground, axis_x - aside_x, axis_y - aside_y)
    return min(left, gap_at(ground, axis_x + aside_x, axis_y + aside_y))


def hull_gap(x: float, y: float, angle: float, ground: Ground) -> float:
    """Return the distance of the hull from the ground (m), its pin at (x, y).

    The smallest of the gaps of its six corners, and of the distance from the terrain node, which
    may be a peak between two corners, to the hull's bounding box.
    """
    hull = hull_body(angle)
    # Corners of Gymnasium's hull, in `UNIT`: (17, -10), (17, 0), (14, 17), and mirrored.
    foot = lower_gap(x, y, ground, hull, aside=17.0, up=-10.0)
    side = lower_gap(x, y, ground, hull, aside=17.0, up=0.0)
    top = lower_gap(x, y, ground, hull, aside=14.0, up=17.0)
    dx, dy = ground.x - x, ground.y - y
    node_aside, node_up = abs(dx * hull.cosine + dy * hull.sine), dy * hull.cosine - dx * hull.sine
    node = max(node_aside - 17.0 * UNIT, max(-10.0 * UNIT - node_up, node_up - 17.0 * UNIT))
    return min(min(foot, side), min(top, node))


class SymmetricMatrix(NamedTuple):
    """A symmetric matrix of two rows."""

    xx: float
    xy: float
    yy: float


class Lander(NamedTuple):
    """All bodies, and the matrix 1 / A (1/kg) that leads from (gx, gy) to the pin's velocity."""

    hull: Body
    right: Body
    left: Body
    inverse_mass: SymmetricMatrix


def make_lander(angle: float, opening_r: float, opening_l: float) -> Lander:
    """Return the lander whose hull is at an angle (rad)."""
    hull = hull_body(angle)
    right = leg_body(angle + CLOSED + opening_r, 1.0)
    left = leg_body(angle - CLOSED - opening_l, -1.0)
    # A: the whole mass, less what bodies save by turning where they are pushed across their arms.
    hull_share, leg_share = HULL_MASS * hull.ratio, LEG_MASS * right.ratio
    xx = MASS - hull_share * hull.y * hull.y - leg_share * (right.y * right.y + left.y * left.y)
    xy = hull_share * hull.x * hull.y + leg_share * (right.x * right.y + left.x * left.y)
    yy = MASS - hull_share * hull.x * hull.x - leg_share * (right.x * right.x + left.x * left.x)
    determinant = xx * yy - xy * xy
    inverse_mass = SymmetricMatrix(yy / determinant, -xy / determinant, xx / determinant)
    return Lander(hull, right, left, inverse_mass)


class Motion(NamedTuple):
    """Velocity of the pin (m/s), and spins of the bodies; or changes of these."""

    vx: float
    vy: float
    hull: float
    right: float
    left: float


def spin_from_pin(body: Body, vx: float, vy: float) -> float:
    """Return the spin that a body gains (rad/s) when its pin gains a velocity (m/s).

    The pin pulls the centre of mass along, which lags behind by its inertia.
    """
    return body.ratio * (body.y * vx - body.x * vy)


# ---------------------------------------------------------------- rows of a leg


class Row(NamedTuple):
    """Effects of a unit impulse along one row: 1 N s at a corner, or 1 N m s at a hinge."""

    gx: float  # see above; by symmetry also the speed along the row when the pin has speed 1 in x
    gy: float
    vx: float  # m/s, velocity that the impulse gives the pin
    vy: float
    moment: float  # N m s, angular impulse on the leg about the pin


def make_row(inverse_mass: SymmetricMatrix, gx: float, gy: float, moment: float) -> Row:
    """Return the row whose unit impulse is (gx, gy) for the pin, and has a moment on the leg."""
    vx, vy = (
        inverse_mass.xx * gx + inverse_mass.xy * gy,
        inverse_mass.xy * gx + inverse_mass.yy * gy,
    )
    return Row(gx, gy, vx, vy, moment)


class Corner(NamedTuple):
    """A leg's lowest corner, and the ground below it."""

    x: float  # m, in the world
    pin_x: float  # m, from the pin
    pin_y: float
    normal_x: float  # of the ground; its tangent is (normal_y, -normal_x)
    normal_y: float
    gap: float  # m
    touches: bool
    arm_n: float  # m, lever arms of normal and tangent about the leg's centre of mass
    arm_t: float
    flush: float  # sine of the angle between the leg's foot and the ground, nearly the angle (rad)


def find_corner(x: float, y: float, ground: Ground, leg: Body) -> Corner:
    """Return the lowest corner of a leg, whose pin is at (x, y)."""
    slope = slope_at(ground, x + leg.x)
    across = -HALF_WIDTH if leg.sine > slope * leg.cosine else HALF_WIDTH
    along = -HALF_LENGTH if leg.cosine + slope * leg.sine > 0.0 else HALF_LENGTH
    # From the leg's centre, and from the pin.
    dx, dy = across * leg.cosine - along * leg.sine, across * leg.sine + along * leg.cosine
    pin_x, pin_y = leg.x + dx, leg.y + dy
    slope = slope_at(ground, x + pin_x)
    normal_y = 1.0 / math.sqrt(1.0 + slope * slope)
    normal_x = -slope * normal_y
    # Beyond the terrain there is no ground: any gap greater than `SKIN` will do.
    gap = gap_at(ground, x + pin_x, y + pin_y) if abs(x + pin_x) < WIDTH else 1.0
    arm_n, arm_t = dx * normal_y - dy * normal_x, -dx * normal_x - dy * normal_y  # cross products
    flush = abs(leg.cosine * normal_x + leg.sine * normal_y)
    return Corner(x + pin_x, pin_x, pin_y, normal_x, normal_y, gap, gap < SKIN, arm_n, arm_t, flush)


def corner_row(
    inverse_mass: SymmetricMatrix, leg: Body, corner: Corner, dx: float, dy: float
) -> Row:
    """Return the row of a unit impulse in direction (dx, dy) on the corner of a leg."""
    moment = corner.pin_x * dy - corner.pin_y * dx
    gx, gy = dx + leg.ratio * leg.y * moment, dy - leg.ratio * leg.x * moment
    return make_row(inverse_mass, gx, gy, moment)


def response(row: Row, impulse: Row) -> float:
    """Return the speed along a row by a unit impulse along another row of the same leg.

    That of the hull, against which the hinge turns the leg, is left out.
    """
    return row.gx * impulse.vx + row.gy * impulse.vy + row.moment * impulse.moment / LEG_MOMENT


class Responses(NamedTuple):
    """Speeds along rows of a leg by unit impulses, a symmetric matrix."""

    nn: float
    nt: float
    tt: float
    nh: float
    th: float
    hh: float


class Leg(NamedTuple):
    """A leg's lowest corner, its rows, and what impulses along these do."""

    corner: Corner
    normal: Row
    tangent: Row
    hinge: Row
    responses: Responses


def make_leg(lander: Lander, leg: Body, corner: Corner, side: float) -> Leg:
    """Return a leg of a lander, with its rows."""
    hull, inverse_mass, nx, ny = lander.hull, lander.inverse_mass, corner.normal_x, corner.normal_y
    normal = corner_row(inverse_mass, leg, corner, nx, ny)
    tangent = corner_row(inverse_mass, leg, corner, ny, -nx)
    # The hinge turns the leg outwards, by the moment `side`, and the hull the other way.
    hx, hy = leg.ratio * leg.x - hull.ratio * hull.x, leg.ratio * leg.y - hull.ratio * hull.y
    hinge = make_row(inverse_mass, side * hy, -side * hx, side)
    nn, nt, tt = response(normal, normal), response(normal, tangent), response(tangent, tangent)
    nh, th = response(normal, hinge), response(tangent, hinge)
    hh = response(hinge, hinge) + 1.0 / HULL_MOMENT
    return Leg(corner, normal, tangent, hinge, Responses(nn, nt, tt, nh, th, hh))


class LegVector(NamedTuple):
    """Three numbers of a leg: impulses along its normal, tangent and hinge rows, or speeds."""

    normal: float
    tangent: float
    hinge: float


def row_speeds(leg: Leg, motion: Motion, spin: float) -> LegVector:
    """Return the speeds along the rows of a leg, which has a spin, in a motion of the lander."""
    nx, ny = leg.corner.normal_x, leg.corner.normal_y
    return LegVector(
        nx * motion.vx + ny * motion.vy + leg.normal.moment * spin,
        ny * motion.vx - nx * motion.vy + leg.tangent.moment * spin,
        leg.hinge.moment * (spin - motion.hull),
    )


# ---------------------------------------------------------------- impulses


class Hinge(NamedTuple):
    """Action of a leg's motor, or of a stop, in one step; positive impulses open the leg."""

    target: float  # rad/s, speed of opening that it wants
    start: float  # N m s, impulse from which it starts
    gain: float  # share of the way from `start` to the impulse that gives `target`
    low: float  # N m s, bounds of the impulse
    high: float
    is_inner_stop: bool  # whether it opens the leg to `target` at least, whatever that takes


def motor_hinge(leg: Leg, opening: float, impulse: float) -> Hinge:
    """Return what a leg's motor does, whose last impulse (N m s) is given, or the stop reached.

    Box2D's iterations come the nearer to a motor's speed the lighter the leg turns: a leg in the
    air reaches it, one that carries the lander goes a third of the way. Against the inner stop, the
    motor's impulse grows by `MOTOR_REACH` times its speed in each step.
    """
    at_inner, at_outer = opening <= 0.0, opening >= OPENING
    responses, touches = leg.responses, leg.corner.touches
    # Speed of the hinge by a unit impulse, while the ground holds a corner that touches.
    lightness = responses.hh - (responses.nh * responses.nh / responses.nn if touches else 0.0)
    high = -MOTOR_IMPULSE if at_outer else MOTOR_IMPULSE
    return Hinge(
        target=0.0 if at_inner | at_outer else MOTOR_SPEED,
        start=impulse,
        gain=1.0 if at_outer else 1.0 - math.exp(-MOTOR_REACH * lightness),
        low=-UNBOUNDED if at_outer else -MOTOR_IMPULSE,
        high=impulse + MOTOR_REACH * MOTOR_SPEED if at_inner else high,
        is_inner_stop=at_inner,
    )


def next_motor_impulse(hinge: Hinge, impulse: float, hits: bool, is_open: bool) -> float:
    """Return the impulse from which a motor starts in the next step (N m s).

    It is `impulse`, what the hinge gave in this step, without the part of a stop. If the leg hit
    the ground in this step and `is_open` after it, the motor starts from 0.
    """
    motor = min(impulse, hinge.high) if hinge.is_inner_stop else impulse
    return 0.0 if hits & is_open else max(motor, -MOTOR_IMPULSE)


def contact_impulses(
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


def leg_impulses(leg: Leg, speed: LegVector, hinge: Hinge, friction: float) -> LegVector:
    """Return the impulses on one leg, whose speeds along its rows are `speed` without them.

    The contact is solved twice: with a hinge that reaches its target, which says what impulse the
    hinge needs, and with the impulse that the hinge can give. In the air only the hinge has an
    impulse.
    """
    # With the hinge at its target: `alone` is its impulse without contact, and the contact sees
    # responses nn, nt and tt that are less by what the hinge then takes up (Schur complement).
    responses, touches = leg.responses, leg.corner.touches
    n_share, t_share = responses.nh / responses.hh, responses.th / responses.hh
    alone = (hinge.target - speed.hinge) / responses.hh
    vn, vt = speed.normal + responses.nh * alone, speed.tangent + responses.th * alone
    nn, nt = responses.nn - n_share * responses.nh, responses.nt - n_share * responses.th
    tt = responses.tt - t_share * responses.th
    normal, tangent = contact_impulses(nn, nt, tt, vn, vt, friction)
    needed = alone - (n_share * normal + t_share * tangent if touches else 0.0)
    # With the impulse that the hinge can give.
    turn = max(min(hinge.start + hinge.gain * (needed - hinge.start), hinge.high), hinge.low)
    turn = max(needed, turn) if hinge.is_inner_stop else turn
    vn, vt = speed.normal + responses.nh * turn, speed.tangent + responses.th * turn
    normal, tangent = contact_impulses(responses.nn, responses.nt, responses.tt, vn, vt, friction)
    return LegVector(normal if touches else 0.0, tangent if touches else 0.0, turn)


def pin_speed(leg: Leg, impulses: LegVector) -> tuple[float, float]:
    """Return the velocity that impulses on a leg give the pin (m/s)."""
    n, t, h = impulses
    return (
        leg.normal.vx * n + leg.tangent.vx * t + leg.hinge.vx * h,
        leg.normal.vy * n + leg.tangent.vy * t + leg.hinge.vy * h,
    )


def coupled_speed(leg: Leg, speed: LegVector, other: Leg, impulses: LegVector) -> LegVector:
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


class Problem(NamedTuple):
    """Both legs, and what impulses on them are to do.

    `correct_positions` has angles and distances in the place of speeds, and what moves bodies by
    these in the place of impulses.
    """

    right: Leg
    left: Leg
    speed_r: LegVector  # along the legs' rows without impulses
    speed_l: LegVector
    hinge_r: Hinge
    hinge_l: Hinge
    friction: float


class Impulses(NamedTuple):
    """Impulses on both legs."""

    right: LegVector
    left: LegVector


def sweep(problem: Problem, left: LegVector) -> Impulses:
    """Return the impulses after one sweep, which begins with those on the left leg."""
    right_leg, left_leg, friction = problem.right, problem.left, problem.friction
    speed = coupled_speed(right_leg, problem.speed_r, left_leg, left)
    right = leg_impulses(right_leg, speed, problem.hinge_r, friction)
    speed = coupled_speed(left_leg, problem.speed_l, right_leg, right)
    return Impulses(right, leg_impulses(left_leg, speed, problem.hinge_l, friction))


def leg_spin(leg: Leg, impulses: LegVector) -> float:
    """Return the spin that impulses on a leg give it while the pin rests (rad/s)."""
    n, t, h = impulses
    return (leg.normal.moment * n + leg.tangent.moment * t + leg.hinge.moment * h) / LEG_MOMENT


def motion_from(lander: Lander, right: Leg, left: Leg, impulses: Impulses) -> Motion:
    """Return the change of motion by the impulses on both legs."""
    vx_r, vy_r = pin_speed(right, impulses.right)
    vx_l, vy_l = pin_speed(left, impulses.left)
    vx, vy = vx_r + vx_l, vy_r + vy_l
    twist = (impulses.left.hinge - impulses.right.hinge) / HULL_MOMENT
    return Motion(
        vx,
        vy,
        twist + spin_from_pin(lander.hull, vx, vy),
        leg_spin(right, impulses.right) + spin_from_pin(lander.right, vx, vy),
        leg_spin(left, impulses.left) + spin_from_pin(lander.left, vx, vy),
    )


# ---------------------------------------------------------------- the end of a step


class LegEnd(NamedTuple):
    """A leg after a step, before `correct_positions`."""

    gap: float  # m, of its corner
    opening: float
    hits: bool  # whether it hit the ground within the step


def impact_turn(corner: Corner, gap: float, slip: float, lift: float) -> float:
    """Return the angle by which a leg turns when its corner hits the ground within a step (rad).

    The leg alone, as if it hung on nothing, takes the impulses that stop its corner, and turns by
    them for the rest of the step: until its foot is flush with the ground, or its corner is out of
    it, at most.

    Args:
        corner: before the step.
        gap: of the corner after the step, if there were no impact (m).
        slip: speed of the corner along the ground (m/s).
        lift: by how much the corner rises when the leg turns (m/rad).
    """
    arm_n, arm_t = corner.arm_n, corner.arm_t
    nn = 1.0 / LEG_MASS + arm_n * arm_n / LEG_INERTIA
    tt = 1.0 / LEG_MASS + arm_t * arm_t / LEG_INERTIA
    fall = (gap - corner.gap) / DT
    n, t = contact_impulses(nn, arm_n * arm_t / LEG_INERTIA, tt, fall, slip, FRICTION)
    # Seconds from the impact to the end. Where the corner does not fall nobody reads the result.
    remaining = DT * (REST - gap) / max(corner.gap - gap, 0.001)
    angle = (arm_n * n + arm_t * t) / LEG_INERTIA * remaining
    angle = min(max(angle, -corner.flush), corner.flush)
    return (REST - gap) / lift if angle * lift > REST - gap else angle


def end_leg(leg: Leg, speed: LegVector, impulses: LegVector, opening: float, spin: float) -> LegEnd:
    """Return a leg after a step.

    `speed` is along its rows with all impulses but its own, `opening` its angle before the step,
    `spin` that after it, against the hull's.
    """
    responses, (n, t, h) = leg.responses, impulses
    rise = speed.normal + responses.nn * n + responses.nt * t + responses.nh * h
    slip = speed.tangent + responses.nt * n + responses.tt * t + responses.th * h
    gap = leg.corner.gap + DT * rise
    hits = (leg.corner.gap >= SKIN) & (gap < REST)
    angle = DT * spin + (impact_turn(leg.corner, gap, slip, leg.normal.moment) if hits else 0.0)
    return LegEnd(gap, opening + leg.hinge.moment * angle, hits)


def stop_hinge(end: LegEnd) -> Hinge:
    """Return the hinge that moves a leg which went beyond a stop back to it.

    A leg that just hit the ground is left alone.
    """
    is_near_inner = end.opening < 0.5 * OPENING
    return Hinge(
        target=-SLOP if is_near_inner else OPENING + SLOP,
        start=0.0,
        gain=1.0,
        low=0.0 if is_near_inner | end.hits else -UNBOUNDED,
        high=UNBOUNDED if is_near_inner & (not end.hits) else 0.0,
        is_inner_stop=False,
    )


def correct_positions(
    lander: Lander, right: Leg, left: Leg, end_r: LegEnd, end_l: LegEnd
) -> Motion:
    """Return how bodies are moved (m, rad) to lift corners out of the ground, and legs to stops.

    Positions are solved for as speeds are, so that corrections take nothing from velocities.
    """
    lift_r = LegVector(LIFT * (end_r.gap - REST), 0.0, end_r.opening)
    lift_l = LegVector(LIFT * (end_l.gap - REST), 0.0, end_l.opening)
    stop_r, stop_l = stop_hinge(end_r), stop_hinge(end_l)
    problem = Problem(right, left, lift_r, lift_l, stop_r, stop_l, friction=0.0)
    return motion_from(lander, right, left, sweep(problem, LegVector(0.0, 0.0, 0.0)))
