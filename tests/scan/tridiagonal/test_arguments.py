"""What `solve_tridiagonal` takes: arrays that lie anywhere, repeated numbers, and bad arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rlcpu.scan import factor_tridiagonal, solve_tridiagonal, tridiagonal_vjp
from tests.scan.tridiagonal import naive

N = 12


def test_whole_numbers_and_plain_numbers() -> None:
    x = solve_tridiagonal(-1, 2, -1, [1, 0, 1])
    assert x.dtype == np.float64
    np.testing.assert_allclose(x, 1.0)
    assert solve_tridiagonal(-1, 2.0, -1, np.ones(3, np.float32)).dtype == np.float32


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (0, 0)])
def test_empty(shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape)
    assert solve_tridiagonal(empty, empty, empty, empty).shape == shape
    _, info = solve_tridiagonal(empty, empty, empty, empty, return_info=True, check="residual")
    assert info.status.shape == info.backward_error.shape == shape[:-1]


ONES = np.ones((4, 5))
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"lower": np.ones((3, 5))}, ValueError, "lower (3, 5)"),
    ({"lower": np.ones((4, 5), np.complex128)}, TypeError, "lower: expected"),
    ({"rhs": np.ones((4, 5), np.float16)}, TypeError, "rhs: expected"),
    ({"rhs": np.ones((4, 5), np.longdouble)}, TypeError, "rhs: expected"),
    ({"rhs": np.array([["a"] * 5] * 4)}, TypeError, "rhs: expected"),
    ({"diagonal": np.ones((4, 5), np.float32)}, TypeError, "diagonal: expected float64"),
    ({"axis": 2}, ValueError, "axis=2"),
    ({"axis": -3}, ValueError, "axis=-3"),
    ({"axis": 1.0}, TypeError, "axis=1.0"),
    ({"method": "lu"}, ValueError, "method='lu'"),
    ({"check": "everything"}, ValueError, "check='everything'"),
    ({"num_threads": 0}, ValueError, "num_threads=0"),
    ({"out": np.ones((4, 4))}, ValueError, "out: expected"),
    ({"out": np.ones((4, 5), np.float32)}, TypeError, "out: expected"),
    ({"out": [[1.0] * 5] * 4}, TypeError, "out: expected"),
    ({"out": np.broadcast_to(1.0, (4, 5))}, ValueError, "out: read-only"),
    ({"lengths": [1, 2, 3, 6]}, ValueError, "lengths: expected 0 to 5, got 6"),
    ({"lengths": [1, 2, 3, -1]}, ValueError, "lengths: expected 0 to 5, got -1"),
    ({"lengths": [1, 2, 3]}, ValueError, "lengths: expected shape (4,)"),
    ({"lengths": [1.0, 2.0, 3.0, 4.0]}, TypeError, "lengths: expected whole numbers"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    out = np.full((4, 5), 7.0)
    arguments = {"lower": ONES, "diagonal": 4 * ONES, "upper": ONES, "rhs": ONES, "out": out}
    with pytest.raises(error, match=re.escape(message)):
        solve_tridiagonal(**{**arguments, **change})
    assert (out == 7.0).all()


def test_out_may_not_overlap_an_input() -> None:
    memory = np.ones(60)
    a, shifted = memory[:20].reshape(4, 5), memory[3:23].reshape(4, 5)
    with pytest.raises(ValueError, match="out: overlaps another array"):
        solve_tridiagonal(a, 4 * ONES, ONES, ONES, out=a)
    with pytest.raises(ValueError, match="out: overlaps another array"):
        solve_tridiagonal(ONES, 4 * ONES, ONES, a, out=shifted)
    assert (memory == 1.0).all()


# ---------------------------------------------------------------- the axis of the unknowns


def calls(lower: Any, diagonal: Any, upper: Any, rhs: Any, axis: int) -> Iterator[Any]:
    """Every function that takes a matrix."""
    yield lambda: solve_tridiagonal(lower, diagonal, upper, rhs, axis=axis)
    yield lambda: solve_tridiagonal(lower, diagonal, upper, rhs, axis=axis, periodic=True)
    if axis < 0:  # it is not told of axes before those of the matrices
        yield lambda: factor_tridiagonal(lower, diagonal, upper, axis=axis)
    yield lambda: tridiagonal_vjp(lower, diagonal, upper, rhs, rhs, axis=axis)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 6, 4), (3, 3, 3)])
def test_one_matrix_for_columns(shape: tuple[int, ...]) -> None:
    """Its numbers would be aligned with the systems, in silence where there are as many."""
    n = shape[-2]
    matrix = naive.make("dominant", (n,), seed=1)[:3]
    rhs = np.random.default_rng(2).normal(size=shape)
    columns = [array[:, None] for array in matrix]
    expected = solve_tridiagonal(*matrix, np.moveaxis(rhs, -2, -1))
    for axis in (-2, len(shape) - 2):
        for k, name in enumerate(("lower", "diagonal", "upper")):
            mixed = [*columns[:k], matrix[k], *columns[k + 1 :]]
            message = re.escape(
                f"{name}: shape ({n},) lacks the axis of the unknowns, axis={axis}; write "
                f"{name}[:, None] for numbers of equations that all systems share"
            )
            for call in calls(*mixed, rhs, axis):
                with pytest.raises(ValueError, match=f"^{message}"):
                    call()
        found = solve_tridiagonal(*columns, rhs, axis=axis)
        np.testing.assert_allclose(np.moveaxis(found, -2, -1), expected, rtol=1e-13)
    factors = factor_tridiagonal(*matrix)
    np.testing.assert_allclose(factors.solve(rhs, axis=-2), found, rtol=1e-12)


def test_one_right_hand_side_for_columns() -> None:
    matrices, rhs = naive.moved(naive.make("dominant", (4, N))[:3], 0), np.ones(N)
    with pytest.raises(ValueError, match=r"^rhs: shape \(12,\) lacks .* write rhs\[:, None\] for"):
        solve_tridiagonal(*matrices, rhs, axis=0)
    found = solve_tridiagonal(*matrices, rhs[:, None], axis=0)
    expected = solve_tridiagonal(*(array.T for array in matrices), rhs)
    np.testing.assert_allclose(found.T, expected, rtol=1e-13)


def test_one_number_of_each_system() -> None:
    """Along an axis of the unknowns of length 1 it is repeated; so are lone numbers."""
    numbers = 3.0 + np.arange(4.0)
    with pytest.raises(ValueError, match=r"diagonal\[None\] for one number of each system$"):
        solve_tridiagonal(1.0, numbers, 1.0, np.ones((4, 4)), axis=0)
    found = solve_tridiagonal([1.0], numbers[None], 1.0, np.ones((4, 4)), axis=0)
    for x, number in zip(found.T, numbers, strict=True):
        np.testing.assert_allclose(x, solve_tridiagonal(1.0, number, 1.0, np.ones(4)), rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("name", ["lower", "upper"])
def test_shorter_off_diagonals_are_named(name: str, axis: int) -> None:
    """As libraries take them that store no number for what is not there."""
    names, systems = ("lower", "diagonal", "upper", "rhs"), naive.make("dominant", (4, N))
    arrays = dict(zip(names, naive.moved(systems, axis), strict=True))
    arrays[name] = np.delete(arrays[name], 0, axis)
    message = (
        f"{name}: expected {N} numbers along axis={axis}, got {N - 1}; off-diagonals are padded to "
        f"the length of the diagonal: lower[0] and upper[{N - 1}] are ignored"
    )
    for call in calls(**arrays, axis=axis):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        solve_tridiagonal(**{**arrays, "diagonal": 3.0}, axis=axis)


def test_numbers_alone_are_no_system() -> None:
    with pytest.raises(ValueError, match="rhs: expected at least one axis"):
        solve_tridiagonal(1.0, 2.0, 1.0, 1.0)


# ---------------------------------------------------------------- ordinary calls


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(9,), (4, 16), (3, 5, 2), (1, 1, 255), (455, 9), (4096, 9)])
def test_the_way_of_the_call_changes_nothing(shape: tuple[int, ...], dtype: str) -> None:
    """With the axis counted from the first, all checks are made; else most are left out."""
    systems = naive.make("random", shape, np.dtype(dtype).type)
    expected = solve_tridiagonal(*systems, axis=len(shape) - 1)
    np.testing.assert_array_equal(solve_tridiagonal(*systems), expected)
    out = np.empty_like(expected)
    assert solve_tridiagonal(*systems, out=out) is out
    np.testing.assert_array_equal(out, expected)
    x = systems[3].copy()
    assert solve_tridiagonal(*systems[:3], x, out=x) is x
    np.testing.assert_array_equal(x, expected)


def test_read_only_arrays() -> None:
    systems = naive.make("random", (4, 16))
    expected = solve_tridiagonal(*systems)
    for array in systems:
        array.flags.writeable = False
    np.testing.assert_array_equal(solve_tridiagonal(*systems), expected)
    with pytest.raises(ValueError, match="out: read-only"):
        solve_tridiagonal(*systems, out=systems[3])


def _misaligned(array: Any) -> Any:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


LIKE = {
    "steps": lambda array: np.repeat(array, 2, -1)[:, ::2],
    "columns": lambda array: np.asfortranarray(array),
    "misaligned": _misaligned,
    "a list": lambda array: array.tolist(),
    "swapped bytes": lambda array: array.astype(array.dtype.newbyteorder()),
}


@pytest.mark.parametrize("name", range(4))
@pytest.mark.parametrize("like", LIKE)
def test_arrays_may_lie_anywhere(name: int, like: str) -> None:
    systems = naive.make("dominant", (4, 16))
    expected = solve_tridiagonal(*systems)
    systems[name] = LIKE[like](systems[name])
    np.testing.assert_array_equal(solve_tridiagonal(*systems), expected)
    out = LIKE[like](np.full((4, 16), 7.0))
    if isinstance(out, np.ndarray) and out.dtype.isnative:
        assert solve_tridiagonal(*systems, out=out) is out
        np.testing.assert_array_equal(out, expected)


OTHERS = {
    "another dtype": lambda array: array.astype(np.float32),
    "half precision": lambda array: array.astype(np.float16),
    "complex": lambda array: array.astype(np.complex128),
    "masked": lambda array: array.view(np.ma.MaskedArray),
}


@pytest.mark.parametrize("name", range(1, 4))
@pytest.mark.parametrize("other", OTHERS)
def test_other_arrays_are_refused(name: int, other: str) -> None:
    systems = naive.make("dominant", (4, 16))
    systems[name] = OTHERS[other](systems[name])
    out = np.full((4, 16), 7.0)
    with pytest.raises(TypeError, match=("diagonal", "upper", "rhs")[name - 1]):
        solve_tridiagonal(*systems, out=out)
    assert (out == 7.0).all()


@pytest.mark.parametrize("name", range(4))
@pytest.mark.parametrize("shift", [-63, -1, 0, 1, 63, 64])
def test_results_that_overlap_an_input_are_refused(name: int, shift: int) -> None:
    systems = naive.make("dominant", (4, 16))
    expected = solve_tridiagonal(*systems)
    memory = np.full(256, 7.0)
    systems[name], numbers = memory[96:160].reshape(4, 16), systems[name]
    systems[name][...] = numbers
    before = memory.copy()
    out = memory[96 + shift : 160 + shift].reshape(4, 16)
    if shift == 64 or (name == 3 and shift == 0):  # the right-hand side itself
        np.testing.assert_array_equal(solve_tridiagonal(*systems, out=out), expected)
    else:
        with pytest.raises(ValueError, match="out: overlaps another array"):
            solve_tridiagonal(*systems, out=out)
        np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize("shape", [(9,), (4, 16), (3, 5, 2)])
def test_status_of_solved_systems(shape: tuple[int, ...]) -> None:
    systems = naive.make("random", shape)
    x, info = solve_tridiagonal(*systems, return_info=True)
    np.testing.assert_array_equal(x, solve_tridiagonal(*systems))
    assert info.status.shape == shape[:-1]
    assert info.status.dtype == np.int8
    assert not info.status.any()
    assert info.backward_error is None
