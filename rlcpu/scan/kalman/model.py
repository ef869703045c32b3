"""The arguments of the Kalman functions, checked, and handed to the kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compile import EXACT, kernel, specialise
from rlcpu.kernels.threads import Kernels, check_num_threads, launch
from rlcpu.kernels.vectors import VECTOR_BYTES
from rlcpu.scan.arguments import check_alike
from rlcpu.scan.device import check_on_host
from rlcpu.scan.kalman.matrices import MULTIPLY, multiply
from rlcpu.scan.kalman.passes import SETTLED, address_of, backward, drivers, forward
from rlcpu.scan.kalman.small import make_small, pad
from rlcpu.scan.kalman.workspace import CELLS, SMOOTH, VALUE, make_table

Array = npt.NDArray[Any]

FORMS = ("plain", "joseph")
#: Inputs that may have a time axis.
MATRICES = ("transition", "transition_cov", "design", "observation_cov")
#: Up to so many numbers of a state, a cell holds a number of each of several models, if they are at
#: least half as many. 4 models with 8 states take 0.77 ms instead of 0.87, 2 with 4 states 0.32
#: instead of 0.35, 8 with 24 as long.
LARGE = 24


class Inputs(NamedTuple):
    """Arrays that a log-likelihood depends on, of one dtype once they are checked.

    Their shapes are those in `KalmanGradients`.
    """

    observations: Any
    transition: Any
    transition_cov: Any
    design: Any
    observation_cov: Any
    initial_mean: Any
    initial_cov: Any


class Problem(NamedTuple):
    """A call that has been checked.

    Attributes:
        inputs: see there.
        shapes: of one model's part of each input.
        batch: shape of the models, to which the leading axes of the inputs broadcast.
        steps: T.
        state: m.
        observation: p.
        varying: names of the matrices with a time axis.
        joseph: whether to update in Joseph's form.
        num_threads: at most so many; None for all.
    """

    inputs: Inputs
    shapes: tuple[tuple[int, ...], ...]
    batch: tuple[int, ...]
    steps: int
    state: int
    observation: int
    varying: frozenset[str]
    joseph: bool
    num_threads: int | None

    @property
    def models(self) -> int:
        """How many models there are."""
        return math.prod(self.batch)


# ---------------------------------------------------------------- checks


def make_problem(
    arguments: Inputs,
    time_varying: Collection[str],
    form: str,
    num_threads: int | None,
) -> Problem:
    """The call, checked.

    Args:
        arguments: not yet checked; the last two may be None.
        time_varying: names out of `MATRICES`.
        form: out of `FORMS`.
        num_threads: at most so many threads.

    Raises:
        NotImplementedError: an array is on a CUDA device.
        TypeError: an array is neither of the observations' dtype nor of integers.
        ValueError: shapes do not fit or broadcast, a number is not finite (but for missing
            observations), a covariance is none, or another argument is out of range.
    """
    check_on_host("Kalman filtering", **arguments._asdict())
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"form={form!r}: expected one of {', '.join(FORMS)}")
    named = isinstance(time_varying, Collection) and not isinstance(time_varying, str)
    if not named or not all(isinstance(n, str) and n in MATRICES for n in time_varying):
        raise ValueError(
            f"time_varying={time_varying!r}: expected names out of {', '.join(MATRICES)}"
        )
    varying = frozenset(time_varying)
    inputs = _check_dtypes(arguments)
    steps, m, p = _sizes(inputs)
    parts = [(steps, p), (m, m), (m, m), (p, m), (p, p), (m,), (m, m)]
    names = Inputs._fields
    shapes = tuple((steps, *s) if n in varying else s for n, s in zip(names, parts, strict=True))
    leading = [_leading(*each) for each in zip(names, inputs, shapes, strict=True)]
    try:
        batch = np.broadcast_shapes(*leading)
    except ValueError:
        pairs = ", ".join(f"{name} {shape}" for name, shape in zip(names, leading, strict=True))
        raise ValueError(f"shapes of the models do not broadcast: {pairs}") from None
    for name in ("transition", "design", "initial_mean"):
        if not np.isfinite(getattr(inputs, name)).all():
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    for name in ("transition_cov", "observation_cov", "initial_cov"):
        check_covariances(name, getattr(inputs, name))
    threads = check_num_threads(num_threads)
    return Problem(inputs, shapes, batch, steps, m, p, varying, form == "joseph", threads)


def _check_dtypes(arguments: Inputs) -> Inputs:
    """All arrays in one dtype; the initial state filled in."""
    optional = ("initial_mean", "initial_cov")
    given = {n: a for n, a in arguments._asdict().items() if a is not None or n not in optional}
    found = dict(zip(given, check_alike(given), strict=True))
    dtype = found["observations"].dtype
    m = found["transition"].shape[-1] if found["transition"].ndim else 0
    found.setdefault("initial_mean", np.zeros(m, dtype))
    found.setdefault("initial_cov", np.eye(m, dtype=dtype))
    return Inputs(**found)


def _sizes(inputs: Inputs) -> tuple[int, int, int]:
    """T, m and p, by the last axes of the observations and of the transition matrix."""
    y, transition = inputs.observations, inputs.transition
    if y.ndim < 2 or y.shape[-1] == 0:
        raise ValueError(f"observations: expected shape (..., T, p) with p > 0, got {y.shape}")
    if transition.ndim < 2 or transition.shape[-1] == 0:
        raise ValueError(
            f"transition: expected shape (..., m, m) with m > 0, got {transition.shape}"
        )
    return y.shape[-2], transition.shape[-1], y.shape[-1]


def _leading(name: str, array: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that number models."""
    count = array.ndim - len(shape)
    if count < 0 or array.shape[count:] != shape:
        expected = ", ".join(["...", *map(str, shape)])
        raise ValueError(f"{name}: expected shape ({expected}), got {array.shape}")
    return array.shape[:count]


def check_observations(problem: Problem) -> None:
    """Raise ValueError for infinite observations: NaN alone stands for a missing one."""
    infinite = np.isinf(problem.inputs.observations)
    if infinite.any():
        index = tuple(int(i) for i in np.argwhere(infinite)[0])
        value = problem.inputs.observations[index]
        raise ValueError(f"observations: expected finite numbers or NaN, got {value} at {index}")


# ---------------------------------------------------------------- covariances

#: What can be wrong with a matrix, by code.
DEFECTS = ("", "not finite", "not symmetric", "not positive semi-definite")
#: Rounding errors that are forgiven, in units of the size times the dtype's epsilon.
_SLACK = {char: 64.0 * float(np.finfo(char).eps) for char in "fd"}
_GRAIN = 2**15  # numbers of all matrices from which a second core is worth waking
_SLICE = 256  # matrices that a thread takes at a time, with one workspace


def defect(matrix: Any, work: Any, tolerance: float) -> int:
    """Code of `DEFECTS` of one matrix (n, n); `work` is as large, overwritten.

    Semi-definite is a matrix whose correlations plus the tolerance on the diagonal have positive
    pivots: no correlation matrix with an eigenvalue below minus the tolerance passes.
    """
    n = matrix.shape[0]
    for i in range(n):
        for j in range(n):
            if not math.isfinite(matrix[i, j]):
                return 1
        if matrix[i, i] < 0.0:
            return 3
    for i in range(n):
        for j in range(n):
            scale = math.sqrt(matrix[i, i]) * math.sqrt(matrix[j, j])
            if abs(matrix[i, j] - matrix[j, i]) > tolerance * scale:
                return 2
            if scale == 0.0 and matrix[i, j] != 0.0:
                return 3
            work[i, j] = matrix[i, j] / scale if scale > 0.0 else 0.0
    for k in range(n):
        pivot = work[k, k] + tolerance
        if pivot <= 0.0:
            return 3
        for i in range(k + 1, n):
            factor = work[i, k] / pivot
            for j in range(k + 1, i + 1):
                work[i, j] -= factor * work[j, k]
    return 0


@functools.cache
def _defect_kernels() -> Kernels:
    """Drivers of `defect` over (count, n, n) float64 matrices; codes (count,) int8."""
    scalar = specialise(defect, np.float64, exact=True)

    def make(parallel: bool) -> Any:
        @kernel(parallel=parallel, fastmath=EXACT)
        def find_defects(matrices, tolerance, codes):
            count, n = matrices.shape[0], matrices.shape[1]
            for part in prange((count + _SLICE - 1) // _SLICE):
                work = np.empty((n, n), matrices.dtype)
                for k in range(part * _SLICE, min((part + 1) * _SLICE, count)):
                    codes[k] = scalar(matrices[k], work, tolerance)

        return find_defects

    return Kernels(make(False), make(True), _GRAIN)


def check_covariances(name: str, matrices: Array) -> None:
    """Raise ValueError for the first of the matrices that is no covariance.

    Args:
        name: of the argument.
        matrices: (..., n, n) float32 or float64.

    Raises:
        ValueError: a matrix is not finite, not symmetric or not positive semi-definite.
    """
    size = matrices.shape[-1]
    flat = np.ascontiguousarray(matrices, np.float64).reshape(-1, size, size)
    codes = np.empty(len(flat), np.int8)
    launch(_defect_kernels(), flat.size, None, flat, size * _SLACK[matrices.dtype.char], codes)
    if codes.any():
        first = int(np.flatnonzero(codes)[0])
        index = tuple(int(i) for i in np.unravel_index(first, matrices.shape[:-2]))
        raise ValueError(
            f"{name}: expected covariance matrices, {np.count_nonzero(codes)} of {len(flat)} are "
            f"not; the first, at {index}, is {DEFECTS[codes[first]]}: {flat[first].tolist()}"
        )


# ---------------------------------------------------------------- kernels


def run(kind: int, problem: Problem, out: Array) -> Array:
    """Log-likelihoods of all models, flat; more in `out`, see `passes`.

    Args:
        kind: `VALUE`, `STATES`, `SMOOTH` or `GRADIENT`.
        problem: see there; it may have no models or no time steps.
        out: flat, of the inputs' dtype, overwritten.
    """
    models, m, inputs = problem.models, problem.state, problem.inputs
    logliks = np.zeros(models, inputs.observations.dtype)
    if models == 0 or problem.steps == 0:
        out.fill(0.0)
        return logliks
    observations, dtype = np.ravel(inputs.observations), logliks.dtype.name
    plain = not problem.varying and not problem.joseph
    if kind == VALUE and plain and models == 1 and m <= 2 and problem.observation == 1:
        make_small(dtype)(observations.copy(), pad(inputs[1:], m), logliks)
        return logliks
    across = models > 1 and m <= min(2 * models, LARGE)
    width = VECTOR_BYTES // logliks.itemsize
    lanes, width = (width, 1) if across else (1, width)
    table = make_table(kind, problem, width)
    table[MULTIPLY] = address_of(multiply, dtype, lanes)
    functions = (
        address_of(forward, dtype, lanes),
        address_of(backward, dtype, lanes) if kind >= SMOOTH else 0,
    )
    matrices = np.concatenate([np.ravel(array) for array in inputs[1:]])
    places = find_places(problem.batch, tuple(array.shape for array in inputs), problem.shapes)
    arrays = (observations, matrices, places, out, logliks)
    files = tuple(array.ctypes.data for array in arrays)
    size, blocks = int(table[CELLS]) * lanes * logliks.itemsize, -(-models // lanes)
    work = models * problem.steps * m * m if blocks > 1 else 0
    tolerance = (SETTLED * float(np.finfo(dtype).eps)) ** 2
    arguments = functions, table.ctypes.data, size, lanes, blocks, tolerance, files
    launch(drivers(), work, problem.num_threads, *arguments)
    return logliks


@functools.lru_cache(maxsize=8)
def find_places(
    batch: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    parts: tuple[tuple[int, ...], ...],
) -> npt.NDArray[np.int64]:
    """Where each model's part of each input begins, flat (models * 7,).

    Observations begin at 0, the matrices follow one another.

    Args:
        batch: shape of the models.
        shapes: of the inputs.
        parts: shapes of one model's part of each.
    """
    places = np.empty((*batch, len(shapes)), np.int64)
    begin = 0
    for which, (shape, part) in enumerate(zip(shapes, parts, strict=True)):
        leading = shape[: len(shape) - len(part)]
        numbers = np.arange(math.prod(leading)).reshape(leading)
        places[..., which] = begin + math.prod(part) * numbers
        begin += math.prod(shape) if which else 0
    return places.ravel()
