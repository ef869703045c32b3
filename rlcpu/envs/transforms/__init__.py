"""Transforms: functions of a `Dynamics` that return one which shows, repeats or rewards otherwise.

They are for environments of our own kernels what Gymnasium's wrappers are for its environments, and
become part of the machine code:

    env = rlcpu.make_vec(add_previous_action(stack_observations("CartPole-v1", 4)), 1024)

| here | elsewhere |
|---|---|
| `stack_observations` | Gymnasium's `FrameStackObservation` |
| `add_time_left` | Gymnasium's `TimeAwareObservation` |
| `transform_reward` | Gymnasium's `TransformReward` |
| `repeat_action` | frame skip, as in Gymnasium's `MaxAndSkipObservation` |
| `add_previous_action`, `add_first_step` | POPGym's `PreviousAction`, `Antialias` |

Each takes an id or a `Dynamics`, whose observations are numbers if it appends to them, and returns
another `Dynamics`. It raises TypeError or ValueError for a bad argument, or for an environment that
cannot be transformed.

What a transform has to remember is a field of the state, behind those of the environment itself:
snapshots, copies and checkpoints hold it. Random numbers are those of the environment without the
transform. A `Discrete` observation becomes a number of 0 or 1 for each of its values where numbers
are added to it or where it is stacked.
"""

from rlcpu.envs.transforms.observations import (
    add_first_step,
    add_previous_action,
    add_previous_reward,
    add_time_left,
    stack_observations,
)
from rlcpu.envs.transforms.rewards import repeat_action, shape_reward, transform_reward

__all__ = [
    "add_first_step",
    "add_previous_action",
    "add_previous_reward",
    "add_time_left",
    "repeat_action",
    "shape_reward",
    "stack_observations",
    "transform_reward",
]
