"""Pictures of BipedalWalker, as Gymnasium draws it, but for clouds and lidar."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.tasks.box2d import walker_joints as parts
from rlcpu.envs.tasks.box2d import walker_legs as legs
from rlcpu.envs.tasks.box2d.lander_legs import UNIT
from rlcpu.envs.tasks.box2d.walker_ground import NONE, STEP

SIZE = WIDTH, HEIGHT = 600, 400  # pixels, 1 / UNIT of them a metre
VIEW = WIDTH * UNIT / 5.0  # m, from the left edge to the walker
SKY, GRASS, STONE, HULL, EDGE = (
    (215, 215, 255),
    (102, 153, 76),
    (255, 255, 255),
    (127, 51, 229),
    (76, 76, 127),
)
LEGS = ((178, 101, 152), (128, 51, 102))  # the one behind the hull, and the one before it
OUTLINE = ((-30, 9), (6, 9), (34, 1), (34, -8), (-30, -8))  # pixels


def draw(state: Any, params: Any) -> npt.NDArray[np.uint8]:
    """One picture.

    Args:
        state: of the walker.
        params: of it, which nothing of the picture needs.

    Returns:
        The picture, (400, 600, 3) uint8.

    Raises:
        ImportError: pygame is not installed.
    """
    try:
        import pygame
    except ImportError as error:
        raise ImportError("drawing needs pygame: pip install pygame-ce") from error
    surface = pygame.Surface(SIZE)
    surface.fill(SKY)
    left = state.x - VIEW

    def polygon(points: Any, colour: tuple[int, int, int]) -> None:
        pygame.draw.polygon(surface, colour, pixels(points, left))

    # Beyond the nodes that there are the ground is drawn flat.
    first, last = min(left, state.base * STEP), left + WIDTH * UNIT
    xs = [first, *((state.base + k) * STEP for k in range(len(state.nodes))), last]
    nodes = (state.nodes[0], *state.nodes, state.nodes[-1])
    tops = (NONE, *state.tops[:-1], NONE)
    ends = zip(xs[:-1], xs[1:], nodes[:-1], nodes[1:], tops, strict=True)
    for x, end, y, v, top in ends:
        polygon([(x, 0.0), (x, y), (end, v), (end, 0.0)], GRASS)
        if top > NONE:
            polygon([(x, min(y, v)), (x, top), (end, top), (end, min(y, v))], STONE)
    angle, half = state.angle, 0.5 * parts.LENGTH
    pin = (state.x + 8.0 * UNIT * math.sin(angle), state.y - 8.0 * UNIT * math.cos(angle))
    for hip, knee, colour in (
        (state.joints[2] + parts.OPEN, state.joints[3], LEGS[0]),
        (None, None, HULL),
        (state.joints[0] - parts.OPEN, state.joints[1], LEGS[1]),
    ):
        if hip is None:
            outline = [(UNIT * u, UNIT * v) for u, v in OUTLINE]
            polygon(turned(outline, state.x, state.y, angle), HULL)
            continue
        leg = legs.make_leg(angle + hip, angle + hip + knee)
        bend = pin[0] + 2.0 * leg.ax, pin[1] + 2.0 * leg.ay
        for width, x, y, turn in (
            (4.0 * UNIT, pin[0] + leg.ax, pin[1] + leg.ay, angle + hip),
            (parts.HALF_WIDTH, bend[0] + leg.bx, bend[1] + leg.by, angle + hip + knee),
        ):
            box = [(-width, -half), (width, -half), (width, half), (-width, half)]
            corners = turned(box, x, y, turn)
            polygon(corners, colour)
            pygame.draw.aalines(surface, EDGE, True, pixels(corners, left))
    return np.ascontiguousarray(pygame.surfarray.pixels3d(surface).swapaxes(0, 1))


def turned(points: Any, x: float, y: float, angle: float) -> list[tuple[float, float]]:
    """Points of a body at (x, y) and an angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    return [(x + u * cosine - v * sine, y + u * sine + v * cosine) for u, v in points]


def pixels(points: Any, left: float) -> list[tuple[float, float]]:
    """Where points given in metres are drawn."""
    return [((x - left) / UNIT, HEIGHT - y / UNIT) for x, y in points]
