"""The search for NaN and infinity in a rollout: which environment, field and step had them first.

Nothing can be learnt from a number that is not finite, and whatever is computed from one is lost.
The kernels of `rlcpu.envs.rollout.compiled` only tell that there was one: they add up zero times
each number, which is NaN then. When that happened, the functions here look for it and raise an
error that names it. An action mask that allows no action is such a fault, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.unfit import describe_fault, refuse_policy
from rlcpu.envs.engine.form import FAULTS, Records
from rlcpu.envs.engine.lane import LANES

Array = npt.NDArray[Any]
_EXPECTED = "expected finite numbers"


def check_rollout(engine: Any, policy: Any, records: Records, num_steps: int) -> None:
    """Raise the error of the first fault of a rollout; return if no single number is faulty.

    Environments that had a fault wait for a reset then.

    Raises:
        FloatingPointError: a number is not finite.
        ValueError: an action mask allows nothing.
    """
    shape, view = (num_steps, engine.num_envs), engine.view
    fields = _fields_by_step(engine, records, num_steps)
    is_bad = {name: ~np.isfinite(array) for name, array in fields.items()}
    if view.num_masked:
        is_bad["action_mask"] = ~view.masks(records.observations.reshape(*shape, -1)).any(axis=-1)
    is_broken = np.zeros(engine.num_envs, np.bool_)  # which environments, not policies, are faulty
    for name in is_bad.keys() - {"action", "log_prob", "value"}:  # (steps, N, ...) each
        by_env = is_bad[name].reshape(len(is_bad[name]), engine.num_envs, -1)
        is_broken |= by_env.any(axis=(0, 2))
    engine.finish(is_broken)
    first = {name: np.argwhere(bad)[0].tolist() for name, bad in is_bad.items() if bad.any()}
    if not first:
        return  # a sum of finite numbers overflowed
    # Of one step what is computed first, as `fields` are in that order, and the mask at last.
    name = min(first, key=lambda name: first[name][0])
    step, i, *component = first[name]
    actions, broken = fields["action"], f"{is_broken.sum()} of {engine.num_envs} environments"
    if name == "action_mask":
        raise ValueError(
            f"{engine.dynamics.id}: action_mask allows nothing in step {step} of environment {i}"
            f"{_after_action(actions, step - 1, i)} ({broken} are "
            "faulty): expected one action at least, or the end of the episode"
        )
    index = component or ""
    if component and "observation" in name and view.kind == "group":  # parts that have names
        index = f" {view.float_names()[component[0]]}"
    fault = f"{name}{index}={fields[name][tuple(first[name])]}"
    if name in ("action", "log_prob", "value"):
        where = f"in step {step} of environment {i}"
        # Raises always.
        refuse_policy(policy, f"{fault} {where}, observation {fields['observation'][step, i]}")
    # An observation is one before a step: the action of the step before led to it.
    last_action = step - 1 if name == "observation" else step
    raise FloatingPointError(
        f"{engine.dynamics.id}: environment {i} has {fault} in step {step}"
        f"{_after_action(actions, last_action, i)} ({broken} have such numbers): {_EXPECTED}; "
        "rlcpu.envs.check finds inputs that lead to them"
    )


def _fields_by_step(engine: Any, records: Records, num_steps: int) -> dict[str, Array]:
    """Return all numbers of a rollout by name, in the order in which a step computes them.

    Each is (num_steps, N, ...), and "observation" has one more step, the last observations. Of an
    observation only the floats are shown (`float_numbers`): other parts are bits, which are always
    numbers. One without floats is shown as a 0.
    """
    arrays, view = engine.form.shaped(records, num_steps), engine.view
    ended = arrays["terminated"] | arrays["truncated"]
    if view.kind in ("floats", "group"):
        rows = np.concatenate((records.observations, records.last))
        observations = view.float_numbers(rows.reshape(num_steps + 1, engine.num_envs, -1))
        finals = view.float_numbers(records.finals.reshape(*ended.shape, -1))
        finals = np.where(ended[..., None], finals, np.float32(0))  # elsewhere nothing was written
    else:
        observations, finals = np.zeros((num_steps + 1, engine.num_envs)), np.zeros(ended.shape)
    return {
        "observation": observations,
        "action": arrays["actions"],
        "log_prob": arrays["log_probs"],
        "value": arrays["values"],
        "reward": arrays["rewards"],
        "final observation": finals,
    }


def _after_action(actions: Array, step: int, i: int) -> str:
    """Return the words on the action of environment i in a step; "" before the first step."""
    return f" after the action {actions[step, i]}" if step >= 0 else ""


def check_simulation(engine: Any, policy: Any, sums: Array) -> None:
    """Raise the error of a fault of `simulate`, which kept sums alone: it is sought in the states.

    Environments that have a fault wait for a reset then.

    `sums`, (blocks + 1, NUM_SUMS) float64, are those that the kernel wrote for each block of
    environments; column `FAULTS` is NaN for a block with a fault.

    Raises:
        FloatingPointError: a number of an environment or of the policy is not finite.
        ValueError: an action mask allows nothing.
    """
    rows, returns = engine.get_state(), engine.get_returns()
    spans = engine.code.state.float_spans(engine.scalar_type)
    columns = [k for first, count in spans for k in range(first, first + count)]
    floats = rows[:, columns]  # other rows hold bits
    is_broken = ~(np.isfinite(floats).all(axis=1) & np.isfinite(returns))
    engine.finish(is_broken)
    if engine.view.num_masked:
        observations, waiting = engine.observe(), engine.finished()
        engine.finish(~engine.view.masks(observations.T).any(axis=1))
        engine.check_masks(observations, waiting)
    if describe_fault(policy):
        refuse_policy(policy, "actions that are not finite")
    if is_broken.any():
        i = int(np.argmax(is_broken))
        fault = f"environment {i} has the state {floats[i]} and the return {returns[i]}"
    else:
        first = int(np.flatnonzero(np.isnan(sums[:-1, FAULTS]))[0]) * LANES
        last = min(first + LANES, engine.num_envs) - 1
        fields = "an observation, an action or a return that was not finite"
        if engine.view.num_masked:
            fields += ", or an action mask that allows nothing"
        fault = f"one of environments {first} to {last} had {fields}"
    raise FloatingPointError(
        f"{engine.dynamics.id}: {fault}: {_EXPECTED}; rlcpu.collect names the step, "
        "rlcpu.envs.check finds inputs that lead to them"
    )
