"""Drivers: K steps of N environments and their policy in one kernel, and what it keeps of them.

Each block of environments runs all its steps before the next block starts, so that its state and
the network's activations stay in cache. `simulate` keeps sums over the lanes, `collect` keeps
everything: one loop, and a `BlockRecorder` for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from rlcpu.envs.engine.decide import make_decide
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.lane import (
    ELAPSED,
    LANES,
    LONG,
    NUM_WORDS,
    PENDING,
    Structure,
    compile_lane,
    env_kernel,
    make_draw_words,
    make_turn,
)
from rlcpu.envs.policies import GREEDY, POLICY_DTYPES, KernelPolicy, PolicyCode
from rlcpu.kernels.compile import EXACT, define, inline, kernel, merge, wide
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import array_at, call_at
from rlcpu.kernels.rows import ANY, row_access, store_rows
from rlcpu.kernels.threads import Kernels

u32 = np.uint32
#: Steps after which float32 sums of a lane are added to float64 ones.
FLUSH = 256
#: What a driver returns where numbers are not finite; see `rlcpu.envs.engine.faults`.
FAULT = -1
#: What `simulate` adds up: finished episodes, their returns, the squares of these, 0 (or NaN if a
#: number was not finite), and the steps of these episodes.
EPISODES, RETURNS, SQUARES, FAULTS, LENGTHS = range(5)
WIDTH = 5


class EnvArrays(NamedTuple):
    """The memory of the environments and their run-time numbers.

    Kernels are called with plain tuples of the same fields: NumPy's arrays in a NamedTuple cost a
    call 0.6 us more.

    Attributes:
        real, words: see `rlcpu.envs.engine.lanes.LaneEngine`.
        numbers: (num_numbers,) params.
        bounds: (2 * action_size,) float32, lowest and highest numbers of an action.
        clock: (2,) uint32, counter of the first step's random numbers, limit of an episode's steps.
    """

    real: Any
    words: Any
    numbers: Any
    bounds: Any
    clock: Any


#: A frame is address and size of each array of `EnvArrays`, `KernelPolicy` and the outputs, and
#: for each block whether there were numbers that are not finite.
FIRST_POLICY = 2 * len(EnvArrays._fields)
FIRST_OUTPUT = FIRST_POLICY + 2 * len(KernelPolicy._fields)
FIRST_FAULT = FIRST_OUTPUT + 2 * len(Records._fields)


class BlockRecorder(NamedTuple):
    """Functions that a driver's loop inlines for the results of a block.

    Attributes:
        open: (frame, number) -> outputs, of block `number`.
        start: (outputs, words, count, num_steps) -> rows, scratch of the block.
        put: (rows, i, observation, decision, end, final) writes one step of lane i to `rows`: its
            observation, the policy's (action, log_prob, value), the `LaneStep`, and the observation
            that the step led to.
        save: (rows, outputs, step, num_steps, place, count) after each step; `place` is that of the
            block's first lane in flat arrays.
        finish: (rows, outputs, state, words, params, begin, count) -> whether the block had numbers
            that are not finite.
    """

    open: Callable[..., Any]
    start: Callable[..., Any]
    put: Callable[..., None]
    save: Callable[..., None]
    finish: Callable[..., Any]


class Rollouts(NamedTuple):
    """Kernels that run the rollouts of one environment and policy.

    Attributes:
        drivers: (address, env, policy, num_steps, num_envs, outputs), the loops over blocks. They
            take `EnvArrays` and `KernelPolicy` as plain tuples, and return how many environments
            have finished and wait for a reset, in which case they do nothing, or `FAULT`.
        function: all steps of a block, compiled for C.
        address: of the function.
    """

    drivers: Kernels
    function: Any
    address: int


@functools.cache
def simulate_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return kernels that record sums over the episodes and nothing else.

    The output is `sums`, (blocks + 1, 5) float64, see `EPISODES`: one row per block and, last, one
    of all.
    """
    run = _make_block(env, dtype, policy, _make_sums(env, dtype))
    return compile_rollouts("simulate", env, dtype, run, 16384 if policy.act else 1024)


@functools.cache
def collect_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return kernels that record every step; outputs are `Records` as a plain tuple."""
    run = _make_block(env, dtype, policy, _make_records(env, dtype))
    return compile_rollouts("collect", env, dtype, run, 8192 if policy.act else 1024)


# ---------------------------------------------------------------- blocks


def compile_rollouts(
    name: str, env: Structure, dtype: type, run: Callable[..., None], grain: int
) -> Rollouts:
    """Return the kernels of "simulate" or "collect" around all steps of one block.

    Args:
        name: one of these.
        env: the environment.
        dtype: of it.
        run: (frame, num_steps, num_envs, number). It is compiled once for the loop on one core and
            that on all, neither of which optimises it again.
        grain: steps of all environments from which on all cores share them.
    """
    run.__name__ = run.__qualname__ = name
    function = env_kernel(env, dtype, by_address=True)(run)
    function.compile((types.CPointer(types.int64), types.int64, types.int64, types.int64))
    drivers = {"simulate": SIMULATE, "collect": COLLECT}[name]._replace(grain=grain)
    return Rollouts(drivers, function, address_of(function))


def _make_block(
    env: Structure, dtype: type, policy: PolicyCode, recorder: BlockRecorder
) -> Callable[..., None]:
    """Make a function (frame, num_steps, num_envs, number) that takes all steps of one block.

    It writes to the frame whether there were numbers that are not finite.
    """
    lane, decide = compile_lane(env, dtype), make_decide(env, dtype, policy)
    turn, draw_words, clip = make_turn(env, dtype, True), make_draw_words(), make_clip(env, dtype)
    unpack, load, observe, vary = lane.unpack, lane.load, lane.observe, lane.vary
    unpack_policy, scratch, prepare, choose = decide
    open_outputs, start, put, save, finish = recorder
    open_env, open_policy = make_open_env(env, dtype), make_open_policy()
    exact = dtype is np.float64
    widen = wide if env.state.rows(dtype) < LONG else inline(lambda: None)

    def run(frame, num_steps, num_envs, number):
        """Run all steps of block `number`; see `_make_block`."""
        widen()
        env, policy = open_env(frame, number), open_policy(frame)
        outputs = open_outputs(frame, number)
        state, words, begin = env.real, env.words, number * LANES
        counter, limit = env.clock[0], env.clock[1]
        count = min(LANES, num_envs - begin)
        params, constants = unpack(env.numbers), unpack_policy(policy.weights, policy.log_std)
        greedy = policy.settings[GREEDY] != 0
        space = scratch(policy.settings)
        rows = start(outputs, words, count, num_steps)
        for step in range(num_steps):
            now = u32(counter + u32(step))
            layout = prepare(state, words, params, policy, count, number, space)
            for i in range(count if exact else LANES):
                bits = draw_words(words, i, now)
                observation = observe(load(state, LANES, i), vary(params, state, i))
                decision = choose(observation, constants, greedy, bits, space, layout, i)
                action = clip(decision[0], env.bounds)
                end = turn(state, words, i, action, bits, params, limit)
                put(rows, i, observation, decision, end, observe(end.reached, end.params))
            save(rows, outputs, step, num_steps, step * num_envs + begin, count)
        frame[FIRST_FAULT + number] = finish(rows, outputs, state, words, params, begin, count)

    return run


def _make_driver(is_sums: bool) -> Kernels:
    """Make the loops over blocks, serial and parallel; those of `simulate` add up sums."""
    write_env, write_policy = map(_make_write, (len(EnvArrays._fields), len(KernelPolicy._fields)))
    write_outputs = _make_write(1 if is_sums else len(Records._fields))
    to_tuple = inline((lambda sums: (sums,)) if is_sums else (lambda records: records), exact=True)

    def run_blocks(address, env, policy, num_steps, num_envs, outputs):
        """Run all blocks, and return a code; see `Rollouts`."""
        words, clock = env[1], env[4]
        waiting = count_waiting(words, num_envs)
        if waiting > 0:
            return waiting
        blocks = words.shape[0]
        frame = np.zeros(FIRST_FAULT + blocks, np.int64)
        write_env(frame, 0, env)
        write_policy(frame, FIRST_POLICY, policy)
        write_outputs(frame, FIRST_OUTPUT, to_tuple(outputs))
        for block in prange(blocks):
            call_at(address, (frame.ctypes.data, num_steps, num_envs, np.int64(block)))
        if is_sums:
            add_up(outputs)
        clock[0] += u32(num_steps)
        faults = 0
        for block in range(blocks):
            faults += frame[FIRST_FAULT + block]
        return FAULT if faults > 0 else waiting

    serial = kernel(run_blocks, fastmath=EXACT)
    return Kernels(serial, kernel(run_blocks, fastmath=EXACT, parallel=True), 0)


def make_open(fields: dict[str, Any], made: Any, first: int) -> Callable[..., Any]:
    """Make an inlinable function frame -> `made(*arrays)`, of the arrays that a frame names.

    Args:
        fields: dtype of each array, by its name.
        made: a NamedTuple, or a function of the arrays.
        first: place in the frame of the first array's address, which its size follows.
    """
    return _define_open(tuple(fields.items()), made, first)


@functools.cache
def _define_open(fields: tuple[tuple[str, Any], ...], made: Any, first: int) -> Any:
    """Return the function of `make_open`; equal arguments give one, which is compiled once."""
    space: dict[str, Any] = {"made": made, "array_at": array_at}
    items = []
    for k, (name, dtype) in enumerate(fields):
        space[f"like_{name}"] = dtype(0)
        place = first + 2 * k
        items.append(f"array_at(frame[{place}], (frame[{place + 1}],), like_{name})")
    return inline(define(f"def open(frame): return made({', '.join(items)})", **space))


#: `made` of a single array.
_identity = inline(lambda array: array)


def make_open_env(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, number) -> `EnvArrays`, with the rows of one block."""
    kinds = {"real": dtype, "words": u32, "numbers": dtype, "bounds": np.float32, "clock": u32}
    open_all = make_open(kinds, EnvArrays, 0)
    real, words = (env.state.rows(dtype) + 1 + len(env.varied)) * LANES, NUM_WORDS * LANES

    @inline
    def open_env(frame, number):
        """Return views of the arrays that a frame names, of one block."""
        arrays = open_all(frame)
        return EnvArrays(
            arrays.real[number * real : (number + 1) * real],
            arrays.words[number * words : (number + 1) * words],
            arrays.numbers,
            arrays.bounds,
            arrays.clock,
        )

    return open_env


def make_open_policy(first: int = FIRST_POLICY) -> Callable[..., Any]:
    """Make an inlinable function frame -> `KernelPolicy`; see `make_open`."""
    return make_open(POLICY_DTYPES, KernelPolicy, first)


def _make_write(count: int) -> Any:
    """Make an inlinable function (frame, first, arrays) that writes `count` addresses and sizes."""
    lines = ["def write(frame, first, arrays):"]
    for k in range(count):
        lines.append(f"frame[first + {2 * k}] = arrays[{k}].ctypes.data")
        lines.append(f"frame[first + {2 * k + 1}] = arrays[{k}].size")
    source = "\n    ".join(lines)
    return inline(define(source), exact=True)


@inline
def count_waiting(words, num_envs):
    """Count the environments, of the first `num_envs`, that wait for their reset."""
    waiting = 0
    for block in range(words.shape[0]):
        for i in range(min(LANES, num_envs - block * LANES)):
            waiting += words[block, ELAPSED * LANES + i] == u32(PENDING)
    return waiting


@functools.cache
def make_clip(env: Structure, dtype: type) -> Any:
    """Make an inlinable function (action, bounds) -> the action that the environment gets."""
    if env.action_size == 0:
        return inline(lambda action, bounds: np.int32(action))
    size = env.action_size
    if env.choices:
        whole = "".join(f"whole(action[{k}]), " for k in range(size))
        return inline(define(f"def clip(action, bounds): return ({whole})", whole=np.int32))
    items = "".join(
        f"real(min(max(single(action[{k}]), bounds[{k}]), bounds[{size + k}])), "
        for k in range(size)
    )
    source = f"def clip(action, bounds): return ({items})"
    return inline(define(source, real=dtype, single=np.float32))


@functools.cache
def make_fault_of_step(env: Structure, dtype: type) -> Any:
    """Make an inlinable (numbers, decision) -> 0, or NaN if a number of a step is not finite.

    A mask that allows no action gives NaN too. `numbers` is an observation, whose floats alone are
    checked; `decision` is a policy's (action, log_prob, value). Zero times a number is NaN only for
    NaN and infinity: one operation for each number, without a branch or a comparison.
    """
    spans = () if env.is_written else env.real_spans
    terms = [f"numbers[{first + k}]" for first, count in spans for k in range(count)]
    reals = 0 if env.choices else env.action_size
    terms += [f"decision[0][{k}]" for k in range(reals)] + ["decision[1]", "decision[2]"]
    terms = [f"real({term}) * zero" for term in terms]
    rows = range(env.observation_rows, env.shown_rows)
    if rows:
        words = " | ".join(f"single(numbers[{row}]).view(word)" for row in rows)
        terms.append(f"(nan if ({words}) == 0 else zero)")
    source = f"def fault_of_step(numbers, decision): return {' + '.join(terms)}"
    names = {"single": np.float32, "word": np.uint32, "nan": dtype(np.nan)}
    return inline(define(source, real=dtype, zero=dtype(0), **names))


def make_fault_of_rows(env: Structure, dtype: type) -> Any:
    """Make `make_fault_of` for the floats of an observation."""
    return make_fault_of(env.real_spans, dtype)


@functools.cache
def make_fault_of(spans: tuple[tuple[int, int], ...], dtype: type) -> Any:
    """Make an inlinable (rows, stride, i) -> 0, or NaN if a float of these spans is not finite.

    Number k is rows[k * stride + i]; spans are the first one of several, and how many.
    """
    lines = ["def fault_of(rows, stride, i):", "    fault = nothing"]
    for first, count in spans:
        lines += [f"    for k in range({count}):"]
        lines += [f"        fault += real(rows[({first} + k) * stride + i]) * nothing"]
    source = "\n".join([*lines, "    return fault"])
    return inline(define(source, real=dtype, nothing=dtype(0)))


# ---------------------------------------------------------------- sums


def _make_sums(env: Structure, dtype: type) -> BlockRecorder:
    """Make the recorder of `simulate`: sums over the lanes of a block, (5,) float64.

    `rows` are (4, LANES): episodes, their returns, the squares of these, and faults of each lane.
    """
    get, add = row_access("rewards")
    one, zero, real = dtype(1), dtype(0), dtype
    fault_of_step = make_fault_of_step(env, dtype)
    spans = *env.state.real_spans(dtype), (env.state.rows(dtype), 1)  # the last: returns
    real_rows = tuple(first + k for first, count in spans for k in range(count))

    @merge
    def start(sums, words, count, num_steps):
        sums[:] = 0.0
        sums[LENGTHS] = count * num_steps + sum_elapsed(words, count)
        rows: Any = np.zeros(4 * LANES, real)
        return rows

    @inline
    def put(rows, i, observation, decision, end, final):
        is_done = end.terminated | end.truncated
        total = end.total if is_done else zero
        add(rows, i, get(rows, i) + (one if is_done else zero))
        add(rows, LANES + i, get(rows, LANES + i) + total)
        add(rows, 2 * LANES + i, get(rows, 2 * LANES + i) + total * total)
        # A network's NaN would choose action 0 of a `Discrete`, and zero else would show it.
        add(rows, 3 * LANES + i, get(rows, 3 * LANES + i) + fault_of_step(observation, decision))

    @merge
    def save(rows, sums, step, num_steps, place, count):
        """Copy the rows of one step to their places."""
        if step % FLUSH == FLUSH - 1 or step == num_steps - 1:
            for k in range(4):
                total = 0.0
                for i in range(LANES):
                    total += get(rows, k * LANES + i) if i < count else zero
                    add(rows, k * LANES + i, zero)
                sums[k] += total

    @merge
    def finish(rows, sums, state, words, params, begin, count):
        sums[LENGTHS] -= sum_elapsed(words, count)
        sums[FAULTS] += sums[RETURNS] * 0.0
        for row in real_rows:
            for i in range(count):
                sums[FAULTS] += state[row * LANES + i] * zero
        return 1 if sums[FAULTS] != 0.0 else 0

    return BlockRecorder(make_open_sums(), start, put, save, finish)


@functools.cache
def make_open_sums() -> Callable[..., Any]:
    """Make an inlinable function (frame, number) -> the sums of a block."""
    open_sums = make_open({"sums": np.float64}, _identity, FIRST_OUTPUT)

    @inline
    def open(frame, number):
        return open_sums(frame)[number * WIDTH : (number + 1) * WIDTH]

    return open


@inline
def sum_elapsed(words, count):
    """Return the steps of the running episodes of a block's first `count` environments."""
    total: Any = 0
    for i in range(count):
        total += np.int64(words[ELAPSED * LANES + i])
    return total


@inline(exact=True)
def add_up(sums):
    """Add all rows but the last into the last one, in their order."""
    last = sums.shape[0] - 1
    sums[last, :] = 0.0
    for block in range(last):
        for k in range(sums.shape[1]):
            sums[last, k] += sums[block, k]


# ---------------------------------------------------------------- records


def _make_records(env: Structure, dtype: type) -> BlockRecorder:
    """Make the recorder of `collect`.

    A step's results of all lanes go into rows, of LANES numbers each, which `save` copies to the
    `Records` of all environments.
    """
    return BlockRecorder(
        open=make_open_records(env, dtype),
        start=_make_start(env, dtype),
        put=_make_put(env, dtype),
        save=_make_save(env, dtype),
        finish=_make_finish(env, dtype),
    )


def _make_start(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `start` of the recorder of `collect`: rows for one step of a block, a `Records`."""
    width, size = max(env.action_size, 1), env.shown_rows
    action_type: Any = np.float32 if env.action_size and not env.choices else np.int32
    real = dtype

    @merge
    def start(records, words, count, num_steps):
        return Records(
            np.empty(size * LANES, np.float32), np.empty(width * LANES, action_type),
            np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.empty(LANES, real),
            np.empty(2 * LANES, np.bool_), np.empty(size * LANES, np.float32),
            np.empty(LANES, real), np.empty(LANES, np.uint32), np.zeros(LANES, real),
        )  # fmt: skip

    return start


def _make_put(env: Structure, dtype: type) -> Callable[..., None]:
    """Make `put` of the recorder of `collect`, which writes a lane's results to the rows."""
    width, size, is_discrete = max(env.action_size, 1), env.shown_rows, env.action_size == 0
    put_observation = store_rows(size, "observations")
    put_final = store_rows(size, "finals")
    put_actions: Any = store_rows(width, "actions")
    _, put_action = row_access("actions")
    names = ("log_probs", "values", "rewards", "terminated", "totals", "lengths")
    put_log_prob, put_value, put_reward, put_flag, put_total, put_length = (
        row_access(name)[1] for name in names
    )
    (get_fault, put_fault), fault_of_step = row_access("faults"), make_fault_of_step(env, dtype)
    real, zero = dtype, dtype(0)

    @inline
    def put(rows, i, observation, decision, end, final):
        put_observation(rows.observations, LANES, i, observation)
        if is_discrete:
            put_action(rows.actions, i, np.int32(decision[0]))
        else:
            put_actions(rows.actions, LANES, i, decision[0])
        put_log_prob(rows.log_probs, i, decision[1])
        put_value(rows.values, i, decision[2])
        put_reward(rows.rewards, i, end.reward)
        put_flag(rows.flags, i, end.terminated)
        put_flag(rows.flags, LANES + i, end.truncated)
        put_final(rows.finals, LANES, i, final)
        put_total(rows.totals, i, real(end.total))
        put_length(rows.lengths, i, end.elapsed)
        fault = fault_of_step(observation, decision) + end.reward * zero
        put_fault(rows.last, i, get_fault(rows.last, i) + fault)

    return put


def _make_save(env: Structure, dtype: type) -> Callable[..., None]:
    """Make `save` of the recorder of `collect`, which copies rows to their places in `Records`."""
    width, size = max(env.action_size, 1), env.shown_rows
    fault_of_rows = make_fault_of_rows(env, dtype)
    peek, poke = row_access(ANY)[0], row_access("target")[1]

    @inline
    def copy(source, first, target, begin, count):
        for i in range(count):
            poke(target, begin + i, peek(source, first + i))

    @inline
    def transpose(source, target, begin, count, width):
        for i in range(count):
            for k in range(width):
                poke(target, (begin + i) * width + k, peek(source, k * LANES + i))

    @merge
    def save(rows, records, step, num_steps, place, count):
        """Copy the rows of one step to their places."""
        half = records.flags.shape[0] // 2
        copy(rows.log_probs, 0, records.log_probs, place, count)
        copy(rows.values, 0, records.values, place, count)
        copy(rows.rewards, 0, records.rewards, place, count)
        copy(rows.flags, 0, records.flags, place, count)
        copy(rows.flags, LANES, records.flags, half + place, count)
        transpose(rows.observations, records.observations, place, count, size)
        transpose(rows.actions, records.actions, place, count, width)
        for i in range(count):
            if rows.flags[i] or rows.flags[LANES + i]:
                records.totals[place + i] = rows.totals[i]
                records.lengths[place + i] = rows.lengths[i]
                for k in range(size):
                    records.finals[(place + i) * size + k] = rows.finals[k * LANES + i]
                rows.last[i] += fault_of_rows(rows.finals, LANES, i)

    return save


def _make_finish(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `finish` of the recorder of `collect`: last observations, and lanes with faults."""
    lane, size, zero = compile_lane(env, dtype), env.shown_rows, dtype(0)
    load, observe, vary = lane.load, lane.observe, lane.vary
    put_observation, fault_of_rows = (
        store_rows(size, "observations"),
        make_fault_of_rows(env, dtype),
    )

    @merge
    def finish(rows, records, state, words, params, begin, count):
        faults = 0
        for i in range(count):
            observation = observe(load(state, LANES, i), vary(params, state, i))
            put_observation(records.last, 1, (begin + i) * size, observation)
            rows.last[i] += fault_of_rows(records.last, 1, (begin + i) * size)
            faults += rows.last[i] != zero
        return faults

    return finish


def make_open_records(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, number) -> the `Records`."""
    stored = np.float32 if env.action_size and not env.choices else np.int64
    kinds: dict[str, Any] = dict.fromkeys(Records._fields, np.float32)
    kinds |= {"actions": stored, "rewards": dtype, "totals": dtype}
    open_records = make_open(kinds | {"lengths": u32, "flags": np.bool_}, Records, FIRST_OUTPUT)

    @inline
    def open(frame, number):
        return open_records(frame)

    return open


SIMULATE, COLLECT = _make_driver(True), _make_driver(False)
