"""The start of a process: fresh interpreters, which asv's `timeraw` starts for each measurement."""

from __future__ import annotations

import textwrap

from ._common import Quick

IMPORTS = {"step": "import rlcpu", "sum_tree": "import rlcpu.replay", "gae": "import rlcpu.scan"}
CALLS = {
    "step": """
        env = rlcpu.make_vec("CartPole-v1", 16)
        env.reset(seed=0)
        env.step(numpy.zeros(16, int))
        """,
    "sum_tree": """
        tree = rlcpu.replay.SumTree(1000, seed=0)
        tree.update(numpy.arange(10), numpy.ones(10))
        tree.sample(4)
        """,
    "gae": """
        steps = numpy.zeros((4, 2), numpy.float32)
        ends = numpy.zeros((4, 2), bool)
        rlcpu.scan.gae(steps, steps, ends, ends, steps[0], gamma=0.99, lambda_=0.95)
        """,
}
EMPTY_CACHE = """
import os, tempfile
folder = tempfile.TemporaryDirectory()
os.environ["NUMBA_CACHE_DIR"] = folder.name
"""


class Import(Quick):
    """Importing, nothing compiled."""

    number = 1
    repeat = 5

    def timeraw_rlcpu(self) -> str:
        """`import rlcpu`."""
        return "import rlcpu"

    def timeraw_dependencies(self) -> str:
        """What it imports, for comparison."""
        return "import numba, gymnasium"


class FirstCall(Quick):
    """From the interpreter's start to a first result: import and first call."""

    params = (list(CALLS),)
    param_names = ("job",)
    number = 1
    warmup_time = 0.0

    def timeraw_warm(self, job: str) -> str:
        """The kernels are loaded from the cache."""
        return program(job)

    def timeraw_cold(self, job: str) -> tuple[str, str]:
        """The cache is empty: every kernel is compiled."""
        return program(job), EMPTY_CACHE


FirstCall.timeraw_warm.repeat = 3  # type: ignore[attr-defined]
FirstCall.timeraw_cold.repeat = 1  # type: ignore[attr-defined]


def program(job: str) -> str:
    """Imports and call."""
    return f"import numpy\n{IMPORTS[job]}\n{textwrap.dedent(CALLS[job]).strip()}\n"
