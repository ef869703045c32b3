"""Rows of one alias scope: values, kinds of arrays, and code without comparisons of addresses."""

import re

import numba
import numpy as np
import pytest
from numba import njit

from rlcpu.kernels.compiler.scopes import ANY, MAX_ROWS, SCOPES
from rlcpu.kernels.machine.memory import address
from rlcpu.kernels.machine.rows import row_access

DTYPES = ["float32", "float64", "int32", "int64", "uint32", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_read_and_written(dtype):
    peek, _ = row_access("state")
    _, poke = row_access("words")

    @njit
    def copy(source, target):
        for i in range(source.shape[0]):
            poke(target, i, peek(source, source.shape[0] - 1 - i))

    @njit
    def copy_behind_pointers(source, target):
        for i in range(source.shape[0]):
            poke(address(target), i, peek(address(source), source.shape[0] - 1 - i))

    source = np.random.default_rng(0).integers(0, 2**31, 37).astype(dtype)
    for compiled in (copy, copy_behind_pointers):
        target = np.zeros(37, dtype)
        compiled(source, target)
        np.testing.assert_array_equal(target, source[::-1])


def test_values_are_converted_to_the_dtype_of_the_row():
    _, poke = row_access("state")

    @njit
    def fill(single, whole):
        poke(single, 1, 1.0 / 3.0)
        poke(whole, 1, np.int64(7))

    single, whole = np.zeros(3, np.float32), np.zeros(3, np.int32)
    fill(single, whole)
    np.testing.assert_array_equal(single, np.float32([0.0, 1.0 / 3.0, 0.0]))
    np.testing.assert_array_equal(whole, [0, 7, 0])


def test_overlapping_rows_of_one_scope_keep_their_order():
    peek, poke = row_access("state")

    @njit
    def shift(row, other):
        for i in range(other.shape[0] - 1):
            poke(row, i + 1, peek(other, i) + 1)

    row = np.zeros(100, np.int64)
    shift(row, row)
    np.testing.assert_array_equal(row, np.arange(100))


def test_each_row_of_observations_has_a_scope_of_its_own():
    assert row_access("observations", 3) is row_access("observations", 3)
    assert row_access("observations", 3) is not row_access("observations", 4)
    assert len(SCOPES) == len(set(SCOPES))
    assert {f"finals{MAX_ROWS - 1}", "observations0"} <= set(SCOPES)


def test_unknown_scopes_are_refused():
    with pytest.raises(ValueError, match=r"^name='speed': expected one of state, words"):
        row_access("speed")


@pytest.mark.parametrize("rows", [np.zeros((2, 2)), np.zeros(4)[::2]])
def test_only_contiguous_rows_are_taken(rows):
    peek, poke = row_access("state")
    for function in (njit(lambda rows: peek(rows, 0)), njit(lambda rows: poke(rows, 0, 1.0))):
        with pytest.raises(numba.TypingError, match="rows have to be one-dimensional contiguous"):
            function(rows)


def compile_sums(names: list[str]) -> str:
    """Optimised LLVM code of a loop from two rows to three."""
    accesses = [row_access(name) for name in names]
    (peek_a, _), (peek_b, _), (_, poke_c), (_, poke_d), (_, poke_e) = accesses

    @njit(error_model="numpy")
    def sums(a, b, c, d, e):
        for i in range(a.shape[0]):
            x, y = peek_a(a, i), peek_b(b, i)
            poke_c(c, i, x + y)
            poke_d(d, i, x - y)
            poke_e(e, i, x * y)

    arrays = np.ones((5, 64), np.float32)
    sums(*arrays)
    np.testing.assert_array_equal(arrays[2:, 0], [2.0, 0.0, 1.0])
    return next(iter(sums.inspect_llvm().values()))


def test_rows_of_different_scopes_are_not_compared():
    # LLVM's name for the comparison of all addresses before a loop of vectors.
    different = compile_sums(["state", "words", "rewards", "terminated", "truncated"])
    same = compile_sums(["state"] * 5)
    assert re.search(r"fadd(?: \w+)* <\d+ x float>", different)
    assert "vector.memcheck" not in different
    assert "vector.memcheck" in same


@pytest.mark.parametrize("name", [name for name in SCOPES if name != "target"])
def test_what_was_written_under_a_name_can_be_read_under_any(name):
    """Under another name LLVM would take the number that was there before."""
    written = re.sub(r"\d+$", "", name)
    row = int(re.sub(r"\D", "", name) or 0)
    (peek, _), (_, poke) = row_access(ANY), row_access(written, row)

    @njit
    def change(array, i, j):
        before = peek(array, i)
        poke(array, j, before + 1.0)
        return peek(array, i) - before

    assert change(np.zeros(3), 1, 1) == 1.0
