"""asv's benchmarks: the cheap ones run, and the figure that they give."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches import history  # noqa: E402
from asv_benches.benchmarks import _common as common  # noqa: E402

FOLDER = ROOT / "asv_benches"
MODULES = sorted(path.stem for path in (FOLDER / "benchmarks").glob("[a-z]*.py"))
# Longer than a test may take: minutes of compilation, training, 400 MB of inputs.
COSTLY = {"Kalman", "Ppo", "TridiagonalVariants", "FirstCall", "Import"}


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
    if each.__name__ not in COSTLY and not name.startswith(("milestones", "cuda"))
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
    for path in history.RESULTS.glob("*/*-*.json"):
        assert set(json.loads(path.read_text())["results"]) <= made


def test_what_a_commit_or_a_machine_lacks_is_not_applicable(monkeypatch):
    for path in ("rlcpu.no_such_module.name", "rlcpu.replay.NoSuchBuffer"):
        with pytest.raises(NotImplementedError, match=path.split(".")[-1]):
            common.require(path)
    assert math.isnan(common.milestone(lambda self: common.require("rlcpu.no_name"))(None))
    cuda = importlib.import_module("asv_benches.benchmarks.cuda")
    monkeypatch.setattr(cuda, "require", lambda path: lambda: False)
    for each in classes("cuda"):
        with pytest.raises(NotImplementedError, match="no CUDA device"):
            each().setup(*first(each))


def test_fastest_is_one_call_of_the_fastest_burst(monkeypatch):
    # Bursts of 1 and 8 calls are too short, one of 16 is not; then three of 16, and the time is up.
    lasting = iter([0.0001, 0.008, 0.016, 0.048, 0.032, 0.064])
    monkeypatch.setattr(common, "burst", lambda call, number: next(lasting))
    assert common.fastest(lambda: None, 0.01, 0.0) == pytest.approx(0.032 / 16)


def test_history_goes_on_where_it_stopped(monkeypatch, capsys):
    done: list[str] = []
    monkeypatch.setattr(history, "commits", lambda: ["a", "b", "c"])
    monkeypatch.setattr(history, "measured", lambda name: {"b", *done})

    def asv(*command: str) -> int:
        if command[0] == "run":
            done.append(command[-1][:-2])
        return 0

    monkeypatch.setattr(history, "asv", asv)
    assert history.main(["--machine", "m", "--minutes", "0"]) == 0
    assert done == ["a"]
    assert "1 commits are left" in capsys.readouterr().out
    assert history.main(["--machine", "m"]) == 0
    assert done == ["a", "c"]
