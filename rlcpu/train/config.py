"""Hyper-parameters, checked: what all agents have in common, and PPO's."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import numbers
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, Self

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.envs.registration import find
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.train.presets import Layers, check_network_setting, fitting_network

_Arguments = ParamSpec("_Arguments")
Env = str | Dynamics | VectorEnv
#: How a number changes while what remains of the steps goes from 1 to 0.
Schedule = Literal["constant", "linear", "cosine"] | Callable[[float], float]
SCHEDULES = ("constant", "linear", "cosine")
_INF = math.inf
#: float32, in which the networks compute, holds ten thousand million times as much.
_MOST = 1e28
#: Largest of each count, and range of each real number: (least, most, whether the least itself is
#: allowed).
_COUNTS = {
    "num_envs": 2**24,
    "num_steps": 2**24,
    "num_epochs": 2**16,
    "minibatch_size": 2**30,
    "num_updates": 2**24,
    "learning_starts": 2**40,
    "capacity": 2**40,
    "batch_size": 2**24,
    "n_step": 2**16,
    "target_period": 2**30,
    "policy_delay": 2**16,
    "exploration_steps": 2**40,
    "sequence_length": 2**24,
    "burn_in": 2**24,
}
_REALS: dict[str, tuple[float, float, bool]] = {
    "learning_rate": (0.0, _MOST, True),
    "clip_range": (0.0, _INF, False),
    "gamma": (0.0, 1.0, True),
    "lambda_": (0.0, 1.0, True),
    "entropy_coefficient": (0.0, _MOST, True),
    "value_coefficient": (0.0, _MOST, True),
    "max_gradient_norm": (0.0, _INF, False),
    "target_kl": (0.0, _INF, False),
    "adam_epsilon": (0.0, _MOST, False),
    "log_std_init": (-20.0, 20.0, True),
    "reward_scale": (0.0, _MOST, False),
    "tau": (0.0, 1.0, False),
    "exploration_initial": (0.0, 1.0, True),
    "exploration_final": (0.0, 1.0, True),
    "temperature": (0.0, _MOST, False),
    "target_entropy": (-_MOST, _MOST, True),
    "exploration_noise": (0.0, _MOST, True),
    "target_noise": (0.0, _MOST, True),
    "target_noise_clip": (0.0, _MOST, True),
    "priority_eta": (0.0, 1.0, True),
}
#: Counts that may be 0.
_FROM_ZERO = ("learning_starts", "burn_in")
_CHOICES = {
    "value": ("separate", "shared"),
    "activation": ("tanh", "relu"),
    "replay": ("uniform", "prioritized", "return"),
}
#: What stable-baselines3 and CleanRL call our settings, and what else people try.
_ALIASES = {
    "n_envs": "num_envs",
    "n_steps": "num_steps",
    "n_epochs": "num_epochs",
    "update_epochs": "num_epochs",
    "batch_size": "minibatch_size",
    "num_minibatches": "minibatch_size (num_envs * num_steps / num_minibatches)",
    "lr": "learning_rate",
    "anneal_lr": 'learning_rate_schedule="linear"',
    "clip_coef": "clip_range",
    "discount": "gamma",
    "gae_lambda": "lambda_",
    "vf_coef": "value_coefficient",
    "max_grad_norm": "max_gradient_norm",
    "normalize_advantage": "normalize_advantages",
    "norm_adv": "normalize_advantages",
    "norm_obs": "normalize_observations",
    "norm_reward": "normalize_rewards",
    "net_arch": "hidden",
    "hidden_sizes": "hidden",
    "policy_kwargs": "hidden, activation and log_std_init",
    "activation_fn": "activation",
    "verbose": "learn(..., progress=True)",
    "total_timesteps": "learn(total_steps)",
    "n_jobs": "num_threads",
    "buffer_size": "capacity",
    "gradient_steps": "num_updates",
    "train_freq": "num_steps",
    "target_update_interval": "target_period",
    "exploration_fraction": "exploration_steps",
    "exploration_final_eps": "exploration_final",
    "exploration_initial_eps": "exploration_initial",
    "ent_coef": "entropy_coefficient",
    "replay_buffer_class": "buffer",
    "target_policy_noise": "target_noise",
    "action_noise": "exploration_noise",
}


class Settings:
    """Base of dataclasses of hyper-parameters: checks each field by its name."""

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {}
        this: Any = self
        kinds = {field.name: field.type for field in dataclasses.fields(this)}
        for name in self.names():
            value = getattr(self, name)
            if value is None and "None" in str(kinds[name]):
                continue
            if name in _COUNTS:
                least = int(name not in _FROM_ZERO)
                checked[name] = check_count(name, value, least, _COUNTS[name] + 1)
            elif name in _REALS:
                checked[name] = _check_real(name, value, *_REALS[name])
            elif name in _CHOICES:
                _check_choice(name, value, _CHOICES[name])
            elif name.endswith("_schedule"):
                _check_schedule(name, value)
            elif name == "network":
                check_network_setting(value)
            elif name == "hidden":
                checked[name] = _check_hidden(value)
            elif kinds[name] in ("float", float):  # of a user's config
                checked[name] = _check_real(name, value, -_MOST, _MOST, True)
            elif kinds[name] in ("bool", bool) and not isinstance(value, bool):
                raise TypeError(f"{name}={value!r}: expected True or False")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    @functools.cache  # asked for in every round of learning
    def names(cls) -> list[str]:
        """Return the names of the fields."""
        kind: Any = cls
        return [field.name for field in dataclasses.fields(kind)]

    def replace(self, changes: Mapping[str, Any]) -> Self:
        """Return the settings with the given ones replaced.

        Raises:
            TypeError: a name that is no hyper-parameter; the message says which one may be meant.
        """
        for name in changes:
            if name not in self.names():
                raise TypeError(describe_unknown(name, self.names()))
        this: Any = self
        changed: Self = dataclasses.replace(this, **changes)
        return changed


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
    normalize_rewards: bool = False
    reward_scale: float = 1.0
    adam_epsilon: float = 1e-5
    network: str | Layers = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    value: Literal["separate", "shared"] = "separate"
    log_std_init: float = 0.0
    sequence_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divides(self.sequence_length, self.num_steps)


def check_divides(sequence_length: int | None, num_steps: int) -> None:
    """Raise ValueError unless a rollout is whole sequences, if their length is given."""
    if sequence_length is not None and num_steps % sequence_length:
        expected = f"expected a divisor of num_steps={num_steps}, or None"
        raise ValueError(f"sequence_length={sequence_length}: {expected}")


def check_env(env: Any) -> Dynamics | VectorEnv:
    """Return the environment, or environments, of an agent.

    Raises:
        TypeError: it is something else, on a device, or has spaces that agents do not take.
        ValueError: there is none of this id.
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
    """Return the settings of a new agent.

    Args:
        agent: its class.
        env: its environment, or environments.
        config: all settings, or None for the defaults.
        defaults: for the environment.
        settings: by name, in the place of those of the config where they are not None.

    Raises:
        TypeError, ValueError: they are not its settings, or bad, or do not fit the environments.
    """
    if config is None:
        config = defaults
    elif not isinstance(config, agent.Config):
        raise TypeError(f"config={config!r}: expected a {agent.Config.__name__}")
    for name in settings:
        if name not in config.names():
            arguments = [*list(signature_of(agent).parameters)[1:], *config.names()]
            reason = describe_unknown(name, list(dict.fromkeys(arguments)), agent.algorithm)
            if name in vars(agent.Config).get("__annotations__", ()):
                reason = f"{agent.Config.__name__}.{name}: expected a frozen dataclass around it"
            raise TypeError(reason)
    changes = {name: value for name, value in settings.items() if value is not None}
    number = env.num_envs if isinstance(env, VectorEnv) else None
    if number and changes.setdefault("num_envs", number) != number:
        raise ValueError(f"num_envs={changes['num_envs']}: env has {number}")
    return config.replace(changes)


#: Settings that an agent reads only when it is made.
_MADE_WITH = {
    "num_envs", "network", "hidden", "activation", "value", "log_std_init", "layer_norm", "dueling",
    "scale_observations", "temperature", "learn_temperature", "capacity", "replay", "n_step",
    "policy_delay",
}  # fmt: skip
#: The same for agents with replay: their buffer holds sequences of these.
_MADE_WITH_REPLAY = {"sequence_length", "burn_in"}


def check_config(config: Any, new: Any) -> None:
    """Raise an exception unless `new` may replace the settings `config` of an agent.

    Raises:
        TypeError: they are no settings of its class.
        AttributeError: one differs that an agent reads only when it is made.
    """
    if type(new) is not type(config):
        raise TypeError(f"config={new!r}: expected a {type(config).__name__}")
    fixed = _MADE_WITH | ({"gamma"} if getattr(config, "n_step", 1) > 1 else set())
    fixed |= _MADE_WITH_REPLAY if hasattr(config, "replay") else set()
    for name in config.names():
        if name in fixed and getattr(new, name) != getattr(config, name):
            raise AttributeError(
                f"config has {name}={getattr(new, name)!r}: the agent is made with "
                f"{getattr(config, name)!r}, make another one"
            )


def check_learning(
    callback: Any, target_return: Any, num_collectors: Any, **collector_options: Any
) -> None:
    """Check arguments of `learn`.

    Raises:
        TypeError, ValueError: one of them is of another type or value, or an option of collectors
            is set and there are none.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r}: expected a function, or None")
    if target_return is not None:
        if isinstance(target_return, bool) or not isinstance(target_return, numbers.Real):
            raise TypeError(f"target_return={target_return!r}: expected a number, or None")
        if not math.isfinite(target_return):
            raise ValueError(f"target_return={target_return!r}: expected a finite number")
    for name, value in collector_options.items():
        if value is not None and num_collectors is None:
            raise ValueError(f"{name}={value!r}: expected num_collectors too, one process has none")


def check_schedule(schedule: Any, steps: int, total_steps: int) -> tuple[int, int]:
    """Return the total steps at which schedules begin and end; None for those of this call.

    Raises:
        TypeError, ValueError: they are no two whole numbers, or not in order.
    """
    if schedule is None:
        return steps, steps + total_steps
    if not isinstance(schedule, Sequence) or isinstance(schedule, str) or len(schedule) != 2:
        raise TypeError(f"schedule={schedule!r}: expected (first, last) of the total steps")
    first = check_count("schedule[0]", schedule[0], 0)
    return first, check_count("schedule[1]", schedule[1], first + 1)


def remaining_of(schedule: tuple[int, int], steps: int) -> float:
    """Return the share of a schedule, (first, last) steps, that remains at `steps`: 1 to 0."""
    first, last = schedule
    return min(1.0, max(0.0, 1.0 - (steps - first) / (last - first)))


def describe_unknown(name: str, names: Sequence[str], algorithm: str = "PPO") -> str:
    """Return the message for a setting that is none of `names`, with the one that may be meant."""
    near = _ALIASES.get(name) or next(iter(difflib.get_close_matches(name, names, n=1)), None)
    hint = f"did you mean {near}?" if near else f"expected one of {', '.join(names)}"
    return f"{name}: {algorithm} has no such setting; {hint}"


def scheduled(value: float, schedule: Schedule, remaining: float) -> float:
    """Return a number by its schedule, where the fraction `remaining` of the steps is left.

    Raises:
        ValueError: a function gives no finite number of at least 0.
    """
    if schedule == "constant":
        return value
    if schedule == "linear":
        return value * remaining
    if schedule == "cosine":
        return value * 0.5 * (1.0 - math.cos(math.pi * remaining))
    factor: Any = schedule(remaining)
    if not isinstance(factor, int | float | np.number) or not 0.0 <= factor < _INF:
        expected = "expected a finite number of at least 0"
        raise ValueError(f"schedule {schedule!r} gives {factor!r} at {remaining:g}: {expected}")
    return value * float(factor)


def _check_real(name: str, value: Any, least: float, most: float, closed: bool) -> float:
    """Return a number from `least` to `most` as a float; `least` itself is one if `closed`.

    Raises:
        TypeError: it is no real number.
        ValueError: it is out of bounds, or too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r}: expected a number")
    number: Any = value
    if not least <= number <= most or (number == least and not closed):
        sign = "of at least" if closed else "above"
        limit = "" if most == _INF else f" and at most {most:g}"
        raise ValueError(f"{name}={reprlib.repr(value)}: expected a number {sign} {least:g}{limit}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a number that a float holds") from None


def _check_hidden(hidden: Any) -> tuple[int, ...]:
    if isinstance(hidden, str) or not hasattr(hidden, "__len__"):
        raise TypeError(f"hidden={hidden!r}: expected sizes of layers, such as (64, 64)")
    return tuple(check_count(f"hidden[{i}]", size) for i, size in enumerate(hidden))


def _check_schedule(name: str, value: Any) -> None:
    if not callable(value) and (not isinstance(value, str) or value not in SCHEDULES):
        names = ", ".join(map(repr, SCHEDULES))
        raise ValueError(f"{name}={value!r}: expected {names} or a function of what remains")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r}: expected {' or '.join(map(repr, choices))}")


def for_space(config: Any, space: Any) -> Any:
    """Return settings with the network that fits observations of a space, if theirs is "mlp"."""
    network = fitting_network(space)
    has_default = getattr(config, "network", None) == "mlp"
    return config.replace({"network": network}) if has_default and network != "mlp" else config
