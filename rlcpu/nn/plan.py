"""From a graph of layers to a table of instructions: where all numbers of a network are.

Numbers of a sample between layers, its units, lie one block after the other: the network's inputs
first, then what each layer makes. Parameters lie in the order of the layers, twice: flat, as users
and checkpoints have them, and packed, as kernels read them, in rows padded with zeros; see
`rlcpu.nn.layers.kind`. Copies hold the transposed matrices of packed parameters.

Derivatives by units stand in the place of the units where nobody needs those any more: where one
layer reads them, and the layer that made them does not need them in the backward pass. All others
have a place in `slopes`, which layers share that need it at different times.
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
    """An array of parameters.

    Attributes:
        name: of its layer and itself, such as "dense0.weights".
        parameters: what the layer says of it.
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
        states: (number of them, 3) int64, of layers with memory: a place has rows for the first
            time step, and those of the others, and of what comes after the last, behind them.
        units: numbers of a sample, of all layers.
        slopes: passes over S samples need (S + 1) * slopes numbers of scratch in the backward pass.
        parameters, flat: numbers of the packed and of the flat parameters.
        copies: numbers of the transposed matrices.
        arrays: all parameters, in the order of both.
        made_of: arguments of `plan_of`: sizes of inputs and layers of outputs, by name.
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
    made_of: tuple[dict[str, int], dict[str, Graph]]

    def __reduce__(self) -> Any:
        return plan_of, self.made_of

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
        """Tell whether sums of rows may replace the first layer's product; see `Ones`."""
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
            view = view.T if array.parameters.turned else view
            views.append(view[tuple(slice(size) for size in array.parameters.shape)])
        return views

    def copied_views(
        self, packed: Array, copies: Array, is_learnt: bool = True
    ) -> list[tuple[Array, Array]]:
        """Pair each transposed matrix, as a view of copies, with what it is copied from.

        Without backward passes (`is_learnt`) only the copies of turned matrices are read.
        """
        pairs = []
        for step in self.steps:
            if step.copies >= 0 and (is_learnt or step.turned):
                rows, columns, wide = step.rows, step.columns, padded(step.rows)
                copy = copies[step.copies : step.copies + columns * wide].reshape(columns, wide)
                weights = packed[step.parameters : step.parameters + rows * columns]
                pairs.append((copy[:, :rows], weights.reshape(rows, columns).T))
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
    """Make the plan of a network.

    Args:
        inputs: numbers of each input, by name.
        outputs: what makes each output, by name.

    Raises:
        TypeError, ValueError: layers do not fit together.
    """
    trace = Trace(inputs)
    ends = [trace.run(graph, trace.only_input) for graph in outputs.values()]
    for name, tensor in trace.inputs.items():
        if not tensor.readers:
            raise ValueError(f"no layer reads the input {name!r}")
    drafts = _copy_where_needed(trace.drafts, list(trace.inputs.values()), ends)
    _join_relus(drafts)
    plan = _place(drafts, list(trace.inputs.values()), ends)
    return dataclasses.replace(plan, made_of=(dict(inputs), dict(outputs)))


# ---------------------------------------------------------------- steps


def _copy_where_needed(
    drafts: list[Draft], inputs: list[LayerOutput], ends: list[LayerOutput]
) -> list[Draft]:
    """Leave out copies that nobody needs, and put in those that layers need.

    A copy is put in
    - behind an input with several readers: derivatives by an input belong to the caller, and are
      not added up; those by its copy are,
    - in the place of an output (in `ends`) that is an input, another output, or read by a layer,
    - in front of a layer that writes into its inputs, if they are the network's, or another layer
      reads them, forward or backward.
    """
    copied = []
    for draft in drafts:
        if not (draft.kind is COPY and _is_spare(draft, ends)):
            copied.append(draft)
            continue
        source, target = draft.source, draft.target
        for maker in source.makers:
            maker.target = target
        target.makers = source.makers + [maker for maker in target.makers if maker is not draft]
    result = []
    for tensor in inputs:
        if len(tensor.readers) > 1:
            result.append(_insert_copy(tensor, tensor.readers))
    for k, tensor in enumerate(ends):
        if tensor.is_input or tensor.is_output or tensor.readers or tensor.is_needed_backward():
            copy = _insert_copy(tensor, [])
            copied.append(copy)
            ends[k] = copy.target
        ends[k].is_output = True
    for draft in copied:
        source = draft.source
        if draft.kind.overwrites_inputs:
            is_alone = len(source.readers) == 1 and not source.is_needed_backward()
            if source.is_input or not is_alone:
                result.append(_insert_copy(source, [draft]))
            if draft.kind.in_place:
                draft.target.shares = draft.source
        result.append(draft)
    for draft in result:
        draft.source.readers, draft.target.makers = [], []
    for draft in result:
        draft.source.readers.append(draft)
        draft.target.makers.append(draft)
    return result


def _is_spare(copy: Draft, ends: list[LayerOutput]) -> bool:
    """Tell whether the source of a copy may take its target's place."""
    source = copy.source
    is_whole = copy.option == 0 and source.size == copy.target.size
    is_alone = len(source.readers) == 1 and not source.is_needed_backward() and source not in ends
    return is_whole and is_alone and not source.is_input


def _insert_copy(tensor: LayerOutput, readers: list[Draft]) -> Draft:
    """Return a step that copies a tensor, and let some of its readers read the copy."""
    copy = Draft(COPY, tensor, LayerOutput(tensor.size, tensor.picture))
    tensor.readers = [each for each in tensor.readers if each not in readers] + [copy]
    copy.target.makers.append(copy)
    for reader in readers:
        reader.source = copy.target
        copy.target.readers.append(reader)
    return copy


def _join_relus(drafts: list[Draft]) -> None:
    """Let layers compute the relu behind them, where that costs nothing."""
    for draft in drafts:
        if draft.kind is RELU and len(draft.source.makers) == 1:
            (maker,) = draft.source.makers
            draft.floor = maker.floor = maker.kind.takes_floor


# ---------------------------------------------------------------- places


def _place(drafts: list[Draft], inputs: list[LayerOutput], ends: list[LayerOutput]) -> NetworkPlan:
    """Return the plan of a network: a step for each draft, with the places of its numbers."""
    units, next_unit = {}, 0
    for tensor in inputs:
        units[tensor], next_unit = next_unit, next_unit + padded(tensor.size)
    steps, arrays, states, learns = [], [], [], set[LayerOutput]()
    flat = packed = copies = 0
    slopes, most_slopes = _place_slopes(drafts)
    numbers: dict[str, int] = {}
    for draft in drafts:
        source, target = draft.source, draft.target
        width_in, width_out = padded(source.size), padded(target.size)
        saved = next_unit
        if draft.layer is not None:
            next_unit += draft.layer.saved_of(_sizes_of(draft))
            if draft.layer.state:
                states.append(TensorPlace(saved, draft.layer.state, draft.layer.state))
        if target not in units:
            if target.shares is None:
                units[target], next_unit = next_unit, next_unit + width_out
            else:
                units[target] = units[target.shares]
        step = LayerStep(
            option=draft.option,
            floor=int(draft.floor),
            inputs=units[source],
            width_in=width_in,
            size_in=source.size,
            outputs=units[target],
            width_out=width_out,
            size_out=target.size,
            saved=saved,
            parameters=packed,
            input_slopes=slopes.get(source, IN_PLACE),
            output_slopes=slopes.get(target, IN_PLACE),
            adds=int(draft is not source.readers[-1]),
            learns_below=int(source in learns),
            **draft.fields,
        )
        parameters = _parameters_of(draft)
        for k, each in enumerate(parameters):
            count = numbers.setdefault(draft.kind.name, 0)
            arrays.append(PlacedArray(f"{draft.kind.name}{count}.{each.name}", each, flat, packed))
            flat, packed = flat + math.prod(each.shape), packed + math.prod(each.packed)
            if k == 0 and len(each.packed) == 2:
                rows, columns = each.packed
                step = step._replace(rows=rows, columns=columns, turned=int(each.turned))
                if each.copied:
                    step = step._replace(copies=copies)
                    copies += columns * padded(rows)
        if parameters:
            numbers[draft.kind.name] += 1
        if parameters or source in learns:
            learns.add(target)
        steps.append(step._replace(end=packed))
    widths = [max(step.width_in, step.width_out) for step in steps]
    return NetworkPlan(
        table=np.array(steps, STEP),
        kinds=tuple(draft.kind for draft in drafts),
        inputs=_places(inputs, units),
        outputs=_places(ends, units),
        states=np.array(states, np.int64).reshape(-1, 3),
        units=next_unit,
        slopes=max(most_slopes, *widths),
        parameters=packed,
        flat=flat,
        copies=copies,
        arrays=tuple(arrays),
        made_of=({}, {}),
    )


def _parameters_of(draft: Draft) -> list[ParameterArray]:
    return [] if draft.layer is None else draft.layer.parameters(_sizes_of(draft))


def _sizes_of(draft: Draft) -> Sizes:
    source, target, none = draft.source, draft.target, Picture(0, 0, 0)
    pictures = source.picture or none, target.picture or none
    return Sizes(source.size, target.size, source.is_input, target.is_output, *pictures)


def _places(tensors: list[LayerOutput], units: dict[LayerOutput, int]) -> npt.NDArray[np.int64]:
    places = [TensorPlace(units[each], padded(each.size), each.size) for each in tensors]
    return np.array(places, np.int64)


def _place_slopes(drafts: list[Draft]) -> tuple[dict[LayerOutput, int], int]:
    """Return places in `slopes` of derivatives by tensors, and how many numbers there are.

    Derivatives that take the place of their tensor have none. In the backward pass a place is in
    use from the last reader of a tensor to its first maker.
    """
    places: dict[LayerOutput, int] = {}
    taken: list[tuple[int, int, LayerOutput]] = []
    most = 0
    for draft in reversed(drafts):
        source = draft.source
        is_alone = len(source.readers) == 1 and not source.is_output
        if source not in places and not (is_alone and not source.is_needed_backward()):
            begin, width = 0, padded(source.size)
            for first, end, _ in sorted(taken, key=lambda each: each[0]):
                if begin + width <= first:
                    break
                begin = max(begin, end)
            places[source] = begin
            taken.append((begin, begin + width, source))
            most = max(most, begin + width)
        if draft is draft.target.makers[0]:
            taken = [each for each in taken if each[2] is not draft.target]
    return places, most
