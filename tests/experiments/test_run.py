"""Runs of an experiment in this process: what is run, what is refused, and going on."""

from __future__ import annotations

import errno
import importlib
import json
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlcpu
from rlcpu import experiments
from rlcpu.experiments import RunError, UnwritableError, folder
from rlcpu.train import PPO
from rlcpu.train.running.evaluate import evaluate

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 32,
    "minibatch_size": 64,
    "num_epochs": 2,
    "hidden": (8,),
}
FEW: dict[str, Any] = {"evaluations": 2, "eval_episodes": 2, "final_episodes": 3, "workers": 1}


def run_few(path: Path, variants: Any = None, **options: Any) -> Any:
    variants = {"ppo": SMALL} if variants is None else variants
    options = {"seeds": 2, "steps": 256, "folder": path, **FEW, **options}
    results = experiments.run(options.pop("env", "CartPole-v1"), variants, **options)
    (experiment,) = results.experiments
    return experiment


def test_a_score_is_of_the_last_policy_in_episodes_of_its_own(tmp_path: Path) -> None:
    experiment = run_few(tmp_path, seeds=[3, 8])
    assert [run[:2] for run in experiment.runs] == [("ppo", 3), ("ppo", 8)]
    for run in experiment.runs:
        agent = PPO("CartPole-v1", seed=run.seed, **SMALL)
        agent.learn(256)
        expected = agent.evaluate(3, seed=2 * 2**64 + run.seed)
        np.testing.assert_array_equal(run.episodes, expected)
        assert run.curve.steps.tolist() == [128, 256]
        on_the_way = agent.evaluate(2, seed=2**64 + run.seed)
        assert run.curve.mean_return[-1] == on_the_way.mean()
        assert (run.done.steps, run.done.stopped) == (256, "steps")
        assert 0.0 < run.done.cpu_seconds < 60.0
        assert run.done.seconds == pytest.approx(run.curve.seconds[-1], abs=1e-6)
        saved = PPO.load(folder.run_folder(tmp_path, "ppo", run.seed) / "policy.npz")
        np.testing.assert_array_equal(saved.policy.parameters, agent.policy.parameters)
        assert evaluate(saved.env, saved.policy, 3, seed=2 * 2**64 + run.seed).mean() == run.score


def test_the_manifest_says_what_was_run(tmp_path: Path) -> None:
    experiment = run_few(tmp_path, {"ppo": SMALL, "small steps": {**SMALL, "learning_rate": 1e-4}})
    manifest = experiment.manifest
    assert (experiment.env, experiment.reward_threshold) == ("CartPole-v1", 475.0)
    assert experiment.protocol["steps"] == 256
    assert experiment.variants["small steps"].settings["learning_rate"] == 1e-4
    assert experiment.variants["small steps"].settings["hidden"] == [8]
    assert experiment.variants["ppo"].config["gamma"] == PPO("CartPole-v1").config.gamma
    assert [each.algo for each in experiment.variants.values()] == ["ppo", "ppo"]
    assert manifest["versions"]["rlcpu"] == rlcpu.__version__
    assert manifest["code"] == {}
    assert experiment.versions == [rlcpu.__version__]


def written_times(path: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in path.glob("runs/*/*/*")}


def test_the_same_call_makes_what_is_missing(tmp_path: Path) -> None:
    run_few(tmp_path, seeds=1)
    before = written_times(tmp_path)
    two = {"ppo": SMALL, "dqn, small": {"learning_starts": 100, "batch_size": 16, "hidden": (8,)}}
    experiment = run_few(tmp_path, two, seeds=[1, 0])
    assert [run[:2] for run in experiment.runs] == [
        *(("ppo", 0), ("ppo", 1)),
        *(("dqn, small", 0), ("dqn, small", 1)),
    ]
    after = written_times(tmp_path)
    assert {file: after[file] for file in before} == before
    # The algorithm that the name begins with.
    assert [each.algo for each in experiment.variants.values()] == ["ppo", "dqn"]
    # Fewer seeds and variants make nothing, and lose nothing.
    again = run_few(tmp_path, seeds=1)
    assert len(again.runs) == 4
    assert written_times(tmp_path) == after


def test_a_run_without_its_last_file_is_made_again(tmp_path: Path) -> None:
    scores = [run.score for run in run_few(tmp_path).runs]
    path = folder.run_folder(tmp_path, "ppo", 1)
    (path / "done.json").unlink()
    (path / "episodes.npy").write_bytes(b"half of")
    (path / "curve.csv.0123-99999999-01234567.part").write_text("left by a kill")
    assert [run.score for run in run_few(tmp_path).runs] == scores


def test_a_run_that_a_power_failure_damaged_is_made_again(tmp_path: Path) -> None:
    scores = [run.score for run in run_few(tmp_path).runs]
    (folder.run_folder(tmp_path, "ppo", 1) / "episodes.npy").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"1: damaged.*; the run is made again"):
        experiment = run_few(tmp_path)
    assert [run.score for run in experiment.runs] == scores


def test_a_target_ends_runs_and_counts_their_steps(tmp_path: Path) -> None:
    experiment = run_few(tmp_path, steps=2560, target=9.0, seeds=1)
    (run,) = experiment.runs
    assert (run.done.stopped, run.done.solved) == ("solved", True)
    assert run.done.target_steps == run.done.steps == run.curve.steps[-1] < 2560
    (never,) = run_few(tmp_path / "never", target=500.0, seeds=1).runs
    assert (never.done.target_steps, never.done.solved, never.done.steps) == (None, False, 256)


def test_steps_are_those_that_all_variants_agree_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {"ppo": SMALL, "dqn": {"hidden": (8,)}}
    with pytest.raises(ValueError, match=r"'ppo' 1,000,000, 'dqn' 50,000: expected steps="):
        run_few(tmp_path, both, steps=None)
    from rlcpu.train.settings.tuned import STEPS

    monkeypatch.setitem(STEPS, "CartPole-v1", {"ppo": 256})
    assert run_few(tmp_path, steps=None, seeds=1).protocol["steps"] == 256


@pytest.mark.parametrize(
    ("variants", "reason"),
    [
        ({}, "expected one at least"),
        ([], "expected settings by name"),
        ({"": {}}, "expected a name"),
        ({"a\nb": {}}, "expected a name"),
        ({"x" * 81: {}}, "at most 80 letters"),
        ({"ppo": {}, "PPO": {}}, "twice"),
        ({"ppo": 3}, r"variants\['ppo'\]=3"),
        ({"ppo": {"learnin_rate": 1}}, r"variants\['ppo'\]: .*did you mean learning_rate"),
        ({"ppo": {"n_steps": 1}}, "did you mean num_steps"),
        ({"ppo": {"learning_rate": -1.0}}, r"variants\['ppo'\]: learning_rate=-1.0: expected"),
        ({"ppo": {"seed": 1}}, "seeds= has the seeds"),
        ({"ppo": {"algorithm": "dqn"}}, 'write "algo"'),
        ({"ppo": {"algo": "dqm"}}, "did you mean 'dqn'"),
        ({"ppo": {"algo": 3}}, "algo=3: expected a name"),
        ({"ppo": {"algo": "json:JSONDecoder"}}, "expected a class of agents"),
        ({"ppo": {"algo": "no_such_module:A"}}, "no_such_module cannot be imported"),
        ({"ppo": {"network": lambda space: None}}, "has no name by which it can be found"),
        ({"sac": {}}, r"variants\['sac'\]: .*"),
    ],
)
def test_bad_variants_are_refused_before_anything_runs(
    tmp_path: Path, variants: Any, reason: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        run_few(tmp_path / "new", variants)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"eval_freq": 1000}, "did you mean evaluations"),
        ({"n_eval_episodes": 5}, "did you mean eval_episodes"),
        ({"total_timesteps": 5}, "did you mean steps"),
        ({"final_episode": 5}, "did you mean final_episodes"),
        ({"learning_rate": 5}, "is a setting: variants="),
        ({"seeds": 0}, "seeds=0: expected at least 1"),
        ({"seeds": [1, 1]}, "each once"),
        ({"seeds": [-1]}, "expected at least 0"),
        ({"seeds": [2**64]}, "expected less than"),
        ({"seeds": "12"}, "expected a number of seeds"),
        ({"steps": 0}, "steps=0"),
        ({"target": "x"}, "target='x': expected a number"),
        ({"target": float("nan")}, "expected a finite number"),
        ({"evaluations": 0}, "evaluations=0"),
        ({"final_episodes": 1.5}, "final_episodes=1.5"),
        ({"workers": 0}, "workers=0"),
        ({"env": "CartPole-v7"}, "environment='CartPole-v7' is unknown"),
        ({"env": 5}, "env=5: expected an id"),
        ({"env": "no_such_module:A-v0"}, "no_such_module cannot be imported"),
        ({"eval_env": "Acrobot-v1"}, "environments to evaluate in have"),
        ({"folder": 7}, "folder=7: expected the path"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        run_few(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_another_experiment_gets_another_folder(tmp_path: Path) -> None:
    run_few(tmp_path, seeds=1)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    changed = {"ppo": {**SMALL, "learning_rate": 1e-4}}
    with pytest.raises(ValueError, match=r"with learning_rate=0.0015, here it is learning_rate=0"):
        run_few(tmp_path, changed)
    with pytest.raises(ValueError, match="steps=256, here it is 512"):
        run_few(tmp_path, steps=512)
    with pytest.raises(ValueError, match="env='CartPole-v1', here it is 'Acrobot-v1'"):
        run_few(tmp_path, env="Acrobot-v1")
    with pytest.raises(ValueError, match="env_spec="):
        run_few(tmp_path, env=rlcpu.envs.find("CartPole-v1").with_params(gravity=5.0))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"it holds 'thesis.tex', expected a new folder"):
        run_few(tmp_path / "other")
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert {name: after[name] for name in before} == before


def test_parameters_of_an_environment_are_kept(tmp_path: Path) -> None:
    heavy = rlcpu.envs.find("CartPole-v1").with_params(gravity=5.0)
    (run,) = run_few(tmp_path, env=heavy, seeds=1).runs
    agent = PPO(heavy, seed=0, **SMALL)
    agent.learn(256)
    np.testing.assert_array_equal(run.episodes, agent.evaluate(3, seed=2 * 2**64))
    assert len(run_few(tmp_path, env=heavy).runs) == 2


def test_runs_of_another_version_are_added_to_if_told(tmp_path: Path) -> None:
    run_few(tmp_path, seeds=1)
    path = folder.run_folder(tmp_path, "ppo", 0) / "done.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.9"}))
    assert len(run_few(tmp_path, seeds=1).runs) == 1  # nothing is added
    with pytest.raises(ValueError, match=r"runs of rlcpu 0.0.9, and this is .*mix_versions=True"):
        run_few(tmp_path)
    with pytest.raises(ValueError, match="mix_versions"):
        run_few(tmp_path, {"another": SMALL}, seeds=1)
    experiment = run_few(tmp_path, mix_versions=True)
    assert experiment.versions == ["0.0.9", rlcpu.__version__]


def test_one_process_runs_in_a_folder(tmp_path: Path) -> None:
    with folder.locked(tmp_path), pytest.raises(BlockingIOError, match="runs there already"):
        run_few(tmp_path)


def test_a_full_disk_is_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_few(tmp_path, seeds=1)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnwritableError, match=r"1: No space left on device; runs that are done"):
        run_few(tmp_path)
    monkeypatch.undo()
    assert [run.seed for run in folder.read(tmp_path).runs] == [0]
    assert len(run_few(tmp_path).runs) == 2


# ---------------------------------------------------------------- things of a user's

OWN = """
import gymnasium
from rlcpu.train import PPO
import helper

class Failing(PPO):
    def learn(self, *args, **options):
        if self.seed == 1:
            raise FloatingPointError("reward is NaN\\nsince yesterday")
        return super().learn(*args, **options)

def make():
    return gymnasium.make("CartPole-v1")

def fading(remaining):
    return helper.POWER * remaining
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's module, in a folder that modules are imported from, and one that it imports."""
    path = tmp_path / "modules"
    path.mkdir()
    (path / "own_experiment.py").write_text(OWN)
    (path / "helper.py").write_text("POWER = 0.5\n")
    monkeypatch.syspath_prepend(str(path))
    for name in ("own_experiment", "helper"):
        monkeypatch.delitem(importlib.import_module("sys").modules, name, raising=False)
    return importlib.import_module("own_experiment")


def test_a_run_that_fails_is_named_and_the_others_are_made(tmp_path: Path, own: Any) -> None:
    variants = {"mine": {**SMALL, "algo": own.Failing}, "ppo": SMALL}
    with pytest.raises(
        RunError, match=r"'mine' with seed 1: FloatingPointError: reward is NaN since yesterday;"
    ):
        run_few(tmp_path / "runs", variants, seeds=3)
    experiment = folder.read(tmp_path / "runs")
    done = [run[:2] for run in experiment.runs]
    assert done == [("mine", 0), *(("ppo", seed) for seed in range(3))]
    assert experiment.variants["mine"].algo == "own_experiment:Failing"


def test_changed_code_of_the_users_is_refused(tmp_path: Path, own: Any) -> None:
    variants = {"ppo": {**SMALL, "learning_rate_schedule": own.fading}}
    text = {"ppo": {**SMALL, "learning_rate_schedule": "own_experiment:fading"}}
    first = run_few(tmp_path / "runs", variants, seeds=1)
    assert set(first.manifest["code"]) == {"own_experiment", "helper"}
    (tmp_path / "modules" / "helper.py").write_text("POWER = 0.6\n")
    with pytest.raises(ValueError, match="other code: helper has changed"):
        run_few(tmp_path / "runs", text)
    (tmp_path / "modules" / "helper.py").write_text("POWER = 0.5\n")
    assert len(run_few(tmp_path / "runs", text).runs) == 2


def test_environments_of_gymnasium(tmp_path: Path, own: Any) -> None:
    tiny = {"ppo": {"num_steps": 32, "minibatch_size": 32, "num_epochs": 1, "hidden": (8,)}}
    options: dict[str, Any] = {"seeds": 1, "steps": 64}
    made = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match="cannot be made again"):
        run_few(tmp_path / "object", tiny, env=made, **options)
    with pytest.raises(ValueError, match="workers=2: other processes cannot import an object"):
        run_few(tmp_path / "object", tiny, env=made, eval_env=own.make, **{**options, "workers": 2})
    (one,) = run_few(tmp_path / "object", tiny, env=made, eval_env=own.make, **options).runs
    (again,) = run_few(  # nothing was closed that is the user's
        tmp_path / "vectors", tiny, env=made, eval_env=rlcpu.make_vec("CartPole-v1"), **options
    ).runs
    assert again.episodes.shape == (3,)
    (two,) = run_few(tmp_path / "function", tiny, env="own_experiment:make", **options).runs
    np.testing.assert_array_equal(one.episodes, two.episodes)
    assert one.episodes.shape == (3,)
