"""The ground of BipedalWalker: how it is made ahead of the walker, where it is, what a lidar sees.

The state keeps the nodes from 8 behind the walker's farthest place to 12 ahead of it, which is as
far as a lidar sees. What is farther behind is forgotten: who returns finds it flat. A cell between
two nodes may have a block on it, with a flat top and upright sides: a stump, a stair, or the edge
of a pit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from rlcpu.envs.tasks.box2d.rigid_bodies import UNIT
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
    """The generator of nodes, at the next one.

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
    """Return the next node.

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


def go_on(
    base: float, nodes: Heights, tops: Heights, maker: Plain, x: float, hardcore: bool, rng: Rng
) -> tuple[float, Heights, Heights, Plain]:
    """Return the stored ground, moved on by a node if the walker at x goes farther than before."""
    new, y, top = make_node(Maker(*maker), nodes[20], base + 21.0, hardcore, rng, 0)
    node, block = (y,), (top,)
    if cell_of(x) > base + BEHIND:
        return base + 1.0, nodes[1:] + node, tops[1:] + block, new
    return base, nodes, tops, maker


def cell_of(x: float) -> float:
    """Return the node at or before x."""
    return math.floor(x / STEP) + 0.0


def from_node(h: Heights, k: float) -> Heights:
    """Return heights from the k-th on; those after the last are as high."""
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
    """Return the ground about the node next to x; `base` is the index of the first node."""
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
    """Return the gap of a point; the side of a block counts where it is nearer, or less deep."""
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


NOTHING = Hit(-1.0, 1.0, FAR, FAR)


def nearer(hit: Hit, ray: tuple[float, float], x: float, u: float, end: float, v: float) -> Hit:
    """Return the hit of a ray with the ground from (x, u) to (end, v), or else `hit`."""
    s, c = ray
    a, b = x * c + u * s, end * c + v * s
    meets = (a < 0.0) & (b >= 0.0)
    return Hit(a, b, x * s - u * c, end * s - v * c) if meets else hit


class Seen(NamedTuple):
    """The ground from the walker's cell on, from the walker: x of the first node, heights.

    `tops` are of the blocks before and behind each node: one more than there are cells.
    """

    x: float
    nodes: tuple[float, ...]
    tops: tuple[float, ...]


def ahead(nodes: Heights, tops: Heights, base: float, x: float, y: float) -> Seen:
    """Return the ground that the lidar of a walker at (x, y) sees."""
    k = min(max(cell_of(x) - base, 0.0), 8.0)
    h, t = from_node(nodes, k), from_node(tops, k)
    a = (h[0] - y, h[1] - y, h[2] - y, h[3] - y, h[4] - y, h[5] - y, h[6] - y)
    b = (h[7] - y, h[8] - y, h[9] - y, h[10] - y, h[11] - y, h[12] - y)
    c = (t[0] - y, t[0] - y, t[1] - y, t[2] - y, t[3] - y, t[4] - y, t[5] - y)
    d = (t[6] - y, t[7] - y, t[8] - y, t[9] - y, t[10] - y, t[11] - y)
    return Seen((base + k) * STEP - x, a + b, c + d)


Ray = tuple[float, float]


def look_cell(
    hit: Hit, ray: Ray, x: float, u: float, v: float, before: float, top: float, hardcore: bool
) -> Hit:
    """Return the hit with a cell from (x, u) to a node at height v, or with the wall before it.

    `top` is that of the cell's block, `before` that of the block before.
    """
    if hardcore:
        hit = nearer(hit, ray, x, max(u, top), x + STEP, max(v, top))
        return nearer(hit, ray, x, max(u, before), x, max(u, top))
    return nearer(hit, ray, x, u, x + STEP, v)


def look_three(
    hit: Hit,
    ray: Ray,
    x: float,
    k: float,
    h: tuple[float, ...],
    t: tuple[float, ...],
    hardcore: bool,
) -> Hit:
    """Return the hit with cells k to k + 2 of heights `h` and tops `t`, the farthest one first."""
    hit = look_cell(hit, ray, x + (k + 2.0) * STEP, h[2], h[3], t[2], t[3], hardcore)
    hit = look_cell(hit, ray, x + (k + 1.0) * STEP, h[1], h[2], t[1], t[2], hardcore)
    return look_cell(hit, ray, x + k * STEP, h[0], h[1], t[0], t[1], hardcore)


def ray_of(number: float) -> Ray:
    """Return sine and cosine of the angle of a ray from straight down."""
    return math.sin(0.15 * number), math.cos(0.15 * number)


def way_to(hit: Hit) -> float:
    """Return how far a ray comes, as a part of its RANGE."""
    far = hit.c - (hit.d - hit.c) * hit.a / (hit.b - hit.a)
    return min(max(far / RANGE, 0.0), 1.0)


def look_along(s: Seen, number: float, cells: float, hardcore: bool) -> float:
    """Return how far a ray comes that reaches 6, 9 or 12 cells."""
    hit, ray, h, t = NOTHING, ray_of(number), s.nodes, s.tops
    if cells > 9.0:
        hit = look_three(hit, ray, s.x, 9.0, h[9:13], t[9:13], hardcore)
    if cells > 6.0:
        hit = look_three(hit, ray, s.x, 6.0, h[6:10], t[6:10], hardcore)
    hit = look_three(hit, ray, s.x, 3.0, h[3:7], t[3:7], hardcore)
    return way_to(look_three(hit, ray, s.x, 0.0, h[:4], t[:4], hardcore))


def look(s: Seen, hardcore: bool) -> tuple[float, ...]:
    """Return how far each of the ten rays of the lidar comes."""
    return (
        look_along(s, 0.0, 6.0, hardcore),
        look_along(s, 1.0, 6.0, hardcore),
        look_along(s, 2.0, 6.0, hardcore),
        look_along(s, 3.0, 9.0, hardcore),
        look_along(s, 4.0, 9.0, hardcore),
        look_along(s, 5.0, 9.0, hardcore),
        look_along(s, 6.0, 12.0, hardcore),
        look_along(s, 7.0, 12.0, hardcore),
        look_along(s, 8.0, 12.0, hardcore),
        look_along(s, 9.0, 12.0, hardcore),
    )
