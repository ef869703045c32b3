"""The table `sources`: scripts and tables of the reports that the library answers, run again.

What the tables `replay` and `scan` measure of them already is not measured twice; `printed` holds
the figures that the sources printed.
"""

from __future__ import annotations

import functools

from asv_benches.peers.duel import TimeDuel
from asv_benches.peers.panel import Panel
from asv_benches.peers.replay_flashbax import FlashbaxTrajectory
from asv_benches.peers.replay_ours import OurPost, OurTrajectory
from asv_benches.peers.replay_post import NumpyPost, TorchPost
from asv_benches.peers.report import Row
from asv_benches.peers.scan_jax import Jax, solve_rows
from asv_benches.peers.scan_ours import OurSolve
from asv_benches.peers.scan_problems import Systems
from asv_benches.peers.scan_tridiagonal import NumbaLoop, NumpyLoop, roofline
from asv_benches.peers.timing import Contender

MILLION = 10**6  # transitions in the post's buffer
FILL = (10_000, 100_000, 250_000, 500_000, 750_000, MILLION)  # items held: the post's Figure 1
GIST = tuple(10**exponent for exponent in range(3, 8))  # unknowns of all systems together
UNKNOWNS = 100  # of one system
LIMIT = "limit: 4 reads, 1 write"

Timed = functools.partial(Row, unit="s", limit_s=120.0)


def rows() -> list[Row]:
    """All rows."""
    return [*flashbax_rows(), *post_rows(), *fill_rows(), *gist_rows()]


def flashbax_rows() -> list[Row]:
    """The issue's first script without donation, and its last one, step by step."""
    whole = TimeDuel(
        OurTrajectory("rlcpu", "add", 100), FlashbaxTrajectory("flashbax", "add", 100, donate=False)
    )
    steps = TimeDuel(
        OurTrajectory("rlcpu", "add", 2), FlashbaxTrajectory("flashbax", "add", 2, one_by_one=True)
    )
    return [
        Timed("flashbax-copied", "add 100 time steps, 16 envs", "flashbax, not donated", whole),
        Timed("flashbax-steps", "add 2 time steps, 16 envs", "flashbax, one at a time", steps),
    ]


def post_rows() -> list[Row]:
    """The post's Tables 1 and 2; its Table 3, both together, is in the table `replay`."""
    jobs = {"weigh": "probabilities after a new return", "choose": "256 of them drawn"}
    return [
        Timed(
            f"post-{operation}-{peer.name}",
            f"{job}, {MILLION:,} items",
            f"the post's {against}",
            TimeDuel(OurPost("rlcpu", operation, MILLION), peer),
        )
        for operation, job in jobs.items()
        for against, peer in {
            "NumPy": NumpyPost("numpy", operation, MILLION),
            "torch": TorchPost("torch", operation, MILLION),
        }.items()
    ]


def fill_rows() -> list[Row]:
    """The post's Figure 1: the time to sample while the buffer fills."""
    return [
        Timed(
            f"fill-{size}",
            f"add 1, draw 256, {size:,} items held",
            "the best of the peers",
            Panel(size, fill_contenders(size), rates=False),
        )
        for size in FILL
    ]


def fill_contenders(size: int) -> dict[str, Contender]:
    """The post's two versions, and ours."""
    return {
        "rlcpu": OurPost("rlcpu", "draw", size),
        "the post's NumPy": NumpyPost("numpy", "draw", size),
        "the post's torch": TorchPost("torch", "draw", size),
    }


def gist_rows() -> list[Row]:
    """Systems of 100 unknowns, more and more of them."""
    return [
        Timed(
            f"gist-{total}",
            f"solve ({total // UNKNOWNS:,} x {UNKNOWNS}) float64",
            "the best of the peers",
            Panel(total, gist_contenders(Systems(total // UNKNOWNS, UNKNOWNS)), rates=False),
        )
        for total in GIST
    ]


def gist_contenders(systems: Systems) -> dict[str, Contender]:
    """The report's JAX, NumPy and numba; XLA's program is the one of `jax.lax.scan`."""
    contenders: dict[str, Contender] = {
        "rlcpu": OurSolve("rlcpu", systems),
        "jax lax.scan": Jax("jax", systems, solve_rows),
        "numba": NumbaLoop("numba", systems),
        "NumPy": NumpyLoop("NumPy", systems),
    }
    # Fewer fit into the caches, and memory is no limit.
    in_memory = systems.batch * systems.n >= GIST[-2]
    return contenders | {LIMIT: roofline(systems)} if in_memory else contenders
