"""What only a card can show: other libraries' arrays, many environments, two equal runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.envs.policies import MLP, Uniform

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
    np.testing.assert_array_equal(taken.cpu().numpy(), np.asarray(observations))
    again = torch.from_dlpack(observations)
    assert again.data_ptr() == taken.data_ptr()


def test_cupy_in_and_out_without_a_copy() -> None:
    cupy = pytest.importorskip("cupy")
    env = make()
    observations = env.step(cupy.zeros(NUM_ENVS, cupy.int64))[0]
    taken = cupy.asarray(observations)
    assert taken.data.ptr == observations.__cuda_array_interface__["data"][0]
    np.testing.assert_array_equal(cupy.asnumpy(taken), np.asarray(observations))


def test_jax_in_and_out_without_a_copy() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU backend here")
    env = make()
    observations = env.step(jax.numpy.zeros(NUM_ENVS, jax.numpy.int32))[0]
    taken = jax.dlpack.from_dlpack(observations)
    np.testing.assert_array_equal(np.asarray(taken), np.asarray(observations))


@pytest.mark.parametrize("policy", ["uniform", "mlp"])
def test_two_runs_are_equal(policy: str) -> None:
    totals = []
    for _ in range(2):
        env = make()
        chosen: Any = Uniform()
        if policy == "mlp":
            chosen = MLP(env.single_observation_space, env.single_action_space)
        totals.append((rlcpu.simulate(env, chosen, 200), np.asarray(env.state)))
    assert totals[0][0] == totals[1][0]
    np.testing.assert_array_equal(totals[0][1], totals[1][1])


def test_random_numbers_are_the_cpus() -> None:
    cpu = rlcpu.make_vec("CartPole-v1", NUM_ENVS, dtype="float64")
    gpu = make(dtype="float64")
    np.testing.assert_array_equal(np.asarray(gpu.observe()), cpu.reset(seed=1)[0])


def test_memory_is_not_lost() -> None:
    from rlcpu.cuda.provider import cuda

    env = make()
    actions = np.zeros(NUM_ENVS, np.int64)
    for _ in range(3):
        env.step(actions)
    free = cuda.current_context().get_memory_info()[0]
    for _ in range(50):
        env.step(actions)
    assert cuda.current_context().get_memory_info()[0] == free
