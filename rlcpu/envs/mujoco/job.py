"""What a call of MuJoCo's threads is told: numbers, and the addresses of arrays."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlcpu.envs.policies import KernelPolicy
from rlcpu.kernels.compile import define, inline
from rlcpu.kernels.memory import array_at

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


_K, _N, _S, _A = (f"job[{k}]" for k in (NUM_STEPS, NUM_ENVS, SEEN, ACTED))
#: What a call reads and writes, by name: shape, and dtype; None is that of the environments. N
#: simulations, K steps, S numbers of an observation. One that is not wanted has the address 0.
_LAYOUT: dict[str, tuple[str, Any]] = {
    # Of the present states.
    "observation": (f"({_N}, {_S})", np.float64),
    # After the last step or reset.
    "measured": (f"({_N}, job[{MEASURED}])", np.float64),
    # Steps and returns of the running episodes so far; `PENDING` steps of one that has finished.
    "elapsed": (f"({_N},)", np.uint32),
    "returns": (f"({_N},)", np.float64),
    # See `rlcpu.envs.mujoco.physics.POLICY_KEY`.
    "streams": (f"({_N}, 4)", np.uint64),
    # How often MuJoCo has found the simulation unstable.
    "unstable": (f"({_N},)", np.uint32),
    # Of the last reset.
    "uniforms": (f"({_N}, job[{DRAWS}])", np.float64),
    # The model's numbers as they are, and as they were given; see `rlcpu.envs.mujoco.varied`.
    "physics": (f"({_N}, job[{VARIED}])", np.float64),
    "nominal": (f"({_N}, job[{VARIED}])", np.float64),
    # The last actions, within the bounds if a policy chose them, and rewards.
    "applied": (f"({_N}, {_A})", np.float32),
    "gained": (f"({_N},)", np.float64),
    # Whether the last step terminated and truncated the episode.
    "ended": (f"({_N}, 2)", np.uint8),
    # Run-time params.
    "numbers": (f"(job[{NUMBERS}],)", np.float64),
    # What `RESTART` restarts.
    "mask": (f"({_N},)", np.uint8),
    # Lowest and highest numbers of an action.
    "bounds": (f"(2, {_A})", np.float32),
    # See `rlcpu.envs.engine.rollout.EPISODES`.
    "sums": (f"({_N}, 5)", np.float64),
    # `STEP` reads them, `ROLLOUT` writes them.
    "actions": (f"({_K}, {_N}, {_A})", np.float32),
    # Before each step.
    "observations": (f"({_K}, {_N}, {_S})", None),
    "log_probs": (f"({_K}, {_N})", np.float32),
    "values": (f"({_K}, {_N})", np.float32),
    "rewards": (f"({_K}, {_N})", None),
    # Terminated, then truncated.
    "flags": (f"(2, {_K}, {_N})", np.uint8),
    # Where an episode ended: its return and steps, and what its last step led to.
    "totals": (f"({_K}, {_N})", None),
    "lengths": (f"({_K}, {_N})", np.uint32),
    "finals": (f"({_K}, {_N}, {_S})", None),
    # After the last step.
    "last": (f"({_N}, {_S})", None),
}
NAMES = tuple(_LAYOUT)
Arrays: Any = collections.namedtuple("Arrays", NAMES)  # type: ignore[misc]

FIRST_POLICY = HEADER + len(NAMES)
#: After the arrays come address and size of each of the policy's.
JOB_SIZE = FIRST_POLICY + 2 * len(KernelPolicy._fields)


_PLACES = {name: HEADER + k for k, name in enumerate(NAMES)}


def place_of(name: str) -> int:
    """Return the place, in a job, of an array's address."""
    return _PLACES[name]


def make_open(names: Iterable[str], dtype: Any) -> Callable[..., Any]:
    """Make an inlinable function: job -> `Arrays`, of which those that are not named are None."""
    space: dict[str, Any] = {"array_at": array_at, "Arrays": Arrays}
    items, names = [], set(names)
    for name, (shape, kind) in _LAYOUT.items():
        space[f"like_{name}"] = (kind or dtype)(0)
        opened = f"array_at(job[{place_of(name)}], {shape}, like_{name})"
        items.append(opened if name in names else "None")
    return inline(define(f"def open(job): return Arrays({', '.join(items)})", **space), exact=True)


def write_policy(job: Any, arrays: KernelPolicy) -> None:
    """Write the addresses and sizes of a policy's arrays."""
    job[FIRST_POLICY::2] = [array.ctypes.data for array in arrays]
    job[FIRST_POLICY + 1 :: 2] = [array.size for array in arrays]
