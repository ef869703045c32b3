"""A term with the factor 0 is no term, whatever its value: a discount, a weight, a ratio of 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu import scan
from tests.scan.recurrences import naive
from tests.scan.recurrences.problems import Problem, make_problem, poisoned, problems


def assert_same(problem: Problem, found: Any, expected: Any) -> None:
    """Equal but for rounding, NaN and infinities included."""
    tolerance = 50 * np.finfo(found.dtype).eps
    found = problem.columns(found, np.longdouble)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def check_estimators(problem: Problem, gamma: Any, lambda_: Any, n: int) -> None:
    """Compare all of them with the oracles, which leave out such terms."""
    e, factors = problem.episodes(gamma), {"gamma": gamma, "lambda_": lambda_}
    names = "values", "action_values", "ratios"
    values, action_values, ratios = problem.arrays(*names)
    weights = problem.columns(lambda_, np.longdouble)
    with np.errstate(invalid="ignore"):
        found = problem.call(scan.discounted_returns, gamma=gamma)
        assert_same(problem, found, naive.discounted_returns(e))
        found, expected = problem.call(scan.gae, "values", **factors), naive.gae(e, values, weights)
        assert_same(problem, found.advantages, expected)
        assert_same(problem, found.returns, expected + values)
        found = problem.call(scan.lambda_returns, "values", **factors)
        assert_same(problem, found, naive.lambda_returns(e, values, weights))
        found = problem.call(scan.nstep_returns, "values", n=n, **factors)
        assert_same(problem, found, naive.nstep_returns(e, values, weights, n))
        targets, advantages = naive.vtrace(e, values, ratios, weights, (1.0, 1.0, 1.0))
        found = problem.call(scan.vtrace, "values", "ratios", **factors)
        assert_same(problem, found.targets, targets)
        assert_same(problem, found.advantages, advantages)
        found = problem.call(scan.retrace, *names, **factors)
        assert_same(problem, found, naive.retrace(e, values, action_values, ratios, weights))


@given(problems(), st.integers(0, 2**32 - 1), st.integers(1, 10))
def test_terms_with_the_factor_0_are_left_out(problem, seed, n):
    check_estimators(*poisoned(problem, seed), n)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((300, 3), 1), ((40, 70), 0), ((3, 1000), 1)])
def test_so_they_are_in_every_piece_and_block(shape, axis, dtype):
    check_estimators(*poisoned(make_problem(shape, dtype, 0.05, axis=axis), seed=1), n=5)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("wide", [1, 40])
def test_sums_of_rewards_alone_read_no_values(poison, wide):
    going, ones = np.zeros((3, wide), bool), np.ones((3, wide))
    arguments = ones, np.full((3, wide), poison), going, going, 0.0
    expected = np.repeat([[1.75], [1.5], [1.0]], wide, axis=1)
    for function, options in (
        (scan.nstep_returns, {"n": 3}),
        (scan.nstep_returns, {"n": 7}),
        (scan.lambda_returns, {"lambda_": 1.0}),
    ):
        np.testing.assert_array_equal(function(*arguments, gamma=0.5, **options), expected)
    two = scan.nstep_returns(*arguments, n=2, gamma=0.5)
    np.testing.assert_array_equal(two, np.repeat([[poison], [1.5], [1.0]], wide, axis=1))
