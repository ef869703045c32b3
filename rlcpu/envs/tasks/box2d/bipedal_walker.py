"""BipedalWalker-v3 and BipedalWalkerHardcore-v3: walk on two jointed legs, without Box2D.

Source: Klimov's environment in Gymnasium, whose bodies, motors, ground, lidar and rewards these
are. `rigid_bodies.py` moves the bodies, `walker_ground.py` makes the ground. Single steps are close
to Box2D's, and returns of fixed policies are distributed as there, from one start: see
tests/envs/bipedal_walker.json.

Gymnasium's walker begins with legs that are 0.2 m away from their joints, and are pulled there in
its first step. This one begins after that step, taken without torques. With torques, the number of
Box2D's iterations decides where the legs are after it, and so how well the heuristic walks.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.tasks.box2d import rigid_bodies as bodies
from rlcpu.envs.tasks.box2d import walker_ground as ground
from rlcpu.envs.tasks.box2d import walker_picture
from rlcpu.envs.tasks.box2d.rigid_bodies import (
    DT,
    REST,
    SKIN,
    UNIT,
    Arm,
    Body,
    FootContact,
    Hinge,
    Inertia,
    Landing,
    Law,
    Leg,
    Modes,
    Motor,
    Pair,
    Push,
    Shape,
    Six,
    Twist,
    Wrench,
)  # fmt: skip
from rlcpu.envs.tasks.box2d.walker_ground import LEVEL, NONE, STEP, Ground, Heights, Maker
from rlcpu.kernels.maths import cut
from rlcpu.kernels.random import Rng

GRAVITY = -10.0
FRICTION = math.sqrt(2.5 * 0.2)
GOAL = 190.0 * STEP  # m
HULL = Shape(5.4222226, 2.0017447 - 5.4222226 * (0.0200364**2 + 0.00564664**2))
UPPER, LOWER = Shape(0.30222222, 0.03413992), Shape(0.24177778, 0.02679614)
SHAPES = (UPPER, LOWER)
#: From the pin of both hips to the hull's centre of mass, and to the point that Gymnasium observes.
HULL_X, HULL_Y, ORIGIN_Y = -0.0200364, 8.0 * UNIT - 0.00564664, 8.0 * UNIT
HALF_LENGTH, HALF_WIDTH = 17.0 * UNIT, 3.2 * UNIT  # m, of each part of a leg; of its lower part
OPEN = 0.05  # rad, by which the hips are open when their angles are 0
#: Box2D's motors come near their speed by 180 iterations in one step, each of which turns a joint
#: as if its parts hung on nothing. The same in one go, with this number, gives like returns.
REACH = 108.0
HIP = Hinge(4.0, 80.0 * DT, -0.8, 1.1, REACH / (1.0 / HULL.inertia + 1.0 / UPPER.inertia))
KNEE = Hinge(6.0, 80.0 * DT, -1.6, -0.1, REACH / (1.0 / UPPER.inertia + 1.0 / LOWER.inertia))

Four = tuple[float, float, float, float]
#: Of a leg, each of two: its upper and its lower part, hip and knee, or two points of its foot.
Bodies = tuple[Body, Body]
Arms = tuple[Arm, Arm]
Motors = tuple[Motor, Motor]
Places = tuple[FootContact, FootContact]


class Params(NamedTuple):
    """Options."""

    hardcore: bool = False  # stumps, stairs and pits on the way


class State(NamedTuple):
    """Bodies (see `rigid_bodies.Body`), joints (hip, knee, hip, knee), contacts, and the ground."""

    hull: Six
    upper1: Six
    lower1: Six
    upper2: Six
    lower2: Six
    impulses: Four  # N m s, of the motors in the last step
    touches: Pair  # 1 where a leg touches the ground, as Gymnasium has it (`touching`)
    cells: Four  # the first and last cell of the ground that each leg touches
    base: float  # index of the first node
    nodes: Heights
    tops: Heights
    maker: ground.Plain


# ---------------------------------------------------------------- bodies


class Walker(NamedTuple):
    """The hull and both legs."""

    hull: Body
    one: Bodies
    two: Bodies


def walker_of(s: State) -> Walker:
    """Return the bodies of a state."""
    one, two = (Body(*s.upper1), Body(*s.lower1)), (Body(*s.upper2), Body(*s.lower2))
    return Walker(Body(*s.hull), one, two)


def origin(hull: Body) -> Pair:
    """Return the point of the hull that Gymnasium calls its position."""
    arm = bodies.turned(HULL_X, HULL_Y - ORIGIN_Y, hull.angle)
    return hull.x - arm.x, hull.y - arm.y


def hull_arm(hull: Body) -> Arm:
    """Return the arm of a hull, from the pin of both hips."""
    return bodies.turned(HULL_X, HULL_Y, hull.angle)


def leg_arms(leg: Bodies) -> Arms:
    """Return the arms of a leg's parts."""
    down = -HALF_LENGTH
    return bodies.turned(0.0, down, leg[0].angle), bodies.turned(0.0, down, leg[1].angle)


def joint_angles(w: Walker) -> Four:
    """Return the angles of hip, knee, hip and knee."""
    hip1, hip2 = w.one[0].angle - w.hull.angle + OPEN, w.two[0].angle - w.hull.angle - OPEN
    return hip1, w.one[1].angle - w.one[0].angle, hip2, w.two[1].angle - w.two[0].angle


def joint_speeds(w: Walker) -> Four:
    """Return the speeds of hip, knee, hip and knee."""
    hip1, hip2 = w.one[0].spin - w.hull.spin, w.two[0].spin - w.hull.spin
    return hip1, w.one[1].spin - w.one[0].spin, hip2, w.two[1].spin - w.two[0].spin


def leg_momenta(leg: Bodies, arms: Arms) -> tuple[Wrench, Wrench]:
    """Return the momenta of a leg's parts, each about its own joint."""
    upper = bodies.momentum(UPPER, leg[0], arms[0], GRAVITY)
    return upper, bodies.momentum(LOWER, leg[1], arms[1], GRAVITY)


def leg_twists(root: Twist, leg: Leg, modes: Modes) -> tuple[Twist, Twist]:
    """Return the motions of hip and knee, with the spins of the parts that hang there."""
    hip = bodies.outer_twist(leg.hip, modes.hip, root)
    return hip, bodies.outer_twist(leg.knee, modes.knee, bodies.move_twist(hip, leg.thigh))


# ---------------------------------------------------------------- one step of the bodies


class LegGuess(NamedTuple):
    """Of a leg: motions, speeds and impulses of its joints, impulses of the ground."""

    twists: tuple[Twist, Twist]
    speeds: Pair
    impulses: Pair
    pushes: tuple[Push, Push]


class Guess(NamedTuple):
    """Motions, impulses and pushes after a round of `solve`."""

    hull: Twist
    one: LegGuess
    two: LegGuess


class LegStart(NamedTuple):
    """A leg before a step: arms and momenta of its parts, motors, places of its foot."""

    arms: Arms
    momenta: tuple[Wrench, Wrench]
    motors: Motors
    places: Places


def leg_laws(motors: Motors, guess: LegGuess) -> tuple[Law, Law]:
    """Return the laws of hip and knee near a guess."""
    hip = bodies.motor_law(motors[0], guess.impulses[0], guess.speeds[0])
    return hip, bodies.motor_law(motors[1], guess.impulses[1], guess.speeds[1])


def guess_leg(
    root: Twist, leg: Leg, modes: Modes, laws: tuple[Law, Law], pushes: tuple[Push, Push]
) -> LegGuess:
    """Return what modes mean for a leg."""
    hip, knee = leg_twists(root, leg, modes)
    speeds = (hip.spin - root.spin, knee.spin - hip.spin)
    impulse = bodies.joint_impulse(laws[0], speeds[0])
    impulses = (impulse, bodies.joint_impulse(laws[1], speeds[1]))
    return LegGuess((hip, knee), speeds, impulses, pushes)


def solve_round(arm: Arm, momentum: Wrench, one: LegStart, two: LegStart, guess: Guess) -> Guess:
    """Return a better guess: joints with laws by the last one, then one sweep over contacts.

    Args:
        arm: of the hull.
        momentum: of the hull.
        one: of the first leg.
        two: of the second leg.
        guess: the last one.
    """
    laws1, laws2 = leg_laws(one.motors, guess.one), leg_laws(two.motors, guess.two)
    leg1 = bodies.hang_leg(SHAPES, one.arms, one.momenta, laws1)
    leg2 = bodies.hang_leg(SHAPES, two.arms, two.momenta, laws2)
    s = bodies.join(bodies.make_inertia(HULL, arm), momentum, leg1, leg2)
    contacts1 = bodies.make_contacts(s.root, s.one, one.arms[1], one.places)
    contacts2 = bodies.make_contacts(s.root, s.two, two.arms[1], two.places)
    modes1 = bodies.warm_start(contacts1, guess.one.pushes, s.modes1)
    modes2 = bodies.follow_hull(s.modes2, modes1)
    modes2 = bodies.warm_start(contacts2, guess.two.pushes, modes2)
    modes1 = bodies.follow_hull(modes1, modes2)
    pushes1, modes1 = bodies.sweep(contacts1, guess.one.pushes, modes1, FRICTION)
    modes2 = bodies.follow_hull(modes2, modes1)
    pushes2, modes2 = bodies.sweep(contacts2, guess.two.pushes, modes2, FRICTION)
    hull = bodies.pin_twist(s.root, modes2)
    return Guess(
        hull,
        guess_leg(hull, s.one, modes1, laws1, pushes1),
        guess_leg(hull, s.two, modes2, laws2, pushes2),
    )


def first_guess(motors: Motors, speeds: Pair) -> LegGuess:
    """Return the guess of a leg before the first round: the last step's."""
    still, none = bodies.STILL, bodies.UNTOUCHED
    starts = (motors[0].side * motors[0].start, motors[1].side * motors[1].start)
    return LegGuess((still, still), speeds, starts, (none, none))


def solve(w: Walker, one: LegStart, two: LegStart) -> Walker:
    """Return bodies after the impulses of gravity, motors, joints and the ground in a step."""
    arm, v = hull_arm(w.hull), joint_speeds(w)
    momentum = bodies.momentum(HULL, w.hull, arm, GRAVITY)
    guess1 = first_guess(one.motors, (v[0], v[1]))
    guess = Guess(bodies.STILL, guess1, first_guess(two.motors, (v[2], v[3])))
    guess = cut(solve_round(arm, momentum, one, two, guess))
    guess = cut(solve_round(arm, momentum, one, two, guess))
    guess = cut(solve_round(arm, momentum, one, two, guess))
    guess = solve_round(arm, momentum, one, two, guess)
    return Walker(
        bodies.set_motion(w.hull, arm, guess.hull),
        set_motions(w.one, one.arms, guess.one.twists),
        set_motions(w.two, two.arms, guess.two.twists),
    )


def set_motions(leg: Bodies, arms: Arms, twists: tuple[Twist, Twist]) -> Bodies:
    """Return a leg with the velocities that motions of its joints give it."""
    upper = bodies.set_motion(leg[0], arms[0], twists[0])
    return upper, bodies.set_motion(leg[1], arms[1], twists[1])


def advance(w: Walker) -> Walker:
    """Return bodies after a step at their velocities."""
    one = (bodies.advance(w.one[0]), bodies.advance(w.one[1]))
    return Walker(bodies.advance(w.hull), one, (bodies.advance(w.two[0]), bodies.advance(w.two[1])))


def leg_offsets(leg: Bodies, arms: Arms, x: float, y: float) -> Arms:
    """Return how far the parts of a leg are off where they belong, if its hip is at (x, y)."""
    upper = bodies.offset(leg[0], arms[0], x, y)
    return upper, bodies.offset(leg[1], arms[1], x + 2.0 * arms[0].x, y + 2.0 * arms[0].y)


def pull_leg(arms: Arms, offsets: Arms, laws: tuple[Law, Law]) -> tuple[Inertia, Wrench, Leg]:
    """Return a leg with its offsets, times masses, in the place of momenta (see `hang_leg`)."""
    (u, w), upper, lower = offsets, UPPER.mass, LOWER.mass
    pulls = (
        bodies.make_wrench(upper * u.x, upper * u.y, 0.0, arms[0]),
        bodies.make_wrench(lower * w.x, lower * w.y, 0.0, arms[1]),
    )
    return bodies.hang_leg(SHAPES, arms, pulls, laws)


def displace_leg(leg: Bodies, arms: Arms, twists: tuple[Twist, Twist], offsets: Arms) -> Bodies:
    """Return a leg whose joints were displaced, and whose parts went back to them."""
    upper = bodies.displace(leg[0], arms[0], twists[0], offsets[0])
    return upper, bodies.displace(leg[1], arms[1], twists[1], offsets[1])


def correct(w: Walker, motors: tuple[Motors, Motors], places: tuple[Places, Places]) -> Walker:
    """Return bodies at their joints, within their stops, with feet out of the ground.

    Of all displacements that do this it is the least, weighted by masses.

    Args:
        w: bodies after they went straight on.
        motors: of both legs, for the stops of joints.
        places: of both feet, as `follow_touching` returns them.
    """
    arm, arms1, arms2 = hull_arm(w.hull), leg_arms(w.one), leg_arms(w.two)
    j, x, y = joint_angles(w), w.hull.x - arm.x, w.hull.y - arm.y
    off1, off2 = leg_offsets(w.one, arms1, x, y), leg_offsets(w.two, arms2, x, y)
    m1, m2 = motors
    laws1 = (bodies.stop_law(m1[0], HIP, j[0]), bodies.stop_law(m1[1], KNEE, j[1]))
    laws2 = (bodies.stop_law(m2[0], HIP, j[2]), bodies.stop_law(m2[1], KNEE, j[3]))
    leg1, leg2 = pull_leg(arms1, off1, laws1), pull_leg(arms2, off2, laws2)
    s = bodies.join(bodies.make_inertia(HULL, arm), Wrench(0.0, 0.0, 0.0), leg1, leg2)
    modes1 = bodies.lift(s.root, s.one, arms1[1], places[0][0], off1[1], s.modes1)
    modes1 = bodies.lift(s.root, s.one, arms1[1], places[0][1], off1[1], modes1)
    modes2 = bodies.follow_hull(s.modes2, modes1)
    modes2 = bodies.lift(s.root, s.two, arms2[1], places[1][0], off2[1], modes2)
    modes2 = bodies.lift(s.root, s.two, arms2[1], places[1][1], off2[1], modes2)
    hull = bodies.pin_twist(s.root, modes2)
    twists1 = leg_twists(hull, s.one, bodies.follow_hull(modes1, modes2))
    return Walker(
        bodies.displace(w.hull, arm, hull, Arm(0.0, 0.0)),
        displace_leg(w.one, arms1, twists1, off1),
        displace_leg(w.two, arms2, leg_twists(hull, s.two, modes2), off2),
    )


# ---------------------------------------------------------------- the ground


def feet(s: State, body: Body, arm: Arm, hardcore: bool) -> Places:
    """Return the two points of a lower leg that are nearest to the ground."""
    u = Arm(-arm.y / HALF_LENGTH * HALF_WIDTH, arm.x / HALF_LENGTH * HALF_WIDTH)
    foot = ground.find_ground(s.nodes, s.tops, s.base, body.x + arm.x, hardcore)
    knee = ground.find_ground(s.nodes, s.tops, s.base, body.x - arm.x, hardcore)
    a = corner(foot, body, arm.x - u.x, arm.y - u.y, hardcore)
    b = corner(foot, body, arm.x + u.x, arm.y + u.y, hardcore)
    c = corner(knee, body, -arm.x - u.x, -arm.y - u.y, hardcore)
    d = corner(knee, body, u.x - arm.x, u.y - arm.y, hardcore)
    c = c if c.gap < d.gap else d
    if hardcore:
        d = edge(foot, body)
        c = c if c.gap < d.gap else d
        d = edge(knee, body)
        c = c if c.gap < d.gap else d
    near, far = (b if b.gap < a.gap else a), (a if b.gap < a.gap else b)
    return near, (c if c.gap < far.gap else far)


def corner(g: Ground, body: Body, x: float, y: float, hardcore: bool) -> FootContact:
    """Return the place of a point at (x, y) from the centre of a body."""
    gap = ground.gap_at(g, body.x + x, body.y + y, hardcore)
    return FootContact(x, y, gap.nx, gap.ny, gap.gap)


def edge(g: Ground, body: Body) -> FootContact:
    """Return the side of a lower leg at the upper edge of a block, if the node of `g` has one."""
    sine, cosine = math.sin(body.angle), math.cos(body.angle)
    dx, dy = g.x - body.x, max(g.left, g.right) - body.y
    across, along = dx * cosine + dy * sine, dx * sine - dy * cosine
    side = -1.0 if across > 0.0 else 1.0
    beside = (abs(g.left - g.right) > 0.01) & (abs(along) < HALF_LENGTH)
    gap = abs(across) - HALF_WIDTH if beside else 1.0
    return FootContact(dx, dy, side * cosine, side * sine, gap)


class Outline(NamedTuple):
    """Origin of the hull (m), and sine and cosine of its angle."""

    x: float
    y: float
    sine: float
    cosine: float


def hull_gap(s: State, x: float, y: float, hardcore: bool) -> float:
    """Return how far a hull with its origin at (x, y) is from the ground, and from nodes below."""
    hull = Outline(x, y, math.sin(s.hull[2]), math.cos(s.hull[2]))
    back = hull_corner(s, hull, -30.0, -8.0, hardcore)
    front = hull_corner(s, hull, 34.0, -8.0, hardcore)
    nose = hull_corner(s, hull, 34.0, 1.0, hardcore)
    neck = hull_corner(s, hull, 6.0, 9.0, hardcore)
    tail = hull_corner(s, hull, -30.0, 9.0, hardcore)
    gap = min(min(min(back, front), min(nose, neck)), tail)
    first = min(max(ground.cell_of(x) - s.base, 0.0), 8.0) - 2.0
    h = ground.from_node(s.nodes, first)
    t = ground.from_node(s.tops, first)
    left = (s.base + first) * STEP
    gap = min(gap, peak(hull, left, h[0], max(NONE, t[0]) if hardcore else NONE))
    gap = min(gap, peak(hull, left + STEP, h[1], max(t[0], t[1]) if hardcore else NONE))
    gap = min(gap, peak(hull, left + 2.0 * STEP, h[2], max(t[1], t[2]) if hardcore else NONE))
    gap = min(gap, peak(hull, left + 3.0 * STEP, h[3], max(t[2], t[3]) if hardcore else NONE))
    gap = min(gap, peak(hull, left + 4.0 * STEP, h[4], max(t[3], t[4]) if hardcore else NONE))
    return min(gap, peak(hull, left + 5.0 * STEP, h[5], max(t[4], t[5]) if hardcore else NONE))


def hull_corner(s: State, o: Outline, u: float, v: float, hardcore: bool) -> float:
    """Return how far the corner of the hull at (u, v) pixels is from the ground."""
    x = o.x + UNIT * (u * o.cosine - v * o.sine)
    y = o.y + UNIT * (u * o.sine + v * o.cosine)
    g = ground.find_ground(s.nodes, s.tops, s.base, x, hardcore)
    return ground.gap_at(g, x, y, hardcore).gap


def peak(o: Outline, x: float, height: float, top: float) -> float:
    """Return how far a node, or a block beside it that is higher, is from the hull."""
    dx, dy = x - o.x, max(height, top) - o.y
    u, v = (dx * o.cosine + dy * o.sine) / UNIT, (dy * o.cosine - dx * o.sine) / UNIT
    away = max(max(-30.0 - u, u - 34.0), max(-8.0 - v, v - 9.0))
    return UNIT * max(away, (8.0 * (u - 6.0) + 28.0 * (v - 9.0)) / 29.12)


# ---------------------------------------------------------------- the environment


def step(s: State, action: Four, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Make one step.

    Args:
        s: see `State`.
        action: torques of the motors of both hips and knees: hip, knee, hip, knee.
        params: see `Params`.
        rng: makes the ground ahead.
    """
    hard, w = params.hardcore, walker_of(s)
    j, i, arms1, arms2 = joint_angles(w), s.impulses, leg_arms(w.one), leg_arms(w.two)
    motors1 = make_motors((i[0], i[1]), (j[0], j[1]), (action[0], action[1]))
    motors2 = make_motors((i[2], i[3]), (j[2], j[3]), (action[2], action[3]))
    places1, places2 = feet(s, w.one[1], arms1[1], hard), feet(s, w.two[1], arms2[1], hard)
    one = LegStart(arms1, leg_momenta(w.one, arms1), motors1, cut(places1))
    two = LegStart(arms2, leg_momenta(w.two, arms2), motors2, cut(places2))
    begin = cut(solve(w, one, two))
    end = advance(begin)
    places = (
        bodies.follow_touching(one.places, begin.one[1], end.one[1]),
        bodies.follow_touching(two.places, begin.two[1], end.two[1]),
    )
    end = cut(correct(end, (motors1, motors2), places))
    foot1 = bodies.land(LOWER, begin.one[1], end.one[1], one.places, FRICTION)
    foot2 = bodies.land(LOWER, begin.two[1], end.two[1], two.places, FRICTION)
    touch1, cells1 = touching(s.touches[0], (s.cells[0], s.cells[1]), w.one[1], places1, foot1)
    touch2, cells2 = touching(s.touches[1], (s.cells[2], s.cells[3]), w.two[1], places2, foot2)
    v = joint_speeds(begin)
    i1, i2 = motor_impulses(motors1, (v[0], v[1])), motor_impulses(motors2, (v[2], v[3]))
    x, y = origin(end.hull)
    new = State(
        end.hull,
        end.one[0],
        foot1.body,
        end.two[0],
        foot2.body,
        (i1[0], i1[1], i2[0], i2[1]),
        (touch1, touch2),
        (cells1[0], cells1[1], cells2[0], cells2[1]),
        *ground.go_on(s.base, s.nodes, s.tops, s.maker, x, hard, rng),
    )
    fallen = (hull_gap(new, x, y, hard) < REST) | (x < 0.0)
    reward = gain(w.hull, end.hull, action)
    return new, -100.0 if fallen else reward, fallen | (x > GOAL)


def make_motors(impulses: Pair, angles: Pair, actions: Pair) -> Motors:
    """Return the motors of a leg, by impulses of the last step, angles and actions."""
    hip = bodies.make_motor(HIP, impulses[0], angles[0], actions[0])
    return hip, bodies.make_motor(KNEE, impulses[1], angles[1], actions[1])


def motor_impulses(motors: Motors, speeds: Pair) -> Pair:
    """Return the impulses of a leg's motors in a step that ends with these speeds."""
    hip = bodies.motor_impulse(motors[0], speeds[0])
    return hip, bodies.motor_impulse(motors[1], speeds[1])


def gain(before: Body, after: Body, action: Four) -> float:
    """Return the reward: for the way, less for a hull that turns, and for torques."""
    effort = min(abs(action[0]), 1.0) + min(abs(action[1]), 1.0)
    effort += min(abs(action[2]), 1.0) + min(abs(action[3]), 1.0)
    way = 130.0 * UNIT * (origin(after)[0] - origin(before)[0])
    return way - 5.0 * (abs(after.angle) - abs(before.angle)) - 0.028 * effort


def touching(
    before: float, cells: Pair, foot: Body, places: Places, landing: Landing
) -> tuple[float, Pair]:
    """Return whether a leg touches the ground, and the first and last cell that it touches.

    As in Gymnasium, one that leaves a cell is taken for one in the air until it touches another.

    Args:
        before: the same before the step.
        cells: that it touched then.
        foot: its lower part before the step.
        places: two points of it, the first of which is next to the ground.
        landing: its lower part after the step.
    """
    a, b = places
    on_a, on_b = (a.gap < SKIN) | landing.hits, b.gap < SKIN
    at_a = ground.cell_of(landing.x if landing.hits else foot.x + a.x)
    at_b = ground.cell_of(foot.x + b.x)
    low = min(at_a if on_a else 1000.0, at_b if on_b else 1000.0)
    high = max(at_a if on_a else -1.0, at_b if on_b else -1.0)
    leaves, begins = (cells[0] < low) | (cells[1] > high), (low < cells[0]) | (high > cells[1])
    touches = 0.0 if leaves else (1.0 if begins else before)
    return touches if on_a | on_b else 0.0, (low, high)


def observe(s: State, params: Params) -> tuple[float, ...]:
    """Return numbers of the hull, the joints of both legs, their contacts, and the lidar."""
    walker, hull = walker_of(s), Body(*s.hull)
    j, w = joint_angles(walker), joint_speeds(walker)
    body = (hull.angle, 2.0 * DT * hull.spin, 6.0 * DT * hull.vx, 4.0 * DT * hull.vy)
    one = (j[0], w[0] / HIP.speed, j[1] + 1.0, w[1] / KNEE.speed, s.touches[0])
    two = (j[2], w[2] / HIP.speed, j[3] + 1.0, w[3] / KNEE.speed, s.touches[1])
    ahead = cut(ground.ahead(s.nodes, s.tops, s.base, *origin(hull)))
    return body + one + two + ground.look(ahead, params.hardcore)


def pose(
    x: float, y: float, angle: float, velocity: Pair, spin: float, joints: Four, speeds: Four
) -> Walker:
    """Return bodies at their joints, with the velocities that hull and joints give them.

    Args:
        x: of the hull's origin.
        y: of the hull's origin.
        angle: of the hull.
        velocity: of the hull's centre of mass.
        spin: of the hull.
        joints: their angles.
        speeds: their speeds.
    """
    arm, centre = bodies.turned(0.0, -ORIGIN_Y, angle), bodies.turned(HULL_X, HULL_Y, angle)
    pin = bodies.move_twist(Twist(velocity[0], velocity[1], spin), Arm(-centre.x, -centre.y))
    hull = bodies.place(x + arm.x, y + arm.y, angle, centre, pin)
    one = pose_leg(
        x + arm.x, y + arm.y, angle - OPEN, pin, (joints[0], joints[1]), (speeds[0], speeds[1])
    )
    two = pose_leg(
        x + arm.x, y + arm.y, angle + OPEN, pin, (joints[2], joints[3]), (speeds[2], speeds[3])
    )
    return Walker(hull, one, two)


def pose_leg(x: float, y: float, angle: float, pin: Twist, joints: Pair, speeds: Pair) -> Bodies:
    """Return the parts of a leg that hangs at (x, y), with its hip's zero at an angle."""
    upper, lower = angle + joints[0], angle + joints[0] + joints[1]
    hip = Twist(pin.x, pin.y, pin.spin + speeds[0])
    arm, other = bodies.turned(0.0, -HALF_LENGTH, upper), bodies.turned(0.0, -HALF_LENGTH, lower)
    thigh = Arm(2.0 * arm.x, 2.0 * arm.y)
    end = bodies.move_twist(hip, thigh)
    knee = Twist(end.x, end.y, end.spin + speeds[1])
    return (
        bodies.place(x, y, upper, arm, hip),
        bodies.place(x + thigh.x, y + thigh.y, lower, other, knee),
    )


def reset(rng: Rng, params: Params) -> State:
    """Return a walker on flat ground, after a step in which a random force pushed it.

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
    w = pose(
        4.64895 + 0.042 * push,
        5.73246 - 0.006 * push,
        -0.00523,
        (-0.009 + 1.005 * push, -0.01417 + 0.112 * push),
        -0.00037 - 0.02 * push,
        (0.43531, -0.8858 - 0.11 * push, 0.33812 + 0.004 * push, -0.88435 - 0.121 * push),
        (
            0.23734 - 2.042 * push,
            -0.46285 + 3.195 * push,
            0.26809 - 0.749 * push,
            -0.52527 + 0.54 * push,
        ),
    )
    return State(
        w.hull,
        w.one[0],
        bodies.set_velocity(w.one[1], 0.13146 - 0.687 * push, 0.01183 - 0.06 * push),
        w.two[0],
        bodies.set_velocity(w.two[1], 0.14832 + 0.057 * push, 0.0185 + 0.015 * push),
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
