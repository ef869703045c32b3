"""The networks of a policy, run inside a rollout's kernel for some environments at a time.

`prepare` writes what the environments observe into the inputs of the networks
(`rlcpu.envs.acting.inputs`), runs them, and leaves their outputs in scratch memory. It is the same
for a block of lanes, and for a lone simulation of MuJoCo, which is a block of one lane.

Scratch memory are float32: first the inputs, then what `ScratchPlaces` names, then those of
`ROWS_OF_STARTS`, the numbers of one group, and last those of a `ChoiceMemory`. Inputs and outputs
are rows of `lanes` numbers, `count` rounded up to a multiple of 16 (or 1).

Terms of `rlcpu.nn.network.acting`: `network` of a `KernelPolicy` is a `Job`, which says how many
numbers the network has for one lane: `size` inputs, `output_size` outputs (a shared value is the
last), `units` of scratch for its layers, and `state_size`, what it remembers (0 without memory). A
`Tile` is the argument of one run of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.acting.inputs import make_write_inputs
from rlcpu.envs.engine.interface import Interface
from rlcpu.kernels.compiler.compile import inline, inline_source
from rlcpu.kernels.machine.memory import address, shifted
from rlcpu.nn.layers.kind import UNIT
from rlcpu.nn.network.acting import Tile, run_network


class OutputPlaces(NamedTuple):
    """Places in scratch memory of the outputs of networks, for `lanes` lanes."""

    lanes: Any
    #: Output k of lane i is at `outputs + k * lanes + i`.
    outputs: Any
    #: Its value is at `values + i`: the output of a network of its own, or the policy's last one.
    values: Any


class ScratchPlaces(NamedTuple):
    """Places in scratch memory of its parts, behind the inputs."""

    outputs: Any
    #: Outputs of a value network of its own.
    values: Any
    #: Memory of the networks' hidden layers.
    units: Any
    #: 1 for each lane whose episode begins.
    begins: Any
    end: Any


@inline
def rounded_up(count):
    """Return the next multiple of `UNIT`."""
    return (count + UNIT - 1) // UNIT * UNIT


@inline
def scratch_places(policy, lanes):
    """Return the `ScratchPlaces` of a `KernelPolicy` for at most so many lanes.

    Outputs have `UNIT` rows more than they need: `run_network` transposes them in squares of at
    most `UNIT` rows, of which the last may hang over.
    """
    job = policy.network
    outputs, num_units = rounded_up(job.size), job.units
    values = units = outputs + rounded_up(job.output_size + UNIT)
    if policy.has_value_network:
        units = values + 2 * UNIT  # one output, rounded up, and `UNIT` more
        # The networks run one after the other, in the same memory of units.
        num_units = max(num_units, policy.value_network.units)
    begins = units + num_units
    return ScratchPlaces(
        outputs * lanes, values * lanes, units * lanes, begins * lanes, (begins + 1) * lanes
    )


@functools.cache
def make_prepare(interface: Interface, reserved: int) -> Callable[..., Any]:
    """Make `prepare`: (observations, elapsed, policy, first, count, scratch) -> `OutputPlaces`.

    It runs the networks of a policy for environments `first` to `first + count`. `elapsed` points
    to how many steps their episodes have had, uint32. The last `reserved` numbers of scratch belong
    to others.
    """
    write_inputs, most_lanes = make_write_inputs(interface, reserved), interface.lanes

    @inline_source
    def prepare(observations, elapsed, policy, first, count, scratch):
        """Write the inputs of lanes, run the networks, and return where outputs are."""
        lanes = 1 if count == 1 else rounded_up(count)  # whole vectors of lanes
        places = scratch_places(policy, most_lanes)
        written = write_inputs(observations, policy, lanes, count, scratch)
        numbers, ints = address(scratch), address(scratch.view(np.int32))
        begins, memory = shifted(numbers, places.begins), numbers  # any pointer will do
        job, state_size = policy.network, policy.state_size
        if state_size > 0:  # networks with memory; else nobody reads `memory` and `begins`
            memory = shifted(policy.states, first * state_size)
            for i in range(count):
                begins[i] = np.float32(elapsed[i] == np.uint32(0))
        values = places.outputs + (job.output_size - 1) * lanes
        networks = 1
        if policy.has_value_network:
            values, networks = places.values, 2
        # The value's network has other outputs, the same inputs and scratch, and of an
        # environment's memory the numbers behind those of the policy's network.
        for number in range(networks):
            is_first = number == 0
            # Where `few` inputs are one, they are listed, as int32 in the place of the inputs:
            # those of lane i are columns[starts[i]:starts[i + 1]]. See `WrittenInputs` for `row`.
            tile = Tile(
                job=job if is_first else policy.value_network,
                inputs=numbers,
                row=written.row,
                outputs=shifted(numbers, places.outputs if is_first else values),
                units=shifted(numbers, places.units),
                lanes=lanes,
                samples=count,
                few=written.are_few,
                starts=shifted(ints, written.starts),
                columns=ints,
                memory=memory if is_first else shifted(memory, job.state_size),
                stride=state_size,
                begins=begins,
            )
            run_network(tile)
        return OutputPlaces(lanes, places.outputs, values)

    return prepare
