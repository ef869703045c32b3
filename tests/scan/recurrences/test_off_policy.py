"""V-trace and Retrace against loops, and n-step returns, which have windows of their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.scan import (
    Clips,
    VTrace,
    discounted_returns,
    lambda_returns,
    nstep_returns,
    retrace,
    vtrace,
)
from rlcpu.scan.recurrences import rules
from rlcpu.scan.recurrences.rules import Step
from tests.scan.recurrences import naive
from tests.scan.recurrences.problems import DTYPES, assert_close, make_problem, problems

factors = st.floats(0.0, 1.0)
clips = st.builds(Clips, *(st.sampled_from([0.0, 0.5, 1.0, 1.5, float("inf")]),) * 3)


def extended(problem, number):
    return problem.columns(problem.rewards.dtype.type(number), np.longdouble)


@given(problems(), factors, factors, clips)
def test_vtrace_equals_the_loop(problem, gamma, lambda_, clips):
    settings = {"gamma": gamma, "lambda_": lambda_, "clips": clips}
    found = problem.call(vtrace, "values", "ratios", **settings)
    gamma, lambda_ = extended(problem, gamma), extended(problem, lambda_)
    arrays = problem.arrays("values", "ratios")
    expected = naive.vtrace(naive_episodes(problem, gamma), *arrays, lambda_, clips)
    assert_close(problem, found.targets, expected[0])
    assert_close(problem, found.advantages, expected[1])


def naive_episodes(problem, gamma):
    return problem.episodes(0.0)._replace(gamma=gamma)


@given(problems(), factors, factors)
def test_retrace_equals_the_loop(problem, gamma, lambda_):
    names = "values", "action_values", "ratios"
    found = problem.call(retrace, *names, gamma=gamma, lambda_=lambda_)
    gamma, lambda_ = extended(problem, gamma), extended(problem, lambda_)
    episodes = naive_episodes(problem, gamma)
    assert_close(problem, found, naive.retrace(episodes, *problem.arrays(*names), lambda_))


@given(problems(), factors, factors, st.integers(1, 60))
def test_nstep_returns_equal_the_loop(problem, gamma, lambda_, n):
    found = problem.call(nstep_returns, "values", n=n, gamma=gamma, lambda_=lambda_)
    gamma, lambda_ = extended(problem, gamma), extended(problem, lambda_)
    episodes = naive_episodes(problem, gamma)
    arrays = problem.arrays("values")
    assert_close(problem, found, naive.nstep_returns(episodes, *arrays, lambda_, n))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 40, 513, 1100])
def test_windows_of_any_length(n, axis):
    """About and beyond the numbers of steps and lanes that are computed at a time."""
    shape = (1300, 67) if axis == 0 else (3, 1300)
    problem = make_problem(shape, "float64", 0.01, axis=axis)
    found = problem.call(nstep_returns, "values", n=n, gamma=0.99)
    whole = problem.columns(problem.call(discounted_returns, gamma=0.99))
    values, e = problem.columns(problem.values), problem.episodes(0.99, np.float64)
    # R^n is the return less what comes after n steps but for its value, if no episode ends.
    ended = np.cumsum(
        np.concatenate([np.zeros((1, whole.shape[1])), e.terminated | e.truncated]), 0
    )
    t = np.arange(1300)
    stop = np.minimum(t + n, 1300)
    after = np.concatenate([values - whole, np.zeros((1, whole.shape[1]))])[stop]
    inside = ended[stop] == ended[t]
    expected = whole + np.where(inside, 0.99 ** (stop - t)[:, None] * after, 0.0)
    np.testing.assert_allclose(problem.columns(found), expected, rtol=1e-11, atol=1e-11)


def test_one_step_is_a_temporal_difference_and_many_are_the_return():
    problem = make_problem((20, 5), "float64", 0.1)
    one = problem.call(nstep_returns, "values", n=1, gamma=0.9)
    expected = problem.call(lambda_returns, "values", gamma=0.9, lambda_=0.0)
    np.testing.assert_allclose(one, expected, rtol=1e-14)
    many = problem.call(nstep_returns, "values", n=10**9, gamma=0.9)
    expected = problem.call(discounted_returns, gamma=0.9)
    np.testing.assert_allclose(many, expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vtrace_on_policy_gives_lambda_returns(dtype):
    problem = make_problem((30, 6), dtype, 0.1)
    problem.ratios.fill(1.0)
    settings = {"gamma": 0.9, "lambda_": 0.7}
    found = problem.call(vtrace, "values", "ratios", **settings).targets
    expected = problem.call(lambda_returns, "values", **settings)
    np.testing.assert_allclose(found, expected, rtol=0, atol=30 * np.finfo(dtype).eps)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_nan_of_one_episode_stays_in_it(axis):
    problem = make_problem((40, 4) if axis == 0 else (4, 40), "float32", ends=0.0, axis=axis)
    columns = problem.terminated, problem.rewards
    terminated, rewards = columns if axis == 0 else (array.T for array in columns)
    terminated[20, 0] = True
    rewards[30, 0] = np.nan
    expected = np.zeros((40, 4), bool)
    expected[21:31, 0] = True
    settings = {"gamma": 0.9, "lambda_": 0.9}
    results = [
        *problem.call(vtrace, "values", "ratios", **settings),
        problem.call(retrace, "values", "action_values", "ratios", **settings),
        problem.call(nstep_returns, "values", n=30, gamma=0.9),
    ]
    for found in results:
        np.testing.assert_array_equal(np.isnan(problem.columns(found)), expected)


def test_a_nan_among_the_ratios_is_not_clipped_away():
    problem = make_problem((3, 4), "float32", ends=0.0)
    problem.ratios[1, 2] = np.nan
    found = problem.call(vtrace, "values", "ratios", gamma=0.9)
    expected = np.zeros((3, 4), bool)
    expected[:2, 2] = True
    np.testing.assert_array_equal(np.isnan(found.targets), expected)
    np.testing.assert_array_equal(np.isnan(found.advantages), expected)


def test_scalar_functions_run_unjitted():
    step = Step(1.0, 2.0, False, False, 0.0, 0.5, 0.5, 2.0, 0.0)
    after = step._replace(value=4.0, lambda_=0.5, ratio=3.0, action_value=6.0)
    assert rules.vtrace_coefficients(step, after, (1.5, 1.0, 1.0)) == (0.25, 1.5)
    assert rules.vtrace_results(0.25, 1.0, step, after, (1.5, 1.0, 2.0)) == (2.25, 2.5)
    assert rules.retrace_coefficients(step, after, ()) == (0.25, 1.5)


@pytest.mark.parametrize("bad", [-0.5, float("nan")])
@pytest.mark.parametrize("name", Clips._fields)
def test_bad_clips_are_refused(name, bad):
    problem = make_problem((3, 2), "float32")
    settings = {"gamma": 0.9, "clips": Clips()._replace(**{name: bad})}
    with pytest.raises(ValueError, match=rf"^clips\.{name}={bad}: expected"):
        problem.call(vtrace, "values", "ratios", **settings)


@pytest.mark.parametrize(("bad", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError)])
def test_bad_numbers_of_steps_are_refused(bad, error):
    problem = make_problem((3, 2), "float32")
    with pytest.raises(error, match=rf"^n={bad}: expected"):
        problem.call(nstep_returns, "values", n=bad, gamma=0.9)


def test_out_is_filled_and_returned():
    problem = make_problem((5, 3), "float32")
    out = VTrace(*np.full((2, 5, 3), np.nan, np.float32))
    found = problem.call(vtrace, "values", "ratios", gamma=0.9, out=out)
    assert found.targets is out.targets
    np.testing.assert_array_equal(out, problem.call(vtrace, "values", "ratios", gamma=0.9))
    names = "values", "action_values", "ratios"
    for function, used, more in ((retrace, names, {}), (nstep_returns, ("values",), {"n": 2})):
        target = np.empty((5, 3), np.float32)
        found = problem.call(function, *used, gamma=0.9, out=target, **more)
        assert found is target
        np.testing.assert_array_equal(found, problem.call(function, *used, gamma=0.9, **more))
