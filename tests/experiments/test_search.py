"""A search over settings: what is proposed, what ends early, what kills leave, and the outcome."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rlcpu import experiments
from rlcpu.envs import find
from rlcpu.envs.rollout import collect
from rlcpu.experiments import RunError, folder
from rlcpu.experiments.settings_file import read_settings
from rlcpu.experiments.spaces import SPACES
from rlcpu.train import PPO

optuna = pytest.importorskip("optuna")
ROOT = Path(__file__).parents[2]
PARTS, STEPS, SEEDS = 6, 1024, 3
#: Two batches of runs of eight rollouts each.
FEW: dict[str, Any] = {
    "trials": 16,
    "seeds": SEEDS,
    "steps": STEPS,
    "evaluations": PARTS,
    "eval_episodes": 2,
    "final_episodes": 5,
    "settings": {"num_envs": 4, "num_steps": 32, "hidden": (8,)},
}


def search_in(path: Path, env: Any = "CartPole-v1", algo: Any = "ppo", **options: Any) -> Any:
    return experiments.tune(env, algo, **{**FEW, "folder": path, "workers": 1, **options})


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A whole search, made in this process."""
    return search_in(tmp_path_factory.mktemp("search") / "whole")


def facts(search: Any) -> Any:
    """All that a search says but for times."""
    trials = [
        (each.number, each.state, each.value, each.params, each.intermediate_values)
        for each in search.study.trials
    ]
    scores = {name: search.results.scores(name) for name in search.results.variants}
    return trials, scores, search.best, search.settings, search.score, search.fresh_score


def runs_of(search: Any, number: int, seeds: int = SEEDS) -> list[Any]:
    """The runs of a trial that its search made, by the seed, those that ended early too."""
    (experiment,) = search.results.experiments
    runs = [run for run in experiment.runs if run.variant == f"trial {number}"]
    return [run for run in runs if run.seed < seeds]


# ---------------------------------------------------------------- what ends early


def returns_after_parts(run: Any) -> list[float]:
    """The return of the first evaluation at or after the end of each part of a run."""
    ends = [part * STEPS / PARTS for part in range(1, PARTS + 1)]
    curve = list(zip(run.curve.steps, run.curve.mean_return, strict=True))
    return [next(value for steps, value in curve if steps >= end) for end in ends]


def naive_end(past: list[Any], run: Any, others: list[list[Any]]) -> int | None:
    """The number of the evaluation at which a run ends, or None.

    `past` are the runs of the same trial with other seeds, `others` those of whole trials with the
    same seeds.
    """
    best = -math.inf
    for place, (steps, value) in enumerate(
        zip(run.curve.steps, run.curve.mean_return, strict=True)
    ):
        best, part = max(best, value), int(steps * PARTS // STEPS)
        bests = [max(returns_after_parts(each)[:part]) for each in past] + [best]
        means = [np.mean([returns_after_parts(x)[part - 1] for x in each]) for each in others]
        is_warm = PARTS // 3 < part < PARTS
        if is_warm and np.mean(bests) < np.median(means):
            return place
    return None


def test_runs_end_where_the_median_of_earlier_batches_says(searched: Any) -> None:
    trials = searched.study.trials
    whole = [each.number for each in trials[:8] if each.state.name == "COMPLETE"]
    assert len(whole) == 8  # nothing ends early in the first batch
    ends = []
    for trial in trials[8:]:
        runs = runs_of(searched, trial.number)
        for index, run in enumerate(runs):
            others = [runs_of(searched, number)[: index + 1] for number in whole]
            place = naive_end(runs[:index], run, others)
            was_early = run.done.stopped == folder.PRUNED
            assert (place is not None) == was_early
            if was_early:
                assert place == len(run.curve.steps) - 1
                assert (trial.state.name, run) == ("PRUNED", runs[-1])
                assert run.done.steps < STEPS
                # Its episodes are those of the last evaluation.
                assert (len(run.episodes), run.score) == (2, run.curve.mean_return[-1])
            ends.append(was_early)
    assert any(ends)
    assert not all(ends)


def test_the_first_seed_is_judged_as_optunas_pruner_does(searched: Any) -> None:
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=PARTS // 3 + 1)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for trial in searched.study.trials[:8]:
        values = dict(enumerate(returns_after_parts(runs_of(searched, trial.number)[0]), 1))
        study.add_trial(optuna.trial.create_trial(value=0.0, intermediate_values=values))
    for trial in searched.study.trials[8:]:
        run, asked, judged = runs_of(searched, trial.number)[0], study.ask(), []
        for steps, value in zip(run.curve.steps, run.curve.mean_return, strict=True):
            asked.report(value, int(steps * PARTS // STEPS))
            judged.append(steps < STEPS and asked.should_prune())
        was_early = run.done.stopped == folder.PRUNED
        assert judged == [False] * (len(judged) - 1) + [was_early]
        study.tell(asked, state=optuna.trial.TrialState.PRUNED)


def test_trials_end_after_the_seed_that_wilcoxons_test_says(tmp_path: Path) -> None:
    # With one evaluation nothing ends early over steps, and small rates learn nothing.
    space = {**dict.fromkeys(SPACES["ppo"]), "learning_rate": (1e-6, 1e-2, "log")}
    larger = {"num_envs": 16, "num_steps": 64, "num_epochs": 4, "minibatch_size": 128}
    options = {"steps": 8192, "settings": {**larger, "hidden": (16,)}, "space": space}
    search = search_in(tmp_path, seeds=5, evaluations=1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        pruner = optuna.pruners.WilcoxonPruner()
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.add_trials(search.study.trials[:8])
    ends = set()
    for trial in search.study.trials[8:]:
        asked, judged = study.ask(), []
        runs = runs_of(search, trial.number, seeds=5)
        for run in runs[:4]:
            assert run.done.stopped == "steps"
            asked.report(run.score, run.seed)
            judged.append(asked.should_prune())
        is_worse = len(runs) < 5
        assert judged == [False] * (len(judged) - is_worse) + [True] * is_worse
        assert (trial.state.name == "PRUNED") == is_worse
        ends.add(len(runs))
        study.tell(asked, state=optuna.trial.TrialState.PRUNED)
    assert ends == {4, 5}  # of fewer than four seeds the test tells nothing


def test_runs_that_ended_early_are_in_no_statistics(searched: Any) -> None:
    early = {
        run.variant
        for number in range(8, 16)
        for run in runs_of(searched, number)
        if run.done.stopped == folder.PRUNED
    }
    for name in early:
        assert all(run.done.stopped == "steps" for run in searched.results.runs(name))
    (note,) = [each for each in searched.results.table().notes if "ended early" in each]
    assert note.startswith(f"{len(early)} variants")


# ---------------------------------------------------------------- the outcome


def test_the_best_trial_is_run_anew_beside_the_default(searched: Any) -> None:
    trials = [each for each in searched.study.trials if each.state.name == "COMPLETE"]
    best = max(trials, key=lambda each: each.value)
    assert (searched.best, searched.score) == (f"trial {best.number}", best.value)
    assert best.value == np.mean([run.score for run in runs_of(searched, best.number)])
    fresh = range(SEEDS, SEEDS + 10)
    for name in (searched.best, "default"):
        assert [run.seed for run in searched.confirmed.runs(name)] == list(fresh)
    scores = [run.score for run in searched.confirmed.runs(searched.best)]
    assert searched.fresh_score == pytest.approx(np.mean(scores))
    assert searched.optimism == pytest.approx(best.value - np.mean(scores))
    assert searched.verdict == searched.confirmed.compare(searched.best, "default")
    assert not any("pairs of variants" in each for each in searched.verdict.notes)
    assert searched.beats_default == (searched.verdict.difference.low > 0.0)


def test_the_outcome_in_words(searched: Any) -> None:
    text = str(searched)
    assert text.startswith("CartPole-v1: 16 trials of ppo with 3 seeds, 1,024 steps each\n\nbest")
    assert all(len(line) <= 80 or "/" in line for line in text.splitlines())
    beaten = dataclasses.replace(
        searched.verdict, difference=searched.verdict.difference._replace(low=1.0)
    )
    better = dataclasses.replace(searched, verdict=beaten, score=20.0, fresh_score=30.0)
    assert f"{searched.best} is better than the default settings." in str(better)
    assert "30.00 with the seeds 3 to 12, 10.00 more than in the search" in str(better)
    worse = beaten.difference._replace(low=-1.0)
    neither = dataclasses.replace(better, verdict=dataclasses.replace(beaten, difference=worse))
    assert "nothing that was tried is shown to beat the default settings." in str(neither)
    optimistic = dataclasses.replace(better, score=40.0)
    assert "10.00 less than in the search: the best of many" in " ".join(str(optimistic).split())
    assert "<p>best: trial" in searched._repr_html_()


def test_the_settings_make_the_agents_that_were_run(searched: Any) -> None:
    algo, settings = read_settings(searched.file)
    assert (algo, settings) == ("ppo", searched.settings)
    (experiment,) = searched.results.experiments
    agent = PPO("CartPole-v1", seed=SEEDS, **settings)
    assert agent.config.hidden == (8,)
    agent.learn(STEPS)
    path = folder.run_folder(experiment.folder, searched.best, SEEDS)
    saved = PPO.load(path / folder.POLICY)
    np.testing.assert_array_equal(saved.policy.parameters, agent.policy.parameters)


# ---------------------------------------------------------------- workers, kills, limits

LONG = """
import sys
from pathlib import Path
from tests.experiments.test_search import search_in
search_in(Path(sys.argv[1]), workers=2)
"""


def kill_after(path: Path, num_runs: int, seconds: float) -> None:
    """A search in processes of its own, killed some time after it has begun so many runs."""
    process = psutil.Popen([sys.executable, "-c", LONG, str(path)], cwd=ROOT)
    enough = len(list(path.glob("runs/*/*"))) + num_runs
    while len(list(path.glob("runs/*/*"))) < enough and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    workers = process.children(recursive=True)
    process.kill()
    process.wait()
    psutil.wait_procs(workers, timeout=10.0)


def test_the_result_depends_on_nothing_but_the_arguments(searched: Any, tmp_path: Path) -> None:
    limited = search_in(tmp_path, minutes=1e-6, workers=2)
    assert "Time was up after 8 of 16 trials" in limited.notes[-1]
    assert len(limited.study.trials) == 8
    rng = random.Random(0)
    for _ in range(3):  # in the second batch, which has eight runs at least
        kill_after(tmp_path, rng.randint(1, 2), rng.uniform(0.0, 0.05))
    # What a kill may leave of the journal, and of its lock.
    with open(tmp_path / folder.TRIALS, "a", encoding="utf-8") as file:
        file.write('{"op_code": 4, "wor')
    (tmp_path / f"{folder.TRIALS}.lock").symlink_to(tmp_path / folder.TRIALS)
    fewer = search_in(tmp_path, trials=11, workers=2)
    assert len(fewer.study.trials) == 11
    assert fewer.best in [f"trial {number}" for number in range(11)]
    # And a power failure, of a run.
    (folder.run_folder(tmp_path, "trial 3", 1) / folder.EPISODES).write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged.*; the run is made again"):
        again = search_in(tmp_path, workers=2)
    assert facts(again)[0] == facts(searched)[0]
    assert facts(again)[2:] == facts(searched)[2:]
    # The best ones of fewer trials have more runs, and no run differs.
    for name, scores in facts(searched)[1].items():
        assert scores["CartPole-v1"].items() <= facts(again)[1][name]["CartPole-v1"].items()


def test_another_seed_proposes_other_settings(searched: Any, tmp_path: Path) -> None:
    other = search_in(tmp_path, trials=2, seeds=1, seed=1)
    assert other.study.trials[0].params != searched.study.trials[0].params
    assert [run.seed for run in other.confirmed.runs("default")] == list(range(2, 12))


# ---------------------------------------------------------------- what fails

OWN = """
from rlcpu.train import PPO

class Fragile(PPO):
    def learn(self, *args, **options):
        if self.config.learning_rate > LIMIT:
            raise FloatingPointError("the loss became NaN")
        return super().learn(*args, **options)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's module with an algorithm that some learning rates break."""

    def make(limit: float) -> Any:
        (tmp_path / "own_search.py").write_text(f"LIMIT = {limit}\n{OWN}")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "own_search", raising=False)
        return importlib.import_module("own_search")

    return make


def test_a_trial_that_fails_ends_no_search(tmp_path: Path, own: Any) -> None:
    fragile = own(2e-3).Fragile  # the default learns at 1.5e-3
    search = search_in(tmp_path / "s", algo=fragile, trials=9, seeds=1)
    for trial in search.study.trials:
        assert (trial.state.name == "FAIL") == (trial.params["learning_rate"] > 2e-3)
    failed = [each for each in search.study.trials if each.state.name == "FAIL"]
    assert 0 < len(failed) < 8
    reason = f"'trial {failed[0].number}' with seed 0: FloatingPointError: the loss became NaN"
    assert failed[0].user_attrs == {"reason": reason}
    assert f"{len(failed)} failed" in search.notes[0]
    assert search.notes[1] == f"The first that failed: {reason}."
    assert json.loads(search.file.read_text())["algo"] == "own_search:Fragile"


def test_a_search_ends_where_all_trials_of_a_batch_fail(tmp_path: Path, own: Any) -> None:
    with pytest.raises(RunError, match=r"^all 8 trials of the first batch failed: 'trial 0' with"):
        search_in(tmp_path / "s", algo=own(0.0).Fragile)


def test_an_environment_that_ends_in_no_episode_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = dataclasses.replace(find("Pendulum-v1"), id="Endless-v0", max_episode_steps=None)
    monkeypatch.setattr(collect, "MOST_STEPS", 200)
    with pytest.raises(ValueError, match="Endless-v0: an episode did not end within 200 steps: a"):
        search_in(tmp_path / "new", endless, workers=1)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"trials": 0}, "trials=0: expected at least 1"),
        ({"seeds": 0}, "seeds=0: expected at least 1"),
        ({"seed": -1}, "seed=-1: expected at least 0"),
        ({"minutes": 0}, "minutes=0: expected a finite number above 0"),
        ({"folder": 7}, "folder=7: expected the path"),
        ({"settings": 7}, "settings=7: expected values"),
        ({"settings": {"learnin_rate": 1}}, "^learnin_rate: .*did you mean learning_rate"),
        ({"algo": "dqm"}, "did you mean 'dqn'"),
        ({"algo": "sac"}, "^CartPole-v1 has action_space=.*: expected a Box"),
        ({"workers": 0}, "workers=0"),
        ({"steps": 0}, "steps=0"),
        ({"env": "CartPole-v7"}, "environment='CartPole-v7' is unknown"),
        ({"space": 7}, "space=7: expected ranges"),
        ({"space": {"learnin_rate": (1, 2)}}, "^space: learnin_rate: .*did you mean learning_rate"),
        ({"space": {"learning_rate": 7}}, r"space\['learning_rate'\]=7: expected \(low, high\)"),
        ({"space": {"learning_rate": (1e-3, 1e-4)}}, "expected a finite number, and a larger one"),
        ({"space": {"learning_rate": (1e-3, math.inf)}}, "expected a finite number"),
        ({"space": {"learning_rate": ("a", "b")}}, "expected numbers as bounds"),
        ({"space": {"learning_rate": (0.0, 1.0, "log")}}, "expected bounds above 0 of this scale"),
        ({"space": {"gamma": (0.9, 1.0, "log1m")}}, "below 1 of this scale"),
        ({"space": {"gamma": (0.9, 0.99, "cubic")}}, "expected one of linear, log, log1m"),
        ({"space": {"activation": ["tanh"]}}, "expected two choices at least"),
        ({"space": {"hidden": [(8,), (16,)]}}, "it is fixed by settings="),
        (
            {"space": {"learning_rate": (-1.0, 1.0)}},
            r"space\['learning_rate'\] has -1.0, which the agent refuses: learning_rate=-1.0: exp",
        ),
        ({"space": {"activation": ["tanh", "gelu"]}}, "has 'gelu', which the agent refuses"),
        (
            {
                "algo": "dqn",
                "settings": {},
                "space": {"capacity": (130, 1000), "batch_size": (32, 800)},
            },
            r"^space: trial \d is .*, which the agent refuses: capacity=",
        ),
        (  # with hindsight the usual space has no n_step, of which there is one only
            {
                "env": "BitFlip-v0",
                "algo": "dqn",
                "settings": {"hidden": (8,)},
                "space": {"capacity": (130, 1000), "batch_size": (32, 800)},
            },
            r"^space: trial \d is .*, which the agent refuses: capacity=",
        ),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        search_in(**{"path": tmp_path / "new", **options})
    assert not (tmp_path / "new").exists()


def test_another_search_gets_another_folder(searched: Any, tmp_path: Path) -> None:
    (experiment,) = searched.results.experiments
    for options, reason in (
        ({"space": {"clip_range": None}}, "has an experiment with space="),
        ({"seeds": 2}, "has an experiment with seeds=3, here it is 2"),
        ({"settings": {**FEW["settings"], "num_steps": 16}}, "has an experiment with settings="),
        ({"steps": 512}, "has an experiment with steps=1024"),
    ):
        with pytest.raises(ValueError, match=f"{reason}.*: name another folder"):
            search_in(experiment.folder, **options)
    few = {"evaluations": 1, "eval_episodes": 1, "final_episodes": 1, "workers": 1}
    experiments.run("CartPole-v1", {"ppo": {}}, seeds=1, steps=1, folder=tmp_path, **few)
    with pytest.raises(ValueError, match="has an experiment that is no search: name another fol"):
        search_in(tmp_path, steps=1, **{**few, "settings": {}})


def test_where_optuna_is_missing_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None; from rlcpu import experiments; "
        "experiments.tune('CartPole-v1', folder='new')"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 'a search needs Optuna: pip install "optuna>=5.0"' in result.stderr
