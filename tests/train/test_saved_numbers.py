"""Numbers that subclasses of agents add: files hold them, or `save` refuses."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu import nn
from rlcpu.train import DDPG, DQN, PPO, PQN, SAC, TD3
from tests.train.states import state_of
from tests.train.test_off_policy import SMALL

ROLLOUTS: dict[str, Any] = {"num_envs": 4, "num_steps": 16, "minibatch_size": 32, "hidden": (16,)}
#: By the class an environment and settings.
AGENTS: list[tuple[Any, str, dict[str, Any]]] = [
    (DQN, "CartPole-v1", SMALL),
    (SAC, "Pendulum-v1", SMALL),
    (TD3, "Pendulum-v1", SMALL),
    (DDPG, "Pendulum-v1", SMALL),
    (PQN, "CartPole-v1", ROLLOUTS),
    (PPO, "CartPole-v1", ROLLOUTS),
]


def squared(y: float, target: float) -> float:
    return (y - target) ** 2


def regression(batch: Any, nets: Any, settings: Any) -> Any:
    return nn.mean(nn.each(squared, nets.model(batch.x), batch.target)), {}


def model_learner() -> nn.Learner:
    network = nn.Network((1, 4, 1), seed=1)
    return nn.Learner({"model": network}, regression, columns={"x": 1, "target": 1}, seed=0)


def running(base: Any) -> Any:
    """Return a class of agents with running moments, which decide the learning rate."""

    class Running(base):
        algorithm = f"Running{base.algorithm}"
        saved_numbers = ("mean", "rounds", "decay", "is_warm", "seen", "model")

        def __init__(self, env: Any, **settings: Any) -> None:
            super().__init__(env, **settings)
            self.mean = np.zeros(2)
            self.rounds, self.decay, self.is_warm = 0, np.float32(0.5), False
            self.seen = np.zeros(0, np.int32)  # grows
            self.model = model_learner()

        def add_numbers(self) -> None:
            """Change all numbers, and let the next updates depend on them."""
            self.rounds += 1
            self.decay *= np.float32(0.9)
            self.is_warm = self.rounds > 3
            self.mean[:] += 0.1 * (np.array([self.rounds, self.steps]) - self.mean)
            self.seen = np.append(self.seen, np.int32(self.rounds))
            x = np.linspace(0, 1, 8, dtype=np.float32)
            self.model.update({"x": x, "target": x * self.mean[0]}, learning_rate=1e-2)
            rate = 1e-3 / (1.0 + self.mean[0] + self.decay + self.is_warm + self.seen.sum())
            self.config = self.config.replace({"learning_rate": float(rate)})

        def improve(self) -> Any:  # of agents with replay, and of PQN
            self.add_numbers()
            return super().improve()

        def columns(self, rollout: Any) -> Any:  # of PPO
            self.add_numbers()
            return super().columns(rollout)

    return Running


def numbers_of(agent: Any) -> dict[str, Any]:
    return {name: getattr(agent, name) for name in type(agent).saved_numbers if name != "model"}


def assert_same(agent: Any, other: Any) -> None:
    ours, theirs = (
        {name: x for name, x in state_of(each).items() if not name.startswith("env_")}
        for each in (agent, other)
    )
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(theirs[name], array, err_msg=name)
    for name, value in numbers_of(agent).items():
        copied = getattr(other, name)
        assert type(copied) is type(value)
        np.testing.assert_array_equal(copied, value, err_msg=name)
        assert np.asarray(copied).dtype == np.asarray(value).dtype


@pytest.mark.parametrize(("kind", "env", "settings"), AGENTS)
def test_a_loaded_agent_goes_on_bit_for_bit(
    kind: Any, env: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    agent = running(kind)(env, seed=0, **settings)
    agent.learn(320)
    assert agent.rounds > 3
    agent.save(tmp_path / "agent")
    loaded = type(agent).load(tmp_path / "agent")
    assert_same(agent, loaded)
    before = loaded.mean.copy()
    for each in (agent, loaded):
        each.learn(320)
    assert (loaded.mean != before).all()
    assert_same(agent, loaded)
    x = np.ones((1, 1))
    outputs = [each.model.networks[0].outputs(x) for each in (agent, loaded)]
    np.testing.assert_array_equal(*outputs)


def novelty(batch: Any, nets: Any, settings: Any) -> Any:
    x = batch.observation - nn.hold(nets.mean)
    error = nn.sum(nn.each(squared, nets.predictor(x), nn.hold(nets.fixed(x))))
    return nn.mean(error), {"novelty": error}


def curious(base: Any) -> Any:
    """Return a class of agents with a fixed network, and moments of their own that losses read."""

    class Curious(base):
        algorithm = f"Curious{base.algorithm}"
        reported = ("novelty",)

        def networks(self, seed: int) -> Any:
            return {
                **super().networks(seed),
                "predictor": nn.Network((4, 8, 2), seed=1),
                "fixed": nn.Network((4, 8, 2), seed=2),
                "mean": np.zeros(4, np.float32),
            }

        def updates(self) -> Any:
            return [*super().updates(), nn.Update(novelty)]

        def write_mean(self, observations: Any) -> None:
            mean = self.learner.value_of("mean")
            mean += np.float32(0.1) * (observations.mean(axis=0) - mean)

        def improve(self) -> Any:  # of agents with replay
            self.write_mean(self.buffer.sample(16)["observation"])
            return super().improve()

        def columns(self, rollout: Any) -> Any:  # of PPO
            self.write_mean(rollout.observations.reshape(-1, 4))
            return super().columns(rollout)

    return Curious


@pytest.mark.parametrize(("base", "settings"), [(DQN, SMALL), (PPO, ROLLOUTS)])
def test_what_no_update_learns_is_in_files(
    base: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    agent = curious(base)("CartPole-v1", seed=0, **settings)
    fixed = agent.networks(0)["fixed"].parameters
    agent.learn(320)
    agent.save(tmp_path / "agent")
    loaded = type(agent).load(tmp_path / "agent")
    mean = agent.learner.value_of("mean").copy()
    assert mean.all()
    np.testing.assert_array_equal(loaded.learner.value_of("mean"), mean)
    for each in (agent, loaded):
        assert each.learn(320).losses.novelty > 0.0
    assert_same(agent, loaded)
    assert (agent.learner.value_of("mean") != mean).all()
    number = agent.learner.names.index("fixed")
    np.testing.assert_array_equal(agent.learner.networks[number].parameters, fixed)


def test_numbers_are_those_of_before_an_update_that_is_undone() -> None:
    """As all of PPO: what goes on is the run that was not interrupted."""

    class Counting(PPO):
        saved_numbers = ("mean", "rounds", "model")

        def __init__(self, env: Any, **settings: Any) -> None:
            super().__init__(env, **settings)
            self.mean, self.rounds, self.model = np.zeros(1), 0, model_learner()

        def columns(self, rollout: Any) -> Any:
            self.rounds += 1
            self.mean[:] += 0.1 * (rollout.observations.mean() - self.mean)
            x = np.linspace(0, 1, 8, dtype=np.float32)
            self.model.update({"x": x, "target": x * self.mean[0]}, learning_rate=1e-2)
            return super().columns(rollout)

    expected, agent = (Counting("CartPole-v1", seed=0, **ROLLOUTS) for _ in range(2))
    expected.learn(320)
    agent.learn(192)
    update, mean = agent.learner.update, agent.mean

    def interrupt(*_: Any, **__: Any) -> Any:
        assert agent.rounds == 4
        raise KeyboardInterrupt

    agent.learner.update = interrupt
    with pytest.raises(KeyboardInterrupt):
        agent.learn(128)
    agent.learner.update = update
    assert agent.rounds == 3
    assert agent.mean is mean
    agent.learn(128)
    assert_same(agent, expected)


def test_scalars_arrays_and_views_stay_what_they_are(tmp_path: Path) -> None:
    class Kinds(DQN):
        algorithm, saved_numbers = "Kinds", ("whole", "real", "huge", "none", "zero", "part")

        def __init__(self, env: Any, **settings: Any) -> None:
            super().__init__(env, **settings)
            self.whole, self.real, self.huge, self.none = 0, 0.0, 0, 0.0
            self.zero, self.part = np.zeros(()), np.zeros(2, np.complex64)
            self.cache = {"view": self.part[1:]}

    agent = Kinds("CartPole-v1", **SMALL)
    agent.whole, agent.real, agent.huge, agent.none = 3, 0.1 + 0.2, 2**80, float("-inf")
    agent.zero[...], agent.part[:] = 2.5, 1 + 2j
    agent.save(tmp_path / "agent")
    loaded = Kinds.load(tmp_path / "agent")
    assert_same(agent, loaded)
    assert loaded.zero.shape == ()
    loaded.part[1] = 7.0
    assert loaded.cache["view"].tolist() == [7.0]  # of the same memory
    agent.real = float("nan")
    agent.save(tmp_path / "agent")
    assert np.isnan(Kinds.load(tmp_path / "agent").real)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", np.zeros(3)),
        ("_mean", 0.0),
        ("rounds", 0),
        ("scale", np.float32(1.0)),
        ("seen", np.zeros(3, bool)),
        ("model", model_learner()),
    ],
)
def test_numbers_that_no_file_would_hold_are_named(name: str, value: Any, tmp_path: Path) -> None:
    class Undeclared(DQN):
        def __init__(self, env: Any, **settings: Any) -> None:
            super().__init__(env, **settings)
            setattr(self, name, value)

    agent = Undeclared("CartPole-v1", **SMALL)
    match = f"^{name}: numbers of Undeclared that no file would hold; expected .*{name}"
    with pytest.raises(TypeError, match=match):
        agent.save(tmp_path / "agent")
    assert not (tmp_path / "agent").exists()
    with pytest.warns(UserWarning, match=match) as told:
        agent.learn(64)
    assert told[0].filename == __file__
    Undeclared.saved_numbers = (name,)
    agent.save(tmp_path / "agent")
    assert Undeclared.load(tmp_path / "agent").steps == 64


def test_what_is_no_number_of_the_run_is_saved_without_a_word(tmp_path: Path) -> None:
    """Caches, functions, texts, flags, objects, networks and numbers of the class."""

    @dataclasses.dataclass
    class Options:
        scale: float = 0.5

    class Others(DQN):
        algorithm = "Others"
        quantiles = 51

        def __init__(self, env: Any, **settings: Any) -> None:
            self.options, self.cache, self.losses = Options(), {0: np.zeros(3)}, [0.1, 0.2]
            self.function, self.name, self.is_loud, self.nothing = np.mean, "x", True, None
            self.sizes = (64, 64)
            super().__init__(env, **settings)
            self.target = nn.Network((4, 8, 1))
            self.evaluations: list[Any] = [np.ones(2)]

        @functools.cached_property
        def table(self) -> Any:
            return np.arange(9.0)

    agent = Others("CartPole-v1", seed=0, **SMALL)
    assert agent.table.sum() == 36.0
    agent.learn(96)
    agent.save(tmp_path / "agent")
    loaded = Others.load(tmp_path / "agent")
    assert loaded.table.sum() == 36.0
    assert loaded.steps == 96


@pytest.mark.parametrize(("kind", "env", "settings"), AGENTS)
def test_numbers_of_the_library_are_no_others(
    kind: Any, env: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    class Same(kind):
        pass

    agent = Same(env, seed=0, **settings)
    for _ in range(2):
        agent.learn(192, target_return=1e9)
        agent.evaluate(2)
        agent.save(tmp_path / "agent")
    assert Same.load(tmp_path / "agent").steps == 384


def test_bad_names_are_refused_when_the_class_is_made() -> None:
    for names, text in (
        ("mean", r"Bad.saved_numbers='mean': expected a tuple of names"),
        ((1,), r"Bad.saved_numbers=\(1,\): expected a tuple of names"),
        (("steps",), "Bad.saved_numbers has 'steps': .* uses this name"),
        (("_remaining",), "Bad.saved_numbers has '_remaining': .* uses this name"),
        (("gamma",), "Bad.saved_numbers has 'gamma': .* uses this name"),
    ):
        with pytest.raises(TypeError, match=text):
            type("Bad", (DQN,), {"saved_numbers": names})


def test_what_is_named_and_no_number_is_refused(tmp_path: Path) -> None:
    class Wrong(DQN):
        algorithm, saved_numbers = "Wrong", ("log",)

    agent = Wrong("CartPole-v1", **SMALL)
    for value in (None, [1.0], "1.0", np.array(["x"])):
        agent.log = value
        match = (
            r"Wrong.saved_numbers has 'log', which is .*: expected a number, an array of numbers"
        )
        for call in (lambda: agent.save(tmp_path / "agent"), lambda: agent.learn(64)):
            with pytest.raises(TypeError, match=match):
                call()


def test_files_of_other_numbers_and_damaged_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class First(DQN):
        algorithm, saved_numbers, mean, rounds = "Numbers", ("mean",), np.zeros(2), 0

    class Second(First):
        saved_numbers = ("mean", "rounds")

    path = tmp_path / "agent"
    First("CartPole-v1", **SMALL).save(path)
    with pytest.raises(ValueError, match="its saved numbers are mean: expected mean, rounds"):
        Second.load(path)
    Second("CartPole-v1", **SMALL).save(path)
    with pytest.raises(ValueError, match="its saved numbers are mean, rounds: expected mean"):
        First.load(path)
    dumps = json.dumps
    for damaged in (
        {"mean": "array", "rounds": "many"},
        {"mean": "array", "rounds": "array"},
        [1],
    ):

        def damage(x: Any, new: Any = damaged, **options: Any) -> str:
            return dumps({**x, "numbers": new} if "numbers" in x else x, **options)

        with monkeypatch.context() as patch:
            patch.setattr(json, "dumps", damage)
            Second("CartPole-v1", **SMALL).save(path)
        with pytest.raises(ValueError, match="agent: does not fit"):
            Second.load(path)
