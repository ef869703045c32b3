"""Buffers of `rlcpu.replay` as stable-baselines3's replay buffers."""

from __future__ import annotations

import os
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers, vec_env
from stable_baselines3.common.preprocessing import get_action_dim, get_obs_shape
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.utils import get_device

from rlcpu import replay
from rlcpu.replay.checks import check_number

Array = npt.NDArray[Any]
Tensor = Any  # torch.Tensor
#: Steps that wait to be stored together, and bytes of them at most: a call of the buffer for every
#: single step took a quarter of the time of a step.
_WAITING, _WAITING_BYTES = 64, 1 << 20


class PrioritizedSamples(NamedTuple):
    """`ReplayBufferSamples` with importance weights.

    Attributes:
        observations, actions, next_observations: (batch_size, ...).
        dones, rewards: (batch_size, 1) float32.
        discounts: (batch_size, 1) float32 of n-step returns; None if n_steps is 1.
        weights: (batch_size, 1) float32, importance weights, at most 1.
        indices: (batch_size,) int64 array, for `update_priorities`.
    """

    observations: Any
    actions: Tensor
    next_observations: Any
    dones: Tensor
    rewards: Tensor
    discounts: Tensor | None
    weights: Tensor
    indices: npt.NDArray[np.int64]


class ReplayBuffer(buffers.ReplayBuffer):
    """A `rlcpu.replay.ReplayBuffer` for `replay_buffer_class`, drawn uniformly.

    It takes what stable-baselines3 hands over, and `replay_buffer_kwargs`. Batches are tensors over
    the memory that was drawn into, without another copy on the CPU. Of an observation space that is
    a `Dict`, observations are dicts. `optimize_memory_usage=True` is refused: `derive_next` does
    that, and keeps what a truncated episode led to.

    Args:
        buffer_size: transitions that are kept; divided by `n_envs` and rounded down.
        observation_space: one environment's.
        action_space: one environment's.
        device: of the tensors.
        n_envs: environments that are added side by side.
        optimize_memory_usage: False.
        handle_timeout_termination: whether a truncated episode goes on in what is learnt.
        n_steps: steps whose rewards are added up, as in `NStepReplayBuffer`.
        gamma: discount of these sums.
        derive_next: store no next observations but those that the next step does not show.
        seed: of the draws; None takes one of NumPy's global stream, which the model's `seed` sets.

    Attributes:
        buffer: the buffer of `rlcpu.replay`. `save` and `restore` keep it in a folder without
            pickles, whereas `model.save_replay_buffer` pickles it.

    Raises:
        TypeError, ValueError: a bad argument.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        derive_next: bool = False,
        seed: int | None = None,
    ) -> None:
        if optimize_memory_usage:
            raise ValueError(
                "optimize_memory_usage=True: expected False, and "
                'replay_buffer_kwargs={"derive_next": True}, which saves the same memory'
            )
        self.observation_space, self.action_space = observation_space, action_space
        self.obs_shape = get_obs_shape(observation_space)
        self.action_dim = get_action_dim(action_space)
        self.device, self.n_envs = get_device(device), n_envs
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps, self.gamma, self.derive_next = n_steps, gamma, derive_next
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.seed = int(np.random.randint(2**62)) if seed is None else seed  # noqa: NPY002
        self._buffer: Any = self._make()
        # Steps are collected in `_steps`, and added to the buffer `_max_waiting` at a time.
        step_bytes = self._buffer.num_bytes // self._capacity * n_envs
        most = min(_WAITING, self.buffer_size, _WAITING_BYTES // max(step_bytes, 1))
        self._max_waiting, self._waiting = max(most, 1), 0
        self._steps = _map(
            self._example(),
            lambda x: np.zeros((self._max_waiting, n_envs, *np.shape(x)), np.asarray(x).dtype),
        )

    @property
    def buffer(self) -> Any:
        """Return the buffer of rlcpu that holds what was added."""
        self._store_waiting()
        return self._buffer

    def _store_waiting(self) -> None:
        """Add the steps that wait to the buffer."""
        if self._waiting:
            count, self._waiting = self._waiting, 0
            self._store(_map(self._steps, lambda array: array[:count]))

    def _store(self, steps: dict[str, Any]) -> None:
        self._buffer.add(steps)

    def _make(self) -> Any:
        return replay.ReplayBuffer(self._capacity, self._example(), **self._options())

    @property
    def _capacity(self) -> int:
        return self.buffer_size * self.n_envs

    def _options(self) -> dict[str, Any]:
        return {
            "num_envs": self.n_envs,
            "n_step": self.n_steps,
            "gamma": self.gamma,
            "derive_next": self.derive_next,
            "seed": self.seed,
        }

    def _example(self) -> dict[str, Any]:
        """Return an example of one transition."""
        observation: Any
        if isinstance(self.observation_space, spaces.Dict):
            shapes: Any = self.obs_shape
            parts = self.observation_space.spaces.items()
            observation = {name: np.zeros(shapes[name], part.dtype) for name, part in parts}
        else:
            observation = np.zeros(self.obs_shape, self.observation_space.dtype)
        kind = self._maybe_cast_dtype(self.action_space.dtype)
        return {
            "observation": observation,
            "next_observation": observation,
            "action": np.zeros(self.action_dim, kind),
            "reward": np.float32(0.0),
            "terminated": False,
            "truncated": False,
        }

    # ------------------------------------------------------------ adding

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: Array,
        reward: Array,
        done: Array,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store one step of every environment."""
        steps, t = self._steps, self._waiting
        _put(steps["observation"], t, obs)
        _put(steps["next_observation"], t, next_obs)
        _put(steps["action"], t, action)
        steps["reward"][t] = reward
        terminated, truncated = steps["terminated"][t], steps["truncated"][t]
        terminated[:], truncated[:] = done, False
        if self.handle_timeout_termination and terminated.any():
            for i in np.flatnonzero(terminated):
                truncated[i] = infos[i].get("TimeLimit.truncated", False)
                terminated[i] = not truncated[i]
        self._waiting += 1
        if self._waiting == self._max_waiting:
            self._store_waiting()

    # ------------------------------------------------------------ sampling

    def sample(self, batch_size: int, env: vec_env.VecNormalize | None = None) -> Any:
        """Draw transitions.

        Args:
            batch_size: how many.
            env: normalises observations and rewards.

        Returns:
            `ReplayBufferSamples`, or `DictReplayBufferSamples`, of tensors (batch_size, ...).

        Raises:
            ValueError: the buffer is empty, or n-step sums would be of rewards not yet normalised.
        """
        batch = self.buffer.sample(batch_size)
        kind: Any = ReplayBufferSamples
        if isinstance(self.observation_space, spaces.Dict):
            kind = DictReplayBufferSamples
        return kind(*self._tensors(batch, env))

    def _tensors(self, batch: Any, env: vec_env.VecNormalize | None) -> tuple[Any, ...]:
        """Return the six fields of `ReplayBufferSamples`."""
        data = batch.data
        observations, next_observations = data["observation"], data["next_observation"]
        rewards, discounts = data["reward"].reshape(-1, 1), batch.discounts
        if env is not None:
            if self.n_steps > 1 and env.norm_reward:
                raise ValueError(
                    f"n_steps={self.n_steps}: the sums are of rewards as they came, expected "
                    "VecNormalize(norm_reward=False)"
                )
            observations = env.normalize_obs(observations)
            next_observations = env.normalize_obs(next_observations)
            rewards = env.normalize_reward(rewards).astype(np.float32)
        return (
            self._on_device(observations),
            self._on_device(data["action"]),
            self._on_device(next_observations),
            self._on_device(data["terminated"].astype(np.float32).reshape(-1, 1)),
            self._on_device(rewards),
            None if discounts is None else self._on_device(discounts.reshape(-1, 1)),
        )

    def _on_device(self, array: Any) -> Any:
        """Return a tensor; on the CPU it shares the array's memory."""
        if isinstance(array, dict):
            return {name: self._on_device(part) for name, part in array.items()}
        return torch.from_numpy(array).to(self.device)

    # ------------------------------------------------------------ what there is, and files

    @property
    def pos(self) -> int:
        """Step of each environment that is written next."""
        slot: int = self.buffer._ring.slot
        return slot if self.buffer.num_envs else slot // self.n_envs

    @property
    def full(self) -> bool:
        """Tell whether old transitions make room for new ones."""
        return self.size() == self.buffer_size

    def size(self) -> int:
        """Return how many steps of each environment are held."""
        return len(self.buffer) // self.n_envs

    def reset(self) -> None:
        """Forget all transitions."""
        self._buffer, self._waiting = self._make(), 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the transitions to a folder, or what has changed since: see `Buffer.save`."""
        self.buffer.save(path)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Read a folder of `save`, which may be anybody's; no code of it is run.

        Raises:
            FileNotFoundError: there is nothing.
            ValueError: it is damaged, or of a buffer of another kind, size or structure.
        """
        buffer = type(self._buffer).load(path)
        for name in ("settings", "structure"):
            saved, present = buffer.describe()[name], self._buffer.describe()[name]
            if saved != present:
                raise ValueError(f"{os.fspath(path)}: has {name} {saved}, expected {present}")
        self._buffer, self._waiting = buffer, 0


class PrioritizedReplayBuffer(ReplayBuffer):
    """A `rlcpu.replay.PrioritizedReplayBuffer`, for `rlcpu.adapters.sb3.DQN`.

    The arguments are those of `ReplayBuffer`, and these:

    Args:
        alpha: 0 draws uniformly, 1 in proportion to the priority.
        beta: 0 to 1, how much of the bias importance weights correct when learning begins.
        final_beta: the same when it ends; it changes linearly (Schaul et al. 2016).
        epsilon: added to each priority.
    """

    def __init__(
        self,
        *args: Any,
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float = 1.0,
        epsilon: float = 1e-6,
        **options: Any,
    ) -> None:
        self.alpha, self.epsilon = alpha, epsilon
        self.beta = check_number("beta", beta, 0.0, 1.0)
        self.final_beta = check_number("final_beta", final_beta, 0.0, 1.0)
        super().__init__(*args, **options)

    def _make(self) -> Any:
        options: dict[str, Any] = {"alpha": self.alpha, "beta": self.beta, "epsilon": self.epsilon}
        options |= self._options()
        return replay.PrioritizedReplayBuffer(self._capacity, self._example(), **options)

    def sample(
        self, batch_size: int, env: vec_env.VecNormalize | None = None, progress: float = 0.0
    ) -> PrioritizedSamples:
        """Draw transitions by priority; `progress` is the share of learning that is done."""
        beta = self.beta + (self.final_beta - self.beta) * min(max(progress, 0.0), 1.0)
        batch = self.buffer.sample(batch_size, beta=beta)
        weights = self._on_device(batch.weights.reshape(-1, 1))
        fields = (*self._tensors(batch, env), weights, batch.indices)
        return PrioritizedSamples._make(fields)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give transitions new priorities, (batch_size,) sizes of temporal differences."""
        self.buffer.update_priorities(indices, priorities)


class ReturnWeightedReplayBuffer(ReplayBuffer):
    """A `rlcpu.replay.ReturnWeightedBuffer`: drawn in proportion to the return of their episode.

    While an episode runs, its transitions have the mean return of the last 100 episodes. An episode
    that a reset cut off goes on in the next one: `learn(reset_num_timesteps=False)` resets nothing.
    None is drawn twice in a batch: it is smaller while the buffer holds less, and where fewer have
    a weight, the others fill it up, all as likely. The arguments are those of `ReplayBuffer`,
    without `n_steps`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.n_steps != 1:
            raise ValueError(f"n_steps={self.n_steps}: expected 1, draws are of single transitions")

    def _make(self) -> Any:
        """Return a new buffer, and begin to count episodes anew."""
        self._recent: deque[float] = deque(maxlen=100)  # returns of the last episodes
        self._mean_return = 0.0
        self._count = 0  # steps of each environment so far
        self._totals = np.zeros(self.n_envs)  # returns of running episodes so far
        self._begins = np.zeros(self.n_envs, np.int64)  # steps at which these began
        options: dict[str, Any] = {"derive_next": self.derive_next, "seed": self.seed}
        options["fill_up"] = True  # stable-baselines3 does not ask whether there are enough
        return replay.ReturnWeightedBuffer(self._capacity, self._example(), **options)

    def sample(self, batch_size: int, env: vec_env.VecNormalize | None = None) -> Any:
        """Draw a batch; see `ReplayBuffer.sample`."""
        return super().sample(min(batch_size, max(len(self.buffer), 1)), env)

    def _store(self, steps: dict[str, Any]) -> None:
        """Add steps with the mean return as their value, then set that of ended episodes' steps.

        The value of an episode's steps becomes its return when it ends.
        """
        ended, rewards = steps["terminated"] | steps["truncated"], steps["reward"]
        values = np.empty(rewards.shape)
        episodes = []
        for t in range(len(rewards)):
            values[t] = self._mean_return
            self._count += 1
            self._totals += rewards[t]
            for i in np.flatnonzero(ended[t]):
                episodes.append((i, self._begins[i], self._count, self._totals[i]))
                self._recent.append(float(self._totals[i]))
                self._mean_return = float(np.mean(self._recent))
                self._totals[i], self._begins[i] = 0.0, self._count
        flat = _map(steps, lambda array: array.reshape(-1, *array.shape[2:]))
        self._buffer.add(flat, values.ravel())
        for i, begin, end, total in episodes:
            present = np.arange(max(begin, self._count - self.buffer_size), end)
            self._buffer.update_values((present * self.n_envs + i) % self._capacity, total)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take over a saved buffer; see `ReplayBuffer.restore`. The next step begins an episode."""
        super().restore(path)
        self._count = self._buffer._ring.added // self.n_envs
        self._begins[:], self._totals[:] = self._count, 0.0


def _map(data: Any, function: Any) -> Any:
    """Return a function of every array in nested dicts."""
    if isinstance(data, dict):
        return {name: _map(part, function) for name, part in data.items()}
    return function(data)


def _put(steps: Any, t: int, value: Any) -> None:
    """Write a step of every environment; a choice comes without its axis of one number."""
    if isinstance(steps, dict):
        for name, part in steps.items():
            _put(part, t, value[name])
    else:
        steps[t] = np.reshape(value, steps.shape[1:])
