"""The `rlcpu` command in processes of its own: a whole training run, and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from PIL import Image

import rlcpu
from rlcpu import cli
from rlcpu.cli import report

COMMAND = [sys.executable, "-W", "error", "-m", "rlcpu"]


def environment() -> dict[str, str]:
    """Variables of a process that finds this package."""
    return {**os.environ, "PYTHONPATH": str(Path(rlcpu.__file__).parents[1])}


def run_module(*argv: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python -W error -m rlcpu ...` in a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run([*COMMAND, *argv], cwd=cwd, env=environment(), check=False, **options)


def test_version(tmp_path: Path) -> None:
    result = run_module("--version", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"rlcpu {rlcpu.__version__}\n")


@pytest.mark.parallel
def test_train_end_to_end(tmp_path: Path) -> None:
    argv = "train CartPole-v1 --seed 0 --plot curve.png --save agent.npz --csv 0.csv --video 0.gif"
    result = run_module(*argv.split(), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "solved" in result.stdout
    assert matplotlib.image.imread(tmp_path / "curve.png").shape[1] == 1040
    agent = rlcpu.train.PPO.load(tmp_path / "agent.npz")
    assert agent.evaluate(num_episodes=100, seed=5).mean() >= 475.0
    table = np.genfromtxt(tmp_path / "0.csv", delimiter=",", names=True)
    assert table["steps"][-1] == agent.steps
    assert np.isfinite(table["loss_policy"][:-1]).all()
    with Image.open(tmp_path / "0.gif") as film:
        assert film.size == (600, 400)
        assert film.n_frames > 10
    argv = "plot 0.csv --out again.png --target 475"
    assert run_module(*argv.split(), cwd=tmp_path).returncode == 0
    assert matplotlib.image.imread(tmp_path / "again.png").shape[1] == 1040

    result = run_module("eval", "agent.npz", "--episodes", "10", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"trained for {agent.steps:,} steps" in result.stdout
    argv = "train --load agent.npz --steps 100 --target 501 --save agent.npz"
    result = run_module(*argv.split(), cwd=tmp_path)
    assert result.returncode == report.EXIT_FAILED
    assert "not solved" in result.stdout
    assert rlcpu.train.PPO.load(tmp_path / "agent.npz").steps == agent.steps + 2048


@pytest.mark.skipif(os.name != "posix", reason="Windows has no signals of this kind")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, cli.commands.EXIT_INTERRUPTED), (signal.SIGTERM, 143)]
)
def test_a_signal_stops_training_and_keeps_the_agent(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    argv = "train CartPole-v1 --steps 1e9 --target 501 --save agent.npz --csv a.csv"
    command = [sys.executable, "-W", "error", "-c", SIGNALLED, str(int(number)), *argv.split()]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout.count("\n")) == (code, 3)
    first, saved, table, command_to_go_on = result.stderr.splitlines()
    assert first == "rlcpu train: interrupted after 20,480 steps"
    assert (saved.split(), table.split()) == (["saved", "agent.npz"], ["table", "a.csv"])
    wanted = "rlcpu train --load agent.npz --steps 999979520 --target 501.0 --csv a.csv"
    assert command_to_go_on == f"to go on    {wanted}"
    assert rlcpu.train.PPO.load(tmp_path / "agent.npz").steps == 20480
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "agent.npz"]


#: Runs the command and sends it a signal when it has learnt from 20,480 steps.
SIGNALLED = """
import os, sys
from rlcpu import cli
from rlcpu.train import PPO

learn = PPO.learn

def learn_and_signal(self, total_steps, **options):
    def callback(progress):
        if progress.steps == 20480:
            os.kill(os.getpid(), int(sys.argv[1]))

    return learn(self, total_steps, callback=callback, **options)

PPO.learn = learn_and_signal
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no signals of this kind")
def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    code = SIGNALLED.replace(
        "PPO.learn =", "PPO.save = lambda *args: os.kill(os.getpid(), 2)\nPPO.learn ="
    )
    command = [sys.executable, "-W", "error", "-c", code, "2", "train", "CartPole-v1"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout.count("\n"), result.stderr) == (-2, 3, "")


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for argv in (["info"], ["train", "--help"]):
        result = run_module(*argv, cwd=tmp_path, stdout=writing)
        assert result.returncode in (0, cli.commands.EXIT_PIPE_CLOSED)
        assert result.stderr == ""
    os.close(writing)


SHORT = "train CartPole-v1 --steps 64 --num-envs 8 --target 1 --episodes 2".split()  # noqa: SIM905
SHORT += ["--set", "num_steps=8", "--set", "hidden=16,", "--set", "minibatch_size=64"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux alone has a full device")
@pytest.mark.parametrize(("target", "code"), [("1", 0), ("501", report.EXIT_FAILED)])
def test_output_that_cannot_be_written_hides_no_result(
    tmp_path: Path, target: str, code: int
) -> None:
    for redirection, reason in ((">/dev/full", "No space left on device"), (">&-", "it is closed")):
        words = [*COMMAND, *SHORT, "--target", target, "--save", "agent.npz"]
        result = subprocess.run(
            ["sh", "-c", f'"$@" {redirection}', "sh", *words],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        said = f"rlcpu: standard output cannot be written: {reason}\n"
        assert (result.returncode, result.stderr) == (code, said)
        assert rlcpu.train.PPO.load(tmp_path / "agent.npz").steps == 64


@pytest.mark.parametrize(
    "variables",
    [
        {"LANG": "C"},
        {"LC_ALL": "C"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    ],
)
def test_names_that_the_terminal_has_no_letters_for_are_escaped(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    (tmp_path / "größe").mkdir()
    name = "größe/漢字"
    variables = {"LANG": "C", **environment(), **variables}
    words = [*COMMAND, *SHORT, "--save", f"{name}.npz", "--csv", f"{name}.csv"]
    result = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (tmp_path / f"{name}.npz").is_file()
    saved, table = result.stdout.splitlines()[-3:-1]
    forms = name.encode(), name.encode("ascii", "backslashreplace")
    assert saved.removeprefix(b"saved       ").removesuffix(b".npz") in forms
    assert table.removeprefix(b"table       ").removesuffix(b".csv") in forms


def test_environment_without_a_renderer_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    result = run_module("train", "plain:Plain-v0", "--video", "a.gif", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--video: Plain-v0 has no renderer" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_agent_of_a_users_environment(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    argv = "train plain:Plain-v0 --steps 100 --save a.npz --target 0"
    assert run_module(*argv.split(), cwd=tmp_path).returncode == 0
    result = run_module("eval", "a.npz", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "Plain-v0 is not registered: import the module that does so" in result.stderr
    for argv in ("eval a.npz plain:Plain-v0", "train plain:Plain-v0 --load a.npz --steps 1"):
        result = run_module(*argv.split(), "--target", "0", cwd=tmp_path)
        assert (result.returncode, result.stderr) == (0, "")


PLAIN = """
import dataclasses
import rlcpu
from rlcpu.envs.tasks.classic_control.cartpole import DYNAMICS

rlcpu.register(dataclasses.replace(DYNAMICS, id="Plain-v0", original=None))
"""


def test_too_few_steps_end_to_end(tmp_path: Path) -> None:
    result = run_module("train", "CartPole-v1", "--steps", "100", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (report.EXIT_FAILED, "")
    assert "not solved" in result.stdout
