"""`solve_tridiagonal` for JAX, on the CPU: XLA calls our kernels in its own buffers.

Importing this module imports jax, which `rlcpu` itself does not need. The call goes through XLA's
typed foreign function interface (`rlcpu.scan.xla`) and copies nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp

from rlcpu.scan import xla
from rlcpu.scan.arguments import check_axis, check_unknowns, common_shape, sum_to_shape
from rlcpu.scan.tridiagonal.solve import solve_tridiagonal as solve_arrays

Array = Any  # jax.Array, where jax is installed


def solve_tridiagonal(
    lower: Array, diagonal: Array, upper: Array, rhs: Array, *, axis: int = -1
) -> Array:
    """`rlcpu.scan.solve_tridiagonal` of JAX arrays, under jit, grad (reverse mode) and vmap.

    The four arrays, float32 or float64, broadcast; `lower[0]` and `upper[n-1]` along the axis of
    the unknowns are ignored, whatever they are, and have the gradient 0.

    Returns:
        x, of the shape that the arrays broadcast to.

    Raises:
        TypeError: dtypes differ, or are neither float32 nor float64, or the axis is no int.
        ValueError: shapes do not broadcast, or the axis is out of range.
        ValueError, RuntimeError: at run time, from JAX: a system has no finite solution.

    Example:
        >>> solve_tridiagonal(jnp.ones(2), 2 * jnp.ones(2), jnp.ones(2), 3 * jnp.ones(2))
        Array([1., 1.], dtype=float32)
    """
    names = ("lower", "diagonal", "upper", "rhs")
    arrays = [jnp.asarray(array) for array in (lower, diagonal, upper, rhs)]
    for name, array in zip(names, arrays, strict=True):
        if array.dtype != arrays[3].dtype or array.dtype not in (jnp.float32, jnp.float64):
            raise TypeError(f"{name}: expected all float32 or all float64, got {array.dtype}")
    check_unknowns(dict(zip(names, arrays, strict=True)), axis)
    shape = common_shape(names, arrays)
    axis = check_axis(axis, shape, "rhs, broadcast with the coefficients,")
    arrays = [a.reshape((1,) * (len(shape) - a.ndim) + a.shape) for a in arrays]
    # Counted from the end: vmap puts axes before all others.
    return _solve(axis - len(shape), *arrays)


# ---------------------------------------------------------------- gradients


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solve(axis: int, lower: Array, diagonal: Array, upper: Array, rhs: Array) -> Array:
    arrays = (lower, diagonal, upper, rhs)
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    result = jax.ShapeDtypeStruct(shape, rhs.dtype)
    # An axis that vmap adds has length 1 in an array that lacks it: our kernels repeat that.
    call = jax.ffi.ffi_call(_registered(axis), result, vmap_method="expand_dims")
    return call(*arrays)


def _forward(axis: int, *arrays: Array) -> tuple[Array, Any]:
    x = _solve(axis, *arrays)
    return x, (arrays, x)


def _backward(axis: int, residuals: Any, grad: Array) -> tuple[Array, ...]:
    """Return the gradients of `tridiagonal_vjp` by a solve and products, which have gradients."""
    (lower, diagonal, upper, _), x = residuals
    lower, upper = (jnp.broadcast_to(array, x.shape) for array in (lower, upper))
    # What comes round from the other end is ignored.
    below, above = jnp.roll(upper, 1, axis), jnp.roll(lower, -1, axis)
    multipliers = _solve(axis, below, diagonal, above, grad)
    others = (slice(None),) * (-1 - axis)
    before = jnp.roll(x, 1, axis).at[(..., 0, *others)].set(0.0)
    after = jnp.roll(x, -1, axis).at[(..., -1, *others)].set(0.0)
    gradients = (-multipliers * before, -multipliers * x, -multipliers * after, multipliers)
    return tuple(map(sum_to_shape, gradients, (array.shape for array in residuals[0])))


_solve.defvjp(_forward, _backward)


# ---------------------------------------------------------------- the call from XLA


@functools.cache
def _registered(axis: int) -> str:
    """Return the name under which XLA knows our solve along an axis, counted from the end."""

    def run(arguments: list[Any], results: list[Any]) -> None:
        solve_arrays(*arguments, axis=axis, out=results[0])

    name = f"rlcpu_solve_tridiagonal_{-axis}"
    pointer = xla.handler(run)
    _handlers.append(pointer)
    jax.ffi.register_ffi_target(name, xla.capsule(pointer), platform="cpu")
    return name


_handlers: list[Any] = []  # as long as XLA may call them, that is for ever
