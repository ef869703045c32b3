"""What buffers and batches say of themselves: a line, or a table in notebooks."""

from __future__ import annotations

from collections.abc import Iterable

from rlcpu.replay.structure import Field


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
