"""The folder of an experiment: what lies in it, and how it is written and read.

    FOLDER/manifest.json                      what is run: see `Experiment.manifest`
    FOLDER/runs/<variant>/<seed>/curve.csv    a row an evaluation on the way: see `Curve`
    FOLDER/runs/<variant>/<seed>/episodes.npy returns (final_episodes,) float64 of deterministic
                                              episodes of the last policy, never of the best one
    FOLDER/runs/<variant>/<seed>/policy.npz   what `agent.save` wrote
    FOLDER/runs/<variant>/<seed>/done.json    facts of the run: see `Done`
    FOLDER/trials.log                         of a search: Optuna's journal; see `search`
    FOLDER/settings.json                      of a search: the best settings, for `rlcpu train`
    FOLDER/lock                               held by the process that runs the experiment

`done.json` is the last file of a run, and takes its name when it is whole: a run without it never
happened, and is made again. All files are text, or NumPy's without pickle. A run that a search
ended early has the episodes of its last evaluation, and is in no statistics.

The manifest is JSON:

    {"format": "rlcpu experiment 1",
     "env": "CartPole-v1",                    the environment's id
     "env_spec": {...},                       how it is made
     "eval_env_spec": {...} or null,          that episodes are played in, if it is another
     "reward_threshold": 475.0 or null,       the environment's
     "protocol": {"steps": 100000, "target": null, "evaluations": 20, "eval_episodes": 20,
                  "final_episodes": 100, ...},
     "variants": {name: {"algo": "ppo",       or "module:Class"
                         "settings": {...},   those that were given
                         "config": {...}}},   all, with the defaults
     "versions": {"rlcpu": ..., "numba": ..., "numpy": ..., "gymnasium": ..., "python": ...},
     "processor": "Intel(R) Xeon(R) ...",
     "code": {file: sha256},                  the user's files that decide what is run
     "search": {...}}                         of a search alone: space, seeds, Optuna's version
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import platform
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.train.keeping.files import replacing

FORMAT = "rlcpu experiment 1"
MANIFEST, RUNS, LOCK = "manifest.json", "runs", "lock"
CURVE, EPISODES, POLICY, DONE = "curve.csv", "episodes.npy", "policy.npz", "done.json"
TRIALS, SETTINGS = "trials.log", "settings.json"
#: Why a run stopped that a search ended early.
PRUNED = "pruned"
#: Letters of a variant's name at most: in a folder's name each may take nine.
LONGEST_NAME = 80


class UnwritableError(OSError):
    """Raised where a run cannot be written, for which the environment is not to blame."""


class Curve(NamedTuple):
    """The evaluations of one run on the way, E of them, in the order of their steps."""

    steps: npt.NDArray[np.int64]  # (E,) environment steps, those that it really was
    seconds: npt.NDArray[np.float64]  # (E,) of learning until then; no compiling, no evaluating
    #: (E,) of `eval_episodes` deterministic episodes; NaN where one of them did not end
    mean_return: npt.NDArray[np.float64]
    training_return: npt.NDArray[np.float64]  # (E,) of the last 100 in training; NaN before the 1st


class Done(NamedTuple):
    """Facts of a run that came to its end."""

    seed: int
    steps: int  # environment steps that were learnt from: whole rollouts
    seconds: float  # of learning; compiling and evaluating are left out
    cpu_seconds: float  # the same of the processor
    stopped: str  # "steps" or "solved", as in `History.stopped`, or `PRUNED`
    solved: bool  # whether learning ended because the target was reached
    target_steps: int | None  # steps at which it was; None for never, or without a target
    version: str  # of rlcpu


class Run(NamedTuple):
    """One run of a variant with one seed."""

    variant: str
    seed: int
    curve: Curve
    episodes: npt.NDArray[np.float64]  # (final_episodes,) returns of the last policy
    done: Done

    @property
    def score(self) -> float:
        """Return the mean return of the last policy."""
        return float(self.episodes.mean())


class Variant(NamedTuple):
    """One of the things that an experiment compares."""

    algo: str  # as the manifest has it: "ppo", or "module:Class"
    settings: dict[str, Any]  # that were given; JSON's values, so that a tuple is a list
    config: dict[str, Any]  # all settings, with the defaults


class Experiment(NamedTuple):
    """An experiment as its folder has it."""

    folder: Path
    env: str  # the environment's id
    protocol: dict[str, Any]  # "steps", "target", "evaluations", "eval_episodes", ...
    variants: dict[str, Variant]  # by their names, in the order in which they were added
    runs: list[Run]  # that are done, by variant in that order, and by seed
    manifest: dict[str, Any]

    @property
    def reward_threshold(self) -> float | None:
        """Return the mean return from which the environment counts as solved, or None."""
        threshold: float | None = self.manifest["reward_threshold"]
        return threshold

    @property
    def versions(self) -> list[str]:
        """Return the versions of rlcpu that made the runs, sorted: more than one is to be said."""
        return sorted({run.done.version for run in self.runs})


# ---------------------------------------------------------------- names


def folder_name(variant: str) -> str:
    """Return the name of a variant's folder, from which `variant_name` returns the variant's.

    Letters, digits and "-_~" stay, all else is written as in addresses: no name leads out of the
    folder, and every system takes it.

    Example:
        >>> folder_name("ppo, small steps")
        'ppo%2C%20small%20steps'
    """
    return urllib.parse.quote(variant, safe="").replace(".", "%2E")


def variant_name(folder: str) -> str:
    """Return the variant whose folder has a name: what `folder_name` was given."""
    return urllib.parse.unquote(folder)


def run_folder(folder: Path, variant: str, seed: int) -> Path:
    """Return the folder of one run."""
    return folder / RUNS / folder_name(variant) / str(seed)


# ---------------------------------------------------------------- read


def read(folder: str | os.PathLike[str]) -> Experiment:
    """Return the experiment of a folder, with the runs that are done.

    Raises:
        FileNotFoundError: there is none.
        ValueError: something there is damaged, or of another format.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    variants = {name: Variant(**each) for name, each in manifest["variants"].items()}
    runs = [
        read_run(path, name, seed) for name in variants for seed in sorted(done_seeds(path, name))
    ]
    return Experiment(path, manifest["env"], manifest["protocol"], variants, runs, manifest)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an experiment; see `read`."""
    path = folder / MANIFEST
    try:
        with _damage_named(path):
            manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
            if manifest["format"] != FORMAT:
                raise ValueError(f"its format is {manifest['format']!r}, expected {FORMAT!r}")
            for name in ("env", "protocol", "variants", "versions", "reward_threshold"):
                manifest[name]  # raises where it is missing
            return manifest
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"there is no experiment in {os.fspath(folder)!r}: it has no {MANIFEST}"
        ) from None


def done_seeds(folder: Path, variant: str) -> set[int]:
    """Return the seeds with which a variant has been run to the end."""
    try:
        names = os.listdir(folder / RUNS / folder_name(variant))
    except FileNotFoundError:
        return set()
    seeds = {int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name)}
    return {seed for seed in seeds if (run_folder(folder, variant, seed) / DONE).is_file()}


def read_run(folder: Path, variant: str, seed: int) -> Run:
    """Return one run that is done; ValueError where one of its files is damaged or missing."""
    path = run_folder(folder, variant, seed)
    with _damage_named(path):
        facts = json.loads((path / DONE).read_text("utf-8"))
        episodes = np.load(path / EPISODES, allow_pickle=False)
        curve = _read_curve(path / CURVE)
        done = Done(**{name: facts[name] for name in Done._fields})
        if done.seed != seed or episodes.ndim != 1 or episodes.dtype != np.float64:
            raise ValueError("its files belong to another run")
        return Run(variant, seed, curve, episodes, done)


def _read_curve(path: Path) -> Curve:
    """Return the curve of a table of `_write_curve`."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in Curve._fields}
    steps = np.array(columns.pop("steps"), np.int64)
    return Curve(steps, **{name: np.array(cells, float) for name, cells in columns.items()})


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Raise ValueError with the path for what is wrong with a file that a block reads."""
    try:
        yield
    except (KeyError, TypeError, ValueError, EOFError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: damaged, or no part of an experiment: {reason}") from error


# ---------------------------------------------------------------- write


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, in the place of an older one; OSError where it cannot be written."""
    _write_json(folder / MANIFEST, manifest, is_durable=True)


def write_run(folder: Path, run: Run, agent: Any) -> None:
    """Write a run and its agent; it counts from the moment at which its last file has its name.

    Only the agent waits for the disk: that takes 15 ms, a run may take 500. A run that a power
    failure has damaged is made again.

    Raises:
        UnwritableError: the files cannot be written. The run does not count then.
    """
    path = run_folder(folder, run.variant, run.seed)
    try:
        path.mkdir(parents=True, exist_ok=True)
        _write_curve(path / CURVE, run.curve)
        with replacing(path / EPISODES, is_durable=False) as file:
            np.lib.format.write_array(file, run.episodes, allow_pickle=False)
        agent.save(path / POLICY)
        _write_json(path / DONE, run.done._asdict(), is_durable=False)
    except OSError as error:
        raise UnwritableError(f"{path}: {error.strerror or error}") from error


def _write_curve(path: Path, curve: Curve) -> None:
    """Write a curve as a table."""
    with replacing(path, is_durable=False) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        table = csv.writer(text)
        table.writerow(Curve._fields)
        table.writerows(zip(*(column.tolist() for column in curve), strict=True))
        text.detach()  # or it would close the file


def _write_json(path: Path, value: Any, is_durable: bool) -> None:
    """Write what JSON takes; floats that are not finite are written as Python reads them."""
    with replacing(path, is_durable) as file:
        file.write(json.dumps(value, indent=1).encode())


# ---------------------------------------------------------------- one process at a time


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder in a block, which one process does at a time.

    The system takes the lock back when a process ends, however it does. Where a file system has no
    locks the block runs without.

    Raises:
        BlockingIOError: another process, or another call in this one, holds it.
        OSError: the file cannot be made.
    """
    path = folder / LOCK
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="utf-8") as file:
        try:
            _lock(file.fileno())
        except BlockingIOError:
            raise BlockingIOError(
                f"{os.fspath(folder)!r}: an experiment runs there already ({file.read().strip()}): "
                "wait for its end, or name another folder"
            ) from None
        file.truncate()
        file.write(f"process {os.getpid()} of {platform.node()}")
        file.flush()
        yield


def _lock(file: int) -> None:
    """Take the lock of an open file; BlockingIOError where somebody else has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        _lock_on_windows(file)
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # this file system has none
        pass


def _lock_on_windows(file: int) -> None:
    """Take the lock there, on a byte behind all that is read."""
    import msvcrt

    windows: Any = msvcrt
    os.lseek(file, 2**20, os.SEEK_SET)
    try:
        windows.locking(file, windows.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(str(error)) from None
    finally:
        os.lseek(file, 0, os.SEEK_SET)
