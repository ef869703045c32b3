"""torch and JAX: values, gradients, what they compile and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rlcpu.scan.tridiagonal.solve import solve_tridiagonal
from rlcpu.scan.tridiagonal.vjp import tridiagonal_vjp


def problem(shape: tuple[int, ...], dtype: Any = np.float64) -> list[Any]:
    """Dominant systems along the last axis."""
    rng = np.random.default_rng(0)
    lower, diagonal, upper, rhs = rng.standard_normal((4, *shape))
    return [a.astype(dtype) for a in (lower, 3 + abs(diagonal) + abs(lower), upper / 2, rhs)]


def test_importing_us_imports_neither() -> None:
    code = "import rlcpu.scan, sys; print({'torch', 'jax'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


# ---------------------------------------------------------------- torch


class TestTorch:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    @pytest.fixture
    def solve(self, torch: Any) -> Any:
        from rlcpu.scan.torch import solve_tridiagonal

        return solve_tridiagonal

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("axis", [0, 1, -1])
    def test_value_and_gradient(self, torch: Any, solve: Any, dtype: Any, axis: int) -> None:
        arrays = [np.moveaxis(a, -1, axis) for a in problem((3, 4, 9), dtype)]
        tensors = [torch.from_numpy(a).requires_grad_() for a in arrays]
        x = solve(*tensors, axis=axis)
        np.testing.assert_array_equal(x.detach().numpy(), solve_tridiagonal(*arrays, axis=axis))
        weights = np.random.default_rng(1).standard_normal(x.shape).astype(dtype)
        x.backward(torch.from_numpy(weights))
        expected = tridiagonal_vjp(*arrays[:3], x.detach().numpy(), weights, axis=axis)
        for tensor, gradient in zip(tensors, expected, strict=True):
            np.testing.assert_array_equal(tensor.grad.numpy(), gradient)

    @pytest.mark.parametrize("axis", [0, -1])
    @pytest.mark.parametrize("shapes", [[(3, 4)] * 4, [(3, 4), (1, 1), (), (3, 1)]])
    def test_first_and_second_derivatives(
        self, torch: Any, solve: Any, axis: int, shapes: list[Any]
    ) -> None:
        n = 4 if axis == -1 else 3
        rng = np.random.default_rng(2)
        shapes = [shapes[0][:1] if axis == 0 and s == () else s for s in shapes]
        arrays = [rng.random(s) + (4.0 if i == 1 else 0.0) for i, s in enumerate(shapes)]
        arrays = [a if a.ndim == 2 else a.reshape(-1, 1) if axis == 0 else a for a in arrays]
        tensors = [torch.from_numpy(np.asarray(a)).requires_grad_() for a in arrays]

        def function(*given: Any) -> Any:
            return solve(*given, axis=axis)

        assert n > 2
        assert torch.autograd.gradcheck(function, tensors)
        assert torch.autograd.gradgradcheck(function, tensors)

    def test_gradient_of_a_gradient_is_that_of_the_fast_route(self, torch: Any, solve: Any) -> None:
        tensors = [torch.from_numpy(a).requires_grad_() for a in problem((5, 30))]
        loss = solve(*tensors).square().sum()
        fast = torch.autograd.grad(loss, tensors, retain_graph=True)
        again = torch.autograd.grad(loss, tensors, create_graph=True)
        for one, other in zip(fast, again, strict=True):
            np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=1e-12, atol=1e-14)

    def test_bad_input(self, torch: Any, solve: Any) -> None:
        one = torch.ones(3, dtype=torch.float64)
        with pytest.raises(TypeError, match="upper: expected a tensor on the CPU, got ndarray"):
            solve(one, one, np.ones(3), one)
        with pytest.raises(TypeError, match="rhs: expected a tensor on the CPU, got one on meta"):
            solve(one, one, one, one.to("meta"))
        with pytest.raises(TypeError, match="float32"):
            solve(one, one, one, one.float())
        with pytest.raises(ValueError, match="axis"):
            solve(one, one, one, one, axis=1)
        with pytest.raises(ValueError, match=r"write lower\[:, None\]"):
            solve(one, one, one, one.expand(3, 3), axis=0)
        with pytest.raises(np.linalg.LinAlgError, match="1 of 1 systems"):
            solve(one, 0 * one, one, one)


# ---------------------------------------------------------------- JAX


class TestJax:
    @pytest.fixture
    def jax(self) -> Any:
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        return jax

    @pytest.fixture
    def solve(self, jax: Any) -> Any:
        from rlcpu.scan.jax import solve_tridiagonal

        return solve_tridiagonal

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("axis", [0, 1, -1])
    @pytest.mark.parametrize("compiled", [False, True])
    def test_value_and_gradient(
        self, jax: Any, solve: Any, dtype: Any, axis: int, compiled: bool
    ) -> None:
        arrays = [np.moveaxis(a, -1, axis) for a in problem((3, 4, 9), dtype)]
        weights = np.random.default_rng(1).standard_normal(arrays[0].shape).astype(dtype)

        def both(*given: Any) -> Any:
            x, pullback = jax.vjp(lambda *a: solve(*a, axis=axis), *given)
            return x, pullback(weights)

        x, gradients = (jax.jit(both) if compiled else both)(*arrays)
        np.testing.assert_array_equal(x, solve_tridiagonal(*arrays, axis=axis))
        expected = tridiagonal_vjp(*arrays[:3], np.asarray(x), weights, axis=axis)
        tolerance = 100 * np.finfo(dtype).eps
        for found, gradient in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(found, gradient, tolerance, tolerance)

    def test_shapes_that_broadcast(self, jax: Any, solve: Any) -> None:
        rng = np.random.default_rng(3)
        lower, diagonal, upper, rhs = (
            rng.random((7,)),
            4.0,
            rng.random((5, 1)),
            rng.random((3, 5, 7)),
        )
        arrays = (lower, np.float64(diagonal), upper, rhs)

        def loss(*given: Any) -> Any:
            return (solve(*given) ** 2).sum()

        gradients = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*arrays)
        x = solve_tridiagonal(*arrays)
        expected = tridiagonal_vjp(*arrays[:3], x, 2 * x)
        for found, gradient, array in zip(gradients, expected, arrays, strict=True):
            assert found.shape == np.shape(array)
            np.testing.assert_allclose(found, gradient, rtol=1e-12)

    @pytest.mark.parametrize("axes", [(0, 0, 0, 0), (None, None, None, 1), (0, None, 1, None)])
    def test_vmap(self, jax: Any, solve: Any, axes: Any) -> None:
        rng = np.random.default_rng(4)
        arrays = [rng.random((3, 7) if a == 0 else (7, 3) if a == 1 else 7) for a in axes]
        arrays[1] += 4.0

        def both(*given: Any) -> Any:
            return jax.value_and_grad(lambda *a: solve(*a).sum(), (0, 1, 2, 3))(*given)

        value, gradients = jax.jit(jax.vmap(both, axes))(*arrays)
        for i in range(3):
            parts = [
                a if x is None else np.take(a, i, x) for a, x in zip(arrays, axes, strict=True)
            ]
            x = solve_tridiagonal(*parts)
            np.testing.assert_allclose(value[i], x.sum(), rtol=1e-12)
            expected = tridiagonal_vjp(*parts[:3], x, np.ones(7))
            for found, gradient in zip(gradients, expected, strict=True):
                np.testing.assert_allclose(found[i], gradient, rtol=1e-11)

    def test_second_derivatives(self, jax: Any, solve: Any) -> None:
        arrays = problem((5,))

        def slope(*given: Any) -> Any:
            return jax.grad(lambda *a: (solve(*a) ** 3).sum(), 1)(*given).sum()

        found = jax.grad(slope, 1)(*arrays)
        step = np.zeros(5)
        step[2] = 1e-6
        changed = [[arrays[0], arrays[1] + s, *arrays[2:]] for s in (step, -step)]
        difference = (slope(*changed[0]) - slope(*changed[1])) / 2e-6
        np.testing.assert_allclose(found[2], difference, rtol=1e-6)

    def test_operands_are_not_copied(self, jax: Any) -> None:
        from rlcpu.scan import xla

        seen: list[int] = []

        def spy(arguments: list[Any], results: list[Any]) -> None:
            seen.extend(a.__array_interface__["data"][0] for a in arguments)
            assert not arguments[0].flags.writeable
            results[0][...] = arguments[0]

        pointer = xla.handler(spy)
        jax.ffi.register_ffi_target("rlcpu_spy", xla.capsule(pointer), platform="cpu")
        arrays = [jax.numpy.asarray(a) for a in problem((40, 50))]
        shape = jax.ShapeDtypeStruct((40, 50), np.float64)
        result = jax.jit(jax.ffi.ffi_call("rlcpu_spy", shape))(*arrays)
        np.testing.assert_array_equal(result, arrays[0])
        assert seen == [a.unsafe_buffer_pointer() for a in arrays]

    def test_singular_systems_are_reported(self, jax: Any, solve: Any) -> None:
        one = np.ones(4)
        message = "SingularSystemError: 1 of 1 systems not solved"
        with pytest.raises((ValueError, RuntimeError), match=message):
            jax.jit(solve)(one, 0 * one, 0 * one, one).block_until_ready()

    def test_bad_input(self, jax: Any, solve: Any) -> None:
        one = np.ones(3)
        with pytest.raises(TypeError, match="upper: expected all float32 or all float64, got int"):
            solve(one, one, np.ones(3, int), one)
        with pytest.raises(ValueError, match=r"shapes that broadcast, got lower \(3,\)"):
            solve(one, one, one, np.ones(4))
        with pytest.raises(ValueError, match=r"axis=1: rhs, .* has 1 axes"):
            solve(one, one, one, one, axis=1)
        with pytest.raises(ValueError, match=r"write lower\[:, None\]"):
            solve(one, one, one, np.ones((3, 3)), axis=0)
