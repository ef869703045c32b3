"""What of a tree of values is decided on the host."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from rlcpu.cuda.replay.value_draw import scan
from rlcpu.cuda.replay.value_tree import above


@given(st.data())
def test_parents_of_a_run(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 100))
    begin = data.draw(st.integers(0, size - 1))
    count = data.draw(st.integers(1, size))
    first, number = above(begin, count, size)
    entries = (size + 7) // 8
    assert 0 <= first < entries
    assert 1 <= number <= entries
    wanted = {(begin + k) % size // 8 for k in range(count)}
    assert {(first + k) % entries for k in range(number)} == wanted


def naive_scan(values: list[float], shift: float, u: float) -> int:
    weight, after, chosen = 0.0, 0.0, -1
    for value in values:
        weight += value + shift
    for item, value in enumerate(values):
        if value + shift > 0.0 and (u * weight >= after or chosen < 0):
            chosen = item
        after += value + shift
    return chosen


@given(st.lists(st.sampled_from([0.0, 1.0, 3.0, 1e17]), min_size=1), st.floats(0.0, 0.999))
def test_looking_at_every_value(weights: list[float], u: float) -> None:
    for shift in (0.0, 5.0):
        values = [weight - shift for weight in weights]
        assert scan(np.array(values), shift, u) == naive_scan(values, shift, u)
