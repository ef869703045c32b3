"""The GPU table: in the simulator at sizes that mean nothing; without a GPU, what is missing."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

import rlcpu.cuda

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import __main__ as command  # noqa: E402
from asv_benches.peers import cuda, harness, rows  # noqa: E402


@pytest.mark.skipif(rlcpu.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["cuda"])
    assert capsys.readouterr().out.startswith("no GPU figures: none usable: ")


def test_rows_are_named_and_travel_to_their_process() -> None:
    made = cuda.rows()
    assert len({row.name for row in made}) == len(made)
    for row in made:
        assert repr(pickle.loads(pickle.dumps(row))) == repr(row)


#: The first row of each function: the others differ in sizes, dtypes and peers.
ROWS = {row.name.partition("-")[0]: row for row in reversed(cuda.rows(quick=True))}


@pytest.mark.device
@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_rows_are_measured(row: rows.Row) -> None:
    """Here and not in a process of its own: the simulator needs seconds to start."""
    measurement = row.measure(harness.QUICK._replace(rounds=1, burst_s=0.0, starts=1))
    assert isinstance(measurement.ours, float), measurement
    assert measurement.ours > 0


@pytest.mark.device
def test_the_command_saves_the_table(tmp_path: Path) -> None:
    command.main(["cuda", "--quick", "--only", "gae", "--results", str(tmp_path)])
    (path,) = tmp_path.glob("*-cuda.json")
    (row,) = json.loads(path.read_text("utf-8"))["rows"]
    assert row["ours"] > 0
