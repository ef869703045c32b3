"""From checked arguments to kernels: blocks of models, one in each lane of a vector."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange, types

from rlcpu.kernels.calls import View, kind_of, place_of_view, view
from rlcpu.kernels.compile import c_function, inline, prefer_small_code
from rlcpu.kernels.memory import LINE, array_at, call_at, pointer_to
from rlcpu.kernels.threads import Kernels, for_cores, launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill
from rlcpu.scan.kalman.filter import (
    CONVERGED,
    KalmanTask,
    ModelArrays,
    StateArrays,
    forward,
    lay_out_workspace,
)
from rlcpu.scan.kalman.matrices import Arena
from rlcpu.scan.kalman.model import Array, KalmanProblem
from rlcpu.scan.kalman.smoother import backward

#: Steps of a chunk, fewer where what is kept of them takes more than this many numbers.
LONGEST, NUMBERS = 32, 2**17
#: Numbers of a state up to which models share cells, if there are at least half as many models.
LARGE = 24
#: Outputs of `run` for which time is gone through backward, too.
TWO_WAY = ("smoothed", "gradients")
#: m * m of all models and steps from which a second core is worth waking: 20 us of the smallest.
GRAIN = 2**14


def run(problem: KalmanProblem, outputs: str) -> tuple[Array, list[Array]]:
    """Return log-likelihoods (batch), and what else is computed, each (batch, *shape).

    Args:
        problem: it may have no models or no time steps.
        outputs: "loglik" for nothing else; "states" for predicted and filtered means and
            covariances, "smoothed" for smoothed ones, "gradients" with respect to all inputs.
    """
    models, dtype = math.prod(problem.batch), problem.inputs[0].dtype
    (steps, p), (m, _) = problem.shapes[0], problem.shapes[-1]
    mean, cov = (steps, m), (steps, m, m)
    shapes = {"states": (mean, cov) * 2, "smoothed": (mean, cov), "gradients": problem.shapes}
    results = [np.zeros(problem.batch + s, dtype) for s in shapes.get(outputs, ())]
    if models == 0 or steps == 0:
        return np.zeros(problem.batch, dtype), results
    lanes = VECTOR_BYTES // dtype.itemsize
    if models == 1 or m > min(2 * models, LARGE):
        lanes = 1
    blocks = -(-models // lanes)
    task = _make_task(problem, outputs, results, blocks * lanes)
    addresses = [address_of(forward, task, lanes), 0]
    if outputs in TWO_WAY:
        addresses[1] = address_of(backward, task, lanes)
    # A line for the count of cells in use, see `run_block`, and the cells.
    size = LINE + count_cells(m, p, task.length, task.chunks) * lanes * dtype.itemsize
    work = models * steps * m * m if blocks > 1 else 0
    launch(drivers(), work, problem.num_threads, *addresses, task, size, blocks)
    return task.loglik[:models].astype(dtype).reshape(problem.batch), results


def _make_task(
    problem: KalmanProblem, outputs: str, results: list[Array], lanes: int
) -> KalmanTask:
    """Return a call for kernels: `results` are those of `run`, `lanes` those of all blocks."""
    models, dtype = math.prod(problem.batch), problem.inputs[0].dtype
    (steps, p), (m, _) = problem.shapes[0], problem.shapes[-1]
    nothing = np.empty((0, 1, 1), dtype)
    states, gradients = [nothing] * 4, [nothing] * 7
    if outputs == "gradients":
        pairs = zip(results, problem.rows, strict=True)
        gradients = [x.reshape(models, *row) for x, row in pairs]
    elif results:
        states[-len(results) :] = [x.reshape(models, steps, -1) for x in results]
    length = min(steps, max(8, min(LONGEST, NUMBERS // ((m + p) * (m + p + 1)))))
    return KalmanTask(
        inputs=ModelArrays(*map(to_rows, problem.inputs, problem.rows)),
        positions=find_positions(problem.batch, problem.leading, lanes),
        loglik=np.zeros(lanes),
        states=StateArrays(*states),
        gradients=ModelArrays(*gradients),
        m=m,
        p=p,
        length=length,
        chunks=-(-steps // length) if outputs in TWO_WAY else 1,
        wants_states=outputs == "states",
        varies=any(count > 1 for count, _ in problem.rows[1:]),
        joseph=problem.joseph,
        tolerance=max(CONVERGED, m) * float(np.finfo(dtype).eps),
    )


def to_rows(array: Array, row: tuple[int, int]) -> Array:
    """Return an input as (models, T or 1, numbers of a step), a view where kernels can take it."""
    rows = array.reshape(-1, *row)
    return rows if rows.flags.carray else rows.copy()


@functools.lru_cache(maxsize=64)
def find_positions(
    batch: tuple[int, ...], leading: tuple[tuple[int, ...], ...], lanes: int
) -> npt.NDArray[np.int64]:
    """Return where each lane's model is in each input, (7, lanes).

    Args:
        batch: shape of the models, to which those of the inputs broadcast.
        leading: shape of the models of each input.
        lanes: number of lanes of all blocks; those beyond the last model repeat it.
    """
    positions = np.empty((len(leading), lanes), np.int64)
    for row, shape in zip(positions, leading, strict=True):
        numbers = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), batch).ravel()
        row[: numbers.size], row[numbers.size :] = numbers, numbers[-1]
    return positions


@functools.lru_cache(maxsize=64)
def count_cells(m: int, p: int, length: int, chunks: int) -> int:
    """Return the number of cells of a workspace."""
    used = [0]
    lay_out_workspace.py_func(Arena(None, used), m, p, length, chunks)
    return used[0]


# ---------------------------------------------------------------- kernels


@functools.cache
def drivers() -> Kernels:
    """Return kernels of the loop over blocks of models."""

    def run_blocks(forward, backward, task, size, blocks):
        """Run the functions at two addresses for each block; `backward` may be 0.

        `task` is a `KalmanTask`, `size` the bytes of a block's memory.
        """
        task_address = place_of_view(view(task))
        for block in prange(blocks):
            memory = np.zeros(size + LINE, np.uint8)  # more by a line, to begin at a cache line
            begin = (memory.ctypes.data + LINE - 1) & -LINE
            call_at(forward, (task_address, block, begin))
            if backward != 0:
                call_at(backward, (task_address, block, begin))
            memory[0] = 0  # keeps it alive until now: an address does not

    return for_cores(run_blocks, GRAIN)


#: Addresses of compiled functions by function, dtype and lanes.
_addresses: dict[tuple[Any, str, int], int] = {}


def address_of(function: Any, task: KalmanTask, lanes: int) -> int:
    """Return the address of `forward` or `backward` for blocks of so many models.

    `task` is one of the calls: types of all others of its dtype are the same.
    """
    dtype = task.inputs.observations.dtype
    key = function, dtype.name, lanes
    if key in _addresses:
        return _addresses[key]
    number, whole, run_all = dtype.type(0.0), np.int64(0), inline(function)
    cells_at = vectors_at if lanes > 1 else pointer_to
    # Small code compiles in 40 % of the time, and is as fast; but one model forward takes 1.6x.
    make_small = prefer_small_code if lanes > 1 or function is backward else do_nothing

    def run_block(task, block, memory):
        make_small()
        used = array_at(memory, (1,), whole)  # in the line before the cells
        used[0] = 0
        arena = Arena(cells_at(memory + LINE, number), used)
        run_all(
            task, block * lanes, lay_out_workspace(arena, task.m, task.p, task.length, task.chunks)
        )

    kinds = View(kind_of(task)), types.int64, types.int64
    _addresses[key] = c_function(run_block, kinds)
    return _addresses[key]


@inline
def vectors_at(address, like):
    """Return a pointer to cells of as many models as a register holds."""
    return pointer_to(address, fill(like, 1))


@inline
def do_nothing():
    """Do nothing, in the place of `prefer_small_code`."""
