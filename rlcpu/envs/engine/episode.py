"""Episodes: what is counted of the running one, and how a step ends it.

`elapsed`, uint32, are the steps of an environment's episode so far, and `PENDING` from its end
until the next one begins. All else that is counted is in an `Episode`. Engines keep both beside the
state, count by the function of `make_step_episode`, and rollouts record both where an episode ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compiler.compile import define, inline_source

#: Value of `elapsed` for an episode that has finished and not been reset yet. Adding 1 makes it 0.
PENDING = 0xFFFFFFFF
u32 = np.uint32


class Episode(NamedTuple):
    """Counts of the running episode, numbers of the environment's dtype.

    The value of a field here is that before the first step. A further number is a field here, and a
    line in `count_step`: of these, engines of lanes derive their memory, and rollouts what they
    record.
    """

    #: The return so far: the sum of the rewards.
    total: Any = 0.0


@inline_source
def count_step(episode, reward):
    """Return the `Episode` after a step with a reward."""
    return Episode(
        total=episode.total + reward,
    )


FIELDS = Episode._fields
#: Numbers of an `Episode`, and which is the return.
SIZE, TOTAL = len(FIELDS), FIELDS.index("total")


def begin_of(dtype: type) -> Episode:
    """Return an `Episode` before its first step."""
    return Episode(*(dtype(Episode._field_defaults[name]) for name in FIELDS))


class EpisodeStep(NamedTuple):
    """Results of a step for the episode."""

    #: Of the step; 0 where the step only started a new episode.
    reward: Any
    #: Whether and how the episode ended with this step.
    terminated: Any
    truncated: Any
    #: Steps of the episode, and what else is counted, this step included.
    elapsed: Any
    episode: Any
    #: Whether the environment goes on with a new episode, and with which numbers.
    begins: Any
    next_elapsed: Any
    next_episode: Any


@functools.cache
def make_step_episode(dtype: type, same_step: bool, may_wait: bool = True) -> Callable[..., Any]:
    """Make (episode, elapsed, reward, ends, cuts, limit) -> `EpisodeStep`, of plain numbers.

    A finished episode is followed by a new one: in the same step with `same_step`, else in the next
    one, whose reward and ends count for nothing; without `may_wait` the caller has a branch for
    that one. `elapsed` are the steps before this one, `ends` and `cuts` tell whether the
    environment terminates or truncates the episode, and `limit`, uint32, is the number of steps
    after which it is truncated.

    Everything is selected: branches would keep a loop over lanes from vectorising.
    """
    restart, may_wait = make_restart_episode(dtype), may_wait and not same_step
    one, zero, pending, nothing, real = u32(1), u32(0), u32(PENDING), dtype(0), dtype

    @inline_source
    def step_episode(episode, elapsed, reward, ends, cuts, limit):
        waits = elapsed == pending if may_wait else False
        # `limit` is never 0. Where LLVM knows that nothing terminates, its cost model does not find
        # vectors worth it in next-step mode: 13 ns a step of Pendulum instead of 3.
        ends = ends | (limit == zero) if may_wait else ends
        reward = nothing if waits else real(reward)
        counted, elapsed = count_step(episode, reward), u32(elapsed + one)
        terminated = ends & (not waits)
        truncated = (elapsed >= limit) | (cuts & (not waits))
        is_done = terminated | truncated
        begins = is_done if same_step else waits
        end_mark = zero if same_step else pending
        return EpisodeStep(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            elapsed=elapsed,
            episode=counted,
            begins=begins,
            next_elapsed=end_mark if is_done else elapsed,
            next_episode=restart(begins, counted),
        )

    return step_episode


@functools.cache
def make_restart_episode(dtype: type) -> Callable[..., Any]:
    """Make (begins, episode) -> a new `Episode` where one begins, else the running one.

    Its source is `Episode(zero0 if begins else episode.total, ...)`.
    """
    items = ", ".join(f"zero{k} if begins else episode.{name}" for k, name in enumerate(FIELDS))
    zeros = {f"zero{k}": zero for k, zero in enumerate(begin_of(dtype))}
    source = f"def restart(begins, episode): return Episode({items})"
    return inline_source(define(source, Episode=Episode, **zeros))
