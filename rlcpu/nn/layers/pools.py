"""Pooling of images between layers; see `rlcpu.nn.layers.images`.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`).
`step.height`, `width` and `channels` are those of the image in front, without padding. Slopes are
derivatives of the loss with respect to a layer's inputs or outputs.
"""

from __future__ import annotations

import dataclasses
import math

from rlcpu.kernels.compiler.compile import inline
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


def pool(step, inputs, outputs):
    """Write the largest of each window, channel by channel, of one image; NaN stays NaN."""
    height, width = output_size(step)
    for row in range(height):
        top, bottom = window_bounds(step, row, step.height)
        for column in range(width):
            left, right = window_bounds(step, column, step.width)
            out = row_at(outputs, row * width + column, step.channels)
            fill(out, -math.inf)
            for y in range(top, bottom):
                for x in range(left, right):
                    pixel = row_at(inputs, y * step.width + x, step.channels)
                    for k in range(out.size):
                        is_larger = pixel[k] > out[k] or pixel[k] != pixel[k]
                        out[k] = pixel[k] if is_larger else out[k]


def forward(step, work):
    """Pool the image of each sample; see `Kind`."""
    for i in range(work.samples):
        outputs = output_row(step, work, i)
        fill(outputs[step.size_out :], 0.0)
        pool(step, input_row(step, work, i), outputs)


def pool_back(step, inputs, outputs, output_slopes, input_slopes, remaining):
    """Add the slopes of one image to `input_slopes`.

    The slope of an output goes to the largest number of its window, the first of equals.
    `remaining` (channels,) is scratch: slopes of a window that no pixel has got yet.
    """
    channels = step.channels
    height, width = output_size(step)
    for row in range(height):
        top, bottom = window_bounds(step, row, step.height)
        for column in range(width):
            left, right = window_bounds(step, column, step.width)
            window = row * width + column
            largest = row_at(outputs, window, channels)
            copy(remaining, row_at(output_slopes, window, channels))
            for y in range(top, bottom):
                for x in range(left, right):
                    pixel = y * step.width + x
                    by_pixel = row_at(input_slopes, pixel, channels)
                    numbers = row_at(inputs, pixel, channels)
                    for k in range(remaining.size):
                        moved = remaining[k] if numbers[k] == largest[k] else 0.0
                        by_pixel[k] += moved
                        remaining[k] -= moved


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
        fill(by_image, 0.0)
        pool_back(step, inputs, outputs, slopes, by_image, remaining)
        out = row_at(input_slopes(step, work), i, step.width_in)
        if step.adds_to_slopes == 0:
            fill(out, 0.0)
        add_to(out, by_image)


MAX_POOL = Kind("max_pool", forward, backward, reads_outputs=True)


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
