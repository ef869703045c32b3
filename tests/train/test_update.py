"""The gradient of the whole loss against finite differences, and what an update makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.train.config import PPOConfig
from rlcpu.train.network import flat_layers, packed_layers
from rlcpu.train.updater import Updater

from . import naive
from .cases import make_batch, make_policy


def make_case(samples: int = 37, **options: Any) -> tuple[Updater, naive.Case, Any]:
    policy = make_policy(**options)
    config = PPOConfig(
        num_epochs=1, minibatch_size=samples, entropy_coefficient=0.3, value_coefficient=0.7,
        max_gradient_norm=np.inf,
    )  # fmt: skip
    updater = Updater(policy, config, num_threads=1, dtype=np.float64)
    return updater, naive.Case(policy, 0.2, 0.3, 0.7), make_batch(policy, samples)


def kernel_gradient(updater: Updater, batch: Any) -> list[np.ndarray]:
    """The gradient that an update with learning rate 0 leaves, in flat arrays."""
    updater.update(batch, learning_rate=0.0, clip=0.2)
    total, begins = updater.space.gradients.sum(axis=0), updater.layout.begins
    policy = updater.policy
    arrays = [total[: policy.log_std.size]]
    networks = [(policy.sizes, policy.parameters), (policy.value_sizes, policy.value_parameters)]
    for k, (sizes, parameters) in enumerate(networks[: len(begins) - 1]):
        flat = np.zeros(parameters.size)
        packed = total[begins[k] : begins[k + 1]]
        for learnt, own in zip(packed_layers(sizes, packed), flat_layers(sizes, flat), strict=True):
            own[0][:], own[1][:] = learnt
        arrays.append(flat)
    return arrays


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("value", ["separate", "shared"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (5,), (18, 7)])
def test_gradient_equals_finite_differences(
    discrete: bool, value: str, activation: str, hidden: tuple[int, ...]
) -> None:
    updater, case, batch = make_case(
        discrete=discrete, value=value, activation=activation, hidden=hidden
    )
    expected = naive.gradient(case, batch)
    for actual, wanted in zip(kernel_gradient(updater, batch), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-8)
