"""Tables of tuned values by environment: the algorithm that fits it, steps, and PPO's settings.

PPO takes every space of actions, and is the one for all that the first table does not name. What
they reach is measured by `asv_benches/study.py`. Tables have an environment's id, or its family,
such as "MinAtar/*". Other algorithms have their settings beside their equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gymnasium.spaces import Box, Dict

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.nn.network.heads import is_bounded
from rlcpu.train.settings.arguments import for_space
from rlcpu.train.settings.presets import fitting_network

_Entry = TypeVar("_Entry")

#: The algorithm of an environment, where PPO is not the one that solves it best.
FITTING: dict[str, str] = {
    "FrozenLake-v1": "dqn",
    "CliffWalking-v1": "dqn",
    "MinAtar/*": "pqn",
    "PointMaze-v0": "sac",
    "BitFlip-v0": "dqn",
}
#: Environment steps by environment and algorithm, where they are not the usual ones.
STEPS: dict[str, dict[str, int]] = {
    "CartPole-v1": {"dqn": 50_000, "pqn": 500_000},
    "Pendulum-v1": {"ppo": 500_000, "sac": 15_000, "td3": 15_000, "ddpg": 15_000},
    "PendulumNoVel-v1": {"ppo": 100_000, "sac": 15_000},
    "CartPoleNoVel-v1": {"ppo": 100_000},
    "MountainCarContinuousNoVel-v0": {"ppo": 300_000},
    "FrozenLake-v1": {"ppo": 500_000, "dqn": 30_000},
    "CliffWalking-v1": {"dqn": 30_000},
    "PointMaze-v0": {"sac": 40_000},
    "BitFlip-v0": {"dqn": 64_000},
    "Taxi-v4": {"ppo": 500_000},
    "Blackjack-v1": {"ppo": 300_000},
    "MiniGrid-Empty-8x8-v0": {"ppo": 300_000},
    "MiniGrid-DoorKey-8x8-v0": {"ppo": 2_000_000},
    "MiniGrid-FourRooms-v0": {"ppo": 3_000_000},
    "LunarLander-v3": {"ppo": 3_000_000},
    "LunarLanderContinuous-v3": {"ppo": 3_000_000, "tqc": 400_000},
    "Craftax-Classic-Symbolic-v1": {"ppo": 10_000_000},
    "MinAtar/*": {"ppo": 3_000_000, "pqn": 10_000_000},
}
#: All others: an update for every step takes longer, and fewer are needed.
USUAL_STEPS, REPLAY_STEPS = 1_000_000, 100_000


def entry_of(env_id: str, table: Mapping[str, _Entry]) -> _Entry | None:
    """Return what a table has under an id, or else under its family, such as "MinAtar/*"."""
    family = f"{env_id.partition('/')[0]}/*"
    return table.get(env_id, table.get(family))


def fitting(env_id: str) -> str:
    """Return the algorithm of an environment, as `rlcpu train --algo` takes it."""
    return entry_of(env_id, FITTING) or "ppo"


def default_steps(agent: Any) -> int:
    """Return how many environment steps an agent learns for by default."""
    usual = REPLAY_STEPS if getattr(agent, "buffer", None) is not None else USUAL_STEPS
    return steps_of(agent.env.dynamics.id, type(agent), usual)


def steps_of(env_id: str, kind: type, usual: int) -> int:
    """Return how many environment steps agents of a class learn an environment for.

    They are those of the first class with an entry that it is made of, as QR-DQN of DQN.
    """
    steps = entry_of(env_id, STEPS) or {}
    names = (each.__name__.lower() for each in kind.__mro__)
    return next((steps[name] for name in names if name in steps), usual)


def settings_for(
    dynamics: Dynamics, tuned: Mapping[str, Any], general: Mapping[str, Any], config: type[Any]
) -> Any:
    """Return the settings that an algorithm takes in an environment unless it is told otherwise.

    They are those tuned for it, or else general ones that fit its spaces.

    Args:
        dynamics: the environment.
        tuned: settings by an environment's id or family.
        general: settings by the kind of observation: "numbers"; or "symbols": choices, cells,
            images. An algorithm without any has the defaults of its config.
        config: the class of settings.
    """
    if (entry := entry_of(dynamics.id, tuned)) is not None:
        return entry
    space, action_space = dynamics.observation_space, dynamics.action_space
    has_numbers = isinstance(space, Box | Dict) and fitting_network(space) == "mlp"
    chosen = general["numbers" if has_numbers else "symbols"] if general else config()
    is_bounded_box = isinstance(action_space, Box) and is_bounded(
        action_space.low, action_space.high
    )
    if getattr(chosen, "scale_actions", False) and not is_bounded_box:
        chosen = chosen.replace({"scale_actions": False})
    return for_space(chosen, space)
