"""Layers that make action values of what a network learns: agents act by a network's first output.

They have no parameters. A network whose outputs are more than action values, such as quantiles of
the returns, has the values as its first output, made by layers of the others:

    quantiles = nn.Dense(64) >> nn.Relu() >> nn.Dense(num_actions * num_quantiles)
    network = nn.Network(4, {"values": quantiles >> nn.Means(num_actions), "quantiles": quantiles})

So losses, rollouts, predictions, priorities and exported files have the same values. A layer of a
user's own is written as these are, see `rlcpu.nn.CustomLayer`.
"""

from __future__ import annotations

from typing import Any

from rlcpu.kernels.checks import check_count
from rlcpu.nn.layers.custom import CustomLayer


class Dueling(CustomLayer):
    """Values of actions, of how much better they are than the mean and of the state's value.

    Inputs are advantages of all actions, then the value of the state, each of the same number of
    streams: 1, or as many as there are quantiles. Outputs are for each action a and stream q

        value[q] + advantages[a, q] - mean over actions of advantages[., q]

    Source: Wang et al. 2016, "Dueling network architectures", equation 9.

    Args:
        num_actions: how many actions there are.

    Raises:
        ValueError: inputs are no whole number of streams.

    Example:
        >>> from rlcpu import nn
        >>> nn.Network(4, nn.Dense(2 + 1) >> nn.Dueling(2)).output_sizes
        {'output': 2}
    """

    def __init__(self, num_actions: int) -> None:
        self.num_actions = check_count("num_actions", num_actions)

    def __repr__(self) -> str:
        return f"Dueling({self.num_actions})"

    def output_size(self, inputs: int) -> int:
        """Return how many values it makes of advantages and state values."""
        streams = check_groups(self, inputs, self.num_actions + 1)
        return streams * self.num_actions

    # Plain functions of one sample: without `self`, as `CustomLayer` says.

    def forward(x: Any, parameters: Any, y: Any) -> None:
        """Write values y (actions * streams,) of x (actions * streams + streams,)."""
        streams = x.size - y.size
        num_actions, last = y.size // streams, y.size - streams
        for q in range(streams):  # the last action's values hold the same addend of all actions
            y[last + q] = 0.0
        for a in range(num_actions):
            for q in range(streams):
                y[last + q] -= x[a * streams + q]
        for q in range(streams):
            y[last + q] = x[y.size + q] + y[last + q] / float(num_actions)
        for k in range(last):
            y[k] = x[k] + y[last + k % streams]
        for q in range(streams):
            y[last + q] += x[last + q]

    def by_inputs(x: Any, parameters: Any, slopes: Any, out: Any) -> None:
        """Add derivatives by advantages and state values."""
        size, streams = slopes.size, x.size - slopes.size
        num_actions = size // streams
        for q in range(streams):
            total = 0.0
            for a in range(num_actions):
                total += slopes[a * streams + q]
            out[size + q] += total
            for a in range(num_actions):
                out[a * streams + q] += slopes[a * streams + q] - total / float(num_actions)


class Means(CustomLayer):
    """Means of groups of numbers that follow each other, such as the quantiles of each action.

    Args:
        count: how many groups there are, which is how many numbers it makes.

    Raises:
        ValueError: inputs are no whole number of groups of one size.

    Example:
        >>> from rlcpu import nn
        >>> nn.Network(6, nn.Means(2)).outputs([[1, 2, 3, 4, 5, 6]])
        array([[2., 5.]], dtype=float32)
    """

    def __init__(self, count: int) -> None:
        self.count = check_count("count", count)

    def __repr__(self) -> str:
        return f"Means({self.count})"

    def output_size(self, inputs: int) -> int:
        """Return how many groups there are."""
        check_groups(self, inputs, self.count)
        return self.count

    def forward(x: Any, parameters: Any, y: Any) -> None:
        """Write the mean of each group."""
        size = x.size // y.size
        for k in range(y.size):
            total = 0.0
            for i in range(size):
                total += x[k * size + i]
            y[k] = total / float(size)

    def by_inputs(x: Any, parameters: Any, slopes: Any, out: Any) -> None:
        """Add derivatives by the numbers of each group."""
        size = x.size // slopes.size
        for k in range(slopes.size):
            for i in range(size):
                out[k * size + i] += slopes[k] / float(size)


def check_groups(layer: CustomLayer, inputs: int, count: int) -> int:
    """Return the size of `count` equal groups of inputs; ValueError if there are no such groups."""
    size, rest = divmod(inputs, count)
    if rest or size == 0:
        raise ValueError(f"{layer!r} has {inputs} inputs: expected a multiple of {count}")
    return size
