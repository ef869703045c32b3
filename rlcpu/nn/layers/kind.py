"""Kinds of layers: how many numbers they make and learn, and how kernels compute them.

A network is a table of instructions, one for each layer: kernels read a row of it as a `LayerStep`.
The numbers of S samples between two layers, their activations or *units*, are a block of S rows in
one long array; each row is padded to a multiple of `UNIT` numbers, and **the padding holds zeros,
which every kind keeps so**: products then need no other sizes, and padding changes no result.

*Slopes* are derivatives of the loss with respect to units, *gradients* those with respect to
parameters. *Saved units* are what a forward pass of a layer leaves to its backward pass.

A new kind is a file with a `Kind` and a `Layer`. Its functions are called by address, and compiled
for the first network that needs them. They are given `step`, a `LayerStep`, and `work`, the arrays
of a pass over `work.samples` samples (`rlcpu.nn.passes.Work`); functions below say where all lies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import inline
from rlcpu.nn.layers.graph import Graph, LayerOutput, Picture, Trace

#: Rows of units are padded to whole vectors of the widest machine.
UNIT = 16
#: Place of slopes that overwrite their units; a place in the array `slopes` is 0 or more.
IN_PLACE = -1
#: Modes of a pass: forward; or backward, to gradients that are added (`ADDED`) or overwrite
#: (`OVERWRITTEN`), or to slopes of the network's inputs, which overwrite these, or to both (`|`).
FORWARD, ADDED, OVERWRITTEN, BY_INPUTS = 0, 1, 2, 4

Array = npt.NDArray[Any]


class LayerStep(NamedTuple):
    """One instruction of a network: a layer, and where its numbers are.

    Places are counted in numbers of one sample: units of S samples begin at S times the place.

    Attributes:
        forward, backward: addresses of the functions of its kind; 0 in a `NetworkPlan`, whose
            `link` compiles them.
        option: a whole number whose meaning is the kind's.
        floor: 1 where a layer and the relu behind it are computed together, in the steps of both.
        inputs, outputs: places in `units`; equal where a kind works in place.
        width_in, width_out: numbers of a row of inputs and outputs, padded.
        size_in, size_out: the same without padding.
        saved: place of its saved units.
        parameters, end: bounds of its packed parameters.
        rows, columns: of the matrix that they begin with, as packed; 0 without one.
        turned: 1 where this matrix is packed transposed.
        copies: where its transpose is in the network's copies, or -1.
        input_slopes, output_slopes: places in `slopes` of the slopes of inputs and outputs, or
            `IN_PLACE`: where the inputs and outputs are.
        adds_to_slopes: 1 where another layer with the same inputs has written their slopes before,
            to which it adds its own.
        learns_below: 1 where layers in front of it have parameters.
        height, width, channels, are_planes: of an image in front, see `rlcpu.nn.layers.images`.
        window, stride, padding: of windows of the image.
    """

    forward: int = 0
    backward: int = 0
    option: int = 0
    floor: int = 0
    inputs: int = 0
    width_in: int = 0
    size_in: int = 0
    outputs: int = 0
    width_out: int = 0
    size_out: int = 0
    saved: int = 0
    parameters: int = 0
    end: int = 0
    rows: int = 0
    columns: int = 0
    turned: int = 0
    copies: int = -1
    input_slopes: int = IN_PLACE
    output_slopes: int = IN_PLACE
    adds_to_slopes: int = 0
    learns_below: int = 0
    height: int = 0
    width: int = 0
    channels: int = 0
    are_planes: int = 0
    window: int = 0
    stride: int = 0
    padding: int = 0


#: Dtype of a row of a network's table: kernels read its fields by their names too.
STEP = np.dtype([(name, np.int64) for name in LayerStep._fields])


class Kind(NamedTuple):
    """Functions of one kind of layer, for kernels.

    Attributes:
        name: of its arrays of parameters.
        forward: dtype -> `forward(step, work)`, which writes the outputs of all samples.
        backward: dtype -> `backward(step, work)`, which computes gradients and input slopes from
            output slopes, which it may overwrite.
        overwrites_inputs: it writes into the memory of its inputs, outputs or scratch, and gets a
            copy of them where they are the network's or another layer reads them. Their slopes are
            written there too.
        in_place: outputs are what it writes there; such a layer overwrites its inputs.
        reads_outputs: the backward pass needs the outputs.
        takes_floor: it can apply the relu behind it at no cost, see `LayerStep.floor`.
    """

    name: str
    forward: Callable[[type], Callable[..., None]]
    backward: Callable[[type], Callable[..., None]]
    in_place: bool = False
    overwrites_inputs: bool = False
    reads_outputs: bool = False
    takes_floor: bool = False


class Sizes(NamedTuple):
    """Sizes on which the parameters of a layer depend.

    Attributes:
        inputs, outputs: numbers of a sample.
        is_first, is_last: it reads an input of the network; it makes an output of it.
        image_in, image_out: images that it reads and makes, if these are images.
    """

    inputs: int
    outputs: int
    is_first: bool = False
    is_last: bool = False
    image_in: Picture = Picture(0, 0, 0)
    image_out: Picture = Picture(0, 0, 0)


class ParameterArray(NamedTuple):
    """One array of parameters of a layer.

    Attributes:
        name: such as "weights".
        shape: as users and checkpoints have it.
        initial: random numbers -> an array of this shape.
        packed: its shape as kernels have it, padded with zeros.
        turned: kernels have its transpose, of the shape `packed`.
        copied: kernels have the transpose of `packed` too.
    """

    name: str
    shape: tuple[int, ...]
    initial: Callable[[np.random.Generator], Array]
    packed: tuple[int, ...]
    turned: bool = False
    copied: bool = False


class Layer(Graph):
    """A layer as users write it; one object stands in one place of a network."""

    kind: ClassVar[Kind]
    #: Whether an image that it is given stays one.
    keeps_image: ClassVar[bool] = False
    #: Numbers that it remembers of a sequence, which are the first of its saved units.
    state: ClassVar[int] = 0
    #: See `LayerStep`.
    option: int = 0

    def output_size(self, inputs: int) -> int:
        """Return how many outputs it makes of so many inputs.

        Raises:
            ValueError: it does not take so many.
        """
        return inputs

    def output(self, source: LayerOutput) -> LayerOutput:
        """Return the tensor that the layer makes of another.

        Raises:
            ValueError: it does not take that.
        """
        size = self.output_size(source.size)
        return LayerOutput(size, picture=source.picture if self.keeps_image else None)

    def fields(self, source: LayerOutput) -> dict[str, int]:
        """Return fields of its `LayerStep` that no other layer has."""
        return {}

    def saved_of(self, sizes: Sizes) -> int:
        """Return how many saved units it has for a sample."""
        return 0

    def parameters(self, sizes: Sizes) -> list[ParameterArray]:
        """Return its arrays of parameters, matrices first."""
        return []

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add the layer to a trace; see `Graph`."""
        return trace.add_layer(self, source)


def padded(size: int) -> int:
    """Return the size of a row with its padding."""
    return -(-int(size) // UNIT) * UNIT


def vector(name: str, size: int, value: float) -> ParameterArray:
    """Return an array of one number for each output."""
    return ParameterArray(name, (size,), functools.partial(_equal, size, value), (padded(size),))


def _equal(size: int, value: float, _: np.random.Generator) -> Array:
    return np.full(size, value)


# ---------------------------------------------------------------- arrays of a step


@inline
def inputs_of(step, work):
    """Return a step's inputs, (samples * width_in,)."""
    begin = step.inputs * work.samples
    return work.units[begin : begin + step.width_in * work.samples]


@inline
def outputs_of(step, work):
    """Return a step's outputs, (samples * width_out,)."""
    begin = step.outputs * work.samples
    return work.units[begin : begin + step.width_out * work.samples]


@inline
def saved_of(step, work):
    """Return a step's saved units, and everything behind them."""
    return work.units[step.saved * work.samples :]


@inline
def parameters_of(step, work):
    """Return a step's packed parameters."""
    return work.network.parameters[step.parameters : step.end]


@inline
def gradients_of(step, work):
    """Return the gradients of a step's parameters, which are added to or overwritten."""
    return work.gradients[step.parameters : step.end]


@inline
def input_slopes(step, work):
    """Return where slopes of a step's inputs go, (samples * width_in,).

    Other slopes may be there already, see `LayerStep.adds_to_slopes`.
    """
    if step.input_slopes == IN_PLACE:
        return inputs_of(step, work)
    begin = step.input_slopes * work.samples
    return work.slopes[begin : begin + step.width_in * work.samples]


@inline
def output_slopes(step, work):
    """Return the slopes of a step's outputs, (samples * width_out,)."""
    if step.output_slopes == IN_PLACE:
        return outputs_of(step, work)
    begin = step.output_slopes * work.samples
    return work.slopes[begin : begin + step.width_out * work.samples]


@inline
def wants_parameters(work):
    """Tell whether a pass computes gradients."""
    return work.mode & (ADDED | OVERWRITTEN) != 0


@inline
def wants_inputs(step, work):
    """Tell whether a pass computes slopes of a step's inputs."""
    return work.mode & BY_INPUTS != 0 or (step.learns_below != 0 and wants_parameters(work))
