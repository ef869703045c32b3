"""The `rlcpu` command: arguments and exit codes with a fake trainer, then one real training run."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from rlcpu import cli
from rlcpu.cli import report
from rlcpu.cli import train as cli_train
from rlcpu.cli.report import estimate
from rlcpu.envs import find
from rlcpu.train import PPO, History
from rlcpu.train.settings.tuned import STEPS


class FakeAgent:
    """Records how it was called; "learns" three updates, then evaluates to `greedy_return`."""

    algorithm = "PPO"
    default_config = staticmethod(lambda dynamics: PPO.Config())
    load = staticmethod(PPO.load)
    greedy_return = 480.0
    threshold: float | None = 475.0

    def __init__(self, env_id: str, seed: int, **options: Any) -> None:
        self.calls: dict[str, Any] = {"env": env_id, "seed": seed, **options}
        params = find(env_id).settings
        dynamics = SimpleNamespace(id=env_id, reward_threshold=self.threshold, settings=params)
        dtype = np.dtype("float32")
        self.env = SimpleNamespace(dynamics=dynamics, num_envs=8, num_threads=1, dtype=dtype)
        settings: dict[str, Any] = {"network": "gru", "hidden": (128, 64)}
        self.config = PPO.Config(learning_rate_schedule="linear", **settings)
        self.seed, self.history = seed, History()
        self.returns = [300.0] * 30
        FakeAgent.last = self

    def learn(self, total_steps: int, *, target_return: float | None, progress: bool) -> History:
        self.calls |= {"total_steps": total_steps, "target_return": target_return}
        for update in (1, 2, 3):
            self.update(update)
        return self.history

    def update(self, number: int) -> None:
        history = self.history
        history.steps, history.episodes = 1000 * number, 10 * number
        history.episode_return = 100.0 * number
        history.time_collect, history.time_update, history.time_total = 1.0, 3.0, 4.0
        history.add()

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
    assert exit_info.value.code == cli.commands.EXIT_BAD_ARGUMENTS
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
    assert "num_envs" not in calls
    assert "num_threads" not in calls
    assert calls["target_return"] == FakeAgent.threshold


def test_the_environment_decides_what_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcpu.train.DQN", type("DQN", (FakeAgent,), {"threshold": None}))
    assert cli.main(["train", "CliffWalking-v1"]) == 0
    assert FakeAgent.last.calls["total_steps"] == STEPS["CliffWalking-v1"]["dqn"]


def test_report(trainer: type[FakeAgent], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "CartPole-v1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "agent       Fake on CartPole-v1, 8 environments, 1 thread, seed 0",
        "network     gru, hidden layers of 128 and 64 units",
        "until       mean return 475.0, at most 1,000,000 steps",
        "trained     3,000 steps, 30 episodes in 4.00 s",
        "speed       750 steps/s; 25% collecting, 75% updating",
        "training    mean return 300.0 over the last 30 episodes",
        "evaluation  mean return 480.0 over 100 greedy episodes",
        "            lowest 480.0, highest 480.0",
        "solved      480.0 >= 475",
        "not saved   add --save FILE to keep the agent",
    ]


@pytest.mark.parametrize(
    ("returns", "text"),
    [
        ([4.0, 5.0, 6.0, 5.0], "5.00 +- 0.41"),
        ([-1000.0, -3000.0], "-2000 +- 1000"),
        ([0.1231, 0.1232, 0.1233], "0.123200 +- 0.000058"),
        ([7.5], "7.500"),
        ([480.0] * 100, "480.0"),
    ],
)
def test_an_evaluation_has_the_digits_that_its_standard_error_leaves(
    returns: list[float], text: str
) -> None:
    assert estimate(np.array(returns)) == text


def test_report_tells_of_compiling(
    trainer: type[FakeAgent], capsys: pytest.CaptureFixture[str]
) -> None:
    agent = trainer("CartPole-v1", seed=0)
    agent.history.time_compile = 12.34
    report.print_training(agent)
    assert "prepared    in 12.3 s more, once on this machine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("greedy_return", "last"),
    [
        (480.0, "next        rlcpu eval mine.npz"),
        (300.0, "next        rlcpu train --load mine.npz"),
    ],
)
def test_it_says_what_can_be_done_next(
    trainer: type[FakeAgent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    greedy_return: float,
    last: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer.greedy_return = greedy_return
    cli.main(["train", "CartPole-v1", "--save", "mine.npz"])
    assert capsys.readouterr().out.splitlines()[-2:] == ["saved       mine.npz", last]


@pytest.mark.parametrize(("target", "is_told"), [(475.0, True), (None, False)])
def test_a_loaded_agent_that_meets_the_target_can_be_trained_on(
    capsys: pytest.CaptureFixture[str], target: float | None, is_told: bool
) -> None:
    args: Any = SimpleNamespace(load="a.npz", env=None, keep_best=None)
    files: Any = SimpleNamespace(saved=Path("a.npz"), target=target)
    cli_train.print_next(args, files, solved=True)
    more = "to train on rlcpu train --load a.npz --target none"
    assert (more in capsys.readouterr().out.splitlines()) == is_told


def test_a_return_just_below_the_target_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.print_evaluation(np.array([474.99]), 475.0) == report.EXIT_FAILED
    assert capsys.readouterr().out.splitlines()[-1] == "not solved  474.99 < 475"


def test_no_command_prints_help_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    out, err = capsys.readouterr()
    assert "  rlcpu train CartPole-v1 " in out
    assert err == ""


@pytest.mark.parametrize(
    ("greedy_return", "threshold", "argv", "code"),
    [
        (475.0, 475.0, [], 0),
        (474.9, 475.0, [], report.EXIT_FAILED),
        (474.9, 475.0, ["--target", "400"], 0),
        (480.0, 475.0, ["--target", "490"], report.EXIT_FAILED),
        (-1500.0, None, [], 0),
        (-1500.0, None, ["--target", "-200"], report.EXIT_FAILED),
        (float("nan"), 475.0, [], report.EXIT_FAILED),
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
    assert pixels.shape[1] == 1040
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 10


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["tran"], "invalid choice: 'tran'"),
        (["train"], "expected an environment, such as CartPole-v1, or --load FILE"),
        (["train", "CartPole-v1", "--load", "a.npz", "--seed", "1"], "--seed: the agent of --load"),
        (["train", "CartPole-v1", "--load", "a.npz", "--set", "gamma=1"], "--set: the agent of"),
        (["train", "--load", "no_such.npz"], "there is no file 'no_such.npz'"),
        (["eval", "no_such.npz"], "there is no file 'no_such.npz'"),
        (["eval", str(Path(__file__))], "test_cli.py: no agent of rlcpu"),
        (["train", "CartPole-v1", "--param", "gravity"], "--param: expected name=value"),
        (["train", "CartPole-v1", "--param", "gravty=1.0"], "CartPole-v1 has no parameter gravty"),
        (["train", "CartPole-v1", "--set", "gamma=1", "--set", "gamma=1"], "given twice"),
        (["train", "CartPole-v1", "--num-envs", "8", "--set", "num_envs=8"], "given twice"),
        (["train", "CartPole-v1", "--video", "film.avi"], "does not end in .gif or .mp4"),
        (["export", "no_such.npz", "a.c"], "there is no file 'no_such.npz'"),
        (["export", "a.npz", "a.txt"], "'a.txt': expected an ending of .c, .json, .npz, .onnx"),
        (["plot", "no_such.csv", "--out", "a.png"], "cannot read 'no_such.csv': No such file"),
        (["plot", str(Path(__file__)), "--out", "a.png"], "expected a table with numbers in its"),
        (["plot", "a.csv"], "the following arguments are required: --out"),
        (["train", "CartPol-v1"], "unknown environment 'CartPol-v1', did you mean CartPole-v1?"),
        (["train", "cartpole"], "did you mean CartPole-v1? `rlcpu list` has all "),
        (["train", "no_such_module:X-v0"], "cannot import 'no_such_module'"),
        (["train", "balance.py:Balance-v0"], "write balance:..."),
        (["warmup", "Pendulum"], "did you mean Pendulum-v1?"),
        (["train", "CartPole-v1", "--steps", "0"], "--steps: expected a whole number of at least"),
        (["train", "CartPole-v1", "--steps", "1.5"], "got '1.5'"),
        (["train", "CartPole-v1", "--steps", "many"], "expected a number, got 'many'"),
        (["train", "CartPole-v1", "--seed", "-1"], "--seed: expected a whole number of at least 0"),
        (["check", "CartPole-v1", "--seed", str(2**128)], "--seed: expected less than 2**128"),
        (["check", "CartPole-v1", "--param", "gravty=1"], "gravty"),
        (["train", "CartPole-v1", "--num-envs", "0"], "--num-envs"),
        (["train", "CartPole-v1", "--target", "nan"], "--target: expected a number, got 'nan'"),
        (["train", "CartPole-v1", "--dtype", "float16"], "invalid choice: 'float16'"),
        (["train", "CartPole-v1", "--step", "5"], "unrecognized arguments: --step 5"),
        (["train", "CartPole-v1", "--save", "no/such/folder/a.npz"], "no folder 'no/such/folder'"),
        (["train", "CartPole-v1", "--save", "."], "'.' is a folder"),
        (["train", "CartPole-v1", "--csv", f"{__file__}/a.csv"], "there is no folder"),
        (["train", "CartPole-v1", "--save", "a" * 250 + ".npz"], "File name too long"),
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
    def refuse(env_id: str, seed: int, **options: Any) -> None:
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


def test_mp4_without_moviepy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    error = fails(capsys, "train", "CartPole-v1", "--video", "a.mp4")
    assert "pip install moviepy, or name a .gif" in error


def test_parameters_and_settings_reach_the_agent(capsys: pytest.CaptureFixture[str]) -> None:
    argv = "train CartPole-v1 --steps 100 --num-envs 8 --param gravity=1.6 --episodes 1"
    settings = "num_steps=16 hidden=16, activation=relu normalize_observations=true gamma=0.9"
    pairs = [word for setting in settings.split() for word in ("--set", setting)]
    assert cli.main([*argv.split(), *pairs]) == report.EXIT_FAILED
    assert "trained     128 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (KeyboardInterrupt(), 130, "interrupted after 2,000 steps"),
        (cli_train.Terminated(), 143, "interrupted after 2,000 steps"),
        (FloatingPointError("reward=nan"), 1, "stopped: reward=nan after 2,000 steps"),
    ],
)
@pytest.mark.parametrize("save", [[], ["--save", "mine.npz"]])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "MinAtar/Breakout-v1"])
def test_a_run_that_is_stopped_keeps_what_was_learnt(
    trainer: type[FakeAgent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: BaseException,
    code: int,
    reason: str,
    save: list[str],
    env_id: str,
) -> None:
    def stopped(self: FakeAgent, *args: Any, **kwargs: Any) -> None:
        self.update(1)
        self.update(2)
        raise error

    monkeypatch.setattr(trainer, "learn", stopped)
    monkeypatch.chdir(tmp_path)
    argv = [
        "train",
        env_id,
        "--algo",
        "ppo",
        "--steps",
        "5e3",
        "--csv",
        "a.csv",
        "--plot",
        "a.png",
        "--episodes",
        "10",
        *save,
    ]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert cli.main(argv) == code
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    out, err = capsys.readouterr()
    name = save[1] if save else f"{env_id.replace('/', '-')}-interrupted.npz"
    lines = [f"rlcpu train: {reason}", f"saved       {name}"]
    lines += ["table       a.csv", "picture     a.png"]
    if code != 1:
        rest = "--steps 3000 --schedule 0:5000 --csv a.csv --plot a.png --episodes 10"
        lines += [f"to go on    rlcpu train --load {name} {rest}"]
    assert (len(out.splitlines()), err.splitlines()) == (3 + ("/" in env_id), lines)
    assert {path.name for path in tmp_path.iterdir()} == {name, "a.csv", "a.png"}
    assert (tmp_path / "a.csv").read_text().count("\n") == 3


def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The printed command is complete: parameters, schedule and table are those of one run."""
    monkeypatch.chdir(tmp_path)
    argv = "train CartPole-v1 --steps 640 --num-envs 8 --target 501 --episodes 5 --save whole.npz"
    argv += " --csv whole.csv --set num_steps=16 --set hidden=16, --set minibatch_size=64"
    argv += " --set num_epochs=2 --set learning_rate_schedule=linear"
    assert cli.main(argv.split()) == report.EXIT_FAILED
    update = PPO._update

    def interrupted(self: PPO, *args: Any) -> None:
        if self.steps == 384:
            raise KeyboardInterrupt
        update(self, *args)

    monkeypatch.setattr(PPO, "_update", interrupted)
    assert cli.main(argv.replace("whole", "part").split()) == cli.commands.EXIT_INTERRUPTED
    monkeypatch.setattr(PPO, "_update", update)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("to go on    rlcpu train --load part.npz --steps 384 --schedule 0:640")
    assert cli.main(last.split()[4:]) == report.EXIT_FAILED
    whole, part = (PPO.load(tmp_path / f"{name}.npz") for name in ("whole", "part"))
    assert (whole.steps, part.steps) == (640, 640)
    np.testing.assert_array_equal(whole.policy.parameters, part.policy.parameters)
    tables = [
        np.genfromtxt(tmp_path / f"{name}.csv", delimiter=",", names=True)
        for name in ("whole", "part")
    ]
    for name in ("total_steps", "episode_return", "loss_policy"):
        np.testing.assert_array_equal(tables[0][name], tables[1][name])
    assert cli.main(["plot", "part.csv", "--out", "part.png"]) == 0
    (tmp_path / "part.csv").write_text("mine\n1\n")
    capsys.readouterr()
    assert "--csv: 'part.csv': expected a table" in fails(capsys, *last.split()[4:])


def test_a_run_that_is_stopped_at_once_writes_nothing(
    trainer: type[FakeAgent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def stopped(self: FakeAgent, *args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "learn", stopped)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "CartPole-v1", "--save", "a.npz"]) == cli.commands.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "rlcpu train: interrupted; nothing was learnt yet\n"
    assert not list(tmp_path.iterdir())


def test_an_agent_that_cannot_be_written_goes_elsewhere(
    trainer: type[FakeAgent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def save(self: FakeAgent, path: Path) -> None:
        if path.name == "a.npz":
            raise OSError(28, "No space left on device")
        path.write_text("agent")

    monkeypatch.setattr(trainer, "save", save)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    target = str(tmp_path / "a.npz")
    assert cli.main(["train", "CartPole-v1", "--save", target]) == report.EXIT_FAILED
    out, err = capsys.readouterr()
    assert f"cannot write {target}: No space left on device" in err
    rescued = tmp_path / "a.npz.rescued.npz"
    last = [f"saved       {rescued}", f"next        rlcpu eval {rescued}"]
    assert out.splitlines()[-2:] == last


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="changes the user")
def test_a_folder_that_must_not_be_written_is_found_first(
    trainer: type[FakeAgent], capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.seteuid(65534)
        try:
            error = fails(capsys, "train", "CartPole-v1", "--save", f"{folder}/a.npz")
        finally:
            os.seteuid(0)
    assert "a.npz': Permission denied" in error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_devices_are_written_and_not_replaced(
    trainer: type[FakeAgent], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "CartPole-v1", "--csv", "/dev/full"]) == report.EXIT_FAILED
    assert "cannot write /dev/full: No space left on device" in capsys.readouterr().err
    assert cli.main(["train", "CartPole-v1", "--csv", "/dev/null"]) == 0
    assert not Path("/dev/null").is_file()
    capsys.readouterr()
    error = fails(capsys, "train", "CartPole-v1", "--save", "/proc/a.npz")
    assert "cannot write '/proc/a.npz'" in error


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
        (DYNAMICS.format(step="(state[0],), None, False"), "line 13: TypeError: Broken-v0: step"),
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
    jobs = (lambda env_id, dtype: seen.append((env_id, dtype)),)
    monkeypatch.setattr(cli.warmup, "WARMUP_JOBS", jobs)
    assert cli.main(["warmup", "CartPole-v1", "Pendulum-v1"]) == 0
    assert len(seen) == len(set(seen)) == 4
    assert capsys.readouterr().out == "compiled CartPole-v1, Pendulum-v1 in float32 and float64\n"
    seen.clear()
    assert cli.main(["warmup", "--dtype", "float32"]) == 0
    assert seen == [(env_id, "float32") for env_id in cli.arguments.known_environments()]


def test_warmup_for_real(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["warmup", "CartPole-v1", "--dtype", "float32"]) == 0
