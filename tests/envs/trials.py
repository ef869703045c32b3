"""The part of `rlcpu.envs.check` that an environment like others needs.

The whole of it compiles a step for float64, too, and a rollout: `test_checker.py` tries it on
environments of each kind.
"""

from __future__ import annotations

import numpy as np

from rlcpu.envs import Dynamics
from rlcpu.envs.checks.checker import vectorisation_findings
from rlcpu.envs.checks.compiled import compare_batches, compare_kernels
from rlcpu.envs.checks.player import Player


def try_kernels(dynamics: Dynamics, steps: int = 200, seed: int = 0) -> None:
    """Assert that float32 kernels reset and step as plain Python does, which has no fault.

    Args:
        dynamics: the environment.
        steps: single steps, from states that random actions lead to.
        seed: of states, actions and kernels.
    """
    player = Player(dynamics)
    cases = player.play(steps, np.random.default_rng(seed))
    assert len(cases) > steps // 2
    compared = compare_kernels(player, cases, np.float32, seed)
    if compared:
        compare_batches(player, seed)
    found = player.findings.sorted()
    assert [finding for finding in found if finding.level == "error"] == []
    assert compared


def assert_step_vectorises(dynamics: Dynamics) -> None:
    """Assert that the step of float32 runs in vectors."""
    assert {level for level, _ in vectorisation_findings(dynamics, ("step",))} == {"note"}
