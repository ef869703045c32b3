"""Transitions for buffers on the device and on the CPU, and how they are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda.device import asarray
from rlcpu.replay.structure import TransitionStructure
from tests.cuda.compare import close, equal, same

#: Rows of words of four, two and one bytes.
EXAMPLE = {
    "observation": {"camera": np.zeros((1, 3), np.uint8), "state": np.zeros(2, np.float32)},
    "action": np.int16(0),
    "reward": 0.0,
    "terminated": False,
}


def steps(seed: int, *lead: int) -> Any:
    """Transitions with leading axes."""
    rng = np.random.default_rng(seed)
    return {
        "observation": {
            "camera": rng.integers(0, 256, (*lead, 1, 3)).astype(np.uint8),
            "state": rng.random((*lead, 2)).astype(np.float32),
        },
        "action": rng.integers(0, 9, lead).astype(np.int16),
        "reward": rng.random(lead),
        "terminated": rng.random(lead) < 0.3,
    }


def on_device(value: Any) -> Any:
    """The same structure of arrays on the device."""
    if isinstance(value, dict):
        return {name: on_device(item) for name, item in value.items()}
    return asarray(value)


def assert_same(found: Any, expected: Any) -> None:
    """Leaf by leaf, dtypes and values."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, item in expected.items():
            assert_same(found[name], item)
    else:
        assert found.dtype == expected.dtype
        assert same(found, expected)


def assert_batches_are_same(found: Any, expected: Any) -> None:
    """Indices, leaves and importance weights, wherever they are."""
    assert equal(found.indices, expected.indices)
    leaves = [TransitionStructure(batch.data).collect(batch.data) for batch in (found, expected)]
    for one, other in zip(*leaves, strict=True):
        assert same(one, other)
    if expected.weights is not None:
        assert close(found.weights, expected.weights, rtol=1e-6)
