"""Concatenation and sums of several layers' outputs, and parts of one.

They are made of steps that copy a tensor to some columns of another, or some columns of one to a
tensor, or add a tensor to another.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import inline, prefer_small_code
from rlcpu.kernels.machine.memory import part
from rlcpu.nn.layers.graph import Draft, Graph, LayerOutput, Trace
from rlcpu.nn.layers.kind import (
    Kind,
    input_slopes,
    inputs_of,
    output_slopes,
    outputs_of,
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_to, copy, fill


class CopiedColumns(NamedTuple):
    """Columns of a step that copies or adds."""

    count: Any
    first_in: Any  # the first of them in the inputs
    first_out: Any  # the first of them in the outputs


@inline
def columns_of(step):
    """Return the `CopiedColumns`: all of the narrower side, from `step.option` on in the wider."""
    first = step.option
    if step.size_out < step.size_in:
        return CopiedColumns(step.size_out, first_in=first, first_out=0)
    return CopiedColumns(step.size_in, first_in=0, first_out=first)


def copy_columns(step, work):
    """Copy columns of the inputs to columns of the outputs, and zeros to the padding."""
    prefer_small_code()
    outputs, inputs, columns = outputs_of(step, work), inputs_of(step, work), columns_of(step)
    count, end = columns.count, columns.first_out + columns.count
    for i in range(work.samples):
        out = part(outputs, i * step.width_out + columns.first_out, count)
        copy(out, part(inputs, i * step.width_in + columns.first_in, count))
        if end == step.size_out:  # the last columns of a row: its padding follows
            fill(part(outputs, i * step.width_out + end, step.width_out - end), 0.0)


def add_inputs(step, work):
    """Add the inputs to the outputs."""
    add_to(outputs_of(step, work), inputs_of(step, work))


def backward(step, work):
    """Add slopes of the output columns to those of the input columns they were made of."""
    prefer_small_code()
    if not wants_inputs(step, work):
        return
    by_inputs, by_outputs = input_slopes(step, work), output_slopes(step, work)
    columns = columns_of(step)
    if step.adds_to_slopes == 0:
        fill(by_inputs, 0.0)
    for i in range(work.samples):
        slopes = part(by_outputs, i * step.width_out + columns.first_out, columns.count)
        add_to(part(by_inputs, i * step.width_in + columns.first_in, columns.count), slopes)


COPY = Kind("copy", copy_columns, backward)
ADD = Kind("add", add_inputs, backward)
#: Copies some columns of a tensor to one of its own.
TAKE = Kind("part", copy_columns, backward)


class Concatenate(Graph):
    """Numbers of several graphs, one after the other: `nn.Concatenate(nn.Input("x"), ...)`."""

    def __init__(self, *graphs: Graph) -> None:
        self.graphs = _check(self, graphs)

    def __repr__(self) -> str:
        return f"Concatenate({', '.join(map(repr, self.graphs))})"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add its steps to a trace; see `Graph`."""
        parts = [trace.run(graph, source) for graph in self.graphs]
        target, column = LayerOutput(sum(tensor.size for tensor in parts)), 0
        for tensor in parts:
            trace.add(Draft(COPY, tensor, target, option=column))
            column += tensor.size
        return target


class Parts(Graph):
    """Let layers read parts of the numbers in front of them as inputs, `nn.Input(name)`.

    A layer that begins without an input reads all of them.

    Args:
        sizes: numbers of each part by name; they follow each other.
        graph: layers that begin with the parts.

    Example:
        >>> from rlcpu import nn
        >>> features = nn.Concatenate(nn.Input("far") >> nn.Dense(4), nn.Input("near"))
        >>> layers = nn.Parts({"far": 3, "near": 2}, features) >> nn.Dense(2)
        >>> nn.Network(5, layers).outputs([[1.0] * 5]).shape
        (1, 2)
    """

    def __init__(self, sizes: Mapping[str, int], graph: Graph) -> None:
        self.sizes = {name: check_count(f"sizes[{name!r}]", n) for name, n in sizes.items()}
        (self.graph,) = _check(self, (graph,))

    def __repr__(self) -> str:
        return f"Parts({self.sizes}, {self.graph!r})"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add its steps to a trace; see `Graph`.

        While the layers are traced, `nn.Input` finds the parts in `trace.parts`.
        """
        whole, size = trace.check(self, source), sum(self.sizes.values())
        if whole.size != size:
            raise ValueError(f"{self!r} has {size} numbers: what stands in front has {whole.size}")
        parts, first = {}, 0
        for name, count in self.sizes.items():
            parts[name] = InputPart(whole, first, count)
            first += count
        outer = trace.parts, trace.only_input
        trace.parts, trace.only_input = parts, whole
        try:
            output = trace.run(self.graph, whole)
        finally:
            trace.parts, trace.only_input = outer
        # A part may stay unread only where somebody reads the whole.
        reads_all = any(draft.kind is not TAKE for draft in whole.readers) or output is whole
        unread = [name for name, each in parts.items() if each.copied is None]
        if unread and not reads_all:
            raise ValueError(f"no layer reads the part {unread[0]!r}: nn.Input({unread[0]!r})")
        return output


@dataclasses.dataclass
class InputPart:
    """Some numbers of a tensor that layers read as an input."""

    whole: LayerOutput  # the tensor that has them
    first: int  # number of `whole` with which they begin
    count: int
    copied: LayerOutput | None = None  # the tensor that has them alone, once a layer has read it

    def tensor(self, trace: Trace) -> LayerOutput:
        """Return a tensor of these numbers; the first call adds the step that copies them."""
        if self.copied is None:
            self.copied = LayerOutput(self.count, is_part=self.whole.is_input)
            trace.add(Draft(TAKE, self.whole, self.copied, option=self.first))
        return self.copied


class Sum(Graph):
    """The sum of what several graphs make."""

    def __init__(self, *graphs: Graph) -> None:
        self.graphs = _check(self, graphs)

    def __repr__(self) -> str:
        return f"Sum({', '.join(map(repr, self.graphs))})"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add its steps to a trace; see `Graph`."""
        return _add_up(self, trace, [trace.run(graph, source) for graph in self.graphs])


class Residual(Graph):
    """Add the output of a graph to its input (He et al. 2016)."""

    def __init__(self, graph: Graph) -> None:
        (self.graph,) = _check(self, (graph,))

    def __repr__(self) -> str:
        return f"Residual({self.graph!r})"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add its steps to a trace; see `Graph`."""
        if source is None:
            raise ValueError(f"{self!r} has nothing in front of it that it could add")
        return _add_up(self, trace, [trace.run(self.graph, source), source])


def _check(join: Graph, graphs: tuple[Graph, ...]) -> tuple[Graph, ...]:
    for graph in graphs:
        if not isinstance(graph, Graph):
            raise TypeError(f"{type(join).__name__}({graph!r}): expected layers")
    if not graphs:
        raise ValueError(f"{type(join).__name__}(): expected a layer at least")
    return graphs


def _add_up(join: Graph, trace: Trace, parts: list[LayerOutput]) -> LayerOutput:
    """Add the steps that sum tensors, and return the sum."""
    sizes = [tensor.size for tensor in parts]
    if len(set(sizes)) > 1:
        raise ValueError(f"{join!r} adds {' and '.join(map(str, sizes))} numbers: expected as many")
    pictures = {tensor.picture for tensor in parts}
    if len(pictures) > 1:
        raise ValueError(f"{join!r} adds images of other sizes, or an image and other numbers")
    target = LayerOutput(sizes[0], picture=pictures.pop())
    for k, tensor in enumerate(parts):
        trace.add(Draft(ADD if k else COPY, tensor, target))  # the first begins the sum
    return target
