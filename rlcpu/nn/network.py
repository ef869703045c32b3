"""Networks that are learnt, and their parameters in the layout that trains fastest.

Collection keeps one environment per lane. Training keeps one sample per row and units along the
vectors, because all three products of a step (activations, weight gradients, input gradients) then
read their operands as they lie: only the weights need a transposed copy, once per gradient step.

Every layer is padded to a multiple of 16 units. Padded weights are zero; so are the units behind
them and, as every product with them is zero, their gradients: padding changes no result.

Packed parameters, layer after layer: a hidden layer holds its weights (inputs, padded outputs) and
its biases (padded outputs,); inputs are padded except the network's own. The last layer, of few
outputs, is stored transposed, (outputs, padded inputs), so that only its forward pass pays for
padding a few units to 16. Copies hold the transposed weights of all layers but a hidden first one:
hidden (padded outputs, padded inputs), last (padded inputs, padded outputs).

Where hidden layers are normalised (see `rlcpu.kernels.mlp`), their gains and shifts, padded, follow
the biases. A pass then keeps, of each hidden layer, the normalised units and what they were divided
by, in front of the units that the next layer reads: the way back needs both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import inline, kernel
from rlcpu.kernels.matmul import Matrix, transpose
from rlcpu.kernels.memory import address
from rlcpu.kernels.mlp import NORM_EPSILON, NORMALIZED, RELU, TANH, lanes_for
from rlcpu.kernels.mlp import forward as forward_lanes
from rlcpu.kernels.vectors import width

ACTIVATIONS = {"tanh": TANH, "relu": RELU}
#: Networks clip what they see to this many standard deviations.
CLIP = 10.0
#: Rows that pass a network at a time outside of rollouts and updates: 133 units, as 4-64-64-1 has,
#: take 545 KB, which stay in the second-level cache.
BATCH = 1024
#: Layers are padded to whole vectors of the widest machine.
UNIT = 16
#: Columns of a network's table.
ROWS, COLUMNS, WEIGHTS, BIASES, COPIES, CELLS, WIDTH_IN, WIDTH_OUT, UNITS = range(9)


class Network:
    """A multilayer perceptron to be learnt.

    Args:
        sizes: of the input, the hidden layers and the output.
        activation: "tanh" or "relu", of the hidden layers.
        parameters: (P,) float32, layer after layer weights (inputs, outputs) row-major, then biases
            (outputs,), then with `layer_norm` gains and shifts (outputs,) of a hidden layer; None
            for orthogonal weights of gain sqrt(2), 1 in the last layer, gains 1, and zeros.
        free: (F,) float32, numbers that are learnt and do not depend on the input, such as
            logarithms of standard deviations; None for none.
        seed: of the weights.
        layer_norm: normalise hidden layers in front of their activation, as `torch.nn.LayerNorm`
            does (Ba et al. 2016, "Layer normalization").

    Attributes:
        sizes, activation, parameters, free, layer_norm: see above. A `Learner` overwrites the
            arrays in place.

    Example:
        >>> Network((4, 64, 2)).outputs(np.zeros((3, 4))).shape
        (3, 2)
    """

    def __init__(
        self,
        sizes: Sequence[int] | npt.NDArray[np.int64],
        activation: str = "tanh",
        *,
        parameters: npt.NDArray[np.float32] | None = None,
        free: npt.NDArray[np.float32] | None = None,
        seed: int = 0,
        layer_norm: bool = False,
    ) -> None:
        numbers = [check_count(f"sizes[{i}]", int(size)) for i, size in enumerate(sizes)]
        if len(numbers) < 2:
            raise ValueError(f"sizes={numbers}: expected an input and an output at least")
        if activation not in ACTIVATIONS:
            raise ValueError(f'activation={activation!r}: expected "tanh" or "relu"')
        self.sizes, self.activation = np.array(numbers, np.int64), activation
        self.layer_norm = bool(layer_norm)
        if parameters is None:
            rng = np.random.default_rng(seed)
            parameters = orthogonal(rng, self.sizes, 1.0, self.layer_norm)
        count = num_parameters(self.sizes, self.layer_norm)
        if parameters.shape != (count,):
            raise ValueError(f"parameters have shape {parameters.shape}: expected ({count},)")
        self.parameters = parameters
        self.free = np.zeros(0, np.float32) if free is None else free

    @property
    def code(self) -> int:
        """What kernels know of its hidden layers; see `rlcpu.kernels.mlp`."""
        return ACTIVATIONS[self.activation] + NORMALIZED * self.layer_norm

    def outputs(self, inputs: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Outputs (n, sizes[-1]) float32 for inputs (n, sizes[0]).

        Raises:
            ValueError: inputs have another shape.
        """
        rows = self._check("inputs", inputs, 0)
        return run_rows(self.parameters, self.sizes, self.code, rows)

    def gradients(
        self, inputs: npt.ArrayLike, slopes: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Derivatives of sum(slopes * outputs), such as that of Q(s, a) by a.

        Args:
            inputs: (n, sizes[0]).
            slopes: (n, sizes[-1]), derivatives of what is differentiated by the outputs.

        Returns:
            Those by the parameters, (P,) float32 in their order, and by the inputs, (n, sizes[0])
            float32.

        Raises:
            ValueError: inputs or slopes have another shape.
        """
        units = [self._check("inputs", inputs, 0)]
        slope = self._check("slopes", slopes, -1)
        if len(slope) != len(units[0]):
            raise ValueError(f"slopes have {len(slope)} rows: expected {len(units[0])}")
        layers = flat_layers(self.sizes, self.parameters, self.layer_norm)
        tanh, normalised = self.activation == "tanh", []
        for weights, biases, *scaling in layers[:-1]:
            rows = units[-1] @ weights + biases
            if scaling:
                rows -= rows.mean(axis=1, keepdims=True)
                inverse = 1.0 / np.sqrt((rows**2).mean(axis=1, keepdims=True) + NORM_EPSILON)
                normalised.append((rows * inverse, inverse))
                rows = scaling[0] * rows * inverse + scaling[1]
            units.append(np.tanh(rows) if tanh else np.maximum(rows, 0.0))
        result = np.empty_like(self.parameters)
        by_layers = flat_layers(self.sizes, result, self.layer_norm)
        for layer in reversed(range(len(layers))):
            by_weights, by_biases, *by_scaling = by_layers[layer]
            if by_scaling:
                rows, inverse = normalised[layer]
                by_scaling[0][:], by_scaling[1][:] = (slope * rows).sum(axis=0), slope.sum(axis=0)
                slope = slope * layers[layer][2]
                mean, product = (x.mean(axis=1, keepdims=True) for x in (slope, slope * rows))
                slope = inverse * (slope - mean - rows * product)
            by_weights[:], by_biases[:] = units[layer].T @ slope, slope.sum(axis=0)
            slope = slope @ layers[layer][0].T
            if layer > 0:
                slope *= (1.0 - units[layer] ** 2) if tanh else units[layer] > 0.0
        return result, slope

    def state(self) -> dict[str, npt.NDArray[np.float32]]:
        """What is learnt, by name: what a checkpoint keeps."""
        return {"parameters": self.parameters, "free": self.free}

    def _check(self, name: str, values: npt.ArrayLike, layer: int) -> npt.NDArray[np.float32]:
        """An argument with a row for each sample and a number for each unit of a layer."""
        rows = np.asarray(values, np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.sizes[layer]:
            raise ValueError(f"{name} have shape {rows.shape}: expected (n, {self.sizes[layer]})")
        return rows


def num_parameters(sizes: Iterable[int], layer_norm: bool = False) -> int:
    """Weights and biases of all layers, gains and shifts of hidden ones."""
    layers = list(itertools.pairwise(sizes))
    scaling = sum(2 * outputs for _, outputs in layers[:-1]) if layer_norm else 0
    return int(sum((inputs + 1) * outputs for inputs, outputs in layers) + scaling)


def run_rows(
    parameters: npt.NDArray[np.float32],
    sizes: npt.NDArray[np.int64],
    activation: int,
    inputs: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    """Outputs (n, sizes[-1]) for inputs (n, sizes[0]), by the pass that rollouts make."""
    outputs = np.empty((len(inputs), sizes[-1]), np.float32)
    for begin in range(0, len(inputs), BATCH):
        part = inputs[begin : begin + BATCH]
        lanes = lanes_for.py_func(len(part), activation)
        space = np.zeros((sizes.sum(), lanes), np.float32)
        space[: sizes[0], : len(part)] = part.T
        run_network(parameters, sizes, activation, space.ravel(), lanes)
        outputs[begin : begin + BATCH] = space[-sizes[-1] :, : len(part)].T
    return outputs


@kernel
def run_network(parameters, sizes, activation, activations, lanes):
    """See `rlcpu.kernels.mlp.make_forward`."""
    forward_lanes(parameters, sizes, activation, activations, lanes)


def orthogonal(
    rng: np.random.Generator,
    sizes: npt.NDArray[np.int64],
    last_gain: float,
    layer_norm: bool = False,
) -> npt.NDArray[np.float32]:
    """Flat parameters with orthogonal weights (Saxe et al. 2014) and zero biases.

    Args:
        rng: random numbers.
        sizes: of the layers.
        last_gain: of the last layer; the others have sqrt(2).
        layer_norm: whether hidden layers have gains, which are 1, and shifts, which are 0.
    """
    parts = [np.zeros(0)]
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(map(int, sizes))):
        gain = last_gain if layer == len(sizes) - 2 else math.sqrt(2.0)
        tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
        q, r = np.linalg.qr(tall)
        q = q * np.sign(np.diag(r))
        parts += [gain * (q if inputs >= outputs else q.T).ravel(), np.zeros(outputs)]
        if layer_norm and layer < len(sizes) - 2:
            parts += [np.ones(outputs), np.zeros(outputs)]
    return np.concatenate(parts).astype(np.float32)


class Packed(NamedTuple):
    """One network as the kernels see it.

    Attributes:
        table: (num_layers, 9) int64, see `layer_table`.
        activation: TANH or RELU, plus NORMALIZED or not, of the hidden layers.
        parameters: (packed_size,) packed weights and biases.
        copies: (copies_size,) transposed weights, made by `refresh_copies`.
    """

    table: Any
    activation: int
    parameters: Any
    copies: Any


def padded(size: int) -> int:
    """The size of a layer with its padding."""
    return -(-int(size) // UNIT) * UNIT


def layer_table(sizes: npt.NDArray[np.int64], layer_norm: bool = False) -> npt.NDArray[np.int64]:
    """Shape and place of each layer.

    Returns:
        (num_layers, 9) int64: rows and columns of the packed weights; where weights and biases
        begin in the packed parameters, and the transposed weights in the copies; units of a sample
        in front of the layer's input; padded inputs and outputs; outputs without padding.
    """
    table = np.zeros((len(sizes) - 1, 9), np.int64)
    weights = copies = cells = 0
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        width_in, width_out = padded(inputs), padded(outputs)
        last = layer == len(sizes) - 2
        rows = outputs if last else inputs if layer == 0 else width_in
        columns = width_in if last else width_out
        biases = weights + rows * columns
        table[layer] = rows, columns, weights, biases, copies, cells, width_in, width_out, outputs
        weights = biases + width_out
        cells += width_in
        if layer_norm and not last:
            weights += 2 * width_out
            cells += width_out + UNIT
        copies += width_in * width_out if last or layer > 0 else 0
    return table


def packed_size(table: npt.NDArray[np.int64]) -> int:
    """How many numbers the packed parameters are."""
    return int(table[-1, BIASES] + table[-1, WIDTH_OUT])


def copies_size(table: npt.NDArray[np.int64]) -> int:
    """How many numbers the transposed copies are."""
    return int(table[-1, COPIES] + table[-1, WIDTH_IN] * table[-1, WIDTH_OUT])


def cells_per_sample(table: npt.NDArray[np.int64]) -> int:
    """Units of all layers and of the input, padded."""
    return int(table[-1, CELLS] + table[-1, WIDTH_IN] + table[-1, WIDTH_OUT])


def packed_layers(
    sizes: npt.NDArray[np.int64], packed: npt.NDArray, layer_norm: bool = False
) -> list[tuple[Any, ...]]:
    """Views of each layer of packed parameters.

    They are weights (inputs, outputs) and biases (outputs,), and with `layer_norm` the gains and
    shifts (outputs,) of a hidden layer.
    """
    views = []
    table = layer_table(sizes, layer_norm)
    for layer, (rows, columns, begin, bias, _, _, _, wide, outputs) in enumerate(table):
        last = layer == len(table) - 1
        weights = packed[begin:bias].reshape(rows, columns)
        weights = weights.T if last else weights
        vectors = [bias + k * wide for k in range(3 if layer_norm and not last else 1)]
        views.append(
            (weights[: sizes[layer], :outputs], *(packed[k : k + outputs] for k in vectors))
        )
    return views


def flat_layers(
    sizes: npt.NDArray[np.int64], flat: npt.NDArray, layer_norm: bool = False
) -> list[tuple[Any, ...]]:
    """The same views of flat parameters, see `rlcpu.kernels.mlp`."""
    views, begin = [], 0
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        bias = begin + inputs * outputs
        end = bias + outputs * (3 if layer_norm and layer < len(sizes) - 2 else 1)
        vectors = flat[bias:end].reshape(-1, outputs)
        views.append((flat[begin:bias].reshape(inputs, outputs), *vectors))
        begin = end
    return views


@inline
def network_of(learnt, layout, k):
    """Network number k in the flat vectors; see `rlcpu.nn.flat.Learnt`."""
    begin, end = layout.begins[k] + layout.free[k], layout.begins[k + 1]
    first, last = layout.copies_begins[k], layout.copies_begins[k + 1]
    table = layout.tables[k, : layout.layers[k]]
    parameters, copies = learnt.parameters[begin:end], learnt.copies[first:last]
    return Packed(table, layout.activations[k], parameters, copies)


@inline
def copy_last(weights, copies, first, end, columns, width):
    """Transpose rows [first, end) of the last layer's weights, for its forward pass."""
    for row in range(first, end):
        for column in range(columns):
            copies[column * width + row] = weights[row * columns + column]


@inline
def copy_square(weights, copies, first, end, rows, columns):
    """Transpose rows [first, end) of a hidden layer's weights, for its backward pass."""
    source, out = address(weights), address(copies)
    step = width(source, 1)
    for row in range(first, end, step):
        for column in range(0, columns, step):
            transpose(
                Matrix(source, row * columns + column, columns, 1),
                Matrix(out, column * rows + row, rows, 1),
            )


@inline
def refresh_copies(network):
    """Transpose the weights into `network.copies`."""
    layers = network.table.shape[0]
    for layer in range(layers):
        rows, columns, begin, end, copy, _, _, width_out, _ = network.table[layer]
        weights, copies = network.parameters[begin:end], network.copies[copy:]
        if layer == layers - 1:
            copy_last(weights, copies, 0, rows, columns, width_out)
        elif layer > 0:
            copy_square(weights, copies, 0, rows, rows, columns)


def write_copies(network: Any) -> None:
    """The same in plain Python, for an array that has no kernel at hand."""
    for layer, row in enumerate(network.table.tolist()):
        rows, columns, begin, end, copy, _, _, width, _ = row
        last = layer == len(network.table) - 1
        if last or layer > 0:
            width = width if last else rows
            copies = network.copies[copy : copy + columns * width].reshape(columns, width)
            copies[:, :rows] = network.parameters[begin:end].reshape(rows, columns).T
