"""The engine: what steps environments, and the loops in which policies act in them."""

from collections.abc import Callable
from typing import Any

#: Functions of an environment that import the class of its engine, by the environment's class.
engines: dict[type, Callable[[Any], Any]] = {}


def engine_of(dynamics: Any) -> Any:
    """Return the class of the engine that steps an environment on the CPU."""
    return next(engines[kind] for kind in type(dynamics).__mro__ if kind in engines)(dynamics)
