"""The pictures of the report and of the README, by matplotlib, as SVG.

Each library has its colour, several lines of one library have different styles and markers, and
limits are black.
"""

from __future__ import annotations

import base64
import io
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from asv_benches import colours
from asv_benches.peers.rows import RATES
from rlcpu import palette

Curve = Mapping[float, float]  # abscissa: ordinate
Curves = Mapping[str, Curve]  # by label
Groups = Mapping[str, Mapping[str, float]]  # job, contender, ratio
Jobs = Mapping[str, Mapping[str, tuple[float, str]]]  # job, contender, figure and how it is written

MARKERS = "os^Dv<>P*X"
STYLE = {
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "rlcpu",
}


def curves(lines: Curves, axes: tuple[str, str, int], limits: Mapping[str, Curve | float]) -> str:
    """Growth: one curve for each label, the machine's limits as dashed lines.

    Args:
        lines: label, abscissa, ordinate.
        axes: labels of x and y, and the base of x's logarithm; y is logarithmic too.
        limits: curves or numbers, by label.
    """
    x, y, base = axes

    def draw(plot: Any) -> None:
        styles: dict[str, Any] = {}
        for number, (label, points) in enumerate(lines.items()):
            ours, library = label.startswith("rlcpu"), colours.library(label)
            style = styles.setdefault(library, itertools.cycle(palette.STYLES))
            plot.plot(
                *zip(*sorted(points.items()), strict=True),
                label=label,
                color=colours.colour(label),
                linestyle=next(style),
                marker=MARKERS[number % len(MARKERS)],
                linewidth=2.2 if ours else 1.2,
                markersize=4.5,
                zorder=3 if ours else 2,
            )
        for dashes, (label, limit) in zip(("--", ":", "-."), limits.items(), strict=False):
            look = {"color": "black", "linewidth": 1.2, "linestyle": dashes, "label": label}
            if isinstance(limit, Mapping):
                plot.plot(*zip(*sorted(limit.items()), strict=True), **look)
            else:
                plot.axhline(limit, **look)
        plot.set(xlabel=x, ylabel=y, yscale="log")
        plot.set_xscale("log", base=base)
        legend_below(plot, 3.5)

    return picture(draw, (4.8, 3.5))


def legend_below(plot: Any, inches: float) -> None:
    """Names below a plot that is so many inches high: beside it, a phone would not show them."""
    plot.legend(loc="upper left", bbox_to_anchor=(0.0, -0.6 / inches))


def ratios(groups: Groups, label: str, limit: str) -> str:
    """Dots on a logarithmic axis, one line a job: how many times as long as ours each takes.

    Args:
        groups: job, contender, ratio.
        label: of the axis.
        limit: the contender that is the machine's limit, drawn as a bar.
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    markers = iter(MARKERS * 2)
    height = 1.2 + 0.32 * len(groups)

    def draw(plot: Any) -> None:
        plot.axvline(1, color=colours.BLUE, linewidth=2.2, label="rlcpu")
        for name in sorted(names, key=limit.__eq__):
            look: dict[str, Any] = {"s": 45, "color": colours.colour(name), "marker": next(markers)}
            if name == limit:
                look = {"s": 160, "color": "black", "marker": "|", "linewidth": 1.6}
            dots = [
                (group[name], row) for row, group in enumerate(groups.values()) if name in group
            ]
            plot.scatter(*zip(*dots, strict=True), label=name, zorder=3, **look)
        plot.set_yticks(range(len(groups)), list(groups), fontsize=9)
        plot.set_ylim(len(groups) - 0.5, -0.5)
        plot.set_xscale("log")
        plot.set_xlabel(label)
        legend_below(plot, height)

    return picture(draw, (4.2, height))


def picture(draw: Callable[[Any], None], size: tuple[float, float], columns: int = 1) -> str:
    return url(render(draw, size, columns=columns))


def render(
    draw: Callable[[Any], None],
    size: tuple[float, float],
    title: str = "",
    columns: int = 1,
    tight: bool = True,
) -> str:
    """The SVG of plots side by side; without a date, so that equal plots are equal files.

    Args:
        draw: draws them.
        size: inches.
        title: for those who do not see the picture.
        columns: number of plots.
        tight: whether empty margins are cut off.
    """
    from matplotlib import figure, rc_context

    with rc_context(STYLE):
        whole, buffer = figure.Figure(figsize=size), io.StringIO()
        draw(whole.subplots(1, columns))
        metadata = {"Date": None, **({"Title": title} if title else {})}
        box = "tight" if tight else None
        whole.savefig(buffer, format="svg", bbox_inches=box, metadata=metadata)
        return buffer.getvalue()


def url(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


# ---------------------------------------------------------------- the README's pictures

WIDE = 5.4  # inches: 390 pixels, a phone's width, at which letters have their natural size
LEFT, RIGHT = (
    0.36,
    0.84,
)  # of the width, between which figures are drawn; their numbers stand beside
LINE = 0.235  # inches from one line to the next
PAGE, TEXT, GRID, MUTED = "#ffffff", "#1f2328", "#d1d9e0", "#59636e"
DARK = {PAGE: "#0d1117", TEXT: "#e6edf3", GRID: "#3d444d", MUTED: "#9198a1"}


def chart(title: str, below: str, jobs: Jobs, time: bool, dark: bool = True) -> str:
    """Jobs one below the other, each with a line for every contender, as SVG.

    Rates are dots on a logarithmic axis, times bars from 0: a longer bar is a slower one.

    Args:
        title: what the figures are.
        below: what they were measured on.
        jobs: job, contender, figure and how it is written.
        time: whether the figures are seconds.
        dark: whether the picture follows a reader's dark colours.
    """
    heads: dict[float, str] = {}
    rows: dict[float, tuple[str, float, str]] = {}
    line = 0.0
    for job, contenders in jobs.items():
        heads[line] = job
        for name, figure in contenders.items():
            line += 1.0
            rows[line] = (name, *figure)
        line += 1.4  # a little room between two jobs
    height = LINE * (line + 3.6)
    figures = [value for _, value, _ in rows.values()]

    def draw(plot: Any) -> None:
        plot.set_position((LEFT, 1.3 * LINE / height, RIGHT - LEFT, LINE * line / height))
        words: dict[str, Any] = {"color": TEXT, "va": "center", "fontsize": 10}
        across = plot.get_yaxis_transform()

        def place(x: float) -> float:
            return (x - LEFT) / (RIGHT - LEFT)

        box = {"facecolor": PAGE, "edgecolor": PAGE, "pad": 1.0}  # no line runs through words
        for y, job in heads.items():
            plot.text(place(0.01), y, job, transform=across, weight="bold", bbox=box, **words)
        for y, (name, value, text) in rows.items():
            colour = colours.colour(name)
            plot.text(place(0.345), y, name, transform=across, ha="right", **words)
            plot.text(place(0.86), y, text, transform=across, **words)
            if time:
                plot.barh(y, value, height=0.5, color=colour, zorder=3)
            else:
                plot.hlines(y, 0, 1, transform=across, color=GRID, linewidth=0.8)
                plot.plot(value, y, "o", color=colour, markersize=7, zorder=3)
        low, high = min(figures), max(figures)
        plot.set(ylim=(line - 0.8, -0.6), yticks=[])
        plot.set(xlim=(0, 1.04 * high)) if time else plot.set(
            xscale="log", xlim=(10 ** math.floor(math.log10(low)), 1.6 * high)
        )
        plot.xaxis.set_major_formatter(lambda x, _: f"{x:g}" if time else short(x))
        plot.set_xticks([], minor=True)
        plot.tick_params(axis="x", colors=TEXT, length=0, labelsize=9)
        plot.grid(visible=False)
        plot.grid(axis="x", color=GRID, linewidth=0.8)
        plot.spines[:].set_visible(False)
        whole = plot.figure
        whole.set_facecolor(PAGE)
        top = {"va": "top", "x": 0.01}
        whole.text(
            s=title, y=1 - 0.4 * LINE / height, fontsize=13, weight="bold", color=TEXT, **top
        )
        whole.text(s=below, y=1 - 1.6 * LINE / height, fontsize=8.5, color=MUTED, **top)

    told = (
        f"{job}: " + ", ".join(f"{name} {text}" for name, (_, text) in contenders.items())
        for job, contenders in jobs.items()
    )
    svg = render(draw, (WIDE, height), title=f"{title}. {'; '.join(told)}", tight=False)
    rules = "".join(
        f'[style*="{kind}: {light}"] {{ {kind}: {other} !important; }}\n'
        for light, other in DARK.items()
        for kind in ("fill", "stroke")
    )
    night = f"@media (prefers-color-scheme: dark) {{\n{rules}}}\n"
    return svg.replace("</style>", f"\n{night}</style>", 1) if dark else svg


def short(rate: float) -> str:
    """A power of ten as 100 k, 1 M, 1 G."""
    least, prefix = next(each for each in RATES if rate >= each[0])
    return f"{rate / (least or 1):g} {prefix}".strip()
