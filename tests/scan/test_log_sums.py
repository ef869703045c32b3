"""logcumsumexp and its gradient against sums in extended precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.scan import logcumsumexp, logcumsumexp_vjp
from rlcpu.scan.recurrences.log_sums import LONG, SEGMENT, add_number, log_of_state, merge_states

INF, NAN = math.inf, math.nan


def naive(x, axis=-1, reverse=False):
    """One addition after the other, in extended precision."""
    steps = np.moveaxis(np.asarray(x, np.longdouble), axis, 0)
    steps = steps[::-1] if reverse else steps
    with np.errstate(invalid="ignore"):
        sums = np.logaddexp.accumulate(steps, axis=0) if len(steps) else steps
    return np.moveaxis(sums[::-1] if reverse else sums, 0, axis)


def worst(found, exact):
    return float(np.max(np.abs(found - exact) / np.maximum(1.0, np.abs(exact))))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("num_steps", [1, 2, 257, LONG + 3 * SEGMENT + 5])
@pytest.mark.parametrize(
    "make",
    [
        lambda rng, n: rng.standard_normal(n),
        lambda rng, n: 100.0 * rng.standard_normal(n),
        lambda rng, n: np.linspace(-800.0, 800.0, n),
        lambda rng, n: np.linspace(800.0, -800.0, n),
        lambda rng, n: np.linspace(0.0, 30.0 * n, n),
        lambda rng, n: np.where(rng.random(n) < 0.3, -INF, rng.standard_normal(n)),
        lambda rng, n: 1e300 * rng.standard_normal(n),
    ],
    ids=["normal", "wide", "rising", "falling", "steep", "holes", "huge"],
)
def test_errors_are_of_rounding(make, num_steps, reverse):
    x = make(np.random.default_rng(0), num_steps)
    found, exact = logcumsumexp(x, reverse=reverse), naive(x, reverse=reverse)
    empty = np.isneginf(exact)
    np.testing.assert_array_equal(found[empty], exact[empty])
    assert not np.isnan(found).any()
    if not empty.all():
        assert worst(found[~empty], exact[~empty]) < 2e-15


@given(data=st.data())
def test_shapes_axes_strides_and_dtypes(data):
    shape = data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    reverse, dtype = data.draw(st.booleans()), data.draw(st.sampled_from(["f4", "f8"]))
    step = data.draw(st.sampled_from([-2, -1, 1, 2]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    large = rng.normal(0.0, 5.0, [n * abs(step) for n in shape]).astype(dtype)
    x = large[tuple([slice(None, None, step)] * len(shape))]
    x = x.transpose(data.draw(st.permutations(range(len(shape)))))
    before = x.copy()
    found = logcumsumexp(x, axis=axis, reverse=reverse)
    assert found.dtype == x.dtype
    assert found.shape == x.shape
    tolerance = 1e-15 if dtype == "f8" else 2e-7
    np.testing.assert_allclose(found, naive(x, axis, reverse), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(x, before)
    out = np.full_like(x, 7.0)
    assert logcumsumexp(x, axis=axis, reverse=reverse, out=out) is out
    np.testing.assert_array_equal(out, found)
    x = x.copy()
    np.testing.assert_array_equal(logcumsumexp(x, axis=axis, reverse=reverse, out=x), found)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([-INF, -INF, 1.0], [-INF, -INF, 1.0]),
        ([INF, 1.0, -INF], [INF, INF, INF]),
        ([1.0, INF, 2.0], [1.0, INF, INF]),
        ([INF, -INF, INF], [INF, INF, INF]),
        ([0.0, NAN, 1.0, INF], [0.0, NAN, NAN, NAN]),
        ([INF, NAN, INF], [INF, NAN, NAN]),
        ([-INF, NAN], [-INF, NAN]),
    ],
)
@pytest.mark.parametrize("padding", [0, 300, LONG])
def test_special_values_are_those_of_torch(x, expected, padding):
    """`padding` steps of -inf before change nothing."""
    padded = np.concatenate([np.full(padding, -INF), x])
    found = logcumsumexp(padded)
    assert np.isneginf(found[:padding]).all()
    np.testing.assert_array_equal(found[padding:], expected)
    np.testing.assert_array_equal(logcumsumexp(padded[::-1], reverse=True), found[::-1])


def test_special_values_against_torch_itself():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.choice([-INF, INF, NAN, 0.0, 1.0, -1.0], (500, 6), p=[0.3, 0.1, 0.05, 0.2, 0.2, 0.15])
    expected = torch.logcumsumexp(torch.from_numpy(x), 1).numpy()
    np.testing.assert_allclose(logcumsumexp(x), expected, rtol=1e-14)


def test_results_do_not_depend_on_the_number_of_threads():
    x = np.random.default_rng(0).standard_normal((2, 70_000))
    for part in (x, x[0], x.T, x[:, :5]):
        one, all_ = (logcumsumexp(part, num_threads=threads) for threads in (1, None))
        np.testing.assert_array_equal(one, all_)


@given(numbers=st.lists(st.floats(-50, 50) | st.sampled_from([-INF, INF, NAN]), max_size=12))
def test_scalar_functions_in_plain_python(numbers):
    states = [(-INF, 0.0)]
    for x in numbers:
        states.append(add_number(*states[-1], x))
    for cut in range(len(numbers) + 1):
        rest = (-INF, 0.0)
        for x in numbers[cut:]:
            rest = add_number(*rest, x)
        whole = log_of_state(*merge_states(*states[cut], *rest))
        np.testing.assert_allclose(whole, log_of_state(*states[-1]), rtol=1e-14, atol=1e-14)
    if numbers:
        found = [log_of_state(*state) for state in states[1:]]
        np.testing.assert_allclose(found, naive(numbers), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_are_those_of_differences(axis, reverse):
    rng = np.random.default_rng(0)
    x, grad = rng.normal(0.0, 3.0, (6, 5)), rng.standard_normal((6, 5))
    options = {"axis": axis, "reverse": reverse}
    found = logcumsumexp_vjp(x, logcumsumexp(x, **options), grad, **options)
    for place in np.ndindex(x.shape):
        change = np.zeros_like(x)
        change[place] = 1e-6
        slope = (naive(x + change, **options) - naive(x - change, **options)) / 2e-6
        assert found[place] == pytest.approx(float((slope * grad).sum()), abs=1e-8)


def test_gradients_of_steep_and_empty_sums():
    x = np.array([-INF, -INF, 0.0, 900.0, -900.0])
    found = logcumsumexp_vjp(x, logcumsumexp(x), np.ones(5))
    np.testing.assert_array_equal(found, [0.0, 0.0, 1.0, 2.0, 0.0])
    assert logcumsumexp_vjp(np.empty((0, 3)), np.empty((0, 3)), np.empty((0, 3))).shape == (0, 3)


def naive_gradient(x, y, grad):
    """The gradient of one row, term by term; one with the factor 0 is none."""
    found = np.zeros(len(x))
    for t in range(len(x)):
        for s in range(t, len(x)):
            if grad[s] != 0.0 and x[t] != -INF:
                found[t] += grad[s] * np.exp(x[t] - y[s])
    return found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_gradients_of_special_values(dtype, reverse):
    """NaN where a sum that counts is NaN, and where x itself is infinite; else as of numbers."""
    rng = np.random.default_rng(0)
    x = rng.choice([-INF, INF, NAN, 0.0, 1.0, -1.0], (500, 6), p=[0.3, 0.1, 0.05, 0.2, 0.2, 0.15])
    grad = rng.choice([0.0, 1.0, 0.5], (500, 6), p=[0.6, 0.2, 0.2])
    x, grad, turn = x.astype(dtype), grad.astype(dtype), slice(None, None, -1 if reverse else 1)
    y = logcumsumexp(x, reverse=reverse)
    found = logcumsumexp_vjp(x, y, grad, reverse=reverse)
    assert found.dtype == dtype
    with np.errstate(invalid="ignore"):
        rows = zip(*(array[:, turn].astype("f8") for array in (x, y, grad)), strict=True)
        expected = np.array([naive_gradient(*row) for row in rows])[:, turn]
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize("padding", [0, 300, LONG])
def test_a_gradient_of_0_has_no_term(padding):
    """Not even of an infinite sum."""
    x = np.array([1.0, INF, 2.0] + [0.5] * padding)
    grad = np.zeros_like(x)
    grad[0] = 1.0
    np.testing.assert_array_equal(logcumsumexp_vjp(x, logcumsumexp(x), grad), grad)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": np.ones(3, complex)}, TypeError, "x: expected float32 or float64, got complex128"),
        ({"x": np.ones(3, np.float16)}, TypeError, "x: expected float32 or float64"),
        ({"x": np.float64(1.0)}, ValueError, "axis=-1: x has 0 axes"),
        ({"axis": 2}, ValueError, "axis=2: x has 2 axes"),
        ({"axis": 0.5}, TypeError, "axis=0.5: expected an int"),
        ({"out": np.ones((2, 4))}, ValueError, "out: expected shape"),
        ({"out": np.ones((2, 3), np.float32)}, TypeError, "out: expected an array of float64"),
        ({"out": [1.0]}, TypeError, "out: expected an array of float64"),
        ({"num_threads": 0}, ValueError, "num_threads=0"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        logcumsumexp(**{"x": np.ones((2, 3)), **arguments})


def test_bad_outputs_are_not_written():
    memory = np.arange(8.0)
    before = memory.copy()
    with pytest.raises(ValueError, match="out: overlaps another array"):
        logcumsumexp(memory[:6], out=memory[1:7])
    locked = np.zeros(6)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="out: read-only"):
        logcumsumexp(memory[:6], out=locked)
    with pytest.raises(ValueError, match="y: expected shape"):
        logcumsumexp_vjp(memory, memory[:4], memory)
    with pytest.raises(TypeError, match="grad: expected float64"):
        logcumsumexp_vjp(memory, memory, memory.astype(np.float32))
    np.testing.assert_array_equal(memory, before)


def test_whole_numbers_count_as_float64():
    np.testing.assert_array_equal(logcumsumexp([0, 0]), [0.0, np.log(2.0)])
