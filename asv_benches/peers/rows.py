"""Rows of a table: measured, judged against their targets, printed and saved."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from asv_benches.peers import machine
from asv_benches.peers.harness import Contender, Duel, Effort, How, Measurement, isolated

RESULTS = Path(__file__).parents[1] / "results"
HEADER = ("what", "against", "rlcpu", "peer", "ratio (quartiles)", "target", "met")
WIDTHS = (46, 26, 13, 13, 24, 11, 3)
TIMES = ((1.0, "s"), (1e-3, "ms"), (0.0, "us"))
RATES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, ""))

Kind = Literal["speed-up", "share", "time"]
Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        name: for `--only` and the JSON file.
        what: the job.
        against: the peer.
        measure: picklable; called with the effort.
        target: bound on the ratio, None for a row that is shown for information.
        kind: "speed-up" and "share" (of the machine's peak) are to be at least the target; "time"
            is our time over the peer's and is to be at most the target.
        unit: of both figures: "env-steps/s", "FLOP/s", "B/s" or "s".
        limit_s: time-out of the process in which it is measured, in seconds; None where `measure`
            itself starts processes under a limit.
        ranked: whether only the best of the peers of the same job counts.
    """

    name: str
    what: str
    against: str
    measure: Callable[[Effort], Measurement]
    target: float | None = None
    kind: Kind = "speed-up"
    unit: str = "env-steps/s"
    limit_s: float | None = 300.0
    ranked: bool = False


KINDS: dict[How, dict[str, Any]] = {
    "rate": {"kind": "speed-up", "unit": "env-steps/s"},
    "time": {"kind": "speed-up", "unit": "s"},
    "cost": {"kind": "time", "unit": "s"},
    "peak": {"kind": "share", "unit": "FLOP/s"},
    "share": {"kind": "share", "unit": "s"},
}


def duels(
    name: str,
    what: str,
    ours: Contender,
    peers: Mapping[str, tuple[Any, ...]],
    how: How = "rate",
    **fields: Any,
) -> list[Row]:
    """Rows of one job, ours against each of several peers; kind and unit follow from `how`.

    Args:
        name: how the rows' names begin.
        what: the job.
        ours: our way to do it.
        peers: how a row's name ends: (against, contender) or (against, contender, target).
        how: as of `Duel`.
        fields: of all rows.
    """
    return [
        Row(
            "-".join(filter(None, (name, end))),
            what,
            against,
            Duel(ours, peer, how),
            *target,
            **{**KINDS[how], **fields},
        )
        for end, (against, peer, *target) in peers.items()
    ]


def measure(row: Row, effort: Effort) -> Result:
    """The row as the JSON file holds it; one that cannot be measured says why in its figures."""
    if row.limit_s is None:
        return result(row, row.measure(effort))
    value, status, detail = isolated(row.measure, effort, limit_s=row.limit_s)
    return result(row, value or Measurement("-", status, note=detail))


def result(row: Row, measurement: Measurement) -> Result:
    """The fields of both, and the verdict."""
    fields = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    del fields["measure"], fields["limit_s"]
    return {**fields, **dataclasses.asdict(measurement), "met": met(row, measurement.ratio)}


def met(row: Row, ratio: float | None) -> bool | None:
    """Whether the target is met; None where there is nothing to judge.

    More than the whole peak means that the peak's own measurement was disturbed.
    """
    if row.target is None or ratio is None or (row.kind == "share" and ratio > 1):
        return None
    return ratio <= row.target if row.kind == "time" else ratio >= row.target


def closest(rows: Iterable[Result]) -> list[Result]:
    """The rows, those of ranked peers reduced to the best peer of each job."""
    kept: dict[str | int, Result] = {}
    for number, row in enumerate(rows):
        key = row["what"] if row.get("ranked", False) else number
        if key not in kept or rank(row) < rank(kept[key]):
            kept[key] = row
    return list(kept.values())


def rank(row: Result) -> float:
    """The ratio; what was not measured comes last."""
    return float("inf") if row["ratio"] is None else float(row["ratio"])


# ---------------------------------------------------------------- printed


def print_rows(results: Iterable[Result]) -> Iterator[Result]:
    """Prints the table while it is measured, the best of the ranked peers once more after it."""
    _print_cells(HEADER)
    _print_cells(["-" * width for width in WIDTHS])
    ranked = []
    for row in results:
        _print_row(row)
        ranked += [row] * row["ranked"]
        yield row
    if ranked:
        print("\nagainst the best of them:")
    for row in closest(ranked):
        _print_row({**row, "note": ""})


def _print_row(row: Result) -> None:
    what, against, ratio, ours, peer = cells(row)
    if row["spread"]:
        low, high = (format_ratio(bound, row["kind"]) for bound in row["spread"])
        ratio = f"{ratio} ({low}-{high})"
    verdict = {True: "yes", False: "NO", None: "-"}[row["met"]]
    target = format_target(row["target"], row["kind"])
    _print_cells([what, against, ours, peer, ratio, target, verdict])
    if row["note"]:
        print(f"    {row['note']}")


def _print_cells(cells: Iterable[str]) -> None:
    line = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    print(line.rstrip(), flush=True)


def cells(row: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """What, against whom, ratio, our figure, the peer's."""
    ours, peer = (format_figure(row[side], row["unit"]) for side in ("ours", "peer"))
    return row["what"], row["against"], format_ratio(row["ratio"], row["kind"]), ours, peer


def format_figure(value: float | str, unit: str) -> str:
    """A rate with SI prefix, a time in s, ms or us, or why there is none."""
    if isinstance(value, str):
        return value
    if unit == "s":
        least, name = next(each for each in TIMES if value >= each[0])
        return f"{value / (least or 1e-6):.3g} {name}"
    least, prefix = next(each for each in RATES if value >= each[0])
    suffix = unit if unit in ("FLOP/s", "B/s") else "/s"
    return f"{_digits(value / (least or 1))} {prefix}{suffix}"


def format_ratio(ratio: float | None, kind: Kind) -> str:
    """ "15x", "1.08x" or, for a share, "68 %"."""
    if ratio is None:
        return "-"
    return f"{100 * ratio:.0f} %" if kind == "share" else f"{_digits(ratio)}x"


def format_target(target: float | None, kind: Kind) -> str:
    """The bound on the ratio: ">= 40x", "<= 1.15x", ">= 65 %"."""
    if target is None:
        return "-"
    number = f"{100 * target:g} %" if kind == "share" else f"{target:,}x"
    return f"{'<=' if kind == 'time' else '>='} {number}"


def _digits(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


# ---------------------------------------------------------------- saved


def save(path: Path, what: str, rows: list[Result]) -> None:
    """Writes a table with what it was measured on as JSON."""
    content = {"what": what, "machine": machine.describe(), "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> dict[str, Result]:
    """The saved rows of a table, by name."""
    if not path.exists():
        return {}
    return {row["name"]: row for row in json.loads(path.read_text())["rows"]}
