"""`rlcpu train` that evaluates, keeps the best, saves and stops on the way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.cli.commands import EXIT_BAD_ARGUMENTS, EXIT_INTERRUPTED
from rlcpu.experiments import load
from rlcpu.train import PPO
from tests.test_cli_process import environment
from tests.test_cli_seeds import SMALL, drawn, names, rows_of, run, table_of, write_table

ALL = "--evaluations 4 --eval-episodes 3 --keep-best best.npz --patience 9 --save-every 128"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_is_evaluated_kept_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    files = "--save all-{steps}.npz --csv a.csv --plot a.png --tensorboard logs"
    assert run(*SMALL, "--steps 512 --target none", ALL, files) == 0
    out, err = capsys.readouterr()
    assert err == ""
    kept = PPO.load("best.npz")
    best = kept.best_evaluation
    assert best is not None
    assert kept.evaluate(3, seed=0).mean() == best.mean_return
    lines = out.splitlines()
    (place,) = (k for k, line in enumerate(lines) if line.startswith("evaluated"))
    first = "evaluated   4 times on the way, best mean return"
    assert re.fullmatch(rf"{first} [\d.]+ after {best.steps} steps", lines[place])
    assert re.fullmatch(r" {12}[▁▂▃▄▅▆▇█]{4}", lines[place + 1])
    assert lines[-5:] == [
        "saved       all-512.npz",
        "best        best.npz",
        "table       a.csv",
        "picture     a.png",
        "next        rlcpu eval all-512.npz",
    ]
    assert {path.name for path in Path().glob("all-*")} == {
        *("all-128.npz", "all-256.npz", "all-384.npz", "all-512.npz")
    }
    means = [float(row["evaluation_return"]) for row in rows_of("a.csv")]
    assert len(means) == 4
    assert max(means) == best.mean_return
    assert means.index(max(means)) == best.steps // 128 - 1
    capsys.readouterr()
    assert run("show best.npz") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"over 3 greedy episodes after {best.steps} steps, the best evaluation so" in shown


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_them() -> None:
    pytest.importorskip("tensorboard")
    from tests.train.test_history import scalars

    words = "--steps 512 --target none --evaluations 2 --tensorboard logs --csv a.csv"
    assert run(*SMALL, words) == 0
    expected = [row["evaluation_return"] for row in rows_of("a.csv")]
    shown = scalars(Path("logs"))["evaluation/return"]
    assert [steps for steps, _ in shown] == [256, 512]
    np.testing.assert_allclose([x for _, x in shown], np.float64(expected[1::2]), rtol=1e-6)


def test_without_save_the_best_is_what_can_be_evaluated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*SMALL, "--target none --evaluations 1 --keep-best best.npz") == 0
    last = capsys.readouterr().out.splitlines()[-2:]
    assert last == ["best        best.npz", "next        rlcpu eval best.npz"]


def test_a_run_that_no_longer_improves_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    returns = iter([np.nan, 5.0, 5.0, 4.0])
    monkeypatch.setattr(
        "rlcpu.train.running.evaluations.evaluate",
        lambda env, policy, num_episodes, **options: np.full(num_episodes, next(returns)),
    )
    words = "--steps 1024 --target none --evaluations 8 --patience 2 --csv a.csv"
    assert run(*SMALL, words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "evaluated   4 times on the way, best mean return 5.000 after 256 steps" in lines
    assert "             ██▁" in lines
    assert "stopped     2 evaluations in a row were no better" in lines
    assert [row["total_steps"] for row in rows_of("a.csv")] == ["128", "256", "384", "512"]


def test_a_run_that_goes_on_is_evaluated_as_if_it_had_not_been_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--steps 1024 --target none {ALL.replace('best.npz', 'NAME-best.npz')}"
    words += " --save NAME.npz --csv NAME.csv"
    assert run(*SMALL, words.replace("NAME", "whole")) == 0
    update = PPO._update

    def interrupted(self: PPO, *args: Any) -> None:
        if self.steps == 384 + 128:
            raise KeyboardInterrupt
        update(self, *args)

    monkeypatch.setattr(PPO, "_update", interrupted)
    assert run(*SMALL, words.replace("NAME", "part")) == EXIT_INTERRUPTED
    monkeypatch.setattr(PPO, "_update", update)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("to go on    rlcpu train --load part.npz --steps 640 --schedule 0:1024")
    assert ALL.replace("best.npz", "part-best.npz") in last
    assert run(last.partition(" rlcpu ")[2]) == 0
    for name in ("{}.npz", "{}-best.npz"):
        whole, part = (PPO.load(name.format(each)) for each in ("whole", "part"))
        np.testing.assert_array_equal(whole.policy.parameters, part.policy.parameters)
        assert (whole.steps, whole.best_evaluation) == (part.steps, part.best_evaluation)
    whole_rows, part_rows = rows_of("whole.csv"), rows_of("part.csv")
    for column in ("total_steps", "evaluation_return", "evaluation_deviation", "episode_return"):
        assert [row[column] for row in whole_rows] == [row[column] for row in part_rows]


#: Runs the command and kills it after 512 steps, when the agent has been saved after 384.
KILLED = """
import os, signal, sys
from rlcpu import cli
from rlcpu.train import PPO

learn = PPO.learn

def learn_and_die(self, total_steps, *, callback, **options):
    def die(progress):
        if progress.steps == 512:
            os.kill(os.getpid(), signal.SIGKILL)

    return learn(self, total_steps, callback=[*callback, die], **options)

PPO.learn = learn_and_die
cli.main(sys.argv[1:])
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no signals of this kind")
def test_a_run_that_was_killed_has_agent_and_table() -> None:
    words = "--target none --save a.npz --csv a.csv"
    argv = [*SMALL, "--steps", "1e6", "--save-every", "384", *words.split()]
    command = [sys.executable, "-W", "error", "-c", KILLED, *argv]
    result = subprocess.run(command, env=environment(), capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (-signal.SIGKILL, b"")
    assert PPO.load("a.npz").steps == 384
    assert [row["total_steps"] for row in rows_of("a.csv")][:3] == ["128", "256", "384"]
    assert run("train --load a.npz --steps 256 --episodes 2 --threads 1", words) == 0
    assert [int(row["total_steps"]) for row in rows_of("a.csv")] == [128, 256, 384, 512, 640]


def test_seeds_are_evaluated_as_often() -> None:
    words = "--seeds 2 --target none --evaluations 2 --eval-episodes 3 --save runs"
    assert run(*SMALL, words) == 0
    results = load("runs")
    (variant,) = results.variants
    assert [run.curve.steps.tolist() for run in results.runs(variant)] == [[128, 256]] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--keep-best best.npz", "--keep-best: expected --evaluations too"),
        ("--patience 3", "--patience: expected --evaluations too"),
        ("--eval-episodes 3", "--eval-episodes: expected --evaluations too"),
        ("--save-every 1000", "--save-every: expected --save too"),
        ("--save-every 64 --save a.npz", "save_every=64: expected at least 128, as many"),
        ("--evaluations 0", "--evaluations: expected a whole number of at least 1"),
        ("--evaluations 2 --patience 0", "--patience: expected a whole number of at least 1"),
        ("--evaluations 2 --keep-best no/a.npz", "--keep-best: there is no folder 'no'"),
        (
            "--evaluations 2 --keep-best a.npz --save a.npz --save-every 500",
            "save_to='a.npz': keep_best has the same file",
        ),
        ("--seeds 2 --keep-best a.npz --evaluations 2", "--keep-best with --seeds: scores are of"),
        ("--seeds 2 --patience 2 --evaluations 2", "--patience with --seeds: what counts is"),
        ("--seeds 2 --save-every 128", "--save-every with --seeds: runs that are done stay"),
    ],
)
def test_what_cannot_be_done_is_refused_first(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run(*SMALL, words)
    assert exit_info.value.code == EXIT_BAD_ARGUMENTS
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert not list(Path().iterdir())


def test_plot_draws_evaluations_where_all_tables_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = table_of(3.0)
    evaluated = [{**row, "evaluation_return": 7.0 * k} for k, row in enumerate(table_of(5.0))]
    write_table("plain-0.csv", plain)
    write_table("evaluated-0.csv", evaluated)
    axes = drawn(monkeypatch, "evaluated-0.csv").axes[0]
    assert axes.get_ylabel() == "return"
    assert axes.get_lines()[0].get_ydata().tolist() == [0.0, 7.0]
    figure = drawn(monkeypatch, "evaluated-0.csv", "plain-0.csv")
    assert names(figure) == ["evaluated", "plain"]
    assert figure.axes[0].get_ylabel() == "return in training"
    assert [line.get_ydata().tolist() for line in figure.axes[0].get_lines()] == [[5.0], [3.0]]
    # A run that was not evaluated is there, too.
    rows = [{**row, "seed": 0} for row in evaluated] + [
        {**row, "seed": 1, "evaluation_return": "nan"} for row in plain
    ]
    write_table("both.csv", rows)
    assert drawn(monkeypatch, "both.csv").axes[0].get_ylabel() == "return in training"
