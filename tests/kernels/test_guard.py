"""Users' functions in the compiler: reads outside of tables, and what numba cannot compile."""

import enum
import math
import sys
from typing import Any

import numpy as np
import pytest

from rlcpu.kernels.compiler.compile import kernel, specialise
from tests.kernels.test_compile import assembly, has_avx
from tests.machine_code import needs_avx512

DTYPES = [np.float32, np.float64]
SQUARE = np.arange(49.0).reshape(7, 7)
ROW = np.arange(1.0, 8.0)
COUNTS = np.arange(7)
SMALL = np.arange(7, dtype=np.uint8)
LIST = [2.5, 3.5, 4.5]
PAIRS = ((0.5, 1.5), (2.5, 3.5), (4.5, 5.5))
#: What int() makes of NaN and infinities is undefined, and must still be read from the table.
INDICES = [-9e18, -1e9, -8, -7, -6, -1, 0, 1, 6, 7, 8, 1e9, 9e18, math.nan, math.inf, -math.inf]


class Place(enum.IntEnum):
    FIRST = 0
    FAR = 1000


def clamped(index: float, size: int) -> int:
    number = int(index) if math.isfinite(index) else -(2**63)
    return min(max(number + size if number < 0 else number, 0), size - 1)


def of_square(x):
    return SQUARE[int(x), 1]


def of_rows(x):
    return SQUARE[int(x)][int(x)]


def constant(x):
    return SQUARE[11, -20] + ROW[7] + ROW[-8] + ROW[Place.FAR] + 0.0 * x


def lookup(table, index):
    return table[index, 8] + table[7][0]


def through_an_argument(x):
    return lookup(SQUARE, int(x))


def of_whole_numbers(x):
    return 1.0 if COUNTS[int(x)] == 6 else 0.0


def of_a_module(x):
    return this.ROW[int(x)]


def by_default(x, table=ROW):
    return table[int(x)]


this = sys.modules[__name__]


def of_tuples(x):
    return PAIRS[int(x)][0] + PAIRS[int(x)][1]


def of_a_list(x):
    return LIST[int(x)]


#: Each function of a table and what it has to give.
READS: list[tuple[Any, Any]] = [
    (of_square, lambda x: SQUARE[clamped(x, 7), 1]),
    (of_rows, lambda x: SQUARE[clamped(x, 7), clamped(x, 7)]),
    (constant, lambda x: SQUARE[6, 0] + ROW[6] + ROW[0] + ROW[6]),
    (through_an_argument, lambda x: SQUARE[clamped(x, 7), 6] + SQUARE[6, 0]),
    (of_whole_numbers, lambda x: float(clamped(x, 7) == 6)),
    (of_a_module, lambda x: ROW[clamped(x, 7)]),
    (by_default, lambda x: ROW[clamped(x, 7)]),
    (of_tuples, lambda x: sum(PAIRS[clamped(x, 3)])),
    (of_a_list, lambda x: LIST[clamped(x, 3)]),
]


def make_driver(function: Any, dtype: Any) -> Any:
    scalar = specialise(function, dtype, exact=dtype is np.float64)

    @kernel
    def driver(x, out):
        for i in range(x.shape[0]):
            out[i] = scalar(x[i])

    return driver


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "expected"), READS, ids=lambda f: f.__name__)
def test_reads_stay_inside_of_tables(function, expected, dtype):
    x = np.array(INDICES, dtype)
    if function is constant:
        x = x[np.isfinite(x)]
    out = np.full(x.size, np.nan, dtype)
    make_driver(function, dtype)(x, out)
    undefined = ~(np.abs(x) < 2.0**62)
    assert np.isin(out, np.array([expected(k) for k in range(7)], dtype)).all()
    np.testing.assert_array_equal(out[~undefined], [expected(k) for k in x[~undefined]])


@pytest.mark.skipif(not has_avx(), reason="counts AVX instructions")
@pytest.mark.parametrize(
    "function",
    [pytest.param(of_square, marks=needs_avx512), of_tuples],
    ids=lambda f: f.__name__,
)
def test_reads_of_tables_vectorise(function, tmp_path, monkeypatch):
    monkeypatch.setattr("rlcpu.kernels.compiler.cache.cache_folder", lambda: tmp_path)
    driver = make_driver(function, np.float32)
    driver(np.zeros(64, np.float32), np.zeros(64, np.float32))
    code = assembly(driver)
    assert ("vgather" in code) == (function is of_square)
    assert "ymm" in code
    assert "IndexError" not in "".join(driver.inspect_llvm().values())


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_whole_numbers_of_a_table_are_python_s(dtype):
    """Numba would add two uint8 as uint64, whose difference with an int64 is a float64."""
    scalar = specialise(lambda k: SMALL[k] + SMALL[k] - k - 7, dtype)

    @kernel
    def driver(out):
        for i in range(out.shape[0]):
            out[i] = scalar(i)

    out = np.zeros(7, np.int64)
    driver(out)
    np.testing.assert_array_equal(out, np.arange(7) - 7)


def test_empty_tables_are_refused():
    nothing = np.zeros((3, 0))

    def empty(x):
        return nothing[0, int(x)]

    with pytest.raises(TypeError, match=r"empty reads an empty array, of \(3, 0\)"):
        specialise(empty, np.float32)


# ---------------------------------------------------------------- what numba cannot compile


def unknown_attribute(x):
    y = x + 1.0
    return y.size


def product(x):
    return x @ x


def makes_an_array(x):
    y = np.zeros_like(ROW)
    return y[0] + x


def real_index(x):
    return ROW[x]


def calls(x):
    return product(x)


@pytest.mark.parametrize(
    ("function", "culprit", "text", "reason"),
    [
        (unknown_attribute, unknown_attribute, "return y.size", "Unknown attribute 'size' of type"),
        (calls, product, "return x @ x", r"numba has no matmul\(float32, float32\)"),
        (makes_an_array, makes_an_array, "y = np.zeros_like(ROW)", "it makes an array"),
        (
            real_index,
            real_index,
            "return ROW[x]",
            "an array takes whole numbers and slices, and",
        ),
    ],
)
def test_what_numba_cannot_compile_is_one_sentence(function, culprit, text, reason):
    scalar = specialise(function, np.float32)
    driver = kernel(lambda x: scalar(x), scalars=(scalar,))
    line = culprit.__code__.co_firstlineno + (2 if culprit is unknown_attribute else 1)
    for _ in range(2):
        with pytest.raises(TypeError, match=reason) as caught:
            driver(np.float32(0.7))
        start = f"{__file__}, line {line}, in {culprit.__name__}: `{text}` cannot be compiled: "
        assert str(caught.value).startswith(start)
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__


def test_an_error_of_a_kernel_stays_whole():
    scalar = specialise(real_index, np.float32)
    with pytest.raises(Exception, match="nopython mode pipeline") as caught:
        kernel(lambda x: scalar(1) + x.missing)(np.float32(0.7))
    assert not isinstance(caught.value, TypeError)


def powers(x):
    return x**2, x**3, x**7, (-x) ** 8, int(x) ** 3, x**-2, x**9


@pytest.mark.parametrize("x", [0.75, -1.5, 3.0])
def test_powers_are_those_of_plain_python(x: float) -> None:
    assert kernel(specialise_call(powers))(x) == pytest.approx(powers(x), rel=1e-15)


def specialise_call(function: Any) -> Any:
    own = specialise(function, np.float64, exact=True)
    return lambda x: own(x)
