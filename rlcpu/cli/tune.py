"""`rlcpu tune`: a search over settings, which ends with a file for `rlcpu train --settings`."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

from rlcpu.cli.arguments import CommandError
from rlcpu.cli.report import EXIT_FAILED, print_line
from rlcpu.cli.seeds import quiet
from rlcpu.cli.train import Terminated, terminating, unique


def tune(args: argparse.Namespace) -> int:
    """Search for settings, and print the best ones; returns the exit code."""
    from rlcpu.envs.contract.names import find
    from rlcpu.experiments import RunError
    from rlcpu.experiments import tune as search_for
    from rlcpu.train.settings.tuned import fitting

    algo = args.algo or fitting(args.env.id)
    folder = Path(args.save or f"tune-{re.sub('[^A-Za-z0-9.-]+', '-', args.env.id)}-{algo}")
    space = dict(args.space)
    if len(space) < len(args.space):
        raise CommandError("--space: a setting is given twice")
    try:
        env = find(args.env.id).with_params(**dict(args.param)) if args.param else args.env.text
        with terminating(), quiet(args.no_progress):
            search = search_for(
                env,
                algo,
                trials=args.trials,
                seeds=args.seeds,
                seed=args.seed,
                steps=args.steps,
                space=space,
                settings=unique(args.set, {}),
                minutes=args.minutes,
                final_episodes=args.episodes,
                folder=folder,
                workers=args.threads,
            )
    except KeyboardInterrupt as error:
        print("rlcpu tune: interrupted; the same command goes on", file=sys.stderr)
        return 143 if isinstance(error, Terminated) else 130
    except (OSError, RunError, ImportError, TypeError, ValueError) as error:
        code = EXIT_FAILED if isinstance(error, OSError | RunError) else 2
        raise CommandError(error, code) from None
    print(f"{search}\n")
    print_line("saved", str(folder))
    params = [f"--param={name}={value}" for name, value in args.param]
    words = ["rlcpu", "train", args.env.text, *params, "--settings", str(search.file)]
    print_line("next", shlex.join(words))
    return 0
