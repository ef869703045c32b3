"""What hampers learning in a run, with the settings that answer it: `Agent.diagnose`.

Each examination is a function of an agent and of `Evidence`: steps that its policy plays in other
environments, exploring as it does at present, and what its replay holds. The history of losses, of
which files hold nothing, is not read: an agent and its file are told the same.

An examination returns None where nothing hampers, and where it cannot tell. Limits stand beside
each; those of healthy runs of the catalogue are well within them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.scales import (
    CLIPPED,
    LEAST,
    LEAST_ROWS,
    MOST,
    find_misfits,
    find_unfit_bounds,
    names_of_numbers,
)
from rlcpu.envs.rollout.results import Rollout
from rlcpu.nn.network.scaling import Scaling
from rlcpu.scan.recurrences.returns import discounted_returns
from rlcpu.train.running.actors import forbid
from rlcpu.train.running.advice import SCALING, changes_of_inputs, is_tuned

Array = npt.NDArray[Any]

# ---------------------------------------------------------------- what is reported


class Hindrance(NamedTuple):
    """One thing that hampers learning."""

    name: str  #: of what was examined, such as "inputs"
    measured: float
    limit: float  #: on whose other side `measured` is
    message: str  #: one sentence
    #: Settings of a new agent that answer it, `PPO(env, **settings)`; none where it is no setting.
    settings: dict[str, Any]
    advice: str = ""  #: what else to try

    @property
    def answer(self) -> str:
        """Return what to try, in words."""
        changes = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return " or ".join(text for text in (changes, self.advice) if text)


@dataclasses.dataclass(repr=False)
class Diagnosis:
    """Lists what hampers learning in a run.

    Attributes:
        agent: which it is, and how long it has learnt.
        hindrances: a list of `Hindrance`, causes in front of what may follow from them.
    """

    agent: str
    hindrances: list[Hindrance]

    @property
    def ok(self) -> bool:
        """Tell whether nothing was found."""
        return not self.hindrances

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that answer all of it; of two values of one, the first."""
        merged: dict[str, Any] = {}
        for each in reversed(self.hindrances):
            merged |= each.settings
        return merged

    @property
    def summary(self) -> str:
        """Return the agent, and how much hampers it, in a line."""
        count = len(self.hindrances)
        verdict = f"{count} hindrance{'s' * (count > 1)}" if count else "nothing found"
        return f"{self.agent}: {verdict}"

    def __repr__(self) -> str:
        lines = [self.summary]
        for each in self.hindrances:
            lines += [f"{each.name:<8} {each.message}", f"{'':<8} try {each.answer}"]
        return "\n".join(lines)


class Evidence(NamedTuple):
    """Holds what is examined: T steps of N environments, n observations and transitions."""

    rollout: Rollout  # by the agent's policy, in other environments than those that it learns in
    outputs: Array  # (T, N, any) of the policy's network
    rewards: Array  # (T, N) of the rollout as they are learnt, float32
    values: Array | None  # (T, N) of what was done, by the agent; None where it tells none
    inputs: Array | None  # (n, observation_size) of the replay, before scaling; None without one
    errors: Array | None = None  # (n,) sizes of temporal differences, where a Huber loss is learnt

    def flat(self, array: Array) -> Array:
        """Return an array (T, N, ...) as rows (T * N, any)."""
        return array.reshape(self.rewards.size, -1)


def diagnose(agent: Any, evidence: Evidence) -> Diagnosis:
    """Return what hampers an agent's learning, by all examinations."""
    hindrances, names = [], agent.config.names()
    for examine in EXAMINATIONS:
        if (each := examine(agent, evidence)) is not None:
            # A user's config may lack what ours have.
            settings = {name: value for name, value in each.settings.items() if name in names}
            hindrances.append(each._replace(settings=settings))
    title = f"{agent.algorithm} on {agent.env.dynamics.id}, {agent.steps:,} steps"
    return Diagnosis(title, hindrances)


# ---------------------------------------------------------------- scales


def examine_inputs(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look at the scale of what networks get of observations, played and replayed ones."""
    names = names_of_numbers(agent.env.dynamics.observation_space)
    if not names or is_tuned(agent, SCALING):
        return None
    inputs, places = evidence.flat(evidence.rollout.inputs), list(names)
    if evidence.inputs is not None:
        inputs = np.concatenate([inputs, evidence.inputs])
    if len(inputs) < LEAST_ROWS:
        return None
    mean, scale, most = agent.policy.scaling
    scaling = Scaling(mean[places], scale[places], most)
    misfits = find_misfits(inputs[:, places], scaling, list(names.values()))
    if not misfits:
        return None
    first = misfits[0]
    changes = changes_of_inputs(agent.config, {each.kind for each in misfits})
    return Hindrance(
        "inputs",
        measured=first.measured,
        limit={"clipped": CLIPPED, "large": MOST, "small": LEAST}[first.kind],
        message="as the networks get it, " + "; ".join(each.message for each in misfits),
        settings=changes[0] if changes else {},
        advice="other units in the environment",
    )


#: Share of drawn numbers beyond the bounds of actions, and the least share of the range between
#: bounds that nine of ten drawn numbers cover.
BEYOND, COVERED = 0.5, 0.1


def examine_actions(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look whether real numbers that are drawn explore what lies between the bounds of actions."""
    head = agent.policy.head
    if head.choices:
        return None
    if head.is_squashed:
        return _examine_squashed(agent, evidence)
    space = agent.env.dynamics.action_space
    k = None if agent.policy.scale_actions else find_unfit_bounds(space)
    if k is None or is_tuned(agent, ("scale_actions", "log_std_init")):
        return None
    low, high, drawn = float(space.low[k]), float(space.high[k]), evidence.rollout.actions[..., k]
    bounds, settings = f"action[{k}], which goes from {low:g} to {high:g}", {"scale_actions": True}
    beyond = float(((drawn < low) | (drawn > high)).mean())
    if beyond > BEYOND:
        message = f"{beyond:.0%} of what is drawn is beyond the bounds of {bounds}"
        return Hindrance("actions", beyond, BEYOND, message, settings)
    covered = float(np.ptp(np.quantile(np.clip(drawn, low, high), (0.05, 0.95)))) / (high - low)
    if covered < COVERED:
        message = f"nine of ten draws cover {covered:.1%} of {bounds}"
        return Hindrance("actions", covered, COVERED, message, settings)
    return None


#: Size of a squashed number at which tanh lets 0.002 of a gradient through, and share of the steps
#: in which all numbers of an action have it, each at the same end. A policy that takes either full
#: action, by what it observes, may be the best.
FULL, AT_ONE_END = 0.999, 0.95


def _examine_squashed(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look whether squashed actions are always at the same end of their bounds."""
    is_free = agent.policy.half > 0
    means = evidence.flat(evidence.outputs)[:, : is_free.size][:, is_free]
    if not means.size:
        return None
    numbers = np.tanh(means)
    at_ends = np.maximum((numbers >= FULL).mean(axis=0), (numbers <= -FULL).mean(axis=0))
    share, config = float(at_ends.min()), agent.config
    if share <= AT_ONE_END:
        return None
    settings: dict[str, Any] = {}
    if config.replay != "hindsight":  # which they harm, see `rlcpu.train.off_policy.IMPLIED`
        names = ("normalize_observations", "normalize_rewards")
        settings = {name: True for name in names if not getattr(config, name)}
    settings = settings or {"learning_rate": config.learning_rate / 10}
    message = f"{share:.0%} of actions are at one end of their bounds, whatever is observed"
    return Hindrance("actions", share, AT_ONE_END, message, settings)


_SCALING_OF_REWARDS = ("normalize_rewards", "reward_scale")
#: Root of the mean square of discounted returns, from above which values take long to get there,
#: and down to which the differences between initial networks are larger.
LARGEST_RETURN, SMALLEST_RETURN = 300.0, 0.02
#: Weight of the policy's entropy, in deviations of a reward.
LARGEST_WEIGHT = 10.0


def examine_rewards(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look at the size of rewards, against what values begin with and against the entropy."""
    if agent.config.normalize_rewards or is_tuned(agent, _SCALING_OF_REWARDS):
        return None
    ends = evidence.rollout.terminated | evidence.rollout.truncated
    never, gamma = np.zeros_like(ends), agent.config.gamma
    returns = discounted_returns(evidence.rewards, ends, never, np.float32(0), gamma=gamma)
    size = float(np.sqrt(np.mean(returns.astype(np.float64) ** 2)))
    deviation, weight = float(evidence.rewards.std()), getattr(agent, "temperature", 0.0)
    settings = {"normalize_rewards": True}
    if size > LARGEST_RETURN:
        message = f"discounted returns are about {size:.2g}, which values are long in reaching"
        return Hindrance("rewards", size, LARGEST_RETURN, message, settings)
    if 0.0 < LARGEST_WEIGHT * deviation < weight:
        ratio = weight / deviation
        message = (
            f"rewards vanish beside the entropy, whose weight is {ratio:.2g} deviations of one"
        )
        return Hindrance("rewards", ratio, LARGEST_WEIGHT, message, settings)
    if 0.0 < size < SMALLEST_RETURN and np.abs(returns).max() < 10 * SMALLEST_RETURN:
        message = f"discounted returns are about {size:.2g}, less than what networks begin with"
        return Hindrance("rewards", size, SMALLEST_RETURN, message, settings)
    return None


#: Share of temporal differences whose slope the Huber loss bounds.
BOUNDED = 0.5


def examine_errors(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look how many temporal differences the Huber loss bounds: a rare large one counts no more."""
    if evidence.errors is None or is_tuned(agent, _SCALING_OF_REWARDS):
        return None
    share, median = float((evidence.errors > 1.0).mean()), float(np.median(evidence.errors))
    if share <= BOUNDED:
        return None
    settings: dict[str, Any] = {"normalize_rewards": True}
    if agent.config.normalize_rewards:
        scale = 10.0 ** -math.ceil(math.log10(median))
        settings = {"reward_scale": agent.config.reward_scale * scale}
    message = f"the Huber loss bounds {share:.0%} of the errors of values, about {median:.2g}"
    return Hindrance("errors", share, BOUNDED, message, settings)


# ---------------------------------------------------------------- episodes


def examine_episodes(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look whether episodes end: without ends there are no returns, and no new beginnings."""
    rollout, steps = evidence.rollout, len(evidence.rewards)
    if agent.env.max_episode_steps is not None or (rollout.terminated | rollout.truncated).any():
        return None
    message = (
        f"none of {rollout.form.num_envs} episodes ended in {steps} steps, and none has a limit"
    )
    advice = "rlcpu.make_vec(..., max_episode_steps=200), or another number"
    return Hindrance("episodes", 0.0, 1.0, message, {}, advice)  # of one episode that ended


#: Episodes that a replay holds, and transitions that are enough, however long episodes are.
FEWEST_EPISODES, ENOUGH = 10.0, 10_000


def examine_replay(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look how many episodes a full replay holds."""
    buffer = getattr(agent, "buffer", None)
    if buffer is None or len(buffer) >= min(agent.steps, ENOUGH):  # nothing was forgotten yet
        return None
    lengths = evidence.rollout.episode_lengths
    episodes = len(buffer) / float(lengths.mean() if lengths.size else len(evidence.rewards))
    if episodes >= FEWEST_EPISODES:
        return None
    held = f"{len(buffer):,} transitions, {episodes:.2g} episodes"
    message = f"the replay forgets too soon: it is full, with {held}"
    return Hindrance("replay", episodes, FEWEST_EPISODES, message, {"capacity": 10 * ENOUGH})


# ---------------------------------------------------------------- policies and values

#: Share of the largest entropy that is left, share of steps that take one action, and the least
#: deviation of drawn numbers, in half widths of their bounds.
LEAST_ENTROPY, ONE_ACTION, LEAST_DEVIATION = 0.02, 0.99, 0.01


def examine_entropy(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look whether a policy of PPO still explores.

    A low entropy alone is no fault: who has learnt what to do does it. One action whatever is
    observed is, unless it is the best of all.
    """
    policy, config = agent.policy, agent.config
    if not hasattr(policy, "log_std"):
        return None
    bonus = getattr(config, "entropy_coefficient", 0.0)
    if policy.log_std.size:
        deviation = _relative_deviation(policy)
        if deviation >= LEAST_DEVIATION:
            return None
        message = f"actions are drawn with a deviation of {deviation:.1g} of half their range"
        settings: dict[str, Any] = {"entropy_coefficient": max(0.01, 3 * bonus)}
        if getattr(config, "log_std_init", 0.0) < 0.0:
            settings = {"log_std_init": 0.0}
        return Hindrance("entropy", deviation, LEAST_DEVIATION, message, settings)
    entropy, share = _choices_of(policy.head.choices, evidence)
    if entropy >= LEAST_ENTROPY or share < ONE_ACTION:
        return None
    message = (
        f"the entropy is {entropy:.1%} of its maximum, and {share:.0%} of the steps take the same "
        "action, whatever is observed"
    )
    # Normalised advantages are larger than any bonus, also where they are errors of values alone.
    settings = {"entropy_coefficient": 0.01, "normalize_advantages": False}
    if not getattr(config, "normalize_advantages", False):
        settings = {"entropy_coefficient": max(0.01, 3 * bonus)}
    return Hindrance("entropy", entropy, LEAST_ENTROPY, message, settings)


def _relative_deviation(policy: Any) -> float:
    """Return the largest deviation of an action's numbers, in half widths of their bounds.

    Infinity where none has bounds.
    """
    head = policy.head
    low, high = head.low.astype(np.float64), head.high.astype(np.float64)
    is_bounded = (high > low) & (high - low < 1e30)  # infinite bounds are the largest float32
    if not is_bounded.any():
        return math.inf
    deviations = np.exp(policy.log_std.astype(np.float64)) * head.half
    return float((deviations[is_bounded] / ((high - low)[is_bounded] / 2)).max())


def _choices_of(choices: tuple[int, ...], evidence: Evidence) -> tuple[float, float]:
    """Return the mean entropy of choices, as a share of the largest, and how often one is taken.

    Of several choices that of the largest entropy counts; steps that allow one action do not.
    """
    masks, begin, entropies = evidence.rollout.action_masks, 0, [(1.0, 0.0)]
    masks = masks if masks is None else evidence.flat(masks)
    logits, actions = evidence.flat(evidence.outputs), evidence.flat(evidence.rollout.actions)
    for j, count in enumerate(choices):
        part = slice(begin, begin + count)
        allowed_part = masks if masks is None else masks[:, part]
        allowed = forbid(logits[:, part], allowed_part).astype(np.float64)
        begin += count
        num_allowed = np.isfinite(allowed).sum(axis=1)
        is_free = num_allowed > 1
        if not is_free.any():
            continue
        odds = np.exp(allowed - allowed.max(axis=1, keepdims=True))[is_free]
        chances = odds / odds.sum(axis=1, keepdims=True)
        entropy = -(chances * np.log(np.maximum(chances, 1e-300))).sum(axis=1)
        taken = np.bincount(actions[is_free, j].astype(np.int64)).max() / is_free.sum()
        entropies.append((float((entropy / np.log(num_allowed[is_free])).mean()), float(taken)))
    return max(entropies[1:] or entropies)


#: Part of the explainable differences of returns that values explain, the least explainable part
#: of all, steps of each half of the environments, and inputs of a polynomial at most.
EXPLAINED, EXPLAINABLE, LEAST_STEPS, MOST_INPUTS = 1 / 3, 0.3, 200, 100


def examine_values(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look how much of what returns differ by is explained by the agent's values.

    The yardstick is a polynomial of the observations, of second degree and without products, fitted
    to one half of the environments: the returns of the other half may differ by chance alone.
    """
    rollout, config = evidence.rollout, agent.config
    if evidence.values is None or rollout.inputs.shape[-1] > MOST_INPUTS:
        return None
    returns, is_whole = _near_returns(evidence, config.gamma)
    inputs = agent.policy.scaling.apply(rollout.inputs[: len(returns)])
    values = evidence.values[: len(returns)]
    is_first = np.arange(returns.shape[1]) < returns.shape[1] // 2
    fitted_to, judged_by = is_whole & is_first, is_whole & ~is_first
    if min(fitted_to.sum(), judged_by.sum()) < LEAST_STEPS:
        return None
    fitted = _fit(inputs[fitted_to], returns[fitted_to], inputs[judged_by])
    explainable = _explained(fitted, returns[judged_by])
    explained = _explained(values[judged_by], returns[judged_by])
    if explainable < EXPLAINABLE or explained >= EXPLAINED * explainable:
        return None
    message = (
        f"values explain {explained:.0%} of what returns differ by, a polynomial of the "
        f"observations {explainable:.0%}"
    )
    usual, weight = 0.5, getattr(config, "value_coefficient", 0.5)
    settings = {"value_coefficient": usual} if weight < usual else {}
    advice = "more steps or another learning_rate"
    return Hindrance("values", explained, EXPLAINED * explainable, message, settings, advice)


def _near_returns(evidence: Evidence, gamma: float) -> tuple[Array, Array]:
    """Return discounted rewards (t, N) of as many steps as count, and where no limit cut them.

    These are 1 / (1 - gamma) steps, and a quarter of all that were played at most.
    """
    rollout, steps = evidence.rollout, len(evidence.rewards)
    horizon = max(1, min(round(1 / max(1 - gamma, 1e-9)), steps // 4))
    returns = np.zeros((steps - horizon, rollout.form.num_envs))
    goes_on, is_whole = np.ones_like(returns, np.bool_), np.ones_like(returns, np.bool_)
    for k in range(horizon):
        later = slice(k, steps - horizon + k)
        terminated, truncated = rollout.terminated[later], rollout.truncated[later]
        returns += gamma**k * goes_on * evidence.rewards[later]
        is_whole &= ~(goes_on & truncated & ~terminated)
        goes_on &= ~(terminated | truncated)
    return returns, is_whole


def _fit(inputs: Array, targets: Array, others: Array) -> Array:
    """Return what a polynomial, fitted to inputs and targets, makes of other inputs."""
    mean, deviation = inputs.mean(axis=0), inputs.std(axis=0) + 1e-12

    def terms(rows: Array) -> Array:
        near = np.clip((rows - mean) / deviation, -5.0, 5.0).astype(np.float64)
        return np.concatenate([np.ones((len(near), 1)), near, near**2], axis=1)

    matrix = terms(inputs)
    ridge = 1e-6 * len(matrix) * np.eye(matrix.shape[1])  # a constant input makes it singular
    fitted: Array = terms(others) @ np.linalg.solve(matrix.T @ matrix + ridge, matrix.T @ targets)
    return fitted


def _explained(values: Array, returns: Array) -> float:
    """Return the part of the variance of returns that a rising line of values explains at best."""
    values = values.astype(np.float64)
    if values.std() <= 1e-9 * (1.0 + np.abs(values).max()) or returns.std() == 0.0:
        return 0.0
    return max(float(np.corrcoef(values, returns)[0, 1]), 0.0) ** 2


#: Share of the units of a layer that are the same for all observations.
DEAD_UNITS = 0.8


def examine_units(agent: Any, evidence: Evidence) -> Hindrance | None:
    """Look for units of a multilayer perceptron that do not depend on the observation."""
    network = agent.policy.networks()["policy"]
    if not network.sizes.size or network.layer_norm:
        return None
    units = agent.policy.scaling.apply(evidence.flat(evidence.rollout.inputs))
    arrays, shares = network.plan.flat_views(network.parameters), []
    for weights, biases in zip(arrays[:-2:2], arrays[1:-2:2], strict=True):
        sums = units @ weights + biases
        units = np.tanh(sums) if network.activation == "tanh" else np.maximum(sums, 0.0)
        shares.append(float((np.ptp(units, axis=0) < 1e-3).mean()))
    share = max(shares, default=0.0)
    if share <= DEAD_UNITS:
        return None
    layer = f"hidden layer {shares.index(share) + 1}"
    message = f"{share:.0%} of the units of {layer} are the same, whatever is observed"
    settings = {"learning_rate": agent.config.learning_rate / 10}
    return Hindrance("units", share, DEAD_UNITS, message, settings)


#: In the order in which a diagnosis has what they find.
EXAMINATIONS = (
    examine_inputs,
    examine_actions,
    examine_rewards,
    examine_errors,
    examine_episodes,
    examine_replay,
    examine_entropy,
    examine_units,
    examine_values,
)
