"""Functions of arrays on a device are called there, without a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu.scan
from rlcpu.scan.device import is_on_device


class Elsewhere:
    """An array of a library that knows `__cuda_array_interface__`."""

    def __init__(self) -> None:
        data = (0, False)
        self.__cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": data}


class Exported:
    """An array of a library that knows DLPack: device 1 is a CPU, 2 a CUDA device."""

    def __init__(self, device: int) -> None:
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def test_which_arrays_are_on_a_device() -> None:
    assert is_on_device(Elsewhere())
    assert is_on_device(Exported(2))
    assert not is_on_device(Exported(1))
    for array in (np.ones(2), np.float32(1), 1.0, [1.0], None):
        assert not is_on_device(array)


ARRAY = Elsewhere()
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "discounted_returns": ((ARRAY, 1, 2, 3), {"gamma": 0.5}),
    "factor_tridiagonal": ((1.0, ARRAY, 1.0), {"axis": 0}),
    "gae": ((ARRAY, 1, 2, 3, 4), {"gamma": 0.5, "lambda_": 0.9}),
    "lambda_returns": ((ARRAY, 1, 2, 3, 4), {"gamma": 0.5, "lambda_": 0.9}),
    "linear_scan": ((0.5, ARRAY), {"axis": 0}),
    "linear_scan_vjp": ((0.5, ARRAY, ARRAY), {"axis": 0}),
    "logcumsumexp": ((ARRAY,), {"reverse": True}),
    "logcumsumexp_vjp": ((ARRAY, ARRAY, ARRAY), {"axis": 0}),
    "nstep_returns": ((ARRAY, 1, 2, 3, 4), {"n": 2, "gamma": 0.5}),
    "retrace": ((ARRAY, 1, 2, 3, 4, 5, 6), {"gamma": 0.5}),
    "solve_tridiagonal": ((1.0, 2.0, 1.0, ARRAY), {"axis": 0}),
    "tridiagonal_vjp": ((1.0, 2.0, 1.0, ARRAY, ARRAY), {"axis": 0}),
    "vtrace": ((ARRAY, 1, 2, 3, 4, 5), {"gamma": 0.5}),
}


@pytest.mark.parametrize("name", CALLS)
def test_they_are_called_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("rlcpu.cuda.scan")
    found: list[Any] = []
    monkeypatch.setattr(module, name, lambda **given: found.append(given))
    args, options = CALLS[name]
    getattr(rlcpu.scan, name)(*args, **options, num_threads=1)
    (given,) = found
    assert "num_threads" not in given
    assert list(given.values())[: len(args)] == list(args)
    assert {key: given[key] for key in options} == options


@pytest.mark.parametrize("name", ["kalman_loglik", "kalman_filter", "kalman_smooth"])
def test_what_only_the_cpu_has(name: str) -> None:
    one = np.eye(1)
    with pytest.raises(TypeError, match="observations: expected an array on the host, got Else"):
        getattr(rlcpu.scan, name)(ARRAY, one, one, one, one)
    with pytest.raises(TypeError, match="design: expected an array on the host"):
        getattr(rlcpu.scan, name)(np.ones((3, 1)), one, one, ARRAY, one)
