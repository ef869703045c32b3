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
    StateArrays,
    forward,
    lay_out_workspace,
)
from rlcpu.scan.kalman.matrices import Arena
from rlcpu.scan.kalman.model import Array, KalmanProblem, KalmanSizes, ModelArrays
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
    task = _make_task(problem, outputs, results, blocks * lanes)
    forward_address = address_of(forward, task, lanes)
    backward_address = address_of(backward, task, lanes) if outputs in TWO_WAY else 0
    # A line for the count of cells in use, see `run_block`, and the cells.
    size = LINE + count_cells(m, p, task.length, task.chunks) * lanes * dtype.itemsize
    work = models * steps * m * m if blocks > 1 else 0  # 0 for one core
    arguments = forward_address, backward_address, task, size, blocks
    launch(drivers(), work, problem.num_threads, *arguments)
    return task.loglik[:models].astype(dtype).reshape(sizes.batch), results


def _make_task(
    problem: KalmanProblem, outputs: str, results: list[Array], lanes: int
) -> KalmanTask:
    """Return a call for kernels: `results` are those of `run`, `lanes` those of all blocks.

    Of each input `sizes.shapes` has the shape of one model, `sizes.rows` its time steps, 1 where it
    is constant, and the numbers of a step.
    """
    sizes, dtype = problem.sizes, problem.inputs.observations.dtype
    models, (m,) = math.prod(sizes.batch), sizes.shapes.initial_mean
    steps, p = sizes.shapes.observations
    unwanted = np.empty((0, 1, 1), dtype)
    states, gradients = [unwanted] * len(StateArrays._fields), [unwanted] * len(sizes.rows)
    if outputs == "gradients":
        pairs = zip(results, sizes.rows, strict=True)
        gradients = [array.reshape(models, *row) for array, row in pairs]
    elif results:  # predicted and filtered ones, or smoothed ones in the place of the filtered
        states[-len(results) :] = [array.reshape(models, steps, -1) for array in results]
    step_size = (m + p) * (m + p + 1)  # numbers that are stored of a step
    length = min(steps, max(LEAST, min(LONGEST, NUMBERS // step_size)))
    return KalmanTask(
        inputs=ModelArrays(*map(to_rows, problem.inputs, sizes.rows)),
        positions=find_positions(sizes, lanes),
        loglik=np.zeros(lanes),
        states=StateArrays(*states),
        gradients=ModelArrays(*gradients),
        m=m,
        p=p,
        length=length,
        chunks=-(-steps // length) if outputs in TWO_WAY else 1,
        wants_states=outputs == "states",
        varies=any(num_steps > 1 for num_steps, _ in sizes.rows[1:]),
        joseph=problem.joseph,
        tolerance=max(CONVERGED, m) * float(np.finfo(dtype).eps),
    )


def to_rows(array: Array, row: tuple[int, int]) -> Array:
    """Return an input as (models, T or 1, numbers of a step), a view where kernels can take it."""
    rows = array.reshape(-1, *row)
    return rows if rows.flags.carray else rows.copy()


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
    """Return the address of `forward` or `backward`, compiled for blocks of so many models.

    `task` is one of the calls: types of all others of its dtype are the same.
    """
    dtype = task.inputs.observations.dtype
    key = function, dtype.name, lanes
    if key not in _addresses:
        run_block = _make_run_block(function, dtype, lanes)
        kinds = View(kind_of(task)), types.int64, types.int64
        _addresses[key] = c_function(run_block, kinds)
    return _addresses[key]


def _make_run_block(function: Any, dtype: Any, lanes: int) -> Any:
    """Make `run_block(task, block, memory)`: `function` of block number `block`.

    `memory` is the address of a line for the count of cells in use, and of the cells behind it.
    """
    number, whole, run_all = dtype.type(0.0), np.int64(0), inline(function)
    cells_at = vectors_at if lanes > 1 else pointer_to
    # Small code compiles in 40 % of the time, and is as fast; but one model forward takes 1.6x.
    make_small = prefer_small_code if lanes > 1 or function is backward else do_nothing

    def run_block(task, block, memory):
        make_small()
        used = array_at(memory, (1,), whole)
        used[0] = 0
        arena = Arena(cells_at(memory + LINE, number), used)
        workspace = lay_out_workspace(arena, task.m, task.p, task.length, task.chunks)
        run_all(task, block * lanes, workspace)

    return run_block


@inline
def vectors_at(address, like):
    """Return a pointer to cells of as many models as a register holds."""
    return pointer_to(address, fill(like, 1))


@inline
def do_nothing():
    """Do nothing, in the place of `prefer_small_code`."""
