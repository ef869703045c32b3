"""Several contenders at one size, interleaved: one point of every curve of a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from asv_benches.peers.duel import Measurement, prepare
from asv_benches.peers.isolate import explain
from asv_benches.peers.timing import Contender, Effort, interleave

ROUNDS = 5  # at most: a figure needs three digits of no point


@dataclass
class Panel:
    """Times all contenders of one size. Called in the process that times them.

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
        errors = {label: prepare(contender) for label, contender in self.contenders.items()}
        ready = {k: each for k, each in self.contenders.items() if errors[k] is None}
        missing = {k: ": ".join(explain(error)) for k, error in errors.items() if error}
        short = effort._replace(rounds=min(effort.rounds, ROUNDS))
        seconds = np.median(interleave(list(ready.values()), short), axis=0)
        times = dict(zip(ready, seconds.tolist(), strict=True))
        chosen = {k: times[k] for k in self.pair if k in times} if self.pair else times
        ours, mine = best(chosen, ours=True)
        theirs, peer = best(chosen, ours=False)
        details = {"size": self.size, "seconds": times, "missing": missing}
        compared = " / ".join(label for label in (ours, theirs) if label != "-")
        note = "; ".join([compared, *(f"{k}: {v}" for k, v in missing.items())])
        ratio = peer / mine if mine and peer else None
        return Measurement(self.figure(mine), self.figure(peer), ratio, None, note, details)

    def figure(self, seconds: float | None) -> float | str:
        """What the table shows for seconds per unit of work."""
        if seconds is None:
            return "-"
        return 1 / seconds if self.rates else seconds


def best(seconds: Mapping[str, float], *, ours: bool) -> tuple[str, float | None]:
    """Label and time of the fastest of ours, or of the fastest peer."""
    rivals = {k: value for k, value in seconds.items() if not k.startswith("limit")}
    side = {k: value for k, value in rivals.items() if k.startswith("rlcpu") is ours}
    label = min(side, key=side.__getitem__, default="-")
    return label, side.get(label)
