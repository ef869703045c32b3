"""From checked arguments to kernels: blocks of models, one in each lane of a vector."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange, types

from rlcpu.kernels.calls import View, kind_of, view
from rlcpu.kernels.compile import c_function
from rlcpu.kernels.memory import LINE, array_at, call_at, pointer_to
from rlcpu.kernels.threads import Kernels, launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill
from rlcpu.scan.device import for_cores
from rlcpu.scan.kalman.filter import (
    CONVERGED,
    SMOOTH,
    VALUE,
    WantedResults,
    forward,
    lay_out,
    size_of,
)
from rlcpu.scan.kalman.matrices import called, inlined
from rlcpu.scan.kalman.model import Array, KalmanProblem
from rlcpu.scan.kalman.reverse import backward
from rlcpu.scan.kalman.small import make_small, pad

#: Steps of a chunk, fewer where what is recorded of them takes more than this many numbers.
LONGEST, RECORDS = 32, 2**17
#: Up to so many numbers of a state, a cell holds a number of each of several models, if they are at
#: least half as many.
LARGE = 24
#: m * m of all models and steps from which a second core is worth waking: 20 us of the smallest.
GRAIN = 2**14


class KalmanCall(NamedTuple):
    """A call for all blocks: whole numbers, with arrays by their addresses. See `WantedResults`.

    Attributes:
        lanes: number of lanes of all blocks.
        records: steps of a chunk that are recorded.
        chunks: number of chunks whose beginning is recorded.
        cells: size of a block's workspace.
        num_outputs: number of outputs.
    """

    kind: Any
    joseph: Any
    varies: Any
    models: Any
    steps: Any
    state: Any
    observation: Any
    chunk: Any
    observations: Any
    matrices: Any
    places: Any
    paces: Any
    out: Any
    outputs: Any
    logliks: Any
    lanes: Any
    records: Any
    chunks: Any
    cells: Any
    num_outputs: Any
    tolerance: Any


JOB: Any = kind_of(
    KalmanCall._make([types.int64] * (len(KalmanCall._fields) - 1) + [types.float64])
)


@inlined
def numbers_at(address, like):
    """Return a pointer to cells of one model."""
    return pointer_to(address, like)


@inlined
def vectors_at(address, like):
    """Return a pointer to cells of as many models as a register holds."""
    return pointer_to(address, fill(like, 1))


@functools.cache
def address_of(function: Any, dtype: str, lanes: int) -> int:
    """Return the address of `forward` or `backward` of one block, for cells of so many lanes."""
    zero, cells_at = np.dtype(dtype).type(0.0), vectors_at if lanes > 1 else numbers_at
    whole, double, run_all = np.int64(0), np.float64(0.0), called(function)

    def run_block(job, block, memory):
        call = WantedResults(
            job.kind,
            job.joseph != 0,
            job.varies != 0,
            job.models,
            block * lanes,
            job.steps,
            job.state,
            job.observation,
            job.chunk,
            job.tolerance,
            pointer_to(job.observations, zero),
            pointer_to(job.matrices, zero),
            array_at(job.places, (7, job.lanes), whole),
            pointer_to(job.paces, whole),
            pointer_to(job.out, zero),
            array_at(job.outputs, (job.num_outputs, 3), whole),
            pointer_to(job.logliks, double),
        )
        cells = cells_at(memory, zero)
        w = lay_out(cells, job.state, job.observation, job.chunk, job.records, job.chunks)
        run_all(view(call), view(w))

    return c_function(run_block, (View(JOB), types.int64, types.int64))


@functools.cache
def drivers() -> Kernels:
    """Return loops over blocks: `(forward, backward, job, size, blocks)`.

    The first two are addresses, `backward` may be 0; `size` is in bytes, of a block's memory.
    """

    def run_blocks(forward, backward, job, blocks):
        for block in prange(blocks):
            memory = np.zeros(job.cells + LINE, np.uint8)
            begin = (memory.ctypes.data + LINE - 1) & -LINE
            call_at(forward, (view(job), block, begin))
            if backward != 0:
                call_at(backward, (view(job), block, begin))
            memory[0] = 0  # keeps it alive until now: an address does not

    return for_cores(run_blocks, GRAIN)


def run(
    kind: int, problem: KalmanProblem, shapes: Sequence[tuple[int, ...]] = ()
) -> tuple[Array, list[Array]]:
    """Return log-likelihoods (batch), and what else is computed, each (batch, *shape).

    Args:
        kind: `VALUE`, `STATES`, `SMOOTH` or `GRADIENT`.
        problem: it may have no models or no time steps.
        shapes: of the outputs of one model; see `forward` and `backward` for what they are.
    """
    inputs, models = problem.inputs, math.prod(problem.batch)
    dtype, (steps, p), (m, _) = inputs[0].dtype, problem.shapes[0], problem.shapes[-1]
    sizes = [math.prod(shape) for shape in shapes]
    begins = [models * sum(sizes[:i]) for i in range(len(sizes) + 1)]
    out = np.zeros(begins[-1], dtype)
    results = [
        out[begin : begin + models * size].reshape(*problem.batch, *shape)
        for begin, size, shape in zip(begins, sizes, shapes, strict=False)
    ]
    if models == 0 or steps == 0:
        return np.zeros(problem.batch, dtype), results
    observations = np.ravel(inputs[0])
    matrices = np.concatenate([np.ravel(array) for array in inputs[1:]])
    is_plain = not any(problem.paces[1:]) and not problem.joseph
    if kind == VALUE and is_plain and models == 1 and m <= 2 and p == 1:
        loglik = np.zeros(1, dtype)
        make_small(dtype.name)(observations.copy(), pad(matrices), loglik)
        return loglik.reshape(problem.batch), []
    lanes = VECTOR_BYTES // dtype.itemsize
    if models == 1 or m > min(2 * models, LARGE):
        lanes = 1
    blocks = -(-models // lanes)
    places = find_places(
        problem.batch, tuple(array.shape for array in inputs), problem.shapes, blocks * lanes
    )
    paces, logliks = np.array(problem.paces, np.int64), np.zeros(blocks * lanes)
    table = [(b, n, math.prod(s[1:])) for b, n, s in zip(begins, sizes, shapes, strict=False)]
    outputs = np.array(table, np.int64)
    chunk = min(steps, max(8, min(LONGEST, RECORDS // (m * m + p * p + m * p + m + p))))
    records, chunks = (chunk, -(-steps // chunk)) if kind >= SMOOTH else (1, 1)
    arrays = observations, matrices, places, paces, out, outputs, logliks
    job = KalmanCall._make(
        (
            kind,
            int(problem.joseph),
            int(any(problem.paces[1:])),
            models,
            steps,
            m,
            p,
            chunk,
            *(array.ctypes.data for array in arrays),
            blocks * lanes,
            records,
            chunks,
            size_of(m, p, chunk, records, chunks) * lanes * dtype.itemsize,
            len(shapes),
            (CONVERGED * float(np.finfo(dtype).eps)) ** 2,
        )
    )
    functions = [address_of(forward, dtype.name, lanes), 0]
    if kind >= SMOOTH:
        functions[1] = address_of(backward, dtype.name, lanes)
    work = models * steps * m * m if blocks > 1 else 0
    launch(drivers(), work, problem.num_threads, *functions, job, blocks)
    return logliks[:models].astype(dtype).reshape(problem.batch), results


@functools.lru_cache(maxsize=8)
def find_places(
    batch: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    parts: tuple[tuple[int, ...], ...],
    lanes: int,
) -> npt.NDArray[np.int64]:
    """Return where the part of each lane of each input begins, (7, lanes).

    `shapes` are those of the inputs, `parts` those of one model's part. Observations begin at 0,
    the matrices follow one another. Lanes beyond the last model repeat it.
    """
    places = np.empty((len(shapes), lanes), np.int64)
    begin = 0
    for which, (shape, part) in enumerate(zip(shapes, parts, strict=True)):
        leading = shape[: len(shape) - len(part)]
        numbers = np.arange(math.prod(leading)).reshape(leading)
        row = begin + math.prod(part) * np.broadcast_to(numbers, batch).ravel()
        places[which, : row.size], places[which, row.size :] = row, row[-1]
        begin += math.prod(shape) if which else 0
    return places
