"""POPGym/HigherLower: guess whether the next card ranks higher or lower than the one in sight.

Who counts cards guesses better. Source: see `rlcpu.envs.tasks.popgym`.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng

RANKS, SUITS = 13, 4


class DealtDeck(State):
    """`deck` has the ranks of all cards, of which those from `left` on were dealt."""

    left: int


def reset(s: Any, rng: Rng, params: NoParams) -> None:
    """Shuffle the decks and show a card."""
    for i in range(len(s.deck)):
        s.deck[i] = i // SUITS % RANKS
    rng.shuffle(s.deck)
    s.left = len(s.deck) - 1


def step(s: Any, action: int, params: NoParams) -> tuple[float, bool]:
    """Take a step: action 0 says that the next card is higher, 1 lower; equal ranks give 0."""
    rank = s.deck[s.left]
    s.left -= 1
    next_rank = s.deck[s.left]
    scale = 1.0 / float(len(s.deck))
    reward = scale if (next_rank > rank) == (action == 0) else -scale
    return (0.0 if next_rank == rank else reward), s.left == 0


def observe(s: Any, params: NoParams) -> int:
    """Return the rank of the card in sight; an ace is 0."""
    return s.deck[s.left]


LEVELS = tuple(
    Dynamics(
        id=f"POPGym/HigherLower{level}-v0",
        state=DealtDeck.sized(deck=Array[np.uint8, 52 * decks]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Discrete(RANKS),
        action_space=Discrete(2),
    )
    for level, decks in (("Easy", 1), ("Medium", 2), ("Hard", 3))
)
