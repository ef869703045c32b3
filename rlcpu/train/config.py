"""Hyper-parameters of PPO and of agents with replay, and checks of the arguments of all agents."""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec

import gymnasium
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.envs.registration import find
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.train.presets import Layers, fitting_network
from rlcpu.train.settings import Schedule, Settings, check_divides
from rlcpu.translation import describe_unknown

_Arguments = ParamSpec("_Arguments")
Env = str | Dynamics | VectorEnv


@dataclasses.dataclass(frozen=True)
class PPOConfig(Settings):
    """Hyper-parameters of PPO; their meaning, and the default settings, are stable-baselines3's.

    Attributes:
        num_envs: N, environments that are stepped together.
        num_steps: T, steps of each environment between two updates; an update learns from T * N
            samples.
        num_epochs: passes over these samples per update.
        minibatch_size: samples of one gradient step; the last of an epoch may have fewer.
        learning_rate: of Adam.
        learning_rate_schedule: "constant"; "linear" or "cosine" down to 0 at the end of `learn`; or
            a function of what remains of it, 1 to 0, whose value multiplies. No file holds a
            function: a loaded agent says so, and goes on with "constant".
        clip_range: how far the probability ratio may leave 1 and still be worth a gradient.
        clip_schedule: as `learning_rate_schedule`.
        gamma: discount per step, in [0, 1].
        lambda_: decay of generalised advantage estimation, in [0, 1].
        entropy_coefficient: weight of the policy's entropy (nats) in the loss.
        value_coefficient: weight of the values' mean squared error, without a factor 1/2.
        max_gradient_norm: norm of the whole gradient above which it is scaled down to it; `inf`
            never does.
        target_kl: an update ends early at a minibatch whose estimated divergence from the policy
            that collected exceeds 1.5 times this (nats); None never does.
        normalize_advantages: each minibatch's to mean 0 and deviation 1.
        normalize_observations: by the mean and deviation of all observations so far, as they were
            when the rollout began; the policy keeps them.
        clip_observations: networks get larger numbers, scaled and normalised, as +- this; `inf`
            clips none. None is 10 with `normalize_observations`; without, it leaves the policy's
            limit, of which a new one has none.
        normalize_rewards: they are divided by the deviation of all discounted returns so far, and
            clipped to +-10.
        reward_scale: rewards are multiplied by it, at last, before anything is learnt from them.
        adam_epsilon: added to the root of Adam's second moment.
        network: "mlp"; "conv", a convolution of a board or three of an image in front of the
            hidden layers, or "impala", residual blocks; or "mingru", "gru" or "lstm", whose last
            hidden layer remembers what the environment showed before: an update learns from whole
            sequences then, `minibatch_size` rounded to them. Or a function of an
            observation space that returns layers, such as `lambda space: nn.Dense(64) >>
            nn.Gru(64)`: the agent puts its outputs behind them. No file holds a function: give it
            to `load`.
        hidden: units of the hidden layers.
        activation: "tanh" or "relu".
        value: "separate" network for values, or "shared" with the policy.
        log_std_init: logarithm of the standard deviation of a continuous action at the start.
        scale_actions: the policy is one of numbers that are [-1, 1] where actions are within their
            bounds, so that a deviation of 1 is half of their width, and 0 the middle; for a `Box`
            with finite bounds. Without, numbers are actions as they are, which fits bounds near
            [-1, 1].
        sequence_length: steps of the sequences that networks with memory learn from, a divisor of
            `num_steps`: derivatives go back so far, and what was remembered before is taken as it
            was. None for whole rollouts.

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


@dataclasses.dataclass(frozen=True)
class OffPolicyConfig(Settings):
    """Hyper-parameters of agents that learn from a replay buffer.

    Attributes:
        num_envs: N, environments that are stepped together.
        num_steps: T, steps of each environment in a round.
        num_updates: updates in a round.
        learning_starts: environment steps before the first update, with random actions.
        capacity: transitions that the buffer keeps.
        replay: how they are drawn: "uniform", "prioritized", or in proportion to the "return" of
            their episode (until it ends: the mean of the last episodes' returns).
        batch_size: transitions of an update.
        learning_rate: of Adam.
        learning_rate_schedule: "constant"; "linear" or "cosine" down to 0 at the end of `learn`; or
            a function of what remains of it, 1 to 0, whose value multiplies. No file holds a
            function: a loaded agent says so, and goes on with "constant".
        gamma: discount per step, in [0, 1].
        n_step: steps whose rewards are added up before the value of what follows.
        tau: part of the way that targets go towards the networks, 0 to 1.
        target_period: updates between two such steps.
        normalize_observations: by the mean and deviation of all observations so far, as they were
            when the round began; the policy keeps them, the buffer has observations as they were.
        clip_observations: see `PPOConfig`.
        normalize_rewards: rewards that are drawn are divided by the deviation of all discounted
            returns so far and clipped to +-10; sums of n steps, to n times as much.
        max_gradient_norm: norm above which gradients are scaled down to it.
        adam_epsilon: added to the root of Adam's second moment.
        network: "mlp"; "conv" or "impala", with convolutions of images and boards in front of the
            hidden layers; "mingru", "gru" or "lstm", which remember; or a function, see
            `PPOConfig`. Critics of actions take these behind the convolutions, what remembers, or
            the function's layers, and in front of the hidden ones.
        hidden: units of the hidden layers, of all networks.
        activation: "relu" or "tanh".
        sequence_length: steps of the sequences that networks with memory learn from; `batch_size`
            is rounded to them.
        burn_in: steps in front of these that bring what was remembered up to date.
        priority_eta: weight of the largest error of a prioritised sequence against the mean.

    Raises:
        TypeError, ValueError: a value of another type or outside of its range, with its name.
    """

    num_envs: int = 8
    num_steps: int = 1
    num_updates: int = 8
    learning_starts: int = 1000
    capacity: int = 100_000
    replay: Literal["uniform", "prioritized", "return"] = "uniform"
    batch_size: int = 256
    learning_rate: float = 3e-4
    learning_rate_schedule: Schedule = "constant"
    gamma: float = 0.99
    n_step: int = 1
    tau: float = 0.005
    target_period: int = 1
    normalize_observations: bool = False
    clip_observations: float | None = None
    normalize_rewards: bool = False
    max_gradient_norm: float = float("inf")
    adam_epsilon: float = 1e-8
    network: str | Layers = "mlp"
    hidden: tuple[int, ...] = (256, 256)
    activation: Literal["relu", "tanh"] = "relu"
    sequence_length: int = 20
    burn_in: int = 10
    priority_eta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ValueError("hidden=(): expected one hidden layer at least")
        if self.capacity < max(self.batch_size, self.num_envs * (self.n_step + 1)):
            raise ValueError(
                f"capacity={self.capacity}: expected room for batch_size={self.batch_size} and for "
                f"n_step + 1 steps of {self.num_envs} environments"
            )
        if self.replay == "return" and self.n_step > 1:
            raise ValueError(f'n_step={self.n_step}: replay="return" has n_step=1 only')


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyArguments:
    """Keyword arguments of `OffPolicy` beside its settings, for type checkers."""

    seed: int = 0
    num_threads: int | None = None
    dtype: str = "float32"
    buffer: Any = None
    config: Settings | None = None


# ---------------------------------------------------------------- arguments of agents


def check_env(env: Any) -> Dynamics | VectorEnv:
    """Return the environment, or environments, of an agent; TypeError for anything else.

    An id that nobody has registered is a ValueError.
    """
    if isinstance(env, gymnasium.Env | GymnasiumVectorEnv) and not isinstance(env, VectorEnv):
        return GymnasiumEnv(env)
    if not isinstance(env, str | Dynamics | VectorEnv):
        raise TypeError(
            f"env={env!r}: expected an id, a Dynamics, a VectorEnv, or an environment of Gymnasium"
        )
    if isinstance(env, VectorEnv) and env.device != "cpu":
        raise TypeError(f"env={env!r}: expected environments on the CPU")
    return env if isinstance(env, VectorEnv) else find(env)


def typed_by(
    arguments: Callable[_Arguments, Any],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, Env, _Arguments], None]]:
    """Return a decorator of `__init__(self, env, **settings)` that changes nothing.

    Type checkers take the keyword arguments to be those of `arguments`, such as a config's.
    """

    def same(function: Any) -> Any:
        return function

    return same


def signature_of(agent: Any) -> inspect.Signature:
    """Return the signature of a class of agents, with an argument for each field of its config."""
    parameters = list(inspect.signature(agent.__init__).parameters.values())[1:]
    arguments = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    if len(arguments) < len(parameters):
        names = {each.name for each in arguments}
        arguments += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field.type,
            )
            for field in dataclasses.fields(agent.Config)
            if field.name not in names
        ]
    return inspect.Signature(arguments, return_annotation=None)


def choose_config(
    agent: Any, env: Dynamics | VectorEnv, config: Any, defaults: Any, settings: Mapping[str, Any]
) -> Any:
    """Return the settings of a new agent: `config`, or else the environment's `defaults`.

    Of `settings` those that are not None take the place of theirs. `agent` is the class.
    Settings that are not the class's, or do not fit, are a TypeError or ValueError.
    """
    if config is None:
        config = defaults
    elif not isinstance(config, agent.Config):
        raise TypeError(f"config={config!r}: expected a {agent.Config.__name__}")
    for name in settings:
        if name not in config.names():
            arguments = [*list(signature_of(agent).parameters)[1:], *config.names()]
            reason = describe_unknown(name, list(dict.fromkeys(arguments)), agent.algorithm)
            # A user's subclass of a config that lacks the decorator annotates what is no field.
            if name in vars(agent.Config).get("__annotations__", ()):
                reason = f"{agent.Config.__name__}.{name}: expected a frozen dataclass around it"
            raise TypeError(reason)
    changes = {name: value for name, value in settings.items() if value is not None}
    if isinstance(env, VectorEnv) and changes.setdefault("num_envs", env.num_envs) != env.num_envs:
        raise ValueError(f"num_envs={changes['num_envs']}: env has {env.num_envs}")
    return config.replace(changes)


#: Settings that an agent reads only when it is made.
_MADE_WITH = {
    "num_envs", "network", "hidden", "activation", "value", "log_std_init", "layer_norm", "dueling",
    "scale_actions", "scale_observations", "temperature", "learn_temperature", "capacity", "replay",
    "n_step", "policy_delay",
}  # fmt: skip
#: The same for agents with replay: their buffer holds sequences of these.
_MADE_WITH_REPLAY = {"sequence_length", "burn_in"}


def check_config(config: Any, new: Any) -> None:
    """Raise TypeError unless `new` are settings of the class of `config`, an agent's.

    Raise AttributeError where one differs that an agent reads only when it is made.
    """
    if type(new) is not type(config):
        raise TypeError(f"config={new!r}: expected a {type(config).__name__}")
    # A buffer of n-step returns adds up rewards with the discount that it was made with.
    fixed = _MADE_WITH | ({"gamma"} if getattr(config, "n_step", 1) > 1 else set())
    fixed |= _MADE_WITH_REPLAY if hasattr(config, "replay") else set()
    for name in config.names():
        if name in fixed and getattr(new, name) != getattr(config, name):
            raise AttributeError(
                f"config has {name}={getattr(new, name)!r}: the agent is made with "
                f"{getattr(config, name)!r}, make another one"
            )


def callbacks_of(callback: Any) -> list[Callable[[Any], Any]]:
    """Return the functions that `learn` calls: one, those of a list, or none for None.

    Anything else is a TypeError.
    """
    callbacks = [callback] if callable(callback) else [] if callback is None else callback
    if not isinstance(callbacks, list | tuple) or not all(map(callable, callbacks)):
        raise TypeError(f"callback={callback!r}: expected a function, a list of them, or None")
    return list(callbacks)


def check_learning(target_return: Any, processes: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError for bad arguments of `learn`.

    `processes` are those on other processes: without collectors there is nothing to set.
    """
    if target_return is not None:
        if isinstance(target_return, bool) or not isinstance(target_return, numbers.Real):
            raise TypeError(f"target_return={target_return!r}: expected a number, or None")
        if not math.isfinite(target_return):
            raise ValueError(f"target_return={target_return!r}: expected a finite number")
    for name, value in processes.items():
        if value is not None and processes["num_collectors"] is None:
            raise ValueError(f"{name}={value!r}: expected num_collectors too, one process has none")


def check_schedule(schedule: Any, steps: int, total_steps: int) -> tuple[int, int]:
    """Return the total steps at which schedules begin and end; None for those of this call.

    Anything but two whole numbers in order is a TypeError or ValueError.
    """
    if schedule is None:
        return steps, steps + total_steps
    if not isinstance(schedule, Sequence) or isinstance(schedule, str) or len(schedule) != 2:
        raise TypeError(f"schedule={schedule!r}: expected (first, last) of the total steps")
    first = check_count("schedule[0]", schedule[0], 0)
    return first, check_count("schedule[1]", schedule[1], first + 1)


def for_space(config: Any, space: Any) -> Any:
    """Return settings with the network that fits observations of a space, if theirs is "mlp"."""
    network = fitting_network(space)
    has_default = getattr(config, "network", None) == "mlp"
    return config.replace({"network": network}) if has_default and network != "mlp" else config
