"""POPGym/HigherLower: guess whether the next card ranks higher or lower than the one in sight.

Who counts cards guesses better. Source: see `rlcpu.envs.tasks.popgym`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.arrays import Array, State
from rlcpu.kernels.random import Rng

RANKS, SUITS = 13, 4


class Cards(State):
    """Ranks of all cards, of which those from `left` on were dealt."""

    left: int


class OneDeck(Cards):  # noqa: D101
    deck: Array[np.uint8, 52]


class TwoDecks(Cards):  # noqa: D101
    deck: Array[np.uint8, 104]


class ThreeDecks(Cards):  # noqa: D101
    deck: Array[np.uint8, 156]


class Params(NamedTuple):
    """There are no parameters."""


def reset(s: Any, rng: Rng, params: Params) -> None:
    """Shuffle the decks and show a card."""
    for i in range(len(s.deck)):
        s.deck[i] = i // SUITS % RANKS
    rng.shuffle(s.deck)
    s.left = len(s.deck) - 1


def step(s: Any, action: int, params: Params) -> tuple[float, bool]:
    """Action 0 says that the next card is higher, 1 that it is lower; equal ranks give 0."""
    rank = s.deck[s.left]
    s.left -= 1
    next_rank = s.deck[s.left]
    scale = 1.0 / float(len(s.deck))
    reward = scale if (next_rank > rank) == (action == 0) else -scale
    return (0.0 if next_rank == rank else reward), s.left == 0


def observe(s: Any, params: Params) -> int:
    """Return the rank of the card in sight; an ace is 0."""
    return s.deck[s.left]


LEVELS = tuple(
    Dynamics(
        id=f"POPGym/HigherLower{level}-v0",
        state=state,
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Discrete(RANKS),
        action_space=Discrete(2),
        params=Params(),
    )
    for level, state in (("Easy", OneDeck), ("Medium", TwoDecks), ("Hard", ThreeDecks))
)
