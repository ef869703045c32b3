"""What a look at a user's function refuses before anything is compiled, and what it lets pass."""

from __future__ import annotations

import os
import random
import sys
import types
from typing import Any

import pytest

from rlcpu.kernels.compiler import source
from rlcpu.kernels.compiler.source import EndlessError, call_bounded, check_source

SOURCE = """
import datetime, math, random, time
from random import random as chance
import numpy as np

numbers = np.random.default_rng(0)
table = np.arange(3.0)
pair = table, table  # which has no hash

def step(x):
    y = x + 1.0
    {line}
    return y
"""


def load(line: str) -> Any:
    module = types.ModuleType("user")
    exec(compile(SOURCE.format(line=line), "user.py", "exec"), vars(module))
    return module.step


#: The names of random numbers and clocks, each used where the trial run does not come.
CHANGING = {
    "y = random.random()": "random.random",
    "y = chance()": "chance",
    "y = np.random.rand()": "np.random.rand",
    "y = numbers.random()": "numbers",
    "y = time.time()": "time.time",
    "y = datetime.datetime.now().second": "datetime.datetime.now",
    "y = hash(np.random)": "np.random",
}
REFUSED = {
    "if x > 9.0: raise ValueError": "raises, and other environments",
    "assert x < 9.0, 'far'": "raises, and other environments",
    "y = undefined if x > 9.0 else x": "uses undefined, which is defined nowhere",
    "y = math.sinus(x) if x > 9.0 else x": "uses math.sinus, which is defined nowhere",
    "y = np.array((x, x))[0]": "uses np.array, which makes an array",
    "y = np.where(x > 9.0, x, y)": "uses np.where, which makes an array",
    "y = np.take(table, 2)": "uses np.take, which raises outside of the array",
    "y = [x, y][0]": "makes a list",
    "y = sum([k for k in (x, y)])": "makes a list",
    "y = sum(list((x, y)))": "uses list, which makes a list",
    "y = {'a': x}['a']": "makes a dict",
    "y = len({x, y})": "makes a set",
    "y = sum(k for k in (x, y))": "is a generator",
    "yield x": "is a generator",
    "import cmath": "imports a module",
    "print(x)": "uses print, which reads or writes",
    "table[0] = x": "writes into an object",
    "global count; count = x": "changes a global",
}


def test_a_print_in_the_place_of_pythons_is_told_alone(monkeypatch):
    """Such as Ray's, which asks for more than a kernel has."""
    original = print
    monkeypatch.setattr("builtins.print", lambda *args: original(*args, os.environ["HOME"]))
    with pytest.raises(TypeError, match=r"user\.py, line 12, .* uses print, which") as caught:
        check_source(load("print(x)"), random="take a number from `rng`")
    assert "environ" not in str(caught.value)


@pytest.mark.parametrize("line", [*CHANGING, *REFUSED])
def test_what_no_kernel_can_do_is_named_by_its_line(line):
    number = 10 if line in ("yield x",) else 12
    reason = REFUSED.get(line) or f"uses {CHANGING[line]}, which depends on something else than "
    with pytest.raises(TypeError) as caught:
        check_source(load(line), random="take a number from `rng`")
    text = str(caught.value)
    assert text.startswith(f"user.py, line {number}, in step: `")
    assert f"` {reason}" in text
    assert text.count("user.py") == 1  # a line is told once
    assert ("seed: take a number from `rng`" in text) == (line in CHANGING)


@pytest.mark.parametrize(
    "line",
    ["try:\n        y = x / y\n    except ZeroDivisionError:\n        y = 0.0",
     "with math.nothing:\n        y = x"],
)  # fmt: skip
def test_exceptions_and_contexts_are_refused(line):
    with pytest.raises(
        TypeError, match=r"user.py, line 1\d, in step: .* of which a kernel has non"
    ):
        check_source(load(line.replace("math.nothing", "math.pi")))


def helper(x):
    return x + random.random()


def calls_a_member_of_a_module(x):
    return this.helper(x)


this = sys.modules[__name__]


def test_functions_that_are_called_are_looked_at():
    line = helper.__code__.co_firstlineno + 1
    with pytest.raises(
        TypeError, match=rf"test_source.py, line {line}, in helper: `return x \+ ra"
    ):
        check_source(calls_a_member_of_a_module)


def test_an_empty_closure_is_refused():
    def step(x):
        return x + later

    with pytest.raises(TypeError, match="uses later, which is defined nowhere"):
        check_source(step)
    later = 1.0
    check_source(step)


@pytest.mark.parametrize(
    "line",
    [
        "y = max(*(x, y))",
        "x, y = (*(x, y), 0.0)[:2]",
        "y = (lambda z: z * table[0])(x)",
        "y = float(np.clip(x, 0.0, 1.0) + math.sin(x) + np.sqrt(y))",
        "y = x if x in (1.0, 2.0) else sum((x, y))",
        "for k in range(3): y = y + table[k]",
        "y = (table, table)[1][0] + pair[0][1]",
    ],
)
def test_what_kernels_can_do_passes(line):
    check_source(load(line))


def test_a_call_that_does_not_end_is_stopped(monkeypatch):
    assert call_bounded(load("y = x"), 0.25) == 0.25
    assert sys.gettrace() is None
    monkeypatch.setattr(source, "MAX_INSTRUCTIONS", 1000)
    with pytest.raises(EndlessError, match=r"^user.py, line 12, in step: `"):
        call_bounded(load("while x: pass"), 1.0)
    assert sys.gettrace() is None
