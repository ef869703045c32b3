"""Agreement with rlax, to rounding, where it is installed."""

import numpy as np
import pytest

from rlcpu.scan import Clips, discounted_returns, lambda_returns, nstep_returns, retrace, vtrace
from tests.scan.recurrences.problems import Problem, make_problem

jax = pytest.importorskip("jax")
rlax = pytest.importorskip("rlax")
GAMMA, LAMBDA = 0.9, 0.8


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def per_environment(function, *arrays, **settings):
    """Call a function of one trajectory for all columns of (num_steps, num_envs)."""
    bound = lambda *columns: function(*columns, **settings)  # noqa: E731
    return jax.tree.map(np.asarray, jax.vmap(bound, in_axes=1, out_axes=1)(*arrays))


def rlax_arguments(p: Problem):
    """Discounts, next values and lambdas: an episode that was truncated ends in its final value."""
    ended, dtype = p.terminated | p.truncated, p.rewards.dtype
    discounts = np.where(p.terminated, 0.0, GAMMA).astype(dtype)
    following = np.concatenate([p.values[1:], p.last_values[None]])
    following = np.where(p.truncated & ~p.terminated, p.final_values, following)
    return discounts, following, np.where(ended, 0.0, LAMBDA).astype(dtype)


@pytest.fixture(params=["float32", "float64"])
def problem(request):
    return make_problem((40, 7), request.param, ends=0.1, seed=3)


def close(found, expected):
    eps = np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * eps * np.abs(expected).max())


def test_returns(problem):
    discounts, following, lambdas = rlax_arguments(problem)
    arrays = problem.rewards, discounts, following
    found = problem.call(lambda_returns, "values", gamma=GAMMA, lambda_=LAMBDA)
    close(found, per_environment(rlax.lambda_returns, *arrays, lambdas))
    found = problem.call(discounted_returns, gamma=GAMMA)
    ones = np.where(problem.terminated | problem.truncated, 0.0, 1.0).astype(found.dtype)
    close(found, per_environment(rlax.lambda_returns, *arrays, ones))


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_nstep_returns(problem, n):
    discounts, following, lambdas = rlax_arguments(problem)
    found = problem.call(nstep_returns, "values", n=n, gamma=GAMMA, lambda_=LAMBDA)
    function = lambda *columns: rlax.n_step_bootstrapped_returns(*columns[:3], n, columns[3])  # noqa: E731
    close(found, per_environment(function, problem.rewards, discounts, following, lambdas))


def test_vtrace(problem):
    discounts, following, lambdas = rlax_arguments(problem)
    found = problem.call(
        vtrace, "values", "ratios", gamma=GAMMA, lambda_=LAMBDA, clips=Clips(1.2, 1.0, 0.9)
    )
    arrays = problem.values, following, problem.rewards, discounts, problem.ratios, lambdas
    thresholds = {"clip_rho_threshold": 1.2, "clip_pg_rho_threshold": 0.9}
    expected = per_environment(rlax.vtrace_td_error_and_advantage, *arrays, **thresholds)
    close(found.targets - problem.values, expected.errors)
    # rlax takes the next row's value for an advantage even where that begins another episode.
    same = ~problem.truncated | problem.terminated
    close(np.where(same, found.advantages, 0), np.where(same, expected.pg_advantage, 0))


def test_retrace(problem):
    discounts, following, lambdas = rlax_arguments(problem)
    going = lambdas / np.asarray(LAMBDA, lambdas.dtype)
    c = (np.asarray(LAMBDA, lambdas.dtype) * np.minimum(1, problem.ratios))[1:] * going[:-1]
    names = "values", "action_values", "ratios"
    found = problem.call(retrace, *names, gamma=GAMMA, lambda_=LAMBDA)
    arrays = problem.action_values[1:], following, problem.rewards, discounts, c
    function = rlax.general_off_policy_returns_from_q_and_v
    close(found, per_environment(function, *(np.asarray(a, found.dtype) for a in arrays)))
