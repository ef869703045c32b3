"""Convolutions, pools and what lies between them, against PyTorch's autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu import nn
from tests.nn.test_layers import Weights, compare, functional, normal, torch

COUNT = 21


def as_image(x: Any, height: int, width: int, channels: int) -> Any:
    """Rows (n, height * width * channels) as torch has images: (n, channels, height, width)."""
    return x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)


def as_rows(x: Any) -> Any:
    """Torch's images as rows."""
    return x.permute(0, 2, 3, 1).flatten(1)


def norm_pixels(w: Weights, x: Any) -> Any:
    return w.norm_pixels(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def minatar() -> nn.Graph:
    seen = nn.Planes(4, 10, 9) >> nn.Convolution(16, 3) >> nn.LayerNorm(each_pixel=True)
    return seen >> nn.Relu() >> nn.Dense(20) >> nn.LayerNorm() >> nn.Relu() >> nn.Dense(3)


def through_minatar(w: Weights, input: Any) -> Any:
    x = norm_pixels(w, w.convolution(input.reshape(-1, 4, 10, 9), 3))
    return w.dense(torch.relu(w.norm(w.dense(as_rows(torch.relu(x))))))


def impala() -> nn.Graph:
    """A stack of IMPALA, whose channels do not fill vectors, then another."""
    x: nn.Graph = nn.Image(9, 8, 3)
    for channels in (5, 16):
        x = x >> nn.Convolution(channels, 3, padding=1) >> nn.MaxPool(3, stride=2, padding=1)
        inner = nn.Relu() >> nn.Convolution(channels, 3, padding=1)
        x = x >> nn.Residual(inner >> nn.Relu() >> nn.Convolution(channels, 3, padding=1))
    return x >> nn.Relu() >> nn.Dense(7) >> nn.Tanh() >> nn.Dense(2)


def through_impala(w: Weights, input: Any) -> Any:
    x = as_image(input, 9, 8, 3)
    for _ in range(2):
        x = functional.max_pool2d(w.convolution(x, 3, padding=1), 3, stride=2, padding=1)
        inner = w.convolution(torch.relu(x), 3, padding=1)
        x = x + w.convolution(torch.relu(inner), 3, padding=1)
    return w.dense(torch.tanh(w.dense(as_rows(torch.relu(x)))))


def nature() -> nn.Graph:
    """Strides, and a pixel that two layers read."""
    seen = nn.Input("image") >> nn.Image(20, 20, 4) >> nn.Convolution(32, 8, stride=4) >> nn.Relu()
    seen = seen >> nn.Convolution(24, 2, stride=2) >> nn.Elu()
    return nn.Concatenate(seen, nn.Input("numbers"), seen >> nn.Dense(3)) >> nn.Dense(2)


def through_nature(w: Weights, image: Any, numbers: Any) -> Any:
    x = torch.relu(w.convolution(as_image(image, 20, 20, 4), 8, 4))
    x = as_rows(functional.elu(w.convolution(x, 2, 2)))
    return w.dense(torch.cat([x, numbers, w.dense(x)], dim=1))


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "minatar": (minatar(), through_minatar, {"input": normal(COUNT, 360)}),
    "impala": (impala(), through_impala, {"input": normal(COUNT, 216)}),
    "nature": (nature(), through_nature, {"image": normal(4, 1600), "numbers": normal(4, 5)}),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", CASES)
def test_equals_torch(case: str, dtype: Any) -> None:
    graph, expected, inputs = CASES[case]
    sizes: Any = {name: values.shape[1] for name, values in inputs.items()}
    sizes = sizes if list(inputs) != ["input"] else sizes["input"]
    network = nn.Network(sizes, graph, seed=2)
    rng = np.random.default_rng(1)
    moved = network.parameters + rng.normal(0.0, 0.05, network.parameters.size)
    network.parameters = moved.astype(dtype)
    # Largest numbers that are nearly equal may change places in float32.
    tolerance = 1e-10 if dtype is np.float64 else 1e-4 if case == "minatar" else 1e-5
    compare(network, expected, inputs, tolerance)


@given(
    sizes=st.tuples(
        *(st.integers(1, 9) for _ in range(2)), *(st.integers(1, 18) for _ in range(2))
    ),
    window=st.integers(1, 4),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
    are_planes=st.booleans(),
    count=st.integers(1, 3),
)
@settings(deadline=None, max_examples=60)
def test_any_window(
    sizes: Any, window: int, stride: int, padding: int, are_planes: bool, count: int
) -> None:
    height, width, channels, made = sizes
    layer = nn.Convolution(made, window, stride=stride, padding=padding)
    seen = nn.Image(height, width, channels)
    if are_planes:
        seen = nn.Planes(channels, height, width)
    size = height * width * channels
    if min(height, width) + 2 * padding < window:
        with pytest.raises(ValueError, match=rf"{height} x {width} is too small for it"):
            nn.Network(size, seen >> layer)
        return
    network = nn.Network(size, seen >> layer)
    network.parameters = network.parameters.astype(np.float64)

    def through(w: Weights, input: Any) -> Any:
        x = input.reshape(-1, channels, height, width)
        x = x if are_planes else as_image(input, height, width, channels)
        return as_rows(w.convolution(x, window, stride, padding))

    compare(network, through, {"input": normal(count, size)}, 1e-10)


@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 18)),
    window=st.integers(1, 4),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
)
@settings(deadline=None, max_examples=60)
def test_any_pool(sizes: Any, window: int, stride: int, padding: int) -> None:
    height, width, channels = sizes
    if 2 * padding > window or min(height, width) + 2 * padding < window:
        return
    size = height * width * channels
    graph = nn.Image(*sizes) >> nn.MaxPool(window, stride=stride, padding=padding)
    network = nn.Network(size, graph, parameters=np.zeros(0))
    whole = np.floor(2 * normal(3, size))  # equals, of which the first counts

    def through(w: Weights, input: Any) -> Any:
        x = functional.max_pool2d(as_image(input, *sizes), window, stride, padding)
        return as_rows(x)

    compare(network, through, {"input": whole}, 1e-10)


def test_a_pool_keeps_nan() -> None:
    network = nn.Network(9, nn.Image(3, 3, 1) >> nn.MaxPool(2, stride=1))
    rows = np.arange(9.0).reshape(1, 9)
    rows[0, 4] = np.nan
    assert np.isnan(network.outputs(rows)).all()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: nn.Image(3, 3, 2) >> nn.Dense(2), r"Image\(3, 3, 2\) has 18 numbers: the input"),
        (lambda: nn.Convolution(4, 3), r"Convolution\(4, 3, .*has no image in front of it"),
        (lambda: nn.Image(4, 5, 1) >> nn.Convolution(4, 5), "an image of 4 x 5 is too small"),
        (lambda: nn.Dense(20) >> nn.Image(4, 5, 1), "expected behind an input, once"),
        (lambda: nn.LayerNorm(each_pixel=True), "has no image in front of it"),
        (lambda: nn.Image(4, 5, 1) >> nn.Residual(nn.Convolution(1, 1) >> nn.Dense(20)), "adds im"),
        (lambda: nn.Convolution(0, 3), "channels=0"),
        (lambda: nn.MaxPool(2, stride=1, padding=2), "padding=2: expected half of the window"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        nn.Network(20, make())
