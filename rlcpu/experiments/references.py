"""Things of a user's by their names, "module:name", and hashes of the code that they consist of.

Another process finds by its name what a file of the user's defines. What a script or a notebook
defines itself has the module "__main__", which is another one there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import rlcpu
from rlcpu.kernels.compiler.functions import referenced_globals

_REFERENCE = re.compile(r"[\w.]+:[A-Za-z_]\w*(\.\w+)*")


def is_reference(value: Any) -> bool:
    """Tell whether a value is a text such as "module:name"."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def resolve(reference: str) -> Any:
    """Return what a reference names; the module is imported, from the working folder too.

    Raises:
        ValueError: the module cannot be imported, or has nothing of that name.
    """
    module_name, _, name = reference.partition(":")
    value = import_module(module_name)
    try:
        return functools.reduce(getattr, name.split("."), value)
    except AttributeError:
        raise ValueError(f"{reference!r}: the module {module_name} has no {name}") from None


def import_module(name: str) -> Any:
    """Return a module of the user's; ValueError with the reason where it cannot be imported."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise ValueError(f"the module {name} cannot be imported: {kind}: {error}") from error


def refer(value: Any) -> str:
    """Return the reference of a class or function.

    Raises:
        ValueError: it has none: a lambda, or what is defined in a function.
    """
    reference = f"{value.__module__}:{getattr(value, '__qualname__', '')}"
    if not is_reference(reference) or resolve(reference) is not value:
        raise ValueError(
            f"{value!r} has no name by which it can be found again: define it by `def` or `class` "
            "at the top level of a module or a notebook"
        )
    return reference


def lives_here(reference: str) -> bool:
    """Tell whether a reference names what other processes cannot import."""
    name = reference.partition(":")[0]
    return name == "__main__" or not hasattr(sys.modules.get(name), "__file__")


# ---------------------------------------------------------------- the code of them


def code_of(things: Iterable[Any]) -> dict[str, str]:
    """Return hashes of the user's code that decides what things do, modules, classes or functions.

    Of a module that is the SHA-256 of its file, and of those of the user's that it imports. Of what
    a script or a notebook defines, a file that may change otherwise, it is that of its source
    alone, and of what it names there. The keys are names of modules, or references.
    """
    hashes: dict[str, str] = {}
    pending, visited = list(things), set()
    while pending:
        thing = pending.pop()
        module = thing if isinstance(thing, types.ModuleType) else _module_of(thing)
        is_script = module is not None and module.__name__ == "__main__" and thing is not module
        part = thing if is_script else module
        if module is None or id(part) in visited or is_library(module):
            continue
        visited.add(id(part))
        if is_script:
            hashes[f"__main__:{thing.__qualname__}"] = _hash_of_source(thing)
            pending += _named_by(thing)
        elif isinstance(file := getattr(module, "__file__", None), str):
            hashes[module.__name__] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
            pending += vars(module).values()
    return dict(sorted(hashes.items()))


def _module_of(thing: Any) -> types.ModuleType | None:
    """Return the module that defines a class or function; None for any other value."""
    if not isinstance(thing, type | types.FunctionType):
        return None
    return sys.modules.get(thing.__module__)


def is_library(module: types.ModuleType) -> bool:
    """Tell whether a module is rlcpu's, Python's, or of an installed package."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ != "__main__"
    return any(os.path.realpath(file).startswith(folder + os.sep) for folder in library_folders())


@functools.cache
def library_folders() -> list[str]:
    """Return the folders of rlcpu, of Python's own modules, and of installed packages."""
    paths = sysconfig.get_paths()
    folders = [os.path.dirname(rlcpu.__file__)]
    folders += [paths[name] for name in ("stdlib", "purelib", "platlib")]
    return [os.path.realpath(folder) for folder in folders]


def _hash_of_source(thing: Any) -> str:
    """Return the SHA-256 of the source of a class or function; "" where nobody knows it."""
    try:
        return hashlib.sha256(inspect.getsource(thing).encode()).hexdigest()
    except (OSError, TypeError):
        return ""


def _named_by(thing: Any) -> Iterator[Any]:
    """Yield the globals that a function, or the functions and bases of a class, read."""
    members = [thing]
    if isinstance(thing, type):
        yield from thing.__bases__
        members = list(vars(thing).values())
    for member in members:
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if isinstance(function, types.FunctionType):
            yield from referenced_globals(function).values()
