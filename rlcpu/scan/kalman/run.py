"""From checked arguments to kernels: blocks of models, one in each lane of a vector."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange, types

from rlcpu.kernels.compiler.compile import c_function, inline, prefer_small_code
from rlcpu.kernels.machine.memory import LINE, array_address, array_at, call_at, pointer_to
from rlcpu.kernels.machine.threads import for_cores, launch
from rlcpu.kernels.machine.vectors import VECTOR_BYTES, fill
from rlcpu.scan.kalman.filter import (
    CONVERGED,
    TASKS,
    KalmanTask,
    forward,
    lay_out_workspace,
)
from rlcpu.scan.kalman.matrices import Arena
from rlcpu.scan.kalman.model import Array, KalmanProblem, KalmanSizes
from rlcpu.scan.kalman.smoother import backward

#: Steps of a chunk at least and at most: fewer where those kept take more than `NUMBERS` numbers.
LEAST, LONGEST, NUMBERS = 8, 32, 2**17
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
    sizes, dtype = problem.sizes, problem.inputs.observations.dtype
    (steps, p), (m,) = sizes.shapes.observations, sizes.shapes.initial_mean
    models = math.prod(sizes.batch)
    mean, cov = (steps, m), (steps, m, m)
    shapes = {"states": (mean, cov) * 2, "smoothed": (mean, cov), "gradients": sizes.shapes}
    results = [np.zeros(sizes.batch + shape, dtype) for shape in shapes.get(outputs, ())]
    if models == 0 or steps == 0:
        return np.zeros(sizes.batch, dtype), results
    lanes = VECTOR_BYTES // dtype.itemsize
    if models == 1 or m > min(2 * models, LARGE):
        lanes = 1
    blocks = -(-models // lanes)
    task, arrays = _make_task(problem, outputs, results, blocks * lanes)
    forward_address = block_address(forward, dtype, lanes)
    backward_address = block_address(backward, dtype, lanes) if outputs in TWO_WAY else 0
    # A line for the count of cells in use, see `block_address`, and the cells.
    size = LINE + count_cells(m, p, task.length, task.chunks) * lanes * dtype.itemsize
    work = models * steps * m * m if blocks > 1 else 0  # 0 for one core
    arguments = forward_address, backward_address, task.address, size, blocks
    launch(DRIVERS, work, problem.num_threads, *arguments)
    del arrays  # which had to live until now
    return task.loglik[:models].astype(dtype).reshape(sizes.batch), results


def _make_task(
    problem: KalmanProblem, outputs: str, results: list[Array], lanes: int
) -> tuple[KalmanTask, list[Array]]:
    """Return a call for kernels, and the arrays that it reads, which the caller keeps alive.

    `results` are those of `run`, `lanes` those of all blocks. Of each input `sizes.shapes` has the
    shape of one model, `sizes.rows` its time steps, 1 where it is constant, and the numbers of a
    step.
    """
    sizes, dtype = problem.sizes, problem.inputs.observations.dtype
    models, (m,) = math.prod(sizes.batch), sizes.shapes.initial_mean
    steps, p = sizes.shapes.observations
    arrays: list[Array] = []
    inputs: list[int] = []  # words of `ModelRows`
    gradients: list[int] = []
    for array, row in zip(problem.inputs, sizes.rows, strict=True):
        arrays.append(array if array.flags.c_contiguous and array.flags.aligned else array.copy())
        inputs += _words_of(arrays[-1], row)
    states = [UNWANTED] * 4
    if outputs == "gradients":
        for array, row in zip(results, sizes.rows, strict=True):
            gradients += _words_of(array, row)
    elif results:  # predicted and filtered ones, or smoothed ones in the place of the filtered
        rows = [(steps, array.size // (models * steps)) for array in results]
        states[-len(results) :] = map(_words_of, results, rows)
    step_size = (m + p) * (m + p + 1)  # numbers that are stored of a step
    length = min(steps, max(LEAST, min(LONGEST, NUMBERS // step_size)))
    task = TASKS[dtype.type](
        inputs=tuple(inputs),
        lanes=lanes,
        positions=find_positions(sizes, lanes),
        loglik=np.zeros(lanes),
        predicted_mean=states[0],
        predicted_cov=states[1],
        mean=states[2],
        cov=states[3],
        gradients=tuple(gradients) or UNWANTED * len(sizes.rows),
        m=m,
        p=p,
        length=length,
        chunks=-(-steps // length) if outputs in TWO_WAY else 1,
        wants_states=outputs == "states",
        wants_gradients=outputs == "gradients",
        varies=any(num_steps > 1 for num_steps, _ in sizes.rows[1:]),
        joseph=problem.joseph,
        tolerance=max(CONVERGED, m) * float(np.finfo(dtype).eps),
    )
    return task, arrays


#: The words of a `ModelRows` of no models.
UNWANTED = (0, 1, 1, 0)


def _words_of(array: Array, row: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the words of a `ModelRows`: `row` has the time steps and the numbers of a step."""
    steps, size = row
    return array.size // (steps * size), steps, size, array_address(array)


@functools.lru_cache(maxsize=64)
def find_positions(sizes: KalmanSizes, lanes: int) -> npt.NDArray[np.int64]:
    """Return where each lane's model is in each input, (7, lanes).

    `lanes` are those of all blocks; those beyond the last model repeat it.
    """
    positions = np.empty((len(sizes.leading), lanes), np.int64)
    for row, shape in zip(positions, sizes.leading, strict=True):
        numbers = np.arange(math.prod(shape)).reshape(shape)
        of_models = np.broadcast_to(numbers, sizes.batch).ravel()
        row[: of_models.size], row[of_models.size :] = of_models, of_models[-1]
    return positions


@functools.lru_cache(maxsize=64)
def count_cells(m: int, p: int, length: int, chunks: int) -> int:
    """Return the number of cells of a workspace."""
    used = [0]
    lay_out_workspace.py_func(Arena(None, used), m, p, length, chunks)
    return used[0]


# ---------------------------------------------------------------- kernels


def run_blocks(forward, backward, task, size, blocks):
    """Run the functions at two addresses for each block; `backward` may be 0.

    `task` is the address of a `KalmanTask`, `size` the bytes of a block's memory.
    """
    for block in prange(blocks):
        memory = np.zeros(size + LINE, np.uint8)  # more by a line, to begin at a cache line
        begin = (memory.ctypes.data + LINE - 1) & -LINE
        call_at(forward, (task, block, begin))
        if backward != 0:
            call_at(backward, (task, block, begin))
        memory[0] = 0  # keeps it alive until now: an address does not


DRIVERS = for_cores(run_blocks, GRAIN)


@functools.cache
def block_address(function: Any, dtype: Any, lanes: int) -> int:
    """Return the address of `forward` or `backward`, compiled for blocks of so many models.

    It is a function of a view of a `KalmanTask`, the number of the block, and the address of
    memory: of a line for the count of cells in use, and of the cells behind it.
    """
    number, whole, run_all, is_wide = dtype.type(0.0), np.int64(0), inline(function), lanes > 1
    # Small code compiles in 40 % of the time, and is as fast; but one model forward takes 1.6x.
    is_small = is_wide or function is backward

    def run_block(task, block, memory):
        if is_small:
            prefer_small_code()
        used = array_at(memory, (1,), whole)
        used[0] = 0
        cell = fill(number, 1) if is_wide else number
        arena = Arena(pointer_to(memory + LINE, cell), used)
        workspace = lay_out_workspace(arena, task.m, task.p, task.length, task.chunks)
        run_all(task, block * lanes, workspace)

    return c_function(run_block, (TASKS[dtype.type].view, types.int64, types.int64))
