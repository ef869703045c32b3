"""What bad arguments of returns and scans get: one clear exception, and nothing written."""

import re

import numpy as np
import pytest
from hypothesis import given

from rlcpu.scan import (
    Advantages,
    discounted_returns,
    gae,
    lambda_returns,
    linear_scan,
    linear_scan_vjp,
    nstep_returns,
    retrace,
    vtrace,
)
from tests.scan.recurrences.problems import Problem, backward, make_problem, problems, spread

ESTIMATORS = [
    (discounted_returns, (), {}),
    (gae, ("values",), {"lambda_": 0.9}),
    (lambda_returns, ("values",), {"lambda_": 0.9}),
    (nstep_returns, ("values",), {"n": 3}),
    (vtrace, ("values", "ratios"), {}),
    (retrace, ("values", "action_values", "ratios"), {}),
]


def run_gae(problem: Problem, **changes):
    settings = {"gamma": 0.9, "lambda_": 0.9}
    for name in list(changes):
        if name in Problem._fields:
            problem = problem._replace(**{name: changes.pop(name)})
    return problem.call(gae, "values", **{**settings, **changes})


@pytest.mark.parametrize(("function", "names", "more"), ESTIMATORS)
def test_every_array_is_checked(function, names, more):
    problem = make_problem((4, 3), "float32")
    used = "rewards", *names, "terminated", "truncated", "last_values", "final_values"
    for name in used:
        array = getattr(problem, name)
        wrong = array.astype(np.int8 if array.dtype == bool else np.complex64)
        with pytest.raises(TypeError, match=rf"^{name}: expected .*, got {wrong.dtype}$"):
            problem._replace(**{name: wrong}).call(function, *names, gamma=0.9, **more)
        wrong = array[..., :2].ravel()
        if name != "rewards":
            with pytest.raises(
                ValueError, match=rf"^{name}: expected shape .*, got \({wrong.size},"
            ):
                problem._replace(**{name: wrong}).call(function, *names, gamma=0.9, **more)


@pytest.mark.parametrize(("function", "names", "more"), ESTIMATORS)
def test_truncation_needs_final_values(function, names, more):
    problem = make_problem((3, 2), "float32")
    problem.terminated.fill(False)
    problem.truncated[1, 1] = True
    with pytest.raises(ValueError, match=r"^final_values: needed"):
        problem.call(function, *names, gamma=0.9, final_values=None, **more)


def test_dtypes_do_not_mix():
    problem = make_problem((2, 1), "float32")
    for name in ("values", "last_values", "final_values"):
        wrong = getattr(problem, name).astype(np.float64)
        with pytest.raises(TypeError, match=rf"^{name}: expected float32, got float64$"):
            run_gae(problem, **{name: wrong})
    for name in ("gamma", "lambda_"):
        with pytest.raises(TypeError, match=rf"^{name}: expected float32, got float64$"):
            run_gae(problem, **{name: np.ones((2, 1))})


def test_whole_numbers_count_as_float64():
    problem = make_problem((4, 3), "float64")
    whole = np.arange(12).reshape(4, 3)
    found, expected = (run_gae(problem, rewards=r) for r in (whole, whole.astype(float)))
    assert found.advantages.dtype == np.float64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan])
@pytest.mark.parametrize("name", ["gamma", "lambda_"])
def test_bad_factors_are_refused(name, bad):
    with pytest.raises(ValueError, match=rf"^{name}={bad}.*: expected a number in \[0, 1\]"):
        run_gae(make_problem((4, 3), "float64"), **{name: bad})
    with pytest.raises(ValueError, match=rf"^{name}: expected a shape that broadcasts to \(4, 3\)"):
        run_gae(make_problem((4, 3), "float64"), **{name: np.ones(2)})


@pytest.mark.parametrize(
    ("bad", "error"), [(2, ValueError), (-3, ValueError), (0.0, TypeError), (True, TypeError)]
)
def test_bad_axes_are_refused(bad, error):
    with pytest.raises(error, match=rf"^axis={bad}: "):
        run_gae(make_problem((4, 3), "float32"), axis=bad)
    with pytest.raises(error, match=rf"^axis={bad}: "):
        linear_scan(0.5, np.ones((4, 3)), axis=bad)


def test_rewards_need_an_axis():
    with pytest.raises(ValueError, match=r"^axis=0: rewards has 0 axes"):
        discounted_returns(1.0, False, False, 0.0, gamma=0.9)
    with pytest.raises(ValueError, match=r"^axis=-1: a \* b has 0 axes"):
        linear_scan(0.5, 1.0)


@pytest.mark.parametrize("bad", [0, -1, 10**6])
def test_bad_numbers_of_threads_are_refused(bad):
    out = Advantages(*np.full((2, 4, 3), 7.0, np.float32))
    with pytest.raises(ValueError, match=rf"^num_threads={bad}: expected"):
        run_gae(make_problem((4, 3), "float32"), num_threads=bad, out=out)
    assert (np.stack(out) == 7.0).all()


def test_bad_out_is_refused():
    problem = make_problem((4, 3), "float32")
    good = np.full((4, 3), 7.0, np.float32)
    frozen = good.copy()
    frozen.flags.writeable = False
    for bad in (np.empty((4, 3)), [0.0]):
        with pytest.raises(TypeError, match=r"^out: expected an array of float32, got"):
            problem.call(discounted_returns, gamma=0.9, out=bad)
    with pytest.raises(ValueError, match=r"^out\.returns: expected shape \(4, 3\), got \(2, 3\)"):
        run_gae(problem, out=Advantages(good, good[:2]))
    with pytest.raises(ValueError, match=r"^out\.returns: read-only"):
        run_gae(problem, out=Advantages(good, frozen))
    with pytest.raises(ValueError, match=r"^out\.advantages: overlaps another array"):
        run_gae(problem, out=Advantages(problem.values, good))
    with pytest.raises(ValueError, match=r"^out\.returns: overlaps another array"):
        run_gae(problem, out=Advantages(good, good))
    with pytest.raises(ValueError, match=r"^out: overlaps another array"):
        problem.call(discounted_returns, gamma=0.9, out=problem.final_values)
    assert (good == 7.0).all()


@given(problems())
def test_any_layout_of_out_is_filled(problem):
    expected = run_gae(problem)
    zeros = np.zeros(problem.rewards.shape, problem.rewards.dtype)
    for layouts in ((np.asfortranarray, spread), (backward, np.ascontiguousarray)):
        out = Advantages(*(layout(zeros) for layout in layouts))
        found = run_gae(problem, out=out)
        assert found.advantages is out.advantages
        assert found.returns is out.returns
        np.testing.assert_array_equal(found, expected)


def test_inputs_stay_as_they_were():
    problem = make_problem((30, 20), "float32", 0.1)
    before = [np.copy(array) for array in problem]
    for function, names, more in ESTIMATORS:
        problem.call(function, *names, gamma=0.9, **more)
    for array, copy in zip(problem, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,), (2, 0, 2)])
def test_nothing_to_compute(shape):
    problem = make_problem(shape, "float32")
    for function, names, more in ESTIMATORS:
        found = problem.call(function, *names, gamma=0.9, **more)
        found = found if isinstance(found, tuple) else (found,)
        assert all(array.shape == shape for array in found)


def test_one_number_for_all_last_values():
    problem = make_problem((4, 3), "float32")
    expected = run_gae(problem, last_values=np.full(3, 2.0, np.float32))
    np.testing.assert_array_equal(run_gae(problem, last_values=np.asarray(2.0)), expected)


# ---------------------------------------------------------------- linear_scan


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"a": np.ones(3, complex)}, TypeError, "a: expected float64, got complex128"),
        ({"b": np.ones(3, np.float16)}, TypeError, "b: expected float32 or float64, got float16"),
        ({"a": np.ones(3, np.float32)}, TypeError, "a: expected float64, got float32"),
        ({"a": np.ones(2)}, ValueError, "expected shapes that broadcast, got a (2,), b (3,)"),
        ({"initial": np.ones(3)}, ValueError, "initial: expected a shape that broadcasts to ()"),
        ({"initial": 1j}, TypeError, "initial: expected float64, got complex128"),
        ({"out": np.ones(4)}, ValueError, "out: expected shape (3,), got (4,)"),
        ({"out": np.ones(3, np.float32)}, TypeError, "out: expected an array of float64"),
    ],
)
def test_bad_arguments_of_linear_scan(changes, error, message):
    arguments = {"a": np.ones(3), "b": np.ones(3), **changes}
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        linear_scan(**arguments)


def test_linear_scan_may_overwrite_b_and_nothing_else():
    a, b = np.random.default_rng(0).normal(size=(2, 6, 5))
    for axis in (0, 1):
        expected, copy = linear_scan(a, b, axis=axis), b.copy()
        assert linear_scan(a, copy, axis=axis, out=copy) is copy
        np.testing.assert_array_equal(copy, expected)
    for wrong in (a, b[::-1]):
        with pytest.raises(ValueError, match=r"^out: overlaps another array"):
            linear_scan(a, b, out=wrong)


def test_bad_arguments_of_the_gradient():
    y = np.ones((2, 3))
    with pytest.raises(TypeError, match=r"^y: expected float32 or float64, got complex128"):
        linear_scan_vjp(0.5, y.astype(complex), y)
    for name in ("a", "grad"):
        arguments = {"a": y, "y": y, "grad": y, name: np.ones(2)}
        with pytest.raises(ValueError, match=rf"^{name}: expected a shape that broadcasts"):
            linear_scan_vjp(**arguments)
