"""The study of agents: its sums and verdicts, what it trains again, and one run of it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches import study  # noqa: E402
from rlcpu import experiments  # noqa: E402
from rlcpu.envs.contract.names import find  # noqa: E402
from rlcpu.train import DQN, PPO, PQN  # noqa: E402
from rlcpu.train.settings.tuned import (  # noqa: E402
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
    assert line.cells()[2:6] == ("480.0 +- 5.8", "3 of 10", "500 no (rl-zoo)", "475 yes")


def test_a_published_return_has_its_source() -> None:
    (line,) = study.summary([run_of(14.0, env="MinAtar/Asterix-v1", algorithm="pqn")])
    assert line.cells()[4] == "15 no (gymnax)"


def test_a_goal_may_be_missed_by_one_standard_error() -> None:
    (line,) = study.summary([run_of(470.0)])
    assert [line._replace(error=error).reaches(475.0) for error in (4.9, 5.0)] == ["no", "yes"]
    assert line.reaches(None) == ""


def test_only_what_is_missing_or_had_other_settings_is_run(tmp_path, monkeypatch) -> None:
    made, path = [], tmp_path / "study.json"

    def make_runs(pair, seeds, steps, folder, workers) -> list[study.Run]:
        made.append((folder.name, seeds))
        return [run_of(0.0, seed) for seed in seeds]

    monkeypatch.setattr(study, "make_runs", make_runs)
    pairs = study.named("CartPole-v1:ppo")
    digest, _ = study.settings_of(*pairs[0])
    study.study(pairs, 2, path, math.inf, 2)
    study.study(pairs, None, path, 1.0, 5)  # minutes: as many at once as there are processes
    folder = f"CartPole-v1-ppo-{digest}"
    assert made == [(folder, [0, 1]), (folder, [2, 3, 4, 5, 6]), (folder, [7, 8, 9])]
    study.study(pairs, 11, path, 0.0, 2)  # no time
    assert len(made) == 3
    monkeypatch.setitem(STEPS, "CartPole-v1", {"ppo": 12_345})
    study.study(pairs, 1, path, math.inf, 2)
    assert made[3][0] != folder
    assert [run["seed"] for run in study.load(path)] == [0]


def test_a_run_is_that_of_an_agent_with_default_settings(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(STEPS, "CartPole-v1", {"ppo": 4096})
    path = tmp_path / "study.json"
    study.study(study.named("CartPole-v1:ppo"), 1, path, math.inf, 1)
    (run,) = study.load(path)
    agent = PPO("CartPole-v1", seed=0)
    agent.learn(4096)
    assert run["mean"] == pytest.approx(agent.evaluate(100, seed=2 * 2**64).mean(), abs=1e-3)
    steps, seconds, returns = zip(*run["curve"], strict=True)
    assert (len(steps), steps[-1], run["steps"]) == (study.POINTS, 4096, 4096)
    assert returns[-1] == pytest.approx(agent.history.episode_return, abs=1e-3)
    assert 0.0 <= seconds[0] <= seconds[-1] == run["seconds"]
    assert capsys.readouterr().out.startswith("CartPole-v1 ppo 0: ")
    # Where the file of all runs is lost, its folder still has the run.
    before = path.read_text()
    path.unlink()
    monkeypatch.setattr(experiments.runner, "Maker", None)
    study.study(study.named("CartPole-v1:ppo"), 1, path, math.inf, 1)
    assert path.read_text() == before

    pytest.importorskip("matplotlib")
    chapter = study.chapter(path)
    assert chapter["cells"][0][:2] == ("CartPole-v1", "PPO (default)")
    assert chapter["pictures"][0][0].startswith("data:image/svg+xml")
    assert "| CartPole-v1 | PPO (default) |" in study.markdown(path)


def test_what_was_not_run_is_said() -> None:
    runs = [run_of(470.0), run_of(14.0, env="MinAtar/Asterix-v1", algorithm="pqn")]
    assert [line.of_wanted for line in study.summary(runs)] == ["1 of 10", "1 of 3"]
    note = study.note(runs)
    assert "Not run yet: DQN on CartPole-v1, QRDQN on CartPole-v1, PQN on CartPole-v1, " in note
    everything = [
        run_of(0.0, seed, env=env_id, algorithm=algorithm)
        for env_id, algorithms in study.PAIRS.items()
        for algorithm in algorithms
        for seed in range(study.wanted(env_id))
    ]
    assert study.note(everything) == study.NOTE
    assert all(line.of_wanted == str(line.seeds) for line in study.summary(everything))


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
