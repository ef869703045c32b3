"""The notebooks: they run, where a warning is an error, and show what they did."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupyter_client
import nbclient
import nbformat
import pytest
from jupyter_core.utils import run_sync

jupytext = pytest.importorskip("jupytext")
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "notebooks"))
import renew  # noqa: E402

SOURCES = renew.scripts()
#: Pictures that each notebook shows; those that need an extra are not counted.
PICTURES = {
    "01_quickstart": 2,
    "02_collecting": 4,
    "03_replay": 4,
    "04_scan": 6,
    "05_internals": 2,
    "06_mujoco": 3,
    "07_seeds": 2,
    "08_parts": 2,
    "09_memory": 2,
    "10_history": 1,
}
#: What a test runs in the place of sizes and times of which it looks at no figure.
SMALLER = [
    (r"budget=0\.\d+", "budget=0.001"),
    ("repeats=15", "repeats=1"),
    ("num_steps=40", "num_steps=6"),
    (r"np\.arange\(10\)", "np.arange(5)"),
    ("16384", "256"),
    ("1_000_000", "20_000"),
    ("125_000|50_000", "2_000"),
    (r"shape = \(100_000", "shape = (1000"),
    (r"learn\([134]00_000", "learn(20_000"),
    (r"num_envs=2\*\*16", "num_envs=2**9"),
    (r"seeds=10,", "seeds=2,"),
]
STRICT = "import warnings\nwarnings.simplefilter('error')\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a kernel that raises at every warning and shows figures in the notebook."""
    folder = tmp_path_factory.mktemp("ipython")
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-strict.py").write_text(STRICT, "utf-8")
    figures = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    return {**os.environ, **figures, "IPYTHONDIR": str(folder), "RLCPU_PROGRESS": "0"}


@pytest.fixture(scope="module")
def process() -> Iterator[Any]:
    """The process of a kernel, which the first notebook starts: it imports once what all do."""
    manager = jupyter_client.AsyncKernelManager()
    yield manager
    if manager.has_kernel:
        run_sync(manager.shutdown_kernel)(now=True)


def execute(source: Path, folder: Path, environment: dict[str, str], process: Any) -> list[Any]:
    """Outputs of all code cells, where what is only measured is small and measured once.

    They find no names of another notebook.
    """
    text = source.read_text("utf-8")
    for large, small in SMALLER:
        text = re.sub(large, small, text)
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}"))
    client = nbclient.NotebookClient(notebook, timeout=renew.SECONDS, km=process)
    try:
        client.execute(env=environment)
    finally:
        client.kc.stop_channels()
    return outputs_of(notebook)


def outputs_of(notebook: Any) -> list[Any]:
    """Outputs of all cells of a notebook."""
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def read_outputs(source: Path) -> list[Any]:
    """What the notebook of a script shows."""
    return outputs_of(nbformat.read(source.with_suffix(".ipynb"), as_version=4))


def count_pictures(outputs: list[Any]) -> int:
    """Outputs that are pictures."""
    pictures = {"image/png", "image/svg+xml"}
    return sum(bool(pictures & set(output.get("data", ()))) for output in outputs)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_notebook_runs(
    source: Path, tmp_path: Path, environment: dict[str, str], process: Any
) -> None:
    outputs = execute(source, tmp_path, environment, process)
    assert "stderr" not in {output.get("name") for output in outputs}
    assert count_pictures(outputs) >= PICTURES[source.stem]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_notebook_is_up_to_date(source: Path) -> None:
    """`make notebooks` was run after the last change of the script."""
    assert renew.read_digest(source) == renew.digest(source), "run `make notebooks`"
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    wanted = [(cell.cell_type, cell.source) for cell in jupytext.read(source).cells]
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == wanted
    outputs = outputs_of(notebook)
    assert {output.output_type for output in outputs} <= {
        "display_data",
        "execute_result",
        "stream",
    }
    assert "stderr" not in {output.get("name") for output in outputs}
    assert count_pictures(outputs) >= PICTURES[source.stem]


def test_every_notebook_that_measures_names_its_machine() -> None:
    for source in SOURCES:
        text = "".join(output.get("text", "") for output in read_outputs(source))
        assert "'cpu': '" in text or source.stem == "10_history", source.stem


def test_no_kernel_is_above_its_roof() -> None:
    (source,) = (source for source in SOURCES if source.stem == "05_internals")
    text = "".join(output.get("text", "") for output in read_outputs(source))
    shares = [int(share) for share in re.findall(r"(\d+) % of its roof", text)]
    assert len(shares) == 4
    assert max(shares) <= 100


def test_pictures_of_notebooks_are_small() -> None:
    """They are tracked, so that a code host shows them."""
    outputs = [output for source in SOURCES for output in read_outputs(source)]
    pictures = [output["data"].get("image/png", "") for output in outputs if "data" in output]
    assert max(map(len, pictures)) < 4 / 3 * 100_000  # base64 of 100 kB
    assert sum(source.with_suffix(".ipynb").stat().st_size for source in SOURCES) < 2_000_000


def test_what_says_nothing_is_left_out_of_a_notebook() -> None:
    notebook = jupytext.reads("# %%\n1 + 1\n", fmt="py:percent")
    notebook.metadata["language_info"] = {"version": "3.11.7"}
    (cell,) = notebook.cells
    data = {"image/png": "AA==", "text/plain": "<Figure>", "image/jpeg": "no"}
    output = nbformat.v4.new_output
    cell.outputs = [output("stream", text="a"), output("stream", text="b"), output("display_data")]
    cell.outputs[2].data = data
    cell.execution_count = 7
    renew.normalise(notebook)
    first, second = cell.outputs
    assert (first.text, dict(second.data)) == ("ab", {"image/png": "AA=="})
    assert cell.execution_count is None
    assert "language_info" not in notebook.metadata
    identity = cell.id
    renew.normalise(notebook)
    assert cell.id == identity
