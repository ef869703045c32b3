"""The guide's pages: each notebook is executed, and becomes a page with what its cells printed.

MkDocs calls `on_files`. The notebooks are py:percent sources outside of the folder of the
documentation, so that their pages exist only while it is built.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SECONDS = 600  # for one cell: the first use of a kernel compiles it


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every notebook, and its pictures."""
    for path in sorted(NOTEBOOKS.glob("[0-9]*.py")):
        notebook = jupytext.read(path)
        if config.extra["execute_notebooks"]:
            notebook = find_executed(notebook, path) or execute(notebook)
        pictures: dict[str, bytes] = {}
        parts = [part for cell in notebook.cells for part in render(cell, path.stem, pictures)]
        page = re.sub(r"\]\((\d\w+)\.ipynb\)", r"](\1.md)", "\n\n".join(parts))
        files.append(File.generated(config, f"guide/{path.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"guide/{path.stem}/{name}", content=content))
    return files


def find_executed(notebook: Any, path: Path) -> Any:
    """The notebook as the tests ran it into the folder EXECUTED_NOTEBOOKS; None if they did not."""
    kept = Path(os.environ.get("EXECUTED_NOTEBOOKS", ""), f"{path.stem}.ipynb")
    if "EXECUTED_NOTEBOOKS" not in os.environ or not kept.exists():
        return None
    found = nbformat.read(kept, as_version=4)
    same = [cell.source for cell in found.cells] == [cell.source for cell in notebook.cells]
    return found if same else None


def execute(notebook: Any) -> Any:
    """Run all cells in a kernel that needs no screen."""
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")  # no lines that say what is compiled
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    client = nbclient.NotebookClient(notebook, timeout=SECONDS, resources=resources)
    # Without the kernel's remark at every start that it talks to this process over TCP.
    client.extra_arguments = ["--log-level=ERROR"]
    return client.execute()


def render(cell: Any, folder: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """Markdown of a cell and its outputs; pictures in a folder are added by name."""
    if cell.cell_type == "markdown":
        yield cell.source
        return
    yield f"```python\n{cell.source}\n```"
    outputs = cell.get("outputs", [])
    # What a cell prints may come in several pieces.
    for kind, group in itertools.groupby(outputs, lambda output: output.output_type):
        if kind == "stream":
            yield f"```text\n{''.join(output.text for output in group).rstrip()}\n```"
            continue
        for output in group:
            yield from show(output.get("data", {}), folder, pictures)


def show(data: dict[str, str], folder: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """Markdown of one output that is not printed."""
    if "image/png" in data:
        name = f"{len(pictures)}.png"
        pictures[name] = base64.b64decode(data["image/png"])
        yield f"![What the cell above draws]({folder}/{name})"
    elif "text/html" in data:
        yield f"<div>\n{data['text/html']}\n</div>"
    elif "text/plain" in data:
        yield f"```text\n{data['text/plain'].rstrip()}\n```"
