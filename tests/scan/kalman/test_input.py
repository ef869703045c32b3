"""What the Kalman functions take, and what bad arguments get."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as random_arrays

from rlcpu.scan import (
    SingularMatrixError,
    Status,
    kalman_filter,
    kalman_loglik,
    kalman_loglik_vjp,
    kalman_smooth,
)
from rlcpu.scan.kalman.model import DEFECTS, MATRICES, check_covariances, defect
from tests.scan.kalman.naive import NAMES, call, make_models

FUNCTIONS = [kalman_loglik, kalman_loglik_vjp, kalman_filter, kalman_smooth]
COVARIANCES = [name for name in NAMES if name.endswith("cov")]


def test_defaults_are_a_standard_normal_initial_state():
    arrays = make_models(3, 1, 20)
    arrays.update(initial_mean=np.zeros(3), initial_cov=np.eye(3))
    short = {name: arrays[name] for name in NAMES[:5]}
    assert call(kalman_loglik, short) == call(kalman_loglik, arrays)


def test_out_is_filled_and_returned():
    arrays = make_models(2, 1, 30, batch=(5,))
    out = np.full(10, np.nan)[::2]
    assert call(kalman_loglik, arrays, out=out) is out
    np.testing.assert_array_equal(out, call(kalman_loglik, arrays))


def test_any_layout_integers_and_read_only_arrays_are_taken():
    arrays = make_models(3, 2, 30, batch=(4,))
    arrays["design"] = np.round(arrays["design"] * 3)
    expected = call(kalman_loglik, arrays)
    strided = {n: np.repeat(a, 2, axis=-1)[..., ::2] for n, a in arrays.items()}
    negative = {n: a[..., ::-1].copy()[..., ::-1] for n, a in arrays.items()}
    frozen = {n: a.copy() for n, a in arrays.items()}
    for array in frozen.values():
        array.flags.writeable = False
    whole = {**arrays, "design": arrays["design"].astype(int)}
    for other in (strided, negative, frozen, whole):
        np.testing.assert_array_equal(call(kalman_loglik, other), expected)
    lists = {name: array.tolist() for name, array in arrays.items()}
    np.testing.assert_array_equal(call(kalman_loglik, lists), expected)


def test_inputs_are_left_alone():
    arrays = make_models(3, 2, 30, batch=(4,))
    before = {name: array.copy() for name, array in arrays.items()}
    for function in FUNCTIONS:
        call(function, arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("batch", [(), (0,), (2, 0)])
@pytest.mark.parametrize("varying", [(), MATRICES])
def test_nothing_to_do(steps, batch, varying):
    arrays = make_models(2, 1, steps, batch=batch, varying=varying)
    loglik, gradients = call(kalman_loglik_vjp, arrays, time_varying=varying)
    assert loglik.shape == batch
    assert call(kalman_smooth, arrays, time_varying=varying).mean.shape == (*batch, steps, 2)
    for name, gradient in zip(NAMES, gradients, strict=True):
        assert gradient.shape == arrays[name].shape
    if steps == 0:
        assert not loglik.any()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_bad_arrays_are_refused(function, name):
    arrays = make_models(2, 1, 4, batch=(3,))
    bad = {
        "complex": (TypeError, arrays[name].astype(complex)),
        "mixed": (TypeError, arrays[name].astype(np.float32)),
        "bool": (TypeError, arrays[name].astype(bool)),
        "text": (TypeError, arrays[name].astype(str)),
        "shape": (ValueError, arrays[name][..., :0]),
        "axes": (ValueError, np.float64(1.0)),
        "batch": (ValueError, np.repeat(arrays[name], 2, axis=0)),
        "infinite": (ValueError, np.where(np.arange(arrays[name].shape[-1]), 1, np.inf)),
    }
    bad["infinite"] = ValueError, arrays[name].copy()
    bad["infinite"][1].flat[1] = np.inf
    for error, array in bad.values():
        with pytest.raises(error, match=name if error is TypeError else "expected|broadcast"):
            call(function, {**arrays, name: array})


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", COVARIANCES)
def test_matrices_that_are_no_covariances_are_refused(function, name):
    arrays = make_models(2, 2, 4, batch=(3,))
    for change, defect_ in (
        (np.array([[0.0, 1.0], [0.0, 0.0]]), DEFECTS[2]),
        (np.array([[-100.0, 0.0], [0.0, 0.0]]), DEFECTS[3]),
        (np.array([[0.0, 100.0], [100.0, 0.0]]), DEFECTS[3]),
        (np.array([[np.nan, 0.0], [0.0, 0.0]]), DEFECTS[1]),
    ):
        array = arrays[name].copy()
        array[1] += change
        out = np.full(3, 7.0)
        options = {"out": out} if function is kalman_loglik else {}
        with pytest.raises(ValueError, match=rf"^{name}: .* 1 of 3 .* at \(1,\), is {defect_}"):
            call(function, {**arrays, name: array}, **options)
        assert (out == 7.0).all()


def test_infinite_observations_are_refused_and_nothing_written():
    arrays = make_models(2, 1, 4, batch=(3,))
    arrays["observations"][2, 1, 0] = -np.inf
    out = np.full(3, 7.0)
    for function in FUNCTIONS:
        options = {"out": out} if function is kalman_loglik else {}
        with pytest.raises(ValueError, match=r"^observations: .* got -inf at \(2, 1, 0\)"):
            call(function, arrays, **options)
    assert (out == 7.0).all()


def test_bad_options_are_refused():
    arrays = make_models(2, 1, 4, batch=(3,))
    for function in FUNCTIONS:
        with pytest.raises(ValueError, match=r"^form='square': expected one of plain, joseph"):
            call(function, arrays, form="square")
        for names in ("design", ["observations"]):
            with pytest.raises(ValueError, match=r"^time_varying=.*: expected names"):
                call(function, arrays, time_varying=names)
        with pytest.raises(ValueError, match=r"^num_threads=0"):
            call(function, arrays, num_threads=0)
    with pytest.raises(ValueError, match=r"^grad: expected a shape that broadcasts to \(3,\)"):
        call(kalman_loglik_vjp, arrays, grad=np.ones(2))
    with pytest.raises(ValueError, match=r"^transition: expected shape \(\.\.\., 4, 2, 2\)"):
        call(kalman_loglik, arrays, time_varying=["transition"])


def test_bad_out_is_refused():
    arrays = make_models(2, 1, 4, batch=(3,))
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for bad in (np.zeros(3, np.float32), [0.0]):
        with pytest.raises(TypeError, match=r"^out: expected an array of float64"):
            call(kalman_loglik, arrays, out=bad)
    for bad in (np.zeros(4), frozen, arrays["observations"][:, 0, 0]):
        with pytest.raises(ValueError, match=r"^out: "):
            call(kalman_loglik, arrays, out=bad)


# ---------------------------------------------------------------- innovations without a density


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 9)])
@pytest.mark.parametrize("sensor", [1.0, 0.3, 0.7, 3.3, 1e-9])
def test_two_copies_of_a_sensor_without_noise_are_refused(function, dtype, batch, sensor):
    """Of a third one between them, too; other models of the batch are not named."""
    arrays = make_models(2, 3, 3, batch=batch, dtype=dtype)
    last = (-1,) * len(batch)
    arrays["design"][last][:] = [[sensor, 2 * sensor], [1.0, 0.0], [sensor, 2 * sensor]]
    arrays["observation_cov"][last][:] = 0.0
    options = {"out": np.full(batch, 7.0, dtype)} if function is kalman_loglik else {}
    with pytest.raises(SingularMatrixError) as caught:
        call(function, arrays, **options)
    where = f"{tuple(n - 1 for n in batch)} " if batch else ""
    assert str(caught.value) == (
        f"1 of {math.prod(batch)} models have a covariance of an innovation that cannot be "
        f"inverted: {where}singular"
    )
    expected = np.zeros(batch, np.int8)
    expected[last] = Status.SINGULAR
    np.testing.assert_array_equal(caught.value.status, expected)
    assert np.all(options.get("out", 7.0) == 7.0)


@pytest.mark.parametrize("steps", [1, 200])
@pytest.mark.parametrize("variance", [0.0, math.inf])
def test_a_variance_that_is_none_is_refused(variance, steps):
    one = np.eye(1)
    design, y = (1e200 if variance else 0.0) * one, np.zeros((steps, 1))
    with pytest.raises(SingularMatrixError, match="1 of 1 models have a covariance"):
        kalman_loglik(y, one, one, design, 0.0 * one)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_sensors_that_differ_by_more_than_rounding_are_taken(dtype):
    """Each has a variance of 1, of which a share is noise that the other does not have."""
    share = np.dtype(dtype).type(64.0 * np.finfo(dtype).eps)
    one = np.eye(2, dtype=dtype)
    y = np.array([[1.0, 1.0]], dtype)
    design = np.sqrt(1.0 - share, dtype=dtype) * np.array([[1.0, 0.0], [1.0, 0.0]], dtype)
    states = kalman_filter(y, one, one, design, share * one)
    np.testing.assert_allclose(states.filtered_mean, [[1.0, 0.0]], rtol=0.1, atol=0.1)


def test_missing_copies_of_a_sensor_without_noise_are_no_copies():
    one, y = np.eye(2), np.array([[1.0, np.nan], [np.nan, 2.0]])
    states = kalman_filter(y, one, one, np.array([[1.0, 0.0], [1.0, 0.0]]), 0.0 * one)
    np.testing.assert_array_equal(states.filtered_mean, [[1.0, 0.0], [2.0, 0.0]])


# ---------------------------------------------------------------- pieces


@given(
    random_arrays(np.float64, st.integers(1, 4).map(lambda n: (n, n)), elements=st.floats(-9, 9)),
    st.integers(0, 4),
)
def test_defects_are_those_of_the_eigenvalues(root, rank):
    """Uncompiled; matrices of any rank are covariances until an eigenvalue is taken down."""
    n, work = len(root), np.empty_like(root)
    root = np.where(abs(root) < 1e-3, 0.0, root)[:, :rank]
    cov = root @ root.T
    assert defect(cov, work, 64 * n * 2e-16) == 0
    values, vectors = np.linalg.eigh(cov)
    values[0] = -1e-3 * (1.0 + values[-1])
    changed = (vectors * values) @ vectors.T
    assert defect((changed + changed.T) / 2, work, 64 * n * 2e-16) == 3


def test_covariances_of_any_scale_are_taken():
    scale = np.array([1e-150, 1.0, 1e150])
    check_covariances("x", np.ones((5, 3, 3)) * scale * scale[:, None])
    check_covariances("x", np.zeros((300, 2, 2), np.float32))
