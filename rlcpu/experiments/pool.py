"""Processes that make runs, seen from the one that started them; `worker.py` is the other side."""

from __future__ import annotations

import builtins
import collections
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from rlcpu.experiments.folder import UnwritableError, Variant
from rlcpu.experiments.plan import Plan
from rlcpu.experiments.single import PlannedRun
from rlcpu.kernels.compiler.hooks import setting

#: Workers that may die over one run, and lines of what they wrote that are shown then.
MOST_DEATHS, TAIL = 3, 5
#: Libraries that users' environments may bring have as many threads each as there are CPUs.
_ONE_THREAD = dict.fromkeys(
    ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


def can_start() -> bool:
    """Tell whether there is a Python to start workers with."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


class Worker:
    """One process, and the job that it has.

    Args:
        first: the first line that it reads.
        messages: where what it tells is put, with the worker; None for its end.
    """

    def __init__(self, first: str, messages: queue.SimpleQueue[tuple[Worker, Any]]) -> None:
        self.job: PlannedRun | None = None
        self.steps = 0
        self.is_ready = False
        # The same modules as here. "-P" leaves out the working folder, which may not be among them.
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        folder: str = setting("CACHE_DIR")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rlcpu.experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path, "NUMBA_CACHE_DIR": folder},
        )
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL)
        self._listeners = [
            threading.Thread(target=listen, daemon=True)
            for listen in (self._read_errors, lambda: self._read_answers(messages))
        ]
        for listener in self._listeners:
            listener.start()
        self._write(first)

    def begin(self, job: PlannedRun, variant: Variant) -> None:
        """Give it a job, of a variant that it may not have heard of."""
        self.job, self.steps = job, 0
        self._write(json.dumps({"job": job._asdict(), "variant": variant._asdict()}))

    def _write(self, line: str) -> None:
        """Write a line; one that has died is heard of by its end."""
        pipe: Any = self._process.stdin
        with contextlib.suppress(OSError):
            pipe.write(f"{line}\n".encode())
            pipe.flush()

    def _read_answers(self, messages: queue.SimpleQueue[tuple[Worker, Any]]) -> None:
        """Pass on what it tells, in a thread."""
        for line in _lines(self._process.stdout):
            messages.put((self, json.loads(line)))
        messages.put((self, None))

    def _read_errors(self) -> None:
        """Keep the last lines of its standard error, in a thread."""
        self._tail.extend(line for line in _lines(self._process.stderr) if line.strip())

    def end(self) -> str:
        """Kill it if it runs, and return how it ended and what it wrote last."""
        self._process.kill()
        code = self._process.wait()
        for listener in self._listeners:
            listener.join(1.0)  # processes of the user's may still hold its pipes
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        tail = " / ".join(line.strip() for line in self._tail)
        return f"{how}: {tail}" if tail else how


def _lines(pipe: IO[bytes] | None) -> Iterator[str]:
    """Yield the lines of a pipe until it ends, or is closed here."""
    with contextlib.suppress(ValueError):
        for line in pipe or ():
            yield line.decode(errors="replace")


class Pool:
    """Makes runs in other processes; a context manager, at whose end all of them have ended.

    Args:
        plan: of the experiment; variants may be added to it between two calls.
        folder: that runs are written to.
        size: processes at most.
        show: called with the steps of runs that are not done yet and the number of those that are.
    """

    def __init__(
        self, plan: Plan, folder: Path, size: int, show: Callable[[int, int], None]
    ) -> None:
        self._plan, self._folder, self._size, self._show = plan, folder, size, show
        self._messages: queue.SimpleQueue[tuple[Worker, Any]] = queue.SimpleQueue()
        self._workers: list[Worker] = []
        self._jobs: collections.deque[PlannedRun] = collections.deque()
        self._deaths: collections.Counter[PlannedRun | None] = collections.Counter()
        self._failed: dict[str, str] = {}  # a reason by the variant
        self._warned: set[str] = set()
        #: What variants compile of which a run has made an update; see `_kernels_of`.
        self._prepared: set[str] = set()
        self._num_done = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        while self._workers:
            self._workers.pop().end()

    def start(self, number: int) -> None:
        """Start so many processes, which import what they need meanwhile."""
        described = {"plan": self._plan.describe(), "folder": os.path.abspath(self._folder)}
        while len(self._workers) < min(number, self._size):
            self._workers.append(Worker(json.dumps(described), self._messages))

    def make_runs(self, jobs: Iterable[PlannedRun]) -> dict[str, str]:
        """Make runs, begun in this order.

        Returns:
            Reasons by variant, where a run did not come to its end; no other of that variant was
            begun then.

        Raises:
            OSError: the folder cannot be written.
            ValueError: the plan cannot be followed in another process.
        """
        self._jobs.extend(jobs)
        self._failed, self._num_done = {}, 0
        self.start(len(self._jobs))
        while self._jobs or any(worker.job for worker in self._workers):
            self._assign()
            # Ctrl-C does not end a wait without a limit on Windows.
            with contextlib.suppress(queue.Empty):
                self._handle(*self._messages.get(timeout=1.0))
            self._show(sum(worker.steps for worker in self._workers), self._num_done)
        return self._failed

    def _assign(self) -> None:
        """Give jobs to workers without one.

        While a run makes the first update of kernels that no other run has used, no run of other
        kernels begins, so that no two processes compile the same, and runs of the same kernels wait
        for it.
        """
        for worker in self._workers:
            if worker.job is None and worker.is_ready:
                preparing = {self._kernels_of(each.job) for each in self._workers if each.job}
                is_preparing = bool(preparing - self._prepared)
                for job in self._jobs:
                    if self._kernels_of(job) in self._prepared or not is_preparing:
                        self._jobs.remove(job)
                        worker.begin(job, self._plan.variants[job.variant])
                        break

    def _kernels_of(self, job: PlannedRun) -> str:
        """Return what of a variant decides which kernels are compiled: not its other numbers."""
        chosen = self._plan.variants[job.variant]
        config = {
            name: value
            for name, value in chosen.config.items()
            if isinstance(value, bool | str | None) or name == "num_envs"
        }
        return json.dumps([chosen.algo, config])

    def _handle(self, worker: Worker, message: Any) -> None:
        """React to what a worker told, None for its end."""
        if message is None:
            self._replace(worker)
        elif message["event"] == "refused":
            raise ValueError(
                f"in another process: {message['reason']}; what is to be run has to be importable "
                "there, as module:name, or give workers=1"
            )
        elif message["event"] == "unwritable":
            raise UnwritableError(message["reason"])
        elif message["event"] == "ready":
            worker.is_ready = True
        elif message["event"] == "warning":
            self._warn(message["category"], message["text"])
        elif message["event"] == "steps":
            worker.steps = message["steps"]
            if message["is_learning"] and worker.job is not None:
                self._prepared.add(self._kernels_of(worker.job))
        else:
            self._finish(worker, message)

    def _finish(self, worker: Worker, message: Any) -> None:
        """Take the end of a run, which worked or failed."""
        job: Any = worker.job
        worker.job, worker.steps = None, 0
        if message["event"] == "done":
            self._num_done += 1
            self._prepared.add(self._kernels_of(job))
        else:
            self._fail(job, message["reason"])

    def _fail(self, job: PlannedRun, reason: str) -> None:
        """Note a run that failed; no other of its variant begins."""
        self._failed.setdefault(job.variant, f"{job}: {reason}")
        self._prepared.add(self._kernels_of(job))
        self._jobs = collections.deque(each for each in self._jobs if each.variant != job.variant)

    def _replace(self, worker: Worker) -> None:
        """Take the end of a worker: its run is made again, by a new one."""
        job, how = worker.job, worker.end()
        self._workers.remove(worker)
        self._deaths[job] += 1
        if self._deaths[job] < MOST_DEATHS:
            if job is not None:
                self._jobs.appendleft(job)
        elif job is None:
            raise ValueError(f"workers={self._size}: no worker could be started ({how})")
        else:
            self._fail(job, f"{MOST_DEATHS} workers died over it ({how})")
        if self._jobs:
            self.start(len(self._workers) + 1)

    def _warn(self, category: str, text: str) -> None:
        """Show a warning of a worker, once in this experiment."""
        if text not in self._warned:
            self._warned.add(text)
            kind = getattr(builtins, category, UserWarning)
            warnings.warn(text, kind if isinstance(kind, type) else UserWarning, stacklevel=4)
