"""The words that an algorithm is written with; see `rlcpu.nn.tape` for how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rlcpu.nn.tape import (
    ARGMAX,
    ENTROPY,
    NORMAL,
    SOFTMAX,
    SUM,
    TAKE,
    UNIFORM,
    Column,
    Mean,
    Tape,
    Tensor,
    at_user,
)


def each(function: Callable[..., Any], *arguments: Any, results: int = 0) -> Any:
    """Apply a scalar function to each sample.

    Args:
        function: plain Python of as many numbers as there are arguments, which returns a number or
            a tuple of them. Its derivatives are found by rlcpu, see `rlcpu.nn.duals`.
        *arguments: tensors, columns and settings; those of one number serve all numbers of others.
        results: how many numbers the tuple has; 0 for a function that returns a number.

    Returns:
        A tensor, or a tuple of them.
    """
    return _tape_of(arguments).call(function, arguments, results)


def take(tensor: Any, index: Any) -> Tensor:
    """The number that an index (0 for the first) picks, such as the value of the action taken."""
    tape = _tape_of((tensor, index))
    source = tape.tensor(tensor)
    if isinstance(index, Column):
        tape.limit_index(index, source.width)
    chosen = tape.tensor(index)
    out = tape.new(1, source.has_gradient)
    tape.write(
        TAKE,
        out,
        a=source.place,
        a_step=source.width,
        a_gradient=source.has_gradient,
        b=chosen.place,
    )
    return out


def argmax(tensor: Any, allowed: Any = None) -> Tensor:
    """Index of the largest number, the first of equals; among those whose `allowed` is not 0."""
    tape = _tape_of((tensor,))
    source = tape.tensor(tensor)
    out = tape.new(1, False, scratch=1)
    tape.write(ARGMAX, out, a=source.place, a_step=source.width, c=_mask(tape, source, allowed))
    return out


def max(tensor: Any, allowed: Any = None) -> Tensor:
    """The largest number."""
    return take(tensor, argmax(tensor, allowed))


def hold(value: Any) -> Any:
    """The same numbers, through which no derivative goes."""
    if isinstance(value, int | float):
        return value
    tape = _tape_of((value,))
    source = tape.tensor(value)
    return Tensor(tape, source.place, source.width, False, source.is_common)


def log_softmax(logits: Any, allowed: Any = None) -> Tensor:
    """Logarithms of probabilities that are proportional to e**logits, among the allowed."""
    tape = _tape_of((logits,))
    source = tape.tensor(logits)
    out = tape.new(source.width, source.has_gradient, scratch=1)
    tape.write(
        SOFTMAX, out, a=source.place, a_gradient=source.has_gradient, c=_mask(tape, source, allowed)
    )
    return out


def entropy(log_probs: Any) -> Tensor:
    """Entropy (nats) of a distribution, -sum(p log p)."""
    tape = _tape_of((log_probs,))
    source = tape.tensor(log_probs)
    out = tape.new(1, source.has_gradient)
    tape.write(ENTROPY, out, a=source.place, a_step=source.width, a_gradient=source.has_gradient)
    return out


def sum(tensor: Any) -> Tensor:
    """Sum of the numbers of each sample."""
    tape = _tape_of((tensor,))
    source = tape.tensor(tensor)
    out = tape.new(1, source.has_gradient)
    tape.write(SUM, out, a=source.place, a_step=source.width, a_gradient=source.has_gradient)
    return out


def normal(like: Any) -> Tensor:
    """Standard normal noise, new in each update, of the width of another tensor."""
    return _draw(NORMAL, like)


def uniform(like: Any) -> Tensor:
    """Noise from [0, 1), new in each update, of the width of another tensor."""
    return _draw(UNIFORM, like)


def mean(value: Any) -> Mean:
    """Mean over the samples of a minibatch."""
    tape = _tape_of((value,))
    tensor = tape.tensor(value)
    if tensor.width != 1:
        raise ValueError(
            at_user(f"takes the mean of {tensor.width} numbers of a sample: sum first")
        )
    return Mean(tensor)


def standardise(column: Any) -> Tensor:
    """A column of the batch less its mean over the minibatch, divided by its deviation."""
    if not isinstance(column, Column):
        raise TypeError(at_user(f"standardises {column!r}: expected a column of the batch"))
    if column.width != 1:
        raise ValueError(at_user(f"standardises {column.width} numbers of a sample: expected 1"))
    return column.tape.read_column(column, standardise=True)


def _draw(code: int, like: Any) -> Tensor:
    tape = _tape_of((like,))
    out = tape.new(tape.tensor(like).width, False)
    tape.write(code, out, what=tape.streams)
    tape.streams += 1
    return out


def _mask(tape: Tape, source: Tensor, allowed: Any) -> int:
    if allowed is None:
        return -1
    mask = tape.tensor(allowed)
    if mask.width != source.width:
        raise ValueError(at_user(f"allows {mask.width} of {source.width} numbers"))
    return mask.place


def _tape_of(values: Iterable[Any]) -> Tape:
    """The tape that one of the values is on."""
    for value in values:
        if isinstance(value, Tensor):
            return value.tape
    raise TypeError(at_user(f"computes with {list(values)!r}: expected tensors"))
