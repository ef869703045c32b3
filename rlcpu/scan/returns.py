"""Returns and advantages: recurrences backward in time, for many environments at once.

After a step that terminated the episode nothing follows; after one that truncated it the value of
its last observation does, which is not the next row's, because that begins the next episode. Both
cut the recurrence: nothing of an episode reaches back into the one before it.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compile import EXACT, inline, kernel, specialise
from rlcpu.kernels.threads import Kernels, launch

Array = npt.NDArray[Any]

LANES = 512  # environments that a core takes at a time: rows of 256 take 15 % longer
GRAIN = 2**16  # steps of all environments, 20 us, from which a second core is worth waking


class Advantages(NamedTuple):
    """What `gae` returns.

    Attributes:
        advantages: (T, N), how much better each action was than the policy's average, estimated.
        returns: (T, N), `advantages + values`: targets of the value function.
    """

    advantages: Any
    returns: Any


class Ends(NamedTuple):
    """Whether a step ended its episode, and the value of the last observation if it truncated it.

    Of one step, a row of steps or all of them: fields of shape (), (lanes,) or (T, N).
    """

    terminated: Any
    truncated: Any
    final_values: Any


# ---------------------------------------------------------------- scalar functions


def bootstrap(end: Ends, following: float) -> float:
    """Value of what comes after the step, `following` if the episode goes on."""
    return 0.0 if end.terminated else end.final_values if end.truncated else following


def discounted_return(reward: float, end: Ends, next_return: float, gamma: float) -> float:
    """R_t = r_t + gamma * R_{t+1}."""
    return reward + gamma * bootstrap(end, next_return)


def advantage(
    reward: float, value: float, end: Ends, after: tuple[float, float], gamma: float, decay: float
) -> float:
    """A_t = delta_t + decay * A_{t+1}, `after` being the next step's value and advantage."""
    next_value, next_advantage = after
    delta = reward + gamma * bootstrap(end, next_value) - value
    return delta if end.terminated or end.truncated else delta + decay * next_advantage


# ---------------------------------------------------------------- drivers


@inline
def _lane(ends, i):  # type: ignore[no-untyped-def]
    return Ends(ends.terminated[i], ends.truncated[i], ends.final_values[i])


@inline
def _row(ends, t, i, j):  # type: ignore[no-untyped-def]
    return Ends(ends.terminated[t, i:j], ends.truncated[t, i:j], ends.final_values[t, i:j])


@functools.cache
def _kernels(make: Any, dtype: str) -> Kernels:
    kind = np.dtype(dtype).type
    return Kernels(make(kind, False), make(kind, True), GRAIN)


def _make_returns(dtype: Any, parallel: bool) -> Any:
    """Driver of `discounted_return`; all arrays (T, N) but for last_values (N,)."""
    # Memory is the limit: exact arithmetic costs nothing, and equals plain Python's.
    scalar = specialise(discounted_return, dtype, exact=True)

    @inline
    def step(rewards, ends, carry, gamma, returns):  # type: ignore[no-untyped-def]
        for i in range(rewards.shape[0]):
            carry[i] = scalar(rewards[i], _lane(ends, i), carry[i], gamma)
            returns[i] = carry[i]

    @kernel(parallel=parallel, fastmath=EXACT)
    def scan(rewards, ends, last_values, gamma, returns):  # type: ignore[no-untyped-def]
        num_steps, n = rewards.shape
        for block in prange((n + LANES - 1) // LANES):
            i, j = block * LANES, min((block + 1) * LANES, n)
            carry = last_values[i:j].copy()
            for t in range(num_steps - 1, -1, -1):
                step(rewards[t, i:j], _row(ends, t, i, j), carry, gamma, returns[t, i:j])

    return scan


def _make_gae(dtype: Any, parallel: bool) -> Any:
    """Driver of `advantage`; all arrays (T, N) but for last_values (N,)."""
    scalar = specialise(advantage, dtype, exact=True)

    @inline
    def step(rewards, values, ends, carry, gamma, decay, out):  # type: ignore[no-untyped-def]
        next_values, next_advantages = carry
        for i in range(rewards.shape[0]):
            value, after = values[i], (next_values[i], next_advantages[i])
            result = scalar(rewards[i], value, _lane(ends, i), after, gamma, decay)
            next_values[i], next_advantages[i] = value, result
            out.advantages[i], out.returns[i] = result, result + value

    @kernel(parallel=parallel, fastmath=EXACT)
    def scan(rewards, values, ends, last_values, gamma, decay, out):  # type: ignore[no-untyped-def]
        num_steps, n = rewards.shape
        for block in prange((n + LANES - 1) // LANES):
            i, j = block * LANES, min((block + 1) * LANES, n)
            carry = (last_values[i:j].copy(), np.zeros_like(last_values[i:j]))
            for t in range(num_steps - 1, -1, -1):
                rows = Advantages(out.advantages[t, i:j], out.returns[t, i:j])
                end = _row(ends, t, i, j)
                step(rewards[t, i:j], values[t, i:j], end, carry, gamma, decay, rows)

    return scan


# ---------------------------------------------------------------- public functions


def discounted_returns(
    rewards: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    gamma: float,
    final_values: npt.ArrayLike | None = None,
    out: Array | None = None,
) -> Array:
    """Discounted sums of the rewards to come, bootstrapped where an episode was cut short.

    R_t = r_t + gamma * R_{t+1}, where R_{t+1} is 0 if the episode terminated with step t,
    final_values[t] if it was truncated (and not terminated), and R_T is last_values.

    Args:
        rewards: (T, N) float32 or float64, of T steps of N environments.
        terminated: (T, N) bool, whether the episode ended with the step.
        truncated: (T, N) bool, whether a limit cut the episode short after the step.
        last_values: (N,) of the rewards' dtype, values of the observations after the last step; 0
            to leave out what comes after it.
        gamma: discount factor in [0, 1].
        final_values: (T, N) of the rewards' dtype, values of the last observations of truncated
            episodes; read only there, and needed only if there are any.
        out: (T, N) of the rewards' dtype, C-contiguous, overwritten with the result.

    Returns:
        (T, N) returns of the rewards' dtype; `out` if given.

    Raises:
        TypeError: an array is of another dtype.
        ValueError: an array is of another shape, a factor is outside of [0, 1], `out` is not
            contiguous or overlaps another array, or an episode was truncated without final_values.

    Example:
        >>> ended = np.array([[False], [True], [False]])
        >>> discounted_returns(np.ones((3, 1)), ended, ended, np.ones(1), gamma=0.5).ravel()
        array([1.5, 1. , 1.5])
    """
    rewards = _check_rewards(rewards)
    ends = _check_ends(rewards, terminated, truncated, final_values)
    last_values = _check_array("last_values", last_values, rewards.shape[1:], rewards.dtype)
    factor = rewards.dtype.type(_check_factor("gamma", gamma))
    returns = _check_out("out", out, rewards, (rewards, *ends, last_values))
    kernels = _kernels(_make_returns, rewards.dtype.name)
    launch(kernels, rewards.size, None, rewards, ends, last_values, factor, returns)
    return returns


def gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    gamma: float,
    lambda_: float,
    final_values: npt.ArrayLike | None = None,
    out: Advantages | None = None,
) -> Advantages:
    """Generalised advantage estimates, and the returns that they make with the values.

    A_t = delta_t + gamma * lambda_ * A_{t+1} with delta_t = r_t + gamma * w_t - v_t. The value w_t
    of the next observation is 0 if the episode terminated with step t, final_values[t] if it was
    truncated (and not terminated), else v_{t+1}; A_{t+1} is dropped where an episode ended.
    Schulman et al. 2016, High-dimensional continuous control using generalized advantage
    estimation, equation 16.

    Args:
        rewards: (T, N) float32 or float64, of T steps of N environments.
        values: (T, N) of the rewards' dtype, of the observations before the steps.
        terminated: (T, N) bool, whether the episode ended with the step.
        truncated: (T, N) bool, whether a limit cut the episode short after the step.
        last_values: (N,) of the rewards' dtype, values of the observations after the last step.
        gamma: discount factor in [0, 1].
        lambda_: weight of later temporal differences in [0, 1]; 0 is one step, 1 is Monte Carlo.
        final_values: (T, N) of the rewards' dtype, values of the last observations of truncated
            episodes; read only there, and needed only if there are any.
        out: two arrays (T, N) of the rewards' dtype, C-contiguous, overwritten with the result.

    Returns:
        (advantages, returns), each (T, N) of the rewards' dtype; the arrays of `out` if given.

    Raises:
        TypeError, ValueError: see `discounted_returns`.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> gae(ones, ones, going, going, np.ones(1), gamma=1.0, lambda_=0.5).advantages.ravel()
        array([1.5, 1. ])
    """
    rewards = _check_rewards(rewards)
    values = _check_array("values", values, rewards.shape, rewards.dtype)
    ends = _check_ends(rewards, terminated, truncated, final_values)
    last_values = _check_array("last_values", last_values, rewards.shape[1:], rewards.dtype)
    decay = _check_factor("gamma", gamma) * _check_factor("lambda_", lambda_)
    inputs = (rewards, values, *ends, last_values)
    advantages, returns = (None, None) if out is None else out
    advantages = _check_out("out.advantages", advantages, rewards, inputs)
    returns = _check_out("out.returns", returns, rewards, (*inputs, advantages))
    result = Advantages(advantages, returns)
    kernels, kind = _kernels(_make_gae, rewards.dtype.name), rewards.dtype.type
    factors = kind(gamma), kind(decay)
    launch(kernels, rewards.size, None, rewards, values, ends, last_values, *factors, result)
    return result


# ---------------------------------------------------------------- checks


def _check_rewards(rewards: npt.ArrayLike) -> Array:
    array = np.asarray(rewards)
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(f"rewards: expected float32 or float64, got {array.dtype}")
    if array.ndim != 2:
        raise ValueError(f"rewards: expected shape (num_steps, num_envs), got {array.shape}")
    return np.ascontiguousarray(array)


def _check_array(name: str, array: npt.ArrayLike, shape: tuple[int, ...], dtype: Any) -> Array:
    array = np.asarray(array)
    if array.dtype != dtype:
        raise TypeError(f"{name}: expected {np.dtype(dtype)}, got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    return np.ascontiguousarray(array)


def _check_ends(rewards: Array, terminated: Any, truncated: Any, final_values: Any) -> Ends:
    terminated = _check_array("terminated", terminated, rewards.shape, np.bool_)
    truncated = _check_array("truncated", truncated, rewards.shape, np.bool_)
    if final_values is not None:
        final_values = _check_array("final_values", final_values, rewards.shape, rewards.dtype)
    elif truncated.any() and np.greater(truncated, terminated).any():
        raise ValueError("final_values: needed where an episode was truncated and not terminated")
    # Without truncated episodes nothing reads the values: any array of the shape will do.
    return Ends(terminated, truncated, rewards if final_values is None else final_values)


def _check_factor(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value}: expected a number in [0, 1]")
    return float(value)


def _check_out(name: str, out: Array | None, like: Array, inputs: tuple[Array, ...]) -> Array:
    if out is None:
        return np.empty_like(like)
    found = getattr(out, "dtype", type(out))
    if found != like.dtype:
        raise TypeError(f"{name}: expected an array of {like.dtype}, got {found}")
    if out.shape != like.shape or not out.flags.c_contiguous or not out.flags.writeable:
        expected = f"a writable C-contiguous array of shape {like.shape}"
        raise ValueError(f"{name}: expected {expected}, got {out.shape}")
    if any(np.may_share_memory(out, array) for array in inputs):
        raise ValueError(f"{name}: overlaps another array")
    return out
