"""The study: what agents reach with their default settings, seed by seed, beside published figures.

`python -m asv_benches.study CartPole-v1 Pendulum-v1:sac --seeds 5` trains with the seeds 0 to 4 the
pairs that are named, or all of `PAIRS`: as `rlcpu train` does, but to the end of the steps. It
then evaluates 100 greedy episodes. Runs are kept in results/study, whatever machine made them:
only what is missing there, or had other settings, is trained. The report and the documentation are
made from it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asv_benches import colours
from asv_benches.peers import machine, pictures
from asv_benches.peers.rows import RESULTS
from rlcpu.envs.tasks import popgym

Run = dict[str, Any]
EPISODES, POINTS = 100, 30
PATH = RESULTS / "study" / "runs.json"
ZOO, GYMNAX = "rl-zoo", "gymnax"
#: PPO's returns on MinAtar's games in the table of gymnax's README: 10 million steps, 256-256 units
#: (gymnax-blines, `agents/*-MinAtar/ppo.yaml`). PQN's authors print no returns.
GYMNAX_RETURNS = {"Breakout": 28.0, "Asterix": 15.0, "Freeway": 58.0, "SpaceInvaders": 131.0}
MINATAR = ("Breakout", "Asterix", "Freeway", "Seaquest", "SpaceInvaders")
#: Algorithms that fit each environment, and published returns: `GYMNAX_RETURNS`, and of all else
#: those of rl-baselines3-zoo's page on trained agents, of one run each: the landers' are of the
#: versions -v2, HalfCheetah's of -v3 and of a million steps.
PAIRS: dict[str, dict[str, float | None]] = {
    "CartPole-v1": {"ppo": 500.0, "dqn": 500.0, "pqn": None},
    "Acrobot-v1": {"ppo": -73.5, "dqn": -76.6},
    "MountainCar-v0": {"ppo": -110.4, "dqn": -100.8},
    "MountainCarContinuous-v0": {"ppo": 88.3},
    "Pendulum-v1": {"ppo": -172.2, "sac": -157.0, "td3": -151.9},
    "CartPoleNoVel-v1": {"ppo": 500.0},
    "MountainCarContinuousNoVel-v0": {"ppo": 91.5},
    "PendulumNoVel-v1": {"ppo": -218.0},
    "TMaze-v0": {"ppo": None},
    "FrozenLake-v1": {"ppo": None, "dqn": None},
    "FrozenLake8x8-v1": {"ppo": None},
    "CliffWalking-v1": {"ppo": None, "dqn": None},
    "Taxi-v4": {"ppo": None},
    "Blackjack-v1": {"ppo": None},
    "MiniGrid-Empty-8x8-v0": {"ppo": None},
    "MiniGrid-DoorKey-8x8-v0": {"ppo": None},
    "MiniGrid-FourRooms-v0": {"ppo": None},
    "LunarLander-v3": {"ppo": 242.1},
    "LunarLanderContinuous-v3": {"ppo": 270.9},
    "HalfCheetah-v5": {"ppo": 5819.1, "sac": 9535.5},
    **{
        f"MinAtar/{game}-v1": dict.fromkeys(("ppo", "pqn"), GYMNAX_RETURNS.get(game))
        for game in MINATAR
    },
    "Craftax-Classic-Symbolic-v1": {"ppo": None},
    **{id: {"ppo": None} for id in popgym.FAMILY.limits if id.endswith("Easy-v0")},
}


# ---------------------------------------------------------------- training


def make(env_id: str, algorithm: str, seed: int) -> tuple[Any, int]:
    """An agent as `rlcpu train` makes it, and how many steps it learns."""
    from rlcpu.train import algorithms
    from rlcpu.train.tuned import default_steps

    agent = algorithms.algorithm(algorithm)(env_id, seed=seed)
    return agent, default_steps(agent)


def settings_of(agent: Any, steps: int) -> str:
    """A digest of all that decides what is learnt, but for the seed and the program."""
    # Older runs had no setting of this name: their limit was 10, which these stand for, or is not
    # reached.
    config = re.sub(r", clip_observations=(None|10\.0)", "", str(agent.config))
    return hashlib.sha256(f"{steps} {config}".encode()).hexdigest()[:12]


def train(env_id: str, algorithm: str, seed: int) -> Run:
    """One run; its seconds are those of the CPU, for the machine may be shared."""
    agent, steps = make(env_id, algorithm, seed)
    curve: list[tuple[int, float, float]] = []

    def note(progress: Any) -> None:
        curve.append((progress.steps, time.process_time() - begin, progress.episode_return))

    begin = time.process_time()
    agent.learn(steps, callback=note)
    seconds = time.process_time() - begin
    returns = agent.evaluate(EPISODES, seed=agent.seed + 1)
    shown = [curve[i] for i in np.linspace(0, len(curve) - 1, POINTS).astype(int)]
    return {
        "env": env_id,
        "algorithm": algorithm,
        "seed": seed,
        "machine": machine.name(),
        "settings": settings_of(agent, steps),
        "steps": steps,
        "seconds": round(seconds, 2),
        "mean": round(float(returns.mean()), 3),
        "deviation": round(float(returns.std()), 3),
        "curve": [[n, round(s, 2), None if math.isnan(r) else round(r, 3)] for n, s, r in shown],
    }


def compile_kernels(env_id: str, algorithm: str) -> None:
    """Learn a little, so that no run's seconds have compiling in them."""
    agent, _ = make(env_id, algorithm, 0)
    config = agent.config
    enough = getattr(config, "learning_starts", 0) + getattr(config, "batch_size", 0)
    agent.learn(enough + 2 * config.num_envs * config.num_steps)


def study(
    pairs: Iterable[tuple[str, str]], seeds: Iterable[int], path: Path, minutes: float
) -> None:
    """Make the runs that are missing, seed by seed and kept as they come."""
    end = time.monotonic() + 60 * minutes
    runs = {(r["env"], r["algorithm"], r["seed"]): r for r in load(path)}
    for pair in pairs:
        wanted = settings_of(*make(*pair, 0))
        runs = {k: r for k, r in runs.items() if k[:2] != pair or r["settings"] == wanted}
        missing = [seed for seed in seeds if (*pair, seed) not in runs]
        if missing and time.monotonic() < end:
            compile_kernels(*pair)
        for seed in missing:
            if time.monotonic() >= end:
                return
            run = runs[*pair, seed] = train(*pair, seed)
            save(path, runs.values())
            print(*pair, f"{seed}: {run['mean']:.1f}, {run['seconds']:.1f} s", flush=True)


# ---------------------------------------------------------------- saved


def load(path: Path = PATH) -> list[Run]:
    """The runs of a file; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else []


def save(path: Path, runs: Iterable[Run]) -> None:
    """Write them, a line each, in the order of `PAIRS`."""
    order = {env_id: place for place, env_id in enumerate(PAIRS)}
    runs = sorted(runs, key=lambda r: (order[r["env"]], r["algorithm"], r["seed"]))
    lines = ",\n".join(json.dumps(run) for run in runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n{lines}\n]\n")


# ---------------------------------------------------------------- shown


class Line(NamedTuple):
    """One pair over its seeds.

    Attributes:
        env, algorithm: the pair.
        seeds: how many.
        mean: of the seeds' means of 100 greedy episodes.
        error: its standard error over seeds; 0 of a single one.
        published: a mean that others print, or None; `source` says who.
        threshold: Gymnasium's, or None.
        steps: that each seed learnt.
        seconds: median of the CPU's.
    """

    env: str
    algorithm: str
    seeds: int
    mean: float
    error: float
    published: float | None
    threshold: float | None
    steps: int
    seconds: float

    @property
    def source(self) -> str:
        """Who published the figure."""
        return GYMNAX if self.env.startswith("MinAtar/") else ZOO

    def reaches(self, goal: float | None) -> str:
        """Whether the mean is not below a goal by more than one standard error."""
        return "" if goal is None else "yes" if self.mean + self.error >= goal else "no"

    def cells(self) -> tuple[str, ...]:
        """What the tables show, under `HEAD`; default is what `rlcpu train` takes."""
        from rlcpu.train.tuned import fitting

        goals = (self.published, self.threshold)
        shown = ["-" if goal is None else f"{goal:g} {self.reaches(goal)}" for goal in goals]
        if self.published is not None:
            shown[0] += f" ({self.source})"
        mean = f"{self.mean:.2f}" if abs(self.mean) < 10 else f"{self.mean:.1f}"
        error = f" +- {self.error:.2g}" if self.seeds > 1 else ""
        chosen = " (default)" if fitting(self.env) == self.algorithm else ""
        agent, steps = f"{self.algorithm.upper()}{chosen}", f"{self.steps:,}"
        figures = (mean + error, str(self.seeds), *shown, steps, f"{self.seconds:.3g} s")
        return (self.env, agent, *figures)


HEAD = ("environment", "agent", "return", "seeds", "published", "threshold", "steps", "CPU")
NOTE = (
    "Mean over seeds of the mean return of 100 greedy episodes, and its standard error, with the "
    "default settings, at the end of the default steps. rl-zoo: what rl-baselines3-zoo prints of "
    "one trained agent; gymnax: what its README prints of PPO after 10 million steps, in games "
    "without sticky actions that end after 1,000 steps (Freeway 2,500); threshold: Gymnasium's; "
    "yes: the mean is not below it by more than one standard error. Default: what `rlcpu train` "
    "takes. CPU: median seconds of a run, one thread, kernels compiled before, on machines of two "
    "kinds, with two cores that others used too."
)


def summary(runs: Iterable[Run]) -> list[Line]:
    """A line for each pair that was trained, in the order of `PAIRS`."""
    from rlcpu.envs.registration import find

    lines = []
    for (env_id, algorithm), group in grouped(runs).items():
        means = np.array([run["mean"] for run in group])
        error = means.std(ddof=1) / math.sqrt(len(means)) if len(means) > 1 else 0.0
        seconds = float(np.median([run["seconds"] for run in group]))
        goals = PAIRS[env_id][algorithm], find(env_id).reward_threshold
        line = (env_id, algorithm, len(group), float(means.mean()), float(error), *goals)
        lines.append(Line(*line, group[0]["curve"][-1][0], seconds))
    return lines


def grouped(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """The runs of each pair."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run["env"], run["algorithm"]), []).append(run)
    return groups


def draw(env_id: str, groups: Mapping[str, list[Run]], threshold: float | None) -> str:
    """Learning curves of an environment's agents over steps and over seconds, as an address.

    A line is the mean over seeds of the return in training, its band goes from lowest to highest.
    """

    def plot(both: Any) -> None:
        for column, axes in enumerate(both):
            for algorithm, runs in groups.items():
                colour, line = colours.ALGORITHMS[algorithm]
                curves = np.array([run["curve"] for run in runs], dtype=float)
                x, y = np.median(curves[..., column], axis=0), curves[..., 2]
                axes.plot(x, y.mean(axis=0), color=colour, linestyle=line, label=algorithm.upper())
                axes.fill_between(x, y.min(axis=0), y.max(axis=0), color=colour, alpha=0.2)
            if threshold is not None:
                axes.axhline(threshold, color="black", linewidth=1, linestyle="--")
            axes.set_xlabel(("environment steps", "seconds of the CPU")[column])
        both[0].set_ylabel("return in training")
        both[1].sharey(both[0])
        both[0].legend()

    return pictures.picture(plot, (8.0, 2.8), columns=2)


def chapter(path: Path = PATH) -> dict[str, Any]:
    """What the report shows: pictures with captions, and the cells of the table."""
    lines, groups = summary(load(path)), grouped(load(path))
    thresholds = {line.env: line.threshold for line in lines}
    drawn = []
    for env_id, threshold in thresholds.items():
        agents = {pair[1]: runs for pair, runs in groups.items() if pair[0] == env_id}
        drawn.append((draw(env_id, agents, threshold), env_id))
    return {"pictures": drawn, "head": HEAD, "cells": [line.cells() for line in lines]}


def markdown(path: Path = PATH) -> str:
    """The table of the documentation."""
    rows = [HEAD, ["---"] * len(HEAD), *(line.cells() for line in summary(load(path)))]
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in rows), "", NOTE])


# ---------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m asv_benches.study", description=__doc__)
    add = parser.add_argument
    add("pairs", nargs="*", metavar="ENV[:ALGORITHM]", help="what to train (all)")
    add("--seeds", type=int, default=10, metavar="N", help="train with the seeds 0 to N - 1 (10)")
    add("--minutes", type=float, default=math.inf, help="begin no run after")
    add("--results", type=Path, default=PATH, metavar="FILE", help="of the saved runs")
    options = parser.parse_args(arguments)
    try:
        chosen = [pair for text in options.pairs or PAIRS for pair in named(text)]
    except KeyError as error:
        parser.error(f"{error.args[0]!r}: the study has {', '.join(PAIRS)}, and their algorithms")
    study(chosen, range(options.seeds), options.results, options.minutes)


def named(text: str) -> list[tuple[str, str]]:
    """The pairs of "ENV" or "ENV:ALGORITHM"; raises KeyError for what the study has not."""
    env_id, _, algorithm = text.partition(":")
    if algorithm and algorithm not in PAIRS[env_id]:
        raise KeyError(text)
    return [(env_id, each) for each in ([algorithm] if algorithm else PAIRS[env_id])]


if __name__ == "__main__":
    main()
