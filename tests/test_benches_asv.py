"""asv's benchmarks: what they take, that the cheap ones run, and the list of old commits."""

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
KINDS = ("time_", "timeraw_", "track_", "peakmem_")
# Longer than a test may take: minutes of compilation, training, 400 MB of inputs.
COSTLY = {"Kalman", "Ppo", "Peak", "TridiagonalVariants", "FirstCall", "Import"}


def classes(module: str) -> list[type]:
    """The benchmarks' classes of one file."""
    loaded = importlib.import_module(f"asv_benches.benchmarks.{module}")
    members = inspect.getmembers(loaded, inspect.isclass)
    return [each for _, each in members if each.__module__ == loaded.__name__]


def methods(each: type) -> list[str]:
    """What asv would run of a class."""
    return [name for name in dir(each) if name.startswith(KINDS)]


CLASSES = {f"{module}.{each.__name__}": each for module in MODULES for each in classes(module)}
CHEAP = [
    name
    for name, each in CLASSES.items()
    if each.__name__ not in COSTLY and not name.startswith(("milestones", "cuda"))
]


def first(each: type) -> tuple[Any, ...]:
    """The smallest parameters: lists grow."""
    return tuple(values[0] for values in getattr(each, "params", ()))


def test_configuration_points_at_this_repository():
    content = json.loads((FOLDER / "asv.conf.json").read_text())
    assert content["version"] == 1
    assert (FOLDER / content["repo"]).resolve() == ROOT
    assert (FOLDER / content["benchmark_dir"] / "__init__.py").exists()


def test_benchmarks_keep_the_names_and_parameters_of_the_saved_results():
    saved = json.loads((history.results("") / "benchmarks.json").read_text())
    del saved["version"]
    assert set(saved) == {f"{k}.{name}" for k, each in CLASSES.items() for name in methods(each)}
    for name, content in saved.items():
        each = CLASSES[name.rpartition(".")[0]]
        params = [[repr(value) for value in values] for values in getattr(each, "params", ())]
        assert params == content["params"]
        assert list(getattr(each, "param_names", ())) == content["param_names"]
        assert each.version == content["version"]


@pytest.mark.parametrize("name", CLASSES)
def test_benchmarks_take_the_parameters_they_declare(name):
    each = CLASSES[name]
    assert methods(each)
    assert len(getattr(each, "params", ())) == len(getattr(each, "param_names", ()))
    fixtures = [fixture for fixture in ("setup", "teardown") if hasattr(each, fixture)]
    for method in [*methods(each), *fixtures]:
        inspect.signature(getattr(each, method)).bind(None, *first(each))


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_benchmarks_run(name, monkeypatch):
    for constant in ("BURST_S", "BURSTS_S"):
        monkeypatch.setattr(common, constant, 0.0)
    each = CLASSES[name]
    made = each()
    made.setup(*first(each))
    for method in methods(each):
        getattr(made, method)(*first(each))
    if hasattr(each, "teardown"):
        made.teardown(*first(each))


def test_programs_compile_for_every_job():
    start = CLASSES["start.FirstCall"]()
    for job in start.params[0]:
        for program in (start.timeraw_warm(job), *start.timeraw_cold(job)):
            compile(program, job, "exec")


def test_what_a_commit_lacks_is_not_applicable():
    for path in ("rlcpu.no_such_module.name", "rlcpu.replay.NoSuchBuffer"):
        with pytest.raises(NotImplementedError, match=path.split(".")[-1]):
            common.require(path)


def test_gpu_benchmarks_are_not_applicable_without_a_device(monkeypatch):
    cuda = importlib.import_module("asv_benches.benchmarks.cuda")
    monkeypatch.setattr(cuda, "require", lambda path: lambda: False)
    for each in classes("cuda"):
        with pytest.raises(NotImplementedError, match="no CUDA device"):
            each().setup(*first(each))


def test_a_milestone_that_a_commit_lacks_has_no_figure(monkeypatch):
    milestones = importlib.import_module("asv_benches.benchmarks.milestones")

    def absent(path: str) -> Any:
        raise NotImplementedError(path)

    monkeypatch.setattr(milestones, "require", absent)
    scan = milestones.Scan()
    scan.setup()
    assert math.isnan(scan.track_gae())
    with pytest.raises(NotImplementedError):
        milestones.Tree().setup()


def test_fastest_is_one_call_of_the_fastest_burst(monkeypatch):
    # Bursts of 1 and 8 calls are too short, one of 16 is not; then three of 16, and the time is up.
    lasting = iter([0.0001, 0.008, 0.016, 0.048, 0.032, 0.064])
    monkeypatch.setattr(common, "burst", lambda call, number: next(lasting))
    calls: list[None] = []
    assert common.fastest(lambda: calls.append(None), 0.01, 0.0) == pytest.approx(0.032 / 16)
    assert len(calls) == 1


def test_a_burst_is_as_many_calls(monkeypatch):
    clock = iter([1.0, 3.5])
    monkeypatch.setattr(common.time, "perf_counter", lambda: next(clock))
    calls: list[None] = []
    assert common.burst(lambda: calls.append(None), 5) == 2.5
    assert len(calls) == 5


# ---------------------------------------------------------------- the list of old commits


def test_history_leaves_out_what_this_clone_lacks(monkeypatch):
    assert not history.exists("0" * 40)
    monkeypatch.setattr(history, "COMMITS", ("0" * 40,))
    monkeypatch.setattr(history, "git", lambda *command: [])
    assert history.commits() == []


def test_history_goes_on_where_it_stopped(monkeypatch, capsys):
    done: list[str] = []
    monkeypatch.setattr(history, "commits", lambda: ["a", "b", "c"])
    monkeypatch.setattr(history, "measured", lambda name: {"b", *done})
    monkeypatch.setattr(history, "prune", lambda: None)

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


def test_results_decide_what_was_measured_and_what_is_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "results", lambda name: tmp_path / name)
    (tmp_path / "m").mkdir()
    for commit, name in {"a": "milestones.Tree.track_update", "b": "scan.Gae.time"}.items():
        content = {"commit_hash": commit, "results": {name: [1.0]}}
        (tmp_path / "m" / f"{commit}-env.json").write_text(json.dumps(content))
    assert history.measured("m") == history.measured("*") == {"a"}
    listed = {"milestones.Tree.track_update": {"code": "x"}, "scan.B.time": {}, "version": 2}
    (tmp_path / "benchmarks.json").write_text(json.dumps(listed))
    history.prune()
    kept = json.loads((tmp_path / "benchmarks.json").read_text())
    assert kept == {"milestones.Tree.track_update": {"code": "x"}, "version": 2}
