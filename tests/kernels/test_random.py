"""Random numbers: values that never change, distributions, independence, seeds.

Every statistical test is of fixed seeds, at a significance of 1e-4 or less: it passes for good, or
shows an edit that spoils the generator. `dieharder.py` beside this file runs the large battery.
"""

import itertools
import re
import types
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.random import (
    GROUP,
    STEP_GROUP,
    Rng,
    _addends,
    keys,
    make_draw_many,
    mix,
    splitmix64,
    stream_seeds,
    uniforms,
)
from rlcpu.kernels.machine.random_methods import make_rng
from tests.kernels.lattice import shortest_relation

BITS = {np.float32: 24, np.float64: 32}
DTYPES = list(BITS)
SIGNIFICANCE = 1e-4
#: Numbers of a stream; a normal variable exceeds LIMIT once in 150,000 draws.
COUNT = 1 << 18
LIMIT = 4.5
u32 = np.uint32


def make_draw(count: int, first: int, dtype: type) -> Any:
    draw = uniforms(count, first, dtype)

    @kernel
    def fill(low, high, counters, numbers):
        for i in range(numbers.shape[0]):
            a, b = mix(low[i], high[i], counters[i])
            row = draw(a, b)
            for k in range(count):
                numbers[i, k] = row[k]

    return fill


def sample(
    seeds: Any, counters: Any, count: int = 1, first: int = 0, dtype: type = np.float32
) -> np.ndarray:
    """(n, count) numbers of n seeds and counters."""
    seeds, counters = np.broadcast_arrays(np.uint64(seeds), u32(counters))
    low, high = keys(np.ascontiguousarray(seeds))
    numbers = np.empty((len(seeds), count), dtype)
    make_draw(count, first, dtype)(low, high, np.ascontiguousarray(counters), numbers)
    return numbers


#: One environment's steps, one step of many environments: the two directions of a batch.
STREAMS = {"steps": (7, np.arange(COUNT)), "environments": (np.arange(COUNT), 3)}
streams = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)


# ---------------------------------------------------------------- values


def test_streams_never_change():
    seeds, counters = np.uint64([0, 1, 2**64 - 1]), u32([0, 1, 2**32 - 1])
    assert keys(seeds).tolist() == KEYS
    with np.errstate(over="ignore"):
        words = list(map(mix.py_func, *keys(seeds), counters))
    assert [tuple(map(int, pair)) for pair in words] == WORDS
    found = sample(seeds, counters, 10)
    assert (found * 2.0**24).astype(int).tolist() == NUMBERS
    found = sample(seeds, counters, 2, 7, np.float64)
    assert (found * 2.0**32).astype(int).tolist() == DOUBLES


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_gets_the_numbers_that_lines_draw(dtype: type):
    draw, seeds = make_draw_many(dtype), np.arange(5)

    @kernel
    def fill(low, high, numbers):
        for i in range(numbers.shape[0]):
            draw(*mix(low[i], high[i], u32(9)), 3, numbers[i])

    numbers = np.empty((5, 2 * GROUP + 1), dtype)
    fill(*keys(seeds.astype(np.uint64))[:2], numbers)
    np.testing.assert_array_equal(numbers, sample(seeds, 9, numbers.shape[1], 3, dtype))


KEYS = [[2065550767, 2298633409, 459615264], [3793791033, 2433363436, 3839455607]]
WORDS = [(3266620297, 4165189065), (788109423, 2057670813), (275088559, 1738105304)]
NUMBERS = [
    [8875228, 1833182, 13925147, 13079080, 15926200, 9465898, 5832263, 2661958, 3641965, 1587460],
    [11817908, 1437720, 14939424, 5513724, 13052900, 14903290, 1006317, 4750978, 11128342, 1627977],
    [12681754, 9183897, 13100997, 8552083, 5279509, 1080740, 7368037, 8135016, 8937066, 13244104],
]
DOUBLES = [[681461275, 932343079], [1216250509, 2848855762], [2082564304, 2287889057]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_python_draws_the_same(dtype):
    low, high = keys(np.arange(20, dtype=np.uint64))
    counters = np.arange(20, dtype=u32) * u32(0x10001)
    numbers = np.empty((20, 12), dtype)
    make_draw(12, 5, dtype)(low, high, counters, numbers)
    draw = uniforms(12, 5, dtype).py_func
    draw = types.FunctionType(draw.__code__, {**draw.__globals__, "mix": mix.py_func})
    with np.errstate(over="ignore"):
        for i in range(20):
            row = draw(*mix.py_func(low[i], high[i], counters[i]))
            assert [type(number) for number in row] == [dtype] * 12
            np.testing.assert_array_equal(numbers[i], row)


def test_numbers_do_not_depend_on_how_many_are_drawn():
    seeds = np.arange(50)
    whole = sample(seeds, 9, 3 * GROUP)
    for first, count in [(0, 1), (3, 4), (GROUP - 1, 2), (2 * GROUP, GROUP), (GROUP + 3, 1)]:
        part = sample(seeds, 9, count, first)
        np.testing.assert_array_equal(part, whole[:, first : first + count])
    assert uniforms(0, 3, np.float32).py_func(u32(1), u32(2)) == ()


def test_float64_refines_float32():
    single, double = (sample(np.arange(1000), 5, 3, 0, dtype) for dtype in DTYPES)
    np.testing.assert_array_equal(single, np.floor(double * 2.0**24) / 2.0**24)


# ---------------------------------------------------------------- distribution


@streams
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [0, 4, GROUP + 1])
def test_numbers_are_uniform(stream, dtype, index):
    numbers = sample(*stream, 1, index, dtype)[:, 0].astype(np.float64)
    words = numbers * 2.0 ** BITS[dtype]
    np.testing.assert_array_equal(words, np.floor(words))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert stats.kstest(numbers, "uniform").pvalue > SIGNIFICANCE
    # Every byte, the lowest one too.
    for shift in range(0, BITS[dtype], 8):
        found = np.bincount(words.astype(np.int64) >> shift & 255, minlength=256)
        assert stats.chisquare(found).pvalue > SIGNIFICANCE


@streams
def test_every_bit_is_fair(stream):
    for dtype, bits in BITS.items():
        words = (sample(*stream, 1, 0, dtype)[:, 0].astype(np.float64) * 2.0**bits).astype(u32)
        ones = np.array([(words >> u32(bit) & u32(1)).sum() for bit in range(bits)])
        assert np.abs(ones / COUNT - 0.5).max() < LIMIT * 0.5 / np.sqrt(COUNT)


# ---------------------------------------------------------------- independence


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Of numbers, and of their lowest 8 bits: in standard deviations, the larger one."""
    found = []
    for scale in (1.0, 2.0**16):
        left, right = (np.asarray(v, np.float64) * scale % 1.0 - 0.5 for v in (x, y))
        found.append(abs(np.mean(left * right)) * 12.0 * np.sqrt(len(left)))
    return max(found)


def serial_pvalue(x: np.ndarray, y: np.ndarray) -> float:
    """Chi-square of pairs in 64 x 64 cells."""
    cells = (x * 64).astype(int) * 64 + (y * 64).astype(int)
    return float(stats.chisquare(np.bincount(cells, minlength=4096)).pvalue)


@streams
def test_neighbours_are_independent(stream):
    """Counters one to eight apart, and keys of seeds one to eight apart."""
    numbers = sample(*stream)[:, 0]
    for lag in range(1, 9):
        assert correlation(numbers[:-lag], numbers[lag:]) < LIMIT
        assert serial_pvalue(numbers[:-lag], numbers[lag:]) > SIGNIFICANCE


@streams
def test_numbers_of_a_step_are_independent(stream):
    numbers = sample(*stream, GROUP + 4).T
    for x, y in itertools.combinations(numbers, 2):
        assert correlation(x, y) < LIMIT
        assert serial_pvalue(x, y) > SIGNIFICANCE / 100  # 66 pairs


@streams
def test_a_step_and_the_next_are_independent_in_all_their_numbers(stream):
    numbers = sample(*stream, 5).T
    for x, y in itertools.product(numbers, numbers):
        assert correlation(x[:-1], y[1:]) < LIMIT


def test_seeds_that_share_bits_are_independent():
    counters = np.arange(COUNT)
    base = sample(12345, counters)[:, 0]
    for bit in range(64):
        assert correlation(base, sample(12345 ^ 1 << bit, counters)[:, 0]) < LIMIT


draw_four, scale = uniforms(4, GROUP - 2, np.float32), np.float32(2.0**24)


@kernel
def count_flips(low, high, counters, flips):
    """How often each of 96 bits of the input flips each bit of four numbers, 24 each."""
    one = u32(1)
    for i in range(low.shape[0]):
        inputs = (low[i], high[i], counters[i])
        before = draw_four(*mix(*inputs))
        for bit in range(96):
            flip = one << u32(bit % 32)
            a = u32(inputs[0] ^ flip) if bit < 32 else inputs[0]
            b = u32(inputs[1] ^ flip) if 32 <= bit < 64 else inputs[1]
            c = u32(inputs[2] ^ flip) if bit >= 64 else inputs[2]
            after = draw_four(*mix(a, b, c))
            for k in range(4):
                changed = u32(before[k] * scale) ^ u32(after[k] * scale)
                for j in range(24):
                    flips[bit, k, j] += changed >> u32(j) & one


@pytest.mark.parametrize("counters", ["random", "in sequence"])
def test_every_bit_of_the_input_flips_every_bit_with_probability_one_half(counters):
    count = 1 << 17
    words = np.random.default_rng(0).integers(0, 2**32, (3, count), dtype=u32)
    if counters == "in sequence":
        words[2] = np.arange(count)
    flips = np.zeros((96, 4, 24), np.int64)
    count_flips(*words, flips)
    # 9,216 counts of 131,072: five standard deviations are 0.007.
    assert np.abs(flips / count - 0.5).max() < 0.007


def test_numbers_of_a_step_satisfy_no_short_linear_relation():
    addends = [_addends(index) for index in range(GROUP)]
    assert all(k % 2 == 0 for k, _ in addends)
    fives = [addends[i : i + 5] for i in range(GROUP - 4)]
    assert min(map(shortest_relation, fives)) > 20_000
    assert shortest_relation(addends) > 400


def test_a_step_has_no_short_cycle():
    _, counts = np.unique(sample(0, np.arange(COUNT), 3), axis=0, return_counts=True)
    assert counts.max() == 1


# ---------------------------------------------------------------- seeds


def test_splitmix64_gives_its_reference_values():
    # Steele, Lea & Flood's generator with seed 1234567, as published with Java's SplittableRandom.
    with np.errstate(over="ignore"):
        states = np.uint64(1234567) + np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix64(states).tolist() == expected


def test_different_seeds_have_different_keys():
    few = np.arange(10_000, dtype=np.uint64)
    seeds = np.concatenate([few, ~few])
    low, high = keys(seeds)
    assert low.dtype == high.dtype == u32
    assert len(set(zip(low.tolist(), high.tolist(), strict=True))) == len(seeds)


def test_one_seed_gives_consecutive_ones():
    for seed in (5, np.int64(5), np.uint8(5)):
        found = stream_seeds(seed, 3)
        assert found.dtype == np.uint64
        assert found.tolist() == [5, 6, 7]
    assert stream_seeds(2**64 - 1, 2).tolist() == [2**64 - 1, 0]


def test_seeds_above_64_bits_have_streams_of_their_own():
    large = [2**64, 2**64 + 1, 2**127, 2**128 - 1]
    found = stream_seeds(large, 4).tolist()
    assert found == [int(np.random.SeedSequence(s).generate_state(1, np.uint64)[0]) for s in large]
    assert len({*found, 0, 1, 2**63, 2**64 - 1}) == 8
    first = found[-1]
    assert stream_seeds(2**128 - 1, 3).tolist() == [first, first + 1, first + 2]
    assert Rng.of_seed(2**128 - 1) == Rng.of_seed(first)


@pytest.mark.parametrize("kind", [list, tuple, np.uint64])
def test_seeds_may_be_listed(kind):
    seeds = [3, 0, 2**64 - 1]
    assert stream_seeds(kind(seeds), 3).tolist() == seeds


@pytest.mark.parametrize("bad", [True, 1.0, "12", {1, 2}, None, [1, 2.0], [1, True], [1, None]])
def test_seeds_of_another_type_are_refused(bad):
    item = bad if not isinstance(bad, list) else bad[1]
    with pytest.raises(TypeError, match=rf"^seed={re.escape(repr(item))}: expected an int"):
        stream_seeds(bad, 2)


@pytest.mark.parametrize("bad", [-1, 2**128])
def test_seeds_out_of_range_are_refused(bad):
    for seed in (bad, [0, bad]):
        with pytest.raises(ValueError, match=rf"^seed={bad}: expected 0 to 2\*\*128 - 1"):
            stream_seeds(seed, 2)


def test_lists_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"^seed has 3 entries: expected one int or a list of 2$"):
        stream_seeds([1, 2, 3], 2)


# ---------------------------------------------------------------- numbers asked for one by one


def make_ask(dtype: type) -> Any:
    make = make_rng(STEP_GROUP, dtype)

    @kernel
    def ask(a, b, numbers, integers, sides):
        for i in range(numbers.shape[0]):
            rng = make(a[i], b[i])
            for k in range(numbers.shape[1]):
                numbers[i, k] = rng.uniform(k)
                integers[i, k] = rng.integers(k, sides)

    return ask


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_asked_for_are_those_of_python(dtype: type) -> None:
    rngs = [Rng.of_seed(seed, step)._replace(dtype=dtype) for seed in range(3) for step in range(3)]
    words = np.array([(rng.a, rng.b) for rng in rngs], np.uint32)
    numbers, integers = np.zeros((9, 20), dtype), np.zeros((9, 20), np.int64)
    make_ask(dtype)(words[:, 0].copy(), words[:, 1].copy(), numbers, integers, 1000)
    assert numbers.tolist() == [[rng.uniform(k) for k in range(20)] for rng in rngs]
    assert integers.tolist() == [[rng.integers(k, 1000) for k in range(20)] for rng in rngs]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_asked_for_are_uniform_and_independent(dtype: type) -> None:
    low, high = keys(stream_seeds(5, 1))
    with np.errstate(over="ignore"):
        a, b = mix.py_func(low, high, np.arange(1 << 16, dtype=np.uint32))
    numbers, integers = np.zeros((1 << 16, 10), dtype), np.zeros((1 << 16, 10), np.int64)
    make_ask(dtype)(a, b, numbers, integers, 6)
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > SIGNIFICANCE
    for column in integers.T:
        assert stats.chisquare(np.bincount(column, minlength=6)).pvalue > SIGNIFICANCE
    for first, second in itertools.combinations(numbers.T.astype(np.float64), 2):
        correlation = np.corrcoef(first, second)[0, 1] * np.sqrt(1 << 16)
        assert abs(correlation) < LIMIT


def test_rng_refuses_a_negative_number() -> None:
    with pytest.raises(ValueError, match="k=-1: random numbers of a step are counted from 0"):
        Rng.of_seed(0).uniform(-1)
