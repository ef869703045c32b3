"""Our contenders of the table `scan`, through the public API: `rlcpu.scan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import Arguments
from asv_benches.peers.scan_problems import Solver
from asv_benches.peers.scan_returns import GAMMA, LAMBDA


@dataclass
class OurSolve(Solver):
    """`solve_tridiagonal`.

    Attributes:
        options: of the function, beside `axis` and `out`.
        reuse: whether the solution goes into the same array again (`out=`).
    """

    options: dict[str, Any] = field(default_factory=dict)
    reuse: bool = True

    def make(self) -> Callable[..., Any]:
        """The function."""
        from rlcpu.scan import solve_tridiagonal

        out = np.zeros(self.problem.shape, self.problem.dtype) if self.reuse else None
        options = {"axis": self.problem.axis, "out": out, **self.options}
        return lambda *arrays: solve_tridiagonal(*arrays, **options)


@dataclass
class OurFactored(Solver):
    """`factor_tridiagonal(...).solve`: the matrix is factored before."""

    def make(self) -> Callable[..., Any]:
        """The method of whatever factors come in."""
        out = np.zeros(self.problem.shape, self.problem.dtype)
        return lambda factors, rhs: factors.solve(rhs, out=out)

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """Factors."""
        from rlcpu.scan import factor_tridiagonal

        *matrix, rhs = arrays
        return factor_tridiagonal(*matrix), rhs


@dataclass
class OurGradient(Solver):
    """`solve_tridiagonal`, then `tridiagonal_vjp`."""

    def make(self) -> Callable[..., Any]:
        """Both."""
        from rlcpu.scan import TridiagonalGradients, solve_tridiagonal, tridiagonal_vjp

        systems = self.problem.systems
        out = np.zeros(systems.shape, systems.dtype)
        gradients = TridiagonalGradients(*(np.zeros_like(out) for _ in range(4)))

        def solution_and_gradients(*arrays: np.ndarray) -> tuple[Any, ...]:
            *matrix, rhs, slopes = arrays
            x = solve_tridiagonal(*matrix, rhs, axis=systems.axis, out=out)
            return x, *tridiagonal_vjp(*matrix, x, slopes, axis=systems.axis, out=gradients)

        return solution_and_gradients


@dataclass
class OurGae(Solver):
    """`gae`."""

    def make(self) -> Callable[..., Any]:
        """The function, into the same arrays again."""
        from rlcpu.scan import Advantages, gae

        shape, axis = self.problem.shape, self.problem.axis
        out = Advantages(*np.zeros((2, *shape), np.float32))
        never = np.zeros(shape, np.bool_)
        options: dict[str, Any] = {"gamma": GAMMA, "lambda_": LAMBDA, "out": out}
        if axis:
            options["axis"] = axis

        def advantages(rewards: Any, values: Any, terminated: Any, last_values: Any) -> Any:
            return gae(rewards, values, terminated, never, last_values, **options)

        return advantages


@dataclass
class OurLogCumSumExp(Solver):
    """`logcumsumexp`."""

    def make(self) -> Callable[..., Any]:
        """The function, into the same array again."""
        from rlcpu.scan import logcumsumexp

        out = np.zeros(self.problem.size)
        return lambda x: logcumsumexp(x, out=out)


@dataclass
class OurKalman(Solver):
    """`kalman_loglik`."""

    def make(self) -> Callable[..., Any]:
        """The function, which starts at mean 0 and covariance 1, into the same array again."""
        from rlcpu.scan import kalman_loglik

        out = np.zeros(self.problem.batch)
        return lambda *arrays: kalman_loglik(*arrays, out=out)

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """Observations first, as vectors of one number."""
        transition, noise, design, variance, observations = arrays
        model = transition, noise, design[:, None, :], variance[:, None, None]
        return observations[..., None], *model


@dataclass
class OurKalmanGradient(OurKalman):
    """`kalman_loglik_vjp`, whose gradients are of everything."""

    def make(self) -> Callable[..., Any]:
        """The function."""
        from rlcpu.scan import kalman_loglik_vjp

        def value_and_gradients(*arrays: np.ndarray) -> tuple[Any, ...]:
            value, slopes = kalman_loglik_vjp(*arrays)
            matrices = slopes.transition, slopes.transition_cov, slopes.design
            return value, *matrices, slopes.observation_cov

        return value_and_gradients
