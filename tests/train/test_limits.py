"""The limit of observations: a number of the policy, which everything that runs it keeps to."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import GymnasiumEnv
from rlcpu.policies import MLP
from rlcpu.train import DQN, PPO, PQN, SAC
from tests.envs import rollouts
from tests.train.test_checkpoint import change, describe
from tests.train.test_export import compile_c, run_node, shown

Array = np.ndarray
#: Two observations that are the same within +-10: no bounds scale the second number.
SEEN = np.float32([[0.1, 12.0, 0.2, 0.3], [0.1, 14.0, 0.2, 0.3]])
LIMITS = pytest.mark.parametrize("limit", [np.inf, 10.0])


def by_collect(policy: MLP) -> Array:
    """Values of a rollout that begins in the states, which are what CartPole-v1 shows."""
    env, _ = rollouts.make("CartPole-v1 tanh")
    state = env.state
    state[: len(SEEN)] = SEEN
    env.state = state
    return rlcpu.collect(env, policy, 1).values[0, : len(SEEN)]


class Still(gymnasium.Env[Any, Any]):
    """Shows the same for ever."""

    observation_space, action_space = Box(-np.inf, np.inf, (4,)), Discrete(2)

    def __init__(self, number: int) -> None:
        self.number = number

    def reset(self, **_: Any) -> Any:
        return SEEN[self.number], {}

    def step(self, action: Any) -> Any:
        return SEEN[self.number], 0.0, False, False, {}


def by_gymnasium(policy: MLP) -> Array:
    """Values of a rollout in environments that are not ours."""
    makers = [lambda number=number: Still(number) for number in range(len(SEEN))]
    env = GymnasiumEnv(gymnasium.vector.SyncVectorEnv(makers))
    env.reset(seed=0)
    return rlcpu.collect(env, policy, 1).values[0]


def by_torch(policy: MLP) -> Array:
    torch = pytest.importorskip("torch")
    from rlcpu.adapters.torch import to_torch

    with torch.no_grad():
        values: Array = to_torch(policy)(torch.from_numpy(SEEN))[1].numpy()
    return values


ROUTES: dict[str, Callable[[MLP], Array]] = {
    "collect": by_collect,
    "gymnasium": by_gymnasium,
    "torch": by_torch,
}


@LIMITS
@pytest.mark.parametrize("route", ROUTES)
def test_what_runs_a_policy_keeps_to_its_limit(route: str, limit: float) -> None:
    _, policy = rollouts.make("CartPole-v1 tanh")
    policy.observation_mean[:], policy.observation_scale[:] = 0.0, 1.0
    policy.parameters *= 0.2
    policy.value_parameters *= 0.2
    policy.observation_limit = limit
    outputs, values = policy.outputs(SEEN), policy.evaluate(SEEN)
    are_one = limit == 10.0
    assert (outputs[0] == outputs[1]).all() == (values[0] == values[1]) == are_one
    np.testing.assert_allclose(ROUTES[route](policy), values, rtol=1e-5)


def agent_with(limit: float) -> PPO:
    agent = PPO("CartPole-v1", num_envs=2, hidden=(20, 7), clip_observations=limit)
    agent.policy.parameters *= 0.2
    return agent


@LIMITS
def test_exported_files_keep_to_it(limit: float, tmp_path: Path) -> None:
    agent = agent_with(limit)
    expected = agent.policy.outputs(SEEN)
    assert (expected[0] == expected[1]).all() == (limit == 10.0)
    for ending in (".npz", ".json"):
        agent.export(tmp_path / f"policy{ending}")
    outputs = shown("reader")["Policy"](tmp_path / "policy.npz").outputs(SEEN)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)
    program = json.loads((tmp_path / "policy.json").read_text("utf-8"))
    script = (Path(__file__).parents[2] / "docs" / "howto" / "policy.js").read_text("utf-8")
    script += "\nconsole.log(JSON.stringify(given.seen.map((x) => outputs(given.program, x))));"
    outputs = run_node(script, {"program": program, "seen": SEEN.tolist()})
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)


@LIMITS
def test_onnx_keeps_to_it(limit: float, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    agent = agent_with(limit)
    agent.export(tmp_path / "policy.onnx")
    path, providers = str(tmp_path / "policy.onnx"), ["CPUExecutionProvider"]
    session = runtime.InferenceSession(path, providers=providers)
    (outputs,) = session.run(["outputs"], {"observation": SEEN})
    np.testing.assert_allclose(outputs, agent.policy.outputs(SEEN), rtol=1e-5)
    (outputs,) = session.run(["outputs"], {"observation": SEEN * np.float32([1, 1, np.nan, 1])})
    assert np.isnan(outputs).all()


@LIMITS
def test_c_keeps_to_it(limit: float, tmp_path: Path) -> None:
    agent = agent_with(limit)
    agent.export(tmp_path / "policy.c")
    compile_c(tmp_path / "policy.c", tmp_path / "policy.so", "-shared", "-fPIC")
    library = ctypes.CDLL(str(tmp_path / "policy.so"))
    unseen = np.float32([np.nan, 0.1, 0.2, 0.3])
    outputs = np.zeros((3, 2), np.float32)
    for row, made in zip([*SEEN, unseen], outputs, strict=True):
        library.policy_outputs(ctypes.c_void_p(row.ctypes.data), ctypes.c_void_p(made.ctypes.data))
    np.testing.assert_allclose(outputs[:2], agent.policy.outputs(SEEN), rtol=1e-5)
    assert np.isnan(outputs[2]).all()


@pytest.mark.parametrize("limit", [0.0, -1.0, np.nan, [1.0], "10", None])
def test_what_is_no_limit_is_refused(limit: Any) -> None:
    policies = MLP(Box(-1.0, 1.0, (3,)), Discrete(2)), DQN("CartPole-v1", num_envs=1).policy
    for policy in policies:
        with pytest.raises((TypeError, ValueError), match=r"policy\.observation_limit"):
            policy.observation_limit = limit
        assert policy.observation_limit == np.inf
    with pytest.raises((TypeError, ValueError), match="clip_observations"):
        PPO("CartPole-v1", clip_observations=[limit] if limit is None else limit)


# ---------------------------------------------------------------- settings


def test_settings_decide_the_limit() -> None:
    def limit_of(agent: Any) -> float:
        return float(agent.policy.observation_limit)

    for kind in (PPO, DQN, PQN):
        assert limit_of(kind("CartPole-v1", num_envs=2)) == np.inf
        assert limit_of(kind("CartPole-v1", num_envs=2, normalize_observations=True)) == 10.0
        settings: Any = {"normalize_observations": True, "clip_observations": 5.0}
        assert limit_of(kind("CartPole-v1", num_envs=2, **settings)) == 5.0
    agent = SAC("Pendulum-v1", num_envs=2, hidden=(16,), clip_observations=3.0)
    assert limit_of(agent) == 3.0
    agent.config = agent.config.replace({"clip_observations": float("inf")})
    assert limit_of(agent) == np.inf
    agent.config = agent.config.replace({"clip_observations": None})
    assert limit_of(agent) == np.inf
    agent.config = agent.config.replace({"normalize_observations": True})
    assert limit_of(agent) == 10.0


def test_a_policy_that_is_given_keeps_its_limit() -> None:
    agent = PPO("CartPole-v1", num_envs=2)
    policy = MLP(agent.env.single_observation_space, agent.env.single_action_space, (8,))
    policy.observation_limit = 7.0
    assert PPO("CartPole-v1", num_envs=2, policy=policy).policy.observation_limit == 7.0
    agent = PPO("CartPole-v1", num_envs=2, policy=policy, clip_observations=4.0)
    assert policy.observation_limit == 4.0
    assert agent.policy is policy


# ---------------------------------------------------------------- files


def as_older(path: Path) -> None:
    """Turn a file into one of the time when all policies clipped to +-10."""
    description = describe(path)
    del description["config"]["clip_observations"]
    changes = {"state policy_observation_limit": None, "description": json.dumps(description)}
    change(path, **changes)


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_files_have_the_limit_and_older_ones_10(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    agent = kind("CartPole-v1", num_envs=2, hidden=(20, 7), clip_observations=13.0)
    agent.save(path)
    loaded = kind.load(path)
    assert (loaded.policy.observation_limit, loaded.config) == (13.0, agent.config)
    for normalised in (False, True):
        agent = kind("CartPole-v1", num_envs=2, hidden=(20, 7), normalize_observations=normalised)
        agent.save(path)
        as_older(path)
        for _ in range(2):  # what was loaded once is saved, and loaded again
            loaded = kind.load(path)
            assert loaded.policy.observation_limit == 10.0
            outputs = loaded.policy.outputs(SEEN)
            np.testing.assert_array_equal(*outputs)
            loaded.save(path)


def test_older_states_of_modules_have_10() -> None:
    pytest.importorskip("torch")
    from rlcpu.adapters.torch import to_torch

    policy = MLP(Box(-np.inf, np.inf, (4,)), Discrete(2))
    module = to_torch(policy)
    state = module.state_dict()
    module.load_state_dict(state)
    assert policy.observation_limit == np.inf
    del state["observation_limit"]
    module.load_state_dict(state)
    assert policy.observation_limit == 10.0


# ---------------------------------------------------------------- learning


def look(state: Any, params: Any) -> Any:
    return (13.0 + state[0],)


def choose(state: Any, action: Any, params: Any, rng: Any) -> Any:
    is_right = (action == 1) == (state[0] > 0.0)
    return reset(rng, params), (1.0 if is_right else 0.0), False


def reset(rng: Any, params: Any) -> Any:
    return (1.0 if rng.uniform(0) < 0.5 else -1.0,)


FAR = rlcpu.Dynamics(
    id="Far-v0",
    step=choose,
    reset=reset,
    observe=look,
    observation_space=Box(12.0, 14.0, (1,)),
    action_space=Discrete(2),
    max_episode_steps=20,
)
QUICK: dict[str, Any] = {
    "num_envs": 16, "num_steps": 8, "num_updates": 32, "batch_size": 64, "learning_rate": 3e-3,
    "hidden": (16, 16), "gamma": 0.0, "exploration_steps": 2000, "learning_starts": 500,
}  # fmt: skip


def test_what_lies_beyond_10_is_learnt_from() -> None:
    plain = {**QUICK, "scale_observations": False, "normalize_observations": False}
    agent = DQN(FAR, seed=0, **plain)
    agent.learn(4000)
    assert agent.evaluate(20).min() == 20.0
    clipped = DQN(FAR, seed=0, clip_observations=10.0, **plain)
    with pytest.warns(UserWarning, match=r"100% of observation\[0\] is clipped to \+-10"):
        clipped.learn(1000)
    assert clipped.evaluate(20).mean() < 15.0  # at random it is 10
