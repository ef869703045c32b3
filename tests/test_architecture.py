"""The page on how the code is laid out: its drawing, and walks that are in the code."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
sys.path.insert(0, str(ROOT / "docs"))

import rooms  # noqa: E402

#: A stop of a walk: a file, and a function or a class of it.
STOP = re.compile(r"^\d+\. `(rlcpu/[\w/]+\.py)`, `([\w.]+)`", re.MULTILINE)
WALKS = {
    part.partition("\n")[0]: STOP.findall(part)
    for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
}


def source_of(path: str, name: str) -> str:
    """The source of what a file defines under a name such as "VectorEnv.step"."""
    source = (ROOT / path).read_text("utf-8")
    scope: list[ast.AST] = [ast.parse(source)]
    for part in name.split("."):
        (node,) = (
            each
            for each in ast.walk(scope[-1])
            if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == part
        )
        scope.append(node)
    return ast.get_source_segment(source, scope[-1]) or ""


def test_there_are_walks() -> None:
    assert len(WALKS) == 4
    assert all(len(stops) >= 4 for stops in WALKS.values())


@pytest.mark.parametrize("walk", WALKS)
def test_each_stop_of_a_walk_is_used_on_the_way(walk: str) -> None:
    """In a file of the stops before, or in its own, which compiles it, or gives it another name."""
    stops = WALKS[walk]
    for k, (path, name) in enumerate(stops):
        assert source_of(path, name), name
        used = name.rpartition(".")[2]
        files = dict.fromkeys(each for each, _ in stops[: k + 1])
        texts = [(ROOT / each).read_text("utf-8") for each in files]
        uses = re.findall(rf"(?<!def )\b{used}\b", " ".join(texts))
        assert uses or not k, f"{name}: nobody uses it"


def test_other_names_of_the_page_are_there() -> None:
    places = re.findall(r"^\| [^|]+ \| `(rlcpu/[\w/]+\.py)`, `([\w.]+)` \|", PAGE, re.MULTILINE)
    assert len(places) >= 5
    assert all(source_of(*place) for place in places)


def test_the_drawing_has_all_rooms_above_what_they_import() -> None:
    levels = {name: k for k, row in enumerate(rooms.levels()) for name in row}
    assert levels.keys() == rooms.rooms().keys()
    for room in rooms.rooms().values():
        assert all(levels[room.name] < levels[each] for each in room.imports)
    drawing = rooms.picture()
    assert all(f">{name}</tspan>" in drawing for name in levels)
