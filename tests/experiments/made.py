"""Experiments of numbers that a test chooses, in the place of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcpu.experiments.folder import Curve, Done, Experiment, Run, Variant

STEPS = 10_000


def run_of(
    variant: str,
    seed: int,
    score: float,
    *,
    reached: int | None = None,
    version: str = "0.1.0",
    noise: float = 0.0,
) -> Run:
    """A run whose evaluations rise to its score in four of them, at steps of its seed."""
    steps = np.array([2_500, 5_000, 7_500, 10_000]) + 10 * seed
    curve = Curve(steps, steps / 1e4, score * np.arange(1, 5) / 4, np.array([np.nan, 1, 2, 3.0]))
    solved = reached is not None
    stopped = "solved" if solved else "steps"
    done = Done(seed, STEPS, 1.0 + seed, 0.9, stopped, solved, reached, version)
    return Run(variant, seed, curve, score + noise * np.array([-1.0, 0.0, 1.0]), done)


def experiment_of(
    runs: Sequence[Run],
    *,
    env: str = "CartPole-v1",
    folder: str = "made",
    threshold: float | None = 475.0,
    **protocol: Any,
) -> Experiment:
    """An experiment of such runs."""
    protocol = {"steps": STEPS, "target": None, "final_episodes": 3, **protocol}
    variants = {run.variant: Variant("ppo", {}, {}) for run in runs}
    ordered = [run for name in variants for run in runs if run.variant == name]
    manifest = {"env": env, "protocol": protocol, "reward_threshold": threshold}
    return Experiment(Path(folder), env, protocol, variants, ordered, manifest)


def experiment_with(scores: Mapping[str, Sequence[float]], **options: Any) -> Experiment:
    """An experiment with such scores of the seeds 0, 1, ... of each variant."""
    runs = [run_of(name, seed, x) for name, each in scores.items() for seed, x in enumerate(each)]
    return experiment_of(runs, **options)
