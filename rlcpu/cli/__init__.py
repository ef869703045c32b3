"""The `rlcpu` command: `commands.py` has its subcommands, the other files what they do."""

from rlcpu.cli.commands import build_parser, main

__all__ = ["build_parser", "main"]
