"""PyTorch: batches and rollouts as tensors, policies as modules, all over the same memory.

Importing this module imports torch, the extra `torch`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rlcpu.envs.networks import MLP
from rlcpu.envs.results import Rollout
from rlcpu.nn.network import CLIP
from rlcpu.replay.items import Batch

Tensor = Any  # torch.Tensor
_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


class TensorBatch(NamedTuple):
    """What a buffer's `sample` returned, see `rlcpu.replay.Batch`.

    Attributes:
        data: structured like the buffer's example, of tensors (batch_size, *shape), or
            (sequence_length, batch_size, *shape).
        indices: (batch_size,) int64, for `update_priorities`.
        weights: (batch_size,) float32, importance weights; None if all are alike.
        discounts: (batch_size,) float32, of what follows an n-step return; None if there is none.
    """

    data: Any
    indices: Tensor
    weights: Tensor | None
    discounts: Tensor | None


class TensorRollout(NamedTuple):
    """What `rlcpu.collect` returned: T steps of N environments, see `rlcpu.Rollout`.

    Attributes:
        observations: (T, N, ...).
        actions: (T, N) int64, or (T, N, action_size) float32.
        log_probs, values, rewards: (T, N).
        terminated, truncated: (T, N) bool.
        final_values: (T, N) float32, of what truncated episodes led to, else 0.
        last_observations: (N, ...).
        last_values: (N,) float32.
    """

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    final_values: Tensor
    last_observations: Tensor
    last_values: Tensor


def as_tensors(data: Any) -> Any:
    """Arrays as tensors that share their memory, in the containers that they came in.

    What is written to one is seen in the other: `collect(out=rollout)` and `sample(out=batch)`
    overwrite tensors too.

    Args:
        data: a `Batch` becomes a `TensorBatch`, a `Rollout` a `TensorRollout`; an array a tensor;
            of dicts, tuples, NamedTuples, lists and dataclasses every item is taken. Arrays on a
            CUDA device become tensors there.

    Returns:
        The same with tensors.

    Raises:
        TypeError: something else, or an array of a dtype that torch does not have.

    Example:
        >>> array = np.zeros(3, np.float32)
        >>> as_tensors({"reward": array})["reward"][0] = 5
        >>> array
        array([5., 0., 0.], dtype=float32)
    """
    if isinstance(data, Batch):
        fields = (data.data, data.indices, data.weights, data.discounts)
        return TensorBatch._make(None if each is None else as_tensors(each) for each in fields)
    if isinstance(data, Rollout):
        return TensorRollout._make(as_tensors(getattr(data, n)) for n in TensorRollout._fields)
    if isinstance(data, np.ndarray):
        return torch.from_numpy(data)
    if isinstance(data, dict):
        return {name: as_tensors(each) for name, each in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(as_tensors, data))
    if isinstance(data, tuple | list):
        return type(data)(map(as_tensors, data))
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        names = [field.name for field in dataclasses.fields(data)]
        return dataclasses.replace(data, **{n: as_tensors(getattr(data, n)) for n in names})
    if hasattr(data, "__dlpack__"):
        return torch.from_dlpack(data)
    raise TypeError(f"data={data!r}: expected a Batch, a Rollout, or containers of arrays")


class ActorCritic(nn.Module):
    """An `MLP` policy as a module; `to_torch` makes it.

    Attributes:
        policy: `torch.nn.Sequential`, the policy network; its last output is the value if the
            policy's value is "shared".
        value: `torch.nn.Sequential`, the value network if it is a separate one, else None.
        log_std: (action_size,) parameter, logarithms of a Gaussian's standard deviations.
        observation_mean, observation_scale: (observation_size,) buffers.
    """

    def __init__(self, policy: MLP) -> None:
        super().__init__()
        if policy.activation not in _ACTIVATIONS:
            raise ValueError(f"activation={policy.activation!r}: expected one of {_ACTIVATIONS}")
        self.shape, self.kind = policy.observation_shape, policy.value
        has_value = policy.value == "separate"
        self.policy = _sequential(policy, "parameters", policy.sizes)
        self.value = (
            _sequential(policy, "value_parameters", policy.value_sizes) if has_value else None
        )
        self.log_std = nn.Parameter(_shared(policy, "log_std"))
        for name in ("observation_mean", "observation_scale"):
            self.register_buffer(name, _shared(policy, name))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits or means, and values.

        Args:
            observations: (..., *observation_shape), as environments give them.

        Returns:
            Logits (..., num_actions) or means (..., action_size), and values (...,), or None
            without a value head.
        """
        inputs = (self._inputs(observations) - self.observation_mean) * self.observation_scale
        inputs = inputs.clamp(-CLIP, CLIP)
        outputs = self.policy(inputs)
        if self.kind == "shared":
            return outputs[..., :-1], outputs[..., -1]
        return outputs, None if self.value is None else self.value(inputs)[..., 0]

    def _inputs(self, observations: Tensor) -> Tensor:
        """(..., observation_size) float32; of a choice zeros and one one."""
        size = len(self.observation_mean)
        if not self.shape:
            return nn.functional.one_hot(observations.long(), size).float()
        lead = observations.shape[: observations.ndim - len(self.shape)]
        if observations.shape[len(lead) :] != self.shape or math.prod(self.shape) != size:
            raise ValueError(
                f"observations have shape {tuple(observations.shape)}: expected (..., "
                f"{', '.join(map(str, self.shape))})"
            )
        return observations.float().reshape(*lead, size)


def to_torch(policy: MLP) -> ActorCritic:
    """Return a policy as a module whose parameters are the policy's own memory.

    A step of an optimiser changes the policy: `collect` and `simulate` act with the new weights at
    once, and nothing is copied. `module.to(...)` and `copy.deepcopy(module)` make a module of its
    own. A network of torch gets in by `load_state_dict` of the parts, or by `MLP.from_torch`.

    Args:
        policy: an `MLP` or `Linear`. Arrays of another dtype than float32 are replaced by such.

    Returns:
        The module, on the CPU.

    Raises:
        TypeError, ValueError: another policy, or an attribute replaced by an array of another size.

    Example:
        >>> from gymnasium.spaces import Box, Discrete
        >>> policy = MLP(Box(-1.0, 1.0, (3,)), Discrete(2))
        >>> module = to_torch(policy)
        >>> with torch.no_grad():
        ...     _ = module.policy[0].weight.fill_(0.5)
        >>> policy.parameters[:3]
        array([0.5, 0.5, 0.5], dtype=float32)
    """
    if not isinstance(policy, MLP):
        raise TypeError(f"policy={policy!r}: expected an MLP or Linear")
    return ActorCritic(policy)


def _shared(policy: MLP, name: str) -> Tensor:
    """Return an array of the policy as a tensor over its memory."""
    array = np.require(getattr(policy, name), np.float32, ("C", "W"))
    if array is not getattr(policy, name):
        setattr(policy, name, array)
    return torch.from_numpy(array)


def _sequential(policy: MLP, name: str, sizes: Any) -> nn.Sequential:
    """Return a network over flat parameters.

    Layers in order, weights (inputs, outputs), then biases.
    """
    flat = _shared(policy, name)
    pairs = list(itertools.pairwise(sizes.tolist()))
    if flat.shape != (sum((inputs + 1) * outputs for inputs, outputs in pairs),):
        raise ValueError(f"policy.{name} has shape {tuple(flat.shape)}: does not fit {sizes}")
    layers: list[nn.Module] = []
    begin = 0
    for inputs, outputs in pairs:
        middle, end = begin + inputs * outputs, begin + (inputs + 1) * outputs
        layer = nn.Linear(inputs, outputs, device="meta")  # without memory of its own
        layer.weight = nn.Parameter(flat[begin:middle].view(inputs, outputs).T)
        layer.bias = nn.Parameter(flat[middle:end])
        layers += [layer, _ACTIVATIONS[policy.activation]()]
        begin = end
    return nn.Sequential(*layers[:-1])
