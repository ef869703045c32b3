"""Measures tables, then writes what is asked for.

`python -m asv_benches.peers scan readme` measures the table `scan`, merges its rows into the saved
ones and rewrites README.md's figures from all that is saved. `all` stands for every table.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from asv_benches.peers import cuda, machine, readme, report, rows, suite
from asv_benches.peers.harness import FULL, QUICK


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    words, folder, name = options.what, options.results or rows.RESULTS, options.machine
    tables = [*suite.TABLES] if "all" in words else [w for w in words if w in suite.TABLES]
    if "cuda" in words:
        missing = cuda.missing()
        print(f"no GPU figures: {missing}" if missing else cuda.device_name())
        tables += [] if missing else ["cuda"]
    if tables:
        print(f"{machine.cpu_name()}, {machine.cores()} cores; each row in a process of its own")
        effort = QUICK if options.quick else FULL
        plan = suite.Plan(effort, options.minutes, options.hours, options.only, options.figures)
        # Quick figures mean nothing: they are kept only where somebody asks for them.
        kept = options.results if options.quick else folder
        print(suite.measure_tables(tables, kept, name, plan))
    if "report" in words:
        path = folder / f"{name}.html"
        report.write(path, folder, name)
        print(f"wrote {os.path.relpath(path)}")
    if "readme" in words:
        readme.rewrite(results=folder)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m asv_benches.peers", description=__doc__)
    add, words = parser.add_argument, ["all", *suite.TABLES, "cuda", "report", "readme"]
    add("what", nargs="+", choices=words, metavar="WHAT", help=", ".join(words))
    add("--only", metavar="NAME", default="", help="rows whose name contains NAME")
    add("--figures", action="store_true", help="only the rows that README.md shows")
    add("--quick", action="store_true", help="few repetitions: figures mean nothing")
    add("--minutes", type=float, default=float("inf"), help="begin no row after")
    add("--hours", type=float, default=0.0, help="keep rows that are as young")
    add("--results", metavar="DIR", type=Path, help="of the saved figures")
    add("--machine", metavar="NAME", default=machine.name(), help="for file names")
    return parser.parse_intermixed_args(arguments)  # WHAT may stand on both sides of an option


if __name__ == "__main__":
    main()
