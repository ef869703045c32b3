"""The study of agents: its sums and verdicts, what it trains again, and one run of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches import study  # noqa: E402
from rlcpu.envs.registration import find  # noqa: E402
from rlcpu.train import DQN, PPO, PQN  # noqa: E402
from rlcpu.train.tuned import (  # noqa: E402
    REPLAY_STEPS,
    STEPS,
    USUAL_STEPS,
    default_steps,
    fitting,
)


def run_of(mean: float, seed: int = 0, **fields: Any) -> study.Run:
    curve = [[100, 0.5, None], [200, 1.0, mean - 1.0]]
    pair = {"env": "CartPole-v1", "algorithm": "ppo"}
    return {
        **pair,
        "seed": seed,
        "settings": "",
        "seconds": 1.5,
        "mean": mean,
        "curve": curve,
    } | fields


def test_a_line_has_the_mean_over_seeds_and_its_standard_error() -> None:
    (line,) = study.summary([run_of(mean, i) for i, mean in enumerate((470.0, 490.0, 480.0))])
    assert (line.mean, line.seeds, line.steps) == (480.0, 3, 200)
    assert line.error == pytest.approx(10.0 / 3**0.5)
    assert (line.published, line.threshold) == (500.0, 475.0)
    assert line.cells()[1] == "PPO (default)"
    assert line.cells()[2:6] == ("480.0 +- 5.8", "3", "500 no (rl-zoo)", "475 yes")


def test_a_published_return_has_its_source() -> None:
    (line,) = study.summary([run_of(14.0, env="MinAtar/Asterix-v1", algorithm="pqn")])
    assert line.cells()[4] == "15 no (gymnax)"


def test_a_goal_may_be_missed_by_one_standard_error() -> None:
    (line,) = study.summary([run_of(470.0)])
    assert [line._replace(error=error).reaches(475.0) for error in (4.9, 5.0)] == ["no", "yes"]
    assert line.reaches(None) == ""


def test_only_what_is_missing_or_had_other_settings_is_trained(tmp_path, monkeypatch) -> None:
    trained, path = [], tmp_path / "study.json"

    def train(env_id: str, algorithm: str, seed: int) -> study.Run:
        trained.append(seed)
        agent, steps = study.make(env_id, algorithm, seed)
        return run_of(0.0, seed, settings=study.settings_of(agent, steps))

    monkeypatch.setattr(study, "train", train)
    monkeypatch.setattr(study, "compile_kernels", lambda *pair: None)
    pairs = study.named("CartPole-v1:ppo")
    study.study(pairs, range(2), path, 1.0)
    study.study(pairs, range(3), path, 1.0)
    assert trained == [0, 1, 2]
    study.study(pairs, range(4), path, 0.0)  # no time
    assert trained == [0, 1, 2]
    monkeypatch.setitem(STEPS, "CartPole-v1", {"ppo": 12_345})
    study.study(pairs, range(1), path, 1.0)
    assert trained == [0, 1, 2, 0]
    assert [run["seed"] for run in study.load(path)] == [0]


def test_a_run_is_that_of_an_agent_with_default_settings(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(STEPS, "CartPole-v1", {"ppo": 4096})
    run = study.train("CartPole-v1", "ppo", 3)
    agent = PPO("CartPole-v1", seed=3)
    agent.learn(4096)
    assert run["mean"] == pytest.approx(agent.evaluate(100, seed=4).mean(), abs=1e-3)
    steps, seconds, returns = zip(*run["curve"], strict=True)
    assert (steps[-1], returns[-1]) == (4096, pytest.approx(agent.history.episode_return, abs=1e-3))
    assert 0.0 <= seconds[0] <= seconds[-1] <= run["seconds"] + 0.01

    pytest.importorskip("matplotlib")
    study.save(tmp_path / "study.json", [run])
    chapter = study.chapter(tmp_path / "study.json")
    assert chapter["cells"][0][:2] == ("CartPole-v1", "PPO (default)")
    assert chapter["pictures"][0][0].startswith("data:image/svg+xml")
    assert "| CartPole-v1 | PPO (default) |" in study.markdown(tmp_path / "study.json")


def test_the_study_has_every_environment_and_every_choice() -> None:
    # In a process of its own: other tests of this one have registered environments.
    code = "import rlcpu; print(*rlcpu.registered())"
    ids = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).split()
    names = (id for id in ids if not re.search("Medium-v|Hard-v", id))
    built_in = {id for id in names if find(id).runs_in_kernels}
    assert set(study.PAIRS) == built_in | {"HalfCheetah-v5"}
    assert all(fitting(id) in study.PAIRS[id] for id in study.PAIRS)
    assert fitting("Own-v0") == "ppo"


def test_who_learns_from_a_buffer_takes_fewer_steps() -> None:
    agents = PPO("MountainCar-v0"), PQN("MountainCar-v0"), DQN("MountainCar-v0")
    assert [default_steps(agent) for agent in agents] == [USUAL_STEPS, USUAL_STEPS, REPLAY_STEPS]
    assert default_steps(DQN("CliffWalking-v1")) == STEPS["CliffWalking-v1"]["dqn"]


def test_saved_runs_belong_to_the_study() -> None:
    runs = study.load()
    assert runs
    assert all(run["algorithm"] in study.PAIRS[run["env"]] for run in runs)


def test_what_the_study_has_not_is_refused() -> None:
    with pytest.raises(SystemExit):
        study.main(["CartPole-v0"])
    with pytest.raises(KeyError):
        study.named("Pendulum-v1:dqn")
