"""States with arrays: the class `State` that authors derive from, and how memory holds a state.

The memory of one state is a record: an element of a structured NumPy dtype, with a field for each
number or array of the state. Kernels and plain Python change it in place, by the same source:
`state.body[i] = cell`. A "plain" state is the Python object, outside of kernels.

An engine keeps the records of n states in a floating-point array (n, rows), float32 or float64 as
the environment: a row of its matrix is one record, seen as `rows` such numbers.
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
    """One field of a state with arrays."""

    #: As the class has it.
    name: str
    #: Of its numbers; "float" for that of the environment.
    dtype: Any
    #: Of an array; () for a number.
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
    """The fields of a state with arrays, and conversions between plain states and their memory.

    It has the methods of `rlcpu.envs.layout.values.Layout`, the layout of states without arrays. In
    all of them `rows` is the memory of n states, (n, rows) float32 or float64, and `dtype` the type
    of the environment's floats.
    """

    #: The subclass of `State` whose objects are plain states.
    value_class: Any
    #: In the order in which the class declares them.
    fields: tuple[ArrayField, ...]

    @property
    def is_plain(self) -> bool:
        """Return False: a state is not a tuple of floats."""
        return False

    @property
    def is_record(self) -> bool:
        """Return True: the memory of a state is a record."""
        return True

    def record(self, dtype: Any) -> np.dtype[Any]:
        """Return the structured dtype of a record whose floats are of `dtype`."""
        return _record_type(self, np.dtype(dtype))

    def rows(self, dtype: type) -> int:
        """Return the size of a record, in numbers of `dtype`."""
        return self.record(dtype).itemsize // np.dtype(dtype).itemsize

    def float_spans(self, dtype: type) -> list[tuple[int, int]]:
        """Return (first row, number of rows) of each field of floats."""
        offsets: Any = {name: entry[1] for name, entry in self._dtypes_and_offsets(dtype).items()}
        row_bytes = np.dtype(dtype).itemsize
        return [(offsets[f.name] // row_bytes, f.size) for f in self.fields if f.dtype == "float"]

    def _dtypes_and_offsets(self, dtype: type) -> Any:
        """Return NumPy's {field name: (dtype, first byte)} of a record."""
        return self.record(dtype).fields

    def records(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return memory (n, rows) as records (n,): a view of it if it is contiguous."""
        contiguous = np.ascontiguousarray(rows)
        return contiguous.view(self.record(contiguous.dtype))[:, 0]

    def to_states(self, rows: npt.NDArray[Any]) -> list[Any]:
        """Return n plain states, copies, of memory (n, rows)."""
        records = self.records(rows).astype(self.record(np.float64))
        # `records[i]` would be a scalar: a state needs an array, of shape (), to write into.
        return [self.value_class._of(records[i : i + 1].reshape(())) for i in range(len(records))]

    def names_not_finite(self, state: Any) -> list[str]:
        """Return the names of the fields of a plain state that hold NaN or infinity."""
        return [f.name for f in self.fields if not np.isfinite(state._record[f.name]).all()]

    def to_rows(self, states: Any, dtype: type) -> npt.NDArray[Any]:
        """Return the memory (n, rows) of n plain states."""
        records = np.zeros(len(states), self.record(dtype))
        for record, state in zip(records, states, strict=True):
            for field in self.fields:
                record[field.name] = state._record[field.name]
        return records.view(np.dtype(dtype)).reshape(len(records), -1)

    def rows_as_numbers(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return all numbers of n states, (n, count) float64, of memory (n, rows)."""
        records = self.records(rows)
        columns = [records[field.name].reshape(len(records), -1) for field in self.fields]
        return np.concatenate([column.astype(np.float64) for column in columns], axis=1)

    def as_numbers(self, state: Any) -> list[float]:
        """Return all numbers of a plain state as floats."""
        return list(self.rows_as_numbers(self.to_rows([state], np.float64))[0].tolist())

    def fault_of(self, state: Any) -> str:
        """Return the fault of a plain state, as "a Snake; returned (1, 2)"; "" for a good one."""
        name = self.value_class.__name__
        if type(state) is not self.value_class:
            return f"a {name}; returned {state!r}"
        not_finite = self.names_not_finite(state)
        return f"a {name}, finite; returned {not_finite[0]} of {state!r}" if not_finite else ""

    def field(self, name: str) -> ArrayField:
        """Return the field of a name.

        Raises:
            AttributeError: the state has no field of this name.
        """
        for field in self.fields:
            if field.name == name:
                return field
        known = ", ".join(field.name for field in self.fields)
        raise AttributeError(f"{self.value_class.__name__} has no field {name!r}; it has: {known}")

    def get_field(self, name: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy (n, *shape) of one field of n states, of their memory (n, rows)."""
        values: npt.NDArray[Any] = self.records(rows)[self.field(name).name].copy()
        return values

    def set_field(self, name: str, values: Any, rows: npt.NDArray[Any]) -> None:
        """Write one field of n states into their memory.

        Args:
            name: of the field.
            values: (n, *shape of the field).
            rows: (n, rows) of memory, overwritten.

        Raises:
            AttributeError: the state has no field of this name.
            TypeError, ValueError: `values` have another kind of dtype or another shape, are not
                finite, or do not fit into the field's dtype; nothing is written then.
        """
        target, array = self.records(rows)[self.field(name).name], np.asarray(values)
        fault = _fault_of_dtype(target.dtype, array)
        if fault:
            raise TypeError(f"state.{name} {fault}")
        if array.shape != target.shape:
            raise ValueError(f"state.{name} has shape {array.shape}: expected {target.shape}")
        with np.errstate(over="ignore"):
            converted = array.astype(target.dtype)
        if target.dtype.kind == "f" and not np.isfinite(converted).all():
            raise ValueError(f"state.{name} holds NaN or infinity: expected finite numbers")
        if target.dtype.kind in "iu" and (converted != array).any():
            raise ValueError(
                f"state.{name} holds {array.min()} to {array.max()}: expected {target.dtype}"
            )
        target[...] = converted

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


@functools.cache
def _record_type(layout: ArrayLayout, real: np.dtype[Any]) -> np.dtype[Any]:
    """Return the structured dtype of the record of one state, whose floats are of dtype `real`.

    Fields are aligned as in C. Padding at the end makes the size of a record a multiple of that of
    `real`, so that an array (n, rows) of `real` can hold n records.
    """
    fields = [(f.name, real if f.dtype == "float" else f.dtype, f.shape) for f in layout.fields]
    aligned = np.dtype(fields, align=True)
    names = [field.name for field in layout.fields]
    dtypes_and_offsets = [aligned.fields[name] for name in names]  # type: ignore[index]
    rows = -(-aligned.itemsize // real.itemsize)  # rounded up
    return np.dtype(
        {
            "names": names,
            "formats": [entry[0] for entry in dtypes_and_offsets],
            "offsets": [entry[1] for entry in dtypes_and_offsets],
            "itemsize": rows * real.itemsize,
        },
        align=True,
    )


def layout_of_class(state_class: Any) -> ArrayLayout:
    """Return the layout of a subclass of `State`, read from its type hints.

    A class that `layout_of_fields` made brings its fields in the attribute `_fields_given`.

    Raises:
        TypeError: the class has no field, or a field has another type hint than `_WANTED` says.
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
    """Make a subclass of `State` with a name and these fields, and return its layout."""
    return layout_of_class(type(name, (State,), {"_fields_given": fields}))


def _field(state_class: type, name: str, hint: Any) -> ArrayField:
    """Return the field that `state_class` declares as `name: hint`, or raise TypeError."""
    is_array = isinstance(hint, _ArrayHint)
    dtype, shape = (hint.dtype, hint.shape) if is_array else (hint, ())
    subject = f"the field {name} of {state_class.__name__}"
    if name.startswith("_") or hasattr(state_class, name):
        raise TypeError(f"{subject} has the name of something else: choose another")
    if dtype in (np.float32, np.float64):
        raise TypeError(
            f"{subject} is of {dtype.__name__}: write float, the environment's own dtype"
        )
    is_known = any(dtype is known for known in _DTYPES)
    if not is_known or (not is_array and dtype not in (float, int, bool)):
        raise TypeError(f"{subject} has the type hint {_hint_name(hint)}: expected {_WANTED}")
    if is_array and not (shape and all(type(n) is int and n > 0 for n in shape)):
        raise TypeError(
            f"{subject} is {_hint_name(hint)}: expected a shape of positive whole numbers"
        )
    return ArrayField(name, _DTYPES[dtype], shape)


def _hint_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else repr(hint)


def _fault_of_dtype(target: np.dtype[Any], values: npt.NDArray[Any]) -> str:
    """Return why `values` cannot be written into numbers of the dtype `target`; "" if they can.

    Whole numbers may be written into floats and bools, as in kernels; floats into floats alone.
    """
    allowed_kinds = {"f": "fiub", "i": "iub", "u": "iub", "b": "iub"}[target.kind]
    if values.dtype.kind in allowed_kinds:
        return ""
    wanted = {"f": "real numbers", "b": "bools"}.get(target.kind, "whole numbers")
    return f"is of {target} and gets {values.dtype}: expected {wanted}"


class Numbers(np.ndarray[Any, Any]):
    """An array of a plain state, whose items are Python's numbers, not NumPy's.

    A NumPy scalar of 8 bits wraps around, and a kernel computes `grid[a] - grid[b]` in 64 bits: so
    Python's numbers give the results of the kernel.
    """

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return item.item() if isinstance(item, np.generic) else item

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return the result of a ufunc or a method such as `sum`, a lone number as Python's."""
        return array.item() if return_scalar else array.view(Numbers)

    def __setitem__(self, index: Any, value: Any) -> None:
        if fault := _fault_of_dtype(self.dtype, np.asarray(value)):
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
        """Return a subclass with further fields: so a task in several sizes has a class for each.

        Args:
            **arrays: the type hint of each further field, by its name.

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
        """Return a state over a record, an array of shape (); it shares the memory."""
        state = cls.__new__(cls)
        state._bind(_layout_of(cls), record)
        return state

    def _bind(self, layout: ArrayLayout, record: npt.NDArray[Any]) -> None:
        """Make a record, of shape (), the memory of this state, and views of it its arrays."""
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
            if fault := _fault_of_dtype(self._record[name].dtype, array):
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
        fields = ((f.name, self._record[f.name]) for f in self._layout.fields)
        items = (f"{name}={_in_one_line(np.array(value))}" for name, value in fields)
        return f"{type(self).__name__}({', '.join(items)})"


def _in_one_line(values: npt.NDArray[Any]) -> str:
    """Return the text of an array without line breaks; of many numbers, the first and last."""
    if values.ndim == 0:
        return repr(values.item())
    text = np.array2string(values, separator=", ", threshold=25, max_line_width=10**6)
    return " ".join(text.split())


# A function, not a method: names in a `State` that begin with a letter are users' fields.
def fields_of(state: State, dtype: str | None = None) -> list[npt.NDArray[Any]]:
    """Return views of all fields of a plain state, or of those whose `ArrayField.dtype` this is."""
    fields = (f for f in state._layout.fields if dtype in (None, f.dtype))
    return [state._record[f.name] for f in fields]
