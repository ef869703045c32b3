"""JAX: the solver of the report "Jax scans are slower than expected" (google/jax 2491), and XLA's.

The report's code is kept word for word, but for the shape of the initial value: it wrote the one of
arrays with three axes, and with two JAX is a tenth faster, three times in the other layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import Arguments
from asv_benches.peers.scan_problems import Solver


def solve_rows(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The report's tdma_jax_kernel: lower, main, upper diagonal, right-hand side, (batch, n)."""
    import jax
    import jax.numpy as jnp

    def compute_primes(last_primes, x):  # type: ignore[no-untyped-def]
        last_cp, last_dp = last_primes
        a, b, c, d = x

        denom = 1. / (b - a * last_cp)  # fmt: skip
        cp = c * denom
        dp = (d - a * last_dp) * denom

        new_primes = (cp, dp)
        return new_primes, new_primes

    diags = (a.T, b.T, c.T, d.T)
    init = jnp.zeros(a.shape[-2::-1])  # of three axes: (a.shape[1], a.shape[0])
    _, (cp, dp) = jax.lax.scan(compute_primes, (init, init), diags)

    def backsubstitution(last_x, x):  # type: ignore[no-untyped-def]
        cp, dp = x
        new_x = dp - cp * last_x
        return new_x, new_x

    _, sol = jax.lax.scan(backsubstitution, init, (cp[::-1], dp[::-1]))

    return sol[::-1].T


def solve_columns(lower: Any, diagonal: Any, upper: Any, rhs: Any) -> Any:
    """The report's code without its transpositions, as it proposes: arrays (n, batch)."""
    return solve_rows(lower.T, diagonal.T, upper.T, rhs.T).T


def solve_by_library(lower: Any, diagonal: Any, upper: Any, rhs: Any) -> Any:
    """`jax.lax.linalg.tridiagonal_solve`, which is LAPACK's, one system after the other."""
    import jax

    return jax.lax.linalg.tridiagonal_solve(lower, diagonal, upper, rhs[..., None])[..., 0]


@dataclass(frozen=True)
class WithGradient:
    """Solution, and gradients with respect to the four arrays, of one of the above.

    Attributes:
        solve: the function.
    """

    solve: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Of the four arrays, and the gradient with respect to the solution."""
        import jax

        *arrays, slopes = arguments
        solution, backward = jax.vjp(self.solve, *arrays)
        return solution, *backward(slopes)


@dataclass
class Jax(Solver):
    """A function, jitted.

    Attributes:
        function: of jax arrays.
    """

    function: Callable[..., Any] = solve_rows

    def make(self) -> Callable[..., Any]:
        """The jitted function, waited for."""
        import jax

        compiled = jax.jit(self.function)
        return lambda *arguments: jax.block_until_ready(compiled(*arguments))

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """JAX's arrays; float64 is an option of JAX, and then the default of new arrays."""
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", arrays[0].dtype == np.float64)
        return tuple(jnp.asarray(array) for array in arrays)
