"""Frames: the argument by which a rollout's compiled function gets its arrays.

A function that runs all steps of one block is called by its address, with numbers alone. One of
them is the address of a frame, an array of int64 with the address and the size of every array, in
this order: `EnvArrays`, `KernelPolicy`, the outputs (`Records`, or the sums of `simulate`); then
one number for each block, `FIRST_FAULT + block`, which the function sets to a number above 0 if a
number of the block was not finite (a "fault"). "Opening" arrays is making them again of the
addresses in a frame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.form import NUM_SUMS, Records
from rlcpu.envs.engine.lane import LANES, NUM_WORDS
from rlcpu.envs.policies import POLICY_DTYPES, KernelPolicy
from rlcpu.kernels.compile import define, inline
from rlcpu.kernels.memory import array_at


class EnvArrays(NamedTuple):
    """The memory of the environments and their run-time numbers.

    Kernels are called with plain tuples of the same fields: NumPy's arrays in a NamedTuple cost a
    call 0.6 us more.
    """

    #: See `rlcpu.envs.engine.lanes.LaneEngine`.
    real: Any
    words: Any
    #: (num_numbers,) of the params.
    numbers: Any
    #: (2 * action_size,) float32, lowest and then highest numbers of an action.
    bounds: Any
    #: (2,) uint32, counter of the first step's random numbers, limit of an episode's steps.
    clock: Any
    #: (6,) int64, an `EnvSizes`.
    sizes: Any
    #: (2 * S,) int64: first number and count of each run of floats in an observation.
    observed_spans: Any
    #: The same for a state.
    state_spans: Any


class EnvSizes(NamedTuple):
    """Numbers of an environment that kernels read."""

    #: Address of the environment's function, see `rlcpu.envs.engine.steps.EnvFacts`.
    function: int
    #: Which random number of a step is the policy's first one.
    first_draw: int
    #: Floats of a block in `real`, and the place of its returns there.
    block_size: int
    returns_at: int
    #: Rows of an observation without and with its action mask.
    mask_row: int
    num_rows: int


#: Places in `EnvArrays.sizes`.
FUNCTION, FIRST_DRAW, BLOCK_SIZE, RETURNS_AT, MASK_ROW, NUM_ROWS = range(6)
#: Places of two arrays in `EnvArrays`.
WORDS, CLOCK = map(EnvArrays._fields.index, ("words", "clock"))
#: Places in a frame of the policy's arrays, of the outputs, and of the faults of blocks. An array
#: takes two: its address and its size.
FIRST_POLICY = 2 * len(EnvArrays._fields)
FIRST_OUTPUT = FIRST_POLICY + 2 * len(KernelPolicy._fields)
FIRST_FAULT = FIRST_OUTPUT + 2 * len(Records._fields)


@functools.cache
def make_write(count: int) -> Any:
    """Make an inlinable function (frame, first, arrays) that writes `count` arrays into a frame.

    Its source is `frame[first] = arrays[0].ctypes.data; frame[first + 1] = arrays[0].size; ...`.
    """
    statements = []
    for k in range(count):
        statements.append(f"frame[first + {2 * k}] = arrays[{k}].ctypes.data")
        statements.append(f"frame[first + {2 * k + 1}] = arrays[{k}].size")
    return inline(define(f"def write(frame, first, arrays): {'; '.join(statements)}"), exact=True)


@functools.cache
def _make_open(kind: Any, dtypes: tuple[Any, ...], first: int) -> Callable[..., Any]:
    """Make an inlinable function: frame -> a NamedTuple `kind` of arrays.

    Its source is `kind(array_at(frame[first], (frame[first + 1],), like0), ...)`, where `like0` is
    a number of the first array's dtype.
    """
    names: dict[str, Any] = {"kind": kind, "array_at": array_at}
    names |= {f"like{k}": dtype(0) for k, dtype in enumerate(dtypes)}
    places = [first + 2 * k for k in range(len(dtypes))]
    arrays = [f"array_at(frame[{p}], (frame[{p + 1}],), like{k})" for k, p in enumerate(places)]
    return inline(define(f"def open(frame): return kind({', '.join(arrays)})", **names))


@functools.cache
def make_open_env(dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> `EnvArrays`, whose memory is one block's."""
    dtypes = EnvArrays(
        real=dtype,
        words=np.uint32,
        numbers=dtype,
        bounds=np.float32,
        clock=np.uint32,
        sizes=np.int64,
        observed_spans=np.int64,
        state_spans=np.int64,
    )
    open_all, words_size = _make_open(EnvArrays, tuple(dtypes), 0), NUM_WORDS * LANES

    @inline
    def open_env(frame, block):
        arrays = open_all(frame)
        size = arrays.sizes[BLOCK_SIZE]
        return EnvArrays(
            arrays.real[block * size : (block + 1) * size],
            arrays.words[block * words_size : (block + 1) * words_size],
            arrays.numbers,
            arrays.bounds,
            arrays.clock,
            arrays.sizes,
            arrays.observed_spans,
            arrays.state_spans,
        )

    return open_env


def make_open_policy(first: int = FIRST_POLICY) -> Callable[..., Any]:
    """Make an inlinable function: frame -> `KernelPolicy`; `first` is its place in the frame."""
    return _make_open(KernelPolicy, tuple(POLICY_DTYPES.values()), first)


def make_open_records(is_whole: bool, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> the `Records` of all environments."""
    dtypes: dict[str, Any] = dict.fromkeys(Records._fields, np.float32)
    dtypes |= {"actions": np.int64 if is_whole else np.float32, "rewards": dtype, "totals": dtype}
    dtypes |= {"lengths": np.uint32, "flags": np.uint8}
    open_all = _make_open(Records, tuple(dtypes.values()), FIRST_OUTPUT)
    # `block` is not read: the signature is that of `open_sums`, whose blocks have own outputs.
    return inline(lambda frame, block: open_all(frame))


@inline
def open_sums(frame, block):
    """Return the sums of a block of `simulate`, (NUM_SUMS,) float64."""
    return array_at(frame[FIRST_OUTPUT] + 8 * NUM_SUMS * block, (NUM_SUMS,), np.float64(0))
