"""Running statistics equal those of all rows at once."""

from __future__ import annotations

import numpy as np

from rlcpu.train.ppo import Normalizer


def test_parts_add_up_to_the_whole() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal([1e3, -2.0, 0.0], [1.0, 5.0, 0.1], (1000, 3)).astype(np.float32)
    normalizer = Normalizer(3)
    for part in np.split(rows, [1, 10, 500]):
        normalizer.add(part)
    assert normalizer.count == 1000
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(normalizer.mean, exact.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(normalizer.scale(), 1.0 / exact.std(axis=0), rtol=1e-6)


def test_a_constant_has_a_finite_scale() -> None:
    normalizer = Normalizer(1)
    normalizer.add(np.ones((5, 1), np.float32))
    assert np.isfinite(normalizer.scale()).all()
