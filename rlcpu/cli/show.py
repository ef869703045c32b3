"""`rlcpu show`: what the file of a saved agent says, without making the agent."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Iterator
from typing import Any

from rlcpu.cli.arguments import CommandError
from rlcpu.cli.labels import setting_in_words
from rlcpu.terminal import rounded

#: Columns of the report at most.
COLUMNS = 80


def show(args: argparse.Namespace) -> int:
    """Run `rlcpu show`: print environment, settings, versions and history of a saved agent."""
    from rlcpu.train.keeping.checkpoint import read_description

    try:
        format, description = read_description(args.file)
    except FileNotFoundError:
        raise CommandError(f"there is no file {args.file!r}") from None
    except ValueError as error:
        raise CommandError(error) from None
    try:
        lines = list(_lines(format.split()[1], description))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # A damaged description may be anything.
        raise CommandError(f"{args.file}: no agent of rlcpu, or damaged: {error!r}") from None
    for label, text in lines:
        print_wrapped(label, text)
    return 0


def print_wrapped(label: str, text: str) -> None:
    """Print a line of a report, whose label has 12 columns, on as many lines as it takes."""
    print(textwrap.fill(f"{label:<12}{text}", COLUMNS, subsequent_indent=" " * 12))


def _lines(algorithm: str, description: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line about an agent."""
    steps, seed = description["steps"], description["seed"]
    yield "agent", f"{algorithm} on {description['env']}, {steps:,} steps, seed {seed}"
    usual, params, whose = _usual(algorithm, description)
    changed = {k: v for k, v in description["params"].items() if k not in params or params[k] != v}
    if description["dtype"] != "float32":
        changed["dtype"] = description["dtype"]
    yield "environment", _in_words(changed) or "its parameters are the usual ones"
    limit = description["max_episode_steps"]
    yield "", "episodes have no limit" if limit is None else f"episodes of {limit:,} steps at most"
    config = description["config"]
    changed = {k: v for k, v in config.items() if k not in usual or usual[k] != v}
    yield "settings", _in_words(changed) or f"all are {whose}"
    if changed:
        yield "", f"the other {len(config) - len(changed)} are {whose}"
    if returns := description["returns"]:
        mean = rounded(sum(map(float, returns)) / len(returns))
        yield "training", f"mean return {mean} over the last {len(returns)} episodes"
    if best := description.get("best"):
        mean, episodes = rounded(best["mean_return"]), f"{best['num_episodes']} greedy episodes"
        when = f"{best['steps']:,} steps, the best evaluation so far"
        yield "evaluated", f"mean return {mean} over {episodes} after {when}"
    versions = description.get("versions", {})
    yield "versions", ", ".join(f"{k} {v}" for k, v in versions.items()) or "the file has none"
    for number, call in enumerate(description.get("calls", ())):
        yield "" if number else "history", _call_in_words(**call)


def _usual(algorithm: str, description: dict[str, Any]) -> tuple[dict[str, Any], Any, str]:
    """Return the settings and parameters that `rlcpu train` takes, and whose they are."""
    from rlcpu.envs.contract.names import find
    from rlcpu.envs.registration import registered
    from rlcpu.train.settings.algorithms import algorithm as agent_class

    kind = agent_class(algorithm.lower())
    if description["env"] in registered():
        dynamics = find(description["env"])
        config, params = kind.default_config(dynamics), dynamics.settings()
        whose = f"those that agents take for {description['env']}"
    else:
        config, params = kind.Config(), {}
        whose = f"the defaults of {algorithm}: {description['env']} is not registered here"
    # As JSON has them, where a tuple is a list.
    values = {name: getattr(config, name) for name in config.names()}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}, params, whose


def _in_words(values: dict[str, Any]) -> str:
    """Return settings as the command line takes them."""
    return " ".join(f"{name}={setting_in_words(value)}" for name, value in values.items())


def _call_in_words(
    steps: int, episodes: int, episode_return: float, seconds: float, stopped: str, version: str
) -> str:
    """Return what a call of `learn` has come to; the arguments are the fields of `PastCall`."""
    ends = {
        "steps": "its steps were used up",
        "solved": "the target was reached",
        "patience": "evaluations no longer improved",
        "callback": "a callback ended it",
        "interrupted": "it was interrupted",
        "error": "an error ended it",
    }
    mean = "" if math.isnan(episode_return) else f"mean return {rounded(episode_return)}, "
    return (
        f"{steps:,} steps, {episodes:,} episodes in {seconds:.2f} s by rlcpu {version}: "
        f"{mean}{ends.get(stopped, 'it went on')}"
    )
