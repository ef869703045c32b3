"""Policies, which choose the actions inside a rollout, and their form for kernels.

A policy is either a scalar function of one observation, as `Uniform` and the user's own `Scalar`,
or a network, see `rlcpu.envs.acting.networks`. All compute in float32, whatever the environment's
dtype.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.trial import example_of
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import define
from rlcpu.kernels.compiler.functions import freeze
from rlcpu.kernels.compiler.source import EndlessError, call_bounded, check_source
from rlcpu.kernels.compiler.user_compiler import check_results
from rlcpu.nn.network.scaling import NO_LIMIT

Array = npt.NDArray[Any]


class PolicyCode(NamedTuple):
    """Facts of a policy on which kernels depend: policies with equal ones share them."""

    #: Scalar function (observation, params, uniforms) -> (action, log_prob, value); None of a
    #: network.
    act: Callable[..., Any] | None = None
    #: The same for arrays in the place of tuples, in loops over actions or over numbers of an
    #: action; those it writes to an array, its last argument, and returns (log_prob, value). None
    #: without such a form.
    loop_act: Callable[..., Any] | None = None
    #: Class of the params, if they are a NamedTuple.
    params_type: type | None = None
    #: Numbers in the params of `act`, or of a head of the policy's own.
    num_params: int = 0
    #: Random numbers in [0, 1) that one action takes.
    draws: int = 0
    #: Where the value comes from: a "scalar" function, a "shared" or "separate" network, or "none".
    value: str = "none"
    #: Number of outputs -> function that draws an action from a network's outputs, see
    #: `rlcpu.nn.network.heads`; None for the usual one of the action space.
    head: Callable[..., Callable[..., Any]] | None = None
    #: Outputs of the network that the head reads; 0 for one of each action.
    outputs: int = 0
    #: Whether `act`, or what `head` returns, takes a tuple of bools last, which actions are
    #: allowed. Then `head` is called with a second argument, True.
    masked: bool = False


_NO_FLOATS, _NO_LAYERS = np.zeros(0, np.float32), np.zeros(1, np.int64)


class PolicyArrays(NamedTuple):
    """The run-time numbers of a policy, as engines take them."""

    #: (P,) float32, parameters of the policy's network, or the params of a scalar policy.
    weights: Array
    #: (L + 1,) int64, sizes of the network's layers, of an `MLP` alone.
    sizes: Array = _NO_LAYERS
    #: The two of the value's network, if it is a separate one.
    value_weights: Array = _NO_FLOATS
    value_sizes: Array = _NO_LAYERS
    #: (action_size,) float32 of a Gaussian, or the params of a head of the policy's own.
    log_std: Array = _NO_FLOATS
    #: (observation_size,) float32, and () float32: by these networks get observations scaled, see
    #: `rlcpu.nn.network.scaling`.
    mean: Array = _NO_FLOATS
    scale: Array = _NO_FLOATS
    limit: Array = NO_LIMIT
    #: Code of the hidden layers' activation, see `rlcpu.nn.network.graph.ACTIVATIONS`, of an `MLP`.
    activation: int = 0
    #: Whether to take the most likely action.
    greedy: bool = False
    #: The networks as they run on the CPU, each an `rlcpu.nn.network.acting.Acting` or None.
    network: Any = None
    value_network: Any = None

    def networks(self) -> list[Any]:
        """Return the networks that there are: none, the policy's, or also the value's."""
        return [each for each in (self.network, self.value_network) if each is not None]

    @property
    def state_size(self) -> int:
        """Return the size of an environment's recurrent states: the policy's, then the value's."""
        return sum(each.plan.state_size for each in self.networks())


def mark_of(policy: Any) -> int:
    """Return the mark of a policy with memory, which identifies its recurrent states; 0 without."""
    mark: int = getattr(policy, "mark", 0)
    return mark


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


def as_deterministic(policy: Any, deterministic: bool | None) -> Any:
    """Return a policy that draws no action, or draws them: a copy, which shares its arrays.

    None, and what the policy is set to, return the policy itself.

    Raises:
        TypeError: deterministic is neither None nor a bool, or a bool of what is no policy or
            has no such choice: a scalar function says itself how it acts.
    """
    if deterministic is None:
        return policy
    check_policy(policy)
    if not isinstance(deterministic, bool | np.bool_):
        raise TypeError(f"deterministic={deterministic!r}: expected True, False or None")
    if not hasattr(policy, "deterministic"):
        raise TypeError(
            f"deterministic={deterministic}: {type(policy).__name__} says itself how it acts, "
            "expected None"
        )
    if policy.deterministic == deterministic:
        return policy
    mark_of(policy)  # drawn now, so that the copy has the same, and goes on with its memory
    other = copy.copy(policy)
    other.deterministic = bool(deterministic)
    return other


def version_of(policy: Any) -> Any:
    """Return the version of a policy; None if none counts changes of `code` and `arrays`.

    A subclass that defines one of these anew may return other results without a change of the
    `version` that it inherits: that one does not count, so the search goes up from the subclass.
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
def uniform_allowed(size: int) -> Callable[..., Any]:
    """Make a scalar policy that draws one of the allowed actions, of `size`, with equal chances.

    With `count` allowed actions, it chooses the last one that has at most `uniform * count` allowed
    ones before it, and action 0 if none is allowed: the source for each action k is the body of the
    loops of `loop_uniform_allowed`.
    """
    ones = [f"(1.0 if mask[{k}] else 0.0)" for k in range(size)]
    lines = [
        f"count = {' + '.join(ones)}",
        "place = uniforms[0] * count",
        "action, before = zero, 0.0",
    ]
    for k in range(size):
        lines += [
            f"action = i32({k}) if mask[{k}] and before <= place else action",
            f"before += {ones[k]}",
        ]
    lines += ["return action, -log(max(count, 1.0)), 0.0"]
    source = "\n    ".join(["def act(observation, params, uniforms, mask):", *lines])
    return define(source, i32=np.int32, zero=np.int32(0), log=math.log)


@functools.cache
def uniform_allowed_choices(choices: tuple[int, ...], loops: bool) -> Callable[..., Any]:
    """Make a scalar policy that draws each number of an action from its allowed choices.

    `choices` says how many each number has. With `loops` it takes arrays, and writes the action to
    the last one. The lines for choices (2, 3) without are

        a0, l0, _ = draw0((), (), (uniforms[0],), (mask[0], mask[1], ))
        a1, l1, _ = draw1((), (), (uniforms[1],), (mask[2], mask[3], mask[4], ))
        return (a0, a1, ), l0 + l1, 0.0
    """
    if loops:
        ends, draw = np.cumsum(choices), loop_uniform_allowed

        def act(observation, params, uniforms, mask, numbers):
            begin, log_prob = 0, 0.0
            for j in range(len(numbers)):
                number, log_prob_of_one, _ = draw((), (), (uniforms[j],), mask[begin : ends[j]])
                numbers[j] = number
                log_prob += log_prob_of_one
                begin = ends[j]
            return log_prob, 0.0

        return act
    lines, begin = [], 0
    for j, count in enumerate(choices):
        mask = "".join(f"mask[{begin + k}], " for k in range(count))
        lines.append(f"a{j}, l{j}, _ = draw{j}((), (), (uniforms[{j}],), ({mask}))")
        begin += count
    numbers = "".join(f"a{j}, " for j in range(len(choices)))
    lines.append(f"return ({numbers}), {' + '.join(f'l{j}' for j in range(len(choices)))}, 0.0")
    source = "\n    ".join(["def act(observation, params, uniforms, mask):", *lines])
    return define(source, **{f"draw{j}": uniform_allowed(n) for j, n in enumerate(choices)})


def loop_uniform_allowed(observation, params, uniforms, mask):
    """Draw one of the allowed actions; see `uniform_allowed`."""
    count, before, action = 0.0, 0.0, np.int32(0)
    for k in range(len(mask)):
        count += 1.0 if mask[k] else 0.0
    place = uniforms[0] * count
    for k in range(len(mask)):
        if mask[k]:
            if before > place:
                break
            action = np.int32(k)
            before += 1.0
    return action, -math.log(max(count, 1.0)), 0.0


@functools.cache
def uniform_choices(size: int) -> Callable[..., Any]:
    """Make a scalar policy that draws `size` whole numbers, number k of 0 to `params[k]` - 1.

    The last of its params is the log-probability.
    """
    items = "".join(f"i32(uniforms[{k}] * params[{k}]), " for k in range(size))
    source = f"def act(observation, params, uniforms): return ({items}), params[{size}], 0.0"
    return define(source, i32=np.int32)


def _loop_uniform_choices(observation, params, uniforms, numbers):
    """Draw whole numbers; see `uniform_choices`."""
    for k in range(len(numbers)):
        numbers[k] = np.int32(uniforms[k] * params[k])
    return params[len(numbers)], 0.0


@functools.cache
def uniform_box(size: int) -> Callable[..., Any]:
    """Make a scalar policy that draws each of `size` numbers from [low, low + width).

    Its params are `size` lows, `size` widths, and the log-density.
    """
    items = "".join(f"params[{k}] + params[{size + k}] * uniforms[{k}], " for k in range(size))
    source = f"def act(observation, params, uniforms): return ({items}), params[{2 * size}], 0.0"
    return define(source)


def _loop_uniform_box(observation, params, uniforms, numbers):
    """Draw real numbers; see `uniform_box`."""
    size = len(numbers)
    for k in range(size):
        numbers[k] = params[k] + params[size + k] * uniforms[k]
    return params[2 * size], 0.0


class Uniform:
    """Actions drawn uniformly from the action space, or the allowed ones, whatever is observed.

    Raises:
        ValueError: when used on a `Box` without finite bounds.
    """

    version = 0

    def __repr__(self) -> str:
        return "Uniform()"

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Return the scalar function that draws from the action space, and facts of it."""
        size = dynamics.action_size
        if dynamics.num_masked and dynamics.choices:
            act, loop = (uniform_allowed_choices(dynamics.choices, k) for k in (False, True))
            return PolicyCode(act, loop_act=loop, draws=size, masked=True)
        if dynamics.num_masked:
            act, loop = uniform_allowed(dynamics.num_actions), loop_uniform_allowed
            return PolicyCode(act, loop_act=loop, draws=1, masked=True)
        if dynamics.choices:
            act, loop = uniform_choices(size), _loop_uniform_choices
            return PolicyCode(act, loop_act=loop, num_params=size + 1, draws=size)
        if dynamics.is_discrete:
            return PolicyCode(uniform_discrete, num_params=2, draws=1)
        act, loop = uniform_box(size), _loop_uniform_box
        return PolicyCode(act, loop_act=loop, num_params=2 * size + 1, draws=size)

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return the params of the function of `code`, which describes them."""
        space, params = dynamics.action_space, np.zeros(0)
        if dynamics.num_masked:
            pass  # `uniform_allowed` and `uniform_allowed_choices` have none
        elif isinstance(space, Discrete):
            params = np.array([space.n, -math.log(space.n)])
        elif isinstance(space, MultiDiscrete):
            params = np.append(space.nvec, -np.log(space.nvec).sum())
        elif isinstance(space, Box):
            if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
                raise ValueError(
                    f"{dynamics.id}: action_space={space} has to be bounded for Uniform"
                )
            width = space.high.astype(np.float64) - space.low
            params = np.concatenate((space.low, width, [-np.log(width).sum()]))
        return PolicyArrays(params.astype(np.float32))


class Scalar:
    """The user's own policy, as a scalar function that kernels inline.

    An environment reads the function, its helpers and its constants when it first collects with
    the policy; another one reads them anew.

    Args:
        act: plain Python function (observation, params, uniforms) -> (action, log_prob, value) of
            ONE environment: observation is a tuple of floats, the action an int of a `Discrete`, a
            tuple of ints of a `MultiDiscrete` or of floats of a `Box`; write 0.0 for a
            log-probability or value of no interest. With a fourth argument, `mask`, it gets what
            the environment's `action_mask` returns, or the array that it has written.
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
        """Return the function and facts of it, after a trial on one observation.

        Raises TypeError or ValueError if it fails, or returns something else than it has to.
        """
        masked = takes_mask(self.act)
        if masked and not dynamics.num_masked:
            raise TypeError(f"act takes a mask: {dynamics.id} has no action_mask")
        self._try(dynamics, (dynamics.sample_mask(),) if masked else ())
        code: PolicyCode = freeze(
            PolicyCode(
                self.act,
                params_type=type(self.params) if hasattr(self.params, "_fields") else None,
                num_params=len(self.params),
                draws=self.draws,
                value="scalar",
                masked=masked,
            )
        )
        return code

    def _try(self, dynamics: Dynamics, masks: tuple[Any, ...]) -> None:
        """Call the function once, `masks` being its last arguments, and check what it returns."""
        observation, uniforms = dynamics.sample_observation(), (0.5,) * self.draws
        try:
            result = call_bounded(self.act, observation, self.params, uniforms, *masks)
        except EndlessError as error:
            raise ValueError(f"act does not end: {error} is run again and again") from None
        except Exception as error:
            raise ValueError(
                f"act raised {error!r} for observation={observation}, params={self.params}, "
                f"uniforms={uniforms}"
            ) from error
        counts = dynamics.choices or (dynamics.num_actions,) if dynamics.is_discrete else ()
        actions = Actions(dynamics.action_size, dynamics.is_discrete, counts)
        check_decision(result, actions, f" of {dynamics.id}")

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Return the present params."""
        return PolicyArrays(np.array(self.params, np.float32))


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
    check_source(act, random="random numbers come from `uniforms`, of which a policy gets `draws`")
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


class Actions(NamedTuple):
    """Facts of an action space that tell what a scalar policy may return."""

    size: int  # numbers in an action; 0 of a `Discrete`
    is_whole: bool  # whether they are whole numbers
    counts: tuple[int, ...] = ()  # of choices for each whole number, if they are known


def check_decision(result: Any, actions: Actions, whose: str = "") -> None:
    """Raise TypeError or ValueError unless a scalar policy may return (action, log_prob, value).

    `whose` is written behind "an action", for errors.
    """
    if not isinstance(result, tuple) or len(result) != 3:
        raise TypeError(f"act has to return (action, log_prob, value); returned {result!r}")
    action, *others = result
    size, is_whole, counts = actions
    is_list = isinstance(action, tuple)
    numbers_of_action = action if is_list else (action,)
    kind: Any = int | np.integer if is_whole else numbers.Real
    if size:
        wanted = f"a tuple of {size} {'ints' if is_whole else 'floats'}"
        wanted += f", below {counts}" if counts else ""
    else:
        wanted = f"an int from 0 to {counts[0] - 1}"
    message = f"act has to return an action{whose}, {wanted}; returned {action!r}"
    are_numbers = all(isinstance(number, kind) for number in numbers_of_action)
    if is_list != (size > 0) or len(numbers_of_action) != max(size, 1) or not are_numbers:
        raise TypeError(message)
    pairs = zip(numbers_of_action, counts, strict=True) if counts else ()
    if not all(0 <= number < count for number, count in pairs):
        raise ValueError(message)
    if not all(isinstance(number, numbers.Real) for number in others):
        raise TypeError(f"act has to return log_prob and value as floats; returned {result!r}")


def check_act(act: Any, actions: Actions) -> None:
    """Raise TypeError for a branch of a compiled scalar policy that returns what it must not.

    `act` is the specialised function.
    """
    check_results(act, lambda value: check_decision(example_of(value), actions))
