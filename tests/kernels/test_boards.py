"""Boards: kernels and plain Python agree on every operation, and both are sets of 128 cells."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.envs import Board
from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.boards import CELLS, board_of_words

CORNER = Board((1 << 127) | 1)
BITS = st.integers(0, 2**CELLS - 1) | st.sampled_from([0, 1, 2**63, 2**64, 2**127, 2**128 - 1])


@kernel
def apply_all(words, cell, other, boards, numbers):
    a, b = board_of_words(words[0], words[1]), board_of_words(other[0], other[1])
    found = (
        a.set(cell), a.clear(cell), a << cell, a >> cell, a & b, a | b, a ^ b, ~a, Board(a),
        Board(cell), Board(), a | CORNER,
    )  # fmt: skip
    for row, board in enumerate(found):
        boards[row, 0], boards[row, 1] = board.low, board.high
    numbers[0], numbers[1], numbers[2] = a.test(cell), a.count(), bool(a)
    numbers[3], numbers[4], numbers[5], numbers[6] = a == b, a != b, 1 if a & b else 0, not a
    numbers[7], numbers[8], numbers[9] = a.lowest(), a.nth(cell), a.nth(cell - 64)


def words_of(board: int) -> Any:
    return np.array([board & (2**64 - 1), board >> 64], np.uint64)


@given(BITS, BITS, st.integers(0, CELLS - 1))
def test_kernels_and_python_agree(bits: int, others: int, cell: int) -> None:
    a, b = Board(bits), Board(others)
    boards, numbers = np.zeros((12, 2), np.uint64), np.zeros(10, np.int64)
    apply_all(words_of(a), cell, words_of(b), boards, numbers)
    expected = [
        a.set(cell), a.clear(cell), a << cell, a >> cell, a & b, a | b, a ^ b, ~a, a,
        Board(cell), Board(), a | CORNER,
    ]  # fmt: skip
    assert all(type(board) is Board for board in expected)
    assert [(int(low), int(high)) for low, high in boards] == [
        (board & (2**64 - 1), board >> 64) for board in expected
    ]
    assert numbers.tolist() == [
        a.test(cell),
        a.count(),
        bool(a),
        a == b,
        a != b,
        bool(a & b),
        not a,
        a.lowest(),
        a.nth(cell),
        a.nth(cell - 64),
    ]
    cells = [c for c in range(CELLS) if a.test(c)]
    assert a.lowest() == (cells or [-1])[0]
    assert [a.nth(k) for k in range(-1, CELLS)] == [-1, *cells, *[-1] * (CELLS - len(cells))]


@given(st.sets(st.integers(0, CELLS - 1)), st.integers(0, CELLS - 1))
def test_a_board_is_a_set(cells: set[int], cell: int) -> None:
    board = Board(sum(1 << k for k in cells))
    assert board.count() == len(cells)
    assert [board.set(cell).test(k) for k in range(CELLS)] == [
        k in cells | {cell} for k in range(CELLS)
    ]
    assert [board.clear(cell).test(k) for k in range(CELLS)] == [
        k in cells - {cell} for k in range(CELLS)
    ]
    shifted = {k + cell for k in cells if k + cell < CELLS}
    assert board << cell == Board(sum(1 << k for k in shifted))


@pytest.mark.parametrize("cell", [-1, 128, 2**40, -(2**63)])
def test_cells_beyond_are_refused_in_python_and_in_no_board_of_a_kernel(cell: int) -> None:
    full, none = Board(2**128 - 1), Board()
    calls: list[Callable[[int], Any]] = [none.set, none.clear, none.test]
    for call in calls:
        with pytest.raises(ValueError, match=f"cell={cell}: a Board has the cells 0 to 127"):
            call(cell)
    boards, numbers = np.zeros((12, 2), np.uint64), np.zeros(10, np.int64)
    apply_all(words_of(none), cell, words_of(full), boards, numbers)
    assert not boards[:4].any()
    assert not numbers[0]


@pytest.mark.parametrize(
    ("bits", "error", "text"),
    [
        (-1, ValueError, "bits=-1: expected 0 to 2"),
        (2**128, ValueError, "expected 0 to 2"),
        (1.0, TypeError, "bits=1.0: expected a whole number"),
        ("1", TypeError, "bits='1'"),
    ],
)
def test_what_is_no_board(bits: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Board(bits)
    with pytest.raises(ValueError, match="bits=-1"):
        operator.or_(Board(), -1)


def test_integers_of_numpy_are_those_of_python() -> None:
    cell = np.int64(100)
    assert Board().set(cell) == 1 << 100
    assert Board(1) << cell == Board(1 << 100)
    assert Board(1 << 100) >> cell == Board(1)
    assert Board(np.uint64(2**63)) | np.int64(1) == Board(2**63 + 1)
