"""Action masks of several numbers: in infos, rollouts, policies, agents, and of Gymnasium's."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numba
import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import rlcpu
from rlcpu.envs import Dynamics, GymnasiumEnv, check
from rlcpu.envs.engine import masks
from rlcpu.envs.engine.scalar_env import ScalarEnv
from rlcpu.policies import MLP, Scalar, Uniform
from rlcpu.train import PPO
from tests.envs.masked import FEW, IDENTITY, SIEVE, WIDE_SIEVE, sieve_masks
from tests.envs.trials import try_kernels

#: Tests of distributions with fixed seeds: a sound generator fails one in a million of them.
SIGNIFICANCE = 1e-6
NUM_ENVS = 70


def rollout_of(dynamics: Dynamics, policy: Any, steps: int) -> Any:
    env = rlcpu.make_vec(dynamics, NUM_ENVS)
    env.reset(seed=17)
    return rlcpu.collect(env, policy, steps)


def sharp(dynamics: Dynamics) -> MLP:
    """A network whose outputs are apart."""
    policy = MLP(dynamics.observation_space, dynamics.action_space, hidden=(8,))
    policy.parameters += np.random.default_rng(5).normal(0.0, 0.3, policy.parameters.size)
    return policy


def parts_of(array: np.ndarray, dynamics: Dynamics) -> list[np.ndarray]:
    """The numbers (..., sum(choices)) of each choice."""
    return np.split(array, np.cumsum(dynamics.choices)[:-1], axis=-1)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=4))
def test_a_mask_without_a_choice_of_a_number_is_kept_as_none(parts: list[list[bool]]) -> None:
    choices, flat = tuple(map(len, parts)), np.array([[bit for part in parts for bit in part]])
    rows = masks.pack_masks(flat, choices)
    expected = flat & all(map(any, parts))
    np.testing.assert_array_equal(masks.masks_of(rows, sum(choices)), expected)
    assert masks.find_usable(flat, choices).tolist() == [all(map(any, parts))]


def test_kernels_pack_masks_as_numpy_does() -> None:
    choices = (1, 30, 4)
    pack = masks.make_pack(35, choices)
    packed = numba.njit(lambda mask: pack(mask))
    drawn = np.random.default_rng(0).random((40, 35)) < 0.6
    usable = masks.find_usable(drawn, choices)
    assert 10 < usable.sum() < 30
    for mask in drawn:
        found = np.array(packed(tuple(mask.tolist())), np.float32)
        assert found.tobytes() == masks.pack_masks(mask[None], choices)[0].tobytes()


@pytest.mark.parametrize("dynamics", [SIEVE, WIDE_SIEVE])
def test_infos_are_what_plain_python_says(dynamics: Dynamics) -> None:
    try_kernels(dynamics, steps=40)
    env = rlcpu.make_vec(dynamics, NUM_ENVS)
    observations, infos = env.reset(seed=0)
    for _ in range(9):
        assert infos["action_mask"].dtype == np.int8
        expected = sieve_masks(observations, dynamics.choices)
        np.testing.assert_array_equal(infos["action_mask"], expected)
        np.testing.assert_array_equal(env.action_masks(), expected)
        each = parts_of(infos["action_mask"], dynamics)
        actions = np.stack([part.shape[1] - 1 - part[:, ::-1].argmax(1) for part in each], axis=1)
        observations, rewards, *_, infos = env.step(actions)
        assert set(rewards) <= {0.0, 3.0}  # 0 of those that began an episode


@pytest.mark.parametrize("dynamics", [SIEVE, WIDE_SIEVE])
@pytest.mark.parametrize("is_network", [False, True])
def test_policies_draw_allowed_choices(dynamics: Dynamics, is_network: bool) -> None:
    policy = sharp(dynamics) if is_network else Uniform()
    rollout = rollout_of(dynamics, policy, 400)
    allowed = sieve_masks(rollout.observations, dynamics.choices)
    np.testing.assert_array_equal(rollout.action_masks, allowed)
    last = sieve_masks(rollout.last_observations, dynamics.choices)
    np.testing.assert_array_equal(rollout.last_action_masks, last)
    logits = np.zeros(allowed.shape)
    if is_network:
        outputs = policy.outputs(rollout.inputs.reshape(-1, 3))  # type: ignore[attr-defined]
        logits = outputs.astype(np.float64).reshape(allowed.shape)
    log_probs = np.zeros(allowed.shape[:2])
    turn = rollout.observations.argmax(axis=-1) == 1
    parts = zip(parts_of(logits, dynamics), parts_of(allowed, dynamics), strict=True)
    best = []
    for j, (logit, mask) in enumerate(parts):
        number, odds = rollout.actions[..., j], np.exp(logit) * mask
        chances = odds / odds.sum(axis=-1, keepdims=True)
        taken = np.take_along_axis(chances, number[..., None], axis=-1)[..., 0]
        assert (taken > 0.0).all()
        log_probs += np.log(taken)
        possible = mask[turn][0]
        found = np.bincount(number[turn], minlength=dynamics.choices[j])[possible]
        wanted = chances[turn][0][possible] * turn.sum()
        if len(found) > 1:
            assert chisquare(found, wanted).pvalue > SIGNIFICANCE
        best.append(chances.argmax(axis=-1))
    np.testing.assert_allclose(rollout.log_probs, log_probs, atol=2e-5)
    assert rlcpu.simulate(rlcpu.make_vec(dynamics, NUM_ENVS), policy, 21).mean_return > 0.0
    if is_network:
        policy.deterministic = True  # type: ignore[attr-defined]
        greedy = rollout_of(dynamics, policy, 400)
        np.testing.assert_array_equal(greedy.observations, rollout.observations)
        np.testing.assert_array_equal(greedy.actions, np.stack(best, axis=-1))


def first_allowed(observation, params, uniforms, mask):
    """The first choices that are allowed; of FEW."""
    one = 0 if mask[0] else 1 if mask[1] else 2
    two = 0 if mask[5] else 1
    three = 0 if mask[7] else 1 if mask[8] else 2
    return (one, two, three), 0.0, 0.0


def test_a_policy_of_ones_own_asks_for_the_mask() -> None:
    rollout = rollout_of(SIEVE, Scalar(first_allowed), 9)
    each = [part.argmax(axis=-1) for part in parts_of(rollout.action_masks, SIEVE)]
    np.testing.assert_array_equal(rollout.actions, np.stack(each, axis=-1))


@pytest.mark.parametrize("dynamics", [SIEVE, WIDE_SIEVE])
def test_a_number_without_a_choice_is_an_error(dynamics: Dynamics) -> None:
    faulty = dynamics.with_params(empty=5.0)
    env = rlcpu.make_vec(faulty, NUM_ENVS)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action_mask allows nothing in step 4 of environment"):
        rlcpu.collect(env, Uniform(), 6)
    assert env.engine.finished().all()
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros((NUM_ENVS, 3), int))
    with pytest.raises(ValueError, match=r"action_mask allows nothing in environment .*\(5.0,\)"):
        env.step(np.zeros((NUM_ENVS, 3), int))
    env.reset(seed=0)
    with pytest.raises((ValueError, FloatingPointError), match="allows nothing"):
        rlcpu.simulate(env, Uniform(), 6)
    with pytest.raises(ValueError, match=r"action_mask allows nothing in step 0 of an episode"):
        dynamics.with_params(empty=1.0)


def test_the_check_knows_masks_of_several_numbers() -> None:
    report = check(SIEVE, steps=300)
    assert report.ok, report
    report = check(SIEVE.with_params(empty=5.0), steps=100)
    assert "allows nothing" in str(report)


def test_masks_have_to_be_of_all_choices() -> None:
    for count in (3, 9, 11):
        with pytest.raises(ValueError, match=rf"a tuple of 10 bools .*; returned {count}"):
            dataclasses.replace(SIEVE, action_mask=lambda state, params, n=count: (True,) * n)


# ---------------------------------------------------------------- environments of Gymnasium


class Told(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A sieve of Gymnasium's, whose masks are a tuple of arrays, or flat."""

    def __init__(self, env: Any, is_tuple: bool) -> None:
        super().__init__(env)
        self.is_tuple = is_tuple

    def told(self, infos: dict[str, Any]) -> dict[str, Any]:
        mask = infos["action_mask"]
        return {"action_mask": tuple(parts_of(mask, SIEVE)) if self.is_tuple else mask}

    def reset(self, **options: Any) -> Any:
        observation, infos = self.env.reset(**options)
        return observation, self.told(infos)

    def step(self, action: Any) -> Any:
        *results, infos = self.env.step(action)
        assert results[1] >= 0.0  # no choice was forbidden
        return *results, self.told(infos)


def gymnasium_rollout(is_tuple: bool, policy: Any) -> Any:
    makers = [lambda: Told(ScalarEnv(SIEVE), is_tuple)] * 2
    env = GymnasiumEnv(gymnasium.vector.SyncVectorEnv(makers))
    env.reset(seed=3)
    assert env.dynamics.num_masked == sum(FEW)
    return rlcpu.collect(env, policy, 40)


@pytest.mark.parametrize("kind", ["network", "scalar", "uniform"])
def test_masks_of_gymnasium_are_tuples_or_flat(kind: str) -> None:
    policy = {"network": sharp(SIEVE), "scalar": Scalar(first_allowed), "uniform": Uniform()}[kind]
    rollouts = [gymnasium_rollout(is_tuple, policy) for is_tuple in (False, True)]
    for rollout in rollouts:
        allowed = sieve_masks(rollout.observations, FEW)
        np.testing.assert_array_equal(rollout.action_masks, allowed)
    np.testing.assert_array_equal(rollouts[0].actions, rollouts[1].actions)
    np.testing.assert_array_equal(rollouts[0].log_probs, rollouts[1].log_probs)
    mask = ScalarEnv(SIEVE).reset(seed=0)[1]["action_mask"]
    assert MultiDiscrete(FEW).contains(
        MultiDiscrete(FEW).sample(tuple(part for part in parts_of(mask, SIEVE)))
    )


def test_masks_of_gymnasium_that_are_refused() -> None:
    def infos_of(mask: Any) -> dict[str, Any]:
        told = np.empty(1, object)
        told[0] = mask
        return {"action_mask": told}

    good = tuple(np.ones(n, np.int8) for n in FEW)
    over = np.zeros(1, bool)
    assert masks.masks_of_infos(infos_of(good), 10, FEW, over).all()
    for mask, match in (
        (good[:2], r"\[0\] has arrays of other sizes: expected .* arrays of \(5, 2, 3\) choices"),
        ((*good[:2], np.ones(4, np.int8)), r"\[0\] has arrays of other sizes: expected one array"),
        (np.ones(9, np.int8), r"\[0\] is int8 of shape \(9,\), expected zeros and ones of \(10,\)"),
        ((*good[:2], np.zeros(3, np.int8)), "allows nothing in environment 0"),
    ):
        with pytest.raises(ValueError, match=match):
            masks.masks_of_infos(infos_of(mask), 10, FEW, over)


# ---------------------------------------------------------------- agents


def test_ppo_updates_the_policy_that_acted() -> None:
    agent = PPO(SIEVE, num_envs=70, num_steps=16, hidden=(16,), learning_rate=1e-9)
    agent.policy.parameters += np.random.default_rng(0).standard_normal(
        agent.policy.parameters.size, np.float32
    )
    # The private name is what a process that compiles ahead is told of the actions.
    twin = PPO.learner_of(agent.config, agent._kind)
    kinds = [[each["kind"] for each in x.tape.instructions] for x in (twin, agent.learner)]
    assert kinds[0] == kinds[1]
    losses = agent.learn(16 * 70).losses
    assert abs(losses.kl) < 1e-6  # up to rounding it is positive
    assert losses.clip_fraction == 0.0


def test_ppo_learns_what_it_hardly_finds_without_masks() -> None:
    """The most an episode is worth is 100; with masks one action in nine is right, else in 108."""
    options: dict[str, Any] = {"num_envs": 8, "num_steps": 100, "gamma": 0.4, "hidden": (32,)}
    options |= {"learning_rate": 3e-3, "minibatch_size": 100}
    for mask, least, most in ((IDENTITY.action_mask, 95.0, 100.0), (None, 0.0, 30.0)):
        agent = PPO(dataclasses.replace(IDENTITY, action_mask=mask), seed=0, **options)
        agent.learn(3200)
        assert least <= agent.evaluate(20).mean() <= most


def test_agents_predict_by_masks(tmp_path: Any) -> None:
    agent = PPO(SIEVE, seed=1, num_envs=70, num_steps=8, hidden=(16,))
    agent.learn(70 * 8)
    observations, infos = agent.env.reset(seed=0)
    flat = infos["action_mask"]
    each = parts_of(flat, SIEVE)
    outputs = np.where(flat != 0, agent.policy.outputs(observations), -np.inf)
    best = np.stack([part.argmax(axis=1) for part in parts_of(outputs, SIEVE)], axis=1)
    for given_masks in (flat, flat != 0, tuple(each)):
        found = agent.predict(observations, action_masks=given_masks)
        np.testing.assert_array_equal(found, best)
    one = tuple(part[3] for part in each)
    np.testing.assert_array_equal(agent.predict(observations[3], action_masks=one), best[3])
    drawn = np.array([agent.predict(observations, False, flat) for _ in range(100)])
    for j, part in enumerate(each):
        assert np.take_along_axis(part, drawn[..., j].T, axis=1).all()
    emptied = flat.copy()
    emptied[4, -3:] = 0
    for given_masks, kind, match in (
        (None, TypeError, r"Sieve10-v0 has action masks: give action_masks=infos\["),
        (flat[:, :8], ValueError, r"action_masks have shape \(70, 8\): expected \(n, 10\)"),
        (emptied, ValueError, r"action_masks\[4\] allows nothing"),
        (tuple(each[:2]), ValueError, "action_masks has arrays of other sizes: expected"),
    ):
        with pytest.raises(kind, match=match):
            agent.predict(observations, action_masks=given_masks)
    agent.save(tmp_path / "agent.npz")
    again = PPO.load(tmp_path / "agent.npz", env=type(agent.env)(SIEVE, 70))
    np.testing.assert_array_equal(again.evaluate(20), agent.evaluate(20))
