"""Returns and advantages of arrays on the device, compared with the slow, obvious ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu import scan
from rlcpu.cuda.device import asarray, to_host, zeros
from tests.scan.recurrences import naive
from tests.scan.recurrences.problems import Problem, assert_close, make_problem, poisoned

pytestmark = pytest.mark.device

#: Steps before, within and after groups of steps that are read at once; no lane is alone.
SHAPES = [((1, 2), 0), ((9, 3), 0), ((2, 6), 1), ((2, 5, 3), 1)]


def on_device(problem: Problem) -> Problem:
    return Problem(*(asarray(array) for array in problem[:-1]), problem.axis)


@pytest.fixture(params=range(len(SHAPES) * 2))
def problem(request: Any) -> Problem:
    shape, axis = SHAPES[request.param // 2]
    return make_problem(shape, ("float32", "float64")[request.param % 2], axis=axis)


def test_discounted_returns(problem: Problem) -> None:
    found = on_device(problem).call(scan.discounted_returns, gamma=0.9)
    assert_close(problem, to_host(found), naive.discounted_returns(problem.episodes(0.9)))


def test_gae(problem: Problem) -> None:
    factors = np.random.default_rng(1).random(problem.rewards.shape)
    factors = factors.astype(problem.rewards.dtype)
    given = {"gamma": 0.9, "lambda_": asarray(factors)}
    found = on_device(problem).call(scan.gae, "values", **given)
    (values,) = problem.arrays("values")
    lambda_ = problem.columns(factors, np.longdouble)
    expected = naive.gae(problem.episodes(0.9), values, lambda_)
    assert_close(problem, to_host(found.advantages), expected)
    assert_close(problem, to_host(found.returns), expected + values)


def test_lambda_returns(problem: Problem) -> None:
    found = on_device(problem).call(scan.lambda_returns, "values", gamma=0.9, lambda_=0.7)
    (values,) = problem.arrays("values")
    lambda_ = problem.columns(0.7, np.longdouble)
    assert_close(
        problem, to_host(found), naive.lambda_returns(problem.episodes(0.9), values, lambda_)
    )


@pytest.mark.parametrize("n", [1, 4, 50])
def test_nstep_returns(problem: Problem, n: int) -> None:
    found = on_device(problem).call(scan.nstep_returns, "values", n=n, gamma=0.9, lambda_=0.7)
    (values,) = problem.arrays("values")
    lambda_ = problem.columns(0.7, np.longdouble)
    expected = naive.nstep_returns(problem.episodes(0.9), values, lambda_, n)
    assert_close(problem, to_host(found), expected)


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError)])
def test_number_of_steps(n: Any, error: type[Exception]) -> None:
    problem = on_device(make_problem((4, 3), "float32"))
    with pytest.raises(error, match=f"n={n}"):
        problem.call(scan.nstep_returns, "values", n=n, gamma=0.9)


def test_off_policy(problem: Problem) -> None:
    names = "values", "ratios"
    found = on_device(problem).call(scan.vtrace, *names, gamma=0.9, lambda_=0.7)
    values, action_values, ratios = problem.arrays("values", "action_values", "ratios")
    lambda_ = problem.columns(0.7, np.longdouble)
    episodes = problem.episodes(0.9)
    targets, advantages = naive.vtrace(episodes, values, ratios, lambda_, (1.0, 1.0, 1.0))
    assert_close(problem, to_host(found.targets), targets)
    assert_close(problem, to_host(found.advantages), advantages)
    names = "values", "action_values", "ratios"
    found = on_device(problem).call(scan.retrace, *names, gamma=0.9, lambda_=0.7)
    expected = naive.retrace(episodes, values, action_values, ratios, lambda_)
    assert_close(problem, to_host(found), expected)


def test_terms_with_the_factor_0_are_left_out(problem: Problem) -> None:
    """Infinities and NaN in them, too."""
    problem, *factors = poisoned(problem, seed=2)
    lambda_ = problem.columns(factors[1], np.longdouble)
    given = dict(zip(("gamma", "lambda_"), map(asarray, factors), strict=True))
    episodes, names = problem.episodes(factors[0]), ("values", "action_values", "ratios")
    values, action_values, ratios = problem.arrays(*names)
    with np.errstate(invalid="ignore"):
        expected = {
            scan.lambda_returns: naive.lambda_returns(episodes, values, lambda_),
            scan.retrace: naive.retrace(episodes, values, action_values, ratios, lambda_),
        }
    for function, others in expected.items():
        used = names if function is scan.retrace else names[:1]
        found = to_host(on_device(problem).call(function, *used, **given))
        np.testing.assert_allclose(
            problem.columns(found, np.longdouble), others, rtol=1e-5, atol=1e-5
        )


def test_out_is_overwritten_and_returned() -> None:
    problem = on_device(make_problem((4, 3), "float32"))
    out = scan.Advantages(*(zeros((4, 3), np.float32) for _ in range(2)))
    found = problem.call(scan.gae, "values", gamma=0.9, lambda_=0.9, out=out)
    assert found.advantages is out.advantages
    assert to_host(out.returns).all()


def test_arrays_of_the_host_are_copied() -> None:
    problem = make_problem((4, 3), "float64")
    rewards = asarray(problem.rewards)
    found = problem._replace(rewards=rewards).call(scan.discounted_returns, gamma=0.9)
    assert_close(problem, to_host(found), naive.discounted_returns(problem.episodes(0.9)))


def test_final_values_are_needed_where_an_episode_was_truncated() -> None:
    cut = asarray(np.arange(12).reshape(4, 3) == 7)
    going = zeros((4, 3), np.bool_)
    problem = on_device(make_problem((4, 3), "float32"))
    problem = problem._replace(final_values=None, truncated=cut, terminated=going)
    with pytest.raises(ValueError, match="final_values: needed"):
        problem.call(scan.discounted_returns, gamma=0.9)
    never = problem._replace(terminated=cut)
    assert np.isfinite(to_host(never.call(scan.discounted_returns, gamma=0.9))).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gamma": 1.5}, ValueError, "gamma=1.5"),
        ({"gamma": "x"}, TypeError, "gamma"),
        ({"axis": 2}, ValueError, "axis=2"),
        ({"out": np.zeros((4, 3), np.float32)}, TypeError, "out"),
        ({"final_values": np.zeros((4, 2), np.float32)}, ValueError, "final_values"),
    ],
)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    problem = on_device(make_problem((4, 3), "float32"))
    with pytest.raises(error, match=message):
        problem.call(scan.discounted_returns, **{"gamma": 0.9, **change})


def test_overlapping_output() -> None:
    problem = on_device(make_problem((4, 3), "float32"))
    with pytest.raises(ValueError, match="out: overlaps"):
        problem.call(scan.discounted_returns, gamma=0.9, out=problem.rewards)
