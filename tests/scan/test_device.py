"""Functions of arrays on a device, without a device: they look for it, or refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu.scan


class Elsewhere:
    """An array of a library that knows `__cuda_array_interface__`."""

    def __init__(self) -> None:
        data = (0, False)
        self.__cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": data}


ARRAY = Elsewhere()
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "discounted_returns": ((ARRAY, 1, 2, 3), {"gamma": 0.5}),
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
def test_a_device_is_looked_for(name: str) -> None:
    cuda = pytest.importorskip("rlcpu.cuda")
    if cuda.is_available():
        pytest.skip("there is one")
    args, options = CALLS[name]
    with pytest.raises(cuda.CudaUnavailableError, match="needed are"):
        getattr(rlcpu.scan, name)(*args, **options)


def test_what_the_host_computes_alone() -> None:
    one, numbers = np.eye(1), np.ones(2)
    for name in ("kalman_loglik", "kalman_filter", "kalman_smooth"):
        function = getattr(rlcpu.scan, name)
        with pytest.raises(
            NotImplementedError, match="observations of Elsewhere: not on a CUDA device"
        ):
            function(ARRAY, one, one, one, one)
        with pytest.raises(NotImplementedError, match="design of Elsewhere: not on a CUDA device"):
            function(np.ones((3, 1)), one, one, ARRAY, one)
    with pytest.raises(NotImplementedError, match="upper of Elsewhere: not on a CUDA device"):
        rlcpu.scan.factor_tridiagonal(numbers, 4.0, ARRAY)
    factors = rlcpu.scan.factor_tridiagonal(numbers, 4.0 * numbers, numbers)
    with pytest.raises(NotImplementedError, match="rhs of Elsewhere: not on a CUDA device"):
        factors.solve(ARRAY)


@pytest.mark.parametrize("call", [lambda: rlcpu.scan.gae, lambda: rlcpu.scan.lambda_returns])
def test_arrays_of_a_device_among_those_of_the_host(call: Any) -> None:
    flags, ones = np.zeros((2, 1), bool), np.ones((2, 1))
    with pytest.raises(TypeError, match=r"^values: expected"):
        call()(ones, ARRAY, flags, flags, 1.0, gamma=0.5, lambda_=0.5)
