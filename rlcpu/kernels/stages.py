"""Stages of longer work: compiled functions with their arguments, for Python and for kernels.

A kernel that does one thing after the other knows a list of stages by two numbers each, and calls
them by `run_stages`. It is compiled once, whatever they do; and each of them is, for all who call
it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import EXACT, c_function, inline_source
from rlcpu.kernels.memory import call_at
from rlcpu.kernels.structs import Struct

_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class Stage:
    """A compiled function and its argument, with which Python calls it: `stage()`.

    Args:
        body: function of a view of a struct, which returns None, and neither raises nor allocates.
        argument: the struct.
        alive: objects whose memory the struct has by its address; None if it has none.

    Attributes:
        argument, alive: see above; the stage keeps both alive.
        words: address of the function, and of its argument.
    """

    def __init__(self, body: Callable[[Any], None], argument: Struct, alive: Any = None) -> None:
        function, self._call = _compile(body, type(argument))
        self.argument, self.alive, self.words = argument, alive, (function, argument.address)

    def __call__(self) -> None:
        """Call the function with the argument."""
        self._call(self.words[1])


@functools.cache
def _compile(body: Callable[[Any], None], kind: Any) -> tuple[int, Any]:
    """Return the address of a function of a struct, and what calls it from Python."""
    address = c_function(body, (kind.view,), fastmath=EXACT)
    return address, _PROTOTYPE(address)


def words_of(stages: Sequence[Stage]) -> npt.NDArray[np.int64]:
    """Return stages for `run_stages`, (n, 2); whoever passes them on keeps the stages alive."""
    return np.array([stage.words for stage in stages], np.int64).reshape(-1, 2)


@inline_source
def run_stages(words):
    """Call stages one after the other, in a kernel; see `words_of`."""
    for k in range(words.shape[0]):
        call_at(words[k, 0], (words[k, 1],))
