"""Runs in other processes: the same as here, whatever dies, prints or is interrupted meanwhile."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rlcpu import experiments
from rlcpu.experiments import RunError, UnwritableError, folder, pool
from tests.experiments.test_run import FEW, SMALL

ROOT = Path(__file__).parents[2]
OWN = '''
import os, signal, sys, warnings
from pathlib import Path
from rlcpu.train import PPO

class Loud(PPO):
    """Prints by every way, reads its input, and warns."""

    def learn(self, *args, **options):
        print("a line\\n{}")
        os.write(1, b'{"event": "done"}\\n')
        print("on standard error", file=sys.stderr)
        assert sys.stdin.read() == ""
        warnings.warn("the reward is large", RuntimeWarning)
        return super().learn(*args, **options)

class Dying(PPO):
    """Is killed by the system in its first run of the seed 1, and in all runs of the seed 2."""

    def learn(self, *args, **options):
        mark = Path(__file__).with_name("died")
        if self.seed == 2 or (self.seed == 1 and not mark.exists()):
            mark.touch()
            print("out of memory", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().learn(*args, **options)

class Full(PPO):
    """Cannot be saved."""

    def save(self, path):
        raise OSError(28, "No space left on device")
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's module, in a folder that modules are imported from."""
    path = tmp_path / "modules"
    path.mkdir()
    (path / "own_workers.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.delitem(sys.modules, "own_workers", raising=False)
    return importlib.import_module("own_workers")


def run_with_two(path: Path, variants: Any, **options: Any) -> Any:
    options = {"seeds": 2, "steps": 256, "folder": path, **FEW, "workers": 2, **options}
    (experiment,) = experiments.run("CartPole-v1", variants, **options).experiments
    return experiment


def assert_same(experiment: Any, expected: Any) -> None:
    """Assert that two experiments have the same table, but for the times."""
    assert [run[:2] for run in experiment.runs] == [run[:2] for run in expected.runs]
    for run, other in zip(experiment.runs, expected.runs, strict=True):
        np.testing.assert_array_equal(run.episodes, other.episodes)
        for name in ("steps", "mean_return", "training_return"):
            np.testing.assert_array_equal(getattr(run.curve, name), getattr(other.curve, name))
        times = {"seconds": 0.0, "cpu_seconds": 0.0}
        assert run.done._replace(**times) == other.done._replace(**times)


def test_workers_make_the_runs_that_this_process_makes(tmp_path: Path, own: Any) -> None:
    variants = {"loud": {**SMALL, "algo": own.Loud}, "ppo": SMALL}
    with pytest.warns(RuntimeWarning, match="the reward is large") as caught:
        several = run_with_two(tmp_path / "several", variants)
    assert len(caught) == 1  # of two runs
    plain = {"loud": SMALL, "ppo": SMALL}
    one = run_with_two(tmp_path / "one", plain, workers=1)
    assert_same(several, one)


def test_a_worker_that_dies_is_replaced(
    tmp_path: Path, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MOST_DEATHS", 2)
    variants = {"dying": {**SMALL, "algo": own.Dying}, "ppo": SMALL}
    with pytest.raises(
        RunError, match=r"'dying' with seed 2: 2 workers died over it .signal 9: out of memory.; t"
    ):
        run_with_two(tmp_path / "runs", variants, seeds=[1, 2])
    done = [run[:2] for run in folder.read(tmp_path / "runs").runs]
    assert done == [("dying", 1), ("ppo", 1), ("ppo", 2)]


def test_a_full_disk_ends_all_workers(tmp_path: Path, own: Any) -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(UnwritableError, match="0: No space left on device; runs that are done st"):
        run_with_two(tmp_path / "runs", {"full": {**SMALL, "algo": own.Full}})
    assert set(psutil.Process().children(recursive=True)) <= before


def test_what_another_process_cannot_import_is_refused(
    tmp_path: Path, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = {"loud": {**SMALL, "algo": own.Loud}}
    monkeypatch.setattr(sys, "path", [each for each in sys.path if "modules" not in each])
    with pytest.raises(ValueError, match="in another process: the module own_workers cannot be im"):
        run_with_two(tmp_path / "runs", variants)


SCRIPT = """
import sys
import rlcpu
from rlcpu import experiments

cartpole = rlcpu.envs.find("CartPole-v1")

def fading(remaining):
    return 0.5 * remaining

small = dict(num_envs=4, num_steps=32, minibatch_size=64, num_epochs=2, hidden=(8,))
workers = None if sys.argv[2] == "None" else int(sys.argv[2])
(experiment,) = experiments.run(
    "CartPole-v1", {"ppo": {**small, "learning_rate_schedule": fading}}, seeds=2, steps=256,
    evaluations=1, eval_episodes=1, final_episodes=2, folder=sys.argv[1], workers=workers,
).experiments
print([run.seed for run in experiment.runs], list(experiment.manifest["code"]))
"""


def test_what_a_script_defines_itself_runs_in_its_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"

    def call(workers: str) -> Any:
        command = [sys.executable, str(script), str(tmp_path / "runs"), workers]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SLURM_CPUS_PER_TASK": "2"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    script.write_text(SCRIPT)
    refused = call("2")
    assert "workers=2: other processes cannot import __main__:fading: move it" in refused.stderr
    assert call("None").stdout == "[0, 1] ['__main__:fading']\n"
    # A script may grow, but what it runs may not change.
    script.write_text(SCRIPT + "print('the end')\n")
    assert call("1").stdout.endswith("the end\n")
    script.write_text(SCRIPT.replace("0.5", "0.6"))
    assert "other code: __main__:fading has changed" in call("1").stderr


LONG = """
import sys
from rlcpu import experiments
from tests.experiments.test_workers import LONG_RUNS
experiments.run("CartPole-v1", **LONG_RUNS, folder=sys.argv[1], workers=2)
"""
LONG_RUNS: dict[str, Any] = {
    "variants": {"ppo": SMALL, "small steps": {**SMALL, "learning_rate": 1e-4}},
    "seeds": 3,
    "steps": 4096,
    "evaluations": 3,
    "eval_episodes": 2,
    "final_episodes": 5,
}


def begin(path: Path, number: int) -> Any:
    """An experiment in a process of its own, of which so many runs are done."""
    process = psutil.Popen([sys.executable, "-c", LONG, str(path)], cwd=ROOT)
    while len(list(path.glob("runs/*/*/done.json"))) < number and process.poll() is None:
        time.sleep(0.01)
    return process


def assert_ended(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10.0)
    assert not alive


def test_a_kill_changes_no_table(tmp_path: Path) -> None:
    process = begin(tmp_path / "killed", 2)
    workers = process.children(recursive=True)
    process.kill()
    process.wait()
    assert_ended(workers)
    assert len(folder.read(tmp_path / "killed").runs) < 6
    killed, whole = (
        run_with_two(tmp_path / name, **{**LONG_RUNS, "workers": 1}) for name in ("killed", "whole")
    )
    assert_same(killed, whole)
    assert len(whole.runs) == 6


def test_ctrl_c_ends_all_workers(tmp_path: Path) -> None:
    process = begin(tmp_path, 1)
    workers = process.children(recursive=True)
    assert len(workers) == 2
    for each in (*workers, process):  # as a terminal does
        each.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    assert_ended(workers)
    assert len(folder.read(tmp_path).runs) >= 1
