"""What agents that learn from a replay buffer have in common."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu import replay
from rlcpu.cli import main
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.train import DDPG, DQN, PPO, QRDQN, SAC, TD3, TQC
from rlcpu.train.running.evaluate import EndlessEpisodeError
from tests.train.rare import RARE, RARE_BOX
from tests.train.states import state_of

#: One size for all tests: the same kernels.
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "num_updates": 4,
    "learning_starts": 64,
    "capacity": 500,
    "batch_size": 48,
    "hidden": (32, 16),
    "n_step": 1,
}
AGENTS = {
    **dict.fromkeys((DQN, QRDQN), "CartPole-v1"),
    **dict.fromkeys((SAC, TQC, TD3, DDPG), "Pendulum-v1"),
}
EVERY = pytest.mark.parametrize(("kind", "env"), AGENTS.items())


def everything(agent: Any) -> dict[str, bytes]:
    """What decides the future; lanes that stand for no environment hold anything."""
    arrays = {k: v for k, v in state_of(agent).items() if not k.startswith("env_")}
    arrays |= {"state": agent.env.state, "elapsed": agent.env.engine.elapsed()}
    return {name: array.tobytes() for name, array in arrays.items()}


@EVERY
@pytest.mark.parametrize("kept", ["uniform", "prioritized", "return"])
def test_a_loaded_agent_goes_on_bit_for_bit(kind: Any, env: str, kept: str, tmp_path: Path) -> None:
    agent = kind(env, seed=3, replay=kept, **SMALL)
    agent.learn(320)
    agent.policy.network.parameters *= np.float32(0.99)  # by its user, after the last update
    agent.save(tmp_path / "agent.npz")
    loaded = kind.load(tmp_path / "agent.npz")
    assert everything(loaded) == everything(agent)
    assert (loaded.config, loaded.steps, loaded.returns) == (
        agent.config,
        agent.steps,
        agent.returns,
    )
    agent.learn(640), loaded.learn(640)
    assert everything(loaded) == everything(agent)
    observations = np.zeros((3, agent.env.dynamics.observation_size))
    for deterministic in (True, False):
        both = [each.predict(observations, deterministic) for each in (agent, loaded)]
        np.testing.assert_array_equal(*both)
    np.testing.assert_array_equal(agent.evaluate(5), loaded.evaluate(5))
    agent.save(tmp_path / "agent.npz")
    assert kind.load(tmp_path / "agent.npz").steps == 960


@EVERY
def test_the_result_is_a_function_of_the_seed(kind: Any, env: str) -> None:
    def run(seed: int, threads: int) -> dict[str, bytes]:
        # Large enough for two threads to share an update.
        sizes = {**SMALL, "hidden": (256, 256), "batch_size": 96}
        agent = kind(env, seed=seed, num_threads=threads, **sizes)
        agent.learn(160)
        return everything(agent)

    one = run(5, 1)
    assert run(5, 2) == one
    assert run(6, 1) != one


@EVERY
def test_history_tells_how_it_went(kind: Any, env: str, tmp_path: Path) -> None:
    agent = kind(env, seed=0, **SMALL)
    seen: list[int] = []
    history = agent.learn(1200, callback=lambda progress: seen.append(progress.steps))
    assert seen == [512, 1024, 1216]
    assert (history.steps, history.stopped, agent.steps) == (1216, "steps", 1216)
    assert agent.num_updates == (1216 - 64) // 32 * 4 + 4
    assert all(map(math.isfinite, history.losses))
    history.to_csv(tmp_path / "curve.csv")
    table = np.genfromtxt(tmp_path / "curve.csv", delimiter=",", names=True)
    assert table["steps"].tolist() == seen
    assert table["loss_num_gradients"].tolist() == [4.0] * 3
    assert agent.learn(1000, callback=lambda progress: False).stopped == "callback"
    assert agent.learn(10_000, target_return=-1e9).stopped == "solved"


@EVERY
def test_updates_before_a_refused_one_are_counted(kind: Any, env: str) -> None:
    agent = kind(env, seed=0, **SMALL)
    agent.learn(96)
    before = agent.num_updates
    columns = agent._columns(agent.buffer.sample(48 * 6))
    columns["reward"] = np.array(columns["reward"])
    columns["reward"][48 * 4 + 7] = np.nan  # of the fifth of six
    with pytest.raises(FloatingPointError, match=f"gradient step {before + 5}: .*NaN or infinite"):
        agent.learner.update(columns, minibatch_size=48, tau=0.1, **agent._options())
    assert agent.num_updates == before + 4
    assert np.isfinite(agent.learner.learnt.parameters).all()


def test_a_look_at_the_target_is_short_where_it_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = DQN("CartPole-v1", seed=0, **SMALL)
    looks: list[int] = []

    def evaluate(count: int, seed: int) -> Any:
        looks.append(count)
        return np.full(count, -1.0 if len(looks) == 1 else 1.0)

    monkeypatch.setattr(agent, "evaluate", evaluate)
    assert agent.learn(5000, target_return=0.0).stopped == "solved"
    assert looks == [10, 10, 100, 100]
    assert 4000 <= agent.steps < 5000


def test_a_greedy_policy_that_goes_in_circles_is_no_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = DQN("CartPole-v1", seed=0, **SMALL)

    def evaluate(count: int, seed: int) -> Any:
        raise EndlessEpisodeError("no end")

    monkeypatch.setattr(agent, "evaluate", evaluate)
    assert agent.learn(2500, target_return=0.0).stopped == "steps"


@EVERY
def test_actions_are_those_of_the_environment(kind: Any, env: str) -> None:
    agent = kind(env, seed=0, **SMALL)
    space = agent.env.single_action_space
    observations = np.random.default_rng(0).normal(size=(50, agent.env.dynamics.observation_size))
    for deterministic in (True, False):
        actions = agent.predict(observations, deterministic)
        assert all(space.contains(action) for action in actions)
        assert space.contains(agent.predict(observations[0], deterministic))
    rollout = rlcpu.collect(agent.env, agent.policy, 8)
    actions = rollout.actions.reshape(-1, *space.shape)
    assert all(space.contains(x) for x in actions.astype(space.dtype))
    with pytest.raises(ValueError, match=r"expected \(n, "):
        agent.predict(np.zeros((3, 9)))
    with pytest.raises(FloatingPointError, match="finite"):
        agent.predict(np.full(agent.env.dynamics.observation_size, np.nan))


@EVERY
def test_greedy_actions_in_kernels_are_those_of_predict(kind: Any, env: str) -> None:
    agent = kind(env, seed=0, **SMALL)
    agent.policy.deterministic = True
    rollout = rlcpu.collect(agent.env, agent.policy, 8)
    size = rollout.observations.shape[-1]
    expected = agent.predict(rollout.observations.reshape(-1, size))
    actions = rollout.actions.reshape(expected.shape)
    np.testing.assert_allclose(actions, expected, atol=1e-5)


@EVERY
def test_a_policy_that_its_user_changes_acts_so_at_once(kind: Any, env: str) -> None:
    agent = kind(env, seed=2, **SMALL)
    agent.explore()
    collect = functools.partial(rlcpu.collect, agent.env, agent.policy, 8)
    actions = [collect().actions]
    for change in (
        lambda policy: setattr(policy.network, "activation", "tanh"),
        lambda policy: setattr(policy, "deterministic", True),
        lambda policy: policy.parameters.__imul__(np.float32(-3.0)),
        lambda policy: setattr(policy, "parameters", -policy.parameters),
        lambda policy: setattr(policy, "observation_scale", policy.observation_scale * 0.5),
    ):
        change(agent.policy)
        other = copy.deepcopy(agent)
        actions.append(collect().actions)
        expected = rlcpu.collect(other.env, other.policy, 8).actions
        np.testing.assert_array_equal(actions[-1], expected)
    with pytest.raises(ValueError, match=r"policy.parameters has shape \(1,\): expected \(\d+,\)"):
        agent.policy.parameters = [0.0]


@EVERY
def test_bad_arguments_are_named(kind: Any, env: str) -> None:
    for wrong, error, text in (
        ({"learning_rate": -1.0}, ValueError, "learning_rate=-1.0"),
        ({"batch_size": 0}, ValueError, "batch_size=0"),
        ({"hidden": ()}, ValueError, r"hidden=\(\)"),
        ({"capacity": 10}, ValueError, "capacity=10"),
        ({"replay": "best"}, ValueError, "replay='best'"),
        ({"n_step": 2, "replay": "return"}, ValueError, "n_step=2"),
        ({"buffer_size": 10}, TypeError, f"buffer_size: {kind.algorithm}.*did you mean capacity"),
        ({"config": 3}, TypeError, f"config=3: expected a {kind.Config.__name__}"),
        ({"seed": -1}, ValueError, "seed=-1"),
        ({"buffer": []}, TypeError, r"buffer=\[\]: expected a ReplayBuffer"),
    ):
        with pytest.raises(error, match=text):
            kind(env, **{**SMALL, **wrong})
    with pytest.raises(ValueError, match="num_envs=3: env has 2"):
        kind(rlcpu.make_vec(env, num_envs=2), num_envs=3)
    with pytest.raises(TypeError, match="expected an id"):
        kind(3)


@EVERY
def test_buffers_of_ones_own(kind: Any, env: str) -> None:
    own = replay.PrioritizedReplayBuffer(500, example_of(env), num_envs=4, alpha=0.7, seed=1)
    agent = kind(env, seed=0, buffer=own, **{**SMALL, "num_envs": None})
    agent.learn(544)
    assert agent.buffer is own
    assert len(own) == 500
    assert own.sample(10).weights.min() < 1.0  # priorities differ: they were updated
    with pytest.raises(ValueError, match="buffer has the fields reward"):
        kind(env, buffer=replay.ReplayBuffer(100, {"reward": 0.0}), **SMALL)
    two = replay.ReplayBuffer(500, example_of(env), num_envs=2)
    with pytest.raises(ValueError, match="buffer has num_envs=2: env has 4"):
        kind(rlcpu.make_vec(env, num_envs=4), buffer=two, **SMALL)
    with pytest.raises(ValueError, match="num_envs=4: buffer has 2, which counts"):
        kind(env, buffer=two, **SMALL)
    with pytest.raises(TypeError, match="expected a ReplayBuffer, PrioritizedReplayBuffer, H"):
        kind(env, buffer=replay.ItemBuffer(500, example_of(env)), **SMALL)
    several = replay.ReplayBuffer(500, example_of(env), n_step=3)  # of one environment
    with pytest.raises(ValueError, match=r"n_step=3 and num_envs=None: .* expected num_envs=4"):
        kind(env, buffer=several, **{**SMALL, "n_step": 3})
    one = {**SMALL, "n_step": 3, "gamma": 0.99, "num_envs": 1}
    assert kind(env, buffer=several, **one).buffer is several


def buffer_of(env: str, kind: Any = replay.ReplayBuffer, **options: Any) -> Any:
    """Return a buffer for `SMALL`."""
    return kind(SMALL["capacity"], example_of(env), num_envs=4, seed=1, **options)


#: `SMALL` without what a buffer decides.
OTHERS = {
    name: value for name, value in SMALL.items() if name not in ("capacity", "n_step", "num_envs")
}


@EVERY
def test_settings_of_a_buffer_become_those_of_the_agent(kind: Any, env: str) -> None:
    own = buffer_of(env, replay.PrioritizedReplayBuffer, n_step=3, gamma=0.9)
    with pytest.warns(UserWarning, match="is tuned for this environment: buffer has"):
        agent = kind(env, seed=0, buffer=own, **OTHERS)
    config = agent.config
    assert (config.replay, config.n_step, config.gamma) == ("prioritized", 3, 0.9)
    assert (config.capacity, config.num_envs) == (500, 4)
    # The same settings without the buffer, but for its exponents and seed, make the same one.
    made = kind(env, seed=0, config=config).buffer
    assert made.describe()["settings"] == own.describe()["settings"]
    agent.learn(96)
    columns = agent._columns(agent.buffer.sample(48))
    assert set(columns["discount"].tolist()) <= {float(np.float32(0.9**k)) for k in (1, 2, 3)}
    # A buffer of one step has no discount: that of the settings counts.
    agent = kind(env, seed=0, buffer=buffer_of(env), **OTHERS, n_step=1, gamma=0.5)
    assert (agent.config.replay, agent.config.n_step, agent.config.gamma) == ("uniform", 1, 0.5)
    agent.learn(96)
    assert (agent._columns(agent.buffer.sample(48))["discount"] == 0.5).all()
    weighted = replay.ReturnWeightedBuffer(500, example_of(env))
    agent = kind(env, seed=0, buffer=weighted, **{**SMALL, "capacity": None})
    assert (agent.config.replay, agent.config.n_step) == ("return", 1)


@EVERY
def test_a_setting_that_a_buffer_has_another_of_is_refused(kind: Any, env: str) -> None:
    own = buffer_of(env, n_step=3, gamma=0.9)
    for wrong in (
        {"n_step": 1},
        {"gamma": 0.99},
        {"replay": "prioritized"},
        {"capacity": 1000},
        {"num_envs": 2},
    ):
        ((name, value),) = wrong.items()
        match = f"^{name}={value!r}: buffer has .*, which counts; expected the same"
        config = kind.Config(num_envs=4, capacity=500, n_step=3, gamma=0.9).replace(wrong)
        for settings in ({**OTHERS, **wrong}, {"config": config}):
            with pytest.raises(ValueError, match=match):
                kind(env, buffer=own, **settings)
    same = {"n_step": 3, "gamma": 0.9, "replay": "uniform", "capacity": 500, "num_envs": 4}
    assert kind(env, buffer=own, **OTHERS, **same).buffer is own


def test_a_tuned_setting_that_a_buffer_has_another_of_is_named() -> None:
    with pytest.warns(UserWarning, match=r"n_step=5 is tuned .* buffer has 1, .* n_step=1 too"):
        agent = DQN("CartPole-v1", buffer=buffer_of("CartPole-v1"), **OTHERS)
    assert agent.config.n_step == 1
    own = buffer_of("Pendulum-v1", n_step=2)
    with pytest.warns(UserWarning, match=r"gamma=0.95 is tuned .* buffer has 0.99") as told:
        SAC("Pendulum-v1", buffer=own, **OTHERS)
    assert len(told) == 1
    assert told[0].filename == __file__
    SAC("Pendulum-v1", buffer=own, **OTHERS, gamma=0.99)  # no warning: somebody means it
    DQN("CartPole-v1", buffer=buffer_of("CartPole-v1", n_step=5), **OTHERS)


def test_settings_that_did_not_count_are_those_of_the_buffer_in_a_loaded_agent(
    tmp_path: Path,
) -> None:
    own = buffer_of("Pendulum-v1", n_step=2)
    agent = SAC("Pendulum-v1", seed=0, buffer=own, gamma=0.99, **OTHERS)
    agent.learn(96)
    vars(agent)["config"] = agent.config.replace({"n_step": 1, "gamma": 0.5, "capacity": 900})
    agent.save(tmp_path / "agent.npz")  # as older versions did
    config = SAC.load(tmp_path / "agent.npz").config
    assert (config.n_step, config.gamma, config.capacity) == (2, 0.99, 500)


def test_priorities_may_all_become_zero() -> None:
    """Without an epsilon a round that finds no error ends, and a new step is learnt from."""
    own = buffer_of("CartPole-v1", replay.PrioritizedReplayBuffer, epsilon=0.0)
    agent = DQN("CartPole-v1", seed=0, buffer=own, **{**OTHERS, "n_step": 1, "num_updates": 16})
    update, rows = own.update_priorities, np.arange(500)
    own.update_priorities = lambda *_: update(rows[rows % 125 < own.num_added], 0.0)
    agent.learn(64)
    before = agent.num_updates
    agent.learn(128)
    # Of two calls of the learner in each round the first has made eight updates.
    assert agent.num_updates == before + 4 * 8
    assert not own.can_sample()


@EVERY
def test_transitions_are_weighted_by_the_return_of_their_episode(kind: Any, env: str) -> None:
    agent = kind(rlcpu.make_vec(env, num_envs=4, max_episode_steps=20), replay="return", **SMALL)
    values: dict[int, float] = {}
    add, update = agent.buffer.add, agent.buffer.update_values

    def spy_add(batch: Any, value: float) -> None:
        first = len(values)
        values.update(dict.fromkeys(range(first, first + len(batch["reward"])), value))
        add(batch, value)

    def spy_update(indices: Any, value: float) -> None:
        values.update(dict.fromkeys(indices.tolist(), value))
        update(indices, value)

    agent.buffer.add, agent.buffer.update_values = spy_add, spy_update
    expected: dict[int, float] = {}
    running: list[list[tuple[int, float]]] = [[], [], [], []]
    for number in range(12):
        agent.learn(32)
        rollout = agent._rollout
        for step, i in np.ndindex(8, 4):
            running[i].append((number * 32 + step * 4 + i, float(rollout.rewards[step, i])))
            if rollout.terminated[step, i] or rollout.truncated[step, i]:
                total = sum(reward for _, reward in running[i])
                expected.update(dict.fromkeys([k for k, _ in running[i]], total))
                running[i].clear()
    assert len(expected) > 200
    for k, total in expected.items():
        assert values[k] == pytest.approx(total, rel=1e-5)


@EVERY
def test_few_transitions_of_a_return_above_zero_are_learnt_from(kind: Any, env: str) -> None:
    """The first success leaves fewer transitions with a weight than a batch has: others join."""
    settings: dict[str, Any] = {**SMALL, "replay": "return", "capacity": 2000}
    agent = kind(RARE if issubclass(kind, DQN) else RARE_BOX, seed=0, **settings)
    shares, sample = [], agent.buffer.sample

    def spy(size: int, **options: Any) -> Any:
        values = agent.buffer._sampler.tree.leaves[: len(agent.buffer)]
        batch = sample(size, **options)
        drawn = values[batch.indices]
        # All that have a weight, or nothing else.
        assert (drawn > 0.0).sum() == min(size, (values > 0.0).sum()) or not values.any()
        assert len(set(batch.indices.tolist())) == size
        shares.append((drawn > 0.0).mean())
        return batch

    agent.buffer.sample = spy
    agent.learn(2000)
    assert agent.num_updates == (agent.steps - 64) // 32 * 4 + 4  # in every round
    assert 0 < sum(agent.returns) < len(agent.returns) / 4
    assert min(shares) == 0.0
    assert any(0.0 < share < 1.0 for share in shares)
    assert max(shares) == 1.0


def test_an_agent_waits_for_a_strict_buffer() -> None:
    env = RARE.with_params(share=0.0)
    strict = replay.ReturnWeightedBuffer(500, example_of(rlcpu.make_vec(env, 4)))
    agent = DQN(env, seed=0, buffer=strict, num_envs=4, **OTHERS)
    agent.learn(64)
    strict.update_values(np.arange(40), 1.0)  # those of the episodes that have ended
    before = agent.num_updates
    agent.learn(32)
    assert agent.num_updates == before
    strict.update_values(np.arange(80), 1.0)
    agent.learn(32)
    assert agent.num_updates == before + 4


@EVERY
def test_an_exception_keeps_what_was_learnt(kind: Any, env: str, tmp_path: Path) -> None:
    agent = kind(env, seed=0, **SMALL)

    def fail(progress: Any) -> None:
        if progress.steps > 600:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent.learn(2000, callback=fail)
    assert agent.history.stopped == "interrupted"
    assert agent.steps == agent.history.steps == 1024
    agent.save(tmp_path / "agent.npz")
    before = everything(agent)
    assert everything(kind.load(tmp_path / "agent.npz")) == before
    agent.learn(320)
    assert everything(agent) != before


@EVERY
def test_a_gradient_that_is_not_finite_is_no_step(kind: Any, env: str) -> None:
    agent = kind(env, seed=0, **SMALL)
    agent.learn(320)
    parameters = agent.learner.learnt.parameters.copy()
    columns = agent._columns(agent.buffer.sample(48))
    columns["reward"] = np.full(48, np.inf, np.float32)
    updates = agent.num_updates
    with pytest.raises(FloatingPointError, match=f"gradient step {updates + 1}: "):
        agent.learner.update(columns, minibatch_size=48, **agent._options())
    np.testing.assert_array_equal(agent.learner.learnt.parameters, parameters)
    assert agent.num_updates == updates
    agent.learn(320)
    assert np.isfinite(agent.learner.learnt.parameters).all()


def test_a_reward_that_is_not_finite_is_named_and_not_stored() -> None:
    agent = SAC("Pendulum-v1", seed=0, **SMALL)
    agent.learn(320)
    stored = len(agent.buffer)
    # The square of this velocity overflows, the next velocity is within its limits.
    agent.env.engine.real[0, 64 + 2] = 3e19
    message = "Pendulum-v1: environment 2 has reward=-inf in step 0"
    with pytest.raises(FloatingPointError, match=message):
        agent.learn(320)
    assert agent.history.stopped == "error"
    assert len(agent.buffer) == stored


@EVERY
def test_nan_after_a_while_is_named_and_what_was_learnt_is_kept(kind: Any, env: str) -> None:
    agent = kind(env, seed=0, **SMALL)
    agent.learn(320)
    names = ("learner_parameters", "learner_first", "policy_parameters")
    kept, stored = [state_of(agent)[name].tobytes() for name in names], len(agent.buffer)
    agent.env.engine.real[0, 64 + 2] = np.nan  # the second number of the state of environment 2
    with pytest.raises(
        FloatingPointError, match=r"environment 2 has observation\[\d\]=nan in step 0"
    ):
        agent.learn(320)
    assert agent.history.stopped == "error"
    assert (agent.steps, len(agent.buffer)) == (320, stored)
    assert [state_of(agent)[name].tobytes() for name in names] == kept
    assert agent.learn(320).steps == 320  # environment 2 begins a new episode


def test_files_of_other_algorithms_and_damage_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    PPO("CartPole-v1", num_envs=8, num_steps=16, minibatch_size=64, hidden=(16,)).save(path)
    with pytest.raises(ValueError, match="format is rlcpu PPO 1, expected rlcpu DQN 1"):
        DQN.load(path)
    agent = DQN("CartPole-v1", **SMALL)
    agent.save(path)
    with pytest.raises(ValueError, match="format is rlcpu DQN 1, expected rlcpu PPO 1"):
        PPO.load(path)
    whole = path.read_bytes()
    for size in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"agent\.npz"):
            DQN.load(path)
    with pytest.raises(FileNotFoundError):
        DQN.load(tmp_path / "none.npz")


@EVERY
def test_settings_are_documented(kind: Any, env: str) -> None:
    for config in (kind.Config(), *kind.defaults.values()):
        assert isinstance(config, kind.Config)
    text = "".join(str(base.__doc__) for base in kind.Config.__mro__)
    for field in dataclasses.fields(kind.Config):
        assert field.name in text


def test_command_line_trains_and_evaluates(tmp_path: Path, capsys: Any) -> None:
    path, chosen = str(tmp_path / "agent.npz"), ["--set", "learning_starts=64", "--episodes", "2"]
    command = ["train", "Pendulum-v1", "--algo", "sac", "--num-envs", "4", "--steps", "128"]
    assert main([*command, *chosen, "--save", path]) == 0
    assert SAC.load(path).steps == 128
    assert main(["eval", path, "--episodes", "2"]) == 0
    assert "trained for 128 steps" in capsys.readouterr().out
