"""PPO's scalar losses: hand-computed values, and derivatives against finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlcpu import nn
from rlcpu.policies import MLP
from rlcpu.train import PPOConfig
from rlcpu.train.ppo import squared_error, surrogate
from tests.train.cases import Batch, improve, make_agent, make_batch, make_policy
from tests.train.off_policy_cases import numeric


def surrogate_of(ratio: float, advantage: float) -> Any:
    return surrogate(math.log(ratio) - 1.0, -1.0, advantage, 0.2)


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
    at = math.log(ratio) - 1.0
    results, slopes = nn.slopes(surrogate, at, -1.0, advantage, 0.2)
    assert results == pytest.approx(surrogate_of(ratio, advantage))
    assert (results[0], slopes[0][0]) == pytest.approx((loss, slope))
    assert results[2] == float(abs(ratio - 1.0) > 0.2)
    assert slopes[1][0] == pytest.approx(ratio - 1.0)
    expected = numeric(lambda x: surrogate(x[0], -1.0, advantage, 0.2)[0], [at])
    if ratio != 1.0:
        assert slopes[0][0] == pytest.approx(expected[0], abs=1e-4)


def improved(policy: MLP, batch: Batch, **settings: float) -> Any:
    """Losses of one step that changes nothing."""
    config = PPOConfig(num_epochs=1, minibatch_size=len(batch.targets)).replace(settings)
    return improve(make_agent(policy, config), batch, 0.0, 0.2)


def test_entropy_is_a_bonus_and_the_value_has_a_weight() -> None:
    """As the gradient tells: where one part of the loss alone counts, its own parameters step."""
    for entropy, value, changes in ((0.5, 0.0, "policy"), (0.0, 0.5, "value")):
        policy = make_policy(discrete=False)
        batch = make_batch(policy, 50)._replace(advantages=np.zeros(50, np.float32))
        before = policy.log_std.copy(), policy.parameters.copy(), policy.value_parameters.copy()
        losses = improved(policy, batch)
        config = PPOConfig(
            num_epochs=1, minibatch_size=50, entropy_coefficient=entropy, value_coefficient=value,
            normalize_advantages=False,
        )  # fmt: skip
        improve(make_agent(policy, config), batch, 1e-3, 0.2)
        after = improved(policy, batch)
        # Advantages are zeros: the policy's means learn nothing, deviations grow by the bonus.
        np.testing.assert_array_equal(policy.parameters, before[1])
        if changes == "policy":
            np.testing.assert_allclose(policy.log_std, before[0] + 1e-3, atol=1e-5)
            np.testing.assert_array_equal(policy.value_parameters, before[2])
            assert after.entropy == pytest.approx(losses.entropy + 3 * 1e-3, abs=1e-5)
        else:
            np.testing.assert_array_equal(policy.log_std, before[0])
            assert after.value < losses.value


def test_divergence_is_never_negative_and_zero_only_without_change() -> None:
    for log_ratio in np.linspace(-2.0, 2.0, 41):
        divergence = surrogate_of(math.exp(log_ratio), 1.0)[1]
        assert divergence > 0.0 or abs(log_ratio) < 1e-12


def test_value_is_a_squared_error() -> None:
    assert nn.slopes(squared_error, 1.5, 1.0) == (0.25, (1.0, -1.0))
