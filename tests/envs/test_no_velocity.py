"""Environments without velocities: all but these is that of the environments with them."""

from __future__ import annotations

import numpy as np
import pytest

import rlcpu

#: By id where observations have zeros: rl-baselines3-zoo's table.
HIDDEN = {
    "CartPoleNoVel-v1": [1, 3],
    "MountainCarContinuousNoVel-v0": [1],
    "PendulumNoVel-v1": [2],
}


@pytest.mark.parametrize("id", HIDDEN)
def test_velocities_are_zeros(id: str) -> None:
    hidden, shown = (rlcpu.make_vec(name, 8) for name in (id, id.replace("NoVel", "")))
    seen, _ = hidden.reset(seed=3)
    expected, _ = shown.reset(seed=3)
    assert hidden.observation_space == shown.observation_space
    hidden.action_space.seed(4)
    for t in range(40):
        assert t == 0 or expected[:, HIDDEN[id]].all()
        expected = expected.copy()
        expected[:, HIDDEN[id]] = 0.0
        np.testing.assert_array_equal(seen, expected)
        actions = hidden.action_space.sample()
        seen, *ours, _ = hidden.step(actions)
        expected, *theirs, _ = shown.step(actions)
        np.testing.assert_array_equal(ours, theirs)
