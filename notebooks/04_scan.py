# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Scan: recurrences over an axis
#
# A scan computes each number from the one before it: tridiagonal systems, advantages, cumulative
# sums, Kalman filters. In 2020 a report said that JAX's scans were slower than expected: 100,000
# tridiagonal systems of 100 unknowns took 2.5 times as long as a loop in numba. The thread that
# followed asked for scans over any axis, for gradients, for logarithms of cumulative sums and for
# likelihoods of Kalman filters. This notebook goes through that list.

# %%
import time
from concurrent.futures import ThreadPoolExecutor

import matplotlib.pyplot as plt
import numpy as np

from rlcpu import scan
from rlcpu.kernels.machine.threads import show_config

plt.rcParams.update({"figure.figsize": (7, 3.2), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba", "numpy")})
rng = np.random.default_rng(0)


def milliseconds(call, budget=0.3):
    """The shortest of the calls that fit into `budget` seconds, after one that may compile."""
    call()
    best, end = np.inf, time.perf_counter() + budget
    while best == np.inf or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def draw(times, title, limit, name):
    """Bars of milliseconds, with a limit of the machine as a line."""
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(times) + 1.3))
    bars = axes.barh(list(times), list(times.values()))
    axes.bar_label(bars, fmt="%.4g ms", padding=3)
    axes.axvline(limit, color="black", linestyle="--", linewidth=1, label=name)
    axes.set(xscale="log", xlabel="ms", title=title)
    axes.set_xlim(min(limit, *times.values()) / 2, 4 * max(times.values()))
    axes.invert_yaxis()
    figure.legend(loc="outside lower center")
    plt.show()


# %% [markdown]
# ## 100,000 tridiagonal systems of 100 unknowns
#
# The report's own NumPy code, which sweeps once forward and once back over all systems at a time:


# %%
def with_numpy(lower, diagonal, upper, rhs):
    """Solutions by Thomas' algorithm; overwrites the diagonal and the right-hand sides."""
    n = diagonal.shape[-1]
    for k in range(1, n):
        factor = lower[..., k] / diagonal[..., k - 1]
        diagonal[..., k] -= factor * upper[..., k - 1]
        rhs[..., k] -= factor * rhs[..., k - 1]
    x = np.empty_like(rhs)
    x[..., -1] = rhs[..., -1] / diagonal[..., -1]
    for k in range(n - 2, -1, -1):
        x[..., k] = (rhs[..., k] - upper[..., k] * x[..., k + 1]) / diagonal[..., k]
    return x


shape = (100_000, 100)
lower, upper, rhs = rng.standard_normal((3, *shape))
diagonal = 4.0 + rng.random(shape)
x = scan.solve_tridiagonal(lower, diagonal, upper, rhs)
same = with_numpy(lower, diagonal.copy(), upper, rhs.copy())
print(f"largest difference: {np.abs(x - same).max():.1e}")

# %% [markdown]
# A solve reads four arrays and writes one, and however clever it is, it cannot be faster than that:
# the dashed line is the time that all cores together take to move as many bytes in copies.

# %%
cores = int(settings["threads"].split()[0])
big = np.ones((cores, 2**23))
target = np.empty_like(big)
with ThreadPoolExecutor(cores) as pool:
    copied = milliseconds(lambda: list(pool.map(np.copyto, target, big)))
bandwidth = 2 * big.nbytes / copied  # bytes a millisecond
limit = 5 * rhs.nbytes / bandwidth

columns = [np.ascontiguousarray(array.T) for array in (lower, diagonal, upper, rhs)]
result, result_columns = np.empty_like(rhs), np.empty_like(columns[3])
times = {
    "NumPy": milliseconds(lambda: with_numpy(lower, diagonal.copy(), upper, rhs.copy())),
    "rlcpu, Thomas": milliseconds(
        lambda: scan.solve_tridiagonal(lower, diagonal, upper, rhs, method="thomas", out=result)
    ),
    "rlcpu": milliseconds(lambda: scan.solve_tridiagonal(lower, diagonal, upper, rhs, out=result)),
    "rlcpu, axis=0": milliseconds(
        lambda: scan.solve_tridiagonal(*columns, axis=0, out=result_columns)
    ),
}
draw(times, "100,000 x 100, float64", limit, f"moving them from memory: {limit:.1f} ms")
ours = times["rlcpu"]
print(f"{ours / limit:.2f} times the limit; {times['NumPy'] / ours:.0f} times as fast as NumPy")

# %% [markdown]
# ## Pivoting costs nothing here
#
# Thomas' algorithm divides by whatever it finds on the diagonal. `solve_tridiagonal` exchanges rows
# where that is better, scaled, without a branch; and as the loop waits for memory anyway, it is as
# fast. Random systems in which half of the diagonal is small show what it is for:


# %%
def backward_error(lower, diagonal, upper, rhs, x):
    """The largest relative change of single coefficients that makes x exact (Oettli, Prager)."""
    before = np.pad(x[:, :-1], ((0, 0), (1, 0)))
    after = np.pad(x[:, 1:], ((0, 0), (0, 1)))
    terms = np.stack((lower * before, diagonal * x, upper * after, -rhs))
    return np.max(np.abs(terms.sum(axis=0)) / np.abs(terms).sum(axis=0))


errors = {"pivot": [], "thomas": []}
sizes = 10.0 ** -np.arange(0, 17, 2)
for size in sizes:
    scales = np.where(rng.random((2000, 100)) < 0.5, size, 1.0)
    small = scales * rng.standard_normal((2000, 100))
    low, up, right = rng.standard_normal((3, 2000, 100))
    for method, found in errors.items():
        x = scan.solve_tridiagonal(low, small, up, right, method=method)
        found.append(backward_error(low, small, up, right, x))

figure, axes = plt.subplots()
for method, found in errors.items():
    axes.loglog(sizes, found, "o-", label=f"method={method!r}")
axes.axhline(np.finfo(float).eps, color="black", linestyle="--", linewidth=1, label="rounding")
axes.set(
    xlabel="size of the small numbers", ylabel="worst backward error", title="2,000 random systems"
)
axes.invert_xaxis()
figure.legend(loc="outside right upper")
plt.show()

# %% [markdown]
# ## Gradients
#
# The gradient of a solve is a solve with the transposed matrix (the implicit function theorem), not
# a walk back through every step of the loop. Here a rod with unknown conductivity is heated in its
# middle; 40 implicit steps of the heat equation lead to the temperatures that are observed, and the
# conductivity is found by descending the gradient through all 40 solves.

# %%
n, num_steps = 60, 40
place = np.linspace(0, 1, n)
truth = 0.3 + 0.25 * np.sin(2 * np.pi * place[1:]) ** 2  # between neighbours, (n - 1,)
start = np.exp(-100 * (place - 0.5) ** 2)


def matrix(conductivity):
    """Diagonals of I - L, L the flow between neighbours."""
    zero = np.zeros(1)
    lower = np.concatenate((zero, -conductivity))
    upper = np.concatenate((-conductivity, zero))
    return lower, 1.0 - lower - upper, upper


def heat(conductivity):
    """Temperatures (num_steps + 1, n), each the solution of a system of the one before."""
    states = [start]
    for _ in range(num_steps):
        states.append(scan.solve_tridiagonal(*matrix(conductivity), states[-1]))
    return np.array(states)


def gradient(conductivity, observed):
    """The squared error of all temperatures, and its gradient."""
    states = heat(conductivity)
    errors = states - observed
    total, carried = np.zeros_like(conductivity), np.zeros(n)
    for step in range(num_steps, 0, -1):
        back = scan.tridiagonal_vjp(*matrix(conductivity), states[step], carried + 2 * errors[step])
        carried = back.rhs
        on_lower, on_upper = back.lower[1:], back.upper[:-1]
        total += back.diagonal[1:] + back.diagonal[:-1] - on_lower - on_upper
    return float(np.sum(errors**2)), total


observed = heat(truth)
guess = np.full(n - 1, 0.4)
nudge = 1e-6 * (np.arange(n - 1) == 20)
loss, slope = gradient(guess, observed)
difference = (gradient(guess + nudge, observed)[0] - gradient(guess - nudge, observed)[0]) / 2e-6
print(f"gradient {slope[20]:.8f}, by differences {difference:.8f}")

moment, square, losses = np.zeros(n - 1), np.zeros(n - 1), []
for step in range(1, 301):  # Adam
    loss, slope = gradient(guess, observed)
    losses.append(loss)
    moment = 0.9 * moment + 0.1 * slope
    square = 0.99 * square + 0.01 * slope**2
    guess = guess - 0.01 * (moment / (1 - 0.9**step)) / np.sqrt(square / (1 - 0.99**step) + 1e-20)
print(f"squared error {losses[0]:.2e} at first, {losses[-1]:.2e} in the end")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
figure.get_layout_engine().set(wspace=0.08)
image = left.imshow(
    observed.T, aspect="auto", origin="lower", extent=(0, num_steps, 0, 1), cmap="magma"
)
left.set(xlabel="step", ylabel="place", title="Temperature")
left.grid(visible=False)
figure.colorbar(image, ax=left)
right.plot(place[1:], truth, label="true")
right.plot(place[1:], np.full(n - 1, 0.4), ":", color="gray", label="first guess")
right.plot(place[1:], guess, "--", label="found")
right.set(xlabel="place", ylabel="conductivity", ylim=(0, None), title="After 300 steps of Adam")
figure.legend(loc="outside lower right", ncols=3)
plt.show()

# %% [markdown]
# `rlcpu.scan.torch` and `rlcpu.scan.jax` have the same solve for PyTorch and JAX to differentiate.
#
# ## Advantages
#
# Generalised advantage estimation (Schulman et al. 2016) runs backwards over time. A step that
# terminated its episode has nothing after it; one that was cut short has the value of its last
# observation. Here both happen at step 60.

# %%
rewards, values = np.ones((100, 2), np.float32), np.full((100, 2), 10, np.float32)
terminated, truncated = np.zeros((2, 100, 2), bool)
terminated[60, 0] = truncated[60, 1] = True
advantages = scan.gae(
    rewards,
    values,
    terminated,
    truncated,
    values[0],  # of the observations after the last step
    gamma=0.99,
    lambda_=0.9,
    final_values=values,
).advantages
figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(advantages[:, 0], label="terminated at step 60")
axes.plot(advantages[:, 1], "--", label="truncated at step 60")
axes.set(xlabel="step", ylabel="advantage", title="Rewards of 1, values of 10, discount 0.99")
figure.legend(loc="outside lower center", ncols=2)
plt.show()


# %%
def gae_with_numpy(rewards, values, ended, last_values, gamma, lambda_):
    """The usual loop over time."""
    advantages, following, carried = np.empty_like(rewards), last_values, 0.0
    for t in range(len(rewards) - 1, -1, -1):
        going = 1.0 - ended[t]
        delta = rewards[t] + gamma * going * following - values[t]
        carried = delta + gamma * lambda_ * going * carried
        advantages[t], following = carried, values[t]
    return advantages, advantages + values


steps, num_envs = 128, 16_384
rewards, values = rng.standard_normal((2, steps, num_envs), np.float32)
ended, never = rng.random((steps, num_envs)) < 0.01, np.zeros((steps, num_envs), bool)
last = np.zeros(num_envs, np.float32)
discounts = {"gamma": 0.99, "lambda_": 0.95}
estimates = scan.gae(rewards, values, ended, never, last, **discounts)
limit = (4 * rewards.nbytes + 2 * ended.nbytes) / bandwidth
float_ended = ended.astype(np.float32)
times = {
    "NumPy": milliseconds(
        lambda: gae_with_numpy(
            rewards, values, float_ended, last, np.float32(0.99), np.float32(0.95)
        )
    ),
    "rlcpu": milliseconds(
        lambda: scan.gae(rewards, values, ended, never, last, out=estimates, **discounts)
    ),
}
draw(times, "GAE, 128 x 16,384, float32", limit, f"moving them from memory: {limit:.2f} ms")

# %% [markdown]
# ## Sums of exponentials
#
# The logarithm of a cumulative sum of exponentials overflows when it is computed as it is written:

# %%
walk = np.cumsum(rng.standard_normal(100_000)) * 10
with np.errstate(over="ignore"):
    plain = np.log(np.cumsum(np.exp(walk)))
print(
    f"as written: {np.isinf(plain).sum():,} infinities; logcumsumexp: "
    f"{np.isinf(scan.logcumsumexp(walk)).sum()}"
)
exact = np.logaddexp.accumulate(walk)
print(
    f"largest difference from np.logaddexp.accumulate, relative: "
    f"{np.max(np.abs(scan.logcumsumexp(walk) / exact - 1)):.1e}"
)
for name, call in {
    "np.logaddexp.accumulate": lambda: np.logaddexp.accumulate(walk),
    "scan.logcumsumexp": lambda: scan.logcumsumexp(walk),
}.items():
    print(f"{name:24s} {milliseconds(call):.3f} ms for 100,000 numbers")

# %% [markdown]
# ## Likelihoods of Kalman filters
#
# A level that wanders is observed with noise. How far does it wander? Many candidates are filtered
# at once, as models of one batch, and the likeliest is the estimate; the smoother then gives the
# level itself, with its uncertainty.

# %%
length, wander, noise = 400, 0.05, 0.5
level = np.cumsum(np.sqrt(wander) * rng.standard_normal(length))
seen = level + np.sqrt(noise) * rng.standard_normal(length)
seen[150:200] = np.nan  # missing
candidates = np.geomspace(1e-3, 2, 200)
one = np.eye(1)
likelihoods = scan.kalman_loglik(
    seen[:, None], one, candidates[:, None, None], one, noise * one, initial_cov=10 * one
)
best = candidates[np.argmax(likelihoods)]
smooth = scan.kalman_smooth(seen[:, None], one, best * one, one, noise * one, initial_cov=10 * one)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
left.semilogx(candidates, likelihoods)
left.axvline(wander, color="black", linestyle="--", linewidth=1, label=f"true: {wander}")
left.axvline(best, color="C1", label=f"likeliest: {best:.3f}")
left.set(xlabel="variance of a step", ylabel="log-likelihood", title="200 models at once")
left.set_ylim(likelihoods.max() - 60, likelihoods.max() + 5)
figure.legend(loc="outside lower left", ncols=2)
spread = 2 * np.sqrt(smooth.cov[:, 0, 0])
right.fill_between(
    np.arange(length),
    smooth.mean[:, 0] - spread,
    smooth.mean[:, 0] + spread,
    color="C1",
    alpha=0.3,
    linewidth=0,
    label="smoothed, two deviations",
)
right.plot(seen, ".", color="gray", markersize=3, label="observed")
right.plot(level, color="black", linewidth=1, label="true level")
right.set(xlabel="time", title="A level under noise, 50 observations missing")
figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3, fontsize=8)
plt.show()
