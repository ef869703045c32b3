"""`Results`: tables, comparisons and numbers of runs whose scores are known."""

from __future__ import annotations

import csv
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from rlcpu.experiments import folder
from rlcpu.experiments.results import Results, load
from rlcpu.experiments.statistics import interval, mean
from tests.experiments.made import STEPS, experiment_of, experiment_with, run_of

RNG = np.random.default_rng(0)
GOOD, BAD = RNG.normal(450.0, 20.0, 10), RNG.normal(300.0, 20.0, 10)
#: Returns of chance and of a good policy.
BOUNDS = {"CartPole-v1": (22.0, 500.0), "Pendulum-v1": (-1200.0, -150.0)}


def two_environments() -> Results:
    pendulum = experiment_with(
        {"ppo": -150.0 - BAD, "dqn": -150.0 - GOOD},
        env="Pendulum-v1",
        folder="other",
        threshold=None,
    )
    return Results(experiment_with({"ppo": GOOD, "dqn": BAD}), pendulum)


# ---------------------------------------------------------------- tables


def test_a_table_has_the_statistics_of_the_scores() -> None:
    results = Results(experiment_with({"ppo": GOOD, "dqn": BAD[:6]}))
    first, second = results.table().rows
    expected = interval([GOOD], mean)
    assert first == {
        "variant": "ppo",
        "runs": 10,
        "mean": pytest.approx(GOOD.mean()),
        "median": pytest.approx(np.median(GOOD)),
        "iqm": pytest.approx(np.sort(GOOD)[2:8].mean()),
        "low": pytest.approx(expected.low),
        "high": pytest.approx(expected.high),
        "solved": np.mean(GOOD >= 475.0),
        "seconds": 5.5,  # the median: 1 s with seed 0, and one more with each
    }
    assert second["runs"] == 6
    assert results.scores("ppo") == {"CartPole-v1": {k: pytest.approx(GOOD[k]) for k in range(10)}}


def test_a_table_as_text_and_in_a_notebook() -> None:
    results = Results(experiment_with({"ppo, small": [480.0, 470.0, 490.0], "dqn": [100.0] * 3}))
    lines = repr(results).splitlines()
    assert lines == [
        "CartPole-v1: mean return of 3 episodes of the last policy after 10,000 steps",
        "",
        "variant     runs  mean  95 % interval  median  IQM  solved  seconds",
        "ppo, small     3   480     [470, 490]     480  480     2/3     2.00",
        "dqn            3   100     [100, 100]     100  100     0/3     2.00",
        "",
        "The interval is of the mean over seeds, by the stratified bootstrap.",
        "ppo, small, dqn: fewer than 5 seeds, and no interval of so few holds the truth",
        "as often as it says.",
    ]
    shown = results._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<td>[470, 490]</td>" in shown
    iqm = str(results.table("iqm")).splitlines()
    assert re.split("  +", iqm[2])[2:6] == ["mean", "median", "IQM", "95 % interval"]
    assert "The interval is of the interquartile mean over seeds, by the stratified" in iqm


def test_names_are_escaped_in_a_notebook() -> None:
    results = Results(experiment_with({"<b>": GOOD, "a&b": BAD}))
    assert "<td>&lt;b&gt;</td>" in results._repr_html_()
    assert "&lt;b&gt;" in results.compare("<b>", "a&b")._repr_html_()


def test_with_a_target_a_table_shows_steps_and_who_did_not_reach_it() -> None:
    runs = [run_of("fast", s, 480.0, reached=1000 * (s + 1)) for s in range(6)]
    runs += [run_of("slow", s, 300.0, reached=None if s < 4 else 5000) for s in range(6)]
    results = Results(experiment_of(runs, target=475.0))
    fast, slow = results.table().rows
    assert (fast["mean"], fast["reached"]) == (3500.0, 1.0)
    assert slow["mean"] == pytest.approx((4 * STEPS + 2 * 5000) / 6)
    assert slow["median"] == STEPS
    text = str(results)
    assert text.startswith("CartPole-v1: steps until the mean return is 475.0\n")
    assert "2/6" in text
    assert "4 of 12 runs did not reach it: they count as the steps that they made" in text
    verdict = results.compare("fast", "slow")
    assert (verdict.unit, verdict.difference.value) == ("steps", pytest.approx(3500 - slow["mean"]))
    assert verdict.words.startswith("'fast' is better")
    assert verdict.probability.value > 0.9
    with pytest.raises(ValueError, match="are compared by their steps"):
        results.normalised(BOUNDS)


def test_of_several_environments_a_table_has_each() -> None:
    rows = two_environments().table().rows
    assert [(row["environment"], row["variant"]) for row in rows] == [
        (env, variant) for env in ("CartPole-v1", "Pendulum-v1") for variant in ("ppo", "dqn")
    ]
    assert [row["solved"] is None for row in rows] == [False, False, True, True]


def test_normalised_scores_are_one_mean() -> None:
    results = two_environments().normalised(BOUNDS)
    ppo, _ = results.table("iqm").rows
    cartpole, pendulum = (GOOD - 22.0) / 478.0, (-150.0 - BAD + 1200.0) / 1050.0
    assert ppo["mean"] == pytest.approx((cartpole.mean() + pendulum.mean()) / 2)
    middle = np.sort(np.concatenate([cartpole, pendulum]))[5:15]
    assert ppo["iqm"] == pytest.approx(middle.mean())
    assert (ppo["runs"], ppo["solved"]) == (20, None)
    assert ppo["low"] < ppo["iqm"] < ppo["high"]
    verdict = results.compare("ppo", "dqn")
    assert (verdict.unit, verdict.num_pairs) == ("score", 20)
    assert verdict.probability.value == 1.0


def test_versions_and_missing_runs_are_said() -> None:
    runs = [run_of("ppo", s, 480.0, version=f"0.{1 + s // 5}.0") for s in range(10)]
    experiment = experiment_of(runs)
    experiment.variants["dqn"] = experiment.variants["ppo"]
    text = str(Results(experiment))
    assert "ppo: runs of several versions of rlcpu, 0.1.0, 0.2.0." in text
    assert "dqn: runs are missing." in text
    empty = Results(experiment_of([])._replace(variants={"ppo": experiment.variants["ppo"]}))
    assert str(empty).endswith("ppo: runs are missing.")


# ---------------------------------------------------------------- comparisons


def test_a_comparison_is_paired_by_seed() -> None:
    """What seeds share leaves the difference: it is surer than the scores."""
    shared = RNG.normal(0.0, 100.0, 10)
    results = Results(experiment_with({"a": shared + 5.0 + RNG.normal(size=10), "b": shared}))
    verdict = results.compare("a", "b")
    assert 3.0 < verdict.difference.low < verdict.difference.high < 7.0
    assert verdict.words == "'a' is better: the interval of its difference from 'b' excludes 0."
    other = results.compare("b", "a")
    assert other.difference == pytest.approx([-verdict.difference[k] for k in (0, 2, 1)], abs=0.2)
    assert other.words.startswith("'a' is better")
    row = results.table().rows[0]
    assert row["high"] - row["low"] > 50.0


def test_a_verdict_as_text_and_in_a_notebook() -> None:
    scores = {"a": np.arange(6.0) + 400.0, "b": np.arange(6.0) + 300.0, "c": np.zeros(6)}
    verdict = Results(experiment_with(scores)).compare("a", "b")
    assert repr(verdict).splitlines() == [
        "mean return  402.5 of 'a', 302.5 of 'b'; 6 seeds in pairs",
        "difference   +100.0, 95 % interval [100.0, 100.0]",
        "probability  1.00 that a run of 'a' is the better one, 95 % interval [1.00,",
        "             1.00]",
        "verdict      'a' is better: the interval of its difference from 'b' excludes 0.",
        "This is one of 3 pairs of variants: of 20 pairs of equals one is expected to",
        "seem different.",
    ]
    assert "<b>Verdict: &#x27;a&#x27; is better" in verdict._repr_html_()


def test_equals_are_seldom_told_apart() -> None:
    """The share of comparisons that find a difference where there is none."""
    claims = 0
    for number in range(100):
        rng = np.random.default_rng(number)
        scores = {name: np.minimum(500.0, rng.normal(480.0, 30.0, 8)) for name in "ab"}
        words = Results(experiment_with(scores)).compare("a", "b").words
        claims += "is better" in words
    assert claims / 100 <= 0.08


def test_no_evidence_is_no_verdict() -> None:
    results = Results(experiment_with({"a": GOOD, "b": GOOD[::-1], "c": GOOD[:4], "d": BAD}))
    words = results.compare("a", "b").words
    assert words.startswith("no difference can be told: its interval includes 0.")
    assert "no evidence that they are equal" in words
    few = results.compare("c", "d")
    assert few.words.startswith("none, of 4 seeds: no interval of fewer than 5")
    assert "CartPole-v1: 6 runs have no partner of their seed." in few.notes


def test_a_better_mean_of_few_lucky_seeds_is_named_as_such() -> None:
    lucky = [2000.0, 1900.0, 1800.0, 1900.0, *[10.0] * 6]
    results = Results(experiment_with({"lucky": lucky, "steady": [20.0] * 10}))
    verdict = results.compare("lucky", "steady")
    assert verdict.probability.value == pytest.approx(0.4)
    assert "'lucky' is better" in verdict.words
    assert verdict.words.endswith("Yet most of its single runs are not: look at all of them.")


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("first", "second", "statistic", "message"),
    [
        ("ppo", "dqm", "mean", "there is no variant 'dqm': did you mean 'dqn'?"),
        ("xyz", "dqn", "mean", "there is no variant 'xyz': expected one of 'ppo', 'dqn', 'late'"),
        ("ppo", "ppo", "mean", "got 'ppo' twice, expected two variants"),
        ("ppo", "dqn", "best", "statistic='best': expected one of mean, median, iqm"),
        ("ppo", "late", "mean", "CartPole-v1: 'ppo' and 'late' have no seed in common"),
    ],
)
def test_bad_comparisons(first: str, second: str, statistic: str, message: str) -> None:
    runs = [run_of(name, seed, 1.0) for name in ("ppo", "dqn") for seed in range(5)]
    results = Results(experiment_of([*runs, run_of("late", 9, 1.0)]))
    with pytest.raises(ValueError, match=re.escape(message)):
        results.compare(first, second, statistic)


def test_returns_of_several_environments_are_not_averaged() -> None:
    with pytest.raises(ValueError, match=r"have no common scale: compare results\.normalised"):
        two_environments().compare("ppo", "dqn")


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"CartPole-v1": (22.0, 500.0)}, "bounds: Pendulum-v1 is missing"),
        ({**BOUNDS, "Pendulum-v1": (1.0, 1.0)}, "expected two different finite numbers"),
        ({**BOUNDS, "Pendulum-v1": (1.0, np.nan)}, "expected two different finite numbers"),
    ],
)
def test_bad_bounds(bounds: dict[str, tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        two_environments().normalised(bounds)


def test_a_variant_that_lacks_an_environment_has_no_normalised_mean() -> None:
    pendulum = experiment_with({"ppo": BAD}, env="Pendulum-v1", folder="other")
    results = Results(experiment_with({"ppo": GOOD, "dqn": BAD}), pendulum).normalised(BOUNDS)
    with pytest.raises(ValueError, match="dqn: it has no run of Pendulum-v1"):
        results.table()
    with pytest.raises(ValueError, match="Pendulum-v1: only one of 'ppo' and 'dqn' was run there"):
        results.compare("ppo", "dqn")
    assert "dqn: it has no run of Pendulum-v1" in repr(results)
    assert "dqn: it has no run of Pendulum-v1" in results._repr_html_()


def test_only_like_is_compared_with_like() -> None:
    one = experiment_with({"ppo": GOOD}, folder="short")
    other = experiment_with({"ppo": BAD}, folder="long", steps=2 * STEPS)
    results = Results(one, other)
    assert results.variants == ("short: ppo", "long: ppo")
    assert "after 10,000 or 20,000 steps" in str(results)
    with pytest.raises(ValueError, match=r"run with steps=10000, .* with steps=20000, .* compar"):
        results.compare("short: ppo", "long: ppo")
    with pytest.raises(ValueError, match="with and without a target"):
        Results(one, experiment_with({"ppo": BAD}, folder="target", target=475.0))
    with pytest.raises(ValueError, match="expected at least one, and none twice"):
        Results(one, one)
    with pytest.raises(ValueError, match="got none, expected at least one"):
        load()


def test_without_scipy_results_are_shown_without_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = Results(experiment_with({"ppo": GOOD}))
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        results.table()
    assert repr(results).startswith("Results of ppo: ")
    assert repr(results).endswith("pip install scipy")


# ---------------------------------------------------------------- numbers


def test_all_numbers_as_tables(tmp_path: Path) -> None:
    results = Results(experiment_with({"ppo": [480.0, 470.0], "b, c": [1.0, 2.0]}))
    results.to_csv(tmp_path / "evaluations.csv")
    with open(tmp_path / "evaluations.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 4
    assert rows[4] == {
        "env": "CartPole-v1",
        "variant": "ppo",
        "seed": "1",
        "steps": "2510",
        "seconds": "0.251",
        "mean_return": "117.5",
        "training_return": "nan",
    }
    assert rows[-1]["variant"] == "b, c"
    results.to_csv(tmp_path / "runs.csv", by_run=True)
    with open(tmp_path / "runs.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["variant"], row["seed"], row["score"]) for row in rows] == [
        ("ppo", "0", "480.0"),
        ("ppo", "1", "470.0"),
        ("b, c", "0", "1.0"),
        ("b, c", "1", "2.0"),
    ]
    pandas = pytest.importorskip("pandas")
    frame = results.to_pandas(by_run=True)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("variant").score.mean().to_dict() == {"ppo": 475.0, "b, c": 1.5}
    assert len(results.to_pandas()) == 16
    assert list(results.table().to_pandas()["mean"]) == [475.0, 1.5]


def test_without_pandas_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas, or use to_csv"):
        Results(experiment_with({"ppo": GOOD})).to_pandas()


class SavedText:
    """In the place of an agent: what it saves is not read here."""

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text("policy")


def test_folders_are_loaded(tmp_path: Path) -> None:
    experiment = experiment_with({"ppo": GOOD, "dqn": BAD})
    manifest = {
        "format": folder.FORMAT,
        "env": experiment.env,
        "reward_threshold": 475.0,
        "protocol": experiment.protocol,
        "variants": {name: each._asdict() for name, each in experiment.variants.items()},
        "versions": {"rlcpu": "0.1.0"},
    }
    folder.write_manifest(tmp_path, manifest)
    for run in experiment.runs:
        folder.write_run(tmp_path, run, SavedText())
    loaded = load(tmp_path)
    assert str(loaded) == str(Results(experiment))
    assert str(loaded.compare("ppo", "dqn")) == str(Results(experiment).compare("ppo", "dqn"))
    with pytest.raises(FileNotFoundError, match="there is no experiment in"):
        load(tmp_path, tmp_path / "none")
