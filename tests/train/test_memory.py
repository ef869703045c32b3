"""Agents with memory: they learn what needs one, go on from files, and refuse what does not fit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu import nn
from rlcpu.envs import find
from rlcpu.train import DDPG, DQN, PPO, PQN, QRDQN, SAC, TD3, TQC
from rlcpu.train.replaying import replayed
from tests.envs.masked import TIC_TAC_TOE
from tests.envs.recall import RECALL, RECALL_BOX

SMALL: dict[str, Any] = {
    "num_envs": 12,
    "num_steps": 7,
    "minibatch_size": 28,
    "num_epochs": 2,
    "hidden": (16, 20),
}
#: The same for agents that learn values of actions.
VALUES: dict[str, Any] = {"num_envs": 12, "exploration_steps": 400, "network": "mingru"}
ROLLOUTS: dict[str, Any] = {**VALUES, "num_steps": 8, "minibatch_size": 32, "hidden": (16, 20)}
#: Of agents that replay.
REPLAY: dict[str, Any] = {
    "num_envs": 12,
    "network": "mingru",
    "num_steps": 3,
    "num_updates": 3,
    "learning_starts": 100,
    "batch_size": 24,
    "capacity": 2000,
    "hidden": (20,),
    "sequence_length": 4,
    "burn_in": 2,
    "n_step": 2,
}
#: By name a class and its settings.
AGENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo separate": (PPO, {**SMALL, "network": "mingru"}),
    "ppo shared": (PPO, {**SMALL, "network": "mingru", "value": "shared"}),
    "ppo cut": (
        PPO,
        {**SMALL, "network": "mingru", "num_steps": 8, "minibatch_size": 24, "sequence_length": 4},
    ),
    "pqn": (PQN, ROLLOUTS),
    "pqn cut": (PQN, {**ROLLOUTS, "sequence_length": 2}),
    "dqn": (DQN, {**VALUES, **REPLAY}),
    "dqn prioritized": (DQN, {**VALUES, **REPLAY, "replay": "prioritized", "dueling": True}),
    "qrdqn": (QRDQN, {**VALUES, **REPLAY, "num_quantiles": 5, "dueling": True}),
    "sac": (SAC, REPLAY),
    "tqc": (TQC, {**REPLAY, "num_quantiles": 5}),
    "sac prioritized": (SAC, {**REPLAY, "replay": "prioritized", "network": "gru"}),
    "td3": (TD3, REPLAY),
    "ddpg": (DDPG, {**REPLAY, "num_steps": 1}),
}


def env_of(name: str) -> Any:
    return RECALL if AGENTS[name][0] in (PPO, PQN, DQN, QRDQN) else RECALL_BOX


def own_layers(space: Any) -> nn.Graph:
    return nn.Gru(17) >> nn.Dense(16) >> nn.Relu()


def arrays_of(agent: Any) -> dict[str, np.ndarray]:
    learner = agent.learner
    parts = {**agent.policy.state(), **learner.state(), **agent.env.engine.state()}
    if getattr(agent, "buffer", None) is not None and agent.buffer.can_sample():
        parts |= {
            f"drawn {name}": x for name, x in copy.deepcopy(agent.buffer).sample(64).data.items()
        }
    return {name: array.copy() for name, array in parts.items()}


def assert_same(agent: Any, other: Any) -> None:
    ours, theirs = arrays_of(agent), arrays_of(other)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(theirs[name], array, err_msg=name)


def test_learns_cartpole_without_velocities() -> None:
    """Without memory it reaches about 60."""
    agent = PPO("CartPoleNoVel-v1", seed=0)
    agent.learn(100_000)
    assert agent.evaluate(100, seed=1).mean() >= 475.0


@pytest.mark.parametrize("name", AGENTS)
def test_a_loaded_agent_goes_on_bit_for_bit(tmp_path: Path, name: str) -> None:
    (kind, settings), env = AGENTS[name], env_of(name)
    agent = kind(env, seed=0, **settings)
    agent.learn(300)
    agent.save(tmp_path / "agent")
    loaded = kind.load(tmp_path / "agent", env=rlcpu.VectorEnv(env, 12))
    assert_same(agent, loaded)
    assert agent.env.engine.carried.any()
    for each in (agent, loaded):
        each.learn(300)
    assert_same(agent, loaded)


def test_an_exception_leaves_the_last_whole_update() -> None:
    agent, other = (PPO(RECALL, seed=0, network=own_layers, **SMALL) for _ in range(2))

    def stop(progress: Any) -> None:
        if progress.steps > 200:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        agent.learn(1000, callback=stop)
    other.learn(agent.steps)
    agent.learn(100)
    other.learn(100)
    assert_same(agent, other)


@pytest.mark.parallel
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ppo separate", {"minibatch_size": 700, "num_envs": 200}),
        ("pqn cut", {"minibatch_size": 1000, "num_envs": 200}),
        ("dqn prioritized", {"batch_size": 1000}),
        ("sac prioritized", {"batch_size": 1000}),
    ],
)
def test_a_run_does_not_depend_on_threads(name: str, changes: dict[str, Any]) -> None:
    kind, settings = AGENTS[name]
    one, two = (
        kind(env_of(name), seed=0, num_threads=n, **{**settings, **changes}) for n in (1, 2)
    )
    for agent in (one, two):
        agent.learn(6000 if kind in (PPO, PQN) else 600)
    assert_same(one, two)


@pytest.mark.parametrize("name", ["pqn", "dqn"])
def test_values_of_actions_recall(name: str) -> None:
    """Each right answer is worth 1: the return of an episode is its length."""
    kind, settings = AGENTS[name]
    more = {"learning_rate": 3e-3, "exploration_steps": 4000, "exploration_final": 0.1}
    agent = kind(RECALL, seed=0, **{**settings, "gamma": 0.5, **more})
    agent.learn(8000)
    agent.policy.deterministic = True
    env = rlcpu.VectorEnv(RECALL, 12)
    env.reset(seed=1)
    played = rlcpu.simulate(env, agent.policy, 200)
    assert played.mean_return == pytest.approx(played.mean_length)


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_continuous_actions_recall(name: str) -> None:
    """Each right answer is worth 1; without memory, or a state one step off, 0.7 at most."""
    kind, settings = AGENTS[name]
    more = {"hidden": (16, 20), "num_steps": 3, "gamma": 0.5, "learning_rate": 3e-3}
    agent = kind(RECALL_BOX, seed=0, **{**settings, **more})
    agent.learn(12_000)
    agent.policy.deterministic = True
    env = rlcpu.VectorEnv(RECALL_BOX, 12)
    env.reset(seed=1)
    played = rlcpu.simulate(env, agent.policy, 200)
    assert played.mean_return > 0.85 * played.mean_length


def make_without_updates(name: str = "dqn") -> Any:
    kind, settings = AGENTS[name]
    changes = {"learning_starts": 10_000, "normalize_observations": False}
    return kind(env_of(name), seed=0, **settings | changes)


@pytest.mark.parametrize("name", ["dqn", "sac", "ddpg"])
def test_what_was_remembered_is_stored(name: str) -> None:
    """With each step what every network remembered, zeros where an episode begins."""
    agent = make_without_updates(name)
    agent.learn(360)
    batch = agent.buffer.sample(500)
    assert batch["begins"].mean() > 0.2
    seen, acts, first = agent.policy.scaling.apply(batch["observation"]), batch["action"], 0
    named = dict(zip(agent.learner.names, agent.learner.networks, strict=True))
    for target in agent.learner.targets:
        del named[target]
    for network in named.values():
        stored = batch["state"][..., first : first + network.state_size]
        first += network.state_size
        sees = seen if network is agent.policy.network else {"observation": seen, "action": acts}
        along = network.states_along(sees, stored[0], batch["begins"])
        np.testing.assert_allclose(stored, along[:-1], atol=1e-6)
        assert (stored.any(axis=2) != batch["begins"]).all()
    assert first == batch["state"].shape[2]


def test_episodes_that_the_user_left_are_cut_off() -> None:
    """No value goes from before a reset to after it."""
    agent = make_without_updates()
    agent.learn(180)
    agent.env.reset(seed=5)
    agent.learn(180)
    batch, count = agent.buffer.sample(500), 0
    targets = replayed.targets_of(
        batch["reward"], batch["terminated"], batch["begins"], agent.config
    )
    for b, index in enumerate(batch.indices):
        first = index % (agent.buffer.length // agent.buffer.period) * agent.buffer.period
        before = 14 - first  # the step in front of the reset
        if 0 <= before < 7:
            assert batch["begins"][before + 1, b]
        if 2 <= before < 6:
            assert targets.is_learnt[before, b] == batch["terminated"][before, b]
            count += not batch["terminated"][before, b]
    assert count > 20


def test_masks_hold_with_memory() -> None:
    """No forbidden action is taken, and each has the probability that it was learnt with."""
    agent = PPO(TIC_TAC_TOE, seed=0, network="mingru", **SMALL)
    agent.learn(2000)
    rollout = rlcpu.collect(agent.env, agent.policy, 9)
    masks = rollout.action_masks
    assert np.take_along_axis(masks, rollout.actions[..., None], -1).all()
    network, size = agent.policy.networks()["policy"], agent.policy.state_sizes["policy"]
    outputs, _ = network.outputs(rollout.inputs, rollout.states[:, :size], rollout.starts)
    outputs = np.where(masks, outputs, -np.inf)
    log_probs = outputs - np.log(np.exp(outputs).sum(axis=-1, keepdims=True))
    taken = np.take_along_axis(log_probs, rollout.actions[..., None], -1)[..., 0]
    np.testing.assert_allclose(rollout.log_probs, taken, atol=1e-5)


def test_the_first_update_repeats_what_was_said() -> None:
    """The first gradient step sees the policy that collected: nothing diverges, in any sequence."""
    settings = {**SMALL, "num_epochs": 1, "minibatch_size": 12 * 7}
    agent = PPO(RECALL, seed=0, network=own_layers, **settings)
    agent.learn(12 * 7)
    for _ in range(3):
        agent.learn(12 * 7)
        assert abs(agent.history.losses.kl) < 1e-6
        assert agent.history.losses.clip_fraction == 0.0


def test_predictions_take_and_return_what_is_remembered() -> None:
    agent = PPO(RECALL, seed=0, network=own_layers, **SMALL)
    rows = np.random.default_rng(0).random((5, 3, 1)).astype(np.float32)
    state = agent.initial_state(3)
    for row in rows:
        actions, state = agent.predict(row, state=state)
        assert actions.shape == (3,)
    one = agent.initial_state(1)[0]
    for row in rows:
        action, one = agent.predict(row[1], state=one)
    assert np.ndim(action) == 0
    np.testing.assert_array_equal(one, state[1])
    _, fresh = agent.predict(rows[0], state=state, starts=np.ones(3, bool))
    _, first = agent.predict(rows[0], state=agent.initial_state(3))
    np.testing.assert_array_equal(fresh, first)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'expected "mlp", .*"mingru", "gru", "ls'):
        PPO(RECALL, network="rnn")
    with pytest.raises(TypeError, match="network returned 3: expected layers"):
        PPO(RECALL, network=lambda space: 3)
    agent = PPO(RECALL, seed=0, network=own_layers, **SMALL)
    row = np.zeros((2, 1), np.float32)
    with pytest.raises(
        ValueError, match=r"has memory, expected an array \(2, 32\), such as policy"
    ):
        agent.predict(row)
    with pytest.raises(ValueError, match=r"state has shape \(3, 32\): expected \(2, 32\)"):
        agent.predict(row, state=agent.initial_state(3))
    plain = PPO(RECALL, seed=0, hidden=(8,), num_envs=12)
    with pytest.raises(ValueError, match="state, starts: PPO has no memory"):
        plain.predict(row, state=np.zeros((2, 4)))
    path, env = tmp_path / "agent", rlcpu.VectorEnv(RECALL, 12)
    agent.save(path)
    with pytest.raises(
        ValueError, match="its network was a function, which no file holds: give ne"
    ):
        PPO.load(path, env=env)
    with pytest.raises(ValueError, match=r"does not fit: policy_parameters is float32"):
        PPO.load(path, env=env, network=lambda space: nn.Gru(18) >> nn.Dense(16) >> nn.Relu())
    assert_same(PPO.load(path, env=env, network=own_layers), agent)
    with pytest.raises(AttributeError, match="config has network='gru': the agent is made with"):
        agent.config = agent.config.replace({"network": "gru"})


def test_sequences_that_do_not_fit_are_refused() -> None:
    class Remembering(SAC):
        def networks(self, seed: int) -> dict[str, Any]:
            return {**super().networks(seed), "critic2": nn.Network(4, nn.Gru(4) >> nn.Dense(1))}

    with pytest.raises(ValueError, match="networks: critic2 has memory and actor, by which the ag"):
        Remembering("Pendulum-v1")
    with pytest.raises(ValueError, match="sequence_length=3: expected a divisor of num_steps=7"):
        PPO(RECALL, network="gru", sequence_length=3, **SMALL)
    for kind in (PPO, PQN):
        with pytest.raises(ValueError, match="sequence_length=4: the network has no memory"):
            kind(RECALL, sequence_length=4, num_steps=8)
    with pytest.raises(ValueError, match=r'replay="return" has no sequences: expected "uniform"'):
        DQN(RECALL, **{**REPLAY, "replay": "return", "n_step": 1})
    with pytest.raises(ValueError, match=r"capacity=90: expected room for burn_in .* = 8 steps"):
        DQN(RECALL, **{**REPLAY, "capacity": 90})
    with pytest.raises(ValueError, match="num_collectors=1: sequences of networks with memory"):
        DQN(RECALL, **REPLAY).learn(10, num_collectors=1)
    with pytest.raises(TypeError, match="expected a TrajectoryBuffer or Prioritized"):
        DQN(RECALL, buffer=DQN(RECALL, num_envs=12).buffer, **REPLAY)
    short = DQN(RECALL, **{**REPLAY, "burn_in": 0, "sequence_length": 2}).buffer
    with pytest.raises(ValueError, match=r"buffer has sequence_length=4: expected burn_in .* = 8"):
        DQN(RECALL, buffer=short, **REPLAY)
    agent = DQN(RECALL, **REPLAY)
    with pytest.raises(AttributeError, match="config has burn_in=3: the agent is made with 2"):
        agent.config = agent.config.replace({"burn_in": 3})
    row = np.zeros((2, 1), np.float32)
    with pytest.raises(ValueError, match=r"has memory, expected an array \(2, 32\)"):
        agent.predict(row)
    with pytest.raises(ValueError, match=r"state has shape \(3, 32\): expected \(2, 32\)"):
        agent.predict(row, state=agent.initial_state(3))
    actions, state = agent.predict(row, state=agent.initial_state(2))
    assert actions.shape == (2,)
    assert state.shape == (2, 32)


def test_settings_of_a_buffer_of_sequences_become_those_of_the_agent(tmp_path: Path) -> None:
    own = DQN(RECALL, **{**REPLAY, "replay": "prioritized"}).buffer
    agent = DQN(RECALL, buffer=own, **REPLAY)  # whose capacity is rounded to whole sequences
    assert (agent.buffer, agent.config.replay, agent.config.capacity) == (own, "prioritized", 2000)
    with pytest.raises(ValueError, match="replay='uniform': buffer has 'prioritized', which count"):
        DQN(RECALL, buffer=own, **REPLAY, replay="uniform")
    with pytest.raises(ValueError, match="capacity=3000: buffer has 1992, which counts"):
        DQN(RECALL, buffer=own, **{**REPLAY, "capacity": 3000})
    others = {name: x for name, x in REPLAY.items() if name not in ("capacity", "num_envs")}
    agent = DQN(RECALL, buffer=own, **others)
    assert (agent.config.capacity, agent.config.num_envs) == (1992, 12)
    agent.save(tmp_path / "agent")
    loaded = DQN.load(tmp_path / "agent", env=rlcpu.VectorEnv(RECALL, 12))
    assert loaded.config == agent.config


@pytest.mark.parametrize("network", ["mingru", "gru"])
def test_finds_the_way_in_a_t_maze(network: str) -> None:
    """The best return is 4; without memory it is 2, by turning to one side."""
    maze = find("TMaze-v0").with_params(length=5)
    agent = PPO(maze, seed=0, network=network, num_steps=32, learning_rate=2e-3)
    agent.learn(150_000)
    assert agent.evaluate(100, seed=1).mean() == pytest.approx(4.0)
