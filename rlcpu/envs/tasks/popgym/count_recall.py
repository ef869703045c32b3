"""POPGym/CountRecall: tell how often a kind of card has been dealt so far.

Each step deals a card of one deck, and asks for the kind of a card of another. Kinds are colours,
suits or ranks. Source: see `rlcpu.envs.tasks.popgym`.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng


class Questions(State):
    """`values` are the kinds of cards to deal, `queries` those to ask for; all from `left` on were.

    `counts` has the cards of each kind that were dealt.
    """

    left: int


def count_recall(id: str, cards: int, kinds: int) -> Dynamics:
    """Return the task with decks of so many cards of so many kinds, which its functions know."""
    suits_of_rank = 4 if kinds == 13 else 1  # cards of a kind side by side before the shuffle
    scale = 1.0 / (cards - 1)

    def reset(s: Any, rng: Rng, params: NoParams) -> None:
        for i in range(cards):
            s.values[i] = i // suits_of_rank % kinds
            s.queries[i] = i // suits_of_rank % kinds
        rng.shuffle(s.values)
        rng.shuffle(s.queries)
        s.left = cards - 1
        s.counts[s.values[s.left]] += 1

    def step(s: Any, action: int, params: NoParams) -> tuple[float, bool]:
        """Say how many cards of the kind in question were dealt, and deal a card."""
        is_right = s.counts[s.queries[s.left]] == action
        s.left -= 1
        s.counts[s.values[s.left]] += 1
        return (scale if is_right else -scale), s.left == 0

    def observe(s: Any, params: NoParams, out: Any) -> None:
        """Write the kind of the card in sight, and the kind in question."""
        out[s.values[s.left]] = 1.0
        out[kinds + s.queries[s.left]] = 1.0

    return Dynamics(
        id=id,
        state=Questions.sized(
            values=Array[np.uint8, cards],
            queries=Array[np.uint8, cards],
            counts=Array[np.uint8, kinds],
        ),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Box(0.0, 1.0, (2 * kinds,)),
        action_space=Discrete(cards // kinds + 1),
    )


LEVELS = (
    count_recall("POPGym/CountRecallEasy-v0", cards=52, kinds=2),
    count_recall("POPGym/CountRecallMedium-v0", cards=104, kinds=4),
    count_recall("POPGym/CountRecallHard-v0", cards=208, kinds=13),
)
