"""RLlib steps our environments, where it is installed: pip install "ray[rllib]" torch."""

from __future__ import annotations

from typing import Any

import pytest

from rlcpu.envs import VectorEnv

pytestmark = pytest.mark.filterwarnings("ignore")  # ray warns of itself


@pytest.fixture
def ray() -> Any:
    pytest.importorskip("ray.rllib", exc_type=ImportError)  # ray alone lacks what it needs
    import ray

    # One of its own: without an address Ray joins a cluster that runs on this machine.
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_an_agent_learns_from_our_environments(ray: Any) -> None:
    from ray.rllib.algorithms.dqn import DQNConfig

    config = DQNConfig()
    config.environment("rlcpu:rlcpu/CartPole-v1", env_config={"gravity": 9.0})
    config.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=4,
        gym_env_vectorize_mode="vector_entry_point",
    )
    config.training(num_steps_sampled_before_learning_starts=100)
    config.reporting(min_sample_timesteps_per_iteration=200)
    algorithm = config.build_algo()
    found = algorithm.train()
    env = algorithm.env_runner.env.unwrapped
    assert type(env) is VectorEnv
    assert env.gravity == 9.0
    assert found["env_runners"]["episode_return_mean"] > 8
    algorithm.stop()
