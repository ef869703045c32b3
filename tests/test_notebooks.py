"""The notebooks run, cell by cell, in a kernel that turns warnings into errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


def read(path: Path) -> nbformat.NotebookNode:
    """A py:percent source as a notebook; jupytext does the same, but is not needed to test."""
    _, *parts = re.split(r"^# %%(.*)\n", path.read_text("utf-8"), flags=re.MULTILINE)
    cells = []
    for kind, source in zip(parts[::2], parts[1::2], strict=True):
        if kind.strip() == "[markdown]":
            text = re.sub(r"^# ?", "", source.strip(), flags=re.MULTILINE)
            cells.append(nbformat.v4.new_markdown_cell(text))
        else:
            cells.append(nbformat.v4.new_code_cell(source.strip()))
    return nbformat.v4.new_notebook(cells=cells)


def execute(path: Path, folder: Path) -> list[Any]:
    """Outputs of all code cells."""
    notebook = read(path)
    strict = nbformat.v4.new_code_cell("import warnings\nwarnings.simplefilter('error')")
    notebook.cells.insert(0, strict)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_there_is_a_notebook() -> None:
    assert "own_environment" in {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    outputs = execute(path, tmp_path)
    streams = {output["name"] for output in outputs if output["output_type"] == "stream"}
    assert "stderr" not in streams
    if path.stem == "own_environment":  # the last cell evaluates what has been trained
        mean_return = re.sub(r"np\.float64|[()]", "", outputs[-1]["data"]["text/plain"])
        assert float(mean_return) >= 190.0
