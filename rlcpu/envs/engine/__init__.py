"""The engine: what steps environments, and the loops in which policies act in them."""

from collections.abc import Callable
from typing import Any

#: Functions that import the engine of a class of `Dynamics`, where our own kernels do not run it.
engines: dict[type, Callable[[], Any]] = {}


def engine_of(kind: type) -> Any:
    """Return the engine of a class of `Dynamics`; None where our own kernels run it."""
    load = next((engines[each] for each in kind.__mro__ if each in engines), None)
    return None if load is None else load()
