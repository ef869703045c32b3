"""Tells users what is being compiled, and counts the seconds.

The logger "rlcpu" logs each kernel (INFO). On a terminal and in a notebook one line of standard
error names it, once a process has compiled for a second, until the kernel is ready.
`logging.getLogger("rlcpu").setLevel("WARNING")` and TQDM_DISABLE=1 switch the line off.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger("rlcpu")
#: Seconds of compiling in this process before a line is shown.
QUIET = 1.0
#: Seconds after which the line is written anew.
TICK = 1.0

_lock = threading.Lock()
_running, _since, _total = 0, 0.0, 0.0


def seconds() -> float:
    """Seconds in which this process has compiled kernels, loaded them or waited for them."""
    with _lock:
        return _total + (time.perf_counter() - _since if _running else 0.0)


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Count the seconds of a block; what several threads do at once counts once."""
    global _running, _since, _total
    with _lock:
        _since = _since if _running else time.perf_counter()
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            _total += 0.0 if _running else time.perf_counter() - _since


@contextlib.contextmanager
def announced(subject: str, kernel: str) -> Iterator[None]:
    """Tell that a kernel is compiled in a block, and count its seconds.

    The garbage collector is off: to look at numba's million objects again and again takes 12 % of
    the time of PPO's kernels.
    """
    start, collects = time.perf_counter(), gc.isenabled()
    logger.info("compiling %s (once): %s", subject, kernel)
    stop = threading.Event()
    line = None
    if _has_reader():
        text = f"compiling {subject} (once): {kernel}"
        line = threading.Thread(target=_show, args=(text, start, stop), daemon=True)
        line.start()
    gc.disable()
    try:
        with counted(), _interrupts():
            yield
    finally:
        if collects:
            gc.enable()
        stop.set()
        if line:
            line.join()
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


def _has_reader() -> bool:
    """Whether somebody reads standard error, and is not told by logging."""
    if logger.isEnabledFor(logging.INFO) or logger.level > logging.INFO or sys.stderr is None:
        return False
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")


def _show(text: str, start: float, stop: threading.Event) -> None:
    """Show a line below other bars, with the seconds since `start`, until told to stop."""
    if stop.wait(max(0.0, QUIET - seconds())):
        return
    from tqdm import tqdm

    class Line(tqdm):
        monitor_interval = 0  # no thread that stays behind

    with Line(bar_format="{desc}", leave=False) as bar:
        while not stop.is_set():
            bar.set_description_str(f"{text} {time.perf_counter() - start:.0f} s")
            stop.wait(TICK)
