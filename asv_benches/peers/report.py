"""The HTML report: one file with every picture and table, made from the saved JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asv_benches.peers import paper, pictures, readme
from asv_benches.peers.collect import OPERATIONS
from asv_benches.peers.rows import cells, closest, format_figure, format_ratio, format_target
from asv_benches.peers.scan import LIMIT
from asv_benches.peers.suite import TABLES

Tables = Mapping[str, Mapping[str, Any]]  # name of a table: its JSON
Curves = dict[str, dict[float, float]]
Picture = tuple[str, str]  # the address of an image, and what it shows in one or two sentences

# Floating-point operations of one CartPole step with sine and cosine as polynomials; random
# numbers, which are integers, and resets not counted.
SIMULATION_OPERATIONS = 40
STEP_BYTES = 46  # read and written by one step of one environment that comes from memory
# What the sources printed, for the rows that run their jobs again: flashbax's issue on replay
# buffers on a CPU; the post "Code Optimization: 8h to gain 26h", whose three machines are in its
# order Home, Deeplar, Larcc; JAX's issue 2491.
PRINTED = {
    "trajectory-add-1": "72 us on a CPU",
    "trajectory-add-2": "204 ms on a CPU",
    "trajectory-add-100": "209 ms on a CPU, 2.5 ms on a GPU",
    "flashbax-copied": "444 ms on a CPU, 2.5 ms on a GPU",
    "flashbax-steps": "77 us on a CPU",
    "post-1000000-numpy": "Table 3: 24.3, 41.2, 20.0 ms",
    "post-1000000-torch": "Table 3: 8.4, 15.5, 7.7 ms",
    "solve-100000x100-float64-rows-numba": "2.5 times as fast as jax lax.scan on a CPU",
    "solve-100000x100-float64-rows-jax-lax-scan": "about 0.3 s on a CPU",
    "logcumsumexp-scan": "8 to 9 ms on a CPU, 1.5 to 2 s on a GPU",
}


def write(path: Path, results: Path, name: str) -> None:
    """Writes the report of one machine's tables.

    Raises:
        FileNotFoundError: there is none.
    """
    path.write_text(page(load(results, name), name))


def load(results: Path, name: str) -> Tables:
    """Every table that was saved for the machine, by name; raises as `write` does."""
    paths = {what: results / f"{name}-{what}.json" for what in TABLES}
    tables = {what: json.loads(path.read_text()) for what, path in paths.items() if path.exists()}
    if not tables:
        raise FileNotFoundError(
            f"no {name}-*.json in {results}: run `python -m asv_benches.peers all` first"
        )
    return tables


def page(tables: Tables, name: str) -> str:
    """The whole document, by the template beside this file."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": format_figure, "ratio": format_ratio}
    rows = [row for each in tables.values() for row in closest(each["rows"])]
    chosen = readme.chosen(tables)
    judged = (row for row in rows if row["met"] is not None)
    targets = [
        (*cells(r)[:3], format_target(r["target"], r["kind"]), "yes" if r["met"] else "no")
        for r in judged
    ]
    return environment.get_template("report.html.jinja").render(
        name=name,
        tables=tables,
        chosen=[cells(row) for row in chosen],
        speed=pictures.url(pictures.speed(chosen, dark=False)) if chosen else "",
        faster=[r["ratio"] > 1 for r in rows if r["kind"] == "speed-up" and r["ratio"]],
        units=readme.UNITS,
        chapters=chapters(tables),
        printed=PRINTED,
        gaps=gaps(tables),
        where=readme.measured_on(tables),
        targets=targets,
    )


def gaps(tables: Tables) -> list[tuple[str, str, str]]:
    """What could not be measured: the job, who was to do it, and what is missing."""
    found = [(f"table {what}", "", "not measured yet") for what in TABLES if what not in tables]
    for table in tables.values():
        for each in table["rows"]:
            if isinstance(each["peer"], str) and each["peer"] != "-":
                why = f"{each['peer']}: {each['note']}" if each["note"] else each["peer"]
                found.append((each["what"], each["against"], why))
            missing = each["details"].get("missing", {})
            found += [(each["what"], label, why) for label, why in missing.items()]
    return found


def chapters(tables: Tables) -> list[dict[str, Any]]:
    """All chapters; a picture whose rows were not measured is left out."""
    parts: tuple[tuple[Any, ...], ...] = (
        (
            "paper",
            "Data collection",
            "The figures of “Optimizing Data Collection in Deep Reinforcement Learning” (2022), "
            "drawn there for a GPU, measured here on a CPU: N environments, K steps a call.",
            (environments, collection, breakdown, fusion),
            ("paper", "simulate", "collect"),
        ),
        (
            "replay",
            "Store and sample",
            "flashbax's issue that adding to a buffer on a CPU is slow, and the post “8h to gain "
            "26h” on drawing in proportion to returns.",
            (filling, adding, trees),
            ("replay",),
        ),
        (
            "scan",
            "Recurrences",
            "JAX's issue 2491, “Jax scans are slower than expected”, and other scans.",
            (growing, shapes, scans),
            ("scan",),
        ),
        ("train", "Training", "", (training,), ("train", "agents", "distributed")),
    )
    return [
        {
            "name": name,
            "title": title,
            "text": text,
            "pictures": list(filter(None, (draw(tables) for draw in drawings))),
            "tables": names,
            "claims": claims(tables) if name == "paper" else [],
        }
        for name, title, text, drawings, names in parts
    ]


def claims(tables: Tables) -> list[tuple[str, str, str, str]]:
    return paper.claims(lambda figure: rates(tables, figure)) if "paper" in tables else []


# ---------------------------------------------------------------- reading saved tables


def rows_of(tables: Tables, what: str, prefix: str) -> list[dict[str, Any]]:
    """The rows of a table whose names begin with the prefix; none where it was not measured."""
    listed = tables.get(what, {}).get("rows", [])
    return [each for each in listed if each["name"].startswith(prefix)]


def peer_figure(tables: Tables, what: str, prefix: str) -> float | None:
    """The peer's figure of the first such row, None where there is none."""
    found = [each["peer"] for each in rows_of(tables, what, prefix)]
    return found[0] if found and isinstance(found[0], float) else None


def panels(tables: Tables, what: str, prefix: str) -> Curves:
    """Label, size, seconds per unit of work."""
    lines: Curves = {}
    for each in rows_of(tables, what, prefix):
        for label, seconds in each["details"].get("seconds", {}).items():
            lines.setdefault(label, {})[each["details"]["size"]] = seconds
    return lines


def duels(tables: Tables, prefix: str, peers: Mapping[str, str], scale: float) -> Curves:
    """Curves of the table `replay`, of rows "prefix-size-..."; `peers` are names in `against`."""
    lines: Curves = {}
    for row in rows_of(tables, "replay", prefix):
        size = row["name"].removeprefix(prefix).split("-")[0]
        if size.isdecimal() and row["against"] in peers:
            for label, key in (("rlcpu", "ours"), (peers[row["against"]], "peer")):
                if isinstance(row[key], float):
                    lines.setdefault(label, {})[int(size)] = scale * row[key]
    return lines


def rates(tables: Tables, figure: str) -> Curves:
    """Label, size, environment steps per second, of a figure of the paper."""
    times = panels(tables, "paper", f"figure-{figure}-")
    return {label: {n: 1 / s for n, s in points.items()} for label, points in times.items()}


def peak(tables: Tables, operations: int, what: str) -> dict[str, float]:
    """The FMA peak as a line, where it was measured."""
    figure = peer_figure(tables, "collect", "relu-peak")
    label = f"limit: FMA peak at {operations:,} operations {what}"
    return {label: figure / operations} if figure else {}


def memory(tables: Tables) -> dict[str, float]:
    """The memory's bandwidth as a line, where it was measured: five arrays of 10^7 float64."""
    seconds = peer_figure(tables, "scan", "solve-100000x100-float64-rows-plain")
    label = f"limit: memory at {STEP_BYTES} bytes a step (K=1)"
    return {label: 5 * 8 * 10**7 / seconds / STEP_BYTES} if seconds else {}


# ---------------------------------------------------------------- the paper's pictures


def by_envs(lines: Curves, limits: dict[str, float], caption: str) -> Picture | None:
    """Environment steps per second over the number of environments."""
    axes = pictures.Axes("parallel environments N", "environment steps/s")
    return (pictures.curves(lines, axes, limits), caption) if lines else None


def environments(tables: Tables) -> Picture | None:
    return by_envs(
        rates(tables, "2"),
        peak(tables, SIMULATION_OPERATIONS, "a CartPole step"),
        "Figure 2, throughput of the environments: uniform actions, 100 steps a call, float32. The "
        "paper's CartPole grew up to 2^19 environments on its GPU, Brax's up to 2^12.",
    )


def collection(tables: Tables) -> Picture | None:
    return by_envs(
        rates(tables, "4"),
        peak(tables, OPERATIONS, "a step"),
        "Figure 4, data collection: CartPole and an MLP 4-64-64, everything recorded, K steps a "
        "call. torch takes every step from Python, so that its K does not matter.",
    )


def fusion(tables: Tables) -> Picture | None:
    return by_envs(
        rates(tables, "8"),
        peak(tables, SIMULATION_OPERATIONS, "a step") | memory(tables),
        "Figure 8, simulation alone, K steps fused into a call; K=1 is `env.step` with actions "
        "from outside. Up to 2^16 environments the caches hold everything: only above is memory "
        "the limit.",
    )


def breakdown(tables: Tables) -> Picture | None:
    """Figure 5: per cent of a call."""
    bars, names = {}, ("Python and the call", "simulation", "inference and records")
    for label in ("rlcpu", "jax"):
        for row in rows_of(tables, "paper", "figure-5-"):
            steps, seconds = row["details"]["size"], row["details"]["seconds"]
            if f"{label} call" in seconds and label in seconds:
                work = steps * paper.BREAKDOWN_ENVS
                whole = seconds[label] * work
                call = min(1.0, seconds[f"{label} call"] / whole)
                simulation = min(1.0 - call, seconds[f"{label} simulation"] * work / whole)
                parts = (100 * part for part in (call, simulation, 1 - call - simulation))
                bars[f"{label}, K={steps:,}"] = dict(zip(names, parts, strict=True))
    return bars and (
        pictures.stacks(bars, "% of the time of one call"),
        f"Figure 5, where the time goes with N = {paper.BREAKDOWN_ENVS:,}. The call is what a "
        "collection of one environment and one step takes; the simulation was timed alone. On the "
        "paper's GPU with one step a call Python took 57 % and the backend's C++ 30 %.",
    )


# ---------------------------------------------------------------- the other pictures


def filling(tables: Tables) -> Picture | None:
    peers = {f"the post's {name}": f"the post's {name}" for name in ("NumPy", "torch")}
    lines = duels(tables, "post-", peers, 1e3)
    axes = pictures.Axes("items in the buffer", "ms to add 1 and draw 256", 10)
    return lines and (
        pictures.curves(lines, axes, {}),
        "The post's Figure 1, time to sample as the buffer grows: its versions grow with it, up to "
        "20.0 to 41.2 ms (NumPy) and 7.7 to 15.5 ms (torch) at a million on the post's machines; "
        "the tree grows with its logarithm.",
    )


def adding(tables: Tables) -> Picture | None:
    lines = duels(tables, "trajectory-add-", {"flashbax, donated": "flashbax, donated"}, 1e6)
    if not lines:
        return None
    lines["printed in the issue, donated"] = {1: 72.0, 2: 203_946.0, 100: 208_669.0}
    copy, limits = peer_figure(tables, "replay", "trajectory-copy"), {}
    if copy:
        limits["limit: copy of the data"] = {n: 1e4 * copy * n for n in (1, 2, 100)}
    axes = pictures.Axes("time steps of 16 environments a call", "us a call", 10)
    return (
        pictures.curves(lines, axes, limits),
        "Adding to a prioritised buffer of 2 million time steps. In the issue's version of JAX two "
        "time steps cost 2,800 times one; today's has no such copies. The limit is a copy of 640 "
        "KB to a random place, for fewer time steps in proportion.",
    )


def trees(tables: Tables) -> Picture | None:
    names = ("flashbax", "torchrl", "tianshou", "cpprb")
    lines = duels(tables, "tree-sample-", dict(zip(names, names, strict=True)), 1e9)
    per_leaf = {label: {n: t / n for n, t in points.items()} for label, points in lines.items()}
    return lines and (
        pictures.curves(per_leaf, pictures.Axes("leaves drawn by one call", "ns a leaf"), {}),
        "Drawing from a sum tree of 2^20 leaves, in proportion to their priorities.",
    )


def growing(tables: Tables) -> Picture | None:
    lines = panels(tables, "scan", "gist-")
    lines = {label: {n: 1e3 * s for n, s in points.items()} for label, points in lines.items()}
    limits = {LIMIT: lines.pop(LIMIT)} if LIMIT in lines else {}
    axes = pictures.Axes("unknowns, in systems of 100, float64", "ms a call", 10)
    return lines and (
        pictures.curves(lines, axes, limits),
        "Tridiagonal systems of 100 unknowns; the report's size is 10^7. The limit is the "
        "memory's: four arrays read and one written by all cores in the same run.",
    )


def dots(tables: Tables, prefixes: tuple[str, ...], caption: str) -> Picture | None:
    """How many times as long as ours each contender of rows of the table `scan` takes."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows_of(tables, "scan", ""):
        if row["name"].startswith(prefixes) and row["ratio"] is not None:
            against = LIMIT if row["against"].startswith("4 reads") else row["against"]
            groups.setdefault(row["what"].removeprefix("solve "), {})[against] = row["ratio"]
    label = "times as long as rlcpu (log scale)"
    return (pictures.ratios(groups, label, LIMIT), caption) if groups else None


def shapes(tables: Tables) -> Picture | None:
    return dots(
        tables,
        ("solve-",),
        "Shapes of tridiagonal systems, ten million unknowns each. A contender that is missing "
        "failed, hung or needs too long; the table says which.",
    )


def scans(tables: Tables) -> Picture | None:
    return dots(
        tables,
        ("gae-", "logcumsumexp", "kalman", "gradient", "factored"),
        "Gradients, advantages, logcumsumexp, and Kalman filters over 10,000 observations.",
    )


def training(tables: Tables) -> Picture | None:
    lines = {
        label.replace("rlcpu-zoo", "rlcpu, rl-zoo's settings"): {
            float(seed): run["seconds"] for seed, run in enumerate(runs)
        }
        for row in rows_of(tables, "train", "zoo")
        for label, runs in row["details"].items()
    }
    axes = pictures.Axes("seed", "seconds of learning to a mean return of 475", 0)
    return lines and (
        pictures.curves(lines, axes, {}),
        "PPO on CartPole-v1 with the rl-zoo's settings, run time without imports and compilation; "
        "the table says which seeds solved it.",
    )
