"""Rows of the table `scan`: advantages, logcumsumexp, Kalman filters."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers.harness import Arguments, Job, prepared
from asv_benches.peers.libraries import jax, jnp, torch
from asv_benches.peers.rows import Row

ROLLOUTS = ((2048, 1024), (128, 16_384))  # steps and environments
GAE_TARGETS = {"jax lax.scan": 3, "torch loop": 40, "NumPy loop": 12}  # of the first, time-major
GAMMA, LAMBDA = 0.99, 0.95
LINE = 100_000  # of the report "Jax scans are slower than expected"
STATES, BATCHES = (2, 4, 8), (1, 64)


def rows(row: Callable[..., list[Row]]) -> list[Row]:
    return [*gae_rows(row), *logcumsumexp_rows(row), *kalman_rows(row)]


def jax_function(
    problem: Any, function: Callable[..., Any], dtype: type[np.floating] | None = None
) -> Job:
    """A function of JAX's arrays, jitted and waited for; `dtype` is what inputs are cast to."""
    compiled = jax.jit(function)

    def convert(*arrays: np.ndarray) -> Arguments:
        # float64 is an option of JAX, and then the default of new arrays.
        jax.config.update("jax_enable_x64", arrays[0].dtype == np.float64)
        return tuple(jax.numpy.asarray(x.astype(dtype) if dtype else x) for x in arrays)

    def call(*arguments: Any) -> Any:
        return jax.block_until_ready(compiled(*arguments))

    return prepared(problem, call, convert)


# ---------------------------------------------------------------- advantages


class Rollouts(NamedTuple):
    """Rollouts of a policy, one step in a hundred the last one of its episode.

    Attributes:
        num_steps: T.
        num_envs: N.
        layout: "time-major" for arrays (T, N), "batch-major" for (N, T).
    """

    num_steps: int
    num_envs: int
    layout: str = "time-major"

    @property
    def axis(self) -> int:
        return 0 if self.layout == "time-major" else 1

    @property
    def shape(self) -> tuple[int, int]:
        shape = self.num_steps, self.num_envs
        return shape if self.layout == "time-major" else shape[::-1]

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Rewards, values, whether the episode terminated, last values."""
        rewards, values = (rng.standard_normal(self.shape, np.float32) for _ in range(2))
        terminated = rng.random(self.shape, np.float32) < 0.01
        return rewards, values, terminated, rng.standard_normal(self.num_envs, np.float32)


# All contenders return the advantages and, as we do, the advantages plus the values. The peers take
# the ends of episodes as numbers, 1.0 after the last step, which is what such code keeps.


def gae_rows(row: Callable[..., list[Row]]) -> list[Row]:
    """2 million steps, float32; the slow and the redundant peers only on the first problem."""
    table = []
    for shape, layout in itertools.product(ROLLOUTS, ("time-major", "batch-major")):
        problem = Rollouts(*shape, layout)
        targets = GAE_TARGETS if problem == Rollouts(*ROLLOUTS[0]) else {}
        makers = {
            "jax": ("jax lax.scan", partial(jax_gae, problem, gae_by_scan)),
            "torch": ("torch loop", partial(torch_gae, problem)),
            "numpy": ("NumPy loop", partial(numpy_gae, problem)),
        }
        peers = {end: (*peer, targets.get(peer[0])) for end, peer in makers.items()}
        if targets:
            peers["rlax"] = ("rlax", partial(jax_gae, problem, gae_by_rlax))
        name = f"gae-{problem.num_steps}x{problem.num_envs}-{layout}"
        what = f"gae {problem.num_steps:,} x {problem.num_envs:,} float32, {layout}"
        table += row(name, what, partial(our_gae, problem), peers, "time")
    return table


def our_gae(problem: Rollouts, reuse: bool = True) -> Job:
    """`gae`, into the same arrays again or not."""
    from rlcpu.scan import Advantages, gae

    never = np.zeros(problem.shape, np.bool_)
    options: dict[str, Any] = {"gamma": GAMMA, "lambda_": LAMBDA}
    if reuse:
        options["out"] = Advantages(*np.zeros((2, *problem.shape), np.float32))
    if problem.axis:
        options["axis"] = problem.axis

    def call(rewards: Any, values: Any, terminated: Any, last_values: Any) -> Any:
        return gae(rewards, values, terminated, never, last_values, **options)

    return prepared(problem, call)


def numpy_gae(problem: Rollouts) -> Job:
    """The loop of single-file PPO implementations, its rows written into prepared arrays."""

    def convert(*arrays: np.ndarray) -> Arguments:
        return tuple(array.astype(np.float32) for array in arrays)

    advantages = np.zeros(problem.shape, np.float32)
    return prepared(problem, partial(loop, advantages, problem.axis, np.zeros_like), convert)


def torch_gae(problem: Rollouts) -> Job:
    def convert(*arrays: np.ndarray) -> Arguments:
        return tuple(torch.from_numpy(array.astype(np.float32)) for array in arrays)

    advantages = torch.zeros(problem.shape)
    return prepared(problem, partial(loop, advantages, problem.axis, torch.zeros_like), convert)


def loop(out: Any, axis: int, zeros: Callable[[Any], Any], *arrays: Any) -> Any:
    """Advantages and returns, step by step backwards; the code is the same in NumPy and torch."""
    rewards, values, ends, last_values = arrays
    advantages = out
    if axis == 1:
        rewards, values, ends, advantages = rewards.T, values.T, ends.T, out.T
    next_values, advantage = last_values, zeros(last_values)
    for t in range(len(rewards) - 1, -1, -1):
        going = 1.0 - ends[t]
        delta = rewards[t] + GAMMA * next_values * going - values[t]
        advantage = delta + GAMMA * LAMBDA * going * advantage
        advantages[t] = advantage
        next_values = values[t]
    return out, out + arrays[1]


def jax_gae(problem: Rollouts, function: Callable[..., Any]) -> Job:
    """One of the functions below, whose arrays are time-major.

    Batch-major ones are transposed within the jitted function, where XLA can fuse it.
    """

    def batch_major(rewards: Any, values: Any, ends: Any, last_values: Any) -> Any:
        advantages, returns = function(rewards.T, values.T, ends.T, last_values)
        return advantages.T, returns.T

    return jax_function(problem, batch_major if problem.axis == 1 else function, np.float32)


def gae_by_scan(rewards: Any, values: Any, ends: Any, last_values: Any) -> Any:
    """One `lax.scan`, all of a step in its body."""

    def step(carry: Any, row: Any) -> Any:
        next_values, advantage = carry
        reward, value, end = row
        going = 1.0 - end
        delta = reward + GAMMA * next_values * going - value
        advantage = delta + GAMMA * LAMBDA * going * advantage
        return (value, advantage), advantage

    start = last_values, jnp.zeros_like(last_values)
    _, advantages = jax.lax.scan(step, start, (rewards, values, ends), reverse=True)
    return advantages, advantages + values


def gae_by_rlax(rewards: Any, values: Any, ends: Any, last_values: Any) -> Any:
    """rlax's function of one environment, mapped over the environments."""
    import rlax

    def one(rewards: Any, discounts: Any, values: Any) -> Any:
        return rlax.truncated_generalized_advantage_estimation(rewards, discounts, LAMBDA, values)

    everything = jnp.concatenate([values, last_values[None]])
    mapped = jax.vmap(one, in_axes=1, out_axes=1)
    advantages = mapped(rewards, GAMMA * (1.0 - ends), everything)
    return advantages, advantages + values


# ---------------------------------------------------------------- logcumsumexp


class Line(NamedTuple):
    """A long row of float64 numbers.

    Attributes:
        size: how many.
    """

    size: int

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (rng.standard_normal(self.size),)


def logcumsumexp_rows(row: Callable[..., list[Row]]) -> list[Row]:
    """One long row; the target is against the best of JAX and torch."""
    line, what = Line(LINE), f"logcumsumexp {LINE:,} float64"
    ours = partial(our_logcumsumexp, line)
    jax = partial(jax_function, line)
    ranked = {
        "scan": ("jax lax.scan", partial(jax, logcumsumexp_by_scan), 8),
        "associative": ("jax associative_scan", partial(jax, by_associative_scan), 8),
        "library": ("jax cumlogsumexp", partial(jax, by_library), 8),
        "torch": ("torch", partial(torch_logcumsumexp, line), 8),
    }
    alone = {"numpy": ("NumPy logaddexp.accumulate", partial(numpy_logcumsumexp, line))}
    return [
        *row("logcumsumexp", what, ours, ranked, "time", ranked=True),
        *row("logcumsumexp", what, ours, alone, "time"),
    ]


def our_logcumsumexp(line: Line, reuse: bool = True) -> Job:
    """`logcumsumexp`, into the same array again, as NumPy's and torch's, or not."""
    from rlcpu.scan import logcumsumexp

    return prepared(line, partial(logcumsumexp, out=np.zeros(line.size) if reuse else None))


def numpy_logcumsumexp(line: Line) -> Job:
    return prepared(line, partial(np.logaddexp.accumulate, out=np.zeros(line.size)))


def torch_logcumsumexp(line: Line) -> Job:
    out = torch.zeros(line.size, dtype=torch.float64)
    return prepared(
        line, lambda x: torch.logcumsumexp(x, 0, out=out), lambda x: (torch.from_numpy(x),)
    )


def logcumsumexp_by_scan(x: Any) -> Any:
    """The report's `lax.scan`: google/jax 2491."""

    def add(carry: Any, number: Any) -> Any:
        out = jnp.logaddexp(carry, number)
        return out, out

    return jax.lax.scan(add, -jnp.inf, x)[1]


def by_associative_scan(x: Any) -> Any:
    return jax.lax.associative_scan(jax.numpy.logaddexp, x)


def by_library(x: Any) -> Any:
    return jax.lax.cumlogsumexp(x)


# ---------------------------------------------------------------- Kalman filters


class Models(NamedTuple):
    """Linear-Gaussian state-space models of scalar observations, float64.

    Attributes:
        batch: number of models, B.
        state: size of the state, m.
        num_steps: observations of each, T.
    """

    batch: int
    state: int
    num_steps: int = 10_000

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Transition F (B, m, m), its covariance Q, design H (B, m), R (B,), observations (B, T).

        F is 0.95 times a rotation: stable, and nothing in it is zero.
        """
        b, m = self.batch, self.state
        transition = 0.95 * np.linalg.qr(rng.standard_normal((b, m, m)))[0]
        noise = np.tile(0.1 * np.eye(m), (b, 1, 1))
        design = rng.standard_normal((b, m))
        return transition, noise, design, np.full(b, 0.5), rng.standard_normal((b, self.num_steps))


def kalman_rows(row: Callable[..., list[Row]]) -> list[Row]:
    """Log-likelihoods of 10,000 observations, and their gradients."""
    table = []
    for batch, m in itertools.product(BATCHES, STATES):
        models, of = Models(batch, m), f"state {m}, {batch} model{'s' if batch > 1 else ''}"
        values = {
            "jax": ("jax lax.scan", partial(jax_kalman, models), 1.5),
            "statsmodels": ("statsmodels", partial(statsmodels_kalman, models), 1.4),
        }
        slopes = {"jax": ("jax.value_and_grad", partial(jax_kalman, models, gradient=True), 6)}
        for job, ours, peers in (
            ("value", our_kalman, values),
            ("gradient", our_kalman_gradient, slopes),
        ):
            name, what = f"kalman-{m}x{batch}-{job}", f"kalman {job}, {of}"
            table += row(name, what, partial(ours, models), peers, "time")
    return table


def our_model(*arrays: np.ndarray) -> Arguments:
    """Observations first, as vectors of one number."""
    transition, noise, design, variance, observations = arrays
    model = transition, noise, design[:, None, :], variance[:, None, None]
    return observations[..., None], *model


def our_kalman(models: Models) -> Job:
    """`kalman_loglik`, which starts at mean 0 and covariance 1, into the same array again."""
    from rlcpu.scan import kalman_loglik

    return prepared(models, partial(kalman_loglik, out=np.zeros(models.batch)), our_model)


def our_kalman_gradient(models: Models) -> Job:
    """`kalman_loglik_vjp`, whose gradients are of everything."""
    from rlcpu.scan import kalman_loglik_vjp

    def call(*arrays: np.ndarray) -> tuple[Any, ...]:
        value, slopes = kalman_loglik_vjp(*arrays)
        matrices = slopes.transition, slopes.transition_cov, slopes.design
        return value, *matrices, slopes.observation_cov

    return prepared(models, call, our_model)


def jax_kalman(models: Models, gradient: bool = False) -> Job:
    """A `lax.scan`, or its value and gradients with respect to F, Q, H and R."""
    one = jax.value_and_grad(loglik, argnums=(0, 1, 2, 3)) if gradient else loglik

    def each(*arrays: Any) -> Any:
        """Of every model; a single one goes without `vmap`, which would cost it time."""
        if models.batch > 1:
            return jax.vmap(one)(*arrays)
        return jax.tree.map(lambda x: x[None], one(*(array[0] for array in arrays)))

    return jax_function(models, each)


def loglik(transition: Any, noise: Any, design: Any, variance: Any, observations: Any) -> Any:
    """Log-likelihood of one model in JAX, which starts at mean 0 and covariance 1."""

    def step(state: Any, observation: Any) -> Any:
        mean, cov = state
        projected = cov @ design
        spread = design @ projected + variance
        innovation = observation - design @ mean
        mean = mean + projected * innovation / spread
        cov = cov - jnp.outer(projected, projected) / spread
        state = transition @ mean, transition @ cov @ transition.T + noise
        return state, -0.5 * (jnp.log(2 * jnp.pi * spread) + innovation**2 / spread)

    size = transition.shape[0]
    return jax.lax.scan(step, (jnp.zeros(size), jnp.eye(size)), observations)[1].sum()


def statsmodels_kalman(models: Models) -> Job:
    """statsmodels' compiled filter, one model after the other.

    Its default settings: once the covariance has converged it is no longer updated.
    """
    from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

    def bound(transition: Any, noise: Any, design: Any, variance: Any, observations: Any) -> Any:
        """A filter that starts at mean 0 and covariance 1."""
        kalman = KalmanFilter(k_endog=1, k_states=models.state, loglikelihood_burn=0)
        kalman.bind(observations[:, None].copy())
        kalman["design"] = design[None]
        kalman["transition"] = transition
        kalman["selection"] = np.eye(models.state)
        kalman["state_cov"] = noise
        kalman["obs_cov"] = np.array([[variance]])
        kalman.initialize_known(np.zeros(models.state), np.eye(models.state))
        return kalman

    def convert(*arrays: np.ndarray) -> Arguments:
        return tuple(bound(*model) for model in zip(*arrays, strict=True))

    def call(*filters: Any) -> np.ndarray:
        return np.array([each.loglike() for each in filters])

    return prepared(models, call, convert)
