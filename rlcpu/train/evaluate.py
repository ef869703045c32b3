"""Returns of a policy over whole episodes."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt

from rlcpu.envs.collect import collect
from rlcpu.envs.networks import MLP
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count

#: Steps of one call of `collect`; an episode without limit is given up after `MOST_STEPS`.
STEPS = 64
MOST_STEPS = 1_000_000
#: Up to here one thread does: two save milliseconds, and their kernel compiles for seconds, once.
FEW_EPISODES = 256


class EndlessEpisodeError(RuntimeError):
    """An episode of an environment without a limit of steps does not come to its end."""


def evaluate(
    env: VectorEnv,
    policy: MLP,
    num_episodes: int = 100,
    *,
    seed: int = 0,
    deterministic: bool = True,
) -> npt.NDArray[np.float64]:
    """Returns of `num_episodes` episodes, the first one of as many new environments.

    Args:
        env: decides dynamics, dtype and limits; it is not touched.
        policy: chooses the actions.
        num_episodes: how many.
        seed: of the episodes.
        deterministic: take the most likely action in place of drawing one.

    Returns:
        (num_episodes,) float64, a function of the arguments alone.

    Raises:
        TypeError, ValueError: num_episodes is no int of at least 1.
        EndlessEpisodeError: an episode does not end.
    """
    num_episodes = check_count("num_episodes", num_episodes)
    fresh = VectorEnv(
        env.dynamics,
        num_episodes,
        dtype=env.dtype.name,
        max_episode_steps=env.max_episode_steps,
        num_threads=1 if num_episodes <= FEW_EPISODES else env.num_threads,
    )
    fresh.reset(seed=[int(s) for s in np.random.SeedSequence(seed).generate_state(num_episodes)])
    returns = np.full(num_episodes, np.nan)
    # A copy that shares the arrays: an interrupt cannot leave the policy itself greedy.
    policy = copy.copy(policy)
    policy.deterministic = deterministic
    rollout = None
    for _ in range(0, MOST_STEPS, STEPS):
        rollout = collect(fresh, policy, STEPS, out=rollout)
        # Later ends come first, so that the first one of an environment is what stays.
        ended = rollout.final_indices[::-1, 1]
        first = np.isnan(returns[ended])
        returns[ended[first]] = rollout.episode_returns[::-1][first]
        if not np.isnan(returns).any():
            return returns
    raise EndlessEpisodeError(
        f"{env.dynamics.id}: an episode did not end within {MOST_STEPS} steps"
    )
