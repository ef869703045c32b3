"""A job: what MuJoCo's threads are told of one call, an array of int64 numbers and addresses.

MuJoCo calls a compiled function for each simulation of a batch, with the address of one job for all
of them. Python writes a job by `write`. Kernels read it by a function of `make_open`, as the
NamedTuple `Job`: the numbers of `_NUMBERS`, then arrays over the addresses of `_ARRAYS`. Behind
these a job has address and size of each of the policy's arrays, a `KernelPolicy`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rlcpu.envs.policies import KernelPolicy
from rlcpu.kernels.compile import define, inline
from rlcpu.kernels.memory import array_at

#: Modes of a job, what it does with each simulation: start an episode where the mask says so; take
#: one step with given actions; let a policy take K steps; observe and measure the present state.
RESTART, STEP, ROLLOUT, FORWARD = range(4)
_NUMBERS = (
    "mode",
    "num_steps",  # K
    "num_envs",  # N, simulations
    "limit",  # steps of an episode after which it is truncated
    "same_step",  # 1 if a new episode starts in the step that ended one, else 0
    "records",  # 1 if steps are recorded, else 0
    "observation_size",
    "action_size",
    "measure_size",  # numbers that `measure` returns
    "reset_draws",  # random numbers of a reset
    "num_params",  # run-time numbers of params
    "row_size",  # numbers of a row of `model_rows`
    "task",  # address of the task's function, see `rlcpu.envs.mujoco.physics`
)
_N, _S, _A = "num_envs", "observation_size", "action_size"
_K_N = ("num_steps", _N)
#: Arrays that a call reads and writes, by name: shape, of numbers above, and dtype; None is that of
#: the environments. An array that a call does not use has the address 0.
_ARRAYS: dict[str, tuple[tuple[str | int, ...], Any]] = {
    # Of the present states.
    "observation": ((_N, _S), np.float64),
    # What `measure` returned after the last step or reset.
    "measured": ((_N, "measure_size"), np.float64),
    # Steps and returns of the running episodes so far; `PENDING` steps of one that has finished.
    "elapsed": ((_N,), np.uint32),
    "returns": ((_N,), np.float64),
    # Random streams, see `rlcpu.envs.mujoco.physics.POLICY_KEY`.
    "streams": ((_N, 4), np.uint64),
    # How often MuJoCo has found the simulation unstable.
    "unstable": ((_N,), np.uint32),
    # Random numbers of the last reset.
    "uniforms": ((_N, "reset_draws"), np.float64),
    # Rows of the model's varied fields as they are, and as users set them before `randomize` drew;
    # see `rlcpu.envs.mujoco.varied`.
    "model_rows": ((_N, "row_size"), np.float64),
    "nominal_rows": ((_N, "row_size"), np.float64),
    # The last actions, clipped to the bounds if a policy chose them.
    "applied_actions": ((_N, _A), np.float32),
    # The reward of the last step, and whether it terminated and truncated the episode.
    "step_rewards": ((_N,), np.float64),
    "step_ended": ((_N, 2), np.uint8),
    # Run-time numbers of params.
    "param_numbers": (("num_params",), np.float64),
    # Which simulations `RESTART` restarts.
    "mask": ((_N,), np.uint8),
    # Lowest and highest numbers of an action.
    "bounds": ((2, _A), np.float32),
    # Sums of a rollout, see `rlcpu.envs.engine.form.EPISODES`.
    "sums": ((_N, 5), np.float64),
    # `STEP` reads them, `ROLLOUT` writes them.
    "actions": ((*_K_N, _A), np.float32),
    # Before each step.
    "observations": ((*_K_N, _S), None),
    "log_probs": (_K_N, np.float32),
    "values": (_K_N, np.float32),
    "rewards": (_K_N, None),
    # Terminated, then truncated.
    "flags": ((2, *_K_N), np.uint8),
    # Where an episode ended: its return, its steps, and its last observation.
    "totals": (_K_N, None),
    "lengths": (_K_N, np.uint32),
    "finals": ((*_K_N, _S), None),
    # After the last step.
    "last": ((_N, _S), None),
}
Job: Any = collections.namedtuple("Job", (*_NUMBERS, *_ARRAYS))  # type: ignore[misc]
_PLACES: dict[str, int] = dict(zip(Job._fields, range(len(Job._fields)), strict=True))
#: Place of the address of the policy's first array, and numbers of a job.
FIRST_POLICY = len(_PLACES)
JOB_SIZE = FIRST_POLICY + 2 * len(KernelPolicy._fields)
#: Arrays of a call without a policy: all but those that only rollouts use.
ARRAYS_OF_STEPS = _ARRAYS.keys() - {
    *("bounds", "sums", "observations", "log_probs", "values", "totals", "lengths")
}
ARRAYS = tuple(_ARRAYS)


def write(job: Any, values: Mapping[str, Any]) -> None:
    """Write numbers, and the addresses of arrays, by their names into a job."""
    for name, value in values.items():
        is_array = isinstance(value, np.ndarray)
        # Half of the time of `value.ctypes.data`.
        job[_PLACES[name]] = value.__array_interface__["data"][0] if is_array else value


def write_policy(job: Any, arrays: KernelPolicy) -> None:
    """Write the addresses and sizes of a policy's arrays into a job."""
    job[FIRST_POLICY::2] = [array.ctypes.data for array in arrays]
    job[FIRST_POLICY + 1 :: 2] = [array.size for array in arrays]


def make_open(names: Iterable[str], dtype: Any) -> Callable[..., Any]:
    """Make an inlinable function (address of a job,) -> `Job`.

    Its source is `Job(job[0], job[1], ..., array_at(job[13], (job[2], job[6],), like_observation),
    ...)`: each array over its address, in its shape.

    Args:
        names: of the arrays that are needed; others are None.
        dtype: of the environments.
    """
    namespace: dict[str, Any] = {"array_at": array_at, "Job": Job, "i64": np.int64(0)}
    items, needed = [f"job[{k}]" for k in range(len(_NUMBERS))], set(names)
    for name, (shape, array_dtype) in _ARRAYS.items():
        if name not in needed:
            items.append("None")
            continue
        sizes = "".join(f"job[{_PLACES[n]}], " if isinstance(n, str) else f"{n}, " for n in shape)
        items.append(f"array_at(job[{_PLACES[name]}], ({sizes}), like_{name})")
        namespace[f"like_{name}"] = (array_dtype or dtype)(0)  # an example of its numbers
    source = f"""def open_job(address):
        job = array_at(address, ({JOB_SIZE},), i64)
        return Job({", ".join(items)})"""
    return inline(define(source, **namespace), exact=True)
