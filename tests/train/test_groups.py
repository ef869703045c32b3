"""Agents whose observations have several parts: images beside numbers, in one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcpu
from rlcpu import nn
from rlcpu.envs import GymnasiumEnv
from rlcpu.train import DDPG, DQN, PPO, PQN, SAC, TD3
from tests.envs.grouped import camera, cart, step_camera


class Lookout(gymnasium.Env[Any, Any]):
    """Say on which side of a picture a bright pixel is; in the second gear the sides change."""

    observation_space = Dict(
        {
            "camera": Box(0, 255, (6, 6, 1), np.uint8),
            "gear": Discrete(2, start=1),
            "place": Box(-1.0, 1.0, (2, 1), np.float64),
            "counts": Box(0, 8, (2,), np.int64),
        }
    )
    metadata: ClassVar[Any] = {"render_modes": []}

    def __init__(self, discrete: bool = True) -> None:
        self.discrete = discrete
        self.action_space: Any = Discrete(2) if discrete else Box(-1.0, 1.0, (1,), np.float32)

    def look(self) -> Any:
        row, self.column = self.np_random.integers(0, 6, 2).tolist()
        self.gear = int(self.np_random.integers(1, 3))
        picture = np.zeros((6, 6, 1), np.uint8)
        picture[row, self.column, 0] = 255
        return {
            "camera": picture,
            "gear": np.int64(self.gear),
            "place": np.array([[0.25], [-0.5]]),
            "counts": np.array([self.age, 8 - self.age]),
        }

    def look_dtype(self, name: str) -> Any:
        return np.int64 if name == "gear" else self.observation_space[name].dtype

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        side = bool(action) if self.discrete else float(action[0]) > 0.0
        is_right = side == ((self.column >= 3) != (self.gear == 2))
        self.age += 1
        return self.look(), float(is_right), False, self.age >= 8, {}


def lookouts(count: int, discrete: bool = True, mode: str = "NextStep") -> Any:
    return SyncVectorEnv([lambda: Lookout(discrete)] * count, autoreset_mode=AutoresetMode(mode))


#: Settings of short tests, which learn a choice from one step.
ON_POLICY: dict[str, Any] = {"learning_rate": 3e-3, "num_steps": 64, "gamma": 0.5}
REPLAY: dict[str, Any] = {
    "learning_rate": 3e-3,
    "learning_starts": 200,
    "num_updates": 8,
    "batch_size": 64,
    "capacity": 4000,
    "hidden": (64, 64),
    "gamma": 0.5,
}


def own_layers(space: Any) -> nn.Graph:
    """Layers for each part: a convolution, an embedding, and numbers as they are."""
    picture = nn.Input("camera") >> nn.Image(6, 6, 1) >> nn.Convolution(8, 3) >> nn.Relu()
    gear = nn.Input("gear") >> nn.Dense(4)
    numbers = nn.Concatenate(nn.Input("place"), nn.Input("counts"))
    return nn.Concatenate(picture, gear, numbers) >> nn.Dense(64) >> nn.Relu()


def test_ppo_learns_in_one_line(tmp_path: Path) -> None:
    agent = PPO(lookouts(8), seed=0, num_steps=64, gamma=0.5)
    assert agent.config.network == "conv"
    shapes = {k: x.shape for k, x in agent.policy.networks()["policy"].arrays().items()}
    assert shapes["convolution0.weights"] == (9, 16)
    assert shapes["dense0.weights"] == (16 * 16 + 2 + 2 + 2, 64)
    np.testing.assert_array_equal(agent.policy.observation_scale[:36], np.float32(1 / 255))
    agent.learn(10_000)
    assert agent.evaluate(50).mean() > 7.2  # at random 4
    agent.save(tmp_path / "agent")
    loaded = PPO.load(tmp_path / "agent", env=GymnasiumEnv(lookouts(8)))
    batch, _ = lookouts(5).reset(seed=3)
    actions = agent.predict(batch)
    assert actions.shape == (5,)
    np.testing.assert_array_equal(loaded.predict(batch), actions)
    one = {name: part[2] for name, part in batch.items()}
    assert agent.predict(one) == actions[2]


@pytest.mark.parametrize(
    ("kind", "discrete", "network"),
    [
        (DQN, True, None),
        (PQN, True, own_layers),
        (SAC, False, own_layers),
        (TD3, False, None),
        (DDPG, False, own_layers),
        (PPO, True, own_layers),
    ],
)
def test_all_agents_learn_from_parts(
    kind: Any, discrete: bool, network: Any, tmp_path: Path
) -> None:
    settings = dict(REPLAY)
    if kind in (PPO, PQN):
        settings = dict(ON_POLICY)
    if kind in (DQN, PQN):
        settings |= {"exploration_steps": 1500}
    agent = kind(lookouts(8, discrete), seed=0, network=network, **settings)
    if kind in (SAC, TD3, DDPG):  # a critic sees the action behind the convolutions
        critic = agent.learner.networks[1]
        assert critic.input_sizes == {"observation": 36 + 2 + 2 + 2, "action": 1}
        seen = 64 if network else 16 * 16 + 2 + 2 + 2
        weights = [x.shape for name, x in critic.arrays().items() if name.startswith("dense")]
        assert (seen + 1, 64) in weights
    agent.learn({PQN: 20_000, TD3: 1_000, DDPG: 1_000}.get(kind, 6_000))
    if kind not in (TD3, DDPG):  # whose action does not come back from where tanh is flat
        assert agent.evaluate(50).mean() > 6.5
    if getattr(agent, "buffer", None) is not None:
        kept = {field.name: field.dtype.name for field in agent.buffer.structure.fields}
        assert kept["observation.camera"] == "uint8"
        assert kept["next_observation.counts"] == "int64"
    batch, _ = lookouts(5).reset(seed=3)
    agent.save(tmp_path / "agent")
    given = {"network": network} if network else {}
    loaded = kind.load(tmp_path / "agent", env=GymnasiumEnv(lookouts(8, discrete)), **given)
    np.testing.assert_array_equal(loaded.predict(batch), agent.predict(batch))


@pytest.mark.parametrize(("kind", "discrete"), [(DQN, True), (SAC, False)])
def test_memory_learns_from_replayed_parts(kind: Any, discrete: bool, tmp_path: Path) -> None:
    settings = {**REPLAY, "network": "gru", "num_updates": 2, "sequence_length": 6, "burn_in": 2}
    agent = kind(lookouts(8, discrete), seed=0, **settings)
    agent.learn(400)
    assert agent.num_updates > 0
    kept = {field.name: field.dtype.name for field in agent.buffer.structure.fields}
    assert kept["observation.camera"] == "uint8"
    agent.save(tmp_path / "agent")
    loaded = kind.load(tmp_path / "agent", env=GymnasiumEnv(lookouts(8, discrete)))
    batch, _ = lookouts(5).reset(seed=3)
    for ours, theirs in zip(
        agent.predict(batch, state=agent.initial_state(5)),
        loaded.predict(batch, state=agent.initial_state(5)),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_modes_of_gymnasium_give_the_same_rollouts(mode: str) -> None:
    first, other = (GymnasiumEnv(lookouts(3, mode=each)) for each in ("NextStep", mode))
    rollouts = []
    for env in (first, other):
        env.reset(seed=5)
        rollouts.append(rlcpu.collect(env, rlcpu.policies.Uniform(), 7))
    for name, part in rollouts[0].observations.items():
        assert part.dtype == (np.float32 if name == "place" else Lookout().look_dtype(name))
        np.testing.assert_array_equal(part, rollouts[1].observations[name])
    assert rollouts[0].records.observations.nbytes == 7 * 3 * (36 + 4 + 8 + 16)


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_our_environments_with_parts(network: str) -> None:
    agent = PPO(cart, seed=0, network=network, num_envs=16, num_steps=32, num_threads=1)
    agent.learn(2_000)
    rollout = rlcpu.collect(agent.env, agent.policy, 8)
    inputs = rollout.inputs.reshape(8 * 16, -1)
    np.testing.assert_array_equal(inputs.sum(axis=1) >= 3.0, True)  # three choices are ones
    if network == "mlp":
        values = agent.policy.evaluate(inputs).reshape(8, 16)
        np.testing.assert_allclose(rollout.values, values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_acting_in_kernels_is_what_predict_sees(kind: Any) -> None:
    """Kernels read the parts of a row as `predict` reads those of a dict."""
    agent = kind(camera, seed=0, network="conv", num_envs=16, hidden=(32,), num_threads=1)
    agent.policy.deterministic = True
    rollout = rlcpu.collect(agent.env, agent.policy, 6)
    flat = {k: x.reshape(96, *x.shape[2:]) for k, x in rollout.observations.items()}
    np.testing.assert_array_equal(rollout.actions.ravel(), agent.predict(flat))
    np.testing.assert_array_equal(rollout.inputs.reshape(96, -1)[:, :4], np.eye(4)[flat["age"] - 1])
    agent.learn(1_500)


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_actions_of_numbers_are_learnt_where_parts_are_written(kind: Any) -> None:
    """The layers of each part, in kernels that act and in the critics' updates."""
    pushed = dataclasses.replace(
        camera, id="Pushed-v0", step=push_camera, action_space=Box(-1.0, 1.0, (2,))
    )
    settings = {**REPLAY, "num_updates": 2, "network": look_layers}
    agent = kind(pushed, seed=0, num_envs=16, num_threads=1, **settings)
    critic = agent.learner.networks[1]
    assert critic.input_sizes == {"observation": 4 + 6 + 3 + 11 + 60, "action": 2}
    agent.policy.deterministic = True
    rollout = rlcpu.collect(agent.env, agent.policy, 6)
    flat = {k: x.reshape(96, *x.shape[2:]) for k, x in rollout.observations.items()}
    np.testing.assert_allclose(
        rollout.actions.reshape(96, 2), agent.predict(flat), rtol=1e-5, atol=1e-6
    )
    agent.learn(800)
    assert agent.num_updates > 0
    assert not np.array_equal(agent.predict(flat), rollout.actions.reshape(96, 2))


def push_camera(state: Any, action: Any, params: Any, rng: Any) -> Any:
    _, is_over = step_camera(state, 1 if action[0] > 0.0 else 0, params, rng)
    return action[0] - action[1] * action[1], is_over


def look_layers(space: Any) -> nn.Graph:
    """Layers for each part of `camera`, whose picture has its channels first."""
    picture = nn.Input("picture") >> nn.Dense(8) >> nn.Relu()
    others = [nn.Input(name) for name in ("age", "depth", "flags", "near")]
    return nn.Concatenate(picture, *others) >> nn.Dense(16) >> nn.Relu()


# ---------------------------------------------------------------- bad input


def test_bad_observations_are_one_sentence() -> None:
    agent = PPO(lookouts(2), seed=0, **ON_POLICY)
    good, _ = lookouts(3).reset(seed=0)
    cases = [
        ({k: x for k, x in good.items() if k != "gear"},
         "observations have the parts camera, counts, place: expected the parts camera, counts, "
         "gear, place"),
        ({**good, "camera": good["camera"][:, :5]},
         r"observations\['camera'\] has shape \(3, 5, 6, 1\): expected \(n, 6, 6, 1\)"),
        ({**good, "gear": np.array([1, 2, 3])}, r"observations\['gear'\]=.*: expected ints 1 to 2"),
        ({**good, "gear": good["gear"][:2]}, "parts of camera 3, counts 3, gear 2, place 3 env"),
    ]  # fmt: skip
    for observations, text in cases:
        with pytest.raises(ValueError, match=text):
            agent.predict(observations)
    words = {**good, "place": np.full_like(good["place"], 1, np.str_)}
    with pytest.raises(TypeError, match=r"observations\['place'\] has dtype <U.*: expected real"):
        agent.predict(words)


class Broken(Lookout):
    """Shows something else in the third step."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def look(self) -> Any:
        seen = super().look()
        return self.change(seen) if self.age == 2 else seen


BROKEN = [
    (lambda seen: {k: x for k, x in seen.items() if k != "place"}, "place"),
    (lambda seen: {**seen, "camera": seen["camera"][:5]}, "wrong shape"),
    (lambda seen: {**seen, "gear": np.int64(3)}, r"observation\['gear'\]=3 .*expected 1 to 2"),
    (
        lambda seen: {**seen, "place": np.full((2, 1), np.nan)},
        r"observation\['place'\]\[0, 0\]=nan",
    ),
]


@pytest.mark.parametrize(("change", "text"), BROKEN)
def test_environments_that_show_something_else(change: Any, text: str) -> None:
    env = GymnasiumEnv(Broken(change))
    with pytest.raises((ValueError, RuntimeError, FloatingPointError), match=text) as caught:
        rlcpu.collect(env, rlcpu.policies.Uniform(), 5)
    assert "\n" not in str(caught.value)


def test_networks_that_do_not_fit_the_parts() -> None:
    cases = [
        (lambda space: nn.Input("camera") >> nn.Image(6, 6, 1) >> nn.Dense(8),
         "no layer reads the part 'counts'"),
        (lambda space: nn.Input("lidar") >> nn.Dense(8),
         "the network has the inputs camera, counts, gear, place"),
        (lambda space: nn.Input("camera") >> nn.Image(5, 6, 1) >> nn.Dense(8),
         "has 30 numbers: the input has 36"),
    ]  # fmt: skip
    for layers, text in cases:
        with pytest.raises(ValueError, match=text):
            PPO(lookouts(2), network=layers)


def test_files_of_policies(tmp_path: Path) -> None:
    """A row of all numbers is what a file reads; parts of it have no word there."""
    agent = PPO(cart, seed=0, hidden=(8,), num_envs=16, num_threads=1)
    agent.export(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        assert file["mean"].shape == (3 + 5 + 2 + 18,)
    with pytest.raises(ValueError, match="the layer 'part' cannot be exported"):
        PPO(camera, seed=0, num_envs=2, num_threads=1).export(tmp_path / "policy.npz")
