"""What a user may not write in a kernel, and kernels themselves."""

import math
import re

import numpy as np
import pytest
from numba import njit
from numba.core import types as nbtypes

from rlcpu.kernels import maths
from rlcpu.kernels.compile import define, inline, kernel, specialise
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


def times_two(x):
    y = x + 0.5
    return 2 * y


def through_a_callee(x):
    return times_two(x) + 0.5


def hidden_in_a_condition(x):
    return 0.5 if 2 * x > 1.0 else 0.1


def calls_hidden(x):
    return hidden_in_a_condition(x) + x


def divides_whole_numbers(x):
    return x + 1 / COUNT


@pytest.mark.parametrize(
    ("function", "culprit", "text"),
    [
        (times_two, times_two, "return 2 * y"),
        (through_a_callee, times_two, "return 2 * y"),
        (hidden_in_a_condition, hidden_in_a_condition, "return 0.5 if 2 * x > 1.0 else 0.1"),
        (calls_hidden, hidden_in_a_condition, "return 0.5 if 2 * x > 1.0 else 0.1"),
        (divides_whole_numbers, divides_whole_numbers, "return x + 1 / COUNT"),
    ],
)
def test_double_precision_is_refused_with_its_line(function, culprit, text, machine_code):
    line = culprit.__code__.co_firstlineno + (2 if culprit is times_two else 1)
    message = f"{culprit.__name__}, line {line}: `{text}` computes"
    scalar = specialise(function, np.float32)
    between = inline(lambda x: scalar(x))
    for call in (scalar, between):
        driver = kernel(define("def drive(x): return call(x)", call=call), scalars=(scalar,))
        for _ in range(2):  # a refused kernel is forgotten: it is refused again
            with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
                driver(np.float32(X))
    assert not list(machine_code.iterdir())


def identity(x):
    return x


def test_a_refused_kernel_spoils_no_other(machine_code):
    bad, shared = specialise(times_two, np.float32), specialise(identity, np.float32)
    with pytest.raises(TypeError, match=r"^times_two, line"):
        kernel(lambda x: shared(bad(x)), scalars=(shared, bad))(np.float32(X))
    good = kernel(lambda x: shared(x), scalars=(shared,))
    assert good(np.float32(X)) == np.float32(X)
    assert len(list(machine_code.iterdir())) == 1


@pytest.fixture
def machine_code(tmp_path, monkeypatch):
    """An empty folder for the machine code of this test."""
    monkeypatch.setattr("rlcpu.kernels.cache.cache_folder", lambda: tmp_path)
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
