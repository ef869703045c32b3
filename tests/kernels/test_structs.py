"""Structs by address: what Python packs is what kernels read, field by field, and the reverse."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from rlcpu.kernels.compiler.compile import c_function, kernel
from rlcpu.kernels.compiler.functions import fingerprint
from rlcpu.kernels.machine.memory import address, call_at
from rlcpu.kernels.machine.structs import (
    Array,
    Flag,
    Nested,
    Real,
    Reference,
    References,
    Struct,
    Whole,
    Wholes,
)

PAIR = np.dtype([("a", np.int32), ("b", np.float64)])


class Inner(Struct):
    count = Whole()
    weights = Array(np.float32, "count")


class Strided(Struct):
    start = Whole()
    stride = Whole()
    scale = Real()


class Outer(Struct):
    rows = Whole()
    first = Nested(Strided)
    sizes = Wholes(3)
    factor = Real()
    is_on = Flag()
    values = Array(np.float64, "rows", 2)
    pairs = Array(PAIR, 3)
    words = Array(np.int32)  # a pointer
    inner = Reference(Inner)


inner_at, outer_at = Inner.at, Outer.at


def make_inner() -> Inner:
    return Inner(count=3, weights=np.array([1, 2, 3], np.float32))


def make_outer(**changes: Any) -> Outer:
    fields = {
        "rows": 4,
        "first": Strided(start=5, stride=-6, scale=0.5),
        "sizes": (10, 11, -12),
        "factor": -0.75,
        "is_on": True,
        "values": np.arange(8.0).reshape(4, 2),
        "pairs": np.array([(1, 2.5), (3, 4.5), (5, 6.5)], PAIR),
        "words": np.array([7, 8], np.int32),
        "inner": make_inner(),
    }
    return Outer(**(fields | changes))


@kernel
def read(place, out):
    outer = outer_at(place)
    out[0] = outer.rows
    out[1] = outer.factor
    out[2] = outer.is_on
    out[3] = outer.values.sum()
    out[4] = outer.values[3, 1]
    out[5] = outer.values.shape[0] * 10 + outer.values.shape[1]
    out[6] = outer.pairs[2].a + outer.pairs[1].b
    out[7] = outer.words[1]
    out[8] = outer.inner.count
    out[9] = outer.inner.weights[2]
    out[10] = outer.first.start + outer.first.stride * outer.first.scale
    out[11] = outer.sizes[0] + 100 * outer.sizes[2]
    out[12] = outer.address == place and outer.inner.address != place


def expected(outer: Outer) -> list[float]:
    values, pairs = outer.values, outer.pairs
    return [
        *(outer.rows, outer.factor, outer.is_on, values.sum(), values[3, 1]),
        *(10 * values.shape[0] + values.shape[1], pairs["a"][2] + pairs["b"][1]),
        *(outer.words[1], outer.inner.count, outer.inner.weights[2]),
        outer.first.start + outer.first.stride * outer.first.scale,
        outer.sizes[0] + 100 * outer.sizes[2],
        True,
    ]


def test_kernels_read_what_python_packed() -> None:
    out = np.zeros(13)
    outer = make_outer()
    read(outer.address, out)
    np.testing.assert_array_equal(out, expected(outer))
    assert expected(outer) == [4, -0.75, 1, 28, 7, 42, 9.5, 8, 3, 3, 2, -1190, 1]
    outer.factor, outer.is_on, outer.values = 1e300, False, np.ones((4, 2))
    outer.inner = Inner(count=3, weights=np.full(3, 9, np.float32))
    outer.first, outer.sizes = Strided(start=1, stride=2, scale=-3.5), (1, 2, 3)
    read(outer.address, out)
    np.testing.assert_array_equal(out, expected(outer))
    assert (outer.factor, outer.is_on, outer.inner.weights[2]) == (1e300, False, 9)


def test_replace_copies() -> None:
    outer = make_outer()
    other = outer.replace(factor=2.0, inner=outer.inner.address)
    assert (other.factor, outer.factor, other.values is outer.values) == (2.0, -0.75, True)
    out = np.zeros(13)
    read(other.address, out)
    np.testing.assert_array_equal(out, [4, 2, *expected(outer)[2:]])


def test_a_part_may_be_set_by_its_words() -> None:
    class Places(Struct):
        source = Nested(Strided)
        target = Nested(Strided)

    places, half = Places(source=(1, 2, 0), target=(3, 4, 0)), np.float64(0.5).view(np.int64)
    places.target = 5, 6, int(half)
    places_at = Places.at

    @kernel
    def total(place):
        places = places_at(place)
        return places.source.start + 10 * places.target.stride + places.target.scale

    assert total(places.address) == 61.5


class Packed(Struct):
    """What a kernel packs: `Outer` without the struct inside of it."""

    rows = Whole()
    sizes = Wholes(3)
    factor = Real()
    is_on = Flag()
    values = Array(np.float64, "rows", 2)
    pairs = Array(PAIR, 3)
    words = Array(np.int32)  # a pointer
    inner = Reference(Inner)


def run_double(outer: Any) -> None:
    for i in range(outer.rows):
        if outer.is_on:
            outer.values[i, 0] = outer.values[i, 0] * outer.factor + outer.inner.weights[i % 3]


@kernel
def pack_and_call(function, values, pairs, words, inner, times):
    rows = values.shape[0]
    for k in range(times):
        outer = Packed(
            rows=rows,
            sizes=(k, k, k),
            factor=k + 1,
            is_on=k != 1,
            values=values,
            pairs=pairs,
            words=address(words),
            inner=inner,
        )
        call_at(function, (outer,))
    sizes = 3, 4, np.int32(5)
    again = Packed(rows, sizes, 1.0, True, values, pairs, address(words), inner_at(inner))
    values[0, 1] = again.rows + again.inner.weights[1] + 10 * again.sizes[2]


def test_a_kernel_packs_anew_in_each_turn() -> None:
    # What is packed on the stack is changed: no read of it may be kept from the turn before.
    values, inner = np.arange(8.0).reshape(4, 2), make_inner()
    wanted = values.copy()
    for k in (0, 2):
        wanted[:, 0] = wanted[:, 0] * (k + 1) + [1, 2, 3, 1]
    wanted[0, 1] = 56
    function = c_function(run_double, (Packed.view,))
    words, pairs = np.zeros(2, np.int32), np.zeros(3, PAIR)
    pack_and_call(function, values, pairs, words, inner.address, 3)
    np.testing.assert_array_equal(values, wanted)


def test_a_loop_that_reads_fields_becomes_vectors() -> None:
    @njit(error_model="numpy")  # not kept on disk, where numba shows no code
    def scale(place):
        outer = outer_at(place)
        for i in range(outer.rows):
            outer.values[i, 0] = outer.values[i, 0] * outer.factor
            outer.values[i, 1] = outer.values[i, 1] * outer.factor

    outer = make_outer()
    scale(outer.address)
    np.testing.assert_array_equal(outer.values, -0.75 * np.arange(8.0).reshape(4, 2))
    (code,) = scale.inspect_asm().values()
    assert re.search(r"vmulpd.*[yz]mm|fmul.*2d|mulpd", code)


def test_dtypes_are_set_later() -> None:
    class Row(Struct):
        size = Whole()
        numbers = Array("real", "size")

    single, double = Row.of(real=np.float32), Row.of(real=np.float64)
    assert single is Row.of(real=np.float32)
    assert single.declaration != double.declaration
    single_at = single.at

    @kernel
    def total(place):
        return single_at(place).numbers.sum()

    assert total(single(size=2, numbers=np.array([1, 2], np.float32)).address) == 3
    with pytest.raises(TypeError, match=r"Row.numbers: float64 \(2,\), expected contiguous float3"):
        single(size=2, numbers=np.ones(2))


def test_dtypes_of_parts_and_references() -> None:
    class Row(Struct):
        size = Whole()
        numbers = Array("real", "size")

    class Rows(Struct):
        inner = Reference(Inner)
        one = Nested(Row)
        two = Reference(Row)

    single = Rows.of(real=np.float32)
    row, single_at = Row.of(real=np.float32), single.at
    assert single.fields["one"].struct is single.fields["two"].struct is row
    assert single.fields["inner"].struct is Inner
    rows = [row(size=2, numbers=np.array(numbers, np.float32)) for numbers in ([1, 2], [3, 4])]

    @kernel
    def total(place):
        rows = single_at(place)
        return rows.one.numbers.sum() + 10 * rows.two.numbers.sum() + rows.inner.count

    packed = single(inner=make_inner(), one=rows[0], two=rows[1])
    assert total(packed.address) == 76
    with pytest.raises(TypeError, match=r"Rows.one: .*, expected Row"):
        single(inner=make_inner(), one=make_inner(), two=rows[1])


class Numbers(Struct):
    numbers = Array("real")
    count = Whole()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_packs_dtypes_that_have_names(dtype: Any) -> None:
    @kernel
    def pack(function, numbers):
        call_at(function, (Numbers(numbers=address(numbers), count=numbers.size),))

    def double(numbers):
        for i in range(numbers.count):
            numbers.numbers[i] *= 2

    array = np.arange(3, dtype=dtype)
    pack(c_function(double, (Numbers.of(real=dtype).view,)), array)
    np.testing.assert_array_equal(array, [0, 2, 4])


def make_reader(**fields: Any) -> Any:
    """A function that reads a struct of a name, with other fields each time."""
    struct = type(Struct)("Changed", (Struct,), fields)
    at = struct.at

    def read_first(place):
        return at(place).first

    return read_first


def test_the_fingerprint_knows_the_declaration() -> None:
    # A kernel of the other order would read the wrong word.
    original = fingerprint(make_reader(first=Whole(), second=Real()))
    assert original == fingerprint(make_reader(first=Whole(), second=Real()))
    for other in (
        {"second": Real(), "first": Whole()},
        {"first": Real(), "second": Real()},
        {"first": Whole(), "second": Array(np.float32)},
        {"first": Whole(), "second": Real(), "third": Flag()},
    ):
        assert fingerprint(make_reader(**other)) != original
    arrays = [
        fingerprint(make_reader(first=Whole(), x=field))
        for field in (
            Array(np.float32, "first"),
            Array(np.float64, "first"),
            Array(np.float32, 3),
            Array(np.float32, 3, "first"),
            Reference(Inner),
            Reference(Outer),
            Nested(Inner),
            Nested(Strided),
            Wholes(2),
            Wholes(3),
        )
    ]
    assert len(set(arrays)) == len(arrays)


def test_what_python_packs_is_checked() -> None:
    with pytest.raises(TypeError, match="Inner: weights missing"):
        Inner(count=3)
    with pytest.raises(TypeError, match="Inner: size unknown"):
        Inner(count=3, weights=np.ones(3, np.float32), size=3)
    for weights in (np.ones(4, np.float32), np.ones(3), np.ones(6, np.float32)[::2]):
        with pytest.raises(TypeError, match=r"Inner.weights: .*expected contiguous float32 \(3,\)"):
            Inner(count=3, weights=weights)
    with pytest.raises(TypeError, match=r"Outer.first: \(1, 2\), expected Strided"):
        make_outer(first=(1, 2))
    with pytest.raises(TypeError, match=r"Outer.sizes: 2 numbers, expected 3"):
        make_outer(sizes=(1, 2))
    with pytest.raises(TypeError, match="integer"):
        Inner(count=1.5, weights=0)
    with pytest.raises(TypeError, match="integer"):
        make_inner().count = 1.5
    with pytest.raises(AttributeError):
        make_inner().length = 3  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"Inner.count: a declaration stays"):
        Inner.count = Real()  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"its size 'number' is no Whole field"):
        type(Struct)("Wrong", (Struct,), {"values": Array(np.float32, "number")})


@pytest.mark.parametrize(
    ("count", "weights", "message"),
    [
        (1.5, np.ones(3, np.float32), r"Inner.count: float64, expected Whole\(\)"),
        (3, np.ones(3), r"Inner.weights: array\(float64.*, expected Array"),
        (3, np.ones(6, np.float32)[::2], r"Inner.weights: array\(float32, 1d, A\)"),
    ],
)
def test_what_a_kernel_packs_is_checked(count: Any, weights: Any, message: str) -> None:
    @kernel
    def pack(count, weights):
        return Inner(count=count, weights=weights).count

    with pytest.raises(TypingError, match=message):
        pack(count, weights)


def test_a_kernel_packs_all_fields() -> None:
    @kernel
    def pack(count):
        return Inner(count=count).count

    with pytest.raises(TypingError, match="Inner: missing or unknown: weights"):
        pack(3)


class RowSet(Struct):
    num_rows = Whole()
    rows = Array("real", "num_rows", 2)


class Table(Struct):
    row_sets = References()
    first = Reference(RowSet)
    sums = Array("real")


def make_table(dtype: Any) -> Any:
    row_sets = [RowSet.of(real=dtype)(rows=np.full((k, 2), k, dtype)) for k in (2, 3)]
    return Table.of(real=dtype)(row_sets=row_sets, first=row_sets[0], sums=np.zeros(1, dtype))


def sum_rows(table: Any) -> None:
    for row in range(table.first.num_rows):
        table.sums[0] += table.first.rows[row, 0]


@kernel
def pack_table(function, row_sets, first, sums):
    call_at(function, (Table(row_sets=row_sets, first=first, sums=sums),))


def test_sizes_that_are_left_out_are_those_of_arrays() -> None:
    rows = RowSet.of(real=np.float32)(rows=np.zeros((5, 2), np.float32))
    assert rows.num_rows == 5
    with pytest.raises(TypeError, match=r"RowSet.rows: float32"):
        RowSet.of(real=np.float32)(num_rows=4, rows=np.zeros((5, 2), np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_that_are_left_open_hold_in_structs_that_are_referred_to(dtype: Any) -> None:
    table = make_table(dtype)
    assert Table.of(real=dtype) is Table.of(real=np.dtype(dtype)) is type(table)
    assert type(table.first) is RowSet.of(real=dtype)
    function = c_function(sum_rows, (type(table).view,))
    sums = np.zeros(1, dtype)  # of the dtype of which the kernel packs a table
    pack_table(function, np.zeros(1, np.int64), table.first.address, sums)
    assert sums[0] == 4
    assert [each.num_rows for each in table.row_sets] == [2, 3]


def test_copies_have_memory_of_their_own() -> None:
    table = make_table(np.float32)
    for other in (copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert type(other) is type(table)
        assert (other.first.num_rows, other.first.rows.sum()) == (2, 8)
        other.first.rows[...] = 0
        assert table.first.rows.sum() == 8
