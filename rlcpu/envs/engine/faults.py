"""NaN and infinity in a rollout: which environment, field and step they come from.

Nothing can be learnt from a number that is not finite, and whatever is computed from one is lost.
The kernels of `rlcpu.envs.engine.rollout` only tell that there is one: they add up zero times each
number. It is looked for here, once, to be named.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.rollout import FAULTS
from rlcpu.envs.running import describe_fault, refuse_policy

Array = npt.NDArray[Any]
_EXPECTED = "expected finite numbers"


def check_rollout(engine: Any, policy: Any, records: Records, num_steps: int) -> None:
    """Raise FloatingPointError for the first number of a rollout that is not finite.

    Or ValueError, if an action mask that allows nothing came before it.

    Args:
        engine: its environments; those that showed such a number will start a new episode.
        policy: the policy that acted.
        records: what was collected.
        num_steps: of the rollout.
    """
    shown, view, n = engine.form.shaped(records, num_steps), engine.view, engine.num_envs
    ended = shown["terminated"] | shown["truncated"]
    shape = num_steps + 1, n, -1
    if view.kind in ("floats", "group"):
        observations = np.concatenate((records.observations, records.last)).reshape(shape)
        observations = view.reals(observations)
        finals = view.reals(records.finals.reshape(*ended.shape, -1))
        finals = np.where(ended[..., None], finals, np.float32(0))
    else:  # bits, of which each is a number
        observations, finals = np.zeros(shape[:2]), np.zeros(ended.shape)
    # In the order in which the numbers of a step come about.
    fields = {
        "observation": observations,
        "action": shown["actions"],
        "log_prob": shown["log_probs"],
        "value": shown["values"],
        "reward": shown["rewards"],
        "final observation": finals,
    }
    bad = {name: ~np.isfinite(array) for name, array in fields.items()}
    broken = np.zeros(n, np.bool_)
    for name in ("observation", "reward", "final observation"):
        broken |= bad[name].reshape(len(bad[name]), n, -1).any(axis=(0, 2))
    empty = np.zeros(ended.shape, np.bool_)
    if view.num_masked:
        empty = ~view.masks(records.observations.reshape(*ended.shape, -1)).any(axis=-1)
    broken |= empty.any(axis=0)
    engine.finish(broken)
    places = {name: np.argwhere(where)[0].tolist() for name, where in bad.items() if where.any()}
    if empty.any():
        places["action_mask"] = np.argwhere(empty)[0].tolist()
    if not places:
        return  # a sum of finite numbers overflowed
    name = min(places, key=lambda name: places[name][0])
    step, i, *component = places[name]
    if name == "action_mask":
        raise ValueError(
            f"{engine.dynamics.id}: action_mask allows nothing in step {step} of environment {i}"
            f"{_after(shown, step - 1, i)} ({broken.sum()} of {n} environments are "
            "faulty): expected one action at least, or the end of the episode"
        )
    place = component or ""
    if component and "observation" in name and view.kind == "group":
        place = f" {view.real_names()[component[0]]}"
    what = f"{name}{place}={fields[name][tuple(places[name])]}"
    if name in ("action", "log_prob", "value"):
        where = f"in step {step} of environment {i}"
        refuse_policy(policy, f"{what} {where}, observation {fields['observation'][step, i]}")
    acted = step - 1 if name == "observation" else step
    raise FloatingPointError(
        f"{engine.dynamics.id}: environment {i} has {what} in step {step}{_after(shown, acted, i)} "
        f"({broken.sum()} of {n} environments have such numbers): {_EXPECTED}; "
        "rlcpu.envs.check finds inputs that lead to them"
    )


def _after(shown: dict[str, Array], step: int, i: int) -> str:
    """Describe the action after which an environment failed."""
    return f" after the action {shown['actions'][step, i]}" if step >= 0 else ""


def check_simulation(engine: Any, policy: Any, sums: Array) -> None:
    """Raise FloatingPointError for the environment or the policy that gave a number not finite.

    Or ValueError for an action mask that allows nothing.

    Args:
        engine: the environments; those that hold such a number will start a new episode.
        policy: the policy that acted.
        sums: (blocks + 1, 5) float64, what `simulate`'s kernel wrote.
    """
    state, returns = engine.get_state(), engine.get_returns()
    spans = engine.code.state.real_spans(engine.scalar_type)
    reals = np.concatenate([state[:, :0], *(state[:, k : k + n] for k, n in spans)], axis=1)
    broken = ~(np.isfinite(reals).all(axis=1) & np.isfinite(returns))
    engine.finish(broken)
    if engine.view.num_masked:
        rows, waiting = engine.observe(), engine.finished()
        engine.finish(~engine.view.masks(rows.T).any(axis=1))
        engine.check_masks(rows, waiting)
    if describe_fault(policy):
        refuse_policy(policy, "actions that are not finite")
    if broken.any():
        i = int(np.argmax(broken))
        what = f"environment {i} has the state {reals[i]} and the return {returns[i]}"
    else:
        first = int(np.flatnonzero(np.isnan(sums[:-1, FAULTS]))[0]) * LANES
        last = min(first + LANES, engine.num_envs) - 1
        fields = "an observation, an action or a return that was not finite"
        if engine.view.num_masked:
            fields += ", or an action mask that allows nothing"
        what = f"one of environments {first} to {last} had {fields}"
    raise FloatingPointError(
        f"{engine.dynamics.id}: {what}: {_EXPECTED}; rlcpu.collect names the step, "
        "rlcpu.envs.check finds inputs that lead to them"
    )
