"""The warning on inputs whose scale does not fit networks, once, and what `check` says of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import rlcpu
from rlcpu.envs import check
from rlcpu.envs.contract.scales import find_misfits, names_of_numbers
from rlcpu.nn.network.scaling import Scaling
from rlcpu.train import DDPG, DQN, PPO, PQN, SAC, TD3

Array = np.ndarray
PLAIN = {"num_envs": 8, "hidden": (16,), "normalize_observations": False}
SMALL: dict[Any, dict[str, Any]] = {
    PPO: {**PLAIN, "num_steps": 25},
    PQN: {**PLAIN, "num_steps": 25},
    DQN: {**PLAIN, "num_updates": 1, "batch_size": 32},
    SAC: {**PLAIN, "num_updates": 1, "batch_size": 32, "learning_starts": 1000},
}
SMALL[TD3] = SMALL[DDPG] = SMALL[SAC]


class Scales(NamedTuple):
    """Params of the environment below: its second number is `middle + width * u`, u in +-1."""

    width: float = 1.0
    middle: float = 0.0


def reset(rng: Any, params: Any) -> Any:
    return (2.0 * rng.uniform(0) - 1.0,)


def step(state: Any, action: Any, params: Any, rng: Any) -> Any:
    is_right = (action == 1) == (state[0] > 0.0)
    return reset(rng, params), (1.0 if is_right else 0.0), False


def push(state: Any, action: Any, params: Any, rng: Any) -> Any:
    return reset(rng, params), (1.0 if action[0] * state[0] > 0.0 else 0.0), False


def observe(state: Any, params: Any) -> Any:
    return 3.0, params.middle + params.width * state[0], (0.5 if state[0] > 0.99 else -0.5)


def make(kind: Any, bound: float, **params: float) -> rlcpu.Dynamics:
    is_discrete, high = kind in (PPO, PQN, DQN), np.float32([bound, bound, 1.0])
    return rlcpu.Dynamics(
        id="Scales-v0",
        step=step if is_discrete else push,
        reset=reset,
        observe=observe,
        params=Scales(**params),
        observation_space=Box(-high, high),
        action_space=Discrete(2) if is_discrete else Box(-1.0, 1.0, (1,)),
        max_episode_steps=20,
    )


LOOSE = (
    r"Scales-v0: as the networks get it, observation\[1\] has a deviation of 5\.\de-05, below 0.02"
)
WIDE = (
    r"Scales-v0: as the networks get it, observation\[1\] has a deviation of [23]\d, above 10: try "
)


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize(
    ("bound", "width", "message"), [(1e4, 1.0, LOOSE), (np.inf, 50.0, WIDE), (2.0, 1.0, "")]
)
def test_a_scale_that_does_not_fit_is_told_once(
    kind: Any, bound: float, width: float, message: str
) -> None:
    agent = kind(make(kind, bound, width=width), seed=0, **SMALL[kind])
    agent.learn(800)
    if kind is PPO and bound == 1e4:  # its networks get observations as they are
        message = ""
    if message:
        before = agent.config
        with pytest.warns(UserWarning, match=message) as caught:
            agent.learn(800)
        (warning,) = caught
        text = str(warning.message)
        assert "normalize_observations=True" in text
        assert ("scale_observations=False" in text) == (kind is DQN and bound == 1e4)
        assert warning.filename == __file__
        assert agent.config is before  # nothing switches by itself
    agent.learn(2000)


@pytest.mark.parametrize("kind", [PQN, DQN])
def test_clipped_numbers_are_told(kind: Any) -> None:
    """A twentieth is within the limit."""
    env = make(kind, np.inf, middle=10.5)
    agent = kind(env, seed=0, clip_observations=10.0, **SMALL[kind])
    message = r"7\d% of observation\[1\] is clipped to \+-10: try .*clip_observations=inf"
    with pytest.warns(UserWarning, match=message):
        agent.learn(1500)


def test_who_normalises_is_told_nothing() -> None:
    for bound, width in ((1e4, 1.0), (np.inf, 50.0)):
        agent = PPO(make(PPO, bound, width=width), seed=0, num_envs=8, num_steps=25, hidden=(16,))
        agent.learn(1200)
        settings = {**SMALL[DQN], "normalize_observations": True}
        agent = DQN(make(DQN, bound, width=width), seed=0, **settings)
        agent.learn(1200)


def test_a_loaded_agent_is_looked_at_again(tmp_path: Any) -> None:
    env = rlcpu.make_vec(make(DQN, 1e4), 8)
    agent = DQN(env, seed=0, **SMALL[DQN])
    with pytest.warns(UserWarning, match=LOOSE):
        agent.learn(1200)
    agent.save(tmp_path / "agent.npz")
    loaded = DQN.load(tmp_path / "agent.npz", env=rlcpu.make_vec(make(DQN, 1e4), 8))
    with pytest.warns(UserWarning, match=LOOSE):
        loaded.learn(800)


@pytest.mark.parametrize("options", [{}, {"replay": "prioritized"}, {"network": "gru"}])
def test_a_look_changes_nothing(options: dict[str, Any]) -> None:
    """Neither the numbers that the buffer draws nor what is learnt."""
    agents = []
    for is_watched in (True, False):
        agent = DQN(make(DQN, 2.0), seed=0, **SMALL[DQN], **options)
        if not is_watched:
            agent._input_watch._names = {}
        agent.learn(2000)
        agents.append(agent)
    assert not agents[0]._input_watch._names
    np.testing.assert_array_equal(*(agent.policy.network.parameters for agent in agents))


class Parts(gymnasium.Env[Any, Any]):
    """A choice, an image, a flag that is seldom set, and a number whose bounds are far away."""

    observation_space = Dict(
        {
            "choice": Discrete(50),
            "flag": Box(0.0, 1.0, (2,)),
            "picture": Box(0, 255, (6, 6, 1), np.uint8),
            "speed": Box(-1e4, 1e4, (1,)),
        }
    )
    action_space = Discrete(2)

    def look(self) -> Any:
        return {
            "choice": 7,
            "flag": np.float32([self.np_random.random() < 1e-3, 1.0]),
            "picture": np.full((6, 6, 1), self.np_random.integers(2), np.uint8),
            "speed": self.np_random.normal(size=1).astype(np.float32),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.look(), {}

    def step(self, action: Any) -> Any:
        return self.look(), 0.0, False, bool(self.np_random.random() < 0.1), {}


def test_parts_have_names_and_what_is_no_number_is_left_out() -> None:
    envs = gymnasium.vector.SyncVectorEnv([Parts] * 4)
    settings: Any = {"num_updates": 1, "batch_size": 16, "network": "mlp", "hidden": (16,)}
    agent = DQN(envs, seed=0, **settings)
    number = r"observation speed\[0\] has a deviation of (0\.0001|9\.\de-05), below 0\.02: try "
    with pytest.warns(UserWarning, match="get it, " + number):
        agent.learn(1200)


def test_statistics_that_are_no_fault() -> None:
    rng = np.random.default_rng(0)
    rows = np.zeros((1000, 4), np.float32)
    rows[:, 0] = 1e-4  # constant
    rows[::500, 1] = 1.0  # seldom set
    rows[:, 2] = rng.normal(0.0, 9.0, 1000)
    rows[:, 3] = rng.uniform(-0.04, 0.04, 1000)
    scaling = Scaling(np.zeros(4, np.float32), np.ones(4, np.float32), np.float32(30.0))
    names = list("abcd")
    assert not find_misfits(rows, scaling, names)
    assert [each.kind for each in find_misfits(rows * 0.7, scaling, names)] == ["small"]
    kinds = [each.kind for each in find_misfits(rows * 1.5, scaling, names)]
    assert kinds == ["clipped", "large"]


# ---------------------------------------------------------------- the catalogue, and `check`


def algorithms_of(dynamics: Any) -> list[Any]:
    if isinstance(dynamics.action_space, Discrete):
        return [PPO, PQN, DQN]
    return [PPO, SAC, TD3] if isinstance(dynamics.action_space, Box) else [PPO]


BUILT_IN = [id for id in rlcpu.registered() if not any(x in id for x in ("-v5", "Medium", "Hard"))]


@pytest.mark.parametrize("env_id", BUILT_IN)
def test_the_catalogue_fits_its_default_settings(env_id: str) -> None:
    env = rlcpu.make_vec(env_id, num_envs=16)
    names = names_of_numbers(env.dynamics.observation_space)
    if not names:
        return
    observations, infos = env.reset(seed=0)
    env.action_space.seed(0)
    inputs = []
    for _ in range(70):
        inputs.append(env.view.flatten(observations))
        actions = env.action_space.sample()
        if (masks := infos.get("action_mask")) is not None:
            actions = masks.argmax(axis=1)
        observations, _, _, _, infos = env.step(actions)
    rows, places = np.concatenate(inputs)[:, list(names)], list(names)
    for kind in algorithms_of(env.dynamics):
        agent = kind(env_id)
        if not agent.config.normalize_observations:
            mean, scale, limit = agent.policy.scaling
            scaling = Scaling(mean[places], scale[places], limit)
            assert not find_misfits(rows, scaling, list(names.values())), kind


def test_tuned_settings_are_told_nothing_of() -> None:
    """Of HalfCheetah-v5 a sixth of some speeds is clipped, with which it was tuned."""
    pytest.importorskip("mujoco")
    small: Any = {"num_envs": 4, "num_updates": 1, "batch_size": 32, "hidden": (16,)}
    agent = SAC("HalfCheetah-v5", learning_starts=100, **small)
    assert agent.policy.observation_limit == 10.0
    agent.learn(1200)
    agent = SAC("HalfCheetah-v5", learning_starts=100, clip_observations=9.0, **small)
    with pytest.warns(UserWarning, match=r"is clipped to \+-9 \(\d others too\)"):
        agent.learn(1200)


def test_check_says_the_same() -> None:
    for bound, params, part in (
        (1e4, {}, "observation[1] has a deviation of 5.9e-05, below 0.02"),
        (1e7, {"width": 50.0}, "observation[1] has a deviation of 29, above 10"),
    ):
        report = check(make(DQN, bound, **params))
        (message,) = (m for level, m in report.findings if level == "warning")
        assert message.startswith(
            f"scaled by the bounds of observation_space, {part}: all algorithms but"
        )
        assert "normalize_observations=True" in message
    for report in (check(make(DQN, 2.0)), check(make(DQN, 1e4), steps=200)):  # which are too few
        assert not any("deviation" in message for _, message in report.findings)
