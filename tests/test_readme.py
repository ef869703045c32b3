"""The README's code: every Python block runs, every command exists, the figures have their place.

A block whose first line is a comment with a file name (`# balance.py`) is saved under that name in
the folder where all blocks run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlcpu import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The fenced code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def commands(start: str) -> list[str]:
    """The shell lines that begin with `start`, without comments and virtual environment."""
    lines = "".join(blocks("sh")).replace(".venv/bin/", "").splitlines()
    return [line.partition("#")[0].strip() for line in lines if line.startswith(start)]


PYTHON = blocks("python")
NAMES = [re.match(r"# (\w+\.py)\n", block) for block in PYTHON]
SCRIPTS = [name[1] if name else f"block_{i}.py" for i, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All blocks, each as a script of its own."""
    path = tmp_path_factory.mktemp("readme")
    for name, block in zip(SCRIPTS, PYTHON, strict=True):
        (path / name).write_text(block, "utf-8")
    return path


def run(folder: Path, *argv: str) -> str:
    """The output of `python -W error ...`, which must succeed and warn of nothing."""
    command = [sys.executable, "-W", "error", *argv]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_python_block_runs(script: str, folder: Path) -> None:
    assert run(folder, script)


def test_block_for_a_gpu_runs_in_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks("py")
    for number, small in (("1_048_576", "1024"), ("num_envs=1024", "num_envs=8"), ("1000", "10")):
        block = block.replace(number, small)
    (tmp_path / "gpu.py").write_text(block.replace("128", "4"), "utf-8")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    # The simulator's integers warn where they wrap around.
    assert run(tmp_path, "-W", "ignore::RuntimeWarning", "gpu.py")


def test_own_environment_trains_from_the_command_line(folder: Path) -> None:
    argv = ["-m", "rlcpu", "train", "balance:Balance-v0", "--steps", "3e5"]
    assert "\nsolved " in run(folder, *argv)


def test_own_environment_is_about_forty_lines() -> None:
    block = PYTHON[SCRIPTS.index("balance.py")]
    definition = block.partition('if __name__ == "__main__":')[0]
    assert sum(bool(line.strip()) for line in definition.splitlines()) <= 40


@pytest.mark.parametrize("command", commands("make "))
def test_make_target_exists(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("command", commands("rlcpu "))
def test_command_is_understood(command: str) -> None:
    assert callable(cli.build_parser().parse_args(command.split()[1:]).run)


def test_ci_and_readme_run_the_same_tests() -> None:
    assert "python -m pytest -W error" in commands("python -m pytest")
    assert "make test" in commands("make ")
    assert re.search(r"^make test\b", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)


def test_figures_have_their_place() -> None:
    begin, end = README.index("<!-- figures:begin -->"), README.index("<!-- figures:end -->")
    assert begin < end < README.index("## Install")
