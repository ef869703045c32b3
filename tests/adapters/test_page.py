"""The diffs of docs/adapters.md: they are short, and what they lead to runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
DIFFS = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def side(diff: str, left_out: str) -> str:
    """The program before ("+" left out) or after; it learns for ten steps after a hundred."""
    lines = [line[1:] for line in diff.splitlines() if not line.startswith(left_out)]
    return re.sub(r"learn\([\d_]+\)", "learn(110)", "\n".join(lines))


def test_there_is_one_for_each_use() -> None:
    assert len(DIFFS) == 4


@pytest.mark.parametrize("diff", DIFFS, ids=range(len(DIFFS)))
def test_a_diff_is_an_import_and_three_lines(diff: str) -> None:
    added = [line for line in diff.splitlines() if line.startswith("+")]
    named = [line for line in added if re.match(r"\+(from|import|buffer =) ", line)]
    assert len(named) <= 1
    assert len(added) - len(named) <= 3


@pytest.mark.parametrize("diff", DIFFS, ids=range(len(DIFFS)))
def test_what_a_diff_leads_to_runs(diff: str) -> None:
    before, after = side(diff, "+"), side(diff, "-")
    for name in re.findall(r"^from (\w+)", f"{before}\n{after}", re.MULTILINE):
        if not importlib.util.find_spec(name):
            pytest.skip(f"needs {name}")
    compile(before, "before", "exec")
    if "ray" in after:
        compile(after, "after", "exec")  # test_rllib.py trains with these lines, for a minute
    else:
        exec(after, {})
