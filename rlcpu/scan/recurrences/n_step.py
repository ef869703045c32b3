"""Returns of n steps."""

from __future__ import annotations

import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.scan.recurrences.episodes import Array, Ends, check_episodes
from rlcpu.scan.recurrences.returns import LAMBDA_RETURNS
from rlcpu.scan.recurrences.run import Problem


def nstep_returns(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    n: int,
    gamma: npt.ArrayLike,
    lambda_: npt.ArrayLike = 1.0,
    final_values: npt.ArrayLike | None = None,
    axis: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Discounted sums of the next n rewards, and the value of the observation after them.

    R_t^n = r_t + gamma_t * ((1 - lambda_t) * v_{t+1} + lambda_t * R_{t+1}^{n-1}) and R_t^0 = v_t;
    with fewer than n steps left the value is last_values. After a step that ended its episode, 0 or
    final_values[t] stands in the place of what gamma_t multiplies. rlax's
    `n_step_bootstrapped_returns`; Sutton and Barto, Reinforcement Learning, 2nd edition, section
    7.1. Time and cost grow with n, up to the number of steps.

    Args:
        rewards: see `discounted_returns`, as for all arguments that are not named here.
        values: like the rewards, of the observations before the steps.
        terminated: like the rewards, bool.
        truncated: like the rewards, bool.
        last_values: the rewards' shape without `axis`, or one number.
        n: number of steps, at least 1.
        gamma: discount factor, or discounts that broadcast.
        lambda_: weight in [0, 1] of more steps against the value after one, or weights that
            broadcast; 1 for plain sums.
        final_values: like the rewards.
        axis: of time.
        out: like the rewards, overwritten with the result.
        num_threads: at most so many threads.

    Returns:
        Returns like the rewards; `out` if given.

    Raises:
        TypeError, ValueError: see `discounted_returns`; n is no whole number above 0.

    Example:
        >>> going, ones = np.zeros((3, 1), bool), np.ones((3, 1))
        >>> nstep_returns(ones, ones, going, going, np.ones(1), n=2, gamma=0.5).ravel()
        array([1.75, 1.75, 1.5 ])
    """
    n = check_count("n", n, limit=2**63)
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    values, lambda_ = episodes.array("values", values), episodes.factor("lambda_", lambda_)
    steps = episodes.steps._replace(value=values, lambda_=lambda_)
    whole = n >= episodes.layout.num_steps
    problem = Problem(steps, episodes.last, episodes.last, window=0 if whole else n)
    return episodes.run_one(LAMBDA_RETURNS, problem, out, num_threads)
