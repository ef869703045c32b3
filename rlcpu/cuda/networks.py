"""How a policy chooses the action of one environment, in one thread: MLP inference.

Weights are the same for all threads of a warp: a load of four of them from shared memory feeds four
multiply-adds, which keeps both units equally busy. The activations of the last layer but one stay
in registers; units of the last hidden layer are consumed as soon as they are computed, so that
4-64-64-2 needs no memory but its weights. Deeper or wider networks keep activations in local
memory.

Parameters are packed for that, each row at a multiple of four numbers: first the biases of the
outputs; then, layer by layer, a row per hidden unit: its weights and its bias, and in the last
hidden layer its weights in all outputs too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import maths
from rlcpu.cuda.device import SIMULATED, cuda
from rlcpu.envs.lane import Structure
from rlcpu.envs.policies import PolicyArrays, PolicyCode
from rlcpu.kernels.compile import define, source_of_tuple, specialise
from rlcpu.kernels.mlp import NORMALIZED, TANH, hyperbolic_tangent
from rlcpu.kernels.random import uniforms
from rlcpu.nn.heads import categorical, gaussian

#: Activations of a layer that stay in registers; of the 128 registers that four blocks of 128
#: threads leave to each thread.
IN_REGISTERS = 64
#: Terms of a sum that are one call.
WIDTH = 16
_ZERO = np.float32(0)


class Network(NamedTuple):
    """What of a policy's networks decides machine code.

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
            offset is 0, see `make_forward`.
        evaluate: (observation, weights, offset) -> value; None without a value head.
        size: numbers in `weights`, as `pack_policy` makes them.
        wide: whether it needs as many registers as there are.
    """

    choose: Callable[..., Any]
    evaluate: Callable[..., Any] | None
    size: int
    wide: bool


def network_of(arrays: PolicyArrays, policy: PolicyCode) -> Network | None:
    """The structure of a policy's networks; None for a scalar policy."""
    if policy.act is not None:
        return None
    if arrays.settings[0] >= NORMALIZED:
        raise ValueError("networks with layer_norm do not run on CUDA: use device='cpu'")
    value = tuple(map(int, arrays.value_sizes)) if policy.value == "separate" else ()
    return Network(tuple(map(int, arrays.sizes)), value, int(arrays.settings[0]))


def pack_policy(arrays: PolicyArrays, network: Network | None) -> npt.NDArray[np.float32]:
    """All run-time numbers of a policy: mean, scale, log_std and networks, or its params."""
    if network is None:
        return np.append(arrays.weights, np.float32(0))  # never empty
    parts = [
        np.append(part, np.zeros(_pad(part.size) - part.size, np.float32))
        for part in (arrays.mean, arrays.scale, arrays.log_std)
    ]
    parts.append(pack(arrays.weights, network.sizes))
    if network.value_sizes:
        parts.append(pack(arrays.value_weights, network.value_sizes))
    return np.concatenate(parts)


# ---------------------------------------------------------------- decisions


@functools.cache
def make_decide(env: Structure, policy: PolicyCode, network: Network | None) -> Decide:
    """The functions of a policy, which computes in float32."""
    draws = uniforms(policy.draws, env.num_draws, np.float32)
    if network is None:
        return _decide_by_function(env, policy, draws)
    return _decide_by_network(env, policy, network, draws)


def _decide_by_function(env: Structure, policy: PolicyCode, draws: Callable[..., Any]) -> Decide:
    assert policy.act is not None
    act = specialise(policy.act, np.float32)
    seen = source_of_tuple(f"single(values[{k}])" for k in range(env.observation_rows))
    single = define(f"def singles(values): return {seen}", single=np.float32)
    items = "".join(f"weights[{k}], " for k in range(policy.num_params))
    made = f"Params({items})" if policy.params_type else f"({items})"
    unpack = define(f"def unpack(weights): return {made}", Params=policy.params_type)

    def choose(observation, weights, offset, greedy, bits):
        return act(single(observation), unpack(weights), draws(bits[0], bits[1]))

    return Decide(choose, None, policy.num_params + 1, False)


def _decide_by_network(
    env: Structure, policy: PolicyCode, network: Network, draws: Callable[..., Any]
) -> Decide:
    inputs, width = _pad(env.observation_rows), _pad(env.action_size)
    size = 2 * inputs + width
    forward = make_forward(network.sizes, network.activation, size)
    size += _packed_size(network.sizes)
    critic: Any = None
    if network.value_sizes:
        critic = make_forward(network.value_sizes, network.activation, size)
        size += _packed_size(network.value_sizes)
    normalise = _make_normalise(env.observation_rows, inputs)
    spread = source_of_tuple(f"weights[{2 * inputs + k}]" for k in range(env.action_size))
    log_stds = define(f"def log_stds(weights): return {spread}")
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
        action, log_prob = act(heads, draws(bits[0], bits[1]), log_stds(weights), greedy)
        return action, log_prob, value

    def evaluate(observation, weights, offset):
        seen = normalise(observation, weights, offset)
        return (
            critic(seen, weights, offset)[0] if separate else forward(seen, weights, offset)[last]
        )

    return Decide(choose, evaluate if shared or separate else None, size, True)


def _make_normalise(count: int, scale: int) -> Callable[..., Any]:
    """Function (observation, weights, offset) -> what the networks see."""
    items = source_of_tuple(
        f"min(max((single(seen[{k}]) - w[z + mean{k}]) * w[z + scale{k}], low), high)"
        for k in range(count)
    )
    names: dict[str, Any] = {"low": np.float32(-10), "high": np.float32(10), "single": np.float32}
    for k in range(count):
        names |= {f"mean{k}": np.uint64(k), f"scale{k}": np.uint64(scale + k)}
    return define(f"def normalise(seen, w, z): return {items}", **names)


# ---------------------------------------------------------------- the layout of weights


def _pad(count: int) -> int:
    """The next multiple of four: 16 bytes are one load."""
    return -(-count // 4) * 4


def _packed_size(sizes: tuple[int, ...]) -> int:
    """Numbers of a packed network."""
    return sum(rows * stride for rows, stride in _layers(sizes)) + _pad(sizes[-1])


def _layers(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Rows and their length for each layer of hidden units; of the outputs where there is none."""
    if len(sizes) == 2:
        return [(sizes[1], _pad(sizes[0]))]
    last = len(sizes) - 3
    tails = [1 + (sizes[-1] if k == last else 0) for k in range(last + 1)]
    return [(sizes[k + 1], _pad(sizes[k] + tails[k])) for k in range(last + 1)]


def pack(parameters: npt.NDArray[Any], sizes: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """A network's flat parameters (see `rlcpu.policies.MLP`) as the device reads them."""
    matrices, begin = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        end = begin + (inputs + 1) * outputs
        matrices.append(parameters[begin:end].reshape(inputs + 1, outputs).T)
        begin = end
    parts = [np.zeros(_pad(sizes[-1]), np.float32)]
    parts[0][: sizes[-1]] = matrices[-1][:, -1]
    for k, (rows, stride) in enumerate(_layers(sizes)):
        block = np.zeros((rows, stride), np.float32)
        if len(sizes) == 2:
            block[:, : sizes[0]] = matrices[0][:, :-1]
        else:
            block[:, : sizes[k] + 1] = matrices[k]
        if 0 < k + 3 == len(sizes):
            block[:, sizes[k] + 1 : sizes[k] + 1 + sizes[-1]] = matrices[-1][:, :-1].T
        parts.append(block.ravel())
    return np.concatenate(parts)


# ---------------------------------------------------------------- the forward pass


@functools.cache
def make_forward(sizes: tuple[int, ...], activation: int, begin: int) -> Callable[..., Any]:
    """Function (inputs, weights, offset) -> outputs of the network packed at offset + begin.

    Args:
        sizes: of the layers, inputs and outputs included.
        activation: `rlcpu.kernels.mlp.TANH` or `RELU`, of the hidden layers.
        begin: a multiple of four, which `offset` (uint64) has to be too. The offset is 0, but the
            compiler must not know: it would load hundreds of weights into registers, once for all
            steps, and spill them.
    """
    writer = _Writer(sizes, begin)
    front = [f"x{k}" for k in range(sizes[0])]
    if len(sizes) == 2:
        writer.outputs(front)
    elif len(sizes) == 3:
        writer.last_hidden(front)
    elif len(sizes) == 4 and sizes[1] <= IN_REGISTERS:
        writer.last_hidden(writer.in_registers(front))
    else:
        writer.last_hidden(writer.in_memory(front))
    unit: Any = _relu
    if activation == TANH:
        unit = specialise(hyperbolic_tangent, np.float32) if SIMULATED else maths.tanh
    dots = {f"dot{count}": _make_dot(count) for count in range(1, WIDTH + 1)}
    return define(writer.source(), unit=unit, cuda=cuda, f32=np.float32, **dots, **writer.constants)


def _relu(x: Any) -> Any:
    return max(x, _ZERO)


@functools.cache
def _make_dot(count: int) -> Callable[..., Any]:
    """Function (x0, ..., w, row) -> the sum of x[k] * w[row + k], in up to four running sums.

    Unrolled code calls it: numba would take ten times as long on the same operations in one piece.
    """
    sums = min(4, count)
    lines = [f"s{k % 4} {'=' if k < sums else '+='} x{k} * w[row + c{k}]" for k in range(count)] + [
        f"return {' + '.join(f's{k}' for k in range(sums))}"
    ]
    arguments = "".join(f"x{k}, " for k in range(count))
    body = "".join(f"\n    {line}" for line in lines)
    constants = {f"c{k}": np.uint64(k) for k in range(count)}
    return define(f"def dot({arguments}w, row):{body}", **constants)


class _Writer:
    """Writes the source of one forward pass: inputs are x0, x1, ..., outputs o0, o1, ..."""

    def __init__(self, sizes: tuple[int, ...], begin: int) -> None:
        self.sizes, self.begin = sizes, begin
        self.lines = ["".join(f"x{k}, " for k in range(sizes[0])) + "= x"]
        # Unsigned indices: numba would check signed ones for being negative.
        self.constants: dict[str, Any] = {"u64": np.uint64}
        self.layers = _layers(sizes)
        blocks = itertools.accumulate(rows * stride for rows, stride in self.layers)
        first = begin + _pad(sizes[-1])
        self.firsts = [first, *(first + end for end in blocks)]

    def source(self) -> str:
        """The function."""
        outputs = "".join(f"o{m}, " for m in range(self.sizes[-1]))
        body = "".join(f"\n    {line}" for line in [*self.lines, f"return ({outputs})"])
        return f"def forward(x, w, z0):{body}"

    def index(self, value: int) -> str:
        """Name of an unsigned constant."""
        self.constants[f"c{value}"] = np.uint64(value)
        return f"c{value}"

    def place(self, item: int) -> str:
        """Expression of an item's index in `w`."""
        return f"z0 + {self.index(item)}"

    def dot(self, front: list[str], row: str) -> str:
        """Expression of the sum of front[k] * w[row + k]."""
        parts = []
        for begin in range(0, len(front), WIDTH):
            part = front[begin : begin + WIDTH]
            place = f"{row} + {self.index(begin)}" if begin else row
            parts.append(f"dot{len(part)}({', '.join(part)}, w, {place})")
        return " + ".join(parts)

    def outputs(self, front: list[str]) -> None:
        """Outputs straight from the inputs."""
        for m in range(self.sizes[1]):
            row = self.place(self.firsts[0] + m * self.layers[0][1])
            self.lines.append(f"o{m} = w[{self.place(self.begin + m)}] + {self.dot(front, row)}")

    def in_registers(self, front: list[str]) -> list[str]:
        """The first hidden layer, unrolled: the names of its activations."""
        rows, stride = self.layers[0]
        for j in range(rows):
            first = self.firsts[0] + j * stride
            bias, row = self.place(first + len(front)), self.place(first)
            self.lines.append(f"h{j} = unit(w[{bias}] + {self.dot(front, row)})")
        return [f"h{j}" for j in range(rows)]

    def in_memory(self, front: list[str]) -> str:
        """All hidden layers but the last, in local memory: the name of the activations."""
        hidden = len(self.sizes) - 3
        for k in range(hidden + 1):
            self.lines.append(f"a{k} = cuda.local.array({self.sizes[k]}, f32)")
        self.lines += [f"a0[{k}] = {name}" for k, name in enumerate(front)]
        for k in range(hidden):
            rows, stride = self.layers[k]
            self.lines += [
                f"for j in range({rows}):",
                f"    r = {self.place(self.firsts[k])} + u64(j) * {self.index(stride)}",
                f"    s = w[r + {self.index(self.sizes[k])}]",
                f"    for k in range({self.sizes[k]}):",
                f"        s += a{k}[k] * w[r + u64(k)]",
                f"    a{k + 1}[j] = unit(s)",
            ]
        return f"a{hidden}"

    def last_hidden(self, front: list[str] | str) -> None:
        """The last hidden layer, unit by unit, and what each adds to the outputs."""
        rows, stride = self.layers[-1]
        fan_in, outputs = self.sizes[-3], self.sizes[-1]
        self.lines += [f"o{m} = w[{self.place(self.begin + m)}]" for m in range(outputs)]
        self.lines.append(f"for j in range({rows}):")
        first = self.place(self.firsts[len(self.layers) - 1])
        self.lines.append(f"    r = {first} + u64(j) * {self.index(stride)}")
        if isinstance(front, str):
            self.lines += [
                "    t = f32(0)",
                f"    for k in range({fan_in}):",
                f"        t += {front}[k] * w[r + u64(k)]",
            ]
            total = "t"
        else:
            total = self.dot(front, "r")
        self.lines.append(f"    z = unit(w[r + {self.index(fan_in)}] + ({total}))")
        self.lines += [
            f"    o{m} += z * w[r + {self.index(fan_in + 1 + m)}]" for m in range(outputs)
        ]
