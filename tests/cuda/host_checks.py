"""What the host does with the real provider, on a driver without a card: see `test_host.py`."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.cuda import dispatcher

import rlcpu
from rlcpu.cuda import CudaMemoryError, CudaUnavailableError, arrays, cache, dlpack, launch
from rlcpu.cuda.arrays import empty, from_host, take, zeros
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.memory import Piece
from rlcpu.cuda.provider import cuda

LOG = Path(os.environ["FAKE_LOG"])


@kernel
def combine(a, b, flags, whole, large, single, double, flag, small):
    k = cuda.grid(1)
    if k < a.size and flags[k] and flag:
        a[k] = b[k] * single + double + whole + large + small


def arguments() -> list[Any]:
    numbers = 5, np.uint64(2**63 + 1), np.float32(0.5), 0.25, True, np.int32(-3)
    return [empty(10, np.float32), empty((11, 1), np.float64), empty(12, np.bool_), *numbers]


def calls() -> list[str]:
    """What the driver was asked for since the last time."""
    lines = LOG.read_text("utf-8").splitlines() if LOG.exists() else []
    LOG.write_text("")
    return lines


def test_kernels_get_what_the_provider_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    args, theirs = arguments(), []
    monkeypatch.setattr(dispatcher, "launch", lambda *call: theirs.append(call))
    plain = [a.memory if isinstance(a, arrays.DeviceArray) else a for a in args]
    launch._Configured(combine)(3, 64, 0, plain)
    launch.launch_grid(combine, 3, 64, *args)
    (loaded,) = (v for key, v in launch._ready.items() if key[0] is combine.dispatcher)
    assert isinstance(loaded, launch._Loaded)
    expected = [getattr(value, "value", value) for value in theirs[0][3:]]
    assert list(loaded.format.unpack(loaded.buffer.raw)) == expected
    assert len(loaded.places) == len(expected)


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    path = cache._path(combine, [np.empty(0, a.dtype) if isinstance(a, arrays.DeviceArray) else a
                                 for a in arguments()])  # fmt: skip
    launch.launch_grid(combine, 1, 32, *arguments())
    assert path is not None
    content = path.read_bytes()
    code = (
        "import host_checks as h, rlcpu.cuda.provider as p; compile = p.load\n"
        "def load(*args): print('compiled'); return compile(*args)\n"
        "p.load = load; h.launch.launch_grid(h.combine, 1, 32, *h.arguments())"
    )
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{os.getcwd()}"}
    for damage, expected in ((b"", ""), (b"x", "compiled")):
        path.write_bytes(damage + content)
        command = [sys.executable, "-c", code]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        assert result.stdout.strip() == expected
    assert isinstance(cache._read(path), int)


def test_a_kernels_key_holds_its_callees() -> None:
    def make(constant: float) -> Any:
        def inner(x):
            return x + constant

        def outer(x):
            return inner(x)

        @kernel
        def driver(a):
            a[0] = outer(a[0])

        return driver.dispatcher

    assert cache.key_of(make(1.0)) == cache.key_of(make(1.0))
    assert cache.key_of(make(1.0)) != cache.key_of(make(2.0))


def test_copies_and_zeros() -> None:
    values = np.arange(6.0)
    array = from_host(values)
    calls()
    cleared = zeros((2, 3), np.float32)
    assert [line.split()[0] for line in calls() if "allocate" not in line] == ["set"]
    assert not np.asarray(cleared).any()
    array.memory[1:3].copy_to_device(array.memory[3:5])
    array.memory[5:6].copy_to_device(np.array([9.0]))
    assert np.asarray(array).tolist() == [0, 3, 4, 3, 4, 9]
    assert array.memory.view(np.int64).copy_to_host().tobytes() == np.asarray(array).tobytes()
    with pytest.raises(ValueError, match="2 float64: expected 3 float64"):
        array.memory[:3].copy_to_device(array.memory[:2])


class Torchlike:
    """A tensor as torch has it: a dtype that is none of NumPy's, DLPack, and no stream."""

    dtype = "torch.int32"

    def __init__(self, array: arrays.DeviceArray) -> None:
        self.array, self.streams, self.shape = array, list[Any](), array.shape
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "version": 2}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.array.device)

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        self.streams.append(stream)
        return dlpack.export(self.array, self.array.memory.pointer, self.__dlpack_device__())


def test_tensors_are_taken_without_a_copy_and_waited_for() -> None:
    env = rlcpu.make_vec("CartPole-v1", 8, device="cuda")
    env.reset(seed=0)
    actions = Torchlike(zeros(8, np.int32))
    env.step(actions)
    calls()
    env.step(actions)
    assert not [line for line in calls() if line.startswith("to device")]
    assert actions.streams == [1, 1]
    assert take("x", actions, np.int32).memory.pointer == actions.array.memory.pointer
    observations = env.step(actions)[0]
    assert observations.__dlpack_device__() == (2, 0)
    pointer = observations.__cuda_array_interface__["data"][0]
    assert dlpack.view(observations).pointer == pointer


@pytest.mark.parametrize("stream", [None, 1, 7])
def test_only_other_streams_are_waited_for(stream: int | None) -> None:
    class Named:
        def __init__(self) -> None:
            self.array = zeros(4, np.float32)
            interface = self.array.__cuda_array_interface__
            self.__cuda_array_interface__ = {**interface, "stream": stream}

    value = Named()
    calls()
    assert isinstance(take("x", value, np.float32).memory, Piece)
    assert [line for line in calls() if "synchronize" in line] == (
        ["synchronize stream 7"] if stream == 7 else []
    )


def test_arrays_of_another_device_are_refused() -> None:
    array = zeros(4, np.float32)
    address = array.memory.pointer
    del array
    with cuda.gpus[1]:
        other = zeros(4, np.float32)
        assert (other.device, other.__dlpack_device__()) == (1, (2, 1))
        assert other.memory.pointer != address
    message = "x is on CUDA device 1: expected 0, the current one"
    for value in (other, Torchlike(other)):
        with pytest.raises(ValueError, match=message):
            take("x", value, np.float32)
    with pytest.raises(ValueError, match="is on CUDA device 1"):
        launch.launch_grid(combine, 1, 32, other, *arguments()[1:])


def test_out_of_memory_gives_the_pool_back_first() -> None:
    arrays.empty_cache()
    first = empty(2**29, np.uint8)
    del first
    assert empty(2**29 + 2**28, np.uint8).nbytes == 2**29 + 2**28
    with pytest.raises(CudaMemoryError, match=r"no 2,147.5 MB for an array of shape \(2, 1073"):
        empty((2, 2**30), np.uint8)


def test_memory_in_a_cycle_is_not_freed() -> None:
    arrays.empty_cache()
    before = cuda.current_context().get_memory_info()[0]
    cycle: list[Any] = [zeros(2**20, np.float32)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    cuda.current_context().memory_manager.deallocations.clear()
    assert cuda.current_context().get_memory_info()[0] == before - 2**22
    arrays.empty_cache()
    cuda.current_context().memory_manager.deallocations.clear()
    assert cuda.current_context().get_memory_info()[0] == before


def test_a_forked_process_is_told_so() -> None:
    rlcpu.make_vec("CartPole-v1", 8, device="cuda")
    child = os.fork()
    if not child:
        try:
            rlcpu.make_vec("CartPole-v1", 8, device="cuda")
        except CudaUnavailableError as error:
            os._exit(0 if "before forking" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_rollouts_reach_the_driver() -> None:
    env = rlcpu.make_vec("CartPole-v1", 200, device="cuda", autoreset_mode="SameStep")
    env.reset(seed=0)
    env.step(np.zeros(200, np.int64))
    calls()
    rlcpu.collect(env, rlcpu.policies.Uniform(), 3)
    rlcpu.simulate(env, rlcpu.policies.Uniform(), 3)
    threads = [line.split()[-1] for line in calls() if line.startswith("_Z")]
    assert threads == ["256", "256"]
