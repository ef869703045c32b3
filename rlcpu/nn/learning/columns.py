"""Columns of a batch, as users give them and as the kernel of updates reads them.

The kernel reads each column by a record of addresses and sizes
(`rlcpu.nn.learning.frame.COLUMN_RECORD`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.machine.memory import array_address
from rlcpu.nn.layers.embedding import Ones
from rlcpu.nn.learning.frame import COLUMN_RECORD, ColumnRecord
from rlcpu.nn.network.scaling import Scaling

Array = npt.NDArray[Any]


class Columns:
    """Checks the arrays of batches, and makes the records by which the kernel reads them.

    Records of the last batch are used again for the same arrays.

    Args:
        widths: by name of a column, how many numbers of a sample it has.
        limits: by name of a column that holds indices, how many numbers they choose from.
        takes_ones: names of columns that may be `Ones`: networks then add up rows of weights.

    Attributes:
        ones: names of the columns of the last batch that are `Ones`.
    """

    def __init__(
        self, widths: dict[str, int], limits: dict[str, int], takes_ones: frozenset[str]
    ) -> None:
        self.widths, self.limits, self.takes_ones = widths, limits, takes_ones
        self.ones: frozenset[str] = frozenset()
        self._last: dict[str, _Column] = {}
        self._records: Any = None

    def __reduce__(self) -> Any:
        return Columns, (self.widths, self.limits, self.takes_ones)

    def read(
        self, batch: Mapping[str, Any], normalise: Mapping[str, tuple[Array, ...]]
    ) -> BatchColumns:
        """Return the columns of a batch as the kernel reads them, after checks.

        Args:
            batch: arrays (S,) or (S, width), or `Ones`, by name.
            normalise: fields of a `Scaling` of some columns, by name.

        Raises:
            KeyError: a column is missing.
            ValueError: columns do not fit together, or indices are out of their range.
        """
        for name, fields in normalise.items():
            if name not in self.widths:
                raise ValueError(f"normalise has {name!r}: expected {', '.join(self.widths)}")
            if not 2 <= len(fields) <= 3:
                raise ValueError(f"normalise[{name!r}]: expected mean, scale and perhaps a limit")
        columns: dict[str, _Column] = {}
        is_new = False  # whether the records of the last batch do not hold for this one
        for name, width in self.widths.items():
            if name not in batch:
                raise KeyError(f"batch has no column {name!r}: expected {', '.join(self.widths)}")
            values = batch[name]
            scaling = Scaling(*normalise[name]) if name in normalise else _NO_SCALING
            column = self._last.get(name)
            if column is None or not column.is_made_of(values, scaling):
                column, is_new = self._make(name, width, values, scaling), True
            elif column.array is not values:  # the kernel reads a copy
                column.array[...] = values
            if name in self.limits:
                _check_indices(name, column.array, self.limits[name])
            columns[name] = column
        if is_new:
            counts = {column.samples for column in columns.values()}
            if len(counts) != 1 or 0 in counts:
                numbers = f"{sorted(counts)} samples: expected one number"
                raise ValueError(f"batch has columns of {numbers}")
            records = [tuple(column.record) for column in columns.values()]
            self._records, self._last = np.array(records, COLUMN_RECORD), columns
            self.ones = frozenset(name for name, each in columns.items() if each.record.ones)
        count = next(iter(columns.values())).samples
        return BatchColumns(self._records, columns, count)

    def _make(self, name: str, width: int, values: Any, scaling: Scaling) -> _Column:
        """Return one column, after checks."""
        if isinstance(values, Ones):
            values.check(width)
            is_unscaled = scaling is _NO_SCALING or _keeps_ones(scaling)
            if is_unscaled and values.are_few() and name in self.takes_ones:
                starts = as_writable(values.starts, np.int64)
                places = as_writable(values.columns, np.int32)
                record = ColumnRecord(array_address(starts), width, ones=array_address(places))
                return _Column(values, places, scaling, len(starts) - 1, record, starts)
            values = values.expand()
        array = as_writable(values, np.float32)
        is_narrow = width == 1 and array.ndim == 1
        if not is_narrow and (array.ndim == 0 or array.shape[1:] != (width,)):
            raise ValueError(f"batch[{name!r}] has shape {array.shape}: expected (S, {width})")
        record = ColumnRecord(array_address(array), width)
        if scaling is not _NO_SCALING:
            scaling = Scaling._make(as_writable(each, np.float32) for each in scaling)
            for field, each in scaling._asdict().items():
                expected = () if field == "limit" else (width,)
                if each.shape != expected:
                    shape = f"{field} has shape {each.shape}"
                    raise ValueError(f"normalise[{name!r}]: {shape}: expected {expected}")
            record = record._replace(**{k: array_address(v) for k, v in scaling._asdict().items()})
        return _Column(values, array, scaling, len(array), record)


_NONE: Any = None
#: For a column that is not scaled.
_NO_SCALING = Scaling(_NONE, _NONE, _NONE)


class BatchColumns(NamedTuple):
    """Columns of a batch of some samples."""

    records: Array  #: (columns,) of dtype `COLUMN_RECORD`, which have addresses of arrays
    by_name: dict[str, _Column]  #: has these arrays; whoever uses the records keeps it alive
    samples: int  #: how many


class _Column(NamedTuple):
    """A column of a batch as the kernel reads it."""

    values: Any  #: the array, or `Ones`, that the batch has
    array: Array  #: the array that the kernel reads, the same or a copy; of `Ones` their columns
    scaling: Scaling
    samples: int  #: how many
    record: ColumnRecord
    starts: Any = None  #: of `Ones`, (samples + 1,) int64

    def is_made_of(self, values: Any, scaling: Scaling) -> bool:
        """Tell whether the record holds for these arrays too, as they are the same ones.

        Only numbers of an array itself stay in their place: `Ones`, or arrays of other packages,
        may have others by now.
        """
        return (
            values is self.values
            and type(values) is np.ndarray
            and len(values) == self.samples
            and all(map(operator.is_, scaling, self.scaling))
        )


def as_writable(values: Any, dtype: type) -> Array:
    """Return numbers as a contiguous array that can be written to, the same one where it is so.

    Kernels are compiled for such: numba has another type for others, such as views of JAX's.
    """
    if type(values) is np.ndarray and values.dtype == dtype and values.flags.carray:
        return values  # `require` takes two microseconds to find that out
    return np.require(values, dtype, ("C", "W"))


def _keeps_ones(scaling: Scaling) -> bool:
    """Tell whether zeros and ones stay the same."""
    mean, scale, limit = scaling
    return not np.any(mean) and bool(np.all(np.asarray(scale) == 1.0) and np.all(limit >= 1.0))


def _check_indices(name: str, values: Array, size: int) -> None:
    if values.size and not (values.min() >= 0 and values.max() < size):
        wrong = values[~((values >= 0) & (values < size))]
        raise ValueError(f"batch[{name!r}]: expected 0 to {size - 1}, got {wrong[0]:g}")


def read_states(
    states: Mapping[str, Any], networks: Sequence[tuple[str, int]], sequences: int
) -> list[Array | None]:
    """Return for each network its states as the kernel reads them, after checks.

    Args:
        states: by name of a network its states before the first time step.
        networks: of each network the name by which it finds its states, that of the network which
            a target follows, and how many numbers a state has, 0 without memory.
        sequences: of the batch.

    Returns:
        (sequences, size) float32 for each network; None for one without memory.

    Raises:
        KeyError: those of a network are missing.
        ValueError: a name is unknown, or an array has another shape.
    """
    for name in states:
        if name not in dict(networks):
            expected = ", ".join(dict(networks))
            raise ValueError(f"states has {name!r}: expected {expected}")
    arrays: list[Array | None] = []
    for name, size in networks:
        if size == 0:
            arrays.append(None)
            continue
        if name not in states:
            expected = f"expected {(sequences, size)}"
            raise KeyError(f"states has no {name!r}, a network with memory: {expected}")
        array = as_writable(states[name], np.float32)
        if array.shape != (sequences, size):
            shape = f"{array.shape}: expected {(sequences, size)}"
            raise ValueError(f"states[{name!r}] has shape {shape}")
        arrays.append(array)
    return arrays
