"""README and pages of the documentation: what they show runs, from top to bottom.

A block whose first line is a comment with a file name (`# balance.py`) is saved under that name. A
block that imports what is not installed here is skipped, as are the commands that install.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import rlcpu
from rlcpu import algorithms
from tests.scripts import run

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import parts  # noqa: E402

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *(page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "reference")]
#: What a test runs in the place of long learning: a page's own numbers say what readers get.
SMALLER = [
    (r"learn\([\d_]{7,}", "learn(20_000"),
    (r"UPDATES = 64, 64, 15", "UPDATES = 64, 64, 3"),
    (r"seeds=10,", "seeds=2,"),
    (r"steps=50_000", "steps=2_048"),
    (r"--seeds 10\b", "--seeds 2"),
    (r"--steps 50000\b", "--steps 8192"),
    (r"trials=[26]0", "trials=2"),
    (r"--trials 60\b", "--trials 2"),
]
#: Mean return at which the commands of a page count as solved: more than chance reaches.
TARGET = "50"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Language and text of the fenced code blocks, in order."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return [(language, text) for language, text in found if language in languages]


def run_block(folder: Path, number: int, text: str) -> None:
    """Save a block as a script; run it if all that it imports is there."""
    name = re.match(r"# (\w+\.py)\n", text)
    path = folder / (name[1] if name else f"block_{number}.py")
    for large, small in SMALLER:
        text = re.sub(large, small, text)
    path.write_text(text, "utf-8")
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    known = {script.stem for script in folder.glob("*.py")}
    if not any(name not in known and not importlib.util.find_spec(name) for name in imported):
        run(folder, path.name)


def run_commands(folder: Path, text: str) -> None:
    """The lines that begin with rlcpu or python."""
    for large, small in SMALLER:
        text = re.sub(large, small, text)
    for line in text.splitlines():
        program, *words = shlex.split(line, comments=True) or [""]
        if words[:1] in (["train"], ["eval"]):
            words += ["--target", TARGET]
        if program == "rlcpu":
            # What a doctor says of an agent that has hardly learnt is no failure of the page.
            run(folder, "-m", "rlcpu", *words, codes=(0, 1) if words[:1] == ["doctor"] else (0,))
        elif program == "python":
            run(folder, *words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    for number, (language, text) in enumerate(blocks(page, "python", "sh")):
        if language == "sh":
            run_commands(tmp_path, text)
        else:
            run_block(tmp_path, number, text)


def test_block_for_a_gpu_runs_in_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((_, block),) = blocks(ROOT / "docs" / "gpu.md", "py")
    for number, small in (("1_048_576", "1024"), ("num_envs=1024", "num_envs=8"), ("1000", "10")):
        block = block.replace(number, small)
    (tmp_path / "gpu.py").write_text(block.replace("128", "4"), "utf-8")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    # The simulator's integers warn where they wrap around.
    command = [sys.executable, "-W", "error", "-W", "ignore::RuntimeWarning", "gpu.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_own_environment_is_about_forty_lines() -> None:
    block = next(text for _, text in blocks(README, "python") if "# balance.py" in text)
    definition = block.partition('if __name__ == "__main__":')[0]
    assert sum(bool(line.strip()) for line in definition.splitlines()) <= 40


def test_what_is_shown_of_make_and_pip_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    text = "".join(page.read_text("utf-8") for page in PAGES)
    targets = set(re.findall(r"`make (\w+)", text))
    assert {"train", "test", "docs", "report"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    shown = ",".join(re.findall(r'"\.\[([\w,]+)\]"', text)).split(",")
    assert {"plot", "render", "cuda"} <= set(shown) <= set(extras)


def test_nothing_asks_an_index_for_this_package() -> None:
    """It is on none."""
    folders = ("rlcpu/**/*.py", "docs/**/*.md", "notebooks/*.py", "tests/**/*.py", "README.md")
    texts = {path: path.read_text("utf-8") for folder in folders for path in ROOT.glob(folder)}
    asked = re.compile(r"pip install\s+\\?['\"]?rlcpu")
    assert [path for path, text in texts.items() if asked.search(text)] == []


def test_ci_runs_the_tests_as_the_readme_says() -> None:
    assert "`make test`" in README.read_text("utf-8")
    assert re.search(r"^make test\b", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)


def test_links_lead_to_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text("utf-8")):
            is_made = target.endswith((".html", "history.md"))  # while the site is built
            assert is_made or (page.parent / target).exists(), f"{page.name}: {target}"


def test_figures_are_those_of_the_results() -> None:
    """`python -m asv_benches.peers readme` was run after the last measurement."""
    sys.path.insert(0, str(ROOT))
    from asv_benches.peers import readme

    tables = readme.newest()
    assert readme.block(tables) in README.read_text("utf-8")
    assert 10 <= len(readme.chosen(tables)) <= len(readme.FIGURES)
    for chart in readme.CHARTS:
        picture = (readme.PICTURES / chart["file"]).read_text("utf-8")
        values = re.findall(r"[\d.]+ [kMG]?/s|[\d.]+ m?s<", readme.draw(chart, tables))
        assert values
        assert [value for value in values if value not in picture] == []


def test_one_way_to_draw_in_a_reset_is_taught() -> None:
    """The other one, `reset(uniforms, params)`, is named once."""
    pages = [*PAGES, ROOT / "notebooks" / "01_quickstart.py"]
    text = {page: page.read_text("utf-8") for page in pages}
    assert [page.name for page in pages for _ in re.findall(r"reset\(uniforms", text[page])] == [
        "environments.md"
    ]
    assert "def reset(rng, params)" in text[README]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_facts_are_those_of_the_results(page: Path) -> None:
    """`python docs/parts.py` was run after the last measurement."""
    text = page.read_text("utf-8")
    assert parts.MARK.sub(parts.with_fact, text) == text


def test_a_clone_says_where_the_tables_are() -> None:
    """What the site puts into a page has a name that is known, and words in its place."""
    for page in PAGES:
        text = page.read_text("utf-8")
        opened = re.findall(r"<!-- (?!end -->|figures:)", text)
        found = parts.MARK.findall(text)
        assert len(found) == len(opened), page.name
        for name, _, shown in found:
            assert name in parts.PARTS, f"{page.name}: {name}"
            assert name == "fact" or re.search(r"`[^`]+`|\]\(", shown), f"{page.name}: {name}"
    assert {"first run", "study"} <= {argument for _, argument, _ in facts()}


def facts() -> list[tuple[str, str, str]]:
    """Name, argument and text of the facts of all pages."""
    found = [each for page in PAGES for each in parts.MARK.findall(page.read_text("utf-8"))]
    return [each for each in found if each[0] == "fact"]


def test_how_long_a_first_run_takes_is_said_by_one_fact() -> None:
    """No page says seconds or minutes of compiling in its own words."""
    asked = re.compile(r"half a minute|compiles? for (?:a few|some) seconds|a minute at first")
    folders = ("docs/*.md", "docs/*/*.md", "rlcpu/cli/*.py", "README.md")
    texts = {path: path.read_text("utf-8") for folder in folders for path in ROOT.glob(folder)}
    texts.pop(DOCS / "gpu.md")  # CUDA's compiler
    assert [path.name for path, text in texts.items() if asked.search(text)] == []
    assert "fact: first run" in README.read_text("utf-8")


def test_settings_are_not_said_to_be_tuned() -> None:
    """Most settings have no search or run behind them: the table of runs says what was measured."""
    asked = re.compile(r"\btuned settings|settings (?:\w+ )?tuned|over ten seeds", re.IGNORECASE)
    assert [page.name for page in PAGES if asked.search(page.read_text("utf-8"))] == []


def test_all_algorithms_are_named() -> None:
    """In the first paragraph of the README, the page on the scope, and by `help(rlcpu.train)`."""
    listed = README.read_text("utf-8").partition("<picture>")[0], rlcpu.train.__doc__ or ""
    names = [name for name, row in algorithms.TABLE.items() if row.takes_steps]
    for text in (*listed, (DOCS / "install.md").read_text("utf-8")):
        assert [name for name in names if name not in text.replace("QR-DQN", "QRDQN")] == []


def test_commands_can_be_pasted() -> None:
    """No command has a placeholder in angle brackets, which a shell takes for a file."""
    shown = [(page.name, text) for page in PAGES for _, text in blocks(page, "sh", "console")]
    assert [name for name, text in shown if re.search(r"<\w[\w ]*>", text)] == []
