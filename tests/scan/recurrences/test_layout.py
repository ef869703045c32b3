"""How arrays are described to kernels, and when they have to be copied."""

import numpy as np
import pytest

from rlcpu.scan.layout import layout_of


def described(array, like, axis):
    """The array as (outer, num_steps, inner) numbers by the three strides, and if it is a copy."""
    layout = layout_of(like, axis)
    flat = layout.flat(array)
    shape = layout.outer, layout.num_steps, layout.inner
    o, t, i = np.indices(shape)
    numbers = flat.numbers[o * flat.outer + t * flat.time + i * flat.lane]
    whole = np.broadcast_to(array, like.shape).transpose(layout.order).reshape(shape)
    np.testing.assert_array_equal(numbers, whole)
    return not np.may_share_memory(flat.numbers, array)


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
        (WHOLE[::-1], 0, True),
        (WHOLE[:, 1:4], 2, True),  # outer axes that are not evenly spaced
    ],
)
def test_parts_of_arrays(array, axis, copied):
    assert described(array, array, axis) == copied


@pytest.mark.parametrize(
    ("shape", "axis", "copied"),
    [
        ((7,), 1, False),  # the same at every step
        ((6, 7), 1, False),  # the same for every outer index
        ((6, 7), 2, True),
        ((5, 1, 7), 1, False),
        ((5, 6, 1), 1, True),  # the same for all lanes
        ((7,), 2, False),
    ],
)
def test_repeated_numbers(shape, axis, copied):
    assert described(np.random.default_rng(0).normal(size=shape), WHOLE, axis) == copied


def test_one_number_is_not_spread_out():
    flat = layout_of(WHOLE, 1).flat(np.asarray(2.5))
    assert flat[1:] == (0, 0, 0)
    assert (flat.numbers == 2.5).all()
    minus = layout_of(WHOLE, 1).flat(np.asarray(-0.0))
    assert np.signbit(minus.numbers).all()


@pytest.mark.parametrize("array", [FROZEN, FROZEN[:, 1:4], FROZEN.T])
def test_kernels_are_not_compiled_anew_for_read_only_arrays(array):
    assert layout_of(array, 1).flat(array).numbers.flags.writeable


def test_new_arrays_lie_in_memory_as_the_inputs_do():
    for array in (WHOLE, WHOLE.T, WHOLE.transpose(1, 2, 0)):
        empty = layout_of(array, 1).empty(np.float64)
        assert (empty.shape, empty.strides) == (array.shape, array.strides)
