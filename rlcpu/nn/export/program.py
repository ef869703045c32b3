"""A policy as a list of statements, from which every format of `rlcpu.nn.export` is written.

Each statement is an operation on values, rows of numbers. Values are numbered: 0 is the normalised
observation, k the result of statement k - 1. Nothing is in place, and nothing padded. Images are
row by row, the channels of a pixel together; planes become images by a statement "channels_last".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.nn.layers import (
    activations,
    convolution,
    dense,
    embedding,
    joins,
    memory,
    norm,
    pools,
    values,
)
from rlcpu.nn.layers.kind import LayerStep
from rlcpu.nn.network.graph import Network
from rlcpu.nn.network.heads import Head
from rlcpu.nn.network.plan import NetworkPlan, TensorPlace

Array = npt.NDArray[Any]
#: Names of operations, by the kinds of layers that make them.
OPERATIONS = {
    activations.ELU: "elu",
    activations.RELU: "relu",
    activations.SILU: "silu",
    activations.TANH: "tanh",
    dense.DENSE: "dense",
    embedding.EMBEDDING: "embedding",
    convolution.CONVOLUTION: "convolution",
    pools.MAX_POOL: "max_pool",
    joins.ADD: "add",
    memory.GRU: "gru",
    memory.LSTM: "lstm",
    memory.MIN_GRU: "min_gru",
    norm.LAYER_NORM: "layer_norm",
    values.Dueling.kind: "dueling",
    values.Means.kind: "means",
}
#: Operations with memory, and numbers that a unit remembers, of which the first is its output.
REMEMBERED = {"gru": 1, "lstm": 2, "min_gru": 1}
#: Observations, one after the other, by which a file's policy with memory is tested.
PROBED = 3


class Statement(NamedTuple):
    """One operation on rows of numbers."""

    operation: str  # its name
    sources: list[int]  # numbers of the values that it reads
    size: int  # how many numbers it makes
    arrays: list[str]  # names of its parameters, in the order of the layer's
    #: Whole numbers by their names. An operation with memory has "remembered", how many numbers it
    #: remembers, and "state", where these begin in the policy's state.
    options: dict[str, Any]


class ExportedPolicy(NamedTuple):
    """A policy that takes the most likely action."""

    title: str  # a sentence for users of the file
    notes: str  # what the numbers of observations and actions stand for; "" for themselves
    shape: tuple[int, ...]  # of an observation; () of a choice
    size: int  # inputs of the network: (observation - mean) * scale, within +-limit, where a
    mean: Array  # choice is one 1 among zeros; (size,) float32
    scale: Array  # (size,) float32
    limit: float  # infinity for none
    statements: list[Statement]  # the last one makes the outputs
    arrays: dict[str, Array]  # parameters by their names, float32
    head: Head  # makes actions of the outputs
    is_masked: bool  # whether the caller says which actions are allowed
    state_size: int  # numbers that the policy remembers, zeros before an episode
    probe: Array  # an observation, for a test; with memory (PROBED, ...), one after the other
    expected: Array  # (head.size,) float32, outputs for it; with memory (PROBED, head.size)

    @classmethod
    def of(cls, title: str, policy: Any, is_masked: bool, notes: str = "") -> ExportedPolicy:
        """Return the program of a policy: one with `networks`, `head` and a normalisation.

        Args:
            title: a sentence for users of the file.
            policy: the policy.
            is_masked: whether the caller says which actions are allowed.
            notes: what the numbers of observations and actions stand for; "" for themselves.

        Raises:
            ValueError: a layer has no operation here.
        """
        network: Network = policy.networks()["policy"]
        mean, scale, limit = policy.scaling
        statements = statements_of(network.plan)
        state_size = sum(each.options.get("remembered", 0) for each in statements)
        probe = _probe(policy.observation_shape, mean, scale, PROBED if state_size else 1)
        expected = np.zeros((len(probe), policy.head.size), np.float32)
        state = policy.initial_state(1) if state_size else None
        for row, observation in zip(expected, probe, strict=True):
            if state_size:
                outputs, state = policy.outputs(observation[None], state)
            else:
                outputs = policy.outputs(observation[None])
            row[:] = outputs[0, : policy.head.size]
        return cls(
            title=title,
            notes=notes,
            shape=policy.observation_shape,
            size=mean.size,
            mean=mean,
            scale=scale,
            limit=shortest(limit)[0],
            statements=statements,
            arrays={name: array.astype(np.float32) for name, array in network.arrays().items()},
            head=policy.head,
            is_masked=is_masked,
            state_size=state_size,
            probe=probe if state_size else probe[0],
            expected=expected if state_size else expected[0],
        )

    def described(self) -> dict[str, Any]:
        """Return all but the arrays and the test, as JSON takes it."""
        head = self.head
        numbers = {
            name: shortest(getattr(head, name)) for name in ("center", "half", "low", "high")
        }
        return {
            "format": "rlcpu policy 1",
            "title": self.title,
            "notes": self.notes,
            "shape": list(self.shape),
            "size": self.size,
            # JSON has no infinity, and beyond float32's largest number nothing is clipped either.
            "clip": min(self.limit, float(np.finfo(np.float32).max)),
            "statements": [each._asdict() for each in self.statements],
            "choices": list(head.choices),
            "is_list": head.is_list,
            "is_masked": self.is_masked,
            "state_size": self.state_size,
            "is_squashed": head.is_squashed,
            **numbers,
        }

    def check_operations(self, operations: Any, format: str) -> None:
        """Raise ValueError where the operations of a format lack one of the policy's."""
        for each in self.statements:
            if each.operation not in operations:
                raise ValueError(f"the layer {each.operation!r} cannot be exported to {format}")


def shortest(array: Array) -> list[float]:
    """Return float32 numbers as floats of the fewest digits that round to them."""
    return [float(str(x)) for x in array.ravel()]


def _probe(shape: tuple[int, ...], mean: Array, scale: Array, count: int) -> Array:
    """Return observations (count, *shape) to test a file with: near the mean, or choices."""
    if not shape:  # the last choice, then the one before, ...
        return mean.size - 1 - np.arange(count) % mean.size
    noise = np.random.default_rng(0).normal(size=(count, mean.size))
    rows = mean + noise / np.where(scale > 0, scale, 1.0)
    return rows.astype(np.float32).reshape(count, *shape)


def statements_of(plan: NetworkPlan) -> list[Statement]:
    """Return the statements of a network with one input; its outputs are concatenated.

    A step of the plan says where in memory its input and output lie: `values` has for each place
    the number of the value that is there. Copies become no statements: a value is read again.

    Raises:
        ValueError: a layer has no operation here.
    """
    statements: list[Statement] = []
    (network_input,) = plan.inputs
    values = {int(TensorPlace(*network_input).offset): 0}
    concatenated: dict[int, list[int]] = {}  # by place, values that are copied to parts of it
    state_size = 0

    def add(
        operation: str,
        sources: list[int],
        size: int,
        arrays: Sequence[str] = (),
        options: dict[str, int] | None = None,
    ) -> int:
        """Add a statement, and return the number of its value."""
        statements.append(Statement(operation, sources, size, list(arrays), options or {}))
        return len(statements)

    for step, kind in zip(plan.steps, plan.kinds, strict=True):
        source, place = values[step.inputs], step.outputs
        if kind is joins.COPY and step.size_in == step.size_out:
            values[place] = source
        elif kind is joins.COPY:
            parts = concatenated.setdefault(place, [])
            parts.append(source)
            first_column = step.option
            if first_column + step.size_in == step.size_out:  # the last part
                values[place] = add("concatenate", parts, step.size_out)
        elif kind not in OPERATIONS:
            raise ValueError(f"the layer {kind.name!r} cannot be exported: use built-in layers")
        else:
            sources = [values[place], source] if kind is joins.ADD else [source]
            arrays = [x.name for x in plan.arrays if step.parameters <= x.packed < step.end]
            options = _options_of(OPERATIONS[kind], step)
            if kind.name in REMEMBERED:
                count = REMEMBERED[kind.name] * step.size_out
                options = {"state": state_size, "remembered": count}
                state_size += count
            if step.are_planes:
                channels = {"channels": step.channels}
                sources = [add("channels_last", sources, step.size_in, options=channels)]
            values[place] = add(OPERATIONS[kind], sources, step.size_out, arrays, options)
    places = [TensorPlace(*map(int, row)) for row in plan.outputs]
    outputs = [values[place.offset] for place in places]
    if len(outputs) > 1 or outputs[0] != len(statements):
        add("concatenate", outputs, sum(place.size for place in places))
    return statements


def _options_of(operation: str, step: LayerStep) -> dict[str, int]:
    """Return the options of the statement of a step, sizes by name."""
    inputs = {"inputs": step.size_in}
    if operation == "embedding":
        return {**inputs, "choices": step.option}
    if operation == "layer_norm":
        return {"group": step.channels or step.size_in}
    if operation in ("convolution", "max_pool"):
        names = "height", "width", "channels", "window", "stride", "padding"
        return {name: getattr(step, name) for name in names}
    if operation == "dueling":
        return {"streams": step.size_in - step.size_out}
    if operation == "means":
        return {"count": step.size_in // step.size_out}
    return inputs if operation == "dense" else {}


def sizes_of(program: ExportedPolicy) -> list[int]:
    """Return how many numbers each value has."""
    return [program.size, *(each.size for each in program.statements)]
