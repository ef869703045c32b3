"""Drivers of sampling from a tree: a thread walks from the top to a leaf for each draw."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.replay.nodes import total, walk, walk_carefully
from rlcpu.kernels.compile import specialise
from rlcpu.kernels.random import u64, uniform53
from rlcpu.replay.samplers import importance_weight


@functools.cache
def draw_kernel() -> Any:
    """(numbers, offsets, key, counter, stratified, out): leaves in proportion to their numbers.

    Key and counter of the stream are uint64; `out` is (n,) int64, where the sum of all leaves is 0
    nonsense. Stratum k of n is draw k's.
    """

    @kernel(dtype=np.float64, exact=True)
    def draw(numbers, offsets, key, counter, stratified, out):
        k = cuda.grid(1)
        if k < out.size:
            weight = total(numbers, offsets[offsets.size - 2])
            u = uniform53(key, u64(counter + u64(k)))
            x = (k + u) * (weight / out.size) if stratified else u * weight
            leaf = walk(numbers, offsets, x)
            if not numbers[leaf] > 0.0:
                leaf = walk_carefully(numbers, offsets, x)
            out[k] = leaf

    return draw


@functools.cache
def take_kernel() -> Any:
    """(numbers, indices, out): numbers of leaves."""

    @kernel(exact=True)
    def take(numbers, indices, out):
        k = cuda.grid(1)
        if k < out.size:
            out[k] = numbers[indices[k]]

    return take


@functools.cache
def probabilities_kernel() -> Any:
    """(numbers, indices, total, probabilities, least): of what was drawn; `least` is lowered.

    `least` is (1,) float64, infinity before; `probabilities` is (n,) float64.
    """

    @kernel(dtype=np.float64, exact=True)
    def find(numbers, indices, total, probabilities, least):
        k = cuda.grid(1)
        if k < indices.size:
            leaf = numbers[indices[k]]
            probabilities[k] = leaf / total
            # An atomic operation of every thread on one number would take longer than all else.
            if leaf < least[0]:
                cuda.atomic.min(least, 0, leaf)

    return find


@functools.cache
def weights_kernel() -> Any:
    """(numbers, indices, beta, least, weights): importance weights, (n,) float32."""
    weight = specialise(importance_weight, np.float32)
    most = np.float32(3e38)

    @kernel
    def weigh(numbers, indices, beta, least, weights):
        k = cuda.grid(1)
        if k < indices.size:
            ratio = np.float32(numbers[indices[k]] / least[0])
            weights[k] = weight(min(ratio, most), beta)

    return weigh
