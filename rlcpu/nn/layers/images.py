"""Images between layers: inputs that are images, and windows of them.

Numbers of an image lie row by row, its channels together: (height, width, channels). `Image` and
`Planes` say that a network's input is one; convolutions and pools hand images on, and what works on
each number, normalises or adds keeps them.
"""

from __future__ import annotations

import dataclasses

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import inline
from rlcpu.nn.layers.graph import Graph, LayerOutput, Picture, Trace
from rlcpu.nn.layers.kind import Layer


@inline(plain=True)
def num_windows(pixels, window, stride, padding):
    """Return how many windows lie along so many pixels."""
    return (pixels + 2 * padding - window) // stride + 1


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
        height, width = (
            num_windows(pixels, self.window, self.stride, self.padding)
            for pixels in (picture.height, picture.width)
        )
        if height < 1 or width < 1:
            raise ValueError(
                f"{self!r}: an image of {picture.height} x {picture.width} is too small for it"
            )
        image = Picture(height, width, self.channels_of(picture))
        return LayerOutput(image.size, picture=image)

    def fields(self, source: LayerOutput) -> dict[str, int]:
        """Return further fields of its `LayerStep`; see `Layer`."""
        # `output`, called before, has refused a source without a picture.
        return self.fields_of(source.picture or Picture(0, 0, 0))

    def fields_of(self, image: Picture) -> dict[str, int]:
        """Return fields of its `LayerStep` behind an image."""
        windows = {"window": self.window, "stride": self.stride, "padding": self.padding}
        return {**image._asdict(), "are_planes": int(image.are_planes), **windows}
