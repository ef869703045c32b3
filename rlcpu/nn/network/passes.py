"""Passes of networks over samples, a sample a row.

One pair of functions runs every network: they go through its table of instructions
(`rlcpu.nn.network.plan`), forwards and backwards, and call the function of each one's kind of layer
(`rlcpu.nn.layers`) by its address, which `link` writes to the table. Each function is compiled for
the first network that needs it: a new network of known kinds compiles nothing.

    forward(network, units, samples, is_summed, time)
        makes the outputs, and returns where the first one begins in `units`

    backward(network, units, slopes, gradients, samples, is_summed, time, mode)
        makes derivatives with respect to the parameters, the inputs, or both

`network` is a view of a `Packed` whose table is linked; its `inputs` and `outputs` say where these
are in `units`, which its `NetworkPlan` has the size of:

    units      (samples * plan.units,) or more. Before a forward pass, the caller writes the inputs:
               rows of place.width numbers, of which the first place.size count, the others are 0.
               Afterwards the outputs are there, in rows of the same kind. Before a backward pass,
               the caller overwrites all outputs with their slopes (derivatives of the loss), and
               the padding with 0. The pass overwrites all units: each needs a forward pass before.
    slopes     ((samples + 1) * plan.slopes,) or more, scratch.
    gradients  (plan.parameters,), of the packed parameters; not looked at with `BY_INPUTS` alone.
    is_summed  the caller has written the outputs of the first layer, with its relu if it has one,
               and input 0 is not read; `plan.takes_ones` says which networks allow it. The backward
               pass leaves the slopes of these outputs in their place, and the caller adds the
               gradients of that layer's weights; see `rlcpu.nn.layers.embedding.Ones`.
    time       a `Time`: samples are sequences for layers with memory.
    mode       `ADDED`: derivatives with respect to the parameters are added to `gradients`; or
               `OVERWRITTEN`: they overwrite it; `BY_INPUTS`: slopes of the inputs overwrite these.
               One of the first two and the third may be combined, as in `ADDED | BY_INPUTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.typing as npt
from numba import from_dtype

from rlcpu.kernels.compiler.compile import c_function, inline_source
from rlcpu.kernels.machine.memory import address, aligned_zeros, call_at
from rlcpu.kernels.machine.structs import Array, Flag, Reference, Struct, Whole
from rlcpu.nn.layers.kind import ADDED as ADDED
from rlcpu.nn.layers.kind import BY_INPUTS as BY_INPUTS
from rlcpu.nn.layers.kind import FORWARD, STEP
from rlcpu.nn.layers.kind import OVERWRITTEN as OVERWRITTEN
from rlcpu.nn.network.packed import Packed, read_place
from rlcpu.nn.network.plan import NetworkPlan


class Time(NamedTuple):
    """Order of samples in sequences, for layers with memory.

    Samples lie time step after time step, those of all sequences in each. Before a forward pass,
    the caller writes the states of all sequences to the first rows of their places
    (`rlcpu.nn.network.plan.NetworkPlan.states`).
    """

    steps: int  #: time steps; 1 without memory
    #: (samples,), above 0 where an episode begins with a sample, and nothing is remembered, below 0
    #: where derivatives go no further; not looked at without memory.
    starts: Any


class Work(Struct):
    """Arguments of a pass, see above and `Time`; the mode of a forward pass is `FORWARD`."""

    network = Reference(Packed)
    units = Array("real")
    samples = Whole()
    num_slopes = Whole()
    slopes = Array("real")
    gradients = Array("real")
    is_summed = Flag()
    mode = Whole()
    steps = Whole()
    starts = Array("real")


@inline_source
def forward(network, units, samples, is_summed, time):
    """Write the outputs to units, and return where the first begins, in kernels; see above."""
    nothing = address(units)
    work = Work(
        network=network,
        units=nothing,
        samples=samples,
        num_slopes=0,
        slopes=nothing,
        gradients=nothing,
        is_summed=is_summed,
        mode=FORWARD,
        steps=time.steps,
        starts=address(time.starts),
    )
    first = 1 if is_summed else 0  # the caller has computed the first layer
    for i in range(first, network.num_steps):
        call_at(network.table[i].forward, (network.table[i], work))
    return read_place(network.outputs[0]).offset * samples


@inline_source
def backward(network, units, slopes, gradients, samples, is_summed, time, mode):
    """Compute gradients, slopes of the inputs, or both, in kernels; see above."""
    work = Work(
        network=network,
        units=address(units),
        samples=samples,
        num_slopes=slopes.size,
        slopes=address(slopes),
        gradients=address(gradients),
        is_summed=is_summed,
        mode=mode,
        steps=time.steps,
        starts=address(time.starts),
    )
    for i in range(network.num_steps - 1, -1, -1):
        call_at(network.table[i].backward, (network.table[i], work))


def link(plan: NetworkPlan, dtype: type, is_learnt: bool = True) -> npt.NDArray[Any]:
    """Return the table of a plan with the addresses of functions, compiled if need be.

    Args:
        plan: of a network.
        dtype: in which it is computed.
        is_learnt: whether there are backward passes.
    """
    table = plan.table.copy()
    table["forward"] = [_address(kind.forward, dtype) for kind in plan.kinds]
    if is_learnt:
        table["backward"] = [_address(kind.backward, dtype) for kind in plan.kinds]
    return table


class LinkedNetwork:
    """A network's parameters as kernels read them, in memory of its own, linked to functions.

    Args:
        plan: of the network.
        parameters: (plan.flat,), read now and by `refresh`; kernels compute in their dtype.
        is_learnt: whether there are backward passes.

    Attributes:
        plan, parameters: see above.
        packed: the struct that kernels are handed.
    """

    def __init__(self, plan: NetworkPlan, parameters: Any, is_learnt: bool = False) -> None:
        self.plan, self.parameters, dtype = plan, parameters, parameters.dtype.type
        numbers = aligned_zeros((plan.parameters,), dtype)
        copies = aligned_zeros((plan.copies,), dtype)
        self.packed = Packed.of(real=dtype)(
            table=link(plan, dtype, is_learnt),
            inputs=plan.inputs,
            outputs=plan.outputs,
            states=plan.states,
            parameters=numbers,
            copies=copies,
        )
        views = zip(plan.packed_views(numbers), plan.flat_views(parameters), strict=True)
        # What `refresh` writes, and from what, in this order.
        self._pairs = [*views, *plan.copied_views(numbers, copies, is_learnt=is_learnt)]
        self.refresh()

    def refresh(self) -> None:
        """Read the present parameters."""
        for target, source in self._pairs:
            target[...] = source


class LinkedNetworks:
    """Cache of linked networks by name; its copies begin empty, as their addresses mean nothing."""

    def __init__(self) -> None:
        self._cache: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return LinkedNetworks, ()

    def of(self, name: str, make: Callable[..., Any], plan: NetworkPlan, parameters: Any) -> Any:
        """Return the network of a name, with the present parameters.

        It is what `make(plan, parameters)`, a `LinkedNetwork`, was when these two were others last.
        """
        network = self._cache.get(name)
        if network is None or network.plan is not plan or network.parameters is not parameters:
            network = self._cache[name] = make(plan, parameters)
        else:
            network.refresh()
        return network


@functools.cache
def _address(compute: Callable[..., None], dtype: type) -> int:
    """Return the address of a function of a `Kind`, compiled in a dtype."""
    return c_function(compute, (from_dtype(STEP), Work.of(real=dtype).view), dtype)
