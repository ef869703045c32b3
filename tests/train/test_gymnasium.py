"""Agents in environments of Gymnasium that are not ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import SyncVectorEnv

from rlcpu.cli import main
from rlcpu.cli.arguments import CommandError
from rlcpu.cli.films import check_renderer, film
from rlcpu.envs import GymnasiumEnv
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.train import DDPG, DQN, PPO, PQN, QRDQN, SAC, TD3, TQC
from tests.envs.gymnasium_cases import MODES, Book, Reach, make_books
from tests.envs.test_gymnasium_env import Faulty

SMALL: dict[str, Any] = {
    "num_steps": 8,
    "num_updates": 4,
    "learning_starts": 48,
    "batch_size": 48,
    "hidden": (32, 32),
    "capacity": 2000,
}
SMALL_PQN: dict[str, Any] = {"num_steps": 8, "minibatch_size": 24, "hidden": (32,)}
SMALL_PPO: dict[str, Any] = {"num_steps": 16, "minibatch_size": 16, "hidden": (16,)}
AGENTS = [
    pytest.param(PPO, Discrete(3), id="ppo"),
    pytest.param(DQN, Discrete(3), id="dqn"),
    pytest.param(QRDQN, Discrete(3), id="qrdqn"),
    pytest.param(PQN, Discrete(3), id="pqn"),
    pytest.param(SAC, Box(-2.0, 2.0, (1,), np.float64), id="sac"),
    pytest.param(TQC, Box(-2.0, 2.0, (1,), np.float64), id="tqc"),
    pytest.param(TD3, Box(-2.0, 2.0, (1,), np.float64), id="td3"),
    pytest.param(DDPG, Box(-2.0, 2.0, (1,), np.float64), id="ddpg"),
]
EVERY = pytest.mark.parametrize(("kind", "acting"), AGENTS)


def sizes_of(kind: Any) -> dict[str, Any]:
    sizes: dict[Any, dict[str, Any]] = {PPO: SMALL_PPO, PQN: SMALL_PQN}
    return sizes.get(kind, {**SMALL, "n_step": 1})


@pytest.fixture
def registered() -> Iterator[None]:
    gymnasium.register("Reach-v0", Reach, max_episode_steps=20, reward_threshold=-7.0)
    gymnasium.register(
        "ReachContinuous-v0", Reach, max_episode_steps=20, kwargs={"discrete": False}
    )
    yield
    for name in ("Reach-v0", "ReachContinuous-v0"):
        del gymnasium.registry[name]


@EVERY
@pytest.mark.parametrize("mode", MODES)
def test_every_agent_learns_in_every_mode(kind: Any, acting: Any, mode: str) -> None:
    vector, books = make_books([[3, 5], [4], [7, 2]], mode, acting=acting)
    agent = kind(vector, seed=0, **sizes_of(kind))
    seen: list[int] = []
    history = agent.learn(600, callback=lambda progress: seen.append(progress.steps))
    assert history.stopped == "steps"
    assert agent.steps == history.steps == seen[-1]
    assert np.isfinite(np.array([*history.losses], float)).all()
    assert history.episodes > 100
    if (
        getattr(agent, "buffer", None) is not None
    ):  # what the buffer holds are transitions that happened
        written = {
            (*entry["observation"], *np.ravel(entry["action"]), *entry["next_observation"]): entry
            for book in books
            for entry in book.book
        }
        batch = agent.buffer.sample(200)
        for k in range(200):
            key = *batch["observation"][k], *np.ravel(batch["action"][k])
            entry = written[(*key, *batch["next_observation"][k])]
            for name in ("reward", "terminated", "truncated"):
                assert batch[name][k] == entry[name]


@pytest.mark.parametrize("kind", [PPO, DQN, QRDQN, PQN])
@pytest.mark.parametrize("mode", ["SameStep", "plain"])
def test_agents_heed_action_masks(kind: Any, mode: str, tmp_path: Path) -> None:
    vector, books = make_books([[3, 5], [4], [7, 2]], mode, masked=True)
    agent = kind(vector, seed=0, **sizes_of(kind))
    agent.learn(200)  # the books look at every action
    assert np.isfinite(np.array([*agent.history.losses], float)).all()
    assert agent.evaluate(4).shape == (4,)
    if hasattr(agent, "buffer"):
        batch = agent._columns(agent.buffer.sample(100))
        nexts = {tuple(e["next_observation"]): e["next_action_mask"] for b in books for e in b.book}
        seen = batch["next_observation"].reshape(100, 2)
        wanted = [nexts[tuple(each)] for each in seen]
        np.testing.assert_array_equal(batch["next_action_mask"].reshape(100, 3), wanted)
    agent.save(tmp_path / "agent.npz")
    again = make_books([[3, 5], [4], [7, 2]], mode, masked=True)[0]
    loaded = kind.load(tmp_path / "agent.npz", env=again)
    seen, masks = np.ones((3, 2), np.float32), ~np.eye(3, dtype=bool)
    outputs = np.where(masks, loaded.policy.outputs(seen)[:, :3], -np.inf)
    np.testing.assert_array_equal(loaded.predict(seen, action_masks=masks), outputs.argmax(axis=1))
    with pytest.raises(
        TypeError, match=r"(Book|Plain) has action masks: give action_masks=infos\["
    ):
        loaded.predict(seen)


def test_masks_of_an_id_are_known_before_its_first_episode() -> None:
    gymnasium.register("MaskedBook-v0", Book, kwargs={"lengths": [4], "masked": True})
    try:
        assert example_of("MaskedBook-v0")["next_action_mask"].shape == (3,)
        agent = DQN("MaskedBook-v0", num_envs=3, **SMALL)
        agent.learn(100)
        assert agent.evaluate(4).shape == (4,)
    finally:
        del gymnasium.registry["MaskedBook-v0"]


def test_the_mode_changes_nothing_of_what_is_learnt() -> None:
    def run(mode: str, seed: int = 0) -> bytes:
        agent = PPO(make_books([[3, 5], [4]], mode)[0], seed=seed, **SMALL_PPO)
        agent.learn(200)
        return bytes(agent.policy.parameters.tobytes())

    first = run("NextStep")
    assert [run(mode) for mode in ("SameStep", "Disabled")] == [first, first]
    assert run("NextStep", seed=1) != first


def test_ppo_solves_a_single_environment() -> None:
    limited = gymnasium.wrappers.TimeLimit(Reach(), 20)
    agent = PPO(limited, seed=0, num_steps=256, learning_rate=3e-3, gamma=0.9, hidden=(16,))
    agent.learn(8000)
    assert agent.env.num_envs == 1
    assert agent.evaluate(5).mean() > -7.0
    assert agent.predict(np.array([-1.0])) == 2


def test_sac_solves_an_environment_of_the_registry(registered: None) -> None:
    agent = SAC("ReachContinuous-v0", seed=0, num_envs=4, learning_starts=500, gamma=0.9)
    agent.learn(5000)
    assert agent.evaluate(10).mean() > -7.0


@EVERY
def test_files_take_the_environments_again(kind: Any, acting: Any, tmp_path: Path) -> None:
    agent = kind(make_books([[3, 5], [4]], "SameStep", acting=acting)[0], **sizes_of(kind))
    agent.learn(64)
    agent.save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match="its environments, Book, were given to the agent"):
        kind.load(tmp_path / "agent.npz")
    again = make_books([[3, 5], [4]], "SameStep", acting=acting)[0]
    loaded = kind.load(tmp_path / "agent.npz", env=again)
    assert (loaded.steps, loaded.config, loaded.returns) == (
        agent.steps,
        agent.config,
        agent.returns,
    )
    seen = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_array_equal(loaded.predict(seen), agent.predict(seen))
    loaded.learn(64)
    other = SyncVectorEnv([lambda: Faulty(0)] * 2)
    with pytest.raises(ValueError, match=r"Faulty.*expected Book"):
        kind.load(tmp_path / "agent.npz", env=other)
    with pytest.raises(ValueError, match="env=3"):
        kind.load(tmp_path / "agent.npz", env=3)


def test_files_of_environments_by_id_need_none(registered: None, tmp_path: Path) -> None:
    agent = DQN("Reach-v0", num_envs=2, **SMALL)
    agent.learn(64)
    agent.save(tmp_path / "agent.npz")
    loaded = DQN.load(tmp_path / "agent.npz")
    assert repr(loaded.env) == "GymnasiumEnv(Reach-v0, SyncVectorEnv, num_envs=2)"
    np.testing.assert_array_equal(loaded.evaluate(3), agent.evaluate(3))


def test_evaluation_counts_as_many_episodes_of_each_environment() -> None:
    vector, books = make_books([[1], [2], [3]], "NextStep")
    agent = PPO(vector, **SMALL_PPO)
    agent.learn(48)
    before = [len(book.book) for book in books]
    returns = agent.evaluate(7)
    for k, total in enumerate(returns):
        book = books[k % 3]
        ends = [entry for entry in book.book[before[k % 3] :] if entry["reward"] > 0]
        ends = [e for e in ends if e["terminated"] or e["truncated"]]
        length = book.lengths[0]
        last = ends[k // 3]["reward"]
        assert total == sum(last - step for step in range(length))
    rollout = agent._collect(agent.history)  # new episodes
    np.testing.assert_array_equal(rollout.observations[0, :, 1], 0)


def test_evaluation_by_id_leaves_the_run_alone(registered: None) -> None:
    def run(evaluate: bool) -> bytes:
        agent = PPO("Reach-v0", seed=0, num_envs=2, **SMALL_PPO)
        agent.learn(64)
        if evaluate:
            np.testing.assert_array_equal(agent.evaluate(3, seed=1), agent.evaluate(3, seed=1))
        agent.learn(64)
        return bytes(agent.policy.parameters.tobytes())

    assert run(True) == run(False)


@EVERY
@pytest.mark.parametrize("fault", ["raise", "reward", "observation"])
def test_faults_keep_what_was_learnt(kind: Any, acting: Any, fault: str) -> None:
    class Late(Faulty):
        def step(self, action: Any) -> Any:
            seen, reward, terminated, truncated, infos = Book.step(self, action)
            if len(self.book) == 150:
                reward = float("nan") if self.fault == "reward" else reward
                seen = seen * (np.nan if self.fault == "observation" else 1.0)
                if self.fault == "raise":
                    raise ZeroDivisionError
            return seen, reward, terminated, truncated, infos

    books = [Late(0), Late(1, fault)]
    for book in books:
        book.action_space = acting
    agent = kind(SyncVectorEnv([lambda book=book: book for book in books]), **sizes_of(kind))
    learnt: list[bytes] = []
    network = agent.policy if kind is PPO else agent.policy.network
    error, text = (
        (RuntimeError, "Late: environment 1 raised ZeroDivisionError")
        if fault == "raise"
        else (FloatingPointError, f"Late: environment 1 has {fault}.*=nan in step 5 after")
    )
    with pytest.raises(error, match=text):
        agent.learn(
            1000, callback=lambda progress: learnt.append(network.parameters.tobytes()) and None
        )
    assert agent.history.stopped == "error"
    if kind is PPO:
        assert network.parameters.tobytes() == learnt[-1]
    assert agent.steps == agent.history.steps == 288
    assert agent.learn(64).stopped == "steps"  # in new episodes


def test_agents_and_actions_that_do_not_fit() -> None:
    unbounded = Box(-np.inf, np.inf, (1,), np.float32)
    for kind, acting, error, text in (
        (DQN, Box(-1.0, 1.0, (1,)), TypeError, "Book has action_space=Box.*expected Discrete"),
        (SAC, Discrete(3), TypeError, r"Book has action_space=Discrete\(3\): expected a Box"),
        (TD3, Discrete(3), TypeError, r"Book has action_space=Discrete\(3\): expected a Box"),
        (SAC, unbounded, ValueError, "Book: action_space=.* has to be bounded"),
        (DDPG, unbounded, ValueError, "Book: action_space=.* has to be bounded"),
    ):
        with pytest.raises(error, match=text):
            kind(Book([3], acting=acting))
    agent = PPO(Book([3], acting=unbounded), **SMALL_PPO)
    assert agent.learn(32).steps == 32
    several = PPO(Book([3], acting=MultiDiscrete([3, 2, 4])), **SMALL_PPO)
    assert several.learn(32).steps == 32
    assert several.predict(np.zeros(2)).shape == (3,)
    with pytest.raises(
        TypeError, match=r"action_space=MultiDiscrete\(\[2 3\]\): expected Discrete"
    ):
        DQN(Book([3], acting=MultiDiscrete([2, 3])))
    with pytest.raises(ValueError, match="num_envs=3: env has 1"):
        PPO(Book([3]), num_envs=3)
    with pytest.raises(TypeError, match="expected an id, a Dynamics, a VectorEnv, or an env"):
        PPO(3)


class Failing(Book):
    """Breaks in its hundredth step."""

    def step(self, action: Any) -> Any:
        if len(self.book) == 100:
            raise ZeroDivisionError("worn out")
        return super().step(action)


def test_films_show_what_environments_draw() -> None:
    for env in (Reach(render_mode="rgb_array"), "FrozenLake-v1"):
        agent = PPO(env, num_envs=1, **SMALL_PPO)
        if isinstance(env, str):
            check_renderer(agent)
            frames = list(film(agent, seed=0))
            assert len(frames) > 1
            assert frames[0].shape[2] == 3
            assert any((frame != frames[0]).any() for frame in frames)
        else:  # given: it cannot be made again to be filmed
            with pytest.raises(CommandError, match="--video: GymnasiumTask"):
                check_renderer(agent)


def test_command_line(
    registered: None, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "agent.npz")
    (tmp_path / "module_of_reach.py").write_text(
        "import gymnasium\nfrom tests.envs.gymnasium_cases import Reach\n"
        'gymnasium.register("ReachAgain-v0", Reach, max_episode_steps=20)\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["train", "module_of_reach:ReachAgain-v0", "--algo", "dqn", "--num-envs", "4"]
    film = ["--video", str(tmp_path / "film.gif")]
    assert main([*command, "--steps", "128", "--episodes", "2", "--save", path, *film]) == 0
    told = capsys.readouterr()
    assert "ReachAgain-v0 is Gymnasium's own: its steps are Python's" in told.err
    assert "trained     128 steps" in told.out
    assert (tmp_path / "film.gif").stat().st_size > 100
    assert main(["eval", path, "--episodes", "2"]) == 0
    assert isinstance(DQN.load(path).env, GymnasiumEnv)
    gymnasium.register("Failing-v0", lambda: Failing([9], acting=Discrete(3)))
    small = ["--set", "num_steps=16", "--set", "hidden=16,", "--num-envs", "2", "--no-progress"]
    assert main(["train", "Failing-v0", *small, "--save", path]) == 1
    told = capsys.readouterr().err
    assert "stopped: Failing-v0: environment 0 raised ZeroDivisionError('worn out') in" in told
    assert PPO.load(path).steps > 0
    with pytest.raises(SystemExit) as stopped:  # a hundred steps are over before twenty episodes
        main(["eval", path, "--episodes", "30"])
    assert stopped.value.code == 1
    assert "environment 0 raised ZeroDivisionError" in capsys.readouterr().err
    del gymnasium.registry["Failing-v0"]
    with pytest.raises(SystemExit):
        main(["train", "NoSuchThing-v0"])
    assert "unknown environment 'NoSuchThing-v0'" in capsys.readouterr().err
    del gymnasium.registry["ReachAgain-v0"]
