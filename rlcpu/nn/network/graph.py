"""Networks that are learnt.

A network is a graph of layers (`rlcpu.nn.layers`), of which a plan is made
(`rlcpu.nn.network.plan`): where all numbers are, and a table of instructions for the passes over
samples (`rlcpu.nn.network.passes`), which train it, and by which it acts
(`rlcpu.nn.network.acting`). A pass works in one array, `units`, that holds the inputs, the outputs
and all numbers between layers. Here samples pass a network outside of rollouts and updates: T time
steps of n sequences, T = 1 without memory.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.memory import aligned_zeros
from rlcpu.nn.layers import Dense, Graph, LayerNorm, Relu, Tanh
from rlcpu.nn.network import passes
from rlcpu.nn.network.packed import Packed, packed_at, read_state, write_state
from rlcpu.nn.network.passes import ADDED, BY_INPUTS, Time
from rlcpu.nn.network.plan import plan_of

Array = npt.NDArray[Any]

#: Codes of the activation of hidden layers; the last is added where they are normalised.
TANH, RELU, NORMALIZED = 0, 1, 2
ACTIVATIONS = {"tanh": TANH, "relu": RELU}
#: Rows that pass a network at a time outside of rollouts and updates: 133 units, as 4-64-64-1 has,
#: take 545 KB, which stay in the second-level cache.
BATCH = 1024


class Network:
    """A network to be learnt: a multilayer perceptron, or any graph of layers.

    Args:
        inputs: sizes of the input, the hidden layers and the output of a multilayer perceptron; of
            a graph the size of its input, or of each by its name.
        graph: the activation of hidden layers, "tanh" or "relu"; or layers, such as
            `nn.Dense(64) >> nn.Relu() >> nn.Dense(2)`, or layers for each output by its name.
        parameters: (P,) float32 or float64, in which outputs and gradients are computed too: layer
            after layer their arrays, row-major. Of a dense layer these are weights (inputs,
            outputs) and biases (outputs,), of a normalisation gains and shifts (outputs,). None for
            orthogonal weights of gain sqrt(2), 1 in last layers, gains 1, and zeros.
        free: (F,) float32, numbers that are learnt and do not depend on the input, such as
            logarithms of standard deviations; None for none.
        seed: of the weights.
        layer_norm: of a multilayer perceptron: normalise hidden layers in front of their
            activation, as `torch.nn.LayerNorm` does (Ba et al. 2016, "Layer normalization").

    Attributes:
        parameters, free: see above. A `Learner` overwrites the arrays in place.
        plan: what kernels are told about the network.
        sizes, activation, layer_norm: of a multilayer perceptron; others have no sizes.

    Raises:
        TypeError, ValueError: layers do not fit together, or parameters are of another network.

    Example:
        >>> Network((4, 64, 2)).outputs(np.zeros((3, 4))).shape
        (3, 2)
    """

    #: Number of times that an attribute was set.
    version = 0

    def __init__(
        self,
        inputs: int | Mapping[str, int] | Sequence[int] | npt.NDArray[np.int64],
        graph: str | Graph | Mapping[str, Graph] = "tanh",
        *,
        parameters: npt.NDArray[Any] | None = None,
        free: npt.NDArray[np.float32] | None = None,
        seed: int = 0,
        layer_norm: bool = False,
    ) -> None:
        self.sizes, self.activation, self.layer_norm = np.zeros(0, np.int64), "", bool(layer_norm)
        if isinstance(graph, str):
            sizes = _check_sizes(inputs)
            self.sizes, self.activation = np.array(sizes, np.int64), graph
            inputs, graph = sizes[0], perceptron(sizes, graph, layer_norm)
        elif layer_norm:
            raise ValueError("layer_norm=True: expected nn.LayerNorm() among the layers")
        sizes_by_name = {
            name: check_count(f"size of the input {name!r}", size)
            for name, size in _named(inputs, "input").items()
        }
        graphs = _named(graph, "output")
        self.plan = plan_of(sizes_by_name, graphs)
        self._inputs = Ports(tuple(sizes_by_name), isinstance(inputs, Mapping), self.plan.inputs)
        self._outputs = Ports(tuple(graphs), isinstance(graph, Mapping), self.plan.outputs)
        if parameters is None:
            parameters = self.plan.initial(np.random.default_rng(seed))
        if parameters.shape != (self.plan.flat,):
            actual = f"parameters have shape {parameters.shape}"
            raise ValueError(f"{actual}: expected ({self.plan.flat},)")
        if parameters.dtype not in (np.float32, np.float64):
            raise TypeError(f"parameters are {parameters.dtype}: expected float32 or float64")
        self.parameters, self._linked = parameters, passes.LinkedNetworks()
        self.free = np.zeros(0, np.float32) if free is None else free

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        vars(self)["version"] = self.version + 1

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes; a copy has memory of its own for kernels."""
        return {**vars(self), "_linked": passes.LinkedNetworks()}

    @property
    def code(self) -> int:
        """Return the code of a multilayer perceptron's activation and normalisation."""
        return ACTIVATIONS.get(self.activation, TANH) + NORMALIZED * self.layer_norm

    @property
    def input_sizes(self) -> dict[str, int]:
        """Return sizes of inputs by their names; one without a name is "input"."""
        return self._inputs.sizes

    @property
    def output_sizes(self) -> dict[str, int]:
        """Return sizes of outputs by their names; one without a name is "output"."""
        return self._outputs.sizes

    @property
    def names_outputs(self) -> bool:
        """Tell whether it returns outputs by their names."""
        return self._outputs.are_named

    def arrays(self) -> dict[str, Array]:
        """Return parts of the parameters by name, such as "dense0.weights" (inputs, outputs)."""
        views = self.plan.flat_views(self.parameters)
        return {each.name: view for each, view in zip(self.plan.arrays, views, strict=True)}

    @property
    def state_size(self) -> int:
        """Return the numbers that its layers with memory remember of a sequence; 0 without any."""
        return self.plan.state_size

    def outputs(
        self,
        inputs: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        state: npt.ArrayLike | None = None,
        starts: npt.ArrayLike | None = None,
    ) -> Any:
        """Return outputs for n samples, or for T time steps of n sequences.

        Args:
            inputs: (n, size) of the input, or of each by its name; of a network with memory
                (T, n, size).
            state: (n, state_size), what a network with memory remembers before the first time step;
                zeros remember nothing.
            starts: (T, n) bools, where an episode begins and nothing is remembered; None for
                nowhere. Numbers below 0 say where derivatives go no further.

        Returns:
            (n, size) of the output; of a network whose outputs have names a dictionary of them. The
            dtype is that of the parameters. Of a network with memory two: outputs (T, n, size), and
            the state (n, state_size) after the last time step.

        Raises:
            ValueError: inputs have other names or shapes, or the state is missing or of another.
        """
        outputs, states = self._run(inputs, state, starts, num_states=1)
        named = self._outputs.named(outputs if self.state_size else [each[0] for each in outputs])
        return (named, states[0]) if self.state_size else named

    def states_along(
        self,
        inputs: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        state: npt.ArrayLike,
        starts: npt.ArrayLike | None = None,
    ) -> Array:
        """Return what a network with memory remembers before each time step, and after the last.

        Args:
            inputs: see `outputs`.
            state: see `outputs`.
            starts: see `outputs`.

        Returns:
            (T + 1, n, state_size), zeros where an episode begins.

        Raises:
            ValueError: see `outputs`.
        """
        _, states = self._run(inputs, state, starts, num_states=None)
        return states

    def _run(
        self, inputs: Any, state: Any, starts: Any, num_states: int | None
    ) -> tuple[list[Array], Array]:
        """Return all outputs, each (T, n, size), and the last states, (num_states, n, state_size).

        There are states before each time step and after all of them; None is for all T + 1.
        """
        rows = self._check("inputs", inputs, self._inputs)
        memory, (steps, count, _) = self._check_memory(rows, state, starts), rows[0].shape
        outputs = self._empty(self._outputs, steps, count)
        states = np.empty((num_states or steps + 1, count, self.state_size), self._dtype)
        packed = self.packed(is_learnt=False)
        for part, units in self._batches(steps, count):
            part_states, before = np.empty_like(states[:, part]), memory.of(part)
            self._inputs.write(units, part, rows)
            _run_forward(packed.address, units, before.state, before.starts, part_states)
            self._outputs.read(units, part, outputs)
            states[:, part] = part_states
        return outputs, states

    def gradients(
        self,
        inputs: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        slopes: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        state: npt.ArrayLike | None = None,
        starts: npt.ArrayLike | None = None,
    ) -> tuple[Array, Any]:
        """Return derivatives of sum(slopes * outputs), such as dQ(s, a) / da.

        Args:
            inputs: (n, size) of the input, or of each by its name; with memory (T, n, size).
            slopes: (n, size) of the output, or of each by its name: factors of the outputs in the
                sum, or derivatives of a loss with respect to them; with memory (T, n, size).
            state: see `outputs`.
            starts: see `outputs`.

        Returns:
            Derivatives with respect to the parameters, (P,) in their order, and with respect to the
            inputs, of their shapes.

        The state before the first time step is taken as a constant.

        Raises:
            TypeError: inputs or slopes are no arrays of numbers.
            ValueError: inputs or slopes have other names or shapes.
        """
        rows = self._check("inputs", inputs, self._inputs)
        by_outputs = self._check("slopes", slopes, self._outputs)
        memory, (steps, count, _) = self._check_memory(rows, state, starts), rows[0].shape
        if by_outputs[0].shape[:2] != (steps, count):
            first_axis = 0 if self.state_size else 1  # users give no T without memory
            actual = _times(by_outputs[0].shape[first_axis:2])
            raise ValueError(
                f"slopes have {actual} rows: expected {_times((steps, count)[first_axis:])}"
            )
        plan, packed = self.plan, self.packed()
        by_inputs = self._empty(self._inputs, steps, count)
        gradients = np.zeros_like(packed.parameters)
        for part, units in self._batches(steps, count):
            samples, before = steps * (part.stop - part.start), memory.of(part)
            # Of one sample more than there are, see `rlcpu.nn.network.passes`.
            scratch = aligned_zeros(((samples + 1) * plan.slopes,), self._dtype)
            no_states = np.empty((0, *before.state.shape), self._dtype)  # nobody reads states
            self._inputs.write(units, part, rows)
            _run_forward(packed.address, units, before.state, before.starts, no_states)
            # A backward pass reads slopes where the outputs lie, and overwrites all units.
            self._outputs.write(units, part, by_outputs)
            _run_backward(packed.address, units, scratch, gradients, samples, before.starts)
            self._inputs.read(units, part, by_inputs)
        derivatives = by_inputs if self.state_size else [each[0] for each in by_inputs]
        return plan.unpack(gradients, self._dtype), self._inputs.named(derivatives)

    def packed(self, is_learnt: bool = True) -> Packed:
        """Return the network as kernels have it, in the dtype of its parameters.

        They are copied to the same memory by each call, so that small networks wait for no
        allocation.

        Args:
            is_learnt: whether there are backward passes.
        """
        name = "learnt" if is_learnt else "run"
        make = functools.partial(passes.LinkedNetwork, is_learnt=is_learnt)
        packed: Packed = self._linked.of(name, make, self.plan, self.parameters).packed
        return packed

    def state(self) -> dict[str, Array]:
        """Return parameters by name, for checkpoints."""
        return {"parameters": self.parameters, "free": self.free}

    # ------------------------------------------------------------ rows of samples

    @property
    def _dtype(self) -> Any:
        return self.parameters.dtype.type

    def _check(self, name: str, values: Any, ports: Ports) -> list[Array]:
        """Return inputs or slopes as arrays (T, n, size) in the order of `ports`, after checks.

        `name` is that of the argument, for errors; `values` are an array, or arrays by name.
        """
        if isinstance(values, Mapping) != ports.are_named:
            expected = (
                f"a dictionary of {', '.join(ports.names)}" if ports.are_named else "an array"
            )
            raise TypeError(f"{name} are of {type(values).__name__}: expected {expected}")
        named = values if ports.are_named else {ports.names[0]: values}
        if set(named) != set(ports.names):
            raise ValueError(f"{name} of {', '.join(named)}: expected {', '.join(ports.names)}")
        arrays: list[Array] = []
        for key, size in ports.sizes.items():
            rows = np.asarray(named[key], self._dtype)
            label = f"{name}[{key!r}]" if ports.are_named else name
            if rows.ndim != (3 if self.state_size else 2) or rows.shape[-1] != size:
                lead = "T, n" if self.state_size else "n"
                raise ValueError(f"{label} have shape {rows.shape}: expected ({lead}, {size})")
            if arrays and rows.shape[:-1] != arrays[0].shape[:-1]:
                actual, expected = _times(rows.shape[:-1]), _times(arrays[0].shape[:-1])
                raise ValueError(f"{label} have {actual} rows: expected {expected}")
            arrays.append(rows)
        return arrays if self.state_size else [rows[None] for rows in arrays]

    def _check_memory(self, rows: list[Array], state: Any, starts: Any) -> _Memory:
        """Return states and starts of the sequences, after checks; zeros where there are none."""
        steps, count = rows[0].shape[:2]
        size = self.state_size
        if state is None and size:
            raise ValueError(f"state: the network has memory, expected an array ({count}, {size})")
        begin = np.zeros((count, size), self._dtype) if state is None else np.asarray(state)
        if begin.shape != (count, size):
            raise ValueError(f"state has shape {begin.shape}: expected ({count}, {size})")
        flags = np.zeros((steps, count)) if starts is None else np.asarray(starts)
        if flags.shape != (steps, count):
            raise ValueError(f"starts have shape {flags.shape}: expected ({steps}, {count})")
        return _Memory(begin.astype(self._dtype), flags.astype(self._dtype))

    def _batches(self, steps: int, count: int) -> Iterable[tuple[slice, Array]]:
        """Yield slices of `count` sequences of `steps` steps that pass together, and their units.

        The units are the same memory for each.
        """
        most = max(BATCH // max(steps, 1), 1)  # sequences; there may be no steps
        units = aligned_zeros((min(count, most) * steps * self.plan.units,), self._dtype)
        for begin in range(0, count, most):
            yield slice(begin, min(begin + most, count)), units

    def _empty(self, ports: Ports, steps: int, count: int) -> list[Array]:
        """Return arrays (T, n, size) for what lies in inputs or outputs."""
        return [np.empty((steps, count, size), self._dtype) for size in ports.sizes.values()]


class _Memory(NamedTuple):
    """States (n, state_size) before the first time step, and starts (T, n) of episodes."""

    state: Array
    starts: Array

    def of(self, part: slice) -> _Memory:
        """Return states and starts of a part of the sequences."""
        return _Memory(self.state[part], np.ascontiguousarray(self.starts[:, part]))


class Ports(NamedTuple):
    """Inputs or outputs of a network."""

    names: tuple[str, ...]  #: of each; one that users do not name is "input" or "output"
    are_named: bool  #: whether users name them
    #: (number of them, 3), rows of `rlcpu.nn.network.plan.TensorPlace`.
    places: npt.NDArray[np.int64]

    @property
    def sizes(self) -> dict[str, int]:
        """Return numbers of a sample, by name."""
        return dict(zip(self.names, self.places[:, 2].tolist(), strict=True))

    def blocks(self, units: Array, steps: int, part: slice) -> Iterable[Array]:
        """Yield views (T, n, width) of each in the units of a part of the sequences."""
        count = part.stop - part.start
        samples = steps * count
        for offset, width, _ in self.places.tolist():
            block = units[offset * samples : (offset + width) * samples]
            yield block.reshape(steps, count, width)

    def write(self, units: Array, part: slice, arrays: list[Array]) -> None:
        """Write a part of arrays (T, n, size) to their places in units, zeros to the padding."""
        for block, array in zip(self.blocks(units, len(arrays[0]), part), arrays, strict=True):
            size = array.shape[2]
            block[..., :size], block[..., size:] = array[:, part], 0.0

    def read(self, units: Array, part: slice, arrays: list[Array]) -> None:
        """Overwrite a part of arrays (T, n, size) with what lies in their places in units."""
        for block, array in zip(self.blocks(units, len(arrays[0]), part), arrays, strict=True):
            array[:, part] = block[..., : array.shape[2]]

    def named(self, arrays: list[Array]) -> Any:
        """Return arrays as users have them: by name, or the only one."""
        return dict(zip(self.names, arrays, strict=True)) if self.are_named else arrays[0]


@kernel
def _run_forward(network, units, state, starts, states):
    """Compute the outputs, which are left in units as inputs were, and the last states.

    `network` is the address of a `Packed`. Of the states before each time step and after all of
    them, `states` (any, n, state_size) is overwritten with the last; `state` (n, state_size) is the
    first of them. For `starts` (T, n) see `Network.outputs`.
    """
    steps, sequences = starts.shape
    network = packed_at(network, units)
    for b in range(sequences):
        write_state(network, units, starts.size, b, state[b])
    time = Time(steps, starts)
    passes.forward(network, units, starts.size, is_summed=False, time=time)
    first = steps + 1 - states.shape[0]  # of the states that are read
    for k in range(states.shape[0]):
        for b in range(sequences):
            read_state(network, units, starts.size, (first + k) * sequences + b, states[k, b])


@kernel
def _run_backward(network, units, slopes, gradients, samples, starts):
    """Add gradients, and overwrite the inputs in units with their slopes."""
    time, mode = Time(starts.shape[0], starts), ADDED | BY_INPUTS
    network = packed_at(network, units)
    passes.backward(
        network, units, slopes, gradients, samples, is_summed=False, time=time, mode=mode
    )


def _times(counts: Sequence[int]) -> str:
    """Return counts as messages have them, such as "3 x 4"."""
    return " x ".join(map(str, counts))


def _named(values: Any, name: str) -> dict[str, Any]:
    """Return inputs or outputs by their names; one that users do not name is called `name`."""
    named = dict(values) if isinstance(values, Mapping) else {name: values}
    if not named:
        raise ValueError(f"the network has no {name}: expected one at least")
    return named


# ---------------------------------------------------------------- multilayer perceptrons


def perceptron(
    sizes: Sequence[int], activation: str, layer_norm: bool = False, last_gain: float = 1.0
) -> Graph:
    """Return the layers of a multilayer perceptron behind its input.

    Raises:
        ValueError: there is no such activation.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f'activation={activation!r}: expected "tanh" or "relu"')
    *hidden, last = sizes[1:]
    layer = Dense(last, last_gain)
    return hidden_layers(hidden, activation, layer_norm) >> layer if hidden else layer


def hidden_layers(sizes: Sequence[int], activation: str, layer_norm: bool = False) -> Graph:
    """Return the hidden layers of a multilayer perceptron, one at least."""
    layers: list[Graph] = []
    for size in sizes:
        layers += [Dense(size), *([LayerNorm()] if layer_norm else [])]
        layers.append(Tanh() if activation == "tanh" else Relu())
    return functools.reduce(operator.rshift, layers)


def orthogonal(
    rng: np.random.Generator,
    sizes: npt.NDArray[np.int64],
    last_gain: float,
    layer_norm: bool = False,
) -> npt.NDArray[np.float32]:
    """Return flat parameters with orthogonal weights (Saxe et al. 2014) and zero biases.

    The last layer has gain `last_gain`, the others sqrt(2); with `layer_norm`, hidden layers have
    gains 1 and shifts 0. Where `sizes` has one layer alone, there are no parameters.
    """
    numbers = sizes.tolist()
    if len(numbers) < 2:
        return np.zeros(0, np.float32)
    graph = perceptron(numbers, "tanh", layer_norm, last_gain)
    return plan_of({"": numbers[0]}, {"": graph}).initial(rng)


def num_parameters(sizes: Iterable[int], layer_norm: bool = False) -> int:
    """Count weights and biases of all layers, gains and shifts of hidden ones."""
    layers = list(itertools.pairwise(sizes))
    scaling = sum(2 * outputs for _, outputs in layers[:-1]) if layer_norm else 0
    return int(sum((inputs + 1) * outputs for inputs, outputs in layers) + scaling)


def _check_sizes(sizes: Any) -> list[int]:
    if not isinstance(sizes, Sequence | np.ndarray) or isinstance(sizes, str):
        raise TypeError(f"sizes={sizes!r}: expected sizes of layers, such as (4, 64, 2)")
    numbers = [check_count(f"sizes[{i}]", int(size)) for i, size in enumerate(sizes)]
    if len(numbers) < 2:
        raise ValueError(f"sizes={numbers}: expected an input and an output at least")
    return numbers
