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
# # Internals: from a scalar function to SIMD and CUDA
#
# An environment is written as the step of one cart with one pole. What runs is a loop in which one
# instruction steps sixteen of them. This notebook follows CartPole on that way, counts
# instructions at every station, and draws what is left to gain. The names used here belong to the
# library's inside, `rlcpu.kernels`, and may change.

# %%
import collections
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numba
import numpy as np

import rlcpu
from rlcpu.envs.tasks.classic_control import cartpole
from rlcpu.kernels.compiler.compile import FAST, kernel, specialise
from rlcpu.kernels.machine.threads import show_config

plt.rcParams.update({"figure.figsize": (7, 3.2), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba")})


def seconds(call, budget=0.9):
    """The shortest of the calls that fit into `budget` seconds, after one that may compile."""
    call()
    best, end = np.inf, time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


# %% [markdown]
# ## Station 1: plain Python
#
# The step with the parameters as constants. It runs as it is, which is how the tests use it: as
# the reference for everything that is made from it.

# %%
PARAMS = cartpole.Params()


def step(state, action):
    state, _, _ = cartpole.step(state, action, PARAMS)
    return state


print(step((0.0, 0.0, 0.05, 0.0), 1))

# %% [markdown]
# ## Station 2: numba, as it comes
#
# Compiled as it is written, over an array with one row per environment. The literals of Python are
# 64 bits wide, so that float32 numbers are widened, and four numbers that lie side by side belong
# to one environment, so that no vector can be filled with sixteen of a kind.

# %%
count = 4096
structures = np.zeros((count, 4), np.float32)
actions = np.zeros(count, np.int64)
cart_step = numba.njit(cartpole.step)


@numba.njit
def as_it_comes(structures, actions):
    for i in range(actions.shape[0]):
        x, v, angle, turn = structures[i]
        state, _, _ = cart_step((x, v, angle, turn), actions[i], PARAMS)
        structures[i, 0], structures[i, 1], structures[i, 2], structures[i, 3] = state


as_it_comes(structures, actions)

# %% [markdown]
# ## Station 3: specialised
#
# `specialise` builds a new function from the code of the old one: its float constants become
# constants of the working dtype, those of the functions that it calls too, and `math.sin` becomes
# a polynomial that fits into vector instructions.

# %%
step32 = specialise(step, np.float32)


@numba.njit(fastmath=FAST, error_model="numpy")
def specialised(structures, actions):
    for i in range(actions.shape[0]):
        x, v, angle, turn = structures[i]
        state = step32((x, v, angle, turn), actions[i])
        structures[i, 0], structures[i, 1], structures[i, 2], structures[i, 3] = state


specialised(structures, actions)

# %% [markdown]
# ## Station 4: rows
#
# The state lies in rows, one per number and not one per environment: a vector holds the same
# number of sixteen environments. The actions are narrow, because an int64 in the loop would halve
# the vectors, and the length of the loop is known.

# %%
rows = np.zeros((4, count), np.float32)
narrow = np.zeros(count, np.int32)
BLOCK = 64


@numba.njit(fastmath=FAST, error_model="numpy")
def in_rows(rows, actions):
    for begin in range(0, rows.shape[1], BLOCK):
        x, v = rows[0, begin : begin + BLOCK], rows[1, begin : begin + BLOCK]
        angle, turn = rows[2, begin : begin + BLOCK], rows[3, begin : begin + BLOCK]
        for i in range(BLOCK):
            state = step32((x[i], v[i], angle[i], turn[i]), actions[begin + i])
            x[i], v[i], angle[i], turn[i] = state


in_rows(rows, narrow)


# %% [markdown]
# ## The machine code, counted
#
# Arithmetic instructions say in their names what they work on: `vmulps` multiplies packed single
# precision, `vmulsd` one (scalar) double; `zmm` registers hold sixteen float32, `ymm` eight, `xmm`
# four.


# %%
def instructions(function):
    """How many arithmetic instructions of each kind a compiled function has."""
    (code,) = function.inspect_asm().values()
    found = collections.Counter()
    pattern = r"^\s+v?(?:add|sub|mul|div|f?n?m(?:add|sub)\d*|min|max|sqrt)([ps])([sd])\s(.*)$"
    for packed, width, operands in re.findall(pattern, code, re.MULTILINE):
        number = "float32" if width == "s" else "float64"
        register = next(r for r in ("zmm", "ymm", "xmm") if r in operands)
        found[f"{number}, {register if packed == 'p' else 'one at a time'}"] += 1
    return found


stations = {"as it comes": as_it_comes, "specialised": specialised, "in rows": in_rows}
mixes = {name: instructions(function) for name, function in stations.items()}
nanoseconds = {
    "Python": 1e9 * seconds(lambda: step((0.0, 0.0, 0.05, 0.0), 1)),
    "as it comes": 1e9 * seconds(lambda: as_it_comes(structures, actions)) / count,
    "specialised": 1e9 * seconds(lambda: specialised(structures, actions)) / count,
    "in rows": 1e9 * seconds(lambda: in_rows(rows, narrow)) / count,
}
for name, mix in mixes.items():
    print(f"{name}: {dict(mix)}")

# %%
kinds = sorted({kind for mix in mixes.values() for kind in mix})
colors = dict(zip(kinds, plt.cm.tab10.colors, strict=False))
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
for row, mix in enumerate(mixes.values()):
    start = 0
    for kind in kinds:
        left.barh(row, mix[kind], left=start, color=colors[kind], label=kind if row == 0 else None)
        start += mix[kind]
left.set(yticks=range(len(mixes)), yticklabels=list(mixes), xlabel="arithmetic instructions")
figure.legend(loc="outside lower left", ncols=2, fontsize=8)
left.invert_yaxis()
bars = right.barh(list(nanoseconds), list(nanoseconds.values()))
right.bar_label(bars, fmt="%.4g ns", padding=3)
right.set(xscale="log", xlabel="ns per step of one environment, one core")
right.set_xlim(min(nanoseconds.values()) / 3, 10 * max(nanoseconds.values()))
right.invert_yaxis()
plt.show()

# %% [markdown]
# In rows, the loop is there twice: with vectors, several of them at a time, and one at a time in
# case that the rows overlap, which the compiler cannot know here.

# %% [markdown]
# The library's own kernels add what an environment needs around its step: random numbers, the ends
# of episodes, new episodes. They are made by `kernel`, which keeps the machine code on disk under
# a hash of everything that it was made from, and which looks for float64 in float32 code: one such
# number widens all that it meets, and is refused with its line:


# %%
def careless(x):
    return np.float64(2.0) * x + 1.0


careless32 = specialise(careless, np.float32)


@kernel(scalars=(careless32,))
def apply(numbers):
    for i in range(numbers.shape[0]):
        numbers[i] = careless32(numbers[i])


try:
    apply(np.zeros(16, np.float32))
except TypeError as error:
    print(str(error).partition(", ")[2])  # behind the file

# %% [markdown]
# ## Compiled once
#
# Two processes that step CartPole for the first time, with an empty cache and with what the first
# one left there:

# %%
program = """
import time, rlcpu
env = rlcpu.make_vec("CartPole-v1", 16)
start = time.perf_counter()
env.reset(seed=0)
env.step(env.action_space.sample())
print(f"{time.perf_counter() - start:.2f} s for the first reset and step")
"""
with tempfile.TemporaryDirectory() as folder:
    for cache in ("empty", "full"):
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", program]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        print(f"{cache} cache: {result.stdout.strip()}")

# %% [markdown]
# ## CUDA
#
# The same specialised functions become device functions: one thread steps one environment.
# Compiling takes NVIDIA's compiler and no GPU, and what it made is kept on disk like the CPU's. In
# the code for an H100 the arithmetic is counted by width again, float32 alone, and its linker says
# how many registers a thread takes.


# %%
def compile_for_cuda():
    """Counts of float32 and float64 instructions of a kernel around `step32`, and registers."""
    from numba.cuda import dispatcher, types

    from rlcpu.cuda.compile import kernel as cuda_kernel
    from rlcpu.cuda.device import cuda

    @cuda_kernel
    def on_device(rows, actions):
        i = cuda.grid(1)
        if i < actions.shape[0]:
            state = step32((rows[0, i], rows[1, i], rows[2, i], rows[3, i]), actions[i])
            rows[0, i], rows[1, i], rows[2, i], rows[3, i] = state

    # Device functions ask for the GPU that they are compiled for; where there is none, we name one.
    h100 = SimpleNamespace(compute_capability=(9, 0))
    asked, dispatcher.get_current_device = dispatcher.get_current_device, lambda: h100
    try:
        kinds = (types.float32[:, ::1], types.int32[::1])
        code = on_device.compile(kinds, h100.compute_capability)
    finally:
        dispatcher.get_current_device = asked
    ptx, _ = on_device.link(code, h100.compute_capability, "-ptx")
    _, log = on_device.link(code, h100.compute_capability, "-verbose")
    counts = {width: len(re.findall(rf"\.{width}\b", ptx.decode())) for width in ("f32", "f64")}
    return {**counts, "registers": int(re.search(r"(\d+) registers", log)[1])}


try:
    print(compile_for_cuda())
except Exception as error:
    print(f"Not compiled for CUDA: {type(error).__name__}: {str(error).splitlines()[0]}")
    print('NVIDIA\'s compiler comes with pip install ".[cuda]".')

# %% [markdown]
# A launch waits for nothing. What only the kernel can see, such as a bad action in an array on the
# GPU, it writes to a word in the host's memory, nothing wrong is written elsewhere, and the next
# call raises it, or `rlcpu.cuda.synchronize()`.
#
# ## The roofline
#
# A kernel can be no faster than the machine computes, and no faster than its memory moves what it
# computes with. The first limit is taken from NumPy's product of large matrices on all cores, the
# second from copies of as many bytes as the kernel moves: arrays of megabytes may stay in the last
# cache from one call to the next, and then memory is no limit. Operations are additions,
# multiplications and divisions of the formulas; sines, random numbers and the bookkeeping of
# episodes are not counted, although they take time.


# %%
class Counted(float):
    """A number that counts the operations it takes part in."""

    operations = 0

    def _count(name):
        def operate(self, *others):
            Counted.operations += 1
            return Counted(getattr(float, name)(self, *others))

        return operate

    for _name in ("add", "sub", "mul", "truediv"):
        locals()[f"__{_name}__"] = _count(f"__{_name}__")
        locals()[f"__r{_name}__"] = _count(f"__r{_name}__")


cartpole.step(
    tuple(map(Counted, (0.0, 0.0, 0.05, 0.0))), 1,
    cartpole.Params(*[Counted(p) if isinstance(p, float) else p for p in PARAMS]),
)  # fmt: skip
per_step = Counted.operations
print(f"{per_step} operations in a step of CartPole, without sine and cosine")

cores = int(settings["threads"].split()[0])
square = np.ones((2048, 2048), np.float32)
product = np.empty_like(square)
peak = 2 * 2048**3 / seconds(lambda: np.matmul(square, square, out=product)) / 1e9


def copy_rate(moved):
    """Bytes a second of copies by all cores that move so many bytes, half read, half written."""
    source = np.ones((cores, moved // (16 * cores)))
    target = np.empty_like(source)
    repeats = 1 + 2**28 // moved  # in one call of a thread, whose start takes time too

    def copy(core):
        for _ in range(repeats):
            np.copyto(target[core], source[core])

    with ThreadPoolExecutor(cores) as pool:
        return repeats * 2 * source.nbytes / seconds(lambda: list(pool.map(copy, range(cores))))


lines = {"memory": copy_rate(2**29) / 1e9, "cache": copy_rate(2**23) / 1e9}
print(f"{peak:.0f} Gflop/s;", *(f"{name} {rate:.0f} GB/s;" for name, rate in lines.items()))

# %%
points = {}


def add_point(name, operations, moved, call):
    """Measure one kernel, of so many operations and bytes a call, and its roof."""
    before, rate, after = copy_rate(moved), operations / seconds(call) / 1e9, copy_rate(moved)
    intensity = operations / moved
    points[name] = intensity, rate, min(peak, intensity * max(before, after) / 1e9)


num_envs = 2**16
many = rlcpu.make_vec("CartPole-v1", num_envs)
many.reset(seed=0)
chosen = many.action_space.sample()
per_env = 2 * (4 * 4 + 2 * 4 + 4 + 4) + 8 + 4 * 4 + 4 + 2  # bytes: state, key, clock; results
add_point("env.step", per_step * num_envs, per_env * num_envs, lambda: many.step(chosen))

env = rlcpu.make_vec("CartPole-v1", 4096)
env.reset(seed=0)
uniform = rlcpu.policies.Uniform()
work = 4096 * 1000
add_point("simulate", per_step * work, 4096 * 64, lambda: rlcpu.simulate(env, uniform, 1000))

env = rlcpu.make_vec("CartPole-v1", 1024)
env.reset(seed=0)
spaces = env.single_observation_space, env.single_action_space
policy = rlcpu.policies.MLP(*spaces, hidden=(64, 64), activation="relu")
rollout = rlcpu.collect(env, policy, 128)
work = 1024 * 128
network = 2 * (4 * 64 + 64 * 64 + 64 * 3)
add_point(
    "collect", (per_step + network) * work, 62 * work,
    lambda: rlcpu.collect(env, policy, 128, out=rollout),
)  # fmt: skip

shape = (128, 4096)
rewards, values = np.ones((2, *shape), np.float32)
never, last = np.zeros(shape, bool), np.zeros(shape[1], np.float32)
estimates = rlcpu.scan.gae(rewards, values, never, never, last, gamma=0.99, lambda_=0.95)
add_point(
    "gae", 7 * rewards.size, 18 * rewards.size,
    lambda: rlcpu.scan.gae(
        rewards, values, never, never, last, gamma=0.99, lambda_=0.95, out=estimates
    ),
)  # fmt: skip

# %%
figure, axes = plt.subplots(figsize=(7, 4.5))
intensities = np.geomspace(0.1, 2e3, 100)
for (name, bandwidth), style in zip(lines.items(), ("-", ":"), strict=True):
    roof = np.minimum(peak, bandwidth * intensities)
    axes.loglog(intensities, roof, style, color="black", linewidth=1, label=f"copies in {name}")
for name, (intensity, rate, roof) in points.items():
    (point,) = axes.loglog(intensity, rate, "o", label=name)
    axes.vlines(intensity, rate, roof, color=point.get_color(), linewidth=1)  # up to its roof
axes.set(
    xlabel="operations per byte of memory", ylabel="Gflop/s", title="Roofline, float32, all cores"
)
figure.legend(loc="outside lower center", ncols=3)
plt.show()
for name, (_, rate, roof) in points.items():
    print(f"{name:9s} {rate:7.1f} Gflop/s, {100 * rate / roof:4.0f} % of its roof")

# %% [markdown]
# The upright lines lead from each kernel to its roof. The arrays of `env.step` and `gae` fit into
# the last cache here, and most of their time is that of moving them. Many steps in one call move
# `simulate` far to the right, where random numbers and the choice between going on and starting
# anew take the place of arithmetic. `collect` is a product of matrices with an environment around
# it.
