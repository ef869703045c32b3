"""States with arrays: what their authors write, and how memory holds them, one record each.

A record is an element of a structured NumPy dtype. Kernels and plain Python change it in place,
by the same source: `state.body[i] = cell`.
"""

from __future__ import annotations

import functools
import math
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "ArrayField", "ArrayLayout", "Numbers", "State", "layout_of_class"]

#: Whole numbers and bools by the type hints that name them. Those of "float" are of the
#: environment's dtype. Others than these mix badly: a uint64 and an int64 make a float64.
_DTYPES: dict[Any, Any] = {float: "float", int: np.int64, bool: np.bool_, np.bool_: np.bool_}
_DTYPES |= {kind: kind for kind in (np.int8, np.int16, np.int32, np.int64)}
_DTYPES |= {kind: kind for kind in (np.uint8, np.uint16, np.uint32)}
_WANTED = (
    "float, int, bool, or Array[dtype, *shape] of one of these or a NumPy integer of at most 32 "
    "bits or int64, as Array[np.uint8, 10, 10]"
)


class _ArrayHint(NamedTuple):
    """Dtype and shape that the type hint `Array[dtype, *shape]` names."""

    dtype: Any
    shape: tuple[Any, ...]

    def __repr__(self) -> str:
        items = [getattr(self.dtype, "__name__", repr(self.dtype)), *map(repr, self.shape)]
        return f"Array[{', '.join(items)}]"


if TYPE_CHECKING:
    from typing import Annotated as Array
else:

    class Array:
        """Type hint of a field that is an array: `grid: Array[np.uint8, 10, 10]`."""

        def __class_getitem__(cls, items: Any) -> _ArrayHint:
            dtype, *shape = items if isinstance(items, tuple) else (items,)
            return _ArrayHint(dtype, tuple(shape))


class ArrayField(NamedTuple):
    """One field of a state with arrays.

    Attributes:
        name: as the class has it.
        dtype: of its numbers; "float" for that of the environment.
        shape: of an array; () for a number.
    """

    name: str
    dtype: Any
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return how many numbers the field has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        kind = "float" if self.dtype == "float" else np.dtype(self.dtype).name
        shape = f" ({', '.join(map(str, self.shape))})" if self.shape else ""
        return f"{self.name}: {kind}{shape}"


class ArrayLayout(NamedTuple):
    """The fields of a state with arrays, as `Layout` has those of others.

    Attributes:
        made: the class, a subclass of `State`.
        fields: in their order.
    """

    made: Any
    fields: tuple[ArrayField, ...]

    @property
    def is_plain(self) -> bool:
        """Return False: a state is no tuple of floats; see `Layout`."""
        return False

    @property
    def is_record(self) -> bool:
        """Return True: a state is one record of memory."""
        return True

    def record(self, dtype: Any) -> np.dtype[Any]:
        """Return the structured dtype of a state in an environment of a dtype."""
        return _record_type(self, np.dtype(dtype))

    def rows(self, dtype: type) -> int:
        """Return how many numbers of the dtype take the memory of a state."""
        return self.record(dtype).itemsize // np.dtype(dtype).itemsize

    def real_spans(self, dtype: type) -> list[tuple[int, int]]:
        """Return first place and count of the floats of each field, among those of a state."""
        places: Any = self.record(dtype).fields
        size = np.dtype(dtype).itemsize
        return [(places[f.name][1] // size, f.size) for f in self.fields if f.dtype == "float"]

    def records(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return (n, rows) of memory as n records: a view where each is contiguous."""
        held = np.ascontiguousarray(rows)
        return held.view(self.record(held.dtype))[:, 0]

    def states(self, rows: npt.NDArray[Any]) -> list[Any]:
        """Return n plain states, copies, from (n, rows) of memory."""
        records = self.records(rows).astype(self.record(np.float64))
        return [self.made._of(records[i : i + 1].reshape(())) for i in range(len(records))]

    def names_not_finite(self, state: Any) -> list[str]:
        """Return the fields of a plain state that hold NaN or infinity."""
        return [f.name for f in self.fields if not np.isfinite(state._record[f.name]).all()]

    def memory(self, states: Any, dtype: type) -> npt.NDArray[Any]:
        """Return (n, rows) of the memory of plain states."""
        records = np.zeros(len(states), self.record(dtype))
        for record, state in zip(records, states, strict=True):
            for field in self.fields:
                record[field.name] = state._record[field.name]
        return records.view(np.dtype(dtype)).reshape(len(records), -1)

    def columns(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return n states as (n, numbers) float64, from (n, rows) of memory."""
        records = self.records(rows)
        held = [records[field.name].reshape(len(records), -1) for field in self.fields]
        return np.concatenate([columns.astype(np.float64) for columns in held], axis=1)

    def numbers(self, state: Any) -> list[float]:
        """Return a plain state as floats."""
        return list(self.columns(self.memory([state], np.float64))[0].tolist())

    def fault_of(self, state: Any) -> str:
        """Describe the fault of a plain state; "" for none."""
        name = self.made.__name__
        if type(state) is not self.made:
            return f"a {name}; returned {state!r}"
        bad = self.names_not_finite(state)
        return f"a {name}, finite; returned {bad[0]} of {state!r}" if bad else ""

    def field(self, name: str) -> ArrayField:
        """Return a field.

        Raises:
            AttributeError: there is no such one.
        """
        for field in self.fields:
            if field.name == name:
                return field
        known = ", ".join(field.name for field in self.fields)
        raise AttributeError(f"{self.made.__name__} has no field {name!r}; it has: {known}")

    def get_field(self, name: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of a field of n states, (n, *shape), from (n, rows) of their memory."""
        held: npt.NDArray[Any] = self.records(rows)[self.field(name).name].copy()
        return held

    def set_field(self, name: str, values: Any, rows: npt.NDArray[Any]) -> None:
        """Write a field of n states, (n, *shape), into (n, rows) of their memory.

        Raises:
            AttributeError: there is no such field.
            TypeError, ValueError: another kind of dtype or shape, numbers that the field cannot
                hold or that are not finite; nothing is written then.
        """
        target, array = self.records(rows)[self.field(name).name], np.asarray(values)
        fault = _fault_of_numbers(target.dtype, array)
        if fault:
            raise TypeError(f"state.{name} {fault}")
        if array.shape != target.shape:
            raise ValueError(f"state.{name} has shape {array.shape}: expected {target.shape}")
        with np.errstate(over="ignore"):
            held = array.astype(target.dtype)
        if target.dtype.kind == "f" and not np.isfinite(held).all():
            raise ValueError(f"state.{name} holds NaN or infinity: expected finite numbers")
        if target.dtype.kind in "iu" and (held != array).any():
            raise ValueError(
                f"state.{name} holds {array.min()} to {array.max()}: expected {target.dtype}"
            )
        target[...] = held

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


@functools.cache
def _record_type(layout: ArrayLayout, real: np.dtype[Any]) -> np.dtype[Any]:
    """Return the structured dtype of one state, whose floats are of the dtype `real`.

    Fields are aligned as in C, and zeros at the end make its size a multiple of `real`'s: so the
    memory of n states is an array (n, rows) of such floats, too.
    """
    fields = [(f.name, real if f.dtype == "float" else f.dtype, f.shape) for f in layout.fields]
    aligned = np.dtype(fields, align=True)
    names = [field.name for field in layout.fields]
    places = [aligned.fields[name] for name in names]  # type: ignore[index]
    return np.dtype(
        {
            "names": names,
            "formats": [place[0] for place in places],
            "offsets": [place[1] for place in places],
            "itemsize": -(-aligned.itemsize // real.itemsize) * real.itemsize,
        },
        align=True,
    )


def layout_of_class(state_class: Any) -> ArrayLayout:
    """Return the layout of a subclass of `State`.

    Raises:
        TypeError: a field has no type hint of `_WANTED`, or there is no field.
    """
    if fields := vars(state_class).get("_fields_given"):
        return ArrayLayout(state_class, fields)
    try:
        hints = typing.get_type_hints(state_class)
    except NameError as error:
        raise TypeError(
            f"the type hints of {state_class.__name__} cannot be read: {error}"
        ) from None
    if not hints:
        raise TypeError(f"{state_class.__name__} has no field: expected type hints, {_WANTED}")
    return ArrayLayout(
        state_class, tuple(_field(state_class, name, hint) for name, hint in hints.items())
    )


_layout_of: Any = functools.cache(layout_of_class)


@functools.cache
def layout_of_fields(name: str, fields: tuple[ArrayField, ...]) -> ArrayLayout:
    """Return the layout of a subclass of `State` of that name, made here of these fields."""
    return layout_of_class(type(name, (State,), {"_fields_given": fields}))


def _field(made: type, name: str, hint: Any) -> ArrayField:
    is_array = isinstance(hint, _ArrayHint)
    kind, shape = (hint.dtype, hint.shape) if is_array else (hint, ())
    start = f"the field {name} of {made.__name__}"
    if name.startswith("_") or hasattr(made, name):
        raise TypeError(f"{start} has the name of something else: choose another")
    if kind in (np.float32, np.float64):
        raise TypeError(f"{start} is of {kind.__name__}: write float, the environment's own dtype")
    is_known = any(kind is each for each in _DTYPES)
    if not is_known or (not is_array and kind not in (float, int, bool)):
        raise TypeError(f"{start} has the type hint {_named(hint)}: expected {_WANTED}")
    if is_array and not (shape and all(type(n) is int and n > 0 for n in shape)):
        raise TypeError(f"{start} is {_named(hint)}: expected a shape of positive whole numbers")
    return ArrayField(name, _DTYPES[kind], shape)


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else repr(hint)


def _fault_of_numbers(kind: np.dtype[Any], value: npt.NDArray[Any]) -> str:
    """Describe why numbers of another kind cannot be written into those of a dtype; "" if they can.

    Whole numbers may become real ones or bools, as in kernels.
    """
    allowed = {"f": "fiub", "i": "iub", "u": "iub", "b": "iub"}[kind.kind]
    if value.dtype.kind in allowed:
        return ""
    wanted = {"f": "real numbers", "b": "bools"}.get(kind.kind, "whole numbers")
    return f"is of {kind} and gets {value.dtype}: expected {wanted}"


class Numbers(np.ndarray[Any, Any]):
    """An array of a state in plain Python, whose numbers are Python's own.

    NumPy's would wrap around: a kernel computes `grid[a] - grid[b]` in 64 bits.
    """

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return item.item() if isinstance(item, np.generic) else item

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return what a ufunc or a method such as `sum` made: a number as Python's."""
        return array.item() if return_scalar else array.view(Numbers)

    def __setitem__(self, index: Any, value: Any) -> None:
        if fault := _fault_of_numbers(self.dtype, np.asarray(value)):
            raise TypeError(f"the array {fault}")
        super().__setitem__(index, value)


class State:
    """Base of a state with arrays: a class with a type hint for each field.

    A field is a float, an int or a bool, or `Array[dtype, *shape]`, an array of fixed shape. All
    begin as zeros. `step` and `reset` are given a state and change it:

        class Snake(State):
            body: Array[np.int16, 100]
            grid: Array[np.uint8, 10, 10]
            length: int

    Here, in plain Python, a state checks what is written to it, and its numbers are Python's: a
    float has 64 bits. In kernels it is one record of memory.

    Args:
        **values: of fields that are not zeros.

    Raises:
        TypeError: a field has another type hint, or is given a value of another kind.
        ValueError: an array of another shape.
        AttributeError: there is no such field.

    Example:
        >>> class Queue(State):
        ...     items: Array[np.int16, 4]
        ...     length: int
        >>> queue = Queue(length=1)
        >>> queue.items[0] = 7
        >>> queue
        Queue(items=[7, 0, 0, 0], length=1)
    """

    if TYPE_CHECKING:
        _layout: ArrayLayout
        _record: npt.NDArray[Any]

    def __init__(self, **values: Any) -> None:
        layout = _layout_of(type(self))
        self._bind(layout, np.zeros((), layout.record(np.float64)))
        for name, value in values.items():
            if layout.field(name).shape:
                vars(self)[name][...] = value
            else:
                setattr(self, name, value)

    @classmethod
    def sized(cls, **arrays: Any) -> Any:
        """Return a subclass with these arrays: a task in several sizes has one for each.

        Args:
            **arrays: the type hint of each further field.

        Example:
            >>> class Maze(State):
            ...     row: int
            ...     column: int
            >>> Maze.sized(grid=Array[np.uint8, 3, 2])()
            Maze(row=0, column=0, grid=[[0, 0], [0, 0], [0, 0]])
        """
        return type(cls.__name__, (cls,), {"__annotations__": arrays, "__module__": cls.__module__})

    @classmethod
    def _of(cls, record: npt.NDArray[Any]) -> Any:
        """Return the state whose memory is a record of no axes."""
        state = cls.__new__(cls)
        state._bind(_layout_of(cls), record)
        return state

    def _bind(self, layout: ArrayLayout, record: npt.NDArray[Any]) -> None:
        arrays = {f.name: record[f.name].view(Numbers) for f in layout.fields if f.shape}
        vars(self).update(arrays, _layout=layout, _record=record)

    if not TYPE_CHECKING:  # type checkers shall find names that there are not

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            return self._record[self._layout.field(name).name].item()

        def __eq__(self, other):  # and no hash
            if type(other) is not type(self):
                return NotImplemented
            pairs = ((self._record[f.name], other._record[f.name]) for f in self._layout.fields)
            return all(np.array_equal(*pair) for pair in pairs)

        def __setattr__(self, name, value):
            field, array = self._layout.field(name), np.asarray(value)
            if field.shape:
                raise AttributeError(
                    f"{type(self).__name__}.{name} is an array, which stays: write into it, "
                    f"{name}[:] = ..."
                )
            if fault := _fault_of_numbers(self._record[name].dtype, array):
                raise TypeError(f"{type(self).__name__}.{name} {fault}")
            if array.shape:
                raise TypeError(f"{type(self).__name__}.{name} is a number, and gets an array")
            self._record[name] = value

    def __copy__(self) -> Any:
        return self._of(self._record.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._record,)

    def __repr__(self) -> str:
        held = ((f.name, self._record[f.name]) for f in self._layout.fields)
        items = (f"{name}={_shown(np.array(value))}" for name, value in held)
        return f"{type(self).__name__}({', '.join(items)})"


def _shown(values: npt.NDArray[Any]) -> str:
    """Return numbers in one line, the first and last ones of many."""
    if values.ndim == 0:
        return repr(values.item())
    text = np.array2string(values, separator=", ", threshold=25, max_line_width=10**6)
    return " ".join(text.split())


# What begins with a line in a `State` is apart from the names of users' fields.


def fields_of(state: State, dtype: str | None = None) -> list[npt.NDArray[Any]]:
    """Return views of the fields of a plain state, of those of one dtype if it is given."""
    fields = (f for f in state._layout.fields if dtype in (None, f.dtype))
    return [state._record[f.name] for f in fields]
