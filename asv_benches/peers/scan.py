"""The table `scan`: recurrences over an axis, time per call."""

from __future__ import annotations

from asv_benches.peers import scan_solves
from asv_benches.peers.duel import TimeDuel
from asv_benches.peers.report import Row
from asv_benches.peers.scan_jax import Jax
from asv_benches.peers.scan_kalman import JaxKalman, Statsmodels, gradients, logliks
from asv_benches.peers.scan_logcumsumexp import (
    NumpyLogCumSumExp,
    TorchLogCumSumExp,
    by_associative_scan,
    by_library,
    by_scan,
)
from asv_benches.peers.scan_ours import OurGae, OurKalman, OurKalmanGradient, OurLogCumSumExp
from asv_benches.peers.scan_problems import Line, Models, Rollouts
from asv_benches.peers.scan_returns import (
    JaxGae,
    NumpyGae,
    TorchGae,
    gae_by_associative_scan,
    gae_by_rlax,
    gae_by_scan,
)
from asv_benches.peers.scan_solves import Timed
from asv_benches.peers.timing import Contender

ROLLOUTS = ((2048, 1024), (128, 16_384))  # steps and environments
GAE_TARGETS = {"jax lax.scan": 3, "torch loop": 40, "NumPy loop": 12}  # of the first, time-major
LINE = 100_000  # of the report "Jax scans are slower than expected"
STATES, BATCHES = (2, 4, 8), (1, 64)


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    return [*scan_solves.rows(), *gae_rows(), *logcumsumexp_rows(), *kalman_rows()]


def gae_rows() -> list[Row]:
    """Advantages and returns of 2 million steps, float32."""
    return [
        Timed(
            f"gae-{steps}x{envs}-{layout}-{peer.name}",
            f"gae {steps:,} x {envs:,} float32, {layout}",
            against,
            TimeDuel(OurGae("rlcpu", problem), peer),
            targets.get(against),
        )
        for steps, envs in ROLLOUTS
        for layout in ("time-major", "batch-major")
        for problem in [Rollouts(steps, envs, layout)]
        for targets in [GAE_TARGETS if problem == Rollouts(*ROLLOUTS[0]) else {}]
        for against, peer in gae_peers(problem).items()
    ]


def gae_peers(problem: Rollouts) -> dict[str, Contender]:
    """Everyone; the slow and the redundant ones only on the first problem."""
    peers: dict[str, Contender] = {
        "jax lax.scan": JaxGae("jax", problem, gae_by_scan),
        "torch loop": TorchGae("torch", problem),
        "NumPy loop": NumpyGae("numpy", problem),
    }
    if problem == Rollouts(*ROLLOUTS[0]):
        peers["rlax"] = JaxGae("rlax", problem, gae_by_rlax)
        peers["jax associative_scan"] = JaxGae("associative", problem, gae_by_associative_scan)
    return peers


def logcumsumexp_rows() -> list[Row]:
    """One long row; the target is against the best of JAX and torch."""
    line = Line(LINE)
    ranked: dict[str, Contender] = {
        "jax lax.scan": Jax("scan", line, by_scan),
        "jax associative_scan": Jax("associative", line, by_associative_scan),
        "jax cumlogsumexp": Jax("library", line, by_library),
        "torch": TorchLogCumSumExp("torch", line),
    }
    mine, what = OurLogCumSumExp("rlcpu", line), f"logcumsumexp {LINE:,} float64"
    table = [
        Timed(f"logcumsumexp-{peer.name}", what, against, TimeDuel(mine, peer), 8, ranked=True)
        for against, peer in ranked.items()
    ]
    numpy = TimeDuel(mine, NumpyLogCumSumExp("numpy", line))
    return [*table, Timed("logcumsumexp-numpy", what, "NumPy logaddexp.accumulate", numpy)]


def kalman_rows() -> list[Row]:
    """Log-likelihoods of 10,000 observations, and their gradients."""
    return [
        Timed(f"kalman-{m}x{batch}-{job}-{peer.name}", what, against, TimeDuel(mine, peer), target)
        for batch in BATCHES
        for m in STATES
        for models in [Models(batch, m)]
        for job, against, mine, peer, target in kalman_duels(models)
        for what in [f"kalman {job}, state {m}, {batch} model{'s' if batch > 1 else ''}"]
    ]


def kalman_duels(models: Models) -> list[tuple[str, str, Contender, Contender, float]]:
    """Job, peer's name, ours, the peer and the target."""
    value, slope = OurKalman("rlcpu", models), OurKalmanGradient("rlcpu", models)
    scan, backward = JaxKalman("jax", models, logliks), JaxKalman("jax", models, gradients)
    return [
        ("value", "jax lax.scan", value, scan, 1.5),
        ("value", "statsmodels", value, Statsmodels("statsmodels", models), 1.4),
        ("gradient", "jax.value_and_grad", slope, backward, 6),
    ]
