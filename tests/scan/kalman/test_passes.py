"""The passes in plain Python, one number at a time, against the joint distribution."""

from typing import Any

import numpy as np
import pytest

from rlcpu.scan.kalman.filter import (
    GRADIENT,
    SMOOTH,
    STATES,
    VALUE,
    WantedResults,
    forward,
    lay_out,
    size_of,
)
from rlcpu.scan.kalman.model import MATRICES, make_problem
from rlcpu.scan.kalman.reverse import backward
from rlcpu.scan.kalman.run import find_places
from tests.scan.kalman.naive import NAMES, Joint, each_model, make_models, slope


def run_plain(
    kind: int, arrays: dict[str, Any], shapes: Any, varying: Any = (), form: str = "plain"
) -> tuple[Any, list[Any]]:
    """Log-likelihoods, and outputs of these shapes, in chunks of at most 8 time steps."""
    problem = make_problem(tuple(arrays.values()), varying, form, None)
    matrices = np.concatenate([array.ravel() for array in problem.inputs[1:]])
    (steps, p), (m, _) = problem.shapes[0], problem.shapes[-1]
    models, chunk, chunks = int(np.prod(problem.batch)), min(steps, 8), -(-steps // 8)
    sizes = [int(np.prod(shape)) for shape in shapes]
    begins = np.cumsum([0, *sizes]) * models
    rows = zip(begins, sizes, [int(np.prod(shape[1:])) for shape in shapes], strict=False)
    out, logliks = np.full(begins[-1], np.nan), np.zeros(models)
    places = find_places(
        problem.batch, tuple(array.shape for array in problem.inputs), problem.shapes, models
    )
    sized = steps, m, p, chunk, 1e-30
    varies, y = any(problem.paces[1:]), problem.inputs[0].ravel()
    files = y, matrices, places, problem.paces, out, np.array(list(rows)), logliks
    for model in range(models):
        call = WantedResults(kind, problem.joseph, varies, models, model, *sized, *files)
        w = lay_out(np.zeros(size_of(m, p, chunk, chunk, chunks)), m, p, chunk, chunk, chunks)
        forward(call, w)
        if kind in (SMOOTH, GRADIENT):
            backward(call, w)
    ends = zip(begins, begins[1:], shapes, strict=False)
    return logliks, [out[i:j].reshape(models, *shape) for i, j, shape in ends]


def settling(p: int, **options: Any) -> dict[str, Any]:
    """Models of two states whose covariance stands still after a chunk, and 25 steps."""
    arrays = make_models(2, p, 25, **options)
    arrays["transition"] *= 0.01
    return arrays


CASES = [
    (settling(1), (), "plain"),
    (settling(2), (), "joseph"),
    (settling(2, missing=0.1), (), "plain"),
    (make_models(3, 2, 11, missing=0.3, varying=MATRICES), MATRICES, "plain"),
    (make_models(2, 1, 9, batch=(2,)), (), "plain"),
]


def assert_close(result: Any, expected: Any) -> None:
    expected = np.asarray(expected, np.float64)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11 * (1 + abs(expected).max()))


@pytest.mark.parametrize(("arrays", "varying", "form"), CASES)
def test_states_and_likelihoods(arrays, varying, form):
    models = [Joint(model) for model in each_model(arrays, varying)]
    expected = [model.loglik() for model in models]
    steps, p = arrays["observations"].shape[-2:]
    assert_close(run_plain(VALUE, arrays, (), varying, form)[0], expected)
    m = arrays["transition"].shape[-1]
    for kind, counts in [
        (STATES, [[t * p for t in range(steps)], [(t + 1) * p for t in range(steps)]]),
        (SMOOTH, [[steps * p] * steps]),
    ]:
        shapes = [(steps, m), (steps, m, m)] * len(counts)
        logliks, out = run_plain(kind, arrays, shapes, varying, form)
        assert_close(logliks, expected)
        for count, mean, cov in zip(counts, out[::2], out[1::2], strict=True):
            states = [model.states(count) for model in models]
            assert_close(mean, [each for each, _ in states])
            assert_close(cov, [each for _, each in states])


@pytest.mark.parametrize(("arrays", "varying", "form"), CASES)
def test_gradients(arrays, varying, form):
    models = each_model(arrays, varying)
    batch = arrays["observations"].ndim - 2
    shapes = [array.shape[batch:] for array in arrays.values()]
    _, out = run_plain(GRADIENT, arrays, shapes, varying, form)
    slopes = dict(zip(NAMES, out, strict=True))
    rng = np.random.default_rng(0)
    for name, array in arrays.items():
        direction = rng.normal(size=array.shape)
        if "cov" in name:
            direction += direction.swapaxes(-1, -2)
        changes = each_model({**arrays, name: direction}, varying)
        expected = sum(
            slope(model, name, getattr(change, name))
            for model, change in zip(models, changes, strict=True)
        )
        factor = 0.5 if name.endswith("cov") else 1.0  # as `kalman_loglik_vjp` has it
        parts = factor * slopes[name].ravel() * direction.ravel()
        assert abs(parts.sum() - expected) < 1e-10 * (1 + abs(parts).sum())
