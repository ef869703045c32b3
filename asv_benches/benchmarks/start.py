"""The start of a process."""

from __future__ import annotations


class Start:
    """Fresh interpreters: asv's `timeraw` starts one per measurement."""

    version = "1"

    def timeraw_import(self) -> str:
        """`import rlcpu`."""
        return "import rlcpu"

    def timeraw_import_dependencies(self) -> str:
        """What it imports, for comparison."""
        return "import numba, gymnasium"

    def timeraw_first_step(self) -> str:
        """Import and first `env.step`, its kernel loaded from the cache."""
        return """
        import numpy, rlcpu
        env = rlcpu.make_vec("CartPole-v1", 16)
        env.reset(seed=0)
        env.step(numpy.zeros(16, int))
        """
