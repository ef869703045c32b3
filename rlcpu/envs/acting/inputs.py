"""Observations of a block of environments as the inputs of networks, inside a rollout's kernel.

Inputs are float32 and scaled, see `rlcpu.nn.network.scaling`: rows of `lanes` numbers, input k of
lane i at `k * lanes + i`; where `observe` writes an array, and of groups, each lane has a row of
inputs instead. Networks take lists of the ones where inputs are zeros and ones, mostly zeros.

Here `lanes` is 1 or a multiple of 16, at least `count`, the lanes in use; `scratch` is a block's
float32 memory, whose first numbers become the inputs; of a `policy`, `mean` and `scale` have a
number for each input, and `limit` has one. `reserved` numbers at the end of scratch are not ours:
actions are chosen there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.interface import Interface, make_number_at
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.observations import GroupPart
from rlcpu.kernels.compiler.compile import define, inline, inline_source, outline
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.boards import append_cells
from rlcpu.kernels.machine.matmul import MANY_ONES
from rlcpu.kernels.machine.memory import array_at, place_of
from rlcpu.kernels.machine.rows import row_access
from rlcpu.nn.network.scaling import scaled

#: Rows of scratch memory for the int32 that say where each lane's ones begin, one more than lanes.
ROWS_OF_STARTS = 2


class WrittenInputs(NamedTuple):
    """Form in which `write_inputs` wrote the inputs of networks, see `make_write_inputs`."""

    #: True if they are listed: inputs that are one as int32, in the place of the inputs, lane after
    #: lane.
    are_few: Any
    #: If they are, from here on in scratch are int32 that say where each lane begins in the list.
    starts: Any
    #: The number of a lane's inputs where they lie side by side; 0 where inputs are rows of `lanes`
    #: numbers. Those of a lone lane lie side by side in any case: nobody has to transpose them.
    row: Any


def make_write_inputs(interface: Interface, reserved: int) -> Callable[..., Any]:
    """Make the function that writes a block's observations into the inputs of networks.

    It is (observations, policy, lanes, count, scratch) -> `WrittenInputs`. Inputs are the first
    rows of scratch, and scaled. If inputs are zeros and ones, few of them ones, it may list the
    ones instead.
    """
    if interface.kind == "group":
        return _make_write_group(interface, reserved)
    if interface.kind != "floats":
        return _make_write_ones(interface, reserved)
    # By these names LLVM knows that inputs and observations do not overlap: loops become vectors.
    get, set_ = row_access(ANY)[0], row_access("target")[1]

    @inline_source
    def write_floats(observations, policy, lanes, count, scratch):
        mean, scale, limit = policy.mean, policy.scale, policy.limit[0]
        for k in range(mean.size):
            for i in range(lanes):
                x = get(observations, k * LANES + i)
                set_(scratch, k * lanes + i, scaled(x, mean[k], scale[k], limit))
        return WrittenInputs(False, 0, mean.size if lanes == 1 else 0)

    @inline_source
    def write_arrays(observations, policy, lanes, count, scratch):
        mean, scale, limit = policy.mean, policy.scale, policy.limit[0]
        for i in range(count):
            begin = i * (observations.size // LANES)
            for k in range(mean.size):
                x = get(observations, begin + k)
                set_(scratch, i * mean.size + k, scaled(x, mean[k], scale[k], limit))
        return WrittenInputs(False, 0, mean.size)

    return write_floats if interface.in_rows else write_arrays


def _make_write_group(interface: Interface, reserved: int) -> Callable[..., Any]:
    """Make `write_inputs` of an observation of several parts.

    Parts have numbers of several dtypes, side by side: each lane's observation is gathered near the
    end of scratch, in front of `reserved` numbers, and goes from there to the inputs.
    """
    scale, number_at = _make_scale_group(interface), make_number_at(interface.in_rows)
    size = interface.num_rows

    @inline_source
    def write_group(observations, policy, lanes, count, scratch):
        begin = scratch.size - reserved - size
        rows = scratch[begin : begin + size]
        for i in range(count):
            for k in range(size):
                rows[k] = observations[number_at(observations, k, i)]
            scale(rows, policy.mean, policy.scale, policy.limit[0], scratch, i)
        return WrittenInputs(False, 0, policy.mean.size)

    return write_group


def _make_write_ones(interface: Interface, reserved: int) -> Callable[..., Any]:
    """Make `write_inputs` of a choice or of planes, whose inputs are zeros and ones.

    If the networks take lists of ones, scaling changes none, and at most the fraction `MANY_ONES`
    of the inputs is one, it lists the ones and writes no inputs. The starts of the lanes in the
    list are at the end of scratch, in front of `reserved` numbers.
    """
    list_ones: Any = _make_list_ones(interface)
    write_scaled: Any = _make_write_scaled_ones(interface)

    @inline_source
    def write_ones(observations, policy, lanes, count, scratch):
        """Write the places of ones, or all inputs where there are too many."""
        job, are_few = policy.network, False
        num_inputs, starts_end = job.size, scratch.size - reserved
        starts_begin = starts_end - ROWS_OF_STARTS * LANES
        starts = scratch[starts_begin:starts_end].view(np.int32)
        columns = scratch[: num_inputs * lanes].view(np.int32)  # in the place of the inputs
        takes_ones = job.takes_ones  # whether the first layer can add up rows of weights
        if policy.has_value_network:
            takes_ones &= policy.value_network.takes_ones
        if takes_ones and keeps_ones(policy.mean, policy.scale, policy.limit[0]):
            most = np.int64(MANY_ONES * num_inputs * lanes)
            num_ones = list_ones(observations, lanes, count, num_inputs, starts, columns, most)
            are_few = num_ones <= most
        if not are_few:
            write_scaled(observations, lanes, scratch, policy.mean, policy.scale, policy.limit[0])
        return WrittenInputs(are_few, starts_begin, num_inputs if lanes == 1 else 0)

    return write_ones


@inline
def keeps_ones(mean, scale, limit):
    """Tell whether zeros and ones stay the same: means are 0, scales 1, the limit 1 or more."""
    same = limit >= np.float32(1)
    for k in range(mean.size):
        same &= (mean[k] == np.float32(0)) & (scale[k] == np.float32(1))
    return same


def _make_list_ones(interface: Interface) -> Callable[..., Any]:
    """Make the function that lists which inputs are one, of a choice or of planes.

    It is (observations, lanes, count, num_inputs, starts, columns, most) -> number of ones, of
    `lanes` lanes; those from `count` on have none. It writes the inputs that are one to `columns`,
    lane after lane, and to `starts`, (lanes + 1,), where each lane begins there. It may stop at
    more than `most` ones: the caller does not use the list then.
    """
    num_planes, lowest, number_at = (
        interface.num_planes,
        interface.lowest,
        make_number_at(interface.in_rows),
    )

    @inline
    def list_choices(observations, lanes, count, num_inputs, starts, columns, most):
        """Write the input of each lane that stands for its choice; none for one out of range."""
        choices, num_ones = observations.view(np.int32), 0
        for i in range(lanes):
            starts[i] = num_ones
            choice = choices[number_at(observations, 0, i)] - lowest
            if i < count and 0 <= choice < num_inputs:
                columns[num_ones] = choice
                num_ones += 1
        starts[lanes] = num_ones
        return num_ones

    @inline
    def list_cells(observations, lanes, count, num_inputs, starts, columns, most):
        """Write the cells of each lane's planes that are set."""
        words, num_ones = observations.view(np.uint32), 0
        for i in range(lanes):
            starts[i] = num_ones
            if i < count and num_ones <= most:
                first, second = number_at(observations, 0, i), number_at(observations, 1, i)
                cells = num_inputs // num_planes
                num_ones = append_cells(
                    words, first, second - first, num_planes, cells, columns, num_ones
                )
        starts[lanes] = num_ones
        return num_ones

    return list_cells if num_planes else list_choices


def _make_write_scaled_ones(interface: Interface) -> Callable[..., Any]:
    """Make the inlinable function that writes the inputs of a choice or of planes.

    It is (observations, lanes, inputs, mean, scale, limit): it writes the zeros and ones of all
    lanes, scaled, to `inputs`, one row of `lanes` numbers for each choice or cell. `mean` and
    `scale` have a number for each input.
    """
    zero, one, number_at = np.float32(0), np.float32(1), make_number_at(interface.in_rows)
    num_planes, lowest = interface.num_planes, interface.lowest

    @inline
    def write_choice(observations, lanes, inputs, mean, scale, limit):
        """Write, for each value of the choice, a row with one in the lanes that have it."""
        choices = observations.view(np.int32)
        for k in range(mean.size):
            off = scaled(zero, mean[k], scale[k], limit)
            on = scaled(one, mean[k], scale[k], limit)
            row = inputs[k * lanes : (k + 1) * lanes]
            for i in range(row.size):
                row[i] = on if choices[number_at(observations, 0, i)] - lowest == k else off

    @inline
    def write_planes(observations, lanes, inputs, mean, scale, limit):
        """Write, for each cell, a row with one in the lanes where the cell is set."""
        words, cells = observations.view(np.uint32), mean.size // num_planes
        for k in range(mean.size):
            off = scaled(zero, mean[k], scale[k], limit)
            on = scaled(one, mean[k], scale[k], limit)
            cell = k % cells
            # A plane is a `Board`: 4 words of 32 bits.
            word, row = k // cells * 4 + cell // 32, inputs[k * lanes : (k + 1) * lanes]
            bit = np.uint32(1 << (cell % 32))
            for i in range(row.size):
                row[i] = on if words[number_at(observations, word, i)] & bit != 0 else off

    return write_planes if num_planes else write_choice


def _make_scale_group(interface: Interface) -> Callable[..., Any]:
    """Make the function (rows, mean, scale, limit, inputs, i) that writes the inputs of lane i.

    `rows` are the numbers of its observation, side by side: for each part it calls a function.
    """
    lines, functions, first_input = ["def write(rows, mean, scale, limit, inputs, i):"], {}, 0
    for k, part in enumerate(interface.parts):
        functions[f"write{k}"] = _make_scale_part(part, first_input)
        lines.append(f"    write{k}(rows, mean, scale, limit, inputs, i)")
        first_input += part.view.num_inputs
    return inline(define("\n".join(lines), **functions))


def _make_scale_part(part: GroupPart, first_input: int) -> Callable[..., Any]:
    """Make (rows, mean, scale, limit, inputs, i), which writes a part's inputs from `first_input`.

    `rows` is the memory of lane i's group, in which the part begins with byte `part.begin`;
    `inputs` has a row for each lane. `part.view.size` is (planes, rows, columns) of planes, and of
    choices how many values each has, with `start` the smallest of these.
    """
    view, begin, count, single = part.view, part.begin, part.view.num_inputs, np.float32

    @inline
    def put_input(x, mean, scale, limit, inputs, i, k):
        """Write x as input k of the part."""
        column = first_input + k
        inputs[i * mean.size + column] = scaled(x, mean[column], scale[column], limit)

    if view.kind in ("floats", "numbers"):
        number_type: Any = np.float32 if view.kind == "floats" else np.dtype(view.form).type
        like = number_type(0)

        @outline
        def write_numbers(rows, mean, scale, limit, inputs, i):
            numbers = array_at(place_of(rows, 0) + begin, (count,), like)
            for k in range(count):
                put_input(single(numbers[k]), mean, scale, limit, inputs, i, k)

        return write_numbers
    if view.kind == "planes":
        num_words, cells = 4 * view.size[0], math.prod(view.size[1:])
        like_word = np.uint32(0)

        @outline
        def write_planes(rows, mean, scale, limit, inputs, i):
            words = array_at(place_of(rows, 0) + begin, (num_words,), like_word)
            for k in range(count):
                cell = k % cells
                word = words[k // cells * 4 + cell // 32]  # 4 words of 32 bits are a plane
                bits = word >> np.uint32(cell % 32)
                put_input(single(bits & np.uint32(1)), mean, scale, limit, inputs, i, k)

        return write_planes
    # One choice or several: an input for each value, 1 for the chosen one.
    sizes, starts, like_choice = np.array(view.size), np.array(view.start), np.int32(0)
    num_choices, zero, one = len(view.size), np.float32(0), np.float32(1)

    @outline
    def write_choices(rows, mean, scale, limit, inputs, i):
        choices = array_at(place_of(rows, 0) + begin, (num_choices,), like_choice)
        first = 0
        for n in range(num_choices):
            for k in range(sizes[n]):
                x = one if choices[n] - starts[n] == k else zero
                put_input(x, mean, scale, limit, inputs, i, first + k)
            first += sizes[n]

    return write_choices
