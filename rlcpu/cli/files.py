"""The files of `rlcpu train`: the agent, its curve and a film, of an interrupted run too."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcpu.cli.curves import draw_run
from rlcpu.cli.films import write_video
from rlcpu.cli.labels import labels_of
from rlcpu.cli.report import EXIT_FAILED
from rlcpu.terminal import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.cli.report import Agent

#: Of the evaluation at the end.
EPISODES = 100
#: Options that name what is written beside the agent.
FILES = ("csv", "tensorboard", "plot", "video")
#: Options that say what is evaluated and saved on the way.
ON_THE_WAY = ("evaluations", "eval_episodes", "keep_best", "patience", "save_every")


def next_seed(agent: Agent) -> int:
    """Return the seed after that of an agent's training, for episodes."""
    return (agent.seed + 1) % 2**128


def schedules_of(config: Any) -> list[str]:
    """Return the settings that say how others change over the steps of a run, by name."""
    names = "learning_rate_schedule", "clip_schedule"  # that of exploration has steps of its own
    return [name for name in names if name in config.names()]


class Files:
    """The files of a training run; where one cannot be written, the others still are."""

    def __init__(self, args: argparse.Namespace, agent: Agent, target: float | None) -> None:
        self.args, self.agent, self.target = args, agent, target
        self.saved: Path | None = None  # where the agent was saved
        self._saved_at: int | None = None  # its total steps when the table was written with it
        #: Lines to print on files that were written, and that could not be.
        self.written: list[str] = []
        self.failed: list[str] = []

    def write_agent(self) -> None:
        """Write the agent and the table of its curve, if they are wanted."""
        if self.args.save:
            self._save(self.args.save)
        if self.args.keep_best and self.agent.best_evaluation is not None:
            self.written.append(f"{'best':<12}{self.args.keep_best}")
        if self.args.csv:
            self._write("table", self.args.csv, self._write_table)

    def write_table_too(self, progress: Any) -> None:
        """Write the table where `learn` has saved the agent since the last call; a callback."""
        if progress.saved_at != self._saved_at:
            self._saved_at = progress.saved_at
            self._write_table()

    def _write_table(self) -> None:
        """Write the table of the curve."""
        labels = labels_of(self.agent, self.args.name)
        self.agent.history.to_csv(self.args.csv, self.args.load is not None, labels)

    def write_pictures(self, returns: NDArray[np.float64] | None) -> None:
        """Draw the curve and film an episode, if they are wanted."""
        args, history = self.args, self.agent.history
        if args.plot and history.updates:
            seed, env_id = self.agent.seed, self.agent.env.dynamics.id
            title = (
                f"{type(self.agent).__name__} on {env_id}, seed {seed}: {history.time_total:.2f} s"
            )
            greedy = None if returns is None else (history.steps, returns)
            self._write(
                "picture",
                args.plot,
                lambda: draw_run(args.plot, history, title, self.target, greedy),
            )
        if args.video and returns is not None:
            seed = next_seed(self.agent)
            self._write("video", args.video, lambda: write_video(self.agent, args.video, seed))

    def stop(self, code: int, reason: str) -> int:
        """Save the agent of a run that did not come to its end; returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # in another thread than the main one
                signal.signal(number, signal.SIG_DFL)  # the second one ends at once
        agent, history = self.agent, self.agent.history
        message = f"rlcpu train: {reason}"
        if not history.updates:
            say(f"{message}; nothing was learnt yet", "yellow", sys.stderr)
            return code
        env_id = agent.env.dynamics.id.replace(":", "-").replace("/", "-")
        self.args.save = self.args.save or Path(f"{env_id}-interrupted.npz")
        if not any(line.startswith("saved") for line in self.written):
            self.write_agent()
        self.write_pictures(None)
        say(f"{message} after {history.steps:,} steps", "yellow", sys.stderr)
        for line in self.written:
            print(line, file=sys.stderr)
        for line in self.failed:
            say(line, "red", sys.stderr)
        if code != EXIT_FAILED and not self.failed:
            print(f"to go on    {shlex.join(self._command_to_go_on())}", file=sys.stderr)
        return code

    def _command_to_go_on(self) -> list[str]:
        """Return the words of the command that makes the rest of the run, into the same files."""
        args, agent, history = self.args, self.agent, self.agent.history
        env = [args.env.text] if args.env and ":" in args.env.text else []
        options = {"load": self.saved or args.save, "steps": max(1, args.steps - history.steps)}
        if self.saved is not None and self.saved.name != Path(args.save).name:  # "{steps}" in it
            options["save"] = args.save
        if args.evaluations is not None or any(
            getattr(agent.config, name) != "constant" for name in schedules_of(agent.config)
        ):
            first = history.steps_before  # the steps of earlier runs
            options["schedule"] = "{}:{}".format(*(args.schedule or (first, first + args.steps)))
        repeated = ("target", "threads", *ON_THE_WAY, "collectors", "shards", "ray", *FILES)
        values = {name: getattr(args, name) for name in repeated}
        options |= {name: value for name, value in values.items() if value is not None}
        if args.episodes != EPISODES:
            options["episodes"] = args.episodes
        flags = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items()}
        words = [word for pair in flags.items() for word in pair]
        return ["rlcpu", "train", *env, *words, *["--no-progress"] * args.no_progress]

    def print_files(self) -> int:
        """Print the files written, and those that could not be; returns the exit code."""
        print("\n".join(self.written), end="\n" if self.written else "")
        for line in self.failed:
            say(line, "red", sys.stderr)
        return EXIT_FAILED if self.failed else 0

    def _save(self, path: Path) -> None:
        """Write the agent to the file, or, where that fails, to another one."""
        from rlcpu.train.running.upkeep import with_steps

        history = self.agent.history
        path = Path(with_steps(path, history.total_steps))
        if history.saved_at == history.total_steps:  # `learn` has done it
            self.saved = path
            self.written.append(f"{'saved':<12}{path}")
            return
        rescue = Path(tempfile.gettempdir(), f"{path.name}.rescued.npz")
        if self._write("saved", path, lambda: self.agent.save(path)):
            self.saved = path
        elif self._write("saved", rescue, lambda: self.agent.save(rescue)):
            self.saved = rescue

    def _write(self, kind: str, path: Path, write: Callable[[], None]) -> bool:
        """Write a file, and note its path, or that it failed; returns whether it was written."""
        try:
            write()
        except OSError as error:
            self.failed.append(
                f"rlcpu train: error: cannot write {path}: {error.strerror or error}"
            )
            return False
        self.written.append(f"{kind:<12}{path}")
        return True
