"""The distribution: what the wheel holds, what it declares, and which way the imports point."""

from __future__ import annotations

import ast
import configparser
import functools
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
sys.path.insert(0, str(ROOT / "docs"))

import rooms  # noqa: E402

PACKAGE = ROOT / "rlcpu"
MODULES = sorted(PACKAGE.rglob("*.py"))

#: What each part of the package may import, and what lies deeper: from the bottom to the top.
MAY_IMPORT = {
    "_settings": (),
    "forks": (),
    "terminal": ("forks",),
    "palette": (),
    "algorithms": (),
    "translation": (),
    "backends": (),
    "kernels": ("forks", "terminal"),
    "nn": ("kernels",),
    "replay": ("backends", "kernels"),
    "scan": ("backends", "kernels"),
    "envs": ("translation", "backends", "kernels", "nn"),
    "policies": ("envs",),
    "distributed": ("kernels", "envs", "replay"),
    "train": (
        *("terminal", "palette", "translation", "algorithms", "kernels", "nn", "replay", "scan"),
        "envs",
        "distributed",
    ),
    "experiments": ("terminal", "palette", "translation", "kernels", "envs", "train"),
    "cuda": ("backends", "kernels", "nn", "replay", "scan", "envs"),
    "adapters": ("kernels", "nn", "replay", "envs"),
    "catalogue": ("algorithms", "envs", "train"),
    "cli": (
        *("terminal", "palette", "translation", "kernels", "envs", "distributed", "train"),
        *("experiments", "cuda", "algorithms", "catalogue"),
    ),
    "__main__": ("cli",),
}
#: Rooms of `envs` that the others know by ids and classes alone, and what in `envs` imports them.
ROOMS = {
    "tasks": ("tasks", "registration", "mujoco"),
    "mujoco": ("mujoco", "tasks", "registration"),
    "gymnasium": ("gymnasium", "registration", "__init__"),
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


NAMES = rooms.modules()


@functools.cache
def tree_of(name: str) -> ast.Module:
    """The syntax of a module."""
    return ast.parse(NAMES[name].read_text("utf-8"))


@functools.cache
def imports(name: str) -> frozenset[str]:
    """Modules of the package that one imports, in functions too, but for those of its types."""
    return frozenset(rooms.imports_of(name))


def test_every_part_has_its_place() -> None:
    """In an order in which each imports earlier ones alone."""
    assert {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES} == {
        *MAY_IMPORT,
        "__init__",
    }
    earlier: set[str] = set()
    for part, others in MAY_IMPORT.items():
        assert set(others) <= earlier, part
        earlier.add(part)


def test_imports_point_down() -> None:
    for name in NAMES.keys() - {"rlcpu"}:
        part = name.split(".")[1]
        others = {each.split(".")[1] for each in imports(name) - {"rlcpu"}}
        assert others <= {part, *MAY_IMPORT[part]}, name


def test_nothing_in_the_engine_names_a_task() -> None:
    for name in NAMES:
        for each in imports(name) if name.startswith("rlcpu.envs") else ():
            place, target = ([*full.split("."), "__init__"][2] for full in (name, each))
            assert target == place or place in ROOMS.get(target, (place,)), f"{name}: {each}"


def test_no_imports_go_in_a_circle() -> None:
    """The root imports what users see, and those below read its version from it."""
    below = {name: imports(name) - {"rlcpu"} for name in NAMES.keys() - {"rlcpu"}}
    while leaves := {name for name, others in below.items() if not others & below.keys()}:
        below = {name: others for name, others in below.items() if name not in leaves}
    assert not below


#: Names of tuples that begin with a line to keep apart from those of fields, and one of MuJoCo's.
OF_OTHERS = {"_asdict", "_replace", "_make", "_fields", "_field_defaults", "_address"}


def private_names(tree: ast.AST) -> set[str]:
    """Names beginning with one line that a file defines, of modules, classes and their objects."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if ast.unparse(node.value) == "self" else set()
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_nobody_reaches_into_an_object_of_another_file() -> None:
    """No `env._x`: what begins with a line is of the file that defines it.

    The buffers of other libraries in `adapters` are the insides of ours, and are left out.
    """
    trees = {name: tree_of(name) for name in NAMES}
    defined = {name: private_names(tree) for name, tree in trees.items()}
    ours = set().union(*defined.values()) - OF_OTHERS
    for name, tree in trees.items():
        if name.startswith("rlcpu.adapters"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ours - defined[name]:
                own = ast.unparse(node.value) in ("self", "cls", "super()", "type(self)")
                assert own, f"{name}, line {node.lineno}: {ast.unparse(node)}"


#: Every task has its own.
CLASSES_OF_MANY = {"Params", "State"}


def test_a_name_of_a_class_means_one_thing() -> None:
    """The adapters' classes take the place of another library's, by their names."""
    places: dict[str, list[str]] = {}
    for name in NAMES:
        if not name.startswith("rlcpu.adapters"):
            for node in tree_of(name).body:
                if isinstance(node, ast.ClassDef) and node.name not in CLASSES_OF_MANY:
                    places.setdefault(node.name, []).append(name)
    assert [(name, *files) for name, files in places.items() if len(files) > 1] == []


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
    assert len(loaded) <= 180
