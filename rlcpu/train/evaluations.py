"""Evaluations on the way: a callback of `learn` that leaves no trace in what is learnt."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.announce import clock
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.train.evaluate import EndlessEpisodeError, evaluate


class Evaluation(NamedTuple):
    """One evaluation on the way."""

    steps: int  # environment steps of the agent, those that it really was
    seconds: float  # of this call of `learn` until then; no compiling, no evaluating
    returns: npt.NDArray[np.float64]  # (num_episodes,) of deterministic episodes; NaN: see below
    training_return: float  # mean of the last 100 training episodes; NaN before the first ends


class Evaluations:
    """A callback of `learn` that evaluates the agent so many times, the last time at the end.

    An evaluation happens at the first report at or after its step: of PPO and PQN a rollout, of
    other agents 500 steps. Where several are due at one report there is one. All of them play the
    same episodes, so that a curve moves because the policy does. They play in other environments
    than those that learn, by a copy of the policy: what is learnt is the same, bit for bit. Where
    an episode does not end, as one of a policy that has not learnt yet may, all returns of the
    evaluation are NaN.

    Args:
        agent: that learns.
        total_steps: of that call of `learn`.
        number: of evaluations, one at the end of each of so many equal parts.
        num_episodes: of each.
        seed: of the episodes.
        env: environments to evaluate in; None makes such as the agent learns in. Environments of
            Gymnasium that were given to the agent cannot be made again: then others are needed.

    Attributes:
        made: the evaluations so far, a list of `Evaluation`.
        seconds: that they took.

    Raises:
        TypeError, ValueError: a bad argument; or `env` is missing, or has other spaces.

    Example:
        evaluations = Evaluations(agent, 100_000)
        agent.learn(100_000, callback=evaluations)
        print([(each.steps, each.returns.mean()) for each in evaluations.made])
    """

    def __init__(
        self,
        agent: Any,
        total_steps: int,
        *,
        number: int = 20,
        num_episodes: int = 20,
        seed: int = 0,
        env: VectorEnv | None = None,
    ) -> None:
        total_steps = check_count("total_steps", total_steps)
        number = check_count("number", number)
        self.num_episodes = check_count("num_episodes", num_episodes)
        self.seed = check_seed(seed)
        self.agent, self.env = agent, check_other_env(agent.env, env)
        self.made: list[Evaluation] = []
        self.seconds = 0.0
        #: Steps of this call at which evaluations are due.
        self._due = [-(-part * total_steps // number) for part in range(1, number + 1)]

    def __call__(self, progress: Any) -> None:
        """Evaluate if it is time; see `learn`."""
        if not self._due or (progress.steps < self._due[0] and not progress.stopped):
            return
        self._due = [] if progress.stopped else [x for x in self._due if x > progress.steps]
        begin = clock()
        try:
            returns = evaluate(self.env, self.agent.policy, self.num_episodes, seed=self.seed)
        except EndlessEpisodeError:
            returns = np.full(self.num_episodes, np.nan)
        spent, self.seconds = self.seconds, self.seconds + clock() - begin
        seconds = progress.time_total - spent
        self.made.append(
            Evaluation(progress.total_steps, seconds, returns, progress.episode_return)
        )


def check_other_env(env: VectorEnv, other: VectorEnv | None) -> VectorEnv:
    """Return environments in which an agent that learns in `env` can be evaluated meanwhile.

    Raises:
        ValueError: `other` has other spaces, or is missing where `env` cannot be made again.
    """
    if other is None or other is env:
        if isinstance(env, GymnasiumEnv) and env.dynamics.make is None:
            raise ValueError(
                f"{env!r} was given to the agent and cannot be made again, and to evaluate in it "
                "would change what is learnt: expected other environments to evaluate in"
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
