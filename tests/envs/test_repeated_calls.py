"""Calls with the same environment and policy: what has changed between them counts."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

import rlcpu
from rlcpu.envs.contract.policies import PolicyArrays
from rlcpu.envs.rollout.collect import Rollout
from rlcpu.policies import MLP, Scalar, Uniform
from tests.envs.rollouts import FIELDS, Lean, lean, make

STEPS = 12  # more than the limit of an episode


def replace(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    return lambda policy: setattr(policy, name, change(getattr(policy, name)))


def in_place(name: str, factor: float) -> Callable[[Any], None]:
    return lambda policy: np.multiply(
        getattr(policy, name), np.float32(factor), out=getattr(policy, name)
    )


CHANGES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "weights in place": ("CartPole-v1 tanh", in_place("parameters", 1.5)),
    "values in place": ("CartPole-v1 tanh", in_place("value_parameters", 1.5)),
    "shared values in place": ("CartPole-v1 shared", in_place("parameters", 1.5)),
    "mean in place": ("CartPole-v1 tanh", in_place("observation_mean", -2.0)),
    "scale in place": ("CartPole-v1 tanh", in_place("observation_scale", 0.5)),
    "limit in place": ("CartPole-v1 tanh", in_place("observation_limit", 0.5)),
    "new limit": ("CartPole-v1 tanh", replace("observation_limit", lambda _: 0.3)),
    "deviation in place": ("Pendulum-v1 tanh", in_place("log_std", -1.0)),
    "new weights": ("CartPole-v1 tanh", replace("parameters", lambda a: a[::-1].copy())),
    "new deviation": ("Pendulum-v1 tanh", replace("log_std", lambda a: a + np.float32(1.0))),
    "other dtype": ("CartPole-v1 tanh", replace("parameters", lambda a: a * np.float64(-1.0))),
    "not contiguous": ("CartPole-v1 tanh", replace("parameters", lambda a: a[::-1])),
    "greedy": ("CartPole-v1 tanh", replace("deterministic", lambda _: True)),
    "activation": ("CartPole-v1 tanh", replace("activation", lambda _: "relu")),
    "params": ("CartPole-v1 exact own", replace("params", lambda _: Lean(-3.0, 0.5))),
    "function": ("CartPole-v1 exact own", replace("act", lambda _: push)),
}


def push(observation, params, uniforms):
    """One action for ever."""
    return 1, uniforms[0], params[0]


def assert_collects_alike(
    env: Any, policy: Any, twin: Any, same: Any, out: Rollout | None
) -> Rollout:
    """Check a repeated call against a first one, in an environment that is in the same state."""
    twin.engine.last_runner = None
    rollout, expected = rlcpu.collect(env, policy, STEPS, out=out), rlcpu.collect(twin, same, STEPS)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(rollout, name), getattr(expected, name), err_msg=name)
    return rollout


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_the_policy_count(change: str) -> None:
    """Twice: what was converted once has to be converted again."""
    case, alter = CHANGES[change]
    (env, policy), (twin, same) = make(case), make(case)
    rollout = assert_collects_alike(env, policy, twin, same, None)
    before = [rollout.actions.copy(), rollout.values.copy(), rollout.last_values.copy()]
    for _ in range(2):
        alter(policy)
        alter(same)
        rollout = assert_collects_alike(env, policy, twin, same, rollout)
        if hasattr(policy, "parameters") and isinstance(policy.parameters, np.ndarray):
            for each in (policy, same):
                each.parameters *= 0.75
    after = rollout.actions, rollout.values, rollout.last_values
    assert not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    twin.engine.last_runner = None
    assert rlcpu.simulate(env, policy, STEPS) == rlcpu.simulate(twin, same, STEPS)


def shorten(policy: MLP) -> None:
    policy.parameters = policy.parameters[:-1]


def fold(policy: MLP) -> None:
    policy.parameters = policy.parameters.reshape(1, -1)


@pytest.mark.parametrize("spoil", [shorten, fold])
@pytest.mark.parametrize("function", [rlcpu.collect, rlcpu.simulate])
def test_a_policy_spoilt_between_calls_is_refused(
    spoil: Callable[[MLP], None], function: Callable[..., Any]
) -> None:
    env, policy = make("CartPole-v1 tanh")
    for _ in range(2):
        function(env, policy, STEPS)
    before = env.state
    spoil(policy)
    with pytest.raises(ValueError, match=r"policy\.parameters has shape"):
        function(env, policy, STEPS)
    np.testing.assert_array_equal(env.state, before)


def test_sizes_of_a_policy_are_fixed() -> None:
    policy = make("CartPole-v1 tanh")[1]
    for each in (policy, copy.deepcopy(policy)):
        with pytest.raises(ValueError, match="read-only"):
            each.sizes[1] += 1
        with pytest.raises(ValueError, match="the sizes of a policy are fixed"):
            each.value_sizes = each.value_sizes + 1


@pytest.mark.parametrize("num_steps", [True, 1.5, np.float64(1.5)])
def test_num_steps_that_equals_the_last_is_checked(num_steps: Any) -> None:
    env, policy = rlcpu.make_vec("CartPole-v1", 3), Uniform()
    rollout = rlcpu.collect(env, policy, 1)
    with pytest.raises(TypeError, match=r"num_steps=.*: expected an int"):
        rlcpu.collect(env, policy, num_steps, out=rollout)
    assert rlcpu.collect(env, policy, np.int64(1), out=rollout) is rollout  # type: ignore[arg-type]


class Asked:
    """A policy of one's own, which inherits a `version` that does not tell of its arrays."""

    def arrays(self, dynamics: Any) -> PolicyArrays:
        self.times = getattr(self, "times", 0) + 1
        return super().arrays(dynamics)  # type: ignore[misc, no-any-return]


class OwnScalar(Asked, Scalar):
    pass


def test_a_policy_without_a_version_of_its_own_is_asked_every_time() -> None:
    env, policy = make("CartPole-v1 own")[0], OwnScalar(lean, Lean(), 2)
    for _ in range(3):
        rlcpu.collect(env, policy, STEPS)
    assert policy.times == 3


def test_policies_take_turns() -> None:
    """The environments are handed to kernels once for all policies, each policy by itself."""
    (env, first), (twin, _) = make("CartPole-v1 tanh"), make("CartPole-v1 tanh")
    second = copy.deepcopy(first)
    second.parameters[...] *= np.float32(-1.0)
    for policy in (first, second, first, second):
        runner = env.engine.last_runner
        assert_collects_alike(env, policy, twin, copy.deepcopy(policy), None)
        if runner is not None:  # a runner that another policy has followed still has its own
            again = copy.deepcopy(env)
            rollout = rlcpu.collect(again, runner.policy, STEPS)
            alone = Rollout(env.engine.form, STEPS)
            runner.collect(alone)
            np.testing.assert_array_equal(alone.actions, rollout.actions)
            rlcpu.collect(twin, copy.deepcopy(runner.policy), STEPS)


def test_values_are_those_of_the_policy_that_acted() -> None:
    """They are computed when asked for; the policy may have been trained by then."""
    (env, policy), (twin, same) = make("CartPole-v1 shared"), make("CartPole-v1 shared")
    rollout = None
    for _ in range(2):
        rollout, expected = rlcpu.collect(env, policy, STEPS), rlcpu.collect(twin, same, STEPS)
        wanted = expected.last_values.copy(), expected.final_values.copy()
        policy.parameters[:] = 0.0
        np.testing.assert_array_equal(rollout.last_values, wanted[0])
        np.testing.assert_array_equal(rollout.final_values, wanted[1])
        assert wanted[0].all()
        assert wanted[1].any()
        policy.parameters[:] = same.parameters


def test_arrays_that_the_user_replaced_are_shown_anew() -> None:
    env, policy = make("CartPole-v1 tanh")
    twin, same = make("CartPole-v1 tanh")
    rollout = rlcpu.collect(env, policy, STEPS)
    rlcpu.collect(twin, same, STEPS)
    for name in FIELDS:
        setattr(rollout, name, None)
    assert_collects_alike(env, policy, twin, same, rollout)


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_have_memory_of_their_own(twin: Callable[[Rollout], Rollout]) -> None:
    env, policy = make("CartPole-v1 tanh")
    rollout = rlcpu.collect(env, policy, STEPS)
    copied = twin(rollout)
    kept = {name: getattr(rollout, name).copy() for name in FIELDS}
    assert rlcpu.collect(env, policy, STEPS, out=copied) is copied
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(rollout, name), kept[name], err_msg=name)
    assert not np.array_equal(copied.observations, rollout.observations)


def test_episodes_that_end_in_between_need_their_reset() -> None:
    options = {"max_episode_steps": 3, "autoreset_mode": AutoresetMode.DISABLED}
    env, policy = rlcpu.make_vec("CartPole-v1", 2, **options), Uniform()
    env.reset(seed=0)
    rollout = rlcpu.collect(env, policy, 3)
    for _ in range(3):
        env.step(np.zeros(2, np.int64))
    before = env.state
    for work in (
        lambda: rlcpu.collect(env, policy, 3, out=rollout),
        lambda: rlcpu.simulate(env, policy, 3),
    ):
        with pytest.raises(ResetNeeded, match="2 environments have finished"):
            work()
    np.testing.assert_array_equal(env.state, before)
    env.reset()
    assert rlcpu.collect(env, policy, 3, out=rollout).truncated[2].all()


def test_a_repeated_call_is_a_short_one() -> None:
    """Python's and C's functions called by a step of all environments."""
    env, policy = make("CartPole-v1 shared")
    rollout = rlcpu.collect(env, policy, 1)
    calls = []
    rlcpu.collect(env, policy, 1, out=rollout)
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    rlcpu.collect(env, policy, 1, out=rollout)
    sys.setprofile(None)
    assert sum(event in ("call", "c_call") for event in calls) <= 30
