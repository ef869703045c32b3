"""Images between layers, convolution and pooling.

Numbers of an image lie row by row, its channels together: (height, width, channels). `Image` and
`Planes` say that a network's input is one; convolutions and pools hand images on, and what works on
each number, normalises or adds keeps them.

A convolution is a product of the windows of an image, as rows, and a matrix of weights (numbers of
a window, channels out). Windows are not written down: pieces of them, a row of a window each, lie
together in the image, where `product_of_windows` reads them. Derivatives by the weights are a
product of the transposed windows, read in the same way; those by the image are products for one
line of windows at a time, whose rows are added to where the windows lie.

An image with a border of zeros, or of planes, is copied first: the copy, with its border, is kept
for the way back.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import compact, inline, outline
from rlcpu.kernels.matmul import Matrix, Windows, product, product_of_windows
from rlcpu.kernels.memory import address
from rlcpu.nn.layers.dense import orthogonal
from rlcpu.nn.layers.graph import Graph, LayerOutput, Picture, Trace
from rlcpu.nn.layers.kind import (
    OVERWRITTEN,
    UNIT,
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
        high, wide, made: of the image that is made.
        columns: `made`, padded, of rows of weights.
        depth: numbers of a window.
        across: the same, padded: of rows of the transposed weights.
        is_copied: whether the image is copied, with its border.
        is_ragged: whether channels that are made do not fill vectors.
    """

    height: int
    width: int
    channels: int
    high: int
    wide: int
    made: int
    columns: int
    depth: int
    across: int
    is_copied: bool
    is_ragged: bool


@inline
def sizing_of(step):
    """Return the sizes of a step."""
    height, width = step.height + 2 * step.padding, step.width + 2 * step.padding
    high = (height - step.window) // step.stride + 1
    wide = (width - step.window) // step.stride + 1
    made, columns, depth = step.size_out // (high * wide), step.columns, step.rows
    across = (depth + UNIT - 1) // UNIT * UNIT
    is_copied, is_ragged = step.padding + step.are_planes > 0, made != columns
    return Sizing(
        height, width, step.channels, high, wide, made, columns, depth, across, is_copied, is_ragged
    )


@inline
def place_in_input(step, row, column):
    """Return the place of a pixel's first channel, and the distance of channels."""
    if step.are_planes != 0:
        return row * step.width + column, step.height * step.width
    return (row * step.width + column) * step.channels, 1


@functools.cache
def make_copy_image(dtype: type) -> Callable[..., None]:
    """Make `copy_image(step, size, image, inputs)`: an image of zeros, and the input inside."""
    zero = dtype(0)

    @outline
    def copy_image(step, size, image, inputs):
        compact()
        fill(image, zero)
        for row in range(step.height):
            for column in range(step.width):
                begin, distance = place_in_input(step, row, column)
                place = ((row + step.padding) * size.width + column + step.padding) * size.channels
                for k in range(size.channels):
                    image[place + k] = inputs[begin + k * distance]

    return copy_image


@outline
def copy_back(step, size, slopes, image):
    """Write an image inside its border, or add it, to derivatives by the inputs."""
    compact()
    for row in range(step.height):
        for column in range(step.width):
            begin, distance = place_in_input(step, row, column)
            place = ((row + step.padding) * size.width + column + step.padding) * size.channels
            for k in range(size.channels):
                slopes[begin + k * distance] += image[place + k]


@inline
def copy_rows(out, out_width, rows, width, size):
    """Copy the first `size` numbers of rows."""
    for i in range(out.size // out_width):
        for k in range(size):
            out[i * out_width + k] = rows[i * width + k]


@inline
def part(array, begin, size):
    """Return `size` numbers of an array."""
    return array[begin : begin + size]


@inline
def places_of(step, work, size):
    """Return copies of images, scratch for an image's rows of pixels, and further scratch."""
    saved = saved_of(step, work)
    image = (size.height * size.width * size.channels + UNIT - 1) // UNIT * UNIT
    copies = image * work.samples if size.is_copied else 0
    rows = size.high * size.wide * size.columns if size.is_ragged else 0
    scratch = size.wide * size.across + max(size.across, size.columns)
    return image, part(saved, copies, rows), part(saved, copies + rows, scratch)


@functools.cache
def make_convolve(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a convolution, see `Kind`."""
    zero, none = dtype(0), dtype(-np.inf)
    copy_image = make_copy_image(dtype)

    @outline
    def forward(step, work):
        size, parameters = sizing_of(step), address(parameters_of(step, work))
        copied, rows, _ = places_of(step, work, size)
        pixels, saved = size.high * size.wide, saved_of(step, work)
        weights = Matrix(parameters, 0, size.columns, 1)
        biases = Matrix(parameters, size.depth * size.columns, 0, 1)
        shape = pixels, step.window * size.channels, size.columns
        floor = zero if step.floor != 0 else none
        for i in range(work.samples):
            inputs = part(inputs_of(step, work), i * step.width_in, step.width_in)
            outputs = part(outputs_of(step, work), i * step.width_out, step.width_out)
            if size.is_copied:
                image = part(saved, i * copied, copied)
                copy_image(step, size, image, inputs)
                inputs = image
            line = size.width * size.channels
            far, near = step.stride * line, step.stride * size.channels
            windows = Windows(address(inputs), 0, 0, size.wide, far, near, step.window, line, 1)
            if size.is_ragged:
                out = Matrix(address(rows), 0, size.columns, 1)
                product_of_windows(windows, weights, biases, out, shape, floor)
                fill(outputs, zero)
                copy_rows(outputs[: step.size_out], size.made, rows, size.columns, size.made)
            else:
                out = Matrix(address(outputs), 0, size.columns, 1)
                product_of_windows(windows, weights, biases, out, shape, floor)

    return forward


@functools.cache
def make_convolve_back(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)` of a convolution, see `Kind`."""
    zero, none = dtype(0), dtype(-np.inf)

    @outline
    def add_gradients(step, work, size, image, slopes, start):
        """Add derivatives by weights and biases of one image; `start` is what they begin with."""
        gradients, line = gradients_of(step, work), size.width * size.channels
        count = size.depth * size.columns
        add_rows(gradients[count:], slopes)
        far, near = step.stride * line, step.stride * size.channels
        piece = step.window * size.channels
        windows = Windows(address(image), 0, 0, piece, line, 1, size.high, far, near)
        right = Matrix(address(slopes), 0, size.columns, 1)
        out = Matrix(address(gradients), 0, size.columns, 1)
        shape = size.depth, size.wide, size.columns
        product_of_windows(windows, right, start, out, shape, none)

    @outline
    def to_image(step, work, size, image, slopes, scratch):
        """Add derivatives by an image: those by windows, a line of them at a time."""
        copies, line = address(work.network.copies), step.window * size.channels
        fill(scratch[size.wide * size.across :], zero)
        start = Matrix(address(scratch), size.wide * size.across, 0, 1)
        out = Matrix(address(scratch), 0, size.across, 1)
        weights = Matrix(copies, step.copies, size.across, 1)
        shape = size.wide, size.made, size.across
        for row in range(size.high):
            left = Matrix(address(slopes), row * size.wide * size.columns, size.columns, 1)
            product(left, weights, start, out, shape, none)
            for column in range(size.wide):
                for k in range(step.window):
                    place = (row * step.stride + k) * size.width + column * step.stride
                    sums = part(image, place * size.channels, line)
                    add_to(sums, part(scratch, column * size.across + k * line, line))

    @outline
    def backward(step, work):
        size, gradients = sizing_of(step), gradients_of(step, work)
        copied, rows, scratch = places_of(step, work, size)
        saved, count = saved_of(step, work), size.depth * size.columns
        is_new = work.mode & OVERWRITTEN != 0
        if is_new:
            fill(gradients[count:], zero)
        for i in range(work.samples):
            image = part(inputs_of(step, work), i * step.width_in, step.width_in)
            if size.is_copied:
                image = part(saved, i * copied, copied)
            slopes = part(output_slopes(step, work), i * step.width_out, step.width_out)
            if size.is_ragged:
                fill(rows, zero)
                copy_rows(rows, size.columns, slopes, size.made, size.made)
                slopes = rows
            if wants_parameters(work):
                start = Matrix(address(gradients), 0, size.columns, 1)
                if is_new and i == 0:
                    fill(scratch[: size.columns], zero)
                    start = Matrix(address(scratch), 0, 0, 1)
                add_gradients(step, work, size, image, slopes, start)
            if wants_inputs(step, work):
                out = part(input_slopes(step, work), i * step.width_in, step.width_in)
                if step.adds == 0:
                    fill(out, zero)
                if size.is_copied:
                    fill(image, zero)
                    to_image(step, work, size, image, slopes, scratch)
                    copy_back(step, size, out, image)
                else:
                    to_image(step, work, size, out, slopes, scratch)

    return backward


CONVOLUTION = Kind("convolution", make_convolve, make_convolve_back, takes_floor=True)

# ---------------------------------------------------------------- pools in kernels


@inline
def windows_of(step, size_out):
    """Return height and width of the image that a pool makes."""
    high = (step.height + 2 * step.padding - step.window) // step.stride + 1
    return high, size_out // (high * step.channels)


@inline
def bounds_of(step, number, size):
    """Return the first pixel of a window inside of the image, and the one behind its last."""
    begin = number * step.stride - step.padding
    return max(begin, 0), min(begin + step.window, size)


@functools.cache
def make_pool(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a pool, see `Kind`."""
    zero, none = dtype(0), dtype(-np.inf)

    @inline
    def take_larger(out, pixel):
        for k in range(out.size):
            out[k] = pixel[k] if pixel[k] > out[k] or pixel[k] != pixel[k] else out[k]

    @outline
    def pool(step, inputs, outputs):
        high, wide = windows_of(step, step.size_out)
        for row in range(high):
            first, last = bounds_of(step, row, step.height)
            for column in range(wide):
                left, right = bounds_of(step, column, step.width)
                out = part(outputs, (row * wide + column) * step.channels, step.channels)
                fill(out, none)
                for y in range(first, last):
                    for x in range(left, right):
                        place = (y * step.width + x) * step.channels
                        take_larger(out, part(inputs, place, step.channels))

    @outline
    def forward(step, work):
        for i in range(work.samples):
            inputs = part(inputs_of(step, work), i * step.width_in, step.width_in)
            outputs = part(outputs_of(step, work), i * step.width_out, step.width_out)
            fill(outputs[step.size_out :], zero)
            pool(step, inputs, outputs)

    return forward


@functools.cache
def make_pool_back(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)` of a pool, see `Kind`: the first of equals has the derivative."""
    zero = dtype(0)

    @inline
    def give(image, pixel, out, left):
        for k in range(left.size):
            given = left[k] if pixel[k] == out[k] else zero
            image[k] += given
            left[k] -= given

    @outline
    def through(step, inputs, outputs, slopes, image, rest):
        high, wide = windows_of(step, step.size_out)
        channels = step.channels
        for row in range(high):
            first, last = bounds_of(step, row, step.height)
            for column in range(wide):
                left, right = bounds_of(step, column, step.width)
                made = (row * wide + column) * channels
                for k in range(channels):
                    rest[k] = slopes[made + k]
                for y in range(first, last):
                    for x in range(left, right):
                        place = (y * step.width + x) * channels
                        out, pixel = part(outputs, made, channels), part(inputs, place, channels)
                        give(part(image, place, channels), pixel, out, rest)

    @outline
    def backward(step, work):
        if not wants_inputs(step, work):
            return
        saved = saved_of(step, work)
        image, rest = part(saved, 0, step.width_in), part(saved, step.width_in, step.channels)
        for i in range(work.samples):
            inputs = part(inputs_of(step, work), i * step.width_in, step.width_in)
            outputs = part(outputs_of(step, work), i * step.width_out, step.width_out)
            slopes = part(output_slopes(step, work), i * step.width_out, step.width_out)
            fill(image, zero)
            through(step, inputs, outputs, slopes, image, rest)
            out = part(input_slopes(step, work), i * step.width_in, step.width_in)
            if step.adds == 0:
                fill(out, zero)
            add_to(out, image)

    return backward


MAX_POOL = Kind("max_pool", make_pool, make_pool_back, reads_outputs=True)

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
        made = Picture(height, width, self.channels_of(picture))
        return LayerOutput(made.size, picture=made)

    def count(self, size: int) -> int:
        """Return how many windows lie along so many pixels."""
        return (size + 2 * self.padding - self.window) // self.stride + 1

    def fields(self, source: LayerOutput) -> dict[str, int]:
        """Return further fields of its `Step`; see `Layer`."""
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
        >>> seen = nn.Planes(4, 10, 10) >> nn.Convolution(16, 3) >> nn.Relu()
        >>> nn.Network(400, seen >> nn.Dense(3)).arrays()["convolution0.weights"].shape
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

    def saved_of(self, sizes: Sizes) -> int:
        """Return how many further units a sample needs; see `Layer`."""
        made, seen = sizes.made, sizes.seen
        border = 2 * self.padding
        depth = self.window * self.window * seen.channels
        image = Picture(seen.height + border, seen.width + border, seen.channels)
        is_copied = self.padding > 0 or seen.are_planes
        columns = padded(self.channels)
        rest = made.width * padded(depth) + max(padded(depth), columns)
        if self.channels % UNIT:
            rest += made.height * made.width * columns
        return is_copied * padded(image.size) + padded(rest)

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        shape = self.window * self.window * sizes.seen.channels, self.channels
        initial = functools.partial(orthogonal, shape=shape, gain=self.gain)
        packed = shape[0], padded(self.channels)
        weights = ParameterArray("weights", shape, initial, packed, copied=True)
        return [weights, vector("biases", self.channels, 0.0)]


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

    def saved_of(self, sizes: Sizes) -> int:
        """Return how many further units a sample needs; see `Layer`."""
        return padded(sizes.inputs) + padded(sizes.seen.channels)
