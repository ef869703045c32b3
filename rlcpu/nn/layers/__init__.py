"""Kinds of layers, a file each.

A new kind is a file here, with a `Kind` (what kernels do) and a `Layer` (what users write), an
entry in `KINDS`, and a test against PyTorch's autograd in `tests/nn/test_layers.py`.
"""

from rlcpu.nn.layers import activations, dense, embedding, joins, norm
from rlcpu.nn.layers.activations import Activation, Elu, Relu, Silu, Tanh
from rlcpu.nn.layers.dense import Dense
from rlcpu.nn.layers.embedding import Embedding, Ones
from rlcpu.nn.layers.graph import Graph, Input
from rlcpu.nn.layers.joins import Concatenate, Residual, Sum
from rlcpu.nn.layers.norm import LayerNorm

#: All kinds, to which networks add those of users; kernels know them by their position.
KINDS = [
    dense.DENSE,
    activations.RELU,
    activations.TANH,
    norm.LAYER_NORM,
    activations.ELU,
    activations.SILU,
    embedding.EMBEDDING,
    joins.COPY,
    joins.ADD,
]

__all__ = [
    "KINDS",
    "Activation",
    "Concatenate",
    "Dense",
    "Elu",
    "Embedding",
    "Graph",
    "Input",
    "LayerNorm",
    "Ones",
    "Relu",
    "Residual",
    "Silu",
    "Sum",
    "Tanh",
]
