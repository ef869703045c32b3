"""One node of a tree of sums: eight numbers next to each other, by one thread.

Sums are taken in the order in which the CPU's vectors take them (`rlcpu.kernels.vectors`): the same
leaves have the same sums, bit for bit, and the same random numbers find the same leaves.
"""

from __future__ import annotations

from typing import Any

WIDTH = 8


def total(numbers: Any, at: Any) -> Any:
    """Sum of the eight numbers from `numbers[at]` on."""
    even = (numbers[at] + numbers[at + 4]) + (numbers[at + 2] + numbers[at + 6])
    odd = (numbers[at + 1] + numbers[at + 5]) + (numbers[at + 3] + numbers[at + 7])
    return even + odd


def search(numbers: Any, at: Any, x: Any) -> Any:
    """Child in whose share of [0, sum) the number x falls, and x from the share's beginning.

    Sums are rounded, so that x may fall between the shares or beyond the last: see `careful`.
    """
    a, b, c, d = numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]
    e, f, g = numbers[at + 4], numbers[at + 5], numbers[at + 6]
    # Of distance 1, 2 and 4; the last sum is not looked at: x is below it, or beyond all.
    ab, bc, cd, de, ef, fg = b + a, c + b, d + c, e + d, f + e, g + f
    abc, abcd, bcde, cdef, defg = bc + a, cd + ab, de + bc, ef + cd, fg + de
    five, six, seven = bcde + a, cdef + ab, defg + abc
    child, before = 0, 0.0
    if not a > x:
        child, before = 1, a
        if not ab > x:
            child, before = 2, ab
            if not abc > x:
                child, before = 3, abc
                if not abcd > x:
                    child, before = 4, abcd
                    if not five > x:
                        child, before = 5, five
                        if not six > x:
                            child, before = 6, six
                            if not seven > x:
                                child, before = 7, seven
    return child, max(x - before, 0.0)


def careful(numbers: Any, at: Any, x: Any) -> Any:
    """The same of a child above zero, if there is one: sums are taken in order, without gaps."""
    before, after, child = 0.0, 0.0, 0
    for j in range(WIDTH):
        weight = numbers[at + j]
        if weight > 0.0 and (x >= after or after == 0.0):
            before, child = after, j
        after += weight
    return child, max(x - before, 0.0)


def walk(numbers: Any, offsets: Any, x: Any) -> Any:
    """Leaf at the position x in [0, sum of all leaves); of zero only between two shares.

    Args:
        numbers: all levels, the leaves first.
        offsets: where each level begins, and the end of the last one.
        x: the position.
    """
    node = 0
    for up in range(offsets.size - 1):
        level = offsets.size - 2 - up
        child, x = search(numbers, offsets[level] + node * WIDTH, x)
        # Beyond the last share is the padding of a level, and below that nothing.
        entries = (offsets[level] - offsets[level - 1]) // WIDTH if level > 0 else offsets[1]
        node = min(node * WIDTH + child, entries - 1)
    return node


def walk_carefully(numbers: Any, offsets: Any, x: Any) -> Any:
    """The same, of a leaf above zero if there is any."""
    node = 0
    for up in range(offsets.size - 1):
        level = offsets.size - 2 - up
        child, x = careful(numbers, offsets[level] + node * WIDTH, x)
        node = node * WIDTH + child
    return node
