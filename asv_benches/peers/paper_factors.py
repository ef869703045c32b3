"""The paper's Figure 9: what fusion is worth as the simulator grows, in state and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from asv_benches.peers.ours import Simulate
from asv_benches.peers.panel import Panel
from asv_benches.peers.report import Row

STATE_FACTORS = (1, 4, 16)
COMPUTE_FACTORS = (1, 16)
ENVS = (256, 4096, 2**16)
STEPS = (1, 10, 1000)


@dataclass
class Heavier(Simulate):
    """`rlcpu.simulate` of `factors.make_dynamics`.

    Attributes:
        factors: S and C.
    """

    factors: tuple[int, int] = (1, 1)

    def setup(self) -> None:
        """Registers the environment and makes it."""
        import rlcpu
        from asv_benches.peers.factors import make_dynamics

        dynamics = make_dynamics(*self.factors)
        rlcpu.register(dynamics)
        self.env_id = dynamics.id
        super().setup()


def rows() -> list[Row]:
    """One row for every S and C; all numbers of environments and steps in one process."""
    return [
        Row(
            f"figure-9-{state}-{compute}",
            f"Figure 9: S={state}, C={compute}, simulation",
            "-",
            Panel(state, contenders(state, compute)),
            limit_s=180.0,
        )
        for compute in COMPUTE_FACTORS
        for state in STATE_FACTORS
    ]


def contenders(state: int, compute: int) -> dict[str, Heavier]:
    """All numbers of environments and of steps a call."""
    return {
        curve(envs, steps): Heavier(envs, steps, factors=(state, compute))
        for envs in ENVS
        for steps in STEPS
    }


def curve(envs: int, steps: int) -> str:
    """Such as "rlcpu N=256 K=10"."""
    return f"rlcpu N={envs} K={steps}"
