"""Networks as users write them, graphs of layers, and their traces.

`a >> b` feeds the outputs of `a` to `b`. A graph is traced once: every layer is given a
`LayerOutput`, the tensor that it reads, and returns the one that it makes. The trace is a list of
`Draft`s, of which `rlcpu.nn.network.plan` makes instructions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rlcpu.nn.layers.joins import InputPart
    from rlcpu.nn.layers.kind import Kind, Layer


class Graph:
    """Layers of a network, put together."""

    def __rshift__(self, other: Graph) -> Graph:
        """Join two graphs: the second reads the outputs of the first."""
        if not isinstance(other, Graph):
            raise TypeError(f"{self!r} >> {other!r}: expected a layer behind >>")
        return Chain(self, other)

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add the steps of this graph to a trace, and return the tensor that it makes.

        Args:
            trace: added to.
            source: the tensor in front of it, or None.

        Raises:
            ValueError: it does not fit behind that.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class Chain(Graph):
    """One after the other; users write `first >> second`."""

    first: Graph
    second: Graph

    def __repr__(self) -> str:
        return f"{self.first!r} >> {self.second!r}"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add its steps to a trace; see `Graph`."""
        return trace.run(self.second, trace.run(self.first, source))


@dataclasses.dataclass(frozen=True, eq=False)
class Input(Graph):
    """An input of the network, by its name; where there is one alone, layers may begin without."""

    name: str

    def __repr__(self) -> str:
        return f"Input({self.name!r})"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Return the input's tensor, or inside of `Parts` that of a part; see `Graph`."""
        names = trace.parts or trace.inputs
        if self.name not in names:
            raise ValueError(f"{self!r}: the network has the inputs {', '.join(names)}")
        if source is not None and source is not trace.only_input:
            raise ValueError(f"{self!r} stands behind a layer: an input comes first")
        return trace.parts[self.name].tensor(trace) if trace.parts else trace.inputs[self.name]


class Picture(NamedTuple):
    """Sizes of an image between layers, row by row, channels together unless `are_planes`."""

    height: int
    width: int
    channels: int
    are_planes: bool = False

    @property
    def size(self) -> int:
        """Return how many numbers it has."""
        return self.height * self.width * self.channels


@dataclasses.dataclass(eq=False)
class LayerOutput:
    """Tensor between two layers."""

    size: int  # numbers of a sample
    picture: Picture | None = None  # sizes of the image that they are
    shares: LayerOutput | None = None  # the tensor in whose place it is computed
    makers: list[Draft] = dataclasses.field(default_factory=list)  # the steps that write it
    readers: list[Draft] = dataclasses.field(default_factory=list)  # the steps that read it
    is_input: bool = False  # of the network
    is_output: bool = False
    is_part: bool = False  # of an input

    def is_needed_backward(self) -> bool:
        """Tell whether a step that writes it needs it in the backward pass."""
        return any(draft.kind.reads_outputs for draft in self.makers)


@dataclasses.dataclass(eq=False)
class Draft:
    """A step of a network whose numbers have no places yet."""

    kind: Kind  # what it computes
    source: LayerOutput  # the tensor that it reads
    target: LayerOutput  # the tensor that it writes
    option: int = 0  # see `rlcpu.nn.layers.kind.LayerStep`
    fields: Mapping[str, int] = dataclasses.field(default_factory=dict)  # more of the `LayerStep`
    layer: Layer | None = None  # the layer whose step it is
    fuses_relu: bool = False  # it includes the relu behind it, or is a relu that is included


class Trace:
    """Writes down the steps of a graph.

    Args:
        inputs: numbers of each input, by name.

    Attributes:
        inputs: a tensor for each.
        only_input: the only one of them, or None; inside of `Parts` the tensor that has the parts.
        parts: inside of `Parts` each part by its name.
        drafts: all steps, in order.
    """

    def __init__(self, inputs: Mapping[str, int]) -> None:
        self.inputs = {name: LayerOutput(size, is_input=True) for name, size in inputs.items()}
        self.only_input = next(iter(self.inputs.values())) if len(inputs) == 1 else None
        self.drafts: list[Draft] = []
        self.parts: dict[str, InputPart] = {}
        self._outputs: dict[tuple[Graph, LayerOutput | None], LayerOutput] = {}

    def run(self, graph: Graph, source: LayerOutput | None) -> LayerOutput:
        """Add the steps of a graph behind a tensor, and return its output; once for equal calls."""
        if not isinstance(graph, Graph):
            raise TypeError(f"{graph!r}: expected layers, such as nn.Dense(64) >> nn.Relu()")
        key = graph, source
        if key not in self._outputs:
            self._outputs[key] = graph.trace(self, source)
        return self._outputs[key]

    def check(self, graph: Graph, source: LayerOutput | None) -> LayerOutput:
        """Return `source`, the tensor in front of a graph; raise ValueError if there is none."""
        if source is None:
            names = " or ".join(f"nn.Input({name!r})" for name in self.inputs)
            raise ValueError(f"{graph!r} has nothing in front of it: begin with {names}")
        return source

    def add_layer(self, layer: Layer, source: LayerOutput | None) -> LayerOutput:
        """Add the step of a layer, and return its outputs."""
        source = self.check(layer, source)
        if any(draft.layer is layer for draft in self.drafts):
            raise ValueError(f"{layer!r} stands in two places: make another one for the second")
        target, fields = layer.output(source), layer.fields(source)
        option = layer.option
        self.add(Draft(layer.kind, source, target, option=option, fields=fields, layer=layer))
        return target

    def add(self, draft: Draft) -> None:
        """Add a step at the end."""
        self.drafts.append(draft)
        draft.source.readers.append(draft)
        draft.target.makers.append(draft)
