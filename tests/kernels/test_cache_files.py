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


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_file_is_written_anew(folder, damage):
    make_kernel(1.0)(0.5)
    (file,) = folder.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] if damage is None else damage)
    again = make_kernel(1.0)
    assert again(0.5) == 1.5
    assert not loaded(again)
    third = make_kernel(1.0)
    assert third(0.5) == 1.5
    assert loaded(third)
    assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize("name", [b"no_such_module\nkernel", b"rlcpu.kernels\nno_such_kernel"])
def test_a_file_of_something_that_was_renamed_is_written_anew(folder, name):
    make_kernel(1.0)(0.5)
    (file,) = folder.iterdir()
    file.write_bytes(b"c" + name + b"\n.")
    again = make_kernel(1.0)
    assert again(0.5) == 1.5
    assert not loaded(again)
    third = make_kernel(1.0)
    assert third(0.5) == 1.5
    assert loaded(third)


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
