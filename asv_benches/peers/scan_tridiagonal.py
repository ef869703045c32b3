"""Peers that solve tridiagonal systems on a CPU: LAPACK, SciPy, numba, NumPy; and the roofline."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers import machine
from asv_benches.peers.cpp import load
from asv_benches.peers.duel import Best, TimeDuel
from asv_benches.peers.replay_calls import Arguments
from asv_benches.peers.scan_problems import Solver, Systems

WIDE = ("-mprefer-vector-width=512",)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Where an array begins, for C."""
    return ctypes.c_void_p(array.ctypes.data)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    room = np.empty(array.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    copy = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@dataclass
class Roofline(Solver):
    """The machine's limit: the sum of four arrays, on all cores.

    Attributes:
        stores: "plain", or "streaming" past the caches.
    """

    stores: str = "plain"

    def make(self) -> Callable[..., Any]:
        """Compiles."""
        systems: Systems = self.problem
        function = getattr(load("scan_roofline.cpp", WIDE), f"{self.stores}_{systems.dtype}")
        out = aligned(np.zeros(systems.shape, systems.dtype))
        size = ctypes.c_int64(out.size)

        def total(*arrays: np.ndarray) -> np.ndarray:
            function(*map(pointer, arrays), pointer(out), size)
            return out

        return total

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """Aligned copies."""
        return tuple(aligned(array) for array in arrays)


def roofline(systems: Systems) -> Best:
    """With the stores that are faster here."""
    variants = [Roofline(f"{stores} stores", systems, stores) for stores in ("plain", "streaming")]
    return Best("roofline", variants)


class ShareDuel(TimeDuel):
    """Ours against the machine's limit: the best rounds of both, a fifth of them.

    A disturbed round of the limit is no limit, and one of ours says nothing of the kernel.
    """

    def settle(self, seconds: np.ndarray) -> np.ndarray:
        """The fastest rounds of each, paired."""
        return np.sort(seconds, axis=0)[: max(1, len(seconds) // 5)]


@dataclass
class Lapack(Solver):
    """?gtsv of the LAPACK that SciPy brings along, the systems divided among all cores."""

    def make(self) -> Callable[..., Any]:
        """Compiles the loop over the systems."""
        from numba.extending import get_cython_function_address

        systems: Systems = self.problem
        letter = {"float64": "d", "float32": "s"}[systems.dtype]
        address = get_cython_function_address("scipy.linalg.cython_lapack", f"{letter}gtsv")
        function = getattr(load("scan_gtsv.cpp", ()), f"solve_{systems.dtype}")
        function.restype = ctypes.c_int64
        out = np.zeros(systems.shape, systems.dtype)
        scratch = np.zeros((machine.cores(), 3 * systems.n), systems.dtype)
        sizes = ctypes.c_int64(systems.batch), ctypes.c_int(systems.n)

        def solve(*arrays: np.ndarray) -> np.ndarray:
            pointers = map(pointer, (*arrays, out, scratch))
            if function(ctypes.c_void_p(address), *pointers, *sizes):
                raise ArithmeticError("LAPACK found a singular system")
            return out

        return solve


@dataclass
class SolveBanded(Solver):
    """`scipy.linalg.solve_banded` of one matrix and many right-hand sides."""

    def make(self) -> Callable[..., Any]:
        """SciPy's function without its search for NaN."""
        from scipy.linalg import solve_banded

        return lambda bands, rhs: solve_banded((1, 1), bands, rhs, check_finite=False).T

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """The diagonals as SciPy wants them; systems in columns, in LAPACK's order."""
        lower, diagonal, upper, rhs = arrays
        return np.stack([np.roll(upper, 1), diagonal, np.roll(lower, -1)]), rhs.T


@dataclass
class NumbaLoop(Solver):
    """What a user of numba writes: the algorithm on one row after the other, in parallel."""

    def make(self) -> Callable[..., Any]:
        """Compiles; the threading layer is ours."""
        from rlcpu.kernels.threads import threading_layer

        threading_layer()
        compiled = numba_loop()
        out = np.zeros(self.problem.shape, self.problem.dtype)

        def solve(*arrays: np.ndarray) -> np.ndarray:
            compiled(*arrays, out)
            return out

        return solve


def numba_loop() -> Callable[..., None]:
    """The report's algorithm, of arrays (batch, n)."""
    import numba

    @numba.njit(parallel=True)
    def solve(a, b, c, d, out):  # type: ignore[no-untyped-def]
        batch, n = a.shape
        for s in numba.prange(batch):
            cp = np.empty(n, a.dtype)
            denom = 1 / b[s, 0]
            cp[0] = c[s, 0] * denom
            out[s, 0] = d[s, 0] * denom
            for i in range(1, n):
                denom = 1 / (b[s, i] - a[s, i] * cp[i - 1])
                cp[i] = c[s, i] * denom
                out[s, i] = (d[s, i] - a[s, i] * out[s, i - 1]) * denom
            for i in range(n - 2, -1, -1):
                out[s, i] -= cp[i] * out[s, i + 1]

    return solve


@dataclass
class NumpyLoop(Solver):
    """The report's NumPy, which overwrites two of its arguments: copies of them, not timed."""

    def make(self) -> Callable[..., Any]:
        """The function itself."""
        return numpy_loop

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Copies."""
        return [tuple(array.copy() for array in arrays) for arrays in super().inputs(rng, count)]


def numpy_loop(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The report's tdma_naive, word for word."""
    assert a.shape == b.shape and a.shape == c.shape and a.shape == d.shape  # noqa: PT018

    n = a.shape[-1]

    for i in range(1, n):
        w = a[..., i] / b[..., i - 1]
        b[..., i] += -w * c[..., i - 1]
        d[..., i] += -w * d[..., i - 1]

    out = np.empty_like(a)
    out[..., -1] = d[..., -1] / b[..., -1]

    for i in range(n - 2, -1, -1):
        out[..., i] = (d[..., i] - c[..., i] * out[..., i + 1]) / b[..., i]

    return out
