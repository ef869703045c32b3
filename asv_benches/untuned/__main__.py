"""`python -m asv_benches.untuned`: run agents on the untuned environments and print the table."""

from __future__ import annotations

import argparse
from pathlib import Path

from asv_benches import untuned
from asv_benches.untuned import scores
from rlcpu.cli.arguments import assignment


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m asv_benches.untuned", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="environments (all)")
    add("--agents", nargs="+", default=scores.AGENTS, choices=scores.AGENTS)
    add("--seeds", type=int, default=10, metavar="N", help="the seeds 0 to N - 1 (10)")
    add("--folder", type=Path, required=True, help="where runs are kept; another one by settings")
    add("--set", type=assignment, action="append", default=[], metavar="NAME=VALUE")
    add("--results", type=Path, metavar="FILE", help="of saved scores (none)")
    options = parser.parse_args(arguments)
    for name in set(options.names) - {*untuned.NAMES}:
        parser.error(f"{name!r}: expected one of {', '.join(untuned.NAMES)}")
    made: list[scores.Score] = []
    for name in options.names or untuned.NAMES:
        each = options.agents, options.seeds, options.folder, dict(options.set)
        made += scores.measure(name, *each)
        if options.results:
            scores.save(made, options.results)
        for score in made[-3:]:
            if score.env == name:
                print(name, score.agent, f"{score.mean:.3f}, {score.seconds:.1f} s", flush=True)
    print(scores.markdown(made))


if __name__ == "__main__":
    main()
