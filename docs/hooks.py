"""What is made while the documentation is built, so that nothing of it goes stale.

Each environment gets a page, and each notebook, with the outputs that are tracked. `parts.py`
makes what stands in the place of comments such as `<!-- help -->`. MkDocs calls the functions that
begin with `on_`.
"""

from __future__ import annotations

import base64
import functools
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import made  # noqa: E402
import parts  # noqa: E402
import reference  # noqa: E402

from asv_benches import history  # noqa: E402


@functools.cache
def repository() -> str | None:
    """The address of the sources, from the package's metadata."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"].get("urls", {}).get("Repository")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List environments and classes in the navigation."""
    (chapter,) = (item["Environments"] for item in config.nav if "Environments" in item)
    for family, group in itertools.groupby(parts.entries(), lambda entry: entry.family):
        pages = [{each.id: f"catalogue/{made.slug(each.id)}.md"} for each in group]
        chapter.append({family: pages})
    (chapter,) = (item["Reference"] for item in config.nav if "Reference" in item)
    for item in chapter:
        ((title, path),) = item.items()
        if made_of := references(path):
            item[title] = [path, *({name: page} for name, page, _ in made_of)]
    return config


def on_pre_page(page: Any, config: MkDocsConfig, files: Files) -> Any:
    """Link a page to its source.

    MkDocs does so where it is told of the repository; the theme would then ask GitHub for its stars
    with every page.
    """
    if repository() and page.file.edit_uri:
        page.edit_url = urljoin(f"{repository()}/edit/main/docs/", page.file.edit_uri)
    return page


@functools.cache
def references(path: str) -> tuple[tuple[str, str, str], ...]:
    """Title, path and text of the pages of classes that a chapter of the reference names."""
    return tuple(reference.pages(ROOT / "docs" / path))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every environment and for every notebook, with their pictures."""
    add = functools.partial(add_file, files, config)
    runs, rows, missing = made.study()
    for entry in parts.entries():
        name, groups = made.slug(entry.id), runs.get(entry.id, {})
        text = made.page(entry, groups, rows.get(entry.id, []), missing.get(entry.id, ()))
        add(f"catalogue/{name}.md", text, made.source_of(entry))
        drawn = made.curves(groups, entry.reward_threshold) if groups else {}
        for theme, picture in drawn.items():
            add(f"catalogue/curves/{name}-{theme}.svg", picture)
    for chapter in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for _, path, text in references(f"reference/{chapter.name}"):
            add(path, text)
    add("report.html", report_page())
    add("history.md", history.page(), "asv_benches/history.py")
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        pictures: dict[str, bytes] = {}
        shown = [each for cell in notebook.cells for each in render(cell, path.stem, pictures)]
        shown.insert(0, "---\nhide: [toc]\n---")  # its code is wide
        shown.insert(2, f"[Download this notebook]({path.name}){{ download }}")
        page = re.sub(r"\]\((\d\w+)\.ipynb\)", r"](\1.md)", "\n\n".join(shown))
        add(f"guide/{path.stem}.md", page, f"notebooks/{path.stem}.py")
        add(f"guide/{path.name}", path.read_bytes())
        for name, content in pictures.items():
            add(f"guide/{path.stem}/{name}", content)
    return files


def add_file(
    files: Files, config: MkDocsConfig, path: str, content: str | bytes, source: str = ""
) -> None:
    """Add a file that lies nowhere; its edit link leads to the source that it is made from."""
    file = File.generated(config, path, content=content)
    if source:
        file.edit_uri = f"../{source}"
    files.append(file)


def link(page: str, path: str) -> str:
    """A page whose links between files of the repository lead to pages of the site."""
    top = "../" * path.count("/")
    page = re.sub(r"\]\((?:\.\./)*notebooks/(\w+)\.ipynb\)", rf"]({top}guide/\1.md)", page)
    page = re.sub(
        r"\]\((?:\.\./)*(CONTRIBUTING|CHANGELOG)\.md", lambda m: f"]({top}{m[1].lower()}.md", page
    )
    return re.sub(r"\]\((?:\.\./)*README\.md\)", f"]({top}index.md)", page)


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is made from the program and from the saved results."""
    markdown = parts.MARK.sub(lambda found: parts.text(found[1], found[2]), markdown)
    if references(page.file.src_uri):
        markdown = reference.summary(markdown)
    markdown = re.sub(r"!\[[^]]*\]\(([\w/]+\.svg)\)(?!\{)", mark_plot, markdown)
    return link(markdown, page.file.src_uri)


def mark_plot(found: re.Match[str]) -> str:
    """A picture, marked as one on white paper unless it has colours for dark pages itself."""
    path = ROOT / "docs" / found[1]
    has_both = not path.exists() or "prefers-color-scheme" in path.read_text("utf-8")
    return found[0] if has_both else f"{found[0]}{{ .plot }}"


def report_page() -> str:
    """The report of all saved figures, one file that asks nothing of other servers."""
    from asv_benches import study
    from asv_benches.peers import readme, report

    tables = readme.newest(names=[*readme.TABLES, "paper"])
    return report.page(tables, "all machines", study.chapter(), home="index.html")


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
        yield f"![What the cell above draws]({folder}/{name}){{ .plot }}"
    elif "text/html" in data:
        yield f"<div>\n{data['text/html']}\n</div>"
    elif "text/plain" in data:
        yield f"```text\n{data['text/plain'].rstrip()}\n```"
