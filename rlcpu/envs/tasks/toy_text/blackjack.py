"""Blackjack-v1: come closer to 21 than the dealer, and not beyond.

Cards come from an endless deck; the dealer draws until 17. Given the same cards, rewards are
Gymnasium's. Source: Sutton & Barto (2018), "Reinforcement Learning", Example 5.1.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import BLUE, GREEN, GREY, RED, Picture, draw
from rlcpu.kernels.machine.random import Rng

#: Of the dealer: after two aces four more (16, one as 11), then a six (12), then five aces (17).
MOST_DRAWS = 10


class State(NamedTuple):
    """Aces count 1 in `total`; cards are 1 to 10."""

    total: int
    ace: bool  # the player has one
    natural: bool  # the player has an ace and a ten, and nothing else
    shown: int  # the dealer's first card
    hidden: int  # and second


class Params(NamedTuple):
    """Rules; the second goes before the first."""

    natural: bool = False  # a natural that wins gives 1.5
    sab: bool = True  # a natural wins unless the dealer has one: Sutton and Barto's rule


def card(k: int, rng: Rng) -> int:
    """Return a card from random number k: 1 to 10, where jack, queen and king are 10 too."""
    return min(rng.integers(k, 13) + 1, 10)


def hand(total: int, ace: bool) -> int:
    """Return the worth of a hand, with an ace as 11 if that is not beyond 21."""
    return total + 10 if ace and total <= 11 else total


def reset(rng: Rng, params: Params) -> State:
    """Draw two cards for the dealer, two for the player: random numbers 0 to 3."""
    first, second = card(2, rng), card(3, rng)
    ace, total = first == 1 or second == 1, first + second
    return State(total, ace, ace and total == 11, card(0, rng), card(1, rng))


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Take a step: 0 sticks, and the dealer draws (numbers 0 to 9); 1 hits (number 0)."""
    drawn = card(0, rng)  # both outcomes are computed, one is returned
    hit = State(s.total + drawn, s.ace or drawn == 1, False, s.shown, s.hidden)
    total, ace = s.shown + s.hidden, s.shown == 1 or s.hidden == 1
    dealer_natural = ace and total == 11
    for k in range(MOST_DRAWS):
        drawn = card(k, rng) if hand(total, ace) < 17 else 0
        total = total + drawn
        ace = ace or drawn == 1
    mine, theirs = hand(s.total, s.ace), hand(total, ace)
    theirs = theirs if theirs <= 21 else 0
    reward = 0.0 if mine == theirs else (1.0 if mine > theirs else -1.0)
    if params.sab:
        reward = 1.0 if s.natural and not dealer_natural else reward
    elif params.natural:
        reward = 1.5 if s.natural and mine > theirs else reward
    bust = hit.total > 21
    if action == 1:
        return hit, -1.0 if bust else 0.0, bust
    return s, reward, True


def observe(s: State, params: Params) -> int:
    """Return Gymnasium's three numbers as one: (sum * 11 + shown) * 2 + usable."""
    usable = s.ace and s.total <= 11
    return (hand(s.total, s.ace) * 11 + s.shown) * 2 + usable


def picture(s: State, params: Params) -> Picture:
    """Draw two bars on 21 places: the dealer's card, and what the player's hand counts."""
    grid = np.zeros((5, 23), np.int64)
    grid[1, 1:22] = grid[3, 1:22] = GREY
    grid[1, 1 : 1 + s.shown] = BLUE
    grid[3, 1 : 1 + min(hand(s.total, s.ace), 22)] = RED if s.total > 21 else GREEN
    return draw(grid)


DYNAMICS = Dynamics(
    id="Blackjack-v1",
    step=step,
    reset=reset,
    observe=observe,
    picture=picture,
    observation_space=Discrete(32 * 11 * 2),
    action_space=Discrete(2),
    params=Params(),
)
