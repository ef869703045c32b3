"""The arguments of the Kalman functions, checked, and what kernels make of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.scan.checks import as_array, check_real
from rlcpu.scan.device import refuse_on_device
from rlcpu.scan.kalman.definite import check_covariances
from rlcpu.scan.kalman.kernels import block_address, drivers
from rlcpu.scan.kalman.plan import END, Layout, Sizes, make_layout
from rlcpu.scan.kalman.programs import VALUE, Job, make_table
from rlcpu.scan.kalman.small import make_small, pad

Array = npt.NDArray[Any]

FORMS = ("plain", "joseph")
#: Inputs that may have a time axis.
MATRICES = ("transition", "transition_cov", "design", "observation_cov")
#: From so many models on, or two if a state has at most `SMALL` numbers, and up to `LARGE` ones, a
#: register holds a number of each model. 8 models with 8 states take 0.59 ms instead of 0.83, but 4
#: of them 0.93 instead of 0.44; 4 models with 2 states 2.4 instead of 3.5.
FEW, SMALL, LARGE = 6, 4, 24
#: Steps of a chunk, fewer where the records of a chunk take more than this many numbers.
CHUNK, RECORDS = 64, 2**17


class Inputs(NamedTuple):
    """Arrays that a log-likelihood depends on, of one dtype once they are checked.

    Attributes:
        observations: (..., T, p).
        transition: (..., m, m), as all matrices with T before the last two axes if it varies.
        transition_cov: (..., m, m).
        design: (..., p, m).
        observation_cov: (..., p, p).
        initial_mean: (..., m).
        initial_cov: (..., m, m).
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
        batch: shape of the models, to which the leading axes of the inputs broadcast.
        sizes: with the number of models.
        varying: names of the matrices with a time axis.
        joseph: whether to update in Joseph's form.
        num_threads: at most so many; None for all.
    """

    inputs: Inputs
    batch: tuple[int, ...]
    sizes: Sizes
    varying: frozenset[str]
    joseph: bool
    num_threads: int | None

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one model's part of an input."""
        return _shapes(self.sizes, self.varying)[name]


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
        TypeError: an array is neither of the observations' dtype nor of integers.
        ValueError: shapes do not fit or broadcast, a number is not finite (but for missing
            observations), a covariance is none, or another argument is out of range.
    """
    refuse_on_device(arguments._asdict())
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"form={form!r}: expected one of {', '.join(FORMS)}")
    named = isinstance(time_varying, Collection) and not isinstance(time_varying, str)
    if not named or not all(isinstance(n, str) and n in MATRICES for n in time_varying):
        raise ValueError(
            f"time_varying={time_varying!r}: expected names out of {', '.join(MATRICES)}"
        )
    varying = frozenset(time_varying)
    found = _check_dtypes(arguments._asdict())
    sizes = _sizes(found)
    shapes = _shapes(sizes, varying)
    batch = _broadcast({n: _leading(n, a, shapes[n]) for n, a in found.items()})
    inputs = Inputs(**found)
    _check_values(inputs)
    sizes = sizes._replace(batch=math.prod(batch))
    threads = check_num_threads(num_threads)
    return Problem(inputs, batch, sizes, varying, form == "joseph", threads)


def _check_dtypes(arrays: dict[str, Any]) -> dict[str, Array]:
    """All arrays in one dtype; the initial state filled in."""
    optional = ("initial_mean", "initial_cov")
    given = {
        name: as_array(name, array)
        for name, array in arrays.items()
        if array is not None or name not in optional
    }
    first = next((name for name, a in given.items() if a.dtype.kind not in "iu"), "observations")
    dtype = check_real(first, arrays[first]).dtype
    found = {}
    for name, array in given.items():
        found[name] = array.astype(dtype) if array.dtype.kind in "iu" else array
        if found[name].dtype != dtype:
            got = type(arrays[name]).__name__ if array.dtype == object else array.dtype
            raise TypeError(f"{name}: expected {dtype}, as {first} is, got {got}")
    m = found["transition"].shape[-1] if found["transition"].ndim else 0
    found.setdefault("initial_mean", np.zeros(m, dtype))
    found.setdefault("initial_cov", np.eye(m, dtype=dtype))
    return {name: found[name] for name in Inputs._fields}


def _sizes(arrays: dict[str, Array]) -> Sizes:
    """Sizes by the last axes of the observations and of the transition matrix."""
    y, transition = arrays["observations"], arrays["transition"]
    if y.ndim < 2 or y.shape[-1] == 0:
        raise ValueError(f"observations: expected shape (..., T, p) with p > 0, got {y.shape}")
    if transition.ndim < 2 or transition.shape[-1] == 0:
        raise ValueError(
            f"transition: expected shape (..., m, m) with m > 0, got {transition.shape}"
        )
    m, p = transition.shape[-1], y.shape[-1]
    record = m * m + p * p + m * p + m + p
    chunk = max(8, min(CHUNK, RECORDS // record))
    return Sizes(1, y.shape[-2], m, p, chunk)


@functools.lru_cache(maxsize=64)
def _shapes(sizes: Sizes, varying: frozenset[str]) -> dict[str, tuple[int, ...]]:
    """Shape of one model's part of every input."""
    steps, m, p = sizes.steps, sizes.state, sizes.observation
    matrices = zip(MATRICES, ((m, m), (m, m), (p, m), (p, p)), strict=True)
    shapes: dict[str, tuple[int, ...]] = {"observations": (steps, p)}
    for name, shape in matrices:
        shapes[name] = (steps, *shape) if name in varying else shape
    return {**shapes, "initial_mean": (m,), "initial_cov": (m, m)}


def _leading(name: str, array: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that number models."""
    count = array.ndim - len(shape)
    if count < 0 or array.shape[count:] != shape:
        expected = ", ".join(["...", *map(str, shape)])
        raise ValueError(f"{name}: expected shape ({expected}), got {array.shape}")
    return array.shape[:count]


def _broadcast(leading: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*leading.values())
    except ValueError:
        pairs = ", ".join(f"{name} {shape}" for name, shape in leading.items())
        raise ValueError(f"shapes of the models do not broadcast: {pairs}") from None


def _check_values(inputs: Inputs) -> None:
    for name in ("transition", "design", "initial_mean"):
        array = getattr(inputs, name)
        if np.count_nonzero(np.isfinite(array)) < array.size:
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    for name in ("transition_cov", "observation_cov", "initial_cov"):
        check_covariances(name, getattr(inputs, name))


def check_observations(problem: Problem) -> None:
    """Raise ValueError for infinite observations: NaN alone stands for a missing one."""
    infinite = np.isinf(problem.inputs.observations)
    if infinite.any():
        index = tuple(int(i) for i in np.argwhere(infinite)[0])
        value = problem.inputs.observations[index]
        raise ValueError(f"observations: expected finite numbers or NaN, got {value} at {index}")


# ---------------------------------------------------------------- kernels


def _is_small(problem: Problem) -> bool:
    """Whether `small` takes the problem."""
    sizes = problem.sizes
    small = sizes.batch == 1 and sizes.state <= 2 and sizes.observation == 1
    return small and not problem.varying and not problem.joseph


def _layout(problem: Problem) -> Layout:
    dtype, sizes = problem.inputs.observations.dtype, problem.sizes
    across = sizes.batch >= (2 if sizes.state <= SMALL else FEW) and sizes.state <= LARGE
    return make_layout(dtype.name, across)


def run(kind: str, problem: Problem, out: Array) -> Array:
    """Log-likelihoods of all models, flat; more in `out`, see `programs`.

    Args:
        kind: `VALUE`, `STATES`, `SMOOTH` or `GRADIENT`.
        problem: see there; it may have no models or no time steps.
        out: flat, of the inputs' dtype, overwritten.
    """
    sizes, inputs = problem.sizes, problem.inputs
    logliks = np.zeros(sizes.batch, inputs.observations.dtype)
    if sizes.batch == 0 or sizes.steps == 0:
        out.fill(0.0)
        return logliks
    observations = np.ravel(np.ascontiguousarray(inputs.observations))
    if kind == VALUE and _is_small(problem):
        make_small(logliks.dtype.name)(observations, pad(inputs[1:], sizes.state), logliks)
        return logliks
    layout = _layout(problem)
    table = make_table(layout, make_job(kind, problem))
    matrices = np.concatenate([np.ravel(a) for a in inputs[1:]])
    arrays = (table, observations, matrices, find_places(problem), out, logliks)
    orders = np.array([array.ctypes.data for array in arrays], np.int64)
    blocks = -(-sizes.batch // layout.element)
    work = sizes.batch * sizes.steps * sizes.state**2 if blocks > 1 else 0
    room = -(-int(table[END]) * logliks.itemsize // 8) + VECTOR_BYTES // 8
    args = (block_address(layout), orders, room, blocks)
    launch(drivers(), work, problem.num_threads, *args)
    return logliks


def make_job(kind: str, problem: Problem) -> Job:
    """What the programs depend on."""
    m, p = problem.sizes.state, problem.sizes.observation
    paces = zip(MATRICES, (m * m, m * m, p * m, p * p), strict=True)
    varying = (pace if name in problem.varying else 0 for name, pace in paces)
    return Job(kind, problem.sizes, tuple(varying), problem.joseph)


def find_places(problem: Problem) -> npt.NDArray[np.int64]:
    """Where each model's part of each input begins, flat (batch * 7,)."""
    shapes = tuple(array.shape for array in problem.inputs)
    inner = tuple(len(problem.shape(name)) for name in Inputs._fields)
    return _find_places(problem.batch, shapes, inner)


@functools.lru_cache(maxsize=8)
def _find_places(
    batch: tuple[int, ...], shapes: tuple[tuple[int, ...], ...], inner: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """See `find_places`; `inner` is how many axes one model's part has. Not to be written to."""
    places = np.empty((*batch, len(shapes)), np.int64)
    begin = 0
    for which, (shape, count) in enumerate(zip(shapes, inner, strict=True)):
        leading, size = shape[: len(shape) - count], math.prod(shape[len(shape) - count :])
        places[..., which] = begin + size * np.arange(math.prod(leading)).reshape(leading)
        begin += math.prod(shape) if which else 0
    return places.ravel()
