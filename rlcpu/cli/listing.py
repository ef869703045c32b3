"""`rlcpu list`: which environments there are, and all about one of them."""

from __future__ import annotations

import argparse

from rlcpu.cli.arguments import CommandError, environment


def show(args: argparse.Namespace) -> int:
    """Print the catalogue, or the entry of one environment; returns the exit code."""
    from rlcpu import catalogue

    if args.env is None:
        print(catalogue.table())
        return 0
    try:
        print(catalogue.page(catalogue.entry(args.env.id)))
    except (ImportError, TypeError, ValueError) as error:
        raise CommandError(error) from None
    return 0


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Return the arguments of `rlcpu list`."""
    told = "print all about this one: spaces, parameters, limits, settings"
    parser.add_argument("env", metavar="ENV", nargs="?", type=environment, help=told)
