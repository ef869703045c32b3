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
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.nn.layers.activations import RELU
from rlcpu.nn.layers.dense import DENSE
from rlcpu.nn.layers.graph import Draft, Graph, LayerOutput, Picture, Trace
from rlcpu.nn.layers.joins import COPY
from rlcpu.nn.layers.kind import IN_PLACE, STEP, Kind, LayerSizes, LayerStep, ParameterArray, padded

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
    """An array of parameters and its place."""

    name: str  #: of its layer and itself, such as "dense0.weights"
    parameters: ParameterArray  #: its shapes
    flat: int  #: where it begins in the flat parameters
    packed: int  #: where it begins in the packed parameters


@dataclasses.dataclass(frozen=True)
class NetworkPlan:
    """Places and sizes of a network, for kernels."""

    table: Array  #: (num_steps,) of dtype `STEP`, instructions, without addresses of functions
    kinds: tuple[Kind, ...]  #: of layers, one for each instruction
    inputs: npt.NDArray[np.int64]  #: (number of them, 3), rows of `TensorPlace`
    outputs: npt.NDArray[np.int64]  #: (number of them, 3), rows of `TensorPlace`
    #: (number of layers with memory, 3), rows of `TensorPlace`: their states before the first time
    #: step, followed by those after each.
    states: npt.NDArray[np.int64]
    units: int  #: numbers of a sample, of all layers
    slopes: int  #: a backward pass over S samples needs (S + 1) * slopes numbers of scratch
    parameters: int  #: how many packed parameters there are
    flat: int  #: how many flat ones
    copies: int  #: how many numbers of transposed matrices there are
    arrays: tuple[PlacedArray, ...]  #: all parameters, in the order of both
    #: Arguments of `plan_of`: sizes of inputs and layers of outputs, by name.
    graph: tuple[dict[str, int], dict[str, Graph]]

    def __reduce__(self) -> Any:
        return plan_of, self.graph

    @property
    def steps(self) -> list[LayerStep]:
        """Return the rows of the table, with names."""
        return [LayerStep(*row) for row in self.table.tolist()]

    @functools.cached_property
    def state_size(self) -> int:
        """Return the numbers that layers with memory remember of a sequence.

        Every update and every pass asks for it: to add them up took 3 us.
        """
        return int(self.states[:, 1].sum())

    @property
    def takes_ones(self) -> bool:
        """Tell whether the input may be `Ones`: sums of rows replace the first layer's product.

        That layer has to be dense, with rows of weights as they are packed, and slopes of outputs
        where its outputs are.
        """
        step = self.steps[0]
        is_first = self.kinds[0] is DENSE and step.inputs == 0 and step.copies < 0
        return is_first and step.output_slopes == IN_PLACE

    def flat_views(self, flat: Array) -> list[Array]:
        """Return each array of parameters as a view of flat ones."""
        return [_view(flat, each.flat, each.parameters.shape) for each in self.arrays]

    def packed_views(self, packed: Array) -> list[Array]:
        """Return each array of parameters as a view of packed ones, without their padding."""
        views = []
        for array in self.arrays:
            view = _view(packed, array.packed, array.parameters.packed)
            view = view.T if array.parameters.is_transposed else view
            views.append(view[tuple(slice(size) for size in array.parameters.shape)])
        return views

    def copied_views(
        self, packed: Array, copies: Array, *, is_learnt: bool
    ) -> list[tuple[Array, Array]]:
        """Return pairs of views (columns, rows): a transposed copy, and the packed matrix.

        Without backward passes (`is_learnt`) only the copies of transposed matrices are read.
        """
        pairs = []
        for step in self.steps:
            if step.copies >= 0 and (is_learnt or step.is_transposed):
                copy = _view(copies, step.copies, (step.columns, padded(step.rows)))
                weights = _view(packed, step.parameters, (step.rows, step.columns))
                pairs.append((copy[:, : step.rows], weights.T))
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


def _view(numbers: Array, begin: int, shape: tuple[int, ...]) -> Array:
    """Return the array of a shape that begins at a place in flat numbers."""
    return numbers[begin : begin + math.prod(shape)].reshape(shape)


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
            copy = _insert_copy(tensor, readers=[])
            remaining.append(copy)
            outputs[k] = copy.target
        outputs[k].is_output = True
    for draft in remaining:
        if draft.kind.overwrites_inputs:
            source = draft.source
            if source.is_input or len(source.readers) > 1 or source.is_needed_backward():
                result.append(_insert_copy(source, readers=[draft]))
            if draft.kind.in_place:
                draft.target.shares = draft.source  # the same memory
        result.append(draft)
    # Later steps ask for the first and the last of them: now they are in the order of the steps.
    for draft in result:
        draft.source.readers, draft.target.makers = [], []
    for draft in result:
        draft.source.readers.append(draft)
        draft.target.makers.append(draft)
    return result


def _is_removable(copy: Draft, outputs: list[LayerOutput]) -> bool:
    """Tell whether the step that makes a copy's source may write to its target at once."""
    source = copy.source
    first_column = copy.option
    is_whole = first_column == 0 and source.size == copy.target.size
    is_alone = len(source.readers) == 1 and not source.is_needed_backward()
    return is_whole and is_alone and source not in outputs and not source.is_input


def _remove_copy(copy: Draft) -> None:
    """Let the steps that write the source of a copy write to its target."""
    source, target = copy.source, copy.target
    for maker in source.makers:
        maker.target = target
    target.makers = source.makers + [maker for maker in target.makers if maker is not copy]


def _insert_copy(tensor: LayerOutput, readers: list[Draft]) -> Draft:
    """Return a step that copies a tensor; these of its readers read the copy from now on."""
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


class _Units(NamedTuple):
    """Places in `units`."""

    places: dict[LayerOutput, int]
    saved: dict[Draft, int]  #: where each step leaves numbers to its backward pass
    size: int  #: numbers of a sample


class _Parameters(NamedTuple):
    """Arrays of parameters of a step, and their bounds among the packed ones."""

    arrays: list[PlacedArray]
    begin: int
    end: int

    def matrix(self, copies: int) -> dict[str, int]:
        """Return the fields of a `LayerStep` for the matrix that they begin with, {} without one.

        `copies` is where its transpose would be in the network's copies.
        """
        first = self.arrays[0].parameters if self.arrays else None
        if first is None or len(first.packed) != 2:
            return {}
        return {
            "rows": first.packed[0],
            "columns": first.packed[1],
            "is_transposed": int(first.is_transposed),
            "copies": copies if first.copied else -1,
        }


def _place(
    drafts: list[Draft], inputs: list[LayerOutput], outputs: list[LayerOutput]
) -> NetworkPlan:
    """Return the plan of a network: a step for each draft, with the places of its numbers."""
    units, parameters = _place_units(drafts, inputs), _place_parameters(drafts)
    slopes, num_slopes = _place_slopes(drafts)
    steps, states, learns, copies = [], [], set[LayerOutput](), 0
    for draft, placed in zip(drafts, parameters, strict=True):
        source, target = draft.source, draft.target
        step = LayerStep(
            option=draft.option,
            fuses_relu=int(draft.fuses_relu),
            inputs=units.places[source],
            width_in=padded(source.size),
            size_in=source.size,
            outputs=units.places[target],
            width_out=padded(target.size),
            size_out=target.size,
            saved=units.saved[draft],
            parameters=placed.begin,
            end=placed.end,
            input_slopes=slopes.get(source, IN_PLACE),
            output_slopes=slopes.get(target, IN_PLACE),
            # The way back comes to the last reader first, which overwrites the slopes.
            adds_to_slopes=int(draft is not source.readers[-1]),
            learns_below=int(source in learns),
            **placed.matrix(copies),
            **draft.fields,
        )
        steps.append(step)
        if step.copies >= 0:
            copies += step.columns * padded(step.rows)
        if draft.layer is not None and draft.layer.state:
            states.append(TensorPlace(step.saved, draft.layer.state, draft.layer.state))
        if placed.arrays or source in learns:
            learns.add(target)
    arrays = [array for each in parameters for array in each.arrays]
    widths = [max(step.width_in, step.width_out) for step in steps]
    return NetworkPlan(
        table=np.array(steps, STEP),
        kinds=tuple(draft.kind for draft in drafts),
        inputs=_places(inputs, units.places),
        outputs=_places(outputs, units.places),
        states=np.array(states, np.int64).reshape(-1, 3),
        units=units.size,
        slopes=max(num_slopes, *widths),  # room for `spare_row`
        parameters=parameters[-1].end,
        flat=sum(math.prod(array.parameters.shape) for array in arrays),
        copies=copies,
        arrays=tuple(arrays),
        graph=({}, {}),
    )


def _place_units(drafts: list[Draft], inputs: list[LayerOutput]) -> _Units:
    """Return the places in `units` of all tensors, and of the saved units of each step."""
    places: dict[LayerOutput, int] = {}
    saved, end = {}, 0
    for tensor in inputs:
        places[tensor], end = end, end + padded(tensor.size)
    for draft in drafts:
        saved[draft] = end
        if draft.layer is not None:
            end += draft.layer.num_saved(_sizes_of(draft))
        target = draft.target
        if target in places:  # made by several steps, of which the first has placed it
            continue
        if target.shares is not None:  # computed in place
            places[target] = places[target.shares]
        else:
            places[target], end = end, end + padded(target.size)
    return _Units(places, saved, end)


def _place_parameters(drafts: list[Draft]) -> list[_Parameters]:
    """Return the parameters of each step, placed one after the other."""
    placed, flat, packed = [], 0, 0
    layer_counts: dict[str, int] = {}  # by name of a kind, for names of arrays
    for draft in drafts:
        kind, begin, arrays = draft.kind.name, packed, []
        parameters = [] if draft.layer is None else draft.layer.parameters(_sizes_of(draft))
        for each in parameters:
            name = f"{kind}{layer_counts.get(kind, 0)}.{each.name}"
            arrays.append(PlacedArray(name, each, flat, packed))
            flat, packed = flat + math.prod(each.shape), packed + math.prod(each.packed)
        if parameters:
            layer_counts[kind] = layer_counts.get(kind, 0) + 1
        placed.append(_Parameters(arrays, begin, end=packed))
    return placed


def _sizes_of(draft: Draft) -> LayerSizes:
    """Return the sizes on which a layer's parameters depend."""
    source, target, none = draft.source, draft.target, Picture(0, 0, 0)
    return LayerSizes(
        inputs=source.size,
        outputs=target.size,
        is_first=source.is_input,
        is_last=target.is_output,
        image_in=source.picture or none,
        image_out=target.picture or none,
    )


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
    in_use: dict[LayerOutput, tuple[int, int]] = {}  # the first number and the end of each place
    size = 0
    for draft in reversed(drafts):
        source = draft.source
        is_alone = len(source.readers) == 1 and not source.is_output
        can_be_overwritten = is_alone and not source.is_needed_backward()
        if source not in places and not can_be_overwritten:
            begin, width = 0, padded(source.size)
            for first, end in sorted(in_use.values()):
                if begin + width <= first:
                    break
                begin = max(begin, end)
            places[source], in_use[source] = begin, (begin, begin + width)
            size = max(size, begin + width)
        if draft is draft.target.makers[0]:
            in_use.pop(draft.target, None)
    return places, size
