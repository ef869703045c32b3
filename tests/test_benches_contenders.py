"""The contenders: ours run, and every one that is installed does the same work as ours."""

from __future__ import annotations

import functools
import importlib
import itertools
import shutil
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import (  # noqa: E402
    cpp,
    harness,
    machine,
    paper,
    replay,
    scan,
    simulate,
    sources,
)
from asv_benches.peers.harness import QUICK, Job  # noqa: E402
from asv_benches.peers.recurrences import Line, Models, Rollouts  # noqa: E402
from asv_benches.peers.scan import Systems  # noqa: E402
from rlcpu.envs.cartpole import DYNAMICS  # noqa: E402

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def run(job: Job, calls: int = 3) -> Any:
    """What the last call returns."""
    results = [job.call(*each) for each in job.inputs(np.random.default_rng(1), calls)]
    return results[-1]


# ---------------------------------------------------------------- simulation and training


@needs_compiler
def test_cpp_cartpole_is_cartpole():
    episodes, returns, lengths = run(cpp.cpp_cartpole(("-ffast-math",), 2048, 500), 1)
    assert returns == lengths
    # Random actions keep the pole up for 22.2 steps in Gymnasium, with a standard deviation of 12:
    # 0.3 less where episodes that do not end within the 500 steps are left out, which are long
    # ones. About 46,000 episodes have a standard error of 0.06.
    assert 21.6 < lengths / episodes < 22.2


@needs_compiler
@pytest.mark.parametrize("name", cpp.VARIANTS)
def test_cpp_leaves_the_process_its_subnormals(name):
    cpp.cpp_cartpole(cpp.VARIANTS[name], 16, 1)
    assert np.all(np.full(16, 1e-310) / 2 > 0)


@needs_compiler
def test_fma_peak_counts_its_operations():
    peak = cpp.fma_peak(iterations=10)
    assert peak.work == 2 * cpp.LANES * cpp.CHAINS * 10 * machine.cores()
    # 12 chains x -> x / 2 + 1 from 0, 1, ... 11: after ten steps 2 - (2 - i) / 1024 each.
    total = peak.call(0.5, 1.0)
    assert total == pytest.approx(machine.cores() * sum(2 - (2 - i) / 1024 for i in range(12)))


def test_exact_mode_is_compared_with_gymnasium():
    assert simulate.compare(num_envs=8, seed=0) > 8


def test_one_environment_is_reset_after_its_end():
    run(simulate.single("rlcpu/CartPole-v1"), 100)


def test_users_cartpole_is_ours(monkeypatch):
    import rlcpu

    registered: list[Any] = []
    monkeypatch.setattr(rlcpu, "register", registered.append)
    users = importlib.import_module("asv_benches.peers.user_cartpole")
    assert registered == [users.DYNAMICS]
    assert users.DYNAMICS.id == simulate.USER_ID
    rng = np.random.default_rng(0)
    for state, action in zip(rng.uniform(-1, 1, (100, 4)), itertools.cycle((0, 1))):
        new, reward, terminated = users.step(tuple(state), action, users.DYNAMICS.params)
        expected, *rest = DYNAMICS.step(tuple(state), action, DYNAMICS.params)
        np.testing.assert_allclose(new, expected, rtol=1e-13)
        assert [reward, terminated] == rest


def test_torchs_cartpole_is_cartpole():
    torch = pytest.importorskip("torch")
    lanes, advance = simulate.torch_cartpole(64)
    before, random = np.array(lanes[:4], np.float64), torch.random.get_rng_state()
    actions = (torch.rand(64) < 0.5).numpy()
    torch.random.set_rng_state(random)
    after = advance(lanes)
    for lane in range(64):
        state = tuple(before[:, lane])
        new, _, terminated = DYNAMICS.step(state, int(actions[lane]), DYNAMICS.params)
        assert not terminated
        found = [row[lane].item() for row in after[:4]]
        np.testing.assert_allclose(found, new, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("state_factor", "compute_factor"), [(1, 1), (2, 1), (1, 4), (4, 2)])
def test_heavier_cartpoles_take_turns(state_factor, compute_factor):
    heavy = paper.heavier(state_factor, compute_factor)
    state = heavy.reset((0.1, 0.2, 0.8, 0.6), heavy.params)
    copies = [state[:4]] * state_factor
    assert state == sum(copies, ())
    for number in range(3 * state_factor):
        action = number % 2
        state, reward, terminated = heavy.step(state, action, heavy.params)
        moved = copies.pop(0)
        for _ in range(compute_factor):
            moved, _, fallen = DYNAMICS.step(moved, action, DYNAMICS.params)
        copies.append(moved)
        assert state == sum(copies, ())
        assert (reward, terminated) == (1.0, fallen)


def test_factors_are_powers_of_two():
    with pytest.raises(ValueError, match="compute_factor=3: expected a power of two"):
        paper.heavier(1, 3)


# ---------------------------------------------------------------- counts of Figure 6

PROGRAM = """HloModule jit_collect, is_scheduled=true

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %a = f32[4]{0} add(%p, %p)
}

%body.1 (state: (s32[], f32[4])) -> (s32[], f32[4]) {
  %state = (s32[], f32[4]{0}) parameter(0)
  %x = f32[4]{0} get-tuple-element(%state), index=1
  %f = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused
  %d = f32[4]{0} dot(%f, %f), lhs_contracting_dims={0}
  ROOT %t = (s32[], f32[4]{0}) tuple(%d)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0)
  %c = f32[4]{0} copy(%x.1)
  %w = (s32[], f32[4]{0}) while(%c), condition=%end, body=%body.1
  ROOT %r = f32[4]{0} get-tuple-element(%w), index=1
}
"""


def test_xla_starts_the_loops_kernels_in_every_step():
    assert paper.xla_kernels(PROGRAM, 1) == 3
    assert paper.xla_kernels(PROGRAM, 10) == 21


def test_interpreter_calls_are_counted():
    def work() -> int:
        return max(len("abc"), 2)

    assert paper.interpreter_calls(work) == (2, 0)


def test_our_kernels_do_not_depend_on_the_number_of_steps():
    few, many = (paper.count_ours(num_steps) for num_steps in (1, 50))
    assert few == many
    assert 1 <= few.kernels <= 3


def test_a_missing_peer_of_the_counts_is_named(monkeypatch):
    def absent(num_steps: int) -> paper.Counts:
        raise ModuleNotFoundError("no jax")

    counters = {"rlcpu": lambda num_steps: paper.Counts(5, 1), "jax": absent}
    monkeypatch.setattr(paper, "COUNTERS", counters)
    measurement = paper.call_counts(4, QUICK)
    assert (measurement.ours, measurement.peer) == (1.0, "-")
    assert measurement.note == "jax: not installed: no jax"


# ---------------------------------------------------------------- replay


@pytest.fixture
def small(monkeypatch):
    """Everything of a size that is filled at once."""
    monkeypatch.setattr(replay, "LEAVES", 1000)
    for name, value in (("LENGTH", 400), ("REFRESHES", 2)):
        monkeypatch.setattr(sources, name, value)


@pytest.mark.parametrize(
    "make",
    [
        *(partial(replay.our_tree, operation, 32) for operation in ("update", "sample")),
        *(
            partial(replay.our_buffer, *job, capacity=5000, reuse=reuse)
            for job in (("add", 1600), ("sample", 256), ("prioritized", 256))
            for reuse in (True, False)
        ),
        *(partial(sources.our_trajectory, *job) for job in (("add", 2), ("sample",))),
        partial(sources.copy_blocks, 2),
        *(partial(sources.our_post, job, 1000) for job in ("draw", "weigh", "choose")),
        *(partial(sources.numpy_post, job, 1000) for job in ("draw", "weigh", "choose")),
    ],
    ids=lambda make: "-".join(map(str, (make.func.__name__, *make.args, *make.keywords.values()))),
)
def test_jobs_that_need_no_peer_run(make, small):
    run(make())


@pytest.mark.parametrize("make", [sources.our_post, sources.numpy_post])
def test_draws_by_return_repeat_nothing(make):
    drawn = run(make("draw", 1000))
    assert np.unique(drawn).size == drawn.size == sources.DRAWS


def test_numpys_draws_follow_the_post(monkeypatch):
    values = np.arange(1000.0) - 300
    monkeypatch.setattr(sources, "returns", lambda rng, count: values.copy())
    weigh, draw = (sources.numpy_post(operation, 1000).call for operation in ("weigh", "draw"))
    weigh(10.0)
    expected = np.concatenate([[10.0, 20.0], values[2:]]) + 298  # the lowest one is left
    np.testing.assert_allclose(weigh(20.0), expected / expected.sum())
    assert 0 not in np.concatenate([draw(-300.0) for _ in range(3)])[:256]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_held_bytes_are_the_growth(monkeypatch):
    memories = []

    def grower(capacity: int) -> Job:
        """Holds twice the bytes of the data."""
        memory = np.ones(2 * replay.data_alone(capacity), np.uint8)
        memories.append(weakref.ref(memory))
        return Job(lambda: memory)

    def peer(capacity: int) -> Job:
        """Is measured beside our large buffer, not in the memory that it left."""
        small, large = memories
        assert small() is None
        assert large() is not None
        raise ZeroDivisionError

    monkeypatch.setattr(replay, "MILLION", 40_000)
    monkeypatch.setattr(replay, "growth", partial(replay.growth, capacity=40_000))
    held = replay.held(grower, None, QUICK)
    assert held.peer == 813 * 40_000
    assert held.ratio == pytest.approx(2, abs=0.2)
    memories.clear()
    failed = replay.held(grower, peer, QUICK)
    assert (failed.peer, failed.ratio) == ("failed", None)
    assert "ZeroDivisionError" in failed.note


# ---------------------------------------------------------------- scan: everyone finds the same

HANGS = "gradient-library"  # the gradient of XLA's solver waits for ever
STEP = 1e-6  # of central differences


@functools.singledispatch
def shrunk(argument: Any) -> Any:
    """A problem of a size that is solved at once; everything else as it is."""
    return argument


@shrunk.register
def _(problem: Systems) -> Systems:
    return problem._replace(batch=min(problem.batch, 5), n=min(problem.n, 7))


@shrunk.register
def _(problem: Rollouts) -> Rollouts:
    return problem._replace(num_steps=6, num_envs=5)


@shrunk.register
def _(problem: Line) -> Line:
    return Line(50)


@shrunk.register
def _(problem: Models) -> Models:
    return problem._replace(batch=min(problem.batch, 3), num_steps=20)


def cases() -> dict[str, partial[Job]]:
    """Everyone who takes part in the table, once for each of their small problems."""
    found = {}
    for row in scan.rows():
        for make in () if row.name == HANGS else (row.measure.ours.make, row.measure.peer.make):
            if make.func not in (harness.fastest, scan.roofline):
                arguments = map(shrunk, make.args)
                small = partial(make.func, *arguments, **make.keywords)
                parts = *small.args[0], *small.args[1:], *make.keywords.values()
                names = (getattr(part, "__name__", str(part)) for part in parts)
                found["-".join([make.func.__name__, *names])] = small
    return found


CASES = cases()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the peers
@pytest.mark.parametrize("name", CASES)
def test_everyone_finds_the_same(name):
    make = CASES[name]
    try:
        job = make()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    problem = make.args[0]
    solution = flat(job.call(*next(iter(job.inputs(First(), 1)))))
    arrays = problem.draw(np.random.default_rng(0))
    wanted = expected(problem, *arrays)
    gradient = "gradient" in name or make.keywords.get("gradient", False)
    num_gradients = 4 if gradient else 0
    assert len(solution) == len(wanted) + num_gradients
    tolerance = 1e-12 if arrays[0].dtype == np.float64 else 2e-5
    for found, array in zip(solution, wanted, strict=False):
        np.testing.assert_allclose(found, array, rtol=tolerance, atol=tolerance)
    if num_gradients:
        check_gradients(problem, arrays, solution[len(wanted) :])


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
    direction = [rng.standard_normal(array.shape) for array in arrays[:4]]
    weights = arrays[4] if isinstance(problem, Systems) else 1.0
    if isinstance(problem, Models):
        direction[1] += np.swapaxes(direction[1], 1, 2)

    def loss(step: float) -> Any:
        moved = [a + step * d for a, d in zip(arrays[:4], direction, strict=True)]
        (solution,) = expected(problem, *moved, *arrays[4:])
        return (weights * solution).sum()

    found = sum(np.vdot(gradient, d) for gradient, d in zip(gradients, direction, strict=True))
    np.testing.assert_allclose(found, (loss(STEP) - loss(-STEP)) / (2 * STEP), rtol=1e-6)


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


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("stores", ["plain", "streaming"])
def test_the_roofline_reads_and_writes_everything(stores, dtype):
    job = scan.roofline(Systems(7, 149, dtype), stores)
    arguments = next(iter(job.inputs(np.random.default_rng(0), 1)))
    assert [array.ctypes.data % 64 for array in arguments] == [0] * 4
    np.testing.assert_allclose(job.call(*arguments), sum(arguments), rtol=1e-5, atol=1e-6)


@needs_compiler
def test_lapack_says_when_a_system_is_singular():
    pytest.importorskip("scipy")
    with pytest.raises(ArithmeticError, match="singular"):
        scan.lapack_solve(Systems(2, 5)).call(*[np.zeros((2, 5))] * 4)


def test_prepared_inputs_are_different_and_the_same_for_all():
    first, second = (harness.prepared(Line(2**20), len) for _ in range(2))
    pools = [list(job.inputs(First(), 8)) for job in (first, second)]
    assert len({float(x[0]) for (x,) in pools[0]}) == 8
    assert pools[0][0] is list(first.inputs(First(), 9))[8]
    np.testing.assert_array_equal(pools[0][3][0], pools[1][3][0])
