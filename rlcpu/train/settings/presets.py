"""Networks of agents by their names: the layers between an observation and what the agent reads.

    network="gru"                                        # a preset, made of the agent's settings
    network=lambda space: nn.Dense(64) >> nn.Gru(64)     # your own, of an observation space

An agent puts its outputs behind them, one dense layer for each. The parts of a `Dict` are inputs by
their names: `nn.Concatenate(nn.Input("speed"), nn.Input("camera") >> ...)`. A preset gives images
and boards to convolutions, and joins what these make with all other parts.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from gymnasium.spaces import Dict, Space

from rlcpu import nn
from rlcpu.envs.acting.networks import image_shape, make_layers
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.layout.groups import is_image
from rlcpu.nn.network.graph import hidden_layers

#: (observation space) -> the layers behind an observation.
Layers = Callable[[Space[Any]], nn.Graph]


def perceptron(config: Any, space: Space[Any]) -> nn.Graph:
    """Return dense layers of `hidden` units, each with the activation."""
    return _dense(config)


def remembering(memory: Callable[[int], nn.Graph], config: Any, space: Space[Any]) -> nn.Graph:
    """Return dense layers of `hidden` units, the last one a layer that `memory(units)` makes.

    Images of a `Dict` are convolved first.
    """
    *sizes, last = config.hidden
    layers = [hidden_layers(sizes, config.activation)] if sizes else []
    if isinstance(space, Dict) and any(map(is_image, space.values())):
        layers = [convolved(config, space), *layers]
    return functools.reduce(operator.rshift, [*layers, memory(last)])


def convolution(config: Any, space: Space[Any]) -> nn.Graph:
    """Return convolutions of images and boards, then dense layers of `hidden` units."""
    return _behind(convolved(config, space), config)


def impala(config: Any, space: Space[Any]) -> nn.Graph:
    """Return residual blocks of images and boards, then dense layers of `hidden` units."""
    return _behind(through_blocks(config, space), config)


def convolved(config: Any, space: Space[Any]) -> nn.Graph:
    """Return convolutions of an image or board, joined with the other parts of a `Dict`.

    A board has one, of 3 x 3 cells (Young & Tian 2019, "MinAtar"); an image of 36 pixels or more
    those of Mnih et al. 2015, "Human-level control through deep reinforcement learning".
    """
    if isinstance(space, Dict):
        return _joined(convolved, config, space)
    image = _image(config, space)
    is_large = min(image.height, image.width) >= 36
    convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if is_large else ((16, 3, 1),)
    layers: nn.Graph = image
    for channels, window, stride in convolutions:
        layers = layers >> nn.Convolution(channels, window, stride=stride)
        layers = layers >> nn.LayerNorm(each_pixel=True) if _normalises(config) else layers
        layers = layers >> nn.Relu()
    return layers


def through_blocks(config: Any, space: Space[Any]) -> nn.Graph:
    """Return three stacks of residual blocks, joined with the other parts of a `Dict`.

    Source: Espeholt et al. 2018, "IMPALA", figure 3.
    """
    if isinstance(space, Dict):
        return _joined(through_blocks, config, space)
    layers: nn.Graph = _image(config, space)
    for channels in (16, 32, 32):
        layers = layers >> nn.Convolution(channels, 3, padding=1) >> nn.MaxPool(3, 2, padding=1)
        for _ in range(2):
            first, second = (nn.Convolution(channels, 3, padding=1) for _ in range(2))
            layers = layers >> nn.Residual(nn.Relu() >> first >> nn.Relu() >> second)
    return layers >> nn.Relu()


def _joined(layers: Callable[[Any, Space[Any]], nn.Graph], config: Any, space: Dict) -> nn.Graph:
    """Return the parts of a `Dict`, concatenated; images and boards go through `layers` first."""
    if not any(map(is_image, space.values())):
        raise _no_image(config, space)
    parts: list[nn.Graph] = [
        nn.Input(name) >> layers(config, part) if is_image(part) else nn.Input(name)
        for name, part in space.items()
    ]
    return parts[0] if len(parts) == 1 else nn.Concatenate(*parts)


def _no_image(config: Any, space: Space[Any]) -> ValueError:
    """Return the exception for a preset that needs images, and a space without any."""
    return ValueError(
        f"network={config.network!r}: observations are of {space}, expected images or boards of "
        "three axes"
    )


def _image(config: Any, space: Space[Any]) -> nn.Image:
    """Return the layer that says how an observation is an image."""
    sizes = image_shape(space)
    if sizes is None:
        raise _no_image(config, space)
    height, width, channels, are_planes = sizes
    return nn.Planes(channels, height, width) if are_planes else nn.Image(height, width, channels)


def _normalises(config: Any) -> bool:
    return getattr(config, "layer_norm", False)


def _dense(config: Any) -> nn.Graph:
    """Return the hidden layers of the config, each with the activation."""
    return hidden_layers(config.hidden, config.activation, _normalises(config))


def _behind(layers: nn.Graph, config: Any) -> nn.Graph:
    """Return layers followed by the dense ones of the config."""
    return layers >> _dense(config) if config.hidden else layers


#: By name, (config, observation space) -> layers.
PRESETS: dict[str, Callable[[Any, Space[Any]], nn.Graph]] = {
    "mlp": perceptron,
    "conv": convolution,
    "impala": impala,
    "mingru": functools.partial(remembering, nn.MinGru),
    "gru": functools.partial(remembering, nn.Gru),
    "lstm": functools.partial(remembering, nn.Lstm),
}


def layers_of(config: Any) -> Layers:
    """Return the function that makes layers: the preset that `config.network` names, or itself."""
    network = config.network
    if not callable(network):
        return functools.partial(PRESETS[network], config)

    def make(space: Space[Any]) -> nn.Graph:
        layers = network(space)
        if not isinstance(layers, nn.Graph):
            raise TypeError(f"network returned {layers!r}: expected layers, such as nn.Dense(64)")
        return layers

    return make


#: (layers behind an observation) -> the layers of the outputs, or of each output by its name.
Outputs = Callable[[nn.Graph], nn.Graph | dict[str, nn.Graph]]


def network_of_observations(
    config: Any, dynamics: Dynamics, outputs: Outputs, seed: int
) -> nn.Network:
    """Return a network of an observation, with outputs behind the layers of the config."""
    layers = make_layers(layers_of(config), dynamics.observation_space)
    return nn.Network(dynamics.observation_size, outputs(layers), seed=seed)


#: Functions of the layers that presets of images have in front of their hidden ones.
_IN_FRONT = {"conv": convolved, "impala": through_blocks}


def network_of_critic(
    config: Any, dynamics: Dynamics, outputs: tuple[int, ...], seed: int
) -> nn.Network:
    """Return a network of an observation and an action that is several critics, of so many outputs.

    In each the observation goes through a preset's convolutions, all layers of another preset, or
    the user's layers; then the action is joined to it, and hidden layers follow. So the memory of
    critics does not depend on the actions that they value. Outputs are one after the other.
    """
    name = config.network
    if not callable(name) and name in _IN_FRONT:
        front: Layers = functools.partial(_IN_FRONT[name], config)
    else:
        front = layers_of(config)

    def critic(size: int) -> nn.Graph:
        features = nn.Input("observation") >> make_layers(front, dynamics.observation_space)
        joined = nn.Concatenate(features, nn.Input("action"))
        return joined >> _dense(config) >> nn.Dense(size, 1.0)

    critics = [critic(size) for size in outputs]
    graph = critics[0] if len(critics) == 1 else nn.Concatenate(*critics)
    sizes = {"observation": dynamics.observation_size, "action": dynamics.action_size}
    return nn.Network(sizes, graph, seed=seed)


def fitting_network(space: Space[Any]) -> str:
    """Return the preset for observations of a space: "conv" where there are images or boards.

    Boards of fewer than five rows or columns leave a convolution of 3 x 3 little to slide over.
    """
    parts = space.values() if isinstance(space, Dict) else [space]
    sizes = [sizes for part in parts if (sizes := image_shape(part)) is not None]
    return "conv" if any(min(height, width) >= 5 for height, width, *_ in sizes) else "mlp"


def check_network_setting(network: Any) -> None:
    """Raise ValueError unless it is the name of a preset, or a function."""
    if not callable(network) and network not in PRESETS:
        names = ", ".join(f'"{name}"' for name in PRESETS)
        raise ValueError(
            f"network={network!r}: expected {names}, or a function of an observation space that "
            "returns layers"
        )
