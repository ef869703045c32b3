"""Algorithms in PyTorch, beside ours: networks, gradients and Adam by other people's code."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rlcpu import nn
from tests.nn.test_network import flat_layers

Array = Any
TOLERANCES = {np.float64: 1e-10, np.float32: 1e-5}


def double(values: Any) -> torch.Tensor:
    """Numbers as a float64 tensor."""
    return torch.tensor(np.asarray(values, np.float64))


class Twin:
    """A multilayer perceptron in PyTorch with the parameters of a `Network`.

    One of graphs has `branches` perceptrons with relus, whose outputs are one after the other.
    """

    def __init__(self, network: nn.Network, branches: int = 1) -> None:
        self.activation, self.layer_norm = network.activation, network.layer_norm
        arrays = list(network.arrays().values())
        layers = [arrays[k : k + 2] for k in range(0, len(arrays), 2)]
        if network.sizes.size:
            layers = flat_layers(network, network.parameters)
        self.layers = [[double(x).requires_grad_() for x in layer] for layer in layers]
        self.depth = len(layers) // branches

    def parameters(self) -> list[torch.Tensor]:
        return list(itertools.chain.from_iterable(self.layers))

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([x if x.ndim > 1 else x[:, None] for x in inputs], dim=1)
        begins = range(0, len(self.layers), self.depth)
        parts = [self.run(rows, self.layers[k : k + self.depth]) for k in begins]
        return torch.cat(parts, dim=1)

    def run(self, rows: torch.Tensor, layers: Any) -> torch.Tensor:
        for k, (weights, biases, *scaling) in enumerate(layers):
            rows = rows @ weights + biases
            if scaling:
                rows = torch.nn.functional.layer_norm(rows, rows.shape[1:], *scaling)
            if k < len(layers) - 1:
                rows = torch.tanh(rows) if self.activation == "tanh" else torch.relu(rows)
        return rows


class Twins:
    """All that a learner learns, in PyTorch: networks, their targets, and arrays."""

    def __init__(self, learner: nn.Learner, branches: Mapping[str, int] | None = None) -> None:
        everybody, counts = zip(learner.names, learner.networks, strict=True), branches or {}
        self.networks = {name: Twin(network, counts.get(name, 1)) for name, network in everybody}
        self.arrays = {name: double(x).requires_grad_() for name, x in learner.arrays.items()}
        self.nets = SimpleNamespace(**self.networks, **self.arrays)

    def parameters(self, name: str) -> list[torch.Tensor]:
        return self.networks[name].parameters() if name in self.networks else [self.arrays[name]]

    def gradients(self, loss: torch.Tensor, learns: Sequence[str]) -> dict[str, list[Array]]:
        """Derivatives of a loss by the parameters of each."""
        result = {}
        for name in learns:
            found = torch.autograd.grad(loss, self.parameters(name), retain_graph=True)
            result[name] = [x.numpy() for x in found]
        return result


def arrays_of(learner: nn.Learner, flat: Array, name: str) -> list[Array]:
    """The part of one network, or of an array, in a vector like that of a learner's parameters."""
    if name in learner.arrays:
        begin, size = learner._places[name]
        return [flat[begin : begin + size]]
    k = learner.names.index(name)
    network, begin = learner.networks[k], learner.layout.begins[k] + learner.layout.free[k]
    return network.plan.packed_views(flat[begin:])


def gradients_of(learner: nn.Learner, name: str) -> list[Array]:
    """Gradients of the first step: Adam's first moments are a tenth of them."""
    return [10.0 * x for x in arrays_of(learner, learner.learnt.first, name)]


def assert_close(actual: Sequence[Array], expected: Sequence[Array], tolerance: float) -> None:
    """Relative error of a whole gradient, by its norm."""
    a, b = (np.concatenate([np.ravel(x) for x in arrays]) for arrays in (actual, expected))
    size = np.linalg.norm(b)
    assert size > 0.0
    assert np.linalg.norm(a - b) <= tolerance * size


def batch_of(columns: Mapping[str, Array]) -> SimpleNamespace:
    """Columns in PyTorch, as the learner reads them: float32."""
    return SimpleNamespace(**{k: double(np.asarray(x, np.float32)) for k, x in columns.items()})
