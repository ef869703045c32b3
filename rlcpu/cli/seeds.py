"""`rlcpu train --seeds` and `rlcpu compare`: one agent with several seeds, and what they say."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcpu.cli.arguments import CommandError
from rlcpu.cli.labels import variant_of
from rlcpu.cli.report import EXIT_FAILED, print_line, print_run
from rlcpu.cli.train import (
    Terminated,
    make_agent,
    target_of,
    tensorboard,
    terminating,
    unique,
)
from rlcpu.terminal import rounded, say

if TYPE_CHECKING:
    from rlcpu.experiments import Results

#: Options of one run, and why several have no use for them.
_OF_ONE_RUN = {
    "load": "seeds begin with new agents",
    "video": "which of the agents should be filmed? `rlcpu eval` films one of those that are saved",
    "schedule": "schedules run over the steps of each run",
    "keep_best": "scores are of the last policies, never of the best ones on the way",
    "patience": "what counts is what all seeds reach after the same steps",
    "save_every": "runs that are done stay, and the others are made again",
    "collectors": "each run has a process of its own",
    "shards": "each run has a process of its own",
    "ray": "runs share the CPUs of this machine",
}


class Evaluated(NamedTuple):
    """An evaluation on the way, as `rlcpu.train.TensorBoard` takes a progress."""

    total_steps: int
    values: dict[str, float]  # by name

    def numbers(self) -> dict[str, float]:
        """Return the values."""
        return self.values


def train_seeds(args: argparse.Namespace) -> int:
    """Run an agent with the seeds --seed, --seed + 1, ... and report; returns the exit code."""
    from rlcpu.experiments import RunError, run
    from rlcpu.train.settings.tuned import default_steps

    for name, reason in _OF_ONE_RUN.items():
        if getattr(args, name) is not None:
            raise CommandError(f"--{name.replace('_', '-')} with --seeds: {reason}")
    protocol = {name: getattr(args, name) for name in ("evaluations", "eval_episodes")}
    for name, module in (("seeds", "scipy"), ("tensorboard", "tensorboard")):
        if getattr(args, name) is not None and importlib.util.find_spec(module) is None:
            raise CommandError(f"--{name} with --seeds needs {module}: pip install {module}")
    agent = make_agent(args)
    args.steps = default_steps(agent) if args.steps is None else args.steps
    target, variant = target_of(args, agent), args.name or variant_of(agent)
    print_run(agent, args, target)
    agent.env.close()  # runs make their own
    seeds = range(args.seed or 0, (args.seed or 0) + args.seeds)
    folder = args.save or tempfile.mkdtemp(prefix="rlcpu-seeds-")
    begin = time.monotonic()
    try:
        with terminating(), quiet(args.no_progress):
            results = run(
                agent.env.dynamics if args.param else args.env.text,
                {variant: {"algo": agent.algorithm.lower(), **_settings(args)}},
                seeds=seeds,
                steps=args.steps,
                target=target,
                final_episodes=args.episodes,
                folder=folder,
                workers=args.threads,
                **{name: value for name, value in protocol.items() if value is not None},
            )
    except KeyboardInterrupt as error:
        print(f"rlcpu train: interrupted{_place_of_runs(folder, args.save)}", file=sys.stderr)
        return 143 if isinstance(error, Terminated) else 130
    except (OSError, RunError, ImportError, TypeError, ValueError) as error:
        code = EXIT_FAILED if isinstance(error, OSError | RunError) else 2
        place = "" if args.save else _place_of_runs(folder, None)
        raise CommandError(f"{error}{place}", code) from None
    print_line("trained", f"{len(seeds)} runs in {time.monotonic() - begin:.2f} s")
    print(f"\n{results}\n")
    code = _print_outcome(results, variant, seeds, target)
    failed = _write(results, args)
    if args.save:
        print_line("saved", args.save)
        print_line("next", shlex.join(["rlcpu", "compare", args.save]))
    else:
        shutil.rmtree(folder, ignore_errors=True)
        say("not saved   add --save FOLDER to keep the runs, and to add to them", "yellow")
    return failed or code


def _place_of_runs(folder: str, saved: str | None) -> str:
    """Return how runs that are done can be gone on with, in words.

    A folder that nobody named, `saved` is None then, is removed where no run is done.
    """
    from rlcpu.experiments.folder import DONE

    if any(Path(folder).rglob(DONE)):
        where = "" if saved else f" with --save {shlex.quote(folder)}"
        return f"; runs that are done stay: the same command{where} goes on"
    if saved is None:
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def _print_outcome(results: Results, variant: str, seeds: range, target: float | None) -> int:
    """Print whether the mean over seeds of the last policies is at the target; returns the code."""
    runs = [run for run in results.runs(variant) if run.seed in seeds]
    mean = float(np.mean([run.score for run in runs]))
    if target is None:
        return 0
    reached = f"the target was reached with {sum(run.done.solved for run in runs)} of {len(runs)}"
    if mean >= target:
        say(f"solved      mean return {rounded(mean)} >= {target:g}; {reached} seeds", "green")
        return 0
    say(f"not solved  mean return {rounded(mean)} < {target:g}; {reached} seeds", "yellow")
    return EXIT_FAILED


def _write(results: Results, args: argparse.Namespace) -> int:
    """Write the table, the picture and the logs that are wanted; returns the exit code."""
    from rlcpu.experiments.pictures import write

    code = 0
    for kind, path, make in (
        ("table", args.csv, lambda: results.to_csv(args.csv)),
        ("picture", args.plot, lambda: write(results.plot(), args.plot)),
        ("logs", args.tensorboard, lambda: _log(results, args.tensorboard)),
    ):
        if path is None:
            continue
        try:
            make()
            print_line(kind, str(path))
        except OSError as error:
            reason = error.strerror or error
            say(f"rlcpu train: error: cannot write {path}: {reason}", "red", sys.stderr)
            code = EXIT_FAILED
    return code


def _log(results: Results, folder: str) -> None:
    """Write the evaluations of each run for TensorBoard, into FOLDER/variant/seed."""
    from rlcpu.experiments.folder import folder_name

    for variant in results.variants:
        for run in results.runs(variant):
            with tensorboard(str(Path(folder, folder_name(variant), str(run.seed)))) as callbacks:
                for steps, seconds, mean, training in zip(*run.curve, strict=True):
                    numbers = {
                        "evaluation_return": mean,
                        "training_return": training,
                        "time_learning": seconds,
                    }
                    callbacks[0](Evaluated(int(steps), numbers))


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a variant that the arguments give."""
    options = {"num_envs": args.num_envs, "dtype": args.dtype}
    options = {name: value for name, value in options.items() if value is not None}
    return {**options, **unique(args.set, options)}


@contextlib.contextmanager
def quiet(wanted: bool) -> Iterator[None]:
    """Show no bar in a block, if that is wanted."""
    before = os.environ.get("RLCPU_PROGRESS")
    if wanted:
        os.environ["RLCPU_PROGRESS"] = "0"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ["RLCPU_PROGRESS"]
        elif before is not None:
            os.environ["RLCPU_PROGRESS"] = before


# ---------------------------------------------------------------- rlcpu compare


def compare(args: argparse.Namespace) -> int:
    """Run `rlcpu compare`: print the table of an experiment, or which of two variants is better."""
    from rlcpu.experiments import load

    if args.first is not None and args.second is None:
        raise CommandError(f"expected two variants, got {args.first!r} alone")
    try:
        results = load(args.folder)
        pair = [args.first, args.second] if args.second is not None else list(results.variants)
        if args.first is None:
            print(results.table(args.statistic))
            print(end="\n" * (len(pair) == 2))
        if len(pair) == 2:
            first, second = pair
            print(results.compare(first, second, args.statistic))
    except (ImportError, OSError, ValueError) as error:
        raise CommandError(error) from None
    return 0
