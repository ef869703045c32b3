"""One environment of a batch: its rows in memory and its step, as functions that kernels inline.

Environments live in blocks of `LANES`. A block's numbers are structure-of-arrays rows at constant
distances (row r of lane i at `r * LANES + i`), so that every loop over lanes has a constant length
and provably disjoint rows: LLVM vectorises it without a remainder and without alias checks.
Array-of-structures costs 10x, a remainder loop would round differently from the vector body.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.checks.fields import whole_names
from rlcpu.envs.checks.trial import check_result, results_with_none
from rlcpu.envs.checks.vectorised import is_written_by_users, tell_users
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.layout import make_decode, make_encode, make_select
from rlcpu.envs.engine.masks import make_pack, mask_rows
from rlcpu.envs.engine.observations import GroupPart, ObservationView
from rlcpu.kernels import hooks
from rlcpu.kernels.compile import (
    EXACT,
    FAST,
    define,
    freeze,
    inline,
    kernel,
    merge,
    outline,
    source_of_tuple,
    specialise,
)
from rlcpu.kernels.random import (
    RANDOMIZE_GROUP,
    RESET_GROUP,
    STEP_GROUP,
    make_rng,
    mix,
    uniforms,
)
from rlcpu.kernels.rows import load_rows, row_access, store_rows
from rlcpu.nn.heads import UNROLLED

#: Environments per block: one cache line of float32 is 16 lanes, four of them hide latencies, and
#: the state of a block and an MLP's activations (64 x 64 float32: 16 KB a layer) stay in L1.
LANES = 64
#: Rows of a state from which on a step is long. It then keeps more numbers at hand than registers
#: hold: vectors of 512 bits lose there, and win wherever a step is shorter.
LONG = 64

#: Rows of a block's uint32 words.
KEY_LOW, KEY_HIGH, ELAPSED = range(3)
NUM_WORDS = 3


# A block's rows of real numbers are the state, the return of the running episode, and the
# parameters that vary from environment to environment.

#: Value of ELAPSED that marks an episode as finished and not reset yet. One more step makes it 0.
PENDING = 0xFFFFFFFF


class Structure(NamedTuple):
    """Facts of a `Dynamics` on which kernels depend: environments with equal ones share them.

    Attributes:
        params_type: class of the params NamedTuple.
        options: for each field of params its constant, or None where it is read at run time.
        whole: the fields of params that are ints.
        has_whole: whether whole numbers or bools are returned in the place of floats.
        state, observation: what a state and an observation are made of: `Layout`, or `ArrayLayout`.
        reset_draws, step_draws: how many `uniforms` the functions take; None for an `Rng`.
        truncates: whether `step` returns a fourth value, which truncates the episode.
        varied: the fields of params that have a row in memory, in their order.
        randomized: those of them that `randomize` draws.
        action_mask: None where all actions are always allowed.
        shape: of the array into which `observe` writes; () where it returns an observation, or
            writes a group.
        parts: of a group, see `ObservationView`; whole numbers are one without a name, and others
            have none.
        starts: the smallest numbers of choices.
        choices: of each number of a `MultiDiscrete`; () for other actions.
    """

    step: Callable[..., Any]
    reset: Callable[..., Any]
    observe: Callable[..., Any]
    action_mask: Callable[..., Any] | None
    params_type: type
    options: tuple[bool | None, ...]
    whole: tuple[str, ...]
    has_whole: bool
    state: Any
    observation: Any
    shape: tuple[int, ...]
    parts: tuple[GroupPart, ...]
    starts: tuple[int, ...]
    action_size: int
    num_actions: int
    choices: tuple[int, ...]
    reset_draws: int | None
    step_draws: int | None
    truncates: bool
    varied: tuple[str, ...]
    randomized: tuple[str, ...]
    randomize: Callable[..., Any] | None

    @property
    def observation_rows(self) -> int:
        """Return how many rows of float32 numbers hold an observation."""
        return self.observation.rows(np.float32)

    @property
    def is_written(self) -> bool:
        """Tell whether `observe` writes into memory in the place of returning an observation."""
        return self.shape != () or self.observation.is_record

    @property
    def is_lone(self) -> bool:
        """Tell whether an observation is one array of whole numbers, as an image is."""
        return [part.name for part in self.parts] == [""]

    @property
    def real_spans(self) -> tuple[tuple[int, int], ...]:
        """Return first row and count of the floats of an observation, in which NaN is a fault."""
        if self.shape:
            return ((0, self.observation_rows),)
        return tuple(self.observation.real_spans(np.float32))

    @property
    def shown_rows(self) -> int:
        """Return `observation_rows` and those of the action mask, which come after them."""
        return self.observation_rows + (mask_rows(self.num_actions) if self.action_mask else 0)

    @property
    def num_draws(self) -> int:
        """Return how many numbers are drawn before a policy's; those of an `Rng` do not count."""
        return (self.reset_draws or 0) + (self.step_draws or 0)


#: The environment of each structure, the first one of several: what users are told is compiled.
ids: dict[Structure, str] = {}


def structure(dynamics: Dynamics) -> Structure:
    """Return an environment's structure, with copies (`freeze`) of its functions as they are now.

    Two environments of equal code have the same structure, and share kernels. If a helper or a
    constant that a function reads has changed since the last call, the structure is another one.
    """
    derived = {"params_type", "options", "whole", "reset_draws", "step_draws", "varied"}
    derived |= {"shape", "parts", "starts"}
    fields = [name for name in Structure._fields if name not in derived]
    draws: dict[str, Any] = {
        f"{name}_draws": None if dynamics.takes_rng(name) else getattr(dynamics, f"{name}_draws")
        for name in ("reset", "step")
    }
    options = tuple(v if isinstance(v, bool) else None for v in dynamics.params)
    varied = {*dynamics.varied, *dynamics.randomized}
    view = ObservationView.of(dynamics, "uint8", np.dtype(np.float32))
    made: Structure = freeze(
        Structure(
            params_type=type(dynamics.params),
            options=options,
            whole=whole_names(dynamics.params),
            shape=dynamics.written_shape,
            # Plain numbers are one part, without a name.
            parts=view.parts if view.kind != "numbers" else (GroupPart("", 0, view),),
            starts=view.start,
            varied=tuple(name for name in dynamics.params._fields if name in varied),
            **draws,
            **{name: getattr(dynamics, name) for name in fields},
        )
    )
    ids.setdefault(made, dynamics.id)
    return made


class Lane(NamedTuple):
    """The functions of one environment in one dtype.

    `rows` is a flat array in which row r of lane i stands at `r * stride + i`.

    Attributes:
        load: (rows, stride, i) -> state.
        store: (rows, stride, i, state) -> None.
        decode, encode: a tuple of rows -> state, and back.
        select: (condition, state, state) -> state.
        unpack: (numbers,) -> the params NamedTuple.
        vary: (params, rows, i) -> the params of lane i, some of which have rows of their own.
        redraw: (params, lane_params, a, b) -> params of a lane's next episode, some of which
            `randomize` draws; `params` is what `unpack` returns, `lane_params` what `vary` does.
        select_params: (condition, params, params) -> params, which differ in what `redraw` draws.
        store_params: (rows, i, params) writes the params of lane i that `redraw` draws.
        step: (state, action, params, a, b) -> (state, reward, terminated, truncated); a, b from
            `mix`.
        reset: (params, a, b) -> state.
        observe: (state, params) -> rows of the observation, which are in float32 unless it is a
            tuple of floats, and of the action mask.
        rows: rows of memory that hold a state.
    """

    load: Callable[..., Any]
    store: Callable[..., Any]
    decode: Callable[..., Any]
    encode: Callable[..., Any]
    select: Callable[..., Any]
    unpack: Callable[..., Any]
    vary: Callable[..., Any]
    redraw: Callable[..., Any]
    select_params: Callable[..., Any]
    store_params: Callable[..., None]
    step: Callable[..., Any]
    reset: Callable[..., Any]
    observe: Callable[..., Any]
    rows: int


@functools.cache
def user_functions(env: Structure, dtype: type) -> dict[str, Any]:
    """Return the specialised functions of an environment's author, by name."""
    names = ["step", "reset", "observe"]
    names += [name for name in ("action_mask", "randomize") if getattr(env, name) is not None]
    exact, arrays = dtype is np.float64, env.state.is_record
    return {name: specialise(getattr(env, name), dtype, exact, arrays) for name in names}


@functools.cache
def compile_lane(env: Structure, dtype: type) -> Lane:
    """Return the functions of an environment; float64 is exact, float32 fast."""
    users = user_functions(env, dtype)
    user_step, user_reset, user_observe = users["step"], users["reset"], users["observe"]
    reset_draws = make_draws(env.reset_draws, 0, RESET_GROUP, dtype)
    step_draws = make_draws(env.step_draws, env.reset_draws or 0, STEP_GROUP, dtype)
    user_mask: Any = users.get("action_mask")
    noisy, truncates, size = env.step_draws != 0, env.truncates, env.state.rows(dtype)
    decode, encode = make_decode(env.state, dtype), make_encode(env.state, dtype)
    load_all, store_all = load_rows(size, "state"), store_rows(size, "state")
    show = make_encode(env.observation, np.float32)
    real_items = make_floats(env.observation, dtype, env.has_whole)
    pack_mask, is_masked = make_pack(env.num_actions), user_mask is not None
    # Where it has many actions a mask is most of a kernel, and observations are in three places.
    pack_many = outline if env.num_actions > UNROLLED else merge

    plain, to_floats = env.state.is_plain, make_floats(env.state, dtype, env.has_whole)

    @merge
    def act(state, action, params, a, b):
        return user_step(state, action, params, step_draws(a, b))

    @merge
    def act_alone(state, action, params, a, b):
        return user_step(state, action, params)

    advance = act if noisy else act_alone

    @merge
    def step(state, action, params, a, b):
        result = advance(state, action, params, a, b)
        return to_floats(result[0]), result[1], result[2], result[3] if truncates else False

    @inline
    def reset(params, a, b):
        return to_floats(user_reset(reset_draws(a, b), params))

    @pack_many
    def mask_of(state, params):
        return pack_mask(user_mask(state, params))

    @inline
    def observe(state, params):
        rows = show(real_items(user_observe(state, params)))
        if is_masked:
            return rows + mask_of(state, params)
        return rows

    @inline
    def load(rows, stride, i):
        return decode(load_all(rows, stride, i))

    @inline
    def store(rows, stride, i, state):
        store_all(rows, stride, i, encode(state))

    redraw = make_redraw(env, dtype)
    return Lane(
        load=load_all if plain else load,
        store=store_all if plain else store,
        decode=decode,
        encode=encode,
        select=make_select(env.state, dtype),
        unpack=make_unpack_params(env),
        vary=make_vary(env, dtype),
        redraw=redraw,
        select_params=_make_select_params(env),
        store_params=make_store_params(env, dtype),
        step=step,
        reset=reset,
        observe=observe,
        rows=size,
    )


def make_floats(layout: Any, dtype: type, has_whole: bool) -> Callable[..., Any]:
    """Make an inlinable function: a value of a layout -> it, with floats in a plain tuple.

    Kernels of the GPU inline it, too: plain Python, and only where it is needed.
    """
    if not (has_whole and layout.is_plain):
        return inline(lambda value: value)
    items = source_of_tuple(f"real(value[{k}])" for k in range(layout.fields[0].size))
    return inline(define(f"def floats(value): return {items}", real=dtype))


def make_draws(count: int | None, first: int, group: int, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (a, b) -> the random numbers that a user's function takes."""
    return make_rng(group, dtype) if count is None else uniforms(count, first, dtype)


def env_kernel(env: Structure, dtype: type, by_address: bool = False) -> Any:
    """Return the decorator of a driver: `kernel`, fast in float32 and exact in float64."""
    functions = user_functions(env, dtype)
    options: dict[str, Any] = {
        "by_address": by_address,
        "branching": env.state.is_record,
        "fastmath": EXACT if dtype is np.float64 else FAST,
        "scalars": () if dtype is np.float64 else tuple(functions.values()),
        "check": functools.partial(_refuse_none, env, functions),
        "subject": ids.get(env),
    }
    if dtype is np.float64 or env.state.is_record or not is_written_by_users(env.step):
        return kernel(**options)

    def made(function: Callable[..., Any]) -> Any:
        compiled = kernel(function, **options)
        tell = tell_users(env.step, ids.get(env, ""), reasons_of_policies(env))
        hooks.wrap_compiler(compiled, tell)
        return compiled

    return made


def reasons_of_policies(env: Structure) -> tuple[str, ...]:
    """Return why rollouts take one lane at a time, whatever a step does."""
    many = f"policies choose among more than {UNROLLED} actions in a loop"
    return (many,) if env.num_actions > UNROLLED else ()


def _refuse_none(env: Structure, functions: dict[str, Any]) -> None:
    """Raise TypeError if a function of the user may return None in some branch: numba allows it.

    The message is the one of `check_result`, which wants a `Dynamics`.
    """
    stand_in = _dynamics_like(env)
    for name, function in functions.items():
        if env.state.is_record and (name == "reset" or (name == "observe" and env.is_written)):
            continue  # they write
        for result in results_with_none(function):
            try:
                check_result(stand_in, name, result)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{error} in a branch") from None


def _dynamics_like(env: Structure) -> SimpleNamespace:
    """Return what checks of results read of a `Dynamics`; numbers of later calls are 0.0 here."""
    params: Any = env.params_type(*(0.0 if option is None else option for option in env.options))
    fields = {"has_arrays": env.state.is_record, **env._asdict()}
    return SimpleNamespace(**{**fields, "id": ids.get(env), "params": params, "varied": ()})


class LaneStep(NamedTuple):
    """Results of one step of one lane.

    Attributes:
        reached: the state after the step.
        next_state: the state that the lane goes on with: `reached`, or that of a new episode.
        reward: of the step; 0 where the step only started a new episode.
        terminated, truncated: whether and how the episode ended with this step.
        total: return of the episode so far, this step included.
        elapsed: steps of the episode so far, this one included.
        params: of the step.
        next_params: those that the lane goes on with.
    """

    reached: Any
    next_state: Any
    reward: Any
    terminated: Any
    truncated: Any
    total: Any
    elapsed: Any
    params: Any
    next_params: Any


@functools.cache
def make_draw_words() -> Callable[..., Any]:
    """Make an inlinable function (words, i, counter) -> random bits (a, b) of lane i's step."""
    get_word, _ = row_access("words")

    @inline
    def draw_words(words, i, counter):
        key_low, key_high = (
            get_word(words, KEY_LOW * LANES + i),
            get_word(words, KEY_HIGH * LANES + i),
        )
        return mix(key_low, key_high, counter)

    return draw_words


@functools.cache
def make_turn(env: Structure, dtype: type, same_step: bool) -> Callable[..., Any]:
    """Make an inlinable (state, words, i, action, bits, params, limit) -> LaneStep of lane i.

    It steps the lane, starts a new episode where one has ended (at once, or in the next step), and
    writes the lane's state and words. Both outcomes are computed and one is selected: branches
    would keep the loop over lanes from vectorising.
    """
    lane = compile_lane(env, dtype)
    load, store, select, step, reset = lane.load, lane.store, lane.select, lane.step, lane.reset
    vary, redraw = lane.vary, lane.redraw
    select_params, store_params = lane.select_params, lane.store_params
    get_word, set_word = row_access("words")
    get_return, set_return = row_access("state")
    return_row, no_reward, truncates = lane.rows * LANES, dtype(0), env.truncates
    one, zero, pending_mark, real = np.uint32(1), np.uint32(0), np.uint32(PENDING), dtype
    u32 = np.uint32

    @merge
    def turn(state, words, i, action, bits, params, limit):
        elapsed = get_word(words, ELAPSED * LANES + i)
        is_pending = False if same_step else elapsed == pending_mark
        lane_params = vary(params, state, i)
        before = load(state, LANES, i)
        reached, reward, is_terminal, is_cut = step(before, action, lane_params, bits[0], bits[1])
        # `limit` is never 0. Where LLVM knows that nothing terminates, its cost model does not find
        # vectors worth it in next-step mode: 13 ns a step of Pendulum instead of 3.
        is_terminal = is_terminal if same_step else is_terminal | (limit == zero)
        reward = no_reward if is_pending else real(reward)
        total = get_return(state, return_row + i) + reward
        elapsed = u32(elapsed + one)
        terminated = is_terminal & (not is_pending)
        truncated = elapsed >= limit
        if truncates:
            truncated = truncated | (is_cut & (not is_pending))
        is_done = terminated | truncated
        is_reset = is_done if same_step else is_pending
        new_params = redraw(params, lane_params, bits[0], bits[1])
        next_state = select(is_reset, reset(new_params, bits[0], bits[1]), reached)
        store(state, LANES, i, next_state)
        next_params = select_params(is_reset, new_params, lane_params)
        store_params(state, i, next_params)
        set_return(state, return_row + i, no_reward if is_reset else total)
        end_mark = zero if same_step else pending_mark
        set_word(words, ELAPSED * LANES + i, end_mark if is_done else elapsed)
        return LaneStep(
            reached, next_state, reward, terminated, truncated, total, elapsed,
            lane_params, next_params,
        )  # fmt: skip

    return turn


def make_unpack_params(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function that makes the params NamedTuple from its run-time numbers.

    Numbers are read at run time, so that another gravity compiles nothing; bool fields are
    constants of the machine code, so that an option that is off costs nothing.
    """
    numbers = itertools.count()
    made = _params_of(env, lambda n: _whole(env, n, f"numbers[{next(numbers)}]"))
    return inline(define(f"def unpack(numbers): return {made}", Params=env.params_type, int=_int))


# ---------------------------------------------------------------- parameters that vary


def _params_of(env: Structure, field: Callable[[str], str]) -> str:
    """Return the source of params, whose run-time numbers are those of `field(name)`."""
    names: tuple[str, ...] = env.params_type._fields  # type: ignore[attr-defined]
    pairs = zip(names, env.options, strict=True)
    return f"Params({', '.join(field(n) if o is None else repr(o) for n, o in pairs)})"


@inline
def _int(number):
    """Return a whole number of memory as an int64, of which 32 bits count: so it stays in lanes."""
    return np.int64(np.int32(number))


def _whole(env: Structure, name: str, number: str) -> str:
    """Return the source of a parameter, from that of the float which memory holds."""
    return f"int({number})" if name in env.whole else number


def _places(env: Structure, dtype: type) -> dict[str, int]:
    """Return the first row, in a block, of each parameter that varies."""
    first = env.state.rows(dtype) + 1
    return {name: (first + k) * LANES for k, name in enumerate(env.varied)}


def make_vary(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `vary` of `Lane`."""
    if not env.varied:
        return inline(lambda params, rows, i: params)
    at = _places(env, dtype)
    held = {name: _whole(env, name, f"peek(rows, {place} + i)") for name, place in at.items()}
    made = _params_of(env, lambda n: held.get(n, f"params.{n}"))
    source = f"def vary(params, rows, i): return {made}"
    return inline(define(source, Params=env.params_type, peek=row_access("state")[0], int=_int))


def make_redraw(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `redraw` of `Lane`.

    `randomize` gets the numbers that the environments were made with, so that a draw does not
    depend on the draw before it.
    """
    if env.randomize is None:
        return inline(lambda params, lane_params, a, b: lane_params)
    user, drawn = user_functions(env, dtype)["randomize"], env.randomized
    base = _params_of(env, lambda n: f"params.{n}" if n in drawn else f"lane_params.{n}")
    kinds = {name: "int" if name in env.whole else "real" for name in drawn}
    made = _params_of(env, lambda n: f"{kinds[n]}(new.{n})" if n in drawn else f"lane_params.{n}")
    source = (
        "def redraw(params, lane_params, a, b):\n"
        f"    new = user(rng(a, b), {base})\n"
        f"    return {made}"
    )
    rng = make_rng(RANDOMIZE_GROUP, dtype)
    return inline(define(source, Params=env.params_type, rng=rng, user=user, real=dtype, int=_int))


def _make_select_params(env: Structure) -> Callable[..., Any]:
    """Make `select_params` of `Lane`."""
    if not env.randomized:
        return inline(lambda condition, x, y: y)
    drawn = env.randomized
    made = _params_of(env, lambda n: f"x.{n} if condition else y.{n}" if n in drawn else f"y.{n}")
    return inline(
        define(f"def select_params(condition, x, y): return {made}", Params=env.params_type)
    )


def make_store_params(env: Structure, dtype: type) -> Callable[..., None]:
    """Make `store_params` of `Lane`."""
    at = _places(env, dtype)
    lines = [f"poke(rows, {at[name]} + i, real(params.{name}))" for name in env.randomized]
    source = f"def store_params(rows, i, params): {'; '.join(lines) or 'pass'}"
    return inline(define(source, poke=row_access("state")[1], real=dtype))


def pack(params: Any, dtype: type) -> npt.NDArray[Any]:
    """Return the run-time numbers of a params NamedTuple, (num_numbers,) of `dtype`."""
    return np.array([value for value in params if not isinstance(value, bool)], dtype=dtype)
