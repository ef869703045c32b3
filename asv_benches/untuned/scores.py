"""What agents reach on the untuned environments: shares of a good policy, and their table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches import untuned
from rlcpu import Dynamics, experiments

PATH = Path(__file__).with_name("scores.json")
#: Episodes of one step with much noise need so many.
FINAL_EPISODES = 1000
AGENTS = ("ppo", "pqn", "dqn", "sac", "td3")


def agents_of(dynamics: Dynamics) -> tuple[str, ...]:
    """The agents that an environment's actions fit."""
    if isinstance(dynamics.action_space, Discrete):
        return "ppo", "pqn", "dqn"
    return ("ppo", "sac", "td3") if isinstance(dynamics.action_space, Box) else ("ppo",)


class Score(NamedTuple):
    """An agent on an environment.

    Attributes:
        env, agent: their names.
        shares: of the way from chance to the good policy, one for each seed.
        seconds: mean of a run's, of the processor.
    """

    env: str
    agent: str
    shares: list[float]
    seconds: float

    @property
    def mean(self) -> float:
        """The mean share; a policy that is better than the good one counts as much."""
        return float(np.minimum(self.shares, 1.0).mean())


def measure(
    name: str, agents: Iterable[str], seeds: int, folder: Path, settings: Mapping[str, Any]
) -> list[Score]:
    """Run agents on an environment, with settings that are those of no environment."""
    task = untuned.task(name)
    fitting = [each for each in agents_of(task.dynamics) if each in agents]
    if not fitting:
        return []
    done = experiments.run(
        f"asv_benches.untuned.{name}:DYNAMICS",
        {each: {"algo": each, **settings} for each in fitting},
        seeds=seeds,
        steps=task.steps,
        evaluations=1,
        final_episodes=FINAL_EPISODES,
        folder=folder / name,
    )
    scores = []
    for each in fitting:
        runs = [run for run in done.runs(each) if run.seed < seeds]
        shares = [round(task.share(run.score), 4) for run in runs]
        seconds = float(np.mean([run.done.cpu_seconds for run in runs]))
        scores.append(Score(name, each, shares, round(seconds, 2)))
    return scores


def save(scores: Iterable[Score], path: Path = PATH) -> None:
    """Write scores, a line each, in the place of older ones of the same pairs."""
    merged = {(each.env, each.agent): each for each in (*load(path), *scores)}
    order = [(name, agent) for name in untuned.NAMES for agent in AGENTS]
    lines = [json.dumps(merged[pair]._asdict()) for pair in order if pair in merged]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def load(path: Path = PATH) -> list[Score]:
    """The scores of a file; none where there is no file."""
    return [Score(**each) for each in json.loads(path.read_text())] if path.exists() else []


def interval(scores: list[Score]) -> tuple[float, float]:
    """A 95 % interval of the mean over environments, by new seeds of each."""
    rng, count = np.random.default_rng(0), 2000
    shares = [np.minimum(each.shares, 1.0) for each in scores]
    means = [np.mean([rng.choice(each, each.size).mean() for each in shares]) for _ in range(count)]
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def markdown(scores: list[Score]) -> str:
    """The table: a row an environment, a column an agent; means of both halves, and seconds."""
    agents = [each for each in AGENTS if any(score.agent == each for score in scores)]
    by_pair = {(each.env, each.agent): each for each in scores}
    names = [name for name in untuned.NAMES if any((name, each) in by_pair for each in agents)]

    def cell(name: str, agent: str) -> str:
        score = by_pair.get((name, agent))
        return "-" if score is None else f"{score.mean:.2f}"

    def best(name: str) -> float:
        return max(score.mean for score in scores if score.env == name)

    counts = [min(len(score.shares) for score in scores if score.agent == x) for x in agents]
    titles = [f"{x.upper()}, {n} seeds" for x, n in zip(agents, counts, strict=True)]
    rows = [["environment", *titles, "best agent"], ["---"] * (len(agents) + 2)]
    for name in names:
        cells = [cell(name, each) for each in agents]
        rows.append([f"`{name}`: {untuned.describe(name)}", *cells, f"{best(name):.2f}"])
    halves = {
        "those that decided": [name for name in names if name not in untuned.HELD_OUT],
        "those held out": [name for name in names if name in untuned.HELD_OUT],
        "all": names,
    }
    for title, half in halves.items():
        cells = []
        for agent in agents:
            chosen = [each for each in scores if each.agent == agent and each.env in half]
            low, high = interval(chosen) if chosen else (math.nan, math.nan)
            mean = np.mean([each.mean for each in chosen]) if chosen else math.nan
            cells.append(f"{mean:.2f} ({low:.2f} to {high:.2f})" if chosen else "-")
        of_best = f"{np.mean([best(name) for name in half]):.2f}" if half else "-"
        rows.append([f"**{title}**", *cells, of_best])
    seconds = [np.mean([each.seconds for each in scores if each.agent == x]) for x in agents]
    rows.append(["CPU seconds of a run", *(f"{each:.1f}" for each in seconds), "-"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
