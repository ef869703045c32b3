"""Adam against its textbook form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlcpu.nn.update import Rates, adam


def test_adam_equals_the_algorithm_as_published() -> None:
    rng = np.random.default_rng(0)
    parameter = expected = 0.3
    first = second = m = v = 0.0
    for number in range(1, 50):
        gradient = float(rng.normal())
        bias1, bias2 = 1.0 - 0.9**number, 1.0 - 0.999**number
        rates = Rates(1e-2 / bias1, 1.0 / math.sqrt(bias2), 1e-5)
        parameter, first, second = adam(parameter, gradient, first, second, rates)
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        expected -= 1e-2 * (m / bias1) / (math.sqrt(v / bias2) + 1e-5)
        assert parameter == pytest.approx(expected, rel=1e-12)


def test_padding_stays_zero() -> None:
    assert adam(0.0, 0.0, 0.0, 0.0, Rates(1e-2, 30.0, 1e-5)) == (0.0, 0.0, 0.0)
