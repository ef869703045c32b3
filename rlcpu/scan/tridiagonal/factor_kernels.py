"""Driver that factors tridiagonal matrices, and how solves read the factors.

Factors are an array (blocks, n, 5, lanes): as many matrices as a register has numbers make a block,
and a solve reads it from the first number to the last. One matrix for all systems is (n, 5).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import prange

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.memory import (
    address,
    load,
    load_first,
    store_first,
)
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.tridiagonal.factor_steps import Factors, Multiplier, Rest, Row, factor_row
from rlcpu.scan.tridiagonal.steps import inlined

ONE = 1  # register of a vector
COUNT = 5  # numbers of an equation's factors
CHUNKS = 64  # parts that cores take in turn
GRAIN = 2**14  # numbers from which a second core is worth waking


# ---------------------------------------------------------------- factors


@inlined
def _read(sources, k, n, at, here, zero):  # type: ignore[no-untyped-def]
    """Row k of the matrices of a block: nothing leads out of the matrix."""
    one = zero + 1
    return Row(
        load_first(sources[0], at, here if k > 0 else 0, zero, ONE),
        load_first(sources[1], at, here, one, ONE),
        load_first(sources[2], at, here if k < n - 1 else 0, zero, ONE),
    )


@inlined
def _put(number, packed, at, pitch):  # type: ignore[no-untyped-def]
    store_first(number, packed, at, pitch)
    return number * 0.0


@inlined
def _factor_block(sources, packed, zero, plan, block):  # type: ignore[no-untyped-def]
    """Factor the matrices of a block; NaN where one is singular or not finite."""
    n, count, pitch = plan[0], plan[1], plan[2]
    lanes = width(packed, ONE)
    here = min(lanes, count - block * lanes)
    nothing = fill(zero, ONE)
    rest, trace = Rest(nothing + 1, nothing), nothing
    at, target = block * lanes, block * n * COUNT * pitch
    for k in range(n):
        row = _read(sources, k, n, at, here, zero)
        multiplier, factors, rest = factor_row(rest, row)
        trace = trace + _put(multiplier.scale, packed, target, pitch)
        trace = trace + _put(multiplier.factor, packed, target + pitch, pitch)
        if k > 0:
            before = target - COUNT * pitch
            trace = trace + _put(factors.inverse, packed, before + 2 * pitch, pitch)
            trace = trace + _put(factors.upper, packed, before + 3 * pitch, pitch)
            trace = trace + _put(factors.second, packed, before + 4 * pitch, pitch)
        at, target = at + count, target + COUNT * pitch
    before = target - COUNT * pitch
    trace = trace + _put(1.0 / rest.diagonal, packed, before + 2 * pitch, pitch)
    _put(nothing, packed, before + 3 * pitch, pitch)
    _put(nothing, packed, before + 4 * pitch, pitch)
    return trace, here


def make_factor(parallel: bool) -> Any:
    """Driver: (lower, diagonal, upper, plan, packed, failed).

    The coefficients are (n, count), `plan` is (n, count, matrices that a block has room for), and
    `failed`, of `count`, is overwritten with 0 or NaN.
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def factor(lower, diagonal, upper, plan, packed, failed):  # type: ignore[no-untyped-def]
        lanes = width(address(packed), ONE)
        for block in prange((plan[1] + lanes - 1) // lanes):
            sources = address(lower), address(diagonal), address(upper)
            zero = packed.dtype.type(0.0)
            trace, here = _factor_block(sources, address(packed), zero, plan, block)
            store_first(trace, address(failed), block * lanes, here)

    return factor


@functools.cache
def factor_kernels() -> Kernels:
    """Drivers that factor."""
    return Kernels(make_factor(False), make_factor(True), GRAIN)


# ---------------------------------------------------------------- reading factors


class Reader(NamedTuple):
    """How a solve reads factors, of one matrix or of a block of them.

    Attributes:
        registers: of a vector; two hide the latency of a chain of dependent operations.
        multiplier: from a pointer and an equation's number, for the way down.
        factors: the same for the way up.
    """

    registers: int
    multiplier: Callable[..., Any]
    factors: Callable[..., Any]


@inlined
def _one_multiplier(factors, k):  # type: ignore[no-untyped-def]
    at = COUNT * k
    return Multiplier(fill(factors[at], 2), fill(factors[at + 1], 2))


@inlined
def _one_factors(factors, k):  # type: ignore[no-untyped-def]
    at = COUNT * k + 2
    return Factors(fill(factors[at], 2), fill(factors[at + 1], 2), fill(factors[at + 2], 2))


@inlined
def _own_multiplier(factors, k):  # type: ignore[no-untyped-def]
    lanes = width(factors, ONE)
    at = COUNT * k * lanes
    return Multiplier(load(factors, at, ONE), load(factors, at + lanes, ONE))


@inlined
def _own_factors(factors, k):  # type: ignore[no-untyped-def]
    lanes = width(factors, ONE)
    at = (COUNT * k + 2) * lanes
    return Factors(
        load(factors, at, ONE), load(factors, at + lanes, ONE), load(factors, at + 2 * lanes, ONE)
    )


SHARED = Reader(2, _one_multiplier, _one_factors)
OWN = Reader(1, _own_multiplier, _own_factors)
