"""Tridiagonal systems on the device: backward errors, statuses, layouts, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import maths
from rlcpu.cuda.chunks import GROUP, cut_of
from rlcpu.cuda.device import SIMULATED, asarray, empty, to_host
from rlcpu.kernels.compiler.compile import specialise
from rlcpu.kernels.machine.vectors import inverse_power
from rlcpu.scan import (
    SingularSystemError,
    Status,
    TridiagonalGradients,
    factor_tridiagonal,
    kalman_loglik,
    solve_tridiagonal,
    tridiagonal_vjp,
)
from rlcpu.scan.tridiagonal.equations import scaled
from tests.cuda.compare import close, equal
from tests.scan.tridiagonal import naive

pytestmark = pytest.mark.device

#: Systems of one warp and of the next, unknowns of one tile and of the next.
BATCH, LENGTH = 35, 18


def test_power_of_two_of_the_device() -> None:
    # One compiled from Python has the same numbers, by `math.frexp`, in a hundred instructions.
    twin = specialise(scaled, np.float64, exact=True).py_func.__globals__["inverse_power"]
    assert maths.overloaded(twin.py_func) is inverse_power


def solve(arguments: list[np.ndarray], axis: int, **options: Any) -> Any:
    """Solutions (batch, n) of systems (batch, n), laid out along an axis."""
    turned = [np.moveaxis(a, -1, axis).copy() for a in arguments]
    x, info = solve_tridiagonal(*map(asarray, turned), axis=axis, return_info=True, **options)
    return np.moveaxis(to_host(x), axis, -1), to_host(info.status)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("family", naive.FAMILIES)
def test_backward_errors(family: str, axis: int, dtype: Any) -> None:
    given = naive.make(family, (BATCH, LENGTH), dtype)
    x, status = solve(given, axis)
    assert not status.any()
    assert naive.backward_error(*given, x).max() < 200 * np.finfo(dtype).eps
    if family in ("dominant", "scaled rows"):
        again, status = solve(given, axis, method="thomas")
        assert not status.any()
        assert naive.backward_error(*given, again).max() < 10 * np.finfo(dtype).eps


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_few_unknowns_and_batch_axes(length: int, axis: int) -> None:
    given = naive.make("random", (2, 3, length))
    x, status = solve(given, axis)
    assert x.shape == (2, 3, length)
    assert not status.any()
    assert naive.backward_error(*given, x).max() < 1e-13


@pytest.mark.parametrize("axis", [0, -1])
def test_lengths(axis: int) -> None:
    lengths = np.arange(BATCH) % (LENGTH + 1)
    given = naive.make("random", (BATCH, LENGTH))
    x, status = solve(given, axis, lengths=lengths)
    assert not status.any()
    for system, length in enumerate(lengths):
        own = [array[system, :length] for array in given]
        assert not x[system, length:].any()
        if length:
            expected = naive.solve(naive.dense(*own[:3]), own[3])
            assert close(x[system, :length], expected.astype(float), rtol=1e-9)


@pytest.mark.parametrize("axis", [0, -1])
def test_statuses(axis: int) -> None:
    given = naive.make("dominant", (5, 6))
    given[1][1] = 0.0  # with its neighbours in the odd places this is singular
    given[0][1] = given[2][1] = 0.0
    given[3][2, 3] = np.inf
    given[1][3, 0] = np.nan
    x, status = solve(given, axis)
    solved, singular, not_finite = Status.SOLVED, Status.SINGULAR, Status.NOT_FINITE
    assert status.tolist() == [solved, singular, not_finite, not_finite, solved]
    assert np.isfinite(x[status == solved]).all()
    turned = [asarray(np.moveaxis(a, -1, axis).copy()) for a in given]
    with pytest.raises(SingularSystemError, match="3 of 5 systems") as caught:
        solve_tridiagonal(*turned, axis=axis)
    assert caught.value.status.tolist() == status.tolist()


def test_numbers_and_one_matrix_for_all() -> None:
    rhs = np.ones((3, 4))
    expected = [[2.0, 3.0, 3.0, 2.0]] * 3
    assert close(to_host(solve_tridiagonal(-1, 2.0, -1, asarray(rhs))), expected)
    diagonal = np.full(4, 2.0)
    found = solve_tridiagonal(-1.0, diagonal, -np.ones(4), asarray(rhs))
    assert close(to_host(found), expected)
    columns = asarray(rhs.T.copy())
    found = solve_tridiagonal(-1.0, diagonal[:, None], -1.0, columns, axis=0)
    assert close(to_host(found).T, expected)


@pytest.mark.parametrize("axis", [0, -1])
def test_in_place(axis: int) -> None:
    given = [asarray(np.moveaxis(a, -1, axis).copy()) for a in naive.make("random", (3, 6))]
    expected = to_host(solve_tridiagonal(*given, axis=axis))
    assert solve_tridiagonal(*given, axis=axis, out=given[3]) is given[3]
    assert equal(to_host(given[3]), expected)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "lu"}, ValueError, "method='lu'"),
        ({"axis": 2}, ValueError, "axis=2"),
        ({"lengths": [7] * 3}, ValueError, "expected 0 to 6, got 7"),
        ({"lengths": [0.5] * 3}, TypeError, "lengths"),
        ({"check": "norm"}, ValueError, "check='norm'"),
        ({"diagonal": np.ones((3, 6), np.float32)}, TypeError, "diagonal: expected float64"),
        ({"diagonal": np.ones((3, 5))}, ValueError, r"diagonal \(3, 5\)"),
        ({"upper": np.ones((3, 5))}, ValueError, "upper: expected 6 numbers along axis=-1, got 5"),
        ({"lower": np.ones(6), "axis": 0}, ValueError, r"write lower\[:, None\] for numbers"),
        ({"out": np.ones((3, 6))}, TypeError, "out"),
    ],
)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    names = "lower", "diagonal", "upper", "rhs"
    given = {name: asarray(np.ones((3, 6))) for name in names}
    with pytest.raises(error, match=message):
        solve_tridiagonal(**{**given, **change})


def test_output_that_overlaps_a_coefficient() -> None:
    given = [asarray(np.ones((3, 6))) for _ in range(4)]
    with pytest.raises(ValueError, match="out: overlaps"):
        solve_tridiagonal(*given, out=given[1])


# ---------------------------------------------------------------- gradients

#: Shapes of x and of the coefficients, axis: each its own, one matrix, numbers, one for some. Both
#: types take the same way.
GRADIENTS = [
    ((3, 7), (3, 7), -1, np.float32),
    ((7, 3), (7, 3), 0, np.float64),
    ((2, 7, 3), (7, 1), 1, np.float32),
    ((5, 4, 7), (7,), -1, np.float64),
    ((70, 3), (), 0, np.float32),
    ((4, 1), (4, 1), -1, np.float64),
]


def compare(found: Any, expected: Any) -> None:
    """The CPU's gradients, which are compared with differences elsewhere."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        eps = np.finfo(other.dtype).eps
        np.testing.assert_allclose(to_host(one), other, rtol=200 * eps, atol=200 * eps)


@pytest.mark.parametrize(("shape", "own", "axis", "dtype"), GRADIENTS)
def test_gradients(shape: Any, own: Any, axis: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    lower, upper = rng.uniform(-1, 1, (2, *own)).astype(dtype)
    diagonal = dtype(2.5) + np.abs(lower) + np.abs(upper)
    x, grad = rng.normal(size=(2, *shape)).astype(dtype)
    given = [lower, diagonal, upper, x, grad]
    expected = tridiagonal_vjp(*given, axis=axis)
    on_device = list(map(asarray, given))
    compare(tridiagonal_vjp(*on_device, axis=axis), expected)
    out = TridiagonalGradients(*(empty(a.shape, dtype) for a in (*given[:3], x)))
    assert tridiagonal_vjp(*on_device, axis=axis, out=out) is out
    compare(out, expected)


def test_gradients_of_0_stay_0() -> None:
    x, grad = np.ones((2, 3)), np.ones((2, 3))
    x[1], grad[1] = np.inf, 0.0
    found = tridiagonal_vjp(1.0, 3.0, asarray(np.ones((2, 3))), *map(asarray, (x, grad)))
    compare(found, tridiagonal_vjp(1.0, 3.0, np.ones((2, 3)), x, grad))
    assert not to_host(found.upper)[1].any()


def test_gradients_of_no_systems() -> None:
    x = asarray(np.ones((0, 3)))
    found = tridiagonal_vjp(1.0, asarray(np.ones(3)), 1.0, x, x)
    assert not to_host(found.diagonal).any()
    assert found.rhs.shape == (0, 3)


def test_bad_input_of_gradients() -> None:
    x = asarray(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"grad: expected shape \(2, 3\), got \(3,\)"):
        tridiagonal_vjp(1.0, 3.0, 1.0, x, asarray(np.ones(3)))
    with pytest.raises(ValueError, match="lower: expected a shape that broadcasts"):
        tridiagonal_vjp(asarray(np.ones(4)), 3.0, 1.0, x, x)
    with pytest.raises(TypeError, match="out: expected TridiagonalGradients, got tuple"):
        tridiagonal_vjp(1.0, 3.0, 1.0, x, x, out=(x,))  # type: ignore[arg-type]
    new = [empty((), np.float64) for _ in range(3)]
    with pytest.raises(ValueError, match=r"out.rhs: overlaps"):
        tridiagonal_vjp(1.0, 3.0, 1.0, x, x, out=TridiagonalGradients(*new, x))
    with pytest.raises(SingularSystemError):
        tridiagonal_vjp(0.0, 0.0, 0.0, x, x)


# ---------------------------------------------------------------- what only the host computes


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"check": "residual"}, "check=.*: not on"),
        ({"periodic": True, "lengths": [6] * 3}, "periodic=True and lengths: not on"),
    ],
)
def test_options_of_the_host(option: Any, message: str) -> None:
    rhs = asarray(np.ones((3, 6)))
    with pytest.raises(NotImplementedError, match=message):
        solve_tridiagonal(1.0, 4.0, 1.0, rhs, **option)


def test_functions_of_the_host() -> None:
    array = asarray(np.ones(4))
    with pytest.raises(NotImplementedError, match=r"factor_tridiagonal .*diagonal of .*: not on"):
        factor_tridiagonal(1.0, array, 1.0)
    factors = factor_tridiagonal(np.ones(4), 4.0 * np.ones(4), np.ones(4))
    with pytest.raises(
        NotImplementedError,
        match=r"Factors.solve .*rhs of .*: not on a CUDA device, but on the CPU",
    ):
        factors.solve(array)
    one = np.eye(1)
    with pytest.raises(NotImplementedError, match=r"Kalman.* observations of .*: not on"):
        kalman_loglik(array.reshape(4, 1), one, one, one, one)


def test_one_system() -> None:
    lower, diagonal, upper, rhs = map(asarray, ([0.0, 1.0], [2.0, 2.0], [1.0, 0.0], [3.0, 3.0]))
    np.testing.assert_allclose(to_host(solve_tridiagonal(lower, diagonal, upper, rhs)), 1.0)
    with pytest.raises(SingularSystemError, match="1 of 1 systems not solved: singular"):
        solve_tridiagonal(0.0, 0.0, 0.0, rhs)


@pytest.mark.parametrize("shape", [(5, 1), (3, 2), (4, 3), (9, 21), (3, 61)])
@pytest.mark.parametrize(("axis", "dtype"), [(0, np.float64), (-1, np.float32)])
@pytest.mark.parametrize("family", ["random", "dominant"])
def test_rings(family: str, axis: int, dtype: Any, shape: Any) -> None:
    given = naive.ring(family, shape, dtype)
    x, status = solve(given, axis, periodic=True)
    assert not status.any()
    assert naive.backward_error(*given, x, periodic=True).max() < 200 * np.finfo(dtype).eps
    if family == "dominant":
        x, _ = solve(given, axis, periodic=True, method="thomas")
        assert naive.backward_error(*given, x, periodic=True).max() < 10 * np.finfo(dtype).eps


def test_statuses_of_rings() -> None:
    given = [asarray(a) for a in naive.ring("dominant", (4, 5))]
    given[0][1] = given[2][1] = -1.0  # each row of this one sums to zero
    given[1][1] = 2.0
    given[0][2, 0] = np.inf
    _, info = solve_tridiagonal(*given, periodic=True, return_info=True)
    status = to_host(info.status)
    assert status[[0, 2, 3]].tolist() == [Status.SOLVED, Status.NOT_FINITE, Status.SOLVED]
    with pytest.raises(SingularSystemError, match=r"\(2,\) not finite"):
        solve_tridiagonal(*given, periodic=True)


# ---------------------------------------------------------------- few long systems

#: Systems and unknowns that are cut: groups of chunks of two levels, of one, one group alone.
CUT = [(1, 150), (3, 61), (7, 40)] if SIMULATED else [(1, 2_000_000), (3, 40_000), (100, 600)]


def test_few_long_systems_are_cut() -> None:
    # Which systems are cut is not to be seen in results.
    counts = [cut_of(*shape).chunks for shape in CUT]
    assert counts[0] > GROUP**2 or not SIMULATED
    assert counts[1] > GROUP or not SIMULATED
    assert CUT[0][1] % cut_of(*CUT[0]).rows == 0  # the last chunk is whole there, and shorter here
    assert CUT[1][1] % cut_of(*CUT[1]).rows > 1
    for n in range(CUT[2][1], CUT[2][1] + 200):
        cut = cut_of(1, n)
        assert cut.chunks * cut.rows >= n > (cut.chunks - 1) * cut.rows + 1
    assert cut_of(10**6, 10**3) is None
    assert cut_of(1, 30) is None


@pytest.mark.parametrize(("shape", "axis"), list(zip(CUT, [-1, 0, -1], strict=True)))
@pytest.mark.parametrize("family", naive.FAMILIES)
def test_backward_errors_of_long_systems(family: str, shape: Any, axis: int) -> None:
    if family == "zero diagonal" and not SIMULATED:
        pytest.skip("its solution grows beyond the largest number")
    dtype = np.float32 if axis == 0 else np.float64
    given = naive.make(family, shape, dtype)
    x, status = solve(given, axis)
    assert not status.any()
    # Millions of equations are as many chances of a chunk without a good pivot.
    limit = 200 if SIMULATED or family == "dominant" else 2**17
    assert naive.backward_error(*given, x).max() < limit * np.finfo(dtype).eps
    if family == "dominant":
        again, _ = solve(given, axis, method="thomas")
        assert naive.backward_error(*given, again).max() < 10 * np.finfo(dtype).eps


@pytest.mark.parametrize("axis", [0, -1])
def test_statuses_of_long_systems(axis: int) -> None:
    batch, n = CUT[2]
    given = naive.make("dominant", (batch, n))
    given[0][1, 15], given[1][1, 15], given[2][1, 15] = 0.0, 0.0, 0.0
    given[3][2, 33] = np.inf
    given[1][3, 0] = np.nan
    x, status = solve(given, axis)
    expected = np.zeros(batch)
    expected[1:4] = Status.SINGULAR, Status.NOT_FINITE, Status.NOT_FINITE
    assert status.tolist() == expected.tolist()
    assert np.isfinite(x[status == Status.SOLVED]).all()


@pytest.mark.parametrize("axis", [0, -1])
def test_long_systems_in_place_and_of_three_axes(axis: int) -> None:
    n = CUT[2][1] + 1
    shape = [2, 3]
    shape.insert(axis % 3, n)
    given = [np.moveaxis(a, -1, axis).copy() for a in naive.make("random", (2, 3, n))]
    on_device = list(map(asarray, given))
    x = to_host(solve_tridiagonal(*on_device, axis=axis))
    ordered = [np.moveaxis(a, axis, -1) for a in (*given, x)]
    assert naive.backward_error(*ordered).max() < 1e-13
    assert solve_tridiagonal(*on_device, axis=axis, out=on_device[3]) is on_device[3]
    assert equal(to_host(on_device[3]), x)


@pytest.mark.parametrize("axis", [0, -1])
def test_gradients_of_long_systems(axis: int) -> None:
    rng, shape = np.random.default_rng(1), (CUT[1] if axis else CUT[1][::-1])
    lower, upper, x, grad = rng.uniform(-1, 1, (4, *shape))
    given = [lower, 2.5 + np.abs(lower) + np.abs(upper), upper, x, grad]
    expected = tridiagonal_vjp(*given, axis=axis)
    compare(tridiagonal_vjp(*map(asarray, given), axis=axis), expected)
