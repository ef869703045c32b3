"""Kernels of an environment beside its plain Python: single steps, resets, and batches."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from rlcpu.envs.checks.fields import params_of
from rlcpu.envs.checks.findings import plain_value
from rlcpu.envs.checks.player import Case, Player, sample_action
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.arrays import ArrayLayout, State, fields_of
from rlcpu.envs.engine.layout import Layout
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.random import (
    RANDOMIZE_GROUP,
    RESET_GROUP,
    STEP_GROUP,
    Rng,
    keys,
    mix,
    stream_seeds,
    uniforms,
)

Array = npt.NDArray[Any]
#: Difference of a single step that rounding explains, relative to the largest number that goes into
#: it or comes out: some hundred operations, each rounded once.
TOLERANCES = {np.float64: 1e-13, np.float32: 5e-5}
#: Relative distance of inputs that are as good as equal: a step that differs by more than rounding
#: explains is run from `TRIES` of them, whose results differ as much at a threshold or a jump.
NEARBY = {np.float64: 2.0**-46, np.float32: 2.0**-18}
TRIES = 64
#: Environments and steps of the test that a batch may be split.
SPLIT_ENVS, SPLIT_STEPS = 70, 5


def compare_kernels(player: Player, cases: list[Case], dtype: Any, seed: int) -> bool:
    """Compare the kernels of a dtype with plain Python, in single steps and resets.

    Environment i of a batch is reset with the seed, then set to the state of case i, and takes
    its step. Plain Python repeats that with the random numbers of the kernels, and states and
    actions that are rounded as theirs.

    Returns:
        Whether kernels could be compiled and run.
    """
    name, most = np.dtype(dtype).name, np.finfo(dtype).max
    dynamics, layout = player.dynamics, player.dynamics.state
    cases = [case for case in cases if max(map(abs, layout.as_numbers(case.state))) < most]
    if not cases:
        return False
    n = len(cases)
    try:
        env = VectorEnv(dynamics.resized(n), n, dtype=name, num_threads=1)
        engine: Any = env.engine
        _start(engine, seed)
        reset_results = layout.rows_as_numbers(engine.get_state())
        reset_params = engine.params_of_each() or [()] * n
        varied = {key: [getattr(c.params, key) for c in cases] for key in engine.code.varied}
        engine.set_params(varied)
        engine.set_state(layout.to_rows([case.state for case in cases], dtype))
        actions = np.array([case.action for case in cases], env.action_space.dtype)
        step = engine.step(actions)
        engine.masks(step.observations, step.terminated | step.truncated)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        player.note("error", f"kernels of {name}: {type(error).__name__}: {' '.join(lines[:4])}")
        return False
    plain = _plain_functions(player)
    reset_inputs = list(
        zip(_kernel_draws(dynamics, "reset", seed, n, dtype), reset_params, strict=True)
    )
    step_draws = _kernel_draws(dynamics, "step", seed, n, dtype)
    step_params = engine.params_of_each() or [()] * n
    step_inputs = [
        Case(_rounded(layout, case.state, dtype), tuple(a) if dynamics.action_size else a, u, p)
        for case, a, u, p in zip(cases, actions.tolist(), step_draws, step_params, strict=True)
    ]
    step_results, names = _kernel_results(env, step)
    last_bits = [
        _count_different(
            player, "reset", plain["reset"], reset_inputs, reset_results, names, dtype
        ),
        _count_different(player, "step", plain["step"], step_inputs, step_results, names, dtype),
    ]
    if dynamics.randomize is not None:
        rngs = _kernel_draws(dynamics, "randomize", seed, n, dtype)
        inputs = [(rng, params_of(env.dynamics, i)) for i, rng in enumerate(rngs)]
        labels = list(dynamics.randomized)
        results = np.array([[getattr(p, key) for key in labels] for p in reset_params])
        last_bits.append(
            _count_different(
                player, "randomize", plain["randomize"], inputs, results, labels, dtype
            )
        )
    if dtype is np.float64 and any(last_bits):
        player.note(
            "note",
            f"the last bits of {sum(last_bits)} of {2 * n} resets and steps in float64 are "
            "not those of plain Python",
        )
    return True


def _kernel_results(env: VectorEnv, step: Any) -> tuple[Array, list[str]]:
    """Return all numbers of the results of a step, (n, count), and their names.

    They are in the order of `step` of `_plain_functions`: new state, reward, flags,
    observation, action mask.

    Args:
        env: the environments, which have taken the step.
        step: the `TimeStep`; its observations are (rows, n), numbers and then the mask.
    """
    dynamics, rows = env.dynamics, step.observations
    layout = dynamics.observation
    masks = env.view.masks(rows.T) if dynamics.action_mask else np.zeros((env.num_envs, 0))
    flags = [step.terminated, step.truncated][: 1 + dynamics.truncates]
    results = np.column_stack(
        [
            dynamics.state.rows_as_numbers(env.engine.get_state()),
            step.rewards,
            *flags,
            layout.rows_as_numbers(rows[: layout.rows(np.float32)].T),
            masks,
        ]
    )
    names = [
        *_names("new_state", dynamics.state),
        "reward",
        *("terminated", "truncated")[: len(flags)],
        *_names("observation", layout),
        *(f"action_mask[{k}]" for k in range(dynamics.num_masked)),
    ]
    return results, names


def _plain_functions(player: Player) -> dict[str, Callable[..., Array]]:
    """Return reset, step and randomize in plain Python, which return all numbers in an array.

    They take the arguments of `Player.plain`.
    """
    dynamics, layout = player.dynamics, player.dynamics.state
    observation_layout = dynamics.observation
    functions = {key: getattr(dynamics, key) for key in dynamics.functions}
    is_group = isinstance(dynamics.observation_space, Dict)

    def randomize(rng: Any, params: Any) -> Array:
        drawn = player.plain(functions, "randomize", rng, params)
        return np.array([getattr(drawn, key) for key in dynamics.randomized], np.float64)

    def reset(uniforms: Any, params: Any) -> Array:
        return np.array(layout.as_numbers(player.plain(functions, "reset", uniforms, params)))

    def step(state: Any, action: Any, uniforms: Any, params: Any) -> Array:
        case = Case(state, action, uniforms, params)
        new_state, reward, *flags = player.plain(functions, "step", *case)
        observation = player.plain(functions, "observe", new_state, params)
        # Kernels store parts of a `Dict`, arrays (records) and tuples of floats in float32.
        if is_group or observation_layout.is_record:
            observation = _rounded(observation_layout, observation, np.float32)
        numbers: Any = observation_layout.as_numbers(observation)
        numbers = np.float32(numbers) if observation_layout.is_plain else numbers
        if dynamics.action_mask:
            numbers = *numbers, *player.plain(functions, "action_mask", new_state, params)
        return np.array([*layout.as_numbers(new_state), reward, *flags, *numbers], np.float64)

    return {"randomize": randomize, "reset": reset, "step": step}


def _count_different(
    player: Player, name: str, plain: Any, inputs: Any, results: Array, names: list[str], dtype: Any
) -> int:
    """Return how many results of a kernel differ from plain Python's in any bit.

    Differences that nothing explains are noted as errors. `results` are (n, count), their numbers
    have `names`; `inputs` are n tuples of arguments of `plain`, see `_plain_functions`.
    """
    rng, different, kernel = np.random.default_rng(0), 0, np.dtype(dtype).name
    for arguments, got in zip(inputs, results.astype(np.float64), strict=True):
        try:
            expected = plain(*arguments)
        except Exception:  # noted by `play`, or due to a state that float32 has rounded
            continue
        if np.array_equal(got, expected, equal_nan=True):
            continue
        different += 1
        for k in _unexplained(plain, arguments, got, expected, dtype, rng)[:1]:
            call = ", ".join(str(plain_value(part)) for part in arguments if part != ())
            player.note(
                "error",
                f"{name}({call}) gives {names[k]}={got[k]} in a kernel of {kernel} and "
                f"{expected[k]} in plain Python",
                (name, names[k], dtype),
            )
    return different


def _unexplained(
    plain: Any, arguments: Any, got: Array, expected: Array, dtype: Any, rng: np.random.Generator
) -> Array:
    """Return the indices of numbers of a kernel's result that plain Python does not explain.

    A difference is explained by rounding, or if plain Python's results differ as much for inputs
    nearby.
    """
    numbers = np.concatenate([*map(_floats_of, arguments), expected])
    slack = TOLERANCES[dtype] * np.abs(numbers).max(initial=0.0)
    if (abs(got - expected) <= slack).all():
        return np.zeros(0, np.int64)
    near = np.stack([expected, *_nearby(plain, arguments, NEARBY[dtype], rng)])
    low, high = near.min(axis=0), near.max(axis=0)
    spread = slack + (high - low)
    return np.flatnonzero(~((got >= low - spread) & (got <= high + spread)))


def _kernel_draws(dynamics: Dynamics, name: str, seed: int, n: int, dtype: Any) -> list[Any]:
    """Return the random numbers of kernels for the first reset, or step, of n environments.

    `name` is "reset", "step" or "randomize", which is part of a reset.
    """
    groups = {"reset": RESET_GROUP, "step": STEP_GROUP, "randomize": RANDOMIZE_GROUP}
    # The counter of random numbers is 0 at the reset and 1 at the first step.
    counter = np.uint32(name == "step")
    with np.errstate(over="ignore"):
        words = mix.py_func(*keys(stream_seeds(seed, n)), counter)
    if dynamics.takes_rng(name):
        return [Rng(int(a), int(b), groups[name], dtype) for a, b in zip(*words, strict=True)]
    first = dynamics.reset_draws if name == "step" else 0
    count = getattr(dynamics, f"{name}_draws")
    if count == 0:
        return [()] * n
    draw: Any = uniforms(count, first, dtype)
    draw = draw.py_func
    # Compiled functions that are inlined cannot be called: `mix` itself as plain Python.
    draw = types.FunctionType(draw.__code__, {**draw.__globals__, "mix": mix.py_func})
    with np.errstate(over="ignore"):
        return list(zip(*(column.tolist() for column in draw(*words)), strict=True))


def compare_batches(player: Player, seed: int) -> None:
    """Note an error unless results are a function of the seed, whatever the size of the batch.

    The same environments run twice in one batch, and once in two.
    """
    n, first = SPLIT_ENVS, SPLIT_ENVS // 2 + 1
    rng, resized = np.random.default_rng(seed), player.dynamics.resized(n)
    actions = np.array(
        [[sample_action(player.dynamics, rng) for _ in range(n)] for _ in range(SPLIT_STEPS)],
        np.int64 if player.dynamics.is_discrete else np.float32,
    )
    runs, seeds = [], stream_seeds(seed, n).tolist()
    for begin, end in ((0, n), (0, n), (0, first), (first, n)):
        varied = {name: values[begin:end] for name, values in resized.varied.items()}
        dynamics = resized.with_params(**varied) if varied else resized
        env = VectorEnv(dynamics, end - begin, num_threads=1)
        results = [_start(env.engine, seeds[begin:end]).T]
        for chosen in actions[:, begin:end]:
            if player.dynamics.action_mask:
                chosen = _allow(chosen, env.action_masks())
            observations, rewards, terminated, *_ = env.step(chosen)
            results.append(np.column_stack([_flat(observations), rewards, terminated]))
        results.append(player.dynamics.state.rows_as_numbers(env.engine.get_state()))
        runs.append(np.column_stack(results))
    whole, again, *parts = runs
    for kind, other in (("again", again), ("in two batches", np.concatenate(parts))):
        if not np.array_equal(whole, other, equal_nan=True):
            i = int(np.argmax((whole != other).any(axis=1)))
            player.note("error", f"environment {i} of {n} differs when the seed is run {kind}")


def _start(engine: Any, seed: Any) -> Array:
    """Start the first episodes of an engine, and return the rows of its observations.

    It takes a step: the first one of an environment is its reset, so that no kernel but that of
    steps is compiled.
    """
    engine.seed(seed, np.ones(engine.num_envs, np.bool_))
    rows: Array = engine.step(np.zeros(engine.action_shape, engine.action_dtype)).observations
    engine.mark_ready()
    return rows


def _flat(observations: Any) -> Array:
    """Return observations, an array (n, ...) or a dict of such, as (n, count)."""
    parts = observations.values() if isinstance(observations, dict) else [observations]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _names(what: str, layout: Layout | ArrayLayout) -> list[str]:
    """Return the names of the numbers of a value of a layout, such as "observation[1]".

    They are in the order of `rows_as_numbers` of the layout; `what` is the name of the value.
    """
    if isinstance(layout, ArrayLayout):
        return [
            f"{what}.{field.name}{list(index) or ''}"
            for field in layout.fields
            for index in np.ndindex(field.shape)
        ]
    names = []
    for field in layout.fields:
        label = f"{what}.{field.name}" if layout.value_class is not None else what
        items = [f"{label}[{k}]" for k in range(field.size)] or [label]
        words = [f" cells {32 * k} to {32 * k + 31}" for k in range(4)]
        suffixes = words if field.kind == "board" else [""]
        names += [item + suffix for item in items for suffix in suffixes]
    return names


def _rounded(layout: Layout | ArrayLayout, value: Any, dtype: Any) -> Any:
    """Return a plain state or observation of a layout, whose floats are rounded to a dtype."""
    return layout.to_states(layout.to_rows([value], dtype))[0]


def _floats_of(value: Any) -> Array:
    """Return all floats in an input of a function, (count,): a state, a tuple or a number."""
    if isinstance(value, State):
        arrays_of_floats = (array.ravel() for array in fields_of(value, "float"))
        return np.concatenate([np.zeros(0), *arrays_of_floats])
    if isinstance(value, float):
        return np.array([value])
    items = value if isinstance(value, tuple) and not isinstance(value, Rng) else ()
    return np.concatenate([np.zeros(0), *map(_floats_of, items)])


def _allow(actions: Array, masks: Any) -> Array:
    """Return actions (n,) of which those that masks (n, num_actions) forbid are replaced.

    Each is replaced by the next one that is allowed, cyclically; where nothing is allowed, as after
    the end of an episode, it stays.
    """
    count = masks.shape[1]
    candidates = (actions[:, None] + np.arange(count)) % count
    first_allowed = np.argmax(np.take_along_axis(masks, candidates, axis=1), axis=1)
    allowed: Array = np.take_along_axis(candidates, first_allowed[:, None], axis=1)[:, 0]
    return allowed


def _nearby(
    plain: Any, arguments: Any, distance: float, rng: np.random.Generator
) -> Iterable[Array]:
    """Yield the results of a plain function for `TRIES` random inputs near to its `arguments`.

    Floats change by up to `distance`, relative to the largest of their argument.
    """

    def move(value: Any, scale: float) -> Any:
        """Return a copy of an argument with all floats changed by up to `distance * scale`."""
        if isinstance(value, float):
            return value + distance * scale * rng.uniform(-1.0, 1.0)
        if isinstance(value, State):
            moved = copy.copy(value)
            for array in fields_of(moved, "float"):
                array += distance * scale * rng.uniform(-1.0, 1.0, array.shape)
            return moved
        if not isinstance(value, tuple) or isinstance(value, Rng):
            return value
        items = [move(item, scale) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)

    scales = [np.abs(_floats_of(argument)).max(initial=0.0) for argument in arguments]
    for _ in range(TRIES):
        try:
            yield plain(*(move(a, scale) for a, scale in zip(arguments, scales, strict=True)))
        except Exception:
            continue
