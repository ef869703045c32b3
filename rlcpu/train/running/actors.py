"""Policies of agents that learn in rounds: one network, and how it explores.

Each is a policy for `rlcpu.collect` and `rlcpu.simulate`, and acts by a scalar function

    act(outputs, uniforms, params, greedy) -> (action, log_prob)

of the network's outputs for one observation, random numbers in [0, 1), and the policy's `params`,
whose first ones say how much it explores: so an agent's random first steps, its learning and its
evaluation run in one kernel. The masked form takes a mask of allowed actions, too. Functions
`act_...` make one of lines of Python, in which each number of an action has lines of its own; see
`rlcpu.nn.network.heads` for the names that lines may use, and for the form with loops. Those of
real numbers are in the files of their algorithms, `rlcpu.train.sac` and `rlcpu.train.td3`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete

from rlcpu.algorithms import in_words, taking
from rlcpu.envs.acting.networks import check_network, shape_of, view_of
from rlcpu.envs.acting.running import RunsNetworks, check_limit
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.policies import (
    PolicyArrays,
    PolicyCode,
    loop_uniform_allowed,
    uniform_allowed,
)
from rlcpu.envs.contract.scales import scaling_by_bounds
from rlcpu.envs.engine.masks import find_usable, join_masks
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.rollout.results import Rollout
from rlcpu.kernels.checks import as_numbers
from rlcpu.nn.layers import Dense
from rlcpu.nn.network import heads
from rlcpu.nn.network.acting import Acting
from rlcpu.nn.network.graph import Network, orthogonal
from rlcpu.nn.network.heads import (
    Head,
    define_act,
    lines_of_largest,
    loop_largest,
    loop_largest_allowed,
)
from rlcpu.nn.network.passes import LinkedNetworks
from rlcpu.train.settings.presets import Outputs, network_of_observations

Array = npt.NDArray[Any]


def reusable(rollout: Rollout | None, num_steps: int) -> Rollout | None:
    """Return the last rollout, for the next of `num_steps` to overwrite, or None if it differs."""
    return rollout if rollout is not None and len(rollout.rewards) == num_steps else None


# ---------------------------------------------------------------- policies


class Actor(RunsNetworks):
    """A network that acts; base of the policies below.

    Args:
        dynamics: the environment.
        num_outputs: of the network that are read, its first ones.
        hidden: sizes of its hidden layers.
        activation: "tanh" or "relu".
        params: numbers of the head, float32.
        seed: of the weights.
        layer_norm: see `rlcpu.nn.Network`.
    """

    act: Callable[..., Callable[..., Any]]
    #: Gain of the orthogonal weights of the last layer.
    gain = 1.0
    _version = 0

    def __init__(
        self,
        dynamics: Dynamics,
        num_outputs: int,
        hidden: Sequence[int],
        activation: str,
        *,
        params: Sequence[float],
        seed: int,
        layer_norm: bool = False,
    ) -> None:
        sizes = np.array([dynamics.observation_size, *hidden, num_outputs])
        parameters = orthogonal(np.random.default_rng(seed), sizes, self.gain, layer_norm)
        self.network = Network(sizes, activation, parameters=parameters, layer_norm=layer_norm)
        self._linked, self._num_outputs = LinkedNetworks(), num_outputs
        #: What the head reads; the first is the probability of an action drawn uniformly.
        self.params = np.array(params, np.float32)
        scaling = scaling_by_bounds(dynamics.observation_space)
        self.observation_mean, self.observation_scale = scaling.mean, scaling.scale
        self.observation_limit = np.array(np.inf, np.float32)
        self.view = view_of(dynamics.observation_space)
        self.observation_shape = shape_of(self.view)
        self.deterministic = False  # whether to act without exploring

    def __repr__(self) -> str:
        if not self.network.sizes.size:
            ends = self.network.input_sizes, self.network.output_sizes
            return f"{type(self).__name__}(network of {ends[0]} to {ends[1]})"
        layers = "-".join(map(str, self.network.sizes))
        return f"{type(self).__name__}({layers} {self.network.activation})"

    def use_network(self, network: Any, dynamics: Dynamics) -> None:
        """Act by another network from now on; TypeError or ValueError if it does not fit.

        Of one with several outputs the policy reads the first one, if that has as many numbers.
        """
        size, name = dynamics.observation_size, "the policy's network"
        check_network(name, network, size, self._num_read, may_have_more=True)
        self.network = network

    def use_layers(
        self, config: Any, dynamics: Dynamics, seed: int, outputs: Outputs | None = None
    ) -> None:
        """Act by the layers that `config.network` names or makes, and by outputs behind them.

        Without `outputs` there is a dense layer of the numbers that the policy reads; if
        `config.network` is "mlp", the network that the policy has is that.

        Raises:
            TypeError, ValueError: the layers do not fit the environment.
        """
        if outputs is None and config.network == "mlp":
            return
        if outputs is None:
            last = Dense(self._num_read, self.gain)
            network = network_of_observations(config, dynamics, lambda x: x >> last, seed)
        else:
            network = network_of_observations(config, dynamics, outputs, seed)
        self.use_network(network, dynamics)

    def networks(self) -> dict[str, Network]:
        """Return the network, "policy"."""
        return {"policy": self.network}

    @property
    def parameters(self) -> Array:
        """Return the parameters of its network, (P,) float32, to be written in place or set."""
        return self.network.parameters

    @parameters.setter
    def parameters(self, values: npt.ArrayLike) -> None:
        parameters = self.network.parameters
        array = as_numbers("policy.parameters", values)
        if array.shape != parameters.shape:
            expected = f"expected {parameters.shape}"
            raise ValueError(f"policy.parameters has shape {array.shape}: {expected}")
        parameters[:] = array

    @property
    def head(self) -> Head:
        """Return the head that takes the most likely action of outputs."""
        raise NotImplementedError

    def _draws(self, dynamics: Dynamics) -> int:
        """Return how many uniform random numbers an action takes; see `act` above.

        Of a choice one says whether to explore, and one which action; else two make a normal number
        for each number of the action, and one says whether to explore.
        """
        return 2 if dynamics.is_discrete else 2 * dynamics.action_size + 1

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Return what kernels are compiled for; ValueError if sizes do not fit the environment.

        `dynamics.num_masked` are the actions of its masks; 0 without masks.
        """
        inputs = sum(self.network.input_sizes.values())
        if inputs != dynamics.observation_size or self._num_params(dynamics) != self.params.size:
            raise ValueError(f"{self!r} does not fit {dynamics.id}")
        return PolicyCode(
            num_params=self.params.size,
            draws=self._draws(dynamics),
            head=type(self).act,
            outputs=self._num_read,
            masked=dynamics.num_masked > 0,
        )

    def _num_params(self, dynamics: Dynamics) -> int:
        """Return the number of the head's params."""
        return 1

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return what kernels read of it, see `rlcpu.envs.contract.policies.PolicyArrays`."""
        return PolicyArrays(
            weights=self.network.parameters,
            sizes=self.network.sizes,
            log_std=self.params,  # by this name kernels get the params of any head
            mean=self.observation_mean,
            scale=self.observation_scale,
            limit=self.observation_limit,
            activation=self.network.code,
            greedy=bool(self.deterministic),
            network=self._acting("policy"),
        )

    def _acting(self, name: str) -> Any:
        """Return the network as rollouts run it, an `rlcpu.nn.network.acting.Acting`."""
        return self._linked.of(name, Acting, self.network.plan, self.network.parameters)

    @property
    def version(self) -> tuple[int, int]:
        """Return counters of what was set here and in the network; see `Policy.version`."""
        return self._version, self.network.version

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("params", "observation_mean", "observation_scale"):
            value = np.asarray(value, np.float32, order="C")
        elif name == "observation_limit":
            value = check_limit(value)
        super().__setattr__(name, value)
        vars(self)["_version"] = self._version + 1

    @property
    def _num_read(self) -> int:
        return self._num_outputs

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
        scaling = {"mean": self.observation_mean, "scale": self.observation_scale}
        scaling["observation_limit"] = self.observation_limit
        return {"parameters": self.network.parameters, "params": self.params, **scaling}


# ---------------------------------------------------------------- one of several actions


@functools.cache
def act_epsilon_greedy(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Make `act`: take the action of the largest output, the first of equals.

    With probability `params[0]`, epsilon, it is any action instead. Source: Watkins 1989, "Learning
    from delayed rewards". The lines for two actions, without a mask, are

        x0 = outputs[0]; x1 = outputs[1]; top, best = the larger of both, and its index
        drawn = i32(uniforms[1] * 2.0)
        explores = (uniforms[0] < params[0]) and not greedy
        return (drawn if explores else best), 0.0

    Args:
        size: number of actions, which have the first outputs.
        masked: whether `act` takes a mask, and chooses among the allowed actions alone.
        loops: see `rlcpu.nn.network.heads.act_categorical`.
    """
    if loops:
        return _loop_masked_epsilon_greedy if masked else _loop_epsilon_greedy
    drawn = f"drawn = i32(uniforms[1] * {float(size)})"
    if masked:
        drawn = "drawn, _, _ = draw(observation, draw_params, (uniforms[1],), mask)"
    lines = [
        *lines_of_largest(size, masked),
        drawn,
        "explores = (uniforms[0] < params[0]) and not greedy",
        "return (drawn if explores else best), 0.0",
    ]
    # `draw`, a scalar policy, reads neither observation nor params.
    names: dict[str, Any] = {"draw": uniform_allowed(size), "observation": (), "draw_params": ()}
    return define_act(lines, masked, **names)


def _loop_epsilon_greedy(values, uniforms, params, greedy):
    """Take the action of the largest value, or explore; see `act_epsilon_greedy`."""
    explores = uniforms[0] < params[0] and not greedy
    _, best = loop_largest(values)
    return np.int32(uniforms[1] * float(len(values))) if explores else best, 0.0


def _loop_masked_epsilon_greedy(values, uniforms, params, greedy, mask):
    """Take the allowed action of the largest value, or explore; see `act_epsilon_greedy`."""
    explores = uniforms[0] < params[0] and not greedy
    action = np.int32(0)
    if explores:  # a scalar policy, which reads neither observation nor params
        action, _, _ = loop_uniform_allowed((), (), (uniforms[1],), mask)
    else:
        _, action = loop_largest_allowed(values, mask)
    return action, 0.0


class EpsilonGreedy(Actor):
    """Takes the action of the largest value, or with probability epsilon any; for `Discrete`.

    The network's output, the first one of several, are values of the actions; see
    `rlcpu.nn.layers.values` for layers that make them of other outputs.
    """

    act = staticmethod(act_epsilon_greedy)

    def __init__(
        self,
        dynamics: Dynamics,
        hidden: Sequence[int] = (64, 64),
        activation: str = "relu",
        seed: int = 0,
        layer_norm: bool = False,
    ) -> None:
        self.num_actions = dynamics.num_actions
        super().__init__(
            dynamics,
            self.num_actions,
            hidden,
            activation,
            params=[1.0],  # epsilon: the first steps are random
            seed=seed,
            layer_norm=layer_norm,
        )

    @property
    def head(self) -> Head:
        """Return the head that takes the most likely action of outputs."""
        return Head.of_choices((self.num_actions,))

    def choose(self, outputs: Array, rng: np.random.Generator | None, *masks: Array) -> Array:
        """Return actions; see `Actor.choose`."""
        values = forbid(outputs, masks[0] if masks else None)
        best: Array = np.argmax(values, axis=1)
        if rng is None:
            return best
        explores = rng.random(best.shape) < self.params[0]
        drawn = rng.integers(self.num_actions, size=best.shape)
        if masks:  # the largest of random numbers, one for each allowed action
            drawn = np.argmax(np.where(np.isfinite(values), rng.random(values.shape), -1.0), axis=1)
        return np.where(explores, drawn, best)

    def values_of(self, rollout: Rollout) -> Array | None:
        """Return Q(s, a) of what was done in a rollout, (T, N) float32.

        None of a network with memory.
        """
        if self.state_sizes["policy"]:
            return None
        values: Array = self.outputs(rollout.inputs.reshape(rollout.rewards.size, -1))
        chosen: Array = np.take_along_axis(values, rollout.actions.reshape(-1, 1), axis=1)
        return chosen.reshape(rollout.rewards.shape)

    def td_errors(
        self, transitions: Mapping[str, Array], view: ObservationView, scale: float
    ) -> Array:
        """Return |scale * r + discount * max_a Q(s', a) - Q(s, a)|, (n,); 0 for Q(s') at an end.

        Args:
            transitions: columns (n, ...), `discount` among them, observations as they are kept.
            view: of the observations.
            scale: of the rewards.
        """
        values = self.outputs(view.inputs_of_stored(transitions["observation"]))
        value = np.take_along_axis(values, transitions["action"][:, None], axis=1)[:, 0]
        next_values = self.outputs(view.inputs_of_stored(transitions["next_observation"]))
        if (masks := transitions.get("next_action_mask")) is not None:
            # Where an episode terminated a mask may allow nothing, and no value counts.
            next_values = forbid(next_values, masks | ~masks.any(axis=1, keepdims=True))
        discounts = np.where(transitions["terminated"], np.float32(0), transitions["discount"])
        rewards = np.float32(scale) * transitions["reward"]
        errors: Array = np.abs(rewards + discounts * next_values.max(axis=1) - value)
        return errors


# ---------------------------------------------------------------- bounded real numbers


class Squashed(Actor):
    """Base of policies of bounded real numbers, which networks see as numbers x in [-1, 1].

    An action is `center + half * x`, arrays (action_size,) float32.
    """

    gain = 0.01
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
        self.center, self.half = center_and_half(dynamics)
        exploring = [1.0] + [0.0] * (self.num_exploring - 1)  # the first steps are random
        params = [*exploring, *self.center, *self.half]
        num_outputs = self.outputs_per_number * dynamics.action_size
        super().__init__(dynamics, num_outputs, hidden, activation, params=params, seed=seed)

    @property
    def head(self) -> Head:
        """Return the head that takes the most likely action of outputs."""
        return Head.squashed(self.center, self.half)

    def _num_params(self, dynamics: Dynamics) -> int:
        return self.num_exploring + 2 * dynamics.action_size


def center_and_half(dynamics: Dynamics) -> tuple[Array, Array]:
    """Return centres and half widths of the bounds of actions, (action_size,) float32 each.

    Actions that are no real numbers are a TypeError, without bounds a ValueError.
    """
    space = dynamics.action_space
    if not isinstance(space, Box):
        raise TypeError(_describe_unfit(dynamics, "a Box"))
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"{dynamics.id}: action_space={dynamics.describe_actions()} has to be bounded; PPO "
            "takes it as it is"
        )
    return heads.center_and_half(space.low, space.high)


# ---------------------------------------------------------------- spaces and masks


def check_masks(dynamics: Dynamics, masks: Any) -> Array | None:
    """Check action masks (n, num_choices), and return them as an array of bools, or None.

    Those of several numbers may be a tuple of an array for each.

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
    array, count = join_masks("action_masks", masks, dynamics.choices), dynamics.num_choices
    if array.dtype.kind not in "biu":
        raise TypeError(f"action_masks are of {array.dtype}: expected bools, or zeros and ones")
    if count == 0 or array.ndim not in (1, 2) or array.shape[-1] != count:
        expected = f"(n, {count})" if count else "None, for real numbers have no mask"
        raise ValueError(f"action_masks have shape {array.shape}: expected {expected}")
    allowed: Array = array.reshape(-1, count) != 0
    empty = np.flatnonzero(~find_usable(allowed, dynamics.choices))
    if empty.size:
        raise ValueError(f"action_masks[{empty[0]}] allows nothing: expected one action at least")
    return allowed


def forbid(outputs: Array, masks: Array | None) -> Array:
    """Return outputs (n, num_actions) of a network, -inf where a mask is False.

    Masks of another shape are a ValueError.
    """
    if masks is None:
        return outputs
    if masks.shape != outputs.shape:
        raise ValueError(f"action_masks have shape {masks.shape}: expected {outputs.shape}")
    return np.where(masks, outputs, np.float32(-np.inf))


def check_discrete(dynamics: Dynamics) -> None:
    """Raise TypeError unless actions are numbers of a `Discrete`."""
    if not isinstance(dynamics.action_space, Discrete):
        raise TypeError(_describe_unfit(dynamics, "Discrete"))


def _describe_unfit(dynamics: Dynamics, expected: str) -> str:
    """Return the message for an action space that an algorithm does not take, with one that does.

    `expected` is the class of those that it takes.
    """
    space = dynamics.action_space
    kind = {Discrete: "choice", Box: "bounded"}.get(type(space), "any")
    names = taking(kind)
    fitting = f"{in_words(names)} take{'s' * (len(names) == 1)}"
    reason = f"{dynamics.id} has action_space={dynamics.describe_actions()}: expected {expected}"
    return f"{reason}; {fitting} a {type(space).__name__}"
