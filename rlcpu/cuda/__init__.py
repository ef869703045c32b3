"""The same scalar functions on NVIDIA GPUs: `device="cuda"` wherever it is taken.

Nothing in the rest of the package imports this one at import time; `pip install '.[cuda]'`
brings what it needs.

Read `device` (arrays and launches) and `compile` with `maths`, which alone know the compiler. Each
other file does here what a room of `envs`, `replay` or `scan` does on the CPU, by the same rules.
"""

from rlcpu.cuda.device import (
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    describe,
    is_available,
)
from rlcpu.cuda.faults import synchronize

__all__ = [
    "CudaError",
    "CudaMemoryError",
    "CudaUnavailableError",
    "describe",
    "is_available",
    "synchronize",
]
