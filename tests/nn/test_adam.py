"""Adam against its textbook form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlcpu.nn import Adam
from rlcpu.nn.learning.adam import Rates, adam, rates_of


def test_adam_equals_the_algorithm_as_published() -> None:
    rng = np.random.default_rng(0)
    parameter = expected = 0.3
    first = second = m = v = 0.0
    for number in range(1, 50):
        gradient = float(rng.normal())
        bias1, bias2 = 1.0 - 0.9**number, 1.0 - 0.999**number
        rates = Rates(1e-2 / bias1, 1.0 / math.sqrt(bias2), 1e-5, 1.0)
        change, first, second = adam(gradient, first, second, rates)
        parameter = parameter * rates.decay - change
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        expected -= 1e-2 * (m / bias1) / (math.sqrt(v / bias2) + 1e-5)
        assert parameter == pytest.approx(expected, rel=1e-12)


def test_padding_stays_zero() -> None:
    assert adam(0.0, 0.0, 0.0, Rates(1e-2, 30.0, 1e-5, 1.0)) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_what_has_no_gradient_any_more_end_at_zero(dtype: Any) -> None:
    """Not among the subnormal numbers, which some processors compute a hundred times as slowly."""
    optimiser = Adam(np.ones(40, dtype))
    optimiser.step(np.logspace(-25, 0, 40).astype(dtype), 1e-3)
    for _ in range(2000):
        optimiser.step(np.zeros(40, dtype), 1e-3)
    assert not optimiser.first.any()
    optimiser.second[:] = np.logspace(-37, -28, 40)
    optimiser.step(np.zeros(40, dtype), 1e-3)
    small = optimiser.second[optimiser.second > 0]
    assert 0 < small.size < 20
    assert small.min() > 1e-30


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_class_steps_a_slice_by_the_same_rule(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    flat = rng.normal(size=12).astype(dtype)
    expected, outside = flat[2:9].astype(float), flat[[0, 1, 9, 10, 11]].copy()
    optimiser, m, v = Adam(flat[2:9], epsilon=1e-5), np.zeros(7), np.zeros(7)
    for number in range(1, 20):
        gradients = rng.normal(size=7).astype(dtype)
        norm = optimiser.step(gradients, 1e-2, max_norm=1.5)
        assert norm == pytest.approx(np.sqrt((gradients.astype(float) ** 2).sum()), rel=1e-6)
        scaled = gradients * min(1.0, 1.5 / (norm + 1e-6))
        rates = Rates(1e-2 / (1 - 0.9**number), (1 - 0.999**number) ** -0.5, 1e-5, 1.0)
        stepped = [adam(*item, rates) for item in zip(scaled, m, v, strict=True)]
        changes, m, v = np.array(stepped).T
        expected = expected - changes
    np.testing.assert_allclose(flat[2:9], expected, rtol=1e-4 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(flat[[0, 1, 9, 10, 11]], outside)
    assert optimiser.state()["counters"] == [19]


def test_bad_input_changes_nothing() -> None:
    with pytest.raises(TypeError, match="float32 or float64"):
        Adam(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="one contiguous axis"):
        Adam(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="epsilon=0"):
        Adam(np.zeros(3), epsilon=0)
    optimiser = Adam(np.ones(3))
    with pytest.raises(ValueError, match=r"gradients are float64 \(2,\): expected float64 \(3,\)"):
        optimiser.step(np.ones(2), 0.1)
    with pytest.raises(FloatingPointError, match="norm nan"):
        optimiser.step(np.array([0.0, np.nan, 0.0]), 0.1)
    np.testing.assert_array_equal(optimiser.parameters, np.ones(3))
    assert optimiser.counters == [0]


def test_rectified_steps_equal_the_algorithm_as_published() -> None:
    rng, longest = np.random.default_rng(0), 2.0 / (1.0 - 0.999) - 1.0
    parameter = expected = 0.3
    first = second = m = v = 0.0
    for number in range(1, 60):
        gradient = float(rng.normal())
        rates = rates_of.py_func(number, 1e-2, 1e-8, True, 0.0, np.float64)
        change, first, second = adam(gradient, first, second, rates)
        parameter = parameter * rates.decay - change
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        length = longest - 2.0 * number * 0.999**number / (1.0 - 0.999**number)
        mean = m / (1.0 - 0.9**number)
        if length > 5.0:
            above = (length - 4.0) * (length - 2.0) * longest
            shorter = math.sqrt(above / ((longest - 4.0) * (longest - 2.0) * length))
            root = math.sqrt(v) + 1e-8
            expected -= 1e-2 * mean * shorter * math.sqrt(1.0 - 0.999**number) / root
        else:
            expected -= 1e-2 * mean
        assert parameter == pytest.approx(expected, rel=1e-9)


def test_rectified_steps_equal_torchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    tensor = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.RAdam([tensor], lr=1e-2)
    parameter, first, second = 0.3, 0.0, 0.0
    for number in range(1, 60):
        gradient = float(rng.normal())
        rates = rates_of.py_func(number, 1e-2, 1e-8, True, 0.0, np.float64)
        change, first, second = adam(gradient, first, second, rates)
        parameter = parameter * rates.decay - change
        tensor.grad = torch.tensor([gradient], dtype=torch.float64)
        optimiser.step()
        assert parameter == pytest.approx(float(tensor.detach()[0]), rel=1e-9)
