"""The gradient of the whole loss against finite differences, and what an update makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.train import PPOConfig

from . import naive
from .cases import improve, make_agent, make_batch, make_policy
from .off_policy_cases import EPSILON, STEP


def make_case(
    samples: int = 37, masked: bool = False, choices: tuple[int, ...] = (), **options: Any
) -> tuple[Any, naive.Case, Any]:
    policy = make_policy(choices=choices, **options)
    config = PPOConfig(
        num_epochs=1, minibatch_size=samples, entropy_coefficient=0.3, value_coefficient=0.7,
        max_gradient_norm=np.inf, adam_epsilon=EPSILON,
    )  # fmt: skip
    kinds: dict[str, Any] = {"masked": masked, "choices": choices}
    agent = make_agent(policy, config, num_threads=1, **kinds)
    return agent, naive.Case(policy, 0.2, 0.3, 0.7, choices), make_batch(policy, samples, **kinds)


def kernel_gradient(agent: Any, batch: Any) -> list[np.ndarray]:
    """The gradient that a first update steps by, in flat arrays."""
    before = naive.parameter_arrays(agent.policy)
    improve(agent, batch, learning_rate=EPSILON * STEP, clip=0.2)
    after = naive.parameter_arrays(agent.policy)
    return [(old - new) / STEP for old, new in zip(before, after, strict=True)]


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Up to some roundings to float32 of an array's largest numbers, in which the kernel computes.

    What it comes to is 7e-7 at most.
    """
    for actual, wanted in zip(found, expected, strict=True):
        error = 3e-6 * np.abs(wanted).max(initial=0.0)
        np.testing.assert_allclose(actual, wanted, rtol=0.0, atol=error)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("value", ["separate", "shared"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (5,), (18, 7)])
def test_gradient_equals_finite_differences(
    discrete: bool, value: str, activation: str, hidden: tuple[int, ...]
) -> None:
    agent, case, batch = make_case(
        discrete=discrete, value=value, activation=activation, hidden=hidden
    )
    expected = naive.gradient(case, batch)
    assert_close(kernel_gradient(agent, batch), expected)


@pytest.mark.parametrize("value", ["separate", "shared"])
def test_gradient_of_masked_actions_equals_finite_differences(value: str) -> None:
    agent, case, batch = make_case(samples=150, masked=True, value=value, hidden=(5,), actions=6)
    expected = naive.gradient(case, batch)
    assert_close(kernel_gradient(agent, batch), expected)
    never = batch._replace(actions=np.zeros_like(batch.actions), masks=batch.masks.copy())
    never.masks[:, 2], never.masks[:, :2] = False, True
    agent, *_ = make_case(samples=150, masked=True, value=value, hidden=(5,), actions=6)
    biases = kernel_gradient(agent, never)[1][-6 - (value == "shared") :][:6]
    assert biases[2] == 0.0
    assert (biases[:2] != 0.0).all()


@pytest.mark.parametrize(("value", "choices"), [("separate", (3, 2, 4)), ("shared", (3, 1, 4))])
def test_gradient_of_several_choices_equals_finite_differences(
    value: str, choices: tuple[int, ...]
) -> None:
    agent, case, batch = make_case(samples=90, choices=choices, value=value, hidden=(5,))
    expected = naive.gradient(case, batch)
    assert_close(kernel_gradient(agent, batch), expected)
    with pytest.raises(ValueError, match=r"shape \(90, 2\): expected \(S, 3\)"):
        improve(agent, batch._replace(actions=batch.actions[:, :2]), 0.0, 0.2)


def test_masked_actions_are_checked() -> None:
    agent, _, batch = make_case(masked=True, actions=3)
    beyond = batch.actions.copy()
    beyond[3] = 3
    for changes, match in (
        ({"masks": batch.masks[:, :2]}, r"action_mask.* shape \(37, 2\): expected \(S, 3\)"),
        ({"masks": batch.masks[:20]}, r"columns of \[20, 37\] samples"),
        ({"actions": beyond}, "action.*: expected 0 to 2, got 3"),
    ):
        before = naive.parameter_arrays(agent.policy)
        with pytest.raises(ValueError, match=match):
            improve(agent, batch._replace(**changes), 1.0, 0.2)
        for old, new in zip(before, naive.parameter_arrays(agent.policy), strict=True):
            np.testing.assert_array_equal(old, new)
    with pytest.raises(KeyError, match="action_mask"):
        improve(agent, batch._replace(masks=None), 1.0, 0.2)


def make_learning(num_threads: int = 1, **options: Any) -> Any:
    settings = {"num_epochs": 3, "minibatch_size": 300, "learning_rate": 1e-3, **options}
    return make_agent(make_policy(seed=1), PPOConfig(**settings), 7, num_threads)


def test_result_does_not_depend_on_the_number_of_threads() -> None:
    results = []
    for threads in (1, 2, 4):
        agent = make_learning(threads)
        for seed in range(20):
            losses = improve(agent, make_batch(agent.policy, 1000, seed), 1e-3, 0.2)
        results.append((agent.policy.parameters, agent.policy.value_parameters, losses))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0][0], other[0])
        np.testing.assert_array_equal(results[0][1], other[1])
        assert results[0][2] == other[2]
    assert results[0][2].num_gradients == 3 * 4


def test_minibatches_of_one_epoch_partition_the_samples() -> None:
    agent = make_learning(num_epochs=1)
    improve(agent, make_batch(agent.policy, 1000), 1e-3, 0.2)
    np.testing.assert_array_equal(np.sort(agent.learner.space.indices), np.arange(1000))
    before = agent.learner.space.indices.copy()
    improve(agent, make_batch(agent.policy, 1000), 1e-3, 0.2)
    assert (before != agent.learner.space.indices).any(), "the next update shuffles anew"


def test_advantages_are_normalised_by_the_minibatch() -> None:
    """Shifting and scaling all advantages changes nothing."""
    results = []
    for shift, scale in ((0.0, 1.0), (5.0, 3.0)):
        agent = make_learning()
        batch = make_batch(agent.policy, 600)
        shifted = batch._replace(advantages=batch.advantages * scale + shift)
        improve(agent, shifted, 1e-3, 0.2)
        results.append(agent.policy.parameters)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-6)


def test_gradient_norm_is_clipped_over_all_networks_together() -> None:
    """Adam's first moments after one step are a tenth of the clipped gradient."""
    options: dict[str, Any] = {"num_epochs": 1, "minibatch_size": 600}
    free, tight = make_learning(max_gradient_norm=np.inf, **options), make_learning(**options)
    batch = make_batch(free.policy, 600)
    norm = improve(free, batch, 1e-3, 0.2).gradient_norm
    assert norm > 0.5
    assert improve(tight, batch, 1e-3, 0.2).gradient_norm == pytest.approx(norm)
    assert np.linalg.norm(free.learner.learnt.first) == pytest.approx(0.1 * norm)
    np.testing.assert_allclose(
        tight.learner.learnt.first, free.learner.learnt.first * 0.5 / norm, rtol=1e-5, atol=1e-12
    )


def test_update_ends_before_the_step_that_would_diverge() -> None:
    loose = make_learning(num_epochs=50)
    batch = make_batch(loose.policy, 600)
    # Old log-probabilities that are the policy's own: the first minibatch has no divergence.
    batch = batch._replace(log_probs=own_log_probs(loose.policy, batch))
    free = improve(loose, batch, 1e-3, 0.2)
    agent = make_learning(num_epochs=50, target_kl=0.01)
    held = improve(agent, batch, 1e-3, 0.2)
    assert free.num_gradients == 100
    assert 2 <= held.num_gradients < 100
    assert held.kl <= 1.5 * 0.01 < free.kl
    assert agent.learner.counters.tolist() == [held.num_gradients, 50]


def own_log_probs(policy: Any, batch: Any) -> np.ndarray:
    inputs = (batch.observations - policy.observation_mean) * policy.observation_scale
    inputs = np.clip(inputs, -policy.observation_limit, policy.observation_limit)
    heads = naive.run_network(policy.sizes, policy.parameters, "tanh", inputs)
    log_probs, _ = naive.log_prob_and_entropy(heads, policy.log_std, batch)
    return log_probs.astype(np.float32)


def test_reported_losses() -> None:
    agent, case, batch = make_case(samples=200)
    losses = improve(agent, batch, 0.0, 0.2)
    total = losses.policy - 0.3 * losses.entropy + 0.7 * losses.value
    assert total == pytest.approx(naive.loss(case, naive.parameter_arrays(case.policy), batch))
    ratio = np.exp(own_log_probs(case.policy, batch) - batch.log_probs)
    assert losses.clip_fraction == pytest.approx((abs(ratio - 1.0) > 0.2).mean())
    assert losses.kl == pytest.approx((ratio - 1.0 - np.log(ratio)).mean(), rel=1e-4)


def test_policy_and_learner_agree_after_an_update() -> None:
    for value in ("separate", "shared"):
        policy = make_policy(discrete=False, value=value)
        agent = make_agent(policy, PPOConfig(num_epochs=1), num_threads=1)
        before = policy.parameters.copy(), policy.log_std.copy()
        improve(agent, make_batch(policy, 64), 1e-2, 0.2)
        assert (policy.parameters != before[0]).all()
        assert (policy.log_std != before[1]).all()
        learnt = agent.learner.learnt.parameters.copy()
        agent.learner.read_networks()
        np.testing.assert_array_equal(agent.learner.learnt.parameters, learnt)
