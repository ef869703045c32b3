"""The arguments of the Kalman functions, checked."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compiler.compile import EXACT, specialise
from rlcpu.kernels.machine.threads import Kernels, check_num_threads, for_cores, launch
from rlcpu.scan.arguments import check_alike, check_on_host

Array = npt.NDArray[Any]

FORMS = ("plain", "joseph")


class ModelArrays(NamedTuple):
    """Something for each input, such as its array or the gradient with respect to it."""

    observations: Any
    transition: Any
    transition_cov: Any
    design: Any
    observation_cov: Any
    initial_mean: Any
    initial_cov: Any


NAMES = ModelArrays._fields
#: Inputs that may have a time axis.
MATRICES = ("transition", "transition_cov", "design", "observation_cov")
OPTIONAL = ("initial_mean", "initial_cov")


class KalmanSizes(NamedTuple):
    """Shapes of the inputs."""

    shapes: ModelArrays  # of one model
    rows: ModelArrays  # time steps, 1 where it is constant, and numbers of a step
    leading: ModelArrays  # shape of the models
    batch: tuple[int, ...]  # shape of all models, to which `leading` broadcast


class KalmanProblem(NamedTuple):
    """A call that has been checked."""

    inputs: ModelArrays  # arrays of one dtype
    sizes: KalmanSizes
    joseph: bool  # whether to update in Joseph's form
    num_threads: int | None  # at most so many; None for all


# ---------------------------------------------------------------- checks


def make_problem(arguments: dict[str, Any]) -> KalmanProblem:
    """Return the call of a public function, checked, from all its arguments by name.

    Errors are those of `kalman_loglik`, and NotImplementedError for an array on a CUDA device.
    """
    named_arguments = {name: arguments[name] for name in NAMES}
    form, time_varying = arguments["form"], arguments["time_varying"]
    check_on_host("Kalman filtering", **named_arguments)
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"form={form!r}: expected one of {', '.join(FORMS)}")
    named = isinstance(time_varying, Collection) and not isinstance(time_varying, str)
    if not named or not all(isinstance(n, str) and n in MATRICES for n in time_varying):
        raise ValueError(
            f"time_varying={time_varying!r}: expected names out of {', '.join(MATRICES)}"
        )
    present = {n: x for n, x in named_arguments.items() if x is not None or n not in OPTIONAL}
    inputs = dict(zip(present, check_alike(present), strict=True))
    named_shapes = tuple((name, array.shape) for name, array in inputs.items())
    sizes = _find_sizes(named_shapes, tuple(name in time_varying for name in NAMES))
    for name in ("transition", "design", "initial_mean"):
        if name in inputs and not np.isfinite(inputs[name]).all():
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    for name in ("transition_cov", "observation_cov", "initial_cov"):
        if name in inputs:
            check_covariances(name, inputs[name])
    dtype, (m,) = inputs["observations"].dtype, sizes.shapes.initial_mean
    inputs = dict(zip(OPTIONAL, _standard_normal(m, dtype), strict=True)) | inputs
    threads = check_num_threads(arguments["num_threads"])
    return KalmanProblem(ModelArrays(**inputs), sizes, form == "joseph", threads)


@functools.lru_cache(maxsize=64)
def _find_sizes(
    named_shapes: tuple[tuple[str, tuple[int, ...]], ...], is_timed: tuple[bool, ...]
) -> KalmanSizes:
    """Return the sizes of a call, from the shapes of the inputs that there are; or ValueError.

    `is_timed` says which of `NAMES` have a time axis.
    """
    shape_of = dict(named_shapes)
    y, transition = shape_of["observations"], shape_of["transition"]
    if len(y) < 2 or y[-1] == 0:
        raise ValueError(f"observations: expected shape (..., T, p) with p > 0, got {y}")
    if len(transition) < 2 or transition[-1] == 0:
        raise ValueError(f"transition: expected shape (..., m, m) with m > 0, got {transition}")
    (steps, p), m = y[-2:], transition[-1]
    mm, pm, pp = (m, m), (p, m), (p, p)
    step_shapes = ModelArrays((p,), mm, mm, pm, pp, (m,), mm)
    has_steps = ModelArrays(True, *is_timed[1:])  # observations always have
    pairs = list(zip(has_steps, step_shapes, strict=True))
    shapes = ModelArrays(*((steps, *shape) if has else shape for has, shape in pairs))
    rows = ModelArrays(*((steps if has else 1, math.prod(shape)) for has, shape in pairs))
    expected_shapes: dict[str, tuple[int, ...]] = shapes._asdict()
    leading = {}
    for name, wanted in expected_shapes.items():
        shape = shape_of.get(name, wanted)
        count = len(shape) - len(wanted)
        if count < 0 or shape[count:] != wanted:
            expected = ", ".join(["...", *map(str, wanted)])
            raise ValueError(f"{name}: expected shape ({expected}), got {shape}")
        leading[name] = shape[:count]
    try:
        batch = np.broadcast_shapes(*leading.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in leading.items())
        raise ValueError(f"shapes of the models do not broadcast: {listed}") from None
    return KalmanSizes(shapes, rows, ModelArrays(**leading), batch)


@functools.lru_cache(maxsize=64)
def _standard_normal(m: int, dtype: Any) -> tuple[Array, Array]:
    """Return mean and covariance of a standard normal state of m numbers, not to be overwritten."""
    return np.zeros(m, dtype), np.eye(m, dtype=dtype)


def check_observations(problem: KalmanProblem) -> None:
    """Raise ValueError for infinite observations: NaN alone stands for a missing one."""
    observations = problem.inputs.observations
    infinite = np.isinf(observations)
    if infinite.any():
        index = tuple(int(i) for i in np.argwhere(infinite)[0])
        value = observations[index]
        raise ValueError(f"observations: expected finite numbers or NaN, got {value} at {index}")


# ---------------------------------------------------------------- covariances

#: What can be wrong with a matrix, by code.
DEFECTS = ("", "not finite", "not symmetric", "not positive semi-definite")
NOT_FINITE, NOT_SYMMETRIC, NOT_SEMIDEFINITE = 1, 2, 3
#: Rounding errors that are forgiven, in units of the size times the dtype's epsilon.
_SLACK = {char: 64.0 * float(np.finfo(char).eps) for char in "fd"}
_GRAIN = 2**15  # numbers of all matrices from which a second core is worth waking


def defect(matrix: Any, work: Any, tolerance: float) -> int:
    """Return the code in `DEFECTS` of one matrix (n, n); `work` is as large, overwritten.

    Semi-definite is a matrix whose correlations plus the tolerance on the diagonal have positive
    pivots: no correlation matrix with an eigenvalue below minus the tolerance passes.
    """
    n = matrix.shape[0]
    for i in range(n):
        for j in range(n):
            if not math.isfinite(matrix[i, j]):
                return NOT_FINITE
        if matrix[i, i] < 0.0:
            return NOT_SEMIDEFINITE
    for i in range(n):
        for j in range(n):
            scale = math.sqrt(matrix[i, i]) * math.sqrt(matrix[j, j])
            if abs(matrix[i, j] - matrix[j, i]) > tolerance * scale:
                return NOT_SYMMETRIC
            if scale == 0.0 and matrix[i, j] != 0.0:
                return NOT_SEMIDEFINITE
            work[i, j] = matrix[i, j] / scale if scale > 0.0 else 0.0
    for k in range(n):
        pivot = work[k, k] + tolerance
        if pivot <= 0.0:
            return NOT_SEMIDEFINITE
        for i in range(k + 1, n):
            factor = work[i, k] / pivot
            for j in range(k + 1, i + 1):
                work[i, j] -= factor * work[j, k]
    return 0


@functools.cache
def _defect_kernels() -> Kernels:
    """Return kernels of `defect` over matrices (count, n, n) float64; codes (count,) are int8."""
    scalar = specialise(defect, np.float64, exact=True)

    def find_defects(matrices, tolerance, codes):
        for k in prange(len(matrices)):
            codes[k] = scalar(matrices[k], np.empty_like(matrices[k]), tolerance)

    return for_cores(find_defects, _GRAIN, fastmath=EXACT)


def check_covariances(name: str, matrices: Array) -> None:
    """Raise ValueError for the first of the matrices (..., n, n) that is no covariance."""
    size = matrices.shape[-1]
    flat = np.ascontiguousarray(matrices, np.float64).reshape(-1, size, size)
    codes = np.empty(len(flat), np.int8)
    num_threads = None  # all
    slack = size * _SLACK[matrices.dtype.char]
    launch(_defect_kernels(), flat.size, num_threads, flat, slack, codes)
    if codes.any():
        first = int(np.flatnonzero(codes)[0])
        index = tuple(int(i) for i in np.unravel_index(first, matrices.shape[:-2]))
        raise ValueError(
            f"{name}: expected covariance matrices, {np.count_nonzero(codes)} of {len(flat)} are "
            f"not; the first, at {index}, is {DEFECTS[codes[first]]}: {flat[first].tolist()}"
        )
