"""LunarLander-v3 and LunarLanderContinuous-v3: land on the pad with three engines, without Box2D.

Source: Klimov's environment in Gymnasium, whose bodies, engines, wind and rewards these are; how
bodies move and touch stands in `lander_legs.py`. A lander that flies agrees with Gymnasium's to
1e-3 in every observation for 60 steps. What touches the ground does not agree in bits, but in the
distribution of returns: mean, deviation and quartiles of 1,000 to 2,000 episodes of Gymnasium's and
of 4,096 of these, in float32, and the share that landed.

=================== =============================== =====================================
policy              Gymnasium                       here
=================== =============================== =====================================
random              -186 +- 110 (-255 -152 -104)    -186 +- 115 (-264 -148 -101)
no engine           -133 +- 44 (-152 -133 -116)     -127 +- 44 (-150 -132 -113)
main engine         -876 +- 698 (-923 -651 -541)    -862 +- 607 (-917 -666 -547)
heuristic           239 +- 102 (247 264 283), 92 %  246 +- 91 (248 265 282), 94 %
same, continuous    283 +- 25 (271 286 297), 99.8 % 283 +- 23 (272 286 297), 99.8 %
same, in the wind   92 +- 166 (-39 51 253), 47 %    107 +- 165 (-29 183 260), 51 %
=================== =============================== =====================================

The numbers of impacts in `lander_legs.py` were chosen by these returns; an agent that PPO trained
here returns 288 +- 18 in Gymnasium's. The two differ most where legs hit the ground at 10 m/s and
more: Box2D's hull takes off again after 1 in 20 of such crashes, this one's after 1 in 15.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.tasks.box2d import lander_legs as legs
from rlcpu.envs.tasks.box2d import lander_picture
from rlcpu.envs.tasks.box2d.lander_legs import (
    DT,
    REST,
    SKIN,
    SLOP,
    UNIT,
    WIDTH,
    Constraints,
    LegVector,
    Motion,
)

HEIGHT = 20.0 / 3.0  # m, half of the view
STEPS_AT_REST = 25.0  # until a lander has landed


class Params(NamedTuple):
    """Physics."""

    gravity: float = -10.0  # m/s^2
    enable_wind: bool = False  # wind and turbulence push and turn the lander
    wind_power: float = 15.0  # N, the most that wind pushes
    turbulence_power: float = 1.5  # N m, the most that it turns


Pair = tuple[float, float]
Bodies = tuple[legs.PinnedBody, legs.PinnedBody, legs.PinnedBody]
View = tuple[float, float, float, float, float, float, float, float]


class State(NamedTuple):
    """The pin of the lander, the hull about it, both legs, and the ground.

    (0, 0) is 3 cm above the middle of the pad. A leg that `touches` is 0 in the air, 1 on the
    ground, and 2 where it slid there over a node, which Gymnasium takes for the air.
    """

    x: float  # m
    y: float
    angle: float  # rad
    vx: float  # m/s, of the hull's centre of mass
    vy: float
    spin: float  # rad/s
    right: float  # rad, by which the right leg is open
    left: float
    right_spin: float  # rad/s
    left_spin: float
    right_touches: float
    left_touches: float
    right_motor: float  # N m s, impulse of its motor in the last step
    left_motor: float
    left_normal: float  # N s, impulses on the left leg, from which the next step starts
    left_tangent: float
    left_hinge: float  # N m s
    rest: float  # steps for which nothing has moved
    wind: float  # steps of the wind's wave, and of the turbulence's
    turbulence: float
    nodes: legs.Nodes  # m, heights of the terrain


def wave(index: float) -> float:
    """Return the wind at an index that counts steps, from -1 to 1."""
    return math.tanh(math.sin(0.02 * index) + math.sin(math.pi * 0.01 * index))


def engines(angle: float, main: float, side: float, noise: Pair) -> tuple[float, float, float]:
    """Return the impulse of the engines on the hull (N s), and its moment about the pin (N m s).

    The exhausts are spread at random. The side engines turn with the angle of the lander, since
    Gymnasium has them at two heights.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    d0, d1 = UNIT * (2.0 * noise[0] - 1.0), UNIT * (2.0 * noise[1] - 1.0)
    down, away = 4.0 * UNIT + 2.0 * d0, 3.0 * d1 + (12.0 * UNIT if side > 0.0 else -12.0 * UNIT)
    power, aside = 13.0 * main, 0.6 * abs(side)
    x, y = sine * d0 - cosine * away, -cosine * d0 - sine * away
    return (
        -power * (sine * down - cosine * d1) - aside * x,
        power * (cosine * down + sine * d1) - aside * y,
        aside * ((y + cosine * 14.0 * UNIT) * x - (x - sine * 17.0 * UNIT) * y),
    )


def free_motion(
    s: State, params: Params, mass: legs.Mass, bodies: Bodies, jet: tuple[float, float, float]
) -> Motion:
    """Return the motion without contacts: by engines, wind, gravity and centrifugal forces."""
    hull, right, left = bodies
    ix, iy, moment = jet
    if params.enable_wind:
        in_air = (s.right_touches != 1.0) & (s.left_touches != 1.0)
        power = DT * params.wind_power * wave(s.wind)
        twist = DT * params.turbulence_power * wave(s.turbulence)
        ix += power if in_air else 0.0
        moment += twist - hull.y * power if in_air else 0.0
    a = DT * legs.HULL_MASS * s.spin * s.spin
    b = DT * legs.LEG_MASS * s.right_spin * s.right_spin
    c = DT * legs.LEG_MASS * s.left_spin * s.left_spin
    ix += a * hull.x + b * right.x + c * left.x + hull.ratio * hull.y * moment
    iy += a * hull.y + b * right.y + c * left.y - hull.ratio * hull.x * moment
    gain, back = legs.make_row(mass, ix, iy, 0.0), DT * s.spin * s.spin
    return Motion(
        s.vx + s.spin * hull.y - back * hull.x + gain.vx,
        s.vy - s.spin * hull.x - back * hull.y + gain.vy + DT * params.gravity,
        s.spin + moment / legs.HULL_MOMENT + legs.spin_from_pin(hull, gain.vx, gain.vy),
        s.right_spin + legs.spin_from_pin(right, gain.vx, gain.vy),
        s.left_spin + legs.spin_from_pin(left, gain.vx, gain.vy),
    )


def touches_after(before: float, touches: bool, x: float, vx: float, node: float) -> float:
    """Return whether a leg touches (see `State`), whose corner is at x and slides at vx."""
    crosses = (x < node) != (x + DT * vx < node)
    lost = (before == 2.0) | ((before == 1.0) & crosses)
    return (2.0 if lost else 1.0) if touches else 0.0


def view(s: State) -> View:
    """Return the observation."""
    right, left = 1.0 if s.right_touches == 1.0 else 0.0, 1.0 if s.left_touches == 1.0 else 0.0
    x, y, vx, vy = s.x / WIDTH, (s.y - legs.LEG_Y) / HEIGHT, s.vx * WIDTH * DT, s.vy * HEIGHT * DT
    return (x, y, vx, vy, s.angle, 20.0 * DT * s.spin, right, left)


def shaping(observation: View) -> float:
    """Return the potential of an observation, whose changes are rewards."""
    x, y, vx, vy, angle, _, right, left = observation
    distance, speed = math.sqrt(x * x + y * y), math.sqrt(vx * vx + vy * vy)
    return 10.0 * (right + left) - 100.0 * (distance + speed + abs(angle))


def fly(
    s: State, main: float, side: float, params: Params, noise: Pair
) -> tuple[State, float, bool]:
    """Make one step at the throttles of both engines."""
    ground = legs.find_ground(s.nodes, s.x)
    hull = legs.hull_body(s.angle)
    body_r = legs.leg_body(s.angle + legs.CLOSED + s.right, 1.0)
    body_l = legs.leg_body(s.angle - legs.CLOSED - s.left, -1.0)
    mass = legs.pin_mass(hull, body_r, body_l)
    jet = engines(s.angle, main, side, noise)
    free = free_motion(s, params, mass, (hull, body_r, body_l), jet)
    right = legs.make_leg(s.x, s.y, ground, mass, free, hull, body_r, 1.0)
    left = legs.make_leg(s.x, s.y, ground, mass, free, hull, body_l, -1.0)
    # Impulses of the ground and of the hinges.
    on_r, on_l = right.corner.gap < SKIN, left.corner.gap < SKIN
    motor_r = legs.motor_hinge(right.responses, on_r, s.right, s.right_motor)
    motor_l = legs.motor_hinge(left.responses, on_l, s.left, s.left_motor)
    constraints = Constraints(on_r, on_l, motor_r, motor_l, legs.FRICTION)
    b = LegVector(s.left_normal if on_l else 0.0, s.left_tangent if on_l else 0.0, s.left_hinge)
    _, b = legs.sweep(right, left, right.speed, left.speed, constraints, b)
    _, b = legs.sweep(right, left, right.speed, left.speed, constraints, b)
    a, b = legs.sweep(right, left, right.speed, left.speed, constraints, b)
    d = legs.velocity_change(hull, body_r, body_l, (right, left), a, b)
    vx, vy, spin = free.vx + d.vx, free.vy + d.vy, free.hull + d.hull
    spin_r, spin_l = free.right + d.right, free.left + d.left
    # Places after the step; then corners are lifted out of the ground and legs back to their stops.
    end_r = legs.end_leg(
        right, legs.coupled_speed(right, right.speed, left, b), a, s.right, spin_r - spin
    )
    end_l = legs.end_leg(
        left, legs.coupled_speed(left, left.speed, right, a), b, s.left, spin_l - spin
    )
    lift_r = LegVector(legs.LIFT * (end_r.gap - REST), 0.0, end_r.opening)
    lift_l = LegVector(legs.LIFT * (end_l.gap - REST), 0.0, end_l.opening)
    constraints = Constraints(on_r, on_l, legs.stop_hinge(end_r), legs.stop_hinge(end_l), 0.0)
    p, q = legs.sweep(right, left, lift_r, lift_l, constraints, LegVector(0.0, 0.0, 0.0))
    m = legs.velocity_change(hull, body_r, body_l, (right, left), p, q)
    open_r, open_l = end_r.opening + m.right - m.hull, end_l.opening - m.left + m.hull
    bend = 0.5 * DT * DT * spin * spin  # the pin goes round the centre of mass
    x, y = s.x + DT * vx + bend * hull.x + m.vx, s.y + DT * vy + bend * hull.y + m.vy
    angle = s.angle + DT * spin + m.hull
    cx, cy = vx - spin * hull.y, vy + spin * hull.x
    slow = (cx * cx + cy * cy < 1.0e-4) & (abs(spin) < SLOP)
    slow = slow & (abs(spin_r) < SLOP) & (abs(spin_l) < SLOP)
    rest = s.rest + 1.0 if slow else 0.0
    touch_r = touches_after(s.right_touches, on_r | end_r.hits, right.corner.x, cx, ground.x)
    touch_l = touches_after(s.left_touches, on_l | end_l.hits, left.corner.x, cx, ground.x)
    motor_impulse_r = legs.next_motor_impulse(a.hinge, s.right, s.right_motor, end_r.hits, open_r)
    motor_impulse_l = legs.next_motor_impulse(b.hinge, s.left, s.left_motor, end_l.hits, open_l)
    pose = (x, y, angle, cx, cy, spin, open_r, open_l, spin_r, spin_l, touch_r, touch_l)
    passes = 1.0 if (s.right_touches != 1.0) & (s.left_touches != 1.0) else 0.0
    motors = motor_impulse_r, motor_impulse_l
    memory = (*motors, b.normal, b.tangent, b.hinge, rest, s.wind + passes, s.turbulence + passes)
    new = State(*pose, *memory, s.nodes)
    crashed = (legs.hull_gap(x, y, angle, ground) < REST) | (abs(x) >= WIDTH)
    landed = rest >= STEPS_AT_REST
    reward = shaping(view(new)) - shaping(view(s)) - 0.3 * main - 0.03 * abs(side)
    return new, 100.0 if landed else (-100.0 if crashed else reward), landed | crashed


def step(state: State, action: int, params: Params, uniforms: Pair) -> tuple[State, float, bool]:
    """Make one step.

    Args:
        state: see `State`.
        action: 0 nothing, 1 left engine, 2 main engine, 3 right engine.
        params: see `Params`.
        uniforms: two random numbers in [0, 1) that spread the exhausts.
    """
    side = 1.0 if action == 3 else (-1.0 if action == 1 else 0.0)
    return fly(state, 1.0 if action == 2 else 0.0, side, params, uniforms)


def step_continuous(
    state: State, action: Pair, params: Params, uniforms: Pair
) -> tuple[State, float, bool]:
    """Take a step; throttle 0 to 1 is the main engine's half to full, sides fire beyond +-0.5."""
    main, side = min(action[0], 1.0), min(max(action[1], -1.0), 1.0)
    main, side = 0.5 + 0.5 * main if main > 0.0 else 0.0, side if abs(side) > 0.5 else 0.0
    return fly(state, main, side, params, uniforms)


def observe(state: State, params: Params) -> View:
    """Place from the pad, velocity, angle, spin, and whether the right and left leg touch."""
    return view(state)


def mean(left: float, here: float, right: float) -> float:
    """Return the height of a node above the pad, made smooth by its neighbours."""
    return 0.33 * (left + here + right) - 0.5 * HEIGHT


def reset(uniforms: tuple[float, ...], params: Params) -> State:
    """Return a lander above random ground, after a first step in which a random force pushed it.

    The legs, still closed beyond their stops, jumped open in that step. Its numbers are Box2D's:
    velocities by kN of force, and by N m of turbulence.
    """
    u, pad = uniforms, 0.5 * HEIGHT
    a, b, c, d = HEIGHT * u[0], HEIGHT * u[1], HEIGHT * u[2], HEIGHT * u[3]
    e, f, g = HEIGHT * u[4], HEIGHT * u[5], HEIGHT * u[6]
    x, y, twist, vy = 2.0 * u[7] - 1.0, 2.0 * u[8] - 1.0, 0.0, DT * params.gravity
    wind, turbulence = math.floor(19998.0 * u[9]) - 9999.0, math.floor(19998.0 * u[10]) - 9999.0
    if params.enable_wind:
        x += 0.001 * params.wind_power * wave(wind)
        twist = params.turbulence_power * wave(turbulence)
    spin = -0.457878 * x + 0.021755 * twist
    place = (0.079827 * x, 1.5 * HEIGHT + 0.002136 + 0.080663 * y, -0.00925 * x + 0.000439 * twist)
    motion = (4.042799 * x - 0.000458 * twist, 4.033161 * y + vy, spin)
    opening = (0.141878 - 0.002746 * x, 0.142152 + 0.00275 * x, spin, spin, 0.0, 0.0)
    memory = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, wind + 1.0, turbulence + 1.0)
    left = (mean(g, a, b), mean(a, b, c), mean(b, c, pad), mean(c, pad, pad))
    right = (mean(pad, pad, d), mean(pad, d, e), mean(d, e, f), mean(e, f, g))
    return State(*place, *motion, *opening, *memory, (*left, *right))


_HIGH = np.array([2.5, 2.5, 10.0, 10.0, 2.0 * math.pi, 10.0, 1.0, 1.0], dtype=np.float32)

DYNAMICS = Dynamics(
    id="LunarLander-v3",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=Box(np.append(-_HIGH[:6], [0.0, 0.0]).astype(np.float32), _HIGH),
    action_space=Discrete(4),
    params=Params(),
    reset_draws=11,
    step_draws=2,
    max_episode_steps=1000,
    reward_threshold=200.0,
    picture=lander_picture.draw,
)
CONTINUOUS = dataclasses.replace(
    DYNAMICS,
    id="LunarLanderContinuous-v3",
    step=step_continuous,
    action_space=Box(-1.0, 1.0, shape=(2,), dtype=np.float32),
)
