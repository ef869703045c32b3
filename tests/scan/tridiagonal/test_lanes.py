"""Blocks of lanes: layouts, repeated arrays, lengths, chunks, neighbours, against plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.kernels.compiler.compile import inline
from rlcpu.scan.tridiagonal import lanes, plans
from rlcpu.scan.tridiagonal.blocks import LaneFunction, LaneInput
from rlcpu.scan.tridiagonal.chunks import layout_of_systems, repeats_of
from rlcpu.scan.tridiagonal.panels import count_chunks
from rlcpu.scan.tridiagonal.plans import Cut, LaneArguments
from tests.scan.tridiagonal import naive


@inline(exact=True)
def sums(block, start):
    """Running sums of products, from a number on; the end besides."""
    total = lanes.extra_input(block, 0) + start
    for k in range(block.rows):
        lanes.prefetch_row(block, 2, k, k + 3)
        total = total + lanes.read_input(block, 0, k) * lanes.read_input(block, 1, k)
        lanes.write_output(total, block, k)
    lanes.set_extra_output(total, block, 0)
    lanes.set_extra_output(-total, block, 1)
    return total * 0.0


SUMS = LaneFunction(sums, planes=3, output=2, num_extra_inputs=1, num_extra_outputs=2)


def run(x: Any, y: Any, out: Any, starts: Any, reach: int = 0, **options: Any) -> Any:
    """Sums of arrays (batch..., n), and what lanes report (batch..., chunks, 2)."""
    call = LaneArguments(**options)
    layout = layout_of_systems(out, in_rows=call.lengths is not None)
    target = out if layout.target(out) else layout.empty(out.dtype)
    repeats = repeats_of(layout, out.dtype)
    chunks = call.cut.chunks if call.cut else 1
    inputs = [
        LaneInput(layout.arranged(x, repeats), 0, reach),
        LaneInput(layout.arranged(y, repeats), 1),
    ]
    axes = [i for i in layout.order if i != out.ndim - 1]
    numbers = np.repeat(starts.transpose(axes).reshape(-1, 1), chunks, 1)
    reported = np.full((starts.size, chunks, 2), 7.0)
    call = call._replace(extra_inputs=numbers, extra_outputs=reported)
    assert plans.run(SUMS, inputs, layout.flat(target), call)
    if target is not out:
        out[...] = target
    return np.stack(
        [np.stack([layout.without_steps(n) for n in c.T], -1) for c in reported.swapaxes(0, 1)],
        -2,
    )


def thinned(data: Any, array: Any) -> Any:
    """Some axes repeated from one number."""
    keep = tuple(
        slice(0, 1) if data.draw(st.integers(0, 3)) == 0 else slice(None) for _ in array.shape
    )
    return np.broadcast_to(naive.strided(data, array[keep].copy()), array.shape)


@settings(max_examples=100)
@given(st.data())
def test_any_arrays(data: Any) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    batch = tuple(data.draw(st.lists(st.integers(1, 20), max_size=3)))
    n, reach = data.draw(st.integers(1, 30)), data.draw(st.sampled_from([-1, 0, 1]))
    rng = np.random.default_rng(n)
    x, y = (thinned(data, rng.integers(-9, 9, (*batch, n)).astype(dtype)) for _ in range(2))
    out = naive.strided(data, np.zeros((*batch, n), dtype))
    lengths = rng.integers(0, n + 1, batch).reshape(-1) if data.draw(st.booleans()) else None
    starts, periodic = np.asarray(rng.integers(-9, 9, batch), float), data.draw(st.booleans())
    ends = run(x, y, out, starts, reach, lengths=lengths, periodic=periodic)
    lasts = np.full(batch, n) if lengths is None else lengths.reshape(batch)
    inside = np.arange(n) < lasts[..., None]
    factors, others = np.where(inside, x, 0), np.where(inside, y, 1)
    if reach < 0 and not periodic:
        factors[..., 0] = 0
    if reach > 0 and not periodic:
        factors[np.arange(n) == lasts[..., None] - 1] = 0
    expected = starts[..., None] + np.cumsum(factors * others, -1)
    np.testing.assert_array_equal(np.where(inside, out, 0), np.where(inside, expected, 0))
    np.testing.assert_array_equal(ends[..., 0, 0], expected[..., -1])
    np.testing.assert_array_equal(ends[..., 0, 1], -expected[..., -1])


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("layout", ["rows", "columns", "lengths"])
def test_chunks(layout: str, periodic: bool) -> None:
    """Each chunk from zero on, wherever systems are cut."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (2, 37, 29)).astype(float)
    x, y = (np.asarray(a, order="F" if layout == "columns" else "C") for a in (x, y))
    out, cut = np.full_like(x, 7.0), Cut(5, 6)
    lengths = rng.integers(0, 30, 37) if layout == "lengths" else None
    options: dict[str, Any] = {"cut": cut, "periodic": periodic, "lengths": lengths}
    ends = run(x, y, out, np.zeros(37), -1, **options)
    for i in range(37):
        length = 29 if lengths is None else lengths[i]
        parts = max(count_chunks(length, cut.rows), 1)
        for j in range(parts):
            begin, end = length * j // parts, length * (j + 1) // parts
            row = x[i, begin:end].copy()
            if j == 0 and not periodic:
                row[:1] = 0
            expected = np.cumsum(row * y[i, begin:end])
            np.testing.assert_array_equal(out[i, begin:end], expected)
            assert ends[i, j, 0] == (expected[-1] if length else 0)
        assert (out[i, length:] == 7.0).all()


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("shape", [(1003, 600), (600, 1003), (600, 1024)])
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
    for threads in (1, None):
        run(*views, np.zeros(size // shape[axis]), num_threads=threads)
        np.testing.assert_array_equal(out, np.cumsum(x * y, axis))
        out[...] = 0
    assert (memory[:offset] == 7.0).all()
    assert (memory[offset + size :] == 7.0).all()


def test_lanes_that_fail() -> None:
    x = np.ones((30, 4, 1))
    x[17, 2] = np.nan
    call = LaneArguments(extra_inputs=np.zeros((30, 1)), extra_outputs=np.zeros((30, 2)))
    assert not plans.run(SUMS, [LaneInput(x), LaneInput(x)], np.empty_like(x), call)
