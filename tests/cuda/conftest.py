"""Tests of what runs on a CUDA device.

A test marked `device` calls kernels: it runs on a real card (`pytest -m gpu`), and in the simulator
in a subprocess that `test_simulator.py` starts; elsewhere there is nothing that it could run on.
"""

from __future__ import annotations

import pytest

from rlcpu.cuda import device


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "device: calls kernels, on a card or in the simulator")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark device tests as `gpu` tests on a card; leave them out where they cannot run."""
    ours = [item for item in items if item.get_closest_marker("device")]
    if device.SIMULATED:
        return
    if device.is_available():
        for item in ours:
            item.add_marker(pytest.mark.gpu)
        return
    items[:] = [item for item in items if item not in ours]
    config.hook.pytest_deselected(items=ours)
