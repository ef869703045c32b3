"""Adam: one scalar function, its loop for kernels to inline, and a class for everybody else.

Sources: Kingma & Ba 2015, "Adam: a method for stochastic optimization", algorithm 1; the order of
operations is torch.optim.Adam's: epsilon is added to the corrected root. Liu et al. 2020, "On the
variance of the adaptive learning rate and beyond", algorithm 2, for RAdam; torch.optim.RAdam adds
epsilon to the root in front of its correction.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compiler.compile import inline, kernel_in
from rlcpu.kernels.compiler.functions import OfNumbers

Array = npt.NDArray[Any]


#: Moments below are zero: they move nothing. Those of a unit that is never active would fall until
#: they are subnormal, and stay so; some processors take 150 cycles for each of these.
LEAST = 1e-30
#: Parameters that are stepped together: four arrays of so many numbers stay in the first cache.
BLOCK = 1024


class Rates(NamedTuple):
    """Numbers of one step, the same for all parameters."""

    step: float  #: learning rate / (1 - 0.9**number), number counting steps from 1
    root: float  #: 1 / sqrt(1 - 0.999**number), which corrects the root of the second moment
    epsilon: float  #: added to the root
    decay: float  #: factor of the parameters: 1, or 1 - weight decay * learning rate for AdamW


def adam(gradient: float, first: float, second: float, rates: Rates) -> tuple[float, float, float]:
    """Return what a step takes off a parameter, and its two moments, which decay by 0.9 and 0.999.

    The parameter is multiplied by `rates.decay` before.
    """
    first = first + (gradient - first) * 0.1
    second = second * 0.999 + gradient * gradient * 0.001
    first = first if abs(first) > LEAST else 0.0
    second = second if second > LEAST else 0.0
    return rates.step * first / (math.sqrt(second) * rates.root + rates.epsilon), first, second


@inline
def rates_of(number, learning_rate, epsilon, is_rectified, decay, real):
    """Return the `Rates` of a step, in kernels.

    Args:
        number: of the step, counted from 1.
        learning_rate: of the step; it, `epsilon` and `decay` are numbers of the type `real`.
        epsilon: see `Rates`.
        is_rectified: whether Adam is RAdam. That is Adam with other rates: it steps by the first
            moment alone while the second has been estimated from too few gradients, and shortens
            the steps after that by

                sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t)),
                r_t = r - 2 t b**t / (1 - b**t),  r = 2 / (1 - b) - 1,  b = 0.999

        decay: weight decay of AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay
            regularization", algorithm 2), 0 for Adam.
        real: NumPy's type of parameters.
    """
    one, zero = real(1), real(0)
    shrink = one - real(learning_rate * decay)
    bias1, bias2 = 1.0 - 0.9**number, 1.0 - 0.999**number
    step, root = learning_rate / bias1, 1.0 / np.sqrt(bias2)
    if is_rectified:
        longest = 2.0 / (1.0 - 0.999) - 1.0
        length = longest - 2.0 * number * (1.0 - bias2) / bias2
        if length <= 5.0:  # too few gradients: what the first moment is divided by is 1
            return Rates(real(step), root=zero, epsilon=one, decay=shrink)
        shorter = (length - 4.0) * (length - 2.0) * longest
        step *= np.sqrt(shorter / ((longest - 4.0) * (longest - 2.0) * length))
        epsilon = real(epsilon * root)
    return Rates(real(step), real(root), epsilon, shrink)


_adam = OfNumbers(adam)


def step_parameters(parameters, gradients, first, second, factor, rates):
    """Step parameters and both moments by gradients times `factor`; all are overwritten."""
    for begin in range(0, parameters.size, BLOCK):
        end = min(begin + BLOCK, parameters.size)
        step_block(
            parameters[begin:end], gradients[begin:end], first[begin:end], second[begin:end],
            factor, rates,
        )  # fmt: skip


def step_block(parameters, gradients, first, second, factor, rates):
    """Step a few parameters; gradients become what is taken off them.

    That is twice as fast with two threads as one loop: both have read the parameters, and each
    store waits until the other's cache has dropped its line.
    """
    for i in range(gradients.size):
        gradients[i], first[i], second[i] = _adam(gradients[i] * factor, first[i], second[i], rates)
    for i in range(parameters.size):
        parameters[i] = parameters[i] * rates.decay - gradients[i]


def adam_step(parameters, gradients, first, second, number, learning_rate, epsilon, factor):
    """Make step `number`, from 1 on, by gradients times `factor`; see `step_parameters`."""
    real = parameters.dtype.type
    rates = rates_of(number, learning_rate, epsilon, False, real(0), real)
    step_parameters(parameters, gradients, first, second, factor, rates)


class Adam:
    """Adam on one flat array, such as the parameters of a `Network`, or a slice of it.

    Args:
        parameters: (P,) float32 or float64, contiguous; every step overwrites them.
        epsilon: added to the corrected root of the second moment.

    Attributes:
        parameters, epsilon: see above.
        first, second: (P,), the moments, which decay by 0.9 and 0.999 a step.
        counters: (1,) int64, steps so far.

    Raises:
        TypeError, ValueError: parameters are no such array, or epsilon is not above 0.

    Example:
        >>> x = np.array([3.0, -2.0])
        >>> optimiser = Adam(x)
        >>> for _ in range(2000):
        ...     norm = optimiser.step(2.0 * x, 0.01)
        >>> bool(abs(x).max() < 1e-3)
        True
    """

    def __init__(self, parameters: Array, *, epsilon: float = 1e-8) -> None:
        kind = getattr(parameters, "dtype", None)
        if not isinstance(parameters, np.ndarray) or kind not in (np.float32, np.float64):
            raise TypeError(f"parameters: expected a float32 or float64 array, got {kind}")
        if parameters.ndim != 1 or not parameters.flags.c_contiguous:
            shape = parameters.shape
            raise ValueError(f"parameters have shape {shape}: expected one contiguous axis")
        if not 0.0 < epsilon < math.inf:
            raise ValueError(f"epsilon={epsilon!r}: expected a number above 0")
        self.parameters, self.epsilon = parameters, float(epsilon)
        self.first, self.second = np.zeros_like(parameters), np.zeros_like(parameters)
        self.counters = np.zeros(1, np.int64)

    def step(self, gradients: Array, learning_rate: float, *, max_norm: float = math.inf) -> float:
        """Make one step along the gradients.

        Args:
            gradients: (P,) of the parameters' dtype.
            learning_rate: of this step.
            max_norm: gradients are scaled down to this norm.

        Returns:
            The norm of the gradients, before they are scaled down.

        Raises:
            ValueError: gradients have another shape or dtype.
            FloatingPointError: they hold NaN or infinity. Nothing is changed by a call that raises.
        """
        like = self.parameters
        if np.shape(gradients) != like.shape or gradients.dtype != like.dtype:
            actual = f"{getattr(gradients, 'dtype', None)} {np.shape(gradients)}"
            raise ValueError(f"gradients are {actual}: expected {like.dtype} {like.shape}")
        norm = float(np.linalg.norm(gradients))
        if not math.isfinite(norm):
            raise FloatingPointError(f"gradients have norm {norm}: expected finite numbers")
        real: Any = like.dtype.type
        self.counters += 1
        factor = min(1.0, max_norm / (norm + 1e-6))  # as torch.nn.utils.clip_grad_norm_
        kernel_in(real, adam_step)(
            parameters=like,
            gradients=np.array(gradients, order="C"),
            first=self.first,
            second=self.second,
            number=int(self.counters[0]),
            learning_rate=real(learning_rate),
            epsilon=real(self.epsilon),
            factor=real(factor),
        )
        return norm

    def state(self) -> dict[str, Array]:
        """Return every array that a step changes but the parameters, by name, for checkpoints."""
        return {"first": self.first, "second": self.second, "counters": self.counters}
