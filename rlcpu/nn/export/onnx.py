"""Policies as files of ONNX, of opset 17, for its runtimes in C++, JavaScript and others.

The files are protocol buffers, of which they need few kinds of fields: these are written here, so
that nothing else has to be installed. Source: onnx.proto3 and Operators.md of ONNX 1.12.

Inputs are "observation", (n, *shape) float32, or (n,) int64 of a choice, and, where there are
masks, "allowed", (n, number of actions) bool. Outputs are "action" and "outputs". With memory there
are an input "state", (n, state_size) float32, zeros before an episode, and an output "next_state".

Nodes of the graph read and write values by their names: functions that take `nodes` and names of
values, x or h, add nodes to it, and return the name of the result. `each` is the statement that
they do the work of (`rlcpu.nn.export.program`). A program's `head` makes actions of `size` outputs:
of each group of them, whose sizes `choices` has, the index of the largest; without choices, actions
are real numbers. `is_list` tells whether an action is several numbers.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.nn.export.program import Array, ExportedPolicy, Statement
from rlcpu.nn.layers.norm import NORM_EPSILON

OPSET, IR_VERSION = 17, 8
#: Numbers of ONNX: `TensorProto.DataType`, and `AttributeProto.AttributeType`.
TYPES = {"float32": 1, "int64": 7, "bool": 9}
FLOAT, INT, INTS = 1, 2, 7
#: Numbers of the fields that are written, by messages.
FIELDS: dict[str, dict[str, int]] = {
    "AttributeProto": {"name": 1, "f": 2, "i": 3, "ints": 8, "type": 20},
    "GraphProto": {"node": 1, "name": 2, "initializer": 5, "input": 11, "output": 12},
    "ModelProto": {
        "ir_version": 1, "producer_name": 2, "doc_string": 6, "graph": 7, "opset_import": 8,
    },
    "NodeProto": {"input": 1, "output": 2, "op_type": 4, "attribute": 5},
    "OperatorSetIdProto": {"domain": 1, "version": 2},
    "TensorProto": {"dims": 1, "data_type": 2, "name": 8, "raw_data": 9},
    "TensorShapeProto": {"dim": 1},
    "TensorShapeProto.Dimension": {"dim_value": 1, "dim_param": 2},
    "TypeProto": {"tensor_type": 1},
    "TypeProto.Tensor": {"elem_type": 1, "shape": 2},
    "ValueInfoProto": {"name": 1, "type": 2},
}  # fmt: skip
#: Wire types of protocol buffers, the lowest three bits in front of a field.
_VARINT, _BYTES, _FIXED32 = 0, 2, 5


# ---------------------------------------------------------------- protocol buffers


def _varint(number: int) -> bytes:
    """Return a whole number, seven bits a byte, the lowest first."""
    number &= 2**64 - 1  # negative numbers are written as of 64 bits
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _message(kind: str, **fields: Any) -> bytes:
    """Return a message of a kind: its fields by their names, lists for repeated ones.

    Values are whole numbers, floats, texts, or bytes, of other messages or arrays.
    """
    parts = []
    for name, field in fields.items():
        tag = FIELDS[kind][name] << 3
        for value in field if isinstance(field, list) else [field]:
            if isinstance(value, int):
                parts.append(_varint(tag | _VARINT) + _varint(value))
            elif isinstance(value, float):
                parts.append(_varint(tag | _FIXED32) + struct.pack("<f", value))
            else:
                content = value.encode() if isinstance(value, str) else value
                parts.append(_varint(tag | _BYTES) + _varint(len(content)) + content)
    return b"".join(parts)


def _tensor(name: str, array: Array) -> bytes:
    """Return the message of a constant."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data_type, dims = TYPES[array.dtype.name], list(map(int, array.shape))
    raw_data = little.tobytes()
    return _message("TensorProto", dims=dims, data_type=data_type, name=name, raw_data=raw_data)


def _attribute(name: str, value: Any) -> bytes:
    """Return the message of an attribute: a whole number, a float, or some whole numbers."""
    if isinstance(value, int):
        return _message("AttributeProto", name=name, i=value, type=INT)
    if isinstance(value, float):
        return _message("AttributeProto", name=name, f=value, type=FLOAT)
    return _message("AttributeProto", name=name, ints=list(value), type=INTS)


def _end(name: str, dtype: str, *shape: int) -> bytes:
    """Return the message of an input or output of the graph, n rows of this shape."""
    dims = [_message("TensorShapeProto.Dimension", dim_param="n")]
    dims += [_message("TensorShapeProto.Dimension", dim_value=size) for size in shape]
    rows = _message("TensorShapeProto", dim=dims)
    tensor = _message("TypeProto.Tensor", elem_type=TYPES[dtype], shape=rows)
    return _message("ValueInfoProto", name=name, type=_message("TypeProto", tensor_type=tensor))


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
        attribute = [_attribute(name, value) for name, value in attributes.items()]
        node = _message("NodeProto", input=names, output=out, op_type=operator, attribute=attribute)
        self.nodes.append(node)
        return out

    def constant(self, array: Array, name: str = "") -> str:
        """Add a constant, and return its name."""
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = _tensor(name, array)
        return name


def _reshape(nodes: Nodes, x: str, *shape: int) -> str:
    return nodes.add("Reshape", x, np.array(shape))


def _channels_last(nodes: Nodes, x: str, each: Statement) -> str:
    """Add nodes that bring planes, one after the other, into an image, pixel after pixel."""
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
    channels_first = nodes.add("Transpose", rows, perm=(3, 2, 0, 1))
    return _windows(nodes, "Conv", each, x, channels_first, biases)


def _max_pool(nodes: Nodes, x: str, each: Statement) -> str:
    return _windows(nodes, "MaxPool", each, x)


def _layer_norm(nodes: Nodes, x: str, gains: str, shifts: str, each: Statement) -> str:
    groups = _reshape(nodes, x, -1, each.size // each.options["group"], each.options["group"])
    normalised = nodes.add("LayerNormalization", groups, gains, shifts, epsilon=NORM_EPSILON)
    return _reshape(nodes, normalised, -1, each.size)


def _dueling(nodes: Nodes, x: str, each: Statement) -> str:
    """Add the nodes of values: advantages less their mean over actions, plus the state's value.

    They are (n, actions, streams) and (n, 1, streams), see `rlcpu.nn.Dueling`.
    """
    streams = each.options["streams"]
    advantages = _reshape(
        nodes, _columns(nodes, x, 0, each.size), -1, each.size // streams, streams
    )
    value = _reshape(nodes, _columns(nodes, x, each.size, each.size + streams), -1, 1, streams)
    mean = nodes.add("ReduceMean", advantages, axes=(1,), keepdims=1)
    values = nodes.add("Add", nodes.add("Sub", advantages, mean), value)
    return _reshape(nodes, values, -1, each.size)


def _means(nodes: Nodes, x: str, each: Statement) -> str:
    groups = _reshape(nodes, x, -1, each.size, each.options["count"])
    return nodes.add("ReduceMean", groups, axes=(2,), keepdims=0)


def _silu(nodes: Nodes, x: str, _: Any) -> str:
    return nodes.add("Mul", x, nodes.add("Sigmoid", x))


def _embedding(nodes: Nodes, x: str, weights: str, each: Statement) -> str:
    """Add the sum of the rows of weights that choices x name; other numbers count as choice 0.

    NaN alone does not: the difference of x and x, NaN or 0, is added.
    """
    choices = each.options["choices"]
    zero, end = np.array(0, np.float32), np.array(choices, np.float32)
    is_positive = nodes.add("GreaterOrEqual", x, zero)
    is_choice = nodes.add("And", is_positive, nodes.add("Less", x, end))
    chosen = nodes.add("Cast", nodes.add("Where", is_choice, x, zero), to=TYPES["int64"])
    offsets = np.arange(each.options["inputs"], dtype=np.int64) * choices
    rows = nodes.add("Gather", weights, nodes.add("Add", chosen, offsets))
    zeros = nodes.add("ReduceSum", nodes.add("Sub", x, x), np.array([1]), keepdims=1)
    return nodes.add("Add", nodes.add("ReduceSum", rows, np.array([1]), keepdims=0), zeros)


def _columns(nodes: Nodes, x: str, begin: int, end: int, out: str = "") -> str:
    """Add a node that takes columns [begin, end) of x."""
    axes = np.array([1])
    return nodes.add("Slice", x, np.array([begin]), np.array([end]), axes, out=out)


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
    "dueling": _dueling,
    "elu": lambda nodes, x, _: nodes.add("Elu", x),
    "embedding": _embedding,
    "gru": _gru,
    "layer_norm": _layer_norm,
    "lstm": _lstm,
    "max_pool": _max_pool,
    "means": _means,
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
    action = _end("action", "int64" if head.choices else "float32", *_action_shape(program))
    graph_outputs = [action, _end("outputs", "float32", head.size)]
    kind = "float32" if program.shape else "int64"
    graph_inputs = [_end("observation", kind, *program.shape)]
    if program.is_masked:
        graph_inputs.append(_end("allowed", "bool", head.size))
    if states:
        nodes.add("Concat", *states, axis=1, out="next_state")
        graph_inputs.append(_end("state", "float32", program.state_size))
        graph_outputs.append(_end("next_state", "float32", program.state_size))
    graph = _message(
        "GraphProto",
        node=nodes.nodes,
        name=name,
        initializer=list(nodes.constants.values()),
        input=graph_inputs,
        output=graph_outputs,
    )
    return _message(
        "ModelProto",
        ir_version=IR_VERSION,
        producer_name="rlcpu",
        doc_string=f"{program.title}. {program.notes}" if program.notes else program.title,
        graph=graph,
        opset_import=_message("OperatorSetIdProto", domain="", version=OPSET),
    )


def _action_shape(program: ExportedPolicy) -> list[int]:
    head = program.head
    return [len(head.choices) or head.size] if head.is_list else []


def _inputs(nodes: Nodes, program: ExportedPolicy) -> str:
    """Add the nodes that make the network's inputs (n, size) of observations."""
    size, off_and_on = program.size, np.array([0, 1], np.float32)
    if program.shape:
        x = nodes.add("Reshape", "observation", np.array([-1, size]))
    else:
        x = nodes.add("OneHot", "observation", np.array([size]), off_and_on, axis=-1)
    x = nodes.add("Mul", nodes.add("Sub", x, program.mean), program.scale)
    if program.limit == math.inf:
        return x
    low, high = np.array(-program.limit, np.float32), np.array(program.limit, np.float32)
    return nodes.add("Clip", x, low, high)


def _act(nodes: Nodes, program: ExportedPolicy, outputs: str) -> None:
    """Add the nodes that make the action of outputs: of NaN it is NaN, or choice -1."""
    head = program.head
    if not head.choices:
        x = nodes.add("Tanh", outputs) if head.is_squashed else outputs
        x = nodes.add("Add", nodes.add("Mul", x, head.half), head.center)
        nodes.add("Min", nodes.add("Max", x, head.low), head.high, out="action")
        return
    total = nodes.add("ReduceSum", outputs, np.array([1]), keepdims=int(head.is_list))
    is_nan = nodes.add("IsNaN", total)
    if program.is_masked:
        outputs = nodes.add("Where", "allowed", outputs, np.array(-np.inf, np.float32))
    if head.is_list:
        ends = np.cumsum((0, *head.choices))
        groups = [_columns(nodes, outputs, begin, end) for begin, end in itertools.pairwise(ends)]
        each = [nodes.add("ArgMax", group, axis=1, keepdims=1) for group in groups]
        chosen = nodes.add("Concat", *each, axis=1)
    else:
        chosen = nodes.add("ArgMax", outputs, axis=1, keepdims=0)
    nodes.add("Where", is_nan, np.array(-1), chosen, out="action")
