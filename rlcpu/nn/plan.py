"""From a graph of layers to a table of instructions: where all numbers of a network are.

Numbers of a sample between layers, its *units*, lie one block after the other: the network's inputs
first, then the outputs of each layer. Parameters lie in the order of the layers, twice: *flat*, as
users and checkpoints have them, and *packed*, as kernels read them, in rows padded with zeros; see
`rlcpu.nn.layers.kind`. A matrix may be packed transposed. *Copies* are the transposed matrices of
packed parameters.

*Slopes*, the derivatives of the loss with respect to units, overwrite the units where these are not
needed any more: where one layer reads them, and the layer that made them does not need them in the
backward pass. All others have a place in `slopes`, which tensors share that need it at different
times.

The trace of a graph is a list of drafts, steps that read one tensor and write another
(`rlcpu.nn.layers.graph`); here each gets places, and becomes a `LayerStep`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.nn.layers.activations import RELU
from rlcpu.nn.layers.dense import DENSE
from rlcpu.nn.layers.graph import Draft, Graph, LayerOutput, Picture, Trace
from rlcpu.nn.layers.joins import COPY
from rlcpu.nn.layers.kind import IN_PLACE, STEP, Kind, LayerStep, ParameterArray, Sizes, padded

Array = npt.NDArray[Any]


class TensorPlace(NamedTuple):
    """Place of an input or output of a network.

    Those of S samples are units[offset * S : (offset + width) * S], rows of `width` numbers of
    which the first `size` count; the others are 0.
    """

    offset: int
    width: int
    size: int


class PlacedArray(NamedTuple):
    """An array of parameters and its place.

    Attributes:
        name: of its layer and itself, such as "dense0.weights".
        parameters: its shapes.
        flat, packed: where it begins in the flat and in the packed parameters.
    """

    name: str
    parameters: ParameterArray
    flat: int
    packed: int


@dataclasses.dataclass(frozen=True)
class NetworkPlan:
    """Places and sizes of a network, for kernels.

    Attributes:
        table: (num_steps,) of dtype `STEP`, instructions, without addresses of functions.
        kinds: of layers, one for each instruction.
        inputs, outputs: (number of them, 3) int64, rows of `TensorPlace`.
        states: (number of them, 3) int64, rows of `TensorPlace`, of layers with memory: states
            before the first time step, followed by those after each.
        units: numbers of a sample, of all layers.
        slopes: a backward pass over S samples needs (S + 1) * slopes numbers of scratch.
        parameters, flat: how many packed and flat parameters there are.
        copies: how many numbers of transposed matrices there are.
        arrays: all parameters, in the order of both.
        graph: arguments of `plan_of`: sizes of inputs and layers of outputs, by name.
    """

    table: Array
    kinds: tuple[Kind, ...]
    inputs: npt.NDArray[np.int64]
    outputs: npt.NDArray[np.int64]
    states: npt.NDArray[np.int64]
    units: int
    slopes: int
    parameters: int
    flat: int
    copies: int
    arrays: tuple[PlacedArray, ...]
    graph: tuple[dict[str, int], dict[str, Graph]]

    def __reduce__(self) -> Any:
        return plan_of, self.graph

    @property
    def steps(self) -> list[LayerStep]:
        """Return the rows of the table, with names."""
        return [LayerStep(*row) for row in self.table.tolist()]

    @property
    def state_size(self) -> int:
        """Return the numbers that layers with memory remember of a sequence."""
        return int(self.states[:, 1].sum())

    @property
    def takes_ones(self) -> bool:
        """Tell whether the input may be `Ones`: sums of rows replace the first layer's product."""
        step = LayerStep(*self.table[0].tolist())
        is_first = self.kinds[0] is DENSE and step.inputs == 0 and step.copies < 0
        return is_first and step.output_slopes == IN_PLACE

    def flat_views(self, flat: Array) -> list[Array]:
        """Return each array of parameters as a view of flat ones."""
        return [
            flat[array.flat : array.flat + math.prod(array.parameters.shape)].reshape(
                array.parameters.shape
            )
            for array in self.arrays
        ]

    def packed_views(self, packed: Array) -> list[Array]:
        """Return each array of parameters as a view of packed ones."""
        views = []
        for array in self.arrays:
            shape = array.parameters.packed
            view = packed[array.packed : array.packed + math.prod(shape)].reshape(shape)
            view = view.T if array.parameters.is_transposed else view
            views.append(view[tuple(slice(size) for size in array.parameters.shape)])
        return views

    def copied_views(
        self, packed: Array, copies: Array, is_learnt: bool = True
    ) -> list[tuple[Array, Array]]:
        """Return pairs of views (columns, rows): a transposed copy, and the packed matrix.

        Without backward passes (`is_learnt`) only the copies of transposed matrices are read.
        """
        pairs = []
        for step in self.steps:
            if step.copies >= 0 and (is_learnt or step.is_transposed):
                rows, columns, padded_rows = step.rows, step.columns, padded(step.rows)
                copy = copies[step.copies : step.copies + columns * padded_rows]
                weights = packed[step.parameters : step.parameters + rows * columns]
                transposed = weights.reshape(rows, columns).T
                pairs.append((copy.reshape(columns, padded_rows)[:, :rows], transposed))
        return pairs

    def pack(self, flat: Array, dtype: Any) -> Array:
        """Return packed parameters made of flat ones."""
        packed = np.zeros(self.parameters, dtype)
        for view, array in zip(self.packed_views(packed), self.flat_views(flat), strict=True):
            view[...] = array
        return packed

    def unpack(self, packed: Array, dtype: Any) -> Array:
        """Return flat parameters, or derivatives by them, made of packed ones."""
        flat = np.zeros(self.flat, dtype)
        for view, array in zip(self.flat_views(flat), self.packed_views(packed), strict=True):
            view[...] = array
        return flat

    def initial(self, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Draw initial flat parameters."""
        parts = [array.parameters.initial(rng).ravel() for array in self.arrays]
        return np.concatenate([np.zeros(0), *parts]).astype(np.float32)


def plan_of(inputs: Mapping[str, int], outputs: Mapping[str, Graph]) -> NetworkPlan:
    """Return the plan of a network.

    Args:
        inputs: numbers of each input, by name.
        outputs: the layers of each output, by name.

    Raises:
        TypeError, ValueError: layers do not fit together.
    """
    trace = Trace(inputs)
    results = [trace.run(graph, trace.only_input) for graph in outputs.values()]
    for name, tensor in trace.inputs.items():
        if not tensor.readers:
            raise ValueError(f"no layer reads the input {name!r}")
    drafts = _copy_where_needed(trace.drafts, list(trace.inputs.values()), results)
    _fuse_relus(drafts)
    plan = _place(drafts, list(trace.inputs.values()), results)
    return dataclasses.replace(plan, graph=(dict(inputs), dict(outputs)))


# ---------------------------------------------------------------- steps


def _copy_where_needed(
    drafts: list[Draft], inputs: list[LayerOutput], outputs: list[LayerOutput]
) -> list[Draft]:
    """Return the steps without copies that are not needed, and with all that layers need.

    A copy is inserted
    - behind an input with several readers: slopes of an input belong to the caller, and are not
      added up; those of its copy are,
    - in the place of an output that is an input, another output, or read by a layer: `outputs` gets
      the copy,
    - in front of a layer that writes into its inputs, if they are the network's, or another layer
      reads them, forward or backward.
    """
    remaining = []
    for draft in drafts:
        if draft.kind is COPY and _is_removable(draft, outputs):
            _remove_copy(draft)
        else:
            remaining.append(draft)
    result = [_insert_copy(each, each.readers) for each in inputs if len(each.readers) > 1]
    for k, tensor in enumerate(outputs):
        if tensor.is_input or tensor.is_output or tensor.readers or tensor.is_needed_backward():
            copy = _insert_copy(tensor, [])
            remaining.append(copy)
            outputs[k] = copy.target
        outputs[k].is_output = True
    for draft in remaining:
        source = draft.source
        if draft.kind.overwrites_inputs:
            is_alone = len(source.readers) == 1 and not source.is_needed_backward()
            if source.is_input or not is_alone:
                result.append(_insert_copy(source, [draft]))
            if draft.kind.in_place:
                draft.target.shares = draft.source  # the same memory
        result.append(draft)
    for draft in result:
        draft.source.readers, draft.target.makers = [], []
    for draft in result:
        draft.source.readers.append(draft)
        draft.target.makers.append(draft)
    return result


def _is_removable(copy: Draft, outputs: list[LayerOutput]) -> bool:
    """Tell whether the step that makes a copy's source may write to its target at once."""
    source = copy.source
    is_whole = copy.option == 0 and source.size == copy.target.size
    is_alone = len(source.readers) == 1 and not source.is_needed_backward()
    return is_whole and is_alone and source not in outputs and not source.is_input


def _remove_copy(copy: Draft) -> None:
    """Let the steps that write the source of a copy write to its target."""
    source, target = copy.source, copy.target
    for maker in source.makers:
        maker.target = target
    target.makers = source.makers + [maker for maker in target.makers if maker is not copy]


def _insert_copy(tensor: LayerOutput, readers: list[Draft]) -> Draft:
    """Return a step that copies a tensor, and let some of its readers read the copy."""
    copy = Draft(COPY, tensor, LayerOutput(tensor.size, tensor.picture))
    tensor.readers = [each for each in tensor.readers if each not in readers] + [copy]
    copy.target.makers.append(copy)
    for reader in readers:
        reader.source = copy.target
        copy.target.readers.append(reader)
    return copy


def _fuse_relus(drafts: list[Draft]) -> None:
    """Let layers compute the relu behind them, where that costs nothing; see `Draft.fuses_relu`."""
    for draft in drafts:
        if draft.kind is RELU and len(draft.source.makers) == 1:
            (maker,) = draft.source.makers
            draft.fuses_relu = maker.fuses_relu = maker.kind.fuses_relu


# ---------------------------------------------------------------- places


def _place(
    drafts: list[Draft], inputs: list[LayerOutput], outputs: list[LayerOutput]
) -> NetworkPlan:
    """Return the plan of a network: a step for each draft, with the places of its numbers."""
    units, saved, num_units = _place_units(drafts, inputs)
    slopes, num_slopes = _place_slopes(drafts)
    steps, arrays, states, learns = [], [], [], set[LayerOutput]()
    flat = packed = copies = 0
    layer_counts: dict[str, int] = {}  # by name of a kind, for names of arrays
    for draft, saved_at in zip(drafts, saved, strict=True):
        source, target, kind = draft.source, draft.target, draft.kind.name
        step = LayerStep(
            option=draft.option,
            fuses_relu=int(draft.fuses_relu),
            inputs=units[source],
            width_in=padded(source.size),
            size_in=source.size,
            outputs=units[target],
            width_out=padded(target.size),
            size_out=target.size,
            saved=saved_at,
            parameters=packed,
            input_slopes=slopes.get(source, IN_PLACE),
            output_slopes=slopes.get(target, IN_PLACE),
            adds_to_slopes=int(draft is not source.readers[-1]),
            learns_below=int(source in learns),
            **draft.fields,
        )
        if draft.layer is not None and draft.layer.state:
            states.append(TensorPlace(saved_at, draft.layer.state, draft.layer.state))
        parameters = _parameters_of(draft)
        if parameters and len(parameters[0].packed) == 2:
            (rows, columns), matrix = parameters[0].packed, parameters[0]
            is_transposed = int(matrix.is_transposed)
            step = step._replace(rows=rows, columns=columns, is_transposed=is_transposed)
            if matrix.copied:
                step = step._replace(copies=copies)
                copies += columns * padded(rows)
        for each in parameters:
            name = f"{kind}{layer_counts.get(kind, 0)}.{each.name}"
            arrays.append(PlacedArray(name, each, flat, packed))
            flat, packed = flat + math.prod(each.shape), packed + math.prod(each.packed)
        if parameters:
            layer_counts[kind] = layer_counts.get(kind, 0) + 1
        if parameters or source in learns:
            learns.add(target)
        steps.append(step._replace(end=packed))
    widths = [max(step.width_in, step.width_out) for step in steps]
    return NetworkPlan(
        table=np.array(steps, STEP),
        kinds=tuple(draft.kind for draft in drafts),
        inputs=_places(inputs, units),
        outputs=_places(outputs, units),
        states=np.array(states, np.int64).reshape(-1, 3),
        units=num_units,
        slopes=max(num_slopes, *widths),
        parameters=packed,
        flat=flat,
        copies=copies,
        arrays=tuple(arrays),
        graph=({}, {}),
    )


def _place_units(
    drafts: list[Draft], inputs: list[LayerOutput]
) -> tuple[dict[LayerOutput, int], list[int], int]:
    """Return the places in `units` of all tensors and of each draft's saved units, and the size."""
    places: dict[LayerOutput, int] = {}
    saved, end = [], 0
    for tensor in inputs:
        places[tensor], end = end, end + padded(tensor.size)
    for draft in drafts:
        saved.append(end)
        if draft.layer is not None:
            end += draft.layer.num_saved(_sizes_of(draft))
        target = draft.target
        if target not in places:  # by its first part or addend
            if target.shares is not None:  # computed in place
                places[target] = places[target.shares]
            else:
                places[target], end = end, end + padded(target.size)
    return places, saved, end


def _parameters_of(draft: Draft) -> list[ParameterArray]:
    """Return the arrays of parameters of a draft's layer."""
    return [] if draft.layer is None else draft.layer.parameters(_sizes_of(draft))


def _sizes_of(draft: Draft) -> Sizes:
    """Return the sizes on which a layer's parameters depend."""
    source, target, none = draft.source, draft.target, Picture(0, 0, 0)
    pictures = source.picture or none, target.picture or none
    return Sizes(source.size, target.size, source.is_input, target.is_output, *pictures)


def _places(tensors: list[LayerOutput], units: dict[LayerOutput, int]) -> npt.NDArray[np.int64]:
    """Return rows of `TensorPlace` for tensors, whose places `units` has."""
    places = [TensorPlace(units[each], padded(each.size), each.size) for each in tensors]
    return np.array(places, np.int64)


def _place_slopes(drafts: list[Draft]) -> tuple[dict[LayerOutput, int], int]:
    """Return the places in `slopes` of the slopes of tensors, and how many numbers there are.

    Slopes that overwrite their tensor have no place. In the backward pass a place is in use from
    the last reader of a tensor to its first maker: the first gap that is wide enough is taken.
    """
    places: dict[LayerOutput, int] = {}
    in_use: list[tuple[int, int, LayerOutput]] = []  # first number, end, tensor
    size = 0
    for draft in reversed(drafts):
        source = draft.source
        is_alone = len(source.readers) == 1 and not source.is_output
        if source not in places and not (is_alone and not source.is_needed_backward()):
            begin, width = 0, padded(source.size)
            for first, end, _ in sorted(in_use, key=lambda each: each[0]):
                if begin + width <= first:
                    break
                begin = max(begin, end)
            places[source] = begin
            in_use.append((begin, begin + width, source))
            size = max(size, begin + width)
        if draft is draft.target.makers[0]:
            in_use = [each for each in in_use if each[2] is not draft.target]
    return places, size
