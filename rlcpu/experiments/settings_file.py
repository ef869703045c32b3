"""A file of settings: what a search ends with, and what `rlcpu train --settings` takes.

    {"format": "rlcpu settings 1", "algo": "ppo", "settings": {"learning_rate": 0.002},
     "env": "CartPole-v1", "scores": {...}}

`algo` and `settings` alone will do in one that is written by hand. An algorithm or a network of the
user's is "module:name".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from rlcpu.experiments import references
from rlcpu.train.keeping.files import replacing

FORMAT = "rlcpu settings 1"
_KINDS: dict[str, type] = {"format": str, "algo": str, "settings": dict, "env": str, "scores": dict}


def write_settings(
    path: str | os.PathLike[str],
    env: str,
    algo: str,
    settings: Mapping[str, Any],
    scores: Mapping[str, float],
) -> None:
    """Write settings; OSError where the file cannot be written.

    Args:
        path: of the file.
        env: id of the environment that they are for.
        algo: the algorithm's name or reference.
        settings: values that JSON has.
        scores: mean returns by what they are of, for readers.
    """
    parts = {"format": FORMAT, "env": env, "algo": algo, "settings": settings, "scores": scores}
    with replacing(path) as file:
        file.write(json.dumps(parts, indent=1).encode())


def read_settings(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return algorithm and settings of a file; what is "module:name" there is imported.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such file, with the reason.
    """
    name = os.fspath(path)
    try:
        with open(path, encoding="utf-8") as file:
            parts = json.load(file)
    except ValueError as error:
        raise ValueError(f"{name}: it is no file of settings: {error}") from None
    if not isinstance(parts, dict) or not {"algo", "settings"} <= parts.keys():
        raise ValueError(f'{name}: expected {{"algo": "ppo", "settings": {{...}}}}')
    for key, value in parts.items():
        if key not in _KINDS:
            raise ValueError(f"{name}: it has {key!r}, expected one of {', '.join(_KINDS)}")
        if not isinstance(value, _KINDS[key]):
            raise ValueError(f"{name}: {key} is {value!r}, expected a {_KINDS[key].__name__}")
    if parts.get("format", FORMAT) != FORMAT:
        raise ValueError(f"{name}: its format is {parts['format']!r}, expected {FORMAT!r}")
    settings = parts["settings"]
    return parts["algo"], {
        key: references.resolve(value) if references.is_reference(value) else value
        for key, value in settings.items()
    }
