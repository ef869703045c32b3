"""The study: what agents reach with their default settings, seed by seed, beside published figures.

`python -m asv_benches.study CartPole-v1 Pendulum-v1:sac --seeds 5` makes runs with the seeds 0 to 4
of the pairs that are named, or all of `PAIRS` with as many seeds as `wanted` says: as `rlcpu train`
does, but to the end of the steps. Each pair is an experiment of `rlcpu.experiments`, in a folder of
its own below results/study, which goes on where it was. What is shown of it is kept in runs.json,
whatever machine made it: only what is missing there, or had other settings, is run. The report and
the documentation are made from that file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asv_benches import colours
from asv_benches.peers import machine, pictures
from asv_benches.peers.rows import RESULTS
from rlcpu import experiments
from rlcpu.envs.contract.names import find
from rlcpu.envs.tasks import popgym
from rlcpu.train.ppo import MUJOCO_HORIZONS
from rlcpu.train.settings import algorithms
from rlcpu.train.settings.tuned import default_steps, fitting

Run = dict[str, Any]
Pair = tuple[str, str]
EPISODES, POINTS = 100, 30
PATH = RESULTS / "study" / "runs.json"
#: Seeds of a pair, and of one that takes hours.
SEEDS, FEW_SEEDS = 10, 3
ZOO, GYMNAX = "rl-zoo", "gymnax"
#: PPO's returns on MinAtar's games in the table of gymnax's README: 10 million steps, 256-256 units
#: (gymnax-blines, `agents/*-MinAtar/ppo.yaml`). PQN's authors print no returns.
GYMNAX_RETURNS = {"Breakout": 28.0, "Asterix": 15.0, "Freeway": 58.0, "SpaceInvaders": 131.0}
MINATAR = ("Breakout", "Asterix", "Freeway", "Seaquest", "SpaceInvaders")
#: Algorithms that fit each environment, and published returns: `GYMNAX_RETURNS`, and of all else
#: those of rl-baselines3-zoo's page on trained agents, of one run each: the landers' are of the
#: versions -v2, HalfCheetah's of -v3 and of a million steps.
PAIRS: dict[str, dict[str, float | None]] = {
    "CartPole-v1": {"ppo": 500.0, "dqn": 500.0, "qrdqn": 500.0, "pqn": None},
    "Acrobot-v1": {"ppo": -73.5, "dqn": -76.6, "qrdqn": -69.0},
    "MountainCar-v0": {"ppo": -110.4, "dqn": -100.8, "qrdqn": -106.0},
    "MountainCarContinuous-v0": {"ppo": 88.3},
    "Pendulum-v1": {"ppo": -172.2, "sac": -157.0, "tqc": -151.0, "td3": -151.9},
    "CartPoleNoVel-v1": {"ppo": 500.0},
    "MountainCarContinuousNoVel-v0": {"ppo": 91.5},
    "PendulumNoVel-v1": {"ppo": -218.0},
    "TMaze-v0": {"ppo": None},
    "BitFlip-v0": {"ppo": None, "dqn": None},
    "PointMaze-v0": {"ppo": None, "sac": None},
    "FrozenLake-v1": {"ppo": None, "dqn": None},
    "FrozenLake8x8-v1": {"ppo": None},
    "CliffWalking-v1": {"ppo": None, "dqn": None},
    "Taxi-v4": {"ppo": None},
    "Blackjack-v1": {"ppo": None},
    "MiniGrid-Empty-8x8-v0": {"ppo": None},
    "MiniGrid-DoorKey-8x8-v0": {"ppo": None},
    "MiniGrid-FourRooms-v0": {"ppo": None},
    "LunarLander-v3": {"ppo": 242.1},
    "LunarLanderContinuous-v3": {"ppo": 270.9, "tqc": 278.0},
    "HalfCheetah-v5": {"ppo": 5819.1, "sac": 9535.5},
    **{
        f"MinAtar/{game}-v1": dict.fromkeys(("ppo", "pqn"), GYMNAX_RETURNS.get(game))
        for game in MINATAR
    },
    # One game of agents with replay, which do not come near PQN in the same time.
    "MinAtar/Breakout-v1": {"ppo": 28.0, "pqn": 28.0, "dqn": None, "qrdqn": None},
    "Craftax-Classic-Symbolic-v1": {"ppo": None},
    **{id: {"ppo": None} for id in popgym.FAMILY.limits if id.endswith("Easy-v0")},
}


# ---------------------------------------------------------------- runs


def wanted(env_id: str) -> int:
    """How many seeds an environment's pairs get: fewer where a run takes minutes to hours."""
    takes_long = env_id.startswith("MinAtar/") or env_id in MUJOCO_HORIZONS
    return FEW_SEEDS if takes_long else SEEDS


def settings_of(env_id: str, algorithm: str) -> tuple[str, int]:
    """A digest of all that decides what is learnt, but for the seed and the program, and steps.

    Settings that are the class's defaults are left out: a setting that is new changes no digest.
    """
    kind = algorithms.algorithm(algorithm)
    agent = kind(env_id, seed=0)
    steps, defaults = default_steps(agent), kind.Config()
    values = {name: getattr(agent.config, name) for name in agent.config.names()}
    others = {name: value for name, value in values.items() if value != getattr(defaults, name)}
    text = json.dumps([algorithm, steps, others], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12], steps


def study(
    pairs: Iterable[Pair], seeds: int | None, path: Path, minutes: float, workers: int
) -> None:
    """Make the runs that are missing, and keep what is shown of them.

    Args:
        pairs: environments and algorithms.
        seeds: of each pair; None for those that are wanted.
        path: of the file of all runs, beside the folders of the experiments.
        minutes: no run begins after these.
        workers: processes.
    """
    end = time.monotonic() + 60 * minutes
    runs = {(r["env"], r["algorithm"], r["seed"]): r for r in load(path)}
    for pair in pairs:
        digest, steps = settings_of(*pair)
        runs = {k: r for k, r in runs.items() if k[:2] != pair or r["settings"] == digest}
        number = wanted(pair[0]) if seeds is None else seeds
        left = [seed for seed in range(number) if (*pair, seed) not in runs]
        folder = path.parent / f"{pair[0].replace('/', '-')}-{pair[1]}-{digest}"
        # Where there is no end, workers go on from one seed to the next.
        size = workers if minutes < math.inf else max(len(left), 1)
        for first in range(0, len(left), size):
            if time.monotonic() >= end:
                return
            for run in make_runs(pair, left[first : first + size], steps, folder, workers):
                runs[*pair, run["seed"]] = run | {"settings": digest}
                print(*pair, f"{run['seed']}: {run['mean']:.1f}, {run['seconds']} s", flush=True)
            save(path, runs.values())


def make_runs(pair: Pair, seeds: list[int], steps: int, folder: Path, workers: int) -> list[Run]:
    """Make runs of one pair in a folder, and return what is kept of them; see `run_of`."""
    env_id, algorithm = pair
    results = experiments.run(
        env_id,
        {algorithm: {}},
        seeds=seeds,
        steps=steps,
        evaluations=POINTS,
        eval_episodes=1,
        final_episodes=EPISODES,
        folder=folder,
        workers=workers,
        mix_versions=True,
    )
    return [run_of(pair, run) for run in results.runs(algorithm) if run.seed in seeds]


def run_of(pair: Pair, run: experiments.Run) -> Run:
    """What is kept of a run; its seconds are those of the CPU, for the machine may be shared.

    The curve is that of training, of `POINTS` points. It was timed by the clock: its seconds are
    stretched so that they end with those of the CPU.
    """
    shown = np.linspace(0, len(run.curve.steps) - 1, POINTS).astype(int)
    seconds = run.curve.seconds * (run.done.cpu_seconds / run.done.seconds)
    columns = run.curve.steps, seconds, run.curve.training_return
    points = zip(*(column[shown] for column in columns), strict=True)
    return {
        "env": pair[0],
        "algorithm": pair[1],
        "seed": run.seed,
        "machine": machine.name(),
        "version": run.done.version,
        "steps": run.done.steps,
        "seconds": round(run.done.cpu_seconds, 2),
        "mean": round(run.score, 3),
        "deviation": round(float(run.episodes.std()), 3),
        "curve": [
            [int(n), round(float(s), 2), None if math.isnan(r) else round(float(r), 3)]
            for n, s, r in points
        ],
    }


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
    def of_wanted(self) -> str:
        """How many seeds there are, and of how many, if some are missing."""
        number = wanted(self.env)
        return str(self.seeds) if self.seeds >= number else f"{self.seeds} of {number}"

    @property
    def source(self) -> str:
        """Who published the figure."""
        return GYMNAX if self.env.startswith("MinAtar/") else ZOO

    def reaches(self, goal: float | None) -> str:
        """Whether the mean is not below a goal by more than one standard error."""
        return "" if goal is None else "yes" if self.mean + self.error >= goal else "no"

    def cells(self) -> tuple[str, ...]:
        """What the tables show, under `HEAD`; default is what `rlcpu train` takes."""
        goals = (self.published, self.threshold)
        shown = ["-" if goal is None else f"{goal:g} {self.reaches(goal)}" for goal in goals]
        if self.published is not None:
            shown[0] += f" ({self.source})"
        mean = f"{self.mean:.2f}" if abs(self.mean) < 10 else f"{self.mean:.1f}"
        error = f" +- {rounded(self.error)}" if self.seeds > 1 else ""
        chosen = " (default)" if fitting(self.env) == self.algorithm else ""
        agent, steps = f"{self.algorithm.upper()}{chosen}", f"{self.steps:,}"
        figures = (mean + error, self.of_wanted, *shown, steps, f"{self.seconds:.3g} s")
        return (self.env, agent, *figures)


def rounded(error: float) -> str:
    """Two digits of an error, or all of its whole number."""
    return f"{error:.2g}" if error < 99.5 else f"{error:.0f}"


HEAD = ("environment", "agent", "return", "seeds", "published", "threshold", "steps", "CPU")
NOTE = (
    "Mean over seeds of the mean return of 100 greedy episodes, and its standard error, with the "
    "default settings, at the end of the default steps. rl-zoo: what rl-baselines3-zoo prints of "
    "one trained agent; gymnax: what its README prints of PPO after 10 million steps, in games "
    "without sticky actions that end after 1,000 steps (Freeway 2,500); threshold: Gymnasium's; "
    "yes: the mean is not below it by more than one standard error. Default: what `rlcpu train` "
    "takes. CPU: median seconds of a run, one thread, kernels compiled before, on machines of two "
    "kinds, with two cores that others used too. 4 of 10: the other seeds "
    "were not run yet."
)


def summary(runs: Iterable[Run]) -> list[Line]:
    """A line for each pair that was trained, in the order of `PAIRS`."""
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


def missing(runs: Iterable[Run]) -> list[Pair]:
    """The pairs of which there is no run."""
    groups = grouped(runs)
    pairs = [(env_id, each) for env_id, algorithms in PAIRS.items() for each in algorithms]
    return [pair for pair in pairs if pair not in groups]


def note(runs: Iterable[Run]) -> str:
    """What stands below the table, with the pairs that are not in it."""
    names = [f"{algorithm.upper()} on {env_id}" for env_id, algorithm in missing(runs)]
    return f"{NOTE} Not run yet: {', '.join(names)}." if names else NOTE


def chapter(path: Path = PATH) -> dict[str, Any]:
    """What the report shows: pictures with captions, and the cells of the table."""
    lines, groups = summary(load(path)), grouped(load(path))
    thresholds = {line.env: line.threshold for line in lines}
    drawn = []
    for env_id, threshold in thresholds.items():
        agents = {pair[1]: runs for pair, runs in groups.items() if pair[0] == env_id}
        drawn.append((draw(env_id, agents, threshold), env_id))
    return {
        "pictures": drawn,
        "head": HEAD,
        "cells": [line.cells() for line in lines],
        "note": note(load(path)),
    }


def markdown(path: Path = PATH) -> str:
    """The table of the documentation."""
    right = {"return", "seeds", "steps", "CPU"}
    rule = ["---:" if name in right else "---" for name in HEAD]
    cells = [line.cells() for line in summary(load(path))]
    # A long name may go on in the next line behind its family.
    rows = [HEAD, rule, *((env.replace("/", "/<wbr>"), *rest) for env, *rest in cells)]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", note(load(path))])


# ---------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m asv_benches.study", description=__doc__)
    add = parser.add_argument
    add("pairs", nargs="*", metavar="ENV[:ALGORITHM]", help="what to train (all)")
    add("--seeds", type=int, metavar="N", help=f"0 to N - 1 ({SEEDS}, or {FEW_SEEDS} of long runs)")
    add("--minutes", type=float, default=math.inf, help="begin no run after")
    add("--workers", type=int, default=machine.cores(), metavar="N", help="processes (all cores)")
    add("--results", type=Path, default=PATH, metavar="FILE", help="of the saved runs")
    options = parser.parse_args(arguments)
    try:
        chosen = [pair for text in options.pairs or PAIRS for pair in named(text)]
    except KeyError as error:
        parser.error(f"{error.args[0]!r}: the study has {', '.join(PAIRS)}, and their algorithms")
    study(chosen, options.seeds, options.results, options.minutes, options.workers)


def named(text: str) -> list[tuple[str, str]]:
    """The pairs of "ENV" or "ENV:ALGORITHM"; raises KeyError for what the study has not."""
    env_id, _, algorithm = text.partition(":")
    if algorithm and algorithm not in PAIRS[env_id]:
        raise KeyError(text)
    return [(env_id, each) for each in ([algorithm] if algorithm else PAIRS[env_id])]


if __name__ == "__main__":
    main()
