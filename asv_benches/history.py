"""`python -m asv_benches.history`: measures the commits of the history that have no results yet.

With `--head`, all benchmarks of the newest commit in place of that: `make bench`.

Runs asv on every commit of `COMMITS` and every tag, oldest first, the benchmarks of
`benchmarks/milestones.py` only. Results are saved commit by commit, so that the same
command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from asv_benches.peers import machine

FOLDER = Path(__file__).parent
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
    end, name = time.monotonic() + 60 * options.minutes, options.machine
    asv("machine", "--machine", name, "--yes")  # asv keeps that in the user's home
    if options.head:
        return asv("run", "--machine", name, "HEAD^!")
    done, failures = measured(name), 0
    missing = [commit for commit in commits() if commit not in done]
    for number, commit in enumerate(missing):
        if number and time.monotonic() > end:
            print(f"{len(missing) - number} commits are left: run the same command again")
            break
        print(f"{commit[:8]} ({number + 1} of {len(missing)})", flush=True)
        failures += asv("run", "--machine", name, "--bench", SUBSET, f"{commit}^!") != 0
    prune()
    return failures


def git(*command: str) -> list[str]:
    """The words that git prints."""
    done = subprocess.run(["git", *command], cwd=FOLDER, capture_output=True, text=True, check=True)
    return done.stdout.split()


def commits() -> list[str]:
    """Full hashes of `COMMITS` and of the tags, oldest first; what this clone lacks is left out."""
    known = [name for name in (*COMMITS, *git("tag", "--list", "v*")) if exists(name)]
    return git("rev-list", "--no-walk", "--reverse", *known) if known else []


def exists(name: str) -> bool:
    """Whether this clone has the commit."""
    command = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(command, cwd=FOLDER, capture_output=True).returncode == 0


def results(name: str) -> Path:
    """The folder of one machine's results."""
    configuration = json.loads((FOLDER / "asv.conf.json").read_text())
    return FOLDER / configuration["results_dir"] / name


def saved(name: str) -> list[Any]:
    """The contents of the result files of a machine, whose name may be a pattern."""
    return [json.loads(path.read_text()) for path in results("").glob(f"{name}/*-*.json")]


def measured(name: str) -> set[str]:
    """Full hashes of the commits with saved milestones."""
    return {
        content["commit_hash"]
        for content in saved(name)
        if any(benchmark.startswith(SUBSET) for benchmark in content["results"])
    }


def prune() -> None:
    """Drops from asv's list of benchmarks, 60 KB of their texts, those without a saved result."""
    path = results("") / "benchmarks.json"
    kept = {"version", *(name for content in saved("*") for name in content["results"])}
    if path.exists():
        listed = json.loads(path.read_text())
        chosen = {name: value for name, value in listed.items() if name in kept}
        path.write_text(json.dumps(chosen, indent=1) + "\n")


def asv(*command: str) -> int:
    """Runs asv in the folder of its configuration."""
    return subprocess.run([sys.executable, "-m", "asv", *command], cwd=FOLDER).returncode


if __name__ == "__main__":
    sys.exit(min(1, main()))
