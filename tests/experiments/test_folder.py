"""The folder of an experiment: runs are read as they were written, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.experiments import folder
from rlcpu.experiments.folder import Curve, Done, Run, read


class SavedText:
    """In the place of an agent: what it saves is not read here."""

    def save(self, path: Path) -> None:
        path.write_text("policy")


def run_of(variant: str, seed: int, episodes: Any = (1.0, 2.0, 4.5)) -> Run:
    steps = np.array([512, 1024])
    curve = Curve(steps, steps / 1e4, np.array([0.1, 1e-17]), np.array([np.nan, 3.0]))
    done = Done(seed, 1024, 0.25, 0.2, "steps", False, None, "0.1.0")
    return Run(variant, seed, curve, np.array(episodes), done)


def manifest_of(*variants: str) -> dict[str, Any]:
    described = {"algo": "ppo", "settings": {"hidden": [8]}, "config": {"gamma": 0.9}}
    return {
        "format": folder.FORMAT,
        "env": "CartPole-v1",
        "env_spec": {"id": "CartPole-v1", "params": {}},
        "reward_threshold": 475.0,
        "protocol": {"steps": 1024},
        "variants": dict.fromkeys(variants, described),
        "versions": {"rlcpu": "0.1.0"},
    }


def test_what_was_written_is_read(tmp_path: Path) -> None:
    names = "ppo, small steps", "../..", "a/b: 100 %", "ü", "%2E"
    folder.write_manifest(tmp_path, manifest_of(*names))
    runs = [run_of(name, seed) for name in names for seed in (0, 2, 10)]
    for run in reversed(runs):
        folder.write_run(tmp_path, run, SavedText())
    experiment = read(tmp_path)
    assert [run[:2] for run in experiment.runs] == [run[:2] for run in runs]
    for run, expected in zip(experiment.runs, runs, strict=True):
        assert run.done == expected.done
        assert run.score == 2.5
        np.testing.assert_array_equal(run.episodes, expected.episodes)
        for column, written in zip(run.curve, expected.curve, strict=True):
            np.testing.assert_array_equal(column, written)
            assert column.dtype == written.dtype
    assert experiment.variants[names[0]].settings == {"hidden": [8]}
    assert (experiment.env, experiment.reward_threshold) == ("CartPole-v1", 475.0)
    assert experiment.versions == ["0.1.0"]
    # No name leads out of the folder, and each can be told from its folder.
    made = [path.name for path in (tmp_path / "runs").iterdir()]
    assert sorted(map(folder.variant_name, made)) == sorted(names)


def test_a_run_counts_from_its_last_file_on(tmp_path: Path) -> None:
    folder.write_manifest(tmp_path, manifest_of("ppo"))
    folder.write_run(tmp_path, run_of("ppo", 0), SavedText())
    folder.write_run(tmp_path, run_of("ppo", 1), SavedText())
    os.remove(folder.run_folder(tmp_path, "ppo", 1) / "done.json")
    assert [run.seed for run in read(tmp_path).runs] == [0]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("done.json", "{}", "it lacks 'seed'"),
        ("done.json", json.dumps(run_of("ppo", 3).done._asdict()), "belong to another run"),
        ("episodes.npy", "", "damaged"),
        ("curve.csv", "steps,seconds\n1,1\n", "it lacks 'mean_return'"),
        ("curve.csv", "steps,seconds,mean_return,training_return\n1,1,x,1\n", "'x'"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: str, reason: str) -> None:
    folder.write_manifest(tmp_path, manifest_of("ppo"))
    folder.write_run(tmp_path, run_of("ppo", 0), SavedText())
    (folder.run_folder(tmp_path, "ppo", 0) / name).write_text(content)
    with pytest.raises(ValueError, match=f"ppo.*{reason}"):
        read(tmp_path)


def test_another_folder_is_no_experiment(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="there is no experiment in"):
            read(path)
    folder.write_manifest(tmp_path, {**manifest_of(), "format": "rlcpu experiment 2"})
    with pytest.raises(ValueError, match="its format is 'rlcpu experiment 2'"):
        read(tmp_path)


def test_a_folder_has_one_process_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from rlcpu.experiments.folder import locked; "
        "lock = locked(pathlib.Path(sys.argv[1])); lock.__enter__(); print('held', flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "held\n"
        with (
            pytest.raises(BlockingIOError, match=f"already .process {one.pid} of "),
            folder.locked(tmp_path),
        ):
            pass
        one.kill()
        one.wait()
    with folder.locked(tmp_path):  # the lock of a killed process is none
        pass
