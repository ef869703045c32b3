"""The `rlcpu` command: arguments and exit codes with a fake trainer, then one real training run."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import matplotlib.image
import numpy as np
import pytest
import tqdm

from rlcpu import cli, cli_train


class Progress(NamedTuple):
    """What the trainer tells its callback, and its history."""

    steps: int
    episodes: int
    episode_return: float
    time_collect: float = 1.0
    time_update: float = 3.0
    time_total: float = 4.0


class FakeAgent:
    """Records how it was called; "learns" three updates, then evaluates to `greedy_return`."""

    greedy_return = 480.0
    threshold: float | None = 475.0

    def __init__(self, env_id: str, **options: Any) -> None:
        self.calls: dict[str, Any] = {"env": env_id, **options}
        threshold = self.threshold
        self.env = SimpleNamespace(dynamics=SimpleNamespace(reward_threshold=threshold))
        FakeAgent.last = self

    def learn(
        self, total_steps: int, *, callback: Callable[[Progress], Any], target_return: float | None
    ) -> Progress:
        self.calls |= {"total_steps": total_steps, "target_return": target_return}
        for update in (1, 2, 3):
            callback(Progress(1000 * update, 10 * update, 100.0 * update))
        return Progress(3000, 30, 300.0)

    def evaluate(self, num_episodes: int, seed: int) -> np.ndarray:
        self.calls |= {"num_episodes": num_episodes}
        return np.full(num_episodes, self.greedy_return)

    def save(self, path: Path) -> None:
        path.write_text("agent")


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> type[FakeAgent]:
    """The fake trainer in the real one's place."""
    fake = type("Fake", (FakeAgent,), {})
    monkeypatch.setattr("rlcpu.train.PPO", fake)
    return fake


def fails(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The single line that the command prints when it refuses its arguments."""
    with pytest.raises(SystemExit) as exit_info:
        cli.main(argv)
    assert exit_info.value.code == cli.EXIT_BAD_ARGUMENTS
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rlcpu")
    assert err.count("\n") == 1
    return err


def test_arguments_reach_the_trainer(trainer: type[FakeAgent]) -> None:
    argv = "train Acrobot-v1 --steps 2e5 --seed 7 --num-envs 32 --dtype float64 --threads 1"
    assert cli.main([*argv.split(), "--target", "-90", "--episodes", "12"]) == 0
    assert FakeAgent.last.calls == {
        "env": "Acrobot-v1",
        "seed": 7,
        "num_envs": 32,
        "num_threads": 1,
        "dtype": "float64",
        "total_steps": 200_000,
        "target_return": -90.0,
        "num_episodes": 12,
    }


def test_the_environment_decides_what_is_not_given(trainer: type[FakeAgent]) -> None:
    cli.main(["train", "CartPole-v1"])
    calls = FakeAgent.last.calls
    assert calls["num_envs"] is None
    assert calls["num_threads"] is None
    assert calls["target_return"] == FakeAgent.threshold


def test_report(trainer: type[FakeAgent], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "CartPole-v1"]) == 0
    first, training, evaluation, verdict = capsys.readouterr().out.splitlines()
    assert first == (
        "CartPole-v1: 3,000 steps, 30 episodes in 4.00 s "
        "(750 steps/s; simulate+infer 25%, update 75%)"
    )
    assert training.endswith("mean return 300.0 over the last episodes")
    assert "mean return 480.0 over 100 greedy episodes" in evaluation
    assert verdict == "solved      480.0 >= 475"


@pytest.mark.parametrize(
    ("greedy_return", "threshold", "argv", "code"),
    [
        (475.0, 475.0, [], 0),
        (474.9, 475.0, [], cli_train.EXIT_NOT_SOLVED),
        (474.9, 475.0, ["--target", "400"], 0),
        (480.0, 475.0, ["--target", "490"], cli_train.EXIT_NOT_SOLVED),
        (-1500.0, None, [], 0),
        (-1500.0, None, ["--target", "-200"], cli_train.EXIT_NOT_SOLVED),
        (float("nan"), 475.0, [], cli_train.EXIT_NOT_SOLVED),
    ],
)
def test_exit_code_says_whether_the_greedy_policy_solves(
    trainer: type[FakeAgent],
    greedy_return: float,
    threshold: float | None,
    argv: list[str],
    code: int,
) -> None:
    trainer.greedy_return, trainer.threshold = greedy_return, threshold
    assert cli.main(["train", "CartPole-v1", *argv]) == code


def test_save_and_plot(trainer: type[FakeAgent], tmp_path: Path) -> None:
    agent, picture = tmp_path / "agent.npz", tmp_path / "curve.png"
    cli.main(["train", "CartPole-v1", "--save", str(agent), "--plot", str(picture)])
    assert agent.read_text() == "agent"
    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[:2] == (600, 1050)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 10


def test_curve_drives_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("tqdm.tqdm", functools.partial(tqdm.tqdm, file=screen, mininterval=0))
    monkeypatch.setattr(screen, "isatty", lambda: True)
    curve = cli_train.Curve("CartPole-v1", 2048, no_progress=False)
    with curve.bar:
        curve(Progress(512, 3, 20.0))
        curve(Progress(1024, 9, 31.25))
    assert curve.points == [(512, 20.0), (1024, 31.25)]
    last = screen.getvalue().split("\r")[-1]
    assert last.startswith("CartPole-v1:  50%")
    assert "step/s, return 31.2, simulate+infer 25%, update 75%" in last


def test_no_bar_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    for no_progress in (False, True):
        curve = cli_train.Curve("CartPole-v1", 2048, no_progress=no_progress)
        with curve.bar:
            curve(Progress(512, 3, 20.0))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["tran"], "invalid choice: 'tran'"),
        (["train"], "the following arguments are required: ENV"),
        (["train", "CartPol-v1"], "unknown environment 'CartPol-v1', did you mean CartPole-v1?"),
        (["train", "cartpole"], "known are Acrobot-v1, CartPole-v1"),
        (["train", "no_such_module:X-v0"], "cannot import 'no_such_module'"),
        (["train", "balance.py:Balance-v0"], "write balance:..."),
        (["warmup", "Pendulum"], "did you mean Pendulum-v1?"),
        (["train", "CartPole-v1", "--steps", "0"], "--steps: expected a whole number of at least"),
        (["train", "CartPole-v1", "--steps", "1.5"], "got '1.5'"),
        (["train", "CartPole-v1", "--steps", "many"], "expected a number, got 'many'"),
        (["train", "CartPole-v1", "--seed", "-1"], "--seed: expected a whole number of at least 0"),
        (["train", "CartPole-v1", "--num-envs", "0"], "--num-envs"),
        (["train", "CartPole-v1", "--target", "nan"], "--target: expected a number, got 'nan'"),
        (["train", "CartPole-v1", "--dtype", "float16"], "invalid choice: 'float16'"),
        (["train", "CartPole-v1", "--step", "5"], "unrecognized arguments: --step 5"),
        (["train", "CartPole-v1", "--save", "no/such/folder/a.npz"], "no folder 'no/such/folder'"),
        (["train", "CartPole-v1", "--save", "."], "'.' is a folder"),
        (["train", "CartPole-v1", "--plot", "curve.xyz"], "does not end in one of"),
    ],
)
def test_bad_arguments(
    argv: list[str], expected: str, trainer: type[FakeAgent], capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in fails(capsys, *argv)


def test_what_the_trainer_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(env_id: str, **options: Any) -> None:
        raise ValueError("num_envs=3: expected a divisor of the batch")

    monkeypatch.setattr("rlcpu.train.PPO", refuse)
    assert fails(capsys, "train", "CartPole-v1") == (
        "rlcpu: error: num_envs=3: expected a divisor of the batch\n"
    )


def test_plot_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install matplotlib" in fails(capsys, "train", "CartPole-v1", "--plot", "a.png")


def test_interrupt(
    trainer: type[FakeAgent], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: FakeAgent, *args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "learn", interrupted)
    assert cli.main(["train", "CartPole-v1"]) == cli.EXIT_INTERRUPTED
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "rlcpu: interrupted")


def test_an_error_inside_training_is_not_hidden(
    trainer: type[FakeAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: FakeAgent, *args: Any, **kwargs: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(trainer, "learn", broken)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["train", "CartPole-v1"])


def test_environment_of_a_users_module(
    trainer: type[FakeAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_module_for_cli.py").write_text("registered = True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    cli.main(["train", "users_module_for_cli:CartPole-v1"])
    assert FakeAgent.last.calls["env"] == "CartPole-v1"
    assert sys.modules.pop("users_module_for_cli").registered


DYNAMICS = """
from typing import NamedTuple
import numpy as np
import rlcpu
from gymnasium.spaces import Box, Discrete

class Params(NamedTuple):
    length: float = 1.0

def step(state, action, params):
    return {step}

rlcpu.Dynamics(
    id="Broken-v0", step=step, reset=lambda uniforms, params: (uniforms[0],), params=Params(),
    observation_space=Box(-1.0, 1.0, (1,), np.float32), action_space=Discrete(2), reset_draws=1,
)
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (DYNAMICS.format(step="(state[0],), 1, False"), "line 13: TypeError: Broken-v0: step"),
        (DYNAMICS.format(step="(state[0] / 0.0,), 1.0, False"), "line 11: ValueError: Broken-v0"),
        ("x = 1\ny = = 2\n", "line 2: SyntaxError: invalid syntax"),
        ("import math\nimport nonsuch\n", "line 2: ModuleNotFoundError: No module named 'nonsuch'"),
        ("import json\n\njson.loads('{')\n", "line 3: JSONDecodeError: Expecting"),
        ("raise ValueError('one\\ntwo')\n", "line 1: ValueError: one two"),
        ("import sys\nsys.exit('no')\n", "line 2: SystemExit: no"),
    ],
)
def test_what_is_wrong_in_a_users_module_is_said_with_its_line(
    code: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_for_cli.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    line = fails(capsys, "train", "broken_for_cli:Broken-v0")
    assert line.startswith("rlcpu train: error: argument ENV: broken_for_cli.py, ")
    assert expected in line


def test_info_names_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out.lower()
    for word in ("rlcpu", "python", "numba", "numpy", "gymnasium", "thread", "cache", "gpu"):
        assert word in text
    columns = {len(line) - len(line.split("  ", 1)[1].lstrip()) for line in text.splitlines()}
    assert len(columns) == 1  # the values are aligned


def test_warmup_compiles_every_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(cli, "WARMUP_JOBS", (lambda env_id, dtype: seen.append((env_id, dtype)),))
    assert cli.main(["warmup", "CartPole-v1", "Pendulum-v1"]) == 0
    assert len(seen) == len(set(seen)) == 4
    assert capsys.readouterr().out == "compiled CartPole-v1, Pendulum-v1 in float32 and float64\n"
    seen.clear()
    assert cli.main(["warmup", "--dtype", "float32"]) == 0
    assert seen == [(env_id, "float32") for env_id in cli.known_environments()]


def test_warmup_for_real(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["warmup", "CartPole-v1", "--dtype", "float32"]) == 0
