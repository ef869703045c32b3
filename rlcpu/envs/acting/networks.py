"""Policies that are neural networks: `NetworkPolicy`, `MLP` and `Linear`."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space

from rlcpu.envs.acting.running import RunsNetworks, check_limit
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.policies import Array, PolicyArrays, PolicyCode
from rlcpu.envs.contract.unfit import ARRAYS
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.layout.groups import inputs_by_part, num_inputs
from rlcpu.kernels.checks import as_numbers, check_count, check_seed
from rlcpu.nn.layers import Dense, Parts
from rlcpu.nn.network.acting import Acting
from rlcpu.nn.network.graph import ACTIVATIONS, Network, num_parameters, orthogonal
from rlcpu.nn.network.heads import ActCategoricals, ActScaled, Head
from rlcpu.nn.network.passes import LinkedNetworks

#: Allowed values of attributes.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": ("tanh", "relu"),
    "value": ("separate", "shared", None),
    "deterministic": (False, True),
    "scale_actions": (False, True),
}
#: Attributes that cannot be set.
_FIXED = ("hidden", "sizes", "value_sizes")
#: Weights of one layer at most: 1 GiB.
_MOST_WEIGHTS = 2**28
_MODULES = {"Tanh": "tanh", "ReLU": "relu"}


class NetworkPolicy(RunsNetworks):
    """A policy by any network, such as one with normalised layers or residual sums.

    Its head is that of `MLP`: a categorical distribution of a `Discrete`, one for each number of a
    `MultiDiscrete`, or a Gaussian of a `Box` whose deviations do not depend on the observation.

    Args:
        observation_space: one environment's; see `MLP`.
        action_space: one environment's.
        network: has one input, the observation, and an output for each action, or for each number
            of a `Box`; with the value "shared" one more, the last one. Outputs with names count
            one after the other.
        value: a network of one output; "shared"; or None for a policy without a value.

    Attributes:
        parameters, value_parameters: (P,) and (Q,) float32, those of the networks.
        log_std, observation_mean, observation_scale, observation_limit: see `MLP`.
        scale_actions, deterministic, value: see `MLP`; the value of a network of its own is
            "separate".
        head: makes the most likely action of outputs, see `rlcpu.nn.network.heads.Head`.

    Raises:
        TypeError, ValueError: a network does not fit the spaces.

    Example:
        >>> from rlcpu import nn
        >>> layers = nn.Dense(8) >> nn.LayerNorm() >> nn.Relu() >> nn.Dense(2)
        >>> NetworkPolicy(Box(-1.0, 1.0, (3,)), Discrete(2), nn.Network(3, layers))
        NetworkPolicy(3 inputs, 2 outputs, value=None, 66 parameters)
    """

    #: Number of times that an attribute was set; see `rlcpu.envs.contract.policies.Policy`.
    version = 0
    _networks: dict[str, Network]

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        network: Network,
        value: Network | str | None = None,
    ) -> None:
        if value == "separate":
            raise ValueError(f'value={value!r}: expected a network, "shared" or None')
        critic = value if isinstance(value, Network) else None
        kind_of_value: Any = value if critic is None else "separate"
        inputs = self._set_spaces(observation_space, action_space, kind_of_value)
        check_network("policy", network, inputs, self.head.size + (value == "shared"))
        self._networks, self.parameters = {"policy": network}, network.parameters
        self.value_parameters = np.zeros(0, np.float32)
        if critic is not None:
            check_network("value", critic, inputs, outputs=1)
            self._networks["value"], self.value_parameters = critic, critic.parameters

    @classmethod
    def of_layers(
        cls,
        observation_space: Space[Any],
        action_space: Space[Any],
        layers: Callable[[Space[Any]], Any],
        value: str | None = None,
        seed: int = 0,
    ) -> NetworkPolicy:
        """Return a policy of layers that a function makes, with a dense layer of outputs behind.

        The outputs begin with weights of gain 0.01, a value's with 1, as those of `MLP`.

        Args:
            observation_space: one environment's; see `MLP`.
            action_space: one environment's.
            layers: observation space -> layers between an observation and the outputs.
            value: "separate" calls it again, for a network of the value's own; "shared" puts the
                value behind the same layers; None leaves it out.
            seed: of the initial weights.

        Raises:
            TypeError, ValueError: layers do not fit the spaces.

        Example:
            >>> from rlcpu import nn
            >>> spaces = Box(-1.0, 1.0, (3,)), Discrete(2)
            >>> NetworkPolicy.of_layers(*spaces, lambda space: nn.Gru(16), "shared")
            NetworkPolicy(3 inputs, 3 outputs, value='shared', 1,059 parameters)
        """
        seeds = np.random.default_rng(check_seed(seed)).integers(2**31, size=2).tolist()
        size = view_of(observation_space).num_inputs
        hidden = make_layers(layers, observation_space)
        graph: Any = hidden >> Dense(Head.of(action_space).size, gain=0.01)
        if value == "shared":
            graph = {"policy": graph, "value": hidden >> Dense(1, gain=1.0)}
        critic: Any = value
        if value == "separate":
            hidden_of_value = make_layers(layers, observation_space)
            critic = Network(size, hidden_of_value >> Dense(1, gain=1.0), seed=seeds[1])
        return cls(observation_space, action_space, Network(size, graph, seed=seeds[0]), critic)

    def _set_spaces(self, observation_space: Any, action_space: Any, value: str | None) -> int:
        """Set the attributes that follow from the spaces; return the size of a network's input."""
        self.value, self.deterministic, self._linked = value, False, LinkedNetworks()
        self.view, self.head = view_of(observation_space), Head.of(action_space)
        self.scale_actions = False
        self.observation_shape, inputs = shape_of(self.view), self.view.num_inputs
        self.log_std = np.zeros(self.head.center.size, np.float32)  # none of a `Discrete`
        self.observation_mean = np.zeros(inputs, np.float32)
        self.observation_scale = np.ones(inputs, np.float32)
        self.observation_limit = np.array(np.inf, np.float32)
        return inputs

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute after a check of its value, and count that in `version`."""
        if name in _CHOICES:
            value = bool(value) if isinstance(value, np.bool_) else value
            if not isinstance(value, str | bool | None) or value not in _CHOICES[name]:
                *others, last = (f'"{v}"' if isinstance(v, str) else v for v in _CHOICES[name])
                raise ValueError(
                    f"{name}={value!r}: expected {', '.join(map(str, others))} or {last}"
                )
            if name == "scale_actions":
                self.head = self.head.scaled(bool(value))
        elif name in ARRAYS:
            with np.errstate(over="ignore"):
                value = np.asarray(as_numbers(f"policy.{name}", value), np.float32, order="C")
        elif name == "observation_limit":
            value = check_limit(value)
        elif name in _FIXED and name in vars(self):
            raise ValueError(f"{name}={value!r}: the sizes of a policy are fixed, make another one")
        super().__setattr__(name, value)
        vars(self)["version"] = self.version + 1

    def __repr__(self) -> str:
        count = self.parameters.size + self.value_parameters.size + self.log_std.size
        sizes = f"{self.num_inputs} inputs, {self.num_outputs} outputs"
        return f"{type(self).__name__}({sizes}, value={self.value!r}, {count:,} parameters)"

    def networks(self) -> dict[str, Network]:
        """Return the networks "policy" and, of a separate value, "value"."""
        arrays = {"policy": self.parameters, "value": self.value_parameters}
        for name, network in self._networks.items():
            network.parameters = arrays[name]  # users may have set another array
        return self._networks

    def with_own_networks(self) -> NetworkPolicy:
        """Return a copy with networks of its own, which still has the arrays of this policy."""
        other = copy.copy(self)
        other._linked = LinkedNetworks()
        other._networks = {name: copy.copy(each) for name, each in self.networks().items()}
        return other

    @property
    def num_inputs(self) -> int:
        """Return how many numbers the networks get for an observation."""
        return sum(self.networks()["policy"].input_sizes.values())

    @property
    def num_outputs(self) -> int:
        """Return how many outputs the policy's network has, a shared value among them."""
        return sum(self.networks()["policy"].output_sizes.values())

    def _dense_layers(self) -> dict[str, Any]:
        """Return the fields of `PolicyArrays` that an `MLP` alone has; devices run no others."""
        return {}

    def _acting(self, name: str) -> Any:
        """Return a network, "policy" or "value", ready to act, with its present parameters."""
        plan = self.networks()[name].plan  # `flat` is how many parameters it has
        array = self._checked("value_parameters" if name == "value" else "parameters", plan.flat)
        return self._linked.of(name, Acting, plan, array)

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Return the `PolicyCode`; raise ValueError if sizes do not fit the environment."""
        head, choices = Head.of(dynamics.action_space), dynamics.choices
        value = self.value or "none"
        # `center` has a number for each of a `Box`'s action, and none for choices.
        num_outputs, num_stds = head.size + (value == "shared"), head.center.size
        wanted = (dynamics.observation_size, num_outputs, num_stds)
        if (self.num_inputs, self.num_outputs, self.log_std.size) != wanted:
            raise ValueError(
                f"policy has {self.num_inputs} inputs, {self.num_outputs} outputs and "
                f"{self.log_std.size} standard deviations: {dynamics.id} needs "
                f"{dynamics.observation_size}, {num_outputs} and {num_stds}"
            )
        if choices:
            act, draws = ActCategoricals(choices), len(choices)
            code = PolicyCode(draws=draws, value=value, head=act, outputs=head.size)
            return code._replace(masked=dynamics.num_masked > 0)
        draws = 1 if dynamics.is_discrete else 2 * dynamics.action_size  # two for a normal number
        if self.scale_actions:
            scaling = self.head
            if not (
                np.array_equal(scaling.low, head.low) and np.array_equal(scaling.high, head.high)
            ):
                bounds = f"{scaling.low.tolist()} to {scaling.high.tolist()}"
                raise ValueError(
                    f"policy scales actions to their bounds, {bounds}: {dynamics.id} has "
                    f"action_space={dynamics.action_space}"
                )
            scaled = ActScaled(tuple(scaling.center.tolist()), tuple(scaling.half.tolist()))
            size = head.size
            return PolicyCode(num_params=size, draws=draws, value=value, head=scaled, outputs=size)
        return PolicyCode(draws=draws, value=value, masked=dynamics.num_masked > 0)

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return the `PolicyArrays`; raise ValueError if an array has another size now."""
        inputs, networks = self.num_inputs, self.networks()
        counts = {name: network.plan.flat for name, network in networks.items()}  # of parameters
        return PolicyArrays(
            weights=self._checked("parameters", counts["policy"]),
            value_weights=self._checked("value_parameters", counts.get("value", 0)),
            log_std=self._checked("log_std", 0 if dynamics.is_discrete else dynamics.action_size),
            mean=self._checked("observation_mean", inputs),
            scale=self._checked("observation_scale", inputs),
            limit=self.observation_limit,
            greedy=self.deterministic,
            network=self._acting("policy"),
            value_network=self._acting("value") if "value" in networks else None,
            **self._dense_layers(),
        )

    def _checked(self, name: str, size: int) -> Array:
        """Return an array attribute; raise ValueError unless it has the size kernels assume."""
        array = getattr(self, name)
        if array.shape != (size,):
            raise ValueError(f"policy.{name} has shape {array.shape}: expected ({size},)")
        checked: Array = array
        return checked

    def state(self) -> dict[str, Array]:
        """Return by name all arrays that users and agents may change, which checkpoints keep."""
        return {name: getattr(self, name) for name in (*ARRAYS, "observation_limit")}

    def evaluate(self, observations: npt.ArrayLike) -> Array:
        """Return the values, (n,) float32, of observations (n, observation_size).

        Raises:
            ValueError: the policy has no value head, or observations have another shape.
            FloatingPointError: observations, parameters or values are NaN or infinite.
        """
        if self.value is None:
            raise ValueError("policy has no value head: make it with value= separate or shared")
        if self.value == "shared":
            outputs, _ = self._run("policy", observations)  # and new states of a memory
            return outputs[:, -1].copy()
        values, _ = self._run("value", observations)
        return values[:, 0]

    @property
    def _num_read(self) -> int:
        """Return how many outputs the head reads: all but a shared value."""
        return self.num_outputs - (self.value == "shared")


class MLP(NetworkPolicy):
    """A multi-layer perceptron with a categorical (`Discrete`) or Gaussian (`Box`) head.

    For a `MultiDiscrete` it has independent categorical distributions, their logits one after the
    other.

    Weights are orthogonal with gain sqrt(2) in hidden layers, 0.01 in the policy's last layer and
    1 in the value's, biases 0 (Andrychowicz et al. 2021, "What matters for on-policy deep
    actor-critic methods?"). The Gaussian's standard deviations do not depend on the observation.

    Args:
        observation_space: one environment's. Of a `Discrete` the networks see `observation_size`
            zeros and one one, of planes all cells, one after the other.
        action_space: one environment's, `Discrete`, `MultiDiscrete` or `Box`.
        hidden: sizes of the hidden layers.
        activation: "tanh" or "relu", of the hidden layers.
        value: "separate" gives the value a network of its own, "shared" makes it one more output
            of the policy's, None leaves it out.
        seed: of the initial weights.

    Attributes:
        sizes, value_sizes: (L + 1,) int64, the layers of the two networks, which are fixed.
        parameters, value_parameters: (P,) and (Q,) float32, all weights of a network: layer after
            layer, weights (inputs, outputs) row-major, then biases (outputs,). Writable in place.
        log_std: (action_size,) float32, logarithms of the Gaussian's standard deviations.
        scale_actions: whether the Gaussian is one of numbers that are [-1, 1] where actions are
            within their bounds, which have to be finite; False at first: its numbers are actions.
            `log_std`, outputs and the log-probabilities of rollouts are those of these numbers.
        observation_mean, observation_scale: (observation_size,) float32: the networks see
            (observation - mean) * scale.
        observation_limit: () float32, above 0: they see numbers beyond it as +-limit. Infinity, the
            initial one, is none; agents that normalise observations set 10.
        deterministic: whether to take the most likely action in place of drawing one.

    Raises:
        TypeError, ValueError: for a bad argument, with its name and value.

    Example:
        >>> policy = MLP(Box(-1.0, 1.0, (3,)), Discrete(2), hidden=(8,))
        >>> policy.sizes.tolist(), policy.parameters.shape
        ([3, 8, 2], (50,))
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        value: str | None = "separate",
        seed: int = 0,
    ) -> None:
        self._activation_of_networks, self._networks = "", {}  # `networks` makes them at first use
        self.activation = activation
        inputs = self._set_spaces(observation_space, action_space, value)
        outputs = self.head.size
        self.hidden = tuple(_check_hidden(hidden))
        most = max(map(math.prod, itertools.pairwise([inputs, *self.hidden, outputs])))
        if most > _MOST_WEIGHTS:
            raise ValueError(
                f"hidden={hidden!r}: a layer of {most} weights, expected at most 2**28"
            )
        self.sizes = _read_only([inputs, *self.hidden, outputs + (value == "shared")])
        self.value_sizes = _read_only([inputs, *self.hidden, 1] if value == "separate" else [0])
        rng = np.random.default_rng(check_seed(seed))
        self.parameters = orthogonal(rng, self.sizes, last_gain=0.01)
        if value == "shared":
            rows, columns = self.sizes[-2:].tolist()  # of the last layer's weights; biases follow
            weights = self.parameters[-(rows + 1) * columns : -columns].reshape(rows, columns)
            weights[:, -1] *= 100.0  # the value's: gain 1 in the place of 0.01
        self.value_parameters = orthogonal(rng, self.value_sizes, last_gain=1.0)

    def __repr__(self) -> str:
        layers = "-".join(map(str, self.sizes))
        count = self.parameters.size + self.value_parameters.size + self.log_std.size
        return (
            f"{type(self).__name__}({layers} {self.activation}, value={self.value!r}, "
            f"{count:,} parameters)"
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for sizes in (self.sizes, self.value_sizes):  # copied arrays can be written
            sizes.flags.writeable = False

    @classmethod
    def from_torch(
        cls, module: Any, observation_space: Space[Any], action_space: Space[Any]
    ) -> MLP:
        """Return a policy with the weights of a `torch.nn.Sequential` of Linear and Tanh or ReLU.

        Its last layer has one output per action (`Discrete`) or per number of an action (`Box`),
        and may have one more, the value.

        Raises:
            ValueError: other layers, or sizes that do not fit the spaces.
        """
        forward = getattr(type(module), "forward", None)  # a subclass may compute something else
        is_sequential = getattr(forward, "__qualname__", "") == "Sequential.forward"
        layers = list(module) if is_sequential else []
        # The classes of the layers between the linear ones: one class, or none of a single layer.
        linear, between = layers[::2], {type(layer).__name__ for layer in layers[1::2]}
        if (
            not all(type(layer).__name__ == "Linear" and layer.bias is not None for layer in linear)
            or len(layers) % 2 == 0
            or len(between) > 1
            or not between <= _MODULES.keys()
        ):
            raise ValueError(
                f"module={module!r}: expected a torch.nn.Sequential of Linear layers with biases, "
                "and all Tanh or all ReLU between them"
            )
        outputs = Head.of(action_space).size
        policy = cls(
            observation_space,
            action_space,
            [layer.out_features for layer in linear[:-1]],
            _MODULES[between.pop()] if between else "tanh",
            "shared" if linear[-1].out_features == outputs + 1 else None,
        )
        sizes = [(layer.in_features, layer.out_features) for layer in linear]
        wanted = list(itertools.pairwise(policy.sizes.tolist()))
        if sizes != wanted:
            raise ValueError(f"module has layers of sizes {sizes}: expected {wanted}")
        flat = []
        for layer in linear:  # PyTorch's weights are (outputs, inputs)
            flat += [
                layer.weight.detach().cpu().numpy().T.ravel(),
                layer.bias.detach().cpu().numpy(),
            ]
        policy.parameters[:] = np.concatenate(flat)
        return policy

    def networks(self) -> dict[str, Network]:
        """Return the networks, made anew if users have set another activation."""
        if self._activation_of_networks != self.activation:
            self._activation_of_networks, self._networks = self.activation, {}
            for name, sizes in {"policy": self.sizes, "value": self.value_sizes}.items():
                if sizes.size > 1:
                    flat = np.zeros(num_parameters(sizes), np.float32)
                    self._networks[name] = Network(sizes, self.activation, parameters=flat)
        return super().networks()

    def _dense_layers(self) -> dict[str, Any]:
        return {
            "sizes": self.sizes,
            "value_sizes": self.value_sizes,
            "activation": ACTIVATIONS[self.activation],
        }


class Linear(MLP):
    """Actions from one linear layer: an `MLP` without hidden layers; see there."""

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        value: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, (), value=value, seed=seed)


def view_of(space: Any) -> ObservationView:
    """Return the view of observations of a space, for networks; raise TypeError for others."""
    parts = list(space.values()) if isinstance(space, Dict) else [space]
    for part in parts or [space]:
        known = isinstance(part, Box | Discrete | MultiBinary)
        known |= isinstance(part, MultiDiscrete) and part.nvec.ndim == 1
        if not known or part.dtype in (np.uint32, np.bool_):
            raise TypeError(
                f"observation_space={space!r}: expected a Box, Discrete, MultiBinary, "
                "MultiDiscrete of one axis or a Dict of these; of environments of Gymnasium, and "
                "of planes that are delivered as bits, env.dynamics.observation_space"
            )
    return ObservationView.of_space(space)


def shape_of(view: ObservationView) -> tuple[int, ...]:
    """Return the shape of the array that a policy takes for one observation.

    It is () of a choice from 0 on; groups, other choices and several choices come as the numbers
    that networks get.
    """
    is_array = view.kind not in ("group", "choice", "choices")
    return view.size if is_array else () if view.start == (0,) else (view.num_inputs,)


def make_layers(layers: Callable[[Space[Any]], Any], space: Space[Any]) -> Any:
    """Return the layers that a function makes of an observation space, on one flat input.

    The parts of a `Dict`, of which the function makes layers with inputs by name, are cut from it.
    """
    graph = layers(space)
    return Parts(inputs_by_part(space), graph) if isinstance(space, Dict) else graph


def pixel_scales(space: Any) -> Array:
    """Return factors of a network's inputs, (num_inputs,): 1 / 255 of pixels, 1 of others."""
    parts = space.values() if isinstance(space, Dict) else [space]
    scales = [
        np.full(num_inputs(part), 1.0 / 255.0 if _has_pixels(part) else 1.0, np.float32)
        for part in parts
    ]
    return np.concatenate(scales)


def _has_pixels(space: Any) -> bool:
    """Tell whether a space is of images whose numbers go up to 255."""
    is_box = isinstance(space, Box) and len(space.shape) == 3
    return is_box and float(np.max(space.high)) == 255.0


class ImageShape(NamedTuple):
    """Sizes of images, and which axis has their channels: the first one, or the last."""

    height: int
    width: int
    channels: int
    has_channels_first: bool


def image_shape(space: Any) -> ImageShape | None:
    """Return the shape of images in a space of three axes; None for other spaces.

    Boards have their planes, the channels, first; in other spaces of three axes the shorter one of
    the first and the last is that of channels.
    """
    shape: Any = getattr(space, "shape", None) or ()
    if len(shape) != 3:
        return None
    are_planes = isinstance(space, MultiBinary) or shape[0] < shape[2]
    if not are_planes and shape[0] == shape[2]:  # pixels have their colours last
        are_planes = space.dtype != np.uint8 or bool((space.high <= 1).all())
    channels, height, width = map(int, shape if are_planes else (shape[2], *shape[:2]))
    return ImageShape(height, width, channels, are_planes)


def check_network(
    name: str, network: Any, inputs: int, outputs: int, may_have_more: bool = False
) -> None:
    """Raise TypeError or ValueError unless `network` has one input and outputs of these sizes.

    `name` is that of the argument, for errors. `may_have_more` tells whether other outputs may
    follow a first one that has the size.
    """
    if not isinstance(network, Network):
        raise TypeError(f"{name}={network!r}: expected an nn.Network")
    sizes, output_sizes = network.input_sizes, list(network.output_sizes.values())
    fits = sum(output_sizes) == outputs or (may_have_more and output_sizes[0] == outputs)
    if list(sizes.values()) != [inputs] or not fits:
        raise ValueError(
            f"{name} is a network of inputs {sizes} and outputs {network.output_sizes}: expected "
            f"one input of {inputs} and {outputs} outputs"
        )
    if network.parameters.dtype != np.float32:
        raise TypeError(f"{name} has parameters of {network.parameters.dtype}: expected float32")


def _read_only(numbers: list[int]) -> Array:
    """Return a read-only array of int64."""
    array = np.array(numbers, np.int64)
    array.flags.writeable = False
    return array


def _check_hidden(hidden: Sequence[int]) -> list[int]:
    """Return sizes of hidden layers as ints; raise TypeError or ValueError for others."""
    sized = isinstance(hidden, list | tuple | np.ndarray)
    if not sized or np.ndim(np.array(hidden, object)) != 1:
        raise TypeError(f"hidden={hidden!r}: expected a sequence of ints")
    return [check_count(f"hidden[{i}]", n) for i, n in enumerate(hidden)]
