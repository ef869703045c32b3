"""POPGym/Autoencode: watch a deck, then name the suits of its cards, the last one first.

Source: see `rlcpu.envs.tasks.popgym`.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng

SUITS = 4


class RecitedDeck(State):
    """`deck` has the suits of all cards; it is dealt from its end, then recited from its start."""

    left: int  # cards that were not dealt
    recited: int  # cards that were named


def reset(s: Any, rng: Rng, params: NoParams) -> None:
    """Shuffle the deck and show a card."""
    for i in range(len(s.deck)):
        s.deck[i] = i % SUITS
    rng.shuffle(s.deck)
    s.left = len(s.deck) - 1


def step(s: Any, action: int, params: NoParams) -> tuple[float, bool]:
    """Deal a card; when all are dealt, the action names the suit of one."""
    if s.left > 0:
        s.left -= 1
        return 0.0, False
    scale = 1.0 / float(len(s.deck))
    is_right = s.deck[s.recited] == action
    s.recited += 1
    return (scale if is_right else -scale), s.recited == len(s.deck)


def observe(s: Any, params: NoParams, out: Any) -> None:
    """Write two numbers for the part of the game and four for the suit in sight: (2 + 4,).

    While the deck is recited no card is in sight: suit 0 stands there.
    """
    out[1 if s.left > 0 else 0] = 1.0
    out[2 + (0 if s.recited > 0 else s.deck[s.left])] = 1.0


LEVELS = tuple(
    Dynamics(
        id=f"POPGym/Autoencode{level}-v0",
        state=RecitedDeck.sized(deck=Array[np.uint8, 52 * decks]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Box(0.0, 1.0, (2 + SUITS,)),
        action_space=Discrete(SUITS),
    )
    for level, decks in (("Easy", 1), ("Medium", 2), ("Hard", 3))
)
