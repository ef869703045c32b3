"""Proximal policy optimisation, wholly in kernels.

Source: Schulman et al. 2017, "Proximal policy optimization algorithms"; in details that the paper
leaves open (normalised advantages, no clipped values, Adam's epsilon) stable-baselines3's PPO.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from rlcpu import nn
from rlcpu.envs.collect import Rollout, collect
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.networks import MLP, NetworkPolicy, pixel_scales
from rlcpu.envs.registration import make_vec
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels import announce
from rlcpu.kernels.announce import clock
from rlcpu.kernels.checks import check_count, check_seed
from rlcpu.scan.recurrences.returns import gae
from rlcpu.train import checkpoint
from rlcpu.train.actors import forbid, inputs_of, memory_for
from rlcpu.train.config import (
    PPOConfig,
    at,
    check_env,
    check_learning,
    check_schedule,
    choose_config,
    default_config,
    left_of,
    typed_by,
)
from rlcpu.train.evaluate import evaluate
from rlcpu.train.history import History, LearningBar, Progress
from rlcpu.train.normalise import Normalizer, RewardNormalizer
from rlcpu.train.objective import RolloutBatch, Updater, networks_of, ppo
from rlcpu.train.precompile import describe, precompiled
from rlcpu.train.presets import layers_of
from rlcpu.train.sequences import SampleSequences, check_length, sequences_of

Array = npt.NDArray[Any]
#: Training episodes that a mean return is taken over, and episodes of a greedy evaluation.
WINDOW = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arguments(PPOConfig):
    """Keyword arguments of `PPO`, for type checkers."""

    seed: int = 0
    num_threads: int | None = None
    dtype: str = "float32"
    policy: NetworkPolicy | None = None
    config: PPOConfig | None = None


class PPO(checkpoint.Agent):
    """An agent that learns by proximal policy optimisation.

    Every field of `PPOConfig`, such as `learning_rate`, is a keyword argument too.

    Args:
        env: id of a registered environment, a `Dynamics`, or a `VectorEnv` (which the agent
            resets).
        seed: the whole run is a function of it, whatever the number of threads.
        num_threads: threads at most; None takes all of numba's.
        dtype: of the simulation; the networks compute in float32.
        policy: an `MLP` with a value, to go on from; None makes a new one.
        config: all settings at once; None takes the environment's default ones.
        **settings: fields of the config that are to be different; None changes nothing.

    Attributes:
        env, policy, config, seed: see above.
        steps: environment steps so far, over all calls of `learn`.
        history: of the last call of `learn`, or of the present one.
        ledger: `rlcpu.distributed.Ledger` of the last call with `num_collectors`; else None.

    Raises:
        TypeError, ValueError: a bad argument, with its name and value.

    Example:
        >>> from rlcpu.train import PPO
        >>> agent = PPO("CartPole-v1", seed=0)
        >>> agent.learn(2048).steps
        2048
    """

    ledger: Any = None

    algorithm = "PPO"
    reported: ClassVar[tuple[str, ...]] = ("policy", "value", "entropy", "kl", "clip_fraction")
    #: Kernels that an agent of usual settings needs.
    num_kernels = 35
    Config = PPOConfig
    config: PPOConfig
    policy: NetworkPolicy
    updater: Updater
    normalizer: Normalizer
    rewards: RewardNormalizer
    history: History

    @typed_by(_Arguments)
    def __init__(
        self,
        env: str | Dynamics | VectorEnv,
        *,
        seed: int = 0,
        num_threads: int | None = None,
        dtype: str = "float32",
        policy: NetworkPolicy | None = None,
        config: PPOConfig | None = None,
        **settings: Any,
    ) -> None:
        seed = check_seed(seed)
        env = check_env(env)
        dynamics = env if isinstance(env, Dynamics) else env.dynamics
        usual = self._usual(default_config(dynamics))
        config = choose_config(type(self), env, config, usual, settings)
        announce.expect(dynamics.id, self.num_kernels)
        if isinstance(env, Dynamics):
            env = make_vec(env, config.num_envs, dtype=dtype, num_threads=num_threads)
        self.env, self.config, self.seed, self.steps = env, config, seed, 0
        streams = np.random.SeedSequence(self.seed).generate_state(3 + env.num_envs, np.uint64)
        env.reset(seed=streams[3:].tolist())
        self.policy = policy = self._take_policy(policy, int(streams[0]))
        if isinstance(policy, MLP):
            shape = {"hidden": policy.hidden, "activation": policy.activation}
            self.config = self.config.replace({**shape, "value": policy.value})
        networks = self._act_by(self.networks(int(streams[0])))
        check_length(self.config, sum(self.policy.state_sizes.values()))
        threads = num_threads or env.num_threads
        masked, choices = env.dynamics.num_masked > 0, env.dynamics.choices
        self.updater = Updater(
            self.policy,
            self.config,
            int(streams[1]),
            threads,
            masked=masked,
            choices=choices,
            networks=networks,
            algorithm=self.updates(),
            columns=self.column_sizes(),
            losses=type(self._no_losses),
        )
        self._check_reported(self.updater)
        self.normalizer = Normalizer(env.dynamics.observation_size)
        self.rewards = RewardNormalizer(env.num_envs)
        self.rng = np.random.default_rng(int(streams[2]))
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self._schedule = (0, 1)
        self._rollout: Rollout | None = None
        self._before: checkpoint.Snapshot | None = None
        self._snapshot_arrays: dict[str, Array] = {}
        self.history = History()

    def __repr__(self) -> str:
        shape = repr(self.policy)
        if isinstance(self.policy, MLP):
            shape = f"{'-'.join(map(str, self.policy.sizes))} {self.policy.activation}"
        return (
            f"PPO({self.env.dynamics.id}, seed={self.seed}, num_envs={self.env.num_envs}, "
            f"{shape}, {self.steps:,} steps learnt)"
        )

    def _take_policy(self, policy: Any, seed: int) -> NetworkPolicy:
        """Return the given policy, after checks, or a new one."""
        if policy is not None:
            if not isinstance(policy, NetworkPolicy) or policy.value is None:
                raise TypeError(f"policy={policy!r}: expected an MLP or NetworkPolicy with a value")
            policy.code(self.env.dynamics)
            return policy
        spaces = self.env.single_observation_space, self.env.single_action_space
        config, made = self.config, layers_of(self.config)
        if config.network == "mlp":
            policy = MLP(*spaces, config.hidden, config.activation, config.value, seed)
        else:
            policy = NetworkPolicy.of_layers(*spaces, made, config.value, seed)
        policy.log_std[:] = config.log_std_init
        policy.observation_scale[:] = pixel_scales(spaces[0])
        return policy

    # ------------------------------------------------------------ what a subclass may bring

    def networks(self, seed: int) -> dict[str, Any]:
        """Return the networks to be learnt, by name: the policy's, and any others.

        A subclass may bring another network "policy" to act by, and "value", or no "value" where
        the last output is the value; see `rlcpu.policies.NetworkPolicy`.
        """
        return networks_of(self.policy)

    def _act_by(self, networks: dict[str, Any]) -> dict[str, Any]:
        """Act by networks that a subclass has brought; returns them with what is learnt beside."""
        if "policy" not in networks:
            raise ValueError(f'networks() returned {", ".join(networks)}: expected "policy"')
        network, policy = networks["policy"], self.policy
        if network.parameters is policy.parameters:
            return networks
        spaces = self.env.single_observation_space, self.env.single_action_space
        self.policy = NetworkPolicy(*spaces, network, networks.get("value", "shared"))
        self.policy.log_std = networks.get("log_std", policy.log_std)
        return {**networks, "log_std": self.policy.log_std} if policy.log_std.size else networks

    def updates(self) -> list[nn.Update]:
        """Return the losses that an update minimises, in order."""
        return [nn.Update(ppo)]

    def column_sizes(self) -> dict[str, int]:
        """Return further columns of the batch, and how many numbers of a sample each has."""
        return {}

    def columns(self, rollout: Rollout) -> dict[str, Array]:
        """Return the further columns of a rollout, (T * N,) or (T * N, size), time-major."""
        return {}

    @classmethod
    def learner_of(cls, config: PPOConfig, kind: str) -> Updater:
        """Return a learner with the kernels of all agents of a config, see `Updater.kind`."""
        choices = tuple(map(int, kind.split())) if kind[0].isdigit() else ()
        actions: Space[Any] = MultiDiscrete(list(choices)) if choices else Discrete(2)
        seen = Box(-1.0, 1.0, (1,), np.float32)
        actions = seen if kind == "continuous" else actions
        policy = MLP(seen, actions, (1,), config.activation, config.value)
        return Updater(policy, config, masked=kind == "masked", choices=choices)

    # ------------------------------------------------------------ learning

    def learn(
        self,
        total_steps: int | float,
        *,
        callback: Callable[[Progress], bool | None] | None = None,
        target_return: float | None = None,
        progress: bool = False,
        num_collectors: int | None = None,
        address: str | None = None,
        schedule: tuple[int, int] | None = None,
    ) -> History:
        """Collect and update until the steps are used up, the target is reached, or told to stop.

        Args:
            total_steps: environment steps, rounded up to whole rollouts; schedules run over them.
            callback: called after every rollout and its update; learning stops when it returns
                False.
            target_return: stop once the mean return of the last 100 training episodes has reached
                it and that of 100 greedy episodes is above it by three standard errors.
            progress: show a bar on standard error, or a line now and then where it is a file.
            num_collectors: processes that act, on Ray, each with a part of the environments; None
                acts here. The result is the same.
            address: of a Ray cluster; None for this machine.
            schedule: total steps of the agent, over all calls, between which schedules run; None
                for those of this call.

        Returns:
            What was reached; `agent.history` is the same, also while learning goes on.

        Raises:
            TypeError, ValueError: a bad argument.
            FloatingPointError: a reward, observation, loss or parameter became NaN or infinite.

        After these, and after Ctrl-C and an exception in the callback, the agent is what it was
        after its last whole update, environments included: `history` holds the curve so far, `save`
        saves it, and the next `learn` goes on from there. Where an environment showed NaN it would
        do so again: `agent.env.reset()` starts other episodes.
        """
        total_steps = check_count("total_steps", total_steps)
        check_learning(callback, target_return, num_collectors, address=address)
        self._schedule = check_schedule(schedule, self.steps, total_steps)
        self._finish_going_back()
        history = self.history = History(losses=self._no_losses, steps_before=self.steps)
        start, compiled = clock(), announce.seconds()
        rollout_steps = self.config.num_steps * self.env.num_envs
        expected = -(-total_steps // rollout_steps) * rollout_steps
        bar = LearningBar(self.env.dynamics.id, expected, target_return) if progress else None
        others: Any = contextlib.nullcontext()
        if num_collectors is not None:
            from rlcpu.distributed.rollouts import RolloutSession

            others = RolloutSession(self, num_collectors=num_collectors, address=address)
        ahead = precompiled(self.updater, describe(self, self.updater.kind))
        try:
            with others, ahead, bar or contextlib.nullcontext():
                # Whoever has written to the policy meanwhile goes on from there.
                self.policy.arrays(self.env.dynamics)
                self.updater.read_policy()
                while not history.stopped:
                    self._advance(history, start, total_steps, target_return)
                    history.time_compile = announce.seconds() - compiled
                    if bar is not None:
                        bar.tell(history, history.time_total)
                    if callback is not None and callback(history) is False and not history.stopped:
                        history.stopped = "callback"
        except BaseException as error:
            self._finish_going_back()
            history.stopped = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
            raise
        return history

    def _advance(
        self, history: History, start: float, total_steps: int, target: float | None
    ) -> None:
        """Collect a rollout and learn from it: wholly, or an exception leaves what is to be undone.

        The snapshot takes 8 us, two thousandths of CartPole's rollout and update.
        """
        self._before = checkpoint.take_snapshot(self, self._snapshot_arrays)
        rollout = self._collect(history)
        history.solved = self._is_solved(target)
        if not history.solved:
            self._update(rollout, left_of(self._schedule, self.steps), history)
        history.time_total = clock() - start
        history.add()
        self._before = None
        if history.solved:
            history.stopped = "solved"
        elif history.steps >= total_steps:
            history.stopped = "steps"

    def _finish_going_back(self) -> None:
        """Undo an update that did not come to its end.

        It is called where learning ends with an exception, and again by what uses the agent next,
        for a second Ctrl-C may have come meanwhile.
        """
        if self._before is not None:
            checkpoint.go_back(self, self._before)
            self._before = None

    def _collect(self, history: History) -> Rollout:
        """Collect one rollout, and note its episodes in the history."""
        start = clock()
        num_steps = self.config.num_steps
        rollout = self._rollout = self.collect_rollout(
            self.env, self.policy, num_steps, out=memory_for(self._rollout, num_steps)
        )
        self.returns.extend(rollout.episode_returns.tolist())
        self.steps += rollout.rewards.size
        history.steps += rollout.rewards.size
        history.episodes += len(rollout.episode_returns)
        history.episode_return = float(np.mean(self.returns)) if self.returns else float("nan")
        history.time_collect += clock() - start
        return rollout

    def collect_rollout(self, *args: Any, out: Rollout | None) -> Rollout:
        """Call `rlcpu.collect`; collectors in other processes take its place."""
        return collect(*args, out=out)

    def _is_solved(self, target: float | None) -> bool:
        """Tell whether training episodes and a greedy evaluation reach the target.

        A policy that does well with sampled actions does not always do so greedily. 100 greedy
        episodes cost as much as two or three rollouts, and only once the first condition holds;
        their mean has to be three standard errors above the target, so that other episodes agree.
        """
        if target is None or len(self.returns) < WINDOW or np.mean(self.returns) < target:
            return False
        returns = evaluate(self.env, self.policy, WINDOW, seed=self.steps)
        return bool(returns.mean() - 3.0 * returns.std() / np.sqrt(WINDOW) >= target)

    def _update(self, rollout: Rollout, remaining: float, history: History) -> None:
        """Learn from one rollout, with `remaining` of the schedules left, and note the losses."""
        start = clock()
        config = self.config
        estimates = gae(
            self._rewards_of(rollout),
            rollout.values,
            rollout.terminated,
            rollout.truncated,
            rollout.last_values,
            gamma=config.gamma,
            lambda_=config.lambda_,
            final_values=rollout.final_values,
        )
        masks = rollout.action_masks
        batch = RolloutBatch(
            inputs_of(rollout),
            rollout.actions.reshape(rollout.rewards.size, *rollout.actions.shape[2:]),
            rollout.log_probs.ravel(),
            estimates.advantages.ravel(),
            estimates.returns.ravel(),
            None if masks is None else masks.reshape(rollout.rewards.size, -1),
            None if rollout.states is None else self._sequences(rollout),
        )
        learning_rate = at(config.learning_rate, config.learning_rate_schedule, remaining)
        clip = at(config.clip_range, config.clip_schedule, remaining)
        self.updater.config = config
        history.losses = self.updater.improve(batch, learning_rate, clip, self.columns(rollout))
        if config.normalize_observations:
            self.normalizer.normalise(self.policy, rollout.inputs)
        history.time_update += clock() - start

    def _sequences(self, rollout: Rollout) -> SampleSequences:
        return sequences_of(rollout, self.policy, self.config.sequence_length)

    def _actions_of(
        self, observations: npt.ArrayLike, greedy: bool, masks: Array | None, memory: Any = None
    ) -> Any:
        self._finish_going_back()
        if memory is None:
            return self._draw(self.policy.outputs(observations), greedy, masks)
        outputs, after = self.policy.outputs(observations, *memory)
        return self._draw(outputs, greedy, masks), after

    def _draw(self, outputs: Array, greedy: bool, masks: Array | None) -> Array:
        """Return actions for outputs of the policy's network."""
        outputs = forbid(outputs, masks)
        if not greedy:
            stds = np.exp(self.policy.log_std)
            is_choice = stds.size == 0
            outputs = outputs + (
                self.rng.gumbel(size=outputs.shape)
                if is_choice
                else self.rng.standard_normal(outputs.shape) * stds
            )
        return self.policy.head.actions(outputs)

    def evaluate(
        self, num_episodes: int = 100, seed: int = 0, deterministic: bool = True
    ) -> npt.NDArray[np.float64]:
        """Return the returns (num_episodes,) of new episodes; see `rlcpu.train.evaluate`."""
        self._finish_going_back()
        return evaluate(self.env, self.policy, num_episodes, seed=seed, deterministic=deterministic)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the agent; see `rlcpu.train.checkpoint.Agent.save`."""
        self._finish_going_back()
        super().save(path)

    def _parts(self) -> dict[str, Any]:
        policy = self.policy
        self.env.engine.carry(policy.mark, sum(policy.state_sizes.values()))
        parts = {"policy": self.policy, "learner": self.updater, "env": self.env.engine}
        return {**parts, "normalizer": self.normalizer, "rewards": self.rewards}
