"""Libraries of peers, imported by who first uses them: they are large, and may be missing."""

from __future__ import annotations

import importlib
from typing import Any


class Library:
    """A module in the place of `import`; its use raises ModuleNotFoundError where it is missing."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        """What the module has; kept, so that the next use costs no more than a module's."""
        if name.startswith("__"):  # who looks into this object does not use the library
            raise AttributeError(name)
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found


jax, jnp, torch = Library("jax"), Library("jax.numpy"), Library("torch")
