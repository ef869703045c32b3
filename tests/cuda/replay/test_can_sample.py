"""`can_sample` on the device says True exactly where `sample` does not raise."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from rlcpu.cuda import synchronize
from tests.replay.test_can_sample import KINDS, change, draw_buffer, samples

pytestmark = pytest.mark.device


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=8)
def test_it_is_true_where_sample_does_not_raise(kind: Any, data: Any) -> None:
    buffer = draw_buffer(data, kind, device="cuda")
    for _ in range(data.draw(st.integers(1, 4))):
        change(data, buffer)
        count = data.draw(st.integers(1, 13))
        assert buffer.can_sample(count) == samples(buffer, count, finish=synchronize)
