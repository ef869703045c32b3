"""The same scalar functions on NVIDIA GPUs: `device="cuda"` wherever it is taken.

Nothing in the rest of the package imports this one at import time; `pip install 'numba-cuda[cu13]'`
brings what it needs.
"""

from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import synchronize
from rlcpu.cuda.provider import CudaMemoryError, CudaUnavailableError, describe, is_available

__all__ = [
    "CudaMemoryError",
    "CudaUnavailableError",
    "DeviceArray",
    "describe",
    "is_available",
    "synchronize",
]
