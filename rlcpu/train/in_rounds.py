"""The loop of agents that learn in rounds: explore, collect, store, improve.

A round collects `num_steps` steps of every environment in one call, stores them, and improves the
networks. Ctrl-C waits for its end, so that an interrupted agent has made whole rounds. `PQN`
improves by the rollout itself, see `rlcpu.train.pqn`, all others from a buffer, see
`rlcpu.train.off_policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy.typing as npt

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.rollout.collect import Rollout
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.announce import clock
from rlcpu.nn.learning.learner import Learner
from rlcpu.train.agent import WINDOW, Agent, Call, Seeds, repeatable
from rlcpu.train.keeping.history import History
from rlcpu.train.running.actors import reusable
from rlcpu.train.running.evaluate import EndlessEpisodeError
from rlcpu.train.settings.base import remaining_of, scheduled

Array = npt.NDArray[Any]
#: Episodes of a greedy evaluation that are played first.
FEW = 10
#: Environment steps between two entries of the history, and between two looks at the target.
REPORT_STEPS, LOOK_STEPS = 500, 2000
#: An environment with actions of each kind.
_EXAMPLES = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}


class InRounds(Agent):
    """An agent of one acting network that learns in rounds; base of `OffPolicy` and `PQN`."""

    _per_sample: ClassVar[tuple[str, ...]] = ("error",)
    config: Any
    policy: Any
    learner: Learner
    _evaluated: int  # steps at the last evaluation against the target
    _remaining: float  # share of schedules that remains, 1 to 0

    def _begin_rounds(
        self, env: Any, config: Any, settings: Mapping[str, Any], **options: Any
    ) -> Seeds:
        """Set all but the history of a new agent, see `Agent._begin`, and return its seeds.

        Options are `seed`, `num_threads` and `dtype`.
        """
        seeds = self._begin(env, config, settings, num_seeds=4, **options)
        self.policy = self._make_policy(self.env.dynamics, seeds.weights)
        self._limit_observations()
        networks = self._act_by(self.networks(seeds.order))
        num_threads = options["num_threads"] or self.env.num_threads
        self.learner = self._make_learner(networks, seeds.order, num_threads)
        self._evaluated, self._remaining = 0, 1.0
        return seeds

    def _check_fit(self, dynamics: Dynamics) -> None:
        self.policy = self._make_policy(dynamics, 0)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.env.dynamics.id}, seed={self.seed}, "
            f"num_envs={self.env.num_envs}, {self.policy!r}, {self.steps:,} steps learnt)"
        )

    # ------------------------------------------------------------ what an algorithm brings

    def _act_by(self, networks: dict[str, Any]) -> dict[str, Any]:
        """Act by the first of the networks; ValueError where only others have memory."""
        first_name, first = next(iter(networks.items()))
        if first is not self.policy.network:
            self.policy.use_network(first, self.env.dynamics)
        with_memory = [name for name, each in networks.items() if getattr(each, "state_size", 0)]
        if with_memory and not self.state_size:
            raise ValueError(
                f"networks: {with_memory[0]} has memory and {first_name}, by which the agent acts, "
                "has none; expected both or none"
            )
        return networks

    @property
    def _kind(self) -> str:
        return "discrete" if self.env.dynamics.is_discrete else "continuous"

    @classmethod
    def _example_of(cls, kind: str) -> Dynamics:
        return find(_EXAMPLES[kind])

    @repeatable
    def explore(self) -> None:
        """Set how much the policy explores at the present steps; not called in the random ones.

        Here it is the probability of a random action, by the settings `exploration_...`.
        """
        config = self.config
        first, last = config.exploration_initial, config.exploration_final
        share = min(1.0, self.steps / config.exploration_steps)
        rest = scheduled(first - last, config.exploration_schedule, 1.0 - share)
        self.policy.params[0] = last + rest

    def _options(self) -> dict[str, Any]:
        """Return options of `Learner.update`, the learning rate at least."""
        config = self.config
        rate = scheduled(config.learning_rate, config.learning_rate_schedule, self._remaining)
        return {"learning_rate": rate}

    def _store(self, rollout: Rollout) -> None:
        """Keep what a rollout shows, for `improve`."""
        raise NotImplementedError

    def _can_improve(self) -> bool:
        """Tell whether there is enough to learn from."""
        raise NotImplementedError

    def improve(self) -> Any:
        """Make the updates of a round, and return the losses of the last ones."""
        raise NotImplementedError

    def _choose(self, outputs: Array, rng: Any, masks: Array | None) -> Array:
        return self.policy.choose(outputs, rng, *(() if masks is None else (masks,)))

    # ------------------------------------------------------------ learning

    @property
    def report_steps(self) -> int:
        """Return the environment steps between two calls of callbacks: rounds of 500 steps."""
        size = super().report_steps
        return -(-REPORT_STEPS // size) * size

    def _make_progress(self, history: History, call: Call) -> None:
        """Run rounds for `REPORT_STEPS`, and find out whether the target is reached.

        `_repeat` makes many rounds in the kernel, `_advance` one in Python. A session, which has
        collectors in other processes, makes rounds of its own. `call.rounds.run` lets
        signals wait until the round has ended.
        """
        last = min(call.total_steps, history.steps + REPORT_STEPS)
        # Only processes that hold the replay, too, bring a round of their own.
        advance = getattr(call.session, "advance", self._advance)
        # What a callback may have changed is checked by a round in Python first.
        may_repeat = call.session is None and not call.is_watched
        while history.steps < last:
            before = history.steps
            if may_repeat:
                call.rounds.run(self._repeat, history, last, call)
            if history.steps == before:  # the kernel cannot make these rounds
                self._remaining = remaining_of(call.schedule, self.steps)
                call.rounds.run(advance, history)
            may_repeat = call.session is None
        history.solved = self._is_solved(call.target, history.steps >= call.total_steps)
        self._add_entry(history, call)

    def _give_up(self, history: History) -> None:
        self.learner.discard()
        self.learner.write_networks(self.learner.names[:1])  # of the updates that were made
        history.steps = self.steps - history.steps_before

    def _repeat(self, history: History, last: int, call: Call) -> None:
        """Let a kernel make rounds like the last one, where one can; see `OffPolicy`."""

    @repeatable
    def _advance(self, history: History) -> None:
        """Run one round: collect, store, update."""
        start, config = clock(), self.config
        if self.steps >= getattr(config, "learning_starts", 0):
            self.explore()
        out = reusable(self._rollout, config.num_steps)
        rollout = self._rollout = self.collect_rollout(
            self.env, self.policy, config.num_steps, out=out
        )
        # First, as the values of stored transitions depend on the returns of ended episodes.
        self.count(rollout.rewards.size, rollout.episode_returns, history)
        self._store(rollout)
        now = clock()
        history.time_collect += now - start
        if self._can_improve():
            history.losses = self.improve()
        if config.normalize_observations:  # the next round acts and learns by them
            self.normalizer.normalise(self.policy, rollout.inputs)
        history.time_update += clock() - now

    def _is_solved(self, target: float | None, at_end: bool) -> bool:
        """Tell whether 100 greedy episodes, and 100 others, reach the target on average.

        Every `LOOK_STEPS`, and at the end. Ten episodes are played before these: most evaluations
        end with them, and whole ones would take nearly as long as learning where steps are dear.
        """
        if target is None or not (at_end or self.steps >= self._evaluated + LOOK_STEPS):
            return False
        self._evaluated = self.steps
        seed, other_seed = 2 * self.steps, 2 * self.steps + 1  # which no other evaluation has
        evaluations = (FEW, seed), (WINDOW, seed), (WINDOW, other_seed)
        try:
            return all(self.evaluate(count, seed).mean() >= target for count, seed in evaluations)
        except EndlessEpisodeError:  # of a policy that goes in circles, as early ones may
            return False

    @property
    def num_updates(self) -> int:
        """Return the number of updates so far."""
        return int(self.learner.counters[0])

    # ------------------------------------------------------------ files, see `Agent`

    def _numbers(self) -> dict[str, Any]:
        return {"looked": self._evaluated, "buffer": None}

    def _restore_numbers(self, numbers: dict[str, Any]) -> None:
        self._evaluated = check_count("looked", numbers["looked"], 0)
