"""Blocks of lanes: any strides, lengths, chunks, neighbours, against plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.scan import blocks
from rlcpu.scan.blocks import Lanes
from rlcpu.scan.plans import Cut, Input, batch_order, inlined, make_plan, parts_of


@inlined
def sums(block, start):
    """Running sums of products, from `start` on; the end besides."""
    total = blocks.given(block, 0) + start
    for k in range(block.rows):
        blocks.prefetch_row(block, 2, k, k + 3)
        total = total + blocks.read(block, 0, k) * blocks.read(block, 1, k)
        blocks.write(total, block, k)
    blocks.report(total, block, 0)
    blocks.report(-total, block, 1)
    return total * 0.0


SUMS = Lanes(sums, planes=3, output=2, reads=1, writes=2)


def run(x: Any, y: Any, out: Any, numbers: Any, **options: Any) -> tuple[bool, Any]:
    """The driver's answer, and what comes out besides (batch..., chunks, 2)."""
    reach = options.pop("reach", 0)
    plan = make_plan([Input(x, 0, reach), Input(y, 1)], out, **options)
    chunks = options["cut"].chunks if options.get("cut") else 1
    order = batch_order(out)
    found = np.full((numbers.size * chunks, 2), 7.0)
    given_numbers = np.repeat(numbers.transpose(order).reshape(-1, 1), chunks, 0)
    well = blocks.run(SUMS, plan, x.dtype, 0.0, 1, None, given_numbers, found)
    shape = [numbers.shape[i] for i in order]
    return well, found.reshape(*shape, chunks, 2).transpose(*np.argsort(order), -2, -1)


def strided(data: Any, array: Any) -> Any:
    """The same numbers with other strides: padded, negative, or in another order of axes."""
    order = data.draw(st.permutations(range(array.ndim)))
    steps = [data.draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in order]
    moved = array.transpose(order)
    wide = np.zeros([s * abs(p) for s, p in zip(moved.shape, steps, strict=True)], array.dtype)
    view = wide[(*(slice(None, None, p) for p in steps), ...)]
    view[...] = moved
    return view.transpose(np.argsort(order))


def thinned(data: Any, array: Any) -> Any:
    """Some axes repeated from one number."""
    keep = tuple(
        slice(0, 1) if data.draw(st.integers(0, 3)) == 0 else slice(None) for _ in array.shape
    )
    return np.broadcast_to(strided(data, array[keep]), array.shape)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_strides(data: Any) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    batch = tuple(data.draw(st.lists(st.integers(1, 20), max_size=3)))
    n, reach = data.draw(st.integers(1, 30)), data.draw(st.sampled_from([-1, 0, 1]))
    rng = np.random.default_rng(n)
    x, y = (thinned(data, rng.integers(-9, 9, (*batch, n)).astype(dtype)) for _ in range(2))
    out = strided(data, np.zeros((*batch, n), dtype))
    lengths = None
    if data.draw(st.booleans()):
        lengths = strided(data, np.asarray(rng.integers(0, n + 1, batch)))
    numbers, periodic = np.asarray(rng.integers(-9, 9, batch), float), data.draw(st.booleans())
    well, found = run(x, y, out, numbers, reach=reach, lengths=lengths, periodic=periodic)
    assert well
    lasts = np.full(batch, n) if lengths is None else lengths
    inside = np.arange(n) < lasts[..., None]
    own, other = np.where(inside, x, 0), np.where(inside, y, 1)
    if reach < 0 and not periodic:
        own[..., 0] = 0
    if reach > 0 and not periodic:
        own[np.arange(n) == lasts[..., None] - 1] = 0
    expected = numbers[..., None] + np.cumsum(own * other, -1)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(found[..., 0, 0], expected[..., -1])
    np.testing.assert_array_equal(found[..., 0, 1], -expected[..., -1])


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("ragged", [False, True])
def test_chunks(axis: int, periodic: bool, ragged: bool) -> None:
    """Each chunk from zero on, wherever systems are cut."""
    rng = np.random.default_rng(0)
    shape, cut = (37, 29), Cut(5, 6)
    x, y = (
        np.moveaxis(rng.integers(-9, 9, shape)[..., ::-1].astype(float), -1, axis) for _ in "xy"
    )
    x, y = (np.moveaxis(np.ascontiguousarray(array), axis, -1) for array in (x, y))
    out = np.full_like(x, 7.0)
    lengths = rng.integers(0, 30, 37) if ragged else None
    found = run(x, y, out, np.zeros(37), cut=cut, periodic=periodic, lengths=lengths, reach=-1)[1]
    for i in range(37):
        length = 29 if lengths is None else lengths[i]
        parts = max(parts_of(length, cut.rows), 1)
        for j in range(parts):
            begin, end = length * j // parts, length * (j + 1) // parts
            row = x[i, begin:end].copy()
            if j == 0 and not periodic:
                row[:1] = 0
            sums = np.cumsum(row * y[i, begin:end])
            np.testing.assert_array_equal(out[i, begin:end], sums)
            assert found[i, j, 0] == (sums[-1] if length else 0)
        assert (out[i, length:] == 7.0).all()


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("shape", [(1003, 600), (600, 1003)])
@pytest.mark.parametrize("axis", [0, 1])
def test_large_results_are_written_past_the_caches(
    axis: int, shape: tuple[int, int], offset: int
) -> None:
    """Wherever lines of memory begin; by any number of threads."""
    rng, size = np.random.default_rng(1), shape[0] * shape[1]
    memory = np.full(size + 8, 7.0)
    out = memory[offset : offset + size].reshape(shape)
    x, y = rng.integers(-9, 9, (2, *shape)).astype(float)
    views = [np.moveaxis(array, axis, -1) for array in (x, y, out)]
    plan = make_plan([Input(views[0]), Input(views[1])], views[2])
    count = size // shape[axis]
    for threads in (1, None):
        numbers, found = np.zeros((count, 1)), np.zeros((count, 2))
        assert blocks.run(SUMS, plan, x.dtype, 0.0, size, threads, numbers, found)
        np.testing.assert_array_equal(out, np.cumsum(x * y, axis))
        out[...] = 0
    assert (memory[:offset] == 7.0).all()
    assert (memory[offset + size :] == 7.0).all()


def test_lanes_that_fail() -> None:
    x = np.ones((30, 4))
    x[17, 2] = np.nan
    plan = make_plan([Input(x), Input(x)], np.empty_like(x))
    numbers, found = np.zeros((30, 1)), np.zeros((30, 2))
    assert not blocks.run(SUMS, plan, x.dtype, 0.0, x.size, None, numbers, found)
