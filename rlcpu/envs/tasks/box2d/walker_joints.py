"""The parts of BipedalWalker's body, and the motors and stops of the joints between them.

Shapes and numbers are those of Gymnasium's BipedalWalker. In a step every joint has a law, by which
its impulse falls with its speed (`Hinge`): see `walker_legs.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from rlcpu.envs.tasks.box2d.lander_legs import DT, SLOP, UNIT

HULL_MASS, HULL_INERTIA = 5.4222226, 2.0017447 - 5.4222226 * (0.0200364**2 + 0.00564664**2)
HULL_X, HULL_Y = -0.0200364, 8.0 * UNIT - 0.00564664  # m, from the pin to the centre of mass
LENGTH, HALF_WIDTH = 34.0 * UNIT, 3.2 * UNIT  # m, of each part of a leg; of its lower part
OPEN = 0.05  # rad, by which the hips are open when their angles are 0
UPPER_MASS, UPPER_INERTIA = 0.30222222, 0.03413992
LOWER_MASS, LOWER_INERTIA = 0.24177778, 0.02679614
MOTOR_IMPULSE = 80.0 * DT  # N m s in one step
STIFFNESS = 100.0  # kg m^2, of a joint that is held
#: Box2D's motors come near their speed by 180 iterations in one step, each of which turns a joint
#: as if its parts hung on nothing. The same in one go, with this number, gives like returns.
REACH = 108.0
SOFTNESS = 0.02  # kg m^2: impulse by which a speed decides whether a motor is too weak

Four = tuple[float, float, float, float]


class Hinge(NamedTuple):
    """A joint in one step: its impulse (N m s) is `drive - stiffness * speed`."""

    drive: float
    stiffness: float


class Joint(NamedTuple):
    """Speed of a motor (rad/s), and stops (rad)."""

    speed: float
    low: float
    high: float
    reach: float


HIP = Joint(4.0, -0.8, 1.1, REACH / (1.0 / HULL_INERTIA + 1.0 / UPPER_INERTIA))
KNEE = Joint(6.0, -1.6, -0.1, REACH / (1.0 / UPPER_INERTIA + 1.0 / LOWER_INERTIA))


class Motor(NamedTuple):
    """A joint's motor and its nearer stop, as seen from the side of that.

    Attributes:
        side: 1 if the stop is the lower one, else -1.
        held: whether the joint is at the stop, or beyond it.
        start: impulse of the motor in the last step, from which this one starts (N m s); its own
            sign, not that of the side.
        line: impulse of the motor at speed 0, if it is not too weak for it.
        reach: how that falls with speed (kg m^2).
        bound: the most that the motor gives.
        edge: impulse of the motor of a joint that rests at its stop.
    """

    side: float
    held: bool
    start: float
    line: float
    reach: float
    bound: float
    edge: float


def beyond(angle: float, side: float, joint: Joint) -> float:
    """How far a joint is beyond its stop on a side (rad)."""
    return joint.low - angle if side > 0.0 else angle - joint.high


def make_motor(impulse: float, angle: float, action: float, joint: Joint) -> Motor:
    """The motor of a joint at an angle, whose last impulse was `impulse`."""
    side = 1.0 if 2.0 * angle < joint.low + joint.high else -1.0
    target = side * (joint.speed if action > 0.0 else (-joint.speed if action < 0.0 else 0.0))
    bound = MOTOR_IMPULSE * min(abs(action), 1.0)
    start = min(max(impulse, -bound), bound)
    line = side * start + joint.reach * target
    held = beyond(angle, side, joint) >= 0.0
    return Motor(side, held, start, line, joint.reach, bound, min(max(line, -bound), bound))


Motors = tuple[Motor, Motor, Motor, Motor]


def make_motors(impulses: Four, angles: Four, action: Four) -> Motors:
    """Of hip, knee, hip and knee."""
    return (
        make_motor(impulses[0], angles[0], action[0], HIP),
        make_motor(impulses[1], angles[1], action[1], KNEE),
        make_motor(impulses[2], angles[2], action[2], HIP),
        make_motor(impulses[3], angles[3], action[3], KNEE),
    )


def motor_impulses(m: Motors, w: Four) -> Four:
    """Impulses of motors after a step that ends with these speeds."""
    return (
        motor_impulse(m[0], w[0]),
        motor_impulse(m[1], w[1]),
        motor_impulse(m[2], w[2]),
        motor_impulse(m[3], w[3]),
    )


def motor_impulse(m: Motor, speed: float) -> float:
    """Impulse of a motor after a step that ends with this speed."""
    return m.side * min(max(m.line - m.reach * m.side * speed, -m.bound), m.bound)


def bend(m: Motor, impulse: float, speed: float) -> Hinge:
    """The law of a joint near an impulse and a speed, those of the last round."""
    impulse, speed = m.side * impulse, m.side * speed
    stops = m.held & (speed <= -m.edge / STIFFNESS) & (impulse >= m.edge)
    near = (m.line - min(max(impulse, -m.bound), m.bound)) / m.reach
    excess = impulse + SOFTNESS * (near - speed)
    weak = abs(excess) > m.bound
    drive = (m.bound if excess > 0.0 else -m.bound) if weak else m.line
    stiffness = 0.0 if weak else m.reach
    return Hinge(0.0 if stops else m.side * drive, STIFFNESS if stops else stiffness)


def turn_back(m: Motor, angle: float, joint: Joint) -> Hinge:
    """The law that brings a joint back to its stop, but for SLOP; it gives angles, not speeds."""
    far = beyond(angle, m.side, joint) - SLOP
    holds = m.held & (far > 0.0)
    return Hinge(m.side * STIFFNESS * far if holds else 0.0, STIFFNESS if holds else 0.0)
