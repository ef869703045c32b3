"""Tells users what is being compiled, and counts the seconds.

The logger "rlcpu" logs each kernel (INFO). On a terminal and in a notebook one line of standard
error says what is prepared and how far it is, once a process has compiled for a second.
`logging.getLogger("rlcpu").setLevel("WARNING")` and RLCPU_PROGRESS=0 switch the line off.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from rlcpu import terminal
from rlcpu.forks import waited_for

logger = logging.getLogger("rlcpu")
#: Seconds of compiling in this process before a line is shown.
QUIET = 1.0


class CompilePlan(NamedTuple):
    """Kernels that are about to be needed."""

    subject: str  # what they are for, such as an environment's id
    total: int  # how many
    begin: float  # seconds that had been counted before the first of them


_lock = waited_for(threading.Lock())
#: Blocks of `time_counted` that run now.
_running = 0
#: Seconds when the first of them began, and those counted before it: of the clock, of the CPUs.
_since, _total = (0.0, 0.0), (0.0, 0.0)
#: What `expect` announced, and how many of its kernels are there.
_plan: CompilePlan | None = None
_ready = 0
_is_shown = False  # whether there is a line


def seconds() -> float:
    """Return the seconds in which this process has compiled, loaded or awaited kernels."""
    with _lock:
        return _counted()[0]


def _counted() -> tuple[float, float]:
    """Return the seconds of all blocks of `time_counted` so far: of the clock, of the CPUs."""
    if not _running:
        return _total
    now, cpu_now = _now()
    return _total[0] + now - _since[0], _total[1] + cpu_now - _since[1]


def _now() -> tuple[float, float]:
    """Return the clock, and the seconds of CPUs that this process has taken."""
    return time.perf_counter(), time.process_time()


@contextlib.contextmanager
def time_counted() -> Iterator[None]:
    """Count the seconds of a block; those that several threads share count once."""
    global _running, _since, _total
    with _lock:
        _since = _since if _running else _now()
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _total = _total if _running > 1 else _counted()
            _running -= 1


def expect(subject: str, total: int) -> None:
    """Announce the purpose of the next kernels, and how many are loaded or compiled."""
    global _plan, _ready
    _plan, _ready = CompilePlan(subject, total, seconds()), 0


def count() -> None:
    """Count one more kernel that has been loaded or compiled."""
    global _ready
    with _lock:
        _ready += 1


def ready() -> int:
    """Return how many kernels have been loaded or compiled since `expect`."""
    return _ready


@contextlib.contextmanager
def announced(subject: str, kernel: str) -> Iterator[None]:
    """Tell that a kernel is compiled in a block, and count its seconds.

    The garbage collector is off: to look at numba's million objects again and again takes 12 % of
    the time of PPO's kernels. What the compiler has made counts as old afterwards: to look at it
    once after each kernel would take 5 %.
    """
    start, collects = time.perf_counter(), gc.isenabled()
    logger.info("compiling %s (once): %s", subject, kernel)
    gc.disable()
    try:
        with time_counted(), _shown_line(subject), _interrupts():
            yield
    finally:
        if collects:
            if not gc.get_freeze_count():  # else the objects that somebody froze would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()
    logger.info("compiled %s: %s in %.1f s", subject, kernel, time.perf_counter() - start)


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """Raise at the end of a block the interrupt that was lost in it.

    LLVM calls functions of Python, and no exception passes through it: where Ctrl-C comes there, a
    quarter of the time, Python says that it is ignored. Only the main thread is interrupted, and it
    alone sets the hook: two threads would put back each other's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    lost: list[BaseException] = []
    before = sys.unraisablehook

    def keep(unraisable: Any) -> None:
        """Keep an interrupt, and pass on other exceptions that Python cannot raise."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            lost.append(unraisable.exc_value)
        else:
            before(unraisable)

    sys.unraisablehook = keep
    try:
        yield
    finally:
        sys.unraisablehook = before
    if lost:
        raise lost[0]


@contextlib.contextmanager
def _shown_line(subject: str) -> Iterator[None]:
    """Show what is prepared. Kernels that a kernel compiles on its way share its line."""
    global _is_shown
    if _is_shown or not _has_reader():
        yield
        return
    begin = seconds()
    _is_shown = True
    try:
        with terminal.noted(lambda: _describe(subject, begin), quiet=max(0.0, QUIET - begin)):
            yield
    finally:
        _is_shown = False


def _describe(subject: str, begin: float) -> str:
    """Return the line: what is prepared, which kernel of how many, for how many seconds.

    `begin` is what `seconds` was when the kernel began.
    """
    part = ""
    if _plan is not None and _ready < _plan.total:
        subject, begin = _plan.subject, _plan.begin
        part = f", {_ready + 1} of {_plan.total}"
    return f"preparing {subject}, first time only{part}, {seconds() - begin:.0f} s"


def _has_reader() -> bool:
    """Tell whether somebody reads standard error, and is not told by logging."""
    if logger.isEnabledFor(logging.INFO) or logger.level > logging.INFO:
        return False
    return terminal.reader() in ("terminal", "notebook")


def clock() -> float:
    """Return seconds since some moment, without those in which kernels were compiled."""
    return time.perf_counter() - seconds()


def cpu_clock() -> float:
    """Return seconds of CPUs that this process has taken, but for compiling and loading kernels."""
    with _lock:
        return time.process_time() - _counted()[1]
