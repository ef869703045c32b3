"""Fused simulation and inference: K steps of N environments and the policy in one call."""

from __future__ import annotations

import functools
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu import backends
from rlcpu.envs.engine import records, rollout
from rlcpu.envs.engine.faults import check_rollout, check_simulation
from rlcpu.envs.engine.lane import PENDING
from rlcpu.envs.engine.rollout import FAULT, EnvArrays, Rollouts
from rlcpu.envs.networks import describe_fault, refuse_policy
from rlcpu.envs.policies import Policy
from rlcpu.envs.results import Form, Rollout, Statistics
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.threads import launch

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
        policy: `Uniform`, `Linear`, `MLP`, `NetworkPolicy` or `Scalar`.
        num_steps: K, steps of each environment.
        out: a rollout of the same shape, spaces and device, whose memory is used again: its arrays
            are overwritten.

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
    num_steps = _check(env, num_steps)
    prepared = prepare(env, policy)
    rollout = take_rollout(env, prepared.form, num_steps, out)
    if prepared.run(env, prepared.collect_kernels, num_steps, rollout._outputs):
        prepared.check(env, policy, rollout)
    rollout._renew(policy, prepared)
    return rollout


def simulate(
    env: VectorEnv,
    policy: Policy,
    num_steps: int | None = None,
    *,
    num_episodes: int | None = None,
) -> Statistics:
    """Let a policy act in N environments, and keep only statistics of the episodes.

    With `num_steps`, it acts for so many steps of each environment; how episodes follow each other
    is said in `collect`. The means are of the episodes that end within these steps, and so biased
    to short ones, the more the fewer steps there are: long ones are cut off. With `num_episodes`
    they are unbiased: environment i plays the episodes i, i + N, i + 2 N and so on to their ends,
    whichever ends first.

    Args:
        env: the environments.
        policy: `Uniform`, `Linear`, `MLP`, `NetworkPolicy` or `Scalar`.
        num_steps: K, steps of each environment.
        num_episodes: whole episodes, in the place of `num_steps`. All environments are reset first;
            those that are done before others go on, in episodes that count in no mean. Steps are
            recorded for a moment, so that it takes the time of `collect`.

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
        return _simulate_episodes(env, policy, check_count("num_episodes", num_episodes))
    num_steps = _check(env, num_steps)
    prepared = prepare(env, policy)
    if prepared.run(env, prepared.simulate_kernels, num_steps, prepared.sums):
        prepared.check_sums(env, policy)
    elapsed = env.memory.elapsed()
    num_cut_off = np.count_nonzero((elapsed > 0) & (elapsed < PENDING))
    sums = prepared.sums[-1].tolist()
    return Statistics.of_sums(env.num_envs * num_steps, sums, int(num_cut_off))


def _simulate_episodes(env: VectorEnv, policy: Policy, num_episodes: int) -> Statistics:
    _check(env, 1)
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
    """An episode of an environment without a limit of steps does not come to its end."""


#: Steps of one call of `collect`; episodes are given up if none ends in `MOST_STEPS`.
STEPS = 64
MOST_STEPS = 1_000_000
#: Numbers of observations that are recorded at a time, at most: 64 MiB.
_MOST_NUMBERS = 2**24


def play_episodes(
    env: VectorEnv, policy: Policy, num_episodes: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """Play whole episodes, whose environments were decided before: number k is of k % N.

    Whichever end first would be the short ones.

    Args:
        env: just reset.
        policy: chooses the actions.
        num_episodes: how many.

    Returns:
        (num_episodes,) returns and lengths, and the steps that each environment took.

    Raises:
        EndlessEpisodeError: no episode that is waited for ends.
    """
    n = env.num_envs
    returns, lengths = np.empty(num_episodes), np.zeros(num_episodes, np.int64)
    ended = np.zeros(n, np.int64)
    steps = min(STEPS, max(_MOST_NUMBERS // (n * env.rows), 1))
    rollout, missing, taken, last = None, num_episodes, 0, 0
    while missing:
        if taken - last >= MOST_STEPS:
            raise EndlessEpisodeError(
                f"{env.dynamics.id}: an episode did not end within {MOST_STEPS} steps"
            )
        rollout = collect(env, policy, steps, out=rollout)
        taken += steps
        envs = rollout.final_indices[:, 1]
        order = np.argsort(envs, kind="stable")  # by environment, in the order of time
        envs = envs[order]
        rank = np.arange(envs.size) - np.searchsorted(envs, envs)
        places = (ended[envs] + rank) * n + envs
        order, places = order[places < num_episodes], places[places < num_episodes]
        returns[places] = rollout.episode_returns[order]
        lengths[places] = rollout.episode_lengths[order]
        ended += np.bincount(envs, minlength=n)
        missing -= places.size
        last = taken if places.size else last
    return returns, lengths, taken


def _check(env: VectorEnv, num_steps: Any) -> int:
    """Return the number of steps, if there is an environment to take them."""
    if not isinstance(env, VectorEnv):
        raise TypeError(f"env={env!r}: expected a rlcpu VectorEnv (unwrapped)")
    return check_count("num_steps", num_steps)


def take_rollout(env: VectorEnv, form: Form, num_steps: int, out: Rollout | None) -> Rollout:
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


# ---------------------------------------------------------------- what is checked and made once


class Prepared:
    """An environment and a policy that fit each other, as kernels take them.

    Checking everything anew and making the kernels' arguments took 19 of the 45 us of a step of one
    environment; to see that nothing has changed takes 1.3.

    Args:
        env: on the CPU.
        policy: any that has the methods of `Policy`.

    Attributes:
        policy: the policy.
        env_arrays, policy_arrays: the fields of `EnvArrays` and `KernelPolicy`.
        form: of the environment's rollouts.
        sums: (blocks + 1, 5) float64, which `simulate` overwrites.
        shared_envs: environments whose steps several cores can share: one block is one core's.

    Raises:
        TypeError, ValueError: they do not fit.
    """

    def __init__(self, env: VectorEnv, policy: Policy) -> None:
        space: Any = env.single_action_space
        self.policy, self._dynamics, self._memory = policy, env.dynamics, env.memory
        self._numbers, self._env_code, self._real = env.numbers, env.code, env.scalar_type
        self._code, arrays = policy.code(env.dynamics), policy.arrays(env.dynamics)
        self._networks, self._read = arrays.networks(), (arrays.weights, arrays.value_weights)
        self.policy_arrays = tuple(arrays.for_kernels())
        self._objects, self._values = self._marks(policy)
        bounds = np.zeros(0, np.float32)
        if not env.dynamics.is_discrete:
            bounds = np.concatenate((space.low, space.high)).astype(np.float32)
        self._rollouts = records if env.dynamics.has_arrays else rollout
        memory, blocks = env.memory, env.memory.real.shape[0]
        self.env_arrays = tuple(
            EnvArrays(memory.real, memory.words, env.numbers, bounds, memory.clock)
        )
        self.form = Form.of(env)
        self.sums = np.zeros((blocks + 1, 5))
        self.shared_envs = env.num_envs if blocks > 1 else 0

    def _marks(self, policy: Policy) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
        """Return the policy's marks, if they tell of every change that does not go into our arrays.

        A class that has `code` or `arrays` of its own and inherits marks may make arrays that these
        do not tell of, and arrays of another dtype were copied into ours.
        """
        for each in type(policy).__mro__:
            if "marks" in vars(each):
                break
            if "code" in vars(each) or "arrays" in vars(each):
                return None, ()
        else:
            return None, ()
        objects, values = policy.marks()  # type: ignore[attr-defined]
        theirs = [each for each in objects if isinstance(each, np.ndarray)]
        read = *self.policy_arrays, *self._read
        alike = all(any(each is ours for ours in read) for each in theirs)
        return (objects if alike else None), values

    def serves(self, env: VectorEnv, policy: Policy) -> bool:
        """Tell whether the environment and the policy are what they were."""
        if (
            policy is not self.policy
            or self._objects is None
            or env.dynamics is not self._dynamics
            or env.memory is not self._memory
            or env.numbers is not self._numbers
        ):
            return False
        objects, values = policy.marks()  # type: ignore[attr-defined]
        if values != self._values or not all(map(is_, objects, self._objects)):
            return False
        for network in self._networks:
            network.refresh()
        return True

    def run(self, env: VectorEnv, kernels: Rollouts, num_steps: int, outputs: Any) -> bool:
        """Take K steps, after the resets that are missing; whether a number was not finite."""
        while code := launch(
            kernels.drivers, num_steps * self.shared_envs, env.num_threads,
            kernels.address, self.env_arrays, self.policy_arrays, num_steps, env.num_envs, outputs,
        ):  # fmt: skip
            if code == FAULT:
                return True
            env.start_episodes()
        return False

    def check(self, env: VectorEnv, policy: Policy, rollout: Rollout) -> None:
        """Raise FloatingPointError for the first number of a rollout that is not finite."""
        check_rollout(env, policy, rollout)

    def check_sums(self, env: VectorEnv, policy: Policy) -> None:
        """Raise for faults that a simulation's sums report."""
        check_simulation(env, policy, self.sums)

    @functools.cached_property
    def collect_kernels(self) -> Rollouts:
        """See there."""
        return self._rollouts.collect_kernels(self._env_code, self._real, self._code)

    @functools.cached_property
    def simulate_kernels(self) -> Rollouts:
        """See there."""
        return self._rollouts.simulate_kernels(self._env_code, self._real, self._code)


class PreparedOnDevice:
    """The same of environments on a device, for one call: see `Prepared`."""

    def __init__(self, env: VectorEnv, policy: Policy) -> None:
        if describe_fault(policy):
            refuse_policy(policy, "actions that are not finite")
        self._policy = policy.code(env.dynamics), policy.arrays(env.dynamics)
        rollouts = backends.find(env.device, "rollouts")
        self.collect_kernels, self.simulate_kernels = rollouts.collect, rollouts.simulate
        self.form, self.sums = Form.of(env), np.zeros((1, 5))

    def serves(self, env: VectorEnv, policy: Policy) -> bool:
        """Tell whether another call may use it: the policy's numbers are copied in each."""
        return False

    def run(self, env: VectorEnv, kernels: Any, num_steps: int, outputs: Any) -> bool:
        """Take K steps, and overwrite the outputs; what is not finite passes."""
        env.start_episodes()
        kernels(env, *self._policy, num_steps, outputs)
        return False


def prepare(env: VectorEnv, policy: Policy) -> Any:
    """Return the preparation of the last call, if it still holds: a `Prepared` or its counterpart.

    Raises:
        TypeError, ValueError: it is no policy, or does not fit the environment.
    """
    held = env.prepared
    if held is None or not held.serves(env, policy):
        check_policy(policy)
        kind: Any = Prepared if env.device == "cpu" else PreparedOnDevice
        if env.dynamics.engine is not None:
            kind = env.dynamics.engine.Prepared
        held = env.prepared = kind(env, policy)
    return held


def check_policy(policy: Policy) -> None:
    """Raise TypeError unless the policy has the methods of one."""
    if isinstance(policy, type) or not (hasattr(policy, "code") and hasattr(policy, "arrays")):
        raise TypeError(f"policy={policy!r}: expected one of rlcpu.policies")
