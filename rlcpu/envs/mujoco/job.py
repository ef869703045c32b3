"""A job: the argument of a call of MuJoCo's threads, an array of int64 numbers and addresses.

MuJoCo calls a compiled function for each simulation of a batch, with the address of one job for all
of them. A job has, in this order: a header of numbers (`MODE` to `PHYSICS_SIZE`), the addresses of
the arrays in `_LAYOUT`, and address and size of each of the policy's arrays, a `KernelPolicy`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rlcpu.envs.policies import KernelPolicy
from rlcpu.kernels.compile import define, inline
from rlcpu.kernels.memory import array_at

#: Modes of a job, what it does with each simulation: start an episode where the mask says so; take
#: one step with given actions; let a policy take K steps; observe and measure the present state.
RESTART, STEP, ROLLOUT, FORWARD = range(4)
#: Places of the header's numbers: the mode; steps K; simulations N; the limit of an episode's
#: steps; whether a new episode starts in the step that ended one; whether steps are recorded;
#: numbers of an observation, of an action, of what `measure` returns, of random draws of a reset,
#: of run-time params; the address of the task's function; and the numbers of a row of `model_rows`.
(
    MODE,
    NUM_STEPS,
    NUM_ENVS,
    LIMIT,
    SAME_STEP,
    RECORD,
    OBSERVATION_SIZE,
    ACTION_SIZE,
    MEASURE_SIZE,
    RESET_DRAWS,
    NUM_PARAMS,
    TASK,
    PHYSICS_SIZE,
) = range(13)
HEADER = 13


_K, _N, _S, _A = (f"job[{k}]" for k in (NUM_STEPS, NUM_ENVS, OBSERVATION_SIZE, ACTION_SIZE))
#: Arrays that a call reads and writes, by name: source of the shape, and dtype; None is that of the
#: environments. N simulations, K steps, S and A numbers of an observation and of an action. An
#: array that a call does not use has the address 0.
_LAYOUT: dict[str, tuple[str, Any]] = {
    # Of the present states.
    "observation": (f"({_N}, {_S})", np.float64),
    # What `measure` returned after the last step or reset.
    "measured": (f"({_N}, job[{MEASURE_SIZE}])", np.float64),
    # Steps and returns of the running episodes so far; `PENDING` steps of one that has finished.
    "elapsed": (f"({_N},)", np.uint32),
    "returns": (f"({_N},)", np.float64),
    # Random streams, see `rlcpu.envs.mujoco.physics.POLICY_KEY`.
    "streams": (f"({_N}, 4)", np.uint64),
    # How often MuJoCo has found the simulation unstable.
    "unstable": (f"({_N},)", np.uint32),
    # Random numbers of the last reset.
    "uniforms": (f"({_N}, job[{RESET_DRAWS}])", np.float64),
    # Rows of the model's varied fields as they are, and as users set them before `randomize` drew;
    # see `rlcpu.envs.mujoco.varied`.
    "model_rows": (f"({_N}, job[{PHYSICS_SIZE}])", np.float64),
    "nominal_rows": (f"({_N}, job[{PHYSICS_SIZE}])", np.float64),
    # The last actions, clipped to the bounds if a policy chose them.
    "applied_actions": (f"({_N}, {_A})", np.float32),
    # The reward of the last step, and whether it terminated and truncated the episode.
    "step_rewards": (f"({_N},)", np.float64),
    "step_ended": (f"({_N}, 2)", np.uint8),
    # Run-time numbers of params.
    "numbers": (f"(job[{NUM_PARAMS}],)", np.float64),
    # Which simulations `RESTART` restarts.
    "mask": (f"({_N},)", np.uint8),
    # Lowest and highest numbers of an action.
    "bounds": (f"(2, {_A})", np.float32),
    # Sums of a rollout, see `rlcpu.envs.engine.rollout.EPISODES`.
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
    # Where an episode ended: its return, its steps, and its last observation.
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
    """Make an inlinable function (job,) -> `Arrays`, with arrays at the addresses in the job.

    Args:
        names: of the arrays that are needed; others are None.
        dtype: of the environments.
    """
    namespace: dict[str, Any] = {"array_at": array_at, "Arrays": Arrays}
    items, names = [], set(names)
    for name, (shape, array_dtype) in _LAYOUT.items():
        namespace[f"like_{name}"] = (array_dtype or dtype)(0)
        array = f"array_at(job[{place_of(name)}], {shape}, like_{name})"
        items.append(array if name in names else "None")
    return inline(
        define(f"def open(job): return Arrays({', '.join(items)})", **namespace), exact=True
    )


def write_policy(job: Any, arrays: KernelPolicy) -> None:
    """Write the addresses and sizes of a policy's arrays into a job."""
    job[FIRST_POLICY::2] = [array.ctypes.data for array in arrays]
    job[FIRST_POLICY + 1 :: 2] = [array.size for array in arrays]
