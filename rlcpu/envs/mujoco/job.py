"""What a call of MuJoCo's threads is told: numbers, and the addresses of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.mujoco.library import array_at, i64
from rlcpu.envs.policies import PolicyArrays
from rlcpu.kernels.compile import define, inline_exact

#: What a call does with each simulation: start an episode where the mask says so; take one step
#: with given actions; let a policy take K steps; compute what derives from its present state.
RESTART, STEP, ROLLOUT, FORWARD = range(4)
#: The first numbers of a job: one of these; K; N; the limit of an episode's steps; whether a new
#: episode starts in the step that ended one; whether steps are recorded; S; the numbers of an
#: action; those that `measure` returns; those that a reset draws; those of params; the address of
#: the task's function; those of the model that vary.
MODE, NUM_STEPS, NUM_ENVS, LIMIT, SAME_STEP, RECORD, SEEN, ACTED, MEASURED, DRAWS, NUMBERS, TASK = (
    range(12)
)
VARIED = 12
HEADER = 13


class Arrays(NamedTuple):
    """What a call reads and writes: N simulations, K steps; their addresses follow the header.

    What has the dtype of the environments is marked as real; S are the numbers of an observation.
    An array that is not wanted has the address 0.

    Attributes:
        observation: (N, S) float64, of the present states.
        measured: (N, measure_size) float64, after the last step or reset.
        elapsed: (N,) uint32, steps of the running episodes, or `PENDING`.
        returns: (N,) float64, of the running episodes so far.
        streams: (N, 4) uint64, see `rlcpu.envs.mujoco.physics.POLICY_KEY`.
        unstable: (N,) uint32, how often MuJoCo has found the simulation unstable.
        uniforms: (N, reset_draws) float64, of the last reset.
        physics, nominal: (N, V) float64, see `rlcpu.envs.mujoco.varied`: the model's numbers as
            they are, and as they were given.
        applied: (N, nu) float32, the last actions, within the bounds if a policy chose them.
        gained: (N,) float64, the last rewards.
        ended: (N, 2) uint8, whether the last step terminated and truncated the episode.
        numbers: (P,) float64, run-time params.
        mask: (N,) uint8, what `RESTART` restarts.
        bounds: (2, nu) float32, lowest and highest numbers of an action.
        sums: (N, 5) float64, see `rlcpu.envs.rollout.EPISODES`.
        actions: (K, N, nu) float32; `STEP` reads it, `ROLLOUT` writes it.
        observations: (K, N, S) real, before each step.
        log_probs, values: (K, N) float32.
        rewards, totals: (K, N) real, totals where an episode ended: its return.
        flags: (2, K, N) uint8, terminated, then truncated.
        finals: (K, N, S) real, where an episode ended: what its last step led to.
        lengths: (K, N) uint32, where an episode ended: its steps.
        last: (N, S) real, after the last step.
    """

    observation: Any
    measured: Any
    elapsed: Any
    returns: Any
    streams: Any
    unstable: Any
    uniforms: Any
    physics: Any
    nominal: Any
    applied: Any
    gained: Any
    ended: Any
    numbers: Any
    mask: Any
    bounds: Any
    sums: Any
    actions: Any
    observations: Any
    log_probs: Any
    values: Any
    rewards: Any
    totals: Any
    flags: Any
    finals: Any
    lengths: Any
    last: Any


_FIRST_POLICY = HEADER + len(Arrays._fields)
#: After the arrays come address and size of each of the policy's.
JOB_SIZE = _FIRST_POLICY + 2 * len(PolicyArrays._fields)

_K, _N, _S, _A = (f"job[{k}]" for k in (NUM_STEPS, NUM_ENVS, SEEN, ACTED))
#: Shape and dtype of each array; None is the environments' own.
_LAYOUT: dict[str, tuple[str, Any]] = {
    "observation": (f"({_N}, {_S})", np.float64),
    "measured": (f"({_N}, job[{MEASURED}])", np.float64),
    "elapsed": (f"({_N},)", np.uint32),
    "returns": (f"({_N},)", np.float64),
    "streams": (f"({_N}, 4)", np.uint64),
    "unstable": (f"({_N},)", np.uint32),
    "uniforms": (f"({_N}, job[{DRAWS}])", np.float64),
    "physics": (f"({_N}, job[{VARIED}])", np.float64),
    "nominal": (f"({_N}, job[{VARIED}])", np.float64),
    "applied": (f"({_N}, {_A})", np.float32),
    "gained": (f"({_N},)", np.float64),
    "ended": (f"({_N}, 2)", np.uint8),
    "numbers": (f"(job[{NUMBERS}],)", np.float64),
    "mask": (f"({_N},)", np.uint8),
    "bounds": (f"(2, {_A})", np.float32),
    "sums": (f"({_N}, 5)", np.float64),
    "actions": (f"({_K}, {_N}, {_A})", np.float32),
    "observations": (f"({_K}, {_N}, {_S})", None),
    "log_probs": (f"({_K}, {_N})", np.float32),
    "values": (f"({_K}, {_N})", np.float32),
    "rewards": (f"({_K}, {_N})", None),
    "totals": (f"({_K}, {_N})", None),
    "flags": (f"(2, {_K}, {_N})", np.uint8),
    "finals": (f"({_K}, {_N}, {_S})", None),
    "lengths": (f"({_K}, {_N})", np.uint32),
    "last": (f"({_N}, {_S})", None),
}


_PLACES = {name: HEADER + k for k, name in enumerate(Arrays._fields)}


def place_of(name: str) -> int:
    """Where in a job the address of an array stands."""
    return _PLACES[name]


def make_open(names: Iterable[str], dtype: Any) -> Callable[..., Any]:
    """Inlinable function: job -> `Arrays`, of which those that are not named are None."""
    space: dict[str, Any] = {"array_at": array_at, "Arrays": Arrays}
    items, names = [], set(names)
    for name, (shape, kind) in _LAYOUT.items():
        space[f"like_{name}"] = (kind or dtype)(0)
        opened = f"array_at(job[{place_of(name)}], {shape}, like_{name})"
        items.append(opened if name in names else "None")
    return inline_exact(define(f"def open(job): return Arrays({', '.join(items)})", **space))


def make_open_policy() -> Callable[..., Any]:
    """Inlinable function: job -> `PolicyArrays`."""
    whole = ("sizes", "value_sizes", "settings")
    space: dict[str, Any] = {"array_at": array_at, "PolicyArrays": PolicyArrays}
    items = []
    for k, name in enumerate(PolicyArrays._fields):
        space[f"like{k}"] = i64 if name in whole else np.float32(0)
        place = _FIRST_POLICY + 2 * k
        items.append(f"array_at(job[{place}], (job[{place + 1}],), like{k})")
    source = f"def open_policy(job): return PolicyArrays({', '.join(items)})"
    return inline_exact(define(source, **space))


def write_policy(job: Any, arrays: PolicyArrays) -> None:
    """Write the addresses and sizes of a policy's arrays."""
    job[_FIRST_POLICY::2] = [array.ctypes.data for array in arrays]
    job[_FIRST_POLICY + 1 :: 2] = [array.size for array in arrays]
