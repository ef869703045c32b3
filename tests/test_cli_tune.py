"""`rlcpu tune`, and `rlcpu train --settings`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from rlcpu import cli
from rlcpu.cli.arguments import dimension
from rlcpu.experiments import load
from rlcpu.train import PPO

pytest.importorskip("optuna")
#: A few runs of four rollouts of a small network, in this process.
SMALL = shlex.split(
    "tune CartPole-v1 --trials 2 --seeds 1 --steps 256 --episodes 5 --threads 1 "
    "--set num_envs=4 --set num_steps=16 --set hidden=8, "
    "--space learning_rate=1e-3:1e-2:log --space activation=tanh/relu --space gamma=none"
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fails(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The single line that the command prints when it refuses its arguments."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        cli.main(argv)
    assert exit_info.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_a_search_ends_with_settings_that_train_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, "--param", "gravity=5.0"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    command = "rlcpu train CartPole-v1 --param=gravity=5.0 --settings tune-CartPole-v1-ppo/settings"
    assert out.startswith("CartPole-v1: 2 trials of ppo with 1 seed, 256 steps each\n")
    assert out.endswith(f"saved       tune-CartPole-v1-ppo\nnext        {command}.json\n")
    (experiment,) = load("tune-CartPole-v1-ppo").experiments
    assert experiment.manifest["env_spec"]["params"]["gravity"] == 5.0
    space = experiment.manifest["search"]["space"]
    assert space["learning_rate"] == [1e-3, 1e-2, "log"]
    assert space["activation"] == ["tanh", "relu"]
    assert "gamma" not in space
    # It goes on with what the folder has: nothing is run again.
    times = {file: file.stat().st_mtime_ns for file in Path().glob("*/runs/*/*/done.json")}
    assert cli.main([*SMALL, "--param", "gravity=5.0"]) == 0
    assert capsys.readouterr().out == out
    assert times == {file: file.stat().st_mtime_ns for file in times}

    wanted = json.loads(Path("tune-CartPole-v1-ppo/settings.json").read_text())["settings"]
    words = [*shlex.split(f"{command}.json")[1:], *shlex.split("--steps 64 --target none")]
    assert cli.main([*words, "--save", "agent.npz"]) == 0
    config = PPO.load("agent.npz").config
    assert {name: getattr(config, name) for name in wanted} == {**wanted, "hidden": (8,)}
    # What other options set is not the file's.
    others = shlex.split("--set learning_rate=0.5 --num-envs 2 --save other.npz")
    assert cli.main([*words, *others]) == 0
    config = PPO.load("other.npz").config
    assert (config.learning_rate, config.num_envs) == (0.5, 2)
    assert config.activation == wanted["activation"]
    assert cli.main([*words, *shlex.split("--seeds 1 --threads 1 --save runs --name it")]) == 0
    (run,) = load("runs").experiments
    assert {name: run.variants["it"].settings[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("content", "words", "reason"),
    [
        ({"algo": "dqn", "settings": {}}, ["--algo", "ppo"], "settings of dqn, expected ppo"),
        ({"algo": "own:Agent", "settings": {}}, [], "settings of own:Agent, expected one of ppo"),
        ({"algo": "ppo", "settings": {"learnin_rate": 1}}, [], "did you mean learning_rate"),
        ({"algo": "ppo", "settings": {"learning_rate": -1}}, [], "learning_rate=-1: expected"),
        ({"algo": "ppo", "settings": {}, "seed": 1}, [], "it has 'seed', expected one of format"),
        ({"algo": "ppo", "settings": []}, [], "settings is [], expected a dict"),
        ({"algo": "ppo", "settings": {}, "format": "x 2"}, [], "its format is 'x 2', expected"),
        ({"learning_rate": 1}, [], 'expected {"algo": "ppo", "settings": {...}}'),
        ("{", [], "it is no file of settings"),
        (None, [], "--settings file.json: No such file or directory"),
        ({"algo": "ppo", "settings": {}}, ["--load", "x"], "the agent of --load has its own"),
    ],
)
def test_a_bad_file_of_settings_is_refused(
    capsys: pytest.CaptureFixture[str], content: Any, words: list[str], reason: str
) -> None:
    if content is not None:
        text = content if isinstance(content, str) else json.dumps(content)
        Path("file.json").write_text(text)
    assert reason in fails(
        capsys, "train", "CartPole-v1", "--steps", "64", "--settings", "file.json", *words
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--trials 0", "argument --trials: expected a whole number of at least 1"),
        ("--minutes -1", "minutes=-1.0: expected a finite number above 0"),
        ("--space learning_rate", "argument --space: expected name=low:high"),
        ("--space learning_rate=1:2:3:4", "argument --space: expected name=low:high"),
        ("--space gamma=0.9:0.99 --space gamma=none", "--space: a setting is given twice"),
        ("--space learning_rate=1:-1", "space['learning_rate']=(1, -1): expected a finite num"),
        ("--set gamma=0.9 --set gamma=0.8", "--set gamma=...: given twice"),
        ("--algo sac", "expected a Box"),
    ],
)
def test_a_bad_search_is_refused(
    capsys: pytest.CaptureFixture[str], words: str, reason: str
) -> None:
    assert reason in fails(capsys, "tune", "CartPole-v1", "--steps", "64", *shlex.split(words))
    assert not list(Path().iterdir())


def test_ranges_are_written_in_short() -> None:
    assert dimension("a=1:2") == ("a", (1, 2))
    assert dimension("a=1e-3:0.1:log") == ("a", (1e-3, 0.1, "log"))
    assert dimension("a=64,64/8,") == ("a", [(64, 64), (8,)])
    assert dimension("a=true/false/none") == ("a", [True, False, None])
    assert dimension("a=None") == ("a", None)


def test_an_interrupted_search_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlcpu.experiments import runner

    make_run = runner.make_run

    def interrupted(plan: Any, job: Any, folder: Any, report: Any) -> None:
        if job.variant == "trial 1":
            raise KeyboardInterrupt
        make_run(plan, job, folder, report)

    monkeypatch.setattr(runner, "make_run", interrupted)
    assert cli.main([*SMALL, "--save", "runs"]) == 130
    assert capsys.readouterr().err == "rlcpu tune: interrupted; the same command goes on\n"
    monkeypatch.setattr(runner, "make_run", make_run)
    assert cli.main([*SMALL, "--save", "runs"]) == 0
