"""How arrays are described to kernels, and when they have to be copied."""

import numpy as np
import pytest

from rlcpu.scan.layout import REPEATED, layout_of


def described(array, like, axis):
    """Whether the array was copied; its numbers are where the address and the strides say."""
    layout = layout_of(like, axis)
    place = layout.place(array)
    shape = layout.outer, layout.num_steps, layout.inner
    strides = [8 * stride for stride in (place.outer, place.time, place.lane)]
    memory = Memory(place.address, shape, strides)
    whole = np.broadcast_to(array, like.shape).transpose(layout.order).reshape(shape)
    np.testing.assert_array_equal(np.asarray(memory), whole)
    return not np.may_share_memory(place.array, array)


class Memory:
    """Numbers at an address, for NumPy."""

    def __init__(self, address, shape, strides):
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "typestr": "<f8",
            "shape": tuple(shape),
            "strides": tuple(strides),
        }


WHOLE = np.arange(5 * 6 * 7.0).reshape(5, 6, 7)
FROZEN = WHOLE.copy()
FROZEN.flags.writeable = False


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "array", [WHOLE, WHOLE.T, WHOLE.transpose(1, 0, 2), WHOLE[1:], FROZEN, WHOLE[:, :1], WHOLE[:1]]
)
def test_contiguous_arrays_in_any_order_are_not_copied(array, axis):
    assert not described(array, array, axis)


@pytest.mark.parametrize(
    ("array", "axis", "copied"),
    [
        (WHOLE[:, 1:4], 1, False),  # some steps
        (WHOLE[::2], 0, False),  # every other step
        (WHOLE[..., 1:4], 2, False),  # a part of each row
        (WHOLE[..., 1:4], 1, False),  # some lanes
        (WHOLE[::2], 1, False),
        (WHOLE[..., ::2], 2, True),
        (WHOLE[..., ::2], 1, True),
        (WHOLE[::-1], 0, False),
        (WHOLE[:, ::-1], 1, False),
        (WHOLE[..., ::-1], 2, True),
        (WHOLE[:, 1:4], 2, True),  # outer axes that are not evenly spaced
    ],
)
def test_parts_of_arrays(array, axis, copied):
    assert described(array, array, axis) == copied


@pytest.mark.parametrize(
    ("shape", "axis", "size"),
    [
        ((7,), 1, 7),  # the same at every step
        ((6, 7), 1, 42),  # the same for every outer index
        ((6, 7), 2, 210),  # copied: rows that no stride leads to
        ((5, 1, 7), 1, 35),
        ((6, 1), 1, 6 * 7),  # the same for all lanes
        ((5, 6, 1), 1, 30 * 7),
        ((5, 1, 1), 2, 210),
        ((1, 1, 1), 2, 7),
        ((7,), 2, 7),
        ((1, 1, 1), 0, 6 * 7),
        ((), 1, REPEATED // 8),
    ],
)
def test_repeated_numbers_are_spread_over_what_kernels_read_at_most(shape, axis, size):
    array = np.random.default_rng(0).normal(size=shape)
    described(array, WHOLE, axis)
    assert reach(layout_of(WHOLE, axis).place(array).array) == size


def reach(array):
    """From the first number to the last one in memory, both counted."""
    steps = zip(array.shape, array.strides, strict=True)
    return sum((n - 1) * stride for n, stride in steps) // 8 + 1


def test_long_runs_of_one_number_are_a_page():
    rows = np.zeros((3, 2000))
    for axis in range(2):
        placed = layout_of(rows, axis).place(np.ones((3, 1)))
        assert reach(placed.array) == 2 * REPEATED // 8 + 1
        assert 0 in (placed.time, placed.lane)


def test_zero_keeps_its_sign():
    assert np.signbit(layout_of(WHOLE, 1).place(np.asarray(-0.0)).array).all()


def test_new_arrays_lie_in_memory_as_the_inputs_do():
    for array in (WHOLE, WHOLE.T, WHOLE.transpose(1, 2, 0)):
        empty = layout_of(array, 1).empty(np.float64)
        assert (empty.shape, empty.strides) == (array.shape, array.strides)


@pytest.mark.parametrize("ends", [WHOLE[0], WHOLE[0, ::-1], WHOLE[0, :, ::-1], WHOLE[0, 0]])
@pytest.mark.parametrize("like", [WHOLE, WHOLE.transpose(1, 0, 2).copy().transpose(1, 0, 2)])
def test_values_without_time_lie_side_by_side(ends, like):
    layout = layout_of(like, 0)
    found = layout.place_ends(ends)
    assert (found.outer, found.time, found.lane) == (layout.inner, 0, 1)
    whole = np.broadcast_to(ends, like.shape[1:])
    np.testing.assert_array_equal(found.array.reshape(-1), whole.reshape(-1))
