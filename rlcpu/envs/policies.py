"""Policies: what chooses the actions inside a fused rollout.

A policy is either a scalar function of one observation (`Uniform`, or the user's own in `Scalar`)
or a network (`Linear`, `MLP`). Policies compute in float32, whatever the environment's dtype.
"""

from __future__ import annotations

import functools
import itertools
import math
import numbers
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, Space

from rlcpu.envs.dynamics import Dynamics
from rlcpu.kernels.compile import define, kernel
from rlcpu.kernels.mlp import RELU, TANH, forward

Array = npt.NDArray[Any]
_ACTIVATIONS = {"tanh": TANH, "relu": RELU}


class PolicyCode(NamedTuple):
    """What of a policy decides machine code: policies that share it share kernels.

    Attributes:
        act: scalar function (observation, params, uniforms) -> (action, log_prob, value), or None
            for a network.
        params_type: class of its params, if it is a NamedTuple.
        num_params: its fields.
        draws: random numbers that it takes.
        value: where the value comes from: "scalar" function, "shared" or "separate" network, "none".
    """

    act: Callable[..., Any] | None
    params_type: type | None
    num_params: int
    draws: int
    value: str


class PolicyArrays(NamedTuple):
    """The run-time numbers of a policy, as kernels take them.

    Attributes:
        weights, sizes: (P,) float32 and (L + 1,) int64, the policy network, or the scalar
            policy's params.
        value_weights, value_sizes: the value network, if it is a separate one.
        log_std: (action_size,) float32 of a Gaussian.
        mean, scale: (observation_size,) float32: the network sees (observation - mean) * scale,
            clipped to +-10.
        settings: (2,) int64: activation code, 1 for greedy actions.
    """

    weights: Array
    sizes: Array
    value_weights: Array
    value_sizes: Array
    log_std: Array
    mean: Array
    scale: Array
    settings: Array


class Policy(Protocol):
    """What `collect` and `simulate` need of a policy."""

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Its machine code's key, for an environment; raises ValueError if they do not fit."""

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Its present numbers."""


def uniform_discrete(
    observation: tuple[float, ...], params: tuple[float, float], uniforms: tuple[float]
) -> tuple[Any, float, float]:
    """One of `params[0]` actions, each with the log-probability `params[1]`."""
    return np.int32(uniforms[0] * params[0]), params[1], 0.0


@functools.cache
def uniform_box(size: int) -> Callable[..., Any]:
    """Scalar policy that draws each of `size` numbers from [low, low + width).

    Its params are `size` lows, `size` widths, and the log-density.
    """
    items = "".join(f"params[{k}] + params[{size + k}] * uniforms[{k}], " for k in range(size))
    source = f"def act(observation, params, uniforms): return ({items}), params[{2 * size}], 0.0"
    return define(source)


class Uniform:
    """Actions drawn uniformly from the action space, whatever is observed.

    Raises:
        ValueError: when used on a `Box` without finite bounds.
    """

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """See `PolicyCode`."""
        if dynamics.is_discrete:
            return PolicyCode(uniform_discrete, None, 2, 1, "none")
        size = dynamics.action_size
        return PolicyCode(uniform_box(size), None, 2 * size + 1, size, "none")

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """See `PolicyArrays`."""
        space = dynamics.action_space
        if isinstance(space, Discrete):
            return _scalar_arrays((float(space.n), -math.log(space.n)))
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ValueError(f"{dynamics.id}: action_space={space} has to be bounded for Uniform")
        width = space.high.astype(np.float64) - space.low
        return _scalar_arrays((*space.low, *width, -np.log(width).sum()))


class Scalar:
    """The user's own policy, as a scalar function that kernels inline.

    Args:
        act: plain Python function (observation, params, uniforms) -> (action, log_prob, value) of
            ONE environment: observation is a tuple of floats, the action an int of a `Discrete` or
            a tuple of floats of a `Box`; write 0.0 for a log-probability or value of no interest.
        params: NamedTuple (or tuple) of floats that `act` takes, read anew at every call.
        draws: random numbers in [0, 1) that one action takes.

    Raises:
        TypeError: act is no plain function, params is no tuple of numbers, draws is no int.

    Example:
        >>> def lean(observation, params, uniforms):
        ...     return (1 if observation[2] > 0.0 else 0), 0.0, 0.0
        >>> policy = Scalar(lean)
    """

    def __init__(
        self, act: Callable[..., Any], params: tuple[float, ...] = (), draws: int = 0
    ) -> None:
        if not isinstance(act, types.FunctionType):
            raise TypeError(f"act={act!r}: expected a plain Python function")
        if not isinstance(params, tuple) or not all(isinstance(p, numbers.Real) for p in params):
            raise TypeError(f"params={params!r}: expected a NamedTuple or tuple of numbers")
        if not isinstance(draws, int) or draws < 0:
            raise TypeError(f"draws={draws!r}: expected an int of at least 0")
        self.act, self.params, self.draws = act, params, draws

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """See `PolicyCode`; tries the function on one observation first."""
        middle = (0.5,) * self.draws
        state = dynamics.reset((0.5,) * dynamics.reset_draws, dynamics.params)
        observation = dynamics.observe(state, dynamics.params)
        result = self.act(observation, self.params, middle)
        if not isinstance(result, tuple) or len(result) != 3:
            raise TypeError(f"act has to return (action, log_prob, value); returned {result!r}")
        size = len(result[0]) if isinstance(result[0], tuple) else 0
        if size != dynamics.action_size:
            wanted = f"a tuple of {dynamics.action_size} floats" if dynamics.action_size else "an int"
            raise TypeError(f"act has to return an action of {dynamics.id}, {wanted}; got {result[0]!r}")
        kind = type(self.params) if hasattr(self.params, "_fields") else None
        return PolicyCode(self.act, kind, len(self.params), self.draws, "scalar")

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """See `PolicyArrays`."""
        return _scalar_arrays(self.params)


class MLP:
    """A multi-layer perceptron with a categorical (`Discrete`) or Gaussian (`Box`) head.

    Weights are orthogonal with gain sqrt(2) in hidden layers, 0.01 in the policy's last layer and
    1 in the value's, biases 0 (Andrychowicz et al. 2021, "What matters for on-policy deep
    actor-critic methods?"). The Gaussian's standard deviations do not depend on the observation.

    Args:
        observation_space: one environment's, float32, (observation_size,).
        action_space: one environment's, `Discrete` or `Box`.
        hidden: sizes of the hidden layers.
        activation: "tanh" or "relu", of the hidden layers.
        value: "separate" gives the value a network of its own, "shared" makes it one more output
            of the policy's, None leaves it out.
        seed: of the initial weights.

    Attributes:
        sizes, value_sizes: (L + 1,) int64, the layers of the two networks.
        parameters, value_parameters: (P,) and (Q,) float32, all weights of a network: layer after
            layer, weights (inputs, outputs) row-major, then biases (outputs,). Writable in place.
        log_std: (action_size,) float32, logarithms of the Gaussian's standard deviations.
        observation_mean, observation_scale: (observation_size,) float32: the networks see
            (observation - mean) * scale, clipped to +-10.
        deterministic: whether to take the most likely action in place of drawing one.

    Raises:
        TypeError, ValueError: for a bad argument, with its name and value.
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
        if activation not in _ACTIVATIONS:
            raise ValueError(f'activation={activation!r}: expected "tanh" or "relu"')
        if value not in ("separate", "shared", None):
            raise ValueError(f'value={value!r}: expected "separate", "shared" or None')
        inputs = _observation_size(observation_space)
        outputs, stds = _action_outputs(action_space)
        layers = _check_hidden(hidden)
        self.activation, self.value, self.hidden = activation, value, tuple(layers)
        self.sizes = _sizes([inputs, *layers, outputs + (value == "shared")])
        self.value_sizes = _sizes([inputs, *layers, 1] if value == "separate" else [0])
        rng = np.random.default_rng(seed)
        self.parameters = _orthogonal(rng, self.sizes, 0.01)
        if value == "shared":
            _gain_of_last_output(self.parameters, self.sizes, 100.0)
        self.value_parameters = _orthogonal(rng, self.value_sizes, 1.0)
        self.log_std = np.zeros(stds, np.float32)
        self.observation_mean = np.zeros(inputs, np.float32)
        self.observation_scale = np.ones(inputs, np.float32)
        self.deterministic = False

    @classmethod
    def from_torch(
        cls, module: Any, observation_space: Space[Any], action_space: Space[Any]
    ) -> MLP:
        """A policy with the weights of a `torch.nn.Sequential` of Linear and Tanh or ReLU layers.

        Its last layer has one output per action (`Discrete`) or per number of an action (`Box`),
        and may have one more, the value.

        Raises:
            ValueError: other layers, or sizes that do not fit the spaces.
        """
        linear = [layer for layer in module if type(layer).__name__ == "Linear"]
        names = {type(layer).__name__ for layer in module} - {"Linear"}
        if len(names) > 1 or not names <= {"Tanh", "ReLU"} or not linear:
            raise ValueError(f"module={module!r}: expected Linear layers with Tanh or ReLU between")
        outputs, _ = _action_outputs(action_space)
        extra = linear[-1].out_features - outputs
        policy = cls(
            observation_space,
            action_space,
            [layer.out_features for layer in linear[:-1]],
            "relu" if names == {"ReLU"} else "tanh",
            "shared" if extra == 1 else None,
        )
        sizes = [linear[0].in_features, *(layer.out_features for layer in linear)]
        if list(policy.sizes) != sizes:
            raise ValueError(f"module has layers {sizes}: expected {list(policy.sizes)}")
        parts = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in linear]
        flat = [array.ravel() for pair in parts for array in pair]
        policy.parameters[:] = np.concatenate(flat)
        return policy

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """See `PolicyCode`; checks that the sizes fit the environment."""
        outputs, stds = _action_outputs(dynamics.action_space)
        wanted = (dynamics.observation_size, outputs + (self.value == "shared"), stds)
        sizes = (int(self.sizes[0]), int(self.sizes[-1]), len(self.log_std))
        if sizes != wanted:
            raise ValueError(
                f"policy has {sizes[0]} inputs, {sizes[1]} outputs and {sizes[2]} standard "
                f"deviations: {dynamics.id} needs {wanted[0]}, {wanted[1]} and {wanted[2]}"
            )
        draws = 1 if dynamics.is_discrete else 2 * dynamics.action_size
        return PolicyCode(None, None, 0, draws, self.value or "none")

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """See `PolicyArrays`."""
        return PolicyArrays(
            self.parameters,
            self.sizes,
            self.value_parameters,
            self.value_sizes,
            self.log_std,
            self.observation_mean,
            self.observation_scale,
            np.array([_ACTIVATIONS[self.activation], self.deterministic], np.int64),
        )


    def evaluate(self, observations: npt.ArrayLike) -> Array:
        """Values of observations.

        Args:
            observations: (n, observation_size).

        Returns:
            (n,) float32.

        Raises:
            ValueError: the policy has no value head, or observations have another shape.
        """
        if self.value is None:
            raise ValueError("policy has no value head: make it with value= separate or shared")
        if self.value == "shared":
            return self._run(self.parameters, self.sizes, observations)[:, -1]
        return self._run(self.value_parameters, self.value_sizes, observations)[:, 0]

    def outputs(self, observations: npt.ArrayLike) -> Array:
        """Logits (n, num_actions) or means (n, action_size) float32 for (n, observation_size)."""
        count = self.sizes[-1] - (self.value == "shared")
        return self._run(self.parameters, self.sizes, observations)[:, :count]

    def _run(self, parameters: Array, sizes: Array, observations: npt.ArrayLike) -> Array:
        inputs = np.atleast_2d(np.asarray(observations, dtype=np.float32))
        if inputs.shape[1:] != (sizes[0],):
            raise ValueError(
                f"observations have shape {np.shape(observations)}: expected (n, {sizes[0]})"
            )
        scaled = np.clip((inputs - self.observation_mean) * self.observation_scale, -10.0, 10.0)
        rows = np.zeros((sizes[0], -(-max(len(inputs), 1) // 16) * 16), np.float32)
        rows[:, : len(inputs)] = scaled.T
        outputs = run_network(parameters, sizes, _ACTIVATIONS[self.activation], rows)
        return outputs[:, : len(inputs)].T


@kernel
def run_network(parameters, sizes, activation, rows):  # type: ignore[no-untyped-def]
    """Outputs (sizes[-1], lanes) of a network for inputs (sizes[0], lanes)."""
    lanes = rows.shape[1]
    space = np.empty(sizes.sum() * lanes, np.float32)
    space[: rows.size] = rows.ravel()
    first = forward(parameters, sizes, activation, space, lanes)
    return space[first:].reshape(sizes[-1], lanes).copy()


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


def _scalar_arrays(params: Sequence[float]) -> PolicyArrays:
    empty, none = np.zeros(0, np.float32), np.zeros(1, np.int64)
    weights = np.array(params, np.float32)
    settings = np.zeros(2, np.int64)
    return PolicyArrays(weights, none, empty, none, empty, empty, empty, settings)


def _observation_size(space: Any) -> int:
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise TypeError(f"observation_space={space!r}: expected a Box of one dimension")
    return int(space.shape[0])


def _action_outputs(space: Any) -> tuple[int, int]:
    """Outputs of the policy's head, and its standard deviations."""
    if isinstance(space, Discrete):
        return int(space.n), 0
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise TypeError(f"action_space={space!r}: expected a Discrete or a Box of one dimension")
    return int(space.shape[0]), int(space.shape[0])


def _check_hidden(hidden: Sequence[int]) -> list[int]:
    layers = list(hidden)
    if not all(isinstance(n, int | np.integer) and n >= 1 for n in layers):
        raise ValueError(f"hidden={hidden!r}: expected sizes of at least 1")
    return [int(n) for n in layers]


def _sizes(layers: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.array(layers, dtype=np.int64)


def _orthogonal(rng: np.random.Generator, sizes: Array, last_gain: float) -> Array:
    """Flat parameters with orthogonal weights (Saxe et al. 2014) and zero biases."""
    parts = [np.zeros(0)]
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(map(int, sizes))):
        gain = last_gain if layer == len(sizes) - 2 else math.sqrt(2.0)
        tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
        q, r = np.linalg.qr(tall)
        q = q * np.sign(np.diag(r))
        parts += [gain * (q if inputs >= outputs else q.T).ravel(), np.zeros(outputs)]
    return np.concatenate(parts).astype(np.float32)


def _gain_of_last_output(parameters: Array, sizes: Array, gain: float) -> None:
    """Scale the weights of the last output in place."""
    outputs = int(sizes[-1])
    last = parameters[-outputs * (int(sizes[-2]) + 1) : -outputs].reshape(-1, outputs)
    last[:, -1] *= gain
