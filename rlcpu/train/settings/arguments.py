"""Arguments of agents and of `learn`, checked."""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec

import gymnasium
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.kernels.checks import check_count
from rlcpu.train.settings.base import Settings
from rlcpu.train.settings.presets import fitting_network
from rlcpu.translation import describe_unknown

_Arguments = ParamSpec("_Arguments")
Env = str | Dynamics | VectorEnv


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundsArguments:
    """Keyword arguments, beside settings, of agents that learn in rounds, for type checkers."""

    seed: int = 0
    num_threads: int | None = None
    dtype: str = "float32"
    buffer: Any = None
    config: Settings | None = None


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
    has_defaults = config is None
    config = defaults if has_defaults else config
    if not isinstance(config, agent.Config):
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
    if has_defaults:
        changes = config.implied_by(changes) | changes
    if isinstance(env, VectorEnv) and changes.setdefault("num_envs", env.num_envs) != env.num_envs:
        raise ValueError(f"num_envs={changes['num_envs']}: env has {env.num_envs}")
    return config.replace(changes)


#: Settings that an agent reads only when it is made.
_MADE_WITH = {
    "num_envs", "network", "hidden", "activation", "value", "log_std_init", "layer_norm", "dueling",
    "scale_actions", "scale_observations", "temperature", "learn_temperature", "capacity", "replay",
    "n_step", "policy_delay", "clip_range_value",
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
    fixed |= {each.name for each in dataclasses.fields(config) if each.metadata.get("made_with")}
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
