"""POPGym/Concentration: turn cards over in pairs; those of one kind stay face up.

Source: see `rlcpu.envs.tasks.popgym`.
"""

import math
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng


class CardTable(State):
    """`deck`, the kinds of all cards, and the turn. Cards are counted from 0; -1 is none."""

    paired: int  # cards whose pairs were found; `face_up` is 1 for them
    waiting: int  # the first card of a pair whose second one is to come
    first: int  # cards that the last steps turned over, and that are in sight
    second: int


def concentration(id: str, cards: int, kinds: int) -> Dynamics:
    """Return the game with so many cards of so many kinds: 2 colours or 13 ranks.

    Its functions know from here the numbers of cards and kinds, and the rewards: `success` for a
    pair that is found, `failure` for each card that was turned over in vain.
    """
    # The number of steps is about that of a player who forgets nothing.
    limit = math.ceil(2 * cards - cards / (2 * cards - 1))
    success, failure = 1.0 / (cards // 2), -1.0 / limit
    suits_of_rank = 4 if kinds == 13 else 1  # cards of a kind side by side before the shuffle

    def reset(s: Any, rng: Rng, params: NoParams) -> None:
        for i in range(cards):
            s.deck[i] = i // suits_of_rank % kinds
        rng.shuffle(s.deck)
        s.waiting, s.first, s.second = -1, -1, -1

    def step(s: Any, action: int, params: NoParams) -> tuple[float, bool]:
        """Turn a card over, the first or second of a pair, and return (reward, terminated)."""
        is_second = s.waiting >= 0
        s.first = s.waiting if is_second else action
        s.second = action if is_second else -1
        s.waiting = -1
        if s.face_up[action] == 1:
            return failure * (2.0 if is_second else 1.0), False
        if not is_second:
            s.waiting = action
            return 0.0, False
        if s.first == action or s.deck[s.first] != s.deck[action]:
            return 2.0 * failure, False
        s.face_up[s.first] = 1
        s.face_up[action] = 1
        s.paired += 2
        return success, s.paired == cards

    def observe(s: Any, params: NoParams, out: Any) -> None:
        """Write the kind of each card in sight, one-hot; number `kinds` for those face down."""
        for i in range(cards):
            out[i * (kinds + 1) + (s.deck[i] if s.face_up[i] == 1 else kinds)] = 1.0
        for card in (s.first, s.second):
            if card >= 0:
                out[card * (kinds + 1) + kinds] = 0.0
                out[card * (kinds + 1) + s.deck[card]] = 1.0

    return Dynamics(
        id=id,
        state=CardTable.sized(deck=Array[np.uint8, cards], face_up=Array[np.uint8, cards]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Box(0.0, 1.0, (cards * (kinds + 1),)),
        action_space=Discrete(cards),
        max_episode_steps=limit,
    )


LEVELS = (
    concentration("POPGym/ConcentrationEasy-v0", cards=52, kinds=2),
    concentration("POPGym/ConcentrationMedium-v0", cards=104, kinds=2),
    concentration("POPGym/ConcentrationHard-v0", cards=52, kinds=13),
)
