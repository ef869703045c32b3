"""Networks of agents by their names: the layers between an observation and what the agent reads.

    network="gru"                                        # a preset, made of the agent's settings
    network=lambda space: nn.Dense(64) >> nn.Gru(64)     # your own, of an observation space

An agent puts its outputs behind them, one dense layer for each.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from gymnasium.spaces import Space

from rlcpu import nn

#: What makes the layers of an observation space.
Layers = Callable[[Space[Any]], nn.Graph]


def perceptron(config: Any, space: Space[Any]) -> nn.Graph:
    """Return dense layers of `hidden` units, each with the activation."""
    return _dense(config.hidden, config.activation)


def remembering(memory: Callable[[int], nn.Graph], config: Any, space: Space[Any]) -> nn.Graph:
    """Return such layers, of which the last remembers."""
    *sizes, last = config.hidden
    return _dense(sizes, config.activation) >> memory(last) if sizes else memory(last)


def _dense(sizes: Any, activation: str) -> nn.Graph:
    made = [nn.Dense(size) >> (nn.Tanh() if activation == "tanh" else nn.Relu()) for size in sizes]
    return functools.reduce(operator.rshift, made)


#: By name, (config, observation space) -> layers.
PRESETS: dict[str, Callable[[Any, Space[Any]], nn.Graph]] = {
    "mlp": perceptron,
    "mingru": functools.partial(remembering, nn.MinGru),
    "gru": functools.partial(remembering, nn.Gru),
    "lstm": functools.partial(remembering, nn.Lstm),
}


def layers_of(config: Any) -> Layers:
    """Return what makes the layers that `config.network` names, or is."""
    network = config.network
    if not callable(network):
        return functools.partial(PRESETS[network], config)

    def make(space: Space[Any]) -> nn.Graph:
        made = network(space)
        if not isinstance(made, nn.Graph):
            raise TypeError(f"network returned {made!r}: expected layers, such as nn.Dense(64)")
        return made

    return make


def check_network_setting(network: Any) -> None:
    """Raise ValueError unless it is the name of a preset, or a function."""
    if not callable(network) and network not in PRESETS:
        names = ", ".join(f'"{name}"' for name in PRESETS)
        raise ValueError(
            f"network={network!r}: expected {names}, or a function of an observation space that "
            "returns layers"
        )
