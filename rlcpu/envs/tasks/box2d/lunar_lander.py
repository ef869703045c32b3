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
    UNIT,
    WIDTH,
    LegVector,
    Motion,
)

HEIGHT = 20.0 / 3.0  # m, half of the view
STEPS_AT_REST = 25.0  # until a lander has landed
#: Box2D's tolerances of bodies at rest, 0.01 m/s and 2 degrees/s.
SLEEP_SPEED_SQUARED, SLEEP_SPIN = 1.0e-4, math.pi / 90.0
MAIN_POWER, SIDE_POWER = 13.0, 0.6  # N s, impulse of an engine in a step at full throttle


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
    """Return the strength of the wind at an index that counts steps, from -1 to 1."""
    return math.tanh(math.sin(0.02 * index) + math.sin(math.pi * 0.01 * index))


def engine_impulse(
    angle: float, main: float, side: float, noise: Pair
) -> tuple[float, float, float]:
    """Return the impulse of the engines on the hull: x and y (N s), moment about the pin (N m s).

    The side engines push at another height the more the lander is turned: so does Gymnasium, which
    computes the place of their exhausts otherwise than that where it applies the impulse.

    Args:
        angle: of the hull (rad).
        main: throttle of the main engine, 0 to 1.
        side: throttle of the side engines, -1 (the left one fires) to 1.
        noise: two random numbers in [0, 1), by which exhausts are spread along and across the hull.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    along, across = UNIT * (2.0 * noise[0] - 1.0), UNIT * (2.0 * noise[1] - 1.0)
    down = 4.0 * UNIT + 2.0 * along  # of the main engine's exhaust
    away = 3.0 * across + (12.0 * UNIT if side > 0.0 else -12.0 * UNIT)  # of the side engine's
    power, side_power = MAIN_POWER * main, SIDE_POWER * abs(side)
    x, y = sine * along - cosine * away, -cosine * along - sine * away
    return (
        -power * (sine * down - cosine * across) - side_power * x,
        power * (cosine * down + sine * across) - side_power * y,
        side_power * ((y + cosine * 14.0 * UNIT) * x - (x - sine * 17.0 * UNIT) * y),
    )


def free_motion(
    s: State, params: Params, mass: legs.Mass, bodies: Bodies, engines: tuple[float, float, float]
) -> Motion:
    """Return the velocities after a step without contacts and hinges' impulses.

    Engines, wind and gravity act, and the centrifugal forces by which turning bodies pull the pin.
    Bodies are hull, right and left leg; `engines` is what `engine_impulse` returns.
    """
    hull, right, left = bodies
    ix, iy, moment = engines  # impulse on the pin, and moment on the hull
    if params.enable_wind:
        in_air = (s.right_touches != 1.0) & (s.left_touches != 1.0)
        power = DT * params.wind_power * wave(s.wind)
        twist = DT * params.turbulence_power * wave(s.turbulence)
        ix += power if in_air else 0.0
        moment += twist - hull.y * power if in_air else 0.0
    hull_pull = DT * legs.HULL_MASS * s.spin * s.spin
    right_pull = DT * legs.LEG_MASS * s.right_spin * s.right_spin
    left_pull = DT * legs.LEG_MASS * s.left_spin * s.left_spin
    pull_x = hull_pull * hull.x + right_pull * right.x + left_pull * left.x
    pull_y = hull_pull * hull.y + right_pull * right.y + left_pull * left.y
    ix += pull_x + hull.ratio * hull.y * moment
    iy += pull_y - hull.ratio * hull.x * moment
    # The state has the velocity of the hull's centre of mass: `back` leads from it to the pin's.
    gain, back = legs.make_row(mass, ix, iy, 0.0), DT * s.spin * s.spin
    return Motion(
        s.vx + s.spin * hull.y - back * hull.x + gain.vx,
        s.vy - s.spin * hull.x - back * hull.y + gain.vy + DT * params.gravity,
        s.spin + moment / legs.HULL_MOMENT + legs.spin_from_pin(hull, gain.vx, gain.vy),
        s.right_spin + legs.spin_from_pin(right, gain.vx, gain.vy),
        s.left_spin + legs.spin_from_pin(left, gain.vx, gain.vy),
    )


def touches_after(before: float, touches: bool, x: float, vx: float, node: float) -> float:
    """Return `right_touches` or `left_touches` of the new state: 0, 1 or 2 (see `State`).

    It was `before`; the leg `touches` the ground if it does so now, and its corner slides from x
    (m) by vx (m/s). Once it slid over the terrain node near the pin, at x = `node`, it stays at 2.
    """
    crosses = (x < node) != (x + DT * vx < node)
    lost = (before == 2.0) | ((before == 1.0) & crosses)
    return (2.0 if lost else 1.0) if touches else 0.0


def view(s: State) -> View:
    """Return the observation, of which `observe` says the parts."""
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
    """Return the state after a step, its reward, and whether the episode ends.

    Args:
        s: see `State`.
        main: throttle of the main engine, 0 to 1.
        side: throttle of the side engines, -1 to 1.
        params: see `Params`.
        noise: two random numbers in [0, 1) that spread the exhausts.
    """
    ground = legs.find_ground(s.nodes, s.x)
    hull = legs.hull_body(s.angle)
    body_r = legs.leg_body(s.angle + legs.CLOSED + s.right, 1.0)
    body_l = legs.leg_body(s.angle - legs.CLOSED - s.left, -1.0)
    mass = legs.pin_mass(hull, body_r, body_l)
    engines = engine_impulse(s.angle, main, side, noise)
    free = free_motion(s, params, mass, (hull, body_r, body_l), engines)
    right = legs.make_leg(s.x, s.y, ground, mass, free, hull, body_r, 1.0)
    left = legs.make_leg(s.x, s.y, ground, mass, free, hull, body_l, -1.0)
    # Velocities after the impulses of the ground and of the hinges.
    speeds, friction = (right.speed, left.speed), legs.FRICTION
    motor_r = legs.motor_hinge(right, s.right, s.right_motor)
    hinges = motor_r, legs.motor_hinge(left, s.left, s.left_motor)
    normal_l = s.left_normal if left.touches else 0.0
    tangent_l = s.left_tangent if left.touches else 0.0
    impulses_l = LegVector(normal_l, tangent_l, s.left_hinge)
    _, impulses_l = legs.sweep(right, left, speeds, hinges, friction, impulses_l)
    _, impulses_l = legs.sweep(right, left, speeds, hinges, friction, impulses_l)
    impulses_r, impulses_l = legs.sweep(right, left, speeds, hinges, friction, impulses_l)
    change = legs.velocity_change(hull, body_r, body_l, (right, left), impulses_r, impulses_l)
    vx, vy, spin = free.vx + change.vx, free.vy + change.vy, free.hull + change.hull
    spin_r, spin_l = free.right + change.right, free.left + change.left
    # Gaps and openings of the legs after the step, at these velocities.
    speed_r = legs.coupled_speed(right, right.speed, left, impulses_l)
    speed_l = legs.coupled_speed(left, left.speed, right, impulses_r)
    end_r = legs.end_leg(right, speed_r, impulses_r, s.right, spin_r - spin)
    end_l = legs.end_leg(left, speed_l, impulses_l, s.left, spin_l - spin)
    # Corners are lifted out of the ground and legs moved back to their stops: solved as speeds are,
    # but the result changes places, not velocities.
    lift_r = LegVector(legs.LIFT * (end_r.gap - REST), 0.0, end_r.opening)
    lift_l = LegVector(legs.LIFT * (end_l.gap - REST), 0.0, end_l.opening)
    lifts, stops = (lift_r, lift_l), (legs.stop_hinge(end_r), legs.stop_hinge(end_l))
    nothing = LegVector(0.0, 0.0, 0.0)
    move_r, move_l = legs.sweep(right, left, lifts, stops, 0.0, nothing)
    move = legs.velocity_change(hull, body_r, body_l, (right, left), move_r, move_l)
    open_r = end_r.opening + move.right - move.hull
    open_l = end_l.opening - move.left + move.hull
    bend = 0.5 * DT * DT * spin * spin  # the pin goes round the centre of mass
    x = s.x + DT * vx + bend * hull.x + move.vx
    y = s.y + DT * vy + bend * hull.y + move.vy
    angle = s.angle + DT * spin + move.hull
    cx, cy = vx - spin * hull.y, vy + spin * hull.x  # velocity of the hull's centre of mass
    # What the next step starts from.
    slow = (cx * cx + cy * cy < SLEEP_SPEED_SQUARED) & (abs(spin) < SLEEP_SPIN)
    slow = slow & (abs(spin_r) < SLEEP_SPIN) & (abs(spin_l) < SLEEP_SPIN)
    rest = s.rest + 1.0 if slow else 0.0
    touch_r = touches_after(
        s.right_touches, right.touches | end_r.hits, right.corner.x, cx, ground.x
    )
    touch_l = touches_after(s.left_touches, left.touches | end_l.hits, left.corner.x, cx, ground.x)
    hinge_r, hinge_l = impulses_r.hinge, impulses_l.hinge
    motor_r_next = legs.next_motor_impulse(hinge_r, s.right, s.right_motor, end_r.hits, open_r)
    motor_l_next = legs.next_motor_impulse(hinge_l, s.left, s.left_motor, end_l.hits, open_l)
    pose = (x, y, angle, cx, cy, spin, open_r, open_l, spin_r, spin_l, touch_r, touch_l)
    passes = 1.0 if (s.right_touches != 1.0) & (s.left_touches != 1.0) else 0.0
    memory = (motor_r_next, motor_l_next, impulses_l.normal, impulses_l.tangent, hinge_l)
    new = State(*pose, *memory, rest, s.wind + passes, s.turbulence + passes, s.nodes)
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
    """Make one step.

    Args:
        state: see `State`.
        action: throttles; above 0 the main engine runs, from half to full at 1, and beyond -0.5 and
            0.5 a side engine does.
        params: see `Params`.
        uniforms: two random numbers in [0, 1) that spread the exhausts.
    """
    main, side = min(action[0], 1.0), min(max(action[1], -1.0), 1.0)
    main, side = 0.5 + 0.5 * main if main > 0.0 else 0.0, side if abs(side) > 0.5 else 0.0
    return fly(state, main, side, params, uniforms)


def observe(state: State, params: Params) -> View:
    """Return place from the pad, velocity, angle, spin, and whether right and left leg touch."""
    return view(state)


def smoothed_height(left: float, here: float, right: float) -> float:
    """Return the height of a node above the pad (m), smoothed over its neighbours."""
    return 0.33 * (left + here + right) - 0.5 * HEIGHT


def reset(uniforms: tuple[float, ...], params: Params) -> State:
    """Return a lander above random ground, after a first step in which a random force pushed it.

    The legs, still closed beyond their stops, jumped open in that step. Its constants are measured
    in Box2D: changes by a force in kN, and by a moment in N m.

    Args:
        uniforms: 11 random numbers in [0, 1): heights of seven nodes, force in x
            and y, start of the wind and of the turbulence.
        params: see `Params`.
    """
    pad, draws = 0.5 * HEIGHT, uniforms
    # Heights before smoothing, from left to right: a, b, c, the pad three times, d, e, f, g.
    a, b, c, d = HEIGHT * draws[0], HEIGHT * draws[1], HEIGHT * draws[2], HEIGHT * draws[3]
    e, f, g = HEIGHT * draws[4], HEIGHT * draws[5], HEIGHT * draws[6]
    x, y = 2.0 * draws[7] - 1.0, 2.0 * draws[8] - 1.0  # kN
    twist, vy = 0.0, DT * params.gravity
    wind = math.floor(19998.0 * draws[9]) - 9999.0
    turbulence = math.floor(19998.0 * draws[10]) - 9999.0
    if params.enable_wind:
        x += 0.001 * params.wind_power * wave(wind)
        twist = params.turbulence_power * wave(turbulence)
    spin = -0.457878 * x + 0.021755 * twist
    place = (0.079827 * x, 1.5 * HEIGHT + 0.002136 + 0.080663 * y, -0.00925 * x + 0.000439 * twist)
    motion = (4.042799 * x - 0.000458 * twist, 4.033161 * y + vy, spin)
    opening = (0.141878 - 0.002746 * x, 0.142152 + 0.00275 * x, spin, spin, 0.0, 0.0)
    memory = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, wind + 1.0, turbulence + 1.0)
    left = (
        smoothed_height(g, a, b),
        smoothed_height(a, b, c),
        smoothed_height(b, c, pad),
        smoothed_height(c, pad, pad),
    )
    right = (
        smoothed_height(pad, pad, d),
        smoothed_height(pad, d, e),
        smoothed_height(d, e, f),
        smoothed_height(e, f, g),
    )
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
