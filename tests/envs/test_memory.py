"""What a policy with memory remembers: within an episode, never of the one before."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcpu
from rlcpu import nn
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.policies import NetworkPolicy, Uniform
from tests import naive
from tests.envs.recall import MOST, RECALL, Recall, remember

Array = Any
MODES = list(AutoresetMode)


def make_env(mode: AutoresetMode, num_envs: int, ours: bool = True) -> VectorEnv:
    """Environments, just reset; their first episodes have lengths of their own."""
    if ours:
        env = VectorEnv(RECALL, num_envs, autoreset_mode=mode)
        env.reset(seed=3)
        return env
    makers = [lambda k=k: Recall(k) for k in range(num_envs)]
    made = SyncVectorEnv(makers, autoreset_mode=mode)
    return GymnasiumEnv(made, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ours", [True, False])
def test_rollouts_remember_one_episode(mode: AutoresetMode, ours: bool) -> None:
    """Every answer is right, in calls of any length, and after a reset by hand."""
    env, policy = make_env(mode, 70 if ours else 5, ours), remember()
    num_ended = 0
    for steps in (1, 2, 7, 1, 12):
        rollout = rlcpu.collect(env, policy, steps)
        np.testing.assert_array_equal(rollout.rewards, 1.0)
        num_ended += len(rollout.episode_returns)
    assert num_ended > 4 * env.num_envs
    assert rlcpu.simulate(env, policy, 9).num_episodes > env.num_envs
    env.reset()
    np.testing.assert_array_equal(rlcpu.collect(env, policy, 6).rewards, 1.0)
    lengths = rlcpu.collect(env, policy, 20).episode_lengths
    assert set(lengths.tolist()) == {2, 3, MOST}


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_of_predictions_remembers_one_episode(mode: AutoresetMode) -> None:
    """The three ways of Gymnasium to begin anew: `starts` is of the first observation of each."""
    env, policy = make_env(mode, 70), remember()
    observations, _ = env.reset(seed=4)
    state, starts = policy.initial_state(70), np.zeros(70, bool)
    ended = np.zeros(70, bool)
    for _ in range(12):
        outputs, state = policy.outputs(observations, state, starts)
        observations, rewards, terminated, truncated, _ = env.step(outputs.argmax(1))
        counts = ~ended if mode is AutoresetMode.NEXT_STEP else np.ones(70, bool)
        np.testing.assert_array_equal(rewards[counts], 1.0)
        if mode is AutoresetMode.NEXT_STEP:  # the step after the last one is the reset
            starts, ended = ended, terminated | truncated
            continue
        starts = ended = terminated | truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = env.reset(options={"reset_mask": ended})


def expected(policy: NetworkPolicy, rollout: Any) -> tuple[Array, Array, Array]:
    """Values (T, N) of steps, of final observations and (N,) of the last ones, step by step."""
    name = "value" if policy.value == "separate" else "policy"
    first = policy.state_sizes["policy"] if name == "value" else 0
    network = policy.networks()[name]

    def run(inputs: Array, state: Array) -> tuple[Array, Array]:
        made, after = network.outputs(naive.normalized_rows(policy, inputs)[None], state)
        rows = made["value"] if isinstance(made, dict) else made
        return rows[0, :, -1], after

    state = rollout.states[:, first : first + network.state_size]
    values, finals = [], np.zeros(rollout.rewards.shape, np.float32)
    ends = {(t, i): k for k, (t, i) in enumerate(rollout.final_indices.tolist())}
    for t, inputs in enumerate(rollout.inputs):
        made, state = run(inputs, state)
        values.append(made)
        for i in range(len(state)):
            if (t, i) in ends:
                if not rollout.terminated[t, i]:
                    reached = rollout.final_observations[ends[t, i]][None]
                    finals[t, i] = run(reached, state[i : i + 1])[0][0]
                state[i] = 0.0
    return np.array(values), finals, run(rollout.last_observations, state)[0]


def layers(space: Any) -> nn.Graph:
    return nn.Dense(12) >> nn.Tanh() >> nn.Gru(20) >> nn.Residual(nn.Lstm(20))


def check_values(env: VectorEnv, value: str, num_steps: int) -> None:
    """Acting, learning and single passes make the same numbers, bit for bit."""
    spaces = env.single_observation_space, env.single_action_space
    policy = NetworkPolicy.of_layers(*spaces, layers, value, seed=1)
    policy.parameters *= 3.0
    policy.observation_scale[:], policy.observation_limit = 0.5, 0.2
    for _ in range(2):
        rollout = rlcpu.collect(env, policy, num_steps)
        values, finals, last = expected(policy, rollout)
        np.testing.assert_array_equal(rollout.values, values)
        np.testing.assert_allclose(rollout.final_values, finals, rtol=1e-6)
        np.testing.assert_array_equal(rollout.last_values, last)
        assert (finals != 0).any() or env.num_envs == 1
        network, size = policy.networks()["policy"], policy.state_sizes["policy"]
        inputs = naive.normalized_rows(policy, rollout.inputs)
        assert (abs(inputs) == np.float32(0.2)).any()
        outputs, _ = network.outputs(inputs, rollout.states[:, :size], rollout.starts)
        outputs = outputs["policy"] if value == "shared" else outputs
        chosen = outputs - np.log(np.exp(outputs).sum(axis=-1, keepdims=True))
        if not policy.log_std.size:
            taken = np.take_along_axis(chosen, rollout.actions[..., None], -1)[..., 0]
            np.testing.assert_allclose(rollout.log_probs, taken, atol=1e-6)
    assert rollout.states.any() or env.num_envs == 1


@pytest.mark.parametrize("value", ["separate", "shared"])
def test_a_rollout_is_what_the_networks_say(value: str) -> None:
    check_values(make_env(AutoresetMode.NEXT_STEP, 70), value, 9)
    check_values(make_env(AutoresetMode.NEXT_STEP, 1), value, 9)


def test_a_rollout_of_gymnasium_is_what_the_networks_say() -> None:
    """Where environments that are not reset in a step are ahead of the others."""
    check_values(make_env(AutoresetMode.NEXT_STEP, 5, ours=False), "separate", 7)


def test_snapshots_and_copies_go_on() -> None:
    env, policy = make_env(AutoresetMode.NEXT_STEP, 70), remember("shared")
    policy.deterministic = False
    rlcpu.collect(env, policy, 5)
    snapshot, copied = env.snapshot(), copy.deepcopy(env)
    unpickled = pickle.loads(pickle.dumps(env))
    fresh = make_env(AutoresetMode.NEXT_STEP, 70)
    fresh.restore(snapshot)
    wanted = rlcpu.collect(env, policy, 9)
    assert wanted.states.any()
    for other in (copied, unpickled, fresh):
        rollout = rlcpu.collect(other, policy, 9)
        np.testing.assert_array_equal(rollout.states, wanted.states)
        np.testing.assert_array_equal(rollout.values, wanted.values)
        np.testing.assert_array_equal(rollout.actions, wanted.actions)
    env.restore(snapshot)
    np.testing.assert_array_equal(rlcpu.collect(env, policy, 9).values, wanted.values)


@pytest.mark.parametrize("other", [remember(), Uniform()])
def test_another_policy_leaves_no_memory(other: Any) -> None:
    """What one policy remembers another does not know, even of the same sizes."""
    env, policy = make_env(AutoresetMode.NEXT_STEP, 70), remember()
    rlcpu.collect(env, policy, 3)
    rlcpu.collect(env, other, 1)
    assert not rlcpu.collect(env, policy, 2).states.any()


def test_the_same_policy_remembers_whether_it_draws_actions_or_not() -> None:
    env, twin = (make_env(AutoresetMode.NEXT_STEP, 70) for _ in range(2))
    policy, same = remember(), remember()
    for deterministic in (False, True, None):
        rollout = rlcpu.collect(env, policy, 3, deterministic=deterministic)
        same.deterministic = deterministic is not False
        wanted = rlcpu.collect(twin, same, 3)
        np.testing.assert_array_equal(rollout.actions, wanted.actions)
        np.testing.assert_array_equal(rollout.states, wanted.states)
    assert wanted.states.any()


def test_bad_states_are_refused() -> None:
    policy = remember()
    rows = np.zeros((3, 1), np.float32)
    with pytest.raises(
        ValueError, match=r"policy has memory, expected an array \(3, 16\), such as"
    ):
        policy.outputs(rows)
    with pytest.raises(ValueError, match=r"state has shape \(2, 16\): expected \(3, 16\)"):
        policy.outputs(rows, policy.initial_state(2))
    with pytest.raises(ValueError, match=r"starts have shape \(2,\): expected \(3,\)"):
        policy.outputs(rows, policy.initial_state(3), np.zeros(2, bool))
    env = make_env(AutoresetMode.NEXT_STEP, 70)
    rlcpu.collect(env, policy, 2)
    snapshot = env.snapshot()
    with pytest.raises(ValueError, match=r"snapshot\['carried'\] has shape \(9, 16\)"):
        env.restore({**snapshot, "carried": snapshot["carried"][:9]})
    with pytest.raises(TypeError, match=r"snapshot\['carried'\] is of float64: expected float32"):
        env.restore({**snapshot, "carried": snapshot["carried"].astype(float)})
