"""Rounds of learning that one kernel makes, without Python between them.

A round of a small network takes 50 us in kernels, and three times as long in Python. So after a
round in Python, which checks everything, a kernel makes the next ones in the same memory: the same
functions collect, store, draw, learn and give priorities, called by address or inlined, and the
result is the same, bit for bit. Python goes on after 50 ms, for the sake of Ctrl-C, and wherever it
has something to do: callbacks, evaluations, and numbers that are not finite. Of several threads one
makes the rounds, and all share each update.
"""

from __future__ import annotations

import ctypes
import functools
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs import repeat as rollouts
from rlcpu.kernels.calls import view
from rlcpu.kernels.compile import EXACT, kernel, merge
from rlcpu.kernels.memory import address, array_at, call_at
from rlcpu.nn.update import FAULT, STEPS, Frame, Share
from rlcpu.nn.workers import LINE, Gate, close_gate, dismiss, enter, leave, next_call, open_gate
from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.train.normalise import CLIP

Array = npt.NDArray[Any]
#: Minibatches that are drawn, and learnt from, in one call.
AT_ONCE = 8
#: Nanoseconds after which Python goes on.
LONGEST = 50_000_000
#: Calls of the learner, in the rest of `learn`, from which it pays to load the kernel.
LEAST_CALLS = 1000
#: Why the kernel stopped: rounds are whole, or the last one has numbers that are not finite.
WHOLE, BAD_ROLLOUT, BAD_LOSS, BAD_PRIORITY = range(4)
#: How a column of the learner is made of what was drawn.
FROM_WHOLE, FROM_FLAG, SCALED, COPIED, NORMALISED = range(5)
#: Numbers that NumPy adds up in eight sums, and no more.
SUMMED = 128
f32 = np.float32


class Running(NamedTuple):
    """A `rlcpu.train.normalise.Normalizer`, and numbers that each round adds.

    Attributes:
        rows: (n, size), these; (0, 0) where nothing is normalised.
        count: (1,) int64, rows so far.
        mean, squares: (size,) float64.
    """

    rows: Any
    count: Any
    mean: Any
    squares: Any


class RoundsPlan(NamedTuple):
    """Numbers that rounds need besides rollouts, the buffer and the learner.

    Attributes:
        params: of the policy's head.
        explorations: (most rounds, params.size) float32, what these are in each round.
        rates: (most rounds, num_updates), learning rates in each round.
        columns: (any, 4) int64, how a column is made, addresses of what is drawn and of the column,
            and how many numbers.
        reward_scale: float32.
        calls: of the learner in a round.
        gate: of the updates, which helpers pass.
        results: (3,) int64: whole rounds, why the kernel stopped, and how many workers lost
            patience (see `rlcpu.nn.workers.wait`), after which the leader is alone.
        times: (2,) int64, nanoseconds of collecting and of updating.
        observations: what normalises them.
        shift, scale: (size,) float32, by which networks see observations normalised.
        rewards: what normalises them, by returns.
        returns: (num_envs,) float64, discounted, of the running episodes.
        gamma: discount of these.
        largest: of a normalised reward.
        scratch: (n,) float64.
        clock: address of C's `clock_gettime`, and the number of the clock.
    """

    params: Any
    explorations: Any
    rates: Any
    columns: Any
    reward_scale: Any
    calls: Any
    gate: Any
    results: Any
    times: Any
    observations: Any
    shift: Any
    scale: Any
    rewards: Any
    returns: Any
    gamma: Any
    largest: Any
    scratch: Any
    clock: Any


# ---------------------------------------------------------------- the kernel


@merge
def _now(clock, place):
    """Return nanoseconds; `place` is (2,) int64, scratch."""
    call_at(clock[0], (np.int32(clock[1]), address(place)))
    return place[0] * 1_000_000_000 + place[1]


@merge
def _help(where, share, gate):
    """Take part in the updates of the leader, until there are no more."""
    patience = share.frame.settings.patience
    number = next_call(gate, 0, patience)
    while number >= 0:
        if enter(gate, number):
            call_at(where, (share,))
        leave(gate)
        number = next_call(gate, number, patience)


@merge
def _learn(where, share, plan):
    """Call the learner's update; returns how many of its losses were not finite."""
    space, counters = share.frame.space, share.frame.settings.counters
    sums, faults = space.sums.shape[1], 0
    for k in range(space.claims.size):
        space.claims[k] = 0
    for k in range(space.done.size):
        space.done[k] = 0
    for update in range(space.report.shape[0]):
        for k in range(space.report.shape[1]):
            space.report[update, k] = 0.0
    is_shared = share.workers > 1 and plan.results[2] == 0
    if is_shared:
        open_gate(plan.gate)
    call_at(where, (share,))
    if is_shared:
        close_gate(plan.gate)
        plan.results[2] += space.done[2]
        if plan.results[2] > 0:
            dismiss(plan.gate)
    counters[0] += np.int64(space.report[0, sums + STEPS])
    counters[1] += 1
    for update in range(space.report.shape[0]):
        faults += space.report[update, sums + FAULT] != 0.0
    return faults


@merge
def _sum(numbers, by_pairs):
    """Return the sum of numbers, which it overwrites, in NumPy's order: of a row, or of a column.

    It adds single numbers by pairs of sums, but rows of several one after the other.
    """
    n, first, total = numbers.size, 0, 0.0
    if by_pairs and n >= 8:
        first = n - n % 8
        for i in range(8, first):
            numbers[i % 8] += numbers[i]
        left = (numbers[0] + numbers[1]) + (numbers[2] + numbers[3])
        total = left + ((numbers[4] + numbers[5]) + (numbers[6] + numbers[7]))
    for i in range(first, n):
        total += numbers[i]
    return total


@merge
def _add_rows(running, scratch):
    """Add the rows of a round, as `Normalizer.add` does."""
    rows, before = running.rows, running.count[0]
    n, size = rows.shape
    for k in range(size):
        for i in range(n):
            scratch[i] = rows[i, k]
        mean = _sum(scratch, size == 1) / n
        for i in range(n):
            scratch[i] = (rows[i, k] - mean) * (rows[i, k] - mean)
        squares, delta = _sum(scratch, size == 1), mean - running.mean[k]
        running.mean[k] += delta * (n / (before + n))
        running.squares[k] += squares + delta * delta * (before * n / (before + n))
    running.count[0] = before + n


@merge
def _scale_of(running, k):
    """Return one over the standard deviation, see `Normalizer.scale`."""
    return 1.0 / np.sqrt(running.squares[k] / max(running.count[0], 1) + 1e-8)


@merge
def _discount(plan, flags, rewards):
    """Write what returns are after each step, as `RewardNormalizer.add` does."""
    num_envs, size = plan.returns.size, plan.rewards.rows.shape[0]
    for k in range(size):
        value = plan.gamma * plan.returns[k % num_envs] + rewards[k]
        plan.rewards.rows[k, 0] = value
        ends = flags[k] or flags[size + k]
        plan.returns[k % num_envs] = value * (0.0 if ends else 1.0)


@merge
def _count_rewards(plan, repeat):
    """Add the rewards of a round to what normalises them."""
    size = plan.rewards.rows.shape[0]
    if size == 0:
        return
    if repeat.real_bytes == 8:
        _discount(plan, repeat.flags, array_at(repeat.rewards, (size,), 0.0))
    else:
        _discount(plan, repeat.flags, array_at(repeat.rewards, (size,), f32(0)))
    _add_rows(plan.rewards, plan.scratch)


@merge
def _normalise_observations(plan):
    """Add the observations of a round, and normalise by all so far from now on."""
    if plan.observations.rows.shape[0] == 0:
        return
    _add_rows(plan.observations, plan.scratch)
    for k in range(plan.shift.size):
        plan.shift[k] = plan.observations.mean[k]
        plan.scale[k] = _scale_of(plan.observations, k)


@merge
def _make_columns(plan):
    """Make the learner's columns of a drawn batch."""
    for k in range(plan.columns.shape[0]):
        how, size = plan.columns[k, 0], plan.columns[k, 3]
        source, target = plan.columns[k, 1], plan.columns[k, 2]
        column = array_at(target, (size,), f32(0))
        if how == FROM_WHOLE:
            whole = array_at(source, (size,), np.int64(0))
            for i in range(size):
                column[i] = whole[i]
        elif how == FROM_FLAG:
            flags = array_at(source, (size,), np.uint8(0))
            for i in range(size):
                column[i] = flags[i]
        elif how == SCALED:
            numbers = array_at(source, (size,), f32(0))
            for i in range(size):
                column[i] = numbers[i] * plan.reward_scale
        elif how == NORMALISED:
            numbers, scale = array_at(source, (size,), f32(0)), _scale_of(plan.rewards, 0)
            for i in range(size):
                reward = min(max(numbers[i] * scale, -plan.largest), plan.largest)
                column[i] = f32(reward) * plan.reward_scale
        else:
            words = array_at(source, (size,), np.int32(0))
            copies = array_at(target, (size,), np.int32(0))
            for i in range(size):
                copies[i] = words[i]


@merge
def _advance(number, where, repeat, loop, plan, share, scratch):
    """Make one round; returns why it is not whole."""
    start = _now(plan.clock, scratch)
    for k in range(plan.params.size):
        plan.params[k] = plan.explorations[number, k]
    for k in range(plan.rates.shape[1]):
        share.frame.settings.learning_rates[k] = plan.rates[number, k]
    call_at(repeat.run, (repeat,))
    if repeat.broken[0] > 0:
        return BAD_ROLLOUT
    _count_rewards(plan, repeat)
    call_at(loop.add, (loop,))
    now = _now(plan.clock, scratch)
    plan.times[0] += now - start
    for _ in range(plan.calls):
        call_at(loop.draw, (loop,))
        _make_columns(plan)
        if _learn(where, share, plan) > 0:
            return BAD_LOSS
        if loop.update != 0:
            call_at(loop.update, (loop,))
            if loop.fault[0] != 0:
                return BAD_PRIORITY
    _normalise_observations(plan)
    plan.times[1] += _now(plan.clock, scratch) - now
    return WHOLE


@kernel(fastmath=EXACT)
def _play(most, crew, where, repeat, loop, plan, learnt, layout, program, batch, space, settings):
    """Make at most so many rounds, by the update at the address `where`; or help with these.

    `crew` is the number of this worker, 0 for the leader, and how many there are. The last
    arguments are those of an update.
    """
    worker, workers = crew
    share = view(Share(worker, workers, Frame(learnt, layout, program, batch, space, settings)))
    if worker > 0:
        _help(where, share, plan.gate)
        return
    rollouts, buffer, rounds = view(repeat), view(loop), view(plan)
    times, scratch, number, stopped = plan.times, np.zeros(2, np.int64), 0, WHOLE
    while number < most and stopped == WHOLE and times[0] + times[1] < LONGEST:
        stopped = _advance(number, where, rollouts, buffer, rounds, share, scratch)
        number += stopped == WHOLE
    plan.results[0], plan.results[1] = number, stopped
    dismiss(plan.gate)


# ---------------------------------------------------------------- what Python does before and after


@functools.cache
def _clock() -> tuple[int, int]:
    """Return the address of C's `clock_gettime`, 0 where there is none, and a clock's number."""
    try:
        function, clock = ctypes.CDLL(None).clock_gettime, time.CLOCK_MONOTONIC
    except (AttributeError, OSError, TypeError):  # Windows
        return 0, 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0, clock


#: What a class may not have of its own, for a kernel does the same.
_METHODS = (
    "_advance", "collect_rollout", "count", "improve", "_can_improve", "_columns", "_store",
)  # fmt: skip


def can_repeat(agent: Any, base: type, rollout: Any, batch: Any) -> bool:
    """Tell whether a kernel can make rounds like the last one of an agent, which has updated.

    Args:
        agent: of a subclass of `base`.
        base: `OffPolicy`.
        rollout: of the last round.
        batch: that it drew last.
    """
    config, learner, buffer = agent.config, agent.learner, agent.buffer
    kind, call = type(agent), learner.last_call
    schedules = config.learning_rate_schedule, getattr(config, "exploration_schedule", "")
    return (
        all(getattr(kind, name) is getattr(base, name) for name in _METHODS)
        and kind.explore.__module__.startswith("rlcpu.")
        and not any(map(callable, schedules))
        and (not config.normalize_rewards or rollout.rewards.size <= SUMMED)
        and _find_inputs(agent, rollout) is not None
        and (config.num_updates <= AT_ONCE or config.num_updates % AT_ONCE == 0)
        and call is not None
        and not any(network.state_size for network in learner.networks)
        and learner.dtype is np.float32
        and learner.networks[0] is agent.policy.network
        and agent.steps >= config.learning_starts
        and type(buffer) in (ReplayBuffer, PrioritizedReplayBuffer)
        and buffer.device == "cpu"
        and not buffer.derive_next
        and rollouts.fits(agent.env, rollout)
        and _find_columns(agent, batch) is not None
        and _clock()[0] != 0
    )


def _find_columns(agent: Any, batch: Any) -> list[tuple[int, int, int, int]] | None:
    """Return `RoundsPlan.columns`, or None where Python makes a column in another way."""
    columns: list[tuple[int, int, int, int]] = []
    for name, column in agent.learner.last_call.columns.items():
        of_batch = {"weight": batch.weights, "discount": batch.discounts}
        drawn, array = of_batch[name] if name in of_batch else batch[name], column.array
        if drawn is None:
            continue  # the same for all samples
        places = drawn.ctypes.data, array.ctypes.data
        if places[0] == places[1]:
            continue
        how = _HOW.get((drawn.dtype.type, array.dtype.type))
        is_other = how == SCALED and name != "reward"
        if how == SCALED and agent.config.normalize_rewards:
            how = NORMALISED
        if how is None or is_other or name in of_batch or drawn.size != array.size:
            return None
        columns.append((how, *places, array.size))
    return columns


def _find_inputs(agent: Any, rollout: Any) -> Array | None:
    """Return observations that are normalised by; None where Python makes them, or adds many up.

    They are (0, 0) if nothing is normalised.
    """
    if not agent.config.normalize_observations:
        return np.zeros((0, 0), np.float32)
    inputs: Array = rollout.inputs
    inputs = inputs.reshape(-1, inputs.shape[-1])
    is_in_place = inputs.base is not None and inputs.flags.c_contiguous
    is_in_place &= np.shares_memory(inputs, rollout.records.observations)
    is_summed = inputs.shape[1] > 1 or len(inputs) <= SUMMED
    return inputs if is_in_place and is_summed else None


#: How a column of a dtype is made of what was drawn of another.
_HOW: dict[Any, int] = {
    (np.int64, f32): FROM_WHOLE,
    (np.bool_, f32): FROM_FLAG,
    (f32, f32): SCALED,
    (np.int32, np.int32): COPIED,
}


class Played(NamedTuple):
    """Rounds that a kernel has made, and their results.

    Attributes:
        whole: rounds.
        stopped: why it stopped, for the last round is not among the whole ones then.
        returns: (any,) float64, of episodes that ended.
        times: seconds of collecting and of updating.
    """

    whole: int
    stopped: int
    returns: Array
    times: tuple[float, float]


def play(agent: Any, rollout: Any, batch: Any, explorations: Array, rates: Array) -> Played:
    """Make at most so many rounds like the one that an agent has just made, in 50 ms or one more.

    Args:
        agent: that `can_repeat`.
        rollout: is overwritten, and shows the last one.
        batch: is overwritten.
        explorations: of each round, see `RoundsPlan`.
        rates: of each round, see `RoundsPlan`.
    """
    learner, buffer, engine = agent.learner, agent.buffer, agent.env.engine
    call, layout, most = learner.last_call, learner.layout, len(rates)
    acting = agent.policy.arrays(agent.env.dynamics).network
    begin, copies = layout.begins[0] + layout.free[0], layout.copies_begins[0]
    job = acting.job_at(learner.learnt.parameters[begin:], learner.learnt.copies[copies:])
    repeat = rollouts.open_repeat(agent.env, rollout, job, most)
    rewards, inputs = agent.rewards, _find_inputs(agent, rollout)
    counted = rollout.rewards.size if agent.config.normalize_rewards else 0
    sources, errors = rollouts.sources_of(repeat, rollout), learner.per_sample["error"]
    plan = RoundsPlan(
        params=agent.policy.params,
        explorations=explorations,
        rates=rates,
        columns=np.array(_find_columns(agent, batch), np.int64).reshape(-1, 4),
        reward_scale=f32(getattr(agent.config, "reward_scale", 1.0)),
        calls=calls_of(agent.config),
        gate=Gate(np.zeros(LINE, np.int64), np.zeros(LINE, np.int64)),
        results=np.zeros(3, np.int64),
        times=np.zeros(2, np.int64),
        observations=Running(inputs, **agent.normalizer.state()),
        shift=agent.policy.observation_mean,
        scale=agent.policy.observation_scale,
        rewards=Running(np.empty((counted, 1)), **rewards.statistics.state()),
        returns=rewards.returns,
        gamma=float(agent.config.gamma),
        largest=float(CLIP * getattr(buffer, "n_step", 1)),
        scratch=np.empty(rollout.rewards.size),
        clock=_clock(),
    )
    with buffer.looping(batch, sources, rollout.rewards.size, errors) as loop:

        def run(worker: int) -> None:
            crew = worker, call.workers
            _play(most, crew, call.update, repeat, loop, plan, *call.frame)

        learner.helpers.run(call.workers, run)
    rollout.renew(agent.policy, engine.last_runner)
    whole, stopped, _ = plan.results.tolist()
    collecting, updating = (plan.times * 1e-9).tolist()
    return Played(whole, stopped, repeat.returns[: repeat.ended[0]], (collecting, updating))


def calls_of(config: Any) -> int:
    """Return how often a round draws from the buffer, and calls the learner."""
    return int(-(-config.num_updates // AT_ONCE))


def is_loaded() -> bool:
    """Tell whether the kernel is in memory."""
    return bool(_play.overloads)
