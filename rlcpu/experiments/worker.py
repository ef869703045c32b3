"""A process that makes runs of an experiment: `python -m rlcpu.experiments.worker`.

It reads lines of JSON: the plan and the folder first, then jobs, each with its variant. It answers
with lines of JSON, each an event: "ready" or "refused" for the plan, and for a job "steps" now and
then, and "done" or "failed"; "warning" at any time, and "unwritable", after which there is no sense
in going on.
`rlcpu.experiments.pool` is the other side. What environments print goes to standard error. The
process ends with its input, as the one that started it has ended then.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import IO, Any

#: Seconds between two reports of steps.
TICK = 0.2


def main() -> None:
    """Make runs until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    lines, answers = _take_pipes()
    _Worker(lines, answers).work()


def _take_pipes() -> tuple[IO[str], IO[str]]:
    """Return input and output, and leave users' code an empty input, and standard error."""
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return lines, answers


class _Worker:
    """The work of this process."""

    def __init__(self, lines: IO[str], answers: IO[str]) -> None:
        self._answers = answers
        self._jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()
        warnings.showwarning = self._show_warning

    def _read(self, lines: IO[str]) -> None:
        """Take jobs, and end the process with the input, in the middle of a run too."""
        for line in lines:
            self._jobs.put(json.loads(line))
        os._exit(0)

    def _tell(self, event: str, **facts: Any) -> None:
        self._answers.write(json.dumps({"event": event, **facts}) + "\n")
        self._answers.flush()

    def _show_warning(self, message: Any, category: Any, *_: Any, **__: Any) -> None:
        """Pass a warning on, which nobody would read here."""
        self._tell("warning", category=category.__name__, text=str(message))

    def work(self) -> None:
        """Read the plan, and make runs."""
        first = self._jobs.get()
        # From here on users' modules are imported.
        from rlcpu.experiments.folder import UnwritableError, Variant
        from rlcpu.experiments.plan import Plan
        from rlcpu.experiments.single import PlannedRun, describe, make_run

        try:
            plan, folder = Plan.of_description(first["plan"]), Path(first["folder"])
            plan.code()  # imports all that is named
        except (Exception, SystemExit) as error:
            self._tell("refused", reason=str(error))
            return
        self._tell("ready")
        while True:
            message = self._jobs.get()
            job = PlannedRun(**message["job"])
            plan.variants[job.variant] = Variant(**message["variant"])
            try:
                make_run(plan, job, folder, _Reporter(self._tell))
            except (Exception, SystemExit) as error:
                if isinstance(error, UnwritableError):
                    self._tell("unwritable", reason=str(error))
                self._tell("failed", reason=describe(error))
            else:
                self._tell("done")


class _Reporter:
    """Tells how far a run has come, not too often."""

    def __init__(self, tell: Any) -> None:
        self._tell, self._next, self._was_learning = tell, 0.0, False

    def __call__(self, steps: int, is_learning: bool) -> None:
        """Tell it, if it is time, or if there was the first update; see `single.Report`."""
        now = time.monotonic()
        if now >= self._next or is_learning != self._was_learning:
            self._next, self._was_learning = now + TICK, is_learning
            self._tell("steps", steps=steps, is_learning=is_learning)


if __name__ == "__main__":
    main()
