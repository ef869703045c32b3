"""The structure of an environment: all that decides the machine code of its kernels.

Environments with equal structures share kernels. This module also has the author's functions as
kernels call them, and the decorator of kernels, which checks them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.fields import int_names
from rlcpu.envs.contract.trial import check_branches
from rlcpu.envs.engine.masks import mask_rows
from rlcpu.envs.engine.observations import GroupPart, ObservationView
from rlcpu.envs.engine.vectorised import SHARED, is_written_by_users, tell_users
from rlcpu.kernels.compiler import hooks
from rlcpu.kernels.compiler.compile import EXACT, FAST, kernel, specialise
from rlcpu.kernels.compiler.functions import freeze
from rlcpu.nn.network.heads import UNROLLED


class Structure(NamedTuple):
    """Facts of a `Dynamics` on which kernels depend: environments with equal ones share kernels."""

    #: The author's functions, as `Dynamics` has them; None for those that are left out.
    step: Callable[..., Any]
    reset: Callable[..., Any]
    observe: Callable[..., Any]
    action_mask: Callable[..., Any] | None
    #: Whether it writes into memory in the place of returning a tuple.
    writes_mask: bool
    #: Class of the params NamedTuple.
    params_type: type
    #: For each field of params its bool, a constant of the machine code, or None of a number, which
    #: is read at run time.
    options: tuple[bool | None, ...]
    #: Names of the numbers of params that are ints.
    int_params: tuple[str, ...]
    #: Whether whole numbers or bools are returned in the place of floats.
    has_whole: bool
    #: The fields of a state and of an observation, a `Layout` or `ArrayLayout`.
    state: Any
    observation: Any
    #: Of the array of floats into which `observe` writes; () where it returns an observation, or
    #: writes a group.
    written_shape: tuple[int, ...]
    #: Of an observation with parts, see `ObservationView`; a lone array of ints is one part without
    #: a name, and other observations have none.
    group_parts: tuple[GroupPart, ...]
    #: The smallest value of each `Discrete` or `MultiDiscrete` number that is observed.
    choice_starts: tuple[int, ...]
    #: Numbers of an action; 0 of a `Discrete`.
    action_size: int
    #: Choices of a `Discrete`; 0 for others.
    num_actions: int
    #: Of each number of a `MultiDiscrete` action; () for other actions.
    choices: tuple[int, ...]
    #: Choices of which a mask tells; 0 without one.
    num_masked: int
    #: How many `uniforms` the functions take; None for an `Rng`.
    reset_draws: int | None
    step_draws: int | None
    #: Whether `step` returns a fourth value, which truncates the episode.
    truncates: bool
    #: The fields of params that have a row in memory, in their order.
    varied: tuple[str, ...]
    #: Those of them that `randomize` draws.
    randomized: tuple[str, ...]
    randomize: Callable[..., Any] | None

    @property
    def observation_rows(self) -> int:
        """Return how many rows of float32 hold an observation, without its action mask."""
        return self.observation.rows(np.float32)

    @property
    def writes_observation(self) -> bool:
        """Tell whether `observe` writes into memory in the place of returning an observation."""
        return self.written_shape != () or self.observation.is_record

    @property
    def is_int_array(self) -> bool:
        """Tell whether an observation is one array of whole numbers, as an image is."""
        return [part.name for part in self.group_parts] == [""]

    @property
    def float_spans(self) -> tuple[tuple[int, int], ...]:
        """Return (first row, number of rows) of the runs of floats of an observation.

        NaN is a fault in these rows alone: others hold bits.
        """
        if self.written_shape:
            return ((0, self.observation_rows),)
        return tuple(self.observation.float_spans(np.float32))

    @property
    def shown_rows(self) -> int:
        """Return how many rows hold an observation and, behind it, its action mask."""
        return self.observation_rows + mask_rows(self.num_masked)

    @property
    def num_draws(self) -> int:
        """Return how many `uniforms` of a step the environment takes, before those of a policy."""
        return (self.reset_draws or 0) + (self.step_draws or 0)


#: The id of the first environment of each structure: messages name it as what is compiled.
ids: dict[Structure, str] = {}


def structure(dynamics: Dynamics) -> Structure:
    """Return an environment's structure, with copies (`freeze`) of its functions as they are now.

    Two environments of equal code have equal structures, and share kernels. If a helper or a
    constant that a function reads has changed since the last call, the structure is another one.
    """
    params = dynamics.params
    varied = {*dynamics.varied, *dynamics.randomized}
    # How users get planes does not matter here: any form of them will do.
    view = ObservationView.of(dynamics, planes="uint8", dtype=np.dtype(np.float32))
    derived: dict[str, Any] = {  # all other fields are attributes of `Dynamics` by the same name
        "params_type": type(params),
        "options": tuple(value if isinstance(value, bool) else None for value in params),
        "int_params": int_names(params),
        "written_shape": dynamics.written_shape,
        # "numbers" is an array of ints: one part without a name, from byte 0 on.
        "group_parts": (GroupPart("", 0, view),) if view.kind == "numbers" else view.parts,
        "choice_starts": view.start,
        "varied": tuple(name for name in params._fields if name in varied),
        "reset_draws": None if dynamics.takes_rng("reset") else dynamics.reset_draws,
        "step_draws": None if dynamics.takes_rng("step") else dynamics.step_draws,
    }
    same = {name: getattr(dynamics, name) for name in Structure._fields if name not in derived}
    frozen: Structure = freeze(Structure(**derived, **same))
    ids.setdefault(frozen, dynamics.id)
    return frozen


# ---------------------------------------------------------------- functions and kernels


@functools.cache
def user_functions(env: Structure, dtype: type) -> dict[str, Any]:
    """Return the functions of an environment's author by name, specialised for a dtype."""
    names = ["step", "reset", "observe"]
    names += [name for name in ("action_mask", "randomize") if getattr(env, name) is not None]
    # Those that are given arrays: of states, or `out` of a mask.
    arrays = {name for name in names if env.state.is_record}
    arrays |= {"action_mask"} if env.writes_mask else set()
    exact = dtype is np.float64
    return {n: specialise(getattr(env, n), dtype, exact, n in arrays) for n in names}


def env_kernel(
    env: Structure,
    dtype: type,
    names: tuple[str, ...] = SHARED,
    check: Callable[[], None] = lambda: None,
) -> Any:
    """Return the decorator that compiles kernels of an environment, for C: `kernel` with options.

    Kernels are fast in float32 and exact in float64. Those of a user's environment in float32 also
    tell the user if the loop over lanes did not become vectors, and why.

    Args:
        env: the environment.
        dtype: of its floats.
        names: what users are told that the kernel runs.
        check: of a policy in the kernel, see `kernel`.
    """
    functions = user_functions(env, dtype)

    def check_all() -> None:
        _check_branches(env, functions)
        check()

    options: dict[str, Any] = {
        "by_address": True,
        "branching": env.state.is_record,
        "fastmath": EXACT if dtype is np.float64 else FAST,
        "scalars": () if dtype is np.float64 else tuple(functions.values()),
        "check": check_all,
        "subject": ids.get(env),
    }
    if dtype is np.float64 or env.state.is_record or not is_written_by_users(env.step):
        return kernel(**options)

    def compile_and_report(function: Callable[..., Any]) -> Any:
        compiled = kernel(function, **options)
        step, id = env.step, ids.get(env, "")
        known = reasons_of_policies(env) if names != SHARED else ()
        hooks.wrap_compiler(compiled, lambda compiler: tell_users(compiler, step, id, names, known))
        return compiled

    return compile_and_report


def reasons_of_policies(env: Structure) -> tuple[str, ...]:
    """Return the reasons why `simulate` does not vectorise, whatever a step does."""
    reasons = []
    if max(env.num_actions, env.action_size) > UNROLLED:
        reasons.append(f"policies choose among more than {UNROLLED} actions in a loop")
    if env.writes_mask:
        reasons.append("action_mask writes into memory")
    return tuple(reasons)


def _check_branches(env: Structure, functions: dict[str, Any]) -> None:
    """Raise TypeError if an author's function returns in some branch what kernels cannot take.

    `functions` are the specialised ones by name. `check_branches` compares the type that numba
    infers of each `return` with what the description promises.
    """
    dynamics = _dynamics_for_checks(env)
    writes = {  # and returns None always
        "reset": env.state.is_record,
        "observe": env.state.is_record and env.writes_observation,
        "action_mask": env.writes_mask,
    }
    for name, function in functions.items():
        if not writes.get(name):
            check_branches(dynamics, name, function)


def _dynamics_for_checks(env: Structure) -> SimpleNamespace:
    """Return an object with the attributes of a `Dynamics` that `check_result` reads.

    Numbers of params, which a structure does not know, are 0.0.
    """
    params: Any = env.params_type(*(0.0 if option is None else option for option in env.options))
    fields = {"has_arrays": env.state.is_record, **env._asdict()}
    return SimpleNamespace(**{**fields, "id": ids.get(env), "params": params, "varied": ()})
