"""Learning curves: a line for each variant, with the interval of its seeds as a band around it.

Pictures are as wide as a telephone: letters of 10 points stay readable where a page shows them in
390 pixels. Names stand above the curves, where they hide none.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu import palette
from rlcpu.experiments.statistics import (
    FEWEST_SEEDS,
    NAMES,
    SAMPLES_OF_CURVES,
    check_statistic,
    interval,
)
from rlcpu.experiments.tables import INTERVAL
from rlcpu.train.keeping.files import replacing

Array = npt.NDArray[np.float64]
#: Inches of a picture, of each further panel and of each further row of names.
WIDTH, HEIGHT, PANEL, ROW = 5.2, 3.4, 2.6, 0.18
#: Pixels of an inch in a file.
RESOLUTION = 200
#: Points of a line at most: more than a picture shows.
MOST_POINTS = 200
#: Points of the letters of names, and how many of these a row has room for.
NAMES_SIZE, LETTERS = 9, 72
_STYLE = {
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
#: Names of the abscissas that users give, and what is written below them.
ABSCISSAS = {"steps": "environment steps", "seconds": "seconds of learning"}


class Points(NamedTuple):
    """The curve of one run, P points in ascending order."""

    steps: Array  # (P,) of the environment
    returns: Array  # (P,)
    seconds: Array  # (P,) of learning until then; NaN where nobody knows


class Panel(NamedTuple):
    """The curves of one environment."""

    ordinate: str  # what the returns are
    lines: Mapping[str, Sequence[Points]]  # runs by the name of the line
    levels: Mapping[str, float] = {}  # returns to draw a dotted line at, by the name of that

    def without_empty_runs(self) -> Panel:
        """Return the panel without runs that have no point, and without lines that have no run."""
        lines = {name: [run for run in runs if len(run.steps)] for name, runs in self.lines.items()}
        return self._replace(lines={name: runs for name, runs in lines.items() if runs})


# ---------------------------------------------------------------- numbers


def points(steps: npt.ArrayLike, returns: npt.ArrayLike, seconds: npt.ArrayLike = ()) -> Points:
    """Return a curve without the points that have no return yet."""
    columns = np.full((3, np.size(steps)), np.nan)
    columns[0], columns[1] = steps, returns
    if np.size(seconds):
        columns[2] = seconds
    return Points(*columns[:, np.isfinite(columns[1])])


def common_grid(runs: Sequence[Points]) -> Array:
    """Return the steps (G,) of the line of several runs.

    They are those at which the last of the runs has its first point, its second one, and so on:
    no value is shown before it was measured. There are at most `MOST_POINTS`.
    """
    longest = max(len(run.steps) for run in runs)
    last = [max(run.steps[k] for run in runs if len(run.steps) > k) for k in range(longest)]
    grid = np.unique(last)
    grid = grid[grid >= last[0]]  # where all have begun
    return grid if len(grid) <= MOST_POINTS else np.linspace(grid[0], grid[-1], MOST_POINTS)


def held(run: Points, grid: Array) -> Points:
    """Return the last point of a run at each of the steps of a grid, which begins behind it."""
    places = np.searchsorted(run.steps, grid, side="right") - 1
    return Points(grid, run.returns[places], run.seconds[places])


def check_abscissa(over: str) -> None:
    """Raise ValueError unless `over` is what curves can be drawn over."""
    if over not in ABSCISSAS:
        raise ValueError(f"over={over!r}: expected one of {', '.join(ABSCISSAS)}")


# ---------------------------------------------------------------- pictures


def draw(
    panels: Sequence[Panel],
    *,
    title: str = "",
    statistic: str = "mean",
    over: str = "steps",
    axes: Any = None,
    is_needed: bool = True,
) -> Any:
    """Draw a panel of curves for each environment, one below the other.

    A line of several runs is their statistic, with its interval over seeds as a band: from the
    lowest to the highest where they are fewer than five. Over seconds it is the same line, each
    point at the median of the seconds that the runs took for its steps.

    Args:
        panels: what is drawn.
        title: stands above the names.
        statistic: of a line of several runs: "mean", "median" or "iqm".
        over: what the abscissas are: "steps" or "seconds".
        axes: matplotlib's, or a list of them for each panel; None makes a figure.
        is_needed: refuse a panel without a line.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is missing, or SciPy where lines are of several runs.
        ValueError: another statistic or abscissa, or there is nothing to draw.
    """
    check_statistic(statistic)
    check_abscissa(over)
    panels = [panel.without_empty_runs() for panel in panels]
    if is_needed and not all(panel.lines for panel in panels):
        raise ValueError("there is nothing to draw: no run is done, or no episode has ended yet")
    mpl = _matplotlib()
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    looks = {name: palette.look(number) for number, name in enumerate(names)}
    with mpl.rc_context(_STYLE):
        is_new = axes is None
        if is_new:
            figure = _figure_class()(dpi=RESOLUTION, layout="constrained")
            axes = figure.subplots(len(panels), squeeze=False)[:, 0]
        drawn = list(np.atleast_1d(axes))
        if len(drawn) != len(panels):
            raise ValueError(f"axes: got {len(drawn)}, expected {len(panels)}")
        for each, panel in zip(drawn, panels, strict=True):
            _draw_panel(each, panel, looks, statistic, over)
        drawn[-1].set_xlabel(ABSCISSAS[over])
        rows = name_lines(drawn, [title, _in_words(panels, statistic)])
        if is_new:
            height = HEIGHT + (len(panels) - 1) * PANEL + (rows - 1) * ROW
            drawn[0].figure.set_size_inches(WIDTH, height)
    return drawn[0].figure


def _draw_panel(
    axes: Any, panel: Panel, looks: Mapping[str, Any], statistic: str, over: str
) -> None:
    """Draw the curves of one environment, and its levels."""
    counts = {len(runs) for runs in panel.lines.values()}
    for name, runs in panel.lines.items():
        (colour, style), grid = looks[name], common_grid(runs)
        shown = [held(run, grid) for run in runs]
        values = np.stack([run.returns for run in shown])
        x = grid if over == "steps" else np.median([run.seconds for run in shown], axis=0)
        line = values[0]
        if len(runs) > 1:
            line, low, high = interval([values], check_statistic(statistic), SAMPLES_OF_CURVES)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        label = name if len(counts) == 1 else f"{name}, {len(runs)} seed{'s' * (len(runs) > 1)}"
        marker = "." if len(grid) == 1 else None
        axes.plot(x, line, color=colour, linestyle=style, marker=marker, label=label)
    for name, level in panel.levels.items():
        axes.axhline(level, color="0.4", linewidth=1, linestyle=(0, (1, 2)), zorder=1, label=name)
    axes.xaxis.set_major_formatter("{x:,.0f}" if axes.get_xlim()[1] > 10.0 else "{x:g}")
    axes.locator_params(axis="x", nbins=5)
    axes.set_ylabel(panel.ordinate)


def name_lines(axes: Sequence[Any], titles: Sequence[str] = ()) -> int:
    """Write the names of all lines above the first axes, each of them once, below titles.

    Returns:
        How many rows of text that are.
    """
    lines: dict[str, Any] = {}
    titles = list(filter(None, titles))
    for each in axes:
        for line, name in zip(*each.get_legend_handles_labels(), strict=True):
            lines.setdefault(name, line)
    columns = max(1, min(len(lines), LETTERS // (max(map(len, lines), default=0) + 8)))
    axes[0].legend(
        lines.values(),
        lines.keys(),
        title="\n".join(titles),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        ncols=columns,
        frameon=False,
        alignment="left",
        fontsize=NAMES_SIZE,
        title_fontsize=NAMES_SIZE,
    )
    return len(titles) - (-len(lines) // columns)


def write(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file, whose ending chooses the format.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as file:
        figure.savefig(file, dpi=RESOLUTION, format=os.path.splitext(path)[1][1:].lower())


def _in_words(panels: Sequence[Panel], statistic: str) -> str:
    """Return what lines and bands are; "" where each line is one run."""
    counts = {len(runs) for panel in panels for runs in panel.lines.values()}
    if max(counts, default=1) == 1:
        return ""
    seeds = f"of {counts.copy().pop()} seeds" if len(counts) == 1 else "over seeds"
    if max(counts) < FEWEST_SEEDS:
        return f"{NAMES[statistic]} {seeds}, lowest to highest"
    return f"{NAMES[statistic]} {seeds} and its {INTERVAL}"


@functools.cache
def _figure_class() -> Any:
    """Return a class of figures that notebooks show, whether or not they have imported pyplot."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """A figure that a notebook shows as a picture."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=RESOLUTION / 2)
            return file.getvalue()

    return NotebookFigure


def _matplotlib() -> Any:
    """Return matplotlib; ImportError with what to install where it is missing."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError(f"{error}: pip install matplotlib") from error
    return mpl
