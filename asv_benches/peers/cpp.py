"""C++, compiled where it runs: the same physics as ours, and the machine's FMA peak."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from asv_benches.peers import machine
from asv_benches.peers.harness import Contender, Job, best_of, drawn

COMMON = ("-O3", "-march=native", "-fopenmp")
WIDE = "-mprefer-vector-width=512"
# Traps and errno keep gcc 12 from vectorising the loop (12 times slower): plain -O3 is no variant.
VARIANTS = {
    "-ffast-math": ("-ffast-math",),
    "-ffast-math, 512 bits": ("-ffast-math", WIDE),
    "IEEE without traps, 512 bits": ("-fno-trapping-math", "-fno-math-errno", WIDE),
}
CHAINS, LANES = 12, 16  # of fma_peak.cpp


@functools.cache
def load(source: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Compiles a file beside this one into a shared library and loads it.

    Raises:
        ModuleNotFoundError: there is no g++.
        RuntimeError: the compiler's complaint.
    """
    with tempfile.TemporaryDirectory() as folder:
        code, library = f"{folder}/code.o", f"{folder}/library.so"
        path = str(Path(__file__).parent / source)
        run_compiler([*COMMON, *flags, "-fPIC", "-c", path, "-o", code])
        # Linked without the flags: with -ffast-math, gcc adds a start-up routine that makes the
        # whole process flush subnormals to zero, every later measurement (and test) with it.
        run_compiler([*COMMON, "-shared", code, "-o", library])
        return ctypes.CDLL(library)


def run_compiler(arguments: Sequence[str]) -> None:
    if not shutil.which("g++"):
        raise ModuleNotFoundError("no g++")
    done = subprocess.run(["g++", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Where an array begins, for C; keeps the array alive."""
    return array.ctypes.data_as(ctypes.c_void_p)


def cpp_cartpole(flags: tuple[str, ...], num_envs: int, num_steps: int) -> Job:
    """Fused steps, actions drawn inside. A call returns episodes, their returns, their lengths."""
    function = load("cartpole.cpp", flags).simulate
    rng = np.random.default_rng(0)
    arrays = (
        rng.uniform(-0.05, 0.05, (4, num_envs)).astype(np.float32),
        np.zeros(num_envs, np.int32),
        np.zeros(num_envs, np.float32),
        rng.integers(0, 2**32, (2, num_envs), dtype=np.uint32),
    )
    statistics = np.zeros(3)
    sizes = ctypes.c_int64(num_envs), ctypes.c_int64(num_steps)
    arguments, result = [*map(pointer, arrays), *sizes], pointer(statistics)

    def simulate(counter: int) -> np.ndarray:
        function(*arguments, ctypes.c_uint32(counter), result)
        return statistics

    def counters(rng: np.random.Generator, count: int) -> Iterable[tuple[int]]:
        """Of the generator, never the same twice."""
        first = int(rng.integers(2**31))
        return zip(range(first, first + count * num_steps, num_steps), strict=True)

    return Job(simulate, counters, num_envs * num_steps)


def cpp_best(num_envs: int, num_steps: int) -> Contender:
    variants = {k: partial(cpp_cartpole, v, num_envs, num_steps) for k, v in VARIANTS.items()}
    return best_of("C++", variants)


def fma_peak(iterations: int = 10_000_000, cores: int | None = None) -> Job:
    """The float32 peak of so many cores, None for all, in operations.

    A call takes 20 ms: one of 0.2 ms would measure how long threads take to wake up.
    """
    function = load("fma_peak.cpp", (WIDE,)).fma_peak
    function.restype = ctypes.c_float
    cores = cores or machine.cores()
    sizes = ctypes.c_int64(iterations), ctypes.c_int(cores)

    def multiply_and_add(factor: float, term: float) -> float:
        """The sum of all threads' chains, which keeps the compiler honest."""
        return float(function(*sizes, ctypes.c_float(factor), ctypes.c_float(term)))

    work = 2.0 * LANES * CHAINS * iterations * cores
    # Chains with such factors stay finite.
    return Job(multiply_and_add, drawn(lambda rng: tuple(rng.uniform(0.1, 0.9, 2))), work)
