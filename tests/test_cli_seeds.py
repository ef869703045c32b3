"""The `rlcpu` command with several seeds, its comparisons, and pictures of many runs."""

from __future__ import annotations

import argparse
import csv
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from rlcpu import cli
from rlcpu.cli import commands, report, seeds
from rlcpu.cli import train as cli_train
from rlcpu.experiments import load
from rlcpu.experiments.folder import DONE, run_folder
from rlcpu.train import PPO

#: A few updates of a small network, in this process.
SMALL = shlex.split(
    "train CartPole-v1 --steps 256 --num-envs 8 --episodes 5 --set num_steps=16 --set hidden=16, "
    "--set minibatch_size=64 --set num_epochs=2 --threads 1"
)
#: The variant of these settings.
NAME = "ppo num_envs=8 num_steps=16 num_epochs=2 minibatch_size=64 hidden=16"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*argv: str) -> int:
    """Run the command with words, of which the first may be several."""
    return cli.main([word for each in argv for word in shlex.split(each)])


def fails(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The single line that the command prints when it refuses its arguments."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        cli.main(argv)
    assert exit_info.value.code == commands.EXIT_BAD_ARGUMENTS
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def rows_of(name: str) -> list[dict[str, str]]:
    with open(name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_seeds_are_run_and_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = "--csv all.csv --plot band.png --tensorboard logs --save runs"
    assert run(*SMALL, "--seed 5 --seeds 3 --target none", files) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[:4] == [
        "agent       PPO on CartPole-v1",
        "            8 environments, 1 thread each, seeds 5 to 7",
        "network     mlp, hidden layer of 16 units",
        "until       256 steps",
    ]
    results = load("runs")
    assert re.fullmatch(r"trained     3 runs in \d+\.\d\d s", lines[4])
    assert "\n".join(lines[6:-6]) == str(results)
    assert lines[-5:] == [
        "table       all.csv",
        "picture     band.png",
        "logs        logs",
        "saved       runs",
        "next        rlcpu compare runs",
    ]
    assert [run.seed for run in results.runs(NAME)] == [5, 6, 7]
    rows = rows_of("all.csv")
    assert {row["seed"] for row in rows} == {"5", "6", "7"}
    assert {row["variant"] for row in rows} == {NAME}
    assert matplotlib.image.imread("band.png").shape[1] == 1040
    folders = {path.parent.name for path in Path("logs").rglob("events.*")}
    assert folders == {"5", "6", "7"}
    # A run is the one of the same seed alone.
    agent = PPO.load(run_folder(Path("runs"), NAME, 6) / "policy.npz")
    assert run(*SMALL, "--seed 6 --target none --save one.npz") == 0
    np.testing.assert_array_equal(agent.policy.parameters, PPO.load("one.npz").policy.parameters)


def test_a_folder_takes_more_seeds_and_variants(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SMALL, "--seeds 2 --target none --save runs") == 0
    before = os.path.getmtime(run_folder(Path("runs"), NAME, 1) / DONE)
    assert run(*SMALL, "--seeds 5 --target none --save runs") == 0
    assert os.path.getmtime(run_folder(Path("runs"), NAME, 1) / DONE) == before
    words = "--target none --save runs --set learning_rate=1e-5"
    assert run(*SMALL, "--seeds 5", words, "--name 'small steps'") == 0
    results = load("runs")
    first, second = results.variants
    assert (first, second) == (NAME, "small steps")
    capsys.readouterr()
    assert run("compare runs") == 0
    assert capsys.readouterr().out == f"{results.table()}\n\n{results.compare(first, second)}\n"
    assert cli.main(["compare", "runs", second, first, "--statistic", "iqm"]) == 0
    assert capsys.readouterr().out == f"{results.compare(second, first, 'iqm')}\n"
    assert run("plot runs --out band.png --over seconds --statistic median --target 100") == 0
    assert matplotlib.image.imread("band.png").shape[1] == 1040
    error = fails(capsys, "compare", "runs", first, "smal steps")
    assert f"did you mean {second!r}?" in error
    assert "expected two variants" in fails(capsys, "compare", "runs", first)
    assert "there is no experiment in 'none'" in fails(capsys, "compare", "none")


@pytest.mark.parametrize(
    ("target", "code", "word"),
    [("5", 0, "solved      mean return "), ("501", 1, "not solved  mean return ")],
)
def test_a_target_stops_runs_and_decides_the_exit_code(
    capsys: pytest.CaptureFixture[str], target: str, code: int, word: str
) -> None:
    steps = "--steps 6144"  # a hundred episodes
    assert run(*SMALL, f"--seeds 2 --target {target} --save runs", steps) == code
    out = capsys.readouterr().out
    assert f"CartPole-v1: steps until the mean return is {float(target)}" in out
    assert f"\n{word}" in out
    ends = {run.done.stopped for run in load("runs").runs(NAME)}
    assert ends == ({"solved"} if code == 0 else {"steps"})
    number = 2 if code == 0 else 0
    assert f"the target was reached with {number} of 2 seeds" in out


def test_without_a_folder_nothing_stays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert run(*SMALL, "--seeds 1 --target none") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("not saved   add --save FOLDER")
    assert not list((tmp_path / "temporary").iterdir())
    assert "gamma=7" in fails(capsys, *SMALL, "--seeds", "1", "--set", "gamma=7")
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (cli_train.Terminated(), 143)]
)
@pytest.mark.parametrize("saved", [True, False])
def test_what_is_done_stays_when_runs_are_interrupted(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    saved: bool,
) -> None:
    from rlcpu.experiments import runner, single

    make_run = single.make_run

    def interrupted(plan: Any, job: Any, folder: Any, report: Any) -> None:
        if job.seed == 1:
            raise error
        make_run(plan, job, folder, report)

    monkeypatch.setattr(runner, "make_run", interrupted)
    words = [*SMALL, "--seeds", "2", "--target", "none"]
    handler = signal.getsignal(signal.SIGTERM)
    assert run(*words, *(["--save runs"] if saved else [])) == code
    assert signal.getsignal(signal.SIGTERM) == handler
    message = capsys.readouterr().err
    found = re.search(r"the same command(?: with --save (\S+))? goes on$", message)
    assert found is not None
    folder = found[1] or "runs"
    assert saved == (found[1] is None)
    monkeypatch.setattr(runner, "make_run", make_run)
    assert run(*words, "--save", folder) == 0
    assert [run.seed for run in load(folder).runs(NAME)] == [0, 1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--load a.npz", "--load with --seeds: seeds begin with new agents"),
        ("--video a.gif", "--video with --seeds: which of the agents should be filmed?"),
        ("--schedule 0:10", "--schedule with --seeds: schedules run over the steps of each run"),
        ("--collectors 2", "--collectors with --seeds: each run has a process of its own"),
        ("--shards 2", "--shards with --seeds: each run has a process of its own"),
        ("--ray auto", "--ray with --seeds: runs share the CPUs of this machine"),
        ("--seeds 0", "--seeds: expected a whole number of at least 1, got '0'"),
        ("--set gamma=7", "gamma=7"),
        ("--set gama=0.9", "gama"),
        ("--param gravty=7", "gravty"),
        ("--save /dev/null", "/dev/null"),
    ],
)
def test_what_seeds_have_no_use_for(
    capsys: pytest.CaptureFixture[str], words: str, reason: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run("train CartPole-v1 --seeds 2 --steps 100", words)
    assert caught.value.code != 0
    out, err = capsys.readouterr()
    assert reason in err
    assert err.count("\n") == 1
    assert "trained" not in out


@pytest.mark.parametrize(
    ("module", "words"), [("scipy", []), ("tensorboard", ["--tensorboard", "logs"])]
)
def test_what_is_missing_is_said_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    words: list[str],
) -> None:
    find = seeds.importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == module else find(name)
    )
    assert f"pip install {module}" in fails(capsys, *SMALL, "--seeds", "2", *words)


def test_a_folder_of_something_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/file").write_text("precious")
    with pytest.raises(SystemExit):
        run(*SMALL, "--seeds 1 --save mine")
    assert "holds 'file', expected a new folder" in capsys.readouterr().err
    assert [path.name for path in Path("mine").iterdir() if path.name != "lock"] == ["file"]


def test_a_table_that_cannot_be_written_loses_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("Linux has it")
    code = run(*SMALL, "--seeds 1 --target none --csv /dev/full --plot a.png --save runs")
    assert code == report.EXIT_FAILED
    out, err = capsys.readouterr()
    assert "cannot write /dev/full: No space left on device" in err
    assert "picture     a.png" in out
    assert len(load("runs").runs(NAME)) == 1


# ---------------------------------------------------------------- rlcpu plot


def write_table(name: str, rows: list[dict[str, Any]]) -> None:
    with open(name, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def drawn(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    """The figure of `rlcpu plot` with such words."""
    figures: list[Any] = []
    monkeypatch.setattr(
        "rlcpu.experiments.pictures.write", lambda figure, path: figures.append(figure)
    )
    assert cli.main(["plot", *words, "--out", "a.png"]) == 0
    return figures[0]


def names(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def table_of(value: float, **labels: Any) -> list[dict[str, Any]]:
    """A table of two updates, whose returns are NaN and a value."""
    points = [(64, float("nan")), (128, value)]
    return [{**labels, "total_steps": x, "steps": x, "episode_return": y} for x, y in points]


def test_tables_are_grouped_by_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of single runs give what the folder of all of them does."""
    for rate, offset in (("1e-3", 0), ("1e-5", 3)):
        for seed in (0, 1):
            words = f"--target none --seed {seed} --set learning_rate={rate}"
            run(*SMALL, words, f"--csv {seed + offset}.csv")
    figure = drawn(monkeypatch, "0.csv", "1.csv", "3.csv", "4.csv")
    first, second = names(figure)
    assert first.startswith(NAME[:30])
    assert first != second  # the names are so long that they end with a digest
    assert max(len(first), len(second)) <= 80
    (axes,) = figure.axes
    assert axes.get_ylabel() == "return in training"
    expected = np.mean([float(rows_of(f"{k}.csv")[-1]["episode_return"]) for k in (0, 1)])
    assert axes.get_lines()[0].get_ydata()[-1] == pytest.approx(expected)
    assert len(axes.collections) == 2


def test_a_number_at_the_end_of_a_name_is_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ppo-0", 1.0), ("ppo-1", 3.0), ("sac_seed7", 5.0), ("sac_seed8", 6.0)):
        write_table(f"{name}.csv", table_of(value))
    figure = drawn(monkeypatch, "ppo-0.csv", "ppo-1.csv", "sac_seed7.csv", "sac_seed8.csv")
    assert names(figure) == ["ppo", "sac"]
    assert [line.get_ydata()[-1] for line in figure.axes[0].get_lines()] == [2.0, 5.5]
    figure = drawn(monkeypatch, "ppo-0.csv", "sac_seed7.csv")  # one run each: no band
    assert len(figure.axes[0].collections) == 0


def test_files_of_numbers_alone_are_of_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine").mkdir()
    for seed in (0, 1):
        write_table(f"mine/{seed}.csv", table_of(seed))
    assert names(drawn(monkeypatch, "mine/0.csv", "mine/1.csv")) == ["mine"]


def test_the_same_seed_twice_is_two_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"env": "CartPole-v1", "variant": "ppo"}
    for name, seed in (("before", 0), ("after", 0), ("more", 1)):
        write_table(f"{name}.csv", table_of(1.0, **labels, seed=seed))
    figure = drawn(monkeypatch, "before.csv", "after.csv", "more.csv", "--target", "2")
    assert names(figure) == ["before: ppo", "after: ppo", "more: ppo", "target: 2"]
    title = figure.axes[0].get_legend().get_title().get_text()
    assert title == "CartPole-v1"


def test_tables_of_several_environments_have_a_panel_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for env in ("A-v0", "B-v0"):
        write_table(f"{env}.csv", table_of(1.0, env=env, variant="ppo", seed=0))
    figure = drawn(monkeypatch, "A-v0.csv", "B-v0.csv")
    assert [axes.get_ylabel().splitlines()[0] for axes in figure.axes] == ["A-v0", "B-v0"]


def test_tables_that_went_on_have_labels_in_new_lines_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those that an older version began."""
    write_table("old.csv", table_of(1.0) + table_of(2.0)[1:])
    rows = rows_of("old.csv")
    for row, label in zip(rows, ("nan", "nan", ""), strict=True):
        row["variant"] = label
    write_table("old.csv", rows)
    assert names(drawn(monkeypatch, "old.csv")) == ["old"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["folder", "one.csv"], "folders have evaluations, and tables may not: draw them apart"),
        (["folder"], "there is no experiment in 'folder'"),
        (["one.csv", "all.csv"], "'all.csv' has evaluations, and 'one.csv' returns in training"),
        (["early.csv"], "no episode has ended yet"),
        (["one.csv", "--over", "seconds"], "columns steps, seconds and episode_ret"),
        (["one.csv", "--over", "hours"], "invalid choice: 'hours'"),
        (["one.csv", "--statistic", "best"], "invalid choice: 'best'"),
    ],
)
def test_bad_pictures(capsys: pytest.CaptureFixture[str], words: list[str], reason: str) -> None:
    Path("folder").mkdir()
    write_table("one.csv", table_of(1.0))
    write_table("early.csv", table_of(float("nan")))
    write_table("all.csv", [{"seed": 0, "steps": 1, "mean_return": 2.0}])
    assert reason in fails(capsys, "plot", *words, "--out", "a.png")


# ---------------------------------------------------------------- help


def test_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = commands.build_parser()
    (choices,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    texts = [parser.format_help(), *(each.format_help() for each in choices.choices.values())]
    assert {"compare", "show", "plot", "train"} <= choices.choices.keys()
    assert [line for text in texts for line in text.splitlines() if len(line) > 80] == []


def test_statistics_and_abscissas_of_the_command_are_those_of_the_library() -> None:
    from rlcpu.experiments import pictures, statistics

    assert set(commands.STATISTICS) == statistics.STATISTICS.keys()
    (over,) = (a for a in plot_actions() if a.dest == "over")
    assert set(over.choices) == pictures.ABSCISSAS.keys()


def plot_actions() -> list[argparse.Action]:
    """Arguments of `rlcpu plot`."""
    parser = argparse.ArgumentParser()
    commands.add_plot_arguments(parser)
    return parser._actions
