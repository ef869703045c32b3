"""Images between layers, and convolution; pools are in `rlcpu.nn.layers.pools`.

Numbers of an image lie row by row, its channels together: (height, width, channels). `Image` and
`Planes` say that a network's input is one; convolutions and pools hand images on, and what works on
each number, normalises or adds keeps them.

A convolution is a product of the windows of an image, as rows, and a matrix of weights (numbers of
a window, channels out). Windows are not written down: pieces of them, a row of a window each, lie
together in the image, where `product_of_windows` reads them. Derivatives by the weights are a
product of the transposed windows, read in the same way; those by the image are products for one
line of windows at a time, whose rows are added to where the windows lie.

An image with a border of zeros, or of planes, is copied first: the copy, with its border, is saved
for the backward pass.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.passes.Work`). Slopes are
derivatives of the loss with respect to an image or the outputs, gradients those with respect to
parameters. Products take a floor: results below it become it, 0 for a relu, -inf for none.
`Matrix(values, begin, row_stride, column_stride)` lies in memory; row stride 0 repeats one row.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import inline, outline, prefer_small_code
from rlcpu.kernels.matmul import Matrix, Windows, product, product_of_windows
from rlcpu.kernels.memory import address
from rlcpu.nn.layers.dense import orthogonal
from rlcpu.nn.layers.graph import Graph, LayerOutput, Picture, Trace
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    UNIT,
    Array,
    Kind,
    Layer,
    ParameterArray,
    Sizes,
    gradients_of,
    input_slopes,
    inputs_of,
    output_slopes,
    outputs_of,
    padded,
    parameters_of,
    saved_of,
    vector,
    wants_inputs,
    wants_parameters,
)
from rlcpu.nn.layers.rows import add_rows, add_to, fill

# ---------------------------------------------------------------- convolution in kernels


class Sizing(NamedTuple):
    """Sizes of a convolution, for kernels.

    Attributes:
        height, width, channels: of the image, with its border.
        out_height, out_width, out_channels: of the image that the layer makes.
        padded_channels: `out_channels`, padded: numbers of a row of the weights.
        window_size: numbers of a window: rows of the weights.
        padded_window: `window_size`, padded: numbers of a row of the transposed weights.
        is_copied: whether images are copied first, with their borders.
        has_padding: whether `padded_channels` is more than `out_channels`.
    """

    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    padded_channels: int
    window_size: int
    padded_window: int
    is_copied: bool
    has_padding: bool


@inline
def sizing_of(step):
    """Return the sizes of a convolution, of its `LayerStep`."""
    height, width = step.height + 2 * step.padding, step.width + 2 * step.padding
    out_height = (height - step.window) // step.stride + 1
    out_width = (width - step.window) // step.stride + 1
    out_channels = step.size_out // (out_height * out_width)
    padded_window = (step.rows + UNIT - 1) // UNIT * UNIT
    is_copied, has_padding = step.padding + step.are_planes > 0, out_channels != step.columns
    return Sizing(
        height, width, step.channels, out_height, out_width, out_channels, step.columns,
        step.rows, padded_window, is_copied, has_padding,
    )  # fmt: skip


@inline
def place_in_input(step, row, column):
    """Return where a pixel's first channel is in the input, and the distance between channels."""
    if step.are_planes != 0:
        return row * step.width + column, step.height * step.width
    return (row * step.width + column) * step.channels, 1


@functools.cache
def make_copy_image(dtype: type) -> Callable[..., None]:
    """Make `copy_image(step, size, image, inputs)`."""
    zero = dtype(0)

    @outline
    def copy_image(step, size, image, inputs):
        """Copy the input of one sample into `image`, channels last, inside a border of zeros.

        `size` is a `Sizing`.
        """
        prefer_small_code()
        fill(image, zero)
        for row in range(step.height):
            for column in range(step.width):
                begin, distance = place_in_input(step, row, column)
                place = ((row + step.padding) * size.width + column + step.padding) * size.channels
                for k in range(size.channels):
                    image[place + k] = inputs[begin + k * distance]

    return copy_image


@outline
def add_inside(step, size, slopes, image):
    """Add the inside of an image's border to `slopes`, of the inputs, which lie as those do."""
    prefer_small_code()
    for row in range(step.height):
        for column in range(step.width):
            begin, distance = place_in_input(step, row, column)
            place = ((row + step.padding) * size.width + column + step.padding) * size.channels
            for k in range(size.channels):
                slopes[begin + k * distance] += image[place + k]


@inline
def copy_rows(out, out_width, rows, width, size):
    """Copy the first `size` numbers of each row of `width`, to rows of `out_width`."""
    for i in range(out.size // out_width):
        for k in range(size):
            out[i * out_width + k] = rows[i * width + k]


@inline
def part(array, begin, size):
    """Return `size` numbers of an array."""
    return array[begin : begin + size]


class ConvolutionMemory(NamedTuple):
    """The saved units of a convolution.

    Attributes:
        image_size: numbers of an image with its border, padded. Copies of the images come first in
            the saved units, one after the other, if `Sizing.is_copied`.
        rows: scratch for the padded pixels of one image, (out_height * out_width *
            padded_channels,); empty without padding.
        scratch: (out_width * padded_window + one row of zeros,), of the backward pass.
    """

    image_size: int
    rows: Array
    scratch: Array


@inline
def memory_of(step, work, size):
    """Return the saved units of a convolution, whose `Sizing` is `size`."""
    saved = saved_of(step, work)
    image_size = (size.height * size.width * size.channels + UNIT - 1) // UNIT * UNIT
    copies = image_size * work.samples if size.is_copied else 0
    rows = size.out_height * size.out_width * size.padded_channels if size.has_padding else 0
    scratch = size.out_width * size.padded_window + max(size.padded_window, size.padded_channels)
    return ConvolutionMemory(
        image_size, part(saved, copies, rows), part(saved, copies + rows, scratch)
    )


@inline
def windows_of(step, size, image):
    """Return the windows of an image as the rows of a product's left factor."""
    line = size.width * size.channels
    return Windows(
        address(image),
        begin=0,
        first=0,
        per_line=size.out_width,
        line=step.stride * line,
        step=step.stride * size.channels,
        segments=step.window,
        segment=line,
        stride=1,
    )


@inline
def transposed_windows_of(step, size, image):
    """Return the transpose of `windows_of`: row r is number r of all windows."""
    line = size.width * size.channels
    return Windows(
        address(image),
        begin=0,
        first=0,
        per_line=step.window * size.channels,
        line=line,
        step=1,
        segments=size.out_height,
        segment=step.stride * line,
        stride=step.stride * size.channels,
    )


@functools.cache
def make_convolve(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a convolution, see `Kind`."""
    zero, no_floor = dtype(0), dtype(-np.inf)
    copy_image = make_copy_image(dtype)

    @outline
    def forward(step, work):
        """Write max(windows @ weights + biases, floor) of the image of each sample."""
        size, parameters = sizing_of(step), address(parameters_of(step, work))
        memory, saved = memory_of(step, work, size), saved_of(step, work)
        weights = Matrix(parameters, 0, size.padded_channels, 1)
        biases = Matrix(parameters, size.window_size * size.padded_channels, 0, 1)
        num_pixels, window_line = size.out_height * size.out_width, step.window * size.channels
        shape = num_pixels, window_line, size.padded_channels
        floor = zero if step.fuses_relu != 0 else no_floor
        for i in range(work.samples):
            image = part(inputs_of(step, work), i * step.width_in, step.width_in)
            outputs = part(outputs_of(step, work), i * step.width_out, step.width_out)
            if size.is_copied:
                bordered = part(saved, i * memory.image_size, memory.image_size)
                copy_image(step, size, bordered, image)
                image = bordered
            pixels = memory.rows if size.has_padding else outputs
            out = Matrix(address(pixels), 0, size.padded_channels, 1)
            windows = windows_of(step, size, image)
            product_of_windows(windows, weights, biases, out, shape, floor)
            if size.has_padding:
                channels = size.out_channels
                fill(outputs, zero)
                copy_rows(
                    outputs[: step.size_out], channels, pixels, size.padded_channels, channels
                )

    return forward


@functools.cache
def make_add_gradients(dtype: type) -> Callable[..., None]:
    """Make `add_gradients(step, work, size, image, slopes, start)` of a convolution."""
    no_floor = dtype(-np.inf)

    @outline
    def add_gradients(step, work, size, image, slopes, start):
        """Write the weights' gradients, start + windows.T @ slopes, and add those of biases.

        Args:
            step: see above.
            work: see above.
            size: the layer's `Sizing`.
            image: of one sample, with its border.
            slopes: of its outputs, a padded row for each pixel.
            start: matrix of the weights' gradients so far, or of zeros.
        """
        gradients = gradients_of(step, work)
        num_weights = size.window_size * size.padded_channels
        add_rows(gradients[num_weights:], slopes)
        windows = transposed_windows_of(step, size, image)
        right = Matrix(address(slopes), 0, size.padded_channels, 1)
        out = Matrix(address(gradients), 0, size.padded_channels, 1)
        shape = size.window_size, size.out_width, size.padded_channels
        product_of_windows(windows, right, start, out, shape, no_floor)

    return add_gradients


@functools.cache
def make_add_to_image(dtype: type) -> Callable[..., None]:
    """Make `add_to_image(step, work, size, image, slopes, scratch)` of a convolution."""
    zero, no_floor = dtype(0), dtype(-np.inf)

    @outline
    def add_to_image(step, work, size, image, slopes, scratch):
        """Add the slopes of an image to `image`.

        A line of windows at a time: slopes @ weights.T are the slopes of the windows' numbers, and
        are added up where windows overlap.

        Args:
            step: see above.
            work: see above.
            size: the layer's `Sizing`.
            image: slopes of one sample's image, with its border.
            slopes: of its outputs, a padded row for each pixel.
            scratch: see `ConvolutionMemory`.
        """
        copies, line = address(work.network.copies), step.window * size.channels
        fill(scratch[size.out_width * size.padded_window :], zero)
        start = Matrix(address(scratch), size.out_width * size.padded_window, 0, 1)
        out = Matrix(address(scratch), 0, size.padded_window, 1)
        weights = Matrix(copies, step.copies, size.padded_window, 1)
        shape = size.out_width, size.out_channels, size.padded_window
        for row in range(size.out_height):
            begin = row * size.out_width * size.padded_channels
            left = Matrix(address(slopes), begin, size.padded_channels, 1)
            product(left, weights, start, out, shape, no_floor)
            for column in range(size.out_width):
                for k in range(step.window):
                    place = (row * step.stride + k) * size.width + column * step.stride
                    sums = part(image, place * size.channels, line)
                    add_to(sums, part(scratch, column * size.padded_window + k * line, line))

    return add_to_image


@functools.cache
def make_convolve_back(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)` of a convolution, see `Kind`."""
    zero = dtype(0)
    add_gradients, add_to_image = make_add_gradients(dtype), make_add_to_image(dtype)

    @inline
    def write_input_slopes(step, work, size, i, image, slopes, scratch):
        """Write the slopes of sample i's input, or add them to another layer's.

        Where the image was copied, `image` is the copy and is overwritten with its slopes.
        """
        out = part(input_slopes(step, work), i * step.width_in, step.width_in)
        if step.adds_to_slopes == 0:
            fill(out, zero)
        if size.is_copied:
            fill(image, zero)
            add_to_image(step, work, size, image, slopes, scratch)
            add_inside(step, size, out, image)
        else:
            add_to_image(step, work, size, out, slopes, scratch)

    @outline
    def backward(step, work):
        """Compute gradients and slopes of the images, whichever are asked for.

        Sample by sample, whose image is in the inputs, or in a copy with a border of zeros.
        """
        size, gradients = sizing_of(step), gradients_of(step, work)
        memory, saved = memory_of(step, work, size), saved_of(step, work)
        rows, scratch, channels = memory.rows, memory.scratch, size.out_channels
        overwrites = work.mode & OVERWRITTEN != 0
        if overwrites:
            fill(gradients[size.window_size * size.padded_channels :], zero)
        for i in range(work.samples):
            image = part(inputs_of(step, work), i * step.width_in, step.width_in)
            if size.is_copied:
                image = part(saved, i * memory.image_size, memory.image_size)
            slopes = part(output_slopes(step, work), i * step.width_out, step.width_out)
            if size.has_padding:
                fill(rows, zero)
                copy_rows(rows, size.padded_channels, slopes, channels, channels)
                slopes = rows
            if wants_parameters(work):
                start = Matrix(address(gradients), 0, size.padded_channels, 1)
                if overwrites and i == 0:
                    fill(scratch[: size.padded_channels], zero)
                    start = Matrix(address(scratch), 0, 0, 1)
                add_gradients(step, work, size, image, slopes, start)
            if wants_inputs(step, work):
                write_input_slopes(step, work, size, i, image, slopes, scratch)

    return backward


CONVOLUTION = Kind("convolution", make_convolve, make_convolve_back, fuses_relu=True)

# ---------------------------------------------------------------- what users write


@dataclasses.dataclass(frozen=True, eq=False)
class Image(Graph):
    """Say that an input is an image, row by row, the channels of a pixel together.

    Attributes:
        height, width, channels: of the image.
    """

    height: int
    width: int
    channels: int

    def __post_init__(self) -> None:
        for name, size in dataclasses.asdict(self).items():
            check_count(name, size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, dataclasses.astuple(self)))})"

    @property
    def picture(self) -> Picture:
        """Return the sizes, as layers have them."""
        return Picture(self.height, self.width, self.channels)

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Say so of the numbers in front of it; see `Graph`."""
        source = trace.check(self, source)
        picture = self.picture
        is_input = source.is_input or source.is_part
        if not is_input or source.picture not in (None, picture):
            raise ValueError(f"{self!r}: expected behind an input, once")
        if source.size != picture.size:
            raise ValueError(f"{self!r} has {picture.size} numbers: the input has {source.size}")
        source.picture = picture
        return source


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Planes(Image):
    """Say that an input is planes, each row by row, one after the other, as of boards.

    Attributes:
        channels: how many planes; the first argument.
        height, width: of each.
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__(height, width, channels)

    def __repr__(self) -> str:
        return f"Planes({self.channels}, {self.height}, {self.width})"

    @property
    def picture(self) -> Picture:
        """Return the sizes, as layers have them."""
        return Picture(self.height, self.width, self.channels, True)


class Window(Layer):
    """Base of layers that look at an image through windows.

    Attributes:
        window: height and width of a window.
        stride: from one window to the next.
        padding: rows and columns that are added around the image.
    """

    window: int
    stride: int
    padding: int

    def __post_init__(self) -> None:
        check_count("window", self.window)
        check_count("stride", self.stride)
        check_count("padding", self.padding, 0)

    def __repr__(self) -> str:
        sizes = f"{self.window}, stride={self.stride}, padding={self.padding}"
        return f"{type(self).__name__}({sizes})"

    def channels_of(self, picture: Picture) -> int:
        """Return how many channels it makes."""
        return picture.channels

    def output(self, source: LayerOutput) -> LayerOutput:
        """Return a tensor for its outputs; see `Layer`.

        Raises:
            ValueError: there is no image in front of it, or a window is larger.
        """
        picture = source.picture
        if picture is None:
            raise ValueError(f"{self!r} has no image in front of it: begin with nn.Image or Planes")
        height, width = (self.count(size) for size in picture[:2])
        if height < 1 or width < 1:
            raise ValueError(
                f"{self!r}: an image of {picture.height} x {picture.width} is too small for it"
            )
        image = Picture(height, width, self.channels_of(picture))
        return LayerOutput(image.size, picture=image)

    def count(self, size: int) -> int:
        """Return how many windows lie along so many pixels."""
        return (size + 2 * self.padding - self.window) // self.stride + 1

    def fields(self, source: LayerOutput) -> dict[str, int]:
        """Return further fields of its `LayerStep`; see `Layer`."""
        height, width, channels, are_planes = source.picture or Picture(0, 0, 0)
        sizes = {"height": height, "width": width, "channels": channels}
        of_window = {"window": self.window, "stride": self.stride, "padding": self.padding}
        return {**sizes, "are_planes": int(are_planes), **of_window}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Convolution(Window):
    """A convolution: each window of an image, through one matrix of weights, becomes a pixel.

    It takes the outputs of an `Image`, `Planes`, or a layer that makes one. The weights are
    (window * window * channels in front, channels), a window row by row.

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

    def num_saved(self, sizes: Sizes) -> int:
        """Return how many saved units a sample has; see `Layer`."""
        image, out = sizes.image_in, sizes.image_out
        border = 2 * self.padding
        window = padded(self.window * self.window * image.channels)
        bordered = Picture(image.height + border, image.width + border, image.channels)
        is_copied = self.padding > 0 or image.are_planes
        columns = padded(self.channels)
        scratch = out.width * window + max(window, columns)
        if self.channels % UNIT:
            scratch += out.height * out.width * columns
        return is_copied * padded(bordered.size) + padded(scratch)

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        shape = self.window * self.window * sizes.image_in.channels, self.channels
        initial = functools.partial(orthogonal, shape=shape, gain=self.gain)
        packed = shape[0], padded(self.channels)
        weights = ParameterArray("weights", shape, initial, packed, copied=True)
        return [weights, vector("biases", self.channels, 0.0)]
