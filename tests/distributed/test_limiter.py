"""The ratio of what is drawn to what is stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.distributed import SamplesPerInsert


@given(
    ratio=st.floats(0.01, 100.0),
    least=st.integers(1, 200),
    block=st.integers(1, 50),
    batch=st.integers(1, 500),
    choices=st.lists(st.booleans(), max_size=200),
)
def test_the_ratio_holds_and_one_of_both_can_always_go_on(ratio, least, block, batch, choices):
    slack = ratio * block + batch
    limiter = SamplesPerInsert(ratio, least, slack)
    for inserts in choices:
        can = {True: limiter.can_insert(block), False: limiter.can_sample(batch)}
        assert can[True] or can[False]
        if can[inserts]:
            limiter.insert(block) if inserts else limiter.sample(batch)
        surplus = (limiter.inserted - least) * ratio - limiter.sampled
        assert surplus <= slack
        assert limiter.sampled == 0 or (limiter.inserted >= least and surplus >= -slack)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0.0, 1, 1.0), ValueError, "ratio=0.0"),
        (("4", 1, 1.0), TypeError, "ratio='4'"),
        ((1.0, 0, 1.0), ValueError, "min_size=0"),
        ((1.0, 1, -1.0), ValueError, r"slack=-1\.0"),
    ],
)
def test_bad_arguments_are_named(arguments, error, text):
    with pytest.raises(error, match=text):
        SamplesPerInsert(*arguments)
