"""Losses: scalar functions of one sample, made into loops over the samples of a chunk.

They are compiled apart from the update that calls them: another set of losses costs no other code.

A loss is plain Python for one sample,

    loss(numbers, sample, weights) -> (loss, statistics)

where a head makes `numbers` of the outputs, `sample` has a field for each column of the minibatch,
and `weights` are coefficients of the caller's. The numbers carry their slopes (`rlcpu.nn.duals`),
so that the derivatives of the loss by them need not be written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import errors, types

from rlcpu.kernels.calls import function_of, kind_of
from rlcpu.kernels.compile import define, inline, merge, specialise, tuple_of
from rlcpu.kernels.guard import place
from rlcpu.nn.duals import DualType, is_number, slopes_of, value_of, variables
from rlcpu.nn.heads import Head


class Loss(NamedTuple):
    """A term of what is minimised: the mean over the samples of a scalar function.

    Attributes:
        function: (numbers, sample, weights) -> (loss, statistics); see above.
        head: what its numbers are.
        statistics: names of what it returns second, of which `Learner.update` returns means.
        network: number of the network whose outputs the head reads.
        first, size: which outputs, `size` of them from `first` on; None for all that follow.
        slopes: (numbers, sample, weights) -> a tuple of slopes to learn from, in the place of the
            derivatives of the loss by the numbers; None for these.
    """

    function: Callable[..., Any]
    head: Head
    statistics: tuple[str, ...] = ()
    network: int = 0
    first: int = 0
    size: int | None = None
    slopes: Callable[..., Any] | None = None


class Term(NamedTuple):
    """What a loss's machine code depends on; see `Loss`."""

    function: Callable[..., Any]
    head: Head
    num_statistics: int
    slopes: Callable[..., Any] | None = None


class Objective(NamedTuple):
    """All that the machine code of losses depends on.

    Attributes:
        terms: the losses.
        columns: names of the columns of a minibatch.
        sample: NamedTuple with these fields.
        weights: kind of tuple that holds coefficients, and how many.
    """

    terms: tuple[Term, ...]
    columns: tuple[str, ...]
    sample: Any
    weights: tuple[type, int]

    @property
    def num_sums(self) -> int:
        """Losses and their statistics."""
        return sum(1 + term.num_statistics for term in self.terms)

    @property
    def most_numbers(self) -> int:
        """Of a head."""
        return max(len(term.head.names) for term in self.terms)


class Outputs(NamedTuple):
    """What losses are given: outputs of one network for a chunk of samples.

    Attributes:
        network: its number.
        outputs: (samples * width,), overwritten with derivatives.
        width: of a row of outputs, padded.
        rows: (any, samples), as `rlcpu.nn.heads` says.
        free: (F,) the network's free parameters, padded.
        free_slopes: (F,), to which derivatives by them are added.
        sums: float64, to which each loss and its statistics are added.
        share: 1 / samples of the minibatch.
        places, scales, weights, action_size: see `rlcpu.nn.update.Layout` and `Settings`.
    """

    network: int
    outputs: Any
    width: int
    rows: Any
    free: Any
    free_slopes: Any
    sums: Any
    share: Any
    places: Any
    scales: Any
    weights: Any
    action_size: int


def outputs_kind(dtype: type) -> Any:
    """Numba's type of `Outputs`."""
    row: Any = np.zeros(0, dtype)
    rows: Any = np.zeros((0, 0), dtype)
    sums = np.zeros(0)
    places = np.zeros((0, 3), np.int64)
    return kind_of(Outputs(0, row, 0, rows, row, row, sums, dtype(0), places, row, row, 0))


@functools.cache
def losses_at(dtype: type, objective: Objective) -> int:
    """Address of `losses(chunk)`: all losses of one network over a chunk of `Outputs`."""

    @merge
    def nothing(chunk):
        pass

    added, first_sum = nothing, 0
    for number, term in enumerate(objective.terms):
        added = _append(added, dtype, objective, number, first_sum)
        first_sum += 1 + term.num_statistics

    def losses(chunk):
        added(chunk)

    try:
        return function_of(losses, outputs_kind(dtype))
    except errors.NumbaError:
        for term in objective.terms:
            _check_results(dtype, objective, term)
        raise


def _append(
    before: Any, dtype: type, objective: Objective, number: int, first_sum: int
) -> Callable[..., None]:
    """The losses before one, and this one."""
    term, most = objective.terms[number], objective.most_numbers
    forward, backward = term.head.learn(dtype)
    loop, columns = _make_loop(dtype, objective, term), len(objective.columns)
    weights_of = tuple_of(*objective.weights)

    @merge
    def losses(chunk):
        before(chunk)
        if chunk.places[number, 0] == chunk.network:
            outputs, rows = chunk.outputs, chunk.rows
            place = chunk.width, chunk.places[number, 1], chunk.places[number, 2]
            numbers, slopes, given = rows[:most], rows[most : 2 * most], rows[2 * most :]
            heads = given[columns:]
            taken = rows[rows.shape[0] - chunk.action_size :]
            forward(outputs, place, numbers, slopes, heads, taken, chunk.free)
            totals = loop(numbers, slopes, given, weights_of(chunk.weights))
            for k in range(len(totals)):
                chunk.sums[first_sum + k] += totals[k]
            share = chunk.share * chunk.scales[number]
            free, free_slopes = chunk.free, chunk.free_slopes
            backward(outputs, place, numbers, slopes, heads, taken, free, free_slopes, share)

    return losses


def _make_loop(dtype: type, objective: Objective, term: Term) -> Callable[..., Any]:
    """`loop(numbers, slopes, columns, weights)`: slopes of all samples, and sums over them."""
    count, columns = len(term.head.names), objective.columns
    scope: dict[str, Any] = {"value_of": value_of, "slopes_of": slopes_of, "variables": variables}
    scope |= {"function": specialise(term.function, dtype), "Sample": objective.sample}
    scope |= {"zero": dtype(0), "zeros": (dtype(0),) * count}
    numbers, slopes = "variables(numbers)", "slopes_of(loss, zeros)"
    if term.slopes is not None:
        numbers, slopes = "numbers", "slopes_function(numbers, sample, weights)"
        scope["slopes_function"] = specialise(term.slopes, dtype)
    rows = {f"n{k}": f"numbers[{k}]" for k in range(count)}
    rows |= {f"s{k}": f"slopes[{k}]" for k in range(count)}
    rows |= {f"c{k}": f"columns[{k}]" for k in range(len(columns))}
    totals = ["t", *(f"t{k}" for k in range(term.num_statistics))]
    statistics = "".join(f"statistic_{name}, " for name in totals[1:])
    row = "".join(f"n{k}[i], " for k in range(count))
    sample = f"Sample({', '.join(f'c{k}[i]' for k in range(len(columns)))})" if columns else "()"
    lines = [
        f"def loop({', '.join(rows)}, weights):",
        *(f"    {name} = zero" for name in totals),
        "    for i in range(s0.size):",
        f"        numbers, sample = ({row}), {sample}",
        f"        loss, ({statistics}) = function({numbers}, sample, weights)",
        f"        slopes = {slopes}",
        *(f"        s{k}[i] = slopes[{k}]" for k in range(count)),
        "        t += value_of(loss)",
        *(f"        {name} += value_of(statistic_{name})" for name in totals[1:]),
        f"    return ({', '.join(totals)},)",
    ]
    loop = define("\n".join(lines), **scope)
    arguments = ", ".join([*rows.values(), "weights"])
    call = f"def call(numbers, slopes, columns, weights): return loop({arguments})"
    return merge(define(call, loop=inline(loop)))


def _check_results(dtype: type, objective: Objective, term: Term) -> None:
    """Raise TypeError, with its place, for a loss that returns something else than it has to."""
    real, kind, count = types.float32 if dtype is np.float32 else types.float64, *objective.weights
    tuple_kind = types.BaseTuple.from_types
    numbers = DualType(real, len(term.head.names))
    sample = tuple_kind((real,) * len(objective.columns), objective.sample)
    function = specialise(term.function, dtype)
    function.compile(
        (types.UniTuple(numbers, numbers.count), sample, tuple_kind((real,) * count, kind))
    )
    (overload,) = function.overloads.values()
    result = overload.signature.return_type
    numbers_of = [result[0], *result[1]] if _is_pair(result) else []
    if len(numbers_of) != 1 + term.num_statistics or not all(map(is_number, numbers_of)):
        code = term.function.__code__
        raise TypeError(
            f"{place(code.co_filename, code.co_firstlineno, code.co_name)} returns {result}: "
            f"expected (loss, statistics), a number and a tuple of {term.num_statistics} numbers"
        )


def _is_pair(kind: Any) -> bool:
    """Whether a type is that of a pair, whose second item is a tuple."""
    is_pair = isinstance(kind, types.BaseTuple) and len(kind) == 2
    return is_pair and isinstance(kind[1], types.BaseTuple)
