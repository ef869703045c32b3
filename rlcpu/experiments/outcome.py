"""`Search`: the best settings of a search, and what seeds that it did not use say about them."""

from __future__ import annotations

import collections
import dataclasses
import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlcpu.experiments.folder import SETTINGS, read
from rlcpu.experiments.results import Results
from rlcpu.experiments.settings_file import write_settings
from rlcpu.experiments.tables import decimals, labelled, number, paragraphs, wrapped
from rlcpu.experiments.verdicts import Verdict

#: The variant beside which the best trial is run anew.
DEFAULT = "default"


class Best(NamedTuple):
    """The best trial of a search."""

    variant: str
    score: float  # mean return over the seeds of the search


@dataclasses.dataclass(frozen=True)
class Search:
    """Outcome of a search over settings; printed it is a few sentences.

    Attributes:
        title: what was searched.
        best: the variant that is the best trial, such as "trial 41".
        settings: its settings.
        score: mean return of its runs in the search, which chose it: too good on the whole.
        fresh_score: that of its runs with fresh seeds.
        verdict: comparison of the best trial and the default with the fresh seeds, in pairs.
        file: the settings, for `rlcpu train --settings`.
        confirmed: the runs of fresh seeds of both.
        results: all runs of the folder that were not ended early.
        study: Optuna's study of the trials, for its tables, pictures and importances.
        notes: sentences on the search.
    """

    title: str
    best: str
    settings: dict[str, Any]
    score: float
    fresh_score: float
    verdict: Verdict
    file: Path
    confirmed: Results
    results: Results
    study: Any
    notes: tuple[str, ...]

    @property
    def optimism(self) -> float:
        """Return by how much the score in the search is above that with fresh seeds."""
        return self.score - self.fresh_score

    @property
    def beats_default(self) -> bool:
        """Tell whether the interval of the difference from the default is above 0."""
        return bool(self.verdict.difference.low > 0.0)

    def lines(self) -> list[tuple[str, str]]:
        """Return what came out and its value, in words."""
        seeds = [run.seed for run in self.results.runs(self.best)]
        fresh = [run.seed for run in self.confirmed.runs(self.best)]
        chosen = [seed for seed in seeds if seed not in fresh]
        digits = decimals([self.score, self.fresh_score])
        pairs = " ".join(f"{name}={_text(value)}" for name, value in self.settings.items())
        change = f"{number(abs(self.optimism), digits)} more than in the search"
        if self.optimism > 0.0:
            change = change.replace("more", "less") + ": the best of many is the luckiest, too"
        words = f"{self.best} is better than the default settings."
        if not self.beats_default:
            words = "nothing that was tried is shown to beat the default settings."
        return [
            ("best", f"{self.best}: {pairs}"),
            ("searched", f"{number(self.score, digits)} with the {_span(chosen)} that chose it"),
            (
                "fresh",
                f"{number(self.fresh_score, digits)} with the {_span(fresh)}, {change}",
            ),
            *self.verdict.lines()[:-1],
            ("verdict", words),
            ("settings", os.fspath(self.file)),
        ]

    def __str__(self) -> str:
        return "\n".join([self.title, "", *labelled(self.lines()), "", *wrapped(self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the sentences for notebooks."""
        lines = paragraphs(f"{name}: {text}" for name, text in self.lines())
        return f"<p><b>{html.escape(self.title)}</b></p>{lines}{paragraphs(self.notes)}"


def _text(value: Any) -> str:
    """Return a setting in words."""
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _span(seeds: Sequence[int]) -> str:
    """Return consecutive seeds in words."""
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def outcome_of(folder: Path, study: Any, count: int, best: Best, fresh: range) -> Search:
    """Return the outcome of a search that has ended, and write its settings.

    Args:
        folder: of the search.
        study: Optuna's, of its trials.
        count: trials that were wanted.
        best: the best one.
        fresh: seeds with which it and the default were run after the search.

    Raises:
        OSError: the settings cannot be written.
    """
    experiment = read(folder)
    variants = {name: experiment.variants[name] for name in (best.variant, DEFAULT)}
    runs = [run for run in experiment.runs if run.variant in variants and run.seed in fresh]
    confirmed = Results(experiment._replace(variants=variants, runs=runs))
    verdict = confirmed.compare(best.variant, DEFAULT)
    trials = study.trials[:count]
    chosen, file = variants[best.variant], folder / SETTINGS
    scores = {"searched": best.score, "fresh": verdict.values[0], DEFAULT: verdict.values[1]}
    write_settings(file, experiment.env, chosen.algo, chosen.settings, scores)
    seeds = experiment.manifest["search"]["seeds"]
    return Search(
        title=f"{experiment.env}: {len(trials)} trials of {chosen.algo} with "
        f"{seeds} seed{'s' * (seeds > 1)}, {experiment.protocol['steps']:,} steps each",
        best=best.variant,
        settings=chosen.settings,
        score=best.score,
        fresh_score=verdict.values[0],
        verdict=verdict,
        file=file,
        confirmed=confirmed,
        results=Results(experiment),
        study=study,
        notes=tuple(_notes(trials, count)),
    )


def _notes(trials: Sequence[Any], count: int) -> list[str]:
    """Return sentences on the trials of a search."""
    states = collections.Counter(trial.state.name for trial in trials)
    notes = [
        f"{states['COMPLETE']} trials came to their end, {states['PRUNED']} were ended early, "
        f"{states['FAIL']} failed."
    ]
    reasons = (trial.user_attrs.get("reason") for trial in trials)
    if reason := next(filter(None, reasons), None):
        notes.append(f"The first that failed: {reason}.")
    if len(trials) < count:
        notes.append(
            f"Time was up after {len(trials)} of {count} trials: on another machine it would have "
            "been another number, and another result. The same call without a limit makes the rest."
        )
    return notes
