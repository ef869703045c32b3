"""The table `scan`: recurrences over an axis, time per call. Here: tridiagonal systems."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers import machine, recurrences
from asv_benches.peers.cpp import WIDE, load, pointer
from asv_benches.peers.harness import Arguments, Contender, Job, Panel, best_of, prepared
from asv_benches.peers.libraries import jax, jnp
from asv_benches.peers.recurrences import jax_function
from asv_benches.peers.rows import Row, duels

REPORT = (100_000, 100)  # systems and unknowns of the report "Jax scans are slower than expected"
OTHERS = ((10**6, 10), (1000, 10_000), (10, 10**6), (1, 10**7))
TOTALS = tuple(10**exponent for exponent in range(3, 8))  # unknowns of all systems together
LIMIT = "limit: 4 reads, 1 write"
# Of the machine's limit, for the report's shape.
SHARES = {
    ("float64", "rows"): 0.75,
    ("float64", "columns"): 0.8,
    ("float32", "rows"): 0.55,
    ("float32", "columns"): 0.75,
}
# A hanging peer may cost the table this much; our slowest kernel compiles in less.
LIMIT_S = 90.0
HANG_S = 12.0  # of the one that is known to hang

row = partial(duels, limit_s=LIMIT_S)


class Systems(NamedTuple):
    """Tridiagonal systems that are diagonally dominant, so that every method solves them.

    Attributes:
        batch: number of systems.
        n: unknowns of each.
        dtype: of the numbers.
        layout: "rows" for arrays (batch, n), "columns" for (n, batch).
        shared: whether all systems have one matrix.
        slopes: whether the gradient of a loss with respect to the solution comes with them.
    """

    batch: int
    n: int
    dtype: str = "float64"
    layout: str = "rows"
    shared: bool = False
    slopes: bool = False

    @property
    def axis(self) -> int:
        return -1 if self.layout == "rows" else 0

    @property
    def shape(self) -> tuple[int, int]:
        return (self.batch, self.n) if self.layout == "rows" else (self.n, self.batch)

    @property
    def name(self) -> str:
        return f"solve-{self.batch}x{self.n}-{self.dtype}-{self.layout}"

    @property
    def what(self) -> str:
        """Such as "solve (100,000 x 100) float64, row-major"."""
        order = "(n, batch)" if self.layout == "columns" else "row-major"
        return f"solve ({self.batch:,} x {self.n:,}) {self.dtype}, {order}"

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Lower, main and upper diagonal, right-hand sides, and slopes if there are any."""
        kind = np.dtype(self.dtype)
        shape = (self.n,) if self.shared else self.shape
        lower, upper = (rng.random(shape, kind) - kind.type(0.5) for _ in range(2))
        diagonal = rng.random(shape, kind) + kind.type(1.5)
        axis = 0 if self.shared else self.axis
        np.moveaxis(lower, axis, 0)[0] = 0  # as jax.lax.linalg demands
        np.moveaxis(upper, axis, 0)[-1] = 0
        rhs = rng.random(self.shape, kind) - kind.type(0.5)
        slopes = (rng.random(self.shape, kind),) if self.slopes else ()
        return lower, diagonal, upper, rhs, *slopes


# Targets against those that solve a shape.
TARGETS: dict[Systems, dict[str, float]] = {
    Systems(*REPORT): {
        "jax lax.scan": 13,
        "jax tridiagonal_solve": 17,
        "LAPACK gtsv": 6,
        "numba": 2.6,
    },
    Systems(*OTHERS[-1]): {"jax lax.scan": 10, "jax tridiagonal_solve": 10, "LAPACK gtsv": 10},
}


def rows() -> list[Row]:
    solves = [*share_rows(), *peer_rows(), *growing_rows(), *small_rows()]
    return [*solves, *variant_rows(), *gradient_rows(), *recurrences.rows(row)]


def share_rows() -> list[Row]:
    """Shares of the machine's limit, four arrays read and one written by all cores.

    Targets are for plain stores, as a loop in C makes them.
    """
    table = []
    for shape in (REPORT, *OTHERS):
        for kind, target in SHARES.items():
            each = Systems(*shape, *kind)
            if shape == REPORT:
                plain = partial(roofline, each, "plain")
                limit = {"plain": ("4 reads, 1 plain write", plain, target)}
            else:
                limit = {"roofline": ("4 reads, 1 write", best_roofline(each))}
            table += row(each.name, each.what, partial(our_solve, each), limit, "share")
    return table


def growing_rows() -> list[Row]:
    """Systems of 100 unknowns, more and more of them: the report's JAX, NumPy and numba."""
    table = []
    for total in TOTALS:
        systems = Systems(total // REPORT[1], REPORT[1])
        contenders: dict[str, Contender] = {
            "rlcpu": partial(our_solve, systems),
            "jax lax.scan": partial(jax_function, systems, solve_rows),
            "numba": partial(numba_solve, systems),
            "NumPy": partial(numpy_solve, systems),
        }
        if total >= TOTALS[-2]:  # fewer fit into the caches, and memory is no limit
            contenders[LIMIT] = best_roofline(systems)
        what = f"solve ({systems.batch:,} x {systems.n}) float64"
        panel = Panel(total, contenders, rates=False)
        against = "the best of the peers"
        table.append(Row(f"gist-{total}", what, against, panel, unit="s", limit_s=120.0))
    return table


def peer_rows() -> list[Row]:
    """Everyone on every shape in float64, row-major; on the report's also in other ways."""
    in_jax = partial(partial, jax_function)
    scan = {"jax-lax-scan": ("jax lax.scan", in_jax(function=solve_rows))}
    columns = {"jax-lax-scan": ("jax lax.scan, no .T", in_jax(function=solve_columns))}
    lapack = {"lapack-gtsv": ("LAPACK gtsv", lapack_solve)}
    others = {
        **scan,
        "jax-tridiagonal_solve": ("jax tridiagonal_solve", in_jax(function=solve_by_library)),
        **lapack,
        "numba": ("numba", numba_solve),
    }
    double, single = Systems(*REPORT), Systems(*REPORT, "float32")
    cases: list[tuple[Systems, dict[str, Any]]] = [
        (double, {**others, "numpy": ("NumPy", numpy_solve)}),
        *((Systems(*shape), others) for shape in OTHERS),
        (double._replace(layout="columns"), columns),
        (single, {**scan, **lapack}),
        (single._replace(layout="columns"), columns),
    ]
    table = []
    for systems, everyone in cases:
        targets = TARGETS.get(systems, {})
        peers = {
            end: (against, partial(make, systems), targets.get(against))
            for end, (against, make) in everyone.items()
        }
        table += row(systems.name, systems.what, partial(our_solve, systems), peers, "time")
    return table


def small_rows() -> list[Row]:
    """Where the call itself is what costs."""
    each, what = Systems(4, 16), "solve (4 x 16) float64, one call, cost of"
    peers = {
        f.__name__: (against, partial(jax_function, each, f), 1.2)
        for against, f in (
            ("jax lax.scan", solve_rows),
            ("jax tridiagonal_solve", solve_by_library),
        )
    }
    return row("small", what, partial(our_solve, each), peers, "cost")


def variant_rows() -> list[Row]:
    """What our own options cost, and one matrix for all systems, factored before."""
    each = Systems(*REPORT)
    ours, shared = partial(our_solve, each), each._replace(shared=True)
    thomas = partial(ours, method="thomas")
    table = []
    for name, what, costly, plain in (
        ("pivoting", "pivoting", ours, thomas),
        ("residual", "check='residual'", partial(ours, check="residual"), ours),
        ("fresh", "new arrays", partial(ours, reuse=False), ours),
    ):
        without = {name: ("ours without", plain)}
        table += row("cost", f"solve, {what}: cost of", costly, without, "cost")
    what = "factored, 100,000 right-hand sides of 100"
    peer = {"": ("scipy solve_banded", partial(scipy_solve, shared), 18)}
    return table + row("factored", what, partial(our_factors, shared), peer, "time")


def gradient_rows() -> list[Row]:
    """Solution, and gradients with respect to the three diagonals and the right-hand sides."""
    problem = Systems(*REPORT, slopes=True)
    what, ours = "solve and gradient (100,000 x 100) float64", partial(our_gradient, problem)
    scan, library = (partial(jax_gradient, problem, f) for f in (solve_rows, solve_by_library))
    by_scan = {"scan": ("jax.grad of lax.scan", scan, 15)}
    hangs = {"library": ("jax.grad, XLA's solver", library)}
    return [
        *row("gradient", what, ours, by_scan, "time"),
        *duels("gradient", what, ours, hangs, "time", limit_s=HANG_S),
    ]


# ---------------------------------------------------------------- ours


def our_solve(systems: Systems, reuse: bool = True, **options: Any) -> Job:
    """`solve_tridiagonal`, its solution into the same array again (`out=`) or not."""
    from rlcpu.scan import solve_tridiagonal

    out = np.zeros(systems.shape, systems.dtype) if reuse else None
    return prepared(systems, partial(solve_tridiagonal, axis=systems.axis, out=out, **options))


def our_factors(systems: Systems) -> Job:
    """`factor_tridiagonal(...).solve`: the matrix is factored before."""
    from rlcpu.scan import factor_tridiagonal

    out = np.zeros(systems.shape, systems.dtype)

    def convert(*arrays: np.ndarray) -> Arguments:
        *matrix, rhs = arrays
        return factor_tridiagonal(*matrix), rhs

    return prepared(systems, lambda factors, rhs: factors.solve(rhs, out=out), convert)


def our_gradient(systems: Systems) -> Job:
    """`solve_tridiagonal`, then `tridiagonal_vjp`."""
    from rlcpu.scan import TridiagonalGradients, solve_tridiagonal, tridiagonal_vjp

    out = np.zeros(systems.shape, systems.dtype)
    gradients = TridiagonalGradients(*(np.zeros_like(out) for _ in range(4)))

    def call(*arrays: np.ndarray) -> tuple[Any, ...]:
        *matrix, rhs, slopes = arrays
        x = solve_tridiagonal(*matrix, rhs, axis=systems.axis, out=out)
        return x, *tridiagonal_vjp(*matrix, x, slopes, axis=systems.axis, out=gradients)

    return prepared(systems, call)


# ---------------------------------------------------------------- the machine's limit


def roofline(systems: Systems, stores: str) -> Job:
    """The sum of four arrays, on all cores, by "plain" stores or by "streaming" ones."""
    function = getattr(load("roofline.cpp", (WIDE,)), f"{stores}_{systems.dtype}")
    out = aligned(np.zeros(systems.shape, systems.dtype))
    size = ctypes.c_int64(out.size)

    def total(*arrays: np.ndarray) -> np.ndarray:
        function(*map(pointer, arrays), pointer(out), size)
        return out

    return prepared(systems, total, lambda *arrays: tuple(map(aligned, arrays)))


def best_roofline(systems: Systems) -> Contender:
    kinds = ("plain", "streaming")
    return best_of("roofline", {f"{k} stores": partial(roofline, systems, k) for k in kinds})


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    room = np.empty(array.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    copy = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


# ---------------------------------------------------------------- LAPACK, SciPy, numba, NumPy


def lapack_solve(systems: Systems) -> Job:
    """?gtsv of the LAPACK that SciPy brings along, the systems divided among all cores."""
    from numba.extending import get_cython_function_address

    letter = {"float64": "d", "float32": "s"}[systems.dtype]
    address = get_cython_function_address("scipy.linalg.cython_lapack", f"{letter}gtsv")
    function = getattr(load("gtsv.cpp"), f"solve_{systems.dtype}")
    function.restype = ctypes.c_int64
    out = np.zeros(systems.shape, systems.dtype)
    scratch = np.zeros((machine.cores(), 3 * systems.n), systems.dtype)
    sizes = ctypes.c_int64(systems.batch), ctypes.c_int(systems.n)

    def solve(*arrays: np.ndarray) -> np.ndarray:
        pointers = map(pointer, (*arrays, out, scratch))
        if function(ctypes.c_void_p(address), *pointers, *sizes):
            raise ArithmeticError("LAPACK found a singular system")
        return out

    return prepared(systems, solve)


def scipy_solve(systems: Systems) -> Job:
    """`scipy.linalg.solve_banded` of one matrix, without its search for NaN."""
    from scipy.linalg import solve_banded

    def convert(*arrays: np.ndarray) -> Arguments:
        """The diagonals as SciPy wants them; systems in columns, in LAPACK's order."""
        lower, diagonal, upper, rhs = arrays
        return np.stack([np.roll(upper, 1), diagonal, np.roll(lower, -1)]), rhs.T

    def solve(bands: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return solve_banded((1, 1), bands, rhs, check_finite=False).T

    return prepared(systems, solve, convert)


def numba_solve(systems: Systems) -> Job:
    """What a user of numba writes: the report's algorithm on one row after the other."""
    import numba

    from rlcpu.kernels.machine.threads import threading_layer

    @numba.njit(parallel=True)
    def solve(a, b, c, d, out):
        batch, n = a.shape
        for s in numba.prange(batch):
            cp = np.empty(n, a.dtype)
            denom = 1 / b[s, 0]
            cp[0] = c[s, 0] * denom
            out[s, 0] = d[s, 0] * denom
            for i in range(1, n):
                denom = 1 / (b[s, i] - a[s, i] * cp[i - 1])
                cp[i] = c[s, i] * denom
                out[s, i] = (d[s, i] - a[s, i] * out[s, i - 1]) * denom
            for i in range(n - 2, -1, -1):
                out[s, i] -= cp[i] * out[s, i + 1]
        return out

    threading_layer()  # the one that rlcpu runs on
    out = np.zeros(systems.shape, systems.dtype)
    return prepared(systems, lambda *arrays: solve(*arrays, out))


def numpy_solve(systems: Systems) -> Job:
    """The report's NumPy, which overwrites two of its arguments: copies of them, not timed."""
    job = prepared(systems, tdma_naive)

    def copies(rng: np.random.Generator, count: int) -> list[Arguments]:
        return [tuple(x.copy() for x in arrays) for arrays in job.inputs(rng, count)]

    return job._replace(inputs=copies)


def tdma_naive(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The report's function, word for word."""
    assert a.shape == b.shape and a.shape == c.shape and a.shape == d.shape  # noqa: PT018

    n = a.shape[-1]

    for i in range(1, n):
        w = a[..., i] / b[..., i - 1]
        b[..., i] += -w * c[..., i - 1]
        d[..., i] += -w * d[..., i - 1]

    out = np.empty_like(a)
    out[..., -1] = d[..., -1] / b[..., -1]

    for i in range(n - 2, -1, -1):
        out[..., i] = (d[..., i] - c[..., i] * out[..., i + 1]) / b[..., i]

    return out


# ---------------------------------------------------------------- JAX


def solve_rows(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The report's tdma_jax_kernel: lower, main, upper diagonal, right-hand side, (batch, n).

    Word for word, but for the shape of the initial value: it wrote the one of arrays with three
    axes, and with two JAX is a tenth faster, three times in the other layout.
    """

    def compute_primes(last_primes, x):
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

    def backsubstitution(last_x, x):
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
    return jax.lax.linalg.tridiagonal_solve(lower, diagonal, upper, rhs[..., None])[..., 0]


def jax_gradient(systems: Systems, solve: Callable[..., Any]) -> Job:
    """Solution, and gradients with respect to the four arrays, of one of the above."""

    def solution_and_gradients(*arguments: Any) -> Any:
        *arrays, slopes = arguments
        solution, backward = jax.vjp(solve, *arrays)
        return solution, *backward(slopes)

    return jax_function(systems, solution_and_gradients)
