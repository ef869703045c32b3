"""Losses: scalar functions of one sample, made into loops over the samples of a chunk.

A loss is plain Python for one sample,

    loss(numbers, sample, weights) -> (loss, slopes, statistics)

where a head makes `numbers` of the outputs, `sample` has a field for each column of the minibatch,
and `weights` are coefficients of the caller's; `slopes` are the derivatives by the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rlcpu.kernels.compile import define, inline, merge, specialise
from rlcpu.nn.heads import Head


class Loss(NamedTuple):
    """A term of what is minimised: the mean over the samples of a scalar function.

    Attributes:
        function: (numbers, sample, weights) -> (loss, slopes, statistics); see above.
        head: what its numbers are.
        statistics: names of what it returns third, of which `Learner.update` returns means.
        network: number of the network whose outputs the head reads.
        first, size: which outputs, `size` of them from `first` on; None for all that follow.
    """

    function: Callable[..., Any]
    head: Head
    statistics: tuple[str, ...] = ()
    network: int = 0
    first: int = 0
    size: int | None = None


class Term(NamedTuple):
    """What a loss's machine code depends on; see `Loss`."""

    function: Callable[..., Any]
    head: Head
    num_statistics: int


class Objective(NamedTuple):
    """All that the machine code of an update depends on.

    Attributes:
        terms: the losses.
        columns: names of the columns of a minibatch.
        sample: NamedTuple with these fields.
    """

    terms: tuple[Term, ...]
    columns: tuple[str, ...]
    sample: Any

    @property
    def num_sums(self) -> int:
        """Losses and their statistics."""
        return sum(1 + term.num_statistics for term in self.terms)

    @property
    def most_numbers(self) -> int:
        """Of a head."""
        return max(len(term.head.names) for term in self.terms)


def make_losses(dtype: type, objective: Objective) -> Callable[..., None]:
    """`losses(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums)`.

    All losses of one network over a chunk of samples, one after the other: they write derivatives
    in the place of outputs, add those by the free parameters to `free_slopes`, and to `sums` each
    loss and its statistics. `rows` are as `rlcpu.nn.heads` says.
    """

    @merge
    def losses(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums):
        pass

    first_sum = 0
    for number, term in enumerate(objective.terms):
        losses = _append(losses, dtype, objective, number, first_sum)
        first_sum += 1 + term.num_statistics
    return losses


def _append(
    before: Any, dtype: type, objective: Objective, number: int, first_sum: int
) -> Callable[..., None]:
    """The losses before one, and this one."""
    term, most = objective.terms[number], objective.most_numbers
    forward, backward = term.head.learn(dtype)
    loop, columns = _make_loop(dtype, objective, term), len(objective.columns)

    @merge
    def losses(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums):
        before(network, outputs, width, rows, free, free_slopes, share, layout, settings, sums)
        if layout.places[number, 0] == network:
            place = width, layout.places[number, 1], layout.places[number, 2]
            numbers, slopes, given = rows[:most], rows[most : 2 * most], rows[2 * most :]
            heads = given[columns:]
            taken = rows[rows.shape[0] - settings.action_size :]
            forward(outputs, place, numbers, slopes, heads, taken, free)
            totals = loop(numbers, slopes, given, settings.weights)
            for k in range(len(totals)):
                sums[first_sum + k] += totals[k]
            scaled = share * settings.scales[number]
            backward(outputs, place, numbers, slopes, heads, taken, free, free_slopes, scaled)

    return losses


def _make_loop(dtype: type, objective: Objective, term: Term) -> Callable[..., Any]:
    """`loop(numbers, slopes, columns, weights)`: slopes of all samples, and sums over them."""
    count, columns = len(term.head.names), objective.columns
    rows = {f"n{k}": f"numbers[{k}]" for k in range(count)}
    rows |= {f"s{k}": f"slopes[{k}]" for k in range(count)}
    rows |= {f"c{k}": f"columns[{k}]" for k in range(len(columns))}
    totals = ["t", *(f"t{k}" for k in range(term.num_statistics))]
    numbers = "".join(f"n{k}[i], " for k in range(count))
    sample = f"Sample({', '.join(f'c{k}[i]' for k in range(len(columns)))})" if columns else "()"
    lines = [
        f"def loop({', '.join(rows)}, weights):",
        *(f"    {name} = zero" for name in totals),
        "    for i in range(s0.size):",
        f"        loss, slopes, seen = function(({numbers}), {sample}, weights)",
        *(f"        s{k}[i] = slopes[{k}]" for k in range(count)),
        "        t += loss",
        *(f"        {name} += seen[{k}]" for k, name in enumerate(totals[1:])),
        f"    return ({', '.join(totals)},)",
    ]
    function = specialise(term.function, dtype)
    loop = define("\n".join(lines), function=function, Sample=objective.sample, zero=dtype(0))
    arguments = ", ".join([*rows.values(), "weights"])
    call = f"def call(numbers, slopes, columns, weights): return loop({arguments})"
    return merge(define(call, loop=inline(loop)))
