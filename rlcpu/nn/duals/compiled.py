"""Duals in kernels: their numba type, and what operators and functions of them compile to.

`rlcpu.nn` imports this file, so that kernels know the duals of `rlcpu.nn.duals.numbers` wherever
these are used. A function of numbers with a dual among them returns a dual: its value, and slopes
by the chain rule with the derivatives of `rlcpu.nn.duals.numbers`, which numba compiles.

Terms of numba: `context` generates code for the CPU, and `builder` appends LLVM's instructions to a
function; to *emit* is to append, and what is returned is the LLVM value of the result. A `kind` is
a numba type, and `common` the `DualType` in which arguments are computed together. The slopes of an
LLVM value are a list of LLVM values, or None for a plain number.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_cast,
    make_attribute_wrapper,
    models,
    overload,
    register_model,
    type_callable,
)

from rlcpu.kernels.compiler import hooks, maths
from rlcpu.kernels.compiler.compile import EXACT, INLINE, inline, specialise
from rlcpu.nn.duals.numbers import (
    ALIASES,
    BINARY,
    COMPARISONS,
    FLAT,
    UNARY,
    Dual,
    power,
    slopes_of,
    value_of,
    variables,
)

# ---------------------------------------------------------------- numba's type


class DualType(types.Type):
    """Type of duals in kernels: a number of the type `real`, with `count` slopes of that type."""

    def __init__(self, real: Any, count: int) -> None:
        self.real, self.count = real, count
        super().__init__(f"Dual({real}, {count})")

    @property
    def slopes(self) -> Any:
        """Return the type of all slopes."""
        return types.UniTuple(self.real, self.count)

    def unify(self, typing_context: Any, other: Any) -> Any:
        """Return the type of a variable that is assigned this or the other type."""
        return _common(self, other) if is_number(other) else None


def is_number(kind: Any) -> bool:
    """Tell whether a type is that of a number, with slopes or without."""
    return isinstance(kind, types.Integer | types.Float | types.Boolean | DualType)


def _common(*kinds: Any) -> Any:
    """Return the type of duals that holds numbers of all types; None if none of them is a dual."""
    duals = [kind for kind in kinds if isinstance(kind, DualType)]
    counts = {kind.count for kind in duals}
    if len(counts) != 1 or not all(map(is_number, kinds)):
        return None
    # Whole numbers take the type of the duals; a float64 makes all double.
    reals = {kind.real if isinstance(kind, DualType) else kind for kind in kinds}
    return DualType(types.float64 if types.float64 in reals else duals[0].real, counts.pop())


@register_model(DualType)
class _DualModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("value", kind.real), ("slopes", kind.slopes)])


make_attribute_wrapper(DualType, "value", "value")
make_attribute_wrapper(DualType, "slopes", "slopes")


def _unpack(context: Any, builder: Any, kind: Any, number: Any, real: Any) -> tuple[Any, Any]:
    """Emit value and slopes of a number of a kind, cast to the type `real`."""
    if not isinstance(kind, DualType):
        return context.cast(builder, number, kind, real), None
    parts = [builder.extract_value(number, 0)]
    parts += [builder.extract_value(number, (1, k)) for k in range(kind.count)]
    parts = [context.cast(builder, part, kind.real, real) for part in parts]
    return parts[0], parts[1:]


def _pack(context: Any, builder: Any, kind: Any, value: Any, slopes: Any) -> Any:
    """Emit a dual of kind `kind` of its parts; slopes that are None are zeros."""
    zero = context.get_constant(kind.real, 0.0)
    dual = cgutils.create_struct_proxy(kind)(context, builder)
    dual.value = value
    dual.slopes = context.make_tuple(builder, kind.slopes, slopes or [zero] * kind.count)
    return dual._getvalue()


def _cast(context: Any, builder: Any, kind: Any, target: Any, number: Any) -> Any:
    """Emit a number of a kind as a dual of the kind `target`."""
    return _pack(context, builder, target, *_unpack(context, builder, kind, number, target.real))


_NUMBERS = (types.Integer, types.Float, types.Boolean)
for _kind in (*_NUMBERS, DualType):
    lower_cast(_kind, DualType)(_cast)


def _chain(context: Any, builder: Any, kind: Any, value: Any, terms: Any) -> Any:
    """Emit a dual of a kind by the chain rule.

    Each slope is the sum of derivative * slope over `terms`, pairs of a derivative (an LLVM value,
    or 1.0 or -1.0) and an argument's slopes. A slope of 0 stays so whatever it is multiplied by,
    and LLVM leaves out all that is computed for it: zeros and ones of variables are constants.
    """
    zero = context.get_constant(kind.real, 0.0)
    terms = [(partial, slopes) for partial, slopes in terms if slopes is not None]

    def term(partial: Any, slope: Any) -> Any:
        if isinstance(partial, float):
            return slope if partial > 0.0 else builder.fneg(slope)
        product = builder.fmul(partial, slope)
        return builder.select(builder.fcmp_ordered("==", slope, zero), zero, product)

    totals = []
    for k in range(kind.count):
        parts = [term(partial, slopes[k]) for partial, slopes in terms]
        totals.append(functools.reduce(builder.fadd, parts))
    return _pack(context, builder, kind, value, totals)


def _value(context: Any, builder: Any, function: Any, real: Any, *numbers: Any) -> Any:
    """Emit a function of numbers of the type `real` as numba itself does."""
    _, generate = hooks.generator_of(context.typing_context, function, (real,) * len(numbers))
    return generate(context, builder, numbers)


# ---------------------------------------------------------------- operators in kernels


def _teach(function: Any, arity: int, lower: Any, result: Any = None) -> None:
    """Teach numba a function of numbers of which one at least is a dual.

    Args:
        function: of Python, with `arity` arguments, 1 to 3.
        arity: see `function`.
        lower: (context, builder, common, arguments) -> emits the result; an argument is a pair of
            a value and slopes.
        result: numba type of the result; None for a dual, of the type `common`.
    """

    def generate(context: Any, builder: Any, signature: Any, numbers: Any) -> Any:
        common = _common(*signature.args)
        pairs = zip(signature.args, numbers, strict=True)
        unpacked = [_unpack(context, builder, kind, x, common.real) for kind, x in pairs]
        return lower(context, builder, common, unpacked)

    def type_of(*kinds: Any) -> Any:
        common = _common(*kinds)  # None without a dual: numba goes on to its own rules
        return common and (result or common)

    # Numba finds out how many arguments a typer takes from its signature.
    typer = {
        1: lambda a: type_of(a),
        2: lambda a, b: type_of(a, b),
        3: lambda a, b, c: type_of(a, b, c),
    }[arity]
    type_callable(function)(lambda context: typer)
    for kinds in itertools.product((*_NUMBERS, DualType), repeat=arity):
        if DualType in kinds:
            lower_builtin(function, *kinds)(generate)


def _teach_arithmetic(function: Any, lower_partials: Any) -> None:
    """Teach numba an operator of two numbers, with duals among them, and its in-place form.

    `lower_partials(builder, a, b, r)` emits the derivatives of the result r by a and by b.
    """

    def lower(context: Any, builder: Any, common: Any, arguments: Any) -> Any:
        (a, a_slopes), (b, b_slopes) = arguments
        value = _value(context, builder, function, common.real, a, b)
        by_a, by_b = lower_partials(builder, a, b, value)
        terms = [(by_a, a_slopes), (by_b, b_slopes)]
        return _chain(context, builder, common, value, terms)

    for each in (function, _in_place(function)):
        _teach(each, 2, lower)


def _in_place(function: Any) -> Any:
    """Return the operator of `a += b` for that of `a + b`."""
    return getattr(operator, f"i{function.__name__}")


_teach_arithmetic(operator.add, lambda builder, a, b, r: (1.0, 1.0))
_teach_arithmetic(operator.sub, lambda builder, a, b, r: (1.0, -1.0))
_teach_arithmetic(operator.mul, lambda builder, a, b, r: (b, a))
_teach_arithmetic(
    operator.truediv,
    lambda builder, a, b, r: (builder.fdiv(a.type(1.0), b), builder.fdiv(builder.fneg(r), b)),
)
_teach_arithmetic(
    operator.mod,
    lambda builder, a, b, r: (1.0, builder.fdiv(builder.fsub(r, a), b)),
)
_teach_arithmetic(operator.floordiv, lambda builder, a, b, r: (a.type(0.0), a.type(0.0)))


def _lower_positive(context: Any, builder: Any, common: Any, arguments: Any) -> Any:
    """Emit +a."""
    ((a, slopes),) = arguments
    return _pack(context, builder, common, a, slopes)


def _lower_negative(context: Any, builder: Any, common: Any, arguments: Any) -> Any:
    """Emit -a."""
    ((a, slopes),) = arguments
    return _chain(context, builder, common, builder.fneg(a), [(-1.0, slopes)])


def _lower_abs(context: Any, builder: Any, common: Any, arguments: Any) -> Any:
    """Emit abs(a), whose derivative is the sign of a, 0 at 0."""
    ((a, slopes),) = arguments
    zero, one = a.type(0.0), a.type(1.0)
    sign = builder.select(builder.fcmp_ordered("<", a, zero), a.type(-1.0), zero)
    sign = builder.select(builder.fcmp_ordered(">", a, zero), one, sign)
    value = _value(context, builder, abs, common.real, a)
    return _chain(context, builder, common, value, [(sign, slopes)])


_teach(operator.pos, 1, _lower_positive)
_teach(operator.neg, 1, _lower_negative)
_teach(abs, 1, _lower_abs)


def _teach_choice(function: Any, compare: Any) -> None:
    """Teach numba `min` or `max` of two or three numbers with duals among them.

    `compare` is the operator by which an argument is better than those before it.
    """

    def lower(context: Any, builder: Any, common: Any, arguments: Any) -> Any:
        """Emit choices of the value and each slope: LLVM does not vectorise that of a dual."""
        zeros = [arguments[0][0].type(0.0)] * common.count
        best, *others = [[value, *(slopes or zeros)] for value, slopes in arguments]
        for other in others:
            better = _value(context, builder, compare, common.real, other[0], best[0])
            pairs = zip(other, best, strict=True)
            best = [builder.select(better, new, old) for new, old in pairs]
        return _pack(context, builder, common, best[0], best[1:])

    for arity in (2, 3):
        _teach(function, arity, lower)


def _teach_values(function: Any, arity: int, kind: Any) -> None:
    """Teach numba a function that ignores slopes, such as `<`; its result is of plain `kind`."""

    def lower(context: Any, builder: Any, common: Any, arguments: Any) -> Any:
        values = (value for value, _ in arguments)
        return _value(context, builder, function, common.real, *values)

    _teach(function, arity, lower, result=kind)


_teach_choice(min, operator.lt)
_teach_choice(max, operator.gt)
for _function in COMPARISONS:
    _teach_values(_function, 2, types.boolean)
_teach_values(bool, 1, types.boolean)
_teach_values(operator.not_, 1, types.boolean)
_teach_values(int, 1, types.int64)


def _lower_power(context: Any, builder: Any, signature: Any, numbers: Any) -> Any:
    """Emit x ** y as the function `power`, which is compiled by its rules below."""
    _, generate = hooks.generator_of(context.typing_context, power, signature.args)
    return generate(context, builder, numbers)


def _lower_whole_power(context: Any, builder: Any, signature: Any, numbers: Any) -> Any:
    """Emit x ** n of a dual x and a whole number n, whose derivative is n * x ** (n - 1)."""
    (dual, whole), common = signature.args, signature.return_type
    x, slopes = _unpack(context, builder, dual, numbers[0], common.real)
    n = numbers[1]
    n = context.get_constant(whole, n) if isinstance(n, int) else n  # a literal exponent
    _, power = hooks.generator_of(context.typing_context, operator.pow, (common.real, whole))
    is_zero = builder.icmp_signed("==", n, n.type(0))  # 0 * x**-1 is not 0 for all x
    exponent = builder.select(is_zero, n, builder.sub(n, n.type(1)))
    factor = context.cast(builder, n, whole, common.real)
    by_x = builder.fmul(factor, power(context, builder, (x, exponent)))
    return _chain(context, builder, common, power(context, builder, (x, n)), [(by_x, slopes)])


for _function in (operator.pow, _in_place(operator.pow)):
    type_callable(_function)(lambda context: lambda x, y: _common(x, y))
    for _kind in (*_NUMBERS, DualType):
        lower_builtin(_function, _kind, DualType)(_lower_power)
    lower_builtin(_function, DualType, types.Float)(_lower_power)
    lower_builtin(_function, DualType, types.Integer)(_lower_whole_power)

# ---------------------------------------------------------------- functions in kernels


@intrinsic
def _chained_values(typing_context, value, partials, numbers):
    """Return, in kernels, the dual of a function's value by the chain rule.

    `partials` is a tuple of its derivatives, one for each of the arguments `numbers`, a tuple with
    duals among them.
    """
    common = _common(*numbers.types)

    def generate(context, builder, signature, args):
        """Emit the dual of `value` and the sum over k of partials[k] * slopes of numbers[k]."""
        value_arg, partials_arg, numbers_arg = args
        result = context.cast(builder, value_arg, value, common.real)
        terms = []
        for k, kind in enumerate(numbers.types):
            partial = builder.extract_value(partials_arg, k)
            partial = context.cast(builder, partial, partials.types[k], common.real)
            number = builder.extract_value(numbers_arg, k)
            _, slopes = _unpack(context, builder, kind, number, common.real)
            terms.append((partial, slopes))
        return _chain(context, builder, common, result, terms)

    return common(value, partials, numbers), generate


def _dual_form(function: Any, rules: tuple[Any, ...], kinds: tuple[Any, ...]) -> Any:
    """Return what a function of one or two numbers is where some are duals, for numba to compile.

    Args:
        function: of plain numbers, in kernels.
        rules: for each argument the derivative: (*arguments, result) -> number.
        kinds: of the arguments; if none of them is a dual, None is returned.
    """
    common = _common(*kinds)
    if common is None or len(kinds) != len(rules):
        return None
    real = np.dtype(common.real.name).type

    def partial_of(rule: Any, kind: Any) -> Any:
        """Return a rule for kernels; for a plain argument one that costs nothing."""
        is_needed = isinstance(kind, DualType)
        return specialise(rule if is_needed else _UNUSED[len(kinds)], real, exact=True)

    by_x = partial_of(rules[0], kinds[0])
    if len(kinds) == 1:

        def of_one(x):
            value = function(x.value)
            return _chained_values(value, (by_x(x.value, value),), (x,))

        return of_one
    by_y = partial_of(rules[1], kinds[1])

    def of_two(x, y):
        a, b = real(value_of(x)), real(value_of(y))  # one of them may be a whole number
        value = function(a, b)
        return _chained_values(value, (by_x(a, b, value), by_y(a, b, value)), (x, y))

    return of_two


#: Number of arguments -> a rule in the place of a derivative that nobody needs.
_UNUSED: dict[int, Callable[..., Any]] = {1: lambda x, r: r, 2: lambda x, y, r: r}
_rules: dict[str, tuple[Any, ...]] = {name: (rule,) for name, rule in UNARY.items()} | BINARY
_options = {**INLINE, "fastmath": EXACT}


def _specialised_form(name: str, function: Any, kinds: tuple[Any, ...]) -> Any:
    """Return the form for duals of a function of `rlcpu.kernels.compiler.maths`, or None."""
    return _dual_form(function, _rules[name], kinds) if name in _rules else None


def _teach_function(function: Any, rules: tuple[Any, ...]) -> None:
    """Teach numba a function of one or two numbers with derivatives; see `_dual_form`."""
    of_one = lambda x: _dual_form(function, rules, (x,))  # noqa: E731
    of_two = lambda x, y: _dual_form(function, rules, (x, y))  # noqa: E731
    overload(function, jit_options=_options)(of_one if len(rules) == 1 else of_two)


def _teach_flat(function: Any) -> None:
    """Teach numba a function of one number that drops slopes, such as `floor`."""

    @overload(function, jit_options=_options)
    def of_value(x):
        return (lambda x: function(x.value)) if isinstance(x, DualType) else None


def _teach_functions(functions: dict[Any, str]) -> None:
    """Teach numba functions, by the names that they have among the rules."""
    for function, name in functions.items():
        if name in _rules:
            _teach_function(function, _rules[name])
        elif name in FLAT:
            _teach_flat(function)
        elif name == "absolute":  # of NumPy; `abs` knows duals
            overload(function)(lambda x: (lambda x: abs(x)) if isinstance(x, DualType) else None)


_teach_functions(
    {
        function: ALIASES.get(name, name)
        for module in (math, np)
        for name, function in vars(module).items()
        if callable(function) and not isinstance(function, type)
    }
)
_teach_function(maths.libm_pow, BINARY["pow"])


@overload(power, jit_options=_options)
def _power(x, y):
    return _dual_form(inline(power, exact=True), BINARY["pow"], (x, y))


maths.FORMS.append(_specialised_form)

# ---------------------------------------------------------------- duals made and read in kernels


@type_callable(Dual)
def _type_dual(context: Any) -> Any:
    def typer(value: Any, slopes: Any) -> Any:
        return DualType(slopes.dtype, slopes.count) if isinstance(slopes, types.UniTuple) else None

    return typer


@lower_builtin(Dual, types.Number, types.UniTuple)
def _lower_dual(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind = signature.return_type
    value = context.cast(builder, args[0], signature.args[0], kind.real)
    return _pack(context, builder, kind, value, cgutils.unpack_tuple(builder, args[1]))


@type_callable(value_of)
def _type_value_of(context: Any) -> Any:
    return lambda x: x.real if isinstance(x, DualType) else x if is_number(x) else None


@lower_builtin(value_of, types.Any)
def _lower_value_of(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    is_dual = isinstance(signature.args[0], DualType)
    return builder.extract_value(args[0], 0) if is_dual else args[0]


@type_callable(slopes_of)
def _type_slopes_of(context: Any) -> Any:
    def typer(x: Any, zeros: Any) -> Any:
        fits = isinstance(zeros, types.UniTuple) and is_number(x)
        return zeros if fits and getattr(x, "slopes", zeros) == zeros else None

    return typer


@lower_builtin(slopes_of, types.Any, types.UniTuple)
def _lower_slopes_of(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    is_dual = isinstance(signature.args[0], DualType)
    return builder.extract_value(args[0], 1) if is_dual else args[1]


@type_callable(variables)
def _type_variables(context: Any) -> Any:
    def typer(numbers: Any) -> Any:
        if not isinstance(numbers, types.UniTuple) or not isinstance(numbers.dtype, types.Float):
            return None
        return types.UniTuple(DualType(numbers.dtype, numbers.count), numbers.count)

    return typer


@lower_builtin(variables, types.UniTuple)
def _lower_variables(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind = signature.return_type.dtype
    duals = []
    for k, number in enumerate(cgutils.unpack_tuple(builder, args[0])):
        slopes = [context.get_constant(kind.real, float(k == j)) for j in range(kind.count)]
        duals.append(_pack(context, builder, kind, number, slopes))
    return context.make_tuple(builder, signature.return_type, duals)


maths.OVERLOADED.update((value_of, slopes_of, variables))
