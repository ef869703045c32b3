"""Ours against one peer: who can take part, with which settings, and by how much it is faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asv_benches.peers.isolate import explain
from asv_benches.peers.timing import QUICK, Contender, Effort, interleave


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


def prepare(contender: Contender) -> Exception | None:
    """Sets a contender up; returns what keeps it from taking part."""
    try:
        contender.setup()
    except Exception as error:  # a peer may fail in any way; the table says which
        return error
    return None


@dataclass
class Duel:
    """Ours and one peer, interleaved. Called in the process that times them.

    Attributes:
        ours: the ratio says how many times faster this one is ...
        peer: ... than this one.
    """

    ours: Contender
    peer: Contender

    def __call__(self, effort: Effort) -> Measurement:
        """Measures; a contender that cannot take part leaves the other one's figure."""
        contenders = (self.ours, self.peer)
        errors = [prepare(contender) for contender in contenders]
        ready = [c for c, error in zip(contenders, errors, strict=True) if error is None]
        seconds = self.settle(interleave(ready, effort))
        figures = iter(self.figures(np.median(seconds, axis=0)).tolist())
        ours, peer = (explain(error)[0] if error else next(figures) for error in errors)
        notes = [getattr(contender, "note", "") for contender in ready]
        notes += [": ".join(explain(error)) for error in errors if error]
        note = "; ".join(filter(None, notes))
        if len(ready) < 2:
            return Measurement(ours, peer, note=note)
        low, ratio, high = np.percentile(self.ratios(seconds), (25, 50, 75)).tolist()
        return Measurement(ours, peer, ratio, (low, high), note)

    def figures(self, seconds: np.ndarray) -> np.ndarray:
        """What is shown for medians in seconds per unit of work: rates."""
        return 1 / seconds

    def ratios(self, seconds: np.ndarray) -> np.ndarray:
        """One ratio for each round of timings (rounds, 2)."""
        return seconds[:, 1] / seconds[:, 0]

    def settle(self, seconds: np.ndarray) -> np.ndarray:
        """The timings (rounds, contenders) from which figures and ratios are made."""
        return seconds


class TimeDuel(Duel):
    """A duel whose figures are seconds per unit of work."""

    def figures(self, seconds: np.ndarray) -> np.ndarray:
        """The times themselves."""
        return seconds


class CostDuel(TimeDuel):
    """What more work costs: the ratio is the first one's time over the second one's."""

    def ratios(self, seconds: np.ndarray) -> np.ndarray:
        """Times as much time."""
        return seconds[:, 0] / seconds[:, 1]


class PeakDuel(Duel):
    """Ours against the machine's peak, which is the fastest round: a disturbed one is no peak."""

    def settle(self, seconds: np.ndarray) -> np.ndarray:
        """Gives every round the peak's fastest timing."""
        settled = seconds.copy()
        settled[:, 1:] = seconds[:, 1:].min(axis=0, keepdims=True)
        return settled


@dataclass
class Best:
    """The fastest of several variants of one peer, chosen in `setup`.

    Attributes:
        name: of the peer.
        variants: contenders, each named after its settings.
        note: after `setup`, the settings chosen and what every variant reached.
    """

    name: str
    variants: Sequence[Contender]
    note: str = ""
    _chosen: Contender | None = None

    def setup(self) -> None:
        """Sets up every variant, times them briefly and keeps the fastest.

        Raises:
            Exception: of the first variant, where none can be set up.
        """
        errors = [prepare(variant) for variant in self.variants]
        ready = [v for v, error in zip(self.variants, errors, strict=True) if error is None]
        if errors and errors[0] and not ready:
            raise errors[0]
        seconds = np.median(interleave(ready, QUICK._replace(rounds=5)), axis=0)
        self._chosen = ready[int(np.argmin(seconds))]
        others = ", ".join(
            f"{variant.name} {min(seconds) / second:.2f}x"
            for variant, second in zip(ready, seconds, strict=True)
            if variant is not self._chosen
        )
        self.note = f"{self.name}: {self._chosen.name} (slower: {others or 'none'})"

    @property
    def chosen(self) -> Contender:
        """The fastest variant."""
        if self._chosen is None:
            raise RuntimeError("Best.setup() has not run")
        return self._chosen

    @property
    def work(self) -> float:
        """Units of work of the chosen variant."""
        return self.chosen.work

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[Any]:
        """Inputs of the chosen variant."""
        return self.chosen.inputs(rng, count)

    def run(self, inputs: Iterable[Any]) -> None:
        """Runs the chosen variant."""
        self.chosen.run(inputs)
