"""Rounds of learning that one kernel makes, without Python between them.

A round of a small network takes 50 us in kernels, and three times as long in Python. So after a
round in Python, which checks everything, a kernel makes the next ones in the same memory: the same
functions collect, store, draw, learn and give priorities, called by address or inlined, and the
result is the same, bit for bit. Python goes on after 50 ms, for the sake of Ctrl-C, and wherever it
has something to do: callbacks, evaluations, numbers that are not finite, and boards with so many
ones that networks take all of their cells. Of several threads one, the *leader*, makes the rounds,
and all share each update.

The kernel works on views of these tuples:

    repeat  `rlcpu.envs.repeat.Repeat`, the memory of a rollout
    loop    `rlcpu.replay.loop.Loop`, the memory of the buffer and of a drawn batch
    share   `rlcpu.nn.update.Share`, the arguments of the learner's update
    plan    `RoundsPlan`, everything else

`update` is the address of the learner's update.
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
from rlcpu.envs.engine.observations import WORDS
from rlcpu.kernels.boards import append_cells
from rlcpu.kernels.calls import view
from rlcpu.kernels.compile import EXACT, inline_source, kernel
from rlcpu.kernels.memory import address, array_at, call_at
from rlcpu.nn.columns import make_room
from rlcpu.nn.layers.embedding import most_ones
from rlcpu.nn.update import FAULT, STEPS, Frame, Share
from rlcpu.nn.workers import (
    LINE_WORDS,
    Gate,
    close_gate,
    dismiss,
    join_call,
    leave_call,
    next_call,
    open_gate,
)
from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.train.normalise import CLIP

Array = npt.NDArray[Any]
#: Minibatches that are drawn, and learnt from, in one call.
AT_ONCE = 8
#: Nanoseconds after which Python goes on.
LONGEST = 50_000_000
#: Calls of the learner, in the rest of `learn`, from which it pays to load the kernel.
LEAST_CALLS = 1000
#: Why the kernel stopped: rounds are whole, the last one has numbers that are not finite, or boards
#: that were drawn last, and are not learnt from, have many ones.
WHOLE, BAD_ROLLOUT, BAD_LOSS, BAD_PRIORITY, HAS_MANY_ONES = range(5)
#: Conversions of a drawn field to a column of the learner: of int64, of bool, of rewards that are
#: scaled, of rewards that are normalised and scaled, and of choices and boards to `Ones`.
FROM_INTEGERS, FROM_FLAGS, SCALED, NORMALISED, FROM_CHOICES, FROM_BOARDS = range(6)
#: Longest row that NumPy adds up in eight sums alone; it adds halves of longer ones.
SUMMED = 128
f32 = np.float32


class Running(NamedTuple):
    """A `rlcpu.train.normalise.Normalizer`, and the rows that each round adds to it.

    Attributes:
        rows: (n, size), overwritten in each round; of no elements where nothing is normalised.
        count, mean, squares: arrays of the normalizer.
    """

    rows: Any
    count: Any
    mean: Any
    squares: Any


class RoundsPlan(NamedTuple):
    """Numbers that rounds need besides rollouts, the buffer and the learner.

    Attributes:
        params: float32, of the policy's head, such as its epsilon.
        round_params: (max_rounds, params.size) float32, the policy's params in each round.
        round_rates: (max_rounds, num_updates), learning rates in each round.
        columns: (any, 5) int64, for each column of the learner the conversion, the addresses of
            the drawn field and of the column, and the size of both; then the least choice, or of
            boards the address of `Ones.starts`.
        boards: (4,) int64: samples of a batch, planes, cells of each, and from how many ones of the
            batch on they are too many.
        reward_scale: float32.
        calls: of the learner in a round.
        gate: of the updates, which helpers pass.
        results: (4,) int64: whole rounds, why the kernel stopped, how many workers lost patience
            (see `rlcpu.nn.workers.wait`), after which the leader is alone, and calls of the learner
            that were made in the round that stopped.
        times: (2,) int64, nanoseconds of collecting and of updating.
        observations: a `Running` of what the policy sees.
        shift, scale: (size,) float32, mean and scale by which networks see observations normalised.
        rewards: a `Running` of discounted returns.
        returns: (num_envs,) float64, discounted, of the running episodes.
        gamma: discount factor of these.
        max_reward: limit of the absolute value of a normalised reward.
        scratch: (n,) float64.
        clock: address of C's `clock_gettime`, and the number of the clock.
    """

    params: Any
    round_params: Any
    round_rates: Any
    columns: Any
    boards: Any
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
    max_reward: Any
    scratch: Any
    clock: Any


# ---------------------------------------------------------------- the kernel


@inline_source
def _now(clock, time):
    """Return the nanoseconds of a clock; `time` is (2,) int64, scratch."""
    call_at(clock[0], (np.int32(clock[1]), address(time)))
    return time[0] * 1_000_000_000 + time[1]


@inline_source
def _help(update, share, gate):
    """Take part in the updates of the leader, until there are no more."""
    patience = share.frame.settings.patience
    number = next_call(gate, 0, patience)
    while number >= 0:
        if join_call(gate, number):
            call_at(update, (share,))
        leave_call(gate)
        number = next_call(gate, number, patience)


@inline_source
def _reset(space):
    """Set counters and report of an update to 0, in its `rlcpu.nn.update.Space`."""
    for k in range(space.claims.size):
        space.claims[k] = 0
    for k in range(space.done.size):
        space.done[k] = 0
    for number in range(space.report.shape[0]):
        for k in range(space.report.shape[1]):
            space.report[number, k] = 0.0


@inline_source
def _learn(update, share, plan):
    """Call the learner's update; returns how many of its losses were not finite."""
    space, counters = share.frame.space, share.frame.settings.counters
    sums, faults = space.sums.shape[1], 0
    _reset(space)
    is_shared = share.workers > 1 and plan.results[2] == 0
    if is_shared:
        open_gate(plan.gate)
    call_at(update, (share,))
    if is_shared:
        close_gate(plan.gate)
        plan.results[2] += space.done[2]
        if plan.results[2] > 0:
            dismiss(plan.gate)
    counters[0] += np.int64(space.report[0, sums + STEPS])
    counters[1] += 1
    for number in range(space.report.shape[0]):
        faults += space.report[number, sums + FAULT] != 0.0
    return faults


@inline_source
def _sum(numbers, in_eight_sums):
    """Return the sum of numbers, bit for bit NumPy's; they are overwritten.

    NumPy adds up a row, and an array of one column, in eight sums (up to `SUMMED` numbers); each
    of several columns in one.
    """
    n, first, total = numbers.size, 0, 0.0
    if in_eight_sums and n >= 8:
        first = n - n % 8
        for i in range(8, first):
            numbers[i % 8] += numbers[i]
        low = (numbers[0] + numbers[1]) + (numbers[2] + numbers[3])
        total = low + ((numbers[4] + numbers[5]) + (numbers[6] + numbers[7]))
    for i in range(first, n):
        total += numbers[i]
    return total


@inline_source
def _add_rows(running, scratch):
    """Add the rows of a round to a `Running`, as `Normalizer.add` does; `scratch` is (n,)."""
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


@inline_source
def _scale_of(running, k):
    """Return one over the standard deviation of column k, see `Normalizer.scale`."""
    return 1.0 / np.sqrt(running.squares[k] / max(running.count[0], 1) + 1e-8)


@inline_source
def _write_returns(plan, flags, rewards):
    """Write the discounted return after each step, as `RewardNormalizer.add` does.

    Args:
        plan: whose `rewards.rows` and `returns` are overwritten.
        flags: (2 * n,) of the round's n transitions, those of all environments for each time step:
            n times terminated, then n times truncated.
        rewards: (n,), in the same order.
    """
    num_envs, n = plan.returns.size, plan.rewards.rows.shape[0]
    for k in range(n):
        value = plan.gamma * plan.returns[k % num_envs] + rewards[k]
        plan.rewards.rows[k, 0] = value
        is_done = flags[k] or flags[n + k]
        plan.returns[k % num_envs] = value * (0.0 if is_done else 1.0)


@inline_source
def _add_rewards(plan, repeat):
    """Add the rewards of a round to the statistics that normalise rewards."""
    size = plan.rewards.rows.shape[0]
    if size == 0:
        return
    if repeat.real_bytes == 8:
        _write_returns(plan, repeat.flags, array_at(repeat.rewards, (size,), 0.0))
    else:
        _write_returns(plan, repeat.flags, array_at(repeat.rewards, (size,), f32(0)))
    _add_rows(plan.rewards, plan.scratch)


@inline_source
def _add_observations(plan):
    """Add the observations of a round to their statistics, by which networks normalise then."""
    if plan.observations.rows.shape[0] == 0:
        return
    _add_rows(plan.observations, plan.scratch)
    for k in range(plan.shift.size):
        plan.shift[k] = plan.observations.mean[k]
        plan.scale[k] = _scale_of(plan.observations, k)


@inline_source
def _find_ones(boards, words_at, starts_at, places_at):
    """Write the ones of boards in the form of `Ones`; returns False where they are too many.

    `boards` is that of the plan; the others are addresses: of the boards' words, of
    `Ones.starts`, and of `Ones.columns`, with room for the ones of a board more than are allowed.
    """
    samples, planes, cells, too_many = boards[0], boards[1], boards[2], boards[3]
    words = array_at(words_at, (samples * planes * WORDS,), np.uint32(0))
    starts = array_at(starts_at, (samples + 1,), np.int64(0))
    places = array_at(places_at, (too_many + planes * cells,), np.int32(0))
    count = 0
    for i in range(samples):
        starts[i] = count
        count = append_cells(words, i * planes * WORDS, 1, planes, cells, places, count)
        if count >= too_many:
            return False
    starts[samples] = count
    return True


@inline_source
def _make_columns(plan):
    """Write the learner's columns from the fields of a drawn batch; see `RoundsPlan.columns`.

    Returns False where boards have too many ones.
    """
    for k in range(plan.columns.shape[0]):
        conversion, size = plan.columns[k, 0], plan.columns[k, 3]
        source, target = plan.columns[k, 1], plan.columns[k, 2]
        column = array_at(target, (size,), f32(0))
        if conversion == FROM_INTEGERS:
            integers = array_at(source, (size,), np.int64(0))
            for i in range(size):
                column[i] = integers[i]
        elif conversion == FROM_FLAGS:
            flags = array_at(source, (size,), np.uint8(0))
            for i in range(size):
                column[i] = flags[i]
        elif conversion == SCALED:
            rewards = array_at(source, (size,), f32(0))
            for i in range(size):
                column[i] = rewards[i] * plan.reward_scale
        elif conversion == NORMALISED:
            rewards, scale = array_at(source, (size,), f32(0)), _scale_of(plan.rewards, 0)
            for i in range(size):
                reward = min(max(rewards[i] * scale, -plan.max_reward), plan.max_reward)
                column[i] = f32(reward) * plan.reward_scale
        elif conversion == FROM_CHOICES:
            choices = array_at(source, (size,), np.int32(0))
            places = array_at(target, (size,), np.int32(0))
            for i in range(size):
                places[i] = choices[i] - plan.columns[k, 4]
        elif not _find_ones(plan.boards, source, plan.columns[k, 4], target):
            return False
    return True


@inline_source
def _make_round(number, update, repeat, loop, plan, share, scratch):
    """Make one round: collect, store, then draw, learn and give priorities for each call.

    Returns `WHOLE`, or why the round is not. `number` is that of the round in this call of the
    kernel, `scratch` (2,) int64; see the module for the others.
    """
    start = _now(plan.clock, scratch)
    for k in range(plan.params.size):
        plan.params[k] = plan.round_params[number, k]
    for k in range(plan.round_rates.shape[1]):
        share.frame.settings.learning_rates[k] = plan.round_rates[number, k]
    call_at(repeat.run, (repeat,))
    if repeat.broken[0] > 0:
        return BAD_ROLLOUT
    _add_rewards(plan, repeat)
    call_at(loop.add, (loop,))
    now = _now(plan.clock, scratch)
    plan.times[0] += now - start
    for call in range(plan.calls):
        plan.results[3] = call
        call_at(loop.draw, (loop,))
        if not _make_columns(plan):
            return HAS_MANY_ONES
        if _learn(update, share, plan) > 0:
            return BAD_LOSS
        if loop.update != 0:
            call_at(loop.update, (loop,))
            if loop.fault[0] != 0:
                return BAD_PRIORITY
    _add_observations(plan)
    plan.times[1] += _now(plan.clock, scratch) - now
    return WHOLE


@kernel(fastmath=EXACT)
def _run(
    max_rounds, crew, update, repeat, loop, plan, learnt, layout, program, batch, space, settings
):
    """Make rounds as the leader, at most `max_rounds`, and write their results; or help with them.

    `crew` is the number of this worker, 0 for the leader, and how many there are; the arguments
    from `learnt` on are the fields of a `Frame`. See the module for the others.
    """
    worker, workers = crew
    share = view(Share(worker, workers, Frame(learnt, layout, program, batch, space, settings)))
    if worker > 0:
        _help(update, share, plan.gate)
        return
    rollout_view, buffer_view, plan_view = view(repeat), view(loop), view(plan)
    times, scratch, number, stopped = plan.times, np.zeros(2, np.int64), 0, WHOLE
    while number < max_rounds and stopped == WHOLE and times[0] + times[1] < LONGEST:
        stopped = _make_round(number, update, rollout_view, buffer_view, plan_view, share, scratch)
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


#: Methods that an agent's class may not override: the kernel does what `base` does.
_METHODS = (
    "_advance", "collect_rollout", "count", "improve", "_can_improve", "_columns", "_store",
)  # fmt: skip


def can_repeat(agent: Any, base: type, rollout: Any, batch: Any) -> bool:
    """Tell whether the kernel can make rounds like the last one of an agent, which has updated.

    Args:
        agent: of a subclass of `base`.
        base: `rlcpu.train.off_policy.OffPolicy`.
        rollout: the agent's last.
        batch: the agent's last.
    """
    config, learner, buffer = agent.config, agent.learner, agent.buffer
    kind, last_update = type(agent), learner.last_call
    schedules = config.learning_rate_schedule, getattr(config, "exploration_schedule", "")
    return (
        all(getattr(kind, name) is getattr(base, name) for name in _METHODS)
        and kind.explore.__module__.startswith("rlcpu.")
        and not any(map(callable, schedules))
        and (not config.normalize_rewards or rollout.rewards.size <= SUMMED)
        and _find_inputs(agent, rollout) is not None
        and (config.num_updates <= AT_ONCE or config.num_updates % AT_ONCE == 0)
        and last_update is not None
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


def _find_columns(agent: Any, batch: Any) -> list[tuple[int, ...]] | None:
    """Return the rows of `RoundsPlan.columns`; None if Python made a column in another way.

    The columns are those of the last update of an agent, which was given `batch`.
    """
    columns: list[tuple[int, ...]] = []
    are_normalised = agent.config.normalize_observations
    for name, column in agent.learner.last_call.columns.items():
        attributes = {"weight": batch.weights, "discount": batch.discounts}
        drawn, array = attributes[name] if name in attributes else batch[name], column.array
        if drawn is None:
            continue  # the same for all samples
        addresses = drawn.ctypes.data, array.ctypes.data
        if addresses[0] == addresses[1]:
            continue  # the learner reads the batch itself
        conversion = _CONVERSIONS.get((drawn.dtype.type, array.dtype.type))
        # Other float32 columns and attributes are read where they are, or are not what was drawn.
        is_changed = (conversion == SCALED and name != "reward") or name in attributes
        is_changed |= column.is_of_ones and are_normalised  # soon no ones
        is_changed |= conversion != FROM_BOARDS and drawn.size != array.size
        if conversion == SCALED and agent.config.normalize_rewards:
            conversion = NORMALISED
        if conversion is None or is_changed:
            return None
        last = 0
        if conversion == FROM_CHOICES:
            last = agent.env.view.start[0]
        elif conversion == FROM_BOARDS:
            last = column.pair[0].ctypes.data
        columns.append((conversion, *addresses, array.size, last))
    return columns


def _make_room(agent: Any, batch: Any) -> Array:
    """Give columns of boards room for the ones of any batch; returns `RoundsPlan.boards`."""
    view, last_update = agent.env.view, agent.learner.last_call
    if view.kind != "planes":
        return np.zeros(4, np.int64)
    planes, cells, samples = view.size[0], math.prod(view.size[1:]), len(batch)
    too_many = most_ones(samples, planes * cells) + 1
    make_room(last_update.columns, last_update.frame.batch.columns, too_many + planes * cells)
    return np.array([samples, planes, cells, too_many], np.int64)


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


#: Conversions by the dtypes of a drawn field and of a column.
_CONVERSIONS: dict[Any, int] = {
    (np.int64, f32): FROM_INTEGERS,
    (np.bool_, f32): FROM_FLAGS,
    (f32, f32): SCALED,
    (np.int32, np.int32): FROM_CHOICES,
    (np.uint32, np.int32): FROM_BOARDS,
}


class RoundsResult(NamedTuple):
    """Results of rounds of the kernel.

    Attributes:
        num_whole: rounds that are whole.
        stopped: `WHOLE`, or why one more round stopped before its end.
        returns: (any,) float64, of episodes that ended.
        times: seconds of collecting and of updating.
        calls: of the learner in the round that stopped.
    """

    num_whole: int
    stopped: int
    returns: Array
    times: tuple[float, float]
    calls: int


def make_rounds(
    agent: Any, rollout: Any, batch: Any, round_params: Array, round_rates: Array
) -> RoundsResult:
    """Make rounds like the one that an agent has just made, until 50 ms are over.

    Args:
        agent: for which `can_repeat` is true; its policy, buffer and learner go on.
        rollout: the agent's last; overwritten with that of the last round.
        batch: the agent's last; overwritten.
        round_params: see `RoundsPlan`; its length is the most rounds that are made.
        round_rates: see `RoundsPlan`.
    """
    learner, buffer, engine = agent.learner, agent.buffer, agent.env.engine
    last_update, layout, max_rounds = learner.last_call, learner.layout, len(round_rates)
    acting = agent.policy.arrays(agent.env.dynamics).network
    begin, copies = layout.begins[0] + layout.free[0], layout.copies_begins[0]
    # The policy's network as the learner has it: nothing is copied after an update.
    job = acting.job_at(learner.learnt.parameters[begin:], learner.learnt.copies[copies:])
    repeat = rollouts.open_repeat(agent.env, rollout, job, max_rounds)
    rewards, inputs = agent.rewards, _find_inputs(agent, rollout)
    num_returns = rollout.rewards.size if agent.config.normalize_rewards else 0
    sources, errors = rollouts.sources_of(repeat, rollout), learner.per_sample["error"]
    boards = _make_room(agent, batch)  # before their addresses are found
    plan = RoundsPlan(
        params=agent.policy.params,
        round_params=round_params,
        round_rates=round_rates,
        columns=np.array(_find_columns(agent, batch), np.int64).reshape(-1, 5),
        boards=boards,
        reward_scale=f32(getattr(agent.config, "reward_scale", 1.0)),
        calls=calls_of(agent.config),
        gate=Gate(np.zeros(LINE_WORDS, np.int64), np.zeros(LINE_WORDS, np.int64)),
        results=np.zeros(4, np.int64),
        times=np.zeros(2, np.int64),
        observations=Running(inputs, **agent.normalizer.state()),
        shift=agent.policy.observation_mean,
        scale=agent.policy.observation_scale,
        rewards=Running(np.empty((num_returns, 1)), **rewards.statistics.state()),
        returns=rewards.returns,
        gamma=float(agent.config.gamma),
        max_reward=float(CLIP * getattr(buffer, "n_step", 1)),
        scratch=np.empty(rollout.rewards.size),
        clock=_clock(),
    )
    with buffer.looping(batch, sources, rollout.rewards.size, errors) as loop:

        def run(worker: int) -> None:
            crew = worker, last_update.workers
            _run(max_rounds, crew, last_update.update, repeat, loop, plan, *last_update.frame)

        learner.helpers.run(last_update.workers, run)
    rollout.renew(agent.policy, engine.last_runner)
    num_whole, stopped, _, calls = plan.results.tolist()
    returns, times = repeat.returns[: repeat.ended[0]], (plan.times * 1e-9).tolist()
    return RoundsResult(num_whole, stopped, returns, tuple(times), calls)


def calls_of(config: Any) -> int:
    """Return how often a round draws from the buffer, and calls the learner."""
    return int(-(-config.num_updates // AT_ONCE))


def is_loaded() -> bool:
    """Tell whether the kernel is in memory."""
    return bool(_run.overloads)
