"""Returns and advantages against loops over environments."""

import platform
import re

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels.machine.threads import show_config, threading_layer
from rlcpu.scan import Advantages, discounted_returns, gae, lambda_returns
from rlcpu.scan.recurrences import driver, rules
from rlcpu.scan.recurrences.rules import Step
from rlcpu.scan.recurrences.steps import PLANS
from tests.scan.recurrences import naive
from tests.scan.recurrences.problems import DTYPES, Problem, assert_close, make_problem, problems

factors = st.floats(0.0, 1.0)


def exact(problem: Problem, gamma: float) -> naive.Episodes:
    return problem.episodes(gamma, problem.rewards.dtype)


@given(problems(), factors)
def test_discounted_returns_equal_the_loop(problem, gamma):
    found = problem.call(discounted_returns, gamma=gamma)
    expected = naive.discounted_returns(exact(problem, gamma))
    np.testing.assert_array_equal(problem.columns(found), expected)
    assert found.shape == problem.rewards.shape


@given(problems(), factors, factors)
def test_gae_equals_the_loop(problem, gamma, lambda_):
    found = problem.call(gae, "values", gamma=gamma, lambda_=lambda_)
    dtype, values = problem.rewards.dtype, problem.columns(problem.values)
    expected = naive.gae(exact(problem, gamma), values, problem.columns(lambda_, dtype))
    np.testing.assert_array_equal(problem.columns(found.advantages), expected)
    np.testing.assert_array_equal(problem.columns(found.returns), expected + values)


@given(problems(), factors, factors)
def test_lambda_returns_equal_the_loop(problem, gamma, lambda_):
    found = problem.call(lambda_returns, "values", gamma=gamma, lambda_=lambda_)
    kind = problem.rewards.dtype.type
    weights = problem.columns(kind(lambda_), np.longdouble)
    expected = naive.lambda_returns(
        problem.episodes(kind(gamma)), *problem.arrays("values"), weights
    )
    assert_close(problem, found, expected)


@given(problems(), st.sampled_from(["steps", "envs", "all"]), st.integers(0, 1000))
def test_factors_of_every_step(problem, kind, seed):
    shape = np.array(problem.rewards.shape)
    axis = problem.axis % len(shape)
    shape[[i != axis for i in range(len(shape))] if kind == "steps" else []] = 1
    shape[axis if kind == "envs" else []] = 1
    rng = np.random.default_rng(seed)
    gamma, lambda_ = rng.uniform(0.0, 1.5, size=(2, *shape)).astype(problem.rewards.dtype)
    found = problem.call(lambda_returns, "values", gamma=gamma, lambda_=lambda_)
    weights = problem.columns(lambda_, np.longdouble)
    expected = naive.lambda_returns(problem.episodes(gamma), *problem.arrays("values"), weights)
    assert_close(problem, found, expected)


@pytest.mark.parametrize("function", [gae, lambda_returns])
def test_factors_broadcast_as_in_numpy(function):
    """(num_steps, 1) is shared by all environments, (num_envs,) by all steps, also in a square."""
    problem = make_problem((4, 4), "float64")
    rng = np.random.default_rng(0)
    for shape in ((4, 1), (4,), (1, 4), (4, 4)):
        gamma, lambda_ = rng.uniform(0.0, 1.0, size=(2, *shape))
        found = problem.call(function, "values", gamma=gamma, lambda_=lambda_)
        whole = {
            name: np.ascontiguousarray(np.broadcast_to(array, (4, 4)))
            for name, array in (("gamma", gamma), ("lambda_", lambda_))
        }
        np.testing.assert_array_equal(found, problem.call(function, "values", **whole))
    with pytest.raises(ValueError, match=r"^gamma: expected a shape that broadcasts to \(3, 2\)"):
        make_problem((3, 2), "float64").call(gae, "values", gamma=np.ones(3), lambda_=0.9)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 1024, 1025])
def test_blocks_join(dtype, size, axis):
    """Numbers of steps, lanes and rows about those of vectors, pieces and blocks."""
    for shape in ((3, size), (size, 3)):
        problem = make_problem(shape, dtype, 0.05, axis=axis)
        found = problem.call(gae, "values", gamma=0.9, lambda_=0.8)
        values, weights = (problem.columns(x, dtype) for x in (problem.values, 0.8))
        expected = naive.gae(exact(problem, 0.9), values, weights)
        np.testing.assert_array_equal(problem.columns(found.advantages), expected)


@pytest.mark.parametrize(("shape", "axis"), [((48, 80), 0), ((33, 624), 1), ((33, 623), 1)])
@pytest.mark.parametrize("offsets", [(0, 0), (1, 1), (4, 4), (0, 3), (5, 0)])
def test_writing_past_the_caches_changes_nothing(monkeypatch, offsets, shape, axis):
    problem = make_problem(shape, "float32", 0.05, axis=axis)
    expected = problem.call(gae, "values", gamma=0.9, lambda_=0.8)
    monkeypatch.setattr(driver, "LARGE", 0)
    monkeypatch.setattr(driver, "REPEATED", 128)
    memory = np.empty((2, problem.rewards.size + 32), np.float32)
    begins = [-m.ctypes.data // 4 % 16 + k for m, k in zip(memory, offsets, strict=True)]
    out = [m[b : b + problem.rewards.size] for m, b in zip(memory, begins, strict=True)]
    out = Advantages(*(o.reshape(shape) for o in out))
    problem.call(gae, "values", gamma=0.9, lambda_=0.8, out=out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_threads_do_not_change_the_result(axis):
    problem = make_problem((520, 130), "float32", 0.05, axis=axis)
    assert problem.rewards.size >= driver.GRAIN
    threading_layer()
    found = [
        problem.call(gae, "values", gamma=0.9, lambda_=0.8, num_threads=n)
        for n in (None, *range(1, numba.config.NUMBA_NUM_THREADS + 1))
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_lambda_of_one_gives_the_discounted_returns():
    problem = make_problem((50, 20), "float64", ends=0.1)
    expected = problem.call(discounted_returns, gamma=0.97)
    for found in (
        problem.call(gae, "values", gamma=0.97, lambda_=1.0).returns,
        problem.call(lambda_returns, "values", gamma=0.97, lambda_=1.0),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_lambda_of_zero_gives_temporal_differences():
    p = make_problem((2, 1), "float64", ends=0.0)
    advantages = p.call(gae, "values", gamma=0.5, lambda_=0.0).advantages
    assert advantages[0, 0] == p.rewards[0, 0] + 0.5 * p.values[1, 0] - p.values[0, 0]
    assert advantages[1, 0] == p.rewards[1, 0] + 0.5 * p.last_values[0] - p.values[1, 0]


def test_termination_wins_over_truncation():
    problem = make_problem((3, 2), "float32", ends=1.0)
    assert problem.terminated.all()
    assert problem.truncated.all()
    for final_values in (problem.final_values, None):
        found = problem.call(discounted_returns, gamma=0.9, final_values=final_values)
        np.testing.assert_array_equal(found, problem.rewards)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_nan_of_one_episode_stays_in_it(axis):
    problem = make_problem((4, 4), "float32", ends=0.0, axis=axis)
    columns = problem.terminated, problem.rewards
    terminated, rewards = columns if axis == 0 else (array.T for array in columns)
    terminated[1, 0] = True
    rewards[3, 0] = np.nan
    expected = np.zeros((4, 4), bool)
    expected[2:, 0] = True
    for found in (
        problem.call(discounted_returns, gamma=0.9),
        problem.call(gae, "values", gamma=0.9, lambda_=0.9).advantages,
        problem.call(lambda_returns, "values", gamma=0.9, lambda_=0.9),
    ):
        np.testing.assert_array_equal(np.isnan(problem.columns(found)), expected)


def test_scalar_functions_run_unjitted():
    step = Step(1.0, 2.0, False, True, 6.0, 0.5, 0.25, 1.0, 0.0)
    after = step._replace(value=4.0)
    assert rules.return_coefficients(step, after, ()) == (0.0, 4.0)
    assert rules.advantage_coefficients(step, after, ()) == (0.0, 2.0)
    going = step._replace(truncated=False)
    assert rules.return_coefficients(going, after, ()) == (0.5, 1.0)
    assert rules.advantage_coefficients(going, after, ()) == (0.125, 1.0)
    assert rules.lambda_coefficients(going, after, ()) == (0.125, 2.5)


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64")
    or show_config()["vector width"].startswith("128"),
    reason="reads x86 code with AVX",
)
@pytest.mark.parametrize("is_rows", [False, True])
def test_float32_is_computed_in_vectors_of_float32(is_rows):
    block = driver.make_block(rules.ADVANTAGES, np.float32, is_rows)
    scan = numba.njit(error_model="numpy")(block)
    scan.compile((PLANS[np.float32].view, numba.int64))
    code = next(iter(scan.inspect_asm().values()))
    assert len(re.findall(r"\bv(?:add|mul|sub)ps\b.*%[yz]mm", code)) >= 5
    moves = r"\bv(?:mov|shuf|unpck|perm|blend|broadcast|extract|insert|xor|and)\w*"
    assert not re.findall(r"\bv\w+[ps]d\b.*%[yz]mm", re.sub(moves, "", code))
