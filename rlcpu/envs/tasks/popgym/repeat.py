"""POPGym/RepeatFirst and POPGym/RepeatPrevious: name the suit of a card that was seen before.

Cards of shuffled decks are shown one after the other. RepeatFirst asks for the suit of the first
one in each step, RepeatPrevious for that of k cards ago, where the card in sight is the first.
Source: see `rlcpu.envs.tasks.popgym`.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng

SUITS = 4


class ShownDeck(State):
    """`deck` has the suits of the cards; those from `left` on were shown, the last one first."""

    left: int


def repeat(id: str, decks: int, k: int | None) -> Dynamics:
    """Return the task that asks for the suit of k cards ago, or of the first card for None.

    Its functions know from here `asks_first` and `back`, which is k.
    """
    asks_first, back = k is None, k or 0

    def reset(s: Any, rng: Rng, params: NoParams) -> None:
        for i in range(len(s.deck)):
            s.deck[i] = i % SUITS
        rng.shuffle(s.deck)
        s.left = len(s.deck) - 1

    def step(s: Any, action: int, params: NoParams) -> tuple[float, bool]:
        """Name a suit, and deal a card."""
        cards = len(s.deck)
        place = cards - 1 if asks_first else s.left + back - 1
        # One over the number of questions; none is asked before k cards are shown.
        scale = 1.0 / float(cards - 1 if asks_first else cards - back)
        reward = 0.0
        if place < cards:
            reward = scale if s.deck[place] == action else -scale
        s.left -= 1
        return reward, s.left == 0

    def observe(s: Any, params: NoParams) -> int:
        """Return the suit of the card in sight."""
        return s.deck[s.left]

    return Dynamics(
        id=id,
        state=ShownDeck.sized(deck=Array[np.uint8, 52 * decks]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Discrete(SUITS),
        action_space=Discrete(SUITS),
    )


LEVELS = (
    repeat("POPGym/RepeatFirstEasy-v0", decks=1, k=None),
    repeat("POPGym/RepeatFirstMedium-v0", decks=8, k=None),
    repeat("POPGym/RepeatFirstHard-v0", decks=16, k=None),
    repeat("POPGym/RepeatPreviousEasy-v0", decks=1, k=4),
    repeat("POPGym/RepeatPreviousMedium-v0", decks=2, k=32),
    repeat("POPGym/RepeatPreviousHard-v0", decks=3, k=64),
)
