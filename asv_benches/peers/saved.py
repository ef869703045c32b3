"""Reading saved tables: rows by name, curves from panels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asv_benches.peers.report import closest

__all__ = ["Tables", "closest", "filled", "gaps", "panel_times", "row", "rows"]

Tables = Mapping[str, Mapping[str, Any]]  # name of a table: its JSON
Curves = dict[str, dict[float, float]]


def rows(tables: Tables, what: str, prefix: str) -> list[dict[str, Any]]:
    """The rows of a table whose names begin with the prefix; none where it was not measured."""
    listed = tables.get(what, {}).get("rows", [])
    return [each for each in listed if each["name"].startswith(prefix)]


def row(tables: Tables, what: str, name: str) -> dict[str, Any] | None:
    """One row, None where it was not measured."""
    return next((each for each in rows(tables, what, name) if each["name"] == name), None)


def panel_times(tables: Tables, what: str, prefix: str, scale: float = 1.0) -> Curves:
    """Label, size, seconds per unit of work times the scale."""
    lines: Curves = {}
    for each in rows(tables, what, prefix):
        for label, seconds in each["details"].get("seconds", {}).items():
            lines.setdefault(label, {})[each["details"]["size"]] = scale * seconds
    return lines


def gaps(tables: Tables) -> list[tuple[str, str, str]]:
    """What could not be measured: the job, who was to do it, and what is missing."""
    found = []
    for table in tables.values():
        for each in table["rows"]:
            if isinstance(each["peer"], str) and each["peer"] != "-":
                why = f"{each['peer']}: {each['note']}" if each["note"] else each["peer"]
                found.append((each["what"], each["against"], why))
            missing = each["details"].get("missing", {})
            found += [(each["what"], label, why) for label, why in missing.items()]
    return found


def filled(lines: Curves) -> Curves:
    """The curves that have a point."""
    return {label: points for label, points in lines.items() if points}
