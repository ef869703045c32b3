"""What a user may not write in a kernel, and kernels themselves."""

import math
import re
from typing import NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core import types as nbtypes

from rlcpu.kernels.compiler import maths
from rlcpu.kernels.compiler.compile import define, inline, kernel, specialise
from tests.kernels.test_compile import COUNT, Constants, X, helper, run

# ---------------------------------------------------------------- what a user may not write


@pytest.mark.parametrize("bad", [njit(helper), math.sin, np.sin, Constants, 3, None])
def test_only_plain_functions_are_specialised(bad):
    with pytest.raises(TypeError, match=r"^function=.* has to be a plain Python function"):
        specialise(bad, np.float32)


def even(x):
    return True if x < 0.5 else odd(x - 1.0)


def odd(x):
    return False if x < 0.5 else even(x - 1.0)


def test_recursion_is_refused():
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^even calls itself"):
            specialise(even, np.float32)


def doubled(x):
    y = x + 0.5
    return np.float64(y)


def hidden_in_a_condition(x):
    return 0.5 if np.float64(x) > 1.0 else 0.1


def calls_both(x):
    wide = np.float64(x)
    again = wide + 1.0  # told of no line that only goes on with one
    return doubled(x) + hidden_in_a_condition(x) + again


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (doubled, [(doubled, 2, "return np.float64(y)")]),
        (hidden_in_a_condition, [(hidden_in_a_condition, 1, "return 0.5 if np.float64(x)")]),
        (
            calls_both,
            [
                (doubled, 2, "return np.float64(y)"),
                (hidden_in_a_condition, 1, "return 0.5 if np.float64(x) > 1.0 else 0.1"),
                (calls_both, 1, "wide = np.float64(x)"),
            ],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_line_that_makes_a_double_is_named_at_once(function, told, machine_code):
    places = [(f.__code__.co_firstlineno + line, f.__name__, text) for f, line, text in told]
    message = ".*".join(re.escape(f"line {n}, in {name}: `{text}") for n, name, text in places)
    scalar = specialise(function, np.float32)
    between = inline(lambda x: scalar(x))
    for call in (scalar, between):
        driver = kernel(define("def drive(x): return call(x)", call=call), scalars=(scalar,))
        for _ in range(2):  # a refused kernel is forgotten: it is refused again
            with pytest.raises(TypeError, match=message):
                driver(np.float32(X))
    with pytest.raises(TypeError) as caught:
        driver(np.float32(X))
    assert str(caught.value).count("in float64") == len(told)
    assert not list(machine_code.iterdir())


class Pair(NamedTuple):
    real: float
    count: int


def mixed(x, n):
    """Whole numbers meet real ones in all ways; each result is one of Python's."""
    total, best = 0, n
    for k in range(3):
        total += k * x
        best = max(best, x - k)
    ratio = n / 4 + 1 / COUNT + math.sqrt(n) + math.sin(n) + np.sqrt(n) + 2**x + x**3 + x**n
    total -= x // 2 + x % 3 + np.clip(x, 0, n) + np.maximum(x, 1) + np.clip(n, 0, 2)
    if x > n:
        return Pair(1, n), 1, n > 2, ratio
    chosen = 1 if n > 3 else 0.25
    return Pair(total, np.clip(n, 0, 2)), chosen, x < 3, best if x == n else ratio + best


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whole_numbers_become_real_where_they_meet_real_ones(dtype):
    scalar = specialise(mixed, dtype)

    @kernel(scalars=(scalar,) if dtype is np.float32 else ())
    def driver(x, n, out):
        for i in range(len(x)):
            pair, chosen, flag, ratio = scalar(x[i], n[i])
            out[i, 0], out[i, 1], out[i, 2] = pair.real, pair.count, chosen
            out[i, 3], out[i, 4] = flag, ratio

    xs, ns = np.array([2.5, 0.375, 7.5, 3.0, 1.25]), np.array([3, 4, 5, 3, 1])
    out = np.zeros((5, 5), dtype)
    driver(xs.astype(dtype), ns, out)
    plain = [mixed(float(np.float32(x)), int(n)) for x, n in zip(xs, ns, strict=True)]
    expected = [[*pair, chosen, flag, ratio] for pair, chosen, flag, ratio in plain]
    np.testing.assert_allclose(out, expected, rtol=2e-6 if dtype is np.float32 else 1e-14)
    assert type(plain[1][2]) is bool


def identity(x):
    return x


def test_a_refused_kernel_spoils_no_other(machine_code):
    bad, shared = specialise(doubled, np.float32), specialise(identity, np.float32)
    with pytest.raises(TypeError, match=r"in doubled: `return np.float64"):
        kernel(lambda x: shared(bad(x)), scalars=(shared, bad))(np.float32(X))
    good = kernel(lambda x: shared(x), scalars=(shared,))
    assert good(np.float32(X)) == np.float32(X)
    assert len(list(machine_code.iterdir())) == 1


@pytest.fixture
def machine_code(tmp_path, monkeypatch):
    """An empty folder for the machine code of this test."""
    monkeypatch.setattr("rlcpu.kernels.compiler.cache.cache_folder", lambda: tmp_path)
    return tmp_path


# ---------------------------------------------------------------- kernels


def test_kernels_are_lazy_and_release_the_interpreter():
    driver = kernel(parallel=True, fastmath={"contract"})(lambda out: None)
    assert not driver.signatures
    assert driver.targetoptions["nogil"]
    assert driver.targetoptions["parallel"]
    assert driver.targetoptions["fastmath"] == {"contract"}


def test_division_by_zero_is_a_number():
    assert kernel(lambda x: np.float32(1.0) / x)(np.float32(0.0)) == math.inf


def test_inline_functions_run_in_plain_python_too():
    @inline
    def twice(x):
        return x + x

    assert twice.py_func(3) == 6
    assert kernel(lambda x: twice(x))(3) == 6


def test_define_makes_the_function_of_a_source():
    function = define("def add(x, y): return x + y + offset", offset=0.5)
    assert function.__name__ == "add"
    assert function(1.0, 2.0) == 3.5
    assert run(specialise(define("def f(x): return x + 0.1"), np.float32), np.float32)[1] == (
        nbtypes.float32
    )


def test_replacements_are_those_of_maths():
    def tanh(x):
        return math.tanh(x)

    twin = specialise(tanh, np.float32).py_func
    assert twin.__globals__["math"].tanh is specialise(maths.tanh, np.float32)
    assert specialise(tanh, np.float64).py_func.__globals__["math"].tanh is math.tanh
