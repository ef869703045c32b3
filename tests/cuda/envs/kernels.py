"""The kernels of `rlcpu.cuda.envs`, for `tests/cuda/ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import rlcpu
from rlcpu.cuda.envs import batch
from rlcpu.cuda.envs.decide import network_of
from rlcpu.cuda.envs.rollout import Key, collect_kernel, simulate_kernel
from rlcpu.envs.lane import structure
from rlcpu.envs.registration import find
from rlcpu.policies import MLP, Uniform

U32, F32, FLAGS = "uint32[::1]", "float32[::1]", "boolean[::1]"


def jobs() -> Iterator[tuple[str, Any, str]]:
    """Name, kernel and signature of each."""
    for name in rlcpu.registered():
        yield step(name)
        for dtype in (np.float32, np.float64):
            yield simulate(name, dtype)
    for name in ("CartPole-v1", "Pendulum-v1"):  # one of each kind of action
        yield collect(name)
        yield from small(name)
    yield from networks("CartPole-v1", "separate")
    yield from networks("Pendulum-v1", "shared")
    yield "finished", batch.finished_kernel(), f"{U32}, {FLAGS}, int32[::1]"
    yield "either", batch.either_kernel(), f"{FLAGS}, {FLAGS}"


def step(name: str) -> tuple[str, Any, str]:
    dynamics = find(name)
    kernel = batch.step_kernel(structure(dynamics), np.float32, False, False)
    actions = "int64[::1]" if dynamics.is_discrete else F32
    return (
        f"step {name} float32",
        kernel,
        f"{F32}, {U32}, {U32}, {actions}, {F32}, int64, int64, {F32}, {U32}, {F32}, {F32}, "
        f"{FLAGS}, {F32}, int32[::1]",
    )


def small(name: str) -> Iterator[tuple[str, Any, str]]:
    code = structure(find(name))
    reset = batch.reset_kernel(code, np.float32)
    yield f"reset {name} float32", reset, f"{F32}, {U32}, {U32}, {FLAGS}, {F32}, int64"
    yield f"observe {name} float32", batch.observe_kernel(code, np.float32), f"{F32}, {F32}, {F32}"


def simulate(name: str, dtype: type) -> tuple[str, Any, str]:
    dynamics, kind = find(name), dtype.__name__
    key = Key(structure(dynamics), dtype, Uniform().code(dynamics), None)
    return f"simulate {name} {kind}", simulate_kernel(key), f"{inputs(kind)}, {kind}[::1], {U32}"


def collect(name: str) -> tuple[str, Any, str]:
    dynamics = find(name)
    key = Key(structure(dynamics), np.float32, Uniform().code(dynamics), None)
    signature = f"{inputs('float32')}, {outputs(name, 'float32')}"
    return f"collect {name} float32", collect_kernel(key), signature


def networks(name: str, value: str) -> Iterator[tuple[str, Any, str]]:
    """Collect and simulate with a network of two layers of 64 units."""
    dynamics = find(name)
    policy = MLP(dynamics.observation_space, dynamics.action_space, value=value)
    code = policy.code(dynamics)
    key = Key(structure(dynamics), np.float32, code, network_of(policy.arrays(dynamics), code))
    arguments = inputs("float32")
    yield (
        f"collect MLP {name} float32",
        collect_kernel(key),
        f"{arguments}, {outputs(name, 'float32')}",
    )
    policy = MLP(dynamics.observation_space, dynamics.action_space, value=None)
    code = policy.code(dynamics)
    key = Key(structure(dynamics), np.float32, code, network_of(policy.arrays(dynamics), code))
    yield f"simulate MLP {name} float32", simulate_kernel(key), f"{arguments}, {F32}, {U32}"


def inputs(kind: str) -> str:
    real = f"{kind}[::1]"
    return f"{real}, {U32}, {U32}, {real}, {F32}, {F32}, int64, int64, boolean, int64, int64"


def outputs(name: str, kind: str) -> str:
    real = f"{kind}[::1]"
    actions = "int64[::1]" if find(name).is_discrete else F32
    return f"{F32}, {actions}, {F32}, {F32}, {real}, {FLAGS}, {F32}, {real}, {U32}, " + ", ".join(
        [F32] * 3
    )
