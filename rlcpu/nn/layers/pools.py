"""Pooling of images between layers; see `rlcpu.nn.layers.images`.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.passes.Work`). Slopes are
derivatives of the loss with respect to a layer's inputs or outputs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.compile import inline, outline
from rlcpu.nn.layers.images import Window, part
from rlcpu.nn.layers.kind import (
    Kind,
    Sizes,
    input_slopes,
    inputs_of,
    output_slopes,
    outputs_of,
    padded,
    saved_of,
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_to, fill


@inline
def windows_of(step, size_out):
    """Return height and width of the image that a pool makes."""
    height = (step.height + 2 * step.padding - step.window) // step.stride + 1
    return height, size_out // (height * step.channels)


@inline
def bounds_of(step, number, size):
    """Return the first pixel of a window inside of the image, and the one behind its last."""
    begin = number * step.stride - step.padding
    return max(begin, 0), min(begin + step.window, size)


@functools.cache
def make_pool(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a pool, see `Kind`."""
    zero, lowest = dtype(0), dtype(-np.inf)

    @inline
    def take_larger(out, pixel):
        """Set each channel of `out` to the larger of it and the pixel's; NaN stays."""
        for k in range(out.size):
            out[k] = pixel[k] if pixel[k] > out[k] or pixel[k] != pixel[k] else out[k]

    @outline
    def pool(step, inputs, outputs):
        """Write the largest of each window, channel by channel, of one image."""
        height, width = windows_of(step, step.size_out)
        for row in range(height):
            first, last = bounds_of(step, row, step.height)
            for column in range(width):
                left, right = bounds_of(step, column, step.width)
                out = part(outputs, (row * width + column) * step.channels, step.channels)
                fill(out, lowest)
                for y in range(first, last):
                    for x in range(left, right):
                        place = (y * step.width + x) * step.channels
                        take_larger(out, part(inputs, place, step.channels))

    @outline
    def forward(step, work):
        """Pool the image of each sample."""
        for i in range(work.samples):
            inputs = part(inputs_of(step, work), i * step.width_in, step.width_in)
            outputs = part(outputs_of(step, work), i * step.width_out, step.width_out)
            fill(outputs[step.size_out :], zero)
            pool(step, inputs, outputs)

    return forward


@functools.cache
def make_pool_back(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)` of a pool, see `Kind`.

    The slope of an output goes to the largest number of its window, the first of equals.
    """
    zero = dtype(0)

    @inline
    def move_slopes(input_slopes, inputs, largest, slopes):
        """Move slopes of a window's outputs to those of one pixel, where it is the largest.

        Args:
            input_slopes: (channels,) of the pixel, added to.
            inputs: (channels,) of the pixel.
            largest: (channels,) the outputs of the window.
            slopes: (channels,) of the outputs; 0 afterwards where they were moved.
        """
        for k in range(slopes.size):
            moved = slopes[k] if inputs[k] == largest[k] else zero
            input_slopes[k] += moved
            slopes[k] -= moved

    @outline
    def pool_back(step, inputs, outputs, output_slopes, input_slopes, remaining):
        """Add the slopes of one image to `input_slopes`.

        `remaining` (channels,) is scratch: slopes of a window that no pixel has got yet.
        """
        height, width = windows_of(step, step.size_out)
        channels = step.channels
        for row in range(height):
            first, last = bounds_of(step, row, step.height)
            for column in range(width):
                left, right = bounds_of(step, column, step.width)
                window = (row * width + column) * channels
                for k in range(channels):
                    remaining[k] = output_slopes[window + k]
                for y in range(first, last):
                    for x in range(left, right):
                        pixel = (y * step.width + x) * channels
                        largest = part(outputs, window, channels)
                        numbers = part(inputs, pixel, channels)
                        move_slopes(
                            part(input_slopes, pixel, channels), numbers, largest, remaining
                        )

    @outline
    def backward(step, work):
        """Compute the slopes of each image in scratch, and write or add them to the inputs'."""
        if not wants_inputs(step, work):
            return
        saved = saved_of(step, work)
        image, scratch = part(saved, 0, step.width_in), part(saved, step.width_in, step.channels)
        for i in range(work.samples):
            inputs = part(inputs_of(step, work), i * step.width_in, step.width_in)
            outputs = part(outputs_of(step, work), i * step.width_out, step.width_out)
            slopes = part(output_slopes(step, work), i * step.width_out, step.width_out)
            fill(image, zero)
            pool_back(step, inputs, outputs, slopes, image, scratch)
            out = part(input_slopes(step, work), i * step.width_in, step.width_in)
            if step.adds_to_slopes == 0:
                fill(out, zero)
            add_to(out, image)

    return backward


MAX_POOL = Kind("max_pool", make_pool, make_pool_back, reads_outputs=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MaxPool(Window):
    """The largest number of each channel in each window; padding counts as none.

    Attributes:
        window: height and width of a window.
        stride: from one window to the next.
        padding: rows and columns around the image.
    """

    window: int
    stride: int
    padding: int = 0
    kind = MAX_POOL

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.padding > self.window:
            raise ValueError(f"padding={self.padding}: expected half of the window at most")

    def num_saved(self, sizes: Sizes) -> int:
        """Return how many saved units a sample has; see `rlcpu.nn.layers.kind.Layer`."""
        return padded(sizes.inputs) + padded(sizes.image_in.channels)
