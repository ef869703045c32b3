"""Observations of two environments as numbers, part by part, for `rlcpu.envs.compare`.

"Ours" is a `Dynamics`, "theirs" an environment of Gymnasium. Their spaces may differ: a board of
cells here is an image there, a choice a number.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Tuple,
    flatdim,
    flatten,
)

Array = npt.NDArray[Any]


class Part(NamedTuple):
    """A part of an observation."""

    name: str  # "" where there are no parts
    ours: Any  # its space here
    theirs: Any  # and there

    @property
    def is_real(self) -> bool:
        """Tell whether its numbers are real ones, which rounding changes."""
        return isinstance(self.ours, Box) and self.ours.dtype == np.float32

    def count_theirs(self) -> int:
        """Return how many numbers of theirs are compared; see `their_numbers`."""
        if isinstance(self.ours, Discrete | MultiDiscrete) or isinstance(self.theirs, Box):
            return count_of(self.theirs)
        return flatdim(self.theirs)


def parts_of(space: Any) -> dict[str, Any]:
    """Return the parts of a `Dict` by name; another space as one part without a name.

    A part of a part has the names of both, with "_" between them.
    """
    return values_of(space, space)


def values_of(space: Any, value: Any) -> dict[str, Any]:
    """Return the parts of an observation, or of another value with such parts; see `parts_of`."""
    if not isinstance(space, Dict):
        return {"": value}
    return {
        "_".join(filter(None, (name, inner))): item
        for name, part in space.items()
        for inner, item in values_of(part, value[name]).items()
    }


def count_of(space: Any) -> int:
    """Return how many numbers an observation of a space without parts has."""
    if isinstance(space, Tuple):
        return sum(map(count_of, space))
    return 1 if isinstance(space, Discrete) else math.prod(space.shape)


def our_numbers(part: Part, value: Any) -> Array:
    """Return a part of our observation as numbers, (count,) float64: boards as their cells."""
    space = part.ours
    if isinstance(space, MultiBinary) and isinstance(value, tuple):
        cells = range(math.prod(space.shape[1:]))
        return np.array([board >> k & 1 for board in value for k in cells], np.float64)
    return _rounded(space, value)


def their_numbers(part: Part, value: Any) -> Array:
    """Return a part of an observation of the other environment as numbers, (count,) float64.

    Numbers of a `Discrete` or `MultiDiscrete` of ours stay as they are, those of other spaces
    become one-hot. Channels may be the last axis of theirs, where boards have them first.
    """
    ours, array = part.ours, np.asarray(value)
    if isinstance(ours, MultiBinary) and array.shape == (*ours.shape[1:], ours.shape[0]):
        array = np.moveaxis(array, -1, 0)
    elif not isinstance(ours, Discrete | MultiDiscrete) and not isinstance(part.theirs, Box):
        array = np.asarray(flatten(part.theirs, value))
    return _rounded(ours, array)


def _rounded(space: Any, value: Any) -> Array:
    """Return numbers, (count,) float64, real ones rounded as our space has them: to float32."""
    array = np.asarray(value, np.float64)
    if isinstance(space, Box) and space.dtype == np.float32:  # `Part.is_real`
        with np.errstate(over="ignore"):
            array = array.astype(np.float32).astype(np.float64)
    return array.ravel()


def differ_in_bounds(ours: Any, theirs: Any) -> bool:
    """Tell whether both spaces are a `Box`, with other bounds, beyond rounding."""
    if not (isinstance(ours, Box) and isinstance(theirs, Box)):
        return False
    # In float64: the largest of float32 has no neighbour.
    here, there = (
        np.array([space.low, space.high], np.float64).reshape(2, -1) for space in (ours, theirs)
    )
    return not np.allclose(here, there, rtol=1e-6)
