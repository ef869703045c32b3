"""POPGym/MultiarmedBandit: find out which arm pays most often, and pull it.

Source: see `rlcpu.envs.tasks.popgym`.
"""

from typing import Any, NamedTuple

from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng


class Arms(State):
    """Result of the last pull: whether it paid."""

    paid: bool


class Params(NamedTuple):
    """Scale of rewards."""

    reward: float = 1.0 / 200.0  # what a pull that pays gives; one that does not costs as much


def reset(s: Any, rng: Rng, params: Params) -> None:
    """Draw the probability with which each arm pays."""
    for arm in range(len(s.chances)):
        s.chances[arm] = rng.uniform()


def step(s: Any, action: int, params: Params, rng: Rng) -> tuple[float, bool]:
    """Pull an arm."""
    s.paid = rng.uniform() < s.chances[action]
    return (params.reward if s.paid else -params.reward), False


def observe(s: Any, params: Params) -> int:
    """Return 1 if the last pull paid, else 0."""
    return int(s.paid)


LEVELS = tuple(
    Dynamics(
        id=f"POPGym/MultiarmedBandit{level}-v0",
        state=Arms.sized(chances=Array[float, arms]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Discrete(2),
        action_space=Discrete(arms),
        params=Params(1.0 / steps),
        max_episode_steps=steps,
    )
    for level, arms, steps in (("Easy", 10, 200), ("Medium", 20, 400), ("Hard", 30, 600))
)
