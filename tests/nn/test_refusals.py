"""What stand-ins refuse, in one sentence that says what to write."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rlcpu import nn
from tests.nn.test_tape import leaning, make_learner

#: (networks, batch, the outputs of one) -> what raises an error of this type, with these words.
REFUSED = [
    (
        lambda n, b, x: math.exp(x),
        TypeError,
        r"makes a number of .*nn\.each\(math\.exp",
    ),
    (lambda n, b, x: int(x), TypeError, "makes a number of"),
    (
        lambda n, b, x: np.exp(x),
        TypeError,
        r"np\.exp to .*: expected nn\.each\(math\.exp, x\)",
    ),
    (lambda n, b, x: np.arctan2(x, x), TypeError, r"expected nn\.each\(math\.atan2, x\)"),
    (lambda n, b, x: np.maximum(x, 0.0), TypeError, r"expected nn\.each\(max, x, y\)"),
    (lambda n, b, x: np.sum(x), TypeError, r"applies np\.sum to .*: expected nn\.sum\(x\)"),
    (lambda n, b, x: np.array([x, x]), TypeError, r"makes an array of .*: expected x\.width"),
    (lambda n, b, x: torch.exp(x), TypeError, r"applies torch's exp to .*nn\.each\(math\.exp, x\)"),
    (lambda n, b, x: torch.cat([x, x]), TypeError, r"expected a network .*nets\.f\(x, y\)"),
    (lambda n, b, x: x @ np.ones(4), TypeError, r"applies @ to .*: expected nn\.sum\(x \* w\)"),
    (lambda n, b, x: np.ones((2, 4)) @ x, TypeError, r"expected nn\.sum\(x \* w\)"),
    (lambda n, b, x: x % 2, TypeError, r"applies % to .*: expected a scalar function"),
    (lambda n, b, x: ~x, TypeError, "applies ~ to"),
    (lambda n, b, x: x[b.index], TypeError, r"expected nn\.take\(x, tensor\)"),
    (lambda n, b, x: x[[0, 1]], TypeError, r"reads \[\[0, 1\]\] of .*expected x\.width"),
    (lambda n, b, x: x[:, 0], TypeError, r"a tensor has no axes"),
    (lambda n, b, x: x[4], IndexError, "of a tensor of width 4"),
    (lambda n, b, x: x.__setitem__(0, 1.0), TypeError, r"writes to \[0\] of"),
    (lambda n, b, x: x if x == 3 else 0, TypeError, "branches on data"),
    (lambda n, b, x: x if x < 2 else 0, TypeError, "branches on data"),
    (lambda n, b, x: x and x, TypeError, "branches on data"),
    (lambda n, b, x: sum(x), TypeError, r"iterates over .*: expected x\[0\] .*nn\.sum\(x\)"),
    (lambda n, b, x: max(b.weight), TypeError, r"nn\.max\(x\) for the largest"),
    (lambda n, b, x: 3 in x, TypeError, "iterates over"),
    (lambda n, b, x: len(x), TypeError, r"takes the length of .*: expected x\.width"),
    (lambda n, b, x: x.mean(), AttributeError, r"reads \.mean of .*: expected nn\.mean\(x\)"),
    (lambda n, b, x: x.detach(), AttributeError, r"expected nn\.hold\(x\)"),
    (lambda n, b, x: b.x.shape, AttributeError, r"reads \.shape of .*: expected x\.width"),
    (
        lambda n, b, x: x.another,
        AttributeError,
        r"reads \.another of .*: expected a scalar",
    ),
    (
        lambda n, b, x: nn.relu(x),
        AttributeError,
        r"'relu': expected nn\.each\(max, x, 0",
    ),
    (lambda n, b, x: nn.tanh(x), AttributeError, r"expected nn\.each\(math\.tanh, x\)"),
    (lambda n, b, x: nn.another(x), AttributeError, "no attribute 'another'$"),
    (lambda n, b, x: nn.standardise(x), TypeError, "moments are computed before any instruction"),
    (lambda n, b, x: nn.each(np.exp, x), TypeError, r"such as nn\.each\(math\.exp, x\)"),
    (lambda n, b, x: nn.each(float, x), TypeError, "expected a function of numbers"),
    (lambda n, b, x: nn.take(x, 4), ValueError, "takes number 4: expected 0 to 3"),
    (lambda n, b, x: nn.max(x, b.mask), TypeError, "positional"),
    (lambda n, b, x: nn.mean(x), ValueError, r"mean of 4 numbers of a sample: nn\.sum\(x\) first"),
    (
        lambda n, b, x: nn.mean(b.weight) ** 2,
        TypeError,
        r"\*\* to a mean.* before nn\.mean",
    ),
    (lambda n, b, x: np.sqrt(nn.mean(b.weight)), TypeError, r"np\.sqrt to a mean"),
    (lambda n, b, x: n.q * 2.0, TypeError, r"applies \* to a network: expected its outputs"),
    (lambda n, b, x: b["x"], TypeError, r"reads a column by \['x'\]: write \.x"),
    (lambda n, b, x: x * [x], TypeError, "computes with .*: expected tensors and numbers"),
    (lambda n, b, x: n.q(x=b.x), TypeError, r"network .q. inputs x by name: expected \w+$"),
    (
        lambda n, b, x: nn.pairs(leaning, x, b.x, [0.5, 0.7], 1.0),
        ValueError,
        "gives 2 numbers beside pairs of 4 and 3: expected 4 or 1",
    ),
]


@pytest.mark.parametrize(("compute", "error", "words"), REFUSED)
def test_what_is_refused_says_what_to_write(compute: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words) as info:
        make_learner(lambda b, n, _: (nn.mean(compute(n, b, n.q(b.x))), {}), ("q",))
    assert "\n" not in str(info.value)
