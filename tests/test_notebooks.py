"""The notebooks: they run from top to bottom, through nbmake, where a warning is an error."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest

jupytext = pytest.importorskip("jupytext")
SECONDS = 600  # for one cell: the first use of a kernel compiles it
SOURCES = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))
#: Pictures that each notebook shows; those that need an extra are not counted.
PICTURES = {
    "01_quickstart": 2,
    "02_collecting": 4,
    "03_replay": 4,
    "04_scan": 6,
    "05_internals": 2,
}
STRICT = "import warnings\nwarnings.simplefilter('error')\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a kernel that raises at every warning and shows figures in the notebook."""
    folder = tmp_path_factory.mktemp("ipython")
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-strict.py").write_text(STRICT, "utf-8")
    figures = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    return {**os.environ, **figures, "IPYTHONDIR": str(folder), "TQDM_DISABLE": "1"}


@pytest.fixture(scope="module")
def executions(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[dict[str, Future[list[Any]]]]:
    """Outputs of every notebook's cells, by its name: two run at a time, as each compiles alone."""
    folder = tmp_path_factory.mktemp("notebooks")
    with ThreadPoolExecutor(2) as pool:
        yield {source.stem: pool.submit(execute, source, folder, environment) for source in SOURCES}


def execute(source: Path, folder: Path, environment: dict[str, str]) -> list[Any]:
    """Outputs of all code cells."""
    path = folder / f"{source.stem}.ipynb"
    jupytext.write(jupytext.read(source), path)
    options = ["--nbmake", "--overwrite", f"--nbmake-timeout={SECONDS}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    if "EXECUTED_NOTEBOOKS" in os.environ:  # for the documentation, which need not run it again
        shutil.copy(path, os.environ["EXECUTED_NOTEBOOKS"])
    cells = nbformat.read(path, as_version=4).cells
    return [output for cell in cells for output in cell.get("outputs", [])]


@pytest.mark.skipif(not importlib.util.find_spec("nbmake"), reason="needs nbmake")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_notebook_runs(source: Path, executions: dict[str, Future[list[Any]]]) -> None:
    outputs = executions[source.stem].result()
    assert "stderr" not in {output.get("name") for output in outputs}
    shown = [{"image/png", "text/html"} & set(output.get("data", ())) for output in outputs]
    assert sum(map(bool, shown)) >= PICTURES[source.stem]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_notebook_is_made_from_its_source(source: Path) -> None:
    """`make notebooks` was run after the last change, and nothing was left in by an execution."""
    paired = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    wanted = [(cell.cell_type, cell.source) for cell in jupytext.read(source).cells]
    assert [(cell.cell_type, cell.source) for cell in paired.cells] == wanted
    assert [cell for cell in paired.cells if cell.get("outputs")] == []
