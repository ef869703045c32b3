"""Instructions of distributions: logarithms of probabilities, entropy, and noise.

An instruction runs for a `chunk` of samples: `chunk.rows[k]` has number k of each sample, and
`chunk.slopes[k]` the derivatives of the loss with respect to it. It reads rows from `instruction.a`
on, as many as `a_step` says (log_softmax: `width`), and writes `width` rows from `out` on;
`through_<name>` is its backward pass, which adds to the slopes of what it reads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcpu.kernels.machine.random import mix, uniforms
from rlcpu.nn.layers.rows import copy, fill
from rlcpu.nn.learning.instructions.numbers import add_row
from rlcpu.nn.network.heads import FORBIDDEN, standard_normal

u32 = np.uint32
_uniforms = uniforms(2, 0, np.float32)  # (a, b) -> two numbers, the first ones of the words

# ---------------------------------------------------------------- probabilities


def log_softmax(chunk: Any, instruction: Any) -> None:
    """Write log-probabilities of logits x, x_k - log(sum of e**x_j).

    The mask has rows from `c` on, not 0 where an action is allowed; `c` is -1 without one. The row
    behind the results is scratch, and so is its row of slopes.
    """
    rows, first, width = chunk.rows, instruction.out, instruction.width
    largest, total = rows[first + width], chunk.slopes[first + width]
    fill(largest, -math.inf)
    fill(total, 0.0)
    for k in range(width):
        row, logits = rows[first + k], rows[instruction.a + k]
        if instruction.c < 0:
            copy(row, logits)
        else:
            allowed = rows[instruction.c + k]
            for i in range(row.size):
                row[i] = logits[i] if allowed[i] != 0.0 else FORBIDDEN
        for i in range(row.size):
            largest[i] = row[i] if row[i] > largest[i] else largest[i]
    for k in range(width):
        row = rows[first + k]
        for i in range(row.size):
            total[i] += math.exp(row[i] - largest[i])
    log_total = largest  # the largest logit + log(sum of e**(x - largest))
    for i in range(total.size):
        log_total[i] += math.log(total[i])
    for k in range(width):
        add_row(rows[first + k], log_total, -1.0)


def through_log_softmax(chunk: Any, instruction: Any) -> None:
    """Add slopes of logits, d_k - p_k * (sum of d_j), from those of log-probabilities, d."""
    slopes, first, width = chunk.slopes, instruction.out, instruction.width
    total = slopes[first + width]  # the scratch row of the result
    fill(total, 0.0)
    for k in range(width):
        add_row(total, slopes[first + k], 1.0)
    for k in range(width):
        out, by_log_prob = slopes[instruction.a + k], slopes[first + k]
        log_probs = chunk.rows[first + k]
        for i in range(out.size):
            out[i] += by_log_prob[i] - math.exp(log_probs[i]) * total[i]


def entropy(chunk: Any, instruction: Any) -> None:
    """Write the entropy of a distribution, -sum of p_k log p_k."""
    out = chunk.rows[instruction.out]
    fill(out, 0.0)
    for k in range(instruction.a_step):
        log_probs = chunk.rows[instruction.a + k]
        for i in range(out.size):
            out[i] -= math.exp(log_probs[i]) * log_probs[i]


def through_entropy(chunk: Any, instruction: Any) -> None:
    """Add slopes of log-probabilities, -p_k (log p_k + 1) times that of the entropy."""
    slopes = chunk.slopes[instruction.out]
    for k in range(instruction.a_step):
        out, log_probs = chunk.slopes[instruction.a + k], chunk.rows[instruction.a + k]
        for i in range(out.size):
            out[i] -= slopes[i] * math.exp(log_probs[i]) * (log_probs[i] + 1.0)


# ---------------------------------------------------------------- noise


def draw_normal(chunk: Any, instruction: Any) -> None:
    """Draw standard normal noise."""
    for k in range(instruction.width):
        out, (low, high, begin) = chunk.rows[instruction.out + k], stream_of(chunk, instruction, k)
        for i in range(out.size):
            counter = chunk.samples[i] * 2 * instruction.width + begin
            first, second = uniform_pair(low, high, counter)
            out[i] = standard_normal(first, second)


def draw_uniform(chunk: Any, instruction: Any) -> None:
    """Draw noise from [0, 1)."""
    for k in range(instruction.width):
        out, (low, high, begin) = chunk.rows[instruction.out + k], stream_of(chunk, instruction, k)
        for i in range(out.size):
            counter = chunk.samples[i] * 2 * instruction.width + begin
            out[i], _ = uniform_pair(low, high, counter)


def stream_of(chunk: Any, instruction: Any, k: int) -> Any:
    """Return the key of an instruction's random stream, and the counter of its row k at sample 0.

    Each pair of an update and an instruction that draws has a stream, counted from 0. The key
    depends on the learner's, the gradient step and the stream; `instruction.index` numbers
    the instructions of an update that draw. Streams 0 and 1 have the same key, which saves nearly
    all algorithms a hash, and keep apart by even and odd counters.

    Returns:
        Two halves of the key, uint32, and the counter; that of sample i is 2 * width * i more.
    """
    settings = chunk.frame.settings
    low, high = mix(u32(settings.key_low), u32(settings.key_high), u32(chunk.number))
    stream = chunk.update + settings.num_updates * instruction.index
    if stream > 1:
        low, high = mix(low, high, u32(stream))
    return low, high, 2 * k + stream % 2


def uniform_pair(low: Any, high: Any, counter: int) -> Any:
    """Return the two numbers in [0, 1) that a key of uint32 `low` and `high` has for a counter."""
    a, b = mix(low, high, u32(counter))
    return _uniforms(a, b)
