"""How everything is measured: jobs, duels between them, and a process of its own for a row.

Two timings taken one after the other on a shared machine differ by more than most optimisations. So
jobs alternate: every round gives one ratio, and the median of those is the figure.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import numpy as np

from asv_benches.peers.libraries import jax

Arguments = tuple[Any, ...]
Inputs = Callable[[np.random.Generator, int], Iterable[Arguments]]
How = Literal["rate", "time", "cost", "peak", "share"]

# OpenMP's idle threads spin for 3 to 5 ms after a parallel region and would take a core from the
# next job; the pause outlasts them.
PAUSE_S = 0.02
POOL = 8  # different inputs per repetition where copying takes the same time whatever the numbers
PREPARED_BYTES = 2**26  # of inputs in turn: more than the caches hold, as new data would be
PREPARED = 16  # of them at most: enough to teach the branch predictor nothing
GRACE_S = 10.0  # in which a process that has answered may end what it started, such as a cluster
PANEL_ROUNDS = 5  # at most: a curve needs no third digit


class Effort(NamedTuple):
    """How long to measure.

    Attributes:
        rounds: repetitions of every job.
        burst_s: least duration of one repetition, in seconds.
        seeds: training runs of every agent.
        starts: fresh processes for an import time.
    """

    rounds: int
    burst_s: float
    seeds: int
    starts: int


FULL = Effort(rounds=9, burst_s=0.04, seeds=3, starts=7)
QUICK = Effort(rounds=3, burst_s=0.01, seeds=2, starts=3)


# ---------------------------------------------------------------- jobs and their inputs


def nothing(rng: np.random.Generator, count: int) -> Iterable[Arguments]:
    """The inputs of calls without arguments: states and random numbers run on, never the same."""
    return itertools.repeat((), count)


class Job(NamedTuple):
    """One way to do the work, ready to run.

    Attributes:
        call: timed, once for each tuple of arguments.
        inputs: (rng, count) -> fresh random arguments of so many calls. Not timed.
        work: units of work of one call: environment steps, operations, or the call itself.
        finish: called at the end of a repetition, and timed: waits for what the calls began.
        note: for the reader of the table.
    """

    call: Callable[..., Any]
    inputs: Inputs = nothing
    work: float = 1.0
    finish: Callable[[], Any] | None = None
    note: str = ""


#: A contender: imports, allocates and compiles in the process that does the timing, and raises
#: ModuleNotFoundError where its library is not installed. Picklable: a `partial` of a function.
Contender = Callable[[], Job]


def drawn(draw: Callable[[np.random.Generator], Arguments], most: int = POOL) -> Inputs:
    """Inputs drawn anew for each repetition, `most` of them, then the first again."""

    def inputs(rng: np.random.Generator, count: int) -> Iterable[Arguments]:
        pool = [draw(rng) for _ in range(min(most, count))]
        return itertools.islice(itertools.cycle(pool), count)

    return inputs


def prepared(
    problem: Any, call: Callable[..., Any], convert: Callable[..., Arguments] | None = None
) -> Job:
    """A call on inputs drawn before: all contenders have the same numbers, each its own copy.

    Args:
        problem: whose `draw(rng)` gives the arrays of one call.
        call: returns the solution, for the tests.
        convert: to the contender's own kind of array. Not timed.
    """
    rng = np.random.default_rng(0)
    first = problem.draw(rng)
    most = min(PREPARED, -(-PREPARED_BYTES // sum(array.nbytes for array in first)))
    pool = [first, *(problem.draw(rng) for _ in range(1, most))]
    if convert:
        pool = [convert(*arrays) for arrays in pool]

    def inputs(rng: np.random.Generator, count: int) -> Iterable[Arguments]:
        """In turn, from a random one on."""
        begin = int(rng.integers(len(pool)))
        return itertools.islice(itertools.cycle([*pool[begin:], *pool[:begin]]), count)

    return Job(call, inputs)


def jax_keys(rng: np.random.Generator, count: int) -> list[Arguments]:
    """Fresh keys of JAX's generator."""
    return [(jax.random.key(number),) for number in rng.integers(2**32, size=count).tolist()]


def jax_loop(
    function: Callable[..., Any], state: Any, work: float = 1.0, inputs: Inputs = jax_keys
) -> Job:
    """A function of JAX's (state, *inputs) that returns the next state.

    Only the last call of a repetition is waited for; the others overlap as XLA sees fit.
    """

    def call(*arguments: Any) -> None:
        nonlocal state
        state = function(state, *arguments)

    return Job(call, inputs, work, lambda: jax.block_until_ready(state))


def set_up(makers: Mapping[str, Contender]) -> tuple[dict[str, Job], dict[str, Exception]]:
    """The jobs that are ready, and what keeps the others from taking part."""
    ready, failed = {}, {}
    for name, make in makers.items():
        try:
            ready[name] = make()
        except Exception as error:  # a peer may fail in any way; the table says which
            failed[name] = error
    return ready, failed


def best_of(name: str, variants: Mapping[str, Contender]) -> Contender:
    """The contender that is the fastest of several variants where it is timed."""
    return partial(fastest, name, variants)


def fastest(name: str, variants: Mapping[str, Contender]) -> Job:
    """Sets up every variant, times them briefly and keeps the fastest.

    Raises:
        Exception: of the first variant, where none can be set up.
    """
    ready, failed = set_up(variants)
    if not ready:
        raise next(iter(failed.values()))
    medians = np.median(interleave(list(ready.values()), QUICK._replace(rounds=5)), axis=0)
    seconds = dict(zip(ready, medians.tolist(), strict=True))
    chosen = min(seconds, key=seconds.__getitem__)
    others = [f"{k} {seconds[chosen] / s:.2f}x" for k, s in seconds.items() if k != chosen]
    note = f"{name}: {chosen} (slower: {', '.join(others) or 'none'})"
    return ready[chosen]._replace(note=note)


# ---------------------------------------------------------------- timing


def seconds_per_unit(job: Job, rng: np.random.Generator, count: int) -> float:
    """Times one repetition of `count` calls on fresh inputs, in seconds per unit of work."""
    inputs, call = job.inputs(rng, count), job.call
    begin = time.perf_counter()
    for arguments in inputs:
        call(*arguments)
    if job.finish:
        job.finish()
    return (time.perf_counter() - begin) / (count * job.work)


def calibrate(job: Job, rng: np.random.Generator, burst_s: float) -> int:
    """The number of calls that lasts at least `burst_s`; its trial runs are the warm-up."""
    seconds_per_unit(job, rng, 2)
    count = 1
    while True:
        seconds = seconds_per_unit(job, rng, count) * count * job.work
        if seconds >= burst_s:
            return count
        # At most eightfold: a first timing that was disturbed must not decide.
        count *= min(8, max(2, int(np.ceil(burst_s / max(seconds, 1e-9)))))


def interleave(
    jobs: Sequence[Job],
    effort: Effort,
    *,
    pause_s: float = PAUSE_S,
) -> np.ndarray:
    """Times every job once per round, a different one first each round.

    Returns:
        (rounds, jobs) float64 seconds per unit of work.
    """
    rng = np.random.default_rng(0)
    counts = [calibrate(job, rng, effort.burst_s) for job in jobs]
    seconds = np.empty((effort.rounds, len(jobs)))
    for round_ in range(effort.rounds):
        for turn in range(len(jobs)):
            index = (round_ + turn) % len(jobs)
            time.sleep(pause_s)
            seconds[round_, index] = seconds_per_unit(jobs[index], rng, counts[index])
    return seconds


# ---------------------------------------------------------------- comparisons


@dataclass(frozen=True)
class Measurement:
    """One comparison.

    Attributes:
        ours: our figure, or why there is none.
        peer: the peer's figure, or why there is none.
        ratio: median ratio, None where a figure is missing.
        spread: lower and upper quartile of the ratio over the rounds.
        note: settings that were chosen by measurement, and other facts for the reader.
        details: further figures, for the JSON file.
    """

    ours: float | str
    peer: float | str
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Duel:
    """Ours and one peer, interleaved. Called in the process that times them.

    Attributes:
        ours: this side's figure comes first.
        peer: the other side.
        how: "rate" shows units of work per second, "time" seconds per unit; both ratios say how
            many times faster ours is. "cost" is how many times as long ours takes. "peak" and
            "share" set ours against the machine's limit, in rates and in times.
    """

    ours: Contender
    peer: Contender
    how: How = "rate"

    def __call__(self, effort: Effort) -> Measurement:
        """Measures; a contender that cannot take part leaves the other one's figure."""
        ready, failed = set_up({"ours": self.ours, "peer": self.peer})
        seconds = representative(interleave(list(ready.values()), effort), self.how)
        medians = np.median(seconds, axis=0)
        figures = 1 / medians if self.how in ("rate", "peak") else medians
        shown: dict[str, Any] = dict(zip(ready, figures.tolist(), strict=True))
        shown |= {side: explain(error)[0] for side, error in failed.items()}
        notes = [job.note for job in ready.values()]
        notes += [": ".join(explain(error)) for error in failed.values()]
        note = "; ".join(filter(None, notes))
        if failed:
            return Measurement(**shown, note=note)
        ratios = seconds[:, 1] / seconds[:, 0]
        ratios = 1 / ratios if self.how == "cost" else ratios
        low, ratio, high = np.percentile(ratios, (25, 50, 75)).tolist()
        return Measurement(**shown, ratio=ratio, spread=(low, high), note=note)


def representative(seconds: np.ndarray, how: How) -> np.ndarray:
    """The timings (rounds, contenders) from which figures and ratios are made.

    A disturbed round of the machine's limit is no limit: "peak" gives every round the limit's
    fastest timing. "share" pairs the best rounds of both sides, a fifth of them, because a
    disturbed round of ours says nothing of the kernel.
    """
    if how == "peak":
        limit = seconds[:, 1:].min(axis=0, keepdims=True)
        return np.hstack([seconds[:, :1], np.repeat(limit, len(seconds), axis=0)])
    return np.sort(seconds, axis=0)[: max(1, len(seconds) // 5)] if how == "share" else seconds


@dataclass(frozen=True)
class Panel:
    """Several contenders at one size, interleaved: one point of every curve of a figure.

    Attributes:
        size: the abscissa.
        contenders: by the label of their curve; labels of our own begin with "rlcpu", those of
            the machine with "limit".
        rates: whether the figures are units of work per second, or seconds per unit.
        pair: the labels that the table compares; () takes the fastest of both sides.
    """

    size: float
    contenders: Mapping[str, Contender]
    rates: bool = True
    pair: tuple[str, ...] = ()

    def __call__(self, effort: Effort) -> Measurement:
        """Our best figure beside the best peer's; all of them in the details."""
        ready, failed = set_up(self.contenders)
        missing = {label: ": ".join(explain(error)) for label, error in failed.items()}
        short = effort._replace(rounds=min(effort.rounds, PANEL_ROUNDS))
        seconds = np.median(interleave(list(ready.values()), short), axis=0)
        times = dict(zip(ready, seconds.tolist(), strict=True))
        sides: dict[bool, dict[str, float]] = {True: {}, False: {}}
        for label in self.pair or times:
            if label in times and not label.startswith("limit"):
                sides[label.startswith("rlcpu")][label] = times[label]
        best = [min(side, key=side.__getitem__, default="-") for side in sides.values()]
        figures = [times[k] ** (-1 if self.rates else 1) if k in times else "-" for k in best]
        compared = " / ".join(label for label in best if label != "-")
        note = "; ".join([compared, *(f"{label}: {why}" for label, why in missing.items())])
        ratio = None if "-" in best else times[best[1]] / times[best[0]]
        details = {"size": self.size, "seconds": times, "missing": missing}
        return Measurement(*figures, ratio, None, note, details)


# ---------------------------------------------------------------- a process of its own


class Outcome(NamedTuple):
    """What became of a call: its value, or the problem in two words, and in its own text."""

    value: Any
    status: str = ""
    detail: str = ""


def explain(error: Exception) -> tuple[str, str]:
    """Status and detail of an exception: a peer that is missing, or one that fails."""
    if isinstance(error, ModuleNotFoundError):
        return "not installed", str(error)
    return "failed", f"{type(error).__name__}: {error}"


def isolated(function: Callable[..., Any], *arguments: Any, limit_s: float) -> Outcome:
    """Calls a picklable function in a fresh process and waits `limit_s` seconds at most.

    Peers hang (`jit(vjp(lax.linalg.tridiagonal_solve))` of jax 0.10.2 does, on two cores), crash,
    and leave thread pools behind that spin. None of that may reach the next row.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit_s):
            return Outcome(None, "timed out", f"no answer within {limit_s:g} s")
        answer = receiver.recv()
        process.join(GRACE_S)
        return Outcome(*answer)
    except EOFError:
        process.join()
        return Outcome(None, "crashed", f"exit code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()


def _answer(sender: Connection, function: Callable[..., Any], arguments: Arguments) -> None:
    try:
        sender.send((function(*arguments),))
    except Exception as error:  # a peer may fail in any way; the table says which
        sender.send((None, *explain(error)))
