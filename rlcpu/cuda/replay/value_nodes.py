"""Trees of values on the device: the weight of an item is its value, raised by a shift.

As on the CPU (`rlcpu.replay.tree`), all levels of sums come first, then the smallest values below
each node, then the largest. The shift is the size of the smallest value if that is negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda.provider import cuda
from rlcpu.cuda.replay.nodes import WIDTH, careful, search, total


def raised(numbers: Any, at: Any, shift: Any, left: Any, span: Any, weights: Any) -> None:
    """Fill `weights`, (8,), with the weights of the eight children whose sums begin at `at`.

    Each child is over `span` leaves, of which the node has `left` that are items: both are floats.
    """
    for j in range(WIDTH):
        count = min(max(left - j * span, 0.0), span)
        weights[j] = max(numbers[at + j] + count * shift, 0.0)


def top_span(offsets: Any) -> Any:
    """Leaves below each of the eight entries of the highest level, as a float."""
    span = 1.0
    for _ in range(offsets.size - 2):
        span *= WIDTH
    return span


def total_weight(numbers: Any, offsets: Any, shift: Any, filled: Any) -> Any:
    """Sum of the weights of the first `filled` leaves, a float."""
    weights = cuda.local.array(8, np.float64)
    raised(numbers, offsets[offsets.size - 2], shift, filled, top_span(offsets), weights)
    return total(weights, 0)


def walk(numbers: Any, offsets: Any, shift: Any, filled: Any, x: Any) -> Any:
    """Leaf at the position x in [0, sum of all weights); of none only between two shares."""
    weights = cuda.local.array(8, np.float64)
    node, span = 0, top_span(offsets)
    for up in range(offsets.size - 1):
        level = offsets.size - 2 - up
        left = filled - np.float64(node) * (WIDTH * span)
        raised(numbers, offsets[level] + node * WIDTH, shift, left, span, weights)
        child, x = search(weights, 0, x)
        # Beyond the last share is the padding of a level, and below that nothing.
        entries = (offsets[level] - offsets[level - 1]) // WIDTH if level > 0 else offsets[1]
        node = min(node * WIDTH + child, entries - 1)
        span /= WIDTH
    return node


def walk_carefully(numbers: Any, offsets: Any, shift: Any, filled: Any, x: Any) -> Any:
    """The same, of a leaf with a weight if any child on the way has one."""
    weights = cuda.local.array(8, np.float64)
    node, span = 0, top_span(offsets)
    for up in range(offsets.size - 1):
        level = offsets.size - 2 - up
        left = filled - np.float64(node) * (WIDTH * span)
        raised(numbers, offsets[level] + node * WIDTH, shift, left, span, weights)
        child, x = careful(weights, 0, x)
        node = node * WIDTH + child
        span /= WIDTH
    return node


def refresh(numbers: Any, offsets: Any, level: Any, node: Any, filled: Any) -> None:
    """Recompute the sum, smallest and largest value of an entry of a level, from its children."""
    size = offsets[offsets.size - 1]
    inner = size - offsets[1]
    begin = offsets[level - 1] + node * WIDTH
    lows, highs, present = begin, begin, filled - np.float64(node) * WIDTH
    if level > 1:
        lows, present = begin - offsets[1] + size, np.float64(WIDTH)
        highs = lows + inner
    least, most = np.inf, -np.inf
    for j in range(WIDTH):
        if j < present:
            least = min(least, numbers[lows + j])
            most = max(most, numbers[highs + j])
    entry = offsets[level] + node
    numbers[entry] = total(numbers, begin)
    numbers[entry - offsets[1] + size] = least
    numbers[entry - offsets[1] + size + inner] = most
