"""The vector environment whose arrays live on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded

from rlcpu.cuda import provider
from rlcpu.cuda.arrays import DeviceArray, empty, from_host, is_device_array, take, zeros
from rlcpu.cuda.envs import batch, collect
from rlcpu.cuda.envs.memory import Memory
from rlcpu.cuda.launch import launch
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.lane import pack
from rlcpu.envs.policies import PolicyArrays, PolicyCode
from rlcpu.envs.vector_env import VectorEnv as CpuVectorEnv
from rlcpu.envs.vector_env import convert_actions

Array = npt.NDArray[Any]


class VectorEnv(CpuVectorEnv):
    """N copies of one environment on a CUDA device: `make_vec(..., device="cuda")`.

    It behaves as the one on the CPU, from which it takes its arguments and attributes, except that

    * `reset` and `step` return `DeviceArray`s, which torch, CuPy and jax take without a copy;
    * `step` takes actions on the device (int64 or int32, float32 for a `Box`; arrays of the host
      are copied there), and waits for the device to have checked them;
    * in same-step mode the infos hold `final_obs` (num_envs, observation_size) float32 of all
      environments, of which those of `_final_obs` have ended.

    With the same seed, both draw the same random numbers. float64 repeats the CPU's arithmetic but
    for libdevice's sine, cosine and power, which are within 2 ulp of libm's; one float32 step errs
    as on the CPU.

    Attributes:
        bounds: (2 * action_size,) float32, lowest and highest numbers of an action.

    Raises:
        rlcpu.cuda.CudaUnavailableError: there is no device; with what to install.
        rlcpu.cuda.CudaMemoryError: its memory is too small.
    """

    device = "cuda"

    def __init__(self, dynamics: Dynamics, num_envs: int = 1, **options: Any) -> None:
        provider.require_device()
        super().__init__(dynamics, num_envs, **options)

    def _allocate(self, real: type, limit: int) -> None:
        self.memory: Any = Memory(self.code, self.num_envs, real, limit)
        self.numbers: Any = from_host(pack(self.dynamics.params, real))
        self._step_kernel = batch.step_kernel(self.code, real, self._same_step, self._disabled)
        self._faults, self._nothing = zeros(2, np.int32), empty(0, np.float32)
        space: Any = self.single_action_space
        bounds = np.concatenate((space.low, space.high)) if self.dynamics.action_size else [0.0]
        self.bounds = from_host(bounds, np.float32)
        self._may_wait = False  # whether an environment may have finished and not begun anew

    def _restart(self, mask: Any, numbers: Array) -> None:
        chosen = mask if isinstance(mask, DeviceArray) else from_host(mask)
        memory = self.memory
        launch(
            batch.reset_kernel(self.code, self.scalar_type), self.num_envs,
            memory.state, memory.words, memory.clock, chosen, from_host(numbers), memory.counter,
        )  # fmt: skip
        memory.advance(1)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take one step in every environment.

        Args:
            actions: (num_envs,) integers of a `Discrete`, or (num_envs, action_size) of a `Box`, on
                the device or on the host.

        Returns:
            As on the CPU, on the device.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`, or, with autoreset disabled, if
                an environment has finished.
            TypeError, ValueError: actions of another dtype, shape or range, NaN, not contiguous, or
                on another device; nothing has been stepped then.
        """
        if not self._ready:
            raise ResetNeeded("call reset() before step(): no environment has a state yet")
        taken, n = self._take_actions(actions), self.num_envs
        observations, rewards = empty(self._observation_shape, np.float32), empty(n, self.dtype)
        flags = empty(2 * n, np.bool_)
        finals = self._nothing
        if self._same_step:
            finals = empty(self._observation_shape, np.float32)
        memory = self.memory
        launch(
            self._step_kernel, n,
            memory.states[0], memory.words, memory.elapsed_steps[0], taken, self.numbers,
            memory.counter, memory.limit,
            memory.states[1], memory.elapsed_steps[1], observations, rewards, flags, finals,
            self._faults,
        )  # fmt: skip
        self._check_faults(taken)
        memory.exchange()
        memory.advance(1)
        self._may_wait = not self._same_step
        if self.render_mode:
            self._renderer.remember(taken.copy_to_host())
        terminated, truncated = flags.view((n,)), flags.view((n,), n)
        return observations.T, rewards, terminated, truncated, self._infos(finals, flags)

    def _take_actions(self, actions: Any) -> DeviceArray:
        if not is_device_array(actions):
            return from_host(convert_actions(actions, self.dynamics, self._action_shape))
        dtype = self._action_dtype
        # By name: torch's dtypes are none of NumPy's.
        if dtype == np.int64 and str(actions.dtype).rpartition(".")[2] == "int32":
            dtype = np.dtype(np.int32)
        return take("actions", actions, dtype, self._action_shape)

    def _check_faults(self, actions: DeviceArray) -> None:
        """Raise if the step was none."""
        faults = self._faults.copy_to_host()
        if not faults.any():
            return
        self._faults = zeros(2, np.int32)
        if faults[batch.BAD_ACTIONS]:
            self._excuse(actions.copy_to_host())
        self._check_running()

    def _infos(self, finals: DeviceArray, flags: DeviceArray) -> dict[str, Any]:
        if not self._same_step:
            return {}
        n, done = self.num_envs, empty(self.num_envs, np.bool_)
        launch(batch.either_kernel(), n, flags, done)
        return {"final_obs": finals.T, "_final_obs": done}

    def observe(self) -> Any:
        """Observations of the present states, (num_envs, observation_size) float32."""
        observations = empty(self._observation_shape, np.float32)
        kernel = batch.observe_kernel(self.code, self.scalar_type)
        launch(kernel, self.num_envs, self.memory.state, self.numbers, observations)
        return observations.T

    def start_episodes(self) -> None:
        """Reset what has never been reset, and what has finished and waits for its reset.

        Raises:
            gymnasium.error.ResetNeeded: an environment has finished and autoreset is disabled.
        """
        if not self._ready:
            self.reset()
        if not self._may_wait:
            return
        count, mask = self.memory.finished()
        if count and self._disabled:
            self._check_running()
        if count:
            self._restart(mask, pack(self.dynamics.params, self.scalar_type))
        self._may_wait = False

    def run_collect(self, code: PolicyCode, arrays: PolicyArrays, num_steps: int, out: Any) -> Any:
        """What `rlcpu.collect` does here."""
        return collect.collect(self, code, arrays, num_steps, out)

    def run_simulate(self, code: PolicyCode, arrays: PolicyArrays, num_steps: int) -> Any:
        """What `rlcpu.simulate` does here; the fields of `rlcpu.Statistics`."""
        sums = collect.simulate(self, code, arrays, num_steps)
        return collect.summary(self.num_envs * num_steps, sums)

    def render(self) -> tuple[Array, ...] | None:
        """One RGB picture (height, width, 3) uint8 per environment, by Gymnasium's renderer."""
        return self._renderer.render(np.asarray(self.state))

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, device='cuda')"
