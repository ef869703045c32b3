"""The cache of machine code: the files of one kernel, and several processes that meet in them."""

import errno
import os
import shutil
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from rlcpu.kernels import cache
from rlcpu.kernels.compile import define, kernel
from tests.kernels.processes import ROOT, files_in, run_python


def make_kernel(value: float, name: str = "driver") -> Any:
    """A kernel that adds a constant to a number; all share their name, line and types."""
    return kernel(define(f"def {name}(x): return x + value", value=value))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(cache, "_warned", False)
    return tmp_path


def loaded(dispatcher: Any) -> bool:
    return bool(dispatcher.stats.cache_hits) and not dispatcher.stats.cache_misses


def loaded_after_a_call(dispatcher: Any) -> bool:
    assert dispatcher(0.5) == 1.5
    return loaded(dispatcher)


def test_kernels_that_differ_in_a_constant_have_files_of_their_own(folder):
    for value in (1.0, 2.0):
        assert make_kernel(value)(0.5) == 0.5 + value
    assert len(list(folder.iterdir())) == 2
    for value in (1.0, 2.0):
        again = make_kernel(value)
        assert again(0.5) == 0.5 + value
        assert loaded(again)


def test_argument_types_have_files_of_their_own(folder):
    for x in (1.0, 1, np.float32(1.0), np.ones(2), np.ones(4)[::2]):
        np.testing.assert_array_equal(make_kernel(1.0)(x), x + 1.0)
    assert len(list(folder.iterdir())) == 5


def test_nothing_is_read_or_written_before_the_first_call(folder):
    dispatcher = make_kernel(1.0)
    assert dispatcher.stats.cache_path == str(folder)
    dispatcher._cache._check = None
    assert not list(folder.iterdir())


def assert_written_anew(folder: Any, file: Any) -> None:
    """The next kernel does not take the file, the one after it does."""
    again = make_kernel(1.0)
    assert again(0.5) == 1.5
    assert not loaded(again)
    third = make_kernel(1.0)
    assert third(0.5) == 1.5
    assert loaded(third)
    assert list(folder.iterdir()) == [file]


def test_a_file_of_another_kernel_is_written_anew(folder):
    """Somebody who may not write a file may still give it another name."""
    make_kernel(1.0)(0.5)
    (file,) = folder.iterdir()
    make_kernel(2.0)(0.5)
    (other,) = set(folder.iterdir()) - {file}
    other.replace(file)
    assert_written_anew(folder, file)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files")
def test_a_file_that_others_can_write_is_written_anew(folder):
    make_kernel(1.0)(0.5)
    (file,) = folder.iterdir()
    file.chmod(0o666)
    assert_written_anew(folder, file)
    assert not file.stat().st_mode & 0o022
    if os.getuid() == 0:
        os.chown(file, 65534, -1)
        assert_written_anew(folder, file)


DAMAGED = """
import json, sys
from pathlib import Path
from rlcpu.kernels import cache
from tests.kernels.test_cache_files import make_kernel, loaded

folder = Path(sys.argv[1]) / "kernels"
cache.cache_folder = lambda: folder
make_kernel(1.0)(0.5)
(file,) = folder.iterdir()
whole = file.read_bytes()
size = len(whole)
damages = [b"", b"garbage", whole[:-1], whole[: size // 2], whole + b"0"]
damages += [whole[:k] + bytes(min(4096, size - k)) + whole[k + 4096 :] for k in (0, 4096)]
damages += [whole[:k] + bytes([whole[k] ^ 4]) + whole[k + 1 :] for k in range(7, size, size // 9)]
report = []
for damage in damages:
    file.write_bytes(damage)
    kernel = make_kernel(1.0)
    report.append([kernel(0.5), loaded(kernel), file.read_bytes() == damage])
print(json.dumps(report))
"""


def test_damaged_files_are_written_anew(tmp_path):
    report = run_python("-c", DAMAGED, tmp_path, NUMBA_CACHE_DIR=tmp_path)
    assert len(report) >= 16
    assert report == [[1.5, False, False]] * len(report)


@pytest.mark.parametrize("name", [b"no_such_module\nkernel", b"rlcpu.kernels\nno_such_kernel"])
def test_a_file_of_something_that_was_renamed_is_written_anew(folder, name):
    make_kernel(1.0)(0.5)
    (file,) = folder.iterdir()
    cache.write_whole(file, b"c" + name + b"\n.")
    assert_written_anew(folder, file)


OPEN = """
import json, os, sys, warnings
from numba.core import event
from rlcpu.kernels.cache import cache_folder
from tests.kernels.test_cache_files import make_kernel

with warnings.catch_warnings(record=True) as caught, event.install_recorder("numba:compile") as r:
    warnings.simplefilter("always")
    results = [make_kernel(1.0)(0.5), make_kernel(2.0)(0.5)]
print(json.dumps([results, [str(w.message) for w in caught], len(r.buffer) // 2]))
"""


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of folders")
@pytest.mark.parametrize("change", ["write", "owner"])
def test_a_folder_of_others_is_not_used(tmp_path, change):
    """Neither read, where another user's code could be, nor written."""
    if change == "owner" and os.getuid() != 0:
        pytest.skip("only root gives folders away")
    results, said, _ = run_python("-c", OPEN, NUMBA_CACHE_DIR=tmp_path)
    assert (results, said) == ([1.5, 2.5], [])
    (folder,) = (path for path in tmp_path.rglob("*") if path.is_dir() and files_in(path))
    if change == "write":
        folder.chmod(0o777)
    else:
        os.chown(folder, 65534, -1)
    before = [file.stat().st_mtime_ns for file in files_in(folder)]
    results, said, compiled = run_python("-c", OPEN, NUMBA_CACHE_DIR=tmp_path)
    assert results == [1.5, 2.5]
    assert compiled >= 2
    assert len(said) == 1
    assert f"others than you can write to {folder}" in said[0]
    assert [file.stat().st_mtime_ns for file in files_in(folder)] == before


def test_what_makes_code_has_a_part_in_the_names(folder, monkeypatch):
    make_kernel(1.0)(0.5)
    monkeypatch.setattr(cache, "_compiler_version", lambda: "edited")
    assert not loaded_after_a_call(make_kernel(1.0))
    monkeypatch.setattr("numba.config.BOUNDSCHECK", 1)
    assert not loaded_after_a_call(make_kernel(1.0))
    assert len(list(folder.iterdir())) == 3


def test_sources_that_make_code_count(tmp_path):
    """An edit of a lowering, which no fingerprint sees."""
    shutil.copytree(ROOT / "rlcpu", tmp_path / "rlcpu")
    program = tmp_path / "program.py"
    program.write_text("""
import json
from rlcpu.kernels import cache
print(json.dumps([cache.__file__, cache._compiler_version()]))
""")
    before = run_python(program, root=tmp_path)
    assert before[0].startswith(str(tmp_path))
    assert run_python(program, root=tmp_path) == before
    with (tmp_path / "rlcpu" / "kernels" / "masks.py").open("a") as file:
        file.write("# edited")
    assert run_python(program, root=tmp_path) != before


def test_a_folder_that_vanished_is_made_again(folder):
    make_kernel(1.0)(0.5)
    shutil.rmtree(folder)
    assert make_kernel(2.0)(0.5) == 2.5
    assert len(list(folder.iterdir())) == 1


def test_a_disk_that_vanished_warns_once(folder):
    shutil.rmtree(folder)
    folder.write_text("")
    with pytest.warns(RuntimeWarning, match=r"keeps no compiled kernels \(.*Set NUMBA_CACHE_DIR"):
        assert make_kernel(1.0)(0.5) == 1.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_kernel(2.0)(0.5) == 2.5


def test_a_write_that_fails_leaves_nothing_behind(folder, monkeypatch):
    def fail(source, target):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.replace", fail)
    with pytest.warns(RuntimeWarning, match=r"Input/output error"):
        assert make_kernel(1.0)(0.5) == 1.5
    assert not list(folder.iterdir())


DTYPES = """
import json, sys
import numpy as np
from rlcpu.kernels.compile import define, kernel

found = []
for name in sys.argv[1:]:
    dispatcher = kernel(define("def f(x): return np.ones(2, real)", np=np, real=getattr(np, name)))
    result = dispatcher(1.0)
    found.append([result.dtype.name, result.tolist(), sum(dispatcher.stats.cache_hits.values())])
print(json.dumps(found))
"""


def test_kernels_of_several_processes_meet_in_one(tmp_path):
    """Their symbols have to differ, though numba gave each of them the first number."""
    for name in ("float32", "float64"):
        found = run_python("-c", DTYPES, name, NUMBA_CACHE_DIR=tmp_path)
        assert found == [[name, [1.0, 1.0], 0]]
    for names in (("float32", "float64"), ("float64", "float32")):
        found = run_python("-c", DTYPES, *names, NUMBA_CACHE_DIR=tmp_path)
        assert found == [[name, [1.0, 1.0], 1] for name in names]


CONCURRENT = """
import numpy as np
from rlcpu.kernels.compile import define, kernel
for k in range(4):
    assert kernel(define("def f(x): return x + k", k=k))(1.5) == 1.5 + k
"""


def test_processes_that_fill_the_cache_at_once_agree(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", CONCURRENT]
    running = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert len(files_in(tmp_path)) == 4
    subprocess.run(command, env=environment, check=True)
