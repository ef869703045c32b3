"""What a run does for itself: the best is kept, files are whole, and learning stops in time."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu.train import DQN, PPO, Evaluations
from tests.train import test_off_policy
from tests.train.test_agents import EVERY
from tests.train.test_off_policy import everything
from tests.train.test_ppo import SMALL  # a rollout has 128 steps


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[float]], None]:
    """Lets evaluations return these means, one after the other."""

    def use(means: Sequence[float]) -> None:
        left = iter(means)

        def evaluate(env: Any, policy: Any, num_episodes: int, *, seed: int) -> Any:
            return np.full(num_episodes, next(left))

        monkeypatch.setattr("rlcpu.train.running.evaluations.evaluate", evaluate)

    return use


def make_agent(**options: Any) -> PPO:
    return PPO("CartPole-v1", seed=1, **{**SMALL, **options})


NAN = math.nan


@pytest.mark.parametrize(
    ("means", "patience", "steps", "best"),
    [
        ([1, 2, 3, 4, 5, 6], 1, 768, 768),
        ([5, 4, 6, 1, 2, 9], 2, 640, 384),
        ([5, 5, 5, 9, 9, 9], 2, 384, 128),  # as good is no better
        ([5, 4, 3, 2, 1, 0], 1, 256, 128),
        ([NAN, NAN, NAN, 1, NAN, 0], 2, 768, 512),  # it counts from the first return on
        ([NAN] * 6, 1, 768, None),
        ([-math.inf, -math.inf, 3, 2, 1, 0], 9, 768, 384),
    ],
)
def test_learning_stops_when_evaluations_no_longer_improve(
    script: Any,
    tmp_path: Path,
    means: list[float],
    patience: int,
    steps: int,
    best: int | None,
) -> None:
    script(means)
    agent, path = make_agent(), tmp_path / "best.npz"
    history = agent.learn(768, evaluations=6, patience=patience, keep_best=path)
    assert history.steps == steps
    assert history.stopped == ("patience" if steps < 768 else "steps")
    if best is None:
        assert agent.best_evaluation is None
        assert not path.exists()
    else:
        assert agent.best_evaluation is not None
        assert agent.best_evaluation.steps == best
        kept = PPO.load(path)
        assert kept.steps == best
        assert kept.best_evaluation == agent.best_evaluation._replace(worse=0)


@EVERY
def test_the_best_file_has_the_return_that_was_noted(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    agent, path = make(), tmp_path / "best.npz"
    history = agent.learn(2000, evaluations=Evaluations(4, num_episodes=3), keep_best=path)
    means = [each.mean_return for each in history.evaluations]
    kept = type(agent).load(path)
    assert kept.best_evaluation.mean_return == max(means)
    assert kept.steps == history.evaluations[means.index(max(means))].steps
    assert kept.evaluate(3, seed=0).mean() == max(means)
    assert agent.best_evaluation.mean_return == max(means)
    assert os.listdir(tmp_path) == ["best.npz"]


def test_an_agent_that_goes_on_remembers_its_best(script: Any, tmp_path: Path) -> None:
    path, last = tmp_path / "best.npz", tmp_path / "last.npz"
    options: dict[str, Any] = {"evaluations": 2, "keep_best": path}
    script([7, 3])
    make_agent().learn(256, **options, save_to=last, save_every=256)
    script([5, 9])
    agent = PPO.load(last)
    assert agent.best_evaluation is not None
    assert (agent.best_evaluation.mean_return, agent.best_evaluation.worse) == (7.0, 1)
    agent.learn(256, **options)
    assert [each.mean_return for each in agent.history.evaluations] == [5.0, 9.0]
    assert PPO.load(path).steps == 512
    # Its file goes on, too, and knows what it was kept for.
    script([8, 8])
    agent = PPO.load(path)
    agent.learn(256, **options)
    assert PPO.load(path).steps == 512
    # A file that is gone, other episodes or another run make it begin anew.
    for change in ("file", "episodes", "run"):
        agent, options["evaluations"] = PPO.load(path), 2
        if change == "file":
            options["keep_best"] = tmp_path / "other.npz"
        elif change == "episodes":
            options["evaluations"] = Evaluations(2, num_episodes=7)
        else:
            agent = make_agent()
        script([1, 2])
        agent.learn(256, **options)
        assert agent.best_evaluation is not None
        assert PPO.load(options["keep_best"]).best_evaluation == agent.best_evaluation
        assert agent.best_evaluation.mean_return == 2.0
        options["keep_best"] = path
        script([7, 9])
        make_agent().learn(256, evaluations=2, keep_best=path)


def test_a_run_that_was_killed_keeps_what_was_better(script: Any, tmp_path: Path) -> None:
    """It goes on from a file of before its best evaluation, and makes that again."""
    path, last = tmp_path / "best.npz", tmp_path / "last.npz"
    means = [1, 5, 2, 4, 9, 3]
    script(means)
    agent = make_agent()

    def die(progress: Any) -> None:
        if progress.steps == 640:
            raise RuntimeError

    options: dict[str, Any] = {"keep_best": path, "patience": 3, "save_to": last}
    options |= {"evaluations": 6, "save_every": 512, "schedule": (0, 768)}
    with pytest.raises(RuntimeError):
        agent.learn(768, callback=die, **options)
    assert (PPO.load(last).steps, PPO.load(path).steps) == (512, 640)
    before = path.read_bytes()
    agent = PPO.load(last)
    script([8, 3])
    assert agent.learn(256, **options).stopped == "steps"
    assert path.read_bytes() == before  # 9 is better than 8
    whole = make_agent()
    script(means)
    whole.learn(768, **options)
    assert everything(agent) == everything(whole)
    agent = PPO.load(tmp_path / "best.npz")
    assert (agent.steps, agent.best_evaluation and agent.best_evaluation.mean_return) == (640, 9.0)


def test_patience_that_ended_a_call_is_new_in_the_next(script: Any) -> None:
    agent = make_agent()
    script([9, 1, 2, 3, 4, 5, 6])
    assert agent.learn(768, evaluations=6, patience=2).steps == 384
    assert agent.learn(768, evaluations=6, patience=2).steps == 256


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_it_is_saved_every_so_many_steps_and_at_the_end(kind: Any, tmp_path: Path) -> None:
    options = SMALL if kind is PPO else test_off_policy.SMALL
    agent = kind("CartPole-v1", seed=1, **options)
    seen: list[int | None] = []
    history = agent.learn(
        1200,
        save_to=tmp_path / "agent-{steps}.npz",
        save_every=512,
        callback=lambda progress: seen.append(progress.saved_at),
    )
    reports = [each.steps for each in history.updates]
    due = [next(steps for steps in reports if steps >= least) for least in (512, 1024)]
    expected = sorted({*due, agent.steps})
    steps = sorted(int(path.stem.partition("-")[2]) for path in tmp_path.iterdir())
    assert steps == expected
    assert [kind.load(tmp_path / f"agent-{each}.npz").steps for each in steps] == steps
    assert history.saved_at == agent.steps
    assert seen[-1] in due
    agent.learn(100, save_to=tmp_path / "agent.npz", save_every=512)
    assert kind.load(tmp_path / "agent.npz").steps == agent.steps


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"evaluations": 0}, ValueError, "evaluations=0: expected at least 1"),
        ({"evaluations": True}, TypeError, "evaluations=True: expected how many, or rlcpu.train.E"),
        ({"evaluations": "many"}, TypeError, "evaluations='many': expected how many, or"),
        ({"keep_best": "a.npz"}, ValueError, "keep_best='a.npz': expected evaluations too"),
        ({"patience": 3}, ValueError, "patience=3: expected evaluations too"),
        ({"patience": 0, "evaluations": 2}, ValueError, "patience=0: expected at least 1"),
        ({"keep_best": 3, "evaluations": 2}, TypeError, "keep_best=3: expected the path of a file"),
        ({"save_every": 512}, ValueError, "save_every=512: expected save_to too"),
        ({"save_to": "a.npz"}, ValueError, "save_to='a.npz': expected save_every too"),
        (
            {"save_to": "a.npz", "save_every": 100},
            ValueError,
            "save_every=100: expected at least 128, as many environment steps are made at a time",
        ),
        ({"save_to": "no/a.npz", "save_every": 512}, OSError, "there is no folder 'no'"),
        ({"keep_best": "no/a.npz", "evaluations": 2}, OSError, "there is no folder 'no'"),
        (
            {"keep_best": "a.npz", "evaluations": 2, "save_to": "./a.npz", "save_every": 512},
            ValueError,
            "save_to='./a.npz': keep_best has the same file, expected another one",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_learning(
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = make_agent()
    with pytest.raises(error, match=message):
        agent.learn(1000, **options)
    assert (agent.steps, os.listdir(tmp_path)) == (0, [])


def test_agents_with_replay_are_saved_after_500_steps_at_the_earliest(tmp_path: Path) -> None:
    agent = DQN("CartPole-v1", seed=1, **test_off_policy.SMALL)  # 32 steps a round
    with pytest.raises(ValueError, match="save_every=500: expected at least 512"):
        agent.learn(1000, save_to=tmp_path / "a.npz", save_every=500)


def test_numbers_that_no_file_would_hold_are_refused_before_learning(tmp_path: Path) -> None:
    class Counting(PPO):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.count_of_mine = 0

    agent = Counting("CartPole-v1", **SMALL)
    with pytest.raises(TypeError, match="count_of_mine: numbers of Counting that no file would"):
        agent.learn(128, save_to=tmp_path / "a.npz", save_every=128)
    assert agent.steps == 0


def test_a_full_disk_ends_the_run_and_the_best_stays(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script([1, 2])
    agent, path = make_agent(), tmp_path / "best.npz"
    save = PPO.save

    def fail(self: Any, path: Any) -> None:
        if self.steps > 128:
            raise OSError("No space left on device")
        save(self, path)

    monkeypatch.setattr(PPO, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        agent.learn(256, evaluations=2, keep_best=path)
    assert agent.best_evaluation is not None
    assert agent.best_evaluation == PPO.load(path).best_evaluation
    assert (agent.history.stopped, agent.steps) == ("error", 256)


def test_the_bar_tells_of_evaluations(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    script([4, 2])
    make_agent().learn(256, evaluations=2, progress=True, target_return=1e6)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(", evaluated 4.000, best 4.000, target 1000000")
    assert lines[1].endswith(", evaluated 2.000, best 4.000, target 1000000")


#: Learns for ever, and keeps what is best: nearly always the present one.
KILLED = """
import itertools, sys
import numpy as np
from rlcpu.train import DQN
from rlcpu.train.running import evaluations
counter = itertools.count()
evaluations.evaluate = lambda *args, **options: np.full(20, float(next(counter)))
agent = DQN("CartPole-v1", seed=1, **{options})
agent.learn(10**7, evaluations=2 * 10**4, keep_best="best.npz", save_to="last.npz", save_every=512)
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no signals of this kind")
def test_files_are_whole_whenever_the_process_is_killed(tmp_path: Path) -> None:
    code = KILLED.replace("{options}", repr(test_off_policy.SMALL))
    command = [sys.executable, "-W", "error", "-c", code]
    best, rng = tmp_path / "best.npz", np.random.default_rng(0)
    for _ in range(3):
        best.unlink(missing_ok=True)
        process = subprocess.Popen(command, cwd=tmp_path)
        for _ in range(600):
            if best.exists():
                break
            time.sleep(0.1)
        time.sleep(rng.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept, last = DQN.load(best), DQN.load(tmp_path / "last.npz")
        assert kept.best_evaluation.steps == kept.steps > 0
        assert kept.learn(64).steps == last.learn(64).steps == 64
