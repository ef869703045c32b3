"""One run of an experiment: an agent learns, is evaluated on the way, and scored at the end."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlcpu
from rlcpu.experiments.environments import open_environments
from rlcpu.experiments.folder import PRUNED, Curve, Done, Run, write_run
from rlcpu.experiments.plan import SEED_LIMIT, Plan
from rlcpu.kernels.compiler.announce import cpu_clock
from rlcpu.train.keeping.history import Evaluation
from rlcpu.train.running.evaluate import evaluate
from rlcpu.train.running.evaluations import Evaluations, check_other_env


class PlannedRun(NamedTuple):
    """A run that is to be made."""

    variant: str
    seed: int
    #: (evaluations,) mean returns, or none: the run ends at an evaluation where the best one so far
    #: is below its number; see `is_hopeless`.
    bars: Sequence[float] = ()

    def __str__(self) -> str:
        return f"{self.variant!r} with seed {self.seed}"


class RunError(RuntimeError):
    """Raised for runs that did not come to their end; all others are in the folder.

    Args:
        failed: a sentence by the variant.
        message: what to say in their place.
    """

    def __init__(self, failed: Mapping[str, str], message: str = "") -> None:
        super().__init__(message or f"{'; '.join(failed.values())}; the other runs are done")


#: Called at every report of a run: the steps so far, and whether there was an update yet.
Report = Callable[[int, bool], None]


def make_run(plan: Plan, job: PlannedRun, folder: Path, report: Report) -> None:
    """Make a run, and write it to the folder of an experiment.

    Raises:
        UnwritableError: it cannot be written.
        Exception: whatever learning raises: of an environment of the user's that may be anything.
    """
    protocol, seed = plan.protocol, job.seed
    with contextlib.ExitStack() as opened:
        env, other = opened.enter_context(plan.env.open()), None
        agent: Any = plan.make_agent(job.variant, seed, env)
        if agent.env is not env:
            opened.callback(agent.env.close)
        if plan.eval_env is not None:
            other = opened.enter_context(open_environments(plan.eval_env))
        evaluations = Evaluations(
            protocol.evaluations,
            num_episodes=protocol.eval_episodes,
            seed=SEED_LIMIT + seed,
            env=other,
        )

        made: list[Evaluation] = []

        def follow(progress: Any) -> bool:
            """Report; return whether to go on."""
            if progress.evaluation is not None:
                made.append(progress.evaluation)
            report(progress.steps, progress.losses.num_gradients > 0)
            return not (job.bars and is_hopeless(made, job.bars, protocol.steps))

        begin = cpu_clock()
        history = agent.learn(
            protocol.steps, target_return=protocol.target, evaluations=evaluations, callback=follow
        )
        cpu_seconds = cpu_clock() - begin - sum(each.cpu_seconds for each in history.evaluations)
        is_whole, curve = history.stopped != "callback", curve_of(history.evaluations)
        episodes = history.evaluations[-1].returns
        if is_whole:
            env_to_play = check_other_env(agent.env, other)
            number, last_seed = protocol.final_episodes, 2 * SEED_LIMIT + seed
            episodes = evaluate(env_to_play, agent.policy, number, seed=last_seed)
        done = Done(
            seed=seed,
            steps=history.steps,
            seconds=round(float(curve.seconds[-1]), 6),
            cpu_seconds=round(cpu_seconds, 6),
            stopped=history.stopped if is_whole else PRUNED,
            solved=history.solved,
            target_steps=history.steps if history.solved else None,
            version=rlcpu.__version__,
        )
        write_run(folder, Run(job.variant, seed, curve, episodes, done), agent)


def parts_of(steps: Any, total_steps: int, number: int) -> Any:
    """Return how many of `number` equal parts of a run are over after so many steps."""
    return np.minimum(np.asarray(steps) * number // total_steps, number)


def is_hopeless(made: Sequence[Evaluation], bars: Sequence[float], total_steps: int) -> bool:
    """Tell whether a run is not worth its other steps.

    Args:
        made: the evaluations so far.
        bars: (evaluations,) the least that the best of them has to be after each part of the run.
        total_steps: of the run.
    """
    part = int(parts_of(made[-1].steps, total_steps, len(bars))) if made else 0
    returns = (each.returns.mean() for each in made)
    best = max((-math.inf if math.isnan(each) else each for each in returns), default=-math.inf)
    return part > 0 and best < bars[part - 1]


def curve_of(made: Sequence[Evaluation]) -> Curve:
    """Return the curve of the evaluations of a run."""
    return Curve(
        np.array([each.steps for each in made], np.int64),
        np.array([each.seconds for each in made]),
        np.array([each.mean_return for each in made]),
        np.array([each.training_return for each in made]),
    )


def describe(error: BaseException) -> str:
    """Return an exception as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
