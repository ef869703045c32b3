"""What a stranger may pass to any function of scan: one sentence that names it, nothing written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlcpu.scan import (
    Advantages,
    Clips,
    TridiagonalFactors,
    TridiagonalGradients,
    VTrace,
    discounted_returns,
    factor_tridiagonal,
    gae,
    kalman_filter,
    kalman_loglik,
    kalman_loglik_vjp,
    kalman_smooth,
    lambda_returns,
    linear_scan,
    linear_scan_vjp,
    logcumsumexp,
    logcumsumexp_vjp,
    nstep_returns,
    retrace,
    solve_tridiagonal,
    tridiagonal_vjp,
    vtrace,
)

Arguments = dict[str, Any]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape)


def flags() -> np.ndarray:
    return np.zeros((4, 3), bool)


STEPS = {
    "rewards": ones(4, 3),
    "terminated": flags(),
    "truncated": flags(),
    "last_values": ones(3),
    "final_values": ones(4, 3),
    "gamma": ones(4, 3),
    "axis": 0,
}
VALUES = {**STEPS, "values": ones(4, 3), "lambda_": ones(4, 3)}
COEFFICIENTS = {"lower": ones(4, 3), "diagonal": 4 * ones(4, 3), "upper": ones(4, 3), "axis": 0}
MODEL = {
    "observations": ones(3, 4, 1),
    "transition": np.eye(2),
    "transition_cov": np.eye(2),
    "design": ones(1, 2),
    "observation_cov": np.eye(1),
    "initial_mean": ones(2),
    "initial_cov": np.eye(2),
}


@functools.cache
def factors() -> TridiagonalFactors:
    """Factors of the matrices; made in the first test, for they compile."""
    return factor_tridiagonal(**COEFFICIENTS)


def solve(**arguments: Any) -> Any:
    return factors().solve(**arguments)


OUT = ones(4, 3)
CALLS: list[tuple[Callable[..., Any], Arguments]] = [
    (discounted_returns, {**STEPS, "out": OUT}),
    (gae, {**VALUES, "out": Advantages(OUT, ones(4, 3))}),
    (lambda_returns, {**VALUES, "out": OUT}),
    (nstep_returns, {**VALUES, "n": 2, "out": OUT}),
    (vtrace, {**VALUES, "ratios": ones(4, 3), "out": VTrace(OUT, ones(4, 3))}),
    (retrace, {**VALUES, "ratios": ones(4, 3), "action_values": ones(4, 3), "out": OUT}),
    (linear_scan, {"a": OUT + 0, "b": ones(4, 3), "initial": ones(3), "axis": 0, "out": OUT}),
    (linear_scan_vjp, {"a": OUT, "y": OUT, "grad": OUT, "initial": ones(3), "axis": 0}),
    (logcumsumexp, {"x": ones(4, 3), "axis": 0, "out": OUT}),
    (logcumsumexp_vjp, {"x": OUT, "y": OUT, "grad": OUT, "axis": 0}),
    (solve_tridiagonal, {**COEFFICIENTS, "rhs": ones(4, 3), "lengths": np.full(3, 4), "out": OUT}),
    (factor_tridiagonal, COEFFICIENTS),
    (solve, {"rhs": ones(4, 3), "out": OUT}),
    (
        tridiagonal_vjp,
        {**COEFFICIENTS, "x": ones(4, 3), "grad": ones(4, 3)}
        | {"out": TridiagonalGradients(OUT, *ones(3, 4, 3))},
    ),
    (kalman_loglik, {**MODEL, "out": ones(3)}),
    (kalman_loglik_vjp, {**MODEL, "grad": ones(3)}),
    (kalman_filter, MODEL),
    (kalman_smooth, MODEL),
]
ARRAYS = [
    pytest.param(function, arguments, name, id=f"{function.__name__}-{name}")
    for function, arguments in CALLS
    for name, value in arguments.items()
    if isinstance(value, np.ndarray) and name != "out"
]
WITH_OUT = [
    pytest.param(function, arguments, id=function.__name__)
    for function, arguments in CALLS
    if "out" in arguments
]
EVERY = [pytest.param(*call, id=call[0].__name__) for call in CALLS]


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return type(value)(*map(_copied, value))
    return value.copy() if isinstance(value, np.ndarray) else value


def refused(function: Callable[..., Any], arguments: Arguments, name: str, value: Any) -> str:
    """Message of the error for an argument, after which no array has changed."""
    before = [_copied(value) for value in arguments.values()]
    with pytest.raises((TypeError, ValueError), match=rf"^{name}\b") as caught:
        function(**{**arguments, name: value})
    assert "/rlcpu/" in str(caught.traceback[-1].path).replace("\\", "/")
    for array, copy in zip(arguments.values(), before, strict=True):
        np.testing.assert_equal(array, copy)
    return str(caught.value)


@pytest.mark.parametrize(("function", "arguments", "name"), ARRAYS)
def test_masked_arrays(function: Callable[..., Any], arguments: Arguments, name: str) -> None:
    function(**arguments)
    array = arguments[name]
    for masked in (np.ma.masked_array(array, array == 1), np.ma.masked_array(array)):
        assert "masked" in refused(function, arguments, name, masked)
    with pytest.raises(TypeError, match=f"^{name}: masked"):
        function(**{**arguments, name: np.ma.masked})


@pytest.mark.parametrize(("function", "arguments", "name"), ARRAYS)
def test_what_is_no_array(function: Callable[..., Any], arguments: Arguments, name: str) -> None:
    strange = [[[1], [2, 3]], 10**400, {1.0}, {}, object(), "text", 1j, slice(None), len, [None]]
    strange += [np.datetime64("2026-01-01"), arguments[name].astype(object)]
    strange += (
        []
        if name in ("initial", "final_values", "initial_mean", "initial_cov", "lengths")
        else [None]
    )
    for value in strange:
        message = refused(function, arguments, name, value)
        assert "expected" in message
        assert len(message) < 300


@pytest.mark.parametrize(("function", "arguments"), WITH_OUT)
def test_out_is_plain_memory_of_its_own(function: Callable[..., Any], arguments: Arguments) -> None:
    out = arguments["out"]
    first = out[0] if isinstance(out, tuple) else out
    shape, size = first.shape, first.itemsize
    memory = np.full(2 * first.size, 7.0)
    view: Any = np.lib.stride_tricks.as_strided
    frozen = memory[: first.size].reshape(shape)
    frozen.flags.writeable = False
    bad = [
        np.ma.masked_array(memory[: first.size].reshape(shape)),
        view(memory, shape, [0] * len(shape)),
        frozen,
        memory[: first.size].reshape(shape).astype(np.float32),
        memory[: first.size].reshape(shape).astype(">f8"),
        memory.reshape(2, *shape),
    ]
    if len(shape) == 2:
        bad += [memory[: first.size].reshape(shape).view(np.matrix)]
        bad += [view(memory, shape, [size, size])]
    for array in bad:
        whole = out._replace(**{out._fields[0]: array}) if isinstance(out, tuple) else array
        refused(function, arguments, "out", whole)
    for value in (10**400, "text", {}, object(), [], (first,), True):
        refused(function, arguments, "out", value)
    assert (memory == 7).all()


@pytest.mark.parametrize(("function", "arguments"), EVERY)
def test_settings(function: Callable[..., Any], arguments: Arguments) -> None:
    for value in (10**400, -(10**400), 1.0, True, "0", None, [0], np.zeros(2, int), np.nan):
        if "axis" in arguments:
            refused(function, arguments, "axis", value)
        if value is not None:
            refused(function, {**arguments, "num_threads": 1}, "num_threads", value)
    if "gamma" in arguments:
        for value in (np.nan, np.inf, -1, True, 10**400, "1"):
            refused(function, arguments, "gamma", value)


@pytest.mark.parametrize("clips", [None, 1.0, (1.0, 1.0), (1.0, 1.0, "1"), (1.0, np.ones(2), 1.0)])
def test_clips(clips: Any) -> None:
    refused(vtrace, CALLS[4][1], "clips", clips)
    refused(vtrace, CALLS[4][1], "clips", Clips(c=-1.0))


@pytest.mark.parametrize("function", [kalman_loglik, kalman_loglik_vjp, kalman_filter])
def test_options_of_models(function: Callable[..., Any]) -> None:
    for value in (None, 5, [[1]], [np.ones(2)], "design"):
        refused(function, MODEL, "time_varying", value)
    for value in (None, [], np.array(["plain", "joseph"]), b"plain"):
        refused(function, MODEL, "form", value)


@pytest.mark.parametrize("name", ["method", "check"])
def test_options_of_systems(name: str) -> None:
    for value in ([], {}, np.array(["pivot", "thomas"]), b"pivot", 1.0):
        refused(solve_tridiagonal, COEFFICIENTS | {"rhs": OUT}, name, value)


def test_numbers_too_large_for_float32() -> None:
    rhs = np.ones(3, np.float32)
    for call in (
        lambda: linear_scan(1e300, rhs),
        lambda: solve_tridiagonal(1.0, 1e300, 1.0, rhs),
    ):
        with pytest.raises(ValueError, match=r"^(a|diagonal)=1e\+300: too large for float32"):
            call()
    assert np.isposinf(linear_scan(1.0, rhs, initial=np.inf)).all()
