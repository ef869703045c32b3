"""C++, compiled where it runs: the same physics as ours, and the machine's FMA peak."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asv_benches.peers import machine
from asv_benches.peers.duel import Best

HERE = Path(__file__).parent
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
def load(source: str, flags: Sequence[str]) -> ctypes.CDLL:
    """Compiles a file beside this one into a shared library and loads it.

    Raises:
        ModuleNotFoundError: there is no g++.
        RuntimeError: the compiler's complaint.
    """
    with tempfile.TemporaryDirectory() as folder:
        code, library = f"{folder}/code.o", f"{folder}/library.so"
        run_compiler([*COMMON, *flags, "-fPIC", "-c", str(HERE / source), "-o", code])
        # Linked without the flags: with -ffast-math, gcc adds a start-up routine that makes the
        # whole process flush subnormals to zero, every later measurement (and test) with it.
        run_compiler([*COMMON, "-shared", code, "-o", library])
        return ctypes.CDLL(library)


def run_compiler(arguments: Sequence[str]) -> None:
    """Runs g++; raises as `load` says."""
    try:
        subprocess.run(["g++", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise ModuleNotFoundError("no g++") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(error.stderr) from error


@dataclass
class CppSimulate:
    """`num_steps` fused steps of CartPole in C++, actions drawn inside.

    Attributes:
        name: the variant.
        num_envs: number of environments.
        num_steps: steps per call.
        flags: of the compiler, beside `COMMON`.
    """

    name: str
    num_envs: int
    num_steps: int
    flags: tuple[str, ...]
    episodes: int = 0
    _call: Any = field(default=None, repr=False)

    @property
    def work(self) -> float:
        """Environment steps per call."""
        return self.num_envs * self.num_steps

    def setup(self) -> None:
        """Compiles, and starts every environment in its own random state."""
        simulate = load("cartpole.cpp", self.flags).simulate
        rng = np.random.default_rng(0)
        self._arrays = (
            rng.uniform(-0.05, 0.05, (4, self.num_envs)).astype(np.float32),
            np.zeros(self.num_envs, np.int32),
            np.zeros(self.num_envs, np.float32),
            rng.integers(0, 2**32, (2, self.num_envs), dtype=np.uint32),
        )
        self.statistics = np.zeros(3)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in self._arrays]
        sizes = ctypes.c_int64(self.num_envs), ctypes.c_int64(self.num_steps)
        statistics = ctypes.c_void_p(self.statistics.ctypes.data)
        self._call = lambda counter: simulate(
            *pointers, *sizes, ctypes.c_uint32(counter), statistics
        )

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[int]:
        """Counters of the generator, never the same twice."""
        first = int(rng.integers(0, 2**31))
        return range(first, first + count * self.num_steps, self.num_steps)

    def run(self, inputs: Iterable[int]) -> None:
        """One call for each counter."""
        for counter in inputs:
            self._call(counter)


@dataclass
class FmaPeak:
    """The float32 peak of all cores, in operations."""

    name: str = "FMA peak"
    iterations: int = 100_000

    @property
    def work(self) -> float:
        """Floating-point operations per call."""
        return 2.0 * LANES * CHAINS * self.iterations * machine.cores()

    def setup(self) -> None:
        """Compiles."""
        self._function = load("fma_peak.cpp", (WIDE,)).fma_peak
        self._function.restype = ctypes.c_float

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[tuple[float, float]]:
        """Factor and term of every call's chains, which stay finite."""
        return rng.uniform(0.1, 0.9, (count, 2)).tolist()

    def run(self, inputs: Iterable[tuple[float, float]]) -> None:
        """One call for each pair."""
        for factor, term in inputs:
            self.run_once(factor, term)

    def run_once(self, factor: float, term: float) -> float:
        """One call; returns the sum of all threads' chains, which keeps the compiler honest."""
        sizes = ctypes.c_int64(self.iterations), ctypes.c_int(machine.cores())
        return float(self._function(*sizes, ctypes.c_float(factor), ctypes.c_float(term)))


def cpp_simulate(num_envs: int, num_steps: int) -> Best:
    """C++ with the flags that are fastest here."""
    variants = [CppSimulate(name, num_envs, num_steps, flags) for name, flags in VARIANTS.items()]
    return Best("C++", variants)
