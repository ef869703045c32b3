"""Our side of every row of the peers' tables, and what has no peer, commit by commit."""

from __future__ import annotations

from functools import partial

import numpy as np

from asv_benches.peers import cuda, suite
from asv_benches.peers.harness import Contender, Duel, Job, Panel
from asv_benches.peers.recurrences import Models, our_model
from asv_benches.peers.scan import REPORT, Systems, our_solve

from ._common import BURST_S, BURSTS_S, Quick, fastest, require

STEPS = [(128, 16), (2048, 1024)]
RETURNS = ["discounted_returns", "lambda_returns", "nstep_returns", "vtrace", "retrace"]


def in_tables() -> dict[str, Contender]:
    """What we do in the rows, by the names of table and row; each job once."""
    named: dict[str, Contender] = {}
    for table, rows in {**suite.TABLES, "cuda": cuda.rows}.items():
        for row in rows():
            name, measure = f"{table}.{row.name}", row.measure
            if isinstance(measure, Duel):
                named[name] = measure.ours
            elif isinstance(measure, Panel):
                ours = {k: make for k, make in measure.contenders.items() if k.startswith("rlcpu")}
                named |= {f"{name}.{label}": make for label, make in ours.items()}
    first = {repr(make): name for name, make in reversed(named.items())}
    return {name: named[name] for name in reversed(first.values())}


def alone() -> dict[str, Contender]:
    """What has no peer."""
    sized = {f"{steps}x{envs}": (steps, envs) for steps, envs in STEPS}
    return {
        **{
            f"{f}-{name}": partial(returns, f, shape)
            for f in RETURNS
            for name, shape in sized.items()
        },
        **{f"linear_scan-{name}": partial(linear_scan, shape) for name, shape in sized.items()},
        **{f: partial(kalman, f) for f in ("kalman_filter", "kalman_smooth")},
        "periodic": partial(our_solve, Systems(*REPORT), periodic=True),
    }


def returns(function: str, shape: tuple[int, int]) -> Job:
    """Returns and advantages, float32, time-major, new arrays for the results."""
    rng = np.random.default_rng(0)
    rewards, values, others, logs = rng.standard_normal((4, *shape), np.float32)
    ends = rng.random(shape) < 0.01, np.zeros(shape, np.bool_), np.zeros(shape[1], np.float32)
    ratios = np.exp(logs)
    arrays, options = {
        "discounted_returns": ((rewards,), {}),
        "lambda_returns": ((rewards, values), {"lambda_": 0.95}),
        "nstep_returns": ((rewards, values), {"n": 5}),
        "vtrace": ((rewards, values, ratios), {}),
        "retrace": ((rewards, values, others, ratios), {}),
    }[function]
    return Job(partial(require(f"rlcpu.scan.{function}"), *arrays, *ends, gamma=0.99, **options))


def linear_scan(shape: tuple[int, int]) -> Job:
    """Float32, over the first axis, into the same array again."""
    arrays, out = np.random.default_rng(0).random((2, *shape), np.float32), np.zeros(shape, "f4")
    return Job(partial(require("rlcpu.scan.linear_scan"), *arrays, axis=0, out=out))


def kalman(function: str) -> Job:
    """10,000 scalar observations under 64 models of state 4, float64, new arrays."""
    model = our_model(*Models(64, 4).draw(np.random.default_rng(0)))
    return Job(partial(require(f"rlcpu.scan.{function}"), *model))


CONTENDERS = in_tables() | alone()


class Ours(Quick):
    """Seconds of one call."""

    params, param_names = (list(CONTENDERS),), ("row",)
    unit = "seconds"
    timeout = 600

    def setup(self, row: str) -> None:
        if row.startswith("cuda.") and cuda.missing():
            raise NotImplementedError(cuda.missing())
        try:
            self.job = CONTENDERS[row]()
        except (ImportError, AttributeError) as error:
            raise NotImplementedError(f"not in this commit: {error}") from error

    def track_call(self, row: str) -> float:
        return fastest(self.job, BURST_S, BURSTS_S)
