"""Rounds of learning that one kernel makes, without Python between them.

A round of a small network takes 50 us in kernels, and three times as long in Python. So after a
round in Python, which checks everything, the kernel of `rlcpu.train.rounds_kernel` makes the next
ones in the same memory, by the same functions: the result is the same, bit for bit. Python goes on
after 50 ms, for the sake of Ctrl-C, and wherever it has something to do: callbacks, evaluations,
numbers that are not finite, and boards with so many ones that networks take all of their cells.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs import repeat as rollouts
from rlcpu.nn.acting import Acting, Job
from rlcpu.nn.columns import make_room
from rlcpu.nn.frame import Share
from rlcpu.nn.layers.embedding import most_ones
from rlcpu.nn.workers import LINE_WORDS, Gate
from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.train.normalise import CLIP
from rlcpu.train.rounds_kernel import (
    CONVERSION_RECORD,
    FROM_BOARDS,
    FROM_CHOICES,
    FROM_FLAGS,
    FROM_INTEGERS,
    NORMALISED,
    NUM_CALLS,
    NUM_WHOLE,
    REASON,
    SCALED,
    SUMMED,
    Boards,
    Clock,
    RoundsPlan,
    Running,
    run_rounds,
)
from rlcpu.train.settings.base import remaining_of, scheduled

Array = npt.NDArray[Any]
f32 = np.float32
#: Minibatches that are drawn, and learnt from, in one call of the learner.
AT_ONCE = 8
#: Calls of the learner, in the rest of `learn`, from which it pays to load the kernel.
LEAST_CALLS = 1000
#: Methods of an agent that the kernel does as this library does them.
_METHODS = (
    "_advance", "_can_improve", "_columns", "_store", "collect_rollout", "count", "explore",
    "improve",
)  # fmt: skip


# ---------------------------------------------------------------- what the kernel can repeat


def can_repeat(agent: Any, rollout: Any, batch: Any, steps_left: int) -> bool:
    """Tell whether the kernel can make rounds like the last one of an agent, and is worth loading.

    `rollout` and `batch` are its last ones, `steps_left` environment steps in the rest of `learn`.
    """
    is_loaded = bool(run_rounds.overloads)
    calls_left = steps_left // rollout.rewards.size * calls_of(agent.config)
    return (
        (calls_left >= LEAST_CALLS or is_loaded)
        and _clock().function != 0  # there is one
        and _has_usual_rounds(agent)
        and _has_usual_learner(agent)
        and type(agent.buffer) in (ReplayBuffer, PrioritizedReplayBuffer)
        and agent.buffer.device == "cpu"
        and not agent.buffer.derive_next  # it stores next observations
        and not _may_be_empty(agent.buffer)
        and rollouts.fits(agent.env, rollout)
        and (not agent.config.normalize_rewards or rollout.rewards.size <= SUMMED)
        and _find_inputs(agent, rollout) is not None
        and _find_conversions(agent, batch) is not None
    )


def _may_be_empty(buffer: Any) -> bool:
    """Tell whether items of a buffer may all have a priority of zero: then Python draws none."""
    if not isinstance(buffer, PrioritizedReplayBuffer):
        return False
    return not buffer.epsilon**buffer.alpha > 0.0


def _has_usual_rounds(agent: Any) -> bool:
    """Tell whether an agent does in each round what the kernel does."""
    config, methods = agent.config, [getattr(type(agent), name) for name in _METHODS]
    schedules = config.learning_rate_schedule, getattr(config, "exploration_schedule", "")
    return (
        all(each.__module__.startswith("rlcpu.") for each in methods)
        and not any(map(callable, schedules))  # the user's functions may ask for anything
        and agent.steps >= config.learning_starts
        # Each call of the learner has as many minibatches as the last one had.
        and (config.num_updates <= AT_ONCE or config.num_updates % AT_ONCE == 0)
    )


def _has_usual_learner(agent: Any) -> bool:
    """Tell whether an agent's learner has updated networks that the kernel can act by."""
    learner = agent.learner
    return (
        learner.last_call is not None
        and learner.dtype is np.float32
        and not any(network.state_size for network in learner.networks)
        and learner.networks[0] is agent.policy.network
    )


#: Kinds of conversions by the dtypes of a drawn field and of a column.
_KINDS: dict[Any, int] = {
    (np.int64, f32): FROM_INTEGERS,
    (np.bool_, f32): FROM_FLAGS,
    (f32, f32): SCALED,
    (np.int32, np.int32): FROM_CHOICES,
    (np.uint32, np.int32): FROM_BOARDS,
}


def _find_conversions(agent: Any, batch: Any) -> Array | None:
    """Return how the learner's columns are made of a drawn batch, (any,) of `CONVERSION_RECORD`.

    The columns are those of the agent's last update, which was given `batch`. None if Python made
    one in a way that the kernel does not know. Of choices and boards a column has the form of
    `rlcpu.nn.layers.embedding.Ones`: `column.array` are the places of ones, a single one of a
    choice, and `column.starts` where those of each sample start.
    """
    conversions = []
    attributes = {"weight": batch.weights, "discount": batch.discounts}
    for name, column in agent.learner.last_call.columns.items():
        drawn = attributes[name] if name in attributes else batch[name]
        # None is the same for all samples; or the learner reads the batch itself.
        if drawn is None or drawn.ctypes.data == column.array.ctypes.data:
            continue
        kind = _kind_of(name, drawn, column, agent.config)
        if kind is None:
            return None
        least = agent.env.view.start[0] if kind == FROM_CHOICES else 0  # the smallest choice
        starts = column.starts.ctypes.data if kind == FROM_BOARDS else 0
        addresses = drawn.ctypes.data, column.array.ctypes.data
        conversions.append((kind, *addresses, column.array.size, least, starts))
    return np.array(conversions, CONVERSION_RECORD)


def _kind_of(name: str, drawn: Array, column: Any, config: Any) -> int | None:
    """Return the kind of conversion of a drawn field to a column; None if there is none.

    `column` is one of the learner's, see `_find_conversions`, `name` its name.
    """
    kind = _KINDS.get((drawn.dtype.type, column.array.dtype.type))
    if kind in (FROM_CHOICES, FROM_BOARDS) and config.normalize_observations:
        return None  # normalised, a 1 becomes another number, and a list of ones will not do
    # A board is drawn as words of bits, and how many ones they hold differs from batch to batch.
    if kind != FROM_BOARDS and drawn.size != column.array.size:
        return None
    if kind == SCALED:  # a changed copy: how it was changed is known of rewards alone
        reward_kind = NORMALISED if config.normalize_rewards else SCALED
        return reward_kind if name == "reward" else None
    return kind


def _find_inputs(agent: Any, rollout: Any) -> Array | None:
    """Return the observations of a rollout that are added to the agent's statistics, (n, size).

    They are (0, 0) if observations are not normalised; None if the kernel cannot add them: each
    rollout has a new array of them, or they are one column of more than `SUMMED` numbers.
    """
    if not agent.config.normalize_observations:
        return np.zeros((0, 0), np.float32)
    inputs: Array = rollout.inputs
    inputs = inputs.reshape(-1, inputs.shape[-1])
    is_in_place = inputs.base is not None and inputs.flags.c_contiguous
    is_in_place &= np.shares_memory(inputs, rollout.records.observations)
    is_summed = inputs.shape[1] > 1 or len(inputs) <= SUMMED
    return inputs if is_in_place and is_summed else None


@functools.cache
def _clock() -> Clock:
    """Return a clock that never goes back."""
    try:
        function, number = ctypes.CDLL(None).clock_gettime, time.CLOCK_MONOTONIC
    except (AttributeError, OSError, TypeError):  # Windows
        return Clock(0, 0)
    return Clock(ctypes.cast(function, ctypes.c_void_p).value or 0, number)


def calls_of(config: Any) -> int:
    """Return how often a round draws from the buffer, and calls the learner."""
    return int(-(-config.num_updates // AT_ONCE))


# ---------------------------------------------------------------- calls of the kernel


class RoundsResult(NamedTuple):
    """Results of rounds of the kernel."""

    num_whole: int  # rounds that are whole
    stopped: int  # `rounds_kernel.WHOLE`, or why one more round stopped before its end
    returns: Array  # (any,) float64, of episodes that ended
    times: list[float]  # seconds of collecting and of updating
    calls: int  # of the learner in the round that stopped


def make_rounds(
    agent: Any, rollout: Any, batch: Any, max_rounds: int, schedule: tuple[int, int]
) -> RoundsResult:
    """Make rounds like the one that an agent has just made, until 50 ms are over.

    Args:
        agent: for which `can_repeat` is true; its policy, buffer and learner go on.
        rollout: the agent's last; overwritten with that of the last round.
        batch: the agent's last; overwritten.
        max_rounds: rounds at most.
        schedule: steps of the agent at which schedules begin and end.
    """
    learner, last_update = agent.learner, agent.learner.last_call
    arguments = rollouts.arguments_with(agent.env, rollout, _find_job(agent))
    repeat = rollouts.open_repeat(agent.env, rollout, arguments, max_rounds)
    plan = _plan_rounds(agent, rollout, batch, max_rounds, schedule)
    sources, errors = rollouts.sources_of(repeat, rollout), learner.per_sample["error"]
    with agent.buffer.looping(batch, sources, rollout.rewards.size, errors) as loop:

        def run(worker: int) -> None:
            share = Share.of(real=f32)(
                worker=worker, workers=last_update.workers, frame=last_update.frame
            )
            run_rounds(max_rounds, share.address, last_update.update, repeat, loop, plan)

        learner.helpers.run(last_update.workers, run)
    rollout.renew(agent.policy, agent.env.engine.last_runner)
    results = plan.results.tolist()
    return RoundsResult(
        num_whole=results[NUM_WHOLE],
        stopped=results[REASON],
        returns=repeat.returns[: repeat.ended[0]],
        times=(plan.times * 1e-9).tolist(),
        calls=results[NUM_CALLS],
    )


def _find_job(agent: Any) -> Job:
    """Return the policy network as rollouts run it, over the learner's own parameters.

    So nothing is copied after an update. The network is the learner's number 0. Its parameters lie
    in the learner's vector twice: as users have them, from `layout.begins[0]` on, and behind these
    packed for kernels.
    """
    learnt, layout = agent.learner.learnt, agent.learner.layout
    packed_at = layout.begins[0] + layout.free[0]  # `free`: how many the first are
    acting: Acting = agent.policy.arrays(agent.env.dynamics).network
    copies_at, plan = layout.copies_begins[0], acting.plan
    return acting.job_with(
        learnt.parameters[packed_at : packed_at + plan.parameters],
        learnt.copies[copies_at : copies_at + plan.copies],
    )


def _plan_rounds(
    agent: Any, rollout: Any, batch: Any, max_rounds: int, schedule: tuple[int, int]
) -> RoundsPlan:
    """Return the plan of rounds; arguments are those of `make_rounds`."""
    size, rewards = rollout.rewards.size, agent.rewards
    round_params, round_rates = _schedule_rounds(agent, max_rounds, size, schedule)
    num_returns = size if agent.config.normalize_rewards else 0
    boards = _make_room(agent, batch)  # in front of `_find_conversions`: it may move columns
    return RoundsPlan(
        params=agent.policy.params,
        round_params=round_params,
        round_rates=round_rates,
        conversions=_find_conversions(agent, batch),
        boards=boards,
        reward_scale=f32(getattr(agent.config, "reward_scale", 1.0)),
        calls=calls_of(agent.config),
        gate=Gate(np.zeros(LINE_WORDS, np.int64), np.zeros(LINE_WORDS, np.int64)),
        results=np.zeros(4, np.int64),
        times=np.zeros(2, np.int64),
        observations=Running(_find_inputs(agent, rollout), **agent.normalizer.state()),
        shift=agent.policy.observation_mean,
        scale=agent.policy.observation_scale,
        rewards=Running(np.empty((num_returns, 1)), **rewards.statistics.state()),
        returns=rewards.returns,
        gamma=float(agent.config.gamma),
        max_reward=float(CLIP * agent.config.n_step),
        scratch=np.empty(size),
        clock=_clock(),
    )


def _schedule_rounds(
    agent: Any, num_rounds: int, size: int, schedule: tuple[int, int]
) -> tuple[Array, Array]:
    """Return the policy's params and the learning rates in each of the next rounds.

    `size` counts the steps of a round. The agent is asked as in rounds of Python, by its own count
    of steps, which is restored. Its policy's params are overwritten with those of the last round.

    Returns:
        (num_rounds, params) float32, and (num_rounds, updates) of the learner's dtype.
    """
    config, params, learner, before = agent.config, agent.policy.params, agent.learner, agent.steps
    round_params = np.empty((num_rounds, params.size), np.float32)
    round_rates = np.empty((num_rounds, len(learner.updates)), learner.dtype)
    try:
        for number in range(num_rounds):
            agent.steps = before + number * size
            agent.explore()
            round_params[number] = params
            remaining = remaining_of(schedule, agent.steps)
            round_rates[number] = scheduled(
                config.learning_rate, config.learning_rate_schedule, remaining
            )
    finally:
        agent.steps = before
    return round_params, round_rates


def _make_room(agent: Any, batch: Any) -> Boards:
    """Give columns of boards room for the ones of any batch, and return the sizes of boards.

    Boards have `view.size`: (planes, rows, columns).
    """
    view, last_update = agent.env.view, agent.learner.last_call
    if view.kind != "planes":
        return Boards(samples=0, planes=0, cells=0, too_many=0)
    planes, cells, samples = view.size[0], math.prod(view.size[1:]), len(batch)
    too_many = most_ones(samples, planes * cells) + 1
    # The kernel stops behind the board that makes them too many: so room for one more board.
    make_room(last_update.columns, last_update.frame.batch.columns, too_many + planes * cells)
    return Boards(samples, planes, cells, too_many)
