"""Transitions that networks learn from in stages, and how networks see them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import compact, inline, merge, outline
from rlcpu.nn.heads import fill
from rlcpu.nn.network import CLIP, WIDTH_IN
from rlcpu.nn.ones import NO_ONES, Ones, make_sum_ones


class Transitions(NamedTuple):
    """S transitions, update after update; flat arrays.

    Attributes:
        observations, next_observations: (S * observation_size,) float32.
        actions: (S * action_size,) float32, whole numbers of a `Discrete` too.
        rewards, discounts, weights: (S,) float32; discounts are of the next value, weights of the
            sample's loss.
        terminated: (S,) bool: there is no next value.
        mean, scale: (observation_size,) float32: networks see (observation - mean) *
            scale, clipped to +-10.
        center, half: (action_size,) float32 of actions: networks see (action - center) / half, and
            0 where half is 0, of a number that cannot change.
        errors: (S,) float32, overwritten: size of the temporal difference.
        allowed: (S * num_actions,) bool, the action masks of next observations; empty without any.
        ones, next_ones: observations that are zeros but for a few ones; those above are empty then.
    """

    observations: Any
    next_observations: Any
    actions: Any
    rewards: Any
    discounts: Any
    weights: Any
    terminated: Any
    mean: Any
    scale: Any
    center: Any
    half: Any
    errors: Any
    allowed: Any = np.zeros(0, np.bool_)
    ones: Ones = NO_ONES
    next_ones: Ones = NO_ONES


class Chunk(NamedTuple):
    """Samples that pass the networks together: those of one part.

    Attributes:
        begin: the first of them among all transitions.
        size: how many.
        share: 1 / samples of a minibatch.
        update: number of the update, from 1 on, over all calls.
    """

    begin: int
    size: int
    share: Any
    update: int


# ---------------------------------------------------------------- what gradients are made with


@inline
def see(inputs, width, observations, chunk, batch):
    """Observations of a chunk, normalised and clipped, as a network's inputs (count, width)."""
    _see(inputs, width, observations, chunk.begin, chunk.size, batch.mean, batch.scale)


@functools.cache
def make_see(dtype: type) -> Callable[..., None]:
    """`see(cells, network, observations, ones, chunk, batch)`: inputs, or the first layer of ones.

    The latter where there are any; passes are told by `given`.
    """
    sum_ones = make_sum_ones(dtype)

    @outline
    def sum_chunk(cells, network, ones, first, count):
        for i in range(count):
            bounds = ones.starts[first + i], ones.starts[first + i + 1]
            sum_ones(cells, network, count, i, bounds, ones.columns)

    @merge
    def see_either(cells, network, observations, ones, chunk, batch):
        if ones.starts.size > 0:
            sum_chunk(cells, network, ones, chunk.begin, chunk.size)
        else:
            see(cells, network.table[0, WIDTH_IN], observations, chunk, batch)

    return see_either


@outline
def _see(inputs, width, observations, first, count, mean, scale):
    compact()
    size = mean.size
    fill(inputs[: count * width], 0.0)
    for i in range(count):
        begin = (first + i) * size
        for k in range(size):
            x = (observations[begin + k] - mean[k]) * scale[k]
            x = -CLIP if x < -CLIP else x
            inputs[i * width + k] = CLIP if x > CLIP else x
