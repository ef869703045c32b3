"""One environment of a batch: its rows in memory and its step, as functions that kernels inline.

Environments live in blocks of `LANES`; lane i of a block is the place of its i-th environment. A
block has two flat arrays, structures of arrays whose row r of lane i is at `r * LANES + i`:

- `state` (or `rows`), floats of the environment's dtype: the rows of the state as
  `rlcpu.envs.layout.values` encodes it, one for each number of an `Episode`, and one for each
  parameter that differs between environments.
- `words`, uint32: the key of the lane's random stream (KEY_LOW, KEY_HIGH), and the steps of the
  running episode (ELAPSED).

So every loop over lanes has a constant length and provably disjoint rows: LLVM vectorises it
without a remainder and without alias checks. Arrays of structures cost 10x, and a remainder loop
would round differently from the vector body.

Random numbers of a step come from `bits`, two uint32 (a, b) which `mix` makes of the lane's key and
a counter; `uniforms` and `make_rng` make numbers of them. The functions that this module makes of
an environment are plain Python that numba inlines into a kernel; some are generated from source
text, with a term for each field or row, since numba types no loop over a tuple. `row_access(name)`
gives functions that read and write one number of an array: by their names LLVM knows which arrays
do not overlap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.dynamics import identity
from rlcpu.envs.engine.episode import SIZE, Episode, make_step_episode
from rlcpu.envs.engine.masks import make_pack, make_pack_written
from rlcpu.envs.engine.structure import Structure, user_functions
from rlcpu.envs.layout.values import make_decode, make_encode, make_select
from rlcpu.kernels.compiler.compile import (
    define,
    inline,
    inline_source,
    outline,
    source_of_tuple,
)
from rlcpu.kernels.machine.random import RANDOMIZE_GROUP, RESET_GROUP, STEP_GROUP, mix, uniforms
from rlcpu.kernels.machine.random_methods import make_rng
from rlcpu.kernels.machine.rows import load_rows, row_access, store_rows
from rlcpu.nn.network.heads import UNROLLED

#: Environments per block: one cache line of float32 is 16 lanes, four of them hide latencies, and
#: the state of a block and an MLP's activations (64 x 64 float32: 16 KB a layer) stay in L1.
LANES = 64
#: From so many rows of a state on, a step has more numbers than registers hold: vectors of 512 bits
#: lose there, and win wherever a step is shorter.
LONG = 64

#: Rows of a block's `words`.
KEY_LOW, KEY_HIGH, ELAPSED = range(3)
NUM_WORDS = 3


class Lane(NamedTuple):
    """Inlinable functions of one environment in one dtype.

    Below, `rows` is a block's flat array of floats, in which row r of lane i is at
    `r * stride + i`; `state` is a value, not memory; (a, b) are the random bits of a step.
    """

    #: (rows, stride, i) -> the state of lane i.
    load: Callable[..., Any]
    #: (rows, stride, i, state) writes it.
    store: Callable[..., Any]
    #: A tuple of rows -> state, and back.
    decode: Callable[..., Any]
    encode: Callable[..., Any]
    #: (condition, x, y) -> state x or state y.
    select: Callable[..., Any]
    #: (numbers,) -> the params NamedTuple, from the run-time numbers of `pack`.
    unpack_params: Callable[..., Any]
    #: (params, rows, i) -> the params of lane i, of which those that vary have own rows.
    params_of_lane: Callable[..., Any]
    #: (params, lane_params, a, b) -> params of the lane's next episode, some of which `randomize`
    #: draws; `lane_params` are those of the running episode. Called only where it draws any, as
    #: are the next two.
    redraw_params: Callable[..., Any]
    #: (condition, x, y) -> params x or y, which differ in what is redrawn.
    select_params: Callable[..., Any]
    #: (rows, i, params) writes the params of lane i that are redrawn.
    store_params: Callable[..., None]
    #: (state, action, params, a, b) -> (new state, reward, terminated, truncated).
    step: Callable[..., Any]
    #: (params, a, b) -> the state of a new episode.
    reset: Callable[..., Any]
    #: (state, params) -> tuple of the rows of the observation and of the action mask; float32, but
    #: those of a tuple of floats are of the environment's dtype.
    observe: Callable[..., Any]
    #: How many rows hold a state; those of the episode are behind them.
    rows: int


@functools.cache
def compile_lane(env: Structure, dtype: type) -> Lane:
    """Return the functions of an environment; float64 is exact, float32 fast."""
    size = env.state.rows(dtype)
    decode, encode = make_decode(env.state, dtype), make_encode(env.state, dtype)
    load_rows_of_state, store_rows_of_state = load_rows(size, "state"), store_rows(size, "state")

    @inline
    def load(rows, stride, i):
        return decode(load_rows_of_state(rows, stride, i))

    @inline
    def store(rows, stride, i, state):
        store_rows_of_state(rows, stride, i, encode(state))

    plain = env.state.is_plain  # a tuple of floats: its rows are the state itself
    return Lane(
        load=load_rows_of_state if plain else load,
        store=store_rows_of_state if plain else store,
        decode=decode,
        encode=encode,
        select=make_select(env.state, dtype),
        unpack_params=make_unpack_params(env),
        params_of_lane=make_params_of_lane(env, dtype),
        redraw_params=make_redraw_params(env, dtype),
        select_params=_make_select_params(env),
        store_params=make_store_params(env, dtype),
        step=_make_step(env, dtype),
        reset=_make_reset(env, dtype),
        observe=_make_observe(env, dtype),
        rows=size,
    )


def _make_step(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `step` of `Lane`, of the author's step."""
    user_step, truncates = user_functions(env, dtype)["step"], env.truncates
    converts, to_floats = returns_whole(env, env.state), make_floats(env.state, dtype)
    step_draws = make_draws(env.step_draws, env.reset_draws or 0, STEP_GROUP, dtype)

    is_random = env.step_draws != 0

    @inline_source
    def step(state, action, params, a, b):
        if is_random:
            result = user_step(state, action, params, step_draws(a, b))
        else:
            result = user_step(state, action, params)
        reached = to_floats(result[0]) if converts else result[0]
        return reached, result[1], result[2], result[3] if truncates else False

    return step


def _make_reset(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `reset` of `Lane`, of the author's reset."""
    user_reset = user_functions(env, dtype)["reset"]
    converts, to_floats = returns_whole(env, env.state), make_floats(env.state, dtype)
    reset_draws = make_draws(env.reset_draws, 0, RESET_GROUP, dtype)

    @inline
    def reset(params, a, b):
        state = user_reset(reset_draws(a, b), params)
        return to_floats(state) if converts else state

    return reset


def _make_observe(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `observe` of `Lane`, of the author's observe and action mask."""
    user_observe = user_functions(env, dtype)["observe"]
    is_plain, encode = env.observation.is_plain, make_encode(env.observation, np.float32)
    converts, to_floats = returns_whole(env, env.observation), make_floats(env.observation, dtype)
    is_masked, mask_of = env.action_mask is not None, make_mask_of(env, dtype)
    is_state = observes_state(env)

    @inline
    def observe(state, params):
        value = state if is_state else user_observe(state, params)
        if converts:
            rows = to_floats(value)
        elif is_plain:
            rows = value
        else:
            rows = encode(value)
        if is_masked:
            return rows + mask_of(state, params)
        return rows

    return observe


def observes_state(env: Structure) -> bool:
    """Tell whether an observation is the state itself, a tuple of floats, and has no mask."""
    is_state = env.observe.__code__ == identity.__code__ and env.observation.is_plain
    return is_state and env.action_mask is None


def make_mask_of(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make (state, params) -> the float32 rows of the author's action mask, a tuple.

    Without an action mask nobody calls it.
    """
    user_mask: Any = user_functions(env, dtype).get("action_mask")
    if env.writes_mask:
        return make_pack_written(user_mask, env.num_masked, env.choices)
    pack_mask = make_pack(env.num_masked, env.choices)
    # A mask of many actions is most of a kernel's code, and a kernel observes in three places.
    share_code = outline if env.num_masked > UNROLLED else inline_source

    @share_code
    def mask_of(state, params):
        return pack_mask(user_mask(state, params))

    return mask_of


def returns_whole(env: Structure, layout: Any) -> bool:
    """Tell whether an author's function may return ints for the floats of a plain value."""
    return env.has_whole and layout.is_plain


def make_floats(layout: Any, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function: a tuple of floats -> the same, ints and bools now floats.

    It is called where `returns_whole` says so. GPU kernels inline it, too: it is plain Python.
    """
    size = layout.fields[0].size if layout.is_plain else 0
    items = source_of_tuple(f"real(value[{k}])" for k in range(size))
    return inline(define(f"def floats(value): return {items}", real=dtype))


def make_draws(count: int | None, first: int, group: int, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (a, b) -> the random numbers that an author's function takes.

    Args:
        count: how many `uniforms`; None makes an `Rng`.
        first: how many uniforms of the same bits others take before.
        group: separates the numbers of an `Rng` from those of others with the same bits.
        dtype: of the numbers.
    """
    return make_rng(group, dtype) if count is None else uniforms(count, first, dtype)


class LaneStep(NamedTuple):
    """Results of one step of one lane, which may have started a new episode."""

    #: The state to which the step led, before a new episode.
    reached: Any
    #: The state with which the lane goes on: `reached`, or that of a new episode.
    next_state: Any
    #: Of the step; 0 where the step only started a new episode.
    reward: Any
    #: Whether and how the episode ended with this step.
    terminated: Any
    truncated: Any
    #: Return of the episode so far, this step included.
    total: Any
    #: Steps of the episode so far, this one included.
    elapsed: Any
    #: Of the lane in this step.
    params: Any
    #: Of the lane in the next step.
    next_params: Any


@functools.cache
def make_draw_bits() -> Callable[..., Any]:
    """Make an inlinable function (words, i, counter) -> the random bits (a, b) of lane i's step."""
    get_word, _ = row_access("words")

    @inline
    def draw_bits(words, i, counter):
        key_low = get_word(words, KEY_LOW * LANES + i)
        key_high = get_word(words, KEY_HIGH * LANES + i)
        return mix(key_low, key_high, counter)

    return draw_bits


@functools.cache
def make_step_lane(env: Structure, dtype: type, same_step: bool) -> Callable[..., Any]:
    """Make an inlinable (state, words, i, action, bits, params, limit) -> `LaneStep` of lane i.

    It steps lane i of a block and overwrites its rows in `state` and `words`. A finished episode is
    followed by a new one, see `make_step_episode`. Step and reset are both computed and one result
    is selected: branches would keep the loop over lanes from vectorising. `bits` are the random
    bits of the step, and `params` those of all lanes.
    """
    lane = compile_lane(env, dtype)
    load, store, select, step, reset = lane.load, lane.store, lane.select, lane.step, lane.reset
    params_of_lane, redraw_params = lane.params_of_lane, lane.redraw_params
    select_params, store_params = lane.select_params, lane.store_params
    varies, redraws = bool(env.varied), env.randomize is not None
    get_word, set_word = row_access("words")
    load_episode, store_episode = load_rows(SIZE, "state"), store_rows(SIZE, "state")
    episode_at, step_episode = lane.rows * LANES, make_step_episode(dtype, same_step)

    @inline_source
    def step_lane(state, words, i, action, bits, params, limit):
        elapsed = get_word(words, ELAPSED * LANES + i)
        lane_params = params_of_lane(params, state, i) if varies else params
        before = load(state, LANES, i)
        reached, reward, ends, cuts = step(before, action, lane_params, bits[0], bits[1])
        episode = Episode(*load_episode(state, LANES, episode_at + i))
        end = step_episode(episode, elapsed, reward, ends, cuts, limit)
        new_params = next_params = lane_params
        if redraws:
            new_params = redraw_params(params, lane_params, bits[0], bits[1])
            next_params = select_params(end.begins, new_params, lane_params)
            store_params(state, i, next_params)
        next_state = select(end.begins, reset(new_params, bits[0], bits[1]), reached)
        store(state, LANES, i, next_state)
        store_episode(state, LANES, episode_at + i, end.next_episode)
        set_word(words, ELAPSED * LANES + i, end.next_elapsed)
        return LaneStep(
            reached, next_state, end.reward, end.terminated, end.truncated, end.episode.total,
            end.elapsed, lane_params, next_params,
        )  # fmt: skip

    return step_lane


def block_rows(env: Structure, dtype: type) -> int:
    """Return how many rows of floats a block has: of states, episodes and parameters that vary."""
    return env.state.rows(dtype) + SIZE + len(env.varied)


# ---------------------------------------------------------------- parameters

# Numbers of params are read at run time, so that another gravity compiles nothing. Bools are
# constants of the machine code, so that an option that is off costs nothing.


def make_unpack_params(env: Structure) -> Callable[..., Any]:
    """Make `unpack_params` of `Lane`: (numbers,) -> the params NamedTuple.

    Its source is `Params(numbers[0], int(numbers[1]), True, ...)`.
    """
    names: Any = env.params_type._fields  # type: ignore[attr-defined]
    read_names = [name for name, option in zip(names, env.options, strict=True) if option is None]
    places = {name: k for k, name in enumerate(read_names)}
    params = _source_of_params(env, lambda name: _from_float(env, name, f"numbers[{places[name]}]"))
    return inline(define(f"def unpack(numbers): return {params}", Params=env.params_type, int=_int))


def _source_of_params(env: Structure, source_of: Callable[[str], str]) -> str:
    """Return the source of a call that makes the params, `Params(...)`.

    Args:
        env: the environment. Its params that are bools stand there as constants; the option of
            the others, numbers, is None.
        source_of: name of a number -> its source.
    """
    names: tuple[str, ...] = env.params_type._fields  # type: ignore[attr-defined]
    arguments = (
        source_of(name) if option is None else repr(option)
        for name, option in zip(names, env.options, strict=True)
    )
    return f"Params({', '.join(arguments)})"


@inline
def _int(number):
    """Return the float of memory that is a whole number as an int64.

    Only 32 bits of it count: conversions of vectors know no more.
    """
    return np.int64(np.int32(number))


def _from_float(env: Structure, name: str, number: str) -> str:
    """Return the source of a parameter, an int or a float, of that of the float in memory."""
    return f"int({number})" if name in env.int_params else number


def _row_places(env: Structure, dtype: type) -> dict[str, int]:
    """Return where in a block's floats the row of each parameter of its own begins, by name."""
    first_row = env.state.rows(dtype) + SIZE  # behind the state and the episode
    return {name: (first_row + k) * LANES for k, name in enumerate(env.varied)}


def make_params_of_lane(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `params_of_lane` of `Lane`: (params, rows, i) -> the params of lane i.

    Its source is `Params(peek(rows, 320 + i), params.mass, ...)`, where the first one has a row.
    """
    places = _row_places(env, dtype)

    def source_of(name: str) -> str:
        if name not in places:
            return f"params.{name}"
        return _from_float(env, name, f"peek(rows, {places[name]} + i)")

    source = f"def params_of_lane(params, rows, i): return {_source_of_params(env, source_of)}"
    return inline(define(source, Params=env.params_type, peek=row_access("state")[0], int=_int))


def make_redraw_params(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `redraw_params` of `Lane`: (params, lane_params, a, b) -> params of a new episode.

    The author's `randomize` gets, in the place of the numbers that it draws, those with which the
    environments were made, so that a draw does not depend on the draw before it.
    """
    randomize, drawn = user_functions(env, dtype).get("randomize"), env.randomized

    def nominal(name: str) -> str:
        return f"params.{name}" if name in drawn else f"lane_params.{name}"

    def redrawn(name: str) -> str:
        convert = "int" if name in env.int_params else "real"
        return f"{convert}(new.{name})" if name in drawn else f"lane_params.{name}"

    source = (
        "def redraw_params(params, lane_params, a, b):\n"
        f"    new = randomize(rng(a, b), {_source_of_params(env, nominal)})\n"
        f"    return {_source_of_params(env, redrawn)}"
    )
    functions = {"randomize": randomize, "rng": make_rng(RANDOMIZE_GROUP, dtype)}
    return inline(define(source, Params=env.params_type, real=dtype, int=_int, **functions))


def _make_select_params(env: Structure) -> Callable[..., Any]:
    """Make `select_params` of `Lane`: (condition, x, y) -> params x if the condition holds, else y.

    Only numbers that `randomize` draws can differ between x and y.
    """
    drawn = env.randomized

    def source_of(name: str) -> str:
        return f"x.{name} if condition else y.{name}" if name in drawn else f"y.{name}"

    source = f"def select_params(condition, x, y): return {_source_of_params(env, source_of)}"
    return inline(define(source, Params=env.params_type))


def make_store_params(env: Structure, dtype: type) -> Callable[..., None]:
    """Make `store_params` of `Lane`: (rows, i, params) writes what `randomize` drew for lane i."""
    places = _row_places(env, dtype)
    lines = [f"poke(rows, {places[name]} + i, real(params.{name}))" for name in env.randomized]
    source = f"def store_params(rows, i, params): {'; '.join(lines) or 'pass'}"
    return inline(define(source, poke=row_access("state")[1], real=dtype))


def pack(params: Any, dtype: type) -> npt.NDArray[Any]:
    """Return the run-time numbers of a params NamedTuple, (num_numbers,) of `dtype`."""
    return np.array([value for value in params if not isinstance(value, bool)], dtype=dtype)
