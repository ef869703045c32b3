"""Arrays on the device: copies, views, the pool, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.cuda import CudaMemoryError, DeviceArray, provider
from rlcpu.cuda.arrays import empty, empty_cache, from_host, is_device_array, take, zeros

pytestmark = pytest.mark.device


def test_copies_and_views() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = from_host(values)
    np.testing.assert_array_equal(np.asarray(array), values)
    np.testing.assert_array_equal(np.asarray(array.T), values.T)
    np.testing.assert_array_equal(
        np.asarray(array.view((2, 2), 4)), values.ravel()[4:8].reshape(2, 2)
    )
    assert (array.ndim, array.size, array.nbytes, len(array)) == (2, 12, 48, 3)
    assert np.asarray(zeros(0, np.int64)).shape == (0,)
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(array, copy=False)


def test_memory_is_used_again_once_nobody_sees_it() -> None:
    empty_cache()
    array = empty(1000, np.float32)
    block, view = array.memory, array.T
    address = pointer(block)
    del array
    assert pointer(empty(1000, np.float32).memory) != address
    del view, block
    assert address in {pointer(empty(250, np.float64).memory) for _ in range(1)} | {
        pointer(empty(1000, np.int32).memory)
    }


def pointer(memory: Any) -> int:
    if provider.SIMULATED:
        return int(memory._ary.ctypes.data)
    return int(memory.__cuda_array_interface__["data"][0])


def test_out_of_memory_is_one_exception_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = from_host(np.arange(4))
    if provider.SIMULATED:

        def fail(*args: Any) -> None:
            raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")

        monkeypatch.setattr(provider.cuda, "device_array", fail)
    with pytest.raises(CudaMemoryError, match=r"no 8,000,000,000.* MB .*shape .* dtype float64"):
        empty((10**9, 10**6), np.float64)
    monkeypatch.undo()
    np.testing.assert_array_equal(np.asarray(kept), np.arange(4))
    assert isinstance(zeros(4, np.float32), DeviceArray)


def test_take() -> None:
    values = np.arange(4, dtype=np.float32)
    ours = from_host(values)
    assert take("x", ours, np.float32) is ours
    np.testing.assert_array_equal(np.asarray(take("x", values, np.float32, (4,))), values)
    theirs = provider.cuda.to_device(values)
    assert is_device_array(theirs)
    np.testing.assert_array_equal(np.asarray(take("x", theirs, np.float32)), values)


def test_take_refuses() -> None:
    values = from_host(np.zeros((4, 3), np.float32))
    with pytest.raises(TypeError, match="x has dtype float32: expected int64"):
        take("x", values, np.int64)
    with pytest.raises(ValueError, match=r"x has shape \(4, 3\): expected \(12,\)"):
        take("x", values, np.float32, (12,))
    with pytest.raises(ValueError, match=r"x has strides .*: expected a C-contiguous array"):
        take("x", values.T, np.float32)
    with pytest.raises(TypeError, match="out=ndarray: expected an array on the CUDA device"):
        take("out", np.zeros(3), np.float64, write=True)
    with pytest.raises(TypeError, match="x=str: expected an array"):
        take("x", "zeros", np.float64)
