"""How agents act once they are made: they are evaluated, diagnosed, and asked for actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.acting.running import is_one, run_sequences
from rlcpu.envs.contract.scales import LEAST_ROWS
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.rollout.collect import Rollout, collect
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.train.algorithm import Algorithm
from rlcpu.train.keeping.checkpoint import take_env
from rlcpu.train.running.actors import check_masks
from rlcpu.train.running.evaluate import evaluate, fresh_environments
from rlcpu.train.running.evaluations import check_other_env
from rlcpu.translation import answered

if TYPE_CHECKING:
    from rlcpu.train.running.diagnosis import Diagnosis, Evidence

Array = npt.NDArray[Any]
#: Environments, and steps of each, that a diagnosis plays; and numbers of observations at most.
NUM_PLAYED, STEPS_PLAYED, MOST_PLAYED = 8, 512, 2**22


class ActingAgent(Algorithm):
    """Base of `rlcpu.train.agent.Agent`: what is done with an agent beside learning."""

    @answered
    def evaluate(
        self,
        num_episodes: int = 100,
        seed: int = 0,
        deterministic: bool = True,
        *,
        env: VectorEnv | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return the returns (num_episodes,) of new episodes, each of an environment of its own.

        Args:
            num_episodes: how many.
            seed: of the episodes.
            deterministic: take the most likely action, or the best, in place of drawing one.
            env: environments of the same spaces to play in, such as `rlcpu.make_vec(id)`; they are
                not touched. None plays in such as the agent learns in.

        Raises:
            TypeError, ValueError: a bad argument, or `env` is missing to an agent of spaces alone.
        """
        self._undo_interrupted_update()
        played = self.env if env is None else check_other_env(self.env, take_env(env))
        return evaluate(played, self.policy, num_episodes, seed=seed, deterministic=deterministic)

    @answered
    def diagnose(self, *, env: VectorEnv | None = None, seed: int = 0) -> Diagnosis:
        """Say what hampers learning so far, with the settings that answer it.

        The policy plays 4,096 steps in other environments, fewer of images, exploring as it does at
        present, and the replay is looked at. What is learnt from then on is the same, bit for bit.

        Args:
            env: environments to play in; None makes such as the agent learns in. Environments of
                Gymnasium that were given to the agent cannot be made again: then others are needed.
            seed: of the episodes.

        Returns:
            What was found, to print, or to make another agent of: `PPO(env, **diagnosis.settings)`.

        Raises:
            TypeError, ValueError: a bad argument; `env` is missing, or has other spaces; or the
                agent has not learnt for 1,000 steps yet.
            FloatingPointError: observations, rewards or the policy's outputs are not finite.
        """
        from rlcpu.train.running.diagnosis import diagnose

        seed, env = check_seed(seed), check_other_env(self.env, env)
        if self.steps < LEAST_ROWS:
            raise ValueError(
                f"steps={self.steps}: expected an agent that has learnt {LEAST_ROWS:,} at least"
            )
        self._undo_interrupted_update()
        most = MOST_PLAYED // (NUM_PLAYED * env.dynamics.observation_size)
        with fresh_environments(env, NUM_PLAYED, seed) as fresh:
            rollout = collect(fresh, self.policy, max(min(STEPS_PLAYED, most), 32))
        return diagnose(self, self._gather_evidence(rollout))

    def _gather_evidence(self, rollout: Rollout) -> Evidence:
        """Return what a diagnosis is made of; the policy has played the rollout."""
        from rlcpu.train.running.diagnosis import Evidence

        states: Any = rollout.states  # None without memory, and then nobody reads them
        return Evidence(
            rollout,
            outputs=run_sequences(self.policy, "policy", rollout.inputs, states, rollout.starts),
            rewards=self._learnt_rewards(rollout.rewards),
            values=self._values_of(rollout),
            inputs=self._replayed_inputs(rollout.rewards.size),
        )

    @answered
    def predict(
        self,
        observations: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        deterministic: bool = True,
        action_masks: npt.ArrayLike | None = None,
        *,
        state: npt.ArrayLike | None = None,
        starts: npt.ArrayLike | None = None,
    ) -> Any:
        """Return actions for observations.

        Args:
            observations: (n, observation_size), or (n, ...) of the environment's own shape, such as
                (n, 2, 3, 3); of one environment without the first axis; of a `Dict` a mapping of
                its parts, of a `Tuple` a tuple of them.
            deterministic: take the most likely action, or the best, in place of drawing one.
            action_masks: (n, num_actions), or (num_actions,), of bools or zeros and ones: which
                actions are allowed, as `infos["action_mask"]` says; None where all are. Of a
                `MultiDiscrete` there is one for each choice of its first number, then of the next,
                or a tuple of an array for each number.
            state: of an agent with memory what it remembers, (n, state_size) or (state_size,), from
                `initial_state` or the last call.
            starts: (n,) bools, where an episode has begun since, and nothing is remembered; None
                for nowhere.

        Returns:
            Actions (n,) int64 of a `Discrete`, (n, action_size) float32 of a `Box`, within its
            bounds; without the first axis for one observation. Those for an environment of
            Gymnasium are as its own action space has them. Of an agent with memory these, and the
            state for the next call.

        Raises:
            TypeError: the environment has action masks and none are given.
            ValueError: observations, masks or a state have another shape, a mask allows nothing,
                or an agent with memory is given no state.
            FloatingPointError: they, or the policy's parameters, hold NaN or infinity.
        """
        dynamics = self.env.dynamics
        masks = check_masks(dynamics, action_masks)
        try:
            observations = dynamics.policy_observations(observations)
        except ValueError as error:
            raise ValueError(f"observations {error}") from None
        is_single = is_one(observations, self.policy.view)
        self._undo_interrupted_update()
        rng = None if deterministic else self.rng
        if not self.state_size:
            if state is not None or starts is not None:
                raise ValueError(f"state, starts: {type(self).__name__} has no memory")
            actions = self._choose(self.policy.outputs(observations), rng, masks)
            return dynamics.own_actions(actions[0] if is_single else actions)
        if is_single:
            state = np.atleast_2d(state) if state is not None else None
            starts = np.atleast_1d(starts) if starts is not None else None
        outputs, next_state = self.policy.outputs(observations, state, starts)
        actions = self._choose(outputs, rng, masks)
        if is_single:
            return dynamics.own_actions(actions[0]), next_state[0]
        return dynamics.own_actions(actions), next_state

    def initial_state(self, num_envs: int = 1) -> npt.NDArray[np.float32]:
        """Return the state of an agent before episodes, zeros (num_envs, state_size)."""
        return np.zeros((check_count("num_envs", num_envs), self.state_size), np.float32)
