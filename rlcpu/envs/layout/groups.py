"""Observations of several parts: spaces that a part may have, and how memory holds all of them.

A "group" is an observation of a `Dict` space; its parts are the values by name. Memory holds a
group in one run of bytes, in which each part has its own dtype, as in a structured dtype of NumPy:
a float is a float32, a choice (of a `Discrete`) an int32, a board four words of 32 cells, and an
array is of the dtype of its space. So rollouts keep one array for observations, whatever they
consist of, and `rlcpu.envs.engine.observations.ObservationView` cuts it into parts.

`observe` either returns a NamedTuple of the parts, or, where states have arrays, is written as
`observe(state, params, out)` and writes into the fields of `out`. A space that is a lone `Box` of
whole numbers, such as an image, is treated like a group of one part, `INT_ARRAY`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from rlcpu.envs.layout.arrays import ArrayField, ArrayLayout, layout_of_fields
from rlcpu.envs.layout.values import Field, Layout
from rlcpu.kernels.machine.boards import CELLS

#: Name of the part that a lone array of whole numbers is.
INT_ARRAY = "image"
#: Dtypes of whole numbers that an `observe` with `out` may write. Larger ones would have to begin
#: at multiples of eight bytes.
_WRITTEN = ("uint8", "int8", "uint16", "int16", "uint32", "int32")


def num_inputs(space: Any) -> int:
    """Return how many numbers a network gets for one observation of a space.

    A choice among n is n zeros and ones, all else is flattened, and the parts of a `Dict` follow
    each other in its order.
    """
    if isinstance(space, Dict):
        return sum(map(num_inputs, space.values()))
    if isinstance(space, Discrete):
        return int(space.n)
    if isinstance(space, MultiDiscrete):
        return int(space.nvec.sum())
    return math.prod(space.shape)


def inputs_by_part(space: Dict) -> dict[str, int]:
    """Return how many numbers a network gets for each part of a group."""
    return {name: num_inputs(part) for name, part in space.items()}


def is_image(space: Any) -> bool:
    """Tell whether observations of a space are images, numbers with three axes."""
    return isinstance(space, Box | MultiBinary) and len(space.shape) == 3


# ---------------------------------------------------------------- environments of our own kernels


def check_group(space: Dict, is_written: bool) -> str:
    """Return why our kernels cannot have a `Dict` as an observation space; "" if they can.

    Args:
        space: of observations.
        is_written: whether `observe` writes into `out`, not returns the parts.
    """
    if not space.spaces:
        return "has no part: expected one at least"
    for name, part in space.items():
        if not (isinstance(name, str) and name.isidentifier()) or name.startswith("_"):
            return f"has a part {name!r}: expected names that attributes may have"
        if isinstance(part, Dict):
            return (
                f"has the part {name}, {part}: parts have no parts; give them names here, as "
                f"{name}_{next(iter(part), 'part')}"
            )
        wanted_space = (_expected_if_written if is_written else _expected_if_returned)(part)
        if wanted_space:
            return f"has the part {name}, {describe_space(part)}: expected {wanted_space}"
    return ""


def _expected_if_returned(part: Any) -> str:
    """Return "" if `observe` may return this part, else the spaces of parts that it may return."""
    wanted = "a float32 Box of one axis, Discrete, MultiDiscrete of one axis or MultiBinary"
    if isinstance(part, Discrete):
        return ""
    if isinstance(part, MultiBinary):
        is_board = len(part.shape) == 3 and math.prod(part.shape[1:]) <= CELLS
        return "" if is_board else f"(planes, rows, columns), at most {CELLS} cells a plane"
    if isinstance(part, MultiDiscrete):
        return "" if part.nvec.ndim == 1 and part.nvec.size else wanted
    is_box = isinstance(part, Box) and len(part.shape) == 1 and part.shape[0] > 0
    if is_box and part.dtype == np.float32:
        return ""
    arrays = "; arrays are written by observe(state, params, out), where states have arrays"
    return wanted + (arrays if isinstance(part, Box) else "")


def _expected_if_written(part: Any) -> str:
    """Return "" if `observe` may write this part, else the spaces of parts that it may write."""
    wanted = f"a Box of float32, {', '.join(_WRITTEN)}, Discrete, MultiDiscrete or MultiBinary"
    if isinstance(part, Discrete):
        return ""
    known = isinstance(part, Box | MultiBinary | MultiDiscrete)
    if not known or math.prod(part.shape) == 0 or not part.shape:
        return wanted
    is_box = isinstance(part, Box)
    return wanted if is_box and part.dtype.name not in ("float32", *_WRITTEN) else ""


def is_int_array(space: Any) -> bool:
    """Tell whether a space is a lone `Box` of whole numbers: memory has it as a group of one."""
    return isinstance(space, Box) and space.dtype.name in _WRITTEN


def written_layout(space: Any) -> ArrayLayout:
    """Return the layout of `out`, into which `observe` writes a group or an array of ints."""
    parts = Dict({INT_ARRAY: space}) if is_int_array(space) else space
    return layout_of_fields("Observation", tuple(_written_fields(parts)))


def _written_fields(space: Dict) -> Iterator[ArrayField]:
    """Yield the fields of the `out` into which `observe` writes a group, one for each part."""
    for name, part in space.items():
        if isinstance(part, Discrete):
            yield ArrayField(name, np.int32, ())
        elif isinstance(part, MultiDiscrete):
            yield ArrayField(name, np.int32, part.shape)
        elif isinstance(part, MultiBinary):
            yield ArrayField(name, np.int8, tuple(part.shape))
        else:
            kind: Any = part.dtype.type  # type: ignore[union-attr]
            yield ArrayField(name, "float" if kind is np.float32 else kind, part.shape)  # type: ignore[arg-type]


def returned_layout(id: str, space: Dict, observation: Any) -> Layout:
    """Return the layout of the NamedTuple of parts that `observe` returns.

    Args:
        id: of the environment, for errors.
        space: of observations.
        observation: a result of `observe`.

    Raises:
        TypeError: `observation` is not a NamedTuple of the parts of the space.
    """
    names = getattr(type(observation), "_fields", ())
    if sorted(names) != sorted(space):
        returned = f"one of {', '.join(names)}" if names else repr(observation)
        raise TypeError(
            f"{id}: observe has to return a NamedTuple of {', '.join(space)}, the parts of "
            f"observation_space; returned {returned}"
        )
    return Layout(type(observation), tuple(_returned_field(name, space[name]) for name in names))


def _returned_field(name: str, part: Any) -> Field:
    """Return the field of a part that `observe` returns, of its space."""
    if isinstance(part, Discrete):
        return Field(name, "int", 0)
    if isinstance(part, MultiDiscrete):
        return Field(name, "int", len(part.nvec))
    kind = "board" if isinstance(part, MultiBinary) else "float"
    return Field(name, kind, part.shape[0])


def byte_places(layout: Layout | ArrayLayout) -> dict[str, int]:
    """Return the first byte of each part in the memory of a group."""
    if isinstance(layout, ArrayLayout):
        fields: Any = layout.record(np.float32).fields
        return {field.name: int(fields[field.name][1]) for field in layout.fields}
    return {field.name: 4 * first for field, first in layout.fields_with_rows(np.float32)}


# ---------------------------------------------------------------- values outside of their space


def fault_of_value(space: Any, value: Any, slack: float = 0.0) -> str:
    """Return the first number of a value outside of its space, as "[2]=7.0: expected 0 to 5".

    "" if the whole value lies in the space.

    Args:
        space: of any kind but a `Dict`.
        value: a number, a tuple of numbers or boards, or an array.
        slack: by which fraction of a bound floats may be beyond it.
    """
    if isinstance(space, Discrete):
        low, high = int(space.start), int(space.start + space.n - 1)
        return "" if low <= value <= high else f"={value}: expected {low} to {high}"
    if isinstance(space, MultiBinary) and isinstance(value, tuple):
        cells = math.prod(space.shape[1:])
        for plane, board in enumerate(value):
            if board >> cells:  # a cell behind the last one is set
                cell = board.bit_length() - 1
                return f" has cell {cell} of plane {plane}: expected 0 to {cells - 1}"
        return ""
    array = np.asarray(value)
    low, high = _bounds(space)
    # Of an infinite bound, and of the largest number of its dtype.
    with np.errstate(invalid="ignore", over="ignore"):
        is_outside = (array < low - slack * abs(low)) | (array > high + slack * abs(high))
    if not is_outside.any():
        return ""
    index = tuple(np.argwhere(is_outside)[0].tolist())
    low, high = (np.broadcast_to(bound, array.shape)[index] for bound in (low, high))
    return f"{list(index) or ''}={array[index]}: expected {low} to {high}"


def _bounds(space: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest values of a space, which NumPy can broadcast."""
    if isinstance(space, MultiBinary):
        return np.int64(0), np.int64(1)
    if isinstance(space, MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return space.low, space.high


def describe_space(space: Any) -> str:
    """Return the text of a space, of a `Box` without the thousands of bounds of an image."""
    if isinstance(space, Box):
        return f"Box({space.shape}, {space.dtype})"
    text = " ".join(repr(space).split())
    return text if len(text) < 200 else f"{text[:200]}..."
