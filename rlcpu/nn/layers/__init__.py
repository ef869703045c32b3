"""Kinds of layers, a file each.

A new kind is a file here, with a `Kind` (what kernels do) and a `Layer` (what users write), an
entry below, and a test against PyTorch's autograd in `tests/nn/test_layers.py`.
"""

from rlcpu.nn.layers.activations import Activation, Elu, Relu, Silu, Tanh
from rlcpu.nn.layers.convolution import Convolution
from rlcpu.nn.layers.custom import CustomLayer
from rlcpu.nn.layers.dense import Dense
from rlcpu.nn.layers.embedding import Embedding, Ones
from rlcpu.nn.layers.graph import Graph, Input
from rlcpu.nn.layers.images import Image, Planes
from rlcpu.nn.layers.joins import Concatenate, Parts, Residual, Sum
from rlcpu.nn.layers.memory import Gru, Lstm, MinGru
from rlcpu.nn.layers.norm import LayerNorm
from rlcpu.nn.layers.pools import MaxPool
from rlcpu.nn.layers.values import Dueling, Means

__all__ = [
    "Activation",
    "Concatenate",
    "Convolution",
    "CustomLayer",
    "Dense",
    "Dueling",
    "Elu",
    "Embedding",
    "Graph",
    "Gru",
    "Image",
    "Input",
    "LayerNorm",
    "Lstm",
    "MaxPool",
    "Means",
    "MinGru",
    "Ones",
    "Parts",
    "Planes",
    "Relu",
    "Residual",
    "Silu",
    "Sum",
    "Tanh",
]
