"""`Results`: what the runs of experiments say, as tables, comparisons and pictures."""

from __future__ import annotations

import collections
import csv
import difflib
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlcpu.experiments.folder import PRUNED, Experiment, Run, read
from rlcpu.experiments.pictures import Panel, draw, points
from rlcpu.experiments.statistics import (
    FEWEST_SEEDS,
    NAMES,
    STATISTICS,
    Array,
    check_statistic,
    interval,
)
from rlcpu.experiments.tables import Table, pandas
from rlcpu.experiments.verdicts import Verdict, judge
from rlcpu.train.keeping.files import replacing

#: Names of variants in a note at most.
MOST_NAMES = 8
#: Parts of a protocol by which scores of the same environment can be compared.
_COMPARED = ("steps", "target", "final_episodes")


class Sample(NamedTuple):
    """The runs of one variant in one environment."""

    experiment: Experiment
    runs: list[Run]


def load(*folders: str | os.PathLike[str]) -> Results:
    """Return what the runs in the folders of experiments say.

    Several folders have variants of one environment, or several environments. Variants of the same
    name and environment in two folders get the name of their folder in front.

    Args:
        folders: what `experiments.run` and `rlcpu train --seeds` wrote. Runs that are not done are
            left out; an experiment may still go on.

    Raises:
        FileNotFoundError: there is no experiment in one of them.
        ValueError: one is damaged, given twice, or none is given.
    """
    return Results(*map(read, folders))


class Results:
    """Runs of experiments: their table, comparisons, pictures, and all numbers.

    The score of a run is the mean return of the last policy's episodes, never of the best one. Of
    runs with a `target`, which end where they reach it, it is the steps until then: their returns
    are biased, as each run ended at a moment that its own returns chose.

    Args:
        experiments: what `rlcpu.experiments.folder.read` returns.
        bounds: returns of chance and of a good policy by environment; see `normalised`.

    Raises:
        ValueError: there is none, one is given twice, or only some have a target.
    """

    def __init__(
        self,
        *experiments: Experiment,
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        folders = [os.path.realpath(each.folder) for each in experiments]
        if not folders or len(set(folders)) < len(folders):
            shown = ", ".join(map(repr, folders)) or "none"
            raise ValueError(f"experiments: got {shown}, expected at least one, and none twice")
        targets = {each.protocol["target"] is not None for each in experiments}
        if len(targets) > 1:
            raise ValueError(
                "experiments with and without a target measure different things, steps and "
                "returns: load them apart"
            )
        self.experiments = experiments
        self.bounds = None if bounds is None else dict(bounds)
        self.has_target: bool = targets.pop()
        self._samples = _named(experiments)

    # ------------------------------------------------------------ what there is

    @property
    def variants(self) -> tuple[str, ...]:
        """Return the names of the variants, in the order in which they were added."""
        return tuple(self._samples)

    @property
    def environments(self) -> tuple[str, ...]:
        """Return the ids of the environments."""
        return tuple(dict.fromkeys(each.env for each in self.experiments))

    def runs(self, variant: str) -> list[Run]:
        """Return the runs of a variant that are done, by environment and seed."""
        return [run for sample in self._of(variant).values() for run in sample.runs]

    def scores(self, variant: str) -> dict[str, dict[int, float]]:
        """Return the score of each run of a variant, by environment and seed."""
        return {
            env: {run.seed: self._score(env, run) for run in sample.runs}
            for env, sample in self._of(variant).items()
        }

    def normalised(self, bounds: Mapping[str, tuple[float, float]]) -> Results:
        """Return results whose scores are 0 for chance and 1 for a good policy.

        Only such scores of several environments have one mean. Intervals are of environments that
        are fixed and of seeds that are drawn, as by Agarwal et al. (2021).

        Args:
            bounds: by the environment's id, the returns of chance and of a good policy, such as
                {"CartPole-v1": (22.0, 500.0)}: yours to choose, and to say where scores are shown.

        Raises:
            ValueError: an environment is missing, bounds are equal or not finite, or runs have a
                target.
        """
        if self.has_target:
            raise ValueError("runs with a target are compared by their steps, not by their returns")
        for env in self.environments:
            pair = bounds.get(env)
            if pair is None:
                raise ValueError(f"bounds: {env} is missing, expected the returns of all of them")
            if not np.isfinite(pair).all() or pair[0] == pair[1]:
                raise ValueError(f"bounds[{env!r}]={pair!r}: expected two different finite numbers")
        return Results(*self.experiments, bounds=bounds)

    # ------------------------------------------------------------ statistics

    def table(self, statistic: str = "mean") -> Table:
        """Return a row for each variant, and for each environment unless scores are normalised.

        Columns are the number of runs, three statistics of the scores over seeds, the bounds of
        the interval of one of them, the share of runs that solve the environment (whose mean
        return is at least its threshold, or that have reached their target) and the median of the
        seconds that learning took.

        Args:
            statistic: which the interval is of: "mean", "median" or "iqm", the mean of the middle
                half, which a lucky or a failed seed does not move.

        Raises:
            ImportError: SciPy is missing, which resamples.
            ValueError: another statistic, or normalised scores of a variant that lacks
                environments.
        """
        check_statistic(statistic)
        rows = []
        for envs in [self.environments] if self.bounds else [[env] for env in self.environments]:
            for variant in self.variants:
                samples = {env: each for env, each in self._of(variant).items() if each.runs}
                if missing := [env for env in envs if env not in samples]:
                    if self.bounds and samples:
                        raise ValueError(f"{variant}: it has no run of {', '.join(missing)}")
                    continue
                row: dict[str, Any] = {"environment": envs[0]} if self._is_mixed else {}
                chosen = {env: samples[env] for env in envs}
                rows.append({**row, "variant": variant, **self._row(chosen, statistic)})
        return Table(self._title(), tuple(rows), statistic, tuple(self._notes(statistic)))

    def compare(self, first: str, second: str, statistic: str = "mean") -> Verdict:
        """Return what the runs say about which of two variants is better.

        Runs of the same seed are a pair, and pairs are drawn again for the interval of the
        difference. A verdict is for one that was chosen before: of twenty comparisons of equals,
        one is expected to find a difference.

        Args:
            first: the name of one variant.
            second: that of the other.
            statistic: of which the difference is taken; see `table`.

        Raises:
            ImportError: SciPy is missing.
            ValueError: there is no such variant, both are the same, no seed or not every
                environment is common to both, they were run for different steps or targets, or
                there are several environments whose scores are not normalised.
        """
        check_statistic(statistic)
        if first == second:
            raise ValueError(f"compare: got {first!r} twice, expected two variants")
        if self._is_mixed:
            raise ValueError(
                f"returns of {', '.join(self.environments)} have no common scale: compare "
                "results.normalised({env: (chance, good), ...}), or load one of them"
            )
        pairs, notes = self._pairs(first, second)
        unit = "steps" if self.has_target else "return" if self.bounds is None else "score"
        count = len(self.variants) * (len(self.variants) - 1) // 2
        return judge((first, second), pairs, statistic, unit, count, notes)

    def plot(
        self,
        statistic: str = "mean",
        over: str = "steps",
        *,
        target: float | None = None,
        axes: Any = None,
    ) -> Any:
        """Draw a band for each variant: a statistic over seeds, and its interval.

        Each environment has a panel. Evaluations of different runs come at different steps: each
        run keeps its last value until the next one, and to the end.

        Args:
            statistic: "mean", "median" or "iqm"; see `table`.
            over: "steps" of the environment, or "seconds" of learning: the same line, with the
                median of the seconds that the runs took for its steps.
            target: a return to draw a dotted line at, beside that of runs with a target and the
                environment's threshold, which are drawn anyway.
            axes: matplotlib's, to draw into, or a list of one for each environment; None makes a
                figure, which a notebook shows.

        Returns:
            The `matplotlib.figure.Figure`; its `savefig` writes it.

        Raises:
            ImportError: matplotlib or SciPy is missing.
            ValueError: another statistic or abscissa, other axes, or no run is done.
        """
        panels = []
        for env in self.environments:
            low, high = (0.0, 1.0) if self.bounds is None else self.bounds[env]
            lines = {}
            for name, samples in self._samples.items():
                curves = [run.curve for run in samples[env].runs] if env in samples else []
                lines[name] = [
                    points(curve.steps, (curve.mean_return - low) / (high - low), curve.seconds)
                    for curve in curves
                ]
            levels = {} if target is None else {f"target: {target:g}": target}
            for each in self.experiments:
                level = each.protocol["target"] if self.has_target else each.reward_threshold
                if each.env == env and level is not None:
                    name = "target" if self.has_target else "solved"
                    levels[f"{name}: {level:g}"] = (level - low) / (high - low)
            ordinate = "return" if self.bounds is None else "normalised return"
            several = f"{env}\n" if len(self.environments) > 1 else ""
            panels.append(Panel(several + ordinate, lines, levels))
        title = "" if len(panels) > 1 else self.environments[0]
        return draw(panels, title=title, statistic=statistic, over=over, axes=axes)

    # ------------------------------------------------------------ numbers

    def to_csv(self, path: str | os.PathLike[str], *, by_run: bool = False) -> None:
        """Write a line for each evaluation of each run, or for each run; see `to_pandas`.

        Raises:
            OSError: the file cannot be written.
        """
        rows = list(self._runs_in_rows() if by_run else self._evaluations_in_rows())
        with replacing(path) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
            table = csv.DictWriter(text, list(rows[0]) if rows else [])
            table.writeheader()
            table.writerows(rows)
            text.detach()  # or it would close the file

    def to_pandas(self, *, by_run: bool = False) -> Any:
        """Return all numbers as a `pandas.DataFrame`.

        Args:
            by_run: a row for each run, with its score and its steps to the target, in the place of
                one for each evaluation on the way.

        Raises:
            ImportError: pandas is missing.
        """
        return pandas().DataFrame(self._runs_in_rows() if by_run else self._evaluations_in_rows())

    def _evaluations_in_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the evaluations of all runs on the way."""
        for variant, samples in self._samples.items():
            for env, sample in samples.items():
                for run in sample.runs:
                    of_run = {"env": env, "variant": variant, "seed": run.seed}
                    for values in zip(*(column.tolist() for column in run.curve), strict=True):
                        yield {**of_run, **dict(zip(run.curve._fields, values, strict=True))}

    def _runs_in_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the facts of all runs."""
        for variant, samples in self._samples.items():
            for env, sample in samples.items():
                for run in sample.runs:
                    facts = {"env": env, "variant": variant, "score": run.score}
                    yield {**facts, **run.done._asdict()}

    # ------------------------------------------------------------ shown

    def __repr__(self) -> str:
        try:
            return str(self.table())
        except (ImportError, ValueError) as error:
            return f"Results of {', '.join(self.variants)}: {error}"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        try:
            return self.table()._repr_html_()
        except (ImportError, ValueError):
            return f"<pre>{self!r}</pre>"

    # ------------------------------------------------------------ inside

    def _of(self, variant: str) -> dict[str, Sample]:
        """Return the samples of a variant by environment; ValueError for one that there is not."""
        try:
            return self._samples[variant]
        except KeyError:
            near = difflib.get_close_matches(str(variant), self.variants, n=1)
            names = ", ".join(map(repr, self.variants))
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {names}"
            raise ValueError(f"there is no variant {variant!r}: {hint}") from None

    @property
    def _is_mixed(self) -> bool:
        """Tell whether there are scores of several scales."""
        return self.bounds is None and len(self.environments) > 1

    def _score(self, env: str, run: Run) -> float:
        """Return what statistics are taken of: steps to the target, or a return."""
        if self.has_target:
            reached = run.done.target_steps
            return float(run.done.steps if reached is None else reached)
        low, high = (0.0, 1.0) if self.bounds is None else self.bounds[env]
        return (run.score - low) / (high - low)

    def _row(self, samples: Mapping[str, Sample], statistic: str) -> dict[str, Any]:
        """Return the numbers of one row of a table."""
        strata = [
            np.array([self._score(env, run) for run in sample.runs])
            for env, sample in samples.items()
        ]
        bounds = interval(strata, STATISTICS[statistic])
        runs = [run for sample in samples.values() for run in sample.runs]
        row: dict[str, Any] = {"runs": len(runs)}
        row |= {name: float(function(*strata)) for name, function in STATISTICS.items()}
        row |= {"low": float(bounds.low), "high": float(bounds.high)}
        if self.has_target:
            row["reached"] = float(np.mean([run.done.target_steps is not None for run in runs]))
        else:
            row["solved"] = _share_solved(samples.values())
        row["seconds"] = float(np.median([run.done.seconds for run in runs]))
        return row

    def _pairs(self, first: str, second: str) -> tuple[list[Array], list[str]]:
        """Return (2, n) scores of n common seeds for each environment, and notes on the others."""
        ours, theirs = self._of(first), self._of(second)
        pairs, notes = [], []
        for env in dict.fromkeys([*ours, *theirs]):
            if env not in ours or env not in theirs:
                raise ValueError(f"{env}: only one of {first!r} and {second!r} was run there")
            one, other = (
                {name: sample.experiment.protocol.get(name) for name in _COMPARED}
                for sample in (ours[env], theirs[env])
            )
            if one != other:
                raise ValueError(
                    f"{env}: {first!r} was run with {_in_words(one)}, "
                    f"{second!r} with {_in_words(other)}: such scores are not comparable"
                )
            scores = self.scores(first)[env], self.scores(second)[env]
            seeds = sorted(scores[0].keys() & scores[1].keys())
            if not seeds:
                raise ValueError(f"{env}: {first!r} and {second!r} have no seed in common")
            left_out = len(scores[0].keys() ^ scores[1].keys())
            if left_out:
                notes.append(f"{env}: {left_out} runs have no partner of their seed.")
            pairs.append(np.array([[side[seed] for seed in seeds] for side in scores]))
        return pairs, notes

    def _title(self) -> str:
        """Return what the scores are, in words."""
        envs = ", ".join(self.environments)
        if self.has_target:
            target = _texts(each.protocol["target"] for each in self.experiments)
            return f"{envs}: steps until the mean return is {target}"
        episodes = _texts(each.protocol["final_episodes"] for each in self.experiments)
        steps = _texts(each.protocol["steps"] for each in self.experiments)
        kind = "mean return" if self.bounds is None else "normalised return"
        return f"{envs}: {kind} of {episodes} episodes of the last policy after {steps} steps"

    def _notes(self, statistic: str) -> Iterator[str]:
        """Yield sentences on what a table does not say."""
        yield f"The interval is of the {NAMES[statistic]} over seeds, by the stratified bootstrap."
        counts = {
            variant: min((len(each.runs) for each in samples.values()), default=0)
            for variant, samples in self._samples.items()
        }
        if few := [name for name, count in counts.items() if 0 < count < FEWEST_SEEDS]:
            names = ", ".join(few) if len(few) <= MOST_NAMES else f"{len(few)} variants"
            yield (
                f"{names}: fewer than {FEWEST_SEEDS} seeds, and no interval of so few holds the "
                "truth as often as it says."
            )
        runs = [run for each in self.experiments for run in each.runs]
        early = {run.variant for run in runs if run.done.stopped == PRUNED}
        if early:
            yield f"{len(early)} variants have a run that a search ended early: it counts nowhere."
        if empty := [name for name, count in counts.items() if not (count or name in early)]:
            yield f"{', '.join(empty)}: runs are missing."
        for variant in self.variants:
            versions = sorted({run.done.version for run in self.runs(variant)})
            if len(versions) > 1:
                yield f"{variant}: runs of several versions of rlcpu, {', '.join(versions)}."
        if self.has_target:
            runs = [run for variant in self.variants for run in self.runs(variant)]
            if late := sum(run.done.target_steps is None for run in runs):
                yield (
                    f"{late} of {len(runs)} runs did not reach it: they count as the steps that "
                    "they made, so that means are too small."
                )


def _named(experiments: tuple[Experiment, ...]) -> dict[str, dict[str, Sample]]:
    """Return the samples of all experiments by the name of the variant and the environment."""
    count = collections.Counter((each.env, name) for each in experiments for name in each.variants)
    folders = [each.folder.name for each in experiments]
    are_names_enough = len(set(folders)) == len(folders)
    samples: dict[str, dict[str, Sample]] = {}
    for each in experiments:
        folder = each.folder.name if are_names_enough else os.fspath(each.folder)
        whole = [run for run in each.runs if run.done.stopped != PRUNED]
        for name in each.variants:
            is_one_of_several = any(count[e.env, name] > 1 for e in experiments)
            label = f"{folder}: {name}" if is_one_of_several else name
            runs = [run for run in whole if run.variant == name]
            samples.setdefault(label, {})[each.env] = Sample(each, runs)
    return samples


def _share_solved(samples: Any) -> float | None:
    """Return the share of runs whose score is at least their environment's threshold, or None."""
    solved = []
    for experiment, runs in samples:
        if experiment.reward_threshold is None:
            return None
        solved += [run.score >= experiment.reward_threshold for run in runs]
    return float(np.mean(solved))


def _texts(values: Any) -> str:
    """Return different numbers as text, such as "20,000 or 50,000"."""
    return " or ".join(f"{value:,}" for value in dict.fromkeys(values))


def _in_words(protocol: Mapping[str, Any]) -> str:
    """Return a protocol's parts as text."""
    return ", ".join(f"{name}={value}" for name, value in protocol.items())
