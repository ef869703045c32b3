"""The reference, class by class: its chapters are lists of names, and each class gets a page."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Chapters whose classes have pages of their own.
CHAPTERS = ("collect", "experiments", "replay", "simulate", "train")
NAME = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
FOLDER = Path(__file__).parent / "reference"


def load(name: str) -> Any:
    """What has a dotted name; None where an extra is missing that it needs."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError:
        return None


def has_page(name: str) -> bool:
    """Whether a name is a class with methods; records and exceptions stay with their functions."""
    kind = load(name)
    return inspect.isclass(kind) and not issubclass(kind, (BaseException, tuple))


def page_of(name: str) -> str:
    """The page of a class, within its chapter; a config is on the page of its agent."""
    return name.rpartition(".")[2].removesuffix("Config").lower()


def classes(chapter: Path) -> dict[str, list[str]]:
    """The classes of each page of a chapter."""
    found: dict[str, list[str]] = {}
    for name in NAME.findall(chapter.read_text("utf-8")) if chapter.stem in CHAPTERS else ():
        if has_page(name):
            found.setdefault(page_of(name), []).append(name)
    return found


def pages(chapter: Path) -> Iterator[tuple[str, str, str]]:
    """Title, path and text of each page of a chapter."""
    if chapter.parent != FOLDER:
        return
    for page, names in classes(chapter).items():
        title = names[0].rpartition(".")[2]
        parts = [f"# {title}", *(directive(name) for name in names)]
        yield title, f"reference/{chapter.stem}/{page}.md", "\n\n".join(parts)


def directive(name: str) -> str:
    """What has mkdocstrings show a class; members of a documented base are shown there alone."""
    kind = load(name)
    documented = [
        load(each)
        for path in FOLDER.glob("*.md")
        for each in NAME.findall(path.read_text("utf-8"))
        if path.stem in CHAPTERS
    ]
    bases = [base for base in kind.__mro__[1:] if base.__module__.startswith("rlcpu.")]
    elsewhere = {
        name for base in bases if base in documented for each in base.__mro__ for name in vars(each)
    }
    here = {name for base in bases for name in vars(base) if not name.startswith("_")} - elsewhere
    shown = f"[{', '.join(sorted(here))}]" if here else "false"
    return f"::: {name}\n    options:\n      inherited_members: {shown}"


def summary(chapter: str) -> str:
    """A chapter with links to the pages of its classes in place of the classes."""

    def line(found: re.Match[str]) -> str:
        name = found[1]
        if not has_page(name):
            return found[0]
        text = (inspect.getdoc(load(name)) or "").partition("\n")[0]
        return f"- [`{name}`][{name}]: {text}"

    return re.sub(r"(?<=\n)(- \[[^\n]*)\n\n(?=- \[)", r"\1\n", NAME.sub(line, chapter))
