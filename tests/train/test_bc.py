"""Behaviour cloning, and buffers of recorded episodes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

import rlcpu
from rlcpu.envs import find, spaces_of
from rlcpu.train import BC, SAC, buffer_of_episodes
from tests.train.states import state_of

torch = pytest.importorskip("torch")


def balance(observations: Any) -> Any:
    """The actions of a rule that balances a pole for long."""
    return (observations[:, 2] + observations[:, 3] > 0).astype(np.int64)


def swing(observations: Any) -> Any:
    """A torque (n, 1) that depends on all numbers of Pendulum's observation."""
    return 2.0 * np.tanh(observations @ np.array([[0.5], [-1.0], [0.25]], np.float32))


def recorded(env: str, rule: Any, num_episodes: int = 4) -> list[dict[str, Any]]:
    """Episodes of a rule, as Gymnasium's loop records them."""
    episodes = []
    played = rlcpu.make_vec(env, 1, autoreset_mode="Disabled")
    for number in range(num_episodes):
        observations = [played.reset(seed=number)[0][0]]
        rows: dict[str, list[Any]] = {"actions": [], "rewards": [], "ends": []}
        while not rows["ends"] or not any(rows["ends"][-1]):
            action = rule(observations[-1][None])
            observation, reward, terminated, truncated, _ = played.step(action)
            observations.append(observation[0])
            rows["actions"].append(action[0])
            rows["rewards"].append(reward[0])
            rows["ends"].append((terminated[0], truncated[0]))
        terminations, truncations = np.array(rows["ends"]).T
        episodes.append(
            {
                "observations": np.array(observations),
                "actions": np.array(rows["actions"]),
                "rewards": np.array(rows["rewards"]),
                "terminations": terminations,
                "truncations": truncations,
            }
        )
    return episodes


CASES = [("CartPole-v1", balance), ("Pendulum-v1", swing)]


@pytest.mark.parametrize(("env", "rule"), CASES)
def test_a_buffer_has_the_transitions_of_episodes(env: str, rule: Any) -> None:
    episodes = recorded(env, rule, 2)
    for form in (lambda x: x, lambda x: SimpleNamespace(**x)):
        buffer = buffer_of_episodes(env, [form(each) for each in episodes])
        assert len(buffer) == sum(len(each["rewards"]) for each in episodes)
        batch = buffer.sample(500)
        rows = [(k, t) for k, each in enumerate(episodes) for t in range(len(each["rewards"]))]
        for place, index in enumerate(batch.indices.tolist()):
            k, t = rows[index]
            expected = {
                "observation": episodes[k]["observations"][t],
                "next_observation": episodes[k]["observations"][t + 1],
                "action": episodes[k]["actions"][t],
                "reward": episodes[k]["rewards"][t],
                "terminated": episodes[k]["terminations"][t],
                "truncated": episodes[k]["truncations"][t],
            }
            for name, value in expected.items():
                np.testing.assert_array_equal(batch[name][place], value, err_msg=name)


def test_returns_of_several_steps_end_with_their_episode() -> None:
    """Also where nothing says that it ends, and the last observation is not known."""
    episodes = [
        {"observations": np.full((3, 4), k), "actions": np.zeros(3, int), "rewards": np.ones(3)}
        for k in range(2)
    ]
    buffer = buffer_of_episodes("CartPole-v1", episodes, n_step=2, gamma=0.5)
    batch = buffer.sample(200)
    assert set(np.unique(batch["reward"])) == {1.0, 1.5}
    np.testing.assert_array_equal(batch["observation"], batch["next_observation"])


def test_bad_episodes_are_named() -> None:
    good = recorded("CartPole-v1", balance, 1)[0]
    for change, text in (
        ({"actions": good["actions"][:-2]}, r"episodes\[1\] has \d+ observations and \d+ actions"),
        ({"rewards": good["rewards"][:-1]}, r"episodes\[1\] has rewards of shape"),
        ({"rewards": good["rewards"] * np.nan}, r"episodes\[1\] has rewards that are not finite"),
        ({"observations": good["observations"] * np.inf}, "has observations that are not finite"),
    ):
        with pytest.raises(ValueError, match=text):
            buffer_of_episodes("CartPole-v1", [good, {**good, **change}])
    with pytest.raises(ValueError, match="episodes: expected one at least"):
        buffer_of_episodes("CartPole-v1", [])
    with pytest.raises(ValueError, match="Taxi-v4 has action masks, which episodes lack"):
        buffer_of_episodes("Taxi-v4", [good])
    with pytest.raises(TypeError, match="MinAtar/Breakout-v1 has observations of planes"):
        buffer_of_episodes("MinAtar/Breakout-v1", [good])


def test_spaces_of_several_parts() -> None:
    """Trees, choices from another number on, and images of whole numbers."""
    spaces = Dict({"place": Discrete(3, start=1), "speed": Box(-1, 1, (2,))}), Discrete(2, start=5)
    rng = np.random.default_rng(0)
    place, actions = rng.integers(1, 4, 50), rng.integers(5, 7, 50)
    speed = rng.normal(size=(50, 2)).astype(np.float32)
    shown = {"observations": {"place": place, "speed": speed}, "actions": actions}
    buffer = buffer_of_episodes(spaces_of(*spaces), [shown])
    batch = buffer.sample(20)
    np.testing.assert_array_equal(batch["action"], actions[batch.indices] - 5)
    np.testing.assert_array_equal(batch["observation"]["speed"], speed[batch.indices])
    agent = BC(spaces_of(*spaces), buffer=buffer, batch_size=32)
    agent.learn_offline(10)
    assert set(agent.predict({"place": place, "speed": speed}).tolist()) <= {5, 6}


@pytest.mark.parametrize(("env", "rule"), CASES)
def test_it_acts_as_it_was_shown_also_from_a_file(env: str, rule: Any, tmp_path: Path) -> None:
    episodes = recorded(env, rule)
    dynamics = find(env)
    spaces = spaces_of(dynamics.observation_space, dynamics.action_space)
    agent = BC(spaces, buffer=buffer_of_episodes(spaces, episodes), seed=1)
    first = agent.learn_offline(8).loss
    assert agent.learn_offline(3_000).loss < 0.3 * first
    other = np.concatenate([x["observations"] for x in recorded(env, rule, 6)[4:]])
    actions, expected = agent.predict(other), rule(other)
    if env == "CartPole-v1":
        assert (actions == expected).mean() > 0.97
    else:
        assert np.abs(actions - expected).max() < 0.3
    np.testing.assert_array_equal(agent.predict(other, deterministic=False), actions)
    assert agent.evaluate(20, env=rlcpu.make_vec(env)).shape == (20,)
    agent.save(tmp_path / "agent.npz")
    agent.export(tmp_path / "policy.npz")
    loaded = BC.load(tmp_path / "agent.npz", env=spaces)
    assert loaded.learn_offline(10) == agent.learn_offline(10)
    for name, array in state_of(agent).items():
        np.testing.assert_array_equal(state_of(loaded)[name], array, err_msg=name)


@pytest.mark.parametrize(("env", "rule"), CASES)
def test_the_update_equals_pytorchs(env: str, rule: Any) -> None:
    """Of one batch, in which all transitions are, with an action space of other bounds."""
    episodes = recorded(env, rule, 1)
    agent = BC(env, buffer=buffer_of_episodes(env, episodes), num_updates=1, hidden=(8,))
    layers = [torch.nn.Linear(*sizes) for sizes in ((agent.env.dynamics.observation_size, 8),)]
    layers.append(torch.nn.Linear(8, 2 if env == "CartPole-v1" else 1))
    views, at = agent.policy.parameters.copy(), 0
    for layer in layers:
        for target, shape in (
            (layer.weight, layer.weight.shape[::-1]),
            (layer.bias, layer.bias.shape),
        ):
            count = int(np.prod(shape))
            values = views[at : at + count].reshape(shape)
            target.data = torch.tensor(values.T.copy() if values.ndim == 2 else values)
            at += count
    assert at == len(views)
    losses = agent.learn_offline(1)
    batch = agent._last_batch
    inputs = torch.tensor(agent.policy.scaling.apply(batch["observation"]))
    outputs = layers[1](torch.relu(layers[0](inputs)))
    if env == "CartPole-v1":
        loss = torch.nn.functional.cross_entropy(outputs, torch.tensor(batch["action"]))
    else:
        loss = ((torch.tanh(outputs) - torch.tensor(batch["action"]) / 2.0) ** 2).sum(1).mean()
    loss.backward()
    norm = sum(float((x.grad**2).sum()) for layer in layers for x in layer.parameters()) ** 0.5
    np.testing.assert_allclose(losses.loss, loss.item(), rtol=1e-5)
    np.testing.assert_allclose(losses.gradient_norm, norm, rtol=1e-4)


def test_what_it_cannot_do_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="total_steps=100: BC takes no steps in environments"):
        BC("CartPole-v1").learn(100)
    with pytest.raises(TypeError, match="expected a Box; PPO takes a MultiDiscrete"):
        BC(spaces_of(Box(-1, 1, (2,)), MultiDiscrete([2, 3])))
    teacher = SAC("Pendulum-v1", num_envs=4, learning_starts=10)
    teacher.learn(200)
    agent = BC("Pendulum-v1", buffer=teacher.buffer)
    assert np.isfinite(agent.learn_offline(10).loss)


def test_a_data_set_of_minari_is_a_buffer(tmp_path: Path, monkeypatch: Any) -> None:
    """One that its package has written and read."""
    minari = pytest.importorskip("minari")
    buffers = pytest.importorskip("minari.data_collector")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    episodes = recorded("CartPole-v1", balance, 3)
    parts = [
        buffers.EpisodeBuffer(id=number, **{name: list(rows) for name, rows in each.items()})
        for number, each in enumerate(episodes)
    ]
    env = gymnasium.make("CartPole-v1")
    minari.create_dataset_from_buffers(
        "cartpole/rule-v0", buffer=parts, env=env, eval_env=env, author="a", author_email="b",
        algorithm_name="c", code_permalink="d", description="e",
    )  # fmt: skip
    data = minari.load_dataset("cartpole/rule-v0")
    spaces = spaces_of(data.observation_space, data.action_space)
    buffer = buffer_of_episodes(spaces, data.iterate_episodes())
    ours = buffer_of_episodes("CartPole-v1", episodes)
    for name in ("observation", "next_observation", "action", "reward", "terminated"):
        np.testing.assert_array_equal(buffer.peek(100)[name], ours.peek(100)[name], err_msg=name)
    agent = BC(spaces, buffer=buffer)
    agent.learn_offline(2_000)
    assert agent.evaluate(20, env=rlcpu.make_vec("CartPole-v1")).mean() > 200.0
