"""The report's pictures, as SVG in data URLs: what is ours in blue, limits as dashed lines."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Curve = Mapping[float, float]  # abscissa: ordinate

OURS = ("#0b3d91", "#2f7ed8", "#7db7f0", "#0aa5a5", "#4455cc", "#6a8caf")
PEERS = ("#c0392b", "#e08e0b", "#7f8c3d", "#8e44ad", "#7f5f3f", "#d35f9a", "#555555")
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


class Axes(NamedTuple):
    """What a plot's axes say.

    Attributes:
        x, y: labels, with units.
        x_base: of the logarithm: 2 or 10; 0 for a linear axis.
        log_y: whether the ordinate is logarithmic.
    """

    x: str
    y: str
    x_base: int = 2
    log_y: bool = True


def curves(lines: Mapping[str, Curve], axes: Axes, limits: Mapping[str, Curve | float]) -> str:
    """Growth: one curve for each label, the machine's limits as dashed lines."""

    def draw(plot: Any) -> None:
        colours = {True: iter(OURS * 2), False: iter(PEERS * 2)}
        for number, (label, points) in enumerate(lines.items()):
            ours = label.startswith("rlcpu")
            plot.plot(
                *zip(*sorted(points.items()), strict=True),
                label=label,
                color=next(colours[ours]),
                marker=MARKERS[number % len(MARKERS)],
                linewidth=2.2 if ours else 1.2,
                markersize=4.5,
                zorder=3 if ours else 2,
            )
        for dashes, (label, limit) in zip(("--", ":", "-."), limits.items(), strict=False):
            draw_limit(plot, label, limit, dashes)
        set_axes(plot, axes)
        legend_below(plot)

    return picture(draw, (7.2, 4.0))


def legend_below(plot: Any, inches: float = 4.0) -> None:
    """Names below a plot that is so many inches high: beside it, a phone would not show them."""
    plot.legend(loc="upper left", bbox_to_anchor=(0.0, -0.6 / inches), ncol=2)


def draw_limit(plot: Any, label: str, limit: Curve | float, dashes: str) -> None:
    """A horizontal line, or a curve."""
    look = {"color": "black", "linewidth": 1.2, "linestyle": dashes, "label": label}
    if isinstance(limit, Mapping):
        plot.plot(*zip(*sorted(limit.items()), strict=True), **look)
    else:
        plot.axhline(limit, **look)


def set_axes(plot: Any, axes: Axes) -> None:
    """Labels and scales."""
    plot.set_xlabel(axes.x)
    plot.set_ylabel(axes.y)
    if axes.x_base:
        plot.set_xscale("log", base=axes.x_base)
    if axes.log_y:
        plot.set_yscale("log")
    else:
        plot.set_ylim(bottom=0)


def stacks(bars: Mapping[str, Mapping[str, float]], axes: Axes) -> str:
    """Horizontal bars, each made of named parts: all parts in the order of the first bar."""

    def draw(plot: Any) -> None:
        parts = list(next(iter(bars.values())))
        names = list(bars)
        begins = [0.0] * len(names)
        for part, colour in zip(parts, ("#c0392b", "#f0b429", "#2f7ed8"), strict=False):
            widths = [bars[name].get(part, 0.0) for name in names]
            plot.barh(names, widths, left=begins, label=part, color=colour)
            begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
        plot.invert_yaxis()
        plot.set_xlabel(axes.x)
        plot.grid(axis="y", visible=False)
        plot.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncol=3)

    return picture(draw, (7.2, 0.6 + 0.38 * len(bars) + 0.6))


def ratios(groups: Mapping[str, Mapping[str, float]], label: str, limit: str) -> str:
    """Dots on a logarithmic axis, one line a job: how many times as long as ours each takes.

    Args:
        groups: job, contender, ratio.
        label: of the axis.
        limit: the contender that is the machine's limit, drawn as a bar.
    """

    def draw(plot: Any) -> None:
        plot.axvline(1, color=OURS[0], linewidth=2.2, label="rlcpu")
        names = list(dict.fromkeys(name for group in groups.values() for name in group))
        looks = zip(PEERS * 2, MARKERS * 2, (name for name in names if name != limit), strict=False)
        for colour, marker, name in looks:
            scatter(plot, groups, name, {"s": 45, "color": colour, "marker": marker})
        if limit in names:
            look = {"s": 160, "color": "black", "marker": "|", "linewidth": 1.6}
            scatter(plot, groups, limit, look)
        plot.set_yticks(range(len(groups)), list(groups), fontsize=9)
        plot.set_ylim(len(groups) - 0.5, -0.5)
        plot.set_xscale("log")
        plot.set_xlabel(label)
        legend_below(plot, inches=1.2 + 0.32 * len(groups))

    return picture(draw, (6.0, 1.2 + 0.32 * len(groups)))


def scatter(
    plot: Any, groups: Mapping[str, Mapping[str, float]], name: str, look: dict[str, Any]
) -> None:
    """One contender's dots, where it took part."""
    rows = [row for row, group in enumerate(groups.values()) if name in group]
    values = [group[name] for group in groups.values() if name in group]
    plot.scatter(values, rows, label=name, zorder=3, **look)


def panels(plots: Mapping[str, Mapping[str, Curve]], axes: Axes) -> str:
    """Small plots side by side that share their axes, one legend."""
    from matplotlib import figure, rc_context

    with rc_context(STYLE):
        whole = figure.Figure(figsize=(2.9 * len(plots) + 1.2, 3.4))
        row = whole.subplots(1, len(plots), sharey=True, squeeze=False)
        for plot, (title, lines) in zip(row[0], plots.items(), strict=True):
            for colour, marker, (label, points) in zip(OURS, MARKERS, lines.items(), strict=False):
                ends = zip(*sorted(points.items()), strict=True)
                plot.plot(*ends, label=label, color=colour, marker=marker, markersize=4.5)
            plot.set_title(title, fontsize=10)
            set_axes(plot, axes)
        for plot in row[0][1:]:
            plot.set_ylabel("")
        row[0][-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return save(whole)


def picture(draw: Callable[[Any], None], size: tuple[float, float]) -> str:
    """One plot, drawn without a display."""
    from matplotlib import figure, rc_context

    with rc_context(STYLE):
        whole = figure.Figure(figsize=size)
        draw(whole.subplots())
        return save(whole)


def save(figure: Any) -> str:
    """The figure as a data URL; without a date, so that equal figures are equal files."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
