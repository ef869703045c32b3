"""What statistics say, as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

import dataclasses
import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rlcpu.experiments.statistics import LEVEL

#: As texts name an interval, and how columns are headed, by their names in `Table.rows`.
INTERVAL = f"{100 * LEVEL:.0f} % interval"
#: Columns of text at most.
WIDTH = 80
_HEADS = {"iqm": "IQM", "low": INTERVAL}
#: Columns whose numbers have the digits of the interval.
_SCORES = ("mean", "median", "iqm", "low", "high", "final_return")


@dataclasses.dataclass(frozen=True)
class Table:
    """A row of statistics for each variant; printed it is text, in a notebook a table.

    Attributes:
        title: what is estimated.
        rows: a dict each, of numbers by column; `low` and `high` are the bounds of the interval.
        statistic: which one the interval is of: "mean", "median" or "iqm".
        notes: sentences on what the numbers do not say.
    """

    title: str
    rows: tuple[dict[str, Any], ...]
    statistic: str
    notes: tuple[str, ...]

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`; ImportError where pandas is missing."""
        return pandas().DataFrame(self.rows)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the head and the rows as texts: the two bounds are one column."""
        columns = [name for name in self.rows[0] if name != "high"] if self.rows else []
        # The interval stands behind the statistic that it is of.
        columns = [name for name in columns if name != "low"]
        if columns:
            columns.insert(columns.index(self.statistic) + 1, "low")
        head = [_HEADS.get(name, name.replace("_", " ")) for name in columns]
        digits = {}
        for env in {row.get("environment") for row in self.rows}:
            group = [row for row in self.rows if row.get("environment") == env]
            widths = [row["high"] - row["low"] for row in group]
            digits[env] = decimals([row["mean"] for row in group], widths)
        return head, [
            [self._cell(row, name, digits[row.get("environment")]) for name in columns]
            for row in self.rows
        ]

    def _cell(self, row: dict[str, Any], name: str, digits: int) -> str:
        """Return one cell as text."""
        value = row[name]
        if name == "low":
            return bounds_in_words(value, row["high"], digits)
        if name in ("solved", "reached"):
            return "-" if value is None else f"{round(value * row['runs'])}/{row['runs']}"
        if name in _SCORES:
            return number(value, digits)
        return number(value, 2 if value < 10.0 else 1) if isinstance(value, float) else str(value)

    def __str__(self) -> str:
        head, rows = self.cells()
        lines = [self.title, "", *aligned([head, *rows]), ""] if rows else []
        return "\n".join([*lines, *wrapped(self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        head, rows = self.cells()
        return paragraphs([self.title]) + html_table(head, rows) + paragraphs(self.notes)


# ---------------------------------------------------------------- text


def decimals(values: Iterable[float], widths: Iterable[float] = ()) -> int:
    """Return how many digits behind the point numbers are shown with.

    They have two digits of the narrowest of the intervals whose `widths` those are, but no more
    than four digits of the largest number.

    Example:
        >>> decimals([471.02, 498.31], [27.3]), decimals([0.7134], [0.001]), decimals([-12345.6])
        (0, 4, 0)
    """
    sizes = [abs(float(value)) for value in values if math.isfinite(value)]
    halves = [float(width) / 2.0 for width in widths if width > 0.0]
    most = 3 - math.floor(math.log10(max(sizes, default=0.0) or 1.0))
    wanted = 1 - math.floor(math.log10(min(halves))) if halves else most
    return max(0, min(most, wanted))


def number(value: float, digits: int, *, sign: bool = False) -> str:
    """Return a number with so many digits behind the point; "-" for NaN."""
    return "-" if math.isnan(value) else f"{value:{'+' * sign},.{digits}f}"


def bounds_in_words(low: float, high: float, digits: int) -> str:
    """Return an interval as "[1.0, 2.0]"; "-" where there is none."""
    return "-" if math.isnan(low) else f"[{number(low, digits)}, {number(high, digits)}]"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns stand below each other: words to the left, numbers to the right.

    A column is of words if its first row below the head begins with a letter.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<" if rows[-1][k][:1].isalpha() else ">" for k in range(len(widths))]
    return [
        "  ".join(f"{c:{side}{w}}" for c, side, w in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def wrapped(sentences: Iterable[str]) -> list[str]:
    """Return sentences, each in lines of a terminal's width."""
    return [textwrap.fill(sentence, WIDTH) for sentence in sentences]


def labelled(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return texts behind their names, in lines of a terminal's width."""
    width = max(len(name) for name, _ in lines) + 2
    indent = " " * width
    return [
        textwrap.fill(
            f"{name:<{width}}{text}", WIDTH, subsequent_indent=indent, break_on_hyphens=False
        )
        for name, text in lines
    ]


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML."""
    lines = [("th", head), *(("td", row) for row in rows)]
    cells = ["".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) for tag, row in lines]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def paragraphs(lines: Iterable[str]) -> str:
    """Return lines of text in HTML."""
    text = "<br>".join(map(html.escape, lines))
    return f"<p>{text}</p>" if text else ""


def pandas() -> Any:
    """Return pandas; ImportError with what to install where it is missing."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(f"{error}: pip install pandas, or use to_csv") from error
    return pd
