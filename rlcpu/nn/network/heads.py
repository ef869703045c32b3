"""Heads: how policies draw actions from a network's outputs.

Acting is one scalar function, which rollouts compile into their kernels,

    act(outputs, uniforms, params, greedy) -> (action, log_prob)

with the outputs of one observation, random numbers in [0, 1), the network's free parameters, and
whether to take the most likely action in place of drawing one. The masked form of a head, which
environments with action masks need, takes as a fifth argument which actions are allowed: of several
numbers the choices of all, one number after the other. An action of several numbers is a tuple.

In that form each action, and each number of an action, has lines of its own, which compile in
vectors of environments, and take the longer to compile the more they are: beyond `UNROLLED` of them
`act` is asked for in its form with loops. That one takes arrays, and writes an action of several
numbers to one:

    act(outputs, uniforms, params, greedy, numbers) -> log_prob

and the mask before `numbers`.

`Head` takes the most likely actions in Python. See `rlcpu.nn.tape.operations` for the other side,
which learns.

Sources: Williams (1992) for stochastic policies; the Gaussian is drawn by Box & Muller (1958).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu.kernels.compiler.compile import define

Array = npt.NDArray[Any]
TWO_PI = 2.0 * math.pi
HALF_LOG_2_PI = 0.5 * math.log(TWO_PI)
#: Logit of an action that is not allowed: e**x is 0, and 0 * x is not NaN as for -inf.
FORBIDDEN = -1e30
#: Actions, and numbers of an action, up to which kernels have lines for each, and so vectors of
#: environments. Compiling these takes time with the square of their number: half a minute for 250
#: actions. Beyond there are loops.
UNROLLED = 32


# ---------------------------------------------------------------- one of several actions


def exponential(x: float) -> float:
    """Return e**x."""
    return math.exp(x)


def logarithm(x: float) -> float:
    """Return the natural logarithm."""
    return math.log(x)


@functools.cache
def act_categorical(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Return `act` (see above), which draws one of `size` actions from softmax(outputs).

    It inverts the cumulative distribution with one uniform number; greedy takes the largest logit,
    the first of equals. The lines for two actions, without a mask, are

        x0 = outputs[0]; x1 = outputs[1]; top, best = the larger of both, and its index
        e0 = exp(x0 - top); e1 = exp(x1 - top)
        c0 = e0; c1 = c0 + e1                        # the cumulative distribution, not normalised
        mass = uniforms[0] * c1
        action = i32(1) if mass >= c0 else zero
        ...
        return action, logit - top - log(c1)

    Args:
        size: number of actions.
        masked: `act` takes a mask, and actions that it forbids have probability 0. Sums may be
            reordered and differ in the last bit, so that each choice checks the mask.
        loops: over actions, in the place of lines for each; outputs and mask may be arrays then,
            of any size.
    """
    if loops:
        return _loop_masked_categorical if masked else _loop_categorical
    numbers = range(size)
    lines = lines_of_largest(size, masked)
    if masked:
        lines += [f"e{k} = exp(x{k} - top) if mask[{k}] else 0.0" for k in numbers]
    else:
        lines += [f"e{k} = exp(x{k} - top)" for k in numbers]
    lines += ["c0 = e0"] + [f"c{k} = c{k - 1} + e{k}" for k in numbers[1:]]
    lines += [f"mass = uniforms[0] * c{size - 1}"]
    if masked:
        before = ["0.0", *(f"c{k}" for k in numbers)]  # the mass of all actions in front of each
        choices = (f"mask[{k}] and mass >= {before[k]}" for k in numbers)
        lines += ["action = best"]
        lines += [f"action = i32({k}) if {it} else action" for k, it in enumerate(choices)]
    else:
        lines += ["action = zero"]
        lines += [f"action = i32({k}) if mass >= c{k - 1} else action" for k in numbers[1:]]
    lines += ["action = best if greedy else action", "logit = x0"]
    lines += [f"logit = x{k} if action == i32({k}) else logit" for k in numbers[1:]]
    lines += [f"return action, logit - top - log(c{size - 1})"]
    return define_act(lines, masked, exp=math.exp, log=math.log)


def lines_of_largest(size: int, masked: bool) -> list[str]:
    """Return lines of Python that set x0, x1, ... to outputs, and find the largest.

    `top` is the largest and `best` its index, the first of equals. Outputs that a mask forbids are
    `lowest`.
    """
    if masked:
        lines = [f"x{k} = outputs[{k}] if mask[{k}] else lowest" for k in range(size)]
        lines += ["top = lowest", "best = zero"]
    else:
        lines = [f"x{k} = outputs[{k}]" for k in range(size)]
        lines += ["top = x0", "best = zero"]
    for k in range(0 if masked else 1, size):
        lines += [f"best = i32({k}) if x{k} > top else best", f"top = max(top, x{k})"]
    return lines


def define_act(lines: Iterable[str], masked: bool = False, **namespace: Any) -> Callable[..., Any]:
    """Return `act` (see above), made of lines of Python that may use names of the namespace."""
    source = f"def act(outputs, uniforms, params, greedy{', mask' * masked}):"
    names = {"i32": np.int32, "zero": np.int32(0), "lowest": FORBIDDEN}
    return define("\n    ".join([source, *lines]), **names, **namespace)


def _loop_categorical(logits, uniforms, params, greedy):
    """Draw an action by its probability, or take the best; see `act_categorical`."""
    top, best = loop_largest(logits)
    total, before, action = 0.0, 0.0, 0
    for k in range(len(logits)):
        total += exponential(logits[k] - top)
    mass = uniforms[0] * total
    for k in range(len(logits) - 1):
        before += exponential(logits[k] - top)
        if before > mass:
            break
        action = k + 1
    taken = best if greedy else np.int32(action)
    return taken, logits[taken] - top - logarithm(total)


def _loop_masked_categorical(logits, uniforms, params, greedy, mask):
    """Draw an allowed action by its probability, or take the best; see `act_categorical`."""
    top, best = loop_largest_allowed(logits, mask)
    total, before, action = 0.0, 0.0, best
    for k in range(len(logits)):
        total += exponential(logits[k] - top) if mask[k] else 0.0
    mass = uniforms[0] * total
    for k in range(len(logits)):
        if mask[k]:
            if before > mass:
                break
            action = np.int32(k)
            before += exponential(logits[k] - top)
    action = best if greedy else action
    # A mask that allows nothing leaves action 0, and a log_prob that is not finite.
    return action, (logits[action] if mask[action] else FORBIDDEN) - top - logarithm(total)


def loop_largest(numbers):
    """Return the largest number, and its index as int32, the first of equals."""
    top, best = numbers[0], np.int32(0)
    for k in range(1, len(numbers)):
        best = np.int32(k) if numbers[k] > top else best
        top = max(top, numbers[k])
    return top, best


def loop_largest_allowed(numbers, mask):
    """Return what `loop_largest` does, of the numbers alone that a mask allows."""
    top, best = FORBIDDEN, np.int32(0)
    for k in range(len(numbers)):
        if mask[k]:
            best = np.int32(k) if numbers[k] > top else best
            top = max(top, numbers[k])
    return top, best


# ---------------------------------------------------------------- several whole numbers


@functools.cache
def _act_categoricals(choices: tuple[int, ...], masked: bool) -> Callable[..., Any]:
    """Return `act`, which draws an action from each of several categorical distributions.

    Their logits follow each other; `choices` says how many each has. The lines for choices (2, 3)
    without a mask

        a0, l0 = act0((outputs[0], outputs[1], ), (uniforms[0],), params, greedy)
        a1, l1 = act1((outputs[2], outputs[3], outputs[4], ), (uniforms[1],), params, greedy)
        return (a0, a1, ), l0 + l1
    """
    lines, first = [], 0
    for j, count in enumerate(choices):
        logits = "".join(f"outputs[{first + k}], " for k in range(count))
        mask = "".join(f"mask[{first + k}], " for k in range(count))
        arguments = f"({logits}), (uniforms[{j}],), params, greedy" + f", ({mask})" * masked
        lines.append(f"a{j}, l{j} = act{j}({arguments})")
        first += count
    lines.append(return_vector(len(choices)))
    acts: dict[str, Any] = {f"act{j}": act_categorical(n, masked) for j, n in enumerate(choices)}
    return define_act(lines, masked, **acts)


@functools.cache
def _loop_categoricals(choices: tuple[int, ...], masked: bool) -> Callable[..., Any]:
    """Return `_act_categoricals` in its form with loops, see above."""
    ends, draw = np.cumsum(choices), act_categorical(0, masked, loops=True)
    source = f"""def act(outputs, uniforms, params, greedy, {"mask, " * masked}numbers):
    begin, log_prob = 0, 0.0
    for j in range(len(numbers)):
        end = ends[j]
        logits, drawn = outputs[begin:end], (uniforms[j],)
        number, log_prob_of_one = draw(logits, drawn, params, greedy{", mask[begin:end]" * masked})
        numbers[j] = number
        log_prob += log_prob_of_one
        begin = end
    return log_prob"""
    return define(source, ends=ends, draw=draw)


@dataclasses.dataclass(frozen=True)
class ActCategoricals:
    """Makes the function above; equal ones are the same to a kernel, and after pickling."""

    choices: tuple[int, ...]

    def __call__(self, size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
        """Return the scalar function that acts."""
        return (_loop_categoricals if loops else _act_categoricals)(self.choices, masked)


# ---------------------------------------------------------------- real numbers


def log_density(z: float, log_std: float) -> float:
    """Return the log-density of mean + exp(log_std) * z under Normal(mean, exp(log_std))."""
    return -0.5 * z * z - log_std - HALF_LOG_2_PI


def standard_normal(uniform: float, angle: float) -> float:
    """Return a standard normal number from two numbers in [0, 1), by Box & Muller.

    1 - uniform is not 0, and the angle goes from -pi to pi.
    """
    return math.sqrt(-2.0 * math.log(1.0 - uniform)) * math.cos(TWO_PI * (angle - 0.5))


@functools.cache
def act_gaussian(size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
    """Return a scalar function that draws `size` numbers, Normal(outputs[k], exp(params[k])).

    Each takes two uniform numbers; greedy takes the means.

    Args:
        size: how many numbers an action has.
        masked: False: real numbers have no mask.
        loops: see above.
    """
    if loops:
        return loop_numbers(act_gaussian(1), "k", uniforms="2 * k, 2 * k + 1", params="k")
    lines = []
    for k in range(size):
        lines += [
            f"drawn = normal(uniforms[{2 * k}], uniforms[{2 * k + 1}])",
            f"z{k} = 0.0 if greedy else drawn",
            f"a{k} = outputs[{k}] + exp(params[{k}]) * z{k}",
        ]
    lines += [f"l{k} = density(z{k}, params[{k}])" for k in range(size)]
    lines += [return_vector(size)]
    return define_act(lines, normal=standard_normal, density=log_density, exp=math.exp)


@dataclasses.dataclass(frozen=True)
class ActScaled:
    """Makes a function that draws numbers x as `act_gaussian`'s, and returns center + half * x.

    Log-densities are those of x. Centres and half widths are constants of the machine code, which
    equal ones share: as params they would have to lie behind `log_std`, which may be any array of
    the user's.
    """

    center: tuple[float, ...]
    half: tuple[float, ...]

    def __call__(self, size: int, masked: bool = False, loops: bool = False) -> Callable[..., Any]:
        """Return the scalar function that acts."""
        return _act_scaled(self.center, self.half, loops)


@functools.cache
def _act_scaled(
    center: tuple[float, ...], half: tuple[float, ...], loops: bool
) -> Callable[..., Any]:
    """Return the function of an `ActScaled`.

    Its lines for a number in [0, 2000] are

        (x0, ), log_prob = draw(outputs, uniforms, params, greedy)
        return (1000.0 + 1000.0 * x0, ), log_prob

    where `draw` is `act_gaussian`'s.
    """
    size = len(center)
    draw = act_gaussian(size, loops=loops)
    if loops:
        source = """def act(outputs, uniforms, params, greedy, numbers):
    log_prob = draw(outputs, uniforms, params, greedy, numbers)
    for k in range(len(numbers)):
        numbers[k] = center[k] + half[k] * numbers[k]
    return log_prob"""
        return define(source, draw=draw, center=np.array(center), half=np.array(half))
    names = "".join(f"x{k}, " for k in range(size))
    scaled = "".join(f"{center[k]!r} + {half[k]!r} * x{k}, " for k in range(size))
    lines = [f"({names}), log_prob = draw(outputs, uniforms, params, greedy)"]
    return define_act([*lines, f"return ({scaled}), log_prob"], draw=draw)


def loop_numbers(
    act_one: Callable[..., Any], outputs: str, *, uniforms: str, params: str
) -> Callable[..., Any]:
    """Return `act` of several real numbers in its form with loops, see above.

    Args:
        act_one: `act` for actions of one number.
        outputs: the indices of the outputs that `act_one` takes for number k, such as "k, 3 + k".
        uniforms: those of its random numbers.
        params: those of its params.
    """
    indices = {"outputs": outputs, "uniforms": uniforms, "params": params}
    tuples = ", ".join(
        f"({', '.join(f'{name}[{index}]' for index in each.split(', '))},)"
        for name, each in indices.items()
    )
    source = f"""def act(outputs, uniforms, params, greedy, numbers):
    log_prob = 0.0
    for k in range(len(numbers)):
        (numbers[k],), log_prob_of_one = act_one({tuples}, greedy)
        log_prob += log_prob_of_one
    return log_prob"""
    return define(source, act_one=act_one)


def return_vector(size: int) -> str:
    """Return the line that returns the action a0, a1, ... and the sum of l0, l1, ..."""
    actions = "".join(f"a{k}, " for k in range(size))
    return f"return ({actions}), {' + '.join(f'l{k}' for k in range(size))}"


# ---------------------------------------------------------------- the most likely action


class Head(NamedTuple):
    """Rule by which the most likely action follows from a network's outputs."""

    #: Of discrete actions, sizes of groups of outputs, one group after the other: an action is the
    #: index of the largest in its group, the first of equals. Empty where actions are real numbers.
    choices: tuple[int, ...] = ()
    is_list: bool = True  #: whether an action is a list of numbers, not one number
    is_squashed: bool = False  #: whether real numbers are first squashed by tanh
    center: Array = np.zeros(0, np.float32)  #: (action_size,), real numbers x are scaled to
    half: Array = np.zeros(0, np.float32)  #: (action_size,), center + half * x,
    low: Array = np.zeros(0, np.float32)  #: (action_size,), and clipped to the range from here
    high: Array = np.zeros(0, np.float32)  #: (action_size,), to here

    @property
    def size(self) -> int:
        """Return how many outputs it reads."""
        return sum(self.choices) or self.center.size

    @classmethod
    def of(cls, space: Any) -> Head:
        """Return the head of a space: outputs are logits or values, or actions within bounds.

        Raises:
            TypeError: it is another space than a Discrete, a MultiDiscrete or a Box of one axis.
        """
        if isinstance(space, Discrete):
            return cls.of_choices((int(space.n),))
        if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
            return cls.of_choices(tuple(map(int, space.nvec)), is_list=True)
        if not isinstance(space, Box) or len(space.shape) != 1:
            kinds = "a Discrete, or a MultiDiscrete or Box of one dimension"
            hint = "of environments of Gymnasium, env.dynamics.action_space is one"
            raise TypeError(f"action_space={space!r}: expected {kinds}; {hint}")
        most = np.finfo(np.float32).max  # in the place of infinite bounds
        low, high = (np.clip(x, -most, most).astype(np.float32) for x in (space.low, space.high))
        return cls(center=np.zeros_like(low), half=np.ones_like(low), low=low, high=high)

    def scaled(self, is_scaled: bool) -> Head:
        """Return the head of numbers that are [-1, 1] where actions are within their bounds.

        Numbers that cannot change are shifted alone. Without `is_scaled` it is the head of numbers
        that are the actions.

        Raises:
            ValueError: actions are choices, or have infinite bounds.
        """
        if not is_scaled:
            return self._replace(center=np.zeros_like(self.low), half=np.ones_like(self.low))
        if self.choices or not is_bounded(self.low, self.high):
            kind = "choices" if self.choices else "without bounds"
            raise ValueError(f"scale_actions=True: actions are {kind}, expected finite bounds")
        center, half = center_and_half(self.low, self.high)
        return self._replace(center=center, half=np.where(half > 0, half, np.float32(1)))

    @classmethod
    def of_choices(cls, choices: tuple[int, ...], is_list: bool = False) -> Head:
        """Return the head of choices, by the sizes of their groups."""
        return cls(choices, is_list)

    @classmethod
    def squashed(cls, center: Array, half: Array) -> Head:
        """Return the head of squashed numbers."""
        low, high = center - half, center + half
        return cls(is_squashed=True, center=center, half=half, low=low, high=high)

    def actions(self, outputs: Array, allowed: Array | None = None) -> Array:
        """Return the most likely actions (n,) or (n, action_size) of outputs (n, size or more).

        Args:
            outputs: of the network.
            allowed: (n, size) bool, which choices are allowed; None where all are.
        """
        outputs = outputs[:, : self.size]
        if self.choices:
            outputs = outputs if allowed is None else np.where(allowed, outputs, -np.inf)
            groups = np.split(outputs, np.cumsum(self.choices)[:-1], axis=1)
            chosen: Array = np.stack([np.argmax(group, axis=1) for group in groups], axis=1)
            return chosen if self.is_list else chosen[:, 0]
        x = np.tanh(outputs) if self.is_squashed else outputs
        return np.clip(self.center + self.half * x, self.low, self.high).astype(np.float32)


def is_bounded(low: Array, high: Array) -> bool:
    """Tell whether all bounds are finite; the largest numbers of float32 stand for infinity."""
    most = np.finfo(np.float32).max
    return bool((np.abs(low) < most).all() and (np.abs(high) < most).all())


def center_and_half(low: Array, high: Array) -> tuple[Array, Array]:
    """Return centres and half widths of bounds, (action_size,) float32 each."""
    low, high = low.astype(np.float64), high.astype(np.float64)
    return ((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)
