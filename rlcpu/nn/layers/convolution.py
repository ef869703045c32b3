"""Convolutions of images; see `rlcpu.nn.layers.images`.

A convolution is a product of the windows of an image, as rows, and a matrix of weights (numbers of
a window, channels out). Windows are not written down: pieces of them, a row of a window each, lie
together in the image, where `product` reads them. Derivatives by the weights are a
product of the transposed windows, read in the same way; those by the image are products for one
line of windows at a time, whose rows are added to where the windows lie.

An image with a border of zeros, or of planes, is copied first: the copy, with its border, is saved
for the backward pass.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`).
`step.height`, `width` and `channels` are those of the image in front, without its border of
`step.padding`. Slopes are derivatives of the loss with respect to an image or the outputs,
gradients those with respect to parameters. `product(left, right, start, out, shape, floor)` writes
max(left @ right + start, floor) to `out`: the floor is 0 for a relu, -inf for none; `shape` is
(rows, depth, columns), and the depth of `product` that of one piece.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import inline, outline, prefer_small_code
from rlcpu.kernels.machine.matmul import Windows, product
from rlcpu.kernels.machine.memory import address, part, shifted
from rlcpu.nn.layers.dense import orthogonal
from rlcpu.nn.layers.graph import Picture
from rlcpu.nn.layers.images import Window, num_windows
from rlcpu.nn.layers.kind import (
    BY_PARAMETERS,
    OVERWRITTEN,
    UNIT,
    Array,
    Kind,
    LayerSizes,
    LayerStep,
    ParameterArray,
    gradients_of,
    input_row,
    input_slopes,
    output_row,
    output_slopes,
    padded,
    parameters_of,
    saved_of,
    vector,
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_rows, add_to, as_matrix, copy, fill, repeated, row_at


class Sizing(NamedTuple):
    """Sizes of a convolution."""

    height: Any  # of the image, with its border
    width: Any
    channels: Any
    out_height: Any  # of the image that the layer makes
    out_width: Any
    out_channels: Any
    padded_channels: Any  # `out_channels`, padded: numbers of a row of the weights
    window_size: Any  # numbers of a window: rows of the weights
    padded_window: Any  # `window_size`, padded: numbers of a row of the transposed weights
    is_copied: Any  # whether images are copied first, with their borders
    has_padding: Any  # whether `padded_channels` is more than `out_channels`


@inline(plain=True)
def sizing_of(step):
    """Return the sizes of a convolution, of its `LayerStep`."""
    out_height = num_windows(step.height, step.window, step.stride, step.padding)
    out_width = num_windows(step.width, step.window, step.stride, step.padding)
    out_channels = step.size_out // (out_height * out_width)
    return Sizing(
        height=step.height + 2 * step.padding,
        width=step.width + 2 * step.padding,
        channels=step.channels,
        out_height=out_height,
        out_width=out_width,
        out_channels=out_channels,
        padded_channels=step.columns,
        window_size=step.rows,
        padded_window=(step.rows + UNIT - 1) // UNIT * UNIT,
        is_copied=step.padding + step.are_planes > 0,
        has_padding=out_channels != step.columns,
    )


@inline
def place_in_input(step, row, column):
    """Return where a pixel's first channel is in the input, and the distance between channels."""
    if step.are_planes != 0:
        return row * step.width + column, step.height * step.width
    return (row * step.width + column) * step.channels, 1


@inline
def place_in_copy(step, size, row, column):
    """Return where a pixel's first channel is in a copy of the input that has a border."""
    return ((row + step.padding) * size.width + column + step.padding) * size.channels


@outline
def copy_image(step, size, image, inputs):
    """Copy the input of one sample into `image`, channels last, inside a border of zeros."""
    prefer_small_code()
    fill(image, image.dtype.type(0))
    for row in range(step.height):
        for column in range(step.width):
            begin, distance = place_in_input(step, row, column)
            place = place_in_copy(step, size, row, column)
            for k in range(size.channels):
                image[place + k] = inputs[begin + k * distance]


@outline
def add_inside(step, size, slopes, image):
    """Add `image`, slopes of a copy, without its border, to `slopes`, those of the inputs."""
    prefer_small_code()
    for row in range(step.height):
        for column in range(step.width):
            begin, distance = place_in_input(step, row, column)
            place = place_in_copy(step, size, row, column)
            for k in range(size.channels):
                slopes[begin + k * distance] += image[place + k]


@inline
def copy_columns(target, target_width, source, source_width, count):
    """Copy the first `count` numbers of each row of `source`; widths are those of rows."""
    for i in range(target.size // target_width):
        copy(part(target, i * target_width, count), part(source, i * source_width, count))


class SavedSizes(NamedTuple):
    """Sizes of the saved units of a convolution, which follow each other."""

    image: Any  # of a copy of an image with its border; one for each sample, or 0 without copies
    rows: Any  # scratch for the padded pixels that one sample's image becomes; 0 without padding
    scratch: Any  # of the backward pass: (out_width * padded_window,), and one row of zeros


@inline(plain=True)
def saved_sizes(size):
    """Return the sizes of saved units, by the `Sizing` of a convolution."""
    image = (size.height * size.width * size.channels + UNIT - 1) // UNIT * UNIT
    rows = size.out_height * size.out_width * size.padded_channels
    scratch = size.out_width * size.padded_window + max(size.padded_window, size.padded_channels)
    return SavedSizes(image if size.is_copied else 0, rows if size.has_padding else 0, scratch)


class ConvolutionMemory(NamedTuple):
    """The saved units of a convolution, see `SavedSizes`."""

    images: Array
    rows: Array
    scratch: Array


@inline
def memory_of(step, work, size):
    """Return the saved units of a convolution, whose `Sizing` is `size`."""
    saved, sizes = saved_of(step, work), saved_sizes(size)
    images = sizes.image * work.samples
    scratch = part(saved, images + sizes.rows, sizes.scratch)
    return ConvolutionMemory(part(saved, 0, images), part(saved, images, sizes.rows), scratch)


@inline
def copied_image(work, memory, i):
    """Return the place of the copy of sample i's image, which has a border."""
    return row_at(memory.images, i, memory.images.size // work.samples)


@inline
def windows_of(step, size, image):
    """Return the windows of an image, rows of a product's left factor.

    A window has `step.window` pieces, a row of it each, of pixels with all their channels. `step`
    is the layer's, and `step.stride` the pixels from a window to the next one.
    """
    image_row = size.width * size.channels  # numbers of a row of the image
    return Windows(
        address(image),
        begin=0,
        first=0,
        per_line=size.out_width,
        line_step=step.stride * image_row,
        window_step=step.stride * size.channels,
        num_pieces=step.window,
        piece_step=image_row,
        number_step=1,
    )


@inline
def transposed_windows_of(step, size, image):
    """Return the transpose of `windows_of`: row r is number r of all windows.

    Here a piece is that number of each window of one line of windows; a "line" of rows are the
    numbers that lie side by side in a row of the image.
    """
    image_row = size.width * size.channels
    return Windows(
        address(image),
        begin=0,
        first=0,
        per_line=step.window * size.channels,
        line_step=image_row,
        window_step=1,
        num_pieces=size.out_height,
        piece_step=step.stride * image_row,
        number_step=step.stride * size.channels,
    )


def forward(step, work):
    """Write max(windows @ weights + biases, floor) of the image of each sample; see `Kind`."""
    size, parameters = sizing_of(step), parameters_of(step, work)
    memory, channels = memory_of(step, work, size), size.out_channels
    weights = as_matrix(parameters, size.padded_channels)
    biases = repeated(parameters[size.window_size * size.padded_channels :])
    depth = step.window * size.channels  # numbers of a window's piece, a row of it
    shape = size.out_height * size.out_width, depth, size.padded_channels
    floor = 0.0 if step.fuses_relu != 0 else -math.inf
    for i in range(work.samples):
        image, outputs = input_row(step, work, i), output_row(step, work, i)
        if size.is_copied:
            copied = copied_image(work, memory, i)
            copy_image(step, size, copied, image)
            image = copied
        pixels = as_matrix(memory.rows if size.has_padding else outputs, size.padded_channels)
        windows = windows_of(step, size, image)
        product(windows, weights, biases, pixels, shape, floor)
        if size.has_padding:
            fill(outputs, 0.0)
            pixels_out = outputs[: step.size_out]
            width = size.padded_channels
            copy_columns(pixels_out, channels, memory.rows, source_width=width, count=channels)


def add_gradients(step, work, size, image, slopes, start):
    """Write the weights' gradients, start + windows.T @ slopes, and add those of biases.

    `image` is one sample's, with its border, `slopes` are those of its outputs, a padded row for
    each pixel. `start` is the matrix of the weights' gradients so far, or of zeros.
    """
    gradients, channels = gradients_of(step, work), size.padded_channels
    add_rows(gradients[size.window_size * channels :], slopes)
    windows, right = transposed_windows_of(step, size, image), as_matrix(slopes, channels)
    shape = size.window_size, size.out_width, channels
    product(windows, right, start, as_matrix(gradients, channels), shape, -math.inf)


def add_to_image(step, work, size, image, slopes, scratch):
    """Add the slopes of an image to `image`, which has the border.

    A line of windows at a time: slopes @ weights.T are the slopes of the windows' numbers, and are
    added up where windows overlap. `slopes`, of the outputs, are a padded row for each pixel; for
    `scratch` see `SavedSizes`.
    """
    line = step.window * size.channels  # numbers of a window's piece, a row of it
    by_windows, row_of_zeros = scratch, scratch[size.out_width * size.padded_window :]
    fill(row_of_zeros, 0.0)
    start, out = repeated(row_of_zeros), as_matrix(by_windows, size.padded_window)
    weights = as_matrix(shifted(work.network.copies, step.copies), size.padded_window)
    shape = size.out_width, size.out_channels, size.padded_window
    for row in range(size.out_height):
        slopes_of_line = slopes[row * size.out_width * size.padded_channels :]
        left = as_matrix(slopes_of_line, size.padded_channels)
        product(left, weights, start, out, shape, -math.inf)
        for column in range(size.out_width):
            for k in range(step.window):
                place = (row * step.stride + k) * size.width + column * step.stride
                sums = part(image, place * size.channels, line)
                add_to(sums, part(by_windows, column * size.padded_window + k * line, line))


def write_input_slopes(step, work, size, i, image, slopes, scratch):
    """Write the slopes of sample i's input, or add them to another layer's.

    Where the image was copied, `image` is the copy and is overwritten with its slopes.
    """
    out = row_at(input_slopes(step, work), i, step.width_in)
    if step.adds_to_slopes == 0:
        fill(out, 0.0)
    if size.is_copied:
        fill(image, 0.0)
        add_to_image(step, work, size, image, slopes, scratch)
        add_inside(step, size, out, image)
    else:
        add_to_image(step, work, size, out, slopes, scratch)


def backward(step, work):
    """Compute gradients and slopes of the images, whichever are asked for, a sample at once."""
    size, gradients = sizing_of(step), gradients_of(step, work)
    memory = memory_of(step, work, size)
    channels, width = size.out_channels, size.padded_channels
    start = as_matrix(gradients, width)
    overwrites = work.mode & OVERWRITTEN != 0
    if overwrites:
        fill(gradients[size.window_size * width :], 0.0)
    for i in range(work.samples):
        image = input_row(step, work, i)
        if size.is_copied:
            image = copied_image(work, memory, i)
        slopes = row_at(output_slopes(step, work), i, step.width_out)
        if size.has_padding:
            fill(memory.rows, 0.0)
            copy_columns(memory.rows, width, slopes, source_width=channels, count=channels)
            slopes = memory.rows
        if work.mode & BY_PARAMETERS:
            if overwrites and i == 0:  # the first sample's product starts from zeros
                fill(memory.scratch[:width], 0.0)
                add_gradients(step, work, size, image, slopes, repeated(memory.scratch))
            else:
                add_gradients(step, work, size, image, slopes, start)
        if wants_inputs(step, work):
            write_input_slopes(step, work, size, i, image, slopes, memory.scratch)


CONVOLUTION = Kind("convolution", forward, backward, fuses_relu=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Convolution(Window):
    """A convolution: each window of an image, through one matrix of weights, becomes a pixel.

    It takes the outputs of an `Image`, `Planes`, or a layer that makes one. The weights are
    (window * window * channels in front, channels), a window row by row. With a window of 1 it is a
    dense layer that all pixels share, such as objects, which are the pixels of an `Image(1, n, k)`.

    Attributes:
        channels: numbers that it makes of a window.
        window: height and width of a window.
        stride: from one window to the next.
        padding: rows and columns of zeros around the image.
        gain: of the orthogonal weights it begins with. Biases begin with 0.

    Example:
        >>> from rlcpu import nn
        >>> features = nn.Planes(4, 10, 10) >> nn.Convolution(16, 3) >> nn.Relu()
        >>> nn.Network(400, features >> nn.Dense(3)).arrays()["convolution0.weights"].shape
        (36, 16)
    """

    channels: int
    window: int
    stride: int = 1
    padding: int = 0
    gain: float = math.sqrt(2.0)
    kind = CONVOLUTION

    def __post_init__(self) -> None:
        check_count("channels", self.channels)
        super().__post_init__()

    def __repr__(self) -> str:
        sizes = f"{self.window}, stride={self.stride}, padding={self.padding}"
        return f"Convolution({self.channels}, {sizes})"

    def channels_of(self, picture: Picture) -> int:
        """Return how many channels it makes."""
        return self.channels

    def num_saved(self, sizes: LayerSizes) -> int:
        """Return how many saved units a sample has; see `Layer`."""
        fields, rows = self.fields_of(sizes.image_in), self._window_size(sizes)
        columns = padded(self.channels)
        step = LayerStep(size_out=sizes.image_out.size, rows=rows, columns=columns, **fields)
        saved = saved_sizes(sizing_of(step))
        return int(saved.image + padded(saved.rows + saved.scratch))

    def _window_size(self, sizes: LayerSizes) -> int:
        """Return the numbers of a window."""
        return self.window * self.window * sizes.image_in.channels

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        shape = self._window_size(sizes), self.channels
        initial = functools.partial(orthogonal, shape=shape, gain=self.gain)
        packed = shape[0], padded(self.channels)
        weights = ParameterArray("weights", shape, initial, packed, copied=True)
        return [weights, vector("biases", self.channels, 0.0)]
