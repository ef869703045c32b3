"""Instructions of distributions: logarithms of probabilities, entropy, and noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcpu.kernels.random import mix, uniforms
from rlcpu.nn.heads import FORBIDDEN, standard_normal
from rlcpu.nn.instructions.numbers import fill_row

u32 = np.uint32
_uniforms = uniforms(2, 0, np.float32)

# ---------------------------------------------------------------- probabilities


def log_softmax(chunk: Any, instruction: Any) -> None:
    """Write logarithms of probabilities, x_k - log(sum of e**x_j).

    The row behind the results holds the logarithm of the sum.
    """
    rows, first, width = chunk.rows, instruction.out, instruction.width
    largest, total = rows[first + width], chunk.slopes[first + width]
    fill_row(largest, -math.inf)
    fill_row(total, 0.0)
    for k in range(width):
        row, logits = rows[first + k], rows[instruction.a + k]
        if instruction.c < 0:
            copy_logits(row, largest, logits)
        else:
            copy_allowed(row, largest, logits, rows[instruction.c + k])
    for k in range(width):
        add_exponentials(total, rows[first + k], largest)
    add_logarithms(largest, total)
    for k in range(width):
        subtract_row(rows[first + k], largest)


def copy_logits(row: Any, largest: Any, logits: Any) -> None:
    """Copy logits, and keep the largest."""
    for i in range(row.size):
        row[i] = logits[i]
        largest[i] = logits[i] if logits[i] > largest[i] else largest[i]


def copy_allowed(row: Any, largest: Any, logits: Any, allowed: Any) -> None:
    """Copy logits of allowed actions, and keep the largest."""
    for i in range(row.size):
        logit = logits[i] if allowed[i] != 0.0 else FORBIDDEN
        row[i] = logit
        largest[i] = logit if logit > largest[i] else largest[i]


def add_exponentials(total: Any, row: Any, largest: Any) -> None:
    """Add e**(x - largest)."""
    for i in range(total.size):
        total[i] += math.exp(row[i] - largest[i])


def add_logarithms(out: Any, row: Any) -> None:
    """Add the logarithms of a row."""
    for i in range(out.size):
        out[i] += math.log(row[i])


def subtract_row(out: Any, row: Any) -> None:
    """Subtract a row."""
    for i in range(out.size):
        out[i] -= row[i]


def through_log_softmax(chunk: Any, instruction: Any) -> None:
    """Give derivatives by log-probabilities to logits: d_k - p_k * (sum of d_j)."""
    slopes, first, width = chunk.slopes, instruction.out, instruction.width
    total = slopes[first + width]
    fill_row(total, 0.0)
    for k in range(width):
        slope = slopes[first + k]
        for i in range(total.size):
            total[i] += slope[i]
    for k in range(width):
        log_probs = chunk.rows[first + k]
        subtract_shares(slopes[instruction.a + k], slopes[first + k], log_probs, total)


def subtract_shares(out: Any, slopes: Any, log_probs: Any, total: Any) -> None:
    """Add derivatives of one logit."""
    for i in range(out.size):
        out[i] += slopes[i] - math.exp(log_probs[i]) * total[i]


def entropy(chunk: Any, instruction: Any) -> None:
    """Write the entropy of a distribution, -sum of p_k log p_k."""
    out = chunk.rows[instruction.out]
    fill_row(out, 0.0)
    for k in range(instruction.a_step):
        log_probs = chunk.rows[instruction.a + k]
        for i in range(out.size):
            out[i] -= math.exp(log_probs[i]) * log_probs[i]


def through_entropy(chunk: Any, instruction: Any) -> None:
    """Give derivatives by an entropy to log-probabilities: -p_k (log p_k + 1)."""
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
            first, second = numbers_of(low, high, chunk.samples[i] * 2 * instruction.width + begin)
            out[i] = standard_normal(first, second)


def draw_uniform(chunk: Any, instruction: Any) -> None:
    """Draw noise from [0, 1)."""
    for k in range(instruction.width):
        out, (low, high, begin) = chunk.rows[instruction.out + k], stream_of(chunk, instruction, k)
        for i in range(out.size):
            first, _ = numbers_of(low, high, chunk.samples[i] * 2 * instruction.width + begin)
            out[i] = first


def stream_of(chunk: Any, instruction: Any, k: int) -> Any:
    """Return the key of an instruction's random stream, and where that of its row k begins.

    Two streams take turns under one key.
    """
    settings = chunk.frame.settings
    low, high = mix(settings.key_low, settings.key_high, u32(chunk.number))
    stream = chunk.update + settings.every.size * instruction.index
    if stream > 1:
        low, high = mix(low, high, u32(stream))
    return low, high, 2 * k + stream % 2


def numbers_of(low: Any, high: Any, place: int) -> Any:
    """Return two numbers of a stream, in [0, 1)."""
    a, b = mix(low, high, u32(place))
    return _uniforms(a, b)
