"""What stand-ins refuse, and what to write in the place of it.

An algorithm is called once, with stand-ins for many samples. What Python, NumPy and PyTorch do with
numbers, and stand-ins do not, raises one sentence that begins with the user's line.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np

from rlcpu.nn.duals.numbers import ALIASES

_SCALAR = "a scalar function, as in nn.each(math.exp, x)"
_NO_AXES = "x.width, which counts the numbers of each sample: a tensor has no axes"
#: Words of Python, NumPy and PyTorch, and what is expected in their place.
_WORDS = {
    "iter": "x[0] for the first number of each sample, nn.sum(x), or nn.max(x) for the largest",
    "sum": "nn.sum(x)",
    "mean": "nn.mean(x) over the samples, or nn.sum(x) / x.width over the numbers of each",
    "max amax": "nn.max(x)",
    "min amin": "-nn.max(-x)",
    "maximum": "nn.each(max, x, y)",
    "minimum": "nn.each(min, x, y)",
    "argmax": "nn.argmax(x)",
    "argmin": "nn.argmax(-x)",
    "sort": "nn.sort(x)",
    "gather": "nn.take(x, index)",
    "detach stop_gradient no_grad": "nn.hold(x)",
    "std var": "nn.standardise(column), or a column of moments that are computed before",
    "softmax": "nn.each(math.exp, nn.log_softmax(x))",
    "log_prob Categorical Normal": "nn.categorical, nn.categoricals or nn.gaussian",
    "randn randn_like": "nn.normal(x)",
    "rand rand_like": "nn.uniform(x)",
    "abs absolute": "abs(x)",
    "square": "x * x",
    "relu": "nn.each(max, x, 0.0), or the layer nn.Relu",
    "sigmoid": "nn.each(f, x), where f(x) is 1 / (1 + exp(-x))",
    "where": "nn.each(f, x, y), where f(x, y) is x if x > y else y, or the like",
    "clip clamp": "nn.each(f, x), where f(x) is min(max(x, low), high)",
    "dot matmul einsum @": "nn.sum(x * w), or a network with an nn.Dense layer",
    "concatenate cat hstack stack append": "a network that takes several tensors, nets.f(x, y)",
    "shape ndim size reshape view flatten squeeze unsqueeze transpose T dim": _NO_AXES,
    "item numpy tolist": "a statistic: return loss, {'x': x}",
    "mse_loss smooth_l1_loss huber_loss": "nn.mean(nn.each(f, x, y)), where f is of two numbers",
    "Linear": "nn.Dense",
    "ReLU": "nn.Relu",
    "Sequential": "nn.Dense(64) >> nn.Relu() >> nn.Dense(1)",
    "Module": "nn.CustomLayer, or a network of layers",
    "Conv2d": "nn.Convolution",
}
_HINTS = {name: hint for names, hint in _WORDS.items() for name in names.split()}
#: Operators of NumPy, whose arrays and numbers leave them to the stand-in on their other side.
_OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
}


def hint_of(name: str) -> str:
    """Return what is expected in the place of another library's word, or "" for nothing known."""
    of_math = ALIASES.get(name, name)
    if name not in _HINTS and not name.startswith("_") and hasattr(math, of_math):
        return f"nn.each(math.{of_math}, x)"
    return _HINTS.get(name, "")


def at_user(sentence: str) -> str:
    """Return a message that begins with the user's file, line and function that called us."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rlcpu.nn"):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}, line {frame.f_lineno}, in {code.co_name}: {sentence}"


def _refusal(word: str) -> Callable[..., Any]:
    """Return a method that refuses an operator."""
    return lambda self, *others: self.refuse(f"applies {word} to", word)


class StandIn:
    """Stands for numbers that are not there yet, and refuses what a subclass does not define."""

    _noun: ClassVar[str] = "a stand-in for many samples"

    def refuse(self, deed: str, word: str = "") -> NoReturn:
        """Raise TypeError for a line that does something to this; a word may have a hint."""
        raise TypeError(at_user(f"{deed} {self._noun}: expected {self._expected(word)}"))

    def _expected(self, word: str) -> str:
        return hint_of(word) or _SCALAR

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        operate = _OPERATORS.get(ufunc.__name__)
        if method == "__call__" and operate is not None and len(inputs) == 2:
            numbers = np.ndarray | np.generic
            return operate(*(x.tolist() if isinstance(x, numbers) else x for x in inputs))
        return self.refuse(f"applies np.{ufunc.__name__} to", ufunc.__name__)

    def __array_function__(self, function: Any, *others: Any) -> Any:
        self.refuse(f"applies np.{function.__name__} to", function.__name__)

    def __array__(self, *others: Any, **options: Any) -> Any:
        self.refuse("makes an array of", "shape")

    @classmethod
    def __torch_function__(cls, function: Any, *others: Any) -> Any:
        name = getattr(function, "__name__", "a function")
        expected = hint_of(name) or _SCALAR
        raise TypeError(at_user(f"applies torch's {name} to {cls._noun}: expected {expected}"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        expected = self._expected(name)
        raise AttributeError(at_user(f"reads .{name} of {self._noun}: expected {expected}"))

    def __iter__(self) -> Any:
        self.refuse("iterates over", "iter")

    def __contains__(self, item: Any) -> bool:
        return bool(iter(self))

    def __len__(self) -> int:
        self.refuse("takes the length of", "shape")

    def __bool__(self) -> bool:
        sentence = "branches on data: an algorithm is traced once for all samples; "
        raise TypeError(at_user(f"{sentence}let a scalar function decide, in nn.each"))

    # Comparisons raise what `bool` raises: they are branches on data too.
    __hash__ = object.__hash__
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: bool(self)

    def __float__(self) -> float:
        self.refuse("makes a number of")

    __int__ = __index__ = __complex__ = __float__

    def __getitem__(self, index: Any) -> Any:
        self.refuse(f"reads [{index!r}] of", "shape")

    def __setitem__(self, index: Any, value: Any) -> None:
        self.refuse(f"writes to [{index!r}] of")

    __add__ = __radd__ = _refusal("+")
    __sub__ = __rsub__ = _refusal("-")
    __mul__ = __rmul__ = _refusal("*")
    __truediv__ = __rtruediv__ = _refusal("/")
    __pow__ = __rpow__ = _refusal("**")
    __matmul__ = __rmatmul__ = _refusal("@")
    __mod__ = __rmod__ = _refusal("%")
    __floordiv__ = __rfloordiv__ = _refusal("//")
    __divmod__ = __rdivmod__ = _refusal("divmod")
    __and__ = __rand__ = _refusal("&")
    __or__ = __ror__ = _refusal("|")
    __xor__ = __rxor__ = _refusal("^")
    __invert__ = _refusal("~")
    __neg__ = _refusal("-")
    __abs__ = _refusal("abs")
    __round__ = _refusal("round")
