"""`rlcpu check`: try an environment, print what was found."""

from __future__ import annotations

import argparse

from rlcpu.cli_arguments import environment, whole

EXIT_ERRORS = 1


def check(args: argparse.Namespace) -> int:
    """Check an environment; returns the exit code."""
    from rlcpu.envs import check

    report = check(args.env.id, args.steps, args.seed)
    print(report)
    return 0 if report.ok else EXIT_ERRORS


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rlcpu check`."""
    add = parser.add_argument
    add("env", metavar="ENV", type=environment, help="such as CartPole-v1, or module:MyEnv-v0")
    add("--steps", metavar="N", type=whole(1), default=1000, help="single steps to compare (1,000)")
    add("--seed", metavar="N", type=whole(0), default=0, help="of states and actions (0)")
