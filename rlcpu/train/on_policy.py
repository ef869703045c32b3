"""Agents that learn from each rollout at once: how they act, and the loop.

A rollout is collected, learnt from and forgotten. What interrupts an update undoes all that has
happened since the rollout began, environments included. An algorithm brings its loss, the columns
that it reads, and how an update makes them of a rollout; see `rlcpu.train.ppo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu import nn
from rlcpu.envs.acting.networks import MLP, NetworkPolicy, pixel_scales
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.rollout.collect import Rollout
from rlcpu.kernels.compiler.announce import clock
from rlcpu.nn.learning.learner import Learner
from rlcpu.nn.network.graph import hidden_layers
from rlcpu.nn.network.heads import is_bounded
from rlcpu.train.agent import WINDOW, Agent, Call
from rlcpu.train.keeping import checkpoint
from rlcpu.train.keeping.history import History
from rlcpu.train.running.actors import forbid, reusable
from rlcpu.train.running.evaluate import evaluate
from rlcpu.train.running.sequences import check_length
from rlcpu.train.settings.base import remaining_of
from rlcpu.train.settings.presets import layers_of
from rlcpu.translation import ANSWERS

Array = npt.NDArray[Any]


class OnPolicy(Agent):
    """An agent with a policy and its values, which learns from each rollout at once.

    It is the base of `PPO`, which says what the arguments and attributes are.
    """

    policy: NetworkPolicy
    learner: Learner
    _snapshot: checkpoint.Snapshot | None  # before an update that is not whole yet
    _snapshot_arrays: dict[str, Array]

    def _begin_on_policy(
        self, env: Any, policy: Any, config: Any, settings: Mapping[str, Any], **options: Any
    ) -> None:
        """Make a new agent, see `Agent._begin`; options are `seed`, `num_threads` and `dtype`."""
        seeds = self._begin(env, config, settings, num_seeds=3, **options)
        dynamics = self.env.dynamics
        if policy is not None:
            _check_policy(policy, dynamics)
        self.policy = policy or self._make_policy(dynamics, seeds.weights)
        # The user's may have another shape than the settings.
        shape: dict[str, Any] = {"scale_actions": self.policy.scale_actions}
        if isinstance(policy, MLP):
            shape |= {"hidden": policy.hidden, "activation": policy.activation}
            shape |= {"value": policy.value}
        self.config = self.config.replace(shape)
        networks = self._act_by(self.networks(seeds.weights))
        self._limit_observations()
        check_length(self.config, sum(self.policy.state_sizes.values()))
        num_threads = options["num_threads"] or self.env.num_threads
        self.learner = self._make_learner(networks, seeds.order, num_threads)
        self._snapshot, self._snapshot_arrays = None, {}
        self._begin_history()

    def __repr__(self) -> str:
        shape = repr(self.policy)
        if isinstance(self.policy, MLP):
            shape = f"{'-'.join(map(str, self.policy.sizes))} {self.policy.activation}"
        return (
            f"{self.algorithm}({self.env.dynamics.id}, seed={self.seed}, "
            f"num_envs={self.env.num_envs}, {shape}, {self.steps:,} steps learnt)"
        )

    # ------------------------------------------------------------ policy and networks

    def _make_policy(self, dynamics: Any, seed: int) -> NetworkPolicy:
        """Return a new policy as the settings say."""
        spaces, config = (dynamics.observation_space, dynamics.action_space), self.config
        policy: NetworkPolicy
        if config.network == "mlp":
            policy = MLP(*spaces, config.hidden, config.activation, config.value, seed)
        else:
            policy = NetworkPolicy.of_layers(*spaces, layers_of(config), config.value, seed)
        policy.log_std[:], policy.scale_actions = config.log_std_init, config.scale_actions
        policy.observation_scale[:] = pixel_scales(spaces[0])
        return policy

    def _check_fit(self, dynamics: Dynamics) -> None:
        space: Any = dynamics.action_space
        if not self.config.scale_actions:
            return
        if not isinstance(space, Box) or not is_bounded(space.low, space.high):
            expected = "expected a Box with finite bounds"
            raise ValueError(
                f"scale_actions=True: {dynamics.id} has action_space={space}, {expected}"
            )

    @classmethod
    def _example_of(cls, kind: str) -> Any:
        box = Box(-1.0, 1.0, (1,), np.float32)  # sizes change no kernel: they are the least
        choices = tuple(int(word) for word in kind.split() if word.isdigit())
        actions: Any = MultiDiscrete(list(choices)) if choices else Discrete(2)
        is_masked = kind.endswith("masked")
        is_continuous = kind == "continuous"
        return SimpleNamespace(
            observation_space=box,
            observation_size=1,
            action_space=box if is_continuous else actions,
            action_size=1 if is_continuous else len(choices),
            is_discrete=not is_continuous,
            num_actions=2 if kind in ("discrete", "masked") else 0,
            num_masked=(sum(choices) or 2) if is_masked else 0,
            choices=choices,
        )

    @property
    def _kind(self) -> str:
        """Return "continuous", "discrete" or "masked", or "3 2" or "3 2 masked" of choices."""
        dynamics = self.env.dynamics
        if self.policy.log_std.size:
            return "continuous"
        words = [*map(str, dynamics.choices), *(["masked"] if dynamics.num_masked else [])]
        return " ".join(words) or "discrete"

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

    def _read_policy(self) -> None:
        policy, learner = self.policy, self.learner
        if policy.scale_actions != self.config.scale_actions:
            raise ValueError(
                f"policy.scale_actions={policy.scale_actions}: the agent is made with "
                f"{self.config.scale_actions}, make another one"
            )
        policy.arrays(self.env.dynamics)  # raises where an array has another size
        present = networks_of(policy)
        for name, network in present.items():  # which may be in other arrays than before
            if name in learner.arrays:
                learner.arrays[name] = network
            else:
                learner.networks[learner.names.index(name)].parameters = network.parameters
        learner.read_networks(present)

    def _choose(self, outputs: Array, rng: Any, masks: Array | None) -> Array:
        outputs, log_std = forbid(outputs, masks), self.policy.log_std
        if rng is not None and log_std.size:
            outputs = outputs + rng.standard_normal(outputs.shape) * np.exp(log_std)
        elif rng is not None:  # the largest of logits and Gumbel noise is drawn by softmax(logits)
            outputs = outputs + rng.gumbel(size=outputs.shape)
        return self.policy.head.actions(outputs)

    def _values_of(self, rollout: Rollout) -> Array:
        return rollout.values

    # ------------------------------------------------------------ learning

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
        history.losses = self._losses_of(self._learn_from(rollout, remaining))
        if self.config.normalize_observations:
            self.normalizer.normalise(self.policy, rollout.inputs)
        history.time_update += clock() - start

    def _learn_from(self, rollout: Rollout, remaining: float) -> dict[str, float]:
        """Learn from a rollout, see `_update`; return the learner's report."""
        raise NotImplementedError


def _check_policy(policy: Any, dynamics: Dynamics) -> None:
    """Raise TypeError or ValueError where a user's policy is none for these agents, or no fit."""
    if not isinstance(policy, NetworkPolicy) or policy.value is None:
        hint = ANSWERS.get(policy) if isinstance(policy, str) else None
        expected = hint or "expected an MLP or NetworkPolicy with a value"
        raise TypeError(f"policy={policy!r}: {expected}")
    policy.code(dynamics)  # raises where it does not fit


def networks_of(policy: Any, hidden: bool = False) -> dict[str, Any]:
    """Return a policy's networks and arrays, as `Learner` takes them.

    Args:
        policy: a `NetworkPolicy`; with `hidden` an `MLP`.
        hidden: whether `nets.policy(x)` gives, beside `outputs`, units of the last `hidden` layer.

    Raises:
        ValueError: `hidden` for another policy, or for an `MLP` without hidden layers.
    """
    networks: dict[str, Any] = dict(policy.networks())
    if hidden:
        if not isinstance(policy, MLP) or len(policy.sizes) < 3:
            raise ValueError(
                f"hidden=True, and policy is {policy!r}: expected an MLP with hidden layers; a "
                "policy of other layers has outputs of any name, see `NetworkPolicy`"
            )
        size, *sizes = policy.sizes.tolist()
        units = hidden_layers(sizes[:-1], policy.activation)
        graphs = {"outputs": units >> nn.Dense(sizes[-1]), "hidden": units}
        networks["policy"] = nn.Network(size, graphs, parameters=policy.parameters)
    return {**networks, "log_std": policy.log_std} if policy.log_std.size else networks
