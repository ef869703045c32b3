"""Numbers that carry their slopes: exact derivatives of scalar functions without a derivative.

A dual is a number with its *slopes*, the derivatives with respect to the variables of a computation
(forward mode); each operation applies the chain rule. A function of plain Python takes duals in the
place of numbers, in Python and in kernels, and so do its specialised twins, whose values have the
same bits:

    zeros = (dtype(0),) * 2                        # as many as there are variables
    f = specialise(function, dtype)                # a function of x, y and of plain numbers
    x, y = variables((xs[i], ys[i]))               # in a loop: duals, whose slopes are 1 and 0
    r = f(x, y, targets[i])                        # a dual, a plain number, or a tuple of these
    out[i], by_x[i] = value_of(r), slopes_of(r, zeros)[0]        # 0 for a plain number

`slopes(function, x, y)` does so in plain Python. `rlcpu.nn.duals.compiled` teaches numba duals.

Duals of one computation have one number of slopes. They mix with plain numbers in arithmetic,
comparisons, ternaries and `if` statements; `int`, `floor`, `ceil`, `trunc`, `isnan` and the like
give plain numbers. `float(x)` is refused, which would lose the slopes: `value_of(x)` does that.

Where there is no derivative: that of `abs(x)` at 0 is 0; `min` and `max` take the first of equals,
as in Python, and its slopes. So `max(0.0, x)` is a relu, with slope 0 at 0, and
`min(max(x, low), high)` a clamp, with slope 1 at its bounds, as those of PyTorch. A variable that
does not reach a result has slope 0 there, also where another slope is infinite.

Source: Griewank & Walther 2008, "Evaluating derivatives", section 3.1.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

# The rules below decide machine code: because this file names numba.extending, its text is a part
# of the keys of `rlcpu.kernels.compiler.cache`.
from numba.extending import is_jitted

from rlcpu.kernels.compiler.functions import convert_items, package_of, rebuild

# ---------------------------------------------------------------- rules


def _sign(x: float) -> float:
    return 1.0 if x > 0.0 else -1.0 if x < 0.0 else 0.0


def power(x: float, y: float) -> float:
    """Return `x ** y`."""
    return x**y


def _by_exponent(x: float, y: float, r: float) -> float:
    return r * math.log(x) if x > 0.0 else 0.0 if x == 0.0 else math.nan


#: Derivatives of functions of one number x, with their result r.
UNARY: dict[str, Callable[..., Any]] = {
    "acos": lambda x, r: -1.0 / math.sqrt(1.0 - x * x),
    "acosh": lambda x, r: 1.0 / math.sqrt(x * x - 1.0),
    "asin": lambda x, r: 1.0 / math.sqrt(1.0 - x * x),
    "asinh": lambda x, r: 1.0 / math.sqrt(x * x + 1.0),
    "atan": lambda x, r: 1.0 / (1.0 + x * x),
    "atanh": lambda x, r: 1.0 / (1.0 - x * x),
    "cos": lambda x, r: -math.sin(x),
    "cosh": lambda x, r: math.sinh(x),
    "erf": lambda x, r: 1.1283791670955126 * math.exp(-x * x),  # 2 / sqrt(pi)
    "erfc": lambda x, r: -1.1283791670955126 * math.exp(-x * x),
    "exp": lambda x, r: r,
    "expm1": lambda x, r: r + 1.0,
    "fabs": lambda x, r: _sign(x),
    "log": lambda x, r: 1.0 / x,
    "log10": lambda x, r: 0.43429448190325182 / x,  # 1 / log(10)
    "log1p": lambda x, r: 1.0 / (1.0 + x),
    "log2": lambda x, r: 1.4426950408889634 / x,  # 1 / log(2)
    "sin": lambda x, r: math.cos(x),
    "sinh": lambda x, r: math.cosh(x),
    "sqrt": lambda x, r: 0.5 / r,
    "tan": lambda x, r: 1.0 + r * r,
    "tanh": lambda x, r: 1.0 - r * r,
}
#: Derivatives by x and by y of functions of two numbers, with their result r.
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "atan2": (lambda x, y, r: y / (x * x + y * y), lambda x, y, r: -x / (x * x + y * y)),
    "copysign": (lambda x, y, r: _sign(x) * _sign(r), lambda x, y, r: 0.0),
    "fmod": (lambda x, y, r: 1.0, lambda x, y, r: (r - x) / y),
    "hypot": (
        lambda x, y, r: x / r if r > 0.0 else 0.0,
        lambda x, y, r: y / r if r > 0.0 else 0.0,
    ),
    "pow": (lambda x, y, r: y * x ** (y - 1.0) if y != 0.0 else 0.0, _by_exponent),
}
#: Functions without slopes.
FLAT = ("ceil", "floor", "isfinite", "isinf", "isnan", "sign", "trunc")
#: NumPy's names of functions that have another name in `math`.
ALIASES = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "power": "pow",
}  # fmt: skip

# ---------------------------------------------------------------- in plain Python


class Dual:
    """A number and its slopes, the derivatives by each variable; in kernels too.

    Args:
        value: the number.
        slopes: a tuple of numbers, as many as there are variables.
    """

    __array_ufunc__ = None  # NumPy's numbers leave operations to this class
    __slots__ = ("slopes", "value")

    def __init__(self, value: Any, slopes: tuple[Any, ...]) -> None:
        self.value, self.slopes = value, tuple(slopes)

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.slopes!r})"

    def __neg__(self) -> Any:
        return Dual(-self.value, tuple(-slope for slope in self.slopes))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _chained(abs(self.value), (_sign(self.value),), (self,))


def value_of(x: Any) -> Any:
    """Return the number without slopes, a plain one as it is; in kernels too."""
    return x.value if isinstance(x, Dual) else x


def slopes_of(x: Any, zeros: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the slopes of a number, `zeros` of a plain one; in kernels too."""
    return x.slopes if isinstance(x, Dual) else zeros


def variables(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return duals of numbers, with slope 1 by themselves, 0 by the others; in kernels too."""
    slopes = [[type(x)(k == j) for k in range(len(numbers))] for j, x in enumerate(numbers)]
    return tuple(map(Dual, numbers, map(tuple, slopes)))


def slopes(function: Callable[..., Any], *numbers: float) -> tuple[Any, Any]:
    """Return the value of a function and its derivatives by its arguments, in plain Python.

    Args:
        function: plain Python of numbers, with `math`, NumPy's functions of numbers and others of
            its kind; it returns a number, or a tuple of numbers.
        *numbers: floats, or `np.float32` for slopes in float32.

    Returns:
        The value, and a tuple of its derivatives; of a tuple of numbers, tuples of both.

    Example:
        >>> slopes(lambda x, y: x * x * y, 3.0, 2.0)
        (18.0, (12.0, 9.0))
    """
    zeros = tuple(type(x)(0) for x in numbers)
    result = _lift(function)(*variables(numbers))
    if isinstance(result, tuple):
        return tuple(map(value_of, result)), tuple(slopes_of(x, zeros) for x in result)
    return value_of(result), slopes_of(result, zeros)


def _lift(value: Any) -> Any:
    """Return a function that takes duals, in Python, in the place of `value`.

    Functions of `math` and NumPy get derivatives by rules; plain functions are rebuilt with the
    functions that they call lifted; a tuple is lifted item by item, and all else stays as it is.
    """
    if is_jitted(value):
        value = value.py_func
    if isinstance(value, tuple):
        return convert_items(value, _lift)
    name = getattr(value, "__name__", "")
    if callable(value) and getattr(value, "__module__", "numpy") in ("math", "numpy"):
        form = _DUAL_FORMS.get(ALIASES.get(name, name))
        return functools.partial(form, value) if form else value
    is_plain = isinstance(value, FunctionType) and value.__module__ != __name__
    return _lifted(value) if is_plain and package_of(value) not in ("numba", "numpy") else value


_copies: dict[FunctionType, Any] = {}


def _lifted(function: FunctionType) -> Any:
    """Return a copy of a function whose globals and free variables are lifted."""
    convert, stays = lambda name, value: _lift(value), lambda module: False  # modules' members too
    return rebuild(function, convert, stays, copies=_copies)


def _apply(rules: tuple[Callable[..., Any], ...], function: Callable[..., Any], *args: Any) -> Any:
    """Return a function of duals and plain numbers, a dual if there is one among them.

    Args:
        rules: for each argument the derivative: (*arguments, result) -> number.
        function: of plain numbers.
        *args: duals and plain numbers.
    """
    if not any(isinstance(x, Dual) for x in args):
        return function(*args)
    kind = type(sum(map(value_of, args)))  # float or np.float32, as numbers are promoted
    values = [kind(value_of(x)) for x in args]
    result = kind(function(*values))
    # Rules take NumPy's numbers, whose division by 0 is infinite and raises nothing.
    real = np.float32 if kind is np.float32 else np.float64
    numbers = [real(x) for x in (*values, result)]
    with np.errstate(all="ignore"):
        partials = [
            rule(*numbers) if isinstance(x, Dual) else 0.0
            for rule, x in zip(rules, args, strict=True)
        ]
        return _chained(result, partials, args)


def _chained(value: Any, partials: Any, args: Any) -> Dual:
    """Return the dual of a function's value by the chain rule.

    Each slope is the sum of derivative * slope over the duals among the arguments, one at least;
    `partials` are the derivatives with respect to each argument.
    """
    kind, totals = type(value), []
    terms = [(p, x.slopes) for p, x in zip(partials, args, strict=True) if isinstance(x, Dual)]
    counts = sorted({len(slopes) for _, slopes in terms})
    if len(counts) > 1:
        raise TypeError(f"a number of {counts[0]} slopes meets one of {counts[1]}")
    for k in range(counts[0]):
        # A slope of 0 stays so, also where the derivative is infinite.
        parts = [kind(p) * slopes[k] if slopes[k] != 0.0 else kind(0) for p, slopes in terms]
        totals.append(sum(parts[1:], parts[0]))
    return Dual(value, tuple(totals))


#: Derivatives of operators by their sides a and b, with their result r.
_OPERATORS: dict[Callable[..., Any], tuple[Callable[..., Any], Callable[..., Any]]] = {
    operator.add: (lambda a, b, r: 1.0, lambda a, b, r: 1.0),
    operator.sub: (lambda a, b, r: 1.0, lambda a, b, r: -1.0),
    operator.mul: (lambda a, b, r: b, lambda a, b, r: a),
    operator.truediv: (lambda a, b, r: 1.0 / b, lambda a, b, r: -r / b),
    operator.pow: BINARY["pow"],
    operator.mod: BINARY["fmod"],
    operator.floordiv: (lambda a, b, r: 0.0, lambda a, b, r: 0.0),
}
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


def _define_operators(function: Any, rules: Any) -> None:
    """Define an operator of `Dual` with the dual on the left, and on the right."""
    name = function.__name__.strip("_")

    def of_left(left: Any, right: Any) -> Any:
        fits = isinstance(right, Dual | int | float | np.number | np.bool_)
        return _apply(rules, function, left, right) if fits else NotImplemented

    def of_right(right: Any, left: Any) -> Any:
        fits = isinstance(left, int | float | np.number | np.bool_)
        return _apply(rules, function, left, right) if fits else NotImplemented

    setattr(Dual, f"__{name}__", of_left)
    setattr(Dual, f"__r{name}__", of_right)


def _define_plain(function: Any) -> None:
    """Define a method of values, which returns a plain number."""
    method = lambda *numbers: function(*map(value_of, numbers))  # noqa: E731
    setattr(Dual, f"__{function.__name__}__", method)


for _function, _pair in _OPERATORS.items():
    _define_operators(_function, _pair)
for _function in (*COMPARISONS, bool, int, math.ceil, math.floor, math.trunc):
    _define_plain(_function)

#: Name of a function -> its form for duals in Python, with the function as its first argument.
_DUAL_FORMS: dict[str, Callable[..., Any]] = {
    **{name: functools.partial(_apply, (rule,)) for name, rule in UNARY.items()},
    **{name: functools.partial(_apply, rules) for name, rules in BINARY.items()},
    **dict.fromkeys(FLAT, lambda function, x: function(value_of(x))),
    "absolute": lambda function, x: abs(x),
    "clip": lambda function, x, low, high: min(max(x, low), high),
}
