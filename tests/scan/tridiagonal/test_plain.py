"""The short way of small calls: which arrays take it, and that it is no other solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.scan import SingularSystemError, solve_tridiagonal
from rlcpu.scan.tridiagonal.solve import SMALL, _solve_ordinary, solve_small
from tests.scan.tridiagonal import naive


def solve(*arrays: Any, out: Any = None) -> Any:
    return _solve_ordinary(arrays, out, 1.0, None)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape", [(9,), (4, 16), (3, 5, 2), (1, 1, 255), (SMALL // 9, 9), (SMALL, 9)]
)
def test_it_is_the_general_solution(shape: tuple[int, ...], dtype: str) -> None:
    systems = naive.make("random", shape, np.dtype(dtype).type)
    expected = solve_tridiagonal(*systems, axis=len(shape) - 1)
    np.testing.assert_array_equal(solve(*systems), expected)
    out = np.empty_like(expected)
    assert solve(*systems, out=out) is out
    np.testing.assert_array_equal(out, expected)
    x = systems[3].copy()
    assert solve_tridiagonal(*systems[:3], x, out=x) is x
    np.testing.assert_array_equal(x, expected)


def test_read_only_inputs() -> None:
    systems = naive.make("random", (4, 16))
    expected = solve(*systems)
    for array in systems:
        array.flags.writeable = False
    np.testing.assert_array_equal(solve(*systems), expected)
    assert solve(*systems, out=systems[3]) is None


def _misaligned(array: Any) -> Any:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


LIKE = {
    "steps": lambda array: np.repeat(array, 2, -1)[:, ::2],
    "columns": lambda array: np.asfortranarray(array),
    "misaligned": _misaligned,
}


@pytest.mark.parametrize("name", range(4))
@pytest.mark.parametrize("like", LIKE)
def test_inputs_may_lie_anywhere(name: int, like: str) -> None:
    systems = naive.make("dominant", (4, 16))
    expected = solve(*systems)
    systems[name] = LIKE[like](systems[name])
    np.testing.assert_array_equal(solve(*systems), expected)
    out = LIKE[like](np.full((4, 16), 7.0))
    assert solve(*systems, out=out) is None
    assert (out == 7.0).all()


OTHERS = {
    "a number": lambda array: 1.0,
    "a list": lambda array: array.tolist(),
    "another shape": lambda array: array[:1].copy(),
    "another dtype": lambda array: array.astype(np.float32),
    "swapped bytes": lambda array: array.astype(array.dtype.newbyteorder()),
    "a subclass": lambda array: array.view(np.ma.MaskedArray),
}


@pytest.mark.parametrize("name", range(4))
@pytest.mark.parametrize("other", OTHERS)
def test_other_arrays_are_refused(name: int, other: str) -> None:
    systems = naive.make("dominant", (4, 16))
    systems[name] = OTHERS[other](systems[name])
    out = np.full((4, 16), 7.0)
    assert solve(*systems, out=out) is None
    assert (out == 7.0).all()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (), (1, 2**15)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    assert solve(*[np.ones(shape)] * 4) is None


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.longdouble, np.complex128])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    assert solve(*[np.ones((4, 16), dtype)] * 4) is None


@pytest.mark.parametrize("name", range(4))
@pytest.mark.parametrize("shift", [-63, -1, 0, 1, 63, 64])
def test_results_that_overlap_an_input_are_refused(name: int, shift: int) -> None:
    systems = naive.make("dominant", (4, 16))
    expected = solve(*systems)
    memory = np.full(256, 7.0)
    systems[name], inner = memory[96:160].reshape(4, 16), systems[name]
    systems[name][...] = inner
    before = memory.copy()
    out = memory[96 + shift : 160 + shift].reshape(4, 16)
    x = solve(*systems, out=out)
    if shift == 64:
        np.testing.assert_array_equal(x, expected)
    else:
        assert x is None
        np.testing.assert_array_equal(memory, before)


def test_what_fails_is_told_of_overwritten_right_hand_sides() -> None:
    for names, number, word in (((3,), np.nan, "not finite"), ((0, 1, 2), 0.0, "singular")):
        systems = naive.make("dominant", (4, 16))
        for name in names:
            systems[name][2, 3] = number
        before = systems[3].copy()
        assert solve(*systems, out=systems[3]) is None
        np.testing.assert_array_equal(systems[3], before)
        with pytest.raises(SingularSystemError, match=rf"\(2,\) {word}"):
            solve_tridiagonal(*systems, out=systems[3])


def test_one_kernel_for_all_arrays() -> None:
    """Whatever the number of axes, and whatever is read-only."""
    solve(*naive.make("random", (4, 16)))
    before = len(solve_small.signatures)
    systems = naive.make("random", (3, 5, 2, 2))
    for array in systems:
        solve(*systems)
        array.flags.writeable = False
    assert len(solve_small.signatures) == before


@pytest.mark.parametrize("shape", [(9,), (4, 16), (3, 5, 2)])
def test_a_status_of_what_is_solved(shape: tuple[int, ...]) -> None:
    systems = naive.make("random", shape)
    x, info = solve_tridiagonal(*systems, return_info=True)
    np.testing.assert_array_equal(x, solve(*systems))
    assert info.status.shape == shape[:-1]
    assert info.status.dtype == np.int8
    assert not info.status.any()
    assert info.backward_error is None
