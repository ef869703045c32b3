"""Rows of the table `scan`: tridiagonal systems."""

from __future__ import annotations

import functools
from collections.abc import Callable

from asv_benches.peers.duel import CostDuel, TimeDuel
from asv_benches.peers.report import Row
from asv_benches.peers.scan_jax import (
    Jax,
    WithGradient,
    solve_by_library,
    solve_columns,
    solve_rows,
)
from asv_benches.peers.scan_ours import OurFactored, OurGradient, OurSolve
from asv_benches.peers.scan_problems import Systems, SystemsAndSlopes
from asv_benches.peers.scan_tridiagonal import (
    Lapack,
    NumbaLoop,
    NumpyLoop,
    Roofline,
    ShareDuel,
    SolveBanded,
    roofline,
)
from asv_benches.peers.timing import Contender

REPORT = (100_000, 100)  # systems and unknowns of the report "Jax scans are slower than expected"
OTHERS = ((10**6, 10), (1000, 10_000), (10, 10**6), (1, 10**7))
# Of the machine's limit, for the report's shape.
SHARES = {
    ("float64", "rows"): 0.75,
    ("float64", "columns"): 0.8,
    ("float32", "rows"): 0.55,
    ("float32", "columns"): 0.75,
}
# float64, row-major: target against each of those that solve the shape.
TARGETS = {
    REPORT: {"jax lax.scan": 13, "jax tridiagonal_solve": 17, "LAPACK gtsv": 6, "numba": 2.6},
    OTHERS[-1]: {"jax lax.scan": 10, "jax tridiagonal_solve": 10, "LAPACK gtsv": 10},
}
# A hanging peer may cost the table this much; our slowest kernel compiles in less.
LIMIT_S = 90.0
HANG_S = 12.0  # of the one that is known to hang

Timed = functools.partial(Row, unit="s", limit_s=LIMIT_S)


def rows() -> list[Row]:
    """All rows."""
    return [*share_rows(), *peer_rows(), *small_rows(), *variant_rows(), *gradient_rows()]


def ours(systems: Systems, **options: object) -> OurSolve:
    """Our contender that solves."""
    return OurSolve("rlcpu", systems, options)


def name(systems: Systems) -> str:
    """Such as "solve-100000x100-float64-rows"."""
    return f"solve-{systems.batch}x{systems.n}-{systems.dtype}-{systems.layout}"


def what(systems: Systems) -> str:
    """Such as "solve (100,000 x 100) float64, row-major"."""
    order = "(n, batch)" if systems.layout == "columns" else "row-major"
    return f"solve ({systems.batch:,} x {systems.n:,}) {systems.dtype}, {order}"


def share_rows() -> list[Row]:
    """Shares of the machine's limit, four arrays read and one written by all cores.

    Targets are for plain stores, as a loop in C makes them; streaming stores have their own rows.
    """
    table = []
    for kind, target in SHARES.items():
        systems = Systems(*REPORT, *kind)
        for stores in ("plain", "streaming"):
            duel = ShareDuel(ours(systems), Roofline(f"{stores} stores", systems, stores))
            against = f"4 reads, 1 {stores} write"
            aim = target if stores == "plain" else None
            table.append(share(f"{name(systems)}-{stores}", systems, against, duel, aim))
    for systems in (Systems(*shape, *kind) for shape in OTHERS for kind in SHARES):
        duel = ShareDuel(ours(systems), roofline(systems))
        table.append(share(f"{name(systems)}-roofline", systems, "4 reads, 1 write", duel))
    return table


def share(
    name: str, systems: Systems, against: str, duel: ShareDuel, target: float | None = None
) -> Row:
    """A row of `share_rows`."""
    return Timed(name, what(systems), against, duel, target, kind="share")


def peer_rows() -> list[Row]:
    """Everyone on every shape in float64, row-major; on the report's also in other ways."""
    table = [
        row(Systems(*shape), against, peer(against, Systems(*shape)), target)
        for shape in (REPORT, *OTHERS)
        for against, peer in PEERS.items()
        for target in [TARGETS.get(shape, {}).get(against)]
    ]
    first = Systems(*REPORT)
    turned = first._replace(layout="columns")
    single = first._replace(dtype="float32")
    both = turned._replace(dtype="float32")
    return [
        *table,
        row(first, "NumPy", NumpyLoop("NumPy", first)),
        row(turned, "jax lax.scan, no .T", Jax("jax", turned, solve_columns)),
        row(single, "jax lax.scan", Jax("jax", single, solve_rows)),
        row(single, "LAPACK gtsv", Lapack("LAPACK", single)),
        row(both, "jax lax.scan, no .T", Jax("jax", both, solve_columns)),
    ]


PEERS: dict[str, Callable[[str, Systems], Contender]] = {
    "jax lax.scan": functools.partial(Jax, function=solve_rows),
    "jax tridiagonal_solve": functools.partial(Jax, function=solve_by_library),
    "LAPACK gtsv": Lapack,
    "numba": NumbaLoop,
}


def row(systems: Systems, against: str, peer: Contender, target: float | None = None) -> Row:
    """A row of `peer_rows`."""
    slug = against.split(",")[0].replace(" ", "-").replace(".", "-").lower()
    duel = TimeDuel(ours(systems), peer)
    return Timed(f"{name(systems)}-{slug}", what(systems), against, duel, target)


def small_rows() -> list[Row]:
    """Where the call itself is what costs."""
    systems = Systems(4, 16)
    peers = {"jax lax.scan": solve_rows, "jax tridiagonal_solve": solve_by_library}
    return [
        Timed(
            f"small-{function.__name__}",
            "solve (4 x 16) float64, one call, cost of",
            against,
            CostDuel(ours(systems), Jax("jax", systems, function)),
            1.2,
            kind="time",
        )
        for against, function in peers.items()
    ]


def variant_rows() -> list[Row]:
    """What our own options cost, and one matrix for all systems."""
    systems = Systems(*REPORT)
    mine = ours(systems)
    fresh = OurSolve("rlcpu", systems, reuse=False)
    return [
        cost("pivoting", "pivoting", mine, ours(systems, method="thomas")),
        cost("residual", "check='residual'", ours(systems, check="residual"), mine),
        cost("fresh", "new arrays", fresh, mine),
        shared_row(),
    ]


def cost(name: str, option: str, dear: OurSolve, cheap: OurSolve) -> Row:
    """What an option costs us on the report's systems."""
    duel = CostDuel(dear, cheap)
    return Timed(f"cost-{name}", f"solve, {option}: cost of", "ours without", duel, kind="time")


def shared_row() -> Row:
    """One matrix, factored before."""
    systems = Systems(*REPORT, shared=True)
    return Timed(
        "factored",
        "factored, 100,000 right-hand sides of 100",
        "scipy solve_banded",
        TimeDuel(OurFactored("rlcpu", systems), SolveBanded("scipy", systems)),
        18,
    )


def gradient_rows() -> list[Row]:
    """Solution, and gradients with respect to the three diagonals and the right-hand sides."""
    problem = SystemsAndSlopes(Systems(*REPORT))
    job = "solve and gradient (100,000 x 100) float64"
    mine = OurGradient("rlcpu", problem)
    scan = Jax("jax", problem, WithGradient(solve_rows))
    library = Jax("jax", problem, WithGradient(solve_by_library))
    return [
        Timed("gradient-scan", job, "jax.grad of lax.scan", TimeDuel(mine, scan), 15),
        Timed(
            "gradient-library",
            job,
            "jax.grad, XLA's solver",
            TimeDuel(mine, library),
            limit_s=HANG_S,
        ),
    ]
