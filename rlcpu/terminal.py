"""Shows on standard error what goes on: a bar, and one line while kernels are compiled.

On a terminal rich draws them at the bottom, below what is printed meanwhile. A notebook gets one
line that is written anew, and a file or pipe a line at each tenth of the whole. Colours are left
out under NO_COLOR and where nobody looks. RLCPU_PROGRESS=0 switches bars and lines off.

rich is imported when it draws: `import rlcpu` does not wait for it.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from rlcpu.forks import waited_for

#: Seconds after which a line is written anew.
TICK = 1.0
#: Heights of a number in a line of text.
_BARS = "▁▂▃▄▅▆▇█"

_bars: list[Bar] = []
_lock = waited_for(threading.Lock())
_written = 0  # characters of the line that `rewrite` wrote last


def reader() -> str:
    """Return what reads standard error: "terminal", "notebook", "file", or "" for nobody."""
    if sys.stderr is None or os.environ.get("RLCPU_PROGRESS") == "0":
        return ""
    if type(sys.stderr).__module__.startswith("ipykernel"):
        return "notebook"
    return "terminal" if sys.stderr.isatty() else "file"


def is_watched() -> bool:
    """Return whether somebody watches standard error, on a terminal."""
    return reader() == "terminal"


def say(text: str, style: str = "", file: TextIO | None = None) -> None:
    """Print a line, to standard output by default, in a colour such as "green" on a terminal."""
    file = sys.stdout if file is None else file
    if not style or not _is_terminal(file):
        print(text, file=file)
        return
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(text, style=style)


def _is_terminal(stream: Any) -> bool:
    """Return whether a stream, which may be None or closed, is a terminal."""
    return bool(getattr(stream, "isatty", bool)())


# ---------------------------------------------------------------- numbers


def short(number: float) -> str:
    """Return a number in at most five characters.

    Example:
        >>> short(1234567), short(950), short(1e6)
        ('1.23M', '950', '1M')
    """
    if not math.isfinite(number):
        return "?"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * size:  # it rounds to 1.00 of this size
            return f"{number / size:.{3 if number < 999.5 * size else 4}g}{letter}"
    return f"{number:.3g}"


def rounded(number: float) -> str:
    """Return a number with four significant digits, or all in front of the point.

    Example:
        >>> rounded(0.96649), rounded(475), rounded(-12345.6)
        ('0.9665', '475.0', '-12346')
    """
    size = abs(number)
    if not math.isfinite(size) or 0.0 < size < 1e-4:
        return f"{number:.4g}"
    digits = 3 - math.floor(math.log10(size)) if size else 1
    return f"{number:.{max(0, digits)}f}"


def sparkline(numbers: Sequence[float]) -> str:
    """Return numbers as a line of bars, from the lowest to the highest; a blank for NaN.

    Example:
        >>> sparkline([0.0, 1.0, 7.0, 3.5])
        '▁▂█▄'
    """
    finite = [number for number in numbers if math.isfinite(number)]
    low = min(finite, default=0.0)
    scale = (max(finite, default=0.0) - low) or 1.0
    places = [(x - low) / scale * (len(_BARS) - 1) if math.isfinite(x) else -1.0 for x in numbers]
    return "".join(_BARS[int(place)] if place >= 0.0 else " " for place in places)


def clock(seconds: float) -> str:
    """Return seconds as 0:07 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


# ---------------------------------------------------------------- a bar


class Bar:
    """Shows how far something has come; a context manager.

    Args:
        title: of what.
        total: its end, in units.
        unit: such as "steps".
    """

    def __init__(self, title: str, total: int, unit: str) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done, self.seconds, self.text, self.extra = 0, 0.0, "", ""
        #: What is prepared meanwhile; "" for nothing.
        self.note = ""
        self._reader = reader()
        self._tenths = 0  # of the whole, in the line that was written last
        self._live: Any = None

    def show(self, done: int, seconds: float = 0.0, text: str = "", extra: str = "") -> None:
        """Move on.

        Args:
            done: units so far.
            seconds: which they took; 0 tells no speed.
            text: a line about the state.
            extra: one more.
        """
        self.done, self.seconds, self.text, self.extra = done, seconds, text, extra
        tenths = min(10 * done // max(self.total, 1), 10)
        if self._reader == "notebook" or (self._reader == "file" and tenths > self._tenths):
            self._tenths = tenths
            self._print()

    def measure(self) -> str:
        """Return what has been done, the speed and the time left, in words."""
        end = f" of {short(self.total)}" if self.done < self.total else ""
        parts = [f"{short(self.done)}{end} {self.unit}"]
        if self.seconds > 0.0 and self.done:
            parts.append(f"{short(self.done / self.seconds)} {self.unit}/s")
            if self.done < self.total:
                left = (self.total - self.done) * self.seconds / self.done
                parts.append(f"{clock(left)} left")
        return ", ".join(parts)

    def _print(self) -> None:
        share = math.floor(100 * self.done / max(self.total, 1))
        parts = [f"{self.title}: {share}%, {self.measure()}", self.text, self.extra]
        line = "; ".join(part for part in parts if part)
        if self._reader == "notebook":
            rewrite(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def _lines(self) -> Any:
        """Return the renderables that rich draws."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        def line(text: str, style: str = "") -> Text:
            return Text(text, style, no_wrap=True, overflow="ellipsis")

        lines: list[Any] = []
        if self.done:
            row = Table.grid(padding=(0, 2), expand=False)
            style = "green" if self.done >= self.total else "cyan"
            bar = ProgressBar(self.total, self.done, width=22, complete_style=style)
            row.add_row(bar, line(self.measure()))
            lines.append(row)
            lines += [line(text) for text in (f"{self.title}: {self.text}", self.extra) if text]
        if self.note:
            lines.append(line(self.note, "yellow"))
        return Group(*lines)

    def __enter__(self) -> Bar:
        _bars.append(self)
        if self._reader == "terminal":
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True, highlight=False, emoji=False, markup=False),
                get_renderable=self._lines,
                redirect_stdout=_is_terminal(sys.stdout),
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _bars.remove(self)
        self.note = ""
        if kind is None:  # all is done, be it earlier than expected
            self.total = self.done
        if self._live is not None:
            self._live.transient = not self.done  # nothing was reached: nothing stays
            self._live.stop()
        elif self._reader == "notebook" and self.done:
            self._print()
            print(file=sys.stderr)
        elif self._reader == "file" and kind is None and self._tenths < 10:
            self._print()


# ---------------------------------------------------------------- a line


@contextlib.contextmanager
def noted(text: Callable[[], str], quiet: float) -> Iterator[None]:
    """Show a line in a block, below the bar if there is one, and clear it at the end.

    Args:
        text: makes the line; it is asked every second, in another thread.
        quiet: seconds before the line is shown where there is no bar.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_note, args=(text, quiet, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _note(text: Callable[[], str], quiet: float, stop: threading.Event) -> None:
    """Show a line until told to stop; the arguments are as in `noted`."""
    show: Callable[[str], None] = rewrite
    if _bars and _bars[-1]._live is not None:
        show = functools.partial(setattr, _bars[-1], "note")
    elif stop.wait(quiet):
        return
    show(text())
    while not stop.wait(TICK):
        show(text())
    show("")


def rewrite(line: str) -> None:
    """Write a line in the place of the last one, which was not ended; "" clears that."""
    global _written
    with _lock:
        line = line[: shutil.get_terminal_size().columns - 1]
        end = "\r" if not line else ""
        sys.stderr.write(f"\r{line:<{_written}}{end}")
        sys.stderr.flush()
        _written = len(line)
