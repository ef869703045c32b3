"""Pooling of images between layers; see `rlcpu.nn.layers.images`.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`).
`step.height`, `width` and `channels` are those of the image in front, without padding. Slopes are
derivatives of the loss with respect to a layer's inputs or outputs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from rlcpu.kernels.compiler.compile import inline, outline
from rlcpu.kernels.machine.memory import part
from rlcpu.nn.layers.images import Window, num_windows
from rlcpu.nn.layers.kind import (
    Kind,
    LayerSizes,
    input_row,
    input_slopes,
    output_row,
    output_slopes,
    padded,
    saved_of,
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_to, copy, fill, row_at


@inline
def output_size(step):
    """Return height and width of the image that a pool makes."""
    height = num_windows(step.height, step.window, step.stride, step.padding)
    return height, num_windows(step.width, step.window, step.stride, step.padding)


@inline
def window_bounds(step, number, pixels):
    """Return where window `number` begins and ends along an axis of an image, of so many pixels."""
    begin = number * step.stride - step.padding
    return max(begin, 0), min(begin + step.window, pixels)


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
        height, width = output_size(step)
        for row in range(height):
            top, bottom = window_bounds(step, row, step.height)
            for column in range(width):
                left, right = window_bounds(step, column, step.width)
                out = row_at(outputs, row * width + column, step.channels)
                fill(out, lowest)
                for y in range(top, bottom):
                    for x in range(left, right):
                        take_larger(out, row_at(inputs, y * step.width + x, step.channels))

    @outline
    def forward(step, work):
        """Pool the image of each sample."""
        for i in range(work.samples):
            outputs = output_row(step, work, i)
            fill(outputs[step.size_out :], zero)
            pool(step, input_row(step, work, i), outputs)

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
        channels = step.channels
        height, width = output_size(step)
        for row in range(height):
            top, bottom = window_bounds(step, row, step.height)
            for column in range(width):
                left, right = window_bounds(step, column, step.width)
                window = row * width + column
                copy(remaining, row_at(output_slopes, window, channels))
                for y in range(top, bottom):
                    for x in range(left, right):
                        pixel = y * step.width + x
                        by_pixel = row_at(input_slopes, pixel, channels)
                        numbers = row_at(inputs, pixel, channels)
                        largest = row_at(outputs, window, channels)
                        move_slopes(by_pixel, numbers, largest, remaining)

    @outline
    def backward(step, work):
        """Compute the slopes of each image in scratch, and write or add them to the inputs'.

        Scratch because the inputs, which are read meanwhile, may be where their slopes go.
        """
        if not wants_inputs(step, work):
            return
        saved = saved_of(step, work)
        by_image = part(saved, 0, step.width_in)
        remaining = part(saved, step.width_in, step.channels)
        for i in range(work.samples):
            inputs, outputs = input_row(step, work, i), output_row(step, work, i)
            slopes = row_at(output_slopes(step, work), i, step.width_out)
            fill(by_image, zero)
            pool_back(step, inputs, outputs, slopes, by_image, remaining)
            out = row_at(input_slopes(step, work), i, step.width_in)
            if step.adds_to_slopes == 0:
                fill(out, zero)
            add_to(out, by_image)

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

    def num_saved(self, sizes: LayerSizes) -> int:
        """Return the saved units of a sample, scratch for an image and a pixel; see `Layer`."""
        return padded(sizes.inputs) + padded(sizes.image_in.channels)
