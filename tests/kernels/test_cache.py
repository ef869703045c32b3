"""The cache of machine code: what a second process compiles, after which edits, on which disks."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.processes import ROOT, files_in, run_python
from tests.kernels.programs import USE

#: A user's environment in three files, and a program that uses it.
HELPERS = """
import math

def pull(position, strength):
    return -strength * math.sin(position)
"""
CONSTANTS = "STRENGTH = 0.75\n"
ENVIRONMENT = """
from typing import NamedTuple
import numpy as np
from gymnasium.spaces import Box, Discrete
import constants
import rlcpu
from helpers import pull

class Params(NamedTuple):
    force: float = 1.5

def reset(uniforms, params):
    return (uniforms[0] - 0.5, 0.0)

def step(state, action, params):
    position, speed = state
    push = params.force if action == 1 else -params.force
    speed = 0.5 * speed + push + pull(position, constants.STRENGTH)
    return (position + 0.125 * speed, speed), -abs(position), abs(position) > 2.0

DYNAMICS = rlcpu.Dynamics(
    id="Swing-v0", step=step, reset=reset, params=Params(), reset_draws=1, max_episode_steps=50,
    observation_space=Box(-9.0, 9.0, (2,), np.float32), action_space=Discrete(2),
)
"""
USE_MODULE = f"""
{USE}
from environment import DYNAMICS
use(rlcpu.make_vec(DYNAMICS, 70), rollouts=False)
"""
USE_MAIN = f"{USE}\n{ENVIRONMENT}\nuse(rlcpu.make_vec(DYNAMICS, 70), rollouts=False)"


class Project:
    """A user's folder with a program, and a cache of its own."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.cache = folder / "project", folder / "cache"
        self.folder.mkdir()
        files = {"helpers": HELPERS, "constants": CONSTANTS, "environment": ENVIRONMENT}
        for name, source in {**files, "main": program}.items():
            self.write(name, source)

    def write(self, name: str, source: str) -> None:
        (self.folder / f"{name}.py").write_text(source)

    def run(self, seed: int = 0) -> Any:
        program = self.folder / "main.py"
        return run_python(program, NUMBA_CACHE_DIR=self.cache, PYTHONHASHSEED=seed)

    def files(self) -> list[Path]:
        return files_in(self.cache)


def test_an_environment_is_compiled_once_and_again_where_it_is_edited(tmp_path):
    """Whatever its module is called: also as a script, whose functions are always new."""
    project = Project(tmp_path, USE_MAIN)
    first, files = project.run(seed=1), project.files()
    assert first["compiled"] > 0
    assert len(files) >= 3
    again = {"compiled": 0, "digest": first["digest"]}
    assert project.run(seed=2) == again
    (project.folder / "environment.py").rename(project.folder / "renamed.py")
    project.write("main", USE_MODULE.replace("environment", "renamed"))
    assert project.run() == again
    project.write("main", USE_MODULE)
    moved = ENVIRONMENT.replace("def step", "\n\n# Moved.\n\ndef step")
    project.write("environment", moved)
    assert project.run() == again
    assert project.files() == files
    project.write("environment", ENVIRONMENT)
    edits = [
        ("environment", ENVIRONMENT, "-abs(position)", "-2.0 * abs(position)"),
        ("constants", CONSTANTS, "0.75", "0.5"),
        ("helpers", HELPERS, "math.sin", "math.tanh"),
    ]
    for name, source, old, new in edits:
        project.write(name, source.replace(old, new))
        edited = project.run()
        assert edited["compiled"] > 0
        assert edited["digest"] != first["digest"]
        project.write(name, source)
    assert project.run() == again


REFUSED = """
import json, sys
import numpy as np
from rlcpu.kernels.compiler.compile import kernel, specialise

def scale(x):
    return np.float64(2.0) * x

scalar = specialise(scale, np.float32)
try:
    kernel(lambda x: scalar(x), scalars=(scalar,))(np.float32(1.0))
except TypeError as error:
    print(json.dumps(str(error)))
"""


def test_a_refused_kernel_is_refused_in_every_process(tmp_path):
    project = Project(tmp_path, REFUSED)
    first, second = project.run(), project.run()
    assert first == second
    assert "line 7, in scale: `return np.float64(2.0) * x` computes" in first
    assert not project.files()


# ---------------------------------------------------------------- disks that cannot be written

RECORDED = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    import rlcpu
    {setup}
    env = rlcpu.make_vec("MountainCar-v0", 3)
    env.reset(seed=0)  # two kernels, which compile faster than that of a step
    env.reset(seed=1)
found = [[w.category.__name__, str(w.message)] for w in caught]
print(json.dumps([rlcpu.__file__, found, env.state.tolist()]))
"""


def test_a_read_only_install_without_a_home_works(tmp_path):
    package = tmp_path / "site" / "rlcpu"
    shutil.copytree(ROOT / "rlcpu", package, ignore=shutil.ignore_patterns("__pycache__"))
    # For root no folder is read-only: a file where the folder would be stops root as well.
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
        folder.chmod(0o555)
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    program = tmp_path / "program.py"
    program.write_text(RECORDED.format(setup=""))
    file, found, state = run_python(
        program,
        root=package.parent,
        NUMBA_CACHE_DIR=nowhere / "cache",
        HOME=nowhere / "home",
        XDG_CACHE_HOME=None,
        APPDATA=nowhere,
    )
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    assert Path(file).is_relative_to(package)
    assert [category for category, _ in found] == ["RuntimeWarning"]
    assert found[0][1].startswith("rlcpu keeps no compiled kernels (no folder can be written)")
    assert np.isfinite(state).all()


@pytest.mark.skipif(sys.platform != "linux", reason="takes rights away as Linux does")
def test_who_may_write_nowhere_works_with_one_warning(tmp_path):
    """Another user's installation, without a home: root, whom nothing stops, becomes that user."""
    site, program = tmp_path / "site", tmp_path / "program.py"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "rlcpu", site / "rlcpu", ignore=ignored)
    program.write_text(NOBODY.format(folder=str(tmp_path)) + RECORDED.format(setup=""))
    folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        environment = {"NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None, "HOME": tmp_path / "home"}
        file, found, state = run_python(program, root=site, **environment)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert Path(file).is_relative_to(site)
    assert [category for category, _ in found] == ["RuntimeWarning"]
    assert found[0][1].startswith("rlcpu keeps no compiled kernels (no folder can be written)")
    assert np.isfinite(state).all()
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".nbc", ".nbi", ".pyc")]


#: Goes on without a right to write in a folder: as root, by giving up what root may do there.
NOBODY = """
import ctypes, os
if os.geteuid() == 0:
    # PR_CAPBSET_DROP would wait for an exec: capset with no capability, version 3, works at once.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
assert not os.access({folder!r}, os.W_OK)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
def test_a_full_disk_does_no_harm(tmp_path):
    setup = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    setup += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    program = RECORDED.format(setup=setup)
    _, found, state = run_python("-c", program, NUMBA_CACHE_DIR=tmp_path)
    assert [category for category, _ in found] == ["RuntimeWarning"]
    assert "File too large" in found[0][1]
    assert np.isfinite(state).all()
    assert not files_in(tmp_path)
