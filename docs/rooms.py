"""The drawing of the rooms of the package, made from their imports."""

from __future__ import annotations

import ast
import functools
import graphlib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Sizes of boxes in pixels, and the space between them.
WIDTH, HEIGHT, BETWEEN, ABOVE = 118, 40, 12, 34
#: Files beside the packages that are no room of a reader: what the others show and name.
LEFT_OUT = (
    "_settings",
    "algorithms",
    "backends",
    "forks",
    "palette",
    "policies",
    "terminal",
    "translation",
    "__main__",
)

#: Modules that users of other libraries import by name, above the rooms that they show.
FACES = ("rlcpu.scan.jax", "rlcpu.scan.torch")


class Room(NamedTuple):
    """A folder of the package, or files beside folders."""

    name: str  # such as "envs.engine"
    files: int
    imports: frozenset[str]  # rooms


def module_of(path: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules() -> dict[str, Path]:
    """All files of the package, by the names of their modules."""
    return {module_of(path): path for path in sorted((ROOT / "rlcpu").rglob("*.py"))}


def imports_of(name: str) -> set[str]:
    """Modules of the package that one imports, in functions too, but for those of its types."""
    tree = ast.parse(modules()[name].read_text("utf-8"))
    of_types: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            of_types |= {each for line in node.body for each in ast.walk(line)}
    read: set[str] = set()
    for node in ast.walk(tree):
        if node in of_types:
            continue
        if isinstance(node, ast.Import):
            read |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            read |= {each if each in modules() else node.module for each in whole}
    return (read & modules().keys()) - {name}


def is_face(name: str) -> bool:
    """Whether a module is a package's list of names for users, which lies above its rooms."""
    path = modules()[name]
    if name in FACES:
        return True
    return path.name == "__init__.py" and any(path.parent.glob("*/__init__.py"))


def room_of(name: str) -> str:
    """The room of a module: a package of `rlcpu`, or one of the packages in it."""
    parts = name.split(".")[1:]
    packages = [p for p in (parts[:1], parts[:2]) if (ROOT / "rlcpu" / Path(*p)).is_dir()]
    return ".".join(packages[-1]) if packages else parts[0]


@functools.cache
def rooms() -> dict[str, Room]:
    """All rooms by name, of which nothing points in a circle."""
    files: dict[str, set[str]] = {}
    for name in modules().keys() - {"rlcpu"}:
        if not is_face(name) and room_of(name) not in LEFT_OUT:
            files.setdefault(room_of(name), set()).add(name)
    made = {}
    for room, names in files.items():
        read = set().union(*map(imports_of, names))
        others = {room_of(each) for each in read - {"rlcpu"} if not is_face(each)}
        made[room] = Room(room, len(names), frozenset((others & files.keys()) - {room}))
    return made


def levels() -> list[list[str]]:
    """Rooms by level, from the top: each imports rooms of lower levels alone.

    Raises graphlib.CycleError where rooms import each other in a circle.
    """
    sorter = graphlib.TopologicalSorter({name: room.imports for name, room in rooms().items()})
    sorter.prepare()
    rows: list[list[str]] = []
    while sorter.is_active():
        rows.append(sorted(sorter.get_ready()))
        sorter.done(*rows[-1])
    # Rooms stand above what they import: near the mean of these places.
    place: dict[str, float] = {}
    for row in rows:
        below = {name: [place[each] for each in rooms()[name].imports] for name in row}
        means = {name: sum(x) / len(x) if x else 0.5 for name, x in below.items()}
        row.sort(key=means.__getitem__)
        place |= {name: (k + 0.5) / len(row) for k, name in enumerate(row)}
    return rows[::-1]


def nearest(name: str) -> set[str]:
    """The rooms that one imports, but for those that another one of them imports."""
    read = rooms()[name].imports

    @functools.cache
    def all_below(room: str) -> frozenset[str]:
        others = rooms()[room].imports
        return others.union(*map(all_below, others)) if others else others

    return {each for each in read if not any(each in all_below(other) for other in read)}


def picture() -> str:
    """An SVG of all rooms, with lines from each to those that it stands on."""
    rows = levels()
    width = max(map(len, rows)) * (WIDTH + BETWEEN)
    at = {
        name: (width * (k + 0.5) / len(row), level * (HEIGHT + ABOVE) + HEIGHT / 2 + 1)
        for level, row in enumerate(rows)
        for k, name in enumerate(row)
    }
    lines = [
        f'<line x1="{at[a][0]:.0f}" y1="{at[a][1] + HEIGHT / 2:.0f}" '
        f'x2="{at[b][0]:.0f}" y2="{at[b][1] - HEIGHT / 2:.0f}"/>'
        for a in rooms()
        for b in sorted(nearest(a))
    ]
    boxes = []
    for name, (x, y) in at.items():
        files = rooms()[name].files
        count = f"{files} file{'s' if files > 1 else ''}"
        boxes.append(
            f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" '
            f'height="{HEIGHT}" rx="4"/>'
            f'<text x="{x:.0f}" y="{y - 2:.0f}"><tspan font-weight="600">{name}</tspan>'
            f'<tspan x="{x:.0f}" dy="15" opacity="0.6">{count}</tspan></text>'
        )
    height = len(rows) * (HEIGHT + ABOVE) - ABOVE + 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="The rooms of the package" style="width: 100%; height: auto">'
        f'<g stroke="currentColor" opacity="0.25">{"".join(lines)}</g>'
        '<g fill="var(--md-default-bg-color, white)" stroke="currentColor" font-size="12" '
        f'text-anchor="middle">{"".join(boxes)}</g></svg>'
    ).replace("<text ", '<text fill="currentColor" stroke="none" ')
