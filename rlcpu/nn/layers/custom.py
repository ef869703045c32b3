"""Layers of users' own, with parameters: plain functions of one sample.

A subclass says which arrays are learnt, what one sample's outputs are, and the derivatives with
respect to its inputs and the parameters. Rows, padding and the modes of a pass are taken care of
here, in functions of `step`, the layer's `LayerStep` (its sizes, and where its numbers are), and
`work`, the arrays of a pass over `work.samples` samples (`rlcpu.nn.network.passes.Work`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from rlcpu.kernels.machine.memory import part
from rlcpu.nn.layers.kind import (
    BY_PARAMETERS,
    OVERWRITTEN,
    Array,
    Kind,
    Layer,
    LayerSizes,
    ParameterArray,
    gradients_of,
    input_slopes,
    inputs_of,
    output_slopes,
    outputs_of,
    parameters_of,
    spare_row,
    wants_inputs,
)
from rlcpu.nn.layers.rows import add_to, fill, row_at

_ARGUMENTS = {
    "forward": ("x", "parameters", "y"),
    "by_inputs": ("x", "parameters", "slopes", "out"),
    "by_parameters": ("x", "parameters", "slopes", "out"),
}


class CustomLayer(Layer):
    """A layer of your own, to be subclassed.

    Each function is plain Python of one sample's arrays, without `self`, and compiled for the first
    network that has such a layer. `parameters` are the numbers of all arrays of `arrays`, one array
    after the other, row-major. What is called `slopes` are derivatives of a loss. Derivatives are
    added to `out` (+=), which by the parameters has those of the samples before.

    A layer with another number of outputs than inputs has a method `output_size(inputs)`.

    Raises:
        TypeError: a subclass lacks a function, or has one that is no plain Python or takes other
            arguments.

    Example:
        >>> from rlcpu import nn
        >>> class Scale(nn.CustomLayer):
        ...     def arrays(self, inputs, rng):
        ...         return {"factors": np.ones(inputs)}
        ...
        ...     def forward(x, parameters, y):
        ...         for i in range(y.size):
        ...             y[i] = parameters[i] * x[i]
        ...
        ...     def by_inputs(x, parameters, slopes, out):
        ...         for i in range(out.size):
        ...             out[i] += parameters[i] * slopes[i]
        ...
        ...     def by_parameters(x, parameters, slopes, out):
        ...         for i in range(x.size):
        ...             out[i] += x[i] * slopes[i]
        >>> nn.Network(3, nn.Dense(4) >> Scale() >> nn.Dense(2)).arrays()["scale0.factors"]
        array([1., 1., 1., 1.], dtype=float32)
    """

    #: (x, parameters, y): overwrites the outputs y of the inputs x.
    forward: ClassVar[Callable[..., None]]
    #: (x, parameters, slopes, out): adds derivatives by x to `out`, from those by the outputs.
    by_inputs: ClassVar[Callable[..., None]]

    @staticmethod
    def by_parameters(x: Any, parameters: Any, slopes: Any, out: Any) -> None:
        """Add derivatives by the parameters to `out`; here, for a layer that has none, nothing."""

    def __init_subclass__(cls) -> None:
        """Make the kind of layer of a subclass's functions.

        Raises:
            TypeError: one of them is no plain Python.
        """
        functions = []
        for name, arguments in _ARGUMENTS.items():
            function = vars(cls).get(name, getattr(cls, name, None))  # its own, or inherited
            function = function.__func__ if isinstance(function, staticmethod) else function
            if not isinstance(function, FunctionType):
                expected = "expected plain Python, as `def` makes it"
                raise TypeError(f"{cls.__name__}.{name}={function!r}: {expected}")
            taken = function.__code__.co_varnames[: function.__code__.co_argcount]
            if len(taken) != len(arguments) or taken[0] == "self":
                raise TypeError(
                    f"{cls.__name__}.{name}({', '.join(taken)}): expected ({', '.join(arguments)})"
                    ", without self; the parameters are one array, whatever `arrays` returns"
                )
            functions.append(function)
        cls.kind = _kind_of(cls.__name__.lower(), *functions)

    def arrays(self, inputs: int, rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays that are learnt, by name, as a new network has them.

        Args:
            inputs: how many numbers of a sample come in.
            rng: random numbers, for the seed of the network.
        """
        return {}

    def parameters(self, sizes: LayerSizes) -> list[ParameterArray]:
        """Return its arrays; see `Layer`."""
        arrays = self.arrays(sizes.inputs, np.random.default_rng(0))  # for names and shapes alone

        def initial(rng: np.random.Generator, name: str) -> Array:
            return self.arrays(sizes.inputs, rng)[name]

        name = type(self).__name__
        if not isinstance(arrays, dict):
            raise TypeError(f"{name}.arrays() returned {arrays!r}: expected arrays by name")
        if arrays and type(self).by_parameters is CustomLayer.by_parameters:
            raise TypeError(f"{name} has the arrays {', '.join(arrays)}: expected by_parameters")
        shapes = {name: np.shape(array) for name, array in arrays.items()}
        return [
            ParameterArray(name, shape, functools.partial(initial, name=name), shape)
            for name, shape in shapes.items()
        ]


def _kind_of(name: str, forward: Any, by_inputs: Any, by_parameters: Any) -> Kind:
    """Return the kind of a layer from its name and a user's functions; see `CustomLayer`."""

    def run_forward(step: Any, work: Any) -> None:
        """Write the outputs of all samples, and zeros to their padding."""
        inputs, outputs = inputs_of(step, work), outputs_of(step, work)
        parameters = parameters_of(step, work)
        fill(outputs, 0.0)
        for i in range(work.samples):
            x = part(inputs, i * step.width_in, step.size_in)
            forward(x, parameters, part(outputs, i * step.width_out, step.size_out))

    def run_backward(step: Any, work: Any) -> None:
        """Compute gradients and input slopes, whichever are asked for."""
        inputs, slopes = inputs_of(step, work), output_slopes(step, work)
        parameters = parameters_of(step, work)
        if work.mode & BY_PARAMETERS:
            gradients = gradients_of(step, work)
            if work.mode & OVERWRITTEN:
                fill(gradients, 0.0)
            for i in range(work.samples):
                x = part(inputs, i * step.width_in, step.size_in)
                slope = part(slopes, i * step.width_out, step.size_out)
                by_parameters(x, parameters, slope, gradients)
        if wants_inputs(step, work):
            # They may take the place of the inputs, which the user's function reads: those of a
            # sample are computed in scratch, (width_in,) with padding, and moved.
            targets, width = input_slopes(step, work), step.width_in
            by_x = spare_row(step, work)[:width]
            for i in range(work.samples):
                x = part(inputs, i * width, step.size_in)
                slope = part(slopes, i * step.width_out, step.size_out)
                fill(by_x, 0.0)
                by_inputs(x, parameters, slope, by_x[: step.size_in])
                row = row_at(targets, i, width)
                if step.adds_to_slopes == 0:  # else those of another layer are there
                    fill(row, 0.0)
                add_to(row, by_x)

    return Kind(name, run_forward, run_backward)
