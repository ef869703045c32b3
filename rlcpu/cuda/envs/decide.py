"""How a policy chooses the action of one environment inside a fused rollout."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.cuda.envs import networks
from rlcpu.cuda.envs.lane import load_items
from rlcpu.envs.lane import Structure
from rlcpu.envs.policies import PolicyArrays, PolicyCode
from rlcpu.kernels.compile import define, specialise
from rlcpu.kernels.random import uniforms
from rlcpu.nn.heads import categorical, gaussian


class Network(NamedTuple):
    """What of a network decides machine code.

    Attributes:
        sizes, value_sizes: layers of the policy's network, and of the value's if it has one.
        activation: code of the hidden layers' activation.
    """

    sizes: tuple[int, ...]
    value_sizes: tuple[int, ...]
    activation: int


class Decide(NamedTuple):
    """The functions of one policy for one environment.

    Attributes:
        choose: (observation, weights, offset, greedy, bits) -> (action, log_prob, value); the
            offset is 0, see `rlcpu.cuda.envs.networks.make_forward`.
        evaluate: (observation, weights, offset) -> value; None without a value head.
        size: numbers in `weights`, as `pack_policy` makes them.
        wide: whether it needs as many registers as there are.
    """

    choose: Callable[..., Any]
    evaluate: Callable[..., Any] | None
    size: int
    wide: bool


def network_of(arrays: PolicyArrays, policy: PolicyCode) -> Network | None:
    """The structure of a policy's network; None for a scalar policy."""
    if policy.act is not None:
        return None
    value = tuple(map(int, arrays.value_sizes)) if policy.value == "separate" else ()
    return Network(tuple(map(int, arrays.sizes)), value, int(arrays.settings[0]))


def pack_policy(arrays: PolicyArrays, network: Network | None) -> npt.NDArray[np.float32]:
    """All run-time numbers of a policy: mean, scale, log_std and networks, or its params."""
    if network is None:
        return np.append(arrays.weights, np.float32(0))  # never empty
    parts = [_padded(part) for part in (arrays.mean, arrays.scale, arrays.log_std)]
    parts.append(networks.pack(arrays.weights, network.sizes))
    if network.value_sizes:
        parts.append(networks.pack(arrays.value_weights, network.value_sizes))
    return np.concatenate(parts)


def _padded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.append(values, np.zeros(networks.pad(values.size) - values.size, np.float32))


@functools.cache
def make_decide(env: Structure, policy: PolicyCode, network: Network | None) -> Decide:
    """The functions of a policy, which computes in float32."""
    first = env.reset_draws + env.step_draws
    draws = uniforms(policy.draws, first, np.float32)
    if network is None:
        return _decide_by_function(env, policy, draws)
    return _decide_by_network(env, policy, network, draws)


def _decide_by_function(env: Structure, policy: PolicyCode, draws: Callable[..., Any]) -> Decide:
    assert policy.act is not None
    act, single = specialise(policy.act, np.float32), _singles(env.observation_size)
    items = "".join(f"weights[{k}], " for k in range(policy.num_params))
    made = f"Params({items})" if policy.params_type else f"({items})"
    unpack = define(f"def unpack(weights): return {made}", Params=policy.params_type)

    def choose(observation, weights, offset, greedy, bits):
        return act(single(observation), unpack(weights), draws(bits[0], bits[1]))

    return Decide(choose, None, policy.num_params + 1, False)


def _decide_by_network(
    env: Structure, policy: PolicyCode, network: Network, draws: Callable[..., Any]
) -> Decide:
    inputs, width = networks.pad(env.observation_size), networks.pad(env.action_size)
    begin = 2 * inputs + width
    forward = networks.make_forward(network.sizes, network.activation, begin)
    size = begin + networks.packed_size(network.sizes)
    critic: Any = None
    if network.value_sizes:
        critic = networks.make_forward(network.value_sizes, network.activation, size)
        size += networks.packed_size(network.value_sizes)
    normalise = _make_normalise(env.observation_size, inputs)
    log_stds = _log_stds(env.action_size, 2 * inputs)
    head: Any = categorical if env.num_actions else gaussian
    act = specialise(head.act(env.num_actions or env.action_size), np.float32)
    shared, separate = policy.value == "shared", critic is not None
    last, none = network.sizes[-1] - 1, np.float32(0)

    def choose(observation, weights, offset, greedy, bits):
        seen, value = normalise(observation, weights, offset), none
        if separate:
            value = critic(seen, weights, offset)[0]
        heads = forward(seen, weights, offset)
        if shared:
            value = heads[last]
        uniform = draws(bits[0], bits[1])
        action, log_prob = act(heads, uniform, log_stds(weights), greedy)
        return action, log_prob, value

    def evaluate(observation, weights, offset):
        seen = normalise(observation, weights, offset)
        return (
            critic(seen, weights, offset)[0] if separate else forward(seen, weights, offset)[last]
        )

    return Decide(choose, evaluate if shared or separate else None, size, True)


def _make_normalise(count: int, scale: int) -> Callable[..., Any]:
    """Function (observation, weights, offset) -> what the networks see."""
    items = "".join(
        f"min(max((single(seen[{k}]) - w[z + mean{k}]) * w[z + scale{k}], low), high), "
        for k in range(count)
    )
    names: dict[str, Any] = {"low": np.float32(-10), "high": np.float32(10), "single": np.float32}
    for k in range(count):
        names |= {f"mean{k}": np.uint64(k), f"scale{k}": np.uint64(scale + k)}
    return define(f"def normalise(seen, w, z): return ({items})", **names)


def _log_stds(count: int, begin: int) -> Callable[..., Any]:
    load = load_items(count, np.float32)

    def log_stds(weights):
        return load(weights, begin)

    return log_stds


def _singles(count: int) -> Callable[..., Any]:
    """Function: a tuple of numbers in float32."""
    items = "".join(f"single(values[{k}]), " for k in range(count))
    return define(f"def singles(values): return ({items})", single=np.float32)
