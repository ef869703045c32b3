"""The numbers of agents that decide what they do next."""

from __future__ import annotations

from typing import Any


def state_of(agent: Any) -> dict[str, Any]:
    """Return the live arrays of an agent by name.

    It is no public name: users save an agent. To save one would finish what was interrupted.
    """
    arrays: dict[str, Any] = agent._state()
    return arrays
