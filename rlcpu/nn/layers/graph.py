"""Networks as users write them: layers that are put together, and what is traced of them.

`a >> b` gives what `a` makes to `b`. A graph is traced once: every layer is given a
`LayerOutput`, which says where numbers come from, and returns one. `rlcpu.nn.plan` makes
instructions of the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rlcpu.nn.layers.kind import Kind, Layer


class Graph:
    """Layers of a network: what is traced by it."""

    def __rshift__(self, other: Graph) -> Graph:
        """Join two graphs: the second reads the outputs of the first."""
        if not isinstance(other, Graph):
            raise TypeError(f"{self!r} >> {other!r}: expected a layer behind >>")
        return Chain(self, other)

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add this to a trace; `source` is what stands in front of it.

        Raises:
            ValueError: it does not fit there.
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
        """Add its steps to a trace; see `Graph`."""
        known = trace.parts or trace.inputs
        if self.name not in known:
            raise ValueError(f"{self!r}: the network has the inputs {', '.join(known)}")
        if source is not None and source is not trace.only_input:
            raise ValueError(f"{self!r} stands behind a layer: an input comes first")
        return trace.parts[self.name]() if trace.parts else trace.inputs[self.name]


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
    """Numbers between two layers.

    Attributes:
        size: how many for a sample.
        picture: the image that they are, or None.
        shares: the tensor in whose place these are, or None.
        makers, readers: the steps that write and read it.
        is_input, is_output: of the network.
        is_part: it is a part of an input.
    """

    size: int
    picture: Picture | None = None
    shares: LayerOutput | None = None
    makers: list[Draft] = dataclasses.field(default_factory=list)
    readers: list[Draft] = dataclasses.field(default_factory=list)
    is_input: bool = False
    is_output: bool = False
    is_part: bool = False

    def is_needed_backward(self) -> bool:
        """Tell whether a step that writes it needs it in the backward pass."""
        return any(draft.kind.reads_outputs for draft in self.makers)


@dataclasses.dataclass(eq=False)
class Draft:
    """An instruction without places.

    Attributes:
        kind: what is done.
        source, target: tensors.
        option: see `rlcpu.nn.layers.kind.Step`.
        fields: further ones of the `Step`.
        layer: what it is made for, or None.
        floor: whether it includes a relu, or is one that is included.
    """

    kind: Kind
    source: LayerOutput
    target: LayerOutput
    option: int = 0
    fields: Mapping[str, int] = dataclasses.field(default_factory=dict)
    layer: Layer | None = None
    floor: bool = False


class Trace:
    """Writes down the steps of a graph.

    Args:
        inputs: numbers of each input, by name.

    Attributes:
        inputs: a tensor for each.
        only_input: the only one of them, or None; inside of `Parts` what these are parts of.
        parts: inside of `Parts`, what gives the tensor of each by its name.
        drafts: all steps, in order.
    """

    def __init__(self, inputs: Mapping[str, int]) -> None:
        self.inputs = {name: LayerOutput(size, is_input=True) for name, size in inputs.items()}
        self.only_input = next(iter(self.inputs.values())) if len(inputs) == 1 else None
        self.drafts: list[Draft] = []
        self.parts: dict[str, Callable[[], LayerOutput]] = {}
        self._made: dict[tuple[Graph, LayerOutput | None], LayerOutput] = {}

    def run(self, graph: Graph, source: LayerOutput | None) -> LayerOutput:
        """Return the output of a graph for a tensor; equal calls share their steps."""
        if not isinstance(graph, Graph):
            raise TypeError(f"{graph!r}: expected layers, such as nn.Dense(64) >> nn.Relu()")
        key = graph, source
        if key not in self._made:
            self._made[key] = graph.trace(self, source)
        return self._made[key]

    def check(self, graph: Graph, source: LayerOutput | None) -> LayerOutput:
        """Return the tensor in front of a graph, or raise ValueError if there is none."""
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
        self.add(Draft(layer.kind, source, target, layer.option, fields, layer))
        return target

    def add(self, draft: Draft) -> None:
        """Add a step at the end."""
        self.drafts.append(draft)
        draft.source.readers.append(draft)
        draft.target.makers.append(draft)
