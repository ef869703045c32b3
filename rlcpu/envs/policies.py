"""Policies, which choose the actions inside a rollout, and their form for kernels.

A policy is either a scalar function of one observation, as `Uniform` and the user's own `Scalar`,
or a network, see `rlcpu.envs.networks`. All compute in float32, whatever the environment's dtype.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, MultiDiscrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import define
from rlcpu.kernels.functions import freeze
from rlcpu.kernels.source import EndlessError, call_bounded, check_source

Array = npt.NDArray[Any]


class PolicyCode(NamedTuple):
    """Facts of a policy on which kernels depend: policies with equal ones share them.

    Attributes:
        act: scalar function (observation, params, uniforms) -> (action, log_prob, value), or None
            for a network.
        params_type: class of its params, if it is a NamedTuple.
        num_params: its fields; those of a head of the policy's own.
        draws: random numbers that it takes.
        value: where the value comes from: a "scalar" function, a "shared" or "separate" network, or
            "none".
        head: number of outputs -> what acts on a network's outputs, see `rlcpu.nn.heads.Head.act`;
            None for the usual one of the action space.
        outputs: of the network that the head reads; 0 for one of each action.
        masked: whether `act`, or what `head` makes, takes one argument more: a tuple of bools,
            which actions are allowed. `head` is called with a second argument True then.
    """

    act: Callable[..., Any] | None
    params_type: type | None
    num_params: int
    draws: int
    value: str
    head: Callable[..., Callable[..., Any]] | None = None
    outputs: int = 0
    masked: bool = False


class PolicyArrays(NamedTuple):
    """The run-time numbers of a policy, as kernels take them.

    Attributes:
        weights, sizes: (P,) float32 and (L + 1,) int64, the policy network, or the scalar
            policy's params.
        value_weights, value_sizes: the value network, if it is a separate one.
        log_std: (action_size,) float32 of a Gaussian, or the params of a head of the policy's own.
        mean, scale: (observation_size,) float32: the network sees (observation - mean) * scale,
            clipped to +-10.
        settings: (2,) int64: activation code, 1 for greedy actions.
        network, value_network: `rlcpu.nn.acting.Acting`, what runs the networks on the CPU.
    """

    weights: Array
    sizes: Array
    value_weights: Array
    value_sizes: Array
    log_std: Array
    mean: Array
    scale: Array
    settings: Array
    network: Any = None
    value_network: Any = None

    def for_kernels(self) -> KernelPolicy:
        """Return the arguments of CPU kernels, which point to the networks: keep these alive."""
        places = [0 if each is None else each.place for each in (self.network, self.value_network)]
        settings = np.array([*self.settings, *places, 0, self.state_size], np.int64)
        arrays = self.weights, self.log_std, self.mean, self.scale
        return KernelPolicy._make(
            [*(np.ascontiguousarray(a, np.float32) for a in arrays), settings]
        )

    def networks(self) -> list[Any]:
        """Return the networks ready to act: none, the policy's, or also the value's."""
        return [each for each in (self.network, self.value_network) if each is not None]

    @property
    def state_size(self) -> int:
        """Return the size of an environment's recurrent states: the policy's, then the value's."""
        return sum(each.plan.state_size for each in self.networks())

    @classmethod
    def of_scalar(cls, params: tuple[float, ...]) -> PolicyArrays:
        """Return the arrays of a scalar policy, which are its params."""
        empty, none = np.zeros(0, np.float32), np.zeros(1, np.int64)
        settings = np.zeros(2, np.int64)
        return cls(np.array(params, np.float32), none, empty, none, empty, empty, empty, settings)


class KernelPolicy(NamedTuple):
    """The numbers of a policy as arguments of kernels.

    Attributes:
        weights: the params of a scalar policy.
        log_std, mean, scale: see `PolicyArrays`.
        settings: (6,) int64: the two of `PolicyArrays`; addresses of the jobs of the two networks,
            or 0; the address of the recurrent states, (N, state size) float32, or 0; and the state
            size.
    """

    weights: Array
    log_std: Array
    mean: Array
    scale: Array
    settings: Array


def mark_of(policy: Any) -> int:
    """Return the mark of a policy with memory, which identifies its recurrent states; 0 without."""
    mark: int = getattr(policy, "mark", 0)
    return mark


#: Places of numbers in the settings of a `KernelPolicy`.
GREEDY, NETWORK, VALUE_NETWORK, MEMORY, STATE_SIZE = 1, 2, 3, 4, 5
#: Dtypes of the arrays of a `KernelPolicy`.
POLICY_DTYPES: dict[str, Any] = {
    name: np.int64 if name == "settings" else np.float32 for name in KernelPolicy._fields
}


class Policy(Protocol):
    """Methods of a policy that `collect` and `simulate` call.

    They are called for every rollout, unless the policy has a `version`: an attribute or property,
    of the class that defines the methods, which has another value after every change of their
    results. While it is the same they are not called again. Meanwhile arrays may change their
    numbers in place, if `arrays` returns the arrays themselves, contiguous and float32.
    """

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Return the key of its machine code for an environment.

        Raises:
            TypeError, ValueError: the policy and the environment do not fit.
        """

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return its present numbers."""


def check_policy(policy: Any) -> None:
    """Raise TypeError unless the policy has the methods of one."""
    if isinstance(policy, type) or not (hasattr(policy, "code") and hasattr(policy, "arrays")):
        raise TypeError(f"policy={policy!r}: expected one of rlcpu.policies")


def version_of(policy: Any) -> Any:
    """Return the version of a policy; None if none counts changes of `code` and `arrays`.

    The `version` that a class inherits does not count if the class defines `code` or `arrays` anew.
    """
    for base in type(policy).__mro__:
        if "version" in vars(base):
            return policy.version
        if "code" in vars(base) or "arrays" in vars(base):
            return None
    return None


def uniform_discrete(
    observation: tuple[float, ...], params: tuple[float, float], uniforms: tuple[float]
) -> tuple[Any, float, float]:
    """Return one of `params[0]` actions, each with the log-probability `params[1]`."""
    return np.int32(uniforms[0] * params[0]), params[1], 0.0


@functools.cache
def uniform_allowed(size: int, loops: bool = False) -> Callable[..., Any]:
    """Make a scalar policy that draws one of the allowed actions, of `size`, with equal chances.

    With `count` allowed actions, it chooses the last one that has at most `uniform * count` allowed
    ones before it, and action 0 if none is allowed. `loops` makes loops over actions, for masks
    that are arrays, in the place of an expression for each.
    """
    if loops:
        return _loop_uniform_allowed(size)
    ones = [f"(1.0 if mask[{k}] else 0.0)" for k in range(size)]
    lines = [f"count = {' + '.join(ones)}", "place = uniforms[0] * count"]
    lines += ["action, before = zero, 0.0"]
    for k in range(size):
        lines += [f"action = i32({k}) if mask[{k}] and before <= place else action"]
        lines += [f"before += {ones[k]}"]
    lines += ["return action, -log(max(count, 1.0)), 0.0"]
    source = "def act(observation, params, uniforms, mask):" + "".join(f"\n    {x}" for x in lines)
    return define(source, i32=np.int32, zero=np.int32(0), log=math.log)


def _loop_uniform_allowed(size: int) -> Callable[..., Any]:
    """Make the policy of `uniform_allowed` with loops over actions."""
    i32 = np.int32

    def act(observation, params, uniforms, mask):
        """Draw one of the allowed actions, each with the same probability."""
        count, before, action = 0.0, 0.0, i32(0)
        for k in range(size):
            count += 1.0 if mask[k] else 0.0
        place = uniforms[0] * count
        for k in range(size):
            if mask[k]:
                if before > place:
                    break
                action = i32(k)
                before += 1.0
        return action, -math.log(max(count, 1.0)), 0.0

    return act


@functools.cache
def uniform_choices(size: int) -> Callable[..., Any]:
    """Make a scalar policy that draws `size` whole numbers, number k of 0 to `params[k]` - 1.

    The last of its params is the log-probability.
    """
    items = "".join(f"i32(uniforms[{k}] * params[{k}]), " for k in range(size))
    source = f"def act(observation, params, uniforms): return ({items}), params[{size}], 0.0"
    return define(source, i32=np.int32)


@functools.cache
def uniform_box(size: int) -> Callable[..., Any]:
    """Make a scalar policy that draws each of `size` numbers from [low, low + width).

    Its params are `size` lows, `size` widths, and the log-density.
    """
    items = "".join(f"params[{k}] + params[{size + k}] * uniforms[{k}], " for k in range(size))
    source = f"def act(observation, params, uniforms): return ({items}), params[{2 * size}], 0.0"
    return define(source)


class Uniform:
    """Actions drawn uniformly from the action space, or the allowed ones, whatever is observed.

    Raises:
        ValueError: when used on a `Box` without finite bounds.
    """

    version = 0

    def __repr__(self) -> str:
        return "Uniform()"

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Return the `PolicyCode`; see there."""
        if dynamics.num_masked:
            act = uniform_allowed(dynamics.num_actions)
            return PolicyCode(act, None, 0, 1, "none", masked=True)
        size = dynamics.action_size
        if dynamics.choices:
            return PolicyCode(uniform_choices(size), None, size + 1, size, "none")
        if dynamics.is_discrete:
            return PolicyCode(uniform_discrete, None, 2, 1, "none")
        return PolicyCode(uniform_box(size), None, 2 * size + 1, size, "none")

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return the `PolicyArrays`; see there."""
        space = dynamics.action_space
        if dynamics.num_masked:
            return PolicyArrays.of_scalar(())
        if isinstance(space, Discrete):
            return PolicyArrays.of_scalar((float(space.n), -math.log(space.n)))
        if isinstance(space, MultiDiscrete):
            counts = space.nvec.astype(np.float64)
            return PolicyArrays.of_scalar((*counts, -np.log(counts).sum()))
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ValueError(f"{dynamics.id}: action_space={space} has to be bounded for Uniform")
        width = space.high.astype(np.float64) - space.low
        return PolicyArrays.of_scalar((*space.low, *width, -np.log(width).sum()))


class Scalar:
    """The user's own policy, as a scalar function that kernels inline.

    An environment reads the function, its helpers and its constants when it first collects with
    the policy; another one reads them anew.

    Args:
        act: plain Python function (observation, params, uniforms) -> (action, log_prob, value) of
            ONE environment: observation is a tuple of floats, the action an int of a `Discrete`, a
            tuple of ints of a `MultiDiscrete` or of floats of a `Box`; write 0.0 for a
            log-probability or value of no interest. With a fourth argument, `mask`, it gets what
            the environment's `action_mask` returns.
        params: NamedTuple (or tuple) of floats that `act` takes, read anew at every call.
        draws: random numbers in [0, 1) that one action takes.

    Raises:
        TypeError: act is no plain function of three or four arguments, params is no tuple of
            numbers, draws is no int.
        ValueError: draws is negative.

    Example:
        >>> def lean(observation, params, uniforms):
        ...     return (1 if observation[2] > 0.0 else 0), 0.0, 0.0
        >>> policy = Scalar(lean)
    """

    version = 0

    def __init__(
        self, act: Callable[..., Any], params: tuple[float, ...] = (), draws: int = 0
    ) -> None:
        self.act, self.params, self.draws = act, params, draws

    def __setattr__(self, name: str, value: Any) -> None:
        check = {"act": _check_act, "params": _check_params, "draws": _check_draws}.get(name)
        vars(self).update({name: check(value) if check else value, "version": self.version + 1})

    def __repr__(self) -> str:
        return f"Scalar({self.act.__qualname__}, params={self.params!r}, draws={self.draws})"

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Return the `PolicyCode`, after a trial of the function on one observation.

        Raises TypeError or ValueError if it fails, or returns something else than it has to.
        """
        observation, masked = dynamics.sample_observation(), takes_mask(self.act)
        if masked and not dynamics.num_masked:
            raise TypeError(f"act takes a mask: {dynamics.id} has no action_mask")
        mask = (dynamics.sample_mask(),) if masked else ()
        try:
            result = call_bounded(self.act, observation, self.params, (0.5,) * self.draws, *mask)
        except EndlessError as error:
            raise ValueError(f"act does not end: {error} is run again and again") from None
        except Exception as error:
            raise ValueError(
                f"act raised {error!r} for observation={observation}, params={self.params}, "
                f"uniforms={(0.5,) * self.draws}"
            ) from error
        if not isinstance(result, tuple) or len(result) != 3:
            raise TypeError(f"act has to return (action, log_prob, value); returned {result!r}")
        _check_action(dynamics, result[0])
        if not all(isinstance(number, numbers.Real) for number in result[1:]):
            raise TypeError(f"act has to return log_prob and value as floats; returned {result!r}")
        kind = type(self.params) if hasattr(self.params, "_fields") else None
        code: PolicyCode = freeze(
            PolicyCode(self.act, kind, len(self.params), self.draws, "scalar", masked=masked)
        )
        return code

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return the `PolicyArrays`; see there."""
        return PolicyArrays.of_scalar(self.params)


def _check_act(act: Any) -> Any:
    """Return the function of a scalar policy; raise TypeError unless it is one."""
    if not isinstance(act, types.FunctionType):
        raise TypeError(f"act={act!r}: expected a plain Python function")
    mask = ("mask",) if takes_mask(act) else ()
    try:
        inspect.signature(act).bind("observation", "params", "uniforms", *mask)
    except TypeError:
        expected = "(observation, params, uniforms), and `mask` if it heeds one"
        raise TypeError(f"act takes {inspect.signature(act)}: expected {expected}") from None
    check_source(act)
    return act


def takes_mask(act: Any) -> bool:
    """Tell whether a scalar policy asks which actions are allowed: by an argument named `mask`."""
    return "mask" in inspect.signature(act).parameters


def _check_params(params: Any) -> Any:
    """Return the params of a scalar policy; raise TypeError unless they are a tuple of numbers."""
    try:
        if isinstance(params, tuple) and all(isinstance(p, numbers.Real) for p in params):
            np.array(params, np.float64)
            return params
    except OverflowError:  # an int beyond all floats
        pass
    raise TypeError(f"params={params!r}: expected a NamedTuple or tuple of numbers")


def _check_draws(draws: Any) -> int:
    """Return how many uniforms a scalar policy takes; kernels compute each in a line of its own."""
    return check_count("draws", draws, 0, 1025)


def _check_action(dynamics: Dynamics, action: Any) -> None:
    """Raise TypeError or ValueError unless a scalar policy may return `action`."""
    subject = f"act has to return an action of {dynamics.id},"
    if dynamics.choices:
        counts = dynamics.choices
        wanted = f"{subject} a tuple of {len(counts)} ints, below {counts}; returned {action!r}"
        is_ints = isinstance(action, tuple) and all(isinstance(a, int | np.integer) for a in action)
        if not is_ints or len(action) != len(counts):
            raise TypeError(wanted)
        if not all(0 <= a < n for a, n in zip(action, counts, strict=True)):
            raise ValueError(wanted)
    elif dynamics.is_discrete:
        if not isinstance(action, int | np.integer):
            raise TypeError(f"{subject} an int; returned {action!r}")
        if not 0 <= action < dynamics.num_actions:
            raise ValueError(f"{subject} 0 to {dynamics.num_actions - 1}; returned {action}")
    else:
        size = dynamics.action_size
        if not isinstance(action, tuple) or not all(isinstance(a, numbers.Real) for a in action):
            raise TypeError(f"{subject} a tuple of {size} floats; returned {action!r}")
        if len(action) != size:
            raise ValueError(f"{subject} a tuple of {size} floats; returned {action!r}")
