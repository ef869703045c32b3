"""`simulate` by a scalar policy: one compiled function that acts and steps, and keeps sums alone.

A scalar policy takes about as long as the step of a small environment. So the calls and the memory
between the two, which `rlcpu.envs.rollout.compiled` has elsewhere, are left out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.envs.acting.choices import make_to_env_action
from rlcpu.envs.acting.decide import make_act
from rlcpu.envs.contract.policies import PolicyCode
from rlcpu.envs.engine.array_lane import compile_functions
from rlcpu.envs.engine.form import EPISODES, FAULTS, RETURNS, SQUARES
from rlcpu.envs.engine.interface import Interface, interface_of
from rlcpu.envs.engine.lane import (
    LANES,
    LONG,
    compile_lane,
    make_draw_bits,
    make_step_lane,
    make_unpack_params,
)
from rlcpu.envs.engine.structure import Structure
from rlcpu.envs.rollout.recorders import (
    FLUSH,
    make_finish_sums,
    make_flush,
    make_start_sums,
    open_block,
)
from rlcpu.kernels.compiler.compile import define, inline, prefer_wide_vectors
from rlcpu.kernels.compiler.functions import reads_argument
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import array_at, place_of
from rlcpu.kernels.machine.rows import load_rows, row_access

u32 = np.uint32
#: Steps of an environment with arrays for which random bits are drawn at once, in vectors, so that
#: no step waits for them: that saves a fifth of the time of Snake's.
AHEAD = 32


def make_simulate(env: Structure, dtype: type, policy: PolicyCode) -> Callable[..., None]:
    """Make the function (frame, policy, records, num_steps, block): all steps of one block.

    It records nothing, and reads no `records`.
    """
    make = _make_simulate_records if env.state.is_record else _make_simulate_lanes
    return make(env, dtype, policy)


def _make_simulate_lanes(env: Structure, dtype: type, policy: PolicyCode) -> Callable[..., None]:
    """Make `make_simulate`'s function for states along lanes: all lanes take a step together."""
    lane, step_lane = compile_lane(env, dtype), make_step_lane(env, dtype, same_step=True)
    interface, draw_bits = interface_of(env, policy), make_draw_bits()
    read_constants, make_keys, act, scratch_size = make_act(interface, policy)
    size_of_action, is_whole, loops = interface.action_size, interface.is_whole, interface.loops
    to_env_action = make_to_env_action(size_of_action, is_whole, dtype, loops)
    load, observe, unpack = lane.load, lane.observe, lane.unpack_params
    params_of_lane, varies, first_draw = lane.params_of_lane, bool(env.varied), env.num_draws
    start, finish = make_start_sums(dtype), make_finish_sums(True, dtype)
    add_step, flush = _make_add_step(env, interface, dtype), make_flush(dtype)
    exact = dtype is np.float64  # without vectors: only lanes in use are stepped then
    # Wide vectors lose where a step has more numbers than registers hold.
    use_wide_vectors = prefer_wide_vectors if env.state.rows(dtype) < LONG else inline(lambda: None)

    def run(frame, policy, records, num_steps, block):
        use_wide_vectors()
        here = open_block(frame, block)
        state, words, count = here.state, here.words, here.count
        counter, limit, bounds = frame.clock[0], frame.clock[1], frame.bounds
        params, constants = unpack(frame.numbers), read_constants(policy.weights)
        keys = make_keys(first_draw)  # the environment takes the random numbers before these
        lane_sums = start(here, num_steps)
        scratch = np.zeros(scratch_size, np.float32) if scratch_size else ()
        for step in range(num_steps):
            now = u32(counter + u32(step))
            for i in range(count if exact else LANES):
                bits = draw_bits(words, i, now)
                lane_params = params_of_lane(params, state, i) if varies else params
                observation = observe(load(state, LANES, i), lane_params)
                decision = act(observation, constants, bits, keys, scratch)
                action = to_env_action(decision[0], bounds)
                result = step_lane(state, words, i, action, bits, params, limit)
                add_step(lane_sums, i, observation, decision, result)
            if step % FLUSH == FLUSH - 1 or step == num_steps - 1:
                flush(lane_sums, here)
        frame.faults[block] = finish(frame, here)

    return run


def _make_add_step(env: Structure, interface: Interface, dtype: type) -> Callable[..., None]:
    """Make (lane_sums, i, observation, decision, result), which adds a step of lane i.

    `lane_sums` are (LANE_SUMS * LANES,), see `LANE_SUMS`.
    """
    get, set_ = row_access("rewards")  # a name that promises: no array of other names overlaps
    one, zero, fault_of_step = dtype(1), dtype(0), _make_fault_of_step(env, interface, dtype)

    @inline
    def add(lane_sums, row, i, number):
        set_(lane_sums, row * LANES + i, get(lane_sums, row * LANES + i) + number)

    @inline
    def add_step(lane_sums, i, observation, decision, result):
        is_done = result.terminated | result.truncated
        total = result.total if is_done else zero
        add(lane_sums, EPISODES, i, one if is_done else zero)
        add(lane_sums, RETURNS, i, total)
        add(lane_sums, SQUARES, i, total * total)
        # A policy's NaN would choose action 0 of a `Discrete`, and no other number would show it.
        add(lane_sums, FAULTS, i, fault_of_step(observation, decision))

    return add_step


def _make_simulate_records(env: Structure, dtype: type, policy: PolicyCode) -> Callable[..., None]:
    """Make `make_simulate`'s function for states with arrays.

    An environment takes all its steps before the next one begins, so that its state stays in the
    first cache. Observations are written only if the policy reads them.
    """
    functions, draw_bits = compile_functions(env, dtype), make_draw_bits()
    params_of_lane, step_lane = functions.params_of_lane, functions.step
    restart, observe = functions.restart, functions.observe
    interface, unpack = interface_of(env, policy), make_unpack_params(env)
    read_constants, make_keys, act, scratch_size = make_act(interface, policy)
    size_of_action, is_whole, loops = interface.action_size, interface.is_whole, interface.loops
    to_env_action = make_to_env_action(size_of_action, is_whole, dtype, loops)
    start, finish = make_start_sums(dtype), make_finish_sums(False, dtype)
    fault_of_step = _make_fault_of_step(env, interface, dtype)
    nothing, zero, first_draw, size = dtype(0), np.float32(0), env.num_draws, env.shown_rows
    observes = policy.masked or reads_argument(policy.act, 0)
    load = load_rows(size, ANY)
    # A policy takes an observation that was written as an array, and any other as a tuple.
    to_rows = inline(
        (lambda observation: observation)
        if env.writes_observation
        else (lambda observation: load(observation, 1, 0))
    )

    def run(frame, policy, records, num_steps, block):
        here = open_block(frame, block)
        state, words, sums, count = here.state, here.words, here.sums, here.count
        counter, limit, bounds = frame.clock[0], frame.clock[1], frame.bounds
        params, constants = unpack(frame.numbers), read_constants(policy.weights)
        keys = make_keys(first_draw)
        memory, bits_ahead = np.zeros(size, np.float32), np.empty(2 * AHEAD, np.uint32)
        scratch = np.zeros(scratch_size, np.float32) if scratch_size else ()
        # An array over memory that it does not own, so that numba counts no references.
        observation = array_at(place_of(memory, 0), (size,), zero)
        start(here, num_steps)
        for i in range(count):
            fault = nothing
            for step in range(num_steps):
                if step % AHEAD == 0:
                    for t in range(AHEAD):
                        first, second = draw_bits(words, i, u32(counter + u32(step + t)))
                        bits_ahead[t], bits_ahead[AHEAD + t] = first, second
                bits = bits_ahead[step % AHEAD], bits_ahead[AHEAD + step % AHEAD]
                if observes:
                    observe(state, i, params_of_lane(params, state, i), observation, 0)
                rows = to_rows(observation)
                decision = act(rows, constants, bits, keys, scratch)
                action = to_env_action(decision[0], bounds)
                result = step_lane(state, words, i, action, bits, params, limit)
                fault += fault_of_step(rows, decision) + result.reward * nothing
                if result.terminated or result.truncated:
                    total = np.float64(result.episode.total)
                    sums[EPISODES] += 1.0
                    sums[RETURNS] += total
                    sums[SQUARES] += total * total
                    restart(state, words, i, bits, params)
            sums[FAULTS] += np.float64(fault)
        memory[0] = zero  # an access, which keeps the array alive until here
        frame.faults[block] = finish(frame, here)

    return run


def _make_fault_of_step(env: Structure, interface: Interface, dtype: type) -> Any:
    """Make an inlinable (rows, decision) -> 0, or NaN if a number of a step is not finite.

    A mask that allows no action gives NaN too. `rows` are those of an observation, whose floats are
    checked unless `observe` wrote them; `decision` is a policy's (action, log_prob, value).
    Its source is `real(rows[0]) * zero + real(decision[1]) * zero + ...`.
    """
    spans = () if env.writes_observation else env.float_spans
    numbers = [f"rows[{row}]" for first, count in spans for row in range(first, first + count)]
    action_floats = 0 if env.choices else env.action_size
    if interface.loops and action_floats:
        numbers.append("fault_of(decision[0])")
    else:
        numbers += [f"decision[0][{k}]" for k in range(action_floats)]
    numbers += ["decision[1]", "decision[2]"]
    terms = [f"real({number}) * zero" for number in numbers]
    mask_rows = range(env.observation_rows, env.shown_rows)
    if mask_rows:
        words = " | ".join(f"single(rows[{row}]).view(word)" for row in mask_rows)
        terms.append(f"(nan if ({words}) == 0 else zero)")
    source = f"def fault_of_step(rows, decision): return {' + '.join(terms)}"
    names = {"single": np.float32, "word": np.uint32, "nan": dtype(np.nan), "fault_of": _fault_of}
    return inline(define(source, real=dtype, zero=dtype(0), **names))


@inline
def _fault_of(numbers):
    """Return 0, or NaN if a number of an array is not finite."""
    fault = np.float32(0)
    for k in range(numbers.size):
        fault += numbers[k] * np.float32(0)
    return fault
