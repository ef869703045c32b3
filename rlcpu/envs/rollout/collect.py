"""Rollouts: `collect` and `simulate`, K steps of N environments and their policy in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.policies import Policy, as_deterministic
from rlcpu.envs.engine import base
from rlcpu.envs.engine.base import Engine
from rlcpu.envs.engine.episode import PENDING
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.rollout.results import Rollout, Statistics
from rlcpu.kernels.checks import check_count

__all__ = ["Rollout", "Statistics", "collect", "simulate"]


def _make_lane_runner(engine: Any, policy: Policy) -> base.Runner:
    from rlcpu.envs.rollout.lane_runner import LaneRunner

    return LaneRunner(engine, policy)


base.make_lane_runner = _make_lane_runner


def collect(
    env: VectorEnv,
    policy: Policy,
    num_steps: int,
    *,
    out: Rollout | None = None,
    deterministic: bool | None = None,
) -> Rollout:
    """Let a policy act for K steps in N environments, and record everything.

    An episode that ends is followed by a new one in the next step, whatever the environment's
    autoreset mode. The first call after `reset` begins there, each further call where the last one
    (or `env.step`) stopped; an environment that was never reset is reset first.

    Args:
        env: the environments.
        policy: `Uniform`, `Linear`, `MLP`, `NetworkPolicy` or `Scalar`, or an agent's `policy`,
            which explores as it does while the agent learns.
        num_steps: K, steps of each environment.
        out: a rollout of the same shape, spaces and device, whose memory is used again: its arrays
            are overwritten.
        deterministic: True takes the most likely actions, or the best, as `Agent.evaluate` does;
            False draws them, or explores; None does what the policy is set to, by its attribute
            `deterministic`. The policy itself does not change. `Uniform` and `Scalar` have no such
            choice: None alone is allowed. `log_probs` are those of the actions taken if they had
            been drawn.

    Returns:
        The rollout; `out` itself if given.

    Raises:
        TypeError, ValueError: an argument is bad, or the policy does not fit the environment.
        FloatingPointError: an observation, a reward or what the policy returns is NaN or infinite;
            the message names the first such number, its environment and its step. Environments
            that showed one start a new episode in the next call. (On the CPU: on a device, NaN and
            infinity pass.)
        gymnasium.error.ResetNeeded: autoreset is disabled and an episode has ended in `env.step`.
    """
    num_steps, policy = _check_arguments(env, num_steps), as_deterministic(policy, deterministic)
    runner, rollout = env.engine.runner(policy), take_rollout(env.engine, num_steps, out)
    first_states = runner.states()  # of a policy with memory; else None
    has_fault = runner.collect(rollout)
    if has_fault:
        runner.check(rollout.records, num_steps)  # raises the exception that names it
    rollout.renew(policy, source=runner, states=first_states, last_states=runner.states())
    return rollout


def simulate(
    env: VectorEnv,
    policy: Policy,
    num_steps: int | None = None,
    *,
    num_episodes: int | None = None,
    deterministic: bool | None = None,
) -> Statistics:
    """Let a policy act in N environments, and keep only statistics of the episodes.

    With `num_steps`, it acts for so many steps of each environment; how episodes follow each other
    is said in `collect`. The means are of the episodes that end within these steps, and so biased
    to short ones, the more the fewer steps there are: long ones are cut off. With `num_episodes`
    they are unbiased: environment i plays the episodes i, i + N, i + 2 N and so on to their ends,
    whichever ends first.

    Args:
        env: the environments.
        policy: see `collect`: an agent's `policy` explores unless `deterministic` is True.
        num_steps: K, steps of each environment.
        num_episodes: whole episodes, in the place of `num_steps`. All environments are reset first;
            those that are done before others go on, in episodes that count in no mean. Steps are
            recorded for a moment, so that it takes the time of `collect`.
        deterministic: see `collect`.

    Raises:
        TypeError, ValueError, FloatingPointError, gymnasium.error.ResetNeeded: see `collect`.
        NotImplementedError: num_episodes with environments on a device.
        EndlessEpisodeError: no episode that is waited for ends within a million steps.

    Example:
        >>> import rlcpu
        >>> env = rlcpu.make_vec("CartPole-v1", num_envs=128)
        >>> _ = env.reset(seed=0)
        >>> rlcpu.simulate(env, rlcpu.policies.Uniform(), 100).num_steps
        12800
        >>> rlcpu.simulate(env, rlcpu.policies.Uniform(), num_episodes=1000).num_episodes
        1000
    """
    if (num_steps is None) == (num_episodes is None):
        raise TypeError(
            f"num_steps={num_steps!r}, num_episodes={num_episodes!r}: expected one of them"
        )
    if num_episodes is not None:
        num_episodes = check_count("num_episodes", num_episodes)
        return _simulate_episodes(env, as_deterministic(policy, deterministic), num_episodes)
    num_steps, policy = _check_arguments(env, num_steps), as_deterministic(policy, deterministic)
    sums = env.engine.runner(policy).simulate(num_steps)
    elapsed = env.engine.elapsed()
    # Episodes under way: they have begun, and are not over (`PENDING`).
    num_cut_off = np.count_nonzero((elapsed > 0) & (elapsed < PENDING))
    return Statistics.of_sums(env.num_envs * num_steps, sums, int(num_cut_off))


def _simulate_episodes(env: VectorEnv, policy: Policy, num_episodes: int) -> Statistics:
    """Reset the environments, play whole episodes and return their statistics; see `simulate`."""
    _check_arguments(env, 1)
    if env.device != "cpu":
        raise NotImplementedError(
            f"num_episodes={num_episodes}: for environments on the CPU, env is on "
            f"{env.device!r}; num_steps= goes there"
        )
    env.reset()
    returns, lengths, num_steps = play_episodes(env, policy, num_episodes)
    return Statistics(
        num_steps=env.num_envs * num_steps,
        num_episodes=num_episodes,
        mean_return=float(returns.mean()),
        std_return=float(returns.std()),
        mean_length=float(lengths.mean()),
    )


class EndlessEpisodeError(RuntimeError):
    """Raised if an episode of an environment without a limit of steps does not end."""


#: Steps that whole episodes are played at a time.
STEPS = 64
#: Steps after which episodes are given up if none of them ended.
MOST_STEPS = 1_000_000
#: Most numbers of observations that are recorded at a time: 64 MiB.
_MOST_NUMBERS = 2**24


def play_episodes(
    env: VectorEnv, policy: Policy, num_episodes: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """Play whole episodes: episode k is the (k // N)-th one of environment k % N.

    So it is decided beforehand which episodes count: to take those that end first would prefer
    short ones.

    Args:
        env: just reset.
        policy: chooses the actions.
        num_episodes: how many.

    Returns:
        (num_episodes,) returns and lengths, and the steps that each environment took.

    Raises:
        EndlessEpisodeError: no episode that counts ends in `MOST_STEPS` steps.
    """
    n = env.num_envs
    returns, lengths = np.empty(num_episodes), np.zeros(num_episodes, np.int64)
    num_ended = np.zeros(n, np.int64)  # episodes of each environment
    steps = min(STEPS, max(_MOST_NUMBERS // (n * env.engine.rows), 1))
    rollout, missing = None, num_episodes
    taken = last_end = 0  # steps of each environment: so far, and when an episode last counted
    while missing:
        if taken - last_end >= MOST_STEPS:
            raise EndlessEpisodeError(
                f"{env.dynamics.id}: an episode did not end within {MOST_STEPS} steps"
            )
        rollout = collect(env, policy, steps, out=rollout)
        taken += steps
        # The ends sorted by environment, those of one environment in the order of time.
        order = np.argsort(rollout.final_indices[:, 1], kind="stable")
        envs = rollout.final_indices[order, 1]
        # How many ends of the same environment are before each: `searchsorted` finds the first.
        ends_before = np.arange(envs.size) - np.searchsorted(envs, envs)
        episodes = (num_ended[envs] + ends_before) * n + envs
        counts = episodes < num_episodes  # environments that are done play on
        returns[episodes[counts]] = rollout.episode_returns[order[counts]]
        lengths[episodes[counts]] = rollout.episode_lengths[order[counts]]
        num_ended += np.bincount(envs, minlength=n)
        missing -= int(counts.sum())
        last_end = taken if counts.any() else last_end
    return returns, lengths, taken


def _check_arguments(env: VectorEnv, num_steps: Any) -> int:
    """Return `num_steps` as an int; raise TypeError or ValueError for it or for `env`."""
    if not isinstance(env, VectorEnv):
        raise TypeError(f"env={env!r}: expected a rlcpu VectorEnv (unwrapped)")
    return check_count("num_steps", num_steps)


def take_rollout(engine: Engine, num_steps: int, out: Rollout | None) -> Rollout:
    """Return a new rollout of an engine, or `out`.

    Raises TypeError or ValueError if `out` is none of the same form.
    """
    form = engine.form
    if out is None:
        return Rollout(form, num_steps)
    if not isinstance(out, Rollout):
        raise TypeError(f"out={type(out).__name__}: expected a Rollout")
    if out.form != form or out.num_steps != num_steps:
        shape = out.num_steps, out.form.num_envs
        raise ValueError(
            f"out has {shape} steps and environments of {out.form.dtype}: expected "
            f"{(num_steps, form.num_envs)} of {form.dtype} and the spaces of {engine.dynamics.id}"
        )
    return out
