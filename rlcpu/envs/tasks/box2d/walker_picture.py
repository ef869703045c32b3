"""Pictures of BipedalWalker, as Gymnasium draws it, but for clouds and lidar."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.tasks.box2d.rigid_bodies import UNIT, turned
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
BEHIND, BEFORE = (178, 101, 152), (128, 51, 102)  # legs, as seen from the hull
#: Corners, in pixels from the centres of mass.
CENTRE = (-0.0200364 / UNIT, -0.00564664 / UNIT)
OUTLINE = [
    (u - CENTRE[0], v - CENTRE[1]) for u, v in ((-30, 9), (6, 9), (34, 1), (34, -8), (-30, -8))
]
UPPER = [(-4.0, -17.0), (4.0, -17.0), (4.0, 17.0), (-4.0, 17.0)]
LOWER = [(-3.2, -17.0), (3.2, -17.0), (3.2, 17.0), (-3.2, 17.0)]


def draw(state: Any, params: Any) -> npt.NDArray[np.uint8]:
    """Return one picture.

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
    origin = turned(UNIT * CENTRE[0], UNIT * CENTRE[1], state.hull[2])
    left = state.hull[0] - origin.x - VIEW

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
    for body, outline, colour in (
        (state.upper2, UPPER, BEHIND),
        (state.lower2, LOWER, BEHIND),
        (state.hull, OUTLINE, HULL),
        (state.upper1, UPPER, BEFORE),
        (state.lower1, LOWER, BEFORE),
    ):
        x, y, angle = body[:3]
        arms = [turned(UNIT * u, UNIT * v, angle) for u, v in outline]
        corners = [(x + arm.x, y + arm.y) for arm in arms]
        polygon(corners, colour)
        if colour != HULL:
            pygame.draw.aalines(surface, EDGE, True, pixels(corners, left))
    return np.ascontiguousarray(pygame.surfarray.pixels3d(surface).swapaxes(0, 1))


def pixels(points: Any, left: float) -> list[tuple[float, float]]:
    """Return the pixels of points in metres."""
    return [((x - left) / UNIT, HEIGHT - y / UNIT) for x, y in points]
