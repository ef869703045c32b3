"""What `learn` tells: why it stopped, its table, its bar, and how it shows itself."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from rlcpu.cli import main
from rlcpu.kernels.compiler import announce
from rlcpu.terminal import short
from rlcpu.train import DQN, PPO, PQN, History, TensorBoard
from rlcpu.train.keeping.history import LearningBar, rounded

SMALL = {"num_envs": 8, "num_steps": 16, "minibatch_size": 64, "num_epochs": 2, "hidden": (16,)}


def test_it_says_why_learning_stopped() -> None:
    agent = PPO("CartPole-v1", **SMALL)
    seen: list[str] = []
    assert agent.learn(256, callback=lambda progress: seen.append("")).stopped == "steps"
    assert agent.learn(256, callback=lambda progress: False).stopped == "callback"
    solved = agent.learn(100_000, target_return=1.0)
    assert (solved.stopped, solved.solved) == ("solved", True)
    assert solved.steps < 100_000
    assert agent.history is solved

    def interrupt(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent.learn(256, callback=interrupt)
    assert (agent.history.stopped, agent.history.steps) == ("interrupted", 128)
    assert History().stopped == ""


def test_table_has_a_line_for_each_update(tmp_path: Path) -> None:
    history = PPO("CartPole-v1", **SMALL).learn(400)
    history.to_csv(tmp_path / "curve.csv")
    table = np.genfromtxt(tmp_path / "curve.csv", delimiter=",", names=True)
    assert table["steps"].tolist() == [128, 256, 384, 512]
    np.testing.assert_array_equal(table["episode_return"], [y for _, y in history.curve])
    assert table["time_total"][-1] == history.time_total
    assert table["loss_value"][-1] == history.losses.value
    assert table["loss_num_gradients"].tolist() == [4] * 4


def test_lines_of_a_table_have_labels(tmp_path: Path) -> None:
    agent, path = PPO("CartPole-v1", **SMALL), tmp_path / "curve.csv"
    agent.learn(128).to_csv(path)
    agent.learn(256).to_csv(path, append=True, labels={"variant": "a, b", "seed": 3})
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == ["nan", "a, b", "a, b"]
    assert [row["total_steps"] for row in rows] == ["128", "256", "384"]
    agent.history.to_csv(path, labels={"seed": 3})
    assert path.read_text().startswith("seed,total_steps,steps,episodes,")


def test_table_of_several_calls(tmp_path: Path) -> None:
    agent, path = PPO("CartPole-v1", **SMALL), tmp_path / "curve.csv"
    agent.learn(256).to_csv(path, append=True)
    agent.learn(256).to_csv(path, append=True)
    table = np.genfromtxt(path, delimiter=",", names=True)
    assert table["total_steps"].tolist() == [128, 256, 384, 512]
    assert table["steps"].tolist() == [128, 256, 128, 256]
    agent.history.to_csv(path, append=True)  # in the place of the lines after it began
    assert np.genfromtxt(path, delimiter=",", names=True)["total_steps"].tolist() == [
        *(128, 256, 384, 512)
    ]
    path.write_text("steps\n1\n")
    with pytest.raises(ValueError, match="expected a table with numbers in its column total_steps"):
        agent.history.to_csv(path, append=True)
    assert path.read_text() == "steps\n1\n"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0.966, "0.9660"), (4.3219, "4.322"), (475, "475.0"), (-12345.6, "-12346"), (0, "0.0")),
        *((1e-7, "1e-07"), (math.nan, "nan"), (-math.inf, "-inf")),
    ],
)
def test_returns_are_shown_with_four_significant_rounded(number: float, text: str) -> None:
    assert rounded(number) == text


def test_compiling_is_in_no_time_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PPO.collect_rollout

    def collect(*args: Any, **options: Any) -> Any:
        with announce.time_counted():
            time.sleep(0.25)
        return original(*args, **options)

    monkeypatch.setattr(PPO, "collect_rollout", collect)
    start = time.perf_counter()
    agent = PPO("CartPole-v1", **SMALL)
    history = agent.learn(256)
    took = time.perf_counter() - start
    assert history.time_compile >= 0.5
    assert history.time_collect + history.time_update <= history.time_total
    assert history.time_total + history.time_compile <= took


@pytest.mark.parametrize("kind", [PPO, PQN, DQN])
def test_compiling_for_a_new_agent_is_in_its_first_history(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = kind.networks

    def networks(*args: Any) -> Any:
        with announce.time_counted():
            time.sleep(0.25)
        return original(*args)

    monkeypatch.setattr(kind, "networks", networks)
    agent = kind("CartPole-v1", seed=0)
    assert agent.history.time_compile >= 0.25
    monkeypatch.setattr(kind, "networks", original)
    first, second = agent.learn(64), agent.learn(64)
    assert first.time_compile >= 0.25 > second.time_compile


def test_it_shows_what_is_in_it() -> None:
    history = PPO("CartPole-v1", **SMALL).learn(400)
    assert repr(history).startswith("History(512 steps, ")
    assert repr(history).endswith("stopped='steps')")
    page = ET.fromstring(f"<p>{history._repr_html_()}</p>")
    cells = [cell.text for cell in page.iter("td")]
    assert cells[0] == "512"
    points = page.find("svg/polyline").get("points").split()
    assert len(points) == sum(y == y for _, y in history.curve)
    assert "<svg" not in History()._repr_html_()


def test_bar_ends_at_all_of_it_when_solved_early(capsys: pytest.CaptureFixture[str]) -> None:
    agent = PPO("CartPole-v1", **SMALL)
    history = agent.learn(1e6, target_return=1.0, progress=True)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"CartPole-v1: 100%, {short(history.steps)} steps, ")
    assert f"; recent return {rounded(history.episode_return)}, best " in last
    assert last.endswith(", target 1.000")
    assert history.steps < 1e6
    agent.learn(100)
    assert capsys.readouterr().err == ""


def test_a_notebook_gets_one_line_that_is_written_anew() -> None:
    code = f"""
import io, sys
Stream = type("OutStream", (io.TextIOWrapper,), {{"__module__": "ipykernel.iostream"}})
sys.stderr = Stream(sys.stderr.buffer, "utf-8", write_through=True)
from rlcpu.train import PPO
PPO("CartPole-v1", **{SMALL}).learn(256, progress=True)
"""
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    shown = result.stderr.decode().split("\r")
    assert len(shown) >= 3
    assert shown[-1].startswith("CartPole-v1: 100%, 256 steps, ")
    assert shown[-1].count("\n") == 1


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), {"tensors": 0})
    events.Reload()
    return {
        tag: [
            (event.step, float(make_ndarray(event.tensor_proto))) for event in events.Tensors(tag)
        ]
        for tag in events.Tags()["tensors"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_what_the_table_has(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    agent = PPO("CartPole-v1", **SMALL)
    agent.learn(128)
    with TensorBoard(tmp_path / "runs" / "one") as log:
        history = agent.learn(400, callback=log)
        agent.learn(128, callback=log)
    assert (agent.history.steps, agent.history.total_steps) == (128, 768)
    found = scalars(tmp_path / "runs" / "one")
    for name in history.numbers():
        line = found[name.replace("_", "/", 1)]
        assert [step for step, _ in line] == [256, 384, 512, 640, 768]
        expected = [update.numbers()[name] for update in history.updates]
        np.testing.assert_allclose([number for _, number in line[:4]], expected, rtol=1e-6)
    assert {"steps", "episode/return", "time/total", "loss/policy", "loss/value"} <= found.keys()
    with TensorBoard(tmp_path / "two") as log:
        log(History())  # no episode has ended
    assert "episode/return" not in scalars(tmp_path / "two")


def test_tensorboard_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ImportError, match=r"pip install tensorboard"):
        TensorBoard(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_command_line_writes_for_tensorboard(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("tensorboard")
    small = ["--set", "num_steps=16", "--set", "hidden=16,16", "--num-envs", "8", "--steps", "256"]
    command = ["train", "CartPole-v1", *small, "--episodes", "2", "--target=-1"]
    assert main([*command, "--tensorboard", str(tmp_path / "run")]) == 0
    assert [step for step, _ in scalars(tmp_path / "run")["steps"]] == [128, 256]
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        main([*command, "--tensorboard", str(tmp_path / "file")])
    assert "--tensorboard" in capsys.readouterr().err


def test_the_bar_tells_of_actors(capsys: pytest.CaptureFixture[str]) -> None:
    actors = {f"collector_{i}_steps_per_second": 1000.0 * (i + 1) for i in range(5)}
    actors |= {"shard_0_size": 12.0, "collector_0_steps_per_second": float("nan")}
    with LearningBar("CartPole-v1", 10, None) as bar:
        bar.tell(History(steps=10, episode_return=3.0, actors=actors), 1.0)
    shown = capsys.readouterr().err
    assert "recent return 3.000, best 3.000; collectors ? 2k 3k 4k ... steps/s, shards 12" in shown


def test_the_line_on_compiling_knows_how_many_kernels_there_will_be() -> None:
    code = f"""
from rlcpu.kernels.compiler import announce
from rlcpu.train import PPO
agent = PPO("CartPole-v1", **{SMALL})
agent.learn(128, target_return=-1.0)
agent.evaluate(num_episodes=1, seed=0)
print(announce.ready(), agent.num_kernels)
"""
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    ready, expected = result.stdout.split()
    assert ready == expected
