"""The ground of BipedalWalker: how it is made ahead of the walker, where it is, what a lidar sees.

The state keeps the nodes from 8 behind the walker's farthest place to 12 ahead of it, which is as
far as a lidar sees. What is farther behind is forgotten: who returns finds it flat. A cell between
two nodes may have a block on it, with a flat top and upright sides: a stump, a stair, or the edge
of a pit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from rlcpu.envs.lander_legs import UNIT
from rlcpu.kernels.random import Rng

STEP = 14.0 * UNIT  # m, between two nodes
LEVEL = 100.0 * UNIT  # m, height of the flat ground where the walker starts
BEHIND = 8.0
START = 20.0  # the last node of that
NONE = -1000.0  # m, top of a block that is not there
RANGE = 160.0 * UNIT  # m, of a lidar
FAR = 2.0 * RANGE
GRASS, STUMP, STAIRS, PIT = 0.0, 1.0, 2.0, 3.0

#: Heights (m) of nodes from left to right; or of blocks between each and the next.
Heights = tuple[
    float, float, float, float, float, float, float, float, float, float, float,
    float, float, float, float, float, float, float, float, float, float,
]  # fmt: skip


class Maker(NamedTuple):
    """What makes the next node.

    Attributes:
        rise: of the grass from node to node (m).
        kind: GRASS, STUMP, STAIRS or PIT.
        left: nodes that are left of it.
        begins: 1 at the first node of a kind.
        level: height before stairs and pits (m).
        size: of a stump, or stairs; negative where these go down.
    """

    rise: float
    kind: float
    left: float
    begins: float
    level: float
    size: float


Plain = tuple[float, float, float, float, float, float]


def make_node(
    m: Maker, last: float, index: float, hardcore: bool, rng: Rng, k: int
) -> tuple[Plain, float, float]:
    """The next node.

    Args:
        m: see `Maker`.
        last: height of the node before.
        index: of this one.
        hardcore: whether there are other kinds than grass.
        rng: its numbers from k to k + 4 decide.
        k: see there.

    Returns:
        The fields of the new `Maker`, the height of the node, the top of the block after it.
    """
    first = m.begins > 0.0
    left, size, level, top = m.left, m.size, m.level, NONE
    rise = 0.8 * m.rise + (0.01 if last < LEVEL else (-0.01 if last > LEVEL else 0.0))
    rise += UNIT * (2.0 * rng.uniform(k) - 1.0) if index > START else 0.0
    rolls = (m.kind == GRASS) & (not first)
    rise = rise if rolls else m.rise
    y = last + rise if rolls else last
    if hardcore:
        level = last if first else level
        more = 1.0 if rng.uniform(k + 1) < 0.5 else 0.0
        way = 1.0 if rng.uniform(k + 2) < 0.5 else -1.0
        if m.kind == PIT:
            left = 5.0 + more if first else left
            y = level if first | (left <= 1.0) else level - 4.0 * STEP
            top = level if first | (left == 2.0) else NONE
        if m.kind == STUMP:
            size = 1.0 + more if first else size
            left = size if first else left
            top = y + size * STEP
        if m.kind == STAIRS:
            size = way * (3.0 + more) if first else size
            left = 4.0 * (3.0 + more) if first else left
            up = 1.0 if size > 0.0 else -1.0
            done = 4.0 * abs(size) - left
            y = level if first else level + 0.25 * (up * done - 1.0) * STEP
            top = level + up * math.floor(0.25 * done) * STEP
    left -= 1.0
    ends = left == 0.0
    other = 1.0 + math.floor(3.0 * rng.uniform(k + 3)) if hardcore & (m.kind == GRASS) else GRASS
    left = 5.0 + math.floor(5.0 * rng.uniform(k + 4)) if ends else left
    return (rise, other if ends else m.kind, left, 1.0 if ends else 0.0, level, size), y, top


def cell_of(x: float) -> float:
    """The node at or before x."""
    return math.floor(x / STEP) + 0.0


def from_node(h: Heights, k: float) -> Heights:
    """Heights from the k-th on; those after the last are as high."""
    e = h[20]
    one, two = (e,), (e, e)
    four = two + two
    eight = four + four
    h = h[16:] + eight + eight if k >= 16.0 else h
    k = k - 16.0 if k >= 16.0 else k
    h = h[8:] + eight if k >= 8.0 else h
    k = k - 8.0 if k >= 8.0 else k
    h = h[4:] + four if k >= 4.0 else h
    k = k - 4.0 if k >= 4.0 else k
    h = h[2:] + two if k >= 2.0 else h
    k = k - 2.0 if k >= 2.0 else k
    return h[1:] + one if k >= 1.0 else h


class Ground(NamedTuple):
    """A node, and both cells beside it: heights at their ends, from left to right."""

    x: float
    before: float
    left: float
    right: float
    after: float


def find_ground(nodes: Heights, tops: Heights, base: float, x: float, hardcore: bool) -> Ground:
    """The ground about the node next to x; `base` is the index of the first node."""
    k = min(max(math.floor(x / STEP + 0.5) - base, 1.0), 19.0)
    h = from_node(nodes, k - 1.0)
    x = (base + k) * STEP
    if hardcore:
        t = from_node(tops, k - 1.0)
        a, b = t[0], t[1]
        return Ground(x, max(h[0], a), max(h[1], a), max(h[1], b), max(h[2], b))
    return Ground(x, h[0], h[1], h[1], h[2])


class Gap(NamedTuple):
    """Distance of a point from the ground (m), and the direction away from it."""

    gap: float
    nx: float
    ny: float


def gap_at(g: Ground, x: float, y: float, hardcore: bool) -> Gap:
    """The gap of a point; the side of a block counts where it is nearer, or less deep."""
    ahead = x >= g.x
    slope = (g.after - g.right if ahead else g.left - g.before) / STEP
    scale = 1.0 / math.sqrt(1.0 + slope * slope)
    gap = (y - (g.right if ahead else g.left) - slope * (x - g.x)) * scale
    nx = -slope * scale
    if hardcore:
        face = -1.0 if g.right > g.left else 1.0  # of the wall at the node, to the left or right
        way = face * (x - g.x)
        wall = (abs(g.right - g.left) > 0.01) & (y < max(g.right, g.left))
        wall = wall & ((way > gap) if way < 0.0 else (way < gap))
        gap, nx, scale = way if wall else gap, face if wall else nx, 0.0 if wall else scale
    return Gap(gap, nx, scale)


class Hit(NamedTuple):
    """Two points between which a ray meets the ground: above it, and along it."""

    a: float
    b: float
    c: float
    d: float


def nearer(hit: Hit, ray: tuple[float, float], x: float, u: float, end: float, v: float) -> Hit:
    """The hit of a ray with the ground from (x, u) to (end, v), if there is one, else `hit`."""
    s, c = ray
    a, b = x * c + u * s, end * c + v * s
    meets = (a < 0.0) & (b >= 0.0)
    return Hit(a, b, x * s - u * c, end * s - v * c) if meets else hit


class Cells(NamedTuple):
    """The ground from the walker's cell on, and the walker: x of the first node from it, its y."""

    x: float
    nodes: Heights
    tops: Heights
    y: float


def look_cell(
    hit: Hit, ray: tuple[float, float], cells: Cells, k: int, x: float, hardcore: bool
) -> Hit:
    """The hit with cell k, or with the wall before it."""
    x, y, end = cells.x + x, cells.nodes[k] - cells.y, cells.nodes[k + 1] - cells.y
    if hardcore:
        top = cells.tops[k] - cells.y
        hit = nearer(hit, ray, x, max(y, top), x + STEP, max(end, top))
        before = cells.tops[k - 1] - cells.y if k > 0 else top
        return nearer(hit, ray, x, max(y, before), x, max(y, top))
    return nearer(hit, ray, x, y, x + STEP, end)


def look(cells: Cells, number: float, hardcore: bool) -> float:
    """How far ray `number` of 10 comes, as a part of its RANGE."""
    ray, hit = (math.sin(0.15 * number), math.cos(0.15 * number)), Hit(-1.0, 1.0, FAR, FAR)
    hit = look_cell(hit, ray, cells, 11, 11.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 10, 10.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 9, 9.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 8, 8.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 7, 7.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 6, 6.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 5, 5.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 4, 4.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 3, 3.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 2, 2.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 1, 1.0 * STEP, hardcore)
    hit = look_cell(hit, ray, cells, 0, 0.0 * STEP, hardcore)
    far = hit.c - (hit.d - hit.c) * hit.a / (hit.b - hit.a)
    return min(max(far / RANGE, 0.0), 1.0)
