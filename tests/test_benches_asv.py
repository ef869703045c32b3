"""asv's benchmarks: the cheap ones run, and the figure that they give."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.benchmarks import _common as common  # noqa: E402
from asv_benches.benchmarks import tables  # noqa: E402

FOLDER = ROOT / "asv_benches"
MODULES = sorted(path.stem for path in (FOLDER / "benchmarks").glob("[a-z]*.py"))
# Longer than a test may take: compilation, training, 400 MB of inputs.
COSTLY = {"Ppo", "FirstCall", "FirstTraining", "Import", "Installation", "Widths"}


def classes(module: str) -> list[type]:
    loaded = importlib.import_module(f"asv_benches.benchmarks.{module}")
    members = inspect.getmembers(loaded, inspect.isclass)
    return [each for _, each in members if each.__module__ == loaded.__name__]


def methods(each: type) -> list[str]:
    """What asv would run of a class."""
    return [name for name in dir(each) if name.startswith(("time_", "timeraw_", "track_"))]


CLASSES = {f"{module}.{each.__name__}": each for module in MODULES for each in classes(module)}
CHEAP = [
    name
    for name, each in CLASSES.items()
    if each.__name__ not in COSTLY and not name.startswith("milestones")
]


def first(each: type) -> tuple[Any, ...]:
    """The smallest parameters: lists grow."""
    return tuple(values[0] for values in getattr(each, "params", ()))


@pytest.mark.parametrize("name", CLASSES)
def test_benchmarks_take_the_parameters_they_declare(name):
    each = CLASSES[name]
    assert methods(each)
    for method in [*methods(each), *(["setup"] if hasattr(each, "setup") else [])]:
        inspect.signature(getattr(each, method)).bind(None, *first(each))


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_benchmarks_run(name, monkeypatch):
    for constant in ("BURST_S", "BURSTS_S"):
        monkeypatch.setattr(common, constant, 0.0)
    made = CLASSES[name]()
    made.setup(*first(CLASSES[name]))
    for method in methods(CLASSES[name]):
        getattr(made, method)(*first(CLASSES[name]))
    getattr(made, "teardown", lambda *_: None)()


def test_saved_results_belong_to_benchmarks():
    made = {f"{name}.{method}" for name, each in CLASSES.items() for method in methods(each)}
    for path in (FOLDER / "results" / "asv").glob("*/*-*.json"):
        assert set(json.loads(path.read_text())["results"]) <= made


def test_what_a_commit_or_a_machine_lacks_is_not_applicable(monkeypatch):
    for path in ("rlcpu.no_such_module.name", "rlcpu.replay.NoSuchBuffer"):
        with pytest.raises(NotImplementedError, match=path.split(".")[-1]):
            common.require(path)
    absent = partial(common.require, "rlcpu.no_name")
    assert math.isnan(common.milestone(absent)(None))
    monkeypatch.setattr(tables.cuda, "missing", lambda: "no CUDA device")
    with pytest.raises(NotImplementedError, match="no CUDA device"):
        tables.Ours().setup("cuda.gae.rlcpu")
    monkeypatch.setitem(tables.CONTENDERS, "gone", partial(importlib.import_module, "rlcpu.gone"))
    with pytest.raises(NotImplementedError, match="gone"):
        tables.Ours().setup("gone")


@pytest.mark.parametrize("function", tables.RETURNS)
def test_returns_without_a_peer_run(function):
    job = tables.returns(function, (4, 3))
    assert common.fastest(job, 0.0, 0.0) > 0.0


def test_the_history_names_commits():
    for line in (FOLDER / "history.txt").read_text("utf-8").splitlines():
        commit, _, why = line.partition(" ")
        assert len(commit) == 7
        assert int(commit, 16) >= 0
        assert why
