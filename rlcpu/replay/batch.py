"""What `sample` returns, and what buffers and batches say of themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay.fields import Field
from rlcpu.replay.structure import Structure


class Shown:
    """Base of what holds fields."""

    __slots__ = ()

    def _facts(self) -> list[str]:
        """How much there is, and its settings."""
        raise NotImplementedError

    def _fields(self) -> Iterable[Field]:
        """What it is made of."""
        raise NotImplementedError

    def __repr__(self) -> str:
        fields = [" ".join(filter(None, row)) for row in self._rows()]
        return f"{type(self).__name__}({', '.join(self._facts())}: {', '.join(fields)})"

    def _repr_html_(self) -> str:
        """A table of the fields, for notebooks."""
        import html  # 1.6 ms

        facts = html.escape(f"{type(self).__name__}: {', '.join(self._facts())}")
        rows = [("field", "dtype", "shape"), *self._rows()]
        cells = ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in rows]
        lines = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><caption>{facts}</caption>{lines}</table>"

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(name, str(dtype), str(shape)) for name, dtype, shape in self._fields()]


def show_bytes(count: float) -> str:
    """A number of bytes in a unit that leaves at most three digits before the point."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


class Batch(Shown):
    """Transitions, or sequences of them, drawn from a buffer; arrays are where the buffer is.

    Attributes:
        data: structured like the buffer's example, each leaf (batch_size, *shape), or
            (sequence_length, batch_size, *shape). `sample(out=)` overwrites these arrays: an entry
            that you replace by another array stays as it is.
        indices: (batch_size,) int64, for `update_priorities`.
        probabilities: (batch_size,) float64, with which each was drawn; None if all were alike.
        weights: (batch_size,) float32, importance weights, at most 1; None if all are alike.
        discounts: (batch_size,) float32, of the value of what follows an n-step return; None if
            there is none.
        rows: the memory of the data, for the owner's storage; None in a copy.
        owner: the buffer; None in a copy.
    """

    __slots__ = ("data", "discounts", "indices", "owner", "probabilities", "rows", "weights")

    def __init__(self, data: Any, rows: Any, indices: npt.NDArray[np.int64], owner: Any) -> None:
        self.data = data
        self.indices = indices
        self.probabilities: npt.NDArray[np.float64] | None = None
        self.weights: npt.NDArray[np.float32] | None = None
        self.discounts: npt.NDArray[np.float32] | None = None
        self.rows, self.owner = rows, owner

    def __getstate__(self) -> dict[str, Any]:
        """The numbers alone: a copy is no memory of a buffer, which does not go with it."""
        state = {name: getattr(self, name) for name in {*Batch.__slots__, *self.__slots__}}
        return {**state, "rows": None, "owner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __getitem__(self, key: Any) -> Any:
        """Part of the data: `batch["reward"]` is `batch.data["reward"]`."""
        return self.data[key]

    def __len__(self) -> int:
        return len(self.indices)

    def _facts(self) -> list[str]:
        others = ("probabilities", "weights", "discounts", "sources")
        told = [name for name in others if getattr(self, name, None) is not None]
        return [f"{len(self):,} drawn", *(f"with {name}" for name in told)]

    def _fields(self) -> Iterable[Field]:
        return Structure(self.data).fields
