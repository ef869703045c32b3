"""Numbers that carry their slopes, in Python and in kernels, against PyTorch's derivatives."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.kernels.compiler.compile import define, inline, kernel, source_of_tuple, specialise
from rlcpu.nn.duals import compiled as compiled  # teaches numba duals
from rlcpu.nn.duals import numbers as duals
from rlcpu.nn.duals.numbers import Dual, slopes_of, value_of, variables
from tests.kernels.test_maths_code import DOUBLE
from tests.machine_code import assembly

DTYPES = (np.float64, np.float32)
TOLERANCES = {np.float64: 1e-12, np.float32: 2e-5}


def make_driver(function: Any, count: int, results: int, dtype: Any, exact: bool = True) -> Any:
    """A kernel of columns: values and slopes of results, and values from plain numbers.

    The function takes a tuple of `count` variables, and returns a tuple.
    """
    scalar = specialise(function, dtype, exact)
    lines = ["def driver(columns, values, slopes, plain):", "    for i in range(columns.shape[1]):"]
    numbers = source_of_tuple(f"columns[{k}, i]" for k in range(count))
    lines += [f"        numbers = {numbers}", "        found = scalar(variables(numbers))"]
    lines += ["        expected = scalar(numbers)"]
    for k in range(results):
        lines += [
            f"        values[{k}, i] = value_of(found[{k}])",
            f"        plain[{k}, i] = value_of(expected[{k}])",
            f"        given = slopes_of(found[{k}], zeros)",
            *(f"        slopes[{k}, {j}, i] = given[{j}]" for j in range(count)),
        ]
    names = {"value_of": value_of, "slopes_of": slopes_of, "variables": variables}
    zeros = (dtype(0),) * count
    driver = define("\n".join(lines), scalar=scalar, zeros=zeros, **names)
    return kernel(driver, fastmath=False)


def evaluate(function: Any, columns: Any, results: int, dtype: Any) -> tuple[Any, Any, Any]:
    columns = np.asarray(columns, dtype)
    count, size = columns.shape
    values, plain = np.zeros((2, results, size), dtype)
    slopes = np.zeros((results, count, size), dtype)
    make_driver(function, count, results, dtype)(columns, values, slopes, plain)
    return values, slopes, plain


def in_torch(function: Any, columns: Any, results: int) -> tuple[Any, Any]:
    """Values and slopes of a function of a tuple of tensors, in float64."""
    numbers = [torch.tensor(np.asarray(c, np.float64), requires_grad=True) for c in columns]
    found = function(tuple(numbers))
    slopes = np.zeros((results, *np.shape(columns)))
    for k, result in enumerate(found):
        if result.requires_grad:
            given = torch.autograd.grad(result.sum(), numbers, retain_graph=True, allow_unused=True)
            slopes[k] = [0 * numbers[0].detach() if g is None else g for g in given]
    return np.array([r.detach().expand(len(columns[0])) for r in found]), slopes


# ---------------------------------------------------------------- operations


def operate(numbers):
    x, y = numbers
    first = (
        x + y, x + 2, 2.0 + x, True + x, x - y, x - 2, 2.0 - x, x * y, x * 3, 3.0 * x,
    )  # fmt: skip
    second = (
        x / y, x / 4, 4.0 / x, -x, +x, x**y, x**2, x**-3, x**0, 2.0**y, x**2.5,
        x % y, -x % 0.3, 2 % y, x // y, -x // 0.3, 2 // y,
    )  # fmt: skip
    third = (
        min(x, y), max(x, y), min(x, 0.5), max(0.5, x), min(x, y, 0.25), max(x, 0.75, y),
        abs(x - 0.5), x if x > y else y, y if x > 0.5 else 0.25, x * (x >= y),
    )  # fmt: skip
    return first + second + third


def operate_torch(numbers):
    x, y = numbers
    half, quarter, most = (0 * x + value for value in (0.5, 0.25, 0.75))
    first = (
        x + y, x + 2, 2.0 + x, 1 + x, x - y, x - 2, 2.0 - x, x * y, x * 3, 3.0 * x,
    )  # fmt: skip
    second = (
        x / y, x / 4, 4.0 / x, -x, +x, x**y, x**2, x**-3, x**0, 2.0**y, x**2.5,
        torch.remainder(x, y), torch.remainder(-x, 0.3), torch.remainder(2 + 0 * y, y),
        (x / y).floor(), (-x / 0.3).floor(), (2 / y).floor(),
    )  # fmt: skip
    third = (
        torch.minimum(x, y), torch.maximum(x, y), torch.minimum(x, half), torch.maximum(x, half),
        torch.minimum(torch.minimum(x, y), quarter), torch.maximum(torch.maximum(x, most), y),
        abs(x - 0.5), torch.where(x > y, x, y), torch.where(x > 0.5, y, quarter), x * (x >= y),
    )  # fmt: skip
    return first + second + third


def call(numbers):
    x, y = numbers
    first = (
        math.acos(x), math.acosh(1.0 + x), math.asin(x), math.asinh(x), math.atan(x),
        math.atanh(x), math.cos(x), math.cosh(x), math.erf(x), math.erfc(x), math.exp(x),
        math.expm1(x), math.fabs(x - 0.5), math.log(x), math.log10(x), math.log1p(x),
    )  # fmt: skip
    second = (
        math.log2(x), math.sin(x), math.sinh(x), math.sqrt(x), math.tan(x), math.tanh(x),
        math.atan2(x, y), math.atan2(x, 0.5), math.atan2(0.5, x), math.copysign(x, y - 0.5),
        math.hypot(x, y), math.pow(x, y), math.pow(x, 1.5), math.pow(1.5, x),
        math.fmod(4.0 * x, y), np.sqrt(x), np.arctan2(x, y), np.clip(x, 0.25, 0.75), np.abs(-x),
    )  # fmt: skip
    return first + second


def call_torch(numbers):
    x, y = numbers
    half = torch.full_like(x, 0.5)
    first = (
        x.acos(), (1.0 + x).acosh(), x.asin(), x.asinh(), x.atan(),
        x.atanh(), x.cos(), x.cosh(), x.erf(), x.erfc(), x.exp(),
        x.expm1(), abs(x - 0.5), x.log(), x.log10(), x.log1p(),
    )  # fmt: skip
    second = (
        x.log2(), x.sin(), x.sinh(), x.sqrt(), x.tan(), x.tanh(),
        x.atan2(y), x.atan2(half), half.atan2(x), torch.copysign(x, y - 0.5),
        torch.hypot(x, y), x**y, x**1.5, 1.5**x,
        torch.fmod(4.0 * x, y), x.sqrt(), x.atan2(y), x.clamp(0.25, 0.75), abs(-x),
    )  # fmt: skip
    return first + second


PAIRS = {"operators": (operate, operate_torch), "functions": (call, call_torch)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", PAIRS)
def test_operations_have_the_derivatives_of_autograd(kind, dtype):
    function, reference = PAIRS[kind]
    columns = np.random.default_rng(0).uniform(0.05, 0.95, (2, 50)).astype(dtype)
    expected, by_numbers = in_torch(reference, columns, results := len(reference(torch.ones(2))))
    values, slopes, plain = evaluate(function, columns, results, dtype)
    np.testing.assert_array_equal(values, plain)  # the same bits as of plain numbers
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(values, expected, tolerance, tolerance)
    for k in range(results):
        np.testing.assert_allclose(slopes[k], by_numbers[k], tolerance, tolerance, err_msg=str(k))
    for i in range(5):
        found, given = duals.slopes(lambda *numbers: function(numbers), *columns[:, i])
        np.testing.assert_allclose(found, expected[:, i], tolerance, tolerance)
        np.testing.assert_allclose(given, by_numbers[:, :, i], tolerance, tolerance)
        assert {type(x) for row in given for x in row} == {dtype}


# ---------------------------------------------------------------- where there is no derivative


def at_kinks(numbers):
    x, y = numbers  # 0 and 0
    first = (
        max(0.0, x), max(x, 0.0), min(x, y), max(y, x), abs(x), math.fabs(x), np.abs(x),
        min(max(x, 0.0), 1.0), x if x > 0.0 else 0.0, math.hypot(x, y), x**0, math.sqrt(x) + y,
    )  # fmt: skip
    second = math.sqrt(x * x), x / y, y**2.0, (1.0 + x) ** y
    return first + second


KINKS = [
    (0, 0), (1, 0), (1, 0), (0, 1), (0, 0), (0, 0), (0, 0),
    (1, 0), (0, 0), (0, 0), (0, 0), (math.inf, 1),
    (0, 0), (math.inf, math.nan), (0, 0), (0, 0),
]  # fmt: skip


def test_conventions_where_there_is_no_derivative():
    _, slopes, _ = evaluate(at_kinks, np.zeros((2, 1)), len(KINKS), np.float64)
    np.testing.assert_array_equal(slopes[:, :, 0], KINKS)
    zeros = np.float64(0), np.float64(0)  # of Python's own numbers log(0) raises
    with np.errstate(all="ignore"):
        given = duals.slopes(lambda *numbers: at_kinks(numbers), *zeros)[1]
    np.testing.assert_array_equal(given, KINKS)


@pytest.mark.parametrize("bound", [0.0, 1.0])
def test_clamps_and_relus_are_those_of_pytorch(bound):
    def kinked(numbers):
        (x,) = numbers
        return min(max(x, 0.0), 1.0), max(0.0, x), np.clip(x, 0.0, 1.0), abs(x)

    x = torch.tensor(bound, requires_grad=True)
    expected = []
    for y in (x.clamp(0.0, 1.0), x.relu(), x.clamp(0.0, 1.0), x.abs()):
        expected.append(float(torch.autograd.grad(y, x)[0]))
    _, slopes, _ = evaluate(kinked, [[bound]], 4, np.float64)
    assert slopes.ravel().tolist() == expected
    assert duals.slopes(lambda x: kinked((x,)), bound)[1] == tuple((s,) for s in expected)


# ---------------------------------------------------------------- statements


class Pair(NamedTuple):
    first: Any
    second: Any


def shifted(x, by=0.5):
    return x + by


def write_statements(numbers):
    x, y = numbers
    chosen = 1.0
    if x > y:
        chosen = x * y
    elif not x:
        chosen = shifted(y)
    total = 0.0
    for k in range(3):
        total += x * k if k else y
    pair = Pair(shifted(x, y), 2.0)
    if math.isnan(x) or not math.isfinite(y):
        return 0.0, 0.0, 0.0, 0.0, 0.0
    steps = math.floor(4.0 * x) + math.ceil(y)
    return chosen, total, pair.first * pair.second, x * steps, x * int(4.0 * y) * (x > y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_statements_mix_duals_and_plain_numbers(dtype):
    columns = np.array([[0.75, 0.25, 0.0, math.nan], [0.5, 0.5, 0.5, 0.5]], dtype)
    values, slopes, plain = evaluate(write_statements, columns, 5, dtype)
    np.testing.assert_array_equal(values, plain)
    expected = [[(0.5, 0.75), (0, 0), (0, 1), (0, 0)], [(3, 1)] * 3 + [(0, 0)]]
    np.testing.assert_array_equal(slopes[:2].transpose(0, 2, 1), expected)
    for i in range(4):
        found, by_numbers = duals.slopes(lambda x, y: write_statements((x, y)), *columns[:, i])
        np.testing.assert_array_equal(found, values[:, i])
        np.testing.assert_array_equal(by_numbers, slopes[:, :, i])


def test_duals_are_made_in_kernels_and_in_python():
    @kernel
    def product(x, slopes, out):
        y = Dual(x, (slopes[0], slopes[1])) * 2
        out[0], out[1], out[2] = y.value, y.slopes[0], y.slopes[1]

    out = np.zeros(3)
    product(3.0, np.array([1.0, 0.5]), out)
    assert out.tolist() == [6.0, 2.0, 1.0]
    y = Dual(3.0, (1.0, 0.5)) * np.float64(2)
    assert (y.value, y.slopes) == (6.0, (2.0, 1.0))
    assert repr(Dual(6.0, (2.0, 1.0))) == "Dual(6.0, (2.0, 1.0))"
    assert value_of(2.5) == 2.5
    assert slopes_of(2.5, (0.0,)) == (0.0,)


# ---------------------------------------------------------------- random expressions


def expressions(functions):
    """Source of functions of x and y that stay within 1e6 for x and y within +-3."""
    inner = [
        "({} + {})", "({} - {})", "({} * {})", "({} / (2.0 + abs({})))", "min({}, {})",
        "max({}, {})", "(-{})", "abs({})", "({} if {} > 0.25 else {})", "(2 * {})", "(1.5 - {})",
        "(3.0 / (1.0 + {} * 0.0))",
    ]  # fmt: skip

    def grow(children):
        def fill(pattern):
            return st.tuples(*[children] * pattern.count("{}")).map(lambda c: pattern.format(*c))

        return st.sampled_from(inner + functions).flatmap(fill)

    # A constant alone is a double in Python; one that meets a variable has its precision.
    return st.recursive(st.sampled_from(["x", "y", "(0.75 + 0.0 * x)"]), grow, max_leaves=8)


FUNCTIONS = [
    "math.exp(min({}, 2.0))", "math.log(1.0 + abs({}))", "math.sqrt(0.5 + abs({}))",
    "math.tanh({})", "math.sin({})", "math.atan2({}, 2.0)",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_python_and_kernels_agree_bit_for_bit(dtype):
    strategy = expressions(FUNCTIONS if dtype is np.float64 else [])
    number = st.floats(-3.0, 3.0, width=32)

    @settings(max_examples=4, deadline=None, database=None, derandomize=True)
    @given(st.lists(strategy, min_size=12, max_size=12), st.data())
    def check(sources, data):
        columns = np.array([[data.draw(number) for _ in range(8)] for _ in range(2)], dtype)
        lines = ["def compute(numbers):", "    x, y = numbers"]
        lines += [f"    r{k} = {source}" for k, source in enumerate(sources)]
        results = source_of_tuple(f"r{k}" for k in range(len(sources)))
        compute = define("\n".join([*lines, f"    return {results}"]), math=math)
        compute.__module__ = __name__
        values, slopes, _ = evaluate(compute, columns, len(sources), dtype)
        for i in range(columns.shape[1]):
            x, y = (dtype(c) if dtype is np.float32 else float(c) for c in columns[:, i])
            found, given = duals.slopes(lambda x, y: compute((x, y)), x, y)
            np.testing.assert_array_equal(found, values[:, i])
            np.testing.assert_array_equal(given, slopes[:, :, i])

    check()


# ---------------------------------------------------------------- machine code


def surrogate(log_prob, entropy, value, old, advantage, target):
    ratio = math.exp(log_prob - old)
    gain = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
    error = math.tanh(value) - target
    loss = -gain + 0.5 * error * error - 0.01 * entropy
    return loss, ratio if abs(ratio - 1.0) > 0.2 else 0.0


def test_loops_of_duals_are_vectorised_without_doubles():
    scalar, zeros = specialise(surrogate, np.float32), (np.float32(0),) * 3

    @inline
    def loop(log_probs, entropies, values, old, advantages, targets, out):
        for i in range(log_probs.size):
            a, b, c = variables((log_probs[i], entropies[i], values[i]))
            loss, _ = scalar(a, b, c, old[i], advantages[i], targets[i])
            given = slopes_of(loss, zeros)
            log_probs[i], entropies[i], values[i] = given
            out[i] = value_of(loss)

    @kernel(scalars=(scalar,))
    def driver(rows):
        loop(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6])

    rows = np.random.default_rng(0).uniform(0.1, 0.9, (7, 64)).astype(np.float32)
    numbers = [torch.tensor(row.astype(np.float64), requires_grad=True) for row in rows[:6]]
    ratio = (numbers[0] - numbers[3]).exp()
    gain = torch.minimum(ratio * numbers[4], ratio.clamp(0.8, 1.2) * numbers[4])
    loss = -gain + 0.5 * (numbers[2].tanh() - numbers[5]) ** 2 - 0.01 * numbers[1]
    expected = torch.autograd.grad(loss.sum(), numbers[:3])
    code = assembly(driver, rows)
    driver(rows)
    np.testing.assert_allclose(rows[6], loss.detach(), 1e-5, 1e-5)
    np.testing.assert_allclose(rows[:3], np.array(expected), 1e-5, 1e-6)
    assert re.search(r"\tv?mulps|\tfmul\t.*\.4s", code)
    assert not DOUBLE.search(code)


# ---------------------------------------------------------------- what is refused


def in_double(x):
    return x * np.float64(COUNT) + x


class Box:
    def __init__(self, content):
        self.content = content


def of_object(x):
    return Box(x).content


def as_float(x):
    return float(x) * 2.0


COUNT = 3


@pytest.mark.parametrize("function", [of_object, as_float], ids=lambda f: f.__name__)
def test_what_duals_cannot_do_is_refused_with_its_line(function):
    scalar = specialise(function, np.float32)
    driver = kernel(lambda x: value_of(scalar(variables((x,))[0])))
    with pytest.raises(TypeError, match=rf"test_duals\.py, line \d+, in {function.__name__}: `"):
        driver(np.float32(1))


def test_doubles_are_refused_where_numbers_have_slopes():
    scalar = specialise(in_double, np.float32)

    @kernel(scalars=(scalar,))
    def driver(x):
        return value_of(scalar(variables((x,))[0]))

    with pytest.raises(TypeError, match=r"in in_double: `.*` computes .*in float64"):
        driver(np.float32(1))


def test_python_refuses_to_lose_slopes():
    with pytest.raises(TypeError, match="float"):
        duals.slopes(as_float, 0.5)
    with pytest.raises(TypeError, match="a number of 1 slopes meets one of 2"):
        Dual(1.0, (1.0,)) + Dual(1.0, (1.0, 0.0))
    with pytest.raises(TypeError, match="unsupported operand"):
        Dual(1.0, (1.0,)) + "1"
