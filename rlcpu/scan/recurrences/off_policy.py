"""Returns and advantages of one policy from the actions of another: V-trace and Retrace."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.vectors import where
from rlcpu.scan.arguments import check_real
from rlcpu.scan.recurrences.episodes import Array, Ends, check_episodes
from rlcpu.scan.recurrences.rules import Rule, Step, bootstrap, inlined, itself, unless_ended
from rlcpu.scan.recurrences.run import Problem


class Clips(NamedTuple):
    """Upper bounds of importance ratios in `vtrace`; infinity for none.

    Attributes:
        rho: in temporal differences: which policy's value the targets converge to.
        c: in the weight of later temporal differences: how fast they do.
        pg_rho: in the advantages for the policy gradient.
    """

    rho: float = 1.0
    c: float = 1.0
    pg_rho: float = 1.0


#: What the paper uses.
CLIPS = Clips()


class VTrace(NamedTuple):
    """What `vtrace` returns.

    Attributes:
        targets: like the rewards, of the value function.
        advantages: like the rewards, of the actions taken, weighted for the policy gradient.
    """

    targets: Any
    advantages: Any


# ---------------------------------------------------------------- scalar functions


@inlined
def clipped(ratio: float, clip: float) -> Any:
    """The smaller of both, NaN if the ratio is that."""
    return where(ratio > clip, clip, ratio)


@inlined
def vtrace_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """E_t = rho_t * delta_t + gamma * lambda * c_t * E_{t+1}, of which v_t + E_t is the target."""
    target = step.reward + step.gamma * bootstrap(step, after.value)
    weight = step.gamma * (step.lambda_ * clipped(step.ratio, options[1]))
    return unless_ended(step, weight), clipped(step.ratio, options[0]) * (target - step.value)


@inlined
def vtrace_results(y: Any, carried: Any, step: Step, after: Step, options: Any) -> Any:
    """The target, and the advantage of the action against the next step's target."""
    following = bootstrap(step, after.value + step.lambda_ * carried)
    advantage = step.reward + step.gamma * following - step.value
    return step.value + y, clipped(step.ratio, options[2]) * advantage


@inlined
def retrace_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """G_t = r_t + gamma * (v_{t+1} + c_{t+1} * (G_{t+1} - q_{t+1}))."""
    c = after.lambda_ * clipped(after.ratio, 1.0)
    following = bootstrap(step, after.value - c * after.action_value)
    return unless_ended(step, step.gamma * c), step.reward + step.gamma * following


_READS = ("reward", "value", "terminated", "truncated", "final_value", "gamma", "lambda_", "ratio")
VTRACE = Rule(vtrace_coefficients, vtrace_results, _READS, outputs=2)
RETRACE = Rule(retrace_coefficients, itself, (*_READS, "action_value"))


# ---------------------------------------------------------------- public functions


def vtrace(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    ratios: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    gamma: npt.ArrayLike,
    lambda_: npt.ArrayLike = 1.0,
    clips: Clips = CLIPS,
    final_values: npt.ArrayLike | None = None,
    axis: int = 0,
    out: VTrace | None = None,
    num_threads: int | None = None,
) -> VTrace:
    """V-trace targets and advantages, of IMPALA.

    With rho_t = min(clips.rho, ratio_t), c_t = lambda_t * min(clips.c, ratio_t) and
    delta_t = rho_t * (r_t + gamma_t * v_{t+1} - v_t), the target of step t is v_t + E_t with
    E_t = delta_t + gamma_t * c_t * E_{t+1}, and the advantage
    min(clips.pg_rho, ratio_t) * (r_t + gamma_t * (v_{t+1} + lambda_t * E_{t+1}) - v_t).
    E_T is 0 and v_T is last_values. After a step that ended its episode, 0 or final_values[t]
    stands in the place of what gamma_t multiplies, and E_{t+1} is dropped.
    Espeholt et al. 2018, IMPALA: scalable distributed deep-RL with importance weighted
    actor-learner architectures, equation 1 and section 4.2; rlax's
    `vtrace_td_error_and_advantage`, whose errors are `targets - values`.

    Args:
        rewards: see `discounted_returns`, as for all arguments that are not named here.
        values: like the rewards, of the observations before the steps.
        ratios: like the rewards, probability of the action taken under the policy that is learned
            over that under the one that acted.
        terminated: like the rewards, bool.
        truncated: like the rewards, bool.
        last_values: the rewards' shape without `axis`, or one number.
        gamma: discount factor, or discounts that broadcast.
        lambda_: further factor of c in [0, 1], or factors that broadcast.
        clips: upper bounds of the ratios, not negative.
        final_values: like the rewards.
        axis: of time.
        out: two arrays like the rewards, overwritten with the result.
        num_threads: at most so many threads.

    Returns:
        (targets, advantages), each like the rewards; the arrays of `out` if given.

    Raises:
        TypeError, ValueError: see `discounted_returns`.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> vtrace(ones, ones, 2 * ones, going, going, 1.0, gamma=0.5).targets.ravel()
        array([1.75, 1.5 ])
    """
    if not isinstance(clips, tuple) or len(clips) != len(Clips._fields):
        raise TypeError(f"clips: expected Clips, got {clips!r}")
    for name, clip in zip(Clips._fields, clips, strict=True):
        bound = check_real(f"clips.{name}", clip, np.dtype(np.float64))
        if bound.ndim or not bound >= 0.0:
            raise ValueError(f"clips.{name}={clip}: expected a number that is not negative")
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    steps = episodes.steps._replace(
        value=episodes.array("values", values),
        ratio=episodes.array("ratios", ratios),
        lambda_=episodes.factor("lambda_", lambda_),
    )
    problem = Problem(steps, last=episodes.last, options=clips)
    names = "out.targets", "out.advantages"
    return VTrace(*episodes.run(VTRACE, problem, out, names, num_threads))


def retrace(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    action_values: npt.ArrayLike,
    ratios: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
    last_values: npt.ArrayLike,
    *,
    gamma: npt.ArrayLike,
    lambda_: npt.ArrayLike = 1.0,
    final_values: npt.ArrayLike | None = None,
    axis: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Retrace(lambda) targets of the action values.

    G_t = r_t + gamma_t * (v_{t+1} + c_{t+1} * (G_{t+1} - q_{t+1})) with
    c_t = lambda_t * min(1, ratio_t); after the last step only the value last_values counts. After a
    step that ended its episode, 0 or final_values[t] stands in the place of what gamma_t
    multiplies. Munos et al. 2016, Safe and efficient off-policy reinforcement learning, equations 3
    and 4; rlax's `general_off_policy_returns_from_q_and_v`.

    Args:
        rewards: see `discounted_returns`, as for all arguments that are not named here.
        values: like the rewards, of the observations before the steps: the mean of the action
            values under the policy that is evaluated.
        action_values: like the rewards, of the actions taken.
        ratios: like the rewards, probability of the action taken under the policy that is evaluated
            over that under the one that acted.
        terminated: like the rewards, bool.
        truncated: like the rewards, bool.
        last_values: the rewards' shape without `axis`, or one number.
        gamma: discount factor, or discounts that broadcast.
        lambda_: factor of c in [0, 1], or factors that broadcast.
        final_values: like the rewards.
        axis: of time.
        out: like the rewards, overwritten with the result.
        num_threads: at most so many threads.

    Returns:
        Targets like the rewards; `out` if given.

    Raises:
        TypeError, ValueError: see `discounted_returns`.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> retrace(ones, ones, ones, ones, going, going, 1.0, gamma=0.5).ravel()
        array([1.75, 1.5 ])
    """
    ends = Ends(terminated, truncated, last_values, final_values)
    episodes = check_episodes(rewards, ends, gamma, axis)
    steps = episodes.steps._replace(
        value=episodes.array("values", values),
        ratio=episodes.array("ratios", ratios),
        action_value=episodes.array("action_values", action_values),
        lambda_=episodes.factor("lambda_", lambda_),
    )
    return episodes.run_one(RETRACE, Problem(steps, last=episodes.last), out, num_threads)
