"""The cache of machine code: the files of one kernel, and several processes that meet in them."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite
import numba
import numpy as np
import pytest

import rlcpu
from rlcpu.kernels.compiler import cache
from rlcpu.kernels.compiler.compile import define, kernel
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
from rlcpu.kernels.compiler import cache
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
from rlcpu.kernels.compiler.cache import cache_folder
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


#: A kernel that calls a lowering of `rlcpu.kernels`, and one that stands elsewhere in the package.
LOWERED = """
import json
import numpy as np
from numba.core import event
from rlcpu.kernels.compiler.compile import EXACT, kernel
from rlcpu.kernels.machine.memory import load, store
from rlcpu.kernels.machine.vectors import maximum
from rlcpu.scan.lowered import constant

@kernel(fastmath=EXACT)
def run(numbers):
    store(maximum(load(numbers, 0, 1), 1.0), numbers, 0)
    return constant()

numbers = np.zeros(16)
with event.install_recorder("numba:compile") as recorder:
    found = run(numbers)
print(json.dumps([numbers[0], found, bool(recorder.buffer)]))
"""
ELSEWHERE = """
from numba import types
from numba.extending import lower_builtin, type_callable

def constant():
    return 1.0

type_callable(constant)(lambda context: lambda: types.float64)

@lower_builtin(constant)
def build(context, builder, signature, args):
    return context.get_constant(types.float64, 1.0)
"""


def test_what_no_fingerprint_sees_is_compiled_anew(tmp_path):
    """Edits of lowerings and another version of the package."""
    package, program = tmp_path / "rlcpu", tmp_path / "program.py"
    shutil.copytree(ROOT / "rlcpu", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "scan" / "lowered.py").write_text(ELSEWHERE)
    program.write_text(LOWERED)

    def run():
        return run_python(program, root=tmp_path, NUMBA_CACHE_DIR=tmp_path / "cache")

    assert run() == [1.0, 1.0, True]
    assert run() == [1.0, 1.0, False]
    larger = 'builder.select(builder.fcmp_ordered(">", x, y), x, y)'
    for name, old, new, expected in [
        ("kernels/machine/vectors.py", larger, larger.replace(">", "<"), [0.0, 1.0, True]),
        ("scan/lowered.py", "types.float64, 1.0", "types.float64, 2.0", [0.0, 2.0, True]),
        ("__init__.py", "__version__ = ", '__version__ = "9." + ', [0.0, 2.0, True]),
        ("kernels/checks.py", "import annotations", "import annotations  #", [0.0, 2.0, False]),
    ]:
        source = (package / name).read_text()
        assert old in source
        (package / name).write_text(source.replace(old, new))
        assert run() == expected, name


@pytest.mark.parametrize("module", [numba, llvmlite, np, rlcpu])
def test_versions_count(module, monkeypatch):
    before = cache._compiler_version.__wrapped__()
    monkeypatch.setattr(module, "__version__", "9.9")
    assert cache._compiler_version.__wrapped__() != before


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
from rlcpu.kernels.compiler.compile import define, kernel

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


FACTORY = """
import json, sys
import numpy as np
from rlcpu.kernels.compiler.compile import EXACT, define, kernel, njit

line = "    x[{0} % 7] += number * np.sqrt(x[{0} % 5]) / x[{0} % 9]\\n"
lines = "".join(line.format(i) for i in range(1, 60))  # too long to be inlined

def make(number):
    add = define("def add(x):\\n" + lines + "    return x.sum()", np=np, number=number)
    add = njit(add)

    @kernel(fastmath=EXACT)
    def run(x):
        return add(x) + add(x[::-1].copy()) + add(2 * x)

    return run

print(json.dumps([make(int(name))(np.arange(2.0, 11.0)) for name in sys.argv[1:]]))
"""


def test_functions_of_one_factory_meet_in_one_process(tmp_path):
    """What kernels call has a symbol of its own, too, if closures tell it from its brothers."""
    alone = [run_python("-c", FACTORY, name, NUMBA_CACHE_DIR=tmp_path) for name in "25"]
    assert alone[0] != alone[1]
    for names in ("25", "52"):
        found = run_python("-c", FACTORY, *names, NUMBA_CACHE_DIR=tmp_path)
        assert found == [*itertools.chain(*(alone["25".index(name)] for name in names))]


CONCURRENT = """
import numpy as np
from rlcpu.kernels.compiler.compile import define, kernel
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


#: Compiles one kernel as soon as two processes are ready, and says whether it did.
TOGETHER = """
import json, os, sys, time
from pathlib import Path
from rlcpu.kernels.compiler.compile import define, kernel

text = "def driver(x):\\n" + "".join(f"    x += {i} / (x * x + {i}.5)\\n" for i in range(1, 300))
made = kernel(define(text + "    return x"))
folder = Path(sys.argv[1])
(folder / str(os.getpid())).touch()
while len(list(folder.iterdir())) < 2:
    time.sleep(0.001)
result = made(0.5)
print(json.dumps([len(made.stats.cache_misses), result]))
"""


def test_of_two_processes_one_compiles_a_kernel(tmp_path):
    (tmp_path / "ready").mkdir()
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(
                run_python, "-c", TOGETHER, tmp_path / "ready", NUMBA_CACHE_DIR=tmp_path / "cache"
            )
            for _ in range(2)
        ]
        (missed, result), (missed_too, result_too) = (job.result() for job in jobs)
    assert missed + missed_too == 1
    assert result == result_too
    assert [path.suffix for path in files_in(tmp_path / "cache")] == [".nbc"]


HOLD = """
import sys, time
from pathlib import Path
from rlcpu.kernels.compiler.cache import CompileTurn
turn = CompileTurn(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(1000)
"""


def test_a_turn_ends_with_its_process_and_is_not_waited_for_for_ever(folder, monkeypatch):
    path = folder / "kernel.nbc"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLD, str(path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    try:
        assert holder.stdout.readline() == b"held\n"
        monkeypatch.setattr(cache.CompileTurn, "PATIENCE", 0.2)
        impatient = cache.CompileTurn(path)
        impatient.end()
        assert path.with_suffix(".turn").exists()  # it is the other's
        monkeypatch.setattr(cache.CompileTurn, "PATIENCE", 1e9)
        threading.Timer(0.5, holder.kill).start()
        cache.CompileTurn(path).end()
    finally:
        holder.kill()
        holder.communicate()
    assert not files_in(folder)


def test_a_kernel_that_cannot_be_compiled_gives_its_turn_to_others(folder):
    with pytest.raises(numba.errors.TypingError):
        kernel(define("def driver(x): return x.nothing"))(0.5)
    assert not files_in(folder)


def test_without_locks_every_process_compiles(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert make_kernel(1.0)(0.5) == 1.5
    assert [path.suffix for path in files_in(folder)] == [".nbc"]


def test_content_is_made_where_its_file_is_absent_or_damaged(folder, monkeypatch):
    path, made = folder / "new" / "kernel.cubin", []

    def make() -> bytes:
        made.append(b"code %d" % len(made))
        return made[-1]

    assert cache.read_or_make(path, make) == b"code 0"
    assert cache.read_or_make(path, make) == b"code 0"
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.read_or_make(path, make) == b"code 1"
    path.chmod(0o666)  # others could write code that this process would run
    assert cache.read_or_make(path, make) == b"code 2"
    assert cache.read_or_make(path, make) == b"code 2"
    assert cache.read_or_make(None, make) == b"code 3"
    assert files_in(folder) == [path]

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(cache, "write_whole", refuse)
    with pytest.warns(RuntimeWarning, match="no space left"):
        assert cache.read_or_make(folder / "other.cubin", make) == b"code 4"

    def fail() -> bytes:
        raise ValueError("no code")

    with pytest.raises(ValueError, match="no code"):
        cache.read_or_make(folder / "other.cubin", fail)
    assert files_in(folder) == [path]  # nobody's turn is left
