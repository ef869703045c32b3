"""Environments and rollouts on the device against those of the CPU, from the same seed."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

import rlcpu
from rlcpu.backends import device_of
from rlcpu.cuda.device import SIMULATED, asarray, cuda, to_host
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.policies import MLP, Scalar, Uniform
from tests.envs.rollouts import CLASSIC, Lean, lean
from tests.envs.samples import DRIFT, LEVERS, falling

pytestmark = pytest.mark.device

NUM_ENVS = 5 if SIMULATED else 1000
NUM_STEPS = 5 if SIMULATED else 100
#: Steps after which episodes are cut: ends of both kinds happen in the few steps of a test.
LIMIT = 3 if SIMULATED else 12
#: One float32 step on the device and one on the CPU, from the same state; libdevice's sine, squares
#: in single precision and fused multiplications in float64, where the simulator does as the CPU.
BOUNDS = {"float32": 4e-6, "float64": 0.0 if SIMULATED else 1e-10}
#: Observations are rounded to float32, where the last bit of a state may turn the scale.
ROUNDING = 0.0 if SIMULATED else 1e-6


def make(env: Any, dtype: str = "float32", **options: Any) -> tuple[Any, Any]:
    """The same environments on the CPU and on the device, reset with the same seed."""
    options = {"num_envs": NUM_ENVS, "max_episode_steps": LIMIT, "dtype": dtype, **options}
    pair = rlcpu.make_vec(env, **options), rlcpu.make_vec(env, device="cuda", **options)
    for each in pair:
        each.reset(seed=7)
    return pair


def actions_of(env: Any, rng: np.random.Generator) -> np.ndarray:
    if env.dynamics.is_discrete:
        return rng.integers(0, env.dynamics.num_actions, env.num_envs)
    return rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)


def assert_close(found: Any, expected: Any, dtype: str, steps: int = 1) -> None:
    """Equal but for the rounding of some steps, which diverge as the physics does."""
    found = to_host(found)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind == "f":
        bound = BOUNDS[dtype] * 2.0 ** min(steps, 12)
        bound = max(bound, ROUNDING) if found.dtype == np.float32 else bound
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "mode", "dtype"),
    [  # as `tests/envs` compiles all of them for the CPU
        *((name, AutoresetMode.NEXT_STEP, "float32") for name in CLASSIC),
        ("CartPole-v1", AutoresetMode.SAME_STEP, "float64"),
        ("Pendulum-v1", AutoresetMode.SAME_STEP, "float64"),
    ],
)
def test_step(name: str, mode: AutoresetMode, dtype: str) -> None:
    cpu, device = make(name, dtype, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    assert_close(device.observe(), cpu.observe(), dtype)
    for steps in range(1, LIMIT + 3):
        actions = actions_of(cpu, rng)
        expected, found = cpu.step(actions), device.step(actions)
        for ours, theirs in zip(found[:4], expected[:4], strict=True):
            assert device_of(ours) == "cuda"
            assert_close(ours, theirs, dtype, steps)
        assert_close(device.state, cpu.state, dtype, steps)
        if "final_obs" in expected[4]:
            done = expected[4]["_final_obs"]
            assert found[4].keys() == expected[4].keys()
            assert found[4]["final_info"] == {}
            for name in ("_final_obs", "_final_info"):
                np.testing.assert_array_equal(to_host(found[4][name]), done)
            finals = np.stack(list(expected[4]["final_obs"][done]))
            assert_close(to_host(found[4]["final_obs"])[done], finals, dtype, steps)


def test_actions_on_the_device_and_masked_reset() -> None:
    cpu, device = make("CartPole-v1", "float64")
    rng = np.random.default_rng(1)
    mask = np.arange(NUM_ENVS) % 2 == 0
    for dtype in (np.int64, np.int32):
        actions = actions_of(cpu, rng).astype(dtype)
        on_device = cuda.to_device(actions)
        assert_close(device.step(on_device)[0], cpu.step(actions)[0], "float64", 2)
        options = {"reset_mask": mask, "low": -0.01, "high": 0.02}
        found, expected = (env.reset(options=options)[0] for env in (device, cpu))
        assert_close(found, expected, "float64", 2)


BAD = (  # environment, action, what is said of one of the host, and of one on the device
    ("CartPole-v1", 2, r"actions\[1\]=2 of CartPole-v1 \(1 such\): expected 0 to 1", "0 to 1"),
    ("CartPole-v1", -1, r"actions\[1\]=-1", "0 to 1"),
    ("Pendulum-v1", np.nan, r"actions\[1\]=\[nan\] of Pendulum-v1 \(1 such\)", "a number"),
)


@pytest.mark.parametrize(("name", "bad", "message", "wanted"), BAD)
def test_a_bad_action_of_the_host_changes_nothing(
    name: str, bad: Any, message: str, wanted: str
) -> None:
    cpu, device = make(name, "float64")
    actions = actions_of(cpu, np.random.default_rng(2))
    wrong = actions.copy()
    wrong[1] = bad
    before = to_host(device.state)
    with pytest.raises(ValueError, match=message):
        device.step(wrong)
    np.testing.assert_array_equal(to_host(device.state), before)
    assert_close(device.step(actions)[0], cpu.step(actions)[0], "float64")


@pytest.mark.parametrize(("name", "bad", "message", "wanted"), BAD)
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_environment_with_a_bad_action_on_the_device_takes_no_step(
    name: str, bad: Any, message: str, wanted: str, mode: AutoresetMode
) -> None:
    """Another one of the same seed takes none either: its later steps are those of the first."""
    (cpu, device), rng = make(name, "float64", autoreset_mode=mode), np.random.default_rng(2)
    actions, others = actions_of(cpu, rng), np.arange(NUM_ENVS) != 1
    before = to_host(device.observe())[1]
    wrong = actions.copy()
    wrong[1] = bad
    observations, rewards, terminated, truncated, infos = device.step(asarray(wrong))
    expected = cpu.step(actions)
    assert_close(to_host(observations)[others], expected[0][others], "float64")
    assert_close(to_host(rewards)[others], expected[1][others], "float64")
    np.testing.assert_array_equal(to_host(observations)[1], before)
    assert (rewards[1], terminated[1], truncated[1]) == (0.0, False, False)
    if infos:
        np.testing.assert_array_equal(to_host(infos["final_obs"])[1], before)
    message = rf"actions\[1\] of {name}, on the device: expected {wanted}"
    with pytest.raises(ValueError, match=message):
        device.step(actions)
    # The clock and the random numbers of environment 1 are behind by one step.
    late, _ = make(name, "float64", autoreset_mode=mode)
    for _ in range(LIMIT + 1):
        on_time, found, is_late = (
            cpu.step(actions),
            device.step(asarray(actions)),
            late.step(actions),
        )
        for ours, theirs, delayed in zip(found[:4], on_time[:4], is_late[:4], strict=True):
            theirs[1] = delayed[1]
            assert_close(ours, theirs, "float64", 2)
    rlcpu.cuda.synchronize()


def test_faults_are_told_by_synchronize_and_by_each_call() -> None:
    _, device = make("CartPole-v1")
    wrong = asarray(np.full(NUM_ENVS, 2))
    calls = (
        rlcpu.cuda.synchronize,
        device.observe,
        device.reset,
        lambda: device.reset(seed=3),
        lambda: device.state,
        lambda: setattr(device, "state", np.zeros((NUM_ENVS, 4))),
        lambda: rlcpu.simulate(device, Uniform(), 1),
        lambda: rlcpu.collect(device, Uniform(), 1),
    )
    before = to_host(device.state)
    for call in calls:
        device.step(wrong)
        if not SIMULATED:
            cuda.synchronize()  # which tells nothing: the call finds the fault by itself
        with pytest.raises(ValueError, match=r"actions\[\d+\] of CartPole-v1"):
            call()
        np.testing.assert_array_equal(to_host(device.state), before)


def test_the_action_of_one_that_waits_for_its_reset_is_ignored() -> None:
    for name, bad in (("CartPole-v1", -1), ("Pendulum-v1", np.nan)):
        cpu, device = make(name, "float64", max_episode_steps=1)
        actions = actions_of(cpu, np.random.default_rng(2))
        for env in (cpu, device):
            env.step(actions)
        actions[1] = bad
        assert_close(device.step(actions)[0], cpu.step(actions)[0], "float64")


def test_several_choices() -> None:
    cpu, device = make(LEVERS, max_episode_steps=100)
    rng = np.random.default_rng(4)
    for dtype in (np.int64, np.int32, np.uint8):
        actions = rng.integers(0, LEVERS.choices, (NUM_ENVS, 3)).astype(dtype)
        expected = cpu.step(actions)
        assert_close(device.step(asarray(actions))[1], expected[1], "float32")
    for k, value in ((0, 3), (1, -1), (2, 2**32)):
        wrong = np.zeros((NUM_ENVS, 3), np.int64)
        wrong[2, k] = value
        before = to_host(device.state)[2]
        device.step(asarray(wrong))
        with pytest.raises(ValueError, match=r"actions\[2\] of Levers-v0, .*below \[3, 2, 4\]"):
            rlcpu.cuda.synchronize()
        np.testing.assert_array_equal(to_host(device.state)[2], before)
        with pytest.raises(ValueError, match=r"actions\[2\]=.* of Levers-v0 \(1 such\)"):
            device.step(wrong)


@pytest.mark.parametrize("value", [None, "shared"])
def test_policies_of_several_choices(value: str | None) -> None:
    cpu, device = make(LEVERS)
    policy: Any = Uniform()
    if value:
        policy = MLP(cpu.single_observation_space, cpu.single_action_space, (5,), value=value)
    expected, found = (rlcpu.collect(env, policy, NUM_STEPS) for env in (cpu, device))
    assert found.actions.shape == (NUM_STEPS, NUM_ENVS, 3)
    if SIMULATED or not value:
        for field in ("actions", "log_probs", "values", "rewards", "observations"):
            assert_close(getattr(found, field), getattr(expected, field), "float32", NUM_STEPS)


def test_wrong_arrays_are_refused() -> None:
    cpu, device = make("CartPole-v1", "float64")
    with pytest.raises(TypeError, match="actions have dtype float32: expected an integer dtype"):
        device.step(asarray(np.zeros(NUM_ENVS, np.float32)))
    with pytest.raises(ValueError, match=rf"actions have shape \(2,\): expected \({NUM_ENVS},\)"):
        device.step(asarray(np.zeros(2, np.int64)))
    with pytest.raises(TypeError, match="actions have dtype float64"):
        device.step(np.zeros(NUM_ENVS))
    every_second = np.arange(2 * NUM_ENVS) // 2 % 2
    expected = cpu.step(every_second[::2])
    assert_close(device.step(asarray(every_second)[::2])[0], expected[0], "float64")


def test_one_class_on_every_device() -> None:
    class Mine(VectorEnv):
        pass

    _, device = make("CartPole-v1")
    assert type(device) is VectorEnv
    env = Mine(device.dynamics, 2, device="cuda")
    assert device_of(env.reset(seed=0)[0]) == "cuda"
    assert type(rlcpu.collect(env, Uniform(), 2)) is rlcpu.Rollout
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(env)


def test_state_can_be_set() -> None:
    cpu, device = make("CartPole-v1", "float64", max_episode_steps=1)
    actions = actions_of(cpu, np.random.default_rng(6))
    for env in (cpu, device):
        env.step(actions)  # all of them have finished
        env.state = env.state
    assert_close(device.step(asarray(actions))[0], cpu.step(actions)[0], "float64")


def test_environments_of_the_cpu_are_refused() -> None:
    from tests.envs.test_states import TOY, WALK

    plain = find("CartPole-v1")

    def shaken(rng: Any, params: Any) -> Any:
        return plain.reset((rng.uniform(0),) * 4, params)

    for given, options, what in (
        (TOY, {}, "states that are not tuples of floats"),
        (WALK, {}, "states that are not tuples of floats"),
        ("MinAtar/Breakout-v1", {}, "states that are not tuples of floats"),
        ("FrozenLake-v1", {}, "states that are not tuples of floats"),
        (dataclasses.replace(plain, reset=shaken, reset_draws=0), {}, "functions of an `rng`"),
        (plain, {"gravity": np.array([9.0, 10.0])}, r"parameters that vary \(gravity\)"),
        (masked(), {}, "action masks"),
    ):
        with pytest.raises(TypeError, match=rf"-v.*: {what}.*: not on a CUDA device, but on the"):
            rlcpu.make_vec(given, 2, device="cuda", **options)


def masked() -> Dynamics:
    """CartPole whose first action is not always allowed."""
    allow = lambda state, params: (state[0] > 0.0, True)  # noqa: E731
    return dataclasses.replace(find("CartPole-v1"), action_mask=allow)


def test_networks_of_the_cpu_are_refused() -> None:
    from rlcpu.train.running.actors import EpsilonGreedy

    _, device = make("CartPole-v1")
    for options in ({}, {"layer_norm": True}):
        policy = EpsilonGreedy(device.dynamics, **options)
        with pytest.raises(ValueError, match=r"networks with a head of .*: not on a CUDA device"):
            rlcpu.simulate(device, policy, 1)


def test_agents_refuse_a_device_at_once() -> None:
    from rlcpu.train import PPO

    _, device = make("CartPole-v1")
    with pytest.raises(TypeError, match=r"env=.*device=\'?cuda\'?.*: expected .*on the CPU"):
        PPO(device)


def test_disabled_autoreset() -> None:
    options = {"autoreset_mode": AutoresetMode.DISABLED, "max_episode_steps": 1}
    cpu, device = make("CartPole-v1", "float64", **options)
    actions = actions_of(cpu, np.random.default_rng(3))
    reached = to_host(device.step(actions)[0])
    cpu.step(actions)
    observations, rewards, terminated, truncated, _ = device.step(actions)
    np.testing.assert_array_equal(to_host(observations), reached)
    assert not to_host(rewards).any()
    assert not to_host(terminated | truncated).any()
    with pytest.raises(ResetNeeded, match=r"environment \d+ of CartPole-v1 has finished"):
        device.step(actions)
    with pytest.raises(ResetNeeded, match=f"{NUM_ENVS} environments have finished"):
        rlcpu.simulate(device, Uniform(), 1)
    found, expected = (env.reset()[0] for env in (device, cpu))
    assert_close(found, expected, "float64")


def test_reset_needed() -> None:
    env = rlcpu.make_vec("CartPole-v1", 2, device="cuda")
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(2, np.int64))
    assert rlcpu.simulate(env, Uniform(), 1).num_steps == 2
    assert "device=cuda" in repr(env)


# ---------------------------------------------------------------- rollouts


def mlp(name: str, hidden: tuple[int, ...], value: str | None, activation: str = "tanh") -> MLP:
    env = rlcpu.make_vec(name)
    policy = MLP(
        env.single_observation_space, env.single_action_space, hidden, activation, value, seed=3
    )
    rng = np.random.default_rng(4)
    policy.parameters[:] = rng.normal(size=policy.parameters.size)
    policy.observation_mean[:] = rng.normal(size=policy.observation_mean.size)
    policy.observation_limit = 0.8
    return policy


#: On the CPU they share kernels with those of `tests/envs/rollouts.py`.
POLICIES = {
    "uniform": ("CartPole-v1", "float64", Uniform),
    "uniform-box": ("Pendulum-v1", "float64", Uniform),
    "scalar": ("CartPole-v1", "float32", lambda: Scalar(lean, Lean(), 2)),
    "linear": ("Acrobot-v1", "float32", lambda: mlp("Acrobot-v1", (), None)),
    "one-layer": ("CartPole-v1", "float32", lambda: mlp("CartPole-v1", (5,), "shared", "relu")),
    "three-layers": ("Pendulum-v1", "float32", lambda: mlp("Pendulum-v1", (2, 3, 2), "separate")),
}
FIELDS = (
    *("observations", "actions", "log_probs", "values", "rewards", "terminated", "truncated"),
    *("last_observations", "last_values", "final_indices", "final_observations", "final_values"),
    *("episode_returns", "episode_lengths"),
)


@pytest.mark.parametrize("case", POLICIES)
def test_collect_and_simulate(case: str) -> None:
    name, dtype, make_policy = POLICIES[case]
    cpu, device = make(name, dtype)
    policy, out = make_policy(), None
    network = isinstance(policy, MLP)
    for _ in range(2):
        expected = rlcpu.collect(cpu, policy, NUM_STEPS)
        out = rlcpu.collect(device, policy, NUM_STEPS, out=out)
        for field in FIELDS:
            found, wanted = getattr(out, field), getattr(expected, field)
            if SIMULATED or not network:
                assert_close(found, wanted, "float32" if network else dtype, NUM_STEPS)
            else:  # a draw may fall between the roundings of two distributions
                found = to_host(found)
                assert found.dtype == wanted.dtype
                if field in ("observations", "log_probs", "values", "final_values"):
                    apart = ~np.isclose(found, wanted, rtol=1e-3, atol=1e-3)
                    assert apart.reshape(*apart.shape[:2], -1).any((0, 2)).mean() < 0.02
    wanted = rlcpu.collect(cpu, policy, NUM_STEPS)
    found = rlcpu.simulate(device, policy, NUM_STEPS)
    returns, lengths = wanted.episode_returns, wanted.episode_lengths
    assert found.num_steps == wanted.rewards.size
    bound = 0 if SIMULATED else 0.02 * len(returns)
    assert abs(found.num_episodes - len(returns)) <= bound
    assert found.mean_return == pytest.approx(returns.mean(), rel=1e-5 if SIMULATED else 0.05)
    assert found.std_return == pytest.approx(returns.std(), rel=0.05, abs=1e-2)
    assert found.mean_length == pytest.approx(lengths.mean(), rel=0.05)


def test_greedy_actions() -> None:
    cpu, device = make("CartPole-v1")
    policy = mlp("CartPole-v1", (5,), "shared")
    expected, found = (rlcpu.collect(env, policy, 3, deterministic=True) for env in (cpu, device))
    assert_close(found.actions, expected.actions, "float32")
    drawn = rlcpu.collect(device, policy, 3)
    assert (to_host(drawn.actions) != to_host(found.actions)).any()


def test_actions_that_a_policy_scales() -> None:
    cpu, device = make("Pendulum-v1")
    policy = mlp("Pendulum-v1", (5,), "shared")
    policy.scale_actions = True
    expected, found = (rlcpu.collect(env, policy, 2) for env in (cpu, device))
    assert_close(found.actions, expected.actions, "float32", 2)
    assert_close(found.log_probs, expected.log_probs, "float32", 2)
    policy.scale_actions = False
    cpu, _ = make("Pendulum-v1")
    plain = rlcpu.collect(cpu, policy, 1)
    np.testing.assert_allclose(expected.actions[0], 2.0 * plain.actions[0], rtol=1e-5)


def test_finished_episodes_start_anew() -> None:
    cpu, device = make("CartPole-v1", "float64", max_episode_steps=1)
    actions = actions_of(cpu, np.random.default_rng(5))
    device.step(actions)
    cpu.step(actions)
    expected, found = (rlcpu.collect(env, Uniform(), 2) for env in (cpu, device))
    assert_close(found.observations, expected.observations, "float64", 4)


def test_bad_out() -> None:
    _, device = make("CartPole-v1")
    rollout = rlcpu.collect(device, Uniform(), 2)
    with pytest.raises(ValueError, match="out has"):
        rlcpu.collect(device, Uniform(), 3, out=rollout)
    with pytest.raises(TypeError, match="out=int: expected a Rollout"):
        rlcpu.collect(device, Uniform(), 3, out=3)
    on_cpu = rlcpu.collect(rlcpu.make_vec("CartPole-v1", NUM_ENVS), Uniform(), 2)
    with pytest.raises(ValueError, match="out has"):
        rlcpu.collect(device, Uniform(), 2, out=on_cpu)


def test_out_of_another_action_shape_is_refused() -> None:
    narrow, broad = (rlcpu.make_vec(falling(k), 3, device="cuda") for k in (1, 2))
    rollout = rlcpu.collect(narrow, Uniform(), 2)
    with pytest.raises(ValueError, match=r"out has .* the spaces of Falling-v0"):
        rlcpu.collect(broad, Uniform(), 2, out=rollout)
    assert rlcpu.collect(broad, Uniform(), 2).actions.shape == (2, 3, 2)


def test_transitions() -> None:
    cpu, device = make("CartPole-v1", "float64")
    expected, found = (
        rlcpu.collect(env, Uniform(), NUM_STEPS).transitions() for env in (cpu, device)
    )
    for name, values in expected.items():
        assert device_of(found[name]) == "cuda"
        assert_close(found[name], values, "float64", NUM_STEPS)


# ---------------------------------------------------------------- the user's own


def test_users_dynamics() -> None:
    cpu, device = make(DRIFT)
    expected, found = (rlcpu.collect(env, Uniform(), NUM_STEPS) for env in (cpu, device))
    assert_close(found.observations, expected.observations, "float32", NUM_STEPS)
