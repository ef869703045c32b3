"""How a policy chooses the action of one simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.envs.policies import PolicyCode
from rlcpu.kernels.compile import define, inline, source_of_tuple, specialise
from rlcpu.kernels.mlp import TANH, hyperbolic_tangent
from rlcpu.kernels.random import mix, uniforms
from rlcpu.nn.heads import gaussian
from rlcpu.nn.network import CLIP

single, u32 = np.float32, np.uint32
_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

tanh = specialise(hyperbolic_tangent, np.float32)


@inline
def add_scaled(target, row, by):
    """Add a multiple of a row."""
    for k in range(target.size):
        target[k] += row[k] * by


@inline
def activate(row, activation):
    """The hidden layers' activation, in place."""
    if activation == TANH:
        for k in range(row.size):
            row[k] = tanh(row[k])
    else:
        for k in range(row.size):
            row[k] = max(row[k], single(0))


@inline
def forward_one(parameters, sizes, activation, cells):
    """All layers for one input; see `rlcpu.kernels.mlp.make_forward`, with one lane."""
    weights = inputs = outputs = 0
    layers = sizes.size - 1
    for layer in range(layers):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        biases, outputs = weights + fan_in * fan_out, inputs + fan_in
        target = cells[outputs : outputs + fan_out]
        target[:] = parameters[biases : biases + fan_out]
        for k in range(fan_in):
            begin = weights + k * fan_out
            add_scaled(target, parameters[begin : begin + fan_out], cells[inputs + k])
        if layer < layers - 1:
            activate(target, activation)
        weights, inputs = biases + fan_out, outputs
    return outputs


def make_choose(env: Any, policy: PolicyCode | None) -> tuple[Any, Any]:
    """Two inlinable functions.

    Returns:
        (constants) -> scratch, and (i, step, record, arrays, constants, scratch) -> 0, or NaN where
        the policy returned a number that is not finite; the action within the bounds is in
        `applied`, and all that is recorded in its place, if `record` holds.
    """
    if policy is None:
        return _no_scratch, _no_choice
    size = env.action_size
    draws = uniforms(policy.draws, 0, np.float32)
    scratch, decide = _by_function(env, policy) if policy.act else _by_network(env, policy)
    low = "".join(
        f"\n    applied[{k}] = min(max(action[{k}], bounds[0, {k}]), bounds[1, {k}])"
        f"\n    fault += single(action[{k}]) * nothing"
        for k in range(size)
    )
    source = f"def act(action, applied, bounds):\n    fault = nothing{low}\n    return fault"
    act = inline(define(source, single=single, nothing=single(0)))
    lines = "".join(f"\n    row[{k}] = action[{k}]" for k in range(size))
    keep = inline(define(f"def keep(row, action):{lines}"))

    @inline
    def choose(i, step, record, arrays, constants, scratch):
        key, counter = arrays.streams[i, 0], u32(arrays.streams[i, 2])
        a, b = mix(u32(key & _MASK), u32(key >> _HALF), counter)
        action, log_prob, value = decide(arrays.observation[i], constants, draws(a, b), scratch)
        fault = act(action, arrays.applied[i], arrays.bounds)
        fault += (single(log_prob) + single(value)) * single(0)
        if record:
            keep(arrays.actions[step, i], action)
            arrays.log_probs[step, i] = log_prob
            arrays.values[step, i] = value
        return np.float64(fault)

    return scratch, choose


@inline
def _no_scratch(constants):
    return constants.weights


@inline
def _no_choice(i, step, record, arrays, constants, scratch):
    return 0.0


def _by_function(env: Any, policy: PolicyCode) -> tuple[Any, Any]:
    assert policy.act is not None
    act: Any = specialise(policy.act, np.float32)
    items = "".join(f"weights[{k}], " for k in range(policy.num_params))
    made = f"Params({items})" if policy.params_type else f"({items})"
    unpack = inline(define(f"def unpack(weights): return {made}", Params=policy.params_type))
    observed = source_of_tuple(f"single(row[{k}])" for k in range(env.observation_size))
    load = inline(define(f"def load(row): return {observed}", single=single))

    @inline
    def decide(observation, constants, drawn, scratch):
        return act(load(observation), unpack(constants.weights), drawn)

    return _no_scratch, decide


def _by_network(env: Any, policy: PolicyCode) -> tuple[Any, Any]:
    size, inputs = env.action_size, env.observation_size
    act: Any = specialise(gaussian.act(size), np.float32)  # type: ignore[misc]
    source = source_of_tuple(f"cells[first + {k}]" for k in range(size))
    load = inline(define(f"def load(cells, first): return {source}"))
    separate, shared = policy.value == "separate", policy.value == "shared"
    low, high = single(-CLIP), single(CLIP)

    @inline
    def scratch(constants):
        return np.empty(constants.sizes.sum() + constants.value_sizes.sum() + 1, np.float32)

    @inline
    def normalise(observation, mean, scale, cells):
        for k in range(inputs):
            seen = (single(observation[k]) - mean[k]) * scale[k]
            cells[k] = min(max(seen, low), high)

    @inline
    def decide(observation, constants, drawn, cells):
        normalise(observation, constants.mean, constants.scale, cells)
        activation, value = constants.settings[0], single(0)
        first = forward_one(constants.weights, constants.sizes, activation, cells)
        if shared:
            value = cells[first + size]
        if separate:
            critic = cells[constants.sizes.sum() :]
            critic[:inputs] = cells[:inputs]
            place = forward_one(constants.value_weights, constants.value_sizes, activation, critic)
            value = critic[place]
        log_stds = load(constants.log_std, 0)
        action, log_prob = act(load(cells, first), drawn, log_stds, constants.settings[1] != 0)
        return action, log_prob, value

    return scratch, decide
