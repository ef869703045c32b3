"""The passes in plain Python, one number at a time, against the joint distribution."""

from typing import Any

import numpy as np
import pytest

from rlcpu.scan.kalman.model import MATRICES, Inputs, find_places, make_problem
from rlcpu.scan.kalman.passes import backward, forward
from rlcpu.scan.kalman.workspace import CELLS, GRADIENT, SMOOTH, STATES, VALUE, make_table
from tests.scan.kalman.naive import NAMES, Joint, each_model, make_models, slope


def run_plain(
    kind: int, arrays: dict[str, Any], size: int, varying: Any = (), form: str = "plain"
) -> tuple[Any, Any]:
    """Log-likelihoods, and `size` numbers of output, in chunks of at most 8 time steps."""
    problem = make_problem(Inputs(**arrays), varying, form, None)
    table = make_table(kind, problem, 1, 8)
    matrices = np.concatenate([array.ravel() for array in problem.inputs[1:]])
    out, logliks = np.full(size, np.nan), np.full(problem.models, np.nan)
    observations = problem.inputs.observations.ravel()
    shapes = tuple(array.shape for array in problem.inputs)
    files = observations, matrices, find_places(problem.batch, shapes, problem.shapes), out, logliks
    for model in range(problem.models):
        t, c = table.tolist(), np.zeros(table[CELLS]).tolist()
        forward(c, c, t, model, 1e-30, *files)
        if kind in (SMOOTH, GRADIENT):
            backward(c, c, t, model, 1e-30, *files)
    return logliks, out


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
    assert_close(run_plain(VALUE, arrays, 0, varying, form)[0], expected)
    m = arrays["transition"].shape[-1]
    size = len(models) * steps * (m + m * m)
    for kind, counts in [
        (STATES, [[t * p for t in range(steps)], [(t + 1) * p for t in range(steps)]]),
        (SMOOTH, [[steps * p] * steps]),
    ]:
        logliks, out = run_plain(kind, arrays, len(counts) * size, varying, form)
        assert_close(logliks, expected)
        states = [[model.states(count) for model in models] for count in counts]
        means = [mean for state in states for mean, _ in state]
        covs = [cov for state in states for _, cov in state]
        assert_close(out, np.concatenate([np.ravel(means), np.ravel(covs)]))


@pytest.mark.parametrize(("arrays", "varying", "form"), CASES)
def test_gradients(arrays, varying, form):
    models = each_model(arrays, varying)
    sizes = [array.size for array in arrays.values()]
    _, out = run_plain(GRADIENT, arrays, sum(sizes), varying, form)
    slopes = dict(zip(NAMES, np.split(out, np.cumsum(sizes)[:-1]), strict=True))
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
        parts = slopes[name] * direction.ravel()
        assert abs(parts.sum() - expected) < 1e-10 * (1 + abs(parts).sum())
