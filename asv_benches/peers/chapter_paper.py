"""The pictures of the table `paper`."""

from __future__ import annotations

from asv_benches.peers import pictures, printed, saved
from asv_benches.peers.collect import OPERATIONS
from asv_benches.peers.paper import BREAKDOWN_ENVS
from asv_benches.peers.paper_factors import ENVS as FACTOR_ENVS
from asv_benches.peers.paper_factors import curve
from asv_benches.peers.pictures import Axes
from asv_benches.peers.saved import Curves, Tables

# Floating-point operations of one CartPole step with sine and cosine as polynomials; random
# numbers, which are integers, and resets not counted.
SIMULATION_OPERATIONS = 40
STEP_BYTES = 46  # read and written by one step of one environment that comes from memory
SOLVE_BYTES = 5 * 8 * 10**7  # of the memory's limit in the table `scan`
ENVS = Axes("parallel environments N", "environment steps/s")


def rates(tables: Tables, figure: str) -> Curves:
    """Label, size, environment steps per second."""
    times = saved.panel_times(tables, "paper", f"figure-{figure}-")
    return {label: {n: 1 / s for n, s in points.items()} for label, points in times.items()}


def peak_limit(tables: Tables, operations: int, what: str) -> dict[str, float]:
    """The FMA peak as a line, where it was measured."""
    row = saved.row(tables, "collect", "relu-peak")
    if row is None or not isinstance(row["peer"], float):
        return {}
    return {f"limit: FMA peak at {operations:,} operations {what}": row["peer"] / operations}


def memory_limit(tables: Tables) -> dict[str, float]:
    """The memory's bandwidth as a line, where it was measured."""
    row = saved.row(tables, "scan", "solve-100000x100-float64-rows-streaming")
    if row is None or not isinstance(row["peer"], float):
        return {}
    rate = SOLVE_BYTES / row["peer"] / STEP_BYTES
    return {f"limit: memory at {STEP_BYTES} bytes a step (K=1)": rate}


def environments_picture(tables: Tables) -> tuple[str, str] | None:
    """Figure 2."""
    lines = rates(tables, "2")
    limits = peak_limit(tables, SIMULATION_OPERATIONS, "a CartPole step")
    return lines and (
        pictures.curves(lines, ENVS, limits),
        "Figure 2, throughput of the environments: uniform actions, 100 steps a call, float32. The "
        "paper's CartPole grew up to 2^19 environments on its GPU, Brax's up to 2^12.",
    )


def collection_picture(tables: Tables) -> tuple[str, str] | None:
    """Figure 4."""
    lines = rates(tables, "4")
    return lines and (
        pictures.curves(lines, ENVS, peak_limit(tables, OPERATIONS, "a step")),
        "Figure 4, data collection: CartPole and an MLP 4-64-64, everything recorded, K steps a "
        "call. torch takes every step from Python, so that its K does not matter.",
    )


def breakdown_picture(tables: Tables) -> tuple[str, str] | None:
    """Figure 5."""
    bars = {}
    for row in saved.rows(tables, "paper", "figure-5-"):
        steps, seconds = row["details"]["size"], row["details"]["seconds"]
        for label in ("rlcpu", "jax"):
            if f"{label} call" in seconds and label in seconds:
                bars[f"{label}, K={steps:,}"] = shares(seconds, label, steps * BREAKDOWN_ENVS)
    bars = dict(sorted(bars.items(), key=lambda bar: not bar[0].startswith("rlcpu")))
    return bars and (
        pictures.stacks(bars, Axes("% of the time of one call", "")),
        f"Figure 5, where the time goes with N = {BREAKDOWN_ENVS:,}. The call is what a collection "
        "of one environment and one step takes; the simulation was timed alone. On the paper's GPU "
        "with one step a call Python took 57 % and the backend's C++ 30 %.",
    )


def shares(seconds: dict[str, float], label: str, work: int) -> dict[str, float]:
    """Per cent of a call: Python, simulation, the rest."""
    whole = seconds[label] * work
    call = min(1.0, seconds[f"{label} call"] / whole)
    simulation = min(1.0 - call, seconds[f"{label} simulation"] * work / whole)
    parts = (call, simulation, 1 - call - simulation)
    names = ("Python and the call", "simulation", "inference and records")
    return {name: 100 * part for name, part in zip(names, parts, strict=True)}


def calls_picture(tables: Tables) -> tuple[str, str] | None:
    """Figure 6."""
    lines: Curves = {}
    for row in saved.rows(tables, "paper", "figure-6-"):
        for label, counts in row["details"].get("counts", {}).items():
            for kind, text in (("calls", "calls in Python"), ("kernels", "kernels started")):
                lines.setdefault(f"{label}: {text}", {})[row["details"]["size"]] = counts[kind]
    return lines and (
        pictures.curves(lines, Axes("steps of one collection, K", "count", 10), {}),
        "Figure 6, calls from Python and kernels started by one collection of K steps. As in the "
        "paper XLA is called once and starts its kernels anew in every step; ours starts one, "
        "whatever K is, and another one for the values of the last observations if they are read.",
    )


def fusion_picture(tables: Tables) -> tuple[str, str] | None:
    """Figure 8."""
    lines = rates(tables, "8")
    limits = peak_limit(tables, SIMULATION_OPERATIONS, "a step") | memory_limit(tables)
    return lines and (
        pictures.curves(lines, ENVS, limits),
        "Figure 8, simulation alone, K steps fused into a call; K=1 is `env.step` with actions "
        "from outside. Up to 2^16 environments the caches hold everything: only above is memory "
        "the limit.",
    )


def factors_picture(tables: Tables) -> tuple[str, str] | None:
    """Figure 9."""
    plots: dict[str, Curves] = {}
    for row in saved.rows(tables, "paper", "figure-9-"):
        state, compute = map(int, row["name"].split("-")[-2:])
        seconds = row["details"]["seconds"]
        for envs in FACTOR_ENVS:
            for steps in (10, 1000):
                gain = seconds[curve(envs, 1)] / seconds[curve(envs, steps)]
                lines = plots.setdefault(f"N={envs:,}", {})
                lines.setdefault(f"C={compute}, K={steps:,}", {})[state] = gain
    axes = Axes("state factor S", "speed-up over K=1")
    return plots and (
        pictures.panels(plots, axes),
        "Figure 9, speed-up by fusing K steps, for a state S times as large and C times the "
        "arithmetic. On the paper's GPU, where every step of K=1 goes to memory and back, it "
        "reaches 2^4 to 2^10 for K=1000. Here it saves the call where N is small, and where N and "
        "S are large the way to memory: the 64 environments of a block take K steps in the "
        "first-level cache.",
    )


def claims(tables: Tables) -> tuple[tuple[str, str, str, str], ...]:
    """The paper's ratios beside ours."""
    listed = []
    for claim in printed.CLAIMS:
        try:
            here = f"{claim.here(rates(tables, claim.figure)):,.3g}x"
        except (KeyError, ZeroDivisionError):
            here = "not measured"
        text = "-" if claim.printed == "-" else f"{claim.printed}x"
        listed.append((claim.figure, claim.text, text, here))
    return tuple(listed) if "paper" in tables else ()


PICTURES = (
    environments_picture,
    collection_picture,
    breakdown_picture,
    calls_picture,
    fusion_picture,
    factors_picture,
)
