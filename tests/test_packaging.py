"""The distribution: what the wheel holds, what it declares, and which way the imports point."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rlcpu"
MODULES = sorted(PACKAGE.rglob("*.py"))

#: What each part of the package must not import.
FORBIDDEN = {
    "kernels": ("nn", "envs", "replay", "scan", "train", "cuda", "adapters", "cli"),
    "nn": ("envs", "replay", "scan", "train", "cuda", "adapters", "cli"),
    "envs": ("replay", "scan", "train", "cuda", "adapters", "cli"),
    "replay": ("envs", "scan", "train", "cuda", "adapters", "cli"),
    "scan": ("envs", "replay", "train", "cuda", "adapters", "cli"),
    "train": ("cuda", "adapters", "cli"),
    "cuda": ("train", "adapters", "cli"),
    "adapters": ("cli",),
}


def pip(*arguments: str, cwd: Path) -> None:
    """Run pip without the network."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, beside folders that must not get into a wheel."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(PACKAGE, source / "rlcpu", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("tests", "asv_benches", "notebooks", "rlcpu_extra"):
        (source / folder).mkdir()
        (source / folder / "__init__.py").touch()
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(out), ".", cwd=source)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """The METADATA file of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_wheel_is_pure_python(wheel: Path) -> None:
    assert re.fullmatch(r"rlcpu-[0-9.]+-py3-none-any\.whl", wheel.name)


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    expected = [path.relative_to(ROOT).as_posix() for path in MODULES]
    assert sorted(names) == sorted([*expected, "rlcpu/py.typed"])


def test_metadata(metadata: Message) -> None:
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z-]", line)[0] for line in required}
    assert names == {"gymnasium", "numba", "numpy", "rich", "tbb"}


def test_versions_agree(metadata: Message) -> None:
    import rlcpu

    assert rlcpu.__version__ == metadata["Version"]
    assert f"## [{metadata['Version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_wheel_runs_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip("install", "--no-deps", "--no-index", "--target", str(target), str(wheel), cwd=tmp_path)
    code = f"import sys; sys.path.insert(0, {str(target)!r}); import rlcpu; print(rlcpu.__file__)"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(result.stdout.strip()) == target / "rlcpu" / "__init__.py"


def test_type_checkers_can_follow_an_editable_install(source: Path, tmp_path: Path) -> None:
    """It is the folder of the sources, and no hook that finds modules while Python runs."""
    code = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, cwd=source, capture_output=True, check=True)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        (name,) = (name for name in archive.namelist() if ".dist-info/" not in name)
        assert name.endswith(".pth")
        assert Path(archive.read(name).decode().strip()) == source


def test_setup_cfg_only_says_how_to_pack() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert set(config.sections()) == {"options", "options.packages.find", "options.package_data"}
    assert set(config["options"]) == {"packages", "package_dir"}


def imports(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it; names imported from `rlcpu` count too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0]
    forbidden = tuple(f"rlcpu.{name}" for name in FORBIDDEN.get(part, ()))
    upward = {name for name in imports(path) if name.startswith(forbidden)} if forbidden else set()
    assert not upward


def test_import_loads_nothing_optional() -> None:
    code = (
        "import sys, rlcpu; "
        "print(*{'matplotlib', 'pygame', 'ray', 'stable_baselines3', 'torch', 'rich',"
        " 'numba.cuda.cudadrv.driver'}"
        " & sys.modules.keys())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_training_loads_what_it_needs() -> None:
    """An agent needs no replay, no GPU, no solvers, and no check of environments."""
    code = (
        "import sys, rlcpu.train; "
        "print(*(name for name in sys.modules if name.startswith('rlcpu.')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    unneeded = ("replay", "cuda", "scan.kalman", "scan.tridiagonal", "envs.checks.checker")
    prefixes = tuple(f"rlcpu.{name}" for name in unneeded)
    assert not {name for name in loaded if name.startswith(prefixes)}
    assert len(loaded) <= 110
