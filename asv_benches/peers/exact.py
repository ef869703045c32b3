"""float64: bit for bit Gymnasium's CartPoleVectorEnv, checked before it is timed."""

from __future__ import annotations

from typing import Any

import numpy as np

from asv_benches.peers.duel import Duel, Measurement
from asv_benches.peers.stepping import make_gymnasium, make_rlcpu
from asv_benches.peers.timing import Effort


class ExactDuel(Duel):
    """A duel that is off where the two do not agree bit for bit."""

    def __call__(self, effort: Effort) -> Measurement:
        """Measures, and notes how many environment steps were compared."""
        measurement = super().__call__(effort)
        if measurement.ratio is None:
            return measurement
        compared = sum(compare(4096, seed) for seed in range(effort.rounds))
        note = f"state, reward, terminated and truncated equal in {compared:,} environment steps"
        return Measurement(
            measurement.ours, measurement.peer, measurement.ratio, measurement.spread, note
        )


def compare(num_envs: int, seed: int) -> int:
    """Rolls both out from the same states with the same actions, up to every first episode's end.

    Returns:
        How many environment steps were compared.

    Raises:
        AssertionError: one of them differs in a bit.
    """
    ours = make_rlcpu(num_envs, "float64")
    theirs = make_gymnasium(num_envs, "vector_entry_point")
    theirs.reset(seed=seed)
    ours.state = theirs.state.T
    rng = np.random.default_rng(seed)
    alive = np.ones(num_envs, np.bool_)
    compared = 0
    while alive.any():
        actions = rng.integers(0, 2, num_envs)
        _, *outcome = ours.step(actions)
        _, *expected = theirs.step(actions)
        _assert_equal("state", ours.state[alive], theirs.state.T[alive])
        for name, value, wanted in zip(
            ("reward", "terminated", "truncated"), outcome, expected, strict=False
        ):
            _assert_equal(name, value[alive], wanted[alive])
        compared += int(alive.sum())
        alive &= ~(expected[1] | expected[2])
    return compared


def _assert_equal(name: str, ours: Any, theirs: Any) -> None:
    different = int((ours != theirs).sum())
    assert not different, f"{name} is not bit for bit Gymnasium's in {different} of {ours.size}"
