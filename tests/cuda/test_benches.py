"""The GPU table's program: in the simulator at sizes that mean nothing; without a GPU, a hint."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlcpu.cuda import provider

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from asv_benches.peers import cuda, cuda_rows  # noqa: E402


@pytest.mark.skipif(provider.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    cuda.main([])
    out = capsys.readouterr().out
    assert out.startswith("no GPU figures: none usable: no CUDA device")
    assert "pip install 'numba-cuda[cu13]'" in out


def test_names_differ() -> None:
    names = [row.name for row in cuda_rows.rows(cuda_rows.FULL)]
    assert len(set(names)) == len(names)


@pytest.mark.device
def test_every_row_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    cuda.main(["--quick", "--json", str(path)])
    content = json.loads(path.read_text("utf-8"))
    assert content["device"]["bandwidth"] > 0
    assert content["device"]["flops"] > 0
    for row in content["rows"]:
        assert row["seconds"] is not None, row
    assert capsys.readouterr().out.count("\n") == len(content["rows"]) + 2
