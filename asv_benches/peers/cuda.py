"""The table `cuda`: us on an NVIDIA GPU, beside the limits of the card and the peers that it has.

Peers (torch, jax, CuPy, torchrl) take part where they are installed with CUDA. Results go to
`asv_benches/results/<device>-cuda.json`. For a machine without a network, where one has it:

    pip download -d wheels . -r asv_benches/peers/requirements-cuda.txt
    pip install --no-index --find-links wheels rlcpu[cuda] pytest    # there
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers.collect import OPERATIONS
from asv_benches.peers.harness import Contender, Effort, Job, Measurement, Panel
from asv_benches.peers.libraries import jax, torch
from asv_benches.peers.rows import Row, duels
from asv_benches.peers.scan import Systems
from asv_benches.peers.simulate import CARTPOLE, jax_simulate, torch_cartpole, torch_simulate
from asv_benches.peers.stepping import make_ours, our_collect, our_simulate

ROOT = Path(__file__).parents[2]


class Sizes(NamedTuple):
    """How much to measure; the defaults are for a card."""

    envs: tuple[int, int, int] = (2**24, 2**20, 2**16)  # of a step, of simulations, of rollouts
    steps: tuple[int, int] = (1000, 128)  # of simulations, of rollouts
    exponents: tuple[int, ...] = tuple(range(8, 25, 2))  # of Figure 8's numbers of environments
    lengths: tuple[int, ...] = (1, 10, 100, 1000)  # Figure 8's steps a call
    system: tuple[int, int] = (100_000, 100)  # tridiagonal systems and their unknowns
    long: tuple[tuple[int, int], ...] = ((1000, 10_000), (10, 1_000_000), (1, 10_000_000))
    tree: tuple[int, tuple[int, ...]] = (2**21, (65_536, 256))  # leaves; of an update or a sample
    copied: int = 2**28  # float32 numbers of the copy that measures the bandwidth
    chains: tuple[int, int] = (2**20, 4096)  # threads and steps that measure the float32 peak


#: Small enough for the simulator.
QUICK = Sizes((8, 4, 4), (2, 2), (2,), (1, 2), (3, 4), ((2, 9),), (8, (4,)), 1024, (4, 8))
#: Of CartPole's step: state, return and clock read and written, keys and action read, outputs.
STEP_BYTES = 2 * 5 * 4 + 2 * 4 + 8 + 4 + 4 * 4 + 4 + 2


def missing() -> str:
    """What keeps the table from being measured; "" with a GPU."""
    from rlcpu import cuda

    return "" if cuda.is_available() else cuda.describe()


def device_name() -> str:
    """A name for files, such as "nvidia-h100-80gb-hbm3"."""
    from rlcpu import cuda

    return "-".join(re.findall(r"[a-z0-9.]+", cuda.describe().partition(" (")[0].lower()))


def rows(quick: bool = False) -> list[Row]:
    """All rows, the promised ones first."""
    sizes = QUICK if quick else Sizes()
    solved = [*solve_rows(sizes), *long_rows(sizes)]
    return [*env_rows(sizes), *solved, *tree_rows(sizes), first_use_row(), *fusion_rows(sizes)]


def env_rows(sizes: Sizes) -> list[Row]:
    """Environments and rollouts. Promised besides: 100 G steps/s of `simulate` on an H100."""
    (large, long, rollout), (steps, horizon) = sizes.envs, sizes.steps
    step = f"env.step, {large:,} CartPoles, float32"
    simulate = f"simulate, {long:,} CartPoles x {steps:,} steps, float32"
    collect = f"collect, MLP 4-64-64, {rollout:,} x {horizon}"
    ours, size = partial(cartpole_collect, rollout, horizon), (rollout, horizon)
    simulated = {
        "torch": ("torch eager", partial(on_torch, torch_simulate, long), 10),
        "jax": ("jax scan", partial(on_jax, jax_simulate, long, steps), 3),
    }
    host = Panel(rollout, {"rlcpu": partial(host_step, rollout)}, rates=False)
    collected = {"torch": ("torch", partial(on_torch, torch_collect, *size), 5)}
    peak = {"peak": ("float32 peak", partial(multiply_add, *sizes.chains))}
    advantages = f"generalised advantages, {horizon} x {rollout:,}, float32"
    return [
        *share("", step, partial(our_step, large), sizes, {"step": 0.8}),
        *duels("simulate", simulate, partial(cartpole_simulate, long, steps), simulated),
        *duels("collect", collect, ours, collected),
        *duels("collect", collect, partial(ours, OPERATIONS), peak, "peak"),
        Row("host", f"env.step, {rollout:,} CartPoles: the host's part", "-", host, unit="s"),
        *share("gae", advantages, partial(our_gae, horizon, rollout), sizes, {"copy": 0.6}),
    ]


def solve_rows(sizes: Sizes) -> list[Row]:
    """Many small tridiagonal systems; interleaved ones are the columns of matrices."""
    table, (count, size) = [], sizes.system
    for dtype in ("float64", "float32"):
        for layout, axis, part, times in (
            ("interleaved", "columns", 0.3, 2.0),
            ("rows", "rows", 0.25, 1.5),
        ):
            name, systems = f"thomas-{layout}-{dtype}", Systems(count, size, dtype, axis)
            what = f"solve_tridiagonal, {count:,} systems of {size}, {dtype}, {layout}"
            ours = partial(our_solve, systems)
            peers: dict[str, Any] = {
                "cupy": ("cuSPARSE gtsv2StridedBatch", partial(cupy_solve, systems), times)
            }
            if layout == "interleaved":
                pivoting = partial(cupy_interleaved, systems)
                peers["pivoting"] = ("cuSPARSE gtsvInterleavedBatch, pivoting", pivoting, 1.2)
            table += share(name, what, partial(ours, in_bytes=True), sizes, {"copy": part})
            table += duels(name, what, ours, peers, "time")
    return table


def long_rows(sizes: Sizes) -> list[Row]:
    """Few long tridiagonal systems, in rows."""
    table = []
    for count, size in sizes.long:
        systems, what = Systems(count, size), f"solve_tridiagonal, {count:,} x {size:,}, float64"
        peers: dict[str, Any] = {
            "cupy": ("cuSPARSE gtsv2StridedBatch", partial(cupy_solve, systems), 1.0)
        }
        if count == 1:
            peers["pivoting"] = ("cuSPARSE gtsv2, pivoting", partial(cupy_single, systems), 1.0)
        table += duels(f"long-{count}x{size}", what, partial(our_solve, systems), peers, "time")
    return table


def tree_rows(sizes: Sizes) -> list[Row]:
    """The sum tree. Promised besides, in us: 60 an update, 20 a sample; of the few, 25 and 15."""
    table, (leaves, batches) = [], sizes.tree
    for batch, operation in itertools.product(batches, ("update", "sample")):
        what = f"sum tree of {leaves:,} leaves, {batch:,} at a time: {operation}"
        end = operation if batch == batches[0] else f"{operation}-{batch}"
        peers = {end: ("torchrl", partial(on_torch, torchrl_tree, operation, leaves, batch))}
        table += duels("tree", what, partial(our_tree, operation, leaves, batch), peers, "time")
    return table


def first_use_row() -> Row:
    """A process's first calls. Promised besides: 1 s with machine code on disk."""
    what = "first step, solve and update of a process, machine code on disk"
    return Row("first-use", what, "empty cache", first_use, unit="s", limit_s=None)


def fusion_rows(sizes: Sizes) -> list[Row]:
    """The paper's Figure 8: what fusing steps gains."""
    table = []
    for exponent in sizes.exponents:
        size = 2**exponent
        curves = {f"rlcpu, K={k}": partial(cartpole_simulate, size, k) for k in sizes.lengths}
        name, what = f"figure8-n2^{exponent}", f"simulate, 2^{exponent} CartPoles"
        table.append(Row(name, what, "-", Panel(size, curves)))
    return table


def share(
    name: str, what: str, ours: Contender, sizes: Sizes, targets: dict[str, float]
) -> list[Row]:
    """A row whose target is a share of the bandwidth of a copy."""
    copy = partial(copied, sizes.copied)
    peers = {end: ("copy bandwidth", copy, target) for end, target in targets.items()}
    return duels(name, what, ours, peers, "peak", unit="B/s")


# ---------------------------------------------------------------- the card


def arrays_on_device() -> Any:
    """The module whose arrays are on the device: CuPy, or NumPy in the simulator."""
    from rlcpu import cuda

    if cuda.describe().startswith("simulator"):
        return np
    import cupy

    return cupy


def our_job(call: Callable[..., Any], work: float = 1.0, note: str = "") -> Job:
    """A job that waits for the device at the end of a repetition."""
    from rlcpu import cuda

    return Job(call, work=work, finish=cuda.synchronize, note=note)


def copied(size: int) -> Job:
    """A copy of float32 numbers, in bytes read and written."""
    xp = arrays_on_device()
    source, target = (xp.zeros(size, xp.float32) for _ in range(2))
    return our_job(lambda: xp.copyto(target, source), 8.0 * size)


def multiply_add(threads: int, steps: int) -> Job:
    """Eight chains of multiply-adds a thread, enough to hide their latency, in operations."""
    global cuda  # where the simulator looks for it
    xp = arrays_on_device()
    from numba import cuda

    @cuda.jit
    def chains(values, scale, shift, steps):
        i = cuda.grid(1)
        a = values[i]
        b = a + shift
        c = b + shift
        d = c + shift
        e = d + shift
        f = e + shift
        g = f + shift
        h = g + shift
        for _ in range(steps):
            a = a * scale + shift
            b = b * scale + shift
            c = c * scale + shift
            d = d * scale + shift
            e = e * scale + shift
            f = f * scale + shift
            g = g * scale + shift
            h = h * scale + shift
        values[i] = a + b + c + d + e + f + g + h

    block = min(threads, 256)
    kernel = chains[threads // block, block]
    call = partial(kernel, xp.zeros(threads, xp.float32), np.float32(0.5), np.float32(1), steps)
    return our_job(call, 2.0 * 8 * steps * threads)


# ---------------------------------------------------------------- ours


def our_step(num_envs: int) -> Job:
    """One step of very many environments: memory traffic and nothing else, in bytes."""
    actions = np.random.default_rng(0).integers(0, 2, num_envs).astype(np.int32)
    env = make_ours(CARTPOLE, num_envs, device="cuda")
    call = partial(env.step, arrays_on_device().asarray(actions))
    return our_job(call, num_envs * STEP_BYTES, f"{STEP_BYTES} bytes a step")


def host_step(num_envs: int) -> Job:
    """The same of so few environments that the device has taken the step before the host has."""
    actions = arrays_on_device().zeros(num_envs, np.int32)
    env = make_ours(CARTPOLE, num_envs, device="cuda")
    return Job(partial(env.step, actions))


def cartpole_simulate(num_envs: int, num_steps: int) -> Job:
    job = our_simulate(CARTPOLE, num_envs, num_steps, device="cuda")
    return our_job(job.call, job.work)


def cartpole_collect(num_envs: int, num_steps: int, operations: int = 1) -> Job:
    """Simulation and inference in one kernel."""
    job = our_collect(make_ours(CARTPOLE, num_envs, device="cuda"), num_steps)
    return our_job(job.call, job.work * operations)


def our_gae(num_steps: int, num_envs: int) -> Job:
    """A recurrence over time, batched over environments, in bytes read and written."""
    from rlcpu.scan import gae

    rng, shape = np.random.default_rng(0), (num_steps, num_envs)
    floats = [rng.random(shape, np.float32) for _ in range(2)]
    ends = [rng.random(shape) < 0.01 for _ in range(2)]
    last, final = rng.random(num_envs, np.float32), rng.random(shape, np.float32)
    to_device = arrays_on_device().asarray
    arrays = map(to_device, (*floats, *ends, last))
    options = {"final_values": to_device(final), "gamma": 0.99, "lambda_": 0.95}
    size = 5 * 4 + 2  # rewards, values, final values, two flags; advantages and returns
    call = partial(gae, *arrays, **options)
    return our_job(call, num_steps * num_envs * size, f"{size} bytes a step")


def our_solve(systems: Systems, in_bytes: bool = False) -> Job:
    """Many systems, in calls or in bytes read and written."""
    from rlcpu.scan import solve_tridiagonal

    arrays = list(map(arrays_on_device().asarray, systems.draw(np.random.default_rng(0))))
    options = {"axis": systems.axis, "out": 0 * arrays[0], "method": "thomas"}
    call = partial(solve_tridiagonal, *arrays, **options)
    return our_job(call, 5 * arrays[0].nbytes if in_bytes else 1)


def our_tree(operation: str, leaves: int, batch: int) -> Job:
    """Priorities written, or indices drawn."""
    from rlcpu.replay import SumTree

    rng, xp = np.random.default_rng(0), arrays_on_device()
    tree = SumTree(leaves, seed=0, device="cuda")
    tree.update(np.arange(leaves), rng.random(leaves))
    update = xp.asarray(rng.integers(0, leaves, batch)), xp.asarray(rng.random(batch))
    calls = {"update": partial(tree.update, *update), "sample": partial(tree.sample, batch)}
    return our_job(calls[operation])


# ---------------------------------------------------------------- torch, jax, CuPy, torchrl


def on_torch(make: Callable[..., Job], *arguments: Any) -> Job:
    """A job whose tensors torch makes on the device."""
    if not torch.cuda.is_available():
        raise ModuleNotFoundError("torch is not built for CUDA")
    torch.set_default_device("cuda")
    return make(*arguments)._replace(finish=torch.cuda.synchronize)


def on_jax(make: Callable[..., Job], *arguments: Any) -> Job:
    """A job of JAX's default device."""
    # Else it takes three quarters of the memory, and the other contender has to do with the rest.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if jax.default_backend() != "gpu":
        raise ModuleNotFoundError("jax has no GPU backend")
    return make(*arguments)


def torch_collect(num_envs: int, num_steps: int) -> Job:
    """The loop that is not fused: two networks, a categorical draw, the physics, the records."""

    def network(outputs: int) -> Any:
        layers = [torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64)]
        return torch.nn.Sequential(*layers, torch.nn.Tanh(), torch.nn.Linear(64, outputs))

    lanes, advance = torch_cartpole(num_envs)
    policy, critic = network(2), network(1)
    observations = torch.empty(num_steps, num_envs, 4)
    records = torch.empty(3, num_steps, num_envs)
    actions = torch.empty(num_steps, num_envs, dtype=torch.int64)

    @torch.inference_mode()
    def call() -> None:
        nonlocal lanes
        for t in range(num_steps):
            seen = torch.stack(lanes[:4], dim=1)
            log_probs = torch.log_softmax(policy(seen), 1)
            chosen = torch.multinomial(log_probs.exp(), 1)
            observations[t], actions[t] = seen, chosen[:, 0]
            records[0, t] = log_probs.gather(1, chosen)[:, 0]
            records[1, t] = critic(seen)[:, 0]
            lanes = advance(lanes)
            records[2, t] = 1.0

    return Job(call, work=num_envs * num_steps)


def torchrl_tree(operation: str, leaves: int, batch: int) -> Job:
    """torchrl's CUDA sum tree."""
    from torchrl._torchrl import SumSegmentTreeFp32

    tree = SumSegmentTreeFp32(leaves, torch.device("cuda"))
    tree[torch.arange(leaves)] = torch.rand(leaves)
    indices, priorities = torch.randint(0, leaves, (batch,)), torch.rand(batch)
    if operation == "update":
        return Job(partial(tree.__setitem__, indices, priorities))
    return Job(lambda: tree.scan_lower_bound(torch.rand(batch) * tree.query(0, leaves)))


#: First calls of a process, once CUDA and all packages are there; `first_use` runs it.
FIRST_USE = """
import time
import numpy as np
import rlcpu, rlcpu.replay, rlcpu.scan
from rlcpu.cuda import synchronize
from rlcpu.cuda.device import asarray, to_host
numbers = asarray(np.random.default_rng(0).random((4, 100, 64)))
to_host(numbers + numbers)
synchronize()
begin = time.perf_counter()
env = rlcpu.make_vec("CartPole-v1", 64, device="cuda")
env.reset(seed=0)
env.step(np.zeros(64, np.int64))
rlcpu.scan.solve_tridiagonal(numbers[0], 2 + numbers[1], numbers[2], numbers[3], axis=0)
tree = rlcpu.replay.SumTree(1000, device="cuda", seed=0)
tree.update(np.arange(100), np.ones(100))
tree.sample(10)
synchronize()
print(time.perf_counter() - begin)
"""


def first_use(effort: Effort) -> Measurement:
    """Seconds of a fresh process's first calls: median with machine code on disk, once without."""
    command = [sys.executable, "-c", FIRST_USE]
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "NUMBA_CACHE_DIR": folder}
        outputs = [
            subprocess.check_output(command, cwd=ROOT, env=variables, text=True)
            for _ in range(effort.starts + 1)
        ]
    empty, *seconds = map(float, outputs)
    ours = float(np.median(seconds))
    return Measurement(ours, empty, empty / ours, None, f"{len(seconds)} processes")


def cupy_solve(systems: Systems) -> Job:
    """cuSPARSE's batched solver, which overwrites the right-hand sides; JAX's is the same one."""
    import cupy
    from cupy_backends.cuda.libs import cusparse

    host = systems.draw(np.random.default_rng(0))
    in_rows = (x if systems.axis else x.T for x in host)
    lower, diagonal, upper, rhs = (cupy.asarray(np.ascontiguousarray(x)) for x in in_rows)
    name = f"{'d' if rhs.dtype == np.float64 else 's'}gtsv2StridedBatch"
    handle = cupy.cuda.device.get_cusparse_handle()
    solution = rhs.copy()
    pointers = [each.data.ptr for each in (lower, diagonal, upper, solution)]
    ask, solve = getattr(cusparse, f"{name}_bufferSizeExt"), getattr(cusparse, name)
    buffer = cupy.empty(ask(handle, systems.n, *pointers, systems.batch, systems.n), cupy.uint8)

    def call() -> None:
        solution[...] = rhs
        solve(handle, systems.n, *pointers, systems.batch, systems.n, buffer.data.ptr)

    return Job(call, finish=cupy.cuda.runtime.deviceSynchronize)


def cupy_interleaved(systems: Systems) -> Job:
    """cuSPARSE's solver of interleaved systems, by LU with partial pivoting.

    It overwrites the matrices, which are not copied back: later calls factor what it has left.
    """
    import cupy
    from cupy_backends.cuda.libs import cusparse

    arrays = list(map(cupy.asarray, systems.draw(np.random.default_rng(0))))  # (n, batch)
    name = f"{'d' if arrays[0].dtype == np.float64 else 's'}gtsvInterleavedBatch"
    handle, pivoting = cupy.cuda.device.get_cusparse_handle(), 1
    pointers = [each.data.ptr for each in arrays]
    ask, solve = getattr(cusparse, f"{name}_bufferSizeExt"), getattr(cusparse, name)
    size = ask(handle, pivoting, systems.n, *pointers, systems.batch)
    buffer = cupy.empty(size, cupy.uint8)
    call = partial(solve, handle, pivoting, systems.n, *pointers, systems.batch, buffer.data.ptr)
    return Job(call, finish=cupy.cuda.runtime.deviceSynchronize, note="matrices overwritten")


def cupy_single(systems: Systems) -> Job:
    """cuSPARSE's solver of one system, with pivoting, which overwrites the right-hand side."""
    import cupy
    from cupy_backends.cuda.libs import cusparse

    host = systems.draw(np.random.default_rng(0))
    lower, diagonal, upper, rhs = (cupy.asarray(x.reshape(-1)) for x in host)
    handle, n, solution = cupy.cuda.device.get_cusparse_handle(), systems.n, rhs.copy()
    pointers = [each.data.ptr for each in (lower, diagonal, upper, solution)]
    buffer = cupy.empty(cusparse.dgtsv2_bufferSizeExt(handle, n, 1, *pointers, n), cupy.uint8)

    def call() -> None:
        solution[...] = rhs
        cusparse.dgtsv2(handle, n, 1, *pointers, n, buffer.data.ptr)

    return Job(call, finish=cupy.cuda.runtime.deviceSynchronize)
