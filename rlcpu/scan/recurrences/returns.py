"""Returns and advantages of the policy that acted: recurrences backward in time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt

from rlcpu.scan.recurrences.episodes import Array, Ends, check_episodes
from rlcpu.scan.recurrences.rules import Rule, Step, bootstrap, inlined, itself, unless_ended
from rlcpu.scan.recurrences.run import Problem


class Advantages(NamedTuple):
    """What `gae` returns.

    Attributes:
        advantages: like the rewards, how much better each action was than the policy's average,
            estimated.
        returns: like the rewards, `advantages + values`: targets of the value function.
    """

    advantages: Any
    returns: Any


# ---------------------------------------------------------------- scalar functions


@inlined
def return_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """R_t = r_t + gamma * R_{t+1}, whose last term is a value where the episode ended."""
    return unless_ended(step, step.gamma), step.reward + step.gamma * bootstrap(step, 0.0)


@inlined
def advantage_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """A_t = delta_t + gamma * lambda * A_{t+1}."""
    delta = step.reward + step.gamma * bootstrap(step, after.value) - step.value
    return unless_ended(step, step.gamma * step.lambda_), delta


@inlined
def lambda_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """G_t = r_t + gamma * ((1 - lambda) * v_{t+1} + lambda * G_{t+1})."""
    following = bootstrap(step, (1.0 - step.lambda_) * after.value)
    return unless_ended(step, step.gamma * step.lambda_), step.reward + step.gamma * following


@inlined
def with_value(y: Any, carried: Any, step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """The recurrence, and its sum with the value."""
    return y, y + step.value


_ENDS = ("terminated", "truncated", "final_value", "gamma")
RETURNS = Rule(return_coefficients, itself, ("reward", *_ENDS))
ADVANTAGES = Rule(
    advantage_coefficients, with_value, ("reward", "value", *_ENDS, "lambda_"), outputs=2
)
LAMBDA_RETURNS = Rule(lambda_coefficients, itself, ("reward", "value", *_ENDS, "lambda_"))


# ---------------------------------------------------------------- public functions


def discounted_returns(
    rewards: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    gamma: npt.ArrayLike,
    final_values: npt.ArrayLike | None = None,
    axis: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Discounted sums of the rewards to come, bootstrapped where an episode was cut short.

    R_t = r_t + gamma_t * R_{t+1}, where R_{t+1} is 0 if the episode terminated with step t,
    final_values[t] if it was truncated (and not terminated), and R_T is last_values.

    Args:
        rewards: (num_steps, num_envs) float32 or float64, or any shape with time along `axis`.
            Whole numbers count as float64.
        terminated: like the rewards, bool, whether the episode ended with the step.
        truncated: like the rewards, bool, whether a limit cut the episode short after the step.
        last_values: (num_envs,), the rewards' shape without `axis`, or one number: values of the
            observations after the last steps; 0 to leave out what comes after.
        gamma: discount factor in [0, 1], or discounts, an array that may hold any number and
            broadcasts to the rewards' shape as in NumPy: (num_steps, num_envs) for one of each
            step, (num_steps, 1) for those that all environments share, (num_envs,) for those that
            stay the same over time.
        final_values: like the rewards, values of the last observations of truncated episodes; used
            only there, and needed only if there are any.
        axis: of time.
        out: like the rewards, overwritten with the result.
        num_threads: at most so many threads; all by default.

    Returns:
        Returns like the rewards; `out` if given. All arrays are of the rewards' dtype.

    Raises:
        TypeError: an array is of another dtype.
        ValueError: an array is of another shape, the factor, axis or number of threads is out of
            range, `out` is read-only or overlaps another array, or an episode was truncated
            without final_values.

    Example:
        >>> ended = np.array([[False], [True], [False]])
        >>> discounted_returns(np.ones((3, 1)), ended, ended, np.ones(1), gamma=0.5).ravel()
        array([1.5, 1. , 1.5])
    """
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    problem = Problem(episodes.steps, initial=episodes.last)
    return episodes.run_one(RETURNS, problem, out, num_threads)


def gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    gamma: npt.ArrayLike,
    lambda_: npt.ArrayLike,
    final_values: npt.ArrayLike | None = None,
    axis: int = 0,
    out: Advantages | None = None,
    num_threads: int | None = None,
) -> Advantages:
    """Generalised advantage estimates, and the returns that they make with the values.

    A_t = delta_t + gamma_t * lambda_t * A_{t+1} with delta_t = r_t + gamma_t * w_t - v_t. The value
    w_t of the next observation is 0 if the episode terminated with step t, final_values[t] if it
    was truncated (and not terminated), else v_{t+1}; A_{t+1} is dropped where an episode ended.
    Schulman et al. 2016, High-dimensional continuous control using generalized advantage
    estimation, equation 16.

    Args:
        rewards: see `discounted_returns`, as for all arguments that are not named here.
        values: like the rewards, of the observations before the steps.
        terminated: like the rewards, bool.
        truncated: like the rewards, bool.
        last_values: the rewards' shape without `axis`, or one number.
        gamma: discount factor, or discounts that broadcast.
        lambda_: weight of later temporal differences in [0, 1]; 0 is one step, 1 is Monte Carlo. Or
            weights that broadcast, as gamma does.
        final_values: like the rewards.
        axis: of time.
        out: two arrays like the rewards, overwritten with the result.
        num_threads: at most so many threads.

    Returns:
        (advantages, returns), each like the rewards; the arrays of `out` if given.

    Raises:
        TypeError, ValueError: see `discounted_returns`.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> gae(ones, ones, going, going, np.ones(1), gamma=1.0, lambda_=0.5).advantages.ravel()
        array([1.5, 1. ])
    """
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    values, lambda_ = episodes.array("values", values), episodes.factor("lambda_", lambda_)
    steps = episodes.steps._replace(value=values, lambda_=lambda_)
    problem = Problem(steps, last=episodes.last)
    names = "out.advantages", "out.returns"
    return Advantages(*episodes.run(ADVANTAGES, problem, out, names, num_threads))


def lambda_returns(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    gamma: npt.ArrayLike,
    lambda_: npt.ArrayLike,
    final_values: npt.ArrayLike | None = None,
    axis: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Returns of all numbers of steps, mixed: targets of TD(lambda), Q(lambda) or Sarsa(lambda).

    G_t = r_t + gamma_t * ((1 - lambda_t) * v_{t+1} + lambda_t * G_{t+1}), where G_T and v_T are
    last_values. After a step that ended its episode, 0 or final_values[t] stands in the place of
    what gamma_t multiplies. rlax's `lambda_returns`; Sutton and Barto, Reinforcement Learning, 2nd
    edition, section 12.3.

    Args:
        rewards: see `discounted_returns`, as for all arguments that are not named here.
        values: like the rewards, of the observations before the steps: max_a q for Q(lambda), q of
            the action taken for Sarsa(lambda).
        terminated: like the rewards, bool.
        truncated: like the rewards, bool.
        last_values: the rewards' shape without `axis`, or one number.
        gamma: discount factor, or discounts that broadcast.
        lambda_: weight in [0, 1] of the return against the value after one step. Or weights that
            broadcast, as gamma does.
        final_values: like the rewards.
        axis: of time.
        out: like the rewards, overwritten with the result.
        num_threads: at most so many threads.

    Returns:
        Returns like the rewards; `out` if given.

    Raises:
        TypeError, ValueError: see `discounted_returns`.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> lambda_returns(ones, ones, going, going, np.ones(1), gamma=1.0, lambda_=0.5).ravel()
        array([2.5, 2. ])
    """
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    values, lambda_ = episodes.array("values", values), episodes.factor("lambda_", lambda_)
    steps = episodes.steps._replace(value=values, lambda_=lambda_)
    problem = Problem(steps, last=episodes.last, initial=episodes.last)
    return episodes.run_one(LAMBDA_RETURNS, problem, out, num_threads)
