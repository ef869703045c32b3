"""What calls of `collect` and `simulate` check once, and make once, for an environment and policy.

Checking everything anew and making the kernels' arguments took 19 of the 45 us of a step of one
environment; to see that nothing has changed takes 1.3.
"""

from __future__ import annotations

import functools
from operator import is_
from typing import Any

import numpy as np

from rlcpu.envs.policy import Policy
from rlcpu.envs.results import Form
from rlcpu.envs.rollout import EnvArrays, collect_kernels, simulate_kernels
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.threads import Kernels


class Prepared:
    """An environment and a policy that fit each other, as kernels take them.

    Args:
        env: on the CPU.
        policy: any that has the methods of `Policy`.

    Attributes:
        policy: the policy.
        env_arrays, policy_arrays: the fields of `EnvArrays` and `PolicyArrays`.
        form: of the environment's rollouts.
        sums, lengths: (blocks + 1, 4) float64 and (blocks + 1,) int64, which `simulate` overwrites.
        shared_envs: environments whose steps several cores can share: one block is one core's.

    Raises:
        TypeError, ValueError: they do not fit.
    """

    def __init__(self, env: VectorEnv, policy: Policy) -> None:
        space: Any = env.single_action_space
        self.policy, self._dynamics, self._memory = policy, env.dynamics, env.memory
        self._numbers, self._env_code, self._real = env.numbers, env.code, env.scalar_type
        self._code, arrays = policy.code(env.dynamics), policy.arrays(env.dynamics)
        self.policy_arrays = tuple(arrays)
        self._objects, self._values = self._marks(policy)
        bounds = np.zeros(0, np.float32)
        if env.dynamics.action_size:
            bounds = np.concatenate((space.low, space.high)).astype(np.float32)
        memory, blocks = env.memory, env.memory.real.shape[0]
        self.env_arrays = tuple(
            EnvArrays(memory.real, memory.words, env.numbers, bounds, memory.clock)
        )
        self.form = Form(env.num_envs, env.dynamics.observation_size, space.shape, env.dtype)
        self.sums, self.lengths = np.zeros((blocks + 1, 4)), np.zeros(blocks + 1, np.int64)
        self.shared_envs = env.num_envs if blocks > 1 else 0

    def _marks(self, policy: Policy) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
        """The policy's marks, if they tell of every change that does not go into our arrays.

        A subclass that inherits them may have arrays of its own making, and arrays of another
        dtype were copied into ours.
        """
        if "marks" not in vars(type(policy)):
            return None, ()
        objects, values = policy.marks()  # type: ignore[attr-defined]
        theirs = [each for each in objects if isinstance(each, np.ndarray)]
        alike = all(any(each is ours for ours in self.policy_arrays) for each in theirs)
        return (objects if alike else None), values

    def serves(self, env: VectorEnv, policy: Policy) -> bool:
        """Whether the environment and the policy are what they were."""
        if (
            policy is not self.policy
            or self._objects is None
            or env.dynamics is not self._dynamics
            or env.memory is not self._memory
            or env.numbers is not self._numbers
        ):
            return False
        objects, values = policy.marks()  # type: ignore[attr-defined]
        return values == self._values and all(map(is_, objects, self._objects))

    @functools.cached_property
    def collect_kernels(self) -> Kernels:
        """See `rlcpu.envs.rollout`."""
        return collect_kernels(self._env_code, self._real, self._code)

    @functools.cached_property
    def simulate_kernels(self) -> Kernels:
        """See `rlcpu.envs.rollout`."""
        return simulate_kernels(self._env_code, self._real, self._code)


def prepare(env: VectorEnv, policy: Policy) -> Prepared:
    """What the last call prepared, if it still holds.

    Raises:
        TypeError, ValueError: it is no policy, or does not fit the environment.
    """
    held: Prepared | None = env.prepared
    if held is None or not held.serves(env, policy):
        check_policy(policy)
        held = env.prepared = Prepared(env, policy)
    return held


def check_policy(policy: Policy) -> None:
    """Raise TypeError unless the policy has the methods of one."""
    if isinstance(policy, type) or not (hasattr(policy, "code") and hasattr(policy, "arrays")):
        raise TypeError(f"policy={policy!r}: expected one of rlcpu.policies")
