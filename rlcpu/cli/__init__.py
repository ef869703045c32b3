"""The `rlcpu` command.

`commands` has its subcommands and `arguments` the types of what they take; `train` and `seeds` run
one agent and several, `files` and `report` are what a run writes and prints; each other file does
what one command says.
"""

from rlcpu.cli.commands import build_parser, main

__all__ = ["build_parser", "main"]
