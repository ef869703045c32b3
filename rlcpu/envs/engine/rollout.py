"""Rollouts: K steps of N environments and their policy in compiled code, and what it records.

Each block of environments (`rlcpu.envs.engine.lane`) runs all its steps before the next block
starts, so that its state and the network's activations stay in cache. `simulate` records sums over
the episodes that ended, `collect` records every step.

The function that runs all steps of one block is compiled for C, and a driver, a loop over blocks,
serial or parallel, calls it by its address. It knows the policy, and of the environment no more
than an `Interface`: it calls the function of `rlcpu.envs.engine.steps` for the environment's part.
So whoever writes an environment waits for that function alone. Where a scalar policy acts in
`simulate`, such calls and the memory between them would take longer than the steps: there one
function has both.

The only argument of these functions besides numbers is a "frame": an array of int64 with the
address and the size of every array, in this order: `EnvArrays`, `KernelPolicy`, the outputs; then
one number for each block, which the function sets to a number above 0 if a number of the block was
not finite (a "fault"). "Opening" arrays is making them again of the addresses in a frame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from rlcpu.envs.engine.decide import Interface, interface_of, make_act, make_decide
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
    make_draw_bits,
    make_step_lane,
)
from rlcpu.envs.engine.steps import OBSERVE, RESTART, STEP, StepCall, call_type
from rlcpu.envs.policies import GREEDY, POLICY_DTYPES, KernelPolicy, PolicyCode
from rlcpu.kernels.calls import make_call
from rlcpu.kernels.compile import (
    EXACT,
    FAST,
    define,
    inline,
    inline_source,
    kernel,
    prefer_wide_vectors,
    tuple_of,
)
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import (
    LINE,
    address,
    array_at,
    call_at,
    pointer_to,
    shifted,
    to_line,
)
from rlcpu.kernels.random import make_draw_keys
from rlcpu.kernels.rows import ANY, row_access, store_rows
from rlcpu.kernels.threads import Kernels

u8, u32 = np.uint8, np.uint32
#: Steps after which float32 sums of a lane are added to float64 ones.
FLUSH = 256
#: Returned by a driver if numbers are not finite; see `rlcpu.envs.engine.faults`.
FAULT = -1
#: Sums of `simulate`: finished episodes, their returns, the squares of these, 0 (or NaN if a number
#: was not finite), and the steps of these episodes.
EPISODES, RETURNS, SQUARES, FAULTS, LENGTHS = range(5)
NUM_SUMS = 5


class EnvArrays(NamedTuple):
    """The memory of the environments and their run-time numbers.

    Kernels are called with plain tuples of the same fields: NumPy's arrays in a NamedTuple cost a
    call 0.6 us more.

    Attributes:
        real, words: see `rlcpu.envs.engine.lanes.LaneEngine`.
        numbers: (num_numbers,) of the params.
        bounds: (2 * action_size,) float32, lowest and highest numbers of an action.
        clock: (2,) uint32, counter of the first step's random numbers, limit of an episode's steps.
        sizes: (6,) int64, see `FUNCTION`.
        observed_floats: (any,) int64, the rows of an observation that hold floats.
        state_floats: (any,) int64, the rows of a block's `real` that hold floats of a state or
            returns.
    """

    real: Any
    words: Any
    numbers: Any
    bounds: Any
    clock: Any
    sizes: Any
    observed_floats: Any
    state_floats: Any


#: Places in `EnvArrays.sizes`: the address of the environment's function; the number of the first
#: random number of a step that is the policy's; the floats of a block in `real`, and the place of
#: its returns there; and the rows of an observation, without and with its action mask.
FUNCTION, FIRST_DRAW, BLOCK_SIZE, RETURNS_AT, MASK_ROW, NUM_ROWS = range(6)
#: Places in a frame of the policy's arrays, of the outputs, and of the faults of blocks.
FIRST_POLICY = 2 * len(EnvArrays._fields)
FIRST_OUTPUT = FIRST_POLICY + 2 * len(KernelPolicy._fields)
FIRST_FAULT = FIRST_OUTPUT + 2 * len(Records._fields)


class Rollouts(NamedTuple):
    """Kernels that run the rollouts of one environment and policy.

    Attributes:
        drivers: (address, env, policy, num_steps, num_envs, outputs), the loops over blocks. They
            take `EnvArrays` and `KernelPolicy` as plain tuples. They return how many environments
            wait for their reset, in which case they do nothing; 0 after the steps, or `FAULT`.
        function: (frame, num_steps, num_envs, block) runs all steps of a block; compiled for C.
        address: of the function.
    """

    drivers: Kernels
    function: Any
    address: int


@functools.cache
def simulate_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `simulate`, which record sums over the episodes and nothing else.

    The output is `sums`, (blocks + 1, 5) float64, see `EPISODES`: one row per block and, last, one
    of all.
    """
    if policy.act is None:
        return _compile_acting(interface_of(env, policy), dtype, policy, True)
    run = _make_simulate(env, dtype, policy)
    return compile_rollouts("simulate", env_kernel(env, dtype, by_address=True), run, 16384)


@functools.cache
def collect_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `collect`, which record every step in `Records`, a tuple of arrays."""
    return _compile_acting(interface_of(env, policy), dtype, policy, False)


@functools.cache
def _compile_acting(
    interface: Interface, dtype: type, policy: PolicyCode, is_sums: bool
) -> Rollouts:
    """Return the kernels in which a policy acts, for all environments with an interface."""
    recorder = _make_sums(dtype) if is_sums else _make_records(interface, dtype)
    run = _make_block(interface, dtype, policy, recorder)
    decorator = kernel(by_address=True, fastmath=EXACT if dtype is np.float64 else FAST)
    name, grain = "simulate" if is_sums else "collect", 8192 if policy.act else 1024
    return compile_rollouts(name, decorator, run, grain)


# ---------------------------------------------------------------- blocks


def compile_rollouts(name: str, decorator: Any, run: Callable[..., None], grain: int) -> Rollouts:
    """Return the kernels of "simulate" or "collect", given all steps of one block.

    Args:
        name: "simulate" or "collect".
        decorator: which compiles a function for C.
        run: (frame, num_steps, num_envs, block) runs all steps of block number `block`.
        grain: steps of all environments from which on several cores share them.
    """
    run.__name__ = run.__qualname__ = name
    function = decorator(run)
    function.compile((types.CPointer(types.int64), types.int64, types.int64, types.int64))
    drivers = {"simulate": SIMULATE, "collect": COLLECT}[name]._replace(grain=grain)
    return Rollouts(drivers, function, address_of(function))


class BlockStep(NamedTuple):
    """Arrays of a block for one step, in rows of LANES numbers.

    All but observations are pointers.

    Attributes:
        observations: (rows * LANES,) float32, before the step, and overwritten by it.
        chosen: the policy's actions, float32 or int32.
        actions: as the environment takes them, clipped, of its dtype or int32.
        log_probs, values: (LANES,) float32.
        rewards: (LANES,) of the environment's dtype.
        terminated, truncated: (LANES,) uint8.
        elapsed: (LANES,) uint32, steps of the episodes before the step.
        faults: (LANES,), 0, or NaN after a number of the lane that was not finite.
        ended: (LANES,) uint8, whether the episode ended with the step.
        clock: (2,) uint32, that of `EnvArrays` for the step.
    """

    observations: Any
    chosen: Any
    actions: Any
    log_probs: Any
    values: Any
    rewards: Any
    terminated: Any
    truncated: Any
    elapsed: Any
    faults: Any
    ended: Any
    clock: Any


class BlockRecorder(NamedTuple):
    """Functions that a rollout's loop over steps inlines to record the results of a block.

    `now` is the `BlockStep`, `outputs` are those of the rollout, `place` is that of the block's
    first lane in flat arrays of all steps.

    Attributes:
        open_outputs: (frame, block) -> the outputs of block number `block`.
        start: (outputs, words, count, num_steps) -> memory of the recorder's own, before the first
            step of the block's `count` environments.
        save_decisions: (now, outputs, place, count) records what a step begins with.
        save_results: (now, outputs, memory, returns, place, count, is_flush) records what it led
            to. `is_flush` comes every `FLUSH` steps, and with the last one.
        finish: (now, outputs, env, begin, count) -> a number above 0 if the block had a fault, else
            0; after the last step. `begin` is the block's first environment.
    """

    open_outputs: Callable[..., Any]
    start: Callable[..., Any]
    save_decisions: Callable[..., None]
    save_results: Callable[..., None]
    finish: Callable[..., Any]


def _make_block(
    interface: Interface, dtype: type, policy: PolicyCode, recorder: BlockRecorder
) -> Callable[..., None]:
    """Make the function (frame, num_steps, num_envs, block) that runs all steps of one block."""
    unpack_policy, allocate, prepare, choose = make_decide(interface, policy)
    open_outputs, start, save_decisions, save_results, finish = recorder
    open_env, open_policy = make_open_env(dtype), make_open_policy()
    open_step, step_bytes = _make_open_step(interface, dtype), _bytes_of_step(interface, dtype)
    put, draw_bits = _make_put(interface, dtype), make_draw_bits()
    call_env, set_elapsed = _make_call_env(interface, dtype), row_access("lengths")[1]
    get_word, make_keys = row_access("words")[0], make_draw_keys(policy.draws)
    exact = dtype is np.float64

    def run(frame, num_steps, num_envs, block):
        """Let the policy act in all lanes of the block, step by step, and record the results."""
        prefer_wide_vectors()
        env, policy = open_env(frame, block), open_policy(frame)
        outputs, words, begin = open_outputs(frame, block), env.words, block * LANES
        keys = make_keys(env.sizes[FIRST_DRAW])
        count, counter = min(LANES, num_envs - begin), env.clock[0]
        constants = unpack_policy(policy.weights, policy.log_std)
        greedy, scratch = policy.settings[GREEDY] != 0, allocate(policy.settings)
        num_rows = env.sizes[NUM_ROWS]
        memory_of_step = np.zeros(step_bytes + 4 * num_rows * LANES + LINE, u8)
        now = open_step(memory_of_step, num_rows)
        now.clock[0], now.clock[1] = counter, env.clock[1]
        call_env(env, now, OBSERVE, count)
        memory = start(outputs, words, count, num_steps)
        for step in range(num_steps):
            now.clock[0], place = u32(counter + u32(step)), step * num_envs + begin
            places = prepare(now.observations, words, policy, count, block, scratch)
            for i in range(count if exact else LANES):
                bits = draw_bits(words, i, now.clock[0])
                decision = choose(
                    now.observations, i, constants, greedy, bits, keys, scratch, places
                )
                put(now, i, decision, env.bounds)
            add_faults(now, env)
            save_decisions(now, outputs, place, count)
            for i in range(LANES):
                set_elapsed(now.elapsed, i, get_word(words, ELAPSED * LANES + i))
            call_env(env, now, STEP, count)
            num_ended = 0
            for i in range(count):
                now.ended[i] = now.terminated[i] | now.truncated[i]
                num_ended += now.ended[i]
            is_flush = step % FLUSH == FLUSH - 1 or step == num_steps - 1
            save_results(now, outputs, memory, env, place, count, is_flush)
            if num_ended > 0:
                call_env(env, now, RESTART, count)
                call_env(env, now, OBSERVE, count)
        frame[FIRST_FAULT + block] = finish(now, outputs, env, begin, count)
        memory_of_step[0] = 0  # an access, which keeps the array alive until here

    return run


def _step_dtypes(interface: Interface, dtype: type) -> dict[str, tuple[Any, int]]:
    """Return dtype and number of rows of the arrays of a `BlockStep` but observations, by name."""
    width = max(interface.action_size, 1)
    whole: Any = np.int32
    return {
        "chosen": (whole if interface.is_whole else np.float32, width),
        "actions": (whole if interface.is_whole else dtype, width),
        "log_probs": (np.float32, 1),
        "values": (np.float32, 1),
        "rewards": (dtype, 1),
        "terminated": (u8, 1),
        "truncated": (u8, 1),
        "elapsed": (u32, 1),
        "faults": (dtype, 1),
        "ended": (u8, 1),
        "clock": (u32, 1),
    }


def _bytes_of_step(interface: Interface, dtype: type) -> int:
    """Return the bytes of a `BlockStep` but its observations."""
    arrays = _step_dtypes(interface, dtype).values()
    return sum(np.dtype(kind).itemsize * rows * LANES for kind, rows in arrays)


def _make_open_step(interface: Interface, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (memory, num_rows) -> a `BlockStep` in memory of zeros.

    `memory` are bytes, and belong to the caller: of arrays of its own numba would count references
    wherever the tuple is passed on. Observations, of `num_rows` rows, come last.
    """
    place, items, names = 0, [], {"BlockStep": BlockStep, "pointer_to": pointer_to}
    for name, (kind, rows) in _step_dtypes(interface, dtype).items():
        names[f"like_{name}"] = kind(0)
        items.append(f"{name}=pointer_to(begin + {place}, like_{name})")
        place += np.dtype(kind).itemsize * rows * LANES
    names |= {"array_at": array_at, "number": np.float32(0)}
    observations = f"array_at(begin + {place}, (num_rows * {LANES},), number)"
    source = (
        "def open_step(memory, num_rows):\n"
        f"    begin = (memory.ctypes.data + {LINE - 1}) // {LINE} * {LINE}\n"
        f"    return BlockStep(observations={observations}, {', '.join(items)})"
    )
    return inline(define(source, **names))


def _make_call_env(interface: Interface, dtype: type) -> Callable[..., None]:
    """Make (env, now, mode, count), which calls the environment's function for a block's lanes."""
    call = make_call(call_type(dtype, interface.is_whole))

    @inline_source
    def call_env(env, now, mode, count):
        call(
            env.sizes[FUNCTION],
            StepCall(
                mode, 0, count, LANES, address(env.real), address(env.words), address(env.numbers),
                now.clock, now.ended, now.actions,
                address(now.observations), now.rewards, now.terminated, now.truncated,
            ),
        )  # fmt: skip

    return call_env


def _make_put(interface: Interface, dtype: type) -> Callable[..., None]:
    """Make (now, i, decision, bounds), which writes lane i's (action, log_prob, value) to rows."""
    size, is_whole, nothing, real = interface.action_size, interface.is_whole, dtype(0), dtype
    to_env_action = make_to_env_action(size, is_whole, dtype)
    names = ("actions", "log_probs", "values", "source")
    put_action, put_log_prob, put_value, put_chosen = (row_access(name)[1] for name in names)
    get_fault, put_fault = row_access("faults")
    put_actions, put_all_chosen = store_rows(size, "actions"), store_rows(size, "finals")
    terms = [f"real(action[{k}]) * nothing" for k in range(0 if is_whole else size)]
    source = f"def fault_of(action): return {' + '.join(['nothing', *terms])}"
    fault_of_action = inline(define(source, real=real, nothing=nothing))

    @inline
    def put(now, i, decision, bounds):
        action, log_prob, value = decision
        taken = to_env_action(action, bounds)
        if size == 0:
            put_action(now.actions, i, taken)
            put_chosen(now.chosen, i, taken)
        else:
            put_actions(now.actions, LANES, i, taken)
            put_all_chosen(now.chosen, LANES, i, action)
        put_log_prob(now.log_probs, i, log_prob)
        put_value(now.values, i, value)
        fault = fault_of_action(action) + real(log_prob) * nothing + real(value) * nothing
        put_fault(now.faults, i, get_fault(now.faults, i) + fault)

    return put


@inline
def add_faults(now, env):
    """Add NaN to the faults of lanes whose observation is not finite or allows no action."""
    nothing, observations = np.float32(0), now.observations
    for row in env.observed_floats:
        numbers = shifted(address(observations), row * LANES)
        for i in range(LANES):
            now.faults[i] += numbers[i] * nothing
    first, last = env.sizes[MASK_ROW], env.sizes[NUM_ROWS]
    if last > first:
        words = address(observations.view(u32))
        for i in range(LANES):
            allowed = u32(0)
            for row in range(first, last):
                allowed |= words[row * LANES + i]
            if allowed == u32(0):
                now.faults[i] = np.nan


def _make_driver(is_sums: bool) -> Kernels:
    """Make the loops over blocks, serial and parallel, of `simulate` (sums) or `collect`."""
    write_env, write_policy = map(_make_write, (len(EnvArrays._fields), len(KernelPolicy._fields)))
    write_outputs = _make_write(1 if is_sums else len(Records._fields))
    to_tuple = inline((lambda sums: (sums,)) if is_sums else (lambda records: records), exact=True)

    def run_blocks(address, env, policy, num_steps, num_envs, outputs):
        """Write the frame, run all blocks, and return a code; see `Rollouts.drivers`."""
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


def make_open(dtypes: dict[str, Any], combine: Any, first: int) -> Callable[..., Any]:
    """Make an inlinable function (frame,) -> `combine(*arrays)`, of arrays that a frame names.

    Args:
        dtypes: of each array, by its name, in the order of the frame.
        combine: a NamedTuple, or a function of the arrays.
        first: place in the frame of the first array's address, which its size follows.
    """
    return _define_open(tuple(dtypes.items()), combine, first)


@functools.cache
def _define_open(dtypes: tuple[tuple[str, Any], ...], combine: Any, first: int) -> Any:
    """Return the function of `make_open`, the same one for equal arguments: numba compiles it once.

    Its source is `combine(array_at(frame[0], (frame[1],), like_real), ...)`, where `like_real` is a
    number of the array's dtype.
    """
    names: dict[str, Any] = {"combine": combine, "array_at": array_at}
    arrays = []
    for k, (name, dtype) in enumerate(dtypes):
        names[f"like_{name}"] = dtype(0)
        place = first + 2 * k
        arrays.append(f"array_at(frame[{place}], (frame[{place + 1}],), like_{name})")
    return inline(define(f"def open(frame): return combine({', '.join(arrays)})", **names))


#: `combine` of a single array.
_identity = inline(lambda array: array)


@functools.cache
def make_open_env(dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> `EnvArrays`, whose memory is one block's."""
    dtypes: dict[str, Any] = dict.fromkeys(EnvArrays._fields, np.int64)
    dtypes |= {"real": dtype, "words": u32, "numbers": dtype, "bounds": np.float32, "clock": u32}
    open_all, words_size = make_open(dtypes, EnvArrays, 0), NUM_WORDS * LANES

    @inline
    def open_env(frame, block):
        """Return views of the arrays of all blocks, cut to the block's part."""
        arrays = open_all(frame)
        size = arrays.sizes[BLOCK_SIZE]
        return EnvArrays(
            arrays.real[block * size : (block + 1) * size],
            arrays.words[block * words_size : (block + 1) * words_size],
            arrays.numbers,
            arrays.bounds,
            arrays.clock,
            arrays.sizes,
            arrays.observed_floats,
            arrays.state_floats,
        )

    return open_env


def make_open_policy(first: int = FIRST_POLICY) -> Callable[..., Any]:
    """Make an inlinable function (frame,) -> `KernelPolicy`; `first` is its place in the frame."""
    return make_open(POLICY_DTYPES, KernelPolicy, first)


def _make_write(count: int) -> Any:
    """Make an inlinable function (frame, first, arrays) that writes the arrays into a frame.

    It writes address and size of each of the `count` arrays, from place `first` on.
    """
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
def make_to_env_action(size: int, is_whole: bool, dtype: type) -> Any:
    """Make an inlinable function (action, bounds) -> the action as the environment's step takes it.

    The policy's numbers are clipped to their bounds, (2 * size,), and converted to the
    environment's dtype; whole numbers are converted to int32.

    Args:
        size: numbers of an action, which is a tuple; 0 of an action that is one whole number.
        is_whole: whether they are whole numbers.
        dtype: of the environment's floats.
    """
    if size == 0:
        return inline(lambda action, bounds: np.int32(action))
    if is_whole:
        whole = "".join(f"whole(action[{k}]), " for k in range(size))
        return inline(define(f"def to_int32(action, bounds): return ({whole})", whole=np.int32))
    items = "".join(
        f"real(min(max(single(action[{k}]), bounds[{k}]), bounds[{size + k}])), "
        for k in range(size)
    )
    source = f"def clip(action, bounds): return ({items})"
    return inline(define(source, real=dtype, single=np.float32))


@functools.cache
def make_fault_of_step(env: Structure, dtype: type) -> Any:
    """Make an inlinable (rows, decision) -> 0, or NaN if a number of a step is not finite.

    A mask that allows no action gives NaN too. `rows` are those of an observation, whose floats
    alone are checked; `decision` is a policy's (action, log_prob, value). Zero times a number is
    NaN only for NaN and infinity: one operation for each number, without a branch or a comparison.
    """
    spans = () if env.writes_observation else env.float_spans
    numbers = [f"rows[{first + k}]" for first, count in spans for k in range(count)]
    action_floats = 0 if env.choices else env.action_size
    numbers += [f"decision[0][{k}]" for k in range(action_floats)] + ["decision[1]", "decision[2]"]
    terms = [f"real({number}) * zero" for number in numbers]
    mask_rows = range(env.observation_rows, env.shown_rows)
    if mask_rows:
        words = " | ".join(f"single(rows[{row}]).view(word)" for row in mask_rows)
        terms.append(f"(nan if ({words}) == 0 else zero)")
    source = f"def fault_of_step(rows, decision): return {' + '.join(terms)}"
    names = {"single": np.float32, "word": np.uint32, "nan": dtype(np.nan)}
    return inline(define(source, real=dtype, zero=dtype(0), **names))


def make_fault_of_rows(env: Structure, dtype: type) -> Any:
    """Make `make_fault_of`'s function for the floats of an observation."""
    return make_fault_of(env.float_spans, dtype)


@functools.cache
def make_fault_of(spans: tuple[tuple[int, int], ...], dtype: type) -> Any:
    """Make an inlinable (rows, stride, i) -> 0, or NaN if a float of these spans is not finite.

    Args:
        spans: (first row, number of rows) of each run of floats; row k is rows[k * stride + i].
        dtype: of the result.
    """
    lines = ["def fault_of(rows, stride, i):", "    fault = nothing"]
    for first, count in spans:
        lines += [f"    for k in range({count}):"]
        lines += [f"        fault += real(rows[({first} + k) * stride + i]) * nothing"]
    source = "\n".join([*lines, "    return fault"])
    return inline(define(source, real=dtype, nothing=dtype(0)))


# ---------------------------------------------------------------- sums


def _make_simulate(env: Structure, dtype: type, policy: PolicyCode) -> Callable[..., None]:
    """Make the function (frame, num_steps, num_envs, block) of `simulate` by a scalar policy."""
    lane, step_lane = compile_lane(env, dtype), make_step_lane(env, dtype, True)
    act, draw_bits = make_act(interface_of(env, policy), policy), make_draw_bits()
    to_env_action = make_to_env_action(env.action_size, bool(env.choices), dtype)
    load, observe, unpack = lane.load, lane.observe, lane.unpack_params
    params_of_lane, first_draw = lane.params_of_lane, env.num_draws
    make_keys = make_draw_keys(policy.draws)
    read_constants = tuple_of(policy.params_type, policy.num_params)
    open_env, open_policy, open_sums = make_open_env(dtype), make_open_policy(), make_open_sums()
    sums = _make_sums(dtype)
    start, finish, put, flush = (
        sums.start,
        sums.finish,
        _make_put_sums(env, dtype),
        _make_flush(dtype),
    )
    exact = dtype is np.float64
    use_wide_vectors = prefer_wide_vectors if env.state.rows(dtype) < LONG else inline(lambda: None)

    def run(frame, num_steps, num_envs, block):
        """Let the policy act in all lanes of the block, step by step, and add up the results."""
        use_wide_vectors()
        env, policy = open_env(frame, block), open_policy(frame)
        sums, state, words = open_sums(frame, block), env.real, env.words
        begin, counter, limit = block * LANES, env.clock[0], env.clock[1]
        count = min(LANES, num_envs - begin)
        params, constants = unpack(env.numbers), read_constants(policy.weights)
        keys = make_keys(first_draw)
        lane_sums = start(sums, words, count, num_steps)
        for step in range(num_steps):
            now = u32(counter + u32(step))
            for i in range(count if exact else LANES):
                bits = draw_bits(words, i, now)
                observation = observe(load(state, LANES, i), params_of_lane(params, state, i))
                decision = act(observation, constants, bits, keys)
                action = to_env_action(decision[0], env.bounds)
                result = step_lane(state, words, i, action, bits, params, limit)
                put(lane_sums, i, observation, decision, result)
            if step % FLUSH == FLUSH - 1 or step == num_steps - 1:
                flush(lane_sums, sums, count)
        frame[FIRST_FAULT + block] = finish(lane_sums, sums, env, begin, count)

    return run


def _make_put_sums(env: Structure, dtype: type) -> Callable[..., None]:
    """Make (lane_sums, i, observation, decision, result), which adds a step of lane i."""
    get, set_ = row_access("rewards")
    one, zero, fault_of_step = dtype(1), dtype(0), make_fault_of_step(env, dtype)

    @inline
    def put(lane_sums, i, observation, decision, result):
        is_done = result.terminated | result.truncated
        total = result.total if is_done else zero
        set_(lane_sums, i, get(lane_sums, i) + (one if is_done else zero))
        set_(lane_sums, LANES + i, get(lane_sums, LANES + i) + total)
        set_(lane_sums, 2 * LANES + i, get(lane_sums, 2 * LANES + i) + total * total)
        # A network's NaN would choose action 0 of a `Discrete`, and no other number would show it.
        fault = fault_of_step(observation, decision)
        set_(lane_sums, 3 * LANES + i, get(lane_sums, 3 * LANES + i) + fault)

    return put


def _make_flush(dtype: type) -> Callable[..., None]:
    """Make (lane_sums, sums, count), which adds sums of lanes to those of a block, and zeroes them.

    `lane_sums` are (4 * LANES,): of each lane episodes, their returns, the squares of these, and
    faults.
    """
    (get, set_), zero = row_access("rewards"), dtype(0)

    @inline_source
    def flush(lane_sums, sums, count):
        for k in range(4):
            total = 0.0
            for i in range(LANES):
                total += get(lane_sums, k * LANES + i) if i < count else zero
                set_(lane_sums, k * LANES + i, zero)
            sums[k] += total

    return flush


@functools.cache
def _make_sums(dtype: type) -> BlockRecorder:
    """Make the recorder of `simulate`, whose output is the sums of a block, (5,) float64.

    Its memory are sums of lanes, see `_make_flush`; every `FLUSH` steps they are added to the
    output.
    """
    real, zero, one, flush = dtype, dtype(0), dtype(1), _make_flush(dtype)

    @inline_source
    def start(sums, words, count, num_steps):
        sums[:] = 0.0
        sums[LENGTHS] = count * num_steps + sum_elapsed(words, count)
        memory: Any = np.zeros(5 * LANES, real)
        first = to_line(address(memory), 0)  # a vector across two lines takes twice as long
        return memory[first : first + 4 * LANES]

    @inline
    def save_decisions(now, sums, place, count):
        pass

    @inline
    def save_results(now, sums, lane_sums, env, place, count, is_flush):
        returns = shifted(address(env.real), env.sizes[RETURNS_AT])
        for i in range(count):
            total = returns[i] if now.ended[i] != 0 else zero
            lane_sums[i] += one if now.ended[i] != 0 else zero
            lane_sums[LANES + i] += total
            lane_sums[2 * LANES + i] += total * total
            lane_sums[3 * LANES + i] = now.faults[i]
        if is_flush:
            flush(lane_sums, sums, count)

    @inline_source
    def finish(now, sums, env, begin, count):
        # Episodes that ended have the steps taken here and before, but not those of running ones.
        sums[LENGTHS] -= sum_elapsed(env.words, count)
        sums[FAULTS] += sums[RETURNS] * 0.0
        for row in env.state_floats:
            for i in range(count):
                sums[FAULTS] += env.real[row * LANES + i] * zero
        return 1 if sums[FAULTS] != 0.0 else 0

    return BlockRecorder(make_open_sums(), start, save_decisions, save_results, finish)


@functools.cache
def make_open_sums() -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> the sums of a block, (5,) float64."""
    open_all = make_open({"sums": np.float64}, _identity, FIRST_OUTPUT)

    @inline
    def open_sums(frame, block):
        return open_all(frame)[block * NUM_SUMS : (block + 1) * NUM_SUMS]

    return open_sums


@inline
def sum_elapsed(words, count):
    """Return the sum of the steps of the running episodes in a block's first `count` lanes."""
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


def _make_records(interface: Interface, dtype: type) -> BlockRecorder:
    """Make the recorder of `collect`, whose outputs are the `Records` of all environments.

    Finals, totals and lengths are written only of lanes whose episode ended.
    """
    width, nothing = max(interface.action_size, 1), dtype(0)
    peek, poke = row_access(ANY)[0], row_access("target")[1]
    open_all = make_open_records(interface.is_whole, dtype)

    @inline
    def start(records, words, count, num_steps):
        return 0

    @inline
    def copy(source, target, begin, count):
        for i in range(count):
            poke(target, begin + i, peek(source, i))

    @inline
    def transpose(source, target, begin, count, width):
        """Copy `width` rows of LANES to `count` environments with `width` numbers each."""
        for i in range(count):
            for k in range(width):
                poke(target, (begin + i) * width + k, peek(source, k * LANES + i))

    @inline_source
    def save_decisions(now, records, place, count):
        size = now.observations.size // LANES
        transpose(now.observations, records.observations, place, count, size)
        transpose(now.chosen, records.actions, place, count, width)
        copy(now.log_probs, records.log_probs, place, count)
        copy(now.values, records.values, place, count)

    @inline_source
    def save_results(now, records, memory, env, place, count, is_flush):
        returns = shifted(address(env.real), env.sizes[RETURNS_AT])
        half, size = records.flags.shape[0] // 2, now.observations.size // LANES
        copy(now.rewards, records.rewards, place, count)
        copy(now.terminated, records.flags, place, count)
        copy(now.truncated, records.flags, half + place, count)
        for i in range(count):
            now.faults[i] += now.rewards[i] * nothing
            if now.ended[i] != 0:
                records.totals[place + i] = returns[i]
                records.lengths[place + i] = now.elapsed[i] + u32(1)
                for k in range(size):
                    number = now.observations[k * LANES + i]
                    records.finals[(place + i) * size + k] = number
                for row in env.observed_floats:
                    now.faults[i] += now.observations[row * LANES + i] * nothing

    @inline_source
    def finish(now, records, env, begin, count):
        num_faulty, size = 0, now.observations.size // LANES
        transpose(now.observations, records.last, begin, count, size)
        add_faults(now, env)
        for i in range(count):
            num_faulty += now.faults[i] != nothing
        return num_faulty

    return BlockRecorder(open_all, start, save_decisions, save_results, finish)


@functools.cache
def make_open_records(is_whole: bool, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> the `Records` of all environments."""
    dtypes: dict[str, Any] = dict.fromkeys(Records._fields, np.float32)
    dtypes |= {"actions": np.int64 if is_whole else np.float32, "rewards": dtype, "totals": dtype}
    open_all = make_open(dtypes | {"lengths": u32, "flags": u8}, Records, FIRST_OUTPUT)

    @inline
    def open_records(frame, block):
        return open_all(frame)

    return open_records


SIMULATE, COLLECT = _make_driver(True), _make_driver(False)
