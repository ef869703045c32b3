"""Functions that all transforms share: steps of one form, and states with further fields.

A transform makes a new `Dynamics` of the functions of another, the "inner" one. These take random
numbers under different names (`rng`, `uniforms`, or not at all), write into a state or return one,
and truncate episodes or not: `step_of` and `with_signature` translate to and from one form. In it a
step is (state, action, params, draws) -> (new state, reward, terminated, truncated); where states
have arrays, which it writes, it returns (reward, terminated, truncated).
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.kernels.compiler.compile import define
from rlcpu.kernels.compiler.source import check_source


def find_transformable(environment: str | Dynamics) -> Dynamics:
    """Return the `Dynamics` of an id, or the one that is given.

    Raises TypeError if another engine steps it.
    """
    dynamics = find(environment)
    if not dynamics.runs_in_kernels:
        raise TypeError(
            f"{dynamics.id} is stepped by another engine: transforms are for environments of our "
            "own kernels; wrap Gymnasium's in its wrappers, before they are registered"
        )
    return dynamics


def check_plain(name: str, function: Any) -> Any:
    """Return a function; raise TypeError unless it is plain Python that kernels can compile.

    `name` is that of the argument, for errors.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name}={function!r}: expected a plain Python function")
    try:
        check_source(function)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    return function


def id_and_transform(dynamics: Dynamics, suffix: str, transform: Any) -> dict[str, Any]:
    """Return the fields of `Dynamics` that every transform changes, by name.

    Args:
        dynamics: the inner environment.
        suffix: to append to the name in its id: "CartPole-v1" becomes "CartPoleStack4-v1".
        transform: a call without arguments that transforms it again, for pickle.
    """
    name, _, version = dynamics.id.rpartition("-v")
    return {"id": f"{name}{suffix}-v{version}", "transform": transform}


def _check_new(dynamics: Dynamics, *names: str) -> None:
    """Raise ValueError if the state already has one of the fields that a transform is to add."""
    known = [field.name for field in dynamics.state.fields]
    for name in names:
        if name in known:
            raise ValueError(f"{dynamics.id}: its state has a field {name} already")


def step_of(dynamics: Dynamics) -> Callable[..., Any]:
    """Return the step of an environment in the one form that transforms work with."""
    step, truncates = dynamics.step, dynamics.truncates
    takes_draws = dynamics.takes_rng("step") or dynamics.step_draws > 0

    def with_truncated(result: Any) -> Any:
        return result if truncates else result + (False,)  # noqa: RUF005 - kernels add tuples

    def random_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return with_truncated(step(state, action, params, draws))

    def deterministic_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return with_truncated(step(state, action, params))

    return random_step if takes_draws else deterministic_step


def with_signature(dynamics: Dynamics, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step of the one form with the arguments that the inner environment's step has.

    Kernels read the names of arguments: `rng`, `uniforms`, or no random numbers.
    """

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
    """Return a reset, of ([state,] draws, params), with the arguments of the inner environment's.

    `state` is an argument where states have arrays.
    """

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
    """Return the type hint of a tuple of `count` values of a type."""
    return tuple[(kind,) * count]  # type: ignore[misc]


def extend_tuple(
    dynamics: Dynamics,
    field: tuple[str, Any],
    at_reset: Callable[..., Any],
    after_step: Callable[..., Any],
    observe: Callable[..., Any],
    changes: dict[str, Any],
) -> Dynamics:
    """Return an environment with one more field in its state, which becomes a NamedTuple.

    The state of the inner environment is made of the other fields for each call of its functions:
    if it has fields x and v, and the new one is `frames`, by source that is

        def join(inner, value): return State(inner.x, inner.v, value)
        def inner_of(state): return Inner(state.x, state.v)

    Args:
        dynamics: the inner environment, whose state has no arrays.
        field: name and type hint of the new field.
        at_reset: (inner state, params) -> the field's value.
        after_step: (old state, new inner state, action, reward, params) -> the field's value.
        observe: (state, inner state, params) -> observation.
        changes: other fields of `Dynamics` that change, by name.
    """
    inner_class, step = dynamics.state.value_class, step_of(dynamics)
    reset, mask, picture = dynamics.reset, dynamics.action_mask, dynamics.picture
    _check_new(dynamics, field[0])
    # The class is named after the id: "MinAtar/BreakoutStack4-v1" has states "BreakoutStack4".
    name = changes["id"].rpartition("/")[2].rpartition("-")[0]
    if inner_class is None:  # a plain tuple is one field, `inner`
        inner_hints = {"inner": tuple_of(float, dynamics.state.fields[0].size)}
        values_of_inner, inner_of_state = "inner", "state.inner"
    else:
        inner_hints = typing.get_type_hints(inner_class)
        values_of_inner = ", ".join(f"inner.{each}" for each in inner_class._fields)
        inner_of_state = f"Inner({', '.join(f'state.{each}' for each in inner_class._fields)})"
    state_class: Any = NamedTuple(name, [*inner_hints.items(), field])  # type: ignore[misc]
    source = f"def join(inner, value): return State({values_of_inner}, value)"
    join = define(source, State=state_class)
    inner_of = define(f"def inner_of(state): return {inner_of_state}", Inner=inner_class)

    def new_reset(draws: Any, params: Any) -> Any:
        inner = reset(draws, params)
        return join(inner, at_reset(inner, params))

    def new_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        inner, reward, terminated, truncated = step(inner_of(state), action, params, draws)
        value = after_step(state, inner, action, reward, params)
        return join(inner, value), reward, terminated, truncated

    changes |= {
        "reset": _reset_with_signature(dynamics, new_reset),
        "step": with_signature(dynamics, new_step),
        "observe": lambda state, params: observe(state, inner_of(state), params),
        "state": None,
    }
    if mask is not None and dynamics.writes_mask:
        changes["action_mask"] = lambda state, params, out: mask(inner_of(state), params, out)
    elif mask is not None:
        changes["action_mask"] = lambda state, params: mask(inner_of(state), params)
    if picture is not None:
        changes["picture"] = lambda state, params: picture(inner_of(state), params)
    return dataclasses.replace(dynamics, **changes)


def extend_arrays(
    dynamics: Dynamics,
    fields: dict[str, Any],
    at_reset: Callable[..., None],
    after_step: Callable[..., None],
    observe: Callable[..., None],
    changes: dict[str, Any],
) -> Dynamics:
    """Return an environment with more fields in its state, which has arrays.

    Args:
        dynamics: the inner environment.
        fields: type hints of the new fields, by name.
        at_reset: (state, params) writes their values.
        after_step: (state, action, reward, params) writes their values.
        observe: (state, params, out) writes an observation.
        changes: other fields of `Dynamics` that change, by name.
    """
    inner_class, reset, step = dynamics.state.value_class, dynamics.reset, step_of(dynamics)
    _check_new(dynamics, *fields)

    def new_reset(state: Any, draws: Any, params: Any) -> None:
        reset(state, draws, params)
        at_reset(state, params)

    def new_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        reward, terminated, truncated = step(state, action, params, draws)
        after_step(state, action, reward, params)
        return reward, terminated, truncated

    changes |= {
        "reset": _reset_with_signature(dynamics, new_reset),
        "step": with_signature(dynamics, new_step),
        "observe": observe,
        "state": inner_class.sized(**fields),
    }
    return dataclasses.replace(dynamics, **changes)
