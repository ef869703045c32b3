"""Proximal policy optimisation, wholly in kernels.

Source: Schulman et al. 2017, "Proximal policy optimization algorithms"; in details that the paper
leaves open (normalised advantages, no clipped values, Adam's epsilon) stable-baselines3's PPO.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu import nn
from rlcpu.envs.collect import Rollout
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.networks import MLP, NetworkPolicy, pixel_scales
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.announce import clock
from rlcpu.nn.heads import is_bounded
from rlcpu.scan.recurrences.returns import gae
from rlcpu.train import checkpoint
from rlcpu.train.actors import forbid, reusable
from rlcpu.train.agent import WINDOW, Agent, Call
from rlcpu.train.config import PPOConfig, typed_by
from rlcpu.train.evaluate import evaluate
from rlcpu.train.history import History
from rlcpu.train.objective import Updater, networks_of, ppo
from rlcpu.train.presets import layers_of
from rlcpu.train.sequences import check_length, sequences_of
from rlcpu.train.settings import remaining_of, scheduled
from rlcpu.train.tuned import DEFAULTS, GENERAL, GENERAL_SYMBOLS
from rlcpu.translation import ANSWERS, answered

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arguments(PPOConfig):
    """Keyword arguments of `PPO`, for type checkers."""

    seed: int = 0
    num_threads: int | None = None
    dtype: str = "float32"
    policy: NetworkPolicy | None = None
    config: PPOConfig | None = None


class PPO(Agent):
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

    algorithm = "PPO"
    reported: ClassVar[tuple[str, ...]] = ("policy", "value", "entropy", "kl", "clip_fraction")
    num_kernels = 33
    Config = PPOConfig
    defaults = DEFAULTS
    general: ClassVar[dict[str, PPOConfig]] = {"numbers": GENERAL, "symbols": GENERAL_SYMBOLS}
    config: PPOConfig
    policy: NetworkPolicy
    learner: Updater
    _snapshot: checkpoint.Snapshot | None  # before an update that is not whole yet
    _snapshot_arrays: dict[str, Array]

    @typed_by(_Arguments)
    @answered
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
        seeds = self._begin(
            env, config, settings, seed=seed, num_threads=num_threads, dtype=dtype, num_seeds=3
        )
        self.policy = policy = self._choose_policy(policy, seeds.weights)
        # The user's may have another shape than the settings.
        shape: dict[str, Any] = {"scale_actions": policy.scale_actions}
        if isinstance(policy, MLP):
            shape |= {"hidden": policy.hidden, "activation": policy.activation}
            shape |= {"value": policy.value}
        self.config = self.config.replace(shape)
        networks = self._act_by(self.networks(seeds.weights))
        self._limit_observations()
        check_length(self.config, sum(self.policy.state_sizes.values()))
        dynamics = self.env.dynamics
        self.learner = Updater(
            self.policy,
            self.config,
            seeds.order,
            num_threads or self.env.num_threads,
            masked=dynamics.num_masked > 0,
            choices=dynamics.choices,
            networks=networks,
            algorithm=self.updates(),
            columns=self.column_sizes(),
            losses=type(self._no_losses),
        )
        self._check_reported(self.learner)
        self._snapshot, self._snapshot_arrays = None, {}
        self.history = History()

    def _check_fit(self, dynamics: Dynamics) -> None:
        space: Any = dynamics.action_space
        if not self.config.scale_actions:
            return
        if not isinstance(space, Box) or not is_bounded(space.low, space.high):
            expected = "expected a Box with finite bounds"
            raise ValueError(
                f"scale_actions=True: {dynamics.id} has action_space={space}, {expected}"
            )

    def __repr__(self) -> str:
        shape = repr(self.policy)
        if isinstance(self.policy, MLP):
            shape = f"{'-'.join(map(str, self.policy.sizes))} {self.policy.activation}"
        return (
            f"PPO({self.env.dynamics.id}, seed={self.seed}, num_envs={self.env.num_envs}, "
            f"{shape}, {self.steps:,} steps learnt)"
        )

    def _choose_policy(self, policy: Any, seed: int) -> NetworkPolicy:
        """Return the user's policy, after checks, or a new one."""
        if policy is not None:
            if not isinstance(policy, NetworkPolicy) or policy.value is None:
                hint = ANSWERS.get(policy) if isinstance(policy, str) else None
                expected = hint or "expected an MLP or NetworkPolicy with a value"
                raise TypeError(f"policy={policy!r}: {expected}")
            policy.code(self.env.dynamics)  # raises where it does not fit
            return policy
        spaces = self.env.dynamics.observation_space, self.env.dynamics.action_space
        config, layers = self.config, layers_of(self.config)
        if config.network == "mlp":
            policy = MLP(*spaces, config.hidden, config.activation, config.value, seed)
        else:
            policy = NetworkPolicy.of_layers(*spaces, layers, config.value, seed)
        policy.log_std[:], policy.scale_actions = config.log_std_init, config.scale_actions
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
        """Act by what `networks` returned, and return all that is learnt.

        A subclass may have other networks than the policy: then another policy acts by these.
        """
        if "policy" not in networks:
            raise ValueError(f'networks() returned {", ".join(networks)}: expected "policy"')
        network, policy = networks["policy"], self.policy
        if network.parameters is policy.parameters:
            return networks
        spaces = self.env.dynamics.observation_space, self.env.dynamics.action_space
        self.policy = NetworkPolicy(*spaces, network, networks.get("value", "shared"))
        self.policy.scale_actions = policy.scale_actions
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
        """Return a learner that has the same kernels as every agent of a config, to compile them.

        Args:
            config: whose `network` is "mlp".
            kind: of actions, see `Updater.kind`.
        """
        box = Box(-1.0, 1.0, (1,), np.float32)  # sizes change no kernel: they are the least
        choices: tuple[int, ...] = ()
        actions: Any = Discrete(2)
        if kind == "continuous":
            actions = box
        elif kind[0].isdigit():
            choices = tuple(map(int, kind.split()))
            actions = MultiDiscrete(list(choices))
        policy = MLP(box, actions, (1,), config.activation, config.value)
        return Updater(policy, config, masked=kind == "masked", choices=choices)

    # ------------------------------------------------------------ learning

    @property
    def _kind(self) -> str:  # type: ignore[override]
        return self.learner.kind

    def _read_policy(self) -> None:
        if self.policy.scale_actions != self.config.scale_actions:
            raise ValueError(
                f"policy.scale_actions={self.policy.scale_actions}: the agent is made with "
                f"{self.config.scale_actions}, make another one"
            )
        self.policy.arrays(self.env.dynamics)  # raises where an array has another size
        self.learner.read_policy()

    def _make_progress(self, history: History, call: Call) -> None:
        """Collect a rollout and learn from it.

        After an exception the snapshot, which takes 8 us, two thousandths of CartPole's rollout and
        update, is still there for `_undo_interrupted_update`.
        """
        self._snapshot = checkpoint.take_snapshot(
            self, self._state(), self._read_numbers(), self._snapshot_arrays
        )
        rollout = self._collect(history)
        history.solved = self._is_solved(call.target)
        if not history.solved:
            self._update(rollout, remaining_of(call.schedule, self.steps), history)
        self._add_entry(history, call)
        self._snapshot = None

    def _undo_interrupted_update(self) -> None:
        """Undo an update that an exception interrupted, if there is one.

        It is called where learning ends with an exception, and again by methods that use the agent
        next, for a second Ctrl-C may have interrupted the first call.
        """
        if self._snapshot is not None:
            self.learner.discard()
            checkpoint.restore_snapshot(self, self._state(), self._snapshot)
            self._write_networks()
            self._write_numbers(self._snapshot.numbers)
            self._snapshot = None

    def _collect(self, history: History) -> Rollout:
        """Collect one rollout, and note its episodes in the history."""
        start = clock()
        num_steps = self.config.num_steps
        rollout = self._rollout = self.collect_rollout(
            self.env, self.policy, num_steps, out=reusable(self._rollout, num_steps)
        )
        self._input_watch.add(rollout)
        self.count(rollout.rewards.size, rollout.episode_returns, history)
        history.time_collect += clock() - start
        return rollout

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
        config, size, ones = self.config, rollout.rewards.size, rollout.ones
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
        columns = {  # time-major, see `Updater.improve`
            **self.columns(rollout),
            "observation": rollout.inputs.reshape(size, -1) if ones is None else ones,
            "action": rollout.actions.reshape(size, *rollout.actions.shape[2:]),
            "old_log_prob": rollout.log_probs.ravel(),
            "advantage": estimates.advantages.ravel(),
            "target": estimates.returns.ravel(),
        }
        if rollout.action_masks is not None:
            columns["action_mask"] = rollout.action_masks.reshape(size, -1)
        sequences = None
        if rollout.states is not None:
            sequences = sequences_of(rollout, self.policy, config.sequence_length)
        learning_rate = scheduled(config.learning_rate, config.learning_rate_schedule, remaining)
        clip = scheduled(config.clip_range, config.clip_schedule, remaining)
        self.learner.config = config
        history.losses = self.learner.improve(columns, learning_rate, clip, sequences)
        if config.normalize_observations:
            self.normalizer.normalise(self.policy, rollout.inputs)
        history.time_update += clock() - start

    def _values_of(self, rollout: Rollout) -> Array:
        return rollout.values

    def _choose(self, outputs: Array, rng: Any, masks: Array | None) -> Array:
        outputs, log_std = forbid(outputs, masks), self.policy.log_std
        if rng is not None and log_std.size:
            outputs = outputs + rng.standard_normal(outputs.shape) * np.exp(log_std)
        elif rng is not None:  # the largest of logits and Gumbel noise is drawn by softmax(logits)
            outputs = outputs + rng.gumbel(size=outputs.shape)
        return self.policy.head.actions(outputs)
