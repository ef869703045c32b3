"""PyTorch: batches and rollouts as tensors, policies as modules, all over the same memory.

Importing this module imports torch, the extra `torch`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rlcpu.envs.acting.networks import MLP as MLP  # of an example
from rlcpu.envs.acting.networks import NetworkPolicy
from rlcpu.envs.rollout.results import Rollout
from rlcpu.nn.export.program import Statement, statements_of
from rlcpu.nn.layers.norm import NORM_EPSILON
from rlcpu.nn.network.graph import Network
from rlcpu.nn.network.scaling import USUAL_LIMIT
from rlcpu.replay.items import Batch

Tensor = Any  # torch.Tensor


class TensorBatch(NamedTuple):
    """Transitions that a buffer's `sample` returned, as tensors; see `rlcpu.replay.Batch`.

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
    """T steps of N environments from `rlcpu.collect`, as tensors; see `rlcpu.Rollout`.

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
    """Return arrays as tensors that share their memory, in the containers that they came in.

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
    """A policy as a module; `to_torch` makes it.

    Attributes:
        policy: the policy network, a `torch.nn.Sequential` unless its layers are joined otherwise;
            its last output is the value if the policy's value is "shared".
        value: the value network if it is a separate one, else None.
        log_std: (action_size,) parameter, logarithms of a Gaussian's standard deviations, see
            `MLP`; those of an agent that learns off-policy, if any, are among the outputs.
        shape, kind: the policy's observation shape, and its `value`: "shared", "separate" or None.
        head: the policy's, which says what outputs mean: choices, or numbers and their bounds.
        observation_mean, observation_scale, observation_limit: (observation_size,) and () buffers.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.shape, self.kind = policy.observation_shape, getattr(policy, "value", None)
        self.head = policy.head
        for name in ("parameters", "value_parameters"):
            if hasattr(policy, name):
                _share_memory(policy, name)  # the networks' tensors are views of this memory
        networks = {name: _module(name, each) for name, each in policy.networks().items()}
        self.policy, self.value = networks["policy"], networks.get("value")
        if isinstance(policy, NetworkPolicy):
            self.log_std = nn.Parameter(_share_memory(policy, "log_std"))
        for name in ("observation_mean", "observation_scale", "observation_limit"):
            self.register_buffer(name, _share_memory(policy, name))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the outputs of the policy, and the values.

        Args:
            observations: (..., *observation_shape), as environments give them.

        Returns:
            Logits (..., num_actions) or means (..., action_size) of PPO, with `scale_actions` those
            that are scaled to actions. Of DQN and PQN values of the actions, and behind them a
            network's other outputs, as QR-DQN's quantiles; of SAC means, then logarithms of
            deviations, both in front of tanh; of TD3 and DDPG actions in front of tanh. Beside it
            values (...,), or None without a value head.
        """
        inputs = (self._inputs(observations) - self.observation_mean) * self.observation_scale
        inputs = inputs.clamp(-self.observation_limit, self.observation_limit)
        outputs = self.policy(inputs)
        if self.kind == "shared":
            return outputs[..., :-1], outputs[..., -1]
        return outputs, None if self.value is None else self.value(inputs)[..., 0]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Read a `state_dict`; one that was saved before policies had limits has the usual one."""
        state_dict.setdefault(f"{prefix}observation_limit", torch.tensor(USUAL_LIMIT))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def act(self, observations: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the most likely actions, as an agent's `predict` does.

        For environments of Gymnasium they are those of rollouts, choices from 0 on.

        Args:
            observations: (..., *observation_shape), as environments give them.
            allowed: (..., num_actions) bool, which actions are allowed; None where all are.

        Returns:
            Actions (...,) or (..., action_size), within their bounds; NaN, or choices -1, where an
            output is NaN.
        """
        head, outputs = self.head, self(observations)[0][..., : self.head.size]
        if head.choices:  # sizes of groups of outputs, each of which chooses one number
            is_nan = outputs.isnan().any(dim=-1, keepdim=True)
            outputs = outputs if allowed is None else outputs.masked_fill(~allowed, -math.inf)
            groups = outputs.split(head.choices, dim=-1)
            chosen = torch.stack([group.argmax(dim=-1) for group in groups], dim=-1)
            chosen = chosen.masked_fill(is_nan, -1)
            return chosen if head.is_list else chosen[..., 0]
        bounds = head.center, head.half, head.low, head.high
        center, half, low, high = (torch.from_numpy(x).to(outputs) for x in bounds)
        x = outputs.tanh() if head.is_squashed else outputs
        return (center + half * x).clamp(low, high)

    def _inputs(self, observations: Tensor) -> Tensor:
        """Return observations (..., observation_size) float32; of a choice zeros and one one."""
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


def to_torch(policy: Any) -> ActorCritic:
    """Return a policy as a module whose parameters are the policy's own memory.

    A step of an optimiser changes the policy: `collect` and `simulate` act with the new weights at
    once, and nothing is copied. `module.to(...)` and `copy.deepcopy(module)` make a module of its
    own. A network of torch gets in by `load_state_dict` of the parts, or by `MLP.from_torch`.

    Args:
        policy: one of networks, such as an `MLP` or the `policy` of any agent. Arrays of another
            dtype than float32 are replaced by such.

    Returns:
        The module, on the CPU.

    Raises:
        TypeError: another policy.
        ValueError: an attribute was replaced by an array of another size, or torch has no module
            for a layer.

    Example:
        >>> from gymnasium.spaces import Box, Discrete
        >>> policy = MLP(Box(-1.0, 1.0, (3,)), Discrete(2))
        >>> module = to_torch(policy)
        >>> with torch.no_grad():
        ...     _ = module.policy[0].weight.fill_(0.5)
        >>> policy.parameters[:3]
        array([0.5, 0.5, 0.5], dtype=float32)
    """
    if not (hasattr(policy, "networks") and hasattr(policy, "head")):
        raise TypeError(f"policy={policy!r}: expected one of networks, such as agent.policy")
    return ActorCritic(policy)


def _share_memory(policy: Any, name: str) -> Tensor:
    """Return an array of the policy as a tensor over it, made fit for that if it was not."""
    array = np.require(getattr(policy, name), np.float32, ("C", "W"))
    if array is not getattr(policy, name):
        setattr(policy, name, array)
    return torch.from_numpy(array)


# ---------------------------------------------------------------- networks


class Layers(nn.Module):
    """Layers that are joined in another way than one after the other.

    Args:
        statements: of a network, see `rlcpu.nn.export.program`.
        layers: a module for each.
    """

    def __init__(self, statements: list[Statement], layers: list[nn.Module]) -> None:
        super().__init__()
        self.sources = [each.sources for each in statements]
        self.layers = nn.ModuleList(layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the last layer."""
        values = [inputs]
        for sources, layer in zip(self.sources, self.layers, strict=True):
            values.append(layer(*(values[k] for k in sources)))
        return values[-1]


class Choices(nn.Module):
    """The sum of a row of weights for each choice; see `rlcpu.nn.Embedding`."""

    def __init__(self, weights: Tensor, choices: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.choices = nn.Parameter(weights), choices
        self.register_buffer("offsets", torch.arange(inputs) * choices)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (..., size) for (..., inputs); a number that is no choice counts as 0.

        NaN makes NaN: the difference of a number and itself, NaN or 0, is added.
        """
        is_choice = (inputs >= 0) & (inputs < self.choices)
        rows = torch.where(is_choice, inputs, 0.0).long() + self.offsets
        return self.weight[rows].sum(dim=-2) + (inputs - inputs).sum(dim=-1, keepdim=True)


class Joined(nn.Module):
    """Join the outputs of several layers, one after the other, or add them."""

    def __init__(self, is_sum: bool) -> None:
        super().__init__()
        self.is_sum = is_sum

    def forward(self, *parts: Tensor) -> Tensor:
        """Return the sum of parts (..., size), or (..., all of their sizes)."""
        return sum(parts) if self.is_sum else torch.cat(parts, dim=-1)


def _linear(statement: Statement, weights: Tensor, biases: Tensor) -> nn.Module:
    layer = nn.Linear(*weights.shape, device="meta")  # without memory of its own
    layer.weight, layer.bias = nn.Parameter(weights.T), nn.Parameter(biases)
    return layer


class OfImages(nn.Module):
    """A layer of torch on images whose channels come last, in rows; see `rlcpu.nn.Convolution`."""

    def __init__(self, shape: tuple[int, int, int], layer: nn.Module) -> None:
        super().__init__()
        self.shape, self.layer = shape, layer

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (..., numbers of the new image) for (..., height * width * channels)."""
        images = inputs.reshape(-1, *self.shape).permute(0, 3, 1, 2)
        outputs = self.layer(images).permute(0, 2, 3, 1)
        return outputs.reshape(*inputs.shape[:-1], -1)


class ChannelsLast(nn.Module):
    """Planes, one after the other, turned into an image whose channels come last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, inputs: Tensor) -> Tensor:
        """Return numbers (..., n) in another order."""
        planes = inputs.unflatten(-1, (self.channels, -1))
        return planes.transpose(-1, -2).flatten(-2)


class NormOfGroups(nn.LayerNorm):
    """`torch.nn.LayerNorm` of each group of numbers, such as channels of a pixel."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (..., n) for (..., n)."""
        return super().forward(inputs.unflatten(-1, (-1, *self.normalized_shape))).flatten(-2)


class Dueling(nn.Module):
    """Values of advantages and state values; see `rlcpu.nn.Dueling`."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (..., actions * streams) for (..., actions * streams + streams)."""
        numbers = inputs.unflatten(-1, (-1, self.streams))
        advantages, value = numbers[..., :-1, :], numbers[..., -1:, :]
        return (value + advantages - advantages.mean(dim=-2, keepdim=True)).flatten(-2)


class Means(nn.Module):
    """Means of groups of numbers; see `rlcpu.nn.Means`."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count  # numbers of a group

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (..., groups) for (..., groups * count)."""
        return inputs.unflatten(-1, (-1, self.count)).mean(dim=-1)


def _layer_norm(statement: Statement, gains: Tensor, shifts: Tensor) -> nn.Module:
    kind = nn.LayerNorm if len(gains) == statement.size else NormOfGroups
    layer = kind(len(gains), eps=NORM_EPSILON, device="meta")
    layer.weight, layer.bias = nn.Parameter(gains), nn.Parameter(shifts)
    return layer


def _of_images(statement: Statement, kind: Any, *channels: int, **more: Any) -> OfImages:
    """Return a layer of torch of a kind, on images of the sizes in `options` of a statement.

    `channels` are a convolution's, of its inputs and outputs; none for other kinds.
    """
    sizes = statement.options
    layer = kind(*channels, sizes["window"], sizes["stride"], sizes["padding"], **more)
    return OfImages((sizes["height"], sizes["width"], sizes["channels"]), layer)


def _convolution(statement: Statement, weights: Tensor, biases: Tensor) -> nn.Module:
    window, channels = statement.options["window"], statement.options["channels"]
    module = _of_images(statement, nn.Conv2d, channels, len(biases), device="meta")
    rows = weights.reshape(window, window, channels, len(biases))
    module.layer.weight = nn.Parameter(rows.permute(3, 2, 0, 1))
    module.layer.bias = nn.Parameter(biases)
    return module


#: Modules of operations: (statement, arrays...) -> a module.
_MODULES: dict[str, Callable[..., nn.Module]] = {
    "add": lambda _: Joined(is_sum=True),
    "channels_last": lambda statement: ChannelsLast(**statement.options),
    "concatenate": lambda _: Joined(is_sum=False),
    "convolution": _convolution,
    "dense": _linear,
    "dueling": lambda statement: Dueling(**statement.options),
    "elu": lambda _: nn.ELU(),
    "embedding": lambda statement, weights: Choices(weights, **statement.options),
    "layer_norm": _layer_norm,
    "max_pool": lambda statement: _of_images(statement, nn.MaxPool2d),
    "means": lambda statement: Means(**statement.options),
    "relu": lambda _: nn.ReLU(),
    "silu": lambda _: nn.SiLU(),
    "tanh": lambda _: nn.Tanh(),
}


def _module(name: str, network: Network) -> nn.Module:
    """Return a network as a module over its own parameters.

    A statement is one layer: `operation` is its name, `arrays` are the names of its parameters,
    and `sources` the numbers of the values that it reads: 0 is the input, k the result of
    statement k - 1. `plan.flat` counts all parameters.
    """
    plan, flat = network.plan, network.parameters
    if flat.shape != (plan.flat,):
        raise ValueError(f"parameters of the {name} have shape {flat.shape}: expected {plan.flat}")
    arrays = {key: torch.from_numpy(view) for key, view in network.arrays().items()}
    statements, layers = statements_of(plan), []
    for each in statements:
        if each.operation not in _MODULES:
            raise ValueError(f"the layer {each.operation!r} cannot be a module of torch")
        layers.append(_MODULES[each.operation](each, *(arrays[key] for key in each.arrays)))
    is_chain = all(each.sources == [k] for k, each in enumerate(statements))
    return nn.Sequential(*layers) if is_chain else Layers(statements, layers)
