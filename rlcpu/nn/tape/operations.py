"""Operations on tensors, by which algorithms are written; see `rlcpu.nn.tape.tracing`.

Each writes an instruction to the tape of its arguments, and returns the tensor of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlcpu.nn.network.heads import HALF_LOG_2_PI
from rlcpu.nn.tape.refusals import at_user
from rlcpu.nn.tape.tensors import Column, Mean, Tensor
from rlcpu.nn.tape.tracing import Tape


def each(function: Callable[..., Any], *arguments: Any, results: int = 0) -> Any:
    """Apply a scalar function to each sample.

    Args:
        function: plain Python of as many numbers as there are arguments, which returns a number or
            a tuple of them; or one of `math`, `abs`, `min` or `max`. rlcpu computes its
            derivatives, see `rlcpu.nn.duals.numbers`.
        *arguments: tensors, columns, settings and constants, such as [0.1, 0.5, 0.9]; those of one
            number serve all numbers of others.
        results: how many numbers the tuple has; 0 for a function that returns a number.

    Returns:
        A tensor, or a tuple of them.
    """
    return _tape_of(arguments).apply_function(function, arguments, results)


def pairs(function: Callable[..., Any], x: Any, y: Any, *arguments: Any) -> Tensor:
    """Return the mean of a scalar function over all pairs of a number of x and one of y.

    For each sample it is the sum of function(x_i, y_j, a_i, ...) over i and j, divided by n * m,
    and takes no memory for the n * m results. A sum over i of means over j, such as the quantile
    Huber loss (Dabney et al. 2018, equation 10), is n times as much.

    Args:
        function: plain Python of as many numbers as there are arguments, which returns a number.
        x: (n) numbers of each sample.
        y: (m) numbers of each sample.
        *arguments: tensors, columns, settings and constants, of n numbers, a_i for x_i, or of one.

    Returns:
        A tensor of one number, through which derivatives go to all arguments.

    Raises:
        TypeError, ValueError: an argument has another number of numbers, or is none of these.
    """
    return _tape_of((x, y, *arguments)).apply_to_pairs(function, (x, y, *arguments))


def sort(tensor: Any) -> Tensor:
    """Return the numbers of each sample in ascending order, through which no derivative goes.

    A sample with a NaN among its numbers has the same numbers in some order.
    """
    tape = _tape_of((tensor,))
    source = tape.tensor(tensor)
    out = tape.new(source.width, has_gradient=False)
    tape.write("sort", out, a=source.place)
    return out


def take(tensor: Any, index: Any, count: int = 1) -> Tensor:
    """Return the numbers at an index (0 for the first), such as the value of the action taken.

    Args:
        tensor: groups of `count` numbers of each sample, one group after the other.
        index: of the group.
        count: numbers of a group, such as the quantiles of an action.

    Raises:
        ValueError: the tensor is no whole number of groups.
    """
    tape = _tape_of((tensor, index))
    source = tape.tensor(tensor)
    if count < 1 or source.width % count:
        raise ValueError(at_user(f"takes {count} of {source.width} numbers: expected a divisor"))
    groups = source.width // count
    if isinstance(index, int | np.integer) and not 0 <= index < groups:
        raise ValueError(at_user(f"takes number {index}: expected 0 to {groups - 1}"))
    if isinstance(index, Column):
        tape.limit_index(index, groups)
    return _reduce("take", source, count, b=tape.tensor(index).place)


def argmax(tensor: Any, *, allowed: Any = None) -> Tensor:
    """Return the index of the largest number, the first of equals, where `allowed` is not 0."""
    tape = _tape_of((tensor,))
    source = tape.tensor(tensor)
    out = tape.new(1, has_gradient=False, scratch=1)  # scratch for the largest number
    tape.write("argmax", out, a=source.place, a_step=source.width, c=_mask(tape, source, allowed))
    return out


def max(tensor: Any, *, allowed: Any = None) -> Tensor:
    """Return the largest number, where `allowed` is not 0."""
    return take(tensor, argmax(tensor, allowed=allowed))


def hold(value: Any) -> Any:
    """Return the same numbers, through which no derivative goes: a "stop gradient"."""
    if isinstance(value, int | float):
        return value
    tape = _tape_of((value,))
    source = tape.tensor(value)
    return Tensor(tape, source.place, source.width, False, source.is_common)


def ahead(tensor: Any, steps: Any) -> Tensor:
    """Return the numbers of the same sequence `steps` time steps later, without derivatives.

    What lies behind the last time step of a sequence has the numbers of the last one.
    """
    tape = _tape_of((tensor, steps))
    source, count = tape.tensor(tensor), tape.tensor(steps)
    out = tape.new(source.width, has_gradient=False)
    tape.write("ahead", out, a=source.place, b=count.place)
    return out


def log_softmax(logits: Any, *, allowed: Any = None) -> Tensor:
    """Return logarithms of probabilities proportional to e**logits, where `allowed` is not 0."""
    tape = _tape_of((logits,))
    source = tape.tensor(logits)
    out = tape.new(source.width, source.has_gradient, scratch=1)
    tape.write(
        "log_softmax",
        out,
        arguments=[source],
        a=source.place,
        a_gradient=source.has_gradient,
        c=_mask(tape, source, allowed),
    )
    return out


def entropy(log_probs: Any) -> Tensor:
    """Return the entropy (nats) of a distribution, -sum(p log p)."""
    return _reduce("entropy", _tape_of((log_probs,)).tensor(log_probs))


def sum(tensor: Any) -> Tensor:
    """Return the sum of the numbers of each sample."""
    return _reduce("sum", _tape_of((tensor,)).tensor(tensor))


def normal(like: Any) -> Tensor:
    """Draw standard normal noise, new in each update, of the width of another tensor."""
    return _draw("normal", like)


def uniform(like: Any) -> Tensor:
    """Draw noise from [0, 1), new in each update, of the width of another tensor."""
    return _draw("uniform", like)


def mean(value: Any) -> Mean:
    """Return the mean over the samples of a minibatch."""
    tape = _tape_of((value,))
    tensor = tape.tensor(value)
    if tensor.width != 1:
        raise ValueError(
            at_user(f"takes the mean of {tensor.width} numbers of a sample: nn.sum(x) first")
        )
    return Mean(tensor)


def standardise(column: Any) -> Tensor:
    """Return a column less its mean over the minibatch, divided by its deviation plus 1e-8.

    The deviation is that of `torch.std`: of n samples the squares' sum is divided by n - 1. A
    minibatch of one sample stays as it is.
    """
    if not isinstance(column, Column):
        raise TypeError(
            at_user(
                f"standardises {column!r}: expected a column of the batch, whose moments are "
                "computed before any instruction runs"
            )
        )
    if column.width != 1:
        raise ValueError(at_user(f"standardises {column.width} numbers of a sample: expected 1"))
    return column.tape.read_column(column, standardise=True)


# ---------------------------------------------------------------- distributions of actions
#
# Log-probabilities and entropies are in nats. Source: Williams 1992, "Simple statistical
# gradient-following algorithms".


def categorical(logits: Any, action: Any, allowed: Any = None) -> tuple[Tensor, Tensor]:
    """Return an action's log-probability and the entropy, of probabilities as e**logits.

    Args:
        logits: a number for each action.
        action: number of the one that was taken.
        allowed: not 0 for the actions that can be taken; the others have probability 0.
    """
    log_probs = log_softmax(logits, allowed=allowed)
    return take(log_probs, action), entropy(log_probs)


def categoricals(
    logits: Any, actions: Any, choices: tuple[int, ...], allowed: Any = None
) -> tuple[Tensor, Tensor]:
    """Sum log-probabilities and entropies of categorical distributions, in order of their logits.

    Args:
        logits: of all distributions, one after the other.
        actions: the numbers that were taken.
        choices: how many each distribution has.
        allowed: not 0 for the choices that can be taken, in the order of the logits.
    """
    log_prob: Any = 0.0
    total_entropy: Any = 0.0
    begin = 0
    for k, count in enumerate(choices):
        end = begin + count
        mask = None if allowed is None else allowed[begin:end]
        log_prob_k, entropy_k = categorical(logits[begin:end], actions[k], mask)
        log_prob, total_entropy = log_prob + log_prob_k, total_entropy + entropy_k
        begin = end
    return log_prob, total_entropy


def gaussian(mean: Any, log_std: Any, action: Any) -> tuple[Tensor, Tensor]:
    """Return the log-density of an action of independent normal numbers, and their entropy."""
    log_density = sum(each(normal_log_density, action, mean, log_std))
    return log_density, sum(log_std + (0.5 + HALF_LOG_2_PI))


def normal_log_density(x: float, mean: float, log_std: float) -> float:
    """Return the log-density of x under Normal(mean, exp(log_std))."""
    z = (x - mean) * math.exp(-log_std)
    return -0.5 * z * z - log_std - HALF_LOG_2_PI


# ---------------------------------------------------------------- writing instructions


def _reduce(kind: str, source: Tensor, width: int = 1, **fields: int) -> Tensor:
    """Write an instruction of a kind that makes `width` numbers of all numbers of a tensor."""
    out = source.tape.new(width, source.has_gradient)
    source.tape.write(
        kind,
        out,
        arguments=[source],
        a=source.place,
        a_step=source.width,  # of these kinds the rows that they read
        a_gradient=source.has_gradient,
        **fields,
    )
    return out


def _draw(kind: str, like: Any) -> Tensor:
    """Write an instruction that draws noise, with a random stream of its own."""
    tape = _tape_of((like,))
    out = tape.new(tape.tensor(like).width, has_gradient=False)
    tape.write(kind, out, index=tape.streams)
    tape.streams += 1
    return out


def _mask(tape: Tape, source: Tensor, allowed: Any) -> int:
    """Return the first row of a mask, -1 for none."""
    if allowed is None:
        return -1
    mask = tape.tensor(allowed)
    if mask.width != source.width:
        raise ValueError(at_user(f"allows {mask.width} of {source.width} numbers"))
    return mask.place


def _tape_of(values: Iterable[Any]) -> Tape:
    """Return the tape of the first tensor among values."""
    for value in values:
        if isinstance(value, Tensor):
            return value.tape
    raise TypeError(at_user(f"computes with {list(values)!r}: expected tensors"))
