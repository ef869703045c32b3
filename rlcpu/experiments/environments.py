"""The environment of an experiment: what users give, and how a process makes it anew.

What other processes can make has a text: an id of this library or of Gymnasium, "module:id" of a
module that registers it, or "module:name" of a `Dynamics` there or of a function or class that
returns an environment of Gymnasium. Other objects stay in the process that has them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from rlcpu.envs.contract import registry
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.envs.registration import make_vec
from rlcpu.experiments import references


class EnvSource(NamedTuple):
    """Recipe by which every process makes an environment."""

    text: str  # "" for an object, which cannot be made again
    params: dict[str, Any]  # of a `Dynamics`, JSON's values
    object: Any = None

    @classmethod
    def of(cls, name: str, env: Any) -> EnvSource:
        """Return how an argument is made again, if it can be.

        Raises:
            TypeError, ValueError: it is no environment, with the argument's name.
        """
        if isinstance(env, str):
            return cls(_text_for_others(env), {})
        if isinstance(env, Dynamics):
            if env.is_registered:
                return cls(_text_for_others(env.id), env.settings())
            return cls("", {}, env)
        if isinstance(env, gymnasium.Env | GymnasiumVectorEnv):
            return cls("", {}, env)
        if callable(env):
            return cls(references.refer(env), {})
        raise TypeError(
            f"{name}={env!r}: expected an id, module:name, a Dynamics, or an environment of "
            "Gymnasium, or a function that makes one"
        )

    @property
    def is_here_alone(self) -> bool:
        """Tell whether other processes cannot make it."""
        return not self.text or (":" in self.text and references.lives_here(self.text))

    def other(self) -> EnvSource | None:
        """Return how environments to evaluate in are made, if not as copies of those that learn.

        Raises:
            ValueError: it is an object of Gymnasium's, of which there is one.
        """
        if not self.text and not isinstance(self.object, Dynamics):
            raise ValueError(
                f"env={self.object!r} cannot be made again, and to evaluate in it would change "
                "what is learnt: expected eval_env=, another one, or a function that makes one"
            )
        return None if isinstance(self.object or _find(self.text), Dynamics) else self

    def make(self) -> Any:
        """Return what an agent takes: a `Dynamics`, or an environment of Gymnasium.

        Raises:
            TypeError, ValueError, ImportError: it cannot be made, with the reason.
        """
        value = self.object if not self.text else _find(self.text)
        if isinstance(value, Dynamics):
            return value.with_params(**self.params) if self.params else value
        return value if isinstance(value, gymnasium.Env | GymnasiumVectorEnv) else value()

    @contextlib.contextmanager
    def open(self) -> Iterator[Any]:
        """Yield what `make` returns; an environment that was made for the block is closed."""
        env = self.make()
        try:
            yield env
        finally:
            if self.text and not isinstance(env, Dynamics):
                env.close()

    def describe(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        text = self.text or f"an object of the class {type(self.object).__name__}"
        return {"text": text, "params": self.params}

    def code(self) -> list[Any]:
        """Return the functions, classes and modules of which it consists."""
        parts: list[Any] = []
        if ":" in self.text:
            parts.append(references.import_module(self.text.partition(":")[0]))
        value = self.object if not self.text else _find(self.text)
        if isinstance(value, Dynamics) and value.runs_in_kernels:
            return [*parts, *(getattr(value, name) for name in value.functions)]
        return [*parts, value if callable(value) else type(value)]


@contextlib.contextmanager
def open_environments(source: EnvSource) -> Iterator[VectorEnv]:
    """Yield environments to evaluate in, and close those that were made for the block."""
    with source.open() as env:
        if isinstance(env, VectorEnv):
            yield env
            return
        made = make_vec(env, 1, num_threads=1) if isinstance(env, Dynamics) else GymnasiumEnv(env)
        with contextlib.closing(made):
            yield made


def _text_for_others(text: str) -> str:
    """Return a text by which other processes find the same environment.

    An id that a module of the user's has registered gets that module's name in front.

    Raises:
        TypeError, ValueError, ImportError: nothing has this name.
    """
    env = _find(text)
    if isinstance(env, Dynamics) and env.runs_in_kernels and ":" not in text:
        module = sys.modules.get(env.step.__module__)
        if env.id not in registry.families and module is not None:
            return f"{module.__name__}:{env.id}"
    return text


def _find(text: str) -> Any:
    """Return the `Dynamics` of an id, or what stands under "module:name"."""
    module_name, _, name = text.rpartition(":")
    if not module_name:
        return find(text)
    module = references.import_module(module_name)
    if registry.lookup(name) is not None:
        return find(name)
    value = getattr(module, name, None)
    if isinstance(value, Dynamics) or callable(value):
        return value
    return find(text)  # of Gymnasium, which says what is wrong
