"""Runs dieharder on the random numbers that kernels draw, of `rlcpu.kernels.machine.random`.

    python tests/kernels/dieharder.py                        all streams, into dieharder.txt: hours
    python tests/kernels/dieharder.py ORDER DTYPE | dieharder -g 200 -a       bits of one stream

The bits of a stream are the numbers of `uniforms` times 2**24 (float32, three bytes a number) or
times 2**32 (float64, four bytes). ORDER is

* steps: number 0 of one environment's steps 0, 1, 2, ...
* numbers: numbers 0 to 4 of step 0, then those of step 1, ...
* environments: number 0 of step 0 of the environments with seeds 0, 1, 2, ...

Every test starts a stream anew, so that another run gives the same report. One p-value in a hundred
of a perfect generator is called WEAK: the test is then repeated with ten times the samples, in the
lines that follow. Tests that dieharder itself calls suspect or unusable (5, 6, 7, 14) are left out.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.random import keys, mix, uniforms

ORDERS = ("steps", "numbers", "environments")
BITS = {"float32": 24, "float64": 32}
CHUNK = 1 << 20
NUMBERS = 5
#: Test numbers, with the length of the tuples (or the lag) where a test has several.
TESTS = (
    *((test, None) for test in (0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 15, 16, 17, 100, 101, 102)),
    *((200, size) for size in (1, 4, 8, 12)),
    *((201, size) for size in (2, 3, 4, 5)),
    *((202, size) for size in (2, 3, 4, 5)),
    *((203, lag) for lag in (0, 1, 4, 31)),
    *((test, None) for test in (204, 205, 206, 207, 208, 209)),
)
VERDICT = re.compile(r"\|\s+(PASSED|WEAK|FAILED)\s*$")
COLUMNS = "        test_name   |ntup| tsamples |psamples|  p-value |Assessment"
REPORT = Path(__file__).with_suffix(".txt")


def make_draw(dtype: str, count: int) -> Callable[..., None]:
    """Kernel (key_low, key_high, counters, numbers (n, count)) that draws for each key."""
    draw = uniforms(count, 0, np.dtype(dtype).type)

    @kernel
    def fill(key_low: Any, key_high: Any, counters: Any, numbers: Any) -> None:
        for i in range(numbers.shape[0]):
            a, b = mix(key_low[i], key_high[i], counters[i])
            row = draw(a, b)
            for k in range(count):
                numbers[i, k] = row[k]

    return fill


def stream(order: str, dtype: str) -> Iterator[bytes]:
    """Endless bits of one order and dtype, in chunks."""
    count = NUMBERS if order == "numbers" else 1
    draw, numbers = make_draw(dtype, count), np.empty((CHUNK, count), dtype)
    for first in range(0, 2**32, CHUNK):
        sequence = np.arange(first, first + CHUNK, dtype=np.uint64)
        environments = order == "environments"
        low, high = keys(sequence if environments else np.zeros(CHUNK, np.uint64))
        draw(low, high, np.zeros_like(low) if environments else sequence.astype(np.uint32), numbers)
        words = (numbers.ravel() * 2.0 ** BITS[dtype]).astype("<u4")
        yield words.view(np.uint8).reshape(-1, 4)[:, : BITS[dtype] // 8].tobytes()


def write(order: str, dtype: str, output: BinaryIO) -> None:
    """Write a stream until the reader has had enough."""
    try:
        for chunk in stream(order, dtype):
            output.write(chunk)
    except BrokenPipeError:
        return


def run_dieharder(order: str, dtype: str, test: int, options: list[str]) -> list[str]:
    """Dieharder's lines on one test; the last columns are p-value and verdict."""
    source = [sys.executable, __file__, order, dtype]
    command = ["dieharder", "-g", "200", "-d", str(test), *options]
    with subprocess.Popen(source, stdout=subprocess.PIPE) as writer:
        done = subprocess.run(command, stdin=writer.stdout, capture_output=True, check=True)
        assert writer.stdout is not None
        writer.stdout.close()
    lines = done.stdout.decode().splitlines(keepends=True)
    return [line for line in lines if VERDICT.search(line)]


def assess(order: str, dtype: str, test: int, size: int | None) -> str:
    """The lines on one test, and those of its repetition with ten times the samples, if any."""
    options = [] if size is None else ["-n", str(size)]
    lines = run_dieharder(order, dtype, test, options)
    if not all("PASSED" in line for line in lines):
        samples = max(int(line.split("|")[3]) for line in lines)
        lines += run_dieharder(order, dtype, test, [*options, "-p", str(10 * samples)])
    return "".join(lines)


def main(arguments: list[str]) -> None:
    """See the module's docstring."""
    if arguments:
        write(*arguments, sys.stdout.buffer)
        return
    if not shutil.which("dieharder"):
        sys.exit("dieharder is not installed (Debian: apt-get install dieharder)")
    with REPORT.open("w", buffering=1) as report:
        for order, dtype in itertools.product(ORDERS, BITS):
            command = f"python tests/kernels/dieharder.py {order} {dtype} | dieharder -g 200 -d ..."
            report.write(f"# {command}\n{COLUMNS}\n")
            for test, size in TESTS:
                report.write(assess(order, dtype, test, size))


if __name__ == "__main__":
    main(sys.argv[1:])
