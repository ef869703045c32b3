"""What holds where there is no GPU: errors, imports, and memory shared through DLPack."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlcpu
from rlcpu.cuda import CudaUnavailableError, dlpack, provider
from rlcpu.cuda.arrays import c_strides, is_device_array

PACKAGE = Path(rlcpu.__file__).parent

without_gpu = pytest.mark.skipif(provider.is_available(), reason="there is a GPU")


@without_gpu
def test_error_without_a_gpu_says_what_to_install() -> None:
    needed = r"no CUDA device .*pip install 'rlcpu\[cuda\]'"
    with pytest.raises(CudaUnavailableError, match=needed):
        rlcpu.make_vec("CartPole-v1", device="cuda")
    assert provider.describe().startswith("none usable: ")


def test_unknown_device() -> None:
    with pytest.raises(ValueError, match='device=\'tpu\': expected "cpu" or "cuda"'):
        rlcpu.make_vec("CartPole-v1", device="tpu")


def test_nothing_is_imported_unasked() -> None:
    code = (
        "import sys, rlcpu; from rlcpu import replay, scan; env = rlcpu.make_vec('CartPole-v1');"
        "env.reset(seed=0); print(*(m for m in sys.modules if m.startswith('rlcpu.cuda')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_few_modules_import_the_compiler(path: Path) -> None:
    if path.parent == PACKAGE / "cuda" and path.stem in ("compile", "device", "maths", "provider"):
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        assert not [name for name in names if name.startswith(("numba.cuda", "cuda."))]


# ---------------------------------------------------------------- shared memory


class OnHost:
    """Memory of the host, exported as arrays on the device are."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.strides = array, array.shape, array.strides
        self.dtype = array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return dlpack.export(self, self.array.ctypes.data, (1, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.uint32, np.bool_])
def test_export_shares_memory(dtype: type) -> None:
    array = np.arange(12).astype(dtype).reshape(3, 4).T
    owner = OnHost(array)
    references = sys.getrefcount(owner)
    taken = np.from_dlpack(owner)  # type: ignore[arg-type]
    assert np.shares_memory(taken, array)
    np.testing.assert_array_equal(taken, array)
    assert taken.dtype == array.dtype
    del taken
    gc.collect()
    assert sys.getrefcount(owner) == references


def test_capsule_that_nobody_takes_is_freed() -> None:
    owner = OnHost(np.zeros(3))
    references = sys.getrefcount(owner)
    capsule = owner.__dlpack__()
    assert sys.getrefcount(owner) == references + 1
    del capsule
    assert sys.getrefcount(owner) == references


def test_import_by_dlpack() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = dlpack.view(OnHost(array))
    assert (view.pointer, view.shape, view.dtype) == (array.ctypes.data, (2, 3), np.float32)
    assert view.strides is not None
    assert tuple(view.strides) == array.strides
    assert view.stream is None


@given(st.lists(st.integers(1, 5), max_size=4), st.sampled_from([1, 4, 8]))
def test_c_strides(shape: list[int], itemsize: int) -> None:
    assert c_strides(shape, itemsize) == np.empty(shape, f"V{itemsize}").strides


def test_host_arrays_are_no_device_arrays() -> None:
    for value in (np.zeros(3), [1, 2], 3.0, None, DeviceFreeClass):
        assert not is_device_array(value)


class DeviceFreeClass:
    __cuda_array_interface__ = property(lambda self: {})
