"""What only a card can show: other libraries' arrays, many environments, two equal runs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import rlcpu
import rlcpu.scan
from rlcpu.cuda import faults
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import asarray, cuda, launch, to_host, zeros
from rlcpu.policies import MLP, Uniform

pytestmark = pytest.mark.gpu

NUM_ENVS = 2**16


def make(**options: Any) -> Any:
    env = rlcpu.make_vec("CartPole-v1", NUM_ENVS, device="cuda", **options)
    env.reset(seed=1)
    return env


def test_torch_in_and_out_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    env = make()
    actions = torch.zeros(NUM_ENVS, dtype=torch.int64, device="cuda")
    observations = env.step(actions)[0]
    taken = torch.as_tensor(observations, device="cuda")
    assert taken.data_ptr() == observations.__cuda_array_interface__["data"][0]
    np.testing.assert_array_equal(taken.cpu().numpy(), to_host(observations))
    again = torch.from_dlpack(observations)
    assert again.data_ptr() == taken.data_ptr()


def test_torch_on_another_stream_is_waited_for() -> None:
    torch = pytest.importorskip("torch")
    results = []
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        env = make()
        with torch.cuda.stream(stream):
            numbers = torch.ones(2**24, device="cuda")
            for _ in range(50):  # milliseconds, before the actions are there
                numbers = numbers * 1.0
            actions = numbers[:NUM_ENVS].to(torch.int64)
            results.append(to_host(env.step(actions)[0]))
    np.testing.assert_array_equal(*results)


def test_cupy_in_and_out_without_a_copy() -> None:
    cupy = pytest.importorskip("cupy")
    env = make()
    observations = env.step(cupy.zeros(NUM_ENVS, cupy.int64))[0]
    taken = cupy.asarray(observations)
    assert taken.data.ptr == observations.__cuda_array_interface__["data"][0]
    np.testing.assert_array_equal(cupy.asnumpy(taken), to_host(observations))


def test_jax_in_and_out_without_a_copy() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU backend here")
    env = make()
    observations = env.step(jax.numpy.zeros(NUM_ENVS, jax.numpy.int32))[0]
    taken = jax.dlpack.from_dlpack(observations)
    np.testing.assert_array_equal(np.asarray(taken), to_host(observations))


@pytest.mark.parametrize("policy", ["uniform", "mlp"])
def test_two_runs_are_equal(policy: str) -> None:
    totals = []
    for _ in range(2):
        env = make()
        chosen: Any = Uniform()
        if policy == "mlp":
            chosen = MLP(env.single_observation_space, env.single_action_space)
        totals.append((rlcpu.simulate(env, chosen, 200), to_host(env.state)))
    assert totals[0][0] == totals[1][0]
    np.testing.assert_array_equal(totals[0][1], totals[1][1])


def test_random_numbers_are_the_cpus() -> None:
    cpu = rlcpu.make_vec("CartPole-v1", NUM_ENVS, dtype="float64")
    gpu = make(dtype="float64")
    np.testing.assert_array_equal(to_host(gpu.observe()), cpu.reset(seed=1)[0])


def test_memory_is_not_lost() -> None:
    import cupy

    held = cupy.get_default_memory_pool().total_bytes  # of this process: others may use the card
    env = make()
    actions = np.zeros(NUM_ENVS, np.int64)
    for _ in range(3):
        env.step(actions)
    before = held()
    for _ in range(50):
        env.step(actions)
    assert held() == before


def test_values_of_a_million_items_are_the_cpus() -> None:
    host, buffer = (
        rlcpu.replay.ReturnWeightedBuffer(2**20 + 3, {"x": 0}, seed=1, device=device)
        for device in ("cpu", "cuda")
    )
    rng = np.random.default_rng(0)
    for count in (1000, 2**20, 5000):
        batch, values = {"x": rng.integers(0, 99, count)}, rng.normal(size=count)
        host.add(batch, values)
        buffer.add(batch, values)
        for size in (256, 2**19):
            if host.can_sample(size):
                expected, found = host.sample(size), buffer.sample(size)
                np.testing.assert_array_equal(to_host(found.indices), expected.indices)
                np.testing.assert_array_equal(to_host(found["x"]), expected["x"])
        host.update_values(expected.indices, 3.0)
        buffer.update_values(found.indices, 3.0)
    numbers = to_host(buffer._sampler.tree.numbers)
    np.testing.assert_array_equal(numbers, host._sampler.tree.numbers)


@pytest.mark.parametrize("kind", ["TrajectoryBuffer", "PrioritizedTrajectoryBuffer"])
def test_sequences_of_many_environments_are_the_cpus(kind: str) -> None:
    example = {"image": np.zeros((8, 8), np.uint8), "reward": np.float32(0)}
    host, buffer = (
        getattr(rlcpu.replay, kind)(NUM_ENVS, 64, example, 20, 4, seed=1, device=device)
        for device in ("cpu", "cuda")
    )
    rng = np.random.default_rng(0)
    for _ in range(3):
        images = rng.integers(0, 256, (30, NUM_ENVS, 8, 8)).astype(np.uint8)
        batch = {"image": images, "reward": rng.random((30, NUM_ENVS)).astype(np.float32)}
        host.add(batch)
        buffer.add(batch)
        expected, found = host.sample(1000), buffer.sample(1000)
        np.testing.assert_array_equal(to_host(found.indices), expected.indices)
        for name in example:
            np.testing.assert_array_equal(to_host(found[name]), expected[name])


def test_returns_of_several_steps_are_the_cpus() -> None:
    example = {"reward": np.float32(0), "terminated": False, "next_observation": np.zeros(3)}
    host, buffer = (
        rlcpu.replay.PrioritizedReplayBuffer(
            2**22, example, num_envs=NUM_ENVS, n_step=5, truncated=False, seed=1, device=device
        )
        for device in ("cpu", "cuda")
    )
    rng = np.random.default_rng(0)
    batch = {
        "reward": rng.random((50, NUM_ENVS)).astype(np.float32),
        "terminated": rng.random((50, NUM_ENVS)) < 0.2,
        "next_observation": rng.random((50, NUM_ENVS, 3)),
    }
    host.add(batch)
    buffer.add(batch)
    expected, found = host.sample(10_000), buffer.sample(10_000)
    for name in example:
        np.testing.assert_array_equal(to_host(found[name]), expected[name])
    np.testing.assert_array_equal(to_host(found.discounts), expected.discounts)


# ---------------------------------------------------------------- scans of many blocks


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_tridiagonal_systems(axis: int, dtype: Any) -> None:
    shape = (100, 2**16) if axis == 0 else (2**16, 100)
    lower, diagonal, upper, rhs = np.random.default_rng(0).normal(size=(4, *shape)).astype(dtype)
    given = [asarray(a) for a in (lower, diagonal, upper, rhs)]
    x, info = rlcpu.scan.solve_tridiagonal(*given, axis=axis, return_info=True)
    assert not to_host(info.status).any()
    y = to_host(x)
    assert rlcpu.scan.solve_tridiagonal(*given, axis=axis, out=given[3]) is given[3]
    np.testing.assert_array_equal(to_host(given[3]), y)
    terms = [diagonal * y, rhs]
    for coefficients, by in ((lower, 1), (upper, -1)):
        around = np.moveaxis(coefficients * np.roll(y, by, axis), axis, 0)
        around[0 if by > 0 else -1] = 0
        terms.append(np.moveaxis(around, 0, axis))
    lacking = np.abs(rhs - terms[0] - terms[2] - terms[3])
    errors = lacking / sum(map(np.abs, terms))
    assert np.quantile(errors.max(axis), 0.999) < 2**8 * np.finfo(dtype).eps


@pytest.mark.parametrize("axis", [0, 1])
def test_returns_of_many_steps(axis: int) -> None:
    shape, rng = (1000, 2000), np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, *shape)).astype(np.float32)
    ended = rng.random(shape) < 0.01
    given = rewards, values, ended, np.zeros(shape, bool), 0.0
    options: Any = {"n": 5, "gamma": 0.99, "axis": axis}
    expected = rlcpu.scan.nstep_returns(*given, **options)
    found = rlcpu.scan.nstep_returns(asarray(rewards), *given[1:], **options)
    np.testing.assert_allclose(to_host(found), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_many_steps(axis: int, reverse: bool) -> None:
    rng, options = np.random.default_rng(0), {"axis": axis, "reverse": reverse}
    a, b = rng.uniform(-1, 1, (2, 3000, 500))
    scan, scan_vjp = rlcpu.scan.linear_scan, rlcpu.scan.linear_scan_vjp
    y = scan(a, b, **options)
    np.testing.assert_allclose(to_host(scan(asarray(a), asarray(b), **options)), y, 1e-11, 1e-13)
    found = scan_vjp(asarray(a), asarray(y), asarray(b), **options)
    for one, other in zip(found, scan_vjp(a, y, b, **options), strict=True):
        np.testing.assert_allclose(to_host(one), other, 1e-11, 1e-13)
    sums, sums_vjp = rlcpu.scan.logcumsumexp, rlcpu.scan.logcumsumexp_vjp
    y = sums(b, **options)
    np.testing.assert_allclose(to_host(sums(asarray(b), **options)), y, 1e-13, 1e-15)
    found = sums_vjp(asarray(b), asarray(y), asarray(a), **options)
    np.testing.assert_allclose(to_host(found), sums_vjp(b, y, a, **options), 1e-10, 1e-12)


def test_products_that_overflow_in_a_long_row() -> None:
    a, b = np.full(2**22, 0.5), np.zeros(2**22)
    a[: 2**20], b[2**21] = 2.0, 1.0
    found = to_host(rlcpu.scan.linear_scan(asarray(a), asarray(b)))
    np.testing.assert_allclose(found, rlcpu.scan.linear_scan(a, b), rtol=1e-12, atol=1e-300)


def test_gradients_of_one_matrix_of_many_systems() -> None:
    x, grad = np.random.default_rng(0).normal(size=(2, 2**15, 100))
    given = -np.ones(100), np.full(100, 3.0), -np.ones(100), x, grad
    expected = rlcpu.scan.tridiagonal_vjp(*given)
    found = rlcpu.scan.tridiagonal_vjp(*map(asarray, given))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_host(one), other, rtol=1e-9, atol=1e-9)


def test_scans_of_torch_in_torch() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.rand(2, 100, 300, device="cuda", dtype=torch.float64)
    out = torch.zeros(300, 100, device="cuda", dtype=torch.float64).T
    assert rlcpu.scan.linear_scan(a, b, axis=0, out=out) is out
    expected = rlcpu.scan.linear_scan(a.cpu().numpy(), b.cpu().numpy(), axis=0)
    np.testing.assert_allclose(out.cpu().numpy(), expected, 1e-12)


@kernel
def _add_product(x, number, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] += number * x[i]


def test_threads_launch_at_once() -> None:
    """Each packs arguments of its own, and need not have called anything of CUDA's before."""
    x, sums = asarray(np.arange(1000.0)), [zeros(1000, np.float64) for _ in range(8)]
    faults.synchronize()

    def work(number: int) -> None:
        for _ in range(200):
            launch(_add_product, 1000, x, number, sums[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    faults.synchronize()
    for number, total in enumerate(sums):
        np.testing.assert_array_equal(to_host(total), 200 * number * np.arange(1000.0))


def test_launches_follow_the_current_stream() -> None:
    cupy = pytest.importorskip("cupy")
    x, total = asarray(np.ones(2**22)), zeros(2**22, np.float64)
    faults.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(100):
            launch(_add_product, 2**22, x, 1, total)
        stream.synchronize()
    assert (to_host(total) == 100).all()
