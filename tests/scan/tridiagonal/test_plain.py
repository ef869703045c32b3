"""Ordinary calls, which skip most checks: no other solutions, and the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.scan import SingularSystemError, solve_tridiagonal
from tests.scan.tridiagonal import naive


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(9,), (4, 16), (3, 5, 2), (1, 1, 255), (455, 9), (4096, 9)])
def test_the_way_of_the_call_changes_nothing(shape: tuple[int, ...], dtype: str) -> None:
    """With the axis counted from the first, all checks are made."""
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


def test_failures_of_overwritten_right_hand_sides_are_named() -> None:
    for names, number, word in (((3,), np.nan, "not finite"), ((0, 1, 2), 0.0, "singular")):
        systems = naive.make("dominant", (4, 16))
        for name in names:
            systems[name][2, 3] = number
        with pytest.raises(SingularSystemError, match=rf"\(2,\) {word}"):
            solve_tridiagonal(*systems, out=systems[3])


@pytest.mark.parametrize("shape", [(9,), (4, 16), (3, 5, 2)])
def test_status_of_solved_systems(shape: tuple[int, ...]) -> None:
    systems = naive.make("random", shape)
    x, info = solve_tridiagonal(*systems, return_info=True)
    np.testing.assert_array_equal(x, solve_tridiagonal(*systems))
    assert info.status.shape == shape[:-1]
    assert info.status.dtype == np.int8
    assert not info.status.any()
    assert info.backward_error is None
