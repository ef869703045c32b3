"""The pictures of the report and of the README, by matplotlib, as SVG.

What is ours is blue, and limits are dashed lines.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any

from asv_benches.peers.rows import format_ratio

Curve = Mapping[float, float]  # abscissa: ordinate
Curves = Mapping[str, Curve]  # by label
Groups = Mapping[str, Mapping[str, float]]  # job, contender, ratio

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


def curves(lines: Curves, axes: tuple[str, str, int], limits: Mapping[str, Curve | float]) -> str:
    """Growth: one curve for each label, the machine's limits as dashed lines.

    Args:
        lines: label, abscissa, ordinate.
        axes: labels of x and y, and the base of x's logarithm; y is logarithmic too.
        limits: curves or numbers, by label.
    """
    x, y, base = axes

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
            look = {"color": "black", "linewidth": 1.2, "linestyle": dashes, "label": label}
            if isinstance(limit, Mapping):
                plot.plot(*zip(*sorted(limit.items()), strict=True), **look)
            else:
                plot.axhline(limit, **look)
        plot.set(xlabel=x, ylabel=y, yscale="log")
        plot.set_xscale("log", base=base)
        legend_below(plot, 4.0)

    return picture(draw, (7.2, 4.0))


def legend_below(plot: Any, inches: float) -> None:
    """Names below a plot that is so many inches high: beside it, a phone would not show them."""
    plot.legend(loc="upper left", bbox_to_anchor=(0.0, -0.6 / inches), ncol=2)


def ratios(groups: Groups, label: str, limit: str) -> str:
    """Dots on a logarithmic axis, one line a job: how many times as long as ours each takes.

    Args:
        groups: job, contender, ratio.
        label: of the axis.
        limit: the contender that is the machine's limit, drawn as a bar.
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    looks: list[dict[str, Any]] = [
        {"s": 45, "color": colour, "marker": marker}
        for colour, marker in zip(PEERS * 2, MARKERS * 2, strict=False)
    ]
    height = 1.2 + 0.32 * len(groups)

    def draw(plot: Any) -> None:
        plot.axvline(1, color=OURS[0], linewidth=2.2, label="rlcpu")
        for name in sorted(names, key=limit.__eq__):
            look = {"s": 160, "color": "black", "marker": "|", "linewidth": 1.6}
            look = look if name == limit else looks.pop(0)
            dots = [
                (group[name], row) for row, group in enumerate(groups.values()) if name in group
            ]
            plot.scatter(*zip(*dots, strict=True), label=name, zorder=3, **look)
        plot.set_yticks(range(len(groups)), list(groups), fontsize=9)
        plot.set_ylim(len(groups) - 0.5, -0.5)
        plot.set_xscale("log")
        plot.set_xlabel(label)
        legend_below(plot, height)

    return picture(draw, (6.0, height))


def picture(draw: Callable[[Any], None], size: tuple[float, float], columns: int = 1) -> str:
    return url(render(draw, size, columns=columns))


def render(
    draw: Callable[[Any], None], size: tuple[float, float], title: str = "", columns: int = 1
) -> str:
    """The SVG of plots side by side; without a date, so that equal plots are equal files."""
    from matplotlib import figure, rc_context

    with rc_context(STYLE):
        whole, buffer = figure.Figure(figsize=size), io.StringIO()
        draw(whole.subplots(1, columns))
        metadata = {"Date": None, **({"Title": title} if title else {})}
        whole.savefig(buffer, format="svg", bbox_inches="tight", metadata=metadata)
        return buffer.getvalue()


def url(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


# ---------------------------------------------------------------- the README's picture

FIRST, LAST = 0.5, 300.0  # ratios at the picture's left and right edge
PAGE, TEXT, GRID, FASTER, SLOWER = "#ffffff", "#1f2328", "#d1d9e0", "#0b5cad", "#c0392b"
DARK = {
    PAGE: "#0d1117",
    TEXT: "#e6edf3",
    GRID: "#3d444d",
    FASTER: "#58a6ff",
    SLOWER: "#f85149",
}


def speed(rows: list[dict[str, Any]], dark: bool = True) -> str:
    """Bars on a logarithmic axis: how many times as fast as the peer, as SVG.

    Args:
        rows: what `readme.chosen` gives.
        dark: whether the picture follows a reader's dark colours.
    """

    def draw(plot: Any) -> None:
        for line, row in enumerate(rows):
            ratio = min(max(row["ratio"], FIRST), LAST)
            colour = FASTER if ratio >= 1 else SLOWER
            plot.barh(line, ratio - 1, left=1, height=0.36, color=colour, zorder=2)
            words = {"color": TEXT, "va": "center", "fontsize": 11, "zorder": 3}
            text = f"{row['what']} | {row['against']}"
            plot.text(1.03, line - 0.42, text, **words)
            plot.text(1.05 * max(1, ratio), line, format_ratio(row["ratio"], row["kind"]), **words)
        names = {1: "as fast", 10: "10 times as fast", 100: "100 times as fast"}
        plot.set(xscale="log", xlim=(FIRST, LAST), ylim=(len(rows) - 0.5, -0.75), yticks=[])
        plot.set_xticks(list(names), list(names.values()), minor=False, color=TEXT)
        plot.set_xticks([], minor=True)
        plot.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        plot.grid(color=GRID)
        plot.axvline(1, color=TEXT, linewidth=0.8, zorder=3)
        plot.spines[:].set_visible(False)
        plot.figure.set_facecolor(PAGE)

    listed = (f"{r['what']}: {format_ratio(r['ratio'], r['kind'])}" for r in rows)
    title = "Times as fast as others: " + "; ".join(listed)
    svg = render(draw, (8.6, 0.5 + 0.52 * len(rows)), title=title)
    rules = "".join(
        f'[style*="{kind}: {light}"] {{ {kind}: {other} !important; }}\n'
        for light, other in DARK.items()
        for kind in ("fill", "stroke")
    )
    night = f"@media (prefers-color-scheme: dark) {{\n{rules}}}\n"
    return svg.replace("</style>", f"\n{night}</style>", 1) if dark else svg
