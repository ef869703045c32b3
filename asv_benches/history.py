"""`python -m asv_benches.history`: measures the commits of the history that have no results yet.

With `--head`, all benchmarks of the newest commit in place of that: `make bench`. asv saves the
milestones commit by commit, so that the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from asv_benches.peers import machine

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "asv"
SUBSET = "milestones"
# Where something began, or became faster.
COMMITS = (
    "a6024d2",  # kernels, environments, fused rollouts
    "a110b0d",  # inlined functions compiled once
    "72283e3",  # scopes for the rows of the lane loop
    "3b3b8a7",  # sum tree of eight children a node
    "4e69652",  # replay buffers
    "6a5cf37",  # private memory with huge pages
    "e659b15",  # rows streamed past the caches
    "351add4",  # larger parts for each thread
    "a88d005",  # returns, linear recurrences, logcumsumexp
    "f2b3922",  # tridiagonal systems, Kalman filters
    "3dee7ea",  # long systems by chunks
    "99b89e9",  # packages of their own
)


def main(arguments: list[str] | None = None) -> int:
    """Measures one commit at least, and until the time is up; returns how many failed."""
    parser = argparse.ArgumentParser(prog="python -m asv_benches.history", description=__doc__)
    parser.add_argument("--machine", default=machine.name(), help="the name under which to save")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no commit after (60)")
    parser.add_argument("--head", action="store_true", help="the newest commit, all benchmarks")
    options = parser.parse_args(arguments)
    end, name, failures = time.monotonic() + 60 * options.minutes, options.machine, 0
    asv("machine", "--machine", name, "--yes")  # asv keeps that in the user's home
    if options.head:
        return asv("run", "--machine", name, "HEAD^!")
    done = measured(name)
    missing = [commit for commit in commits() if commit not in done]
    for number, commit in enumerate(missing):
        if number and time.monotonic() > end:
            print(f"{len(missing) - number} commits are left: run the same command again")
            break
        print(f"{commit[:8]} ({number + 1} of {len(missing)})", flush=True)
        failures += asv("run", "--machine", name, "--bench", SUBSET, f"{commit}^!") != 0
    return failures


def commits() -> list[str]:
    """Full hashes of `COMMITS` and of the tags, oldest first; what this clone lacks is left out."""
    names = *COMMITS, *git("tag", "--list", "v*")
    known = [name for name in names if git("rev-parse", "-q", "--verify", f"{name}^{{commit}}")]
    return git("rev-list", "--no-walk", "--reverse", *known) if known else []


def git(*command: str) -> list[str]:
    """The words that git prints; none where it fails."""
    return subprocess.run(
        ["git", *command], cwd=FOLDER, capture_output=True, text=True
    ).stdout.split()


def measured(name: str) -> set[str]:
    """Full hashes of the commits with saved milestones of one machine."""
    saved = (json.loads(path.read_text()) for path in RESULTS.glob(f"{name}/*-*.json"))
    return {
        content["commit_hash"]
        for content in saved
        if any(benchmark.startswith(SUBSET) for benchmark in content["results"])
    }


def asv(*command: str) -> int:
    """Runs asv in the folder of its configuration."""
    return subprocess.run([sys.executable, "-m", "asv", *command], cwd=FOLDER).returncode


if __name__ == "__main__":
    sys.exit(min(1, main()))
