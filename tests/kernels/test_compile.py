"""What becomes of a plain function in a kernel: dtypes, callees, precision, flags, errors."""

import ast
import enum
import math
import platform
import re
import types
from math import sin as sine
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features
from numba import njit
from numba.core import types as nbtypes

from rlcpu.kernels.compiler.compile import (
    EXACT,
    FAST,
    define,
    kernel,
    kernel_in,
    never_inline,
    outline,
    prefer_wide_vectors,
    source_of_tuple,
    specialise,
)
from rlcpu.kernels.compiler.functions import OfNumbers, freeze
from rlcpu.kernels.compiler.user_compiler import check_precision
from rlcpu.kernels.machine.vectors import VECTOR_BYTES
from tests.machine_code import compiled_anew

DTYPES = [np.float32, np.float64]
X = 0.7
#: Largest relative errors: a few roundings, and the polynomials of float32.
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-14}

# ---------------------------------------------------------------- what a user may write

GRAVITY = 9.8
SINGLE = np.float32(0.25)
DOUBLE = np.float64(0.1)
TABLE = (0.5, 1.5, (2.5, 3))
ARRAY = np.array([0.25, 0.75])
COUNT = 3


class Constants(NamedTuple):
    mass: float
    length: float
    count: int


class Push(enum.IntEnum):
    LEFT = -1
    RIGHT = 1


CONSTANTS = Constants(0.3, 0.7, 2)
constants = types.ModuleType("constants")
constants.MASS = 0.3
constants.inner = types.ModuleType("constants.inner")
constants.inner.LENGTH = 0.7
exec("def double(x): return 2.0 * x\ndef broken(x): return math.undefined(x)", vars(constants))


def helper(x, scale=0.1):
    return scale * x + 0.5


def literals(x):
    return 1.5 * x + 1e-3 - (x / 3.0) ** 2.0


def whole_power(x):
    return x**2 + x**3


def global_floats(x):
    return GRAVITY * x + SINGLE + DOUBLE + (0.5 if COUNT > 2 else 0.25)


def tuples(x):
    first, second = (0.1, 0.2)
    return x * first + second + TABLE[0] * TABLE[2][0]


def named_tuple(x):
    return CONSTANTS.mass * x + Constants(0.1, 0.2, 3).length


def arrays(x):
    return ARRAY[0] * x + ARRAY[1]


def math_module(x):
    return math.sin(x) * math.cos(x) + math.exp(x) + math.log(x) - math.tanh(x) + math.pi


def math_without_a_replacement(x):
    return math.sqrt(x) + math.atan2(x, 0.3) + math.fabs(-x) + math.copysign(0.1, x)


def numpy_module(x):
    return np.sin(x) + np.exp(x) + np.sqrt(x) + np.pi


def imported_name(x):
    return sine(x) + 0.1


def calls(x):
    return helper(x) + helper(x, 0.3) + helper(x, scale=0.7)


def own_module(x):
    return constants.double(x) + constants.MASS * constants.inner.LENGTH


def enumeration(x):
    return 0.5 * x if COUNT != Push.LEFT else 0.1


def builtin_names(x):
    return min(max(abs(x), 0.1), 0.9) if x < 1.0 else -0.1


def nested(x):
    def inner(y):
        return 0.1 * y + GRAVITY

    return inner(x) + 0.2


def make_closure(mass: float) -> Any:
    offset, weights = 0.3, (0.1, mass)

    def closure(x):
        return weights[1] * x + offset * helper(x)

    return closure


FUNCTIONS = [
    literals,
    whole_power,
    global_floats,
    tuples,
    named_tuple,
    arrays,
    math_module,
    math_without_a_replacement,
    numpy_module,
    imported_name,
    calls,
    own_module,
    enumeration,
    builtin_names,
    nested,
    make_closure(0.7),
    lambda x: 0.1 * x + GRAVITY,
]


def run(scalar: Any, dtype: type, x: float = X) -> tuple[Any, Any]:
    """Result of a specialised function of one number, and numba's type of it."""
    driver = njit(error_model="numpy")(lambda x: scalar(x))
    result = driver(dtype(x))
    return result, driver.nopython_signatures[0].return_type


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_computes_in_the_dtype_alone(function, dtype):
    scalar = specialise(function, dtype)
    result, kind = run(scalar, dtype)
    assert kind == numba.from_dtype(np.dtype(dtype))
    assert result == pytest.approx(float(function(np.float64(X))), rel=TOLERANCE[dtype])
    if dtype is np.float32:
        check_precision((scalar,))


def test_the_function_itself_is_left_as_it_was():
    before = literals.__code__
    specialise(literals, np.float32)
    assert literals.__code__ is before
    assert literals(0.1) == 1.5 * 0.1 + 1e-3 - (0.1 / 3.0) ** 2.0


def test_specialised_once_for_each_dtype():
    assert specialise(helper, np.float32) is specialise(helper, np.float32, False)
    assert specialise(helper, np.float32) is specialise(helper, np.dtype("float32"), exact=False)
    assert specialise(helper, np.float32) is not specialise(helper, np.float64)


USER = """
import enum, types
import numba
import numpy as np

GAIN, TABLE, PAIR = 2.0, np.array([3.0, 4.0]), (5.0, np.array([6.0]))
constants = types.ModuleType("constants")
constants.OFFSET = 7.0

class Mode(enum.Enum):
    SLOW = 8.0

def helper(x):
    return x * GAIN

@numba.njit
def compiled_helper(x):
    return x * GAIN

def step(x):
    y = helper(x) + TABLE[0] + PAIR[0] + PAIR[1][0] + constants.OFFSET + Mode.SLOW.value
    return compiled_helper(y)
"""


@pytest.mark.parametrize(
    "change",
    [
        "GAIN = 2.5",
        "def helper(x): return x + 0.5",
        "TABLE[0] = 3.5",
        "PAIR[1][0] = 6.5",
        "constants.OFFSET = 7.5",
        "class Mode(enum.Enum): SLOW = 8.5",
    ],
)
def test_what_changed_since_is_compiled(change):
    """With the same function, in the same process; what is compiled already stays as it was."""
    module, plain = types.ModuleType("user"), types.ModuleType("user")
    exec(USER, vars(module))
    exec(USER.replace("@numba.njit", ""), vars(plain))
    first, old = specialise(module.step, np.float64), plain.step(X)
    for each in (module, plain):
        exec(change, vars(each))
    second, new = specialise(module.step, np.float64), plain.step(X)
    assert old != new
    assert run(first, np.float64)[0] == pytest.approx(old, rel=1e-14)
    assert run(second, np.float64)[0] == pytest.approx(new, rel=1e-14)


def test_equal_code_is_compiled_once():
    modules = types.ModuleType("user"), types.ModuleType("user")
    for k, module in enumerate(modules):
        exec("\n\n" * k + USER, vars(module))
    steps = [specialise(module.step, np.float32) for module in modules]
    assert steps[0] is steps[1]
    assert freeze(freeze(modules[0].step)) is freeze(modules[1].step)


def test_a_helper_of_two_functions_is_compiled_once():
    def helper(x):
        return x * 0.5

    twins = [specialise(f, np.float32) for f in (lambda x: helper(x) + 1, lambda x: helper(x) - 1)]
    helpers = [twin.py_func.__closure__[0].cell_contents for twin in twins]
    assert twins[0] is not twins[1]
    assert helpers[0] is helpers[1]


def test_results_keep_their_types():
    def several(x):
        return (x * 2.0, 0.1), x > 0.5, COUNT, Constants(x, 0.5, 7)

    result, kind = run(specialise(several, np.float32), np.float32)
    single = nbtypes.float32
    assert kind[0] == nbtypes.UniTuple(single, 2)
    assert kind[1] == nbtypes.boolean
    assert isinstance(kind[2], nbtypes.Integer)
    assert kind[3].types[:2] == (single, single)
    assert result[1] is True
    assert type(result[3]) is Constants


def test_exact_functions_are_not_contracted():
    def product(x):
        return x * x + 0.1

    values = np.random.default_rng(0).random(1000)
    exact, fast = (specialise(product, np.float64, exact) for exact in (True, False))
    assert [run(exact, np.float64, x)[0] == product(x) for x in values[:3]] == [True] * 3
    driver = njit(lambda values, out: _each(exact, values, out))
    out = np.empty_like(values)
    driver(values, out)
    np.testing.assert_array_equal(out, [product(x) for x in values])
    assert "fmadd" not in assembly(driver)
    driver = njit(lambda values, out: _each(fast, values, out))
    driver(values, out)
    if has_avx():
        assert "fmadd" in assembly(driver)


@njit(forceinline=True)
def _each(scalar, values, out):
    for i in range(values.shape[0]):
        out[i] = scalar(values[i])


def make_scaling() -> Any:
    def move(x: float) -> float:
        return x + 0.1

    of_numbers = OfNumbers(move)

    def run(numbers: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = of_numbers(numbers[i]) * out.size

    return run


def test_a_kernel_in_a_dtype_computes_in_it() -> None:
    numbers, outs = np.random.default_rng(0).random(7, np.float32), []
    for dtype in DTYPES:
        run = kernel_in(dtype, make_scaling())
        outs.append(np.empty(7))
        run(numbers, outs[-1])
        assert kernel_in(dtype, make_scaling()) is run
    # Numba would compute the product of a float32 and a whole number in float64.
    np.testing.assert_array_equal(outs[0], outs[0].astype(np.float32))
    assert (outs[1] != outs[1].astype(np.float32)).all()  # the constant is a float64
    for out in outs:
        np.testing.assert_allclose(out, (numbers.astype(float) + 0.1) * 7, rtol=1e-6)


def assembly(dispatcher: Any) -> str:
    return "".join(dispatcher.inspect_asm().values())


def has_avx() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and bool(get_host_cpu_features().get("avx2"))


def test_fast_mathematics_sees_nan_and_infinity():
    def is_nan(x):
        return x != x

    def is_infinite(x):
        return x - 1.0 == x

    assert not {"nnan", "ninf"} & FAST
    assert EXACT is False
    for function, value in ((is_nan, math.nan), (is_infinite, math.inf)):
        scalar = specialise(function, np.float32)
        driver = kernel(lambda x, scalar=scalar: scalar(x))
        assert driver(np.float32(value))
        assert not driver(np.float32(0.5))


def test_what_is_wide_has_the_widest_vectors():
    @kernel
    def driver(x):
        prefer_wide_vectors()
        for i in range(512):
            x[i] = x[i] * x[i] + np.float32(1)

    x = np.full(512, 2, np.float32)
    driver(x)
    np.testing.assert_array_equal(x, 5)
    code = compiled_anew(driver, x).inspect_asm(driver.signatures[0])
    assert ("zmm" in code) == (VECTOR_BYTES == 64)


def test_what_is_apart_is_called_and_not_written_into_its_callers():
    @outline
    def square(x):
        return x * x

    @outline
    def square_apart(x):
        never_inline()
        return x * x

    def calls(function):
        @kernel
        def driver(x):
            x[0] = function(x[0])

        x = np.array([3.0])
        driver(x)
        assert x[0] == 9.0
        code = compiled_anew(driver, x).inspect_llvm(driver.signatures[0])
        return len(re.findall(r"call [^@]*@[^(]*square", code))

    assert (calls(square), calls(square_apart)) == (0, 1)


def test_long_tuples_are_joined_in_pairs():
    """Compiling takes time with the items that sums copy: 14,000 here, not 127,000."""

    def copied(node):
        if isinstance(node, ast.Tuple):
            return len(node.elts), 0
        (left, left_copied), (right, right_copied) = copied(node.left), copied(node.right)
        return left + right, left + right + left_copied + right_copied

    for count in (0, 1, 16, 17, 33, 70, 2000):
        source = source_of_tuple(str(k) for k in range(count))
        assert define(f"def items(): return {source}")() == tuple(range(count))
        items, total = copied(ast.parse(source, mode="eval").body)
        assert items == count
        assert total <= count * max(1, count.bit_length() - 4)
