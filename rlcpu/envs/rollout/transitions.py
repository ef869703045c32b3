"""The fields of an environment's transitions, for replay buffers of agents."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.engine.vector_env import VectorEnv


def example_of(env: VectorEnv | Dynamics | str) -> dict[str, Any]:
    """Return one transition of an environment, zeros, as the example of a buffer for an agent.

    Example:
        >>> sorted(example_of("CartPole-v1"))[:3]
        ['action', 'next_observation', 'observation']
    """
    dynamics: Any = env.dynamics if isinstance(env, VectorEnv) else find(env)
    # Planes are stored as bits, in whichever form users get them.
    view = ObservationView.of(dynamics, planes="uint8", dtype=np.dtype(np.float32))
    stored = view.stored_example
    vector = np.zeros(dynamics.action_size, np.float32)
    num_masked = dynamics.num_masked
    masks = {"next_action_mask": np.zeros(num_masked, np.bool_)} if num_masked else {}
    return {
        **masks,
        "observation": stored,
        "action": np.int64(0) if dynamics.is_discrete else vector,
        "reward": np.float32(0),
        "next_observation": stored,
        "terminated": False,
        "truncated": False,
    }
