"""What all transforms share: functions of one form, and a state with another field."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.registration import find
from rlcpu.kernels.compile import define
from rlcpu.kernels.source import check_source


def find_own(environment: str | Dynamics) -> Dynamics:
    """Return an environment of our own kernels.

    Raises:
        TypeError, ValueError: there is none.
    """
    dynamics = find(environment)
    if not dynamics.runs_in_kernels:
        raise TypeError(
            f"{dynamics.id} is stepped by another engine: transforms are for environments of our "
            "own kernels; wrap Gymnasium's in its wrappers, before they are registered"
        )
    return dynamics


def check_plain(name: str, function: Any) -> Any:
    """Return a function that kernels can take.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name}={function!r}: expected a plain Python function")
    try:
        check_source(function)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    return function


def renamed(dynamics: Dynamics, suffix: str, again: Any) -> dict[str, Any]:
    """Return the fields that every transform changes: the id, and the call that makes it again."""
    name, _, version = dynamics.id.rpartition("-v")
    return {"id": f"{name}{suffix}-v{version}", "transform": again}


def _check_new(dynamics: Dynamics, *names: str) -> None:
    """Raise ValueError if the state has a field that a transform is to add."""
    known = [field.name for field in dynamics.state.fields]
    for name in names:
        if name in known:
            raise ValueError(f"{dynamics.id}: its state has a field {name} already")


def step_of(dynamics: Dynamics) -> Callable[..., Any]:
    """Return a step (state, action, params, draws) -> ([state,] reward, terminated, truncated)."""
    step, draws, cuts = dynamics.step, _takes_draws(dynamics), dynamics.truncates
    if dynamics.has_arrays:

        def finish(result: Any) -> Any:
            return result if cuts else (result[0], result[1], False)

    else:

        def finish(result: Any) -> Any:
            return result if cuts else (result[0], result[1], result[2], False)

    def with_draws(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return finish(step(state, action, params, draws))

    def without(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return finish(step(state, action, params))

    return with_draws if draws else without


def _takes_draws(dynamics: Dynamics) -> bool:
    return dynamics.takes_rng("step") or dynamics.step_draws > 0


def with_signature(dynamics: Dynamics, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step whose last argument is named as that of an environment's own is."""

    def with_rng(state: Any, action: Any, params: Any, rng: Any) -> Any:
        return step(state, action, params, rng)

    def with_uniforms(state: Any, action: Any, params: Any, uniforms: Any) -> Any:
        return step(state, action, params, uniforms)

    def without(state: Any, action: Any, params: Any) -> Any:
        return step(state, action, params, ())

    if dynamics.takes_rng("step"):
        return with_rng
    return with_uniforms if dynamics.step_draws else without


def _reset_with_signature(dynamics: Dynamics, reset: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reset ([state,] draws, params) whose draws are named as an environment's own are."""

    def of_array(state: Any, rng: Any, params: Any) -> Any:
        return reset(state, rng, params)

    def of_array_uniforms(state: Any, uniforms: Any, params: Any) -> Any:
        return reset(state, uniforms, params)

    def of_tuple(rng: Any, params: Any) -> Any:
        return reset(rng, params)

    def of_tuple_uniforms(uniforms: Any, params: Any) -> Any:
        return reset(uniforms, params)

    if dynamics.has_arrays:
        return of_array if dynamics.takes_rng("reset") else of_array_uniforms
    return of_tuple if dynamics.takes_rng("reset") else of_tuple_uniforms


def tuple_of(kind: type, count: int) -> Any:
    """Return the type hint of a tuple of `count` values."""
    return tuple[(kind,) * count]  # type: ignore[misc]


def extend_tuple(
    dynamics: Dynamics,
    field: tuple[str, Any],
    begin: Callable[..., Any],
    go_on: Callable[..., Any],
    observe: Callable[..., Any],
    changes: dict[str, Any],
) -> Dynamics:
    """Return an environment with one more field in its state, a NamedTuple.

    Args:
        dynamics: the environment, whose state has no arrays.
        field: its name and type hint.
        begin: (own state, params) -> the field's value at a reset.
        go_on: (old state, own new state, action, reward, params) -> its value after a step.
        observe: (state, own state, params) -> observation.
        changes: other fields that change.
    """
    inner_class, step = dynamics.state.value_class, step_of(dynamics)
    reset, mask, picture = dynamics.reset, dynamics.action_mask, dynamics.picture
    _check_new(dynamics, field[0])
    name = changes["id"].rpartition("/")[2].rpartition("-")[0]
    if inner_class is None:
        inner_fields = {"inner": tuple_of(float, dynamics.state.fields[0].size)}
        parts, inner_of = "inner", "state.inner"
    else:
        inner_fields = typing.get_type_hints(inner_class)
        parts = ", ".join(f"inner.{each}" for each in inner_class._fields)
        inner_of = f"own({parts.replace('inner.', 'state.')})"
    state_class: Any = NamedTuple(name, [*inner_fields.items(), field])  # type: ignore[misc]
    join = define(f"def join(inner, value): return made({parts}, value)", made=state_class)
    split = define(f"def split(state): return {inner_of}", own=inner_class)

    def new_reset(draws: Any, params: Any) -> Any:
        inner = reset(draws, params)
        return join(inner, begin(inner, params))

    def new_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        inner, reward, terminated, truncated = step(split(state), action, params, draws)
        value = go_on(state, inner, action, reward, params)
        return join(inner, value), reward, terminated, truncated

    changes |= {
        "reset": _reset_with_signature(dynamics, new_reset),
        "step": with_signature(dynamics, new_step),
        "observe": lambda state, params: observe(state, split(state), params),
        "state": None,
    }
    if mask is not None:
        changes["action_mask"] = lambda state, params: mask(split(state), params)
    if picture is not None:
        changes["picture"] = lambda state, params: picture(split(state), params)
    return dataclasses.replace(dynamics, **changes)


def extend_arrays(
    dynamics: Dynamics,
    fields: dict[str, Any],
    begin: Callable[..., None],
    go_on: Callable[..., None],
    observe: Callable[..., None],
    changes: dict[str, Any],
) -> Dynamics:
    """Return an environment with more fields in its state, which holds arrays.

    Args:
        dynamics: the environment.
        fields: type hints by name.
        begin: (state, params) writes their values at a reset.
        go_on: (state, action, reward, params) writes them after a step.
        observe: (state, params, out) writes an observation.
        changes: other fields that change.
    """
    inner_class, reset, step = dynamics.state.value_class, dynamics.reset, step_of(dynamics)
    _check_new(dynamics, *fields)

    def new_reset(state: Any, draws: Any, params: Any) -> None:
        reset(state, draws, params)
        begin(state, params)

    def new_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        reward, terminated, truncated = step(state, action, params, draws)
        go_on(state, action, reward, params)
        return reward, terminated, truncated

    changes |= {
        "reset": _reset_with_signature(dynamics, new_reset),
        "step": with_signature(dynamics, new_step),
        "observe": observe,
        "state": inner_class.sized(**fields),
    }
    return dataclasses.replace(dynamics, **changes)
