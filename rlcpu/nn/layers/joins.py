"""Concatenation and sums of several layers' outputs, and parts of one.

They are made of steps that copy a tensor to some columns of another, or some columns of one to a
tensor, or add a tensor to another.

Kernels are given `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.passes.Work`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import inline, outline, prefer_small_code
from rlcpu.nn.layers.graph import Draft, Graph, LayerOutput, Trace
from rlcpu.nn.layers.kind import (
    Kind,
    input_slopes,
    inputs_of,
    output_slopes,
    outputs_of,
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_to, fill


@inline
def copy(out, row):
    """Copy one row to another."""
    for k in range(row.size):
        out[k] = row[k]


@inline
def columns_of(step):
    """Return how many columns are copied, and the first of them in the inputs and in the outputs.

    `step.option` is the first column in the wider of the two.
    """
    if step.size_out < step.size_in:
        return step.size_out, step.option, 0
    return step.size_in, 0, step.option


@functools.cache
def make_copy(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)` of a copy, see `Kind`."""
    zero = dtype(0)

    @outline
    def forward(step, work):
        """Copy columns of the inputs to columns of the outputs, and zeros to the padding."""
        prefer_small_code()
        outputs, inputs = outputs_of(step, work), inputs_of(step, work)
        count, first_in, first_out = columns_of(step)
        for i in range(work.samples):
            out, row = i * step.width_out + first_out, i * step.width_in + first_in
            copy(outputs[out : out + count], inputs[row : row + count])
            if first_out + count == step.size_out:
                fill(outputs[out + count : (i + 1) * step.width_out], zero)

    return forward


@functools.cache
def make_add(dtype: type) -> Callable[..., None]:
    """Make `forward(step, work)`, see `Kind`: adds to the outputs."""

    @outline
    def forward(step, work):
        add_to(outputs_of(step, work), inputs_of(step, work))

    return forward


@functools.cache
def make_backward(dtype: type) -> Callable[..., None]:
    """Make `backward(step, work)` of copies and additions, see `Kind`."""
    zero = dtype(0)

    @outline
    def backward(step, work):
        """Add slopes of the output columns to those of the input columns they were made of."""
        prefer_small_code()
        if not wants_inputs(step, work):
            return
        by_inputs, by_outputs = input_slopes(step, work), output_slopes(step, work)
        count, first_in, first_out = columns_of(step)
        if step.adds_to_slopes == 0:
            fill(by_inputs, zero)
        for i in range(work.samples):
            out, row = i * step.width_out + first_out, i * step.width_in + first_in
            add_to(by_inputs[row : row + count], by_outputs[out : out + count])

    return backward


COPY = Kind("copy", make_copy, make_backward)
ADD = Kind("add", make_add, make_backward)
#: Copies some columns of a tensor to one of its own.
TAKE = Kind("part", make_copy, make_backward)


class Concatenate(Graph):
    """Numbers of several graphs, one after the other: `nn.Concatenate(nn.Input("x"), ...)`."""

    def __init__(self, *graphs: Graph) -> None:
        self.graphs = _check(self, graphs)

    def __repr__(self) -> str:
        return f"Concatenate({', '.join(map(repr, self.graphs))})"

    def trace(self, trace: Trace, source: LayerOutput | None) -> LayerOutput:
        """Add its steps to a trace; see `Graph`."""
        parts = [trace.run(graph, source) for graph in self.graphs]
        target, column = LayerOutput(sum(part.size for part in parts)), 0
        for part in parts:
            trace.add(Draft(COPY, part, target, column))
            column += part.size
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

        While the layers are traced, `trace.parts` says how to get the tensor of each part, which
        adds the step that copies it when the first layer asks for it.
        """
        whole, size = trace.check(self, source), sum(self.sizes.values())
        if whole.size != size:
            raise ValueError(f"{self!r} has {size} numbers: what stands in front has {whole.size}")
        tensors: dict[str, LayerOutput] = {}
        parts: dict[str, Callable[[], LayerOutput]] = {}
        first = 0
        for name, count in self.sizes.items():
            parts[name] = functools.partial(_part, trace, whole, tensors, name, first, count)
            first += count
        outer = trace.parts, trace.only_input
        trace.parts, trace.only_input = parts, whole
        try:
            output = trace.run(self.graph, whole)
        finally:
            trace.parts, trace.only_input = outer
        reads_all = any(draft.kind is not TAKE for draft in whole.readers) or output is whole
        unread = [name for name in self.sizes if name not in tensors]
        if unread and not reads_all:
            raise ValueError(f"no layer reads the part {unread[0]!r}: nn.Input({unread[0]!r})")
        return output


def _part(
    trace: Trace,
    whole: LayerOutput,
    tensors: dict[str, LayerOutput],
    name: str,
    first: int,
    count: int,
) -> LayerOutput:
    """Return the tensor of a part, and add the step that copies it where it is the first time.

    Args:
        trace: to which the step is added.
        whole: the tensor that has the part.
        tensors: those of parts that were asked for already, by name; extended.
        name: of the part.
        first: its first number in `whole`.
        count: how many numbers it has.
    """
    if name not in tensors:
        tensors[name] = LayerOutput(count, is_part=whole.is_input)
        trace.add(Draft(TAKE, whole, tensors[name], first))
    return tensors[name]


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
    sizes = [part.size for part in parts]
    if len(set(sizes)) > 1:
        raise ValueError(f"{join!r} adds {' and '.join(map(str, sizes))} numbers: expected as many")
    pictures = {part.picture for part in parts}
    if len(pictures) > 1:
        raise ValueError(f"{join!r} adds images of other sizes, or an image and other numbers")
    target = LayerOutput(sizes[0], picture=pictures.pop())
    for k, part in enumerate(parts):
        trace.add(Draft(ADD if k else COPY, part, target))
    return target
