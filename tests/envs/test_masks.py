"""Action masks: in infos, in rollouts, in policies, and every way to get one wrong."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import rlcpu
from rlcpu.envs import Dynamics, check, find
from rlcpu.envs.checks.compiled import compare_kernels
from rlcpu.envs.checks.player import Player
from rlcpu.envs.engine import masks
from rlcpu.envs.engine.scalar_env import ScalarEnv
from rlcpu.envs.tasks.classic_control import cartpole
from rlcpu.envs.tasks.toy_text import taxi
from rlcpu.policies import MLP, Linear, Scalar, Uniform
from tests.envs.masked import COUNTER, TIC_TAC_TOE, WIDE
from tests.envs.trials import try_kernels

#: Tests of distributions with fixed seeds: a sound generator fails one in a million of them.
SIGNIFICANCE = 1e-6
NUM_ENVS = 70


def counter_masks(times: Any) -> np.ndarray:
    """What COUNTER allows after so many steps."""
    return np.asarray(times)[..., None].astype(int) % 3 == np.arange(WIDE) % 3


def taken(allowed: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Whether each action is allowed."""
    return np.take_along_axis(allowed, actions[..., None], axis=-1)[..., 0]


def changed(dynamics: Dynamics, **fields: Any) -> Dynamics:
    """Another environment that differs in some fields."""
    names = ("id", "step", "reset", "observe", "action_mask", "observation_space", "action_space")
    names += ("params", "reset_draws", "step_draws", "max_episode_steps")
    return Dynamics(**{**{name: getattr(dynamics, name) for name in names}, **fields})


@settings(deadline=None, max_examples=60)
@given(st.lists(st.booleans(), min_size=1, max_size=100), st.integers(0, 3))
def test_rows_hold_a_mask(mask: list[bool], first: int) -> None:
    rows = tuple(masks.pack_masks(np.array([mask]))[0])
    assert len(rows) == masks.mask_rows(len(mask))
    unpack = masks.make_unpack.__wrapped__(first, len(mask)).py_func
    assert [bool(each) for each in unpack((np.float32(np.nan),) * first + rows)] == mask
    memory = np.tile(np.array(rows, np.float32)[:, None], (1, 3))
    for held in (memory.T, np.ascontiguousarray(memory.T), memory.T.reshape(3, 1, -1)):
        found = masks.masks_of(held, len(mask))
        assert found.dtype == np.bool_
        assert found.shape == (*held.shape[:-1], len(mask))
        assert (found == mask).all()


@pytest.mark.parametrize("count", [1, 32, WIDE])
def test_kernels_pack_masks_as_numpy_does(count: int) -> None:
    pack = masks.make_pack(count)
    packed = numba.njit(lambda mask: pack(mask))
    for mask in np.random.default_rng(0).random((5, count)) < 0.5:
        found = np.array(packed(tuple(mask.tolist())), np.float32)
        assert found.tobytes() == masks.pack_masks(mask[None])[0].tobytes()


# ---------------------------------------------------------------- infos


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_infos_of_taxi_are_gymnasiums(mode: gymnasium.vector.AutoresetMode) -> None:
    def make() -> Any:
        return gymnasium.make("Taxi-v4", max_episode_steps=3, disable_env_checker=True)

    count = 9
    theirs = gymnasium.vector.SyncVectorEnv([make] * count, autoreset_mode=mode)
    env = rlcpu.make_vec("Taxi-v4", count, autoreset_mode=mode, max_episode_steps=3)
    mask_of = theirs.envs[0].unwrapped.action_mask  # type: ignore[attr-defined]
    (observations, infos), (_, expected) = env.reset(seed=0), theirs.reset(seed=0)
    for turn in range(5):
        for name in ("action_mask", "_action_mask"):
            assert infos[name].dtype == expected[name].dtype
            assert infos[name].shape == expected[name].shape
        np.testing.assert_array_equal(infos["action_mask"], [mask_of(o) for o in observations])
        np.testing.assert_array_equal(infos["action_mask"], env.action_masks())
        assert infos["_action_mask"].all()
        assert ("final_info" in infos) == ("final_info" in expected)
        if "final_info" in infos:
            final, like = infos["final_info"], expected["final_info"]
            assert final["action_mask"].dtype == like["action_mask"].dtype
            np.testing.assert_array_equal(final["_action_mask"], like["_action_mask"])
            np.testing.assert_array_equal(
                final["action_mask"], [mask_of(o) for o in infos["final_obs"]]
            )
        if mode is gymnasium.vector.AutoresetMode.DISABLED and turn == 2:
            ended = {"reset_mask": np.arange(count) % 2 == 0}
            observations, infos = env.reset(options=dict(ended))
            _, expected = theirs.reset(options=dict(ended))
            continue
        if mode is gymnasium.vector.AutoresetMode.DISABLED and turn == 3:
            break
        actions = np.random.default_rng(turn).integers(0, 6, count)
        observations, *_, infos = env.step(actions)
        *_, expected = theirs.step(actions)


def test_infos_of_one_environment() -> None:
    env = gymnasium.make("rlcpu/Taxi-v4")
    theirs: Any = gymnasium.make("Taxi-v4").unwrapped
    observation, infos = env.reset(seed=3)
    for action in (0, 3, 4, 1, 2, 2):
        assert infos.keys() == {"action_mask"}
        assert infos["action_mask"].dtype == np.int8
        np.testing.assert_array_equal(infos["action_mask"], theirs.action_mask(observation))
        observation, *_, infos = env.step(action)


def test_one_environment_shows_its_observation_alone() -> None:
    """Not the rows of the mask behind it."""
    env = ScalarEnv(COUNTER)
    assert env.reset(seed=0)[0].shape == (1,)
    for _ in range(3):
        observation, *_, infos = env.step(0)
        assert observation.shape == (1,)
        np.testing.assert_array_equal(infos["action_mask"], counter_masks(observation[0]))


def test_masks_in_infos_are_the_callers() -> None:
    env = rlcpu.make_vec(COUNTER, NUM_ENVS)
    _, before = env.reset(seed=0)
    held = {name: array.copy() for name, array in before.items()}
    _, _, _, _, after = env.step(np.argmax(held["action_mask"], axis=1))
    for name, array in before.items():
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, held[name])
    after["_action_mask"][:] = False
    _, _, _, _, infos = env.step(np.argmax(after["action_mask"], axis=1))
    assert infos["_action_mask"].all()
    assert (infos["action_mask"] == counter_masks(env.observe()[:, 0])).all()


@pytest.mark.parametrize("planes", ["uint8", "bits"])
def test_masks_beside_planes(planes: str) -> None:
    env = rlcpu.make_vec(TIC_TAC_TOE, NUM_ENVS, planes=planes)
    _, infos = env.reset(seed=0)
    for _ in range(4):
        state = env.state
        held = (state.mine | state.theirs)[:, :1] >> np.arange(9, dtype=np.uint64) & np.uint64(1)
        np.testing.assert_array_equal(infos["action_mask"], held == 0)
        observations, *_, infos = env.step(np.argmax(infos["action_mask"], axis=1))
        if planes == "uint8":
            assert observations.shape == (NUM_ENVS, 2, 3, 3)
            free = observations.reshape(NUM_ENVS, 2, 9).sum(axis=1) == 0
            np.testing.assert_array_equal(infos["action_mask"], free)


# ---------------------------------------------------------------- rollouts and policies


def rollout_of(dynamics: Dynamics, policy: Any, steps: int = 50, num_envs: int = NUM_ENVS) -> Any:
    env = rlcpu.make_vec(dynamics, num_envs)
    env.reset(seed=17)
    return rlcpu.collect(env, policy, steps)


def test_rollouts_keep_masks() -> None:
    rollout = rollout_of(COUNTER, Uniform())
    times = rollout.observations[..., 0]
    assert rollout.observations.shape == (50, NUM_ENVS, 1)
    np.testing.assert_array_equal(rollout.action_masks, counter_masks(times))
    np.testing.assert_array_equal(
        rollout.last_action_masks, counter_masks(rollout.last_observations[:, 0])
    )
    names = ("next_observation", "action_mask", "next_action_mask", "action")
    columns = rollout.transitions(names)
    np.testing.assert_array_equal(columns["action_mask"], counter_masks(times.ravel()))
    after = columns["next_observation"][:, 0]
    np.testing.assert_array_equal(after, times.ravel() + 1)
    np.testing.assert_array_equal(columns["next_action_mask"], counter_masks(after))
    assert columns["next_action_mask"].dtype == np.bool_
    assert rollout.inputs.shape == (50, NUM_ENVS, 1)
    again = pickle.loads(pickle.dumps(rollout))
    np.testing.assert_array_equal(again.action_masks, rollout.action_masks)


def test_without_a_mask_there_is_none() -> None:
    env = rlcpu.make_vec(cartpole.DYNAMICS, NUM_ENVS)
    _, infos = env.reset(seed=0)
    assert infos == {}
    assert env.action_masks() is None
    rollout = rlcpu.collect(env, Uniform(), 3)
    assert rollout.action_masks is None
    assert rollout.last_action_masks is None
    with pytest.raises(ValueError, match="'next_action_mask' is none of"):
        rollout.transitions(["next_action_mask"])


def test_uniform_draws_allowed_actions_evenly() -> None:
    rollout = rollout_of(COUNTER, Uniform(), 700)
    assert taken(rollout.action_masks, rollout.actions).all()
    counts = rollout.action_masks.sum(axis=-1)
    np.testing.assert_allclose(rollout.log_probs, -np.log(counts), rtol=1e-6)
    for turn in range(3):
        drawn = rollout.actions[rollout.observations[..., 0] % 3 == turn]
        found = np.bincount(drawn, minlength=WIDE)[turn::3]
        assert found.sum() == drawn.size
        assert chisquare(found).pvalue > SIGNIFICANCE


def sharp(dynamics: Dynamics, kind: Any = Linear, **options: Any) -> MLP:
    """A network whose outputs are far apart."""
    policy = kind(dynamics.observation_space, dynamics.action_space, **options)
    rng = np.random.default_rng(5)
    policy.parameters += rng.standard_normal(policy.parameters.size, np.float32)
    return policy


def log_probs_of(policy: MLP, rollout: Any) -> np.ndarray:
    """Log-probabilities (T, N, n), -inf of what is forbidden."""
    inputs = rollout.inputs
    logits = policy.outputs(inputs.reshape(-1, inputs.shape[-1])).astype(np.float64)
    logits = np.where(rollout.action_masks, logits.reshape(*inputs.shape[:2], -1), -np.inf)
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def test_networks_draw_allowed_actions() -> None:
    policy = sharp(COUNTER)
    policy.parameters *= np.float32(0.3)
    rollout = rollout_of(COUNTER, policy, 700)
    assert taken(rollout.action_masks, rollout.actions).all()
    expected = log_probs_of(policy, rollout)
    drawn = np.take_along_axis(expected, rollout.actions[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(rollout.log_probs, drawn, atol=2e-5)
    for time in range(3):
        at = rollout.observations[..., 0] == time
        found = np.bincount(rollout.actions[at], minlength=WIDE)
        probs = np.exp(expected[at][0])
        assert probs[time::3].min() * at.sum() > 5
        assert found.sum() == found[time::3].sum()
        assert chisquare(found[time::3], probs[time::3] * at.sum()).pvalue > SIGNIFICANCE
    policy.deterministic = True
    rollout = rollout_of(COUNTER, policy, 10)
    best = log_probs_of(policy, rollout).argmax(axis=-1)
    np.testing.assert_array_equal(rollout.actions, best)


def test_a_forbidden_action_is_not_taken_however_large_its_logit() -> None:
    policy = Linear(COUNTER.observation_space, COUNTER.action_space)
    policy.parameters[:] = 0.0
    policy.parameters[WIDE:][::3] = 1e3  # those of steps 0, 3 and 6
    rollout = rollout_of(COUNTER, policy, 50)
    assert taken(rollout.action_masks, rollout.actions).all()
    counts = rollout.action_masks.sum(axis=-1)
    np.testing.assert_allclose(rollout.log_probs, -np.log(counts), atol=1e-4)


def first_allowed(observation, params, uniforms, mask):
    """The first action that is allowed."""
    action = 0
    for k in range(WIDE):
        action = WIDE - 1 - k if mask[WIDE - 1 - k] else action
    return action, 0.0, 0.0


def test_a_policy_of_ones_own_asks_for_the_mask() -> None:
    rollout = rollout_of(COUNTER, Scalar(first_allowed), 9)
    np.testing.assert_array_equal(rollout.actions, rollout.action_masks.argmax(axis=-1))
    with pytest.raises(TypeError, match=r"act takes a mask: CartPole-v1 has no action_mask"):
        rollout_of(cartpole.DYNAMICS, Scalar(first_allowed), 9)


# ---------------------------------------------------------------- what is wrong with a mask


def test_masks_that_are_none() -> None:
    def always(mask: Any) -> Any:
        return lambda state, params: mask

    with pytest.raises(TypeError, match="masks are for Discrete and MultiDiscrete"):
        changed(find("Pendulum-v1"), action_mask=always((True,)))
    for mask, kind, match in (
        ((True, False), ValueError, "a tuple of 6 bools .*; returned 2"),
        ((1, 1, 1, 1, 1, 1), TypeError, "a tuple of 6 bools"),
        ([True] * 6, TypeError, "a tuple of 6 bools|makes a list"),
        ((False,) * 6, ValueError, "Taxi-v4: action_mask allows nothing in step 0"),
    ):
        with pytest.raises(kind, match=match):
            changed(taxi.DYNAMICS, action_mask=always(mask))
    with pytest.raises(TypeError, match=r"action_mask has to take \(state, params\)"):
        changed(taxi.DYNAMICS, action_mask=lambda state: (True,) * 6)


def test_a_mask_that_allows_nothing_later_is_an_error() -> None:
    faulty = COUNTER.with_params(empty=5.0)
    env = rlcpu.make_vec(faulty, NUM_ENVS)
    env.reset(seed=0)
    first = int(np.argmax(env.state[:, 0] == 1.0))
    actions = np.zeros(NUM_ENVS, int)
    for _ in range(3):
        env.step(actions)
    match = rf"Counter-v0: action_mask allows nothing in environment {first}, step 4 .*\(5.0,\)"
    with pytest.raises(ValueError, match=match):
        env.step(actions)
    env = rlcpu.make_vec(faulty, NUM_ENVS)
    env.reset(seed=0)
    expected = rf"Counter-v0: action_mask allows nothing in step 4 of environment {first} after the"
    with pytest.raises(ValueError, match=expected):
        rlcpu.collect(env, Uniform(), 6)
    assert env.engine.finished().all()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action_mask allows nothing in environment"):
        rlcpu.simulate(env, Uniform(), 5)
    env.reset(seed=0)
    with pytest.raises((ValueError, FloatingPointError), match="allows nothing"):
        rlcpu.simulate(env, Uniform(), 6)


def test_an_ended_episode_need_not_allow_anything() -> None:
    rollout = rollout_of(TIC_TAC_TOE, Uniform(), 100)
    ended = rollout.transitions(["next_action_mask"])["next_action_mask"][rollout._ends]
    assert len(ended) > 1000
    assert not ended.all(axis=1).any()
    assert not ended.any(axis=1).all()
    assert set(rollout.episode_returns) == {-1.0, 0.0, 1.0}


def test_the_check_knows_masks() -> None:
    report = check(TIC_TAC_TOE, steps=300)
    assert report.ok, report
    try_kernels(taxi.DYNAMICS)


def test_the_check_finds_a_mask_that_allows_nothing() -> None:
    player = Player(COUNTER.with_params(empty=5.0))
    cases = player.play(60, np.random.default_rng(0))
    compare_kernels(player, cases, np.float32, 0)
    errors = [message for level, message in player.findings.sorted() if level == "error"]
    assert errors
    assert all("allows nothing" in message for message in errors)


def test_pickles_and_copies() -> None:
    env = rlcpu.make_vec("Taxi-v4", 3)
    env.reset(seed=0)
    again = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(again.action_masks(), env.action_masks())
    assert pickle.loads(pickle.dumps(taxi.DYNAMICS)).action_mask is taxi.action_mask


def test_masks_read_the_parameters_of_their_environment() -> None:
    empty = np.where(np.arange(NUM_ENVS) == 33, 5.0, -1.0)
    env = rlcpu.make_vec(COUNTER, NUM_ENVS, empty=empty)
    _, infos = env.reset(seed=0)
    assert infos["action_mask"].any(axis=1).all()
    env.state = np.full((NUM_ENVS, 1), 4.0)
    with pytest.raises(ValueError, match=r"action_mask allows nothing in environment 33, step 1"):
        env.step(np.zeros(NUM_ENVS, int))
