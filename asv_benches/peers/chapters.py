"""The report's chapters: which pictures and tables, from whatever tables were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from asv_benches.peers import chapter_paper, pictures, saved
from asv_benches.peers.pictures import Axes
from asv_benches.peers.saved import Tables
from asv_benches.peers.sources import LIMIT


class Picture(NamedTuple):
    """A picture and what it shows.

    Attributes:
        url: a data URL.
        caption: one or two sentences.
    """

    url: str
    caption: str


class Chapter(NamedTuple):
    """One section of the report.

    Attributes:
        name: for links.
        title: its heading.
        text: its introduction.
        pictures: to look at.
        tables: names of the tables below them.
        claims: figure, ratio, what the source printed, what it is here.
    """

    name: str
    title: str
    text: str
    pictures: list[Picture]
    tables: tuple[str, ...] = ()
    claims: tuple[tuple[str, str, str, str], ...] = ()


def make(tables: Tables) -> list[Chapter]:
    """All chapters; a picture whose rows were not measured is left out."""
    return [
        Chapter(
            "paper",
            "Data collection",
            "The figures of “Optimizing Data Collection in Deep Reinforcement Learning” (2022), "
            "drawn there for a GPU, measured here on a CPU: N environments, K steps a call.",
            drawn(tables, chapter_paper.PICTURES),
            ("paper", "simulate", "collect"),
            chapter_paper.claims(tables),
        ),
        Chapter(
            "replay",
            "Store and sample",
            "flashbax's issue that adding to a buffer on a CPU is slow, and the post “8h to gain "
            "26h” on drawing in proportion to returns.",
            drawn(tables, [fill_picture, add_picture, tree_picture]),
            ("sources", "replay"),
        ),
        Chapter(
            "scan",
            "Recurrences",
            "JAX's issue 2491, “Jax scans are slower than expected”, and other scans.",
            drawn(tables, [gist_picture, shapes_picture, scan_picture]),
            ("scan",),
        ),
        Chapter("train", "Training", "", drawn(tables, [training_picture]), ("train",)),
    ]


def drawn(
    tables: Tables, makers: Iterable[Callable[[Tables], tuple[str, str] | None]]
) -> list[Picture]:
    """The pictures for which there are figures."""
    made = (maker(tables) for maker in makers)
    return [Picture(*each) for each in made if each]


def fill_picture(tables: Tables) -> tuple[str, str] | None:
    """The post's Figure 1."""
    lines = saved.panel_times(tables, "sources", "fill-", scale=1e3)
    axes = Axes("items in the buffer", "ms to add 1 and draw 256", 0)
    return lines and (
        pictures.curves(lines, axes, {}),
        "The post's Figure 1, time to sample while the buffer fills: its versions grow with the "
        "buffer, up to 20.0 to 41.2 ms (NumPy) and 7.7 to 15.5 ms (torch) at a million on the "
        "post's machines; the tree grows with its logarithm.",
    )


def add_picture(tables: Tables) -> tuple[str, str] | None:
    """flashbax's issue."""
    lines: dict[str, dict[float, float]] = {"rlcpu": {}, "flashbax, donated": {}}
    for steps in (1, 2, 100):
        row = saved.row(tables, "replay", f"trajectory-add-{steps}")
        for label, key in zip(lines, ("ours", "peer"), strict=True):
            if row and isinstance(row[key], float):
                lines[label][steps] = 1e6 * row[key]
    printed = {"printed in the issue, donated": {1: 72.0, 2: 203_946.0, 100: 208_669.0}}
    copy = saved.row(tables, "replay", "trajectory-copy")
    limits = {}
    if copy and isinstance(copy["peer"], float):
        limits["limit: copy of the data"] = {n: 1e4 * copy["peer"] * n for n in (1, 2, 100)}
    axes = Axes("time steps of 16 environments a call", "us a call", 10)
    return saved.filled(lines) and (
        pictures.curves({**saved.filled(lines), **printed}, axes, limits),
        "Adding to a prioritised buffer of 2 million time steps. In the issue's version of JAX two "
        "time steps cost 2,800 times one; today's has no such copies. The limit is a copy of 640 "
        "KB to a random place, for fewer time steps in proportion.",
    )


def tree_picture(tables: Tables) -> tuple[str, str] | None:
    """Sum trees."""
    lines: dict[str, dict[float, float]] = {}
    for row in saved.rows(tables, "replay", "tree-sample-"):
        _, _, size, peer = row["name"].split("-")
        for label, key in (("rlcpu", "ours"), (peer, "peer")):
            if isinstance(row[key], float):
                lines.setdefault(label, {})[float(size)] = 1e9 * row[key] / float(size)
    axes = Axes("leaves drawn by one call", "ns a leaf")
    return lines and (
        pictures.curves(lines, axes, {}),
        "Drawing from a sum tree of 2^20 leaves, in proportion to their priorities.",
    )


def gist_picture(tables: Tables) -> tuple[str, str] | None:
    """Tridiagonal systems, more and more of them."""
    lines = saved.panel_times(tables, "sources", "gist-", scale=1e3)
    limits = {LIMIT: lines.pop(LIMIT)} if LIMIT in lines else {}
    axes = Axes("unknowns, in systems of 100, float64", "ms a call", 10)
    return lines and (
        pictures.curves(lines, axes, limits),
        "Tridiagonal systems of 100 unknowns; the report's size is 10^7. The limit is the "
        "memory's: four arrays read and one written by all cores in the same run.",
    )


def shapes_picture(tables: Tables) -> tuple[str, str] | None:
    """Shapes of systems."""
    groups: dict[str, dict[str, float]] = {}
    for row in saved.rows(tables, "scan", "solve-"):
        if row["ratio"] is not None and "streaming" not in row["against"]:
            limit = row["against"].startswith("4 reads")
            group = groups.setdefault(row["what"].removeprefix("solve "), {})
            group[LIMIT if limit else row["against"]] = row["ratio"]
    return groups and (
        pictures.ratios(groups, "times as long as rlcpu (log scale)", LIMIT),
        "Shapes of tridiagonal systems, ten million unknowns each. A contender that is missing "
        "failed, hung or needs too long; the table says which.",
    )


def scan_picture(tables: Tables) -> tuple[str, str] | None:
    """The other recurrences."""
    groups: dict[str, dict[str, float]] = {}
    for row in saved.rows(tables, "scan", ""):
        others = row["name"].startswith(("gae-", "logcumsumexp", "kalman", "gradient", "factored"))
        if others and row["ratio"] is not None:
            groups.setdefault(row["what"], {})[row["against"]] = row["ratio"]
    return groups and (
        pictures.ratios(groups, "times as long as rlcpu (log scale)", LIMIT),
        "Gradients, advantages, logcumsumexp, and Kalman filters over 10,000 observations.",
    )


def training_picture(tables: Tables) -> tuple[str, str] | None:
    """Every training run."""
    row = saved.row(tables, "train", "zoo")
    runs = row["details"] if row else {}
    if not runs:
        return None
    lines = {
        label.replace("rlcpu-zoo", "rlcpu, rl-zoo's settings"): {
            float(seed): run["seconds"] for seed, run in enumerate(of_agent)
        }
        for label, of_agent in runs.items()
    }
    axes = Axes("seed", "seconds of learning to a mean return of 475", 0)
    return (
        pictures.curves(lines, axes, {}),
        "PPO on CartPole-v1 with the rl-zoo's settings, run time without imports and compilation; "
        "the table says which seeds solved it.",
    )
