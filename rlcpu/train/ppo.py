"""Proximal policy optimisation, wholly in kernels.

    loss = mean(surrogate) - entropy_coefficient * mean(entropy) + value_coefficient * mean(error)

with the squared error of the value, without a factor 1/2. Advantages are those of generalised
advantage estimation, and values learn the returns that these make with them.

Source: Schulman et al. 2017, "Proximal policy optimization algorithms", equations 7 and 9. Details
that the paper leaves open (normalised advantages, no clipped values, Adam's epsilon) are
stable-baselines3's, so that its published settings mean the same here; values that are clipped, as
an option, are those of the paper's code and CleanRL.

In losses `nn.each` applies a scalar function to each sample; `nn.mean` is over the samples of a
minibatch, and `nn.standardise` brings a column to mean 0 and deviation 1 there.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Literal

import numpy.typing as npt

from rlcpu import nn
from rlcpu.envs.acting.networks import NetworkPolicy
from rlcpu.envs.rollout.collect import Rollout
from rlcpu.scan.recurrences.returns import gae
from rlcpu.train.on_policy import OnPolicy
from rlcpu.train.running.sequences import SampleSequences, sequences_of
from rlcpu.train.settings.arguments import Env, typed_by
from rlcpu.train.settings.base import Schedule, Settings, check_divides, scheduled
from rlcpu.train.settings.presets import Layers
from rlcpu.translation import answered

Array = npt.NDArray[Any]

# ---------------------------------------------------------------- the paper's equations


def surrogate(
    log_prob: float, old_log_prob: float, advantage: float, clip: float
) -> tuple[float, float, float]:
    """Return the clipped surrogate loss of one sample.

    Args:
        log_prob: of the action.
        old_log_prob: the same when it was taken.
        advantage: how much better than expected the action was.
        clip: half-width of the range of ratios that are worth a gradient.

    Returns:
        Loss, divergence from the policy that collected, and 1 where the ratio has left its range.
        The divergence is estimated from one sample, and is never negative: J. Schulman 2020,
        "Approximating KL divergence", the estimator k3.
    """
    log_ratio = log_prob - old_log_prob
    ratio = math.exp(log_ratio)
    bounded = min(max(ratio, 1.0 - clip), 1.0 + clip)
    loss = -min(ratio * advantage, bounded * advantage)
    return loss, ratio - 1.0 - log_ratio, 1.0 if abs(ratio - 1.0) > clip else 0.0


def squared_error(value: float, target: float) -> float:
    """Return the squared distance of a value from its target."""
    return (value - target) ** 2


def clipped_error(value: float, target: float, old_value: float, clip: float) -> float:
    """Return the squared distance from the target, at least that of a value that moved less.

    That one is moved towards `value` from `old_value`, the value when the sample was collected, by
    `clip` at most: beyond, nearer to the target, there is no gradient. It is the loss of the
    paper's code and of CleanRL (`--clip-vloss`), without their factor 1/2.
    """
    moved = old_value + min(max(value - old_value, -clip), clip)
    return max((value - target) ** 2, (moved - target) ** 2)


def distribution(outputs: Any, batch: Any, nets: Any, settings: Any) -> tuple[Any, Any]:
    """Return the log-probability of the actions that were taken, and the policy's entropy."""
    if settings.kind == "continuous":
        return nn.gaussian(outputs, nets.log_std, batch.action)
    allowed = batch.action_mask if settings.is_masked else None
    if settings.kind == "choices":
        return nn.categoricals(outputs, batch.action, settings.choices, allowed)
    return nn.categorical(outputs, batch.action, allowed)


def ppo(batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of PPO, and statistics; see above."""
    return loss_of(nets.policy(batch.observation), batch, nets, settings)


def loss_of(outputs: Any, batch: Any, nets: Any, settings: Any) -> Any:
    """Return the loss of PPO for outputs of the policy's network, and statistics.

    Raises:
        ValueError: there are more or fewer outputs than the policy has.
    """
    if outputs.width != settings.num_outputs:
        raise ValueError(
            f"loss_of: outputs has {outputs.width} numbers of a sample, expected "
            f"{settings.num_outputs}; of a network with several outputs take one by its name"
        )
    if settings.is_shared:
        outputs, value = outputs[:-1], outputs[-1]
    else:
        value = nets.value(batch.observation)
    log_prob, entropy = distribution(outputs, batch, nets, settings)
    advantage = batch.advantage
    if settings.normalize_advantages:
        advantage = nn.standardise(advantage)
    policy, kl, clipped = nn.each(
        surrogate, log_prob, batch.old_log_prob, advantage, settings.clip, results=3
    )
    if settings.clip_range_value is None:
        error = nn.each(squared_error, value, batch.target)
    else:
        limit = settings.clip_range_value
        error = nn.each(clipped_error, value, batch.target, batch.old_value, limit)
    bonus, weight = settings.entropy_coefficient, settings.value_coefficient
    loss = nn.mean(policy - bonus * entropy + weight * error)
    statistics = {"policy": policy, "value": error, "entropy": entropy, "kl": kl}
    return loss, {**statistics, "clip_fraction": clipped}


# ---------------------------------------------------------------- settings


@dataclasses.dataclass(frozen=True)
class PPOConfig(Settings):
    """Hyper-parameters of PPO: those of all `Settings`, and these.

    Their meaning, and the default settings, are stable-baselines3's.

    Attributes:
        num_steps: T, steps of each environment between two updates; an update learns from T * N
            samples.
        num_epochs: passes over these samples per update.
        minibatch_size: samples of one gradient step; the last of an epoch may have fewer.
        clip_range: how far the probability ratio may leave 1 and still be worth a gradient.
        clip_schedule: as `learning_rate_schedule`.
        clip_range_value: how far a value may move from what it was when its sample was collected,
            in the unit of returns as they are learnt, and still have a gradient; None for any
            distance. It is here to repeat results: where it was studied it did not help (Engstrom
            et al. 2020, "Implementation matters in deep RL") or made results worse (Andrychowicz et
            al. 2021, "What matters for on-policy deep actor-critic methods?").
        lambda_: decay of generalised advantage estimation, in [0, 1].
        entropy_coefficient: weight of the policy's entropy (nats) in the loss.
        value_coefficient: weight of the values' mean squared error, without a factor 1/2.
        target_kl: an update ends early at a minibatch whose estimated divergence from the policy
            that collected exceeds 1.5 times this (nats); None never does.
        normalize_advantages: each minibatch's to mean 0 and deviation 1.
        reward_scale: rewards are multiplied by it, at last, before anything is learnt from them.
        value: "separate" network for values, or "shared" with the policy.
        log_std_init: logarithm of the standard deviation of a continuous action at the start.
        scale_actions: the policy is one of numbers that are [-1, 1] where actions are within their
            bounds, so that a deviation of 1 is half of their width, and 0 the middle; for a `Box`
            with finite bounds. Without, numbers are actions as they are, which fits bounds near
            [-1, 1].

    Raises:
        TypeError, ValueError: a value of another type or outside of its range, with its name.
    """

    num_envs: int = 8
    num_steps: int = 256
    num_epochs: int = 10
    minibatch_size: int = 64
    learning_rate: float = 3e-4
    learning_rate_schedule: Schedule = "constant"
    clip_range: float = 0.2
    clip_schedule: Schedule = "constant"
    clip_range_value: float | None = None
    gamma: float = 0.99
    lambda_: float = 0.95
    entropy_coefficient: float = 0.0
    value_coefficient: float = 0.5
    max_gradient_norm: float = 0.5
    target_kl: float | None = None
    normalize_advantages: bool = True
    normalize_observations: bool = False
    clip_observations: float | None = None
    normalize_rewards: bool = False
    reward_scale: float = 1.0
    adam_epsilon: float = 1e-5
    network: str | Layers = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    value: Literal["separate", "shared"] = "separate"
    log_std_init: float = 0.0
    scale_actions: bool = False
    sequence_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divides(self.sequence_length, self.num_steps)


#: Settings by an environment's id or its family, such as "MinAtar/*": tuned on this library, or of
#: the source that is named; `asv_benches/study.py` says what they reach, seed by seed.
# fmt: off
DEFAULTS: dict[str, PPOConfig] = {
    "CartPole-v1": PPOConfig(
        num_envs=64, num_steps=32, num_epochs=4, minibatch_size=256, learning_rate=1.5e-3,
        gamma=0.98, lambda_=0.8,
    ),
    "Acrobot-v1": PPOConfig(
        num_envs=64, num_steps=64, num_epochs=8, minibatch_size=512, learning_rate=1.5e-3,
        learning_rate_schedule="linear", gamma=0.995, lambda_=0.94, normalize_observations=True,
    ),
    "Pendulum-v1": PPOConfig(
        num_envs=16, num_steps=128, minibatch_size=512, learning_rate=1e-3,
        learning_rate_schedule="linear", gamma=0.97, reward_scale=0.1,
    ),
    "MountainCar-v0": PPOConfig(
        num_envs=32, num_steps=128, num_epochs=8, minibatch_size=1024, learning_rate=2e-3,
        lambda_=0.98, normalize_observations=True,
    ),
    # Wide noise at first, and hardly any discounting: the reward comes only at the end.
    "MountainCarContinuous-v0": PPOConfig(
        num_envs=64, num_steps=128, num_epochs=4, minibatch_size=1024, learning_rate=1e-3,
        gamma=0.9999, lambda_=0.99, log_std_init=1.0, reward_scale=0.1,
        normalize_observations=True,
    ),
}
LANDER = PPOConfig(
    num_envs=64, num_steps=512, num_epochs=8, minibatch_size=512, learning_rate=5e-4,
    learning_rate_schedule="linear", gamma=0.999, lambda_=0.98, entropy_coefficient=0.01,
    reward_scale=0.02, normalize_observations=True,
)
DEFAULTS["LunarLander-v3"] = DEFAULTS["LunarLanderContinuous-v3"] = LANDER

#: gamma and lambda of MuJoCo's tasks, as rl-baselines3-zoo found them; Pusher's are the usual ones.
MUJOCO_HORIZONS: dict[str, tuple[float, float]] = {
    "Ant-v5": (0.99, 0.95), "HalfCheetah-v5": (0.98, 0.92), "Hopper-v5": (0.999, 0.99),
    "Humanoid-v5": (0.95, 0.9), "HumanoidStandup-v5": (0.99, 0.9),
    "InvertedDoublePendulum-v5": (0.98, 0.8), "InvertedPendulum-v5": (0.999, 0.9),
    "Pusher-v5": (0.99, 0.95), "Reacher-v5": (0.9, 1.0), "Swimmer-v5": (0.9999, 0.95),
    "Walker2d-v5": (0.99, 0.95),
}
#: All else of MuJoCo's tasks, tuned on HalfCheetah-v5.
MUJOCO = PPOConfig(
    num_envs=16, num_steps=256, minibatch_size=256, learning_rate_schedule="linear",
    log_std_init=-1.0, reward_scale=0.1, normalize_observations=True,
)
#: rl-baselines3-zoo's settings of CartPole-v1, for comparisons; learn 100,000 steps.
ZOO_CARTPOLE = PPOConfig(
    num_envs=8, num_steps=32, num_epochs=20, minibatch_size=256, learning_rate=1e-3,
    learning_rate_schedule="linear", clip_range=0.2, clip_schedule="linear", gamma=0.98,
    lambda_=0.8,
)
# Angles differ by hundredths from step to step: speeds are learnt from observations that are
# normalised, over sequences of 128 steps. With the zoo's gamma of 0.98, lambda of 0.8 and sequences
# of 32, one seed of three stays below 200.
DEFAULTS["CartPoleNoVel-v1"] = PPOConfig(
    network="mingru", num_envs=8, num_steps=128, minibatch_size=256, num_epochs=10,
    learning_rate=1e-3, learning_rate_schedule="linear", clip_schedule="linear",
    normalize_observations=True,
)
# Without speeds in sight, noise has to find the goal for longer: it is so wide that nearly all
# forces are full ones. With the noise and the rate of the other task three seeds of ten fail.
DEFAULTS["MountainCarContinuousNoVel-v0"] = DEFAULTS["MountainCarContinuous-v0"].replace(
    {"network": "mingru", "log_std_init": 2.0, "learning_rate": 3e-3}
)
# gamma and lambda are the zoo's, and so are many small steps. A layer of "mingru" adds up what it
# sees without regard to what it remembers, and its outputs are sums of that: torques are products
# of angles and speeds, and it stays below -700 where "gru" and "lstm" reach -220.
DEFAULTS["PendulumNoVel-v1"] = PPOConfig(
    network="gru", num_envs=8, num_steps=256, sequence_length=32, minibatch_size=128,
    learning_rate=1e-3, learning_rate_schedule="linear", gamma=0.9, normalize_observations=True,
    normalize_rewards=True,
)
#: For environments that nobody has tuned.
GENERAL = PPOConfig(
    num_envs=16, num_steps=128, minibatch_size=128, learning_rate=1e-3, normalize_observations=True,
    normalize_rewards=True, activation="relu", scale_actions=True,
)
#: The same where an observation is a choice, planes of cells or an image. Divided by its deviation,
#: the input of a rarely seen cell would be so large that every update of others disturbs it.
#: Rewards are rare in such tasks: without the entropy a policy settles on one action before it has
#: seen any.
GENERAL_SYMBOLS = GENERAL.replace({"normalize_observations": False, "entropy_coefficient": 0.01})
#: What tuned settings of choices and cells have in common.
SYMBOLS = PPOConfig(num_envs=64, num_steps=128, minibatch_size=512, entropy_coefficient=0.01)
# Episodes have no limit: without the entropy a policy that has fallen a few times walks into walls
# for good. As its steps stay random, the safe way round is the better one (Sutton & Barto, 6.6).
# Small steps at the end: after a large one the best actions of two cells may point at each other.
DEFAULTS["CliffWalking-v1"] = SYMBOLS.replace(
    {
        "entropy_coefficient": 0.05, "reward_scale": 0.1, "learning_rate_schedule": "linear",
    }
)
#: Of tables with many states or much chance, and of an empty room.
TABLE = SYMBOLS.replace(
    {
        "num_epochs": 4, "learning_rate": 1e-3, "learning_rate_schedule": "linear",
    }
)
DEFAULTS["Taxi-v4"] = TABLE.replace({"reward_scale": 0.1})
# Until the goal is found for the first time, advantages are errors of values that nothing has been
# learnt from. Brought to a deviation of 1, they are larger than the bonus for entropy, and some
# seeds stop exploring before they have found it.
UNREWARDED = TABLE.replace({"normalize_advantages": False})
DEFAULTS["MiniGrid-Empty-8x8-v0"] = UNREWARDED
DEFAULTS["Blackjack-v1"] = TABLE.replace({"entropy_coefficient": 0.002})
# The best policy under gamma = 0.99 arrives less often than that under 0.995: it is in a hurry.
DEFAULTS["FrozenLake8x8-v1"] = UNREWARDED.replace({"gamma": 0.995, "entropy_coefficient": 0.002})
# Those of PQN's authors (purejaxql's `ppo_minatar.yaml`), but for their rate of 5e-3 and entropy of
# 1e-4, whose values they leave to a sweep.
DEFAULTS["MinAtar/*"] = SYMBOLS.replace(
    {
        "num_epochs": 4, "minibatch_size": 1024, "learning_rate": 1e-3,
        "learning_rate_schedule": "linear", "network": "conv", "hidden": (128,),
        "activation": "relu",
    }
)
# The horizon is that of Craftax's authors (Craftax_Baselines, `ppo.py`). One network for policy and
# value, and half of their epochs, learn less of a step and more of a second: after 17 seconds of a
# CPU the return is 5.3, with their separate networks and epochs 4.0.
DEFAULTS["Craftax-Classic-Symbolic-v1"] = SYMBOLS.replace(
    {
        "num_epochs": 2, "lambda_": 0.8, "learning_rate": 1e-3, "learning_rate_schedule": "linear",
        "hidden": (128, 128), "value": "shared",
    }
)
#: Of tasks that ask for what was seen many steps ago. A layer of "mingru" is three times as fast,
#: but keeps no order: on POPGym/RepeatPreviousEasy-v0 it stays below 0, where "gru" reaches 1.
MEMORY = PPOConfig(
    num_envs=64, num_steps=128, num_epochs=4, minibatch_size=1024, learning_rate=1e-3,
    learning_rate_schedule="linear", entropy_coefficient=0.01, network="gru",
)
DEFAULTS["POPGym/*"] = MEMORY
# An answer is rewarded at once, and changes nothing later: what follows it is noise. The return is
# -0.50 by chance; after a million steps it is -0.48 with gamma at 0.99, and -0.36 with 0.5.
for level in ("Easy", "Medium", "Hard"):
    DEFAULTS[f"POPGym/Autoencode{level}-v0"] = MEMORY.replace({"gamma": 0.5})
# Over a corridor of 50 cells derivatives fade in a "gru": one seed of two stayed at 1.7, after a
# million steps, where "mingru" reached 4 with five of five.
DEFAULTS["TMaze-v0"] = MEMORY.replace({"network": "mingru", "learning_rate_schedule": "constant"})
# Without memory the return is 0.63 and 0.58 with two seeds, after 80 seconds of a CPU, and 0.55
# with what tuned settings of choices and cells have in common; with a "gru" of 128 units it was
# 0.50 after a million steps.
DEFAULTS["MiniGrid-FourRooms-v0"] = TABLE.replace({"minibatch_size": 1024, "hidden": (128, 128)})
# The key, the door and the goal are far apart, and only the goal is rewarded.
DEFAULTS["MiniGrid-DoorKey-8x8-v0"] = SYMBOLS.replace(
    {
        "num_steps": 256, "num_epochs": 4, "minibatch_size": 1024, "learning_rate": 1e-3,
        "gamma": 0.995, "entropy_coefficient": 0.03,
    }
)
# fmt: on
DEFAULTS |= {
    name: MUJOCO.replace({"gamma": gamma, "lambda_": lambda_})
    for name, (gamma, lambda_) in MUJOCO_HORIZONS.items()
}


# ---------------------------------------------------------------- the agent


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PPOArguments(PPOConfig):
    """Keyword arguments of `PPO`, for type checkers."""

    seed: int = 0
    num_threads: int | None = None
    dtype: str = "float32"
    policy: NetworkPolicy | None = None
    config: Settings | None = None


class PPO(OnPolicy):
    """An agent that learns by proximal policy optimisation.

    Every field of `PPOConfig`, such as `learning_rate`, is a keyword argument too.

    Args:
        env: id of a registered environment, a `Dynamics`, or a `VectorEnv` (which the agent
            resets).
        seed: the whole run is a function of it, whatever the number of threads.
        num_threads: threads at most; None takes all of numba's.
        dtype: of the simulation; the networks compute in float32.
        policy: a `NetworkPolicy` with a value, such as another agent's, to go on from; None makes a
            new one.
        config: all settings at once; None takes the environment's default ones.
        **settings: fields of the config that are to be different; None changes nothing.

    Attributes:
        env, policy, config, seed: see above.
        steps: environment steps so far, over all calls of `learn`.
        history: of the last call of `learn`, or of the present one.
        ledger: `rlcpu.distributed.Ledger` of the last call with `num_collectors`; else None.

    Raises:
        TypeError, ValueError: a bad argument, with its name and value.

    Example:
        >>> from rlcpu.train import PPO
        >>> agent = PPO("CartPole-v1", seed=0)
        >>> agent.learn(2048).steps
        2048
    """

    algorithm = "PPO"
    reported: ClassVar[tuple[str, ...]] = ("policy", "value", "entropy", "kl", "clip_fraction")
    num_kernels = 32
    Config = PPOConfig
    defaults = DEFAULTS
    general: ClassVar[dict[str, PPOConfig]] = {"numbers": GENERAL, "symbols": GENERAL_SYMBOLS}
    config: PPOConfig

    @typed_by(_PPOArguments)
    @answered
    def __init__(
        self,
        env: Env,
        *,
        seed: int = 0,
        num_threads: int | None = None,
        dtype: str = "float32",
        policy: NetworkPolicy | None = None,
        config: Settings | None = None,
        **settings: Any,
    ) -> None:
        self._begin_on_policy(
            env, policy, config, settings, seed=seed, num_threads=num_threads, dtype=dtype
        )

    facts: ClassVar[dict[str, str]] = {
        **OnPolicy.facts,
        "is_shared": "whether the value is the last output of the policy's network",
        "num_outputs": "of the policy's network, with such a value",
        "clip": "`clip_range` by its schedule, in each update",
    }

    def updates(self) -> list[nn.Update]:
        """Return the losses that an update minimises, in order."""
        return [nn.Update(ppo)]

    def settings(self) -> dict[str, Any]:
        """Return settings of the losses; see `Algorithm.settings`."""
        return {
            **super().settings(),
            "is_shared": self.policy.value == "shared",
            "num_outputs": self.policy.num_outputs,
            "clip": 0.2,  # each update has its own
        }

    def _column_sizes(self) -> dict[str, int]:
        policy, dynamics = self.policy, self.env.dynamics
        num_actions = policy.num_outputs - (policy.value == "shared")
        sizes = dict.fromkeys(("old_log_prob", "advantage", "target"), 1)
        sizes["observation"] = policy.num_inputs
        is_continuous = policy.log_std.size > 0
        sizes["action"] = len(dynamics.choices) or (num_actions if is_continuous else 1)
        if dynamics.num_masked > 0:
            sizes["action_mask"] = num_actions
        if self.config.clip_range_value is not None:
            sizes["old_value"] = 1
        return sizes

    def _learn_from(self, rollout: Rollout, remaining: float) -> dict[str, float]:
        config, size, ones = self.config, rollout.rewards.size, rollout.ones
        further = self.prepare_columns(rollout)
        estimates = gae(
            self._rewards_of(rollout),
            rollout.values,
            rollout.terminated,
            rollout.truncated,
            rollout.last_values,
            gamma=config.gamma,
            lambda_=config.lambda_,
            final_values=rollout.final_values,
        )
        columns = {  # time-major
            **further,
            "observation": rollout.inputs.reshape(size, -1) if ones is None else ones,
            "action": rollout.actions.reshape(size, *rollout.actions.shape[2:]),
            "old_log_prob": rollout.log_probs.ravel(),
            "advantage": estimates.advantages.ravel(),
            "target": estimates.returns.ravel(),
        }
        if config.clip_range_value is not None:
            columns["old_value"] = rollout.values.ravel()
        if rollout.action_masks is not None:
            columns["action_mask"] = rollout.action_masks.reshape(size, -1)
        sequences = sequences_of(rollout, self.policy, config.sequence_length)
        return self._improve(columns, remaining, sequences)

    def _improve(
        self, columns: dict[str, Any], remaining: float, sequences: SampleSequences | None = None
    ) -> dict[str, float]:
        """Learn from the columns of S samples; see `_update` and `_learn_in_epochs`."""
        config = self.config
        if self.policy.scale_actions:  # learnt are the numbers that were drawn
            head = self.policy.head
            columns = {**columns, "action": (columns["action"] - head.center) / head.half}
        clip = scheduled(config.clip_range, config.clip_schedule, remaining)
        return self._learn_in_epochs(
            columns,
            sequences,
            learning_rate=scheduled(config.learning_rate, config.learning_rate_schedule, remaining),
            settings={**(self._changed_settings() or {}), "clip": clip},
            stop_above=None if config.target_kl is None else ("kl", 1.5 * config.target_kl),
        )
