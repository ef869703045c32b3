"""The `rlcpu` command.

`commands` has its subcommands and `arguments` the types of what they take; each other file does
what one of them says.
"""

from rlcpu.cli.commands import build_parser, main

__all__ = ["build_parser", "main"]
