"""The rules for arguments that all functions of scan share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.scan.arguments import check_alike, check_out, check_real, is_same, sum_to_shape

OTHERS = [
    7,
    7.0,
    np.float64(7.0),
    [7, 7],
    np.array([7, 7]),
    np.array([7, 7], np.uint8),
    np.array([7.0, 7.0], ">f4"),
]


@pytest.mark.parametrize("other", OTHERS)
def test_one_dtype(other: Any) -> None:
    """Whole numbers, single numbers and swapped bytes become the dtype of the first array."""
    own = np.ones(2, np.float32)
    for named in ({"a": own, "b": other}, {"b": other, "a": own}):
        found = dict(zip(named, check_alike(named), strict=True))
        assert [array.dtype for array in found.values()] == [np.dtype("f4")] * 2
        assert (found["b"] == 7).all()
        assert found["a"] is own
    assert (check_real("b", other, np.dtype(np.float32)) == 7).all()


def test_no_array_of_floats() -> None:
    assert [array.dtype for array in check_alike({"a": [1, 2], "b": 3.0})] == [np.dtype("f8")] * 2
    assert check_real("a", 3).dtype == np.float64


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (np.ones(2), TypeError, r"b: expected float32, got float64 \(a is float32\)$"),
        (np.ones(2, np.float16), TypeError, "b: expected float32, got float16"),
        ([True, False], TypeError, "b: expected float32, got bool"),
        (True, TypeError, "b: expected float32, got bool"),
        (1j, TypeError, "b: expected float32, got complex128"),
        (-1e300, ValueError, r"b=-1e\+300: too large for float32"),
    ],
)
def test_another_dtype(other: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        check_alike({"a": np.ones(2, np.float32), "b": other})


def test_memory_of_the_result() -> None:
    memory = np.zeros(12)
    first, second = memory[::2], memory[1::2]
    assert check_out("out", first, first, [second]) is first  # they take turns: no byte is shared
    own = memory[::2]
    assert is_same(first, own)
    assert not is_same(first, second)
    assert not is_same(first, own.view(np.int64))
    assert check_out("out", first, first, [own], may_be=own) is first
    for inputs, may_be in (([own], None), ([own, memory[::2]], own), ([memory[:6]], memory[:6])):
        with pytest.raises(ValueError, match=r"^out: overlaps another array$"):
            check_out("out", first, first, inputs, may_be=may_be)


@given(st.lists(st.integers(1, 3), max_size=4), st.data())
def test_sum_to_shape(shape: list[int], data: st.DataObject) -> None:
    """It is the gradient of repeating an array."""
    own = tuple(data.draw(st.sampled_from([1, n])) for n in shape)
    own = own[data.draw(st.integers(0, len(own))) :]
    array = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    expected = np.zeros(own)
    places = np.broadcast_to(np.arange(expected.size).reshape(own), shape)
    np.add.at(expected.reshape(-1), places, array)
    found = sum_to_shape(array, own)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected)
