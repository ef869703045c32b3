"""Docstrings say `Example:`; the section that mkdocstrings typesets as code is `Examples:`."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Renames the section in every docstring that is read."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        """Called once for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
