"""A network's forward pass in one thread, for one environment.

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
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import maths
from rlcpu.cuda.provider import SIMULATED, cuda
from rlcpu.kernels.compile import define, specialise
from rlcpu.kernels.mlp import TANH, hyperbolic_tangent

#: Activations of a layer that stay in registers; of the 128 registers that four blocks of 128
#: threads leave to each thread.
IN_REGISTERS = 64
#: Terms of a sum that are one call.
WIDTH = 16
_ZERO = np.float32(0)


def pad(count: int) -> int:
    """The next multiple of four: 16 bytes are one load."""
    return -(-count // 4) * 4


def packed_size(sizes: tuple[int, ...]) -> int:
    """Numbers of a packed network."""
    return sum(rows * stride for rows, stride in _layers(sizes)) + pad(sizes[-1])


def _layers(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Rows and their length for each layer of hidden units; of the outputs where there is none."""
    if len(sizes) == 2:
        return [(sizes[1], pad(sizes[0]))]
    last = len(sizes) - 3
    tails = [1 + (sizes[-1] if k == last else 0) for k in range(last + 1)]
    return [(sizes[k + 1], pad(sizes[k] + tails[k])) for k in range(last + 1)]


def pack(parameters: npt.NDArray[Any], sizes: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """A network's flat parameters (see `rlcpu.envs.networks.MLP`) as the device reads them."""
    matrices, begin = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        end = begin + (inputs + 1) * outputs
        matrices.append(parameters[begin:end].reshape(inputs + 1, outputs).T)
        begin = end
    parts = [np.zeros(pad(sizes[-1]), np.float32)]
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
    if len(sizes) == 2:
        writer.linear()
    elif len(sizes) == 3 or (len(sizes) == 4 and sizes[1] <= IN_REGISTERS):
        front = [f"x{k}" for k in range(sizes[0])]
        writer.last_hidden(front if len(sizes) == 3 else writer.in_registers(front))
    else:
        writer.last_hidden(writer.in_memory())
    unit: Any = _relu
    if activation == TANH:
        unit = specialise(hyperbolic_tangent, np.float32) if SIMULATED else maths.tanh
    names = {f"dot{count}": make_dot(count) for count in range(1, WIDTH + 1)}
    return define(
        writer.source(), unit=unit, cuda=cuda, f32=np.float32, **names, **writer.constants
    )


@functools.cache
def make_dot(count: int) -> Callable[..., Any]:
    """Function (x0, ..., w, row) -> the sum of x[k] * w[row + k], in up to four running sums.

    Unrolled code calls it: numba would take ten times as long on the same operations in one piece.
    """
    sums = min(4, count)
    lines = []
    for k in range(count):
        sign = "=" if k < sums else "+="
        lines.append(f"s{k % 4} {sign} x{k} * w[row + c{k}]")
    total = " + ".join(f"s{k}" for k in range(sums))
    arguments = "".join(f"x{k}, " for k in range(count))
    body = "".join(f"\n    {line}" for line in [*lines, f"return {total}"])
    constants = {f"c{k}": np.uint64(k) for k in range(count)}
    return define(f"def dot({arguments}w, row):{body}", **constants)


def _relu(x: Any) -> Any:
    return max(x, _ZERO)


class _Writer:
    """Writes the source of one forward pass."""

    def __init__(self, sizes: tuple[int, ...], begin: int) -> None:
        self.sizes = sizes
        self.lines: list[str] = []
        # Unsigned indices: numba would check signed ones for being negative.
        self.constants: dict[str, Any] = {"u64": np.uint64}
        self.layers = _layers(sizes)
        self.firsts: list[int] = []
        self.begin, first = begin, begin + pad(sizes[-1])
        for rows, stride in self.layers:
            self.firsts.append(first)
            first += rows * stride

    def add(self, *lines: str) -> None:
        self.lines += lines

    def index(self, value: int) -> str:
        """Name of an unsigned constant."""
        self.constants[f"c{value}"] = np.uint64(value)
        return f"c{value}"

    def place(self, item: int) -> str:
        """Expression of an item's index in `w`."""
        return f"z0 + {self.index(item)}"

    def source(self) -> str:
        outputs = "".join(f"o{m}, " for m in range(self.sizes[-1]))
        inputs = "".join(f"x{k}, " for k in range(self.sizes[0]))
        body = "".join(f"\n    {line}" for line in [f"{inputs}= x", *self.lines])
        return f"def forward(x, w, z0):{body}\n    return ({outputs})"

    def dot(self, front: list[str], row: str) -> str:
        """Expression of the sum of front[k] * w[row + k]."""
        parts = []
        for begin in range(0, len(front), WIDTH):
            part = front[begin : begin + WIDTH]
            place = f"{row} + {self.index(begin)}" if begin else row
            parts.append(f"dot{len(part)}({', '.join(part)}, w, {place})")
        return " + ".join(parts)

    def linear(self) -> None:
        """Outputs straight from the inputs."""
        front = [f"x{k}" for k in range(self.sizes[0])]
        for m in range(self.sizes[1]):
            row = self.place(self.firsts[0] + m * self.layers[0][1])
            self.add(f"o{m} = w[{self.place(self.begin + m)}] + {self.dot(front, row)}")

    def in_registers(self, front: list[str]) -> list[str]:
        """The first hidden layer, unrolled: the names of its activations."""
        rows, stride = self.layers[0]
        for j in range(rows):
            row = self.place(self.firsts[0] + j * stride)
            bias = f"w[{self.place(self.firsts[0] + j * stride + len(front))}]"
            self.add(f"h{j} = unit({bias} + {self.dot(front, row)})")
        return [f"h{j}" for j in range(rows)]

    def in_memory(self) -> str:
        """All hidden layers but the last, in local memory: the name of the activations."""
        for k in range(len(self.sizes) - 2):
            self.add(f"a{k} = cuda.local.array({self.sizes[k]}, f32)")
        self.add(*(f"a0[{k}] = x{k}" for k in range(self.sizes[0])))
        for k in range(len(self.sizes) - 3):
            rows, stride = self.layers[k]
            self.add(f"for j in range({rows}):")
            self.add(f"    r = {self.place(self.firsts[k])} + u64(j) * {self.index(stride)}")
            self.add(f"    s = w[r + {self.index(self.sizes[k])}]")
            self.add(
                f"    for k in range({self.sizes[k]}):", f"        s += a{k}[k] * w[r + u64(k)]"
            )
            self.add(f"    a{k + 1}[j] = unit(s)")
        return f"a{len(self.sizes) - 3}"

    def last_hidden(self, front: list[str] | str) -> None:
        """The last hidden layer, unit by unit, and what each adds to the outputs."""
        rows, stride = self.layers[-1]
        fan_in, outputs = self.sizes[-3], self.sizes[-1]
        self.add(*(f"o{m} = w[{self.place(self.begin + m)}]" for m in range(outputs)))
        self.add(f"for j in range({rows}):")
        self.add(f"    r = {self.place(self.firsts[-1])} + u64(j) * {self.index(stride)}")
        if isinstance(front, str):
            self.add("    t = f32(0)", f"    for k in range({fan_in}):")
            self.add(f"        t += {front}[k] * w[r + u64(k)]")
            total = "t"
        else:
            total = self.dot(front, "r")
        self.add(f"    z = unit(w[r + {self.index(fan_in)}] + ({total}))")
        for m in range(outputs):
            self.add(f"    o{m} += z * w[r + {self.index(fan_in + 1 + m)}]")
