"""Returns of a policy over whole episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.policies import as_deterministic
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.alone import SpacesTask
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.envs.rollout.collect import EndlessEpisodeError, play_episodes
from rlcpu.kernels.checks import check_count, check_seed

#: Up to here one thread does: two save milliseconds, and their kernel compiles for seconds, once.
FEW_EPISODES = 256

__all__ = ["EndlessEpisodeError", "evaluate"]


def evaluate(
    env: VectorEnv,
    policy: Any,
    num_episodes: int = 100,
    *,
    seed: int = 0,
    deterministic: bool = True,
) -> npt.NDArray[np.float64]:
    """Return the returns of `num_episodes` episodes, the first one of as many new environments.

    Environments of Gymnasium that were given to an agent cannot be made again: they play the
    episodes themselves, one after the other, and begin new ones afterwards.

    Args:
        env: decides dynamics, dtype and limits; it is not touched.
        policy: chooses the actions.
        num_episodes: how many.
        seed: of the episodes.
        deterministic: take the most likely action in place of drawing one. Policies without that
            choice, `Uniform` and `Scalar`, act as they do.

    Returns:
        (num_episodes,) float64, a function of the arguments alone.

    Raises:
        TypeError, ValueError: num_episodes is no int of at least 1, or seed none of 0 to
            2**128 - 1.
        EndlessEpisodeError: an episode does not end.
    """
    num_episodes, seed = check_count("num_episodes", num_episodes), check_seed(seed)
    policy = as_deterministic(policy, deterministic if hasattr(policy, "deterministic") else None)
    with fresh_environments(env, num_episodes, seed) as fresh:
        returns, *_ = play_episodes(fresh, policy, num_episodes)
    return returns


@contextlib.contextmanager
def fresh_environments(env: VectorEnv, num_envs: int, seed: int) -> Iterator[VectorEnv]:
    """Yield new environments like others, of which nothing is touched, just reset.

    Of Gymnasium's they are as many as there are of these at most, and these themselves where they
    cannot be made again. Spaces alone are a ValueError.
    """
    if isinstance(env.dynamics, SpacesTask):
        raise ValueError(env.dynamics.advice)
    if isinstance(env, GymnasiumEnv):
        context = env.copies(num_envs)
    else:
        context = contextlib.nullcontext(
            VectorEnv(
                env.dynamics.resized(num_envs),
                num_envs,
                dtype=env.dtype.name,
                max_episode_steps=env.max_episode_steps,
                num_threads=1 if num_envs <= FEW_EPISODES else env.num_threads,
            )
        )
    with context as fresh:
        seeds = np.random.SeedSequence(seed).generate_state(fresh.num_envs)
        fresh.reset(seed=[int(each) for each in seeds])
        yield fresh
