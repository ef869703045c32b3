"""Passes of networks over samples, a sample a row.

One pair of functions for each dtype runs every network: they go through its table of instructions
(`rlcpu.nn.plan`), forwards and backwards, and call the functions of each one's kind of layer
(`rlcpu.nn.layers`). Kernels call them by address: a new network compiles nothing.

    forward, backward = make_passes(dtype)         # for kernels; `passes` are `passes_of(dtype)`

    forward(passes, network, units, samples, is_summed)
        makes the outputs, and returns where the first one begins in `units`

    backward(passes, network, units, slopes, gradients, samples, is_summed, mode)
        makes derivatives by the parameters, by the inputs, or both

`network` is a `Packed`; `input_place` and `output_place` say where its inputs and outputs are in
`units`, which its `Plan` has the size of:

    units      (samples * plan.units,) or more. Before a forward pass, the caller writes the inputs:
               rows of place.width numbers, of which the first place.size count, the others are 0.
               Afterwards the outputs are there, in rows of the same kind. Before a backward pass,
               the caller writes derivatives by all outputs in their places, 0 in the padding too.
               It overwrites all units: each one needs a forward pass of its own.
    slopes     ((samples + 1) * plan.slopes,) or more, scratch.
    gradients  (plan.parameters,), of the packed parameters; not looked at with `BY_INPUTS` alone.
    is_summed  the product of the first layer is there already, not below 0 where that is a relu,
               and input 0 is not read; `plan.takes_ones` says which networks allow it. The backward
               pass leaves it to the caller to add the gradients of that layer's weights, and
               derivatives by the product in its place; see `Ones`.
    mode       `ADDED`: derivatives by the parameters are added to `gradients`; or `OVERWRITTEN`:
               they overwrite it; `BY_INPUTS`: those by the inputs take the place of the inputs.
               One of the first two and the third may be combined, as in `ADDED | BY_INPUTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.calls import function_of, kind_of, make_call
from rlcpu.kernels.compile import define, merge
from rlcpu.nn.layers import KINDS
from rlcpu.nn.layers.kind import ADDED as ADDED
from rlcpu.nn.layers.kind import BY_INPUTS as BY_INPUTS
from rlcpu.nn.layers.kind import FORWARD, STEP, Kind
from rlcpu.nn.layers.kind import OVERWRITTEN as OVERWRITTEN
from rlcpu.nn.packed import Packed, output_place


class Work(NamedTuple):
    """Arguments of a pass, see above; the mode of a forward pass is `FORWARD`."""

    network: Packed
    units: Any
    samples: int
    slopes: Any
    gradients: Any
    is_summed: bool
    mode: int


def passes_of(dtype: type) -> int:
    """Return the address of the passes of one dtype, compiled, for all kinds that there are."""
    return _passes_of(dtype, tuple(KINDS))


@functools.cache
def _passes_of(dtype: type, kinds: tuple[Kind, ...]) -> int:
    return function_of(make_run(dtype, kinds), _work_kind(dtype))


@functools.cache
def make_passes(dtype: type) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Make `forward` and `backward`, by which kernels run the passes of one dtype; see above."""
    call = make_call(_work_kind(dtype))

    @merge
    def forward(passes, network, units, samples, is_summed):
        call(passes, Work(network, units, samples, units[:0], units[:0], is_summed, FORWARD))
        return output_place(network, 0).cells * samples

    @merge
    def backward(passes, network, units, slopes, gradients, samples, is_summed, mode):
        call(passes, Work(network, units, samples, slopes, gradients, is_summed, mode))

    return forward, backward


def _work_kind(dtype: type) -> Any:
    """Return numba's type of a `Work`."""
    none: Any = np.zeros(0, dtype)
    places: Any = np.zeros((0, 0), np.int64)
    network = Packed(np.zeros(0, STEP), places, places, none, none)
    return kind_of(Work(network, none, 0, none, none, False, FORWARD))


@functools.cache
def make_run(dtype: type, kinds: tuple[Kind, ...]) -> Callable[..., None]:
    """Make `run(work)`, which runs one pass forwards or backwards.

    One function does both, because they share the largest part of their code, the product.
    """
    forward = _choose([kind.forward(dtype) for kind in kinds])
    backward = _choose([kind.backward(dtype) for kind in kinds])

    def run(work):
        table = work.network.table
        if work.mode == FORWARD:
            for i in range(table.shape[0]):
                if not (work.is_summed and i == 0):
                    forward(table[i], work)
        else:
            for i in range(table.shape[0] - 1, -1, -1):
                backward(table[i], work)

    return run


def _choose(functions: list[Callable[..., None]]) -> Callable[..., None]:
    """Make `run(step, work)`, which calls the function of the step's kind."""
    names = {f"run_{number}": function for number, function in enumerate(functions)}
    cases = [f"    if step.kind == {k}: {name}(step, work)" for k, name in enumerate(names)]
    return merge(define("\n".join(["def run(step, work):", *cases]), **names))
