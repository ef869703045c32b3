"""A batch of environments: its memory in blocks, and the kernels of a step and of a reset."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import from_dtype, prange, types

from rlcpu.envs.engine.lane import (
    ELAPSED,
    KEY_HIGH,
    KEY_LOW,
    LANES,
    NUM_WORDS,
    PENDING,
    Structure,
    compile_lane,
    env_kernel,
    make_draw_words,
    make_turn,
    pack,
)
from rlcpu.envs.engine.layout import values_of
from rlcpu.envs.engine.masks import mask_rows
from rlcpu.kernels.calls import View, kind_of, make_call
from rlcpu.kernels.compile import EXACT, apart, compact, inline, kernel, merge, outline
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import address, aligned_zeros, pointer_to, shifted
from rlcpu.kernels.random import GOLDEN, keys
from rlcpu.kernels.rows import load_rows, row_access, store_rows
from rlcpu.kernels.threads import Kernels, launch

#: Rows of blocks that one iteration of a parallel loop takes, and numbers of a state, over all
#: environments, from which two cores are faster than one. The larger a state is, the longer its
#: step takes: CartPole's has 4 numbers, BipedalWalker's 81.
CHUNK_ROWS, GRAIN = 64, 2**16
u32 = np.uint32


class Memory:
    """State, random streams and episode clocks of N environments.

    The last block is padded with environments that nobody sees, so that every loop has whole
    blocks; they run like the others.

    Attributes:
        real: (blocks, rows * LANES), float: state rows, the return so far, and the parameters that
            vary.
        words: (blocks, NUM_WORDS * LANES) uint32: keys, counters and clocks.
        clock: (2,) uint32: the counter of random numbers, which every step advances for all
            streams alike (`seed` takes it off each key), and the limit of an episode's steps.
    """

    def __init__(self, env: Structure, num_envs: int, dtype: type, limit: int) -> None:
        blocks = -(-num_envs // LANES)
        self.num_envs = num_envs
        self.layout, self.varied, self._return_row = env.state, env.varied, env.state.rows(dtype)
        rows = self._return_row + 1 + len(env.varied)
        self.real = aligned_zeros((blocks, rows * LANES), dtype)
        self.words = aligned_zeros((blocks, NUM_WORDS * LANES), np.uint32)
        self.clock = np.array([0, limit], np.uint32)
        self._rows(self.words)[ELAPSED] = PENDING  # nobody is in an episode yet

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return its arrays by name, which a checkpoint keeps."""
        return {"real": self.real, "words": self.words, "clock": self.clock}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in ("real", "words"):  # a copied array begins anywhere
            copied = state[name]
            setattr(self, name, aligned_zeros(copied.shape, copied.dtype))
            getattr(self, name)[...] = copied

    def _rows(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a (blocks, rows * LANES) array as (rows, blocks, LANES), without a copy."""
        return array.reshape(array.shape[0], -1, LANES).swapaxes(0, 1)

    def _lanes(self, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a (blocks, LANES) row as a new (num_envs,) array."""
        return row.reshape(-1)[: self.num_envs].copy()

    def get_state(self) -> npt.NDArray[Any]:
        """(num_envs, state rows), a copy."""
        if self.layout.is_record:
            records = self._states().transpose(1, 2, 0).reshape(-1, self._return_row)
            return records[: self.num_envs].copy()
        return np.stack([self._lanes(row) for row in self._states()], axis=1)

    def _states(self) -> npt.NDArray[Any]:
        """(state rows, blocks, LANES), without a copy; with arrays each state is in one piece."""
        held = self.real[:, : self._return_row * LANES]
        if self.layout.is_record:
            return held.reshape(-1, LANES, self._return_row).transpose(2, 0, 1)
        return held.reshape(-1, self._return_row, LANES).swapaxes(0, 1)

    def set_state(self, state: npt.NDArray[Any]) -> None:
        """Copy (num_envs, state rows) in; finished episodes become running ones."""
        for row, values in zip(self._states(), self.pad(state).T, strict=True):
            row[...] = values.reshape(-1, LANES)
        elapsed = self._rows(self.words)[ELAPSED]
        returns = self._rows(self.real)[self._return_row]
        returns[elapsed == PENDING] = 0.0
        elapsed[elapsed == PENDING] = 0

    def take(self, part: slice) -> dict[str, npt.NDArray[Any]]:
        """Copy states, streams and clocks of some environments, for `put`."""
        places = self._places(part)
        others = self._rows(self.real)[self._return_row :]
        real = np.concatenate([self._states()[places], others[places]])
        words = self._rows(self.words)[places]
        words[KEY_LOW] += self.clock[:1] * GOLDEN  # another memory has another counter
        return {"real": real, "words": words}

    def put(self, part: slice, taken: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on in some environments as the memory would have that this was taken from."""
        places = self._places(part)
        self._states()[places] = taken["real"][: self._return_row]
        self._rows(self.real)[self._return_row :][places] = taken["real"][self._return_row :]
        words = self._rows(self.words)
        words[places] = taken["words"]
        words[KEY_LOW][places[1:]] -= self.clock[:1] * GOLDEN

    def _places(self, part: slice) -> tuple[Any, ...]:
        """Index of some environments in what `_rows` gives."""
        lanes = np.arange(self.num_envs)[part]
        return slice(None), lanes // LANES, lanes % LANES

    def get_returns(self) -> npt.NDArray[Any]:
        """(num_envs,) returns of the running episodes so far, a copy."""
        return self._lanes(self._rows(self.real)[self._return_row])

    def get_params(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters that vary, (num_envs,) each, copies."""
        rows = self._rows(self.real)[self._return_row + 1 :]
        return {name: self._lanes(row) for name, row in zip(self.varied, rows, strict=True)}

    def set_params(self, params: Mapping[str, npt.ArrayLike]) -> None:
        """Copy some of these in, (num_envs,) each or a number."""
        rows = self._rows(self.real)[self._return_row + 1 :]
        for name, values in params.items():
            padded = self.pad(np.broadcast_to(np.asarray(values), self.num_envs))
            rows[self.varied.index(name)] = padded.reshape(-1, LANES)

    def finish(self, mask: npt.NDArray[np.bool_]) -> None:
        """End the episodes of the masked environments: they wait for a reset."""
        self._rows(self.words)[ELAPSED][self.pad(mask).reshape(-1, LANES)] = PENDING

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """(num_envs,) steps of the running episodes; `PENDING` where one has finished."""
        return self._lanes(self._rows(self.words)[ELAPSED])

    def finished(self) -> npt.NDArray[np.bool_]:
        """(num_envs,) which episodes wait for their reset."""
        return self.elapsed() == PENDING

    def seed(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the streams of the masked environments anew, from one seed each."""
        rows = self._rows(self.words)
        low, high = keys(self.pad(seeds))
        chosen = self.pad(mask).reshape(-1, LANES)
        low -= self.clock[:1] * GOLDEN
        for index, values in ((KEY_LOW, low), (KEY_HIGH, high)):
            np.copyto(rows[index], values.reshape(-1, LANES), where=chosen)

    def pad(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(num_envs, ...) grown to (blocks * LANES, ...) by repeating the last entry."""
        padded = np.empty((self.words.shape[0] * LANES, *values.shape[1:]), values.dtype)
        padded[: self.num_envs], padded[self.num_envs :] = values, values[-1]
        return padded


# ---------------------------------------------------------------- kernels


class Steps(NamedTuple):
    """What steps the environments of one structure.

    Attributes:
        drivers: the loops over blocks, see `_make_driver`.
        function: one step of some blocks, compiled for C.
        address: of the function.
        limits: (max(action_size, 1) * LANES,) int64, how many choices each number of a block's
            actions has; (0,) where actions are floats.
    """

    drivers: Kernels
    function: Any
    address: int
    limits: npt.NDArray[np.int64]


class Outputs(NamedTuple):
    """Where the step of some blocks writes: rows of length `stride`, of which it has `begin` on.

    Attributes:
        observations, rewards, terminated, truncated, finals: pointers; see `_make_driver`.
    """

    begin: Any
    stride: Any
    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    finals: Any


class BlockSteps(NamedTuple):
    """What the step of some blocks is given: a count, pointers, and `Outputs`.

    Attributes:
        count: environments of the blocks, of which the last need not be full.
        state, words: rows of the first block, see `Memory`; the others follow.
        actions: (count, action_size), as users give them.
        chosen: (action_size, LANES), where the step puts those of a block for itself.
        numbers, clock: params, the counter of random numbers and the limit of an episode's steps.
        outputs: where it writes.
    """

    count: Any
    state: Any
    words: Any
    actions: Any
    chosen: Any
    numbers: Any
    clock: Any
    outputs: Any


@functools.cache
def step_kernels(env: Structure, dtype: type, same_step: bool) -> Steps:
    """Kernels of one step of N environments, of which that of some blocks is compiled here."""
    function = _compile_blocks(env, dtype, same_step)
    drivers = _make_driver(dtype, _is_whole(env))
    grain = GRAIN // env.state.rows(dtype) if dtype is np.float32 else 512
    choices = env.choices or ((env.num_actions,) if env.action_size == 0 else ())
    limits = np.tile(np.array(choices, np.int64), LANES)
    return Steps(drivers._replace(grain=grain), function, address_of(function), limits)


def _is_whole(env: Structure) -> bool:
    return env.action_size == 0 or bool(env.choices)


@functools.cache
def _blocks_type(dtype: type, is_whole: bool) -> Any:
    """Numba's type of `BlockSteps`."""
    real, single, flags = (types.CPointer(from_dtype(np.dtype(x))) for x in (dtype, "f4", "?"))
    words, whole, narrow = map(types.CPointer, (types.uint32, types.int64, types.int32))
    actions, chosen = (whole, narrow) if is_whole else (single, real)
    size = types.int64
    outputs = Outputs(size, size, single, real, flags, flags, single)
    return kind_of(BlockSteps(size, real, words, actions, chosen, real, words, outputs))


@functools.cache
def _make_driver(dtype: type, is_whole: bool) -> Kernels:
    """Driver: checks all actions, then steps all environments.

    Its arguments are address and limits of `Steps`, state (blocks, rows * LANES), words (blocks,
    NUM_WORDS * LANES), actions (n,) or (n, action_size), int64 or float32, params (num_numbers,),
    clock (2,): the counter of random numbers and the limit of an episode's steps; and the outputs
    observations (shown rows, n) float32, rewards (n,), terminated and truncated (n,) bool, and
    finals, which is like observations in same-step mode and empty otherwise. It returns the number
    of bad actions; nothing is written unless that is 0.
    """
    step_blocks = make_call(_blocks_type(dtype, is_whole))
    count_bad: Any = count_bad_of(is_whole)
    chosen_type = np.int32 if is_whole else dtype
    nothing, blank, real_bytes = dtype(0), np.float32(0), np.dtype(dtype).itemsize

    @merge
    def step_part(where, arrays, begin, count, width, chosen, outputs):
        state, words, actions, params, clock = arrays
        own_state = shifted(address(state), begin // LANES * state.shape[1])
        own_words = shifted(address(words), begin // LANES * words.shape[1])
        given = shifted(address(actions), begin * width)
        numbers, now = address(params), address(clock)
        blocks = BlockSteps(count, own_state, own_words, given, chosen, numbers, now, outputs)
        step_blocks(where, blocks)

    def step(
        where, limits, state, words, actions, params, clock,
        observations, rewards, terminated, truncated, finals,
    ):  # fmt: skip
        arrays = state, words, actions, params, clock
        n, rest = rewards.shape[0], rewards.shape[0] % LANES
        width, size = actions.size // n, max(CHUNK_ROWS * LANES // state.shape[1], 1) * LANES
        bad = 0
        for c in prange((n + size - 1) // size):
            for begin in range(c * size, min((c + 1) * size, n), LANES):
                given = shifted(address(actions), begin * width)
                bad += count_bad(given, address(limits), min(LANES, n - begin) * width)
        if bad > 0:
            return bad
        for c in prange((n - rest + size - 1) // size):
            chosen: Any = np.empty(width * LANES, chosen_type)
            begin, count = c * size, min(size, n - rest - c * size)
            seen, ended = address(observations), address(finals)
            paid, failed, cut = address(rewards), address(terminated), address(truncated)
            outputs = Outputs(begin, n, seen, paid, failed, cut, ended)
            step_part(where, arrays, begin, count, width, address(chosen), outputs)
            chosen[0] = nothing  # keeps it alive until now: an address does not
        if rest > 0:
            # A block that is not full leads to rows of LANES, which are copied to their places.
            begin, seen_at = n - rest, (1 + width) * LANES * real_bytes
            ended_at = seen_at + 4 * LANES * observations.shape[0]
            flags_at = ended_at + 4 * LANES * finals.shape[0]
            memory = np.empty(flags_at + 2 * LANES, np.uint8)
            first = memory.ctypes.data
            paid = pointer_to(first, nothing)
            own = pointer_to(first + LANES * real_bytes, chosen_type(0))
            seen, ended = pointer_to(first + seen_at, blank), pointer_to(first + ended_at, blank)
            failed = pointer_to(first + flags_at, False)
            cut = shifted(failed, LANES)
            outputs = Outputs(0, LANES, seen, paid, failed, cut, ended)
            step_part(where, arrays, begin, rest, width, own, outputs)
            copy_rows(paid, address(rewards), 1, rest, begin)
            copy_rows(failed, address(terminated), 1, rest, begin)
            copy_rows(cut, address(truncated), 1, rest, begin)
            copy_rows(seen, address(observations), observations.shape[0], rest, begin)
            copy_rows(ended, address(finals), finals.shape[0], rest, begin)
            memory[0] = 0
        clock[0] += u32(1)
        return bad

    return Kernels(kernel(step, fastmath=EXACT), kernel(step, fastmath=EXACT, parallel=True), 0)


def _compile_blocks(env: Structure, dtype: type, same_step: bool) -> Any:
    """Function of a view of `BlockSteps`, compiled for C.

    It is compiled once for the loop on one core and that on all, neither of which optimises it
    again.
    """
    lane = compile_lane(env, dtype)
    observe, unpack = lane.observe, lane.unpack
    turn, exact = make_turn(env, dtype, same_step), dtype is np.float64
    draw_words, width = make_draw_words(), max(env.action_size, 1)
    _, set_reward = row_access("rewards")
    _, set_terminated = row_access("terminated")
    _, set_truncated = row_access("truncated")
    (peek, _), (_, poke) = row_access("source"), row_access("actions")
    get_action = _make_get_action(env)
    set_observation = store_rows(env.shown_rows, "observations")
    set_final = store_rows(env.shown_rows, "finals")
    rows = (env.state.rows(dtype) + 1 + len(env.varied)) * LANES
    chosen_type = np.int32 if _is_whole(env) else dtype

    @env_kernel(env, dtype)
    def step(blocks):
        size, chosen, outputs = blocks.count, blocks.chosen, blocks.outputs
        params, counter, limit = unpack(blocks.numbers), blocks.clock[0], blocks.clock[1]
        stride, observations, rewards = outputs.stride, outputs.observations, outputs.rewards
        terminated, truncated, finals = outputs.terminated, outputs.truncated, outputs.finals
        for block in range((size + LANES - 1) // LANES):
            state = shifted(blocks.state, block * rows)
            words = shifted(blocks.words, block * NUM_WORDS * LANES)
            given = shifted(blocks.actions, block * width * LANES)
            begin, count = outputs.begin + block * LANES, min(LANES, size - block * LANES)
            if count < LANES:  # what nobody sees takes an action that there is
                for i in range(width * LANES):
                    poke(chosen, i, chosen_type(0))
            # Narrow numbers in rows: an int64 in the loop over lanes would halve its vectors.
            for i in range(count):
                for k in range(width):
                    poke(chosen, k * LANES + i, peek(given, i * width + k))
            # libm does not vectorise: the exact mode steps only the lanes that are in use.
            for i in range(count if exact else LANES):
                bits = draw_words(words, i, counter)
                action = get_action(chosen, LANES, i)
                end = turn(state, words, i, action, bits, params, limit)
                if same_step:
                    set_final(finals, stride, begin + i, observe(end.reached, end.params))
                set_observation(observations, stride, begin + i, observe(end.kept, end.kept_params))
                set_reward(rewards, begin + i, end.reward)
                set_terminated(terminated, begin + i, end.terminated)
                set_truncated(truncated, begin + i, end.truncated)

    step.compile((View(_blocks_type(dtype, _is_whole(env))),))
    return step


def _make_get_action(env: Structure) -> Any:
    """Inlinable function (rows, stride, lane) -> action."""
    peek, _ = row_access("actions")
    if env.action_size == 0:
        return inline(lambda rows, stride, i: peek(rows, i))
    return load_rows(env.action_size, "actions")


def count_bad_of(is_whole: bool) -> Any:
    """Inlinable function (actions, limits, count) -> how many of the first numbers are bad."""
    return _out_of_range if is_whole else _not_a_number


@inline
def _out_of_range(actions, limits, count):
    """Count the numbers, of the first `count`, that are below 0 or not below their limits."""
    bad: Any = 0
    for i in range(count):
        bad += np.uint64(actions[i]) >= np.uint64(limits[i])
    return bad


@inline
def _not_a_number(actions, limits, count):
    """Count the NaN among the first `count` numbers."""
    bad: Any = 0
    for i in range(count):
        bad += actions[i] != actions[i]
    return bad


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Any:
    """Driver (state, words, mask, params, clock): new states where mask (blocks * LANES,) is set.

    The counter advances by one; the keys of the other environments step back by one, so
    that their streams do not depend on it.
    """
    lane = compile_lane(env, dtype)
    load, store, select, reset, unpack = lane.load, lane.store, lane.select, lane.reset, lane.unpack
    vary, redraw, keep, choose = lane.vary, lane.redraw, lane.keep, lane.choose
    return_row, zero, real = lane.rows * LANES, u32(0), dtype
    draw_words = make_draw_words()

    @env_kernel(env, dtype)
    def reset_batch(state, words, mask, numbers, clock):
        params, counter = unpack(numbers), clock[0]
        for block in range(state.shape[0]):
            rows, word, chosen = state[block], words[block], mask[block * LANES :]
            for i in range(LANES):
                bits = draw_words(word, i, counter)
                own = vary(params, rows, i)
                drawn = redraw(params, own, bits[0], bits[1])
                fresh = reset(drawn, bits[0], bits[1])
                store(rows, LANES, i, select(chosen[i], fresh, load(rows, LANES, i)))
                keep(rows, i, choose(chosen[i], drawn, own))
                total, elapsed = rows[return_row + i], word[ELAPSED * LANES + i]
                rows[return_row + i] = real(0) if chosen[i] else total
                key = word[KEY_LOW * LANES + i]
                word[KEY_LOW * LANES + i] = key if chosen[i] else u32(key - GOLDEN)
                word[ELAPSED * LANES + i] = zero if chosen[i] else elapsed
        clock[0] += u32(1)

    return reset_batch


@functools.cache
def observe_kernel(env: Structure, dtype: type) -> Any:
    """Driver (state, params, observations): writes observations in rows, one column per lane."""
    lane = compile_lane(env, dtype)
    load, observe, unpack, vary = lane.load, lane.observe, lane.unpack, lane.vary
    put, size = store_rows(env.shown_rows, "observations"), env.shown_rows

    @env_kernel(env, dtype)
    def observe_batch(state, numbers, observations):
        params, n = unpack(numbers), observations.shape[0] // size
        for block in range(state.shape[0]):
            begin = block * LANES
            for i in range(min(LANES, n - begin)):
                own = vary(params, state[block], i)
                put(observations, n, begin + i, observe(load(state[block], LANES, i), own))

    return observe_batch


@outline
def copy_rows(source, target, rows, count, begin):
    """Copy `count` items of each row of LANES to the end of a row of `begin + count`."""
    apart()
    compact()
    for row in range(rows):
        for i in range(count):
            target[row * (begin + count) + begin + i] = source[row * LANES + i]


# ---------------------------------------------------------------- what VectorEnv asks for


def allocate(env: Any, limit: int) -> None:
    """Give the environments their memory, and find their kernels."""
    env.memory = Memory(env.code, env.num_envs, env.scalar_type, limit)
    nominal = {name: getattr(env.dynamics.params, name) for name in env.code.varied}
    env.memory.set_params({**nominal, **env.dynamics.varied})
    env._finals = np.empty(env._observation_shape if env._same_step else (0, 0), np.float32)
    find_kernels(env)


def find_kernels(env: Any) -> None:
    """Give the environments their kernels and numbers, which copies of them find anew."""
    env.numbers = pack(env.dynamics.params, env.scalar_type)
    env._steps = None  # compiled when they are first asked for


def step(env: Any, actions: Any) -> tuple[Any, ...] | None:
    """Observations, rewards, terminated, truncated and, in same-step mode, what was reached.

    Returns:
        None if nothing was stepped: an action is bad.

    Raises:
        gymnasium.error.ResetNeeded: an environment has finished while autoreset is disabled.
    """
    if env._disabled:
        env.check_running()
    if env._steps is None:
        env._steps = step_kernels(env.code, env.scalar_type, env._same_step)
    n, memory, steps = env.num_envs, env.memory, env._steps
    observations = np.empty(env._observation_shape, np.float32)
    rewards = np.empty(n, env.dtype)
    terminated, truncated = np.empty(n, np.bool_), np.empty(n, np.bool_)
    if launch(
        steps.drivers, n, env.num_threads, steps.address, steps.limits,
        memory.real, memory.words, actions, env.numbers, memory.clock,
        observations, rewards, terminated, truncated, env._finals,
    ):  # fmt: skip
        return None
    return observations, rewards, terminated, truncated, env._finals


def restart(env: Any, mask: npt.NDArray[np.bool_], numbers: npt.NDArray[Any]) -> None:
    """Give the masked environments new states, drawn with the run-time params `numbers`."""
    run, memory = reset_kernel(env.code, env.scalar_type), env.memory
    run(memory.real, memory.words, memory.pad(mask), numbers, memory.clock)


def observe(env: Any) -> npt.NDArray[np.float32]:
    """Return the observations of the present states, (observation rows, num_envs) float32."""
    observations = np.empty(env._observation_shape, np.float32)
    run = observe_kernel(env.code, env.scalar_type)
    run(env.memory.real, env.numbers, observations.ravel())
    return observations


def final_observations(finals: Any, done: npt.NDArray[np.bool_], view: Any) -> Any:
    """Return the last observations of ended episodes, an object array (num_envs,), or None."""
    if not done.any():
        return None
    final_obs, ended = np.full(done.size, None, dtype=object), np.flatnonzero(done)
    for i, observation in zip(ended, view.show(finals[:, ended]), strict=True):
        final_obs[i] = observation.copy()
    return final_obs


def check_masks(env: Any, rows: npt.NDArray[Any], waiting: npt.NDArray[Any] | None) -> None:
    """Raise ValueError if a mask in rows (shown rows, N) allows nothing where one has to act."""
    words = rows[-mask_rows(env.view.num_masked) :].view(np.uint32)
    empty = (words == 0).all(axis=0)
    if waiting is not None:
        empty &= ~waiting
    if not empty.any():
        return
    i = int(np.argmax(empty))
    state = values_of(env.dynamics.state, env.memory.get_state()[i : i + 1].T)[0]
    raise ValueError(
        f"{env.dynamics.id}: action_mask allows nothing in environment {i}, step "
        f"{env.memory.elapsed()[i] % PENDING} of its episode, for state={state!r} ({empty.sum()} "
        "such environments): expected one action at least, or the end of the episode"
    )


def physical_memory() -> int:
    """Bytes of memory of this machine; a large number where nobody says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62


#: New arrays of any content.
empty = np.empty


def asarray(array: Any) -> Any:
    """Return the array, which is on the host."""
    return array


def to_host(array: Any) -> Any:
    """Return the array, which is on the host."""
    return array
