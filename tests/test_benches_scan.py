"""The table `scan`: ours and every installed peer solve the same problems alike, if small."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import scan, scan_tridiagonal  # noqa: E402
from asv_benches.peers.duel import Best  # noqa: E402
from asv_benches.peers.scan_problems import (  # noqa: E402
    Line,
    Models,
    Rollouts,
    Solver,
    Systems,
    SystemsAndSlopes,
)
from asv_benches.peers.scan_tridiagonal import Roofline, ShareDuel  # noqa: E402

HANGS = "gradient-library"  # the gradient of XLA's solver waits for ever
STEP = 1e-6  # of central differences


@functools.singledispatch
def small(problem: Any) -> Any:
    raise NotImplementedError


@small.register
def _(problem: Systems) -> Systems:
    return problem._replace(batch=min(problem.batch, 5), n=min(problem.n, 7))


@small.register
def _(problem: SystemsAndSlopes) -> SystemsAndSlopes:
    return SystemsAndSlopes(small(problem.systems))


@small.register
def _(problem: Rollouts) -> Rollouts:
    return problem._replace(num_steps=6, num_envs=5)


@small.register
def _(problem: Line) -> Line:
    return Line(50)


@small.register
def _(problem: Models) -> Models:
    return problem._replace(batch=min(problem.batch, 3), num_steps=20)


class Case(NamedTuple):
    """A contender with a problem of a size that is solved at once.

    Attributes:
        solver: the contender.
        gradients: how many arrays come after the solution.
    """

    solver: Solver
    gradients: int


def cases() -> dict[str, Case]:
    """Everyone who takes part in the table, once for each of their small problems."""
    found = {}
    for row in scan.rows():
        sides = [] if row.name == HANGS else [row.measure.ours, row.measure.peer]
        for solver in sides:
            if not isinstance(solver, Best | Roofline):
                scaled = dataclasses.replace(solver, problem=small(solver.problem))
                found[label(scaled)] = Case(scaled, 4 * ("gradient" in row.name))
    return found


def label(solver: Solver) -> str:
    """Such as "Jax-solve_rows-5-7-float64-rows-False"."""
    function = getattr(solver, "function", None)
    parts = [getattr(function, "__name__", type(function).__name__)] if function else []
    options = getattr(solver, "options", {}).values()
    fresh = ["fresh"] * (not getattr(solver, "reuse", True))
    sizes = getattr(solver.problem, "systems", solver.problem)
    return "-".join(map(str, (type(solver).__name__, *parts, *options, *fresh, *sizes)))


CASES = cases()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the peers
@pytest.mark.parametrize("name", CASES)
def test_everyone_finds_the_same(name):
    solver, num_gradients = CASES[name]
    try:
        solver.setup()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    (arguments,) = solver.inputs(First(), 1)
    solution = flat(solver.call(*arguments))
    arrays = solver.problem.draw(np.random.default_rng(0))
    wanted = expected(solver.problem, *arrays)
    assert len(solution) == len(wanted) + num_gradients
    tolerance = 1e-12 if arrays[0].dtype == np.float64 else 2e-5
    for found, array in zip(solution, wanted, strict=False):
        np.testing.assert_allclose(found, array, rtol=tolerance, atol=tolerance)
    if num_gradients:
        check_gradients(solver.problem, arrays, solution[len(wanted) :])


class First:
    """Chooses the first one."""

    def integers(self, high: int) -> int:
        return 0


def flat(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, tuple | list):
        return [leaf for branch in tree for leaf in flat(branch)]
    return [np.asarray(tree)]


def check_gradients(problem: Any, arrays: Any, gradients: list[np.ndarray]) -> None:
    """Along a random direction, symmetric in the state noise, by central differences."""
    rng = np.random.default_rng(1)
    direction = [rng.standard_normal(array.shape) for array in arrays]
    if isinstance(problem, Models):
        direction[1] += np.swapaxes(direction[1], 1, 2)
    losses = [
        loss(problem, *(a + s * STEP * d for a, d in zip(arrays[:4], direction, strict=False)), y)
        for y in arrays[4:]
        for s in (1, -1)
    ]
    pairs = zip(gradients, direction, strict=False)
    found = sum(np.vdot(gradient, along) for gradient, along in pairs)
    np.testing.assert_allclose(found, (losses[0] - losses[1]) / (2 * STEP), rtol=1e-6)


def loss(problem: Any, *arrays: np.ndarray) -> Any:
    """What the gradients are of."""
    (solution,) = expected(problem, *arrays)
    weights = arrays[4] if isinstance(problem, SystemsAndSlopes) else 1.0
    return (weights * solution).sum()


# ---------------------------------------------------------------- what the solutions must be


@functools.singledispatch
def expected(problem: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    raise NotImplementedError


@expected.register
def _(problem: Systems, *arrays: np.ndarray) -> list[np.ndarray]:
    axis = 0 if problem.shared else problem.axis
    lower, diagonal, upper = (np.moveaxis(array, axis, -1) for array in arrays[:3])
    rhs = np.moveaxis(arrays[3], problem.axis, -1)
    at = np.arange(problem.n)
    matrix = np.zeros((*diagonal.shape, problem.n))
    matrix[..., at, at] = diagonal
    matrix[..., at[1:], at[:-1]] = lower[..., 1:]
    matrix[..., at[:-1], at[1:]] = upper[..., :-1]
    solution = np.linalg.solve(matrix, rhs[..., None].astype(np.float64))[..., 0]
    return [np.moveaxis(solution, -1, problem.axis)]


@expected.register
def _(problem: SystemsAndSlopes, *arrays: np.ndarray) -> list[np.ndarray]:
    return expected(problem.systems, *arrays)


@expected.register
def _(problem: Line, x: np.ndarray) -> list[np.ndarray]:
    return [np.log(np.cumsum(np.exp(x.astype(np.longdouble))))]


@expected.register
def _(problem: Rollouts, *arrays: np.ndarray) -> list[np.ndarray]:
    rewards, values, ends = (np.moveaxis(array, problem.axis, 0) for array in arrays[:3])
    advantages, following, after = np.zeros(rewards.shape), arrays[3], 0.0
    for t in reversed(range(problem.num_steps)):
        delta = rewards[t] + 0.99 * np.where(ends[t], 0, following) - values[t]
        advantages[t] = after = delta + 0.99 * 0.95 * np.where(ends[t], 0, after)
        following = values[t]
    return [np.moveaxis(each, 0, problem.axis) for each in (advantages, advantages + values)]


@expected.register
def _(problem: Models, *arrays: np.ndarray) -> list[np.ndarray]:
    return [np.array([density(*model) for model in zip(*arrays, strict=True)])]


def density(f: Any, q: Any, h: Any, r: Any, y: Any) -> float:
    """Log-density of all observations at once: they are jointly normal."""
    joint, cov = r * np.eye(len(y)), np.eye(len(f))
    for i in range(len(y)):
        reach = cov @ h
        for j in range(i, len(y)):
            joint[i, j] += h @ reach
            joint[j, i] = joint[i, j]
            reach = f @ reach
        cov = f @ cov @ f.T + q
    logdet = np.linalg.slogdet(2 * np.pi * joint)[1]
    return float(-0.5 * (logdet + y @ np.linalg.solve(joint, y)))


# ---------------------------------------------------------------- the tools


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("stores", ["plain", "streaming"])
def test_the_roofline_reads_and_writes_everything(stores, dtype):
    solver = Roofline(stores, Systems(7, 149, dtype), stores)
    solver.setup()
    arguments = next(iter(solver.inputs(np.random.default_rng(0), 1)))
    assert [array.ctypes.data % 64 for array in arguments] == [0] * 4
    np.testing.assert_allclose(solver.call(*arguments), sum(arguments), rtol=1e-5, atol=1e-6)


def test_a_share_is_of_the_best_rounds():
    seconds = np.array([[5.0, 1.0], [2.0, 9.0], [3.0, 2.0], [9.0, 3.0]])
    settled = ShareDuel(None, None).settle(seconds)
    assert settled.tolist() == [[2.0, 1.0]]
    assert ShareDuel(None, None).ratios(settled).tolist() == [0.5]
    assert ShareDuel(None, None).settle(np.tile(seconds, (5, 1))).shape == (4, 2)


def test_lapack_says_when_a_system_is_singular():
    solver = scan_tridiagonal.Lapack("LAPACK", Systems(2, 5))
    try:
        solver.setup()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    arrays = [np.zeros((2, 5))] * 4
    with pytest.raises(ArithmeticError, match="singular"):
        solver.call(*arrays)


def test_inputs_take_turns_and_are_the_same_for_all():
    first, second = (Solver(name, Line(2**20)) for name in "ab")
    for each in (first, second):
        each.make = lambda: None
        each.setup()
    pool = first._pool
    assert len(pool) == 8
    assert len({float(x[0]) for (x,) in pool}) == 8
    rng = np.random.default_rng(0)
    batches = [list(first.inputs(rng, 10)) for _ in range(8)]
    assert len({float(batch[0][0][0]) for batch in batches}) > 1
    np.testing.assert_array_equal(first._pool[3][0], second._pool[3][0])


def test_every_target_of_the_table_has_a_row():
    rows = {row.name: row for row in scan.rows()}
    targets = {
        "solve-100000x100-float64-rows-plain": 0.75,
        "solve-100000x100-float64-columns-plain": 0.8,
        "solve-100000x100-float32-rows-plain": 0.55,
        "solve-100000x100-float32-columns-plain": 0.75,
        "solve-100000x100-float64-rows-numba": 2.6,
        "solve-1x10000000-float64-rows-lapack-gtsv": 10,
        "small-solve_rows": 1.2,
        "factored": 18,
        "gradient-scan": 15,
        "gae-2048x1024-time-major-torch": 40,
        "logcumsumexp-torch": 8,
        "kalman-8x64-value-statsmodels": 1.4,
        "kalman-2x1-gradient-jax": 6,
    }
    assert {name: rows[name].target for name in targets} == targets
    assert all(row.unit == "s" for row in rows.values())
    assert sum(row.limit_s for row in rows.values() if row.name == HANGS) < 30
