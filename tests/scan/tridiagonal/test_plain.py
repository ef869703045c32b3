"""The short way of ordinary calls: which arrays take it, and that it is no other solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.scan import solve_tridiagonal
from rlcpu.scan.tridiagonal.plain import SPARED, solve_plain
from tests.scan.tridiagonal import naive


def solve(*arrays: Any, out: Any = None) -> Any:
    return solve_plain(*arrays, out, "pivot", None)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(9,), (4, 16), (3, 5, 2), (1, 1, 255), (SPARED // 8, 9)])
def test_it_is_the_general_solution(shape: tuple[int, ...], dtype: str) -> None:
    systems = naive.make("random", shape, np.dtype(dtype).type)
    expected = solve_tridiagonal(*systems, axis=len(shape) - 1)
    np.testing.assert_array_equal(solve(*systems), expected)
    out = np.empty_like(expected)
    assert solve(*systems, out=out) is out
    np.testing.assert_array_equal(out, expected)
    if out.size <= SPARED:
        x = systems[3].copy()
        assert solve(*systems[:3], x, out=x) is x
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


OTHERS = {
    "a number": lambda array: 1.0,
    "a list": lambda array: array.tolist(),
    "another shape": lambda array: array[:1].copy(),
    "another dtype": lambda array: array.astype(np.float32),
    "swapped bytes": lambda array: array.astype(array.dtype.newbyteorder()),
    "steps": lambda array: np.repeat(array, 2, -1)[:, ::2],
    "columns": lambda array: np.asfortranarray(array),
    "a subclass": lambda array: array.view(np.ma.MaskedArray),
    "misaligned": _misaligned,
}


@pytest.mark.parametrize("name", range(4))
@pytest.mark.parametrize("other", OTHERS)
def test_other_arrays_are_refused(name: int, other: str) -> None:
    systems = naive.make("dominant", (4, 16))
    systems[name] = OTHERS[other](systems[name])
    out = np.full((4, 16), 7.0)
    assert solve(*systems, out=out) is None
    assert (out == 7.0).all()


@pytest.mark.parametrize("shape", [(4, 1), (0, 5), (5, 0), (), (1, 2**15), (1, 300)])
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
    if (name, shift) == (3, 0) or shift == 64:
        np.testing.assert_array_equal(x, expected)
    else:
        assert x is None
        np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize("shape", [(9,), (4, 16), (3, 5, 2)])
def test_a_status_of_what_is_solved(shape: tuple[int, ...]) -> None:
    systems = naive.make("random", shape)
    x, info = solve_tridiagonal(*systems, return_info=True)
    np.testing.assert_array_equal(x, solve(*systems))
    assert info.status.shape == shape[:-1]
    assert info.status.dtype == np.int8
    assert not info.status.any()
    assert info.backward_error is None
