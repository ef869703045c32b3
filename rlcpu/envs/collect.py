"""Fused simulation and inference: K steps of N environments and the policy in one call."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.networks import MLP
from rlcpu.envs.policy import Policy, PolicyArrays, PolicyCode
from rlcpu.envs.records import Records
from rlcpu.envs.rollout import EnvArrays, collect_kernels, simulate_kernels
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.threads import launch

Array = npt.NDArray[Any]


@dataclasses.dataclass
class Statistics:
    """What `simulate` reports.

    Attributes:
        num_steps: environment steps taken, N * K.
        num_episodes: episodes that ended.
        mean_return, std_return: of the returns of those episodes; NaN without any.
        mean_length: of their lengths in steps.
    """

    num_steps: int
    num_episodes: int
    mean_return: float
    std_return: float
    mean_length: float


@dataclasses.dataclass
class Rollout:
    """T steps of N environments, time-major; F is the number of episodes that ended.

    Attributes:
        observations: (T, N, observation_size) float32, before each step.
        actions: (T, N) int64 of a `Discrete`, (T, N, action_size) float32 of a `Box`: as the
            policy drew them; the environment got them clipped to its bounds.
        log_probs: (T, N) float32, of the actions.
        values: (T, N) float32, the policy's values of `observations`; 0 without a value head.
        rewards: (T, N), of the environment's dtype.
        terminated, truncated: (T, N) bool, whether the episode ended with this step; both may hold.
        last_observations: (N, observation_size) float32, after the last step.
        last_values: (N,) float32, of `last_observations`.
        final_indices: (F, 2) int64, [step, environment] of each end, in time-major order.
        final_observations: (F, observation_size) float32, the observation that the ending step
            led to, of which the next row of `observations` shows nothing.
        final_values: (T, N) float32, value of the final observation where an episode was truncated
            and not terminated: what the return has to be bootstrapped with; 0 elsewhere.
        episode_returns: (F,) float64; episode_lengths: (F,) int64, in steps.
    """

    observations: Array
    actions: Array
    log_probs: Array
    values: Array
    rewards: Array
    terminated: Array
    truncated: Array
    last_observations: Array
    last_values: Array
    final_indices: Array
    final_observations: Array
    final_values: Array
    episode_returns: Array
    episode_lengths: Array
    _records: Records = dataclasses.field(repr=False)


def collect(
    env: VectorEnv, policy: Policy, num_steps: int, *, out: Rollout | None = None
) -> Rollout:
    """Let a policy act for K steps in N environments, and record everything.

    An episode that ends is followed by a new one in the next step, whatever the environment's
    autoreset mode. The first call after `reset` begins there, each further call where the last one
    (or `env.step`) stopped; an environment that was never reset is reset first.

    Args:
        env: the environments.
        policy: `Uniform`, `Linear`, `MLP` or `Scalar`.
        num_steps: K, steps of each environment.
        out: a rollout of the same shape, whose memory is used again: its arrays are overwritten.

    Returns:
        The rollout; `out` itself if given. Environments of another device give one whose arrays
        live there, see `rlcpu.cuda.envs.collect.Rollout`.

    Raises:
        TypeError, ValueError: an argument is bad, or the policy does not fit the environment.
        gymnasium.error.ResetNeeded: autoreset is disabled and an episode has ended in `env.step`.
    """
    code, arrays = _prepare(env, policy, num_steps)
    if env.device != "cpu":
        device: Any = env
        return device.run_collect(code, arrays, num_steps, out)
    records = _take_records(env, num_steps, out)
    kernels = collect_kernels(env.code, env.scalar_type, code)
    launch(
        kernels, _work(env, num_steps), env.num_threads,
        _env_arrays(env), arrays, num_steps, env.num_envs, records,
    )  # fmt: skip
    return _finish(env, policy, num_steps, records, out)


def simulate(env: VectorEnv, policy: Policy, num_steps: int) -> Statistics:
    """Let a policy act for K steps in N environments, and keep only statistics of the episodes.

    See `collect` for the arguments, how episodes follow each other, and the errors.

    Example:
        >>> import rlcpu
        >>> env = rlcpu.make_vec("CartPole-v1", num_envs=128)
        >>> _ = env.reset(seed=0)
        >>> rlcpu.simulate(env, rlcpu.policies.Uniform(), 100).num_steps
        12800
    """
    code, arrays = _prepare(env, policy, num_steps)
    if env.device != "cpu":
        device: Any = env
        return Statistics(*device.run_simulate(code, arrays, num_steps))
    before = int(env.memory.elapsed().sum(dtype=np.int64))
    sums = np.zeros((env.memory.real.shape[0], 3))
    kernels = simulate_kernels(env.code, env.scalar_type, code)
    launch(
        kernels, _work(env, num_steps), env.num_threads,
        _env_arrays(env), arrays, num_steps, env.num_envs, sums,
    )  # fmt: skip
    episodes, returns, squares = sums.sum(axis=0)
    steps = env.num_envs * num_steps
    if episodes == 0:
        return Statistics(steps, 0, math.nan, math.nan, math.nan)
    mean = returns / episodes
    std = math.sqrt(max(squares / episodes - mean * mean, 0.0))
    finished = steps + before - int(env.memory.elapsed().sum(dtype=np.int64))
    return Statistics(steps, int(episodes), mean, std, finished / episodes)


def _prepare(env: VectorEnv, policy: Policy, num_steps: int) -> tuple[PolicyCode, PolicyArrays]:
    """Check the arguments, and start episodes where there are none."""
    if not isinstance(env, VectorEnv):
        raise TypeError(f"env={env!r}: expected a rlcpu VectorEnv (unwrapped)")
    if isinstance(num_steps, bool) or not isinstance(num_steps, int | np.integer):
        raise TypeError(f"num_steps={num_steps!r}: expected an int of at least 1")
    if num_steps < 1:
        raise ValueError(f"num_steps={num_steps}: expected at least 1")
    if isinstance(policy, type) or not (hasattr(policy, "code") and hasattr(policy, "arrays")):
        raise TypeError(f"policy={policy!r}: expected one of rlcpu.policies")
    code, arrays = policy.code(env.dynamics), policy.arrays(env.dynamics)
    env.start_episodes()
    return code, arrays


def _work(env: VectorEnv, num_steps: int) -> int:
    """Environment steps that cores can share: one block is one core's."""
    return num_steps * env.num_envs if env.memory.real.shape[0] > 1 else 0


def _env_arrays(env: VectorEnv) -> EnvArrays:
    space = env.single_action_space
    bounds = np.zeros(0, np.float32)
    if env.dynamics.action_size:
        bounds = np.concatenate((space.low, space.high)).astype(np.float32)  # type: ignore[attr-defined]
    return EnvArrays(env.memory.real, env.memory.words, env.numbers, bounds, env.memory.clock)


def _take_records(env: VectorEnv, num_steps: int, out: Rollout | None) -> Records:
    """The memory of `out`, after checks, or new memory."""
    count, size = num_steps * env.num_envs, env.dynamics.observation_size
    width = max(env.dynamics.action_size, 1)
    kinds: dict[str, tuple[int, Any]] = {
        "observations": (count * size, np.float32),
        "actions": (count * width, np.float32 if env.dynamics.action_size else np.int64),
        "log_probs": (count, np.float32),
        "values": (count, np.float32),
        "rewards": (count, env.dtype),
        "flags": (2 * count, np.bool_),
        "finals": (count * size, np.float32),
        "totals": (count, env.dtype),
        "lengths": (count, np.uint32),
    }
    if out is None:
        return Records(**{k: np.empty(n, dtype) for k, (n, dtype) in kinds.items()})
    if not isinstance(out, Rollout):
        raise TypeError(f"out={type(out).__name__}: expected a Rollout")
    shape = (num_steps, env.num_envs)
    fits = out.rewards.shape == shape and all(
        getattr(out._records, k).shape == (n,) and getattr(out._records, k).dtype == dtype
        for k, (n, dtype) in kinds.items()
    )
    if not fits:
        raise ValueError(
            f"out has {out.rewards.shape} steps and environments of {out.rewards.dtype}: expected "
            f"{shape} of {env.dtype} and the spaces of {env.dynamics.id}"
        )
    return out._records


def _finish(
    env: VectorEnv, policy: Policy, num_steps: int, records: Records, out: Rollout | None
) -> Rollout:
    """The records in their shapes, with the episodes' ends gathered and bootstrap values added."""
    shape = (num_steps, env.num_envs)
    terminated, truncated = records.flags.reshape(2, *shape)
    ends = np.flatnonzero(records.flags[: len(records.rewards)] | truncated.ravel())
    finals = records.finals.reshape(len(records.rewards), -1)[ends]
    final_values = np.zeros(shape, np.float32) if out is None else out.final_values
    last = np.ascontiguousarray(env.observe())
    last_values = np.zeros(env.num_envs, np.float32)
    final_values.fill(0.0)
    if isinstance(policy, MLP) and policy.value is not None:
        last_values = policy.evaluate(last)
        cut = truncated.ravel()[ends] & ~terminated.ravel()[ends]
        if cut.any():
            final_values.ravel()[ends[cut]] = policy.evaluate(finals[cut])
    actions = records.actions.reshape(*shape, *env.single_action_space.shape)  # type: ignore[misc]
    fields = {
        "observations": records.observations.reshape(*shape, -1),
        "actions": actions,
        "log_probs": records.log_probs.reshape(shape),
        "values": records.values.reshape(shape),
        "rewards": records.rewards.reshape(shape),
        "terminated": terminated,
        "truncated": truncated,
        "last_observations": last,
        "last_values": last_values,
        "final_indices": np.stack(np.unravel_index(ends, shape), axis=1),
        "final_observations": finals,
        "final_values": final_values,
        "episode_returns": records.totals[ends].astype(np.float64),
        "episode_lengths": records.lengths[ends].astype(np.int64),
    }
    if out is None:
        return Rollout(**fields, _records=records)
    for name, value in fields.items():
        setattr(out, name, value)
    return out
