"""The linear recurrence and its gradient against loops in extended precision."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.scan import linear_scan, linear_scan_vjp
from rlcpu.scan.recurrences import driver
from rlcpu.scan.recurrences.linear import LONG
from rlcpu.scan.recurrences.rules import Step, linear_coefficients
from tests.scan.recurrences import naive
from tests.scan.recurrences.problems import DTYPES, LAYOUTS


def assert_close(found, expected, scale=1.0):
    assert found.shape == expected.shape
    scale = max(scale, float(np.abs(expected).max(initial=0.0)))
    error = float(np.abs(found - expected).max(initial=0.0))
    assert error <= 60 * np.finfo(found.dtype).eps * scale


@st.composite
def scans(draw):
    """Factors in [-1, 1] that broadcast, numbers, an axis, an initial value and a direction."""
    shape = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype, layout = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(LAYOUTS))
    repeated = [n if draw(st.booleans()) else 1 for n in shape]
    small = repeated[draw(st.integers(0, len(shape))) :]
    shapes = (small, shape) if draw(st.booleans()) else (shape, small)
    a = rng.uniform(-1.0, 1.0, size=shapes[0]).astype(dtype)
    b = rng.normal(size=shapes[1]).astype(dtype)
    initial = rng.normal(size=np.delete(shape, axis)).astype(dtype)
    initial = draw(st.sampled_from([initial, np.zeros((), dtype)]))
    a, b = (layout(array) if array.ndim else array for array in (a, b))
    return a, b, {"axis": axis, "initial": initial, "reverse": draw(st.booleans())}


@given(scans())
def test_equals_the_loop(scan):
    a, b, options = scan
    found = linear_scan(a, b, **options)
    assert found.dtype == b.dtype
    assert_close(found, naive.linear_scan(a, b, **options))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(33, 624), (3, LONG + 3)])
def test_writing_past_the_caches_in_place_changes_nothing(monkeypatch, shape, reverse):
    a, b = np.random.default_rng(0).uniform(-1.0, 1.0, size=(2, *shape)).astype(np.float32)
    expected = linear_scan(a, b, reverse=reverse)
    monkeypatch.setattr(driver, "LARGE", 0)
    assert linear_scan(a, b, reverse=reverse, out=b) is b
    np.testing.assert_array_equal(b, expected)


@given(scans())
def test_gradient_is_that_of_the_loop(scan):
    """The recurrence is linear in b and the initial value, and y in each single a."""
    a, b, options = scan
    rng = np.random.default_rng(0)
    y = linear_scan(a, b, **options)
    grad = rng.normal(size=y.shape).astype(y.dtype)
    found = linear_scan_vjp(a, y, grad, **options)
    assert found.a.shape == a.shape
    assert found.initial.shape == tuple(np.delete(y.shape, options["axis"]))
    a, b, grad = (np.longdouble(array) for array in (a, b, grad))
    b = np.broadcast_to(b, y.shape)
    steps = rng.normal(size=y.shape), rng.normal(size=found.initial.shape)
    zero = {**options, "initial": 0.0}
    along_b = (grad * naive.linear_scan(a, steps[0], **zero)).sum()
    assert_close(np.sum(found.b * steps[0]).astype(y.dtype), along_b, scale=y.size)
    ends = naive.linear_scan(a, np.zeros(y.shape), **{**options, "initial": steps[1]})
    assert_close(np.sum(found.initial * steps[1]).astype(y.dtype), (grad * ends).sum(), y.size)
    # d y = a * d y' + d a * y': the loop again, with d a * y' in the place of b.
    da = rng.normal(size=a.shape)
    before = shifted(naive.linear_scan(a, b, **options), **options)
    along_a = (grad * naive.linear_scan(a, da * before, **zero)).sum()
    scale = float(np.abs(before).max() * y.size * y.shape[options["axis"]])
    assert_close(np.sum(found.a * da).astype(y.dtype), along_a, max(1.0, scale))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_0_stay_0(dtype, axis, reverse):
    """Up to the last y that counts nothing changes; what follows may be NaN or infinite."""
    rng = np.random.default_rng(0)
    a, b, grad = rng.uniform(0.5, 1.0, size=(3, 40, 40)).astype(dtype)
    initial = rng.normal(size=40).astype(dtype)
    steps = np.indices(a.shape)[axis][:, ::-1] if reverse and axis else np.indices(a.shape)[axis]
    steps = steps[::-1] if reverse and not axis else steps
    counted = rng.integers(0, 41, size=40)  # steps of each lane whose y counts
    is_counted = steps < (counted[:, None] if axis else counted)
    poison = rng.choice([np.nan, np.inf, -np.inf], size=a.shape).astype(dtype)
    spoiled = np.where(is_counted, a, poison)
    grad[~is_counted] = 0.0
    options = {"axis": axis, "initial": initial, "reverse": reverse}
    with np.errstate(invalid="ignore"):
        y = linear_scan(spoiled, b, **options)
    assert not np.isfinite(y[~is_counted]).all()
    found = linear_scan_vjp(spoiled, y, grad, **options)
    expected = linear_scan_vjp(a, linear_scan(a, b, **options), grad, **options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def shifted(y, axis, initial, reverse):
    """What each step multiplies by its factor."""
    y, found = np.moveaxis(y, axis, 0), np.moveaxis(np.empty_like(y), axis, 0)
    if reverse:
        y, found = y[::-1], found[::-1]
    found[0], found[1:] = initial, y[:-1]
    return np.moveaxis(found[::-1] if reverse else found, 0, axis)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", [0, 1, 4567])
def test_few_long_rows(dtype, reverse, more):
    num_steps = LONG + more
    rng = np.random.default_rng(0)
    a = rng.uniform(0.5, 1.0, size=(3, num_steps)).astype(dtype)
    b, initial = rng.normal(size=(3, num_steps)).astype(dtype), np.arange(3).astype(dtype)
    options = {"initial": initial, "reverse": reverse}
    for factors in (a, a[0], a[0, 0]):
        expected = naive.linear_scan(factors, b, axis=1, **options)
        assert_close(linear_scan(factors, b, **options), expected)
    for threads in (1, None):
        found = linear_scan(a, b, num_threads=threads, **options)
        np.testing.assert_array_equal(found, linear_scan(a, b, **options))
    copy = b.copy()
    np.testing.assert_array_equal(linear_scan(a, copy, out=copy, **options), found)
    assert_close(linear_scan(a[:, ::2], b[:, ::2], initial=1.0), naive_every_other(a, b))


def naive_every_other(a, b):
    return naive.linear_scan(a[:, ::2], b[:, ::2], 1, 1.0, False)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_what_is_not_finite_stays_where_it_belongs(poison):
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.1, 0.9, size=LONG + 99), np.ones(LONG + 99)
    b[20_000] = poison
    found = linear_scan(a, b)
    assert np.isfinite(found[:20_000]).all()
    assert not np.isfinite(found[20_000:]).any()
    a[21_000] = b[21_000] = 0.0
    np.testing.assert_array_equal(np.isnan(linear_scan(a, b)[21_000:]), True)


def test_factors_that_overflow_do_so_where_the_loop_does():
    b = np.zeros(LONG)
    b[-10] = 1.0
    np.testing.assert_array_equal(linear_scan(2.0, b)[-10:], 2.0 ** np.arange(10))
    assert (linear_scan(2.0, b)[:-10] == 0.0).all()


@pytest.mark.parametrize("size", [100, LONG])
def test_is_a_filter_of_first_order(size):
    signal = pytest.importorskip("scipy.signal")
    b = np.random.default_rng(0).normal(size=(3, size))
    expected = signal.lfilter([1.0], [1.0, -0.9], b)
    np.testing.assert_allclose(linear_scan(0.9, b), expected, rtol=1e-11, atol=1e-12)


def test_is_an_exponential_moving_average():
    x, alpha = np.random.default_rng(0).normal(size=50), 0.1
    expected = [x[0]]
    for number in x[1:]:
        expected.append((1.0 - alpha) * expected[-1] + alpha * number)
    np.testing.assert_allclose(linear_scan(1.0 - alpha, alpha * x, initial=x[0]), expected)


def test_numbers_in_lists_and_whole_numbers():
    found = linear_scan([1, 2, 3], [1, 1, 1])
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [1, 3, 10])
    np.testing.assert_array_equal(linear_scan([[1], [2]], 1.0, axis=0), [[1], [3]])
    assert linear_scan(np.float64(0.5), np.ones(3, np.float32)).dtype == np.float32
    assert linear_scan(np.ones((3, 0)), 1.0).shape == (3, 0)
    assert linear_scan_vjp(0.5, np.ones((0, 2)), 1.0, axis=0).initial.shape == (2,)


def test_scalar_function_runs_unjitted():
    step = Step(1.0, 0.0, False, False, 0.0, 0.5, 0.0, 0.0, 0.0)
    assert linear_coefficients(step, step, ()) == (0.5, 1.0)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_segments_that_vanish(dtype, reverse):
    """Beyond the smallest normal number nothing is left of what a segment is given."""
    num_steps = 3 * LONG
    a = np.full(num_steps, 0.7, dtype)
    b = np.zeros(num_steps, dtype)
    b[-1 if reverse else 0] = 1e30
    expected = naive.linear_scan(a, b, 0, 0.0, reverse)
    found = linear_scan(a, b, reverse=reverse)
    np.testing.assert_allclose(
        found, expected, rtol=1e-3 if dtype == "float32" else 1e-12, atol=1e-37
    )
