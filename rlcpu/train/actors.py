"""Policies of agents that learn off-policy: one network, and how it explores.

Each is a policy for `rlcpu.collect` and `rlcpu.simulate`, and acts by a scalar function (see
`rlcpu.nn.heads`),

    act(outputs, uniforms, params, greedy) -> (action, log_prob)

of the network's outputs for one observation, random numbers in [0, 1), and the policy's `params`,
whose first ones say how much it explores: so an agent's random first steps, its learning and its
evaluation run in one kernel. The masked form takes a mask of allowed actions, too. Functions
`act_...` make one of lines of Python, in which each number of an action has lines of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.groups import num_inputs
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.networks import check_network, shape_of, view_of
from rlcpu.envs.policies import PolicyArrays, PolicyCode, uniform_allowed
from rlcpu.envs.results import Rollout
from rlcpu.envs.running import RunsNetworks
from rlcpu.nn.acting import Actings
from rlcpu.nn.heads import (
    Head,
    define_act,
    lines_of_largest,
    log_density,
    loop_largest,
    return_vector,
    standard_normal,
)
from rlcpu.nn.network import Network, orthogonal
from rlcpu.train.presets import network_of_values

Array = npt.NDArray[Any]
#: Bounds beyond this are none: Gymnasium gives speeds those of float32.
_UNBOUNDED = 1e6
#: Range of the logarithm of a squashed Gaussian's deviation; stable-baselines3's.
LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0
LOG_2 = math.log(2.0)


def reusable(rollout: Rollout | None, num_steps: int) -> Rollout | None:
    """Return the last rollout, for the next of `num_steps` to overwrite, or None if it differs."""
    return rollout if rollout is not None and len(rollout.rewards) == num_steps else None


# ---------------------------------------------------------------- scalar functions


def squash(u: float) -> tuple[float, float]:
    """Return tanh(u), and the logarithm of its derivative 1 - tanh(u)**2.

    The latter as 2 (log 2 - u - softplus(-2u)), which stays finite where tanh rounds to 1
    (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", appendix C).
    """
    # abs(u) - u is max(-2u, 0), with the right slope at 0 beside that of the rest.
    softplus = abs(u) - u + math.log(1.0 + math.exp(-2.0 * abs(u)))
    return math.tanh(u), 2.0 * (LOG_2 - u - softplus)


def squashed_gaussian(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """Return one number of an action in (-1, 1), and its log-density.

    With u = mean + exp(log_std) * noise the action is tanh(u), and

        log pi = log Normal(u; mean, exp(log_std)) - log(1 - tanh(u)**2)

    Source: Haarnoja et al. 2018, "Soft actor-critic", equation 21 (appendix C).
    """
    action, log_slope = squash(mean + math.exp(log_std) * noise)
    return action, log_density(noise, log_std) - log_slope


def bounded_log_std(x: float) -> float:
    """Return the output of a network, clipped to the range of a squashed Gaussian's `log_std`."""
    return min(max(x, LOWEST_LOG_STD), HIGHEST_LOG_STD)


@functools.cache
def act_epsilon_greedy(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Make `act`: take the action of the largest output, the first of equals.

    With probability `params[0]`, epsilon, it is any action instead. Source: Watkins 1989, "Learning
    from delayed rewards".

    Args:
        size: number of actions, which have the first outputs.
        masked: whether `act` takes a mask, and chooses among the allowed actions alone.
        loops: see `rlcpu.nn.heads.act_categorical`.
    """
    if loops:
        return _loop_epsilon_greedy(size, masked)
    drawn = f"drawn = i32(uniforms[1] * {float(size)})"
    lines = [
        *lines_of_largest(size, masked),  # sets `best`
        # `draw` is a scalar policy that reads neither of the first two, observation and params.
        "drawn, _, _ = draw((), (), (uniforms[1],), mask)" if masked else drawn,
        "explores = (uniforms[0] < params[0]) and not greedy",
        "return (drawn if explores else best), 0.0",
    ]
    return define_act(lines, masked, draw=uniform_allowed(size))


def _loop_epsilon_greedy(size: int, masked: bool) -> Callable[..., Any]:
    """Return what `act_epsilon_greedy` makes, with loops over actions in the place of lines."""
    i32, count = np.int32, float(size)
    largest, draw = loop_largest(size, masked), uniform_allowed(size, loops=True)

    def act(values, uniforms, params, greedy):
        explores = uniforms[0] < params[0] and not greedy
        return i32(uniforms[1] * count) if explores else largest(values)[1], 0.0

    def act_masked(values, uniforms, params, greedy, mask):
        explores = uniforms[0] < params[0] and not greedy
        drawn = draw((), (), (uniforms[1],), mask)[0] if explores else i32(0)
        return drawn if explores else largest(values, mask)[1], 0.0

    return act_masked if masked else act


@functools.cache
def act_squashed(size: int) -> Callable[..., Any]:
    """Make `act`: draw from a squashed Gaussian, scaled to the bounds of actions.

    Of `size` outputs the first half are means, the others logarithms of deviations. `params` are
    the probability of an action drawn uniformly from the bounds instead, then centres and half
    widths of the bounds.
    """
    count = size // 2
    lines = [f"explores = (uniforms[{2 * count}] < params[0]) and not greedy"]
    for k in range(count):
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            "z = 0.0 if greedy else drawn",
            f"a, l{k} = squashed(outputs[{k}], bounded(outputs[{count + k}]), z)",
            f"a = 2.0 * uniforms[{2 * k}] - 1.0 if explores else a",
            f"a{k} = params[{1 + k}] + params[{1 + count + k}] * a",
        ]
    names: dict[str, Any] = {"squashed": squashed_gaussian, "bounded": bounded_log_std}
    return define_act([*lines, return_vector(count)], normal=standard_normal, **names)


@functools.cache
def act_noisy(size: int) -> Callable[..., Any]:
    """Make `act`: take tanh of `size` outputs plus noise, scaled to the bounds of actions.

    `params` are the probability of an action drawn uniformly from the bounds instead, the deviation
    of the Gaussian noise, then centres and half widths of the bounds.
    """
    lines = [f"explores = (uniforms[{2 * size}] < params[0]) and not greedy"]
    for k in range(size):
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            f"a = tanh(outputs[{k}]) + (0.0 if greedy else params[1] * drawn)",
            f"a = 2.0 * uniforms[{2 * k}] - 1.0 if explores else min(max(a, -1.0), 1.0)",
            f"l{k} = 0.0",
            f"a{k} = params[{2 + k}] + params[{2 + size + k}] * a",
        ]
    return define_act([*lines, return_vector(size)], normal=standard_normal, tanh=math.tanh)


# ---------------------------------------------------------------- policies


class Actor(RunsNetworks):
    """A network that acts; base of the policies below.

    Args:
        dynamics: the environment.
        outputs: of the network.
        hidden: sizes of its hidden layers.
        activation: "tanh" or "relu".
        params: numbers of the head, float32.
        gain: of the weights of the last layer, orthogonal as the others.
        seed: of the weights.
        layer_norm: see `rlcpu.nn.Network`.

    Attributes:
        network: what is learnt.
        params: (any,) float32, what the head reads; the first is the probability of an action drawn
            uniformly.
        observation_mean, observation_scale: (observation_size,) float32: the network sees
            (observation - mean) * scale, clipped to +-10. Bounds of the observation space that are
            below a million become +-1.
        deterministic: whether to act without exploring.
    """

    act: Callable[..., Callable[..., Any]]
    _version = 0

    def __init__(
        self,
        dynamics: Dynamics,
        outputs: int,
        hidden: Sequence[int],
        activation: str,
        params: Sequence[float],
        gain: float,
        seed: int,
        layer_norm: bool = False,
    ) -> None:
        sizes = np.array([dynamics.observation_size, *hidden, outputs])
        rng = np.random.default_rng(seed)
        parameters = orthogonal(rng, sizes, gain, layer_norm)
        self.network = Network(sizes, activation, parameters=parameters, layer_norm=layer_norm)
        self._actings = Actings()
        self.params = np.array(params, np.float32)
        self.observation_mean, self.observation_scale = normalisation(dynamics)
        self.view = view_of(dynamics.observation_space)
        self.observation_shape = shape_of(self.view)
        self.deterministic = False

    def __repr__(self) -> str:
        if not self.network.sizes.size:
            ends = self.network.input_sizes, self.network.output_sizes
            return f"{type(self).__name__}(network of {ends[0]} to {ends[1]})"
        layers = "-".join(map(str, self.network.sizes))
        return f"{type(self).__name__}({layers} {self.network.activation})"

    def use_network(self, network: Any, dynamics: Dynamics) -> None:
        """Act by another network from now on.

        Raises:
            TypeError, ValueError: it does not fit the environment, or what the head reads.
        """
        size = dynamics.observation_size
        check_network("the policy's network", network, size, self._num_read)
        self.network = network

    def use_layers(self, config: Any, dynamics: Dynamics, seed: int, gain: float = 1.0) -> None:
        """Act by the layers that `config.network` names or makes, unless that is "mlp".

        `seed` and `gain`, of the last layer, are those of the weights.

        Raises:
            TypeError, ValueError: they do not fit the environment.
        """
        if config.network != "mlp":
            network = network_of_values(config, dynamics, self._num_read, seed, gain)
            self.use_network(network, dynamics)

    def networks(self) -> dict[str, Network]:
        """Return the network, "policy"."""
        return {"policy": self.network}

    @property
    def head(self) -> Head:
        """Return the head that takes the most likely action of outputs."""
        raise NotImplementedError

    def _draws(self, dynamics: Dynamics) -> int:
        """Return how many uniform random numbers an action takes."""
        return 2 if dynamics.is_discrete else 2 * dynamics.action_size + 1

    def _outputs(self, dynamics: Dynamics) -> int:
        """Return the outputs of the network that the head reads."""
        return self._num_read

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Return what kernels are compiled for, see `rlcpu.envs.policies.PolicyCode`.

        Raises:
            ValueError: the sizes do not fit the environment.
        """
        inputs = sum(self.network.input_sizes.values())
        if inputs != dynamics.observation_size or self._num_params(dynamics) != self.params.size:
            raise ValueError(f"{self!r} does not fit {dynamics.id}")
        draws, outputs = self._draws(dynamics), self._outputs(dynamics)
        masked, count = dynamics.num_masked > 0, self.params.size
        return PolicyCode(None, None, count, draws, "none", type(self).act, outputs, masked)

    def _num_params(self, dynamics: Dynamics) -> int:
        """Return the number of the head's params."""
        return 1

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return what kernels read of it, see `rlcpu.envs.policies.PolicyArrays`."""
        settings = [self.network.code, self.deterministic]
        return PolicyArrays(
            self.network.parameters,
            self.network.sizes,
            np.zeros(0, np.float32),
            np.zeros(1, np.int64),
            self.params,
            self.observation_mean,
            self.observation_scale,
            np.array(settings, np.int64),
            self._acting("policy"),
        )

    def _acting(self, name: str) -> Any:
        """Return the network as rollouts run it, an `rlcpu.nn.acting.Acting`."""
        return self._actings.of(name, self.network.plan, self.network.parameters)

    @property
    def version(self) -> tuple[int, int]:
        """Return counters of what was set here and in the network; see `rlcpu.envs.policies`."""
        return self._version, self.network.version

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("params", "observation_mean", "observation_scale"):
            value = np.asarray(value, np.float32, order="C")
        super().__setattr__(name, value)
        vars(self)["_version"] = self._version + 1

    @property
    def _num_read(self) -> int:
        """Return the number of all outputs."""
        return sum(self.network.output_sizes.values())

    def choose(self, outputs: Array, rng: np.random.Generator | None, *masks: Array) -> Array:
        """Return actions (n,) or (n, action_size) for outputs of the network.

        Args:
            outputs: (n, any).
            rng: draws actions; None for greedy ones.
            *masks: one array (n, num_actions) of bools, which actions are allowed; or none.
        """
        raise NotImplementedError

    def state(self) -> dict[str, Array]:
        """Return the arrays that a user or an agent may change, by name, for checkpoints."""
        normalisation = {"mean": self.observation_mean, "scale": self.observation_scale}
        return {"parameters": self.network.parameters, "params": self.params, **normalisation}


class EpsilonGreedy(Actor):
    """Takes the action of the largest output, or with probability epsilon any; for `Discrete`.

    The network's outputs are values of the actions. One more than there are actions is the value of
    the state, which the others are relative to (`dueling`); it changes no choice.
    """

    act = staticmethod(act_epsilon_greedy)

    def __init__(
        self,
        dynamics: Dynamics,
        hidden: Sequence[int] = (64, 64),
        activation: str = "relu",
        dueling: bool = False,
        seed: int = 0,
        layer_norm: bool = False,
    ) -> None:
        self.num_actions = dynamics.num_actions
        outputs = self.num_actions + dueling
        super().__init__(dynamics, outputs, hidden, activation, [1.0], 1.0, seed, layer_norm)

    @property
    def head(self) -> Head:
        """Return the head that takes the most likely action of outputs."""
        return Head.of_choices((self.num_actions,))

    def _outputs(self, dynamics: Dynamics) -> int:
        return self.num_actions

    def choose(self, outputs: Array, rng: np.random.Generator | None, *masks: Array) -> Array:
        """Return actions; see `Actor.choose`."""
        values = forbid(outputs[:, : self.num_actions], masks[0] if masks else None)
        best: Array = np.argmax(values, axis=1)
        if rng is None:
            return best
        explores = rng.random(best.shape) < self.params[0]
        drawn = rng.integers(self.num_actions, size=best.shape)
        if masks:
            drawn = np.argmax(np.where(np.isfinite(values), rng.random(values.shape), -1.0), axis=1)
        return np.where(explores, drawn, best)

    def values(self, observations: npt.ArrayLike) -> Array:
        """Return Q(s, .), (n, num_actions) float32, for observations; see `Actor.outputs`."""
        outputs = self.outputs(observations)
        values, state_value = outputs[:, : self.num_actions], outputs[:, self.num_actions :]
        if state_value.size:  # Wang et al. 2016, "Dueling network architectures", equation 9
            values = values + state_value - values.mean(axis=1, keepdims=True)
        return values

    def td_errors(
        self, transitions: Mapping[str, Array], view: ObservationView, scale: float
    ) -> Array:
        """Return |scale * r + discount * max_a Q(s', a) - Q(s, a)|, (n,); 0 for Q(s') at an end.

        Args:
            transitions: columns (n, ...), `discount` among them, observations as they are kept.
            view: of the observations.
            scale: of the rewards.
        """
        values = self.values(view.inputs_of_stored(transitions["observation"]))
        value = np.take_along_axis(values, transitions["action"][:, None], axis=1)[:, 0]
        next_values = self.values(view.inputs_of_stored(transitions["next_observation"]))
        if (masks := transitions.get("next_action_mask")) is not None:
            # Where an episode terminated a mask may allow nothing, and no value counts.
            next_values = forbid(next_values, masks | ~masks.any(axis=1, keepdims=True))
        discounts = np.where(transitions["terminated"], np.float32(0), transitions["discount"])
        rewards = np.float32(scale) * transitions["reward"]
        errors: Array = np.abs(rewards + discounts * next_values.max(axis=1) - value)
        return errors


class Squashed(Actor):
    """Base of policies of bounded real numbers, which networks see as numbers in [-1, 1].

    Attributes:
        center, half: (action_size,) float32, an action is center + half * x for x in [-1, 1].
    """

    #: Params of the head that say how it explores, in front of centres and half widths.
    num_exploring = 1
    #: Outputs of the network for each number of an action.
    outputs_per_number = 1

    def __init__(
        self,
        dynamics: Dynamics,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        seed: int = 0,
    ) -> None:
        self.center, self.half = bounds(dynamics)
        exploring = [1.0] + [0.0] * (self.num_exploring - 1)  # the first steps are random
        params = [*exploring, *self.center, *self.half]
        outputs = self.outputs_per_number * dynamics.action_size
        super().__init__(dynamics, outputs, hidden, activation, params, 0.01, seed)

    @property
    def head(self) -> Head:
        """Return the head that takes the most likely action of outputs."""
        return Head.squashed(self.center, self.half)

    def _num_params(self, dynamics: Dynamics) -> int:
        return self.num_exploring + 2 * dynamics.action_size


class SquashedGaussian(Squashed):
    """Draws actions from a Gaussian that tanh squashes; its deviation depends on the observation.

    The first outputs of the network are means, the others logarithms of deviations, clipped to
    [-20, 2]. See `squashed_gaussian`.
    """

    act = staticmethod(act_squashed)
    outputs_per_number = 2

    def choose(self, outputs: Array, rng: np.random.Generator | None, *masks: Array) -> Array:
        """Return actions; see `Actor.choose`."""
        means, log_stds = np.split(outputs, 2, axis=1)
        if rng is not None:
            stds = np.exp(np.clip(log_stds, LOWEST_LOG_STD, HIGHEST_LOG_STD))
            means = means + stds * rng.standard_normal(means.shape)
        return self.head.actions(means)


class Noisy(Squashed):
    """tanh of the network's outputs, and Gaussian noise of one deviation to explore."""

    act = staticmethod(act_noisy)
    num_exploring = 2

    def choose(self, outputs: Array, rng: np.random.Generator | None, *masks: Array) -> Array:
        """Return actions; see `Actor.choose`."""
        actions = np.tanh(outputs)
        if rng is not None:
            noise = self.params[1] * rng.standard_normal(actions.shape)
            actions = np.clip(actions + noise, -1.0, 1.0)
        return (self.center + self.half * actions).astype(np.float32)


def normalisation(dynamics: Dynamics) -> tuple[Array, Array]:
    """Return mean and scale, (observation_size,) float32, that map bounded observations to +-1."""
    space: Any = dynamics.observation_space
    parts = space.values() if isinstance(space, Dict) else [space]
    means, scales = zip(*map(_normalisation_of, parts), strict=True)
    return np.concatenate(means), np.concatenate(scales)


def _normalisation_of(space: Any) -> tuple[Array, Array]:
    """Return mean and scale, (inputs,) float32, that map the bounds of a space to [-1, 1]."""
    if not isinstance(space, Box):
        size = num_inputs(space)
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    low, high = (x.astype(np.float64).ravel() for x in (space.low, space.high))
    is_bounded = (np.abs(low) < _UNBOUNDED) & (np.abs(high) < _UNBOUNDED) & (high > low)
    low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    mean, scale = (low + high) / 2, 2.0 / (high - low)
    return mean.astype(np.float32), scale.astype(np.float32)


def bounds(dynamics: Dynamics) -> tuple[Array, Array]:
    """Return centres and half widths of the actions, (action_size,) each.

    Raises:
        TypeError: actions are no real numbers.
        ValueError: they have no bounds.
    """
    space = dynamics.action_space
    if not isinstance(space, Box):
        raise TypeError(f"{dynamics.id} has action_space={space}: expected a Box")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(f"{dynamics.id}: action_space={space} has to be bounded")
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    return ((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)


def check_masks(dynamics: Dynamics, masks: Any) -> Array | None:
    """Check action masks (n, num_actions), and return them as an array of bools, or None.

    Raises:
        TypeError: masks are missing where the environment has them, or no bools or whole numbers.
        ValueError: masks have another shape, or one allows nothing.
    """
    if masks is None:
        if dynamics.num_masked:
            raise TypeError(
                f'{dynamics.id} has action masks: give action_masks=infos["action_mask"]'
            )
        return None
    array, count = np.asarray(masks), dynamics.num_actions
    if array.dtype.kind not in "biu":
        raise TypeError(f"action_masks are of {array.dtype}: expected bools, or zeros and ones")
    if count == 0 or array.ndim not in (1, 2) or array.shape[-1] != count:
        expected = f"(n, {count})" if count else "None, for masks are those of a Discrete"
        raise ValueError(f"action_masks have shape {array.shape}: expected {expected}")
    allowed: Array = array.reshape(-1, count) != 0
    empty = np.flatnonzero(~allowed.any(axis=1))
    if empty.size:
        raise ValueError(f"action_masks[{empty[0]}] allows nothing: expected one action at least")
    return allowed


def forbid(outputs: Array, masks: Array | None) -> Array:
    """Return outputs (n, num_actions) of a network, -inf where a mask is False.

    Raises:
        ValueError: they are of another shape.
    """
    if masks is None:
        return outputs
    if masks.shape != outputs.shape:
        raise ValueError(f"action_masks have shape {masks.shape}: expected {outputs.shape}")
    return np.where(masks, outputs, np.float32(-np.inf))


def check_discrete(dynamics: Dynamics) -> None:
    """Raise TypeError unless actions are numbers of a `Discrete`."""
    if not isinstance(dynamics.action_space, Discrete):
        raise TypeError(
            f"{dynamics.id} has action_space={dynamics.action_space}: expected Discrete"
        )
