"""One environment in one thread: its rows in memory and its step, in registers.

Row r of environment i stands at `r * num_envs + i`: the 32 threads of a warp read 32 neighbours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.envs.lane import PENDING, Structure, Turn, compile_lane
from rlcpu.kernels.compile import define, source_of_tuple


@functools.cache
def load_rows(count: int) -> Callable[..., Any]:
    """Function (rows, stride, i) -> tuple of `count` numbers."""
    items = source_of_tuple(f"rows[{row} * stride + i]" for row in range(count))
    return define(f"def load(rows, stride, i): return {items}")


@functools.cache
def store_rows(count: int, dtype: type) -> Callable[..., Any]:
    """Function (rows, stride, i, values) that writes `count` numbers."""
    lines = "".join(f"\n    rows[{k} * stride + i] = real(values[{k}])" for k in range(count))
    return define(f"def store(rows, stride, i, values):{lines}", real=dtype)


@functools.cache
def store_items(count: int, dtype: type) -> Callable[..., Any]:
    """Function (array, begin, values) that writes `count` neighbours."""
    lines = "".join(f"\n    array[begin + {k}] = real(values[{k}])" for k in range(count))
    return define(f"def store(array, begin, values):{lines}", real=dtype)


@functools.cache
def load_items(count: int, dtype: type) -> Callable[..., Any]:
    """Function (array, begin) -> tuple of `count` neighbours."""
    items = source_of_tuple(f"real(array[begin + {k}])" for k in range(count))
    return define(f"def load(array, begin): return {items}", real=dtype)


@functools.cache
def make_turn(env: Structure, dtype: type, same_step: bool) -> Callable[..., Turn]:
    """Function (state, elapsed, total, action, bits, params, limit) -> Turn.

    As `rlcpu.envs.lane.make_turn`, with state, clock and return in registers, and a branch where an
    episode ends: a warp without ends draws no new state.
    """
    lane = compile_lane(env, dtype)
    step, reset = lane.step, lane.reset
    real, nothing = dtype, dtype(0)
    one, mark = np.uint32(1), np.uint32(PENDING)
    u32 = np.uint32

    def turn(state, elapsed, total, action, bits, params, limit):
        pending = False if same_step else elapsed == mark
        reached, reward, failed = step(state, action, params, bits[0], bits[1])
        reward = nothing if pending else real(reward)
        total = total + reward
        elapsed = u32(elapsed + one)
        terminated = failed and not pending
        truncated = elapsed >= limit
        renewed = (terminated or truncated) if same_step else pending
        kept = reached
        if renewed:
            kept = reset(params, bits[0], bits[1])
        return Turn(reached, kept, reward, terminated, truncated, total, elapsed)

    return turn
