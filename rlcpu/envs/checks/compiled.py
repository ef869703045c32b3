"""Kernels of an environment beside its plain Python: single steps, resets, and batches."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from rlcpu.envs.checks.findings import describe_call
from rlcpu.envs.checks.player import Case, Player, sample_action
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.fields import params_of
from rlcpu.envs.contract.trial import call_function
from rlcpu.envs.engine.base import TimeStep
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.layout.arrays import ArrayLayout, State, fields_of
from rlcpu.envs.layout.values import Layout
from rlcpu.kernels.machine.random import (
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
    layout, most = player.dynamics.state, np.finfo(dtype).max  # beyond `most` a state is infinite
    cases = [case for case in cases if max(map(abs, layout.as_numbers(case.state))) < most]
    if not cases:
        return False
    kernels = f"kernels of {np.dtype(dtype).name}"
    try:
        run = _run_kernels(player.dynamics, cases, dtype, seed)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        fault = f"{type(error).__name__}: {' '.join(lines[:4])}"
        player.note("error", f"{kernels}: {fault}", fault)  # once for both dtypes
        return False
    calls = _calls_of(run, cases, dtype, seed)
    num_different = sum(_count_different(player, each, dtype) for each in calls)
    if dtype is np.float64 and num_different:
        player.note(
            "note",
            f"the last bits of {num_different} of {2 * len(cases)} resets and steps in float64 are "
            "not those of plain Python",
        )
    return True


class KernelRun(NamedTuple):
    """A reset of N environments and a step, from other states, by kernels."""

    env: VectorEnv  # after the step
    reset_states: Array  # (N, count) float64, all numbers of the states after the reset
    reset_params: list[Any]  # of each environment, as `randomize` drew them
    actions: Array  # of the step
    step: TimeStep
    step_params: list[Any]


def _run_kernels(dynamics: Dynamics, cases: list[Case], dtype: Any, seed: int) -> KernelRun:
    """Reset an environment for each case, and take the step of the case there."""
    n, layout = len(cases), dynamics.state
    env = VectorEnv(dynamics.resized(n), n, dtype=np.dtype(dtype).name, num_threads=1)
    engine: Any = env.engine
    _start(engine, seed)
    reset_states = layout.rows_as_numbers(engine.get_state())
    reset_params = engine.params_of_each() or [dynamics.params] * n  # [] if all have the same
    # `code.varied` names the params of which each environment has its own number.
    varied = {key: [getattr(case.params, key) for case in cases] for key in engine.code.varied}
    engine.set_params(varied)
    engine.set_state(layout.to_rows([case.state for case in cases], dtype))
    actions = np.array([case.action for case in cases], env.action_space.dtype)
    step = engine.step(actions)
    engine.masks(step.observations, step.terminated | step.truncated)  # they have a kernel, too
    step_params = engine.params_of_each() or [dynamics.params] * n
    return KernelRun(env, reset_states, reset_params, actions, step, step_params)


class KernelCalls(NamedTuple):
    """Calls of one kernel in N environments."""

    name: str  # of the function: "reset", "step" or "randomize"
    labels: list[str]  # of the numbers of a result
    results: Array  # (N, len(labels)) float64
    inputs: list[Any]  # the arguments of `call_function` by which plain Python repeats each


def _calls_of(run: KernelRun, cases: list[Case], dtype: Any, seed: int) -> list[KernelCalls]:
    """Return all calls of a run."""
    dynamics, layout, n = run.env.dynamics, run.env.dynamics.state, len(cases)
    resets = zip(_kernel_draws(dynamics, "reset", seed, n, dtype), run.reset_params, strict=True)
    states = [_rounded(layout, case.state, dtype) for case in cases]
    actions = run.actions.tolist()
    # `action_size` is 0 of a `Discrete`, whose action is a lone number.
    actions = list(map(tuple, actions)) if dynamics.action_size else actions
    draws = _kernel_draws(dynamics, "step", seed, n, dtype)
    steps = zip(states, actions, run.step_params, draws, strict=True)
    results, labels = _step_results(run)
    calls = [
        KernelCalls("reset", _labels("state", layout), run.reset_states, list(resets)),
        KernelCalls("step", labels, results, list(steps)),
    ]
    if dynamics.randomize is not None:
        drawn = np.array(
            [[getattr(params, key) for key in dynamics.randomized] for params in run.reset_params]
        )
        rngs = _kernel_draws(dynamics, "randomize", seed, n, dtype)
        inputs = [(rng, params_of(dynamics, i)) for i, rng in enumerate(rngs)]
        calls.append(KernelCalls("randomize", list(dynamics.randomized), drawn, inputs))
    return calls


def _step_results(run: KernelRun) -> tuple[Array, list[str]]:
    """Return all numbers of the results of a step, (N, count), and their labels.

    Their order is that of `_plain_numbers`: new state, reward, flags, observation, action mask.
    """
    env, step, dynamics = run.env, run.step, run.env.dynamics
    layout, rows = dynamics.observation, step.observations  # (rows, N): numbers, then the mask
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
    labels = [
        *_labels("new_state", dynamics.state),
        "reward",
        *("terminated", "truncated")[: len(flags)],
        *_labels("observation", layout),
        *(f"action_mask[{k}]" for k in range(dynamics.num_masked)),
    ]
    return results, labels


def _plain_numbers(dynamics: Dynamics, name: str, inputs: Any) -> Array:
    """Return all numbers of the result of a plain function, in the order of its kernel's."""
    result = call_function(dynamics, name, getattr(dynamics, name), *inputs)
    if name == "randomize":
        return np.array([getattr(result, key) for key in dynamics.randomized], np.float64)
    if name == "reset":
        return np.array(dynamics.state.as_numbers(result))
    (new_state, reward, *flags), params, layout = result, inputs[2], dynamics.observation
    observation = call_function(dynamics, "observe", dynamics.observe, new_state, params)
    # Kernels store in float32 parts of a `Dict`, arrays (`is_record`) and tuples of floats
    # (`is_plain`).
    if isinstance(dynamics.observation_space, Dict) or layout.is_record:
        observation = _rounded(layout, observation, np.float32)
    numbers: Any = layout.as_numbers(observation)
    numbers = np.float32(numbers) if layout.is_plain else numbers
    mask = ()
    if dynamics.action_mask:
        mask = call_function(dynamics, "action_mask", dynamics.action_mask, new_state, params)
    state_numbers = dynamics.state.as_numbers(new_state)
    return np.array([*state_numbers, reward, *flags, *numbers, *mask], np.float64)


def _count_different(player: Player, calls: KernelCalls, dtype: Any) -> int:
    """Return how many results of a kernel differ from plain Python's in any bit.

    Differences that nothing explains are noted as errors.
    """
    dynamics, rng, num_different = player.dynamics, np.random.default_rng(0), 0
    plain = functools.partial(_plain_numbers, dynamics, calls.name)
    for inputs, got in zip(calls.inputs, calls.results.astype(np.float64), strict=True):
        try:
            expected = plain(inputs)
        except Exception:  # noted by `play`, or due to a state that float32 has rounded
            continue
        if np.array_equal(got, expected, equal_nan=True):
            continue
        num_different += 1
        for k in _unexplained(plain, inputs, got, expected, dtype, rng)[:1]:
            label, kernel = calls.labels[k], np.dtype(dtype).name
            player.note(
                "error",
                f"{describe_call(calls.name, inputs, dynamics.params)} gives {label}={got[k]} in a "
                f"kernel of {kernel} and {expected[k]} in plain Python",
                (calls.name, label, dtype),
            )
    return num_different


def _unexplained(
    plain: Any, inputs: Any, got: Array, expected: Array, dtype: Any, rng: np.random.Generator
) -> Array:
    """Return the indices of numbers of a kernel's result that plain Python does not explain.

    A difference is explained by rounding, or if plain Python's results differ as much for inputs
    nearby.
    """
    numbers = np.concatenate([*map(_floats_of, inputs), expected])
    slack = TOLERANCES[dtype] * np.abs(numbers).max(initial=0.0)
    if (abs(got - expected) <= slack).all():
        return np.zeros(0, np.int64)
    near = np.stack([expected, *_nearby(plain, inputs, NEARBY[dtype], rng)])
    low, high = near.min(axis=0), near.max(axis=0)
    spread = slack + (high - low)
    return np.flatnonzero(~((got >= low - spread) & (got <= high + spread)))


def _kernel_draws(dynamics: Dynamics, name: str, seed: int, n: int, dtype: Any) -> list[Any]:
    """Return the random numbers of kernels for the first reset, or step, of n environments.

    `name` is "reset", "step" or "randomize", which is part of a reset.
    """
    groups = {"reset": RESET_GROUP, "step": STEP_GROUP, "randomize": RANDOMIZE_GROUP}
    # All numbers come of two words of each environment, mixed from the key of its stream and a
    # counter: 0 at the reset and 1 at the first step. A product of them may overflow, as in C.
    counter = np.uint32(name == "step")
    with np.errstate(over="ignore"):
        words = mix.py_func(*keys(stream_seeds(seed, n)), counter)
    if dynamics.takes_rng(name):
        return [Rng(int(a), int(b), groups[name], dtype) for a, b in zip(*words, strict=True)]
    # `uniforms` of a step have the indices after those of a reset.
    first = dynamics.reset_draws if name == "step" else 0
    count = getattr(dynamics, f"{name}_draws")
    if count == 0:
        return [()] * n
    draw: Any = uniforms(count, first, dtype)
    draw = draw.py_func
    # Plain Python cannot call a compiled function that is inlined: it gets `mix` itself.
    draw = types.FunctionType(draw.__code__, {**draw.__globals__, "mix": mix.py_func})
    with np.errstate(over="ignore"):
        return list(zip(*(column.tolist() for column in draw(*words)), strict=True))


def compare_batches(player: Player, seed: int) -> None:
    """Note an error unless results are a function of the seed, whatever the size of the batch.

    The same environments run twice in one batch, and once in two.
    """
    n, half, rng = SPLIT_ENVS, SPLIT_ENVS // 2 + 1, np.random.default_rng(seed)
    actions = np.array(
        [[sample_action(player.dynamics, rng) for _ in range(n)] for _ in range(SPLIT_STEPS)],
        np.int64 if player.dynamics.is_discrete else np.float32,
    )
    seeds = stream_seeds(seed, n).tolist()
    # `resized(k, begin)` is for k environments, with the parameters of those from `begin` on.
    whole, again, first, second = (
        _run_batch(
            player.dynamics.resized(end - begin, begin), seeds[begin:end], actions[:, begin:end]
        )
        for begin, end in ((0, n), (0, n), (0, half), (half, n))
    )
    for how, other in (("again", again), ("in two batches", np.concatenate([first, second]))):
        if not np.array_equal(whole, other, equal_nan=True):
            i = int(np.argmax((whole != other).any(axis=1)))
            player.note("error", f"environment {i} of {n} differs when the seed is run {how}")


def _run_batch(dynamics: Dynamics, seeds: list[int], actions: Array) -> Array:
    """Return all results of N environments with these seeds, (N, count).

    They take `actions`, (steps, N, ...), or others where these are not allowed.
    """
    env = VectorEnv(dynamics, len(seeds), num_threads=1)
    rows = np.ascontiguousarray(_start(env.engine, seeds).T)
    results = [rows.view(np.uint8)]  # parts of a `Dict` are no float32, whatever the rows' dtype
    for chosen in actions:
        if dynamics.action_mask:
            chosen = _allow(chosen, env.action_masks(), dynamics.choices)
        observations, rewards, terminated, *_ = env.step(chosen)
        results.append(np.column_stack([_flat(observations), rewards, terminated]))
    results.append(dynamics.state.rows_as_numbers(env.engine.get_state()))
    return np.column_stack(results)


def _start(engine: Any, seed: Any) -> Array:
    """Start the first episodes of an engine, and return the rows of its observations.

    It takes a step: the first one of an environment is its reset, so that no kernel but that of
    steps is compiled.
    """
    engine.seed(seed, np.ones(engine.num_envs, np.bool_))
    rows: Array = engine.step(np.zeros(engine.action_shape, engine.action_dtype)).observations
    engine.mark_ready()  # the first step counts as the reset that it was
    return rows


def _flat(observations: Any) -> Array:
    """Return observations, an array (n, ...) or a dict of such, as (n, count)."""
    parts = observations.values() if isinstance(observations, dict) else [observations]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _labels(what: str, layout: Layout | ArrayLayout) -> list[str]:
    """Return the names of the numbers of a value of a layout, such as "observation[1]".

    They are in the order of `rows_as_numbers` of the layout; `what` is the name of the value.
    """
    if isinstance(layout, ArrayLayout):
        return [
            f"{what}.{field.name}{list(index) or ''}"
            for field in layout.fields
            for index in np.ndindex(field.shape)
        ]
    labels = []
    for field in layout.fields:
        name = f"{what}.{field.name}" if layout.value_class is not None else what
        items = [f"{name}[{k}]" for k in range(field.size)] or [name]
        if field.kind == "board":  # four numbers, of 32 cells each
            items = [f"{item} cells {k} to {k + 31}" for item in items for k in range(0, 128, 32)]
        labels += items
    return labels


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


def _allow(actions: Array, masks: Any, choices: tuple[int, ...]) -> Array:
    """Return actions (n,) or (n, numbers) of which those that masks (n, any) forbid are replaced.

    Each is replaced by the next one that is allowed, cyclically; where nothing is allowed, as after
    the end of an episode, it stays. `choices` are those of each number; () of an action that is
    one.
    """
    counts, allowed = choices or (masks.shape[1],), actions.reshape(len(actions), -1).copy()
    parts = np.split(masks, np.cumsum(counts)[:-1], axis=1)
    for j, (count, part) in enumerate(zip(counts, parts, strict=True)):
        candidates = (allowed[:, j, None] + np.arange(count)) % count
        first_allowed = np.argmax(np.take_along_axis(part, candidates, axis=1), axis=1)
        allowed[:, j] = np.take_along_axis(candidates, first_allowed[:, None], axis=1)[:, 0]
    return allowed.reshape(actions.shape)


def _nearby(plain: Any, inputs: Any, distance: float, rng: np.random.Generator) -> Iterable[Array]:
    """Yield the results of a plain function for `TRIES` random inputs near to its `inputs`.

    Floats change by up to `distance`, relative to the largest of their argument.
    """
    spans = [distance * np.abs(_floats_of(value)).max(initial=0.0) for value in inputs]
    for _ in range(TRIES):
        try:
            yield plain([_moved(v, span, rng) for v, span in zip(inputs, spans, strict=True)])
        except Exception:
            continue


def _moved(value: Any, span: float, rng: np.random.Generator) -> Any:
    """Return a copy of an input of a function with all floats changed by up to `span`."""
    if isinstance(value, float):
        return value + span * rng.uniform(-1.0, 1.0)
    if isinstance(value, State):
        moved = copy.copy(value)
        for array in fields_of(moved, "float"):
            array += span * rng.uniform(-1.0, 1.0, array.shape)
        return moved
    if not isinstance(value, tuple) or isinstance(value, Rng):
        return value
    items = [_moved(item, span, rng) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
