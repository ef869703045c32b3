"""`python -m asv_benches.peers simulate|collect|train|replay|scan|readme`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from asv_benches.peers import collect, machine, readme, replay, report, scan, simulate, train
from asv_benches.peers.timing import FULL, QUICK

TABLES = {
    "simulate": simulate.rows,
    "collect": collect.rows,
    "train": train.rows,
    "replay": replay.rows,
    "scan": scan.rows,
}


def main(arguments: list[str] | None = None) -> None:
    """Measures one table, prints it row by row and saves it; or rewrites the README's figures."""
    options = parse(arguments)
    if options.what != "readme":
        measure(options)
    if options.what == "readme" or options.readme:
        readme.rewrite()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m asv_benches.peers", description=__doc__)
    parser.add_argument("what", choices=[*TABLES, "readme"])
    parser.add_argument(
        "--quick", action="store_true", help="few repetitions: figures mean nothing"
    )
    parser.add_argument("--only", metavar="NAME", default="", help="rows whose name contains NAME")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where to save the figures")
    parser.add_argument("--machine", metavar="NAME", default=machine.name(), help="for file names")
    parser.add_argument("--readme", action="store_true", help="rewrite README.md's figures after")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> None:
    """Measures, prints and saves one table.

    A quick or partial table is saved only where `--json` names a file.
    """
    effort = QUICK if options.quick else FULL
    rows = [row for row in TABLES[options.what]() if options.only in row.name]
    print(f"{machine.cpu_name()}, {machine.cores()} cores; each row in a process of its own")
    report.print_header()
    results = []
    for result in report.measure(rows, effort):
        report.print_row(result)
        results.append(result)
    report.print_closest(results)
    path = options.json
    if path is None and not (options.quick or options.only):
        path = report.RESULTS / f"{options.machine}-{options.what}.json"
    if path is not None:
        report.save(path, options.what, results, effort)
        print(f"saved {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
