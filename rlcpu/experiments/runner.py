"""`rlcpu.experiments.run`: variants by seeds, those that are missing in a folder."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import platform
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rlcpu
from rlcpu import terminal
from rlcpu.experiments import folder as folders
from rlcpu.experiments.folder import UnwritableError
from rlcpu.experiments.plan import Facts, Plan, check_seeds, make_plan, refuse_others
from rlcpu.experiments.pool import Pool, can_start
from rlcpu.experiments.results import Results, load
from rlcpu.experiments.single import PlannedRun, RunError, describe, make_run
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.machine.threads import usable_cpus
from rlcpu.train.keeping.checkpoint import versions

#: Seconds without a step after which a line says why.
QUIET = 1.0
#: What says how seeds follow from that of a run; see `plan`.
_SEEDS = {"training": "seed", "evaluations": "2**64 + seed", "final": "2 * 2**64 + seed"}


def run(
    env: Any,
    variants: Mapping[str, Mapping[str, Any]],
    *,
    seeds: int | Sequence[int] = 10,
    steps: int | float | None = None,
    target: float | None = None,
    evaluations: int = 20,
    eval_episodes: int = 20,
    final_episodes: int = 100,
    eval_env: Any = None,
    folder: str | os.PathLike[str],
    workers: int | None = None,
    mix_versions: bool = False,
    **others: Any,
) -> Results:
    """Run variants with several seeds each, and return what the folder has then.

    Runs that the folder has are not made again: the same call goes on where one was interrupted,
    also by a kill, and one with more seeds or variants adds these. A score is of the last policy,
    never of the best one on the way, in episodes that are the same for all variants.

    Args:
        env: an id; "module:id" of a module that registers it; "module:name" of a `Dynamics` or of a
            function that makes an environment of Gymnasium; or one of these objects themselves.
        variants: settings by name: fields of the algorithm's config, and "algo", a name such as
            "dqn" or a class of agents. Without it the variant's name says the algorithm, as "ppo,
            small steps" does, or else it is the one that `rlcpu train` takes. Networks and other
            functions are functions of a module, or "module:name".
        seeds: how many, from 0 on, or which; below 2**64.
        steps: environment steps of each run; None takes the algorithms' default, if it is the same.
        target: mean return that ends a run, see `Agent.learn`. Scores of runs that stopped are
            biased: what counts then is the number of steps. None lets all runs make all steps.
        evaluations: on the way, the last one at the end; see `rlcpu.train.Evaluations`.
        eval_episodes: deterministic episodes of each of them.
        final_episodes: deterministic episodes of the last policy, of which the score is the mean.
        eval_env: environment that episodes are played in, if it is another one. What is given as an
            object of Gymnasium needs it, as playing there would change what is learnt.
        folder: where runs are kept; a new one, or one of the same experiment. See
            `rlcpu.experiments.folder`.
        workers: processes with one thread each; None for one per CPU. 1 runs in this process, as
            what a script or a notebook defines itself has to.
        mix_versions: add runs to those that another version of rlcpu has made.
        **others: none; words of other libraries are answered.

    Returns:
        What all runs of the folder say: a table, comparisons, pictures.

    Raises:
        TypeError, ValueError, ImportError: a bad argument, before anything runs; or the folder has
            other settings, another protocol, code or version.
        BlockingIOError: another process runs an experiment in the folder.
        RunError: runs raised an exception, or their processes died; all others are made.
        UnwritableError, OSError: the folder cannot be written; what is done stays.

    Example:
        results = run("CartPole-v1", {"ppo": {}, "ppo, small steps": {"learning_rate": 1e-4}},
                      seeds=10, steps=100_000, folder="runs/steps")
        print(results.table())
    """
    refuse_others(others, [name for name in inspect.signature(run).parameters if name != "others"])
    numbers = {
        "steps": steps,
        "target": target,
        "evaluations": evaluations,
        "eval_episodes": eval_episodes,
        "final_episodes": final_episodes,
    }
    chosen_seeds = check_seeds(seeds)
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder={folder!r}: expected the path of a folder")
    if workers is not None:
        workers = check_count("workers", workers)
    plan, facts = make_plan(env, variants, eval_env, numbers)
    size = number_of_workers(workers, plan)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with folders.locked(path):
        write_manifest(path, plan, facts)
        done = read_done(path)
        jobs = [
            PlannedRun(variant, seed)
            for seed in chosen_seeds
            for variant in plan.variants
            if (variant, seed) not in done
        ]
        if jobs:
            if not mix_versions:
                check_versions(path, {*done.values()})
            with Maker(plan, path, size, len(jobs)) as maker:
                if failed := maker.make(jobs):
                    raise RunError(failed)
        return load(path)


def number_of_workers(workers: int | None, plan: Plan) -> int:
    """Return how many processes make runs, 1 for this one.

    Raises:
        ValueError: several are wanted, and they could not import what is run.
    """
    here = plan.things_here()
    if workers is None:
        return 1 if here or not can_start() else usable_cpus().number
    if workers > 1 and here:
        raise ValueError(
            f"workers={workers}: other processes cannot import {', '.join(here)}: move it to a "
            "file and name it as module:name, or give workers=1"
        )
    return workers


# ---------------------------------------------------------------- the folder


def write_manifest(
    path: Path, plan: Plan, facts: Facts, search: Mapping[str, Any] | None = None
) -> None:
    """Write the manifest of a new folder, or add variants to that of an older one.

    Args:
        path: of the folder.
        plan: of the experiment.
        facts: of its environment.
        search: what a search says of itself; None for any other experiment.

    Raises:
        ValueError: the folder holds something else, or another experiment.
    """
    described = plan.describe()
    manifest = {
        "format": folders.FORMAT,
        "env": facts.env_id,
        "env_spec": described["env"],
        "eval_env_spec": described["eval_env"],
        "reward_threshold": facts.threshold,
        "protocol": {**described["protocol"], "seeds": _SEEDS},
        "variants": described["variants"],
        "versions": versions(),
        "processor": processor(),
        "code": plan.code(),
        **({} if search is None else {"search": search}),
    }
    if not (path / folders.MANIFEST).exists():
        strangers = sorted({*os.listdir(path)} - {folders.LOCK, folders.RUNS})
        strangers = [name for name in strangers if not name.startswith(folders.MANIFEST)]
        if strangers:
            raise ValueError(
                f"folder={os.fspath(path)!r}: it holds {strangers[0]!r}, expected a new folder, or "
                "that of an experiment"
            )
        folders.write_manifest(path, manifest)
        return
    older = folders.read_manifest(path)
    _check_same(path, older, manifest)
    merged = {
        **older,
        "variants": {**older["variants"], **manifest["variants"]},
        "code": {**older["code"], **manifest["code"]},
    }
    if merged != older:
        folders.write_manifest(path, merged)


def _check_same(path: Path, older: Mapping[str, Any], newer: Mapping[str, Any]) -> None:
    """Raise ValueError where two manifests are of different experiments, with what differs."""

    def refuse(what: str, before: Any, now: Any) -> None:
        raise ValueError(
            f"{os.fspath(path)!r} has an experiment with {what}={before!r}, here it is {now!r}: "
            "name another folder"
        )

    for name in ("env", "env_spec", "eval_env_spec"):
        if older[name] != newer[name]:
            refuse(name, older[name], newer[name])
    if "search" in newer and "search" not in older:
        raise ValueError(
            f"{os.fspath(path)!r} has an experiment that is no search: name another folder"
        )
    for name, value in newer.get("search", {}).items():
        if older["search"].get(name) != value:
            refuse(name, older["search"].get(name), value)
    for name, value in newer["protocol"].items():
        if older["protocol"].get(name) != value:
            refuse(name, older["protocol"].get(name), value)
    for name, variant in newer["variants"].items():
        before = older["variants"].get(name, variant)
        values = {"algo": variant["algo"], **variant["config"]}
        old_values = {"algo": before["algo"], **before["config"]}
        for each in values | old_values:
            if values.get(each) != old_values.get(each):
                was, now = (f"{each}={those.get(each)!r}" for those in (old_values, values))
                raise ValueError(
                    f"{os.fspath(path)!r} has runs of {name!r} with {was}, here it is {now}: name "
                    "the variant otherwise, or another folder"
                )
    for name, digest in newer["code"].items():
        if older["code"].get(name, digest) != digest:
            raise ValueError(
                f"{os.fspath(path)!r} has runs of other code: {name} has changed since then: name "
                "another folder"
            )


def read_done(path: Path) -> dict[tuple[str, int], str]:
    """Return the version of rlcpu that made each run, by variant and seed.

    Damaged runs, as a power failure leaves them, are none: they are made again.
    """
    versions = {}
    for variant in folders.read_manifest(path)["variants"]:
        for seed in folders.done_seeds(path, variant):
            try:
                versions[variant, seed] = folders.read_run(path, variant, seed).done.version
            except (ValueError, FileNotFoundError) as error:
                warnings.warn(f"{error}; the run is made again", stacklevel=3)
    return versions


def check_versions(path: Path, versions: set[str]) -> None:
    """Raise ValueError if other versions than this one made runs of a folder."""
    if others := versions - {rlcpu.__version__}:
        raise ValueError(
            f"{os.fspath(path)!r} has runs of rlcpu {', '.join(sorted(others))}, and this is "
            f"{rlcpu.__version__}: give mix_versions=True to add to them, or name another folder"
        )


def processor() -> str:
    """Return the name of this machine's processor, as the system has it."""
    file = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*:\s*(.+)", file.read_text()) if file.exists() else None
    return match[1].strip() if match else platform.processor() or platform.machine()


# ---------------------------------------------------------------- runs


class Maker:
    """Makes runs, here or in other processes, and shows how far they are where somebody watches.

    A context manager, at whose end its processes have ended.

    Args:
        plan: of the experiment; variants may be added to it between two calls of `make`.
        path: the folder that runs are written to.
        size: processes, 1 for this one.
        number: of all runs that are expected.
        title: of the bar, if not that number.
    """

    def __init__(
        self, plan: Plan, path: Path, size: int, number: int, title: str | None = None
    ) -> None:
        self._plan, self._path, self._size, self._number = plan, path, size, number
        self._title, self._num_before = title or f"{number} runs", 0
        self._opened, self._note = contextlib.ExitStack(), contextlib.ExitStack()
        self._bar: terminal.Bar | None = None
        self._pool: Pool | None = None

    def __enter__(self) -> Maker:
        self._begin = time.perf_counter()
        with contextlib.ExitStack() as opened:
            self._note = opened.enter_context(contextlib.ExitStack())
            if terminal.reader() in ("terminal", "notebook"):
                total = self._number * self._plan.protocol.steps
                self._bar = opened.enter_context(terminal.Bar(self._title, total, "steps"))
                if self._size > 1:  # kernels that this process compiles have a line of their own
                    wait = terminal.noted(lambda: "preparing the first run", QUIET)
                    self._note.enter_context(wait)
            if self._size > 1:
                pool = Pool(self._plan, self._path, self._size, self._show)
                self._pool = opened.enter_context(pool)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def make(self, jobs: Sequence[PlannedRun]) -> dict[str, str]:
        """Make runs; returns what `Pool.make_runs` does.

        Raises:
            UnwritableError: the folder cannot be written.
            ValueError: the plan cannot be followed in another process.
        """
        try:
            if self._pool is not None:
                return self._pool.make_runs(jobs)
            return self._make_here(jobs)
        except UnwritableError as error:
            message = f"{error}; runs that are done stay, and the same call goes on from there"
            raise UnwritableError(message) from error
        finally:
            self.skip(len(jobs))

    def skip(self, number: int) -> None:
        """Count so many runs as done."""
        self._num_before += number

    def _make_here(self, jobs: Sequence[PlannedRun]) -> dict[str, str]:
        """Make runs in this process."""
        failed: dict[str, str] = {}
        for num_made, job in enumerate(jobs):
            if job.variant in failed:
                continue
            try:
                report = functools.partial(self._show_first, num_made)
                make_run(self._plan, job, self._path, report)
            except UnwritableError:
                raise
            except Exception as error:
                failed[job.variant] = f"{job}: {describe(error)}"
        return failed

    def _show_first(self, num_made: int, steps: int, _: bool) -> None:
        """Show the steps of a run after others; a `Report` once the first is given."""
        self._show(steps, num_made)

    def _show(self, steps: int, num_done: int) -> None:
        """Show the steps of runs that are not done yet, and how many of this call are."""
        if steps or num_done:
            self._note.close()
        if self._bar is not None:
            num_done += self._num_before
            done = min(steps + num_done * self._plan.protocol.steps, self._bar.total)
            text = f"{num_done} of {self._number} done"
            self._bar.show(done, time.perf_counter() - self._begin, text)
