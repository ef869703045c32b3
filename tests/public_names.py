"""Public names and signatures: `python -m tests.public_names` writes them to public_names.txt.

A changed name or signature has to be told in the changelog: the file is not written while the part
of CHANGELOG.md about the unreleased version is the one that the file was written with, or does not
name what has changed. Before the first release everything is new, and needs no line.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "public_names.txt"
MODULES = (
    *("", ".envs", ".envs.transforms", ".experiments", ".nn", ".policies", ".replay", ".scan"),
    ".train",
)
SIMPLE = (bool, int, float, str, bytes, tuple, type(None))


def main() -> None:
    """Write the file, if the changelog tells of what has changed.

    Raises:
        SystemExit: it does not.
    """
    before = FILE.read_text("utf-8").splitlines() if FILE.exists() else []
    after, news = list(lines()), unreleased()
    digest = hashlib.sha256(news.encode()).hexdigest()[:16]
    changed = changes(before[1:], after)
    missing = untold(changed, news)
    if is_first():
        changed, missing = [], []
    if before and changed and before[0].endswith(digest):
        raise SystemExit("CHANGELOG.md is what it was: add a line about\n" + "\n".join(changed))
    if before and missing:
        raise SystemExit(f"CHANGELOG.md: nothing unreleased names {', '.join(missing)}")
    first = f"# By `python -m tests.public_names`, with the changelog {digest}"
    FILE.write_text("\n".join([first, *after, ""]), encoding="utf-8")


def is_first() -> bool:
    """Whether the changelog has one version, which is not released."""
    headings = re.findall(r"^## .*", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    return len(headings) == 1 and headings[0].endswith("unreleased")


def unreleased() -> str:
    """The part of the changelog about the newest version."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    return re.split(r"^## ", text, flags=re.MULTILINE)[1]


def changes(before: list[str], after: list[str]) -> list[str]:
    """Lines that went, with "-", and that came, with "+"."""
    return [line for line in difflib.ndiff(before, after) if line[0] in "-+"]


def untold(changed: list[str], news: str) -> list[str]:
    """The changed names, without module, that a text names neither whole nor by their class."""
    words = set(re.findall(r"\w+", news))
    names = {re.split(r"[ (=]", line[2:])[0].partition("rlcpu.")[2] for line in changed}
    parts = {
        name: [part for part in name.split(".") if f".{part}" not in MODULES] for name in names
    }
    return sorted(name for name in names if not words & set(parts[name]))


def lines() -> Iterator[str]:
    """One line for each public name, function, class, method, property and field."""
    for part in MODULES:
        module = importlib.import_module(f"rlcpu{part}")
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if inspect.isclass(value):
                yield f"rlcpu{part}.{name}{signature(value)}"
                yield from members(f"rlcpu{part}.{name}", value)
            elif callable(value):
                yield f"rlcpu{part}.{name}{signature(value)}"
            elif not inspect.ismodule(value):
                yield f"rlcpu{part}.{name} = {type(value).__name__}"


def members(name: str, kind: type) -> Iterator[str]:
    """The lines of a class's public methods, properties and fields that are ours."""
    names = set(dir(kind))
    if dataclasses.is_dataclass(kind):
        names |= {field.name for field in dataclasses.fields(kind)}
    for member in sorted(names):
        owner = next((each for each in kind.__mro__ if member in vars(each)), kind)
        if member.startswith("_") or not owner.__module__.startswith("rlcpu"):
            continue
        value = getattr(kind, member, None)
        is_method = inspect.isfunction(value) or inspect.ismethod(value)
        yield f"{name}.{member}{signature(value) if is_method else ''}"


def signature(value: Any) -> str:
    """Names and defaults of arguments, without types."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return "(...)"
    plain = [
        each.replace(annotation=each.empty, default=shown(each.default)) for each in parameters
    ]
    return str(inspect.Signature(plain))


class Shown(str):
    """A default as it is written."""

    __repr__ = str.__str__


def shown(default: Any) -> Any:
    """A default that is the same on all machines."""
    if default is inspect.Parameter.empty:
        return default
    return Shown(repr(default) if type(default) in SIMPLE else "...")


if __name__ == "__main__":
    main()
