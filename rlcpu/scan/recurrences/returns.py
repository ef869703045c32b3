"""Returns and advantages: recurrences backward in time over the steps of episodes.

After a step that terminated the episode nothing follows; after one that truncated it the value of
its last observation does, which is not the next row's, because that begins the next episode. Both
cut the recurrence: nothing of an episode reaches back into the one before it. A term whose factor
is 0 (a discount, a weight, an importance ratio) is no term, even where it is NaN or infinite.

The formulas are in `rlcpu.scan.recurrences.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.scan.arguments import (
    backend_of,
    check_axis,
    check_factor,
    check_flags,
    check_out,
    check_real,
    check_shape,
)
from rlcpu.scan.layout import layout_of
from rlcpu.scan.recurrences.driver import UNUSED, Array, RecurrenceProblem, run
from rlcpu.scan.recurrences.rules import (
    ADVANTAGES,
    FLAGS,
    LAMBDA_RETURNS,
    RETRACE,
    RETURNS,
    VTRACE,
    Rule,
)


class Advantages(NamedTuple):
    """Advantages and returns of `gae`.

    Attributes:
        advantages: like the rewards, how much better each action was than the policy's average,
            estimated.
        returns: like the rewards, `advantages + values`: targets of the value function.
    """

    advantages: Any
    returns: Any


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
    """Targets and advantages of `vtrace`.

    Attributes:
        targets: like the rewards, of the value function.
        advantages: like the rewards, of the actions taken, weighted for the policy gradient.
    """

    targets: Any
    advantages: Any


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
    """Return discounted sums of the rewards to come, bootstrapped where an episode was cut short.

    R_t = r_t + gamma_t * R_{t+1}, where R_{t+1} is 0 if the episode terminated with step t,
    final_values[t] if it was truncated (and not terminated), and R_T is last_values. As in all
    functions of returns a term with the factor 0 is none, even where it is NaN or infinite.

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
    return _estimate(RETURNS, locals(), starts_with_values=True)


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
    """Return generalised advantage estimates, and the returns that they make with the values.

    A_t = delta_t + gamma_t * lambda_t * A_{t+1} with delta_t = r_t + gamma_t * w_t - v_t. The value
    w_t of the next observation is 0 if the episode terminated with step t, final_values[t] if it
    was truncated (and not terminated), else v_{t+1}; A_{t+1} is dropped where an episode ended.
    Schulman et al. 2016, High-dimensional continuous control using generalized advantage
    estimation, equation 16.

    Arguments and errors are those of `discounted_returns`, and these: `values`, like the rewards,
    of the observations before the steps; `lambda_` in [0, 1], the weight of later temporal
    differences, or weights that broadcast as gamma does: 0 is one step, 1 is Monte Carlo.

    Returns:
        (advantages, returns), each like the rewards; the arrays of `out` if given.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> gae(ones, ones, going, going, np.ones(1), gamma=1.0, lambda_=0.5).advantages.ravel()
        array([1.5, 1. ])
    """
    return _estimate(ADVANTAGES, locals(), result=Advantages)


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

    Arguments and errors are those of `discounted_returns`, and these: `values`, like the rewards,
    of the observations before the steps: max_a q for Q(lambda), q of the action taken for
    Sarsa(lambda); `lambda_` in [0, 1], the weight of the return against the value after one step,
    or weights that broadcast as gamma does.

    Returns:
        Returns like the rewards; `out` if given.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> lambda_returns(ones, ones, going, going, np.ones(1), gamma=1.0, lambda_=0.5).ravel()
        array([2.5, 2. ])
    """
    return _estimate(LAMBDA_RETURNS, locals(), starts_with_values=True)


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
    """Return discounted sums of the next n rewards, and the value of the observation after them.

    R_t^n = r_t + gamma_t * ((1 - lambda_t) * v_{t+1} + lambda_t * R_{t+1}^{n-1}) and R_t^0 = v_t;
    with fewer than n steps left the value is last_values. After a step that ended its episode, 0 or
    final_values[t] stands in the place of what gamma_t multiplies. rlax's
    `n_step_bootstrapped_returns`; Sutton and Barto, Reinforcement Learning, 2nd edition, section
    7.1. Time grows with n, up to the number of steps.

    Arguments and errors are those of `discounted_returns`, and these: `values`, like the rewards,
    of the observations before the steps; `n`, a number of steps, at least 1; `lambda_` in [0, 1],
    the weight of more steps against the value after one, or weights that broadcast as gamma does; 1
    for plain sums.

    Returns:
        Returns like the rewards; `out` if given.

    Example:
        >>> going, ones = np.zeros((3, 1), bool), np.ones((3, 1))
        >>> nstep_returns(ones, ones, going, going, np.ones(1), n=2, gamma=0.5).ravel()
        array([1.75, 1.75, 1.5 ])
    """
    window = check_count("n", n, limit=2**63)
    return _estimate(LAMBDA_RETURNS, locals(), starts_with_values=True, window=window)


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
    """Return V-trace targets and advantages, of IMPALA.

    With rho_t = min(clips.rho, ratio_t), c_t = lambda_t * min(clips.c, ratio_t) and
    delta_t = rho_t * (r_t + gamma_t * v_{t+1} - v_t), the target of step t is v_t + E_t with
    E_t = delta_t + gamma_t * c_t * E_{t+1}, and the advantage
    min(clips.pg_rho, ratio_t) * (r_t + gamma_t * (v_{t+1} + lambda_t * E_{t+1}) - v_t).
    E_T is 0 and v_T is last_values. After a step that ended its episode, 0 or final_values[t]
    stands in the place of what gamma_t multiplies, and E_{t+1} is dropped.
    Espeholt et al. 2018, IMPALA: scalable distributed deep-RL with importance weighted
    actor-learner architectures, equation 1 and section 4.2; rlax's
    `vtrace_td_error_and_advantage`, whose errors are `targets - values`.

    Arguments and errors are those of `discounted_returns`, and these: `values`, like the rewards,
    of the observations before the steps; `ratios`, like the rewards, probability of the action
    taken under the policy that is learned over that under the one that acted; `lambda_` in [0, 1],
    a further factor of c, or factors that broadcast as gamma does; `clips`, upper bounds of the
    ratios, not negative.

    Returns:
        (targets, advantages), each like the rewards; the arrays of `out` if given.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> vtrace(ones, ones, 2 * ones, going, going, 1.0, gamma=0.5).targets.ravel()
        array([1.75, 1.5 ])
    """
    arguments = locals()
    if not isinstance(clips, tuple) or len(clips) != len(Clips._fields):
        raise TypeError(f"clips: expected Clips, got {clips!r}")
    for name, clip in zip(Clips._fields, clips, strict=True):
        bound = check_real(f"clips.{name}", clip, np.dtype(np.float64))
        if bound.ndim or not bound >= 0.0:
            raise ValueError(f"clips.{name}={clip}: expected a number that is not negative")
    return _estimate(VTRACE, arguments, result=VTrace, clips=clips)


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
    """Return Retrace(lambda) targets of the action values.

    G_t = r_t + gamma_t * (v_{t+1} + c_{t+1} * (G_{t+1} - q_{t+1})) with
    c_t = lambda_t * min(1, ratio_t); after the last step only the value last_values counts. After a
    step that ended its episode, 0 or final_values[t] stands in the place of what gamma_t
    multiplies. Munos et al. 2016, Safe and efficient off-policy reinforcement learning, equations 3
    and 4; rlax's `general_off_policy_returns_from_q_and_v`.

    Arguments and errors are those of `discounted_returns`, and these, like the rewards: `values` of
    the observations before the steps, the mean of the action values under the policy that is
    evaluated; `action_values` of the actions taken; `ratios`, probability of the action taken under
    the policy that is evaluated over that under the one that acted. `lambda_` in [0, 1] is a factor
    of c, or factors that broadcast as gamma does.

    Returns:
        Targets like the rewards; `out` if given.

    Example:
        >>> going, ones = np.zeros((2, 1), bool), np.ones((2, 1))
        >>> retrace(ones, ones, ones, ones, going, going, 1.0, gamma=0.5).ravel()
        array([1.75, 1.5 ])
    """
    return _estimate(RETRACE, locals())


# ---------------------------------------------------------------- what they share

#: Arguments of the rewards' shape. `Step` has a field for each, whose name lacks the s.
LIKE_REWARDS = ("rewards", "values", "action_values", "ratios", "final_values")
FACTORS = ("gamma", "lambda_")


def _estimate(
    rule: Rule,
    arguments: dict[str, Any],
    *,
    result: Any = None,
    starts_with_values: bool = False,
    clips: tuple[float, ...] = (),
    window: int = 0,
) -> Any:
    """Return the results of a public function, whose arguments are checked here.

    Args:
        rule: of the recurrence.
        arguments: of the public function, by name.
        result: NamedTuple of the results; None for one array.
        starts_with_values: whether y after the last step is `last_values`; else it is 0.
        clips: see `Rule`; () for none.
        window: number of steps that count; 0 for all.
    """
    backend = backend_of("recurrences", arguments["rewards"])
    rewards = check_real("rewards", arguments["rewards"], backend=backend)
    axis = check_axis(arguments["axis"], rewards.shape, "rewards")
    shape, dtype = rewards.shape, rewards.dtype
    flags = {name: check_flags(name, arguments[name], shape, backend) for name in FLAGS}
    last = check_real("last_values", arguments["last_values"], dtype, backend=backend)
    if last.ndim:
        check_shape("last_values", last, shape[:axis] + shape[axis + 1 :])
    names = [name for name in LIKE_REWARDS if name in arguments]
    if arguments["final_values"] is None:
        names.remove("final_values")
        if flags["truncated"].any() and (flags["truncated"] > flags["terminated"]).any():
            text = "needed where an episode was truncated and not terminated"
            raise ValueError(f"final_values: {text}")
    fields = {name: flag.view(np.uint8) for name, flag in flags.items()}
    for name in names:
        array = check_real(name, arguments[name], dtype, backend=backend)
        fields[name.removesuffix("s")] = check_shape(name, array, shape)
    for name in FACTORS:
        if name in arguments:
            fields[name] = check_factor(name, arguments[name], shape, dtype, backend)
    layout, out = layout_of(rewards, axis, backend), arguments["out"]
    targets = [f"out.{field}" for field in result._fields] if result else ["out"]
    # What the caller gave to be overwritten, one for each output: an array, or None.
    buffers = out if result and out is not None else [out] * len(targets)
    outs = _outputs(buffers, targets, [*fields.values(), last], rewards, backend)
    outs = [layout.empty(dtype) if array is None else array for array in outs]
    window = window if window < layout.num_steps else 0  # such a window never ends early
    initial = last if starts_with_values else np.zeros(())
    problem = RecurrenceProblem(UNUSED._replace(**fields), last, initial, clips, window=window)
    compute = run if backend is None else backend.run
    compute(rule, layout, problem, tuple(outs), arguments["num_threads"])
    results = [new if array is None else array for array, new in zip(buffers, outs, strict=True)]
    return result(*results) if result else results[0]


def _outputs(
    out: Any, names: Sequence[str], inputs: list[Array], like: Array, backend: Any
) -> list[Any]:
    """Return the arrays of a public function's `out`, checked; None where there is none.

    They may not overlap `inputs`, and have the shape and dtype of `like`; messages call them
    `names`.
    """
    if not isinstance(out, tuple | list | np.ndarray) or len(out) != len(names):
        raise TypeError(f"out: expected {len(names)} arrays, got {type(out).__name__}")
    outs: list[Any] = []
    for name, array in zip(names, out, strict=True):
        if array is not None:
            array = check_out(name, array, like, inputs, backend=backend)
            inputs = [*inputs, array]
        outs.append(array)
    return outs
