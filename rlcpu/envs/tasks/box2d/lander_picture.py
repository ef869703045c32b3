"""Pictures of LunarLander, as Gymnasium draws it, but for the exhausts."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.tasks.box2d import lander_legs as legs
from rlcpu.envs.tasks.box2d.lander_legs import UNIT

SIZE = WIDTH, HEIGHT = 600, 400  # pixels, 1 / UNIT of them a metre
PAD_HEIGHT = 100  # of y = 0 above the lower edge
SKY, MOON, FLAG, BODY, EDGE = (
    (0, 0, 0),
    (255, 255, 255),
    (204, 204, 0),
    (128, 102, 230),
    (77, 77, 128),
)
HULL = ((-14, 17), (-17, 0), (-17, -10), (17, -10), (17, 0), (14, 17))  # pixels, from the pin
LEG = ((-2, -8), (2, -8), (2, 8), (-2, 8))  # pixels, from its centre


def draw(state: Any, params: Any) -> npt.NDArray[np.uint8]:
    """Return one picture, (400, 600, 3) uint8.

    Raises:
        ImportError: pygame is not installed.
    """
    try:
        import pygame
    except ImportError as error:
        raise ImportError("drawing needs pygame: pip install pygame-ce") from error
    surface = pygame.Surface(SIZE)
    surface.fill(MOON)
    heights = (*state.nodes[:4], legs.PAD, legs.PAD, legs.PAD, *state.nodes[4:])
    ground = [(legs.SPACING * k - legs.WIDTH, height) for k, height in enumerate(heights)]
    pygame.draw.polygon(surface, SKY, [(0, 0), *pixels(ground), (WIDTH, 0)])
    x, y, angle, right, left = state.x, state.y, state.angle, state.right, state.left
    sides = ((angle + legs.CLOSED + right, 1.0), (angle - legs.CLOSED - left, -1.0))
    parts = [(LEG, x + leg.x, y + leg.y, leg) for leg in (legs.leg_body(*each) for each in sides)]
    for shape, cx, cy, body in ((HULL, x, y, legs.hull_body(angle)), *parts):
        turned = (
            (u * body.cosine - v * body.sine, u * body.sine + v * body.cosine) for u, v in shape
        )
        corners = pixels([(cx + UNIT * u, cy + UNIT * v) for u, v in turned])
        pygame.draw.polygon(surface, BODY, corners)
        pygame.draw.aalines(surface, EDGE, True, corners)
    for pole in (240, 360):  # columns of the pad's ends, each of which has a flag
        top = HEIGHT - PAD_HEIGHT - 50
        pygame.draw.line(surface, MOON, (pole, HEIGHT - PAD_HEIGHT), (pole, top))
        pygame.draw.polygon(surface, FLAG, [(pole, top), (pole, top + 10), (pole + 25, top + 5)])
    return np.ascontiguousarray(pygame.surfarray.pixels3d(surface).swapaxes(0, 1))


def pixels(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the pixels of points in metres."""
    return [(WIDTH / 2 + x / UNIT, HEIGHT - PAD_HEIGHT - y / UNIT) for x, y in points]
