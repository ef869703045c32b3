"""`solve_tridiagonal` for torch: differentiable any number of times, without copies.

Importing this module imports torch, which `rlcpu` itself does not need.
"""

from __future__ import annotations

from typing import Any

import torch

from rlcpu.scan.tridiagonal.solve import solve_tridiagonal as solve_arrays
from rlcpu.scan.tridiagonal.vjp import tridiagonal_vjp

Tensor = Any  # torch.Tensor, where torch is installed


def solve_tridiagonal(
    lower: Tensor, diagonal: Tensor, upper: Tensor, rhs: Tensor, *, axis: int = -1
) -> Tensor:
    """`rlcpu.scan.solve_tridiagonal` of tensors on the CPU, with gradients of every order.

    The gradient with respect to the right-hand sides solves the transposed systems, by this very
    function, so that it can be differentiated again. The four tensors, float32 or float64,
    broadcast; `lower[0]` and `upper[n-1]` along the axis of the unknowns are ignored, whatever they
    are, and have the gradient 0.

    Returns:
        x, of the shape that the tensors broadcast to.

    Raises:
        TypeError: an argument is no tensor on the CPU, or of another dtype.
        ValueError: shapes do not broadcast, or the axis is out of range.
        SingularSystemError: a system has no finite solution.

    Example:
        >>> one = torch.ones(2, dtype=torch.float64)
        >>> solve_tridiagonal(one, 2 * one, one, 3 * one)
        tensor([1., 1.], dtype=torch.float64)
    """
    tensors = {"lower": lower, "diagonal": diagonal, "upper": upper, "rhs": rhs}
    for name, tensor in tensors.items():
        known = isinstance(tensor, torch.Tensor)
        if not known or tensor.device.type != "cpu":
            place = f"one on {tensor.device}" if known else type(tensor).__name__
            raise TypeError(f"{name}: expected a tensor on the CPU, got {place}")
    return _Solve.apply(lower, diagonal, upper, rhs, axis)


class _Solve(torch.autograd.Function):
    """x and, by the implicit function theorem, its gradients."""

    @staticmethod
    def forward(ctx: Any, lower: Any, diagonal: Any, upper: Any, rhs: Any, axis: int) -> Any:
        arrays = (tensor.detach().numpy() for tensor in (lower, diagonal, upper, rhs))
        x = torch.from_numpy(solve_arrays(*arrays, axis=axis))
        ctx.save_for_backward(lower, diagonal, upper, x)
        ctx.axis, ctx.shape = axis, rhs.shape
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Return gradients of the arguments from the gradient of the solution."""
        lower, diagonal, upper, x = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradients = _differentiable(lower, diagonal, upper, x, grad, ctx.axis)
        else:
            arrays = (t.detach().numpy() for t in (lower, diagonal, upper, x, grad))
            gradients = tuple(map(torch.from_numpy, tridiagonal_vjp(*arrays, axis=ctx.axis)))
        shapes = (lower.shape, diagonal.shape, upper.shape, ctx.shape)
        return *(g.sum_to_size(s) for g, s in zip(gradients, shapes, strict=True)), None


def _differentiable(
    lower: Any, diagonal: Any, upper: Any, x: Any, grad: Any, axis: int
) -> tuple[Any, ...]:
    """Return the gradients of `tridiagonal_vjp` in operations that torch can differentiate."""
    lower, upper = lower.expand(x.shape), upper.expand(x.shape)
    # What comes round from the other end is ignored.
    multipliers = _Solve.apply(upper.roll(1, axis), diagonal, lower.roll(-1, axis), grad, axis)
    last = torch.tensor(x.shape[axis] - 1)
    before = x.roll(1, axis).index_fill(axis, torch.tensor(0), 0.0)
    after = x.roll(-1, axis).index_fill(axis, last, 0.0)
    return -multipliers * before, -multipliers * x, -multipliers * after, multipliers
