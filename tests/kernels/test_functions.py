"""What changes a kernel's hash, and what does not."""

import enum
import importlib
import types
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from rlcpu.kernels.compiler import functions, maths
from rlcpu.kernels.compiler.compile import FAST, define, inline, kernel, specialise
from rlcpu.kernels.compiler.functions import fingerprint
from rlcpu.kernels.machine.rows import row_access
from tests.kernels.processes import run_python

SOURCE = """
import math
GRAVITY = 9.8

def helper(x, scale=0.5):
    return scale * x

def step(x):
    return helper(x) * GRAVITY + math.sin(x) + 1.5
"""


def load(source: str) -> types.ModuleType:
    module = types.ModuleType("user")
    exec(source, vars(module))
    return module


def hash_of(source: str, **changes: Any) -> str:
    module = load(source)
    vars(module).update(changes)
    return fingerprint(module.step)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1.5", "+ 1.25"),
        ("+ math.sin", "- math.sin"),
        ("math.sin", "math.cos"),
        ("scale * x", "scale + x"),
        ("scale=0.5", "scale=0.25"),
        ("9.8", "9.81"),
        ("9.8", "10"),
        ("9.8", "-0.0"),
        ("step(x)", "step(x, y=0.0)"),
    ],
)
def test_edits_count(old, new):
    assert old in SOURCE
    assert hash_of(SOURCE) != hash_of(SOURCE.replace(old, new))
    module = load(SOURCE), load(SOURCE.replace(old, new))
    assert len({fingerprint(specialise(m.step, np.float32)) for m in module}) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import math", "\n\n\nimport math"),
        ("step(x):", "step(x):\n    # a comment\n"),
        ("step(x)", "step(x: float) -> float"),
        ("GRAVITY", "UNUSED = 1.0\nGRAVITY"),
    ],
)
def test_layout_does_not_count(old, new):
    assert hash_of(SOURCE) == hash_of(SOURCE.replace(old, new, 1))


def test_docstrings_may_change():
    documented = SOURCE.replace("step(x):", 'step(x):\n    "One."')
    assert hash_of(documented) == hash_of(documented.replace("One", "Two"))


class Params(NamedTuple):
    mass: float = 1.0


class Other(NamedTuple):
    weight: float = 1.0


class Heavy(NamedTuple):
    mass: float = 2.0


Heavy.__qualname__ = Params.__qualname__


def make_enum(left: int) -> type:
    return enum.IntEnum("Push", {"LEFT": left})


def make_mode(value: Any) -> type:
    return enum.Enum("Mode", {"SLOW": value})


def make_module(mass: float) -> types.ModuleType:
    module, module.inner = types.ModuleType("constants"), types.ModuleType("constants.inner")
    module.inner.MASS, module.UNUSED = mass, mass
    return module


VALUE = "def step(x): return value"
#: Pairs of globals that a kernel would compile to different code.
DIFFERENT = [
    (1, 1.0),
    (1, True),
    (0.0, -0.0),
    (np.float32(0.5), 0.5),
    (np.float32(1), np.int32(1)),
    ((1, 2), (2, 1)),
    ((1, (2, 3)), ((1, 2), 3)),
    (("1", 2), ("12",)),
    ([1, 2], (1, 2)),
    (np.arange(3), np.arange(3.0)),
    (np.arange(3), np.arange(3)[::-1]),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (frozenset({1}), frozenset({2})),
    (Params(), Params(2.0)),
    (Params(), Other()),
    (Params, Other),
    (Params, Heavy),
    (make_enum(0), make_enum(1)),
    (make_enum(0).LEFT, make_enum(1).LEFT),
    (make_mode(1), make_mode(2)),
    (make_mode(1).SLOW, make_mode(2).SLOW),
    (make_mode((0.5, Params())).SLOW, make_mode((0.5, Params(2.0))).SLOW),
    (make_mode(np.arange(2000)).SLOW, make_mode(np.arange(2000) // 1000 * 1000).SLOW),
    (np.float32, np.float64),
    (numba.int32, numba.int64),
    (np.sin, np.cos),
    (None, 0),
    (row_access("state"), row_access("words")),
    (inline(lambda x: x), inline(lambda x: -x)),
    (maths.fma, maths.bits),
    (specialise(maths.tanh, np.float32), specialise(maths.tanh, np.float64)),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT, ids=lambda value: repr(value)[:20])
def test_values_are_told_apart(first, second):
    assert hash_of(VALUE, value=first) == hash_of(VALUE, value=first)
    assert hash_of(VALUE, value=first) != hash_of(VALUE, value=second)


def test_members_of_modules_count_where_they_are_used():
    source = "def step(x): return constants.inner.MASS * x"
    first, same, other = (hash_of(source, constants=make_module(m)) for m in (1.0, 1.0, 2.0))
    assert first == same != other
    unused = make_module(1.0)
    unused.UNUSED = 7.0
    assert hash_of(source, constants=unused) == first


def test_what_else_was_imported_does_not_count(monkeypatch):
    def rotate(x):
        return np.cos(x) + numba.types.float64(x.turn)

    before = fingerprint(rotate)
    monkeypatch.setattr(np, "turn", 2, raising=False)  # as an import adds a submodule
    assert fingerprint(rotate) == before

    core, alias = (define("def f(): return types", types=each) for each in modules_of_types())
    assert fingerprint(core) == fingerprint(alias)


def modules_of_types():
    """The module of numba's types under both of its names; which one comes depends on imports."""
    return importlib.import_module("numba.core.types"), importlib.import_module("numba.types")


def test_members_of_enumerations_count():
    source = "def step(x): return Push.LEFT"
    assert hash_of(source, Push=make_enum(0)) != hash_of(source, Push=make_enum(1))


def test_closures_and_nested_functions_count():
    def make(mass, deep):
        def step(x):
            def inner(y):
                return mass * y

            return inner(x) + deep()

        return step

    functions = [make(1.0, lambda: 1), make(2.0, lambda: 1), make(1.0, lambda: 2)]
    assert len(set(map(fingerprint, functions))) == 3
    assert fingerprint(make(1.0, lambda: 1)) == fingerprint(functions[0])


def test_which_of_two_functions_is_meant_counts():
    one, two = (define(f"def f(x): return x + {k}") for k in (1.0, 2.0))
    assert fingerprint((one, two, one)) != fingerprint((one, two, two))


def test_options_of_kernels_count():
    def driver(x):
        return x

    options = [{}, {"parallel": True}, {"fastmath": False}, {"fastmath": {*FAST, "nnan"}}]
    assert len({fingerprint(kernel(**option)(driver)) for option in options}) == len(options)
    assert fingerprint(kernel(driver)) == fingerprint(kernel(fastmath=set(FAST))(driver))


def test_dtypes_of_specialised_functions_count():
    step = load(SOURCE).step
    hashes = {
        fingerprint(specialise(step, dtype, exact))
        for dtype in (np.float32, np.float64)
        for exact in (False, True)
    }
    assert len(hashes) == 4


def test_sources_of_intrinsics_count(monkeypatch):
    value = row_access("state")[0]
    before = hash_of(VALUE, value=value)
    monkeypatch.setattr(functions, "_source_digest", lambda path: "edited")
    assert hash_of(VALUE, value=value) != before


def test_recursion_ends():
    source = "def step(x): return other(x)\ndef other(x): return step(x)"
    assert hash_of(source) == hash_of(source)


PROGRAM = """
import json, numpy as np
from rlcpu.envs.tasks.classic_control import cartpole
from rlcpu.kernels.compiler.compile import define, specialise
from rlcpu.kernels.compiler.functions import fingerprint

step = define("def step(x): return x in {'a', 'b', 'c', 'd', 'e', 'f'}")
functions = step, specialise(cartpole.step, np.float32)
print(json.dumps([fingerprint(function) for function in functions]))
"""


def test_every_process_gets_the_same_hash():
    first, second = (run_python("-c", PROGRAM, PYTHONHASHSEED=seed) for seed in (1, 2))
    assert first == second


def test_defined_functions_count_by_their_source():
    first, second = (define(f"def f(x): return x + {k}") for k in (1, 2))
    assert fingerprint(first) != fingerprint(second)
