"""PPO's scalar losses: hand-computed values, and derivatives against finite differences."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlcpu import nn
from rlcpu.train.objective import Weights, surrogate, value


def surrogate_of(ratio: float, advantage: float, entropy: float = 0.0) -> Any:
    """Loss, its slopes, and statistics."""
    sample = SimpleNamespace(old_log_prob=-1.0, advantage=advantage)

    def loss_of(*numbers: Any) -> Any:
        return surrogate(numbers, sample, Weights(0.2, 0.3))

    numbers = math.log(ratio) - 1.0, entropy
    loss, statistics = loss_of(*numbers)
    return loss, nn.slopes(lambda *numbers: loss_of(*numbers)[0], *numbers)[1], statistics


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # better than expected and likelier already: no more of it
        (0.5, 2.0, -1.0, -1.0),  # better but less likely: back
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 3.0),
    ],
)
def test_surrogate(ratio: float, advantage: float, loss: float, slope: float) -> None:
    found, slopes, (policy, _, _, clipped) = surrogate_of(ratio, advantage)
    assert (found, policy, slopes[0]) == pytest.approx((loss, loss, slope))
    assert clipped == float(abs(ratio - 1.0) > 0.2)


def test_entropy_is_a_bonus() -> None:
    loss, slopes, (policy, entropy, *_) = surrogate_of(1.0, 2.0, entropy=0.5)
    assert (policy, entropy) == (-2.0, 0.5)
    assert (loss, slopes[1]) == pytest.approx((-2.0 - 0.3 * 0.5, -0.3))


def test_divergence_is_never_negative_and_zero_only_without_change() -> None:
    for log_ratio in np.linspace(-2.0, 2.0, 41):
        divergence = surrogate_of(math.exp(log_ratio), 1.0)[2][2]
        assert divergence > 0.0 or abs(log_ratio) < 1e-12


def test_value_is_a_squared_error() -> None:
    sample = SimpleNamespace(target=1.0)
    assert value((1.5,), sample, ()) == (0.25, ())
    assert nn.slopes(lambda x: value((x,), sample, ())[0], 1.5) == (0.25, (1.0,))
