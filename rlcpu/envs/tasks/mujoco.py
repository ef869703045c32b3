"""MuJoCo's tasks by id; `rlcpu.envs.mujoco` makes them, and MuJoCo is imported then."""

from typing import Any

import gymnasium

from rlcpu.envs.contract.registry import Family, Limits, add_family

#: Those of Gymnasium, whose limits are Gymnasium's.
IDS = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5"),
    *("InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5"),
    *("Swimmer-v5", "Walker2d-v5"),
)


def _limits(id: str) -> Limits:
    """Return steps and threshold of Gymnasium's environment of an id."""
    spec = gymnasium.spec(id)
    return Limits(spec.max_episode_steps, spec.reward_threshold)


def _make(id: str) -> Any:
    """Return the dynamics of an id."""
    from rlcpu.envs.mujoco import tasks

    return tasks.TASKS[id]()


FAMILY = add_family(Family({id: _limits(id) for id in IDS}, _make, package="mujoco"))
