"""Kinds of layers: how many numbers they make and learn, and how kernels compute them.

A network is a table of instructions, one for each layer: kernels read a row of it as a `LayerStep`.
The numbers of S samples between two layers, their activations or *units*, are a block of S rows in
one long array; each row is padded to a multiple of `UNIT` numbers, and **the padding holds zeros,
which every kind keeps so**: products then need no other sizes, and padding changes no result.

*Slopes* are derivatives of the loss with respect to units, *gradients* those with respect to
parameters. *Saved units* are what a forward pass of a layer leaves to its backward pass.

A new kind is a file with a `Kind` and a `Layer`. Its functions are called by address, and compiled
for the first network that needs them. They are given `step`, a `LayerStep`, and `work`, the arrays
of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`); functions below say where
all lies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.memory import part, shifted
from rlcpu.nn.layers.graph import Graph, LayerOutput, Picture, Trace
from rlcpu.nn.layers.rows import row_at

#: Rows of units are padded to whole vectors of the widest machine.
UNIT = 16
#: Place of slopes that overwrite their units; a place in the array `slopes` is 0 or more.
IN_PLACE = -1
#: Modes of a pass: forward; or backward, to gradients that are added (`ADDED`) or overwrite
#: (`OVERWRITTEN`), or to slopes of the network's inputs, which overwrite these, or to both (`|`).
FORWARD, ADDED, OVERWRITTEN, BY_INPUTS = 0, 1, 2, 4
#: Modes in which gradients are computed.
BY_PARAMETERS = ADDED | OVERWRITTEN

Array = npt.NDArray[Any]


class LayerStep(NamedTuple):
    """One instruction of a network: a layer, and where its numbers are.

    Places are counted in numbers of one sample: units of S samples begin at S times the place.
    """

    forward: int = 0  # addresses of the functions of its kind; 0 in a `NetworkPlan`, whose
    backward: int = 0  # `link` compiles them
    option: int = 0  # `Embedding`: choices; cells: length of a state; copies: a first column
    fuses_relu: int = 0  # 1 in a layer that computes the relu behind it too, and in that relu
    inputs: int = 0  # place in `units` of the inputs
    width_in: int = 0  # numbers of a row of inputs, padded
    size_in: int = 0  # the same without padding
    outputs: int = 0  # place in `units` of the outputs; that of the inputs where a kind is in place
    width_out: int = 0  # numbers of a row of outputs, padded
    size_out: int = 0  # the same without padding
    saved: int = 0  # place in `units` of the saved units
    parameters: int = 0  # bounds of the packed parameters: the first,
    end: int = 0  # and the one behind the last
    rows: int = 0  # of the matrix that the parameters begin with, as packed; 0 without one
    columns: int = 0
    is_transposed: int = 0  # 1 where this matrix is packed transposed
    copies: int = -1  # where its transpose is in the network's copies; -1 without one
    input_slopes: int = IN_PLACE  # places in `slopes` of the slopes of inputs and outputs, or
    output_slopes: int = IN_PLACE  # `IN_PLACE`: where the inputs and outputs are
    adds_to_slopes: int = 0  # 1 where another layer with the same inputs writes their slopes before
    learns_below: int = 0  # 1 where layers in front of it have parameters
    height: int = 0  # of an image in front, see `rlcpu.nn.layers.images`
    width: int = 0
    channels: int = 0
    are_planes: int = 0
    window: int = 0  # height and width of windows of the image
    stride: int = 0
    padding: int = 0


#: Dtype of a row of a network's table: kernels read its fields by their names too.
STEP = np.dtype([(name, np.int64) for name in LayerStep._fields])


class Kind(NamedTuple):
    """Functions of one kind of layer, plain Python for kernels of any dtype.

    A layer has to bring `name`, `forward`, `backward`, and a `Layer` of this `kind`. All else has
    defaults: those of a layer without parameters that makes as many numbers as it is given.
    """

    #: Of its arrays of parameters, such as "dense".
    name: str
    #: (step, work): writes the outputs of all samples.
    forward: Callable[..., None]
    #: (step, work): computes gradients and input slopes from output slopes, which it may overwrite.
    backward: Callable[..., None]
    #: Outputs are what it writes in the place of its inputs, which it so overwrites.
    in_place: bool = False
    #: It writes into the memory of its inputs, outputs or scratch, and gets a copy of them where
    #: they are the network's or another layer reads them. Their slopes are written there too.
    overwrites_inputs: bool = False
    #: The backward pass needs the outputs.
    reads_outputs: bool = False
    #: It can compute the relu behind it at no cost, see `LayerStep.fuses_relu`.
    fuses_relu: bool = False


class LayerSizes(NamedTuple):
    """Sizes on which the parameters of a layer depend."""

    inputs: int  # numbers of a sample
    outputs: int
    is_first: bool = False  # it reads an input of the network
    is_last: bool = False  # it makes an output of the network
    image_in: Picture = Picture(0, 0, 0)  # that it reads, if its inputs are one
    image_out: Picture = Picture(0, 0, 0)


class ParameterArray(NamedTuple):
    """One array of parameters of a layer."""

    name: str  # such as "weights"
    shape: tuple[int, ...]  # as users and checkpoints have it
    initial: Callable[[np.random.Generator], Array]  # random numbers -> an array of this shape
    packed: tuple[int, ...]  # its shape as kernels have it, padded with zeros
    is_transposed: bool = False  # kernels have its transpose, of the shape `packed`
    copied: bool = False  # kernels have the transpose of `packed` too


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

    def num_saved(self, sizes: LayerSizes) -> int:
        """Return how many saved units it has for a sample."""
        return 0

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
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
    return part(work.units, step.inputs * work.samples, step.width_in * work.samples)


@inline
def outputs_of(step, work):
    """Return a step's outputs, (samples * width_out,)."""
    return part(work.units, step.outputs * work.samples, step.width_out * work.samples)


@inline
def saved_of(step, work):
    """Return a pointer to a step's saved units."""
    return shifted(work.units, step.saved * work.samples)


@inline
def input_row(step, work, i):
    """Return the inputs of sample i, (width_in,)."""
    return row_at(inputs_of(step, work), i, step.width_in)


@inline
def output_row(step, work, i):
    """Return the outputs of sample i, (width_out,)."""
    return row_at(outputs_of(step, work), i, step.width_out)


@inline
def parameters_of(step, work):
    """Return a step's packed parameters."""
    return part(work.network.parameters, step.parameters, step.end - step.parameters)


@inline
def gradients_of(step, work):
    """Return the gradients of a step's parameters, which are added to or overwritten."""
    return part(work.gradients, step.parameters, step.end - step.parameters)


@inline
def input_slopes(step, work):
    """Return where slopes of a step's inputs go, (samples * width_in,).

    Other slopes may be there already, see `LayerStep.adds_to_slopes`.
    """
    if step.input_slopes == IN_PLACE:
        return inputs_of(step, work)
    return part(work.slopes, step.input_slopes * work.samples, step.width_in * work.samples)


@inline
def output_slopes(step, work):
    """Return the slopes of a step's outputs, (samples * width_out,)."""
    if step.output_slopes == IN_PLACE:
        return outputs_of(step, work)
    return part(work.slopes, step.output_slopes * work.samples, step.width_out * work.samples)


@inline
def spare_row(step, work):
    """Return scratch of a backward pass, as long as a row of inputs or of outputs, the longer one.

    It is the end of `work.slopes`, which has a row more than the slopes of all samples.
    """
    size = max(step.width_in, step.width_out)
    return part(work.slopes, work.num_slopes - size, size)


@inline
def wants_inputs(step, work):
    """Tell whether a pass computes slopes of a step's inputs."""
    wanted = BY_INPUTS | BY_PARAMETERS if step.learns_below != 0 else BY_INPUTS
    return work.mode & wanted != 0
