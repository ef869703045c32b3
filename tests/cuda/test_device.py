"""Arrays, launches and backends: what every chapter of `rlcpu.cuda` stands on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlcpu
from rlcpu import backends
from rlcpu.cuda import CudaError, CudaMemoryError, CudaUnavailableError, device, faults
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import asarray, cuda, empty, launch, to_host, xp, zeros
from rlcpu.cuda.faults import report

PACKAGE = Path(rlcpu.__file__).parent


class Pair(NamedTuple):
    one: Any
    other: Any


def _twice(x: Any) -> Any:
    return x + x


@kernel
def _scale(arrays, factor, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = factor * _twice(arrays.one[i]) + arrays.other[i]


@pytest.mark.device
def test_launch() -> None:
    x = asarray(np.arange(700, dtype=np.float32))
    out = empty(700, np.float32)
    launch(_scale, 700, Pair(x, x), np.float32(3), out)
    assert (to_host(out) == 7 * np.arange(700)).all()
    launch(_scale, 0, Pair(x, x), np.float32(4), out)
    assert to_host(out)[1] == 7


@pytest.mark.device
def test_launches_of_several_sizes() -> None:
    for size in (9, 2, 9):
        x, out = asarray(np.ones(size, np.float32)), zeros(size, np.float32)
        launch(_scale, size, Pair(x, x), np.float32(1), out)
        assert to_host(out).tolist() == [3] * size


@pytest.mark.device
def test_kernel_may_overwrite_its_input() -> None:
    x = asarray(np.ones(5, np.float32))
    launch(_scale, 5, Pair(x, x), np.float32(1), x[:3])
    assert to_host(x).tolist() == [3, 3, 3, 1, 1]


@kernel
def _take_numbers(numbers, x, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        number, flag = numbers.one
        out[i] = numbers.other[i] + number + x if flag else 0


@pytest.mark.device
def test_kinds_of_arguments() -> None:
    for dtype in (np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32):
        column, out = asarray(np.arange(3).astype(dtype)), zeros(3, np.float64)
        for number, flag, x in (
            (dtype(5), True, 0.5),
            (7, np.bool_(True), np.float32(1)),
            (np.uint64(2), 1, np.int8(-1)),
            (3, False, 1),
        ):
            launch(_take_numbers, 3, Pair((number, flag), column), x, out)
            expected = (np.arange(3) + float(number) + float(x)) * bool(flag)
            assert to_host(out).tolist() == expected.tolist()


@pytest.mark.device
@pytest.mark.skipif(device.SIMULATED, reason="the simulator takes all that Python does")
def test_arguments_that_kernels_do_not_take() -> None:
    x = zeros(6, np.float32)
    for wrong in (x.reshape(2, 3), x[::2], np.zeros(6, np.float32), "x", None):
        with pytest.raises(TypeError, match="expected"):
            launch(_scale, 6, Pair(x, wrong), np.float32(1), x)
    launch(_scale, 1, Pair(x[::2][:1], x), np.float32(1), x[::3][:1])  # contiguous after all


@pytest.mark.device
@pytest.mark.skipif(device.SIMULATED, reason="the simulator has no limits")
def test_launch_that_the_driver_refuses() -> None:
    x = zeros(2048, np.float32)
    with pytest.raises(CudaError, match=r"_scale with 1 blocks of 2048 threads: CUDA_ERROR"):
        launch(_scale, 2048, Pair(x, x), np.float32(1), x, block=2048)
    launch(_scale, 2048, Pair(x, x), np.float32(1), x)
    faults.synchronize()


@pytest.mark.device
def test_asarray() -> None:
    x = asarray([1.0, 2.0], np.float32)
    assert backends.device_of(x) == "cuda"
    assert backends.device_of(np.ones(2), None, x[1:]) == "cuda"
    assert asarray(x) is x
    assert asarray(x, np.float64).dtype == np.float64
    other = asarray(cuda.to_device(np.arange(3)))
    assert to_host(other).tolist() == [0, 1, 2]
    host = np.zeros(2)
    copy = asarray(host)
    host[:] = 1
    assert to_host(copy).tolist() == [0, 0]
    assert isinstance(zeros((2, 3), np.bool_), xp.ndarray)
    assert not to_host(zeros((2, 3), np.bool_)).any()
    faults.synchronize()


@pytest.mark.device
def test_memory_is_named() -> None:
    with pytest.raises(CudaMemoryError, match=r"\(1125899906842624,\) and dtype float32"):
        empty((2**50,), np.float32)


def test_host_arrays() -> None:
    assert backends.device_of(np.ones(1), None, 1.0, [1, 2]) == "cpu"


def test_unknown_device() -> None:
    with pytest.raises(ValueError, match='device=\'tpu\': expected "cpu" or "cuda"'):
        backends.find("tpu")


@pytest.mark.skipif(device.is_available(), reason="there is a device")
def test_no_device() -> None:
    with pytest.raises(CudaUnavailableError, match=r"\.\[cuda\]"):
        backends.find("cuda", "envs")
    assert device.describe().startswith("none usable: ")
    with pytest.raises(CudaUnavailableError):
        empty(1, np.float32)
    with pytest.raises(CudaUnavailableError, match=r"no CUDA device .*pip install '.\[cuda\]'"):
        rlcpu.make_vec("CartPole-v1", device="cuda")


def test_nothing_is_imported_unasked() -> None:
    code = (
        "import sys, rlcpu; from rlcpu import replay, scan; env = rlcpu.make_vec('CartPole-v1');"
        "env.reset(seed=0); print(*(m for m in sys.modules if m.startswith('rlcpu.cuda')));"
        "import rlcpu.cuda.rollouts; print(*(m for m in sys.modules if m == 'cupy'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


#: Modules that import by name: one, four that a user's module, and four that their own modules.
BY_NAME = {
    *("backends.py", "cli/arguments.py", "envs/checks/against.py"),
    *("experiments/environments.py", "experiments/references.py"),
    *("__init__.py", "envs/contract/registry.py", "nn/__init__.py", "train/__init__.py"),
    "train/running/precompile.py",
}
#: Modules that know the compiler.
OF_COMPILER = {"cuda/compile.py", "cuda/device.py", "cuda/maths.py"}


def test_imports() -> None:
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        imported = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        place = path.relative_to(PACKAGE).as_posix()
        if place not in OF_COMPILER:
            cuda_names = [n for n in imported if n.startswith(("numba.cuda", "cuda.", "cupy"))]
            assert not cuda_names, place
        if place not in BY_NAME:
            used = {getattr(n, "id", getattr(n, "attr", "")) for n in nodes} | imported
            by_name = used & {"import_module", "__import__", "importlib.import_module"}
            assert not by_name, place


def test_simulator_in_a_process_of_its_own() -> None:
    code = (
        "import numpy as np; from rlcpu import backends; from rlcpu.cuda import device\n"
        "assert backends.find('cuda').is_available() and device.xp.float32 is np.float32\n"
        "assert backends.device_of(np.ones(1)) == 'cpu'\n"
        "assert backends.device_of(device.zeros(1, np.int32)) == 'cuda'"
    )
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@kernel
def _refuse_negative(x, faults_words, out):
    i = cuda.grid(1)
    if i < x.size:
        if x[i] < 0:
            report(faults_words, 1, i)
        else:
            out[i] = x[i]


@pytest.mark.device
def test_faults_are_raised_later_and_once() -> None:
    noticed = faults.Faults(TypeError, lambda k: ValueError(f"x[{k}] is negative"))
    x, out = asarray(np.array([1.0, -2.0, 3.0])), zeros(3, np.float64)
    launch(_refuse_negative, 3, x, noticed.words, out)  # returns although a number is bad
    with pytest.raises(ValueError, match=r"x\[1\] is negative"):
        faults.synchronize()
    np.testing.assert_array_equal(to_host(out), [1.0, 0.0, 3.0])
    faults.synchronize()
    noticed.check()
