"""Jointed bodies that touch the ground: a hull and two legs that hang on it at one pin.

A step has the three parts of Box2D's (version 2.3: b2Island.cpp, b2RevoluteJoint.cpp,
b2ContactSolver.cpp, b2World.cpp), and takes them in Box2D's order:

1. Velocities: impulses of motors, of stops and of the ground, for all bodies at once.
2. Positions: bodies go straight on at these velocities, and are then moved back to their joints, to
   their stops and out of the ground.
3. Impacts: a foot that went into the ground within the step goes back to the time at which it met
   the ground, and on from there alone (Box2D's time of impact).

Box2D visits each joint and each contact up to 180 times in a step. Here joints hold exactly, so
that the pin's velocity and the spins of all bodies are all unknowns, and only contacts are visited
one by one (sequential impulses: Catto, "Iterative dynamics with temporal coherence", Game
Developers Conference 2005, and "Modeling and solving constraints", 2009). Bodies are taken together
from the feet to the hull (Featherstone, "Rigid body dynamics algorithms", 2008, chapter 7): each
joint removes one unknown from the matrix of masses M = L D L^T, and the hull's three unknowns
remain. Momenta p are kept as `Modes`, y = D^-1 L^-1 p, and an impulse J at a contact has the row
L^-1 J: the speed there is the dot product of y and the row, and the impulse adds D^-1 times the row
to y.

A body's joint is the one on the hull's side of it; its arm goes from there to its centre of mass.
x goes to the right, y up, and angles are counterclockwise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

DT = 0.02  # s, one step
UNIT = 1.0 / 30.0  # m, one pixel of Gymnasium's pictures
SKIN = 0.02  # m, gap at which bodies touch: Box2D's polygons have a radius of 0.01 m
REST = 0.005  # m, gap of a body that an impact has stopped
SETTLED = 0.015  # m, gap of a body that lies still: SKIN less Box2D's linear slop
LIFT = 0.2  # share of the way there that is corrected in one step
#: Share of a foot's way back to its knee that its gap is less for. Box2D lifts the foot by a fifth
#: of its depth and closes its joints all the way, by turns, until no contact is deeper than three
#: slops and all joints are closed (b2ContactSolver::SolvePositionConstraints, b2Island::Solve), or
#: 60 turns are over. After one turn the share is 0, without an end 1: returns of walkers chose.
BACK = 0.75
SLOP = math.pi / 90.0  # rad, by which a joint may go beyond its stops
STIFFNESS = 100.0  # N m s for each rad/s (kg m^2), of a joint at its stop
SOFTNESS = 0.02  # kg m^2, how fast a motor is taken to be too weak for its speed
TOLERANCE = 0.00125  # m, of the gap at which a foot meets the ground: a quarter of Box2D's slop
LANDED = 0.0135  # m, gap to which a foot is lifted where it meets the ground

Pair = tuple[float, float]
Six = tuple[float, float, float, float, float, float]


# ---------------------------------------------------------------- bodies


class Shape(NamedTuple):
    """Mass of a body (kg), and its moment of inertia about the centre of mass (kg m^2)."""

    mass: float
    inertia: float


class Body(NamedTuple):
    """Centre of mass (m), angle (rad), and their velocities; a state keeps it as `Six` numbers."""

    x: float
    y: float
    angle: float
    vx: float
    vy: float
    spin: float


class Arm(NamedTuple):
    """A way from one point of a body to another (m)."""

    x: float
    y: float


class Twist(NamedTuple):
    """Velocity of a point of a body, and the body's spin; or a displacement, and a turn."""

    x: float
    y: float
    spin: float


class Wrench(NamedTuple):
    """Impulse on a body (N s), and its moment about the body's joint (N m s); or momenta."""

    x: float
    y: float
    moment: float


class Inertia(NamedTuple):
    """The symmetric matrix that makes a body's wrench of the twist of its joint."""

    xx: float
    xy: float
    xm: float
    yy: float
    ym: float
    mm: float


def turned(x: float, y: float, angle: float) -> Arm:
    """Return the arm (x, y) of a body at angle 0 for a body at an angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    return Arm(x * cosine - y * sine, x * sine + y * cosine)


def make_inertia(shape: Shape, arm: Arm) -> Inertia:
    """Return the inertia of one body about its joint."""
    m = shape.mass
    moment = shape.inertia + m * (arm.x * arm.x + arm.y * arm.y)
    return Inertia(m, 0.0, -m * arm.y, m, m * arm.x, moment)


def make_wrench(x: float, y: float, moment: float, arm: Arm) -> Wrench:
    """Return the wrench of an impulse (x, y) at the end of an arm, and of one more moment."""
    return Wrench(x, y, moment + arm.x * y - arm.y * x)


def momentum(shape: Shape, body: Body, arm: Arm, gravity: float) -> Wrench:
    """Return the momentum of a body about its joint, with what gravity adds to it in a step."""
    vy = body.vy + DT * gravity
    return make_wrench(shape.mass * body.vx, shape.mass * vy, shape.inertia * body.spin, arm)


def add_inertia(a: Inertia, b: Inertia) -> Inertia:
    """Return the inertia of two bodies that move as one."""
    return Inertia(a.xx + b.xx, a.xy + b.xy, a.xm + b.xm, a.yy + b.yy, a.ym + b.ym, a.mm + b.mm)


def add_wrench(a: Wrench, b: Wrench) -> Wrench:
    """Return the sum of two wrenches about one point."""
    return Wrench(a.x + b.x, a.y + b.y, a.moment + b.moment)


def move_inertia(a: Inertia, arm: Arm) -> Inertia:
    """Return an inertia about the beginning of an arm in place of its end."""
    xm, ym = a.xm - arm.y * a.xx + arm.x * a.xy, a.ym - arm.y * a.xy + arm.x * a.yy
    mm = a.mm + arm.x * (a.ym + ym) - arm.y * (a.xm + xm)
    return Inertia(a.xx, a.xy, xm, a.yy, ym, mm)


def move_wrench(a: Wrench, arm: Arm) -> Wrench:
    """Return a wrench about the beginning of an arm in place of its end."""
    return make_wrench(a.x, a.y, a.moment, arm)


def move_twist(twist: Twist, arm: Arm) -> Twist:
    """Return the twist at the end of an arm, of the twist at its beginning."""
    return Twist(twist.x - twist.spin * arm.y, twist.y + twist.spin * arm.x, twist.spin)


def set_motion(body: Body, arm: Arm, joint: Twist) -> Body:
    """Return a body with the velocities that the twist of its joint gives it."""
    v = move_twist(joint, arm)
    return Body(body.x, body.y, body.angle, v.x, v.y, v.spin)


def place(x: float, y: float, angle: float, arm: Arm, joint: Twist) -> Body:
    """Return a body whose joint is at (x, y) and moves in this way."""
    v = move_twist(joint, arm)
    return Body(x + arm.x, y + arm.y, angle, v.x, v.y, v.spin)


def set_velocity(body: Body, vx: float, vy: float) -> Body:
    """Return a body whose centre of mass moves in another way."""
    return Body(body.x, body.y, body.angle, vx, vy, body.spin)


def advance(body: Body) -> Body:
    """Return a body after a step at its velocities."""
    x, y, angle = body.x + DT * body.vx, body.y + DT * body.vy, body.angle + DT * body.spin
    return Body(x, y, angle, body.vx, body.vy, body.spin)


def offset(body: Body, arm: Arm, x: float, y: float) -> Arm:
    """Return how far a body is off its joint, which is at (x, y)."""
    return Arm(body.x - arm.x - x, body.y - arm.y - y)


def displace(body: Body, arm: Arm, joint: Twist, off: Arm) -> Body:
    """Return a body at its joint, off which it was, when the joint is displaced and turned."""
    way = move_twist(joint, arm)
    x, y, angle = body.x + way.x - off.x, body.y + way.y - off.y, body.angle + way.spin
    return Body(x, y, angle, body.vx, body.vy, body.spin)


# ---------------------------------------------------------------- joints


class Law(NamedTuple):
    """The angular impulse of a joint by its speed at the end of a step: drive - damping * speed.

    A motor that reaches its speed and a stop are such dampers; a motor that is too weak for its
    speed gives a `drive` without damping.
    """

    drive: float  # N m s
    damping: float  # kg m^2


STILL = Twist(0.0, 0.0, 0.0)


class Joint(NamedTuple):
    """A joint whose speed has been eliminated from the equations (see `hang`).

    Attributes:
        x, y, spin: column of L below the joint's diagonal.
        inverse: of the diagonal of D (1/(kg m^2)).
        mode: of momenta, the joint's entry in D^-1 L^-1 p.
    """

    x: float
    y: float
    spin: float
    inverse: float
    mode: float


class Leg(NamedTuple):
    """The joints of a leg, and the arm between them: its foot hangs at the knee."""

    hip: Joint
    knee: Joint
    thigh: Arm


class Root(NamedTuple):
    """Factors of the inertia of hull and legs about the pin: L, and the inverse of D."""

    x: float
    yx: float
    y: float
    mx: float
    my: float
    m: float


class Modes(NamedTuple):
    """A row, or momenta as their speeds (see above): three of the hull, and two of a leg."""

    x: float
    y: float
    spin: float
    hip: float
    knee: float


def hang(a: Inertia, p: Wrench, law: Law) -> tuple[Inertia, Wrench, Joint]:
    """Return a joint, and what the body on the hull's side feels of the body that hangs there.

    Args:
        a: inertia of the body that hangs, with all that hangs on it, about the joint.
        p: its momentum.
        law: impulse of the joint.
    """
    inverse = 1.0 / (a.mm + law.damping)
    x, y, spin = inverse * a.xm, inverse * a.ym, inverse * a.mm
    moment = p.moment + law.drive
    joint = Joint(x, y, spin, inverse, inverse * moment)
    felt = Inertia(
        a.xx - x * a.xm, a.xy - x * a.ym, a.xm - x * a.mm,
        a.yy - y * a.ym, a.ym - y * a.mm, a.mm - spin * a.mm,
    )  # fmt: skip
    return felt, pass_joint(joint, p, moment), joint


def pass_joint(joint: Joint, p: Wrench, moment: float) -> Wrench:
    """Return what of a wrench goes through a joint, which takes up this moment."""
    return Wrench(p.x - joint.x * moment, p.y - joint.y * moment, p.moment - joint.spin * moment)


def hang_leg(
    shapes: tuple[Shape, Shape], arms: tuple[Arm, Arm], p: tuple[Wrench, Wrench],
    laws: tuple[Law, Law],
) -> tuple[Inertia, Wrench, Leg]:  # fmt: skip
    """Return a leg of two parts, and what the hull feels of it (see `hang`).

    Args:
        shapes: of the upper and the lower part; all pairs are in this order.
        arms: of both; the knee is twice as far as the upper part's centre.
        p: their momenta, each about its own joint.
        laws: of hip and knee.
    """
    thigh = Arm(2.0 * arms[0].x, 2.0 * arms[0].y)
    a, q, knee = hang(make_inertia(shapes[1], arms[1]), p[1], laws[1])
    upper = add_inertia(make_inertia(shapes[0], arms[0]), move_inertia(a, thigh))
    a, q, hip = hang(upper, add_wrench(p[0], move_wrench(q, thigh)), laws[0])
    return a, q, Leg(hip, knee, thigh)


def make_root(a: Inertia) -> Root:
    """Return the factors of an inertia."""
    x = 1.0 / a.xx
    yx, mx = a.xy * x, a.xm * x
    y = 1.0 / (a.yy - yx * a.xy)
    ym = a.ym - mx * a.xy
    my = ym * y
    return Root(x, yx, y, mx, my, 1.0 / (a.mm - mx * a.xm - my * ym))


def to_row(root: Root, p: Wrench, hip: float, knee: float) -> Modes:
    """Return the row of a wrench at the pin, beside the entries of a leg's joints."""
    y = p.y - root.yx * p.x
    return Modes(p.x, y, p.moment - root.mx * p.x - root.my * y, hip, knee)


def pin_twist(root: Root, modes: Modes) -> Twist:
    """Return the motion of the pin, with the hull's spin."""
    y = modes.y - root.my * modes.spin
    return Twist(modes.x - root.yx * y - root.mx * modes.spin, y, modes.spin)


def outer_twist(joint: Joint, mode: float, inner: Twist) -> Twist:
    """Return the motion of a joint with the spin of the body on its outer side."""
    speed = mode - joint.x * inner.x - joint.y * inner.y - joint.spin * inner.spin
    return Twist(inner.x, inner.y, inner.spin + speed)


# ---------------------------------------------------------------- motors and stops


class Hinge(NamedTuple):
    """A kind of joint: its motor's speed (rad/s) and strength, and its stops (rad).

    Attributes:
        speed: of the motor, in the direction of the action.
        impulse: the most that the motor gives in a step (N m s).
        low, high: stops.
        reach: impulse of the motor for each rad/s that it lacks (kg m^2).
    """

    speed: float
    impulse: float
    low: float
    high: float
    reach: float


class Motor(NamedTuple):
    """A joint's motor and the nearer one of its stops in this step.

    Signs are such that the stop is the lower one.

    Attributes:
        side: 1 if the stop is the lower one, else -1: the sign of all that follows.
        at_stop: whether the joint is there, or beyond.
        start: impulse of the motor in the last step, from which this one starts (warm start).
        line: impulse of the motor that leaves the joint at rest, were the motor strong enough.
        reach: see `Hinge`.
        bound: the most that the motor gives.
    """

    side: float
    at_stop: bool
    start: float
    line: float
    reach: float
    bound: float


def clamp(x: float, bound: float) -> float:
    """Return the number in [-bound, bound] that is nearest to x."""
    return min(max(x, -bound), bound)


def excess(hinge: Hinge, angle: float, side: float) -> float:
    """Return how far a joint is beyond its stop on a side (rad)."""
    return hinge.low - angle if side > 0.0 else angle - hinge.high


def make_motor(hinge: Hinge, impulse: float, angle: float, action: float) -> Motor:
    """Return the motor of a joint.

    Args:
        hinge: see there.
        impulse: of the motor in the last step.
        angle: of the joint.
        action: the sign is the motor's direction, the size its part of the full strength.
    """
    side = 1.0 if 2.0 * angle < hinge.low + hinge.high else -1.0
    speed = hinge.speed if action > 0.0 else (-hinge.speed if action < 0.0 else 0.0)
    bound = hinge.impulse * min(abs(action), 1.0)
    start = side * clamp(impulse, bound)
    line = start + hinge.reach * side * speed
    return Motor(side, excess(hinge, angle, side) >= 0.0, start, line, hinge.reach, bound)


def motor_law(motor: Motor, impulse: float, speed: float) -> Law:
    """Return the law of a joint near the impulse and the speed of the last round.

    The joint is at rest at its stop, where it would go beyond and the stop has to push; or its
    motor is too weak; or the motor does what it can to reach its speed.
    """
    impulse, speed = motor.side * impulse, motor.side * speed
    edge = clamp(motor.line, motor.bound)
    stopped = motor.at_stop & (speed <= -edge / STIFFNESS) & (impulse >= edge)
    lacking = (motor.line - clamp(impulse, motor.bound)) / motor.reach - speed
    needed = impulse + SOFTNESS * lacking
    weak = abs(needed) > motor.bound
    drive = (motor.bound if needed > 0.0 else -motor.bound) if weak else motor.line
    damping = 0.0 if weak else motor.reach
    return Law(0.0 if stopped else motor.side * drive, STIFFNESS if stopped else damping)


def motor_impulse(motor: Motor, speed: float) -> float:
    """Return the impulse of a motor in a step at whose end the joint has this speed."""
    return motor.side * clamp(motor.line - motor.reach * motor.side * speed, motor.bound)


def joint_impulse(law: Law, speed: float) -> float:
    """Return the impulse of a joint at a speed."""
    return law.drive - law.damping * speed


def stop_law(motor: Motor, hinge: Hinge, angle: float) -> Law:
    """Return the law, of turns in place of speeds, that brings a joint back to its stop."""
    far = excess(hinge, angle, motor.side) - SLOP
    back = motor.at_stop & (far > 0.0)
    return Law(motor.side * STIFFNESS * far if back else 0.0, STIFFNESS if back else 0.0)


# ---------------------------------------------------------------- contacts


class FootContact(NamedTuple):
    """A point of a foot: from the foot's centre, the ground's normal there, and the gap (m)."""

    x: float
    y: float
    nx: float
    ny: float
    gap: float


class Push(NamedTuple):
    """Impulses of the ground at a point: along the normal, and to its right (friction)."""

    normal: float
    tangent: float


APART = 1.0e3  # m, gap of a place that is not lifted
UNTOUCHED = Push(0.0, 0.0)


class Contact(NamedTuple):
    """A point that may touch the ground.

    Attributes:
        normal, tangent: rows of impulses along these.
        by_normal, by_tangent: what the impulses add to modes.
        nn, nt, tt: speeds along one direction by an impulse along the other.
        touches: whether the point touches.
    """

    normal: Modes
    tangent: Modes
    by_normal: Modes
    by_tangent: Modes
    nn: float
    nt: float
    tt: float
    touches: bool


def dot(a: Modes, b: Modes) -> float:
    """Return the dot product of modes."""
    return a.x * b.x + a.y * b.y + a.spin * b.spin + a.hip * b.hip + a.knee * b.knee


def add_push(modes: Modes, c: Contact, normal: float, tangent: float) -> Modes:
    """Return modes after impulses at a contact."""
    n, t = c.by_normal, c.by_tangent
    return Modes(
        modes.x + n.x * normal + t.x * tangent,
        modes.y + n.y * normal + t.y * tangent,
        modes.spin + n.spin * normal + t.spin * tangent,
        modes.hip + n.hip * normal + t.hip * tangent,
        modes.knee + n.knee * normal + t.knee * tangent,
    )


def make_row(root: Root, leg: Leg, arm: Arm, nx: float, ny: float) -> Modes:
    """Return the row of an impulse of 1 N s along (nx, ny), at the end of an arm of the foot."""
    p = make_wrench(nx, ny, 0.0, arm)
    knee = p.moment
    p = move_wrench(pass_joint(leg.knee, p, knee), leg.thigh)
    return to_row(root, pass_joint(leg.hip, p, p.moment), p.moment, knee)


def divide(root: Root, leg: Leg, row: Modes) -> Modes:
    """Return D^-1 times a row: what its impulse adds to modes."""
    x, y, spin = row.x * root.x, row.y * root.y, row.spin * root.m
    return Modes(x, y, spin, row.hip * leg.hip.inverse, row.knee * leg.knee.inverse)


def make_contact(root: Root, leg: Leg, foot: Arm, place: FootContact) -> Contact:
    """Return the contact at a place of the foot, whose arm is given."""
    arm = Arm(foot.x + place.x, foot.y + place.y)
    n = make_row(root, leg, arm, place.nx, place.ny)
    t = make_row(root, leg, arm, place.ny, -place.nx)
    by_n, by_t = divide(root, leg, n), divide(root, leg, t)
    return Contact(n, t, by_n, by_t, dot(n, by_n), dot(n, by_t), dot(t, by_t), place.gap < SKIN)


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


def push(c: Contact, old: Push, modes: Modes, friction: float) -> tuple[Push, Modes]:
    """Return new impulses at a contact in the place of old ones, and the modes with them."""
    vn = dot(c.normal, modes) - c.nn * old.normal - c.nt * old.tangent
    vt = dot(c.tangent, modes) - c.nt * old.normal - c.tt * old.tangent
    normal, tangent = coulomb(c.nn, c.nt, c.tt, vn, vt, friction)
    normal, tangent = normal if c.touches else 0.0, tangent if c.touches else 0.0
    modes = add_push(modes, c, normal - old.normal, tangent - old.tangent)
    return Push(normal, tangent), modes


def make_contacts(
    root: Root, leg: Leg, foot: Arm, places: tuple[FootContact, FootContact]
) -> tuple[Contact, Contact]:
    """Return the contacts at two places of a foot."""
    a = make_contact(root, leg, foot, places[0])
    return a, make_contact(root, leg, foot, places[1])


def warm_start(contacts: tuple[Contact, Contact], pushes: tuple[Push, Push], modes: Modes) -> Modes:
    """Return modes after the last round's impulses at two contacts."""
    modes = add_push(modes, contacts[0], pushes[0].normal, pushes[0].tangent)
    return add_push(modes, contacts[1], pushes[1].normal, pushes[1].tangent)


def sweep(
    contacts: tuple[Contact, Contact], pushes: tuple[Push, Push], modes: Modes, friction: float
) -> tuple[tuple[Push, Push], Modes]:
    """Return new impulses at two contacts, one after the other, and the modes with them."""
    a, modes = push(contacts[0], pushes[0], modes, friction)
    b, modes = push(contacts[1], pushes[1], modes, friction)
    return (a, b), modes


def lift(root: Root, leg: Leg, foot: Arm, place: FootContact, off: Arm, modes: Modes) -> Modes:
    """Return displacements after one that lifts a place of a foot out of the ground.

    Args:
        root: factor of the hull.
        leg: on whose foot the place is.
        foot: arm of the foot.
        place: where the foot is now, as `follow_touching` returns it.
        off: how far the foot is off its knee, to which it is displaced too.
        modes: of the displacements so far.
    """
    row = make_row(root, leg, Arm(foot.x + place.x, foot.y + place.y), place.nx, place.ny)
    target = rise(place.gap) + BACK * (place.nx * off.x + place.ny * off.y)
    by = divide(root, leg, row)
    way = max((target - dot(row, modes)) / dot(row, by), 0.0) if place.gap < APART else 0.0
    return Modes(
        modes.x + by.x * way,
        modes.y + by.y * way,
        modes.spin + by.spin * way,
        modes.hip + by.hip * way,
        modes.knee + by.knee * way,
    )


def follow(place: FootContact, begin: Body, end: Body) -> FootContact:
    """Return a place of a body that has gone from `begin` to `end`, above the same flat ground."""
    arm = turned(place.x, place.y, end.angle - begin.angle)
    dx, dy = end.x - begin.x + arm.x - place.x, end.y - begin.y + arm.y - place.y
    return FootContact(arm.x, arm.y, place.nx, place.ny, place.gap + place.nx * dx + place.ny * dy)


def follow_touching(
    places: tuple[FootContact, FootContact], begin: Body, end: Body
) -> tuple[FootContact, FootContact]:
    """Return two places as `follow` does; those that did not touch the ground are APART."""
    a, b = follow(places[0], begin, end), follow(places[1], begin, end)
    return (
        FootContact(a.x, a.y, a.nx, a.ny, a.gap if places[0].gap < SKIN else APART),
        FootContact(b.x, b.y, b.nx, b.ny, b.gap if places[1].gap < SKIN else APART),
    )


def rise(gap: float) -> float:
    """Return how far a point at a gap has to be lifted in this step."""
    near = (gap > REST) & (gap < SETTLED)
    return LIFT * (SETTLED - gap) if near else REST - gap


# ---------------------------------------------------------------- impacts


class Landing(NamedTuple):
    """A foot after a step, whether it met the ground within it, and at which x (m)."""

    body: Body
    hits: bool
    x: float


def land(
    shape: Shape, begin: Body, end: Body, places: tuple[FootContact, FootContact], friction: float
) -> Landing:
    """Return a foot after a step, and where it met the ground.

    It goes to where it met the ground, is stopped or slides there, and moves on for what time is
    left as if it hung on nothing: joints pull it back in the next step, as in Box2D.

    Args:
        shape: of the foot.
        begin: the foot before the step, with its velocities after it.
        end: the foot where the step leads without the ground.
        places: two points of it that were next to the ground before the step.
        friction: coefficient.
    """
    a, b = places
    gap_a, gap_b = follow(a, begin, end).gap, follow(b, begin, end).gap
    place, gap = (b if gap_b < gap_a else a), min(gap_a, gap_b)
    hits = (gap < REST - TOLERANCE) | (min(a.gap, b.gap) < REST + TOLERANCE)
    part = min(max((place.gap - REST) / max(place.gap - gap, 1.0e-6), 0.0), 1.0)
    dx, dy, turn = part * (end.x - begin.x), part * (end.y - begin.y), end.angle - begin.angle
    arm = turned(place.x, place.y, part * turn)
    # Moments of unit impulses along normal and tangent, and the impulses that stop the point.
    n, t = arm.x * place.ny - arm.y * place.nx, -arm.x * place.nx - arm.y * place.ny
    nn, tt = 1.0 / shape.mass + n * n / shape.inertia, 1.0 / shape.mass + t * t / shape.inertia
    vn = begin.vx * place.nx + begin.vy * place.ny + begin.spin * n
    vt = begin.vx * place.ny - begin.vy * place.nx + begin.spin * t
    normal, tangent = coulomb(nn, n * t / shape.inertia, tt, vn, vt, friction)
    height = max(LANDED - (place.gap + part * (gap - place.gap)), 0.0) / nn
    vx = begin.vx + (place.nx * normal + place.ny * tangent) / shape.mass
    vy = begin.vy + (place.ny * normal - place.nx * tangent) / shape.mass
    spin = begin.spin + (n * normal + t * tangent) / shape.inertia
    rest = (1.0 - part) * DT
    x = begin.x + dx + place.nx * height / shape.mass + rest * vx
    y = begin.y + dy + place.ny * height / shape.mass + rest * vy
    angle = begin.angle + part * turn + n * height / shape.inertia + rest * spin
    body = Body(
        x if hits else end.x,
        y if hits else end.y,
        angle if hits else end.angle,
        vx if hits else begin.vx,
        vy if hits else begin.vy,
        spin if hits else begin.spin,
    )
    return Landing(body, hits, begin.x + dx + arm.x)


# ---------------------------------------------------------------- hull and legs


class Skeleton(NamedTuple):
    """Hull and legs, jointed, and the modes of their momenta, of which both legs share three."""

    root: Root
    one: Leg
    two: Leg
    modes1: Modes
    modes2: Modes


def join(
    hull: Inertia, p: Wrench, one: tuple[Inertia, Wrench, Leg], two: tuple[Inertia, Wrench, Leg]
) -> Skeleton:
    """Return a hull of this inertia and momentum with two legs, as `hang_leg` returns them."""
    root = make_root(add_inertia(hull, add_inertia(one[0], two[0])))
    p = add_wrench(p, add_wrench(one[1], two[1]))
    row = to_row(root, p, 0.0, 0.0)
    x, y, spin = row.x * root.x, row.y * root.y, row.spin * root.m
    modes1 = Modes(x, y, spin, one[2].hip.mode, one[2].knee.mode)
    modes2 = Modes(x, y, spin, two[2].hip.mode, two[2].knee.mode)
    return Skeleton(root, one[2], two[2], modes1, modes2)


def follow_hull(modes: Modes, other: Modes) -> Modes:
    """Return modes of a leg with those of the hull from the other leg's."""
    return Modes(other.x, other.y, other.spin, modes.hip, modes.knee)
