"""Evaluations on the way: which episodes an agent plays meanwhile, leaving no trace in learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.train.keeping.checkpoint import take_env
from rlcpu.train.running.evaluate import EndlessEpisodeError, evaluate
from rlcpu.translation import answered


class Evaluations:
    """Says which evaluations a call of `learn` makes on the way; see `Agent.learn`.

    They are spread evenly over the steps of the call, the last one at the end, also where learning
    ends early. An evaluation happens at the first report at or after its step: of PPO after a
    rollout, of other agents after 500 steps. Where several are due at one report there is one. All
    of them play the same episodes, so that a curve moves because the policy does. They play in
    other environments than those that learn, by a copy of the policy: what is learnt is the same,
    bit for bit. Where an episode does not end, as one of a policy that has not learnt yet may, all
    returns of the evaluation are NaN.

    Args:
        number: how many; one at the end of each of so many equal parts.
        num_episodes: of each.
        seed: of the episodes.
        env: environments to evaluate in, such as `rlcpu.make_vec(id, 1, gravity=5)`; None plays in
            such as the agent learns in. Environments of Gymnasium that were given to the agent
            cannot be made again: then others are needed.

    Raises:
        TypeError, ValueError: a bad argument.

    Example:
        history = agent.learn(100_000, evaluations=Evaluations(20, num_episodes=50))
        print([(each.steps, each.mean_return) for each in history.evaluations])
    """

    @answered
    def __init__(
        self,
        number: int = 20,
        *,
        num_episodes: int = 20,
        seed: int = 0,
        env: Any = None,
    ) -> None:
        self.number = check_count("number", number)
        self.num_episodes = check_count("num_episodes", num_episodes)
        self.seed = check_seed(seed)
        self.env: VectorEnv | None = None if env is None else take_env(env)

    def __repr__(self) -> str:
        where = "" if self.env is None else f", env={self.env!r}"
        return (
            f"Evaluations({self.number}, num_episodes={self.num_episodes}, seed={self.seed}{where})"
        )

    def play(self, env: VectorEnv, policy: Any) -> npt.NDArray[np.float64]:
        """Return the returns (num_episodes,) of a policy in environments of `check_other_env`."""
        try:
            return evaluate(env, policy, self.num_episodes, seed=self.seed)
        except EndlessEpisodeError:
            return np.full(self.num_episodes, np.nan)


def check_other_env(env: VectorEnv, other: VectorEnv | None) -> VectorEnv:
    """Return environments in which an agent that learns in `env` can be evaluated meanwhile.

    Raises:
        ValueError: `other` has other spaces, or is missing where `env` cannot be made again.
    """
    if other is None or other is env:
        if isinstance(env, GymnasiumEnv) and env.dynamics.make is None:
            raise ValueError(
                f"{env!r} was given to the agent and cannot be made again, and to evaluate in it "
                "would change what is learnt: expected other environments to evaluate in, as in "
                "evaluations=rlcpu.train.Evaluations(20, env=...)"
            )
        return env
    for name in ("observation_space", "action_space"):
        theirs, wanted = getattr(other.dynamics, name), getattr(env.dynamics, name)
        if theirs != wanted:
            raise ValueError(
                f"environments to evaluate in have {name}={theirs}, expected that of "
                f"{env.dynamics.id}: {wanted}"
            )
    return other
