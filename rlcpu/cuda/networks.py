"""How a policy chooses the action of one environment, in one thread: MLP inference.

Weights are the same for all threads of a warp: a load of four of them from shared memory feeds four
multiply-adds, which keeps both units equally busy. The activations of the last layer but one stay
in registers; units of the last hidden layer are consumed as soon as they are computed, so that
4-64-64-2 needs no memory but its weights. Deeper and wider networks keep activations in local
memory.

Heads, their random numbers and the scaling of inputs are the CPU's scalar functions. The forward
pass is one of this file: the CPU's runs for many environments at a time, by tables of addresses in
memory, where a thread of the device has one environment, in registers, and layers that the compiler
has to know.

Parameters are packed for that, each row at a multiple of four numbers: layer by layer a row for
each hidden unit, its weights and its bias; then a row for each unit of the last hidden layer, its
weights in all outputs, and a row of the outputs' biases.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.backends import cpu_only
from rlcpu.cuda import maths
from rlcpu.cuda.device import SIMULATED, cuda
from rlcpu.envs.contract.policies import PolicyArrays, PolicyCode
from rlcpu.envs.engine.structure import Structure
from rlcpu.kernels.compiler.compile import define, source_of_tuple, specialise
from rlcpu.kernels.machine.random import uniforms
from rlcpu.nn.layers.activations import hyperbolic_tangent
from rlcpu.nn.network.graph import NORMALIZED, TANH
from rlcpu.nn.network.heads import ActCategoricals, ActScaled, act_categorical, act_gaussian
from rlcpu.nn.network.scaling import scaled

#: Activations of a layer that stay in registers; of the 128 registers that four blocks of 128
#: threads leave to each thread.
IN_REGISTERS = 64
#: Terms of a sum that are one call.
WIDTH = 16
_ZERO = np.float32(0)


class NetworkFacts(NamedTuple):
    """Facts of a policy's networks on which machine code depends."""

    sizes: tuple[int, ...]  # layers of the policy's network
    value_sizes: tuple[int, ...]  # layers of the value's network; () without one
    activation: int  # code of the hidden layers' activation


class DeviceDecide(NamedTuple):
    """The functions of one policy for one environment.

    Their `weights` are the numbers of `pack_policy`, `offset` is 0, see `make_forward`, and `bits`
    are two random words.
    """

    #: (observation, weights, offset, greedy, bits) -> (action, log_prob, value).
    choose: Callable[..., Any]
    #: (observation, weights, offset) -> value; None without a value head.
    evaluate: Callable[..., Any] | None
    size: int  # numbers in `weights`


def network_of(arrays: PolicyArrays, policy: PolicyCode) -> NetworkFacts | None:
    """Return the structure of a policy's networks; None for a scalar policy.

    Raises:
        ValueError: the policy is for the CPU alone.
    """
    if policy.act is not None:
        return None
    activation = arrays.activation
    # Codes from `NORMALIZED` on are of normalised layers; networks that are no MLP have one size.
    has_known_head = policy.head is None or isinstance(policy.head, ActScaled | ActCategoricals)
    if not has_known_head or activation >= NORMALIZED or arrays.sizes.size < 2:
        raise cpu_only(
            "networks with a head of their own, or with other layers than dense ones,", ValueError
        )
    value_sizes = tuple(arrays.value_sizes.tolist()) if policy.value == "separate" else ()
    return NetworkFacts(tuple(arrays.sizes.tolist()), value_sizes, activation)


def pack_policy(arrays: PolicyArrays, network: NetworkFacts | None) -> npt.NDArray[np.float32]:
    """Return all run-time numbers of a policy: what scales, log_std and networks, or its params."""
    if network is None:
        return np.append(arrays.weights, np.float32(0))  # never empty
    parts = [
        np.append(part, np.zeros(_pad(part.size) - part.size, np.float32))
        for part in (arrays.mean, arrays.scale, arrays.limit, arrays.log_std)
    ]
    parts.append(pack(arrays.weights, network.sizes))
    if network.value_sizes:
        parts.append(pack(arrays.value_weights, network.value_sizes))
    return np.concatenate(parts)


# ---------------------------------------------------------------- decisions


@functools.cache
def make_decide(env: Structure, policy: PolicyCode, network: NetworkFacts | None) -> DeviceDecide:
    """Return the functions of a policy, which computes in float32."""
    draws = uniforms(policy.draws, env.num_draws, np.float32)
    if network is None:
        return _decide_by_function(env, policy, draws)
    return _decide_by_network(env, policy, network, draws)


def _decide_by_function(
    env: Structure, policy: PolicyCode, draws: Callable[..., Any]
) -> DeviceDecide:
    """Return the functions of a policy that is a scalar function; `draws` makes random numbers."""
    assert policy.act is not None
    act = specialise(policy.act, np.float32)
    rounded = source_of_tuple(f"single(values[{k}])" for k in range(env.observation_rows))
    to_float32 = define(f"def to_float32(values): return {rounded}", single=np.float32)
    items = "".join(f"weights[{k}], " for k in range(policy.num_params))
    params = f"Params({items})" if policy.params_type else f"({items})"
    unpack = define(f"def unpack(weights): return {params}", Params=policy.params_type)

    def choose(observation, weights, offset, greedy, bits):
        """Choose an action; such a policy has neither log_prob nor value of its own."""
        return act(to_float32(observation), unpack(weights), draws(bits[0], bits[1]))

    return DeviceDecide(choose, evaluate=None, size=policy.num_params + 1)


def _decide_by_network(
    env: Structure, policy: PolicyCode, network: NetworkFacts, draws: Callable[..., Any]
) -> DeviceDecide:
    """Return the functions of a policy that is a network, perhaps with a value network.

    `draws` makes random numbers. The value is the only output of a network of its own, or the last
    output of the policy's.
    """
    num_inputs = _pad(env.observation_rows)
    limit_at = 2 * num_inputs  # behind means and scales, see `pack_policy`
    first_log_std = limit_at + _pad(1)
    num_stds = 0 if env.choices else env.action_size
    size = first_log_std + _pad(num_stds)
    forward = make_forward(network.sizes, network.activation, begin=size)
    size += _packed_size(network.sizes)
    value_forward: Any = None
    if network.value_sizes:
        value_forward = make_forward(network.value_sizes, network.activation, begin=size)
        size += _packed_size(network.value_sizes)
    scale = _make_scale(env.observation_rows, first_scale=num_inputs, limit_at=limit_at)
    items = source_of_tuple(f"weights[{first_log_std + k}]" for k in range(num_stds))
    log_stds = define(f"def log_stds(weights): return {items}")
    head: Any = policy.head or (act_categorical if env.num_actions else act_gaussian)
    act = specialise(head(env.num_actions or env.action_size), np.float32)
    is_shared, is_separate = policy.value == "shared", value_forward is not None
    last, none = network.sizes[-1] - 1, np.float32(0)

    def choose(observation, weights, offset, greedy, bits):
        """Draw an action, and compute its log_prob and the value; 0 without a value head."""
        inputs, value = scale(observation, weights, offset), none
        if is_separate:
            value = value_forward(inputs, weights, offset)[0]
        outputs = forward(inputs, weights, offset)
        if is_shared:
            value = outputs[last]
        action, log_prob = act(outputs, draws(bits[0], bits[1]), log_stds(weights), greedy)
        return action, log_prob, value

    def evaluate(observation, weights, offset):
        """Compute the value alone."""
        inputs = scale(observation, weights, offset)
        if is_separate:
            return value_forward(inputs, weights, offset)[0]
        return forward(inputs, weights, offset)[last]

    return DeviceDecide(choose, evaluate if is_shared or is_separate else None, size)


def _make_scale(count: int, first_scale: int, limit_at: int) -> Callable[..., Any]:
    """Return a function (observation, weights, offset) -> the networks' inputs, float32.

    In the weights `count` means come first, scales begin at number `first_scale`, and the limit is
    number `limit_at`. In the source x, w and z stand for the three arguments.
    """
    items = source_of_tuple(
        f"scaled(x[{k}], w[z + mean{k}], w[z + scale{k}], limit)" for k in range(count)
    )
    names: dict[str, Any] = {"scaled": scaled, "limit_at": np.uint64(limit_at)}
    for k in range(count):
        names |= {f"mean{k}": np.uint64(k), f"scale{k}": np.uint64(first_scale + k)}
    return define(f"def scale(x, w, z): limit = w[z + limit_at]; return {items}", **names)


# ---------------------------------------------------------------- the layout of weights


def _pad(count: int) -> int:
    """Return the next multiple of four: 16 bytes are one load."""
    return -(-count // 4) * 4


def _layers(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return how many rows each layer has as it is packed, and their length.

    Layers but the last have a row for each unit, the last one for each input, and one of biases.
    """
    hidden = [(units, _pad(inputs + 1)) for inputs, units in itertools.pairwise(sizes[:-1])]
    return [*hidden, (sizes[-2] + 1, _pad(sizes[-1]))]


def _packed_size(sizes: tuple[int, ...]) -> int:
    return sum(rows * stride for rows, stride in _layers(sizes))


def pack(parameters: npt.NDArray[Any], sizes: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return a network's flat parameters (see `rlcpu.policies.MLP`) as the device reads them."""
    parts, begin = [], 0
    for k, (rows, stride) in enumerate(_layers(sizes)):
        matrix = parameters[begin : begin + (sizes[k] + 1) * sizes[k + 1]]
        begin += matrix.size
        matrix = matrix.reshape(sizes[k] + 1, sizes[k + 1])
        block = np.zeros((rows, stride), np.float32)
        is_last = k == len(sizes) - 2
        packed = matrix if is_last else matrix.T
        block[:, : packed.shape[1]] = packed
        parts.append(block.ravel())
    return np.concatenate(parts)


# ---------------------------------------------------------------- the forward pass


@functools.cache
def make_forward(sizes: tuple[int, ...], activation: int, begin: int) -> Callable[..., Any]:
    """Return a function (inputs, weights, offset) -> outputs, of a network at offset + begin.

    Its source is written for these sizes, each number in a variable of its own.

    Args:
        sizes: of the layers, inputs and outputs included.
        activation: `rlcpu.nn.network.graph.TANH` or `RELU`, of the hidden layers.
        begin: a multiple of four, which `offset` (uint64) has to be too. The offset is 0, but the
            compiler must not know: it would load hundreds of weights into registers, once for all
            steps, and spill them.
    """
    unit: Any = _relu
    if activation == TANH:
        unit = specialise(hyperbolic_tangent, np.float32) if SIMULATED else maths.tanh
    dots = {f"dot{count}": _make_dot(count) for count in range(1, WIDTH + 1)}
    writer = _Writer(sizes, begin)
    source = writer.source()
    return define(source, unit=unit, cuda=cuda, f32=np.float32, **dots, **writer.constants)


def _relu(x: Any) -> Any:
    return max(x, _ZERO)


@functools.cache
def _make_dot(count: int) -> Callable[..., Any]:
    """Make a function (x0, ..., w, row) -> the sum of x[k] * w[row + k], of `count` terms.

    It has up to four running sums: one alone would wait for each addition before the next.
    """
    sums = min(4, count)
    lines = [f"s{k % 4} {'=' if k < sums else '+='} x{k} * w[row + c{k}]" for k in range(count)]
    lines.append(f"return {' + '.join(f's{k}' for k in range(sums))}")
    arguments = "".join(f"x{k}, " for k in range(count))
    body = "".join(f"\n    {line}" for line in lines)
    constants = {f"c{k}": np.uint64(k) for k in range(count)}
    return define(f"def dot({arguments}w, row):{body}", **constants)


class _Writer:
    """Writes the source of one forward pass.

    Its variables are the inputs x0, x1, ...; units h0, h1, ... of a hidden layer in registers, or
    arrays a1, a2, ... of hidden layers in local memory; of unit j its row's place r in the weights
    w, its sum t and, in the last hidden layer, its value z; and the outputs o0, o1, ... z0 is the
    offset of `make_forward`, and c<n> the constant n.
    """

    def __init__(self, sizes: tuple[int, ...], begin: int) -> None:
        self.sizes, self.layers = sizes, _layers(sizes)
        # Unsigned indices: numba would check signed ones for being negative.
        self.constants: dict[str, Any] = {"u64": np.uint64}
        numbers = (rows * stride for rows, stride in self.layers)
        self.firsts = list(itertools.accumulate(numbers, initial=begin))

    def source(self) -> str:
        """Return the source of the function."""
        hidden, inputs = len(self.sizes) - 2, [f"x{k}" for k in range(self.sizes[0])]
        lines = [f"{', '.join(inputs)}, = x"]
        if hidden == 1:
            unit = self.last_hidden(inputs)
        elif hidden == 2 and self.sizes[1] <= IN_REGISTERS:
            lines += self.in_registers(inputs)
            unit = self.last_hidden([f"h{k}" for k in range(self.sizes[1])])
        else:
            lines += self.in_memory(inputs)
            unit = [f"    z = a{hidden}[j]"]
        fan_in, stride = self.sizes[-2], self.layers[-1][1]
        outputs, last = range(self.sizes[-1]), len(self.layers) - 1
        lines += [f"o{m} = w[{self.place(last, fan_in * stride + m)}]" for m in outputs]
        lines += [f"for j in range({fan_in}):", *unit, f"    r = {self.row(last)}"]
        lines += [f"    o{m} += z * w[r + {self.index(m)}]" for m in outputs]
        lines.append(f"return {', '.join(f'o{m}' for m in outputs)},")
        return "def forward(x, w, z0):" + "".join(f"\n    {line}" for line in lines)

    def index(self, value: int) -> str:
        """Return the name of an unsigned constant."""
        self.constants[f"c{value}"] = np.uint64(value)
        return f"c{value}"

    def place(self, layer: int, item: int = 0) -> str:
        """Return the expression of an item's index in `w`."""
        return f"z0 + {self.index(self.firsts[layer] + item)}"

    def row(self, layer: int) -> str:
        """Return the expression of the index of row j of a layer."""
        return f"{self.place(layer)} + u64(j) * {self.index(self.layers[layer][1])}"

    def dot(self, front: list[str], row: str) -> str:
        """Return the expression of the sum of front[k] * w[row + k]; `row` is an expression."""
        parts = []
        for begin in range(0, len(front), WIDTH):
            part = front[begin : begin + WIDTH]
            place = f"{row} + {self.index(begin)}" if begin else row
            parts.append(f"dot{len(part)}({', '.join(part)}, w, {place})")
        return " + ".join(parts)

    def in_registers(self, front: list[str]) -> list[str]:
        """Return the lines of the first hidden layer, unrolled; `front` are its inputs."""
        rows, stride = self.layers[0]
        return [
            f"h{j} = unit(w[{self.place(0, j * stride + len(front))}]"
            f" + {self.dot(front, self.place(0, j * stride))})"
            for j in range(rows)
        ]

    def last_hidden(self, front: list[str]) -> list[str]:
        """Return the lines of unit j of the last hidden layer, from variables `front`."""
        total = f"w[r + {self.index(len(front))}] + ({self.dot(front, 'r')})"
        return [f"    r = {self.row(len(self.layers) - 2)}", f"    z = unit({total})"]

    def in_memory(self, front: list[str]) -> list[str]:
        """Return the lines of all hidden layers in local memory, a0 being the inputs `front`."""
        lines = [f"a{k} = cuda.local.array({size}, f32)" for k, size in enumerate(self.sizes[:-1])]
        lines += [f"a0[{k}] = {name}" for k, name in enumerate(front)]
        for k, (inputs, units) in enumerate(itertools.pairwise(self.sizes[:-1])):
            lines += [
                f"for j in range({units}):",
                f"    r = {self.row(k)}",
                f"    t = w[r + {self.index(inputs)}]",
                f"    for k in range({inputs}):",
                f"        t += a{k}[k] * w[r + u64(k)]",
                f"    a{k + 1}[j] = unit(t)",
            ]
        return lines
