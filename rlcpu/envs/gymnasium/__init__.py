"""Gymnasium's environments that are not ours, stepped in Python."""

from typing import Any

from rlcpu.envs.engine import engines
from rlcpu.envs.gymnasium.task import GymnasiumTask


def _engine(task: GymnasiumTask) -> Any:
    from rlcpu.envs.gymnasium.engine import GymnasiumEngine

    return GymnasiumEngine


engines[GymnasiumTask] = _engine
