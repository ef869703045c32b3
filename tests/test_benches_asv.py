"""asv's benchmarks: what they take, that the cheap ones run, and the list of old commits."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import math
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches import history  # noqa: E402

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


def methods(each: type) -> list[Any]:
    """What asv would run of a class."""
    return [getattr(each, name) for name in dir(each) if name.startswith(KINDS)]


CLASSES = [(module, each) for module in MODULES for each in classes(module)]
CHEAP = [
    pytest.param(each, id=f"{module}.{each.__name__}")
    for module, each in CLASSES
    if each.__name__ not in COSTLY and module not in ("milestones", "cuda")
]


def test_configuration_points_at_this_repository():
    content = json.loads((FOLDER / "asv.conf.json").read_text())
    assert content["version"] == 1
    assert (FOLDER / content["repo"]).resolve() == ROOT
    assert (FOLDER / content["benchmark_dir"] / "__init__.py").exists()


@pytest.mark.parametrize(("module", "each"), CLASSES)
def test_benchmarks_take_the_parameters_they_declare(module, each):
    assert methods(each)
    assert each.version
    names = ("self", *getattr(each, "param_names", ()))
    assert len(getattr(each, "params", ())) == len(names) - 1
    fixtures = [getattr(each, name, None) for name in ("setup", "teardown")]
    for method in [*methods(each), *filter(None, fixtures)]:
        assert tuple(inspect.signature(method).parameters) == names


def first(each: type) -> tuple[Any, ...]:
    """The smallest parameters: lists grow."""
    return tuple(values[0] for values in getattr(each, "params", ()))


@pytest.mark.parametrize("each", CHEAP)
def test_cheap_benchmarks_run(each, monkeypatch):
    for name in ("BURST_S", "BURSTS_S"):
        monkeypatch.setattr(f"asv_benches.benchmarks._common.{name}", 0.0)
    benchmark = each()
    benchmark.setup(*first(each))
    for method in methods(each):
        getattr(benchmark, method.__name__)(*first(each))
    if hasattr(each, "teardown"):
        benchmark.teardown(*first(each))


def test_programs_compile_for_every_job():
    for each in classes("start"):
        for method, job in itertools.product(methods(each), getattr(each, "params", [[None]])[0]):
            made = method(each(), *([job] if job else []))
            for text in (made,) if isinstance(made, str) else made:
                compile(textwrap.dedent(text), method.__name__, "exec")


def test_what_a_commit_lacks_is_not_applicable():
    common = importlib.import_module("asv_benches.benchmarks._common")
    for path in ("rlcpu.no_such_module.name", "rlcpu.replay.NoSuchBuffer"):
        with pytest.raises(NotImplementedError, match=path.split(".")[-1]):
            common.require(path)


def test_gpu_benchmarks_are_not_applicable_without_a_device(monkeypatch):
    cuda = importlib.import_module("asv_benches.benchmarks.cuda")
    monkeypatch.setattr(cuda, "require", lambda path: lambda: False)
    for each in classes("cuda"):
        with pytest.raises(NotImplementedError, match="no CUDA device"):
            each().setup(*first(each))


def test_history_leaves_out_what_this_clone_lacks(monkeypatch):
    assert not history.exists("0" * 40)
    monkeypatch.setattr(history, "COMMITS", ("0" * 40,))
    monkeypatch.setattr(history, "git", lambda *command: [])
    assert history.commits() == []


def test_history_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    done: list[str] = []
    monkeypatch.setattr(history, "commits", lambda: ["a", "b", "c"])
    monkeypatch.setattr(history, "measured", lambda name: {"b", *done})
    monkeypatch.setattr(history, "prune", lambda: None)
    monkeypatch.setattr(history, "asv", lambda *command: done.append(command[-1][:-2]) or 0)
    monkeypatch.setattr(history, "register", lambda name: None)
    assert history.main(["--machine", "m", "--minutes", "0"]) == 0
    assert done == ["a"]
    assert "1 commits are left" in capsys.readouterr().out
    assert history.main(["--machine", "m"]) == 0
    assert done == ["a", "c"]


def test_measured_commits_are_those_with_milestones(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "results", lambda name: tmp_path / name)
    (tmp_path / "m").mkdir()
    for commit, benchmark in {"a": "milestones.Tree.time_update", "b": "scan.Gae.time"}.items():
        content = {"commit_hash": commit, "results": {benchmark: [1.0]}}
        (tmp_path / "m" / f"{commit}-env.json").write_text(json.dumps(content))
    assert history.measured("m") == history.measured("*") == {"a"}


def test_the_list_of_benchmarks_keeps_those_with_results(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "results", lambda name: tmp_path / name)
    (tmp_path / "m").mkdir()
    content = {"commit_hash": "a", "results": {"milestones.A.time": [1.0]}}
    (tmp_path / "m" / "a-env.json").write_text(json.dumps(content))
    listed = {"milestones.A.time": {"code": "x"}, "scan.B.time": {}, "version": 2}
    (tmp_path / "benchmarks.json").write_text(json.dumps(listed))
    history.prune()
    kept = json.loads((tmp_path / "benchmarks.json").read_text())
    assert kept == {"milestones.A.time": {"code": "x"}, "version": 2}


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


def test_fastest_is_the_shortest_call(monkeypatch):
    common = importlib.import_module("asv_benches.benchmarks._common")
    # The first call is the warm-up; then each call's begin and end, and the end of the time.
    clock = iter([0.0, 0.1, 0.6, 0.7, 0.9, 1.0, 1.4, 99.0])
    monkeypatch.setattr(common.time, "perf_counter", lambda: next(clock))
    calls: list[None] = []
    assert common.fastest(lambda: calls.append(None)) == pytest.approx(0.2)
    assert len(calls) == 4


def test_timed_is_one_call_of_the_fastest_burst(monkeypatch):
    common = importlib.import_module("asv_benches.benchmarks._common")
    # Bursts of 1 and 8 calls are too short, one of 16 is not; then three of 16, and the time is up.
    lasting = iter([0.0001, 0.008, 0.016, 0.048, 0.032, 0.064])
    monkeypatch.setattr(common, "burst", lambda call, number: next(lasting))
    monkeypatch.setattr(common, "BURSTS_S", 0.0)
    calls: list[tuple[str, int]] = []
    track = common.timed(lambda self, size: calls.append((self, size)))
    assert track.unit == "seconds"
    assert track("benchmark", 3) == pytest.approx(0.032 / 16)
    assert calls == [("benchmark", 3)]


def test_a_burst_is_as_many_calls(monkeypatch):
    common = importlib.import_module("asv_benches.benchmarks._common")
    clock = iter([1.0, 3.5])
    monkeypatch.setattr(common.time, "perf_counter", lambda: next(clock))
    calls: list[None] = []
    assert common.burst(lambda: calls.append(None), 5) == 2.5
    assert len(calls) == 5
