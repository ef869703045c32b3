"""Policies as files of ONNX, of opset 17, for its runtimes in C++, JavaScript and others.

The files are protocol buffers, of which they need few kinds of fields: these are written here, so
that nothing else has to be installed. Source: onnx.proto3 and Operators.md of ONNX 1.12.

Inputs are "observation", (n, *shape) float32, or (n,) int64 of a choice, and, where there are
masks, "allowed", (n, number of actions) bool. Outputs are "action" and "outputs". With memory there
are an input "state", (n, state_size) float32, zeros before an episode, and an output "next_state".

Nodes of the graph read and write values by their names: functions that take `nodes` and names of
values, x or h, add nodes to it, and return the name of the result. `each` is the statement that
they do the work of (`rlcpu.nn.export.program`).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.nn.export.program import Array, ExportedPolicy, Statement
from rlcpu.nn.layers.norm import NORM_EPSILON
from rlcpu.nn.network import CLIP

OPSET, IR_VERSION = 17, 8
#: Numbers of types in ONNX.
TYPES = {"float32": 1, "int64": 7, "bool": 9}


# ---------------------------------------------------------------- protocol buffers


def _varint(number: int) -> bytes:
    """Return a whole number, seven bits a byte, the lowest first."""
    number &= 2**64 - 1
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _message(*fields: tuple[int, Any]) -> bytes:
    """Return a message of (number, value): whole numbers, floats, texts, or other messages."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        elif isinstance(value, float):
            parts.append(_varint(number << 3 | 5) + struct.pack("<f", value))
        else:
            content = value.encode() if isinstance(value, str) else value
            parts.append(_varint(number << 3 | 2) + _varint(len(content)) + content)
    return b"".join(parts)


def _tensor(name: str, array: Array) -> bytes:
    """Return a `TensorProto`."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    shape = [(1, int(size)) for size in array.shape]
    return _message(*shape, (2, TYPES[array.dtype.name]), (8, name), (9, little.tobytes()))


def _attribute(name: str, value: Any) -> bytes:
    """Return an `AttributeProto` of a whole number, a float, or a list of whole numbers."""
    if isinstance(value, int):
        return _message((1, name), (3, value), (20, 2))
    if isinstance(value, float):
        return _message((1, name), (2, value), (20, 1))
    return _message((1, name), *((8, each) for each in value), (20, 7))


def _end(name: str, dtype: str, *shape: int) -> bytes:
    """Return a `ValueInfoProto` of n rows of this shape."""
    sizes = [(1, _message((2, "n"))), *((1, _message((1, size))) for size in shape)]
    tensor = _message((1, TYPES[dtype]), (2, _message(*sizes)))
    return _message((1, name), (2, _message((1, tensor))))


# ---------------------------------------------------------------- nodes


class Nodes:
    """Nodes of a graph and its constants, encoded as messages."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.constants: dict[str, bytes] = {}

    def add(self, operator: str, *inputs: str | Array, out: str = "", **attributes: Any) -> str:
        """Add a node of one output, and return its name; inputs that are arrays are constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        out = out or f"{operator}_{len(self.nodes)}"
        fields = [(1, name) for name in names]
        more = [(5, _attribute(name, value)) for name, value in attributes.items()]
        self.nodes.append(_message(*fields, (2, out), (4, operator), *more))
        return out

    def constant(self, array: Array, name: str = "") -> str:
        """Add a constant, and return its name."""
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = _tensor(name, array)
        return name


def _reshape(nodes: Nodes, x: str, *shape: int) -> str:
    return nodes.add("Reshape", x, np.array(shape))


def _channels_last(nodes: Nodes, x: str, each: Statement) -> str:
    planes = _reshape(nodes, x, -1, each.options["channels"], each.size // each.options["channels"])
    return _reshape(nodes, nodes.add("Transpose", planes, perm=(0, 2, 1)), -1, each.size)


def _windows(nodes: Nodes, operator: str, each: Statement, x: str, *arrays: str) -> str:
    """Add a convolution or a pool of x; ONNX has the channels of images first."""
    sizes = each.options
    image = _reshape(nodes, x, -1, sizes["height"], sizes["width"], sizes["channels"])
    channels_first = nodes.add("Transpose", image, perm=(0, 3, 1, 2))
    attributes: dict[str, Any] = {
        "kernel_shape": 2 * [sizes["window"]],
        "strides": 2 * [sizes["stride"]],
        "pads": 4 * [sizes["padding"]],
    }
    out = nodes.add(operator, channels_first, *arrays, **attributes)
    return _reshape(nodes, nodes.add("Transpose", out, perm=(0, 2, 3, 1)), -1, each.size)


def _convolution(nodes: Nodes, x: str, weights: str, biases: str, each: Statement) -> str:
    window, channels = each.options["window"], each.options["channels"]
    rows = _reshape(nodes, weights, window, window, channels, -1)
    first = nodes.add("Transpose", rows, perm=(3, 2, 0, 1))
    return _windows(nodes, "Conv", each, x, first, biases)


def _max_pool(nodes: Nodes, x: str, each: Statement) -> str:
    return _windows(nodes, "MaxPool", each, x)


def _layer_norm(nodes: Nodes, x: str, gains: str, shifts: str, each: Statement) -> str:
    groups = _reshape(nodes, x, -1, each.size // each.options["group"], each.options["group"])
    normalised = nodes.add("LayerNormalization", groups, gains, shifts, epsilon=NORM_EPSILON)
    return _reshape(nodes, normalised, -1, each.size)


def _silu(nodes: Nodes, x: str, _: Any) -> str:
    return nodes.add("Mul", x, nodes.add("Sigmoid", x))


def _embedding(nodes: Nodes, x: str, weights: str, statement: Statement) -> str:
    """Add the sum of the rows of weights that choices x name; other numbers count as choice 0."""
    choices = statement.options["choices"]
    zero, end = np.array(0, np.float32), np.array(choices, np.float32)
    is_positive = nodes.add("GreaterOrEqual", x, zero)
    is_choice = nodes.add("And", is_positive, nodes.add("Less", x, end))
    chosen = nodes.add("Cast", nodes.add("Where", is_choice, x, zero), to=TYPES["int64"])
    offsets = np.arange(statement.options["inputs"], dtype=np.int64) * choices
    rows = nodes.add("Gather", weights, nodes.add("Add", chosen, offsets))
    return nodes.add("ReduceSum", rows, np.array([1]), keepdims=0)


def _columns(nodes: Nodes, x: str, begin: int, end: int, out: str = "") -> str:
    """Add a node that takes columns [begin, end) of x."""
    return nodes.add("Slice", x, np.array([begin]), np.array([end]), np.array([1]), out=out)


def _gates(nodes: Nodes, x: str, size: int, count: int) -> list[str]:
    """Split x into the numbers of `count` gates, `size` columns each."""
    return [_columns(nodes, x, k * size, (k + 1) * size) for k in range(count)]


def _interpolate(nodes: Nodes, a: str, b: str, weight: str) -> str:
    """Add a + weight * (b - a)."""
    return nodes.add("Add", a, nodes.add("Mul", weight, nodes.add("Sub", b, a)))


def _min_gru(nodes: Nodes, x: str, h: str, each: Statement) -> str:
    """Add a minimal gated unit, and return the name of its next state."""
    z, candidate = _gates(nodes, x, each.size, 2)
    return _interpolate(nodes, h, candidate, nodes.add("Sigmoid", z))


def _gru(nodes: Nodes, x: str, h: str, weights: str, biases: str, each: Statement) -> str:
    """Add the nodes of a gated recurrent unit, and return the name of its next state."""
    inputs = _gates(nodes, x, each.size, 3)
    products = _gates(nodes, nodes.add("Gemm", h, weights, biases), each.size, 3)
    r, z = (
        nodes.add("Sigmoid", nodes.add("Add", *pair))
        for pair in zip(inputs[:2], products[:2], strict=True)
    )
    n = nodes.add("Tanh", nodes.add("Add", inputs[2], nodes.add("Mul", r, products[2])))
    return _interpolate(nodes, n, h, z)


def _lstm(nodes: Nodes, x: str, state: str, weights: str, each: Statement) -> str:
    """Add the nodes of long short-term memory, and return the name of its next state, h and c."""
    h, c = _gates(nodes, state, each.size, 2)
    total = nodes.add("Add", x, nodes.add("MatMul", h, weights))
    i, f, g, o = _gates(nodes, total, each.size, 4)
    i, f, o = (nodes.add("Sigmoid", gate) for gate in (i, f, o))
    added = nodes.add("Mul", i, nodes.add("Tanh", g))
    c = nodes.add("Add", nodes.add("Mul", f, c), added)
    return nodes.add("Concat", nodes.add("Mul", o, nodes.add("Tanh", c)), c, axis=1)


#: Nodes of operations: (nodes, values..., arrays..., statement) -> the name of what they make.
OPERATORS: dict[str, Callable[..., str]] = {
    "add": lambda nodes, x, y, _: nodes.add("Add", x, y),
    "channels_last": _channels_last,
    "concatenate": lambda nodes, *xs: nodes.add("Concat", *xs[:-1], axis=1),
    "convolution": _convolution,
    "dense": lambda nodes, x, w, b, _: nodes.add("Gemm", x, w, b),
    "elu": lambda nodes, x, _: nodes.add("Elu", x),
    "embedding": _embedding,
    "gru": _gru,
    "layer_norm": _layer_norm,
    "lstm": _lstm,
    "max_pool": _max_pool,
    "min_gru": _min_gru,
    "relu": lambda nodes, x, _: nodes.add("Relu", x),
    "silu": _silu,
    "tanh": lambda nodes, x, _: nodes.add("Tanh", x),
}


def as_onnx(program: ExportedPolicy, name: str) -> bytes:
    """Return a policy as the bytes of a model of ONNX.

    Args:
        program: the policy.
        name: of the graph.

    Raises:
        ValueError: ONNX has no nodes for a layer.
    """
    program.check_operations(OPERATORS, "ONNX")
    nodes, head = Nodes(), program.head
    values = [_inputs(nodes, program)]
    for key, array in program.arrays.items():
        nodes.constant(array, key)
    states: list[str] = []
    for each in program.statements:
        read, begin = [values[k] for k in each.sources], each.options.get("state")
        if begin is not None:
            end = begin + each.options["remembered"]
            read.append(_columns(nodes, "state", begin, end))
        out = OPERATORS[each.operation](nodes, *read, *each.arrays, each)
        if begin is not None:  # its first numbers are the outputs
            states.append(out)
            out = _columns(nodes, out, 0, each.size)
        values.append(out)
    outputs = _columns(nodes, values[-1], 0, head.size, out="outputs")
    _act(nodes, program, outputs)
    kind = "float32" if program.shape else "int64"
    inputs = [_end("observation", kind, *program.shape)]
    ends = [_end("outputs", "float32", head.size)]
    if program.is_masked:
        inputs.append(_end("allowed", "bool", head.size))
    if states:
        nodes.add("Concat", *states, axis=1, out="next_state")
        inputs.append(_end("state", "float32", program.state_size))
        ends.append(_end("next_state", "float32", program.state_size))
    action = _end("action", "int64" if head.choices else "float32", *_action_shape(program))
    graph = _message(
        *((1, node) for node in nodes.nodes),
        (2, name),
        *((5, tensor) for tensor in nodes.constants.values()),
        *((11, each) for each in inputs),
        *((12, each) for each in (action, *ends)),
    )
    opset = _message((1, ""), (2, OPSET))
    producer = [(2, "rlcpu"), (6, program.title)]
    return _message((1, IR_VERSION), *producer, (7, graph), (8, opset))


def _action_shape(program: ExportedPolicy) -> list[int]:
    head = program.head
    return [len(head.choices) or head.size] if head.is_list else []


def _inputs(nodes: Nodes, program: ExportedPolicy) -> str:
    """Add the nodes that make the network's inputs (n, size) of observations."""
    size, values = program.size, np.array([0, 1], np.float32)
    if program.shape:
        x = nodes.add("Reshape", "observation", np.array([-1, size]))
    else:
        x = nodes.add("OneHot", "observation", np.array([size]), values, axis=-1)
    x = nodes.add("Mul", nodes.add("Sub", x, program.mean), program.scale)
    return nodes.add("Clip", x, np.array(-CLIP, np.float32), np.array(CLIP, np.float32))


def _act(nodes: Nodes, program: ExportedPolicy, outputs: str) -> None:
    """Add the nodes that make the action of outputs."""
    head = program.head
    if not head.choices:
        x = nodes.add("Tanh", outputs) if head.is_squashed else outputs
        x = nodes.add("Add", nodes.add("Mul", x, head.half), head.center)
        nodes.add("Min", nodes.add("Max", x, head.low), head.high, out="action")
        return
    if program.is_masked:
        outputs = nodes.add("Where", "allowed", outputs, np.array(-np.inf, np.float32))
    if not head.is_list:
        nodes.add("ArgMax", outputs, axis=1, keepdims=0, out="action")
        return
    ends = np.cumsum((0, *head.choices))
    groups = [_columns(nodes, outputs, begin, end) for begin, end in itertools.pairwise(ends)]
    chosen = [nodes.add("ArgMax", each, axis=1, keepdims=1) for each in groups]
    nodes.add("Concat", *chosen, axis=1, out="action")
