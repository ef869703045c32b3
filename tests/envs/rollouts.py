"""Environments and policies that the tests of rollouts run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlcpu
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.tasks import classic_control
from rlcpu.policies import MLP, Linear, Scalar, Uniform

#: The environments whose original Gymnasium has wherever this library is, without Box2D.
CLASSIC = list(classic_control.FAMILY.limits)
#: More than a block of 64, and the last block is not full.
NUM_ENVS = 70
LIMIT = 9
FIELDS = (
    *("observations", "actions", "log_probs", "values", "rewards", "terminated", "truncated"),
    *("last_observations", "last_values", "final_indices", "final_observations", "final_values"),
    *("episode_returns", "episode_lengths"),
)


class Lean(NamedTuple):
    """Parameters of a policy of one's own."""

    gain: float = 3.0
    noise: float = 0.05


def lean(observation, params, uniforms):
    """Push to the side to which the pole leans, sometimes to the other."""
    lean = params.gain * observation[2] + params.noise * (uniforms[0] + uniforms[1] - 1.0)
    return (1 if lean > 0.0 else 0), -0.5 * lean * lean, observation[2]


def damp(observation, params, uniforms):
    """A torque against the velocity, beyond the bounds of the action."""
    torque = params[0] * observation[2] + uniforms[0]
    return (torque,), -torque, 2.0 * observation[0]


def network(kind: Callable[..., MLP], **options: Any) -> Callable[[VectorEnv], MLP]:
    """Networks whose every parameter matters: the initial ones are nearly uniform."""

    def make(env: VectorEnv) -> MLP:
        policy = kind(env.single_observation_space, env.single_action_space, **options)
        rng = np.random.default_rng(3)
        for array in (policy.parameters, policy.value_parameters):
            array += 0.3 * rng.standard_normal(array.size, np.float32)
        policy.log_std += rng.uniform(-1.0, 0.5, policy.log_std.size).astype(np.float32)
        policy.observation_mean += rng.uniform(-0.1, 0.1, policy.observation_mean.size)
        policy.observation_scale *= rng.uniform(0.5, 20.0, policy.observation_scale.size)
        policy.observation_limit = 1.5
        return policy

    return make


def greedy(make: Callable[[VectorEnv], MLP]) -> Callable[[VectorEnv], MLP]:
    def make_greedy(env: VectorEnv) -> MLP:
        policy = make(env)
        policy.deterministic = True
        return policy

    return make_greedy


SEPARATE = network(MLP, hidden=(20, 7))
CASES = {
    "CartPole-v1 uniform": ("CartPole-v1", "float32", lambda env: Uniform()),
    "CartPole-v1 own": ("CartPole-v1", "float32", lambda env: Scalar(lean, Lean(), 2)),
    "CartPole-v1 tanh": ("CartPole-v1", "float32", SEPARATE),
    "CartPole-v1 relu": ("CartPole-v1", "float32", network(MLP, hidden=(33,), activation="relu")),
    "CartPole-v1 greedy": ("CartPole-v1", "float32", greedy(SEPARATE)),
    "CartPole-v1 shared": ("CartPole-v1", "float32", network(MLP, hidden=(16,), value="shared")),
    "CartPole-v1 exact own": ("CartPole-v1", "float64", lambda env: Scalar(lean, Lean(), 2)),
    "Pendulum-v1 exact tanh": ("Pendulum-v1", "float64", SEPARATE),
    "Acrobot-v1 linear": ("Acrobot-v1", "float32", network(Linear)),
    "Pendulum-v1 uniform": ("Pendulum-v1", "float32", lambda env: Uniform()),
    "Pendulum-v1 own": ("Pendulum-v1", "float32", lambda env: Scalar(damp, (-5.0,), 1)),
    "Pendulum-v1 tanh": ("Pendulum-v1", "float32", SEPARATE),
    "Pendulum-v1 greedy": ("Pendulum-v1", "float32", greedy(SEPARATE)),
}


def make(case: str, **options: Any) -> tuple[VectorEnv, Any]:
    name, dtype, policy = CASES[case]
    defaults = {"num_envs": NUM_ENVS, "dtype": dtype, "max_episode_steps": LIMIT}
    env = rlcpu.make_vec(name, **{**defaults, **options})
    env.reset(seed=11)
    return env, policy(env)


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """The same bits in float64; in float32 two kernels round differently, by design."""
    error = 0.0 if ours.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(ours, theirs, rtol=error, atol=error)
