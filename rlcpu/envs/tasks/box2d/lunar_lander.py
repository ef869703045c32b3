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

from rlcpu.envs.contract.dynamics import Dynamics
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
View = tuple[float, float, float, float, float, float, float, float]

#: What `right_touches` and `left_touches` are: a leg that slid over a node of the terrain while it
#: touched the ground counts as one in the air, as in Gymnasium, until it leaves the ground.
IN_AIR, ON_GROUND, SLID = 0.0, 1.0, 2.0


class State(NamedTuple):
    """The pin of the lander, the hull about it, both legs, and the ground.

    (0, 0) is 3 cm above the middle of the pad.
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
    right_touches: float  # 0 in the air, 1 on the ground, 2 where it slid over a node
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


def flies(s: State) -> bool:
    """Tell whether the wind blows: no leg is on the ground."""
    return (s.right_touches != ON_GROUND) & (s.left_touches != ON_GROUND)


def wave(index: float) -> float:
    """Return the strength of the wind at an index that counts steps, from -1 to 1."""
    return math.tanh(math.sin(0.02 * index) + math.sin(math.pi * 0.01 * index))


class Push(NamedTuple):
    """Impulses of the engines on the hull."""

    x: float  # N s
    y: float
    moment: float  # N m s, about the pin


def engine_push(angle: float, main: float, side: float, noise: Pair) -> Push:
    """Return what the engines do to the hull in a step.

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
    # The side engine's impulse is -(x, y); it acts at (x, y) moved by Gymnasium's 17 and 14 pixels.
    x, y = sine * along - cosine * away, -cosine * along - sine * away
    return Push(
        -power * (sine * down - cosine * across) - side_power * x,
        power * (cosine * down + sine * across) - side_power * y,
        side_power * ((y + cosine * 14.0 * UNIT) * x - (x - sine * 17.0 * UNIT) * y),
    )


def free_motion(s: State, params: Params, lander: legs.Lander, push: Push) -> Motion:
    """Return the motion after a step without impulses of the ground and of hinges.

    Engines, wind and gravity act, and the centrifugal forces by which turning bodies pull the pin.
    """
    hull, right, left, inverse_mass = lander
    jx, jy, moment = push
    if params.enable_wind:
        power = DT * params.wind_power * wave(s.wind)
        twist = DT * params.turbulence_power * wave(s.turbulence)
        jx += power if flies(s) else 0.0
        moment += twist - hull.y * power if flies(s) else 0.0
    hull_pull = DT * legs.HULL_MASS * s.spin * s.spin
    right_pull = DT * legs.LEG_MASS * s.right_spin * s.right_spin
    left_pull = DT * legs.LEG_MASS * s.left_spin * s.left_spin
    pull_x = hull_pull * hull.x + right_pull * right.x + left_pull * left.x
    pull_y = hull_pull * hull.y + right_pull * right.y + left_pull * left.y
    gx = jx + (pull_x + hull.ratio * hull.y * moment)
    gy = jy + (pull_y - hull.ratio * hull.x * moment)
    gain = legs.make_row(inverse_mass, gx, gy, moment=0.0)
    # The state has the velocity of the hull's centre of mass, which circles about the pin: the
    # pin's is less by the spin, and by what the centre gains towards the pin in the step.
    inwards = DT * s.spin * s.spin
    return Motion(
        s.vx + s.spin * hull.y - inwards * hull.x + gain.vx,
        s.vy - s.spin * hull.x - inwards * hull.y + gain.vy + DT * params.gravity,
        s.spin + moment / legs.HULL_MOMENT + legs.spin_from_pin(hull, gain.vx, gain.vy),
        s.right_spin + legs.spin_from_pin(right, gain.vx, gain.vy),
        s.left_spin + legs.spin_from_pin(left, gain.vx, gain.vy),
    )


def touches_after(before: float, touches: bool, x: float, vx: float, node: float) -> float:
    """Return `right_touches` or `left_touches` of the new state; it was `before`.

    The corner of the leg, which `touches` the ground now or not, slides from x (m) by vx (m/s). The
    terrain node near the pin is at x = `node` (m).
    """
    crosses = (x < node) != (x + DT * vx < node)
    slid = (before == SLID) | ((before == ON_GROUND) & crosses)
    return (SLID if slid else ON_GROUND) if touches else IN_AIR


def view(s: State) -> View:
    """Return the observation, of which `observe` says the parts, scaled as Gymnasium's."""
    right = 1.0 if s.right_touches == ON_GROUND else 0.0
    left = 1.0 if s.left_touches == ON_GROUND else 0.0
    x, y, vx, vy = s.x / WIDTH, (s.y - legs.LEG_Y) / HEIGHT, s.vx * WIDTH * DT, s.vy * HEIGHT * DT
    return (x, y, vx, vy, s.angle, 20.0 * DT * s.spin, right, left)


def shaping(observation: View) -> float:
    """Return the potential of an observation, whose changes are rewards."""
    x, y, vx, vy, angle, _, right, left = observation
    distance, speed = math.sqrt(x * x + y * y), math.sqrt(vx * vx + vy * vy)
    return 10.0 * (right + left) - 100.0 * (distance + speed + abs(angle))


def solve(s: State, problem: legs.Problem) -> legs.Impulses:
    """Return the impulses on both legs in a step: three sweeps from those of the step before."""
    touches = problem.left.corner.touches
    left = LegVector(
        s.left_normal if touches else 0.0, s.left_tangent if touches else 0.0, s.left_hinge
    )
    impulses = legs.sweep(problem, left)
    impulses = legs.sweep(problem, impulses.left)
    return legs.sweep(problem, impulses.left)


def next_state(
    s: State, ground: legs.Ground, lander: legs.Lander, problem: legs.Problem, free: Motion
) -> State:
    """Return the state after a step, of what it would be without impulses of ground and hinges.

    `problem` has the legs, their speeds in the motion `free` and their motors.
    """
    right, left, speed_r, speed_l, motor_r, motor_l, _ = problem
    impulses = solve(s, problem)
    change = legs.motion_from(lander, right, left, impulses)
    vx, vy, spin = free.vx + change.vx, free.vy + change.vy, free.hull + change.hull
    spin_r, spin_l = free.right + change.right, free.left + change.left
    # Gaps and openings of the legs after the step, at these velocities.
    speed_r = legs.coupled_speed(right, speed_r, left, impulses.left)
    speed_l = legs.coupled_speed(left, speed_l, right, impulses.right)
    end_r = legs.end_leg(right, speed_r, impulses.right, s.right, spin_r - spin)
    end_l = legs.end_leg(left, speed_l, impulses.left, s.left, spin_l - spin)
    move = legs.correct_positions(lander, right, left, end_r, end_l)
    open_r = end_r.opening + move.right - move.hull
    open_l = end_l.opening - move.left + move.hull
    hull, hits_r, hits_l = lander.hull, end_r.hits, end_l.hits
    cx, cy = vx - spin * hull.y, vy + spin * hull.x  # velocity of the hull's centre of mass
    bend = 0.5 * DT * DT * spin * spin  # the pin goes round that centre
    slow = (cx * cx + cy * cy < SLEEP_SPEED_SQUARED) & (abs(spin) < SLEEP_SPIN)
    slow = slow & (abs(spin_r) < SLEEP_SPIN) & (abs(spin_l) < SLEEP_SPIN)
    touches_r, touches_l = right.corner.touches | hits_r, left.corner.touches | hits_l
    rest, passes = s.rest + 1.0 if slow else 0.0, 1.0 if flies(s) else 0.0
    hinge_r, hinge_l = impulses.right.hinge, impulses.left.hinge
    return State(
        x=s.x + DT * vx + bend * hull.x + move.vx,
        y=s.y + DT * vy + bend * hull.y + move.vy,
        angle=s.angle + DT * spin + move.hull,
        vx=cx,
        vy=cy,
        spin=spin,
        right=open_r,
        left=open_l,
        right_spin=spin_r,
        left_spin=spin_l,
        right_touches=touches_after(s.right_touches, touches_r, right.corner.x, cx, ground.x),
        left_touches=touches_after(s.left_touches, touches_l, left.corner.x, cx, ground.x),
        right_motor=legs.next_motor_impulse(motor_r, hinge_r, hits=hits_r, is_open=open_r > 0.0),
        left_motor=legs.next_motor_impulse(motor_l, hinge_l, hits=hits_l, is_open=open_l > 0.0),
        left_normal=impulses.left.normal,
        left_tangent=impulses.left.tangent,
        left_hinge=hinge_l,
        rest=rest,
        wind=s.wind + passes,
        turbulence=s.turbulence + passes,
        nodes=s.nodes,
    )


def fly(
    s: State, main: float, side: float, params: Params, noise: Pair
) -> tuple[State, float, bool]:
    """Return the state after a step, its reward, and whether the episode ends.

    `main` and `side` are the engines' throttles, from 0 to 1 and from -1 to 1; `noise` has two
    random numbers in [0, 1) that spread the exhausts.
    """
    ground = legs.find_ground(s.nodes, s.x)
    lander = legs.make_lander(s.angle, s.right, s.left)
    free = free_motion(s, params, lander, engine_push(s.angle, main, side, noise))
    corner_r = legs.find_corner(s.x, s.y, ground, lander.right)
    corner_l = legs.find_corner(s.x, s.y, ground, lander.left)
    right = legs.make_leg(lander, lander.right, corner_r, side=1.0)
    left = legs.make_leg(lander, lander.left, corner_l, side=-1.0)
    problem = legs.Problem(
        right,
        left,
        legs.row_speeds(right, free, free.right),
        legs.row_speeds(left, free, free.left),
        legs.motor_hinge(right, s.right, s.right_motor),
        legs.motor_hinge(left, s.left, s.left_motor),
        legs.FRICTION,
    )
    new = next_state(s, ground, lander, problem, free)
    landed = new.rest >= STEPS_AT_REST
    crashed = (legs.hull_gap(new.x, new.y, new.angle, ground) < REST) | (abs(new.x) >= WIDTH)
    reward = shaping(view(new)) - shaping(view(s)) - 0.3 * main - 0.03 * abs(side)
    return new, 100.0 if landed else (-100.0 if crashed else reward), landed | crashed


def step(state: State, action: int, params: Params, uniforms: Pair) -> tuple[State, float, bool]:
    """Fire no engine (0), the left one (1), the main engine (2) or the right one (3) for a step."""
    side = 1.0 if action == 3 else (-1.0 if action == 1 else 0.0)
    return fly(state, 1.0 if action == 2 else 0.0, side, params, uniforms)


def step_continuous(
    state: State, action: Pair, params: Params, uniforms: Pair
) -> tuple[State, float, bool]:
    """Fire the engines for a step by the throttles of the main engine and of the side engines.

    Above 0 the main engine runs, from half to full at 1; below -0.5 the left one, above 0.5 the
    right one.
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


def random_nodes(draws: tuple[float, ...]) -> legs.Nodes:
    """Return the heights of the terrain's nodes, of seven random numbers in [0, 1)."""
    # Heights before smoothing, from left to right: a, b, c, the pad three times, d, e, f, g.
    a, b, c, d = HEIGHT * draws[0], HEIGHT * draws[1], HEIGHT * draws[2], HEIGHT * draws[3]
    e, f, g, pad = HEIGHT * draws[4], HEIGHT * draws[5], HEIGHT * draws[6], 0.5 * HEIGHT
    return (
        smoothed_height(g, a, b),
        smoothed_height(a, b, c),
        smoothed_height(b, c, pad),
        smoothed_height(c, pad, pad),
        smoothed_height(pad, pad, d),
        smoothed_height(pad, d, e),
        smoothed_height(d, e, f),
        smoothed_height(e, f, g),
    )


def reset(uniforms: tuple[float, ...], params: Params) -> State:
    """Return a lander above random ground, after a first step in which a random force pushed it.

    The legs, still closed beyond their stops, jumped open in that step. All numbers below are
    measured in Box2D: a start without force, and its changes by a force in kN (`x`, `y`) and by the
    moment of turbulence in N m (`twist`).

    Args:
        uniforms: 11 random numbers in [0, 1): heights of seven nodes, force in x
            and y, start of the wind and of the turbulence.
        params: see `Params`.
    """
    x, y, twist = 2.0 * uniforms[7] - 1.0, 2.0 * uniforms[8] - 1.0, 0.0
    wind = math.floor(19998.0 * uniforms[9]) - 9999.0
    turbulence = math.floor(19998.0 * uniforms[10]) - 9999.0
    if params.enable_wind:
        x += 0.001 * params.wind_power * wave(wind)
        twist = params.turbulence_power * wave(turbulence)
    spin = -0.457878 * x + 0.021755 * twist
    return State(
        x=0.079827 * x,
        y=1.5 * HEIGHT + 0.002136 + 0.080663 * y,
        angle=-0.00925 * x + 0.000439 * twist,
        vx=4.042799 * x - 0.000458 * twist,
        vy=4.033161 * y + DT * params.gravity,
        spin=spin,
        right=0.141878 - 0.002746 * x,
        left=0.142152 + 0.00275 * x,
        right_spin=spin,
        left_spin=spin,
        right_touches=IN_AIR,
        left_touches=IN_AIR,
        right_motor=0.0,
        left_motor=0.0,
        left_normal=0.0,
        left_tangent=0.0,
        left_hinge=0.0,
        rest=0.0,
        wind=wind + 1.0,
        turbulence=turbulence + 1.0,
        nodes=random_nodes(uniforms),
    )


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
