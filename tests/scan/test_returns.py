"""Returns and advantages against loops over environments, and what bad arguments get."""

import platform
import re
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels.threads import threading_layer
from rlcpu.scan import Advantages, discounted_returns, gae, returns
from tests import naive

DTYPES = ["float32", "float64"]


class Problem(NamedTuple):
    """Arguments that both functions take, by name."""

    rewards: Any
    values: Any
    terminated: Any
    truncated: Any
    last_values: Any
    final_values: Any

    def returns(self, gamma: float, **changes: Any) -> np.ndarray:
        arguments = {**self._asdict(), "gamma": gamma, **changes}
        return discounted_returns(**{k: v for k, v in arguments.items() if k != "values"})

    def gae(self, gamma: float, lambda_: float, **changes: Any) -> Advantages:
        return gae(**{**self._asdict(), "gamma": gamma, "lambda_": lambda_, **changes})


def make_problem(shape: tuple[int, int], dtype: str, ends: float = 0.3, seed: int = 0) -> Problem:
    """Random rewards, values and ends; NaN in every final value that must not be read."""
    rng = np.random.default_rng(seed)
    rewards, values, final_values = rng.normal(size=(3, *shape)).astype(dtype)
    terminated, truncated = rng.random((2, *shape)) < ends
    final_values[terminated | ~truncated] = np.nan
    last_values = rng.normal(size=shape[1]).astype(dtype)
    return Problem(rewards, values, terminated, truncated, last_values, final_values)


problems = st.builds(
    make_problem,
    st.tuples(st.integers(0, 9), st.integers(0, 70)),
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 2**32 - 1),
)
factors = st.floats(0.0, 1.0)


@given(problems, factors)
def test_discounted_returns_equal_the_loop(problem, gamma):
    p, kind = problem, problem.rewards.dtype.type
    expected = naive.discounted_returns(
        p.rewards, p.terminated, p.truncated, p.last_values, p.final_values, kind(gamma)
    )
    np.testing.assert_array_equal(p.returns(gamma), expected)


@given(problems, factors, factors)
def test_gae_equals_the_loop(problem, gamma, lambda_):
    kind = problem.rewards.dtype.type
    expected = naive.gae(*problem, kind(gamma), kind(gamma * lambda_))
    result = problem.gae(gamma, lambda_)
    np.testing.assert_array_equal(result.advantages, expected)
    np.testing.assert_array_equal(result.returns, expected + problem.values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, returns.LANES - 1, returns.LANES, returns.LANES + 1])
def test_blocks_join(dtype, width):
    problem = make_problem((7, width), dtype)
    kind = problem.rewards.dtype.type
    expected = naive.gae(*problem, kind(0.9), kind(0.9 * 0.8))
    np.testing.assert_array_equal(problem.gae(0.9, 0.8).advantages, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_do_not_change_the_result(dtype):
    p = make_problem((33, 2 * returns.LANES + 7), dtype, ends=0.05)
    kind = p.rewards.dtype.type
    ends = returns.Ends(p.terminated, p.truncated, p.final_values)
    threading_layer()
    before, counts = numba.get_num_threads(), range(1, numba.config.NUMBA_NUM_THREADS + 1)
    for make in (returns._make_returns, returns._make_gae):
        kernels, results = returns._kernels(make, dtype), []
        for run, threads in [(kernels.serial, 1), *((kernels.parallel, n) for n in counts)]:
            numba.set_num_threads(threads)
            out = Advantages(np.empty_like(p.rewards), np.empty_like(p.rewards))
            if make is returns._make_gae:
                arguments = (p.rewards, p.values, ends, p.last_values, kind(0.9), kind(0.7), out)
            else:
                arguments = (p.rewards, ends, p.last_values, kind(0.9), out.advantages)
                out.returns.fill(0.0)
            run(*arguments)
            results.append(np.stack(out))
        numba.set_num_threads(before)
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("shape", [(600, 300), (3, 60_000)])
def test_large_batches_equal_their_columns(shape):
    problem = make_problem(shape, "float32", ends=0.02)
    whole = problem.gae(0.99, 0.95)
    some = slice(100, 150)
    part = Problem(*(array[..., some] for array in problem)).gae(0.99, 0.95)
    np.testing.assert_array_equal(whole.advantages[:, some], part.advantages)
    np.testing.assert_array_equal(whole.returns[:, some], part.returns)


def test_lambda_of_one_gives_the_discounted_returns():
    problem = make_problem((50, 20), "float64", ends=0.1)
    expected = problem.returns(0.97)
    np.testing.assert_allclose(problem.gae(0.97, 1.0).returns, expected, rtol=1e-12, atol=1e-12)


def test_lambda_of_zero_gives_temporal_differences():
    problem = make_problem((2, 1), "float64", ends=0.0)
    p, advantages = problem, problem.gae(0.5, 0.0).advantages
    assert advantages[0, 0] == p.rewards[0, 0] + 0.5 * p.values[1, 0] - p.values[0, 0]
    assert advantages[1, 0] == p.rewards[1, 0] + 0.5 * p.last_values[0] - p.values[1, 0]


def test_termination_wins_over_truncation():
    problem = make_problem((3, 2), "float32", ends=1.0)
    assert problem.terminated.all()
    assert problem.truncated.all()
    np.testing.assert_array_equal(problem.returns(0.9), problem.rewards)
    np.testing.assert_array_equal(problem.returns(0.9, final_values=None), problem.rewards)


def test_truncation_needs_final_values():
    problem = make_problem((3, 2), "float32")
    problem.terminated.fill(False)
    problem.truncated[1, 1] = True
    with pytest.raises(ValueError, match=r"^final_values: needed"):
        problem.returns(0.9, final_values=None)
    with pytest.raises(ValueError, match=r"^final_values: needed"):
        problem.gae(0.9, 0.9, final_values=None)


def test_a_nan_of_one_episode_stays_in_it():
    problem = make_problem((4, 2), "float32", ends=0.0)
    problem.terminated[1, 0] = True
    problem.rewards[3, 0] = np.nan
    expected = [[False, False], [False, False], [True, False], [True, False]]
    np.testing.assert_array_equal(np.isnan(problem.returns(0.9)), expected)
    np.testing.assert_array_equal(np.isnan(problem.gae(0.9, 0.9).advantages), expected)


def test_scalar_functions_run_unjitted():
    end = returns.Ends(False, True, 4.0)
    assert returns.discounted_return(1.0, end, 100.0, 0.5) == 3.0
    assert returns.advantage(1.0, 2.0, end, (100.0, 100.0), 0.5, 0.25) == 1.0
    going = returns.Ends(False, False, 100.0)
    assert returns.advantage(1.0, 2.0, going, (4.0, 8.0), 0.5, 0.25) == 3.0


# ---------------------------------------------------------------- arguments


def test_out_is_filled_and_returned():
    problem = make_problem((5, 3), "float32")
    out = Advantages(*np.full((2, 5, 3), np.nan, np.float32))
    result = problem.gae(0.9, 0.9, out=out)
    assert result.advantages is out.advantages
    assert result.returns is out.returns
    np.testing.assert_array_equal(np.stack(out), np.stack(problem.gae(0.9, 0.9)))
    assert problem.returns(0.9, out=out.returns) is out.returns
    np.testing.assert_array_equal(out.returns, problem.returns(0.9))


def test_any_layout_and_read_only_arrays_are_taken():
    problem = make_problem((5, 3), "float64")
    fortran = Problem(*(np.asfortranarray(array) for array in problem))
    strided = Problem(*(np.repeat(array, 2, axis=-1)[..., ::2] for array in problem))
    frozen = Problem(*(array.copy() for array in problem))
    for array in frozen:
        array.flags.writeable = False
    for other in (fortran, strided, frozen):
        np.testing.assert_array_equal(other.gae(0.9, 0.9), problem.gae(0.9, 0.9))
        np.testing.assert_array_equal(other.returns(0.9), problem.returns(0.9))


def test_other_dtypes_are_refused():
    zeros, flags = np.zeros((2, 1), np.float32), np.zeros((2, 1), bool)
    bad_types = {
        "rewards": zeros.astype(int),
        "values": zeros.astype(float),
        "terminated": zeros,
        "truncated": flags.astype(np.int8),
        "last_values": np.zeros(1),
        "final_values": zeros.astype(float),
    }
    problem = Problem(zeros, zeros, flags, flags, zeros[0], zeros)
    for name, bad in bad_types.items():
        with pytest.raises(TypeError, match=rf"^{name}: expected .*, got {bad.dtype}$"):
            problem.gae(0.9, 0.9, **{name: bad})


@pytest.mark.parametrize("name", Problem._fields)
def test_bad_shapes_are_refused(name):
    problem = make_problem((4, 3), "float32")
    bad = getattr(problem, name)[..., :2].ravel()
    with pytest.raises(ValueError, match=rf"^{name}: expected shape .*, got \({bad.size},\)$"):
        problem.gae(0.9, 0.9, **{name: bad})


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan])
def test_bad_factors_are_refused(bad):
    problem = make_problem((4, 3), "float32")
    with pytest.raises(ValueError, match=rf"^gamma={bad}: expected"):
        problem.returns(bad)
    with pytest.raises(ValueError, match=rf"^gamma={bad}: expected"):
        problem.gae(bad, 0.9)
    with pytest.raises(ValueError, match=rf"^lambda_={bad}: expected"):
        problem.gae(0.9, bad)


def test_bad_out_is_refused():
    problem = make_problem((4, 3), "float32")
    good = np.empty((4, 3), np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    for bad in (np.empty((4, 3)), [0.0]):
        with pytest.raises(TypeError, match=r"^out: expected an array of float32, got"):
            problem.returns(0.9, out=bad)
    for bad in (good[:2], np.asfortranarray(good), frozen):
        with pytest.raises(ValueError, match=r"^out\.returns: expected a writable C-contiguous"):
            problem.gae(0.9, 0.9, out=Advantages(good, bad))
    with pytest.raises(ValueError, match=r"^out\.advantages: overlaps another array"):
        problem.gae(0.9, 0.9, out=Advantages(problem.values, good))
    with pytest.raises(ValueError, match=r"^out\.returns: overlaps another array"):
        problem.gae(0.9, 0.9, out=Advantages(good, good))
    with pytest.raises(ValueError, match=r"^out: overlaps another array"):
        problem.returns(0.9, out=problem.final_values)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 code")
@pytest.mark.parametrize("name", ["_make_returns", "_make_gae"])
def test_rows_are_vector_code(name):
    problem = make_problem((2, 64), "float32")
    scan = numba.njit(error_model="numpy")(getattr(returns, name)(np.float32, False).py_func)
    ends, out = returns.Ends(*problem[2:4], problem.final_values), np.empty((2, 64), np.float32)
    half = np.float32(0.5)
    if name == "_make_gae":
        out = Advantages(out, out.copy())
        scan(*problem[:2], ends, problem.last_values, half, half, out)
    else:
        scan(problem.rewards, ends, problem.last_values, half, out)
    code = next(iter(scan.inspect_asm().values()))
    assert len(re.findall(r"\bv(?:add|mul)ps\b.*%[yz]mm", code)) >= 2
