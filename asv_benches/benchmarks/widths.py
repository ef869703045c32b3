"""Vectors of laptops: the same kernels where processors have AVX2 alone."""

from __future__ import annotations

import os
import subprocess
import sys

from ._common import Quick

#: Programs that print the seconds of their fastest call, of many in half a second.
PROGRAMS = {
    "simulate": """
import rlcpu
env = rlcpu.make_vec("CartPole-v1", 4096, num_threads=1)
env.reset(seed=0)
call = lambda: rlcpu.simulate(env, rlcpu.policies.Uniform(), num_steps=100)
""",
    "solve_tridiagonal": """
import numpy, rlcpu.scan
rng = numpy.random.default_rng(0)
lower, upper, right = rng.uniform(-1.0, 1.0, (3, 4096, 512)).astype(numpy.float32)
diagonal = numpy.full((4096, 512), 4.0, numpy.float32)
out = numpy.empty_like(right)
call = lambda: rlcpu.scan.solve_tridiagonal(lower, diagonal, upper, right, out=out)
""",
}
AVX2 = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma"
FASTEST = """
import time
call()
times, end = [], time.perf_counter() + 0.5
while len(times) < 5 or time.perf_counter() < end:
    begin = time.perf_counter()
    call()
    times.append(time.perf_counter() - begin)
print(min(times))
"""


class Widths(Quick):
    """Calls where vectors have 32 bytes, as most laptops', beside those of this machine."""

    params, param_names = (list(PROGRAMS),), ("call",)
    number = 1
    rounds = 3

    def track_avx2(self, call):
        """Seconds with AVX2 alone."""
        return measure(call, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=AVX2)

    def track_machine(self, call):
        """Seconds with all that the processor has."""
        return measure(call)

    track_avx2.unit = track_machine.unit = "seconds"  # type: ignore[attr-defined]


def measure(call: str, **environment: str) -> float:
    """Seconds of the fastest call in a process with other variables of its environment."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[call] + FASTEST],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
