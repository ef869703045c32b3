"""`rlcpu doctor`: what hampers learning in the run of a saved agent, and what to set."""

from __future__ import annotations

import argparse

from rlcpu.cli.arguments import CommandError
from rlcpu.cli.labels import setting_in_words
from rlcpu.cli.report import EXIT_FAILED
from rlcpu.cli.show import print_wrapped
from rlcpu.cli.train import load_agent
from rlcpu.terminal import say


def doctor(args: argparse.Namespace) -> int:
    """Run `rlcpu doctor`: print what hampers a saved agent; returns the exit code."""
    from rlcpu.envs.gymnasium.task import EnvironmentFailure

    agent = load_agent(args)
    try:
        diagnosis = agent.diagnose(seed=args.seed)
    except ValueError as error:
        raise CommandError(f"{args.load}: {error}") from None
    except (FloatingPointError, MemoryError, EnvironmentFailure) as error:
        raise CommandError(error, EXIT_FAILED) from error
    say(diagnosis.summary, "green" if diagnosis.ok else "yellow")
    for each in diagnosis.hindrances:
        changes = [f"--set {name}={setting_in_words(x)}" for name, x in each.settings.items()]
        answers = [text for text in (" ".join(changes), each.advice) if text]
        print_wrapped(each.name, each.message)
        print_wrapped("", f"try {' or '.join(answers)}")
    return 0 if diagnosis.ok else EXIT_FAILED
