"""Fused simulation and inference: K steps of N environments and the policy in one call."""

from __future__ import annotations

from typing import Any

from rlcpu.envs.faults import (
    check_rollout,
    check_simulation,
    describe_fault,
    refuse_policy,
)
from rlcpu.envs.policy import Policy, PolicyArrays, PolicyCode
from rlcpu.envs.prepared import Prepared, check_policy, prepare
from rlcpu.envs.results import Form, Rollout, Statistics
from rlcpu.envs.rollout import FAULT
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.threads import Kernels, launch

__all__ = ["Rollout", "Statistics", "collect", "simulate"]


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
        FloatingPointError: an observation, a reward or what the policy returns is NaN or infinite;
            the message names the first such number, its environment and its step. Environments
            that showed one start a new episode in the next call. (On the CPU: on a device, NaN and
            infinity pass.)
        gymnasium.error.ResetNeeded: autoreset is disabled and an episode has ended in `env.step`.
    """
    num_steps = _check(env, num_steps)
    if env.device != "cpu":
        device: Any = env
        return device.run_collect(*_start_on_device(env, policy), num_steps, out)
    prepared = prepare(env, policy)
    rollout = _take_rollout(env, prepared.form, num_steps, out)
    if _run(env, prepared, prepared.collect_kernels, num_steps, *rollout._outputs):
        finals = rollout._records.finals.reshape(rollout.observations.shape)
        check_rollout(env, policy, rollout._shown, finals)
    rollout._renew(policy, prepared)
    return rollout


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
    num_steps = _check(env, num_steps)
    if env.device != "cpu":
        device: Any = env
        return Statistics(*device.run_simulate(*_start_on_device(env, policy), num_steps))
    prepared = prepare(env, policy)
    if _run(env, prepared, prepared.simulate_kernels, num_steps, prepared.sums, prepared.lengths):
        check_simulation(env, policy, prepared.sums)
    sums, lengths = prepared.sums[-1, :3].tolist(), int(prepared.lengths[-1])
    return Statistics.of_sums(env.num_envs * num_steps, sums, lengths)


def _check(env: VectorEnv, num_steps: int) -> int:
    """The number of steps, if there is an environment to take them."""
    if not isinstance(env, VectorEnv):
        raise TypeError(f"env={env!r}: expected a rlcpu VectorEnv (unwrapped)")
    return check_count("num_steps", num_steps)


def _start_on_device(env: VectorEnv, policy: Policy) -> tuple[PolicyCode, PolicyArrays]:
    """The policy as the device takes it; episodes are started where there are none."""
    check_policy(policy)
    if describe_fault(policy):
        refuse_policy(policy, "actions that are not finite")
    code, arrays = policy.code(env.dynamics), policy.arrays(env.dynamics)
    env.start_episodes()
    return code, arrays


def _run(
    env: VectorEnv, prepared: Prepared, kernels: Kernels, num_steps: int, *outputs: Any
) -> bool:
    """Call a driver, again after the resets that it finds missing; whether it met a fault."""
    while code := launch(
        kernels, num_steps * prepared.shared_envs, env.num_threads,
        prepared.env_arrays, prepared.policy_arrays, num_steps, env.num_envs, *outputs,
    ):  # fmt: skip
        if code == FAULT:
            return True
        env.start_episodes()
    return False


def _take_rollout(env: VectorEnv, form: Form, num_steps: int, out: Rollout | None) -> Rollout:
    """`out`, after checks, or a new rollout."""
    if out is None:
        return Rollout(form, num_steps)
    if not isinstance(out, Rollout):
        raise TypeError(f"out={type(out).__name__}: expected a Rollout")
    if out._form != form or out._num_steps != num_steps:
        shape = out._num_steps, out._form.num_envs
        raise ValueError(
            f"out has {shape} steps and environments of {out._form.dtype}: expected "
            f"{(num_steps, env.num_envs)} of {env.dtype} and the spaces of {env.dynamics.id}"
        )
    return out
