"""`make notebooks`: executes the scripts that have changed, and keeps what their cells show.

A notebook remembers a digest of the script that it was made from, so that a test can tell without
executing anything whether it is up to date. What changes from one execution to the next and says
nothing (counts, random ids, times of cells) is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SECONDS = 600  # for one cell: the first use of a kernel compiles it
KEPT = ("image/png", "image/svg+xml", "text/html", "text/plain")


def main() -> None:
    """Renews what is out of date, or everything."""
    parser = argparse.ArgumentParser(prog="make notebooks", description=__doc__)
    parser.add_argument("--all", action="store_true", help="those that have not changed, too")
    everything = parser.parse_args().all
    for script in scripts():
        if everything or read_digest(script) != digest(script):
            print(f"executing {script.name}", flush=True)
            renew(script)


def scripts() -> list[Path]:
    """The sources of the notebooks."""
    return sorted(FOLDER.glob("[0-9]*.py"))


def digest(script: Path) -> str:
    """Of a script's text."""
    return hashlib.sha256(script.read_bytes()).hexdigest()[:16]


def read_digest(script: Path) -> str | None:
    """That of the script which its notebook was made from."""
    import nbformat

    path = script.with_suffix(".ipynb")
    return nbformat.read(path, as_version=4).metadata.get("source") if path.exists() else None


def renew(script: Path) -> None:
    """Execute a script and write its notebook.

    Raises:
        SystemExit: it measures with PyTorch, which is not installed.
    """
    import jupytext
    import nbclient
    import nbformat

    if "import torch" in script.read_text("utf-8") and not importlib.util.find_spec("torch"):
        raise SystemExit(f"{script.name} measures with PyTorch: pip install torch")
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.environ |= {"JUPYTER_PLATFORM_DIRS": "1", "RLCPU_PROGRESS": "0"}
    notebook = jupytext.read(script)
    resources = {"metadata": {"path": str(FOLDER)}}
    client = nbclient.NotebookClient(
        notebook, timeout=SECONDS, resources=resources, record_timing=False
    )
    # Without the kernel's remark at every start that it talks to this process over TCP.
    client.extra_arguments = ["--log-level=ERROR"]
    client.execute()
    normalise(notebook)
    notebook.metadata["source"] = digest(script)
    nbformat.write(notebook, script.with_suffix(".ipynb"))


def normalise(notebook: Any) -> None:
    """Leave out what differs between two executions without saying anything."""
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.id = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = None
            if "data" in output:
                output.data = {k: v for k, v in output.data.items() if k in KEPT}
                if len(output.data) > 1:  # the text beside a picture says "<Figure ...>"
                    output.data.pop("text/plain", None)
        cell.outputs = join(cell.outputs)


def join(outputs: list[Any]) -> list[Any]:
    """What a cell prints comes in pieces of any length: one for each run of them."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


if __name__ == "__main__":
    main()
