"""The algorithms of this library by their names."""

from __future__ import annotations

import difflib
from typing import Any

from rlcpu import train
from rlcpu.algorithms import NAMES as NAMES


def algorithm(name: str) -> Any:
    """Return the class of agents of a name, imported now; ValueError for a name that none has.

    Example:
        >>> algorithm("ppo").algorithm
        'PPO'
    """
    if name not in NAMES:
        near = difflib.get_close_matches(name.lower(), NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(NAMES)}"
        raise ValueError(f"algo={name!r}: there is no such algorithm; {hint}")
    return getattr(train, name.upper())
