"""PPO's update, slow and obvious, in float64 NumPy."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.policies import MLP

from .cases import Batch

Array = npt.NDArray[Any]


class Case(NamedTuple):
    """A policy in float64 and the settings of its loss."""

    policy: MLP
    clip: float
    entropy_coefficient: float
    value_coefficient: float
    choices: tuple[int, ...] = ()


def parameter_arrays(policy: MLP) -> list[Array]:
    """Copies in float64 of what is learnt: log_std, policy parameters, value parameters."""
    arrays = [policy.log_std, policy.parameters]
    if policy.value == "separate":
        arrays.append(policy.value_parameters)
    return [array.astype(np.float64) for array in arrays]


def run_network(
    sizes: Array, parameters: Array, activation: str, inputs: Array, layer_norm: bool = False
) -> Array:
    hidden, begin = inputs, 0
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        end = begin + fan_in * fan_out
        weights = parameters[begin:end].reshape(fan_in, fan_out)
        hidden = hidden @ weights + parameters[end : end + fan_out]
        begin = end + fan_out
        if layer < len(sizes) - 2 and layer_norm:
            gains, shifts = parameters[begin : begin + 2 * fan_out].reshape(2, -1)
            begin += 2 * fan_out
            mean, variance = hidden.mean(axis=1), hidden.var(axis=1)
            hidden = ((hidden.T - mean) / np.sqrt(variance + 1e-5)).T * gains + shifts
        if layer < len(sizes) - 2:
            hidden = np.tanh(hidden) if activation == "tanh" else np.maximum(hidden, 0.0)
    return hidden


def log_prob_and_entropy(
    heads: Array, log_std: Array, batch: Batch, choices: tuple[int, ...] = ()
) -> tuple[Array, Array]:
    actions = batch.actions
    if choices:
        parts = np.split(heads, np.cumsum(choices)[:-1], axis=1)
        each = [
            log_prob_and_entropy(part, log_std, batch._replace(actions=taken))
            for part, taken in zip(parts, actions.T, strict=True)
        ]
        return sum(x for x, _ in each), sum(x for _, x in each)
    if log_std.size == 0:
        if batch.masks is not None:
            heads = np.where(batch.masks, heads, -np.inf)
        log_probs = heads - np.log(np.exp(heads).sum(axis=1, keepdims=True))
        taken = log_probs[np.arange(len(actions)), actions]
        return taken, -(np.exp(log_probs) * np.maximum(log_probs, -1e9)).sum(axis=1)
    z = (actions.reshape(heads.shape) - heads) / np.exp(log_std)
    density = -0.5 * z**2 - log_std - 0.5 * np.log(2.0 * np.pi)
    entropy = 0.5 + 0.5 * np.log(2.0 * np.pi) + log_std
    return density.sum(axis=1), np.full(len(heads), entropy.sum())


def normalised(advantages: Array) -> Array:
    values = advantages.astype(np.float64)
    return (values - values.mean()) / (values.std(ddof=1) + 1e-8)


def loss(case: Case, arrays: list[Array], batch: Batch) -> float:
    """The loss of a whole batch as one minibatch with normalised advantages."""
    policy = case.policy
    inputs = (batch.observations - policy.observation_mean) * policy.observation_scale
    inputs = np.clip(inputs, -policy.observation_limit, policy.observation_limit).astype(np.float64)
    outputs = run_network(policy.sizes, arrays[1], policy.activation, inputs)
    if policy.value == "shared":
        heads, values = outputs[:, :-1], outputs[:, -1]
    else:
        heads = outputs
        values = run_network(policy.value_sizes, arrays[2], policy.activation, inputs)[:, 0]
    log_probs, entropy = log_prob_and_entropy(heads, arrays[0], batch, case.choices)
    ratio = np.exp(log_probs - batch.log_probs)
    gain = normalised(batch.advantages)
    bounded = np.clip(ratio, 1.0 - case.clip, 1.0 + case.clip)
    surrogate = -np.minimum(ratio * gain, bounded * gain).mean()
    error = ((values - batch.targets) ** 2).mean()
    return surrogate - case.entropy_coefficient * entropy.mean() + case.value_coefficient * error


def gradient(case: Case, batch: Batch, step: float = 1e-6) -> list[Array]:
    """Central finite differences of the loss by every parameter."""
    arrays = parameter_arrays(case.policy)
    slopes = [np.zeros_like(array) for array in arrays]
    for array, slope in zip(arrays, slopes, strict=True):
        for i in range(array.size):
            value = array[i]
            array[i] = value + step
            above = loss(case, arrays, batch)
            array[i] = value - step
            below = loss(case, arrays, batch)
            array[i] = value
            slope[i] = (above - below) / (2.0 * step)
    return slopes
