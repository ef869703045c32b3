"""What mkdocstrings is told beside the sources: sections of examples, and defaults of settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from griffe import Class, Extension, Object

sys.path[:0] = [str(Path(__file__).parents[1])]


class Examples(Extension):
    """Renames the section `Example:`, which mkdocstrings typesets as code if it is `Examples:`."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        """Called once for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")


class Defaults(Extension):
    """Shows what PPO takes for a setting that is None: the general settings."""

    def on_class_members(self, *, cls: Class, **kwargs: Any) -> None:
        """Called for each class, once its members are read."""
        if cls.name != "PPO" or "__init__" not in cls.members:
            return
        from rlcpu.train.ppo import GENERAL

        for parameter in cls.members["__init__"].parameters:
            if parameter.name in GENERAL.names():
                parameter.default = repr(getattr(GENERAL, parameter.name))
