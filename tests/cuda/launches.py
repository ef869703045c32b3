"""Launches kernels without a card: CUDA's driver is `driver.c`, which keeps what it is given.

    .venv-cuda/bin/python tests/cuda/launches.py FOLDER

compiles the driver in the folder, and fails if arguments, sizes, streams or errors are not what a
launch was asked for. It prints microseconds of launches, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import struct
import subprocess
import sys
import timeit
import types
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Pair(NamedTuple):
    one: Any
    other: Any


def load_driver(folder: Path) -> ctypes.CDLL:
    """Compile and load the driver, under the name by which it is looked for."""
    path = folder / "libcuda.so.1"
    options = "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(path)
    subprocess.run(["cc", str(HERE / "driver.c"), *options, "-ldl"], check=True)
    return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def main() -> None:
    """The command line."""
    driver = load_driver(Path(sys.argv[1]))
    sys.path[:0] = [str(HERE.parents[1]), str(HERE)]
    import cupy
    import numpy as np
    import ptx
    import pytest

    from rlcpu.cuda import CudaError, CudaMemoryError, device
    from rlcpu.cuda.compile import kernel
    from rlcpu.cuda.device import Prepared, cuda, launch

    @kernel
    def add(x, flag, pair, whole, real, word, out):
        i = cuda.grid(1)
        if i < out.shape[0] and flag:
            out[i] = x[i] + pair.one[i] + pair.other[0] + pair.other[1] + whole + real + word

    @kernel
    def copy(arrays):
        i = cuda.grid(1)
        arrays[0][i] = arrays[1][i]

    # Of the runtime, which has no device: where it is, and on which stream.
    ptx.pretend_device()
    device._problem_of = lambda process: ""  # type: ignore[assignment]
    runtime, stream = types.SimpleNamespace(getDevice=lambda: 0), types.SimpleNamespace(ptr=7)
    here = types.SimpleNamespace(compute_capability="90", use=lambda: None)
    current = types.SimpleNamespace(
        runtime=runtime, get_current_stream=lambda: stream, Device=lambda: here
    )
    pointer, memory = cupy.cuda.MemoryPointer, cupy.cuda.UnownedMemory
    cupy.cuda = current

    def array(address: int, size: int, dtype: Any) -> Any:
        return cupy.ndarray((size,), dtype, pointer(memory(address, 8 * size, None, 0), 0))

    def words(address: int, size: int, item: int) -> tuple[int, ...]:
        return 0, 0, size, item, address, size, item

    def packed(layout: str) -> tuple[Any, ...]:
        size = ctypes.c_size_t.in_dll(driver, "buffer_size").value
        buffer = (ctypes.c_ubyte * size).in_dll(driver, "buffer")
        return struct.unpack(layout, bytes(buffer))

    def check(x: Any, address: int, item: int, layout: str) -> None:
        pair = Pair(array(2**40, 20, np.int64), (np.float32(1.5), -2))
        out = array(2**42, 1000, np.float64)
        launch(add, 1000, x, True, pair, 2**40, 0.1, np.uint32(2**32 - 1), out)
        expected = (
            *words(address, x.size, item), True, *words(2**40, 20, 8), 1.5, -2, 2**40, 0.1,
            2**32 - 1, *words(2**42, 1000, 8),
        )  # fmt: skip
        assert packed(layout) == expected, (packed(layout), expected)
        sizes = list((ctypes.c_uint * 7).in_dll(driver, "sizes"))
        assert sizes == [4, 1, 1, 256, 1, 1, 0], sizes
        assert ctypes.c_void_p.in_dll(driver, "stream").value == 7

    layout = "@7q?7qfqqdI7q"
    for _ in range(2):  # compiled, then found
        check(array(2**41, 10, np.float32), 2**41, 4, layout)
        check(array(2**41, 0, np.uint8), 2**41, 1, layout)
        check(array(2**41, 9, np.float32)[::8][1:], 2**41 + 32, 4, layout)  # one number
    assert len(add.loaded) == 2

    x = array(2**41, 6, np.float32)
    for wrong in (x.reshape(2, 3), x[::2], np.zeros(6), "x", None):
        with pytest.raises(TypeError, match="expected"):
            launch(copy, 6, (x, wrong))
    with pytest.raises(ValueError, match="add does not take"):
        launch(add, 6, x, True, Pair(x, (np.float32(1), 1)), 2**63, 0.1, np.uint32(1), x)
    failure = ctypes.c_int.in_dll(driver, "status")
    for code, kind in ((701, CudaError), (2, CudaMemoryError)):
        failure.value = code
        with pytest.raises(kind, match="copy with 1 blocks of 32 threads: CUDA_ERROR_"):
            launch(copy, 6, (x, x), block=32)
    failure.value = 0

    twelve = tuple(array(2**41 + 256 * k, 64, np.float32) for k in range(12))
    launch(copy, 64, twelve)
    assert packed("@84q") == tuple(w for k in range(12) for w in words(2**41 + 256 * k, 64, 4))
    before, count, whole = packed("@84q"), len(copy.loaded), Prepared(twelve)
    for _ in range(2):  # its words are made, then found
        launch(copy, 64, (x, x))
        launch(copy, 64, whole)
        assert packed("@84q") == before
    launch(add, 1000, x, True, Prepared(Pair(x, (np.float32(1.5), -2))), 1, 0.1, np.uint32(1), x)
    assert packed("@7q?7qfqqdI7q")[15:17] == (1.5, -2)
    assert len(copy.loaded) == count, copy.loaded.keys()

    def microseconds(arguments: Any) -> float:
        seconds = timeit.repeat(lambda: launch(copy, 64, arguments), number=2000, repeat=5)
        return min(seconds) / 2000 * 1e6

    print(json.dumps({"twelve arrays": microseconds(twelve), "prepared": microseconds(whole)}))


if __name__ == "__main__":
    main()
