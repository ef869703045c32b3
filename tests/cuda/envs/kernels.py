"""The kernels of `rlcpu.cuda.envs`, for `tests/cuda/ptx.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcpu.cuda import envs
from rlcpu.cuda.networks import network_of
from rlcpu.cuda.rollouts import (
    DeviceRecords,
    RolloutInputs,
    RolloutSettings,
    Sums,
    rollout_kernel,
)
from rlcpu.envs import register
from rlcpu.envs.contract.names import find
from rlcpu.envs.engine.structure import structure
from rlcpu.policies import MLP, Uniform
from tests.envs.rollouts import CLASSIC
from tests.envs.samples import LEVERS, WHOLE

U32, F32, FLAGS = "uint32[::1]", "float32[::1]", "boolean[::1]"
STATES = envs.DeviceStates, F32, U32


def jobs() -> Iterator[tuple[Any, ...]]:
    """Name, kernel, types of its arguments."""
    register(WHOLE)
    register(LEVERS)
    yield collect(WHOLE.id)
    yield collect(LEVERS.id)
    yield step(LEVERS.id)
    for name in CLASSIC:
        yield simulate(name, np.float32)  # holds the environment's step, reset and observe
    for name in ("CartPole-v1", "Pendulum-v1"):  # one of each kind of action
        yield step(name)
        yield from small(name)
    yield simulate("CartPole-v1", np.float64)
    yield network("CartPole-v1", "separate")
    yield network("Pendulum-v1", "shared")


def step(name: str) -> tuple[Any, ...]:
    dynamics = find(name)
    kernel = envs.step_kernel(structure(dynamics), np.float32, False, False)
    actions = "int64[::1]" if dynamics.is_discrete else F32
    out = envs.StepOutputs, F32, F32, F32, FLAGS, FLAGS
    read = STATES, f"{U32}, {actions}, {F32}, int64, int64, int64[::1]"
    return f"step {name} float32", kernel, *read, out


def small(name: str) -> Iterator[tuple[Any, ...]]:
    code = structure(find(name))
    reset = envs.reset_kernel(code, np.float32)
    yield f"reset {name} float32", reset, STATES, f"{U32}, {FLAGS}, {F32}, int64"
    yield f"observe {name} float32", envs.observe_kernel(code, np.float32), f"{F32}, {F32}, {F32}"


def simulate(name: str, dtype: type) -> tuple[Any, ...]:
    dynamics, kind = find(name), dtype.__name__
    code, out = Uniform().code(dynamics), (Sums, f"{kind}[::1], {U32}")
    kernel = rollout_kernel(structure(dynamics), dtype, code, None, False)
    return f"simulate {name} {kind}", kernel, *inputs(kind), out


def collect(name: str) -> tuple[Any, ...]:
    dynamics = find(name)
    code = Uniform().code(dynamics)
    kernel = rollout_kernel(structure(dynamics), np.float32, code, None, True)
    return f"collect {name} float32", kernel, *inputs("float32"), (DeviceRecords, records(name))


def network(name: str, value: str) -> tuple[Any, ...]:
    """Collect with a network of two layers of 64 units, which holds all that simulate does."""
    dynamics = find(name)
    policy = MLP(dynamics.observation_space, dynamics.action_space, value=value)
    code = policy.code(dynamics)
    layers = network_of(policy.arrays(dynamics), code)
    kernel = rollout_kernel(structure(dynamics), np.float32, code, layers, True)
    out = DeviceRecords, records(name)
    return f"collect MLP {name} float32", kernel, *inputs("float32"), out


def inputs(kind: str) -> tuple[Any, ...]:
    """Types of the inputs and settings of a rollout."""
    real = f"{kind}[::1]"
    arrays = RolloutInputs, (envs.DeviceStates, real, U32), f"{U32}, {real}, {F32}, {F32}"
    return arrays, (RolloutSettings, "int64, int64, boolean, int64, int64")


def records(name: str) -> str:
    actions = "int64[::1]" if find(name).is_discrete else F32
    return f"{F32}, {actions}, {F32}, {F32}, {F32}, {FLAGS}, {F32}, {F32}, {U32}, " + ", ".join(
        [F32] * 3
    )
