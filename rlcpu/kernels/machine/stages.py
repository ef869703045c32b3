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

from rlcpu.kernels.compiler.compile import EXACT, c_function, inline_source
from rlcpu.kernels.machine.memory import call_at
from rlcpu.kernels.machine.structs import Struct

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
    """Return n stages for `run_stages`, (2 * n + 1,), of which the last is 0.

    Whoever passes them on keeps the stages alive.
    """
    return np.array([word for stage in stages for word in stage.words] + [0], np.int64)


@inline_source
def run_stages(words):
    """Call stages one after the other, in a kernel; see `words_of`."""
    k = 0
    while words[k] != 0:
        call_at(words[k], (words[k + 1],))
        k += 2


class LastMade:
    """Memory of the object that was made last under each name, to be used again.

    To make a stage takes longer than many a one takes. A copy of the memory begins empty.
    """

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Any, Any]] = {}  # keys, and what was made for them

    def __reduce__(self) -> Any:
        return LastMade, ()

    def of(self, name: Any, key: Any, make: Callable[..., Any], *args: Any) -> Any:
        """Return `make(*args)`, or what it returned last for the name, if the key is the same.

        A key may have ids of objects that what is made keeps alive.
        """
        last_key, made = self._made.get(name, (None, None))
        if key != last_key:
            made = make(*args)
            self._made[name] = key, made
        return made

    def get(self, name: Any) -> Any:
        """Return what was made last for a name, or None."""
        return self._made.get(name, (None, None))[1]

    def clear(self) -> None:
        """Forget all."""
        self._made.clear()
