"""The adapters for stable-baselines3, beside what it does itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlcpu
from rlcpu.envs.registration import gymnasium_id

stable = pytest.importorskip("stable_baselines3")

import torch  # noqa: E402
from stable_baselines3.common import vec_env  # noqa: E402
from stable_baselines3.common.buffers import NStepReplayBuffer  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402

from rlcpu.adapters import sb3  # noqa: E402

# ---------------------------------------------------------------- environments


def copies(env_id: str, num_envs: int, limit: int) -> Any:
    """stable-baselines3's own VecEnv, of single environments with the same random streams."""

    def make() -> Any:
        return Monitor(gymnasium.make(gymnasium_id(env_id), max_episode_steps=limit))

    return vec_env.DummyVecEnv([make] * num_envs)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_steps_are_those_of_dummy_vec_env(env_id: str) -> None:
    ours, theirs = sb3.VecEnv(env_id, 3, max_episode_steps=20), copies(env_id, 3, 20)
    assert ours.seed(5) == theirs.seed(5)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    ours.action_space.seed(0)
    ended = 0
    for _ in range(60):
        actions = np.array([ours.action_space.sample() for _ in range(3)])
        (*found, infos), (*expected, wanted) = ours.step(actions), theirs.step(actions)
        for i in np.flatnonzero(found[2]):  # the second episode's random numbers are other ones
            theirs.envs[i].unwrapped.state = ours.env.state[i]
            expected[0][i] = found[0][i]
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        for info, other in zip(infos, wanted, strict=True):
            assert info.keys() == other.keys()
            assert info["TimeLimit.truncated"] is other["TimeLimit.truncated"]
            if "episode" in info:
                ended += 1
                a, b = (each["terminal_observation"] for each in (info, other))
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
                assert info["episode"]["r"] == pytest.approx(other["episode"]["r"], abs=1e-4)
                assert info["episode"]["l"] == other["episode"]["l"]
    assert ended >= 9


def test_terminated_and_truncated_in_one_step_is_no_time_limit() -> None:
    env = sb3.VecEnv("CartPole-v1", max_episode_steps=1)
    env.reset()
    env.set_attr("state", np.float32([[2.5, 0.0, 0.0, 0.0]]))
    *_, dones, infos = env.step(np.array([0]))
    assert dones.tolist() == [True]
    assert infos[0]["TimeLimit.truncated"] is False
    assert infos[0]["terminal_observation"][0] == pytest.approx(2.5, abs=0.1)


def test_seeds_and_options_are_used_once() -> None:
    env = sb3.VecEnv("CartPole-v1", 2)
    env.seed(1)
    first = env.reset()
    second = env.reset()
    assert (first != second).any()
    env.seed(1)
    env.set_options({"low": -0.01, "high": 0.01})
    assert (abs(env.reset()) <= 0.01).all()
    env.seed(1)
    np.testing.assert_array_equal(env.reset(), first)
    env.set_options([{"low": -0.01}, {}])
    with pytest.raises(ValueError, match="expected the same ones of all environments"):
        env.reset()


def test_attributes_and_methods() -> None:
    env = sb3.VecEnv("CartPole-v1", 3, gravity=1.6)
    env.reset()
    assert env.get_attr("gravity") == [1.6] * 3
    assert env.get_attr("gravity", 1) == [1.6]
    assert not env.has_attr("levity")
    states = np.arange(12.0, dtype=np.float32).reshape(3, 4) / 100
    env.set_attr("state", states)
    np.testing.assert_array_equal(env.get_attr("state", [2, 0]), states[[2, 0]])
    np.testing.assert_array_equal(env.env_method("observe", indices=[1]), states[[1]])
    snapshot = env.env_method("snapshot")[0]
    env.step(np.zeros(3, np.int64))
    env.env_method("restore", snapshot)
    np.testing.assert_array_equal(env.get_attr("state"), states)
    for call in (
        lambda: env.set_attr("state", states[:1], indices=0),
        lambda: env.env_method("restore", snapshot, indices=[0, 1]),
    ):
        with pytest.raises(ValueError, match=r"leave environments out.*: expected None"):
            call()
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit, [0]) == [False]
    assert sb3.VecEnv("CartPole-v1", monitor=False).env_is_wrapped(Monitor) == [False]
    assert env.get_images() == [None] * 3
    env.close()


def test_attributes_are_those_of_each_environment() -> None:
    poles = sb3.VecEnv("CartPole-v1", 3, length=[0.25, 0.5, 0.75])
    assert poles.get_attr("length", [2, 0]) == [0.75, 0.25]
    lakes = sb3.VecEnv("FrozenLake-v1", 2)
    lakes.reset()
    lakes.env.state.cell = np.array([3, 5])
    assert [state.cell for state in lakes.get_attr("state")] == [3, 5]
    assert [state.cell for state in lakes.get_attr("state", 1)] == [5]


def test_pictures() -> None:
    env = sb3.VecEnv("MinAtar/Breakout-v1", 2, render_mode="rgb_array")
    env.reset()
    one = env.get_images()[0]
    assert one is not None
    picture = env.render()
    assert picture is not None
    assert picture.dtype == np.uint8
    assert picture.size == 2 * one.size


def test_wrappers_of_stable_baselines3() -> None:
    env = vec_env.VecNormalize(vec_env.VecFrameStack(sb3.VecEnv("Pendulum-v1", 2), 3))
    checked = vec_env.VecCheckNan(env, raise_exception=True)
    assert checked.reset().shape == (2, 9)
    for _ in range(201):
        *_, infos = checked.step(np.ones((2, 1), np.float32))
        if "terminal_observation" in infos[0]:
            assert infos[0]["terminal_observation"].shape == (9,)
            break
    else:
        pytest.fail("no episode ended")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((rlcpu.make_vec("CartPole-v1"),), {}, ValueError, 'autoreset_mode="SameStep"'),
        (("CartPole-v1", 0), {}, ValueError, "num_envs=0"),
        (("CartPole-v1",), {"gravitas": 1}, TypeError, "gravitas"),
        (("CartPole-v1",), {"monitor": 1}, TypeError, "monitor=1: expected a bool"),
        (
            (rlcpu.make_vec("CartPole-v1", 2, autoreset_mode="SameStep"), 3),
            {},
            TypeError,
            "expected nothing else beside",
        ),
    ],
)
def test_bad_arguments_of_environments(
    arguments: Any, options: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        sb3.VecEnv(*arguments, **options)


def test_agent_learns_and_is_evaluated_on_it() -> None:
    env = sb3.VecEnv("CartPole-v1", 16)
    agent = stable.PPO("MlpPolicy", env, n_steps=64, batch_size=256, seed=0, device="cpu")
    agent.learn(16 * 64 * 6)
    assert len(agent.ep_info_buffer) == 100
    assert np.mean([episode["r"] for episode in agent.ep_info_buffer]) > 30
    assert evaluate_policy(agent, env, 16)[0] > 60


# ---------------------------------------------------------------- replay buffers

SEEN = spaces.Box(-np.inf, np.inf, (2,), np.float32)
MOVES = spaces.Box(-1.0, 1.0, (1,), np.float64)
N = 3


def steps(count: int) -> Any:
    """What stable-baselines3 hands over; observations are (step, environment)."""
    rng = np.random.default_rng(0)
    for t in range(count):
        seen = np.array([[t, i] for i in range(N)], np.float32)
        done, late = rng.random((2, N)) < 0.2
        infos = [{"TimeLimit.truncated": bool(done[i] and late[i])} for i in range(N)]
        actions = rng.random((N, 1))
        yield seen, seen + np.float32([0.5, 0.0]), actions, rng.random(N), done, infos


def filled(kind: Any, count: int = 50, **options: Any) -> Any:
    """A buffer of 20 steps of each environment, after so many."""
    made = kind(20 * N + 1, SEEN, MOVES, device="cpu", n_envs=N, **options)
    for step in steps(count):
        made.add(*step)
    return made


def test_batches_are_normalised_when_they_are_drawn() -> None:
    env = vec_env.VecNormalize(sb3.VecEnv("Pendulum-v1", N))
    env.obs_rms.mean, env.obs_rms.var = np.arange(3.0), np.array([1.0, 4.0, 9.0])
    env.ret_rms.var = np.array(25.0)
    plain, scaled = (
        sb3.ReplayBuffer(90, env.observation_space, env.action_space, "cpu", N, seed=0)
        for _ in range(2)
    )
    for seen, _, actions, rewards, done, infos in steps(20):
        wide = np.concatenate([seen, rewards[:, None]], axis=1, dtype=np.float32)
        for made in (plain, scaled):
            made.add(wide, wide + 1, actions, rewards, done, infos)
    raw, batch = plain.sample(40), scaled.sample(40, env)
    deviations = np.sqrt(env.obs_rms.var + env.epsilon)
    for name in ("observations", "next_observations"):
        expected = (getattr(raw, name).numpy() - env.obs_rms.mean) / deviations
        found = getattr(batch, name)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, np.clip(expected, -10.0, 10.0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(batch.rewards, raw.rewards / 5.0, rtol=1e-6)
    assert batch.rewards.dtype == torch.float32
    np.testing.assert_array_equal(batch.actions, raw.actions)


@pytest.mark.parametrize("count", [13, 50, 133])
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("handled", [True, False])
def test_batches_are_those_of_stable_baselines3(count: int, n_steps: int, handled: bool) -> None:
    options = {"n_steps": n_steps, "gamma": 0.9, "handle_timeout_termination": handled}
    ours = filled(sb3.ReplayBuffer, count, seed=0, **options)
    theirs = filled(NStepReplayBuffer, count, **options)
    assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
    batch = ours.sample(300)
    places = {}  # their buffer draws environments by itself, so that it is asked again and again
    for _ in range(20):
        found = theirs._get_samples(np.arange(theirs.size()))
        for b in range(theirs.size()):
            row = [x[b] for x in found]
            places[tuple(row[0].tolist())] = row
    assert len(places) == theirs.size() * N
    assert len({tuple(seen) for seen in batch.observations.tolist()}) > 0.9 * len(places)
    for b in range(300):
        expected = places[tuple(batch.observations[b].tolist())]
        for tensor, other in zip(batch[:5], expected[:5], strict=True):
            assert tensor.dtype == other.dtype
            np.testing.assert_allclose(tensor[b], other, rtol=1e-6)
        if n_steps > 1:
            np.testing.assert_allclose(batch.discounts[b], expected[5], rtol=1e-6)
    assert (batch.discounts is None) == (n_steps == 1)


def test_tensors_are_the_memory_that_was_drawn_into() -> None:
    buffer = filled(sb3.ReplayBuffer)
    drawn: list[Any] = []
    sample = buffer.buffer.sample
    buffer.buffer.sample = lambda size: drawn.append(sample(size)) or drawn[0]
    batch = buffer.sample(7)
    assert batch.observations.data_ptr() == drawn[0]["observation"].ctypes.data
    assert batch.rewards.data_ptr() == drawn[0]["reward"].ctypes.data


def test_next_observations_are_derived() -> None:
    kept, derived = (filled(sb3.ReplayBuffer, seed=1, derive_next=flag) for flag in (False, True))
    for a, b in zip(kept.sample(100)[:5], derived.sample(100)[:5], strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match=r'optimize_memory_usage=True: .*"derive_next": True'):
        filled(sb3.ReplayBuffer, optimize_memory_usage=True)


def test_observations_of_other_kinds() -> None:
    space = spaces.Dict({"position": SEEN, "place": spaces.Discrete(9)})
    buffer = sb3.ReplayBuffer(10, space, spaces.Discrete(4), device="cpu", n_envs=2)
    seen = {"position": np.ones((2, 2), np.float32), "place": np.array([3, 8])}
    buffer.add(seen, seen, np.array([1, 2]), np.ones(2), np.zeros(2, bool), [{}, {}])
    batch = buffer.sample(20)
    assert type(batch).__name__ == "DictReplayBufferSamples"
    assert batch.observations["position"].shape == (20, 2)
    assert set(batch.next_observations["place"][:, 0].tolist()) == {3, 8}
    assert (batch.actions.shape, batch.actions.dtype) == ((20, 1), torch.int64)


def test_priorities_and_weights() -> None:
    buffer = filled(sb3.PrioritizedReplayBuffer, alpha=1.0, beta=0.0, final_beta=1.0, epsilon=0.0)
    everything = np.arange(60)
    buffer.update_priorities(everything, np.where(everything < 2, [3.0, 1.0] * 30, 0.0))
    first, last = (buffer.sample(4000, progress=progress) for progress in (0.0, 1.0))
    assert (first.weights == 1.0).all()
    assert np.mean(last.indices == 0) == pytest.approx(0.75, abs=0.03)
    assert last.weights.shape == (4000, 1)
    expected = np.where(last.indices == 0, 1 / 3, 1.0)
    np.testing.assert_allclose(last.weights[:, 0], expected, rtol=1e-6)


def test_transitions_have_the_return_of_their_episode() -> None:
    count = 50
    buffer = filled(sb3.ReturnWeightedReplayBuffer, count, seed=0)
    values, totals, begins, recent = {}, np.zeros(N), [0] * N, []
    for t, (_, _, _, rewards, done, _) in enumerate(steps(count)):
        for i in range(N):
            values[t, i] = np.mean(recent) if recent else 0.0
        totals += rewards.astype(np.float32)
        for i in np.flatnonzero(done):
            for s in range(begins[i], t + 1):
                values[s, i] = totals[i]
            recent.append(totals[i])
            totals[i], begins[i] = 0.0, t + 1
    held = np.array([values[t, i] for t in range(count - 20, count) for i in range(N)])
    counts = np.zeros(60)
    for _ in range(4000):
        (seen,) = buffer.sample(1).observations.numpy()
        counts[int((seen[0] - (count - 20)) * N + seen[1])] += 1
    expected = 4000 * held / held.sum()
    # chi-squared with 59 degrees of freedom: 98.3 is the 0.999 quantile
    assert ((counts - expected) ** 2 / expected).sum() < 98.3
    assert len(buffer.sample(256).rewards) == 60
    with pytest.raises(ValueError, match="n_steps=3: expected 1"):
        filled(sb3.ReturnWeightedReplayBuffer, n_steps=3)


KINDS = [sb3.ReplayBuffer, sb3.PrioritizedReplayBuffer, sb3.ReturnWeightedReplayBuffer]


@pytest.mark.parametrize("kind", KINDS)
def test_saved_buffers_go_on(kind: Any, tmp_path: Path) -> None:
    saved, restored = filled(kind, seed=3), kind(61, SEEN, MOVES, device="cpu", n_envs=N, seed=3)
    saved.save(tmp_path / "buffer")
    restored.restore(tmp_path / "buffer")
    for step in steps(5):
        saved.add(*step)
        restored.add(*step)
    assert (saved.pos, saved.full) == (restored.pos, restored.full)
    if kind is not sb3.ReturnWeightedReplayBuffer:  # whose episodes begin anew
        np.testing.assert_array_equal(saved.sample(9).rewards, restored.sample(9).rewards)
    saved.reset()
    assert (saved.pos, saved.full, saved.size()) == (0, False, 0)


def test_buffers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    filled(sb3.ReplayBuffer).save(tmp_path / "buffer")
    other = sb3.ReplayBuffer(90, SEEN, MOVES, n_envs=N)
    with pytest.raises(ValueError, match=r"has settings .*'capacity': 60.*expected .*90"):
        other.restore(tmp_path / "buffer")
    with pytest.raises(ValueError, match="holds a ReplayBuffer, expected a Prioritized"):
        filled(sb3.PrioritizedReplayBuffer).restore(tmp_path / "buffer")
    assert other.size() == 0


def test_sums_of_rewards_are_not_normalised() -> None:
    env = vec_env.VecNormalize(sb3.VecEnv("Pendulum-v1"))
    assert abs(filled(sb3.ReplayBuffer).sample(9, None).rewards).max() <= 1
    with pytest.raises(ValueError, match=r"expected VecNormalize\(norm_reward=False\)"):
        filled(sb3.ReplayBuffer, n_steps=2).sample(9, env)


# ---------------------------------------------------------------- agents


def agent_of(kind: Any, buffer: Any, **options: Any) -> Any:
    return kind(
        "MlpPolicy",
        sb3.VecEnv("CartPole-v1", 2),
        replay_buffer_class=buffer,
        policy_kwargs={"net_arch": [16]},
        learning_starts=32,
        batch_size=16,
        buffer_size=200,
        seed=0,
        device="cpu",
        **options,
    )


def test_equal_priorities_learn_what_stable_baselines3_learns() -> None:
    kwargs = {"alpha": 0.0, "beta": 1.0}
    ours = agent_of(sb3.DQN, None, n_steps=3, gamma=0.9, replay_buffer_kwargs=kwargs)
    theirs = agent_of(stable.DQN, NStepReplayBuffer, replay_buffer_kwargs={"n_steps": 3})
    theirs.gamma = 0.9
    assert (ours.n_steps, ours.replay_buffer.n_steps, ours.replay_buffer.gamma) == (3, 3, 0.9)
    ours.learn(100)
    theirs.learn(2)
    theirs.policy.load_state_dict(ours.policy.state_dict())
    theirs.policy.optimizer.load_state_dict(copy.deepcopy(ours.policy.optimizer.state_dict()))
    batch = ours.replay_buffer.sample(16)
    assert (batch.weights == 1).all()
    for agent in (ours, theirs):
        agent.replay_buffer.sample = lambda *arguments, **options: batch
        agent.train(3, 16)
    for name, tensor in theirs.policy.state_dict().items():
        np.testing.assert_allclose(ours.policy.state_dict()[name], tensor, rtol=1e-5, atol=1e-7)
    losses = [agent.logger.name_to_value["train/loss"] for agent in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_priorities_become_temporal_differences() -> None:
    agent = agent_of(sb3.DQN, None)
    agent.learn(100)
    buffer, seen = agent.replay_buffer, {}
    update = buffer.update_priorities
    buffer.update_priorities = lambda indices, sizes: (seen.update(zip(indices, sizes)), update)[0]  # noqa: B905
    batch = buffer.sample(16)
    buffer.sample = lambda *arguments: batch
    values, targets = (x.detach().numpy()[:, 0] for x in agent._values(batch))
    agent.train(1, 16)
    for index, error in zip(batch.indices, targets - values, strict=True):
        assert seen[index] == pytest.approx(abs(error), rel=1e-5)


def test_n_steps_and_gamma_of_model_and_buffer_are_the_same() -> None:
    agent = agent_of(sb3.DQN, None, gamma=0.9, replay_buffer_kwargs={"n_steps": 3})
    assert (agent.n_steps, agent.replay_buffer.n_steps, agent.replay_buffer.gamma) == (3, 3, 0.9)
    with pytest.raises(ValueError, match="has n_steps=3: expected that of the model, 2"):
        agent_of(sb3.DQN, None, n_steps=2, replay_buffer_kwargs={"n_steps": 3})
    with pytest.raises(ValueError, match=r"has gamma=0\.5: expected that of the model, 0\.9"):
        agent_of(sb3.DQN, None, n_steps=2, gamma=0.9, replay_buffer_kwargs={"gamma": 0.5})


def test_nothing_is_learnt_while_no_priority_is_above_zero() -> None:
    agent = agent_of(sb3.DQN, None, replay_buffer_kwargs={"epsilon": 0.0})
    agent.learn(40)
    before = agent._n_updates
    agent.replay_buffer.update_priorities(agent.replay_buffer.sample(900).indices, 0.0)
    agent.train(3, 16)
    assert agent._n_updates == before
    agent.learn(8, reset_num_timesteps=False)
    assert agent._n_updates > before


def test_returns_of_which_few_are_above_zero() -> None:
    """The first success leaves fewer transitions with a weight than a batch has."""
    buffer = sb3.ReturnWeightedReplayBuffer(40, SEEN, MOVES, device="cpu", n_envs=N, seed=0)
    for number, (*step, rewards, done, infos) in enumerate(steps(20)):
        has_won = number == 4
        rewards, done = np.float32(rewards * 0 + has_won), np.full_like(done, has_won)
        buffer.add(*step, rewards, done, infos)
    assert len(buffer.sample(32).rewards) == 32


def test_a_network_that_is_nan_is_refused_before_a_step() -> None:
    agent = agent_of(sb3.DQN, None)
    agent.learn(100)
    with torch.no_grad():
        next(agent.q_net_target.parameters())[0] = np.nan
    before = [tensor.clone() for tensor in agent.q_net.parameters()]
    with pytest.raises(ValueError, match=r"priorities.*nan"):
        agent.train(1, 16)
    assert all(map(torch.equal, before, agent.q_net.parameters()))


@pytest.mark.parametrize("buffer", [None, *KINDS])
def test_models_are_saved_and_go_on(buffer: Any, tmp_path: Path) -> None:
    agent = agent_of(sb3.DQN, buffer)
    agent.learn(80)
    agent.save(tmp_path / "model")
    agent.save_replay_buffer(tmp_path / "buffer.pkl")
    agent.replay_buffer.save(tmp_path / "buffer")
    loaded = sb3.DQN.load(tmp_path / "model", env=sb3.VecEnv("CartPole-v1", 2), device="cpu")
    assert type(loaded.replay_buffer) is (buffer or sb3.PrioritizedReplayBuffer)
    assert loaded.replay_buffer.size() == 0
    loaded.load_replay_buffer(tmp_path / "buffer.pkl")
    assert loaded.replay_buffer.size() == 40
    loaded.replay_buffer.reset()
    loaded.replay_buffer.restore(tmp_path / "buffer")
    assert loaded.replay_buffer.size() == 40
    loaded.learn(40, reset_num_timesteps=False)
    assert loaded.num_timesteps == 120


@pytest.mark.parametrize("kind", ["SAC", "TD3"])
@pytest.mark.parametrize("buffer", [sb3.ReplayBuffer, sb3.ReturnWeightedReplayBuffer])
def test_actor_critics_take_the_buffers(kind: str, buffer: Any) -> None:
    agent = getattr(stable, kind)(
        "MlpPolicy",
        sb3.VecEnv("Pendulum-v1", 2),
        replay_buffer_class=buffer,
        policy_kwargs={"net_arch": [16]},
        learning_starts=20,
        batch_size=32,
        device="cpu",
    )
    agent.learn(60)
    assert agent.replay_buffer.size() == 30


def test_a_seed_decides_the_run() -> None:
    runs = []
    for _ in range(2):
        agent = agent_of(sb3.DQN, None)
        agent.learn(200)
        runs.append([tensor.clone() for tensor in agent.q_net.parameters()])
    assert all(map(torch.equal, *runs))
