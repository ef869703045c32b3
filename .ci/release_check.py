"""Checks that this commit could be released: `make release-check`.

The wheel and the sdist are built and checked, the wheel is installed into an empty environment, and
the first program of the README runs there. With --tests, a part of the tests runs from the sdist.
Nothing is published.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "build" / "dist"


def main() -> None:
    """Check everything, or exit with what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python to install into")
    parser.add_argument("--tests", action="store_true", help="run tests from the sdist, too")
    parser.add_argument("--tag", help="the tag that is to be released, such as v0.1.0")
    args = parser.parse_args()
    version = read_version()
    if args.tag not in (None, f"v{version}"):
        raise SystemExit(f"tag {args.tag}: expected v{version}, the version of rlcpu/__init__.py")
    if args.tag and f"## [{version}] - unreleased" in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        raise SystemExit(f"CHANGELOG.md: {version} is unreleased; give it the date")
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    wheel, sdist = DIST / f"rlcpu-{version}-py3-none-any.whl", DIST / f"rlcpu-{version}.tar.gz"
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = install(args.python, folder / "bare", str(wheel))
        run_first_program(python, folder)
        if args.tests:
            run_tests(args.python, sdist, folder)
    print(f"rlcpu {version} can be released: git tag v{version} && git push origin v{version}")


def read_version() -> str:
    """The version that the package, its metadata and all other files name.

    Raises:
        SystemExit: they differ.
    """
    versions = {
        name: re.search(pattern, (ROOT / name).read_text("utf-8"), re.MULTILINE)
        for name, pattern in (
            ("rlcpu/__init__.py", r'^__version__ = "(.+)"'),
            ("pyproject.toml", r'^version = "(.+)"'),
            ("CITATION.cff", r"^version: (.+)"),
            ("conda/meta.yaml", r'set version = "(.+?)"'),
            ("CHANGELOG.md", r"^## \[(.+?)\]"),
        )
    }
    named = {name: match[1] if match else "none" for name, match in versions.items()}
    if len(set(named.values())) > 1:
        raise SystemExit(f"versions differ: {named}")
    return named["pyproject.toml"]


def install(python: str, folder: Path, *packages: str) -> str:
    """An environment with nothing but these packages and what they need; returns its Python."""
    if python == sys.executable:
        venv.create(folder, with_pip=True)
    else:
        run(python, "-m", "venv", str(folder))
    (inner,) = (path for path in folder.glob("*/python*") if path.stem == "python")
    run(str(inner), "-m", "pip", "install", "--quiet", *packages)
    run(str(inner), "-m", "pip", "check")
    return str(inner)


def run_first_program(python: str, folder: Path) -> None:
    """Run the first Python program of the README, and the command, outside of the sources."""
    readme = (ROOT / "README.md").read_text("utf-8")
    match = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert match, "README.md has no program"
    (folder / "program.py").write_text(match[1], encoding="utf-8")
    run(python, "-W", "error", "program.py", cwd=folder)
    run(python, "-m", "rlcpu", "--version", cwd=folder)
    run(python, "-m", "rlcpu", "check", "CartPole-v1", cwd=folder)


def run_tests(python: str, sdist: Path, folder: Path) -> None:
    """Run tests that need no optional package, from the sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    inner = install(python, folder / "tests", str(source), "pytest", "hypothesis")
    files = (source / ".ci" / "minimal-tests.txt").read_text("utf-8").split()
    run(inner, "-m", "pytest", "-W", "error", "-q", *files, cwd=source)


def run(*command: str, cwd: Path | None = None) -> None:
    """Run a command, and say which.

    Raises:
        SystemExit: it failed.
    """
    print("+", *command, flush=True)
    # Not the sources: what was installed is what runs.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    if status := subprocess.run(command, cwd=cwd, env=environment, check=False).returncode:
        raise SystemExit(f"{command[0]} failed with status {status}")


if __name__ == "__main__":
    main()
