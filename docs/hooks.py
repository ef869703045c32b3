"""What is made while the documentation is built, so that nothing of it goes stale.

The front page is the README. Each notebook becomes a page, with the outputs that are tracked. The
page on the command line gets what `--help` prints, those on performance and on training the figures
of the saved results. MkDocs calls `on_files` and `on_page_markdown`.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the front page, and a page for every notebook with its pictures."""
    readme = re.sub(r"(?<=\]\()docs/", "", (ROOT / "README.md").read_text("utf-8"))
    files.append(File.generated(config, "index.md", content=link(readme)))
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        pictures: dict[str, bytes] = {}
        parts = [part for cell in notebook.cells for part in render(cell, path.stem, pictures)]
        page = re.sub(r"\]\((\d\w+)\.ipynb\)", r"](\1.md)", "\n\n".join(parts))
        files.append(File.generated(config, f"guide/{path.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"guide/{path.stem}/{name}", content=content))
    return files


def link(page: str) -> str:
    """A page whose links between files of the repository lead to pages of the site."""
    page = re.sub(r"\]\((?:\.\./)?notebooks/(\w+)\.ipynb\)", r"](guide/\1.md)", page)
    page = re.sub(r"\]\((CONTRIBUTING|CHANGELOG)\.md\)", lambda m: m[0].lower(), page)
    return page.replace("](../README.md)", "](index.md)").replace("]()", "](index.md)")


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is made from the program and from the saved results."""
    if "<!-- help -->" in markdown:
        markdown = markdown.replace("<!-- help -->", command_line())
    if "<!-- every figure -->" in markdown:
        sys.path.insert(0, str(ROOT))
        from asv_benches.peers import readme

        markdown = markdown.replace("<!-- every figure -->", readme.every(readme.newest()))
    if "<!-- study -->" in markdown:
        sys.path.insert(0, str(ROOT))
        from asv_benches import study

        markdown = markdown.replace("<!-- study -->", study.markdown())
    return link(markdown)


def command_line() -> str:
    """What `--help` prints, command by command."""
    from rlcpu.cli import build_parser

    os.environ |= {"COLUMNS": "90", "NO_COLOR": "1"}
    parser = build_parser()
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    parts = [f"```text\n{parser.format_help()}```"]
    for name, command in commands.items():
        parts.append(f"### rlcpu {name}\n\n```text\n{command.format_help()}```")
    return "\n\n".join(parts)


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
    if "image/png" in data or "image/svg+xml" in data:
        png = "image/png" in data
        name = f"{len(pictures)}.{'png' if png else 'svg'}"
        pictures[name] = (
            base64.b64decode(data["image/png"]) if png else data["image/svg+xml"].encode()
        )
        yield f"![What the cell above draws]({folder}/{name})"
    elif "text/html" in data:
        yield f"<div>\n{data['text/html']}\n</div>"
    elif "text/plain" in data:
        yield f"```text\n{data['text/plain'].rstrip()}\n```"
