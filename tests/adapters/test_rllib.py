"""RLlib, where it is installed: pip install -e ".[rllib]"."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray.rllib", exc_type=ImportError)  # ray alone lacks what it needs
pytestmark = pytest.mark.filterwarnings("ignore")  # ray warns of itself

from ray.rllib.algorithms.dqn import DQNConfig  # noqa: E402
from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: E402
from ray.rllib.utils import replay_buffers  # noqa: E402

from rlcpu.adapters.rllib import PrioritizedEpisodeReplayBuffer  # noqa: E402
from rlcpu.envs import VectorEnv  # noqa: E402

NAME = "rlcpu.adapters.rllib.PrioritizedEpisodeReplayBuffer"


def episode(number: int, length: int, terminated: bool = True) -> SingleAgentEpisode:
    """Observations are (episode, step), rewards 1, 2, 3, ..."""
    return SingleAgentEpisode(
        id_=str(number),
        observations=[np.float32([number, t]) for t in range(length + 1)],
        actions=list(range(length)),
        rewards=[float(t + 1) for t in range(length)],
        terminated=terminated,
        truncated=not terminated,
        len_lookback_buffer=0,
    )


@pytest.mark.parametrize("n_step", [1, 3])
def test_samples_are_those_of_rllib(n_step: int) -> None:
    ours = PrioritizedEpisodeReplayBuffer(100)
    theirs = replay_buffers.PrioritizedEpisodeReplayBuffer(100)
    for buffer in (ours, theirs):
        buffer.add([episode(0, 7), episode(1, 5, False)])
    expected = {}
    for each in theirs.sample(300, n_step=n_step, gamma=0.9):
        expected[tuple(each.get_observations(0))] = each
    for each in ours.sample(300, n_step=n_step, gamma=0.9):
        number, step = map(int, each.get_observations(0))
        left = (7, 5)[number] - step
        summed = min(left, n_step)
        assert each.get_extra_model_outputs("n_step", 0) == summed
        assert each.get_rewards(0) == pytest.approx(
            sum(0.9**k * (step + k + 1) for k in range(summed)), rel=1e-6
        )
        if left < n_step:
            continue  # which RLlib does not draw
        other = expected[number, step]
        np.testing.assert_array_equal(each.get_observations(), other.get_observations())
        assert each.get_actions(0) == other.get_actions(0)
        assert each.get_rewards(0) == pytest.approx(other.get_rewards(0), rel=1e-6)
        assert (each.is_terminated, each.is_truncated) == (other.is_terminated, other.is_truncated)


def test_priorities_counts_and_state() -> None:
    buffer = PrioritizedEpisodeReplayBuffer(10, alpha=1.0, epsilon=0.0, seed=0)
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.sample(1)
    with pytest.raises(ValueError, match="expected a sample before"):
        buffer.update_priorities([1.0])
    buffer.add(episode(0, 4))
    buffer.add([episode(1, 3, False), episode(2, 3)], weight=0.0)
    drawn = buffer.sample(50, beta=1.0)
    assert {int(each.get_observations(0)[0]) for each in drawn} == {0}
    assert all(each.get_extra_model_outputs("weights", 0) == 1.0 for each in drawn)
    buffer.update_priorities(np.zeros(50))
    with pytest.raises(ValueError, match=r"expected shape \(50,\)"):
        buffer.update_priorities(np.ones(3))
    buffer.add(episode(3, 5))
    assert (buffer.get_num_timesteps(), buffer.get_num_episodes(), len(buffer)) == (10, 3, 3)
    assert buffer.get_added_timesteps() == 15
    other = PrioritizedEpisodeReplayBuffer(10)
    other.set_state(buffer.get_state())
    for a, b in zip(buffer.sample(9), other.sample(9), strict=True):
        np.testing.assert_array_equal(a.get_observations(), b.get_observations())
    with pytest.raises(ValueError, match="transitions alone are kept"):
        buffer.sample(1, include_infos=True)
    assert buffer.get_metrics()


@pytest.fixture
def ray() -> Any:
    import ray

    # One of its own: without an address Ray joins a cluster that runs on this machine.
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_an_agent_learns_from_both(ray: Any) -> None:
    config = DQNConfig()
    config.environment("rlcpu:rlcpu/CartPole-v1", env_config={"gravity": 9.0})
    config.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=4,
        gym_env_vectorize_mode="vector_entry_point",
    )
    config.training(
        replay_buffer_config={"type": NAME, "capacity": 1000, "alpha": 0.6, "beta": 0.4},
        num_steps_sampled_before_learning_starts=100,
        n_step=3,
    )
    config.reporting(min_sample_timesteps_per_iteration=200)
    algorithm = config.build_algo()
    found = algorithm.train()
    env = algorithm.env_runner.env.unwrapped
    assert type(env) is VectorEnv
    assert env.gravity == 9.0
    assert type(algorithm.local_replay_buffer) is PrioritizedEpisodeReplayBuffer
    assert algorithm.local_replay_buffer.get_num_timesteps() >= 200
    assert found["env_runners"]["episode_return_mean"] > 8
    algorithm.stop()
